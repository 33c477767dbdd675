"""ListOffsets requests of Kafka's clients, exact to the record.

Contract. The begin and the end of a partition are those that the node's handler returns; the end is
confirmed by a majority. For a time, the answer is the first record at or after it, and the time of
that record: the handler names the batch to begin with, and the search here reads batches from there
on. Kafka's clients take the offset as it is, while native clients search by themselves. In place of
a time, -3 is the first record with the largest time, -4 the begin (no log is kept elsewhere, so the
whole one is local), and -5 the end of what is kept elsewhere: there is none. Each exists from a
version on, as in Kafka. The leader epoch of an answer is that of the record, of the end the present
one. At isolation level 1 the end is the last stable offset, at which a fetch stops as well: the
first batch of a transaction that is not decided. A record that is found for a time is answered only
if it is below that offset, as by Kafka; else none is, also for the largest time.

Theory. The index of a partition holds the highest time of the batches up to each: the first batch
that reaches a time is the first with a record of that time or later, unless the log start lies
behind it. Then later batches may be older, and the search continues. It is bounded
(``SEARCH_READS_MAX``): after that the offset to continue from is answered, which is not behind
the record.

The last stable offset is looked for only in topics that an open transaction names, from the offset
on that it named (``TopicEnds``), as far as the offset that was found. The search reads headers,
within the same bound: after that the answer is the offset that it has reached, below which
everything is stable. Transactions are looked up after the offsets were found: what they have staged
below those was staged after they were opened, so none is missed.

Searches in earlier epochs ask other nodes, one after the other (``EarlierReads``). Those of one
request take at most ``EARLIER_S_MAX`` together, as in a fetch: after that the partitions that are
left have an error after which clients ask again.

The largest time is in the index as well, and the first batch that reaches it has the record. Only
if that record was deleted, and all later ones are older, the search reads on from the log start,
within the same bound: after that the largest time of what was read is answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import ListOffsetsRequest, ListOffsetsResponse
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    EARLIEST,
    LARGEST_TIME,
    LATEST,
    LEADER,
    TIMESTAMP,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
)
from node.access import Operation
from node.clients.awaited import ReadCalls, ReadHandler
from node.clients.leader_epochs import LeaderEpochs
from node.clients.read_view import Refused
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.earlier_epochs.earlier_reads import EarlierReads
from node.earlier_epochs.read_time import ReadTime
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import topic_fault
from node.kafka.error_codes import Fault, absent, of_offsets
from node.kafka.fetch import EARLIER_S_MAX, READ_COMMITTED, epoch_fault
from node.kafka.record_search import Found, LargestTimeSearch, RecordSearch
from node.kafka.staged_records import StagedRecords
from node.kafka.topic_view import NO_PARTITION, UNKNOWN, TopicView, incarnation_of
from node.loop.steps import parts

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
#: Time that no record has: a search for it opens no batch, and ends behind the last one.
NEVER_MS = (1 << 63) - 1


#: First version with each number.
TIMES_SINCE = {LATEST_TIME: 1, EARLIEST_TIME: 1, MAX_TIME: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}

_POSITIONS = {LATEST_TIME: LATEST, EARLIEST_TIME: EARLIEST, EARLIEST_LOCAL: EARLIEST}
NO_SUCH_TIME = Fault(ErrorCode.UNSUPPORTED_VERSION, "")


class _Query(NamedTuple):
    """A partition of a request whose offset is looked up, and its place in the response."""

    incarnation: int
    time: int
    result: Any
    version: int  # of the request
    earlier_time: ReadTime  # of the request


class OffsetRequests:
    """The handler of ListOffsets requests."""

    def __init__(self, offsets: ReadHandler, fetch_handler: ReadHandler, calls: ReadCalls,
                 earlier_reads: EarlierReads, topics: TopicView, leader_epochs: LeaderEpochs,
                 staged_records: StagedRecords, tasks: RequestTasks, background: Background,
                 turns: Turns):
        self._staged_records = staged_records
        self._leader_epochs = leader_epochs
        self._offsets = offsets
        self._fetch_handler = fetch_handler
        self._calls = calls
        self._earlier_reads = earlier_reads
        self._topics = topics
        self._tasks = tasks
        self._background = background
        self._turns = turns

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
        version = request.header.request_api_version
        responses: list[Any] = []
        queries: list[_Query] = []
        earlier_time = ReadTime(EARLIER_S_MAX)
        for topic in message.topics:
            response = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            responses.append(response)
            known = self._topics.topic(topic.name, b"", False)
            denied = topic_fault(session, Operation.DESCRIBE, topic.name)
            for part in parts(len(topic.partitions)):
                await self._turns.take(len(part))
                for asked in topic.partitions[part.start:part.stop]:
                    result = ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index)
                    response.partitions.append(result)
                    incarnation = incarnation_of(known, asked.partition_index)
                    fault = denied or self._fault(incarnation, asked, version)
                    if fault is not None:
                        result.error_code = fault.error
                    elif asked.timestamp != LATEST_TIERED:  # no log is kept elsewhere
                        queries.append(_Query(incarnation, asked.timestamp, result, version,
                                              earlier_time))
        await self._look_up(session, queries)
        if message.isolation_level == READ_COMMITTED:
            await self._leave_out_undecided(session, queries)
        if version >= EPOCHS_SINCE:
            for part in parts(len(queries)):
                await self._turns.take(len(part))
                for query in queries[part.start:part.stop]:
                    self._enter_epoch(query)
        return ListOffsetsResponse(topics=responses)

    def _fault(self, incarnation: int, asked: Any, version: int) -> Fault | None:
        """Return the error of a partition that is refused here, or None."""
        if incarnation == NO_PARTITION:
            return absent(False)
        if asked.timestamp < 0 and version < TIMES_SINCE.get(asked.timestamp, version + 1):
            return NO_SUCH_TIME
        return epoch_fault(self._topics, incarnation, asked.current_leader_epoch)

    def _enter_epoch(self, query: _Query) -> None:
        """Enter the leader epoch of an offset that was found.  O(leader epochs known)."""
        result = query.result
        if query.time == LATEST_TIME and result.offset != UNKNOWN:
            result.leader_epoch = self._topics.leader(query.incarnation)[1]
        elif result.offset != UNKNOWN:
            result.leader_epoch = self._leader_epochs.epoch_at(query.incarnation, result.offset)

    async def _look_up(self, session: Session, queries: list[_Query]) -> None:
        """Enter the offsets of all queries into their results."""
        timed = [(query, query.time) for query in queries if query.time >= 0]
        timed += await self._largest_times(session, [query for query in queries
                                                     if query.time == MAX_TIME])
        for query, offset in await self._asked(session, [
                (query, OffsetQuery(query.incarnation, _POSITIONS[query.time]))
                for query in queries if query.time in _POSITIONS]):
            query.result.offset = offset
        for query, time_ms, offset in await self._first_batches(session, timed):
            search = self._largest if query.time == MAX_TIME else self._first_record
            self._enter(query, await search(session, query, offset, time_ms))

    async def _largest_times(self, session: Session, queries: Sequence[_Query]
                             ) -> list[tuple[_Query, int]]:
        """Return each query with the largest time of its partition. Leave out partitions without
        records, and enter the errors of others that are left out."""
        found = []
        for query, time_ms in await self._asked(session, [
                (query, OffsetQuery(query.incarnation, LARGEST_TIME)) for query in queries]):
            if self._earlier_reads.place(query.incarnation) is not None:
                try:
                    time_ms = max(time_ms, await query.earlier_time.call(
                        self._earlier_reads.largest_time, session, query.incarnation))
                except Refused as refused:
                    query.result.error_code = of_offsets(refused.code, query.version)
                    continue
            if time_ms != UNKNOWN:
                found.append((query, time_ms))
        return found

    async def _first_batches(self, session: Session, timed: Sequence[tuple[_Query, int]]
                             ) -> list[tuple[_Query, int, int]]:
        """Return each query and its time with the offset of the first batch that reaches that time.
        Leave out those of partitions without such a batch, and enter the errors of others that are
        left out."""
        found, asked = [], []
        for query, time_ms in timed:
            await self._turns.take()
            place = self._earlier_reads.place(query.incarnation)
            offset, epoch = UNKNOWN, 0
            if place is not None:
                epoch = place.epoch
                try:
                    offset = await query.earlier_time.call(
                        self._earlier_reads.first_at, session, query.incarnation, time_ms)
                except Refused as refused:
                    query.result.error_code = of_offsets(refused.code, query.version)
                    continue
            if offset != UNKNOWN:
                found.append((query, time_ms, offset))
            else:
                asked.append((query, OffsetQuery(query.incarnation, TIMESTAMP, time_ms, epoch)))
        times = {id(query): time_ms for query, time_ms in timed}
        return found + [(query, times[id(query)], offset)
                        for query, offset in await self._asked(session, asked)
                        if offset != UNKNOWN]

    async def _asked(self, session: Session, asked: Sequence[tuple[_Query, OffsetQuery]]
                     ) -> list[tuple[_Query, int]]:
        """Return the queries that the node's handler has answered, with what it found. Enter the
        errors of the others."""
        if not asked:
            return []
        reply, _ = await self._calls.ask(self._offsets, session, ListOffsets(
            tuple([offset_query for _, offset_query in asked])))
        found = []
        for (query, _), row in zip(asked, reply.results, strict=True):
            if row.code == Code.OK:
                found.append((query, row.offset))
            else:
                query.result.error_code = of_offsets(row.code, query.version)
        return found

    async def _leave_out_undecided(self, session: Session, queries: Sequence[_Query]) -> None:
        """Replace offsets that are not stable: an end by the last stable offset, a record that is
        not below that by none. O(queries), in turns, and what the searches read."""
        begins = self._staged_records.begins()
        for part in parts(len(queries)):
            await self._turns.take(len(part))
            for query in queries[part.start:part.stop]:
                begin, found = begins.get(query.incarnation), query.result.offset
                if begin is None or found == UNKNOWN or _POSITIONS.get(query.time) == EARLIEST:
                    continue
                end = found if query.time == LATEST_TIME else found + 1
                stable = await self._last_stable(session, query, begin, end)
                if isinstance(stable, ErrorCode):
                    self._enter(query, stable)
                elif query.time == LATEST_TIME:
                    query.result.offset = stable
                elif stable < end:
                    self._enter(query, Found(UNKNOWN, UNKNOWN))

    async def _last_stable(self, session: Session, query: _Query, begin: int, end: int
                           ) -> int | ErrorCode:
        """Return the offset of the first batch of a transaction that is not decided, among those
        from ``begin`` on; ``end`` if there is none below it, or the error of a read. Reads up to
        ``SEARCH_READS_MAX`` times; then the offset that it has reached."""
        offset = max(begin, self._topics.log_start(query.incarnation))
        for _ in range(SEARCH_READS_MAX):
            if offset >= end:
                break
            batches = await self._read(session, query, offset)
            if isinstance(batches, ErrorCode):
                return batches
            if not batches:
                break
            open_offset = self._staged_records.open_offset(batches)
            if open_offset != UNKNOWN:
                return min(open_offset, end)
            offset = (await self._background.read(RecordSearch(batches, offset, NEVER_MS))).offset
        else:
            return min(offset, end)
        return end

    def _enter(self, query: _Query, found: Found | ErrorCode) -> None:
        """Enter the result of a search for a record."""
        if isinstance(found, ErrorCode):
            query.result.error_code = found
            found = Found(UNKNOWN, UNKNOWN)
        query.result.offset, query.result.timestamp = found

    async def _first_record(self, session: Session, query: _Query, offset: int, time_ms: int
                            ) -> Found | ErrorCode:
        """Return the first record at or after ``time_ms``, among those from ``offset`` on, or the
        error of a read. (-1, -1) = the partition has none. Reads up to ``SEARCH_READS_MAX`` times;
        then the offset to continue from, without a time."""
        for _ in range(SEARCH_READS_MAX):
            batches = await self._read(session, query, offset)
            if isinstance(batches, ErrorCode):
                return batches
            if not batches:
                return Found(UNKNOWN, UNKNOWN)
            found = await self._background.read(RecordSearch(batches, offset, time_ms))
            if found.time_ms != UNKNOWN:
                return found
            offset = found.offset
        return Found(offset, UNKNOWN)

    async def _largest(self, session: Session, query: _Query, offset: int, time_ms: int
                       ) -> Found | ErrorCode:
        """Return the first record of ``time_ms`` or later, among those from ``offset`` on, else the
        first one with the largest time, or the error of a read. Reads up to ``SEARCH_READS_MAX``
        times; one is enough unless the record of that time was deleted."""
        best = Found(UNKNOWN, UNKNOWN)
        for _ in range(SEARCH_READS_MAX):
            batches = await self._read(session, query, offset)
            if isinstance(batches, ErrorCode):
                return batches
            if not batches:
                break
            found = await self._background.read(LargestTimeSearch(batches, offset))
            if found.record.time_ms > best.time_ms:
                best = found.record
            if best.time_ms >= time_ms:
                break
            offset = found.following
        return best

    async def _read(self, session: Session, query: _Query, offset: int) -> Any:
        """Return the batches of one read from ``offset`` on, none at the end of the partition, or
        the error."""
        part = FetchPart(query.incarnation, offset, SEARCH_BYTES)
        if self._earlier_reads.holds(query.incarnation, offset):
            try:
                read, payload = await query.earlier_time.call(self._earlier_reads.read, session,
                                                              part)
            except Refused as refused:
                return of_offsets(refused.code, query.version)
        else:
            reply, payload = await self._calls.ask(self._fetch_handler, session, Fetch(
                (part,), 0, SEARCH_BYTES, 0, LEADER))
            read = reply.results[0]
        if read.code != Code.OK:
            return of_offsets(read.code, query.version)
        return payload if read.length else ()


def _refusal(request: KafkaRequest, code: Code, _detail: ErrorDetail) -> ListOffsetsResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    error = of_offsets(code, request.header.request_api_version)
    return ListOffsetsResponse(topics=[ListOffsetsResponse.ListOffsetsTopicResponse(
        name=topic.name, partitions=[ListOffsetsResponse.ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=error) for part in topic.partitions])
        for topic in request.message.topics])
