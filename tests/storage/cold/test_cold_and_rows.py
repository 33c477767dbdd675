"""Cold segments beside index files that answer for records, and beside snapshots and copies."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft.storage.cold.cleaning_policy import Sources
from multiraft.storage.cold.cold_segment import is_cold, number_of
from tests.storage.cold.test_cleaner import copied, worked
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
from tests.storage.world import seal

GROUP = GROUPS[0]


def work(history: History) -> None:
    """All work of the cleaner that is due, after one more checkpoint."""
    for _ in range(2):
        history.compact(GROUP, 1 << 30)
    worked(history.store)


def clean(history: History) -> int:
    """Copy the records of all segments that may be copied, and return their number."""
    cleaner = history.store.cleaner
    worked(history.store)
    job = copied(history.store, Sources(tuple(
        each for each in cleaner._facts if each.records and not cleaner.is_source(each.start)
        and not (each.is_cold and number_of(each.start) in cleaner._waiting))))
    return job.contents.records if job is not None else 0


def cold_places(history: History) -> int:
    return sum(is_cold(position) for log in history.store.table.logs.values()
               for position in log.records._positions)


class Cleaned(History):
    """A history of a store that copies records to cold segments as well."""

    def clean(self) -> None:
        clean(self)

    def work(self) -> None:
        work(self)


cleans = st.one_of(st.tuples(st.just("clean")), st.tuples(st.just("clean")),
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


def test_what_index_files_answer_is_not_copied():
    """Its places are not in memory."""
    history = sealed()
    history.release()
    assert rows(history)
    assert not clean(history) and not history.store.cleaner._facts
    history.restart()
    work(history)
    assert rows(history) and not clean(history)
    history.check()


def test_a_choice_that_index_files_answer_by_now_is_left_out():
    history = sealed()
    chosen = Sources(tuple(each for each in history.store.cleaner._facts if each.records))
    history.release()
    assert history.store.cleaner.copy_job(chosen) is None


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
