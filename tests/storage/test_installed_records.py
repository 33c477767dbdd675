"""A snapshot in the place of a log with records: what is committed stays, the rest is copied."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.errors import Compacted
from multiraft.partitions.state import PartitionStates
from multiraft.raft import replica_records
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.ready import GroupWrite
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptRange, InvalidCopies, OffsetTooLow, RecordsNotCopied
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.repair.scrub import Scrubber
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, Disk
from tests.storage.repair.test_repair import Core
from tests.storage.test_raft_start import (
    ENTRIES,
    GROUP,
    OTHER,
    PARTITION,
    SECOND,
    append,
    checkpoints,
    compacted,
    filled,
    read,
    reopened,
)
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_store,
    seal,
    write,
)

#: Behind ``ENTRIES``; the last two are those of the leader's present term.
LATER = [
    data_entry(GROUP, 10, 2, SECOND, 2, [b"h", b"i"]),
    data_entry(GROUP, 11, 3, PARTITION, 5, [b"j"], 4000),
    noop_entry(GROUP, 12, 3),
    data_entry(GROUP, 13, 3, PARTITION, 6, [b"k"], 3500),
    data_entry(GROUP, 14, 3, SECOND, 4, [b"l"]),
]
ALL = [*ENTRIES, *LATER]
S = 13  # applied index of the snapshots


def batches(partition: int, *indexes: int) -> list[bytes]:
    return [bytes(ALL[index - 1].payload) for index in indexes]


def source(first_index: int = 9, entries=None):
    """A leader whose applied state is the snapshot's, with records below its Raft start."""
    return compacted(SimulatedFilesystem(), first_index, (ALL if entries is None else entries)[:S])


def follower(filesystem, own: int, raft_start: int = 1):
    """A follower that has so many entries, all applied, and checkpoints of them."""
    store = filled(filesystem, ALL[:own])
    checkpoints(store)
    if raft_start > 1:
        store.compact(GROUP, raft_start)
        checkpoints(store)
    return store


def image(leader) -> PartitionStates:
    return PartitionStates.restore(leader.partition_states[GROUP].snapshot())


def install(store, leader, committed: int, write_checkpoint: bool = True) -> None:
    states = image(leader)
    first_index, terms = leader.record_terms(GROUP)
    applied = states.applied_index
    bounds = LogBounds(applied + 1, leader.table.logs[GROUP].locate(applied).term
                       if applied >= leader.table.logs[GROUP].raft_start else terms[-1][1],
                       applied)
    store.install(GROUP, bounds, 0, VOTERS, states, terms=terms, first_index=first_index,
                  committed=committed)
    if write_checkpoint:
        checkpoint(store)


def copy(store, leader, bytes_max: int = 1, execute: bool = True) -> bool:
    """One answer of the leader, written; False if nothing is uncopied."""
    ranges = store.uncopied(GROUP)
    if not ranges:
        return False
    job = leader.records_job(GROUP, *ranges[0], bytes_max)
    staged = store.repair.stage_records(GROUP, job.execute(), job.first, job.through, job.lacking,
                                        lambda: None)
    if staged is not None and execute:
        staged.execute()
        store.finish(staged)
    return True


def copy_all(store, leader, bytes_max: int = 1) -> None:
    while copy(store, leader, bytes_max):
        store.table.logs[GROUP]._check()
    assert store.is_complete(GROUP)


def check_all(store, last: int = S) -> None:
    """Everything up to the snapshot is read."""
    log = store.table.logs[GROUP]
    log._check()
    log.cached.clear()  # a read is of memory, or of the disk
    assert read(store, PARTITION, 0) == (batches(PARTITION, 3, 6, 7, 11, 13), 7)
    assert read(store, PARTITION, 3) == (batches(PARTITION, 7, 11, 13), 7)
    second = (4, 8, 10) if last < 14 else (4, 8, 10, 14)
    assert read(store, SECOND, 0) == (batches(SECOND, *second), 4 + (last > S))
    assert [index for _, _, index, _ in store.batches(GROUP, PARTITION, 0, 9)] == [3, 6, 7, 11, 13]
    assert [log.partitions[PARTITION].latest(slot) for slot in range(5)] == [
        1000, 2000, 3000, 4000, 4000]
    assert store.first_at(GROUP, PARTITION, 3500, 0, 7) == 5


