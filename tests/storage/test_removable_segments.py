"""A segment goes when no start, from either kept checkpoint, and no reader needs it."""

from __future__ import annotations

import pytest

from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.storage.removable_segments import (
    CheckpointedStart,
    GroupContents,
    KeptCheckpoint,
    SegmentContents,
    removable_segments,
)
from tests.storage.damage import DIRECTORY, FIRST, Disk
from tests.storage.world import VOTERS, Rounds, data_entry, open_entry, open_store, write

FIRST_SEGMENT = SegmentContents(0, 100, {1: GroupContents(1, 10), 2: GroupContents(1, 4)})
SECOND_SEGMENT = SegmentContents(200, 300, {1: GroupContents(1, 20)})


def checkpoint(position: int, **starts: int) -> KeptCheckpoint:
    """``g1=11``: the Raft start of group 1."""
    return KeptCheckpoint(position, {int(name[1:]): CheckpointedStart(1, first)
                                     for name, first in starts.items()})


BOTH = [checkpoint(300, g1=21, g2=5), checkpoint(400, g1=30, g2=5)]


def removed(checkpoints=BOTH, segments=(FIRST_SEGMENT, SECOND_SEGMENT), records=()) -> list[int]:
    found = removable_segments(segments, checkpoints, lambda segment: any(
        segment.start <= at < segment.end for at in records))
    return [segment.start for segment in found]


def test_segments_below_every_raft_start_go():
    assert removed() == [0, 200]


@pytest.mark.parametrize("older, left", [
    (checkpoint(300, g1=20, g2=5), [0]),
    (checkpoint(300, g1=10, g2=5), []),
    (checkpoint(300, g1=21, g2=4), [200]),
    (checkpoint(299, g1=21, g2=5), [0]),
    (checkpoint(99, g1=21, g2=5), []),
])
def test_what_the_older_checkpoint_needs_stays(older, left):
    assert removed([older, BOTH[1]]) == left
    assert removed([BOTH[1], older]) == left


def test_one_checkpoint_alone_lets_nothing_go():
    assert removed(BOTH[:1]) == []


def test_a_segment_with_a_record_stays_in_the_front_and_behind():
    assert removed(records=[50]) == [200]
    assert removed(records=[299]) == [0]
    assert removed(records=[100, 199, 300]) == [0, 200]


def test_a_group_that_a_checkpoint_does_not_know_keeps_its_entries():
    unknown = FIRST_SEGMENT._replace(groups={7: GroupContents(1, 1)})
    assert removed(segments=(unknown, SECOND_SEGMENT)) == [200]


def test_entries_of_an_earlier_life_are_not_needed():
    later = {1: CheckpointedStart(2, 1), 2: CheckpointedStart(1, 1, 150)}
    assert removed([KeptCheckpoint(400, later)] * 2) == [0, 200]
    of_a_later_life = FIRST_SEGMENT._replace(groups={1: GroupContents(3, 1)})
    assert removed([KeptCheckpoint(400, later)] * 2, (of_a_later_life,)) == []


def test_a_truncation_stays_while_entries_before_it_look_like_the_raft_log():
    """Entries up to 40 stood in the first segment, and the second truncated those from 12 on."""
    first = FIRST_SEGMENT._replace(groups={1: GroupContents(1, 40, 1, 1)})
    second = SECOND_SEGMENT._replace(groups={1: GroupContents(1, 20, 12, 12)})
    assert removed(segments=(first, second)) == []
    without = second._replace(groups={1: GroupContents(1, 20, 12)})
    assert removed(segments=(first, without)) == [200], "copies truncate nothing"
    others = [checkpoint(300, g1=41), checkpoint(400, g1=41)]
    assert removed(others, (first, second)) == [0, 200]
    assert removed(others, (first, second), [50]) == [200], "the terms tell what was truncated"


def test_damage_keeps_its_segment_and_the_record_that_explains_it():
    damaged = FIRST_SEGMENT._replace(is_intact=False)
    explaining = SECOND_SEGMENT._replace(explains=(50,))
    assert removed(segments=(damaged, explaining)) == []
    assert removed(segments=(FIRST_SEGMENT, explaining)) == [0, 200]


def test_a_summary_has_copies_and_what_they_explain():
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    entries = [open_entry(1, 1, 1, 7), data_entry(1, 2, 1, 7, 0, [b"a"])]
    Rounds(store).run(write(1, *entries))
    store.repair.record_damage(1, 2, "found by a read")
    position = store.table.logs[1].index.position(2)
    store.table.journal.start_segment()
    staged = store.repair.stage_copies(1, entries[1:], lambda: None)
    staged.execute()
    store.finish(staged)
    first, second = [SegmentContents.of(scan_segment(
        disk.read(segment.path)[:segment.end - segment.start], segment.start, segment.seed,
        None).index) for segment in store.table.journal.segments]
    assert first == (0, store.table.journal.segments[0].end, {1: GroupContents(1, 2, 1, 1)}, (),
                     True, 0)
    assert second.groups == {1: GroupContents(1, 2, 2)}
    assert second.begin == first.end
    assert second.explains == (position,)
    assert disk.read(FIRST)
