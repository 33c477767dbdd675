"""Distributed part of planning: loads of partitions, by the million.

Contract.  Frames in, small Arrow tables or maps out.  Every result is a function of the rows, not
of their order, of how they are partitioned, of adaptive execution or of the number of cores: sums
are of whole numbers, every order is total, and Python workers get all rows of a group together and
sort them.  The rule of ``placement.shed`` chooses the items that a group sheds; it runs where
the rows are.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from itertools import pairwise

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from placement.cluster import BYTES_MAX, RATE_MAX
from placement.policy import Policy
from placement.shed import Item, by_urgency, shed_candidates
from placement.switches import SKIPPED_PER_GROUP, Relief
from spark import gates, schema, tables
from spark.tables import Head, Ranges

#: column -> limit above which a value is absurd, as in ``placement.cluster``
LIMITS = {"ingress": RATE_MAX, "read": RATE_MAX, "bytes": BYTES_MAX, "incarnation": (1 << 63) - 1,
          "moved_ms": 1 << 60, "epoch": (1 << 62), "links": 1 << 20}

#: Impossible rows that are collected, of which one is reported.
WORST_MAX = 3

#: Columns that ``scan`` returns for each partition.
SHED_COLUMNS = ["incarnation", "load", "urgency"]
_SHED_SCHEMA = ", ".join(f"{name} bigint" for name in SHED_COLUMNS)


def partitions(session: SparkSession, directory: str, head: Head) -> DataFrame:
    """Return a frame with one row per partition: its last window's, with the greatest rates of all
    windows."""
    place = tables.place_of(directory)
    frame = session.read.schema(schema.spark_schema(schema.PARTITIONS)).parquet(
        f"{place}/{schema.PARTITIONS}.parquet")
    if head.windows == 1:
        return frame
    newest = [sf.max_by(name, sf.struct("window_ms", "epoch", "group")).alias(name)
              for name in frame.columns
              if name not in ("incarnation", "ingress", "read", "records")]
    peaks = [sf.max(name).alias(name) for name in ("ingress", "read", "records")]
    return frame.groupBy("incarnation").agg(*newest, *peaks)


def looked_at(frame: DataFrame, head: Head,
              ranges: Ranges) -> tuple[gates.Found, dict[int, tuple[int, int]]]:
    """Return the figures of the partitions that the gates check, and each group's sums of
    ``ingress`` and ``read``.  One pass over the columns that ``ranges`` does not already prove
    right."""
    # Bits above a limit, or a sign: one expression, which is null when a value is missing.
    beyond = functools.reduce(Column.bitwiseOR, (
        sf.shiftright(sf.col(name).cast("bigint"), most.bit_length() - 1 if most & (most - 1) == 0
                      else most.bit_length()) for name, most in LIMITS.items()
        if not _is_within(ranges, name, 0, most)), sf.lit(0).cast("bigint"))
    is_wrong = sf.coalesce(beyond, sf.lit(1)) != 0
    ours = sf.lit(True)
    if not _is_within(ranges, "snapshot_id", head.snapshot_id, head.snapshot_id):
        ours = sf.coalesce(sf.col("snapshot_id") == head.snapshot_id, sf.lit(False))
    checked = frame.select("group", "ingress", "read", ours.alias("ours"), is_wrong.alias("wrong"))

    def counted(condition: Column) -> Column:
        return sf.sum(sf.when(condition, sf.lit(1)).otherwise(sf.lit(0)))

    def whole(name: str) -> Column:
        return sf.sum(sf.when(sf.col("wrong"), sf.lit(0)).otherwise(sf.col(name)))

    rows = checked.groupBy("group").agg(
        sf.count(sf.lit(1)).alias("rows"), counted(~sf.col("ours")).alias("foreign"),
        counted(sf.col("wrong")).alias("wrong"), whole("ingress").alias("ingress"),
        whole("read").alias("read")).toArrow().to_pylist()
    count, strange, wrong = (sum(row[name] for row in rows) for name in ("rows", "foreign",
                                                                         "wrong"))
    worst = _worst(frame.filter(is_wrong)) if wrong else ()
    found = gates.Found(count, count, strange, worst)
    return found, {row["group"]: (row["ingress"], row["read"]) for row in rows}


def _is_within(ranges: Ranges, column: str, least: int, greatest: int) -> bool:
    if column not in ranges:
        return False
    return least <= ranges[column][0] and ranges[column][1] <= greatest


def _worst(frame: DataFrame) -> list[tuple[int, str, int]]:
    """Return a few impossible rows, the first by incarnation."""
    rows = frame.orderBy("incarnation", *LIMITS).limit(WORST_MAX).toArrow().to_pylist()
    return [(row["incarnation"], name, row[name]) for row in rows
            for name, most in LIMITS.items()
            if row[name] is None or not 0 <= row[name] <= most]


def large(frame: DataFrame, least: int) -> pa.Table:
    """Return the partitions whose load is above ``least``.  One pass."""
    return frame.filter(sf.col("ingress") > least).toArrow()


def movable(policy: Policy, taken_ms: int) -> Column:
    """Return the condition that a partition may be switched, as far as its own row decides.
    ``placement.switches`` applies the same rule to each row and has the last word; this condition
    only filters the candidates."""
    rested = (sf.col("moved_ms") == 0) | (sf.col("moved_ms") + policy.cool_down_ms <= taken_ms)
    short = sf.col("links") < policy.chain_links_max
    allowed = rested & short & (sf.col("ingress") > 0)
    if not policy.switch_copied:
        allowed = allowed & ~sf.col("copied")
    if policy.excluded_topics:
        allowed = allowed & ~sf.col("topic").isin(*policy.excluded_topics)
    return allowed


def shed_sets(frame: DataFrame, wanted: Relief, may_move: Column, known: Set[int],
              most: int) -> list[int]:
    """Return incarnations of partitions that relieve the groups of ``wanted``: of each group those
    that it sheds beside the ``known`` ones. Its largest partitions are listed too, although they
    stay.

    At most ``most``, in the order of ``placement.shed.urgent_first``. ``may_move``: condition of
    those that may be shed. One pass."""
    excess = {**wanted.passed_on, **wanted.excess}
    if not excess:
        return []
    session = frame.sparkSession
    groups = session.createDataFrame(pa.table({"group": pa.array(sorted(excess), pa.int32())}))
    inside = (frame.join(sf.broadcast(groups), "group", "left_semi")
              .select("group", "ingress", "incarnation", may_move.alias("may_move")))
    together = inside.repartition(sf.col("group"))
    with warnings.catch_warnings():
        # warns that this pandas is newer than PySpark expects
        warnings.simplefilter("ignore", FutureWarning)
        found = together.mapInArrow(scan(wanted, known), _SHED_SCHEMA)
    first = found.orderBy(sf.desc("urgency"), sf.desc("load"), "incarnation").limit(most).toArrow()
    return sorted(set(first.column("incarnation").to_pylist()))


Batches = Iterable[pa.RecordBatch]


def scan(wanted: Relief, known: Set[int]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Return the function that runs in the workers, over all rows of some groups, in any order. It
    yields (incarnation, load, urgency) of the partitions to list: those that each group sheds, and
    its largest ones.

    Rows stay columns, a few dozen bytes each; only rows that are inspected become items."""
    listed = np.array(sorted(known), np.int64)
    excess = {**wanted.passed_on, **wanted.excess}

    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for group, loads, ids, may_move in _groups(batches):
            fresh = ~np.isin(ids, listed)
            told = _Rows(loads[fresh][:SKIPPED_PER_GROUP], ids[fresh][:SKIPPED_PER_GROUP])
            inside = fresh & may_move & (loads <= wanted.cap)
            leaving = shed_candidates(_Rows(loads[inside], ids[inside]), excess[group], wanted.cap)
            urgencies = {item: urgency for urgency, item
                         in by_urgency(leaving, wanted.urgent.get(group, 0))}
            found = {**dict.fromkeys(told, 0), **urgencies}
            if not found:
                continue
            rows = [(item.id, item.load, urgency) for item, urgency in sorted(found.items())]
            yield pa.record_batch([pa.array(column, pa.int64())
                                   for column in zip(*rows, strict=True)], SHED_COLUMNS)

    return run


