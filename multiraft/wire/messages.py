"""Requests and responses of the client port, and the handshake of every port.

Contract.  Frozen values; the same types on both sides.  ``read_request`` and ``read_response`` are
the gateway: what they return is typed and in range, so the code behind them assumes it.
``docs/protocol.md`` is the prose of the tables at the end of this module.

Theory.  The data path names a partition by its *incarnation*, never by its name: a topic that was
deleted and created again has other incarnations, so a producer or consumer that was away meanwhile
gets UNKNOWN_PARTITION instead of somebody else's records.  ``metadata_index`` travels in every
envelope: a client says how new its knowledge is, and a node that is behind waits, so that what was
created is found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.wire import members, nodes, placements, plans, pool, schema, sinks
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
    FetchPart,
    FetchResult,
    GroupReplicas,
    GroupSummary,
    NodeAddress,
    NodeSummary,
    OffsetQuery,
    OffsetResult,
    PartitionMetadata,
    ProduceResult,
    TopicMetadata,
    TopicSummary,
)
from multiraft.wire.schema import Malformed, Shape, list_of, nullable, row

PROTOCOL_VERSION = 2
VERSIONS_SUPPORTED = (PROTOCOL_VERSION,)

#: Names in one metadata request: keeps an answer under the header limit (a topic with one partition
#: has about 80 bytes).  Whoever wants all topics pages through ``ListTopics``.
TOPICS_PER_REQUEST_MAX = 1000
#: Partitions or batches named in one data request.
PARTITIONS_PER_REQUEST_MAX = 10_000
#: Partitions or questions of one request whose answer fits into a header (1 MiB) even if each is
#: refused with a reason of its own: what clients cut their requests into.
REFUSALS_PER_REPLY_MAX = 3_000
#: A topic's partitions.
PARTITIONS_MAX = 10_000
#: Groups in one answer, for the same reason as ``TOPICS_PER_REQUEST_MAX``.
GROUPS_PER_REPLY_MAX = 10_000
TOPIC_NAME_MAX = 249
ADDRESS_MAX = 300
#: Nonces and proofs between nodes: SHA-256.
NONCE_BYTES = 32
#: A long poll longer than this is asked again: half-open connections are noticed.
WAIT_MS_MAX = 60_000
TIMEOUT_MS_MAX = 600_000

EARLIEST = "earliest"
LATEST = "latest"
TIMESTAMP = "timestamp"

#: Who may serve a fetch: only the leader, or any replica that knows that far.
LEADER = "leader"
ANY = "any"

# ---- handshake --------------------------------------------------------------------------------


class LifeRow(NamedTuple):
    """One start of a node's data directory (``multiraft.liveness.peer_identity.Life``); (0, 0) =
    none."""

    boot_epoch: int
    process: int


class Hello(NamedTuple):
    """First frame of each connection, from whoever opened it."""

    connection: str = "client"  # or "append", "liveness", "bulk"; key "class" on the wire
    cluster: bytes | None = None  # 16 bytes; null = whatever cluster answers
    node: int = 0  # 0 = not a node
    boot_epoch: int = 0
    client_id: str = ""
    incarnation: int = 0  # of a node's data directory
    process: int = 0  # of a node: the random number of this life
    version: int = PROTOCOL_VERSION
    nonce: bytes | None = None  # of a node that can prove that it knows the cluster's secret
    after: LifeRow | None = None  # of a node: what the peer said that it remembers


class Challenge(NamedTuple):
    """The answer of a node that wants that proof, before anything else is heard."""

    node: int
    boot_epoch: int
    nonce: bytes


class Proof(NamedTuple):
    """The answer to a challenge."""

    proof: bytes


class Welcome(NamedTuple):
    """The answer that opens the connection for requests."""

    cluster: bytes
    node: int
    boot_epoch: int = 0
    frame_bytes_max: int = 0  # what the answering side accepts
    batch_bytes_max: int = 0
    in_flight_max: int = 0
    version: int = PROTOCOL_VERSION
    proof: bytes | None = None  # that the answering node knows the secret as well


class Refused(NamedTuple):
    """The answer that closes it."""

    code: int
    text: str
    versions: tuple[int, ...] = VERSIONS_SUPPORTED
    proof: bytes | None = None  # as of a welcome, when the dialler has given its own
    remembered: LifeRow | None = None  # of the dialler, whose directory may have had that life


# ---- requests ---------------------------------------------------------------------------------


class Metadata(NamedTuple):
    """Nodes, and the topics named (null = none; ``ListTopics`` pages through all of them)."""

    topics: tuple[str, ...] | None = None


class Produce(NamedTuple):
    """The payload is the batches, one after the other; ``payload`` is filled by the reader."""

    acks: str  # "commit", "leader" or "none"; "none" gets no response at all
    timeout_ms: int
    batches: tuple[BatchPart, ...]
    payload: memoryview = memoryview(b"")


class Fetch(NamedTuple):
    """Waits up to ``wait_max_ms`` until ``bytes_min`` bytes are there.  The first batch is returned
    even when it is larger than ``bytes_max``: progress before limits."""

    partitions: tuple[FetchPart, ...]
    bytes_min: int = 1
    bytes_max: int = 8 << 20
    wait_max_ms: int = 0
    replica: str = LEADER


class ListOffsets(NamedTuple):
    """``linearizable``: latest and timestamp come from a leader that a majority has confirmed after
    this request arrived; else from whatever replica is asked, as it knows it."""

    partitions: tuple[OffsetQuery, ...]
    linearizable: bool = True


class Complain(NamedTuple):
    """A batch that this node served fails its check: look at the copy on disk."""

    incarnation: int
    offset: int


class CreateTopic(NamedTuple):
    """``replication_factor`` 0 = the pool's; any other value must equal it.  ``nonce``: 16 random
    bytes; the same ones again are the same request again, which is answered with the topic that it
    has created (None = it cannot be told from another one)."""

    name: str
    partitions: int = 1
    replication_factor: int = 0
    nonce: bytes | None = None


class DeleteTopic(NamedTuple):
    """``incarnation``: the topic's, for a request that arrives late must not delete the next one of
    that name; 0 = whichever has the name then."""

    name: str
    incarnation: int = 0


class ListTopics(NamedTuple):
    """Names after ``after`` in order, at most ``count_max``."""

    after: str = ""
    count_max: int = TOPICS_PER_REQUEST_MAX


#: Who asks for another epoch names one that lies 1 to so many above its own, and the same one until
#: it is answered.  An id has 32,768 epochs: some 250 questions on average, and then another id.
EPOCHS_SKIPPED_MAX = 255


class InitProducer(NamedTuple):
    """-1 = a new producer id; an existing one gets the epoch after ``producer_epoch``, which fences
    the older.  Asked again it gets the same one, as long as nobody was given a later one; -1 = an
    epoch that nobody else can have asked for."""

    producer_id: int = -1
    producer_epoch: int = -1


class ClusterStatus(NamedTuple):
    pass


class GroupList(NamedTuple):
    """Groups with ids from ``first`` on, in order, at most ``count_max``."""

    first: int = 0
    count_max: int = 10_000


class GroupTransfer(NamedTuple):
    """Ask the group's leader to hand over to node ``to`` (0 = whoever is furthest)."""

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
    """One result per batch, in the order of the request."""

    results: tuple[ProduceResult, ...]


