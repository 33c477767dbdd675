"""Mistakes of a first program: each gets one error that says what to do instead."""

from __future__ import annotations

import asyncio
import pickle
import threading

import pytest
import trio

from multiraft import client as trio_client
from multiraft.client import (
    ConcurrentUse,
    ConfigError,
    MultiRaftError,
    NeedsTrio,
    NetworkLimits,
    Record,
    TimedOut,
    TopicExists,
    blocking,
)
from tests.client.fake_cluster import unused_addresses

ELSEWHERE = "multiraft.client.blocking"


async def ask(client):
    await client.list_topics()


async def enter(client):
    async with client:
        raise AssertionError("entered")


async def send(client):
    await client.producer().send(Record("a", b"x"))


@pytest.mark.parametrize("use", [ask, enter, send])
def test_under_asyncio_the_error_names_the_other_client(use):
    with pytest.raises(NeedsTrio, match="asyncio runs.*" + ELSEWHERE):
        asyncio.run(use(trio_client.Client("127.0.0.1:1")))


@pytest.mark.parametrize("use", [ask, enter, send])
def test_outside_of_any_loop_the_error_names_the_other_client(use):
    waiting = use(trio_client.Client("127.0.0.1:1"))
    with pytest.raises(NeedsTrio, match="trio does not run.*" + ELSEWHERE):
        waiting.send(None)
    waiting.close()


def test_without_async_the_error_names_both_ways():
    for thing in (trio_client.Client("127.0.0.1:1"), trio_client.Client("127.0.0.1:1").producer()):
        with pytest.raises(NeedsTrio, match="async with.*" + ELSEWHERE):
            with thing:
                pass

    async def loop():
        async with trio_client.Client("127.0.0.1:1") as client:
            with pytest.raises(NeedsTrio, match="async for.*" + ELSEWHERE):
                for _ in client.consume("a"):
                    pass

    trio.run(loop)


def test_a_trio_client_outside_of_its_block_says_how_to_open_it():
    async def run():
        with pytest.raises(trio_client.Closed, match="async with Client"):
            await trio_client.Client("127.0.0.1:1").list_topics()

    trio.run(run)


def test_async_with_of_the_blocking_client_names_the_other_one():
    async def run():
        async with blocking.Client("127.0.0.1:1"):
            pass

    with pytest.raises(TypeError, match="plain `with`.*multiraft.client.Client"):
        trio.run(run)


def test_a_second_thread_gets_an_error_at_once_and_changes_nothing(world, cluster):
    cluster.add_topic("a")
    with blocking.Client(cluster.servers()) as client:
        producer, consumer = client.producer(), client.consume("a")
        is_reading = threading.Event()
        whole = client.advance

        def advance():
            is_reading.set()
            whole()

        client.advance = advance
        batches = []
        reader = threading.Thread(target=lambda: batches.append(next(consumer)))
        reader.start()
        assert is_reading.wait(30)
        for use in (lambda: producer.send_nowait(Record("a", b"lost")),
                    lambda: producer.send(Record("a", b"lost")),
                    lambda: producer.send_many("a", [b"lost"]), producer.flush,
                    client.list_topics, client.poll, client.producer, client.close,
                    lambda: client.consume("a"), lambda: next(consumer), consumer.close,
                    consumer.positions, consumer.waits):
            with pytest.raises(ConcurrentUse, match="a client for each thread"):
                use()
        with blocking.Client(cluster.servers()) as other, other.producer() as sends:
            sends.send(Record("a", b"seen"))
        reader.join(60)
        assert [record.value for batch in batches for record in batch] == [b"seen"]
        producer.send(Record("a", b"afterwards")).wait()
    assert cluster.topics["a"][0].values() == [b"seen", b"afterwards"]


def test_threads_may_use_a_client_one_after_the_other(world, cluster):
    cluster.add_topic("a")
    with blocking.Client(cluster.servers()) as client:
        producer = client.producer()
        for number in range(3):
            thread = threading.Thread(
                target=lambda number=number: producer.send(Record("a", b"%d" % number)).wait())
            thread.start()
            thread.join(60)
    assert cluster.topics["a"][0].values() == [b"0", b"1", b"2"]


def test_one_address_is_enough_as_text(driver, cluster):
    cluster.add_topic("a")
    with driver.client(cluster.servers()[0]) as client:
        assert [topic.name for topic in client.list_topics()] == ["a"]


@pytest.mark.parametrize("fields, text", [
    ({"value": "text"}, r"value must be bytes.*not str.*value\.encode\(\)"),
    ({"value": b"", "key": "text"}, r"key must be bytes.*not str.*key\.encode\(\)"),
    ({"value": b"", "headers": [("name", "text")]}, "header value must be bytes"),
    ({"value": b"", "partition": "0"}, "partition must be int")])
