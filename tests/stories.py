"""Stories: modules whose tests are steps on one cluster that grows or shrinks permanently.

Contract.  A module says ``STORY = True``.  Its steps run in the order of the file, in spite of any
requested order.  A selected step is run after all steps before it.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def in_order(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the tests with all steps of a story at the place of its first selected one."""
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


def _steps(module: pytest.Module, chosen: dict[str, pytest.Item]) -> list[pytest.Item]:
    """Return all steps of a story up to the last selected one."""
    steps = list(module.collect())
    last = max(place for place, step in enumerate(steps) if step.nodeid in chosen)
    told = steps[:last + 1]
    if all(step.nodeid in chosen for step in told):
        return [chosen[step.nodeid] for step in told]
    # No mixture: a second collection has fixtures of its own, and the cluster would be made twice.
    return told
