"""Records in groups of earlier epochs: what a replica tells, and what is decided by that."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from multiraft.partitions.records import seal_payload
from multiraft.partitions.retention_records import UNKNOWN_BYTES, clock_payload
from multiraft.types import EntryKind
from node.retention.earlier_epochs import (
    BATCHES_PER_ANSWER,
    EpochPart,
    Question,
    part_of,
    start_in_history,
)
from node.retention.retention_policy import UNLIMITED, Facts, Limits, StoredBatch
from tests.partitions.test_state import P, control, info, opened, put

LIMIT = st.one_of(st.just(UNLIMITED), st.integers(0, 60))


def sealed_epoch():
    """Return an epoch of five batches of two records, appended at 1, 2, ... seconds."""
    tail, batches = opened(), []
    for second in range(1, 6):
        put(tail, info(2))
        batches.append(StoredBatch(2 * second - 2, 2 * second, tail.last_index, 16))
        control(tail, EntryKind.CLOCK, 0, payload=clock_payload(0, 1_000 * second))
    control(tail, EntryKind.PARTITION_SEAL, payload=seal_payload(1), base_offset=10)
    return tail, batches


def test_a_replica_tells_bytes_and_age_once_it_has_applied_the_end():
    tail, batches = sealed_epoch()
    tail.apply(tail.last_index - 1)
    assert part_of(tail, batches, P, 1, 10, Question(0, 3_500)) is None
    tail.apply(tail.last_index)
    assert part_of(tail, batches, P, 1, 10, Question(0, 3_500)) == EpochPart(10, 80, 6)
    assert part_of(tail, batches[1:], P, 1, 10, Question(2, 9_000)) == EpochPart(10, 64, 10)
    assert part_of(tail, batches, P, 1, 10, Question(0, -1)) == EpochPart(10, 80, 0)
    assert part_of(tail, batches, P, 2, 10, Question(0, -1)) is None
    assert part_of(tail, batches, 99, 1, 10, Question(0, -1)) is None


def test_bytes_of_a_long_epoch_are_unknown():
    tail, _ = sealed_epoch()
    tail.apply(tail.last_index)
    many = [StoredBatch(at, at + 1, at + 1, 8) for at in range(BATCHES_PER_ANSWER)]
    assert part_of(tail, many, P, 1, 1 << 20, Question(0, -1)).bytes == UNKNOWN_BYTES


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(-1, 30), st.integers(0, 9)), min_size=1,
                max_size=4), st.integers(0, 20), st.integers(-1, 30), LIMIT, LIMIT, LIMIT)
def test_at_least_the_limits_stay_and_age_takes_no_record_that_did_not_expire(
        epochs, last_records, live_bytes, age_ms, bytes_max, records_max):
    parts, offset = [], 0
    for records, size, expired in epochs:
        parts.append(EpochPart(offset + records, size, offset + min(expired, records)))
        offset += records
    limits = Limits(age_ms, bytes_max, records_max)
    facts = Facts(0, offset + last_records, live_bytes, 0)
    start = start_in_history(limits, facts, parts)
    assert 0 <= start <= offset
    for part, begin in zip(parts, [0, *(each.end_offset for each in parts)], strict=False):
        if begin >= start:
            break
        known = UNKNOWN_BYTES not in (live_bytes, *(each.bytes for each in parts))
        left = live_bytes + sum(each.bytes for each in parts if each.end_offset > part.end_offset)
        by_size = start >= part.end_offset and (
            (records_max >= 0 and facts.end_offset - part.end_offset >= records_max)
            or (bytes_max >= 0 and known and left >= bytes_max))
        by_age = age_ms >= 0 and min(start, part.end_offset) <= part.expired_to
        assert by_size or by_age