def check_partial(store, copied: int) -> None:
    """Reads of uncopied records are refused, and no others."""
    log = store.table.logs[GROUP]
    log._check()
    assert not log.quarantined and not log.missing and not log.records.missing
    for partition in (PARTITION, SECOND):
        for entry in ALL[:S]:
            if entry.batch and entry.partition == partition:
                if entry.index <= copied:
                    found, _ = read(store, partition, entry.base_offset,
                                    entry.base_offset + entry.batch.count)
                    assert found == [bytes(entry.payload)]
                else:
                    with pytest.raises(RecordsNotCopied):
                        read(store, partition, entry.base_offset)
    known = [index for _, _, index, _ in store.batches(GROUP, PARTITION, 0, 9)]
    assert known == [index for index in (3, 6, 7, 11, 13) if index <= copied]


# ---- install -------------------------------------------------------------------------------------


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("own, raft_start", [(0, 1), (5, 1), (7, 1), (7, 6), (9, 10)])
def test_committed_entries_stay_and_the_rest_is_copied(simulated, own, raft_start, sealed):
    leader = source()
    store = follower(simulated, own, raft_start)
    install(store, leader, own)
    for _ in range(2):
        log = store.table.logs[GROUP]
        assert log.bounds() == (S + 1, 3, S)
        assert store.uncopied(GROUP) == ((max(own + 1, 3), S),)
        assert not store.is_complete(GROUP)
        check_partial(store, own)
        with pytest.raises(Compacted):
            store.read_job(GROUP, 7, 7)
        if sealed:
            seal(store)
        store = reopened(store, simulated)
        assert not store.damage
    copy_all(store, leader)
    check_all(store)
    append(store, LATER[4])
    for _ in range(3):
        check_all(store, 14)
        checkpoints(store)
        if sealed:
            seal(store)
        store = reopened(store, simulated)
        assert store.groups[GROUP].bounds == (S + 1, 3, 14)
        assert not store.damage and store.is_complete(GROUP)
    checkpoints(store)
    store.compact(GROUP, 15)
    checkpoints(store)
    check_all(reopened(store, simulated), 14)


def test_entries_that_are_not_committed_are_no_records(simulated):
    """They were in the log of an earlier leader, and others are committed in their places."""
    leader = source()
    store = follower(simulated, 9)
    states = store.partition_states[GROUP]
    wrong = [data_entry(GROUP, 10, 2, PARTITION, 5, [b"never committed"]),
             *[noop_entry(GROUP, index, 2) for index in range(11, 18)]]
    for entry in wrong:
        states.append(entry)
        Rounds(store).run(write(GROUP, entry))
    install(store, leader, 9)
    for _ in range(2):
        check_partial(store, 9)
        assert store.uncopied(GROUP) == ((10, S),)
        store = reopened(store, simulated)
    copy_all(store, leader)
    for _ in range(2):
        check_all(store)
        checkpoints(store)
        store = reopened(store, simulated)


def test_without_the_checkpoint_nothing_happened(simulated):
    store = follower(simulated, 7)
    install(store, source(), 7, write_checkpoint=False)
    store = reopened(store, simulated)
    assert store.groups[GROUP].bounds == (1, 0, 7)
    assert store.is_complete(GROUP)


@pytest.mark.parametrize("which", [-1, 0], ids=["newest", "oldest"])
def test_a_damaged_checkpoint_takes_no_snapshot_with_it(simulated, which):
    store = follower(simulated, 7)
    install(store, source(), 7)
    store.close()
    for time in range(2):
        name = checkpoint_names(simulated, DIRECTORY)[which]
        simulated.flip(f"{DIRECTORY}/{name}", 40 + time, 1)
        store = open_store(simulated, DIRECTORY)
        assert store.groups[GROUP].bounds == (S + 1, 3, S)
        assert store.uncopied(GROUP) == ((8, S),)
        store.close()


