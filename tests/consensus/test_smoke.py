"""Three nodes elect, replicate, fail over, sleep and come back."""

from __future__ import annotations

from collections import Counter

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


def test_a_node_that_returns_wakes_its_sleeping_groups_without_a_storm():
    """S17: what is sent for a return is a bounded number of messages per group, nobody campaigns,
    no term grows, and all sleep again."""
    groups = 600
    cluster = Cluster(groups=groups)
    cluster.check = lambda: None  # O(groups) per step; once at the end is enough here
    cluster.run(3000)
    leaders = [cluster.leader(group) for group in range(1, groups + 1)]
    one = cluster.nodes[3]
    for group, leader in enumerate(leaders, 1):
        if leader == 3:
            cluster.nodes[3].core.transfer(group, 1 + group % 2)
    cluster.run(2000)
    terms = [cluster.nodes[1].core.status(group).term for group in range(1, groups + 1)]
    cluster.crash(3)
    cluster.run(2000)
    sent = count_messages(cluster)
    cluster.start(3)
    cluster.run(3000)
    assert [cluster.nodes[1].core.status(group).term for group in range(1, groups + 1)] == terms
    assert all(node.core.next_deadline_ms() is None for node in cluster.nodes.values())
    assert all(one.core.status(group).commit == cluster.nodes[1].core.status(group).commit
               for group in range(1, groups + 1))
    assert "VoteRequest" not in sent
    assert 0 < sum(sent.values()) <= 6 * groups, sent
    Cluster.check(cluster)


def count_messages(cluster: Cluster) -> Counter[str]:
    """What is sent from now on, by kind; counts go up while the cluster runs."""
    sent: Counter[str] = Counter()
    transmit = cluster.transmit

    def counted(node, envelope):
        sent[type(envelope.message).__name__] += 1
        transmit(node, envelope)

    cluster.transmit = counted
    return sent
