"""Topics with compaction at a real node: records without a key are refused, and batches keep their
order while a thread checks some of them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import pytest
import trio

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import CODECS, compress
from multiraft.core import BatchBuilder
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    KEYLESS_NAMED_MAX,
    BatchPart,
    CreateTopic,
    InitProducer,
    Produce,
)
from multiraft.wire.rows import KeylessRecords
from multiraft.wire.settings import AlterSettings, SettingChange
from multiraft.wire.sinks import BeginTransaction, producer_identity
from node.clients import key_checks, record_keys
from node.clients.record_keys import LOOP_BYTES_MAX
from tests.node.harness import Client, in_trio, serving, until

COMPACT = (("cleanup.policy", "compact"),)
NO_PRODUCER = (-1, -1, -1)
KEYED = (b"k",)
#: Settings of a topic, those of the cluster, and True if its records need keys.
POLICIES = [
    (COMPACT, (), True), ((("cleanup.policy", "compact,delete"),), (), True),
    ((("cleanup.policy", "delete"),), (), False), ((), (), False), ((), COMPACT, True),
    ((("cleanup.policy", "delete"),), COMPACT, False)]


def batch_of(*keys: bytes | None, codec: int = 0, value: bytes = b"v",
             producer: Sequence[int] = NO_PRODUCER, block: bytes | None = None) -> bytearray:
    """Return a batch with a record for each key."""
    builder = BatchBuilder(8 << 20)
    for key in keys:
        assert builder.append(1_700_000_000_000, key, value)
    if codec and block is None:
        block = compress(codec, builder.records_block())
    return builder.build(*producer, codec=codec, block=block)


def slow(*keys: bytes | None, producer: Sequence[int] = NO_PRODUCER) -> bytearray:
    """Return a batch that a thread checks."""
    return batch_of(*keys, codec=layout.CODEC_ZSTD, value=bytes(100_000), producer=producer)


async def create(client: Client, name: str = "t", settings: tuple = COMPACT) -> int:
    answer = await client.ask(CreateTopic(name, settings=settings))
    return answer.reply.topic.incarnation


async def alter(client: Client, topic: str, name: str, value: str | None) -> None:
    answer = await client.ask(AlterSettings(topic, (SettingChange(name, value),)))
    assert answer.code == Code.OK, answer


async def begin(client: Client, partition: int, data: bytearray, timeout_ms: int = 15_000) -> int:
    return await client.begin(Produce("commit", timeout_ms, (BatchPart(partition, len(data)),)),
                              data)


async def append(client: Client, partition: int, data: bytearray):
    """Return the result of a batch."""
    answer = await client.ask(Produce("commit", 15_000, (BatchPart(partition, len(data)),)), data)
    return answer.reply.results[0]


async def results(client: Client, numbers: Sequence[int]) -> list:
    """Return the results of single batches, in the order of their requests."""
    answers = [await client.event() for _ in numbers]
    found = {answer.id: answer.reply.results[0] for answer in answers}
    return [found[number] for number in numbers]


class Gate:
    """Threads of a node that check a batch when the test opens it."""

    def __init__(self, node, monkeypatch):
        self.opened = trio.Event()
        self.begun = 0
        checks = node.clients.produce_handler._key_checks
        real = checks._on_thread

        async def gated(work):
            self.begun += 1
            await self.opened.wait()
            return await real(work)

        monkeypatch.setattr(checks, "_on_thread", gated)


# ---- what is refused -----------------------------------------------------------------------------


@in_trio
async def test_a_batch_with_a_record_without_a_key_is_refused_as_a_whole(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        bad = batch_of(b"a", None, b"", None)
        answer = await client.ask(Produce("commit", 15_000, (
            BatchPart(partition, len(batch_of(*KEYED))), BatchPart(partition, len(bad)))),
            batch_of(*KEYED), bad)
        good, refused = answer.reply.results
        assert (good.code, refused.code) == (Code.OK, Code.INVALID_BATCH)
        assert "2 of 4 records have no key (numbers 1, 3 of the batch)" in refused.error.text
        assert answer.reply.keyless == (KeylessRecords(1, (1, 3)),)
        assert (await append(client, partition, batch_of(b""))).base_offset == 1
        assert node.clients.produce_handler.refusals == {Code.INVALID_BATCH: 1}


@in_trio
async def test_the_positions_of_many_records_are_bounded(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        data = batch_of(*[None] * 100)
        answer = await client.ask(Produce("commit", 15_000, (
            BatchPart(await create(client), len(data)),)), data)
        assert answer.reply.keyless == (KeylessRecords(0, tuple(range(KEYLESS_NAMED_MAX))),)
        assert "100 of 100 records have no key (numbers 0, 1, 2, ... of the batch)" in (
            answer.reply.results[0].error.text)


@in_trio
@pytest.mark.parametrize("own, cluster, needed", POLICIES)
async def test_the_policy_that_holds_decides(tmp_path, own, cluster, needed):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        for name, value in cluster:
            await alter(client, "", name, value)
        partition = await create(client, "t", own)
        internal = await create(client, "__t", own)
        expected = Code.INVALID_BATCH if needed else Code.OK
        assert (await append(client, partition, batch_of(None))).code == expected
        assert (await append(client, partition, batch_of(b"k"))).code == Code.OK
        # As for retention, internal topics have no share in the cluster's default.
        expected = Code.INVALID_BATCH if needed and own else Code.OK
        assert (await append(client, internal, batch_of(None))).code == expected


@in_trio
async def test_a_change_of_the_policy_holds_for_the_next_batch(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, settings=())
        codes = [(await append(client, partition, batch_of(None))).code]
        for value in ("compact", "delete", "compact,delete", None):
            await alter(client, "t", "cleanup.policy", value)
            codes.append((await append(client, partition, batch_of(None))).code)
        no = Code.INVALID_BATCH
        assert codes == [Code.OK, no, Code.OK, no, Code.OK]


@in_trio
@pytest.mark.parametrize("codec", sorted(CODECS.values()))
@pytest.mark.parametrize("value", [b"v", bytes(LOOP_BYTES_MAX)], ids=["small", "large"])
async def test_records_of_each_compression_are_looked_at(tmp_path, codec, value):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        good, bad = (batch_of(b"k", key, codec=codec, value=value) for key in (b"", None))
        assert (await append(client, partition, good)).base_offset == 0
        assert (await append(client, partition, bad)).code == Code.INVALID_BATCH
        assert (await append(client, partition, good)).base_offset == 2


@in_trio
@pytest.mark.parametrize("codec", sorted(CODECS.values())[1:])
@pytest.mark.parametrize("cut", [None, -3, 0])
async def test_records_that_cannot_be_read_are_refused_and_not_to_be_sent_again(tmp_path, codec,
                                                                                cut):
    """CORRUPT_BATCH would have clients repeat them until their time is over."""
    builder = BatchBuilder(1 << 20)
    assert builder.append(1, b"k", bytes(range(256)))
    block = b"wrong" * 9 if cut is None else compress(codec, builder.records_block())[:cut or None]
    block += b"" if cut != 0 else compress(codec, b"more")
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        refused = await append(client, partition, batch_of(b"k", codec=codec, block=block))
        assert refused.code == Code.INVALID_BATCH
        assert "cannot be read" in refused.error.text
        # A topic without compaction accepts them, as before.
        other = await create(client, "other", ())
        assert (await append(client, other, batch_of(b"k", codec=codec, block=block))).code == 0


@in_trio
@pytest.mark.parametrize("codec", sorted(CODECS.values())[1:])
async def test_records_over_the_limit_are_refused_with_the_limit(tmp_path, codec):
    overhead = len(batch_of(b"k", value=bytes(10_000))) - 10_000 - layout.BATCH_HEADER_BYTES
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, settings=(*COMPACT, ("max.message.bytes", "5000")))
        fits = 80_000 - overhead
        assert (await append(client, partition, batch_of(
            b"k", codec=codec, value=bytes(fits)))).code == Code.OK
        refused = await append(client, partition, batch_of(
            b"k", codec=codec, value=bytes(fits + 1)))
        assert (refused.code, refused.error.limit, refused.error.value) == (
            Code.BATCH_TOO_LARGE, 80_000, 80_001)
        assert "the limit is 80000: 16 times max.message.bytes" in refused.error.text


@in_trio
async def test_a_repetition_of_what_the_log_has_is_not_refused(tmp_path):
    """The answer to it was lost, and then the topic got compaction."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client, settings=())
        producer = (await client.ask(InitProducer())).reply
        for make in (batch_of, slow):
            sequence = 0 if make is batch_of else 1
            data = make(None, producer=(*producer, sequence))
            assert (await append(client, partition, data)).base_offset == sequence
        await alter(client, "t", "cleanup.policy", "compact")
        for make in (batch_of, slow):
            sequence = 0 if make is batch_of else 1
            data = make(None, producer=(*producer, sequence))
            repeated = await append(client, partition, data)
            assert (repeated.code, repeated.base_offset) == (Code.OK, sequence)
            assert (await append(client, partition, make(None, producer=(*producer, 2)))
                    ).code == Code.INVALID_BATCH