class FetchReply(NamedTuple):
    """One result per partition asked for, in that order; ``payload`` is filled by the reader."""

    results: tuple[FetchResult, ...]
    payload: memoryview = memoryview(b"")


class ListOffsetsReply(NamedTuple):
    results: tuple[OffsetResult, ...]


class ComplainReply(NamedTuple):
    """Whether the copy is damaged; then the replica is out until it is repaired."""

    damaged: bool


class CreateTopicReply(NamedTuple):
    topic: TopicMetadata


class DeleteTopicReply(NamedTuple):
    pass


class ListTopicsReply(NamedTuple):
    topics: tuple[TopicSummary, ...]
    more: bool = False


class InitProducerReply(NamedTuple):
    producer_id: int
    producer_epoch: int


class ClusterStatusReply(NamedTuple):
    """As the answering node ``node`` sees it; ``metadata_leader`` 0 = unknown."""

    cluster: bytes
    node: int
    nodes: tuple[NodeSummary, ...]
    groups: int
    replication_factor: int
    metadata_leader: int
    topics: int
    partitions: int


class GroupListReply(NamedTuple):
    groups: tuple[GroupSummary, ...]
    more: bool = False


class GroupTransferReply(NamedTuple):
    """The leader after the transfer."""

    leader: int
    term: int


class NodeStatusReply(NamedTuple):
    """Statistics of the answering node: a map whose keys are documented with the node."""

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
#: A name that is not acceptable is answered with INVALID_TOPIC_NAME by who owns the rule, so it
#: may be somewhat longer here.
_any_name = schema.text(TEXT_MAX)
_text = schema.text(TEXT_MAX)
_address = schema.text(ADDRESS_MAX)
_nodes = list_of(_node, NODES_MAX)

