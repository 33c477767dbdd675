"""Members of groups, and records of removed replicas, across restarts.

Every story runs with a restart after each of its rounds and with checkpoints and sealed segments in
between: the recovered state must not depend on their places.
"""

from __future__ import annotations

import cbor2
import pytest

from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage import index_file
from multiraft.storage.checkpoint import GroupRecord
from multiraft.storage.errors import StaleIncarnation
from multiraft.storage.journal import segment_index
from multiraft.storage.uncopied_ranges import InstalledRange
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage import index_version_5
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

PARTITION = 11
JOINT = Configuration((1, 2, 4), (), (1, 2, 3))
LEFT = Configuration((1, 2, 4), (5,))
NOBODY = Configuration(())


def member_entry(index: int, configuration: Configuration, term: int = 1) -> Entry:
    return Entry(
        EntryKind.MEMBERSHIP, 1, 1, term, index, payload=joint_quorum.encode(configuration)
    )


def tombstone(vote_barrier_index: int, term: int = 3, vote: int = 2, incarnation: int = 0,
              vote_barrier_term: int = 0) -> GroupWrite:
    left = Tombstone(HardState(term, vote), vote_barrier_index, incarnation, vote_barrier_term)
    return GroupWrite(1, 1, 0, (), None, replica_records.tombstone(1, 1, left))


class Story:
    """A store that is restarted, checkpointed and sealed when the test says."""

    def __init__(self, disk, restarts: bool, checkpoints: bool):
        self.filesystem, self.directory = disk
        self.restarts, self.checkpoints = restarts, checkpoints
        self.sequence = 0
        self.store = None
        self.open()

    def open(self) -> None:
        self.store = open_store(self.filesystem, self.directory)
        assert self.store.damage == []
        self.rounds = Rounds(self.store)

    def restart(self) -> None:
        self.store.close()
        self.open()

    def run(self, *writes: GroupWrite) -> None:
        self.rounds.run(*writes)
        if self.checkpoints:
            seal(self.store)
            checkpoint(self.store)
        if self.restarts:
            self.restart()

    def apply(self, entries, upto: int) -> None:
        """The tail takes what a restart would replay, and applies it."""
        tail = self.store.partition_states[1]
        for entry in entries:
            if entry.index > tail.last_index:
                tail.append(entry)
        tail.apply(upto)


ways = pytest.mark.parametrize(("restarts", "checkpoints"), [
    (False, False), (True, False), (False, True), (True, True)])


