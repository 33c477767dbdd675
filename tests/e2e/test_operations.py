"""docs/operations.md is typed as it stands: every console block that does not say why not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.world import free_base_port

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
#: Nodes 1 to 5 exist while the page is followed.
NODES = 5
BLOCK_S = 240.0
#: Blocks that have to be run at least: the page is not to be silenced one by one.
RUN_MIN = 8


class Block(NamedTuple):
    """Lines to type, and why they are not run here ("" = they are)."""

    heading: str
    lines: tuple[str, ...]
    not_run: str


def blocks() -> list[Block]:
    """Every console block of the page."""
    found, heading, reason = [], "", ""
    text = PAGE.read_text(encoding="utf-8")
    for part in re.finditer(r"^#+ (?P<heading>[^\n]+)$|^<!-- not run: (?P<reason>[^\n]+) -->$"
                            r"|^```console\n(?P<body>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        heading = part["heading"] or heading
        if part["body"] is None:
            reason = part["reason"] or ""
            continue
        found.append(Block(heading, tuple(part["body"].splitlines()), reason))
        reason = ""
    return found


def test_the_page_is_made_of_lines_that_are_typed():
    wrong = [line for block in blocks() for line in block.lines if not line.startswith("$ ")]
    assert not wrong


def test_all_chapters_are_run_but_those_that_cannot_be():
    run = [block for block in blocks() if not block.not_run]
    assert len(run) >= RUN_MIN
    chapters = {block.heading for block in run}
    assert {"Begin a cluster", "Rolling restart", "Grow by a node", "Replace a dead node",
            "Corrupt disk", "Lost majority"} <= chapters


@pytest.fixture
def shell(tmp_path):
    """``shell(script)`` in an empty directory, with the commands of this environment; whatever
    cluster is left in the end is ended."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"),
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def run(script: str) -> str:
        done = subprocess.run(["bash", "-o", "pipefail", "-ec", script], cwd=tmp_path, env=environ,
                              capture_output=True, text=True, timeout=BLOCK_S)
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    if (tmp_path / "dev-cluster" / "cluster.json").exists():
        run("multiraft dev down --wipe --dir dev-cluster")


def test_the_page_works_as_it_is_written(shell):
    base = free_base_port(NODES)
    said: dict[str, str] = {}
    for block in blocks():
        if not block.not_run:
            script = "\n".join(line.removeprefix("$ ") for line in block.lines)
            script = script.replace("multiraft dev up", f"multiraft dev up --base-port {base}")
            said[block.heading] = said.get(block.heading, "") + shell(script)
    assert "All well: 4 nodes" in said["Replace a dead node"]
    assert "no damaged places" in said["Corrupt disk"]
    assert "damaged, as it should be" in said["Corrupt disk"]
    assert said["Corrupt disk"].splitlines()[-1] == "2000", "every record is there"
    assert said["Lost majority"].count("nothing was changed") == 2
    assert "All well: 3 nodes" in said["Lost majority"]
