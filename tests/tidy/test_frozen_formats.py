"""Names and shapes on disk: keys of JSON and CBOR, kinds of journal records, rows by position.

Contract.  A test writes one of each kind of file with the code of today and compares its *shape*
with the one that is written down here as text: keys as they are, values as their types.  Commands
and snapshots take keys from names of fields, so renaming a field may change a format: that fails
here.  A change needs a new version of the format and a decision page; docs/storage-format.md is the
prose.
"""

from __future__ import annotations

import json
import re

import cbor2
import pytest

from admin_cli.development import dev_state
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.partitions import producer_state, records, retention_records
from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage import (
    chunked_cbor,
    identity,
    refusal_record,
    snapshot_download,
    store,
)
from multiraft.storage.block_index.file_codec import encode, parse_header
from multiraft.storage.checkpoint import GroupRecord
from multiraft.storage.identity import Identity
from multiraft.storage.index import Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.segment_index import (
    RANGE_STRUCT,
    REPAIR_STRUCT,
    SegmentIndex,
    SegmentRun,
)
from multiraft.storage.refusal_record import RefusalRecord
from multiraft.storage.snapshot_download import PartialSnapshot, SnapshotDownload
from multiraft.storage.uncopied_ranges import InstalledRange
from multiraft.types import BatchInfo, Configuration, EntryKind, HardState
from multiraft.wire import plans, sinks
from multiraft.wire.plans import DRAINING
from multiraft.wire.settings import SettingChange
from multiraft.wire.sinks import AbortTransaction, CommitTransaction
from node.histogram import Histogram
from node.loop import disk_space, scrub
from node.metadata import commands, state_machine
from node.metadata.commands import encode_command
from node.metadata.move_phases import Phase
from node.metadata.state_machine import (
    AddPartitions,
    AllocateProducerIds,
    AlterSettings,
    BumpProducerEpoch,
    DecideSwitch,
    MetadataState,
    PublishSwitch,
    RecordMembers,
    RecoverGroup,
    RegisterNode,
    RemoveNode,
    SetNodeState,
)
from node.observability import load_records
from node.peers import registry
from node.replicas import snapshot_state
from placement import cluster as cluster_file
from placement import plan as plan_file
from placement import planner
from tests.node.metadata.test_state_machine import Replica, bootstrap, create, node, uuid
from tests.node.metadata.test_transaction_table import begin
from tests.node.rebalance.cases import change, step, switch, transfer
from tests.node.rebalance.cases import plan as apply_plan
from tests.placement.clusters import STRICT, cluster, grown, nodes
from tests.storage.damage import DIRECTORY, long_journal

#: A data directory: names of its files.
FILES = ("LOCK", "node.json", "known_nodes.json", "refused.json", "scrub.json", "snapshot.partial",
         "reserve", "lane-0", "cold-0")
#: Files of a store, with each number as #.
STORED = {"checkpoint-#", "lane-0/#.index", "lane-0/#.segment", "node.json"}

