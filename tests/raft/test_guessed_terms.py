"""Entries that were lost, and that the other members have compacted: their terms are guesses."""

from __future__ import annotations

import pytest

from multiraft.errors import ImpossibleMessage
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.messages import AppendReply, SnapshotOffer, Status
from multiraft.raft.raft_log import RaftLog
from multiraft.types import EntryKind
from tests.raft.solo import GROUP, Solo


def test_terms_are_known_from_the_entry_behind_the_last_guess_on():
    log = RaftLog(LogBounds(6, 1, 9), ((6, 1), (8, 3)), 9, 9, 7)
    assert log.terms_from == 8
    log.compact(8)
    assert (log.first_index, log.terms_from) == (8, 8)
    log.compact(9)
    assert (log.first_index, log.prev_term, log.terms_from) == (9, 3, 8)
    log.compact(10)
    assert log.terms_from == 9, "the term before the log is known again"
    log._check()
    assert RaftLog(LogBounds(6, 1, 9), ((6, 1),), 9, 9).terms_from == 5


def test_a_log_without_guesses_begins_with_its_first_entry():
    log = RaftLog(LogBounds(1, 0, 3), ((1, 1),), 2, 2)
    log.set_guessed_through(0)
    assert log.terms_from == 0, "the first entry can be sent"


def follower(guessed_through: int) -> Solo:
    """A replica that has lost its last two entries, of a later term, which are applied."""
    solo = Solo(terms=[1, 1, 1, 1])
    solo.append(2, 1, prev=(4, 1), commit=4)
    assert solo.status.applied_index == 4
    solo.core.compacted(GROUP, 5)
    solo.core.repair.set_guessed_through(GROUP, guessed_through)
    return solo


def test_a_follower_accepts_what_follows_an_entry_whose_term_it_guessed():
    solo = follower(4)
    replies = solo.append(3, 5, prev=(4, 4), terms=[5], commit=5)
    assert [(reply.status, reply.match) for reply in replies] == [(Status.OK, 5)]
    assert solo.status.applied_index == 5
    with pytest.raises(ImpossibleMessage):
        solo.append(3, 5, prev=(5, 4), commit=5)


def test_it_does_not_call_a_compacted_entry_of_another_term_a_contradiction():
    solo = follower(4)
    replies = solo.append(3, 5, prev=(2, 1), terms=[4, 4, 5], commit=5)
    assert [(reply.status, reply.match) for reply in replies] == [(Status.OK, 5)]


def test_a_term_that_is_known_is_compared():
    with pytest.raises(ImpossibleMessage):
        follower(0).append(3, 5, prev=(4, 4), terms=[5], commit=5)


def test_a_leader_sends_nothing_behind_a_guess_but_a_snapshot():
    solo = Solo(terms=[1, 1, 1, 1])
    solo.lead()
    solo.acknowledge(2, 5)
    solo.core.compacted(GROUP, 6)
    solo.core.repair.set_guessed_through(GROUP, 5)
    assert not solo.core.status.is_applied_term_known(GROUP), "none can be taken now"
    solo.core.propose(GROUP, EntryKind.METADATA, b"")
    solo.drain()
    sent = solo.step(3, AppendReply(GROUP, 1, solo.status.term, Status.MISMATCH, 0, 0, 5, 1))
    assert [(type(each), each.first_index) for each in sent] == [(SnapshotOffer, 7)]
    solo.acknowledge(2, 6)
    assert solo.status.applied_index == 6
    assert solo.core.status.is_applied_term_known(GROUP)
    assert solo.core.snapshot_point(GROUP)[0] == LogBounds(7, solo.status.term, 6)
    sent = solo.acknowledge(3, 5)  # its log ends with the entry that was lost here
    assert [(type(each), each.first_index) for each in sent] == [(SnapshotOffer, 7)]
    solo.acknowledge(3, 6)
    solo.core.propose(GROUP, EntryKind.METADATA, b"")
    assert [each.message.prev_index for each in solo.drain() if each.to == 3] == [6]
