"""Well-formed seed inputs of each decoder: golden bytes, and small values that the encoders of the
product have encoded."""

from __future__ import annotations

import functools
from pathlib import Path

import cbor2

from chaos.history import Event, HistoryWriter
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core
from multiraft.compression import CODECS, compress
from multiraft.liveness.leadership_digest import BUCKETS
from multiraft.liveness.peer_identity import BootId
from multiraft.partitions.producer_state import BATCHES_PER_WINDOW, export_windows, extended
from multiraft.partitions.records import open_payload, seal_payload
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    Compaction,
    LogStart,
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
)
from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum, messages
from multiraft.raft.replica_records import ForcedRecovery, Tombstone, reincarnation, tombstone
from multiraft.storage import identity, refusal_record
from multiraft.storage.block_index import file_codec
from multiraft.storage.block_index.blocks import BLOCK_BYTES
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_segment import ColdHeader, cold_path
from multiraft.storage.journal.journal import SegmentHeader
from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.storage.snapshot_download import PARTIAL_FILE, PartialSnapshot, SnapshotDownload
from multiraft.types import BatchInfo, Configuration, HardState
from multiraft.wire import messages as wire
from multiraft.wire import nodes, placements, sinks
from multiraft.wire import plans as wire_plans
from multiraft.wire import settings as wire_settings
from multiraft.wire.connection import Connection, RequestEvent, Role
from multiraft.wire.frames import encode_frame
from multiraft.wire.settings import SettingChange
from node.cluster import peer_requests
from node.compaction import generation_reports
from node.metadata.commands import (
    AllocateProducerIds,
    CreateTopic,
    DecideSwitch,
    NodeRecord,
    PublishSwitch,
    RecordMembers,
    RegisterNode,
    TrimEpochHistory,
    encode_command,
    plan_bootstrap,
)
from node.metadata.setting_commands import AlterSettings
from node.metadata.state_machine import MetadataState
from node.peers import codec as peer_codec
from node.peers import registry
from node.replicas import log_start_propagation, snapshots
from node.retention import retention_task
from placement import cluster, plan
from placement.cluster import NodeRow
from placement.planner import make_plan
from placement.policy import LEADERS, Options
from tests.placement.clusters import STRICT, grown, only
from tests.placement.clusters import cluster as placed_cluster
from tests.placement.clusters import nodes as placement_nodes
from tests.storage import index_version_5
from tests.storage.cold.files import DIRECTORY as COLD_DIRECTORY
from tests.storage.cold.files import cold_file, some_entries
from tests.storage.damage import DIRECTORY, small_journal
from tests.storage.world import (
    VOTERS,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
)

GOLDEN = Path(__file__).parents[1] / "codec" / "golden"
IMAGE_INDEX = 17
NODES = tuple(NodeRecord(number, 70 + number, 1, f"127.0.0.1:910{number}",
                         f"127.0.0.1:920{number}", "rack", 100, "0.1.0", 0,
                         "127.0.0.1:9403" if number == 3 else "")
              for number in (1, 2, 3))

#: One request of each kind that a client sends, as (event, payload).
REQUESTS = (
    (RequestEvent(1, wire.Metadata(("t",))),),
    (RequestEvent(2, wire.Produce("commit", 1_000, (wire.BatchPart(5, 3),))), (b"abc",)),
    (RequestEvent(3, wire.Fetch((wire.FetchPart(5, 0, 1_000),))),),
    (RequestEvent(4, wire.ListOffsets((wire.OffsetQuery(5, wire.LATEST),))),),
    (RequestEvent(5, wire.CreateTopic("t", 3)),),
    (RequestEvent(6, wire.ListTopics()),),
    (RequestEvent(7, wire.InitProducer()),),
    (RequestEvent(8, wire.ClusterStatus()),),
    (RequestEvent(9, wire.ListGroups()),),
    (RequestEvent(10, wire.NodeStatus()),),
    (RequestEvent(11, wire.DeleteRecords((wire.RecordDeletion(5, 40), wire.RecordDeletion(6, -1)),
                                         1_000)),),
    (RequestEvent(12, wire.CreateTopic("t", 3, settings=(("retention.records", "7"),))),),
    (RequestEvent(13, wire_settings.AlterSettings(
        "t", (SettingChange("retention.ms", "60000"), SettingChange("retention.bytes", None)))),),
    (RequestEvent(14, wire_settings.DescribeSettings("t")),),
)

