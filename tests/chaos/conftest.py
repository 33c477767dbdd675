"""What long tests went through is said at the end of the run, passed or not; and what was not tried
is said aloud: a run that cannot start here has not passed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from chaos import engine

NOT_TRIED = "NOT TRIED: "
SAID = "said"


@pytest.fixture(scope="session", autouse=True)
def installs_nothing() -> Iterator[None]:
    """Whoever runs tests has not asked for a container engine: `multiraft chaos run` installs one,
    tests are skipped without."""
    def refuse() -> None:
        raise engine.EngineUnavailable("no Docker engine answers, and tests install none. "
                                       f"Run as root: {engine.BRING}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "install", refuse)
        yield


@pytest.fixture
def say(request):
    """Lines for the summary of the whole run, which another process than the test's may write."""
    return lambda line: request.node.user_properties.append((SAID, line))


def pytest_terminal_summary(terminalreporter) -> None:
    """A block of its own for seeds, and one for skipped runs."""
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
