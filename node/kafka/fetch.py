"""Fetch requests of Kafka's clients.

Contract. The fetch handler of the node reads and waits; batches are sent as it returns them, never
copied. Each partition of the request has a place in the response, in the same order. A partition
that does not exist, or whose leader epoch is not the present one, is refused here, and the request
is then answered without waiting for records, as any request with a refused partition is. Fetch
sessions (KIP-227) are not kept: the session id of each response is 0, and clients then name all
partitions in each request. Records of transactions that are not committed are left out, whatever
isolation level a request names; a response that has nothing else waits as a long poll does, for a
change of the metadata.

A client that names its rack is sent to a replica there by the leader (``PreferredReplicas``), and
served by any replica: then it is the epoch of the leader that this node knows which is compared.

Partitions at an offset of an earlier epoch, from before a switch, are read first, one after the
other (``EarlierReads``), by a task. Those that the limits of such a request do not reach have no
records in its response.

Theory. Records that were committed are never replaced here, so no client has to truncate what it
has read, and no epoch diverges.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from multiraft import core
from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import FetchRequest, FetchResponse
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Buffer
from multiraft.wire.messages import ANY, LEADER, Fetch, FetchPart, FetchReply, FetchResult
from node.access import Operation
from node.clients.awaited import ReadCalls
from node.clients.native_requests import FetchRequests as FetchHandler
from node.clients.session import Session
from node.earlier_epochs.earlier_reads import EarlierReads
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import topic_fault
from node.kafka.error_codes import Fault, absent, of_fetch
from node.kafka.preferred_replicas import PreferredReplicas
from node.kafka.staged_records import StagedRecords, Visible
from node.kafka.topic_view import NO_PARTITION, UNKNOWN, Endpoint, TopicView, incarnation_of
from node.loop.steps import ROWS_PER_STEP, advanced, parts

if TYPE_CHECKING:
    from node.clients.memory_budget import MemoryBudget
    from node.clients.request_tasks import RequestTasks
    from node.metadata.log import MetadataLog
    from node.metadata.topics import Topic

#: First version with ids of topics in place of names.
IDS_SINCE = 13
#: First version whose clients understand the state of records of transactions.
READ_COMMITTED = 1
#: Time that a client is asked to wait after a request that was refused because of the load, in
#: milliseconds: clients repeat fetches at once.
THROTTLE_MS = 100

#: Longest wait of a response without records for the decision of a transaction, in milliseconds.
OPEN_WAIT_MS_MAX = 1_000

#: Limits of the reads of earlier epochs for one request: bytes, which are in memory at a time, and
#: seconds, because clients wait 30 s for a response. ListOffsets requests have the same seconds.
EARLIER_BYTES_MAX = 8 << 20
EARLIER_S_MAX = 5.0

OLD_EPOCH = Fault(ErrorCode.FENCED_LEADER_EPOCH, "")
NEW_EPOCH = Fault(ErrorCode.UNKNOWN_LEADER_EPOCH, "")


class FetchRequests:
    """The handler of fetch requests."""

    def __init__(self, fetch_handler: FetchHandler, calls: ReadCalls, earlier_reads: EarlierReads,
                 preferred_replicas: PreferredReplicas, topics: TopicView, budget: MemoryBudget,
                 metadata_log: MetadataLog, staged_records: StagedRecords, tasks: RequestTasks):
        self._fetch_handler = fetch_handler
        self._calls = calls
        self._earlier_reads = earlier_reads
        self._preferred_replicas = preferred_replicas
        self._topics = topics
        self._budget = budget
        self._staged_records = staged_records
        self._metadata_log = metadata_log
        self._tasks = tasks

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Pass a fetch to the fetch handler, and answer it once that has records, or the time to
        wait is over. O(partitions), in steps."""
        budget = self._budget
        if budget.unsent > budget.unsent_max:
            self.refuse(session, number, request, Code.QUEUE_FULL, budget.refusal())
            return
        session.rows_left -= sum(len(topic.partitions) for topic in request.message.topics)
        session.run_steps(advanced(self._fetched(session, number, request)))

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    def _fetched(self, session: Session, number: int, request: KafkaRequest) -> Iterator[None]:
        """Collect the partitions that may be read, and pass them on. Each step takes part of
        them."""
        message: FetchRequest = request.message
        fetching = _Fetching(session, self._topics, self._earlier_reads, self._preferred_replicas,
                             self._visible, request)
        rows = 0
        for topic in message.topics:
            fetching.begin_topic(topic)
            for part in topic.partitions:
                rows += 1
                if rows > ROWS_PER_STEP:
                    rows = 0
                    yield
                fetching.add(part)
        if fetching.earlier:
            self._tasks.start(KafkaAnswer(session, number, partial(_refusal, request)),
                              self._with_earlier, session, request, fetching)
            return
        wait_ms = 0 if fetching.has_refused else max(0, message.max_wait_ms)
        rest = self._fetch_handler.handle(
            Fetch(tuple(fetching.parts), max(0, message.min_bytes), max(0, message.max_bytes),
                  wait_ms, fetching.replica),
            _FetchAnswer(session, number, request, fetching, self), 0)
        if rest is not None:
            yield from rest

    async def _with_earlier(self, session: Session, request: KafkaRequest, fetching: _Fetching
                            ) -> FetchResponse:
        """Return the response to a request with offsets of earlier epochs.  It does not wait for
        records."""
        bytes_max = max(0, request.message.max_bytes)
        bytes_left = await self._read_earlier(session, fetching, min(bytes_max, EARLIER_BYTES_MAX))
        if fetching.parts:
            bytes_read = min(bytes_max, EARLIER_BYTES_MAX) - bytes_left
            reply, payload = await self._calls.ask(self._fetch_handler, session, Fetch(
                tuple(fetching.parts), 0, max(0, bytes_max - bytes_read), 0, fetching.replica))
            fetching.enter_all(reply, payload)
        response = fetching.response()
        if fetching.is_undecided:
            return await self._waited(response, request.message.max_wait_ms)
        return response

    async def _read_earlier(self, session: Session, fetching: _Fetching, bytes_left: int) -> int:
        """Read the partitions at earlier epochs, and enter their results, within ``bytes_left``
        bytes and ``EARLIER_S_MAX``.  Return the bytes that are left, which may be below 0."""
        with trio.move_on_after(EARLIER_S_MAX) as patience:
            while fetching.earlier and (bytes_left > 0 or not fetching.has_records):
                response, part = fetching.earlier[0]
                read = await self._earlier_reads.read(session, part._replace(
                    bytes_max=min(part.bytes_max, max(0, bytes_left))))
                fetching.enter(response, read.result, _Pieces(read.buffers))
                fetching.earlier.popleft()
                bytes_left -= read.result.length
        left = tuple(fetching.earlier)
        for rows in parts(len(left)):
            await self._calls.take(len(rows))
            for response, part in left[rows.start:rows.stop]:
                # Clients repeat a fetch without an error at once, after this one a little later.
                found = (FetchResult(part.incarnation, Code.OFFSET_NOT_AVAILABLE, UNKNOWN, UNKNOWN,
                                     0) if patience.cancelled_caught
                         else self._earlier_reads.without_records(part.incarnation))
                fetching.enter(response, found, _Pieces(()))
        return bytes_left

    def _visible(self, buffers: list[Buffer]) -> Visible:
        """Return what a client may read of the batches of a partition.  O(batches)."""
        staged = core.staged_batches(buffers)
        return self._staged_records.visible(buffers, staged) if staged else Visible(buffers)

    def answer_later(self, session: Session, number: int, request: KafkaRequest,
                     response: FetchResponse) -> None:
        """Send a response without records when the metadata change, or the time to wait is
        over."""
        self._tasks.start(KafkaAnswer(session, number, partial(_refusal, request)), self._waited,
                          response, request.message.max_wait_ms)

    async def _waited(self, response: FetchResponse, wait_ms: int) -> FetchResponse:
        log = self._metadata_log
        await log.applied(log.state.version + 1, min(wait_ms, OPEN_WAIT_MS_MAX) / 1000)
        return response


