"""Fuzz targets: each decoder of bytes from a network or a disk, as a function of bytes.

Contract.  A ``Target`` takes any bytes, and accepts them or raises one of ``errors``.  Any other
exception, a disagreement of the twins, or a value that differs after another round trip is a
finding.  ``seeds`` are well-formed inputs to begin from.  Where a checksum guards a format, the
target corrects it, because an attacker can compute a checksum as well.

Elsewhere.  test_targets.py drives the targets with Hypothesis, in ``make test``; run.py with a
coverage-guided fuzzer, in ``make fuzz``.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from chaos.history import BadHistory, read_history
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import _core, core
from multiraft.client._batch_reader import intact_batches
from multiraft.codec import reference
from multiraft.compression import decompress
from multiraft.errors import CodecError, CorruptEntry, MalformedHeader, MultiRaftError
from multiraft.kafka.errors import KafkaFrameError, UnsupportedVersion
from multiraft.partitions import entry_text
from multiraft.partitions.producer_state import export_windows, import_windows
from multiraft.partitions.records import open_payload, parse_open, parse_seal
from multiraft.partitions.retention_records import (
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
    parse_clock,
    parse_compact,
    parse_delete,
    parse_expire,
    parse_log_starts,
)
from multiraft.raft import joint_quorum
from multiraft.raft.messages import Append
from multiraft.raft.replica_records import parse_reincarnation, parse_tombstone
from multiraft.storage import chunked_cbor, identity, inspect, refusal_record
from multiraft.storage.atomic_file import read_envelope, write_envelope
from multiraft.storage.block_index import file_codec
from multiraft.storage.checkpoint import (
    CHECKPOINT_MAGIC,
    CHECKPOINT_VERSION,
    CHECKPOINT_VERSIONS_READ,
    read_checkpoint,
)
from multiraft.storage.cold import cold_index
from multiraft.storage.cold import contents as cold_contents
from multiraft.storage.errors import StorageError
from multiraft.storage.index_file import decode_body
from multiraft.storage.journal.journal import SegmentHeader
from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.storage.repair.coordinator import RepairRequest
from multiraft.storage.snapshot_download import PARTIAL_FILE, PartialSnapshot, SnapshotDownload
from multiraft.storage.store import Store
from multiraft.types import EntryKind
from multiraft.wire import messages as wire
from multiraft.wire.connection import (
    NEED_DATA,
    Connection,
    ConnectionClosed,
    ResponseEvent,
    Role,
)
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    LocalProtocolError,
    RemoteProtocolError,
    RequestError,
)
from multiraft.wire.frames import Frame, FrameReader, WireLimits, decode_header
from multiraft.wire.schema import Malformed
from node import config
from node.cluster import peer_requests
from node.errors import BadConfig
from node.loop.scrub import parse_state
from node.metadata.commands import InvalidCommand, decode_command
from node.metadata.state_machine import MetadataState
from node.peers import codec, liveness_thread, registry
from node.peers.bulk_channel import NoAnswer
from node.replicas import repair_messages, snapshot_state
from placement import PlacementError, canonical, cluster, plan
from placement.errors import EditedPlan
from placement.verify import verify
from tests.fuzz import bulk, kafka_messages, partition_log, seeds
from tests.storage import index_version_5
from tests.storage.cold.files import header_of
from tests.storage.world import IDENTITY, SMALL

#: Limits of a connection that small inputs reach.
LIMITS = WireLimits(frame_bytes_max=1 << 16, header_bytes_max=1 << 12)
DIRECTORY = "/node"
_U32 = struct.Struct("<I")


class Target(NamedTuple):
    """One decoder, its errors and its seeds."""

    decode: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    seeds: Callable[[], list[bytes]]


# ---- the wire ------------------------------------------------------------------------------------


def split_frames(data: bytes) -> None:
    """Check that all ways to cut a stream give the same frames and the same end; the first byte
    chooses one way."""
    cut, stream = (data[0] % 16) + 1 if data else 1, data[1:]
    whole, pieces = frames_of(stream, len(stream) or 1), frames_of(stream, cut)
    assert whole == pieces, f"{whole} in one piece, {pieces} in pieces of {cut}"
    if whole[1]:
        raise RemoteProtocolError(whole[1])


def frames_of(stream: bytes, piece: int) -> tuple[list, str]:
    """Return the frames of a stream, and the error that ended it."""
    reader, found = FrameReader(LIMITS), []
    try:
        while True:
            while (frame := reader.next_frame()) is not None:
                found.append((frame.header, bytes(frame.payload)))
            if not stream:
                return found, ""
            room = reader.buffer_for_receive()
            count = min(len(room), len(stream), piece)
            room[:count], stream = stream[:count], stream[count:]
            reader.received(count)
    except RemoteProtocolError as error:
        return found, str(error)


def header(data: bytes) -> None:
    """Check that both twins decode a header equally, and that its encoding is unique."""
    found = agree("decode_header", data, 0, len(data))
    for twin in (_core, reference):
        again = twin.encode_header(found, 0)
        assert twin.decode_header(again, 8, len(again)) == found


def agree(name: str, *arguments: object) -> object:
    """Return the common result of both twins, or raise their common error."""
    results = []
    for twin in (reference, _core):
        try:
            results.append((getattr(twin, name)(*arguments), None))
        except (MultiRaftError, ValueError, OverflowError) as error:
            results.append((None, error))
    (expected, raised), (found, also) = results
    assert (type(raised), str(raised)) == (type(also), str(also)), f"{raised!r}, {also!r}"
    assert expected == found, f"{name}: {expected!r}, {found!r}"
    if also is not None:
        raise also
    return found


def server_connection(data: bytes) -> None:
    """Decode a stream as the client port of a node."""
    converse(Role.SERVER, data)


def client_connection(data: bytes) -> None:
    """Decode the answers of a node as a client that has sent each kind of request."""
    converse(Role.CLIENT, data)


def converse(role: Role, data: bytes) -> None:
    """Answer each request until the stream ends."""
    connection = Connection(role, LIMITS)
    if role is Role.CLIENT:
        connection.send(wire.Hello())
    asked = seeds.REQUESTS if role is Role.CLIENT else ()
    connection.receive_data(data)
    while (event := connection.next_event()) is not NEED_DATA:
        if isinstance(event, (ConnectionClosed, wire.Refused)):
            return
        if isinstance(event, wire.Hello):
            connection.send(wire.Welcome(bytes(16), 1, 1))
        elif isinstance(event, wire.Welcome):
            for request in asked:
                try:
                    connection.send(*request)
                except LocalProtocolError:
                    return  # it takes no frame of that size, and nothing was sent
        elif role is Role.SERVER and event.id in connection._in_flight:
            connection.send(ResponseEvent(event.id, code=Code.INVALID_REQUEST))


def message(data: bytes) -> None:
    """Read the fields of each request and response, by operation."""
    fields = decode_header(data)
    op = fields.pop("op", None)
    for table in (wire.REQUESTS, wire.RESPONSES):
        if type(op) is str and op in table:
            try:
                value = table[op].read(dict(fields))
            except Malformed:
                continue
            assert table[op].read(bulk.plain(table[op].header(value))) == value


def peer_frame(data: bytes) -> None:
    """Decode a frame of consensus messages; two bytes are the length of its header."""
    length = int.from_bytes(data[:2], "big")
    frame = Frame(decode_header(data[2:2 + length]), memoryview(data)[2 + length:])
    for message in codec.decode(frame):
        alone = message._replace(entries=()) if isinstance(message, Append) else message
        again = codec.frame([codec.encode(alone, 0)])
        assert codec.decode(Frame(decode_header(again[0][8:]), memoryview(b""))) == [alone]


def handshake(data: bytes) -> None:
    """Decode the first frames of a connection, on both sides."""
    fields = decode_header(data)
    for read in (wire.read_hello, wire.read_proof, wire.read_answer, wire.read_welcome):
        try:
            read(dict(fields))
        except Malformed:
            continue


def liveness_frame(data: bytes) -> None:
    """Decode a heartbeat, its response, and an announced stop."""
    fields = decode_header(data)
    liveness_thread._values(liveness_thread.Heartbeat, fields.get("heartbeat"))
    liveness_thread.decode_response(fields)
    liveness_thread._boot_epoch(fields.get("stopping"))


def repair_frame(data: bytes) -> None:
    """Decode a request for copies of entries, and an answer with them."""
    length = int.from_bytes(data[:2], "big")
    fields = decode_header(data[2:2 + length])
    try:
        repair_messages.read_request(fields)
    except Malformed:
        pass  # it may be an answer
    request = RepairRequest(1, 1, ((1, 1),))
    repair_messages.read_response(request, fields, memoryview(data)[2 + length:])


def bulk_requests(data: bytes) -> None:
    """Serve requests of other nodes on a bulk connection, until it would be closed."""
    bulk.serve(data)


def peer_answer(data: bytes) -> None:
    """Decode the answer to a request of a node, by operation."""
    fields = decode_header(data)
    op = fields.pop("op", None)
    if type(op) is str and op in peer_requests.RESPONSES:
        bulk.asked(op, fields)


def image_pieces(data: bytes) -> None:
    """Decode answers to a node that fetches an image: pieces are kept as they arrived."""
    frames, why = frames_of(data, len(data) or 1)
    bulk.fetched([Frame(header, memoryview(payload)) for header, payload in frames])
    if why:
        raise RemoteProtocolError(why)


def snapshot_image(data: bytes) -> None:
    """Decode a complete image of the metadata group, with the announced CRC."""
    download = PartialSnapshot(seeds.IMAGE_INDEX, 1, len(data), core.crc32c(data), bytearray(data))
    read = snapshot_state.decode(download, MetadataState.restore)
    read.partition_states.snapshot()  # an accepted image can be sent to another node
    assert read.encoded == chunked_cbor.dumps(read.state.snapshot()), (
        "the checkpoint has another state")
    read.partition_states._check()


def partial_image(data: bytes) -> None:
    """Recover a partly received image: a prefix of it, or nothing."""
    disk = disk_with(PARTIAL_FILE, data)
    arrived = SnapshotDownload(disk, DIRECTORY, 1 << 20).load()
    if arrived is not None:
        assert len(arrived.data) <= arrived.total
        assert SnapshotDownload(disk, DIRECTORY, 1 << 20).load() == arrived


# ---- entries and batches -------------------------------------------------------------------------


def entries(data: bytes) -> None:
    """Check that both twins decode entries of a journal and of an append equally, and agree on the
    end."""
    agree("scan_entries", data, 0, 0)
    agree("check_entries", data, 0, 0)
    for at in range(0, min(len(data), 256), 8):
        agree("find_entry", data, at)
    agree("parse_entries", data)


def payloads(data: bytes) -> None:
    """Decode payloads of entries without records, as a node does before it uses them."""
    for parse in (
        joint_quorum.decode,
        parse_reincarnation,
        lambda part: parse_tombstone(1, 1, part),
        parse_seal,
        opening,
        retention,
    ):
        try:
            parse(data)
        except CorruptEntry:
            continue
    for kind in EntryKind:
        entry_text.describe(kind, data)


def opening(data: bytes) -> None:
    """Decode a partition open and its producer state; an accepted one can be encoded again."""
    opened = parse_open(data)
    windows = import_windows(opened.windows, 1)
    assert import_windows(export_windows(windows), 1) == windows
    assert parse_open(open_payload(*opened)) == opened


#: Parser of an entry that decides retention -> encoder of what it returned.
RETENTION = (
    (parse_clock, lambda value: clock_payload(0, value)),
    (parse_log_starts, log_starts_payload),
    (parse_delete, lambda deletion: delete_payload(*deletion)),
    (parse_compact, compact_payload),
    (parse_expire, expire_payload),
)


def retention(data: bytes) -> None:
    """Decode the entries that decide retention; an accepted one has only these bytes."""
    for parse, encode_again in RETENTION:
        try:
            found = parse(data)
        except CorruptEntry:
            continue
        assert encode_again(found) == data


def carried_windows(data: bytes) -> None:
    """Decode producer state alone, without the header of a partition open."""
    windows = import_windows(data, 1)
    assert import_windows(export_windows(windows), 1) == windows


def batch(data: bytes) -> None:
    """Check a batch of a producer, as it is and with a corrected CRC."""
    for given in (data, with_batch_crc(data)):
        for name in ("check_batch", "verify_batch", "split_batches", "batch_header"):
            try:
                agree(name, given)
            except CodecError:
                continue


def with_batch_crc(data: bytes) -> bytes:
    """Return the bytes with the length and the CRC of a batch."""
    if len(data) < 61:
        return data
    fixed = bytearray(data)
    struct.pack_into(">i", fixed, 8, len(data) - 12)
    struct.pack_into(">I", fixed, 17, core.crc32c(fixed[21:]))
    return bytes(fixed)


def fetched_records(data: bytes) -> None:
    """Read the records of a batch as a consumer, decompressed by the codec of its header."""
    for part, head in intact_batches(memoryview(with_batch_crc(data)))[0]:
        block = decompress(head.attributes & 7, part[61:])
        agree("decode_records", _core.batch_header(part), block)
        agree("keyless_records", _core.batch_header(part), block, 3)


# ---- files ---------------------------------------------------------------------------------------


def disk_with(name: str, data: bytes) -> SimulatedFilesystem:
    """Return a directory with one file."""
    filesystem = SimulatedFilesystem()
    filesystem.make_directory(DIRECTORY)
    filesystem.create(f"{DIRECTORY}/{name}").write([data], 0, True)
    return filesystem


def segment(data: bytes) -> None:
    """Scan a segment with an intact header; no content may raise."""
    scan = scan_segment(data, 0, 1, {})
    index = scan.index
    assert index.end <= max(len(data), 4096), f"{index.end} of {len(data)}"
    body = index_version_5.body(index)
    assert index_version_5.body(decode_body("index", body)) == body
    scan_segment(data, 0, None, {})
    SegmentHeader.parse(data)


def envelope(data: bytes) -> None:
    """Decode a whole checkpoint or index file."""
    read_envelope(disk_with("file", data), f"{DIRECTORY}/file", CHECKPOINT_MAGIC,
                  *CHECKPOINT_VERSIONS_READ)


def checkpoint(data: bytes) -> None:
    """Decode the body of a checkpoint with a valid CRC."""
    filesystem = SimulatedFilesystem()
    filesystem.make_directory(DIRECTORY)
    write_envelope(filesystem, DIRECTORY, "file", CHECKPOINT_MAGIC, CHECKPOINT_VERSION, data)
    found = read_checkpoint(filesystem, f"{DIRECTORY}/file")
    for group, record in found.records.items():
        states = found.partition_states[group]
        states._check()
        record._replace(states=states.snapshot()).encode()
    found.applied()


def segment_index(data: bytes) -> None:
    """Decode the body of an index file with a valid CRC, and add it as recovery does."""
    index_version_5.body(decode_body("index", data))


def block_index(data: bytes) -> None:
    """Decode an index file in blocks, with right checksums, from its parts without padding; an
    accepted one is encoded to what is decoded to the same."""
    found = file_codec.decode("index", seeds.block_index_file(data))
    again = file_codec.decode("index", b"".join(file_codec.encode(found, bytes(16), 0)))
    assert index_version_5.body(again) == index_version_5.body(found)


def cold_segment(data: bytes) -> None:
    """Scan a cold segment with an intact header; no content may raise.  What is found is in the
    file, but for the padding of the last one, and its index file is decoded to the same."""
    found = cold_contents.scan(data, header_of(), len(data)).contents
    for run in found.runs.values():
        assert all(at + size < len(data) + 8
                   for at, size in zip(run.bytes, run.sizes, strict=True))
    again = cold_index.decode("index", b"".join(cold_index.encode(found)))
    assert cold_index.encode(again) == cold_index.encode(found)


def cold_index_file(data: bytes) -> None:
    """Decode the index file of a cold segment, with right checksums, from its parts without
    padding; an accepted one is encoded to what is decoded to the same."""
    found = cold_index.decode("index", seeds.cold_index_file(data))
    again = cold_index.decode("index", b"".join(cold_index.encode(found)))
    assert cold_index.encode(again) == cold_index.encode(found)


def identity_file(data: bytes) -> None:
    """Decode node.json."""
    identity.read(disk_with(identity.NODE_FILE, signed(data)), DIRECTORY)


def known_nodes_file(data: bytes) -> None:
    """Decode known_nodes.json; an accepted file can be written again."""
    disk = disk_with(registry.KNOWN_NODES_FILE, signed(data))
    facts = registry.read(disk, DIRECTORY)
    registry.write(disk, DIRECTORY, facts)
    assert registry.read(disk, DIRECTORY) == facts


def refusal_file(data: bytes) -> None:
    """Decode refused.json; an accepted file can be written again."""
    disk = disk_with(refusal_record.REFUSED_FILE, signed(data))
    mark = refusal_record.read(disk, DIRECTORY)
    refusal_record.write(disk, DIRECTORY, mark)
    assert refusal_record.read(disk, DIRECTORY) == mark


def signed(data: bytes) -> bytes:
    """Return a JSON object with a corrected CRC; other bytes unchanged."""
    try:
        fields = identity.json.loads(data)
        if not isinstance(fields, dict):
            return data
        fields.pop("crc", None)
        return identity.json.dumps({**fields, "crc": identity._crc(fields)}).encode()
    except (ValueError, RecursionError):
        return data


def scrub_state(data: bytes) -> None:
    """Decode the progress of a scrub: each file is a state; a damaged one is the first state."""
    state = parse_state(data)
    assert parse_state(json.dumps(state).encode()) == state


def recovery(data: bytes) -> None:
    """Recover a data directory in which one place was overwritten: the start names the damage or
    succeeds.  The first bytes are the place, the rest the new content."""
    files = seeds.directory()
    name = sorted(files)[data[0] % len(files)] if data else sorted(files)[0]
    content = bytearray(files[name])
    at = int.from_bytes(data[1:3], "big") % (len(content) + 1)
    content[at:at + len(data[3:])] = data[3:]
    filesystem = SimulatedFilesystem()
    filesystem.make_directory(f"{DIRECTORY}/lane-0")
    for path, original in files.items():
        filesystem.create(path).write([bytes(content) if path == name else original], 0, True)
    store = Store.open(DIRECTORY, filesystem, IDENTITY, SMALL)
    store.close()


def inspected(data: bytes) -> None:
    """Run `log inspect` on a file named as a segment, an index or a checkpoint."""
    with tempfile.TemporaryDirectory() as directory:
        for name in (f"{0:020d}.segment", f"{0:020d}.index", f"checkpoint-{0:020d}"):
            path = Path(directory) / name
            path.write_bytes(data)
        for kind, path in inspect.files_of(Path(directory)):
            inspect.summary(kind, path)
            if kind == inspect.SEGMENT:
                list(inspect.rows(path, 0))
            elif kind == inspect.INDEX:
                inspect.verify_index(path)
        inspect.durable_watermark(inspect.files_of(Path(directory)))


def history(data: bytes) -> None:
    """Decode the history of a chaos run."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "history.jsonl"
        path.write_bytes(data)
        list(read_history(path))


