"""Consumers of several topics and partitions as one: few are open at once, each with its end.

Contract.  Has the methods of a consumer that a command uses: iteration, ``wait``, ``waits``,
``unread`` and ``position``.  ``on_gap`` is called once with each gap that a consumer passes over,
also while the readers wait.  Reading to an end opens at most ``OPEN_MAX`` consumers at once, one
after the other; following needs all of them, at most ``FOLLOWED_MAX``.  All share the connections
of one client, which are one per node, and ``READ_AHEAD_BYTES_MAX``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from admin_cli.failures import CommandFailed
from admin_cli.records import waiting
from admin_cli.values.times import At
from multiraft.client import blocking
from multiraft.client.texts import duration
from multiraft.wire import errors as wire

#: Consumers that read to an end at the same time: hides round trips.
OPEN_MAX = 16
#: Consumers that follow at the same time.  Each keeps a request at every node that leads one of its
#: partitions, and a node takes 256 of a connection (``requests_in_flight_max``).
FOLLOWED_MAX = 200
#: Bytes that are fetched ahead of all partitions together, and at least of each one.
READ_AHEAD_BYTES_MAX = 64 << 20
#: Value of ``ReadSettings.offset_reset`` with which deleted records are an error.
NO_RESET = "none"
PARTITION_BYTES_MIN, PARTITION_BYTES_MAX = 64 << 10, 1 << 20


class Part(NamedTuple):
    """A topic, or one partition of it, from a start on; ``end`` (of one partition) is exclusive,
    None = read on.  A ``start`` by partition leaves out those that are read from their first
    record.  ``partitions``: their number."""

    topic: str
    partition: int | None
    start: str | int | At | dict[int, int]
    end: int | None = None
    partitions: int = 1


class ReadSettings(NamedTuple):
    """Settings of consumers; ``timeout_ms`` None = the client's default."""

    rack: str = ""
    isolation: str = "read_committed"
    timeout_ms: int | None = None
    offset_reset: str = NO_RESET

    @property
    def is_reset(self) -> bool:
        """True if a partition is read on when records were deleted before they were read."""
        return self.offset_reset != NO_RESET

    def of_consumer(self, partitions: int) -> dict[str, Any]:
        """Return the keyword arguments of ``Client.consume``, when so many partitions are read at
        once."""
        settings: dict[str, Any] = {}
        if self.rack:
            settings |= {"prefer": "nearest", "rack": self.rack}
        if self.isolation != "read_committed":
            settings["isolation"] = self.isolation
        if self.is_reset:
            settings["offset_reset"] = self.offset_reset
        if self.timeout_ms is not None:
            settings["unavailable_ms"] = self.timeout_ms
        share = READ_AHEAD_BYTES_MAX // max(1, partitions)
        if share < PARTITION_BYTES_MAX:
            settings["partition_bytes_max"] = max(share, PARTITION_BYTES_MIN)
        return settings


class _Open(NamedTuple):
    """A consumer and its part."""

    part: Part
    consumer: Any

    def is_at_end(self) -> bool:
        """Return True if the part's end is reached, also past records that are not delivered."""
        if self.part.end is None or self.part.partition is None:
            return False
        position = self.consumer.position(self.part.partition)
        return position is not None and position >= self.part.end


