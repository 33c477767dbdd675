"""Forced recovery: a group that continues from one named replica, and the replicas that join it
(docs/decisions/0007)."""

from __future__ import annotations

from multiraft.liveness.leader_table import LeaderTable
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_state import NullLogState
from multiraft.types import Configuration
from tests.raft.cluster import Cluster

GROUP = 1
NOBODY = Configuration(())

#: One entry per append, so that a log can stop anywhere.
ONE_BY_ONE = RaftConfig(append_bytes_max=1, peer_window_bytes=1, catch_up_append_bytes=1,
                        catch_up_window_bytes=1)


def status(cluster: Cluster, id_: int):
    return cluster.nodes[id_].core.status.of(GROUP)


def recovered() -> tuple[Cluster, int, tuple[int, int]]:
    """Return (cluster, survivor, the others).

    All three are voters by an entry of the log.  Then the survivor continues alone in incarnation
    2, and the others return and begin to learn there."""
    cluster = Cluster(config=ONE_BY_ONE.validate())
    cluster.run(2000)
    survivor = cluster.leader()
    core = cluster.nodes[survivor].core
    others = tuple(id_ for id_ in cluster.nodes if id_ != survivor)
    core.change_members(GROUP, (survivor, others[0]), (others[1],))
    cluster.run(1000)
    core.change_members(GROUP, (survivor, *others), ())
    cluster.run(1000)
    for id_ in others:
        cluster.crash(id_)
    cluster.run(1000)
    core.repair.reincarnate(GROUP, 2, Configuration((survivor,)))
    cluster.run(2000)
    for id_ in others:
        cluster.start(id_)
        cluster.nodes[id_].core.remove_group(GROUP)
        cluster.drain(id_)
    cluster.run(1000)
    core.change_members(GROUP, (survivor,), others)
    cluster.settle()
    for id_ in others:
        join(cluster, id_)
    return cluster, survivor, others


def join(cluster: Cluster, id_: int) -> None:
    """Create a replica for a leader that needs one, like ``node/replicas/lifecycle.py``."""
    node = cluster.nodes[id_]
    wanted = next(event for event in node.events if event.kind == "replica_requested")
    incarnation, _, term, at = wanted.fields
    node.store.create_group(GROUP, 1, NOBODY)
    node.core.add_group(GROUP, 1, node.store.created(GROUP), NullLogState())
    node.core.repair.reincarnate(GROUP, incarnation, NOBODY, at, term)
    cluster.drain(id_)


def leaders(cluster: Cluster) -> list[int]:
    return [id_ for id_ in cluster.nodes if status(cluster, id_).leader == id_]


def learn_up_to(cluster: Cluster, configuration: Configuration) -> None:
    """Let time pass until all others have come to this one, and cut each of them off then."""
    survivor = cluster.leader()
    others = {id_ for id_ in cluster.nodes if id_ != survivor}
    left = set(others)
    for _ in range(1000):
        cluster.now_ms += 5
        for id_, node in cluster.nodes.items():
            node.core.tick(cluster.now_ms)
            cluster.drain(id_)
        cluster.exchange_liveness()
        while link := next((link for link in cluster.wires if cluster.wires[link]), None):
            cluster.deliver_one(*link)
            left = {id_ for id_ in left if status(cluster, id_).configuration != configuration}
            cluster.cut |= {each for id_ in others - left
                            for each in ((survivor, id_), (id_, survivor))}
        if not left:
            return
    raise AssertionError(f"nodes {left} never came there")


def test_the_members_of_the_incarnation_before_elect_nobody_while_they_learn():
    """Their logs name them as voters until they have reached the place where the new incarnation
    began.  Without a vote barrier a second leader would continue from there, beside the
    survivor."""
    cluster, survivor, others = recovered()
    learn_up_to(cluster, Configuration((survivor, *others)))
    cluster.run(10_000)
    assert leaders(cluster) == [survivor]
    cluster.cut.clear()
    cluster.run(10_000)
    assert {status(cluster, id_).last_index for id_ in cluster.nodes} == {
        status(cluster, survivor).last_index}


