"""Batch reads without Spark: a reader is called as Spark calls it."""

from __future__ import annotations

import datetime
import logging
import pickle

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from pyspark.sql import datasource as spark  # noqa: E402

from multiraft.client import blocking  # noqa: E402
from multiraft.client._network import NetworkLimits  # noqa: E402
from multiraft.client.blocking import Client  # noqa: E402
from multiraft.client.ranges import Range  # noqa: E402
from multiraft.core import batch_info  # noqa: E402
from pyspark_multiraft import planning  # noqa: E402
from pyspark_multiraft.failures import LossError, SourceError  # noqa: E402
from pyspark_multiraft.options import parse_read  # noqa: E402
from pyspark_multiraft.pushdown import Bounds  # noqa: E402
from pyspark_multiraft.reading import MultiRaftReader  # noqa: E402
from tests.client.unreadable import UNREADABLE, crafted, records_block  # noqa: E402
from tests.spark.records import BEGIN_MS, append  # noqa: E402


@pytest.fixture
def cluster(fake):
    append(fake.cluster.servers(), "numbers", 0, 300)
    return fake.cluster


def reader(cluster, **options) -> MultiRaftReader:
    return MultiRaftReader(parse_read({"servers": ",".join(cluster.servers()),
                                       "subscribe": "numbers", **options}))


def rows(one: MultiRaftReader, tasks=None) -> list[tuple[str, int, int]]:
    """Return (topic, partition, offset) of all that its tasks read."""
    copy = pickle.loads(pickle.dumps(one))
    tasks = one.partitions() if tasks is None else tasks
    return sorted((row["topic"], row["partition"], row["offset"])
                  for task in tasks for batch in copy.read(task) for row in batch.to_pylist())


def offsets(one: MultiRaftReader, tasks=None) -> list[tuple[int, int]]:
    return [(partition, offset) for _, partition, offset in rows(one, tasks)]


@pytest.mark.parametrize(("options", "expected"), [
    ({"startingOffsets": '{"numbers":{"0":97,"1":-1,"2":-2}}',
      "endingOffsets": '{"numbers":{"0":99,"1":-1,"2":1}}'}, [(0, 97), (0, 98), (2, 0)]),
    ({"startingTimestamp": str(BEGIN_MS + 295_500)}, [(0, 99), (1, 99), (2, 98), (2, 99)]),
    ({"startingTimestamp": str(BEGIN_MS + 299_000),
      "startingOffsetsByTimestampStrategy": "latest"}, [(2, 99)]),
    ({"endingTimestamp": str(BEGIN_MS + 2_000)}, [(0, 0), (1, 0)]),
    ({"startingOffsets": '{"numbers":{"0":98,"1":5,"2":-1}}', "endingOffsetsByTimestamp":
      f'{{"numbers":{{"0":{BEGIN_MS + 297_000},"1":{BEGIN_MS + 19_000},"2":{BEGIN_MS * 2}}}}}'},
     [(0, 98), (1, 5)]),
    ({"assign": '{"numbers":[1]}', "subscribe": "", "startingOffsets": '{"numbers":{"1":98}}'},
     [(1, 98), (1, 99)]),
])
def test_ranges_are_what_the_options_say(cluster, options, expected):
    assert offsets(reader(cluster, **options)) == expected


def test_topics_are_named_matched_or_assigned(cluster):
    append(cluster.servers(), "numbers-b", 0, 4)
    for options, expected in (({"subscribe": "numbers, numbers-b"}, 304),
                              ({"subscribe": "", "subscribePattern": "numbers.b"}, 4),
                              ({"subscribe": "", "assign": '{"numbers":[1],"numbers-b":[0]}'},
                               102)):
        assert len(rows(reader(cluster, **options))) == expected


def test_many_small_topics_share_tasks_and_a_large_one_is_cut(cluster):
    for number in range(40):
        append(cluster.servers(), f"small{number:02}", 0, 9)
    tasks = reader(cluster, subscribe="", subscribePattern="small.*").partitions()
    assert len(tasks) == 1 and len(tasks[0].value) == 120
    append(cluster.servers(), "large", 0, 9000)
    one = reader(cluster, subscribe="large", splitBytes="20000")
    tasks = one.partitions()
    assert len(tasks) > 5
    assert len(offsets(one, tasks)) == len(set(offsets(one, tasks))) == 9000


