"""The list-offsets handler: begin and end of a partition, and the offset of a time.

Contract. ``handle`` answers exactly once: at once, or after a majority has confirmed what must be
certain. Requests of more than ``ROWS_PER_STEP`` rows (partitions, or entries that are searched for
a time) are processed in steps. The first step runs before ``handle`` returns; the caller runs the
others through the returned iterator, or turns of the loop do. For a *linearizable* request, latest
and timestamp cover everything that was acknowledged to any client before the request arrived; a
paused leader that was replaced meanwhile therefore cannot answer them. Any other answer is the
knowledge of the asked replica, which may lag behind and is never wrong.

Theory. A timestamp is answered with the begin of a batch (``Store.first_at``). Its first record at
or after the time can only be found inside the batch, which may be compressed, and the node never
decompresses batches. The reader fetches that batch anyway and finds the record. In a partition that
was switched, the groups of its epoch history are searched in order, as far as they have replicas
here. Then the reader is redirected to the next group, whose epoch its next request names. No answer
is below the log start that this node knows, and entries that end there are not searched. The
largest time is that of one epoch entry: the reader asks for each.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from multiraft.storage.errors import BlockNotCached, CorruptRange
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    ANY,
    EARLIEST,
    LARGEST_TIME,
    LEADER,
    TIMESTAMP,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
    OffsetResult,
)
from node.access import Operation
from node.clients.read_view import (
    BEING_SWITCHED,
    TERM_NOT_COMMITTED,
    ReadableRange,
    ReadView,
    Refused,
    not_known_yet,
)
from node.clients.topic_access import TopicAccess
from node.errors import is_exhausted, journal_unreadable
from node.loop.steps import ROWS_PER_STEP, StepRunner, advanced, parts

if TYPE_CHECKING:
    from multiraft.storage.io_jobs import BlockJob
    from multiraft.storage.store import Store
    from node.clients.metadata_wait import MetadataWaiter
    from node.clients.read_index import ReadIndexRequests
    from node.clients.session import Answer
    from node.loop.background import Background
    from node.metadata.state_machine import Location

#: Groups whose leadership is confirmed per step.
GROUPS_PER_STEP = 64
#: Cost of searching an epoch entry for a time, in rows.
EPOCH_ENTRY_ROWS = 2

#: Reason of the refusal by a leader that no majority confirms.
NOT_CONFIRMED = ErrorDetail(text="no majority confirms that this node still leads the group")

#: Reason of the refusal by a replica that may lack the record with the largest time.
LACKS_RECORDS = ErrorDetail(text="the replica here lacks records, which are being copied")


class _Request:
    """A request that waits for confirmations of leadership."""

    __slots__ = ("request", "answer", "seen_index", "confirmed", "missing", "rows", "results",
                 "access")

    def __init__(self, request: ListOffsets, answer: Answer, seen_index: int):
        self.request = request
        self.answer = answer
        self.access = (None if answer.is_authorized
                       else TopicAccess(answer.session, Operation.DESCRIBE))
        self.seen_index = seen_index
        self.confirmed: set[int] = set()  # groups
        self.missing: set[int] = set()  # groups whose confirmation is in flight
        self.rows = 0  # processed in this step
        self.results: list[OffsetResult] = []


class Offsets:
    """The handler of ``ListOffsets`` requests of all sessions."""

    def __init__(self, read_view: ReadView, store: Store, read_index_requests: ReadIndexRequests,
                 metadata_waiter: MetadataWaiter, background: Background,
                 damaged: Callable[[CorruptRange], None], later: StepRunner):
        """``damaged`` is called with damage that a read of an index file finds."""
        self._background = background
        self._damaged = damaged
        self._later = later
        self._read_view = read_view
        self._store = store
        self._read_index_requests = read_index_requests
        self._metadata_waiter = metadata_waiter

    def handle(self, request: ListOffsets, answer: Answer,
               seen_index: int = 0) -> Iterator[None] | None:
        """Process a request. ``answer(reply)`` is called exactly once, possibly before this
        returns. ``seen_index``: the newest metadata index that the client knows. Return None when
        no step remains, else an iterator over the remaining steps."""
        waiting = _Request(request, answer, seen_index)
        return advanced(self._handle(waiting))

    def _handle(self, waiting: _Request) -> Iterator[None]:
        if self._metadata_waiter.is_stale_for(waiting.seen_index):
            known = yield from self._metadata_waiter.knows(waiting.request.partitions)
            if not known and self._metadata_waiter.wait(
                waiting.seen_index,
                lambda: self._later.run_steps(waiting.answer.session, self._begin(waiting)),
            ):
                return
        yield from self._begin(waiting)

    def _begin(self, waiting: _Request) -> Iterator[None]:
        waiting.missing = yield from self._groups_to_confirm(waiting)
        if not waiting.missing:
            yield from self._answer(waiting)
            return
        asked = tuple(waiting.missing)
        for part in parts(len(asked), GROUPS_PER_STEP):
            if part.start:
                yield
            for group in asked[part.start:part.stop]:
                if not self._read_index_requests.ask(
                        group, partial(self._confirmed, waiting, group)):
                    self._confirmed(waiting, group, False)

    def _groups_to_confirm(self, waiting: _Request) -> Generator[None, None, set[int]]:
        """Return the groups led here that a majority must confirm before the reply: none unless the
        request is linearizable. O(queries), in steps."""
        groups: set[int] = set()
        queries = waiting.request.partitions if waiting.request.linearizable else ()
        for part in parts(len(queries)):
            if part.start:
                yield
            for query in queries[part.start:part.stop]:
                if query.position != EARLIEST:
                    try:
                        span = self._read_view.readable_range(
                            query.incarnation, waiting.seen_index, LEADER)
                    except Refused:
                        continue  # ``_answer`` meets the same refusal and replies with it
                    if span.is_end_certain:
                        groups.add(span.group)
        return groups

    def _confirmed(self, waiting: _Request, group: int, is_confirmed: bool) -> None:
        waiting.missing.discard(group)
        if is_confirmed:
            waiting.confirmed.add(group)
        if not waiting.missing:
            self._later.run_steps(waiting.answer.session, self._answer(waiting))

    def _answer(self, waiting: _Request) -> Iterator[None]:
        """Answer the queries that have no result yet, then the request.  A query that lacks a block
        of an index file ends the step; the background task that reads the block resumes it."""
        results = waiting.results
        for query in waiting.request.partitions[len(results):]:
            if waiting.rows >= ROWS_PER_STEP:
                waiting.rows = 0
                yield
            waiting.rows += 1
            try:
                results.append(self._result(query, waiting))
            except BlockNotCached as error:
                if self._background.start(self._read, self._store.block_job(error), query,
                                          waiting):
                    return
                results.append(OffsetResult(query.incarnation, Code.QUEUE_FULL, -1,
                                            ErrorDetail(text="too many background tasks")))
        waiting.answer(ListOffsetsReply(tuple(results)))

    async def _read(self, job: BlockJob, query: OffsetQuery, waiting: _Request) -> None:
        """Read the block that a query lacks, and resume it. Raises ``DiskFailed`` if the disk
        cannot be read."""
        try:
            await self._background.read(job)
        except CorruptRange as error:
            self._damaged(error)
            waiting.results.append(OffsetResult(query.incarnation, Code.QUARANTINED, -1,
                                                ErrorDetail(text=str(error))))
        except OSError as error:
            if not is_exhausted(error):
                raise journal_unreadable(error) from error
            waiting.results.append(OffsetResult(
                query.incarnation, Code.QUEUE_FULL, -1,
                ErrorDetail(text=f"the node cannot open a file now: {error.strerror}")))
        else:
            self._store.block_read(job)
        waiting.rows = 0
        self._later.run_steps(waiting.answer.session, self._answer(waiting))

    def _result(self, query: OffsetQuery, waiting: _Request) -> OffsetResult:
        try:
            offset = self._offset(query, waiting)
        except Refused as refused:
            return OffsetResult(query.incarnation, refused.code, -1, refused.detail)
        return OffsetResult(query.incarnation, Code.OK, offset)

    def _offset(self, query: OffsetQuery, waiting: _Request) -> int:
        """Return the offset that a query asks for, -1 = none. Raises ``Refused`` if the partition
        is not served here, or its end is not certain."""
        if query.position == TIMESTAMP:
            return self._time(query, waiting)
        if query.position == LARGEST_TIME:
            return self._largest_time(query, waiting)
        linearizable = waiting.request.linearizable
        span = self._read_view.readable_range(query.incarnation, waiting.seen_index,
                                              LEADER if linearizable else ANY,
                                              access=waiting.access)
        if query.position == EARLIEST:
            return span.log_start
        _check_end(span, waiting)
        return max(span.high_watermark, span.log_start)

    def _time(self, query: OffsetQuery, waiting: _Request) -> int:
        """Return the begin of the first batch with a record at or after the query's time, in its
        epoch or later; -1 = none. O(entries log n). Raises ``Refused`` as ``_offset``, and where
        the answer may be in records that are not known here yet."""
        replica = LEADER if waiting.request.linearizable else ANY
        place = self._read_view.location(query.incarnation, waiting.seen_index,
                                         waiting.access)
        if query.epoch > place.epoch:
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"this node knows of epoch {place.epoch}, not of {query.epoch}"))
        log_start = self._read_view.log_start(place, query.incarnation)
        for at, entry in enumerate(place.epoch_history):
            if entry.epoch < query.epoch or _is_deleted(place, at, log_start):
                continue
            waiting.rows += EPOCH_ENTRY_ROWS
            span = self._read_view.readable_part(place, query.incarnation, at, replica)
            if span.is_last:
                _check_end(span, waiting)
            found = self._store.first_at(span.group, query.incarnation, query.timestamp_ms,
                                         max(span.log_start, span.start_offset),
                                         span.high_watermark)
            if found is not None:
                return found
            if not span.is_last and not span.complete:
                raise not_known_yet(span.next_offset, span)
        return -1

    def _largest_time(self, query: OffsetQuery, waiting: _Request) -> int:
        """Return the highest timestamp of the batches of one epoch, -1 = none. O(log n). Raises
        ``Refused`` as ``_time``, and where records are missing here."""
        replica = LEADER if waiting.request.linearizable else ANY
        place = self._read_view.location(query.incarnation, waiting.seen_index,
                                         waiting.access)
        history = place.epoch_history
        at = len(history) - 1
        while query.epoch and at > 0 and history[at].epoch > query.epoch:
            at -= 1
        if query.epoch and history[at].epoch != query.epoch:
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"this node knows of no epoch {query.epoch}"))
        waiting.rows += EPOCH_ENTRY_ROWS
        span = self._read_view.readable_part(place, query.incarnation, at, replica)
        if span.is_last:
            _check_end(span, waiting)
        elif not span.complete:
            raise not_known_yet(span.next_offset, span)
        if not self._store.is_complete(span.group):
            raise Refused(Code.OFFSET_NOT_AVAILABLE, LACKS_RECORDS)
        if span.high_watermark <= max(span.log_start, span.start_offset):
            return -1
        found = self._store.latest_below(span.group, query.incarnation, span.high_watermark)
        return found if found is not None else -1


def _is_deleted(place: Location, at: int, log_start: int) -> bool:
    """Return True if all offsets of entry ``at`` of the epoch history are below the log start."""
    history = place.epoch_history
    return at + 1 < len(history) and history[at + 1].start_offset <= log_start


def _check_end(span: ReadableRange, waiting: _Request) -> None:
    """Return unless a linearizable request asks for an end that is not certain. Raises ``Refused``
    then."""
    if not waiting.request.linearizable:
        return
    if span.sealed:
        raise Refused(Code.OFFSET_NOT_AVAILABLE, BEING_SWITCHED)
    if span.group not in waiting.confirmed or not span.is_end_certain:
        raise Refused(
            Code.OFFSET_NOT_AVAILABLE, NOT_CONFIRMED if span.is_end_certain else TERM_NOT_COMMITTED
        )