#: Name of a file, a command or a snapshot -> its shape.
SHAPES: dict[str, object] = {
    "node.json":
        {"boot_epoch": "int",
         "cluster_id": "text",
         "crc": "int",
         "format_version": "int",
         "incarnation": "int",
         "lives": [["int", "text"]],
         "node": "int"},
    "refused.json":
        {"boot_epoch": "int",
         "crc": "int",
         "format_version": "int",
         "process": "int",
         "reason": "text",
         "refused_ms": "int"},
    "known_nodes.json":
        {"admitted": "flag",
         "bound": [["int", "int"]],
         "cluster_id": "text",
         "crc": "int",
         "format_version": "int",
         "groups": "int",
         "initial": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "lives": [["int", "int", "int"]],
         "met": [["int", "int", "int"]],
         "nodes": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "removed": [["int", "int"]],
         "replication_factor": "int",
         "version": "int"},
    "known_nodes.json, settings":
        {"admitted": "flag",
         "bound": [["int", "int"]],
         "cluster_id": "text",
         "crc": "int",
         "format_version": "int",
         "groups": "int",
         "initial": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "lives": [["int", "int", "int"]],
         "met": [["int", "int", "int"]],
         "nodes": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "removed": [["int", "int"]],
         "replication_factor": "int",
         "topic_defaults": [["text", "text"]],
         "version": "int"},
    "cluster.json":
        {"base_port": "int",
         "cluster_id": "text",
         "groups": "int",
         "loads_ms": "int",
         "nodes": [{"boot": "text",
                    "client_address": "text",
                    "http_address": "text",
                    "id": "int",
                    "peer_address": "text",
                    "pid": "null",
                    "rack": "text",
                    "start_time": "int",
                    "wanted": "text",
                    "weight": "float"}],
         "replication_factor": "int",
         "version": "int"},
    "checkpoint":
        ["int", "int",
         [["int", "int", [["int", "int", "int"], [], []], ["int", "int"], "int", "int", "int",
           "text",
           {"applied": "int",
            "clock": "int",
            "clocks": "bytes",
            "expired_below": "int",
            "group": "int",
            "opens_from": "int",
            "partitions": [["int", "int", "int", "int", "int", "flag", "int", "int", "int",
                            "null", [["int", "int"]], []]],
            "version": "int"},
           [], "flag", "flag", "int", [["int", "int"]], "int", "int", "flag", "int", "int",
           "int", "int"]],
         "int"],
    "index":
        [["int", "int", "int", ["int", "int", "bytes", ["int"], ["int"]], "bytes", "bytes",
          "null", [], "int", [], "int", "null", "int", "flag", "null", ["int", "int"],
          ["int", "int"]]],
    "index, run":
        [["int", "int", "int", ["int", "int", "bytes", ["int"], ["int"]], "bytes", "bytes",
          ["int", "int"],
          [["int", "int", "int", "int", "int", "int", "int", "int", "int", "int"]], "int",
          [["int", "int"]], "int", ["int", "int", "int", "int"], "int", "flag",
          ["int", "bytes"], ["int", "int"], ["int", "int"]]],
    "command":
        {"name": "text", "op": "text", "partitions": "int", "topic_id": "bytes", "v": "int"},
    "command, bootstrap":
        {"cluster_id": "bytes",
         "hash_seed": "int",
         "nodes": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "op": "text",
         "pool_size": "int",
         "replicas": [["int", "int", "int"]],
         "replication_factor": "int",
         "v": "int"},
    "command, bootstrap with settings":
        {"cluster_id": "bytes",
         "hash_seed": "int",
         "nodes": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "op": "text",
         "pool_size": "int",
         "replicas": [["int", "int", "int"]],
         "replication_factor": "int",
         "settings": [["text", "text"]],
         "v": "int"},
    "command, node":
        {"new": "flag", "node": ["int", "int", "int", "text", "text", "text", "int", "text", "int"],
         "op": "text", "v": "int"},
    "command, node with an address for Kafka's clients":
        {"new": "flag",
         "node": ["int", "int", "int", "text", "text", "text", "int", "text", "int",
                  "text"],
         "op": "text", "v": "int"},
    "command, topic with settings":
        {"name": "text", "op": "text", "partitions": "int", "settings": [["text", "text"]],
         "topic_id": "bytes", "v": "int"},
    "command, settings":
        {"changes": [["text", "text"], ["text", "null"]], "expected": "int", "op": "text",
         "topic": "text", "topic_id": "bytes", "v": "int"},
    "command, plan":
        {"cluster_id": "text",
         "expires_ms": "int",
         "limits": ["int", "int", "int", "int", "int", "int", "int"],
         "moves": [["int", "text", "int", "int", "int", ["int"], ["int"], "int", "int", "text",
                    []]],
         "now_ms": "int",
         "op": "text",
         "plan_id": "text",
         "scope": "text",
         "v": "int"},
    "metadata":
        {"added_partitions": [["int", [["int", "int", "int", "bytes"]]]],
         "chains": [["int", [["int", "int", "int", "int"]]]],
         "cluster_id": "bytes",
         "group_counts": ["int", "int", "int", "int", "int", "int", "int", "int", "int"],
         "hash_seed": "int",
         "index": "int",
         "members": [["int", "int", "int", ["int", "int", "int"], [], []]],
         "never_opened": [],
         "next_incarnation": "int",
         "next_producer_id": "int",
         "nodes": [["int", "int", "int", "text", "text", "text", "int", "text", "int"]],
         "nodes_version": "int",
         "plans": {"moved": [],
                   "next": "null",
                   "plan": {"applied_ms": "int",
                            "by_safety": "flag",
                            "limits": ["int", "int", "int", "int", "int", "int", "int"],
                            "moves": [["int", "text", "int", "int", "int", ["int", "int"],
                                       ["int", "int"], "int", "int", "text", []]],
                            "plan_id": "text",
                            "reason": "text",
                            "records": [["int", "int", "int", "int", "text"]],
                            "scope": "text",
                            "state": "text",
                            "under_way": [],
                            "waited": "flag"},
                   "preferred": [["int", "int"]],
                   "switched": []},
         "pool_size": "int",
         "producer_epochs": [["int", "int"]],
         "quotas": [],
         "recovered": [["int", ["int", "int"]]],
         "removed": [["int", "int"]],
         "replicas": [["int", "int", "int"]],
         "replication_factor": "int",
         "settings": [["int", "int", [["text", "text"]]]],
         "sinks": [["text", "int", "int", "int", "int", "bytes",
                    [["int", ["int", "int", "int", "int"]]], [["int", "int"]], [], ["bytes"],
                    []]],
         "stagings": "int",
         "states": [["int", "text"]],
         "switches": [["int", "int", "int"]],
         "topics": [["text", "bytes", "int", "int", "int"]],
         "users": [],
         "version": "int"},
    "snapshot.json":
        {"cluster_id": "text",
         "exceptions": "int",
         "format": "int",
         "groups": [{"bytes": "int",
                     "conf_index": "int",
                     "id": "int",
                     "in_joint": "flag",
                     "incarnation": "int",
                     "ingress": "int",
                     "leader": "int",
                     "learners": [],
                     "moved_ms": "int",
                     "read": "int",
                     "voters": ["int", "int", "int"]}],
         "hash_seed": "int",
         "hash_version": "int",
         "metadata_version": "int",
         "nodes": [{"disk_capacity": "int",
                    "egress_capacity": "int",
                    "id": "int",
                    "ingress_capacity": "int",
                    "rack": "text",
                    "state": "text",
                    "weight": "int"}],
         "partitions": [{"bytes": "int",
                         "copied": "flag",
                         "epoch": "int",
                         "group": "int",
                         "incarnation": "int",
                         "ingress": "int",
                         "links": "int",
                         "moved_ms": "int",
                         "partition": "int",
                         "read": "int",
                         "topic": "text"}],
         "pool_size": "int",
         "replication_factor": "int",
         "taken_ms": "int"},
    "plan.json":
        {"cluster_id": "text",
         "converged": "flag",
         "created_ms": "int",
         "estimated_ms": "int",
         "expires_ms": "int",
         "format": "int",
         "groups": [{"after": "int", "before": "int", "group": "int"}],
         "infeasible": [],
         "metadata_version": "int",
         "moves": {"replica_change": {"bytes": "int",
                                      "depends_on": [],
                                      "expect_conf_index": "int",
                                      "from_leader": "int",
                                      "group": "int",
                                      "group_incarnation": "int",
                                      "kind": "text",
                                      "new_voters": ["int", "int", "int"],
                                      "old_voters": ["int", "int", "int"],
                                      "seq": "int",
                                      "to_leader": "int",
                                      "wave": "int",
                                      "why": {"after_ppm": "int",
                                              "before_ppm": "int",
                                              "reason": "text",
                                              "resource": "text",
                                              "subject": "int"}},
                   "topic_switch": {"bytes": "int",
                                    "depends_on": [],
                                    "expect_epoch": "int",
                                    "from_group": "int",
                                    "incarnation": "int",
                                    "kind": "text",
                                    "partition": "int",
                                    "seq": "int",
                                    "to_group": "int",
                                    "topic": "text",
                                    "wave": "int",
                                    "why": {"after_ppm": "int",
                                            "before_ppm": "int",
                                            "reason": "text",
                                            "resource": "text",
                                            "subject": "int"}}},
         "nodes": [{"after": ["int", "int", "int", "int"],
                    "before": ["int", "int", "int", "int"],
                    "node": "int",
                    "rack": "text",
                    "replicas_after": "int",
                    "replicas_before": "int",
                    "share": ["int", "int", "int", "int"],
                    "state": "text",
                    "weight": "int"}],
         "options": {"budget_bytes": "int",
                     "copy_rate": "int",
                     "drain": [],
                     "fewer_racks": "flag",
                     "node": "int",
                     "scope": "text"},
         "plan_id": "text",
         "planner_version": "int",
         "policy": {"at_once_max": "int",
                    "bands": [{"floor": "int", "permille": "int", "resource": "text"}],
                    "chain_links_max": "int",
                    "cool_down_ms": "int",
                    "disk_cap_permille": "int",
                    "exceptions_max": "int",
                    "excluded_groups": [],
                    "excluded_nodes": [],
                    "excluded_topics": [],
                    "in_per_node_max": "int",
                    "moves_max": "int",
                    "out_per_node_max": "int",
                    "switch_copied": "flag",
                    "switches_max": "int",
                    "transfers_per_wave_max": "int",
                    "valid_ms": "int"},
         "resources": [{"after_ppm": "int",
                        "band_permille": "int",
                        "before_ppm": "int",
                        "bound": "text",
                        "bound_ppm": "int",
                        "level_ppm": "int",
                        "moved": "int",
                        "moved_bound": "int",
                        "resource": "text",
                        "total": "int"}],
         "skipped": [{"load": "int",
                      "node": "int",
                      "reason": "text",
                      "resource": "text",
                      "subject": "text",
                      "text": "text"}],
         "snapshot_digest": "text",
         "totals": [{"bytes": "int", "kind": "text", "moves": "int"}],
         "warnings": [],
         "waves": "int"},
}


