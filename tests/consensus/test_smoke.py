"""Three nodes elect, replicate, fail over, sleep and come back."""

from __future__ import annotations

from tests.consensus.cluster import Cluster


def test_three_nodes_elect_replicate_and_fall_asleep():
    cluster = Cluster()
    cluster.run(1000)
    leader = cluster.leader()
    assert leader
    for number in range(20):
        cluster.propose(b"%d" % number)
    cluster.run(1500)
    expected = [b"%d" % number for number in range(20)]
    for node in cluster.nodes:
        assert cluster.payloads(node) == expected
    assert all(node.core.status(1).asleep for node in cluster.nodes.values())
    assert all(node.core.next_deadline_ms() is None for node in cluster.nodes.values())


def test_a_lost_leader_is_replaced_and_nothing_committed_is_lost():
    cluster = Cluster()
    cluster.run(1000)
    first = cluster.leader()
    cluster.propose(b"before")
    cluster.run(100)
    cluster.crash(first)
    cluster.run(2000)
    second = cluster.leader()
    assert second not in (0, first)
    cluster.propose(b"after")
    cluster.run(100)
    cluster.nodes[first].committed.clear()
    cluster.start(first)
    cluster.run(2000)
    for node in cluster.nodes:
        assert cluster.payloads(node) == [b"before", b"after"]
    assert cluster.leader() == second


def test_single_node_and_even_groups_work():
    for nodes in (1, 2, 4, 5):
        cluster = Cluster(nodes=nodes)
        cluster.run(1500)
        cluster.propose(b"a")
        cluster.run(200)
        assert cluster.payloads(cluster.leader()) == [b"a"]


def test_a_thousand_idle_groups_have_no_timer_and_every_node_knows_all_leaders():
    cluster = Cluster(nodes=5, groups=64, replicas=3)
    cluster.run(3000)
    for node in cluster.nodes.values():
        assert node.core.next_deadline_ms() is None
        for group in range(1, 65):
            assert node.core.leader_hint(group)[0] == cluster.leader(group) != 0
