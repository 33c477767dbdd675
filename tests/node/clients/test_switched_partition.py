"""A partition in several groups at a real node: appends, retries, reads, timestamps, restarts."""

from __future__ import annotations

import trio

from multiraft.core import BatchBuilder, batch_header, split_batches
from multiraft.partitions.records import seal_payload
from multiraft.types import EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    TIMESTAMP,
    BatchPart,
    ListOffsets,
    Metadata,
    OffsetQuery,
    Produce,
    ReportCorruption,
)
from multiraft.wire.placements import ExplainPlacement, PartitionReplicas, SwitchPartition
from node.replicas import log_start_propagation
from tests.node.clients.test_fetch import fetch, result
from tests.node.harness import Client, in_trio, make_node, running, serving, until

#: An id that no metadata grant: what is tried here does not depend on them.
PRODUCER = 1 << 62


def sequenced(sequence: int, *values: bytes, timestamp_ms: int = 1000) -> bytearray:
    """Return a batch of ``PRODUCER``."""
    builder = BatchBuilder(1 << 16)
    for value in values:
        builder.append(timestamp_ms, None, value)
    return builder.build(PRODUCER, 0, sequence)


async def put(client, partition: int, sequence: int, *values: bytes, timestamp_ms: int = 1000):
    """Return the result of an append by ``PRODUCER``."""
    data = sequenced(sequence, *values, timestamp_ms=timestamp_ms)
    answer = await client.ask(Produce("commit", 5_000, (BatchPart(partition, len(data)),)), data)
    return answer.reply.results[0]


def group_of(node, partition: int) -> int:
    return node.metadata.directory.locate(partition).group


def groups_of(node) -> int:
    return node.metadata.log.state.pool_size


async def switch(node, client, partition: int) -> int:
    """Switch the partition to the next group, and return that group."""
    place = node.metadata.directory.locate(partition)
    to_group = place.group % groups_of(node) + 1
    answer = await client.ask(SwitchPartition(partition, place.epoch + 1, to_group))
    assert answer.code == Code.OK, answer
    await until(lambda: node.metadata.directory.locate(partition).epoch == place.epoch + 1,
                "published")
    return to_group


async def read_all(client, partition: int, offset: int = 0) -> list[bytes]:
    """Return the records that a reader receives from ``offset`` on, fetch by fetch."""
    found = []
    while True:
        answer = await client.ask(fetch(partition, offset))
        assert result(answer).code == Code.OK, result(answer)
        batches = [bytes(one) for one in split_batches(answer.reply.payload)]
        if not batches:
            return found
        for one in batches:
            header = batch_header(one)
            assert header.base_offset == offset
            offset += header.last_offset_delta + 1
        found += batches


async def asked(client, *queries: OffsetQuery):
    return (await client.ask(ListOffsets(queries))).reply.results


