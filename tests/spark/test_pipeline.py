"""Loads from real nodes to a plan: by the topic, and by a pipeline's periods."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark")

import pyarrow.parquet as pq  # noqa: E402

from admin_cli.main import cli  # noqa: E402
from multiraft.client.blocking import Record  # noqa: E402
from spark import load_records  # noqa: E402
from tests.e2e import world as worlds  # noqa: E402

PERIOD_MS = 5_000
LOADS = "\n[metrics]\npublish = true\ninterval_ms = 1000\n"


@pytest.fixture(scope="module")
def publishing(tmp_path_factory):
    """Yield two nodes that publish: one of them has to ask the other to append."""
    def configure(world):
        worlds.steady(world)  # elections are not tested here
        for node in world.ids():
            world.configure(node, LOADS)

    directory = tmp_path_factory.mktemp("publishing") / "dev"
    with worlds.start(directory, 2, 4, 2, configure=configure) as started:
        with started.client() as client:
            client.create_topic("busy", 2)
        yield started


@pytest.fixture
def run(publishing):
    def invoke(*arguments):
        return CliRunner().invoke(cli, ["--servers", ",".join(publishing.addresses), *arguments])
    return invoke


def told(world):
    """Return every load record so far."""
    with world.client() as client:
        return [json.loads(each.value) for batch in client.consume(
            load_records.TOPIC, start="earliest", until_end=True) for each in batch.records()]


def append_until(world, there, what):
    """Append to the topic until ``there`` is true of the windows that every node has reported."""
    with world.client() as client, client.producer(
            delivery_timeout_ms=int(worlds.WAIT_S * 1000)) as producer:
        worlds.wait_for(lambda: load_records.TOPIC in {
            row.name for row in client.list_topics()}, "the topic is made")

        def windows():
            for at in range(20):
                producer.send(Record("busy", b"x" * 500, None, at % 2))
            producer.flush()
            rows = told(world)
            return there(set.intersection(*({row["window_ms"] for row in rows
                                             if row["node"] == node} for node in world.ids())))

        worlds.wait_for(windows, what)


def append_over_a_period(world, after_ms):
    """Append until a period that began after ``after_ms`` is over, and its records are
    published."""
    append_until(world, lambda begins: begins and max(begins) >= (
        max(min(begins), after_ms) // PERIOD_MS + 2) * PERIOD_MS, "a period")


def whole(directory):
    """Return the ends of the periods that are complete."""
    return sorted(int(path.parent.name) for path in directory.glob("periods/*/snapshot.parquet"))


def test_a_pipeline_keeps_periods_that_a_plan_is_made_of(spark, publishing, run, tmp_path):
    kept = tmp_path / "kept"
    keep = ("metrics", "pipeline", "--output", str(kept), "--once", "--period", "5")
    append_over_a_period(publishing, 0)
    done = run(*keep)
    assert done.exit_code == 0 and "period until" in done.output, done.output
    first = whole(kept)
    append_over_a_period(publishing, first[-1])
    done = run(*keep)
    assert done.exit_code == 0, done.output
    periods = whole(kept)
    assert periods[:len(first)] == first and len(periods) > len(first)
    files = pq.read_table(f"{kept}/periods/{periods[-1]}/partitions.parquet").to_pylist()
    for window in range(periods[-1] - PERIOD_MS, periods[-1], 1_000):
        assert {row["incarnation"] for row in files if row["window_ms"] == window} == {
            incarnation for row in told(publishing) if row["window_ms"] == window
            for incarnation in row["partitions"]["incarnation"]}
    assert len(files) == len({(row["window_ms"], row["incarnation"]) for row in files})
    assert len(list(kept.glob("staging/batch=*"))) <= 1
    done = run("rebalance", "plan", "--engine", "spark", "--snapshot", str(kept))
    assert done.exit_code in (0, 2) and f"periods/{periods[-1]}" in done.output, done.output
    done = run(*keep[:-1], "6")
    assert done.exit_code == 1 and "another period in milliseconds: 5000" in done.output


def test_a_plan_is_made_of_what_the_nodes_appended(spark, publishing, run, tmp_path):
    append_until(publishing, lambda begins: len(begins) > 1, "two windows")
    report = tmp_path / "report"
    done = run("rebalance", "plan", "--engine", "spark", "--report", str(report))
    assert done.exit_code in (0, 2), done.output
    assert "from __metrics" in done.output and "complete and fresh" in done.output
    assert "Exported" not in done.output
    done = run("rebalance", "plan", "--engine", "spark", "--measure", "--window", "0.2")
    assert done.exit_code in (0, 2) and "Exported the cluster's loads" in done.output, done.output


def test_a_cluster_that_publishes_nothing_is_told_how(spark, tmp_path):
    def configure(world):
        world.configure(1, "\n[metrics]\npublish = false\n")

    with worlds.start(tmp_path / "dev", 1, 4, 1, configure=configure) as world:
        done = CliRunner().invoke(cli, ["--servers", ",".join(world.addresses), "metrics",
                                        "pipeline", "--output", str(tmp_path / "none"), "--once"])
    assert done.exit_code == 1 and "publish = true" in done.output, done.output
    assert not (tmp_path / "none").exists()
