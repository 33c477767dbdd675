"""Well-formed items of a lying peer: the core refuses or obeys them, and its state stays sound."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import ImpossibleMessage
from multiraft.raft import messages as m
from multiraft.types import Entry, EntryKind
from node.peers.codec import TERM_MAX
from tests.node.peers.test_codec import MESSAGES
from tests.raft.solo import GROUP, Solo

small = st.integers(0, 6)
near_terms = st.integers(0, 6) | st.just(TERM_MAX)
head = (st.just(GROUP) | st.integers(0, 3), st.sampled_from([1, 1, 1, 2]), near_terms)


@st.composite
def appends(draw):
    """Return an append with consecutive entries at any indexes."""
    group, incarnation, term = (draw(part) for part in head)
    prev, prev_term = draw(small), draw(near_terms)
    entries, at = [], prev_term
    for offset in range(draw(st.integers(0, 3))):
        at = max(at, draw(near_terms))
        kind = draw(st.sampled_from([EntryKind.METADATA, EntryKind.NOOP, EntryKind.DATA]))
        entries.append(Entry(kind, group, incarnation, at, prev + 1 + offset))
    return m.Append(group, incarnation, max(term, at), prev, prev_term, prev + len(entries),
                    draw(st.integers(0, 9)), tuple(entries))


lies = st.one_of(
    appends(), appends(), appends(),
    st.builds(m.VoteRequest, *head, small, near_terms, st.booleans(), st.booleans()),
    st.builds(m.VoteReply, *head, st.booleans(), st.booleans()),
    st.builds(m.AppendReply, *head, st.integers(0, 5), small, small, small, near_terms),
    st.builds(m.TimeoutNow, *head),
    st.builds(m.DigestAnswer, st.just(tuple(range(64))), st.lists(
        st.tuples(*head), max_size=3).map(tuple)),
    *MESSAGES.values())


def leading() -> Solo:
    """Return node 1 as leader of a group with a log of three terms."""
    solo = Solo([1, 1, 2], term=3)
    solo.core.tick(5_000)
    solo.now_ms = 5_000
    solo.drain()
    for _ in range(2):  # pre-vote and vote
        status = solo.core.status.of(GROUP)
        if status.role.name in ("PRE_CANDIDATE", "CANDIDATE"):
            pre = status.role.name == "PRE_CANDIDATE"
            solo.core.step(2, m.VoteReply(GROUP, 1, status.term + pre, True, pre))
            solo.drain()
    return solo


def lied_to(solo: Solo, told: list) -> None:
    for message in told:
        try:
            solo.core.step(2, message)
        except ImpossibleMessage:
            break  # its connection is closed
        solo.drain()
    solo.core._check()


@settings(max_examples=120)
@given(st.lists(lies, max_size=8))
def test_a_follower_survives_whatever_a_peer_says(told):
    lied_to(Solo([1, 1, 2], term=3), told)


@settings(max_examples=60)
@given(st.lists(lies, max_size=8))
def test_a_leader_survives_whatever_a_peer_says(told):
    lied_to(leading(), told)


def test_a_second_leader_of_the_same_term_is_impossible():
    solo = leading()
    status = solo.core.status.of(GROUP)
    assert status.role.name == "LEADER"
    impossible(solo, m.Append(GROUP, 1, status.term, 0, 0, 0, 0))
    impossible(solo, m.DigestAnswer(tuple(range(64)), ((GROUP, 1, status.term),)))


def impossible(solo: Solo, message) -> None:
    """Check that the message is refused as impossible and leaves the log unchanged."""
    before = solo.core.status.of(GROUP)
    with pytest.raises(ImpossibleMessage):
        solo.core.step(2, message)
    after = solo.core.status.of(GROUP)
    assert (after.last_index, after.commit) == (before.last_index, before.commit)
    solo.core._check()


def follower() -> Solo:
    """Return a follower of node 2 in term 3: entries 1..3 committed, 4 and 5 verified."""
    solo = Solo([1, 1, 2], term=3)
    entries = tuple(Entry(EntryKind.METADATA, GROUP, 1, 3, index) for index in (4, 5))
    solo.core.step(2, m.Append(GROUP, 1, 3, 3, 2, 5, 3, entries))
    solo.drain()
    assert (solo.core.status.of(GROUP).last_index, solo.core.status.of(GROUP).commit) == (5, 3)
    return solo


def append(term: int, prev: int, prev_term: int, *terms: int) -> m.Append:
    entries = tuple(Entry(EntryKind.METADATA, GROUP, 1, at, index)
                    for index, at in enumerate(terms, prev + 1))
    return m.Append(GROUP, 1, term, prev, prev_term, prev + len(entries), 0, entries)


@pytest.mark.parametrize("message", [
    pytest.param(append(3, 3, 2, 2), id="another entry at a verified index of the same term"),
    pytest.param(append(4, 1, 1, 3), id="another entry at a committed index"),
    pytest.param(append(4, 3, 1, 1), id="another term before a committed index"),
])
def test_a_leader_that_contradicts_what_is_known_is_impossible(message):
    impossible(follower(), message)


def test_a_new_leader_may_replace_what_is_not_committed():
    solo = follower()
    solo.core.step(2, append(4, 3, 2, 4))
    assert solo.core.status.of(GROUP).last_index == 4


ABSURD = TERM_MAX


@pytest.mark.parametrize("message", [
    pytest.param(m.VoteRequest(GROUP, 1, ABSURD, 9, ABSURD, False, False), id="vote request"),
    pytest.param(m.VoteRequest(GROUP, 1, ABSURD, 9, ABSURD, False, True), id="after a transfer"),
    pytest.param(m.VoteReply(GROUP, 1, ABSURD, False, False), id="vote reply"),
    pytest.param(append(ABSURD, 5, 3, ABSURD), id="append"),
    pytest.param(m.DigestAnswer(tuple(range(64)), ((GROUP, 1, ABSURD),)), id="digest"),
])
def test_an_absurd_term_is_refused_and_uses_up_no_terms(message):
    solo = follower()
    before = solo.core.status.of(GROUP).term
    impossible(solo, message)
    assert solo.core.status.of(GROUP).term == before


def test_a_leader_refuses_an_absurd_term_as_well():
    solo = leading()
    before = solo.core.status.of(GROUP)
    impossible(solo, m.AppendReply(GROUP, 1, ABSURD, 0, 1, 1, 1, 1))
    assert solo.core.status.of(GROUP).term == before.term
    assert solo.core.status.of(GROUP).role.name == "LEADER"


def test_the_largest_jump_that_is_allowed_is_taken():
    solo = follower()
    limit = solo.core._context.config.term_jump_max
    term = solo.core.status.of(GROUP).term
    impossible(solo, m.VoteReply(GROUP, 1, term + limit + 1, False, False))
    solo.core.step(2, m.VoteReply(GROUP, 1, term + limit, False, False))
    assert solo.core.status.of(GROUP).term == term + limit
