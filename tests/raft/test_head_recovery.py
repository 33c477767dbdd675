"""A replica that lost its log's end follows uncounted, and comes back only when cleared."""

from __future__ import annotations

import pytest

from multiraft.errors import MembershipError, ProposalError
from multiraft.raft.config import RaftConfig
from multiraft.raft.messages import AppendReply, HeadRecoveryGrant, HeadRecoveryRequest, Status
from multiraft.types import HardState
from tests.raft.cluster import Cluster

GROUP = 1


def established(nodes: int = 3, entries: int = 5) -> tuple[Cluster, int]:
    """A cluster with a leader and some committed entries."""
    cluster = Cluster(nodes=nodes)
    cluster.run(3000)
    for number in range(entries):
        cluster.propose(b"%d" % number)
    cluster.run(1000)
    return cluster, cluster.leader()


def lose_end(cluster: Cluster, id_: int, keep: int, forget_vote: bool = False) -> None:
    """The node restarts with the first ``keep`` entries of its log, not knowing what it lost."""
    cluster.crash(id_)
    store = cluster.nodes[id_].store
    for image in (store._disk[GROUP], store._memory[GROUP]):
        del image.entries[keep:]
        image.applied = min(image.applied, keep)
        image.quarantined = "its end is lost"
        if forget_vote:
            last = image.entries[-1].term if image.entries else 0
            image.hard_state = HardState(last, 0)
    honest = type(store).restored
    store.restored = lambda group: honest(store, group)._replace(needs_head_recovery=True)
    cluster.start(id_)
    del store.restored


def status(cluster: Cluster, id_: int):
    return cluster.nodes[id_].core.status.of(GROUP)


def events(cluster: Cluster, id_: int, kind: str) -> list:
    return [event for event in cluster.nodes[id_].events if event.kind == kind]


def other_than(cluster: Cluster, *ids: int) -> int:
    return next(id_ for id_ in cluster.nodes if id_ not in ids)


def test_a_doubter_is_fed_and_cleared_by_an_entry_committed_without_it():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    before = status(cluster, leader).last_index
    lose_end(cluster, doubter, keep=2, forget_vote=True)
    cluster.run(2000)
    assert status(cluster, doubter).quarantined
    assert len(events(cluster, doubter, "head_recovered")) == 1
    (barrier,) = events(cluster, doubter, "head_recovered")[0].fields
    assert barrier > before
    assert status(cluster, doubter).last_index == status(cluster, leader).last_index
    assert status(cluster, doubter).vote != 0  # it may not vote again in this term
    cluster.nodes[doubter].core.repair.repaired(GROUP)
    cluster.run(1000)
    assert status(cluster, doubter).quarantined == ""
    matches = {member.node: member.match for member in status(cluster, leader).members}
    assert matches[doubter] == status(cluster, leader).last_index


def test_a_doubter_counts_for_no_commit():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    third = other_than(cluster, leader, doubter)
    lose_end(cluster, doubter, keep=2)
    cluster.crash(third)
    commit = status(cluster, leader).commit
    cluster.propose(b"counted by the doubter alone", node=leader)
    cluster.settle()
    assert status(cluster, doubter).last_index > commit
    assert status(cluster, leader).commit == commit
    assert events(cluster, doubter, "head_recovered") == []


def test_a_doubter_votes_for_nobody():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    lose_end(cluster, doubter, keep=2)
    cluster.crash(leader)
    cluster.run(20_000)
    assert cluster.leader() == 0


def test_an_acknowledgement_from_before_the_loss_does_not_count_after_it():
    cluster, leader = established(nodes=5)
    doubter = other_than(cluster, leader)
    core = cluster.nodes[leader].core
    lose_end(cluster, doubter, keep=2)
    core.step(doubter, HeadRecoveryRequest(GROUP, 1, status(cluster, leader).term, 77))
    stale = AppendReply(GROUP, 1, status(cluster, leader).term, Status.OK,
                        status(cluster, leader).commit, 0, 0, 0)
    core.step(doubter, stale)
    member = next(member for member in status(cluster, leader).members if member.node == doubter)
    assert member.match == 0


def test_a_clearance_of_another_episode_clears_nothing():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    cluster.cut |= {(doubter, leader)}
    lose_end(cluster, doubter, keep=2)
    cluster.run(300)
    term = status(cluster, doubter).term
    cluster.nodes[doubter].core.step(leader, HeadRecoveryGrant(GROUP, 1, term, 4711, 1))
    cluster.drain(doubter)
    assert events(cluster, doubter, "head_recovered") == []


