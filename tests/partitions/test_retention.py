"""Effects of the entries that decide retention: log starts, deletions, compactions, expiry; and
what a partition knows of its bytes and leader epochs."""

from __future__ import annotations

import pytest

from multiraft.errors import CodecError, OutOfOrderSequence, UnknownPartition
from multiraft.partitions import state as tail_module
from multiraft.partitions.clock_list import index_before, time_after
from multiraft.partitions.partition_state import (
    LEADER_EPOCHS_MAX,
    NEVER_COMPACTED,
    NO_DETAILS,
    GroupState,
    leader_epochs,
)
from multiraft.partitions.records import open_payload
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    Compaction,
    LogStart,
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
)
from multiraft.partitions.state import PartitionStates
from multiraft.types import EntryKind
from tests.partitions.test_state import P, control, entry, info, opened, put, seal


def append(tail, count=1, size=10, term=1, partition=P):
    made = entry(tail, EntryKind.DATA, partition, tail.next_offset(partition), bytes(size),
                 info(count))
    made.term = term
    assert tail.check_entry(made) == ""
    tail.append(made)


def log_starts(tail, *rows):
    control(tail, EntryKind.LOG_START, 0, payload=log_starts_payload([LogStart(*row)
                                                                      for row in rows]))


def delete(tail, *partitions, metadata_index=1):
    control(tail, EntryKind.PARTITION_DELETE, 0,
            payload=delete_payload(metadata_index, partitions))


def expire(tail, below_index):
    control(tail, EntryKind.PRODUCERS_EXPIRE, 0, payload=expire_payload(below_index))


def compact(tail, *fields):
    control(tail, EntryKind.COMPACT, payload=compact_payload(Compaction(*fields)))


def fault(tail, kind, payload, partition=0):
    return tail.check_entry(entry(tail, kind, partition, payload=payload))


# ---- log starts and live bytes ------------------------------------------------------------------


def test_live_bytes_count_payloads_until_a_log_start_says_less():
    tail = opened()
    append(tail, 3, 100)
    append(tail, 2, 50)
    assert (tail.tail_state(P).live_bytes, tail.tail_state(P).records) == (160, 5)
    log_starts(tail, (P, 3, 50))
    append(tail, 1, 7)
    assert (tail.tail_state(P).live_bytes, tail.tail_state(P).records) == (58, 3)


def test_one_log_start_entry_raises_many_partitions_and_is_undone_with_all_of_them():
    tail = opened()
    control(tail, EntryKind.PARTITION_OPEN, 8, payload=open_payload(1))
    append(tail, 4)
    append(tail, 4, partition=8)
    before = dict(tail._states)
    log_starts(tail, (P, 2, 5), (8, 3, 6))
    assert [tail.tail_state(each).log_start for each in (P, 8)] == [2, 3]
    tail._check()
    tail.truncate(tail.last_index)
    assert tail._states == before
    tail._check()


@pytest.mark.parametrize(("row", "expected"), [
    ((P, 4, UNKNOWN_BYTES), (4, UNKNOWN_BYTES)),
    ((P, 9, 5), (9, 0)),  # nothing is left, whatever the entry says
    ((P, 2, 33), (2, 33)),  # the same start, and its bytes are known
    ((P, 2, UNKNOWN_BYTES), (2, 70)),
    ((P, 1, 5), (2, 70)),  # it never goes back
])
def test_a_log_start_says_what_remains(row, expected):
    tail = opened()
    append(tail, 9, 100)
    log_starts(tail, (P, 2, 70))
    log_starts(tail, row)
    assert (tail.tail_state(P).log_start, tail.tail_state(P).live_bytes) == expected


def test_bytes_are_unknown_after_a_log_start_of_version_1_until_one_of_version_2():
    tail = opened()
    append(tail, 4, 100)
    control(tail, EntryKind.LOG_START, base_offset=2)
    append(tail, 1, 10)
    assert tail.tail_state(P).live_bytes == UNKNOWN_BYTES
    log_starts(tail, (P, 3, 35))
    assert tail.tail_state(P).live_bytes == 35


