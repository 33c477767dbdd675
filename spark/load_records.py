"""Reader of the topic ``__metrics``: from JSON records to rows of nodes, groups and partitions.

Contract.  ``parsed`` turns the records' values into columns; every value is checked.  ``told``
collects each record's fields about its node on the driver, and whether the record is usable: a
record that is no load record of this format and cluster, or whose tables have columns of different
lengths, is left out and counted, so that its window is incomplete and not wrong; ``within`` leaves
out the same records.  ``partition_rows`` and ``group_rows`` stay distributed.  The format is that
of ``node.observability.load_records``, which writes it; a test compares the two with
docs/spark-planning.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

#: Format of the records that are understood.
LOADS_FORMAT = 1
TOPIC = "__metrics"

#: field -> Spark's type, and what it means.
HEAD = {
    "v": ("int", "version of the record"),
    "cluster": ("string", "id, hexadecimal"),
    "node": ("int", "that tells"),
    "boot_epoch": ("bigint", "of its start; with node, window and part it names a record"),
    "window_ms": ("bigint", "beginning of the window, since 1970; a multiple of the interval"),
    "interval_ms": ("bigint", "from one window to the next"),
    "length_ms": ("bigint", "that was measured; less than the interval if the node started inside"),
    "part": ("int", "number of this record within the node's window"),
    "parts": ("int", "records of the node's window"),
    "rack": ("string", "of the node; \"\" = none"),
    "weight": ("double", "of the node"),
    "disk_used": ("bigint", "bytes of its data directory"),
    "disk_capacity": ("bigint", "bytes: those and what is free"),
    "ingress_capacity": ("bigint", "bytes per second; 0 = not known"),
    "egress_capacity": ("bigint", "bytes per second; 0 = not known"),
    "groups_led": ("int", "at the end of the window"),
    "bytes_in": ("bigint", "appended here as leader"),
    "records_in": ("bigint", "appended here as leader"),
    "appends": ("bigint", "batches appended here as leader"),
    "bytes_out": ("bigint", "answered to fetches, also of groups led elsewhere"),
    "records_out": ("bigint", "answered to fetches"),
    "fsync_p99_us": ("bigint", "99 of 100 writes to disk took less; -1 = there were none"),
    "commit_p99_us": ("bigint", "99 of 100 appends took less; -1 = there were none"),
    "left_out": ("bigint", "batches and answers of partitions beyond metrics.partitions_max"),
    "lost_windows": ("bigint", "that this process could not append"),
}
GROUPS = {
    "group": ("int", "led here for some of the window"),
    "bytes_in": ("bigint", "appended to it"),
    "bytes_out": ("bigint", "of it answered to fetches"),
    "stored": ("bigint", "bytes of its log here"),
}
PARTITIONS = {
    "incarnation": ("bigint", "identifies the partition"),
    "topic": ("string", ""),
    "partition": ("int", "number within the topic"),
    "group": ("int", "that takes its appends at the end of the window"),
    "epoch": ("bigint", "of its last link"),
    "links": ("int", "length of its chain; 0 = where the hash puts it"),
    "bytes_in": ("bigint", "appended to it"),
    "records_in": ("bigint", "appended to it"),
    "appends": ("bigint", "batches appended to it"),
    "bytes_out": ("bigint", "of it answered to fetches by its leader"),
    "records_out": ("bigint", "of it answered to fetches by its leader"),
    "reads": ("bigint", "answers with something of it"),
    "first_offset": ("bigint", "that can be read"),
    "next_offset": ("bigint", "that the next record gets"),
    "moved_ms": ("bigint", "when it was last switched; 0 = never"),
    "compacted": ("boolean", "its topic is compacted by key; missing = no"),
}
TABLES = {"groups": GROUPS, "partitions": PARTITIONS}

#: Identifies a record.
KEY = ("node", "boot_epoch", "window_ms", "part")
_CAN_BE = "can_be"
#: Rates are computed for counts below this; larger counts are absurd in any unit, and are left for
#: the gates to report.
_PLAIN_MAX = 1 << 52


class Told(NamedTuple):
    """Node fields of usable records, one row each, and why other records are not used."""

    rows: list[dict]
    malformed: int
    foreign: int
    formats: tuple[int, ...]  # formats of other releases

    @property
    def complaint(self) -> str:
        """Return a sentence about the records that were left out; empty = none."""
        parts = [f"{count} {what}" for count, what in (
            (self.malformed, "that are no load records"), (self.foreign, "of other clusters"))
            if count]
        if self.formats:
            parts.append(f"some of format {', '.join(map(str, self.formats))}, this program reads "
                         f"format {LOADS_FORMAT}")
        return f"Records of {TOPIC} were left out: {'; '.join(parts)}." if parts else ""


def schema() -> str:
    """Return the schema of a record as Spark's DDL."""
    plain = [f"`{name}` {type_}" for name, (type_, _) in HEAD.items()]
    nested = [f"`{table}` STRUCT<" + ", ".join(
        f"`{name}`: ARRAY<{type_}>" for name, (type_, _) in columns.items()) + ">"
        for table, columns in TABLES.items()]
    return ", ".join([*plain, *nested])


