"""Produce at a real node: each batch is judged alone, each request is answered once."""

import pytest

from multiraft.wire.errors import Code
from multiraft.wire.messages import BatchPart, Produce
from tests.node.harness import Client, batch, in_trio, serving, until


@in_trio
@pytest.mark.parametrize("acks", ["commit", "leader"])
async def test_appends_get_dense_offsets(tmp_path, acks):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        results = [await client.produce(topic, *[b"v"] * count, acks=acks) for count in (1, 3, 2)]
        assert [result.base_offset for result in results] == [0, 1, 4]


@in_trio
async def test_acks_none_appends_without_a_word(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        data = batch(b"silent")
        await client.begin(Produce("none", 1_000, (BatchPart(topic, len(data)),)), data)
        assert (await client.produce(topic, b"spoken")).base_offset == 1


@in_trio
async def test_the_batches_of_a_request_are_judged_one_by_one(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        good, damaged = batch(b"good"), batch(b"damaged")
        damaged[-1] ^= 1
        parts = (BatchPart(topic, len(good)), BatchPart(topic, len(damaged)),
                 BatchPart(99, len(good)), BatchPart(topic, len(good)))
        answer = await client.ask(Produce("commit", 15_000, parts), good, damaged, batch(b"good"),
                                  batch(b"good"))
        assert [result.code for result in answer.reply.results] == [
            Code.OK, Code.CORRUPT_BATCH, Code.UNKNOWN_PARTITION, Code.OK]
        assert [result.base_offset for result in answer.reply.results] == [0, -1, -1, 1]
        assert node.clients.produce_handler.refused == 2


@in_trio
async def test_a_full_disk_refuses_what_is_led_here_and_sends_on_what_is_not(tmp_path):
    """Otherwise a client would wait at this node for disk space that another leader has."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        assert (await client.produce(topic, b"before")).code == Code.OK
        node.env.space.full = True
        refused = await client.produce(topic, b"none")
        assert refused.code == Code.STORAGE_FULL
        assert "full" in refused.error.text
        assert node.env.space.refused == 1
        node.storage.gather.start_next = lambda: None  # it does not elect itself again
        node.core.resign(node.metadata.directory.locate(topic).group, "test")
        assert (await client.produce(topic, b"elsewhere")).code in (Code.NOT_LEADER,
                                                                    Code.LEADER_UNKNOWN)
        data = batch(b"nobody's")
        answer = await client.ask(Produce("commit", 1_000, (BatchPart(99, len(data)),)), data)
        assert answer.reply.results[0].code == Code.UNKNOWN_PARTITION


@in_trio
async def test_a_request_without_batches_is_answered(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        assert (await client.ask(Produce("commit", 1, ()))).reply.results == ()


@in_trio
async def test_a_client_that_has_seen_more_is_asked_to_try_again(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        data = batch(b"early")
        request = Produce("commit", 1_000, (BatchPart(99, len(data)),))
        seen = node.metadata.log.state.version
        for more, code in ((0, Code.UNKNOWN_PARTITION), (1, Code.STALE_METADATA)):
            answer = await client.ask(request, data, seen_index=seen + more)
            assert answer.reply.results[0].code == code


@in_trio
async def test_an_append_that_is_not_committed_in_time_is_ambiguous_on_an_idle_node(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        node.storage.gather.start_next = lambda: None  # a write that never begins
        data = batch(b"stuck")
        answer = await client.ask(Produce("commit", 50, (BatchPart(topic, len(data)),)), data)
        assert answer.reply.results[0].code == Code.AMBIGUOUS
        assert "not committed in time" in answer.reply.results[0].error.text


@in_trio
async def test_a_leader_that_steps_down_leaves_its_appends_ambiguous(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        group = node.metadata.directory.locate(topic).group
        node.storage.gather.start_next = lambda: None
        data = batch(b"stuck")
        await client.begin(Produce("commit", 9_000, (BatchPart(topic, len(data)),)), data)
        await until(lambda: node.clients.pending.oldest())
        node.core.resign(group, "test")
        node.request_round()
        assert (await client.event()).reply.results[0].code == Code.AMBIGUOUS
        assert node.clients.pending.oldest() == {}


@in_trio
async def test_a_stop_answers_what_is_open(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        node.storage.gather.start_next = lambda: None
        data = batch(b"stuck")
        await client.begin(Produce("commit", 9_000, (BatchPart(topic, len(data)),)), data)
        await until(lambda: node.clients.pending.oldest())
        await node._hand_over()
        answer = (await client.event()).reply.results[0]
        assert (answer.code, "stopping" in answer.error.text) == (Code.AMBIGUOUS, True)
