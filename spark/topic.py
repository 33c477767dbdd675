"""``__metrics`` read through the data source, and a snapshot made of its newest windows.

Contract.  ``snapshot`` reads no further back than it has to: the last minutes, and when they hold
no whole window all that a plan may be made from.  ``Source`` is how the data source reaches the
cluster.  Raises ``BadSnapshot``; PySpark's own errors pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark import load_records, windows
from spark.errors import BadSnapshot
from spark.load_records import TOPIC
from spark.windows import Facts, Span

#: As far back as is read first: windows of a minute, and some more.
NEAR_MS = (windows.WINDOWS + 3) * 60_000


class Source(NamedTuple):
    """Options of the data source that say which cluster, and how it is reached."""

    options: Mapping[str, str]


class Made(NamedTuple):
    """A snapshot that was written: of which windows, with how many partitions, and what was left
    out of it."""

    span: Span
    partitions: int
    complaint: str


def records(session: SparkSession, source: Source, since_ms: int) -> DataFrame:
    """The topic's records from then on."""
    frame = (session.read.format("multiraft").options(**source.options)
             .option("subscribe", TOPIC).option("columns", "value")
             .option("failOnDataLoss", "false")  # what is too old is not missed
             .option("startingTimestamp", str(since_ms))
             .option("startingOffsetsByTimestampStrategy", "latest").load())
    return load_records.parsed(frame)


def snapshot(session: SparkSession, source: Source, facts: Facts, now_ms: int, age_max_ms: int,
             directory: str, most: int = windows.WINDOWS) -> Made:
    """Write the snapshot of the newest windows, ``most`` of them, that every node which is up
    told of."""
    cluster_id = facts.snapshot.cluster_id
    wanted = {row.id for row in facts.snapshot.nodes} - set(facts.down)
    for back_ms in sorted({min(NEAR_MS, age_max_ms), age_max_ms}):
        found = records(session, source, now_ms - back_ms)
        told = load_records.told(found, cluster_id)
        try:
            span = windows.chosen(told, wanted, now_ms, most)
        except BadSnapshot:
            if back_ms == age_max_ms:
                raise
            continue
        usable = load_records.within(found, cluster_id, span.begins_ms[0], span.end_ms)
        return Made(span, windows.write(usable, told, facts, span, directory), told.complaint)
    raise AssertionError("the loop ends with the largest")
