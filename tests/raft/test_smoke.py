"""Three nodes elect, replicate, fail over, sleep and come back."""

from __future__ import annotations

from collections import Counter

from multiraft.raft.messages import VoteRequest
from tests.raft.cluster import Cluster


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
    assert all(node.core.status.of(1).quiesced for node in cluster.nodes.values())
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
            assert node.core.status.leader_hint(group)[0] == cluster.leader(group) != 0


#: With their first elections about five seconds of a core.
MANY = 10_000


def test_a_node_that_returns_wakes_its_sleeping_groups_without_a_storm():
    """S17: a return causes a bounded number of messages per group, and per round a number that does
    not grow with the groups.  No replica campaigns, no term grows, and all groups quiesce again."""
    cluster = away(Cluster(groups=MANY), 3)
    one, returned = cluster.nodes[1], cluster.nodes[3]
    terms = [one.core.status.of(group).term for group in range(1, MANY + 1)]
    sent = Sent(cluster)
    cluster.start(3)
    cluster.run(3000)
    assert [one.core.status.of(group).term for group in range(1, MANY + 1)] == terms
    assert all(node.core.next_deadline_ms() is None for node in cluster.nodes.values())
    assert all(returned.core.status.of(group).commit == one.core.status.of(group).commit
               for group in range(1, MANY + 1))
    assert "VoteRequest" not in sent.kinds
    assert {*sent.groups} >= {*range(1, MANY + 1)}, "nobody looked at some of them"
    assert max(sent.groups.values()) <= GROUP_MESSAGES_MAX, sent.kinds
    assert sent.round_max <= cluster.config.liveness_checks_per_round_max, (
        "a round that grows with them")
    Cluster.check(cluster)


def test_groups_that_a_returning_node_has_no_part_in_sleep_on():
    """S17: of five nodes with groups of three, which may ask before they hear who leads; for that
    there is the pre-vote."""
    cluster = away(Cluster(nodes=5, groups=500, replicas=3), 3)
    its = {*cluster.nodes[3].store.groups()}
    assert 0 < len(its) < 500
    terms = all_terms(cluster)
    sent = Sent(cluster)
    cluster.start(3)
    cluster.run(3000)
    assert all(node.core.next_deadline_ms() is None for node in cluster.nodes.values())
    assert sent.campaigns == 0
    assert terms.items() <= all_terms(cluster).items()
    assert {*sent.groups} == its
    assert max(sent.groups.values()) <= GROUP_MESSAGES_MAX, sent.kinds


#: A question and its answer about the log, and to each of two others a question for a pre-vote.
GROUP_MESSAGES_MAX = 6


def away(cluster: Cluster, id_: int) -> Cluster:
    """All groups sleep, none of them led by this node, which has been down for a while."""
    cluster.check = lambda: None  # O(groups) per step; once at the end is enough here
    cluster.run(3000)
    core = cluster.nodes[id_].core
    for group in core.status.groups():
        status = core.status.of(group)
        if status.leader == id_:
            others = [node for node in status.configuration.voters if node != id_]
            core.transfer(group, others[group % len(others)])
    cluster.run(2000)
    assert not any(core.status.of(group).leader == id_ for group in core.status.groups())
    assert all(node.core.next_deadline_ms() is None for node in cluster.nodes.values())
    cluster.crash(id_)
    cluster.run(2000)
    return cluster


def all_terms(cluster: Cluster) -> dict[tuple[int, int], int]:
    """(node, group) -> term, on the nodes that are up."""
    return {(node.id, group): node.core.status.of(group).term for node in cluster.nodes.values()
            if node.core is not None for group in node.core.status.groups()}


class Sent:
    """Messages from now on; counts grow while the cluster runs."""

    def __init__(self, cluster: Cluster):
        self.kinds: Counter[str] = Counter()
        self.groups: Counter[int] = Counter()
        self.campaigns = 0  # requests for a vote that are not pre-votes
        self.round_max = 0  # messages of one round of one node
        self._transmit, self._obey = cluster.transmit, cluster.obey
        cluster.transmit, cluster.obey = self._count, self._count_round

    def _count(self, node, envelope) -> None:
        message = envelope.message
        self.kinds[type(message).__name__] += 1
        if hasattr(message, "group"):
            self.groups[message.group] += 1
        self.campaigns += isinstance(message, VoteRequest) and not message.pre
        self._transmit(node, envelope)

    def _count_round(self, node, ready) -> None:
        self.round_max = max(self.round_max, len(ready.messages))
        self._obey(node, ready)
