"""Segments that nothing needs go, in steps that each survive a crash, and are never missed."""

from __future__ import annotations

import contextlib
import errno
import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.errors import Compacted
from multiraft.storage import file_removal, inspect, removed_ranges, segment_removal
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import OffsetTooLow, SegmentRemoved
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.journal.journal import index_path
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.segment_seal import SealJob
from tests.storage.damage import DIRECTORY, LANE
from tests.storage.test_raft_start import (
    ENTRIES,
    GROUP,
    OTHER,
    PARTITION,
    SECOND,
    append,
    checkpoints,
    log_start,
    payloads,
    put,
    read,
)
from tests.storage.world import (
    SMALL,
    VOTERS,
    Rounds,
    checkpoint,
    noop_entry,
    open_store,
    records,
    seal,
    write,
)

#: Indexes of the group's entries in each segment.
SEGMENTS = [(1, 2, 3), (4, 5), (6,), (7, 8), (9,)]


def filled(filesystem, directory: str = DIRECTORY):
    """A store with the entries in five segments, all applied; the first batch of the second
    partition, alone in its segment, is below the log start."""
    store = open_store(filesystem, directory)
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    for indexes in SEGMENTS:
        for index in indexes:
            append(store, ENTRIES[index - 1])
        store.table.journal.start_segment()
    append(store, log_start(10, SECOND, 1))
    seal(store)
    return store


def compacted(filesystem, directory: str = DIRECTORY):
    """A store whose Raft start is behind everything, in both kept checkpoints."""
    store = filled(filesystem, directory)
    checkpoints(store)
    store.compact(GROUP, 11)
    checkpoints(store)
    store.table.logs[GROUP].cached.clear()
    return store


def remove(store) -> int:
    """Every step that is due; how many segments' files went."""
    count = 0
    while True:
        job = store.removal_job()
        if job is not None:
            job.execute()
            while job.has_blocks:
                job.free()
            store.removed(job)
            count += len(job.segments)
        elif not store.is_examining:
            return count


def without_middle(filesystem, directory: str = DIRECTORY):
    """A store from which the segments with nothing but dropped entries are gone."""
    store = compacted(filesystem, directory)
    assert not remove(store)
    checkpoints(store)
    assert remove(store)
    return store


def names(filesystem, directory: str = DIRECTORY) -> list[int]:
    return [int(name[:20]) for name in filesystem.list(f"{directory}/lane-0")
            if name.endswith(".segment")]


def starts(store) -> list[int]:
    return [segment.start for segment in store.table.journal.segments]


def check(store) -> None:
    """Nothing is missing, and every record is read."""
    assert not store.damage and not store.strays
    log = store.table.logs[GROUP]
    log._check()
    assert not log.quarantined and log.index.last_index == 10
    assert not log.records.missing
    assert [*records(store, GROUP)] == [
        index for index in (3, 6, 7, 8) if index < log.raft_start]
    assert read(store, PARTITION, 0) == (payloads(3, 6, 7), 5)
    assert read(store, SECOND, 1) == (payloads(8), 2)
    with pytest.raises(OffsetTooLow):
        store.fetch(GROUP, SECOND, 0, 1 << 20, 2)


def reopened(store, filesystem, directory: str = DIRECTORY):
    store.close()
    return open_store(filesystem, directory)


def test_a_segment_goes_when_both_kept_checkpoints_name_it(disk):
    filesystem, directory = disk
    store = compacted(filesystem, directory)
    before = names(filesystem, directory)
    assert not remove(store)
    second, fifth = before[1], before[4]
    assert starts(store) == [start for start in before if start not in (second, fifth)]
    checkpoints(store, 1)
    assert not remove(store) and names(filesystem, directory) == before
    checkpoints(store, 1)
    assert remove(store) == 2
    assert names(filesystem, directory) == [*before[:1], *before[2:4], *before[5:]]
    check(store)
    for _ in range(3):
        store = reopened(store, filesystem, directory)
        check(store)
        assert len(store.table.journal.removed.ranges) == 2
        checkpoints(store)


