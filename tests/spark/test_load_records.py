"""Records of `__metrics`: usable ones, left out ones, and the windows of a plan."""

from __future__ import annotations

import json
import random
import re

import pytest

pytest.importorskip("pyspark")

from admin_cli.plans import loads as admin_loads  # noqa: E402
from node.observability import load_records as written  # noqa: E402
from placement import cluster  # noqa: E402
from spark import gates, load_records, pipeline, planning, tables, windows  # noqa: E402
from spark.errors import BadSnapshot  # noqa: E402
from spark.load_records import Told  # noqa: E402
from spark.windows import Facts, Span  # noqa: E402
from tests.tidy import tree  # noqa: E402

CLUSTER = "ab" * 16
BEGIN_MS, INTERVAL_MS = 1_700_000_040_000, 60_000
PAGE = (tree.ROOT / "docs" / "spark-planning.md").read_text(encoding="utf-8")


def record(node=1, window=0, rows=(), groups=None, **changes):
    """Return a record as a node writes it; ``rows``: (incarnation, group, bytes in) of
    partitions."""
    named = [(incarnation, "t", incarnation, group, 1, 0, size, 6, 1, 0, 0, 0, 0, 6, 0, False)
             for incarnation, group, size in rows]
    if groups is None:
        groups = {}
        for _, group, size in rows:
            groups[group] = groups.get(group, 0) + size
    head = {"v": 1, "cluster": CLUSTER, "node": node, "boot_epoch": 1,
            "window_ms": BEGIN_MS + window * INTERVAL_MS, "interval_ms": INTERVAL_MS,
            "length_ms": INTERVAL_MS, "part": 0, "parts": 1, "rack": f"r{node}", "weight": 1.0,
            "disk_used": 5, "disk_capacity": 1 << 40, "ingress_capacity": 0, "egress_capacity": 0,
            "groups_led": 1, "bytes_in": 0, "records_in": 0, "appends": 0, "bytes_out": 0,
            "records_out": 0, "fsync_p99_us": 64, "commit_p99_us": -1, "left_out": 0,
            "lost_windows": 0}
    by_column = {
        "partitions": {name: [row[at] for row in named]
                       for at, name in enumerate(written.PARTITION_COLUMNS)},
        "groups": {"group": list(groups), "bytes_in": list(groups.values()),
                   "bytes_out": [0] * len(groups), "stored": [0] * len(groups)}}
    return {**head, **by_column, **changes}


def frame(session, *records):
    values = [(each if isinstance(each, bytes) else json.dumps(each).encode(),)
              for each in records]
    return load_records.parsed(session.createDataFrame(values, "value binary"))


def facts(*down):
    """Return facts in which node 2's disk space for replicas is unknown."""
    nodes = tuple(cluster.NodeRow(node, f"r{node}", 100, cluster.ALIVE, disk)
                  for node, disk in ((1, 1 << 39), (2, 0)))
    groups = tuple(cluster.GroupRow(group, 1, 1, (1, 2), 1) for group in (0, 1, 2))
    return Facts(cluster.Snapshot(1, CLUSTER, 7, BEGIN_MS, 1, 5, 2, 2, 0, nodes, groups, ()), down)


def both(window, *rows, **changes):
    return [record(1, window, rows, **changes), record(2, window)]


def made(session, tmp_path, records, count):
    """Write the snapshot of the first ``count`` windows of some records."""
    found = frame(session, *records)
    told = load_records.told(found, CLUSTER)
    span = Span(tuple(BEGIN_MS + at * INTERVAL_MS for at in range(count)), INTERVAL_MS)
    directory = str(tmp_path / "snapshot")
    windows.write(load_records.within(found, CLUSTER, span.begins_ms[0], span.end_ms), told,
                  facts(), span, directory)
    return directory


def test_what_a_node_writes_is_what_is_read_and_what_the_page_says():
    assert tuple(load_records.GROUPS) == written.GROUP_COLUMNS
    assert tuple(load_records.PARTITIONS) == written.PARTITION_COLUMNS
    assert load_records.LOADS_FORMAT == written.LOADS_FORMAT
    assert load_records.TOPIC == written.TOPIC == admin_loads.TOPIC
    for title, columns in (("record", load_records.HEAD), *load_records.TABLES.items()):
        part = PAGE.split(f"### `{title}`")[1].split("\n#")[0]
        rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) ?\|$", part, re.MULTILINE)
        assert rows == [(name, *said) for name, said in columns.items()], title


