"""The pool grows on a serving cluster: new topics use the new groups, nothing else changes."""

from __future__ import annotations

import json

import pytest
from click.testing import Result

from admin_cli.failures import ExitCode
from admin_cli.plans.rebalance import PlanExit
from multiraft.client import Record, blocking
from tests.e2e.test_rebalance import rebalance
from tests.e2e.world import UP_S, steady, wait_for

STORY = True
SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}
OLD = "before"
VALUES = [b"%05d" % number for number in range(500)]
#: Enough that some partitions of a topic are in every group of a pool of these tests.
PARTITIONS = 200


def multiraft(world, command: str, *words: str) -> Result:
    """Run the command in this process."""
    return rebalance(world, *words, command=command)


def answer(world, *words: str):
    """Return the JSON of a command which must succeed."""
    done = multiraft(world, *words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def client(world) -> blocking.Client:
    return blocking.Client(world.addresses)


def groups_of(world, topic: str) -> list[int]:
    with client(world) as asking:
        return [part.group for part in asking.topic_metadata(topic).partitions]


def fill(world, topic: str, partitions: int) -> None:
    with client(world) as asking:
        asking.create_topic(topic, partitions)
        with asking.producer() as producer:
            # One in each in turn: otherwise they form one batch, and its group gets all records.
            producer.send_many(topic, [Record(topic, value, partition=at % partitions)
                                       for at, value in enumerate(VALUES)])


def read(world, topic: str) -> list[bytes]:
    with client(world) as asking:
        return sorted(record.value for batch in asking.consume(topic, until_end=True)
                      for record in batch)


def pool_size(world) -> int:
    with client(world) as asking:
        asking.catch_up()
        return asking.pool_status().pool_size


def is_down(world, asked: int, node: int) -> bool:
    """True if one node reports that another one is down."""
    with blocking.Client([world.address(asked)]) as asking:
        return {row.id: row.state for row in asking.cluster_status().nodes}[node] == "down"


@pytest.fixture(scope="module", autouse=True)
def old(world):
    """Return a topic from before the change: it stays whole, and in its groups."""
    fill(world, OLD, 8)
    before = groups_of(world, OLD)
    yield
    assert read(world, OLD) == VALUES
    assert groups_of(world, OLD) == before and {*before} <= {1, 2, 3, 4}


def test_without_yes_it_is_only_shown(world):
    shown = multiraft(world, "group", "pool", "grow", "8")
    assert shown.exit_code == 0, shown.stderr
    assert "4 -> 8 groups (4 new, 3 replicas each)" in shown.stdout
    assert "nothing was changed" in shown.stderr
    assert answer(world, "group", "pool", "show") == {
        "groups": 4, "growing_to": None, "new_groups_without_leader": 0, "groups_max": 32768}


def test_new_topics_use_the_new_groups_and_old_ones_stay(world):
    done = multiraft(world, "group", "pool", "grow", "8", "--yes")
    assert done.exit_code == 0, done.stderr
    assert "The pool has 8 groups" in done.stderr
    fill(world, "after", PARTITIONS)
    assert {*groups_of(world, "after")} == set(range(1, 9))
    assert read(world, "after") == VALUES
    rows = wait_for(lambda: (rows := answer(world, "group", "list")["groups"]) and all(
        row["leader"] for row in rows) and rows, "whoever is asked knows all leaders")
    assert [row["group"] for row in rows] == list(range(9))
    assert all(len(row["voters"]) == 3 for row in rows)
    wait_for(lambda: {row["role"] for row in answer(world, "group", "describe", "8")["replicas"]}
             == {"leader", "follower"}, "all replicas of the last group are there")
    wait_for(lambda: answer(world, "cluster", "status")["leaderless_groups"] == [], "all are led")
    status = answer(world, "cluster", "status")
    assert (status["groups"], status["growing_to"]) == (8, None)


def test_what_would_happen_is_shown_and_does_not_happen(world, tmp_path):
    picture = tmp_path / "what.svg"
    done = multiraft(world, "placement", "whatif", OLD, "--join", "9,rack=far", "--pool", "16",
                     "--window", "0.2", "--picture", str(picture), "--json")
    told = json.loads(done.stdout)
    # Elections decided the leaders, so a leader move may or may not be needed.
    assert done.exit_code == (0 if told["moves"] else PlanExit.NOTHING_TO_DO), done.output
    assert told["pool_size"] == {"before": 8, "after": 16}
    assert [row["node"] for row in told["nodes"]] == [1, 2, 3, 9]
    assert len(told["groups"]) == 16 and picture.stat().st_size > 1_000
    assert [row["before"]["group"] for row in told["topics"][OLD]] == groups_of(world, OLD)
    lost = multiraft(world, "placement", "whatif", "--lose", "3", "--window", "0.2")
    assert lost.exit_code == 3 and "NO_TARGET" in lost.output
    assert (pool_size(world), len(world.ids())) == (8, 3)


def test_what_cannot_be_is_refused_with_the_cause(world):
    for words, code, why in (
            (("8",), 2, "Nothing to do: the pool has 8 groups"),
            (("5",), 3, "has 8 groups and only grows: 5 is not more"),
            (("40000",), 3, "groups_max is 32768"), (("0",), 64, "0 is not in the range"),
            (("many",), 64, "'many' is not a whole number")):
        done = multiraft(world, "group", "pool", "grow", *words, "--yes")
        assert done.exit_code == code, (words, done)
        assert why in done.stderr, (words, done.stderr)
    assert pool_size(world) == 8


def test_new_groups_are_there_after_all_nodes_were_killed_at_once(world):
    """Before any checkpoint: of a new group a node finds a term and a vote at most."""
    grown = multiraft(world, "group", "pool", "grow", "12", "--yes")
    assert grown.exit_code == 0, grown.stderr
    fill(world, "killed", PARTITIONS)
    for node in world.ids():
        world.kill(node)
    world.dev.up(UP_S)
    wait_for(lambda: pool_size(world) == 12, "a leader has applied what was decided")
    wait_for(lambda: all(row.leader for row in world.groups(1)), "all groups have leaders")
    assert {*groups_of(world, "killed")} == set(range(1, 13))
    assert read(world, "killed") == VALUES


def test_a_growth_goes_on_when_the_leader_that_decided_it_is_killed(world):
    with client(world) as asking:
        leader = asking.cluster_status().metadata_leader
    begun = multiraft(world, "group", "pool", "grow", "40", "--yes", "--no-wait")
    assert begun.exit_code == 0 and "Decided" in begun.stderr, begun.stderr
    world.kill(leader)
    wait_for(lambda: pool_size(world) == 40, "the next leader opens the pool")
    refused = multiraft(world, "group", "pool", "grow", "40", "--yes")
    assert refused.exit_code == 2, "it is over, and said so"
    world.dev.start(leader)
    others = {*world.ids()} - {leader}

    def every_group_has_three() -> bool:
        rows = answer(world, "group", "describe", "40")["replicas"]
        return len(rows) == 3 and all(row["role"] for row in rows)
    wait_for(every_group_has_three, "the node that was away has its replicas")
    fill(world, "later", PARTITIONS)
    assert max(groups_of(world, "later")) > 12
    world.kill(min(others))
    wait_for(lambda: all(row.leader for row in world.groups(leader)),
             "what the restarted node has counts: a majority is there without another one")
    assert read(world, "later") == VALUES
    world.dev.start(min(others))


def test_a_growth_that_lacks_nodes_is_refused_before_anything_is_written_down(world):
    wait_for(lambda: all(row.leader for row in world.groups(1)), "all groups have leaders")
    world.kill(3)
    # A node that has not noticed the failure yet would decide on a growth that has to wait.
    wait_for(lambda: all(is_down(world, asked, 3) for asked in (1, 2)), "node 3 is seen to be down")
    refusal = None

    def refused() -> bool:
        nonlocal refusal
        refusal = multiraft(world, "group", "pool", "grow", "44", "--yes", "--no-wait")
        return refusal.exit_code == ExitCode.FAILED + 2
    wait_for(refused, "the growth is refused")
    assert "start node 3" in refusal.stderr, refusal.stderr
    assert answer(world, "group", "pool", "show")["growing_to"] is None
    world.dev.start(3)
