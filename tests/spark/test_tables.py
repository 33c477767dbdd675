"""Topics as tables, through a real session and a real node."""

from __future__ import annotations

import subprocess
import sys

import pytest

from multiraft.client import staging
from multiraft.client.blocking import Client, Record
from tests.spark.records import append, row

COLUMNS = {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "timestamp",
           "key": "binary", "value": "binary"}
MORE_COLUMNS = {**COLUMNS, "headers": "array<struct<key:string,value:binary>>", "epoch": "int"}
def table(spark, servers, **options):
    return (spark.read.format("multiraft").option("servers", ",".join(servers))
            .options(**options).load())


def rows_in(frame) -> list[tuple]:
    """Return all rows, times without a zone, in order."""
    return sorted((tuple(bytes(each) if isinstance(each, bytearray) else each for each in found)
                   for found in frame.collect()), key=repr)


def offsets_in(frame) -> list[tuple[int, int]]:
    return sorted((found.partition, found.offset) for found in frame.collect())


def planned(frame) -> int:
    """Return the number of tasks of a query; its ranges are fixed from then on."""
    return frame._jdf.queryExecution().toRdd().getNumPartitions()


def message_of(action) -> str:
    """Return the message that a user sees when ``action`` fails."""
    from pyspark.errors import PySparkException
    with pytest.raises(PySparkException) as caught:
        action()
    text = str(caught.value)
    assert "at org.apache.spark" not in text, "no trace of the JVM"
    return text


@pytest.fixture(scope="module")
def servers(world) -> tuple[str, ...]:
    return world.addresses


@pytest.fixture(scope="module")
def numbers(servers) -> list[Record]:
    return append(servers, "numbers", 0, 300)


def test_a_topic_is_a_table_without_registration(spark, servers, numbers):
    frame = table(spark, servers, subscribe="numbers")
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == COLUMNS
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    expected = sorted((row(each, at) for at, each in enumerate(numbers)), key=repr)
    found = rows_in(frame.selectExpr("topic", "partition", "offset",
                                     "to_timestamp_ntz(cast(timestamp as string)) as timestamp",
                                     "key", "value"))
    assert found == expected


