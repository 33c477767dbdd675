"""A pytest plug-in that plants bugs before anything is collected.

    MULTIRAFT_PLANTED=aba,ack-before-sync python -m pytest -p chaos.planted.plugin tests/raft

Contract.  Without the variable nothing is planted.  Tests that start nodes ask ``active`` and start
them through ``chaos.launcher``, which plants the same in their processes.
"""

from __future__ import annotations

import os
from typing import Any

from chaos.planted import bug
from chaos.planted.catalogue import BUGS

#: Names of bugs, separated by commas.
VARIABLE = "MULTIRAFT_PLANTED"


def active() -> tuple[str, ...]:
    """The bugs that are planted in this process and in those that its tests start."""
    return tuple(name for name in os.environ.get(VARIABLE, "").split(",") if name)


def pytest_configure(config: Any) -> None:
    """Plant.  Raises ``bug.StaleBug``; an unknown name is a ``KeyError``."""
    for name in active():
        bug.plant(BUGS[name])


def pytest_report_header(config: Any) -> str:
    """What is planted, so that no one takes such a run for another."""
    return f"planted bugs: {', '.join(active()) or 'none'}"