def test_the_records_of_a_second_snapshot_are_those_of_both(simulated):
    """It comes while the records of the first one are still being copied."""
    first = compacted(SimulatedFilesystem(), 5, ALL[:7])
    store = follower(simulated, 3)
    install(store, first, 3)
    copy(store, first)
    assert store.uncopied(GROUP) == ((5, 7),)
    append(store, ALL[7])
    append(store, ALL[8])
    leader = source(10)
    install(store, leader, 8)
    for _ in range(3):
        assert store.uncopied(GROUP) == ((5, 7), (9, S))
        assert len(store.table.logs[GROUP].installed) == 2
        assert read(store, SECOND, 0, 2) == (batches(SECOND, 4, 8), 2), "its offsets continue"
        assert read(store, SECOND, 1, 2) == (batches(SECOND, 8), 2)
        store = reopened(store, simulated)
        assert not store.damage and not store.table.logs[GROUP].records.missing
    copy_all(store, leader)
    for _ in range(2):
        check_all(store)
        store = reopened(store, simulated)
        copy_all(store, leader)


def test_records_below_the_log_start_are_neither_kept_nor_copied(simulated):
    entries = [*ALL[:S - 1], Entry(EntryKind.LOG_START, GROUP, 1, 3, S, PARTITION, 3)]
    leader = source(9, entries)
    assert leader.record_terms(GROUP) == (4, ((4, 1), (5, 2), (11, 3)))
    store = follower(simulated, 6)
    install(store, leader, 6)
    for _ in range(2):
        with pytest.raises((OffsetTooLow, RecordsNotCopied)):
            store.fetch(GROUP, PARTITION, 2, 1 << 20, 5)
        log = store.table.logs[GROUP]
        assert [index for index in range(1, S) if index in log.records] == [4]
        store = reopened(store, simulated)
    copy_all(store, leader)
    for _ in range(2):
        assert [index for _, _, index, _ in store.batches(GROUP, PARTITION, 3, 9)] == [7, 11]
        store = reopened(store, simulated)


# ---- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("oldest", [False, True])
def test_power_loss_at_every_operation_leaves_all_or_nothing(oldest):
    """Of the snapshot; of the copies, as many as were durable, and the others are copied again."""
    leader, seen, over, limit = source(), set(), False, 0
    while not over:
        filesystem = SimulatedFilesystem()
        store = follower(filesystem, 5)
        filesystem.operations_to_crash = limit
        try:
            install(store, leader, 5)
            for _ in range(3):
                copy(store, leader)
                checkpoints(store, 1)
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        if oldest:
            newest = checkpoint_names(filesystem, DIRECTORY)[-1]
            filesystem.flip(f"{DIRECTORY}/{newest}", 40, 1)
        store = open_store(filesystem, DIRECTORY)
        assert not store.groups[GROUP].quarantined
        first = store.groups[GROUP].bounds.first_index
        seen.add((first, store.uncopied(GROUP)))
        if first == 1:
            assert store.groups[GROUP].bounds == (1, 0, 5) and store.is_complete(GROUP)
            states = store.partition_states[GROUP]
            states.apply(states.last_index)
            store.create_group(GROUP, 1, VOTERS)
            install(store, leader, 5)
        assert store.table.logs[GROUP].bounds() == (S + 1, 3, S)
        copy_all(store, leader)
        check_all(store)
        store = reopened(store, filesystem)
        copy_all(store, leader)
        check_all(store)
        limit += 1
    assert {first for first, _ in seen} == {1, S + 1}
    assert len(seen) >= 4, f"{seen}"


# ---- copies --------------------------------------------------------------------------------------


def halfway(filesystem, leader=None):
    """A store of which the records of a snapshot are uncopied from index 6 on."""
    store = follower(filesystem, 5)
    install(store, leader or source(), 5)
    return store


