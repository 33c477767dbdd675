"""Copies of leader lists between nodes: requested until answered, and silent without a
connection."""

from __future__ import annotations

import random

import pytest

from multiraft.liveness.leader_table import LeadershipChanges
from multiraft.raft.config import RaftConfig
from multiraft.raft.memory_storage import MemoryStore
from multiraft.raft.messages import LeadershipDelta, LeadershipDeltaRequest
from multiraft.raft.multi_raft import MultiRaft
from tests.raft.solo import GROUP, Solo


def requests(core: MultiRaft) -> int:
    return sum(
        type(envelope.message) is LeadershipDeltaRequest for envelope in core.ready().messages
    )


def test_a_list_is_asked_for_again_until_its_node_is_gone():
    config = RaftConfig()
    core = MultiRaft(1, config, MemoryStore(), random.Random(1), 0)
    core.connected(2)
    core.peer_leading_version(2, 5)
    assert requests(core) == 1
    core.tick(config.retransmit_ms)
    assert requests(core) == 1
    core.disconnected(2)
    core.tick(2 * config.retransmit_ms)
    assert requests(core) == 0
    assert core.next_deadline_ms() is None
    core.connected(2)
    assert requests(core) == 1


def copy(core: MultiRaft, solo: Solo) -> list[LeadershipDelta]:
    """Tell the version of the list and copy it until nothing is asked for; the answers."""
    answers = []
    core.peer_leading_version(1, solo.core.status.leading_version)
    while asked := [envelope.message for envelope in core.ready().messages]:
        solo.core.step(2, asked[0])
        answers += [envelope.message for envelope in solo.drain()]
        core.step(1, answers[-1])
    return answers


@pytest.mark.parametrize("again_before_it_leads", [True, False])
def test_what_an_earlier_life_answered_hides_nothing_of_the_list_of_the_new_one(
        again_before_it_leads):
    """Both lists have one change: only the boot epoch tells them apart."""
    solo = Solo(voters=(1,))
    solo.lead()
    core = MultiRaft(2, RaftConfig(), MemoryStore(), random.Random(1), 0)
    core.connected(1)
    core.lease_granted(1, 1)
    answer, = copy(core, solo)
    assert core.status.leader_hint(GROUP) == (1, solo.status.term)
    solo.boot()
    core.lease_granted(1, 2)
    core.peer_leading_version(1, solo.core.status.leading_version)
    if again_before_it_leads:
        core.step(1, answer)
        core.ready()
    solo.lead()
    if not again_before_it_leads:
        core.step(1, answer)
    copy(core, solo)
    assert core.status.leader_hint(GROUP) == (1, solo.status.term) and solo.status.term == 2


def test_whoever_copied_from_a_later_version_gets_the_whole_list():
    """The later version is of another boot epoch's list."""
    led = LeadershipChanges()
    led.record(7, 1, 3, True)
    assert led.since(9, 5) == (1, ((7, 1, 3, True),))
    assert led.since(1, 5) == (1, ())
