"""What a long test went through is said at the end of the run, passed or not."""

from __future__ import annotations

import pytest

_SAID: list[str] = []


@pytest.fixture
def say():
    """Lines for the summary of the whole run."""
    return _SAID.append


def pytest_terminal_summary(terminalreporter):
    if _SAID:
        terminalreporter.section("fresh seeds")
        for line in _SAID:
            terminalreporter.line(line)
