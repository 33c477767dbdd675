"""Producer ids and epochs: requested again after each kind of lost or ambiguous answer."""

from __future__ import annotations

import random

import pytest

from multiraft.client import Record
from multiraft.client._identity import Identifying
from multiraft.client._network import Lost, NetworkLimits
from multiraft.wire import errors
from multiraft.wire import messages as m
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.test_producer_state import Bench, sequences


def lose(op: str, verdict: str, times: int):
    """Return a script that loses the first answers to one operation."""
    left = [times]

    def script(_node, event, _connection):
        if m.OPS[type(event.request)] != op or not left[0]:
            return None
        left[0] -= 1
        return verdict

    return script


def forget_windows(cluster) -> None:
    for parts in cluster.topics.values():
        for part in parts:
            part.windows.clear()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("verdict", ["cut-after", "ambiguous"])
def test_a_producer_goes_on_though_the_answer_to_its_next_epoch_is_lost(client, cluster, verdict,
                                                                       times):
    client.create_topic("a")
    with client.producer(delivery_timeout_ms=15_000) as producer:
        producer.send_nowait(Record("a", b"1")).wait()
        forget_windows(cluster)  # the next batch needs another epoch
        cluster.script = lose("init_producer", verdict, times)
        assert producer.send_nowait(Record("a", b"2")).wait().base_offset == 1
        assert producer.send_nowait(Record("a", b"3")).wait().base_offset == 2
    assert cluster.topics["a"][0].values() == [b"1", b"2", b"3"]
    assert cluster.producers.next_id == 1001, "it kept its id"
    asked = [request for _, request in cluster.requests if isinstance(request, m.InitProducer)
             and request.producer_id >= 0]
    assert len(asked) == times + 1 and len(set(asked)) == 1, "one question, repeated"


@pytest.mark.parametrize("verdict", ["cut-after", "ambiguous"])
def test_a_producer_begins_though_the_answer_to_its_first_question_is_lost(client, cluster,
                                                                          verdict):
    client.create_topic("a")
    cluster.script = lose("init_producer", verdict, 2)
    with client.producer(delivery_timeout_ms=15_000) as producer:
        producer.send_nowait(Record("a", b"1")).wait()
    assert cluster.topics["a"][0].values() == [b"1"]


def test_a_node_that_does_not_know_a_repetition_costs_the_id_and_nothing_else(client, cluster):
    client.create_topic("a")
    with client.producer(delivery_timeout_ms=15_000) as producer:
        producer.send_nowait(Record("a", b"1")).wait()
        forget_windows(cluster)

        def script(_node, event, _connection):
            if isinstance(event.request, m.InitProducer) and event.request.producer_id >= 0:
                return ResponseEvent(event.id, code=Code.PRODUCER_FENCED,
                                     error=ErrorDetail("fenced by what was asked before"))
            return None

        cluster.script = script
        assert producer.send_nowait(Record("a", b"2")).wait().base_offset == 1
    assert cluster.topics["a"][0].values() == [b"1", b"2"]


@pytest.mark.parametrize("code", [Code.PRODUCER_FENCED, Code.UNKNOWN_PRODUCER])
def test_a_producer_whose_id_somebody_else_uses_goes_on_under_another_one(client, cluster, code):
    client.create_topic("a")
    part = cluster.topics["a"][0]
    with client.producer(delivery_timeout_ms=15_000, linger_ms=0) as producer:
        producer.send_nowait(Record("a", b"0")).wait()
        before = next(iter(part.windows))
        if code == Code.PRODUCER_FENCED:
            part.windows[before].epoch = 32767
        else:
            refuse_id(cluster, before)
        for number in range(1, 6):
            producer.send_nowait(Record("a", b"%d" % number))
        producer.flush()
    assert part.values() == [b"%d" % number for number in range(6)]
    assert len(part.windows) == 2


def refuse_id(cluster, producer_id: int) -> None:
    """Make nodes refuse this id as never assigned."""

    def script(_node, event, _connection):
        if not isinstance(event.request, m.Produce):
            return None
        data = bytes(event.request.payload)
        if int.from_bytes(data[43:51], "big") != producer_id:
            return None
        return ResponseEvent(event.id, m.ProduceReply(tuple(
            m.ProduceResult(Code.UNKNOWN_PRODUCER, -1, ErrorDetail("that id was never granted"))
            for _ in event.request.batches)))

    cluster.script = script


