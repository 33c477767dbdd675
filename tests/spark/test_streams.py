"""Batches of a stream without Spark: the reader is called as Spark calls it."""

from __future__ import annotations

import logging
import pickle

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from pyspark.sql.streaming.datasource import (  # noqa: E402
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
)

from multiraft.client import staging  # noqa: E402
from multiraft.client.blocking import Client, Record  # noqa: E402
from multiraft.client.ranges import Range  # noqa: E402
from pyspark_multiraft.failures import LossError, SourceError  # noqa: E402
from pyspark_multiraft.options import STREAM, parse_read  # noqa: E402
from pyspark_multiraft.streaming import MultiRaftStreamReader, shared_out  # noqa: E402
from tests.spark.records import append  # noqa: E402

ALL = ReadAllAvailable()


@pytest.fixture
def cluster(fake):
    return fake.cluster


@pytest.fixture
def open_reader(cluster):
    """Yield readers of topics, closed at the end."""
    opened = []

    def reader(**options) -> MultiRaftStreamReader:
        opened.append(MultiRaftStreamReader(parse_read(
            {"servers": ",".join(cluster.servers()), "startingOffsets": "earliest", **options},
            STREAM)))
        return opened[-1]

    yield reader
    for each in opened:
        each.stop()


def offsets(of: dict, topic: str = "a") -> list[int]:
    return list(of["topics"][topic]["offsets"].values())


def rows(reader: MultiRaftStreamReader, start: dict, end: dict) -> list[tuple[str, int, int]]:
    """Return the records that the tasks of a batch read: (topic, partition, offset)."""
    copy = pickle.loads(pickle.dumps(reader))
    return sorted((row["topic"], row["partition"], row["offset"])
                  for task in reader.partitions(start, end)
                  for batch in copy.read(task) for row in batch.to_pylist())


def test_batches_follow_each_other_without_gap_or_overlap(cluster, open_reader):
    append(cluster.servers(), "a", 0, 300)
    reader = open_reader(subscribe="a", maxOffsetsPerTrigger="70")
    assert reader.getDefaultReadLimit() == ReadMaxRows(70)
    at, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(70))) != at:
        batch = rows(reader, at, end)
        assert 0 < len(batch) <= 70
        assert rows(reader, at, end) == batch, "a batch that is repeated is the same"
        seen += batch
        at = end
    assert sorted(seen) == [("a", part, at) for part in range(3) for at in range(100)]
    assert reader.partitions(at, at) == []


def test_a_limit_in_bytes_is_about_kept_and_never_stops_a_query(cluster, open_reader):
    append(cluster.servers(), "a", 0, 6000)
    reader = open_reader(subscribe="a", maxBytesPerTrigger="20000")
    start = reader.initialOffset()
    assert reader.getDefaultReadLimit() == ReadMaxBytes(20_000)
    end = reader.latestOffset(start, ReadMaxBytes(20_000))
    size = sum(len(b"value ") + 20 for _ in rows(reader, start, end))
    assert 10_000 < size < 40_000
    assert sum(offsets(reader.latestOffset(start, ReadMaxBytes(1)))) == 1
    assert sum(offsets(reader.latestOffset(start, ALL))) == 6000, "Spark may ask for everything"


def test_both_limits_hold_together(cluster, open_reader):
    append(cluster.servers(), "a", 0, 6000)
    reader = open_reader(subscribe="a", maxBytesPerTrigger="2000", maxOffsetsPerTrigger="5000")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert 0 < sum(offsets(end)) < 1000


def test_every_partition_gets_its_share():
    parts = [Range("t", number, 1, 10, 10 + count) for number, count in enumerate((900, 90, 9, 1))]
    assert [part.count for part in shared_out(parts, 100)] == [91, 9, 0, 0]
    assert [part.count for part in shared_out(parts, 3)] == [3, 0, 0, 0] or sum(
        part.count for part in shared_out(parts, 3)) == 3
    assert shared_out(parts, 1000) == parts


def test_available_now_ends_at_what_was_the_end(cluster, open_reader):
    append(cluster.servers(), "a", 0, 30)
    reader = open_reader(subscribe="a")
    at = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    append(cluster.servers(), "a", 30, 60)
    end = reader.latestOffset(at, ALL)
    assert offsets(end) == [10, 10, 10]
    assert reader.latestOffset(end, ALL) == end
    assert offsets(reader.reportLatestOffset()) == [20, 20, 20]


def test_a_topic_that_appears_is_read_from_its_first_record(cluster, open_reader):
    append(cluster.servers(), "a", 0, 30)
    reader = open_reader(subscribePattern="[ab]", startingOffsets="latest")
    start = reader.initialOffset()
    assert offsets(start) == [10, 10, 10]
    append(cluster.servers(), "b", 0, 9)
    end = reader.latestOffset(start, ALL)
    assert rows(reader, start, end) == [("b", part, at) for part in range(3) for at in range(3)]


def test_a_pattern_may_match_nothing_yet(cluster, open_reader):
    reader = open_reader(subscribePattern="later.*")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    append(cluster.servers(), "later", 0, 3)
    assert len(rows(reader, start, reader.latestOffset(start, ALL))) == 3


def test_a_named_topic_has_to_be_there_at_the_start(open_reader):
    with pytest.raises(SourceError, match="'nothing' does not exist"):
        open_reader(subscribe="nothing").initialOffset()


