"""Benchmark of topics read as tables, beside a reader that generates the same rows in memory.

    make bench-spark                             the figures, about four minutes
    make bench-spark ARGS="--repeat 1"           a quick look

Contract.  One node (what is measured is reading, and replicas would take the same two cores), a
session with local[2], records of 1 KiB and of 130 bytes.  All six columns reach Spark in every run
(it knows no projection for Python sources); the query counts rows and sums offsets, and both are
checked.  The use of the values depends on the query: a second query, printed as a remark, makes
Spark copy each value and sums their lengths.  The yardstick is a data source whose tasks return
batches of the same shape from memory: Spark's own time for as many rows.  Both are read in turn,
within the same session.  The exit status says whether everything was measured, not whether targets
hold: a machine under load is no error.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks.figures import Figure, Series, add_picture_option, bound, compare, show
from benchmarks.ours import cluster
from benchmarks.processes import BenchmarkError
from benchmarks.spark_yardstick import FromNothing
from multiraft.client import blocking

ROOT = Path(__file__).resolve().parents[1]
GROUPS = 8
PARTITIONS = 4
BATCH_BYTES = 256 << 10
HANDFUL = 1000
#: Bytes of a value -> target in records per second.
TARGETS = {1024: 400_000.0, 130: 900_000.0}
#: Target as a part of the rate at which Spark takes rows from memory.
TARGET_OF_YARDSTICK = 0.5


class Bench:
    """Collects repetitions by name."""

    def __init__(self):
        self.values: dict[str, list[float]] = defaultdict(list)

    def add(self, name: str, value: float) -> None:
        """Keep one repetition and print it."""
        self.values[name].append(value)
        print(f"  {name}: {value:,.0f} records/s", file=sys.stderr, flush=True)

    def series(self, name: str) -> Series:
        return Series(name, "records/s", tuple(self.values[name]))

    def figures(self) -> list[Figure]:
        """Return the figures of each size against its target and against the yardstick."""
        found = []
        for size, target in TARGETS.items():
            read = self.series(f"{size} B")
            found.append(bound(f"batch read of {size} B records", read, target, at_least=True))
            found.append(compare(f"batch read of {size} B records against a trivial reader", read,
                                 self.series(f"trivial reader, {size} B"), TARGET_OF_YARDSTICK,
                                 at_least=True))
        return found


def session(home: Path):
    """Yield a Spark session with two cores in this process."""
    from pyspark.sql import SparkSession
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (SparkSession.builder.master("local[2]").appName("bench-spark")
             .config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
             .config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.ui.showConsoleProgress", "false")
             .config("spark.local.dir", str(home))
             .config("spark.sql.warehouse.dir", str(home / "warehouse")).getOrCreate())
    spark.dataSource.register(FromNothing)
    return spark


def fill(addresses, topic: str, count: int, size: int) -> None:
    """Append ``count`` records with values of ``size`` bytes."""
    handful = [os.urandom(size) for _ in range(HANDFUL)]
    with blocking.Client(list(addresses)) as client:
        client.create_topic(topic, PARTITIONS)
        with client.producer(batch_bytes=BATCH_BYTES) as producer:
            for at in range(count // HANDFUL):
                for value in handful:
                    producer.send(blocking.Record(topic, value, partition=at % PARTITIONS))


def speed(frame, count: int, *expected: tuple[str, int | None]) -> float:
    """Return the records per second of one pass that evaluates these expressions, each compared
    with its value if that is known."""
    began = time.perf_counter()
    [found] = frame.selectExpr("count(*)", *(expression for expression, _ in expected)).collect()
    took = time.perf_counter() - began
    for (expression, value), is_value in zip([("count(*)", count), *expected], found, strict=True):
        if value not in (None, is_value):
            raise BenchmarkError(f"{expression} is {is_value}, not {value}")
    return count / took


def offsets_sum(count: int) -> int:
    """Return the sum of offsets of a topic whose partitions have as many records each."""
    each = count // PARTITIONS
    return PARTITIONS * each * (each - 1) // 2


def measure(home: Path, arguments: argparse.Namespace) -> Bench:
    """Run all repetitions."""
    bench = Bench()
    with cluster(home, GROUPS, nodes=1) as dev:
        round_to = PARTITIONS * HANDFUL
        counts = {size: arguments.megabytes * 1_000_000 // size // round_to * round_to
                  for size in TARGETS}
        for size, count in counts.items():
            fill(dev.addresses, f"records-{size}", count, size)
        spark = session(home)
        try:
            for turn in range(arguments.repeat + 1):
                for size, count in counts.items():
                    ours = spark.read.format("multiraft").options(
                        servers=",".join(dev.addresses), subscribe=f"records-{size}").load()
                    trivial = spark.read.format("from-nothing").options(
                        count=count, size=size).load()
                    read = speed(ours, count, ("sum(offset)", offsets_sum(count)))
                    nothing = speed(trivial, count, ("sum(offset)", None))
                    if turn:  # the first repetition is a warm-up
                        bench.add(f"{size} B", read)
                        bench.add(f"trivial reader, {size} B", nothing)
                    if turn == arguments.repeat:
                        lengths = ("sum(length(value))", count * size)
                        bench.add(f"values of {size} B", speed(ours, count, lengths))
                        bench.add(f"values of {size} B, trivial reader",
                                  speed(trivial, count, lengths))
        finally:
            spark.stop()
    return bench


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="repetitions (default 5)")
    parser.add_argument("--megabytes", type=int, default=800,
                        help="of values in each topic (default 800)")
    parser.add_argument("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="bench-spark-", dir=arguments.dir) as home:
        try:
            bench = measure(Path(home), arguments)
        except BenchmarkError as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    show("Topics as tables", bench.figures(), [
        f"Query that copies the {name}: {bench.series(name).as_text()}" for name in bench.values
        if name.startswith("values")], arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