def test_the_front_of_the_journal_needs_no_range(simulated):
    store = without_middle(simulated)
    append(store, log_start(11, PARTITION, 2))
    store.trim(GROUP, [PARTITION])
    checkpoints(store)
    remove(store)
    assert store.table.journal.removed.journal_start == starts(store)[0]
    checkpoints(store)
    assert remove(store) == 1
    assert names(simulated) == starts(store)
    for _ in range(2):
        assert not store.damage
        assert read(store, PARTITION, 2) == (payloads(6, 7), 5)
        assert len(store.table.journal.removed.ranges) == 1
        store = reopened(store, simulated)


def test_a_log_without_an_entry_left_continues(simulated):
    store = without_middle(simulated)
    append(store, log_start(11, PARTITION, 5))
    append(store, log_start(12, SECOND, 2))
    checkpoints(store)
    store.table.journal.start_segment()
    Rounds(store).run(write(OTHER))
    store.compact(GROUP, 13)
    checkpoints(store)
    seal(store)
    for _ in range(3):
        remove(store)
        checkpoints(store)
    remove(store)
    assert not store.table.journal.removed.ranges and len(names(simulated)) == 1
    store = reopened(store, simulated)
    assert not store.damage and store.groups[GROUP].bounds == (13, 2, 12)


def test_enough_trimmed_records_have_the_segments_examined_without_a_checkpoint(simulated):
    store = without_middle(simulated)
    append(store, log_start(11, PARTITION, 2))
    checkpoints(store)
    remove(store)
    before = starts(store)
    store.trim(GROUP, [PARTITION])
    assert 0 < store.trimmed_bytes < SMALL.segment_bytes_max // 2
    remove(store)
    assert starts(store) == before, "it is too little"
    store.examine_again()
    assert not remove(store) and starts(store) == before[1:]
    assert store.unnamed_bytes > 0
    append(store, log_start(12, PARTITION, 5))
    store._removal._trimmed_bytes_max = 1
    store.trim(GROUP, [PARTITION])
    assert not remove(store) and starts(store) == before[2:]
    store.require_checkpoints()
    checkpoint(store, {GROUP: 12})
    assert not store.unnamed_bytes and remove(store) == 2
    store.examine_again()
    store.trim(GROUP, [PARTITION])
    store.examine_again()
    assert not remove(store) and not store.is_examining, "nothing left a record store"


def test_a_start_says_what_a_checkpoint_would_be_worth(simulated):
    """It removes nothing before: it does not know the checkpoint before the newest."""
    store = compacted(simulated)
    expected = sum(store._removal._contents[start].end - start
                   for start in (starts(store)[1], starts(store)[4]))
    store = reopened(store, simulated)
    before = starts(store)
    assert not store.unnamed_bytes
    assert not remove(store) and starts(store) == before
    assert store.unnamed_bytes == expected and not store.checkpoint_due
    written = 0
    while store.unnamed_bytes:
        store.require_checkpoints()
        assert store.checkpoint_due
        checkpoint(store, {GROUP: 10})
        written += 1
        remove(store)
    assert written == 2, "the first to know all kept ones, the second to name the segments"
    assert len(names(simulated)) == len(before) - 2
    check(store)


def test_files_are_measured_when_they_go(simulated):
    store = compacted(simulated)
    for _ in range(2):
        assert not remove(store)
        checkpoints(store, 1)
    job = store.removal_job()
    expected = sum(simulated.size(path) for segment in job.segments
                   for path in (segment.path, index_path(segment)))
    job.execute()
    assert job.bytes == expected > 0
    store.removed(job)