@in_trio
async def test_a_refused_batch_takes_no_sequence(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        producer = (await client.ask(InitProducer())).reply
        for sequence, make in enumerate((batch_of, slow, batch_of)):
            bad = make(None, producer=(*producer, sequence))
            assert (await append(client, partition, bad)).code == Code.INVALID_BATCH
            good = make(b"k", producer=(*producer, sequence))
            assert (await append(client, partition, good)).base_offset == sequence


# ---- what is not checked -------------------------------------------------------------------------


@in_trio
async def test_a_topic_without_compaction_pays_nothing(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        plain, compacted = await create(client, "plain", ()), await create(client)
        walked: list[int] = []
        real = core.keyless_records

        def counted(header, block, most):
            walked.append(len(block))
            return real(header, block, most)

        monkeypatch.setattr(record_keys.core, "keyless_records", counted)
        monkeypatch.setattr(node.clients.produce_handler._key_checks, "waits",
                            lambda *_: pytest.fail("a check of a topic without compaction"))
        for data in (batch_of(None), batch_of(b"k"), slow(None), batch_of(None, codec=1)):
            assert (await append(client, plain, data)).code == Code.OK
        assert not walked
        monkeypatch.undo()
        monkeypatch.setattr(record_keys.core, "keyless_records", counted)
        assert (await append(client, compacted, batch_of(b"k"))).code == Code.OK
        assert walked


@in_trio
async def test_short_batches_are_checked_at_once_and_others_on_a_thread(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        gate.opened.set()
        overhead = len(batch_of(b"k", value=bytes(60_000))) - 60_000
        for data, on_thread in ((batch_of(b"k"), 0),
                                (batch_of(b"k", value=bytes(LOOP_BYTES_MAX - overhead)), 0),
                                (batch_of(b"k", value=bytes(LOOP_BYTES_MAX - overhead + 1)), 1),
                                (batch_of(b"k", codec=layout.CODEC_GZIP), 1)):
            gate.begun = 0
            assert (await append(client, partition, data)).code == Code.OK
            assert gate.begun == on_thread


# ---- order ---------------------------------------------------------------------------------------


@in_trio
@pytest.mark.parametrize("is_idempotent", [True, False])
async def test_nothing_overtakes_a_batch_that_is_checked(tmp_path, monkeypatch, is_idempotent):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, other = await create(client), await create(client, "other")
        identity = (await client.ask(InitProducer())).reply if is_idempotent else (-1, -1)
        gate = Gate(node, monkeypatch)

        def made(sequence: int, make=batch_of) -> bytearray:
            return make(b"k", producer=(*identity, sequence if is_idempotent else -1))

        makes = (slow, batch_of, batch_of, slow, batch_of)
        numbers = [await begin(client, partition, made(sequence, make))
                   for sequence, make in enumerate(makes)]
        checks = node.clients.produce_handler._key_checks
        await until(lambda: gate.begun and checks.count == len(makes))
        assert {*checks.waiting} == {partition}
        # A partition does not wait for another one.
        assert (await append(client, other, batch_of(b"k"))).code == Code.OK
        assert checks.count == len(makes)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, numbers)] == [0, 1, 2, 3, 4]
        assert not checks.waiting and not checks.count
        assert (await append(client, partition, made(5))).base_offset == 5
        assert gate.begun == 2


@in_trio
async def test_a_batch_of_another_connection_waits_behind_as_well(tmp_path, monkeypatch):
    """A producer that lost its connection continues with another one."""
    async with (serving(tmp_path) as node, await Client.open(node) as client,
                await Client.open(node) as second):
        partition = await create(client)
        identity = (await client.ask(InitProducer())).reply
        gate = Gate(node, monkeypatch)
        first = [await begin(client, partition, slow(b"k", producer=(*identity, 0)))]
        await until(lambda: gate.begun)
        later = [await begin(second, partition, batch_of(b"k", producer=(*identity, 1)))]
        await until(lambda: node.clients.produce_handler._key_checks.count == 2)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, first)] == [0]
        assert [result.base_offset for result in await results(second, later)] == [1]


