"""A small run with real nodes in which records leave by limits, by requests, and with a topic."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from chaos.history import FAIL, OK, read_history
from chaos.run.command import PASSED, carry_out
from chaos.run.parameters import Folder, RunParameters

TAKES_THE_MACHINE = True

SECONDS = 20.0


def test_records_leave_while_nodes_are_killed_and_only_by_committed_log_starts(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    status = carry_out(RunParameters(
        folder.path, groups=4, seconds=SECONDS, nemeses=("kill",), seed=7,
        workloads=("retention",)), lambda line: None)
    verdict = json.loads(folder.verdict.read_text(encoding="utf-8"))
    assert status == PASSED, verdict
    counts: Counter[tuple[str, str]] = Counter()
    starts: dict[str, int] = {}  # topic -> highest log start
    keys: dict[int, str] = {}  # open operations
    for event in read_history(folder.history):
        if "key" in event.data:
            keys[event.operation] = event.data["key"]
        counts[event.name, event.kind] += 1
        if event.kind == FAIL and event.data["error"] == "OffsetOutOfRange":
            counts["refused " + event.name, FAIL] += 1
        if event.kind == OK and event.name in ("read", "offsets"):
            topic = keys[event.operation].partition("@")[0]
            starts[topic] = max(starts.get(topic, 0), event.data["start"])
    assert counts["delete_records", OK] >= 10, counts
    assert counts["refused delete_records", FAIL] >= 1, counts
    assert counts["refused read", FAIL] >= 10, counts
    assert counts["delete_topic", OK] >= 1, counts
    # Of a topic without limits only requests delete; the first one keeps 30 records of more.
    assert starts["kept-3"] > 0 and starts["kept-0"] > 30, starts
