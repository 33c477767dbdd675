"""The metadata state machine: what it answers, and that replicas cannot differ."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import CodecError
from multiraft.types import Configuration
from multiraft.wire.errors import Code
from multiraft.wire.settings import SettingChange
from multiraft.wire.sinks import NONCE_BYTES, AbortTransaction, BeginTransaction, CommitTransaction
from node.metadata import commands as metadata_commands
from node.metadata import placement_table, producer_table, state_machine
from node.metadata.state_machine import (
    AllocateProducerIds,
    AlterSettings,
    Bootstrap,
    BumpProducerEpoch,
    CreateTopic,
    DecideSwitch,
    DeleteTopic,
    EpochEntry,
    GrowPool,
    InvalidCommand,
    MetadataState,
    NodeRecord,
    OpenPool,
    PublishSwitch,
    RecordMembers,
    RecoverGroup,
    RegisterNode,
    RemoveNode,
    SetNodeState,
    TrimEpochHistory,
    decode_command,
    encode_command,
    plan_bootstrap,
)
from placement import NotEnoughNodes, default_group

CLUSTER = bytes(range(16))


def node(node_id, **fields):
    return NodeRecord(**{"id": node_id, "incarnation": 100 + node_id, "boot_epoch": 1,
                         "client_address": f"127.0.0.1:{9000 + node_id}",
                         "peer_address": f"127.0.0.1:{9100 + node_id}", **fields})


def bootstrap(nodes=3, pool_size=8, factor=3):
    return plan_bootstrap(CLUSTER, map(node, range(1, nodes + 1)), pool_size, factor, hash_seed=5)


def uuid(number):
    return number.to_bytes(16, "big")


class Replica:
    """Applies commands as a replica does: from bytes, at growing indexes."""

    def __init__(self, *commands):
        self.state = MetadataState()
        for command in (bootstrap(), *commands):
            self(command)

    def __call__(self, command):
        result = self.state.apply(self.state.version + 2, decode_command(encode_command(command)))
        self.state._check()
        return result


def create(name, number=1, partitions=1):
    return CreateTopic(name, uuid(number), partitions)


# ---- bootstrap and nodes ------------------------------------------------------------------------


def test_bootstrap_places_every_group_and_nothing_before_it_counts():
    state = MetadataState()
    assert state.apply(1, create("t")).code == Code.INVALID_REQUEST
    assert state.apply(2, bootstrap(nodes=5)).code == Code.OK
    assert (state.pool_size, state.replication_factor, state.cluster_id) == (8, 3, CLUSTER)
    for group in range(1, 9):
        configuration = state.initial_configuration(group)
        assert len(configuration.voters) == 3 and not configuration.learners
    assert state.apply(3, bootstrap(nodes=5)).code == Code.INVALID_REQUEST


def test_every_node_has_a_copy_of_the_metadata_group():
    state = MetadataState()
    state.apply(1, bootstrap(nodes=5))
    configuration = state.initial_configuration(0)
    assert configuration.members() == (1, 2, 3, 4, 5)
    assert len(configuration.voters) == 3
    for node_id in range(1, 6):
        groups = state.groups_of(node_id)
        assert groups[0] == 0
        assert all(node_id in state.initial_configuration(group).voters for group in groups[1:])


def test_with_as_many_nodes_as_replicas_all_are_voters_everywhere():
    state = Replica().state
    assert state.groups_of(2) == tuple(range(9))
    assert state.initial_configuration(0) == Configuration(
        state.initial_configuration(0).voters, ())


def test_a_bootstrap_that_too_few_nodes_can_carry_is_not_made():
    with pytest.raises(NotEnoughNodes, match="factor 3 .* there are 2"):
        bootstrap(nodes=2)


@pytest.mark.parametrize("change, reason", [
    ({"nodes": (node(1), node(1), node(2))}, "appears twice"),
    ({"replicas": ((1, 2, 3),) * 8}, "need 9"),
    ({"replicas": ((1, 2, 3),) * 8 + ((1, 2),)}, "replication factor is 3"),
    ({"replicas": ((1, 2, 3),) * 8 + ((1, 2, 2),)}, "not distinct"),
    ({"replicas": ((1, 2, 3),) * 8 + ((1, 2, 7),)}, "not distinct nodes of the cluster"),
    ({"replicas": ((),) + ((1, 2, 3),) * 8}, "group 0"),
    ({"settings": tuple((f"name.{at}", "1") for at in range(65))}, "limit of 64")])
def test_a_contradictory_bootstrap_is_refused_and_leaves_nothing(change, reason):
    state = MetadataState()
    result = state.apply(1, bootstrap()._replace(**change))
    assert result.code != Code.OK and reason in result.error.text
    assert not state.settings.bytes
    assert state.cluster_id == b"" and state.nodes() == ()


# ---- topics -------------------------------------------------------------------------------------


def test_a_topic_is_found_by_name_and_its_partitions_by_incarnation():
    replica = Replica(create("a", 1, 3))
    topic = replica(create("b", 2, 4)).value
    assert topic == ("b", uuid(2), 4, 4, 8)
    assert replica.state.topic("b") == topic
    for partition in range(4):
        location = replica.state.locate(4 + partition)
        assert location[:2] == (topic, partition)
        assert location.group == default_group(4 + partition, 8, 5)
        assert (location.epoch, location.start_offset) == (1, 0)
    assert replica.state.locate(3).topic.name == "a"
    assert replica.state.locate(0) is None and replica.state.locate(8) is None
    assert (replica.state.topics_count, replica.state.partitions_count) == (2, 7)


def test_groups_are_counted_at_each_change_and_the_metadata_group_holds_none():
    replica = Replica(create("a", 1, 50))
    counts = [replica.state.group_partitions(group) for group in range(9)]
    assert counts[0] == 0 and sum(counts) == 50
    replica(DeleteTopic("a", uuid(1)))
    assert [replica.state.group_partitions(group) for group in range(9)] == [0] * 9


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249, "__metrics"])
def test_acceptable_names(name):
    assert Replica()(create(name)).code == Code.OK


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a\0", "٣"])
def test_unacceptable_names(name):
    result = Replica()(create(name))
    assert result.code == Code.INVALID_TOPIC_NAME and result.error.text and result.value is None


def test_a_name_is_taken_but_the_same_request_twice_is_one_topic():
    replica = Replica()
    first = replica(create("a", 1))
    assert replica(create("a", 1)) == first
    assert replica(create("a", 2)).code == Code.TOPIC_EXISTS
    assert replica.state.topics_count == 1


def test_delete_names_the_life_it_means():
    replica = Replica(create("a", 1))
    assert replica(DeleteTopic("a", uuid(2))).code == Code.UNKNOWN_TOPIC
    assert replica(DeleteTopic("a", uuid(1))).value.name == "a"
    assert replica(DeleteTopic("a", uuid(1))).code == Code.UNKNOWN_TOPIC
    assert replica.state.topic("a") is None and replica.state.locate(1) is None


def test_a_recreated_topic_has_other_incarnations():
    replica = Replica(create("a", 1, 2), DeleteTopic("a", uuid(1)))
    again = replica(create("a", 2, 2)).value
    assert again.incarnation == 3
    assert replica.state.locate(1) is None and replica.state.locate(2) is None
    assert replica.state.locate(4).topic == again


def test_listing_goes_through_names_in_order_page_by_page():
    replica = Replica(*(create(name, number) for number, name in enumerate("dbaec", start=1)))
    page, more = replica.state.list_topics(count_max=2)
    assert [topic.name for topic in page] == ["a", "b"] and more
    page, more = replica.state.list_topics(after="b", count_max=3)
    assert [topic.name for topic in page] == ["c", "d", "e"] and not more
    assert replica.state.list_topics(after="e") == ([], False)


@pytest.mark.parametrize("limit, amount, command, text", [
    ("TOPICS_MAX", 1, create("b", 2), "topics: 2 would exceed the limit of 1"),
    ("PARTITIONS_MAX", 3, create("b", 2, 3), "partitions of the cluster: 4"),
    ("PARTITIONS_PER_TOPIC_MAX", 4, create("b", 2, 5), "partitions of a topic: 5")])
def test_limits_state_limit_and_value(monkeypatch, limit, amount, command, text):
    monkeypatch.setattr(state_machine, limit, amount)
    result = Replica(create("a"))(command)
    assert result.code == Code.LIMIT_EXCEEDED and text in result.error.text
    assert result.error.limit == amount and result.error.value > amount


def test_a_topic_without_partitions_is_refused():
    assert Replica()(create("a", 1, 0)).code == Code.INVALID_REQUEST


def crowd_one_group(replica, topics):
    """Create topics and delete those that the hash does not put into group 1: it fills alone, and
    must overflow.  The last topic that the hash put there."""
    crowding = None
    for number in range(1, topics + 1):
        topic = replica(create(f"t{number}", number)).value
        if default_group(topic.incarnation, 8, 5) == 1:
            crowding = topic
        else:
            replica(DeleteTopic(topic.name, topic.id))
    return crowding


def test_an_overflowing_group_makes_exceptions_that_are_stored_found_and_deleted():
    replica = Replica()
    topic, state = crowd_one_group(replica, 300), replica.state
    assert 0 < state.exceptions_count < state.topics_count
    assert state.group_partitions(1) + state.exceptions_count == state.topics_count
    location = state.locate(topic.incarnation)
    assert location.group != 1
    assert state.epoch_history(topic, topic.incarnation) == (EpochEntry(1, location.group, 0),)
    before = state.group_partitions(location.group), state.exceptions_count
    replica(DeleteTopic(topic.name, topic.id))
    assert (state.group_partitions(location.group), state.exceptions_count) == (
        before[0] - 1, before[1] - 1)


def test_a_full_exception_table_leaves_new_partitions_where_the_hash_puts_them(monkeypatch):
    monkeypatch.setattr(placement_table, "EXCEPTIONS_MAX", 0)
    replica = Replica()
    crowd_one_group(replica, 300)
    state = replica.state
    assert state.exceptions_count == 0
    assert state.group_partitions(1) > 20


# ---- producers ----------------------------------------------------------------------------------


def test_blocks_of_producer_ids_do_not_overlap():
    replica = Replica()
    assert replica(AllocateProducerIds(1000)).value == (1, 1000)
    assert replica(AllocateProducerIds(10)).value == (1001, 10)


def test_an_epoch_is_bumped_and_fences_the_one_before():
    replica = Replica(AllocateProducerIds(10))
    assert replica(BumpProducerEpoch(3, 0)).value == (3, 1)
    assert replica(BumpProducerEpoch(3)).value == (3, 2)
    fenced = replica(BumpProducerEpoch(3, 0))
    assert fenced.code == Code.PRODUCER_FENCED and "epoch 0 was fenced by epoch 2" in (
        fenced.error.text)
    assert replica(BumpProducerEpoch(3, 2)).value == (3, 3)


def test_a_bump_that_is_repeated_grants_the_same_epoch_until_another_one_does():
    replica = Replica(AllocateProducerIds(10))
    assert [replica(BumpProducerEpoch(3, 20)).value for _ in range(3)] == [(3, 21)] * 3
    assert replica(BumpProducerEpoch(3, 30)).value == (3, 31), "somebody else named another one"
    assert replica(BumpProducerEpoch(3, 20)).code == Code.PRODUCER_FENCED
    assert replica(BumpProducerEpoch(3, 30)).value == (3, 31)


def test_the_highest_epoch_of_an_id_is_known_until_epochs_are_forgotten(monkeypatch):
    monkeypatch.setattr(producer_table, "PRODUCER_EPOCHS_MAX", 2)
    replica = Replica(AllocateProducerIds(10))
    highest = replica.state.producers.highest_epoch
    assert (highest(0), highest(1), highest(10), highest(11)) == (-1, 0, 0, -1)
    replica(BumpProducerEpoch(3, 5))
    assert (highest(3), highest(4)) == (6, 0)
    replica(BumpProducerEpoch(4, 5))
    assert (highest(3), highest(4), highest(5), highest(11)) == (6, 6, 32767, -1)


def test_a_producer_without_a_known_epoch_or_with_none_left_gets_a_new_id():
    replica = Replica(AllocateProducerIds(10))
    assert replica(BumpProducerEpoch(3)).value == (11, 0)
    assert replica(BumpProducerEpoch(4, 32767)).value == (12, 0)
    assert replica(BumpProducerEpoch(12, 0)).value == (12, 1)


@pytest.mark.parametrize("producer", [0, 11])
def test_an_id_that_was_never_handed_out_is_refused(producer):
    assert Replica(AllocateProducerIds(10))(BumpProducerEpoch(producer, 0)).code == (
        Code.INVALID_REQUEST)


def test_the_epoch_bumped_longest_ago_is_forgotten(monkeypatch):
    monkeypatch.setattr(producer_table, "PRODUCER_EPOCHS_MAX", 2)
    replica = Replica(AllocateProducerIds(10))
    for producer, epoch in ((1, 5), (2, 5), (1, 6), (3, 5)):  # 2 is forgotten
        assert replica(BumpProducerEpoch(producer, epoch)).value == (producer, epoch + 1)
    assert replica(BumpProducerEpoch(1)).value == (1, 8)
    assert replica(BumpProducerEpoch(2)).value == (11, 0)


def test_a_bump_of_a_known_id_forgets_nobody(monkeypatch):
    monkeypatch.setattr(producer_table, "PRODUCER_EPOCHS_MAX", 2)
    replica = Replica(AllocateProducerIds(10))
    for producer, epoch in ((1, 5), (2, 5), (2, 6)):
        replica(BumpProducerEpoch(producer, epoch))
    assert replica(BumpProducerEpoch(1)).value == (1, 7)


# ---- commands as bytes --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        bootstrap(nodes=5),
        RegisterNode(node(1, rack="r")),
        create("a"),
        DeleteTopic("a", uuid(1)),
        AllocateProducerIds(1),
        BumpProducerEpoch(3, -1),
        DecideSwitch(3, 2, 7),
        PublishSwitch(3, 2, 100, 5),
        TrimEpochHistory(3, 50),
    ],
    ids=lambda command: type(command).__name__,
)
def test_commands_come_back_from_bytes(command):
    assert decode_command(encode_command(command)) == command
    assert decode_command(memoryview(encode_command(command))) == command


@pytest.mark.parametrize("command", [
    create("a")._replace(topic_id=b"short"), create("a")._replace(partitions=-1),
    AllocateProducerIds(0), AllocateProducerIds(1 << 20), BumpProducerEpoch(3, 40_000),
    RegisterNode(node(-1)), RegisterNode(node(1, weight=-1)), create("a")._replace(name=7),
    RegisterNode(node(1, client_address="x" * 301)), create("x" * 5000)])
def test_what_a_replica_could_not_read_is_not_encoded(command):
    with pytest.raises(InvalidCommand):
        encode_command(command)


@pytest.mark.parametrize("payload", [
    b"", b"\xff", cbor2.dumps([1]), cbor2.dumps({"v": 2, "op": "delete_topic"}),
    cbor2.dumps({"v": 1, "op": "forget_everything"}), cbor2.dumps({"v": 1, "op": ["x"]}),
    cbor2.dumps({"v": 1, "op": "allocate_producer_ids"}),
    cbor2.dumps({"v": 1, "op": "allocate_producer_ids", "count": 1, "extra": 1}),
    cbor2.dumps({"v": 1, "op": "allocate_producer_ids", "count": 1}) + b"\0",
    bytes(metadata_commands.COMMAND_BYTES_MAX + 1)])
def test_bytes_that_are_no_command_are_a_typed_error(payload):
    with pytest.raises(InvalidCommand):
        decode_command(payload)


def test_the_largest_bootstrap_fits_its_limit():
    nodes = tuple(node(node_id) for node_id in range(2**31 - 10, 2**31 - 1))
    replicas = (tuple(known.id for known in nodes),) * ((1 << 15) + 1)
    command = Bootstrap(CLUSTER, nodes, 1 << 15, 9, 2**64 - 1, replicas)
    assert len(encode_command(command)) < metadata_commands.COMMAND_BYTES_MAX


# ---- determinism --------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d", "bad name", ".."])
ids = st.integers(1, 3).map(uuid)
setting_names = st.sampled_from(["retention.ms", "max.message.bytes"])
changes = st.dictionaries(setting_names, st.sampled_from(["500", "7", None]), min_size=1).map(
    lambda values: tuple(SettingChange(*pair) for pair in values.items()))
pairs = st.none() | st.dictionaries(setting_names, st.sampled_from(["500", "7"])).map(
    lambda values: tuple(values.items()))
creations = st.builds(CreateTopic, names, ids, st.integers(0, 9), pairs)


def alterations(expected):
    topics = st.tuples(names, ids) | st.just(("", uuid(0)))
    return st.builds(lambda topic, changed, at: AlterSettings(*topic, changed, at), topics, changes,
                     expected)
commands = st.lists(st.one_of(
    creations,
    creations,
    alterations(st.none() | st.integers(0, 20)),
    st.builds(DeleteTopic, names, ids),
    st.builds(AllocateProducerIds, st.integers(1, 3)),
    st.builds(BumpProducerEpoch, st.integers(0, 5), st.integers(-1, 3)),
    st.builds(lambda number, boot, told: RegisterNode(node(
        number, boot_epoch=boot, kafka_address=told)),
              st.integers(0, 5), st.integers(0, 3), st.sampled_from(["", "k:9092"])),
    st.builds(RemoveNode, st.integers(1, 6)),
    st.builds(DecideSwitch, st.integers(1, 9), st.integers(1, 4), st.integers(0, 9)),
    st.builds(PublishSwitch, st.integers(1, 9), st.integers(1, 4), st.integers(0, 9), st.just(1)),
    st.builds(TrimEpochHistory, st.integers(1, 9), st.integers(0, 9)),
    st.builds(GrowPool, st.just(9), st.permutations([1, 2, 3]).map(lambda order: (tuple(order),))),
    st.builds(OpenPool, st.integers(8, 10)),
    st.builds(lambda group, at, order: RecordMembers(group, 1, at, tuple(order[:3])),
              st.integers(0, 9), st.integers(0, 3), st.permutations([1, 2, 3, 4]))), max_size=40)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(commands, st.integers(0, 40))
def test_a_replica_that_starts_from_a_snapshot_answers_as_one_that_saw_everything(script, cut):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(producer_table, "PRODUCER_EPOCHS_MAX", 2)
        patch.setattr(state_machine, "PARTITIONS_MAX", 40)
        first, second = Replica(), Replica()
        for position, command in enumerate(script):
            if position == cut:
                bytes_saved = cbor2.dumps(second.state.snapshot())
                second.state = MetadataState.restore(cbor2.loads(bytes_saved))
            assert first(command) == second(command)
        assert cbor2.dumps(first.state.snapshot()) == cbor2.dumps(second.state.snapshot())
        for incarnation in range(0, 60):
            assert first.state.locate(incarnation) == second.state.locate(incarnation)
        assert first.state.list_topics() == second.state.list_topics()


def test_a_snapshot_is_not_changed_by_what_comes_after():
    replica = Replica(create("a"))
    snapshot = replica.state.snapshot()
    saved = cbor2.dumps(snapshot)
    replica(create("b", 2))
    replica(DeleteTopic("a", uuid(1)))
    assert cbor2.dumps(snapshot) == saved


@pytest.mark.parametrize("damage", [
    lambda s: s.pop("topics"), lambda s: s.update(version=10), lambda s: s.update(topics=[[1]]),
    lambda s: s.update(nodes=3), lambda s: s.update(chains=[[1, 2, 3]])])
def test_a_malformed_snapshot_is_a_typed_error(damage):
    snapshot = Replica(create("a")).state.snapshot()
    damage(snapshot)
    with pytest.raises(CodecError):
        MetadataState.restore(snapshot)


def test_an_index_is_applied_once():
    state = Replica().state
    with pytest.raises(AssertionError):
        state.apply(state.version, create("a"))


# ---- commands that are proposed twice -----------------------------------------------------------

#: The refusal of a command that is proposed again and has nothing left to do; None = it is answered
#: as before.
_GONE = {DeleteTopic: Code.UNKNOWN_TOPIC}
#: Commands that grant again when they are repeated, without taking an id or epoch from another
#: producer.
_GRANTS = (AllocateProducerIds, BumpProducerEpoch)

twice = st.lists(
    st.one_of(
        creations, alterations(st.none()), st.builds(DeleteTopic, names, ids),
        st.builds(AllocateProducerIds, st.integers(1, 3)),
        st.builds(BumpProducerEpoch, st.integers(0, 5), st.integers(-1, 3)),
        st.builds(lambda number, boot: RegisterNode(node(number, boot_epoch=boot)),
                  st.integers(0, 5), st.integers(0, 3)),
        st.builds(RemoveNode, st.integers(1, 6)),
        st.builds(SetNodeState, st.integers(1, 4), st.sampled_from(["alive", "draining"])),
        st.builds(RecoverGroup, st.integers(1, 9), st.integers(1, 4), st.integers(1, 4)),
        st.builds(DecideSwitch, st.integers(1, 9), st.integers(1, 4), st.integers(0, 9)),
        st.builds(PublishSwitch, st.integers(1, 9), st.integers(1, 4), st.integers(0, 9),
                  st.just(1)),
        st.builds(TrimEpochHistory, st.integers(1, 9), st.integers(0, 9)),
        st.builds(GrowPool, st.just(9), st.just(((1, 2, 3),))),
        st.builds(OpenPool, st.integers(8, 10)),
        st.builds(lambda *parts: BeginTransaction(*parts), st.sampled_from(["s", "r"]),
                  st.integers(0, 3),
                  st.sampled_from([bytes(NONCE_BYTES), bytes([1] * NONCE_BYTES)])),
        st.builds(lambda *parts: CommitTransaction(*parts), *[st.integers(0, 3)] * 3),
        st.builds(AbortTransaction, st.integers(0, 3), st.integers(0, 3))), max_size=40)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(twice)
def test_a_command_that_is_proposed_twice_is_carried_out_once(script):
    replica = Replica()
    for command in script:
        first = replica(command)
        before = replica.state.snapshot()
        again = replica(command)
        if isinstance(command, _GRANTS):
            assert again.code == first.code
            continue
        after = {**replica.state.snapshot(), "index": before["index"]}
        assert cbor2.dumps(_plain(after)) == cbor2.dumps(_plain(before)), command
        if first.code == Code.OK:
            assert again.code == _GONE.get(type(command), Code.OK), (command, again)


def _plain(snapshot: dict) -> dict:
    """Without the index at which something of the nodes was changed last."""
    return {key: value for key, value in snapshot.items() if key != "nodes_version"}


def test_a_node_answers_for_its_status_before_the_bootstrap():
    assert MetadataState().metadata_members() == Configuration(())
