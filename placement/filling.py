"""Filling of nodes below the band.

Contract.  ``fill`` pulls replicas to nodes that are new, were emptied, or were left a little below
the band.  First it exchanges replicas that the plan moves anyhow, which copies nothing more.  Every
step makes deviations smaller (``Balance``).
"""

from __future__ import annotations

from placement.deviations import Balance
from placement.plan import NEW_NODE
from placement.shedding import Item

#: Nodes, the fullest first, whose newly placed replicas are offered for an exchange.
TRADERS_MAX = 32


def fill(balance: Balance) -> bool:
    """Bring nodes below the band up to it.  True if any replica moved."""
    moved = False
    for position in balance.positions:
        shares = balance.ledger.shares[position]
        newcomers: dict[int, list[Item]] | None = None  # usually no node is below the band
        for target in range(len(balance.takes)):
            while balance.takes[target] and balance.under(target, position):
                if newcomers is None:
                    newcomers = _newcomers(balance, position)
                if _trade(balance, newcomers, target, position):
                    moved = True
                    continue
                sources = sorted((node for node in range(len(balance.gives))
                                  if balance.gives[node] and node != target
                                  and balance.state.load[node][position] > shares.low[node]),
                                 key=lambda node: (-balance.ledger.ppm(node, position), node))
                if not any(_pull(balance, source, target, position) for source in sources):
                    break
                moved = True
    return moved


def _newcomers(balance: Balance, position: int) -> dict[int, list[Item]]:
    """Return node -> replicas that this plan brings there anyhow, largest first."""
    return {node: found for node in range(len(balance.takes))
            if balance.takes[node] and balance.gives[node]
            and (found := _new_on(balance, node, position))}


def _new_on(balance: Balance, node: int, position: int) -> list[Item]:
    return [item for item in balance.items(node, position)
            if node not in balance.state.initial(item.id)]


def _trade(balance: Balance, newcomers: dict[int, list[Item]], target: int,
           position: int) -> bool:
    """Exchange replicas that the plan moves anyhow, so that the target gets the larger one without
    another copy.  O(pairs of such replicas of the target and ``TRADERS_MAX`` nodes)."""
    low = balance.ledger.shares[position].low
    missing = balance.under(target, position)
    others = sorted((node for node in newcomers if node != target
                     and balance.state.load[node][position] > low[node]),
                    key=lambda node: (-balance.ledger.ppm(node, position), node))[:TRADERS_MAX]
    found = []
    for node in others:
        spare = balance.state.load[node][position] - low[node]
        for item in newcomers[node]:
            for other in newcomers.get(target, ()):
                more = item.load - other.load
                if 0 < more <= spare:
                    found.append((more < missing, abs(more - missing), item.id, other.id, node))
    for _, _, group, counterpart, node in sorted(found):
        # What was pulled since ``newcomers`` was made is elsewhere.
        if group in balance.state.held[node] and counterpart in balance.state.held[target] \
                and balance.may_exchange(group, node, counterpart, target) \
                and balance.exchange_gain(group, node, counterpart, target) > 0:
            balance.move(group, node, target, position, NEW_NODE)
            balance.move(counterpart, target, node, position, NEW_NODE)
            for each in (node, target):
                newcomers[each] = _new_on(balance, each, position)
            return True
    return False


def _pull(balance: Balance, source: int, target: int, position: int) -> bool:
    """Move the replica that fits best from ``source`` to ``target``: the largest that does not
    exceed the missing load, or else the smallest that does."""
    spare = balance.state.load[source][position] - balance.ledger.shares[position].low[source]
    most = min(spare, balance.room(target, position))
    missing = balance.under(target, position)
    items = [item for item in balance.items(source, position) if item.load <= most]
    large = [item for item in items if item.load > missing]
    small = [item for item in items if item.load <= missing]
    for item in (*small, *reversed(large)):
        if balance.fits(item.id, target) and balance.permits(item.id, source, target):
            balance.move(item.id, source, target, position, NEW_NODE)
            return True
    return False
