"""Moves of replicas for the sake of their number: to the nodes far below their share, and from
those far above it.

Contract.  ``spread`` is used while the number of replicas is judged, and nothing else
(``ReplicaChanges.judge_counts``).  Each move brings a far node nearer to its share and no other one
further away from its own (``counts.targets``); it keeps the hard rules and the byte budget.
Beginning again where ``spread`` ended does nothing.

Theory.  All replicas weigh the same here, so that no exchange improves anything, and it is enough
to take them one by one: for the emptiest node from the fullest.  The order in which a node gives
its replicas does not change meanwhile, so each node's is computed once (``_Giver``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from sortedcontainers import SortedList

from placement.imbalance import Balancer
from placement.plan import NEW_NODE, OVERLOAD
from placement.shares import PPM
from placement.state import NO_NODE, R_REPLICAS


def spread(balancer: Balancer) -> bool:
    """Move replicas until no far node can come nearer to its share. Return True if any moved.
    O(replicas log replicas + moves * nodes) as long as most replicas may go anywhere."""
    changes = balancer.changes
    was_cut = changes.cut_by_budget
    moved = False
    while _fill(balancer) or _relieve(balancer):
        moved = True
    if not any(balancer.deficit(node, R_REPLICAS) or balancer.excess(node, R_REPLICAS)
               for node in range(len(balancer.is_target))):
        changes.cut_by_budget = was_cut  # replicas that cost less were enough
    return moved


class _Giver:
    """Replicas of a node in the order in which it gives them, and for each target how many of them
    it has refused: what a target may not take now is not offered to it again."""

    def __init__(self, balancer: Balancer, node: int):
        self.balancer = balancer
        self.node = node
        self.groups = [item.id for item in balancer.items(node, R_REPLICAS)]
        self.refused: dict[int, int] = {}

    def group_for(self, target: int) -> int:
        """Return the first group of which ``target`` may take the replica; ``NO_NODE`` if there is
        none."""
        held = self.balancer.state.held[self.node]
        for place in range(self.refused.get(target, 0), len(self.groups)):
            group = self.groups[place]
            if group in held and self.balancer.fits(group, target) \
                    and self.balancer.may_move(group, self.node, target):
                self.refused[target] = place
                return group
        self.refused[target] = len(self.groups)
        return NO_NODE


def _fill(balancer: Balancer) -> bool:
    """Bring replicas to the nodes far below their share: one to the emptiest of them, and so on,
    each from a node far above its share, or else from the fullest. Return True if any moved."""
    sources = _Sources(balancer)
    waiting = [(_level(balancer, node), node) for node in range(len(balancer.is_target))
               if balancer.is_target[node] and balancer.deficit(node, R_REPLICAS)]
    heapq.heapify(waiting)
    moved = False
    while waiting:
        _, target = heapq.heappop(waiting)
        for giver in sources.fullest_first():
            group = giver.group_for(target)
            if group != NO_NODE:
                sources.move(group, giver.node, target)
                moved = True
                if balancer.deficit(target, R_REPLICAS):
                    heapq.heappush(waiting, (_level(balancer, target), target))
                break
    return moved


def _relieve(balancer: Balancer) -> bool:
    """Take replicas from the nodes far above their share: one from the fullest of them, and so on,
    each to the node that lacks most. Return True if any moved."""
    waiting = [(-_level(balancer, node), node) for node in range(len(balancer.is_source))
               if balancer.is_source[node] and balancer.excess(node, R_REPLICAS)]
    heapq.heapify(waiting)
    givers = {node: _Giver(balancer, node) for _, node in waiting}
    moved = False
    while waiting:
        _, source = heapq.heappop(waiting)
        for _, target in balancer.by_headroom[R_REPLICAS]:
            group = givers[source].group_for(target)
            if group != NO_NODE:
                balancer.move(group, source, target, R_REPLICAS, OVERLOAD)
                moved = True
                if balancer.excess(source, R_REPLICAS):
                    heapq.heappush(waiting, (-_level(balancer, source), source))
                break
    return moved


def _level(balancer: Balancer, node: int) -> int:
    """Return the node's number of replicas in millionths of its share, at least one replica."""
    share = balancer.changes.shares[R_REPLICAS].share[node]
    return balancer.state.load[node][R_REPLICAS] * PPM // max(1, share)


class _Sources:
    """The nodes that may give a replica to a node far below its share, in order: those far above
    their share before the others, the fullest first."""

    def __init__(self, balancer: Balancer):
        self.balancer = balancer
        self.order = SortedList(self._key(node) for node in range(len(balancer.is_source))
                                if self._may_give(node))
        self.givers: dict[int, _Giver] = {}

    def _may_give(self, node: int) -> bool:
        balancer = self.balancer
        return balancer.is_source[node] and (balancer.state.load[node][R_REPLICAS]
                                             > balancer.changes.shares[R_REPLICAS].low[node])

    def _key(self, node: int) -> tuple[bool, int, int]:
        return not self.balancer.excess(node, R_REPLICAS), -_level(self.balancer, node), node

    def fullest_first(self) -> Iterator[_Giver]:
        """Yield the nodes in order; the caller stops when one of them has given something."""
        for _, _, node in self.order:
            if node not in self.givers:
                self.givers[node] = _Giver(self.balancer, node)
            yield self.givers[node]

    def move(self, group: int, source: int, target: int) -> None:
        """Move a replica, and put its source where it belongs now."""
        self.order.remove(self._key(source))
        self.balancer.move(group, source, target, R_REPLICAS, NEW_NODE)
        if self._may_give(source):
            self.order.add(self._key(source))
