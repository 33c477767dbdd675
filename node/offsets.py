"""List offsets: where a partition begins and ends, and where a time is.

Contract.  ``handle`` answers exactly once: at once, or when a majority has confirmed what must be
certain.  Latest and timestamp of a *linearizable* request hold everything that was acknowledged to
anybody before the request arrived, so a paused leader that was replaced meanwhile never answers
them; every other answer is what the asked replica knows, and it is never ahead of the truth.

Theory.  A timestamp is answered with the start of a batch (``Store.first_at``): which record of it
is the first can only be seen inside, batches may be compressed, and the node never opens one.  The
reader gets that batch anyway and finds the record there.  In a partition that was switched the
groups of its chain are searched in order: as far as they are here, and then the reader is sent to
the next one, whose epoch it names when it asks again.
"""

from __future__ import annotations

from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import (
    ANY,
    EARLIEST,
    LEADER,
    TIMESTAMP,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
    OffsetResult,
)
from node.readable import BEING_SWITCHED, NOT_SETTLED, Range, Readable, Refused, not_known_yet

#: Why a leader that still believes in itself does not answer.
NOT_CONFIRMED = ErrorDetail(text="no majority confirms that this node still leads the group")


class _Request:
    """A request that waits for confirmations."""

    __slots__ = ("request", "answer", "seen_index", "confirmed", "missing")

    def __init__(self, request: ListOffsets, answer, seen_index: int):
        self.request = request
        self.answer = answer
        self.seen_index = seen_index
        self.confirmed: set[int] = set()  # groups
        self.missing: set[int] = set()


class Offsets:
    """Handles ``ListOffsets`` of all sessions."""

    def __init__(self, readable: Readable, store, confirmations, behind):
        self._readable = readable
        self._store = store
        self._confirmations = confirmations
        self._behind = behind

    def handle(self, request: ListOffsets, answer, seen_index: int = 0) -> None:
        """``answer(reply)`` is called exactly once, maybe before this returns."""
        waiting = _Request(request, answer, seen_index)
        if not (self._behind.lacks(seen_index) and self._behind.wait(
                [query.incarnation for query in request.partitions], seen_index,
                lambda: self._begin(waiting))):
            self._begin(waiting)

    def _begin(self, waiting: _Request) -> None:
        waiting.missing = self._groups_to_confirm(waiting)
        if not waiting.missing:
            self._answer(waiting)
            return
        for group in tuple(waiting.missing):
            if not self._confirmations.ask(
                    group, lambda sure, group=group: self._confirmed(waiting, group, sure)):
                self._confirmed(waiting, group, False)

    def _groups_to_confirm(self, waiting: _Request) -> set[int]:
        """Those whose leader is here and could know the end.  O(queries)."""
        groups: set[int] = set()
        if waiting.request.linearizable:
            for query in waiting.request.partitions:
                if query.position != EARLIEST:
                    try:
                        span = self._readable.span(query.incarnation, waiting.seen_index, LEADER)
                    except Refused:
                        continue  # said again, and answered, when the others are confirmed
                    if span.settled:
                        groups.add(span.group)
        return groups

    def _confirmed(self, waiting: _Request, group: int, sure: bool) -> None:
        waiting.missing.discard(group)
        if sure:
            waiting.confirmed.add(group)
        if not waiting.missing:
            self._answer(waiting)

    def _answer(self, waiting: _Request) -> None:
        results = []
        for query in waiting.request.partitions:
            try:
                offset = self._offset(query, waiting)
            except Refused as refused:
                results.append(OffsetResult(query.incarnation, refused.code, -1, refused.detail))
            else:
                results.append(OffsetResult(query.incarnation, Code.OK, offset))
        waiting.answer(ListOffsetsReply(tuple(results)))

    def _offset(self, query: OffsetQuery, waiting: _Request) -> int:
        """The offset asked for, -1 = there is none.  Raises ``Refused``."""
        linearizable = waiting.request.linearizable
        if query.position == TIMESTAMP:
            return self._time(query, waiting)
        linearizable = waiting.request.linearizable
        span = self._readable.span(query.incarnation, waiting.seen_index,
                                   LEADER if linearizable else ANY)
        if query.position == EARLIEST:
            return span.log_start
        _check_end(span, waiting)
        return span.high_watermark

    def _time(self, query: OffsetQuery, waiting: _Request) -> int:
        """Where the first record at or after a time is, -1 = nowhere.  O(links log n).  Raises
        ``Refused``."""
        replica = LEADER if waiting.request.linearizable else ANY
        place = self._readable.place(query.incarnation, waiting.seen_index)
        if query.epoch > place.epoch:
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"this node knows of epoch {place.epoch}, not of {query.epoch}"))
        for at, link in enumerate(place.chain):
            if link.epoch < query.epoch:
                continue
            span = self._readable.link(place, query.incarnation, at, replica)
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


def _check_end(span: Range, waiting: _Request) -> None:
    """Raises ``Refused`` when the end is asked for and not certain."""
    if not waiting.request.linearizable:
        return
    if span.sealed:
        raise Refused(Code.OFFSET_NOT_AVAILABLE, BEING_SWITCHED)
    if span.group not in waiting.confirmed or not span.settled:
        raise Refused(Code.OFFSET_NOT_AVAILABLE, NOT_CONFIRMED if span.settled else NOT_SETTLED)
