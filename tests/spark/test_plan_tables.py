"""Snapshots in Parquet: written tables are read, and errors are one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from benchmarks import spark_snapshots  # noqa: E402
from placement import cluster, default_group  # noqa: E402
from spark import gates, pipeline, schema, tables  # noqa: E402
from spark.errors import BadSnapshot  # noqa: E402
from tests.placement import clusters  # noqa: E402

NOW_MS = clusters.NOW_MS
HOUR_MS = 3_600_000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def before():
    rows = [clusters.MIB * (1 + place % 7) for place in range(300)]
    return clusters.cluster(clusters.nodes(6, racks=3, disk_capacity=1 << 40), 16, rows)


@pytest.fixture
def directory(tmp_path, before):
    path = str(tmp_path / "snapshot")
    tables.write(before, path, 2_000, {row.id: tables.Measured(NOW_MS, 5) for row in before.nodes},
                 {row.incarnation: 3 for row in before.partitions})
    return path


def rewrite(directory, table, change):
    """Rewrite one table with other rows, or with other columns."""
    path = f"{directory}/{table}.parquet"
    changed = change(pq.read_table(path))
    if not isinstance(changed, pa.Table):
        changed = pa.Table.from_pylist(changed, schema=schema.arrow_schema(table))
    pq.write_table(changed, path)


def each_row(**changes):
    return lambda table: [{**row, **changes} for row in table.to_pylist()]


def test_footers_tell_the_ranges_of_columns_where_they_know_them(directory):
    path = Path(directory) / "partitions.parquet"
    whole = pq.read_table(path)
    assert tables.read(directory).ranges["incarnation"] == (1, 300)
    path.unlink()
    path.mkdir()
    pq.write_table(whole.slice(0, 200), path / "1.parquet", row_group_size=70)
    pq.write_table(whole.slice(200), path / "2.parquet")
    found = tables.read(directory).ranges
    assert found["incarnation"] == (1, 300)
    assert found["ingress"] == (clusters.MIB, 7 * clusters.MIB)
    pq.write_table(whole.slice(200), path / "2.parquet", write_statistics=["ingress"])
    assert set(tables.read(directory).ranges) == {"ingress"}
    place = whole.schema.get_field_index("ingress")
    holes = whole.set_column(place, whole.schema.field(place).with_nullable(True),
                             pa.array([None] * 300, pa.int64()))
    pq.write_table(holes, path / "2.parquet")
    assert "ingress" not in tables.read(directory).ranges


def test_what_is_written_is_read(directory, before):
    found = tables.read(directory)
    rows = pq.read_table(f"{directory}/partitions.parquet").to_pylist()
    partitions = [cluster.PartitionRow(*(row[name] for name in cluster.PartitionRow._fields))
                  for row in rows]
    assert cluster.checked(tables.as_snapshot(found, partitions)) == before
    assert {row["records"] for row in rows} == {3}
    assert found.head.partitions == 300 and found.head.windows == 1
    gates.small(found, NOW_MS, HOUR_MS)


def test_the_greatest_rate_of_several_windows_counts_and_the_present_is_the_last_ones(directory):
    def more(table):
        rows = table.to_pylist()
        return [*rows, *({**row, "window_ms": row["window_ms"] - 2_000, "leader": 0, "bytes": 1,
                          "ingress": row["ingress"] * 2} for row in rows)]

    before = {row["group"]: row for row in tables.read(directory).groups}
    rewrite(directory, schema.GROUPS, more)
    for row in tables.read(directory).groups:
        old = before[row["group"]]
        assert row == {**old, "ingress": 2 * old["ingress"]}


def test_the_page_names_every_column_with_its_type():
    text = (ROOT / "docs" / "spark-planning.md").read_text(encoding="utf-8")
    for name, columns in schema.TABLES.items():
        part = text.split(f"### `{name}.parquet`")[1].split("\n#")[0]
        told = re.findall(r"^\| `(\w+)` \| ([\w<>]+) \| (.*?) ?\|$", part, re.MULTILINE)
        assert told == [tuple(column) for column in columns], name
    assert f"format {schema.SNAPSHOT_FORMAT}" in text


def test_a_directory_with_a_snapshot_is_not_written_over(directory, before):
    with pytest.raises(BadSnapshot, match="holds a snapshot already"):
        tables.write(before, directory, 2_000, {}, {})


def drop(name):
    return lambda directory: (Path(directory) / f"{name}.parquet").unlink()


def scribble(name):
    return lambda directory: (Path(directory) / f"{name}.parquet").write_bytes(b"no Parquet at all")


def changed(table, **changes):
    return lambda directory: rewrite(directory, table, each_row(**changes))


def first(table, **changes):
    def change(found):
        rows = found.to_pylist()
        return [{**rows[0], **changes}, *rows[1:]]
    return lambda directory: rewrite(directory, table, change)


def recast(table, name, kind):
    def change(found):
        place = found.schema.get_field_index(name)
        return found.set_column(place, name, found.column(name).cast(kind))
    return lambda directory: rewrite(directory, table, change)


def without_column(table, name):
    return lambda directory: rewrite(directory, table, lambda found: found.drop_columns([name]))


@pytest.mark.parametrize("damage, said", [
    (drop("snapshot"), "not written to the end"),
    (drop("groups"), "groups.parquet is missing"),
    (drop("partitions"), "partitions.parquet is missing"),
    (scribble("nodes"), "is no Parquet, or is damaged"),
    (changed(schema.SNAPSHOT, format=2), "format 2, this program reads format 1"),
    (changed(schema.SNAPSHOT, hash_version=9), "places with hash version 9"),
    (changed(schema.SNAPSHOT, snapshot_id=5), "6 of 6 rows of .*nodes.parquet are of another "
     "snapshot, perhaps of another cluster"),
    (first(schema.GROUPS, snapshot_id=5), "1 of 17 rows of .*groups.parquet are of another"),
    (recast(schema.PARTITIONS, "ingress", pa.float64()),
     "ingress is double, and has to be bigint"),
    (without_column(schema.NODES, "rack"), r"the column rack \(string\) is missing"),
    (changed(schema.SNAPSHOT, taken_ms=NOW_MS - 2 * HOUR_MS - 1), "is 2 hours old"),
    (changed(schema.SNAPSHOT, taken_ms=NOW_MS + HOUR_MS), "taken 60 minutes from now: the clock"),
    (first(schema.NODES, measured_ms=0), "the loads of node 1 are not known"),
    (first(schema.NODES, measured_ms=NOW_MS - 2 * HOUR_MS), "node 1 sent no loads for more than"),
    (first(schema.NODES, disk_capacity=-4), "disk_capacity is -4; nothing is below 0"),
    (first(schema.GROUPS, ingress=1 << 60), "ingress is .*measured in another unit"),
    (first(schema.GROUPS, voters=[1, 2, 77]), "node 77, which the snapshot does not know"),
    (lambda directory: rewrite(directory, schema.GROUPS, lambda table: table.to_pylist()[:12]),
     "the loads of groups 12, 13, 14, 15, 16 are not known: 5 of 16"),
    (lambda directory: rewrite(directory, schema.NODES,
                               lambda table: [*table.to_pylist(), table.to_pylist()[0]]),
     "node 1 appears twice"),
])
def test_what_is_wrong_is_told_before_anything_is_computed(directory, damage, said):
    damage(directory)
    with pytest.raises(BadSnapshot, match=said) as raised:
        gates.small(tables.read(directory), NOW_MS, HOUR_MS)
    assert raised.value.do


def test_a_directory_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadSnapshot, match="there is no snapshot .*nowhere"):
        tables.read(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("text", ["{", "[" * 4000], ids=["cut", "nested too deeply"])
def test_a_damaged_head_of_a_pipeline_is_told(tmp_path, text):
    (tmp_path / pipeline.HEAD).write_text(text)
    system, path = tables.located(str(tmp_path))
    with pytest.raises(BadSnapshot, match="cannot be read"):
        pipeline._claim(system, path, str(tmp_path), "c", 1000)


def test_silent_nodes_are_dead_when_a_repair_is_asked_for(directory):
    first(schema.NODES, measured_ms=0)(directory)
    found = gates.without_silent(tables.read(directory))
    gates.small(found, NOW_MS, HOUR_MS)
    assert [row["node"] for row in found.nodes if row["state"] == cluster.DEAD] == [1]


@pytest.mark.parametrize("found, said", [
    (gates.Found(300, 300, 7, ()), "7 of 300 rows of .*partitions.parquet are of another snapshot"),
    (gates.Found(300, 300, 0, [(12, "ingress", -5)]), "ingress of partition 12 is -5; nothing is"),
    (gates.Found(300, 300, 0, [(12, "read", 1 << 60)]), "read of partition 12 .*another unit"),
    (gates.Found(300, 300, 0, [(12, "read", None)]), "read of partition 12 is missing"),
    (gates.Found(293, 293, 0, ()), "293 partitions, the cluster has 300: 97.7 %, 98 % are needed"),
    (gates.Found(301, 301, 0, ()), "301 partitions, the cluster has 300: rows are doubled"),
])
def test_partitions_pass_the_same_gates(directory, found, said):
    with pytest.raises(BadSnapshot, match=said):
        gates.large(tables.read(directory), found)
    gates.large(tables.read(directory), gates.Found(294, 294, 0, ()))


def test_partitions_do_not_have_more_load_than_their_group(directory):
    small = tables.read(directory)
    sums = {row["group"]: (row["ingress"], row["read"]) for row in small.groups if row["group"]}
    assert gates.sums(small, sums, False) == small
    ingress, read = sums[3]
    with pytest.raises(BadSnapshot, match="group 3 have more load than the group itself"):
        gates.sums(small, {**sums, 3: (ingress + 1, read)}, False)
    lifted = gates.sums(small, {**sums, 3: (ingress + 1, read)}, True)
    assert lifted.groups[3]["ingress"] == ingress + 1
    with pytest.raises(BadSnapshot, match="partitions in group 99, which hold none"):
        gates.sums(small, {99: (1, 1)}, False)


def test_synthetic_snapshots_are_placed_by_the_hash_that_the_cluster_uses():
    np = pytest.importorskip("numpy")
    found = spark_snapshots.default_groups(np.arange(1, 3001), 1000, 77)
    assert found.tolist() == [default_group(each, 1000, 77) for each in range(1, 3001)]


@pytest.mark.parametrize("loads", spark_snapshots.LOADS)
def test_synthetic_snapshots_pass_every_gate(tmp_path, loads):
    size = spark_snapshots.Size(3000, 20, 64)
    path = str(spark_snapshots.write(tmp_path / "snapshot", loads, size, 3, NOW_MS))
    small = tables.read(path)
    gates.small(small, NOW_MS, HOUR_MS)
    rows = pq.read_table(f"{path}/partitions.parquet").to_pylist()
    partitions = [cluster.PartitionRow(*(row[name] for name in cluster.PartitionRow._fields))
                  for row in rows]
    whole = cluster.checked(tables.as_snapshot(small, partitions))
    assert len(whole.partitions) == 3000 and len(whole.nodes) == 20
    racks = {row.id: row.rack for row in whole.nodes}
    assert all(len({racks[node] for node in row.voters}) == 3 for row in whole.groups)