def test_each_leader_clears_anew():
    cluster, leader = established(nodes=5)
    doubter = other_than(cluster, leader)
    cluster.cut |= {(leader, doubter)}  # the old leader's clearance never arrives
    lose_end(cluster, doubter, keep=2)
    cluster.run(1000)
    assert events(cluster, doubter, "head_recovered") == []
    cluster.crash(leader)
    cluster.run(5000)
    assert cluster.leader() not in (0, leader, doubter)
    assert len(events(cluster, doubter, "head_recovered")) == 1


@pytest.mark.parametrize("nodes", [3, 5])
def test_what_a_held_replica_lacks_does_not_move_until_it_is_repaired(nodes):
    cluster, leader = established(nodes=nodes)
    held = other_than(cluster, leader)
    cluster.nodes[held].core.repair.quarantine(GROUP, "entry 3 is damaged")
    cluster.drain(held)
    last = status(cluster, held).last_index
    cluster.propose(b"not for the held one", node=leader)
    cluster.run(1000)
    assert status(cluster, held).last_index == last
    cluster.nodes[held].core.repair.repaired(GROUP)
    cluster.run(1000)
    assert status(cluster, held).last_index == last + 1
    assert status(cluster, held).quarantined == ""


def test_a_lost_notice_of_repair_is_made_up_for_by_asking_again():
    cluster, leader = established()
    held = other_than(cluster, leader)
    cluster.nodes[held].core.repair.quarantine(GROUP, "entry 3 is damaged")
    cluster.drain(held)
    cluster.propose(b"answered by a refusal", node=leader)
    cluster.run(500)
    cluster.cut |= {(held, leader)}
    cluster.nodes[held].core.repair.repaired(GROUP)
    cluster.settle()
    cluster.cut.clear()
    cluster.run(20_000)
    assert status(cluster, held).last_index == status(cluster, leader).last_index


def test_a_doubter_of_a_sleeping_group_speaks_up_until_it_is_heard():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    assert status(cluster, leader).quiesced
    node = cluster.nodes[doubter]
    node.core.repair.quarantine(GROUP, "found by the scrub")
    cluster.cut.add((doubter, leader))
    node.core.repair.begin_head_recovery(GROUP)
    cluster.run(300)
    assert not events(cluster, doubter, "head_recovered"), "the first word was lost"
    cluster.cut.discard((doubter, leader))
    cluster.run(2000)
    assert len(events(cluster, doubter, "head_recovered")) == 1


def test_a_doubter_that_was_removed_meanwhile_is_told_so():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    others = tuple(id_ for id_ in cluster.nodes if id_ != doubter)
    cluster.crash(doubter)
    cluster.nodes[leader].core.change_members(GROUP, others, ())
    cluster.run(3000)
    assert status(cluster, leader).configuration.voters == others
    lose_end(cluster, doubter, keep=2)
    cluster.run(10_000)
    assert GROUP not in cluster.nodes[doubter].core.status.groups()


def test_an_old_doubt_that_comes_late_holds_nobody_up():
    """One entry per append, and a member that lacks several: what it acknowledges on the way to the
    barrier has to count for feeding it."""
    config = RaftConfig(append_bytes_max=1, peer_window_bytes=1, catch_up_append_bytes=1,
                        catch_up_window_bytes=1)
    cluster = Cluster(config=config.validate())
    cluster.run(3000)
    leader = cluster.leader()
    member = other_than(cluster, leader)
    cluster.cut |= {(leader, member)}
    for number in range(5):
        cluster.propose(b"%d" % number)
    cluster.run(200)
    lacks = status(cluster, member).last_index
    term = status(cluster, leader).term
    cluster.nodes[leader].core.step(member, HeadRecoveryRequest(GROUP, 1, term, 77))
    cluster.cut.clear()
    cluster.run(20_000)
    assert status(cluster, member).last_index > lacks
    assert status(cluster, member).last_index == status(cluster, leader).last_index
    seen = next(seen for seen in status(cluster, leader).members if seen.node == member)
    assert seen.match == status(cluster, leader).last_index


