"""Partitions that are added to a topic of three nodes: by the command, by a native client and by
one of Kafka's, while records are appended and read, across a restart of every node."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial

import pytest
from click.testing import CliRunner

from admin_cli.main import cli
from multiraft.client import NetworkLimits, Record, blocking
from tests.e2e.world import wait_for
from tests.kafka_clients.trial import kafka_servers

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
#: Clients ask for the metadata of topics in use twice in this time.
OFTEN = NetworkLimits(metadata_refresh_ms=400)
READ_S = 60.0


def read_all(consumer, values: set[bytes]) -> list[bytes]:
    """Return what a consumer reads until it has all of ``values``."""
    found: list[bytes] = []
    give_up = time.monotonic() + READ_S
    while not values <= set(found):
        assert time.monotonic() < give_up, f"not read: {sorted(values - set(found))[:4]}"
        found += [record.value for record in next(consumer).records()]
    return found


def is_used(client, other, producer, consumer, sent, read, partitions) -> bool:
    """Append a record, read up to it, and return True if each partition has a record."""
    sent.append(b"%d" % len(sent))
    producer.send_nowait(Record("grown", sent[-1])).wait()
    read.extend(read_all(consumer, {sent[-1]}))
    return len(client.describe_topic("grown").partitions) == partitions and all(
        span.end_offset for span in other.list_offsets("grown").values())


def test_a_consumer_and_a_producer_that_run_meanwhile_miss_nothing(world):
    with blocking.Client(world.addresses, limits=OFTEN) as client, world.client(2) as other:
        client.create_topic("grown", 2)
        consumer = client.consume("grown", wait_max_ms=100)
        sent: list[bytes] = []
        read: list[bytes] = []
        with client.producer(linger_ms=1, batch_bytes=400) as producer:
            for partitions in (3, 5, 12):
                other.add_partitions("grown", partitions)
                with other.producer() as first:  # before the clients know of them
                    for partition in range(partitions):
                        sent.append(b"%d to %d" % (partitions, partition))
                        first.send_nowait(Record("grown", sent[-1], partition=partition)).wait()

                wait_for(partial(is_used, client, other, producer, consumer, sent, read,
                                 partitions), f"{partitions} partitions have records")
        read += read_all(consumer, set(sent) - set(read))
        assert sorted(read) == sorted(sent), "each record is read once"
        assert len(consumer.positions()) == 12
        consumer.close()


def test_added_partitions_outlive_restarts_and_changes_of_leaders(world):
    with world.client() as client:
        client.create_topic("kept", 1)
        client.create_topic("between", 3)
        made = client.add_partitions("kept", 6)
        with client.producer() as producer:
            for partition in range(6):
                producer.send_nowait(Record("kept", b"%d" % partition, partition=partition)).wait()
    for node in world.ids():
        world.kill(node)
    world.dev.up()
    with world.client() as client:
        found = wait_for(lambda: client.topic_metadata("kept"), "the topic is known")
        assert ([part.incarnation for part in found.partitions]
                == [part.incarnation for part in made.partitions])
        assert sorted(record.value for batch in client.consume("kept", until_end=True)
                      for record in batch.records()) == [b"%d" % each for each in range(6)]
        client.add_partitions("kept", 7)
        client.delete_topic("kept")


def run(world, *arguments: str):
    return CliRunner().invoke(cli, ["topic", "add-partitions", *arguments,
                                    "--servers", ",".join(world.addresses)])


def test_the_command_adds_partitions(world):
    with world.client() as client:
        client.create_topic("typed", 2)
        client.create_topic("compacted", 1, settings={"cleanup.policy": "compact"})
    done = run(world, "typed", "--to", "4")
    assert done.exit_code == 0 and "has 4 partitions now" in done.stderr, done.output
    again = run(world, "typed", "--to", "4")
    assert again.exit_code != 0 and "has 4 partitions" in again.stderr
    refused = run(world, "compacted", "--to", "2")
    assert refused.exit_code != 0 and "--force" in refused.stderr
    assert run(world, "compacted", "--to", "2", "--force").exit_code == 0


CONFLUENT = """
import sys
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
servers = {"bootstrap.servers": sys.argv[1]}
admin = AdminClient(servers)
topic = "confluent"
admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
producer = Producer({**servers, "topic.metadata.refresh.interval.ms": 200})
def produce(key, partition=-1):
    found = []
    producer.produce(topic, b"v", key, partition, on_delivery=lambda error, message: found.append(
        (error, message)))
    producer.flush(30)
    assert found and found[0][0] is None, found
    return found[0][1].partition()
produce(b"first")
def refused(code, *arguments, **options):
    try:
        admin.create_partitions([NewPartitions(*arguments)], **options)[arguments[0]].result(30)
    except KafkaException as error:
        assert error.args[0].code() == code, error
    else:
        raise AssertionError(f"{arguments} were not refused")
admin.create_partitions([NewPartitions(topic, 4)], validate_only=True)[topic].result(30)
assert len(admin.list_topics(topic, 30).topics[topic].partitions) == 1
admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
for count, code in ((4, 37), (1, 37), (100_000, 44)):
    refused(code, topic, count)
refused(3, "never-created", 4)
refused(39, topic, 5, [[1, 2, 3]])
assert len(admin.list_topics(topic, 30).topics[topic].partitions) == 4
used = set()
while used != {0, 1, 2, 3}:
    used |= {produce(b"k%d" % number) for number in range(40)}
reader = Consumer({**servers, "group.id": "unused", "enable.auto.commit": False})
reader.assign([TopicPartition(topic, number, 0) for number in range(4)])
read = set()
while read != {0, 1, 2, 3}:
    for message in reader.consume(100, 1.0):
        if message.error() is None:
            read.add(message.partition())
print("done")
"""


def test_kafka_s_client_adds_partitions_and_uses_them(world):
    pytest.importorskip("confluent_kafka")
    done = subprocess.run([sys.executable, "-c", CONFLUENT, kafka_servers(world)],
                          capture_output=True, text=True, timeout=180)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