def shape(value: object) -> object:
    """Types of a decoded value; maps with their keys, arrays by position.  An array of rows of one
    shape is the shape of its first row."""
    if isinstance(value, dict):
        return {key: shape(each) for key, each in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        shapes = [shape(each) for each in value]
        rows = bool(shapes) and isinstance(shapes[0], (list, dict)) and all(
            each == shapes[0] for each in shapes)
        return shapes[:1] if rows else shapes
    names = {bool: "flag", int: "int", float: "float", str: "text", bytes: "bytes",
             type(None): "null"}
    return names[type(value)]


def same(name: str, value: object) -> None:
    """Compare the shape of a decoded value with the frozen one."""
    found, wanted = shape(value), SHAPES[name]
    assert found == wanted, (
        f"{name}: what is written today has the shape\n{found}\nand not the frozen one\n{wanted}\n"
        f"Older files have the frozen one: keep it, or make a new version of the format")


def new_disk() -> SimulatedFilesystem:
    disk = SimulatedFilesystem()
    disk.make_directory(DIRECTORY)
    return disk


def written(disk: SimulatedFilesystem, name: str) -> bytes:
    file = disk.open(f"{DIRECTORY}/{name}")
    try:
        return file.read(1 << 20, 0)
    finally:
        file.close()


CLUSTER = bytes(range(16))
LIFE = (1 << 63) + 5


def test_the_directory_has_its_files():
    names = (store.LOCK_FILE, identity.NODE_FILE, registry.KNOWN_NODES_FILE,
             refusal_record.REFUSED_FILE, scrub.STATE_FILE, snapshot_download.PARTIAL_FILE,
             disk_space.RESERVE_FILE, store.JOURNAL_DIRECTORY, store.COLD_DIRECTORY)
    assert names == FILES


def test_the_store_writes_its_files():
    disk, _ = long_journal(with_checkpoint=True)
    found = {re.sub(r"\d{20}", "#", path.removeprefix(f"{DIRECTORY}/")) for path in disk.files()}
    assert found == STORED


def test_node_json():
    disk = new_disk()
    identity.claim(disk, DIRECTORY, Identity(CLUSTER, 1, 77, LIFE), False)
    same("node.json", json.loads(written(disk, "node.json")))


def test_refused_json():
    disk = new_disk()
    refusal_record.write(disk, DIRECTORY, RefusalRecord("why"))
    same("refused.json", json.loads(written(disk, "refused.json")))


def test_known_nodes_json():
    disk = new_disk()
    facts = registry.Facts(CLUSTER, 4, 1, (node(1),), {1: node(1)}, {9: 1}, 5, {1: 101}, True,
                              {2: (1, LIFE)}, {2: (1, LIFE)})
    registry.write(disk, DIRECTORY, facts)
    same("known_nodes.json", json.loads(written(disk, "known_nodes.json")))
    registry.write(disk, DIRECTORY, facts._replace(topic_defaults=(("retention.ms", "7"),)))
    same("known_nodes.json, settings", json.loads(written(disk, "known_nodes.json")))


def test_scrub_json():
    state = {"position": 5, "completed_ms": 6}
    assert scrub.parse_state(json.dumps(state).encode()) == state
    assert {*scrub.BEGIN} == {*state}


def test_cluster_json_of_a_development_cluster(tmp_path):
    record = dev_state.plan(1, 4, 1, 21001)
    record.nodes[0].kafka_address = ""  # as in clusters made before nodes served Kafka's clients
    dev_state.save(tmp_path, record)
    same("cluster.json", json.loads((tmp_path / "cluster.json").read_text()))


# ---- the journal --------------------------------------------------------------------------------

#: Numbers of kinds of records.
KINDS = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 24, 25}
#: What is written for a kind that has a payload of its own -> bytes.
PAYLOADS = {
    "membership": "010002000100010001000000020000000300000004000000",
    "partition open": "010000000400000002000000000000000300000000000000",
    "partition open, carried":
        "02000000040000000200000000000000030000000000000001000000000000000700000000000000"
        "03000104000000050000000600000000000000",
    "partition seal": "010000000500000000000000",
    "log start": "02000000010000000700000000000000280000000000000084030000000000"
                 "00",
    "clock": "0068e5cf8b010000",
    "partition delete": "01000000010000000c000000000000000700000000000000",
    "compact": "010000000200000028000000000000001e00000000000000",
    "producers expire": "010000001100000000000000",
    "repair": "05000000000000000600000000000000",
    "quarantine cleared": "05000000000000000600000000000000",
    "tombstone": "02000000000000000300000005000000",
    "forced recovery": "03000000010002000100010001000000020000000300000004000000",
    "snapshot.partial":
        "4d525041525400010100000000000000010000000000000002000000000000000500000000000000"
        "030000007810f64b03000000f8831455616263",
}
SEGMENT_HEADER = ("4d524c414e45000101000000000000000000000000000000000102030405060708090a0b0c0d0e0f"
                  "01000000")
