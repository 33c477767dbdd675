"""Stream reads: the offsets of each batch, and the tasks that read it.

Contract.  Offsets have the format of ``positions.py``; a batch between two of them reads the same
records however often it is run, because partitions only grow.  A partition or, with a pattern, a
topic that appears later is read from its first record.  Limits bound a batch; every partition with
new records gets a share of it, so that none waits behind a busy one.

Theory.  Spark keeps one process per query for the driver's side, and asks it for the latest offset
once per batch: one client lives as long as the query, and each request for the latest offset costs
a few requests to the cluster for thousands of partitions.  With ``availableNow`` the end is fixed
when the query starts.  A repeated batch is cut into the same tasks, because its offsets contain
everything that decides the cut: a sink that recognises tasks (``writing.py``) sees the same rows in
each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from multiraft.client.blocking import Client
from multiraft.client.ranges import Range
from pyspark_multiraft import planning, splits
from pyspark_multiraft.failures import SourceError, explained
from pyspark_multiraft.options import ReadOptions
from pyspark_multiraft.planning import Partition
from pyspark_multiraft.positions import (
    StreamOffsets,
    TopicOffsets,
    dump_offsets,
    load_offsets,
)
from pyspark_multiraft.reading import read_task

Key = tuple[str, int]


class MultiRaftStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of one stream query."""

    def __init__(self, options: ReadOptions):
        self._options = options
        self._client: Client | None = None
        self._last: StreamOffsets | None = None  # offsets at which availableNow ends

    def __getstate__(self) -> dict:
        """Return the state without the client: tasks get values, no connection."""
        return {"_options": self._options, "_client": None, "_last": None}

    # ---- the driver ----

    def initialOffset(self) -> dict:
        """Return the offsets at which a query without a checkpoint begins. Raises ``SourceError``
        if the cluster refuses or does not answer, and for an offset beyond the end."""
        with explained(self._options.connection.servers):
            parts = self._partitions(lambda name: False)
            starts = planning.offsets_of(self._open(), self._options, "starting",
                                         self._options.starting, parts)
            for part, start in starts.items():
                self._require_inside(part, start)
            return dump_offsets(_grouped(parts, lambda part: starts[part]))

    def latestOffset(self, start: dict, limit: ReadLimit) -> dict:
        """Return the offsets at which the next batch ends that begins at ``start``, within
        ``limit``; ``start`` itself = there is nothing new. Raises ``SourceError`` if the cluster
        refuses or does not answer, and for losses with failOnDataLoss."""
        with explained(self._options.connection.servers):
            begun = load_offsets(start)
            parts = self._partitions(begun.__contains__)
            ends = self._ends(parts)
            ranges = self._ranges(begun, parts, ends)
            bytes_of = planning.sizes(self._open(), ranges)
            if not isinstance(limit, ReadAllAvailable):
                ranges = self._limited(ranges, limit, bytes_of)
            reached = {(part.topic, part.partition): part.end_offset for part in ranges}
            kept = _offsets_by_key(begun)
            found = _grouped(parts, lambda part: reached.get(
                (part.topic, part.number), kept.get((part.topic, part.number), 0)))
            return start if found == begun else dump_offsets(found, _record_bytes(ranges, bytes_of))

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch, as the options give it.  With both limits Spark gets the
        rows, and the bytes limit them as well (``_limited``)."""
        if self._options.offsets_per_trigger:
            return ReadMaxRows(self._options.offsets_per_trigger)
        if self._options.bytes_per_trigger:
            return ReadMaxBytes(self._options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the current end as the end of the query."""
        with explained(self._options.connection.servers):
            self._last = _grouped(self._partitions(), lambda part: part.decided_offset)

    def reportLatestOffset(self) -> dict:
        """Return the ends of the partitions, for metrics of how far the query is behind."""
        with explained(self._options.connection.servers):
            return dump_offsets(_grouped(self._partitions(), lambda part: part.end_offset))

    def partitions(self, start: dict, end: dict) -> Sequence[InputPartition]:
        """Return the tasks of the batch between two offsets; ranges whose topic was deleted are
        reported as lost. Raises ``SourceError`` for losses with failOnDataLoss, and if the cluster
        refuses or does not answer."""
        with explained(self._options.connection.servers):
            begun, ended = load_offsets(start), load_offsets(end)
            by_key = {(part.topic, part.number): part for part in self._partitions()}
            ranges = [self._planned(by_key.get(key), key, first, last, begun, ended)
                      for key, (first, last) in sorted(_between(begun, ended).items())]
            record_bytes = end["record_bytes"] or planning.RECORD_BYTES_GUESS
            tasks = splits.split([part for part in ranges if part is not None],
                                 lambda part: part.count * record_bytes,
                                 self._options.split_bytes, self._options.min_partitions)
            return [InputPartition(task) for task in tasks]

    def stop(self) -> None:
        """Close the client; the query has ended."""
        if self._client is not None:
            self._client.close()
            self._client = None

    # ---- tasks ----

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return read_task(self._options, partition.value or ())

    # ---- parts ----

    def _open(self) -> Client:
        if self._client is None or self._client.closed:  # a client is closed in a forked process
            self._client = planning.open_client(self._options.connection)
        return self._client

    def _partitions(self, may_lack: Callable[[str], bool] = lambda name: True) -> list[Partition]:
        return planning.partitions_of(self._open(), self._options.topics, may_lack,
                                      self._options.isolation)

    def _require_inside(self, part: Partition, start: int) -> None:
        if start > part.end_offset:
            raise SourceError(f"startingOffsets: offset {start} of {part.name} is beyond the end, "
                              f"{part.end_offset}. Correct it.")

    def _ends(self, parts: Sequence[Partition]) -> dict[Key, int]:
        """Return the offsets up to which the partitions may be read now: with ``availableNow`` at
        most those of the query's start."""
        ends = {(part.topic, part.number): part.decided_offset for part in parts}
        if self._last is None:
            return ends
        last = _offsets_by_key(self._last)
        return {key: min(end, last.get(key, 0)) for key, end in ends.items()}

    def _ranges(self, begun: StreamOffsets, parts: Sequence[Partition],
                ends: Mapping[Key, int]) -> list[Range]:
        """Return the range of new records of each partition, empty ones too. A topic that is gone
        or was created again is reported as lost."""
        kept = _offsets_by_key(begun)
        self._note_missing(begun, parts)
        found = []
        for part in parts:
            key = (part.topic, part.number)
            first = kept.get(key, 0)
            if part.topic in begun and begun[part.topic].incarnation != part.topic_incarnation:
                self._lost(f"topic {part.topic!r} was deleted and created again")
                first = 0
            # Deleted offsets are part of the batch, and reported where it is planned. They count
            # for no limit, or a batch of a limited stream could consist of them alone.
            first = max(first, part.start_offset)
            found.append(Range(*key, part.incarnation, first, max(first, ends[key])))
        return found

    def _note_missing(self, begun: StreamOffsets, parts: Sequence[Partition]) -> None:
        gone = sorted(set(begun) - {part.topic for part in parts})
        if gone:
            self._lost(f"topics {', '.join(gone)} no longer exist")

    def _lost(self, what: str) -> None:
        planning.warn_or_fail(self._options, what)

    def _limited(self, ranges: Sequence[Range], limit: ReadLimit,
                 bytes_of: Callable[[Range], float]) -> list[Range]:
        """Return the ranges, shortened to the limit's number of rows and of bytes, shared out by
        the new records of each."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else 0
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else (
            self._options.bytes_per_trigger)
        total = sum(part.count for part in ranges)
        if size:
            all_bytes = sum(map(bytes_of, ranges))
            if all_bytes > size:
                # At least one: a record larger than the limit must not stop the query.
                by_size = max(1, int(total * size / all_bytes))
                rows = min(rows, by_size) if rows else by_size
        return shared_out(ranges, rows) if rows and rows < total else list(ranges)

    def _planned(self, part: Partition | None, key: Key, first: int, last: int,
                 begun: StreamOffsets, ended: StreamOffsets) -> Range | None:
        """Return one partition's range of a batch; None where all of it is lost. Losses are logged,
        or raise ``LossError`` with ``failOnDataLoss``."""
        name = f"{key[0]}/{key[1]}"
        if part is None or part.topic_incarnation != ended[key[0]].incarnation:
            self._lost(f"{name}: the topic of offsets {first}..{last - 1} was deleted")
            return None
        if first < part.start_offset and first < last:
            self._lost(f"{name}: offsets {first}..{min(last, part.start_offset) - 1} are gone, the "
                       f"log begins at {part.start_offset}")
            first = min(last, part.start_offset)
        return Range(*key, part.incarnation, first, last)


def shared_out(ranges: Sequence[Range], rows: int) -> list[Range]:
    """Return the first records of each range, ``rows`` of them together, each range by its share;
    the remainder of rounding goes to the first ones.  O(ranges)."""
    total = sum(part.count for part in ranges)
    shares = [part.count * rows // total for part in ranges]
    left = rows - sum(shares)
    found = []
    for part, share in zip(ranges, shares, strict=True):
        extra = min(left, part.count - share, 1)
        left -= extra
        found.append(part._replace(end_offset=part.start_offset + share + extra))
    return found


def _record_bytes(ranges: Sequence[Range], bytes_of: Callable[[Range], float]) -> int:
    """Return the estimated size of a record of these ranges; 0 when there is none."""
    records = sum(part.count for part in ranges)
    return max(1, round(sum(map(bytes_of, ranges)) / records)) if records else 0


def _grouped(parts: Sequence[Partition], offset_of: Callable[[Partition], int]) -> StreamOffsets:
    """Return offsets of partitions grouped by topic."""
    topics: dict[str, list[tuple[int, int]]] = {}
    incarnations = {part.topic: part.topic_incarnation for part in parts}
    for part in parts:
        topics.setdefault(part.topic, []).append((part.number, offset_of(part)))
    return {topic: TopicOffsets(incarnations[topic], tuple(sorted(each)))
            for topic, each in topics.items()}


def _offsets_by_key(offsets: StreamOffsets) -> dict[Key, int]:
    return {(topic, partition): offset for topic, found in offsets.items()
            for partition, offset in found.next}


def _between(begun: StreamOffsets, ended: StreamOffsets) -> dict[Key, tuple[int, int]]:
    """Return partition -> (first offset, end) of a batch. A partition that did not exist at the
    begin, or belonged to another topic of that name, starts with its first record."""
    starts = _offsets_by_key(begun)
    found = {}
    for (topic, partition), last in _offsets_by_key(ended).items():
        same = topic in begun and begun[topic].incarnation == ended[topic].incarnation
        first = starts.get((topic, partition), 0) if same else 0
        found[topic, partition] = (min(first, last), last)
    return found