class _Rows(Sequence[Item]):
    """Sequence that creates its items when they are accessed."""

    def __init__(self, loads: np.ndarray, ids: np.ndarray):
        self._loads = loads
        self._ids = ids

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, place: int) -> Item:
        return Item(int(self._loads[place]), int(self._ids[place]))


def _groups(batches: Batches) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (group, loads, incarnations, may be moved) of all rows of each group, in the order of
    ``by_load``.  O(rows log rows)."""
    parts = [[column.to_numpy(zero_copy_only=False) for column in batch.columns]
             for batch in batches]
    if not parts:
        return
    groups, loads, ids, may_move = map(np.concatenate, zip(*parts, strict=True))
    order = np.lexsort((ids, -loads, groups))
    groups, loads, ids, may_move = (column[order] for column in (groups, loads, ids, may_move))
    starts = np.flatnonzero(np.diff(groups)) + 1
    for start, end in pairwise([0, *starts, len(groups)]):
        if start < end:
            yield int(groups[start]), loads[start:end], ids[start:end], may_move[start:end]


def rows_of(frame: DataFrame, incarnations: list[int]) -> pa.Table:
    """Return the whole rows of these partitions.  One pass."""
    session = frame.sparkSession
    wanted = session.createDataFrame(pa.table({"incarnation": pa.array(incarnations, pa.int64())}))
    return frame.join(sf.broadcast(wanted), "incarnation", "left_semi").toArrow()
