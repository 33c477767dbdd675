"""Reads of single entries of a sealed segment, by its index instead of a scan.

Contract.  ``unapplied_ranges`` says which entries lie above the applied state, or that the index
cannot tell; ``read_unapplied`` puts them where a scan would have put them, or reports one that
cannot be read.  In both cases recovery scans the segment then and decides: nothing here is
damage.

Theory.  A segment has entries of many groups, and at a start a few of them are usually behind: one
without a leader, or whose entries came after the checkpoint.  A scan parses every entry of all of
them; the index names the places of those that are wanted.  What it names was in the log when the
segment was sealed, truncations considered, so it is what a scan would find, in the same order.
O(groups + wanted entries), and the bytes between wanted entries that are not worth a read of their
own.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft import core
from multiraft.errors import CorruptEntry
from multiraft.storage.filesystem import File
from multiraft.storage.journal.freed_payload import freed
from multiraft.storage.journal.segment_index import Applied, SegmentIndex, SegmentRun
from multiraft.types import Entry, EntryKind

#: Bytes between two wanted entries that are read through rather than skipped: a read costs about
#: as much as so many bytes.
GAP_BYTES_MAX = 64 << 10

_DATA = EntryKind.DATA


class UnappliedRange(NamedTuple):
    """Entries of one group that its partition states have not applied, up to the last one of the
    segment's run."""

    run: SegmentRun
    first: int


def unapplied_ranges(index: SegmentIndex, applied: Applied,
                     known_to: int) -> list[UnappliedRange] | None:
    """Return, for each group with entries above its applied index, the first of them; None = only a
    scan can tell.

    None is returned if a tombstone stands behind the checkpoint's position ``known_to``, because
    the entries behind it are all needed then.  Also if copies or lost entries are among those
    above: an index file keeps neither the copies' entries nor what is missing."""
    above = []
    for run in index.runs.values():
        if run.tombstone_position >= known_to > 0:
            return None
        known = applied.get((run.group, run.incarnation), 0)
        if run.copies and any(copy.index > known for copy in run.copies):
            return None
        entries = run.index
        if entries is not None and entries.last_index > known:
            if entries.has_unknown_position:
                return None
            above.append(UnappliedRange(run, max(entries.first_index, known + 1)))
    return above


def read_unapplied(index: SegmentIndex, above: list[UnappliedRange], file: File) -> bool:
    """Read the entries of these ranges from the segment's file into ``unapplied_entries`` of each
    run.  Return False if one of them is not the expected one; then the segment has to be
    scanned."""
    places: list[tuple[int, int, SegmentRun, int]] = []
    for run, first in above:
        entries = run.index
        assert entries is not None
        places += [(entries.position(at), entries.size(at), run, at)
                   for at in range(first, entries.last_index + 1)]
    places.sort(key=_position)
    at = 0
    while at < len(places):
        end = _span_end(places, at)
        if not _read_span(index.start, places[at:end], file):
            return False
        at = end
    return True


def _position(place: tuple) -> int:
    return place[0]


def _span_end(places: list[tuple], at: int) -> int:
    """Return the slot behind the last place that is worth one read together with the place in slot
    ``at``."""
    end = places[at][0] + places[at][1]
    at += 1
    while at < len(places) and places[at][0] - end <= GAP_BYTES_MAX:
        end = places[at][0] + places[at][1]
        at += 1
    return at


def _read_span(start: int, places: list[tuple[int, int, SegmentRun, int]], file: File) -> bool:
    """Read the entries at ``places``, and the gaps between them, in one read, and add them to their
    runs. Return False if an entry is not the expected one."""
    begin = places[0][0]
    data = memoryview(file.read(places[-1][0] + places[-1][1] - begin, begin - start))
    at = 0
    while at < len(places):
        first, end = places[at][0], places[at][0]
        wanted = []
        while at < len(places) and places[at][0] == end:
            end += places[at][1]
            wanted.append(places[at])
            at += 1
        try:
            found = core.parse_entries(data[first - begin:end - begin])
        except CorruptEntry:
            return False
        if len(found) != len(wanted) or not all(map(_take, wanted, found)):
            return False
    return True


def _take(place: tuple[int, int, SegmentRun, int], entry: Entry) -> bool:
    """Add the entry to its run; return False, and add nothing, if its group, incarnation, index or
    term is not that of ``place``.  Of a batch only the fields and the length are kept, so that the
    bytes can be freed."""
    _, _, run, index = place
    assert run.index is not None
    if (entry.group, entry.incarnation, entry.index, entry.term) != (
            run.group, run.incarnation, index, run.index.term(index)):
        return False
    if entry.kind == _DATA:
        entry = Entry(entry.kind, entry.group, entry.incarnation, entry.term, index,
                      entry.partition, entry.base_offset, freed(len(entry.payload)), entry.batch)
    run.unapplied_entries.append(entry)
    return True
