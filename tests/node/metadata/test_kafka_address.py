"""The address for Kafka's clients in commands, snapshots and known_nodes.json: absent at nodes
without one, so that the bytes of earlier releases stay."""

import json

import cbor2
import pytest

from multiraft.errors import CodecError
from multiraft.storage.errors import CorruptFile
from multiraft.wire.messages import ADDRESS_MAX
from node.metadata.commands import InvalidCommand, NodeRecord, decode_command, encode_command
from node.metadata.state_machine import MetadataState, RegisterNode, plan_bootstrap
from node.peers import registry
from tests.node.metadata.test_state_machine import CLUSTER, Replica, node
from tests.node.peers.test_registry import RealFilesystem

TOLD = "k.example.org:9092"
#: Written before records had the field.
REGISTER = (
    "a4617601626f706d72656769737465725f6e6f6465646e6f64658904182c0363683a3463703a34617218646a302e32"
    "2e302e646576301b0000018bcfe56800636e6577f5")
BOOTSTRAP = (
    "a8617601626f7069626f6f7473747261706a636c75737465725f696450000102030405060708090a0b0c0d0e0f656e"
    "6f646573818901000063683a3163703a31601864600069706f6f6c5f73697a6501727265706c69636174696f6e5f66"
    "6163746f720169686173685f7365656405687265706c696361738281018101")


@pytest.mark.parametrize(("payload", "command"), [
    (REGISTER, RegisterNode(NodeRecord(4, 44, 3, "h:4", "p:4", "r", 100, "0.2.0.dev0",
                                       1_700_000_000_000), True)),
    (BOOTSTRAP, plan_bootstrap(CLUSTER, (NodeRecord(1, 0, 0, "h:1", "p:1"),), 1, 1, 5))])
def test_a_command_of_before_is_read_and_one_without_address_has_its_bytes(payload, command):
    assert decode_command(bytes.fromhex(payload)) == command
    assert encode_command(command).hex() == payload


def test_a_row_of_the_first_release_has_neither_version_nor_start_nor_address():
    row = [4, 44, 3, "h:4", "p:4", "r", 100]
    fields = {"v": 1, "op": "register_node", "node": row, "new": False}
    assert decode_command(cbor2.dumps(fields)) == RegisterNode(NodeRecord(*row))


def test_commands_keep_the_address():
    named = node(1, kafka_address=TOLD)
    for command in (RegisterNode(named), plan_bootstrap(CLUSTER, (named, node(2)), 2, 2, 5)):
        payload = encode_command(command)
        assert decode_command(payload) == command
        rows = cbor2.loads(payload)
        rows = rows["nodes"] if "nodes" in rows else [rows["node"]]
        assert [len(row) for row in rows] == [10, 9][:len(rows)]


def test_a_command_with_an_address_that_is_too_long_is_not_encoded():
    with pytest.raises(InvalidCommand, match=f"at most {ADDRESS_MAX} characters"):
        encode_command(RegisterNode(node(1, kafka_address="x" * (ADDRESS_MAX + 1))))


def test_a_snapshot_keeps_the_address_and_has_no_field_for_none():
    replica = Replica(RegisterNode(node(2, kafka_address=TOLD)))
    snapshot = cbor2.loads(cbor2.dumps(replica.state.snapshot()))
    assert [len(row) for row in snapshot["nodes"]] == [9, 10, 9]
    restored = MetadataState.restore(snapshot)
    assert restored.nodes() == replica.state.nodes()
    assert [known.kafka_address for known in restored.nodes()] == ["", TOLD, ""]
    assert restored.snapshot() == replica.state.snapshot()


def test_a_snapshot_of_the_first_release_has_nodes_without_it():
    snapshot = cbor2.loads(cbor2.dumps(Replica().state.snapshot()))
    snapshot["nodes"] = [row[:7] for row in snapshot["nodes"]]
    assert MetadataState.restore(snapshot).nodes() == Replica().state.nodes()


@pytest.mark.parametrize("row", [[*node(1), 5], [*node(1)[:9], 5], [*node(1)[:9], None]])
def test_a_snapshot_with_another_field_in_its_place_is_malformed(row):
    snapshot = Replica().state.snapshot()
    with pytest.raises(CodecError):
        MetadataState.restore({**snapshot, "nodes": [row, *snapshot["nodes"][1:]]})


def test_a_node_may_change_add_and_drop_its_address():
    replica = Replica()
    for epoch, told in enumerate((TOLD, "10.0.0.2:9092", ""), 2):
        replica(RegisterNode(node(2, boot_epoch=epoch, kafka_address=told)))
        assert replica.state.node(2).kafka_address == told
        assert replica.state.table.version == replica.state.version


def test_known_nodes_keep_the_address(tmp_path):
    disk = RealFilesystem()
    facts = registry.of_new_cluster(CLUSTER, 4, 1, (node(1), node(2)))
    registry.write(disk, str(tmp_path), facts)
    rows = json.loads((tmp_path / registry.KNOWN_NODES_FILE).read_text())
    assert {len(row) for row in (*rows["initial"], *rows["nodes"])} == {9}
    assert registry.read(disk, str(tmp_path)) == facts
    named = facts._replace(nodes={**facts.nodes, 2: node(2, kafka_address=TOLD)})
    registry.write(disk, str(tmp_path), named)
    assert registry.read(disk, str(tmp_path)) == named


def test_known_nodes_with_another_field_in_its_place_are_damaged(tmp_path):
    facts = registry.of_new_cluster(CLUSTER, 4, 1, (node(1, kafka_address=5),))
    registry.write(RealFilesystem(), str(tmp_path), facts)
    with pytest.raises(CorruptFile):
        registry.read(RealFilesystem(), str(tmp_path))
