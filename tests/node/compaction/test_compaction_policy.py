"""The decision about one partition: rules, dirty parts, and the COMPACT that is due."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.partitions.retention_records import Compaction, compact_payload, parse_compact
from node.compaction.compaction_policy import (
    GENERATION_MAX,
    INDEX_MAX,
    Bounds,
    DirtyPart,
    Rules,
    Standing,
    decide,
    dirty_share,
    rules_of,
)
from node.retention.retention_policy import StoredBatch

DAY = 86_400_000
FOREVER = (1 << 63) - 1
RULES = Rules(0, FOREVER, DAY, 0.5)


@pytest.mark.parametrize("topic, own, shared, expected", [
    ("t", {}, {}, None),
    ("t", {"cleanup.policy": "delete"}, {"cleanup.policy": "compact"}, None),
    ("t", {"cleanup.policy": "compact"}, {}, RULES),
    ("t", {"cleanup.policy": "compact,delete"}, {}, RULES),
    ("t", {"cleanup.policy": "delete,compact"}, {}, RULES),
    ("t", {}, {"cleanup.policy": "compact"}, RULES),
    ("__t", {}, {"cleanup.policy": "compact"}, None),  # it was meant for applications
    ("__t", {"cleanup.policy": "compact"}, {"delete.retention.ms": "7"}, RULES._replace(
        tombstone_ms=7)),
    ("t", {"cleanup.policy": "compact", "min.compaction.lag.ms": "5",
           "max.compaction.lag.ms": "9", "delete.retention.ms": "0",
           "min.cleanable.dirty.ratio": "0.25"}, {"min.compaction.lag.ms": "6"},
     Rules(5, 9, 0, 0.25)),
    # a value that a later release has set
    ("t", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "often"}, {}, RULES),
])
def test_rules(topic, own, shared, expected):
    assert rules_of(topic, tuple(own.items()), tuple(shared.items())) == expected


def batches(*sizes):
    """Batches of ten records at every second log index, from 2 on."""
    return [StoredBatch(10 * at, 10 * at + 10, 2 * at + 2, size) for at, size in enumerate(sizes)]


@pytest.mark.parametrize("bounds, up_to, size, waiting", [
    (Bounds(50, 99, INDEX_MAX), 40, 40, None),
    (Bounds(41, 99, INDEX_MAX), 40, 40, None),
    (Bounds(40, 99, INDEX_MAX), 30, 30, None),  # the last one stays
    (Bounds(39, 99, INDEX_MAX), 30, 30, None),  # above the high watermark
    (Bounds(30, 99, INDEX_MAX), 20, 20, None),
    (Bounds(40, 6, 3), 10, 10, 10),
    (Bounds(20, 4, 2), 10, 10, None),  # the last one, whatever else it would wait for
    (Bounds(50, 8, INDEX_MAX), 30, 30, 30),  # in the Raft log
    (Bounds(50, 7, INDEX_MAX), 30, 30, 30),
    (Bounds(50, 6, INDEX_MAX), 20, 20, 20),
    (Bounds(50, 99, 7), 30, 30, 30),  # too young
    (Bounds(50, 99, 6), 30, 30, 30),
    (Bounds(50, 99, 5), 20, 20, 20),
    (Bounds(50, 99, 0), 0, 0, 0),
    (Bounds(10, 99, INDEX_MAX), 0, 0, None),
    (Bounds(0, 99, INDEX_MAX), 0, 0, None),
    (Bounds(50, 1, INDEX_MAX), 0, 0, 0),
])
def test_the_dirty_part_ends_at_the_first_batch_that_has_to_wait(bounds, up_to, size, waiting):
    for portion in (1, 3, 4):
        dirty, left, goes_on = DirtyPart(0), batches(10, 10, 10, 10), True
        while left and goes_on:
            goes_on = dirty.take(left[:portion], bounds)
            left = left[portion:]
        found = dirty.waiting.base_offset if dirty.waiting is not None else None
        assert (dirty.up_to, dirty.bytes, found) == (up_to, size, waiting)
        assert dirty.first_index == (2 if size else 0)
        assert goes_on == (up_to == 40)


def test_the_last_batch_is_taken_once_another_one_follows():
    dirty = DirtyPart(0)
    assert not dirty.take(batches(10, 10), Bounds(20, 99, INDEX_MAX))
    assert (dirty.up_to, dirty.waiting) == (10, None)
    assert not dirty.take(batches(10, 10, 10)[1:], Bounds(30, 5, INDEX_MAX))
    assert (dirty.up_to, dirty.bytes, dirty.waiting) == (20, 20, None)


def dirty_part(up_to, size, first_index=5):
    dirty = DirtyPart(up_to)
    dirty.bytes, dirty.first_index = size, first_index if size else 0
    return dirty


LAST = Compaction(3, 100, 40)
STANDING = Standing(LAST, 0, 500, 0, 0, False)


@pytest.mark.parametrize("why, rules, standing, dirty, expected", [
    ("as dirty as the topic asks", RULES, STANDING, dirty_part(160, 500),
     Compaction(4, 160, 40)),
    ("less dirty", RULES, STANDING, dirty_part(160, 499), None),
    ("nothing is dirty", RULES, STANDING, dirty_part(100, 0), None),
    ("the first one", RULES, STANDING._replace(last=Compaction(0, 0, 0), clean_bytes=0),
     dirty_part(60, 1), Compaction(1, 60, 0)),
    ("any new record counts", RULES._replace(dirty_ratio=0.0), STANDING, dirty_part(101, 1),
     Compaction(4, 101, 40)),
    ("no new record, any would count", RULES._replace(dirty_ratio=0.0), STANDING,
     dirty_part(100, 0), None),
    ("all have to be new", RULES._replace(dirty_ratio=1.0), STANDING, dirty_part(200, 9_000),
     None),
    ("one waited for too long", RULES, STANDING._replace(overdue_index=5), dirty_part(101, 1),
     Compaction(4, 101, 40)),
    ("none waited for too long", RULES, STANDING._replace(overdue_index=4), dirty_part(101, 1),
     None),
    ("tombstones go as well", RULES, STANDING._replace(tombstones_below=80), dirty_part(160, 500),
     Compaction(4, 160, 80)),
    ("fewer tombstones than before", RULES, STANDING._replace(tombstones_below=20),
     dirty_part(160, 500), Compaction(4, 160, 40)),
    ("tombstones alone", RULES, STANDING._replace(tombstones_below=100, is_last_old=True),
     dirty_part(100, 0), Compaction(4, 100, 100)),
    ("tombstones, and a few records", RULES,
     STANDING._replace(tombstones_below=100, is_last_old=True), dirty_part(120, 9),
     Compaction(4, 120, 100)),
    ("tombstones, soon after the last one", RULES, STANDING._replace(tombstones_below=80),
     dirty_part(100, 0), None),
    ("no tombstone since the last one", RULES,
     STANDING._replace(tombstones_below=40, is_last_old=True), dirty_part(100, 0), None),
    ("tombstones below the log start", RULES,
     STANDING._replace(tombstones_below=100, is_last_old=True, log_start=100),
     dirty_part(150, 9, 0), None),
    ("all records are deleted", RULES, STANDING._replace(log_start=160, overdue_index=9),
     dirty_part(160, 500), None),
    ("generations are used up", RULES,
     STANDING._replace(last=Compaction(GENERATION_MAX, 100, 40)), dirty_part(160, 500), None),
])
def test_the_decision(why, rules, standing, dirty, expected):
    assert decide(rules, standing, dirty) == expected, why


def test_the_share_of_an_empty_partition_is_no_division_by_zero():
    assert dirty_share(DirtyPart(0), 0) == 0.0
    assert dirty_share(dirty_part(9, 30), 90) == 0.25


@given(last=st.tuples(st.integers(0, 9), st.integers(0, 50), st.integers(0, 50)),
       more=st.integers(0, 50), size=st.integers(0, 99), log_start=st.integers(0, 120),
       clean=st.integers(0, 99), overdue=st.integers(0, 9), tombstones=st.integers(0, 50),
       is_old=st.booleans(), ratio=st.sampled_from((0.0, 0.1, 0.5, 1.0)))
def test_a_decision_follows_the_last_one(last, more, size, log_start, clean, overdue, tombstones,
                                         is_old, ratio):
    generation, up_to, below = last[0], max(last[1:]), min(last[1:])
    before = Compaction(generation, up_to, below)
    dirty = dirty_part(max(up_to, log_start) + more, size)
    found = decide(RULES._replace(dirty_ratio=ratio), Standing(
        before, log_start, clean, overdue, min(tombstones, up_to), is_old), dirty)
    if found is None:
        return
    assert parse_compact(compact_payload(found)) == found
    assert found.generation == generation + 1
    assert up_to <= found.up_to == dirty.up_to > log_start
    assert below <= found.tombstones_below <= up_to
    assert found.up_to > up_to or found.tombstones_below > below, "it would change nothing"
