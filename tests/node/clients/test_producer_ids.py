"""The producer ids that leaders take, and repeated requests for an identity."""

from __future__ import annotations

import pytest

from multiraft.core import BatchBuilder
from multiraft.types import BatchInfo
from multiraft.wire.errors import Code
from multiraft.wire.messages import BatchPart, InitProducer, Produce
from node.clients.error_codes import StaleMetadata, UnknownProducer
from node.clients.producer_ids import REFUSED_MAX, ProducerIds
from tests.node.harness import Client, in_trio, serving

WAIT_MS = 2_000


def batch_of(producer: int, epoch: int = 0, sequence: int = 0, value: bytes = b"v") -> bytearray:
    builder = BatchBuilder(1 << 20)
    assert builder.append(1, None, value)
    return builder.build(producer, epoch, sequence)


async def append(client: Client, partition: int, data: bytes, seen_index: int = 0):
    """Return the result of one batch."""
    request = Produce("commit", 15_000, (BatchPart(partition, len(data)),))
    return (await client.ask(request, data, seen_index=seen_index)).reply.results[0]


async def identity(client: Client, *named: int) -> tuple[int, int]:
    answer = await client.ask(InitProducer(*named))
    assert answer.code == Code.OK, answer
    return tuple(answer.reply)


@in_trio
async def test_what_is_sent_under_an_id_that_nobody_has_is_not_taken_for_its_later_owner(tmp_path):
    async with (serving(tmp_path, producer_id_gap_max=1) as node,
                await Client.open(node) as client):
        partition = await client.create("t")
        last, _ = await identity(client)
        coming = last + 1  # what the next producer is given
        forged = await append(client, partition, batch_of(coming, value=b"forged"))
        assert forged.code in (Code.STALE_METADATA, Code.UNKNOWN_PRODUCER)
        assert await identity(client) == (coming, 0)
        assert (await append(client, partition, batch_of(coming))).base_offset == 0


@in_trio
async def test_an_epoch_that_nobody_was_granted_does_not_fence_the_owner(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        producer, _ = await identity(client)
        assert (await append(client, partition, batch_of(producer))).code == Code.OK
        forged = await append(client, partition, batch_of(producer, 32767))
        assert forged.code in (Code.STALE_METADATA, Code.UNKNOWN_PRODUCER)
        assert f"producer {producer} epoch 32767 was never granted" in forged.error.text
        assert (await append(client, partition, batch_of(producer, 0, 1))).base_offset == 1
        assert await identity(client, producer, 40) == (producer, 41)
        assert (await append(client, partition, batch_of(producer, 41))).base_offset == 2
        assert (await append(client, partition, batch_of(producer, 42))).code != Code.OK


@in_trio
@pytest.mark.parametrize("producer", [1 << 62, (1 << 63) - 1])
async def test_an_id_that_somebody_made_up_is_taken_as_it_is(tmp_path, producer):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        assert (await append(client, partition, batch_of(producer, 7))).base_offset == 0


@in_trio
async def test_a_batch_of_no_producer_is_nobody_s_whatever_its_sequence(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        assert (await append(client, partition, batch_of(-1, 5))).base_offset == 0


@in_trio
async def test_who_does_not_begin_at_sequence_0_is_refused_without_a_look(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await client.create("t")
        refused = await append(client, partition, batch_of(4711, 0, 1))
        assert refused.code == Code.OUT_OF_ORDER_SEQUENCE


@in_trio
async def test_an_epoch_is_granted_again_to_whoever_names_the_same_one_again(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        producer, _ = await identity(client)
        assert {await identity(client, producer, 20) for _ in range(3)} == {(producer, 21)}
        taken_over = await identity(client, producer, -1)
        assert taken_over[0] == producer and taken_over[1] > 22, (
            "whoever had the id does not hit upon it with the epoch after its own")
        for stale in (20, 21):
            assert (await client.ask(InitProducer(producer, stale))).code == Code.PRODUCER_FENCED


@in_trio
async def test_ids_of_new_producers_cannot_be_told_beforehand(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        given = [(await identity(client))[0] for _ in range(20)]
        assert given == sorted(given)
        steps = {after - before for before, after in zip(given, given[1:], strict=False)}
        assert len(steps) > 10


# ---- the check alone ----------------------------------------------------------------------------


class Metadata:
    """A directory with the highest epochs that the test sets."""

    def __init__(self):
        self.metadata_index = 10
        self.granted = {}

    def highest_epoch(self, producer: int) -> int:
        return self.granted.get(producer, -1)


class Checked:
    """A check of producer ids with a clock that the test sets."""

    def __init__(self):
        self.directory, self.now_ms = Metadata(), 0
        self.ids = ProducerIds(self.directory, lambda: self.now_ms)

    def __call__(self, producer: int, epoch: int = 0, seen_index: int = 0):
        self.ids.check(BatchInfo(1, producer, epoch, 0, 1, 1), seen_index)


def test_a_grant_that_this_node_may_not_have_heard_of_is_waited_for():
    check = Checked()
    with pytest.raises(StaleMetadata, match="that id was never granted"):
        check(7)
    check.now_ms = WAIT_MS - 1
    with pytest.raises(StaleMetadata):
        check(7)
    check.now_ms = WAIT_MS
    with pytest.raises(UnknownProducer, match="init_producer"):
        check(7)
    check.directory.granted[7] = 0
    check(7)


def test_a_client_that_has_seen_newer_metadata_is_never_refused_for_good():
    check = Checked()
    for check.now_ms in (0, WAIT_MS, 10 * WAIT_MS):
        with pytest.raises(StaleMetadata):
            check(7, seen_index=11)


def test_what_was_granted_meanwhile_begins_without_a_past():
    check = Checked()
    with pytest.raises(StaleMetadata):
        check(7)
    check.directory.granted[7] = 0
    check(7)
    check.now_ms = WAIT_MS
    with pytest.raises(StaleMetadata):
        check(7, 1)


def test_few_of_the_ids_that_were_refused_are_remembered():
    check = Checked()
    for producer in range(1, 2 * REFUSED_MAX):
        with pytest.raises(StaleMetadata):
            check(producer)
    assert len(check.ids._refused_since_ms) == REFUSED_MAX
