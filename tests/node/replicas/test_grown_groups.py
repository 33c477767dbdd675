"""New groups of a grown pool, on a node whose disk has lost entries of unknown groups."""

from __future__ import annotations

import random

import pytest

from multiraft.raft.config import RaftConfig
from multiraft.raft.multi_raft import MultiRaft
from multiraft.types import METADATA_GROUP, Configuration, HardState
from node.metadata.state_machine import GrowPool
from node.replicas.lifecycle import Replicas
from tests.node.harness import silent_log
from tests.node.metadata.test_state_machine import Replica
from tests.storage.damage import DIRECTORY, FIRST, Disk
from tests.storage.recovery.test_forced_recovery import round_of
from tests.storage.world import IDENTITY, Rounds, checkpoint, noop_entry, open_store, write

#: Voters of groups 9 and 10.
TWO = ((1, 2, 3), (3, 1, 2))


class Damaged:
    """Node 3, with a hole in its journal that recovery found and three metadata entries, of which
    some are applied. Everything is cleared, or waits to be."""

    def __init__(self, applied: int = 3, *commands):
        disk = Disk()
        identity = IDENTITY._replace(node=3)
        store = open_store(disk.filesystem, DIRECTORY, identity=identity)
        rounds = Rounds(store)
        store.create_group(METADATA_GROUP, 1, Configuration((1, 2, 3)))
        for index in (1, 2, 3):
            rounds.run(write(METADATA_GROUP, noop_entry(METADATA_GROUP, index, 1)))
            store.partition_states[METADATA_GROUP].append(noop_entry(METADATA_GROUP, index, 1))
        store.partition_states[METADATA_GROUP].apply(applied)
        checkpoint(store, {METADATA_GROUP: applied})
        place = store.table.journal.position
        for term in (2, 3):
            rounds.run(write(METADATA_GROUP, hard_state=HardState(term, 1)))
        disk.filesystem.overwrite(FIRST, place, bytes(64))
        store.close()
        self.store = open_store(disk.filesystem, DIRECTORY, identity=identity)
        self.core = MultiRaft(3, RaftConfig(), self.store, random.Random(3), 0)
        self.state = Replica(*commands).state
        self.replicas = Replicas(self.core, self.store, self, 8, lambda: None, silent_log())
        self.replicas.load()
        self.settle()

    def settle(self) -> None:
        self.replicas.reload()
        while self.replicas.due:
            self.replicas.reconcile()

    def cleared(self) -> None:
        """Clear the metadata group's replica."""
        staged = self.store.repair.stage_clear(METADATA_GROUP, lambda: None)
        staged.execute()
        self.store.finish(staged)
        self.core.repair.repaired(METADATA_GROUP)
        self.settle()

    def grown(self) -> list[str]:
        """Return the quarantine reasons of the replicas of two new groups."""
        self.state = Replica(GrowPool(10, TWO)).state
        self.settle()
        return [self.core.status.quarantine_reason(group) for group in (9, 10)]


def test_a_new_group_is_not_in_doubt_for_what_was_damaged_before_it_was():
    """Otherwise two of three nodes with damage, repaired long ago, would be recovering heads
    permanently: the group has no leader that could clear them, and the growth never completes."""
    node = Damaged()
    node.cleared()
    assert node.grown() == ["", ""]
    assert not node.store.groups[9].needs_head_recovery


@pytest.mark.parametrize("why", ["not cleared", "applied later", "grown before"])
def test_a_group_that_may_have_stood_where_damage_is_begins_in_doubt(why):
    node = Damaged(2 if why == "applied later" else 3,
                   *([GrowPool(10, TWO)] if why == "grown before" else []))
    if why != "not cleared":
        node.cleared()
    assert all(node.grown())


def test_whose_replica_of_the_metadata_is_another_one_does_not_know_what_was_here():
    node = Damaged()
    node.core.remove_group(METADATA_GROUP)
    round_of(node.store, node.core)
    node.replicas.on_create_requested(METADATA_GROUP, 1, 1, 9, 0)
    node.cleared()
    assert all(node.grown())