def test_a_range_shrinks_when_its_copies_are_durable(simulated):
    leader, store, seen = source(), halfway(simulated), []
    job = leader.records_job(GROUP, 6, S, 1)
    staged = store.repair.stage_records(GROUP, job.execute(), 6, job.through, (),
                                        lambda: seen.append(store.uncopied(GROUP)))
    staged.execute()
    assert store.uncopied(GROUP) == ((6, S),)
    with pytest.raises(RecordsNotCopied):
        read(store, PARTITION, 2)
    store.finish(staged)
    assert seen == [((7, S),)]
    assert read(store, PARTITION, 2, 3) == (batches(PARTITION, 6), 3)


def test_records_that_are_here_are_not_written_again(simulated):
    leader, store = source(), halfway(simulated)
    copy_all(store, leader)
    store = reopened(store, simulated)
    assert store.uncopied(GROUP) == ((6, S),), "no checkpoint knows it"
    position = store.table.journal.position
    copy_all(store, leader, 1 << 20)
    assert store.table.journal.position == position
    check_all(store)


def test_answers_come_from_any_member_in_any_order(simulated):
    leader, store = source(), halfway(simulated)
    for first, last in ((11, 12), (6, 6), (13, 13), (7, 10)):
        job = leader.records_job(GROUP, first, last, 1 << 20)
        assert (job.through, job.lacking) == (last, ())
        staged = store.repair.stage_records(GROUP, job.execute(), first, last, (), lambda: None)
        staged.execute()
        store.finish(staged)
        store.table.logs[GROUP]._check()
    assert store.is_complete(GROUP)
    check_all(store)


def test_an_answer_may_name_what_its_sender_lacks(simulated):
    """A single index is a hole then, a range of several is to be copied from another member."""
    leader, store = source(), halfway(simulated)
    half = halfway(SimulatedFilesystem(), leader)
    for first, last in ((6, 7), (12, S)):
        job = leader.records_job(GROUP, first, last, 1 << 20)
        staged = half.repair.stage_records(GROUP, job.execute(), first, last, (), lambda: None)
        staged.execute()
        half.finish(staged)
    half.repair.record_damage(GROUP, 7, "found by a read")
    job = half.records_job(GROUP, 6, S, 1 << 20)
    assert (job.first, job.through, job.lacking) == (6, S, ((7, 7), (8, 11)))
    assert [entry.index for entry in job.execute()] == [6, 13]
    staged = store.repair.stage_records(GROUP, job.execute(), 6, S, job.lacking, lambda: None)
    staged.execute()
    store.finish(staged)
    for _ in range(2):
        assert store.uncopied(GROUP) == ((8, 11),)
        assert [*store.table.logs[GROUP].records.missing] == [7]
        assert store.copied(GROUP) == (4, 1, 4)
        assert store.repair.wanted_records(GROUP, 8) == ((7, 2),)
        with pytest.raises(CorruptRange):
            read(store, PARTITION, 3)
        assert read(store, PARTITION, 6) == (batches(PARTITION, 13), 7)
        checkpoints(store)
        store = reopened(store, simulated)
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), lambda staged: None)
    assert repairer.groups == {GROUP}
    while copy(store, leader):
        pass
    staged = store.repair.stage_copies(GROUP, [ALL[6]], lambda: None)
    staged.execute()
    store.finish(staged)
    check_all(store)
    assert store.is_complete(GROUP)


def test_a_hole_that_a_copy_leaves_is_requested_from_any_member(simulated):
    store = halfway(simulated)
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), lambda staged: None)
    assert store.repair.stage_records(GROUP, [], 6, 6, [(6, 6)], lambda: None) is None
    assert not repairer.groups
    repairer.on_records_copied(GROUP)
    assert repairer.step(GROUP).request.wanted == ((6, 2),)


def test_a_member_does_not_call_an_uncopied_index_compacted(simulated):
    """Such an answer would end the search of a peer that has lost a record there."""
    store = halfway(simulated)
    wanted = [(2, 1), (6, 2), (7, 0), (S, 3)]
    assert store.repair.compacted(GROUP, wanted) == [(2, 1)]
    assert store.repair.absent(GROUP, wanted) == []
    assert store.repair.copy_jobs(GROUP, wanted, 1 << 20) == []


