"""Consumer as a state machine: reads partitions from a position on.

Contract.  The driver sends the queries that ``poll`` returns, gives each outcome to ``done``, takes
batches with ``take`` until it returns None, and ends when ``finished`` is True or raises ``error``.
Batches of one partition come in offset order, each verified by its CRC; ``position`` is the offset
after the batches that were taken.

A reader of committed records (the default) skips staged batches of aborted transactions, and stops
before those of an undecided transaction.  With ``until_end`` it ends there, and ``unread`` names
the partition.

Invariants.  position <= fetch_offset: records between the two are fetched and not taken yet.
Neither falls, whichever replica answers: a replica that lags behind has nothing to return yet.
Each wait for something else than new records has an entry in ``waits``, with its reason, and is
bounded by ``unavailable_ms``.  The exception is an open transaction without ``until_end``, which
the cluster decides in the end.

Deleted offsets are reported, and never skipped silently: as ``OffsetOutOfRange``, or in ``gaps``
with ``offset_reset``.

Theory.  The leader of a partition resolves a start that is a word or a time.  With ``until_end``
the end is requested at the same moment, so that a reader of a growing partition does end.  A node
resolves a time to a batch, and the client to a record (``_batch_reader.py``); ``_replicas.py``
chooses the node.  Fetches are long polls.  Each partition is in at most one, and few of them wait
at one node, because each occupies one of the node's requests in flight.
A switched partition is in several groups, one after the other.  A node that does not have the
requested offsets answers MOVED and names the group that has them; the reader continues there until
that part ends.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import islice

from multiraft import core
from multiraft.client._batch_reader import Search, first_records, intact_batches
from multiraft.client._consumer_settings import (
    NO_RESET,
    READ_COMMITTED,
    ConsumerSettings,
    PartitionStart,
    Start,
    require_start,
    start_of,
)
from multiraft.client._gaps import Gap
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._reader import FETCH, SEARCH, Part, Query, Reader, Undecided
from multiraft.client._records import FetchedBatch, Timestamp, require_partition, require_topic_name
from multiraft.client._transactions import Transactions, transaction_of
from multiraft.client._unreadable import unreadable
from multiraft.client._waits import Wait
from multiraft.client.texts import duration
from multiraft.codec import layout
from multiraft.errors import MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestError,
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
    PARTITIONS_MAX,
    REFUSALS_PER_REPLY_MAX,
    TIMESTAMP,
    Fetch,
    FetchPart,
    FetchReply,
    ListOffsets,
    OffsetQuery,
    OffsetResult,
    PartitionMetadata,
    ReportCorruption,
    TopicMetadata,
)

#: Long polls of one consumer that wait at one node, at most.
FETCHES_PER_NODE_MAX = 4
#: Offset queries for one partition in one request, at most: its start, its end, a time.
QUESTIONS_MAX = 3
#: Partitions in one fetch: so many that the long polls allowed at one node cover all partitions of
#: a topic.  Partitions in one offset request: so many that even refusals of all fit the answer.
READERS_PER_FETCH_MAX = -(-PARTITIONS_MAX // FETCHES_PER_NODE_MAX)
READERS_PER_QUESTION_MAX = REFUSALS_PER_REPLY_MAX // QUESTIONS_MAX
#: A batch that fails its CRC is fetched again this often, and at least once from each replica,
#: because another copy may be intact.
CORRUPT_RETRIES_MAX = 3
#: Consecutive MOVED answers that a reader follows without a pause: a part that has just ended, a
#: node that does not know it yet, a leader that changed.
MOVES_MAX = 4
#: Times in a row that a start is resolved again after retention has deleted it.
RESOLVE_RETRIES_MAX = 5
#: Gaps that are kept, the latest ones: a partition has one for each deletion that overtook its
#: reader.
GAPS_KEPT_MAX = 1000


class ConsumerState:
    """State of one consumer: its readers, fetched batches and queries."""

    def __init__(self, settings: ConsumerSettings, metadata: MetadataCache, rng: random.Random,
                 topic: str, partition: int | None = None, start: Start = EARLIEST,
                 until_end: bool = False, limits: NetworkLimits = NetworkLimits(),
                 end_offset: int | None = None, incarnation: int = 0,
                 transactions: Transactions | None = None):
        """``end_offset``: stop there; a batch that reaches beyond it is delivered whole.
        ``incarnation``: of the partition, so that a topic that was created again is refused.  Both
        only with one ``partition``.  Raises as ``Client.consume``."""
        require_topic_name(topic)
        require_start(start)
        self.settings = settings.validate()
        self.topic = topic
        self.error: MultiRaftError | None = None
        self._metadata = metadata
        self._metadata_seen = -1
        self._transactions = transactions or Transactions()
        self._committed_only = settings.isolation == READ_COMMITTED
        self._rng = rng
        self._limits = limits
        self._partition = None if partition is None else require_partition(topic, partition)
        self._start: Start = dict(start) if isinstance(start, Mapping) else start
        self._until_end = until_end
        self._end_offset = end_offset
        self._incarnation = incarnation
        self._readers: list[Reader] | None = None
        self._unfinished: list[Reader] = []  # those that may not be at their end
        self._unread: list[Wait] = []
        self._gaps: deque[Gap] = deque(maxlen=GAPS_KEPT_MAX)
        self._batches: deque[tuple[Reader, FetchedBatch]] = deque()
        self._corruption_reports: list[Query] = []
        self._started_ms: int | None = None
        self._next_ms: int | None = None

    # ---- for the application ----

    def take(self) -> FetchedBatch | None:
        """Return the next fetched batch, and advance ``position``; None = there is none."""
        if not self._batches:
            return None
        reader, batch = self._batches.popleft()
        reader.buffered_bytes -= len(batch.data)
        reader.position = batch.next_offset
        return batch

    @property
    def ready_to_take(self) -> bool:
        """True if ``take`` has a batch, or the consumer has ended."""
        return bool(self._batches) or self.error is not None or self.finished

    @property
    def finished(self) -> bool:
        """True if all batches up to the end were taken (with ``until_end`` or ``end_offset``)."""
        return ((self._until_end or self._end_offset is not None)
                and not self._batches and self._readers is not None
                and all(reader.at_end for reader in self._unfinished))

    @property
    def unread(self) -> tuple[Wait, ...]:
        """Partitions that ``until_end`` left before their end, each with the reason."""
        return tuple(self._unread)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Deleted offsets that ``offset_reset`` passed over, the latest ``GAPS_KEPT_MAX``."""
        return tuple(self._gaps)

    def waits(self, now_ms: int) -> tuple[Wait, ...]:
        """Return the partitions that wait for something else than new records, each with the
        reason.  O(partitions)."""
        if self.error is not None or self._started_ms is None:
            return ()
        if self._readers is None:
            return (Wait(self.topic, -1, -1, -1, now_ms - self._started_ms,
                         "its metadata are not known yet"),)
        return tuple(self._wait(reader, now_ms) for reader in self._unfinished
                     if reader.undecided is not None or reader.failing_since_ms is not None
                     or reader.leaderless_since_ms is not None)

    def _wait(self, reader: Reader, now_ms: int) -> Wait:
        txn = None
        since_ms = reader.failing_since_ms
        reason = str(reader.problem or "its leader is not known")
        if since_ms is None:
            since_ms = reader.leaderless_since_ms
            reason = "its leader is not known; what the other replicas have is read"
        if reader.undecided is not None:
            txn, _, since_ms = reader.undecided
            reason = self._transactions.reason(txn)
        assert since_ms is not None
        return Wait(self.topic, reader.partition, reader.fetch_offset,
                    reader.known_end or -1, now_ms - since_ms, reason, txn)

    def position(self, partition: int) -> int | None:
        """Return the offset of the next record of ``partition``; None = not known yet.
        O(partitions)."""
        for reader in self._readers or ():
            if reader.partition == partition:
                return reader.position
        return None

    def positions(self) -> dict[int, int]:
        """Return partition -> offset of its next record, for the partitions where it is known.
        O(partitions)."""
        return {reader.partition: reader.position for reader in self._readers or ()
                if reader.position is not None}

    def end(self, error: MultiRaftError) -> None:
        """End with ``error``, unless the consumer has failed before; fetched batches are dropped in
        either case."""
        if self.error is None:
            self.error = error
        self._batches.clear()

    # ---- for the driver ----

    def poll(self, now_ms: int) -> list[Query]:
        """Return the queries to send now: at most one for each partition, few for each node.  A
        failure of the whole consumer is in ``error`` afterwards.  O(partitions that are not at
        their end)."""
        self._next_ms = None
        if self.error is not None or self.finished:
            return []
        if self._readers is None and not self._begin(now_ms):
            return []
        if self._metadata_seen != self._metadata.version:
            self._metadata_seen = self._metadata.version
            self._check_deleted()
            self._add_readers()
        if self._reads_added:
            self._metadata.used[self.topic] = None
        asked: dict[tuple[int, str, str], list[Reader]] = {}
        ended = False
        for reader in self._unfinished:
            if reader.asking is not None:
                continue
            whom = self._ready(reader, now_ms)
            if whom is not None:
                asked.setdefault(whom, []).append(reader)
            ended = ended or reader.at_end
        if ended:
            self._unfinished = [reader for reader in self._unfinished if not reader.at_end]
        queries, self._corruption_reports = self._corruption_reports, []
        for (node, asks, replica), readers in asked.items():
            room = FETCHES_PER_NODE_MAX - self._polls_at(node)
            count = READERS_PER_FETCH_MAX if asks == FETCH else READERS_PER_QUESTION_MAX
            for at in range(0, len(readers), count)[:max(0, room)]:
                queries.append(self._query(node, readers[at:at + count], asks, replica))
        return [] if self.error is not None else queries

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next ``poll``, which is also due after ``take``, ``done`` and new
        metadata; None = no deadline."""
        return self._next_ms

    def done(self, query: Query, outcome: ResponseEvent | Lost, now_ms: int) -> None:
        """Process the outcome of a query: queue fetched batches, set resolved starts, or schedule
        another try of its partitions.  O(records of the answer)."""
        if isinstance(query.request, ReportCorruption):
            return  # the node verifies its copy; its answer changes nothing here
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
        """Make a reader for each wanted partition once the topic is known.  Returns False while it
        is not, and with ``error`` if it cannot be read."""
        if self._started_ms is None:
            self._started_ms = now_ms
        topic = self._metadata.topics.get(self.topic)
        if topic is not None and self._is_older(topic):
            topic = None  # the node that answered lags behind
        if topic is None:
            self.error = self._metadata.refused.get(self.topic)
            if self._metadata.is_missing(self.topic, self._started_ms, now_ms):
                self.error = UnknownTopic(f"topic {self.topic!r} does not exist").about(self.topic)
            elif now_ms - self._started_ms >= self.settings.unavailable_ms:
                self.error = TimedOut(f"topic {self.topic!r}: no metadata in "
                                      f"{duration(self.settings.unavailable_ms)}"
                                      f"{self._metadata.why_missing()}")
            self._metadata.want(self.topic)
            self._later(self._started_ms + self.settings.unavailable_ms)
            return False
        count = len(topic.partitions)
        if self._named >= count and now_ms - self._started_ms < self._metadata.MISSING_GRACE_MS:
            self._metadata.want(self.topic)  # it may have been added a moment ago
            self._later(self._started_ms + self._metadata.MISSING_GRACE_MS)
            return False
        if self._partition is not None and not 0 <= self._partition < count:
            self.error = UnknownPartition(f"topic {self.topic!r} has partitions 0..{count - 1}, "
                                          f"not {self._partition}")
            return False
        if isinstance(self._start, Mapping) and max(self._start, default=0) >= count:
            self.error = UnknownPartition(
                f"start names partition {max(self._start)}, but topic {self.topic!r} has "
                f"partitions 0..{count - 1}").about(self.topic, max(self._start))
            return False
        self._readers = [self._reader(part, start_of(self._start, part.partition))
                         for part in topic.partitions
                         if self._partition in (None, part.partition)]
        self._unfinished = list(self._readers)
        if self._incarnation and self._readers[0].incarnation != self._incarnation:
            self.error = UnknownPartition(f"topic {self.topic!r} was deleted and created again")
            return False
        return True

    @property
    def _named(self) -> int:
        """The highest number of a partition that the caller has named; -1 = none."""
        if self._partition is not None:
            return self._partition
        return max(self._start, default=-1) if isinstance(self._start, Mapping) else -1

    @property
    def _reads_added(self) -> bool:
        """True if partitions that are added to the topic are read too.  A reader with an end reads
        those that the topic had when it began."""
        return self._partition is None and not self._until_end

    def _add_readers(self) -> None:
        """Make readers for partitions that were added to the topic.  Whatever the start of the
        others, these are read from their log start, because their records may all have been
        appended after the consumer began.  O(added partitions)."""
        topic = self._metadata.topics.get(self.topic)
        if topic is None or not self._readers or not self._reads_added:
            return
        for part in topic.partitions[len(self._readers):]:
            reader = self._reader(part, EARLIEST)
            self._readers.append(reader)
            self._unfinished.append(reader)

    def _is_older(self, topic: TopicMetadata) -> bool:
        """Return True if all partitions of ``topic`` are older than the requested incarnation."""
        return max(part.incarnation for part in topic.partitions) < self._incarnation

    def _reader(self, part: PartitionMetadata, start: PartitionStart) -> Reader:
        reader = Reader(part.partition, part.incarnation, start)
        reader.end_offset = self._end_offset
        if type(start) is int:
            reader.position = reader.fetch_offset = start
            reader.resolved = not self._until_end
        return reader

    def _check_deleted(self) -> None:
        for reader in self._readers or ():
            if self._metadata.locations.get(reader.incarnation) is None:
                self.error = UnknownPartition(f"topic {self.topic!r} was deleted")

    def _ready(self, reader: Reader, now_ms: int) -> tuple[int, str, str] | None:
        """Return (node, kind of query, replicas that may answer) for a partition; None = no query
        now.  None also while enough of it is fetched ahead, or no node is known."""
        if reader.at_end:
            return None
        if reader.buffered_bytes >= self.settings.partition_bytes_max:
            return None
        if reader.retry_at_ms > now_ms:
            self._later(reader.retry_at_ms)
            return None
        if reader.undecided is not None and self._waits_for_transaction(reader, now_ms):
            return None
        if reader.part is not None and not self._is_over(reader):
            return reader.part.node, reader.asks, LEADER
        leader = self._leader(reader)
        node, replica = leader, LEADER
        if reader.resolved:
            node = reader.replicas.choose(self._metadata, reader.incarnation, leader,
                                          self.settings.prefer, self.settings.rack, now_ms)
            replica = LEADER if node == leader and self.settings.prefer == LEADER else ANY
        if leader:
            reader.leaderless_since_ms = None
        else:
            self._metadata.want(self.topic)
            if reader.leaderless_since_ms is None:
                reader.leaderless_since_ms = now_ms
        if not node:
            self._unavailable(reader, now_ms)
            return None
        return node, reader.asks, replica

    def _waits_for_transaction(self, reader: Reader, now_ms: int) -> bool:
        """Return True while the next batch is staged by the transaction ``reader.undecided``, which
        must be set, and request its state. False = it is decided, and ``undecided`` is cleared.

        The wait of a reader with an end is bounded: with ``until_end`` it ends before an open
        transaction, otherwise ``error`` is set after ``unavailable_ms``."""
        assert reader.undecided is not None
        txn, questions, since_ms = reader.undecided
        if self._transactions.decided(txn):
            reader.undecided = None
            return False
        if self._until_end and self._transactions.was_open(txn, questions):
            self._unread.append(self._wait(reader, now_ms))
            reader.end_offset, reader.undecided = reader.fetch_offset, None
            return True
        self._transactions.want(txn, now_ms if self._until_end else None)
        if self._until_end or self._end_offset is not None:
            give_up_ms = since_ms + self.settings.unavailable_ms
            self._later(give_up_ms)
            if now_ms >= give_up_ms:
                self.error = TimedOut(
                    f"{self.topic}/{reader.partition}: offset {reader.fetch_offset} was "
                    f"{self._transactions.reason(txn)}; it was neither committed nor aborted in "
                    f"{duration(self.settings.unavailable_ms)}")
        return True

    def _is_over(self, reader: Reader) -> bool:
        """Return True, and forget the part, if the reader has reached its end or its leader is no
        longer a node of the cluster."""
        part = reader.part
        assert part is not None
        if part.node in self._metadata.nodes and not (
                reader.resolved and 0 <= part.end_offset <= reader.fetch_offset):
            return False
        reader.part = reader.ends = None
        return True

    def _leader(self, reader: Reader) -> int:
        """Return the node id of the partition's leader; 0 = it or its address is not known."""
        location = self._metadata.locations.get(reader.incarnation)
        if location is None or location.leader not in self._metadata.nodes:
            return 0
        return location.leader

    def _polls_at(self, node: int) -> int:
        """Return the number of queries that wait at ``node``.  O(partitions)."""
        return len({id(reader.asking) for reader in self._unfinished
                    if reader.asking is not None and reader.node == node})

    def _query(self, node: int, readers: list[Reader], asks: str, replica: str) -> Query:
        request: Fetch | ListOffsets
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

    def _queries(self, reader: Reader) -> list[OffsetQuery]:
        """Return the offset queries that resolve a start: a time, in one part of the partition; or
        its two ends, and a time as the third."""
        start = reader.start
        if reader.asks == SEARCH:
            assert isinstance(start, Timestamp) and reader.part is not None
            return [OffsetQuery(reader.incarnation, TIMESTAMP, start.ms, reader.part.epoch)]
        queries = [OffsetQuery(reader.incarnation, word) for word in (EARLIEST, LATEST)]
        if isinstance(start, Timestamp):
            queries.append(OffsetQuery(reader.incarnation, TIMESTAMP, start.ms))
        return queries

    def _later(self, at_ms: int) -> None:
        self._next_ms = at_ms if self._next_ms is None else min(self._next_ms, at_ms)

    # ---- answers ----

    def _resolve(self, query: Query, results: Sequence[OffsetResult], now_ms: int) -> None:
        """Set the positions of readers from the starts and ends in an answer, in the order of
        ``_queries``.  A refused partition is tried again."""
        assert isinstance(query.request, ListOffsets)
        if len(results) != len(query.request.partitions):
            for reader in query.readers:
                self._failed(reader, None, ErrorDetail("an answer to other questions"), now_ms)
            return
        counts = Counter(asked.incarnation for asked in query.request.partitions)
        left = iter(results)
        for reader in query.readers:
            ends = list(islice(left, counts[reader.incarnation]))
            found = ends.pop() if type(reader.start) is Timestamp else None
            bad = next((result for result in (*ends, found)
                        if result is not None and result.code != Code.OK), None)
            if ends and ends[0].code == ends[1].code == Code.OK:
                reader.ends = (ends[0].offset, ends[1].offset)
            if bad is not None:
                self._failed(reader, bad.code, bad.error, now_ms)
                continue
            assert reader.ends is not None
            first, last = reader.ends
            self._begin_at(reader, first, last, found.offset if found is not None else -1)
            reader.ends = reader.part = None
            self._worked(reader)

    def _begin_at(self, reader: Reader, first: int, last: int, found: int) -> None:
        """Set the position of a reader whose start is resolved.  ``first`` and ``last``: start and
        end offset of the partition; ``found``: first offset of the search for a time (-1 = no
        record is as late)."""
        if type(reader.start) is int:
            if reader.start > last:
                self.error = self._out_of_range(reader, first, last)
        elif type(reader.start) is Timestamp:
            reader.position = reader.fetch_offset = found if found >= 0 else last
            reader.search = Search(reader.start.ms, last) if found >= 0 else None
        else:
            reader.fetch_offset = first if reader.start == EARLIEST else last
            if not reader.buffered_bytes:  # else its last batch is taken first
                reader.position = reader.fetch_offset
        if self._until_end and reader.end_offset is None:
            reader.end_offset = last
        reader.resolved = True

    def _out_of_range(self, reader: Reader, first: int, last: int) -> MultiRaftError:
        """Return the error of an offset outside of those of its partition: it was deleted, or is
        beyond the end."""
        hint = ""
        if type(self._start) is int and not reader.begun and len(self._readers or ()) > 1:
            hint = (f". All {len(self._readers or ())} partitions start there; a start for each: "
                    "start={0: ..., 1: ...}")
        what = (f"{self.topic}/{reader.partition}: offset {reader.fetch_offset} is outside of its "
                f"offsets, {first} to {last}")
        if reader.fetch_offset < first:
            what = f"{self._gap(reader, first)}, and its end is {last}"
        return OffsetOutOfRange(
            f"{what}{hint}", start_offset=first, end_offset=last,
        ).about(self.topic, reader.partition, reader.fetch_offset)

    def _fetched(self, query: Query, reply: FetchReply, now_ms: int) -> None:
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
                # An answer with bytes may be full before it reaches this partition.
                if not reply.payload and reader.fetch_offset < reader.known_end:
                    self._got_nothing(reader, now_ms)

    def _got_nothing(self, reader: Reader, now_ms: int) -> None:
        """Avoid a replica that returned nothing below an end that another replica has named, and
        pause the reader.  Such a replica lags behind, and may stay so."""
        reader.replicas.avoid(reader.node, now_ms)
        reader.part = None
        self._metadata.want(self.topic)
        self._pause(reader, OffsetNotAvailable(
            f"node {reader.node} has nothing at offset {reader.fetch_offset}, the partition has "
            f"records up to {reader.known_end}"), now_ms)

    def _accept(self, reader: Reader, data: memoryview, high_watermark: int, now_ms: int) -> None:
        """Verify batches, and queue those at or after the fetch offset and before the end, up to
        the first that is damaged or not decided.  O(bytes)."""
        reader.high_watermark = max(reader.high_watermark, high_watermark)
        parts, damage = intact_batches(data)
        before = reader.fetch_offset
        for part, header in parts:
            if header.base_offset + header.last_offset_delta < reader.fetch_offset:
                continue
            if reader.at_end:
                break
            counts = self._counts(header)
            if counts is None:
                reader.undecided = Undecided(
                    transaction_of(header)[0], self._transactions.resolutions, now_ms
                )
                damage = None
                break
            if counts:
                self._queue(reader, FetchedBatch(self.topic, reader.partition, part, header,
                                                 reader.fetch_offset, reader.high_watermark))
            else:
                self._leave_out(reader, header)
        if damage is None or reader.fetch_offset > before:
            reader.corrupt = 0
            if data or reader.fetch_offset >= reader.known_end:
                self._worked(reader)
        if damage is not None and not reader.at_end:
            self._damaged(reader, damage, now_ms)

    def _counts(self, header: core.BatchHeader) -> bool | None:
        """Return True if a batch is delivered, False if it is skipped; None = its transaction is
        not decided."""
        if not header.attributes & layout.ATTRIBUTE_TRANSACTIONAL or not self._committed_only:
            return True
        return self._transactions.verdict(header)

    def _leave_out(self, reader: Reader, header: core.BatchHeader) -> None:
        """Skip a staged batch of an aborted transaction or of a losing attempt."""
        reader.fetch_offset = header.base_offset + header.last_offset_delta + 1
        if not reader.buffered_bytes:  # else its last batch is taken first
            reader.position = reader.fetch_offset

    def _queue(self, reader: Reader, batch: FetchedBatch) -> None:
        """Queue a batch for ``take``; during a search for a time, only its records from that time
        on, and a batch without such records not at all."""
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

    def _damaged(self, reader: Reader, damage: MultiRaftError, now_ms: int) -> None:
        """Report a batch that fails its CRC to its node, and have it fetched from another replica.
        After more failures in a row than replicas, and than three, end the consumer with
        ``UnreadableBatch``."""
        reader.corrupt += 1
        replicas = self._metadata.replicas(reader.incarnation)
        if reader.corrupt > max(CORRUPT_RETRIES_MAX, len(replicas)):
            self.error = unreadable(self.topic, reader.partition, reader.fetch_offset, -1,
                                    damage)
        if reader.node in self._metadata.nodes:
            self._corruption_reports.append(Query(
                self._metadata.nodes[reader.node],
                ReportCorruption(reader.incarnation, reader.fetch_offset), (),
                self.settings.request_timeout_ms))
        reader.replicas.avoid(reader.node, now_ms)
        reader.part = None
        self._metadata.want(self.topic)
        self._pause(reader, damage, now_ms)

    def _worked(self, reader: Reader) -> None:
        reader.failures = 0
        reader.failing_since_ms = None
        reader.problem = None
        reader.moves = 0

    # ---- failures ----

    def _failed(self, reader: Reader, code: int | None, detail: ErrorDetail | None,
                now_ms: int) -> None:
        """Process the refusal of one partition: choose another node or group and pause, or end the
        consumer if the refusal is final.  ``code`` None: there was no answer."""
        error = (exception_for(code, detail) if code is not None
                 else TimedOut(f"no answer: {detail.text if detail is not None else ''}"))
        if code == Code.MOVED and self._knows_where(reader, error.detail):
            if reader.moves <= MOVES_MAX:
                self._later(now_ms)
            else:  # nodes that redirect to each other: some of them lag behind
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
        elif code == Code.OFFSET_OUT_OF_RANGE and self._is_reset(reader, error.detail):
            self._reset(reader, error.detail.start_offset)
            self._later(now_ms)
            return
        elif code is not None and error.definite and not error.retriable and (
                code != Code.UNKNOWN_PARTITION):
            self.error = error
            if code == Code.OFFSET_OUT_OF_RANGE and error.detail.end_offset >= 0:
                self.error = self._out_of_range(reader, error.detail.start_offset,
                                                error.detail.end_offset)
        self._pause(reader, error, now_ms)

    def _knows_where(self, reader: Reader, detail: ErrorDetail) -> bool:
        """Learn from a MOVED answer which group has the offsets.  Returns True if the address of a
        node to ask next is known."""
        is_end = self._metadata.moved(reader.incarnation, detail)
        reader.moves += 1
        reader.part = None
        if detail.leader in self._metadata.nodes and (not is_end or reader.asks == SEARCH):
            reader.part = Part(detail.leader, detail.epoch, detail.end_offset)
        return reader.part is not None or (is_end and reader.asks != SEARCH)

    def _rewindable(self, reader: Reader) -> bool:
        """Return True if the start can be resolved again: it was no offset, and retention deleted
        it before the first record was read."""
        return (type(reader.start) is not int and not reader.begun
                and reader.failures < RESOLVE_RETRIES_MAX)

    def _is_reset(self, reader: Reader, detail: ErrorDetail) -> bool:
        """Return True if the reader continues elsewhere, because the records at its offset were
        deleted. An offset beyond the end is an error with every setting."""
        return (self.settings.offset_reset != NO_RESET
                and 0 <= reader.fetch_offset < detail.start_offset)

    def _reset(self, reader: Reader, log_start: int) -> None:
        """Continue at the log start, or have the end resolved, and add the gap."""
        self._gaps.append(self._gap(reader, log_start))
        reader.fetch_offset = log_start
        if not reader.buffered_bytes:  # else its last batch is taken first
            reader.position = log_start
        if self.settings.offset_reset == LATEST:
            reader.start, reader.search, reader.resolved = LATEST, None, False

    def _gap(self, reader: Reader, log_start: int) -> Gap:
        return Gap(self.topic, reader.partition, reader.fetch_offset, log_start)

    def _pause(self, reader: Reader, error: MultiRaftError, now_ms: int) -> None:
        reader.problem = error
        reader.failures += 1
        reader.retry_at_ms = now_ms + backoff_ms(self._limits, reader.failures, self._rng)
        self._later(reader.retry_at_ms)
        self._unavailable(reader, now_ms)

    def _unavailable(self, reader: Reader, now_ms: int) -> None:
        """End the consumer with the partition's last error after ``unavailable_ms`` without a
        success; before that, only set the deadline."""
        if reader.failing_since_ms is None:
            reader.failing_since_ms = now_ms
        give_up_ms = reader.failing_since_ms + self.settings.unavailable_ms
        if now_ms >= give_up_ms and self.error is None:
            self.error = self._given_up(reader)
        self._later(give_up_ms)

    def _given_up(self, reader: Reader) -> MultiRaftError:
        """Return the last error of a partition that was not read for ``unavailable_ms``, with its
        group and the members that answered."""
        name = f"{self.topic}/{reader.partition}"
        why = self._metadata.why_unavailable(reader.incarnation)
        waited = duration(self.settings.unavailable_ms)
        problem = reader.problem
        if problem is None:
            error: MultiRaftError = TimedOut(f"{name}: not read for {waited}{why}")
        elif isinstance(problem, RequestError):
            error = exception_for(problem.code, problem.detail._replace(
                text=f"{name}: not read for {waited}: {problem}{why}"))
        else:
            return problem
        return error.about(self.topic, reader.partition)
