"""The cleaner keeps the space of a node near its live bytes, with bounded work and space."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.storage.cold.cleaner_pace import CleanerPace
from multiraft.storage.cold.cleaning_policy import (
    COLD_SEGMENTS_MAX,
    LIVE_RATIO_MAX,
    SMALL_SEGMENTS_MAX,
    SOURCES_MAX,
    CleaningLimits,
    SegmentFacts,
    Sources,
    Space,
    next_sources,
    space_for,
)

MIB = 1 << 20
LIMITS = CleaningLimits()


def facts(start: int, live: float, size: int = 64 * MIB, age: int = 100 * MIB,
          records: int = 1000, is_cold: bool = False) -> SegmentFacts:
    return SegmentFacts(start, size, int(size * live), records if live else 0, age, is_cold)


def starts(sources: Sources) -> list[int]:
    return [each.start for each in sources.segments]


# ---- choice --------------------------------------------------------------------------------------


def test_the_most_freed_space_for_the_least_work_comes_first():
    chosen = next_sources([facts(1, 0.6), facts(2, 0.1), facts(3, 0.3)], 0, LIMITS)
    assert starts(chosen) == [2, 3, 1]
    chosen = next_sources([facts(1, 0.6), facts(2, 0.5), facts(3, 0.3)], 0, LIMITS)
    assert starts(chosen) == [3, 2], "the third does not fit"


def test_the_older_of_two_comes_first():
    chosen = next_sources([facts(1, 0.6, age=10 * MIB), facts(2, 0.6, age=90 * MIB)], 0, LIMITS)
    assert starts(chosen) == [2]


def test_nothing_is_copied_while_all_segments_together_have_little_to_free():
    """A segment that dies by itself is not worth a copy."""
    segments = [facts(1, 0.3), *(facts(at, 1.0) for at in range(2, 9))]
    assert not next_sources(segments, 0, LIMITS).segments
    assert starts(next_sources(segments, 0, LIMITS, is_short=True)) == [1]
    assert starts(next_sources(segments[:2], 0, LIMITS)) == [1]


def test_segments_with_many_live_bytes_or_none_stay():
    assert not next_sources([facts(1, LIVE_RATIO_MAX + 0.001), facts(2, 0.9), facts(3, 0.0)], 0,
                            LIMITS, is_short=True).segments


def test_little_is_not_worth_a_file_unless_the_disk_is_short():
    little = [facts(1, 0.5, 20 * MIB)]
    assert not next_sources(little, 0, LIMITS).segments
    assert starts(next_sources(little, 0, LIMITS, is_short=True)) == [1]
    assert starts(next_sources([*little, facts(2, 0.5, 20 * MIB)], 0, LIMITS)) == [1, 2]


def test_a_segment_with_more_than_a_cold_segment_holds_is_copied_in_parts():
    large = facts(1, 0.5, 1 << 30)
    chosen = next_sources([large], 0, LIMITS)
    assert starts(chosen) == [1] and not chosen.is_whole and not chosen.freed_bytes
    assert not next_sources([facts(1, 0.5, records=70_000)], 0, LIMITS).is_whole


def test_many_small_cold_segments_are_joined():
    small = [facts(at, 1.0, MIB, age=at, is_cold=True) for at in range(SMALL_SEGMENTS_MAX + 1)]
    assert not next_sources(small[1:], 0, LIMITS).segments
    assert starts(next_sources(small, 0, LIMITS)) == [*reversed(range(len(small)))]
    assert not next_sources(small, 0, LIMITS, is_short=True).segments, "it frees nothing"


def test_at_the_limit_of_cold_segments_only_these_are_copied():
    segments = [facts(1, 0.1), facts(2, 0.3, is_cold=True)]
    assert starts(next_sources(segments, COLD_SEGMENTS_MAX, LIMITS)) == [2]
    assert starts(next_sources(segments, COLD_SEGMENTS_MAX - 1, LIMITS)) == [1, 2]


@given(st.lists(st.builds(facts, st.integers(0, 1 << 40), st.floats(0, 1),
                          st.integers(1, 1 << 30), st.integers(0, 1 << 40),
                          st.integers(1, 100_000), st.booleans()), max_size=400),
       st.booleans())
def test_a_choice_is_bounded_and_no_segment_is_chosen_twice(segments, is_short):
    unique = [*{each.start: each for each in segments}.values()]
    chosen = next_sources(unique, 0, LIMITS, is_short)
    assert len(set(starts(chosen))) == len(chosen.segments) <= SOURCES_MAX
    assert all(each in unique and each.records for each in chosen.segments)
    if chosen.is_whole:
        assert chosen.taken_bytes <= LIMITS.bytes_max
        assert sum(each.records for each in chosen.segments) <= LIMITS.records_max
    else:
        assert len(chosen.segments) == 1


# ---- space ---------------------------------------------------------------------------------------


def test_the_reserve_is_used_only_where_more_is_free_in_the_end():
    frees = Sources((facts(1, 0.25),))
    assert space_for(frees, 100 * MIB, 48 * MIB, 0, 0, 3) is Space.FREE
    assert space_for(frees, 60 * MIB, 48 * MIB, 192 * MIB, 64 * MIB, 0) is Space.RESERVE
    assert space_for(frees, 0, 48 * MIB, 192 * MIB, 64 * MIB, 1) is Space.NONE, "one at a time"
    assert space_for(frees, 0, 48 * MIB, 70 * MIB, 64 * MIB, 0) is Space.NONE, "no checkpoint"
    more = Sources((facts(1, 1.0),))
    assert space_for(more, 0, 48 * MIB, 192 * MIB, 64 * MIB, 0) is Space.NONE
    parts = Sources((facts(1, 0.25),), is_whole=False)
    assert space_for(parts, 0, 48 * MIB, 192 * MIB, 64 * MIB, 0) is Space.NONE


# ---- space of a node over time -------------------------------------------------------------------


@dataclass
class File:
    start: int
    size: int
    expiries: list[float]  # of its records, each of one MiB
    is_cold: bool


class Node:
    """A journal with records of several retention times, and a cleaner that is asked at times."""

    def __init__(self, retentions: list[float], rng: random.Random):
        self.files: list[File] = []
        self.now = self.written = self.copied = 0
        self._retentions = retentions
        self._rng = rng
        self._next = 0

    def append_segment(self) -> None:
        """One segment a minute, of 64 records of a MiB."""
        self.now += 1
        self.written += 64
        self._add([self.now + self._rng.choice(self._retentions) for _ in range(64)], False)

    def _add(self, expiries: list[float], is_cold: bool) -> None:
        self._next += 1
        self.files.append(File(self._next, len(expiries), expiries, is_cold))

    def clean(self) -> None:
        for file in self.files:
            file.expiries = [each for each in file.expiries if each > self.now]
        self.files = [file for file in self.files if file.expiries]
        by_start = {file.start: file for file in self.files}
        while True:
            segments = [SegmentFacts(each.start, each.size * MIB, len(each.expiries) * MIB,
                                     len(each.expiries), (self._next - each.start) * 64 * MIB,
                                     each.is_cold) for each in self.files]
            chosen = next_sources(segments, 0, LIMITS)
            if not chosen.segments:
                return
            assert chosen.is_whole
            sources = [by_start.pop(each.start) for each in chosen.segments]
            self.files = [each for each in self.files if each not in sources]
            self.copied += sum(len(each.expiries) for each in sources)
            self._add([expiry for each in sources for expiry in each.expiries], True)
            by_start[self._next] = self.files[-1]

    @property
    def space(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def live(self) -> int:
        return sum(len(each.expiries) for each in self.files)


@pytest.mark.parametrize(("retentions", "copies_max"), [
    ([60.0, float("inf")], 1.0),
    ([60.0, 60.0, 60.0, float("inf")], 1.0),
    ([5.0, 60.0, 600.0, float("inf")], 2.0),
    ([100.0], 0.0),
    ([10.0, 11.0, 12.0], 0.0),
    ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], 1.0),
])
def test_space_stays_below_one_and_a_half_times_the_live_bytes(retentions, copies_max):
    """One MiB stands for each batch.  Sources go at once here."""
    node = Node(retentions, random.Random(1))
    for _ in range(700):
        node.append_segment()
        node.clean()
        assert node.space <= 1.5 * node.live + 16, (node.now, node.space, node.live)
    assert node.copied <= copies_max * node.written, (node.copied, node.written)
    small = [each for each in node.files if each.is_cold and each.size < 16]
    assert len(small) <= SMALL_SEGMENTS_MAX + 1


# ---- pace ----------------------------------------------------------------------------------------


def test_steps_keep_the_pace():
    pace = CleanerPace(1000)
    assert pace.due_s(5.0) == 5.0
    pace.done(500, 5.0)
    assert pace.due_s(5.0) == 5.5
    pace.done(500, 5.5)
    assert pace.due_s(5.6) == 6.0
    assert pace.due_s(99.0) == 99.0, "what was not used is not made up for"


def test_a_pause_ends_with_resume():
    pace = CleanerPace(1000)
    pace.done(1000, 0.0)
    pace.pause()
    assert pace.due_s(50.0) == float("inf")
    assert pace.resume() and pace.due_s(50.0) == 50.0
    assert pace.resume(10) and pace.bytes_per_second == 10
    stopped = CleanerPace(0)
    assert stopped.is_paused and not stopped.resume() and stopped.resume(5)
    assert not stopped.is_paused
