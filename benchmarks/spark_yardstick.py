"""Data source that generates the rows of a topic in memory: the yardstick of bench_spark.

Contract.  Batches have the schema and the size of those of the data source ``multiraft``; one is
made per task and returned again and again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_multiraft.options import DEFAULT_COLUMNS
from pyspark_multiraft.rows import BYTES_MAX, ROWS_MAX, arrow_schema
from pyspark_multiraft.schema import spark_schema

TASKS = 8


class FromNothing(DataSource):
    """Source of ``count`` rows with values of ``size`` bytes."""

    @classmethod
    def name(cls) -> str:
        return "from-nothing"

    def schema(self) -> StructType:
        return spark_schema(DEFAULT_COLUMNS)

    def reader(self, schema: StructType) -> _Reader:
        return _Reader(int(self.options["count"]), int(self.options["size"]))


class _Reader(DataSourceReader):
    def __init__(self, count: int, size: int):
        self._count = count
        self._size = size

    def partitions(self) -> list[InputPartition]:
        edges = [self._count * at // TASKS for at in range(TASKS + 1)]
        return [InputPartition(last - first) for first, last in zip(edges, edges[1:])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        rows = min(ROWS_MAX, BYTES_MAX // (self._size + 16), partition.value)
        value = os.urandom(self._size)
        batch = pa.RecordBatch.from_arrays([
            pa.array(["topic"] * rows), pa.array([0] * rows, pa.int32()),
            pa.array(range(rows), pa.int64()),
            pa.array([1_700_000_000_000_000] * rows, pa.timestamp("us", tz="UTC")),
            pa.nulls(rows, pa.binary()), pa.array([value] * rows, pa.binary()),
        ], schema=arrow_schema(DEFAULT_COLUMNS))
        for _ in range(partition.value // rows):
            yield batch
        if partition.value % rows:
            yield batch.slice(0, partition.value % rows)