CONFIGURATION = Configuration((1, 2), (3,), (4,))


def payloads() -> dict[str, bytes]:
    """One payload of each kind."""
    window = producer_state.export_windows(
        {7: producer_state.extended(None, BatchInfo(2, 7, 3, 4, 5, 0), 6, 7)}
    )
    return {
        "membership": joint_quorum.encode(CONFIGURATION),
        "partition open": records.open_payload(2, 3, 4),
        "partition open, carried": records.open_payload(2, 3, 4, 1, window),
        "partition seal": records.seal_payload(5),
        "log start": retention_records.log_starts_payload(
            [retention_records.LogStart(7, 40, 900)]),
        "clock": retention_records.clock_payload(0, 1_700_000_000_000),
        "partition delete": retention_records.delete_payload(12, [7]),
        "compact": retention_records.compact_payload(retention_records.Compaction(2, 40, 30)),
        "producers expire": retention_records.expire_payload(17),
        "repair": REPAIR_STRUCT.pack(5, 6),
        "quarantine cleared": RANGE_STRUCT.pack(5, 6),
        "tombstone": bytes(
            replica_records.tombstone(1, 1, Tombstone(HardState(2, 3), 4, 5, 6)).payload
        ),
        "forced recovery": bytes(
            replica_records.reincarnation(1, 1, 2, ForcedRecovery(3, CONFIGURATION)).payload
        ),
    }


