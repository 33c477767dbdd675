"""Writes: rows of a DataFrame become records, in batches and in streams.

Contract.  The columns are those of Spark's Kafka sink: ``value`` (binary or text), and optionally
``key``, ``topic``, ``partition``, ``timestamp``, ``headers``.  A successful task has every row
acknowledged by a majority.  Rows that a task appended before it failed stay.

*at-least-once*: a repeated task appends its rows again.  *transactional*: see ``transactions.py``.
*idempotent*: a repeated task appends the missing rows.  A task's batches carry sequences under a
producer id derived from the sink's name and the task's number, with the number of Spark's batch as
epoch; the leader recognises a batch and answers with its first offset.  So the same rows have to
come in the same order to the same task: Spark repeats a stream's batch with the same offsets and
the same number of shuffle partitions, and the query must be deterministic otherwise (no rand(), no
changing lookups).

Theory.  A leader remembers the last five batches of a producer id per partition; a task that has
more uses several ids, one after the other, each for so many bytes that these cannot be more than
five batches.  Where batches end depends on the rows alone: there is no lingering, and every record
has a partition before it is given to the producer.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from multiraft.client.blocking import Client, Producer, Record
from multiraft.client.staging import Transaction
from multiraft.codec import layout
from multiraft.errors import RecordTooLarge
from multiraft.wire.errors import UnknownTopic
from pyspark_multiraft import planning, transactions
from pyspark_multiraft.failures import OptionError, SourceError, explained
from pyspark_multiraft.options import AT_LEAST_ONCE, IDEMPOTENT, TRANSACTIONAL, WriteOptions
from pyspark_multiraft.schema import HEADERS, said

BATCH_BYTES = 1 << 20
#: Any two batches in a row have more than BATCH_BYTES together, so these are at most five.  A
#: record that is larger than BATCH_BYTES is a batch by itself, one that is larger than this too.
BYTES_PER_IDENTITY = 3 * BATCH_BYTES
#: Size of a record beside its fields, at most: lengths, offset, time, and per header.
RECORD_OVERHEAD, HEADER_OVERHEAD = 48, 10
#: Rows without a key are appended to the partitions in turn, this many at a time.
ROWS_PER_TURN = 1_000
#: Epochs have 15 bits; later batches use other ids.
EPOCHS = 1 << 15
#: Ids that a cluster assigns count from 1; derived ids are far above.
_IDENTITY_BIT = 1 << 62
#: Practically unlimited: a batch ends when it is full.
NO_LINGER_MS = 3_600_000
_PROPERTIES = ("sql.streaming.queryId", "streaming.sql.batchId")

_ALLOWED = {"value": (BinaryType(), StringType()), "key": (BinaryType(), StringType()),
            "topic": (StringType(),), "partition": (IntegerType(),),
            "timestamp": (TimestampType(),), "headers": (HEADERS,)}


class Written(WriterCommitMessage):
    """Result of a task: the number of appended records."""

    def __init__(self, records: int):
        self.records = records


class Attempt(NamedTuple):
    """Identity of a writer: the sink, the task's number, the number of Spark's batch."""

    sink: str
    task: int
    batch: int

    def identity(self, chunk: int) -> tuple[int, int]:
        """Return (producer id, epoch) of part ``chunk`` of the task's rows."""
        name = f"{self.sink}\0{self.task}\0{chunk}\0{self.batch // EPOCHS}"
        digest = hashlib.sha256(name.encode()).digest()
        return _IDENTITY_BIT | int.from_bytes(digest[:8], "big") >> 2, self.batch % EPOCHS


def require_columns(schema: StructType, options: WriteOptions) -> None:
    """Return if rows of this schema are records. Raises ``SourceError`` otherwise, ``OptionError``
    when nothing names the topic."""
    wanted = ("value (binary or string), and if wanted key (binary or string), topic string, "
              "partition int, timestamp timestamp, headers array<struct<key:string,value:binary>>")
    for field in schema:
        if not any(same(field.dataType, kind) for kind in _ALLOWED.get(field.name, ())):
            raise SourceError(f"the column {field.name!r} of type {field.dataType.simpleString()} "
                              f"is no part of a record; the DataFrame has ({said(schema)}). Select "
                              f"and cast the columns to: {wanted}.")
    if "value" not in schema.names:
        raise SourceError(f"the DataFrame has no column 'value', only ({said(schema)}). Select "
                          f"and cast the columns to: {wanted}.")
    if not options.topic and "topic" not in schema.names:
        raise OptionError("nothing says which topic is written. Set the option 'topic', or have a "
                          "column 'topic'.")


def same(one, other) -> bool:
    """True if two types are the same, nullability aside."""
    return one.simpleString() == other.simpleString()


