"""Nodes of the cluster, removed nodes, and the members of each group.

Contract.  A part of the metadata state machine: functions of state and command.  An id belongs to
one incarnation of a data directory permanently: a wiped node, and a node that was removed, come
back under another id only (scenarios S28f, S37).

Invariants.  No id is both a node and removed.  The recorded members of a group never return to an
older configuration.

Theory.  The Raft configuration is the authority on the members of a group.  Its leader records
committed configurations here, so that every node can list members, place moves and refuse to remove
a node that is still a member, without asking other nodes.  A record may lag behind and decides
nothing in consensus.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.errors import Code
from multiraft.wire.plans import ALIVE, NODE_STATES
from multiraft.wire.schema import without_default
from node.metadata.commands import (
    NODE_SHAPE,
    Bootstrap,
    GrowPool,
    NodeRecord,
    RecordMembers,
    RegisterNode,
    RemoveNode,
    SetNodeState,
)
from node.metadata.result import Result, over, refused
from placement import PlacementError, Topology
from placement.topology import NODE_ID_MAX, NODES_MAX, check_node

#: Shape of this table in a snapshot, without the nodes.
_SHAPE = {"nodes_version": shapes.UINT, "removed": [(shapes.UINT, shapes.UINT)],
          "replicas": [[shapes.UINT]], "states": [(shapes.UINT, shapes.TEXT)], "members": [
              (shapes.UINT, shapes.UINT, shapes.UINT, *[[shapes.UINT]] * 3)]}

#: Groups that a refusal names; the refusal always tells their number.
GROUPS_NAMED = 8


class Members(NamedTuple):
    """The configuration of a group as its leader recorded it, committed at index ``version`` of
    incarnation ``incarnation`` of the group."""

    incarnation: int
    version: int
    configuration: Configuration


class NodeTable:
    """The nodes, removed nodes and group members of one replica's metadata.  ``version`` is the
    index of the last command that changed a node."""

    __slots__ = ("version", "nodes", "removed", "replicas", "members", "states")

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[int, NodeRecord] = {}
        #: Id of a removed node -> incarnation of its data directory.
        self.removed: dict[int, int] = {}
        #: Voters of each group at its creation.
        self.replicas: tuple[tuple[int, ...], ...] = ()
        #: Groups with recorded members; the other groups have the members of their creation.
        self.members: dict[int, Members] = {}
        #: States that an operator has set; nodes that are alive are absent.
        self.states: dict[int, str] = {}

    # ---- commands -------------------------------------------------------------------------------

    def bootstrap(self, index: int, nodes: Iterable[NodeRecord],
                  replicas: tuple[tuple[int, ...], ...]) -> None:
        """Set the nodes and groups that the cluster starts with."""
        self.version = index
        self.nodes = {node.id: node for node in sorted(nodes)}
        self.replicas = replicas

    def grow(self, command: GrowPool, pool_size: int, replication_factor: int) -> Result:
        """Add the groups from ``pool_size`` + 1 to the command's pool size, with its voters. A
        repetition changes nothing. Refused while an earlier growth is not open, if the pool would
        not grow, or if the voters do not fit. O(groups)."""
        wanted, last = command.pool_size, len(self.replicas) - 1
        if wanted == last > pool_size:
            return Result(Code.OK)  # proposed twice: the voters of the first proposal count
        if last > pool_size:
            return refused(Code.INVALID_REQUEST, f"the pool is growing from {pool_size} to {last} "
                           f"groups: wait for that", value=last)
        if wanted <= pool_size:
            return refused(Code.INVALID_REQUEST, f"the pool has {pool_size} groups and only grows: "
                           f"{wanted} is not more", value=pool_size)
        if len(command.replicas) != wanted - pool_size:
            return refused(Code.INVALID_REQUEST, f"replicas of {len(command.replicas)} groups, "
                           f"{wanted - pool_size} are new")
        fault = _replicas_fault(pool_size + 1, command.replicas, self.nodes, replication_factor)
        if fault:
            return refused(Code.INVALID_REQUEST, fault)
        self.replicas += command.replicas
        return Result(Code.OK)

    def register(self, index: int, command: RegisterNode) -> Result:
        """Register a node that is new or has restarted; the value is its record, with a new id if
        it asked for one. Refused if its id is removed or belongs to another data directory, or a
        later boot is known."""
        node = command.node
        if not node.incarnation:
            return refused(Code.INVALID_REQUEST, f"node {node.id} names no incarnation")
        if not node.id:
            node = node._replace(id=self._id_for(node.incarnation))
        refusal = self._register_refusal(node, command.new)
        if refusal is not None:
            return refusal
        self.nodes[node.id] = node
        self.version = index
        return Result(Code.OK, node)

    def _id_for(self, incarnation: int) -> int:
        """Return the id under which this data directory is registered, else the next id that was
        never used. O(nodes)."""
        for node in self.nodes.values():
            if node.incarnation == incarnation:
                return node.id
        return max([*self.nodes, *self.removed], default=0) + 1

    def _register_refusal(self, node: NodeRecord, new: bool) -> Result | None:
        try:
            check_node(node.place)
        except PlacementError as error:
            return refused(Code.INVALID_REQUEST, str(error))
        if node.id > NODE_ID_MAX:
            return over("node ids", NODE_ID_MAX, node.id)
        if node.id in self.removed:
            return refused(Code.NODE_REMOVED, f"node {node.id} was removed from the cluster, and "
                           f"ids are never used again")
        known = self.nodes.get(node.id)
        if known is None:
            if len(self.nodes) >= NODES_MAX:
                return over("nodes", NODES_MAX, len(self.nodes) + 1)
            return None
        # A node of the bootstrap may have no incarnation recorded yet.  Joining must not take its
        # id over: that node may have voted before its directory was wiped.
        if known.incarnation != node.incarnation and (known.incarnation or new):
            return refused(Code.WRONG_INCARNATION, f"node {node.id} is another data directory "
                           f"(incarnation {known.incarnation:x}, not {node.incarnation:x})")
        if node.boot_epoch < known.boot_epoch:
            return refused(Code.STALE_BOOT_ID, f"node {node.id} has started since, with boot epoch "
                           f"{known.boot_epoch}; this is {node.boot_epoch}")
        return None

    def remove(self, index: int, command: RemoveNode) -> Result:
        """Remove a node and never use its id again; the value is its record, None if it was removed
        before. Refused for an unknown node, and while it is a member of a group. O(groups)."""
        id_ = command.node
        if id_ in self.removed:
            return Result(Code.OK)  # proposed twice
        known = self.nodes.get(id_)
        if known is None:
            return refused(Code.UNKNOWN_NODE, f"there is no node {id_}; nodes are "
                           f"{', '.join(map(str, sorted(self.nodes)))}")
        needed = [group for group in range(len(self.replicas)) if self._needs(group, id_)]
        if needed:
            named = ", ".join(map(str, needed[:GROUPS_NAMED]))
            return refused(Code.INVALID_REQUEST, f"node {id_} is a member of {len(needed)} groups "
                           f"({named}{', ...' if len(needed) > GROUPS_NAMED else ''}): move them "
                           f"first, with `multiraft node replace {id_} NEW`", value=len(needed))
        del self.nodes[id_]
        self.states.pop(id_, None)
        self.removed[id_] = known.incarnation
        self.version = index
        return Result(Code.OK, known)

    def _needs(self, group: int, node: int) -> bool:
        """Return True if the node has to leave the group before it can be removed.  Every node is
        at least a learner of the metadata group, and stops being a learner by being removed."""
        configuration = self.configuration(group)
        if group == METADATA_GROUP:
            return node in configuration.voters or node in configuration.outgoing
        return node in configuration.members()

    def set_state(self, command: SetNodeState) -> Result:
        """Set the state that the operator wants of a node, which plans respect. Refused for an
        unknown node."""
        if command.node not in self.nodes:
            return refused(Code.UNKNOWN_NODE, f"there is no node {command.node}")
        if command.state == ALIVE:
            self.states.pop(command.node, None)
        else:
            self.states[command.node] = command.state
        return Result(Code.OK)

    def record(self, command: RecordMembers) -> Result:
        """Record the members of a group as its leader reports them. A report that is not newer, by
        incarnation and version, is ignored. Refused for a group that does not exist."""
        if command.group >= len(self.replicas):
            return refused(Code.INVALID_REQUEST, f"there is no group {command.group}")
        known = self.members.get(command.group)
        if known is None or (command.incarnation, command.version) > known[:2]:
            self.members[command.group] = Members(
                command.incarnation, command.version,
                Configuration(command.voters, command.learners, command.outgoing))
        return Result(Code.OK)

    # ---- questions ------------------------------------------------------------------------------

    def initial(self, group: int) -> Configuration:
        """Return the members of a group at its creation: every node has a replica of the metadata
        group."""
        voters = self.replicas[group]
        if group != METADATA_GROUP:
            return Configuration(voters)
        return Configuration(voters, tuple(node for node in sorted(self.nodes)
                                           if node not in voters))

    def configuration(self, group: int) -> Configuration:
        """Return the members of a group as its leader recorded them last; without a record those of
        its creation."""
        known = self.members.get(group)
        return known.configuration if known is not None else self.initial(group)

    def groups_of(self, node: int) -> tuple[int, ...]:
        """Return the groups that the node is a member of, as recorded.  O(groups)."""
        return tuple(group for group in range(len(self.replicas))
                     if node in self.configuration(group).members())

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the table as values that CBOR can encode."""
        return {"nodes": list(map(without_default, self.nodes.values())),
                "nodes_version": self.version,
                "removed": list(self.removed.items()), "replicas": self.replicas,
                "states": list(self.states.items()),
                "members": [[group, *known[:2], *known.configuration]
                            for group, known in self.members.items()]}

    def fill(self, snapshot: dict) -> None:
        """Restore the table from a snapshot.

        Snapshots of version 1 have neither removed nodes nor members; nodes without an address for
        Kafka's clients have no field for it.  Raises ``KeyError``, ``TypeError`` or ``ValueError``
        when the snapshot is malformed.
        """
        nodes = [NodeRecord(*row) for row in snapshot["nodes"]]
        shapes.check(nodes, [NODE_SHAPE], "nodes")
        shapes.check({"removed": (), "members": (), "nodes_version": 0, "states": (), **snapshot},
                    _SHAPE)
        self.nodes = {node.id: node for node in nodes}
        self.version = snapshot.get("nodes_version", 0)
        self.removed = dict(snapshot.get("removed", ()))
        self.replicas = tuple(map(tuple, snapshot["replicas"]))
        self.members = {group: Members(incarnation, version, Configuration(*map(tuple, sets)))
                        for group, incarnation, version, *sets in snapshot.get("members", ())}
        self.states = dict(snapshot.get("states", ()))

    def _check(self) -> None:
        """Assert the invariants of nodes, removed nodes, members and states. O(nodes and members).
        """
        assert len(self.nodes) <= NODES_MAX
        assert not set(self.nodes) & set(self.removed), "removed, and a node"
        for id_, node in self.nodes.items():
            assert id_ == node.id
        assert all(group < len(self.replicas) for group in self.members)
        assert all(node in self.nodes and state in NODE_STATES
                   for node, state in self.states.items())


def bootstrap_fault(command: Bootstrap) -> str:
    """Return the reason why this bootstrap contradicts itself; empty when it does not."""
    try:
        Topology.of(node.place for node in command.nodes)
    except PlacementError as error:
        return str(error)
    if len(command.replicas) != command.pool_size + 1:
        return (f"replicas of {len(command.replicas)} groups, a pool of {command.pool_size} and "
                f"the metadata group need {command.pool_size + 1}")
    return _replicas_fault(METADATA_GROUP, command.replicas,
                           {node.id: node for node in command.nodes}, command.replication_factor)


def _replicas_fault(first: int, replicas: Sequence[tuple[int, ...]], known: dict[int, NodeRecord],
                    replication_factor: int) -> str:
    """Return the reason why groups from ``first`` on cannot be created with these replicas; empty
    when they can."""
    for group, nodes in enumerate(replicas, first):
        if len(nodes) != len({*nodes}) or not nodes or any(node not in known for node in nodes):
            return f"group {group}: replicas {nodes!r:.80} are not distinct nodes of the cluster"
        if group != METADATA_GROUP and len(nodes) != replication_factor:
            return (f"group {group} has {len(nodes)} replicas, the replication factor is "
                    f"{replication_factor}")
    return ""
