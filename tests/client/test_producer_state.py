"""Producer state machine, one rule at a time: values in, values out, time as a number."""

from __future__ import annotations

import random

import pytest

from multiraft import core
from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost
from multiraft.client._producer import ProducerState
from multiraft.client._records import Record
from multiraft.wire import messages as m
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    ErrorDetail,
    InvalidBatch,
    RecordsWithoutKey,
    StorageFull,
    TimedOut,
)
from multiraft.wire.rows import KeylessRecords


def metadata(partitions: int = 1, leader: int = 1, epoch: int = 1) -> m.MetadataReply:
    return m.MetadataReply(
        bytes(16), tuple(m.NodeAddress(node, f"n{node}:1", "") for node in (1, 2, 3)),
        (m.TopicMetadata("t", bytes(16), 1, tuple(
            m.PartitionMetadata(number, 100 + number, 1 + number, leader, epoch, 0)
            for number in range(partitions))),))


class Bench:
    """Producer with a known topic and identity (7, 0), at time 0."""

    def __init__(self, partitions: int = 1, **settings):
        self.metadata = MetadataCache()
        self.metadata.apply(("t",), metadata(partitions), 0)
        self.state = ProducerState(ProducerSettings(**{"linger_ms": 0, **settings}),
                                   self.metadata, random.Random(1))
        if self.state.wants_identity:
            self.state.identify(7, 0)

    def send(self, value: bytes = b"v", now: int = 0, **fields):
        return self.state.records.send(Record("t", value, **fields), now, 1)

    def poll(self, now: int = 0):
        return self.state.poll(now)

    def one(self, now: int = 0):
        (attempt,) = self.poll(now)
        return attempt

    def pause_ends(self, now: int) -> int:
        """Return the time of the next attempt; assert that none is due now."""
        assert self.poll(now) == []
        return self.state.next_deadline_ms()

    def answer(self, attempt, code=Code.OK, base_offset=0, now=0, detail=None):
        results = tuple(m.ProduceResult(code, base_offset, detail) for _ in attempt.batches)
        self.state.done(attempt, ResponseEvent(1, m.ProduceReply(results)), now)


@pytest.mark.parametrize(("times_ms", "found"), [(None, None), ((-1,), None), ((77,), 77)])
def test_a_receipt_has_the_time_at_which_the_leader_appended_the_batch(times_ms, found):
    bench = Bench()
    delivery = bench.send()
    reply = m.ProduceReply((m.ProduceResult(Code.OK, 5),), times_ms)
    bench.state.done(bench.one(10), ResponseEvent(1, reply), 10)
    assert delivery.result().offset == 5 and delivery.result().log_append_time_ms == found
    assert bench.state.records.take_failure() is None


def test_an_answer_with_another_number_of_times_is_no_answer():
    bench = Bench()
    delivery = bench.send()
    reply = m.ProduceReply((m.ProduceResult(Code.OK, 5),), (1, 2))
    bench.state.done(bench.one(10), ResponseEvent(1, reply), 10)
    assert not delivery.done


def test_a_refusal_for_missing_keys_has_the_positions_of_the_records():
    bench = Bench(linger_ms=1000)
    deliveries = [bench.send(bytes(10)) for _ in range(2)]
    bench.state.records.seal_all()
    results = (m.ProduceResult(Code.INVALID_BATCH, -1, ErrorDetail("no key")),)
    bench.state.done(bench.one(10), ResponseEvent(1, m.ProduceReply(
        results, None, (KeylessRecords(0, (1,)),))), 10)
    with pytest.raises(RecordsWithoutKey, match="t/0.*no key") as caught:
        deliveries[0].result()
    assert caught.value.records == (1,) and isinstance(caught.value, InvalidBatch)
    with pytest.raises(RecordsWithoutKey) as again:
        deliveries[1].result()
    assert (again.value.records, again.value.partition) == ((1,), 0)
    # The batch took no sequence: the next one has its number.
    bench.send(key=b"k")
    bench.state.records.seal_all()
    assert sequences(bench.one(10)) == [(7, 0, 0)]


def sequences(attempt) -> list[tuple[int, int, int]]:
    """Return (producer id, epoch, first sequence) of each batch of an attempt."""
    return [(header.producer_id, header.producer_epoch, header.base_sequence)
            for header in map(core.batch_header, attempt.payload)]