def test_what_retention_took_is_a_loss_or_left_out(cluster, open_reader):
    append(cluster.servers(), "a", 0, 60, partitions=1)
    [part] = cluster.topics["a"]
    strict, tolerant = open_reader(subscribe="a"), open_reader(subscribe="a",
                                                               failOnDataLoss="false")
    start = strict.initialOffset()
    part.start_offset = part.log[1][0]
    end = strict.latestOffset(start, ALL)
    with pytest.raises(LossError, match=rf"a/0: offsets 0..{part.start_offset - 1} are gone"):
        strict.partitions(start, end)
    assert rows(tolerant, start, end) == [("a", 0, at) for at in range(part.start_offset, 60)]


def test_deleted_offsets_use_up_no_limit_of_a_batch(cluster, open_reader, caplog):
    append(cluster.servers(), "a", 0, 60, partitions=1)
    [part] = cluster.topics["a"]
    strict, tolerant = open_reader(subscribe="a"), open_reader(subscribe="a",
                                                               failOnDataLoss="false")
    start = strict.initialOffset()
    part.start_offset = begin = part.log[3][0]
    end = tolerant.latestOffset(start, ReadMaxRows(5))
    with caplog.at_level(logging.WARNING):
        assert rows(tolerant, start, end) == [("a", 0, at) for at in range(begin, begin + 5)]
    assert f"a/0: offsets 0..{begin - 1} are gone" in caplog.text
    with pytest.raises(LossError, match=rf"a/0: offsets 0..{begin - 1} are gone"):
        strict.partitions(start, end)
    assert tolerant.latestOffset(end, ALL) != end


def test_a_stream_whose_records_were_all_deleted_moves_to_the_log_start(cluster, open_reader):
    append(cluster.servers(), "a", 0, 60, partitions=1)
    [part] = cluster.topics["a"]
    tolerant = open_reader(subscribe="a", failOnDataLoss="false")
    start = tolerant.initialOffset()
    part.start_offset = part.next_offset
    end = tolerant.latestOffset(start, ReadMaxRows(5))
    assert rows(tolerant, start, end) == [] and tolerant.latestOffset(end, ALL) == end
    append(cluster.servers(), "a", 60, 63, partitions=1)
    assert len(rows(tolerant, end, tolerant.latestOffset(end, ALL))) == 3


def test_a_deletion_that_overtakes_the_tasks_of_a_batch_is_a_loss_or_left_out(
        cluster, open_reader, caplog):
    append(cluster.servers(), "a", 0, 60, partitions=1)
    [part] = cluster.topics["a"]
    strict, tolerant = open_reader(subscribe="a"), open_reader(subscribe="a",
                                                               failOnDataLoss="false")
    start = strict.initialOffset()
    planned = strict.partitions(start, strict.latestOffset(start, ALL))
    part.start_offset = begin = part.log[1][0]
    gone = f"a/0: offsets 0..{begin - 1} are gone, the log begins at {begin}"
    with pytest.raises(LossError, match=gone):
        [row for task in planned for row in strict.read(task)]
    with caplog.at_level(logging.WARNING):
        found = sum(batch.num_rows for task in planned for batch in tolerant.read(task))
    assert found == 60 - begin and gone in caplog.text


def test_a_topic_that_was_created_again_is_another_one(cluster, open_reader):
    append(cluster.servers(), "a", 0, 60)
    strict, tolerant = open_reader(subscribe="a"), open_reader(subscribe="a",
                                                               failOnDataLoss="false")
    begin = strict.initialOffset()
    start = strict.latestOffset(begin, ALL)
    with Client(cluster.servers()) as client:
        client.delete_topic("a")
    with pytest.raises(LossError, match="topics a no longer exist"):
        strict.latestOffset(start, ALL)
    append(cluster.servers(), "a", 0, 30)
    with pytest.raises(LossError, match="deleted and created again"):
        strict.latestOffset(start, ALL)
    end = tolerant.latestOffset(start, ALL)
    assert len(rows(tolerant, start, end)) == 30, "all of the new one"
    with pytest.raises(LossError, match="was deleted"):
        strict.partitions(begin, start)
    assert rows(tolerant, begin, start) == []


def test_a_repeated_batch_is_cut_into_the_same_tasks(cluster, open_reader):
    append(cluster.servers(), "a", 0, 6000)
    first = open_reader(subscribe="a", splitBytes="5000")
    start = first.initialOffset()
    end = first.latestOffset(start, ALL)
    tasks = [task.value for task in first.partitions(start, end)]
    assert len(tasks) > 3
    append(cluster.servers(), "a", 6000, 12_000)
    cluster.script = lambda node, event, connection: (
        "cut" if type(event.request).__name__ == "Fetch" else None)
    again = open_reader(subscribe="a", splitBytes="5000")
    assert [task.value for task in again.partitions(start, end)] == tasks, "nobody has to be asked"


def test_a_batch_ends_before_what_an_open_transaction_has_staged(cluster, open_reader):
    append(cluster.servers(), "a", 0, 30)
    reader = open_reader(subscribe="a")
    with Client(cluster.servers()) as client:
        txn = staging.begin_transaction(client, "sink", 0, bytes(16))
        txn.stages_in(client, "a")
        with client.producer(identity=txn.identity) as producer:
            producer.send(Record("a", b"staged", partition=0)).wait()
        with client.producer() as producer:
            producer.send(Record("a", b"behind", partition=0)).wait()
        start = reader.initialOffset()
        end = reader.latestOffset(start, ALL)
        assert offsets(end) == [10, 10, 10] and len(rows(reader, start, end)) == 30
        assert reader.latestOffset(end, ALL) == end
        dirty = open_reader(subscribe="a", isolation="read_uncommitted")
        assert offsets(dirty.latestOffset(start, ALL)) == [12, 10, 10]
        staging.commit_transaction(client, txn.sink, txn.number, 0)
        later = reader.latestOffset(end, ALL)
        assert rows(reader, end, later) == [("a", 0, 10), ("a", 0, 11)]
