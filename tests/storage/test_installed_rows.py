"""Snapshots of groups whose records are answered by index files, and copies of such records."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import SimulatedFile
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage import stored_log
from multiraft.storage.errors import CorruptJournalRange, CorruptRange, RecordsNotCopied
from multiraft.storage.io_jobs import RowRecordsJob
from multiraft.storage.repair.repair import ANY_COMMITTED
from multiraft.types import Entry, EntryKind
from tests.storage.damage import flipped
from tests.storage.test_indexed_records import (
    GROUPS,
    SMALL,
    History,
    compacted,
    contents,
    filled,
    partitions,
    put,
)
from tests.storage.world import VOTERS, checkpoint, looked_up, noop_entry, release, seal

GROUP = GROUPS[0]


@contextmanager
def page_cache(resident: bool):
    """The page cache has all of each file, or nothing."""
    read_resident = SimulatedFile.read_resident
    SimulatedFile.read_resident = (
        (lambda self, length, position: bytearray(self.read(length, position))) if resident
        else lambda self, length, position: None)
    try:
        yield
    finally:
        SimulatedFile.read_resident = read_resident


def follower(leader: History, count: int, wrong: int = 0) -> History:
    """A member with the first entries of the leader, all applied, and ``wrong`` others behind."""
    made = History(leader.config)
    for entry in leader.logs[GROUP][len(made.logs[GROUP]):count]:
        made.append(GROUP, entry)
    made.apply(GROUP, 0)
    for _ in range(wrong):
        made.append(GROUP, noop_entry(GROUP, made.next_index(GROUP), 9))
    return made


def install(history: History, leader: History) -> None:
    states = PartitionStates.restore(leader.store.partition_states[GROUP].snapshot())
    first_index, terms = leader.store.record_terms(GROUP)
    applied = states.applied_index
    history.store.install(GROUP, LogBounds(applied + 1, leader.logs[GROUP][applied - 1].term,
                                           applied), 0, VOTERS, states, terms=terms,
                          first_index=first_index,
                          committed=history.store.partition_states[GROUP].applied_index)
    history.logs[GROUP] = leader.logs[GROUP][:applied]
    checkpoint(history.store, {})


def copy(history: History, leader: History, bytes_max: int) -> bool:
    """Write one answer of the leader; False if nothing is uncopied."""
    store = history.store
    ranges = store.uncopied(GROUP)
    if not ranges:
        return False
    job = leader.store.records_job(GROUP, *ranges[0], bytes_max)
    entries = job.execute()
    assert job.first == ranges[0][0] <= job.through <= ranges[0][1]
    staged = store.repair.stage_records(GROUP, entries, job.first, job.through, job.lacking,
                                        lambda: None)
    if staged is not None:
        staged.execute()
        store.finish(staged)
    return True


def copy_all(history: History, leader: History, bytes_max: int = 700) -> None:
    while copy(history, leader, bytes_max):
        history.check_memory()


def check_partial(history: History, own: int) -> None:
    """Records up to index ``own`` are read; of the others, each may be refused."""
    history.check_memory()
    for partition in partitions(GROUP):
        for entry in history.batches(GROUP, partition):
            try:
                found = history.fetch(GROUP, partition, entry.base_offset, 1)
                assert found == [bytes(entry.payload)]
            except RecordsNotCopied:
                assert entry.index > own


def rows(history: History) -> int:
    return sum(batches.row_count for batches in history.store.table.logs[GROUP].partitions.values())


def test_uncopied_records_before_those_in_index_files_are_refused():
    """Entries behind the snapshot are in an index file before older records were copied."""
    leader = History()
    for at in range(60):
        leader.put(GROUP, at % 3, at)
    compacted(leader)
    history = follower(leader, 3)
    install(history, leader)
    for at in range(60):
        leader.put(GROUP, at % 3, at)
    for entry in leader.logs[GROUP][len(history.logs[GROUP]):]:
        history.append(GROUP, entry)
    compacted(history)
    history.release()
    assert rows(history)
    for partition in partitions(GROUP):
        with pytest.raises(RecordsNotCopied):
            history.fetch(GROUP, partition, 0, 1)
    compacted(leader)
    copy_all(history, leader)
    history.check()


@pytest.mark.parametrize("resident", [True, False])
@given(own=st.integers(0, 63), wrong=st.sampled_from([0, 0, 3, 40]),
       released=st.lists(st.sampled_from(["leader", "before", "installed", "copied"]), unique=True),
       restarts=st.lists(st.sampled_from(["installed", "copying", "copied"]), unique=True),
       bytes_max=st.sampled_from([1, 700, 1 << 20]), log_start=st.sampled_from([0, 0, 5, 30]))
@example(60, 0, ["leader", "before"], [], 700, 0)
@example(60, 40, ["leader", "before", "installed"], ["copying"], 700, 5)
@example(40, 40, ["leader", "installed", "copied"], ["installed", "copied"], 1 << 20, 30)
@settings(deadline=None, max_examples=25)
def test_records_stay_and_are_copied(resident, own, wrong, released, restarts, bytes_max,
                                     log_start):
    with page_cache(resident):
        leader = History()
        for at in range(60):
            leader.put(GROUP, at % 3, at)
        if log_start:
            leader.raise_log_start(GROUP, 0, log_start)
        compacted(leader)
        if "leader" in released:
            leader.release()
        history = follower(leader, own, wrong)
        own = history.store.partition_states[GROUP].applied_index
        history.compact(GROUP, 0)
        if "before" in released:
            history.release()
        install(history, leader)
        check_partial(history, own)
        if "installed" in restarts:
            history.restart()
        if "installed" in released:
            history.release()
            check_partial(history, own)
        copy(history, leader, bytes_max)
        if "copying" in restarts:
            history.restart()
        copy_all(history, leader, bytes_max)
        assert history.store.is_complete(GROUP)
        history.check()
        if "copied" in restarts:
            history.restart()
            copy_all(history, leader, bytes_max)
        if "copied" in released:
            history.release()
        history.check()


def leader_with(count: int, release: bool = True) -> History:
    leader = History()
    for at in range(count):
        leader.put(GROUP, at % 3, at)
    compacted(leader)
    if release:
        leader.release()
    return leader


def test_an_answer_is_of_one_index_file_or_of_memory():
    leader = leader_with(80)
    log = leader.store.table.logs[GROUP]
    assert len(log.records._ranges) > 2 and len(log.records)
    index, last, kinds = 1, len(leader.logs[GROUP]), set()
    while index <= last:
        job = leader.store.records_job(GROUP, index, last, 600)
        kinds.add(type(job))
        found = job.execute()
        assert [entry.index for entry in found] == [
            entry.index for entry in leader.logs[GROUP][index - 1:job.through] if entry.batch]
        assert sum(len(entry.payload) for entry in found) <= 600 and not job.lacking
        assert job.through >= index
        index = job.through + 1
    assert len(kinds) == 2


def test_records_that_are_rows_stay_rows_when_a_snapshot_is_installed():
    leader = leader_with(80)
    history = follower(leader, 60)
    history.compact(GROUP, 0)
    history.release()
    before, records = rows(history), history.store.table.logs[GROUP].records
    assert before
    install(history, leader)
    assert rows(history) == before
    assert history.store.table.logs[GROUP].records is records
    history.release()
    copy_all(history, leader)
    history.check()


def test_a_segment_with_entries_that_were_not_committed_stays_in_memory():
    """They have indexes for which the snapshot stands now."""
    leader = leader_with(80)
    history = follower(leader, 60, wrong=3)
    install(history, leader)
    history.release()
    ranges = history.store.table.logs[GROUP].records._ranges
    first = history.store.table.logs[GROUP].installed[0].first
    assert ranges and all(each.last < first for each in ranges)
    check_partial(history, first - 1)


def test_rows_go_when_a_snapshot_replaces_the_records_too(monkeypatch):
    monkeypatch.setattr(stored_log, "INSTALLED_RANGES_MAX", 0)
    leader = leader_with(80)
    history = follower(leader, 60)
    history.compact(GROUP, 0)
    history.release()
    install(history, leader)
    assert not rows(history)
    history.check_memory()
    copy_all(history, leader)
    history.check()
    history.restart()
    history.release()
    history.check()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_snapshot_comes_while_records_leave_memory(monkeypatch, replaced):
    """And with it a higher log start of one of the partitions."""
    monkeypatch.setattr("multiraft.storage.memory_release.PARTITIONS_PER_TURN", 1)
    leader = leader_with(80)
    leader.raise_log_start(GROUP, 2, 1)
    compacted(leader)
    history = follower(leader, 60)
    history.compact(GROUP, 0)
    seal(history.store)
    checkpoint(history.store, {})
    job = history.store.summary_job()
    job.execute()
    steps = history.store.release(job)
    next(steps)
    if replaced:
        monkeypatch.setattr(stored_log, "INSTALLED_RANGES_MAX", 0)
    install(history, leader)
    assert [*steps] if not replaced else not [*steps]
    history.release()
    copy_all(history, leader)
    history.check()


@pytest.mark.parametrize("resident", [True, False])
def test_uncopied_records_before_rows_are_refused(resident):
    """Those behind them are read."""
    with page_cache(resident):
        leader = leader_with(30)
        history = follower(leader, 10)
        install(history, leader)
        first, last = history.store.uncopied(GROUP)[0]
        for at in range(80):
            leader.put(GROUP, at % 3, at)
            history.append(GROUP, leader.logs[GROUP][-1])
        compacted(history)
        history.release()
        history.forget_blocks()
        assert rows(history)
        for partition in partitions(GROUP):
            expected = history.batches(GROUP, partition)
            uncopied = [each for each in expected if first <= each.index <= last]
            for each in uncopied:
                with pytest.raises(RecordsNotCopied):
                    history.fetch(GROUP, partition, each.base_offset, 1 << 20)
            behind = uncopied[-1].base_offset + uncopied[-1].batch.count
            assert history.read_all(GROUP, partition, behind) == [
                bytes(each.payload) for each in expected if each.index > last]
        copy_all(history, leader)
        history.check()


def test_log_starts_drop_rows_in_bounded_steps():
    history = filled()
    for at in range(3):
        history.raise_log_start(GROUP, at, 0)
    history.apply(GROUP, 0)
    log, states = history.store.table.logs[GROUP], history.store.partition_states[GROUP]
    steps, left = 0, rows(history)
    assert left > 4
    while not (trimmed := log.trim(states, partitions(GROUP), 0, 2)).is_complete:
        assert trimmed.bytes or rows(history) == left
        assert left - rows(history) <= 2
        left, steps = rows(history), steps + 1
        history.check_memory()
    assert not rows(history) and steps > 2


def test_damage_of_segment_and_index_file_ends_an_answer():
    history = filled()
    at = next(iter(history.store.table.indexed._by_start.values()))
    put(history, at.path, b"")
    job = history.store.records_job(GROUP, 4, 40, 1 << 20)
    assert isinstance(job, RowRecordsJob) and job.execute()
    segment = contents(history, at.segment.path)
    put(history, at.segment.path, flipped(segment, len(segment) // 2))
    with pytest.raises(CorruptJournalRange):
        history.store.records_job(GROUP, 4, 40, 1 << 20).execute()


def test_a_copy_of_a_damaged_record_is_in_an_answer_of_the_index_file():
    """And so is the index of a record that is missing, among those that are lacking."""
    history = filled()
    store = history.store
    log = store.table.logs[GROUP]
    known = [each for each in history.logs[GROUP] if each.batch]
    lost, copied = known[3], known[5]
    job = store.records_job(GROUP, 4, 40, 1 << 20)
    assert isinstance(job, RowRecordsJob)
    assert {lost.index, copied.index} <= {entry.index for entry in job.execute()}
    for entry in (lost, copied):
        lose(history, entry)
    staged = store.repair.stage_copies(GROUP, [copied], lambda: None)
    staged.execute()
    store.finish(staged)
    assert log.records.missing.keys() == {lost.index}
    job = store.records_job(GROUP, 4, 40, 1 << 20)
    found = [entry.index for entry in job.execute()]
    assert copied.index in found and lost.index not in found and found == sorted(found)
    assert job.lacking == ((lost.index, lost.index),)
    with pytest.raises(CorruptRange):
        history.fetch(GROUP, lost.partition, lost.base_offset, 1)


def test_a_peer_ends_the_search_for_a_record_that_was_in_an_index_file_alone():
    """Nothing in memory tells its partition, and so its log start."""
    history = filled()
    lost = [each for each in history.logs[GROUP] if each.batch][3]
    lose(history, lost)
    history.raise_log_start(GROUP, partitions(GROUP).index(lost.partition), 0)
    history.apply(GROUP, 0)
    history.trim(GROUP)
    history.store.repair.forget_holes(GROUP, [lost.index])
    assert not history.store.table.logs[GROUP].records.missing
    wanted = [(lost.index, ANY_COMMITTED)]
    assert history.store.repair.compacted(GROUP, wanted) == wanted, "so does this one, for others"
    assert not history.store.repair.copy_jobs(GROUP, wanted, 1 << 20)
    history.check()


def test_a_peer_ends_the_search_for_a_record_that_the_log_start_has_passed():
    """Its place is in memory, and those of the batches behind it are not."""
    history = History()
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    log, repair = history.store.table.logs[GROUP], history.store.repair
    lost, behind = [each for each in history.batches(GROUP, partitions(GROUP)[0])][:2]
    assert repair.record_damage(GROUP, lost.index, "found by a read")
    seal(history.store)
    checkpoint(history.store, {})
    release(history.store)
    assert log.records.in_file(behind.index) is not None
    repair.forget_holes(GROUP, [lost.index])
    assert log.records.missing, "needed here, whatever a peer has deleted"
    history.append(GROUP, Entry(EntryKind.LOG_START, GROUP, 1, 1, history.next_index(GROUP),
                                lost.partition, behind.base_offset))
    history.apply(GROUP, 0)
    history.trim(GROUP)
    assert log.records.missing, "nothing in memory tells where it ends"
    assert repair.forget_holes(GROUP, [lost.index])
    assert not log.records.missing
    history.check()
    history.restart()
    history.check()


def lose(history: History, entry: Entry) -> None:
    """Have damage found of a record that is in an index file alone."""
    table = history.store.table
    index = table.logs[GROUP].partitions[entry.partition]
    batch = looked_up(history.store, lambda: next(index.batches_from(entry.base_offset,
                                                                     table.indexed.blocks)))
    assert batch.index == entry.index and batch.place is not None
    start = table.indexed.with_number(batch.place.file).segment.start
    assert history.store.repair.record_damage(
        GROUP, entry.index, "found by a test", start + batch.place.position, batch.place.size)


def test_answers_of_an_index_file_leave_out_records_below_all_log_starts():
    """The file has rows of them, and nothing tells their terms any longer."""
    history = History(SMALL)
    for at in range(120):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    batches = [each for each in history.logs[GROUP] if each.batch]
    first, gone = batches[0].index, batches[0].partition
    history.raise_log_start(GROUP, partitions(GROUP).index(gone), 0)
    history.apply(GROUP, 0)
    store = history.store
    log = store.table.logs[GROUP]
    log.trim(store.partition_states[GROUP], partitions(GROUP))
    history.release()
    history.forget_blocks()
    needed = log.records.terms[0][0]
    assert first < needed == batches[1].index
    job = store.records_job(GROUP, first, needed + 10, 1 << 20)
    assert isinstance(job, RowRecordsJob)
    found = [entry.index for entry in job.execute()]
    assert needed in found and first not in found
    wanted = [(first, ANY_COMMITTED), (needed, ANY_COMMITTED)]
    jobs = store.repair.copy_jobs(GROUP, wanted, 1 << 20)
    assert [entry.index for each in jobs for entry in each.execute()] == [needed]
    assert store.repair.compacted(GROUP, wanted) == wanted[:1], "a member asks for it for ever else"
