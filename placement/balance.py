"""Replicas from nodes that hold more than their share to nodes that hold less: bytes are copied.

Contract.  ``balance_replicas`` moves only out of nodes above their target or into nodes below it,
and only so that the sum of squared deviations from the band, over all nodes and balanced resources,
becomes smaller with each move.  So it ends, it cannot go round in circles, and beginning again
where it ended does nothing.  Hard rules are the ledger's.

Four steps, repeated until none does anything:

    shed       the excess of each overloaded node, largest replicas first among those that fit
    fill       nodes below the band, which are new or were emptied, from the fullest ones
    make room  large replicas that fit nowhere, where small ones can be passed on to others
    descend    single moves, then exchanges, that fit nowhere and still make things better
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from sortedcontainers import SortedList

from placement.ledger import REPLICA_RESOURCES, Ledger
from placement.plan import (
    BUDGET,
    COOL_DOWN,
    EXCLUDED,
    IN_CHANGE,
    NEW_NODE,
    NO_QUORUM,
    NO_SLACK,
    OVERLOAD,
    RESTS,
    TOO_LARGE,
    Skipped,
    Why,
)
from placement.policy import SCOPE_NODE
from placement.shares import PPM
from placement.shedding import Item, by_load, fitting_cap, shed, without_dust
from placement.state import NOBODY, R_DISK

#: Shares are reckoned anew when giants have moved; two rounds are usual.
ROUNDS_MAX = 64

#: Targets that ``descend`` looks at for each replica: those with most room.
DESCENT_TARGETS = 8

#: Large replicas of an overloaded node for which ``make room`` is tried.
DISPLACED_MAX = 4

#: Replicas of either side that ``descend`` looks at for an exchange.
EXCHANGE_ITEMS = 24

#: *Dust* stays: the smallest replicas of a node that together are less than this part of its share.
#: Groups that hold nothing but their first entry relieve and fill nobody, and each of them is a
#: change of members.
DUST_PPM = 1000

#: Non-moves that are told per overloaded node and resource.
SKIPPED_PER_NODE = 3

NAMES = {position: name for name, position in REPLICA_RESOURCES}


class Excess(NamedTuple):
    """A node above its target in one resource, in millionths of its share."""

    ppm: int
    node: int
    position: int


class Mark(NamedTuple):
    """Where the ledger stood."""

    why: dict[int, Why]
    spent_bytes: int


class _Balance:
    """The ledger with what balancing adds: targets, who gives and takes, the budget."""

    def __init__(self, ledger: Ledger):
        self.ledger = ledger
        self.state = ledger.state
        self.positions = list(ledger.shares)
        excluded = ledger.policy.excluded_nodes
        self.gives = [node.holds and node.id not in excluded for node in self.state.nodes]
        self.takes = [node.takes and node.id not in excluded for node in self.state.nodes]
        self.journal: list[tuple[int, list[int], int]] = []
        self.one_node = ledger.options.scope == SCOPE_NODE
        if self.one_node:
            self._only(self.state.index[ledger.options.node])
        # Those that take replicas, most room for their share first: kept up to date by ``move``.
        self.roomiest = {position: SortedList(
            (self._fullness(node, position), node) for node in range(len(self.takes))
            if self.takes[node]) for position in self.positions}

    def _fullness(self, node: int, position: int) -> int:
        """The less, the more room there is for the node's share."""
        return -(self.room(node, position) * PPM // self.ledger.shares[position].unit[node])

    def _only(self, node: int) -> None:
        """Restrict moves to those that relieve the node, or, when it is not above its target, to
        those that fill it."""
        others = [False] * len(self.gives)
        if any(self.over(node, position) for position in self.positions):
            self.gives = [*others[:node], self.gives[node], *others[node + 1:]]
        else:
            self.takes = [*others[:node], self.takes[node], *others[node + 1:]]

    # ---- deviations -----------------------------------------------------------------------------

    def over(self, node: int, position: int) -> int:
        """Load above the target."""
        if not self.state.nodes[node].holds:
            return 0
        return max(0, self.state.load[node][position] - self.ledger.shares[position].high[node])

    def under(self, node: int, position: int) -> int:
        """Load that is missing to the lower edge of the band."""
        return max(0, self.ledger.shares[position].low[node] - self.state.load[node][position])

    def room(self, node: int, position: int) -> int:
        """Load that fits below the target."""
        return self.ledger.shares[position].high[node] - self.state.load[node][position]

    def cost(self, node: int, group: int = NOBODY, sign: int = 0, other: int = NOBODY) -> int:
        """The node's squared deviations with a replica of ``group`` more or less, and one of
        ``other`` the other way round."""
        if not self.state.nodes[node].holds:
            return 0
        whole = 0
        for position in self.positions:
            shares = self.ledger.shares[position]
            load = self.state.load[node][position]
            if group != NOBODY:
                load += sign * self.state.replica_load(group, position)
            if other != NOBODY:
                load -= sign * self.state.replica_load(other, position)
            beyond = max(load - shares.high[node], shares.low[node] - load, 0)
            if beyond:
                whole += (beyond * PPM // shares.unit[node]) ** 2
        return whole

    def gain(self, group: int, source: int, target: int) -> int:
        """By how much a move makes the squared deviations smaller."""
        return (self.cost(source) + self.cost(target)
                - self.cost(source, group, -1) - self.cost(target, group, 1))

    # ---- what may move --------------------------------------------------------------------------

    def refusal(self, group: int) -> str:
        """Why the group's replicas stay where they are; empty when they need not."""
        row, policy = self.state.groups[group], self.ledger.policy
        if group in policy.excluded_groups:
            return EXCLUDED
        if row.in_joint:
            return IN_CHANGE
        if not self.state.has_quorum(group):
            return NO_QUORUM
        if row.moved_ms and self.state.snapshot.taken_ms < row.moved_ms + policy.cool_down_ms:
            return COOL_DOWN
        return ""

    def items(self, node: int, position: int) -> list[Item]:
        """Replicas that may leave the node and are worth it, largest first."""
        found = [Item(load, group) for group in self.state.held[node]
                 if (load := self.state.replica_load(group, position))
                 and not self.refusal(group)]
        found.sort(key=by_load)
        return without_dust(found, self.ledger.shares[position].unit[node] * DUST_PPM // PPM)

    def permits(self, group: int, source: int, target: int) -> bool:
        """May the replica move there, and does it help?"""
        return (self.ledger.may_take(group, target, source)
                and self.gain(group, source, target) > 0
                and self.spares(target, source, group)
                and self.affordable(group, source, target)
                and not (self.one_node and self._undershoots(group, source)))

    def spares(self, target: int, source: int, group: int, other: int = NOBODY) -> bool:
        """Is the target in each resource below its target, or less full than the source was, with
        a replica of ``group`` (for one of ``other``)?  So the fullest node never becomes fuller."""
        for position in self.positions:
            shares = self.ledger.shares[position]
            more = self.state.replica_load(group, position)
            if other != NOBODY:
                more -= self.state.replica_load(other, position)
            load = self.state.load[target][position] + more
            if more > 0 and load > shares.high[target] \
                    and not self.state.is_emptier(target, load, source, position):
                return False
        return True

    def _undershoots(self, group: int, source: int) -> bool:
        """Would the node be below the band without the replica?  A plan for one node goes one way
        only, so it must not overshoot."""
        return any(self.state.load[source][position] - self.state.replica_load(group, position)
                   < self.ledger.shares[position].low[source] for position in self.positions)

    def affordable(self, group: int, source: int, target: int) -> bool:
        """Does the byte budget allow the move?"""
        return self.affords(self.price(group, source, target))

    def affords(self, price: int) -> bool:
        """Is so much left of the byte budget?"""
        budget = self.ledger.options.budget_bytes
        enough = not budget or self.ledger.spent_bytes + price <= budget
        self.ledger.cut_by_budget = self.ledger.cut_by_budget or not enough
        return enough

    def price(self, group: int, source: int, target: int) -> int:
        """Bytes that the plan copies more with this move: nothing to bring a replica back."""
        initial = self.state.initial(group)
        size = self.state.groups[group].bytes
        return size * (target not in initial) - size * (source not in initial)

    def fits(self, group: int, target: int) -> bool:
        """Does the replica stay below the target's target in everything?"""
        return all(self.state.replica_load(group, position) <= max(0, self.room(target, position))
                   or not self.state.replica_load(group, position) for position in self.positions)

    def move(self, group: int, source: int, target: int, position: int, reason: str) -> None:
        """Move a replica that all rules allow."""
        ledger = self.ledger
        self.journal.append((group, self.state.voters[group], self.state.leader[group]))
        ledger.spent_bytes += self.price(group, source, target)
        relieved = source if reason == OVERLOAD else target
        before = ledger.ppm(relieved, position)
        load = self.state.replica_load(group, position)
        after = ledger.ppm(relieved, position, -load if relieved == source else load)
        why = Why(reason, NAMES[position], self.state.ids[relieved], before, after)
        with self._reordered((source, target)):
            ledger.replace(group, source, target, why)

    @contextmanager
    def _reordered(self, nodes: Iterable[int]) -> Iterator[None]:
        """What changes the loads of these nodes happens inside."""
        places = [(order, node, position) for position, order in self.roomiest.items()
                  for node in nodes if self.takes[node]]
        for order, node, position in places:
            order.remove((self._fullness(node, position), node))
        yield
        for order, node, position in places:
            order.add((self._fullness(node, position), node))

    def mark(self) -> Mark:
        """To come back to."""
        self.journal.clear()
        return Mark(dict(self.ledger.why), self.ledger.spent_bytes)

    def back_to(self, mark: Mark) -> None:
        """Undo all moves since the mark."""
        for group, voters, leader in reversed(self.journal):
            changed = {*voters} ^ {*self.state.voters[group]}
            with self._reordered(sorted(changed)):
                self.state.set_members(group, voters, leader)
        self.journal.clear()
        self.ledger.why, self.ledger.spent_bytes = mark

    def overloaded(self) -> list[Excess]:
        """Nodes above a target, worst first."""
        found = [Excess(over * PPM // self.ledger.shares[position].unit[node], node,
                        position)
                 for node in range(len(self.gives)) for position in self.positions
                 if (over := self.over(node, position))]
        return sorted(found, key=lambda each: (-each.ppm, each.node, each.position))


def balance_replicas(ledger: Ledger) -> bool:
    """Balance what the ledger's shares are of.  Is nothing left to do?

    O(steps * (replicas of a node) * nodes).
    """
    for _ in range(ROUNDS_MAX):
        ledger.reckon()
        balance = _Balance(ledger)
        moved = False
        while (_shed(balance) or _fill(balance) or _make_room(balance)
               or _descend(balance)):
            moved = True
        if not moved:
            return True
    return False


def _shed(balance: _Balance) -> bool:
    """One pass over the overloaded nodes, worst first.  Did anything move?"""
    moved = False
    for _, node, position in balance.overloaded():
        excess = balance.over(node, position)
        if not excess or not balance.gives[node]:
            continue
        cap = fitting_cap(balance.room(target, position)
                          for target in range(len(balance.takes)) if balance.takes[target])
        for item in sorted(shed(balance.items(node, position), excess, cap), key=by_load):
            if balance.over(node, position):
                moved = _place(balance, item, node, position) or moved
    return moved


def _place(balance: _Balance, item: Item, node: int, position: int) -> bool:
    """Move a replica to the node with most room that may have it, relative to its share."""
    for target in _ranked(balance, item, position):
        if balance.fits(item.id, target) and balance.permits(item.id, node, target):
            balance.move(item.id, node, target, position, OVERLOAD)
            return True
    return False


def _ranked(balance: _Balance, item: Item, position: int) -> Iterator[int]:
    """Nodes with room for the replica, most room first; what is preferred is looked at only where
    that is equal: it is a hash, and hardly any node but the first is asked for."""
    roomy = ((order, target) for order, target in balance.roomiest[position]
             if balance.room(target, position) >= item.load)
    for _, equal in groupby(roomy, key=itemgetter(0)):
        targets = [target for _, target in equal]
        if len(targets) > 1:
            targets.sort(key=lambda target: balance.ledger.preference(item.id, target))
        yield from targets


def _fill(balance: _Balance) -> bool:
    """Bring nodes below the band up to it.  Did anything move?"""
    moved = False
    for position in balance.positions:
        shares = balance.ledger.shares[position]
        for target in range(len(balance.takes)):
            while balance.takes[target] and balance.under(target, position):
                sources = sorted((node for node in range(len(balance.gives))
                                  if balance.gives[node] and node != target
                                  and balance.state.load[node][position] > shares.low[node]),
                                 key=lambda node: (-balance.ledger.ppm(node, position), node))
                if not any(_pull(balance, source, target, position) for source in sources):
                    break
                moved = True
    return moved


def _pull(balance: _Balance, source: int, target: int, position: int) -> bool:
    """Move the replica that fits best from ``source`` to ``target``: the largest that is not more
    than what is missing, else the smallest that is."""
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


def _make_room(balance: _Balance) -> bool:
    """Move a large replica to where most room is, and small ones from there to wherever they fit.
    Did anything move?"""
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
                       if balance.ledger.may_take(item.id, target, node))
            for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
                if _displace(balance, item, node, target, position):
                    return True
    return False


def _displace(balance: _Balance, item: Item, node: int, target: int, position: int) -> bool:
    """Try it; everything is as before when the target stays above a target of its own."""
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


def _descend(balance: _Balance) -> bool:
    """The best single move, else the best exchange, for the worst node that has one."""
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


def _best_move(balance: _Balance, node: int, targets: list[int], position: int) -> bool:
    best = (0, NOBODY, NOBODY)
    for item in balance.items(node, position):
        allowed = (target for target in targets if balance.ledger.may_take(item.id, target, node)
                   and balance.affordable(item.id, node, target))
        for target, _ in zip(allowed, range(DESCENT_TARGETS), strict=False):
            gain = balance.gain(item.id, node, target)
            if gain > best[0] and balance.spares(target, node, item.id):
                best = (gain, item.id, target)
    if best[0]:
        balance.move(best[1], node, best[2], position, OVERLOAD)
    return best[0] > 0


def _best_exchange(balance: _Balance, node: int, targets: list[int], position: int) -> bool:
    """A replica of ``node`` against a smaller one of another node."""
    best: tuple[int, ...] = (0,)
    mine = balance.items(node, position)[:EXCHANGE_ITEMS]
    for target in targets:
        if not (balance.gives[target] and balance.takes[node]):
            continue
        theirs = balance.items(target, position)[-EXCHANGE_ITEMS:]
        base = balance.cost(node) + balance.cost(target)
        for item in mine:
            if item.id in balance.state.held[target]:
                continue
            for other in theirs:
                if other.load >= item.load or other.id in balance.state.held[node]:
                    continue
                gain = (base - balance.cost(node, item.id, -1, other.id)
                        - balance.cost(target, item.id, 1, other.id))
                if gain > best[0] and _may_exchange(balance, item.id, node, other.id, target):
                    best = (gain, item.id, other.id, target)
    if best[0]:
        _, group, other_group, target = best
        balance.move(group, node, target, position, OVERLOAD)
        balance.move(other_group, target, node, position, OVERLOAD)
    return best[0] > 0


def _may_exchange(balance: _Balance, group: int, node: int, other: int, target: int) -> bool:
    """Hard rules of both moves, each judged with the room that the other one frees."""
    state, ledger = balance.state, balance.ledger
    if not (balance.spares(target, node, group, other)
            and balance.spares(node, target, other, group)):
        return False
    for one, two, source, goal in ((group, other, node, target), (other, group, target, node)):
        freed = state.groups[two].bytes
        if state.load[goal][R_DISK] + state.groups[one].bytes - freed \
                > state.nodes[goal].cap[R_DISK]:
            return False
        if not state.rack_fits(one, goal, source, len(state.voters[one])):
            return False
    return ledger.may_take(group, target, node) and balance.affords(
        balance.price(group, node, target) + balance.price(other, target, node))


def explain_nodes(ledger: Ledger) -> list[Skipped]:
    """Why nodes that are still above their target are.  O(overloaded * replicas of a node)."""
    ledger.reckon()
    balance = _Balance(ledger)
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


def _non_move(balance: _Balance, group: int, node: int, position: int,
              largest_room: int) -> Skipped:
    load = balance.state.replica_load(group, position)
    reason = balance.refusal(group) or ("" if balance.gives[node] else EXCLUDED)
    if not reason and balance.ledger.options.budget_bytes and not balance.affordable(
            group, node, NOBODY):
        reason = BUDGET
    if not reason:
        reason = TOO_LARGE if load > largest_room else NO_SLACK
    return Skipped(reason, f"g{group}", balance.state.ids[node], NAMES[position], load,
                   f"group {group} stays on node {balance.state.ids[node]}: {_WORDS[reason]}")


_WORDS = {
    EXCLUDED: "the policy, or the scope of this plan, excludes it",
    IN_CHANGE: "its members are changing",
    NO_QUORUM: "it has no majority",
    COOL_DOWN: RESTS,
    BUDGET: "the byte budget is spent",
    TOO_LARGE: "it is larger than the room of any other node",
    NO_SLACK: "no node that its racks and disks allow has room for it",
}
