"""Limits of compaction while a learner catches up."""

from __future__ import annotations

import pytest

from multiraft.raft.snapshot import log_start, offer
from multiraft.types import EntryKind
from tests.raft.solo import GROUP, Solo


def leading(learners=(4,), entries: int = 9) -> Solo:
    """A leader with ten committed entries, of which learners have said nothing yet."""
    solo = Solo(voters=[1, 2, 3], learners=list(learners))
    solo.lead()
    for number in range(entries):
        solo.core.propose(GROUP, EntryKind.METADATA, b"%d" % number)
    solo.drain()
    for node in (2, 3):
        solo.acknowledge(node, 10)
    assert solo.status.commit == 10
    return solo


def test_what_a_learner_needs_next_is_needed():
    solo = leading()
    solo.acknowledge(4, 6)
    assert solo.core.needed_from(GROUP) == 7
    solo.acknowledge(4, 10)
    assert solo.core.needed_from(GROUP) == 11


def test_the_slowest_learner_decides():
    solo = leading(learners=(4, 5))
    solo.acknowledge(4, 9)
    solo.acknowledge(5, 3)
    assert solo.core.needed_from(GROUP) == 4


def test_a_learner_that_is_away_holds_nothing():
    solo = leading()
    solo.acknowledge(4, 6)
    solo.core.lease_lost(4)
    assert solo.core.needed_from(GROUP) == 11


def test_voters_hold_nothing():
    solo = Solo(voters=[1, 2, 3])
    solo.lead()
    solo.acknowledge(2, 1)
    assert solo.core.needed_from(GROUP) == solo.status.last_index + 1


def test_who_needs_a_snapshot_holds_nothing():
    """The same holds after an offer: the driver knows the index at which the snapshot continues."""
    solo = leading()
    solo.acknowledge(4, 2)
    solo.core.compacted(GROUP, 6)
    assert solo.core.needed_from(GROUP) == 11


def test_who_follows_knows_of_nobody():
    solo = Solo(voters=[1, 2, 3], learners=[4], terms=(1, 1))
    assert solo.core.needed_from(GROUP) == 3


@pytest.mark.parametrize(("applied", "kept", "held_max", "needed", "begins"), [
    (100, 10, 1000, 101, 91),  # no learner needs more than the entries that stay anyway
    (100, 10, 1000, 95, 91),
    (100, 10, 1000, 40, 40),
    (100, 10, 30, 40, 61),  # more than may be held
    (100, 10, 0, 40, 91),
    (5, 10, 1000, 6, -4),  # there is not so much
])
def test_the_newest_stay_and_a_bounded_number_of_those_that_are_needed(applied, kept, held_max,
                                                                       needed, begins):
    assert log_start(applied, kept, held_max, needed) == begins


# ---- entries that members hold -------------------------------------------------------------------


def test_each_member_that_is_up_holds_what_it_has_not_acknowledged():
    solo = leading()
    solo.acknowledge(4, 8)
    assert solo.core.held_from(GROUP) == 9
    solo.acknowledge(4, 10)
    assert solo.core.held_from(GROUP) == 11
    solo.core.propose(GROUP, EntryKind.METADATA, b"more")
    solo.drain()
    solo.acknowledge(2, 11)
    solo.acknowledge(4, 11)
    assert solo.core.held_from(GROUP) == 11, "voter 3 has ten"


def test_members_that_are_away_hold_nothing():
    solo = leading()
    solo.acknowledge(4, 3)
    assert solo.core.held_from(GROUP) == 4
    solo.core.lease_lost(4)
    assert solo.core.held_from(GROUP) == 11


def test_a_member_that_said_nothing_to_this_leader_holds_everything():
    solo = leading()
    assert solo.core.held_from(GROUP) == 1


def test_a_member_that_waits_for_a_snapshot_holds_nothing():
    solo = leading()
    solo.acknowledge(4, 2)
    solo.core.compacted(GROUP, 6)
    assert solo.core.held_from(GROUP) == 6, "it was offered none"
    group = solo.core._groups[GROUP]
    offer(group, group.progress[4])
    assert solo.core.held_from(GROUP) == 11


def test_a_follower_holds_nothing_for_others():
    solo = Solo(voters=[1, 2, 3])
    assert solo.core.held_from(GROUP) == solo.status.last_index + 1
