"""Snapshot of the cluster from which a plan is made, checked once where it enters.

Contract.  ``Snapshot`` is a value of whole numbers and text.  ``checked`` puts its rows into order.
It raises ``InvalidSnapshot`` for contradictions, so that a planner never meets one, and
``LimitExceeded`` for too many rows.  The digest of a checked snapshot does not depend on the order
in which rows were given.  ``save`` and ``load`` are its file.

Loads were measured over the window and reduced to one number each (a maximum or a high percentile
for rates, the last value for bytes).  The collector of the snapshot decides that, not the planner.
A group's own ``ingress`` and ``read`` count everything in it.  ``partitions`` may list only those
that are worth moving, so that a large cluster can pass a small set.

The cost of a replica for its node follows from its role: each takes the group's ``bytes`` of disk
and its ``ingress``; the leader also sends ``read`` to readers and ``ingress`` to each other voter.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placement import canonical
from placement.bounded_hash import POOL_SIZE_MAX
from placement.errors import InvalidDocument, InvalidSnapshot, LimitExceeded
from placement.hashing import HASH_VERSION
from placement.rendezvous import REPLICATION_FACTOR_MAX
from placement.topology import NODES_MAX, WEIGHT_DEFAULT, NodePlace, check_node

SNAPSHOT_FORMAT = 1

ALIVE = "alive"
DRAINING = "draining"  # to be emptied
MAINTENANCE = "maintenance"  # to lead nothing; keeps its replicas and comes back
DEAD = "dead"  # its replicas are lost, or count as lost
STATES = (ALIVE, DRAINING, MAINTENANCE, DEAD)

#: Partitions of a cluster: the metadata's limit.
PARTITIONS_MAX = 1 << 22

#: Beyond any real load: a petabyte per second through one group, an exabyte on one disk.
RATE_MAX = 1 << 50
BYTES_MAX = 1 << 60

#: A snapshot with all partitions of the largest cluster; 150 bytes each.
SNAPSHOT_BYTES_MAX = 1 << 30

# Codes of InvalidSnapshot.
TWICE = "TWICE"
UNKNOWN_NODE = "UNKNOWN_NODE"
UNKNOWN_GROUP = "UNKNOWN_GROUP"
NEGATIVE = "NEGATIVE"
ABSURD = "ABSURD"
BAD_STATE = "BAD_STATE"
BAD_NODE = "BAD_NODE"
BAD_MEMBERS = "BAD_MEMBERS"
BAD_LEADER = "BAD_LEADER"
BAD_SUM = "BAD_SUM"
OTHER_HASH = "OTHER_HASH"
NO_NODES = "NO_NODES"


class NodeRow(NamedTuple):
    """A node.  Capacities are the part that its replicas may use, 0 = unknown: disk in bytes,
    ingress and egress in bytes per second."""

    id: int
    rack: str = ""
    weight: int = WEIGHT_DEFAULT
    state: str = ALIVE
    disk_capacity: int = 0
    ingress_capacity: int = 0
    egress_capacity: int = 0


class GroupRow(NamedTuple):
    """A group.  ``conf_index`` is the index of the configuration in force, ``leader`` 0 when there
    is none, ``moved_ms`` when a plan last changed its voters (0 = never)."""

    id: int
    incarnation: int
    conf_index: int
    voters: tuple[int, ...]
    leader: int
    learners: tuple[int, ...] = ()
    in_joint: bool = False
    bytes: int = 0
    ingress: int = 0
    read: int = 0
    moved_ms: int = 0


class PartitionRow(NamedTuple):
    """A partition that may be switched.

    ``epoch`` is that of its last link, ``links`` the length of its chain (0 = it is in the group of
    its hash).  ``copied`` means that a switch would copy it (compacted, or kept without limit),
    ``bytes`` how much.  ``moved_ms`` is the time of its last switch by a plan (0 = never)."""

    incarnation: int
    topic: str
    partition: int
    group: int
    epoch: int = 1
    links: int = 0
    ingress: int = 0
    read: int = 0
    bytes: int = 0
    copied: bool = False
    moved_ms: int = 0


class Snapshot(NamedTuple):
    """The cluster at one moment.

    ``metadata_version`` is the index of the metadata that it was made from, ``exceptions`` the fill
    of the table of chains, ``cluster_id`` hexadecimal."""

    format: int
    cluster_id: str
    metadata_version: int
    taken_ms: int
    hash_version: int
    hash_seed: int
    pool_size: int
    replication_factor: int
    exceptions: int
    nodes: tuple[NodeRow, ...]
    groups: tuple[GroupRow, ...]
    partitions: tuple[PartitionRow, ...]


def checked(snapshot: Snapshot) -> Snapshot:
    """Return the same snapshot with its rows in order, once its values and references are possible.
    Raises ``InvalidSnapshot`` for contradictory or impossible rows, ``LimitExceeded`` for too many,
    and ``InvalidTopology`` for an impossible node. O(rows log rows)."""
    for rows, kind in ((snapshot.nodes, NodeRow), (snapshot.groups, GroupRow),
                       (snapshot.partitions, PartitionRow)):
        if any(type(row) is not kind for row in rows):
            raise InvalidSnapshot(ABSURD, f"a row is no {kind.__name__}")
    try:
        ordered = snapshot._replace(
            nodes=tuple(sorted(snapshot.nodes)),
            groups=tuple(sorted(group._replace(voters=tuple(sorted(group.voters)),
                                               learners=tuple(sorted(group.learners)))
                                for group in snapshot.groups)),
            partitions=tuple(sorted(snapshot.partitions)))
    except TypeError as error:
        raise InvalidSnapshot(ABSURD, f"a row has a value of another type: {error}") from error
    _check_head(ordered)
    _check_nodes(ordered)
    _check_groups(ordered)
    _check_partitions(ordered)
    return ordered


def _check_head(snapshot: Snapshot) -> None:
    if snapshot.format != SNAPSHOT_FORMAT:
        raise InvalidSnapshot(ABSURD, f"a snapshot has the format {SNAPSHOT_FORMAT}; this has "
                              f"{snapshot.format!r:.60}")
    if snapshot.hash_version != HASH_VERSION:
        raise InvalidSnapshot(OTHER_HASH, f"the cluster places with hash version "
                              f"{snapshot.hash_version}, this program with {HASH_VERSION}")
    for name, most in (("metadata_version", canonical.WHOLE_MAX), ("taken_ms", 1 << 60),
                       ("hash_seed", canonical.WHOLE_MAX), ("exceptions", PARTITIONS_MAX)):
        _check_number("the snapshot", name, getattr(snapshot, name), most)
    if not 1 <= snapshot.pool_size <= POOL_SIZE_MAX:
        raise LimitExceeded("pool_size", POOL_SIZE_MAX, snapshot.pool_size)
    if not 1 <= snapshot.replication_factor <= REPLICATION_FACTOR_MAX:
        raise LimitExceeded("replication_factor", REPLICATION_FACTOR_MAX,
                            snapshot.replication_factor)


def _check_nodes(snapshot: Snapshot) -> None:
    if len(snapshot.nodes) > NODES_MAX:
        raise LimitExceeded("nodes", NODES_MAX, len(snapshot.nodes))
    if not snapshot.nodes:
        raise InvalidSnapshot(NO_NODES, "the snapshot has no node")
    _once((node.id for node in snapshot.nodes), "node")
    for node in snapshot.nodes:
        check_node(NodePlace(node.id, node.rack, node.weight))
        if node.state not in STATES:
            raise InvalidSnapshot(BAD_STATE, f"node {node.id} is {node.state!r:.60}; states are "
                                  f"{', '.join(STATES)}")
        _check_number(f"node {node.id}", "disk_capacity", node.disk_capacity, BYTES_MAX)
        for name in ("ingress_capacity", "egress_capacity"):
            _check_number(f"node {node.id}", name, getattr(node, name), RATE_MAX)


def _check_groups(snapshot: Snapshot) -> None:
    if len(snapshot.groups) > POOL_SIZE_MAX + 1:
        raise LimitExceeded("groups", POOL_SIZE_MAX + 1, len(snapshot.groups))
    known = {node.id: None for node in snapshot.nodes}
    _once((group.id for group in snapshot.groups), "group")
    for group in snapshot.groups:
        if not 0 <= group.id <= snapshot.pool_size:
            raise InvalidSnapshot(UNKNOWN_GROUP, f"group {group.id} is outside the pool of "
                                  f"{snapshot.pool_size}")
        for name, most in (("incarnation", canonical.WHOLE_MAX), ("moved_ms", 1 << 60),
                           ("conf_index", canonical.WHOLE_MAX), ("bytes", BYTES_MAX),
                           ("ingress", RATE_MAX), ("read", RATE_MAX)):
            _check_number(f"group {group.id}", name, getattr(group, name), most)
        _check_members(group, known)


def _check_members(group: GroupRow, known: dict[int, None]) -> None:
    members = (*group.voters, *group.learners)
    if not group.voters or len({*members}) != len(members):
        raise InvalidSnapshot(BAD_MEMBERS, f"group {group.id} has voters {group.voters!r:.80} and "
                              f"learners {group.learners!r:.80}; voters are one at least, and "
                              f"nobody is a member twice")
    for node in members:
        if node not in known:
            raise InvalidSnapshot(UNKNOWN_NODE, f"group {group.id} has a member on node {node}, "
                                  f"which the snapshot does not know")
    if group.leader and group.leader not in group.voters and not group.in_joint:
        raise InvalidSnapshot(BAD_LEADER, f"group {group.id} is led by node {group.leader}, its "
                              f"voters are {group.voters!r:.80}")


def _check_partitions(snapshot: Snapshot) -> None:
    if len(snapshot.partitions) > PARTITIONS_MAX:
        raise LimitExceeded("partitions", PARTITIONS_MAX, len(snapshot.partitions))
    _once((partition.incarnation for partition in snapshot.partitions), "partition")
    sums = {group.id: [group.ingress, group.read] for group in snapshot.groups if group.id}
    for row in snapshot.partitions:
        name = f"partition {row.incarnation}"
        rest = sums.get(row.group)
        if rest is None:
            raise InvalidSnapshot(UNKNOWN_GROUP, f"{name} is in group {row.group}, which has no "
                                  f"row or holds no partitions")
        for field, most in (("partition", 1 << 32), ("epoch", 1 << 62), ("links", 1 << 20),
                            ("ingress", RATE_MAX), ("read", RATE_MAX), ("bytes", BYTES_MAX),
                            ("moved_ms", 1 << 60)):
            _check_number(name, field, getattr(row, field), most)
        rest[0] -= row.ingress
        rest[1] -= row.read
        if rest[0] < 0 or rest[1] < 0:
            raise InvalidSnapshot(BAD_SUM, f"the partitions of group {row.group} have more load "
                                  f"than the group itself, from {name} on")


def _check_number(owner: str, name: str, value: int, most: int) -> None:
    if type(value) is not int:
        raise InvalidSnapshot(ABSURD, f"{owner}: {name} is {value!r:.60}, no whole number")
    if value < 0:
        raise InvalidSnapshot(NEGATIVE, f"{owner}: {name} is {value}; nothing is below 0")
    if value > most:
        raise InvalidSnapshot(ABSURD, f"{owner}: {name} is {value}, more than {most}: measured in "
                              f"another unit?")


def _once(ids: Iterable[object], what: str) -> None:
    last = None
    for each in ids:
        if each == last:
            raise InvalidSnapshot(TWICE, f"{what} {each} appears twice")
        last = each


def digest(snapshot: Snapshot) -> str:
    """Return the SHA-256 of a checked snapshot, which does not depend on the given order of
    rows."""
    return canonical.digest_of_rows(snapshot)


def save(snapshot: Snapshot) -> bytes:
    """Return the bytes of the snapshot's file: canonical JSON."""
    return canonical.to_json(snapshot) + b"\n"


def load(data: bytes) -> Snapshot:
    """Return the snapshot of a file, checked. Raises ``InvalidDocument`` if the bytes are no
    snapshot of this format, and as ``checked``."""
    fields = canonical.parse(data, SNAPSHOT_BYTES_MAX)
    version = fields.get("format") if isinstance(fields, dict) else None
    if version != SNAPSHOT_FORMAT:
        raise InvalidDocument(f"a snapshot has the format {SNAPSHOT_FORMAT}; this has "
                              f"{version!r:.60}")
    return checked(canonical.from_plain(Snapshot, fields, "snapshot"))