@pytest.mark.parametrize("entries, first, through, lacking", [
    ([6], 6, S + 1, ()),
    ([6], 0, 6, ()),
    ([6], 7, 6, ()),
    ([7, 6], 6, 7, ()),
    ([6, 6], 6, 7, ()),
    ([8], 6, 7, ()),
    ([6], 6, 9, ((7, 10),)),
    ([6], 6, 9, ((8, 8), (7, 7))),
    ([6], 6, 9, ((8, 7),)),
    ([9], 6, 9, ()),  # no batch
])
def test_an_answer_that_contradicts_itself_changes_nothing(simulated, entries, first, through,
                                                           lacking):
    store = halfway(simulated)
    given = [ALL[index - 1] for index in entries]
    with pytest.raises(InvalidCopies):
        store.repair.stage_records(GROUP, given, first, through, lacking, lambda: None)
    assert store.uncopied(GROUP) == ((6, S),)


def test_copies_of_other_terms_or_incarnations_are_refused(simulated):
    store = halfway(simulated)
    for wrong in (data_entry(GROUP, 6, 1, PARTITION, 2, [b"never committed"]),
                  data_entry(GROUP, 6, 2, PARTITION, 2, [b"d"], incarnation=2),
                  data_entry(OTHER, 6, 2, PARTITION, 2, [b"d"])):
        with pytest.raises(InvalidCopies):
            store.repair.stage_records(GROUP, [wrong], 6, 6, (), lambda: None)


def test_copies_that_a_later_snapshot_or_a_removal_overtakes_change_nothing(simulated):
    leader, store = source(10), halfway(simulated)
    entries = leader.records_job(GROUP, 6, S, 1 << 20).execute()
    staged = store.repair.stage_records(GROUP, entries, 6, S, (), lambda: None)
    append(leader, LATER[4])
    install(store, leader, S)
    staged.execute()
    store.finish(staged)
    assert store.uncopied(GROUP) == ((6, 14),)
    store = reopened(store, simulated)
    copy_all(store, leader)
    check_all(store, 14)
    entries = leader.records_job(GROUP, 6, 14, 1 << 20).execute()
    staged = store.repair.stage_records(GROUP, entries, 6, 14, [], lambda: None)
    assert staged is None


def test_the_last_segment_of_a_start_behind_a_snapshot_stays_until_another_one_follows(simulated):
    """The snapshot begins a segment that has no entry yet: the journal ends with the one before."""
    leader, store = source(), open_store(simulated, DIRECTORY)
    store.create_group(GROUP, 1, VOTERS)
    Rounds(store).run(write(GROUP, hard_state=HardState(1, 2)))
    install(store, leader, 0)
    store = reopened(store, simulated)
    (last,) = store.table.journal.segments
    assert last.end <= store.table.logs[GROUP].snapshot_position
    while store.removal_job() is not None or store.is_examining:
        assert store.table.journal.segments == [last]
    assert store.table.journal.sealed_from(0, 9) == []
    copy_all(store, leader)
    assert store.table.journal.sealed_from(0, 9) == [last]
    check_all(store)


@pytest.mark.parametrize("own", [0, 5])
def test_a_replica_that_was_removed_before_is_complete_after_a_start(simulated, own):
    """The segment of the tombstone stands before that of the copies."""
    leader, store = source(), follower(simulated, own)
    checkpoints(store)
    left = replica_records.tombstone(GROUP, 1, replica_records.Tombstone(HardState(1, 2), 1, 1))
    Rounds(store).run(GroupWrite(GROUP, 1, 0, (), None, left))
    store.create_group(GROUP, 1, VOTERS)
    seal(store)
    install(store, leader, 0)
    copy_all(store, leader)
    for _ in range(2):
        checkpoints(store)
        store = reopened(store, simulated)
        assert not store.damage and store.is_complete(GROUP)
        check_all(store)


def test_a_source_answers_with_records_and_applied_batches(simulated):
    leader = compacted(simulated, 9, ALL)
    leader.partition_states[GROUP] = PartitionStates.restore(
        source().partition_states[GROUP].snapshot())
    assert leader.records_job(GROUP, S + 1, 20, 1 << 20) is None, "not applied"
    found = []
    first = 1
    while (job := leader.records_job(GROUP, first, 20, 1)) is not None:
        found += job.execute()
        assert job.through >= first
        first = job.through + 1
    assert found == [entry for entry in ALL[:S] if entry.batch]
    whole = leader.records_job(GROUP, 1, 20, 1 << 20)
    assert whole.through == S and [*whole.execute()] == found