@in_trio
async def test_the_order_holds_when_the_policy_changes_meanwhile(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        numbers = [await begin(client, partition, slow(b"k"))]
        await until(lambda: gate.begun)
        async with await Client.open(node) as admin:
            await alter(admin, "t", "cleanup.policy", "delete")
        numbers.append(await begin(client, partition, batch_of(None)))
        await until(lambda: node.clients.produce_handler._key_checks.count == 2)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, numbers)] == [0, 1]


@in_trio
async def test_what_follows_a_refused_batch_lacks_its_sequence(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        producer = (await client.ask(InitProducer())).reply
        numbers = [await begin(client, partition, make(key, producer=(*producer, sequence)))
                   for sequence, (make, key) in enumerate(((slow, None), (batch_of, b"k")))]
        await until(lambda: gate.begun)
        gate.opened.set()
        assert [result.code for result in await results(client, numbers)] == [
            Code.INVALID_BATCH, Code.OUT_OF_ORDER_SEQUENCE]
        assert (await append(client, partition, batch_of(
            b"k", producer=(*producer, 0)))).base_offset == 0


@in_trio
async def test_a_staged_batch_needs_keys_and_keeps_its_order(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        opened = (await client.ask(BeginTransaction("s", 0, secrets.token_bytes(16)))).reply
        identity = producer_identity(opened.sink, opened.transaction, 0, 0)

        def staged(make, key: bytes | None, sequence: int) -> bytearray:
            data = make(key)
            data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.ATTRIBUTE_TRANSACTIONAL
            core.stamp_producer(data, *identity, sequence)
            return data

        for make in (batch_of, slow):
            refused = await append(client, partition, staged(make, None, 0))
            assert (refused.code, "no key" in refused.error.text) == (Code.INVALID_BATCH, True)
        gate = Gate(node, monkeypatch)
        numbers = [await begin(client, partition, staged(make, b"k", sequence))
                   for sequence, make in enumerate((slow, batch_of))]
        await until(lambda: gate.begun)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, numbers)] == [0, 1]


