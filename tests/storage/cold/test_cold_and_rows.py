"""Cold segments beside index files that answer for records, and beside snapshots and copies."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import PowerLoss
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.cold.cleaning_policy import CleaningLimits, Sources
from multiraft.storage.cold.cold_segment import is_cold, number_of
from tests.storage.cold.test_cleaner import copied, executed, surveyed, worked
from tests.storage.damage import DIRECTORY
from tests.storage.test_indexed_records import GROUPS, History, compacted, others, runs
from tests.storage.test_installed_rows import (
    check_partial,
    copy,
    copy_all,
    follower,
    install,
    leader_with,
    page_cache,
    rows,
)
from tests.storage.world import open_store, seal

GROUP = GROUPS[0]


def work(history: History) -> None:
    """All work of the cleaner that is due, after one more checkpoint."""
    for _ in range(2):
        history.compact(GROUP, 1 << 30)
    worked(history.store)


def clean(history: History, first: int = 0, step: int = 1) -> int:
    """Copy the records of all segments that may be copied, or of each ``step``-th of them, and
    return their number."""
    cleaner = history.store.cleaner
    worked(history.store)
    job = copied(history.store, Sources(tuple([
        each for each in cleaner._facts if each.records and not cleaner.is_source(each.start)
        and not (each.is_cold and number_of(each.start) in cleaner._waiting)][first::step])))
    return job.contents.records if job is not None else 0


def in_memory(history: History) -> int:
    """Number of records in cold segments whose places are in memory."""
    return sum(is_cold(position) for log in history.store.table.logs.values()
               for position in log.records._positions)


def cold_places(history: History) -> int:
    """Number of records in cold segments, about: also those that have left a block in part."""
    indexed = history.store.table.indexed
    return in_memory(history) + sum(each.batches for each in indexed._by_start.values()
                                    if is_cold(each.segment.start))


def source_rows(history: History) -> int:
    """Number of rows of segments of the journal."""
    return sum(each.rows for each in history.store.table.indexed._by_start.values()
               if not is_cold(each.segment.start))


class Cleaned(History):
    """A history of a store that copies records to cold segments as well."""

    def clean(self) -> None:
        clean(self)

    def clean_some(self, first: int, step: int) -> None:
        clean(self, first, step)

    def work(self) -> None:
        work(self)


cleans = st.one_of(st.tuples(st.just("clean")),
                   st.tuples(st.just("clean_some"), st.integers(0, 2), st.integers(2, 3)),
                   st.tuples(st.just("clean_some"), st.integers(0, 2), st.integers(2, 3)),
                   st.tuples(st.just("work")), st.tuples(st.just("work")))
#: Truncations are met by the tests of each of the two; they concern nothing below Raft starts.
kept = others.filter(lambda each: each[0] != "elect")
scripts = st.lists(st.one_of(runs, st.one_of(kept, cleans).map(lambda each: [each])),
                   max_size=30).map(lambda parts: [each for part in parts for each in part])
FILLED = [("put", 1 + at % 2, at % 3, 1 + at % 50) for at in range(60)]
BELOW = [("apply", 1, 0), ("apply", 2, 0), ("compact", 1, 0), ("compact", 2, 0)]


@pytest.mark.parametrize("resident", [True, False])
@given(script=scripts)
@example([*FILLED, *BELOW, ("release",), ("work",), ("clean",), ("work",), ("remove",)])
@example([*FILLED, *BELOW, ("work",), ("clean",), ("release",), ("work",), ("release",),
          ("remove",), ("restart",), ("release",)])
@example([*FILLED, *BELOW, ("work",), ("clean",), ("work",), *FILLED, *BELOW, ("release",),
          ("raise_log_start", 1, 0, 2), ("apply", 1, 0), ("trim", 1), ("work",), ("remove",)])
@example([*FILLED, *BELOW, ("release",), ("work",), ("clean_some", 0, 2), ("work",),
          ("forget_blocks",), ("clean_some", 1, 2), ("work",), ("remove",), ("restart",)])
@example([*FILLED, *BELOW, ("release",), ("work",), ("clean_some", 0, 2), ("work",),
          ("raise_log_start", 1, 0, 5), ("raise_log_start", 2, 1, 3), ("apply", 1, 0),
          ("apply", 2, 0), ("trim", 1), ("trim", 2), ("clean",), ("work",), ("remove",)])
@settings(deadline=None, max_examples=15)
def test_cold_segments_and_index_files_answer_as_lists_do(resident, script):
    with page_cache(resident):
        history = Cleaned()
        for what, *how in script:
            getattr(history, what)(*how)
        history.check()
        compacted(history)
        history.release()
        history.clean()
        history.work()
        history.release()
        history.check()
        history.restart()
        history.check()


def sealed() -> History:
    """Some segments, everything below the Raft start in both checkpoints, and sealed."""
    history = Cleaned()
    for at in range(80):
        history.put(GROUPS[at % 2], at % 3, at)
    compacted(history)
    seal(history.store)
    work(history)
    return history


def test_sources_of_a_cold_segment_stay_in_memory_until_they_go():
    history = sealed()
    assert clean(history)
    sources = next(iter(history.store.cleaner._waiting.values())).sources
    history.release()
    assert not any(history.store.table.indexed.find(start) for start in sources)
    work(history)
    assert cold_places(history)
    history.release()
    for log in history.store.table.logs.values():
        assert not any(each.segment.segment.start in sources for each in log.records._ranges)
    for _ in range(3):
        history.remove()
    assert not sources & {each.start for each in history.store.table.journal.segments}
    history.check()


def released() -> History:
    """Segments whose records are in index files alone."""
    history = sealed()
    history.release()
    history.store.cleaner._limits = CleaningLimits()
    work(history)
    assert rows(history)
    return history


@pytest.mark.parametrize("restart", [False, True])
def test_records_that_index_files_answer_are_copied_and_their_segments_go(restart):
    history = released()
    if restart:
        history.restart()
        history.store.cleaner._limits = CleaningLimits()
        work(history)
    count = sum(len(history.batches(group, partition))
                for group in GROUPS for partition in range(10 * group, 10 * group + 3))
    assert clean(history) >= count - 30, "the last segment is not sealed"
    sources = next(iter(history.store.cleaner._waiting.values())).sources
    history.check()
    work(history)
    assert cold_places(history) and not in_memory(history) and not source_rows(history)
    history.check()
    for _ in range(3):
        history.remove()
    assert not sources & {each.start for each in history.store.table.journal.segments}
    history.check()
    for _ in range(2):
        history.restart()
        history.check()


def test_an_unsurveyed_choice_that_index_files_answer_is_left_out():
    history = sealed()
    chosen = Sources(tuple(each for each in history.store.cleaner._facts if each.records))
    history.release()
    assert history.store.cleaner.copy_job(chosen) is None
    history.check()


def test_only_live_records_of_index_files_are_copied():
    history = released()
    for group in GROUPS:
        for at in range(3):
            history.raise_log_start(group, at, 2)
        history.apply(group, 0)
        history.trim(group)
    work(history)
    assert clean(history) <= 2 * 3 * 2
    work(history)
    for _ in range(3):
        history.remove()
    history.check()
    history.restart()
    history.check()


@pytest.mark.parametrize("when", ["copied", "named"])
def test_records_that_leave_during_the_copy_stay_away(when):
    """Those of one partition, and those of a deleted one would as well."""
    history = released()
    cleaner = history.store.cleaner
    sources = Sources(tuple(each for each in cleaner._facts if each.records))
    surveys = surveyed(history.store, sources)
    if when == "named":
        copied(history.store, sources)
    history.raise_log_start(GROUP, 0, 1)
    history.apply(GROUP, 0)
    history.trim(GROUP)
    if when == "copied":
        job = cleaner.copy_job(sources, surveys)
        while not job.is_done:
            job.step()
        assert not cleaner.copied(job)
    history.check()
    work(history)
    for _ in range(3):
        history.remove()
    history.check()
    assert not source_rows(history)
    history.restart()
    history.check()


def test_a_cold_segment_without_room_leaves_rows_to_the_next():
    history = released()
    cleaner = history.store.cleaner
    cleaner._limits = type(cleaner._limits)(records_max=25)
    total = 0
    for _ in range(20):
        count = clean(history)
        total += count
        work(history)
        history.check()
        if not source_rows(history):
            break
    assert not source_rows(history) and total > 50
    for _ in range(3):
        history.remove()
    history.restart()
    history.check()


@pytest.mark.parametrize("repaired", [False, True])
def test_a_damaged_record_of_an_index_file_keeps_its_segment(repaired):
    history = released()
    store = history.store
    sources = Sources(tuple(each for each in store.cleaner._facts if each.records))
    surveys = surveyed(store, sources)
    run = surveys[0].runs[0]
    index, position, start = run.indexes[1], run.positions[1], surveys[0].start
    segment = surveys[0].indexed.segment
    history.filesystem.flip(segment.path, position - segment.start + 70, 1)
    job = store.cleaner.copy_job(sources, surveys)
    while not job.is_done:
        job.step()
    assert [(each.group, each.index) for each in job.damaged] == [(run.group, index)]
    assert [(each.group, each.index) for each in store.cleaner.copied(job)] == [
        (run.group, index)]
    for _ in range(2):
        work(history)
        history.remove()
    assert start in [each.start for each in store.table.journal.segments] and source_rows(history)
    if repaired:
        assert store.repair.record_damage(run.group, index, "test",
                                          position, run.sizes[1])
        staged = store.repair.stage_copies(run.group, [history.logs[run.group][index - 1]],
                                           lambda: None)
        staged.execute()
        store.finish(staged)
        for _ in range(3):
            work(history)
            clean(history)
            history.remove()
        assert start not in [each.start for each in store.table.journal.segments]
        history.check()


def test_a_record_that_is_repaired_between_survey_and_copy_stays_the_newer_one():
    history = released()
    store = history.store
    sources = Sources(tuple(each for each in store.cleaner._facts if each.records))
    surveys = surveyed(store, sources)
    run = surveys[0].runs[0]
    index = run.indexes[0]
    assert store.repair.record_damage(run.group, index, "test",
                                      run.positions[0], run.sizes[0])
    staged = store.repair.stage_copies(run.group, [history.logs[run.group][index - 1]],
                                       lambda: None)
    staged.execute()
    store.finish(staged)
    at = store.table.logs[run.group].records.locate(index).position
    job = store.cleaner.copy_job(sources, surveys)
    while not job.is_done:
        job.step()
    store.cleaner.copied(job)
    work(history)
    assert store.table.logs[run.group].records.locate(index).position == at
    history.check()
    history.restart()
    history.check()


def copied_but_for_one(history: History):
    """Records in a cold segment but for the first of a source, which is damaged, and the source's
    run of these."""
    store = history.store
    sources = Sources(tuple(each for each in store.cleaner._facts if each.records))
    surveys = surveyed(store, sources)
    run = surveys[0].runs[0]
    history.filesystem.flip(surveys[0].indexed.segment.path,
                            run.positions[0] - surveys[0].start + 70, 1)
    job = store.cleaner.copy_job(sources, surveys)
    while not job.is_done:
        job.step()
    assert [each.index for each in store.cleaner.copied(job)] == [run.indexes[0]]
    lose(history, run, 0)
    return run


def lose(history: History, run, at: int) -> None:
    assert history.store.repair.record_damage(run.group, run.indexes[at], "test",
                                              run.positions[at], run.sizes[at])


def repair_first(history: History, run) -> None:
    """A peer's copy of the damaged record, and all work of the cleaner."""
    staged = history.store.repair.stage_copies(
        run.group, [history.logs[run.group][run.indexes[0] - 1]], lambda: None)
    staged.execute()
    history.store.finish(staged)
    for _ in range(3):
        work(history)
        clean(history)
        history.remove()
    history.check()


