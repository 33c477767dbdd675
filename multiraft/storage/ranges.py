"""Arithmetic of byte ranges of the journal, [begin, end) each.

Contract.  Pure functions of pairs of journal positions, in any order, overlapping or not.  An empty
range (``begin`` = ``end``) is a position at which an unknown number of bytes is missing; it is
covered by a range that holds it or ends there.
"""

from __future__ import annotations

from collections.abc import Iterable

ByteRange = tuple[int, int]


def uncovered(begin: int, end: int, known: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the parts of a range that are in none of ``known``, ascending.  O(n log n)."""
    if begin >= end:
        return [] if any(first <= begin <= last for first, last in known) else [(begin, begin)]
    parts = []
    for first, last in sorted(known):
        if last <= begin or first == last:
            continue
        if first >= end:
            break
        if first > begin:
            parts.append((begin, first))
        begin = last
    return [*parts, (begin, end)] if begin < end else parts


def merged(ranges: Iterable[ByteRange]) -> list[ByteRange]:
    """Return the ranges ascending, with those that overlap or touch joined.  O(n log n)."""
    found: list[ByteRange] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