def test_a_segment_whose_index_found_no_space_is_sealed_later(simulated):
    """Until then it stays, and those behind it."""
    store = filled(simulated)
    store.table.journal.start_segment()
    Rounds(store).run(write(OTHER))
    job = store.seal_job()
    assert job is not None and store.seal_job() is None
    store.seal_failed(job)
    again = store.seal_job()
    assert again.segment is job.segment
    again.execute()
    store.sealed(again)
    assert job.segment.start in store._removal._contents


def opened(filesystem):
    """A start that may have found the newest checkpoint damaged."""
    store = open_store(filesystem, DIRECTORY)
    store.damage[:] = [each for each in store.damage if each.kind != "checkpoint"]
    return store


@pytest.mark.parametrize("oldest", [False, True])
def test_power_loss_at_every_operation_leaves_a_start_that_works(oldest, monkeypatch):
    """Also from the older checkpoint, and a second time."""
    monkeypatch.setattr(file_removal, "SLICE_BYTES", 200)
    over, limit = False, 0
    while not over:
        filesystem = SimulatedFilesystem()
        store = compacted(filesystem)
        filesystem.operations_to_crash = limit
        try:
            for _ in range(3):
                remove(store)
                checkpoints(store, 1)
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
            remove(store)
            filesystem.power_loss(random.Random(limit))
        store = opened(filesystem)
        for _ in range(4):
            checkpoints(store, 1)
            if store.raft_start_max(GROUP) > 10:
                store.compact(GROUP, 11)
            remove(store)
        check(store)
        assert names(filesystem) == starts(store)
        limit += 1
    assert limit > 10


def test_leftover_files_are_not_read_and_go(simulated):
    store = without_middle(simulated)
    other = SimulatedFilesystem()
    kept = compacted(other)
    gone = sorted(set(names(other)) - set(starts(store)))
    store.close()
    assert len(gone) == 2
    for start, ending in [(gone[0], "segment"), (gone[0], "index"), (gone[1], "index")]:
        path = f"{LANE}/{start:020d}.{ending}"
        simulated.create(path).write([other.image(path)], 0, True)
    simulated.sync_directory(LANE)
    simulated.flip(f"{LANE}/{gone[0]:020d}.segment", 200, 1)
    store = open_store(simulated, DIRECTORY)
    check(store)
    assert not remove(store), "the checkpoint before the newest was not read"
    checkpoints(store, 1)
    assert remove(store) == 2
    assert names(simulated) == starts(store)
    kept.close()


def test_a_file_in_a_removed_part_that_is_no_segment_is_a_stray(simulated):
    store = without_middle(simulated)
    begin, _ = store.table.journal.removed.ranges[0]
    store.close()
    path = f"{LANE}/{begin + 8:020d}.segment"
    simulated.create(path).write([b"another program's"], 0, True)
    store = open_store(simulated, DIRECTORY)
    assert [stray.path for stray in store.strays] == [path] and not store.damage
    checkpoints(store)
    remove(store)
    assert simulated.exists(path)


def test_bytes_missing_beside_a_removed_range_are_damage(simulated):
    for at, cut in ((0, True), (2, False)):
        filesystem = SimulatedFilesystem()
        store = without_middle(filesystem)
        segment = store.table.journal.segments[0 if cut else 1]
        store.close()
        filesystem.remove(segment.path.replace(".segment", ".index"))
        if cut:  # the last entry of the segment before the range
            filesystem.overwrite(segment.path, segment.end - segment.start - 8, bytes(8))
            filesystem.open(segment.path).truncate(records(store, GROUP)[3].position
                                                   - segment.start)
        else:  # the segment behind it
            filesystem.remove(segment.path)
        store = open_store(filesystem, DIRECTORY)
        assert [each.kind for each in store.damage] == ["missing"], at
        assert store.groups[GROUP].quarantined
        assert store.table.logs[GROUP].records.missing


