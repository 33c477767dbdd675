"""Replicas that must not stay where they are: dead nodes, drained nodes, racks, full disks.

Contract.  Each function changes the planned state towards fewer violations and never makes one;
what cannot be done is recorded with its cause and what would help.  Beginning again where they
ended does nothing.

A group without a majority is not repaired here: its members cannot be changed, and bringing it back
by force is an operator's decision.
"""

from __future__ import annotations

from placement.cluster import DEAD
from placement.plan import (
    CAPACITY,
    DISK_HARD,
    DRAIN,
    IN_CHANGE,
    LAST_RACK,
    NO_QUORUM,
    NO_TARGET,
    RACK_VIOLATION,
    REPAIR_DEAD,
    TOO_FEW_NODES,
    UNDER_REPLICATED,
    Infeasible,
    Skipped,
    Why,
)
from placement.policy import DISK
from placement.replica_changes import ReplicaChanges
from placement.shed import Item, by_load, shed
from placement.state import NO_NODE, R_DISK, State

#: Subjects that one explanation names; the number is always said.
NAMED_MAX = 8


def repair_dead(changes: ReplicaChanges) -> None:
    """Replace replicas on dead nodes, and add voters to groups with too few. A replica or voter
    without a target is recorded in ``infeasible``.

    A group whose members cannot be changed now is left alone, and the reason is recorded."""
    state = changes.state
    factor = state.snapshot.replication_factor
    for group in _largest_first(state):
        dead = [node for node in state.voters[group] if state.nodes[node].state == DEAD]
        if not dead and len(state.voters[group]) >= factor:
            continue
        if not _may_change(changes, group):
            continue
        for node in dead:
            _replace(changes, group, node, Why(REPAIR_DEAD, "", state.ids[node]))
        while len(state.voters[group]) < factor:
            target = changes.best_target(group)
            if target == NO_NODE:
                _no_target(changes, group, NO_NODE)
                break
            changes.add(group, target, Why(UNDER_REPLICATED))


def drain(changes: ReplicaChanges) -> None:
    """Replace the replicas of draining nodes; a replica without a target stays and is recorded in
    ``infeasible``.

    A group whose members cannot be changed now is left alone, and the reason is recorded."""
    state = changes.state
    for group in _largest_first(state):
        leaving = [node for node in state.voters[group]
                   if state.nodes[node].is_evacuated and state.nodes[node].state != DEAD]
        if leaving and _may_change(changes, group):
            for node in leaving:
                _replace(changes, group, node, Why(DRAIN, "", state.ids[node]))


def spread_over_racks(changes: ReplicaChanges) -> None:
    """Move replicas out of racks that have more voters of a group than ``State.rack_limit``, as
    long as there is a target and the group's members can be changed."""
    state = changes.state
    for group in _largest_first(state):
        crowded = _crowded(state, group)
        while crowded:
            if not _may_change(changes, group):
                break
            leaving = max(crowded, key=lambda node: (changes.fullness(group, node),
                                                     state.ids[node]))
            if not _replace(changes, group, leaving, Why(RACK_VIOLATION, "", state.ids[leaving])):
                break
            crowded = _crowded(state, group)


def empty_full_disks(changes: ReplicaChanges) -> None:
    """Move replicas off nodes above the disk cap, as little load as brings them below it. A node
    that stays above is recorded in ``infeasible``."""
    state = changes.state
    for node in range(len(state.nodes)):
        excess = state.load[node][R_DISK] - state.nodes[node].cap[R_DISK]
        if excess <= 0 or state.nodes[node].is_evacuated:
            continue
        items = sorted((Item(state.groups[group].bytes, group) for group in state.held[node]
                        if not state.groups[group].in_joint and state.has_quorum(group)
                        and _target_for(changes, group, node) != NO_NODE), key=by_load)
        before = changes.ppm(node, R_DISK)
        for item in sorted(shed(items, excess, excess + max(
                (item.load for item in items), default=0)), key=by_load):
            target = _target_for(changes, item.id, node)
            if target != NO_NODE:
                after = changes.ppm(node, R_DISK, -item.load)
                changes.replace(item.id, node, target, Why(DISK_HARD, DISK, state.ids[node],
                                                          before, after))
        left = state.load[node][R_DISK] - state.nodes[node].cap[R_DISK]
        if left > 0:
            changes.infeasible.append(Infeasible(
                CAPACITY, f"n{state.ids[node]}", f"node {state.ids[node]} stays {left} bytes above "
                f"the cap of its disk: no other node has room for more of it",
                "add a node or disk space; deleting topics makes no room yet"))


def _target_for(changes: ReplicaChanges, group: int, leaving: int) -> int:
    return changes.best_target(group, leaving)


def _largest_first(state: State) -> list[int]:
    """Return groups in descending order of replica size: the largest are placed while space is
    left."""
    return sorted(state.groups, key=lambda group: (-state.groups[group].bytes,
                                                   -state.ingress[group], group))


def _crowded(state: State, group: int) -> list[int]:
    """Return the voters in racks that have more voters of the group than ``State.rack_limit``;
    nodes to be emptied do not count."""
    voters = state.voters[group]
    limit = state.rack_limit[len(voters)]
    return [node for node in voters if not state.nodes[node].is_evacuated
            and state.in_rack(group, state.nodes[node].rack) > limit]