def test_a_log_start_of_an_unknown_partition_or_behind_the_end_is_refused():
    tail = opened()
    for row, why in (((8, 0, 0), "partition 8, which is not open"), ((P, 1, 0), "its end is 0")):
        assert why in fault(tail, EntryKind.LOG_START, log_starts_payload([LogStart(*row)]))


# ---- clocks -------------------------------------------------------------------------------------


def test_a_clock_follows_the_log_and_never_runs_back():
    tail = opened()
    control(tail, EntryKind.CLOCK, 0, payload=clock_payload(0, 500))
    control(tail, EntryKind.CLOCK, 0, payload=clock_payload(500, 800))
    assert (tail.group_state.clock_ms, tail.applied_group_state.clock_ms) == (800, 0)
    assert "CLOCK of 700 ms after one of 800 ms" in fault(tail, EntryKind.CLOCK,
                                                           clock_payload(0, 700))
    tail.apply(2)
    assert tail.applied_group_state.clock_ms == 500
    tail.truncate(3)
    assert tail.group_state.clock_ms == 500
    tail._check()


def test_the_clocks_of_a_group_are_undone_with_a_suffix_and_are_in_the_snapshot():
    tail = opened()
    for clock_ms in (500, 500, 900, 1_000):
        control(tail, EntryKind.CLOCK, 0, payload=clock_payload(0, clock_ms))
    tail.truncate(5)
    control(tail, EntryKind.CLOCK, 0, payload=clock_payload(0, 950))
    assert [time_after(tail.group_state.clocks, index) for index in (1, 2, 3, 4, 5)] \
        == [500, 900, 900, 950, None]
    assert index_before(tail.group_state.clocks, 949) == 3
    assert tail.applied_group_state.clocks == b""
    tail.apply(4)
    read = PartitionStates.restore(tail.snapshot())
    assert read.group_state == tail.applied_group_state
    assert time_after(read.group_state.clocks, 2) == 900


@pytest.mark.parametrize("change", [{"clocks": b"\1" * 16}, {"clocks": b"1"}, {"clock": 900}])
def test_a_snapshot_with_other_clocks_than_its_last_one_is_refused(change):
    tail = opened()
    control(tail, EntryKind.CLOCK, 0, payload=clock_payload(0, 500))
    tail.apply(2)
    with pytest.raises(CodecError):
        PartitionStates.restore({**tail.snapshot(), **change})


# ---- deletions ----------------------------------------------------------------------------------


def test_a_deleted_partition_is_served_until_the_entry_is_applied():
    tail = opened()
    put(tail, info(2, producer=5))
    tail.apply(2)
    delete(tail, P, 99, metadata_index=12)
    assert tail.applied(P).next_offset == 2 and list(tail.windows(P)) == [5]
    assert [row[0] for row in tail.snapshot()["partitions"]] == [P]
    with pytest.raises(UnknownPartition):
        tail.validate_append(P, info())
    tail.apply(3)
    assert tail.applied(P) is None and tail.windows(P) == {}
    assert tail.snapshot()["partitions"] == []
    assert tail.partitions_count == 0
    tail._check()


def test_a_deletion_that_is_truncated_brings_partitions_and_producers_back():
    tail = opened()
    put(tail, info(2, producer=5))
    put(tail, info(1, producer=6))
    before = dict(tail._states), {P: dict(tail._windows[P])}
    delete(tail, P, metadata_index=12)
    assert tail.group_state.opens_from == 12
    tail.truncate(4)
    assert (tail._states, tail._windows) == before
    assert tail.group_state == GroupState()
    tail._check()


def test_a_partition_that_is_opened_deleted_and_opened_again_before_it_is_applied():
    tail = opened()
    delete(tail, P)
    tail._check()
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(2, 7))
    tail._check()
    tail.truncate(3)
    tail._check()
    assert tail.applied(P) is None and tail.epoch_of(P) == 0
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(3, 9))
    for index, epoch in ((1, 1), (2, None), (3, 3)):
        tail.apply(index)
        assert getattr(tail.applied(P), "epoch", None) == epoch
        tail._check()


def test_the_metadata_index_that_openings_need_never_falls():
    tail = opened()
    delete(tail, 50, metadata_index=12)
    delete(tail, 51, metadata_index=9)
    assert tail.group_state.opens_from == 12


