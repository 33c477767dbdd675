"""Bounds of a benchmark's nodes, with groups that are directories."""

from __future__ import annotations

import os

import pytest

from benchmarks import node_bounds
from benchmarks.node_bounds import NodeBounds, device_of
from chaos.backends import cgroups
from chaos.backends.backend import BackendError

PID = os.getpid()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a machine whose disk has a partition, where this directory is; no cgroups yet."""
    groups, devices = tmp_path / "groups", tmp_path / "devices"
    groups.mkdir()
    monkeypatch.setattr(cgroups, "ROOT", groups)
    monkeypatch.setattr(node_bounds, "BLOCK_DEVICES", devices)
    number = tmp_path.stat().st_dev
    partition = tmp_path / "disk" / "part"
    partition.mkdir(parents=True)
    (partition / "partition").touch()
    (partition / "dev").write_text("8:1\n")
    (tmp_path / "disk" / "dev").write_text("8:0\n")
    devices.mkdir()
    (devices / f"{os.major(number)}:{os.minor(number)}").symlink_to(partition)
    return tmp_path


def v1(machine):
    """Create cgroups of version 1."""
    for name in ("blkio", "memory"):
        (machine / "groups" / name).mkdir()
    (machine / "groups" / "blkio" / "blkio.throttle.write_bps_device").touch()
    return machine / "groups"


def placed(monkeypatch, group) -> None:
    monkeypatch.setattr(cgroups.Controller, "group_of", lambda _controller, _pid: group)


def read(path) -> str:
    return path.read_text(encoding="ascii")


def test_a_node_gets_a_share_of_the_disk_that_a_partition_is_on_and_memory(machine, monkeypatch):
    groups = v1(machine)
    placed(monkeypatch, groups / "blkio" / "n-0")
    bounds = NodeBounds(machine, 64, 1 << 30, "n")
    bounds.add(PID)
    assert bounds.why == ""
    assert read(groups / "blkio" / "n-0" / "blkio.throttle.write_bps_device") == "8:0 64"
    assert read(groups / "blkio" / "n-0" / "cgroup.procs") == str(PID)
    assert read(groups / "memory" / "n-0" / "memory.limit_in_bytes") == str(1 << 30)
    assert read(groups / "memory" / "n-0" / "cgroup.procs") == str(PID)


def test_in_version_2_one_group_has_both(machine, monkeypatch):
    groups = machine / "groups"
    (groups / "cgroup.controllers").write_text("cpu io memory\n")
    placed(monkeypatch, groups / "n-0")
    bounds = NodeBounds(machine, 64, 1 << 30, "n")
    bounds.add(PID)
    assert bounds.why == ""
    assert read(groups / "n-0" / "io.max") == "8:0 wbps=64 wiops=max"
    assert read(groups / "n-0" / "memory.max") == str(1 << 30)


def test_zero_bounds_nothing_and_needs_nothing(machine):
    bounds = NodeBounds(machine, 0, 0, "n")
    bounds.add(PID)
    assert bounds.why == "" and not list((machine / "groups").iterdir())


@pytest.mark.parametrize(("write", "memory"), [(64, 0), (0, 1 << 30), (64, 1 << 30)])
def test_where_there_are_no_groups_that_is_said(machine, write, memory):
    bounds = NodeBounds(machine, write, memory, "n")
    bounds.add(PID)
    assert "there is no cgroup" in bounds.why and not list((machine / "groups").iterdir())


def test_without_the_right_to_make_groups_that_is_said(machine):
    groups = v1(machine)
    (groups / "blkio" / "n-0").touch()  # no directory can be created there
    bounds = NodeBounds(machine, 64, 0, "n")
    bounds.add(PID)
    assert "cgroup" in bounds.why


def test_groups_are_gone_afterwards(machine, monkeypatch):
    groups, removed = v1(machine), []
    monkeypatch.setattr(cgroups.Controller, "remove",
                        lambda controller, name: removed.append((controller.v1, name)))
    with NodeBounds(machine, 0, 1 << 30, "n") as bounds:
        bounds.add(PID)
        assert (groups / "memory" / "n-0").is_dir() and not removed
    assert removed == [("blkio", "n-0"), ("memory", "n-0")]


def test_a_directory_on_no_disk_cannot_be_bounded(machine, monkeypatch):
    monkeypatch.setattr(node_bounds, "BLOCK_DEVICES", machine / "none")
    with pytest.raises(BackendError, match="no block device"):
        device_of(machine)
    v1(machine)
    assert "no block device" in NodeBounds(machine, 64, 0, "n").why
