"""Services of one boot for moves: requests to other nodes, metadata commands, waiting.

Contract.  The steps of a switch and of a plan are the product's own code (``partition_switch.py``,
``plan_controller.py``).  This module gives them what they need of a node: requests over the bulk
connection and their replies, commands of the metadata group, and waiting until an index is applied.
Everything pending ends with the node's boot.

Quiescence.  In a run without topics these services schedule no events.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.simulator.node.machine.applied_waits import AppliedWaits
from chaos.simulator.node.machine.coroutines import Future, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.metadata.membership import MembershipChanges
from chaos.simulator.node.metadata.metadata_replica import MetadataReplica
from chaos.simulator.node.peers.connections import Connections
from chaos.simulator.node.replicas.repair import DamageRepair
from multiraft.errors import MultiRaftError
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.errors import LeaderUnknown, TimedOut

if TYPE_CHECKING:
    from chaos.simulator.oracle.metadata_oracle import MetadataState
    from chaos.simulator.ports import ClusterPort

#: Timeout of a request.
ASK_US = 2_000_000

Handler = Callable[[Any], Awaitable[Any]]


class PeerRequest(NamedTuple):
    """Request of one node to another."""

    number: int
    request: Any


class PeerReply(NamedTuple):
    """Reply to a request: a value, or the error."""

    number: int
    value: Any
    error: MultiRaftError | None


class MoveServices:
    """Services of one node for switches and plans."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 rounds: RoundQueue, fail_points: FailPoints, raft: MultiRaft,
                 connections: Connections, metadata: MetadataReplica, waits: AppliedWaits,
                 membership: MembershipChanges, repair: DamageRepair,
                 space_guard: DiskSpaceGuard, report_step: Callable[[str], None]):
        """``report_step`` tells the nemesis that this node is about to send a request or a command
        of a move: an armed crash may strike there."""
        self.space_guard = space_guard
        self.report_step = report_step
        self.later = process.later
        self.request_round = rounds.request
        self.propose = metadata.propose
        self.metadata_applied = metadata.wait
        self.wait_applied = waits.wait
        self.members_changed = membership.members_changed
        self._env = env
        self._cluster = cluster
        self._fail_points = fail_points
        self._raft = raft
        self._connections = connections
        self._metadata = metadata
        self._repair = repair
        self._handlers: Mapping[type, Handler] = {}
        self._asked: dict[int, Future] = {}  # request -> its reply

    def serve(self, handlers: Mapping[type, Handler]) -> None:
        """Answer requests of these types from now on."""
        self._handlers = handlers

    # ---- facts of the node -----------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Milliseconds of this node's clock."""
        return self._env.now_ms

    @property
    def metadata(self) -> MetadataState:
        """Metadata as applied on this node."""
        return self._metadata.state

    @property
    def damaged_voters(self) -> int:
        """Number of replicas on this node that are voters and under repair."""
        return self._repair.damaged_voters

    def trace_line(self, kind: str, text: str) -> None:
        """Write a line about this node to the trace."""
        self._env.trace_line(kind, text)

    def count(self, kind: str) -> None:
        """Count an event of this kind for the coverage of the run."""
        self._env.event_counts[kind] += 1

    def permits(self, voters: tuple[int, ...]) -> bool:
        """True if these voters could do without the damaged ones and those that stay down.

        After the faults have ended and all damage is repaired, no node is damaged again.
        """
        nodes = self._cluster.nodes.values()
        repaired = not self._env.faulty and all(node.is_whole for node in nodes if node.is_up)
        return self._cluster.atlas.permits(voters, repaired)

    def configurations_at(self, group: int, index: int) -> list[Configuration]:
        """Return all configurations that any log of the group has had at ``index``; 0 = the initial
        one."""
        return self._env.state_checker.groups[group].configurations_at(index)

    # ---- requests --------------------------------------------------------------------------

    async def ask(self, peer: int, request: Any) -> Any:
        """Send a request to a node, this one included, and return its reply.

        Raises the error of the reply, ``LeaderUnknown`` without a connection, and ``TimedOut``
        after ``ASK_US``.
        """
        if peer == self._env.node:
            return await self._handlers[type(request)](request)
        if peer not in self._connections:
            raise LeaderUnknown(f"node {peer} is not connected")
        counters = self._env.counters
        counters.requests += 1
        number, answer = counters.requests, Future()
        self._asked[number] = answer
        self._fail_points.effect()
        self._connections.send_bulk(peer, PeerRequest(number, request))
        self.later(
            ASK_US,
            self.take_reply,
            PeerReply(number, None, TimedOut(f"node {peer} is silent")),
        )
        return await answer

    async def ask_leader(self, request: Any) -> Any:
        """Return the reply of the metadata group's leader.  Raises ``LeaderUnknown`` when this node
        knows none, and the errors of ``ask``."""
        leader = self._raft.status.leader_hint(METADATA_GROUP)[0]
        if not leader:
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        return await self.ask(leader, request)

    def serve_request(self, sender: int, request: PeerRequest) -> None:
        """Start to serve a request, and reply when that has ended; no-op in a run without
        topics."""
        def over(value: Any, error: MultiRaftError | None) -> None:
            self._connections.send_bulk(sender, PeerReply(request.number, value, error))

        if self._handlers:
            start(self._handlers[type(request.request)](request.request), self.later, over)

    def take_reply(self, reply: PeerReply) -> None:
        """Resume the coroutine that waits for a reply, if there is one."""
        waiting = self._asked.pop(reply.number, None)
        if waiting is not None:
            waiting.set_result(reply.value, reply.error)
