"""The driver executes a ``Ready`` in order, without trio and without a clock."""

import pytest

from multiraft.raft.ready import Committed, Envelope, Event, ReadReady, Ready, Writes
from multiraft.raft.timers import NEVER_MS
from node.loop.ready_driver import ReadyDriver


def recorded(name: str, show):
    """Return a method that records its call, with its arguments as ``show`` has them."""

    def call(self, *arguments):
        self.log.append(f"{name} {show(*arguments)}".strip())

    return call


class Ports:
    """Core, store, disk, peers and applier that record their calls, in order."""

    def __init__(self):
        self.log = []
        self.readies = []
        self.staged = []
        self.has_work = self.answers_wait = False
        self.earliest_ms = NEVER_MS

    tick = recorded("tick", lambda now_ms: now_ms)
    written = recorded("written", lambda sequence: sequence)
    finish = recorded("finish", lambda staged: staged.sequence)
    submit = recorded("submit", lambda staged: staged.sequence)
    start_next = recorded("start", lambda: "")
    send = recorded("send", lambda envelopes: [each.message for each in envelopes])
    flush = recorded("flush", lambda: "")
    observe = recorded("observe", lambda events: [each.kind for each in events])
    apply = recorded("apply", lambda committed: [each.last for each in committed])
    confirmed = recorded("confirmed", lambda reads: [each.token for each in reads])
    durable = recorded("durable", lambda: "")
    answer = recorded("answer", lambda now_ms: now_ms)
    publish = recorded("publish", lambda: "")

    def ready(self):
        return self.readies.pop(0) if self.readies else Ready()

    def stage(self, writes):
        self.log.append(f"stage {writes.sequence}")
        self.staged.append(writes)
        return writes


def driver_of(ports, *clocks) -> ReadyDriver:
    return ReadyDriver(ports, ports, ports, ports, ports, clocks or (ports,), ports.publish)


def write(sequence: int) -> Writes:
    return Writes(sequence, ())


def test_effects_happen_in_the_order_of_ready():
    ports = Ports()
    ports.readies = [Ready(messages=[Envelope(2, "append")], writes=write(1),
                           committed=[Committed(1, 1, 7)], reads=[ReadReady(1, 40, 7)],
                           events=[Event("role_changed", 1, ())])]
    driver_of(ports).step(5)
    assert ports.log == ["tick 5", "stage 1", "submit 1", "send ['append']", "flush", "start",
                         "observe ['role_changed']", "apply [7]", "confirmed [40]", "answer 5",
                         "publish"]


def test_a_round_without_effects_answers_and_publishes_nothing():
    ports = Ports()
    driver_of(ports).step(5)
    assert ports.log == ["tick 5", "answer 5"]


def test_writes_that_became_durable_together_are_reported_once():
    ports = Ports()
    driver = driver_of(ports)
    driver.wrote([write(1), write(2)])
    assert ports.log == ["finish 1", "finish 2", "written 2", "durable"]


def test_a_write_of_the_store_itself_is_no_news_to_the_core():
    ports = Ports()
    driver = driver_of(ports)
    driver.wrote([write(1)])
    ports.log.clear()
    driver.wrote([write(1)])  # a repair: it repeats the last sequence
    assert ports.log == ["finish 1", "durable"]


@pytest.mark.parametrize(("has_work", "answers_wait"),
                         [(False, False), (True, False), (False, True)])
def test_a_durable_write_without_consequence_requests_no_round(has_work, answers_wait):
    ports = Ports()
    ports.has_work, ports.answers_wait = has_work, answers_wait
    assert driver_of(ports).wrote([write(1)]) is (has_work or answers_wait)


def test_the_earliest_of_all_deadlines_is_the_next_round():
    core, appends, reads = Ports(), Ports(), Ports()
    core.earliest_ms, appends.earliest_ms = 90, 70
    driver = driver_of(core, core, appends, reads)
    assert driver.earliest_ms == 70
    assert driver.is_due_before(71) and not driver.is_due_before(70)
    appends.earliest_ms = NEVER_MS
    assert driver.earliest_ms == 90
