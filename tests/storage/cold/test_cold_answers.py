"""Records in cold segments leave memory: the index files of these answer for them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from chaos.simulator.disk.filesystem import PowerLoss
from multiraft.partitions.state import PartitionStates
from multiraft.raft.replica_records import Tombstone
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.cold.cleaning_policy import CleaningLimits, Sources
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.errors import CorruptIndexedSegment, CorruptJournalRange, CorruptRange
from multiraft.storage.io_jobs import RowCopyJob, RowRecordsJob
from multiraft.storage.journal.journal import index_path
from multiraft.storage.recovery import cold_records
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.repair.repair import ANY_COMMITTED
from multiraft.types import Configuration, HardState
from tests.storage.cold.test_cleaner import surveyed
from tests.storage.cold.test_cold_and_rows import (
    Cleaned,
    clean,
    cold_places,
    in_memory,
    released,
    sealed,
    source_rows,
    work,
)
from tests.storage.cold.test_cold_index import first_version_of
from tests.storage.damage import DIRECTORY
from tests.storage.repair.test_repair import Core
from tests.storage.test_indexed_records import (
    GROUPS,
    INDEX_DAMAGES,
    History,
    compacted,
    contents,
    flipped,
    partitions,
    put,
)
from tests.storage.world import VOTERS, open_store, records, seal

GROUP = GROUPS[0]


def cold_files(history: History) -> list:
    """The cold segments whose index files answer."""
    return [each for each in history.store.table.indexed._by_start.values()
            if is_cold(each.segment.start)]


def cleaned(step: int = 1) -> Cleaned:
    """Records of segments, or of each ``step``-th one, in a cold segment, the sources gone."""
    history = released()
    assert clean(history, 0, step)
    work(history)
    for _ in range(3):
        history.remove()
    history.forget_blocks()
    seal(history.store)
    assert cold_places(history) and not in_memory(history)
    return history


@pytest.mark.parametrize("step", [1, 2, 3])
def test_records_in_cold_segments_take_no_memory(step):
    history = cleaned(step)
    assert bool(source_rows(history)) == (step > 1)
    for group in GROUPS:
        ranges = history.store.table.logs[group].records._ranges
        assert all(a.last < b.first for a, b in zip(ranges, ranges[1:]))
        assert any(is_cold(each.segment.segment.start) for each in ranges)
    history.check()


def test_sources_that_were_in_memory_leave_it_with_their_copies():
    history = sealed()
    assert clean(history)
    work(history)
    assert cold_places(history) and not in_memory(history)
    history.check()
    for _ in range(3):
        history.remove()
    history.check()


@pytest.mark.parametrize("step", [1, 2])
def test_cold_segments_are_copied_again(step):
    """Of the first one, other cold segments and segments between: its files go then."""
    history = cleaned(step)
    for at in range(60):
        history.put(GROUPS[at % 2], at % 3, at)
    history.release()
    work(history)
    assert clean(history, 0, step)
    work(history)
    for group in GROUPS:
        history.raise_log_start(group, 0, 9)
        history.apply(group, 0)
        history.trim(group)
    work(history)
    while len(cold_files(history)) > 1 or source_rows(history):
        assert clean(history)
        for _ in range(2):
            work(history)
        history.remove()
        history.check()
    assert len(history.store.table.journal.cold) == 1 and not in_memory(history)
    history.restart()
    history.check()


def test_a_cold_segment_goes_with_its_last_record():
    history = cleaned()
    for group in GROUPS:
        for at in range(3):
            history.raise_log_start(group, at, 0)
        history.apply(group, 0)
        history.trim(group)
    work(history)
    assert not cold_files(history) and not len(history.store.table.journal.cold)
    for log in history.store.table.logs.values():
        assert not any(is_cold(each.segment.segment.start) for each in log.records._ranges)
    for _ in range(2):
        history.check()
        work(history)
        history.restart()


@pytest.mark.parametrize("kept", [0, 1])
def test_records_that_leave_while_their_copies_wait_are_answered_by_no_file(kept):
    """All of a group, or all but those of one partition, below the log starts."""
    history = sealed()
    assert clean(history)
    for at in range(kept, 3):
        history.raise_log_start(GROUP, at, 0)
    history.apply(GROUP, 0)
    history.trim(GROUP)
    work(history)
    records = history.store.table.logs[GROUP].records
    assert bool(records.first_needed) == bool(records.terms) == bool(records._ranges) == bool(kept)
    history.check()
    for _ in range(3):
        history.remove()
        work(history)
    history.restart()
    history.check()


@pytest.mark.parametrize("made", [sealed, released])
def test_terms_of_a_group_go_with_its_last_record_in_the_sources(made):
    """A snapshot whose terms are of no index is refused by its receiver."""
    history = made()
    for at in range(3):
        history.raise_log_start(GROUP, at, 0)
    history.apply(GROUP, 0)
    history.trim(GROUP)
    assert clean(history)
    work(history)
    records = history.store.table.logs[GROUP].records
    assert not records.first_needed and not records.terms and not records._ranges
    history.check()


def waiting_and_damaged() -> History:
    """Copies that count with the next piece of work, of sources in memory and in index files; one
    of the latter has a damaged record."""
    history = released()
    store = history.store
    for at in range(60):
        history.put(GROUPS[at % 2], at % 3, at)
    compacted(history)
    seal(store)
    work(history)
    log = store.table.logs[GROUP]
    index, place = next((index, place) for index, place in sorted(records(store, GROUP).items())
                        if log.records.in_file(index))
    segment = log.records.in_file(index).segment
    put(history, segment.path, flipped(contents(history, segment.path),
                                       place.position - segment.start + place.size - 20))
    with pytest.raises(AssertionError):
        clean(history)  # it asserts that all records were copied
    for _ in range(2):
        history.compact(1, 1 << 30)
    assert store.cleaner._waiting
    return history


def test_a_replica_that_is_removed_between_two_pieces_gets_no_ranges():
    for step in range(60):
        history = waiting_and_damaged()
        store, pieces = history.store, 0
        while pieces < step and store.cleaner.work():
            pieces += 1
        if pieces < step:
            assert step > 5
            return
        log, journal = store.table.logs[GROUP], store.table.journal
        log.apply_tombstone(Tombstone(HardState(1, 0), 0, 0, 0), journal.position,
                            journal.place_at(journal.position))
        store.partition_states[GROUP] = PartitionStates(GROUP)
        while store.cleaner.work():
            pass
        assert not log.records._ranges and not log.partitions
        log._check()
        store.table.indexed._check()
    raise AssertionError("the work does not end")


# ---- starts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_start_reads_summaries_alone(step, monkeypatch):
    history = cleaned(step)
    indexed = history.store.table.indexed
    before = {start: each.rows for start, each in indexed._by_start.items()}
    ranges = {group: [(each.first, each.last, each.segment.segment.start)
                      for each in history.store.table.logs[group].records._ranges]
              for group in GROUPS}
    monkeypatch.setattr(cold_records, "read_contents", None)
    for _ in range(2):
        history.restart()
        table = history.store.table
        assert before.items() <= {
            start: each.rows for start, each in table.indexed._by_start.items()}.items()
        for group in GROUPS:
            assert ranges[group] == [(each.first, each.last, each.segment.segment.start)
                                     for each in table.logs[group].records._ranges
                                     if each.segment.segment.start in before]
        assert history.store.recovered.scanned_segments == 1 and not in_memory(history)
        history.check()
    work(history)
    assert clean(history)
    work(history)
    history.check()


def rows_of(history: History, starts: frozenset[int]) -> int:
    return sum(each.rows for start, each in history.store.table.indexed._by_start.items()
               if start in starts)


def test_sources_that_are_still_there_answer_nothing_after_a_start():
    history = released()
    assert clean(history)
    sources = next(iter(history.store.cleaner._waiting.values())).sources
    work(history)
    assert not source_rows(history)
    history.restart()
    assert not rows_of(history, sources) and cold_places(history) and not in_memory(history)
    assert sources <= {each.start for each in history.store.table.journal.segments}
    history.check()
    for _ in range(3):
        history.remove()
    assert not sources & {each.start for each in history.store.table.journal.segments}
    history.check()


def test_a_start_from_a_checkpoint_that_names_the_copies_uses_them():
    """The older checkpoint does not name them yet."""
    history = released()
    assert clean(history)
    sources = next(iter(history.store.cleaner._waiting.values())).sources
    assert not cold_places(history) and rows_of(history, sources)
    history.restart()
    assert cold_places(history) and not in_memory(history) and not rows_of(history, sources)
    history.check()


@pytest.mark.parametrize("how", ["missing", "damaged", "first version", "short"])
def test_a_start_without_an_index_file_reads_the_cold_segment(how):
    history = cleaned()
    (at,) = cold_files(history)
    data = contents(history, at.path)
    history.store.close()
    if how == "missing":
        history.filesystem.remove(at.path)
    else:
        put(history, at.path, {"damaged": flipped(data, len(data) - 5), "short": data[:-1],
                               "first version": first_version_of(data)}[how])
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    assert in_memory(history)
    history.check()
    assert contents(history, at.path) != data and (how == "first version") == (
        contents(history, at.path) == first_version_of(data))
    for _ in range(2):
        history.restart()
        history.check()
    history.store.cleaner._limits = CleaningLimits()
    work(history)
    assert clean(history)
    for _ in range(2):
        work(history)
    assert not in_memory(history) and cold_places(history)
    history.check()
    history.restart()
    assert not in_memory(history)
    history.check()


def test_a_record_that_was_repaired_before_the_copy_is_read_after_a_start():
    """Its index is in the range of a cold segment that does not have it."""
    history = released()
    store = history.store
    survey, *_ = surveyed(store, Sources(tuple(store.cleaner._facts)))
    run = survey.runs[0]
    index, entry = run.indexes[2], history.logs[run.group][run.indexes[2] - 1]
    assert store.repair.record_damage(run.group, index, "test", run.positions[2], run.sizes[2])
    staged = store.repair.stage_copies(run.group, [entry], lambda: None)
    staged.execute()
    store.finish(staged)
    work(history)
    assert clean(history)
    for _ in range(3):
        work(history)
        history.remove()
    records = history.store.table.logs[run.group].records
    assert index in records and records.ranges_within(index, index)
    assert not is_cold(records.locate(index).position)
    for _ in range(2):
        history.restart()
        assert index in history.store.table.logs[run.group].records
        history.check()
    history.store.table.journal.start_segment()
    seal(history.store)
    work(history)
    assert clean(history)
    for _ in range(3):
        work(history)
        history.remove()
    history.check()
    history.restart()
    history.check()


def last_of_two_records(history: History) -> Iterator[tuple[int, int, int]]:
    """Yield (group, index, position) of batches with two records, the last ones of their partition
    in a segment."""
    store = history.store
    for survey in surveyed(store, Sources(tuple(store.cleaner._facts))):
        for run in survey.runs:
            entries = [history.logs[run.group][index - 1] for index in run.indexes]
            last = {entry.partition: entry.index for entry in entries}
            for entry, position in zip(entries, run.positions, strict=True):
                if entry.batch.count == 2 and last[entry.partition] == entry.index:
                    yield run.group, entry.index, position


def test_a_damaged_record_beside_its_cold_copy_has_the_end_of_the_copy():
    """Its source is still there for other entries, and cannot tell how many records it had."""
    history = released()
    store = history.store
    group, index, position = next(last_of_two_records(history))
    assert clean(history)
    work(history)
    source = next(each for each in store.table.journal.segments
                  if each.start <= position < each.end)
    store.close()
    put(history, source.path, flipped(contents(history, source.path),
                                      position - source.start + 100))
    history.filesystem.remove(index_path(source))
    history.store = store = open_store(history.filesystem, DIRECTORY, history.config)
    assert [(each.group, each.index) for each in store.damage] == [(group, index)]
    assert is_cold(store.table.logs[group].records.locate(index).position)
    store.damage.clear()
    history.check()


# ---- by index ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2])
def test_another_member_copies_records_of_cold_segments(step):
    history = cleaned(step)
    for group in GROUPS:
        index, last, kinds = 1, len(history.logs[group]), set()
        while index <= last:
            job = history.store.records_job(group, index, last, 600)
            kinds.add(type(job))
            found = job.execute()
            assert [entry.index for entry in found] == [
                entry.index for entry in history.logs[group][index - 1:job.through]
                if entry.batch]
            assert index <= job.through and not job.lacking
            index = job.through + 1
        assert RowRecordsJob in kinds


def test_a_record_is_found_by_its_index_and_another_entry_is_known_to_be_none():
    history = cleaned()
    store, log = history.store, history.store.table.logs[GROUP]
    answered = 0
    for entry in history.logs[GROUP]:
        job, = store.repair.copy_jobs(GROUP, [(entry.index, ANY_COMMITTED)], 1 << 20) or [None]
        file = log.records.in_file(entry.index)
        if not isinstance(job, RowCopyJob) or file is None or not is_cold(file.segment.start):
            continue
        answered += 1
        found = job.execute()
        if entry.batch:
            assert [each.index for each in found] == [entry.index] and not job.absent
        else:
            assert not found and job.absent == [entry.index]
            assert store.repair.is_absent(GROUP, entry.index)
            assert (entry.index, ANY_COMMITTED) not in store.repair.compacted(
                GROUP, [(entry.index, ANY_COMMITTED)])
    assert answered > 30


# ---- damage --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [*INDEX_DAMAGES, "missing"])
def test_a_damaged_index_file_is_made_anew_from_its_cold_segment(how):
    history = cleaned()
    (at,) = cold_files(history)
    data = contents(history, at.path)
    if how == "missing":
        history.filesystem.remove(at.path)
    else:
        put(history, at.path, INDEX_DAMAGES[how](data))
    history.check()
    assert history.store.seals_waiting
    assert seal(history.store) == 1
    assert not history.store.seals_waiting and not history.store.damage
    assert contents(history, at.path) == data
    history.forget_blocks()
    history.check()
    assert not history.store.seals_waiting


def damaged_record(history: History, header: bool) -> tuple[int, int, int]:
    """Damage the last record of a group in the cold segment; its index, position and size."""
    (at,) = cold_files(history)
    run = history.store.table.indexed.reader(GROUP, {at.number}).whole(at.number)[GROUP]
    index = max(batches.batch(len(batches) - 1)[2] for batches in run.partitions.values())
    position, size = run.place(index)
    data = contents(history, at.segment.path)
    put(history, at.segment.path, flipped(data, position - at.segment.start + (
        8 if header else 100)))
    return index, position, size


@pytest.mark.parametrize("version", [1, 2])
def test_a_damaged_record_is_repaired_and_its_copy_counts(version):
    """Also after starts that take all records of the cold segment into memory, by version 1."""
    history = cleaned()
    (at,) = cold_files(history)
    index, position, size = damaged_record(history, False)
    entry = history.logs[GROUP][index - 1]
    with pytest.raises(CorruptRange) as error:
        history.fetch(GROUP, entry.partition, entry.base_offset, 1)
    assert (error.value.index, error.value.position, error.value.size) == (index, position, size)
    store = history.store
    assert store.repair.record_damage(GROUP, index, "test", position, size)
    staged = store.repair.stage_copies(GROUP, [entry], lambda: None)
    staged.execute()
    store.finish(staged)
    if version == 1:
        put(history, at.path, first_version_of(contents(history, at.path)))
    for start in range(3):
        history.check()
        work(history)
        assert not is_cold(history.store.table.logs[GROUP].records.locate(index).position)
        assert bool(in_memory(history)) == (version == 1 and start > 0)
        history.restart()


def test_records_whose_index_file_and_cold_segment_are_damaged_are_asked_for():
    """Each index for which the file answered: memory knows no places.  The cold segment stays until
    they are found, because a start finds its intact records."""
    history = cleaned()
    index, *_ = damaged_record(history, True)
    (at,) = cold_files(history)
    put(history, at.path, b"")
    store, entry = history.store, history.logs[GROUP][index - 1]
    with pytest.raises(CorruptIndexedSegment) as caught:
        history.read_all(GROUP, entry.partition, 0)
    sent = []
    alone = RepairCoordinator(1, store, Core(dict.fromkeys(GROUPS, Configuration((1,)))),
                              sent.append)
    alone.on_damage(caught.value)
    assert not alone.groups and store.table.logs[GROUP].records.ranges_of(at)
    repairer = RepairCoordinator(1, store, Core(dict.fromkeys(GROUPS, VOTERS)), sent.append)
    repairer.on_damage(caught.value)
    assert {*GROUPS} <= repairer.groups and not sent, "no replica is quarantined"
    known = store.table.logs[GROUP].records
    assert index in known.missing and not known.ranges_of(at)
    work(history)
    assert not at.segment.is_removed
    for group in GROUPS:
        missing = sorted(store.table.logs[group].records.missing)
        entries = [history.logs[group][each - 1] for each in missing]
        store.repair.forget_holes(group, [each.index for each in entries if each.batch is None])
        staged = store.repair.stage_copies(
            group, [each for each in entries if each.batch is not None], lambda: None)
        staged.execute()
        store.finish(staged)
    for _ in range(2):
        history.check()
        work(history)
        history.restart()
    assert at.segment.path not in [each.path for each in history.store.table.journal.cold]


@pytest.mark.parametrize("header", [False, True])
def test_a_cold_segment_and_its_index_file_are_both_damaged(header):
    """With the headers of all entries each other record is answered; else a start does that."""
    history = cleaned()
    index, *_ = damaged_record(history, header)
    (at,) = cold_files(history)
    history.filesystem.remove(at.path)
    errors = set()
    for partition in partitions(GROUP):
        for entry in history.batches(GROUP, partition):
            try:
                found = history.fetch(GROUP, partition, entry.base_offset, 1)
                assert found == [bytes(entry.payload)] and entry.index != index
            except CorruptJournalRange as error:
                assert header and is_cold(error.begin)
                errors.add(-1)
            except CorruptRange as error:
                errors.add(error.index)
    assert errors == ({-1} if header else {index})
    history.store.close()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    store = history.store
    log, wanted = store.table.logs[GROUP], [at for at, _ in store.repair.wanted_records(GROUP, 99)]
    assert index in wanted and {each.kind for each in store.damage} == {"cold"}
    for each in wanted:
        entry = history.logs[GROUP][each - 1]
        if entry.batch is None:
            store.repair.forget_holes(GROUP, [each])
            continue
        staged = store.repair.stage_copies(GROUP, [entry], lambda: None)
        if staged is not None:
            staged.execute()
            store.finish(staged)
    assert not log.records.missing
    for other in GROUPS[1:]:
        missing = store.table.logs[other].records.missing
        store.repair.forget_holes(other, [*missing])
    store.damage.clear()
    history.check()


# ---- crashes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("oldest", [False, True])
def test_power_loss_at_every_operation_of_a_second_copy_leaves_a_start_that_works(oldest):
    """From a cold segment and the segments between its sources."""
    over, limit = False, 0
    while not over:
        history = cleaned(2)
        filesystem = history.filesystem
        filesystem.operations_to_crash = limit
        try:
            clean(history)
            for _ in range(3):
                work(history)
                history.remove()
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        if oldest:
            newest = checkpoint_names(filesystem, DIRECTORY)[-1]
            filesystem.flip(f"{DIRECTORY}/{newest}", 40, 1)
        for _ in range(2):
            history.store = open_store(filesystem, DIRECTORY, history.config)
            history.store.damage.clear()
            history.check()
            filesystem.power_loss(random.Random(limit))
        history.store = open_store(filesystem, DIRECTORY, history.config)
        history.store.damage.clear()
        for _ in range(3):
            work(history)
            for group in GROUPS:
                history.compact(group, 0)
            history.release()
            history.remove()
        history.check()
        limit += 7
    assert limit > 50


def test_two_sources_in_memory_have_entries_of_the_same_indexes():
    """Those at the end of the first were truncated, and sent again."""
    history = Cleaned()
    while len(history.store.table.journal.segments) < 4:
        history.put(GROUP, 0, 40)
    history.apply(GROUP, len(history.logs[GROUP]) - 8)
    history.elect(GROUP, 1 << 30)
    while len(history.store.table.journal.segments) < 8:
        history.put(GROUP, 0, 41)
    compacted(history)
    seal(history.store)
    work(history)
    assert clean(history)
    work(history)
    log = history.store.table.logs[GROUP]
    ranges = log.records._ranges
    assert ranges and all(a.last < b.first for a, b in zip(ranges, ranges[1:]))
    assert cold_places(history)
    for _ in range(3):
        history.check()
        history.remove()
    history.restart()
    history.check()
