"""Places of a journal: each offset has one, and they order as the offsets do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.damage.place import Place
from multiraft.storage.journal.journal import Journal, Segment, SegmentHeader, segment_path
from tests.storage.damage import DIRECTORY
from tests.storage.world import SMALL, VOTERS, Rounds, noop_entry, open_store, write

HEADER = SegmentHeader(1, 0, 0, bytes(16), 1, 0)


def journal_with(starts: list[int], next_start: int) -> Journal:
    journal = Journal(SimulatedFilesystem(), DIRECTORY, HEADER, (1,), SMALL)
    segments = [Segment(segment_path(DIRECTORY, start), start, 4096, 0) for start in starts]
    journal.resume(segments, starts[-1] + 64 if starts else next_start, 0, next_start, None)
    return journal


@given(st.sets(st.integers(0, 40), max_size=5), st.integers(41, 50),
       st.integers(0, 60 * 64), st.integers(0, 60 * 64))
def test_places_order_as_their_offsets_do(starts, next_start, one, other):
    journal = journal_with(sorted(64 * start for start in starts), 64 * next_start)
    first, second = journal.place_at(one), journal.place_at(other)
    assert (first.journal_offset, second.journal_offset) == (one, other)
    assert (first < second) == (one < other) and (first == second) == (one == other)


def test_a_place_keeps_its_file_when_the_next_segment_begins():
    store = open_store(SimulatedFilesystem(), DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds, journal = Rounds(store), store.table.journal
    known = {}
    for index in range(1, 130):
        for offset in (journal.position, journal.segments[-1].start + journal.segments[-1].capacity
                       if journal.segments else 0):
            known[offset] = journal.place_at(offset)
        rounds.run(write(1, noop_entry(1, index, 1)))
    assert len(journal.segments) > 1
    assert known == {offset: journal.place_at(offset) for offset in known}
    second = journal.segments[1]
    assert journal.place_at(second.start - 1) == Place(0, second.start - 1)
    assert journal.place_at(second.start) == Place(second.start, 0)
