"""Services of a simulated node for moves: requests to other nodes, metadata commands, waiting.

Contract.  Part of ``node.SimulatedNode``.  The steps of a switch and of a plan are the product's
own code (``partition_switch.py``, ``plan_controller.py``).  This module gives them what they need
of a node: requests over the bulk connection and their replies, commands of the metadata group, and
waiting until an index is applied.  Everything pending ends with the node's boot.

Quiescence.  In a run without topics these services schedule no events.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from chaos.simulator.node.coroutines import Future, start
from chaos.simulator.node.membership import MembershipChanges
from chaos.simulator.node.partition_switch import PartitionSwitches
from chaos.simulator.node.plan_controller import NodePlans
from multiraft.errors import MultiRaftError, NotLeader
from multiraft.raft.joint_quorum import is_voter
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.types import METADATA_GROUP, Configuration, EntryKind
from multiraft.wire.errors import AmbiguousOutcome, LeaderUnknown, TimedOut

#: Timeout of a request.
ASK_US = 2_000_000
#: Timeout of a metadata command; its outcome is ambiguous then.
COMMAND_US = 10_000_000


class PeerRequest(NamedTuple):
    """Request of one node to another."""

    number: int
    request: Any


class PeerReply(NamedTuple):
    """Reply to a request: a value, or the error."""

    number: int
    value: Any
    error: MultiRaftError | None


class MoveServices(MembershipChanges):
    """Part of ``SimulatedNode``: services for moves."""

    #: Not reset by a restart: a late reply must not match a request of the next boot.
    _ask_count = 0

    def _reset_moves(self) -> None:
        """Drop everything that is pending, at the begin of a boot."""
        self._asked: dict[int, Future] = {}
        self._commands: dict[int, tuple[int, Future]] = {}  # index -> (term, outcome)
        self._versions: list[tuple[int, Future]] = []  # (metadata index, waiting coroutine)
        self._applying: list[tuple[int, int, Future]] = []  # (group, index, waiting coroutine)
        self._switches = self._planning = None

    def _start_moves(self) -> None:
        """Start the drivers of switches and plans after recovery; no-op in a run without topics."""
        if self._world.workload.topics is not None:
            self._switches = PartitionSwitches(self, self._raft, self._store)
            self._planning = NodePlans(self, self._raft, self._store)
            self._drive_moves()

    def _drive_moves(self) -> None:
        """Drive pending switches, after metadata were applied or a role changed; no-op in a run
        without topics."""
        if self._switches is not None:
            self._switches.check()

    # ---- interface for the product's parts ---------------------------------------------------

    def trace_line(self, kind: str, text: str) -> None:
        """Write a line about this node to the trace."""
        self._trace.line(self.node, -1, kind, text)

    @property
    def damaged_voters(self) -> int:
        """Number of replicas on this node that are voters and under repair."""
        return sum(is_voter(self._raft.status.of(group).configuration, self.node)
                   for group in self._repairer.groups)

    @property
    def space_guard(self) -> DiskSpaceGuard:
        """Disk space guard of this node."""
        return self._space_guard

    def permits(self, voters: tuple[int, ...]) -> bool:
        """True if these voters could do without the damaged ones and those that stay down.

        After the faults have ended and all damage is repaired, no node is damaged again.
        """
        world = self._world
        repaired = not world.network.faulty and all(node.is_whole for node in world.nodes.values()
                                                    if node.is_up)
        return world.atlas.permits(voters, repaired)

    def configurations_at(self, group: int, index: int) -> list[Configuration]:
        """Return all configurations that any log of the group has had at ``index``."""
        return self._world.state_checker.groups[group].configurations_at(index)

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node would hand ``group``, if it led the group, back to its preferred leader
        ``node``, which restarted lately."""
        return self._planning is not None and self._planning.leadership_return.will_hand_back(
            group, node
        )

    def count(self, kind: str) -> None:
        """Count an event of this kind for the coverage of the run."""
        self._world.event_counts[kind] += 1

    def report_step(self, what: str) -> None:
        """Report to the nemesis that this node is about to send a request or a command of a move:
        an armed crash may strike there."""
        self._world.nemesis.count_step(self, what)

    # ---- requests --------------------------------------------------------------------------

    async def ask(self, peer: int, request: Any) -> Any:
        """Send a request to a node, this one included, and return its reply.

        Raises the error of the reply, ``LeaderUnknown`` without a connection, and ``TimedOut``
        after ``ASK_US``.
        """
        if peer == self.node:
            return await self._handler(request)(request)
        if peer not in self._connected:
            raise LeaderUnknown(f"node {peer} is not connected")
        self._ask_count += 1
        number, answer = self._ask_count, Future()
        self._asked[number] = answer
        self._effect()
        self._send_bulk(peer, PeerRequest(number, request))
        self.later(
            ASK_US,
            self._take_peer_reply,
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

    def _handler(self, request: Any) -> Callable[[Any], Awaitable[Any]]:
        handlers = {**self._switches.handlers, **self._planning.handlers}
        return handlers[type(request)]

    def _serve_peer_request(self, sender: int, request: PeerRequest) -> None:
        def over(value: Any, error: MultiRaftError | None) -> None:
            self._send_bulk(sender, PeerReply(request.number, value, error))

        if self._switches is not None:
            start(self._handler(request.request)(request.request), self.later, over)

    def _take_peer_reply(self, reply: PeerReply) -> None:
        waiting = self._asked.pop(reply.number, None)
        if waiting is not None:
            waiting.set_result(reply.value, reply.error)

    # ---- the metadata group ----------------------------------------------------------------

    async def propose(self, payload: bytes) -> Any:
        """Propose a command to the metadata group, and return its result when it is applied on this
        node.

        Raises ``NotLeader`` and ``ProposalError`` when it is not proposed, ``AmbiguousOutcome``
        when another command takes its place or ``COMMAND_US`` have passed.
        """
        if not self._raft.status.is_leader(METADATA_GROUP):
            raise NotLeader(METADATA_GROUP, self._raft.status.leader_hint(METADATA_GROUP)[0])
        proposed = self._raft.propose(METADATA_GROUP, EntryKind.METADATA, payload)
        done = Future()
        self._commands[proposed.index] = (self._raft.status.of(METADATA_GROUP).term, done)
        self.request_round()
        self.later(
            COMMAND_US, done.set_error, AmbiguousOutcome("the command was not committed in time")
        )
        return await done

    def _command_applied(self, index: int, term: int, result: Any) -> None:
        """Complete the command that waits at ``index``, if any, with its result, or as ambiguous
        when the term is another one."""
        expected, waiting = self._commands.pop(index, (0, None))
        if waiting is not None and expected == term:
            waiting.set_result(result)
        elif waiting is not None:
            waiting.set_error(
                AmbiguousOutcome("another leader's command is committed in its place")
            )

    def _metadata_applied(self) -> None:
        """Resume the waiting coroutines after commands were applied or a snapshot was installed."""
        version = self.metadata.version
        for waiting in [each for each in self._versions if each[0] <= version]:
            self._versions.remove(waiting)
            waiting[1].set_result()
        self._drive_moves()

    async def metadata_applied(self, index: int, timeout_s: float) -> bool:
        """Wait until the metadata up to ``index`` are applied on this node, at most ``timeout_s``;
        return True if they are."""
        if self.metadata.version < index:
            waiting = (index, Future())
            self._versions.append(waiting)
            if math.isfinite(timeout_s):
                self.later(int(timeout_s * 1e6), waiting[1].set_result)
            await waiting[1]
            if waiting in self._versions:
                self._versions.remove(waiting)
        return self.metadata.version >= index

    # ---- waiting for a group ---------------------------------------------------------------

    async def wait_applied(self, group: int, index: int, timeout_s: float) -> bool:
        """Wait until the entry ``index`` of the group is applied on this node, at most
        ``timeout_s``; return True if it is."""
        if not self._has_applied(group, index):
            waiting = (group, index, Future())
            self._applying.append(waiting)
            self.later(int(timeout_s * 1e6), waiting[2].set_result)
            await waiting[2]
            if waiting in self._applying:
                self._applying.remove(waiting)
        return self._has_applied(group, index)

    def _has_applied(self, group: int, index: int) -> bool:
        tail = self._store.partition_states.get(group)
        return tail is not None and tail.applied_index >= index

    def _notify_applied(self, group: int, last: int) -> None:
        """Resume the coroutines that wait for entries of the group up to ``last``."""
        for waiting in [each for each in self._applying if each[0] == group and each[1] <= last]:
            self._applying.remove(waiting)
            waiting[2].set_result()
