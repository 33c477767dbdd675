"""Crashes of the product's clients inside a run, reported as anomalies.

Contract.  ``survive`` awaits a workload.  An exception other than a cancellation becomes the
anomaly ``client-crashed``, with its traceback in ``crashes/NAME.txt`` of the run's folder, and the
run continues without that workload.  ``SetupFailed`` passes through: without a set-up there is no
run.

Theory.  The product promises its own errors (``MultiRaftError``), and workloads record those as
outcomes.  Any other exception is a bug of the client, or of the harness; the traceback says which.
Either way the other clients, the final reads and the nodes' disks are evidence that must not be
lost with it.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from chaos.checkers.verdict import Anomaly
from chaos.run.topics import SetupFailed


class Crashes:
    """Collector of crashes; it adds their anomalies to ``anomalies``."""

    def __init__(self, folder: Path, anomalies: list[Anomaly], now_us: Callable[[], int]):
        self._folder = folder
        self._anomalies = anomalies
        self._now_us = now_us

    async def survive(self, name: str, action: Callable[..., Awaitable[None]], *arguments: Any,
                      ) -> bool:
        """Await ``action``; return True if it completed. An exception is noted as an anomaly, its
        traceback goes to a file, and False is returned; ``SetupFailed`` is raised.

        ``name`` identifies the workload in the verdict and names the file."""
        crashed = False
        try:
            await action(*arguments)
        except* SetupFailed:
            raise
        except* Exception as group:
            crashed = True
            self._note(name, group)
        return not crashed

    def _note(self, name: str, group: BaseExceptionGroup) -> None:
        path = self._folder / f"{name.replace(' ', '-')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(traceback.format_exception(group))
        errors = list(leaves(group))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        self._anomalies.append(Anomaly(
            "A0", "client-crashed", f"{name} ended by {described(errors[0])}{more}; the traceback "
            f"is in {path.parent.name}/{path.name}", "", (), self._now_us()))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, and in its groups, that are no groups; another exception
    itself. Tasks wrap the exception that ends them."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def described(error: BaseException) -> str:
    """Return class, text and place of an exception, on one line."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" in {frame.name}, {frame.filename}:{frame.lineno}" for frame in last)
    return f"{traceback.format_exception_only(error)[-1].strip()}{where}"
