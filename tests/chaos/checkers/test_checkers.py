"""A valid history, on which every checker must be silent."""

from __future__ import annotations

import pytest

from benchmarks.bench_checkers import Generator
from chaos.checkers import check
from chaos.history import END, FAULTS, FINAL, HEAL, WARM_UP, BadHistory
from tests.chaos.checkers.timeline import CHANGED, KEY, OTHER, Timeline


def good() -> Timeline:
    """Return a history with some of every operation, without an anomaly."""
    line = Timeline()
    line.phase(WARM_UP)
    created = line.invoke("create_topic", topic="t", partitions=2)
    line.ok(created, incarnation=7)
    line.appended([1, 2], 0, producer=4, epoch=0, sequence=0)
    line.assign({KEY: 0, OTHER: 0})
    line.poll({KEY: [[0, [1, 2]]]})
    line.phase(FAULTS)
    line.fault("kill", True, 2)
    lost = line.append([3], acks="leader")
    line.ok(lost, offset=2)
    unknown = line.append([4, 5], producer=4, epoch=0, sequence=2)
    line.info(unknown)
    refused = line.append([6])
    line.fail(refused)
    line.fault("kill", False, 2)
    line.was_read([1, 2, 4, 5])
    line.appended([7], 4, process=8)
    line.offsets(5)
    line.was_read([], offset=2, end=2, node=2)  # a replica that is behind
    line.poll({KEY: [[2, [4, 5]]]})
    line.phase(HEAL)
    line.appended([8], 0, key=OTHER, process=8)
    line.phase(FINAL)
    line.finale([1, 2, 4, 5, 7])
    line.finale([8], key=OTHER)
    line.phase(END)
    return line


def test_a_good_history_passes():
    verdict = good().check(trace=CHANGED)
    assert verdict.anomalies == []
    assert verdict.invalid == []
    assert verdict.outcome == "passed"
    assert verdict.checked["lost_leader"] == 1
    assert verdict.checked["lost_commit"] == 0
    assert verdict.checked["acknowledged_commit"] == 4


def test_a_verdict_can_be_written():
    assert good().check().to_json()["outcome"] == "invalid"  # no leader change is known


def test_a_completion_without_an_invocation_is_no_history():
    with pytest.raises(BadHistory, match="did not begin"):
        check([event for event in good().events if event.kind != "invoke"])


def test_missing_data_is_no_history():
    line = Timeline()
    line.invoke("append", key=KEY)
    with pytest.raises(BadHistory, match="values"):
        line.check()


@pytest.mark.parametrize("seed", range(3))
def test_a_generated_history_passes(seed):
    verdict = check(Generator(20_000, seed=seed).events(), trace=CHANGED)
    assert verdict.anomalies == []
    assert verdict.outcome == "passed"
    assert verdict.checked["operations"] >= 20_000
    assert verdict.checked["acknowledged_commit"] > 10_000


def test_one_result_moved_by_one_offset_is_found_among_thousands():
    events = list(Generator(5_000).events())
    reads = [place for place, event in enumerate(events)
             if event.kind == "ok" and event.name == "read" and event.data["runs"]]
    at = reads[len(reads) // 2]
    event = events[at]
    base, values = event.data["runs"][0]
    events[at] = event._replace(data={**event.data, "runs": [[base + 1, values]]})
    verdict = check(events, trace=CHANGED)
    assert verdict.outcome == "failed"
