"""Choice of the partitions that a planner needs, when a cluster has more than a snapshot can list.

Contract.  ``listed`` returns the partitions with which ``planner.make_plan`` makes the plan of a
cluster with millions of partitions stored elsewhere.  The caller passes two functions.  One returns
the partitions above a load; the other runs ``shed.shed_candidates`` on *all* unlisted
partitions of a few groups.  Both are called a few times, and their results are small.

Theory.  Shares, targets and bounds of groups follow from the groups' sums and from the partitions
that are not negligible (``shares.negligible_load``), so both are exact with these listed.  The
relief of a group is a choice among its own partitions, given its excess and the loads that fit
elsewhere, so it can be computed where they are stored.  Only making headroom for a large partition
needs small ones of other groups.  The groups with most free capacity are asked for those in the
next round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from placement.cluster import PartitionRow, Snapshot
from placement.policy import GROUP_INGRESS, Policy
from placement.shares import negligible_load
from placement.state import State
from placement.switches import Relief, balance_groups, relief

#: Two rounds suffice for most skewed loads; later ones make headroom for large partitions.
ROUNDS_MAX = 4

#: (least load) -> the partitions above it.
Above = Callable[[int], Sequence[PartitionRow]]
#: (what is wanted, incarnations that are listed) -> what relieves its groups, of the others.
Shed = Callable[[Relief, frozenset[int]], Sequence[PartitionRow]]


class SampleRound(NamedTuple):
    """One query: the number of groups ``asked``, of partitions that it added to the listed ones,
    and of groups that stay above their targets then."""

    asked: int
    listed: int
    above: int


class PartitionSample(NamedTuple):
    """The partitions that a plan needs, the queries, and the number of groups that stay above their
    targets with them."""

    partitions: tuple[PartitionRow, ...]
    rounds: tuple[SampleRound, ...]
    unrelieved: int


def sample_partitions(snapshot: Snapshot, policy: Policy, above: Above,
                      shed: Shed) -> PartitionSample:
    """Return the partitions that a plan needs: those found by ``above``, then a few rounds of
    ``shed``; an empty sample if the policy has no band for groups.

    ``snapshot`` has every node and group, and no partition. A plan moves at most ``switches_max``
    partitions, so the queries end when it is full. O(rounds * listed log listed) here."""
    if policy.band(GROUP_INGRESS) is None:
        return PartitionSample((), (), 0)
    pool = [row.ingress for row in snapshot.groups if row.id]
    rows = {row.incarnation: row for row in above(negligible_load(sum(pool), 1, max(1, len(pool))))}
    wanted = relief(State(_with(snapshot, rows), policy), policy)
    rounds: list[SampleRound] = []
    while wanted.excess and len(rounds) < ROUNDS_MAX:
        more = shed(wanted, frozenset(rows))
        rows.update((row.incarnation, row) for row in more)
        state = State(_with(snapshot, rows), policy)
        switches = balance_groups(state, policy)
        asked, wanted = len(wanted.excess), relief(state, policy)
        rounds.append(SampleRound(asked, len(more), len(wanted.excess)))
        if not more or len(switches.why) >= policy.switches_max:
            break
    return PartitionSample(tuple(rows.values()), tuple(rounds), len(wanted.excess))


def _with(snapshot: Snapshot, rows: dict[int, PartitionRow]) -> Snapshot:
    """Return the snapshot with these partitions in order, so that the result does not depend on the
    order of queries."""
    return snapshot._replace(partitions=tuple(sorted(rows.values())))
