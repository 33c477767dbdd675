"""What was not tried is said aloud: a run that cannot start here has not passed."""

from __future__ import annotations

NOT_TRIED = "NOT TRIED: "


def pytest_terminal_summary(terminalreporter) -> None:
    """A block of its own for skipped runs."""
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])
               if isinstance(report.longrepr, tuple) and NOT_TRIED in report.longrepr[2]]
    if skipped:
        terminalreporter.section("chaos runs that were NOT tried on this machine", sep="!",
                                 red=True, bold=True)
        for reason in skipped:
            terminalreporter.line(reason.partition(NOT_TRIED)[2], red=True)