def parsed(frame: DataFrame) -> DataFrame:
    """Return one row per record of a frame with the column ``value``, with a flag whether the
    record is possible."""
    record = sf.from_json(sf.col("value").cast("string"), schema())
    rows = _with_compacted(frame.select(record.alias("record")).select("record.*"))
    said = [sf.col(name).isNotNull() for name in HEAD]
    even = [_even(table, columns) for table, columns in TABLES.items()]
    can_be = functools.reduce(Column.__and__, [*said, *even, *_possible()])
    return rows.withColumn(_CAN_BE, sf.coalesce(can_be, sf.lit(False)))


def _with_compacted(rows: DataFrame) -> DataFrame:
    """Return records with a value for each partition of whether its topic is compacted: nodes of
    earlier builds do not say it."""
    partitions = sf.col("partitions")
    none = sf.array_repeat(sf.lit(False), sf.size(partitions["incarnation"]))
    return rows.withColumn("partitions", partitions.withField(
        "compacted", sf.coalesce(partitions["compacted"], none)))


def _possible() -> list[Column]:
    """Return the conditions that the numbers of a valid record satisfy."""
    length_ms, interval_ms, window_ms, part, parts = map(
        sf.col, ("length_ms", "interval_ms", "window_ms", "part", "parts"))
    return [length_ms > 0, interval_ms > 0, part >= 0, part < parts, window_ms >= 0,
            sf.try_mod(window_ms, interval_ms) == 0]


def _even(table: str, columns: dict) -> Column:
    """Return the condition that all columns of a table have the same length."""
    sizes = [sf.coalesce(sf.size(sf.col(f"{table}.{name}")), sf.lit(-1)) for name in columns]
    return (sf.least(*sizes) == sf.greatest(*sizes)) & (sizes[0] >= 0)


def told(records: DataFrame, cluster_id: str) -> Told:
    """Collect the records' own fields on the driver: of each usable record one row, and counts of
    the others. O(records)."""
    rows = records.select(*HEAD, _CAN_BE).toArrow().to_pylist()
    usable: dict[tuple, dict] = {}
    malformed = foreign = 0
    formats = set()
    for row in rows:
        if row["v"] is not None and row["v"] != LOADS_FORMAT:
            formats.add(row["v"])
        elif not row[_CAN_BE]:
            malformed += 1
        elif row["cluster"] != cluster_id:
            foreign += 1
        else:
            usable[tuple(row[name] for name in KEY)] = row
    return Told(sorted(usable.values(), key=lambda row: tuple(row[name] for name in KEY)),
                malformed, foreign, tuple(sorted(formats)))


def within(records: DataFrame, cluster_id: str, begin_ms: int, end_ms: int) -> DataFrame:
    """Return the usable records of windows that begin at ``begin_ms`` or later and before
    ``end_ms``, each once."""
    ours = ((sf.col("v") == LOADS_FORMAT) & sf.col(_CAN_BE) & (sf.col("cluster") == cluster_id)
            & (sf.col("window_ms") >= begin_ms) & (sf.col("window_ms") < end_ms))
    return records.filter(ours).dropDuplicates(list(KEY))


def _exploded(records: DataFrame, table: str) -> DataFrame:
    zipped = sf.arrays_zip(*(sf.col(f"{table}.{name}") for name in TABLES[table]))
    rows = records.select("window_ms", "length_ms", sf.explode(zipped).alias("row"))
    # Positions, not names: arrays_zip names nested columns as it likes.
    fields = rows.schema["row"].dataType.fieldNames()
    return rows.select("window_ms", "length_ms", *(
        sf.col("row").getField(field).alias(name)
        for field, name in zip(fields, TABLES[table], strict=True)))


def _per_second(name: str) -> Column:
    """Return the expression for the rate of the count ``name``. A count that could overflow is kept
    as it is: the gates report it."""
    return sf.expr(f"CASE WHEN {name} BETWEEN -{_PLAIN_MAX} AND {_PLAIN_MAX} "
                   f"THEN ({name} * 1000) div length_ms ELSE {name} END")


def partition_rows(records: DataFrame) -> DataFrame:
    """Return one row per partition and window: rates, summed over all records, and the topic,
    group, chain (epoch, links, last switch) and policy that the highest epoch reports."""
    rows = _exploded(records, "partitions").select(
        "*", _per_second("bytes_in").alias("ingress"), _per_second("bytes_out").alias("read"),
        _per_second("records_in").alias("records"))
    newest = [sf.max_by(name, sf.struct("epoch", "next_offset", "group")).alias(name)
              for name in ("topic", "partition", "group", "epoch", "links", "moved_ms",
                           "compacted")]
    rates = [sf.try_sum(name).alias(name) for name in ("ingress", "read", "records")]
    return rows.groupBy("window_ms", "incarnation").agg(*newest, *rates)


def group_rows(records: DataFrame) -> DataFrame:
    """Return one row per group and window: rates of all its partitions."""
    rows = _exploded(records, "groups").select(
        "*", _per_second("bytes_in").alias("ingress"), _per_second("bytes_out").alias("read"))
    return rows.groupBy("window_ms", "group").agg(
        sf.try_sum("ingress").alias("ingress"), sf.try_sum("read").alias("read"))