def test_an_index_that_may_have_been_lost_beside_a_removed_range_is_missing(simulated):
    """Index 4 and 5 stood in the removed segment, or in the damaged place behind."""
    store = without_middle(simulated)
    segment = store.table.journal.segments[1]
    place = records(store, GROUP)[6]
    store.close()
    simulated.remove(segment.path.replace(".segment", ".index"))
    simulated.overwrite(segment.path, place.position - segment.start + 20, b"\xff")
    store = open_store(simulated, DIRECTORY)
    log = store.table.logs[GROUP]
    assert 6 in log.records.missing
    assert read(store, PARTITION, 0, 2) == (payloads(3), 2)
    assert read(store, SECOND, 1) == (payloads(8), 2)


def damaged_behind_removed(filesystem):
    """A store whose indexes 4 and 5 stood in a removed segment, as peers have answered, and 6 in a
    damaged place behind it.  All replicas have cleared the damage, and the checkpoints name 6."""
    store = without_middle(filesystem)
    segment, place = store.table.journal.segments[1], records(store, GROUP)[6]
    store.close()
    filesystem.remove(segment.path.replace(".segment", ".index"))
    filesystem.overwrite(segment.path, place.position - segment.start + 20, b"\xff")
    store = open_store(filesystem, DIRECTORY)
    assert missing(store) == [4, 5, 6]
    store.repair.forget_holes(GROUP, [4, 5])
    for group in (GROUP, OTHER):
        put(store, store.repair.stage_clear(group, lambda: None))
    checkpoints(store)
    store.close()
    return open_store(filesystem, DIRECTORY)


def missing(store) -> list[int]:
    return sorted(store.table.logs[GROUP].records.missing)


def test_indexes_without_records_stay_known_beside_cleared_damage(simulated):
    """Each start would have to ask peers again, and when all have such damage, none can answer."""
    store = damaged_behind_removed(simulated)
    assert missing(store) == [6]
    assert store.repair.quarantined(GROUP) is None


@pytest.mark.parametrize("is_header", [False, True])
def test_a_repaired_record_beside_cleared_damage_is_missed_when_its_copy_is_lost(
        simulated, is_header):
    """A damaged payload tells of which entry it is, a damaged header does not."""
    store = damaged_behind_removed(simulated)
    put(store, store.repair.stage_copies(GROUP, [ENTRIES[5]], lambda: None))
    assert not missing(store)
    place, segment = records(store, GROUP)[6], store.table.journal.segments[-1]
    checkpoints(store)
    store.close()
    simulated.flip(segment.path, place.position - segment.start + (20 if is_header else 100), 1)
    store = open_store(simulated, DIRECTORY)
    assert missing(store) == [6]


def test_checkpoints_name_indexes_without_records_as_long_as_a_start_would_miss_them(simulated):
    store = damaged_behind_removed(simulated)
    log = store.table.logs[GROUP]
    assert log.records.unneeded.ranges == ((4, 5),)
    put(store, store.repair.stage_copies(GROUP, [ENTRIES[5]], lambda: None))
    for partition, offset in ((PARTITION, 5), (SECOND, 2)):
        append(store, log_start(log.index.last_index + 1, partition, offset))
    store.trim(GROUP, [PARTITION, SECOND])
    assert not log.records
    checkpoints(store)
    assert not log.records.unneeded.ranges
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert not missing(store) and not store.table.logs[GROUP].records.unneeded.ranges


def test_a_truncation_in_a_removed_segment_is_not_forgotten(simulated):
    store = open_store(simulated, DIRECTORY)
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    for entry in ENTRIES[:4]:
        append(store, entry)
    states = store.partition_states[GROUP]
    wrong = noop_entry(GROUP, 5, 1)
    states.append(wrong)
    Rounds(store).run(write(GROUP, wrong))
    states.truncate(5)
    store.table.journal.start_segment()
    Rounds(store).run(write(GROUP, drop_from=5))
    append(store, ENTRIES[4])
    store.table.journal.start_segment()
    for entry in ENTRIES[5:9]:
        append(store, entry)
    seal(store)
    checkpoints(store)
    store.compact(GROUP, 10)
    for _ in range(4):
        checkpoints(store, 1)
        remove(store)
    assert len(names(simulated)) == 2
    for _ in range(2):
        store = reopened(store, simulated)
        log = store.table.logs[GROUP]
        log._check()
        assert not store.damage and not log.records.missing and not log.quarantined
        assert log.records.term(5) == 2
        assert read(store, PARTITION, 0) == (payloads(3, 6, 7), 5)
        checkpoints(store, 1)


