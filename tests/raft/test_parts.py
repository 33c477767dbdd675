"""Timers, digests, hints, progress and the tables: the small parts of the core."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.liveness.leader_table import LeadershipChanges, LeaderTable
from multiraft.liveness.leadership_digest import BUCKETS, LeadershipDigest, fact
from multiraft.raft import conf_change as changes
from multiraft.raft import describe, election, messages, multi_raft, peers
from multiraft.raft.messages import (
    Append,
    AppendReply,
    HeadRecoveryGrant,
    HeadRecoveryRequest,
    Removed,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.status import Role
from multiraft.raft.timers import SLACK, Timers

# ---- dispatch ----------------------------------------------------------------------------------

#: Pairs that must not be handled: each is a stale message, and why.
IGNORED = {
    (AppendReply, Role.FOLLOWER): "answers a leader of an earlier term",
    (AppendReply, Role.PRE_CANDIDATE): "answers a leader of an earlier term",
    (AppendReply, Role.CANDIDATE): "answers a leader of an earlier term",
    (TimeoutNow, Role.PRE_CANDIDATE): "it asks for votes already",
    (TimeoutNow, Role.CANDIDATE): "it asks for votes already",
    (TimeoutNow, Role.LEADER): "it leads already",
    (Removed, Role.LEADER): "who leads is a member, or finds out by itself",
    (HeadRecoveryRequest, Role.FOLLOWER): "said to a leader that leads no more",
    (HeadRecoveryRequest, Role.PRE_CANDIDATE): "said to a leader that leads no more",
    (HeadRecoveryRequest, Role.CANDIDATE): "said to a leader that leads no more",
    (HeadRecoveryGrant, Role.PRE_CANDIDATE): "a doubter asks for no votes: it was cleared before",
    (HeadRecoveryGrant, Role.CANDIDATE): "a doubter asks for no votes: it was cleared before",
    (HeadRecoveryGrant, Role.LEADER): "a doubter does not lead: it was cleared before",
}


def test_every_message_is_handled_or_ignored_on_purpose_in_every_role():
    kinds = messages.GroupMessage.__args__
    pairs = {(kind, role) for kind in kinds for role in Role}
    assert {*multi_raft.HANDLERS} | {*IGNORED} == pairs
    assert not {*multi_raft.HANDLERS} & {*IGNORED}
    assert {*peers.HANDLERS} == {*messages.NodeMessage.__args__}
    assert {*describe._MESSAGES} == {*kinds, *messages.NodeMessage.__args__}


def test_every_handler_belongs_to_the_message_it_is_registered_for():
    assert multi_raft.HANDLERS[VoteRequest, Role.FOLLOWER] is election.on_vote_request
    assert multi_raft.HANDLERS[VoteRequest, Role.LEADER] is changes.on_vote_request_as_leader
    assert multi_raft.HANDLERS[VoteReply, Role.CANDIDATE] is election.on_vote_reply
    assert multi_raft.HANDLERS[Append, Role.LEADER].__name__ == "on_append_as_leader"


# ---- timers ------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["arm", "cancel", "due"]), st.integers(0, 5),
                          st.integers(0, 50)), max_size=80))
def test_timers_fire_like_a_dictionary_of_deadlines(steps):
    timers, deadlines = Timers(), {}
    for step, key, number in steps:
        if step == "arm":
            timers.arm(key, number)
            deadlines[key] = min(deadlines.get(key, number), number)
        elif step == "cancel":
            timers.cancel(key)
            deadlines.pop(key, None)
        else:
            fired = []
            while (due := timers.pop_due(number)) is not None:
                fired.append(due)
            expected = sorted((at, key) for key, at in deadlines.items() if at <= number)
            assert fired == [key for _, key in expected]
            for key in fired:
                del deadlines[key]
        timers._check()
        assert timers.next_ms() == min(deadlines.values(), default=None)


def test_cancelled_timers_do_not_pile_up():
    timers = Timers()
    for count in range(100_000):
        timers.arm(1, count)
        timers.cancel(1)
    assert len(timers._heap) <= SLACK + 2


# ---- digests -----------------------------------------------------------------------------------


def test_sums_do_not_depend_on_the_order_and_can_be_taken_back():
    facts = [(group, fact(group, 1, group % 7)) for group in range(500)]
    one, other = LeadershipDigest(), LeadershipDigest()
    for group, value in facts:
        one.add(group, value)
    shuffled = [*facts]
    random.Random(1).shuffle(shuffled)
    for group, value in shuffled:
        other.add(group, value)
    assert (one.total, one.buckets) == (other.total, other.buckets)
    for group, value in facts[:-1]:
        one.remove(group, value)
    assert one.total == facts[-1][1] == one.buckets[facts[-1][0] % BUCKETS]


def test_facts_differ_in_every_part_and_in_every_bit():
    facts = {fact(group, incarnation, term) for group in range(20) for incarnation in range(20)
             for term in range(20)}
    assert len(facts) == 8000
    for bit in range(64):
        ones = sum(value >> bit & 1 for value in facts)
        assert 3600 < ones < 4400, f"bit {bit} is set in {ones} of 8000"


# ---- hints -------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 6), st.booleans()), max_size=40), st.data())
def test_fetching_changes_in_pieces_gives_the_same_as_the_list_itself(steps, data):
    led, leader_table, term = LeadershipChanges(), LeaderTable(), 0
    leading: dict[int, int] = {}
    for group, leads in steps:
        term += 1
        led.record(group, 1, leading.get(group, term) if not leads else term, leads)
        leading.pop(group, None)
        if leads:
            leading[group] = term
        if data.draw(st.booleans()):
            copied = leader_table.copied.get(2, 0)
            version, changes = led.since(copied, data.draw(st.integers(1, 3)))
            for change in changes:
                leader_table.learn(2, change)
            leader_table.copied[2] = version
    while leader_table.copied.get(2, 0) != led.version:
        leader_table.copied[2], changes = led.since(leader_table.copied.get(2, 0), 2)
        for change in changes:
            leader_table.learn(2, change)
    for group in range(1, 7):
        leader, at = leader_table.leader(group)
        assert (leader, at if leader else 0) == ((2, leading[group]) if group in leading
                                                 else (0, 0))


def test_a_hint_ends_although_the_leadership_that_it_names_was_followed_by_another_one():
    led, leader_table = LeadershipChanges(), LeaderTable()
    led.record(1, 1, 4, True)
    leader_table.copied[2], changes = led.since(0, 10)
    for change in changes:
        leader_table.learn(2, change)
    assert leader_table.leader(1) == (2, 4)
    led.record(1, 1, 4, False)
    led.record(1, 1, 7, True)
    led.record(1, 1, 7, False)  # the list holds this change of the group alone
    _, changes = led.since(leader_table.copied[2], 10)
    for change in changes:
        leader_table.learn(2, change)
    assert leader_table.leader(1) == (0, 7)


def test_a_hint_of_an_older_term_does_not_replace_a_newer_one():
    leader_table = LeaderTable()
    leader_table.learn(2, (1, 1, 5, True))
    leader_table.learn(3, (1, 1, 4, True))
    leader_table.learn(3, (1, 1, 4, False))
    assert leader_table.leader(1) == (2, 5)
    leader_table.learn(2, (1, 1, 5, False))
    assert leader_table.leader(1) == (0, 5)


# ---- progress ----------------------------------------------------------------------------------


def test_an_acknowledgement_frees_the_window_for_all_it_covers():
    progress = Progress(2, 1, 1, 1, 0)
    progress.become_replicate(1)
    for last, size in ((2, 100), (5, 300), (6, 50)):
        progress.sent(last, size, 10)
    assert progress.acknowledged(5, 20)
    assert (progress.inflight_bytes, progress.match, progress.next_index) == (50, 5, 7)
    assert not progress.acknowledged(3, 30)
    assert progress.match == 5
    progress._check()


def test_retreat_goes_to_what_is_known_and_no_further():
    progress = Progress(2, 11, 1, 1, 0)
    progress.retreat()
    assert progress.next_index == 11, "nothing is known: ask there again, not from the beginning"
    progress.become_replicate(5)
    progress.sent(9, 10, 0)
    progress.acknowledged(6, 0)
    progress.retreat()
    assert (progress.state, progress.next_index) == (ProgressState.PROBE, 7)


@pytest.mark.parametrize("next_index", [0, 3, 7])
def test_nothing_below_match_is_ever_sent(next_index):
    progress = Progress(2, 5, 1, 1, 0)
    progress.acknowledged(4, 0)
    progress.become_probe(next_index)
    assert progress.next_index >= 5
