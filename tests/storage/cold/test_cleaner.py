"""Records are copied out of segments, which go; at each step each record is there exactly once."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft import core
from multiraft.errors import Compacted
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.cold import cleaner
from multiraft.storage.cold.cleaning_policy import SegmentFacts, Sources
from multiraft.storage.cold.cold_segment import cold_index_path, cold_path, is_cold
from multiraft.storage.errors import CorruptRange, RecordsNotCopied, SegmentRemoved
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.record_store import EntryPlace
from multiraft.storage.recovery import cold_records
from multiraft.storage.repair.scrub import Scrubber, ScrubCheckpointsJob
from multiraft.types import HardState
from tests.storage.damage import DIRECTORY
from tests.storage.test_raft_start import (
    ENTRIES,
    GROUP,
    PARTITION,
    SECOND,
    append,
    checkpoints,
    log_start,
    payloads,
    position,
    read,
)
from tests.storage.test_segment_removal import (
    check,
    compacted,
    names,
    opened,
    remove,
    reopened,
    starts,
)
from tests.storage.world import (
    VOTERS,
    Rounds,
    data_entry,
    noop_entry,
    open_store,
    seal,
    write,
)

COLD = f"{DIRECTORY}/cold-0"
RECORDS = (3, 6, 7, 8)


def worked(store) -> None:
    """All work of the cleaner on the loop that is due, and the removal of its files."""
    while store.cleaner.work():
        pass
    while (job := store.cleaner.removal_job()) is not None:
        job.execute()
        store.cleaner.removed(job)


def all_sources(store) -> Sources:
    """Every segment of the last pass with a record."""
    return Sources(tuple(each for each in store.cleaner._facts if each.records))


def executed(store, job):
    """A survey of records in an index file, executed."""
    job.read()
    for _ in store.cleaner.take_bounds(job):
        pass
    job.select()
    return job


def surveyed(store, sources: Sources) -> list:
    """The surveys that a copy of ``sources`` needs."""
    return [executed(store, job) for job in store.cleaner.surveys(sources)]


def copied(store, sources: Sources | None = None):
    """A cold segment with the records of all segments that may be copied; None = there are none.
    """
    sources = all_sources(store) if sources is None else sources
    job = store.cleaner.copy_job(sources, surveyed(store, sources))
    if job is None:
        return None
    while not job.is_done:
        job.step()
    assert not store.cleaner.copied(job)
    return job


def cleaned(filesystem, directory: str = DIRECTORY):
    """A store whose records are all in one cold segment, whose sources are gone."""
    store = compacted(filesystem, directory)
    checkpoints(store, 1)
    worked(store)
    assert copied(store).contents.records == len(RECORDS)
    for _ in range(2):
        checkpoints(store)
        worked(store)
        remove(store)
    return store


def place(store, index: int) -> EntryPlace | None:
    """A record's place in memory, or in the index file that answers for it; None = nowhere."""
    log, indexed = store.table.logs[GROUP], store.table.indexed
    if log.has(index):
        return log.locate(index)
    file = log.records.in_file(index)
    if file is None:
        return None
    found = indexed.reader(GROUP, {file.number}).whole(file.number)[GROUP].place(index)
    return EntryPlace(log.records.term(index), *found) if found is not None else None


def places(store) -> dict[int, int]:
    found = {index: place(store, index) for index in RECORDS}
    return {index: at.position for index, at in found.items() if at is not None}


def cold_files(filesystem, directory: str = COLD) -> list[str]:
    return filesystem.list(directory)