# ---- the end of a wait ---------------------------------------------------------------------------


@in_trio
async def test_a_batch_whose_time_passes_is_ambiguous_and_never_appended(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        numbers = [await begin(client, partition, slow(b"k"), timeout_ms=50)]
        assert [result.code for result in await results(client, numbers)] == [Code.AMBIGUOUS]
        gate.opened.set()
        assert (await append(client, partition, batch_of(b"k"))).base_offset == 0


@in_trio
async def test_a_leader_that_steps_down_meanwhile_refuses_what_waits(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        group = node.metadata.directory.locate(partition).group
        numbers = [await begin(client, partition, make(b"k")) for make in (slow, batch_of)]
        await until(lambda: node.clients.produce_handler._key_checks.count == 2)
        monkeypatch.setattr(node.clients.produce_handler._core.status, "is_leader",
                            lambda which, real=node.core.status.is_leader: (
                                which != group and real(which)))
        gate.opened.set()
        assert {result.code for result in await results(client, numbers)} <= {
            Code.NOT_LEADER, Code.LEADER_UNKNOWN}
        monkeypatch.undo()
        assert (await append(client, partition, batch_of(b"k"))).base_offset == 0


@in_trio
async def test_batches_that_wait_are_bounded(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        monkeypatch.setattr(key_checks, "WAITING_MAX", 1)
        numbers = [await begin(client, partition, slow(b"k"))]
        await until(lambda: gate.begun)
        refused = await append(client, partition, batch_of(b"k"))
        assert (refused.code, refused.error.limit, refused.error.value) == (Code.QUEUE_FULL, 1, 2)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, numbers)] == [0]


@in_trio
async def test_bytes_that_wait_are_bounded_when_their_time_has_passed(tmp_path, monkeypatch):
    """They are answered, and no longer count as those of appends in flight."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition, gate = await create(client), Gate(node, monkeypatch)
        data = batch_of(b"k", codec=layout.CODEC_GZIP, value=secrets.token_bytes(200_000))
        checks = node.clients.produce_handler._key_checks
        monkeypatch.setattr(checks, "_bytes_max", 3 * len(data))
        codes = []
        for _ in range(4):
            [result] = await results(client, [await begin(client, partition, data, timeout_ms=1)])
            codes.append(result.code)
        assert codes == [Code.AMBIGUOUS] * 3 + [Code.QUEUE_FULL]
        assert (result.error.limit, result.error.value) == (3 * len(data), 4 * len(data))
        gate.opened.set()
        await until(lambda: not checks.waiting)
        assert (checks._bytes, checks.count, checks._tasks) == (0, 0, 0)
        assert (await append(client, partition, data)).base_offset == 0


@in_trio
async def test_partitions_are_checked_in_turn_by_a_few_tasks(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        answer = await client.ask(CreateTopic("t", 5, settings=COMPACT))
        first, gate = answer.reply.topic.incarnation, Gate(node, monkeypatch)
        numbers = [await begin(client, first + at % 5, slow(b"k")) for at in range(15)]
        checks = node.clients.produce_handler._key_checks
        await until(lambda: checks.count == 15)
        assert (gate.begun, checks._tasks, len(checks.waiting)) == (key_checks.THREADS_MAX,
                                                                    key_checks.THREADS_MAX, 5)
        gate.opened.set()
        assert [result.base_offset for result in await results(client, numbers)] == [
            at // 5 for at in range(15)]
        await until(lambda: not checks._tasks)


@in_trio
async def test_a_node_without_room_for_a_task_refuses(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        partition = await create(client)
        background = node.clients.produce_handler._key_checks._background
        monkeypatch.setattr(background, "start", lambda *_: False)
        assert (await append(client, partition, slow(b"k"))).code == Code.QUEUE_FULL
        monkeypatch.undo()
        assert (await append(client, partition, slow(b"k"))).base_offset == 0