def test_kinds_of_journal_records_keep_their_numbers():
    assert {int(kind) for kind in EntryKind} == KINDS


def test_payloads_of_journal_records_keep_their_bytes():
    found = {name: data.hex() for name, data in payloads().items()}
    assert found == {name: PAYLOADS[name] for name in found}


def test_segments_begin_with_their_header():
    disk, _ = long_journal(with_checkpoint=False)
    first = min(path for path in disk.files() if path.endswith(".segment"))
    header = disk.read(first)[:64]
    assert header[:44].hex() == SEGMENT_HEADER, "magic, version, number, start, cluster, node"


# ---- checkpoints, index files, snapshots --------------------------------------------------------


def body_of(disk: SimulatedFilesystem, ending: str) -> tuple[bytes, bytes]:
    """Magic with version, and body of the first enveloped file with that ending or beginning."""
    path = min(path for path in disk.files() if ending in path)
    data = disk.read(path)
    return data[:12], data[24:-4]


def test_checkpoints():
    disk, _ = long_journal(with_checkpoint=True)
    head, body = body_of(disk, "checkpoint-")
    assert head == b"MRCKPT\x00\x01\x04\x00\x00\x00"
    fields = cbor2.loads(body)
    fields[2] = [cbor2.loads(record) for record in fields[2]]
    same("checkpoint", fields)