def test_partitions_whose_records_leave_are_told_once_the_entry_is_applied():
    tail = opened()
    control(tail, EntryKind.PARTITION_OPEN, 8, payload=open_payload(1))
    append(tail, 4)
    log_starts(tail, (P, 2, 10), (8, 0, 0))
    delete(tail, 8)
    tail.apply(3)
    assert not tail.take_shortened()
    tail.apply(4)
    assert [*tail.take_shortened()] == [P]
    tail.apply(5)
    assert [*tail.take_shortened()] == [8] and tail.is_deleted(8)
    assert not tail.take_shortened()
    log_starts(tail, (P, 4, 0))
    tail.truncate(6)
    control(tail, EntryKind.NOOP, 0)
    tail.apply(6)
    assert not tail.take_shortened() and not tail.is_deleted(P)


@pytest.mark.parametrize("log_start", [3, 4])
def test_an_opening_with_a_higher_log_start_takes_records_away(log_start):
    tail = opened()
    append(tail, 4)
    log_starts(tail, (P, 3, 10))
    seal(tail)
    tail.apply(tail.last_index)
    assert [*tail.take_shortened()] == [P]
    before = dict(tail._states)
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(2, 9, 0, log_start))
    tail._check()
    tail.truncate(tail.last_index)
    assert tail._states == before
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(2, 9, 0, log_start))
    assert not tail.take_shortened()
    tail.apply(tail.last_index)
    tail._check()
    assert [*tail.take_shortened()] == [P] * (log_start == 4)
    assert tail.applied(P).log_start == log_start


def test_deleted_partitions_do_not_count_towards_the_limit(monkeypatch):
    monkeypatch.setattr(tail_module, "PARTITIONS_PER_GROUP_MAX", 1)
    tail = opened()
    delete(tail, P)
    control(tail, EntryKind.PARTITION_OPEN, 8, payload=open_payload(1))
    assert list(tail.partitions()) == [8]


# ---- compactions --------------------------------------------------------------------------------


def test_the_last_compaction_is_kept_and_undone():
    tail = opened()
    append(tail, 9)
    compact(tail, 1, 5, 0)
    compact(tail, 3, 7, 5)
    assert tail.tail_state(P).compaction == (3, 7, 5)
    tail.truncate(tail.last_index)
    assert tail.tail_state(P).compaction == (1, 5, 0)


@pytest.mark.parametrize(("fields", "why"), [
    ((1, 6, 0), "generation 1 after 1"), ((2, 10, 0), "up to 10, its end is 9"),
    ((2, 4, 2), "goes back"), ((2, 6, 1), "goes back")])
def test_a_compaction_that_does_not_follow_the_last_one_is_refused(fields, why):
    tail = opened()
    append(tail, 9)
    compact(tail, 1, 5, 2)
    assert why in fault(tail, EntryKind.COMPACT, compact_payload(Compaction(*fields)), P)
    assert "not open" in fault(tail, EntryKind.COMPACT, compact_payload(Compaction(*fields)), 8)


# ---- producers ----------------------------------------------------------------------------------


def test_producers_without_a_batch_since_the_index_are_unknown_before_their_memory_is_freed():
    tail = opened()
    put(tail, info(1, producer=5))  # index 2
    put(tail, info(1, producer=6))  # index 3
    expire(tail, 3)
    for forgotten in (False, True):
        assert tail.begins_producer(P, info(1, producer=5))
        assert not tail.begins_producer(P, info(1, producer=6))
        with pytest.raises(OutOfOrderSequence, match="producer 5 is unknown"):
            tail.validate_append(P, info(1, producer=5, sequence=1))
        assert tail.validate_append(P, info(1, producer=6)).duplicate
        assert list(tail._windows[P]) == ([6] if forgotten else [5, 6])
        tail.apply(4)
        tail.forget_expired()
    assert list(tail.windows(P)) == [6]
    assert put(tail, info(1, producer=5)) == (2, 0, False, 0)
    tail._check()