def test_sources_go_and_their_records_are_read_from_the_copies(disk):
    filesystem, directory = disk
    store = compacted(filesystem, directory)
    before = names(filesystem, directory)
    checkpoints(store, 1)
    worked(store)
    copied(store)
    assert not any(map(is_cold, places(store).values())), "no checkpoint names the copies"
    checkpoints(store, 1)
    worked(store)
    assert not any(map(is_cold, places(store).values())), "one checkpoint names them"
    checkpoints(store, 1)
    worked(store)
    assert all(map(is_cold, places(store).values()))
    assert not store.cleaner.waiting
    checkpoints(store, 1)
    remove(store)
    assert names(filesystem, directory)[:-1] == before[:-1][:len(names(filesystem, directory)) - 1]
    checkpoints(store)
    assert remove(store)
    check(store)
    assert names(filesystem, directory) == before[5:]
    for _ in range(3):
        store = reopened(store, filesystem, directory)
        check(store)
        assert all(map(is_cold, places(store).values()))
        checkpoints(store)
        worked(store)
        assert not remove(store)
    assert len(cold_files(filesystem, f"{directory}/cold-0")) == 2


@pytest.mark.parametrize("oldest", [False, True])
def test_power_loss_at_every_operation_leaves_a_start_that_works(oldest):
    """Also from the older checkpoint, and a second time."""
    over, limit, cold_starts = False, 0, 0
    while not over:
        filesystem = SimulatedFilesystem()
        store = compacted(filesystem)
        checkpoints(store, 1)
        worked(store)
        filesystem.operations_to_crash = limit
        try:
            copied(store)
            for _ in range(5):
                checkpoints(store, 1)
                worked(store)
                remove(store)
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        if oldest:
            newest = checkpoint_names(filesystem, DIRECTORY)[-1]
            filesystem.flip(f"{DIRECTORY}/{newest}", 40, 1)
        for _ in range(2):
            store = opened(filesystem)
            check(store)
            cold_starts += bool(len(store.table.journal.cold))
            worked(store)
            remove(store)
            filesystem.power_loss(random.Random(limit))
        store = opened(filesystem)
        for _ in range(5):
            checkpoints(store, 1)
            if store.raft_start_max(GROUP) > 10:
                store.compact(GROUP, 11)
            worked(store)
            remove(store)
        check(store)
        assert names(filesystem) == starts(store)
        assert len(cold_files(filesystem)) == 2 * len(store.table.journal.cold) <= 2
        limit += 1
    assert limit > 25 and cold_starts > 10


@pytest.mark.parametrize("oldest", [False, True])
def test_a_cold_segment_goes_when_its_last_record_is_not_needed(oldest):
    over, limit = False, 0
    while not over:
        filesystem = SimulatedFilesystem()
        store = cleaned(filesystem)
        append(store, log_start(11, PARTITION, 5))
        append(store, log_start(12, SECOND, 2))
        store.trim(GROUP, [PARTITION, SECOND])
        filesystem.operations_to_crash = limit
        try:
            for _ in range(5):
                checkpoints(store, 1)
                worked(store)
            assert not cold_files(filesystem) and not len(store.table.journal.cold)
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        if oldest:
            newest = checkpoint_names(filesystem, DIRECTORY)[-1]
            filesystem.flip(f"{DIRECTORY}/{newest}", 40, 1)
        for _ in range(2):
            store = opened(filesystem)
            filesystem.power_loss(random.Random(limit))
            assert not store.damage and not store.strays
            store.table.logs[GROUP]._check()
            assert not store.groups[GROUP].quarantined
        store = opened(filesystem)
        store.trim(GROUP, [PARTITION, SECOND])
        for _ in range(4):
            checkpoints(store, 1)
            worked(store)
        limit += 1
    assert limit > 5


def test_cold_segments_are_cleaned_as_well():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    append(store, log_start(11, PARTITION, 2))
    store.trim(GROUP, [PARTITION])
    checkpoints(store)
    worked(store)
    assert copied(store).contents.records == 3
    for _ in range(2):
        for _ in range(2):
            checkpoints(store)
            worked(store)
        assert [each.name.number for each in store.table.journal.cold] == [1]
        assert cold_files(filesystem) == [f"{1:020d}.cold", f"{1:020d}.cold-index"]
        assert read(store, PARTITION, 2) == (payloads(6, 7), 5)
        assert read(store, SECOND, 1) == (payloads(8), 2)
        store = reopened(store, filesystem)
    assert not store.damage