def raise_full(_job):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("begun", [False, True])
def test_a_segment_that_goes_before_its_index_file_is_written_needs_none(
        simulated, begun, monkeypatch):
    """A start found it without one, and the disk was full."""
    store = compacted(simulated)
    store.close()
    for name in simulated.list(LANE):
        if name.endswith(".index"):
            simulated.remove(f"{LANE}/{name}")
    with monkeypatch.context() as full:
        full.setattr(SealJob, "execute", raise_full)
        store = open_store(simulated, DIRECTORY)
    assert store.seals_waiting == 5
    jobs = [store.seal_job() for _ in range(5)] if begun else []
    checkpoints(store)
    for _ in range(3):
        remove(store)
        checkpoints(store)
    assert names(simulated) == starts(store) and len(starts(store)) == 4
    for job in jobs:
        job.execute()
        store.sealed(job)
    assert not store.damage and (begun or seal(store) == 3)
    remove(store)
    assert not store.table.journal.leftovers
    check(store)
    check(reopened(store, simulated))


# ---- readers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_read_whose_segment_went_is_told_so_and_finds_no_damage(
        real, is_open, tmp_path, monkeypatch):
    """Also if it opened the file before, and meets its end early: blocks are freed in slices."""
    filesystem = RealFilesystem() if real else SimulatedFilesystem()
    known_remove = filesystem.remove

    def cut_off(path):
        if path.endswith(".segment"):
            filesystem.open(path).truncate(100)
        else:
            known_remove(path)

    directory = str(tmp_path / "node") if real else DIRECTORY
    store = filled(filesystem, directory)
    store.table.logs[GROUP].cached.clear()
    checkpoints(store)
    jobs = [store.read_job(GROUP, 4, 5), store.read_job(GROUP, 3, 5),
            store.verify_job(GROUP, SECOND, 0), store.fetch(GROUP, SECOND, 1, 1, 2).job]
    scrubber = Scrubber(store)
    while (piece := scrubber.next_job()) is not None:
        if getattr(piece, "position", 0) > store.table.journal.segments[1].start:
            break
        piece.execute()
        assert not scrubber.done(piece)
    store.compact(GROUP, 11)
    if is_open:
        monkeypatch.setattr(filesystem, "remove", cut_off)
    for _ in range(4):
        checkpoints(store, 1)
        remove(store)
    assert is_open == filesystem.exists(jobs[0].spans[0].path)
    for job in jobs[:3]:
        with pytest.raises(SegmentRemoved) as error:
            job.execute()
        assert isinstance(error.value, Compacted)
    with contextlib.suppress(SegmentRemoved):
        assert jobs[0].run_from_page_cache() is None and is_open
    assert jobs[3].execute() == payloads(8)
    piece.execute()
    assert not scrubber.done(piece)
    while (piece := scrubber.next_job()) is not None:
        piece.execute()
        assert not scrubber.done(piece)
    with pytest.raises(OffsetTooLow):
        store.fetch(GROUP, SECOND, 0, 1 << 20, 2)
    check(store)


def test_a_file_that_is_gone_without_a_reason_is_an_error_of_the_disk(simulated):
    store = filled(simulated)
    store.table.logs[GROUP].cached.clear()
    job = store.read_job(GROUP, 4, 5)
    simulated.remove(store.table.journal.segments[1].path)
    with pytest.raises(FileNotFoundError):
        job.execute()


# ---- limits and errors --------------------------------------------------------------------------