def test_an_answer_names_a_bounded_number_of_ranges(monkeypatch):
    monkeypatch.setattr("multiraft.storage.log_table.LACKING_MAX", 1)
    leader = source()
    for index in (4, 7):
        leader.repair.record_damage(GROUP, index, "found by a read")
    job = leader.records_job(GROUP, 1, S, 1 << 20)
    assert (job.through, job.lacking) == (6, ((4, 4),))
    assert [entry.index for entry in job.execute()] == [3, 6]
    leader.repair.record_damage(GROUP, 11, "found by a read")
    job = leader.records_job(GROUP, 10, S, 1 << 20)
    assert (job.through, job.lacking) == (S, ((11, 11),))
    assert [entry.index for entry in job.execute()] == [10, 13]


def test_with_too_many_installed_ranges_the_records_are_copied_anew(simulated, monkeypatch):
    monkeypatch.setattr("multiraft.storage.stored_log.INSTALLED_RANGES_MAX", 1)
    store = follower(simulated, 3)
    install(store, compacted(SimulatedFilesystem(), 5, ALL[:7]), 3)
    leader = source(10)
    install(store, leader, 7)
    for _ in range(2):
        assert store.uncopied(GROUP) == ((3, S),)
        assert len(store.table.logs[GROUP].installed) == 1
        check_partial(store, 2)
        store = reopened(store, simulated)
    copy_all(store, leader)
    check_all(store)


# ---- damage --------------------------------------------------------------------------------------


def started(disk: Disk, store):
    """A start that scans every segment."""
    store.close()
    for path in disk.files():
        if path.endswith(".index"):
            disk.filesystem.remove(path)
    return open_store(disk.filesystem, DIRECTORY)


def rot(disk: Disk, store, index: int, at: int) -> None:
    """A byte of an entry rots."""
    log = store.table.logs[GROUP]
    position = log.locate(index).position
    segment = store.table.journal.segment_of(position)
    disk.filesystem.flip(segment.path, position - segment.start + at, 1)


def copied(disk: Disk):
    """A store with all records of a snapshot, in its checkpoints."""
    store = halfway(disk.filesystem)
    copy_all(store, source())
    checkpoints(store)
    return store


def test_a_damaged_copy_is_a_missing_record_and_no_more():
    disk = Disk()
    store = copied(disk)
    rot(disk, store, 7, 64 + 64)
    for _ in range(2):
        store = started(disk, store)
        assert [(each.group, each.index) for each in store.damage] == [(GROUP, 7)]
        log = store.table.logs[GROUP]
        assert [*log.records.missing] == [7] and not log.quarantined
        assert not store.groups[OTHER].quarantined
        assert store.uncopied(GROUP) == ()
        with pytest.raises(CorruptRange):
            read(store, PARTITION, 3)
    staged = store.repair.stage_copies(GROUP, [ALL[6]], lambda: None)
    staged.execute()
    store.finish(staged)
    for _ in range(2):
        check_all(store)
        assert store.is_complete(GROUP)
        store = started(disk, store)


def test_damage_that_may_have_held_copies_makes_them_uncopied_once():
    disk = Disk()
    store = copied(disk)
    rot(disk, store, 7, 20)
    store = started(disk, store)
    assert store.groups[GROUP].quarantined, "it may have held anything"
    for _ in range(2):
        assert store.uncopied(GROUP) == ((6, S),)
        with pytest.raises((CorruptRange, RecordsNotCopied)):
            read(store, PARTITION, 3)
        store = started(disk, store)
    copy_all(store, source())
    check_all(store)
    checkpoints(store)
    for _ in range(2):
        store = started(disk, store)
        assert store.uncopied(GROUP) == ()
        check_all(store)


