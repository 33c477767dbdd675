"""Fetch and list-offsets: committed batches out, with long polls.

Contract.  Only records below the high watermark (applied: committed *and* durable here) leave this
node.  A fetch that finds nothing waits, in a table by group, until a commit of its group or its
deadline.  Hot batches go out as the very buffers that were stored; cold ranges are read and
verified by a thread.

Theory.  ``OFFSET_OUT_OF_RANGE`` makes a client reset, so it is said only when it is certain: below
the log start, or above the end by a leader that has committed in its own term.  Everything else
above the high watermark is ``OFFSET_NOT_AVAILABLE``: try again.
"""

from __future__ import annotations

from typing import NamedTuple

import trio
from sortedcontainers import SortedKeyList

from multiraft.storage.errors import CorruptRange, OffsetTooLow
from multiraft.timers import NEVER_MS
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    EARLIEST,
    Fetch,
    FetchReply,
    FetchResult,
    ListOffsets,
    ListOffsetsReply,
    OffsetResult,
)
from node.clock import monotonic_ms
from node.errors import DiskFailed
from node.refusals import refusal


class Range(NamedTuple):
    """What may be served of a partition now."""

    group: int
    log_start: int
    high_watermark: int
    next_offset: int
    settled: bool  # the leader has committed in its own term: the end is certain


class Refused(Exception):
    """A code and detail for one partition; never leaves this module."""

    def __init__(self, code: Code, detail: ErrorDetail):
        super().__init__(detail.text)
        self.code = code
        self.detail = detail


class WaitingFetch:
    """A long poll."""

    __slots__ = ("request", "answer", "deadline_ms", "groups", "number", "seen_index")

    def __init__(self, request: Fetch, answer, deadline_ms: int, number: int, seen_index: int):
        self.request = request
        self.answer = answer
        self.deadline_ms = deadline_ms
        self.number = number
        self.seen_index = seen_index
        self.groups: tuple[int, ...] = ()