class MultiRaftWriter(DataSourceArrowWriter):
    """Writer of one batch query."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool):
        require_columns(schema, options)
        if overwrite:
            raise SourceError("a topic is a log and cannot be overwritten. Use .mode('append'), or "
                              "delete the topic and create it again before.")
        if options.mode == TRANSACTIONAL:
            raise OptionError("mode=transactional is for streams, whose batches have numbers. Use "
                              "mode=idempotent, or write the rows as a stream with "
                              ".trigger(availableNow=True).")
        if options.sink_id:
            raise OptionError("sinkId is for streams, whose batches have numbers; a batch write "
                              "names itself. Remove it.")
        self._options = options
        self._sink = uuid.uuid4().hex  # of this write: its tasks may be repeated, the write may not

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Append the rows of one task, and wait until they are acknowledged. Return the task's
        message, with their number. Raises ``SourceError`` for an unsuitable row or a refusal of the
        cluster."""
        context = TaskContext.get()
        attempt = Attempt(self._sink, context.partitionId(), 0)
        return write_task(self._options, attempt, iterator)


class MultiRaftStreamWriter(DataSourceStreamArrowWriter):
    """Writer of one stream query.  Spark creates one for each batch and in each process; the tasks'
    messages contain everything that ``commit`` and ``abort`` need."""

    def __init__(self, options: WriteOptions, schema: StructType):
        require_columns(schema, options)
        self._options = options
        self._nonce = uuid.uuid4().bytes  # common to the tasks of this execution of a batch

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append or, with mode=transactional, stage the rows of one task of one batch, and wait
        until they are acknowledged. Return the task's message for the commit. Raises
        ``SourceError`` for an unsuitable row or a refusal of the cluster, and if Spark does not
        tell which batch of which query it is."""
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) for name in _PROPERTIES)
        options = self._options
        if options.mode != AT_LEAST_ONCE and not (batch and (query or options.sink_id)):
            raise SourceError("this Spark does not tell which batch of which query is written, so "
                              f"mode={options.mode} cannot know a repeated one. Use a Spark of "
                              "version 4.2 or later, or mode=at-least-once.")
        attempt = Attempt(options.sink_id or query or "", context.partitionId(), int(batch or 0))
        if options.mode == TRANSACTIONAL:
            attempt = attempt._replace(sink=transactions.sink_name(options.sink_id, query or ""))
            return stage_task(options, attempt, self._nonce, iterator)
        return write_task(options, attempt, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Commit the transaction of the batch; other modes have nothing to do. Spark calls this
        when all tasks have succeeded."""
        if self._options.mode == TRANSACTIONAL:
            transactions.commit(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Abort the transaction of the batch, unless it is committed already; other modes have
        nothing to do."""
        if self._options.mode == TRANSACTIONAL:
            transactions.abort(self._options, messages)


def write_task(options: WriteOptions, attempt: Attempt,
               batches: Iterator[pa.RecordBatch]) -> Written:
    """Append all rows of a task, wait until they are acknowledged, and return their number as the
    task's message. Raises ``SourceError`` for an unsuitable row or a refusal of the cluster."""
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        sink = (_Identified if options.mode == IDEMPOTENT else _Plain)(client, options, attempt)
        return Written(_append_all(sink, batches))


def stage_task(options: WriteOptions, attempt: Attempt, nonce: bytes,
               batches: Iterator[pa.RecordBatch]) -> transactions.Staged:
    """Stage the rows of a task and wait until they are acknowledged. Rows of a batch that was
    committed before are computed and dropped.

    Raises ``SourceError`` for an unsuitable row, a refusal of the cluster, and a batch of too many
    tasks."""
    if attempt.task > layout.STAGED_TASKS_MAX:
        raise SourceError(f"mode=transactional takes {layout.STAGED_TASKS_MAX + 1} tasks of a "
                          "batch at most. Write from fewer partitions: .coalesce(n)")
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        txn = transactions.begin_transaction(
            client, attempt.sink, attempt.batch, nonce, attempt.task
        )
        if txn.committed:
            records = sum(batch.num_rows for batch in batches)
        else:
            records = _append_all(_Staging(client, options, attempt, txn), batches)
        return transactions.Staged(txn, records)


def _append_all(sink: _Plain, batches: Iterator[pa.RecordBatch]) -> int:
    """Append all rows and wait until they are acknowledged; return their number. Raises
    ``SourceError`` for a row that is too large, or a topic that does not exist."""
    try:
        for batch in batches:
            sink.add(batch)
        sink.end()
    except RecordTooLarge as error:
        raise SourceError(f"a row cannot be a record: {error}. Leave large rows out, or keep "
                          "their content elsewhere.") from None
    except UnknownTopic as error:
        raise SourceError(f"{error}. Create it: multiraft topic create TOPIC") from None
    return sink.records


class _Plain:
    """Appender without deduplication: at least once."""

    def __init__(self, client: Client, options: WriteOptions, attempt: Attempt):
        self.records = 0
        self._client = client
        self._options = options
        self._producer = self._open()

    def _open(self, **more) -> Producer:
        options = self._options
        return self._client.producer(batch_bytes=BATCH_BYTES, compression=options.compression,
                                     delivery_timeout_ms=options.delivery_timeout_ms, **more)

    def add(self, batch: pa.RecordBatch) -> None:
        """Hand the rows of a batch to the producer; ``end`` waits for them."""
        self.records += batch.num_rows
        if batch.schema.names == ["value"] and not batch.column(0).null_count:
            values = batch.column(0).cast(pa.binary()).to_pylist()
            self._producer.send_many(self._options.topic, values)
            return
        for record in records_of(batch, self._options.topic):
            self._send(record)

    def _send(self, record: Record) -> None:
        """Send a record.  Raises ``SourceError`` for a row that no record can hold: a time before
        1970, a header's name that is no text."""
        try:
            self._producer.send(record)
        except (TypeError, ValueError) as error:
            raise SourceError(f"a row cannot be a record: {error}. Correct its columns, or leave "
                              "it out.") from None

    def end(self) -> None:
        """Wait until every record has its outcome, and close the producer. Raises the first
        failure."""
        with self._producer:
            self._producer.flush()


class _Staging(_Plain):
    """Appender of staged rows: once, if the transaction commits; else not at all."""

    def __init__(self, client: Client, options: WriteOptions, attempt: Attempt,
                 txn: Transaction):
        self._txn = txn
        super().__init__(client, options, attempt)

    def _open(self, **more) -> Producer:
        return super()._open(identity=self._txn.identity, **more)

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage the rows of a batch."""
        topics = ([self._options.topic] if self._options.topic
                  else batch.column("topic").unique().to_pylist())
        for topic in topics:
            if topic is not None:
                transactions.stages_in(self._client, self._txn, topic)
        super().add(batch)


class _Identified(_Plain):
    """Appender with sequences: once, however often the task is run."""

    def __init__(self, client: Client, options: WriteOptions, attempt: Attempt):
        self._attempt = attempt
        self._chunk = 0
        self._sent_bytes = 0
        self._now_ms = time.time_ns() // 1_000_000
        self._partitions: dict[str, int] = {}
        super().__init__(client, options, attempt)

    def _open(self, **more) -> Producer:
        return super()._open(linger_ms=NO_LINGER_MS, identity=self._attempt.identity(self._chunk))

    def add(self, batch: pa.RecordBatch) -> None:
        """Hand the rows of a batch to the producer. Waits, and takes the next producer id, whenever
        the present one has ``BYTES_PER_IDENTITY``."""
        # All records of a task have one time unless the rows have their own: the encoded length of
        # times must not depend on when the task is run.
        default_ms = -1 if "timestamp" in batch.schema.names else self._now_ms
        for record in records_of(batch, self._options.topic, default_ms):
            size = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"") + sum(
                HEADER_OVERHEAD + len(name.encode()) + len(value or b"")
                for name, value in record.headers)
            if self._sent_bytes and self._sent_bytes + size > BYTES_PER_IDENTITY:
                self._next_chunk()
            self._sent_bytes += size
            self._send(self._placed(record))
            self.records += 1

    def _next_chunk(self) -> None:
        self.end()
        self._chunk += 1
        self._sent_bytes = 0
        self._producer = self._open()

    def _placed(self, record: Record) -> Record:
        """Return the record with a partition that does not depend on other records."""
        if record.partition is not None or record.key is not None:
            return record
        count = self._partitions.get(record.topic)
        if count is None:
            count = len(self._client.topic_metadata(record.topic).partitions)
            self._partitions[record.topic] = count
        turn = self._attempt.task + self.records // ROWS_PER_TURN
        return record._replace(partition=turn % count)


def records_of(batch: pa.RecordBatch, topic: str, default_ms: int | None = None,
               ) -> Iterator[Record]:
    """Yield the rows of a batch as records for ``topic``, "" = that of the column. ``default_ms``:
    time of rows without one. Raises ``SourceError`` for a row without a topic."""
    columns = {name: _plain(name, batch.column(name)) for name in batch.schema.names}
    nothing = [None] * batch.num_rows
    topics = [topic] * batch.num_rows if topic else columns["topic"]
    rows = zip(topics, columns["value"], columns.get("key", nothing),
               columns.get("partition", nothing), columns.get("timestamp", nothing),
               columns.get("headers", nothing), strict=True)
    for name, value, key, partition, timestamp_ms, headers in rows:
        if name is None:
            raise SourceError("a row has null in the column 'topic', and no option 'topic' says "
                              "where it belongs. Leave such rows out, or set the option.")
        yield Record(name, value, key, partition,
                     default_ms if timestamp_ms is None else timestamp_ms,
                     tuple(map(_header, headers or ())))


def _plain(name: str, column: pa.Array) -> list:
    """Return a column as values that a record takes."""
    if name in ("value", "key"):
        column = column.cast(pa.binary())
    elif name == "timestamp":
        column = column.cast(pa.int64())
        return [None if each is None else each // 1000 for each in column.to_pylist()]
    return column.to_pylist()


def _header(pair: Mapping) -> tuple[str, bytes | None]:
    return pair["key"], pair["value"]
