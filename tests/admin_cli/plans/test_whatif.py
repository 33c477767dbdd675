"""`multiraft placement whatif`: nothing is asked of the cluster but how it is."""

from __future__ import annotations

import json

import pytest

from multiraft.wire import plans as wire
from tests.admin_cli.plans.test_rebalance import PlanCluster

QUICK = ("--window", "0.2")


@pytest.fixture
def cluster():
    made = PlanCluster()
    made.topics = {"flights": [[], [], []]}
    return made


@pytest.fixture
def whatif(run, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"bands": [{"resource": "disk", "permille": 50, "floor": 0},
                                            {"resource": "leaders", "permille": 100, "floor": 0}]}))

    def whatif(*words):
        return run("placement", "whatif", *QUICK, "--policy", str(policy), *words)
    return whatif


def test_a_node_more_is_shown_and_nothing_changes(whatif, cluster):
    done = whatif("--join", "4,rack=r9", "--join", "5,weight=200,disk=1TiB")
    assert done.exit_code == 0, done.output
    assert "node 4 joins in rack r9; node 5 joins with weight 200? Nothing is changed." in (
        done.output)
    assert "disk per node" in done.output and "NEW_NODE" in done.output
    assert {type(request) for request in cluster.requests} == {wire.PlacementFacts}


def test_the_json_has_nodes_groups_and_the_topics_that_were_named(whatif):
    told = json.loads(whatif("flights", "--join", "4", "--json").stdout)
    assert told["change"] == {"joins": [4], "leaves": [], "lost": []}
    assert told["pool_size"] == {"before": 4, "after": 4}
    row = next(row for row in told["nodes"] if row["node"] == 4)
    assert row["before"]["disk"] == 0 < row["after"]["disk"]
    assert [row["group"] for row in told["groups"]] == [1, 2, 3, 4]
    partitions = told["topics"]["flights"]
    assert [row["partition"] for row in partitions] == [0, 1, 2]
    assert [row["before"]["group"] for row in partitions] == [1, 2, 3]
    assert {row["before"]["leader"] for row in partitions} == {1}
    assert any(row["after"]["voters"] != row["before"]["voters"] for row in partitions)


@pytest.mark.parametrize("node", ["4,rack", "4,rack=", "4,weight", "4,disk=", "4,rack=a,rack=b"])
def test_a_node_whose_fields_have_no_value_is_a_wrong_command_line(whatif, node):
    done = whatif("--join", node)
    assert done.exit_code == 64 and "with a value" in done.output, done.output


def test_a_topic_s_partitions_are_shown_where_they_would_be(whatif):
    done = whatif("flights", "--join", "4", "--all")
    assert "flights (3 partitions): 0 would switch to another group" in done.output
    assert "1 2 3 -> " in done.output


def test_a_larger_pool_is_imagined_with_its_new_groups(whatif):
    done = whatif("--pool", "8")
    assert "the pool grows from 4 to 8 groups" in done.output
    assert "over 8 groups instead of 4" in done.output
    told = json.loads(whatif("--pool", "8", "--json").stdout)
    assert [row["group"] for row in told["groups"]] == list(range(1, 9))


@pytest.mark.parametrize("words, code, why", [
    ((), 64, "name a change"),
    (("--join", "four"), 64, "no node: write 5"), (("--join", "4,size=3"), 64, "no node: write 5"),
    (("--join", "2"), 1, "node 2 is there already"), (("--leave", "9"), 1, "no node 9"),
    (("--pool", "3"), 1, "only grows"), (("--pool", "99999"), 1, "pool_size"),
    (("--leave", "3"), 3, "TOO_FEW_NODES"), (("--lose", "3"), 3, "NO_TARGET"),
    (("nowhere", "--join", "4"), 1, "no topic")])
def test_what_cannot_be_says_why(whatif, words, code, why):
    done = whatif(*words)
    assert (done.exit_code, why in done.output) == (code, True), done.output


def test_a_node_that_is_down_is_named_as_lost_or_nothing_is_said(whatif, cluster):
    cluster.up = {1, 2}
    refused = whatif("--join", "4")
    assert refused.exit_code == 1 and "node 3 is down" in refused.output
    done = whatif("--lose", "3", "--join", "4")
    assert done.exit_code == 0 and "REPAIR_DEAD" in done.output
    also = whatif("--lose", "2", "--join", "4")
    assert also.exit_code == 1 and "name it with --lose too" in also.output


def test_nothing_would_move_has_its_own_exit_code(run, cluster):
    cluster.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
    done = run("placement", "whatif", *QUICK, "--pool", "5")
    assert done.exit_code == 2 and "Nothing to do" in done.output


def test_the_picture_is_written(whatif, tmp_path):
    path = tmp_path / "what.svg"
    done = whatif("--join", "4", "--picture", str(path))
    assert done.exit_code == 0 and f"Drawn: {path}" in done.output
    assert path.read_bytes().startswith(b"<?xml")
