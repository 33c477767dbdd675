"""Operations of a producer without a driver: the test carries out each step."""

from __future__ import annotations

import random

import pytest

from multiraft.client import Closed, Record
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._client import ClientCore
from multiraft.client._producing import RECORDS_PER_TURN, ProducerCore
from multiraft.client._signal import Line
from multiraft.client._steps import Turn, Until, WaitFor
from multiraft.errors import RecordTooLarge
from multiraft.wire import errors
from tests.client.test_producer_state import metadata


class World:
    """A producer of a client core, and its clock."""

    def __init__(self, line: Line | None = None, topic_known: bool = True, **settings):
        self.now_ms = 0
        self.client = ClientCore(["127.0.0.1:1"], random.Random(1), 0)
        if topic_known:
            self.client.metadata.apply(("t",), metadata(), 0)
        self.core = ProducerCore(
            self.client, ProducerSettings(**{"batch_bytes": 1000, "buffer_bytes_max": 2000,
                                             **settings}),
            Delivery, None, lambda: self.now_ms, line)

    def fill(self) -> None:
        """Add records until another one of 500 bytes does not fit."""
        while self.core.try_take(Record("t", bytes(500)), 0) is not None:
            pass

    def empty(self) -> None:
        """Give up all records that were taken."""
        self.now_ms += 1_000_000
        self.client.advance(self.now_ms)


def result_of(operation):
    """Return the result of an operation without a step to carry out."""
    with pytest.raises(StopIteration) as end:
        operation.send(None)
    return end.value.value


def test_a_record_with_room_needs_no_step():
    world = World()
    assert isinstance(result_of(world.core.send(Record("t", b"v"))), Delivery)


@pytest.mark.parametrize("line", [None, Line()], ids=["one caller", "tasks"])
def test_a_record_without_room_waits_until_there_is_some(line):
    world = World(line)
    world.fill()
    sending = world.core.send(Record("t", bytes(500)))
    step = sending.send(None)
    assert isinstance(step, Until) and not step.condition()
    world.empty()
    assert step.condition()
    assert isinstance(result_of(sending), Delivery)


def test_calls_that_wait_are_served_in_their_order():
    world = World(Line())
    world.fill()
    first, second = (world.core.send(Record("t", bytes(500))) for _ in range(2))
    until, place = first.send(None), second.send(None)
    assert isinstance(until, Until)
    assert isinstance(place, WaitFor) and not place.signal.is_set
    world.empty()
    assert world.core.try_take(Record("t", b"small"), 0) is None, "the others came before"
    result_of(first)
    assert place.signal.is_set
    result_of(second)
    assert world.core.try_take(Record("t", b"small"), 0) is not None


@pytest.mark.parametrize("given_up", [0, 1, 2])
def test_a_call_that_is_given_up_leaves_its_place_to_the_next(given_up):
    world = World(Line())
    world.fill()
    sending = [world.core.send(Record("t", bytes(500))) for _ in range(3)]
    steps = [each.send(None) for each in sending]
    sending[given_up].close()
    world.empty()
    for at, (each, step) in enumerate(zip(sending, steps, strict=True)):
        if at != given_up:
            assert isinstance(step, Until) or step.signal.is_set
            assert isinstance(result_of(each), Delivery)
    assert world.core.try_take(Record("t", b"small"), 0) is not None


def test_a_long_list_of_records_gives_others_their_turn():
    world = World(buffer_bytes_max=1 << 20)
    sending = world.core.send_many("t", [Record("t", b"")] * (RECORDS_PER_TURN * 2 + 1))
    assert isinstance(sending.send(None), Turn)
    assert isinstance(sending.send(None), Turn)
    assert result_of(sending)


def test_records_that_take_long_give_others_their_turn():
    world = World()
    times = iter(range(100))
    world.core._now_ms = lambda: next(times)
    sending = world.core.send_many("t", [Record("t", b"")] * 3)
    for _ in range(3):
        assert isinstance(sending.send(None), Turn)
    assert len(result_of(sending)) == 1


@pytest.mark.parametrize("records", [[b"a", b"b", bytes(9 << 20), b"c"],
                                     [Record("t", each) for each in (b"a", b"b", bytes(9 << 20))]])
def test_a_refused_record_of_a_list_is_told_with_those_before(records):
    sending = World().core.send_many("t", records)
    with pytest.raises(RecordTooLarge) as caught:
        while True:
            assert isinstance(sending.send(None), Turn)
    assert caught.value.index == 2
    assert len(caught.value.deliveries) == 1


def test_what_the_driver_throws_is_told_with_the_records_before():
    world = World()
    world.fill()
    sending = world.core.send_many("t", [Record("t", b""), Record("t", bytes(500))])
    assert isinstance(sending.send(None), Until)
    with pytest.raises(Closed) as caught:
        sending.throw(Closed("the client was closed"))
    assert caught.value.index == 1
    assert len(caught.value.deliveries) == 1


def test_values_wait_until_their_topic_is_known():
    world = World(topic_known=False)
    sending = world.core.send_many("t", [b"a", b"b"])
    step = sending.send(None)
    assert isinstance(step, Until) and not step.condition()
    world.client.metadata.apply(("t",), metadata(), 0)
    assert step.condition()
    assert isinstance(sending.send(None), Turn)
    assert len(result_of(sending)) == 1


def test_a_topic_that_nodes_refuse_ends_the_wait_for_it():
    world = World(topic_known=False)
    sending = world.core.send_many("t", [b"a"])
    step = sending.send(None)
    world.client.metadata.refuse("t", errors.InvalidRequest("no such name"))
    with pytest.raises(errors.InvalidRequest) as raised:
        step.condition()
    with pytest.raises(errors.InvalidRequest) as caught:
        sending.throw(raised.value)  # as a driver does
    assert caught.value.index == 0


def test_a_flush_waits_for_every_outcome_and_raises_the_failure():
    world = World()
    world.core.intake.send(Record("t", b"v"), 0, 0)
    flushing = world.core.flush()
    assert isinstance(flushing.send(None), Turn)
    step = flushing.send(None)
    assert isinstance(step, Until) and not step.condition()
    world.empty()
    assert step.condition()
    with pytest.raises(errors.TimedOut):
        flushing.send(None)


def test_a_close_that_is_given_up_ends_the_producer():
    world = World()
    delivery = world.core.intake.send(Record("t", b"v"), 0, 0)
    closing = world.core.close()
    closing.send(None)
    closing.close()
    assert delivery.done
    with pytest.raises(Closed, match="the producer was closed"):
        world.core.intake.send(Record("t", b"v"), 0, 0)
    result_of(world.core.close())
