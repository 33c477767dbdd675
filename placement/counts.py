"""Counts of replicas and leaders, where the loads of groups say nothing.

Contract.  ``say_nothing`` tells if a resource's load is so small that no node has a share above the
floor of its band.  ``far_nodes`` are the nodes whose number of replicas is far from their share.
Only where both hold are replicas moved for the sake of their number (decision 0058): ``targets``
takes the far nodes to their share, and leaves the others alone.  All functions are pure.

Theory.  A small load is noise: nothing should be moved because of it, and no new node would ever
get anything for it.  The number of replicas is what remains.  Placement by a hash spreads numbers
too, with a standard deviation of about the square root of the share.  So a number is far from a
share only when chance does not explain it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isqrt
from typing import NamedTuple

from placement.shares import Shares

#: Shares of at most so many replicas are left alone, as the leaders' band has it by default.
REPLICAS_FLOOR = 4
#: A number is far from a share when it differs by more than this many times the share's square
#: root, and by more than half of the share.
DEVIATIONS = 3


def say_nothing(shares: Shares, weights: Iterable[int], floor: int) -> bool:
    """Return True if no node's share by weight of this resource is above ``floor``. ``weights``:
    those of the nodes that have a share. O(nodes)."""
    heaviest = max(weights, default=0)
    return shares.total * heaviest <= floor * max(1, shares.weight)


def near(share: int, floor: int = REPLICAS_FLOOR) -> tuple[int, int]:
    """Return the least and the greatest number of replicas that chance explains for a share: half
    of it away, or ``DEVIATIONS`` times its square root. A share above ``floor`` has at least one.
    """
    distance = max(share // 2, isqrt(DEVIATIONS ** 2 * share))
    return max(int(share > floor), share - distance), max(share + distance, floor)


class Far(NamedTuple):
    """Nodes far below their share of replicas, and nodes far above it."""

    below: frozenset[int] = frozenset()
    above: frozenset[int] = frozenset()

    def joined(self, other: Far) -> Far:
        """Return the nodes of both."""
        return Far(self.below | other.below, self.above | other.above)


def far_nodes(shares: Shares, counts: Sequence[int], judged: Sequence[bool]) -> Far:
    """Return the ``judged`` nodes whose number of replicas is not ``near`` their share. ``counts``:
    the numbers by node. O(nodes)."""
    limits = [near(share) for share in shares.share]
    nodes = [node for node, is_judged in enumerate(judged) if is_judged]
    return Far(frozenset(node for node in nodes if counts[node] < limits[node][0]),
               frozenset(node for node in nodes if counts[node] > limits[node][1]))


def targets(shares: Shares, far: Far) -> Shares:
    """Return the shares with targets of the number of replicas: a node far from its share comes to
    it, up to the whole number below or down to that above; each other node may stay where chance
    can have put it. A node that receives replicas stays ``near`` its share. O(nodes)."""
    limits = [near(share) for share in shares.share]
    return shares._replace(
        low=tuple(shares.low[node] if node in far.below else least
                  for node, (least, _) in enumerate(limits)),
        high=tuple(shares.high[node] if node in far.above else most
                   for node, (_, most) in enumerate(limits)))
