"""Retention of one boot: the product's passes, clocks, deletions and log starts, in virtual time.

Contract.  ``passes`` and ``clocks`` are those of the node.  A pass begins each interval, and its
steps are apart by a millisecond, so that anything may happen in between.  Behind it come questions
about earlier epochs.  Partitions that the metadata no longer place in a group are deleted at once;
what was refused is repeated after a pass.  Log starts reach the groups of earlier epochs at an
interval of their own.  In a run without retention none of this begins, and no CLOCK is proposed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.simulator.node.machine.coroutines import raise_error, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.metadata.metadata_view import MetadataView
from chaos.simulator.node.peers.bulk_channel import BulkChannel
from chaos.simulator.node.rebalance.move_services import MoveServices
from chaos.simulator.oracle.metadata_oracle import FIRST
from multiraft.liveness.clock_skew import ClockSkew
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from multiraft.wire import placements as wire
from multiraft.wire.errors import Code, exception_for
from node.clients.log_starts import LogStarts
from node.loop.block_reads import BlockReads
from node.metadata.commands import (
    AlterSettings,
    DeleteTopic,
    PublishSwitch,
    TrimEpochHistory,
    decode_command,
    encode_command,
)
from node.metadata.result import Result
from node.metadata.settings_table import CLUSTER
from node.metadata.topics import Run, Topic
from node.replicas.log_start_propagation import (
    LogStartPropagation,
    earlier_epochs,
    is_first_deleted,
)
from node.replicas.partition_deletion import PartitionDeletion
from node.retention.clock_entries import ClockEntries
from node.retention.retention_pass import RetentionPasses
from node.retention.retention_task import RetentionTask

if TYPE_CHECKING:
    from chaos.simulator.node.clients.judged_ports import JudgedCore
    from chaos.simulator.oracle.metadata_oracle import MetadataState

#: Interval of the passes, and of the clocks of a group, in milliseconds.
INTERVAL_MS = 500
#: Interval of the propagation of log starts, in milliseconds.
PROPAGATION_MS = 2_000
#: Virtual time between two steps of a pass, in microseconds.
STEP_US = 1_000
_LOG = logging.getLogger(__name__)
_LOG.disabled = True


class _Gate:
    """The releases of a cluster in which retention is on or off for the whole run."""

    def __init__(self, fault: str):
        self.fault = fault


class _Turns:
    """Turns of the loop: the steps of a request take no time here."""

    async def take(self, _rows: int = 1) -> None:
        """Return at once."""


class _Leader:
    """Requests to the metadata leader, with the partition numbers of the metadata."""

    def __init__(self, services: MoveServices):
        self._services = services

    async def ask(self, request: wire.TrimEpochHistory) -> None:
        request = request._replace(incarnation=request.incarnation - FIRST)
        await self._services.ask_leader(request)


class DeletedTopic(NamedTuple):
    """A topic, as ``PartitionDeletion`` examines it, with the simulator's partition numbers."""

    topic: Topic
    partitions: int

    def runs(self, numbers: range) -> list[Run]:
        """Return the partitions with these numbers, in order.  O(additions)."""
        return [run._replace(incarnation=FIRST + run.incarnation)
                for run in self.topic.runs(numbers)]


