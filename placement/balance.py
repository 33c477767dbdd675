"""Balance of replicas: moves from nodes above their share to nodes below it, which copy bytes.

Contract.  ``balance_replicas`` moves only out of nodes above their target or into nodes below it,
or exchanges replicas with one of these.  Each step makes the sum of squared deviations from the
band, over all nodes and balanced resources, smaller.  So it ends, it cannot cycle, and it does
nothing when started again on its result.  Hard rules are the ledger's.

First in each round

    part       large replicas that have to leave a larger one, to the node with most free capacity

and then four steps, repeated until none does anything:

    shed       the excess of each overloaded node, largest replicas first among those that fit
    fill       nodes below the band, which are new or were emptied (``placement.filling``)
    make room  large replicas that fit nowhere, to nodes that can pass small ones on to others
    descend    single moves, then exchanges, that fit nowhere and still improve the balance
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from placement.describe import rests
from placement.deviations import NAMES, Balance
from placement.filling import fill
from placement.ledger import Ledger
from placement.plan import (
    BUDGET,
    COOL_DOWN,
    EXCLUDED,
    IN_CHANGE,
    NO_QUORUM,
    NO_SLACK,
    OVERLOAD,
    TOO_LARGE,
    Skipped,
)
from placement.shares import PPM
from placement.shedding import Item, by_load, fitting_cap, shed, too_large
from placement.state import NOBODY

#: Shares are computed again when giants have moved; two rounds are usual.
ROUNDS_MAX = 64

#: Targets that ``descend`` considers for each replica: those with most free capacity.
DESCENT_TARGETS = 8

#: Large replicas of an overloaded node for which ``make room`` is tried.
DISPLACED_MAX = 4

#: Replicas of either side that ``descend`` considers for an exchange.
EXCHANGE_ITEMS = 24

#: Non-moves that are reported per overloaded node and resource.
SKIPPED_PER_NODE = 3


def balance_replicas(ledger: Ledger) -> bool:
    """Balance the resources for which the ledger has shares.  True if nothing is left to do.
    O(steps * (replicas of a node) * nodes)."""
    for _ in range(ROUNDS_MAX):
        ledger.reckon()
        balance = Balance(ledger)
        moved = _part(balance)
        while (_shed(balance) or fill(balance) or _make_room(balance)
               or _descend(balance)):
            moved = True
        if not moved:
            return True
    return False


def _part(balance: Balance) -> bool:
    """Place large replicas that have to leave their node and fit nowhere, before others take the
    capacity.  True if any replica moved.

    They go to the node with most free capacity; replicas that are too much there are shed
    afterwards."""
    moved = False
    caps = _caps(balance)
    for _, node, position in balance.overloaded():
        if not balance.gives[node] or balance.one_node:
            continue
        load, high = balance.state.load[node][position], balance.ledger.shares[position].high[node]
        for item in too_large(balance.items(node, position), load, high, caps[position]):
            for _, target in balance.roomiest[position]:
                if balance.permits(item.id, node, target):
                    balance.move(item.id, node, target, position, OVERLOAD)
                    moved = True
                    break
    return moved


def _caps(balance: Balance) -> dict[int, int]:
    """Return resource -> load of the largest replica that is worth shedding."""
    return {position: fitting_cap(balance.room(target, position)
                                  for target in range(len(balance.takes)) if balance.takes[target])
            for position in balance.positions}


def _shed(balance: Balance) -> bool:
    """Make one pass over the overloaded nodes.  True if any replica moved.

    The replicas that all of them shed are placed together, largest first (Graham's longest
    processing time).  The smallest come last and fill the gaps nearly to the byte, so that few
    nodes stay below the band, which others would have to fill."""
    caps = _caps(balance)
    shedding = [(item, node, position) for _, node, position in balance.overloaded()
                if balance.gives[node]
                for item in shed(balance.items(node, position), balance.over(node, position),
                                 caps[position])]

    def largest_first(found: tuple[Item, int, int]) -> int:
        """Return the part of the total load; equal parts are ordered by the node's excess."""
        item, _, position = found
        return -(item.load * PPM * PPM // balance.ledger.shares[position].total)

    moved = False
    for item, node, position in sorted(shedding, key=largest_first):
        if balance.over(node, position) and item.id in balance.state.held[node]:
            moved = _place(balance, item, node, position) or moved
    return moved


def _place(balance: Balance, item: Item, node: int, position: int) -> bool:
    """Move a replica to the permitted node with most free capacity, relative to its share."""
    for target in _ranked(balance, item, position):
        if balance.fits(item.id, target) and balance.permits(item.id, node, target):
            balance.move(item.id, node, target, position, OVERLOAD)
            return True
    return False


def _ranked(balance: Balance, item: Item, position: int) -> Iterator[int]:
    """Yield the nodes that a replica fits on, most free capacity first.

    The preference is evaluated only between equals: it is a hash, and callers seldom need more than
    the first node."""
    roomy = ((order, target) for order, target in balance.roomiest[position]
             if balance.room(target, position) >= item.load)
    for _, equal in groupby(roomy, key=itemgetter(0)):
        targets = [target for _, target in equal]
        if len(targets) > 1:
            targets.sort(key=lambda target: balance.ledger.preference(item.id, target))
        yield from targets


def _make_room(balance: Balance) -> bool:
    """Move a large replica to the node with most free capacity, and small ones from there to other
    nodes.  True if any replica moved."""
    if balance.one_node:
        return False
    for _, node, position in balance.overloaded():
        if not balance.gives[node]:
            continue
        targets = sorted((target for target in range(len(balance.takes)) if balance.takes[target]
                          and balance.gives[target] and target != node),
                         key=lambda target: (-balance.room(target, position), target))
        items = balance.items(node, position)
        whole = max((item.load for item in items), default=0)
        for item in sorted(shed(items, balance.over(node, position), whole),
                           key=by_load)[:DISPLACED_MAX]:
            allowed = (target for target in targets
                       if item.load <= balance.ledger.shares[position].high[target]
                       and balance.ledger.may_take(item.id, target, node))
            for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
                if _displace(balance, item, node, target, position):
                    return True
    return False


def _displace(balance: Balance, item: Item, node: int, target: int, position: int) -> bool:
    """Move a replica and displace smaller ones; undo everything if the target stays above a
    target."""
    if not balance.affordable(item.id, node, target):
        return False
    mark = balance.mark()
    before = balance.cost(node) + balance.cost(target)
    balance.move(item.id, node, target, position, OVERLOAD)
    for each in balance.positions:
        excess = balance.over(target, each)
        cap = fitting_cap(balance.room(other, each) for other in range(len(balance.takes))
                          if balance.takes[other] and other != target)
        small = [other for other in balance.items(target, each) if other.id != item.id]
        for other in sorted(shed(small, excess, cap), key=by_load):
            if balance.over(target, each):
                _place(balance, other, target, each)
    if any(balance.over(target, each) for each in balance.positions) \
            or balance.cost(node) + balance.cost(target) >= before:
        balance.back_to(mark)
        return False
    return True


def _descend(balance: Balance) -> bool:
    """Make the best single move, or else the best exchange, for the worst node that has one."""
    if balance.one_node:
        return False  # it might leave the node above its target, and a next plan would go back
    for _, node, position in balance.overloaded():
        if not balance.gives[node]:
            continue
        targets = sorted((target for target in range(len(balance.takes))
                          if balance.takes[target] and target != node),
                         key=lambda target: (balance.ledger.ppm(target, position), target))
        if _best_move(balance, node, targets, position) \
                or _best_exchange(balance, node, targets[:DESCENT_TARGETS], position):
            return True
    return False


def _best_move(balance: Balance, node: int, targets: list[int], position: int) -> bool:
    best = (0, NOBODY, NOBODY)
    for item in balance.items(node, position):
        allowed = (target for target in targets if balance.ledger.may_take(item.id, target, node)
                   and balance.affordable(item.id, node, target)
                   and not balance.undershoots(item.id, node))
        for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
            gain = balance.gain(item.id, node, target)
            if gain > best[0] and balance.spares(target, node, item.id):
                best = (gain, item.id, target)
    if best[0]:
        balance.move(best[1], node, best[2], position, OVERLOAD)
    return best[0] > 0


def _best_exchange(balance: Balance, node: int, targets: list[int], position: int) -> bool:
    """Return the best exchange of a replica of ``node`` for a smaller one of another node."""
    best: tuple[int, ...] = (0,)
    mine = balance.items(node, position)[:EXCHANGE_ITEMS]
    for target in targets:
        if not (balance.gives[target] and balance.takes[node]):
            continue
        theirs = balance.items(target, position)[-EXCHANGE_ITEMS:]
        for item in mine:
            if item.id in balance.state.held[target]:
                continue
            for other in theirs:
                if other.load >= item.load or other.id in balance.state.held[node]:
                    continue
                gain = balance.exchange_gain(item.id, node, other.id, target)
                if gain > best[0] and balance.may_exchange(item.id, node, other.id, target):
                    best = (gain, item.id, other.id, target)
    if best[0]:
        _, group, other_group, target = best
        balance.move(group, node, target, position, OVERLOAD)
        balance.move(other_group, target, node, position, OVERLOAD)
    return best[0] > 0


def explain_nodes(ledger: Ledger) -> list[Skipped]:
    """Return why nodes are still above their target.  O(overloaded * replicas of a node)."""
    ledger.reckon()
    balance = Balance(ledger)
    skipped = []
    for _, node, position in balance.overloaded():
        if balance.one_node and ledger.state.ids[node] != ledger.options.node:
            continue  # it was not asked for
        largest_room = max((balance.room(target, position) for target in range(len(balance.takes))
                            if balance.takes[target] and target != node), default=0)
        groups = sorted(ledger.state.held[node],
                        key=lambda group: (-ledger.state.replica_load(group, position), group))
        skipped += [_non_move(balance, group, node, position, largest_room)
                    for group in groups[:SKIPPED_PER_NODE]]
    return skipped


def _non_move(balance: Balance, group: int, node: int, position: int,
              largest_room: int) -> Skipped:
    load = balance.state.replica_load(group, position)
    reason = balance.refusal(group) or ("" if balance.gives[node] else EXCLUDED)
    if not reason and balance.ledger.options.budget_bytes and not balance.affordable(
            group, node, NOBODY):
        reason = BUDGET
    if not reason:
        reason = TOO_LARGE if load > largest_room else NO_SLACK
    why = _WORDS[reason] if reason != COOL_DOWN else rests(
        balance.state.groups[group].moved_ms, balance.ledger.policy.cool_down_ms)
    return Skipped(reason, f"g{group}", balance.state.ids[node], NAMES[position], load,
                   f"group {group} stays on node {balance.state.ids[node]}: {why}")


_WORDS = {
    EXCLUDED: "the policy, or the scope of this plan, excludes it",
    IN_CHANGE: "its members are changing",
    NO_QUORUM: "it has no majority",
    BUDGET: "the byte budget is spent",
    TOO_LARGE: "it is larger than the room under any other node's share",
    NO_SLACK: "no node that its racks and disks allow has room for it",
}
