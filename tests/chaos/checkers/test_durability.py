"""Checkers of durability (A3, A6, A24), and validity of the run."""

from __future__ import annotations

import pytest

from chaos.checkers.validity import control_arm
from chaos.history import END, FAULTS, FINAL
from tests.chaos.checkers.timeline import CHANGED, KEY, Timeline, led


def finished(line: Timeline, *values: int) -> Timeline:
    line.phase(FINAL)
    line.finale(list(values))
    line.phase(END)
    return line


def test_an_acknowledged_record_above_the_certain_end_is_lost():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    assert finished(line, 1).ids() == {"A3", "A24"}


def test_a_loss_is_counted_and_the_faults_before_it_are_named():
    line = Timeline()
    line.fault("power-loss", True, 1, 2, 3)
    line.fault("power-loss", False, 1, 2, 3)
    line.appended([1, 2], 0)
    verdict = finished(line).check()
    assert verdict.checked["lost_commit"] == 2
    (contract,) = [found for found in verdict.anomalies if found.id == "A24"]
    assert "2 of 2" in contract.text and "power-loss 1" in contract.text


def test_an_unknown_append_that_is_not_there_is_not_lost():
    line = Timeline()
    line.info(line.append([1]))
    line.append([2])
    line.fail(line.append([3]))
    assert finished(line).ids() == set()


def test_an_acknowledged_record_that_final_reads_did_not_reach_is_unseen():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    line.phase(FINAL)
    line.was_read([1], final=True, end=1, node=2)
    assert line.ids() == {"A6"}


def test_an_acknowledged_record_below_the_certain_end_that_nobody_read_is_unseen():
    line = Timeline()
    line.appended([1], 0)
    line.appended([2], 1)
    line.phase(FINAL)
    line.offsets(2, final=True)
    line.was_read([1], final=True, end=2)
    assert line.ids() == {"A6"}


def test_without_final_reads_nothing_is_unseen():
    line = Timeline()
    line.appended([1], 0)
    verdict = line.check()
    assert verdict.anomalies == []
    assert any(note.startswith("unseen: 1 ") for note in verdict.notes)


def test_what_any_reader_saw_is_neither_lost_nor_unseen():
    line = Timeline()
    line.appended([1], 0)
    line.poll({KEY: [[0, [1]]]})
    line.phase(FINAL)
    line.offsets(1, final=True)
    assert line.ids() == set()


def test_a_topic_that_somebody_deletes_loses_nothing():
    line = Timeline()
    line.appended([1], 0)
    line.info(line.invoke("delete_topic", topic="t", incarnation=7))
    assert finished(line).ids() == set()


def test_a_deletion_that_was_refused_excuses_nothing():
    line = Timeline()
    line.appended([1], 0)
    line.fail(line.invoke("delete_topic", topic="t", incarnation=7))
    assert finished(line).ids() == {"A3", "A24"}


def test_the_deletion_of_another_life_excuses_nothing():
    line = Timeline()
    line.appended([1], 0)
    line.ok(line.invoke("delete_topic", topic="t", incarnation=5))
    assert finished(line).ids() == {"A3", "A24"}


# ---- what leaders acknowledge --------------------------------------------------------------------


def leader_loses() -> Timeline:
    line = Timeline()
    line.ok(line.append([1], acks="leader"), offset=0)
    line.ok(line.append([2], acks="leader"), offset=0)
    line.ok(line.invoke("describe", topic="t"), incarnation=7, epoch=1, groups=[5])
    return finished(line, 2)


def test_a_leader_may_lose_what_it_acknowledged():
    verdict = leader_loses().check()
    assert verdict.anomalies == []
    assert (verdict.checked["acknowledged_leader"], verdict.checked["lost_leader"]) == (2, 1)


def test_a_leader_that_alone_led_loses_nothing():
    verdict = leader_loses().check(trace=led({5: {2}}))
    assert [found.id for found in verdict.anomalies] == ["A24"]


@pytest.mark.parametrize("leaders", [{5: {1, 2}}, {6: {2}}, {}])
def test_a_change_of_leader_or_an_unknown_group_excuses_a_leader(leaders):
    assert leader_loses().ids(trace=led(leaders)) == set()


def test_what_none_acknowledges_may_be_anywhere():
    line = Timeline()
    line.ok(line.append([1], acks="none"), offset=-1)
    line.ok(line.append([2], acks="none"), offset=-1)
    assert finished(line, 2).ids(trace=led({5: {1}})) == set()


# ---- validity ------------------------------------------------------------------------------------


def faulty(acked: bool) -> Timeline:
    line = Timeline()
    line.phase(FAULTS)
    line.appended([1], 0)
    line.fault("kill", True, 1)
    operation = line.append([2])
    if acked:
        line.ok(operation, offset=1)
    line.fault("kill", False, 1)
    return finished(line, 1, *[2] * acked)


def test_a_run_that_could_have_failed_is_valid():
    verdict = faulty(True).check(trace=CHANGED)
    assert (verdict.invalid, verdict.outcome) == ([], "passed")


@pytest.mark.parametrize(("line", "trace", "reason"), [
    (faulty(False), CHANGED, "no append was acknowledged while a fault was on"),
    (faulty(True), led({1: {1}}), "no leader changed"),
    (faulty(True), None, "nothing says whether a leader changed"),
    (finished(Timeline()), CHANGED, "no fault was injected"),
])
def test_a_run_that_could_not_have_failed_is_invalid(line, trace, reason):
    verdict = line.check(trace=trace)
    assert (verdict.invalid, verdict.outcome) == ([reason], "invalid")


def test_a_run_that_was_broken_off_is_invalid():
    line = faulty(True)
    del line.events[-1]
    assert line.check(trace=CHANGED).invalid == [
        "the run was broken off: it has no final reads, or no end"]


def test_an_append_that_none_acknowledges_does_not_make_a_run_valid():
    line = Timeline()
    line.fault("kill", True, 1)
    line.ok(line.append([1], acks="none"), offset=-1)
    assert "no append was acknowledged while a fault was on" in line.check().invalid


def test_an_anomaly_counts_in_an_invalid_run_too():
    line = Timeline()
    line.appended([1], 0)
    assert finished(line).check().outcome == "failed"


def test_a_control_arm_must_lose_something():
    losing = leader_loses().check()
    assert control_arm(losing, "leader") == []
    assert control_arm(losing, "commit") == ["the control arm acknowledged nothing with commit"]
    line = Timeline()
    line.appended([1], 0)
    assert control_arm(finished(line, 1).check(), "commit") == [
        "the control arm lost none of 1 records acknowledged with commit"]
