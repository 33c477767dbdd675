"""Reading partitions from a position, as a machine.

Contract.  The driver asks ``poll`` what to send now, tells ``done`` each outcome, takes batches
with ``take`` until None, and ends when ``finished`` or raises ``error``.  Batches of one partition
come in offset order, each verified by its CRC; ``position`` is the offset after what was taken.

Invariants.  position <= fetch_offset: what lies between is fetched and not taken yet.
Theory.  A start that is a word is resolved by the partition's leader; with ``until_end`` the end is
asked for at the same moment, so that a reader of a growing partition does end.  Fetches are long
polls; each partition is in at most one, and a node has few of ours, because they occupy places
among its requests in flight.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from multiraft import core
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._records import FetchedBatch
from multiraft.errors import CodecError, ConfigError, MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
    exception_for,
)
from multiraft.wire.messages import EARLIEST, LATEST, Fetch, FetchPart, ListOffsets, OffsetQuery

#: Long polls of one consumer that wait at one node.
FETCHES_PER_NODE_MAX = 4
#: A batch that fails its check is asked for again this often: the copy elsewhere may be intact.
CORRUPT_RETRIES_MAX = 3
#: A start that retention overtakes is asked for again this often in a row.
RESOLVE_RETRIES_MAX = 5


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Choices of one consumer."""

    #: What one partition may have fetched and not taken, and what one fetch asks of it.
    partition_bytes_max: int = 1 << 20
    #: One fetch of several partitions.
    fetch_bytes_max: int = 8 << 20
    #: A long poll's length: an idle consumer asks this seldom.
    wait_max_ms: int = 500
    #: A partition that could not be read for this long raises what was wrong last.
    unavailable_ms: int = 30_000
    request_timeout_ms: int = 10_000

    def validate(self) -> "ConsumerSettings":
        """Raises ``ConfigError`` naming the setting."""
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be positive")
        return self


class Query(NamedTuple):
    """A request of a consumer.  Give its outcome to ``ConsumerState.done``."""

    address: str
    request: Fetch | ListOffsets
    readers: tuple["_Reader", ...]
    timeout_ms: int


class _Reader:
    """One partition."""

    __slots__ = ("partition", "incarnation", "start", "position", "fetch_offset", "end_offset",
                 "resolved", "begun", "asking", "node", "buffered_bytes", "retry_at_ms", "failures",
                 "failing_since_ms", "corrupt", "problem")

    def __init__(self, partition: int, incarnation: int, start: str | int):
        self.partition = partition
        self.incarnation = incarnation
        self.start = start
        self.position: int | None = None  # next to be taken
        self.fetch_offset = -1  # next to be fetched
        self.end_offset: int | None = None  # where to stop, with until_end
        self.resolved = False
        self.begun = False  # something was read
        self.asking: Query | None = None
        self.node = 0  # whom it asks
        self.buffered_bytes = 0
        self.retry_at_ms = 0
        self.failures = 0
        self.failing_since_ms: int | None = None
        self.corrupt = 0
        self.problem: MultiRaftError | None = None

    @property
    def at_end(self) -> bool:
        """Everything up to the end offset is fetched."""
        return (self.resolved and self.end_offset is not None
                and self.fetch_offset >= self.end_offset)


