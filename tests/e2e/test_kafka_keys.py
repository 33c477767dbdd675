"""A producer of librdkafka and topics with compaction: a record without a key is refused, the
producer continues, and what it sends keeps its order."""

from __future__ import annotations

import importlib.util
import random
from typing import Any

import pytest

from tests.needs import SKIPPED

if importlib.util.find_spec("confluent_kafka") is None:
    pytest.skip(f"{SKIPPED}confluent-kafka. Run: pip install -c constraints.txt -e '.[dev]'",
                allow_module_level=True)

from confluent_kafka import KafkaError, Producer  # noqa: E402

SHAPE = {"nodes": 3, "groups": 4, "factor": 3}
FLUSH_S = 60.0
TOPIC = "compacted"


@pytest.fixture(scope="module")
def topic(world) -> str:
    with world.client() as client:
        client.create_topic(TOPIC, 2, settings={"cleanup.policy": "compact"})
    return TOPIC


class Sender:
    """A producer of one test, and the error or offset of each of its records."""

    def __init__(self, world, **settings: Any):
        self.producer = Producer({
            "bootstrap.servers": ",".join(node.kafka_address for node in world.dev.record.nodes),
            "delivery.timeout.ms": 50_000, **settings})
        self.outcomes: list[Any] = []

    def send(self, partition: int, key: bytes | None, value: bytes) -> None:
        place = len(self.outcomes)
        self.outcomes.append(None)

        def note(error: KafkaError | None, message: Any) -> None:
            self.outcomes[place] = error.code() if error is not None else message.offset()

        self.producer.produce(TOPIC, value, key, partition, on_delivery=note)

    def flush(self) -> list[Any]:
        """Wait for the outcomes, return them and begin anew."""
        assert not self.producer.flush(FLUSH_S)
        outcomes, self.outcomes = self.outcomes, []
        return outcomes


def values(world, partition: int) -> list[bytes]:
    with world.client() as client:
        return [record.value for batch in client.consume(TOPIC, partition, until_end=True)
                for record in batch]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("is_idempotent", [True, False])
def test_a_record_without_a_key_is_refused_and_the_producer_goes_on(world, topic, compression,
                                                                    is_idempotent):
    sender = Sender(world, **{"compression.type": compression, "linger.ms": 0,
                              "enable.idempotence": is_idempotent})
    name = f"{compression} {is_idempotent} ".encode()
    for number in range(3):
        sender.send(0, b"k", name + b"%d" % number + b"!" * 200)
        [offset] = sender.flush()
        sender.send(0, None, name + b"refused" + b"!" * 200)
        assert sender.flush() == [KafkaError.INVALID_RECORD]
        sender.send(0, b"", name + b"empty" + b"!" * 200)
        assert sender.flush() == [offset + 1], "an empty key is a key"
    found = [value.removeprefix(name).rstrip(b"!") for value in values(world, 0)
             if value.startswith(name)]
    assert found == [b"0", b"empty", b"1", b"empty", b"2", b"empty"]


def test_large_compressed_batches_and_small_ones_keep_their_order(world, topic):
    """The large ones are decompressed on a thread, the small ones behind them are not."""
    rng, sender = random.Random(1), Sender(world, **{
        "compression.type": "zstd", "enable.idempotence": True, "linger.ms": 1,
        "message.max.bytes": 4_000_000})
    sent = []
    for number in range(60):
        # What does not shrink is sent uncompressed: such batches are checked on the loop.
        value = rng.randbytes(20) if number % 3 else bytes(rng.randrange(1 << 20))
        sent.append(b"%d " % number + value)
        sender.send(1, b"k%d" % (number % 5), sent[-1])
        sender.producer.poll(0.002)
    assert sender.flush() == [*range(len(sent))]
    assert values(world, 1) == sent
