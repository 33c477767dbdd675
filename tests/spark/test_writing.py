"""Rows become records, exactly once where promised: tasks are run as Spark runs them, also
again."""

from __future__ import annotations

import itertools
from collections import Counter

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from pyspark.sql.types import StructType  # noqa: E402

from multiraft import core  # noqa: E402
from multiraft.client.blocking import VALUE_BYTES_MAX, Client  # noqa: E402
from multiraft.wire.errors import AmbiguousOutcome  # noqa: E402
from pyspark_multiraft import streaming, writing  # noqa: E402
from pyspark_multiraft.failures import OptionError, SourceError, explained  # noqa: E402
from pyspark_multiraft.options import parse_read, parse_write  # noqa: E402
from tests.client.test_forked import in_child  # noqa: E402

ONCE = {"mode": "idempotent"}


@pytest.fixture
def cluster(fake):
    with Client(fake.cluster.servers()) as client:
        client.create_topic("t", 3)
    return fake.cluster


def options(cluster, **more):
    return parse_write({"servers": ",".join(cluster.servers()), "topic": "t", **more})


def rows(count: int, size: int = 100, key: bool = False) -> list[pa.RecordBatch]:
    """Return ``count`` different rows, in batches of at most a thousand."""
    values = pa.array([b"%0*d" % (size, at) for at in range(count)])
    columns = {"value": values}
    if key:
        columns["key"] = pa.array([str(at % 11) for at in range(count)])
    return pa.table(columns).to_batches(1000)


def write(cluster, batches, batch: int = 0, task: int = 0, sink: str = "s", **more) -> int:
    return writing.write_task(options(cluster, **more), writing.Attempt(sink, task, batch),
                              iter(batches)).records


def stored(cluster) -> list[core.Record]:
    return [record for part in cluster.topics["t"] for _, data in part.log
            for record in core.decode_records(core.batch_header(data), data[61:])]


def times_each(cluster) -> set[int]:
    """Return how often each value is stored."""
    return set(Counter(record.value for record in stored(cluster)).values())


def test_every_row_is_a_record(cluster):
    batch = pa.RecordBatch.from_arrays([
        pa.array(["a", None]), pa.array([b"k", None]), pa.array([2, 0], pa.int32()),
        pa.array([1_700_000_000_123_456, 5_000], pa.timestamp("us", "UTC")),
        pa.array([[{"key": "h", "value": b"1"}, {"key": "i", "value": None}], None],
                 pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))],
        names=["value", "key", "partition", "timestamp", "headers"])
    assert write(cluster, [batch]) == 2
    [null], [full] = (part.log for part in (cluster.topics["t"][0], cluster.topics["t"][2]))
    [record] = core.decode_records(core.batch_header(full[1]), full[1][61:])
    assert record[1:] == (1_700_000_000_123, b"k", b"a", (("h", b"1"), ("i", None)))
    [record] = core.decode_records(core.batch_header(null[1]), null[1][61:])
    assert record[1:] == (5, None, None, ())


def test_a_column_may_name_the_topic_and_null_does_not(cluster):
    named = pa.RecordBatch.from_arrays([pa.array(["t", None]), pa.array(["1", "2"])],
                                       names=["topic", "value"])
    with pytest.raises(SourceError, match="null in the column 'topic'"):
        write(cluster, [named], topic="")
    assert write(cluster, [named.slice(0, 1)], topic="") == 1


@pytest.mark.parametrize("key", [False, True])
def test_a_task_that_is_run_again_doubles_nothing(cluster, monkeypatch, key):
    monkeypatch.setattr(writing, "BATCH_BYTES", 2000)
    monkeypatch.setattr(writing, "BYTES_PER_IDENTITY", 6000)
    monkeypatch.setattr(writing, "ROWS_PER_TURN", 10)
    for _ in range(3):
        assert write(cluster, rows(500, key=key), **ONCE) == 500
    assert len(stored(cluster)) == 500 and times_each(cluster) == {1}
    assert max(Counter((core.batch_header(data).producer_id, number)
                       for number, part in enumerate(cluster.topics["t"])
                       for _, data in part.log).values()) <= 5


def test_a_task_that_died_is_finished_by_the_next_attempt(cluster, monkeypatch):
    monkeypatch.setattr(writing, "BATCH_BYTES", 2000)
    monkeypatch.setattr(writing, "BYTES_PER_IDENTITY", 6000)

    class Died(Exception):
        pass

    def dies_after(count: int):
        yield from itertools.islice(_small(rows(500, key=True)), count)
        raise Died

    for count in (0, 3, 7, 1):
        with pytest.raises(Died):
            write(cluster, dies_after(count), **ONCE)
    assert 0 < len(stored(cluster)) < 500
    assert write(cluster, _small(rows(500, key=True)), **ONCE) == 500
    assert len(stored(cluster)) == 500 and times_each(cluster) == {1}


def _small(batches):
    """Return the same rows, fifty at a time."""
    return [batch.slice(at, 50) for batch in batches for at in range(0, batch.num_rows, 50)]


