"""Rebalance plans of a simulated node: the product's controller and handlers, in virtual time.

Contract.  ``NodePlans`` has the place of ``node.rebalance.service.Plans``: it throttles what this
node sends, answers the requests of controllers to group leaders, and carries out the plan while
this node leads the metadata group.  All decisions, observations, preconditions, pauses and commands
are the product's; only time, concurrency and the transport of requests are the simulator's.

Invariants.  The voters that a controller asks for are either the present ones or those that the
move leads to, never a mixture (``OldOrNewVoters``).  The request changes the configuration that the
controller had observed, or nothing (``ChangedAsSeen``).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.coroutines import Future, start, together
from chaos.simulator.node.rebalance.preferred_leaders import LeadershipReturn
from multiraft.raft.multi_raft import MultiRaft
from multiraft.wire import plans as wire
from multiraft.wire.errors import TimedOut
from node.metadata.commands import Command, StepMove, encode_command
from node.metadata.result import Result
from node.rebalance.controller import Controller
from node.rebalance.participant import PlanParticipant
from node.rebalance.throttle import PlanThrottle

if TYPE_CHECKING:
    from chaos.simulator.node.rebalance.move_services import MoveServices
    from chaos.simulator.oracle.metadata_oracle import MetadataState
    from multiraft.storage.store import Store

Call = Callable[[], Coroutine[Future, None, Any]]
#: Request of a controller -> its word in traces and counters.
STEPS = {wire.StartReplicaChange: "PlanChange", wire.StartLeaderTransfer: "PlanTransfer"}


class _Metadata:
    """``metadata_log`` of the controller."""

    def __init__(self, node: MoveServices):
        self._node = node
        self.applied = node.metadata_applied

    @property
    def state(self) -> MetadataState:
        return self._node.metadata

    async def propose(self, command: Command) -> Result:
        self._node.report_step(f"{type(command).__name__} {command.phase}"
                         if isinstance(command, StepMove) else type(command).__name__)
        return await self._node.propose(encode_command(command))


class _Runtime:
    """Clock and concurrency of the controller, like ``node.rebalance.runtime.Runtime``, with the
    node's clock and coroutines of the simulator.
    """

    def __init__(self, node: MoveServices):
        self._node = node

    def monotonic_ms(self) -> int:
        return self._node.now_ms

    def wall_ms(self) -> int:
        return self._node.now_ms

    async def run_all(self, calls: Sequence[Call]) -> None:
        await together(calls, self._node.later)

    async def run_with_timeout(self, limit_s: float, call: Call) -> Any:
        done = Future()
        self._node.later(int(limit_s * 1e6), done.set_result)
        start(call(), self._node.later, done.set_result)
        return await done

    async def checkpoint(self) -> None:
        """Do nothing: no other task waits for the thread."""


class _Log:
    """Log messages of the controller, as lines of the trace."""

    def __init__(self, node: MoveServices):
        self._node = node

    def info(self, text: str, extra: dict) -> None:
        self._node.trace_line("plan", f"{text} {' '.join(map(str, extra.values()))}")
        if "phase" in extra:
            self._node.count(f"moves {extra['phase']}")

    def warning(self, text: str, extra: dict) -> None:
        self.info(text, extra)


class _Survey(NamedTuple):
    damaged_voters: int
    disk_used_bytes: int = 0
    disk_capacity_bytes: int = 1 << 40  # a full disk is reported by ``DiskSpaceGuard`` instead


class _Facts:
    """State of this node, as ``group_health`` and ``latency`` of the handlers."""

    def __init__(self, node: MoveServices):
        self._node = node

    async def fresh(self) -> _Survey:
        return _Survey(self._node.damaged_voters)

    @staticmethod
    def recent_ms(_now_ms: int) -> int:
        return -1


class NodePlans:
    """A node's part in plans, in one boot."""

    def __init__(self, node: MoveServices, raft: MultiRaft, store: Store):
        self._node = node
        self._raft = raft
        metadata, facts = _Metadata(node), _Facts(node)
        self._participant = PlanParticipant(
            raft, store, metadata, facts, node.space_guard, facts, {}, node.request_round
        )
        self._controller = Controller(
            raft,
            metadata,
            self._ask,
            PlanThrottle(raft, node.request_round),
            _Log(node),
            _Runtime(node),
        )
        self.leadership_return = LeadershipReturn(node, raft, metadata, _Log(node))
        start(self._controller.run(), node.later)

    @property
    def handlers(self) -> dict:
        """Handlers of requests from controllers, by type."""
        return {**self._participant.peer_handlers, wire.StartReplicaChange: self._change}

    async def _change(self, request: wire.StartReplicaChange) -> wire.StartReplicaChangeReply:
        """Start a change of the members of a group led here, without waiting for it.

        Raises ``TimedOut`` where the fault atlas (``corruption.FaultAtlas``) forbids it, and the
        participant's refusals. Raises ``Violation`` if the participant has accepted a change from
        another configuration than the request names.
        """
        if not self._node.permits(request.voters):
            raise TimedOut(f"group {request.group} needs a replica that is damaged "
                           f"or stays down")
        here = request.group in self._raft.status.groups()
        index = self._raft.status.of(request.group).configuration_index if here else 0
        reply = await self._participant.start_replica_change(request)
        self._node.members_changed(request.group)
        if index != request.expected_index:
            raise Violation("ChangedAsSeen", f"g{request.group} changes to {request.voters}, asked "
                            f"for the members of index {request.expected_index}, at {index}")
        return reply

    async def _ask(self, peer: int, request: Any) -> Any:
        if type(request) is not wire.ProbeGroups:
            self._node.report_step(STEPS[type(request)])
        if type(request) is wire.StartReplicaChange:
            self._check(request)
            self._node.count("plan changes")
        return await self._node.ask(peer, request)

    def _check(self, request: wire.StartReplicaChange) -> None:
        """Check that the requested voters are those that the controller has seen or those that its
        move leads to.  Raises ``Violation``."""
        seen = self._node.configurations_at(request.group, request.expected_index)
        if any({*request.voters} == {*configuration.voters} for configuration in seen):
            return
        for move in self._node.metadata.plans.plan.moves.values():
            if (move.kind == wire.REPLICA_CHANGE and move.subject == request.group
                    and {*request.voters} != {*move.new}):
                raise Violation("OldOrNewVoters", f"g{request.group} is to have the voters "
                                f"{request.voters} on the way from {move.old} to {move.new}")
