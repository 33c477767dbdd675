"""Plans are made, carried out, watched, interrupted and cancelled on real nodes, by the command."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from admin_cli import connection
from admin_cli.main import cli
from multiraft.client import Client, blocking
from multiraft.errors import MultiRaftError
from multiraft.wire.plans import (
    TOPIC_SWITCH,
    ApplyPlan,
    PlacementFacts,
    PlanLimits,
    PlannedMove,
    PlanStatus,
)
from tests.e2e.load import Load, verify
from tests.e2e.world import steady, wait_for

STORY = True
SHAPE = {"nodes": 3, "groups": 8, "factor": 3, "configure": steady}
TOPIC = "stored"
PARTITIONS = 16
#: Bytes that are copied when a quarter of the replicas moves: seconds with a throttle, moments
#: without.
VALUE = bytes(100_000)
VALUES = 400
SOME = 300
#: Small clusters have small loads: this policy balances loads that the default one calls idle.
POLICY = {"bands": [{"resource": "disk", "permille": 200, "floor": 0},
                    {"resource": "leaders", "permille": 200, "floor": 0}], "cool_down_ms": 0}
LIMIT_S = 300.0


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes and end the plan after a test that fails half way."""
    yield
    world.dev.up()
    rebalance(world, "cancel")
    over(world)


@pytest.fixture(scope="module", autouse=True)
def stored(world):
    """Return the bytes of the replicas."""
    with blocking.Client(world.addresses) as client:
        client.create_topic(TOPIC, PARTITIONS)
        with client.producer() as producer:
            for number in range(VALUES):
                producer.send(blocking.Record(TOPIC, VALUE, partition=number % PARTITIONS))
    yield
    with blocking.Client(world.addresses) as client:
        read = sum(1 for batch in client.consume(TOPIC, until_end=True) for _ in batch)
    assert read == VALUES


@pytest.fixture
def policy(tmp_path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(POLICY))
    return path


def rebalance(world, *words: object, command: str = "rebalance") -> Result:
    return CliRunner().invoke(cli, [command, *map(str, words), "--servers",
                                    ",".join(world.addresses)])


def status(world):
    """Return the plan's progress, by the leader of the metadata group."""
    with blocking.Client(world.addresses) as client:
        return client.plan_request(PlanStatus())


def over(world):
    return wait_for(lambda: (found := status(world)).state in ("done", "cancelled", "none")
                    and found, "the plan is over", LIMIT_S)


def leaders(world) -> dict[int, int]:
    """Return group -> its leader, once all have one."""
    rows = wait_for(lambda: (rows := world.groups(1)) and all(row.leader for row in rows) and rows,
                    "all groups are led")
    return {row.group: row.leader for row in rows}


def led_by_node_1(world) -> bool:
    """True if node 1 leads the pool.  Transfers are requested again for the groups that it does not
    lead: on a busy machine a transfer may be given up."""
    others = [group for group, leader in leaders(world).items() if group and leader != 1]
    with blocking.Client(world.addresses) as client:
        for group in others:
            with contextlib.suppress(MultiRaftError):
                client.group_transfer(group, 1)
    return not others


def members(world) -> dict[int, tuple]:
    """Return group -> (voters, learners) by their leaders."""
    with blocking.Client(world.addresses) as client:
        found = [client.group_members(group) for group in range(1, SHAPE["groups"] + 1)]
    return {row.group: (tuple(sorted(row.voters)), row.learners) for row in found}


def made(world, path: Path, *words: object) -> Path:
    """Make a plan with moves, in a file."""
    done = rebalance(world, "plan", *words, "--window", "0.2", "--output", path)
    assert done.exit_code == 0, done.output
    return path


def test_leaders_are_balanced_and_then_nothing_is_left_to_do(world, tmp_path, policy):
    wait_for(lambda: led_by_node_1(world), "node 1 leads all", LIMIT_S)
    path = made(world, tmp_path / "plan.json", "--scope", "leaders", "--policy", policy)
    checked = rebalance(world, "apply", path)
    assert checked.exit_code == 0 and "Use --yes" in checked.output
    assert status(world).state == "none", "a dry run changes nothing"
    done = rebalance(world, "apply", path, "--yes", "--wait")
    assert done.exit_code == 0, done.output
    counts = [list(leaders(world).values()).count(node) for node in (1, 2, 3)]
    assert max(counts) - min(counts) <= 2, counts
    again = rebalance(world, "plan", "--scope", "leaders", "--policy", policy, "--window", "0.2")
    assert again.exit_code == 2, again.output
    assert rebalance(world, "pause").exit_code == 2


def test_leaders_that_a_plan_placed_come_back_after_a_restart(world):
    with blocking.Client(world.addresses) as client:
        wanted = dict(client.plan_request(PlacementFacts()).preferred)
    assert wanted, "the plan before has preferences"
    node = next(iter(wanted.values()))
    theirs = {group for group, leader in wanted.items() if leader == node}
    world.dev.stop(node)
    other = next(each for each in world.ids() if each != node)
    wait_for(lambda: all(row.leader not in (0, node) for row in world.groups(other)),
             "others lead")
    world.dev.start(node)
    wait_for(lambda: all(leaders(world)[group] == node for group in theirs), "they are back",
             LIMIT_S)


