"""Failover benchmark: the time for which groups refuse appends after their leader's node fails.

Contract.  Three nodes, every group of the pool in use, leaders a third each.  One node is killed,
stopped (SIGSTOP), or cut off (its packets dropped), and for each group that it led the time until
it acknowledges an append again is measured.  Then the node comes back and gets its third of the
leaders back, and the next node is hit.  Cutting off needs root: every node is then in a network
namespace of its own, joined by a bridge, and the bridge's end of a link is what goes down.  Where
iptables exists, a rule accepts the bridge's packets meanwhile: a Docker engine that once ran drops
all forwarded packets.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.development import dev_process, dev_state
from benchmarks.prober import Place, Prober, call
from benchmarks.processes import BenchmarkError, free_base_port
from multiraft.wire import messages as wire

UP_S = 120.0
#: Enough partitions that the hash leaves hardly a group without one.
PARTITIONS = 10_000
TOPIC = "failover"
SETTLED_S = 60.0
GONE_S = 20.0
POLL_S = 0.05
BRIDGE = "mrbench"
SUBNET = "10.213.77"


class Bench:
    """A running cluster whose leaders are spread, and faults of one node."""

    def __init__(self, dev: DevCluster):
        self.dev = dev
        self.addresses = {node.id: node.client_address for node in dev.record.nodes}
        self.prober = Prober(self.addresses)
        self.partition_of: dict[int, int] = {}

    def prepare(self) -> None:
        """Create a topic that reaches every group; each group accepts an append once."""
        topic = self._create_topic()
        for row in topic.partitions:
            self.partition_of.setdefault(row.group, row.incarnation)
        self.prober.first_accepted(self.places(), time.monotonic(), SETTLED_S)

    def _create_topic(self):
        """Create the topic at the leader of the metadata group."""
        deadline = time.monotonic() + UP_S
        while time.monotonic() < deadline:
            for address in self.addresses.values():
                with contextlib.suppress(BenchmarkError):
                    call(address, wire.CreateTopic(TOPIC, PARTITIONS), UP_S)
                with contextlib.suppress(BenchmarkError):
                    found = call(address, wire.Metadata((TOPIC,)), UP_S).topics
                    if found:
                        return found[0]
            time.sleep(POLL_S)
        raise BenchmarkError(f"the topic {TOPIC} does not come to be")

    def groups(self):
        """Return the groups of the pool, as a running node lists them."""
        for address in self.addresses.values():
            with contextlib.suppress(OSError, BenchmarkError):
                return [row for row in call(address, wire.ListGroups(1)).groups]
        raise BenchmarkError("no node lists the groups")

    def places(self, leader: int = 0) -> list[Place]:
        """Return every group, or those led by one node."""
        return [Place(row.group, self.partition_of[row.group], row.leader)
                for row in self.groups() if row.group in self.partition_of
                and leader in (0, row.leader)]

    def spread(self) -> None:
        """Transfer leadership of every group to its preferred node, the first of its voters."""
        deadline = time.monotonic() + SETTLED_S
        while time.monotonic() < deadline:
            away = [row for row in self.groups() if row.leader != row.voters[0]]
            if not away:
                return
            for row in away:
                if row.leader:
                    with contextlib.suppress(BenchmarkError):
                        call(self.addresses[row.leader],
                             wire.TransferLeadership(row.group, row.voters[0]))
            time.sleep(POLL_S)
        raise BenchmarkError(f"{len(away)} groups do not move to their preferred leader")

    def hit(self, node: int, fault: Callable[[], None]) -> list[float]:
        """Return the seconds until each group that ``node`` led accepts appends again."""
        places = self.places(node)
        since = time.monotonic()
        fault()
        return sorted(self.prober.first_accepted(places, since, GONE_S, node).values())


def kill(bench: Bench, node: int) -> list[float]:
    """Kill the node, return the seconds of each group as ``hit`` does, and start it again."""
    times = bench.hit(node, lambda: bench.dev.kill(node))
    bench.dev.start(node, UP_S)
    return times


def stop(bench: Bench, node: int) -> list[float]:
    """Send SIGSTOP, return the seconds of each group as ``hit`` does, and send SIGCONT."""
    pid = bench.dev.record.node(node).pid
    try:
        return bench.hit(node, lambda: os.kill(pid, signal.SIGSTOP))
    finally:
        os.kill(pid, signal.SIGCONT)


def drop(bench: Bench, node: int) -> list[float]:
    """Drop all packets of the node and return the seconds of each group as ``hit`` does;
    connections stay open."""
    try:
        return bench.hit(node, lambda: _ip("link", "set", _host_end(node), "down"))
    finally:
        _ip("link", "set", _host_end(node), "up")


def measure(directory: Path, groups: int, repeat: int, faults: dict[str, Callable],
            namespaces: bool, report: Callable[[str, list[float]], None]) -> None:
    """Measure each fault ``repeat`` times, the nodes in turn."""
    with cluster(directory, groups, namespaces) as dev:
        bench = Bench(dev)
        bench.prepare()
        for name, fault in faults.items():
            for repetition in range(repeat):
                bench.spread()
                report(name, fault(bench, repetition % len(bench.addresses) + 1))
        bench.prober.close()


# ---- the cluster, on loopback or in namespaces ---------------------------------------------------


@contextlib.contextmanager
def cluster(directory: Path, groups: int, namespaces: bool) -> Iterator[DevCluster]:
    """Yield three nodes that serve; they are removed at the end."""
    command = _namespace_command if namespaces else dev_process.node_command
    dev = DevCluster(directory / "cluster", open_client, os.environ, command=command)
    if namespaces:
        _create_in_namespaces(dev, groups)
    else:
        dev.create(nodes=3, groups=groups, replication_factor=3, base_port=free_base_port(3))
    with contextlib.ExitStack() as stack:
        if namespaces:
            stack.enter_context(_network(dev))
        stack.callback(dev.down)
        dev.up(UP_S)
        yield dev


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _namespace(node: int) -> str:
    return f"{BRIDGE}-{node}"


def _host_end(node: int) -> str:
    return f"{BRIDGE}{node}"


def _namespace_command(config: Path, *what: str) -> list[str]:
    node = int(config.parent.name.removeprefix("node-"))
    return ["ip", "netns", "exec", _namespace(node), *dev_process.node_command(config, *what)]


def _forward(what: str) -> None:
    """Insert or delete the rule that accepts packets from one end of the bridge to another."""
    subprocess.run(["iptables", what, "FORWARD", "--in-interface", BRIDGE, "--out-interface",
                    BRIDGE, "--jump", "ACCEPT"], check=True, capture_output=True)


def _create_in_namespaces(dev: DevCluster, groups: int) -> None:
    """Create the nodes as ``DevCluster.create``, with addresses that only the namespaces will
    have."""
    record = dev_state.plan(3, groups, 3, free_base_port(3))
    for node in record.nodes:
        for role in ("client_address", "peer_address"):
            port = getattr(node, role).rsplit(":", 1)[1]
            setattr(node, role, f"{SUBNET}.{node.id}:{port}")
    dev.directory.mkdir(parents=True)
    dev_state.write_configs(dev.directory, record)
    for node in record.nodes:
        config = dev_state.config_path(dev.directory, node.id)
        with config.open("a") as file:
            file.write("\n[security]\ninsecure = true\n")  # no other host is on this bridge
        subprocess.run(dev_process.node_command(config, "init"), check=True, capture_output=True)
    dev_state.save(dev.directory, record)


@contextlib.contextmanager
def _network(dev: DevCluster) -> Iterator[None]:
    """Create a bridge, and for each node a namespace with one link to it."""
    record = dev.record
    with contextlib.ExitStack() as stack:
        _ip("link", "add", BRIDGE, "type", "bridge")
        stack.callback(_ip, "link", "del", BRIDGE)
        _ip("addr", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
        if shutil.which("iptables"):
            _forward("--insert")
            stack.callback(_forward, "--delete")
        for node in record.nodes:
            name, inner = _namespace(node.id), "eth0"
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _ip("link", "add", _host_end(node.id), "type", "veth", "peer", "name", inner,
                "netns", name)
            _ip("link", "set", _host_end(node.id), "master", BRIDGE, "up")
            _ip("-n", name, "addr", "add", f"{SUBNET}.{node.id}/24", "dev", inner)
            for device in (inner, "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield
