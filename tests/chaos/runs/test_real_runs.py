"""Whole runs against real nodes: the code behind `multiraft chaos run`, in a small version.

A run that the machine cannot carry out is skipped with the reason, which the summary shows.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.backends import host
from chaos.backends.image import NoBase
from chaos.engine import EngineUnavailable
from chaos.history import END, FAULT, PHASE, read_history
from chaos.nemeses.rotation import draw
from chaos.run import record
from chaos.run.command import INVALID, PASSED, carry_out
from chaos.run.controls import CONTROLS
from chaos.run.fault_schedule import Impossible
from chaos.run.parameters import Folder, RunParameters
from tests import needs

TAKES_THE_MACHINE = True

#: Time that `make test` gives to containers.
ROTATION_S = 120.0
END_TIMEOUT_S = 180.0


#: Faults that change leaders for certain: every node is stopped once.
NEMESES = ("kill", "rolling-restart")


def seed_of_both() -> int:
    """Return the first seed whose first turn has both nemeses."""
    return next(seed for seed in range(1_000)
                if set(draw(random.Random(f"schedule {seed}"), NEMESES).names) == set(NEMESES))


def carried_out(parameters: RunParameters) -> int:
    """Return the exit code; skipped where a run is impossible.  A cluster that does not come up, or
    an image that these sources do not make, is a failure."""
    try:
        return carry_out(parameters, lambda line: None)
    except (EngineUnavailable, NoBase, Impossible) as error:
        as_root = "" if host.is_root() else f". {needs.AS_ROOT}"
        pytest.skip(f"NOT TRIED: {parameters.backend} {parameters.control}: {error}{as_root}")


def verdict_of(folder: Folder) -> dict:
    return json.loads(folder.verdict.read_text(encoding="utf-8"))


def test_nodes_are_killed_and_nothing_is_lost(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    status = carried_out(RunParameters(folder.path, groups=4, seconds=8.0, nemeses=NEMESES,
                                    seed=seed_of_both()))
    verdict = verdict_of(folder)
    assert status == PASSED, verdict
    assert verdict["checked"]["operations"] > 300
    assert verdict["checked"]["log_entries"] > 100, "the replicas' logs were compared"
    events = list(read_history(folder.history))
    assert [event.data["on"] for event in events if event.kind == FAULT][:1] == [True]
    assert [event.name for event in events if event.kind == PHASE][-1] == END
    assert folder.report.stat().st_size > 10_000
    assert record.entry_of(folder)["converged_s"] > 0
    assert sorted(path.name for path in folder.nodes.iterdir()) == ["1", "2", "3"]
    assert not list(folder.nodes.glob("*/data")), "what a passed run left on its disks is removed"


def test_containers_survive_two_minutes_of_everything(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    seed = random.SystemRandom().randrange(1 << 31)
    status = carried_out(
        RunParameters(folder.path, backend="docker", seconds=ROTATION_S, seed=seed)
    )
    assert status == PASSED, f"seed {seed}: {verdict_of(folder)}"


@pytest.mark.parametrize("name", sorted(CONTROLS))
def test_a_control_arm_loses_what_nothing_protected(name: str, tmp_path: Path):
    folder = Folder(tmp_path / "run")
    status = carried_out(RunParameters(folder.path, control=name))
    verdict = verdict_of(folder)
    assert status == PASSED, verdict
    assert verdict["checked"][f"lost_{CONTROLS[name].level}"] > 0


def test_an_interrupted_run_heals_clears_away_and_proves_nothing(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    command = [sys.executable, "-m", "admin_cli", "chaos", "run", "--seconds", "300", "--groups",
               "4", "--nemesis", "kill", "--output", str(folder.path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as process:
        line = next(line for line in process.stderr if "warm-up" in line)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=END_TIMEOUT_S)
    assert line
    assert process.returncode == INVALID, said
    assert verdict_of(folder)["invalid"] == ["the run was ended by SIGINT"]
    assert folder.report.is_file()
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline")
                if str(folder.path).encode() in command_line(path)]


def command_line(path: Path) -> bytes:
    """Return the command line of a process, which may end at any moment."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
