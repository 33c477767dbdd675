"""Messages of a member from before a restart of its node, or from a removed replica, do not
count."""

from __future__ import annotations

import pytest

from multiraft.raft.config import RaftConfig
from multiraft.raft.messages import Append, AppendReply, Status
from tests.raft.solo import GROUP, Solo

RELAXED = RaftConfig(accept_lost_entries=True)


def leading(voters=(1, 2, 3, 4, 5), learners=(), config=None) -> Solo:
    """Node 1 leads; entry 1 is committed, and 2 is on its own disk only."""
    solo = Solo(voters=voters, learners=learners, config=config)
    solo.lead()
    for node in solo.others:
        solo.acknowledge(node, 1)
    solo.core.propose(GROUP, 7, b"a")
    solo.drain()
    return solo


def member(solo: Solo, node: int = 2):
    return next(each for each in solo.status.members if each.node == node)


def stamp_of(messages: list) -> int:
    return max(message.read_round for message in messages if isinstance(message, Append))


def mismatch(solo: Solo, node: int, hint: int, read_round: int) -> list:
    term = hint and solo.status.term
    return solo.step(node, AppendReply(GROUP, 1, solo.status.term, Status.MISMATCH, 0, 0, hint,
                                       term, read_round))


def test_a_late_acknowledgement_does_not_tell_what_the_new_life_knows():
    solo = leading((1, 2, 3))
    solo.acknowledge(2, 2, commit=2)
    solo.acknowledge(3, 2, commit=2)
    assert solo.status.commit == 2
    read_round = stamp_of(solo.new_life(2))
    solo.acknowledge(2, 2, commit=2)  # once more, from before
    assert member(solo).commit_known == 0
    assert [message for message in solo.tick(600) if isinstance(message, Append)]
    solo.acknowledge(2, 2, commit=2, read_round=read_round)
    solo.tick(600)
    assert member(solo).commit_known == 2 and solo.status.quiesced


def test_what_a_restarted_member_may_have_lost_does_not_commit():
    """With relaxed durability, only a reply of the new boot epoch tells what is left."""
    solo = leading(config=RELAXED)
    solo.acknowledge(2, 2)
    assert member(solo).match == 2
    read_round = stamp_of(solo.new_life(2))
    assert member(solo).match == 0
    solo.acknowledge(3, 2)
    assert solo.status.commit == 1
    solo.acknowledge(2, 2, read_round=read_round)  # it has not lost it
    assert solo.status.commit == 2


def test_a_late_acknowledgement_does_not_bring_back_what_a_member_has_forgotten():
    solo = leading(config=RELAXED)
    solo.acknowledge(2, 2)
    read_round = stamp_of(solo.new_life(2))
    mismatch(solo, 2, 0, read_round)
    solo.acknowledge(2, 2)  # of the first life
    assert member(solo).match == 0
    solo.acknowledge(3, 2)
    assert solo.status.commit == 1


def test_nor_does_it_when_the_member_says_so_before_its_new_life_is_known():
    """Groups are re-examined in slices: a reply may arrive before the group has seen the new boot
    epoch."""
    solo = leading(config=RELAXED)
    solo.acknowledge(2, 2)
    mismatch(solo, 2, 0, 0)
    assert member(solo).match == 0
    solo.acknowledge(2, 2)
    assert member(solo).match == 0


def test_what_is_durable_counts_for_the_next_life_too():
    solo = leading()
    solo.acknowledge(2, 2)
    solo.new_life(2)
    assert member(solo).match == 2
    solo.acknowledge(3, 2)
    assert solo.status.commit == 2


def test_a_late_answer_of_an_earlier_life_confirms_nothing_that_is_asked_after_it():
    solo = leading((1, 2, 3))
    solo.acknowledge(2, 2, commit=2)
    solo.new_life(2)
    solo.core.read_index(GROUP, "read")
    solo.drain()
    solo.acknowledge(2, 2, commit=2)
    assert solo.reads == []
    solo.acknowledge(2, 2, commit=2, read_round=solo.core._group(GROUP).read_round)
    assert [read.token for read in solo.reads] == ["read"]


def unknown(solo: Solo, node: int, read_round: int) -> list:
    return solo.step(node, AppendReply(GROUP, 1, solo.status.term, Status.UNKNOWN_GROUP, 0, 0, 0, 0,
                                       read_round))


@pytest.mark.parametrize("node", [2, 6])
def test_a_replica_that_was_removed_and_made_again_is_fed_from_its_beginning(node):
    """The leader did not remove it: what it had acknowledged is gone all the same."""
    solo = leading(learners=(6,))
    solo.acknowledge(node, 2, commit=1)
    unknown(solo, node, 0)
    assert member(solo, node).match == 0 and member(solo, node).state == "unknown_group"
    solo.acknowledge(node, 2, commit=1)  # late
    assert member(solo, node).match == 0
    asked = solo.tick(600)
    replies = mismatch(solo, node, 0, stamp_of(asked))
    assert [(message.prev_index, message.last_index) for message in replies] == [(0, 2)]


def test_a_replica_that_says_again_that_it_is_not_there_is_believed_once():
    solo = leading(learners=(6,))
    solo.acknowledge(6, 2, commit=1)
    unknown(solo, 6, 0)
    read_round = stamp_of(solo.tick(600))
    solo.acknowledge(6, 2, commit=1, read_round=read_round)
    unknown(solo, 6, 0)  # repeated
    assert member(solo, 6).match == 2 and member(solo, 6).state == "replicate"


def test_a_group_does_not_sleep_while_a_member_has_no_replica():
    solo = leading((1, 2, 3))
    solo.acknowledge(2, 2, commit=2)
    solo.acknowledge(3, 2, commit=2)
    solo.tick(600)
    assert solo.status.quiesced
    solo.core.connected(3)
    solo.core.announce_commit(GROUP)
    solo.drain()
    unknown(solo, 3, 0)
    assert not solo.status.quiesced
    assert [message for message in solo.tick(5000) if isinstance(message, Append)]
