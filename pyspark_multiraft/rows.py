"""Conversion of fetched batches to rows of a table, in Arrow's memory.

Contract.  Results of ``Rows`` equal the schema exactly, or Spark refuses them.  No Python per
record: a batch is decoded by ``multiraft.core.ColumnBuilder`` into memory that Arrow takes over
without a copy; Arrow repeats the values that all records of a batch have in common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from multiraft import core
from multiraft.client import FetchedBatch

#: Rows and bytes that are passed to Spark at once: large enough that the cost per batch is small,
#: small enough that the data is still in the processor's cache when it is copied.
ROWS_MAX = 32_768
BYTES_MAX = 4 << 20

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_TYPES = {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(),
          "timestamp": pa.timestamp("us", tz="UTC"), "key": pa.binary(), "value": pa.binary(),
          "headers": pa.list_(pa.field("element", _HEADER)), "epoch": pa.int32()}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the table's schema."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class Rows:
    """Converter: takes fetched batches, returns record batches of Arrow."""

    def __init__(self, columns: Sequence[str]):
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._builder = core.ColumnBuilder("key" in columns, "value" in columns,
                                           "headers" in columns)
        #: (topic, partition, epoch) that rows have in common, and the end of these rows.
        self._runs: list[tuple[str, int, int]] = []
        self._ends: list[int] = []

    def add(self, batch: FetchedBatch, end_offset: int) -> Iterator[pa.RecordBatch]:
        """Add the records of ``batch`` below ``end_offset``; yield record batches that are large
        enough."""
        if batch.into(self._builder, end_offset):
            run = (batch.topic, batch.partition, batch.header.leader_epoch)
            if self._runs and self._runs[-1] == run:
                self._ends[-1] = self._builder.count
            else:
                self._runs.append(run)
                self._ends.append(self._builder.count)
        if self._builder.count >= ROWS_MAX or self._builder.size >= BYTES_MAX:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows as one record batch, if there are any."""
        if self._builder.count:
            taken = self._builder.take()
            runs, ends = self._runs, self._ends
            self._runs, self._ends = [], []
            arrays = [_ARRAYS[name](taken, runs, ends) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _repeated(at: int, kind: pa.DataType):
    """Return a function that builds a column with one value for all records of a run: item ``at``
    of the run."""
    def array(taken: core.Columns, runs: list, ends: list) -> pa.Array:
        values = pa.array([run[at] for run in runs], kind)
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()),
                                                                   values))
    return array


def _buffer(held: bytearray | None) -> pa.Buffer | None:
    return None if held is None else pa.py_buffer(held)


def _offsets(taken: core.Columns, runs: list, ends: list) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), taken.count, [None, _buffer(taken.offsets)])


def _timestamps(taken: core.Columns, runs: list, ends: list) -> pa.Array:
    return pa.Array.from_buffers(_TYPES["timestamp"], taken.count, [
        _buffer(taken.timestamps_valid), _buffer(taken.timestamps_us)])


def _bytes(column: core.BytesColumn, kind: pa.DataType, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [
        _buffer(column.valid), _buffer(column.ends), _buffer(column.content)], column.nulls)


def _headers(taken: core.Columns, runs: list, ends: list) -> pa.Array:
    count = len(taken.headers.names.ends) // 4 - 1
    pairs = pa.StructArray.from_arrays(
        [_bytes(taken.headers.names, pa.string(), count),
         _bytes(taken.headers.values, pa.binary(), count)], fields=list(_HEADER))
    return pa.Array.from_buffers(_TYPES["headers"], taken.count,
                                 [None, _buffer(taken.headers.ends)], children=[pairs])


_ARRAYS = {
    "topic": _repeated(0, pa.string()), "partition": _repeated(1, pa.int32()),
    "epoch": _repeated(2, pa.int32()), "offset": _offsets, "timestamp": _timestamps,
    "key": lambda taken, runs, ends: _bytes(taken.keys, pa.binary(), taken.count),
    "value": lambda taken, runs, ends: _bytes(taken.values, pa.binary(), taken.count),
    "headers": _headers}
