"""Snapshots from windows of ``__metrics``: loads from the topic, places from the cluster.

Contract.  ``chosen`` returns the windows of a snapshot, or raises ``BadSnapshot`` with the missing
ones.  ``write`` writes the snapshot: partitions by Spark, where they are; nodes and groups, which
are few, by this process.  It has one row per partition, group, node *and window*; a reader takes
the greatest rates (``tables``, ``loads``).

Windows lack members of groups and the places of idle partitions; those come from ``Facts``,
requested from the cluster at the time: an item without load is in no record
(docs/spark-planning.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from placement import cluster
from spark import load_records, schema, tables
from spark.errors import BadSnapshot
from spark.gates import COVERAGE_PERMILLE, named
from spark.load_records import Told

#: Windows of one plan: a load that varies within minutes is seen at its peak.
WINDOWS = 5
#: Rows of partitions in one file of a snapshot, at some 60 bytes each.
ROWS_PER_FILE = 1_000_000


class Facts(NamedTuple):
    """State of the cluster without its loads.  ``down``: nodes that are not up."""

    snapshot: cluster.Snapshot
    down: tuple[int, ...]


class Span(NamedTuple):
    """Consecutive windows: ``begins_ms``, and the length of each."""

    begins_ms: tuple[int, ...]
    interval_ms: int

    @property
    def end_ms(self) -> int:
        """Return the end of the last window."""
        return self.begins_ms[-1] + self.interval_ms


def interval_of(told: Told) -> int:
    """Return the interval at which all nodes publish.  Raises ``BadSnapshot`` when no node does, or
    when intervals differ."""
    newest = {row["node"]: row["interval_ms"] for row in told.rows}
    intervals = sorted(set(newest.values()))
    if not intervals:
        raise BadSnapshot(f"{load_records.TOPIC} has no loads of this time. "
                          f"{told.complaint}".strip(),
                          "[metrics] publish = true in node.toml of every node; docs/metrics.md.")
    if len(intervals) > 1:
        said = ", ".join(f"node {node} every {ms} ms" for node, ms in newest.items())
        raise BadSnapshot(f"the nodes publish at different intervals: {said}.",
                          "Set metrics.interval_ms alike in every node.toml.")
    return intervals[0]


def present(told: Told, begin_ms: int) -> dict[int, list[dict]]:
    """Return node -> its records of the window that begins at ``begin_ms``, for nodes whose parts
    are all there."""
    lives: dict[tuple[int, int], list[dict]] = {}
    for row in told.rows:
        if row["window_ms"] == begin_ms:
            lives.setdefault((row["node"], row["boot_epoch"]), []).append(row)
    found: dict[int, list[dict]] = {}
    for (node, _epoch), rows in sorted(lives.items()):
        if len(rows) == rows[0]["parts"]:
            found[node] = rows
    return found


def chosen(told: Told, wanted: Iterable[int], now_ms: int, windows: int = WINDOWS) -> Span:
    """Return the newest windows that every wanted node has reported completely, ``windows`` at most
    and without a gap. Raises ``BadSnapshot`` if there is none, or the nodes publish at different
    intervals."""
    interval_ms, wanted = interval_of(told), set(wanted)
    begins = sorted({row["window_ms"] for row in told.rows}, reverse=True)
    whole = [begin for begin in begins if wanted <= set(present(told, begin))]
    if not whole:
        newest = next((begin for begin in begins if begin + 2 * interval_ms <= now_ms), begins[0])
        silent = sorted(wanted - set(present(told, newest)))
        raise BadSnapshot(
            f"of the window that ended {tables.time_text(newest + interval_ms)} the loads of "
            f"{named('node', silent)} are not in {load_records.TOPIC}. {told.complaint}".strip(),
            "Their metric multiraft_load_windows_lost_total says whether they try. For a node "
            "that is lost: multiraft rebalance plan --scope repair")
    last = [begin for begin in whole if begin > whole[0] - windows * interval_ms]
    while len(last) > 1 and last[0] - last[-1] != (len(last) - 1) * interval_ms:
        last.pop()
    return Span(tuple(reversed(last)), interval_ms)


def write(records: DataFrame, told: Told, facts: Facts, span: Span, directory: str) -> int:
    """Write the snapshot of ``span`` to ``directory``, and return its number of partitions.
    ``records``: the usable ones of the span. Raises ``BadSnapshot`` if too few bytes are reported
    by partition, or the directory cannot be written."""
    taken = facts.snapshot._replace(taken_ms=span.end_ms)
    head = tables.head_of(taken, span.interval_ms, 0)._replace(windows=len(span.begins_ms))
    records = records.cache()
    found = load_records.partition_rows(records).select(
        sf.lit(head.snapshot_id).alias("snapshot_id"), "window_ms", "incarnation", "topic",
        "partition", "group", "epoch", "links", "ingress", "read", "records",
        sf.lit(0).cast("bigint").alias("bytes"), sf.coalesce("compacted", sf.lit(False)).alias(
            "copied"), "moved_ms").cache()
    try:
        counted = found.agg(sf.count_distinct("incarnation"), sf.count(sf.lit(1))).collect()[0]
        sums = _sums(found)
        groups = _sums(load_records.group_rows(records))
        _check_coverage(groups, sums)
        place = tables.place_of(directory)
        files = found.coalesce(1 + counted[1] // ROWS_PER_FILE)
        (files.sortWithinPartitions("incarnation", "window_ms").write.mode("overwrite")
         .option("compression", "zstd").parquet(f"{place}/{schema.PARTITIONS}.parquet"))
    finally:
        found.unpersist()
        records.unpersist()
    tables.write_tables(directory, head._replace(partitions=counted[0]), {
        schema.NODES: _nodes(told, facts, span, head.snapshot_id),
        schema.GROUPS: _groups(groups, sums, facts, span, head.snapshot_id)})
    return counted[0]


_Sums = Mapping[tuple[int, int], tuple[int, int]]


def _sums(rows: DataFrame) -> _Sums:
    """Return (window, group) -> (ingress, read).  An impossible sum is left to the gates."""
    found = rows.groupBy("window_ms", "group").agg(
        sf.try_sum("ingress").alias("ingress"), sf.try_sum("read").alias("read")).toArrow()
    return {(row["window_ms"], row["group"]): (_possible(row["ingress"]), _possible(row["read"]))
            for row in found.to_pylist()}


def _possible(rate: int | None) -> int:
    """Return a rate that a group's row may have: an impossible rate is in a partition's row, and
    reported there."""
    return min(max(rate or 0, 0), cluster.RATE_MAX)


def _check_coverage(groups: _Sums, sums: _Sums) -> None:
    """Return if nearly all appended bytes are reported partition by partition. Raises
    ``BadSnapshot`` otherwise."""
    whole = sum(ingress for ingress, _ in groups.values())
    apart = sum(ingress for ingress, _ in sums.values())
    if apart * 1000 < whole * COVERAGE_PERMILLE:
        raise BadSnapshot(
            f"of {whole:,} bytes per second {apart:,} are reported by partition: "
            f"{100 * apart / whole:.1f} %, {COVERAGE_PERMILLE / 10:.0f} % are needed.",
            "Raise metrics.partitions_max in node.toml.")


def _nodes(told: Told, facts: Facts, span: Span, snapshot_id: int) -> list[dict]:
    """Return one row per node and window; a node that did not report a window was not measured in
    it.  The disk space for replicas follows from their current places, like the groups' bytes."""
    rows = []
    for begin in span.begins_ms:
        heard = {node: found[0] for node, found in present(told, begin).items()}
        for row in facts.snapshot.nodes:
            said = heard.get(row.id, {})
            rows.append({
                "snapshot_id": snapshot_id, "window_ms": begin, "node": row.id, "rack": row.rack,
                "weight": row.weight, "state": row.state,
                "measured_ms": begin + span.interval_ms if said else 0,
                "disk_capacity": row.disk_capacity or said.get("disk_capacity", 0),
                "ingress_capacity": said.get("ingress_capacity", row.ingress_capacity),
                "egress_capacity": said.get("egress_capacity", row.egress_capacity),
                "disk_used": said.get("disk_used", 0),
                "fsync_p99_us": said.get("fsync_p99_us", -1),
                "commit_p99_us": said.get("commit_p99_us", -1)})
    return rows


def _groups(groups: _Sums, sums: _Sums, facts: Facts, span: Span,
            snapshot_id: int) -> list[dict]:
    """Return one row per group and window: its current place, and its load then.  A partition that
    was switched within a window counts in its new group, so a group has at least the loads of its
    partitions together."""
    rows = []
    for begin in span.begins_ms:
        for row in facts.snapshot.groups:
            rates = [max(pair) for pair in zip(groups.get((begin, row.id), (0, 0)),
                                               sums.get((begin, row.id), (0, 0)), strict=True)]
            rows.append({
                "snapshot_id": snapshot_id, "window_ms": begin, "group": row.id,
                "incarnation": row.incarnation, "conf_index": row.conf_index,
                "voters": list(row.voters), "learners": list(row.learners), "leader": row.leader,
                "in_joint": row.in_joint, "bytes": row.bytes, "ingress": rates[0],
                "read": rates[1], "moved_ms": row.moved_ms})
    return rows