def test_a_number_is_not_given_again():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    append(store, log_start(11, PARTITION, 5))
    append(store, log_start(12, SECOND, 2))
    store.trim(GROUP, [PARTITION, SECOND])
    for _ in range(5):
        checkpoints(store, 1)
        worked(store)
    assert not cold_files(filesystem)
    store = reopened(store, filesystem)
    assert store.table.journal.cold.take_number() == 1


def test_sources_of_a_waiting_segment_are_not_copied_again():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    assert store.cleaner.choose(is_short=True).segments
    copied(store)
    checkpoints(store, 1)
    worked(store)
    assert not store.cleaner.choose(is_short=True).segments and store.cleaner.waiting == 1


def test_choices_are_not_repeated_before_something_changed(monkeypatch):
    """A node asks each second, also while it is idle."""
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    calls = []
    monkeypatch.setattr(cleaner, "next_sources", lambda *_: calls.append(1) or Sources(()))
    for is_short in (False, False, True, True):
        assert not store.cleaner.choose(is_short).segments
    assert len(calls) == 2
    checkpoints(store, 1)
    worked(store)
    store.cleaner.choose()
    assert len(calls) == 3


def test_choices_without_a_record_left_are_examined_again_by_the_next_pass():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    chosen = store.cleaner.choose(is_short=True)
    assert chosen.segments
    append(store, log_start(11, PARTITION, 5))
    append(store, log_start(12, SECOND, 2))
    store.trim(GROUP, [PARTITION, SECOND])
    assert store.cleaner.copy_job(chosen) is None
    assert not store.cleaner.choose(is_short=True).segments


def test_only_segments_below_the_raft_start_are_copied():
    store = compacted(SimulatedFilesystem())
    store.table.journal.start_segment()
    append(store, log_start(11, SECOND, 1))
    store.table.journal.start_segment()
    checkpoints(store, 1)
    seal(store)
    checkpoints(store, 1)
    worked(store)
    above = store.table.journal.segment_of(position(store, 11)).start
    assert [each.start for each in store.cleaner._facts] == [
        start for start in starts(store)[:-1] if start != above]


def test_entries_of_a_removed_replica_keep_no_segment():
    """They stand before its tombstone."""
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    other = 3
    store.create_group(other, 1, VOTERS)
    store.table.journal.start_segment()
    Rounds(store).run(write(other, noop_entry(other, 1, 1), noop_entry(other, 2, 1)))
    append(store, data_entry(GROUP, 11, 2, PARTITION, 5, [b"h"]))
    store.table.journal.start_segment()
    checkpoints(store)
    store.compact(GROUP, 12)
    seal(store)
    checkpoints(store)
    segment = store.table.journal.segment_of(position(store, 11)).start
    worked(store)
    assert segment not in [each.start for each in store.cleaner._facts]
    left = tombstone(other, 1, Tombstone(HardState(1, 0), 2, 1, 1))
    Rounds(store).run(GroupWrite(other, 1, 0, (), None, left))
    checkpoints(store)
    worked(store)
    assert segment in [each.start for each in store.cleaner._facts]


# ---- records that changed meanwhile --------------------------------------------------------------


def repaired(store, index: int) -> None:
    """The copy of a record, as a peer sends it."""
    staged = store.repair.stage_copies(GROUP, [ENTRIES[index - 1]], lambda: None)
    staged.execute()
    store.finish(staged)


def test_a_record_that_was_repaired_meanwhile_is_not_replaced_by_the_older_copy():
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    checkpoints(store, 1)
    worked(store)
    copied(store)
    assert store.repair.record_damage(GROUP, 6, "test")
    repaired(store, 6)
    at = places(store)[6]
    for _ in range(2):
        checkpoints(store)
        worked(store)
        remove(store)
        assert places(store)[6] == at and is_cold(places(store)[7])
        check(store)
    store = reopened(store, filesystem)
    assert places(store)[6] == at and is_cold(places(store)[7])
    check(store)


