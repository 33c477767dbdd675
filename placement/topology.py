"""Nodes, racks and weights, checked once where they enter.

Contract.  ``Topology.of`` is the gateway: it raises ``InvalidTopology`` or ``LimitExceeded``; past
it, ids are unique and everything is in range.  A node without a rack is in the rack named "", so a
cluster that names no racks has one.  Weight 0 means "takes no new replicas".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placement.errors import InvalidTopology, LimitExceeded

#: Nodes of one cluster: liveness is a message per node pair, and placement a pass over all nodes.
NODES_MAX = 1024

#: The weight of an ordinary node; twice as much takes twice as many replicas.
WEIGHT_DEFAULT = 100

#: Keeps exact comparison of scores within small integers.
WEIGHT_MAX = 1 << 20

#: Rack names are labels, and every node keeps all of them.
RACK_BYTES_MAX = 255

NODE_ID_MAX = (1 << 31) - 1


class NodePlace(NamedTuple):
    """Rack and weight of a node."""

    id: int
    rack: str = ""
    weight: int = WEIGHT_DEFAULT


class Rack(NamedTuple):
    """A rack, the sum of its weights, and its nodes by id."""

    name: str
    weight: int
    nodes: tuple[NodePlace, ...]


class Topology(NamedTuple):
    """Racks by name, only nodes that take replicas."""

    racks: tuple[Rack, ...]

    @classmethod
    def of(cls, nodes: Iterable[NodePlace]) -> Topology:
        """Return the topology of these nodes, without those of weight 0. Raises ``InvalidTopology``
        for an impossible or repeated node, ``LimitExceeded`` for too many."""
        by_rack: dict[str, list[NodePlace]] = {}
        seen: dict[int, None] = {}
        for node in nodes:
            check_node(node)
            if node.id in seen:
                raise InvalidTopology(f"node {node.id} appears twice")
            seen[node.id] = None
            if node.weight:
                by_rack.setdefault(node.rack, []).append(node)
        if len(seen) > NODES_MAX:
            raise LimitExceeded("nodes", NODES_MAX, len(seen))
        return cls(tuple(Rack(name, sum(node.weight for node in members), tuple(sorted(members)))
                         for name, members in sorted(by_rack.items())))

    @property
    def nodes_count(self) -> int:
        """Nodes that take replicas."""
        return sum(len(rack.nodes) for rack in self.racks)


def check_node(node: NodePlace) -> None:
    """Return if id, rack and weight are possible. Raises ``InvalidTopology`` otherwise."""
    if not _is_int(node.id) or not 1 <= node.id <= NODE_ID_MAX:
        raise InvalidTopology(f"node id {node.id!r} is outside 1..{NODE_ID_MAX}")
    if not isinstance(node.rack, str) or len(node.rack.encode()) > RACK_BYTES_MAX:
        raise InvalidTopology(f"node {node.id}: the rack is not a name of at most "
                              f"{RACK_BYTES_MAX} bytes")
    if not _is_int(node.weight) or not 0 <= node.weight <= WEIGHT_MAX:
        raise InvalidTopology(f"node {node.id}: weight {node.weight!r} is outside 0..{WEIGHT_MAX}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
