"""Compaction by key in a cluster: what clients read is the newest record of each key."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chaos.planted import plugin
from chaos.run.parameters import SMALL_FILES, SMALL_LIMITS
from multiraft.client.blocking import Record
from multiraft.core import batch_header, split_batches
from multiraft.wire.messages import ANY
from tests.e2e.world import STEADY, wait_for
from tests.needs import SKIPPED

KEYS, ROUNDS = 20, 60


def table(fields: dict[str, int]) -> str:
    return "".join(f"{name} = {value}\n" for name, value in fields.items())


def small_node(config: Path, action: str = "start", *options: str) -> list[str]:
    """Return the command of a node whose segments are small."""
    sizes = [f"--storage={name}={size}" for name, size in SMALL_FILES.items()]
    planted = [word for name in plugin.active() for word in ("--planted", name)]
    return [sys.executable, "-P", "-m", "chaos.launcher", *planted, *sizes, "--", "node", action,
            "--config", str(config), *options]


def small(world) -> None:
    """Configure nodes with small files, short Raft logs and frequent passes."""
    world.dev._command = small_node
    limits = {**SMALL_LIMITS, "retention_check_interval_ms": 1000}
    for node in world.ids():
        world.configure(node, STEADY + table(limits))


SHAPE = {"nodes": 3, "groups": 2, "factor": 3, "configure": small}


def records_of(world) -> list[Record]:
    """Return what a client reads of the topic's partition, from its start to its end."""
    with world.client() as client:
        return [record for batch in client.consume("keyed", 0, "earliest", until_end=True)
                for record in batch]


@pytest.fixture(scope="module")
def newest(world) -> dict[bytes, bytes | None]:
    """The newest value of each key in a topic that is compacted."""
    newest: dict[bytes, bytes | None] = {}
    with world.client() as client:
        client.create_topic("keyed", 1, settings={
            "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
        with client.producer() as producer:
            for turn in range(ROUNDS):
                for key in range(KEYS):
                    value = b"%d of %d " % (turn, key) + bytes(900)
                    newest[b"key %d" % key] = value
                    producer.send_nowait(Record("keyed", value, key=b"key %d" % key))
                producer.flush()
    return newest


def batches_of(world, node: int, end: int) -> list[bytes]:
    """Return the batches that one node's replica has below an offset."""
    found: list[bytes] = []
    with world.session(node) as session:
        incarnation, offset = session.partition("keyed").incarnation, 0
        while offset < end:
            for batch in split_batches(session.fetch(incarnation, offset, replica=ANY)[1]):
                header = batch_header(batch)
                offset = header.base_offset + header.last_offset_delta + 1
                found.append(bytes(batch))
    return [each for each in found if batch_header(each).base_offset < end]


def test_clients_read_the_newest_record_of_each_key(world, newest):
    end = KEYS * ROUNDS

    def is_compacted() -> bool:
        with world.client() as client, client.producer() as producer:
            # Appends fill segments and have checkpoints written, as in a cluster that is used.
            for _ in range(40):
                producer.send_nowait(Record("keyed", bytes(20_000), key=b"noise"))
            producer.flush()
        return sum(record.offset < end for record in records_of(world)) <= KEYS

    wait_for(is_compacted, "older records have left", 120)
    found = records_of(world)
    read = {record.key: record.value for record in found if record.offset < end}
    assert read == newest
    assert [record.offset for record in found] == sorted({record.offset for record in found})


def test_replicas_have_equal_batches_also_after_a_crash(world, newest):
    end = KEYS * ROUNDS

    def are_equal() -> bool:
        first, *others = [batches_of(world, node, end) for node in world.ids()]
        count = sum(batch_header(each).count for each in first)
        return count <= KEYS and all(each == first for each in others)

    wait_for(are_equal, "all replicas have compacted", 120)
    for node in world.ids():
        world.kill(node)
        world.dev.start(node)
    wait_for(are_equal, "all replicas have what survived")
    assert {record.key: record.value for record in records_of(world)
            if record.offset < end} == newest


def test_clients_of_kafka_pass_over_the_holes(world, newest):
    kafka = pytest.importorskip("confluent_kafka", reason=f"{SKIPPED}confluent-kafka")
    consumer = kafka.Consumer({
        "bootstrap.servers": ",".join(node.kafka_address for node in world.dev.record.nodes),
        "group.id": "none", "enable.auto.commit": False})
    try:
        partition = kafka.TopicPartition("keyed", 0, 0)
        _, last = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.assign([partition])
        read: dict[int, tuple] = {}
        while max(read, default=-1) < last - 1:
            for message in consumer.consume(500, timeout=30):
                if message.error() is None:
                    read[message.offset()] = message.key(), message.value()
        assert dict(read[offset] for offset in sorted(read) if offset < KEYS * ROUNDS) == newest
    finally:
        consumer.close()
