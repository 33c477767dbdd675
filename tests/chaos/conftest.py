"""What long tests went through is said at the end of the run, passed or not; and what was not tried
is said aloud: a run that cannot start here has not passed."""

from __future__ import annotations

import pytest

NOT_TRIED = "NOT TRIED: "
_SAID: list[str] = []


@pytest.fixture
def say():
    """Lines for the summary of the whole run."""
    return _SAID.append


def pytest_terminal_summary(terminalreporter) -> None:
    """A block of its own for seeds, and one for skipped runs."""
    if _SAID:
        terminalreporter.section("fresh seeds")
        for line in _SAID:
            terminalreporter.line(line)
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])
               if isinstance(report.longrepr, tuple) and NOT_TRIED in report.longrepr[2]]
    if skipped:
        terminalreporter.section("chaos runs that were NOT tried on this machine", sep="!",
                                 red=True, bold=True)
        for reason in skipped:
            terminalreporter.line(reason.partition(NOT_TRIED)[2], red=True)
