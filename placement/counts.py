"""Counts of replicas and leaders, where the loads of groups say nothing.

Contract.  ``say_nothing`` tells if a resource's load is so small that no node has a share above the
floor of its band.  Only where that is so are replicas moved for the sake of their number (decision
0058).  ``Numbers`` are the numbers of replicas of a state, beside the nodes' shares; ``far`` of
them are the nodes that come to their share, and ``targets`` are the limits of all nodes.  All
functions are pure.

Theory.  A small load is noise: nothing should be moved because of it, and no new node would ever
get anything for it.  The number of replicas is what remains.  A hash gives a node a replica of each
group with the probability share / groups.  So chance explains as much as the binomial distribution
allows, but only for the groups that are still where the hash put them.  The groups that plans have
moved are where the planner wanted them.  That is how a plan that was cut short is continued: the
node that it was to fill holds none of the groups that no plan has moved.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from placement.policy import REPLICAS, Band
from placement.shares import Shares, node_shares
from placement.state import R_REPLICAS, State

#: Nodes with a share of at most so many replicas get none for the sake of the number, and nodes
#: with at most so many replicas give none, as the leaders' band has it by default.
REPLICAS_FLOOR = 4
#: A number is far from its expectation when it differs by more than this many times the standard
#: deviation of a placement by hash.
DEVIATIONS = 3
#: The number of replicas has no band: a node comes to its share, to the last whole replica.
REPLICAS_BAND = Band(REPLICAS, 0)


def say_nothing(shares: Shares, floor: int) -> bool:
    """Return True if no node has a share of this resource above ``floor``. O(nodes)."""
    return max(shares.share, default=0) <= floor


class Far(NamedTuple):
    """Nodes far below their share of replicas, and nodes far above it."""

    below: frozenset[int] = frozenset()
    above: frozenset[int] = frozenset()

    def joined(self, other: Far) -> Far:
        """Return the nodes of both."""
        return Far(self.below | other.below, self.above | other.above)


class Placed(NamedTuple):
    """A node's numbers of replicas: of all ``groups``, and of the ``unmoved`` ones, which no plan
    has moved."""

    number: int
    groups: int
    number_unmoved: int
    unmoved: int

    def is_chance(self, share: int) -> bool:
        """Return True if the hash that placed the unmoved groups can have led to these numbers, for
        a node with this share of all groups' replicas: the node has any of the unmoved ones, and
        both numbers are within ``DEVIATIONS`` of what is expected."""
        part = min(share, self.groups)  # of each group at most one
        if not self.number_unmoved:
            return self.number == part
        # Both sides of the comparisons are times ``groups`` squared.
        most = DEVIATIONS ** 2 * self.unmoved * part * (self.groups - part)
        return ((self.number_unmoved * self.groups - part * self.unmoved) ** 2 <= most
                and ((self.number - part) * self.groups) ** 2 <= most)


class Numbers(NamedTuple):
    """Numbers of replicas and shares of them, by node.

    ``takes_part`` tells which nodes have a share: not those that can neither give nor take.  These
    keep what they have, and the others share the rest."""

    shares: Shares
    placed: tuple[Placed, ...]
    takes_part: tuple[bool, ...]

    def far(self) -> Far:
        """Return the nodes that are not at their share and whose numbers chance does not explain.
        O(nodes)."""
        far = [node for node, placed in enumerate(self.placed)
               if self.takes_part[node] and not placed.is_chance(self.shares.share[node])]
        share, high = self.shares.share, self.shares.high
        return Far(frozenset(node for node in far if share[node] > REPLICAS_FLOOR
                             and self.placed[node].number < share[node]),
                   frozenset(node for node in far if self.placed[node].number
                             > max(high[node], REPLICAS_FLOOR)))

    def targets(self, far: Far) -> Shares:
        """Return the shares with the limits of each node's number: see ``targets``."""
        return targets(self.shares, far, [placed.number for placed in self.placed],
                       self.takes_part)


def targets(shares: Shares, far: Far, numbers: Sequence[int],
            takes_part: Sequence[bool]) -> Shares:
    """Return the shares with the limits of each node's number of replicas. A ``far`` node comes to
    its share: at least the whole number below it, at most the one above. Any other node may come
    nearer to its share from its present number, and never goes away from it; a node that does not
    take part stays where it is. ``numbers``: the present ones. O(nodes)."""
    low, high = [], []
    for node, number in enumerate(numbers):
        least, most = shares.share[node], shares.high[node]
        if not takes_part[node]:
            least = most = number
        elif node not in far.below and node not in far.above:
            least, most = min(least, number), max(most, number)
        low.append(least)
        high.append(most)
    return shares._replace(low=tuple(low), high=tuple(high))


def numbers_of(state: State, excluded: Collection[int]) -> Numbers:
    """Return the numbers of replicas in ``state`` and the nodes' shares. ``excluded``: ids of nodes
    that give and take nothing. O(replicas), once more for each node in maintenance below its
    share."""
    fixed = {node for node, each in enumerate(state.nodes)
             if each.id in excluded and each.has_share}
    while True:
        shares = node_shares(state, REPLICAS_BAND, fixed)
        lacking = {node for node, each in enumerate(state.nodes)
                   if each.has_share and not each.accepts_replicas and node not in fixed
                   and state.load[node][R_REPLICAS] < shares.share[node]}
        if not lacking:
            break
        fixed |= lacking
    unmoved = [group for group in state.groups if state.is_unmoved(group)]
    number_unmoved = [0] * len(state.nodes)
    for group in unmoved:
        for node in state.voters[group]:
            number_unmoved[node] += 1
    placed = tuple(Placed(load[R_REPLICAS], len(state.groups), number_unmoved[node], len(unmoved))
                   for node, load in enumerate(state.load))
    return Numbers(shares, placed, tuple(each.has_share and node not in fixed
                                         for node, each in enumerate(state.nodes)))