def test_a_record_that_is_lost_at_its_source_is_there_again_with_its_copy():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    copied(store)
    assert store.repair.record_damage(GROUP, 6, "test")
    checkpoints(store)
    worked(store)
    assert not store.table.logs[GROUP].records.missing
    check(store)


def test_a_record_that_cannot_be_read_keeps_its_source():
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    checkpoints(store, 1)
    worked(store)
    found = place(store, 6)
    segment = store.table.journal.file_of(found.position)
    filesystem.flip(segment.path, found.position - segment.start + 70, 1)
    job = store.cleaner.copy_job(all_sources(store))
    while not job.is_done:
        job.step()
    errors = store.cleaner.copied(job)
    assert [(each.group, each.index) for each in errors] == [(GROUP, 6)]
    assert job.contents.records == len(RECORDS) - 1
    for _ in range(3):
        checkpoints(store)
        worked(store)
        remove(store)
    assert segment in store.table.journal.segments
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 2)
    assert store.repair.record_damage(GROUP, 6, "test")
    worked(store)
    repaired(store, 6)
    for _ in range(3):
        checkpoints(store)
        worked(store)
        remove(store)
    assert segment not in store.table.journal.segments
    check(store)


def test_records_beyond_the_room_of_one_cold_segment_keep_their_source():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    store.cleaner._limits = type(store.cleaner._limits)(records_max=3)
    assert copied(store).contents.records == 2, "the third source has two, of which one would fit"
    for _ in range(3):
        checkpoints(store)
        worked(store)
        remove(store)
    assert len([at for at in places(store).values() if is_cold(at)]) == 2
    check(store)
    assert copied(store).contents.records == 2, "of the source"
    for _ in range(3):
        checkpoints(store)
        worked(store)
        remove(store)
    check(store)


def test_a_source_with_more_records_than_a_cold_segment_is_copied_in_parts():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    store.cleaner._limits = type(store.cleaner._limits)(records_max=1)
    found = set()
    for _ in range(8):
        for facts in store.cleaner._facts:
            if facts.records and not facts.is_cold:
                job = copied(store, Sources((facts,)))
                found |= {*job.contents.runs[GROUP].indexes}
                break
        for _ in range(3):
            checkpoints(store)
            worked(store)
            remove(store)
        check(store)
    assert found == {*RECORDS} and all(map(is_cold, places(store).values()))


def test_a_source_that_went_by_itself_is_not_missed():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    job = store.cleaner.copy_job(all_sources(store))
    append(store, log_start(11, PARTITION, 5))
    append(store, log_start(12, SECOND, 2))
    store.trim(GROUP, [PARTITION, SECOND])
    for _ in range(3):
        checkpoints(store)
        remove(store)
    while not job.is_done:
        job.step()
    assert job.written is None and not store.cleaner.copied(job)


@pytest.mark.parametrize("real", [False, True])
def test_a_read_whose_source_went_is_told_so_and_finds_the_copy(real, tmp_path):
    filesystem = RealFilesystem() if real else SimulatedFilesystem()
    directory = str(tmp_path / "node") if real else DIRECTORY
    store = compacted(filesystem, directory)
    fetch = store.fetch(GROUP, PARTITION, 2, 1, 1 << 40).job
    checkpoints(store, 1)
    worked(store)
    copied(store)
    for _ in range(3):
        checkpoints(store)
        worked(store)
        remove(store)
    with pytest.raises((SegmentRemoved, Compacted)):
        fetch.execute()
    check(store)


# ---- damage --------------------------------------------------------------------------------------


def damaged(filesystem, store, index: int, remove_index: bool) -> None:
    """Flip a byte of a record in the cold segment, whose index file may go as well."""
    found = place(store, index)
    segment = store.table.journal.file_of(found.position)
    filesystem.flip(segment.path, found.position - segment.start + 100, 1)
    if remove_index:
        filesystem.remove(cold_index_path(COLD, segment.name.number))