def mended(disk: Disk, store, leader=None):
    """A start that scans every segment, behind one whose uncopied records are copied again."""
    copy_all(store, leader or source())
    checkpoints(store)
    return started(disk, store)


def test_damage_that_arises_later_in_an_earlier_place_makes_copies_uncopied_too():
    disk = Disk()
    store = copied(disk)
    for index in (13, 7):  # the copy of 7 stands before the damage that is known by then
        rot(disk, store, index, 20)
        store = started(disk, store)
        assert store.uncopied(GROUP) == ((6, S),)
        store = mended(disk, store)
        for _ in range(2):
            assert store.uncopied(GROUP) == (), "the same damage is no news"
            check_all(store)
            checkpoints(store)
            store = started(disk, store)


def test_a_checkpoint_behind_the_scrub_does_not_hide_the_damage_that_it_found():
    """The next start cannot know that the scrub named all copies there."""
    disk = Disk()
    store = copied(disk)
    rot(disk, store, 13, 20)
    store = mended(disk, started(disk, store))
    rot(disk, store, 7, 20)
    scrubber, repairer = Scrubber(store), RepairCoordinator(
        1, store, Core({GROUP: VOTERS, OTHER: VOTERS}), lambda staged: None)
    while (job := scrubber.next_job()) is not None:
        job.execute()
        for error in scrubber.done(job):
            repairer.on_damage(error)
    assert [*store.table.logs[GROUP].records.missing] == [7]
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 3)
    checkpoints(store)
    store = started(disk, store)
    assert store.uncopied(GROUP) == ((6, S),)
    store = mended(disk, store)
    assert store.uncopied(GROUP) == ()
    check_all(store)


def test_copies_that_can_be_read_again_count_again():
    """A disk may return other bytes once.  The copies there are not written anew, so the same
    damage is news when it is met again; a smaller set of damage is as well, once."""
    disk = Disk()
    store = copied(disk)
    log, places = store.table.logs[GROUP], {}
    for index in (7, 13):
        position = log.locate(index).position
        segment = store.table.journal.segment_of(position)
        places[index] = segment.path, position - segment.start + 20, 1
    uncopied, nothing = ((6, S),), ()
    for turned, expected, is_copied in (
            ((7,), uncopied, False),
            ((7,), uncopied, True),  # it can be read: its copy is left out
            ((7,), uncopied, True),
            ((13,), uncopied, True),
            ((7,), uncopied, True),  # the damage of 13 is left
            ((), nothing, True)):
        for index in turned:
            disk.filesystem.flip(*places[index])
        store = started(disk, store)
        assert store.uncopied(GROUP) == expected
        if is_copied:
            copy_all(store, source())
            check_all(store)
        checkpoints(store)


def test_an_own_record_that_is_lost_is_missing():
    disk = Disk()
    store = copied(disk)
    rot(disk, store, 4, 20)
    store = started(disk, store)
    log = store.table.logs[GROUP]
    assert [*log.records.missing] == [4]
    assert store.uncopied(GROUP) == (), "its place is before the snapshot's"
    assert store.repair.wanted_records(GROUP, 8) == ((4, 1),)


def test_segments_go_that_hold_no_record_of_the_snapshot_s_log(simulated):
    """Those before it that hold entries which were not committed, among others."""
    store = follower(simulated, 6)
    states = store.partition_states[GROUP]
    store.table.journal.start_segment()
    for entry in [noop_entry(GROUP, index, 2) for index in range(7, 18)]:
        states.append(entry)
        Rounds(store).run(write(GROUP, entry))
    leader = source()
    install(store, leader, 6)
    copy_all(store, leader)
    store.table.journal.start_segment()
    append(store, LATER[4])
    seal(store)
    before = len(store.table.journal.segments)
    for _ in range(4):
        checkpoints(store, 1)
        while True:
            job = store.removal_job()
            if job is not None:
                job.execute()
                store.removed(job)
            elif not store.is_examining:
                break
    assert len(store.table.journal.segments) == before - 1
    for _ in range(2):
        check_all(store, 14)
        store = reopened(store, simulated)
        assert not store.damage and store.is_complete(GROUP)
