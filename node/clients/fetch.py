"""The fetch handler: serves committed batches, with long polls, from any replica.

Contract. Only records below the high watermark leave this node: they are applied, which means
committed *and* durable here. A fetch that finds too few bytes becomes a long poll, which waits in a
table by group for a commit of one of its groups or its deadline. Batches in memory are sent as the
stored buffers. Small ranges in the page cache are read on the loop, all others by a bounded number
of threads; both are verified. A fetch of many partitions is processed in steps. The first step runs
before ``handle`` returns; the caller runs the others through the returned iterator, or turns of the
loop do. A commit that wakes many long polls processes ``RETRIED_ROWS_MAX`` rows of them per round.

Theory. ``OFFSET_OUT_OF_RANGE`` makes a client reset its position, so it is returned only when it is
certain: below the log start, or above the end of the partition according to a leader that has
committed in its own term *and* was confirmed by a majority after the request arrived. Any other
offset above the high watermark is ``OFFSET_NOT_AVAILABLE``, after the wait of the long poll: the
client retries, perhaps on another replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from sortedcontainers import SortedKeyList

from multiraft.raft.timers import NEVER_MS
from multiraft.storage.errors import (
    CorruptRange,
    OffsetTooLow,
    RecordsNotCopied,
    SegmentRemoved,
)
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import Fetch, FetchPart, FetchReply, FetchResult
from node.access import Operation
from node.clients.load_counts import LoadCounts
from node.clients.read_view import ReadableRange, ReadView, Refused, not_known_yet, out_of_range
from node.clients.topic_access import TopicAccess
from node.clock import monotonic_ns
from node.errors import is_exhausted, journal_unreadable
from node.histogram import Histogram
from node.loop.steps import ROWS_PER_STEP, StepRunner, advanced, parts
from node.loop.system_limits import IOV_BUFFERS_MAX

if TYPE_CHECKING:
    from multiraft.storage.io_jobs import Fetch as StoreFetch
    from multiraft.storage.io_jobs import FetchJob, RowFetchJob
    from multiraft.storage.store import Store
    from node.clients.metadata_wait import MetadataWaiter
    from node.clients.read_index import ReadIndexRequests
    from node.clients.session import Answer, Session
    from node.config import Limits

#: Cost of a fetch beside its partitions, and of a partition that has records, in rows.
FETCH_ROWS = 4
READ_ROWS = 4
#: Limits per round: rows of woken long polls, and expired long polls.
RETRIED_ROWS_MAX = 512
EXPIRED_MAX = 256
#: Ranges in the page cache that one fetch reads on the loop: each is a system call.
RESIDENT_READS_MAX = 64
#: Groups whose leadership is confirmed per step.
GROUPS_PER_STEP = 64


class Turns(Protocol):
    """The rows that may be worked on in one turn of the event loop."""

    async def take(self, rows: int = 1) -> None: ...


class Background(Protocol):
    """Tasks that read from the disk outside the loop."""

    def start(self, work: Callable[..., Any], *args: Any) -> bool: ...

    async def read_each(self, jobs: Sequence) -> list: ...


class WaitingFetch:
    """A fetch that waits: for a commit, for a deadline, or for a confirmation of leadership."""

    __slots__ = ("request", "answer", "deadline_ms", "groups", "number", "seen_index",
                 "accepted_ns", "reads", "confirmed", "unconfirmed", "confirmations_open",
                 "has_awaited_metadata", "access")

    def __init__(self, request: Fetch, answer: Answer, accepted_ns: int, deadline_ms: int,
                 number: int, seen_index: int):
        self.request = request
        self.answer = answer
        self.access = (None if answer.is_authorized
                       else TopicAccess(answer.session, Operation.READ))
        self.deadline_ms = deadline_ms
        self.number = number
        self.seen_index = seen_index
        self.groups: tuple[int, ...] = ()
        self.confirmed: set[int] = set()  # groups led here, confirmed for this try
        self.unconfirmed: set[int] = set()  # groups whose confirmation failed
        self.confirmations_open = 0  # confirmations in flight
        self.accepted_ns = accepted_ns  # 0 = it has waited for records
        #: Reads of records: slot, group if it is led here (else -1), offset, what is read.
        self.reads: list[tuple[int, int, int, StoreFetch]] = []
        self.has_awaited_metadata = False  # has waited for the metadata that its client has seen


class FetchHandler:
    """The handler of ``Fetch`` requests of all sessions, and the table of long polls."""

    def __init__(
        self,
        read_view: ReadView,
        store: Store,
        limits: Limits,
        read_index_requests: ReadIndexRequests,
        metadata_waiter: MetadataWaiter,
        background: Background,
        request_round: Callable[[], None],
        damaged: Callable[[CorruptRange], None],
        later: StepRunner,
        turns: Turns,
        counts: LoadCounts | None = None,
        now_ns: Callable[[], int] = monotonic_ns,
    ):
        self._now_ns = now_ns  # a monotonic clock
        self._later = later
        self._turns = turns
        self._fetches_in_steps = 0  # fetches that are processed over several turns
        self._commits = 0  # commits during such fetches
        self._committed: dict[int, int] = {}  # group -> number of the last such commit
        self._counts = counts  # None = loads are not published
        self._read_view = read_view
        self._store = store
        self._limits = limits
        self._read_index_requests = read_index_requests
        self._metadata_waiter = metadata_waiter
        self._background = background
        self._request_round = request_round
        self._damaged = damaged  # (CorruptRange): a read found damage
        self._by_group: dict[int, dict[int, WaitingFetch]] = {}
        self._by_session: dict[object, dict[int, WaitingFetch]] = {}
        self._deadlines: SortedKeyList = SortedKeyList(key=_deadline)
        self.due: dict[int, WaitingFetch] = {}  # for ``retry_due``
        self.earliest_ms = NEVER_MS  # no long poll's deadline is before it
        self._number = 0
        self.bytes = 0
        self.records = 0  # from the requested offsets on
        self.cold_reads = 0
        self.resident_reads = 0
        self.latency = Histogram()  # microseconds, of fetches that did not wait for records
        self.replica_bytes = 0  # of ``bytes``: served by a replica that does not lead
        self.led_bytes: dict[int, int] = {}  # of ``bytes``: by group, while it was led here
        self.refusals: dict[int, int] = {}  # wire code -> partitions

    # ---- fetch -----------------------------------------------------------------------------------

    def handle(self, request: Fetch, answer: Answer, seen_index: int = 0) -> Iterator[None] | None:
        """Process a fetch. ``answer(reply, payload buffers)`` is called exactly once, little later
        than ``wait_max_ms`` milliseconds. ``seen_index``: the newest metadata index that the client
        knows. Return None when all partitions are processed, else an iterator over the remaining
        steps."""
        wait_ms = min(request.wait_max_ms, self._limits.fetch_wait_ms_max)
        self._number += 1
        now_ns = self._now_ns()
        fetch = WaitingFetch(request, answer, now_ns, now_ns // 1_000_000 + wait_ms, self._number,
                             seen_index)
        return advanced(self._handle(fetch))

    def _handle(self, fetch: WaitingFetch) -> Iterator[None]:
        if self._metadata_waiter.is_stale_for(fetch.seen_index):
            known = yield from self._metadata_waiter.knows(fetch.request.partitions)
            if not known and self._metadata_waiter.wait(
                fetch.seen_index, lambda: self._retry(fetch)
            ):
                return
        yield from self._process(fetch)

    def committed(self, group: int) -> None:
        """Wake the long polls of ``group``: entries of it were applied, or its role changed."""
        if self._fetches_in_steps:
            self._commits += 1
            self._committed[group] = self._commits
        waiting = self._by_group.get(group)
        if waiting:
            self.due.update(waiting)

    def retry_due(self, now_ms: int) -> None:
        """Retry long polls that were woken or have expired, as far as the limits of a round reach.
        The rest stays in ``due``, with ``earliest_ms`` now, so that the next round continues."""
        expired = 0
        while (self._deadlines and self._deadlines[0].deadline_ms <= now_ms
               and expired < EXPIRED_MAX):
            fetch = self._deadlines[0]
            self._remove(fetch)
            self.due[fetch.number] = fetch
            expired += 1
        left = RETRIED_ROWS_MAX
        due, self.due = self.due, {}
        while due and left > 0:
            fetch = due.pop(next(iter(due)))
            self._remove(fetch)
            left -= FETCH_ROWS + min(len(fetch.request.partitions), ROWS_PER_STEP)
            self._retry(fetch)
        self.due = due | self.due
        self.earliest_ms = (now_ms if self.due else
                            self._deadlines[0].deadline_ms if self._deadlines else NEVER_MS)

    def forget(self, session: Session) -> None:
        """Drop the long polls of a session that has ended. O(those)."""
        for fetch in list(self._by_session.get(session, {}).values()):
            self._remove(fetch)

    def answer_long_polls(self, session: Session) -> None:
        """Have the next round answer the long polls of a session, with what they have: its client
        has ended its side."""
        for fetch in list(self._by_session.get(session, {}).values()):
            self._remove(fetch)
            fetch.deadline_ms = 0
            self.due[fetch.number] = fetch

    def stop(self) -> None:
        """Refuse all waiting fetches with ``SHUTTING_DOWN``, so that their clients ask other
        replicas."""
        for fetch in list(self._deadlines):
            self._remove(fetch)
            fetch.answer.refuse(Code.SHUTTING_DOWN, ErrorDetail(text="the node is stopping"))

    def _retry(self, fetch: WaitingFetch) -> None:
        """Process a waiting fetch again: a commit, its deadline or a confirmation made it due."""
        self._later.run_steps(fetch.answer.session, self._process(fetch))

    def _process(self, fetch: WaitingFetch) -> Iterator[None]:
        """Answer a fetch, or make it wait: as a long poll, for metadata, or for confirmations of
        leadership. O(partitions + bytes read), in steps."""
        # Number of the last commit before the first step; -1 = one step was enough.  A commit after
        # it may concern a partition that was already processed.
        since = -1
        rows = 0
        bytes_left = min(fetch.request.bytes_max, self._limits.fetch_bytes_max)
        results: list = []
        found: list = []  # (slot, Fetch of the store)
        size, final, groups = 0, False, []
        to_confirm: set[int] = set()
        fetch.reads.clear()
        for part in fetch.request.partitions:
            if rows >= ROWS_PER_STEP:
                rows = 0
                if since < 0:
                    since = self._commits
                    self._fetches_in_steps += 1
                try:
                    yield
                except GeneratorExit:  # the session ended, and no further step will run
                    self._end_processing(since, ())
                    raise
            rows += 1
            try:
                span = self._read_view.readable_range(part.incarnation, fetch.seen_index,
                                                      fetch.request.replica, part.offset,
                                                      fetch.access)
                groups.append(span.group)
                self._check_range(part.offset, span, fetch)
                read_range = None
                if part.offset < span.high_watermark and (bytes_left > 0 or not found):
                    read_range = self._read_range(part, span, max(bytes_left, 0))
            except Refused as refused:
                if refused.is_redirect and self._await_metadata(fetch):
                    self._end_processing(since, ())
                    return
                if not refused.retriable:
                    final = True
                    self.refusals[refused.code] = self.refusals.get(refused.code, 0) + 1
                results.append(FetchResult(part.incarnation, refused.code, -1, -1, 0,
                                           refused.detail))
                continue
            except _ConfirmationNeeded:
                to_confirm.add(span.group)
                continue
            if read_range is not None:
                found.append((len(results), read_range))
                rows += READ_ROWS
                bytes_left -= read_range.bytes
                size += read_range.bytes
                fetch.reads.append((len(results), span.group if span.leads else -1, part.offset,
                                    read_range))
            results.append(FetchResult(part.incarnation, Code.OK, span.known_end,
                                       span.log_start, 0))
        missed = self._end_processing(since, groups)
        if to_confirm:
            yield from self._confirm_leadership(fetch, to_confirm)
        elif not final and size < fetch.request.bytes_min and self._may_wait(fetch):
            self._wait(fetch, groups)
            if missed:
                # Woken at once: the commit came before the fetch was in the table of long polls.
                self.due[fetch.number] = fetch
                self.earliest_ms = 0
        else:
            yield from self._serve(fetch, results, found)

    def _end_processing(self, since: int, groups: Sequence[int]) -> bool:
        """End the processing of a fetch that began at commit number ``since``; -1 = one step was
        enough. Return True if one of its ``groups`` had a commit meanwhile."""
        if since < 0:
            return False
        missed = any(self._committed.get(group, 0) > since for group in groups)
        self._fetches_in_steps -= 1
        if not self._fetches_in_steps:
            self._committed.clear()
        return missed

    def _await_metadata(self, fetch: WaitingFetch) -> bool:
        """Park a fetch until newer metadata are applied, before a client that has seen them is
        redirected. Return False, and park nothing, if the fetch has waited before or too many tasks
        run."""
        if fetch.has_awaited_metadata or not self._metadata_waiter.is_stale_for(fetch.seen_index):
            return False
        fetch.has_awaited_metadata = True
        return self._metadata_waiter.wait(fetch.seen_index, lambda: self._retry(fetch))

    def _check_range(self, offset: int, span: ReadableRange, fetch: WaitingFetch) -> None:
        """Return if ``offset`` may be served or waited for. Raise ``Refused`` if it is outside the
        partition or not known yet, ``_ConfirmationNeeded`` if a majority must confirm the leader
        first."""
        if offset < span.log_start:
            raise out_of_range(offset, span)
        if offset <= span.high_watermark or (span.is_end_certain and offset <= span.next_offset):
            return
        if not span.is_end_certain or span.group in fetch.unconfirmed:
            raise not_known_yet(offset, span)
        if span.group not in fetch.confirmed:
            raise _ConfirmationNeeded()
        raise out_of_range(offset, span)

    def _confirm_leadership(self, fetch: WaitingFetch, groups: set[int]) -> Iterator[None]:
        """Ask for confirmations of the leadership of ``groups``, in steps. The last of them,
        whatever its outcome, retries the fetch."""
        fetch.confirmations_open = len(groups)
        asked = tuple(groups)
        for part in parts(len(asked), GROUPS_PER_STEP):
            if part.start:
                yield
            for group in asked[part.start:part.stop]:
                if not self._read_index_requests.ask(
                        group, partial(self._on_confirmation, fetch, group)):
                    self._on_confirmation(fetch, group, False)

    def _on_confirmation(self, fetch: WaitingFetch, group: int, confirmed: bool) -> None:
        (fetch.confirmed if confirmed else fetch.unconfirmed).add(group)
        fetch.confirmations_open -= 1
        if not fetch.confirmations_open:
            self._retry(fetch)

    def _read_range(self, part: FetchPart, span: ReadableRange, bytes_max: int) -> Any:
        try:
            return self._store.fetch(span.group, part.incarnation, part.offset,
                                     min(part.bytes_max, bytes_max), span.high_watermark)
        except (OffsetTooLow, RecordsNotCopied) as error:  # it lacks what the partition has
            raise Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(text=str(error))) from error

    def _serve(self, fetch: WaitingFetch, results: list, found: list) -> Iterator[None]:
        read, cold = [], []
        resident_left = self._limits.page_cache_read_bytes_max
        reads_left = RESIDENT_READS_MAX
        for slot, read_range in found:
            buffers = read_range.buffers
            if read_range.job is not None:
                buffers = None
                if read_range.job.bytes <= resident_left and reads_left:
                    reads_left -= 1
                    resident_left -= read_range.job.bytes
                    buffers = self._read_resident(slot, read_range.job, results)
                if buffers is None:
                    cold.append((slot, read_range.job))
                    continue
            read.append((slot, buffers))
        if not cold:
            yield from self._finish(fetch, results, read)
            return
        self.cold_reads += 1
        if not self._background.start(self._serve_cold, fetch, results, read, cold):
            for slot, _plan in cold:
                results[slot] = _refused(results[slot], Code.QUEUE_FULL,
                                         "too many reads from disk wait")
            yield from self._finish(fetch, results, read)

    def _read_resident(self, slot: int, job: FetchJob | RowFetchJob, results: list) -> list | None:
        """Return the batches if they are in the page cache; None = a thread must read them, later
        if there is no free descriptor now. Raises ``DiskFailed`` for another ``OSError`` of the
        read, which would otherwise be taken for an error of a connection."""
        try:
            buffers = job.run_from_page_cache()
        except CorruptRange as error:
            self._report_damage(slot, error, results)
            return []
        except SegmentRemoved as error:
            results[slot] = _refused(results[slot], Code.OFFSET_NOT_AVAILABLE, str(error))
            return []
        except OSError as error:
            if is_exhausted(error):
                return None
            raise journal_unreadable(error) from error
        if buffers is not None:
            self.resident_reads += 1
        return buffers

    async def _serve_cold(self, fetch: WaitingFetch, results: list, read: list,
                          cold: list) -> None:
        try:
            ranges = await self._background.read_each([job for _slot, job in cold])
        except OSError as error:
            if not is_exhausted(error):
                raise journal_unreadable(error) from error
            for slot, _plan in cold:
                results[slot] = _refused(results[slot], Code.QUEUE_FULL,
                                         f"the node cannot open a file now: {error.strerror}")
            cold, ranges = [], []
        for (slot, _plan), found in zip(cold, ranges, strict=True):
            if isinstance(found, CorruptRange):
                self._report_damage(slot, found, results)
            elif isinstance(found, SegmentRemoved):  # the client's next fetch finds the log start
                results[slot] = _refused(results[slot], Code.OFFSET_NOT_AVAILABLE, str(found))
            else:
                read.append((slot, found))
        for _ in self._finish(fetch, results, sorted(read, key=_slot)):
            await self._turns.take(ROWS_PER_STEP)
        self._request_round()  # a round sends the reply

    def _report_damage(self, slot: int, error: CorruptRange, results: list) -> None:
        self._damaged(error)
        results[slot] = _refused(results[slot], Code.QUARANTINED, str(error))

    def _finish(self, fetch: WaitingFetch, results: list, read: list) -> Iterator[None]:
        payload: list = []
        for at, (slot, buffers) in enumerate(read, start=1):
            if not at % ROWS_PER_STEP:
                yield
            length = sum(map(len, buffers))
            results[slot] = results[slot]._replace(length=length)
            payload.extend(buffers)
            self.bytes += length
        if len(payload) > IOV_BUFFERS_MAX:  # one copy costs less than the calls for small batches
            payload = [b"".join(payload)]
        for slot, group, offset, read_range in fetch.reads:
            size, records = results[slot].length, read_range.read_to - offset
            if size:
                self.records += records
            if group < 0:
                self.replica_bytes += size
                continue
            self.led_bytes[group] = self.led_bytes.get(group, 0) + size
            if self._counts is not None and size:
                self._counts.read(group, results[slot].incarnation, records, size)
        if fetch.accepted_ns:
            self.latency.observe((self._now_ns() - fetch.accepted_ns) // 1000)
        fetch.answer(FetchReply(tuple(results)), payload)

    def _may_wait(self, fetch: WaitingFetch) -> bool:
        return fetch.deadline_ms > self._now_ns() // 1_000_000

    def _wait(self, fetch: WaitingFetch, groups: list[int]) -> None:
        fetch.groups = tuple(dict.fromkeys(groups))
        fetch.accepted_ns = 0
        fetch.confirmed.clear()  # by the next try another node may lead
        fetch.unconfirmed.clear()
        self._deadlines.add(fetch)
        self.earliest_ms = min(self.earliest_ms, fetch.deadline_ms)
        self._by_session.setdefault(fetch.answer.session, {})[fetch.number] = fetch
        for group in fetch.groups:
            self._by_group.setdefault(group, {})[fetch.number] = fetch

    def _remove(self, fetch: WaitingFetch) -> None:
        self._deadlines.discard(fetch)
        _discard(self._by_session, fetch.answer.session, fetch.number)
        for group in fetch.groups:
            _discard(self._by_group, group, fetch.number)
        fetch.groups = ()


class _ConfirmationNeeded(Exception):
    """The end of the partition must be confirmed before the reply; never leaves this module."""


def _refused(result: FetchResult, code: Code, text: str) -> FetchResult:
    return FetchResult(result.incarnation, code, -1, -1, 0, ErrorDetail(text=text))


def _slot(read: tuple) -> int:
    return read[0]


def _discard(table: dict, key: object, number: int) -> None:
    """Remove a fetch from the table of ``key`` if it is in there, and an empty table with it."""
    waiting = table.get(key)
    if waiting is not None:
        waiting.pop(number, None)
        if not waiting:
            del table[key]


def _deadline(fetch: WaitingFetch) -> tuple[int, int]:
    return fetch.deadline_ms, fetch.number
