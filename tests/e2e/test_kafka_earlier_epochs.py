"""A switched partition whose earlier groups are on other nodes, read by Kafka's protocol: the
leader of the last epoch serves every offset."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import pytest
import trio

from multiraft.core import batch_header, split_batches
from multiraft.kafka.error_codes import ErrorCode
from multiraft.wire.errors import Code
from multiraft.wire.messages import DeleteRecords, RecordDeletion
from tests.e2e.world import steady, wait_for
from tests.node.kafka.kafka_client import KafkaClient, joined
from tests.node.kafka.test_kafka_epochs import timed

#: Each group has one replica, so that no node has those of all epochs.
SHAPE = {"nodes": 3, "groups": 6, "factor": 1, "configure": steady}
PARTITION = 0
EPOCHS, BATCHES = 4, 3


def history_of(world, topic: str) -> tuple:
    """Return the epoch history of the partition."""
    with world.client() as client:
        return tuple(client.explain_placement(topic)[PARTITION].epoch_history)


def leader_of(world, group: int) -> int:
    """Return the node that leads a group."""
    return wait_for(lambda: next(row.leader for row in world.groups(1) if row.group == group),
                    f"group {group} has a leader")


def node_of(world, topic: str) -> int:
    """Return the node that leads the partition now."""
    return leader_of(world, history_of(world, topic)[-1].group)


def switch(world, topic: str) -> None:
    """Switch the partition to a group on another node than its present one, where it never was."""
    history = history_of(world, topic)
    last, used = history[-1], {entry.group for entry in history}
    here = leader_of(world, last.group)
    to_group = next(group for group in range(1, SHAPE["groups"] + 1)
                    if group not in used and leader_of(world, group) != here)
    with world.client() as client:
        incarnation = client.explain_placement(topic)[PARTITION].incarnation
        client.switch_partition(incarnation, last.epoch + 1, to_group)
    wait_for(lambda: history_of(world, topic)[-1].epoch == last.epoch + 1,
             f"{topic} continues at epoch {last.epoch + 1}")


@contextlib.asynccontextmanager
async def kafka(world, node: int) -> AsyncIterator[KafkaClient]:
    host, _, port = world.dev.record.node(node).kafka_address.rpartition(":")
    async with KafkaClient(await trio.open_tcp_stream(host, int(port))) as client:
        yield client


async def appended(world, topic: str, *times: int) -> None:
    """Append a batch of records with these times at the node that leads the partition."""
    node = await trio.to_thread.run_sync(node_of, world, topic)
    async with kafka(world, node) as client:
        with trio.fail_after(60):
            while True:
                found = (await client.metadata(topic)).topics[0]
                result = await client.produce(found.topic_id, timed(*times))
                if not result.error_code:
                    return
                assert result.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER,
                                             ErrorCode.LEADER_NOT_AVAILABLE), result
                await trio.sleep(0.05)


async def filled(world, topic: str) -> int:
    """Fill a topic across ``EPOCHS`` epochs: record n has the time 1,000 + n, but the largest is
    that of record 3.  Return the number of records."""
    with world.client() as client:
        client.create_topic(topic, 1)
    count = 0
    for epoch in range(EPOCHS):
        for _ in range(BATCHES):
            await appended(world, topic, *(9_000 if at == 3 else 1_000 + at
                                           for at in (count, count + 1)))
            count += 2
        if epoch < EPOCHS - 1:
            await trio.to_thread.run_sync(switch, world, topic)
    return count


async def offsets_read(client: KafkaClient, topic_id: bytes, start: int, end: int) -> list[int]:
    """Return the offsets of all records from ``start`` to ``end``, fetch by fetch."""
    found: list[int] = []
    at = start
    with trio.fail_after(60):
        while at < end:
            read = await client.fetch(topic_id, at, wait_ms=500)
            assert read.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER), read
            if not read.error_code:
                assert (read.high_watermark, read.last_stable_offset) == (end, end)
            for each in split_batches(joined(read.records)):
                header = batch_header(each)
                found += range(max(at, header.base_offset),
                               header.base_offset + header.last_offset_delta + 1)
                at = found[-1] + 1
    return found


@pytest.fixture(scope="module")
def spread(world):
    """A topic whose epochs are on different nodes: the number of its records."""
    return trio.run(filled, world, "spread")


def test_every_offset_is_read_at_the_leader_of_the_last_epoch(world, spread):
    async def run() -> None:
        async with kafka(world, node_of(world, "spread")) as client:
            topic_id = (await client.metadata("spread")).topics[0].topic_id
            assert await offsets_read(client, topic_id, 0, spread) == list(range(spread))
            assert await offsets_read(client, topic_id, 7, spread) == list(range(7, spread))

    trio.run(run)


def test_no_other_node_serves_it(world, spread):
    async def run() -> None:
        leader = node_of(world, "spread")
        for node in {1, 2, 3} - {leader}:
            async with kafka(world, node) as client:
                topic_id = (await client.metadata("spread")).topics[0].topic_id
                read = await client.fetch(topic_id, spread - 1)
                assert read.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    trio.run(run)


def test_times_of_all_epochs_are_found(world, spread):
    async def run() -> None:
        async with kafka(world, node_of(world, "spread")) as client:
            for at in (0, 1, 2, 3, 4, 5, spread - 1):
                time = 1_000 + at
                # Record 3 has the largest time, so it is the first one of each later time.
                expected = (at, time) if at < 3 else (3, 9_000)
                found = await client.offset("spread", time)
                assert (found.error_code, found.offset, found.timestamp) == (0, *expected)
            found = await client.offset("spread", -3)
            assert (found.error_code, found.offset, found.timestamp) == (0, 3, 9_000)
            found = await client.offset("spread", 9_001)
            assert (found.error_code, found.offset) == (0, -1)

    trio.run(run)


def test_nothing_is_left_out_while_the_node_with_an_earlier_epoch_is_down(world):
    async def run() -> None:
        count = await filled(world, "down")
        leader = node_of(world, "down")
        offset, first = next(
            (entry.start_offset, node) for entry in history_of(world, "down")
            if (node := leader_of(world, entry.group)) != leader)
        world.kill(first)
        async with kafka(world, leader) as client:
            topic_id = (await client.metadata("down")).topics[0].topic_id
            with trio.fail_after(60):
                read = await client.fetch(topic_id, offset)
            assert (read.error_code, joined(read.records)) == (
                ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
            world.launch(first)
            assert await offsets_read(client, topic_id, offset, count) == list(
                range(offset, count))

    trio.run(run)


def test_offsets_below_the_log_start_are_out_of_range(world):
    async def run() -> None:
        count = await filled(world, "deleted")
        leader = node_of(world, "deleted")
        with world.client() as client:
            incarnation = client.explain_placement("deleted")[0].incarnation
        with world.session(leader) as session:
            answer = session.ask(DeleteRecords((RecordDeletion(incarnation, 4),), 30_000))
            assert answer.reply.results[0].code == Code.OK
        async with kafka(world, leader) as client:
            topic_id = (await client.metadata("deleted")).topics[0].topic_id
            read = await client.fetch(topic_id, 3)
            assert read.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert await offsets_read(client, topic_id, 4, count) == list(range(4, count))
            found = await client.offset("deleted", -3)
            assert (found.error_code, found.offset, found.timestamp) == (
                0, count - 1, 1_000 + count - 1)

    trio.run(run)