# ---- the state machines alone --------------------------------------------------------------------


def test_what_may_be_in_the_log_is_not_sent_under_another_id():
    bench = Bench()
    first, second = bench.send(b"1"), None
    bench.state.done(bench.one(), Lost(True, "connection lost"), 0)
    again = bench.one(100)
    second = bench.send(b"2", now=100)
    bench.answer(again, Code.PRODUCER_FENCED, -1, now=101)
    assert isinstance(first.outcome, errors.AmbiguousOutcome)
    assert bench.poll(5_000) == [] and bench.state.wants_identity
    bench.state.identify(8, 0)
    assert sequences(bench.one(5_000)) == [(8, 0, 0)]
    assert not second.done


def test_batches_in_flight_keep_their_order_under_another_id():
    bench = Bench()
    deliveries = [bench.send(b"%d" % number) for number in range(1)]
    attempts = [bench.one()]
    for number in range(1, 4):
        deliveries.append(bench.send(b"%d" % number, now=number))
        attempts.append(bench.one(number))
    for attempt in reversed(attempts):
        bench.answer(attempt, Code.PRODUCER_FENCED, -1, now=10)
    assert bench.poll(5_000) == []
    bench.state.identify(8, 0)
    (again,) = bench.poll(5_001)
    assert sequences(again) == [(8, 0, 0), (8, 0, 1), (8, 0, 2), (8, 0, 3)]
    bench.answer(again, now=5_002)
    assert all(delivery.done for delivery in deliveries)


def test_the_next_epoch_of_a_lost_id_is_not_used():
    bench = Bench()
    bench.state.lose_id(7)
    bench.state.identify(7, 9)  # the answer to what was asked before
    assert bench.state.wants_identity
    bench.send()
    assert bench.poll() == []
    bench.state.identify(8, 0)
    assert sequences(bench.one()) == [(8, 0, 0)]


def answered(identifying, bench, code=Code.OK, reply=None) -> None:
    error = None if reply is not None else ErrorDetail("refused")
    identifying.answered(bench.state, ResponseEvent(1, reply, code=code, error=error), 0,
                         NetworkLimits(), random.Random(1))


def test_a_question_stays_the_same_until_it_is_answered():
    bench, identifying, rng = Bench(), Identifying(), random.Random(1)
    first = identifying.question(bench.state, rng)
    assert first.producer_id == 7 and 1 <= first.producer_epoch <= m.EPOCHS_SKIPPED_MAX
    for code in (Code.AMBIGUOUS, Code.LEADER_UNKNOWN, Code.NOT_LEADER, Code.QUEUE_FULL):
        answered(identifying, bench, code)
        assert identifying.question(bench.state, rng) == first
    identifying.answered(bench.state, Lost(True, "gone"), 0, NetworkLimits(), rng)
    assert identifying.question(bench.state, rng) == first
    answered(identifying, bench, reply=m.InitProducerReply(7, first.producer_epoch + 1))
    following = identifying.question(bench.state, rng)
    assert following.producer_epoch > first.producer_epoch + 1


def test_two_that_share_an_id_do_not_name_the_same_epoch():
    named = {Identifying().question(Bench().state, random.Random(seed)).producer_epoch
             for seed in range(100)}
    assert len(named) > 50


def test_an_id_whose_epochs_are_used_up_is_exchanged():
    bench = Bench()
    bench.state.identify(7, 32_700)
    assert Identifying().question(bench.state, random.Random(1)) == m.InitProducer()


@pytest.mark.parametrize("code", [Code.PRODUCER_FENCED, Code.INVALID_REQUEST])
def test_an_id_that_is_refused_is_not_asked_for_again(code):
    bench, identifying, rng = Bench(), Identifying(), random.Random(1)
    identifying.question(bench.state, rng)
    answered(identifying, bench, code)
    assert identifying.question(bench.state, rng) == m.InitProducer()
