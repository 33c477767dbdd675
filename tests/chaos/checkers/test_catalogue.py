"""The catalogue, the checkers that run and docs/checkers.md agree."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from chaos.checkers.catalogue import ROWS
from chaos.checkers.check import CHECKERS
from chaos.checkers.consumers import ConsumerNotes
from chaos.checkers.validity import Validity

ROOT = Path(__file__).parents[3]
#: Checkers that find no anomaly.
NO_ANOMALY = {ConsumerNotes, Validity}
#: Ids of the catalogue without a checker, each with its reason in its row.
WITHOUT = {"A21", "A22"}


def test_every_checker_is_in_the_catalogue_and_runs():
    listed = [kind for row in ROWS for kind in row.checkers]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(CHECKERS) - NO_ANOMALY


def test_every_id_has_a_checker_or_a_reason():
    assert {row.id for row in ROWS if not row.checkers} == WITHOUT
    assert len({row.id for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row.checkers], ids=lambda row: row.id)
def test_a_checker_says_what_it_looks_for_and_what_it_costs(row):
    for kind in row.checkers:
        assert (kind.id, kind.name) == (row.id, row.name)
        said = inspect.getdoc(kind)
        assert re.match(rf"{row.id}\b", said), f"{kind.__name__} does not begin with its id"
        assert "O(" in said, f"{kind.__name__} does not say what it costs"


@pytest.mark.parametrize("row", [row for row in ROWS if row.checkers], ids=lambda row: row.id)
def test_every_id_is_found_in_some_test_and_absent_in_another(row):
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py")
                    if path.name != Path(__file__).name)
    assert f'"{row.id}"' in tests, f"no test finds {row.id}"
    assert "ids() == set()" in tests


def test_the_page_shows_the_catalogue():
    text = (ROOT / "docs" / "checkers.md").read_text()
    shown = re.findall(r"^\| (A\d+b?) \| ([a-z0-9-]+) \| (.*?) \| (.*?) \|", text, re.MULTILINE)
    expected = [(row.id, row.name, row.says, ", ".join(row.fed_by) or "-") for row in ROWS]
    assert shown == expected
