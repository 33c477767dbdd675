"""Copying the lists of who leads what: asked for until answered, silent when nobody can answer."""

from __future__ import annotations

import random

from multiraft import hints
from multiraft.config import RaftConfig
from multiraft.memory_store import MemoryStore
from multiraft.messages import LedChanges, LedRequest
from multiraft.multiraft import MultiRaft


def requests(core: MultiRaft) -> int:
    return sum(type(envelope.message) is LedRequest for envelope in core.ready().messages)


def test_a_list_is_asked_for_again_until_its_node_is_gone():
    config = RaftConfig()
    core = MultiRaft(1, config, MemoryStore(), random.Random(1), 0)
    core.connected(2)
    core.peer_led_version(2, 5)
    assert requests(core) == 1
    core.tick(config.retransmit_ms)
    assert requests(core) == 1
    core.disconnected(2)
    core.tick(2 * config.retransmit_ms)
    assert requests(core) == 0
    assert core.next_deadline_ms() is None
    core.connected(2)
    assert requests(core) == 1


def test_what_an_earlier_life_tells_late_does_not_stand_for_what_the_new_one_leads():
    """Node 2 had led one group in its first life and leads another one, as its first, in its
    second: both were change 1, so that nobody asked for the second any more."""
    earlier, later = hints.LedChanges(1), hints.LedChanges(2)
    earlier.record(3, 1, 5, True)
    core = MultiRaft(1, RaftConfig(), MemoryStore(), random.Random(1), 0)
    core.connected(2)
    core.lease_held(2, 1)
    core.lease_lost(2)
    core.lease_held(2, 2)
    core.step(2, LedChanges(0, *earlier.since(0, 10)))
    later.record(4, 1, 7, True)
    core.peer_led_version(2, later.version)
    asked = [envelope.message for envelope in core.ready().messages
             if type(envelope.message) is LedRequest]
    assert len(asked) == 1
    core.step(2, LedChanges(asked[0].since, *later.since(asked[0].since, 10)))
    assert core.leader_hint(4) == (2, 7)
    assert requests(core) == 0


def test_a_new_life_that_leads_nothing_is_not_asked_for_ever():
    earlier = hints.LedChanges(1)
    earlier.record(3, 1, 5, True)
    config = RaftConfig()
    core = MultiRaft(1, config, MemoryStore(), random.Random(1), 0)
    core.connected(2)
    core.lease_held(2, 2)
    core.step(2, LedChanges(0, *earlier.since(0, 10)))
    later = hints.LedChanges(2)
    core.peer_led_version(2, later.version)
    assert requests(core) == 1
    core.step(2, LedChanges(earlier.version, *later.since(earlier.version, 10)))
    core.tick(config.retransmit_ms)
    assert requests(core) == 0
