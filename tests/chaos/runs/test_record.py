"""Records of runs against real nodes."""

from __future__ import annotations

import json

import pytest

from chaos.run import record
from chaos.run.parameters import RECOVERY_S, Folder, RunParameters


@pytest.fixture
def folder(tmp_path) -> Folder:
    """Return the folder that a run of seed 7 leaves."""
    made = Folder(tmp_path / "run")
    made.create()
    made.note(
        parameters=RunParameters(made.path, seed=7, backend="docker", seconds=300.0).to_json(),
        began="2026-11-22T02:28:08Z",
        versions={"commit": "abc"},
        leader_changes=9,
        faults={"pause": 2, "kill": 3},
        phases={"warm-up": 0.0, "faults": 8.0, "heal": 310.0, "final": 321.5, "end": 330.0},
    )
    made.verdict.write_text(json.dumps({
        "outcome": "passed", "counts": {},
        "checked": {"operations": 900, "acknowledged": 500, "acknowledged_under_faults": 300,
                    "log_entries": 800, "lost_commit": 0}}))
    return made


def test_a_line_says_what_the_run_was_did_and_how_it_ended(folder):
    assert record.entry_of(folder) == {
        "commit": "abc", "at": "2026-11-22T02:28:08Z", "backend": "docker", "nodes": 3,
        "groups": 16, "seconds": 300.0, "seed": 7, "outcome": "passed", "anomalies": {},
        "operations": 900, "acknowledged": 500, "acknowledged_under_faults": 300,
        "log_entries": 800, "leader_changes": 9, "faults": {"kill": 3, "pause": 2},
        "converged_s": 11.5 - RECOVERY_S}


def test_a_run_that_broke_off_has_no_line(folder):
    folder.verdict.unlink()
    with pytest.raises(OSError):
        record.entry_of(folder)


def test_lines_come_back_and_are_summed_by_commit_and_backend(folder, tmp_path):
    path = tmp_path / "runs.jsonl"
    assert record.read(path) == []
    first = record.entry_of(folder)
    for changes in ({}, {"outcome": "failed", "converged_s": 31.0}, {"backend": "process"}):
        record.record({**first, **changes}, path)
    header, docker, faults, process, _ = record.table(record.read(path))
    columns = dict(zip(header.split()[:7], docker.split(), strict=False))
    assert columns == {"commit": "abc", "backend": "docker", "runs": "2", "passed": "1",
                       "seconds": "600", "operations": "1800", "acked": "1000"}
    assert docker.endswith("<= 31.0")
    assert faults.split() == ["kill", "6", "pause", "4"]
    assert process.split()[:4] == ["abc", "process", "1", "1"]


def test_what_is_in_the_repository_can_be_read():
    assert record.table(record.read())