def test_with_too_many_ranges_removal_waits(simulated, monkeypatch):
    monkeypatch.setattr("multiraft.storage.journal.journal.REMOVED_RANGES_MAX", 1)
    store = compacted(simulated)
    assert removed_ranges.REMOVED_RANGES_MAX == 1 << 14
    remove(store)
    assert len(store.table.journal.removed.ranges) == 1 and store.removals_waiting == 1
    append(store, log_start(11, PARTITION, 2))
    store.trim(GROUP, [PARTITION])
    checkpoints(store)
    remove(store)
    assert len(store.table.journal.removed.ranges) == 1 and not store.removals_waiting
    checkpoints(store)
    remove(store)
    assert not store.damage and names(simulated) == starts(store)


def test_a_call_does_a_bounded_part_of_the_work(simulated, monkeypatch):
    monkeypatch.setattr(segment_removal, "SEGMENTS_EXAMINED_MAX", 1)
    monkeypatch.setattr(segment_removal, "FILES_PER_JOB", 1)
    store = compacted(simulated)
    calls = 0
    while store.removal_job() is None and (store.is_examining or not calls):
        calls += 1
    assert calls >= 4
    checkpoints(store)
    job = store.removal_job()
    assert job is not None and len(job.segments) == 1
    assert store.removal_job() is None, "one at a time"
    store.removal_failed()
    assert remove(store) == 2


def test_on_a_full_disk_nothing_goes_before_a_checkpoint_fits(simulated):
    store = compacted(simulated)
    before = names(simulated)
    remove(store)
    simulated.faults.capacity_bytes = simulated.faults.used_bytes
    Rounds(store).run(write(OTHER))
    job = store.checkpoint_job({}, None)
    with pytest.raises(OSError):
        job.execute()
    store.checkpoint_failed()
    assert not remove(store) and names(simulated) == before
    simulated.faults.capacity_bytes = 1 << 40
    store = reopened(store, simulated)
    check(store)
    for _ in range(4):
        checkpoints(store, 1)
        if store.raft_start_max(GROUP) > 10:
            store.compact(GROUP, 11)
        remove(store)
    check(store)
    assert len(names(simulated)) < len(before)


# ---- inspection ---------------------------------------------------------------------------------


def test_inspection_knows_removed_segments(tmp_path):
    filesystem, directory = RealFilesystem(), str(tmp_path / "node")
    store = compacted(filesystem, directory)
    remove(store)
    checkpoints(store)
    gone = sorted(set(names(filesystem, directory)) - set(starts(store)))
    found = inspect.strays_of(tmp_path / "node")
    assert {each.path.rpartition("/")[2] for each in found} == {
        f"{start:020d}.{ending}" for start in gone for ending in ("segment", "index")}
    assert remove(store) == 2
    assert not inspect.strays_of(tmp_path / "node")
    facts = [inspect.summary(kind, path).facts for kind, path in inspect.files_of(tmp_path / "node")
             if kind == inspect.CHECKPOINT]
    assert facts[-1]["removed"] == [list(each) for each in store.table.journal.removed.ranges]
    store.close()


# ---- values -------------------------------------------------------------------------------------


def test_ranges_are_merged_with_their_neighbours_and_the_front():
    ranges = RemovedRanges().with_segment(90, 190, 0, 200).with_segment(390, 490, 300, 500)
    assert ranges == (0, ((90, 190), (390, 490)))
    assert ranges.with_segment(490, 590, 300, 600) == (0, ((90, 190), (390, 590)))
    assert ranges.with_segment(290, 390, 200, 500) == (0, ((90, 190), (290, 490)))
    assert ranges.with_segment(0, 90, None, 200) == (200, ((390, 490),))
    assert [ranges.covers(start) for start in (0, 90, 100, 190, 200, 400)] == [
        False, True, True, False, False, True]
    assert ranges.behind(0) == (90, 190) and ranges.behind(200, 300) is None
    assert RemovedRanges(200).is_within(-1, 300) and not RemovedRanges(200).is_within(0, 300)
