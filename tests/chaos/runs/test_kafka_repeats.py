"""Batches of an idempotent producer that are sent again at the port of Kafka, and the checkers."""

from __future__ import annotations

from multiraft import core
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.messages.init_producer_id import InitProducerIdRequest
from tests.chaos.checkers.timeline import Timeline
from tests.node.harness import in_trio
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka


def numbered(producer: int, epoch: int, sequence: int) -> bytearray:
    """Return a batch of one record with the identity of its producer."""
    builder = core.BatchBuilder(1 << 16)
    assert builder.append(1, None, b"v")
    return builder.build(producer, epoch, sequence)


@in_trio
async def test_a_batch_that_is_sent_again_keeps_its_offset(tmp_path):
    line = Timeline()
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        identity = await client.ask(ApiKey.INIT_PRODUCER_ID,
                                    InitProducerIdRequest(transactional_id=None))
        producer, epoch = identity.producer_id, identity.producer_epoch
        for sequence in (0, 1, 1, 2, 1):
            operation = line.append([sequence + 1], producer=producer, epoch=epoch,
                                    sequence=sequence)
            result = await client.produce(topic.topic_id, numbered(producer, epoch, sequence))
            assert result.error_code == 0
            line.ok(operation, offset=result.base_offset)
    assert line.ids() == set()
