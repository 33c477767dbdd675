"""Requests and responses of the client port, and the handshake of every port.

Contract.  Immutable values; the same types on both sides.  ``Shape.read`` of the tables
``REQUESTS`` and ``RESPONSES`` returns typed values in range, so other code does not check them
again.  ``docs/protocol.md`` describes the tables at the end of this module.

Theory.  Data requests name a partition by its *incarnation*, never by its name.  A topic that was
deleted and created again has other incarnations, so a producer or consumer of the deleted topic
gets UNKNOWN_PARTITION instead of records of the new one.  Each request carries the
``metadata_index`` that its client has seen.  A node that lags behind parks the request until it has
applied that index, so that it knows every topic that the client has created.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.codec import layout
from multiraft.wire import members, nodes, placements, plans, pool, schema, settings, sinks, sizes
from multiraft.wire.description import (
    GROUP_DESCRIBE,
    GROUP_DESCRIBE_REPLY,
    NODES_MAX,
    TEXT_MAX,
    GroupDescribe,
    GroupDescribeReply,
)
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.rows import (
    BatchPart,
    DeletionResult,
    FetchPart,
    FetchResult,
    GroupReplicas,
    GroupSummary,
    KeylessRecords,
    NodeAddress,
    NodeSummary,
    OffsetQuery,
    OffsetResult,
    PartitionMetadata,
    ProduceResult,
    RecordDeletion,
    TopicMetadata,
    TopicSummary,
)
from multiraft.wire.schema import Malformed, Shape, list_of, nullable, row

PROTOCOL_VERSION = 2
VERSIONS_SUPPORTED = (PROTOCOL_VERSION,)

#: Names in one metadata request: keeps an answer below the header limit (a topic with one partition
#: has about 80 bytes).  ``ListTopics`` pages through all topics.
TOPICS_PER_REQUEST_MAX = 1000
#: Partitions or batches named in one data request.
PARTITIONS_PER_REQUEST_MAX = 10_000
#: Partitions or offset queries in one request of a client: the answer fits into a header (1 MiB)
#: even if each is refused with a text of its own.
REFUSALS_PER_REPLY_MAX = 3_000
#: Positions of records without a key that an answer has of each batch: a batch has up to a million
#: records, and a request 10,000 batches, whose errors have to fit into one header.
KEYLESS_NAMED_MAX = 16
#: Partitions of a topic.
PARTITIONS_MAX = 10_000
#: Groups in one answer, for the same reason as ``TOPICS_PER_REQUEST_MAX``.
GROUPS_PER_REPLY_MAX = 10_000
TOPIC_NAME_MAX = 249
ADDRESS_MAX = 300
#: Nonces and proofs between nodes: SHA-256.
NONCE_BYTES = 32
#: Longest long poll; the repetition after it detects half-open connections.
WAIT_MS_MAX = 60_000
TIMEOUT_MS_MAX = 600_000

EARLIEST = "earliest"
LATEST = "latest"
TIMESTAMP = "timestamp"
LARGEST_TIME = "largest_time"

#: Replicas that may serve a fetch: only the leader, or any that has applied the offset.
LEADER = "leader"
ANY = "any"

# ---- handshake --------------------------------------------------------------------------------


class BootIdRow(NamedTuple):
    """One start of a node's data directory (``multiraft.liveness.peer_identity.BootId``); (0, 0) =
    none."""

    boot_epoch: int
    process: int


class Hello(NamedTuple):
    """First frame of each connection, from the side that opened it."""

    connection: str = "client"  # or "append", "liveness", "bulk"; key "class" on the wire
    cluster: bytes | None = None  # 16 bytes; null = any cluster
    node: int = 0  # 0 = not a node
    boot_epoch: int = 0
    client_id: str = ""
    incarnation: int = 0  # of a node's data directory
    process: int = 0  # of a node: the random number of its boot id
    version: int = PROTOCOL_VERSION
    nonce: bytes | None = None  # of a node that can prove knowledge of the cluster secret
    after: BootIdRow | None = None  # of a node: the boot id that the peer remembers of it


class Challenge(NamedTuple):
    """Answer of a node that requires proof of the cluster secret before any other frame."""

    node: int
    boot_epoch: int
    nonce: bytes


class Proof(NamedTuple):
    """Answer to a challenge: proof of the cluster secret."""

    proof: bytes


class Welcome(NamedTuple):
    """Answer to a Hello that opens the connection for requests."""

    cluster: bytes
    node: int
    boot_epoch: int = 0
    frame_bytes_max: int = 0  # limit of the answering side
    batch_bytes_max: int = 0
    in_flight_max: int = 0
    version: int = PROTOCOL_VERSION
    proof: bytes | None = None  # of the answering node's knowledge of the secret


class Refused(NamedTuple):
    """Answer to a Hello that closes the connection."""

    code: int
    text: str
    versions: tuple[int, ...] = VERSIONS_SUPPORTED
    proof: bytes | None = None  # as in a Welcome, if the connecting node has proved its own
    remembered: BootIdRow | None = None  # boot id that the answering node remembers


# ---- requests ---------------------------------------------------------------------------------


class Metadata(NamedTuple):
    """Request the nodes, and the named topics (null = none; ``ListTopics`` pages through all)."""

    topics: tuple[str, ...] | None = None


class Produce(NamedTuple):
    """Request to append batches.  The payload is the batches, one after the other; the decoder
    fills ``payload``."""

    acks: str  # "commit", "leader" or "none"; "none" gets no response at all
    timeout_ms: int
    batches: tuple[BatchPart, ...]
    payload: memoryview = memoryview(b"")


class Fetch(NamedTuple):
    """Request for batches.  The node waits up to ``wait_max_ms`` for ``bytes_min`` bytes.  It
    returns the first batch even if that is larger than ``bytes_max``, so that a reader always
    proceeds."""

    partitions: tuple[FetchPart, ...]
    bytes_min: int = 1
    bytes_max: int = 8 << 20
    wait_max_ms: int = 0
    replica: str = LEADER


class ListOffsets(NamedTuple):
    """Request for offsets.  ``linearizable``: for latest and timestamp a majority has confirmed the
    leader after this request arrived; else the asked replica answers from its own state."""

    partitions: tuple[OffsetQuery, ...]
    linearizable: bool = True


class DeleteRecords(NamedTuple):
    """Request to delete the records below an offset of each partition, which is named once.  The
    node answers when the new log starts are committed and applied, or after ``timeout_ms``."""

    partitions: tuple[RecordDeletion, ...]
    timeout_ms: int


class ReportCorruption(NamedTuple):
    """Report that a batch which the node served fails its CRC: the node verifies its copy on
    disk."""

    incarnation: int
    offset: int


class CreateTopic(NamedTuple):
    """Request to create a topic.  ``replication_factor`` 0 = the pool's; any other value must equal
    it.  ``nonce``: 16 random bytes; a repetition with the same nonce is answered with the topic
    that the first request created.  None = a repetition is not recognised.  ``settings``: (name,
    value) of each; None = none."""

    name: str
    partitions: int = 1
    replication_factor: int = 0
    nonce: bytes | None = None
    settings: tuple[tuple[str, str], ...] | None = None


class DeleteTopic(NamedTuple):
    """Request to delete a topic.  ``incarnation``: of the topic, so that a late request does not
    delete the next topic of that name; 0 = the present topic of that name."""

    name: str
    incarnation: int = 0


class AddPartitions(NamedTuple):
    """Request to add partitions to a topic, so that it has ``partitions``, which must be more than
    it has.  ``incarnation``: of the topic, 0 = the present topic of that name.  ``nonce``: 16
    random bytes; a repetition with the same nonce is answered as the first request.  None = a
    repetition is not recognised.  ``dry_run``: only check."""

    name: str
    partitions: int
    incarnation: int = 0
    nonce: bytes | None = None
    dry_run: bool = False


class ListTopics(NamedTuple):
    """Request for topics with names after ``after``, in order, at most ``count_max``."""

    after: str = ""
    count_max: int = TOPICS_PER_REQUEST_MAX


#: A producer that requests another epoch names one that is 1 to this many above its own, and the
#: same one until it is answered.  An id has 32,768 epochs, enough for about 250 requests; the
#: producer then requests another id.
EPOCHS_SKIPPED_MAX = 255


class InitProducer(NamedTuple):
    """Request for a producer identity.  ``producer_id`` -1 = a new id.  An existing id gets the
    epoch after ``producer_epoch``, which fences older ones; a repetition gets the same epoch,
    unless a later one was granted.  ``producer_epoch`` -1 = an epoch that no other request can have
    named."""

    producer_id: int = -1
    producer_epoch: int = -1


class ClusterStatus(NamedTuple):
    pass


class ListGroups(NamedTuple):
    """Request for groups with ids from ``first`` on, in order, at most ``count_max``."""

    first: int = 0
    count_max: int = 10_000


class TransferLeadership(NamedTuple):
    """Request to transfer leadership to node ``to`` (0 = the most up-to-date follower)."""

    group: int
    to: int = 0


class NodeStatus(NamedTuple):
    pass


# ---- responses --------------------------------------------------------------------------------


class MetadataReply(NamedTuple):
    cluster: bytes
    nodes: tuple[NodeAddress, ...]
    topics: tuple[TopicMetadata, ...] = ()
    missing: tuple[str, ...] = ()  # names asked for that do not exist
    groups: tuple[GroupReplicas, ...] = ()  # of the partitions above


class ProduceReply(NamedTuple):
    """One result per batch, in the order of the request.  ``log_append_times_ms``: for each, the
    timestamp that the leader gave its records, -1 = none, or not known; None = none for all.
    ``keyless``: batches that are refused for records without a key; None = none is."""

    results: tuple[ProduceResult, ...]
    log_append_times_ms: tuple[int, ...] | None = None
    keyless: tuple[KeylessRecords, ...] | None = None


class FetchReply(NamedTuple):
    """One result per requested partition, in that order; the decoder fills ``payload``."""

    results: tuple[FetchResult, ...]
    payload: memoryview = memoryview(b"")


class ListOffsetsReply(NamedTuple):
    results: tuple[OffsetResult, ...]


class DeleteRecordsReply(NamedTuple):
    """One result per partition, in the order of the request."""

    results: tuple[DeletionResult, ...]


class ReportCorruptionReply(NamedTuple):
    """``damaged``: the copy fails its CRC too, and the replica is quarantined until repaired."""

    damaged: bool


class CreateTopicReply(NamedTuple):
    topic: TopicMetadata


class DeleteTopicReply(NamedTuple):
    pass


class AddPartitionsReply(NamedTuple):
    """The topic, with the added partitions unless they were only checked."""

    topic: TopicMetadata


class ListTopicsReply(NamedTuple):
    topics: tuple[TopicSummary, ...]
    more: bool = False


class InitProducerReply(NamedTuple):
    producer_id: int
    producer_epoch: int


class ClusterStatusReply(NamedTuple):
    """The cluster as the answering node ``node`` sees it; ``metadata_leader`` 0 = unknown."""

    cluster: bytes
    node: int
    nodes: tuple[NodeSummary, ...]
    groups: int
    replication_factor: int
    metadata_leader: int
    topics: int
    partitions: int


class ListGroupsReply(NamedTuple):
    groups: tuple[GroupSummary, ...]
    more: bool = False


class TransferLeadershipReply(NamedTuple):
    """The leader after the transfer."""

    leader: int
    term: int


class NodeStatusReply(NamedTuple):
    """Statistics of the answering node; ``docs/protocol.md`` lists the keys."""

    node: int
    status: dict[str, Any]


# ---- the tables -------------------------------------------------------------------------------

_u64 = schema.integer(0, schema.U64_MAX)
_u32 = schema.integer(0, schema.U32_MAX)
_i64 = schema.integer(0, schema.I64_MAX)  # offsets, counts: never negative
_mark = schema.integer(-1, schema.I64_MAX)  # offsets where -1 = none
_node = schema.integer(0, schema.I32_MAX)
_code = schema.integer(0, schema.I16_MAX)
_bytes_count = schema.integer(0, schema.I32_MAX)
_uuid = schema.fixed_bytes(16)
_nonce = schema.fixed_bytes(NONCE_BYTES)
_name = schema.text(TOPIC_NAME_MAX)
#: Longer than a valid name, because the handler of the request answers INVALID_TOPIC_NAME.
_any_name = schema.text(TEXT_MAX)
_text = schema.text(TEXT_MAX)
_address = schema.text(ADDRESS_MAX)
_nodes = list_of(_node, NODES_MAX)

#: Row of an error, in the header of a response and in the rows of its parts.
read_detail = row(ErrorDetail, _text, _node, _address, *[_mark] * 6)
_detail = nullable(read_detail)

_partition = row(PartitionMetadata, schema.integer(0, PARTITIONS_MAX - 1), _u64, _u32, _node, _i64,
                 _u64)
_topic = row(TopicMetadata, _name, _uuid, _u64, list_of(_partition, PARTITIONS_MAX))
_batch_parts = list_of(row(BatchPart, _u64, _bytes_count), PARTITIONS_PER_REQUEST_MAX)


def _per_partition(kind: type, *checks: schema.Check) -> schema.Check:
    return list_of(row(kind, *checks), PARTITIONS_PER_REQUEST_MAX)


def _batch_bytes(request: Produce) -> int:
    total = 0
    for batch in request.batches:
        total += batch.length
    return total


def _result_bytes(reply: FetchReply) -> int:
    total = 0
    for result in reply.results:
        total += result.length
    return total


#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "metadata": Shape(Metadata, {"topics": nullable(list_of(_any_name, TOPICS_PER_REQUEST_MAX))}),
    "produce": Shape(Produce, {
        "acks": schema.one_of("commit", "leader", "none"),
        "timeout_ms": schema.integer(1, TIMEOUT_MS_MAX), "batches": _batch_parts},
        _batch_bytes),
    "fetch": Shape(Fetch, {
        "partitions": _per_partition(FetchPart, _u64, _i64, _bytes_count),
        "bytes_min": _bytes_count, "bytes_max": _bytes_count,
        "wait_max_ms": schema.integer(0, WAIT_MS_MAX),
        "replica": schema.one_of(LEADER, ANY)}),
    "list_offsets": Shape(ListOffsets, {
        "partitions": _per_partition(
            OffsetQuery, _u64, schema.one_of(EARLIEST, LATEST, TIMESTAMP, LARGEST_TIME), _mark,
            _u64), "linearizable": schema.boolean}),
    "delete_records": Shape(DeleteRecords, {
        "partitions": list_of(row(RecordDeletion, _u64, _mark), REFUSALS_PER_REPLY_MAX),
        "timeout_ms": schema.integer(1, TIMEOUT_MS_MAX)}),
    "report_corruption": Shape(ReportCorruption, {"incarnation": _u64, "offset": _i64}),
    "create_topic": Shape(CreateTopic, {
        "name": _any_name, "partitions": schema.integer(1, PARTITIONS_MAX),
        "replication_factor": _node, "nonce": nullable(_uuid),
        "settings": nullable(settings.pairs)}, sparse=("nonce", "settings")),
    "delete_topic": Shape(DeleteTopic, {"name": _any_name, "incarnation": _u64}),
    "add_partitions": Shape(AddPartitions, {
        "name": _any_name, "partitions": _u32, "incarnation": _u64,
        "nonce": nullable(_uuid), "dry_run": schema.boolean}),
    "list_topics": Shape(ListTopics, {
        "after": _any_name, "count_max": schema.integer(1, TOPICS_PER_REQUEST_MAX)}),
    "init_producer": Shape(InitProducer, {
        "producer_id": _mark, "producer_epoch": schema.integer(-1, schema.I16_MAX)}),
    "cluster_status": Shape(ClusterStatus, {}),
    "list_groups": Shape(ListGroups, {
        "first": _u32, "count_max": schema.integer(1, GROUPS_PER_REPLY_MAX)}),
    "transfer_leadership": Shape(TransferLeadership, {"group": _u32, "to": _node}),
    "node_status": Shape(NodeStatus, {}),
    "group_describe": GROUP_DESCRIBE,
    **members.REQUESTS,
    **nodes.REQUESTS,
    **placements.REQUESTS,
    **plans.REQUESTS,
    **pool.REQUESTS,
    **settings.REQUESTS,
    **sinks.REQUESTS,
    **sizes.REQUESTS,
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "metadata": Shape(MetadataReply, {
        "cluster": _uuid, "nodes": list_of(row(NodeAddress, _node, _address, _text), NODES_MAX),
        "topics": list_of(_topic, TOPICS_PER_REQUEST_MAX),
        "missing": list_of(_any_name, TOPICS_PER_REQUEST_MAX),
        "groups": list_of(row(GroupReplicas, _u32, _nodes), GROUPS_PER_REPLY_MAX)}),
    "produce": Shape(ProduceReply, {
        "results": _per_partition(ProduceResult, _code, _mark, _detail),
        "log_append_times_ms": nullable(list_of(_mark, PARTITIONS_PER_REQUEST_MAX)),
        "keyless": nullable(_per_partition(
            KeylessRecords, schema.integer(0, PARTITIONS_PER_REQUEST_MAX - 1),
            list_of(schema.integer(0, layout.BATCH_RECORDS_MAX - 1), KEYLESS_NAMED_MAX)))},
        sparse=("log_append_times_ms", "keyless")),
    "fetch": Shape(FetchReply, {
        "results": _per_partition(FetchResult, _u64, _code, _mark, _mark, _bytes_count, _detail)},
        _result_bytes),
    "list_offsets": Shape(ListOffsetsReply, {
        "results": _per_partition(OffsetResult, _u64, _code, _mark, _detail)}),
    "delete_records": Shape(DeleteRecordsReply, {"results": list_of(
        row(DeletionResult, _u64, _code, _mark, _detail), REFUSALS_PER_REPLY_MAX)}),
    "report_corruption": Shape(ReportCorruptionReply, {"damaged": schema.boolean}),
    "create_topic": Shape(CreateTopicReply, {"topic": _topic}),
    "delete_topic": Shape(DeleteTopicReply, {}),
    "add_partitions": Shape(AddPartitionsReply, {"topic": _topic}),
    "list_topics": Shape(ListTopicsReply, {
        "topics": list_of(row(TopicSummary, _name, _uuid, _u64, _u32), TOPICS_PER_REQUEST_MAX),
        "more": schema.boolean}),
    "init_producer": Shape(InitProducerReply, {
        "producer_id": _i64, "producer_epoch": schema.integer(0, schema.I16_MAX)}),
    "cluster_status": Shape(ClusterStatusReply, {
        "cluster": _uuid, "node": _node,
        "nodes": list_of(row(NodeSummary, _node, _address, _address, _text,
                             schema.one_of("up", "down", "unknown"), _u32, _u32, _address,
                             last_is_optional=True), NODES_MAX),
        "groups": _u32, "replication_factor": _node, "metadata_leader": _node, "topics": _i64,
        "partitions": _i64}, encoded={"nodes": schema.each_without_default}),
    "list_groups": Shape(ListGroupsReply, {
        "groups": list_of(row(GroupSummary, _u32, _u32, _u64, _node, _nodes, _nodes),
                          GROUPS_PER_REPLY_MAX), "more": schema.boolean}),
    "transfer_leadership": Shape(TransferLeadershipReply, {"leader": _node, "term": _u64}),
    "node_status": Shape(NodeStatusReply, {"node": _node, "status": schema.plain_map}),
    "group_describe": GROUP_DESCRIBE_REPLY,
    **members.RESPONSES,
    **nodes.RESPONSES,
    **placements.RESPONSES,
    **plans.RESPONSES,
    **pool.RESPONSES,
    **settings.RESPONSES,
    **sizes.RESPONSES,
    **sinks.RESPONSES,
}

#: Changes that a node passes on to the metadata leader for a client of another protocol.
_PASSED_ON = ("add_partitions", "alter_settings", "create_topic", "delete_topic", "init_producer")
PEER_REQUESTS: dict[str, Shape] = {op: REQUESTS[op] for op in _PASSED_ON}
PEER_RESPONSES: dict[str, Shape] = {op: RESPONSES[op] for op in _PASSED_ON}

#: type -> op, for both directions.
OPS: dict[type, str] = {shape.kind: op for table in (REQUESTS, RESPONSES)
                        for op, shape in table.items()}

Request = (
    Metadata
    | Produce
    | Fetch
    | ListOffsets
    | DeleteRecords
    | ReportCorruption
    | CreateTopic
    | DeleteTopic
    | AddPartitions
    | ListTopics
    | InitProducer
    | ClusterStatus
    | ListGroups
    | TransferLeadership
    | NodeStatus
    | GroupDescribe
    | members.Request
    | nodes.Request
    | placements.Request
    | plans.Request
    | pool.Request
    | settings.Request
    | sizes.Request
    | sinks.Request
)
Reply = (MetadataReply | ProduceReply | FetchReply | ListOffsetsReply | DeleteRecordsReply
         | ReportCorruptionReply | CreateTopicReply | DeleteTopicReply | AddPartitionsReply
         | ListTopicsReply | InitProducerReply
         | ClusterStatusReply | ListGroupsReply | TransferLeadershipReply | NodeStatusReply
         | GroupDescribeReply | members.Reply | nodes.Reply | placements.Reply | plans.Reply
         | pool.Reply | settings.Reply | sinks.Reply | sizes.Reply)

_boot_id = schema.row(BootIdRow, _u64, _u64)
_HELLO = Shape(Hello, {
    "version": _u32, "connection": schema.one_of("client", "append", "liveness", "bulk"),
    "cluster": nullable(_uuid), "node": _node, "boot_epoch": _u64,
    "client_id": schema.text(TOPIC_NAME_MAX), "incarnation": _u64, "process": _u64,
    "nonce": nullable(_nonce), "after": nullable(_boot_id)})
_CHALLENGE = Shape(Challenge, {"node": _node, "boot_epoch": _u64, "nonce": _nonce})
_PROOF = Shape(Proof, {"proof": _nonce})
_WELCOME = Shape(Welcome, {
    "version": _u32, "cluster": _uuid, "node": _node, "boot_epoch": _u64,
    "frame_bytes_max": _u32, "batch_bytes_max": _u32, "in_flight_max": _u32,
    "proof": nullable(_nonce)})
_REFUSED = Shape(Refused, {"code": _code, "text": _text, "versions": list_of(_u32, 100),
                            "proof": nullable(_nonce), "remembered": nullable(_boot_id)})

# ---- values <-> header maps -------------------------------------------------------------------


def hello_header(hello: Hello) -> dict[str, Any]:
    """Return the header of the first frame, which says ``hello``."""
    fields = hello._asdict()
    fields["class"] = fields.pop("connection")
    for name in ("nonce", "after"):
        if fields[name] is None:
            del fields[name]
    return {"op": "hello", **fields}


def read_hello(header: dict[str, Any]) -> Hello:
    """Return the ``Hello`` of the first frame's header. Of an unsupported version only the version
    is read: the caller decides on it. Raises ``Malformed`` for another frame, or invalid fields."""
    fields = dict(header)
    if fields.pop("op", None) != "hello":
        raise Malformed("the first frame is not a hello")
    if type(fields.get("version")) is int and fields["version"] not in VERSIONS_SUPPORTED:
        return Hello(version=fields["version"])  # its other fields may differ in meaning
    if "connection" in fields:
        raise Malformed("unknown field 'connection'")
    if "class" in fields:
        fields["connection"] = fields.pop("class")
    for name in ("version", "connection"):
        if name not in fields:
            raise Malformed(f"missing field {'class' if name == 'connection' else name!r}")
    return _HELLO.read(fields)


def welcome_header(welcome: Welcome) -> dict[str, Any]:
    """Return the header of the frame that accepts a Hello."""
    fields = welcome._asdict()
    if welcome.proof is None:
        del fields["proof"]
    return {"op": "welcome", **fields}


def challenge_header(challenge: Challenge) -> dict[str, Any]:
    """Return the header of the answer to a Hello that requires a proof first."""
    return {"op": "challenge", **challenge._asdict()}


def proof_header(proof: Proof) -> dict[str, Any]:
    """Return the header of the frame that answers a challenge."""
    return {"op": "proof", **proof._asdict()}


def read_proof(header: dict[str, Any]) -> Proof:
    """Return the ``Proof`` in a header, the answer to a challenge. Raises ``Malformed`` for another
    frame, or invalid fields."""
    fields = dict(header)
    if fields.pop("op", None) != "proof":
        raise Malformed("the answer to a challenge is no proof")
    return _PROOF.read(fields)


def read_answer(header: dict[str, Any]) -> Challenge | Welcome | Refused:
    """Return the answer to a node's Hello, from its header: a challenge, a welcome or a refusal.
    Raises ``Malformed`` for another frame, or invalid fields."""
    if header.get("op") != "challenge":
        return read_welcome(header)
    fields = dict(header)
    del fields["op"]
    return _CHALLENGE.read(fields)


def refused_header(refused: Refused) -> dict[str, Any]:
    """Return the header of the frame that refuses a Hello; the connection is closed after it."""
    fields = refused._asdict()
    for name in ("proof", "remembered"):
        if fields[name] is None:
            del fields[name]
    return {"op": "refused", **fields}


def read_welcome(header: dict[str, Any]) -> Welcome | Refused:
    """Return the answer to a client's Hello, from its header: a welcome or a refusal. Raises
    ``Malformed`` for another frame, or invalid fields."""
    fields = dict(header)
    op = fields.pop("op", None)
    if op == "refused":
        return _REFUSED.read(fields)
    if op != "welcome":
        raise Malformed("the answer to a hello is neither a welcome nor a refusal")
    return _WELCOME.read(fields)


def refusal_of_version(hello: Hello) -> Refused | None:
    """Return the refusal of an unsupported version; None = the version is supported."""
    if hello.version in VERSIONS_SUPPORTED:
        return None
    return Refused(Code.UNSUPPORTED, f"version {hello.version} is not supported")


def result_code(code: int) -> Code | int:
    """Return the ``Code`` of a number; the number itself if a newer node defined it."""
    try:
        return Code(code)
    except ValueError:
        return code
