"""Deletion of partitions that a group needs no longer: which ones, by which metadata, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.errors import NotLeader, QueueFull
from multiraft.partitions.records import open_payload
from multiraft.partitions.retention_records import parse_delete
from multiraft.partitions.state import PartitionStates
from multiraft.types import EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import DeleteTopic
from node.metadata import node_releases
from node.metadata.placement_table import EpochEntry, Switch
from node.replicas import partition_deletion
from node.replicas.partition_deletion import PartitionDeletion
from tests.node.admin.test_record_deletion import deleted
from tests.node.clients.test_fetch import fetch, result
from tests.node.clients.test_switched_partition import group_of, put, switch
from tests.node.harness import Client, in_trio, make_node, running, serving, silent_log, until
from tests.partitions.test_state import control, seal

HOME, OTHER = 1, 2
PARTITION = 7


class World:
    """A node that leads some groups, with metadata that a test sets."""

    def __init__(self, *led: int):
        self.led = led or (HOME, OTHER)
        self.states = {group: PartitionStates(group) for group in (HOME, OTHER)}
        self.places: dict[int, SimpleNamespace] = {}
        self.proposed: list[tuple[int, int, tuple[int, ...]]] = []
        self.failure: Exception | None = None
        self.status = self
        self.state = self
        self.version, self.next_incarnation, self.hash_seed = 50, 100, 0
        self.deletion = PartitionDeletion(self, self.states, self, lambda: None, None,
                                          silent_log())

    def nodes(self):
        return ()

    def is_leader(self, group):
        return group in self.led

    def locate(self, partition):
        return self.places.get(partition)

    def led_groups(self):
        return list(self.led)

    def propose(self, group, kind, payload):
        if self.failure is not None:
            raise self.failure
        assert kind == EntryKind.PARTITION_DELETE
        found = parse_delete(payload)
        control(self.states[group], kind, 0, payload=payload)
        self.proposed.append((group, found.metadata_index, found.partitions))

    def open(self, group=HOME, partition=PARTITION, epoch=1):
        control(self.states[group], EntryKind.PARTITION_OPEN, partition,
                payload=open_payload(epoch))

    def place(self, *groups: int, switch=None, partition=PARTITION):
        history = tuple(EpochEntry(epoch, group, 0) for epoch, group in enumerate(groups, 1))
        self.places[partition] = SimpleNamespace(
            group=groups[-1], epoch=len(groups), epoch_history=history, switch=switch)

    def run(self):
        return sum(1 for _ in self.deletion.steps())

    def led_pass(self, *groups: int):
        for group in groups or (HOME,):
            self.deletion.lead(group)
        self.run()
        return self.proposed


def test_a_new_leader_deletes_what_the_metadata_do_not_know():
    world = World()
    world.open(partition=PARTITION)
    world.open(partition=8)
    world.place(HOME, partition=8)
    assert world.led_pass() == [(HOME, 50, (PARTITION,))]
    assert world.states[HOME].group_state.opens_from == 50
    assert not world.deletion.is_due
    assert world.led_pass() == [(HOME, 50, (PARTITION,))], "and nothing twice"


def test_metadata_that_lag_behind_do_not_judge_partitions_created_later():
    world = World()
    world.next_incarnation = PARTITION
    world.open()
    assert world.led_pass() == []


@pytest.mark.parametrize("sealed, groups, to_group, gone", [
    (True, (HOME, OTHER), 0, False),  # its records are read here
    (True, (OTHER, OTHER), 0, True),
    (True, (OTHER, OTHER), HOME, False),  # it is on its way back
    (False, (OTHER, OTHER), 0, False),  # opened here by metadata that this node has not
    (True, (OTHER,), 0, False),  # sealed in an epoch that the metadata do not know to be over
])
def test_a_sealed_partition_goes_when_neither_history_nor_switch_names_the_group(
        sealed, groups, to_group, gone):
    world = World()
    world.open()
    if sealed:
        seal(world.states[HOME], PARTITION)
    world.place(*groups, switch=Switch(3, to_group) if to_group else None)
    world.deletion.left(PARTITION, [HOME])
    world.run()
    assert bool(world.proposed) is gone


def test_only_the_leader_proposes_and_a_lost_leadership_forgets():
    world = World(OTHER)
    world.open()
    assert world.led_pass() == []
    world.led = (HOME,)
    world.failure = NotLeader(HOME, 2)
    assert world.led_pass() == []
    assert not world.deletion.is_due


def test_a_refused_proposal_is_repeated_with_the_metadata_of_then():
    world = World()
    world.open()
    world.failure = QueueFull("full", limit=1, value=2)
    assert world.led_pass() == []
    assert world.deletion.is_due
    world.failure, world.version = None, 51
    world.run()
    assert world.proposed == [(HOME, 51, (PARTITION,))]


def test_nothing_is_examined_while_a_node_does_not_know_the_entry(monkeypatch):
    world = World()
    world.open()
    monkeypatch.setattr(partition_deletion, "retention_entries_fault", lambda nodes: "upgrade")
    assert world.led_pass() == [] and world.deletion.is_due
    monkeypatch.undo()
    world.run()
    assert world.proposed == [(HOME, 50, (PARTITION,))]
    assert node_releases.retention_entries_fault(()) == ""


def test_a_large_group_takes_many_steps_and_entries_of_bounded_size(monkeypatch):
    monkeypatch.setattr(partition_deletion, "ROWS_PER_ENTRY", 100)
    world = World()
    world.next_incarnation = 1000
    for partition in range(1, 501):
        world.open(partition=partition)
    world.deletion.lead(HOME)
    assert world.run() >= 500 // 128 + 5
    assert [len(partitions) for _, _, partitions in world.proposed] == [100] * 5


def test_a_snapshot_of_the_metadata_has_all_led_groups_examined():
    world = World()
    world.open(OTHER)
    world.deletion.replaced(world.state)
    assert not world.deletion.is_due
    world.deletion.replaced(SimpleNamespace())
    world.run()
    assert world.proposed == [(OTHER, 50, (PARTITION,))]


# ---- real nodes ----------------------------------------------------------------------------------


@in_trio
async def test_the_state_and_the_index_of_a_deleted_topic_go_and_stay_gone(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 20)
        for partition in range(20):
            await client.produce(topic + partition, b"a")
        groups = {topic + partition: group_of(node, topic + partition) for partition in range(20)}
        assert (await client.ask(DeleteTopic("t"))).code == Code.OK
        store = node.env.store

        def left():
            return [partition for partition, group in groups.items()
                    if store.partition_states[group].applied(partition) is not None
                    or partition in store.table.log(group).partitions]

        await until(lambda: not left(), "all partitions are deleted")
        assert node.replicas.partition_deletion.deleted == 20
        answer = result(await client.ask(fetch(topic, 0)))
        assert answer.code == Code.UNKNOWN_PARTITION
    async with running(make_node(node.config)) as again:
        store = again.env.store
        assert not left()


@in_trio
async def test_a_group_forgets_a_switched_partition_when_its_offsets_are_deleted(
        tmp_path, monkeypatch):
    from node.replicas import log_start_propagation
    monkeypatch.setattr(log_start_propagation, "INTERVAL_S", 0.05)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"a")
        home = group_of(node, topic)
        await switch(node, client, topic)
        await put(client, topic, 1, b"b")
        states = node.env.store.partition_states[home]
        assert states.applied(topic).sealed
        assert await deleted(client, topic, 1) == (Code.OK, 1)
        await until(lambda: states.applied(topic) is None, "the first group has deleted it")
        assert (await put(client, topic, 2, b"c")).base_offset == 2
        while group_of(node, topic) != home:
            await switch(node, client, topic)
        assert (await put(client, topic, 3, b"d")).base_offset == 3