#: The answer to a question about settings, without its code.
_SETTINGS = {"incarnation": 5, "settings": [
    ["retention.ms", "60000", "topic", "in effect", "long",
     [["60000", "topic"], ["-1", "default"]]]]}
#: The node that sends requests on bulk connections.
ASKING = 2
_ROWS = tuple(nodes.NodeRow(*node) for node in NODES)
_JOINED = nodes.JoinClusterReply(1, bytes(16), 8, 3, _ROWS, (9,), 5)


def golden(name: str) -> bytes:
    """Return the bytes of a golden file: hex digits, ``#`` starts a comment."""
    lines = (GOLDEN / name).read_text().splitlines()
    return bytes.fromhex("".join(line.partition("#")[0] for line in lines))


def frame(header: dict, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return b"".join(encode_frame(header, [payload]))


# ---- the wire ------------------------------------------------------------------------------------


def streams() -> list[bytes]:
    """Return streams of frames, each after the byte that says how the stream is cut."""
    small, large = frame({"a": 1}, b"xyz"), frame({"b": [None, True, b"x"]}, bytes(3_000))
    return [b"\x03" + small + small, b"\x00" + large + small, b"\x0f" + small[:-1]]


def headers() -> list[bytes]:
    """Return CBOR maps with each kind of value."""
    return [cbor2.dumps(value) for value in (
        {}, {"id": 1, "op": "metadata", "topics": ["t"]},
        {"a": -1, "b": (1 << 64) - 1, "c": -(1 << 63), "d": b"\x00" * 30, "e": "ä" * 30,
         "f": [True, False, None, [], {}], "g": {"h": {"i": [1, [2, [3]]]}}})]


def client_streams() -> list[bytes]:
    """Return streams of a client: a Hello, and each request alone after one."""
    found = []
    for request in REQUESTS:
        connection = Connection(Role.CLIENT)
        hello = b"".join(connection.send(wire.Hello(client_id="fuzz")))
        connection.receive_data(frame(wire.welcome_header(wire.Welcome(bytes(16), 1, 1))))
        connection.next_event()
        found.append(hello + b"".join(bytes(each) for each in connection.send(*request)))
    return found


def server_streams() -> list[bytes]:
    """Return streams of a node: a Welcome and the answer to each of ``REQUESTS``."""
    welcome = frame(wire.welcome_header(wire.Welcome(bytes(16), 1, 1)))
    answers = [{"id": 1, "code": 0, "cluster": bytes(16), "nodes": [[1, "a:1", "r"]],
                "topics": [["t", bytes(16), 5, [[0, 5, 1, 1, 0, 3]]]], "missing": ["u"],
                "groups": [[1, [1, 2, 3]]]},
               {"id": 2, "code": 0, "results": [[0, 7, None]]},
               {"id": 4, "code": 0, "results": [[5, 0, 7, -1, None]]},
               {"id": 6, "code": 0, "topics": [["t", bytes(16), 5, 1]], "more": False},
               {"id": 11, "code": 0, "results": [[5, 0, 40, None], [6, 3, -1, None]]},
               {"id": 13, "code": 0}, {"id": 14, "code": 0, **_SETTINGS},
               {"id": 9, "code": 0, "groups": [[1, 1, 3, 1, [1, 2, 3], []]], "more": False},
               {"id": 8, "code": 7, "error": ["no", 1, "a:1", -1, -1, -1, -1]}]
    return [welcome + frame(answer) for answer in answers] + [
        frame(wire.refused_header(wire.Refused(3, "no"))),
        welcome + frame({"id": 3, "code": 0, "results": [[5, 0, 0, 1, 3, None]]}, b"abc")]


def message_headers() -> list[bytes]:
    """Return the fields of requests and of answers, with their operation."""
    found = [cbor2.dumps({"op": wire.OPS[type(event.request)],
                          **wire.REQUESTS[wire.OPS[type(event.request)]].header(event.request)})
             for event, *_payload in REQUESTS]
    answers = {"metadata": {"cluster": bytes(16), "nodes": [[1, "a:1", "r"]], "missing": [],
                            "topics": [["t", bytes(16), 5, [[0, 5, 1, 1, 0, 3]]]],
                            "groups": [[1, [1, 2]]]},
               "list_offsets": {"results": [[5, 0, 7, -1, None]]},
               "delete_records": {"results": [[5, 0, 40, None], [6, 3, -1, None]]},
               "describe_settings": _SETTINGS,
               "list_groups": {"groups": [[1, 1, 3, 1, [1, 2, 3], []]], "more": False}}
    return found + [cbor2.dumps({"op": op, **fields}) for op, fields in answers.items()]


def peer_frames() -> list[bytes]:
    """Return a frame with each type of message, and one with entries."""
    head = (1, 1, 3)
    said = [
        messages.VoteRequest(*head, 5, 2, True, False),
        messages.VoteReply(*head, True, False),
        messages.AppendReply(*head, 0, 5, 4, 3, 2, 1),
        messages.TimeoutNow(*head),
        messages.DigestQuery((1,) * BUCKETS),
        messages.DigestAnswer((1, 2), ((1, 1, 3),)),
        messages.LeadershipDeltaRequest(5),
        messages.LeadershipDelta(1, 2, ((1, 1, 3, True),)),
        messages.Removed(*head, 5, 6),
        messages.HeadRecoveryRequest(*head, 5),
        messages.HeadRecoveryGrant(*head, 5, 6),
        messages.SnapshotOffer(*head, 5, 6),
    ]
    payload = b"".join(map(bytes, core.frame_entries([noop_entry(1, 6, 3)], 0, 0)[0]))
    append = messages.Append(*head, 5, 2, 6, 4, (), 0)
    return [with_length({"i": [peer_codec.encode(each, 0) for each in said]}),
            with_length({"i": [peer_codec.encode(append, len(payload))]}, payload)]


def with_length(header: dict, payload: bytes = b"") -> bytes:
    """Return a header after its length in two bytes, and the payload."""
    encoded = cbor2.dumps(header)
    return len(encoded).to_bytes(2, "big") + encoded + payload


def handshakes() -> list[bytes]:
    """Return first frames from both sides."""
    return [cbor2.dumps(header) for header in (
        wire.hello_header(wire.Hello("append", bytes(16), 2, 5, "c", 7, 8, nonce=bytes(32))),
        wire.hello_header(wire.Hello("append", bytes(16), 2, 5, "c", 7, 1 << 63,
                                     after=wire.BootIdRow(4, 1 << 63))),
        wire.refused_header(wire.Refused(46, "no", remembered=wire.BootIdRow(4, 1 << 63))),
        wire.welcome_header(wire.Welcome(bytes(16), 1, 1, proof=bytes(32))),
        wire.challenge_header(wire.Challenge(1, 1, bytes(32))),
        wire.proof_header(wire.Proof(bytes(32))),
        wire.refused_header(wire.Refused(3, "no")))]


def liveness_headers() -> list[bytes]:
    """Return a heartbeat that has a response."""
    return [cbor2.dumps({"heartbeat": [1, 2, 3, 4], "response": [1, 2, 3, 0],
                         "clock_ms": 1_700_000_000_000, "stopping": 1})]


def repair_frames() -> list[bytes]:
    """Return a repair request, and an answer with an entry."""
    payload = b"".join(map(bytes, core.frame_entries([noop_entry(1, 1, 1)], 0, 0)[0]))
    return [with_length({"op": "repair", "group": 1, "incarnation": 1, "wanted": [[1, 1]],
                         "term": 1}),
            with_length({"op": "repair", "known": True, "leads": True, "absent": [[2, 1]],
                         "compacted": [[1, 1]]},
                        payload)]


@functools.cache
def peer_questions() -> dict[str, tuple]:
    """Return all requests between nodes: op -> request and answer."""
    window = carried_windows()[0]
    looked = wire_plans.ProbedGroup(1, 1, 17, True, (1, 2, 3), (4,), (), 90, 1 << 20, 0,
                               (wire_plans.ProbedMember(2, "replicate", 90, 0),))
    topic = wire.TopicMetadata("t", bytes(16), 7, (wire.PartitionMetadata(0, 7, 1, 1, 5, 1),))
    pairs = (
        (wire_settings.AlterSettings("t", (SettingChange("retention.ms", "9"),
                                           SettingChange("retention.bytes", None)), 7, True),
         wire_settings.AlterSettingsReply()),
        (wire.CreateTopic("t", 1, 0, bytes(16), (("retention.ms", "9"),)),
         wire.CreateTopicReply(topic)),
        (wire.AddPartitions("t", 3, 7, bytes(16), True), wire.AddPartitionsReply(topic)),
        (wire.DeleteTopic("t", 7), wire.DeleteTopicReply()),
        (wire.InitProducer(3, 4), wire.InitProducerReply(3, 5)),
        (nodes.RegisterNode(_ROWS[ASKING - 1]), _JOINED),
        (nodes.KnownNodes(), nodes.KnownNodesReply(_ROWS, (9,), 5)),
        (nodes.ReportMembers(3, 1, 17, (1, 2), (3,)), nodes.ReportMembersReply()),
        (
            placements.OpenPartition(7, 2, 1, 40, False, 900, 3, 5, window),
            placements.OpenPartitionReply(),
        ),
        (placements.PublishSwitch(7, 2, 900, 5), placements.PublishSwitchReply()),
        (placements.TrimEpochHistory(7, 4), placements.TrimEpochHistoryReply()),
        (
            wire_plans.ProbeGroups((1, 2)),
            wire_plans.ProbeGroupsReply((looked,), 5, 9, False, 0, -1),
        ),
        (
            wire_plans.StartReplicaChange(1, (1, 2, 3), (4,), 17),
            wire_plans.StartReplicaChangeReply(),
        ),
        (wire_plans.StartLeaderTransfer(1, 2), wire_plans.StartLeaderTransferReply()),
        (
            sinks.ResolveTransactions((sinks.TransactionRef(1, 2),), False),
            sinks.ResolveTransactionsReply(
                9, (sinks.TransactionDescription(1, 2, sinks.UNOPENED, (), "s", why="nobody says"),)
            ),
        ),
    )
    found = {peer_requests.OPS[type(asked)]: (asked, reply) for asked, reply in pairs}
    assert found.keys() == peer_requests.REQUESTS.keys()
    return found


def bulk_requests() -> list[bytes]:
    """Return streams with each request alone, and with all of them."""
    found = [frame({"op": op, **asked._asdict()})
             for op, (asked, _reply) in peer_questions().items()]
    found += [frame({"op": "snapshot", "group": 0, "index": 7, "offset": 2}),
              frame({"op": "repair", "group": 1, "incarnation": 1, "wanted": [[1, 1], [4, 3]],
                     "term": 1}),
              frame({"op": "append_loads", "incarnation": 1}, batches()[0]),
              frame({"op": log_start_propagation.OP, "partitions": [100, 7]}),
              frame({"op": generation_reports.OPERATION, "group": 1, "partitions": [100, 7]}),
              frame({"op": retention_task.OP, "group": 1, "partition": 100, "epoch": 1,
                     "end_offset": 2, "log_start": 0, "before_ms": 1_700_000_000_000})]
    return [*found, b"".join(found)]


def peer_answers() -> list[bytes]:
    """Return an answer to each request, with its operation, and a refusal."""
    said = {op: {"code": 0, **reply._asdict()} for op, (_asked, reply) in peer_questions().items()}
    said["trim_epoch_history"] = {"code": 1, "text": "not the leader", "leader": 3}
    return [cbor2.dumps({"op": op, **fields}) for op, fields in said.items()]


def image_pieces() -> list[bytes]:
    """Return an image in three pieces, the first two of them, and the answer without an image."""
    image = bytes(range(100))
    pieces = [frame({"op": snapshots.OPERATION, "known": True, "index": 7, "term": 3, "total": 100,
                     "crc": core.crc32c(image), "offset": at}, image[at:at + 40])
              for at in (0, 40, 80)]
    return [b"".join(pieces), b"".join(pieces[:2]),
            pieces[0] + frame({"op": snapshots.OPERATION, "known": False})]


def images() -> list[bytes]:
    """Return snapshots of the metadata group: of an empty state, and of one with nodes and
    topics."""
    state = MetadataState()
    for index, command in enumerate(_commands(), IMAGE_INDEX - len(_commands()) + 1):
        state.apply(index, command)
    tail = PartitionStates(0, IMAGE_INDEX)
    empty = MetadataState()
    return [cbor2.dumps([1, [[1, 2, 3], [4], []], tail.snapshot(), each.snapshot()])
            for each in (state, empty)]


def partial_images() -> list[bytes]:
    """Return two chunks of an image, as a file."""
    disk = SimulatedFilesystem()
    disk.make_directory("/node")
    kept = SnapshotDownload(disk, "/node", 1 << 20)
    kept.begin(PartialSnapshot(7, 1, 30, 5, bytearray(b"ten bytes.")))
    kept.append(b"ten others")
    return [disk.open(f"/node/{PARTIAL_FILE}").read(1 << 10, 0)]


def _commands() -> list:
    return [plan_bootstrap(bytes(16), NODES, 2, 3, 1), RegisterNode(NODES[0]),
            CreateTopic("t", bytes(range(16)), 2), AllocateProducerIds(10),
            RecordMembers(1, 1, 5, (1, 2, 3)), DecideSwitch(1, 2, 1), DecideSwitch(1, 2, 2),
            PublishSwitch(1, 2, 5, 3), DecideSwitch(2, 2, 1), DecideSwitch(2, 2, 2),
            TrimEpochHistory(1, 4), CreateTopic("u", bytes(16), 1, (("retention.ms", "7"),)),
            AlterSettings("u", bytes(16), (SettingChange("retention.ms", None),
                                           SettingChange("segment.ms", "8"))),
            AlterSettings("", bytes(16), (SettingChange("max.message.bytes", "500"),), 0)]


def commands() -> list[bytes]:
    """Return payloads of metadata entries."""
    return [encode_command(command) for command in _commands()]


# ---- entries and batches -------------------------------------------------------------------------


def batches() -> list[bytes]:
    """Return the golden batches, and one of an idempotent producer with keys and headers."""
    builder = core.BatchBuilder(1 << 16)
    for number in range(3):
        builder.append(1_700_000_000_000 + number, b"key", b"value" * number, [("h", None)])
    return [golden("batch_plain.hex"), golden("batch_gzip.hex"), bytes(builder.build(5, 1, 7))]


def compressed_batches() -> list[bytes]:
    """Return a batch of each codec."""
    builder = core.BatchBuilder(1 << 16)
    for number in range(20):
        builder.append(1_700_000_000_000, None, b"value %d" % number)
    found = [golden("batch_gzip.hex")]
    for codec in CODECS.values():
        block = compress(codec, builder.records_block()) if codec else None
        found.append(bytes(builder.build(codec=codec, block=block)))
    return found


def entries() -> list[bytes]:
    """Return the golden entries, and those of a small journal."""
    ours = [noop_entry(1, 1, 1), open_entry(1, 2, 1, 100),
            data_entry(1, 3, 1, 100, 0, [b"one", b"two"])]
    return [golden("entries.hex"), b"".join(map(bytes, core.frame_entries(ours, 0, 0)[0]))]


def payloads() -> list[bytes]:
    """Return payloads of a configuration, a tombstone, a forced recovery, partition opens without
    and with earlier state, a partition seal, and the entries that decide retention."""
    left = Tombstone(HardState(3, 1), 9, 1)
    reborn = ForcedRecovery(2, VOTERS)
    return [joint_quorum.encode(Configuration((1, 2, 3), (4,), (1, 2))),
            bytes(tombstone(1, 1, left).payload), bytes(reincarnation(1, 1, 5, reborn).payload),
            open_payload(1), open_payload(3, 900, 7, 40, carried_windows()[0]), seal_payload(2),
            clock_payload(0, 1_700_000_000_000),
            log_starts_payload([LogStart(7, 40, 900), LogStart(8, 3, UNKNOWN_BYTES)]),
            delete_payload(12, [7, 8]), compact_payload(Compaction(2, 40, 30)),
            expire_payload(17)]


def carried_windows() -> list[bytes]:
    """Return producer state of two producers, one of which has five batches, and of one."""
    windows = {producer: functools.reduce(
        lambda window, number: extended(window, BatchInfo(10, producer, 1, 10 * number, 0, 0),
                                        10 * number, 5 + number), range(batches), None)
        for producer, batches in ((7, 1), (8, BATCHES_PER_WINDOW))}
    return [export_windows(windows), export_windows({7: windows[7]})]


# ---- files ---------------------------------------------------------------------------------------


@functools.cache
def directory() -> dict[str, bytes]:
    """Return path -> bytes of a small data directory with a segment and a checkpoint."""
    disk, _model, _before_last = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store, {1: 3, 2: 3})
    store.close()
    return disk.files()


