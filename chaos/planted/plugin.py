"""Pytest plug-in that plants bugs before tests are collected.

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
    """Return the names of the bugs that the variable asks to plant, in this process and in those
    that its tests start."""
    return tuple(name for name in os.environ.get(VARIABLE, "").split(",") if name)


def pytest_configure(config: Any) -> None:
    """Plant the bugs of the variable in this process.  Raises ``bug.StaleBug``; an unknown name is
    a ``KeyError``."""
    for name in active():
        bug.plant(BUGS[name])


def pytest_report_header(config: Any) -> str:
    """Return the line of pytest's header that names the planted bugs, so that such a run is not
    taken for a normal one."""
    return f"planted bugs: {', '.join(active()) or 'none'}"