class _Fetching:
    """The partitions of one request: those to read, and the results of all.  ``visible`` returns
    what a client may read of the batches of a partition."""

    __slots__ = ("parts", "earlier", "has_refused", "has_records", "replica", "_has_open",
                 "_results", "_responses", "_session", "_topics", "_earlier_reads",
                 "_preferred_replicas", "_visible", "_by_id", "_rack", "_topic", "_denied",
                 "_aborted", "_leaders")

    def __init__(self, session: Session, topics: TopicView, earlier_reads: EarlierReads,
                 preferred_replicas: PreferredReplicas,
                 visible: Callable[[list[Buffer]], Visible], request: KafkaRequest):
        self._preferred_replicas = preferred_replicas
        self._rack: str = request.message.rack_id
        self.replica = ANY if self._rack else LEADER  # that serves ``parts``
        self._session = session
        self._topics = topics
        self._earlier_reads = earlier_reads
        self._visible = visible
        self._by_id = request.header.request_api_version >= IDS_SINCE
        #: Transactions whose records a client has to skip: there are none.
        self._aborted: list | None = (
            [] if request.message.isolation_level == READ_COMMITTED else None)
        self._topic: Topic | None = None  # whose partitions are added
        self._denied: Fault | None = None  # the client may not read it
        self.parts: list[FetchPart] = []
        self._results: list[Any] = []  # of ``parts``
        self.earlier: deque[tuple[Any, FetchPart]] = deque()  # result, part at an earlier epoch
        self._responses: list[Any] = []  # of topics, with the results of all their partitions
        self._leaders: dict[int, Endpoint] = {}  # that results name
        self.has_refused = False
        self.has_records = False
        self._has_open = False  # records of an open transaction were left out

    def begin_topic(self, topic: Any) -> None:
        """Begin with the partitions of a topic in the request."""
        self._topic = self._topics.topic(topic.topic, topic.topic_id, self._by_id)
        name = self._topic.name if self._topic is not None else topic.topic
        self._denied = topic_fault(self._session, Operation.READ, name) if name else None
        self._responses.append(FetchResponse.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id))

    def add(self, part: Any) -> None:
        """Add a partition of the topic: to ``parts`` or ``earlier``, unless it is refused here."""
        result = FetchResponse.PartitionData(
            partition_index=part.partition, high_watermark=UNKNOWN,
            aborted_transactions=self._aborted, records=())
        self._responses[-1].partitions.append(result)
        incarnation = incarnation_of(self._topic, part.partition)
        if self._denied is not None:
            fault: Fault | None = self._denied
        elif incarnation == NO_PARTITION:
            fault = absent(self._topic is None and self._by_id)
        elif part.fetch_offset < 0:
            fault = BELOW_ZERO
        else:
            fault = epoch_fault(self._topics, incarnation, part.current_leader_epoch,
                                bool(self._rack))
        if fault is not None:
            result.error_code = fault.error
            self.has_refused = True
            return
        to_read = FetchPart(incarnation, part.fetch_offset, max(0, part.partition_max_bytes))
        if self._earlier_reads.holds(incarnation, part.fetch_offset):
            self.earlier.append((result, to_read))
            return
        preferred = self._preferred_replicas.of(incarnation, self._rack)
        if preferred != UNKNOWN:
            self._send_to(preferred, result, incarnation)
        else:
            self.parts.append(to_read)
            self._results.append(result)

    def _send_to(self, node: int, response: Any, incarnation: int) -> None:
        """Have the client read the partition from another node, from now on."""
        found = self._earlier_reads.without_records(incarnation)
        self.enter(response, found, _Pieces(()))
        if found.code == Code.OK:
            response.preferred_read_replica = node
            self.has_refused = True  # the client is answered at once

    def enter_all(self, reply: FetchReply, payload: Sequence[Buffer]) -> None:
        """Enter the results of ``parts``.  O(partitions + batches)."""
        pieces = _Pieces(payload)
        for response, result in zip(self._results, reply.results, strict=True):
            self.enter(response, result, pieces)

    def enter(self, response: Any, result: FetchResult, pieces: _Pieces) -> None:
        """Enter the result of a partition, with its batches, which are next in ``pieces``.
        O(batches)."""
        if result.code != Code.OK:
            self._enter_error(response, result)
            return
        response.high_watermark = response.last_stable_offset = result.high_watermark
        response.log_start_offset = result.log_start
        if not result.length:
            return
        visible = self._visible(pieces.take(result.length))
        response.records = visible.buffers
        self.has_records = self.has_records or bool(visible.buffers)
        if visible.open_offset != UNKNOWN:
            response.last_stable_offset = visible.open_offset
            self._has_open = True

    def _enter_error(self, response: Any, result: FetchResult) -> None:
        """Enter the error of a partition, with the leader that it names (KIP-951)."""
        self.has_refused = True
        response.error_code = of_fetch(result.code)
        named = self._topics.leader_named(result.incarnation, result.error or ErrorDetail())
        if named is None:
            return
        found = self._topics.endpoint(named[0])
        if found is not None:
            self._leaders[found.node] = found
            response.current_leader = FetchResponse.LeaderIdAndEpoch(
                leader_id=named[0], leader_epoch=named[1])

    @property
    def is_undecided(self) -> bool:
        """True if the response has nothing because the transaction of its records is open."""
        return self._has_open and not self.has_records and not self.has_refused

    def response(self) -> FetchResponse:
        """Return the response with all results.  O(leaders that it names)."""
        return FetchResponse(
            responses=self._responses,
            node_endpoints=[FetchResponse.NodeEndpoint(
                node_id=found.node, host=found.host, port=found.port, rack=found.rack)
                for found in self._leaders.values()])


