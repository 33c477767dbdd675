"""Members that are caught up, as their leader sees them, and the version of the view of groups."""

from __future__ import annotations

from multiraft.raft.progress import Progress, ProgressState
from multiraft.types import Configuration
from tests.raft.cluster import Cluster


def led() -> tuple[Cluster, int]:
    """Return a cluster of three whose group has a leader, and that leader."""
    cluster = Cluster()
    cluster.run(1000)
    cluster.propose()
    cluster.run(200)
    return cluster, cluster.leader()


def test_a_member_that_receives_nothing_falls_behind_and_catches_up():
    cluster, leader = led()
    status = cluster.nodes[leader].core.status
    assert status.caught_up(1) == {1, 2, 3}
    late = leader % 3 + 1
    cluster.crash(late)
    for _ in range(3):
        cluster.propose()
        cluster.run(1000)
    assert status.caught_up(1) == {1, 2, 3} - {late}
    cluster.start(late)
    cluster.run(2000)
    assert cluster.leader() == leader and status.caught_up(1) == {1, 2, 3}
    assert cluster.nodes[late].core.status.caught_up(1) is None
    assert status.caught_up(9) is None


def test_entries_on_their_way_count_and_lost_ones_do_not():
    member = Progress(2, 11, 1, 1, 0)
    member.acknowledged(10, 0)
    assert member.is_caught_up(10) and not member.is_caught_up(11)
    member.become_replicate(11)
    assert not member.is_caught_up(11)
    member.sent(11, 5, 0)
    assert member.is_caught_up(11)
    member.records_left = 1
    assert not member.is_caught_up(11)
    member.records_left = 0
    member.retreat()
    assert not member.is_caught_up(11) and member.is_caught_up(10)
    member.state = ProgressState.QUARANTINED
    assert not member.is_caught_up(10)


def test_the_version_of_the_view_grows_with_leaders_members_and_support():
    cluster, leader = led()
    other = leader % 3 + 1
    status = cluster.nodes[other].core.status
    before = status.view_version
    cluster.run(2000)
    assert status.view_version == before, "nothing changes in an idle cluster"
    seen = [(status.leader_hint(1), status.node_state(leader), status.configuration(1))]
    versions = [before]

    def changed() -> None:
        now = status.leader_hint(1), status.node_state(leader), status.configuration(1)
        if now != seen[-1]:
            assert status.view_version > versions[-1]
            seen.append(now)
        versions.append(status.view_version)

    cluster.crash(leader)
    for _ in range(600):
        cluster.run(5)
        changed()
    cluster.start(leader)
    third = 6 - leader - other
    cluster.nodes[cluster.leader()].core.change_members(1, (other, third), ())
    for _ in range(600):
        cluster.run(5)
        changed()
    assert len(seen) > 3 and seen[-1][2] != Configuration((1, 2, 3))