def test_a_record_that_is_lost_behind_its_copy_is_read_from_the_copy():
    """The index file of the source answers still, because another record could not be copied. The
    lost one is in the index of its partition again, which has no slot of it while it is lost."""
    history = released()
    run = copied_but_for_one(history)
    lose(history, run, 1)
    work(history)
    log = history.store.table.logs[run.group]
    log._check()
    assert [*log.records.missing] == [run.indexes[0]]
    assert is_cold(log.records.locate(run.indexes[1]).position)
    repair_first(history, run)


def test_a_copy_that_is_the_first_record_hides_no_terms_at_a_start():
    """Those behind it are in cold segments, and a record of unknown term cannot be read."""
    history = released()
    run = copied_but_for_one(history)
    repair_first(history, run)
    terms = history.store.table.logs[run.group].records.terms
    history.restart()
    assert history.store.table.logs[run.group].records.terms == terms
    history.check()


def test_surveys_are_due_when_batches_left():
    history = released()
    cleaner = history.store.cleaner
    first = history.store.table.journal.segments[0].start
    while (job := cleaner.survey_job()) is not None:
        assert job.start == first, "it has entries that are no batches"
        cleaner.surveyed(executed(history.store, job))
    before = cleaner.live_bytes
    for group in GROUPS:
        history.raise_log_start(group, 0, 0)
        history.raise_log_start(group, 1, 0)
        history.apply(group, 0)
        history.trim(group)
    work(history)
    done = 0
    while (job := cleaner.survey_job()) is not None:
        cleaner.surveyed(executed(history.store, job))
        done += 1
    assert done and cleaner.live_bytes < before * 2 // 3
    exact = sum(job.live_bytes for job in surveyed(history.store, Sources(tuple(
        each for each in cleaner._facts))))
    assert cleaner.live_bytes == exact
    work(history)
    assert cleaner.survey_job() is None and cleaner.live_bytes == exact