def test_what_waited_for_a_doubter_is_committed_when_it_is_cleared():
    """It was fed up to the log's end before, so that its clearance is all that is news."""
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    lose_end(cluster, doubter, keep=2)
    cluster.run(2000)
    assert len(events(cluster, doubter, "head_recovered")) == 1
    cluster.crash(other_than(cluster, leader, doubter))
    last = cluster.propose(b"nobody else can commit it", node=leader).index
    cluster.settle()
    assert status(cluster, leader).commit == last - 1
    cluster.nodes[doubter].core.repair.repaired(GROUP)
    cluster.run(400)
    assert status(cluster, leader).commit == last


def test_a_later_doubt_needs_a_clearance_of_its_own():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    lose_end(cluster, doubter, keep=2)
    cluster.run(2000)
    core = cluster.nodes[doubter].core
    assert core.repair.is_head_recovered(GROUP)
    core.repair.repaired(GROUP)
    cluster.run(1000)
    core.repair.quarantine(GROUP, "found by the scrub")
    assert not core.repair.is_head_recovered(GROUP)
    core.repair.begin_head_recovery(GROUP)
    cluster.run(1000)
    assert core.repair.is_head_recovered(GROUP)


def test_a_doubter_that_was_removed_hears_of_it_though_its_leader_never_comes_back():
    cluster, leader = established(nodes=5)
    doubter = other_than(cluster, leader)
    others = tuple(id_ for id_ in cluster.nodes if id_ not in (leader, doubter))
    cluster.cut |= {link for id_ in others for link in ((doubter, id_), (id_, doubter))}
    cluster.run(1000)
    cluster.crash(leader)
    cluster.run(5000)
    assert status(cluster, doubter).leader == leader
    cluster.nodes[cluster.leader()].core.change_members(GROUP, others, ())
    cluster.run(3000)
    cluster.nodes[doubter].core.repair.quarantine(GROUP, "found by the scrub")
    cluster.nodes[doubter].core.repair.begin_head_recovery(GROUP)
    cluster.cut.clear()
    cluster.run(10_000)
    assert GROUP not in cluster.nodes[doubter].core.status.groups()


def test_a_held_replica_that_was_removed_meanwhile_is_told_so():
    """Perhaps no member has its missing entries, or no repair helps it."""
    cluster, leader = established()
    held = other_than(cluster, leader)
    others = tuple(id_ for id_ in cluster.nodes if id_ != held)
    cluster.nodes[held].core.repair.quarantine(GROUP, "entry 3 is damaged")
    cluster.drain(held)
    cluster.cut |= {link for id_ in others for link in ((held, id_), (id_, held))}
    cluster.run(1000)
    cluster.nodes[leader].core.change_members(GROUP, others, ())
    cluster.run(3000)
    cluster.cut.clear()
    cluster.run(10_000)
    assert GROUP not in cluster.nodes[held].core.status.groups()


@pytest.mark.parametrize("doubts", [True, False])
def test_no_majority_is_left_that_needs_who_is_not_counted(doubts):
    """Of two voters, one in head recovery stays uncounted once the other no longer leads."""
    cluster, leader = established()
    damaged = other_than(cluster, leader)
    third = other_than(cluster, leader, damaged)
    cluster.cut |= {(leader, third), (third, leader)}
    if doubts:
        lose_end(cluster, damaged, keep=2)
    else:
        cluster.nodes[damaged].core.repair.quarantine(GROUP, "entry 3 is damaged")
        cluster.drain(damaged)
        cluster.propose(b"answered by a refusal", node=leader)
    cluster.run(400)
    core = cluster.nodes[leader].core
    if core.status.is_leader(GROUP):
        with pytest.raises(MembershipError):
            core.change_members(GROUP, (leader, damaged), ())
    cluster.cut.clear()
    cluster.run(2000)
    if not doubts:
        cluster.nodes[damaged].core.repair.begin_head_recovery(GROUP)
    cluster.run(3000)
    assert len(events(cluster, damaged, "head_recovered")) == 1


