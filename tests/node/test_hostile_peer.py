"""Well-formed items of a peer that lies: the core refuses or obeys them, and stays sound."""

from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft import messages as m
from multiraft.errors import ImpossibleMessage
from multiraft.types import Entry, EntryKind
from node.peer_codec import TERM_MAX
from tests.consensus.solo import GROUP, Solo
from tests.node.test_peer_codec import MESSAGES

small = st.integers(0, 6)
near_terms = st.integers(0, 6) | st.just(TERM_MAX)
head = (st.just(GROUP) | st.integers(0, 3), st.sampled_from([1, 1, 1, 2]), near_terms)


@st.composite
def appends(draw):
    """An append whose entries follow each other, wherever they may belong."""
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
    """Node 1 as leader of a group with a log of three terms."""
    solo = Solo([1, 1, 2], term=3)
    solo.core.tick(5_000)
    solo.now_ms = 5_000
    solo.drain()
    for _ in range(2):  # pre-vote and vote
        status = solo.core.status(GROUP)
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
    status = solo.core.status(GROUP)
    assert status.role.name == "LEADER"
    try:
        solo.core.step(2, m.Append(GROUP, 1, status.term, 0, 0, 0, 0))
    except ImpossibleMessage as error:
        assert "both lead" in str(error)
    else:
        raise AssertionError("accepted")
    assert solo.core.status(GROUP) == status