def test_a_group_s_record_in_a_checkpoint():
    record = GroupRecord(1, 2, CONFIGURATION, HardState(3, 4), 5, 6, 7, "why", {}, ((8, 9),), True,
                         True, 10, ((11, 12),), 13, 14, True, 15, 16, 17, 18)
    plain = cbor2.loads(record.encode())
    assert plain == [1, 2, [[1, 2], [3], [4]], [3, 4], 5, 6, 7, "why", {}, [[8, 9]], True, True,
                     10, [[11, 12]], 13, 14, True, 15, 16, 17, 18]
    with_records = record._replace(record_terms=((1, 2), (4, 0)))
    assert cbor2.loads(with_records.encode()) == [*plain, [[1, 2], [4, 0]]]
    with_ranges = with_records._replace(first_index=9, uncopied=((5, 6), (8, 8)), installed=(
        InstalledRange(64, 2, 3, 64), InstalledRange(4096, 4, 8, 8192)))
    fields = cbor2.loads(with_ranges.encode())
    assert fields[21:] == [[[1, 2], [4, 0]], [[64, 2, 3, 64], [4096, 4, 8, 8192]], [[5, 6], [8, 8]]]
    with_unneeded = record._replace(unneeded=((2, 3),))
    assert cbor2.loads(with_unneeded.encode()) == [*plain, [], [], [], [[2, 3]]]
    with_repaired = record._replace(repaired=((2, 3), (5, 5)), known_damage=6)
    assert cbor2.loads(with_repaired.encode()) == [
        *plain, [], [], [], [], [6, [[2, 3], [5, 5]]]]


def test_index_files():
    disk, _ = long_journal(with_checkpoint=False)
    data = disk.read(min(path for path in disk.files() if path.endswith(".index")))
    assert data[:12] == b"MRINDEX\x01\x06\x00\x00\x00"
    same("index", cbor2.loads(data[parse_header("index", data).summary_position:]))


def test_a_group_s_run_in_an_index_file():
    group, partition = GroupIndex(5), PartitionIndex(100, 1)
    group.append(5, 2, 64, 72)
    partition.append(7, 2, 5, 9)
    run = SegmentRun(
        1, 2, 3, group, {100: partition}, HardState(3, 4))
    run.copies = [Copy(5, 2, 64, 72, 8, 72, 100, 7, 2, 9)]
    run.cleared_position, run.cleared_ranges, run.head_recovery_truncate_position = (
        10,
        ((11, 12),),
        13,
    )
    run.tombstone, run.tombstone_position, run.removed = (
        Tombstone(HardState(2, 3), 4, 5, 6),
        14,
        True,
    )
    run.forced_recovery, run.forced_recovery_at, run.forced_recovery_term = (
        ForcedRecovery(3, CONFIGURATION),
        (15, 16),
        17,
    )
    *_, summary = encode(SegmentIndex(0, 1, 2, 3, 4, 5, {1: run}), bytes(16), 1)
    fields = cbor2.loads(summary)
    same("index, run", fields)
    assert fields[0][:3] == [1, 2, 3] and fields[0][6] == [3, 4]
    assert fields[0][7:] == [
        [[5, 2, 64, 72, 8, 72, 100, 7, 2, 9]], 10, [[11, 12]], 13, [2, 3, 4, 5], 14, True,
        [3, joint_quorum.encode(CONFIGURATION)], [15, 16], [6, 17]]


def test_snapshots_that_are_arriving():
    disk = new_disk()
    SnapshotDownload(disk, DIRECTORY, 1 << 20).begin(PartialSnapshot(1, 2, 5, 3, bytearray(b"abc")))
    assert written(disk, "snapshot.partial").hex() == PAYLOADS["snapshot.partial"]


