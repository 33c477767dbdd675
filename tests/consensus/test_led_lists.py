"""Copying the lists of who leads what: asked for until answered, silent when nobody can answer."""

from __future__ import annotations

import random

from multiraft.config import RaftConfig
from multiraft.memory_store import MemoryStore
from multiraft.messages import LedRequest
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
