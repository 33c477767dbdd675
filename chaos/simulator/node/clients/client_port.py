"""Client port of one boot: the product's sessions and request handlers, in virtual time.

Contract.  Requests of clients are handled by the code of ``node/clients``: sessions, produce,
pending appends, fetch with long polls, list offsets, confirmations by a majority, waits for
metadata.  This module supplies what they take from their surroundings: the clock of the node, the
metadata of the boot, background tasks, and connections that carry values.  Nothing of it survives
the boot.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from chaos.simulator.clients.workload import READ_BYTES_MAX
from chaos.simulator.node.clients.client_connection import ClientConnection
from chaos.simulator.node.clients.judged_ports import JudgedCore, JudgedReadView
from chaos.simulator.node.machine.applied_waits import AppliedWaits
from chaos.simulator.node.machine.coroutines import Future, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.metadata.metadata_view import MetadataView
from chaos.simulator.node.rebalance.move_services import MoveServices
from chaos.simulator.node.retention import SimulatedRetention
from chaos.simulator.oracle.operations import ReadOperation
from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.errors import CorruptRange, RecordsNotCopied
from multiraft.storage.store import Store
from multiraft.wire.connection import RequestEvent
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    ANY,
    DeleteRecordsReply,
    FetchPart,
    FetchReply,
    ListOffsetsReply,
    RecordDeletion,
)
from node.admin import record_deletion
from node.clients.error_codes import StaleMetadata
from node.clients.fetch import FetchHandler
from node.clients.key_checks import KeyChecks
from node.clients.list_offsets import Offsets
from node.clients.metadata_wait import METADATA_WAIT_S, MetadataWaiter
from node.clients.native_requests import NativeRequests
from node.clients.pending_appends import PendingAppends
from node.clients.produce import ProduceHandler, acknowledged, ambiguous
from node.clients.read_index import ReadIndexRequests
from node.clients.read_view import ReadView, Refused
from node.clients.router import Router
from node.clients.session import Sessions
from node.clients.staged_batches import StagedBatches
from node.limits import Limits
from node.loop.steps import StepRunner
from node.request_errors import REFUSED, request_error

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort
    from node.clients.session import Answer

#: Number of the client that asks by itself, and appends nothing.
OBSERVER = 0
#: Duration of a blocking read of records that are not in memory.
COLD_READ_US = 400
#: Background tasks of a node, as ``node.loop.background.TASKS_MAX``.
TASKS_MAX = 4096


class Background:
    """Background tasks of one boot: coroutines that the event queue runs."""

    def __init__(self, process: ProcessScheduler):
        self._process = process
        self._tasks = 0

    def start(self, work: Callable[..., Coroutine[Any, None, None]], *arguments: Any) -> bool:
        """Run ``work`` as a task, and return True; False at ``TASKS_MAX`` tasks."""
        if self._tasks >= TASKS_MAX:
            return False
        self._tasks += 1
        self._process.later(0, self._begin, work, arguments)
        return True

    def _begin(self, work: Callable[..., Coroutine[Any, None, None]], arguments: tuple) -> None:
        start(self._counted(work, arguments), self._process.later)

    async def _counted(self, work: Callable[..., Coroutine[Any, None, None]],
                       arguments: tuple) -> None:
        try:
            await work(*arguments)
        finally:
            self._tasks -= 1

    async def read_each(self, jobs: Sequence[Any]) -> list:
        """Return the result of each job, or its ``CorruptRange``, after the time of a read."""
        done = Future()
        self._process.later(COLD_READ_US, done.set_result)
        await done
        return [_executed(job) for job in jobs]


def _executed(job: Any) -> Any:
    try:
        return job.execute()
    except CorruptRange as error:
        return error


class HandlerRounds:
    """Requests of rounds by handlers; a frame is handled within the round that it needs."""

    def __init__(self, rounds: RoundQueue):
        self.is_in_round = False
        self._rounds = rounds

    def request(self) -> None:
        """Request a round, unless one follows anyway."""
        if not self.is_in_round:
            self._rounds.request()


class Steps:
    """Scheduler of the remaining steps of long requests: one step per event."""

    def __init__(self, process: ProcessScheduler):
        self._process = process

    def start(self, _owner: object, steps: Iterator[None]) -> None:
        """Run the steps, one after the other, as events of their own."""
        self._process.later(0, self._step, steps)

    def _step(self, steps: Iterator[None]) -> None:
        if next(steps, steps) is not steps:
            self._process.later(0, self._step, steps)

    async def take(self, _rows: int = 1) -> None:
        """Return at once: a task of the simulator takes no time."""


class _Addresses:
    """Addresses of nodes, which simulated clients do not use."""

    def client_address(self, node: int) -> str:
        return f"n{node}"


class _MetadataLeader:
    """Requests to the metadata leader; the workload stages no batches, so none is sent."""

    def __init__(self, services: MoveServices):
        self._services = services

    async def ask_within(self, request: Any, _timeout_s: float) -> Any:
        return await self._services.ask_leader(request)


class _NoOtherRequests:
    """Handler of corruption reports, which no client sends."""

    def handle(self, *request: Any) -> None:
        raise AssertionError(f"no simulated client sends {request}")


class DeletionRequests:
    """Handler of administrative requests: clients delete records and ask nothing else.  As
    ``node.admin.requests.Admin``, each request is a task."""

    def __init__(self, view: MetadataView, router: Router,
                 deletion: record_deletion.RecordDeletion, background: Background,
                 request_round: Callable[[], None]):
        self._view = view
        self._router = router
        self._deletion = deletion
        self._background = background
        self._request_round = request_round

    def handle(self, event: RequestEvent, answer: Answer) -> None:
        """Start a task that answers the request; without room for one, refuse it."""
        if not self._background.start(self._answer, event, answer):
            answer.refuse(Code.QUEUE_FULL, ErrorDetail(text="too many tasks", limit=TASKS_MAX,
                                                       value=TASKS_MAX + 1))

    async def _answer(self, event: RequestEvent, answer: Answer) -> None:
        try:
            if not await self._view.applied(event.metadata_index, METADATA_WAIT_S):
                raise StaleMetadata(f"this node has not applied metadata {event.metadata_index}")
            answer(await self._deletion.delete(event.request))
        except REFUSED as error:
            answer.refuse(*request_error(error, self._router.leader_detail))
        self._request_round()

    def forget(self, _session: object) -> None:
        """Do nothing: a session ends with its boot."""


class _Space:
    """The disk space guard, as the produce handler sees it."""

    def __init__(self, guard: DiskSpaceGuard):
        self._guard = guard

    @property
    def full(self) -> bool:
        return self._guard.full

    @property
    def refused(self) -> int:
        return self._guard.refused

    @refused.setter
    def refused(self, count: int) -> None:
        self._guard.refused = count

    def describe(self) -> str:
        return "the disk is full"


class _Loop:
    """The loop's flag for tasks that should run soon: each task is an event of its own here."""

    yield_due = False


