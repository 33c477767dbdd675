"""Records that can never be appended: their sender gets the error at once, without effect on
others.
"""

from __future__ import annotations

import random
import re
from functools import partial

import pytest
import trio
import trio.testing

from multiraft import client as trio_client
from multiraft import core
from multiraft.client import (
    VALUE_BYTES_MAX,
    BufferFull,
    Record,
    RecordTooLarge,
    _accumulator,
    blocking,
)
from multiraft.client._accumulator import ProducerSettings
from multiraft.client._metadata import MetadataCache
from multiraft.client._producer import ProducerState
from multiraft.client._records import batch_bytes_of
from multiraft.codec import layout
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire import errors, messages
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.fake_cluster import unused_addresses
from tests.client.scripts import produced, values_of
from tests.client.test_producer_state import Bench

WRONG_TOPICS = [b"orders", None, 5, 1.5, ("a",), "or\udcffders", "", "x" * 5000]
REFUSALS = (TypeError, ValueError, MultiRaftError)
WRONG_RECORDS = [
    {"value": "text"}, {"value": 5}, {"value": 0}, {"value": bytearray(b"x")},
    {"value": memoryview(b"x")}, {"value": ["x"]}, {"key": "text"}, {"key": 0},
    {"key": bytearray(b"k")}, {"key": memoryview(b"k")},
    {"partition": -1}, {"partition": True}, {"partition": False}, {"partition": 0.0},
    {"partition": "0"}, {"partition": 10 ** 30}, {"timestamp_ms": 1 << 63}, {"timestamp_ms": -2},
    {"timestamp_ms": 1.5}, {"timestamp_ms": "now"}, {"timestamp_ms": 10 ** 30},
    {"headers": [("caf\udce9", b"1")]}, {"headers": [(b"name", b"1")]}, {"headers": [("a",)]},
    {"headers": [("a", "b")]}, {"headers": ["ab"]}, {"headers": 5}, {"headers": {"a": b"b"}},
    {"headers": [("a", b"b", b"c")]}, {"headers": [(None, b"1")]},
]


def described(fields: dict) -> str:
    """Return the fields as text without addresses, so that test ids agree between processes."""
    return re.sub(r"at 0x[0-9a-f]+", "of bytes", repr(fields))


@pytest.mark.parametrize("topic", WRONG_TOPICS, ids=repr)
def test_a_topic_that_nobody_can_have_is_refused_and_others_are_served(client, cluster, topic):
    cluster.add_topic("good")
    with client.producer(delivery_timeout_ms=5_000) as producer:
        for use in (lambda: producer.send_nowait(Record(topic, b"x")),
                    lambda: producer.send(Record(topic, b"x")),
                    lambda: producer.send_many(topic, [b"x"]),
                    lambda: producer.send_many("good", [Record(topic, b"x")]),
                    lambda: client.consume(topic), lambda: client.describe_topic(topic),
                    lambda: client.list_offsets(topic)):
            with pytest.raises(REFUSALS):
                use()
        assert producer.send(Record("good", b"y")).wait().base_offset == 0
    assert values_of(client.consume("good", until_end=True)) == [b"y"]
    client.consume("good").close()


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
@pytest.mark.parametrize("fields", WRONG_RECORDS, ids=map(described, WRONG_RECORDS))
def test_a_record_of_wrong_types_is_refused_at_once(client, cluster, known, fields):
    cluster.add_topic("a")
    with client.producer(linger_ms=60_000, delivery_timeout_ms=5_000) as producer:
        if known:
            producer.send_many("a", [b"before"])
        with pytest.raises(REFUSALS):
            producer.send_nowait(Record(**{"topic": "a", "value": b"v", **fields}))
        producer.send_nowait(Record("a", b"after"))
    assert cluster.topics["a"][0].values() == [b"before"] * known + [b"after"]


@pytest.mark.parametrize("record", [None, b"x", ("a", b"x"), "a", 5], ids=repr)
def test_what_is_no_record_is_refused_at_once(client, cluster, record):
    cluster.add_topic("a")
    with client.producer() as producer:
        with pytest.raises(TypeError, match="must be a Record"):
            producer.send_nowait(record)
        with pytest.raises(TypeError):
            producer.send_many("a", [Record("a", b"x"), record])
    assert cluster.topics["a"][0].values() == [b"x"]


