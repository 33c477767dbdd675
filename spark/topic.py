"""Reader of ``__metrics`` through the data source, and snapshots of its newest windows.

Contract.  ``snapshot`` reads the last minutes first; when they hold no whole window, it reads
everything that a plan may be made from.  ``Source`` has the data source's options of the cluster.
Raises ``BadSnapshot``; PySpark's own errors pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from spark import load_records, windows
from spark.errors import BadSnapshot
from spark.load_records import TOPIC
from spark.windows import Facts, Span

#: Time span that is read first: windows of a minute, and some more.
NEAR_MS = (windows.WINDOWS + 3) * 60_000


class Source(NamedTuple):
    """Options of the data source for the cluster and its connection."""

    options: Mapping[str, str]


class Made(NamedTuple):
    """Description of a written snapshot: its windows, its number of partitions, and the sentence
    about left out records."""

    span: Span
    partitions: int
    complaint: str


def records(session: SparkSession, source: Source, since_ms: int) -> DataFrame:
    """Return a frame of the topic's records from ``since_ms`` on, as ``load_records.parsed``
    returns them; records that retention removed are left out."""
    frame = (session.read.format("multiraft").options(**source.options)
             .option("subscribe", TOPIC).option("columns", "value")
             .option("failOnDataLoss", "false")  # records that retention removed are not needed
             .option("startingTimestamp", str(since_ms))
             .option("startingOffsetsByTimestampStrategy", "latest").load())
    return load_records.parsed(frame)


def snapshot(session: SparkSession, source: Source, facts: Facts, now_ms: int, age_max_ms: int,
             directory: str, most: int = windows.WINDOWS) -> Made:
    """Write the snapshot of the newest windows that every node which is up has reported, at most
    ``most``, to ``directory``. Return its description. Raises ``BadSnapshot`` if there is no such
    window, or the directory cannot be written."""
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
