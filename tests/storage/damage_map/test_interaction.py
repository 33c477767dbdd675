"""The golden scripts of ``testdata/damage``: stories of damage, each of one transition or two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multiraft.storage.damage import journal_damage
from tests import datadriven
from tests.storage.damage_map.interaction import DamageInteraction
from tests.storage.damage_map.test_damage_map import ENTRY_TABLE, REPLICA_TABLE

TESTDATA = Path(__file__).parent.parent / "testdata" / "damage"
SCRIPTS = sorted(TESTDATA.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_script(path: Path):
    datadriven.run(path, DamageInteraction().execute)


def test_scripts_explain_themselves():
    assert SCRIPTS
    for path in SCRIPTS:
        assert path.read_text().startswith("# "), f"{path.name} does not say why it exists"


def claimed() -> str:
    """Return the comments at the beginning of all scripts: the transitions that each one tells."""
    return " ".join(" ".join(re.findall(r"^# (.*)", path.read_text(), re.M)) for path in SCRIPTS)


@pytest.mark.parametrize("name", sorted({name for name, _ in (*ENTRY_TABLE, *REPLICA_TABLE)}
                                        | {"add_unattributed", "explain", "create"}))
def test_every_transition_has_a_script(name):
    assert re.search(rf"\b{name}\b", claimed())


def test_the_table_of_ranges_names_methods():
    text = journal_damage.__doc__.split("transition         from")[1].split("\n\n")[0]
    names = re.findall(r"^    ([A-Za-z_.]+) +[A-Z(]", text, re.M)
    assert names == ["add_unattributed", "explain", "DamageMap.clear", "DamageMap.create",
                     "DamageMap.remove"]
