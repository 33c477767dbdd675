"""docs/operations.md is typed unchanged: every block on a cluster in ``./dev-cluster``.

``test_operations_machines.py`` types the blocks on machines.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.page import blocks
from tests.ports import free_base_port

#: Nodes 1 to 5 exist while the page is followed.
NODES = 5
BLOCK_S = 240.0
#: Minimum of blocks that run: the page must not be disabled one block at a time.
RUN_MIN = 8
#: Commands whose output is shown when a cluster does not become healthy.
STATE = """(multiraft cluster status
for group in 0 1 2; do multiraft group describe $group; done
tail -n 60 dev-cluster/node-*/log) 2>&1 || true"""


def test_the_page_is_made_of_lines_that_are_typed():
    wrong = [line for block in blocks() for line in block.lines if not line.startswith("$ ")]
    assert not wrong


def test_all_chapters_are_run():
    run = [block for block in blocks() if not block.places]
    assert len(run) >= RUN_MIN
    chapters = {block.heading for block in run}
    assert {"Begin a cluster", "Rolling restart", "Grow by a node", "Grow the pool",
            "Replace a dead node",
            "Corrupt disk", "Lost majority"} <= chapters


@pytest.fixture
def shell(tmp_path):
    """Return ``shell(script)`` in an empty directory, with the commands of this environment; a
    cluster that is left at the end is stopped."""
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"),
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def bash(script: str) -> subprocess.CompletedProcess:
        return subprocess.run(["bash", "-o", "pipefail", "-ec", script], cwd=tmp_path, env=environ,
                              capture_output=True, text=True, timeout=BLOCK_S)

    def run(script: str) -> str:
        try:
            done = bash(script)
        except subprocess.TimeoutExpired as late:
            said = b"".join(each or b"" for each in (late.stdout, late.stderr)).decode()
            raise AssertionError(f"after {BLOCK_S:.0f} s:\n{script}\n{said}\n"
                                 f"{bash(STATE).stdout}") from None
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    if (tmp_path / "dev-cluster" / "cluster.json").exists():
        run("multiraft dev down --wipe --dir dev-cluster")


def test_the_page_works_as_it_is_written(shell):
    base = free_base_port(NODES)
    said: dict[str, str] = {}
    for block in blocks():
        if not block.places:
            script = block.script.replace("multiraft dev up",
                                          f"multiraft dev up --base-port {base}")
            said[block.heading] = said.get(block.heading, "") + shell(script)
    assert "Healthy: 4 nodes" in said["Replace a dead node"]
    assert "no damaged ranges" in said["Corrupt disk"]
    assert "damaged, as it should be" in said["Corrupt disk"]
    assert said["Corrupt disk"].splitlines()[-1] == "2000", "every record is there"
    assert said["Lost majority"].count("nothing was changed") == 2
    assert "Healthy: 3 nodes" in said["Lost majority"]