@pytest.mark.parametrize("wrong", [
    {"partition": -1}, {"partition": True}, {"partition": 1.0}, {"partition": "0"},
    {"partition": 10 ** 30}, {"start": -1}, {"start": 1.5}, {"start": True}, {"start": None},
    {"start": "first"}, {"start": b"latest"}, {"start": 1 << 63},
    {"start": trio_client.Timestamp(-1)}, {"start": trio_client.Timestamp("now")},
    {"wait_max_ms": 1.5}, {"wait_max_ms": 10 ** 12}, {"partition_bytes_max": 1 << 40},
    {"unavailable_ms": "long"}, {"prefer": b"leader"}, {"rack": None}], ids=repr)
def test_a_consumer_of_what_cannot_be_is_refused_at_once(client, cluster, wrong):
    cluster.add_topic("a")
    with pytest.raises(REFUSALS):
        client.consume("a", **wrong)


@pytest.mark.parametrize("wrong", [
    {"linger_ms": 1.5}, {"linger_ms": None}, {"batch_bytes": "1000"}, {"batch_bytes": True},
    {"delivery_timeout_ms": float("nan")}, {"delivery_timeout_ms": 10 ** 30},
    {"request_timeout_ms": 10 ** 9}, {"acks": b"commit"}, {"compression": None},
    {"identity": (-1, 0)}], ids=repr)
def test_a_producer_of_what_cannot_be_is_refused_at_once(client, wrong):
    with pytest.raises((TypeError, ConfigError)):
        client.producer(**wrong)


@pytest.mark.parametrize("wrong", [
    {"servers": [b"127.0.0.1:1"]}, {"servers": [None]}, {"servers": "127.0.0.1"},
    {"client_id": b"me"}, {"client_id": "\udcff"}, {"client_id": "x" * 300}], ids=repr)
@pytest.mark.parametrize("kind", [trio_client.Client, blocking.Client])
def test_a_client_of_what_cannot_be_is_refused_at_once(kind, wrong):
    with pytest.raises((TypeError, ConfigError)):
        kind(**{"servers": ["127.0.0.1:1"], **wrong})


@pytest.mark.parametrize("ask", [
    lambda client: client.create_topic("a", partitions=10 ** 30),
    lambda client: client.create_topic("a", partitions=1.5),
    lambda client: client.create_topic("a", partitions=True),
    lambda client: client.create_topic("a", partitions=-1),
    lambda client: client.create_topic("a\udcff"), lambda client: client.create_topic(b"a"),
    lambda client: client.delete_topic("a", 1 << 64), lambda client: client.delete_topic("a", "1"),
    lambda client: client.offsets_at("known", 1 << 70),
    lambda client: client.offsets_at("known", "x"),
    lambda client: client.group_transfer(1 << 40, 1), lambda client: client.group_transfer(1, 1.5)])
def test_an_operation_that_cannot_be_asked_for_is_refused_to_who_asks(client, cluster, ask):
    cluster.add_topic("known")
    with pytest.raises(REFUSALS) as caught:
        ask(client)
    assert not isinstance(caught.value, errors.TimedOut)
    assert [topic.name for topic in client.list_topics()] == ["known"]


