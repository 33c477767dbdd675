"""The development cluster that commands use when none is named.

Contract.  It is the one in `./dev-cluster`, else the one that was started last.  A stopped cluster
in `./dev-cluster` gives way to one that runs: a command for a stopped cluster can only fail.
Reads files and the process table; asks no node.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from admin_cli.development import dev_process, dev_state
from admin_cli.failures import CommandFailed


class Choice(NamedTuple):
    """The cluster's directory, None = there is none, and how it was found, for a sentence."""

    directory: Path | None
    how: str
    passed_over: Path | None = None  # a stopped cluster in the current directory


def runs(directory: Path) -> bool:
    """Return True if a node of the cluster in ``directory`` runs. False also where the record
    cannot be read: the command that uses the cluster reports that."""
    with contextlib.suppress(CommandFailed, OSError):
        return any(dev_process.node_alive(directory, node)
                   for node in dev_state.load(directory).nodes)
    return False


def find(environ: Mapping[str, str]) -> Choice:
    """Return the development cluster that commands use by default."""
    here = _here()
    pointed = dev_state.read_pointer(environ)
    if here is not None and pointed in (None, here):
        return Choice(here, "found in the current directory")
    if pointed is None:
        return Choice(None, "")
    if here is None:
        return Choice(pointed, "the one started last")
    if runs(here):
        return Choice(here, "found in the current directory")
    if runs(pointed):
        return Choice(pointed, f"the one started last, because none runs in {here}", here)
    return Choice(here, f"found in the current directory; the one started last, {pointed}, does "
                        "not run either")


def _here() -> Path | None:
    with contextlib.suppress(FileNotFoundError):  # the current directory was removed
        here = Path.cwd() / dev_state.DEFAULT_DIRECTORY
        return here if dev_state.exists(here) else None
    return None
