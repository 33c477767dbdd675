"""Deviations of nodes from their targets, and the moves of replicas that reduce them.

Contract.  ``Balance`` extends the ledger: it judges moves of replicas and makes those that its
caller chooses; hard rules are the ledger's.  A move that it ``permits`` makes the sum of squared
deviations from the band, over all nodes and balanced resources, smaller, and fits into the byte
budget.  ``mark`` and ``back_to`` undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sortedcontainers import SortedList

from placement.ledger import REPLICA_RESOURCES, Ledger
from placement.plan import COOL_DOWN, EXCLUDED, IN_CHANGE, NO_QUORUM, OVERLOAD, Why
from placement.policy import SCOPE_NODE
from placement.shares import PPM
from placement.shedding import Item, by_load, without_dust
from placement.state import NOBODY, R_DISK, R_INGRESS

#: *Dust* stays: the smallest replicas of a node that together are less than this part of its share.
#: Groups with only their first entry neither relieve nor fill a node, and moving one is a change of
#: members.
DUST_PPM = 1000

NAMES = {position: name for name, position in REPLICA_RESOURCES}


class Excess(NamedTuple):
    """A node above its target in one resource, in millionths of its share."""

    ppm: int
    node: int
    position: int


class Mark(NamedTuple):
    """State of the ledger to which ``back_to`` returns."""

    why: dict[int, Why]
    spent_bytes: int


class Balance:
    """The ledger with the state of balancing: targets, directions of a plan for one node, byte
    budget."""

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
        """Return the load relative to the node's share; the lower, the more free capacity."""
        return -(self.room(node, position) * PPM // self.ledger.shares[position].unit[node])

    def _only(self, node: int) -> None:
        """Restrict moves to those that relieve the node or, if it is not above its target, that
        fill it.

        A plan for one node has one direction; when the direction would turn, the plan is
        complete."""
        others = [False] * len(self.gives)
        gives = any(self.over(node, position) for position in self.positions)
        if self.ledger.gives is None:
            self.ledger.gives = gives
        self.ledger.turned = gives != self.ledger.gives
        if self.ledger.turned:
            self.gives = self.takes = others
        elif gives:
            self.gives = [*others[:node], self.gives[node], *others[node + 1:]]
        else:
            self.takes = [*others[:node], self.takes[node], *others[node + 1:]]

    # ---- deviations -----------------------------------------------------------------------------

    def over(self, node: int, position: int) -> int:
        """Return the load above the target."""
        if not self.state.nodes[node].holds:
            return 0
        return max(0, self.state.load[node][position] - self.ledger.shares[position].high[node])

    def under(self, node: int, position: int) -> int:
        """Return the load that is missing to the lower edge of the band."""
        return max(0, self.ledger.shares[position].low[node] - self.state.load[node][position])

    def room(self, node: int, position: int) -> int:
        """Return the load that fits below the target."""
        return self.ledger.shares[position].high[node] - self.state.load[node][position]

    def cost(self, node: int, group: int = NOBODY, sign: int = 0, other: int = NOBODY) -> int:
        """Return the node's squared deviations with one replica of ``group`` more or less, and one
        of ``other`` the other way round."""
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
        """Return the decrease of the squared deviations by a move."""
        return (self.cost(source) + self.cost(target)
                - self.cost(source, group, -1) - self.cost(target, group, 1))

    def exchange_gain(self, group: int, node: int, other: int, target: int) -> int:
        """Return the decrease when ``node`` gives a replica of ``group`` for one of ``other``."""
        return (self.cost(node) + self.cost(target) - self.cost(node, group, -1, other)
                - self.cost(target, group, 1, other))

    # ---- what may move --------------------------------------------------------------------------

    def refusal(self, group: int) -> str:
        """Return why the group's replicas must stay on their nodes; empty if they may move."""
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
        """Return the replicas that may leave the node and are worth moving, largest first."""
        found = [Item(load, group) for group in self.state.held[node]
                 if (load := self.state.replica_load(group, position))
                 and not self.refusal(group)]
        found.sort(key=by_load)
        return without_dust(found, self.ledger.shares[position].unit[node] * DUST_PPM // PPM)

    def permits(self, group: int, source: int, target: int) -> bool:
        """True if the replica may move to the target and the move helps."""
        return (self.ledger.may_take(group, target, source)
                and self.gain(group, source, target) > 0
                and self.spares(target, source, group)
                and self.affordable(group, source, target)
                and not self.undershoots(group, source))

    def spares(self, target: int, source: int, group: int, other: int = NOBODY) -> bool:
        """True if in each resource the target stays below its target, or less full than the source
        was, with a replica of ``group`` (for one of ``other``).  So the fullest node never becomes
        fuller."""
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

    def may_exchange(self, group: int, node: int, other: int, target: int) -> bool:
        """True if the hard rules allow both moves, each judged with the capacity that the other one
        frees."""
        state = self.state
        if not (self.spares(target, node, group, other)
                and self.spares(node, target, other, group)):
            return False
        for one, two, source, goal in ((group, other, node, target), (other, group, target, node)):
            if not state.nodes[goal].takes or one in state.held[goal]:
                return False
            for position, more in ((R_DISK, state.groups[one].bytes - state.groups[two].bytes),
                                   (R_INGRESS, state.ingress[one] - state.ingress[two])):
                if more > 0 and state.load[goal][position] + more > state.nodes[goal].cap[position]:
                    return False
            if not state.rack_fits(one, goal, source, len(state.voters[one])):
                return False
        return self.affords(self.price(group, node, target) + self.price(other, target, node))

    def undershoots(self, group: int, source: int) -> bool:
        """True if the node would be below the band without the replica.  A plan for one node has
        one direction, so it must not overshoot; any other plan may."""
        return self.one_node and any(
            self.state.load[source][position] - self.state.replica_load(group, position)
            < self.ledger.shares[position].low[source] for position in self.positions)

    def affordable(self, group: int, source: int, target: int) -> bool:
        """True if the byte budget allows the move."""
        return self.affords(self.price(group, source, target))

    def affords(self, price: int) -> bool:
        """True if that much of the byte budget is left."""
        budget = self.ledger.options.budget_bytes
        enough = not budget or self.ledger.spent_bytes + price <= budget
        self.ledger.cut_by_budget = self.ledger.cut_by_budget or not enough
        return enough

    def price(self, group: int, source: int, target: int) -> int:
        """Return the bytes that the plan copies in addition with this move; 0 to bring a replica
        back."""
        initial = self.state.initial(group)
        size = self.state.groups[group].bytes
        return size * (target not in initial) - size * (source not in initial)

    def fits(self, group: int, target: int) -> bool:
        """True if every resource of the target node stays below its target with the replica."""
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
        """Keep the order of receivers up to date around a change of these nodes' loads."""
        places = [(order, node, position) for position, order in self.roomiest.items()
                  for node in nodes if self.takes[node]]
        for order, node, position in places:
            order.remove((self._fullness(node, position), node))
        yield
        for order, node, position in places:
            order.add((self._fullness(node, position), node))

    def mark(self) -> Mark:
        """Return the present state, for ``back_to``."""
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
        """Return the nodes above a target, worst first."""
        found = [Excess(over * PPM // self.ledger.shares[position].unit[node], node,
                        position)
                 for node in range(len(self.gives)) for position in self.positions
                 if (over := self.over(node, position))]
        return sorted(found, key=lambda each: (-each.ppm, each.node, each.position))