def test_a_batch_lingers_and_then_goes():
    bench = Bench(linger_ms=5)
    bench.send(now=10)
    assert bench.poll(10) == []
    assert bench.state.next_deadline_ms() == 15
    assert bench.one(15).batches


def test_a_full_batch_does_not_linger():
    bench = Bench(linger_ms=1000, batch_bytes=200)
    for _ in range(5):
        bench.send(bytes(80))
    assert len(bench.one().batches) >= 1


def test_what_is_sent_is_a_valid_batch_with_consecutive_sequences():
    bench = Bench(batch_bytes=200, linger_ms=1000)
    for _ in range(6):
        bench.send(bytes(80))
    bench.state.records.seal_all()
    attempt = bench.one()
    infos = [core.check_batch(data) for data in attempt.payload]
    assert [info.base_sequence for info in infos] == [
        sum(info.count for info in infos[:at]) for at in range(len(infos))]


def test_nothing_goes_before_there_is_an_identity():
    bench = Bench()
    bench.state.identity = None
    bench.send()
    assert bench.poll() == [] and bench.state.wants_identity
    bench.state.identify(9, 3)
    assert sequences(bench.one()) == [(9, 3, 0)]


def test_at_most_in_flight_max_batches_are_unanswered():
    bench = Bench(batch_bytes=200, in_flight_max=2)
    for number in range(5):
        bench.send(bytes(100), now=number)
    first = bench.poll(10)
    assert sum(len(attempt.batches) for attempt in first) == 2
    assert bench.poll(11) == []
    bench.answer(first[0], now=12)
    assert sum(len(attempt.batches) for attempt in bench.poll(12)) == 2


def test_a_lost_answer_to_the_oldest_batch_holds_back_what_would_push_it_out_of_the_window():
    """The leader remembers the last five batches.  The answers to 2..5 arrived, that to 1 was lost.
    After a sixth batch the leader would not recognise a repetition of the first."""
    bench = Bench(batch_bytes=200, in_flight_max=5)
    attempts = []
    for number in range(7):
        bench.send(bytes(100), now=number)
        attempts += bench.poll(number)
    assert len(attempts) == 5
    for attempt in attempts[1:]:
        bench.answer(attempt, now=10)
    assert bench.poll(10) == []
    bench.state.done(attempts[0], Lost(True, "cut"), 10)
    again = bench.one(bench.pause_ends(10))
    assert sequences(again) == sequences(attempts[0])
    bench.answer(again, now=5000)
    assert sum(len(attempt.batches) for attempt in bench.poll(5000)) == 2


def test_requests_for_one_node_are_bounded_in_bytes():
    bench = Bench(partitions=5, batch_bytes=1000, request_bytes_max=1500)
    for number in range(5):
        bench.send(bytes(700), partition=number)
    attempts = bench.poll()
    assert len(attempts) == 5
    assert all(sum(map(len, attempt.payload)) <= 1500 for attempt in attempts)


def test_a_lost_attempt_is_repeated_unchanged_after_a_pause():
    bench = Bench()
    bench.send()
    attempt = bench.one()
    before = bytes(attempt.payload[0])
    bench.state.done(attempt, Lost(True, "cut"), 5)
    assert bench.poll(5) == []
    again = bench.one(bench.state.next_deadline_ms())
    assert bytes(again.payload[0]) == before
    assert "t" in bench.metadata.wanted()


def test_pauses_grow_and_are_bounded():
    bench = Bench(delivery_timeout_ms=100_000)
    bench.send()
    now, pauses, attempt = 0, [], bench.one()
    for _ in range(12):
        bench.state.done(attempt, Lost(False, "refused"), now)
        lost_at, attempts = now, bench.poll(now)
        while not attempts:
            now = bench.state.next_deadline_ms()
            attempts = bench.poll(now)
        (attempt,) = attempts
        pauses.append(now - lost_at)
    assert pauses[0] <= 25 and max(pauses) <= 1000 and pauses[-1] >= 500


