"""Nodes as processes of this machine; with root, each with a network and a disk of its own.

Contract.  With root every node runs in a network namespace with one link to a bridge, on a file
system in a file, in a cgroup: nearly every fault is possible.  Without root, nodes share loopback
and the caller's file system, and can be killed, stopped and paused.

Theory.  The bridge is in a namespace too: no firewall of the machine sees the packets that are
forwarded there (an engine's firewall drops them), and nothing of the machine's own network changes
but for one link, through which the clients come.
"""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import random
import signal
import socket
import subprocess
from pathlib import Path

from chaos.backends import host, ledger, probes, subnet, throttle
from chaos.backends.backend import (
    CLIENTS,
    KINDS,
    PARTITION,
    SLOW_DISK,
    BackendError,
    ClusterSpec,
)
from chaos.backends.cluster import Cluster
from chaos.backends.layout import PORTS_OF_NODE, NodeEndpoint
from chaos.backends.packets import NodePackets

#: Where nodes of a run without networks listen: below the range that the kernel hands out by itself
#: (Linux: from 32,768), and above what `multiraft dev` and the tests use.
NODE_PORTS = range(30_000, 32_700)


class ProcessBackend(Cluster):
    """A cluster of processes."""

    name = "process"

    def __init__(self, directory: Path, spec: ClusterSpec):
        self._subnet: ipaddress.IPv4Network | None = None
        self._runner = self._processes = _Processes(self)
        super().__init__(directory, spec)

    def _probe(self) -> dict[str, str]:
        if host.is_root():
            return super()._probe()
        why = probes.without_root() | probes.without_launcher()
        return {kind: why[kind] for kind in KINDS if kind in why}

    def close(self) -> None:
        super().close()
        self._processes.reap()

    @property
    def has_networks(self) -> bool:
        """True if every node has a network namespace of its own."""
        return PARTITION in self.kinds

    def namespace(self, node: int) -> str:
        """Return the name of a node's network namespace."""
        return f"mrc{self.book.run}n{node}"

    def cgroup(self, node: int) -> str:
        """Return the name of a node's cgroup."""
        return f"multiraft-chaos-{self.book.run}-{node}"

    def _open(self) -> None:
        if self.has_disks:
            self._share_mounts()
        if self.has_networks:
            self._open_network()

    def _share_mounts(self) -> None:
        share_mounts(self.book, self.directory)

    def _open_network(self) -> None:
        """Create a bridge in a network namespace of its own, and this machine's link to it, whose
        address is that of ``CLIENTS``."""
        self._subnet = subnet.free(random.Random())
        clients, switch = self._subnet[-2], self._switch
        link = f"mrc{self.book.run}"
        self.book.note(ledger.NAMESPACE, switch)
        self.book.note(ledger.LINK, link)
        self.addresses[CLIENTS] = str(clients)
        host.run("ip", "netns", "add", switch)
        in_namespace(switch, "ip", "link", "add", "bridge", "type", "bridge")
        host.run("ip", "link", "add", link, "type", "veth", "peer", "name", "clients", "netns",
                 switch)
        in_namespace(switch, "ip", "link", "set", "clients", "master", "bridge")
        for device in ("bridge", "clients"):
            in_namespace(switch, "ip", "link", "set", device, "up")
        host.run("ip", "addr", "add", f"{clients}/{self._subnet.prefixlen}", "dev", link)
        host.run("ip", "link", "set", link, "up")

    @property
    def _switch(self) -> str:
        return f"mrc{self.book.run}s"

    def _reserve_endpoint(self, node: int) -> NodeEndpoint:
        if self.has_networks:
            self.addresses[node] = str(self._subnet[node])
            return NodeEndpoint(node, self.addresses[node])
        self.addresses[node] = "127.0.0.1"
        return NodeEndpoint(node, "127.0.0.1", *_free_ports(PORTS_OF_NODE))

    def _make_network(self, endpoint: NodeEndpoint) -> NodePackets | None:
        if not self.has_networks:
            return None
        name, outer = self.namespace(endpoint.id), f"node{endpoint.id}"
        self.book.note(ledger.NAMESPACE, name)
        host.run("ip", "netns", "add", name)
        in_namespace(self._switch, "ip", "link", "add", outer, "type", "veth", "peer", "name",
                     "eth0", "netns", name)
        in_namespace(self._switch, "ip", "link", "set", outer, "master", "bridge", "up")
        in_namespace(name, "ip", "addr", "add", f"{endpoint.host}/{self._subnet.prefixlen}", "dev",
                     "eth0")
        for device in ("lo", "eth0"):
            in_namespace(name, "ip", "link", "set", device, "up")
        return NodePackets(endpoint.id, namespace_file(name))


