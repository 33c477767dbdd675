"""Simulated disk: it keeps synced bytes, and loses others in every way that a real disk may."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.storage.errors import DirectoryInUse


def filesystem_with(path: str, data: bytes) -> SimulatedFilesystem:
    filesystem = SimulatedFilesystem()
    filesystem.make_directory("/d")
    file = filesystem.create(path)
    file.write([data], 0, sync=True)
    filesystem.sync_directory("/d")
    return filesystem


def contents(filesystem: SimulatedFilesystem, path: str) -> bytes:
    file = filesystem.open(path)
    return file.read(file.size(), 0)


def test_synced_bytes_survive_power_loss():
    for seed in range(50):
        filesystem = filesystem_with("/d/f", b"a" * 2000)
        filesystem.open("/d/f").write([b"b" * 3000], 1000, sync=False)
        filesystem.power_loss(random.Random(seed))
        assert contents(filesystem, "/d/f")[:1000] == b"a" * 1000


def test_unsynced_sectors_survive_in_any_subset():
    outcomes = set()
    for seed in range(300):
        filesystem = filesystem_with("/d/f", b"a" * 1536)
        filesystem.open("/d/f").write([b"b" * 1536], 0, sync=False)
        filesystem.power_loss(random.Random(seed))
        data = contents(filesystem, "/d/f")
        sectors = [data[at:at + 512] for at in range(0, 1536, 512)]
        assert all(sector in (b"a" * 512, b"b" * 512) for sector in sectors)
        outcomes.add(tuple(sector[:1] for sector in sectors))
    assert len(outcomes) == 8


def test_process_death_keeps_the_page_cache_but_does_not_sync_it():
    lost = 0
    for seed in range(50):
        filesystem = filesystem_with("/d/f", b"a")
        filesystem.open("/d/f").write([b"b"], 0, sync=False)
        filesystem.process_death(random.Random(seed))
        assert contents(filesystem, "/d/f") == b"b"
        filesystem.power_loss(random.Random(seed))
        lost += contents(filesystem, "/d/f") == b"a"
    assert lost


def test_names_are_durable_only_after_their_directory_is_synced():
    survived = set()
    for seed in range(50):
        filesystem = filesystem_with("/d/f", b"old")
        file = filesystem.create("/d/f.new")
        file.write([b"new"], 0, sync=True)
        filesystem.rename("/d/f.new", "/d/f")
        filesystem.power_loss(random.Random(seed))
        survived.add((contents(filesystem, "/d/f"), tuple(filesystem.list("/d"))))
    assert {data for data, _ in survived} == {b"old", b"new"}
    filesystem = filesystem_with("/d/f", b"old")
    filesystem.create("/d/g")
    filesystem.sync_directory("/d")
    filesystem.power_loss(random.Random(1))
    assert filesystem.list("/d") == ["f", "g"]


def test_crash_in_an_operation_keeps_a_prefix_of_its_calls():
    outcomes = set()
    for seed in range(100):
        filesystem = filesystem_with("/d/f", b"....")
        filesystem.begin(unseen=False)
        file = filesystem.open("/d/f")
        file.write([b"1"], 0, sync=True)
        file.write([b"2"], 1, sync=True)
        filesystem.power_loss(random.Random(seed))
        outcomes.add(contents(filesystem, "/d/f"))
    assert {b"....", b"1...", b"12.."} <= outcomes <= {b"....", b"1...", b"12..", b".2.."}
    assert b".2.." not in outcomes


def test_process_death_in_an_operation_keeps_a_prefix_of_its_calls():
    outcomes = set()
    for seed in range(100):
        filesystem = filesystem_with("/d/f", b"old")
        filesystem.begin(unseen=False)
        file = filesystem.create("/d/f.new")
        file.write([b"new"], 0, sync=True)
        filesystem.rename("/d/f.new", "/d/f")
        filesystem.sync_directory("/d")
        filesystem.process_death(random.Random(seed))
        seen = contents(filesystem, "/d/f")
        filesystem.power_loss(random.Random(seed))
        outcomes.add((seen, contents(filesystem, "/d/f")))
    assert outcomes == {(b"old", b"old"), (b"new", b"old"), (b"new", b"new")}


def test_settled_operation_is_durable():
    filesystem = filesystem_with("/d/f", b"....")
    filesystem.begin(unseen=False)
    filesystem.open("/d/f").write([b"1"], 0, sync=True)
    filesystem.complete()
    filesystem.power_loss(random.Random(1))
    assert contents(filesystem, "/d/f") == b"1..."


def test_unseen_bytes_are_read_only_when_their_operation_is_over():
    filesystem = filesystem_with("/d/f", b"....")
    filesystem.begin(unseen=True)
    filesystem.open("/d/f").write([b"1"], 0, sync=True)
    assert contents(filesystem, "/d/f") == b"...."
    filesystem.complete()
    assert contents(filesystem, "/d/f") == b"1..."


def test_handles_and_locks_end_with_their_process():
    filesystem = filesystem_with("/d/f", b"")
    file = filesystem.open("/d/f")
    filesystem.lock("/d/lock")
    with pytest.raises(DirectoryInUse):
        filesystem.lock("/d/lock")
    filesystem.process_death(random.Random(1))
    filesystem.lock("/d/lock")
    with pytest.raises(OSError):
        file.write([b"x"], 0, sync=True)


def test_fuse_blows_before_the_effect():
    filesystem = filesystem_with("/d/f", b"a")
    filesystem.operations_to_crash = 1
    file = filesystem.open("/d/f")
    file.write([b"b"], 0, sync=False)
    with pytest.raises(PowerLoss):
        file.write([b"c"], 0, sync=False)
    assert contents(filesystem, "/d/f") == b"b"


def test_truncation_and_holes():
    filesystem = filesystem_with("/d/f", b"abcdef")
    file = filesystem.open("/d/f")
    file.truncate(2)
    file.write([b"z"], 5, sync=True)
    filesystem.power_loss(random.Random(1))
    assert contents(filesystem, "/d/f") == b"ab\0\0\0z"
