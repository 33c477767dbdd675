"""Sizes of topics and partitions, as the commands show them."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone

import pytest

MIB = 1 << 20


@pytest.fixture
def sized(cluster):
    """Topics of which `a` is small, `b` large, and `c` empty."""
    cluster.topics.update(a=[["r"] * 3], b=[["r"] * 10, ["r"] * 20], c=[[]])
    cluster.bytes.update({("a", 0): 100, ("b", 0): 4 * MIB, ("b", 1): 5 * MIB})
    return cluster


def table(result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def test_a_list_has_no_sizes_unless_asked_for(run, sized):
    assert table(run("topic", "list"))[0] == ["topic", "partitions", "replicas"]
    assert "bytes" not in run("topic", "list", "--json").stdout


def test_sizes_are_summed_over_the_leaders(run, sized):
    assert table(run("topic", "list", "--sizes")) == [
        ["topic", "partitions", "replicas", "records", "bytes", "largest"],
        ["a", "1", "3", "3", "100", "B", "0", "(100", "B)"],
        ["b", "2", "3", "30", "9.0", "MiB", "1", "(5.0", "MiB)"],
        ["c", "1", "3", "0", "0", "B", "-"]]


@pytest.mark.parametrize("options", [("--sort", "size"), ("--sizes", "--sort", "size")])
def test_the_largest_topic_is_first(run, sized, options):
    assert [row[0] for row in table(run("topic", "list", *options))[1:]] == ["b", "a", "c"]
    rows = json.loads(run("topic", "list", "--json", *options).stdout)["topics"]
    assert [row["name"] for row in rows] == ["b", "a", "c"]


def test_sizes_as_json(run, sized):
    answer = json.loads(run("topic", "list", "--sizes", "--json").stdout)
    assert answer["sizes_missing"] == []
    asked = datetime.fromisoformat(answer["sizes_asked"])
    assert timedelta() <= datetime.now(timezone.utc) - asked < timedelta(minutes=10)
    assert answer["topics"][1:] == [
        {"name": "b", "partitions": 2, "replication_factor": 3, "internal": False, "records": 30,
         "bytes": 9 * MIB, "partitions_of_unknown_bytes": 0,
         "largest": {"partition": 1, "bytes": 5 * MIB}},
        {"name": "c", "partitions": 1, "replication_factor": 3, "internal": False, "records": 0,
         "bytes": 0, "partitions_of_unknown_bytes": 0, "largest": None}]


def test_unknown_bytes_are_no_number(run, sized):
    sized.bytes.update({("a", 0): -1, ("b", 0): -1})
    rows = table(run("topic", "list", "--sizes"))
    assert rows[1][3:] == ["3", "?", "-"]
    assert rows[2][3:] == ["30", ">=", "5.0", "MiB", "1", "(5.0", "MiB)"]
    answer = json.loads(run("topic", "list", "--sizes", "--json").stdout)
    assert [row["partitions_of_unknown_bytes"] for row in answer["topics"]] == [1, 1, 0]


def test_a_node_that_does_not_answer_makes_lower_bounds(run, sized):
    sized.silent = {sized.leaders[2]}  # of the second partition
    result = run("topic", "list", "--sizes")
    assert table(result)[2][3:] == [">=", "10", ">=", "4.0", "MiB", "0", "(4.0", "MiB)"]
    assert f"lower bounds: node {sized.leaders[2]}: " in result.stderr
    assert "groups have no leader that answered" in result.stderr
    answer = json.loads(run("topic", "list", "--sizes", "--json").stdout)
    assert len(answer["sizes_missing"]) == 2


def test_a_description_has_the_bytes_of_each_partition(run, sized):
    sized.bytes["b", 1] = -1
    found = table(run("topic", "describe", "b"))
    assert [row[-len(row) + at:-1] for row, at in zip(found, (6, 8, 8), strict=True)] == [
        ["end_offset", "bytes"], ["10", "4.0", "MiB"], ["20", "?"]]
    rows = json.loads(run("topic", "describe", "b", "--json").stdout)["partitions"]
    assert [(row["bytes"], row["bytes_complete"]) for row in rows] == [
        (4 * MIB, True), (None, False)]


def test_an_empty_partition_has_no_bytes(run, sized):
    row = json.loads(run("topic", "describe", "c", "--json").stdout)["partitions"][0]
    assert (row["bytes"], row["bytes_complete"]) == (0, True)
