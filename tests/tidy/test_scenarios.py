"""Table of scenarios in docs/testing.md: each test, command and fault that it names exists."""

from __future__ import annotations

import re

import click
import pytest

from admin_cli.main import cli
from chaos.planted.catalogue import BUGS
from chaos.simulator.env.parameters import FAULT_KINDS
from tests.tidy import tree

HEADING = "## Tests by scenario"
#: The catalogue.  A number that is missing here was merged into another one.
SCENARIOS = [f"S{number}" for number in (
    *range(1, 8), *range(9, 14), *range(15, 18), *range(19, 29), "28b", "28c", "28d", "28e", "28f",
    *range(29, 32), *range(33, 47))]
#: Faults of single frames are odds, no kinds.
ODDS = ("item-loss", "loss", "duplicate", "reorder")

ROW = re.compile(r"\| (S\d+[a-f]?) \| (.+?) \| (.+) \|")
QUOTED = re.compile(r"`([^`]+)`")


def rows() -> dict[str, str]:
    """Return scenario -> its last cell."""
    section = tree.text("docs/testing.md").split(HEADING)[1].split("\n## ")[0]
    return {match[1]: match[3] for match in map(ROW.fullmatch, section.splitlines()) if match}


def missing(scenario: str, cell: str) -> list[str]:
    """Return the names in a cell that do not exist."""
    found = []
    seeds = re.findall(r"seeds ((?:`[^`]+`(?:, )?)+)", cell)
    kinds = {kind for run in seeds for kind in QUOTED.findall(run) if "/" not in kind}
    bugs = {*re.findall(r"planted `([^`]+)`", cell)}
    for name in QUOTED.findall(cell):
        if name in bugs:
            known = name in BUGS
        elif name in kinds:
            known = name in (*FAULT_KINDS, *ODDS)
        elif name.startswith("multiraft "):
            known = not refusal(name.split()[1:])
        elif name.endswith(".txt"):
            known = f"tests/raft/testdata/{name}" in tree.files()
        else:
            file, _, test = name.partition("::")
            known = (f"tests/{file}" in tree.files()
                     and re.search(rf"^ *(async )?def {re.escape(test)}\(",
                                   tree.text(f"tests/{file}"), re.MULTILINE) is not None)
        if not known:
            found.append(f"{scenario}: {name}")
    return found


def refusal(words: list[str]) -> str:
    """Return the error with which the command refuses these words, options and values; empty = it
    accepts them."""
    command, context = cli, click.Context(cli)
    try:
        while isinstance(command, click.Group):
            if not words:
                return "a command is missing"
            name, *words = words
            command = command.get_command(context, name)
            if command is None:
                return f"there is no {name}"
        command.make_context(name, list(words))
    except click.ClickException as error:
        return error.format_message()
    return ""


def test_every_scenario_has_its_row_in_order():
    assert list(rows()) == SCENARIOS


def test_the_tests_of_every_row_exist():
    tree.complain("named in docs/testing.md and not there:", [
        complaint for scenario, cell in rows().items() for complaint in missing(scenario, cell)])


def test_a_row_names_a_test_or_says_what_it_waits_for():
    tree.complain("rows that prove nothing:", [
        scenario for scenario, cell in rows().items()
        if not QUOTED.search(cell) and "waits for" not in cell])


@pytest.mark.parametrize("command,reason", [
    ("chaos run --nemesis plan-churn", ""),
    ("chaos run --nemesis nobody", "is not one of"),
    ("chaos run --hours 3", "No such option"),
    ("chaos walk", "there is no walk"),
    ("chaos", "a command is missing")])
def test_a_command_of_the_table_is_one_that_would_begin(command, reason):
    found = refusal(command.split())
    assert reason in found if reason else not found, found
