"""Deviations of nodes from their targets, and the moves of replicas that reduce them.

Contract.  ``Balancer`` judges moves of replicas and makes those that its caller chooses; the hard
rules are those of ``ReplicaChanges``.  A move that ``may_move`` allows makes the sum of squared
deviations from the band, over all nodes and balanced resources, smaller, and fits into the byte
budget.  ``savepoint`` and ``rollback`` undo.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sortedcontainers import SortedList

from placement.plan import COOL_DOWN, EXCLUDED, IN_CHANGE, NO_QUORUM, OVERLOAD, Why
from placement.policy import REPLICAS, SCOPE_NODE
from placement.replica_changes import REPLICA_RESOURCES, ReplicaChanges
from placement.shares import PPM
from placement.shed import Item, by_load, without_negligible
from placement.state import NO_NODE, R_DISK, R_INGRESS, R_REPLICAS

#: Negligible replicas stay: the smallest ones of a node, together less than this part of its share.
#: Groups with only their first entry neither relieve nor fill a node, and moving one is a change of
#: members.
NEGLIGIBLE_PPM = 1000

NAMES = {**{position: name for name, position in REPLICA_RESOURCES}, R_REPLICAS: REPLICAS}

#: Group of the metadata: it moves for its load, never for the number of replicas.
METADATA_GROUP = 0


class Excess(NamedTuple):
    """A node above its target in one resource, in millionths of its share."""

    ppm: int
    node: int
    position: int


class Savepoint(NamedTuple):
    """State of the changes to which ``rollback`` returns."""

    why: dict[int, Why]
    spent_bytes: int


class Balancer:
    """Judge of replica moves: targets, the direction of a plan for one node, the byte budget."""

    def __init__(self, changes: ReplicaChanges):
        self.changes = changes
        self.state = changes.state
        self.positions = list(changes.shares)
        excluded = changes.policy.excluded_nodes
        self.is_source = [node.has_share and node.id not in excluded for node in self.state.nodes]
        self.is_target = [
            node.accepts_replicas and node.id not in excluded for node in self.state.nodes
        ]
        self.undo_log: list[tuple[int, list[int], int]] = []
        self.single_node = changes.options.scope == SCOPE_NODE
        if self.single_node:
            self._restrict_to(self.state.index[changes.options.node])
        # Nodes that take replicas, most headroom for their share first: kept up to date by
        # ``move``.
        self.by_headroom = {position: SortedList(
            (self._fullness(node, position), node) for node in range(len(self.is_target))
            if self.is_target[node]) for position in self.positions}

    def _fullness(self, node: int, position: int) -> int:
        """Return the negative headroom of the node in millionths of its share; the lower, the more
        free capacity."""
        return -(self.headroom(node, position) * PPM // self.changes.shares[position].unit[node])

    def _restrict_to(self, node: int) -> None:
        """Restrict moves to those that relieve the node or, if it is not above its target, that
        fill it.

        A plan for one node has one direction; when the direction would turn, no move is allowed any
        longer and the plan is complete."""
        others = [False] * len(self.is_source)
        relieves = self._has_excess(node)
        if self.changes.node_is_source is None:
            self.changes.node_is_source = relieves
        self.changes.direction_changed = relieves != self.changes.node_is_source
        if self.changes.direction_changed:
            self.is_source = self.is_target = others
        elif relieves:
            self.is_source = [*others[:node], self.is_source[node], *others[node + 1:]]
        else:
            self.is_target = [*others[:node], self.is_target[node], *others[node + 1:]]

    def _has_excess(self, node: int) -> bool:
        """Return True if the node is above its target of any balanced resource, judged now or not.
        """
        changes = self.changes
        all_shares = {**changes.shares, **changes.limits}
        if R_REPLICAS not in all_shares and (even := changes.count_shares()) is not None:
            all_shares[R_REPLICAS] = even
        return self.state.nodes[node].has_share and any(
            self.state.load[node][position] > shares.high[node]
            for position, shares in all_shares.items())

    # ---- deviations -----------------------------------------------------------------------------

    def excess(self, node: int, position: int) -> int:
        """Return the node's load above its target, 0 below it or without a share. ``position``: the
        resource."""
        if not self.state.nodes[node].has_share:
            return 0
        return max(0, self.state.load[node][position] - self.changes.shares[position].high[node])

    def deficit(self, node: int, position: int) -> int:
        """Return the load that a node lacks to the lower edge of the band around its share; 0 above
        that. ``position``: the resource."""
        return max(0, self.changes.shares[position].low[node] - self.state.load[node][position])

    def headroom(self, node: int, position: int) -> int:
        """Return the load that fits below the node's target; negative above it. ``position``: the
        resource."""
        return self.changes.shares[position].high[node] - self.state.load[node][position]

    def cost(self, node: int, group: int = NO_NODE, sign: int = 0, other: int = NO_NODE) -> int:
        """Return the sum of the node's squared deviations from the band, over all balanced
        resources. ``group``: as if one replica of it were more (``sign`` 1) or less (-1) there;
        ``other``: the other way round."""
        if not self.state.nodes[node].has_share:
            return 0
        whole = 0
        for position in self.positions:
            shares = self.changes.shares[position]
            load = self.state.load[node][position]
            if group != NO_NODE:
                load += sign * self.state.replica_load(group, position)
            if other != NO_NODE:
                load -= sign * self.state.replica_load(other, position)
            beyond = max(load - shares.high[node], shares.low[node] - load, 0)
            if beyond:
                whole += (beyond * PPM // shares.unit[node]) ** 2
        return whole

    def gain(self, group: int, source: int, target: int) -> int:
        """Return the decrease of the squared deviations if a replica of ``group`` moves; negative
        if they grow."""
        return (self.cost(source) + self.cost(target)
                - self.cost(source, group, -1) - self.cost(target, group, 1))

    def exchange_gain(self, group: int, node: int, other: int, target: int) -> int:
        """Return the decrease of the squared deviations if ``node`` gives a replica of ``group`` to
        ``target`` for one of ``other``."""
        return (self.cost(node) + self.cost(target) - self.cost(node, group, -1, other)
                - self.cost(target, group, 1, other))

    # ---- what may move --------------------------------------------------------------------------

    def refusal(self, group: int) -> str:
        """Return the code of the reason for which the group's replicas must stay on their nodes;
        empty if they may move."""
        row, policy = self.state.groups[group], self.changes.policy
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
        """Return the replicas that may leave the node, largest first, without those that have no
        load in the resource ``position``, and the smallest that together are negligible.  Where
        they are counted all are equal: those that the node does not lead come first, in the order
        of a hash, so that a new node gets its part of those with records as of the others."""
        if position == R_REPLICAS:
            return [Item(1, group) for group in sorted(
                (group for group in self.state.held[node]
                 if group != METADATA_GROUP and not self.refusal(group)),
                key=lambda group: (self.state.leader[group] == node,
                                   self.changes.preference(group, node)))]
        found = [Item(load, group) for group in self.state.held[node]
                 if (load := self.state.replica_load(group, position))
                 and not self.refusal(group)]
        found.sort(key=by_load)
        return without_negligible(found,
                                  self.changes.shares[position].unit[node] * NEGLIGIBLE_PPM // PPM)

    def may_move(self, group: int, source: int, target: int) -> bool:
        """True if the hard rules and the budget allow the move, it improves the balance, and it
        makes no node the fullest. In a plan for one node it must also not take that node below its
        band."""
        return (self.changes.may_take(group, target, source)
                and self.gain(group, source, target) > 0
                and self.does_not_overload(target, source, group)
                and self.fits_budget(group, source, target)
                and not self.would_underfill(group, source))

    def does_not_overload(self, target: int, source: int, group: int, other: int = NO_NODE) -> bool:
        """True if in each resource the target stays below its target, or less full than the source
        was, with a replica of ``group`` (for one of ``other``).  So the fullest node never becomes
        fuller."""
        for position in self.positions:
            shares = self.changes.shares[position]
            more = self.state.replica_load(group, position)
            if other != NO_NODE:
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
        if not (self.does_not_overload(target, node, group, other)
                and self.does_not_overload(node, target, other, group)):
            return False
        for one, two, source, goal in ((group, other, node, target), (other, group, target, node)):
            if not state.nodes[goal].accepts_replicas or one in state.held[goal]:
                return False
            for position, more in ((R_DISK, state.groups[one].bytes - state.groups[two].bytes),
                                   (R_INGRESS, state.ingress[one] - state.ingress[two])):
                if more > 0 and state.load[goal][position] + more > state.nodes[goal].cap[position]:
                    return False
            if not state.rack_fits(one, goal, source, len(state.voters[one])):
                return False
        return self.budget_allows(
            self.bytes_to_copy(group, node, target) + self.bytes_to_copy(other, target, node)
        )

    def would_underfill(self, group: int, source: int) -> bool:
        """True if the plan is for one node and ``source`` would be below the band without the
        replica. Such a plan has one direction, so it must not overshoot; any other plan may."""
        return self.single_node and any(
            self.state.load[source][position] - self.state.replica_load(group, position)
            < self.changes.shares[position].low[source] for position in self.positions)

    def fits_budget(self, group: int, source: int, target: int) -> bool:
        """True if the byte budget allows the move."""
        return self.budget_allows(self.bytes_to_copy(group, source, target))

    def budget_allows(self, bytes_to_copy: int) -> bool:
        """True if that much of the byte budget is left; otherwise the plan is recorded as cut by
        its budget."""
        budget = self.changes.options.budget_bytes
        enough = not budget or self.changes.spent_bytes + bytes_to_copy <= budget
        self.changes.cut_by_budget = self.changes.cut_by_budget or not enough
        return enough

    def bytes_to_copy(self, group: int, source: int, target: int) -> int:
        """Return the bytes that the plan copies in addition with this move; 0 between new nodes,
        negative if it brings a replica back."""
        initial = self.state.initial(group)
        size = self.state.groups[group].bytes
        return size * (target not in initial) - size * (source not in initial)

    def fits(self, group: int, target: int) -> bool:
        """True if every resource of the target node stays below its target with the replica."""
        return all(
            self.state.replica_load(group, position) <= max(0, self.headroom(target, position))
            or not self.state.replica_load(group, position)
            for position in self.positions
        )

    def move(self, group: int, source: int, target: int, position: int, reason: str) -> None:
        """Move a replica that all rules allow, and record the reason, the bytes, and what
        ``rollback`` needs. ``position``: the resource for which it moves."""
        changes = self.changes
        self.undo_log.append((group, self.state.voters[group], self.state.leader[group]))
        changes.spent_bytes += self.bytes_to_copy(group, source, target)
        relieved = source if reason == OVERLOAD else target
        before = changes.ppm(relieved, position)
        load = self.state.replica_load(group, position)
        after = changes.ppm(relieved, position, -load if relieved == source else load)
        why = Why(reason, NAMES[position], self.state.ids[relieved], before, after)
        changes.moves_for_counts = changes.moves_for_counts or position == R_REPLICAS
        with self._reordered((source, target)):
            changes.replace(group, source, target, why)

    @contextmanager
    def _reordered(self, nodes: Iterable[int]) -> Iterator[None]:
        """Take these nodes out of ``by_headroom`` during the body, and put them back with their new
        loads."""
        places = [(order, node, position) for position, order in self.by_headroom.items()
                  for node in nodes if self.is_target[node]]
        for order, node, position in places:
            order.remove((self._fullness(node, position), node))
        yield
        for order, node, position in places:
            order.add((self._fullness(node, position), node))

    def savepoint(self) -> Savepoint:
        """Return the present state for ``rollback``; moves before can no longer be undone."""
        self.undo_log.clear()
        return Savepoint(dict(self.changes.why), self.changes.spent_bytes)

    def rollback(self, savepoint: Savepoint) -> None:
        """Undo all moves since ``savepoint``, which must be the last one."""
        for group, voters, leader in reversed(self.undo_log):
            changed = {*voters} ^ {*self.state.voters[group]}
            with self._reordered(sorted(changed)):
                self.state.set_members(group, voters, leader)
        self.undo_log.clear()
        self.changes.why, self.changes.spent_bytes = savepoint

    def overloaded(self) -> list[Excess]:
        """Return each excess of a node in a resource, worst first."""
        found = [Excess(excess * PPM // self.changes.shares[position].unit[node], node,
                        position)
                 for node in range(len(self.is_source)) for position in self.positions
                 if (excess := self.excess(node, position))]
        return sorted(found, key=lambda each: (-each.ppm, each.node, each.position))
