"""Quorum arithmetic against a twin too dumb to be wrong."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.raft import joint_quorum, quorum
from multiraft.raft.quorum import Vote
from multiraft.types import Configuration

NODES = st.lists(st.integers(1, 9), min_size=1, max_size=7, unique=True).map(tuple)
ROUNDS = settings(max_examples=300, deadline=None, derandomize=True)


def majorities(voters):
    """Every subset of which there cannot be two disjoint ones, by trying."""
    return [{*some} for count in range(len(voters) + 1) for some in combinations(voters, count)
            if len(some) > len(voters) - len(some)]


def dumb_reached(voters, match):
    return max(index for index in {0, *match.values()}
               if any(all(match.get(node, 0) >= index for node in some)
                      for some in majorities(voters)))


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4)])
def test_majorities(voters, needed):
    assert quorum.majority(voters) == needed


@ROUNDS
@given(NODES, st.dictionaries(st.integers(1, 9), st.integers(0, 12)))
def test_the_reached_index_is_the_highest_that_some_majority_has(voters, match):
    indexes = [match.get(node, 0) for node in voters]
    assert quorum.reached(indexes) == dumb_reached(voters, match)


@ROUNDS
@given(NODES, st.dictionaries(st.integers(1, 9), st.booleans()))
def test_an_election_is_won_by_a_majority_and_lost_when_none_is_left(voters, votes):
    granted = any(all(votes.get(node) is True for node in some) for some in majorities(voters))
    possible = any(all(votes.get(node) is not False for node in some)
                   for some in majorities(voters))
    expected = Vote.WON if granted else Vote.PENDING if possible else Vote.LOST
    assert quorum.tally(voters, votes) is expected


@ROUNDS
@given(NODES, st.one_of(st.just(()), NODES), st.sets(st.integers(1, 9)))
def test_what_is_everywhere_is_in_every_majority(voters, outgoing, holders):
    configuration = Configuration(voters, (), outgoing)
    assert joint_quorum.in_every_majority(configuration, holders.__contains__) == all(
        holders & some for half in (voters, outgoing) for some in majorities(half))


@ROUNDS
@given(NODES, NODES, st.dictionaries(st.integers(1, 9), st.integers(0, 12)),
       st.dictionaries(st.integers(1, 9), st.booleans()))
def test_a_joint_configuration_needs_both_halves(voters, outgoing, match, votes):
    joint = Configuration(voters, (), outgoing)
    assert joint_quorum.committed(joint, lambda node: match.get(node, 0)) == min(
        dumb_reached(voters, match), dumb_reached(outgoing, match))
    halves = (quorum.tally(voters, votes), quorum.tally(outgoing, votes))
    expected = (Vote.LOST if Vote.LOST in halves else Vote.PENDING if Vote.PENDING in halves
                else Vote.WON)
    assert joint_quorum.tally(joint, votes) is expected
    supports = {node for node, vote in votes.items() if vote}
    assert joint_quorum.supported(joint, supports.__contains__) == all(
        any(some <= supports for some in majorities(half)) for half in (voters, outgoing))


@pytest.mark.parametrize("wrong", [
    Configuration((), (1,)), Configuration((), (), (1,)), Configuration((1, 1)),
    Configuration((1, 0)), Configuration((1, 2), (2,)),
    Configuration(tuple(range(1, joint_quorum.MEMBERS_MAX + 2)))])
def test_wrong_configurations_are_refused(wrong):
    with pytest.raises(ValueError):
        joint_quorum.validate(wrong)


def test_no_voters_decide_nothing():
    assert not quorum.supported((), lambda node: True)
    assert quorum.tally((), {}) is not Vote.WON