def test_a_truncated_expiry_brings_the_producers_back():
    tail = opened()
    put(tail, info(1, producer=5))
    tail.apply(2)
    expire(tail, 3)
    tail.forget_expired()  # it is not applied
    put(tail, info(1, producer=5))  # begins anew
    assert list(tail.windows(P)) == [5]
    tail.truncate(3)
    assert tail.validate_append(P, info(1, producer=5)).duplicate
    tail._check()


def test_an_expiry_above_its_own_index_is_refused_and_a_lower_one_changes_nothing():
    tail = opened()
    assert "its own is 2" in fault(tail, EntryKind.PRODUCERS_EXPIRE, expire_payload(3))
    expire(tail, 2)
    expire(tail, 1)
    assert tail.group_state.expired_below == 2


def test_expired_producers_take_no_place_from_others(monkeypatch):
    monkeypatch.setattr(tail_module, "PRODUCERS_PER_PARTITION_MAX", 2)
    both = opened(), opened()
    for tail in both:
        put(tail, info(1, producer=5))
        put(tail, info(1, producer=6))
        expire(tail, 3)
        tail.apply(4)
    both[1].forget_expired()
    for tail in both:
        put(tail, info(1, producer=7))
        tail.apply(5)
        assert list(tail.windows(P)) == [6, 7]
    assert both[0].snapshot() == both[1].snapshot()


def test_a_seal_carries_no_expired_producers():
    tail = opened()
    put(tail, info(1, producer=5))
    expire(tail, 3)
    seal(tail)
    tail.apply(4)
    assert tail.sealed(P).windows == b""


# ---- leader epochs ------------------------------------------------------------------------------


def test_leader_epochs_begin_with_their_first_batch():
    tail = opened(base=10)
    for term, count in ((1, 2), (1, 3), (4, 1), (6, 2)):
        append(tail, count, term=term)
    assert leader_epochs(tail.tail_state(P).details) == [(11, 0), (14, 5), (16, 6)]
    log_starts(tail, (P, 6, 10))
    assert leader_epochs(tail.tail_state(P).details) == [(16, 6)]
    log_starts(tail, (P, 8, 0))
    assert leader_epochs(tail.tail_state(P).details) == [(16, 6)]


def test_the_oldest_leader_epochs_are_forgotten():
    tail = opened()
    for term in range(1, LEADER_EPOCHS_MAX + 4):
        append(tail, term=term)
    found = leader_epochs(tail.tail_state(P).details)
    assert (len(found), found[0], found[-1]) == (LEADER_EPOCHS_MAX, (4, 3), (67, 66))
    tail.apply(tail.last_index)
    assert PartitionStates.restore(tail.snapshot()).tail_state(P) == tail.tail_state(P)


def test_partitions_share_their_details_until_they_differ():
    tail = PartitionStates(3)
    for partition in range(1, 5):
        control(tail, EntryKind.PARTITION_OPEN, partition, payload=open_payload(1))
        assert tail.tail_state(partition).details is NO_DETAILS
        append(tail, partition=partition)
    tail.apply(tail.last_index)
    for states in (tail, PartitionStates.restore(tail.snapshot())):
        assert len({id(states.tail_state(each).details) for each in range(1, 5)}) == 1


def test_partitions_with_details_of_their_own_share_that_they_were_never_compacted():
    tail = opened()
    for term in (1, 2):
        append(tail, term=term)
    tail.apply(tail.last_index)
    for states in (tail, PartitionStates.restore(tail.snapshot())):
        assert leader_epochs(states.tail_state(P).details) == [(1, 0), (2, 1)]
        assert states.tail_state(P).compaction is NEVER_COMPACTED


def test_a_leader_epoch_that_no_batch_can_carry_is_refused():
    tail = opened(base=5)
    made = entry(tail, EntryKind.DATA, P, 0, b"", info())
    made.term = (1 << 31) - 5
    assert "exceeds the limit of 2147483647" in tail.check_entry(made)


def test_a_partition_that_comes_back_keeps_its_bytes_as_far_as_they_are_known():
    for carried_start, live_bytes in ((0, 32), (2, UNKNOWN_BYTES), (5, 0)):
        tail = opened()
        append(tail, 3, 30)
        seal(tail)
        control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(3, 5, 9, carried_start))
        assert tail.tail_state(P).live_bytes == live_bytes