@pytest.mark.parametrize("remove_index", [False, True])
def test_a_damaged_copy_is_a_missing_record_and_repaired(remove_index):
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    damaged(filesystem, store, 6, remove_index)
    if remove_index:
        store = reopened(store, filesystem)
        assert {each.kind for each in store.damage} == {"cold"}
        store.damage.clear()
    with pytest.raises(CorruptRange) as error:
        read(store, PARTITION, 2)
    store.repair.record_damage(GROUP, 6, "test", error.value.position, error.value.size)
    assert store.repair.wanted_records(GROUP, 9) == ((6, 2),)
    assert read(store, PARTITION, 0) == (payloads(3), 2) and not store.groups[GROUP].quarantined
    checkpoints(store)
    store = reopened(store, filesystem)
    store.damage.clear()
    assert store.repair.wanted_records(GROUP, 9) == ((6, 2),), "a checkpoint names it"
    repaired(store, 6)
    check(store)
    for _ in range(2):
        store = reopened(store, filesystem)
        store.damage.clear()
        assert not is_cold(places(store)[6]), "the copy of a peer is newer"
        check(store)
        checkpoints(store)


def test_a_record_whose_identity_is_lost_as_well_becomes_a_hole():
    """Neither the index file nor the entry's header can be read."""
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    found = place(store, 6)
    segment = store.table.journal.file_of(found.position)
    filesystem.overwrite(segment.path, found.position - segment.start, bytes(40))
    filesystem.remove(cold_index_path(COLD, 0))
    store = reopened(store, filesystem)
    store.damage.clear()
    assert {index for index, _ in store.repair.wanted_records(GROUP, 9)} == {4, 5, 6}
    assert read(store, PARTITION, 0, 2) == (payloads(3), 2)
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 2)
    assert read(store, SECOND, 1) == (payloads(8), 2)
    store.repair.forget_holes(GROUP, [4, 5])
    repaired(store, 6)
    check(store)


def test_more_lost_indexes_than_holes_are_uncopied(monkeypatch):
    monkeypatch.setattr(cold_records, "HOLES_MAX", 3)
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    filesystem.remove(cold_path(COLD, 0))
    filesystem.remove(cold_index_path(COLD, 0))
    store = reopened(store, filesystem)
    records = store.table.logs[GROUP].records
    assert records.uncopied.ranges == ((3, 10),) and not records.is_complete
    store.table.logs[GROUP]._check()
    with pytest.raises((CorruptRange, RecordsNotCopied)):
        read(store, PARTITION, 0)
    checkpoints(store)
    store = reopened(store, filesystem)
    assert store.table.logs[GROUP].records.uncopied.ranges == ((3, 10),)


@pytest.mark.parametrize("with_index", [True, False])
def test_a_missing_cold_segment_loses_each_record_and_no_other(with_index):
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    filesystem.remove(cold_path(COLD, 0))
    if not with_index:
        filesystem.remove(cold_index_path(COLD, 0))
    store = reopened(store, filesystem)
    assert store.damage
    store.damage.clear()
    wanted = {index for index, _ in store.repair.wanted_records(GROUP, 99)}
    assert wanted >= set(RECORDS)
    store.repair.forget_holes(GROUP, [*wanted - set(RECORDS)])
    for index in RECORDS:
        repaired(store, index)
    store.table.logs[GROUP].cached.clear()
    check(store)
    store = reopened(store, filesystem)
    store.damage.clear()
    store.repair.forget_holes(GROUP, [*wanted - set(RECORDS)])
    check(store)


def test_a_copy_of_an_entry_of_another_term_is_no_record():
    """The entry of index 6 was another one once; its copy must not come back."""
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    checkpoints(store, 1)
    worked(store)
    log = store.table.logs[GROUP]
    found = log.locate(6)
    segment = store.table.journal.file_of(found.position)
    other = data_entry(GROUP, 6, 1, PARTITION, 2, [b"x"], 2000)
    framed = b"".join(core.frame_entries([other], 0, 0)[0])
    assert len(framed) == found.size
    filesystem.overwrite(segment.path, found.position - segment.start, framed)
    job = store.cleaner.copy_job(all_sources(store))
    while not job.is_done:
        job.step()
    assert [each.index for each in job.damaged] == [6]
    assert 6 not in job.contents.runs[GROUP].indexes