class ConsumerState:
    """See the module docstring."""

    def __init__(self, settings: ConsumerSettings, metadata: MetadataCache, rng: random.Random,
                 topic: str, partition: int | None = None, start: str | int = EARLIEST,
                 until_end: bool = False, limits: NetworkLimits = NetworkLimits()):
        if type(start) is int and start < 0 or type(start) is str and start not in (
                EARLIEST, LATEST) or type(start) not in (int, str):
            raise ConfigError(f"start={start!r}: expected {EARLIEST!r}, {LATEST!r} or an offset")
        self.settings = settings.validate()
        self.topic = topic
        self.error: MultiRaftError | None = None
        self._metadata = metadata
        self._metadata_seen = -1
        self._rng = rng
        self._limits = limits
        self._partition = partition
        self._start = start
        self._until_end = until_end
        self._readers: list[_Reader] | None = None
        self._batches: deque[tuple[_Reader, FetchedBatch]] = deque()
        self._started_ms: int | None = None
        self._next_ms: int | None = None

    # ---- for the application ----

    def take(self) -> FetchedBatch | None:
        """The next batch, if one is here."""
        if not self._batches:
            return None
        reader, batch = self._batches.popleft()
        reader.buffered_bytes -= len(batch.data)
        reader.position = batch.next_offset
        return batch

    @property
    def ready_to_take(self) -> bool:
        """Whether ``take`` has a batch, or there is nothing more to wait for."""
        return bool(self._batches) or self.error is not None or self.finished

    @property
    def finished(self) -> bool:
        """Everything up to the end was taken (only with ``until_end``)."""
        return (self._until_end and not self._batches and self._readers is not None
                and all(reader.at_end for reader in self._readers))

    def position(self, partition: int) -> int | None:
        """Offset of the next record of ``partition``; None = not known yet."""
        for reader in self._readers or ():
            if reader.partition == partition:
                return reader.position
        return None

    # ---- for the driver ----

    def poll(self, now_ms: int) -> list[Query]:
        """What to ask now."""
        self._next_ms = None
        if self.error is not None or self.finished:
            return []
        if self._readers is None and not self._begin(now_ms):
            return []
        if self._metadata_seen != self._metadata.version:
            self._metadata_seen = self._metadata.version
            self._check_deleted()
        asked: dict[tuple[str, bool], list[_Reader]] = {}
        for reader in self._readers:
            address = self._ready(reader, now_ms)
            if address is not None:
                asked.setdefault((address, reader.resolved), []).append(reader)
        queries = [self._query(address, readers, resolved)
                   for (address, resolved), readers in asked.items() if self._admits(readers)]
        return [] if self.error is not None else queries

    def next_deadline_ms(self) -> int | None:
        """When ``poll`` has something to do, besides after ``take``, ``done`` and new metadata."""
        return self._next_ms

    def done(self, query: Query, outcome: ResponseEvent | Lost, now_ms: int) -> None:
        """What became of a query."""
        for reader in query.readers:
            reader.asking = None
        if isinstance(outcome, Lost):
            for reader in query.readers:
                self._failed(reader, None, ErrorDetail(outcome.why), now_ms)
        elif outcome.code != Code.OK:
            for reader in query.readers:
                self._failed(reader, outcome.code, outcome.error, now_ms)
        elif isinstance(query.request, ListOffsets):
            self._resolve(query, outcome.reply.results, now_ms)
        else:
            self._fetched(query, outcome.reply, now_ms)

    # ---- asking ----

    def _begin(self, now_ms: int) -> bool:
        """Make a reader for each partition once the topic is known."""
        if self._started_ms is None:
            self._started_ms = now_ms
        topic = self._metadata.topics.get(self.topic)
        if topic is None:
            if self._metadata.is_missing(self.topic, now_ms):
                self.error = UnknownTopic(f"topic {self.topic!r} does not exist")
            elif now_ms - self._started_ms >= self.settings.unavailable_ms:
                self.error = TimedOut(f"topic {self.topic!r}: no metadata in "
                                      f"{self.settings.unavailable_ms} ms")
            self._metadata.want(self.topic)
            self._later(self._started_ms + self.settings.unavailable_ms)
            return False
        count = len(topic.partitions)
        if self._partition is not None and not 0 <= self._partition < count:
            self.error = UnknownPartition(f"topic {self.topic!r} has partitions 0..{count - 1}, "
                                          f"not {self._partition}")
            return False
        self._readers = [self._reader(part) for part in topic.partitions
                         if self._partition in (None, part.partition)]
        return True

    def _reader(self, part) -> _Reader:
        reader = _Reader(part.partition, part.incarnation, self._start)
        if type(self._start) is int:
            reader.position = reader.fetch_offset = self._start
            reader.resolved = not self._until_end
        return reader

    def _check_deleted(self) -> None:
        for reader in self._readers:
            if self._metadata.locations.get(reader.incarnation) is None:
                self.error = UnknownPartition(f"topic {self.topic!r} was deleted")

    def _ready(self, reader: _Reader, now_ms: int) -> str | None:
        """Whom to ask about this partition now; None = not now."""
        if reader.asking is not None or reader.at_end:
            return None
        if reader.buffered_bytes >= self.settings.partition_bytes_max:
            return None
        if reader.retry_at_ms > now_ms:
            self._later(reader.retry_at_ms)
            return None
        address = self._metadata.leader_address(reader.incarnation)
        if address is None:
            self._metadata.want(self.topic)
            self._unavailable(reader, now_ms)
        return address

    def _admits(self, readers: list[_Reader]) -> bool:
        node = self._metadata.locations.get(readers[0].incarnation).leader
        polls = {id(reader.asking) for reader in self._readers
                 if reader.asking is not None and reader.node == node}
        return len(polls) < FETCHES_PER_NODE_MAX

    def _query(self, address: str, readers: list[_Reader], resolved: bool) -> Query:
        node = self._metadata.locations.get(readers[0].incarnation).leader
        if resolved:
            request = Fetch(
                tuple(FetchPart(reader.incarnation, reader.fetch_offset,
                                self.settings.partition_bytes_max) for reader in readers),
                1, self.settings.fetch_bytes_max, self.settings.wait_max_ms)
        else:
            request = ListOffsets(tuple(
                OffsetQuery(reader.incarnation, word)
                for reader in readers for word in (EARLIEST, LATEST)))
        query = Query(address, request, tuple(readers), self.settings.request_timeout_ms)
        for reader in readers:
            reader.asking = query
            reader.node = node
        return query

    def _later(self, at_ms: int) -> None:
        self._next_ms = at_ms if self._next_ms is None else min(self._next_ms, at_ms)

    # ---- answers ----

    def _resolve(self, query: Query, results, now_ms: int) -> None:
        """Starts and ends of partitions: two results per reader, earliest and latest."""
        if len(results) != 2 * len(query.readers):
            results = ()
        for reader, first, last in zip(query.readers, results[::2], results[1::2], strict=False):
            bad = next((result for result in (first, last) if result.code != Code.OK), None)
            if bad is not None:
                self._failed(reader, bad.code, bad.error, now_ms)
                continue
            if type(reader.start) is str:
                offset = first.offset if reader.start == EARLIEST else last.offset
                reader.position = reader.fetch_offset = offset
            if self._until_end and reader.end_offset is None:
                reader.end_offset = last.offset
            reader.resolved = True
            self._worked(reader)

    def _fetched(self, query: Query, reply, now_ms: int) -> None:
        at = 0
        if [result.incarnation for result in reply.results] != [
                reader.incarnation for reader in query.readers]:
            for reader in query.readers:
                self._failed(reader, None, ErrorDetail("an answer about other partitions"), now_ms)
            return
        for reader, result in zip(query.readers, reply.results, strict=True):
            data = reply.payload[at:at + result.length]
            at += result.length
            if result.code != Code.OK:
                self._failed(reader, result.code, result.error, now_ms)
            else:
                self._accept(reader, data, result.high_watermark, now_ms)

    def _accept(self, reader: _Reader, data: memoryview, high_watermark: int, now_ms: int) -> None:
        """Verify the batches and queue what lies at or after the fetch offset."""
        try:
            parts = core.split_batches(data)
        except CodecError as error:
            reader.corrupt += 1
            if reader.corrupt > CORRUPT_RETRIES_MAX:
                self.error = error
            self._metadata.want(self.topic)
            self._pause(reader, error, now_ms)
            return
        for part in parts:
            header = core.batch_header(part)
            if header.base_offset + header.last_offset_delta < reader.fetch_offset:
                continue
            batch = FetchedBatch(self.topic, reader.partition, part, header, reader.fetch_offset,
                                 high_watermark)
            reader.fetch_offset = batch.next_offset
            reader.begun = True
            reader.buffered_bytes += len(part)
            self._batches.append((reader, batch))
        reader.corrupt = 0
        self._worked(reader)

    def _worked(self, reader: _Reader) -> None:
        reader.failures = 0
        reader.failing_since_ms = None
        reader.problem = None

    # ---- failures ----

    def _failed(self, reader: _Reader, code: int | None, detail: ErrorDetail | None,
                now_ms: int) -> None:
        """One partition was refused (``code`` None: no answer at all)."""
        error = (exception_for(code, detail) if code is not None
                 else TimedOut(f"no answer: {detail.text}"))
        if code == Code.NOT_LEADER:
            self._metadata.leader_refused(reader.incarnation, reader.node, detail)
        else:
            self._metadata.want(self.topic)
        if code == Code.OFFSET_OUT_OF_RANGE and self._rewindable(reader):
            reader.resolved = False
        elif code is not None and error.definite and not error.retriable and (
                code != Code.UNKNOWN_PARTITION):
            self.error = error
        self._pause(reader, error, now_ms)

    def _rewindable(self, reader: _Reader) -> bool:
        """The start was a word and nothing was read yet: retention overtook us, ask again."""
        return (type(reader.start) is str and not reader.begun
                and reader.failures < RESOLVE_RETRIES_MAX)

    def _pause(self, reader: _Reader, error: MultiRaftError, now_ms: int) -> None:
        reader.problem = error
        reader.failures += 1
        reader.retry_at_ms = now_ms + backoff_ms(self._limits, reader.failures, self._rng)
        self._later(reader.retry_at_ms)
        self._unavailable(reader, now_ms)

    def _unavailable(self, reader: _Reader, now_ms: int) -> None:
        """Give up after ``unavailable_ms`` without a success."""
        if reader.failing_since_ms is None:
            reader.failing_since_ms = now_ms
        give_up_ms = reader.failing_since_ms + self.settings.unavailable_ms
        if now_ms >= give_up_ms and self.error is None:
            self.error = reader.problem or TimedOut(
                f"{self.topic}/{reader.partition}: no leader known for "
                f"{self.settings.unavailable_ms} ms")
        self._later(give_up_ms)
