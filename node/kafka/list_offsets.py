"""ListOffsets requests of Kafka's clients, exact to the record.

Contract. The begin and the end of a partition are those that the node's handler returns; the end is
confirmed by a majority. For a time, the answer is the first record at or after it, and the time of
that record: the handler names the batch to begin with, and the search here reads batches from there
on. Kafka's clients take the offset as it is, while native clients search by themselves.

Theory. The index of a partition holds the highest time of the batches up to each: the first batch
that reaches a time is the first with a record of that time or later, unless the log start lies
behind it. Then later batches may be older, and the search continues. It is bounded
(``SEARCH_READS_MAX``): after that the offset to continue from is answered, which is not behind the
record.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ListOffsetsRequest, ListOffsetsResponse
from multiraft.wire.errors import Code, ErrorDetail, exception_for
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    LEADER,
    TIMESTAMP,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
)
from node.clients.native_requests import RequestHandler
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.error_codes import Fault, absent, of_offsets
from node.kafka.fetch import epoch_fault
from node.kafka.record_search import RecordSearch
from node.kafka.topic_view import NO_PARTITION, UNKNOWN, TopicView, incarnation_of
from node.loop.steps import ROWS_PER_STEP, parts

if TYPE_CHECKING:
    from node.loop.background import Background
    from node.loop.turns import Turns

#: Kafka's numbers in place of a time.
LATEST_TIME, EARLIEST_TIME, MAX_TIME, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
#: First version with leader epochs.
EPOCHS_SINCE = 4
#: Bytes of one read of a search, and reads of one search: batches that are older than the time
#: follow only where producers' clocks go back.
SEARCH_BYTES = 1 << 20
SEARCH_READS_MAX = 16


_POSITIONS = {LATEST_TIME: LATEST, EARLIEST_TIME: EARLIEST, EARLIEST_LOCAL: EARLIEST}
NO_SUCH_TIME = Fault(ErrorCode.INVALID_REQUEST, "")


class _Query(NamedTuple):
    """A partition of a request whose offset is looked up, and its place in the response."""

    incarnation: int
    time: int
    result: Any


class _Waited:
    """The reply callback of a request that a task makes and waits for."""

    __slots__ = ("session", "reply", "payload", "refused", "_done")

    def __init__(self, session: Session):
        self.session = session
        self.reply: Any = None
        self.payload: Any = ()
        self.refused: tuple[Code, ErrorDetail] | None = None
        self._done = trio.Event()

    def __call__(self, reply: Any, payload: Any = ()) -> None:
        self.reply, self.payload = reply, payload
        self._done.set()

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Have ``result`` raise the error."""
        self.refused = code, detail
        self._done.set()

    async def result(self) -> Any:
        """Wait for the reply and return it.  Raises the error of a refusal."""
        await self._done.wait()
        if self.refused is not None:
            raise exception_for(*self.refused)
        return self.reply


class OffsetRequests:
    """The handler of ListOffsets requests."""

    def __init__(self, offsets: RequestHandler, fetch_handler: RequestHandler, topics: TopicView,
                 tasks: RequestTasks, background: Background, turns: Turns,
                 request_round: Callable[[], None]):
        self._offsets = offsets
        self._fetch_handler = fetch_handler
        self._topics = topics
        self._tasks = tasks
        self._background = background
        self._turns = turns
        self._request_round = request_round

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that looks the offsets up and answers."""
        session.rows_left -= 2 * sum(len(topic.partitions) for topic in request.message.topics)
        answer = KafkaAnswer(session, number, partial(_refusal, request))
        self._tasks.start(answer, self._respond, session, request)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    async def _respond(self, session: Session, request: KafkaRequest) -> ListOffsetsResponse:
        """Return the response.  O(partitions), in turns, and what the searches read."""
        message: ListOffsetsRequest = request.message
        responses: list[Any] = []
        queries: list[_Query] = []
        for topic in message.topics:
            response = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            responses.append(response)
            known = self._topics.topic(topic.name, b"", False)
            for part in parts(len(topic.partitions)):
                await self._turns.take(len(part))
                for asked in topic.partitions[part.start:part.stop]:
                    result = ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index)
                    response.partitions.append(result)
                    incarnation = incarnation_of(known, asked.partition_index)
                    fault = self._fault(incarnation, asked)
                    if fault is not None:
                        result.error_code = fault.error
                    elif asked.timestamp != LATEST_TIERED:  # no log is kept elsewhere
                        queries.append(_Query(incarnation, asked.timestamp, result))
        await self._look_up(session, queries)
        if request.header.request_api_version >= EPOCHS_SINCE:
            for query in queries:
                query.result.leader_epoch = self._topics.leader(query.incarnation)[1]
        return ListOffsetsResponse(topics=responses)

    def _fault(self, incarnation: int, asked: Any) -> Fault | None:
        """Return the error of a partition that is refused here, or None."""
        if incarnation == NO_PARTITION:
            return absent(False)
        if asked.timestamp < LATEST_TIERED or asked.timestamp == MAX_TIME:
            return NO_SUCH_TIME
        return epoch_fault(self._topics, incarnation, asked.current_leader_epoch)

    async def _look_up(self, session: Session, queries: list[_Query]) -> None:
        """Enter the offsets of all queries into their results."""
        if not queries:
            return
        reply = await self._ask(session, self._offsets, ListOffsets(tuple(
            OffsetQuery(query.incarnation, _POSITIONS.get(query.time, TIMESTAMP),
                        max(query.time, UNKNOWN)) for query in queries)))
        for query, found in zip(queries, reply[0].results, strict=True):
            if found.code != Code.OK:
                query.result.error_code = of_offsets(found.code)
                continue
            offset, time = found.offset, UNKNOWN
            if query.time >= 0 and offset != UNKNOWN:
                exact = await self._first_record(session, query, offset)
                if isinstance(exact, ErrorCode):
                    query.result.error_code = exact
                    continue
                offset, time = exact
            query.result.offset, query.result.timestamp = offset, time

    async def _first_record(self, session: Session, query: _Query, offset: int
                            ) -> tuple[int, int] | ErrorCode:
        """Return offset and time of the first record at or after the time of a query, among those
        from ``offset`` on, or the error of a read. (-1, -1) = the partition has none. Reads up to
        ``SEARCH_READS_MAX`` times; then the offset to continue from, without a time."""
        for _ in range(SEARCH_READS_MAX):
            reply, payload = await self._ask(session, self._fetch_handler, Fetch(
                (FetchPart(query.incarnation, offset, SEARCH_BYTES),), 0, SEARCH_BYTES, 0, LEADER))
            read = reply.results[0]
            if read.code != Code.OK:
                return of_offsets(read.code)
            if not read.length:
                return UNKNOWN, UNKNOWN
            found = await self._background.read(RecordSearch(
                payload, offset, query.time))
            if found.time_ms != UNKNOWN:
                return found
            offset = found.offset
        return offset, UNKNOWN

    async def _ask(self, session: Session, handler: RequestHandler, request: Any
                   ) -> tuple[Any, Any]:
        """Return the reply of a handler of the node, and its payload.  Raises the error of a
        refusal of the whole request."""
        waited = _Waited(session)
        rest = handler.handle(request, waited, 0)
        if rest is not None:
            for _ in rest:
                await self._turns.take(ROWS_PER_STEP)
        self._request_round()
        return await waited.result(), waited.payload


def _refusal(request: KafkaRequest, code: Code, _detail: ErrorDetail) -> ListOffsetsResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    error = of_offsets(code)
    return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(
        name=topic.name, partitions=[ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=error) for part in topic.partitions])
        for topic in request.message.topics])