def test_records_that_cannot_be_believed_are_left_out_and_counted(spark):
    uneven = record(rows=[(11, 1, 5)])
    uneven["partitions"]["epoch"] = []
    found = frame(spark, record(), record(), record(2), b"no JSON", uneven,
                  record(v=9), record(cluster="cd" * 16), record(window_ms=5), record(part=3),
                  record(length_ms=-1), record(node="one"))
    told = load_records.told(found, CLUSTER)
    assert [row["node"] for row in told.rows] == [1, 2]
    assert (told.malformed, told.foreign, told.formats) == (6, 1, (9,))
    assert told.complaint == ("Records of __metrics were left out: 6 that are no load records; 1 "
                              "of other clusters; some of format 9, this program reads format 1.")


#: Values that a JSON decoder may find in the place of any value.
ANYTHING = (None, True, -1, 0, 7, 1 << 31, 1 << 63, -(1 << 63), 1 << 70, 1.5, 1e308, float("nan"),
            float("inf"), "", "1", "x" * 300, "\ud800", [], [None], [1, "a"], [[1]], {}, {"v": 1})


def mangled(rng: random.Random, fields: dict) -> bytes:
    """Return a record in which one value is changed, missing or doubled, or some bytes are
    changed."""
    part = rng.choice((fields, fields, *(fields[name] for name in load_records.TABLES)))
    name = rng.choice([*part])
    changed = {key: value for key, value in part.items() if key != name}
    if rng.random() < 0.9:
        changed[name] = rng.choice(ANYTHING)
        if isinstance(part[name], list) and rng.random() < 0.5:
            changed[name] = [rng.choice(ANYTHING) for _ in part[name]]
    whole = changed if part is fields else {
        key: changed if value is part else value for key, value in fields.items()}
    data = bytearray(json.dumps(whole).encode())
    for _ in range(rng.choice((0, 0, 0, 0, 1, 3))):
        at = rng.randrange(len(data))
        data[at:at + rng.choice((0, 1, 30))] = rng.choice((
            b"", b"\xff", b"\x00", b"[" * 2000, b'{"a":' * 500, b"9" * 400, b"NaN"))
    return bytes(data)


def test_any_bytes_are_load_records_or_are_left_out_everywhere(spark):
    """A record that the choice of windows leaves out must not be added up either: otherwise a
    window counts as whole with more records than its nodes reported."""
    rng = random.Random(7)
    values = [mangled(rng, record(node, window, [(11, 1, 5), (12, 2, 6)]))
              for node in range(25) for window in range(20)]
    found = frame(spark, *values).cache()
    told = load_records.told(found, CLUSTER)
    assert told.rows and told.malformed and told.foreign
    usable = load_records.within(found, CLUSTER, 0, (1 << 63) - 1)
    keys = [tuple(row) for row in usable.select(*load_records.KEY).collect()]
    assert sorted(keys) == [tuple(row[name] for name in load_records.KEY) for row in told.rows]
    assert load_records.partition_rows(usable).toArrow().num_rows
    found.unpersist()


def test_a_snapshot_marks_partitions_of_compacted_topics(spark, tmp_path):
    """A switch would take a key's records apart.  Nodes of earlier builds do not say it."""
    new, old = record(rows=[(11, 1, 6_000), (12, 1, 6_000)]), record(2, rows=[(13, 2, 6_000)])
    new["partitions"]["compacted"] = [True, False]
    del old["partitions"]["compacted"]
    directory = made(spark, tmp_path, [new, old], 1)
    written_rows = spark.read.parquet(f"{directory}/partitions.parquet").toArrow().to_pylist()
    assert {row["incarnation"]: row["copied"] for row in written_rows} == {
        11: True, 12: False, 13: False}


