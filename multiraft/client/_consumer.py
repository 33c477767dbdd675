"""Reading partitions from a position, as a machine.

Contract.  The driver asks ``poll`` what to send now, tells ``done`` each outcome, takes batches
with ``take`` until None, and ends when ``finished`` or raises ``error``.  Batches of one partition
come in offset order, each verified by its CRC; ``position`` is the offset after what was taken.

A reader of committed records (the default) leaves out staged ones that are void and stops before
those that nobody has decided yet; with ``until_end`` that is its end.

Invariants.  position <= fetch_offset: what lies between is fetched and not taken yet.  Neither ever
falls, whichever replica answers: a replica that is behind is one that has nothing yet.
Theory.  A start that is a word or a time is resolved by the partition's leader; with ``until_end``
the end is asked for at the same moment, so that a reader of a growing partition does end.  A time
is resolved to a batch by the node and to a record here (``_replicas.py`` has whom to ask,
``_batch_reader.py`` what to make of the bytes).  Fetches are long polls; each partition is in at
most one, and a node has few of ours, because they occupy places among its requests in flight.
A partition that was switched is in several groups, one after the other: whoever is asked for what
is not there says where it is (``MOVED``), and the reader goes there until that part ends.
"""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

from multiraft import _layout as layout
from multiraft.client._batch_reader import Search, first_records, intact_batches
from multiraft.client._consumer_settings import READ_COMMITTED, ConsumerSettings
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._records import FetchedBatch, Timestamp
from multiraft.client._replicas import Replicas
from multiraft.client._runs import Runs, run_of
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    OffsetOutOfRange,
    TimedOut,
    UnknownPartition,
    UnknownTopic,
    exception_for,
)
from multiraft.wire.messages import (
    ANY,
    EARLIEST,
    LATEST,
    LEADER,
    TIMESTAMP,
    Complain,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
)
from multiraft.wire.schema import I64_MAX
from multiraft.wire.sinks import RunRef

#: Long polls of one consumer that wait at one node.
FETCHES_PER_NODE_MAX = 4
#: A batch that fails its check is asked for again this often, and at least once of every replica:
#: the copy elsewhere may be intact.
CORRUPT_RETRIES_MAX = 3
#: A reader follows so many answers "it is elsewhere" in a row without a pause: a part that has just
#: ended, a node that does not know it yet, a leader that changed.
MOVES_MAX = 4
#: A start that retention overtakes is asked for again this often in a row.
RESOLVE_RETRIES_MAX = 5


class Query(NamedTuple):
    """A request of a consumer.  Give its outcome to ``ConsumerState.done``."""

    address: str
    request: Fetch | ListOffsets | Complain
    readers: tuple["_Reader", ...]
    timeout_ms: int


#: What a query asks: the start and the end; where a time is, part by part; records.
RESOLVE, SEARCH, FETCH = "resolve", "search", "fetch"

#: Where to begin: a word, an offset, a time.
Start = str | int | Timestamp


class Part(NamedTuple):
    """A part of a partition that is in another group than its end: who leads that."""

    node: int
    epoch: int
    end_offset: int  # the first that is not in it, -1 = not known


class Undecided(NamedTuple):
    """A reader stands before a staged batch whose run is not decided."""

    run: RunRef
    questions: int  # that had been asked about runs when it came there
    since_ms: int


class _Reader:
    """One partition."""

    __slots__ = ("partition", "incarnation", "start", "position", "fetch_offset", "end_offset",
                 "resolved", "begun", "asking", "node", "buffered_bytes", "retry_at_ms", "failures",
                 "failing_since_ms", "corrupt", "problem", "replicas", "search", "high_watermark",
                 "part", "moves", "ends", "undecided")

    def __init__(self, partition: int, incarnation: int, start: Start):
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
        self.replicas = Replicas()
        self.search: Search | None = None  # the start is a time: its record is still looked for
        self.high_watermark = 0  # the highest that any replica told
        self.part: Part | None = None  # where what is asked for next is, if not with the end
        self.moves = 0  # answers in a row that it is elsewhere
        self.ends: tuple[int, int] | None = None  # of the partition, while a time is looked for
        self.undecided: Undecided | None = None  # what it waits for

    @property
    def asks(self) -> str:
        """What is asked of this partition next."""
        if self.resolved:
            return FETCH
        return SEARCH if self.ends is not None else RESOLVE

    @property
    def at_end(self) -> bool:
        """Everything up to the end offset is fetched."""
        return (self.resolved and self.end_offset is not None
                and self.fetch_offset >= self.end_offset)


