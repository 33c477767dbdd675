"""Records that index files answer: the same answers as from memory, whatever happens to either."""

from __future__ import annotations

import collections
import gc
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import SimulatedFile, SimulatedFilesystem
from multiraft.codec import layout
from multiraft.storage.block_index.file_codec import RunSummary
from multiraft.storage.errors import (
    CorruptIndexedSegment,
    CorruptRange,
    OffsetTooLow,
    RecordsNotCopied,
)
from multiraft.storage.index import PartitionIndex
from multiraft.storage.journal.packed_batches import PackedBatches
from multiraft.storage.journal.segment_index import REPAIR_STRUCT, SegmentRun
from multiraft.storage.recovery import lost_copies, rebuild, recovery
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, flipped
from tests.storage.repair.test_acknowledged_damage import scrubbed
from tests.storage.test_raft_start import put as written
from tests.storage.world import (
    SMALL,
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    looked_up,
    noop_entry,
    open_entry,
    open_store,
    records,
    release,
    seal,
    write,
)

GROUPS, OTHER = (1, 2), 3
END = 1 << 40


def partitions(group: int) -> range:
    return range(10 * group, 10 * group + 3)


class History:
    """A store with two groups, and the lists of what they have."""

    def __init__(self, config=SMALL) -> None:
        self.filesystem = SimulatedFilesystem()
        self.config = config
        self.store = open_store(self.filesystem, DIRECTORY, config)
        self.terms = dict.fromkeys(GROUPS, 1)
        self.logs: dict[int, list[Entry]] = {group: [] for group in GROUPS}
        self.times = 0
        self.create()
        for group in GROUPS:
            for partition in partitions(group):
                self.append(group, open_entry(group, self.next_index(group), 1, partition))
            self.apply(group, 0)

    def create(self) -> None:
        for group in (*GROUPS, OTHER):
            self.store.create_group(group, 1, VOTERS)
            if group == OTHER:
                Rounds(self.store).run(write(OTHER, hard_state=HardState(1, 1)))

    def next_index(self, group: int) -> int:
        return len(self.logs[group]) + 1

    def append(self, group: int, entry: Entry) -> None:
        states = self.store.partition_states[group]
        assert not states.check_entry(entry)
        states.append(entry)
        self.logs[group].append(entry)
        Rounds(self.store).run(write(group, entry, hard_state=HardState(entry.term, 1)))

    # ---- what happens ----------------------------------------------------------------------------

    def put(self, group: int, at: int, size: int) -> None:
        """A batch of one or two records; timestamps rise and fall."""
        partition = partitions(group)[at]
        base = self.store.partition_states[group].next_offset(partition)
        self.times += 1
        values = [b"%d" % self.times * size] * (1 + size % 2)
        self.append(group, data_entry(group, self.next_index(group), self.terms[group], partition,
                                      base, values, 1000 + self.times * 7 % 50))

    def elect(self, group: int, count: int) -> None:
        """A new leader's first entry replaces entries that are not applied, at most ``count``."""
        log, states = self.logs[group], self.store.partition_states[group]
        kept = max(states.applied_index, len(log) - count)
        self.terms[group] += 1
        entry = noop_entry(group, kept + 1, self.terms[group])
        drop = kept + 1 if kept < len(log) else 0
        if drop:
            states.truncate(drop)
        del log[kept:]
        states.append(entry)
        log.append(entry)
        Rounds(self.store).run(write(group, entry, drop_from=drop,
                                     hard_state=HardState(entry.term, 1)))

    def apply(self, group: int, back: int) -> None:
        states = self.store.partition_states[group]
        states.apply(max(states.applied_index, len(self.logs[group]) - back))

    def raise_log_start(self, group: int, at: int, back: int) -> None:
        partition = partitions(group)[at]
        states = self.store.partition_states[group]
        start = max(0, states.next_offset(partition) - back)
        self.append(group, Entry(EntryKind.LOG_START, group, 1, self.terms[group],
                                 self.next_index(group), partition, start))

    def compact(self, group: int, back: int) -> None:
        for _ in range(2):
            Rounds(self.store).run(write(OTHER, hard_state=HardState(1, 1)))
            checkpoint(self.store, {each: self.store.partition_states[each].applied_index
                                    for each in GROUPS})
        self.store.compact(group, max(1, self.store.raft_start_max(group) - back))

    def trim(self, group: int) -> None:
        self.store.trim(group, partitions(group))

    def release(self) -> None:
        seal(self.store)
        checkpoint(self.store, {})
        release(self.store)

    def forget_blocks(self) -> None:
        self.store.table.indexed.cache._rows.clear()
        self.store.table.indexed.cache.bytes = 0

    def remove(self) -> None:
        """Every step of removal of segments that is due."""
        self.compact(GROUPS[0], 1 << 30)
        while True:
            job = self.store.removal_job()
            if job is not None:
                job.execute()
                self.store.removed(job)
            elif not self.store.is_examining:
                return

    def restart(self) -> None:
        checkpoint(self.store, {})
        self.store.close()
        self.store = open_store(self.filesystem, DIRECTORY, self.config)
        for group in GROUPS:
            states = self.store.partition_states[group]
            assert states.last_index == len(self.logs[group])
        self.check_memory()

    # ---- what holds ------------------------------------------------------------------------------

    def check_memory(self) -> None:
        table = self.store.table
        table.indexed._check()
        rows: dict[int, int] = {}
        for log in table.logs.values():
            log._check()
            assert not log.quarantined and not log.records.missing
            for batches in log.partitions.values():
                for row in batches.rows.index if batches.rows is not None else ():
                    rows[row.file] = rows.get(row.file, 0) + 1
        assert rows == {each.number: each.rows for each in table.indexed._by_start.values()
                        if each.rows}
        assert not self.store.damage

    def batches(self, group: int, partition: int) -> list[Entry]:
        """The batches that a reader sees, the last ones not committed."""
        state = self.store.partition_states[group].applied(partition)
        start = state.log_start if state is not None else 0
        return [entry for entry in self.logs[group] if entry.batch is not None
                and entry.partition == partition and entry.base_offset + entry.batch.count > start]

    def check(self) -> None:
        self.check_memory()
        for group in GROUPS:
            for partition in partitions(group):
                self.check_partition(group, partition, self.batches(group, partition))

    def check_partition(self, group: int, partition: int, expected: list[Entry]) -> None:
        store = self.store
        state = store.partition_states[group].applied(partition)
        start = state.log_start if state is not None else 0
        end = expected[-1].base_offset + expected[-1].batch.count if expected else start
        for offset in {*range(start, end, 1 + (end - start) // 9), end - 1} if expected else ():
            found = looked_up(store, partial(store.batches, group, partition, offset, 3))
            wanted = [each for each in expected if each.base_offset + each.batch.count > offset]
            assert found == [(each.base_offset, each.base_offset + each.batch.count, each.index,
                              -(-len(each.payload) // 8) * 8) for each in wanted[:3]]
            for bytes_max in (1, 400, 1 << 20):
                found = self.fetch(group, partition, offset, bytes_max)
                assert found == [bytes(each.payload) for each in wanted][:len(found)] and found
            job = store.verify_job(group, partition, offset)
            if wanted[0].base_offset <= offset:  # else compaction dropped the batch
                assert job is not None and job.execute() is None
        assert self.read_all(group, partition, start) == [bytes(each.payload) for each in expected]
        assert not self.fetch(group, partition, end, 1)
        assert not looked_up(store, lambda: store.batches(group, partition, end, 1))
        known = store.table.logs[group].partitions.get(partition)
        if start and expected and known is not None and known.first_offset >= start:
            with pytest.raises(OffsetTooLow):
                store.fetch(group, partition, start - 1, 1, END)
        for timestamp in (0, 1010, 1030, 1049, 1051):
            for offset in {start, (start + end) // 2}:
                self.check_time(group, partition, timestamp, offset, expected)

    def check_time(self, group: int, partition: int, timestamp: int, offset: int,
                   expected: list[Entry]) -> None:
        found = looked_up(self.store, lambda: self.store.first_at(group, partition, timestamp,
                                                                  offset, END))
        late = [max(each.base_offset, offset) for each in expected
                if each.base_offset + each.batch.count > offset
                and each.batch.max_timestamp_ms >= timestamp]
        if late:
            assert found is not None and offset <= found <= late[0]
        if found is not None:
            assert found == offset or found in [each.base_offset for each in expected]

    def fetch(self, group: int, partition: int, offset: int, bytes_max: int) -> list[bytes]:
        found = self.store.fetch(group, partition, offset, bytes_max, END)
        buffers = found.buffers if found.job is None else found.job.execute()
        self.next = found.read_to
        return [bytes(each) for each in buffers]

    def read_all(self, group: int, partition: int, offset: int) -> list[bytes]:
        found = []
        while batches := self.fetch(group, partition, offset, 700):
            found += batches
            assert self.next > offset
            offset = self.next
        return found


group, small = st.sampled_from(GROUPS), st.integers(0, 3)
puts = st.tuples(st.just("put"), group, st.integers(0, 2), st.integers(1, 120))
#: A run of batches, so that segments fill.
runs = st.lists(puts, min_size=5, max_size=25)
others = st.one_of(
    st.tuples(st.just("elect"), group, st.integers(0, 8)),
    st.tuples(st.just("apply"), group, small),
    st.tuples(st.just("apply"), group, st.just(0)),
    st.tuples(st.just("raise_log_start"), group, st.integers(0, 2), st.integers(0, 9)),
    st.tuples(st.just("compact"), group, small),
    st.tuples(st.just("compact"), group, st.just(0)),
    st.tuples(st.just("trim"), group),
    st.tuples(st.just("release")), st.tuples(st.just("release")),
    st.tuples(st.just("forget_blocks")),
    st.tuples(st.just("remove")),
    st.tuples(st.just("restart")))
scripts = st.lists(st.one_of(runs, others.map(lambda each: [each])), max_size=25).map(
    lambda parts: [each for part in parts for each in part])


@pytest.mark.parametrize("resident", [True, False])
@given(script=scripts)
@settings(deadline=None, max_examples=40)
def test_index_files_answer_as_lists_do(resident, script):
    read_resident = SimulatedFile.read_resident
    SimulatedFile.read_resident = (
        (lambda self, length, position: bytearray(self.read(length, position))) if resident
        else lambda self, length, position: None)
    try:
        history = History()
        for what, *how in script:
            getattr(history, what)(*how)
        history.check()
        for group in GROUPS:
            history.apply(group, 0)
            history.compact(group, 0)
        for each in history.store.table.logs.values():
            each.cached.clear()
        history.release()
        history.check()
    finally:
        SimulatedFile.read_resident = read_resident


def filled(config=SMALL) -> History:
    """A history of some segments, everything below the Raft start and not in memory."""
    history = History(config)
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    history.release()
    history.forget_blocks()
    return history


def compacted(history: History) -> None:
    for group in GROUPS:
        history.apply(group, 0)
        history.compact(group, 0)
    for each in history.store.table.logs.values():
        each.cached.clear()


def in_memory(history: History) -> list[int]:
    """Positions of the records whose places are in memory."""
    return [position for log in history.store.table.logs.values()
            for position in log.records._positions]


def test_records_of_sealed_segments_leave_memory():
    history = filled()
    journal = history.store.table.journal
    unsealed = journal.segments[-1].start
    assert len(journal.segments) > 3
    assert all(position >= unsealed for position in in_memory(history))
    for log in history.store.table.logs.values():
        for batches in log.partitions.values():
            assert len(batches) <= len(log.records) and batches.rows is not None
    history.check()


def test_entries_at_the_raft_start_keep_their_segment_in_memory():
    history = History()
    for at in range(60):
        history.put(1, at % 3, at)
    history.apply(1, 0)
    history.compact(1, 5)
    history.release()
    log = history.store.table.logs[1]
    assert log.records._ranges and all(each.last < log.raft_start for each in log.records._ranges)
    assert len(log.records)
    history.elect(1, 0)
    history.check()


def test_entries_at_the_raft_start_are_not_left_to_index_files():
    """Neither while the node runs, nor at a start."""
    history = History()
    for at in range(60):
        history.put(1, at % 3, at)
    history.apply(1, 0)
    history.compact(1, 30)
    history.release()
    log = history.store.table.logs[1]
    straddling = next(each for each in history.store.table.journal.segments
                      if each.end > log.index.position(log.raft_start))
    assert straddling is not history.store.table.journal.segments[-1]
    for _ in range(2):
        at = history.store.table.indexed.find(straddling.start)
        log = history.store.table.logs[1]
        assert at is None or not log.records.is_in_file(at, 1, END)
        seal(history.store)
        history.restart()


def test_records_in_index_files_keep_their_segment():
    history = filled()
    before = {*history.store.table.indexed._by_start}
    for _ in range(3):
        history.remove()
    assert {*history.store.table.indexed._by_start} == before
    history.check()


def test_the_copy_of_a_record_in_an_index_file_counts_after_a_start():
    history = filled()
    store, group = history.store, GROUPS[0]
    log, index = store.table.logs[group], 20
    at = log.records.in_file(index)
    entry = history.logs[group][index - 1]
    place = records(store, group)[index]
    data = contents(history, at.segment.path)
    begin = place.position - at.segment.start
    put(history, at.segment.path, flipped(data, begin + place.size - 20))
    for error in scrubbed(store):
        assert (error.group, error.index, error.position, error.size) == (
            group, index, place.position, place.size)
        assert store.repair.is_record(group, index)
        assert store.repair.record_damage(group, index, error.why, error.position, error.size)
    assert {*log.records.missing} == {index}
    written = store.repair.stage_copies(group, [entry], lambda: None)
    written.execute()
    store.finish(written)
    assert not log.records.missing
    for _ in range(2):
        history.check()
        checkpoint(history.store, {})
        history.release()
        history.restart()
        assert index in history.store.table.logs[group].records
        assert history.store.table.logs[group].records.is_in_file(
            history.store.table.indexed.find(at.segment.start), index, index)


def test_the_rows_of_a_removed_segment_go_with_it():
    history = filled()
    indexed = history.store.table.indexed
    before = {*indexed._by_start}
    for group in GROUPS:
        for at in range(3):
            history.raise_log_start(group, at, 2)
    compacted(history)
    for group in GROUPS:
        history.trim(group)
    for _ in range(3):
        history.remove()
    assert before - {*indexed._by_start} and not before & {
        each.start for each in history.store.table.journal.leftovers}
    assert indexed._free
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    history.release()
    history.check()


def test_a_start_reads_the_entries_of_no_segment_below_the_raft_starts():
    history = filled()
    before = {start: each.rows for start, each in history.store.table.indexed._by_start.items()}
    checkpoint(history.store, {})
    history.restart()
    table, found = history.store.table, history.store.recovered
    assert {start: each.rows for start, each in table.indexed._by_start.items()} == before
    assert found.indexed_segments == len(before) and found.scanned_segments == 1
    assert history.store.summary_job() is None
    history.check()


def reopened_without_collection(history: History) -> None:
    """Start once more; no garbage is left of before, and none of the start is collected."""
    seal(history.store)
    checkpoint(history.store, {})
    history.store.close()
    del history.store
    gc.collect()
    gc.disable()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)


def partly_applied() -> History:
    """Records in index files, segments that a start reads whole, and one that it scans."""
    history = filled()
    for at in range(60):
        history.put(GROUPS[at % 2], at % 3, at)
    for group in GROUPS:
        history.apply(group, 0)
    return history


def test_nothing_of_the_segments_that_a_start_reads_waits_for_garbage_collection():
    history = partly_applied()
    try:
        reopened_without_collection(history)
        kinds = collections.Counter(type(each) for each in gc.get_objects())
    finally:
        gc.enable()
    found, logs = history.store.recovered, history.store.table.logs.values()
    assert len(history.store.table.indexed) < found.indexed_segments and found.scanned_segments
    assert not kinds[RunSummary] + kinds[SegmentRun] + kinds[PackedBatches]
    assert kinds[PartitionIndex] == sum(len(log.partitions) for log in logs)
    for group in GROUPS:
        for partition in partitions(group):
            expected = [bytes(each.payload) for each in history.batches(group, partition)]
            assert history.read_all(group, partition, 0) == expected


def test_batches_of_segments_are_packed_until_they_are_joined(monkeypatch):
    history, packed = partly_applied(), []

    def joined(found, *args):
        runs = [run for _, index in found for run in index.runs.values()]
        assert not any(run.partitions for run in runs)
        packed.append(sum(run.packed is not None for run in runs))
        rebuild.rebuild(found, *args)
        assert not any(run.partitions or run.packed for run in runs)

    monkeypatch.setattr(recovery, "rebuild", joined)
    history.restart()
    assert packed[0] > len(GROUPS)
    history.check()


def test_a_start_writes_index_files_that_are_lost():
    history = filled()
    before = {start: each.rows for start, each in history.store.table.indexed._by_start.items()}
    paths = [each.path for each in history.store.table.indexed._by_start.values()]
    files = {path: contents(history, path) for path in paths}
    history.filesystem.remove(paths[0])
    put(history, paths[1], b"")
    history.restart()
    assert history.store.recovered.scanned_segments == 3
    assert {path: contents(history, path) for path in paths} == files
    table = history.store.table
    assert {start: each.rows for start, each in table.indexed._by_start.items()} == before
    history.check()


def test_a_start_with_damage_reads_all_entries():
    history = filled()
    indexed = [*history.store.table.indexed._by_start.values()]
    data = contents(history, indexed[1].segment.path)
    end = indexed[1].segment.end - indexed[1].segment.start
    put(history, indexed[1].segment.path, flipped(data, end - 20))
    history.filesystem.remove(indexed[1].path)
    checkpoint(history.store, {})
    history.store.close()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    assert history.store.damage and not len(history.store.table.indexed)
    missing = [log.records.missing for log in history.store.table.logs.values()]
    assert sum(map(len, missing)) == 1
    release(history.store)
    assert {*history.store.table.indexed._by_start} == {
        each.segment.start for each in indexed if each is not indexed[1]}
    for group in GROUPS:
        for partition in partitions(group):
            expected = [bytes(each.payload) for each in history.batches(group, partition)]
            try:
                assert history.read_all(group, partition, 0) == expected
            except CorruptRange as error:
                assert error.index in history.store.table.logs[group].records.missing


def test_a_batch_that_was_truncated_is_not_answered():
    """Its segment's index file has it, and the group's other records there."""
    history = History()
    while len(history.store.table.journal.segments) < 3:
        history.put(1, 0, 9)
    segment = history.store.table.journal.segments[1]
    log = history.store.table.logs[1]
    first = next(at for at in range(1, log.index.last_index + 1)
                 if log.index.position(at) >= segment.start)
    history.apply(1, len(history.logs[1]) - first)
    last = history.next_index(1)
    history.elect(1, 1 << 30)
    while history.next_index(1) <= last:
        history.put(1, 0, 5)
    compacted(history)
    history.release()
    for _ in range(2):
        indexed = history.store.table.indexed.find(segment.start)
        assert indexed is None or not indexed.rows
        history.check()
        compacted(history)  # so that both kept checkpoints have the Raft start
        history.restart()


INDEX_DAMAGES = {
    "damaged": lambda data: flipped(data, 9000),
    "empty": lambda data: b"",
    "cut": lambda data: data[:4096 + 9],
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("how", [*INDEX_DAMAGES, "missing", "foreign"])
def test_a_damaged_index_file_is_made_anew_from_its_segment(how):
    history = filled()
    paths = [each.path for each in history.store.table.indexed._by_start.values()]
    for at, path in enumerate(paths):
        data = contents(history, path)
        if how == "missing":
            history.filesystem.remove(path)
            continue
        put(history, path, contents(history, paths[at - 1]) if how == "foreign"
            else INDEX_DAMAGES[how](data))
    history.check()
    assert history.store.seals_waiting
    assert seal(history.store)
    assert not history.store.seals_waiting and not history.store.damage
    history.forget_blocks()
    history.check()
    assert not history.store.seals_waiting


def test_damage_of_segment_and_index_file_is_an_error_of_the_journal():
    history = filled()
    at = next(iter(history.store.table.indexed._by_start.values()))
    put(history, at.path, b"")
    segment = contents(history, at.segment.path)
    put(history, at.segment.path, flipped(segment, len(segment) // 2))
    errors = set()
    for group in GROUPS:
        for partition in partitions(group):
            try:
                history.read_all(group, partition, 0)
            except CorruptRange as error:
                errors.add(type(error))
                assert (error.begin, error.end) == (at.segment.start, at.segment.end)
    assert errors == {CorruptIndexedSegment}
    found = scrubbed(history.store)
    assert (at.segment.start, at.segment.end) in {
        (each.begin, each.end) for each in found if isinstance(each, CorruptIndexedSegment)}


def test_an_index_file_whose_version_rots_is_made_anew():
    """It was read when the version was right, so it is no file of another release."""
    history = filled()
    at = next(iter(history.store.table.indexed._by_start.values()))
    before = whole(history, at.number)
    put(history, at.path, flipped(contents(history, at.path), 8))
    assert whole(history, at.number) == before
    assert seal(history.store) == 1
    assert whole(history, at.number) == before


def whole(history: History, number: int) -> dict[int, set[int]]:
    """The indexes of each partition's batches in an index file."""
    runs = history.store.table.indexed.reader(-1, {number}).whole(number)
    return {partition: {*batches.indexes_below(END)} for run in runs.values()
            for partition, batches in run.partitions.items()}


def test_batches_below_the_log_start_leave_memory_with_their_records():
    """They may not be trimmed yet when the index file of their segment answers for it."""
    history = History()
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    history.raise_log_start(GROUPS[0], 0, 0)
    history.apply(GROUPS[0], 0)
    history.release()
    history.check()


# ---- copies whose segments are gone --------------------------------------------------------------


def copied(entries_before: int = 0) -> History:
    """All records were lost with their segments, and copied from another member, behind entries
    that are not lost."""
    history = filled()
    store = history.store
    segments = store.table.journal.segments
    last = segments[-1]
    while segments[-1] is last:  # so that the last batches are not in the segment of the copies
        Rounds(store).run(write(OTHER, hard_state=HardState(1, 1)))
    for at in range(entries_before):
        for group in GROUPS:
            history.put(group, at % 3, 9)
    history.release()
    for start in [*store.table.indexed._by_start]:
        store.repair.lose_file(start, GROUPS)
    for group in GROUPS:
        missing = [*store.table.logs[group].records.missing]
        entries = [history.logs[group][index - 1] for index in missing]
        store.repair.forget_holes(group, [each.index for each in entries if each.batch is None])
        for entry in entries:
            if entry.batch is not None:
                staged = store.repair.stage_copies(group, [entry], lambda: None)
                staged.execute()
                store.finish(staged)
    for _ in range(4):
        history.remove()
    assert all(each.start > last.start for each in segments)
    return history


def test_copies_are_records_after_a_start_before_the_first_index_file():
    history = copied()
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    for _ in range(3):
        compacted(history)
        history.release()
        history.restart()
        history.check()


def test_a_record_is_missing_after_a_start_if_its_only_copy_is_damaged():
    history = copied()
    log = history.store.table.logs[GROUPS[0]]
    index = 20
    _, position, size = log.locate(index)
    segment = next(each for each in history.store.table.journal.segments
                   if each.start <= position < each.end)
    put(history, segment.path, flipped(contents(history, segment.path),
                                       position - segment.start + size - 20))
    checkpoint(history.store, {})
    history.store.close()
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    log = history.store.table.logs[GROUPS[0]]
    assert [*log.records.missing] == [index]
    log._check()


def lost_without_a_trace(history: History, index: int) -> StoredLog:
    """Overwrite the only copy of a record of the first group and the record that names it, and
    start."""
    store = history.store
    checkpoint(store, {})
    _, position, size = store.table.logs[GROUPS[0]].locate(index)
    segment = next(each for each in store.table.journal.segments
                   if each.start <= position < each.end)
    begin = position - segment.start - layout.ENTRY_HEADER_BYTES - REPAIR_STRUCT.size
    data = contents(history, segment.path)
    end = position - segment.start + size
    store.close()
    put(history, segment.path, data[:begin] + bytes(end - begin) + data[end:])
    return started(history)


def started(history: History) -> StoredLog:
    history.store = open_store(history.filesystem, DIRECTORY, history.config)
    log = history.store.table.logs[GROUPS[0]]
    log._check()
    return log


def test_a_record_is_missing_after_a_start_if_nothing_is_left_of_its_only_copy():
    """Its group asks for it before a checkpoint says so, and until it has it again."""
    history = copied(3)
    index = 20
    lost = history.logs[GROUPS[0]][index - 1]
    log = lost_without_a_trace(history, index)
    assert [*log.records.missing] == [index] and log.quarantined
    with pytest.raises(CorruptRange):
        history.read_all(GROUPS[0], lost.partition, 0)
    for group in GROUPS:
        written(history.store, history.store.repair.stage_clear(group, lambda: None))
    history.store.close()
    log = started(history)
    assert [*log.records.missing] == [index] and not log.quarantined, "no checkpoint named it"
    for _ in range(2):
        checkpoint(history.store, {})
        history.store.close()
        log = started(history)
        assert [*log.records.missing] == [index]
    written(history.store, history.store.repair.stage_copies(GROUPS[0], [lost], lambda: None))
    history.store.trim(GROUPS[0], partitions(GROUPS[0]))
    for _ in range(3):
        assert not log.records.missing and log.records.is_complete
        for partition in partitions(GROUPS[0]):
            assert history.read_all(GROUPS[0], partition, 0) == [
                bytes(each.payload) for each in history.batches(GROUPS[0], partition)]
        checkpoint(history.store, {})
        history.store.close()
        log = started(history)


def test_what_has_no_record_is_not_asked_for_again():
    """The members that have compacted it have answered."""
    history = copied(3)
    index = 20
    log = lost_without_a_trace(history, index)
    assert [*log.records.missing] == [index]
    history.store.repair.forget_holes(GROUPS[0], [index])
    for _ in range(2):
        checkpoint(history.store, {})
        history.store.close()
        assert started(history).records.is_complete


def test_very_many_lost_copies_are_uncopied(monkeypatch):
    monkeypatch.setattr(lost_copies, "HOLES_MAX", 0)
    history = copied(3)
    index = 20
    lost = history.logs[GROUPS[0]][index - 1]
    log = lost_without_a_trace(history, index)
    for _ in range(3):
        assert log.records.uncopied.ranges == ((index, index),) and not log.records.missing
        with pytest.raises(RecordsNotCopied):
            history.read_all(GROUPS[0], lost.partition, lost.base_offset)
        checkpoint(history.store, {})
        history.store.close()
        log = started(history)
    written(history.store, history.store.repair.stage_records(
        GROUPS[0], [lost], index, index, (), lambda: None))
    for _ in range(3):
        assert log.records.is_complete
        assert history.read_all(GROUPS[0], lost.partition, lost.base_offset)
        checkpoint(history.store, {})
        history.store.close()
        log = started(history)
    log = lost_without_a_trace(history, index)
    assert log.records.uncopied.ranges == ((index, index),), "a copy of an uncopied record as well"


def test_trimmed_records_are_not_missed():
    history = copied(3)
    group, partition = GROUPS[0], partitions(GROUPS[0])[0]
    log = history.store.table.logs[group]
    first = [each.index for each in history.batches(group, partition)][:2]
    history.raise_log_start(group, 0, 0)
    history.apply(group, 0)
    history.store.trim(group, partitions(group))
    assert not {*first} & {*log.records._indexes}
    index = next(each for each in log.records._indexes if each > first[-1])
    known = log.records.repaired.ranges
    assert not any(begin <= each <= end for begin, end in known for each in first)
    assert [*lost_without_a_trace(history, index).records.missing] == [index]


def contents(history: History, path: str) -> bytes:
    return history.filesystem.open(path).read(1 << 20, 0)


def put(history: History, path: str, data: bytes) -> None:
    file = history.filesystem.open(path)
    file.truncate(0)
    file.write([data], 0, True)


def without_the_last_files() -> History:
    """A history whose records are all in index files, and the last two of these are lost with their
    segments: what they had is missing, and no record is behind it."""
    history = History()
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    history.store.table.journal.start_segment()
    for group in GROUPS:
        history.compact(group, 0)
    history.release()
    assert not in_memory(history)
    for start in sorted(history.store.table.indexed._by_start)[-2:]:
        assert history.store.repair.lose_file(start, GROUPS)
    return history


@pytest.mark.parametrize("resident", [True, False])
def test_a_read_with_nothing_but_missing_records_behind_says_so(resident, monkeypatch):
    """It neither ends as at the end of the partition, nor names another record than a look-up."""
    monkeypatch.setattr(SimulatedFile, "read_resident", (
        (lambda self, length, position: bytearray(self.read(length, position))) if resident
        else lambda self, length, position: None))
    history = without_the_last_files()
    store, ends = history.store, 0
    for group in GROUPS:
        log = store.table.logs[group]
        for partition in partitions(group):
            batches = history.batches(group, partition)
            end = batches[-1].base_offset + batches[-1].batch.count
            lost = [each for each in batches if each.index in log.records.missing]
            assert lost == batches[-len(lost):] and lost and len(lost) < len(batches)
            for entry in lost:
                for offset in range(entry.base_offset, entry.base_offset + entry.batch.count):
                    with pytest.raises(CorruptRange) as error:
                        history.fetch(group, partition, offset, 1 << 20)
                    _, missing = looked_up(store, partial(
                        log.readable_below, partition, offset, end, store.table.indexed.blocks))
                    assert error.value.index == missing != 0
            offset, read = 0, []
            while offset < lost[0].base_offset:
                read += history.fetch(group, partition, offset, 700)
                offset = history.next
            assert read == [bytes(each.payload) for each in batches[:-len(lost)]]
            found = store.fetch(group, partition, offset, 1, offset)
            assert not (found.buffers if found.job is None else found.job.execute())
            ends += 1
    assert ends == 6