@pytest.mark.parametrize("joint_is_committed", [True, False])
def test_one_of_two_voters_that_doubts_itself_is_cleared_by_the_other(joint_is_committed):
    """Without it no entry is committed, and no leader was elected without the other: the entries of
    the other voter suffice.  The same holds if the recovery begins during a change to two
    voters."""
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    core = cluster.nodes[leader].core
    if not joint_is_committed:
        cluster.cut |= {(leader, doubter), (doubter, leader)}
    core.change_members(GROUP, (leader, doubter), ())
    cluster.settle()
    cluster.cut.clear()
    assert bool(status(cluster, leader).configuration.outgoing) != joint_is_committed
    cluster.nodes[doubter].core.repair.quarantine(GROUP, "found by the scrub")
    cluster.nodes[doubter].core.repair.begin_head_recovery(GROUP)
    cluster.run(3000)
    assert len(events(cluster, doubter, "head_recovered")) == 1
    cluster.nodes[doubter].core.repair.repaired(GROUP)
    cluster.run(2000)
    assert status(cluster, leader).commit == status(cluster, leader).last_index
    assert set(status(cluster, doubter).configuration.voters) == {leader, doubter}


def test_half_of_the_voters_clears_a_doubt_and_less_than_half_does_not():
    cluster, leader = established(nodes=4)
    doubter = other_than(cluster, leader)
    well = other_than(cluster, leader, doubter)
    third = other_than(cluster, leader, doubter, well)
    cluster.cut |= {(id_, well) for id_ in cluster.nodes} | {(well, id_) for id_ in cluster.nodes}
    lose_end(cluster, doubter, keep=2)
    cluster.crash(third)
    cluster.settle()
    core = cluster.nodes[leader].core
    core.step(doubter, HeadRecoveryRequest(GROUP, 1, status(cluster, leader).term, 77))
    cluster.drain(leader)
    cluster.settle()
    assert events(cluster, doubter, "head_recovered") == []
    cluster.cut.clear()
    cluster.run(1000)
    assert len(events(cluster, doubter, "head_recovered")) == 1


@pytest.mark.parametrize("follows", [True, False])
def test_a_group_is_not_handed_to_who_is_damaged(follows):
    """Its log may be as long as any other.  While no entry is appended, its leader learns of the
    damage only by the refusal of the transfer."""
    cluster, leader = established()
    core = cluster.nodes[leader].core
    heir = next(id_ for id_ in status(cluster, leader).configuration.voters if id_ != leader)
    cluster.nodes[heir].core.repair.quarantine(GROUP, "entry 3 is damaged")
    if follows:
        cluster.nodes[heir].core.repair.begin_head_recovery(GROUP)
        cluster.run(1000)
    for _ in range(2):
        if core.status.is_leader(GROUP):
            core.transfer(GROUP, 0)
            cluster.run(2000)
    assert cluster.leader() == other_than(cluster, leader, heir)


@pytest.mark.parametrize("follows", [True, False])
def test_a_group_that_is_handed_to_who_is_damaged_by_name_takes_proposals_again_at_once(follows):
    cluster, leader = established()
    core = cluster.nodes[leader].core
    heir = other_than(cluster, leader)
    cluster.nodes[heir].core.repair.quarantine(GROUP, "entry 3 is damaged")
    cluster.drain(heir)
    if follows:
        cluster.nodes[heir].core.repair.begin_head_recovery(GROUP)
        cluster.settle()
        with pytest.raises(ProposalError):
            core.transfer(GROUP, heir)
    else:
        core.transfer(GROUP, heir)
        cluster.settle()
    assert status(cluster, leader).transferee == 0
    cluster.propose(b"not held up", node=leader)


def test_a_doubter_that_is_no_member_is_told_so_at_once():
    cluster, leader = established()
    doubter = other_than(cluster, leader)
    others = tuple(id_ for id_ in cluster.nodes if id_ != doubter)
    cluster.cut |= {(id_, doubter) for id_ in others}
    cluster.nodes[leader].core.change_members(GROUP, others, ())
    cluster.settle()
    cluster.cut.clear()
    cluster.nodes[doubter].core.repair.quarantine(GROUP, "found by the scrub")
    cluster.nodes[doubter].core.repair.begin_head_recovery(GROUP)
    cluster.settle()
    assert GROUP not in cluster.nodes[doubter].core.status.groups()


def test_what_is_forgotten_already_is_not_forgotten_twice():
    """The store has the entries until their truncation is staged, which waits while the disk hangs;
    repair finds them missing there, and asks again."""
    cluster, leader = established()
    held = other_than(cluster, leader)
    cluster.crash(held)
    cluster.start(held)
    core = cluster.nodes[held].core
    core.repair.quarantine(GROUP, "entry 3 is damaged")
    assert core.repair.may_truncate(GROUP, 3)
    core.repair.truncate(GROUP, 3)
    assert not core.repair.may_truncate(GROUP, 3)
