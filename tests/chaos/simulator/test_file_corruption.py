"""Damage of files beside the entries, and failed syncs of directories."""

from __future__ import annotations

import dataclasses
import errno
import random

import pytest

from chaos.planted.bug import Bug, Seeds, planted
from chaos.simulator import simulation
from chaos.simulator.disk.corruption import copies_of, durable_places
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.parameters import Parameters
from tests.storage.damage import DIRECTORY, Disk, flipped, small_journal
from tests.storage.repair.test_repair import copy_missing, entries_of
from tests.storage.world import Rounds, noop_entry, open_store, write

KINDS = ("rot-checkpoint", "rot-header", "rot-identity", "eio-directory")


def directory_with_a_failed_sync(seed: int) -> SimulatedFilesystem:
    """Return a disk with a durable file "old", and a file "new" whose directory sync failed."""
    filesystem = SimulatedFilesystem()
    filesystem.make_directory("/d")
    filesystem.create("/d/old").write([b"x"], 0, True)
    filesystem.sync_directory("/d")
    filesystem.faults.rng = random.Random(seed)
    filesystem.create("/d/new").write([b"y"], 0, True)
    filesystem.faults.directory_syncs_left = 1
    with pytest.raises(OSError) as failed:
        filesystem.sync_directory("/d")
    assert failed.value.errno == errno.EIO
    return filesystem


def test_a_directory_whose_sync_failed_goes_on_showing_what_the_disk_may_not_have():
    lost = 0
    for seed in range(40):
        filesystem = directory_with_a_failed_sync(seed)
        filesystem.sync_directory("/d")  # succeeds, although the name is not durable
        filesystem.process_death(random.Random(seed))
        assert filesystem.list("/d") == ["new", "old"]
        filesystem.power_loss(random.Random(seed))
        assert "old" in filesystem.list("/d")
        lost += "new" not in filesystem.list("/d")
    assert 10 < lost < 30


def test_a_name_that_changes_again_is_written_by_the_next_sync():
    for seed in range(40):
        filesystem = directory_with_a_failed_sync(seed)
        filesystem.rename("/d/new", "/d/newer")
        filesystem.sync_directory("/d")
        filesystem.process_death(random.Random(seed))
        assert filesystem.list("/d") == ["newer", "old"]
        filesystem.power_loss(random.Random(seed))
        assert filesystem.list("/d") == ["newer", "old"]


def decaying(seed: int) -> Parameters:
    drawn = Parameters.draw(seed, groups=4, safety_ms=20_000)
    return dataclasses.replace(drawn, faults=(*KINDS, "kill"), fault_interval_ms=600,
                               disk=dataclasses.replace(drawn.disk, checkpoint_bytes=4 << 10,
                                                        checkpoint_growth_factor=0))


def test_nodes_go_on_without_what_rotted_or_are_replaced():
    results = [simulation.run(decaying(seed)) for seed in (1, 2, 3, 5)]
    assert [result.failure for result in results if result.failure] == []
    for kind in KINDS:
        assert sum(result.faults[kind] for result in results) > 0, kind
    assert sum(result.event_counts["identity lost"] for result in results) >= 2
    # Entries behind a header.
    assert sum(result.event_counts["replica_repaired"] for result in results) > 0
    for result in results:
        assert result.event_counts["replaced"] == result.event_counts["identity lost"]


def test_whoever_overlooks_a_rotten_checkpoint_is_noticed():
    bug = Bug("rotten-checkpoint-is-read", "multiraft.storage.atomic_file", "open_envelope",
              "!= crc:", "!= crc and False:", "", Seeds())
    with planted(bug):
        assert any(simulation.run(decaying(seed)).failure for seed in (22, *range(1, 31)))


def test_a_copy_of_a_damaged_entry_is_told_from_what_it_stands_for():
    """A damaged copy is damage of unknown ownership, so it is allowed only on a node that all
    groups can do without (seed 790000000000).
    """
    disk, _, _ = small_journal()
    places = durable_places(segments(disk))
    assert {(place.group, place.index) for place in copies_of(places)} == {(1, 4)}  # truncated once
    healthy = open_store(disk.restored(disk.files()).filesystem, DIRECTORY)
    peer_entries = {group: entries_of(healthy, group) for group in healthy.groups}
    victim = next(place for place in places if (place.group, place.index) == (1, 3))
    damaged = flipped(disk.read(victim.path), victim.at + victim.length - 1)
    disk = disk.restored({**disk.files(), victim.path: damaged})
    store = open_store(disk.filesystem, DIRECTORY)
    copy_missing(store, peer_entries)
    rounds = Rounds(store)
    for index in (6, 7):  # the watermark of an entry covers the rounds before its own
        rounds.run(write(1, noop_entry(1, index, 3)))
    store.close()
    copy, = [place for place in copies_of(durable_places(segments(disk))) if place.index == 3]
    assert copy.path > victim.path


def segments(disk: Disk) -> dict[str, bytes]:
    return {path: data for path, data in disk.files().items() if path.endswith(".segment")}
