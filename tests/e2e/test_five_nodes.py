"""Five nodes, factor three: every node knows the leaders of groups of which it has no replica."""

from __future__ import annotations

from multiraft.client import blocking
from multiraft.wire import Code
from tests.e2e import raw
from tests.e2e.world import steady, wait_for

SHAPE = {"nodes": 5, "groups": 12, "factor": 3, "configure": steady}


def leaders(world, node: int) -> dict[int, int]:
    """Return group -> leader as one node knows it; empty while it does not know all of them."""
    rows = world.groups(node)
    known = {row.group: row.leader for row in rows}
    return known if all(known.values()) else {}


def all_agree(world, nodes) -> dict[int, int]:
    """Return group -> leader once every node names the same; empty until then."""
    views = [leaders(world, node) for node in nodes]
    return views[0] if all(view == views[0] for view in views) else {}


def test_the_pool_is_spread_and_no_node_has_all_of_it(world):
    rows = wait_for(lambda: len(rows := world.groups(1)) == 13 and rows,
                    "twelve groups and the metadata group")
    assert all(len(row.voters) == 3 for row in rows if row.group)
    # Hashing by the cluster's own seed: one cluster in two hundred has a node with all thirteen.
    partial = [node for node in world.ids() if any(node not in row.voters for row in rows)]
    assert len(partial) >= 4, partial


def test_every_node_knows_every_leader(world):
    known = wait_for(lambda: all_agree(world, world.ids()), "all nodes name the same leaders")
    assert set(known.values()) <= set(world.ids())


def test_a_topic_created_through_one_node_is_found_through_every_other(world):
    for node in world.ids():
        world.create(f"made-by-{node}", 3, through=node)
        for other in world.ids():
            def known(topic=f"made-by-{node}", other=other):
                with blocking.Client([world.address(other)]) as client:
                    found = client.describe_topic(topic).partitions
                return found if all(row.group and row.leader for row in found) else None
            found = wait_for(known, f"node {other} knows what was made through node {node}")
            assert [row.partition for row in found] == [0, 1, 2]


def test_any_node_leads_the_way_to_a_group_that_it_has_no_part_in(world):
    world.create("anywhere", partitions=6)
    members = {row.group: row.voters for row in world.groups(1)}
    strangers = 0
    for node in world.ids():
        for number in range(6):
            def known(node=node, number=number):
                with world.session(node) as session:
                    found = session.partition("anywhere", number)
                return found if found.leader else None
            partition = wait_for(known, f"node {node} knows the leader of partition {number}")
            strangers += node not in members[partition.group]
            with world.session(partition.leader) as session:
                value = raw.batch(b"%d-%d" % (node, number))
                wait_for(lambda s=session, p=partition, v=value:
                         s.produce(p.incarnation, v).code == Code.OK,
                         "the leader has heard of the topic, too")
    assert strangers, "some node was asked about a group that it has no part in"


def test_a_node_that_does_not_lead_names_who_does(world):
    world.create("redirect")
    leader = world.leader_of("redirect")
    with world.leader_session("redirect") as session:
        incarnation = session.partition("redirect").incarnation
    for node in world.ids():
        if node == leader:
            continue
        with world.session(node) as session:
            # The node learns of the topic, and of its leader, a moment after the leader does.
            wait_for(lambda s=session: (result := s.produce(incarnation, raw.batch(b"x"))).code
                     == Code.NOT_LEADER and result.error.leader == leader
                     and result.error.leader_address == world.address(leader),
                     f"node {node} names the leader")


def test_the_survivors_learn_the_new_leaders_after_a_kill(world):
    victim = wait_for(lambda: leaders(world, 1), "node 1 knows all leaders")[1]
    world.dev.kill(victim)
    alive = [node for node in world.ids() if node != victim]
    try:
        known = wait_for(lambda: (view := all_agree(world, alive)) and
                         victim not in view.values() and view, "new leaders, known everywhere")
        assert victim not in known.values()
    finally:
        world.dev.start(victim)
    wait_for(lambda: all_agree(world, world.ids()), "the returned node has caught up with hints")