def test_columns_are_chosen_by_options(spark, servers, numbers):
    frame = table(spark, servers, subscribe="numbers", columns=",".join(MORE_COLUMNS))
    assert {field.name: field.dataType.simpleString() for field in frame.schema} == MORE_COLUMNS
    found = {(each.partition, each.offset): each for each in frame.collect()}
    for at, each in enumerate(numbers):
        there = found[each.partition, at // 3]
        assert [(pair.key, bytes(pair.value)) for pair in there.headers] == list(each.headers)
        assert there.epoch >= 1
    assert table(spark, servers, subscribe="numbers", includeValue="false").columns == [
        "topic", "partition", "offset", "timestamp", "key"]


def test_sql_finds_the_source(spark, servers, numbers):
    options = f"USING multiraft OPTIONS (servers '{servers[0]}', subscribe 'numbers')"
    spark.sql(f"CREATE TEMPORARY VIEW numbers_table {options}")
    try:
        found = spark.sql("SELECT partition, count(*) AS n, max(offset) AS last "
                          "FROM numbers_table GROUP BY partition ORDER BY partition").collect()
        assert [tuple(each) for each in found] == [(0, 100, 99), (1, 100, 99), (2, 100, 99)]
    finally:
        spark.sql("DROP VIEW numbers_table")
    assert "CREATE TEMPORARY VIEW" in message_of(
        lambda: spark.sql(f"CREATE TABLE numbers_kept {options}"))


def test_many_tasks_or_one_read_the_same_and_a_range_stays_what_it_is(spark, servers):
    append(servers, "growing", 0, 60)
    ending = '{"growing":{"0":20,"1":20,"2":20}}'
    one = table(spark, servers, subscribe="growing", endingOffsets=ending)
    many = table(spark, servers, subscribe="growing", endingOffsets=ending, minPartitions="7")
    assert planned(one) == 1 and planned(many) >= 7
    before = rows_in(one)
    append(servers, "growing", 60, 90)
    assert rows_in(one) == rows_in(many) == before
    assert len(before) == 60


def test_filters_are_used_when_asked_for(spark, servers, numbers):
    def asked(where: str, **options):
        found = table(spark, servers, subscribe="numbers", pushdown="true", **options).where(where)
        plan = found._jdf.queryExecution().executedPlan().toString()
        plain = table(spark, servers, subscribe="numbers", **options).where(where)
        assert offsets_in(found) == offsets_in(plain)
        return offsets_in(found), plan

    found, plan = asked("topic = 'numbers' and partition in (0, 2) and offset >= 5 and offset < 7")
    assert found == [(0, 5), (0, 6), (2, 5), (2, 6)]
    assert "Filter (" not in plan, "these are exact"
    found, plan = asked("timestamp >= timestamp'2023-11-14 22:18:17'")
    assert found == [(0, 99), (1, 99), (2, 99)]
    assert "Filter (" in plan, "Spark looks again"
    assert asked("topic like 'other%'")[0] == []
    assert asked("partition > 0 and offset = 3")[0] == [(1, 3), (2, 3)]
    assert asked("partition = 1 or offset = 3")[0][:2] == [(0, 3), (1, 0)], "Spark keeps this"


def test_what_cannot_be_read_is_explained_before_and_while_tasks_run(spark, servers, fake):
    assert "topic 'nothing' does not exist. Create it" in message_of(
        lambda: table(spark, servers, subscribe="nothing").collect())
    assert "Did you mean 'startingOffsets'?" in message_of(
        lambda: table(spark, servers, subscribe="nothing", startingOffset="earliest"))
    lossy = fake.cluster
    append(lossy.servers(), "lossy", 0, 60, partitions=1)
    [part] = lossy.topics["lossy"]
    frame = table(spark, lossy.servers(), subscribe="lossy")
    planned(frame)
    part.start_offset = part.log[1][0]  # retention removes records before the query reads them
    assert f"lossy/0: offsets 0..{part.start_offset - 1} are gone" in message_of(frame.collect)


def test_another_schema_is_refused_with_the_one_there_is(spark, servers, numbers):
    text = message_of(lambda: spark.read.format("multiraft").schema("value string").options(
        servers=servers[0], subscribe="numbers").load().collect())
    assert "no table with the schema (value string). Leave .schema() out" in text
    assert "topic string, partition int, offset bigint" in text


def read_stream(spark, servers, **options):
    return (spark.readStream.format("multiraft").option("servers", ",".join(servers))
            .options(**{"startingOffsets": "earliest", **options}).load())


@pytest.mark.parametrize("mode", ["idempotent", "transactional"])
def test_a_stream_copies_a_topic_and_a_repeated_batch_is_seen_once(spark, servers, tmp_path, mode):
    source, target = f"source-{mode}", f"copy-{mode}"
    append(servers, source, 0, 300)
    with Client(list(servers)) as client:
        client.create_topic(target, 2)
        others = {row.sink for row in staging.sinks(client)}

    def copy() -> None:
        query = (read_stream(spark, servers, subscribe=source, maxOffsetsPerTrigger="200")
                 .select("key", "value").writeStream.format("multiraft")
                 .options(servers=servers[0], topic=target, mode=mode,
                          checkpointLocation=str(tmp_path))
                 .trigger(availableNow=True).start())
        query.awaitTermination()

    copy()
    copied = rows_in(table(spark, servers, subscribe=target).select("key", "value"))
    assert copied == rows_in(table(spark, servers, subscribe=source).select("key", "value"))
    last = max((tmp_path / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink()  # as if the driver had died after the sink had written everything
    append(servers, source, 300, 330)
    copy()
    assert rows_in(table(spark, servers, subscribe=target).select("key", "value")) == rows_in(
        table(spark, servers, subscribe=source).select("key", "value"))
    if mode == "transactional":
        with Client(list(servers)) as client:
            [row] = [row for row in staging.sinks(client) if row.sink not in others]
            assert row.last_transaction == row.newest_transaction == row.last_batch + 1, (
                "one transaction for each batch"
            )


def test_a_batch_is_written_and_read_back(spark, servers):
    with Client(list(servers)) as client:
        client.create_topic("written", 3)
    frame = spark.range(500).selectExpr("cast(id as string) as value", "cast(id % 7 as string) key")
    writer = frame.write.format("multiraft").options(servers=servers[0], topic="written")
    writer.mode("append").save()
    found = table(spark, servers, subscribe="written").selectExpr(
        "count(*)", "count(distinct value)", "count(distinct key)").collect()
    assert [tuple(each) for each in found] == [(500, 500, 7)]
    assert "cannot be overwritten" in message_of(lambda: writer.mode("overwrite").save())
    assert "topic 'missing' does not exist" in message_of(
        lambda: writer.option("topic", "missing").mode("append").save())


def test_a_session_that_never_reads_topics_imports_little():
    probe = ("import sys, pyspark_multiraft; print(*sorted(name for name in sys.modules "
             "if name.split('.')[0] in ('pyarrow', 'multiraft', 'numpy', 'pandas')))")
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