def segments() -> list[bytes]:
    """Return the segments of that directory."""
    return [data for path, data in sorted(directory().items()) if path.endswith(".segment")]


def checkpoint_files() -> list[bytes]:
    """Return its checkpoint, as a file."""
    return [data for path, data in sorted(directory().items()) if "/checkpoint-" in path]


def checkpoints() -> list[bytes]:
    """Return the body of its checkpoint, and of one of a log with records below its Raft start."""
    return [data[24:-4] for data in (*checkpoint_files(), compacted_checkpoint())]


@functools.cache
def compacted_checkpoint() -> bytes:
    """Return a checkpoint of the same logs with one Raft start raised, as a file."""
    disk, _model, _before_last = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    states = store.partition_states[1]
    states.apply(states.last_index)
    log = store.table.logs[1]
    log.compact(log.index.last_index, states)
    assert log.records
    checkpoint(store, {1: states.applied_index})
    store.close()
    return max((path, data) for path, data in disk.files().items() if "/checkpoint-" in path)[1]


def indexes() -> list[bytes]:
    """Return the bodies that the index files of its segments would have."""
    return [index_version_5.body(scan_segment(data, 0, SegmentHeader.parse(data).seed, {}).index)
            for data in segments()]


def block_indexes() -> list[bytes]:
    """Return the parts of index files in blocks, as ``block_index_file`` joins them."""
    found = []
    for data in segments():
        index = scan_segment(data, 0, SegmentHeader.parse(data).seed, {}).index
        head, *blocks, summary = file_codec.encode(index, bytes(16), 0)
        parts = [head[12:88], *[block.rstrip(b"\0") for block in blocks], summary]
        found.append(b"".join(len(part).to_bytes(2, "little") + part for part in parts))
    return found


