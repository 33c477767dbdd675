"""Requests that append records, and for identities of producers."""

from __future__ import annotations

import os
from typing import Any

from multiraft.codec import layout
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import ProduceRequest
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from tests.e2e.world import wait_for
from tests.kafka_compare.records import TIME_MS, make_batch
from tests.kafka_compare.server import LATEST, Server
from tests.kafka_compare.topics import NO_SUCH_ID, WRONG_NAMES, creation, topic

#: First version with ids of topics.
IDS_SINCE = 13
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
#: First version with zstd.
ZSTD_SINCE = 7
#: Topics of the comparison, and their settings.
TOPICS: dict[str, dict[str, str]] = {
    "log": {}, "twice-read": {}, "acks": {}, "wrong": {}, "identities": {},
    "small": {"max.message.bytes": "1000"}, "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "deleted-records": {}, "compressed": {"compression.type": "producer"}}
#: A format 0 message set with one empty message, and its start.
OLD_MESSAGES = (bytes(8) + (14).to_bytes(4) + bytes.fromhex("69d4b3f1") + bytes([0, 0])
                + (-1).to_bytes(4, signed=True) * 2)


def prepare(server: Server) -> None:
    """Create the topics of the comparison."""
    made = server.send(ApiKey.CREATE_TOPICS, creation(*(
        topic(name, 2, configs=configs) for name, configs in TOPICS.items())))
    failed = [(each.name, each.error_message) for each in made.topics if each.error_code]
    assert not failed, failed
    server.learn(*TOPICS)
    # The first ids are given a moment after the start.
    wait_for(lambda: not server.send(ApiKey.INIT_PRODUCER_ID, InitProducerIdRequest(
        transactional_id=None)).error_code, "ids of producers are given")


def appending(server: Server, version: int, name: str, records: bytes | None, partition: int = 0,
              **fields: Any) -> ProduceRequest:
    """Return a request that appends to a partition.  ``topic_id`` in place of that of ``name``."""
    topic_id = fields.pop("topic_id", server.ids.get(name, NO_SUCH_ID))
    named = {"topic_id": topic_id} if version >= IDS_SINCE else {"name": name}
    return ProduceRequest(**{"acks": -1, "timeout_ms": 10_000, **fields}, topic_data=[
        ProduceRequest.TopicProduceData(**named, partition_data=[
            ProduceRequest.PartitionProduceData(index=partition, records=records)])])


def produce(server: Server) -> None:
    """Append right batches: each version, acks and compression."""
    key = ApiKey.PRODUCE
    server.ask_each("produce", key, lambda version: appending(
        server, version, "log", make_batch(b"v%d" % version, b"second", keys=(b"a", b"b"),
                                           time_ms=TIME_MS + 1000 * version,
                                           time_deltas=(0, 500))))
    for acks in (1, -1):
        server.ask(f"produce with acks {acks}", key, appending(
            server, LATEST[key], "acks", make_batch(b"v"), acks=acks))
    server.silent("produce with acks 0", key, appending(
        server, LATEST[key], "acks", make_batch(b"v"), acks=0))
    server.silent("produce with acks 0 what is refused", key, appending(
        server, LATEST[key], "acks", make_batch(b"v", crc=1), acks=0))
    server.silent("produce with acks 0 to a topic that does not exist", key, appending(
        server, LATEST[key], "never-created", make_batch(b"v"), acks=0))
    for name, codec in CODECS.items():
        server.ask_each(f"produce with {name}", key, lambda version, codec=codec: appending(
            server, version, "compressed", make_batch(b"x" * 500, b"y", codec=codec)),
            since=3 if name in ("none", "zstd") else LATEST[key])
    server.ask("produce null values and no keys", key, appending(
        server, LATEST[key], "log", make_batch(None, b"", time_ms=TIME_MS + 50_000)))
    server.ask("produce to a topic with the time of the broker", key, appending(
        server, LATEST[key], "stamped", make_batch(b"v")))
    server.ask("produce the time of the broker to a topic with that of producers", key, appending(
        server, LATEST[key], "wrong", make_batch(b"v",
                                                 attributes=layout.ATTRIBUTE_LOG_APPEND_TIME)))


def produce_wrong(server: Server) -> None:
    """Append what should be refused."""
    key, last = ApiKey.PRODUCE, LATEST[ApiKey.PRODUCE]

    def one(label: str, records: bytes | None, name: str = "wrong", **fields: Any) -> None:
        server.ask(f"produce: {label}", key, appending(server, last, name, records, **fields))

    for acks in (2, -2):
        server.ask_each(f"produce: acks {acks}", key, lambda version, acks=acks: appending(
            server, version, "wrong", make_batch(b"v"), acks=acks), since=12)
    server.ask_each("produce: a topic that does not exist", key, lambda version: appending(
        server, version, "never-created", make_batch(b"v")))
    for label, name in WRONG_NAMES.items():
        server.ask(f"produce: a name with {label}", key, appending(
            server, 12, name, make_batch(b"v")), 12)
    one("the id zero", make_batch(b"v"), topic_id=bytes(16))
    for partition in (2, -1, 2_147_483_647):
        one(f"partition {partition}", make_batch(b"v"), partition=partition)
    good = make_batch(b"v", b"w")
    one("no records", None)
    one("empty records", b"")
    one("some bytes", b"wrong bytes")
    one("part of a batch", good[:-3])
    one("a batch and some bytes", good + b"more")
    one("a batch and part of another", good + good[:-3])
    one("two batches", good + good)
    one("a wrong CRC", make_batch(b"v", crc=1))
    for magic in (3, -1, 100):
        one(f"format {magic}", make_batch(b"v", magic=magic))
    one("format 0", OLD_MESSAGES)
    one("format 1", make_batch(b"v", magic=1))
    one("no record in a batch", make_batch(count=0, last_delta=-1))
    one("no record, last offset 0", make_batch(count=0, last_delta=0))
    one("a count above the records", make_batch(b"v", count=2, last_delta=1))
    one("a count below the records", make_batch(b"v", b"w", count=1, last_delta=0))
    one("a last offset above the count", make_batch(b"v", b"w", last_delta=5))
    one("a last offset below the count", make_batch(b"v", b"w", last_delta=0))
    one("a first offset of 7", make_batch(b"v", base_offset=7))
    one("a record that ends early", make_batch(b"v", block=b"\x7fbroken"))
    one("bytes behind the records", make_batch(b"v", block=make_batch(b"v")[61:] + b"more"))
    for codec in (5, 6, 7):
        one(f"compression {codec}", make_batch(b"v", codec=codec))
    for name, codec in list(CODECS.items())[1:]:
        one(f"{name} that cannot be decompressed",
            make_batch(b"v", codec=codec, block=b"wrong" * 9))
    one("a control batch", make_batch(b"v", attributes=layout.ATTRIBUTE_CONTROL))
    one("a transactional batch without a transaction",
        make_batch(b"v", attributes=layout.ATTRIBUTE_TRANSACTIONAL, producer=(1, 0, 0)))
    one("unknown attributes", make_batch(b"v", attributes=0x4000))
    one("a negative time", make_batch(b"v", time_ms=-5), "twice-read")
    one("no time", make_batch(b"v", time_ms=-1), "twice-read")
    one("the largest time", make_batch(b"v", time_ms=(1 << 63) - 1), "twice-read")
    one("a batch above the limit of the topic", make_batch(os.urandom(2000)), "small")
    one("a batch above the limit of Kafka", make_batch(os.urandom(1_100_000)))
    keys_in_compacted_topic(server)
    one("a negative time to wait", make_batch(b"v"), timeout_ms=-1)
    server.ask("produce: partitions with different results", key, ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(
            topic_id=server.ids["acks"], partition_data=[
                ProduceRequest.PartitionProduceData(index=index, records=records)
                for index, records in ((0, good), (1, make_batch(b"v", crc=1)), (5, good))])]))
    server.ask("produce: a partition twice", key, ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[ProduceRequest.TopicProduceData(
            topic_id=server.ids["wrong"], partition_data=[
                ProduceRequest.PartitionProduceData(index=1, records=make_batch(each))
                for each in (b"first", b"second")])]))
    server.ask("produce: no topic", key, ProduceRequest(acks=-1, timeout_ms=10_000))


