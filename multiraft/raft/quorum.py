"""Majority arithmetic over one set of voters: size, reached index, outcome of a vote.

Contract.  Pure functions.  ``joint_quorum.py`` combines them for joint configurations; no other
module counts voters.

Theory.  A majority of n is n // 2 + 1, also for even n: of 4 voters 3 are needed, because 2 and 2
would be two majorities.  The committed index of a set is the highest index that a majority has
reached: sort the indexes and take the one at the majority's position.  An empty set decides nothing
and must never decide alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence


class Vote(enum.IntEnum):
    """Outcome of an election by the votes counted so far."""

    PENDING = 0
    WON = 1
    LOST = 2


def majority(voters: int) -> int:
    """Return the smallest number of ``voters`` such that two sets of that size always overlap."""
    return voters // 2 + 1


def reached(indexes: Sequence[int]) -> int:
    """Return the highest index that a majority has reached, given one index per voter.  O(n log
    n)."""
    assert indexes, "no voters"
    return sorted(indexes)[len(indexes) - majority(len(indexes))]


def supported(voters: Collection[int], supports: Callable[[int], bool]) -> bool:
    """True if ``supports`` is true for a majority of ``voters``.  False without voters."""
    count = 0
    for voter in voters:
        if supports(voter):
            count += 1
    return count >= majority(len(voters))


def tally(voters: Collection[int], votes: dict[int, bool]) -> Vote:
    """Return the outcome of ``votes`` among ``voters``.  A missing vote is pending; votes of other
    nodes do not count."""
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