def _parts_of(data: bytes) -> list[bytes]:
    """Return the parts of an index file: each stands behind its length of 16 bits."""
    parts, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at:at + 2], "little")
        parts.append(data[at + 2:at + 2 + length])
        at += 2 + length
    return parts


def block_index_file(data: bytes) -> bytes:
    """Return an index file in blocks with right checksums, from the fields of its header, its
    blocks and its summary: each a length of 16 bits and the bytes without zeros at the end."""
    fields, *blocks = _parts_of(data) or [b""]
    fields = fields[:76].ljust(76, b"\0")
    summary = blocks.pop() if blocks else b""

    # The seed of the segment, which stands behind its start in the header, comes before it.
    identity = fields[:20] + fields[28:32] + fields[20:28]

    def crc_of(block: int, part: bytes) -> bytes:
        of_segment = core.crc32c(identity + block.to_bytes(4, "little"))
        return core.crc32c(part, of_segment).to_bytes(4, "little")

    head = (file_codec.INDEX_MAGIC + file_codec.BLOCK_INDEX_VERSION.to_bytes(4, "little") + fields
            + len(summary).to_bytes(8, "little") + crc_of(0, summary)).ljust(BLOCK_BYTES - 4, b"\0")
    bodies = [block[4:BLOCK_BYTES].ljust(BLOCK_BYTES - 4, b"\0") for block in blocks]
    return b"".join([head, core.crc32c(head).to_bytes(4, "little"),
                     *[crc_of(number, body) + body for number, body in enumerate(bodies, 1)],
                     summary])