def _may_change(changes: ReplicaChanges, group: int) -> bool:
    """Return True if the group's members can be changed now. Otherwise record the reason, once: no
    majority, or a change under way."""
    state = changes.state
    if not state.has_quorum(group):
        cause = Infeasible(
            NO_QUORUM, f"g{group}", f"group {group} has no majority of living voters, so its "
            f"members cannot be changed", "bring a dead node back, or recover the group by force "
            "(multiraft group recover), which may lose records")
        if cause not in changes.infeasible:
            changes.infeasible.append(cause)
        return False
    if state.groups[group].in_joint:
        skipped = Skipped(IN_CHANGE, f"g{group}", 0, "", 0,
                          f"group {group} is in the middle of a change of members; plan again "
                          f"when it has ended")
        if skipped not in changes.skipped:
            changes.skipped.append(skipped)
        return False
    return True


def _replace(changes: ReplicaChanges, group: int, leaving: int, why: Why) -> bool:
    target = changes.best_target(group, leaving)
    if target == NO_NODE:
        _no_target(changes, group, leaving)
        return False
    changes.replace(group, leaving, target, why)
    return True


def _no_target(changes: ReplicaChanges, group: int, leaving: int) -> None:
    """Record, once, that the replica on ``leaving`` (``NO_NODE`` = an additional one) has nowhere
    to go, and how many nodes lack what."""
    state = changes.state
    lacks: dict[str, int] = {}
    for target, node in enumerate(state.nodes):
        if not node.accepts_replicas:
            word = "take no replicas"
        elif group in state.held[target]:
            word = "have one already"
        elif state.load[target][R_DISK] + state.groups[group].bytes > node.cap[R_DISK]:
            word = "have no room on disk"
        elif not state.rack_fits(group, target, leaving, len(state.voters[group])):
            word = "stand in a rack that has its part"
        else:
            word = "have no room for its appends"
        lacks[word] = lacks.get(word, 0) + 1
    from_node = "" if leaving == NO_NODE else f" of node {state.ids[leaving]}"
    cause = Infeasible(
        NO_TARGET, f"g{group}", f"the replica{from_node} of group {group} has nowhere to go: of "
        f"{len(state.nodes)} nodes " + ", ".join(f"{count} {word}" for word, count
                                                 in sorted(lacks.items())),
        "add a node with room, in a rack of its own if racks are what is missing")
    if cause not in changes.infeasible:
        changes.infeasible.append(cause)


def drain_faults(state: State, fewer_racks: bool) -> list[Infeasible]:
    """Return the reasons for which the draining nodes cannot be emptied, before anything is
    planned: nodes, racks or disk space that would be missing.

    Draining nodes that hold nothing are empty, whatever other nodes are left. O(nodes)."""
    draining = [node for place, node in enumerate(state.nodes)
                if node.is_evacuated and node.state != DEAD and state.held[place]]
    if not draining:
        return []
    subject = " ".join(f"n{node.id}" for node in draining[:NAMED_MAX])
    named = _named([node.id for node in draining])
    takes = [node for node in state.nodes if node.accepts_replicas]
    holders = sum(node.has_share for node in state.nodes)
    voters = max((len(state.voters[group]) for group in state.groups), default=0)
    faults = []
    racks_after = {node.rack for node in state.nodes if node.has_share}
    racks_before = racks_after | {node.rack for node in draining if node.weight}
    if holders < voters:
        faults.append(Infeasible(
            TOO_FEW_NODES, subject, f"without {named}, {holders} node{'' if holders == 1 else 's'} "
            f"would remain for groups with {voters} replicas", "add nodes before draining these"))
    elif not takes:
        faults.append(Infeasible(
            TOO_FEW_NODES, subject, f"without {named}, every node that remains is in maintenance "
            f"and takes no replicas", "take one back first (multiraft node undrain), or add nodes"))
    elif not fewer_racks and len(racks_after) < min(voters, len(racks_before)):
        lost = sorted(state.racks[rack] for rack in racks_before - racks_after)
        faults.append(Infeasible(
            LAST_RACK, subject, f"with {named} the last of rack {', '.join(map(repr, lost))} "
            f"would go: replicas stand in {min(voters, len(racks_before))} racks now and would "
            f"stand in {len(racks_after)}", "add a node in another rack first"))
    room = sum(max(0, node.cap[R_DISK] - state.load[place][R_DISK])
               for place, node in enumerate(state.nodes) if node.accepts_replicas)
    need = sum(state.load[place][R_DISK] for place, node in enumerate(state.nodes)
               if node.is_evacuated and node.state != DEAD)
    if need > room:
        faults.append(Infeasible(
            CAPACITY, subject, f"{named} {'hold' if len(draining) > 1 else 'holds'} {need} bytes "
            f"and the other disks have room for {room} below the policy's cap",
            "add nodes or disk space before draining these"))
    return faults


def _named(nodes: list[int]) -> str:
    """Return ``node 3`` or ``nodes 3 and 6``; of more than ``NAMED_MAX`` the first, and the number
    of the others."""
    more = len(nodes) - NAMED_MAX
    words = [*map(str, nodes[:NAMED_MAX]), *([f"{more} more"] if more > 0 else [])]
    if len(words) == 1:
        return f"node {words[0]}"
    return f"nodes {', '.join(words[:-1])} and {words[-1]}"
