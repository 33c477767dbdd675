"""Nodes as containers: an image built from the sources, one network, one disk per node.

Contract.  As ``ProcessBackend``, in containers of a Docker engine (``chaos.engine``), through
testcontainers.  Everything in the engine has the labels of the run and of its owner: what an
earlier harness left is found by these labels and removed first.  Other people's containers are left
alone.

Theory.  A node's network belongs to a *sandbox*, a second container that does nothing.  So the
address and the packet rules of a node outlive its process, and a node that starts again in the
middle of a partition never sees a packet from the other side.  ``node-N`` is mounted at ``/node``
with the node's disk in it; each start of the container uses the mounts of that moment.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import docker.errors
import docker.types
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from chaos import engine
from chaos.backends import host, image, ledger, probes, processes, subnet
from chaos.backends.backend import CLIENTS, KINDS, PARTITION, BackendError, ClusterSpec
from chaos.backends.cluster import Cluster
from chaos.backends.layout import NodeEndpoint
from chaos.backends.packets import NodePackets

#: Mount point of a node's directory in its container, and the user there
#: (deploy/container/Dockerfile).
INSIDE = Path("/node")
USER = 10_001
PYTHON = "/opt/multiraft/bin/python"
#: Another program may have taken the address range that was free a moment ago.
NETWORK_TRIES = 5
#: The engine notices the end of a process by itself, and only then releases its mounts.
EXIT_SEEN_S = 30.0


class DockerBackend(Cluster):
    """A cluster of containers."""

    name = "docker"

    def __init__(self, directory: Path, spec: ClusterSpec):
        self._subnet: ipaddress.IPv4Network | None = None
        self._network: Network | None = None
        self._sandboxes: dict[int, DockerContainer] = {}
        self._runner = _Containers(self)
        # Its own reaper is an image that cannot be pulled everywhere; ledgers and labels do that.
        testcontainers_config.ryuk_disabled = True
        super().__init__(directory, spec)
        try:
            self.engine = engine.require(
                lambda daemon: self.book.note(ledger.ENGINE, *map(str, daemon)))
            remove_leftovers()
            self.book.note(ledger.CONTAINERS)
            self.image = image.ensure()
        except BaseException:
            self.close()
            raise
        self.versions = {**self.versions, "docker": self.engine.version, "image": self.image}

    def _probe(self) -> dict[str, str]:
        if host.is_root():
            return super()._probe()
        why = probes.without_root() | probes.rot_without_root() | probes.without_launcher()
        return {kind: why[kind] for kind in KINDS if kind in why}

    def labels(self) -> dict[str, str]:
        """Return the labels of everything that this run creates in the engine."""
        return {ledger.LABEL: self.book.run,
                ledger.OWNER_LABEL: ":".join(map(str, host.identify(os.getpid())))}

    def _open(self) -> None:
        if self.has_disks:
            processes.share_mounts(self.book, self.directory)
        for attempt in range(NETWORK_TRIES):
            try:
                self._open_network()
                return
            except docker.errors.APIError as error:
                if attempt == NETWORK_TRIES - 1:
                    raise BackendError(f"no network can be made: {error.explanation}") from error

    def _open_network(self) -> None:
        self._subnet = subnet.free(random.Random())
        gateway = str(self._subnet[1])
        pool = docker.types.IPAMPool(subnet=str(self._subnet), gateway=gateway)
        self._network = Network(docker_network_kw={
            "driver": "bridge", "labels": self.labels(),
            "ipam": docker.types.IPAMConfig(pool_configs=[pool])})
        self._network.create()
        self.addresses[CLIENTS] = gateway

    def _reserve_endpoint(self, node: int) -> NodeEndpoint:
        self.addresses[node] = str(self._subnet[10 + node])
        return NodeEndpoint(node, self.addresses[node])

    def _make_network(self, endpoint: NodeEndpoint) -> NodePackets | None:
        sandbox = DockerContainer(self.image).with_name(self.container_name(endpoint.id, "network"))
        sandbox.with_kwargs(
            labels=self.labels(), network=self._network.name, entrypoint=["/bin/sleep"],
            healthcheck={"test": ["NONE"]}, init=False,
            networking_config={self._network.name: docker.types.EndpointConfig(
                "1.41", ipv4_address=endpoint.host)})
        sandbox.with_command(["infinity"])
        _started(sandbox)
        self._sandboxes[endpoint.id] = sandbox
        if PARTITION not in self.kinds:
            return None
        return NodePackets(endpoint.id, Path(f"/proc/{_pid(sandbox)}/ns/net"))

    def _own_disk(self, node: int) -> None:
        if not host.is_root():
            return
        files = self.layout
        os.chown(files.log(node), USER, USER)
        for path in (files.disk(node), *files.disk(node).rglob("*")):
            os.chown(path, USER, USER)

    def container_name(self, node: int, role: str) -> str:
        """Return the name of a node's container in the engine; ``role``: "node", or "network" for
        its sandbox."""
        return f"multiraft-chaos-{self.book.run}-{node}-{role}"

    def sandbox_id(self, node: int) -> str:
        """Return the id of the container whose network the node uses."""
        return self._sandboxes[node].get_container_id()

    def close(self) -> None:
        super().close()
        if hasattr(self, "engine"):
            self.engine.close()


class _Containers:
    """A ``ProcessRunner`` of containers; their processes are processes of this machine."""

    def __init__(self, backend: DockerBackend):
        self._backend = backend
        self._containers: dict[int, DockerContainer] = {}
        self._known: dict[int, host.ProcessId] = {}
        self._ended: dict[int, int] = {}  # node -> status, once the engine has seen the end

    def spawn(self, node: int) -> None:
        if node in self._containers:
            with _engine(f"node {node}"):
                self._containers[node].get_wrapped_container().start()
        else:
            self._containers[node] = self._make(node)
        self._ended.pop(node, None)
        self._known[node] = host.identify(_pid(self._containers[node]))

    def _make(self, node: int) -> DockerContainer:
        backend = self._backend
        command = processes.node_command(INSIDE / "node.toml", INSIDE / "clock",
                                         backend.spec, PYTHON)
        container = DockerContainer(backend.image)
        container.with_name(backend.container_name(node, "node"))
        container.with_volume_mapping(str(backend.layout.node(node)), str(INSIDE), "rw")
        # Output goes to the same file as that of a process: beside the node's disk, not on it.
        container.with_command(["-c", f'exec "$@" >>{INSIDE}/log 2>&1', "node", *command])
        container.with_kwargs(
            labels=backend.labels(), network_mode=f"container:{backend.sandbox_id(node)}",
            entrypoint=["/bin/sh"], healthcheck={"test": ["NONE"]}, working_dir=str(INSIDE))
        return _started(container)

    def signal(self, node: int, number: signal.Signals) -> None:
        if node in self._known:
            host.send(self._known[node], number)

    def pause(self, node: int) -> None:
        self._send_command(node, "pause")

    def resume(self, node: int) -> None:
        self.signal(node, signal.SIGCONT)
        if self._state(node).get("Paused"):
            self._send_command(node, "unpause")

    def _send_command(self, node: int, what: str) -> None:
        with _engine(f"node {node}"):
            try:
                getattr(self._containers[node].get_wrapped_container(), what)()
            except docker.errors.APIError as error:
                # The container may have ended since the check, or another thread has sent the same
                # command.
                if error.status_code != 409:
                    raise

    def _state(self, node: int) -> dict:
        if node not in self._containers:
            return {}
        container = self._containers[node].get_wrapped_container()
        with _engine(f"node {node}"):
            container.reload()
        return container.attrs["State"]

    def alive(self, node: int) -> bool:
        if node not in self._known or node in self._ended:
            return False
        if host.alive(self._known[node]):
            return True
        # the engine may not have noticed the end yet, nor released the mounts
        state = self._state(node)
        if state["Status"] in ("running", "paused"):
            return True
        status = state["ExitCode"]
        self._ended[node] = 128 - status if status > 128 else status
        return False

    def exit_status(self, node: int) -> int:
        if not host.holds(lambda: not self.alive(node), EXIT_SEEN_S):
            raise BackendError(f"the engine does not notice that node {node} has ended")
        return self._ended[node]

    def pid(self, node: int) -> int:
        return self._known[node].pid


def _started(container: DockerContainer) -> DockerContainer:
    with _engine("a container cannot be started"):
        return container.start()


@contextlib.contextmanager
def _engine(what: str) -> Iterator[None]:
    """Raise ``BackendError``, beginning with ``what``, when the engine refuses a request of the
    body or does not answer."""
    try:
        yield
    except (docker.errors.DockerException, OSError) as error:  # a missing answer is an OSError
        raise BackendError(f"{what}: {getattr(error, 'explanation', None) or error}") from error


def _pid(container: DockerContainer) -> int:
    """Return the pid on this machine of a container's first process."""
    wrapped = container.get_wrapped_container()
    with _engine("a container cannot be inspected"):
        wrapped.reload()
    return wrapped.attrs["State"]["Pid"]


def remove_leftovers() -> list[str]:
    """Remove the containers and networks, found by label, of runs whose process is gone; return the
    ids of these runs."""
    removed = []
    client = docker.from_env()
    try:
        things = [*client.containers.list(all=True, filters={"label": ledger.LABEL},
                                          ignore_removed=True),
                  *client.networks.list(filters={"label": ledger.LABEL})]
        for thing in things:
            labels = thing.attrs.get("Config", thing.attrs).get("Labels") or {}
            run, owner = labels[ledger.LABEL], labels.get(ledger.OWNER_LABEL, "0:0")
            if run not in removed and not host.alive(host.ProcessId(*map(int, owner.split(":")))):
                ledger.remove_containers(run)
                removed.append(run)
    finally:
        client.close()
    return removed
