"""Deliveries: each record knows its own offset; deliveries of one batch end together."""

from __future__ import annotations

import pickle

import pytest

from multiraft.client import BatchReceipt, Record, RecordReceipt
from multiraft.client._records import TimedReceipt
from tests.client.test_producer_state import Bench, metadata


def values_at(cluster, topic, partition=0):
    """Return offset -> value of a partition's records."""
    return dict(enumerate(cluster.topics[topic][partition].values()))


@pytest.mark.parametrize("is_known", [True, False], ids=["known topic", "unknown topic"])
def test_each_record_has_the_offset_that_a_reader_finds_it_at(client, cluster, is_known):
    cluster.add_topic("a")
    with client.producer() as producer:
        if is_known:
            producer.send(Record("a", b"first")).wait()
        sent = {value: producer.send_nowait(Record("a", value)) for value in (b"x", b"y", b"z")}
        producer.flush()
    log = values_at(cluster, "a")
    for value, delivery in sent.items():
        receipt = delivery.wait()
        assert log[delivery.offset] == log[receipt.offset] == value
        assert receipt.base_offset <= receipt.offset < receipt.base_offset + receipt.count
        assert [*delivery.offsets] == [delivery.offset]


def test_many_records_have_their_offsets_in_the_order_of_the_list(client, cluster):
    cluster.add_topic("a", partitions=3)
    values = [b"%04d" % number for number in range(300)]
    with client.producer(batch_bytes=400) as producer:
        deliveries = producer.send_many("a", values)
    found = [values_at(cluster, "a", delivery.wait().partition)[offset]
             for delivery in deliveries for offset in delivery.offsets]
    assert found == values
    assert len(deliveries) < len(values)


def test_records_of_several_partitions_have_their_offsets_in_the_order_of_the_list(client, cluster):
    cluster.add_topic("a", partitions=3)
    client.topic_metadata("a")
    records = [Record("a", b"%04d" % number, partition=number * number % 3)
               for number in range(60)]
    with client.producer(batch_bytes=400) as producer:
        deliveries = producer.send_many("a", records)
    places = [(delivery.wait().partition, offset)
              for delivery in deliveries for offset in delivery.offsets]
    assert [values_at(cluster, "a", partition)[offset] for partition, offset in places] == [
        record.value for record in records]
    assert len(deliveries) < len(records), "neighbours in one partition share a delivery"


def test_a_large_record_among_small_ones_has_its_offset(client, cluster):
    cluster.add_topic("a")
    client.topic_metadata("a")
    values = [b"s", bytes(3_000), b"t", bytes(3_000), b"u"]
    with client.producer(batch_bytes=1_000) as producer:
        deliveries = producer.send_many("a", values)
        single = producer.send(Record("a", bytes(2_000)))
    assert [offset for delivery in deliveries for offset in delivery.offsets] == [*range(5)]
    assert single.offset == 5


def test_deliveries_of_one_batch_are_equal_and_end_together():
    bench = Bench(linger_ms=5)
    first, second = bench.send(), bench.send()
    bench.state.records.seal_all()
    other = bench.send()
    assert first == second and {first, second} == {first} and first != other
    assert first != "text" and not first.done
    bench.answer(bench.one(), base_offset=19)
    assert (first.offset, second.offset) == (19, 20)
    assert "count=2" in repr(first) and repr(other) == "<Delivery pending>"


def test_an_offset_before_the_outcome_says_to_wait():
    delivery = Bench().send()
    with pytest.raises(RuntimeError, match=r"call wait\(\) first"):
        _ = delivery.offset


def test_a_receipt_has_the_time_that_the_leader_gave():
    timed, plain = TimedReceipt.of("a", 1, 10, 5, 77), BatchReceipt("a", 1, 10, 5)
    assert timed == plain and timed.log_append_time_ms == 77 and plain.log_append_time_ms is None
    assert RecordReceipt.at(timed, 3).log_append_time_ms == 77
    assert RecordReceipt.at(plain, 3).log_append_time_ms is None
    assert pickle.loads(pickle.dumps(RecordReceipt.at(timed, 3))).log_append_time_ms == 77


def test_a_receipt_is_the_receipt_of_the_batch_with_an_offset():
    receipt = RecordReceipt.at(BatchReceipt("a", 1, 10, 5), 3)
    assert receipt == BatchReceipt("a", 1, 10, 5) and isinstance(receipt, BatchReceipt)
    topic, partition, base_offset, count = receipt
    assert (topic, partition, base_offset, count, receipt.offset) == ("a", 1, 10, 5, 13)
    assert pickle.loads(pickle.dumps(receipt)).offset == 13
    assert repr(receipt) == ("RecordReceipt(topic='a', partition=1, offset=13, base_offset=10, "
                             "count=5)")


def test_without_acknowledgements_there_is_no_offset(client, cluster):
    cluster.add_topic("a")
    with client.producer(acks="none") as producer:
        delivery = producer.send_nowait(Record("a", b"x"))
    assert delivery.wait().offset == delivery.offset == -1
    assert not delivery.offsets


def test_records_that_waited_for_their_topic_count_from_their_place_in_the_batch():
    bench = Bench(linger_ms=5)
    bench.metadata.forget_topic("t")
    waited = [bench.send() for _ in range(3)]
    bench.metadata.apply(("t",), metadata(), 0)
    bench.poll()
    later = bench.send()
    bench.answer(bench.one(5), base_offset=7)
    assert [delivery.offset for delivery in (*waited, later)] == [7, 8, 9, 10]
