"""Filling of nodes below the band.

Contract.  ``fill`` pulls replicas to nodes that are new, were emptied, or were left a little below
the band.  First it exchanges replicas that the plan moves anyhow, which copies nothing more.  Every
step makes deviations smaller (``Balancer``).
"""

from __future__ import annotations

from placement.imbalance import Balancer
from placement.plan import NEW_NODE
from placement.shed import Item

#: Nodes, the fullest first, whose newly placed replicas are offered for an exchange.
TRADERS_MAX = 32


def fill(balancer: Balancer) -> bool:
    """Move replicas to nodes whose load is below the band around their share, until they reach it
    or no move helps. Return True if any replica moved."""
    moved = False
    for position in balancer.positions:
        shares = balancer.changes.shares[position]
        newcomers: dict[int, list[Item]] | None = None  # usually no node is below the band
        for target in range(len(balancer.is_target)):
            while balancer.is_target[target] and balancer.deficit(target, position):
                if newcomers is None:
                    newcomers = _newcomers(balancer, position)
                if _trade(balancer, newcomers, target, position):
                    moved = True
                    continue
                sources = sorted((node for node in range(len(balancer.is_source))
                                  if balancer.is_source[node] and node != target
                                  and balancer.state.load[node][position] > shares.low[node]),
                                 key=lambda node: (-balancer.changes.ppm(node, position), node))
                if not any(_pull(balancer, source, target, position) for source in sources):
                    break
                moved = True
    return moved


def _newcomers(balancer: Balancer, position: int) -> dict[int, list[Item]]:
    """Return node -> replicas that this plan brings there anyhow, largest first; only nodes that
    give and take replicas."""
    return {node: found for node in range(len(balancer.is_target))
            if balancer.is_target[node] and balancer.is_source[node]
            and (found := _new_on(balancer, node, position))}


def _new_on(balancer: Balancer, node: int, position: int) -> list[Item]:
    return [item for item in balancer.items(node, position)
            if node not in balancer.state.initial(item.id)]


def _trade(balancer: Balancer, newcomers: dict[int, list[Item]], target: int,
           position: int) -> bool:
    """Exchange two replicas that the plan moves anyhow, so that ``target`` gets the larger one
    without another copy. Return False if no such exchange improves the balance. O(pairs of such
    replicas of the target and ``TRADERS_MAX`` nodes)."""
    low = balancer.changes.shares[position].low
    missing = balancer.deficit(target, position)
    others = sorted((node for node in newcomers if node != target
                     and balancer.state.load[node][position] > low[node]),
                    key=lambda node: (-balancer.changes.ppm(node, position), node))[:TRADERS_MAX]
    found = []
    for node in others:
        spare = balancer.state.load[node][position] - low[node]
        for item in newcomers[node]:
            for other in newcomers.get(target, ()):
                more = item.load - other.load
                if 0 < more <= spare:
                    found.append((more < missing, abs(more - missing), item.id, other.id, node))
    for _, _, group, counterpart, node in sorted(found):
        # What was pulled since ``newcomers`` was made is elsewhere.
        if group in balancer.state.held[node] and counterpart in balancer.state.held[target] \
                and balancer.may_exchange(group, node, counterpart, target) \
                and balancer.exchange_gain(group, node, counterpart, target) > 0:
            balancer.move(group, node, target, position, NEW_NODE)
            balancer.move(counterpart, target, node, position, NEW_NODE)
            for each in (node, target):
                newcomers[each] = _new_on(balancer, each, position)
            return True
    return False


def _pull(balancer: Balancer, source: int, target: int, position: int) -> bool:
    """Move the replica that fits best from ``source`` to ``target``: the largest that does not
    exceed the missing load, or else the smallest that does. Return False if no replica may move."""
    spare = balancer.state.load[source][position] - balancer.changes.shares[position].low[source]
    most = min(spare, balancer.headroom(target, position))
    missing = balancer.deficit(target, position)
    items = [item for item in balancer.items(source, position) if item.load <= most]
    large = [item for item in items if item.load > missing]
    small = [item for item in items if item.load <= missing]
    for item in (*small, *reversed(large)):
        if balancer.fits(item.id, target) and balancer.may_move(item.id, source, target):
            balancer.move(item.id, source, target, position, NEW_NODE)
            return True
    return False
