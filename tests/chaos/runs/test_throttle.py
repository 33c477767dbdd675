"""Bounds on the writes of a node, with directories for groups and words for nodes."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace

import pytest

from chaos.backends import cgroups, throttle
from chaos.backends.backend import SLOW_DISK, BackendError, Link
from chaos.backends.cluster import Cluster
from chaos.backends.layout import NodeEndpoint
from chaos.backends.node_instance import NodeInstance
from chaos.backends.packets import LinkFaults

DEVICE = "7:1"
GONE_PID = (1 << 22) + 1  # no process has a number that high


class Runner:
    """One process at a time, always in the same group."""

    def __init__(self):
        self.lives = False

    def spawn(self, _node: int) -> None:
        self.lives = True

    def alive(self, _node: int) -> bool:
        return self.lives

    def signal(self, _node: int, _number: signal.Signals) -> None:
        self.lives = False

    def resume(self, _node: int) -> None:
        return None

    def pid(self, _node: int) -> int:
        return 1


class Alone(Cluster):
    """One node."""

    def __init__(self, log):
        log.touch()
        self.kinds = frozenset((SLOW_DISK,))
        self.faults = LinkFaults(cut=frozenset((Link(0, 1),)))
        self._runner = Runner()
        self._exits, self._exits_lock = [], threading.Lock()
        disk = SimpleNamespace(frozen=False, failed=False, device=lambda: DEVICE)
        self._instances = {1: NodeInstance(NodeEndpoint(1, "10.0.0.11"), log, disk)}

    def _has_said_ready(self, _node: int) -> bool:
        return True

    def _open(self) -> None:
        pytest.fail("its node exists already")

    _reserve_endpoint = _make_network = _open


@pytest.fixture
def group(tmp_path, monkeypatch):
    """Return the group of every process."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)
    there = tmp_path / "blkio"
    there.mkdir()
    in_group(monkeypatch, there)
    return there


def in_group(monkeypatch, group) -> None:
    """Put every process into that group."""
    monkeypatch.setattr(cgroups.Controller, "group_of", lambda _controller, _pid: group)


def bound(group) -> str:
    return (group / "blkio.throttle.write_bps_device").read_text()


def test_a_bound_that_is_lifted_while_the_node_is_down_is_none_when_it_starts(group):
    node = Alone(group / "log")
    node.start(1)
    node.slow_disk(1, 64 << 10, 5)
    assert bound(group) == f"{DEVICE} {64 << 10}"
    node.kill(1)
    node.slow_disk(1, 0, 0)
    node.start(1)
    assert bound(group) == f"{DEVICE} 0"


def test_a_bound_stays_when_the_node_starts_again(group):
    node = Alone(group / "log")
    node.start(1)
    node.slow_disk(1, 64 << 10, 5)
    node.kill(1)
    node.start(1)
    assert bound(group) == f"{DEVICE} {64 << 10}"


def test_a_process_that_has_just_ended_needs_no_bound(tmp_path, monkeypatch):
    throttle.throttle(GONE_PID, DEVICE, 1, 1)
    in_group(monkeypatch, tmp_path / "gone")
    throttle.throttle(1, DEVICE, 1, 1)


def test_a_group_that_takes_no_bound_is_an_error(group):
    """Otherwise a disk would be reported slow that is not."""
    for name in ("bps", "iops"):
        (group / f"blkio.throttle.write_{name}_device").mkdir()
    with pytest.raises(BackendError, match="cgroup"):
        throttle.throttle(1, DEVICE, 1, 1)