#: An error's row; used by the envelope of a response and by the rows of its parts.
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
        "partitions": _per_partition(OffsetQuery, _u64, schema.one_of(EARLIEST, LATEST, TIMESTAMP),
                                     _mark, _u64), "linearizable": schema.boolean}),
    "complain": Shape(Complain, {"incarnation": _u64, "offset": _i64}),
    "create_topic": Shape(CreateTopic, {
        "name": _any_name, "partitions": schema.integer(1, PARTITIONS_MAX),
        "replication_factor": _node, "nonce": nullable(_uuid)}, sparse=("nonce",)),
    "delete_topic": Shape(DeleteTopic, {"name": _any_name, "incarnation": _u64}),
    "list_topics": Shape(ListTopics, {
        "after": _any_name, "count_max": schema.integer(1, TOPICS_PER_REQUEST_MAX)}),
    "init_producer": Shape(InitProducer, {
        "producer_id": _mark, "producer_epoch": schema.integer(-1, schema.I16_MAX)}),
    "cluster_status": Shape(ClusterStatus, {}),
    "group_list": Shape(GroupList, {
        "first": _u32, "count_max": schema.integer(1, GROUPS_PER_REPLY_MAX)}),
    "group_transfer": Shape(GroupTransfer, {"group": _u32, "to": _node}),
    "node_status": Shape(NodeStatus, {}),
    "group_describe": GROUP_DESCRIBE,
    **members.REQUESTS,
    **nodes.REQUESTS,
    **placements.REQUESTS,
    **plans.REQUESTS,
    **pool.REQUESTS,
    **sinks.REQUESTS,
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "metadata": Shape(MetadataReply, {
        "cluster": _uuid, "nodes": list_of(row(NodeAddress, _node, _address, _text), NODES_MAX),
        "topics": list_of(_topic, TOPICS_PER_REQUEST_MAX),
        "missing": list_of(_any_name, TOPICS_PER_REQUEST_MAX),
        "groups": list_of(row(GroupReplicas, _u32, _nodes), GROUPS_PER_REPLY_MAX)}),
    "produce": Shape(ProduceReply, {
        "results": _per_partition(ProduceResult, _code, _mark, _detail)}),
    "fetch": Shape(FetchReply, {
        "results": _per_partition(FetchResult, _u64, _code, _mark, _mark, _bytes_count, _detail)},
        _result_bytes),
    "list_offsets": Shape(ListOffsetsReply, {
        "results": _per_partition(OffsetResult, _u64, _code, _mark, _detail)}),
    "complain": Shape(ComplainReply, {"damaged": schema.boolean}),
    "create_topic": Shape(CreateTopicReply, {"topic": _topic}),
    "delete_topic": Shape(DeleteTopicReply, {}),
    "list_topics": Shape(ListTopicsReply, {
        "topics": list_of(row(TopicSummary, _name, _uuid, _u64, _u32), TOPICS_PER_REQUEST_MAX),
        "more": schema.boolean}),
    "init_producer": Shape(InitProducerReply, {
        "producer_id": _i64, "producer_epoch": schema.integer(0, schema.I16_MAX)}),
    "cluster_status": Shape(ClusterStatusReply, {
        "cluster": _uuid, "node": _node,
        "nodes": list_of(row(NodeSummary, _node, _address, _address, _text,
                             schema.one_of("up", "down", "unknown"), _u32, _u32), NODES_MAX),
        "groups": _u32, "replication_factor": _node, "metadata_leader": _node, "topics": _i64,
        "partitions": _i64}),
    "group_list": Shape(GroupListReply, {
        "groups": list_of(row(GroupSummary, _u32, _u32, _u64, _node, _nodes, _nodes),
                          GROUPS_PER_REPLY_MAX), "more": schema.boolean}),
    "group_transfer": Shape(GroupTransferReply, {"leader": _node, "term": _u64}),
    "node_status": Shape(NodeStatusReply, {"node": _node, "status": schema.plain_map}),
    "group_describe": GROUP_DESCRIBE_REPLY,
    **members.RESPONSES,
    **nodes.RESPONSES,
    **placements.RESPONSES,
    **plans.RESPONSES,
    **pool.RESPONSES,
    **sinks.RESPONSES,
}

#: type -> op, for both directions.
OPS: dict[type, str] = {shape.kind: op for table in (REQUESTS, RESPONSES)
                        for op, shape in table.items()}

Request = (Metadata | Produce | Fetch | ListOffsets | Complain | CreateTopic | DeleteTopic
           | ListTopics | InitProducer | ClusterStatus | GroupList | GroupTransfer | NodeStatus
           | GroupDescribe | members.Request | nodes.Request | placements.Request
           | plans.Request | pool.Request | sinks.Request)
Reply = (MetadataReply | ProduceReply | FetchReply | ListOffsetsReply | ComplainReply
         | CreateTopicReply | DeleteTopicReply | ListTopicsReply | InitProducerReply
         | ClusterStatusReply | GroupListReply | GroupTransferReply | NodeStatusReply
         | GroupDescribeReply | members.Reply | nodes.Reply | placements.Reply | plans.Reply
         | pool.Reply | sinks.Reply)