def test_a_plan_for_what_has_changed_since_is_refused(world, tmp_path, policy):
    with blocking.Client(world.addresses) as client:
        for group in range(1, 7):
            client.group_transfer(group, 2)
    path = made(world, tmp_path / "plan.json", "--scope", "leaders", "--policy", policy)
    edited = tmp_path / "edited.json"
    edited.write_text(path.read_text().replace('"to_node": ', '"to_node": 1'))
    refused = rebalance(world, "apply", edited, "--yes")
    assert refused.exit_code == 1 and "edited" in refused.output
    group = json.loads(path.read_text())["moves"][0]["group"]
    with blocking.Client(world.addresses) as client:
        found = client.group_members(group)
        gone = next(node for node in found.voters if node != found.leader)
        client.group_members(group, tuple(node for node in found.voters if node != gone), (gone,))
        wait_for(lambda: not client.group_members(group).is_open, "it is changed")
        stale = rebalance(world, "apply", path, "--yes")
        assert stale.exit_code == 4 and f", group {group}: leader" in stale.output, stale.output

        def back():
            found = client.group_members(group)
            if gone in found.voters and not found.is_open:
                return True
            # Refused while a change is open, or before the new member has caught up.
            connection.try_members(client, found, (*found.voters, gone), ())
            return False
        wait_for(back, "the members are as before")


def test_three_nodes_become_four_under_load_though_the_controller_is_killed(world, tmp_path,
                                                                          policy):
    assert world.dev.add() == 4

    async def main():
        async with Client(world.addresses) as client:
            await client.create_topic("moving", 3)
            load = Load(client, "moving", 3)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                await trio.to_thread.run_sync(carry_out_with_a_kill, world, tmp_path, policy)
                await load.acknowledged_more(SOME, partition=0)
                load.stop()
            assert not load.account.refused
            await verify(client, load.account)

    trio.run(main)
    found = members(world)
    assert all(len(voters) == 3 and not learners for voters, learners in found.values()), found
    held = [sum(node in voters for voters, _ in found.values()) for node in (1, 2, 3, 4)]
    assert held[3] >= 3, held
    what_was_moved_rests(world, tmp_path, {group for group, (voters, _) in found.items()
                                           if 4 in voters})


def what_was_moved_rests(world, tmp_path, moved: set[int]) -> None:
    """Make a plan with bands so narrow that more would be moved, without a given cool-down: the
    default is a quarter of an hour."""
    with blocking.Client(world.addresses) as client:
        dated = {row.group: row.moved_ms for address in world.addresses
                 for page in client.group_loads(address, 5_000) for row in page.groups if row.group}
    assert {group for group, moved_ms in dated.items() if moved_ms} == moved, dated
    policy = tmp_path / "narrow.json"
    policy.write_text(json.dumps({"bands": [{"resource": "disk", "permille": 0, "floor": 0}]}))
    path = tmp_path / "narrow.plan"
    done = rebalance(world, "plan", "--policy", policy, "--window", "0.2", "--output", path)
    assert done.exit_code in (0, 2), done.output
    moves = [move for move in json.loads(path.read_text())["moves"]
             if move["kind"] == "replica_change"]
    assert not moved & {move["group"] for move in moves}, done.output
    forced = rebalance(world, "plan", "--drain", 4, "--window", "0.2")
    assert forced.exit_code == 0 and "DRAIN" in forced.output, "what was asked for goes first"


def carry_out_with_a_kill(world, tmp_path, policy) -> None:
    path = made(world, tmp_path / "plan.json", "--policy", policy)
    begun = rebalance(world, "apply", path, "--yes", "--throttle", "4MiB")
    assert begun.exit_code == 0, begun.output
    half = wait_for(lambda: (found := status(world)).bytes_done and found, "it copies")
    assert half.state == "running" and 0 < half.bytes_done < half.bytes_total
    controller = leaders(world)[0]
    world.dev.kill(controller)
    waiting = wait_for(lambda: (found := status(world)).state == "paused" and found,
                       "it pauses by itself")
    assert waiting.reason.startswith(f"NODE_DOWN: node {controller}"), waiting.reason
    assert rebalance(world, "status").exit_code == 5
    world.dev.start(controller)
    wait_for(lambda: status(world).state == "running", "it goes on by itself")
    assert rebalance(world, "throttle", "512MiB").exit_code == 0
    ended = over(world)
    assert (ended.state, ended.plan_id) == ("done", half.plan_id)
    assert dict(ended.phases) == {"done": ended.moves_total}, ended


