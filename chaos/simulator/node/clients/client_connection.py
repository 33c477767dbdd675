"""Connection of one simulated client: its requests as values for the product's session.

Contract.  A ``ClientConnection`` is all that a ``node.clients.session.Session`` needs around it:
the stream of requests, the queue of replies, and the task that resumes a pause.  The workload's
requests become requests of the wire protocol, without being encoded; replies become the workload's.
Reads are judged when the product answers them, because their replies may be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from chaos.simulator.clients.deletions import DeletionRequest
from chaos.simulator.clients.workload import (
    AMBIGUOUS,
    GONE,
    AppendRequest,
    ClientReply,
    FetchRequest,
)
from chaos.simulator.oracle.operations import ACKS_LEADER, ACKS_NONE
from multiraft.wire.connection import NEED_DATA, PAUSED, RequestEvent, ResponseEvent, State
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import WireLimits
from multiraft.wire.messages import (
    ANY,
    LATEST,
    BatchPart,
    DeleteRecords,
    DeleteRecordsReply,
    Fetch,
    FetchPart,
    FetchReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
    Produce,
    RecordDeletion,
)
from node.clients.session import RequestDispatch, Session, Sessions
from node.loop.steps import ROWS_PER_STEP

#: Wait of a fetch for records; each reader in so many waits.
LONG_POLL_MS, LONG_POLL_READERS = 300, 4
#: Acks of the workload -> acks of the wire; all others are ``commit``.
_ACKS = {ACKS_LEADER: "leader", ACKS_NONE: "none"}
#: Code -> error of the workload's replies; clients treat the latter four in a way of their own.
_NAMES = {**{code: code.name for code in Code}, Code.OK: "", Code.AMBIGUOUS: AMBIGUOUS,
          Code.UNKNOWN_PARTITION: GONE, Code.OUT_OF_ORDER_SEQUENCE: "OutOfOrderSequence"}


class Port(Protocol):
    """The client port of a boot, as its connections use it."""

    sessions: Sessions
    requests: RequestDispatch
    wire_limits: WireLimits
    append_timeout_ms: int
    later: Callable[..., None]
    request_round: Callable[[], None]

    def committed_end(self, partition: int) -> int:
        """Return the end of a partition by what is committed now."""

    def judge_fetch(self, reader: int, part: FetchPart, reply: FetchReply,
                    payload: Sequence[Any]) -> None:
        """Check the answer to a fetch. Raises ``Violation``."""

    def judge_end(self, partition: int, floor: int, reply: ListOffsetsReply) -> None:
        """Check the answer to a query of an end, which was ``floor`` when the query arrived. Raises
        ``Violation``."""

    def judge_deletion(self, rows: Sequence[RecordDeletion], reply: DeleteRecordsReply) -> None:
        """Check the answer to a deletion of records. Raises ``Violation``."""

    def send(self, client: int, frame: tuple) -> None:
        """Send a frame with replies."""


class _Headers:
    """The frame reader of values: nothing is decoded."""

    header_bytes = 0


class _Judged(NamedTuple):
    """An open request, and what its reply means to the workload."""

    attempts: tuple[int, ...]  # of appends
    judge: Callable[[Any, Sequence[Any]], None] | None  # of a read's reply and its payload


class ClientConnection:
    """Connection of one client to one boot of a node."""

    def __init__(self, port: Port, client: int):
        self.limits = port.wire_limits
        self.reader = _Headers()
        self.state = State.OPEN
        self.size = 0  # every reply leaves with its flush
        self.held_bytes = self.answer_bytes = 0  # and needs no other reply before it
        self._port = port
        self._client = client
        self._arrived: deque[tuple[RequestEvent, _Judged]] = deque()
        self._open: dict[int, _Judged] = {}
        self._number = 0
        self._replies: list[ClientReply] = []
        self._is_woken = False
        self.session = Session(port.sessions, port.requests, self, self, self)

    # ---- requests --------------------------------------------------------------------------

    def receive(self, frame: Sequence[AppendRequest | FetchRequest | DeletionRequest]) -> None:
        """Queue the requests of a frame, and handle what the limits of the session permit."""
        batch: list[AppendRequest] = []
        for request in frame:
            if type(request) is FetchRequest:
                self._add_read(request)
            elif type(request) is DeletionRequest:
                self._add_deletion(request)
            elif batch and batch[0].attempt % 2 and batch[0].acks == request.acks:
                batch.append(request)  # one request with several batches, as clients send as well
            else:
                self._add_appends(batch)
                batch = [request]
        self._add_appends(batch)
        self._take_new()

    def query_end(self, partition: int) -> None:
        """Ask for the end of a partition, linearizably."""
        self._add_query(partition, 0)
        self._take_new()

    def _take_new(self) -> None:
        if not self.session.paused:
            self._take(self._port.sessions.limits.connection_turn_rows_max)

    def _add_appends(self, batch: list[AppendRequest]) -> None:
        if not batch:
            return
        first = batch[0]
        request = Produce(
            _ACKS.get(first.acks, "commit"), self._port.append_timeout_ms,
            tuple(BatchPart(each.partition, len(each.payload)) for each in batch),
            memoryview(bytearray(b"".join([each.payload for each in batch]))))
        self._add(request, first.seen_index, _Judged(tuple(each.attempt for each in batch), None))

    def _add_read(self, request: FetchRequest) -> None:
        """Queue a fetch, and a linearizable query of the partition's end."""
        client, port = self._client, self._port
        part = FetchPart(request.partition, request.offset, request.bytes_max)
        wait_ms = 0 if client % LONG_POLL_READERS else LONG_POLL_MS
        self._add(Fetch((part,), 1, request.bytes_max, wait_ms, ANY), request.seen_index, _Judged(
            (), lambda reply, payload: port.judge_fetch(client, part, reply, payload)))
        self._add_query(request.partition, request.seen_index)

    def _add_deletion(self, request: DeletionRequest) -> None:
        rows, port = tuple(RecordDeletion(*row) for row in request.partitions), self._port
        self._add(DeleteRecords(rows, port.append_timeout_ms), request.seen_index, _Judged(
            (), lambda reply, _: port.judge_deletion(rows, reply)))

    def _add_query(self, partition: int, seen_index: int) -> None:
        port, floor = self._port, self._port.committed_end(partition)
        self._add(ListOffsets((OffsetQuery(partition, LATEST),)), seen_index, _Judged(
            (), lambda reply, _: port.judge_end(partition, floor, reply)))

    def _add(self, request: Any, seen_index: int, judged: _Judged) -> None:
        self._number += 1
        self._arrived.append((RequestEvent(self._number, request, seen_index), judged))

    def _take(self, rows: int) -> None:
        if self.session.resume(rows):
            self._port.request_round()

    # ---- the stream ------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._open)

    def next_event(self) -> Any:
        """Return the next request; ``PAUSED`` at the limit of open ones."""
        if len(self._open) >= self.limits.in_flight_max:
            return PAUSED
        if not self._arrived:
            return NEED_DATA
        event, judged = self._arrived.popleft()
        if type(event.request) is not Produce or event.request.acks != "none":
            self._open[event.id] = judged
        return event

    def send(self, event: ResponseEvent, payload: Sequence[Any] = ()) -> list[ClientReply]:
        """Judge the reply to a read; return the replies to appends."""
        attempts, judge = self._open.pop(event.id)
        if judge is not None:
            if event.code == Code.OK:
                judge(event.reply, payload)
            return []
        if event.code != Code.OK:
            return [_reply(attempt, event.code, -1, event.error) for attempt in attempts]
        return [_reply(attempt, *result)
                for attempt, result in zip(attempts, event.reply.results, strict=True)]

    # ---- the queue of replies --------------------------------------------------------------

    def push(self, replies: list[ClientReply]) -> None:
        """Keep replies for the end of the round."""
        self._replies += replies

    def flush(self) -> None:
        """Send one frame with all replies, if there are any."""
        if self._replies:
            replies, self._replies = self._replies, []
            self._port.send(self._client, tuple(replies))

    # ---- the task --------------------------------------------------------------------------

    def wake(self) -> None:
        """Resume a paused session soon, if its limits permit."""
        if not self._is_woken:
            self._is_woken = True
            self._port.later(0, self._resume)

    def _resume(self) -> None:
        self._is_woken = False
        if self.session.paused and not self.session.is_full:
            self._take(ROWS_PER_STEP)

    def read_again(self) -> None:
        """Handle the rest of a turn in the next one."""
        self._port.later(0, self._take, self._port.sessions.limits.connection_turn_rows_max)

    def shut_down(self) -> None:
        """End the connection; only a defect of this class can lead here."""
        raise AssertionError(f"the connection of client {self._client} broke")

    def note_peer(self) -> None:
        """Report a node on the client port; no simulated client says hello."""
        raise AssertionError(f"client {self._client} is no node")


def _reply(attempt: int, code: int, base_offset: int, error: ErrorDetail | None) -> ClientReply:
    if error is None:
        return ClientReply(attempt, _NAMES[code], base_offset)
    moved_to = error.group if code == Code.MOVED else 0
    return ClientReply(attempt, _NAMES[code], leader=error.leader, moved_to=moved_to)
