"""Program of Spark's connector: each verb is a batch query, or a stream that ends.

Arguments: jars of the connector, separated by commas; a directory for files of Spark; servers.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit, unix_millis
from serve import HEADER, decoded, encoded, serve

JARS, SCRATCH, SERVERS = sys.argv[1:]
SCHEMA = ("key binary, value binary, topic string, partition int, "
          "headers array<struct<key: string, value: binary>>")
#: Most records of a micro-batch: a stream that copies a topic has several.
MICRO_BATCH = 1000

# Answers alone are on standard output: the JVM writes what it says to standard error.
sys.stdout = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
# Copies of an interpreter that convert rows are this one.
os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config(map={
    "spark.jars": JARS, "spark.ui.enabled": False, "spark.log.level": "WARN",
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.local.dir": f"{SCRATCH}/local", "spark.sql.warehouse.dir": f"{SCRATCH}/warehouse",
    # A short life: no second compiler, one collector thread.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}).getOrCreate()


def source(reader, **options):
    """Return a source of records, with their headers."""
    return reader.format("kafka").options(**{
        "kafka.bootstrap.servers": SERVERS, "includeHeaders": True, **options}).load()


def sink(writer, **options):
    """Return a sink of records that name their topic."""
    return writer.format("kafka").options(**{"kafka.bootstrap.servers": SERVERS, **options})


def produce(topic, partition, acks, compression, idempotent, header, records, timeout_s):
    """Produce records in a job of one task. The sink tells no offsets, and not which records
    were acknowledged before it failed."""
    rows = [(decoded(key), decoded(value), topic, partition, [(HEADER, decoded(header))])
            for key, value in records]
    try:
        sink(spark.createDataFrame(rows, SCHEMA).coalesce(1).write, **{
            "kafka.acks": acks, "kafka.compression.type": compression,
            "kafka.enable.idempotence": idempotent,
            "kafka.delivery.timeout.ms": int(timeout_s * 1000)}).save()
    except Py4JError as error:
        if "org.apache.kafka.common.errors.TimeoutException" not in str(error):
            raise
        print(error, file=sys.stderr)
        return [None] * len(records)
    return [-1] * len(records)


def rows_of(frame):
    """Return the records of a source with topic and partition of each."""
    return [(row.topic, row.partition, [
        row.offset, row.at, encoded(row.key), encoded(row.value),
        encoded(row.headers[0].value) if row.headers else None])
        for row in frame.withColumn("at", unix_millis("timestamp")).collect()]


def start_at(topic, partition, start):
    """Return the options of a source that starts at "beginning", an offset or a time."""
    if start == "beginning":
        return {"startingOffsets": "earliest"}
    if isinstance(start, dict):
        # The default is an error if no record is as late.
        return {"startingOffsetsByTimestamp": json.dumps({topic: {partition: start["time"]}}),
                "startingOffsetsByTimestampStrategy": "latest"}
    return {"startingOffsets": json.dumps({topic: {partition: start}})}


def partition_from(topic, partition, start):
    """Return a source of one partition."""
    return source(spark.read, assign=json.dumps({topic: [partition]}),
                  **start_at(topic, partition, start))


def fetch(topic, partition, start, count, timeout_s):
    """Return up to ``count`` records from ``start`` on: a query ends at the end that it found."""
    give_up = time.monotonic() + timeout_s
    while True:
        found = rows_of(partition_from(topic, partition, start).orderBy("offset").limit(count))
        if len(found) >= count or time.monotonic() > give_up:
            return [row for _, _, row in found]


def offsets(topic, partition, at):
    """Return an offset: "earliest", "latest", or of a time, from the records that a source finds;
    -1 if no record is as late."""
    start = at if isinstance(at, dict) else "beginning"
    found = partition_from(topic, partition, start).selectExpr(
        "min(offset) AS first", "max(offset) + 1 AS next").first()
    offset = found.next if at == "latest" else found.first
    return -1 if offset is None else offset


def match(pattern, splits):
    """Read all topics that match a pattern in about ``splits`` parts. Return the number of parts,
    and each record with its topic and partition."""
    found = source(spark.read, subscribePattern=pattern, minPartitions=splits)
    return {"parts": found.rdd.getNumPartitions(), "rows": rows_of(found.orderBy("offset"))}


def copy(topic, target, timeout_s):
    """Copy what a topic has more than at the last copy. Return the number of records read."""
    records = source(spark.readStream, subscribe=topic, startingOffsets="earliest",
                     maxOffsetsPerTrigger=MICRO_BATCH)
    stream = sink(records.select("key", "value", "headers", "partition",
                                 lit(target).alias("topic")).writeStream,
                  checkpointLocation=str(Path(SCRATCH, "checkpoints", target)))
    query = stream.trigger(availableNow=True).start()
    try:
        if not query.awaitTermination(timeout_s):
            raise TimeoutError(f"{topic} is not copied after {timeout_s:.0f} s")
    finally:
        query.stop()
    return sum(each["numInputRows"] for each in query.recentProgress)


serve({each.__name__: each for each in (produce, fetch, offsets, match, copy)},
      (PySparkException, Py4JError, TimeoutError))
spark.stop()