def test_a_plan_that_is_cancelled_leaves_nothing_half_done(world, tmp_path, policy):
    before = members(world)
    path = made(world, tmp_path / "plan.json", "--drain", 1, "--policy", policy)
    assert rebalance(world, "apply", path, "--yes", "--throttle", "1MiB").exit_code == 0
    wait_for(lambda: any(row.phase == "learning" for row in status(world).moves), "it has begun")
    assert any(learners for _, learners in members(world).values())
    assert rebalance(world, "cancel").exit_code == 0
    ended = over(world)
    counts = dict(ended.phases)
    assert ended.state == "cancelled" and counts["cancelled"] >= 1
    after = members(world)
    for group, (voters, learners) in after.items():
        assert not learners and len(voters) == 3
        moved = voters != before[group][0]
        assert not moved or 1 not in voters, "what was decided is through, the rest is as it was"


def test_the_throttle_is_kept_and_changed_in_flight_and_too_little_is_refused(world, tmp_path,
                                                                             policy):
    path = made(world, tmp_path / "plan.json", "--drain", 4, "--policy", policy)
    rate = 2 << 20
    assert rebalance(world, "apply", path, "--yes", "--throttle", rate).exit_code == 0
    first = wait_for(lambda: (found := status(world)).bytes_done and found, "it copies")
    later = wait_for(lambda: (found := status(world)).now_ms > first.now_ms + 3_000 and found,
                     "three seconds pass")
    pace = (later.bytes_done - first.bytes_done) * 1000 / (later.now_ms - first.now_ms)
    assert later.state == "running"
    # Per node and direction: up to four senders, and the bytes of a move count when it votes.
    assert pace < 8 * rate, f"{pace:,.0f} bytes per second"
    assert later.limits.throttle == rate
    assert rebalance(world, "throttle", "1GiB").exit_code == 0
    assert over(world).state == "done"
    held = [node for voters, _ in members(world).values() for node in voters]
    assert 4 not in held


def test_partitions_are_switched_by_a_plan_and_nothing_is_lost(world):
    async def main():
        async with Client(world.addresses) as client:
            await client.create_topic("switched", 2)
            load = Load(client, "switched", 2)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                await trio.to_thread.run_sync(switch_all, world, "switched")
                await load.acknowledged_more(SOME, partition=0)
                load.stop()
            assert not load.account.refused
            await verify(client, load.account)

    trio.run(main)


def switch_all(world, topic: str) -> None:
    """Return a plan that moves each partition to the next group."""
    with blocking.Client(world.addresses) as client:
        facts = client.plan_request(PlacementFacts())
        rows = client.explain_placement(topic)
        moves = tuple(
            PlannedMove(
                seq,
                TOPIC_SWITCH,
                row.incarnation,
                0,
                row.epoch_history[-1].epoch,
                (row.epoch_history[-1].group,),
                (row.epoch_history[-1].group % SHAPE["groups"] + 1,),
                0,
                0,
                "USER",
                (),
            )
            for seq, row in enumerate(rows, 1)
        )
        client.plan_request(ApplyPlan("5e" * 32, facts.cluster_id, "all", 1 << 60,
                                      PlanLimits(1 << 20), moves))
        ended = over(world)
        assert (ended.state, dict(ended.phases)) == ("done", {"done": len(moves)}), ended
        after = {row.incarnation: row.epoch_history[-1] for row in client.explain_placement(topic)}
    for move in moves:
        assert (after[move.subject].group, after[move.subject].epoch) == (move.new[0],
                                                                          move.expected + 1)


def test_a_dead_node_is_repaired_by_a_plan_that_goes_first(world, tmp_path, policy):
    """Node 4 has been drained, so that it can take the replicas of node 3."""
    slow = made(world, tmp_path / "slow.json", "--drain", 2, "--policy", policy)
    assert rebalance(world, "apply", slow, "--yes", "--throttle", "1MiB").exit_code == 0
    world.dev.kill(3)
    wait_for(lambda: status(world).reason.startswith("NODE_DOWN: node 3"), "it pauses by itself")
    refused = rebalance(world, "plan")
    assert refused.exit_code == 1 and "node 3 is down" in refused.output
    repair = made(world, tmp_path / "repair.json", "--scope", "repair")
    done = rebalance(world, "apply", repair, "--yes", "--throttle", "512MiB", "--wait")
    assert done.exit_code == 0, done.output
    assert all(3 not in (*voters, *learners) for voters, learners in members(world).values())
    world.dev.start(3)


def test_a_throttle_below_what_is_appended_is_refused(world, tmp_path, policy):
    path = made(world, tmp_path / "plan.json", "--drain", 1, "--policy", policy)

    async def main():
        async with Client(world.addresses) as client:
            load = Load(client, TOPIC + "-more", 8)
            await client.create_topic(TOPIC + "-more", 8)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load.run)
                await load.acknowledged_more(SOME)
                refused = await trio.to_thread.run_sync(
                    lambda: rebalance(world, "apply", path, "--yes", "--throttle", 100))
                load.stop()
            assert refused.exit_code == 1, refused.output
            assert "too low" in refused.output
            await verify(client, load.account)

    trio.run(main)
    assert status(world).state != "running"
