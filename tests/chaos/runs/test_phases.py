"""Phases of a run when the backend fails: before it was up, and after."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from chaos.backends.backend import BackendError
from chaos.history import FAULTS
from chaos.run.parameters import Folder, RunParameters
from chaos.run.runner import RunResult, RunState, _or_anomaly, blocking, run_phases
from tests.chaos.runs.test_recorder import Tape


class Down:
    """A backend that does not come up."""

    def up(self) -> None:
        raise BackendError("there is no engine")


def test_a_cluster_that_does_not_come_up_is_no_finding(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    folder.create()
    with pytest.raises(BackendError, match="there is no engine"):
        run_phases(
            RunParameters(folder.path), folder, Down(), None, folder.nodes, lambda line: None
        )


def staged() -> RunState:
    """Return as much of a stage as notes need."""
    tape = Tape()
    tape.recorder.phase(FAULTS)
    run_state = RunState(None, None, None, None, None, RunResult(), None)
    run_state.context = type("Context", (), {"recorder": tape.recorder})()
    return run_state


def refuse() -> None:
    raise BackendError("node 2 ended at its start")


async def refuse_in_a_task() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(blocking, refuse)


@pytest.mark.parametrize("action", [(blocking, refuse), (refuse_in_a_task,)])
def test_a_node_that_does_not_come_back_is_a_finding(action):
    run_state = staged()
    trio.run(_or_anomaly, run_state, "healing", *action)
    assert [anomaly.name for anomaly in run_state.found.anomalies] == ["not-whole"]
    assert "node 2 ended at its start" in run_state.found.anomalies[0].text


def test_a_bug_of_the_harness_is_no_finding():
    async def stumble() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(blocking, lambda: 1 // 0)

    with pytest.raises(BaseExceptionGroup):
        trio.run(_or_anomaly, staged(), "healing", stumble)
