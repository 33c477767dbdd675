"""docs/troubleshooting.md explains each text that `cluster status` can report, each exit code and
each event of the log that may need an operator."""

from __future__ import annotations

import os
import re

import pytest

import multiraft.client.blocking
import multiraft.errors
import multiraft.wire.errors
from admin_cli.failures import ExitCode
from admin_cli.status import cluster_facts, health
from node.observability.group_health import GroupSample, Survey
from node.observability.health import readiness
from node.observability.log_events import CRITICAL, ERROR, EVENTS, WARNING
from node.observability.phase import SERVING, Life
from tests.tidy import tree

PAGE = tree.ROOT / "docs" / "troubleshooting.md"
MARK = "<!-- table: made from the source by tests/docs/test_troubleshooting.py -->\n"
#: Placeholders of the page.
NAMES = {"node": "N", "group": "G", "groups": "1 (G)", "why": "REASON", "free": "SIZE",
         "share": "S", "skew": "SKEW"}


def rows(heading: str) -> dict[str, str]:
    """Return first cell -> whole row of the tables below a heading."""
    part = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return {line.split("|")[1].strip(): line for line in part.splitlines()
            if line.startswith("| ")}


@pytest.mark.parametrize("problem", health.PROBLEMS.values(), ids=health.PROBLEMS)
def test_each_problem_is_explained_with_its_next_commands(problem):
    row = rows("Needs attention")[f"`{problem.text.format(**NAMES)}`"]
    for command in (problem.command, problem.dev_command):
        assert not command or f"`{command.format(**NAMES)}`" in row


def test_the_page_explains_no_problem_that_is_never_reported():
    told = {f"`{problem.text.format(**NAMES)}`" for problem in health.PROBLEMS.values()}
    named = {cell for cell in rows("Needs attention") if re.search(r"\bN\b|[(]|metadata", cell)}
    assert named == told


@pytest.mark.parametrize("note", health.NOTES.values(), ids=health.NOTES)
def test_each_note_is_explained_with_its_next_command(note):
    row = rows("Notes")[f"`{note.text.format(**NAMES)}`"]
    assert not note.command or f"`{note.command}`" in row


def test_the_page_explains_no_note_that_is_never_printed():
    assert set(rows("Notes")) - {"line"} == {f"`{note.text.format(**NAMES)}`"
                                             for note in health.NOTES.values()}


@pytest.mark.parametrize("survey", [
    Survey(quarantined=GroupSample(1, [7])), Survey(leaderless=GroupSample(1, [7])),
    Survey(behind=GroupSample(1, [7])), None])
def test_each_reason_of_a_node_that_is_not_ready_is_explained(survey):
    life = Life()
    life.phase = SERVING
    reason = readiness(life, survey).reason
    assert reason and f"`{reason.partition(':')[0]}`" in rows("Needs attention")


def test_the_reason_for_which_a_node_was_not_asked_is_explained(monkeypatch):
    monkeypatch.setattr(cluster_facts, "BUDGET_S", 0)
    _answer, reason = cluster_facts.NodeQueries()(pytest.fail, "it was asked")
    assert f"`{reason}`" in PAGE.read_text()


def test_every_phase_but_serving_is_a_problem():
    from node.observability import phase

    for each in (phase.RECOVERING, phase.STARTING, phase.STOPPING):
        assert f"node_{each}" in health.PROBLEMS


def test_each_exit_code_is_explained():
    named = set(rows("Exit codes of commands")) - {"code"}
    assert named == {str(int(code)) for code in ExitCode if code}


def test_each_exception_that_is_named_exists():
    cells = set(rows("Errors of clients")) - {"exception"}
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 10
    for name in named:
        assert any(hasattr(module, name) for module in (
            multiraft.wire.errors, multiraft.errors, multiraft.client.blocking)), name


# ---- the table of events -------------------------------------------------------------------------


def page() -> str:
    """Return the page with the table of events as the source has them."""
    lines = ["\n| event | level | meaning | next |\n", "|---|---|---|---|\n"]
    lines += [f"| `{event.name}` | {event.level} | {event.meaning} | {event.action} |\n"
              for level in (CRITICAL, ERROR, WARNING) for event in EVENTS.values()
              if event.level == level]
    return PAGE.read_text().split(MARK)[0] + MARK + "".join(lines)


def test_the_table_of_events_is_the_one_of_the_source():
    expected = page()
    if os.environ.get("MULTIRAFT_REWRITE"):
        PAGE.write_text(expected)
    assert PAGE.read_text() == expected, "MULTIRAFT_REWRITE=1 writes docs/troubleshooting.md anew"
