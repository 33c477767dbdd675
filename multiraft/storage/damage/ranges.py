"""Arithmetic of ranges of stored bytes, [begin, end) each.

Contract.  Pure functions of pairs of addresses, which are all places or all journal offsets, in any
order, overlapping or not.  An empty range (``begin`` = ``end``) is an address at which an unknown
number of bytes is missing; it is covered by a range that holds it or ends there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from multiraft.storage.damage.place import Place

At = TypeVar("At", Place, int)


def uncovered(begin: At, end: At, known: Iterable[tuple[At, At]]) -> list[tuple[At, At]]:
    """Return the parts of a range that are in none of ``known``, ascending.  O(n log n)."""
    parts: list[tuple[At, At]] = []
    if begin >= end:
        if not any(first <= begin <= last for first, last in known):
            parts.append((begin, begin))
        return parts
    for first, last in sorted(known):
        if last <= begin or first == last:
            continue
        if first >= end:
            break
        if first > begin:
            parts.append((begin, first))
        begin = last
    if begin < end:
        parts.append((begin, end))
    return parts


def merged(ranges: Iterable[tuple[At, At]]) -> list[tuple[At, At]]:
    """Return the ranges ascending, with those that overlap or touch joined.  O(n log n)."""
    found: list[tuple[At, At]] = []
    for begin, end in sorted(ranges):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