def keys_in_compacted_topic(server: Server) -> None:
    """Append with and without keys to a topic whose records leave by their keys."""
    for name, codec in CODECS.items():
        for label, keys in {"without a key": (None,), "with an empty key": (b"",),
                            "with and without keys": (b"a", None, b"", None)}.items():
            batch = make_batch(*[b"v"] * len(keys), keys=keys, codec=codec)
            server.ask_each(f"keys: {name}, {label}", ApiKey.PRODUCE,
                            lambda version, batch=batch: appending(
                                server, version, "compacted", batch), since=ZSTD_SINCE)
        if codec:
            server.ask(f"keys: {name} that cannot be decompressed", ApiKey.PRODUCE, appending(
                server, LATEST[ApiKey.PRODUCE], "compacted",
                make_batch(b"v", keys=(b"k",), codec=codec, block=b"wrong" * 9)))


def identities(server: Server) -> None:
    """Ask for identities and append with them, in and out of order."""
    key, init = ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID

    def asked(**fields: Any) -> InitProducerIdRequest:
        return InitProducerIdRequest(**{"transactional_id": None, **fields})

    server.ask_each("identity", init, asked())
    server.ask("identity: an empty name of a transaction", init, asked(transactional_id=""))
    server.ask("identity: an epoch alone", init, asked(producer_epoch=3))
    server.ask("identity: an id alone", init, asked(producer_id=3))
    server.ask("identity: of a producer that does not exist", init,
               asked(producer_id=123_456, producer_epoch=3))
    server.ask("identity: of a transaction without time", init,
               asked(transactional_id="t", transaction_timeout_ms=0))
    given = server.send(init, asked())
    producer = given.producer_id
    server.ask("identity: again with its id and epoch", init,
               asked(producer_id=producer, producer_epoch=given.producer_epoch))

    def one(label: str, producer_id: int, epoch: int, sequence: int, *values: bytes,
            partition: int = 0) -> None:
        server.ask(f"idempotent: {label}", key, appending(
            server, LATEST[key], "identities",
            make_batch(*values or (b"v",), producer=(producer_id, epoch, sequence)), partition))

    given = server.send(init, asked())
    producer, epoch = given.producer_id, given.producer_epoch
    one("the first batch", producer, epoch, 0, b"a", b"b")
    one("the next batch", producer, epoch, 2, b"c")
    one("the last batch again", producer, epoch, 2, b"c")
    one("the first batch again", producer, epoch, 0, b"a", b"b")
    one("a sequence that was skipped", producer, epoch, 5)
    one("a sequence inside of an earlier batch", producer, epoch, 1)
    for number in range(3, 9):
        one(f"sequence {number}", producer, epoch, number)
    one("a batch before the last five", producer, epoch, 0, b"a", b"b")
    one("another partition, from a sequence in the middle", producer, epoch, 5, partition=1)
    one("an older epoch", producer, epoch - 1 if epoch else 0, 9)
    one("a later epoch, from a sequence in the middle", producer, epoch + 1, 9)
    one("a later epoch", producer, epoch + 1, 0)
    one("the epoch before", producer, epoch, 9)
    one("an id that was not given, sequence 0", 999_999, 0, 0)
    one("an id that was not given, sequence 4", 888_888, 0, 4)
    one("a negative epoch", producer, -1, 0)
    one("a negative sequence", producer, epoch, -1)