def cold_segments() -> list[bytes]:
    """Return cold segments of a few groups and partitions."""
    found = []
    for count in (3, 24):
        filesystem = SimulatedFilesystem()
        job = cold_file(filesystem, some_entries(count))
        found.append(filesystem.image(cold_path(COLD_DIRECTORY, job.header.number)))
    return found


def cold_indexes() -> list[bytes]:
    """Return the parts of index files of cold segments, as ``cold_index_file`` joins them."""
    found = []
    for count in (3, 24):
        contents = cold_file(SimulatedFilesystem(), some_entries(count)).contents
        head, *blocks, summary = cold_index.encode(contents)
        parts = [head[12:_COLD_FIELDS_END], *[block.rstrip(b"\0") for block in blocks], summary]
        found.append(b"".join(len(part).to_bytes(2, "little") + part for part in parts))
    return found


#: End of the fields of such a file's header, before the bytes and the checksum of its summary.
_COLD_FIELDS_END = cold_index._HEAD.size - 12


def cold_index_file(data: bytes) -> bytes:
    """Return an index file of a cold segment with right checksums, from the fields of its header,
    its blocks and its summary: each a length of 16 bits and the bytes without zeros at the end."""
    fields, *blocks = _parts_of(data) or [b""]
    size = _COLD_FIELDS_END - 12
    head = (cold_index.COLD_INDEX_MAGIC + cold_index.COLD_INDEX_VERSION.to_bytes(4, "little")
            + fields[:size].ljust(size, b"\0"))
    summary = blocks.pop() if blocks else b""
    _, _, cluster, node, number, seed, generation, copied_from, *_ = cold_index._HEAD.unpack(
        head + bytes(12))
    identity = ColdHeader(generation, number, cluster, node, seed, copied_from).index_identity

    def crc_of(block: int, part: bytes) -> bytes:
        return core.crc32c(part, identity.block_crc(block)).to_bytes(4, "little")

    head = (head + len(summary).to_bytes(8, "little") + crc_of(0, summary)).ljust(
        BLOCK_BYTES - 4, b"\0")
    bodies = [block[4:BLOCK_BYTES].ljust(BLOCK_BYTES - 4, b"\0") for block in blocks]
    return b"".join([head, core.crc32c(head).to_bytes(4, "little"),
                     *[crc_of(number, body) + body for number, body in enumerate(bodies, 1)],
                     summary])


