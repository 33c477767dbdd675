"""Arithmetic of majorities: how many, how far, who won.

Contract.  Pure functions over one set of voters.  Joint configurations are combined in
``membership.py``; nothing else in the project counts voters.
Theory.  A majority of n is n // 2 + 1, also for even n: of 4 voters 3 are needed, because 2 and 2
would be two majorities.  The committed index of a set is the highest index that a majority has
reached: sort the indexes, take the one at the majority's place.  An empty set decides nothing and
must never decide alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence


class Vote(enum.IntEnum):
    """What the votes so far amount to."""

    PENDING = 0
    WON = 1
    LOST = 2


def majority(voters: int) -> int:
    """The smallest number of ``voters`` that any other such number overlaps."""
    return voters // 2 + 1


def reached(indexes: Sequence[int]) -> int:
    """Highest index that a majority of voters has reached; one index per voter.  O(n log n)."""
    assert indexes, "no voters"
    return sorted(indexes)[len(indexes) - majority(len(indexes))]


def supported(voters: Collection[int], supports: Callable[[int], bool]) -> bool:
    """Whether a majority of ``voters`` supports.  False for no voters."""
    count = 0
    for voter in voters:
        if supports(voter):
            count += 1
    return count >= majority(len(voters))


def tally(voters: Collection[int], votes: dict[int, bool]) -> Vote:
    """The outcome of ``votes`` (absent = not heard of) among ``voters``; others do not count."""
    granted = refused = 0
    for voter in voters:
        vote = votes.get(voter)
        if vote is True:
            granted += 1
        elif vote is False:
            refused += 1
    needed = majority(len(voters))
    if granted >= needed:
        return Vote.WON
    if len(voters) - refused < needed:
        return Vote.LOST
    return Vote.PENDING
