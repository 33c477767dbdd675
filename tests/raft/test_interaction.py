"""The golden scripts of ``testdata``: the protocol as readable stories."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import datadriven
from tests.raft.interaction import Interaction

TESTDATA = Path(__file__).parent / "testdata"
SCRIPTS = sorted(TESTDATA.rglob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(TESTDATA)))
def test_script(path: Path):
    datadriven.run(path, Interaction().execute)


def test_scripts_explain_themselves():
    for path in SCRIPTS:
        assert path.read_text().startswith("# "), f"{path.name} does not say why it exists"


def test_rewriting_is_refused_under_ci(monkeypatch):
    monkeypatch.setenv("CI", "1")
    monkeypatch.setenv("MULTIRAFT_REWRITE", "1")
    with pytest.raises(datadriven.ScriptError, match="CI"):
        datadriven.run(SCRIPTS[0], Interaction().execute)
