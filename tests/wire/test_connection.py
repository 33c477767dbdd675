"""Connection state machine: a client and a server without sockets, and hostile bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.wire import PROTOCOL_VERSION
from multiraft.wire import members as g
from multiraft.wire import messages as m
from multiraft.wire import nodes as n
from multiraft.wire import placements as p
from multiraft.wire import plans as w
from multiraft.wire import pool as o
from multiraft.wire import settings as s
from multiraft.wire import sinks as k
from multiraft.wire import sizes as z
from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    BadRequest,
    Connection,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    Role,
    State,
    answer_to,
)
from multiraft.wire.description import MemberProgress
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    FrameTooLarge,
    LocalProtocolError,
    RemoteProtocolError,
)
from multiraft.wire.frames import WireLimits, encode_frame
from multiraft.wire.messages import Hello, Refused, Welcome
from multiraft.wire.rows import KeylessRecords

CLUSTER = bytes(16)
WELCOME = Welcome(CLUSTER, 3, 0, 1 << 20, 1 << 19, 8)


def events(connection: Connection, data: bytes, step: int | None = None) -> list:
    """Return all events that ``data`` causes, given in pieces."""
    found = []
    for at in range(0, len(data), step or len(data) or 1):
        connection.receive_data(data[at:at + (step or len(data))])
        while (event := connection.next_event()) not in (NEED_DATA, PAUSED):
            found.append(event)
    return found


class Pair:
    """A client and a server; ``ask`` and ``answer`` move events through both."""

    def __init__(self, step: int | None = None, limits: WireLimits = WireLimits()):
        self.client = Connection(Role.CLIENT, limits)
        self.server = Connection(Role.SERVER, limits)
        self.step = step

    def open(self) -> "Pair":
        assert self.ask(Hello()) == [Hello()]
        assert self.answer(WELCOME) == [WELCOME]
        return self

    def ask(self, event, payload=()) -> list:
        return events(self.server, b"".join(self.client.send(event, payload)), self.step)

    def answer(self, event, payload=()) -> list:
        return events(self.client, b"".join(self.server.send(event, payload)), self.step)


LIMITS = w.PlanLimits(1 << 20)
MOVES = (w.PlannedMove(1, w.REPLICA_CHANGE, 7, 1, 40, (1, 2, 3), (1, 2, 4), 4, 1 << 30, "DRAIN",
                       ()),
         w.PlannedMove(2, w.TOPIC_SWITCH, 1042, 0, 1, (7,), (9,), 0, 0, "OVERLOAD", (1,)))
NODE = n.NodeRow(4, 1 << 62, 3, "h:1", "h:2", "r1", 100, "0.1.0", 1_700_000_000_000)
EXCHANGES = [
    (m.Metadata(("a", "b")), m.MetadataReply(
        CLUSTER, (m.NodeAddress(1, "h:1", "r1"),),
        (m.TopicMetadata("a", bytes(16), 5, (m.PartitionMetadata(0, 9, 2, 1, 7, 0),)),), ("b",))),
    (m.Metadata(), m.MetadataReply(CLUSTER, ())),
    (m.ReportCorruption(9, 17), m.ReportCorruptionReply(True)),
    (m.ListOffsets((m.OffsetQuery(9, "timestamp", 1_700_000_000_000),), False),
     m.ListOffsetsReply((m.OffsetResult(9, 0, 40),))),
    (m.ListOffsets((m.OffsetQuery(9, "latest"),)),
     m.ListOffsetsReply((m.OffsetResult(9, Code.NOT_LEADER, -1, ErrorDetail("no", 2, "h:2")),))),
    (m.DeleteRecords((m.RecordDeletion(9, 5), m.RecordDeletion(10, -1)), 1000),
     m.DeleteRecordsReply((m.DeletionResult(9, Code.OK, 5), m.DeletionResult(
         10, Code.NOT_LEADER, -1, ErrorDetail("no", 2, "h:2"))))),
    (m.CreateTopic("a", 3, 0), m.CreateTopicReply(m.TopicMetadata("a", bytes(16), 5, ()))),
    (m.DeleteTopic("a"), m.DeleteTopicReply()),
    (m.AddPartitions("a", 4, 5, bytes(16), True),
     m.AddPartitionsReply(m.TopicMetadata("a", bytes(16), 5, ()))),
    (m.ListTopics("a", 5), m.ListTopicsReply((m.TopicSummary("b", bytes(16), 6, 2),), True)),
    (m.InitProducer(), m.InitProducerReply(77, 0)),
    (m.ClusterStatus(), m.ClusterStatusReply(
        CLUSTER, 1, (m.NodeSummary(1, "h:1", "h:2", "r", "up", 8, 3),), 8, 3, 1, 2, 4)),
    (m.ListGroups(), m.ListGroupsReply((m.GroupSummary(1, 1, 4, 2, (1, 2, 3), (4,)),))),
    (m.TransferLeadership(1, 2), m.TransferLeadershipReply(2, 5)),
    (g.GroupMembers(1, (1, 2), (4,), 7, False), g.GroupMembersReply(
        1, 1, 2, 2, 5, 4, 90, 88, 7, True, (1, 2), (4,), (1, 3),
        (g.MemberRow(1, "replicate", 90), g.MemberRow(4, "absent", 0)), "")),
    (g.RecoverGroup(1, 2, 3), g.RecoverGroupReply(3)),
    (m.NodeStatus(), m.NodeStatusReply(1, {"rounds": 5, "lanes": [{"bytes": 3}]})),
    (n.JoinCluster(NODE), n.JoinClusterReply(4, CLUSTER, 8, 3, (NODE,), (2,), 17)),
    (n.ListNodes(), n.ListNodesReply((n.NodeState(NODE, "up", 8, 3),), (2,))),
    (n.DescribeNode(4), n.DescribeNodeReply(n.NodeState(NODE, "down", 8, 3), (1, 2), (0,), ())),
    (n.RemoveNode(4), n.RemoveNodeReply()),
    (n.ScrubNode(4, 1 << 24), n.ScrubNodeReply(1 << 30, 1 << 24, 2)),
    (n.ControlCleaner(4, "resume", 1 << 24), n.ControlCleanerReply(False, 1 << 24)),
    (p.ExplainPlacement("a", 5, 10), p.ExplainPlacementReply(
        8, (p.PlacementRow(5, 77, 3, (p.EpochRow(1, 3, 0), p.EpochRow(2, 4, 100)), 3, 3),), True)),
    (p.PartitionReplicas(77), p.PartitionReplicasReply((p.ReplicaRow(3, True, 1, True, 100),))),
    (p.SwitchPartition(77, 3, 3), p.SwitchPartitionReply(3, 3)),
    (o.GrowPool(16, True), o.GrowPoolReply(8, 16, 3, (o.NewReplicas(1, "r", "up", 9, 8, 3),))),
    (k.BeginTransaction("sink", 7, bytes(16), (k.TopicEnds(9, (1, 0)),), 3, 1 << 63),
     k.BeginTransactionReply(1, 2, k.OPEN, (9,), 4)),
    (k.CommitTransaction(1, 2, 7, (k.Winner(3, 1),)), k.CommitTransactionReply()),
    (k.AbortTransaction(1, 2), k.AbortTransactionReply(True)),
    (k.ResolveTransactions((k.TransactionRef(1, 2), k.TransactionRef(3, 4)), False),
     k.ResolveTransactionsReply(9, (k.TransactionDescription(1, 2, k.OPEN, (), "s", 7, 1_000),
                           k.TransactionDescription(3, 4, k.UNOPENED, why="nobody says")))),
    (k.TransactionStates((k.TransactionRef(1, 2),)),
     k.TransactionStatesReply((k.TransactionState(1, 2, k.COMMITTED, (k.Winner(3, 1),)),))),
    (k.StagedTopics(), k.StagedTopicsReply(5, (k.TopicEnds(9, (1, 0)),))),
    (k.SinkList(1, 10), k.SinkListReply((k.SinkRow(2, "sink", -1, 0, 3, 7),), True)),
    (m.CreateTopic("a", 1, 0, bytes(16), (("retention.ms", "7"), ("segment.ms", "8"))),
     m.CreateTopicReply(m.TopicMetadata("a", bytes(16), 1, ()))),
    (s.AlterSettings("a", (s.SettingChange("retention.ms", "7"),
                           s.SettingChange("segment.ms", None)), 77, True),
     s.AlterSettingsReply()),
    (z.TopicSizes("a", 5), z.TopicSizesReply(
        (z.TopicSize("b", 77, 30, 1 << 40, 1, 3, 1 << 39), z.TopicSize("c", 9, 0, 0, 1, -1, 0)),
        "c", True)),
    (z.PartitionSizes("a", 1_000), z.PartitionSizesReply(
        (z.PartitionSize(1_000, 3, 9, 400), z.PartitionSize(1_001, -1, -1, -1)), False)),
    (s.DescribeSettings("a"), s.DescribeSettingsReply(77, (
        s.SettingRow("retention.ms", "7", "topic", "in effect", "long",
                     (s.SettingValue("7", "topic"), s.SettingValue("-1", "default"))),))),
    (o.PoolStatus(), o.PoolStatusReply(8, 16, 2, (15, 16), 64)),
    (w.ApplyPlan("ab" * 32, "cd" * 16, "all", 99, LIMITS, MOVES),
     w.ApplyPlanReply("ab" * 32, "running")),
    (w.ControlPlan("throttle", "ab" * 32, 1 << 20), w.ControlPlanReply("ab" * 32, "running")),
    (w.PlanStatus(), w.PlanStatusReply(
        "ab" * 32, "all", "paused", "NODE_DOWN: node 3 is down", 5, 9, LIMITS, 2, 1 << 30, 1 << 20,
        1 << 10, -1, (w.PhaseCount("learning", 1),),
        (w.MoveStatus(1, "replicas:g7", w.REPLICA_CHANGE, "learning", 0, 5, 1 << 30, 1 << 20,
                      "DRAIN", "node 4 lacks 9 bytes", (1, 2, 3), (1, 2, 4)),),
        (w.NodeTraffic(4, 1, 0),), "")),
    (w.SetNodeState(4, "draining"), w.SetNodeStateReply()),
    (w.PlacementFacts(), w.PlacementFactsReply(
        "cd" * 16, 17, 8, 3, 5, 2, (w.DesiredState(4, "draining"),), ((3, 2),), ((1, 2),), "")),
    (w.GroupLoads(3, 10), w.GroupLoadsReply(
        4, 99, 5, 10, (w.GroupLoad(3, 1, 40, False, (1, 2), (3,), 1 << 20, 77, 9, 5),), True)),
    (w.PartitionLoads((3, 4), 7), w.PartitionLoadsReply(
        (w.PartitionLoad(9, "a", 0, 3, 1, 0, 1000, 5),), True)),
    (m.GroupDescribe(3), m.GroupDescribeReply(
        1, 3, 1, "leader", 4, 1, 1, 1, 9, 8, 7, 7, -1, True, (1, 2), (3,), (1, 4), "", False, 2,
        10, 20, 30, (MemberProgress(2, "replicate", 5, 6, 4, 100, 200),))),
]


@pytest.mark.parametrize("step", [None, 1, 7])
@pytest.mark.parametrize("request_, reply", EXCHANGES, ids=lambda value: type(value).__name__)
def test_every_operation_survives_the_way_there_and_back(request_, reply, step):
    pair = Pair(step).open()
    asked = RequestEvent(1, request_, metadata_index=4)
    assert pair.ask(asked) == [asked]
    answered = ResponseEvent(1, reply, metadata_index=5)
    assert pair.answer(answered) == [answered]
    assert pair.client.in_flight == pair.server.in_flight == 0


def test_every_operation_is_covered_by_an_exchange():
    covered = {m.OPS[type(request)] for request, _ in EXCHANGES} | {"produce", "fetch"}
    assert covered == set(m.REQUESTS) == set(m.RESPONSES)


@pytest.mark.parametrize("step", [None, 1000])
def test_produce_and_fetch_carry_payloads(step):
    pair = Pair(step).open()
    batches = (m.BatchPart(9, 3), m.BatchPart(10, 40_000))
    (event,) = pair.ask(RequestEvent(1, m.Produce("commit", 1000, batches)),
                        [b"abc", bytes(40_000)])
    assert event.request.batches == batches
    assert event.request.payload == b"abc" + bytes(40_000)
    assert not event.request.payload.readonly, "a leader stamps in place"
    results = m.ProduceResult(0, 5), m.ProduceResult(1, -1)
    keyless = (KeylessRecords(1, (0, 2)),)
    [answer] = pair.answer(ResponseEvent(1, m.ProduceReply(results, (77, -1), keyless)))
    assert answer.reply == (results, (77, -1), keyless)
    pair.ask(RequestEvent(2, m.Fetch((m.FetchPart(9, 0, 100),))))
    reply = m.FetchReply((m.FetchResult(9, 0, 8, 0, 3),))
    (event,) = pair.answer(ResponseEvent(2, reply), [b"xyz"])
    assert event.reply.payload == b"xyz"


def test_a_reply_without_append_times_and_refused_records_has_no_field_for_them():
    reply = m.ProduceReply((m.ProduceResult(0, 5),))
    assert [*m.RESPONSES["produce"].header(reply)] == ["results"]


def test_responses_may_come_in_any_order():
    pair = Pair().open()
    for number in (1, 2, 3):
        pair.ask(RequestEvent(number, m.ClusterStatus() if number == 2 else m.DeleteTopic("x")))
    assert [pair.answer(ResponseEvent(number, m.DeleteTopicReply()))[0].id
            for number in (3, 1)] == [3, 1]
    assert pair.client.in_flight == 1


def test_an_unacknowledged_produce_is_not_in_flight():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.Produce("none", 1000, ())))
    assert pair.client.in_flight == pair.server.in_flight == 0
    with pytest.raises(LocalProtocolError):
        pair.server.send(ResponseEvent(1, m.ProduceReply(())))


def test_a_refused_request_carries_its_detail():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.CreateTopic("a")))
    detail = ErrorDetail("too many", limit=5, value=6)
    (event,) = pair.answer(ResponseEvent(1, code=Code.LIMIT_EXCEEDED, error=detail))
    assert (event.code, event.error, event.reply) == (Code.LIMIT_EXCEEDED, detail, None)


# ---- backpressure -----------------------------------------------------------------------------


def test_a_server_pauses_at_its_limit_and_goes_on_after_an_answer():
    pair = Pair(limits=WireLimits(in_flight_max=2)).open()
    got = [pair.ask(RequestEvent(number, m.DeleteTopic("x"))) for number in (1, 2, 3)]
    assert [len(found) for found in got] == [1, 1, 0]
    assert pair.server.next_event() is PAUSED
    pair.answer(ResponseEvent(1, m.DeleteTopicReply()))
    assert pair.server.next_event().id == 3


def test_requests_sent_with_the_hello_wait_for_the_welcome():
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    hello = b"".join(client.send(Hello()))
    early = b"".join(encode_frame({"id": 1, "op": "cluster_status"}))
    assert events(server, hello + early) == [Hello()]
    assert server.next_event() is PAUSED
    server.send(WELCOME)
    assert server.next_event() == RequestEvent(1, m.ClusterStatus())


# ---- handshake --------------------------------------------------------------------------------


def test_a_hello_of_another_version_is_readable_and_refused():
    server = Connection(Role.SERVER)
    (hello,) = events(server, b"".join(encode_frame({"op": "hello", "version": 9, "new": [1]})))
    refusal = m.refusal_of_version(hello)
    assert refusal.versions == m.VERSIONS_SUPPORTED == (2,)
    client = Connection(Role.CLIENT)
    client.send(Hello())
    assert events(client, b"".join(server.send(refusal))) == [refusal]
    assert server.state is client.state is State.CLOSED


def test_the_current_version_is_not_refused():
    assert m.refusal_of_version(Hello()) is None


@pytest.mark.parametrize("header", [
    {"op": "hello"}, {"op": "hello", "version": PROTOCOL_VERSION},
    {"op": "nope", "version": PROTOCOL_VERSION},
    {"op": "hello", "version": "1", "class": "client"},
    {"op": "hello", "version": PROTOCOL_VERSION, "class": "king"},
    {"op": "hello", "version": PROTOCOL_VERSION, "class": "client", "cluster": b"short"},
    {"op": "hello", "version": PROTOCOL_VERSION, "class": "client", "surprise": 1},
    {"op": "hello", "version": PROTOCOL_VERSION, "connection": "client"},
    {"id": 1, "op": "metadata"}, {},
])
def test_anything_but_a_hello_first_ends_the_connection(header):
    server = Connection(Role.SERVER)
    with pytest.raises(RemoteProtocolError):
        events(server, b"".join(encode_frame(header)))
    assert server.state is State.BROKEN
    with pytest.raises(RemoteProtocolError):
        server.next_event()


def test_the_first_frame_has_a_small_limit():
    with pytest.raises(FrameTooLarge) as caught:
        events(Connection(Role.SERVER), (5000).to_bytes(4, "big"))
    assert caught.value.limit == 4096


def test_a_welcome_nobody_asked_for_ends_the_connection():
    client = Connection(Role.CLIENT)
    with pytest.raises(RemoteProtocolError):
        events(client, b"".join(encode_frame(m.welcome_header(WELCOME))))


def test_payload_in_the_handshake_ends_the_connection():
    with pytest.raises(RemoteProtocolError, match="payload"):
        events(Connection(Role.SERVER), b"".join(encode_frame(m.hello_header(Hello()), [b"x"])))


# ---- bad requests that are answered -----------------------------------------------------------

BAD_FIELDS = [
    ("metadata", {"topics": "a"}), ("metadata", {"topics": [1]}),
    ("metadata", {"topics": ["x"] * 1001}),
    ("produce", {"acks": "all", "timeout_ms": 1, "batches": []}),
    ("produce", {"acks": "commit", "timeout_ms": 0, "batches": []}),
    ("produce", {"acks": "commit", "timeout_ms": 1}),
    ("produce", {"acks": "commit", "timeout_ms": 1, "batches": [[1]]}),
    ("produce", {"acks": "commit", "timeout_ms": 1, "batches": [[1, -1]]}),
    ("produce", {"acks": "commit", "timeout_ms": 1, "batches": [[1, 10]]}),
    ("produce", {"acks": "commit", "timeout_ms": True, "batches": []}),
    ("fetch", {"partitions": [[1, -1, 5]]}), ("fetch", {"partitions": [[1, 2**63, 5]]}),
    ("fetch", {"partitions": [[2**64 - 1, 0, 2**40]]}), ("fetch", {"partitions": {}}),
    ("fetch", {"partitions": [], "wait_max_ms": 60_001}), ("fetch", {"partitions": [], "x": 1}),
    ("list_offsets", {"partitions": [[1, "middle"]]}),
    ("create_topic", {"name": "a", "partitions": 0}), ("create_topic", {"name": b"a"}),
    ("create_topic", {}), ("delete_topic", {"name": None}),
    ("list_topics", {"count_max": 0}), ("init_producer", {"producer_id": -2}),
    ("transfer_leadership", {"group": -1}), ("cluster_status", {"extra": 1}),
    ("metadata", {"metadata_index": -1}), ("metadata", {"metadata_index": "new"}),
]


@pytest.mark.parametrize("op, fields", BAD_FIELDS)
def test_a_malformed_request_is_answered_and_the_connection_lives(op, fields):
    pair = Pair().open()
    (bad,) = events(pair.server, b"".join(encode_frame({"id": 5, "op": op, **fields})))
    assert isinstance(bad, BadRequest)
    assert (bad.id, bad.code) == (5, Code.INVALID_REQUEST)
    pair.client._in_flight[5] = op
    (response,) = pair.answer(answer_to(bad))
    assert response.code == Code.INVALID_REQUEST and response.error.text
    assert pair.ask(RequestEvent(6, m.ClusterStatus()))


@pytest.mark.parametrize("op", ["nope", "", None, 5, ["metadata"], "hello"])
def test_an_unknown_operation_is_unsupported_and_the_connection_lives(op):
    pair = Pair().open()
    (bad,) = events(pair.server, b"".join(encode_frame({"id": 5, "op": op})))
    assert bad.code == Code.UNSUPPORTED
    pair.server.send(answer_to(bad))
    assert pair.ask(RequestEvent(6, m.ClusterStatus()))


def test_payload_of_an_operation_without_one_is_a_bad_request():
    pair = Pair().open()
    (bad,) = events(pair.server, b"".join(encode_frame({"id": 5, "op": "metadata"}, [b"junk"])))
    assert bad.code == Code.INVALID_REQUEST


def test_an_error_text_does_not_repeat_a_hostile_value_at_length():
    pair = Pair().open()
    (bad,) = events(pair.server, b"".join(encode_frame(
        {"id": 5, "op": "create_topic", "name": "x" * 100_000})))
    assert len(bad.error.text) < 300


@pytest.mark.parametrize("number", [None, -1, "1", True, [1]])
def test_a_request_without_a_usable_id_ends_the_connection(number):
    pair = Pair().open()
    with pytest.raises(RemoteProtocolError):
        events(pair.server, b"".join(encode_frame({"id": number, "op": "metadata"})))


def test_an_id_that_is_in_flight_ends_the_connection():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.ClusterStatus()))
    with pytest.raises(RemoteProtocolError, match="in flight"):
        events(pair.server, b"".join(encode_frame({"id": 1, "op": "metadata"})))


# ---- bad responses ----------------------------------------------------------------------------


@pytest.mark.parametrize("header", [
    {"id": 2, "code": 0}, {"id": 1}, {"id": 1, "code": 0}, {"id": 1, "code": -1},
    {"id": 1, "code": 0, "results": [[0, -2, None]]}, {"id": 1, "code": 5, "error": [1]},
    {"id": 1, "code": 0, "results": [], "more": 1}, {"code": 0},
])
def test_a_response_that_is_not_one_ends_the_connection(header):
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.Produce("commit", 1, ())))
    with pytest.raises(RemoteProtocolError):
        events(pair.client, b"".join(encode_frame(header)))


def test_an_unknown_code_is_kept_as_a_number():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.ClusterStatus()))
    (event,) = events(pair.client, b"".join(encode_frame({"id": 1, "code": 999})))
    assert event.code == 999


# ---- events that may not be sent ----------------------------------------------------------------


def test_events_out_of_turn_are_refused_locally():
    client, server = Connection(Role.CLIENT), Connection(Role.SERVER)
    with pytest.raises(LocalProtocolError):
        client.send(RequestEvent(1, m.ClusterStatus()))
    with pytest.raises(LocalProtocolError):
        server.send(WELCOME)
    with pytest.raises(LocalProtocolError):
        client.send(Refused(1, "no"))


def test_a_second_answer_and_a_wrong_answer_are_refused_locally():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.ClusterStatus()))
    with pytest.raises(LocalProtocolError, match="does not answer"):
        pair.server.send(ResponseEvent(1, m.DeleteTopicReply()))
    pair.server.send(ResponseEvent(1, code=Code.QUEUE_FULL))
    with pytest.raises(LocalProtocolError, match="answered twice"):
        pair.server.send(ResponseEvent(1, code=Code.QUEUE_FULL))


def test_a_frame_the_other_side_does_not_accept_is_refused_locally_and_changes_nothing():
    pair = Pair().open()
    big = m.Produce("commit", 1, (m.BatchPart(1, 1 << 20),))
    with pytest.raises(LocalProtocolError, match="limit"):
        pair.client.send(RequestEvent(1, big), [bytes(1 << 20)])
    assert pair.client.in_flight == 0
    assert pair.ask(RequestEvent(1, m.ClusterStatus()))


def test_a_payload_that_is_not_what_the_header_names_is_refused_locally():
    pair = Pair().open()
    with pytest.raises(LocalProtocolError, match="payload"):
        pair.client.send(RequestEvent(1, m.Produce("commit", 1, (m.BatchPart(1, 5),))), [b"abc"])


# ---- the end ----------------------------------------------------------------------------------


def test_the_end_of_the_stream_between_frames_is_an_event():
    pair = Pair().open()
    pair.server.receive_eof()
    assert pair.server.next_event() == ConnectionClosed()
    assert pair.server.state is State.CLOSED


def test_what_is_in_flight_at_the_end_of_the_stream_may_be_answered_once():
    pair = Pair().open()
    pair.ask(RequestEvent(1, m.ClusterStatus()))
    pair.ask(RequestEvent(2, m.DeleteTopic("a")))
    pair.server.receive_eof()
    assert pair.server.next_event() == ConnectionClosed()
    answer = ResponseEvent(2, m.DeleteTopicReply())
    assert pair.answer(answer) == [answer]
    assert pair.server.state is State.CLOSED
    assert pair.server.in_flight == 1
    with pytest.raises(LocalProtocolError, match="not in flight"):
        pair.server.send(answer)


def test_the_end_of_the_stream_inside_a_frame_is_a_protocol_error():
    pair = Pair().open()
    data = b"".join(pair.client.send(RequestEvent(1, m.ClusterStatus())))
    pair.server.receive_data(data[:-1])
    assert pair.server.next_event() is NEED_DATA
    pair.server.receive_data(b"")
    with pytest.raises(RemoteProtocolError, match="inside a frame"):
        pair.server.next_event()


@given(st.binary(max_size=400))
def test_arbitrary_bytes_after_the_handshake_are_events_or_a_protocol_error(data):
    for end in ("server", "client"):
        pair = Pair().open()
        try:
            events(getattr(pair, end), data)
        except RemoteProtocolError:
            pass


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=6)
    | st.binary(max_size=20), lambda inner: st.lists(inner, max_size=4), max_leaves=8)


@given(st.sampled_from(sorted(m.REQUESTS)), st.data())
def test_requests_with_arbitrary_plain_values_are_read_or_answered(op, data):
    names = [*m.REQUESTS[op].names, "other"]
    fields = data.draw(st.dictionaries(st.sampled_from(names), values))
    pair = Pair().open()
    (event,) = events(pair.server, b"".join(encode_frame({"id": 1, "op": op, **fields})))
    assert isinstance(event, (RequestEvent, BadRequest))


@given(st.sampled_from(sorted(m.RESPONSES)), st.data())
def test_responses_with_arbitrary_plain_values_are_read_or_a_protocol_error(op, data):
    names = [*m.RESPONSES[op].names, "error", "code"]
    fields = data.draw(st.dictionaries(st.sampled_from(names), values))
    pair = Pair().open()
    pair.client._in_flight[1] = op
    try:
        events(pair.client, b"".join(encode_frame({"code": 0, **fields, "id": 1})))
    except RemoteProtocolError:
        pass
