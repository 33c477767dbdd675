"""Replicas that lack records: the leader learns it, and makes none of them voter or leader."""

from __future__ import annotations

import pytest

from multiraft.errors import MembershipError, NotLeader, ProposalError, RecordsLeft
from multiraft.raft import quiescence
from multiraft.raft.messages import Append, AppendReply, Status, TimeoutNow
from tests.raft.solo import GROUP, Solo


def reply(solo: Solo, sender: int, left: int, is_barred: bool = False) -> list:
    return solo.step(sender, AppendReply(GROUP, 1, solo.status.term, Status.OK,
                                         solo.status.last_index, 0, solo.status.last_index,
                                         left << 1 | is_barred))


def leading(learners=()) -> Solo:
    solo = Solo(voters=(1, 2, 3), learners=learners)
    solo.lead()
    return solo


def left_of(solo: Solo) -> dict[int, int]:
    return {member.node: member.records_left for member in solo.status.members}


@pytest.mark.parametrize("left", [1, 1 << 40])
def test_a_learner_that_lacks_records_becomes_no_voter_until_it_has_them(left):
    solo = leading(learners=(4,))
    reply(solo, 2, 0)
    reply(solo, 4, left)
    with pytest.raises(RecordsLeft, match=f"node 4 is still copying .* group 1: {left} indexes"):
        solo.core.change_members(GROUP, (1, 2, 4), ())
    reply(solo, 4, 0)
    solo.core.change_members(GROUP, (1, 2, 4), ())


def test_voters_that_have_all_records_stay_until_a_majority_of_the_others_has_them():
    solo = leading()
    reply(solo, 2, 0)
    reply(solo, 3, 7)
    with pytest.raises(RecordsLeft, match="node 3 is still copying .* 7 indexes"):
        solo.core.change_members(GROUP, (1, 3), (2,))
    reply(solo, 3, 0)
    solo.core.change_members(GROUP, (1, 3), (2,))


def test_a_voter_that_has_not_acknowledged_an_entry_may_lack_records():
    solo = leading()
    reply(solo, 2, 0)
    with pytest.raises(MembershipError, match="voter 3 .* may lack records"):
        solo.core.change_members(GROUP, (1, 3), ())
    reply(solo, 3, 0)
    solo.core.change_members(GROUP, (1, 3), ())


@pytest.mark.parametrize("voters", [(1, 2), (2, 3), (3,)])
def test_a_leader_that_lacks_records_is_no_copy_of_them_either(voters):
    solo = leading()
    reply(solo, 2, 0)
    reply(solo, 3, 0)
    solo.core.set_records_left(GROUP, 4)
    if 1 in voters:
        with pytest.raises(RecordsLeft, match="node 1 is still copying"):
            solo.core.change_members(GROUP, voters, ())
        solo.core.set_records_left(GROUP, 0)
    solo.core.change_members(GROUP, voters, ())


def test_a_voter_that_lacks_records_may_leave():
    solo = leading()
    reply(solo, 2, 9)
    reply(solo, 3, 9)
    solo.core.change_members(GROUP, (1, 2), ())


def test_records_and_vote_barrier_are_told_apart():
    solo = leading()
    reply(solo, 2, 3, is_barred=True)
    reply(solo, 3, 0, is_barred=True)
    assert left_of(solo) == {2: 3, 3: 0}
    assert [member.state for member in solo.status.members] == ["copying", "replicate"]
    assert all(member.below_vote_barrier for member in solo.core._group(GROUP).progress.values())


def test_leadership_is_not_transferred_to_a_voter_that_lacks_records():
    solo = leading()
    reply(solo, 2, 0)
    reply(solo, 3, 7)
    with pytest.raises(ProposalError, match="still copying records, 7 indexes"):
        solo.core.transfer(GROUP, 3)
    solo.core.transfer(GROUP, 0)
    assert solo.status.transferee == 2


def test_a_leader_that_stops_takes_what_there_is():
    """With all other voters incomplete the group is led by one of them rather than by none."""
    solo = leading()
    reply(solo, 2, 9)
    reply(solo, 3, 7)
    solo.core.transfer(GROUP, 0)
    assert solo.status.transferee == 2