class Readers:
    """Consumers of the parts, as one consumer.  Raises ``CommandFailed`` for more than may follow
    at once.

    ``begin_by_ms``, of ``waiting.now_ms``: the time by which something is read, or iteration and
    ``wait`` raise ``TimedOut`` about a partition that cannot be read.  The time-out of the settings
    counts from the first failure of a partition; questions before the reading have used some of
    it."""

    def __init__(self, client: Any, parts: Sequence[Part], follow: bool, settings: ReadSettings,
                 begin_by_ms: int | None = None,
                 on_gap: Callable[[blocking.Gap], None] = lambda gap: None):
        if follow and len(parts) > FOLLOWED_MAX:
            raise CommandFailed(
                f"{len(parts)} consumers are needed to follow them, the limit is {FOLLOWED_MAX}: "
                "one for each topic, or for each partition that has an end of its own.",
                "Follow fewer topics in one command.")
        self._client = client
        self._follow = follow
        self._settings = settings
        self._on_gap = on_gap
        self._last_gaps: dict[int, blocking.Gap] = {}  # by id of an open consumer
        self._begun_ms = waiting.now_ms()
        self._begin_by_ms = begin_by_ms  # None also once something was read
        self._waiting = deque(part for part in parts if not _is_empty(part))
        self._open: deque[_Open] = deque()
        self._unread: list[blocking.Wait] = []
        self._last: dict[tuple[str, int], int] = {}  # positions of consumers that have ended
        self._at_once = len(self._waiting) if follow else OPEN_MAX
        widest = sorted((part.partitions for part in self._waiting), reverse=True)
        self._partitions = sum(widest[:self._at_once])  # at most so many are read at once
        #: Exclusive ends, by topic and partition.
        self.ends = {(part.topic, part.partition): part.end for part in parts
                     if part.end is not None}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        """Return the next batch of any part, in offset order within a partition.  Raises as a
        consumer."""
        while True:
            self._fill()
            if not self._open:
                raise StopIteration
            if not any(each.consumer.wait(0) for each in self._open):
                self._await(None)
            batch = self._take()
            if batch is not None:
                return batch

    def _take(self) -> Any | None:
        """Return a batch of the first consumer that is ready, which is last in line then; None =
        there was only an end."""
        self._begin_by_ms = None
        for _ in range(len(self._open)):
            each = self._open[0]
            self._open.rotate(-1)
            if each.is_at_end():
                self._close(each)
                return None
            if not each.consumer.wait(0):
                continue
            try:
                batch = next(each.consumer)
                self._report_gaps(each.consumer)
            except StopIteration:
                self._close(each)
                return None
            end = each.part.end
            if end is not None and batch.base_offset >= end:
                self._close(each)
                return None
            return batch
        return None

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the next iteration does not have to wait.  Returns False after ``timeout_ms``
        milliseconds."""
        self._fill()
        return self._await(waiting.now_ms() + timeout_ms)

    def _await(self, deadline_ms: int | None) -> bool:
        """Wait until a batch or an end is there.  Returns False at ``deadline_ms``."""
        begin_by_ms = self._begin_by_ms
        if begin_by_ms is not None and (deadline_ms is None or begin_by_ms < deadline_ms):
            if waiting.until(self._client, self._is_ready, begin_by_ms):
                return True
            self._require_readable()
            self._begin_by_ms = None
        return waiting.until(self._client, self._is_ready, deadline_ms)

    def _require_readable(self) -> None:
        """Return if every partition can be read, or waits for a transaction only.  Raises
        ``TimedOut`` about the first one that could not for most of the time."""
        passed_ms = waiting.now_ms() - self._begun_ms
        for wait in self.waits():
            if wait.transaction is None and 2 * wait.waiting_ms >= passed_ms:
                place = wait.topic if wait.partition < 0 else f"{wait.topic}/{wait.partition}"
                waited = duration(self._settings.timeout_ms or 0)
                raise wire.TimedOut(f"{place}: not read for {waited}: {wait.reason}").about(
                    wait.topic, None if wait.partition < 0 else wait.partition)

    def _is_ready(self) -> bool:
        if self._settings.is_reset:
            for each in self._open:
                self._report_gaps(each.consumer)
        return not self._open or any(each.consumer.wait(0) or each.is_at_end()
                                     for each in self._open)

    def _fill(self) -> None:
        while self._waiting and len(self._open) < self._at_once:
            part = self._waiting.popleft()
            start = blocking.Timestamp(part.start.ms) if isinstance(part.start, At) else part.start
            self._open.append(_Open(part, self._client.consume(
                part.topic, partition=part.partition, start=start, until_end=not self._follow,
                **self._settings.of_consumer(self._partitions))))

    def _report_gaps(self, consumer: Any) -> None:
        """Call ``on_gap`` with the gaps of a consumer that are new."""
        if not self._settings.is_reset:
            return
        gaps: Sequence[blocking.Gap] = consumer.gaps
        if not gaps:
            return
        last = self._last_gaps.get(id(consumer))
        # A consumer keeps the latest ones only, so its last one may be gone.
        for gap in gaps[gaps.index(last) + 1:] if last in gaps else gaps:
            self._on_gap(gap)
        self._last_gaps[id(consumer)] = gaps[-1]

    def _close(self, each: _Open) -> None:
        self._open.remove(each)
        self._report_gaps(each.consumer)
        self._last_gaps.pop(id(each.consumer), None)
        self._unread += each.consumer.unread
        if each.part.partition is not None:
            position = each.consumer.position(each.part.partition)
            if position is not None:
                self._last[each.part.topic, each.part.partition] = position
        each.consumer.close()

    @property
    def unread(self) -> tuple[blocking.Wait, ...]:
        """Partitions that were left before their end."""
        return (*self._unread, *(wait for each in self._open for wait in each.consumer.unread))

    def waits(self) -> tuple[blocking.Wait, ...]:
        """Return the partitions that wait for something else than new records."""
        return tuple(wait for each in self._open for wait in each.consumer.waits())

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record of a partition; None = not known."""
        for each in self._open:
            if each.part.topic == topic and each.part.partition in (None, partition):
                return each.consumer.position(partition)
        return self._last.get((topic, partition))


def _is_empty(part: Part) -> bool:
    return part.end is not None and isinstance(part.start, int) and part.end <= part.start