def recoveries() -> list[bytes]:
    """Return changes of a data directory: file, position and new bytes."""
    return [bytes([number]) + at.to_bytes(2, "big") + b"\x00\xff\x01" * 3
            for number, at in ((0, 20), (1, 40), (2, 4096), (2, 4200), (3, 4300))]


def scrub_states() -> list[bytes]:
    """Return states at the beginning of a scrub, in the middle, and after a pass."""
    return [b'{"position": 0, "completed_ms": 0}', b'{"position": 1048576, "completed_ms": 0}',
            b'{"position": 4096, "completed_ms": 1700000000000}', b'{"position": 1e999}']


def identities() -> list[bytes]:
    """Return node.json, known_nodes.json and refused.json."""
    disk = SimulatedFilesystem()
    disk.make_directory("/node")
    identity.create(disk, "/node", identity.Identity(bytes(16), 1, 77))
    identity.claim(disk, "/node", identity.Identity(bytes(16), 1, process=1 << 63), False)
    refusal_record.write(
        disk, "/node", refusal_record.RefusalRecord("a copy", BootId(4, 1 << 63), 5)
    )
    registry.write(disk, "/node", registry.of_new_cluster(bytes(16), 2, 3, NODES))
    return [
        disk.open(f"/node/{name}").read(1 << 16, 0)
        for name in (identity.NODE_FILE, registry.KNOWN_NODES_FILE, refusal_record.REFUSED_FILE)
    ]


