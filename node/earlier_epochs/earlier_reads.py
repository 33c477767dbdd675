"""Reads of the earlier epochs of switched partitions, on behalf of clients that know one leader.

Contract. Kafka's clients read a partition from its leader, which is that of the last epoch; groups
of other nodes may have the earlier ones. ``EarlierReads`` serves offsets of those epochs at the
leader of the last one: from the replica of the earlier group on this node if there is one and it
has the offsets, else from a member of that group, the leader first. Batches of other nodes are
checked: CRC, order, and that they are inside the epoch. If no member answers, the read is refused
with ``OFFSET_NOT_AVAILABLE``, which clients repeat. Nothing is ever left out.

Theory. The last record of an epoch is committed before the next epoch begins, so any replica may
serve what it has applied of it. The log start is that of the last epoch, whose leader decides here
which offsets no longer exist: another node may only fail to answer. Metadata of the asked node that
are behind make it wait for those of the asking node (the metadata index of the request).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import trio

from multiraft import core
from multiraft.errors import CorruptBatch
from multiraft.wire.description import TEXT_MAX
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Buffer
from multiraft.wire.messages import (
    ANY,
    LARGEST_TIME,
    LEADER,
    TIMESTAMP,
    Fetch,
    FetchPart,
    FetchReply,
    FetchResult,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
    OffsetResult,
)
from multiraft.wire.schema import Malformed
from node.clients.awaited import ReadCalls, ReadHandler
from node.clients.read_view import ReadableRange, ReadView, Refused, out_of_range
from node.earlier_epochs.served_reads import READ_BYTES_MAX, read_reply, request_header
from node.peers.errors import NoAnswer
from node.request_errors import REFUSED

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.router import Router
    from node.metadata.placement_table import EpochEntry
    from node.metadata.topics import Location
    from node.peers.bulk_channel import Bulk

#: Reads of other nodes in progress at a time: each holds the records of its answer. Bulk
#: connections carry one at a time, so more would only wait.
READS_MAX = 64
#: A node that did not answer is asked after the others for so long, in seconds: the time of a
#: request may be over before it fails, and the next one then begins with a node that answers.
ASKED_LAST_S = 30.0

T = TypeVar("T")

#: In place of an offset or a time: there is none.
NONE = -1


class Records(NamedTuple):
    """The result of a read, and its batches."""

    result: FetchResult
    buffers: Sequence[Buffer] = ()


class EarlierReads:
    """Reads of earlier epochs, from this node and others."""

    def __init__(self, raft: MultiRaft, directory: Router, read_view: ReadView, calls: ReadCalls,
                 fetch_handler: ReadHandler, offsets: ReadHandler, bulk: Bulk):
        self._raft = raft
        self._directory = directory
        self._read_view = read_view
        self._calls = calls
        self._fetch_handler = fetch_handler
        self._offsets = offsets
        self._bulk = bulk
        self._in_progress = 0  # reads of other nodes
        self._asked_last: dict[int, float] = {}  # node that did not answer -> until when, trio time
        self.records_read = 0  # answers of other nodes with records
        self.bytes_read = 0  # of those
        self.unanswered = 0  # reads that no node answered

    def place(self, incarnation: int) -> Location | None:
        """Return the location of a partition that was switched and that this node leads now; None
        for any other.  O(1)."""
        place = self._directory.locate(incarnation)
        if (place is None or len(place.epoch_history) == 1
                or not self._raft.status.is_leader(place.group)):
            return None
        return place

    def holds(self, incarnation: int, offset: int) -> bool:
        """Return True if ``offset`` is in an earlier epoch of a partition that this node leads.
        O(1)."""
        place = self.place(incarnation)
        return place is not None and offset < place.epoch_history[-1].start_offset

    # ---- records ---------------------------------------------------------------------------------

    async def read(self, session: object, part: FetchPart) -> Records:
        """Return the batches from an offset of an earlier epoch on, of that epoch alone, or a
        refusal in the result. They have at most ``part.bytes_max`` and ``READ_BYTES_MAX`` bytes
        unless the first is larger."""
        try:
            return await self._read(session, part)
        except Refused as refused:
            return Records(FetchResult(part.incarnation, refused.code, NONE, NONE, 0,
                                       refused.detail))

    async def _read(self, session: object, part: FetchPart) -> Records:
        place, last = self._last(part.incarnation)
        if part.offset < last.log_start:
            raise out_of_range(part.offset, last)
        at = _entry_at(place, part.offset)
        if at == len(place.epoch_history) - 1:  # the caller's metadata were older
            raise Refused(Code.STALE_METADATA, ErrorDetail(text="the offset is in the last epoch"))
        entry, end = place.epoch_history[at], place.epoch_history[at + 1].start_offset
        size = min(part.bytes_max, READ_BYTES_MAX)

        def accept(node: int, reply: FetchReply, payload: Sequence[Buffer]) -> Records:
            found = reply.results[0]
            if found.code != Code.OK or not found.length:
                raise _Unusable(_reason(found))
            if node != self._raft.node:
                _check_batches(payload, part.offset, end)
                self.records_read += 1
                self.bytes_read += found.length
            return Records(FetchResult(part.incarnation, Code.OK, last.known_end, last.log_start,
                                       found.length), payload)

        return await self._first_answer(
            session, entry.group, self._fetch_handler,
            Fetch((part._replace(bytes_max=size),), 0, size, 0, ANY), accept)

    def without_records(self, incarnation: int) -> FetchResult:
        """Return the result of a read that finds nothing: high watermark and log start, or a
        refusal.  O(epochs)."""
        try:
            _, last = self._last(incarnation)
        except Refused as refused:
            return FetchResult(incarnation, refused.code, NONE, NONE, 0, refused.detail)
        return FetchResult(incarnation, Code.OK, last.known_end, last.log_start, 0)

    # ---- times -----------------------------------------------------------------------------------

    async def first_at(self, session: object, incarnation: int, time_ms: int) -> int:
        """Return the first offset of the first batch of an earlier epoch with a record at or after
        ``time_ms``, or the log start if that is above it; ``NONE`` if those epochs have none.
        O(epochs) requests at most. Raises ``Refused``."""
        place, last = self._last(incarnation)
        epoch = 0  # the search has come to this one
        for entry in _kept(place, last.log_start):
            if entry.epoch < epoch:
                continue

            def accept(_node: int, reply: ListOffsetsReply, _payload: Sequence[Buffer],
                       entry: EpochEntry = entry) -> OffsetResult:
                found = reply.results[0]
                continues = found.error.epoch if found.error is not None else NONE
                if found.code == Code.OK or (found.code == Code.MOVED
                                             and continues > entry.epoch):
                    return found
                raise _Unusable(_reason(found))

            found = await self._first_answer(
                session, entry.group, self._offsets,
                ListOffsets((OffsetQuery(incarnation, TIMESTAMP, time_ms, entry.epoch),), False),
                accept)
            if found.code == Code.OK:
                # A node that does not know the log start may name a record that was deleted.
                offset = max(found.offset, last.log_start) if found.offset != NONE else NONE
                return offset if offset < last.start_offset else NONE
            assert found.error is not None
            epoch = found.error.epoch
        return NONE

    async def largest_time(self, session: object, incarnation: int) -> int:
        """Return the highest timestamp of the batches of the earlier epochs, ``NONE`` if they have
        none. O(epochs) requests. Raises ``Refused``."""
        place, last = self._last(incarnation)
        largest = NONE
        for entry in _kept(place, last.log_start):
            found = await self._first_answer(
                session, entry.group, self._offsets,
                ListOffsets((OffsetQuery(incarnation, LARGEST_TIME, NONE, entry.epoch),), False),
                _accept_answered)
            largest = max(largest, found.offset)
        return largest

    # ---- nodes -----------------------------------------------------------------------------------

    def _last(self, incarnation: int) -> tuple[Location, ReadableRange]:
        """Return the location of a partition, and the readable part of its last epoch. Raises
        ``Refused`` unless this node leads that."""
        place = self._read_view.location(incarnation, 0)
        return place, self._read_view.readable_part(place, incarnation,
                                                    len(place.epoch_history) - 1, LEADER)

    async def _first_answer(self, session: object, group: int, handler: ReadHandler,
                            request: Fetch | ListOffsets, accept: Callable[..., T]) -> T:
        """Return the first answer of a member of ``group`` that ``accept`` accepts. Raises
        ``Refused`` if no member gives one. O(members) requests."""
        tried = []
        for node in self._members(group):
            try:
                reply, payload = await self._ask(session, node, handler, request)
                return accept(node, reply, payload)
            except (NoAnswer, Malformed, CorruptBatch, _Unusable, *REFUSED) as error:
                tried.append(f"node {node}: {error}")
        self.unanswered += 1
        raise Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(
            text=f"no replica of group {group} that is up has these offsets now: "
                 f"{'; '.join(tried) or 'none is up'}"[:TEXT_MAX]), retriable=True)

    def _members(self, group: int) -> list[int]:
        """Return the members of a group that are up: this node first, then the leader; last those
        that did not answer lately."""
        leader, _term = self._raft.status.leader_hint(group)
        rank, now_s = {leader: 1, self._raft.node: 0}, trio.current_time()
        return sorted(filter(self._raft.status.is_up, self._directory.replicas(group)),
                      key=lambda node: (self._asked_last.get(node, now_s) > now_s,
                                        rank.get(node, 2)))

    async def _ask(self, session: object, node: int, handler: ReadHandler,
                   request: Fetch | ListOffsets) -> tuple[Any, Sequence[Buffer]]:
        """Return the answer of ``_request``, and note whether there is one: a caller whose time is
        over cancels this."""
        try:
            answer = await self._request(session, node, handler, request)
        except (trio.Cancelled, NoAnswer):
            self._asked_last[node] = trio.current_time() + ASKED_LAST_S
            raise
        self._asked_last.pop(node, None)
        return answer

    async def _request(self, session: object, node: int, handler: ReadHandler,
                       request: Fetch | ListOffsets) -> tuple[Any, Sequence[Buffer]]:
        """Return the reply of a node, and its payload. Raises ``NoAnswer``, ``Malformed``, or one
        of ``REFUSED``."""
        if node == self._raft.node:
            return await self._calls.ask(handler, session, request)
        if self._in_progress >= READS_MAX:
            raise _Unusable(f"{READS_MAX} reads of other nodes are in progress")
        self._in_progress += 1
        try:
            frame = await self._bulk.ask(node, request_header(request,
                                                              self._directory.metadata_index))
        finally:
            self._in_progress -= 1
        return read_reply(request, frame), (frame.payload,)


class _Unusable(Exception):
    """An answer that does not have what is asked for; never leaves this module."""


def _accept_answered(_node: int, reply: ListOffsetsReply, _payload: Sequence[Buffer]
                     ) -> OffsetResult:
    found: OffsetResult = reply.results[0]
    if found.code != Code.OK:
        raise _Unusable(_reason(found))
    return found


def _reason(result: FetchResult | OffsetResult) -> str:
    """Return why a result has nothing."""
    if result.code == Code.OK:
        return "no records"
    text = result.error.text if result.error is not None else ""
    return text or Code(result.code).name


def _entry_at(place: Location, offset: int) -> int:
    """Return which entry of the epoch history holds ``offset``.  O(entries)."""
    at = len(place.epoch_history) - 1
    while at and place.epoch_history[at].start_offset > offset:
        at -= 1
    return at


def _kept(place: Location, log_start: int) -> Iterator[EpochEntry]:
    """Yield the earlier entries of an epoch history that have offsets at or above the log start."""
    for entry, following in pairwise(place.epoch_history):
        if following.start_offset > max(log_start, entry.start_offset):
            yield entry


def _check_batches(payload: Sequence[Buffer], offset: int, end: int) -> None:
    """Return if the batches of an answer are intact, hold ``offset`` and what follows it, and end
    at ``end`` or before. Raises ``CorruptBatch``.  O(bytes)."""
    following = offset
    for data in payload:
        for batch in core.split_batches(data):
            header = core.batch_header(batch)
            first, last = header.base_offset, header.base_offset + header.last_offset_delta
            follows = first == following or (following == offset and first < offset <= last)
            if not follows or last < first or last >= end:
                raise CorruptBatch(f"offsets {first} to {last} in an answer, in place of those "
                                   f"from {following} on, below {end}")
            following = last + 1
