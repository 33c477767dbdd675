"""A node's replica of a group that was recovered by force, after damage has taken the record of the
recovery."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from multiraft.raft.config import RaftConfig
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import ForcedRecovery, Tombstone, reincarnation, tombstone
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.types import Configuration, HardState
from node.metadata.state_machine import RecoverGroup
from node.replicas.lifecycle import NO_MEMBERS, Replicas
from tests.node.harness import silent_log
from tests.node.metadata.test_state_machine import Replica
from tests.storage.damage import DIRECTORY, FIRST, Disk
from tests.storage.recovery.test_forced_recovery import begun, recovered, round_of
from tests.storage.repair.test_acknowledged_damage import put
from tests.storage.world import checkpoint, noop_entry, open_store, write

GROUP = 1


class ClusterView:
    """Node 1 from a start on; according to the metadata the group continues from a survivor."""

    def __init__(self, disk: Disk, survivor: int):
        self.store = open_store(disk.filesystem, DIRECTORY)
        self.core = MultiRaft(1, RaftConfig(), self.store, random.Random(1), 0)
        state = Replica(RecoverGroup(GROUP, survivor, 2)).state
        self.repairer = RepairCoordinator(1, self.store, self.core, lambda staged: None)
        self.replicas = Replicas(self.core, self.store, SimpleNamespace(state=state), 8,
                                 lambda: None, silent_log(),
                                 created=self.repairer.on_replica_created)
        self.replicas.load()
        self.replicas.reconcile()
        round_of(self.store, self.core)


def test_a_survivor_that_lost_the_record_of_it_is_not_alone_once_more():
    """The group had grown to three voters since. Named as the only voter again, the survivor was
    cleared by the group's leader, and then elected itself beside that leader."""
    disk = Disk()
    store, rounds, _ = begun(disk)
    place = recovered(rounds, 1, 2, 3)
    rounds.run(write(GROUP, noop_entry(GROUP, 7, 3)))
    store.close()
    disk.filesystem.overwrite(FIRST, place, bytes(64))
    for _ in range(2):
        world = ClusterView(disk, survivor=1)
        status = world.core.status.of(GROUP)
        assert (status.incarnation, status.last_index) == (2, 7)
        assert status.configuration == Configuration((1, 2, 3))
        assert world.store.repair.needs_head_recovery(GROUP)
        world.store.close()


def joined(disk: Disk) -> None:
    """Return node 1, which had an earlier replica and is one of three voters in incarnation 2. The
    records of that, of its vote, and all entries of the group are damaged."""
    store, rounds, _ = begun(disk)
    left = tombstone(GROUP, 1, Tombstone(HardState(1, 2), 4, 1))
    rounds.run(GroupWrite(GROUP, 1, 0, (), None, left))
    store.create_group(GROUP, 1, NO_MEMBERS)
    place = store.table.journal.position
    mark = reincarnation(GROUP, 1, 1, ForcedRecovery(2, NO_MEMBERS))
    rounds.run(GroupWrite(GROUP, 1, 0, (noop_entry(GROUP, 1, 1),), HardState(8, 3), mark))
    end = store.table.journal.position
    rounds.run(write(GROUP, noop_entry(GROUP, 2, 1)))
    rounds.run(write(GROUP, noop_entry(GROUP, 3, 1)))
    store.close()
    disk.filesystem.overwrite(FIRST, place, bytes(end - place))


def cleared(world: ClusterView) -> None:
    put(world.store, world.store.repair.stage_clear(GROUP, lambda: None))


@pytest.mark.parametrize("then", ["at once", "restarted", "checkpoint"])
def test_who_is_let_go_in_doubt_comes_back_in_doubt(then):
    """It was a member of the present incarnation, which may count on promises that it forgot, such
    as a vote for the leader of a later term."""
    disk = Disk()
    joined(disk)
    world = ClusterView(disk, survivor=2)
    assert GROUP not in world.core.status.groups(), "it knows of the earlier incarnation alone"
    assert world.store.is_removed(GROUP)
    if then == "checkpoint":
        checkpoint(world.store)
    if then != "at once":
        world.store.close()
        world = ClusterView(disk, survivor=2)
    world.replicas.on_create_requested(GROUP, 2, 2, 9, 3)
    round_of(world.store, world.core)
    for _ in range(2):
        assert world.core.status.of(GROUP).incarnation == 2
        assert world.core.repair.is_following(GROUP)
        assert GROUP in world.repairer.groups
        world.store.close()
        world = ClusterView(disk, survivor=2)
    cleared(world)
    world.store.close()
    assert not ClusterView(disk, survivor=2).core.status.of(GROUP).quarantined


def test_who_is_let_go_and_has_forgotten_nothing_comes_back_without_doubt():
    disk = Disk()
    store, _, _ = begun(disk)
    store.close()
    world = ClusterView(disk, survivor=2)
    assert world.store.is_removed(GROUP)
    world.replicas.on_create_requested(GROUP, 2, 2, 9, 3)
    assert not world.core.status.of(GROUP).quarantined
