"""Digests of leadership that two nodes compare as one number.

Contract.  ``LeadershipDigest`` holds (group, incarnation, term) facts about one peer in 64 buckets,
each a sum modulo 2^64.  Adding and removing is O(1), so that digests are updated with each change
and never computed.  Equal sums mean equal sets, except with probability 2^-64; safety does not
depend on it.

Theory.  Addition commutes, so two nodes that learned the same facts in different orders agree, and
a fact can be removed again.  The mix is splitmix64's finaliser (Steele, Lea, Flood 2014) over the
three numbers in turn, with a key that makes the sums specific to this protocol.  A group's bucket
is its id modulo 64: after a mismatch, 64 numbers locate the difference, and only groups of those
buckets are listed.
"""

from __future__ import annotations

BUCKETS = 64
_MASK = (1 << 64) - 1
#: First 64 bits of the golden ratio's fraction: the stream constant of splitmix64.
_KEY = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def fact(group: int, incarnation: int, term: int) -> int:
    """Return a 64-bit hash of the fact that a node leads ``group`` of ``incarnation`` in
    ``term``."""
    value = _mix((_KEY + group) & _MASK)
    value = _mix((value + incarnation) & _MASK)
    return _mix((value + term) & _MASK)


class LeadershipDigest:
    """Sum of the facts about one peer, in total and by bucket."""

    __slots__ = ("total", "buckets")

    def __init__(self) -> None:
        self.total = 0
        self.buckets = [0] * BUCKETS

    def add(self, group: int, value: int) -> None:
        """Add ``value``, a ``fact`` about ``group``."""
        self.total = (self.total + value) & _MASK
        bucket = group % BUCKETS
        self.buckets[bucket] = (self.buckets[bucket] + value) & _MASK

    def remove(self, group: int, value: int) -> None:
        """Remove ``value``, a ``fact`` about ``group`` that was added."""
        self.add(group, -value)
