"""Files of a cluster under test: addresses, directories, and each node's ``node.toml``.

    D/node-N/node.toml   configuration
    D/node-N/clock       how far the node's clocks are off (``chaos.shifted_clock``)
    D/node-N/log         standard output and error of all its starts
    D/node-N/disk        its disk: a file system of its own, or a directory
    D/node-N/disk/data   its data directory
    D/images/N           the file in which that file system is

Contract.  ``node.toml`` names nothing by an absolute path: in a container, ``D/node-N`` is
somewhere else.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.backends.backend import ClusterSpec, Settings
from chaos.backends.disk import LoopDisk

#: Ports of every node that has an address of its own, as in the examples of operations.md.
CLIENT_PORT, PEER_PORT, HTTP_PORT, KAFKA_PORT = 9101, 9201, 9301, 9401
#: Ports of a node; those of nodes at one address are all different.
PORTS_OF_NODE = 4
#: As ``dev_state.KAFKA_IS_SERVED`` of local clusters, which this package does not import: a test
#: compares both.
KAFKA_IS_SERVED = True
DATA = "data"


@dataclass(frozen=True)
class NodeEndpoint:
    """Addresses and ports of one node."""

    id: int
    host: str
    client_port: int = CLIENT_PORT
    peer_port: int = PEER_PORT
    http_port: int = HTTP_PORT
    kafka_port: int = KAFKA_PORT

    @property
    def client_address(self) -> str:
        """Return the node's address for clients."""
        return f"{self.host}:{self.client_port}"

    @property
    def http_address(self) -> str:
        """Return the address of the node's metrics and health endpoints."""
        return f"{self.host}:{self.http_port}"

    @property
    def kafka_address(self) -> str:
        """Return the node's address for Kafka's clients."""
        return f"{self.host}:{self.kafka_port}"


@dataclass
class Layout:
    """The files of one cluster, below ``directory``."""

    directory: Path
    spec: ClusterSpec
    cluster_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def node(self, node: int) -> Path:
        """Return a node's directory."""
        return self.directory / f"node-{node}"

    def config(self, node: int) -> Path:
        """Return a node's configuration file."""
        return self.node(node) / "node.toml"

    def log(self, node: int) -> Path:
        """Return the file with a node's output."""
        return self.node(node) / "log"

    def clock(self, node: int) -> Path:
        """Return the file that says how far a node's clocks are off."""
        return self.node(node) / "clock"

    def disk(self, node: int) -> Path:
        """Return the mount point of a node's disk."""
        return self.node(node) / "disk"

    def data(self, node: int) -> Path:
        """Return a node's data directory."""
        return self.disk(node) / DATA

    def image(self, node: int) -> Path:
        """Return the file behind a node's disk."""
        return self.directory / "images" / str(node)

    def write(self, endpoint: NodeEndpoint, members: Sequence[NodeEndpoint]) -> None:
        """Create a node's directory, configuration, empty log and clock file. ``members``: those of
        a new cluster, () = the node joins one."""
        self.node(endpoint.id).mkdir(parents=True, exist_ok=True)
        self.config(endpoint.id).write_text(self.toml(endpoint, members), encoding="utf-8")
        self.log(endpoint.id).touch()
        set_clock(self.clock(endpoint.id), 0, 0, 0)

    def toml(self, endpoint: NodeEndpoint, members: Sequence[NodeEndpoint]) -> str:
        """Return the text of one node's configuration; ``members`` as for ``write``."""
        tables: dict[str, dict[str, object]] = {
            "node": _member(endpoint) | {"data_dir": f"{self.disk(0).name}/{DATA}"},
            "http": {"address": endpoint.http_address},
            # No other host is on these networks, and faults do not include intruders.
            "security": {"insecure": True},
            "storage": {"durability": self.spec.durability}}
        if KAFKA_IS_SERVED:
            tables["kafka"] = {"address": endpoint.kafka_address}
        if members:
            tables["cluster"] = {"id": self.cluster_id, "groups": self.spec.groups,
                                 "replication_factor": self.spec.replication_factor}
        for settings in (self.spec.settings, self.spec.node_settings.get(endpoint.id, {})):
            _merge(tables, settings)
        lines = []
        for name, table in tables.items():
            lines += [f"[{name}]", *_lines(table), ""]
        for member in members:
            lines += ["[[cluster.nodes]]", *_lines(_member(member)), ""]
        return "\n".join(lines)


def disk_of(files: Layout, node: int) -> LoopDisk:
    """Return the disk of a node, not created yet."""
    return LoopDisk(files.image(node), files.disk(node))


def _member(endpoint: NodeEndpoint) -> dict[str, object]:
    return {"id": endpoint.id, "rack": f"r{endpoint.id}", "client_address": endpoint.client_address,
            "peer_address": f"{endpoint.host}:{endpoint.peer_port}"}


def _merge(tables: dict[str, dict[str, object]], settings: Settings) -> None:
    for name, table in settings.items():
        tables.setdefault(name, {}).update(table)


def _lines(table: Mapping[str, object]) -> list[str]:
    # Texts, numbers, booleans and lists of them are the same in JSON and in TOML.
    return [f"{key} = {json.dumps(value)}" for key, value in table.items()]


def set_clock(path: Path, wall_ms: int, monotonic_ms: int, drift_ppm: int) -> None:
    """Replace atomically the file that a node's clocks follow: wall clock off by ``wall_ms``,
    monotonic clock ahead by ``monotonic_ms`` and gaining ``drift_ppm`` microseconds a second."""
    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps({"monotonic_ms": monotonic_ms, "drift_ppm": drift_ppm,
                                 "wall_ms": wall_ms}), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)