# ---- the metadata -------------------------------------------------------------------------------

#: Command of the metadata -> keys of its map, beside "v" and "op".
COMMANDS: dict[str, tuple[str, ...]] = {
    "bootstrap": (
        "cluster_id", "nodes", "pool_size", "replication_factor", "hash_seed", "replicas",
        "settings"),
    "register_node": ("node", "new"),
    "remove_node": ("node",),
    "record_members": ("group", "incarnation", "version", "voters", "learners", "outgoing"),
    "create_topic": ("name", "topic_id", "partitions", "settings"),
    "delete_topic": ("name", "topic_id"),
    "add_partitions": ("name", "topic_id", "partitions", "request_id"),
    "alter_settings": ("topic", "topic_id", "changes", "expected"),
    "allocate_producer_ids": ("count",),
    "bump_producer_epoch": ("producer_id", "producer_epoch"),
    "recover_group": ("group", "survivor", "incarnation"),
    "grow_pool": ("pool_size", "replicas"),
    "open_pool": ("pool_size",),
    "decide_switch": ("partition", "epoch", "to_group"),
    "publish_switch": ("partition", "epoch", "start_offset", "leader_epoch_base"),
    "trim_chain": ("partition", "log_start"),
    "apply_plan": ("plan_id", "cluster_id", "scope", "expires_ms", "now_ms", "limits", "moves"),
    "control_plan": ("plan_id", "action", "value", "reason", "by_safety", "now_ms"),
    "step_move": ("plan_id", "seq", "attempt", "phase", "source", "reason", "now_ms"),
    "set_node_state": ("node", "state"),
    "open_run": ("sink", "batch", "nonce", "topics", "task", "attempt_id"),
    "commit_run": ("sink", "run", "batch", "winners"),
    "abort_run": ("sink", "run"),
    "void_runs": ("runs",),
}
#: Words that commands and snapshots hold.
NODE_STATES = ("alive", "draining", "maintenance")
PLAN_ACTIONS = ("pause", "resume", "cancel", "throttle")
MOVE_KINDS = ("leader_transfer", "topic_switch", "replica_change")
PHASES = 11


@pytest.mark.parametrize("op", COMMANDS)
def test_the_command_has_its_keys(op):
    assert op in commands.COMMANDS, f"commands of kind {op} are in the journals of nodes"
    assert commands.COMMANDS[op].names == COMMANDS[op]


def test_no_command_is_missing_here():
    assert {*commands.COMMANDS} == {*COMMANDS}


def test_commands_are_maps_with_version_and_name():
    same("command", cbor2.loads(encode_command(create("t"))))
    same("command, bootstrap", cbor2.loads(encode_command(bootstrap())))
    same("command, bootstrap with settings",
         cbor2.loads(encode_command(bootstrap()._replace(settings=(("retention.ms", "7"),)))))
    same("command, node", cbor2.loads(encode_command(RegisterNode(node(4)))))
    same("command, node with an address for Kafka's clients",
         cbor2.loads(encode_command(RegisterNode(node(4, kafka_address="k:9092")))))
    same("command, topic with settings",
         cbor2.loads(encode_command(create("t")._replace(settings=(("retention.ms", "7"),)))))
    same("command, settings", cbor2.loads(encode_command(AlterSettings(
        "t", uuid(1), (SettingChange("retention.ms", "7"), SettingChange("segment.ms", None)),
        3))))
    same("command, plan", cbor2.loads(encode_command(apply_plan(transfer(1)))))


def test_words_of_plans_stay():
    assert (plans.NODE_STATES, plans.ACTIONS, plans.KINDS) == (NODE_STATES, PLAN_ACTIONS,
                                                               MOVE_KINDS)
    assert [int(phase) for phase in Phase] == [*range(PHASES)]
    assert (sinks.OPEN, sinks.COMMITTED, sinks.VOID) == ("open", "committed", "void")


#: Ends of a topic's partitions when a transaction begins.
ENDS = sinks.TopicEnds(1, (0, 0, 0, 0))