@in_trio
async def test_offsets_retries_and_stamps_go_on_in_the_next_group(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for sequence in range(6):
            assert (await put(client, topic, sequence, b"x")).base_offset == sequence
        for _ in range(3):
            await switch(node, client, topic)
        for sequence in range(1, 6):
            retried = await put(client, topic, sequence, b"x")
            assert (retried.code, retried.base_offset) == (Code.OK, sequence)
        assert (await put(client, topic, 6, b"y")).base_offset == 6
        assert (await put(client, topic, 8, b"z")).code == Code.OUT_OF_ORDER_SEQUENCE
        batches = await read_all(client, topic)
        assert len(batches) == 7
        stamps = [int.from_bytes(one[12:16], "big") for one in batches]
        assert stamps == sorted(stamps) and stamps[5] < stamps[6]
        answer = (await client.ask(Metadata(("t",)))).reply.topics[0].partitions[0]
        assert (answer.epoch, answer.leader_epoch) == (4, stamps[6])


@in_trio
async def test_a_partition_comes_back_to_a_group_and_is_read_through_all_its_links(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for round_ in range(2 * groups_of(node) + 1):
            await put(client, topic, 2 * round_, b"first %d" % round_)
            await put(client, topic, 2 * round_ + 1, b"second %d" % round_)
            await switch(node, client, topic)
        batches = await read_all(client, topic)
        assert [b"%s %d" % (name, round_) in batches[2 * round_ + at]
                for round_ in range(len(batches) // 2)
                for at, name in enumerate((b"first", b"second"))] == [True] * len(batches)
        first, last = await asked(client, OffsetQuery(topic, EARLIEST), OffsetQuery(topic, LATEST))
        assert (first.offset, last.offset) == (0, len(batches))


@in_trio
async def test_the_end_that_is_shown_never_goes_back_whichever_link_is_read(tmp_path):
    """Found by a run against real nodes with constant switches."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for sequence in range(5):
            await put(client, topic, sequence, b"x")
            ends = [result(await client.ask(fetch(topic, offset))).high_watermark
                    for offset in range(sequence + 2)]
            assert ends == [sequence + 1] * (sequence + 2)
            await switch(node, client, topic)


@in_trio
async def test_a_node_behind_two_switches_waits_for_the_metadata(tmp_path, monkeypatch):
    """Its group holds the partition for the second time; the metadata here know only of the
    first."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"x")
        before = node.metadata.directory.locate(topic)
        await switch(node, client, topic)
        await put(client, topic, 1, b"y")
        await switch(node, client, topic)
        monkeypatch.setattr(node.metadata.directory, "locate", lambda _partition: before)
        behind = result(await client.ask(fetch(topic, 0)))
        assert behind.code == Code.STALE_METADATA and "has epoch 3" in behind.error.text


@in_trio
async def test_a_long_poll_at_the_end_follows_the_switch(tmp_path):
    async with (serving(tmp_path) as node, await Client.open(node) as reader,
                await Client.open(node) as writer):
        topic = await writer.create("t")
        await put(writer, topic, 0, b"old")
        await reader.begin(fetch(topic, 1, wait_max_ms=30_000))
        await until(lambda: node.reads.fetch_handler._deadlines, "the poll waits")
        await switch(node, writer, topic)
        assert node.reads.fetch_handler._deadlines, "nothing to read yet"
        assert (await put(writer, topic, 1, b"news")).base_offset == 1
        assert b"news" in bytes((await reader.event()).reply.payload)


@in_trio
async def test_a_sealed_partition_names_no_end_and_takes_nothing_new(tmp_path):
    """Between seal and publication, appends may continue in the next group, so the end is unknown.
    Records here can be read, and a retry of one of them is answered."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"x")
        group = group_of(node, topic)
        node.core.propose(group, EntryKind.PARTITION_SEAL, seal_payload(1), topic, 1)
        node.request_round()
        await until(lambda: node.store.partition_states[group].sealed(topic), "the seal is applied")
        assert (await put(client, topic, 1, b"y")).code == Code.STALE_METADATA
        assert (await put(client, topic, 0, b"x")).base_offset == 0
        for query in (OffsetQuery(topic, LATEST), OffsetQuery(topic, TIMESTAMP, 0)):
            assert (await asked(client, query))[0].code == Code.OFFSET_NOT_AVAILABLE
        assert (await asked(client, OffsetQuery(topic, EARLIEST)))[0].offset == 0
        loose = (await client.ask(ListOffsets((OffsetQuery(topic, LATEST),), False))).reply
        assert loose.results[0].offset == 1
        assert len(await read_all(client, topic)) == 1
        beyond = result(await client.ask(fetch(topic, 2)))
        assert beyond.code == Code.OFFSET_NOT_AVAILABLE and "being switched" in beyond.error.text


@in_trio
async def test_a_time_is_looked_for_from_the_epoch_that_is_named(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for round_ in range(3):
            await put(client, topic, round_, b"x", timestamp_ms=1000 * round_)
            await switch(node, client, topic)
        found = await asked(client, *(OffsetQuery(topic, TIMESTAMP, 1000 * round_)
                                      for round_ in range(4)))
        assert [one.offset for one in found] == [0, 1, 2, -1]
        from_epoch = await asked(client, *(OffsetQuery(topic, TIMESTAMP, 0, epoch)
                                           for epoch in range(1, 5)))
        assert [one.offset for one in from_epoch] == [0, 1, 2, -1]
        newer = (await asked(client, OffsetQuery(topic, TIMESTAMP, 0, 9)))[0]
        assert newer.code == Code.STALE_METADATA


@in_trio
async def test_a_restart_changes_nothing(tmp_path):
    """Both from the journal alone and from a checkpoint."""
    config, batches = None, []
    for life in range(3):
        if config is None:
            context = serving(tmp_path)
        else:
            context = running(make_node(config))
        async with context as node, await Client.open(node) as client:
            config = node.config
            topic = await client.create("t") if not life else 1
            await until(lambda node=node: node.metadata.directory.locate(1),
                        "the metadata are applied")
            await until(
                lambda node=node: all(map(node.core.status.has_applied_in_term,
                                          node.core.status.groups())),
                "what was committed before is known to be",
            )
            if life:
                retried = await put(client, topic, 2 * life - 1, b"b")
                assert (retried.code, retried.base_offset) == (Code.OK, 2 * life - 1)
                assert await read_all(client, topic) == batches
            await put(client, topic, 2 * life, b"a")
            await switch(node, client, topic)
            await put(client, topic, 2 * life + 1, b"b")
            batches = await read_all(client, topic)
            assert len(batches) == 2 * life + 2
            if not life:  # the next one has the journal alone
                node.replicas.checkpoints.write_last = lambda: None


@in_trio
async def test_links_below_the_log_start_go(tmp_path, monkeypatch):
    monkeypatch.setattr(log_start_propagation, "INTERVAL_S", 0.02)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for round_ in range(3):
            await put(client, topic, 2 * round_, b"x", b"y")
            await switch(node, client, topic)
        assert len(node.metadata.directory.locate(topic).epoch_history) == 4
        node.core.propose(group_of(node, topic), EntryKind.LOG_START, b"", topic, 4)
        node.request_round()
        await until(lambda: len(node.metadata.directory.locate(topic).epoch_history) == 2,
                    "two links went")
        assert (await asked(client, OffsetQuery(topic, EARLIEST)))[0].offset == 4
        below = result(await client.ask(fetch(topic, 3)))
        assert (below.code, below.error.start_offset) == (Code.OFFSET_OUT_OF_RANGE, 4)
        assert len(await read_all(client, topic, 4)) == 1
        await switch(node, client, topic)
        assert (await asked(client, OffsetQuery(topic, EARLIEST)))[0].offset == 4, "it is carried"


@in_trio
async def test_a_complaint_is_looked_into_in_the_right_group(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for sequence in range(3):
            await put(client, topic, sequence, b"x")
            await switch(node, client, topic)
        for offset in range(4):
            assert (await client.ask(ReportCorruption(topic, offset))).reply.damaged is False
        place = node.metadata.directory.locate(topic)
        store = node.store
        group = place.epoch_history[1].group
        index = store.batches(group, topic, 1, 1)[0][2]
        entry = store.entries(group, index, index)[0]
        entry.payload[-1] ^= 1
        assert (await client.ask(ReportCorruption(topic, 1))).reply.damaged is True


@in_trio
async def test_nodes_tell_where_a_partition_is_and_was(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 3)
        home = group_of(node, topic)
        await put(client, topic, 0, b"x")
        there = await switch(node, client, topic)
        reply = (await client.ask(ExplainPlacement("t", 0, 2))).reply
        assert reply.more and [row.partition for row in reply.partitions] == [0, 1]
        assert reply.partitions[0][2:] == (home, ((1, home, 0), (2, there, 1)), 0, 0)
        rest = (await client.ask(ExplainPlacement("t", 2))).reply
        assert not rest.more and [row.incarnation for row in rest.partitions] == [topic + 2]
        assert (await client.ask(ExplainPlacement("u"))).code == Code.UNKNOWN_TOPIC
        replicas = (await client.ask(PartitionReplicas(topic))).reply.replicas
        assert replicas == ((home, True, 1, True, 1), (there, True, 2, False, 1))
        assert (await client.ask(PartitionReplicas(99))).code == Code.UNKNOWN_PARTITION


@in_trio
async def test_appends_do_not_wait_for_the_publication(tmp_path, monkeypatch):
    """The new group takes them as soon as the opening is in its log."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await put(client, topic, 0, b"x")
        asked_for, go_on = trio.Event(), trio.Event()
        real = node.peers.metadata_requests.ask

        async def held(request):
            asked_for.set()
            await go_on.wait()
            return await real(request)

        monkeypatch.setattr(node.peers.metadata_requests, "ask", held)
        place = node.metadata.directory.locate(topic)
        to_group = place.group % groups_of(node) + 1
        await client.ask(SwitchPartition(topic, 2, to_group))
        await asked_for.wait()
        assert (await put(client, topic, 1, b"y")).base_offset == 1
        assert node.store.partition_states[to_group].next_offset(topic) == 2
        assert result(await client.ask(fetch(topic, 0))).high_watermark == 1, "not published"
        go_on.set()
        await until(lambda: node.metadata.directory.locate(topic).epoch == 2, "published")
        assert len(await read_all(client, topic)) == 2
