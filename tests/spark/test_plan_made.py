"""Plans made with Spark: equal to those of `placement`, in any configuration of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pandas")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from click.testing import CliRunner  # noqa: E402

from admin_cli.main import cli  # noqa: E402
from admin_cli.plans import plan_report  # noqa: E402
from benchmarks import spark_snapshots  # noqa: E402
from placement import cluster, outcome, plan  # noqa: E402
from placement.planner import make_plan  # noqa: E402
from placement.policy import GROUP_INGRESS, INGRESS, Band, Options, Policy  # noqa: E402
from placement.verify import verify  # noqa: E402
from spark import loads, planning, schema, tables  # noqa: E402
from spark.errors import BadSnapshot  # noqa: E402
from tests.tidy import tree  # noqa: E402

#: In the past, because the command reads the clock.
NOW_MS = 1_700_000_000_000
SIZE = spark_snapshots.Size(20_001, 12, 32)
POLICY = Policy(bands=(Band(INGRESS, 50), Band(GROUP_INGRESS, 20)), cool_down_ms=0, moves_max=4096)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return spark_snapshots.write(tmp_path_factory.mktemp("snapshots") / "whole", "lognormal 2",
                                 SIZE, 5, NOW_MS)


def made_from(session, directory, options=Options(), **settings):  # noqa: B008
    return planning.make(lambda: session, str(directory), POLICY, options, NOW_MS, 1000,
                         **settings)


@pytest.fixture(scope="module")
def made(spark, directory):
    return made_from(spark, directory)


def partitions_of(directory):
    found = pq.read_table(f"{directory}/partitions.parquet")
    return planning.partition_rows(found)


def whole(directory):
    return cluster.checked(tables.as_snapshot(tables.read(str(directory)),
                                              partitions_of(directory)))


def copied(directory, target, change):
    """Copy the snapshot with other rows of partitions, in files of another number and order."""
    target.mkdir()
    for name in (schema.SNAPSHOT, schema.NODES, schema.GROUPS):
        (target / f"{name}.parquet").write_bytes((directory / f"{name}.parquet").read_bytes())
    found = change(pq.read_table(f"{directory}/partitions.parquet"))
    pq.write_table(found, target / "partitions.parquet")
    return target


def test_few_partitions_are_listed_and_the_plan_is_as_good_as_from_all_of_them(made, directory):
    assert 0 < made.listed < SIZE.partitions / 20 and not made.unrelieved
    every = {row.resource: row for row in make_plan(whole(directory), POLICY).resources}
    for row in made.plan.resources:
        full = every[row.resource]
        assert (row.bound_ppm, row.level_ppm, row.before_ppm, row.total) == (
            full.bound_ppm, full.level_ppm, full.before_ppm, full.total)
        assert row.after_ppm <= max(full.after_ppm, 1_000_000 + 1_000 * row.band_permille)
        assert row.moved <= 1.01 * max(full.moved, row.moved_bound)
    groups = next(row for row in made.plan.resources if row.resource == GROUP_INGRESS)
    assert groups.gap_ppm <= 20_000 and groups.moved <= 1.01 * groups.moved_bound


def test_the_plan_passes_the_gate_of_those_who_carry_it_out(made, directory):
    read = plan.load(plan.save(made.plan))
    assert read == made.plan and read.moves and read.converged
    assert not verify(read, whole(directory), NOW_MS)


def test_nothing_is_left_to_do_afterwards(spark, made, directory, tmp_path):
    """The planned cluster, measured again, needs no plan."""
    to_group = {move.incarnation: move for move in made.plan.moves
                if isinstance(move, plan.TopicSwitch)}
    after = {row.id: row for row in outcome.planned(made.snapshot, made.plan).groups}

    def switched(found):
        rows = found.to_pylist()
        for row in rows:
            if row["incarnation"] in to_group:
                row.update(group=to_group[row["incarnation"]].to_group, epoch=2, links=2)
        return pa.Table.from_pylist(rows, schema=found.schema)

    target = copied(directory, tmp_path / "after", switched)
    rows = [{**row, "voters": list(after[row["group"]].voters),
             "leader": after[row["group"]].leader, "ingress": after[row["group"]].ingress,
             "read": after[row["group"]].read} for row in tables.read(str(directory)).groups]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema.arrow_schema(schema.GROUPS)),
                   target / "groups.parquet")
    again = made_from(spark, target)
    assert not again.plan.moves and again.plan.converged


def test_a_small_cluster_gets_the_plan_that_it_gets_without_spark(spark, directory):
    found = made_from(spark, directory, all_max=SIZE.partitions)
    assert found.plan == make_plan(whole(directory), POLICY)


@pytest.mark.parametrize("shuffles, adaptive", [(1, True), (7, False), (200, True)])
def test_the_digest_does_not_depend_on_how_spark_is_set_up(spark, made, directory, shuffles,
                                                           adaptive):
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", str(shuffles))
    session.conf.set("spark.sql.adaptive.enabled", str(adaptive).lower())
    assert made_from(session, directory).plan.plan_id == made.plan.plan_id


def test_the_digest_does_not_depend_on_the_order_of_rows(spark, made, directory, tmp_path):
    def turned(found):
        places = range(len(found))
        return found.take([*reversed(places[1::2]), *places[0::2]])

    target = copied(directory, tmp_path / "turned", turned)
    assert made_from(spark, target).plan.plan_id == made.plan.plan_id


def test_the_command_makes_the_same_plan_on_one_core_and_says_nothing_of_the_jvm(
        made, directory, tmp_path):
    """Runs in a process of its own, as a user runs it."""
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"bands": [band._asdict() for band in POLICY.bands],
                                  "cool_down_ms": 0, "moves_max": POLICY.moves_max}))
    done = subprocess.run(
        [sys.executable, "-m", "admin_cli", "rebalance", "plan", "--engine", "spark", "--master",
         "local[1]", "--snapshot", str(directory), "--max-age", "3e8", "--policy", str(policy),
         "--output", str(tmp_path / "plan.json"), "--report", str(tmp_path / "report")],
        capture_output=True, text=True, cwd=tree.ROOT,
        env={**os.environ, "PYTHONPATH": str(tree.ROOT)})
    assert not done.returncode, done.stderr
    read = plan.load((tmp_path / "plan.json").read_bytes())
    assert read.plan_id == made.plan.plan_id
    steps = [line for line in done.stderr.splitlines() if " s  " in line]
    assert len(steps) == 7 and "20,001 partitions summed up" in done.stderr
    assert not any(word in done.stderr for word in ("WARN", "Exception", "\tat ", "log4j"))
    report = (tmp_path / "report" / plan_report.PAGE).read_text()
    for said in (read.plan_id[:12], "| group_ingress | 2 % |", "OVERLOAD", "20,001 partitions"):
        assert said in report
    if "matplotlib" in report:
        assert (tmp_path / "report" / plan_report.PICTURE).exists() or "pip install" in report


def edited(**columns):
    def change(found):
        rows = found.slice(0, 40).to_pylist()
        head = [{**row, **columns} for row in rows[:1]]
        return pa.concat_tables([pa.Table.from_pylist([*head, *rows[1:]], schema=found.schema),
                                 found.slice(40)])
    return change


@pytest.mark.parametrize("change, said", [
    (edited(ingress=-7), "ingress of partition 1 is -7; nothing is below 0"),
    (edited(read=1 << 55), "read of partition 1 is 36028797018963968: measured in another unit"),
    (edited(snapshot_id=1), "1 of 20,001 rows of .*partitions.parquet are of another snapshot"),
    (edited(group=77), "partitions in group 77, which hold none"),
    (lambda found: found.slice(0, 15_000), "15,000 partitions, the cluster has 20,001: 75.0 %"),
    (lambda found: pa.concat_tables([found, found.slice(0, 9)]), "rows are doubled"),
    (lambda found: pa.concat_tables([found.slice(10), found.slice(10, 10)]),
     "have more load than the group itself"),
])
def test_partitions_that_cannot_be_are_refused(spark, directory, tmp_path, change, said):
    target = copied(directory, tmp_path / "wrong", change)
    with pytest.raises(BadSnapshot, match=said):
        made_from(spark, target)


def test_several_windows_are_one_partition_with_its_greatest_rate(spark, tmp_path, directory):
    def windows(found):
        rows = found.slice(0, 10).to_pylist()
        early = [{**row, "window_ms": row["window_ms"] - 60_000, "group": 1, "bytes": 9,
                  "ingress": row["ingress"] + 5} for row in rows]
        return pa.Table.from_pylist([*rows, *early[:5]], schema=found.schema)

    target = copied(directory, tmp_path / "windows", windows)
    head = tables.read(str(target)).head._replace(windows=2)
    found = {row.incarnation: row for row in planning.partition_rows(
        loads.partitions(spark, str(target), head).toArrow())}
    last = {row.incarnation: row for row in partitions_of(directory)[:10]}
    assert found == {each: row._replace(ingress=row.ingress + 5 * (each <= 5))
                     for each, row in last.items()}


def test_the_command_tells_in_a_sentence_what_is_wrong_with_the_snapshot(spark, tmp_path):
    done = CliRunner().invoke(cli, ["rebalance", "plan", "--engine", "spark", "--snapshot",
                                    str(tmp_path / "nowhere")])
    assert done.exit_code == 1
    assert "there is no snapshot" in done.output and "metrics export" in done.output
    assert Path(tmp_path / "nowhere").exists() is False


def test_a_running_cluster_is_exported_and_planned_for(spark, world, tmp_path):
    """A topic of a real node; with one node there are no moves, and the output says that."""
    servers = ["--servers", ",".join(world.addresses)]
    with world.client() as client:
        client.create_topic("planned", 1)
    done = CliRunner().invoke(cli, [*servers, "produce", "planned"], input="one\ntwo\n")
    assert not done.exit_code, done.output
    out = str(tmp_path / "out")
    done = CliRunner().invoke(cli, [*servers, "metrics", "export", "--output", out, "--window",
                                    "0.2"])
    assert not done.exit_code, done.output
    rows = pq.read_table(f"{out}/partitions.parquet").to_pylist()
    assert ("planned", 0) in {(row["topic"], row["partition"]) for row in rows}
    small = tables.read(out)
    assert [row["measured_ms"] == small.head.taken_ms for row in small.nodes] == [True]
    assert len(small.groups) == small.head.pool_size + 1
    done = CliRunner().invoke(cli, [*servers, "rebalance", "plan", "--engine", "spark", "--window",
                                    "0.2", "--report", str(tmp_path / "report")])
    assert done.exit_code == 2 and "Nothing to do" in done.output, done.output
    assert "None: every candidate is moved." in (
        tmp_path / "report" / plan_report.PAGE).read_text()