class _Lines(list):
    """The part of a text file that a ``HistoryWriter`` needs."""

    write = list.append


def histories() -> list[bytes]:
    """Return the history of an append and a read."""
    lines = _Lines()
    writer = HistoryWriter(lines)
    for event in (Event(1, "invoke", 1, 1, "append", {"key": "t@5/0", "values": [1]}),
                  Event(2, "ok", 1, 1, "append", {"offset": 0}),
                  Event(3, "fault", -1, -1, "kill", {"on": True, "nodes": [1]})):
        writer.write(event)
    return ["".join(lines).encode()]


#: A small cluster that needs moves of every kind.
SNAPSHOT = grown(placed_cluster(placement_nodes(4, racks=2), 4, [1 << 20] * 6 + [9 << 20],
                                factor=2), NodeRow(5, "r1"))


def plans() -> list[bytes]:
    """Return plans for that cluster: of all moves, of a drain, and of leaders alone."""
    return [plan.save(made) for made in (
        make_plan(SNAPSHOT, STRICT), make_plan(SNAPSHOT, STRICT, Options("drain", drain=(1, 2))),
        make_plan(SNAPSHOT, only(LEADERS, 0), Options("leaders")))]


def cluster_snapshots() -> list[bytes]:
    """Return the cluster as a snapshot file."""
    return [cluster.save(SNAPSHOT)]


def configurations() -> list[bytes]:
    """Return a node.toml with each table."""
    return [b"""
[node]
id = 1
data_dir = "data"
client_address = "127.0.0.1:9101"
peer_address = "[::1]:9201"
[cluster]
id = "0123456789abcdef0123456789abcdef"
groups = 2
replication_factor = 1
[[cluster.nodes]]
id = 1
client_address = "127.0.0.1:9101"
peer_address = "[::1]:9201"
[raft]
lease_ms = 600
[limits]
connections_max = 2000
[storage]
durability = "fsync"
[http]
address = "127.0.0.1:9301"
[security]
peer_secret = "secret"
"""]