def test_a_snapshot_has_rates_of_each_window_and_counts_repeated_records_once(spark, tmp_path):
    size = 60 * INTERVAL_MS
    first = both(0, (11, 1, size), (12, 2, 2 * size))
    directory = made(spark, tmp_path, [
        *first, first[0], record(1, 1, [(11, 1, 3 * size)]), record(2, 1, [(11, 2, size)])], 2)
    read = tables.read(directory)
    assert (read.head.windows, read.head.partitions) == (2, 2)
    assert read.head.taken_ms == BEGIN_MS + 2 * INTERVAL_MS
    assert {row["group"]: row["ingress"] for row in read.groups} == {
        0: 0, 1: 3 * size // 60, 2: 4 * size // 60}
    assert [row["measured_ms"] for row in read.nodes] == [read.head.taken_ms] * 2
    assert [row["disk_capacity"] for row in read.nodes] == [1 << 39, 1 << 40]
    found = planning.make(lambda: spark, directory, planning.Policy(), planning.Options(),
                          read.head.taken_ms, 1_000)
    assert {row.incarnation: row.ingress for row in found.snapshot.partitions} == {
        11: 4 * size // 60, 12: 2 * size // 60}  # 11 was led by two nodes within a window


@pytest.mark.parametrize("size, said", [
    (-6_000_000, "ingress of partition 11 is -100000; nothing is below 0"),
    (1 << 62, "measured in another unit")])
def test_loads_that_cannot_be_are_refused(spark, tmp_path, size, said):
    directory = made(spark, tmp_path, both(0, (11, 1, size)), 1)
    with pytest.raises(BadSnapshot, match=said):
        planning.make(lambda: spark, directory, planning.Policy(), planning.Options(),
                      BEGIN_MS + INTERVAL_MS, 1_000)


def test_what_is_not_told_apart_by_partition_is_refused(spark, tmp_path):
    with pytest.raises(BadSnapshot, match=r"90.0 %, 98 % are needed"):
        made(spark, tmp_path, both(0, (11, 1, 900 * 60), groups={1: 1_000 * 60}), 1)


# ---- which windows ---------------------------------------------------------------------------

def told_of(*rows):
    return Told([{**record(node, window), **changes} for node, window, changes in rows], 0, 0, ())


def test_the_newest_windows_that_all_told_of_are_chosen_without_a_gap():
    told = told_of(*((node, window, {}) for window in (0, 2, 3, 4) for node in (1, 2)),
                   (1, 5, {}))
    span = windows.chosen(told, (1, 2), BEGIN_MS + 6 * INTERVAL_MS)
    assert span.begins_ms == tuple(BEGIN_MS + at * INTERVAL_MS for at in (2, 3, 4))
    assert windows.chosen(told, (1,), 0).begins_ms[-1] == BEGIN_MS + 5 * INTERVAL_MS
    assert len(windows.chosen(told, (1, 2), 0, windows=1).begins_ms) == 1


@pytest.mark.parametrize("rows, said", [
    ((), "has no loads of this time"),
    (((1, 0, {}), (2, 0, {"interval_ms": 1_000})), "node 1 every 60000 ms, node 2 every 1000 ms"),
    (((1, 0, {}),), "the loads of node 2 are not in __metrics"),
    (((1, 0, {}), (2, 0, {"parts": 2})), "the loads of node 2 are not in")])
def test_without_a_whole_window_it_is_said_who_lacks(rows, said):
    with pytest.raises(BadSnapshot, match=said):
        windows.chosen(told_of(*rows), (1, 2), BEGIN_MS + 2 * INTERVAL_MS)


# ---- a pipeline's directory --------------------------------------------------------------------

def test_the_latest_period_in_which_every_node_told_is_taken(tmp_path):
    directory = str(tmp_path / "kept")
    with pytest.raises(ConnectionRefusedError), pipeline.held(directory, CLUSTER, 600_000):
        raise ConnectionRefusedError("by the cluster: the directory is well")
    with pipeline.held(directory, CLUSTER, 600_000):
        with pytest.raises(BadSnapshot, match="another pipeline runs"), \
                pipeline.held(directory, CLUSTER, 600_000):
            pass
        with pytest.raises(BadSnapshot, match="no complete period yet"):
            pipeline.snapshot_in(directory)
    for end, measured in ((1_000, 5), (2_000, 5), (3_000, 0)):
        snapshot = facts().snapshot
        tables.write(snapshot, f"{directory}/periods/{end}", 1_000,
                     {node: tables.Measured(measured) for node in (1, 2)}, {})
    (tmp_path / "kept" / "periods" / "4000").mkdir()  # not written to the end
    assert pipeline.snapshot_in(directory).endswith("/2000")
    assert pipeline.snapshot_in(directory, complete=False).endswith("/3000")
    assert pipeline.snapshot_in(f"{directory}/periods/1000").endswith("/1000")
    for cluster_id, period, said in (("cd", 600_000, "another cluster"), (CLUSTER, 1, "another p")):
        with pytest.raises(BadSnapshot, match=said), pipeline.held(directory, cluster_id, period):
            pass
    assert gates.COVERAGE_PERMILLE == 980
