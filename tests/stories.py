"""Modules whose tests are the steps of one story, because a cluster grows or shrinks in them for
good.

Contract.  A module says ``STORY = True``.  Its steps run in the order in which they are written,
whatever order was asked for, and whoever asks for one of them gets those before it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The tests of a run with the steps of each story in place of its first one."""
    chosen: dict[pytest.Module, dict[str, pytest.Item]] = {}
    for item in items:
        chosen.setdefault(item.getparent(pytest.Module), {})[item.nodeid] = item
    ordered: list[pytest.Item] = []
    told: set[pytest.Module] = set()
    for item in items:
        module = item.getparent(pytest.Module)
        if not getattr(module.obj, "STORY", False):
            ordered.append(item)
        elif module not in told:
            told.add(module)
            ordered += _steps(module, chosen[module])
    return ordered


def _steps(module: pytest.Module, chosen: dict[str, pytest.Item]) -> Iterator[pytest.Item]:
    """All steps up to the last one that was chosen."""
    steps = list(module.collect())
    last = max(place for place, step in enumerate(steps) if step.nodeid in chosen)
    for step in steps[:last + 1]:
        yield chosen.get(step.nodeid, step)
