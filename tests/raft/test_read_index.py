"""Linearizable reads that wait while the members change: who has to answer, who no more."""

from __future__ import annotations

import pytest

from multiraft.errors import NotLeader
from multiraft.raft.config import RaftConfig
from multiraft.types import Configuration
from tests.raft.solo import GROUP, Solo

NOOP, JOINT, LEFT = 1, 2, 3


def leading(voters, learners=(), config=None) -> Solo:
    """Node 1 leads, with its first entry committed and known to all."""
    solo = Solo(voters=voters, learners=learners, config=config)
    solo.lead()
    for node in solo.others:
        solo.acknowledge(node, NOOP)
    assert solo.status.commit == NOOP
    return solo


def change_and_read(solo: Solo, voters, learners=()) -> int:
    """A change begins and is on its way when a read is asked for; the stamp of its question."""
    solo.core.change_members(GROUP, voters, learners)
    solo.drain()
    asked = solo.core._group(GROUP).read_round + 1
    solo.core.read_index(GROUP, "read")
    solo.drain()
    return asked


def answered(solo: Solo) -> list:
    return [read.token for read in solo.reads]


@pytest.mark.parametrize(("before", "voters", "learners", "told", "silent"), [
    ((1, 2), (1,), (), (), (2,)),
    ((1, 2), (1,), (2,), (), (2,)),  # demoted
    ((1, 2, 3, 4), (1, 2), (), (2,), (3,)),
    ((1, 2, 3, 4, 5), (1, 2), (), (2,), (3, 4)),
    ((1, 2, 3, 4, 5), (1,), (), (), (2, 3, 4)),
    ((1, 2, 3), (1,), (2, 3), (), (2, 3)),
])
def test_a_read_is_answered_by_the_voters_that_are_left(before, voters, learners, told, silent):
    """``told`` answer the read's question, the ``silent`` only what they were sent before it."""
    solo = leading(before)
    asked = change_and_read(solo, voters, learners)
    for node in told:
        solo.acknowledge(node, NOOP, read_round=asked)
    assert answered(solo) == []
    for node in (*told, *silent):
        solo.acknowledge(node, JOINT, read_round=asked if node in told else 0)
    assert solo.status.configuration == Configuration(voters, learners)
    assert answered(solo) == ["read"]


def test_a_read_is_answered_when_a_voter_is_replaced_by_one_that_has_answered():
    solo = leading((1, 2), learners=(3,))
    asked = change_and_read(solo, (1, 3))
    solo.acknowledge(3, JOINT, read_round=asked)
    assert answered(solo) == []  # the old voters are a half of their own
    solo.acknowledge(2, JOINT)
    assert solo.status.configuration == Configuration((1, 3))
    assert answered(solo) == ["read"]


def test_one_half_of_a_joint_configuration_answers_no_read():
    solo = leading((1, 2, 3), learners=(4, 5))
    asked = change_and_read(solo, (1, 4, 5))
    for node in (4, 5):
        solo.acknowledge(node, JOINT, read_round=asked)
    assert answered(solo) == []
    solo.acknowledge(2, NOOP, read_round=asked)
    assert answered(solo) == ["read"]
    assert solo.status.configuration.outgoing  # and the change is still on its way


def test_learners_answer_no_read():
    solo = leading((1, 2), learners=(3, 4))
    solo.core.read_index(GROUP, "read")
    solo.drain()
    for node in (3, 4):
        solo.acknowledge(node, NOOP, read_round=solo.core._group(GROUP).read_round)
    assert answered(solo) == []


def test_a_leader_that_removes_itself_answers_what_waits_before_it_goes():
    """Its voters acknowledge its last entry, and with that the read's question."""
    solo = leading((1, 2, 3))
    asked = change_and_read(solo, (2, 3))
    solo.acknowledge(2, JOINT)
    solo.acknowledge(3, JOINT)
    assert solo.status.configuration == Configuration((2, 3)) and answered(solo) == []
    for node in (2, 3):
        solo.acknowledge(node, LEFT, read_round=asked)
    assert answered(solo) == ["read"]
    assert not solo.core.status.is_leader(GROUP)


def test_a_read_ends_with_leadership():
    """The driver sees the change of role and gets no other notice; a late reply confirms
    nothing."""
    solo = leading((1, 2))
    asked = change_and_read(solo, (1,))
    solo.core.repair.reincarnate(GROUP, 2, Configuration((1,)))
    solo.drain()
    solo.acknowledge(2, JOINT, read_round=asked)
    assert answered(solo) == []
    with pytest.raises(NotLeader):
        solo.core.read_index(GROUP, "another")


def test_no_read_of_a_group_is_refused_after_voters_have_left():
    """A round that never ends would take in all that are asked after it, up to the limit."""
    solo = leading((1, 2), config=RaftConfig(pending_reads_max=3))
    change_and_read(solo, (1,))
    solo.acknowledge(2, JOINT)
    for number in range(7):
        solo.core.read_index(GROUP, number)
        solo.drain()
    assert answered(solo) == ["read", *range(7)]
    solo.tick(60_000)
    assert solo.status.quiesced


def test_what_is_asked_during_a_round_is_in_the_next_also_when_a_change_ends_it():
    solo = leading((1, 2))
    change_and_read(solo, (1,))
    solo.core.read_index(GROUP, "next")
    solo.drain()
    solo.acknowledge(2, JOINT)
    assert answered(solo) == ["read", "next"]
