"""Recorder of a history: outcomes, their kinds, and the numbers of processes."""

from __future__ import annotations

import io
import json

import pytest
import trio

from chaos.history import FAIL, FAULT, FAULTS, INFO, INVOKE, OK, PHASE, Event, HistoryWriter
from chaos.workloads.recorder import Recorder
from multiraft.client import NoNodeAnswered
from multiraft.wire.errors import AmbiguousOutcome, NotLeader


class Tape:
    """A recorder whose clock counts, and the lines that it wrote."""

    def __init__(self):
        self._file = io.StringIO()
        self._now_ns = 0
        self.recorder = Recorder(HistoryWriter(self._file), self._clock_ns)

    def _clock_ns(self) -> int:
        self._now_ns += 1_000
        return self._now_ns

    @property
    def events(self) -> list[Event]:
        return [Event(*json.loads(line)) for line in self._file.getvalue().splitlines()]


def test_a_refusal_is_a_fail_and_the_process_goes_on():
    tape = Tape()
    process = tape.recorder.process()
    with process.invoke("append", key="t@1/0", values=[1], acks="commit") as operation:
        raise NotLeader("ask node 2")
    assert not operation.happened
    process.invoke("read", key="t@1/0", offset=0).ok(runs=[])
    kinds = [(event.kind, event.process) for event in tape.events]
    assert kinds == [(INVOKE, 1), (FAIL, 1), (INVOKE, 1), (OK, 1)]
    assert tape.events[1].data == {"error": "NotLeader", "text": "ask node 2"}


@pytest.mark.parametrize("error", [AmbiguousOutcome("perhaps"), NoNodeAnswered({"a": "silent"})])
def test_what_nobody_knows_is_info_and_retires_the_process(error):
    tape = Tape()
    process = tape.recorder.process()
    with process.invoke("append", key="t@1/0", values=[1], acks="commit"):
        raise error
    process.invoke("read", key="t@1/0", offset=0)
    assert [(event.kind, event.process) for event in tape.events] == [
        (INVOKE, 1), (INFO, 1), (INVOKE, 2)]


def test_operations_that_overlap_keep_the_number_they_began_with():
    tape = Tape()
    process = tape.recorder.process()
    first = process.invoke("append", key="t@1/0", values=[1], acks="commit")
    second = process.invoke("append", key="t@1/0", values=[2], acks="commit")
    first.failed(AmbiguousOutcome("perhaps"))
    second.ok(offset=7)
    third = process.invoke("append", key="t@1/0", values=[3], acks="commit")
    third.ok(offset=8)
    assert [event.process for event in tape.events] == [1, 1, 1, 1, 2, 2]


def test_a_cancelled_operation_is_info_and_the_cancellation_goes_on():
    tape = Tape()
    process = tape.recorder.process()

    async def ask() -> None:
        with trio.CancelScope() as scope:
            with process.invoke("read", key="t@1/0", offset=0):
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught

    trio.run(ask)
    assert tape.events[-1].kind == INFO
    assert tape.events[-1].data["error"] == "Cancelled"


def test_a_bug_comes_out_and_the_history_has_its_name():
    tape = Tape()
    with pytest.raises(ZeroDivisionError):
        with tape.recorder.process().invoke("read", key="t@1/0", offset=0):
            raise ZeroDivisionError
    assert tape.events[-1].kind == INFO
    assert tape.events[-1].data["error"] == "ZeroDivisionError"


def test_an_operation_has_one_outcome():
    operation = Tape().recorder.process().invoke("read", key="t@1/0", offset=0)
    operation.ok(runs=[])
    with pytest.raises(AssertionError, match="two outcomes"):
        operation.ok(runs=[])


def test_faults_and_phases_stand_in_the_same_order_and_appends_are_counted_by_phase():
    tape = Tape()
    recorder = tape.recorder
    recorder.phase(FAULTS)
    recorder.fault("kill", True, (2,), "node 2 is killed")
    process = recorder.process()
    for acks in ("commit", "leader", "none"):
        process.invoke("append", key="t@1/0", values=[1], acks=acks).ok(offset=0)
    assert [event.kind for event in tape.events[:2]] == [PHASE, FAULT]
    assert tape.events[1].data == {"on": True, "nodes": [2], "text": "node 2 is killed"}
    times = [event.time_us for event in tape.events]
    assert times == sorted(times)
    assert recorder.acknowledged[FAULTS] == 2
    assert recorder.open == 0


def test_a_fault_counts_once_from_its_begin_to_its_end():
    recorder = Tape().recorder
    recorder.fault("kill", True, (2,), "node 2 is killed")
    recorder.fault("kill", False, (2,), "node 2 runs again")
    recorder.fault("pause", True, (1,), "node 1 stands still")
    assert recorder.faults == {"kill": 1, "pause": 1}
