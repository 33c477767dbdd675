"""Commands of the metadata state machine and their encoding in METADATA entries.

Contract.  A command is an immutable value; its payload is one CBOR map ``{"v", "op", fields}``.
``encode_command`` refuses what ``decode_command`` would refuse, so nothing enters the log that a
replica could not read.  A payload *in the log* that does not decode is corruption, or was written
by a newer version.  ``InvalidCommand`` stops the replica then, because a replica that skipped the
entry would diverge from the others.  A command does not depend on the replica that applies it: the
proposer has chosen every id, and applying uses neither a clock nor random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import cbor2

from multiraft.codec import shapes
from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.errors import MultiRaftError
from multiraft.types import Payload
from multiraft.wire import schema
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import decode_header
from multiraft.wire.messages import ADDRESS_MAX, PARTITIONS_MAX, TEXT_MAX
from multiraft.wire.schema import Malformed, Shape, list_of, nullable, row
from multiraft.wire.settings import pairs as setting_pairs
from multiraft.wire.sinks import (
    COMMAND_FIELDS,
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    VoidTransactions,
)
from node.metadata import plan_commands, setting_commands
from node.metadata.plan_commands import ApplyPlan, ControlPlan, SetNodeState, StepMove
from node.metadata.setting_commands import TOPIC_ID_BYTES, AlterSettings
from placement import POOL_SIZE_MAX, NodePlace, Topology, replicas_of_pool
from placement.rendezvous import REPLICATION_FACTOR_MAX
from placement.topology import NODE_ID_MAX, NODES_MAX, RACK_BYTES_MAX, WEIGHT_DEFAULT, WEIGHT_MAX

#: Version of the commands.  A replica that meets another one stops with ``InvalidCommand``.
COMMAND_VERSION = 1

#: The largest command is a bootstrap: 32,768 groups of 9 replicas take about 2 MB.
COMMAND_BYTES_MAX = 4 << 20

#: Partitions of one topic: limited to what one reply on the wire can describe.
PARTITIONS_PER_TOPIC_MAX = PARTITIONS_MAX

#: Producer ids granted to a node at once; the node serves producers from them without asking again.
PRODUCER_IDS_PER_BLOCK_MAX = 1 << 16

#: Characters of a program's version (``node_releases.py`` compares them).
VERSION_TEXT_MAX = 64

CLUSTER_ID_BYTES = 16

assert COMMAND_BYTES_MAX <= BATCH_BYTES_MAX, "a command is an entry's payload"


class InvalidCommand(MultiRaftError):
    """A payload that is not a command of this version, or a command that would encode to one."""


class NodeRecord(NamedTuple):
    """A node as the metadata describe it.

    ``incarnation`` is bound to the node's data directory (0 = not known yet); ``boot_epoch`` grows
    with each start of the node.  ``version`` of its program and ``started_ms``, the wall-clock time
    of its last start in milliseconds since 1970, are only displayed.  ``kafka_address`` is the
    one for Kafka's clients, "" = the node has no port for them.
    """

    id: int
    incarnation: int
    boot_epoch: int
    client_address: str
    peer_address: str
    rack: str = ""
    weight: int = WEIGHT_DEFAULT
    version: str = ""
    started_ms: int = 0
    kafka_address: str = ""

    @property
    def place(self) -> NodePlace:
        """Return the part of the record that placement needs."""
        return NodePlace(self.id, self.rack, self.weight)


#: Shape of a record (``multiraft.codec.shapes``).  Files and commands leave out an empty
#: ``kafka_address`` (``without_default``).
NODE_SHAPE = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.TEXT, shapes.TEXT, shapes.TEXT,
              shapes.UINT, shapes.TEXT, shapes.UINT, shapes.TEXT)


class Bootstrap(NamedTuple):
    """The first command of a cluster.

    ``replicas[group]`` are the voters of groups 0..pool_size at creation, the preferred leader
    first.  Nodes that are not voters of group 0 are its learners.  ``settings``: (name, value) of
    the cluster's defaults of topics, None = none.
    """

    cluster_id: bytes
    nodes: tuple[NodeRecord, ...]
    pool_size: int
    replication_factor: int
    hash_seed: int
    replicas: tuple[tuple[int, ...], ...]
    settings: tuple[tuple[str, str], ...] | None = None


class RegisterNode(NamedTuple):
    """Register a node that started: it is new, or its addresses, rack, weight or boot epoch
    changed.

    Id 0 asks for the next free id.  ``new``: the node joins, so an id that is already registered
    belongs to another node.
    """

    node: NodeRecord
    new: bool = False


class RemoveNode(NamedTuple):
    """Remove a node that is in no group, and never use its id again."""

    node: int


class RecordMembers(NamedTuple):
    """Record the committed members of a group, as the entry at index ``version`` made them."""

    group: int
    incarnation: int
    version: int
    voters: tuple[int, ...]
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()


class CreateTopic(NamedTuple):
    """Create a topic.  ``topic_id`` is a random UUID of the proposer; the same id again is the same
    request.  ``settings``: (name, value) of each, None = none."""

    name: str
    topic_id: bytes
    partitions: int
    settings: tuple[tuple[str, str], ...] | None = None


class DeleteTopic(NamedTuple):
    """Delete a topic.  The id makes sure that a delete that was proposed twice cannot hit a
    recreated topic."""

    name: str
    topic_id: bytes


class AddPartitions(NamedTuple):
    """Add partitions to a topic, so that it has ``partitions``.  ``request_id``: 16 bytes of the
    proposer; the same id again for the same topic is the same request."""

    name: str
    topic_id: bytes
    partitions: int
    request_id: bytes


class AllocateProducerIds(NamedTuple):
    """Allocate a block of ``count`` producer ids that were never granted before."""

    count: int  # type: ignore[assignment]


class BumpProducerEpoch(NamedTuple):
    """Grant the next epoch of a producer id.

    ``producer_epoch`` is the epoch that the producer has, -1 = the last one granted.  When that is
    not known or was forgotten, or the epochs are used up, the producer gets a new id instead, which
    fences as well because the id was never granted before.
    """

    producer_id: int
    producer_epoch: int = -1


class RecoverGroup(NamedTuple):
    """Forced recovery: the group continues from the replica of node ``survivor``, as its only
    voter, in ``incarnation``, which must be the present one + 1."""

    group: int
    survivor: int
    incarnation: int


class GrowPool(NamedTuple):
    """Grow the pool to ``pool_size`` groups; ``replicas`` are the voters of the new ones, the
    preferred leader first.  The groups are created now; topics use them after ``OpenPool``."""

    pool_size: int
    replicas: tuple[tuple[int, ...], ...]


class OpenPool(NamedTuple):
    """Open a grown pool: all groups up to ``pool_size`` have leaders, and new topics are placed
    over all of them."""

    pool_size: int


class DecideSwitch(NamedTuple):
    """Decide to switch the partition with incarnation ``partition`` to ``to_group``, at ``epoch``,
    which must be its present epoch + 1."""

    partition: int
    epoch: int
    to_group: int


class PublishSwitch(NamedTuple):
    """Publish a switch: ``to_group`` has opened the partition at ``epoch`` and holds its offsets
    from ``start_offset`` on."""

    partition: int
    epoch: int
    start_offset: int
    leader_epoch_base: int


class TrimEpochHistory(NamedTuple):
    """Drop entries of a partition's epoch history whose offsets are all below ``log_start``, the
    first that can be read."""

    partition: int
    log_start: int


Command = (Bootstrap | RegisterNode | RemoveNode | RecordMembers | CreateTopic | DeleteTopic
           | AddPartitions | AllocateProducerIds | BumpProducerEpoch | RecoverGroup | GrowPool
           | OpenPool | DecideSwitch | PublishSwitch | TrimEpochHistory | ApplyPlan | ControlPlan
           | StepMove | SetNodeState | BeginTransaction | CommitTransaction | AbortTransaction
           | VoidTransactions | AlterSettings)

_u64 = schema.integer(0, schema.U64_MAX)
_offset = schema.integer(0, schema.I64_MAX)
_node_id = schema.integer(1, NODE_ID_MAX)
_topic_id = schema.fixed_bytes(TOPIC_ID_BYTES)
_address = schema.text(ADDRESS_MAX)
#: Bounds a name only; the rule for names is in the state machine, which refuses with a code.
_any_name = schema.text(TEXT_MAX)
_row_of_node = row(NodeRecord, schema.integer(0, NODE_ID_MAX), _u64, _u64, _address, _address,
                   schema.text(RACK_BYTES_MAX), schema.integer(0, WEIGHT_MAX),
                   schema.text(VERSION_TEXT_MAX), _u64, _address, last_is_optional=True)
#: Fields of a node's row as release 0.1.0 wrote them: without version and start.
_FIELDS_OF_NODE_0_1 = 7
_members = list_of(_node_id, NODES_MAX)
_replicas = list_of(list_of(_node_id, NODES_MAX), POOL_SIZE_MAX + 1)


def _node(value: Any) -> NodeRecord:
    """Return the node of a row; a row of release 0.1.0 lacks version and start."""
    if type(value) is list and len(value) == _FIELDS_OF_NODE_0_1:
        value = [*value, "", 0]
    return _row_of_node(value)


class RenamedShape(Shape):
    """Shape of a command whose keys on disk differ from the names of its fields."""

    __slots__ = ("_field_of",)

    def __init__(self, kind: type[Any], keys: dict[str, str]):
        super().__init__(kind, COMMAND_FIELDS[kind])
        fields = self.names
        self.names = tuple(keys.get(field, field) for field in fields)
        self._field_of = dict(zip(self.names, fields, strict=True))

    def read(self, fields: dict[str, Any], payload: Payload = b"") -> Any:
        """Return the command that these fields, by their keys on disk, describe. Raises
        ``Malformed`` for an unknown, missing or invalid field. O(fields)."""
        for key in fields:
            if key not in self._field_of:
                raise Malformed(f"unknown field {key!r:.60}")
        return super().read({self._field_of[key]: value for key, value in fields.items()}, payload)


#: Op -> type of the command and its fields.  Transactions are called runs on disk, because there
#: are commands with that name in the logs of nodes.
COMMANDS: dict[str, Shape] = {
    "bootstrap": Shape(Bootstrap, {
        "cluster_id": schema.fixed_bytes(CLUSTER_ID_BYTES), "nodes": list_of(_node, NODES_MAX),
        "pool_size": schema.integer(1, POOL_SIZE_MAX),
        "replication_factor": schema.integer(1, REPLICATION_FACTOR_MAX), "hash_seed": _u64,
        "replicas": _replicas, "settings": nullable(setting_pairs)}, sparse=("settings",),
        encoded={"nodes": schema.each_without_default}),
    "register_node": Shape(RegisterNode, {"node": _node, "new": schema.boolean},
                           encoded={"node": schema.without_default}),
    "remove_node": Shape(RemoveNode, {"node": _node_id}),
    "record_members": Shape(RecordMembers, {
        "group": schema.integer(0, POOL_SIZE_MAX), "incarnation": _u64, "version": _u64,
        "voters": _members, "learners": _members, "outgoing": _members}),
    "create_topic": Shape(CreateTopic, {
        "name": _any_name, "topic_id": _topic_id, "partitions": schema.integer(0, schema.U32_MAX),
        "settings": nullable(setting_pairs)}, sparse=("settings",)),
    "delete_topic": Shape(DeleteTopic, {"name": _any_name, "topic_id": _topic_id}),
    "add_partitions": Shape(AddPartitions, {
        "name": _any_name, "topic_id": _topic_id, "partitions": schema.integer(0, schema.U32_MAX),
        "request_id": _topic_id}),
    "allocate_producer_ids": Shape(AllocateProducerIds, {
        "count": schema.integer(1, PRODUCER_IDS_PER_BLOCK_MAX)}),
    "bump_producer_epoch": Shape(BumpProducerEpoch, {
        "producer_id": schema.integer(0, schema.I64_MAX),
        "producer_epoch": schema.integer(-1, schema.I16_MAX)}),
    "recover_group": Shape(RecoverGroup, {
        "group": schema.integer(0, POOL_SIZE_MAX), "survivor": _node_id,
        "incarnation": schema.integer(1, schema.U32_MAX)}),
    "grow_pool": Shape(GrowPool, {
        "pool_size": schema.integer(1, POOL_SIZE_MAX), "replicas": _replicas}),
    "open_pool": Shape(OpenPool, {"pool_size": schema.integer(1, POOL_SIZE_MAX)}),
    "decide_switch": Shape(DecideSwitch, {
        "partition": _u64, "epoch": _u64, "to_group": schema.integer(0, schema.U32_MAX)}),
    "publish_switch": Shape(PublishSwitch, {
        "partition": _u64, "epoch": _u64, "start_offset": _offset,
        "leader_epoch_base": schema.integer(0, schema.I32_MAX)}),
    "trim_chain": Shape(TrimEpochHistory, {"partition": _u64, "log_start": _offset}),
    **plan_commands.COMMANDS,
    **setting_commands.COMMANDS,
    "open_run": Shape(BeginTransaction, COMMAND_FIELDS[BeginTransaction]),
    "commit_run": RenamedShape(CommitTransaction, {"transaction": "run"}),
    "abort_run": RenamedShape(AbortTransaction, {"transaction": "run"}),
    "void_runs": RenamedShape(VoidTransactions, {"transactions": "runs"}),
}

_OPS: dict[type, str] = {shape.kind: op for op, shape in COMMANDS.items()}


def encode_command(command: Command) -> bytes:
    """Return the payload of a METADATA entry.  Raises ``InvalidCommand`` when a replica could not
    read it.  O(bytes)."""
    op = _OPS[type(command)]
    payload = cbor2.dumps({"v": COMMAND_VERSION, "op": op, **COMMANDS[op].header(command)})
    decode_command(payload)
    return payload


def decode_command(payload: Payload) -> Command:
    """Return the command in a METADATA entry's payload. Raises ``InvalidCommand`` for more than
    ``COMMAND_BYTES_MAX``, another version, and malformed bytes. O(bytes)."""
    if len(payload) > COMMAND_BYTES_MAX:
        raise InvalidCommand(f"a command of {len(payload)} bytes, the limit is {COMMAND_BYTES_MAX}")
    try:
        fields = decode_header(payload)
    except RemoteProtocolError as error:
        raise InvalidCommand(f"not a command: {error}") from error
    version, op = fields.pop("v", None), fields.pop("op", None)
    if version != COMMAND_VERSION or type(op) is not str or op not in COMMANDS:
        raise InvalidCommand(f"unknown command {op!r:.60} of version {version!r:.60}")
    try:
        return COMMANDS[op].read(fields)
    except Malformed as error:
        raise InvalidCommand(f"{op}: {error}") from error


def plan_bootstrap(cluster_id: bytes, nodes: Iterable[NodeRecord], pool_size: int,
                   replication_factor: int, hash_seed: int,
                   settings: tuple[tuple[str, str], ...] = ()) -> Bootstrap:
    """Return the bootstrap of a new cluster, with replicas spread over racks first; ``settings``:
    its defaults of topics.

    Raises ``placement.PlacementError`` when the nodes cannot hold that many replicas.
    """
    nodes = tuple(sorted(nodes))
    topology = Topology.of(node.place for node in nodes)
    replicas = replicas_of_pool(pool_size, replication_factor, topology, hash_seed)
    return Bootstrap(cluster_id, nodes, pool_size, replication_factor, hash_seed, replicas,
                     settings or None)