def plan_file(data: bytes) -> None:
    """Decode and check a plan with a corrected digest; no content may raise another error."""
    try:
        made = plan.load(data)
    except EditedPlan:
        made = plan.identify(canonical.from_plain(plan.Plan, canonical.parse(data, len(data)),
                                                  "plan"))
    assert plan.load(plan.save(made)) == made
    verify(made, seeds.SNAPSHOT, made.created_ms)


def cluster_snapshot(data: bytes) -> None:
    """Decode the snapshot of a cluster that a plan is computed from."""
    found = cluster.load(data)
    assert cluster.load(cluster.save(found)) == found


def node_toml(data: bytes) -> None:
    """Decode the configuration of a node."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "node.toml"
        path.write_bytes(data)
        config.load(path)


TARGETS: dict[str, Target] = {
    "frames": Target(split_frames, (RemoteProtocolError,), seeds.streams),
    "header": Target(header, (MalformedHeader,), seeds.headers),
    "server-connection": Target(server_connection, (RemoteProtocolError,), seeds.client_streams),
    "client-connection": Target(client_connection, (RemoteProtocolError,), seeds.server_streams),
    "message": Target(message, (RemoteProtocolError,), seeds.message_headers),
    "peer-frame": Target(peer_frame, (RemoteProtocolError,), seeds.peer_frames),
    "handshake": Target(handshake, (RemoteProtocolError,), seeds.handshakes),
    "liveness": Target(liveness_frame, (RemoteProtocolError,), seeds.liveness_headers),
    "repair": Target(repair_frame, (RemoteProtocolError, Malformed), seeds.repair_frames),
    "bulk-requests": Target(bulk_requests, (RemoteProtocolError,), seeds.bulk_requests),
    "peer-answer": Target(peer_answer, (RemoteProtocolError, RequestError, AmbiguousOutcome),
                          seeds.peer_answers),
    "image-pieces": Target(image_pieces, (RemoteProtocolError, Malformed, NoAnswer),
                           seeds.image_pieces),
    "snapshot-image": Target(snapshot_image, (Malformed, CodecError), seeds.images),
    "partial-image": Target(partial_image, (), seeds.partial_images),
    "command": Target(decode_command, (InvalidCommand,), seeds.commands),
    "kafka-request": Target(kafka_messages.request, (KafkaFrameError, UnsupportedVersion),
                            kafka_messages.requests),
    "kafka-response": Target(kafka_messages.response, (KafkaFrameError,),
                             kafka_messages.responses),
    "kafka-hot-message": Target(kafka_messages.hot_message, (KafkaFrameError,),
                                kafka_messages.hot_messages),
    "entries": Target(entries, (CorruptEntry, ValueError), seeds.entries),
    "payloads": Target(payloads, (), seeds.payloads),
    "partition-log": Target(partition_log.replay, (), partition_log.seeds),
    "carried-windows": Target(carried_windows, (CorruptEntry,), seeds.carried_windows),
    "batch": Target(batch, (), seeds.batches),
    "records": Target(fetched_records, (CodecError,), seeds.compressed_batches),
    "segment": Target(segment, (), seeds.segments),
    "envelope": Target(envelope, (StorageError,), seeds.checkpoint_files),
    "checkpoint": Target(checkpoint, (StorageError,), seeds.checkpoints),
    "segment-index": Target(segment_index, (StorageError,), seeds.indexes),
    "block-index": Target(block_index, (StorageError,), seeds.block_indexes),
    "cold-segment": Target(cold_segment, (), seeds.cold_segments),
    "cold-index": Target(cold_index_file, (StorageError,), seeds.cold_indexes),
    "identity": Target(identity_file, (StorageError,), seeds.identities),
    "refusal": Target(refusal_file, (StorageError,), seeds.identities),
    "known-nodes": Target(known_nodes_file, (StorageError,), seeds.identities),
    "scrub-state": Target(scrub_state, (), seeds.scrub_states),
    "recovery": Target(recovery, (StorageError,), seeds.recoveries),
    "inspection": Target(inspected, (StorageError,), seeds.segments),
    "history": Target(history, (BadHistory,), seeds.histories),
    "plan": Target(plan_file, (PlacementError,), seeds.plans),
    "cluster-snapshot": Target(cluster_snapshot, (PlacementError,), seeds.cluster_snapshots),
    "node-toml": Target(node_toml, (BadConfig,), seeds.configurations),
}


def run(name: str, data: bytes) -> bool:
    """Give bytes to a target.  Returns True if it accepted them.  Raises a finding."""
    target = TARGETS[name]
    try:
        target.decode(data)
    except target.errors:
        return False
    return True