# ---- files ---------------------------------------------------------------------------------------


def test_files_that_no_checkpoint_names_go_and_others_are_strays():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    store.close()
    for name in (f"{5:020d}.cold", f"{6:020d}.cold-index", f"{7:020d}.cold.new", "notes.txt"):
        filesystem.create(f"{COLD}/{name}").write([b"other"], 0, True)
    filesystem.sync_directory(COLD)
    store = open_store(filesystem, DIRECTORY)
    assert [each.path for each in store.strays] == [f"{COLD}/notes.txt"]
    worked(store)
    checkpoints(store)
    worked(store)
    assert cold_files(filesystem) == [f"{0:020d}.cold", f"{0:020d}.cold-index", "notes.txt"]
    assert store.table.journal.cold.take_number() == 7
    store.strays.clear()
    check(store)


def test_a_full_disk_ends_the_copy_and_nothing_else():
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    checkpoints(store, 1)
    worked(store)
    job = store.cleaner.copy_job(all_sources(store))
    filesystem.faults.capacity_bytes = filesystem.faults.used_bytes
    with pytest.raises(OSError, match="no space"):
        while not job.is_done:
            job.step()
    job.abandon()
    store.cleaner.copy_failed(job)
    filesystem.faults.capacity_bytes = 1 << 60
    assert not cold_files(filesystem)
    check(store)
    assert copied(store).contents.records == len(RECORDS)


def test_choices_that_are_gone_are_left_out():
    store = compacted(SimulatedFilesystem())
    checkpoints(store, 1)
    worked(store)
    gone = SegmentFacts(12345, 4096, 100, 1, 0)
    assert store.cleaner.copy_job(Sources((gone,))) is None
    assert copied(store, Sources((gone, *all_sources(store).segments))) is not None


# ---- scrub ---------------------------------------------------------------------------------------


def scrubbed(store) -> list[tuple[int, int]]:
    """One pass of the scrub; the records that it reports."""
    scrubber, found = Scrubber(store), []
    while (job := scrubber.next_job()) is not None:
        job.execute()
        for error in scrubber.done(job):
            assert isinstance(error, CorruptRange) and error.group == GROUP
            found.append((error.group, error.index))
        assert 0 <= scrubber.scrubbed <= scrubber.total
    assert scrubber.passes == 1
    return found


@pytest.mark.parametrize("at", [20, 100])
def test_the_scrub_finds_damaged_copies(at):
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    assert not scrubbed(store)
    found = place(store, 6)
    segment = store.table.journal.file_of(found.position)
    filesystem.flip(segment.path, found.position - segment.start + at, 1)
    assert scrubbed(store) == [(GROUP, 6)]
    store.repair.record_damage(GROUP, 6, "found by the scrub", *found[1:])
    repaired(store, 6)
    assert not scrubbed(store), "a copy took its place"


def test_the_scrub_finds_what_a_shorter_file_lacks():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    segment = next(iter(store.table.journal.cold))
    filesystem.open(segment.path).truncate(places(store)[7] - segment.start + 8)
    filesystem.open(segment.path).sync()
    assert scrubbed(store) == [(GROUP, 7), (GROUP, 8)]
    filesystem.open(segment.path).truncate(0)
    filesystem.open(segment.path).sync()
    assert len(scrubbed(store)) == len(RECORDS)


def test_the_scrub_continues_in_a_cold_segment_after_a_restart():
    filesystem = SimulatedFilesystem()
    store = cleaned(filesystem)
    segment = next(iter(store.table.journal.cold))
    scrubber = Scrubber(store, places(store)[6])
    assert isinstance(scrubber.next_job(), ScrubCheckpointsJob)
    job = scrubber.next_job()
    assert job.segment is segment and job.position == places(store)[6]
    gone = Scrubber(store, segment.end + (1 << 40))
    gone.next_job()
    assert gone.next_job() is None