def full_metadata() -> dict:
    """A snapshot in which as many tables as possible have rows."""
    replica = Replica(
        create("t", 1, 4),
        SetNodeState(3, DRAINING),
        AllocateProducerIds(10),
        BumpProducerEpoch(1),
        RegisterNode(node(4)),
        RemoveNode(4),
        begin("s", topics=(ENDS,)),
        CommitTransaction(1, 1, 0),
        begin("s", 1, 2, (ENDS,)),
        AbortTransaction(1, 2),
        begin("s", 2, 3, (ENDS,)),
        AlterSettings("t", uuid(1), (SettingChange("retention.ms", "7"),)),
        AlterSettings("", uuid(0), (SettingChange("retention.ms", "8"),)),
        AddPartitions("t", uuid(1), 6, uuid(9)),
    )
    configuration = replica.state.configuration(2)
    replica(RecordMembers(2, 1, 5, configuration.voters))
    replica(RecoverGroup(3, 1, 2))
    place = replica.state.locate(replica.state.topic("t").incarnation)
    partition = replica.state.topic("t").incarnation
    replica(DecideSwitch(partition, place.epoch + 1, place.group % 8 + 1))
    replica(PublishSwitch(partition, place.epoch + 1, 0, 0))
    place = replica.state.locate(partition + 1)
    replica(DecideSwitch(partition + 1, place.epoch + 1, place.group % 8 + 1))
    replica(apply_plan(transfer(1, 4), change(2, 5, (1, 2), (2, 3)), switch(3, partition + 2),
                       plan_id="p1", cluster_id=replica.state.cluster_id.hex()))
    for phase in ("TRANSFERRING", "DONE"):
        replica(step(1, phase))
    replica(apply_plan(change(1, 6, (1, 2), (2, 3)), plan_id="p2", scope="repair",
                       cluster_id=replica.state.cluster_id.hex()))
    return cbor2.loads(cbor2.dumps(replica.state.snapshot()))


def test_snapshots_of_the_metadata():
    same("metadata", full_metadata())


def test_a_node_in_a_snapshot_has_an_address_for_kafka_s_clients_if_it_has_a_port_for_them():
    replica = Replica(RegisterNode(node(4, kafka_address="k:9092")))
    rows = [shape(row) for row in replica.state.snapshot()["nodes"]]
    [without] = SHAPES["metadata"]["nodes"]
    assert rows == [without] * 3 + [[*without, "text"]]
    assert state_machine.SNAPSHOT_VERSION == 9


def test_a_snapshot_that_is_sent_has_four_parts():
    """Index and value of the configuration, state of the partitions, metadata."""
    image = chunked_cbor.dumps(
        [3, [[1, 2], [3], [4]], PartitionStates(0, 7).snapshot(), full_metadata()]
    )
    read = snapshot_state.decode(PartialSnapshot(7, 2, len(image), 0, bytearray(image)),
                                 MetadataState.restore)
    assert (read.configuration_index, read.configuration) == (3, CONFIGURATION)
    assert read.partition_states.applied_index == 7
    assert read.state.topic("t").partitions == 6


# ---- files of the command, records of loads -----------------------------------------------------

#: Columns and fields of the records of ``__metrics``.
LOADS = {
    "groups": ("group", "bytes_in", "bytes_out", "stored"),
    "partitions": ("incarnation", "topic", "partition", "group", "epoch", "links", "bytes_in",
                   "records_in", "appends", "bytes_out", "records_out", "reads", "first_offset",
                   "next_offset", "moved_ms", "compacted"),
    "counters": ("bytes_in", "records_in", "appends", "bytes_out", "records_out", "fsync_p99_us",
                 "commit_p99_us"),
}


def test_files_of_plans_and_snapshots():
    before = grown(cluster(nodes(3), 8, [1 << 20] * 8), *nodes(4)[3:])
    same("snapshot.json", json.loads(cluster_file.save(before)))
    made = planner.make_plan(before, STRICT)
    assert made.moves, "no move"
    found = json.loads(plan_file.save(made))
    same("plan.json", {**found, "moves": {
        each["kind"]: each for each in found["moves"]}})


def test_records_of_loads():
    assert load_records.GROUP_COLUMNS == LOADS["groups"]
    assert load_records.PARTITION_COLUMNS == LOADS["partitions"]
    histogram = Histogram()
    counters = load_records.Counters((0,) * 5, histogram, histogram)
    assert (*load_records.counter_fields(counters, counters),) == LOADS["counters"]
