"""Batches of another implementation are accepted here and ours there: kafka-python as oracle."""

import pytest

from multiraft.codec import layout
from multiraft.types import BatchInfo

default_records = pytest.importorskip("kafka.record.default_records",
                                      reason="kafka-python is a development dependency")

RECORDS = [
    (1_700_000_000_000, b"LGA", b"x" * 300, [("carrier", b"UA"), ("tail", None)]),
    (1_700_000_000_500, None, b"", []),
    (1_699_999_999_000, b"", None, [("gr\u00fc\u00dfe", b"")]),
]


def test_a_batch_of_kafka_python_is_accepted_and_decodes(twin):
    builder = default_records.DefaultRecordBatchBuilder(2, 0, False, 4000, 3, 17, 1 << 16)
    for offset, (timestamp_ms, key, value, headers) in enumerate(RECORDS):
        assert builder.append(offset, timestamp_ms, key, value, headers) is not None
    batch = bytes(builder.build())
    assert twin.check_batch(batch) == BatchInfo(3, 4000, 3, 17, RECORDS[1][0], 0)
    decoded = twin.decode_records(twin.verify_batch(batch), batch[layout.BATCH_HEADER_BYTES:])
    assert [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in decoded] == RECORDS


def test_our_batch_is_the_batch_of_kafka_python(twin):
    theirs = default_records.DefaultRecordBatchBuilder(2, 0, False, 4000, 3, 17, 1 << 16)
    ours = twin.BatchBuilder(1 << 16)
    for offset, record in enumerate(RECORDS):
        theirs.append(offset, *record)
        ours.append(*record)
    batch = ours.build(4000, 3, 17)
    twin.stamp_batch(batch, 0, twin.batch_header(bytes(theirs.build())).leader_epoch)
    assert batch == bytes(theirs.build())


def test_kafka_python_reads_our_batch_with_the_append_time(twin):
    builder = twin.BatchBuilder(1 << 16)
    for record in RECORDS:
        builder.append(*record)
    batch = builder.build(4000, 3, 17)
    twin.stamp_append_time(batch, 1_700_000_123_456)
    read = default_records.DefaultRecordBatch(bytes(batch))
    assert read.validate_crc() and read.timestamp_type == 1
    theirs = [(r.timestamp, r.key, r.value, r.headers) for r in read]
    ours = twin.decode_records(twin.verify_batch(batch), batch[layout.BATCH_HEADER_BYTES:])
    assert [(r.timestamp_ms, r.key, r.value, list(r.headers)) for r in ours] == theirs
    assert {record[0] for record in theirs} == {1_700_000_123_456}


def test_kafka_python_reads_our_stamped_batch(twin):
    builder = twin.BatchBuilder(1 << 16)
    for record in RECORDS:
        builder.append(*record)
    batch = builder.build(4000, 3, 17)
    twin.stamp_batch(batch, 500, 9)
    read = default_records.DefaultRecordBatch(bytes(batch))
    assert read.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read] == [
        (500 + number, *record) for number, record in enumerate(RECORDS)]