@pytest.mark.parametrize(("options", "said"), [
    ({"subscribe": "nothing"}, "topic 'nothing' does not exist. Create it"),
    ({"subscribe": "", "subscribePattern": "z+"}, "no topic matches subscribePattern='z+'"),
    ({"subscribe": "", "assign": '{"numbers":[7]}'},
     "assign names partition 'numbers/7', which does not exist"),
    ({"startingOffsets": '{"numbers":{"0":5}}'},
     "says nothing of partition 'numbers/1', 'numbers/2'"),
    ({"startingTimestamp": "1900000000000"}, "startingOffsetsByTimestampStrategy=latest"),
    ({"endingOffsets": '{"numbers":{"0":500,"1":0,"2":0}}'},
     "offset 500 of numbers/0 is beyond the end, 100"),
    ({"startingOffsets": '{"numbers":{"0":50,"1":0,"2":0}}',
      "endingOffsets": '{"numbers":{"0":40,"1":-1,"2":-1}}'}, "is after the end, 40"),
])
def test_what_cannot_be_read_is_explained(cluster, options, said):
    with pytest.raises(SourceError) as caught:
        reader(cluster, **options).partitions()
    assert said in str(caught.value)


def test_a_cluster_that_does_not_answer_is_named(cluster, monkeypatch):
    limits = NetworkLimits(unreachable_ms=100)
    monkeypatch.setattr(planning, "open_client", lambda connection: blocking.Client(
        connection.servers, limits=limits))
    with pytest.raises(SourceError) as caught:
        reader(cluster, servers="127.0.0.1:1").partitions()
    assert "no node of the cluster answers at 127.0.0.1:1" in str(caught.value)
    assert "multiraft cluster status --servers 127.0.0.1:1" in str(caught.value)


def test_lost_records_fail_the_query_or_are_left_out_as_asked(cluster, caplog):
    [part, *_] = cluster.topics["numbers"]
    part.start_offset = part.log[1][0]
    starting = '{"numbers":{"0":2,"1":0,"2":0}}'
    with pytest.raises(LossError) as caught:
        reader(cluster, startingOffsets=starting).partitions()
    gone = f"numbers/0: offsets 2..{part.start_offset - 1} are gone"
    assert gone in str(caught.value) and "failOnDataLoss=false" in str(caught.value)
    with caplog.at_level(logging.WARNING):
        left = offsets(reader(cluster, startingOffsets=starting, failOnDataLoss="false"))
    assert left == [(0, at) for at in range(part.start_offset, 100)] + [
        (number, at) for number in (1, 2) for at in range(100)]
    assert gone in caplog.text, "it is said at least"


def test_retention_that_overtakes_a_running_task_is_a_loss_too(cluster):
    strict, tolerant = (reader(cluster, failOnDataLoss=word) for word in ("true", "false"))
    tasks = strict.partitions()
    [part, *_] = cluster.topics["numbers"]
    part.start_offset = part.log[1][0]
    with pytest.raises(LossError, match=f"offsets 0..{part.start_offset - 1} are gone"):
        rows(strict, tasks)
    assert len(rows(tolerant, tasks)) == 300 - part.start_offset


def test_a_topic_that_was_created_again_is_not_the_one_that_was_planned(cluster):
    one = reader(cluster)
    tasks = one.partitions()
    with Client(cluster.servers()) as client:
        client.delete_topic("numbers")
    append(cluster.servers(), "numbers", 0, 300)
    with pytest.raises(LossError, match="deleted and created again"):
        rows(one, tasks)
    assert rows(reader(cluster, failOnDataLoss="false"), tasks) == []


def test_nothing_to_read_is_no_error(cluster):
    with Client(cluster.servers()) as client:
        client.create_topic("empty")
    assert reader(cluster, subscribe="empty").partitions() == []


@pytest.mark.parametrize("data", [each.values[0] for each in UNREADABLE[::4]])
def test_a_batch_that_cannot_be_opened_fails_by_name_or_is_left_out(cluster, caplog, data):
    part = cluster.topics["numbers"][1]
    first, count = part.next_offset, batch_info(data).count
    assert part.append(bytes(data))[0] == part.append(bytes(crafted(0, records_block(1))))[0] == 0
    expected = [*offsets(reader(cluster, endingOffsets='{"numbers":{"0":0,"1":100,"2":0}}')),
                (1, first + count)]
    with pytest.raises(SourceError, match=f"numbers/1: the batch at offset {first}.*startingOff"):
        rows(reader(cluster, startingOffsets='{"numbers":{"0":100,"1":99,"2":100}}'))
    with caplog.at_level(logging.WARNING):
        read = offsets(reader(cluster, assign='{"numbers":[1]}', subscribe="",
                              skipUnreadable="true"))
    assert read == expected
    assert f"numbers/1: the batch at offset {first}" in caplog.text


def test_a_filter_by_time_searches_a_topic_once(cluster, monkeypatch):
    found = []
    monkeypatch.setattr(Client, "offsets_at", lambda self, topic, ms: found.append(topic) or {})
    bounds = Bounds()
    moment = datetime.datetime(2023, 1, 1, tzinfo=datetime.timezone.utc)
    assert list(bounds.take([spark.GreaterThan(("timestamp",), moment)]))
    with blocking.Client(cluster.servers()) as client:
        for number in range(3):
            bounds.cut(client, Range("numbers", number, 0, 0, 10))
    assert found == ["numbers"]