class Fetching:
    """Handles ``Fetch`` and ``ListOffsets`` of all sessions."""

    def __init__(self, core, tails, store, directory, limits, request_round, damaged):
        self._core = core
        self._request_round = request_round
        self._tails = tails
        self._store = store
        self._directory = directory
        self._limits = limits
        self._damaged = damaged  # (CorruptRange): a read found what may not be
        self._by_group: dict[int, dict[int, WaitingFetch]] = {}
        self._by_session: dict[object, dict[int, WaitingFetch]] = {}
        self._deadlines: SortedKeyList = SortedKeyList(key=_deadline)
        self.woken: dict[int, WaitingFetch] = {}  # for ``wake_due``
        self.earliest_ms = NEVER_MS  # no long poll's deadline is before it
        self._number = 0
        self._nursery: trio.Nursery | None = None
        self.bytes = 0
        self.cold_reads = 0

    async def run(self, task_status=trio.TASK_STATUS_IGNORED) -> None:
        """Holds the tasks that read cold ranges."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    # ---- fetch -----------------------------------------------------------------------------------

    def handle(self, request: Fetch, answer, seen_index: int = 0) -> None:
        """``answer(reply, payload buffers)`` is called exactly once, at the latest after
        ``wait_max_ms``.  ``seen_index``: the newest metadata that the client knows of."""
        wait_ms = min(request.wait_max_ms, self._limits.fetch_wait_ms_max)
        self._number += 1
        self._try(WaitingFetch(request, answer, monotonic_ms() + wait_ms, self._number,
                               seen_index))

    def committed(self, group: int) -> None:
        """Something of ``group`` was applied: its long polls are looked at again this round."""
        waiting = self._by_group.get(group)
        if waiting:
            self.woken.update(waiting)

    def wake_due(self, now_ms: int) -> None:
        """Answer what a commit or the clock has made due: ``woken``, or at ``earliest_ms``."""
        while self._deadlines and self._deadlines[0].deadline_ms <= now_ms:
            fetch = self._deadlines[0]
            self._remove(fetch)
            self.woken[fetch.number] = fetch
        self.earliest_ms = self._deadlines[0].deadline_ms if self._deadlines else NEVER_MS
        if self.woken:
            woken, self.woken = self.woken, {}
            for fetch in woken.values():
                self._remove(fetch)
                self._try(fetch)

    def forget(self, session) -> None:
        """A session is gone, and with it its long polls.  O(those)."""
        for fetch in list(self._by_session.get(session, {}).values()):
            self._remove(fetch)

    def stop(self) -> None:
        """The node ends: what waits is asked elsewhere."""
        for fetch in list(self._deadlines):
            self._remove(fetch)
            fetch.answer.refuse(Code.SHUTTING_DOWN, ErrorDetail(text="the node is stopping"))

    def _try(self, fetch: WaitingFetch) -> None:
        bytes_left = min(fetch.request.bytes_max, self._limits.fetch_bytes_max)
        results: list = []
        found: list = []  # (slot, Fetch of the store)
        size, final, groups = 0, False, []
        for part in fetch.request.partitions:
            try:
                span = self._range(part.incarnation, part.offset, fetch.seen_index)
                taken = None
                if part.offset < span.high_watermark and (bytes_left > 0 or not found):
                    taken = self._taken(part, span, max(bytes_left, 0))
            except Refused as refused:
                results.append(FetchResult(part.incarnation, refused.code, -1, -1, 0,
                                           refused.detail))
                final = True
                continue
            groups.append(span.group)
            if taken is not None:
                found.append((len(results), taken))
                bytes_left -= taken.bytes
                size += taken.bytes
            results.append(FetchResult(part.incarnation, Code.OK, span.high_watermark,
                                       span.log_start, 0))
        if not final and size < fetch.request.bytes_min and fetch.deadline_ms > monotonic_ms():
            self._wait(fetch, groups)
        else:
            self._serve(fetch, results, found)

    def _taken(self, part, span: Range, bytes_max: int):
        try:
            return self._store.fetch(part.incarnation, part.offset, min(part.bytes_max, bytes_max),
                                     span.high_watermark)
        except OffsetTooLow as error:  # this replica lacks what the partition has
            raise Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(text=str(error))) from error

    def _serve(self, fetch: WaitingFetch, results: list, found: list) -> None:
        if any(taken.plan is not None for _slot, taken in found):
            self.cold_reads += 1
            self._nursery.start_soon(self._serve_cold, fetch, results, found)
            return
        self._finish(fetch, results, [(slot, taken.buffers) for slot, taken in found])

    async def _serve_cold(self, fetch: WaitingFetch, results: list, found: list) -> None:
        read = []
        for slot, taken in found:
            if taken.plan is None:
                read.append((slot, taken.buffers))
                continue
            try:
                read.append((slot, await trio.to_thread.run_sync(taken.plan.execute)))
            except CorruptRange as error:
                self._damaged(error)
                part = results[slot]
                results[slot] = FetchResult(part.incarnation, Code.QUARANTINED, -1, -1, 0,
                                            ErrorDetail(text=str(error)))
            except OSError as error:
                raise DiskFailed(f"the lane cannot be read: {error}") from error
        self._finish(fetch, results, read)
        self._request_round()  # answers leave with a round

    def _finish(self, fetch: WaitingFetch, results: list, read: list) -> None:
        payload: list = []
        for slot, buffers in read:
            length = sum(map(len, buffers))
            results[slot] = results[slot]._replace(length=length)
            payload.extend(buffers)
            self.bytes += length
        fetch.answer(FetchReply(tuple(results)), payload)

    def _wait(self, fetch: WaitingFetch, groups: list[int]) -> None:
        fetch.groups = tuple(dict.fromkeys(groups))
        self._deadlines.add(fetch)
        self.earliest_ms = min(self.earliest_ms, fetch.deadline_ms)
        self._by_session.setdefault(fetch.answer.session, {})[fetch.number] = fetch
        for group in fetch.groups:
            self._by_group.setdefault(group, {})[fetch.number] = fetch

    def _remove(self, fetch: WaitingFetch) -> None:
        self._deadlines.discard(fetch)
        _take_out(self._by_session, fetch.answer.session, fetch.number)
        for group in fetch.groups:
            _take_out(self._by_group, group, fetch.number)
        fetch.groups = ()

    # ---- offsets ---------------------------------------------------------------------------------

    def offsets(self, request: ListOffsets, seen_index: int = 0) -> ListOffsetsReply:
        """Log start or high watermark of each partition."""
        results = []
        for query in request.partitions:
            try:
                span = self._span(query.incarnation, seen_index)
                if query.position != EARLIEST and not span.settled:
                    raise Refused(Code.OFFSET_NOT_AVAILABLE, _NOT_SETTLED)
            except Refused as refused:
                results.append(OffsetResult(query.incarnation, refused.code, -1, refused.detail))
                continue
            offset = span.log_start if query.position == EARLIEST else span.high_watermark
            results.append(OffsetResult(query.incarnation, Code.OK, offset))
        return ListOffsetsReply(tuple(results))

    def _range(self, partition: int, offset: int, seen_index: int) -> Range:
        span = self._span(partition, seen_index)
        if offset < span.log_start or (offset > span.next_offset and span.settled):
            raise Refused(Code.OFFSET_OUT_OF_RANGE, ErrorDetail(
                text=f"offset {offset} is outside {span.log_start}..{span.high_watermark}",
                start_offset=span.log_start, end_offset=span.high_watermark))
        if offset > span.high_watermark and not span.settled:
            raise Refused(Code.OFFSET_NOT_AVAILABLE, _NOT_SETTLED)
        return span

    def _span(self, partition: int, seen_index: int) -> Range:
        """What is known of a partition, at its leader.  Raises ``Refused``."""
        place = self._directory.place_of(partition)
        if place is None:
            raise Refused(*refusal(self._directory.unknown(partition, seen_index),
                                   self._directory.leader_detail))
        group = place.group
        tail = self._tails.get(group)
        if tail is None or not self._core.is_leader(group):
            raise Refused(*self._directory.leader_detail(group))
        settled = self._core.is_settled(group)
        return Range(group, *tail.span(partition), settled)


_NOT_SETTLED = ErrorDetail(text="the leader is new and has not committed in its term yet")


def _take_out(table: dict, key: object, number: int) -> None:
    """Remove a fetch from under ``key`` if it is there, and ``key`` with its last one."""
    waiting = table.get(key)
    if waiting is not None:
        waiting.pop(number, None)
        if not waiting:
            del table[key]


def _deadline(fetch: WaitingFetch) -> tuple[int, int]:
    return fetch.deadline_ms, fetch.number