class ClientPort:
    """Sessions and request handlers of one boot."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 rounds: HandlerRounds, fail_points: FailPoints, core: JudgedCore, store: Store,
                 services: MoveServices,
                 confirmations: ReadIndexRequests,
                 damaged: Callable[[CorruptRange], None], guard: DiskSpaceGuard,
                 view: MetadataView, retention: SimulatedRetention, waits: AppliedWaits,
                 threads: SimulatedThreads):
        self.later = process.later
        self.request_round = rounds.request
        self.append_timeout_ms = env.parameters.workload.timeout_ms
        self._env = env
        self._fail_points = fail_points
        self._rounds = rounds
        self._store = store
        self._workload = cluster.workload
        self._oracle = cluster.oracle
        self._connections: dict[int, ClientConnection] = {}
        router = Router(core, view, _Addresses())
        limits, states = Limits(), store.partition_states
        background, steps = Background(process), Steps(process)
        waiter = MetadataWaiter(view, router, background, rounds.request)
        self._read_view = JudgedReadView(ReadView(core, states, router, retention.log_starts))
        later = StepRunner(steps, rounds.request)
        self._confirmations = confirmations
        self._damaged = damaged
        self.pending = PendingAppends(ambiguous, acknowledged)
        self.fetches = FetchHandler(
            self._read_view, store, limits, confirmations, waiter, background,
            rounds.request, damaged, later, steps, None, self._now_ns)
        deletion = record_deletion.RecordDeletion(
            core, store, states, router, lambda: view.state, retention.log_starts, waits, steps,
            retention.blocks, limits.append_timeout_ms_max, rounds.request, lambda: env.now_ms)
        other = _NoOtherRequests()
        admin = DeletionRequests(view, router, deletion, background, rounds.request)
        staged = StagedBatches(view, _MetadataLeader(services), background, rounds.request)
        key_checks = KeyChecks(background, threads.run, lambda: threads.pause_us(0),
                               rounds.request, limits.node_bytes_in_flight_max)
        self.sessions = Sessions(directory=router, limits=limits, request_round=rounds.request,
                                 turns=steps)
        self.requests = NativeRequests(
            self.sessions,
            produce_handler=ProduceHandler(core, states, router, self.pending,
                                           limits.append_timeout_ms_max, staged, _Space(guard),
                                           None, self._now_ns, self._wall_ms,
                                           clocks=retention.clocks, retention=retention.passes,
                                           key_checks=key_checks),
            fetch_handler=self.fetches,
            offsets=Offsets(self._read_view, store, confirmations, waiter, background, damaged,
                            later),
            corruption_reports=other, admin=admin, batch_bytes_max=BATCH_BYTES_MAX,
            cluster_id=bytes(16), node=env.node, boot_epoch=store.boot_epoch, loop=_Loop())
        self.wire_limits = self.requests.wire_limits

    def _now_ns(self) -> int:
        return self._env.now_ms * 1_000_000

    def _wall_ms(self) -> int:
        return self._env.clock.wall_ms

    @property
    def earliest_ms(self) -> int:
        """No deadline of a request is before it."""
        return min(self.pending.earliest_ms, self.fetches.earliest_ms,
                   self._confirmations.earliest_ms)

    # ---- clients ---------------------------------------------------------------------------

    def receive(self, client: int, frame: tuple) -> None:
        """Handle a frame of a client."""
        self._rounds.is_in_round = True
        try:
            self._connection(client).receive(frame)
        finally:
            self._rounds.is_in_round = False

    def query_end(self, group: int) -> None:
        """Ask as a client, within a round, where the first partition of a group ends; no-op for a
        group without partitions of the whole run."""
        for partition in self._workload.partitions.get(group, ())[:1]:
            self._connection(OBSERVER).query_end(partition)

    def _connection(self, client: int) -> ClientConnection:
        connection = self._connections.get(client)
        if connection is None:
            connection = self._connections[client] = ClientConnection(self, client)
        return connection

    def send(self, client: int, frame: tuple) -> None:
        """Send a frame with replies."""
        self._fail_points.effect()
        self._env.network.send(self._env.node, client, "client", frame, self._workload.receive)

    # ---- reads -----------------------------------------------------------------------------

    def committed_end(self, partition: int) -> int:
        """Return the end of a partition by what is committed now, in whatever group."""
        return self._env.state_checker.committed_end(partition)

    def judge_fetch(self, reader: int, part: FetchPart, reply: FetchReply,
                    payload: Sequence[Any]) -> None:
        """Check the answer to a fetch. Raises ``Violation``."""
        [result] = reply.results
        checker, node = self._env.state_checker, self._env.node
        partition, offset = part.incarnation, part.offset
        if result.code == Code.OFFSET_OUT_OF_RANGE and not self._is_deleted(partition):
            self._workload.was_refused(node, reader, partition, offset, result.error.start_offset)
        if result.code != Code.OK:
            return  # the reader asks another node
        checker.end_served(node, partition, result.high_watermark)
        span = self._read_view.served(partition, offset)
        if payload or span.high_watermark > span.start_offset:
            self._workload.was_read(span.group, ReadOperation(
                reader, node, partition, offset, span.high_watermark,
                tuple(map(bytes, payload)), span.is_last, result.log_start))

    def judge_end(self, partition: int, floor: int, reply: ListOffsetsReply) -> None:
        """Check the answer to a linearizable query of a partition's end, which was ``floor`` when
        the query arrived. Raises ``Violation``."""
        [result] = reply.results
        if result.code == Code.OK and not self._is_deleted(partition):
            self._env.state_checker.end_confirmed(self._env.node, partition, result.offset, floor)

    def judge_deletion(self, rows: Sequence[RecordDeletion], reply: DeleteRecordsReply) -> None:
        """Check the answer to a deletion of records. Raises ``Violation``."""
        for row, result in zip(rows, reply.results, strict=True):
            self._env.event_counts[f"deletion {Code(result.code).name}"] += 1
            if result.code == Code.OK:
                self._env.state_checker.deletion_answered(
                    self._env.node, row.incarnation, row.before_offset, result.log_start)

    def _is_deleted(self, partition: int) -> bool:
        """True if the deletion of a partition's topic is committed; a node may not know it."""
        return partition in self._oracle.metadata.deleted_at

    def read(self, reader: int, group: int, partition: int, offset: int,
             bytes_max: int = READ_BYTES_MAX) -> int:
        """Read from a group's replica on this node at once, and check it like a client's fetch.
        Return the offset after the last record; ``offset`` itself without a replica, records or an
        intact disk."""
        try:
            span = self._read_view.readable_range(partition, 0, ANY, offset)
        except Refused:
            return offset
        if span.group != group or span.high_watermark <= offset:
            return offset
        try:
            found = self._store.fetch(group, partition, offset, bytes_max, span.high_watermark)
        except RecordsNotCopied:
            return offset
        try:
            batches = found.buffers if found.job is None else found.job.execute()
        except CorruptRange as error:
            self._damaged(error)
            return offset
        self._workload.was_read(group, ReadOperation(
            reader, self._env.node, partition, offset, span.high_watermark,
            tuple(map(bytes, batches)), span.is_last, span.log_start))
        return found.read_to
