"""A snapshot in the place of a log: all of it after a checkpoint, nothing of it before."""

from __future__ import annotations

import dataclasses
import errno
import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.errors import Compacted
from multiraft.partitions.state import PartitionStates
from multiraft.raft import replica_records
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone
from multiraft.storage import checkpoint as checkpoint_module
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptFile
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.strays import COPY
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage.repair.test_acknowledged_damage import scrubbed
from tests.storage.world import (
    SMALL,
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

GROUP, OTHER = 1, 2
DIRECTORY = "/node"
FOUR = Configuration((1, 2, 3), (4,))


def command(index: int, term: int = 3) -> Entry:
    return Entry(EntryKind.METADATA, GROUP, 1, term, index, payload=b"command %d" % index)


def state_at(index: int) -> PartitionStates:
    """The tail of a group without partitions that has applied up to ``index``."""
    tail = PartitionStates(GROUP)
    for at in range(1, index + 1):
        tail.append(noop_entry(GROUP, at, 1))
    tail.apply(index)
    return tail


def with_logs(filesystem, **config) -> tuple:
    """A store whose group has entries 1..5 that a snapshot will replace, and another group."""
    store = open_store(filesystem, DIRECTORY, dataclasses.replace(SMALL, **config))
    rounds = Rounds(store)
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    rounds.run(write(GROUP, *[noop_entry(GROUP, at, 1) for at in range(1, 6)],
                     hard_state=HardState(1, 2)),
               write(OTHER, open_entry(OTHER, 1, 1, 20), data_entry(OTHER, 2, 1, 20, 0, [b"a"]),
                     hard_state=HardState(1, 1)))
    for entry in store.entries(OTHER, 1, 2):
        store.partition_states[OTHER].append(entry)
    return store, rounds


def install(store, index: int, extra="state") -> None:
    """As the node does: install, then the checkpoint, with nothing between."""
    store.install(GROUP, LogBounds(index + 1, 3, index), 2, FOUR, state_at(index))
    checkpoint(store, extra=extra)


def check_installed(store, index: int) -> None:
    restored = store.groups[GROUP]
    assert restored.bounds.first_index == index + 1
    assert restored.bounds.prev_term == 3
    assert restored.configuration == FOUR
    assert restored.commit == restored.applied == index
    assert not restored.quarantined
    assert store.partition_states[GROUP].applied_index == index
    assert store.extra == "state"
    with pytest.raises(Compacted):
        store.entries(GROUP, index, index)


def check_other(store) -> None:
    assert store.groups[OTHER].bounds == LogBounds(1, 0, 2)
    assert store.partition_states[OTHER].next_offset(20) == 1


def buried() -> GroupWrite:
    left = Tombstone(HardState(3, 2), 9, 0)
    return GroupWrite(GROUP, 1, 0, (), None, replica_records.tombstone(GROUP, 1, left))


@pytest.mark.parametrize("sealed", [False, True])
def test_a_replica_that_was_removed_is_installed_for_good(simulated, sealed):
    """The journal has no record of the new replica when its term is that of the tombstone: only the
    snapshot shows that it exists.  Seed 90106790299."""
    store, rounds = with_logs(simulated)
    rounds.run(buried())
    store.create_group(GROUP, 1, Configuration(()))
    install(store, 7)
    if sealed:
        seal(store)
    for _ in range(2):
        store.close()
        store = open_store(simulated, DIRECTORY)
        assert not store.is_removed(GROUP)
        check_installed(store, 7)
        assert store.groups[GROUP].hard_state == HardState(3, 2)
    rounds = Rounds(store)
    rounds.run(buried())
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert store.is_removed(GROUP), "and it can be removed again"


@pytest.mark.parametrize("index", [3, 5, 40])
def test_the_log_goes_on_behind_the_snapshot_across_restarts(simulated, index):
    store, rounds = with_logs(simulated)
    install(store, index)
    store.close()
    store = open_store(simulated, DIRECTORY)
    check_installed(store, index)
    check_other(store)
    rounds = Rounds(store)
    rounds.run(write(GROUP, command(index + 1), command(index + 2), hard_state=HardState(3, 0)))
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert store.groups[GROUP].bounds == LogBounds(index + 1, 3, index + 2)
    assert store.entries(GROUP, index + 1, index + 2) is not None or store.read_job(
        GROUP, index + 1, index + 2).execute()
    check_other(store)
    assert not store.damage


def test_what_follows_a_snapshot_at_once_is_kept(simulated):
    store, rounds = with_logs(simulated)
    install(store, 7)
    rounds.run(write(GROUP, command(8), hard_state=HardState(3, 0)))
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert store.groups[GROUP].bounds == LogBounds(8, 3, 8)
    assert store.groups[GROUP].hard_state == HardState(3, 0)


def test_the_vote_of_before_stays(simulated):
    store, rounds = with_logs(simulated)
    rounds.run(write(GROUP, hard_state=HardState(3, 2)))
    install(store, 7)
    store.close()
    assert open_store(simulated, DIRECTORY).groups[GROUP].hard_state == HardState(3, 2)


def test_without_the_checkpoint_nothing_happened(simulated):
    store, _ = with_logs(simulated)
    store.install(GROUP, LogBounds(8, 3, 7), 2, FOUR, state_at(7))
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert store.groups[GROUP].bounds == LogBounds(1, 0, 5)
    check_other(store)


def checkpoint_paths(filesystem) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in checkpoint_names(filesystem, DIRECTORY)]


