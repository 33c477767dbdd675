"""A node is drained, returned to service, put into maintenance, and decommissioned, by the
command."""

from __future__ import annotations

import json

import pytest

from multiraft.client import blocking
from multiraft.wire.plans import PlacementFacts
from tests.e2e.test_rebalance import leaders, members, rebalance, status
from tests.e2e.world import steady, wait_for

STORY = True
SHAPE = {"nodes": 4, "groups": 8, "factor": 3, "configure": steady}
TOPIC = "kept"
VALUES = [b"%05d" % number for number in range(500)]


@pytest.fixture(scope="module", autouse=True)
def records(world):
    with blocking.Client(world.addresses) as client:
        client.create_topic(TOPIC, 8)
        with client.producer() as producer:
            producer.send_many(TOPIC, VALUES)
    yield
    with blocking.Client([world.address(1), world.address(2)]) as client:
        read = [record.value for batch in client.consume(TOPIC, until_end=True)
                for record in batch]
    assert sorted(read) == VALUES


def node(world, *words: object):
    return rebalance(world, *words, command="node")


def held(world, wanted: int) -> list[int]:
    """Return groups with a voter or learner on a node."""
    return [group for group, (voters, learners) in members(world).items()
            if wanted in (*voters, *learners)]


def desired_states(world) -> dict[int, str]:
    with blocking.Client(world.addresses) as client:
        client.catch_up()
        return dict(client.plan_request(PlacementFacts()).desired_states)


def test_a_drain_is_shown_first_and_then_done(world):
    assert held(world, 2)
    shown = node(world, "drain", 2)
    assert shown.exit_code == 0 and "Use --yes" in shown.output, shown.output
    assert (desired_states(world), status(world).state) == ({}, "none")
    done = node(world, "drain", 2, "--yes", "--wait")
    assert done.exit_code == 0, done.output
    assert held(world, 2) == [] and desired_states(world) == {2: "draining"}
    assert node(world, "drain", 2, "--yes").exit_code == 2, "it is empty already"
    listed = rebalance(world, "list", "--json", command="node")
    assert [row["intent"] for row in json.loads(listed.stdout)["nodes"]] == [
        "alive", "draining", "alive", "alive"]


def test_draining_what_leaves_too_few_nodes_is_refused_before_anything_changes(world):
    before = members(world)
    refused = node(world, "drain", 3, "--yes")
    assert refused.exit_code == 3, refused.output
    assert "TOO_FEW_NODES" in refused.output or "NO_TARGET" in refused.output
    assert (members(world), desired_states(world)) == (before, {2: "draining"})
    assert node(world, "drain", 9).exit_code == 1


def test_a_node_that_is_undrained_takes_replicas_again(world, tmp_path):
    assert node(world, "undrain", 2).exit_code == 0
    assert desired_states(world) == {}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"bands": [{"resource": "disk", "permille": 100, "floor": 0}],
                                  "cool_down_ms": 0}))
    made = rebalance(world, "plan", "--policy", policy, "--window", "0.2", "--output",
                     tmp_path / "plan.json")
    assert made.exit_code == 0, made.output
    assert rebalance(world, "apply", tmp_path / "plan.json", "--yes", "--wait").exit_code == 0
    assert held(world, 2)


def test_a_node_in_maintenance_keeps_its_replicas_and_leads_nothing(world):
    with blocking.Client(world.addresses) as client:
        led = held(world, 1)
        for group in led:
            client.group_transfer(group, 1)
    before = held(world, 1)
    done = node(world, "maintenance", 1, "--yes", "--wait")
    assert done.exit_code == 0, done.output
    wait_for(lambda: 1 not in leaders(world).values(), "node 1 leads nothing")
    assert held(world, 1) == before and desired_states(world) == {1: "maintenance"}
    assert node(world, "maintenance", 1, "--yes").exit_code == 2, "it leads nothing already"
    assert node(world, "undrain", 1).exit_code == 0
    assert node(world, "undrain", 1).exit_code == 2, "it is like any other already"


def test_a_node_that_alone_can_lead_is_not_put_into_maintenance(world):
    """Every other node that could lead a group is in maintenance; the refusal changes nothing."""
    group, voters = next((group, voters) for group, (voters, _) in members(world).items()
                         if 4 in voters)
    others = [voter for voter in voters if voter != 4]
    for other in others:
        done = node(world, "maintenance", other, "--yes", "--wait")
        assert done.exit_code == 0, done.output
    wait_for(lambda: leaders(world)[group] == 4, "node 4 leads the group")
    before = desired_states(world)
    refused = node(world, "maintenance", 4, "--yes")
    assert refused.exit_code == 3, refused.output
    assert "no other node can lead" in refused.output and desired_states(world) == before
    for other in others:
        assert node(world, "undrain", other).exit_code == 0


def test_a_drain_that_is_run_again_is_not_stale(world):
    """By then the plan has moved some of the replicas on which a new plan would depend."""
    begun = node(world, "drain", 2, "--yes")
    assert begun.exit_code == 0, begun.output
    again = node(world, "drain", 2, "--yes", "--wait")
    assert again.exit_code in (0, 2), again.output  # 2: the plan was complete before this command
    assert "is being drained already" in again.output or again.exit_code, again.output
    wait_for(lambda: status(world).state == "done", "the plan is over")
    assert held(world, 2) == [] and desired_states(world) == {2: "draining"}
    assert node(world, "undrain", 2).exit_code == 0


def test_a_node_that_is_decommissioned_is_emptied_and_forgotten(world):
    done = node(world, "decommission", 4, "--yes")
    assert done.exit_code == 0, done.output
    with blocking.Client(world.addresses[:3]) as client:
        client.catch_up()
        listed = client.node_list()
    assert [row.node.id for row in listed.nodes] == [1, 2, 3] and listed.removed == (4,)
    assert all(len(voters) == 3 for voters, _ in members(world).values())
