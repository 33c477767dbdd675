"""Who leads what, as a number that two nodes can compare.

Contract.  ``LeadershipDigest`` holds (group, incarnation, term) facts about one peer in 64 buckets,
each a sum modulo 2^64; adding and removing is O(1), so sums are kept up to date at each change and
never computed.  Equal sums mean equal sets, but for a chance of 2^-64; nothing about safety rests
on it. Theory.  Addition commutes, so two nodes that learned the same facts in another order agree,
and a fact can be taken back.  The mix is splitmix64's finaliser (Steele, Lea, Flood 2014) over the
three numbers in turn, keyed so that the sums are this protocol's own.  A group's bucket is its id
modulo 64: on a mismatch 64 numbers tell where, and only those groups are listed.
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
    """64-bit hash of "this node leads ``group`` of that incarnation in ``term``"."""
    value = _mix((_KEY + group) & _MASK)
    value = _mix((value + incarnation) & _MASK)
    return _mix((value + term) & _MASK)


class LeadershipDigest:
    """The sum of the facts about one peer, by bucket."""

    __slots__ = ("total", "buckets")

    def __init__(self) -> None:
        self.total = 0
        self.buckets = [0] * BUCKETS

    def add(self, group: int, value: int) -> None:
        """``value`` (a ``fact``) holds now."""
        self.total = (self.total + value) & _MASK
        bucket = group % BUCKETS
        self.buckets[bucket] = (self.buckets[bucket] + value) & _MASK

    def remove(self, group: int, value: int) -> None:
        """``value`` does not hold any more."""
        self.add(group, -value)
