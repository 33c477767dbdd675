"""Batch reads: ranges are planned on the driver and read by tasks.

Contract.  A reader is pickled: it holds values, no connection.  A task opens one connection, reads
its ranges and closes it, also when Spark stops listening (a LIMIT).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from multiraft.client import UnreadableBatch
from multiraft.client.ranges import ConsumerSettings, DataLost, Range, read_ranges
from pyspark_multiraft import planning
from pyspark_multiraft.failures import explained
from pyspark_multiraft.options import ReadOptions
from pyspark_multiraft.pushdown import Bounds
from pyspark_multiraft.rows import Rows

#: Size of one fetch of a large range; a batch has 8 MiB at most.
FETCH_BYTES = 4 << 20


def read_task(options: ReadOptions, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of some ranges as record batches, over a connection of its own. Losses and
    unreadable batches are logged or raise, as the options say. The error is a ``SourceError``, as
    for a cluster that refuses or does not answer."""
    settings = ConsumerSettings(partition_bytes_max=FETCH_BYTES, prefer=options.prefer,
                                rack=options.rack, isolation=options.isolation)
    rows = Rows(options.columns)

    def note(loss: DataLost) -> None:
        planning.warn_or_fail(options, str(loss))

    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        for part, batch in read_ranges(client, ranges, settings, on_loss=note):
            try:
                yield from rows.add(batch, part.end_offset)
            except UnreadableBatch as error:
                if not options.skip_unreadable:
                    raise
                planning.log.warning("%s; reading continues (skipUnreadable=true)", error)
        yield from rows.rest()


class MultiRaftReader(DataSourceReader):
    """Reader of one batch query."""

    def __init__(self, options: ReadOptions):
        self._options = options
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster, and return the tasks, each a tuple of ranges. Raises ``SourceError`` for
        offsets that do not fit the topic, and if the cluster refuses or does not answer."""
        options = self._options
        with explained(options.connection.servers), \
                planning.open_client(options.connection) as client:
            ranges = planning.batch_ranges(client, options, self._bounds.admits)
            ranges = [self._bounds.cut(client, part) for part in ranges]
            return [InputPartition(task) for task in planning.tasks_of(client, options, ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; a query without ranges has one task without a value."""
        return read_task(self._options, partition.value or ())


class PushdownReader(MultiRaftReader):
    """Reader with filter pushdown.  A class of its own: Spark refuses every query of a reader that
    takes filters unless spark.sql.python.filterPushdown.enabled is set."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Use the filters that narrow the ranges; yield those that Spark still has to apply."""
        return self._bounds.take(filters)