def test_topics_that_nodes_do_not_answer_for_together_are_asked_for_apart(client, cluster):
    """Whatever made a node refuse, metadata of other topics are learned."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        cluster.add_topic(name)
    cluster.script = lambda node, event, connection: (
        ResponseEvent(event.id, code=Code.INVALID_REQUEST, error=ErrorDetail("bad name"))
        if isinstance(event.request, messages.Metadata) and "t7" in (event.request.topics or ())
        else None)
    with client.producer(linger_ms=0, delivery_timeout_ms=10_000) as producer:
        deliveries = {name: producer.send_nowait(Record(name, b"x")) for name in names}
        with pytest.raises(errors.InvalidRequest, match="bad name") as caught:
            deliveries.pop("t7").wait()
        assert caught.value.topic == "t7"
        for delivery in deliveries.values():
            assert delivery.wait().base_offset == 0
        with pytest.raises(errors.InvalidRequest, match="bad name"):
            next(client.consume("t7"))
        cluster.script = None
        assert producer.send(Record("t7", b"x")).wait().base_offset == 0


def test_a_request_refused_as_a_whole_is_repeated_in_parts():
    bench = Bench(partitions=3)
    for partition in range(3):
        bench.send(partition=partition)
    deliveries = [queue.queue[0].outcomes[0] if queue.queue else queue.open.outcomes[0]
                  for queue in bench.state.records.partitions.values()]
    shared = bench.one()
    bench.state.done(shared, ResponseEvent(1, None, Code.INVALID_REQUEST, ErrorDetail("odd")), 0)
    assert not any(delivery.done for delivery in deliveries)
    apart = bench.poll(100)
    assert [len(attempt.batches) for attempt in apart] == [1, 1, 1]
    bench.answer(apart[0], now=100)
    bench.answer(apart[2], now=100)
    bench.state.done(apart[1], ResponseEvent(1, None, Code.INVALID_REQUEST, ErrorDetail("odd")),
                     100)
    outcomes = [delivery.outcome for delivery in deliveries]
    assert [type(outcome).__name__ for outcome in outcomes] == [
        "BatchReceipt", "InvalidRequest", "BatchReceipt"]
    assert (outcomes[1].topic, outcomes[1].partition) == ("t", 1) and "t/1" in str(outcomes[1])


def test_batches_of_a_partition_that_are_repeated_apart_keep_their_order():
    bench = Bench(batch_bytes=200)
    for number in range(3):
        bench.send(bytes([number]) * 100)
    shared = bench.one()
    assert len(shared.batches) == 3
    bench.state.done(shared, ResponseEvent(1, None, Code.INVALID_REQUEST, ErrorDetail("odd")), 0)
    sequences = [batch.base_sequence for attempt in bench.poll(100)
                 for _, batch in attempt.batches]
    assert sequences == [0, 1, 2]


# ---- how large ---------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
def test_a_record_larger_than_a_batch_is_to_be_goes_alone_and_in_order(client, cluster, known):
    cluster.add_topic("a")
    values = [b"1" * 50, b"2" * 700_000, b"3" * 50, b"4" * 50, b"5" * 5_000_000, b"6" * 50]
    with client.producer(batch_bytes=1000) as producer:
        if known:
            client.describe_topic("a")
            producer.send_many("a", [b"0"])
        deliveries = [producer.send_nowait(Record("a", value)) for value in values]
        assert [delivery.wait().count >= 1 for delivery in deliveries] == [True] * 6
    assert cluster.topics["a"][0].values()[-6:] == values


def test_values_larger_than_a_batch_is_to_be_go_alone_and_in_order(client, cluster):
    cluster.add_topic("a")
    values = [bytes([number]) * size for number, size in enumerate(
        [10, 2_000, 10, 10, 300_000, 300_000, 10])]
    with client.producer(batch_bytes=1000) as producer:
        deliveries = producer.send_many("a", values)
        assert sum(delivery.wait().count for delivery in deliveries) == len(values)
    assert cluster.topics["a"][0].values() == values


def test_the_largest_value_is_taken_and_one_byte_more_is_not(client, cluster):
    cluster.add_topic("a")
    cluster.add_topic("b")
    with client.producer() as producer:
        assert producer.send(Record("a", bytes(VALUE_BYTES_MAX))).wait().base_offset == 0
        largest = bytes(VALUE_BYTES_MAX)
        for topic in ("a", "b"):
            for record in (Record(topic, largest + b"x"), Record(topic, largest, b"k"),
                           Record(topic, largest[5:], headers=[("name", b"value")])):
                for use in (partial(producer.send, record), partial(producer.send_nowait, record),
                            partial(producer.send_many, topic, [record])):
                    with pytest.raises(RecordTooLarge,
                                       match=f"{topic!r}.*batch_bytes_max=") as caught:
                        use()
                    assert caught.value.topic == topic
                    assert caught.value.limit == layout.BATCH_BYTES_MAX < caught.value.value
            with pytest.raises(RecordTooLarge, match="batch_bytes_max="):
                producer.send_many(topic, [largest + b"x"])
    (_, data), = cluster.topics["a"][0].log
    assert len(data) == layout.BATCH_BYTES_MAX


@pytest.mark.parametrize("compression", ["gzip", "zstd", "lz4", "snappy"])
def test_a_record_that_does_not_become_smaller_is_sent_as_it_is(client, cluster, compression):
    cluster.add_topic("a")
    value = random.Random(1).randbytes(VALUE_BYTES_MAX)
    with client.producer(compression=compression) as producer:
        producer.send(Record("a", value)).wait()
        producer.send(Record("a", bytes(VALUE_BYTES_MAX))).wait()
    assert values_of(client.consume("a", until_end=True)) == [value, bytes(VALUE_BYTES_MAX)]


def test_what_a_node_says_that_it_takes_is_the_limit():
    cache = MetadataCache()
    state = ProducerState(ProducerSettings(batch_bytes=1000), cache, random.Random(1),
                          node_batch_bytes_max=lambda: 100_000)
    state.records.send(Record("t", bytes(90_000)), 0, 0)
    with pytest.raises(RecordTooLarge, match="batch_bytes_max=100000"):
        state.records.send(Record("t", bytes(110_000)), 0, 0)


def test_the_size_of_a_record_is_that_of_its_encoding():
    for value in (None, b"", bytes(63), bytes(64), bytes(8_191), bytes(8_192), bytes(2_000_000)):
        for key in (None, b"", b"k" * 100):
            for headers in ((), [("name", b"v")], [("h\xe9", None)] * 70):
                builder = core.BatchBuilder(layout.BATCH_BYTES_MAX)
                builder.append(0, key, value, headers)
                assert batch_bytes_of(Record("t", value, key, headers=headers)) == builder.size
    assert batch_bytes_of(Record("t", bytes(VALUE_BYTES_MAX))) == layout.BATCH_BYTES_MAX


@pytest.mark.parametrize("known", [True, False], ids=["known topic", "unknown topic"])
@pytest.mark.parametrize("fields", [
    {"value": bytes(70 << 20)}, {"value": b"", "key": bytes(70 << 20)},
    {"value": b"", "headers": [("h", bytes(35 << 20))] * 2}], ids=["value", "key", "headers"])
def test_a_record_larger_than_the_buffer_is_refused_at_once(client, cluster, known, fields):
    cluster.add_topic("a")
    with client.producer() as producer:
        if known:
            producer.send_many("a", [b"x"])
        for use in (producer.send, producer.send_nowait, lambda record: producer.send_many(
                "a", [record])):
            with pytest.raises(RecordTooLarge):
                use(Record("a", **fields))
    assert cluster.topics["a"][0].next_offset == known


def test_a_small_buffer_is_a_limit_as_well(client, cluster):
    cluster.add_topic("a")
    with client.producer(batch_bytes=1000, buffer_bytes_max=50_000) as producer:
        for use in (lambda: producer.send(Record("a", bytes(60_000))),
                    lambda: producer.send(Record("a", bytes(49_990))),
                    lambda: producer.send(Record("a", b"", headers=[("h", bytes(60_000))])),
                    lambda: producer.send_many("a", [bytes(60_000)])):
            with pytest.raises(RecordTooLarge, match="buffer_bytes_max=50000"):
                use()
        producer.send(Record("a", bytes(49_000))).wait()


def test_records_that_fit_only_alone_wait_for_each_other(client, cluster):
    cluster.add_topic("a")
    with client.producer(batch_bytes=1000, buffer_bytes_max=50_000, linger_ms=0) as producer:
        for _ in range(5):
            producer.send(Record("a", bytes(40_000)))
        producer.send_many("a", [bytes(40_000)] * 5)
        producer.send_many("a", [Record("a", bytes(40_000))] * 5)
        for headers in range(5):
            producer.send(Record("a", bytes(38_000), headers=[("h", b"")] * (900 + headers)))
    assert cluster.topics["a"][0].next_offset == 20


def test_open_batches_do_not_linger_while_a_record_waits_for_their_room(client, cluster):
    cluster.add_topic("a", partitions=8)
    with client.producer(batch_bytes=1000, buffer_bytes_max=6_000, linger_ms=600_000) as producer:
        for partition in range(8):
            producer.send(Record("a", bytes(700), partition=partition))
        producer.send(Record("a", bytes(5_500), partition=0))
    assert sum(part.next_offset for part in cluster.topics["a"]) == 9


def test_a_large_record_is_not_overtaken_for_ever(world, cluster):
    """Else small ones would take all space that becomes free."""
    cluster.add_topic("a")
    sent = []

    async def small(producer):
        while True:
            await producer.send(Record("a", bytes(500)))

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            producer = client.producer(batch_bytes=1000, buffer_bytes_max=20_000, linger_ms=0)
            async with trio.open_nursery() as nursery:
                for _ in range(5):
                    nursery.start_soon(small, producer)
                for _ in range(3):
                    await trio.sleep(0)
                    sent.append(await (await producer.send(Record("a", bytes(19_000)))).wait())
                nursery.cancel_scope.cancel()
            await producer.close()

    world.run(run)
    assert len(sent) == 3


def test_sending_always_lets_others_run(world, cluster):
    """A loop of refused sends must not block the event loop."""
    cluster.add_topic("a")

    async def run():
        async with trio_client.Client(cluster.servers()) as client:
            producer = client.producer()
            await producer.send(Record("a", b"x"))
            for wrong in (Record("a", bytes(9 << 20)), Record("a", b"x", partition=7),
                          Record(b"a", b"x"), Record("a", "x")):
                with trio.move_on_after(0.05) as scope:
                    while True:
                        try:
                            await producer.send(wrong)
                        except REFUSALS:
                            pass
                assert scope.cancelled_caught
                with trio.move_on_after(0.05) as scope:
                    while True:
                        try:
                            await producer.send_many("a", [wrong])
                        except REFUSALS:
                            pass
                assert scope.cancelled_caught
            with trio.move_on_after(0.05) as scope:
                while True:
                    await producer.flush()
            assert scope.cancelled_caught
            with trio.move_on_after(0.05) as scope:
                await producer.send_many("a", [Record("a", b"x")] * 1_000_000)
            assert scope.cancelled_caught
            await producer.close()

    world.run(run)


# ---- one bad record among good ones --------------------------------------------------------------


@pytest.mark.parametrize("bad", [bytes(9 << 20), "text", None, 5],
                         ids=["large", "text", "None", "5"])
def test_values_before_a_bad_one_are_appended_and_known(client, cluster, bad):
    cluster.add_topic("a")
    with client.producer(batch_bytes=1000) as producer:
        values = [b"%05d" % number for number in range(500)]
        with pytest.raises((TypeError, RecordTooLarge)) as caught:
            producer.send_many("a", [*values, bad, b"after"])
        assert caught.value.index == 500
        assert any("record 500" in note for note in caught.value.__notes__)
    assert sum(delivery.result().count for delivery in caught.value.deliveries) == 500
    assert cluster.topics["a"][0].values() == values


@pytest.mark.parametrize("bad", [{"value": bytes(9 << 20)}, {"value": "text"}, {"partition": 9},
                                 {"topic": b"a"}, {"topic": "zzz\udcff"}],
                         ids=["large", "text", "partition", "topic", "surrogate"])
def test_records_before_a_bad_one_are_appended_and_known(client, cluster, bad):
    cluster.add_topic("a")
    with client.producer(batch_bytes=1000) as producer:
        producer.send_many("a", [b"known"])
        records = [Record("a", b"%05d" % number, b"key") for number in range(50)]
        with pytest.raises(REFUSALS) as caught:
            producer.send_many("a", [*records, Record(**{"topic": "a", "value": b"v", **bad}),
                                     Record("a", b"after")])
        assert caught.value.index == 50
    last = [delivery.result() for delivery in caught.value.deliveries][-1]
    assert last.base_offset + last.count == 51
    assert cluster.topics["a"][0].values()[1:] == [record.value for record in records]


def test_a_partition_that_is_gone_with_the_next_life_of_a_topic_names_its_record(client, cluster):
    cluster.add_topic("a", partitions=3)
    with client.producer(linger_ms=0) as producer:
        producer.send(Record("a", b"x", partition=2)).wait()
        client.delete_topic("a")
        client.create_topic("a", partitions=1)
        client.describe_topic("a")
        with pytest.raises(errors.UnknownPartition) as caught:
            producer.send_many("a", [Record("a", b"0", partition=0),
                                     Record("a", b"2", partition=2)])
        assert (caught.value.index, caught.value.topic, caught.value.partition) == (1, "a", 2)
    [delivery] = caught.value.deliveries
    assert delivery.result().base_offset == 0


def test_a_topic_that_is_deleted_while_values_wait_for_room_is_told(client, cluster):
    """The list is long, and its topic is deleted meanwhile."""
    cluster.add_topic("a")

    def delete(node, event, connection):
        if isinstance(event.request, messages.Produce) and produced(cluster) > 5:
            cluster.topics.pop("a", None)
            cluster.metadata_index += 1
            return ResponseEvent(event.id, code=Code.UNKNOWN_PARTITION, error=ErrorDetail("gone"))
        return None

    cluster.script = delete
    with pytest.raises((errors.UnknownTopic, errors.UnknownPartition)) as caught:
        with client.producer(batch_bytes=1000, buffer_bytes_max=5_000,
                             delivery_timeout_ms=5_000) as producer:
            producer.send_many("a", [bytes(400)] * 2_000)
    assert caught.value.index > 0 and caught.value.deliveries


def test_values_for_a_cluster_that_does_not_answer_end_with_the_delivery_timeout(driver):
    with unused_addresses(1) as addresses:
        with driver.client(addresses) as client:
            with client.producer(delivery_timeout_ms=200) as producer:
                with pytest.raises(errors.TimedOut, match="no metadata in 200 ms"):
                    producer.send_many("a", [b"x"])


def test_what_does_not_fit_is_typed_and_bounded():
    bench = Bench(batch_bytes=1000, buffer_bytes_max=2000)
    bench.send(bytes(900))
    with pytest.raises(BufferFull) as caught:
        bench.send(bytes(1500))
    assert caught.value.needed >= 1500


# ---- limits of topics ---------------------------------------------------------------------------


def refused(bench: Bench, limit: int):
    """Have the next batch refused because the topic takes ``limit`` bytes."""
    bench.answer(bench.one(), Code.BATCH_TOO_LARGE, -1,
                 detail=ErrorDetail("over max.message.bytes", limit=limit, value=limit + 1))


def test_a_producer_builds_smaller_batches_after_a_refusal():
    bench = Bench()
    first = [bench.send(bytes(100)) for _ in range(50)]
    refused(bench, 1_000)
    with pytest.raises(errors.BatchTooLarge, match="max.message.bytes"):
        first[-1].result()
    second = [bench.send(bytes(100)) for _ in range(50)]
    sizes, sequence = [], 0
    while any(not delivery.done for delivery in second):
        attempt = bench.one()
        for data in attempt.payload:
            header = core.batch_header(data)
            assert header.base_sequence == sequence, "the refused batch used no sequence"
            sequence += header.count
            sizes.append(len(data))
        bench.answer(attempt, base_offset=sequence)
    assert len(sizes) > 5 and max(sizes) <= 1_000
    assert sequence == 50


def test_a_record_above_the_limit_of_its_topic_is_refused_alone():
    bench = Bench()
    bench.send(bytes(5_000))
    refused(bench, 1_000)
    large = bench.send(bytes(2_000))
    refused(bench, 1_000)
    with pytest.raises(errors.BatchTooLarge):
        large.result()
    small = bench.send(b"small")
    bench.answer(bench.one())
    assert small.result().offset == 0


@pytest.mark.parametrize("limit", [-1, 0, 61, 1 << 40])
def test_an_answer_without_a_usable_limit_changes_nothing(limit):
    bench = Bench()
    bench.send(b"x")
    refused(bench, limit)
    for _ in range(50):
        bench.send(bytes(100))
    assert [core.batch_header(data).count for data in bench.one().payload] == [50]


def test_the_number_of_learned_limits_is_bounded(monkeypatch):
    monkeypatch.setattr(_accumulator, "_TOPIC_LIMITS_MAX", 3)
    records = Bench().state.records
    for number in range(5):
        records.learn_limit(f"t{number}", 1_000)
    assert [*records._topic_limits] == ["t2", "t3", "t4"]