def test_lost_answers_are_asked_for_again(cluster):
    seen = itertools.count()
    cluster.script = lambda node, event, connection: (
        "cut-after" if type(event.request).__name__ == "Produce" and next(seen) % 2 == 0 else None)
    assert write(cluster, rows(300, key=True), **ONCE) == 300
    cluster.script = None
    assert len(stored(cluster)) == 300 and times_each(cluster) == {1}


def test_other_batches_tasks_and_sinks_are_others(cluster):
    for more in ({}, {"batch": 1}, {"batch": 1 + writing.EPOCHS}, {"task": 1}, {"sink": "r"}):
        write(cluster, rows(10), **ONCE, **more)
    assert times_each(cluster) == {5}


def test_a_late_attempt_of_an_earlier_batch_is_refused(cluster):
    write(cluster, rows(10), batch=4, **ONCE)
    write(cluster, rows(10), batch=5, **ONCE)
    with pytest.raises(SourceError, match="the cluster refused"):
        write(cluster, rows(20), batch=4, **ONCE)
    assert times_each(cluster) == {2}


def test_at_least_once_is_what_it_says(cluster):
    for _ in range(2):
        write(cluster, rows(10))
    assert times_each(cluster) == {2}


def test_a_batch_write_has_an_identity_of_its_own(cluster):
    schema = StructType().add("value", "binary")
    one, two = (writing.MultiRaftWriter(options(cluster, **ONCE), schema, False) for _ in "ab")
    assert one._sink != two._sink
    with pytest.raises(OptionError, match="sinkId is for streams"):
        writing.MultiRaftWriter(options(cluster, **ONCE, sinkId="x"), schema, False)


@pytest.mark.parametrize(("columns", "more", "said"), [
    ({"v": "string"}, {}, "the column 'v' of type string is no part of a record"),
    ({"value": "integer"}, {}, "the column 'value' of type int"),
    ({"key": "string"}, {}, "no column 'value'"),
    ({"value": "string"}, {"topic": ""}, "Set the option 'topic'"),
])
def test_rows_that_are_no_records_are_refused(cluster, columns, more, said):
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    with pytest.raises(SourceError, match=said):
        writing.MultiRaftWriter(options(cluster, **more), schema, False)


def test_a_topic_that_is_not_there_and_a_row_too_large_are_explained(cluster):
    with pytest.raises(SourceError, match="topic 'other' does not exist. Create it"):
        write(cluster, rows(1), topic="other")
    with pytest.raises(SourceError, match="a row cannot be a record: .*is larger than"):
        write(cluster, rows(1, size=9 << 20))


def test_what_nobody_knows_is_not_called_refused():
    unknown = "the outcome is unknown: commit_transaction.* Start the query again"
    with pytest.raises(SourceError, match=unknown):
        with explained(["n1:9092"]):
            raise AmbiguousOutcome("commit_transaction: it may have happened")


@pytest.mark.parametrize("mode", [{}, ONCE], ids=["at-least-once", "idempotent"])
def test_rows_are_as_large_as_nodes_take_and_larger_ones_are_refused(cluster, mode):
    sizes = [100, 900_000, 1_500_000, 100, 5_000_000, 100, VALUE_BYTES_MAX]
    values = [bytes([at]) * size for at, size in enumerate(sizes)]
    for names in (["value"], ["value", "partition"]):
        columns = [pa.array(values), pa.array([0] * len(values), pa.int32())][:len(names)]
        batch = pa.RecordBatch.from_arrays(columns, names=names)
        for _ in range(1 + (mode == ONCE)):
            assert write(cluster, [batch], sink=str(names), **mode) == len(values)
    assert times_each(cluster) == {2}
    large = pa.RecordBatch.from_arrays([pa.array([b"x", bytes(VALUE_BYTES_MAX + 1)])],
                                       names=["value"])
    keyed = large.append_column("key", pa.array([b"k", b"k"]))
    for batch in (large, keyed):
        with pytest.raises(SourceError, match="a row cannot be a record.*batch_bytes_max"):
            write(cluster, [batch], **mode)


@pytest.mark.parametrize("mode", [{}, ONCE], ids=["at-least-once", "idempotent"])
@pytest.mark.parametrize(("name", "column"), [
    ("timestamp", pa.array([-5_000_000], pa.timestamp("us", "UTC"))),
    ("partition", pa.array([-1], pa.int32()))])
def test_a_row_that_no_record_can_hold_is_refused_in_a_sentence(cluster, mode, name, column):
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), column], names=["value", name])
    with pytest.raises(SourceError):
        write(cluster, [batch], **mode)


def test_a_stream_reader_in_a_forked_process_makes_a_client_of_its_own(cluster):
    reader = streaming.MultiRaftStreamReader(parse_read(
        {"servers": ",".join(cluster.servers()), "subscribe": "t"}, "stream"))
    reader.initialOffset()
    assert in_child(reader.initialOffset) == reader.initialOffset()
    reader.stop()