def test_the_batches_behind_a_refused_one_are_repeated_with_it_in_order():
    bench = Bench(batch_bytes=200)
    attempts = []
    for number in range(3):
        bench.send(bytes(120), now=number)
        attempts += bench.poll(number)
    bench.answer(attempts[0], Code.QUEUE_FULL, -1, now=10)
    assert bench.poll(100) == [], "others are still in flight"
    bench.answer(attempts[1], Code.OUT_OF_ORDER_SEQUENCE, -1, now=101)
    bench.answer(attempts[2], Code.OUT_OF_ORDER_SEQUENCE, -1, now=102)
    again = bench.one(bench.pause_ends(102))
    assert [sequence for _, _, sequence in sequences(again)] == [0, 1, 2]


def test_a_missing_answer_makes_the_client_look_for_another_leader_and_go_there():
    bench = Bench(suspect_ms=500)
    delivery = bench.send()
    first = bench.one()
    assert bench.state.next_deadline_ms() <= 500
    assert bench.poll(500) == [] and bench.metadata.wanted() == ("t",)
    bench.metadata.apply(("t",), metadata(leader=2, epoch=2), 510)
    assert bench.poll(510)[0].address == "n2:1"
    bench.answer(first, base_offset=4, now=520)
    assert delivery.outcome.base_offset == 4, "a late success of the old leader is the truth"


def test_a_second_batch_of_an_idle_partition_is_missed_too():
    bench = Bench(suspect_ms=500)
    bench.send()
    bench.answer(bench.one(), now=1)
    bench.send(now=5_000)
    bench.poll(5_000)
    assert bench.state.next_deadline_ms() <= 5_500


def test_a_late_refusal_of_an_abandoned_attempt_changes_nothing():
    bench = Bench()
    delivery = bench.send()
    first = bench.one()
    bench.metadata.apply(("t",), metadata(leader=2, epoch=2), 10)
    second = bench.one(10)
    bench.answer(first, Code.INVALID_BATCH, -1, now=11)
    assert not delivery.done
    bench.answer(second, base_offset=3, now=12)
    assert delivery.outcome.base_offset == 3


def test_a_hint_moves_every_partition_of_the_group():
    bench = Bench()
    bench.send()
    bench.answer(bench.one(), Code.NOT_LEADER, -1, now=1,
                 detail=ErrorDetail("", 3, "elsewhere:9"))
    assert bench.one(bench.pause_ends(1)).address == "elsewhere:9"


def test_older_metadata_does_not_undo_newer():
    bench = Bench()
    bench.metadata.apply(("t",), metadata(leader=2, epoch=5), 0)
    bench.metadata.apply(("t",), metadata(leader=1, epoch=4), 0)
    assert bench.metadata.leader_address(100) == "n2:1"


def test_a_gap_is_closed_by_a_new_epoch():
    bench = Bench()
    first, second = bench.send(), None
    attempt = bench.one()
    second = bench.send(now=1)
    behind = bench.one(1)
    bench.answer(attempt, Code.LIMIT_EXCEEDED, -1, now=2)
    assert first.outcome.code == Code.LIMIT_EXCEEDED
    bench.answer(behind, Code.OUT_OF_ORDER_SEQUENCE, -1, now=3)
    assert bench.poll(bench.pause_ends(3)) == []
    assert bench.state.wants_identity
    bench.state.identify(7, 1)
    again = bench.one(2_000)
    assert sequences(again) == [(7, 1, 0)]
    bench.answer(again, now=2_001)
    assert second.done


def test_a_definite_refusal_of_the_last_batch_gives_its_sequence_back():
    bench = Bench()
    bench.send()
    bench.answer(bench.one(), Code.INVALID_BATCH, -1)
    bench.send(now=1)
    assert sequences(bench.one(1)) == [(7, 0, 0)]


def test_an_ambiguous_end_never_gives_its_sequence_back():
    bench = Bench(delivery_timeout_ms=100)
    delivery = bench.send()
    bench.one()
    bench.poll(100)
    assert delivery.outcome.code == Code.AMBIGUOUS
    bench.send(now=200)
    assert bench.poll(200) == [] and bench.state.wants_identity
    bench.state.identify(7, 1)
    assert sequences(bench.one(201)) == [(7, 1, 0)]