_life = schema.row(LifeRow, _u64, _u64)
_HELLO = Shape(Hello, {
    "version": _u32, "connection": schema.one_of("client", "append", "liveness", "bulk"),
    "cluster": nullable(_uuid), "node": _node, "boot_epoch": _u64,
    "client_id": schema.text(TOPIC_NAME_MAX), "incarnation": _u64, "process": _u64,
    "nonce": nullable(_nonce), "after": nullable(_life)})
_CHALLENGE = Shape(Challenge, {"node": _node, "boot_epoch": _u64, "nonce": _nonce})
_PROOF = Shape(Proof, {"proof": _nonce})
_WELCOME = Shape(Welcome, {
    "version": _u32, "cluster": _uuid, "node": _node, "boot_epoch": _u64,
    "frame_bytes_max": _u32, "batch_bytes_max": _u32, "in_flight_max": _u32,
    "proof": nullable(_nonce)})
_REFUSED = Shape(Refused, {"code": _code, "text": _text, "versions": list_of(_u32, 100),
                            "proof": nullable(_nonce), "remembered": nullable(_life)})

# ---- values <-> header maps -------------------------------------------------------------------


def hello_header(hello: Hello) -> dict[str, Any]:
    """Header of the first frame."""
    fields = hello._asdict()
    fields["class"] = fields.pop("connection")
    for name in ("nonce", "after"):
        if fields[name] is None:
            del fields[name]
    return {"op": "hello", **fields}


def read_hello(header: dict[str, Any]) -> Hello:
    """The first frame's header -> ``Hello``; any version is read, the reader judges it.
    Raises ``Malformed``."""
    fields = dict(header)
    if fields.pop("op", None) != "hello":
        raise Malformed("the first frame is not a hello")
    if type(fields.get("version")) is int and fields["version"] not in VERSIONS_SUPPORTED:
        return Hello(version=fields["version"])  # its other fields may mean something else
    if "connection" in fields:
        raise Malformed("unknown field 'connection'")
    if "class" in fields:
        fields["connection"] = fields.pop("class")
    for name in ("version", "connection"):
        if name not in fields:
            raise Malformed(f"missing field {'class' if name == 'connection' else name!r}")
    return _HELLO.read(fields)


def welcome_header(welcome: Welcome) -> dict[str, Any]:
    """Header of the answer that accepts."""
    fields = welcome._asdict()
    if welcome.proof is None:
        del fields["proof"]
    return {"op": "welcome", **fields}


def challenge_header(challenge: Challenge) -> dict[str, Any]:
    """Header of the answer that wants a proof first."""
    return {"op": "challenge", **challenge._asdict()}


def proof_header(proof: Proof) -> dict[str, Any]:
    """Header of the answer to a challenge."""
    return {"op": "proof", **proof._asdict()}


def read_proof(header: dict[str, Any]) -> Proof:
    """What must follow a challenge.  Raises ``Malformed``."""
    fields = dict(header)
    if fields.pop("op", None) != "proof":
        raise Malformed("the answer to a challenge is no proof")
    return _PROOF.read(fields)


def read_answer(header: dict[str, Any]) -> Challenge | Welcome | Refused:
    """What a node may be answered to its hello.  Raises ``Malformed``."""
    if header.get("op") != "challenge":
        return read_welcome(header)
    fields = dict(header)
    del fields["op"]
    return _CHALLENGE.read(fields)


def refused_header(refused: Refused) -> dict[str, Any]:
    """Header of the answer that refuses; the connection is closed after it."""
    fields = refused._asdict()
    for name in ("proof", "remembered"):
        if fields[name] is None:
            del fields[name]
    return {"op": "refused", **fields}


def read_welcome(header: dict[str, Any]) -> Welcome | Refused:
    """The answer to a hello.  Raises ``Malformed``."""
    fields = dict(header)
    op = fields.pop("op", None)
    if op == "refused":
        return _REFUSED.read(fields)
    if op != "welcome":
        raise Malformed("the answer to a hello is neither a welcome nor a refusal")
    return _WELCOME.read(fields)


def refusal_of_version(hello: Hello) -> Refused | None:
    """The answer to a hello of a version that is not spoken here; None = it is."""
    if hello.version in VERSIONS_SUPPORTED:
        return None
    return Refused(Code.UNSUPPORTED, f"version {hello.version} is not supported")


def result_code(code: int) -> Code | int:
    """The ``Code`` of a number; the number itself when a newer node sent it."""
    try:
        return Code(code)
    except ValueError:
        return code
