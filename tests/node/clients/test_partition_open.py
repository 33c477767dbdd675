"""Openings of partitions after a PARTITION_DELETE: by metadata that know the deletion only."""

from __future__ import annotations

import pytest

from multiraft.partitions.retention_records import delete_payload
from multiraft.types import EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import CreateTopic, DeleteRecords, RecordDeletion
from multiraft.wire.placements import SwitchPartition
from node.clients import partition_open
from node.clients.error_codes import StaleMetadata
from tests.node.clients.test_switched_partition import group_of, groups_of, put
from tests.node.harness import Client, in_trio, serving, until
from tests.partitions.test_state import control, opened


@pytest.mark.parametrize("metadata_index, opens", [(6, False), (7, True), (8, True)])
def test_metadata_below_that_of_a_deletion_open_nothing(metadata_index, opens):
    states = opened()
    control(states, EntryKind.PARTITION_DELETE, 0, payload=delete_payload(7, [1 << 40]))
    if opens:
        partition_open.require_known_deletions(states, metadata_index)
        return
    with pytest.raises(StaleMetadata, match="applied metadata 6; group 3 opens .* from 7 on"):
        partition_open.require_known_deletions(states, metadata_index)


async def forget(node, group: int, ahead: int, *partitions: int) -> int:
    """Have a group forget partitions by metadata that this node does not have, ``ahead`` of its
    own. Return the index of those."""
    index = node.metadata.log.state.version + ahead
    states = node.env.store.partition_states[group]
    node.core.propose(group, EntryKind.PARTITION_DELETE, delete_payload(index, partitions))
    node.request_round()
    await until(lambda: states.applied_group_state.opens_from == index, "the entry is applied")
    return index


@in_trio
async def test_a_batch_opens_no_partition_by_older_metadata(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"a")
        group = group_of(node, topic)
        states = node.env.store.partition_states[group]
        await forget(node, group, 2, topic)
        assert states.epoch_of(topic) == 0
        refused = await client.produce(topic, b"b")
        assert (refused.code, states.epoch_of(topic)) == (Code.STALE_METADATA, 0)
        await client.ask(CreateTopic("u"))
        await client.ask(CreateTopic("v"))  # and the node has the metadata at that index
        assert (await client.produce(topic, b"b")).code == Code.OK


@in_trio
async def test_a_partition_that_is_open_takes_batches_meanwhile(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        await forget(node, group_of(node, topic), 2, 1 << 40)
        assert (await client.produce(topic, b"b")).base_offset == 1
        [row] = (await client.ask(DeleteRecords((RecordDeletion(topic, 1),), 5_000))).reply.results
        assert (row.code, row.log_start) == (Code.OK, 1)


@in_trio
async def test_a_switch_waits_until_the_next_groups_leader_has_the_metadata(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        place = node.metadata.directory.locate(topic)
        to_group = place.group % groups_of(node) + 1
        await forget(node, to_group, 4, 1 << 40)
        answer = await client.ask(SwitchPartition(topic, place.epoch + 1, to_group))
        assert answer.code == Code.OK
        assert (await client.produce(topic, b"b")).base_offset == 1
        states = node.env.store.partition_states
        assert states[place.group].is_open(topic) and states[to_group].epoch_of(topic) == 0
        for name in "uvw":
            await client.ask(CreateTopic(name))
        await until(lambda: node.metadata.directory.locate(topic).group == to_group, "published")
        assert (await client.produce(topic, b"c")).base_offset == 2
