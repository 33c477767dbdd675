"""Nodes that cannot hear each other: each in a network namespace of its own.

Contract.  ``start`` runs three nodes behind one switch, which the test reaches as well; ``cut``
loses every packet between one node and the others, both ways, and nobody is told: connections stay
open and silent, while clients reach the node as before.  Needs root; ``why_not`` says what is
missing.

Theory.  Frames go astray instead of being filtered: in both directions the neighbour's hardware
address is a wrong one.  The switch is in a namespace too, so that no firewall of this computer has
a say in what passes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from admin_cli import dev_process, dev_state
from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from tests.e2e.world import UP_S
from tests.ports import free_base_port

NODES = 3
SUBNET = "10.213.78"
#: The test's own end of a link.
HOST = 254
NOWHERE = "02:00:00:00:00:99"


def why_not() -> str:
    """Why this cannot run here; empty when it can."""
    if os.geteuid():
        return "root is needed"
    if shutil.which("ip") is None:
        return "iproute2 is not installed"
    probe = f"mr{os.getpid()}-probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    _ip("netns", "del", probe)
    return ""


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


class Network:
    """A switch and what hangs on it."""

    def __init__(self, stack: contextlib.ExitStack):
        self._prefix = f"mr{os.getpid()}"
        self._stack = stack
        self._switch = self._namespace("switch")
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        _ip("link", "add", self._prefix, "type", "veth", "peer", "name", "host", "netns",
            self._switch)
        stack.callback(_ip, "link", "del", self._prefix)
        _ip("addr", "add", f"{SUBNET}.{HOST}/24", "dev", self._prefix)
        _ip("link", "set", self._prefix, "up")
        self._plug_in("host")
        for node in range(1, NODES + 1):
            self._add(node)

    def _namespace(self, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _ip("netns", "add", full)
        self._stack.callback(_ip, "netns", "del", full)
        return full

    def _plug_in(self, device: str) -> None:
        _ip("-n", self._switch, "link", "set", device, "master", "switch", "up")

    def _add(self, node: int) -> None:
        name = self._namespace(str(node))
        _ip("-n", self._switch, "link", "add", f"to-{node}", "type", "veth", "peer", "name", "eth0",
            "netns", name)
        self._plug_in(f"to-{node}")
        _ip("-n", name, "addr", "add", f"{SUBNET}.{node}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", name, "link", "set", device, "up")

    def command(self, config: Path, *what: str) -> list[str]:
        """How a node is run inside."""
        node = config.parent.name.removeprefix("node-")
        return ["ip", "netns", "exec", f"{self._prefix}-{node}",
                *dev_process.node_command(config, *what)]

    def cut(self, node: int) -> None:
        """From now on nothing passes between ``node`` and the other nodes."""
        for other in range(1, NODES + 1):
            if other != node:
                self._mislead(node, other)
                self._mislead(other, node)

    def _mislead(self, node: int, about: int) -> None:
        _ip("-n", f"{self._prefix}-{node}", "neigh", "replace", f"{SUBNET}.{about}", "lladdr",
            NOWHERE, "dev", "eth0", "nud", "permanent")


@contextlib.contextmanager
def start(directory: Path, groups: int = 2) -> Iterator[tuple[DevCluster, Network]]:
    """Three nodes that serve; gone at the end, like their network."""
    with contextlib.ExitStack() as stack:
        network = Network(stack)
        dev = DevCluster(directory, functools.partial(open_client, tls=None), os.environ,
                         command=network.command)
        _create(dev, groups)
        stack.callback(dev.down)
        dev.up(UP_S)
        yield dev, network


def _create(dev: DevCluster, groups: int) -> None:
    """As ``DevCluster.create``, with addresses that only the namespaces have."""
    record = dev_state.plan(NODES, groups, NODES, free_base_port(NODES))
    for node in record.nodes:
        for role in ("client_address", "peer_address"):
            port = getattr(node, role).rsplit(":", 1)[1]
            setattr(node, role, f"{SUBNET}.{node.id}:{port}")
    dev.directory.mkdir(parents=True)
    dev_state.write_configs(dev.directory, record)
    for node in record.nodes:
        config = dev_state.config_path(dev.directory, node.id)
        with config.open("a") as file:
            file.write("\n[security]\ninsecure = true\n")  # nobody else is on this switch
        subprocess.run(dev_process.node_command(config, "init"), check=True, capture_output=True)
    dev_state.save(dev.directory, record)