def test_a_partition_that_is_used_again_and_again_has_one_timer_and_keeps_its_sequences():
    bench = Bench()
    for now in range(1, 2_000, 10):
        bench.send(now=now)
        attempt = bench.one(now)
        assert sequences(attempt) == [(7, 0, now // 10)]
        bench.answer(attempt, now=now)
        assert len(bench.state._timers) == 1
    assert bench.poll(10_000) == [] and bench.poll(20_000) == []
    assert not bench.state.records.partitions and bench.state.next_deadline_ms() is None
    bench.send(now=20_001)
    assert sequences(bench.one(20_001)) == [(7, 0, 200)]


def test_sequences_wrap_where_kafkas_do():
    bench = Bench()
    bench.send()
    bench.answer(bench.one())
    bench.poll()
    bench.state.records.find(100).next_sequence = (1 << 31) - 1
    bench.send(now=1)
    assert sequences(bench.one(1)) == [(7, 0, (1 << 31) - 1)]
    bench.send(now=2)
    assert sequences(bench.one(2)) == [(7, 0, 0)]


def test_without_idempotence_batches_carry_no_identity_and_no_question_is_asked():
    for settings in ({"idempotent": False}, {"acks": "none"}):
        bench = Bench(**settings)
        assert not bench.state.wants_identity
        bench.send()
        assert sequences(bench.one()) == [(-1, -1, -1)]


def test_a_batch_without_acknowledgement_that_leaves_after_it_was_given_up_changes_nothing():
    """Its link was connecting all the time: the request is sent after the caller has received
    ``AmbiguousOutcome``."""
    bench = Bench(acks="none", delivery_timeout_ms=1000)
    delivery = bench.send()
    attempt = bench.one()
    bench.poll(1000)
    assert isinstance(delivery.outcome, AmbiguousOutcome)
    bench.state.done(attempt, ResponseEvent(1), 1001)
    assert isinstance(delivery.outcome, AmbiguousOutcome)
    assert bench.state.records.buffered_bytes == 0
    bench.send(now=1002)
    assert bench.one(1002).batches


def test_memory_is_accounted_until_the_outcome_is_known():
    bench = Bench(batch_bytes=1000, buffer_bytes_max=2000)
    bench.send(bytes(900))
    with pytest.raises(BufferFull) as caught:
        while True:
            bench.send(bytes(900))
    assert caught.value.limit == 2000
    for attempt in bench.poll():
        bench.answer(attempt)
    assert bench.state.records.buffered_bytes == 0


def test_a_compressed_batch_is_accounted_by_what_it_became():
    bench = Bench(compression="zstd")
    bench.send(bytes(100_000))
    assert bench.state.records.buffered_bytes > 100_000
    bench.one()
    assert bench.state.records.buffered_bytes < 1_000


def test_records_of_an_unknown_topic_wait_and_end_when_there_is_none():
    bench = Bench()
    delivery = bench.state.records.send(Record("nope", b"v"), 0, 1)
    bench.poll(0)
    assert bench.metadata.wanted() == ("nope",)
    bench.metadata.apply(("nope",), m.MetadataReply(bytes(16), (), (), ("nope",)), 0)
    bench.poll(1)
    assert not delivery.done, "it may have been created elsewhere a moment ago"
    bench.poll(1_000)
    assert delivery.outcome.code == Code.UNKNOWN_TOPIC


def test_an_idle_producer_has_nothing_to_do():
    bench = Bench()
    bench.send()
    bench.answer(bench.one())
    assert bench.poll(1) == []
    retired_at = bench.state.next_deadline_ms()
    assert retired_at <= bench.state.settings.suspect_ms, "its last timer"
    assert bench.poll(retired_at) == []
    assert not bench.state.records.partitions


@pytest.mark.parametrize("results", [0, 2])
def test_an_answer_with_the_wrong_number_of_results_is_no_answer(results):
    bench = Bench()
    delivery = bench.send()
    attempt = bench.one()
    bench.state.done(attempt, ResponseEvent(1, m.ProduceReply(
        (m.ProduceResult(Code.OK, 0),) * results)), 1)
    assert not delivery.done
    assert bench.one(bench.pause_ends(1))


def test_many_idle_partitions_of_deleted_topics_are_forgotten():
    bench = Bench()
    records = bench.state.records
    for number in range(3_000):
        name = f"x{number}"
        part = m.PartitionMetadata(0, 10_000 + number, 1, 1, 1, 0)
        bench.metadata.apply((name,), m.MetadataReply(
            bytes(16), (m.NodeAddress(1, "n1:1", ""),),
            (m.TopicMetadata(name, bytes(16), number + 10, (part,)),)), 0)
        records.send(Record(name, b"v"), number, 1)
        bench.answer(bench.one(number), now=number)
        bench.metadata.forget_topic(name)
    assert len(records._idle) < 2_000


# ---- full disks ---------------------------------------------------------------------------------

FULL = ErrorDetail("the disk of /data is full", limit=96, value=12)


def answered_until_timeout(bench: Bench, answers, timeout_ms: int) -> None:
    """Give each attempt the next answer (code, detail), the last one again and again, until the
    delivery timeout."""
    now, number = 0, 0
    while now < timeout_ms:
        for attempt in bench.poll(now):
            code, detail = answers[min(number, len(answers) - 1)]
            number += 1
            bench.answer(attempt, code, now=now, detail=detail)
        now = max(now + 1, bench.state.next_deadline_ms())
    assert number >= len(answers) and bench.poll(timeout_ms) == []


@pytest.mark.parametrize("before", [
    [], [(Code.LEADER_UNKNOWN, None)], [(Code.NOT_LEADER, ErrorDetail("", leader=1))]])
def test_records_that_a_full_disk_refuses_until_the_timeout_end_with_that_error(before):
    bench = Bench(delivery_timeout_ms=5_000)
    delivery = bench.send()
    answered_until_timeout(bench, [*before, (Code.STORAGE_FULL, FULL)], 5_000)
    error = delivery.outcome
    assert type(error) is StorageFull and error.definite
    assert "not delivered in 5 s" in str(error) and FULL.text in str(error)
    assert (error.topic, error.partition) == ("t", 0)
    assert (error.detail.limit, error.detail.value) == (96, 12)


def test_records_that_wait_behind_refused_ones_end_with_the_same_error():
    """A partition sends at most ``in_flight_max`` batches before the first is acknowledged."""
    bench = Bench(delivery_timeout_ms=5_000, in_flight_max=1)
    first, second = bench.send(b"x"), None
    attempt = bench.one()
    second = bench.send(b"y")
    bench.answer(attempt, Code.STORAGE_FULL, detail=FULL)
    answered_until_timeout(bench, [(Code.STORAGE_FULL, FULL)], 5_000)
    assert type(first.outcome) is StorageFull
    assert type(second.outcome) is StorageFull and FULL.text in str(second.outcome)


@pytest.mark.parametrize("last", [Code.LEADER_UNKNOWN, Code.QUEUE_FULL])
def test_a_full_disk_that_is_not_the_last_answer_is_no_reason(last):
    bench = Bench(delivery_timeout_ms=5_000)
    delivery = bench.send()
    answered_until_timeout(bench, [(Code.STORAGE_FULL, FULL), (last, None)], 5_000)
    assert type(delivery.outcome) is TimedOut and last.name in str(delivery.outcome)


def test_a_full_disk_from_before_an_acknowledgement_is_no_reason():
    bench = Bench(delivery_timeout_ms=5_000)
    bench.send()
    bench.answer(bench.one(), Code.STORAGE_FULL, detail=FULL)
    now = bench.pause_ends(0)
    bench.answer(bench.one(now), now=now)
    later = bench.send(now=now)
    bench.metadata.apply(("t",), metadata(leader=0, epoch=2), now)  # no leader: never sent
    assert bench.poll(now) == [] and bench.poll(now + 5_000) == []
    assert type(later.outcome) is TimedOut


def test_a_lost_attempt_after_a_full_disk_is_ambiguous_and_later_records_are_not_refused():
    bench = Bench(delivery_timeout_ms=5_000, in_flight_max=1)
    first = bench.send(b"x")
    bench.answer(bench.one(), Code.STORAGE_FULL, detail=FULL)
    second = bench.send(b"y")
    now = bench.pause_ends(0)
    bench.state.done(bench.one(now), Lost(True, "cut"), now)
    bench.metadata.apply(("t",), metadata(leader=0, epoch=2), now)
    assert bench.poll(5_001) == []
    assert isinstance(first.outcome, AmbiguousOutcome)
    assert type(second.outcome) is TimedOut
