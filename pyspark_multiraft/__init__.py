"""Spark data source for topics: ``spark.read.format("multiraft")``, found by Spark itself.

Contract.  Spark looks for a ``DefaultSource`` in every installed top-level package whose name
begins with ``pyspark_``, on the driver and for every query; imports stay light.
"""

from pyspark_multiraft.source import MultiRaftDataSource as DefaultSource

__all__ = ["DefaultSource"]