@pytest.mark.parametrize("kept", [1, 2])
@pytest.mark.parametrize("later", [0, 1, 2], ids=["at-once", "a-later-one", "two-later-ones"])
@pytest.mark.parametrize("which", [-1, 0], ids=["newest", "oldest"])
def test_a_rotten_checkpoint_takes_no_installed_state_with_it(simulated, kept, later, which):
    """The journal does not have it, and it may have been acknowledged.  Whichever rots is replaced
    by the next start, so that another one may rot after it.  Seed 790000000048."""
    store, rounds = with_logs(simulated, checkpoints_kept=kept)
    checkpoint(store, extra="before")
    install(store, 7)
    for at in range(later):
        rounds.run(write(OTHER, noop_entry(OTHER, 3 + at, 1), hard_state=HardState(1, 1)))
        checkpoint(store, extra="state")
    store.close()
    for time in range(3):
        path = checkpoint_paths(simulated)[which]
        simulated.flip(path, 40 + time, 1)
        store = open_store(simulated, DIRECTORY)
        check_installed(store, 7)
        assert [(found.kind, found.path) for found in store.damage] == [("checkpoint", path)]
        store.close()


@pytest.mark.parametrize("which", [-1, 0], ids=["newest", "oldest"])
def test_a_checkpoint_that_rots_is_written_anew_while_its_node_is_up(simulated, which):
    """Both that know of a snapshot may rot between two starts, but not both between two scrubs."""
    store, _ = with_logs(simulated)
    checkpoint(store)
    install(store, 7)
    for time in range(3):
        assert not store.checkpoint_due
        rotten = checkpoint_paths(simulated)[which]
        simulated.flip(rotten, 40 + time, 1)
        [found] = scrubbed(store)
        assert isinstance(found, CorruptFile) and found.path == rotten
        assert not store.checkpoint_due
        RepairCoordinator(1, store, None, None).on_damage(found)
        assert store.checkpoint_due
        checkpoint(store, extra="state")
        assert scrubbed(store) == []
    store.close()
    store = open_store(simulated, DIRECTORY)
    check_installed(store, 7)
    assert not store.damage and len(checkpoint_paths(simulated)) == 2


def test_a_copy_gives_way_to_what_comes_later(simulated):
    store, rounds = with_logs(simulated)
    install(store, 7)
    assert [path.endswith(COPY) for path in checkpoint_paths(simulated)] == [True, False]
    for at in (3, 4):
        rounds.run(write(OTHER, noop_entry(OTHER, at, 1), hard_state=HardState(1, 1)))
        checkpoint(store, extra="state")
    assert not any(path.endswith(COPY) for path in checkpoint_paths(simulated))
    install(store, 9)
    checkpoint(store, extra="newer, in the same place")
    store.close()
    assert open_store(simulated, DIRECTORY).extra == "newer, in the same place"


def test_a_full_disk_starts_without_a_copy(simulated, monkeypatch):
    store, _ = with_logs(simulated)
    install(store, 7)
    store.close()
    simulated.flip(checkpoint_paths(simulated)[0], 40, 1)

    def no_room(*_) -> None:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as full:
        full.setattr(checkpoint_module, "replace_file", no_room)
        store = open_store(simulated, DIRECTORY)
    check_installed(store, 7)
    assert len(checkpoint_paths(simulated)) == 1
    store.close()
    open_store(simulated, DIRECTORY).close()
    assert len(checkpoint_paths(simulated)) == 2, "the next start finds room"


def test_segments_and_their_index_files_from_before_are_passed_over(simulated):
    store, rounds = with_logs(simulated)
    for at in range(6, 60):
        rounds.run(write(GROUP, Entry(EntryKind.METADATA, GROUP, 1, 1, at, payload=b"x" * 300)))
        seal(store)
    install(store, 70)
    rounds.run(write(GROUP, command(71), hard_state=HardState(3, 0)))
    seal(store)
    store.close()
    store = open_store(simulated, DIRECTORY)
    assert store.groups[GROUP].bounds == LogBounds(71, 3, 71)
    assert store.recovered.indexed_segments > 0
    assert not store.damage


def test_power_loss_at_every_operation_leaves_all_or_nothing():
    seen = set()
    for limit in range(200):
        filesystem = SimulatedFilesystem()
        store, rounds = with_logs(filesystem)
        filesystem.operations_to_crash = limit
        try:
            install(store, 7)
            rounds.run(write(GROUP, command(8), hard_state=HardState(3, 0)))
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        store = open_store(filesystem, DIRECTORY)
        check_other(store)
        first = store.groups[GROUP].bounds.first_index
        assert first in (1, 8)
        seen.add(first)
        if first == 8:
            assert store.extra == "state"
        else:
            assert store.groups[GROUP].bounds == LogBounds(1, 0, 5)
        # The group continues, and a second snapshot works.
        install(store, 90)
        store.close()
        check_installed(open_store(filesystem, DIRECTORY), 90)
        if over:
            assert seen == {1, 8}
            return
    raise AssertionError("it never came to an end")