class SimulatedRetention:
    """Clocks, passes, deletions and log starts of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 core: JudgedCore, store: Store, view: MetadataView, skew: ClockSkew,
                 services: MoveServices, bulk: BulkChannel, blocks: BlockReads):
        self.blocks = blocks
        self._env = env
        self._process = process
        self._rounds = rounds
        self._store = store
        self._services = services
        self._view = view
        self._core = core
        self._states = states = store.partition_states
        self._is_deleting = False
        self.is_on = env.parameters.has_retention
        gate = _Gate("" if self.is_on else "the run has no retention")
        self.log_starts = LogStarts(states)
        self.clocks = ClockEntries(core, states, skew, gate, self._wall_ms, INTERVAL_MS)
        self.passes = RetentionPasses(core, store, view, self.clocks, skew, gate, INTERVAL_MS, {})
        self._task = RetentionTask(env.node, self.passes, store, view, core.status, bulk,
                                   blocks, INTERVAL_MS, self._wall_ms, _Turns().take,
                                   rounds.request, _LOG)
        self._deletion = PartitionDeletion(core, states, view, rounds.request, _Turns(), _LOG)
        self._propagation = LogStartPropagation(core, states, view, self.log_starts, bulk,
                                                _Leader(services), rounds.request, _Turns(), _LOG)
        bulk.handlers.update(self._task.handlers)
        bulk.handlers.update(self._propagation.handlers)

    def _wall_ms(self) -> int:
        return self._env.clock.wall_ms

    def begin(self) -> None:
        """Begin passes, if the run has retention."""
        if self.is_on:
            self._process.later(1_000 * INTERVAL_MS, self._begin_pass)
            self._process.later(1_000 * PROPAGATION_MS, self._propagate)

    def lead(self, group: int) -> None:
        """Have all partitions of a group examined whose leader this node became."""
        self.passes.lead(group)
        if self.is_on:
            self._deletion.lead(group)

    # ---- metadata ------------------------------------------------------------------------------

    @property
    def handlers(self) -> dict:
        """Handlers of requests from other nodes, by type."""
        return {wire.TrimEpochHistory: self._trim}

    async def _trim(self, request: wire.TrimEpochHistory) -> wire.TrimEpochHistoryReply:
        result = await self._services.propose(encode_command(TrimEpochHistory(*request)))
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        self._services.count("histories trimmed")
        return wire.TrimEpochHistoryReply()

    def before_command(self, state: MetadataState, payload: bytes) -> Callable[[Result], None]:
        """Return the function that takes the result of a command which is about to be applied to
        the metadata of this node, as the subscribers of ``MetadataLog`` do."""
        command = decode_command(payload)
        if not self.is_on:
            return lambda _result: None
        if type(command) is DeleteTopic:
            topic = state.topic(command.name)
            placed = _groups_of(state, topic) if topic is not None else {}
            return lambda result: self._topic_deleted(result, placed)
        if type(command) is AlterSettings:
            return lambda result: self._settings_altered(state, command.topic, result)
        if type(command) is PublishSwitch or type(command) is TrimEpochHistory:
            return lambda result: self._left(command, result)
        return lambda _result: None

    def _topic_deleted(self, result: Result, placed: dict[int, list[int]]) -> None:
        if result.value is not None:
            topic = result.value
            self._deletion.topic_deleted(
                DeletedTopic(topic, topic.partitions), placed)
            self._delete_soon()

    def _settings_altered(self, state: MetadataState, name: str, result: Result) -> None:
        if result.value is True:
            topic = state.topic(name)
            self.passes.settings_altered(
                CLUSTER if topic is None else FIRST + topic.incarnation)

    def _left(self, command: Any, result: Result) -> None:
        if not result.value:
            return
        entries = result.value if type(command) is TrimEpochHistory else [result.value]
        self._deletion.left(FIRST + command.partition, [entry.group for entry in entries])
        self._delete_soon()

    def unsettled(self, log_starts: Mapping[int, int]) -> list[str]:
        """Describe what is to be raised, deleted or dated in groups that this node leads;
        ``log_starts``: the committed ones."""
        if not self.is_on:
            return []
        found = ["partitions to delete"] if self._deletion.is_due else []
        leads = self._core.status.is_leader
        found += [f"a clock of g{group}" for group in self.passes.unclosed if leads(group)
                  and self._states[group].group_state.clock_ms < self._wall_ms()]
        for partition, history in self._view.state.placed.epoch_histories.items():
            for epoch in earlier_epochs(partition, history, self._states, leads):
                wanted = epoch.raised(log_starts.get(partition, 0))
                if wanted >= 0:
                    found.append(f"g{epoch.group} partition {partition} from {epoch.log_start} to "
                                 f"{wanted}")
            if is_first_deleted(partition, history, self._states, leads):
                found.append(f"first epoch of partition {partition}")
        return found

    def _delete_soon(self) -> None:
        if not self._is_deleting:
            self._is_deleting = True
            self._process.later(0, self._delete, self._deletion.steps())

    def _delete(self, steps: Iterator[None]) -> None:
        deleted = self._deletion.deleted
        self._is_deleting = next(steps, steps) is not steps
        self._env.event_counts["partitions deleted"] += self._deletion.deleted - deleted
        if self._is_deleting:
            self._process.later(STEP_US, self._delete, steps)

    # ---- passes --------------------------------------------------------------------------------

    def _begin_pass(self) -> None:
        self._env.event_counts["passes of retention"] += 1
        self._deletion.replaced(self._view.state)
        self._step(self._steps())

    def _steps(self) -> Iterator[None]:
        clocks, starts = self.clocks.proposed, self.passes.proposed
        for _ in self.passes.steps(self._wall_ms()):
            self._env.event_counts["clocks of idle groups"] += self.clocks.proposed - clocks
            yield
            clocks = self.clocks.proposed
        self._env.event_counts["log starts by retention"] += self.passes.proposed - starts
        if self._deletion.is_due:
            self._delete_soon()

    def _read_block(self) -> None:
        """Read the block of an index file that the step lacked; the disk's faults are met by other
        reads."""
        wanted = self.passes.reader.wanted_block
        if wanted is None:
            return
        job = self._store.block_job(wanted)
        try:
            job.execute()
        except CorruptRange:
            return  # the pass leaves the partition alone
        self._store.block_read(job)
        self.passes.reader.wanted_block = None
        self._env.event_counts["blocks that retention read"] += 1

    def _step(self, steps: Iterator[None]) -> None:
        goes_on = next(steps, steps) is not steps
        self._rounds.request()
        self._read_block()
        if goes_on:
            self._process.later(STEP_US, self._step, steps)
        else:
            start(self._task.ask_all(), self._process.later, self._pass_is_over)

    def _pass_is_over(self, value: Any, error: Any) -> None:
        raise_error(value, error)
        self._process.later(1_000 * INTERVAL_MS, self._begin_pass)

    # ---- log starts ----------------------------------------------------------------------------

    def _propagate(self) -> None:
        start(self._propagation.step(), self._process.later, self._is_propagated)

    def _is_propagated(self, value: Any, error: Any) -> None:
        raise_error(value, error)
        self._process.later(1_000 * PROPAGATION_MS, self._propagate)


def _groups_of(state: MetadataState, topic: Any) -> dict[int, list[int]]:
    """Return partition -> the groups that its history and its switch name, of all partitions of a
    topic, with the simulator's partition numbers."""
    placed = {}
    for incarnation in map(topic.incarnation_of, range(topic.partitions)):
        place = state.locate(incarnation)
        groups = [entry.group for entry in place.epoch_history]
        if place.switch is not None:
            groups.append(place.switch.to_group)
        placed[FIRST + incarnation] = groups
    return placed