class ConsumerState:
    """See the module docstring."""

    def __init__(self, settings: ConsumerSettings, metadata: MetadataCache, rng: random.Random,
                 topic: str, partition: int | None = None, start: Start = EARLIEST,
                 until_end: bool = False, limits: NetworkLimits = NetworkLimits(),
                 end_offset: int | None = None, incarnation: int = 0, runs: Runs | None = None):
        """``end_offset``: stop there, known from the start; the batch that reaches beyond it comes
        whole.  ``incarnation``: of the partition that is meant, not of another one that has its
        name by now.  Both only with one ``partition``."""
        _check_start(start)
        self.settings = settings.validate()
        self.topic = topic
        self.error: MultiRaftError | None = None
        self._metadata = metadata
        self._metadata_seen = -1
        self._runs = runs or Runs()
        self._committed_only = settings.isolation == READ_COMMITTED
        self._rng = rng
        self._limits = limits
        self._partition = partition
        self._start = start
        self._until_end = until_end
        self._end_offset = end_offset
        self._incarnation = incarnation
        self._readers: list[_Reader] | None = None
        self._batches: deque[tuple[_Reader, FetchedBatch]] = deque()
        self._complaints: list[Query] = []
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
        """Everything up to the end was taken (only with ``until_end`` or ``end_offset``)."""
        return ((self._until_end or self._end_offset is not None)
                and not self._batches and self._readers is not None
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
        asked: dict[tuple[int, str, str], list[_Reader]] = {}
        for reader in self._readers:
            whom = self._ready(reader, now_ms)
            if whom is not None:
                asked.setdefault(whom, []).append(reader)
        queries, self._complaints = self._complaints, []
        queries += [self._query(node, readers, asks, replica)
                    for (node, asks, replica), readers in asked.items() if self._admits(node)]
        return [] if self.error is not None else queries

    def next_deadline_ms(self) -> int | None:
        """When ``poll`` has something to do, besides after ``take``, ``done`` and new metadata."""
        return self._next_ms

    def done(self, query: Query, outcome: ResponseEvent | Lost, now_ms: int) -> None:
        """What became of a query.  A complaint is the node's business from then on."""
        if isinstance(query.request, Complain):
            return
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
        if topic is not None and self._is_older(topic):
            topic = None  # its node is behind
        if topic is None:
            if self._metadata.is_missing(self.topic, self._started_ms, now_ms):
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
        if self._incarnation and self._readers[0].incarnation != self._incarnation:
            self.error = UnknownPartition(f"topic {self.topic!r} was deleted and created again")
            return False
        return True

    def _is_older(self, topic) -> bool:
        """Whether all partitions of the topic are older than the one that is meant."""
        return max(part.incarnation for part in topic.partitions) < self._incarnation

    def _reader(self, part) -> _Reader:
        reader = _Reader(part.partition, part.incarnation, self._start)
        reader.end_offset = self._end_offset
        if type(self._start) is int:
            reader.position = reader.fetch_offset = self._start
            reader.resolved = not self._until_end
        return reader

    def _check_deleted(self) -> None:
        for reader in self._readers:
            if self._metadata.locations.get(reader.incarnation) is None:
                self.error = UnknownPartition(f"topic {self.topic!r} was deleted")

    def _ready(self, reader: _Reader, now_ms: int) -> tuple[int, str, str] | None:
        """Whom to ask about this partition now, and as what; None = not now."""
        if reader.asking is not None or reader.at_end:
            return None
        if reader.buffered_bytes >= self.settings.partition_bytes_max:
            return None
        if reader.retry_at_ms > now_ms:
            self._later(reader.retry_at_ms)
            return None
        if reader.undecided is not None and self._waits_for_run(reader, now_ms):
            return None
        if reader.part is not None and not self._is_over(reader):
            return reader.part.node, reader.asks, LEADER
        leader = self._leader(reader)
        node, replica = leader, LEADER
        if reader.resolved:
            node = reader.replicas.choose(self._metadata, reader.incarnation, leader,
                                          self.settings.prefer, self.settings.rack, now_ms)
            replica = LEADER if node == leader and self.settings.prefer == LEADER else ANY
        if not leader:
            self._metadata.want(self.topic)
        if not node:
            self._unavailable(reader, now_ms)
            return None
        return node, reader.asks, replica

    def _waits_for_run(self, reader: _Reader, now_ms: int) -> bool:
        """Whether the reader still stands before a staged batch that nobody has decided.  One with
        an end does not wait for ever: ``until_end`` ends there, a range fails."""
        run, questions, since_ms = reader.undecided
        if self._runs.decided(run):
            reader.undecided = None
            return False
        if self._until_end and self._runs.was_open(run, questions):
            reader.end_offset, reader.undecided = reader.fetch_offset, None
            return True
        self._runs.want(run)
        if self._until_end or self._end_offset is not None:
            give_up_ms = since_ms + self.settings.unavailable_ms
            self._later(give_up_ms)
            if now_ms >= give_up_ms:
                self.error = TimedOut(
                    f"{self.topic}/{reader.partition}: offset {reader.fetch_offset} was staged by "
                    f"run {run.run} of sink {run.sink}, which was neither committed nor given up "
                    f"in {self.settings.unavailable_ms} ms")
        return True

    def _is_over(self, reader: _Reader) -> bool:
        """Whether the reader has come to the end of the part, or its leader is a node no more."""
        part = reader.part
        if part.node in self._metadata.nodes and not (
                reader.resolved and 0 <= part.end_offset <= reader.fetch_offset):
            return False
        reader.part = reader.ends = None
        return True

    def _leader(self, reader: _Reader) -> int:
        """The partition's leader, if it and its address are known; else 0."""
        location = self._metadata.locations.get(reader.incarnation)
        if location is None or location.leader not in self._metadata.nodes:
            return 0
        return location.leader

    def _admits(self, node: int) -> bool:
        polls = {id(reader.asking) for reader in self._readers
                 if reader.asking is not None and reader.node == node}
        return len(polls) < FETCHES_PER_NODE_MAX

    def _query(self, node: int, readers: list[_Reader], asks: str, replica: str) -> Query:
        if asks == FETCH:
            request = Fetch(
                tuple(FetchPart(reader.incarnation, reader.fetch_offset,
                                self.settings.partition_bytes_max) for reader in readers),
                1, self.settings.fetch_bytes_max, self.settings.wait_max_ms, replica)
        else:
            request = ListOffsets(tuple(query for reader in readers
                                        for query in self._queries(reader)))
        query = Query(self._metadata.nodes[node], request, tuple(readers),
                      self.settings.request_timeout_ms)
        for reader in readers:
            reader.asking = query
            reader.node = node
        return query

    def _queries(self, reader: _Reader) -> list[OffsetQuery]:
        """What resolves a start: always as many, see ``_resolve``."""
        if reader.asks == SEARCH:
            return [OffsetQuery(reader.incarnation, TIMESTAMP, self._start.ms, reader.part.epoch)]
        queries = [OffsetQuery(reader.incarnation, word) for word in (EARLIEST, LATEST)]
        if type(self._start) is Timestamp:
            queries.append(OffsetQuery(reader.incarnation, TIMESTAMP, self._start.ms))
        return queries

    def _later(self, at_ms: int) -> None:
        self._next_ms = at_ms if self._next_ms is None else min(self._next_ms, at_ms)

    # ---- answers ----

    def _resolve(self, query: Query, results, now_ms: int) -> None:
        """Starts and ends of partitions, in the order of ``_queries``."""
        count = len(query.request.partitions) // len(query.readers)
        if len(results) != count * len(query.readers):
            for reader in query.readers:
                self._failed(reader, None, ErrorDetail("an answer to other questions"), now_ms)
            return
        rows = zip(*[iter(results)] * count, strict=True)
        for reader, row in zip(query.readers, rows, strict=True):
            *ends, found = row if type(self._start) is Timestamp else (*row, None)
            bad = next((result for result in (*ends, found)
                        if result is not None and result.code != Code.OK), None)
            if ends and ends[0].code == ends[1].code == Code.OK:
                reader.ends = (ends[0].offset, ends[1].offset)
            if bad is not None:
                self._failed(reader, bad.code, bad.error, now_ms)
                continue
            self._begin_at(reader, *reader.ends, found.offset if found is not None else -1)
            reader.ends = reader.part = None
            self._worked(reader)

    def _begin_at(self, reader: _Reader, first: int, last: int, found: int) -> None:
        """The start is known: ``first`` and ``last`` of the partition, and where the search for a
        time begins (-1 = no record is as late)."""
        if type(reader.start) is int:
            if reader.start > last:
                self.error = OffsetOutOfRange(
                    f"{self.topic}/{reader.partition}: offset {reader.start} is beyond the end, "
                    f"{last}", start_offset=first, end_offset=last)
        elif type(reader.start) is Timestamp:
            reader.position = reader.fetch_offset = found if found >= 0 else last
            reader.search = Search(reader.start.ms, last) if found >= 0 else None
        else:
            reader.position = reader.fetch_offset = first if reader.start == EARLIEST else last
        if self._until_end and reader.end_offset is None:
            reader.end_offset = last
        reader.resolved = True

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
        reader.high_watermark = max(reader.high_watermark, high_watermark)
        parts, damage = intact_batches(data)
        before = reader.fetch_offset
        try:
            for part, header in parts:
                if header.base_offset + header.last_offset_delta < reader.fetch_offset:
                    continue
                counts = self._counts(header)
                if counts is None:
                    reader.undecided = Undecided(run_of(header)[0], self._runs.questions, now_ms)
                    damage = None
                    break
                if counts:
                    self._queue(reader, FetchedBatch(self.topic, reader.partition, part, header,
                                                     reader.fetch_offset, reader.high_watermark))
                else:
                    self._leave_out(reader, header)
        except MultiRaftError as error:  # a batch that had to be opened cannot be
            self.error = error
            return
        if damage is None or reader.fetch_offset > before:
            reader.corrupt = 0
            self._worked(reader)
        if damage is not None:
            self._damaged(reader, damage, now_ms)

    def _counts(self, header) -> bool | None:
        """Whether a batch is one to give; None = a ledger has not said yet."""
        if not header.attributes & layout.ATTRIBUTE_TRANSACTIONAL or not self._committed_only:
            return True
        return self._runs.verdict(header)

    def _leave_out(self, reader: _Reader, header) -> None:
        """Go past a batch that does not count."""
        reader.fetch_offset = header.base_offset + header.last_offset_delta + 1
        if not reader.buffered_bytes:  # else its last batch is taken first
            reader.position = reader.fetch_offset

    def _queue(self, reader: _Reader, batch: FetchedBatch) -> None:
        """Everything of a batch, or what lies at or after the time that is looked for."""
        reader.fetch_offset = batch.next_offset
        reader.begun = True
        if reader.search is not None:
            wanted = first_records(batch, reader.search)
            if wanted is None:
                reader.position = batch.next_offset
                return
            reader.position, reader.search = wanted.base_offset, None
            batch = wanted
        reader.buffered_bytes += len(batch.data)
        self._batches.append((reader, batch))

    def _damaged(self, reader: _Reader, damage: MultiRaftError, now_ms: int) -> None:
        """A batch fails its check: its node shall look at it, another replica be asked."""
        reader.corrupt += 1
        replicas = self._metadata.replicas(reader.incarnation)
        if reader.corrupt > max(CORRUPT_RETRIES_MAX, len(replicas)):
            self.error = damage
        if reader.node in self._metadata.nodes:
            self._complaints.append(Query(
                self._metadata.nodes[reader.node],
                Complain(reader.incarnation, reader.fetch_offset), (),
                self.settings.request_timeout_ms))
        reader.replicas.avoid(reader.node, now_ms)
        reader.part = None
        self._metadata.want(self.topic)
        self._pause(reader, damage, now_ms)

    def _worked(self, reader: _Reader) -> None:
        reader.failures = 0
        reader.failing_since_ms = None
        reader.problem = None
        reader.moves = 0

    # ---- failures ----

    def _failed(self, reader: _Reader, code: int | None, detail: ErrorDetail | None,
                now_ms: int) -> None:
        """One partition was refused (``code`` None: no answer at all)."""
        error = (exception_for(code, detail) if code is not None
                 else TimedOut(f"no answer: {detail.text}"))
        if code == Code.MOVED and self._knows_where(reader, error.detail):
            if reader.moves <= MOVES_MAX:
                self._later(now_ms)
            else:  # nodes that send it to each other: some of them are behind
                self._pause(reader, error, now_ms)
            return
        elsewhere, reader.part, reader.ends = reader.part is not None, None, None
        if reader.resolved and code != Code.OFFSET_OUT_OF_RANGE and not elsewhere:
            reader.replicas.avoid(reader.node, now_ms)
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

    def _knows_where(self, reader: _Reader, detail: ErrorDetail) -> bool:
        """What was asked for is elsewhere; whether it is known whom to ask there."""
        is_end = self._metadata.moved(reader.incarnation, detail)
        reader.moves += 1
        reader.part = None
        if detail.leader in self._metadata.nodes and (not is_end or reader.asks == SEARCH):
            reader.part = Part(detail.leader, detail.epoch, detail.end_offset)
        return reader.part is not None or (is_end and reader.asks != SEARCH)

    def _rewindable(self, reader: _Reader) -> bool:
        """The start was no offset and nothing was read yet: retention overtook us, ask again."""
        return (type(reader.start) is not int and not reader.begun
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


def _check_start(start: Start) -> None:
    """Raises ``ConfigError``."""
    good = (start in (EARLIEST, LATEST) if type(start) is str
            else 0 <= start <= I64_MAX if type(start) is int
            else type(start) is Timestamp and type(start.ms) is int and 0 <= start.ms <= I64_MAX)
    if not good:
        raise ConfigError(f"start={start!r}: expected {EARLIEST!r}, {LATEST!r}, an offset or a "
                          "Timestamp")