def test_a_leader_that_lacks_records_hands_leadership_to_a_voter_that_has_them():
    solo = leading()
    reply(solo, 2, 9)
    reply(solo, 3, 9)
    assert not solo.core.hand_to_complete(GROUP)
    reply(solo, 3, 0)
    assert solo.core.hand_to_complete(GROUP)
    assert [message for message in (each.message for each in solo.drain())
            if isinstance(message, TimeoutNow)]
    assert not solo.core.hand_to_complete(GROUP), "one transfer at a time"


def test_a_replica_that_does_not_lead_hands_nothing_over():
    with pytest.raises(NotLeader):
        Solo().core.hand_to_complete(GROUP)


def test_a_replica_tells_its_leader_at_once_when_what_it_lacks_changes():
    solo = Solo()
    solo.append(2, 1, (0, 0), (1, 1))
    for left in (5, 3, 0):
        solo.core.set_records_left(GROUP, left)
        [envelope] = solo.drain()
        assert (envelope.to, envelope.message.match) == (2, 2)
        assert envelope.message.hint_term == left << 1
        solo.core.set_records_left(GROUP, left)
        assert not solo.drain()
        assert solo.core.status.records_left(GROUP) == solo.status.records_left == left


def test_a_reply_that_a_lost_connection_took_is_asked_for_again():
    solo = leading()
    reply(solo, 3, 0)
    reply(solo, 2, 7)
    solo.sent.clear()
    solo.core.connected(2)
    assert [envelope.to for envelope in solo.drain() if isinstance(envelope.message, Append)] == [2]
    reply(solo, 2, 0)
    solo.core.connected(2)
    assert not [each for each in solo.drain() if isinstance(each.message, Append)]


def test_a_member_that_copies_records_is_asked_seldom_until_it_has_them():
    """Its last reply may be lost without a lost connection, and nothing else would ask."""
    solo = leading()
    for node, left in ((3, 0), (2, 7)):
        solo.step(node, AppendReply(GROUP, 1, 1, Status.OK, 1, 1, 1, left << 1))
    retry_ms = solo.core.config.retransmit_ms * quiescence.COPYING_RETRY
    solo.tick(solo.core.config.retransmit_ms)  # tells them the commit index
    assert not [each for each in solo.tick(retry_ms // 2) if isinstance(each, Append)]
    assert len([each for each in solo.tick(2 * retry_ms) if isinstance(each, Append)]) == 2
    assert not solo.status.quiesced
    solo.step(2, AppendReply(GROUP, 1, 1, Status.OK, 1, 1, 1, 0))
    assert not [each for each in solo.tick(3 * retry_ms) if isinstance(each, Append)]
    assert solo.status.quiesced


def test_a_group_quiesces_soon_after_its_last_member_has_copied_all():
    """And does not wait for the time of the next probe."""
    solo = leading()
    for node, left in ((3, 0), (2, 7)):
        solo.step(node, AppendReply(GROUP, 1, 1, Status.OK, 1, 1, 1, left << 1))
    solo.tick(2 * solo.core.config.retransmit_ms)
    assert not solo.status.quiesced
    solo.step(2, AppendReply(GROUP, 1, 1, Status.OK, 1, 1, 1, 0))
    solo.tick(solo.core.config.retransmit_ms)
    assert solo.status.quiesced


def test_a_replica_that_installs_a_snapshot_does_not_campaign():
    solo = Solo()
    solo.append(2, 1, (0, 0), (1, 1), commit=2)
    assert solo.core.begin_install(GROUP, 9, 1) and solo.core.status.is_installing(GROUP)
    solo.core.lease_withdrawn(2)
    solo.drain()
    solo.tick(60_000)
    assert (solo.status.role, solo.status.term) == (0, 1)
    assert not solo.core.begin_install(GROUP, 10, 1), "one at a time"


def test_a_replica_installs_nothing_before_it_has_applied_what_it_has_committed():
    solo = Solo()
    solo.append(2, 1, (0, 0), (1, 1))
    solo.core.step(2, Append(GROUP, 1, 1, 2, 1, 2, 2))
    assert solo.core.status.commit_index(GROUP) == 2
    assert not solo.core.begin_install(GROUP, 9, 1)
    solo.drain()
    assert solo.core.begin_install(GROUP, 9, 1)