def test_power_loss_at_every_operation_of_a_copy_from_index_files_leaves_a_start_that_works():
    over, limit, cold_starts = False, 0, 0
    while not over:
        history = released()
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
        if limit % 2:
            newest = checkpoint_names(filesystem, DIRECTORY)[-1]
            filesystem.flip(f"{DIRECTORY}/{newest}", 40, 1)
        history.store = open_store(filesystem, DIRECTORY, history.config)
        history.store.damage.clear()
        history.check()
        cold_starts += bool(len(history.store.table.journal.cold))
        for _ in range(3):
            work(history)
            for group in GROUPS:
                history.compact(group, 0)
            history.release()
            history.remove()
        history.check()
        limit += 7
    assert limit > 50 and cold_starts


# ---- snapshots and copies ------------------------------------------------------------------------


OWN = 60  # entries that the member has


def installed() -> tuple[History, History]:
    """A member whose own records are in a cold segment, with a snapshot; and its leader."""
    leader = leader_with(90)
    history = follower(leader, OWN)
    for group in GROUPS:
        history.compact(group, 0)
    seal(history.store)
    work(history)
    assert clean(history)
    work(history)
    assert cold_places(history)
    install(history, leader)
    return history, leader


@pytest.mark.parametrize("restart", [False, True])
def test_records_in_cold_segments_stay_when_a_snapshot_is_installed(restart):
    history, leader = installed()
    before = cold_places(history)
    if restart:
        history.restart()
    assert cold_places(history) == before
    check_partial(history, OWN)
    copy_all(history, leader)
    history.check()
    history.restart()
    copy_all(history, leader)
    history.check()


@pytest.mark.parametrize("restart", [False, True])
def test_copies_move_to_cold_segments_and_their_segments_go(restart):
    """While others are still to be copied."""
    history, leader = installed()
    for _ in range(8):
        copy(history, leader, 600)
    uncopied = history.store.uncopied(GROUP)
    assert uncopied
    history.store.table.journal.start_segment()
    seal(history.store)
    work(history)
    before = cold_places(history)
    assert clean(history)
    work(history)
    assert cold_places(history) > before
    for _ in range(3):
        history.remove()
    if restart:
        history.restart()
    assert history.store.uncopied(GROUP) == uncopied
    check_partial(history, uncopied[0][0] - 1)
    copy_all(history, leader)
    history.check()
    history.restart()
    copy_all(history, leader)
    history.check()
