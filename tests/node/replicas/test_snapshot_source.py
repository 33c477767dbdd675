"""Steps of serving a snapshot and of compaction."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.core import crc32c
from multiraft.storage import chunked_cbor
from multiraft.types import METADATA_GROUP
from node.metadata.state_machine import MetadataState
from node.replicas.snapshot_messages import ChunkRequest
from node.replicas.snapshot_source import NOTHING_HELD, ServingLimits, SnapshotSource
from node.replicas.snapshot_state import capture
from tests.node.replicas.snapshot_doubles import Core, tail_at
from tests.node.steps import Lock, Reply, Steps, at_once, run

LIMITS = ServingLimits(chunk_bytes=40, life_s=60.0, entries_kept=5, catch_up_entries_max=50,
                       groups_max=2)


class Leader:
    """A node that serves, and its clock."""

    def __init__(self, applied: int = 7, on_thread=at_once, taking=None):
        self.now_s = 0.0
        self.core = Core(applied)
        self.states = {METADATA_GROUP: tail_at(applied)}
        self.metadata = SimpleNamespace(state=MetadataState())
        self.source = SnapshotSource(self.core, self.capture, LIMITS, on_thread,
                                     taking or Lock(), lambda: self.now_s)

    def capture(self, group: int):
        return capture(self.core, self.states[group], self.metadata.state)

    def apply(self, index: int) -> None:
        self.core.applied = index
        self.states[METADATA_GROUP] = tail_at(index)

    def chunk(self, index: int = 0, offset: int = 0, group: int = METADATA_GROUP):
        return run(self.source.answer(ChunkRequest(group, index, offset)))


def test_the_chunks_of_a_snapshot_are_its_bytes_in_order():
    leader = Leader()
    first = leader.chunk()
    data = bytes(first.data)
    while len(data) < first.total:
        leader.apply(leader.core.applied + 1)  # changes nothing for a download under way
        chunk = leader.chunk(first.index, len(data))
        assert (chunk.index, chunk.crc, chunk.offset) == (7, first.crc, len(data))
        data += chunk.data
    assert crc32c(data) == first.crc
    configuration_index, configuration, *_ = chunked_cbor.loads(data)
    assert (configuration_index, configuration) == (2, [[1, 2], [3], []])


@pytest.mark.parametrize(("index", "offset"), [(6, 40), (7, 1 << 40)])
def test_another_snapshot_or_a_place_behind_its_end_gives_the_first_chunk(index, offset):
    assert Leader().chunk(index, offset).offset == 0


def test_a_snapshot_is_served_unchanged_for_its_life_after_the_last_request():
    leader = Leader()
    leader.chunk()
    leader.apply(8)
    for _ in range(3):
        leader.now_s += LIMITS.life_s
        assert leader.chunk().index == 7
    leader.now_s += LIMITS.life_s + 1
    assert leader.chunk(7).index == 7, "a download under way is never cut short by time"
    leader.now_s += LIMITS.life_s + 1
    assert leader.chunk().index == 8


def test_a_snapshot_behind_which_the_log_does_not_continue_is_replaced():
    leader = Leader()
    leader.chunk()
    leader.apply(12)
    leader.core.first_index = 8
    assert leader.chunk().index == 7
    leader.core.first_index = 9
    assert leader.chunk().index == 12


def test_a_replica_that_is_away_or_damaged_or_installing_has_no_snapshot():
    leader = Leader()
    assert leader.chunk(group=1) is None
    leader.core.installing.add(METADATA_GROUP)
    assert leader.chunk() is None
    leader.core.installing.clear()
    leader.core.quarantined = "damaged"
    assert leader.chunk() is None
    leader.core.quarantined, leader.core.groups = "", lambda: ()
    assert leader.chunk() is None


def test_snapshots_of_several_groups_are_served_at_a_time_and_not_of_more():
    leader = Leader()
    leader.core.groups = lambda: (1, 2, 3)
    leader.states = {group: tail_at(7) for group in (1, 2, 3)}
    assert leader.chunk(group=1) and leader.chunk(group=2)
    leader.now_s += LIMITS.life_s
    assert leader.chunk(7, 40, group=2) and leader.chunk(group=3) is None
    leader.now_s += 1
    assert leader.chunk(group=3) and [*leader.source.served] == [2, 3]


def test_the_log_of_a_group_is_held_behind_a_snapshot_that_is_served():
    leader = Leader()
    leader.core.groups = lambda: (1,)
    leader.states = {1: tail_at(7)}
    assert leader.source.held_from(1) == NOTHING_HELD
    leader.chunk(group=1)
    leader.now_s += LIMITS.life_s
    assert leader.source.held_from(1) == 8
    leader.now_s += 1
    assert leader.source.held_from(1) == NOTHING_HELD


def test_a_snapshot_that_is_no_longer_requested_is_dropped():
    leader = Leader()
    leader.chunk()
    leader.now_s += LIMITS.life_s
    leader.source.forget_unused()
    assert leader.source.served
    leader.now_s += 1
    leader.source.forget_unused()
    assert not leader.source.served


def test_what_is_applied_while_a_thread_encodes_is_not_in_the_snapshot():
    async def on_thread(call, *arguments):
        await Reply()
        return call(*arguments)

    leader = Leader(on_thread=on_thread)
    steps = Steps(leader.source.answer(ChunkRequest(METADATA_GROUP, 0, 0)))
    leader.apply(9)
    leader.metadata.state = SimpleNamespace(snapshot=lambda: "of 9")
    steps.resume(None)
    assert steps.is_done and steps.value.index == 7
    *_, metadata = chunked_cbor.loads(leader.source.served[METADATA_GROUP].data)
    assert metadata == chunked_cbor.loads(chunked_cbor.dumps(MetadataState().snapshot()))


class HeldLock(Lock):
    """A lock that another request holds, which waits for a thread."""

    async def __aenter__(self) -> None:
        await Reply()


def test_a_replica_that_is_removed_while_another_request_is_served_has_no_snapshot():
    """The request waited for the lock and then asked the core for a group that it no longer had,
    which ended the node."""
    leader = Leader(taking=HeldLock())
    steps = Steps(leader.source.answer(ChunkRequest(METADATA_GROUP, 0, 0)))
    leader.core.groups = lambda: ()
    del leader.states[METADATA_GROUP]
    steps.resume(None)
    assert steps.is_done and steps.value is None


def test_a_state_from_before_a_forced_recovery_is_not_served_after_it():
    """The recovery came while a thread encoded, and may have undone the state's last entries."""
    async def on_thread(call, *arguments):
        await Reply()
        return call(*arguments)

    leader = Leader(on_thread=on_thread)
    steps = Steps(leader.source.answer(ChunkRequest(METADATA_GROUP, 0, 0)))
    leader.core.incarnation = 2
    leader.apply(5)
    steps.resume(None)
    assert steps.is_done and steps.value is None
    steps = Steps(leader.source.answer(ChunkRequest(METADATA_GROUP, 0, 0)))
    steps.resume(None)
    assert steps.value.index == 5


def test_the_log_continues_behind_a_snapshot_that_is_served():
    leader = Leader()
    leader.chunk()
    leader.apply(40)
    leader.source.compact(40)
    assert leader.core.compacted_to == [8]
    leader.now_s = LIMITS.life_s + 1
    leader.source.compact(40)
    assert leader.core.compacted_to == [8, 36]


def test_nothing_is_compacted_that_this_replica_has_not_applied():
    leader = Leader()
    leader.source.compact(40)
    leader.core.groups = lambda: ()
    leader.source.compact(7)
    assert leader.core.compacted_to == []