@ways
def test_configurations_are_those_of_the_log(disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    story.store.create_group(1, 1, VOTERS)
    entries = [noop_entry(1, 1, 1), member_entry(2, JOINT), member_entry(3, LEFT)]
    for entry in entries:
        story.run(write(1, entry))
        story.store.create_group(1, 1, VOTERS)  # as each start of a node does
    story.restart()
    restored = story.store.create_group(1, 1, VOTERS)
    assert (restored.configuration_index, restored.configuration) == (0, VOTERS)
    assert restored.changes == ((2, JOINT), (3, LEFT))
    story.apply(entries, 2)
    story.run(write(1, drop_from=3))
    story.apply(entries[:2], 2)
    checkpoint(story.store)
    story.restart()
    restored = story.store.create_group(1, 1, VOTERS)
    assert (restored.configuration_index, restored.configuration) == (2, JOINT)
    assert restored.changes == ()


@ways
def test_a_tombstone_is_all_that_is_left_and_stays(disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    story.store.create_group(1, 1, VOTERS)
    story.store.create_group(2, 1, VOTERS)
    story.run(write(1, open_entry(1, 1, 1, PARTITION),
                    data_entry(1, 2, 1, PARTITION, 0, [b"gone"])),
              write(2, noop_entry(2, 1, 1)))
    story.run(write(1, hard_state=HardState(3, 2)))
    story.run(tombstone(vote_barrier_index=9))
    story.restart()
    assert sorted(story.store.groups) == [2]
    assert story.store.is_removed(1)
    assert story.store.tombstone(1) == (3, 0) and story.store.is_tombstone_durable(1)
    assert story.store.fetch(1, PARTITION, 0, 1 << 20, 1 << 30).next_offset == 0
    with pytest.raises(StaleIncarnation):
        story.store.create_group(1, 0, NOBODY)
    restored = story.store.create_group(1, 1, NOBODY)
    assert (restored.hard_state, restored.vote_barrier_index) == (HardState(3, 2), 9)
    assert (restored.bounds.last_index, restored.configuration) == (0, NOBODY)


@ways
def test_a_second_life_is_not_mixed_with_the_first(disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    story.store.create_group(1, 1, VOTERS)
    for index in range(1, 60):
        story.run(write(1, noop_entry(1, index, 1)))
    story.run(tombstone(vote_barrier_index=60))
    second = [open_entry(1, 1, 1, PARTITION), data_entry(1, 2, 1, PARTITION, 0, [b"new"]),
              member_entry(3, LEFT)]
    story.store.create_group(1, 1, NOBODY)
    for entry in second:
        story.run(write(1, entry))
    story.restart()
    restored = story.store.groups[1]
    assert restored.bounds.last_index == 3
    assert (restored.hard_state, restored.vote_barrier_index) == (HardState(3, 2), 60)
    assert (restored.configuration, restored.changes) == (NOBODY, ((3, LEFT),))
    assert story.store.partition_states[1].last_index == 3
    story.apply(second, 3)
    story.run(write(1, noop_entry(1, 4, 3)))
    story.apply([noop_entry(1, 4, 3)], 3)
    checkpoint(story.store, {1: 3})
    story.run(write(1, noop_entry(1, 5, 3)))
    story.restart()
    restored = story.store.groups[1]
    assert (restored.bounds.last_index, restored.applied) == (5, 3)
    assert (restored.configuration_index, restored.configuration) == (3, LEFT)
    assert story.store.fetch(1, PARTITION, 0, 1 << 20, 1 << 30).next_offset == 1


@ways
def test_the_place_up_to_which_a_replica_is_barred_stays(disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    story.store.create_group(1, 1, VOTERS)
    story.run(write(1, noop_entry(1, 1, 2)))
    story.run(tombstone(vote_barrier_index=9, vote_barrier_term=2))
    story.store.create_group(1, 1, NOBODY)
    for entry in (noop_entry(1, 1, 1), noop_entry(1, 2, 5)):
        story.run(write(1, entry))
    story.restart()
    restored = story.store.groups[1]
    assert (restored.vote_barrier_term, restored.vote_barrier_index) == (2, 9)
    forced_recovery = replica_records.reincarnation(1, 1, 7, ForcedRecovery(2, NOBODY), 6)
    story.run(GroupWrite(1, 1, 0, (), HardState(6, 0), forced_recovery))
    story.run(write(1, noop_entry(1, 3, 6)))
    story.restart()
    restored = story.store.groups[1]
    assert (restored.incarnation, restored.vote_barrier_term, restored.vote_barrier_index) == (
        2,
        6,
        7,
    )
    story.run(tombstone(vote_barrier_index=8, incarnation=2, vote_barrier_term=6))
    story.restart()
    restored = story.store.create_group(1, 1, NOBODY)
    assert (restored.incarnation, restored.vote_barrier_term, restored.vote_barrier_index) == (
        2,
        6,
        8,
    )


def test_a_record_of_the_version_before_knows_the_index_of_a_bar_alone():
    tail = PartitionStates(1).snapshot()
    record = GroupRecord(
        1, 1, VOTERS, HardState(3, 2), 1, 0, 0, "", tail, vote_barrier_index=9, vote_barrier_term=4
    )
    assert GroupRecord.decode(record.encode()) == record
    with_records = record._replace(first_index=5, record_terms=((1, 2), (4, 0)))
    assert GroupRecord.decode(with_records.encode()) == with_records
    for terms in (((0, 1),), ((1, 2), (1, 3)), ((1, 2), (5, 3))):
        with pytest.raises(ValueError):
            GroupRecord.decode(record._replace(first_index=5, record_terms=terms).encode())
    with_ranges = with_records._replace(first_index=9, uncopied=((5, 6), (8, 8)), installed=(
        InstalledRange(64, 2, 3, 64), InstalledRange(4096, 4, 8, 8192)))
    assert GroupRecord.decode(with_ranges.encode()) == with_ranges
    for wrong in ({"uncopied": ((0, 3),)}, {"uncopied": ((5, 6), (6, 7))}, {"uncopied": ((5, 4),)},
                  {"uncopied": ((5, 9),)}, {"installed": (InstalledRange(64, 2, 9, 64),)},
                  {"installed": with_ranges.installed[::-1]}, {"record_terms": ((6, 1),)}):
        with pytest.raises(ValueError):
            GroupRecord.decode(with_ranges._replace(**wrong).encode())
    before = cbor2.dumps(cbor2.loads(record.encode())[:-1])
    assert GroupRecord.decode(before) == record._replace(vote_barrier_term=0)


def test_a_record_of_a_group_has_no_more_fields_than_it_needs():
    tail = PartitionStates(1).snapshot()
    record = GroupRecord(1, 1, VOTERS, HardState(3, 2), 9, 0, 0, "", tail,
                         record_terms=((1, 2), (4, 0)))
    length = len(cbor2.loads(record.encode()))
    uncopied = record._replace(uncopied=((5, 6), (8, 8)))
    unneeded = record._replace(unneeded=((2, 3),))
    repaired = record._replace(repaired=((2, 3), (7, 12)), known_damage=5)
    alone = repaired._replace(record_terms=())
    for each, added in ((record, 0), (uncopied, 2), (unneeded, 3), (repaired, 4), (alone, 4)):
        assert len(cbor2.loads(each.encode())) == length + added
        assert GroupRecord.decode(each.encode()) == each
        # Checkpoints of builds before that had no such field.
        before = GroupRecord.decode(cbor2.dumps(cbor2.loads(each.encode())[:length + 3]))
        assert before == each._replace(repaired=(), known_damage=0)
    both = repaired._replace(unneeded=((2, 3),))
    for wrong in ({"repaired": ((3, 2),)}, {"repaired": ((0, 2),)}, {"repaired": ((2, 3), (3, 4))},
                  {"unneeded": ((3, 2),)}, {"uncopied": ((8, 9),)},
                  {"uncopied": ((2, 2),), "record_terms": ((3, 1),)}):
        with pytest.raises(ValueError):
            GroupRecord.decode(both._replace(**wrong).encode())


def test_an_index_of_the_version_before_knows_the_index_of_a_bar_alone():
    left = Tombstone(HardState(3, 2), 9, 1, 4)
    forced_recovery = ForcedRecovery(2, NOBODY)
    run = segment_index.SegmentRun(1, 1, tombstone=left, tombstone_position=64, removed=True,
                                   forced_recovery=forced_recovery, forced_recovery_at=(128, 9),
                                   forced_recovery_term=6)
    index = segment_index.SegmentIndex(0, 1, 256, 7, 0, 0, {1: run})
    assert index_file.decode_body("index", index_version_5.body(index)) == index
    fields = cbor2.loads(index_version_5.body(index))
    fields[-1] = [run[:-1] for run in fields[-1]]
    found = index_file.decode_body("index", cbor2.dumps(fields)).runs[1]
    assert found.tombstone == left._replace(vote_barrier_term=0)
    assert (found.forced_recovery, found.forced_recovery_at, found.forced_recovery_term) == (
        forced_recovery,
        (128, 9),
        0,
    )


def test_a_tombstone_that_is_not_durable_has_not_happened(disk):
    story = Story(disk, False, False)
    story.store.create_group(1, 1, VOTERS)
    entries = [noop_entry(1, 1, 1), noop_entry(1, 2, 1)]
    story.run(write(1, *entries))
    story.apply(entries, 2)
    checkpoint(story.store, {1: 2})
    assert story.store.is_tombstone_durable(1), "there is none"
    story.rounds.stage(tombstone(vote_barrier_index=9))
    assert story.store.is_removed(1) and not story.store.is_tombstone_durable(1)
    checkpoint(story.store)
    story.restart()
    restored = story.store.groups[1]
    assert (restored.bounds.last_index, restored.applied, restored.vote_barrier_index) == (2, 2, 0)


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("middle", [False, True])
@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("compacted", [False, True])
def test_a_checkpoint_has_a_replica_as_it_was_right_before_a_tombstone_that_is_not_durable(
        disk, compacted, sealed, middle, forced):
    """And not as the last checkpoint had it, or as one before an earlier tombstone."""
    story = Story(disk, False, False)
    store = story.store
    store.create_group(1, 1, VOTERS)
    first = [noop_entry(1, index, 1) for index in range(1, 11)]
    story.run(write(1, *first))
    story.apply(first, 10)
    for _ in range(2):
        checkpoint(store, {1: 10})
    if compacted:
        story.run(write(1, hard_state=HardState(2, 1)))
        checkpoint(store, {1: 10})
        store.compact(1, store.raft_start_max(1))
        checkpoint(store, {1: 10})
    if sealed:
        seal(store)
    story.run(tombstone(vote_barrier_index=0))
    if middle:
        checkpoint(store)
    store.create_group(1, 1, NOBODY)
    story.run(write(1, open_entry(1, 1, 3, PARTITION),
                    data_entry(1, 2, 3, PARTITION, 0, [b"new"]), noop_entry(1, 3, 3)))
    if forced:
        story.run(GroupWrite(1, 1, 0, (), HardState(5, 0), replica_records.reincarnation(
            1, 1, 3, ForcedRecovery(7, Configuration((1,))))))
    if sealed:
        seal(store)
    story.rounds.stage(tombstone(vote_barrier_index=0, term=4))
    checkpoint(store)
    story.restart()
    restored = story.store.groups[1]
    assert restored.bounds.last_index == 3 and restored.incarnation == (7 if forced else 0)
    assert story.store.partition_states[1].last_index == 3 and not story.store.damage


def test_a_checkpoint_has_the_first_of_two_replicas_whose_tombstones_are_not_durable(disk):
    story = Story(disk, False, False)
    store = story.store
    store.create_group(1, 1, VOTERS)
    entries = [noop_entry(1, index, 1) for index in range(1, 4)]
    story.run(write(1, *entries))
    story.apply(entries, 3)
    story.rounds.stage(tombstone(vote_barrier_index=0))
    store.create_group(1, 1, NOBODY)
    story.rounds.stage(write(1, noop_entry(1, 1, 3)))
    story.rounds.stage(tombstone(vote_barrier_index=0, term=4))
    checkpoint(store)
    story.restart()
    restored = story.store.groups[1]
    assert (restored.bounds.last_index, restored.applied) == (3, 3)


@ways
def test_a_log_goes_on_in_a_new_incarnation_of_its_group(disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    story.store.create_group(1, 1, VOTERS)
    alone = Configuration((1,))
    story.run(write(1, noop_entry(1, 1, 1), member_entry(2, LEFT)))
    mark = replica_records.reincarnation(1, 1, 2, ForcedRecovery(7, alone))
    story.run(GroupWrite(1, 1, 0, (), HardState(5, 0), mark))
    story.run(write(1, noop_entry(1, 3, 5), member_entry(4, VOTERS, term=5)))
    story.restart()
    restored = story.store.create_group(1, 1, VOTERS)
    assert (restored.incarnation, restored.bounds.last_index) == (7, 4)
    assert (restored.configuration_index, restored.configuration) == (2, alone)
    assert restored.changes == ((4, VOTERS),)
    assert restored.hard_state == HardState(5, 0)


@ways
def test_an_empty_replica_that_joins_a_later_incarnation_remembers_how_far_it_is_barred(
        disk, restarts, checkpoints):
    story = Story(disk, restarts, checkpoints)
    nobody = Configuration(())
    story.store.create_group(1, 1, nobody)
    mark = replica_records.reincarnation(1, 1, 20, ForcedRecovery(7, nobody))
    story.run(GroupWrite(1, 1, 0, (), HardState(5, 0), mark))
    story.run(write(1, noop_entry(1, 1, 1), member_entry(2, VOTERS)))
    story.restart()
    restored = story.store.create_group(1, 1, VOTERS)
    assert (restored.incarnation, restored.vote_barrier_index) == (7, 20)
    assert (restored.configuration_index, restored.configuration) == (0, nobody)
    assert restored.changes == ((2, VOTERS),)
