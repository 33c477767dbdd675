"""Balance of replicas: moves from nodes above their share to nodes below it, which copy bytes.

Contract.  Bytes are balanced first, then, where they say nothing, the number of replicas
(``placement.counts``), by the same steps.  ``balance_replicas`` moves only out of nodes above their
target or into nodes below it, or exchanges replicas with one of these.  Each step makes the sum of
squared deviations from the band, over all nodes and balanced resources, smaller; a step for the
number makes no node exceed its target of bytes.  So it ends, it cannot cycle, and it does nothing
when started again on its result.  Hard rules are those of ``ReplicaChanges``.

First in each round

    place large    large replicas that have to leave a larger one, to the node with most capacity

and then four steps, repeated until none does anything:

    shed           the excess of each overloaded node, largest replicas first among those that fit
    fill           nodes below the band, which are new or were emptied (``placement.fill``)
    make headroom  large replicas that fit nowhere, to nodes that can pass small ones on to others
    descend        single moves, then exchanges, that fit nowhere and still improve the balance; in
                   a plan for one node, single moves that fit and were not shed
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from placement.describe import cool_down_text
from placement.fill import fill
from placement.imbalance import METADATA_GROUP, NAMES, Balancer
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
from placement.replica_changes import ReplicaChanges
from placement.shares import PPM
from placement.shed import Item, by_load, fitting_cap, shed, too_large
from placement.spread import spread
from placement.state import NO_NODE, R_REPLICAS

#: Shares are computed again when oversized replicas have moved; two rounds are usual.
ROUNDS_MAX = 64

#: Targets that ``descend`` considers for each replica: those with most free capacity.
DESCENT_TARGETS = 8

#: Large replicas of an overloaded node for which ``_make_headroom`` is tried.
DISPLACED_MAX = 4

#: Replicas of either side that ``descend`` considers for an exchange.
EXCHANGE_ITEMS = 24

#: Non-moves that are reported per overloaded node and resource.
SKIPPED_PER_NODE = 3


def balance_replicas(changes: ReplicaChanges) -> bool:
    """Move replicas until their bytes, or their number where bytes say nothing, are balanced as far
    as the rules allow. Return False if ``ROUNDS_MAX`` was reached first. O(steps * (replicas of a
    node) * nodes)."""
    for _ in range(ROUNDS_MAX):
        changes.judge_bytes()
        moved = _balance_judged(Balancer(changes))
        if changes.judge_counts():
            moved = spread(Balancer(changes)) or moved
            changes.judge_bytes()
        if not moved:
            return True
    return False


def _balance_judged(balancer: Balancer) -> bool:
    """Balance the resources that are judged now. Return True if any replica moved."""
    moved = _place_large(balancer)
    while (_shed_excess(balancer) or fill(balancer) or _make_headroom(balancer)
           or _descend(balancer)):
        moved = True
    return moved


def _place_large(balancer: Balancer) -> bool:
    """Move large replicas that have to leave their node and fit nowhere to the node with most free
    capacity, before others take it. Return True if any moved.

    Replicas that are too much there are shed afterwards."""
    moved = False
    caps = _caps(balancer)
    for _, node, position in balancer.overloaded():
        if not balancer.is_source[node] or balancer.single_node:
            continue
        load = balancer.state.load[node][position]
        high = balancer.changes.shares[position].high[node]
        for item in too_large(balancer.items(node, position), load, high, caps[position]):
            for _, target in balancer.by_headroom[position]:
                if balancer.may_move(item.id, node, target):
                    balancer.move(item.id, node, target, position, OVERLOAD)
                    moved = True
                    break
    return moved


def _caps(balancer: Balancer) -> dict[int, int]:
    """Return resource -> load of the largest replica that is worth shedding."""
    return {position: fitting_cap(balancer.headroom(target, position)
                                  for target in range(len(balancer.is_target))
                                  if balancer.is_target[target])
            for position in balancer.positions}


def _shed_excess(balancer: Balancer) -> bool:
    """Make one pass over the overloaded nodes. Return True if any replica moved.

    The replicas that all of them shed are placed together, largest first (Graham's longest
    processing time). The smallest come last and fill the gaps nearly to the byte. So few nodes stay
    below the band, which others would have to fill."""
    caps = _caps(balancer)
    shedding = [(item, node, position) for _, node, position in balancer.overloaded()
                if balancer.is_source[node]
                for item in shed(balancer.items(node, position), balancer.excess(node, position),
                                 caps[position])]

    def largest_first(found: tuple[Item, int, int]) -> int:
        """Return the sort key of a replica: its part of the total load, largest first; equal parts
        keep the order of their nodes."""
        item, _, position = found
        return -(item.load * PPM * PPM // balancer.changes.shares[position].total)

    moved = False
    for item, node, position in sorted(shedding, key=largest_first):
        if balancer.excess(node, position) and item.id in balancer.state.held[node]:
            moved = _place(balancer, item, node, position) or moved
    return moved


def _place(balancer: Balancer, item: Item, node: int, position: int) -> bool:
    """Move a replica to the permitted node with most free capacity, relative to its share. Return
    False if no node can take it."""
    for target in _ranked(balancer, item, position):
        if balancer.fits(item.id, target) and balancer.may_move(item.id, node, target):
            balancer.move(item.id, node, target, position, OVERLOAD)
            return True
    return False


def _ranked(balancer: Balancer, item: Item, position: int) -> Iterator[int]:
    """Yield the nodes that have headroom for a replica in this resource, most free capacity first.

    The preference is evaluated only between equals: it is a hash, and callers seldom need more than
    the first node."""
    with_headroom = ((order, target) for order, target in balancer.by_headroom[position]
                     if balancer.headroom(target, position) >= item.load)
    for _, equal in groupby(with_headroom, key=itemgetter(0)):
        targets = [target for _, target in equal]
        if len(targets) > 1:
            targets.sort(key=lambda target: balancer.changes.preference(item.id, target))
        yield from targets


def _make_headroom(balancer: Balancer) -> bool:
    """Move a large replica to the node with most free capacity, and small ones from there to other
    nodes.  True if any replica moved."""
    if balancer.single_node:
        return False
    for _, node, position in balancer.overloaded():
        if not balancer.is_source[node]:
            continue
        targets = sorted((target for target in range(len(balancer.is_target))
                          if balancer.is_target[target] and balancer.is_source[target]
                          and target != node),
                         key=lambda target: (-balancer.headroom(target, position), target))
        items = balancer.items(node, position)
        whole = max((item.load for item in items), default=0)
        for item in sorted(shed(items, balancer.excess(node, position), whole),
                           key=by_load)[:DISPLACED_MAX]:
            allowed = (target for target in targets
                       if item.load <= balancer.changes.shares[position].high[target]
                       and balancer.changes.may_take(item.id, target, node))
            for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
                if _displace(balancer, item, node, target, position):
                    return True
    return False


def _displace(balancer: Balancer, item: Item, node: int, target: int, position: int) -> bool:
    """Move a replica to ``target`` and smaller ones from there to other nodes. Return False, with
    all undone, if the target stays above its target load or the balance is no better."""
    if not balancer.fits_budget(item.id, node, target):
        return False
    savepoint = balancer.savepoint()
    before = balancer.cost(node) + balancer.cost(target)
    balancer.move(item.id, node, target, position, OVERLOAD)
    for each in balancer.positions:
        excess = balancer.excess(target, each)
        cap = fitting_cap(balancer.headroom(other, each) for other in range(len(balancer.is_target))
                          if balancer.is_target[other] and other != target)
        small = [other for other in balancer.items(target, each) if other.id != item.id]
        for other in sorted(shed(small, excess, cap), key=by_load):
            if balancer.excess(target, each):
                _place(balancer, other, target, each)
    if any(balancer.excess(target, each) for each in balancer.positions) \
            or balancer.cost(node) + balancer.cost(target) >= before:
        balancer.rollback(savepoint)
        return False
    return True


def _descend(balancer: Balancer) -> bool:
    """Make the best single move, or else the best exchange, for the worst node that has one. Return
    False if no node has one."""
    if balancer.single_node:
        return _place_any(balancer)
    for _, node, position in balancer.overloaded():
        if not balancer.is_source[node]:
            continue
        targets = sorted((target for target in range(len(balancer.is_target))
                          if balancer.is_target[target] and target != node),
                         key=lambda target: (balancer.changes.ppm(target, position), target))
        if _best_move(balancer, node, targets, position) \
                or _best_exchange(balancer, node, targets[:DESCENT_TARGETS], position):
            return True
    return False


def _place_any(balancer: Balancer) -> bool:
    """Move the largest replica of the worst node that fits below the target of another one, in a
    plan for one node. Return False if there is none.

    Such a plan has few targets, often one, which may hold already what ``shed`` chooses. A move
    beyond a target might leave the node above its own, and a next plan would go back."""
    return any(_place(balancer, item, node, position)
               for _, node, position in balancer.overloaded() if balancer.is_source[node]
               for item in balancer.items(node, position))


def _best_move(balancer: Balancer, node: int, targets: list[int], position: int) -> bool:
    best = (0, NO_NODE, NO_NODE)
    for item in balancer.items(node, position):
        allowed = (target for target in targets if balancer.changes.may_take(item.id, target, node)
                   and balancer.fits_budget(item.id, node, target)
                   and not balancer.would_underfill(item.id, node))
        for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
            gain = balancer.gain(item.id, node, target)
            if gain > best[0] and balancer.does_not_overload(target, node, item.id):
                best = (gain, item.id, target)
    if best[0]:
        balancer.move(best[1], node, best[2], position, OVERLOAD)
    return best[0] > 0


def _best_exchange(balancer: Balancer, node: int, targets: list[int], position: int) -> bool:
    """Make the best exchange of a replica of ``node`` for a smaller one of a node in ``targets``.
    Return True if one improved the balance."""
    best: tuple[int, ...] = (0,)
    mine = balancer.items(node, position)[:EXCHANGE_ITEMS]
    for target in targets:
        if not (balancer.is_source[target] and balancer.is_target[node]):
            continue
        theirs = balancer.items(target, position)[-EXCHANGE_ITEMS:]
        for item in mine:
            if item.id in balancer.state.held[target]:
                continue
            for other in theirs:
                if other.load >= item.load or other.id in balancer.state.held[node]:
                    continue
                gain = balancer.exchange_gain(item.id, node, other.id, target)
                if gain > best[0] and balancer.may_exchange(item.id, node, other.id, target):
                    best = (gain, item.id, other.id, target)
    if best[0]:
        _, group, other_group, target = best
        balancer.move(group, node, target, position, OVERLOAD)
        balancer.move(other_group, target, node, position, OVERLOAD)
    return best[0] > 0


def explain_nodes(changes: ReplicaChanges) -> list[Skipped]:
    """Return up to ``SKIPPED_PER_NODE`` replicas of each node that is still above a target, with
    the reason for which they stay. O(overloaded * replicas of a node)."""
    changes.judge_bytes()
    skipped = _explain_judged(Balancer(changes))
    if changes.judge_counts():
        balancer = Balancer(changes)
        skipped += [*_explain_judged(balancer), *_explain_missing(balancer)]
        changes.judge_bytes()
    return skipped


def _explain_judged(balancer: Balancer) -> list[Skipped]:
    changes = balancer.changes
    skipped = []
    for _, node, position in balancer.overloaded():
        if balancer.single_node and changes.state.ids[node] != changes.options.node:
            continue  # it was not asked for
        largest_headroom = max((balancer.headroom(target, position)
                                for target in range(len(balancer.is_target))
                                if balancer.is_target[target] and target != node), default=0)
        groups = sorted((group for group in changes.state.held[node]
                         if position != R_REPLICAS or group != METADATA_GROUP),
                        key=lambda group: (-changes.state.replica_load(group, position), group))
        others = [target for target in range(len(balancer.is_target))
                  if balancer.is_target[target] and target != node]
        skipped += [_non_move(balancer, group, node, position, largest_headroom, others)
                    for group in groups[:SKIPPED_PER_NODE]]
    return skipped


def _explain_missing(balancer: Balancer) -> list[Skipped]:
    """Return up to ``SKIPPED_PER_NODE`` replicas that a node below its share of their number could
    have got from the node with most, with the reason for which they stay."""
    state = balancer.state
    skipped = []
    for target in range(len(state.nodes)):
        if not balancer.is_target[target] or not balancer.deficit(target, R_REPLICAS):
            continue
        sources = [node for node in range(len(state.nodes))
                   if node != target and balancer.is_source[node]]
        low = balancer.changes.shares[R_REPLICAS].low
        source = max(sources, key=lambda node: (state.load[node][R_REPLICAS] > low[node],
                                                state.load[node][R_REPLICAS], -node),
                     default=NO_NODE)
        if source == NO_NODE:
            continue
        groups = sorted((group for group in state.held[source]
                         if group != METADATA_GROUP and group not in state.held[target]),
                        key=lambda group: (-state.groups[group].bytes, group))
        skipped += [_non_move(balancer, group, source, R_REPLICAS, 0, [target])
                    for group in groups[:SKIPPED_PER_NODE]]
    return [*dict.fromkeys(skipped)]


def _non_move(balancer: Balancer, group: int, node: int, position: int, largest_headroom: int,
              targets: list[int]) -> Skipped:
    """Return the reason for which a group's replica stays on a node, although one of ``targets``
    should have got it."""
    load = balancer.state.replica_load(group, position)
    reason = balancer.refusal(group) or ("" if balancer.is_source[node] else EXCLUDED)
    if not reason and balancer.changes.options.budget_bytes and not balancer.fits_budget(
            group, node, NO_NODE):
        reason = BUDGET
    if not reason:
        reason = (TOO_LARGE if load > largest_headroom and position != R_REPLICAS
                  else NO_SLACK)
    if reason == COOL_DOWN:
        why = cool_down_text(balancer.state.groups[group].moved_ms,
                             balancer.changes.policy.cool_down_ms)
    elif reason == NO_SLACK and position == R_REPLICAS:
        why = _number_stays(balancer, group, node, targets)
    else:
        why = _WORDS[reason]
    return Skipped(reason, f"g{group}", balancer.state.ids[node], NAMES[position], load,
                   f"group {group} stays on node {balancer.state.ids[node]}: {why}")


def _number_stays(balancer: Balancer, group: int, node: int, targets: list[int]) -> str:
    """Return the words for a replica that is not moved for the sake of the number."""
    limits = balancer.changes.shares[R_REPLICAS]
    if balancer.state.load[node][R_REPLICAS] <= limits.low[node]:
        return "the node has no more replicas than its share"
    takes = [target for target in targets if balancer.headroom(target, R_REPLICAS) > 0]
    if not takes:
        return "each other node has its share of replicas"
    if not any(balancer.changes.fits_limits(group, target) for target in takes):
        return ("with it another node would have more bytes than the floor below which they say "
                "nothing")
    return _WORDS[NO_SLACK]


_WORDS = {
    EXCLUDED: "the policy, or the scope of this plan, excludes it",
    IN_CHANGE: "its members are changing",
    NO_QUORUM: "it has no majority",
    BUDGET: "the byte budget is spent",
    TOO_LARGE: "it is larger than the room under any other node's share",
    NO_SLACK: "no node that its racks and disks allow has room for it",
}
