"""Nodes that join a backend's cluster or start in it, without anything that needs a machine."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.backends import cluster as backends_cluster
from chaos.backends.backend import CLIENTS, BackendError
from chaos.backends.cluster import Cluster
from chaos.backends.layout import NodeEndpoint
from chaos.backends.node_instance import NodeInstance


class Joinable(Cluster):
    """Three nodes, and the operations that creating a fourth needs."""

    def __init__(self):
        self.addresses = {CLIENTS: "10.0.0.1"}
        self._members_lock = threading.Lock()
        self._instances = {}
        self.asked: list[tuple[str, int]] = []
        for node in (1, 2, 3):
            self._make(self._reserve_endpoint(node), ())
        self.asked.clear()

    def _open(self) -> None:
        self.asked.append(("open", 0))

    def _make_network(self, endpoint: NodeEndpoint) -> None:
        self.asked.append(("network", endpoint.id))

    def _reserve_endpoint(self, node: int) -> NodeEndpoint:
        self.addresses[node] = f"10.0.0.{10 + node}"
        return NodeEndpoint(node, self.addresses[node])

    def _make(self, endpoint: NodeEndpoint, _members) -> None:
        self.asked.append(("make", endpoint.id))
        self._instances[endpoint.id] = NodeInstance(endpoint, Path())

    def _init(self, node: int, *_options: str) -> None:
        self.asked.append(("init", node))

    def start(self, node: int, _timeout_s: float = 0.0) -> None:
        self.asked.append(("start", node))


def test_two_nodes_that_join_at_one_time_are_two():
    """Member churn and plan churn of one turn: both created node 4, one its file system over that
    of the other."""
    class Both(Joinable):
        other = 0

        def _make(self, endpoint: NodeEndpoint, members) -> None:
            if endpoint.id == 4 and not self.other:
                self.other = 4
                self.other = self.add_node()  # while the first one is not created yet
            super()._make(endpoint, members)

    cluster = Both()
    assert (cluster.add_node(), cluster.other) == (4, 5)
    assert sorted(node for what, node in cluster.asked if what == "make") == [4, 5]
    assert cluster.nodes() == [1, 2, 3, 4, 5]


class WithoutRules(Joinable):
    """Its network exists, its rules do not."""

    def _make(self, endpoint: NodeEndpoint, members) -> None:
        super()._make(endpoint, members)
        if endpoint.id > 3:
            raise BackendError("`iptables-restore`: resource temporarily unavailable")


class WithoutFiles(Joinable):
    """Its files cannot be given to the user that it runs as."""

    def _init(self, node: int, *options: str) -> None:
        super()._init(node, *options)
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("kind", [WithoutRules, WithoutFiles])
def test_a_node_that_could_not_be_made_is_no_member_and_is_never_started(kind):
    cluster = kind()
    with pytest.raises((BackendError, OSError)):
        cluster.add_node()
    assert cluster.nodes() == [1, 2, 3]
    assert ("start", 4) not in cluster.asked


class Runner:
    """Runner whose processes end at once."""

    spawned = 0

    def alive(self, _node: int) -> bool:
        return False

    def spawn(self, _node: int) -> None:
        self.spawned += 1

    def exit_status(self, _node: int) -> int:
        return 2


def test_a_node_does_not_start_beside_its_disk(tmp_path):
    """After a power loss whose disk could not be mounted again: the node would end by itself for
    want of an identity, and no fault would excuse that."""
    cluster = Joinable()
    cluster.kinds = frozenset()
    cluster._runner, cluster._exits, cluster._exits_lock = Runner(), [], threading.Lock()
    instance = cluster._instances[1]
    instance.log = tmp_path / "log"
    instance.log.touch()
    instance.disk = SimpleNamespace(failed=True, frozen=False, device=lambda: "")
    with pytest.raises(BackendError, match="the disk of node 1 is not mounted"):
        Cluster.start(cluster, 1)
    assert (cluster._runner.spawned, cluster.exits(), instance.should_run) == (0, [], False)


class Stopped(Runner):
    """Nodes that run, and note the signals that they receive."""

    def __init__(self):
        self.sent: list[tuple[int, signal.Signals]] = []

    def alive(self, node: int) -> bool:
        return (node, signal.SIGKILL) not in self.sent

    def signal(self, node: int, number: signal.Signals) -> None:
        self.sent.append((node, number))

    def resume(self, _node: int) -> None:
        return None


def test_where_one_disk_cannot_lose_its_power_no_node_is_left_standing_still():
    """The node had been stopped before the power loss, and without a resume it would stay
    stopped."""
    cluster = Joinable()
    cluster._runner, cluster._exits, cluster._exits_lock = Stopped(), [], threading.Lock()
    remounted: list[int] = []
    cluster._remount = remounted.append

    def refused() -> None:
        raise BackendError("the disk at node-1/disk is not mounted")

    for node, instance in cluster._instances.items():
        instance.should_run = True
        instance.disk = SimpleNamespace(thaw=lambda: None, frozen=False,
                                    shut_down=refused if node == 1 else lambda: None)
    with pytest.raises(BackendError, match="is not mounted"):
        cluster.power_loss([1, 2])
    assert not cluster.is_running(1) and not cluster.is_running(2) and cluster.is_running(3)
    assert sorted(remounted) == [1, 2]


class Asked:
    """A client to which node 1 reports three damaged replicas, and the others none."""

    def __init__(self, servers):
        self.server, = servers

    def __enter__(self):
        return self

    def __exit__(self, *_why) -> None:
        return None

    def node_status(self, address: str, _timeout_ms: int):
        if self.server != address or "10.0.0.11" not in address:
            raise OSError("nobody answers")
        return SimpleNamespace(status={"ready": 0, "groups_quarantined": 3})


def test_replicas_are_damaged_as_far_as_their_node_says_so(monkeypatch):
    monkeypatch.setattr(backends_cluster.blocking, "Client", Asked)
    cluster = Joinable()
    assert [cluster.damaged_replicas(node) for node in (1, 2)] == [3, 0]
