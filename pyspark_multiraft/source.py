"""Entry point of the data source: one object per query, which checks options and creates readers
and writers.

Contract.  This module opens no connection.  Wrong options are ``OptionError``s at ``load()``,
before anything runs.  Readers and writers are imported when they are requested: Spark imports this
module for every query of a session, also for those that do not use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from pyspark_multiraft.reading import MultiRaftReader
    from pyspark_multiraft.streaming import MultiRaftStreamReader
    from pyspark_multiraft.writing import MultiRaftStreamWriter, MultiRaftWriter


class MultiRaftDataSource(DataSource):
    """The data source behind ``spark.read.format("multiraft")`` and its relatives."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "multiraft"

    def schema(self) -> StructType:
        """Return the schema that the options request."""
        from pyspark_multiraft.options import parse_columns
        from pyspark_multiraft.schema import spark_schema
        return spark_schema(parse_columns(self.options))

    def reader(self, schema: StructType) -> MultiRaftReader:
        """Return a batch reader."""
        from pyspark_multiraft.options import parse_read
        from pyspark_multiraft.reading import MultiRaftReader, PushdownReader
        from pyspark_multiraft.schema import require_schema
        options = parse_read(self.options)
        require_schema(schema, options.columns)
        return (PushdownReader if options.pushdown else MultiRaftReader)(options)

    def streamReader(self, schema: StructType) -> MultiRaftStreamReader:
        """Return a stream reader."""
        from pyspark_multiraft.options import STREAM, parse_read
        from pyspark_multiraft.schema import require_schema
        from pyspark_multiraft.streaming import MultiRaftStreamReader
        options = parse_read(self.options, STREAM)
        require_schema(schema, options.columns)
        return MultiRaftStreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> MultiRaftWriter:
        """Return a batch writer."""
        from pyspark_multiraft.options import parse_write
        from pyspark_multiraft.writing import MultiRaftWriter
        return MultiRaftWriter(parse_write(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MultiRaftStreamWriter:
        """Return a stream writer."""
        from pyspark_multiraft.options import parse_write
        from pyspark_multiraft.writing import MultiRaftStreamWriter
        return MultiRaftStreamWriter(parse_write(self.options), schema)
