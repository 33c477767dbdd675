"""Nodes in the metadata: who may have which id, who may be forgotten, who is in which group."""

import cbor2
import pytest

from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.errors import Code
from node.metadata import node_table
from node.metadata.state_machine import (
    MetadataState,
    RecordMembers,
    RegisterNode,
    RemoveNode,
    decode_command,
    plan_bootstrap,
)
from tests.node.metadata.test_state_machine import CLUSTER, Replica, bootstrap, node


def test_a_node_may_change_addresses_rack_and_weight():
    replica = Replica()
    moved = node(2, boot_epoch=2, client_address="127.0.0.1:1", rack="r", weight=7)
    assert replica(RegisterNode(moved)) == (Code.OK, moved, None)
    assert replica.state.node(2) == moved
    assert replica(RegisterNode(node(4))).code == Code.OK
    assert [known.id for known in replica.state.nodes()] == [1, 2, 3, 4]


def test_a_node_with_another_data_directory_is_refused():
    replica = Replica()
    result = replica(RegisterNode(node(2, incarnation=5)))
    assert result.code == Code.WRONG_INCARNATION and "another data directory" in result.error.text
    assert replica.state.node(2) == node(2)


def test_a_registration_that_a_later_start_overtook_is_refused():
    replica = Replica(RegisterNode(node(2, boot_epoch=9)))
    assert replica(RegisterNode(node(2, boot_epoch=8))).code == Code.STALE_BOOT_ID
    assert replica(RegisterNode(node(2, boot_epoch=9))).code == Code.OK, "proposed twice"


def test_an_unknown_incarnation_is_learned_at_the_first_start():
    state = MetadataState()
    nodes = [node(node_id, incarnation=0) for node_id in (1, 2, 3)]
    state.apply(1, plan_bootstrap(CLUSTER, nodes, 1, 3, 0))
    assert state.apply(2, RegisterNode(node(1))).code == Code.OK
    assert state.apply(3, RegisterNode(node(1, incarnation=9))).code == Code.WRONG_INCARNATION


def test_nobody_joins_under_the_id_of_a_node_that_has_not_told_its_incarnation():
    state = MetadataState()
    state.apply(1, plan_bootstrap(CLUSTER, [node(1, incarnation=0), node(2)], 1, 1, 0))
    assert state.apply(2, RegisterNode(node(1), new=True)).code == Code.WRONG_INCARNATION
    assert state.apply(3, RegisterNode(node(2), new=True)).code == Code.OK, "asked twice"


def test_a_registration_without_an_incarnation_is_refused():
    assert Replica()(RegisterNode(node(4, incarnation=0))).code == Code.INVALID_REQUEST


def test_the_next_free_id_is_above_all_that_ever_were():
    replica = Replica()
    assert replica(RegisterNode(node(9))).value.id == 9
    assert replica(RemoveNode(9)).code == Code.OK
    joined = replica(RegisterNode(node(0, incarnation=77)))
    assert joined.value.id == 10
    assert replica(RegisterNode(node(0, incarnation=77))).value.id == 10, "asked twice"


def test_a_rack_name_is_bounded_in_bytes():
    result = Replica()(RegisterNode(node(2, rack="\xe4" * 200)))
    assert result.code == Code.INVALID_REQUEST and "255 bytes" in result.error.text


def test_the_limit_of_nodes_is_stated(monkeypatch):
    monkeypatch.setattr(node_table, "NODES_MAX", 3)
    result = Replica()(RegisterNode(node(4)))
    assert (result.code, result.error.limit, result.error.value) == (Code.LIMIT_EXCEEDED, 3, 4)


# ---- members -------------------------------------------------------------------------------------


def record(group, version, voters, learners=(), outgoing=(), incarnation=1):
    return RecordMembers(group, incarnation, version, voters, learners, outgoing)


def test_members_are_as_created_until_their_leader_says_otherwise():
    replica = Replica(RegisterNode(node(4)))
    assert set(replica.state.configuration(5).voters) == {1, 2, 3}
    assert replica(record(5, 10, (1, 2), (4,), (1, 2, 3))).code == Code.OK
    assert replica.state.configuration(5) == Configuration((1, 2), (4,), (1, 2, 3))
    assert 5 in replica.state.groups_of(4)
    assert METADATA_GROUP in replica.state.groups_of(4), "a learner by being a node"