class _Processes:
    """A ``ProcessRunner`` of children of this process."""

    def __init__(self, backend: ProcessBackend):
        self._backend = backend
        self._children: dict[int, subprocess.Popen] = {}
        self._known: dict[int, host.ProcessId] = {}

    def spawn(self, node: int) -> None:
        backend, files = self._backend, self._backend.layout
        command = node_command(files.config(node), files.clock(node), backend.spec)
        if backend.has_networks:
            command = host.within(namespace_file(backend.namespace(node)), *command)
        if node in self._children:
            self._children[node].wait()  # it has ended; this reaps it
        with files.log(node).open("ab") as log:
            # A session of its own: a keyboard interrupt must not end nodes before this process ends
            # them.
            child = subprocess.Popen(command, cwd=files.node(node), stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log, start_new_session=True,
                                     env=host.environment())
        self._children[node], self._known[node] = child, host.identify(child.pid)
        backend.book.note(ledger.PROCESS, *map(str, self._known[node]))
        if SLOW_DISK in backend.kinds:
            backend.book.note(ledger.CGROUP, backend.cgroup(node))
            throttle.isolate(child.pid, backend.cgroup(node))

    def signal(self, node: int, number: signal.Signals) -> None:
        if node in self._known:
            host.send(self._known[node], number)

    def pause(self, node: int) -> None:
        self.signal(node, signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self.signal(node, signal.SIGCONT)

    def alive(self, node: int) -> bool:
        if node not in self._children:
            return False
        self._children[node].poll()  # reaped when it has ended
        return host.alive(self._known[node])

    def exit_status(self, node: int) -> int:
        return self._children[node].wait()

    def pid(self, node: int) -> int:
        return self._known[node].pid

    def reap(self) -> None:
        """Reap all children, also those that other processes ended. Blocks until every child has
        ended."""
        for child in self._children.values():
            child.wait()


def namespace_file(name: str) -> Path:
    """Return the path at which `ip netns add` leaves a network namespace."""
    return Path("/run/netns", name)


def in_namespace(name: str, *command: str) -> None:
    """Run a command in the network namespace ``name``. Raises ``BackendError`` when it fails.

    `ip -n` is not used: it changes the propagation of the root directory's mount, and fails where
    the root directory is none (chroot)."""
    host.run(*host.within(namespace_file(name), *command))


def node_command(config: Path, clock: Path, spec: ClusterSpec, python: str = "") -> list[str]:
    """Return the command that starts a node: by the launcher, if there is one, with its clock
    file, the planted bugs and the sizes of files. ``python``: the interpreter, "" = this one."""
    # Every role change is logged at this level; the checkers read them from the log.
    start = ["node", "start", "--config", str(config), "--log-level", "debug"]
    if importlib.util.find_spec("chaos.launcher") is None:
        command = host.module("admin_cli", *start)
    else:
        words = [*(word for name in spec.planted for word in ("--planted", name)),
                 *(word for name, size in spec.file_sizes.items()
                   for word in ("--storage", f"{name}={size}"))]
        command = host.module("chaos.launcher", *words, "--clock", str(clock), "--", *start)
    return [python, *command[1:]] if python else command


def share_mounts(book: ledger.ResourceLedger, directory: Path) -> None:
    """Make ``directory`` a shared mount point, so that an unmount below it reaches all copies of
    the mounts. A mount namespace that another program creates meanwhile copies them, and must not
    keep a failed file system alive."""
    book.note(ledger.SHARED, str(directory))
    host.run("mount", "--bind", str(directory), str(directory))
    host.run("mount", "--make-shared", str(directory))


def _free_ports(count: int) -> list[int]:
    """Return ``count`` loopback ports that are free now and that the kernel does not assign while a
    node is down. They are not reserved; raises ``BackendError`` when there are not enough."""
    found: list[int] = []
    for port in random.sample(NODE_PORTS, k=len(NODE_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise BackendError(f"fewer than {count} ports of {NODE_PORTS} are free on loopback")
