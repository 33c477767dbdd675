"""The decision about one partition, against a model that knows every batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.partitions.retention_records import UNKNOWN_BYTES
from node.retention.retention_policy import (
    NO_LIMITS,
    UNLIMITED,
    Facts,
    Limits,
    Removal,
    StoredBatch,
    limits_of,
)

LIMIT = st.one_of(st.just(UNLIMITED), st.integers(0, 40))


@st.composite
def partitions(draw):
    """Return the batches of a partition, its high watermark, and its log start."""
    offset = begin = draw(st.integers(0, 5))
    index, batches = draw(st.integers(0, 5)), []
    for count, size, distance in draw(st.lists(st.tuples(
            st.integers(1, 4), st.integers(1, 12), st.integers(1, 3)), max_size=12)):
        index += distance
        batches.append(StoredBatch(offset, offset + count, index, size))
        offset += count
    ends = [begin, *(batch.end_offset for batch in batches)]
    return batches, draw(st.sampled_from(ends)), begin


def removed(limits, facts, batches):
    """Return (log start, bytes) by the definition: the longest prefix of which each batch is old
    enough, or leaves enough behind it."""
    start, gone = facts.log_start, 0
    for batch in batches:
        records_left = facts.end_offset - batch.end_offset
        bytes_left = facts.live_bytes - gone - batch.size
        if not (records_left >= 0 and (
                (limits.age_ms >= 0 and batch.index <= facts.expired_index)
                or (limits.records >= 0 and records_left >= limits.records)
                or (limits.bytes >= 0 and facts.live_bytes >= 0 and bytes_left >= limits.bytes))):
            break
        start, gone = batch.end_offset, gone + batch.size
    return start, gone


@given(partitions(), LIMIT, LIMIT, LIMIT, st.integers(0, 30), st.booleans(), st.integers(1, 5))
def test_a_removal_is_the_longest_prefix_that_the_limits_allow(
        partition, age_ms, bytes_max, records_max, expired_index, is_known, portion):
    batches, end_offset, begin = partition
    limits = Limits(age_ms, bytes_max, records_max)
    live = sum(batch.size for batch in batches if batch.end_offset <= end_offset)
    facts = Facts(begin, end_offset, live if is_known else UNKNOWN_BYTES, expired_index)
    removal = Removal(limits, facts)
    at = 0
    while at < len(batches) and removal.take(batches[at:at + portion]):
        at += portion
    assert (removal.log_start, removal.bytes) == removed(limits, facts, batches)
    assert removal.log_start <= end_offset
    kept = next((batch for batch in batches if batch.base_offset >= removal.log_start), None)
    assert removal.first_kept == kept
    if age_ms == UNLIMITED and removal.records:
        records_left, bytes_left = end_offset - removal.log_start, live - removal.bytes
        assert (records_max >= 0 and records_left >= records_max) or (
            bytes_max >= 0 and is_known and bytes_left >= bytes_max)


def test_a_batch_that_the_log_start_divides_counts_whole():
    removal = Removal(Limits(bytes=10), Facts(5, 20, 30, 0))
    assert not removal.take([StoredBatch(0, 10, 1, 20), StoredBatch(10, 20, 2, 10)])
    assert (removal.log_start, removal.bytes, removal.records) == (10, 20, 5)


@pytest.mark.parametrize(("limits", "gone", "is_worth"), [
    (Limits(bytes=1600), 99, False), (Limits(bytes=1600), 100, True),
    (Limits(records=32), 1, False), (Limits(records=32), 2, True),
    (Limits(age_ms=1), 500, False), (Limits(bytes=0), 1, True)])
def test_a_small_part_of_a_limit_is_not_worth_an_entry(limits, gone, is_worth):
    removal = Removal(limits, Facts(0, 10_000, 1 << 20, 1))
    removal.take([StoredBatch(0, gone, 1, gone)])
    assert removal.records == gone
    assert removal.is_worth_an_entry() is is_worth


OWN = (("retention.ms", "500"),)


@pytest.mark.parametrize(("topic", "own", "shared", "internal", "limits"), [
    ("t", (), (), (), NO_LIMITS),
    ("t", OWN, (("retention.ms", "9"), ("retention.bytes", "7")), (), Limits(500, 7)),
    ("t", (("retention.records", "3"),), (), (), Limits(records=3)),
    ("t", (("cleanup.policy", "compact"), *OWN), (), (), NO_LIMITS),
    ("t", (("cleanup.policy", "compact,delete"), *OWN), (), (), Limits(500)),
    ("t", OWN, (("cleanup.policy", "compact"),), (), NO_LIMITS),
    ("__m", (), OWN, (("retention.ms", "8"),), Limits(8)),
    ("__m", OWN, (), (("retention.ms", "8"),), Limits(500)),
    ("t", (), (), (("retention.ms", "8"),), NO_LIMITS),
    ("t", (("retention.ms", "of a later release"),), (), (), NO_LIMITS)])
def test_the_limits_are_those_of_the_topic_then_of_the_cluster(topic, own, shared, internal,
                                                               limits):
    assert limits_of(topic, own, shared, internal) == limits
    assert limits_of(topic, own, shared, internal).is_unlimited is (limits == NO_LIMITS)