def test_what_is_recorded_of_a_group_never_goes_back():
    replica = Replica(record(5, 10, (1, 2)), record(5, 9, (3,)), record(5, 10, (3,)))
    assert replica.state.configuration(5).voters == (1, 2)
    replica(record(5, 1, (2,), incarnation=2))
    assert replica.state.configuration(5).voters == (2,)
    assert replica(record(99, 1, (2,))).code == Code.INVALID_REQUEST


# ---- removing ------------------------------------------------------------------------------------


def moved_off(node_id, to, groups=range(9)):
    """Every group with ``to`` in the place of ``node_id``."""
    return [record(group, 5, tuple(to if each == node_id else each for each in (1, 2, 3)))
            for group in groups]


def test_a_member_is_not_forgotten_and_the_refusal_says_what_to_run():
    replica = Replica(RegisterNode(node(4)))
    refused = replica(RemoveNode(3))
    assert (refused.code, refused.error.value) == (Code.INVALID_REQUEST, 9)
    assert "multiraft node replace 3" in refused.error.text
    for command in moved_off(3, 4, range(8)):
        replica(command)
    assert "1 groups (8)" in replica(RemoveNode(3)).error.text
    assert replica.state.node(3) is not None


def test_a_removed_node_never_comes_back():
    replica = Replica(RegisterNode(node(4)), *moved_off(3, 4))
    assert replica(RemoveNode(3)).value == node(3)
    assert replica(RemoveNode(3)).code == Code.OK, "proposed twice"
    for back in (node(3, boot_epoch=5), node(3, incarnation=8)):
        assert replica(RegisterNode(back)).code == Code.NODE_REMOVED
    assert replica(RemoveNode(17)).code == Code.UNKNOWN_NODE


def test_a_node_that_is_only_a_learner_of_the_metadata_group_may_go():
    replica = Replica(RegisterNode(node(4)))
    assert replica(RemoveNode(4)).code == Code.OK
    assert replica.state.configuration(METADATA_GROUP).learners == ()


def test_a_joint_configuration_holds_its_outgoing_voters():
    replica = Replica(RegisterNode(node(4)), *moved_off(3, 4),
                      record(2, 6, (1, 2, 4), (), (1, 2, 3)))
    assert "(2)" in replica(RemoveNode(3)).error.text


# ---- formats -------------------------------------------------------------------------------------


def test_commands_and_snapshots_of_the_first_release_are_read():
    old = [1, 0, 0, "127.0.0.1:1", "127.0.0.1:2", "r", 100]
    command = decode_command(cbor2.dumps({"v": 1, "op": "register_node", "node": old}))
    assert (command.node.rack, command.node.version, command.new) == ("r", "", False)
    snapshot = Replica().state.snapshot()
    snapshot.update(version=1, nodes=[list(row[:7]) for row in snapshot["nodes"]])
    for later in ("nodes_version", "removed", "members"):
        del snapshot[later]
    restored = MetadataState.restore(cbor2.loads(cbor2.dumps(snapshot)))
    assert [row.id for row in restored.nodes()] == [1, 2, 3]
    restored._check()


def test_a_snapshot_carries_removed_nodes_and_members():
    replica = Replica(RegisterNode(node(4)), *moved_off(3, 4), RemoveNode(3))
    restored = MetadataState.restore(cbor2.loads(cbor2.dumps(replica.state.snapshot())))
    assert restored.apply(restored.version + 1, RegisterNode(node(3))).code == Code.NODE_REMOVED
    assert restored.groups_of(4) == tuple(range(9))
    assert restored.table.version == replica.state.table.version


@pytest.mark.parametrize("nodes", [3, 5])
def test_the_table_begins_with_the_bootstrap(nodes):
    state = MetadataState()
    state.apply(1, bootstrap(nodes=nodes))
    assert state.table.version == 1
    assert len(state.nodes()) == nodes
