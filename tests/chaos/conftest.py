"""Summary of long tests: statistics of seeds, and runs that were skipped, because a run that cannot
start here has not passed.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos import engine

NOT_TRIED = "NOT TRIED: "
SAID = "said"


@pytest.fixture(scope="session", autouse=True)
def installs_nothing() -> Iterator[None]:
    """Keep tests from installing a container engine: `multiraft chaos run` installs one, tests are
    skipped without."""
    def refuse() -> None:
        raise engine.EngineUnavailable("no Docker engine answers, and tests install none. "
                                       f"Run as root: {engine.BRING}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "install", refuse)
        yield


@pytest.fixture
def say(request):
    """Add lines to the summary of the whole run; another process than the test's may print it."""
    return lambda line: request.node.user_properties.append((SAID, line))


def pytest_terminal_summary(terminalreporter) -> None:
    """Print a block for seeds, and one for skipped runs."""
    said = [line for outcome in ("passed", "failed")
            for report in terminalreporter.stats.get(outcome, []) if report.when == "call"
            for name, line in report.user_properties if name == SAID]
    if said:
        terminalreporter.section("fresh seeds")
        for line in said:
            terminalreporter.line(line)
    skipped = [report.longrepr[2] for report in terminalreporter.stats.get("skipped", [])
               if isinstance(report.longrepr, tuple) and NOT_TRIED in report.longrepr[2]]
    if skipped:
        terminalreporter.section("chaos runs that were NOT tried on this machine", sep="!",
                                 red=True, bold=True)
        for reason in skipped:
            terminalreporter.line(reason.partition(NOT_TRIED)[2], red=True)