def test_those_who_have_learned_vote_for_who_makes_them_voters():
    """Also before they have the entry that does: its leader may be the only one that has it."""
    cluster, survivor, others = recovered()
    cluster.run(10_000)
    cluster.cut |= {(survivor, id_) for id_ in others}
    cluster.nodes[survivor].core.change_members(GROUP, (survivor, *others), ())
    cluster.settle()
    cluster.crash(survivor)
    cluster.cut.clear()
    cluster.start(survivor)
    cluster.run(10_000)
    assert leaders(cluster) == [survivor]
    assert status(cluster, survivor).configuration == Configuration((survivor, *others))
    cluster.crash(survivor)
    cluster.run(10_000)
    assert [id_ for id_ in others if status(cluster, id_).leader == id_]


def test_a_snapshot_of_a_survivor_names_no_configuration_above_what_is_applied():
    """Its last one, or its log's last entry after a restart, need not have been committed."""
    cluster = Cluster()
    cluster.run(2000)
    survivor = cluster.leader()
    others = {id_ for id_ in cluster.nodes if id_ != survivor}
    cluster.cut |= {link for id_ in others for link in ((survivor, id_), (id_, survivor))}
    core = cluster.nodes[survivor].core
    core.change_members(GROUP, (survivor, min(others)), ())
    cluster.settle()
    core.repair.reincarnate(GROUP, 2, Configuration((survivor,)))
    cluster.drain(survivor)
    for _ in range(2):
        bounds, index, _ = cluster.nodes[survivor].core.snapshot_point(GROUP)
        assert bounds.last_index < status(cluster, survivor).last_index
        assert index <= bounds.last_index
        cluster.crash(survivor)
        cluster.start(survivor)


def test_a_survivor_in_doubt_that_lost_the_record_of_it_counts_again_once_it_is_cleared():
    """And is then one of those that its log names, who elect one leader between them."""
    cluster, survivor, others = recovered()
    cluster.run(10_000)
    cluster.nodes[survivor].core.change_members(GROUP, (survivor, *others), ())
    cluster.run(2000)
    cluster.crash(survivor)
    cluster.run(10_000)
    store = cluster.nodes[survivor].store
    for image in (store._disk[GROUP], store._memory[GROUP]):
        image.group_incarnation = 0
        image.configuration, image.configuration_index = Configuration((1, 2, 3)), 0
        image.quarantined = "something is lost"
    honest = type(store).restored
    store.restored = lambda group: honest(store, group)._replace(needs_head_recovery=True)
    cluster.start(survivor)
    del store.restored
    core = cluster.nodes[survivor].core
    assert status(cluster, survivor).incarnation == 1
    core.repair.reincarnate(GROUP, 2, NOBODY)
    cluster.drain(survivor)
    cluster.run(5000)
    assert core.repair.is_head_recovered(GROUP)
    core.repair.repaired(GROUP)
    cluster.run(2000)
    leader, = leaders(cluster)
    assert leader in others
    cluster.crash(leader)
    cluster.run(10_000)
    left = {survivor, *others} - {leader}
    assert {status(cluster, id_).leader for id_ in left} <= left
    cluster.start(leader)
    cluster.run(10_000)
    assert len(leaders(cluster)) == 1
    assert {status(cluster, id_).configuration.voters for id_ in cluster.nodes} == {
        (survivor, *others)}


def test_the_survivor_leads_in_a_later_term_than_those_who_are_lost_did():
    """It was cut off while they elected leaders.  Nodes and clients that knew the last of those
    took the survivor, of a lower term, for older news, and asked who is gone for good."""
    cluster = Cluster()
    cluster.run(2000)
    survivor = min(id_ for id_ in cluster.nodes if id_ != cluster.leader())
    others = [id_ for id_ in cluster.nodes if id_ != survivor]
    cluster.cut |= {link for id_ in others for link in ((survivor, id_), (id_, survivor))}
    for _ in range(5):
        lost = cluster.leader()
        cluster.nodes[lost].core.resign(GROUP, "asked to")
        cluster.run(3000)
    lost = next(id_ for id_ in others if status(cluster, id_).leader == id_)
    leader_table = LeaderTable()
    leader_table.learn(lost, (GROUP, 1, status(cluster, lost).term, True))
    assert status(cluster, survivor).term < status(cluster, lost).term - 1
    for id_ in others:
        cluster.crash(id_)
    cluster.nodes[survivor].core.repair.reincarnate(GROUP, 2, Configuration((survivor,)))
    cluster.run(2000)
    found = status(cluster, survivor)
    assert found.leader == survivor
    leader_table.learn(survivor, (GROUP, 2, found.term, True))
    assert leader_table.leader(GROUP)[0] == survivor