def test_a_field_of_a_wrong_type_is_named(client, cluster, fields, text):
    cluster.add_topic("a")
    client.topic_metadata("a")
    with client.producer() as producer:
        with pytest.raises(TypeError, match=text):
            producer.send(Record("a", **fields))
        with pytest.raises(TypeError, match="value must be bytes"):
            producer.send_many("a", ["text"])
        with pytest.raises(TypeError, match="must be a Record.*Record\\(topic"):
            producer.send(b"text")


def test_without_a_cluster_a_record_ends_with_the_reason(driver):
    with unused_addresses(1) as addresses:
        with driver.client(addresses, limits=NetworkLimits(unreachable_ms=100)) as client:
            with client.producer(delivery_timeout_ms=200) as producer:
                with pytest.raises(TimedOut, match=f"topic 'a'.*no node answered: {addresses[0]}: "
                                                   "cannot connect.*refused"):
                    producer.send(Record("a", b"x")).wait()
                with pytest.raises(TimedOut, match="cannot connect.*refused"):
                    producer.send_many("a", [b"x"])
            with pytest.raises(TimedOut, match="topic 'a'.*cannot connect.*refused"):
                next(client.consume("a", unavailable_ms=200))


def test_a_topic_that_exists_already_may_be_wanted(client, cluster):
    made = client.create_topic("a", partitions=2, if_not_exists=True)
    again = client.create_topic("a", partitions=5, if_not_exists=True)
    assert (again.incarnation, len(again.partitions)) == (made.incarnation, 2)
    with pytest.raises(TopicExists):
        client.create_topic("a")


@pytest.mark.parametrize("module", [trio_client, blocking])
def test_a_client_shows_its_servers_and_its_state(module):
    client = module.Client("127.0.0.1:1,127.0.0.1:2")
    assert repr(client) == f"<{module.__name__}.Client 127.0.0.1:1,127.0.0.1:2 open>"
    assert repr(client) in repr(client.producer())
    assert "'a'" in repr(client.consume("a"))
    if module is blocking:
        client.close()
        assert repr(client).endswith("closed>")


def test_a_fetched_batch_is_pickled(client, cluster):
    cluster.add_topic("a")
    with client.producer() as producer:
        producer.send_many("a", [b"0", b"1", b"2"])
    batch = next(client.consume("a", 0, start=1))
    copy = pickle.loads(pickle.dumps(batch))
    assert repr(copy) == repr(batch) and copy.records() == batch.records()
    assert (copy.base_offset, copy.count, copy.high_watermark) == (1, 2, batch.high_watermark)


@pytest.mark.parametrize("settings, text", [
    ({"lingr_ms": 5}, "'lingr_ms': did you mean 'linger_ms'"),
    ({"linger.ms": 5}, "did you mean 'linger_ms'"),
    ({"zzz": 5}, "it takes acks, linger_ms")])
def test_a_setting_that_does_not_exist_is_named_with_a_similar_one(client, settings, text):
    with pytest.raises(TypeError, match=r"producer\(\) has no setting .*" + text):
        client.producer(**settings)
    with pytest.raises(TypeError, match=r"consume\(\) has no setting"):
        client.consume("a", **settings)


@pytest.mark.parametrize("settings, text", [
    ({"acks": "all"}, "Kafka's all"), ({"acks": 1}, "acks=1"), ({"idempotent": 1}, "idempotent=1"),
    ({"identity": 7}, "identity=7"), ({"identity": (1, None)}, "identity="),
    ({"compression": "lzma"}, "compression='lzma'"), ({"linger_ms": "5"}, "linger_ms='5'")])
def test_a_setting_of_a_wrong_value_is_named(client, settings, text):
    with pytest.raises(ConfigError, match=text):
        client.producer(**settings)


@pytest.mark.parametrize("module", [trio_client, blocking])
def test_every_error_that_is_exported_has_one_base(module):
    errors = [found for name in module.__all__
              if isinstance(found := getattr(module, name), type)
              and issubclass(found, BaseException) and not issubclass(found, Warning)]
    assert len(errors) > 20
    assert [kind for kind in errors if not issubclass(kind, MultiRaftError)] == []
    assert {"TopicExists", "UnknownTopic", "RecordTooLarge", "StorageFull", "ConfigError",
            "NotLeader"} <= {kind.__name__ for kind in errors}


def test_both_clients_export_the_same_names():
    assert trio_client.__all__ == blocking.__all__
    assert not {name for name in dir(blocking.Client) if not name.startswith("_")} & {
        "register", "unregister", "until", "turn_if_due", "turn_sometimes", "connecting", "tls"}
    assert not {name for name in dir(trio_client.Client) if not name.startswith("_")} & {
        "now_ms", "require_open", "checkpoint", "notify", "wake", "work", "until", "lost", "stale"}
