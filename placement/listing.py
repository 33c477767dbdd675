"""Which partitions a planner has to be told of, when there are more than it can be told of.

Contract.  ``listed`` returns the partitions with which ``planner.make_plan`` makes the plan of a
cluster whose partitions are somewhere else, by the million.  Whoever has them passes two functions:
one gives those above a load, one runs ``shedding.relieving`` on *all* partitions of a few groups
that are not listed yet.  Both are asked a few times, and their answers are small.

Theory.  Shares, targets and bounds of groups follow from the groups' sums and from the partitions
that are no sand (``shares.small_load``), so both are exact with these listed.  What relieves a
group is a choice among its own partitions, given its excess and what fits elsewhere, so it can be
made where they are.  Only making room for a large partition needs small ones of other groups: those
that have most room are asked for what they would pass on, in the next round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement.cluster import PartitionRow, Snapshot
from placement.policy import GROUP_INGRESS, Policy
from placement.shares import small_load
from placement.state import State
from placement.switches import Relief, balance_groups, relief

#: Two rounds suffice for most skewed loads; later ones make room for large partitions.
ROUNDS_MAX = 4

#: (least load) -> the partitions above it.
Above = Callable[[int], Sequence[PartitionRow]]
#: (what is wanted, incarnations that are listed) -> what relieves its groups, of the others.
Shed = Callable[[Relief, frozenset[int]], Sequence[PartitionRow]]


class Round(NamedTuple):
    """One question: ``asked`` groups, the partitions that were listed then, and the groups that
    stay above their targets with them."""

    asked: int
    listed: int
    above: int


class Listed(NamedTuple):
    """The partitions; what was asked; whether groups stay above their targets although not all
    partitions are listed."""

    partitions: tuple[PartitionRow, ...]
    rounds: tuple[Round, ...]
    unrelieved: int


def listed(snapshot: Snapshot, policy: Policy, above: Above, shed: Shed) -> Listed:
    """``snapshot`` has every node and group, and no partition.

    As many as ``switches_max`` partitions are moved at most, so when the plan is full already,
    nothing more is asked for.  O(rounds * listed log listed) here.
    """
    if policy.band(GROUP_INGRESS) is None:
        return Listed((), (), 0)
    pool = [row.ingress for row in snapshot.groups if row.id]
    rows = {row.incarnation: row for row in above(small_load(sum(pool), 1, max(1, len(pool))))}
    wanted = relief(State(_with(snapshot, rows), policy), policy)
    rounds: list[Round] = []
    while wanted.excess and len(rounds) < ROUNDS_MAX:
        more = shed(wanted, frozenset(rows))
        rows.update((row.incarnation, row) for row in more)
        state = State(_with(snapshot, rows), policy)
        switches = balance_groups(state, policy)
        asked, wanted = len(wanted.excess), relief(state, policy)
        rounds.append(Round(asked, len(more), len(wanted.excess)))
        if not more or len(switches.why) >= policy.switches_max:
            break
    return Listed(tuple(rows.values()), tuple(rounds), len(wanted.excess))


def _with(snapshot: Snapshot, rows: dict[int, PartitionRow]) -> Snapshot:
    """In order, so that nothing depends on who was listed first."""
    return snapshot._replace(partitions=tuple(sorted(rows.values())))