class _FetchAnswer(KafkaAnswer):
    """The reply callback of a fetch."""

    __slots__ = ("_fetching", "_request", "_requests")
    #: The permission for each topic was asked for when its partitions were collected.
    is_authorized = True

    def __init__(self, session: Session, number: int, request: KafkaRequest, fetching: _Fetching,
                 requests: FetchRequests):
        super().__init__(session, number, partial(_refusal, request))
        self._fetching = fetching
        self._request = request
        self._requests = requests

    def __call__(self, reply: FetchReply, payload: Sequence[Buffer] = ()) -> None:
        """Answer with the results of the fetch handler and of the partitions that were refused
        before. O(partitions + batches)."""
        fetching = self._fetching
        fetching.enter_all(reply, payload)
        response = fetching.response()
        if fetching.is_undecided:
            self._requests.answer_later(self.session, self.id, self._request, response)
        else:
            super().__call__(response)


class _Pieces:
    """The buffers of a reply, which are taken off in order, by length."""

    __slots__ = ("_buffers", "_left")

    def __init__(self, buffers: Sequence[Buffer]):
        self._buffers = iter(buffers)
        self._left: memoryview | None = None  # of a buffer that holds more than what was taken

    def take(self, length: int) -> list[Buffer]:
        """Return the buffers of the next ``length`` bytes.  O(buffers)."""
        found: list[Buffer] = []
        while length:
            buffer = self._left if self._left is not None else next(self._buffers)
            self._left = None
            size = len(buffer)
            if size > length:  # the fetch handler has joined small buffers
                view = memoryview(buffer)
                buffer, self._left, size = view[:length], view[length:], length
            found.append(buffer)
            length -= size
        return found


