"""Requests about nodes: join, register, list, describe, remove, scrub, and record members of
groups.

Contract.  As ``node/admin/requests.py``, which calls these handlers: changes are commands of the
metadata group, queries are answered from this node's copy, and groups are counted in turns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from multiraft.types import METADATA_GROUP
from multiraft.wire import nodes as wire
from multiraft.wire.errors import (
    Code,
    InvalidRequest,
    LeaderUnknown,
    LimitExceeded,
    UnknownNode,
    exception_for,
)
from node.errors import BadConfig
from node.loop.scrub import Scrub
from node.loop.steps import parts
from node.loop.turns import Turns
from node.metadata import state_machine
from node.metadata.state_machine import MetadataState, NodeRecord
from node.peers.dialable import require_dialable_kafka_row, require_dialable_row
from node.peers.registry import PeerRegistry
from node.removal.cleaner_task import CleanerTask

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog

#: Lowest rate of a requested scrub: at one piece in a few seconds it would take too long to be
#: useful.
SCRUB_BYTES_PER_SECOND_MIN = 64 << 10
#: Lowest rate of the cleaner: a cold segment of the largest size takes half an hour.
CLEANER_BYTES_PER_SECOND_MIN = 64 << 10


class NodeAdmin:
    """Handlers of requests about nodes."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog, known: PeerRegistry, node: int,
                 scrub: Scrub, cleaner: CleanerTask, turns: Turns):
        self._turns = turns
        self._node = node
        self._scrub = scrub
        self._cleaner = cleaner
        self._core = core
        self._metadata_log = metadata_log
        self._known = known

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for clients."""
        return {wire.JoinCluster: self._join_cluster, wire.ListNodes: self._list_nodes,
                wire.DescribeNode: self._describe_node, wire.RemoveNode: self._remove_node,
                wire.ScrubNode: self._scrub_node, wire.ControlCleaner: self._control_cleaner}

    @property
    def peer_handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for nodes."""
        return {wire.RegisterNode: self.register, wire.ReportMembers: self.report_members,
                wire.KnownNodes: self.known_nodes}

    async def _join_cluster(self, request: wire.JoinCluster) -> wire.JoinClusterReply:
        return await self._registered(
            state_machine.RegisterNode(NodeRecord(*request.node), new=True)
        )

    async def register(self, request: wire.RegisterNode) -> wire.JoinClusterReply:
        """Register a node that has started, and return the cluster's nodes. Raises the error of a
        refusal."""
        return await self._registered(state_machine.RegisterNode(NodeRecord(*request.node)))

    async def known_nodes(self, _request: wire.KnownNodes) -> wire.KnownNodesReply:
        """Return the nodes and the ids of removed nodes that this node knows of, and the metadata
        index that they are from. Needs no leader of the metadata group."""
        facts = self._known.facts
        return wire.KnownNodesReply(tuple(wire.NodeRow(*row) for row in self._known.nodes()),
                                    tuple(sorted(facts.removed)), facts.version)

    async def _registered(self, command: state_machine.RegisterNode) -> wire.JoinClusterReply:
        self._check_addresses(command.node)
        node = await self._propose(command)
        state, table = self._metadata_log.state, self._metadata_log.state.table
        return wire.JoinClusterReply(
            node.id, state.cluster_id, state.pool_size, state.replication_factor,
            tuple(wire.NodeRow(*row) for row in state.nodes()), tuple(sorted(table.removed)),
            table.version)

    def _check_addresses(self, node: NodeRecord) -> None:
        """Check the addresses of a starting node.  Raises ``InvalidRequest`` for a malformed
        address, and for a new one that other nodes cannot connect to.  An unchanged address from an
        earlier release is accepted."""
        known = self._metadata_log.state.node(node.id)
        try:
            if known is None or _addresses(known) != _addresses(node):
                require_dialable_row(node)
            require_dialable_kafka_row(node)
        except BadConfig as error:
            raise InvalidRequest(str(error)) from error

    async def _list_nodes(self, _request: wire.ListNodes) -> wire.ListNodesReply:
        state = self._state()
        leads, replicas = await self._counts(state)
        return wire.ListNodesReply(
            tuple(self._row(row, replicas, leads) for row in state.nodes()),
            tuple(sorted(state.table.removed)))

    async def _describe_node(self, request: wire.DescribeNode) -> wire.DescribeNodeReply:
        state = self._state()
        found = state.node(request.node)
        if found is None:
            gone = request.node in state.table.removed
            raise UnknownNode(f"node {request.node} was removed from the cluster" if gone else
                              f"there is no node {request.node}")
        leads, replicas = await self._counts(state)
        votes: list[int] = []
        learns: list[int] = []
        leader_of: list[int] = []
        for part in parts(state.last_group + 1):
            await self._turns.take(len(part))
            for group in part:
                configuration = state.configuration(group)
                if found.id in configuration.voters or found.id in configuration.outgoing:
                    votes.append(group)
                if found.id in configuration.learners:
                    learns.append(group)
                if self._core.status.living_leader(group, configuration) == found.id:
                    leader_of.append(group)
        return wire.DescribeNodeReply(self._row(found, replicas, leads), tuple(votes),
                                      tuple(learns), tuple(leader_of))

    async def _remove_node(self, request: wire.RemoveNode) -> wire.RemoveNodeReply:
        await self._propose(state_machine.RemoveNode(request.node))
        return wire.RemoveNodeReply()

    async def _scrub_node(self, request: wire.ScrubNode) -> wire.ScrubNodeReply:
        """Start a scrub of this node, without waiting for it. Raises ``UnknownNode`` if the request
        names another node, to which the address belonged before.

        Raises ``LimitExceeded`` for a rate below the least, ``InvalidRequest`` if neither the
        request nor the configuration names one."""
        if request.node != self._node:
            raise UnknownNode(f"this is node {self._node}, not node {request.node}")
        if 0 < request.bytes_per_second < SCRUB_BYTES_PER_SECOND_MIN:
            raise LimitExceeded(
                f"a scrub reads at least {SCRUB_BYTES_PER_SECOND_MIN} bytes per second, not "
                f"{request.bytes_per_second}", limit=SCRUB_BYTES_PER_SECOND_MIN,
                value=request.bytes_per_second)
        scrub = self._scrub
        passes = scrub.passes
        pace = scrub.begin(request.bytes_per_second)
        if not pace:
            raise InvalidRequest("storage.scrub_bytes_per_second is 0 on this node: name a rate")
        return wire.ScrubNodeReply(scrub.total_bytes, pace, passes)

    async def _control_cleaner(self, request: wire.ControlCleaner) -> wire.ControlCleanerReply:
        """Pause or resume this node's cleaner. Raises ``UnknownNode`` if the request names another
        node, to which the address belonged before.

        Raises ``LimitExceeded`` for a rate below the least, ``InvalidRequest`` if neither the
        request nor the configuration names one."""
        if request.node != self._node:
            raise UnknownNode(f"this is node {self._node}, not node {request.node}")
        if 0 < request.bytes_per_second < CLEANER_BYTES_PER_SECOND_MIN:
            raise LimitExceeded(
                f"the cleaner copies at least {CLEANER_BYTES_PER_SECOND_MIN} bytes per second, "
                f"not {request.bytes_per_second}", limit=CLEANER_BYTES_PER_SECOND_MIN,
                value=request.bytes_per_second)
        if request.action == wire.PAUSE:
            self._cleaner.pause()
        elif not self._cleaner.resume(request.bytes_per_second):
            raise InvalidRequest("storage.cleaner_bytes_per_second is 0 on this node: name a rate")
        pace = self._cleaner.cleaner.pace
        return wire.ControlCleanerReply(pace.is_paused, pace.bytes_per_second)

    async def report_members(self, request: wire.ReportMembers) -> wire.ReportMembersReply:
        """Record by a command the members of a group as its leader reports them. Raises the error
        of a refusal."""
        await self._propose(state_machine.RecordMembers(*request))
        return wire.ReportMembersReply()

    def _state(self) -> state_machine.MetadataState:
        """Return the metadata. Raises ``LeaderUnknown`` until they are bootstrapped."""
        state = self._metadata_log.state
        if not state.cluster_id:
            raise LeaderUnknown(f"this node has not heard of group {METADATA_GROUP} yet; try again")
        return state

    async def _counts(self, state: MetadataState) -> tuple[dict[int, int], dict[int, int]]:
        """Return (node -> groups that it leads, node -> groups that it is a member of).  O(groups),
        in turns."""
        leads: dict[int, int] = {}
        replicas: dict[int, int] = {}
        for part in parts(state.last_group + 1):
            await self._turns.take(len(part))
            for group in part:
                configuration = state.configuration(group)
                leader = self._core.status.living_leader(group, configuration)
                leads[leader] = leads.get(leader, 0) + 1
                for member in configuration.members():
                    replicas[member] = replicas.get(member, 0) + 1
        return leads, replicas

    def _row(self, node: NodeRecord, replicas: dict[int, int],
             leads: dict[int, int]) -> wire.NodeState:
        return wire.NodeState(wire.NodeRow(*node), self._core.status.node_state(node.id),
                              replicas.get(node.id, 0), leads.get(node.id, 0))

    async def _propose(self, command: Command) -> Any:
        """Propose a command and return the value of its result, once it is applied here. Raises the
        error of a refusal, and what ``MetadataLog.propose`` raises."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value


def _addresses(node: NodeRecord) -> tuple[str, str]:
    return node.client_address, node.peer_address
