"""Counts of replicas and leaders, where the loads of groups say nothing.

Contract.  ``say_nothing`` tells if a resource's load is so small that no node has a share above the
floor of its band.  ``is_uneven`` tells if the number of replicas on a node is far from the node's
share.  Only where both are true are replicas spread by their number (decision 0058); all functions
are pure.

Theory.  A small load is noise: nothing should be moved because of it, and no new node would ever
get anything for it.  The number of replicas is what remains.  Placement by a hash spreads numbers
too, with a standard deviation of about the square root of the share.  So a number is uneven only
when chance does not explain it, and then it is made even to the last whole replica: the next plan
finds nothing that is far from its share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placement.policy import Band
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


def is_uneven(shares: Shares, band: Band, counts: Sequence[int],
              judged: Sequence[bool]) -> bool:
    """Return True if one of the ``judged`` nodes is far from its share of replicas.
    ``counts``: their number per node. O(nodes)."""
    return any(is_far(count, share, band.floor) for count, share, counts_here
               in zip(counts, shares.share, judged, strict=True) if counts_here)


def is_far(count: int, share: int, floor: int) -> bool:
    """Return True if chance does not explain a node's number of replicas: none where the share is
    above ``floor``, or more than half of the share and ``DEVIATIONS`` times its square root
    away."""
    if max(share, count) <= floor:
        return False
    distance = abs(count - share)
    return (not count and share > floor) or (2 * distance > share
                                             and distance ** 2 > DEVIATIONS ** 2 * share)