BELOW_ZERO = Fault(ErrorCode.OFFSET_OUT_OF_RANGE, "")


def epoch_fault(topics: TopicView, incarnation: int, epoch: int,
                of_any_replica: bool = False) -> Fault | None:
    """Return the error of a request that names the leader epoch ``epoch`` (KIP-320); None if it
    names none, the present one, or this node does not lead the partition, which the handler
    answers. ``of_any_replica``: a node that does not lead it compares as well.  O(1)."""
    if epoch == UNKNOWN or not (of_any_replica or topics.leads(incarnation)):
        return None
    present = topics.leader(incarnation)[1]
    if epoch == present:
        return None
    return OLD_EPOCH if epoch < present else NEW_EPOCH


def _refusal(request: KafkaRequest, code: Code, detail: ErrorDetail) -> FetchResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    error = of_fetch(code)
    return FetchResponse(
        throttle_time_ms=THROTTLE_MS if code == Code.QUEUE_FULL else 0,
        responses=[FetchResponse.FetchableTopicResponse(
            topic=topic.topic, topic_id=topic.topic_id, partitions=[
                FetchResponse.PartitionData(
                    partition_index=part.partition, high_watermark=UNKNOWN, error_code=error,
                    records=()) for part in topic.partitions])
            for topic in request.message.topics])
