"""Figures of the port for Kafka's clients: librdkafka beside the native client, and beside Kafka.

    make bench-kafka                                   everything, about five minutes
    make bench-kafka ARGS="--quick"                    a look: two rounds of small sizes
    make bench-kafka ARGS="--only reads latency"       some parts
    make bench-kafka ARGS="--without-kafka"            without a broker of Kafka

Contract.  One node of this project and one broker of Kafka, each with one replica, run side by side
on the same disk, and work in turns, never at the same time; the order of the turns changes from
round to round, and single appends take turns one by one.  librdkafka has the same settings for
both.  Figures are ratios of medians of one run.  Before each turn dirty pages are written back
(``sync``), so that none pays for another's.  Nothing is left behind: processes are ended by the
pids that were started here, files are below one temporary directory.  The exit status says whether
everything was measured, not whether targets hold: a machine under load is no error.

What differs between the two.  Kafka is a JVM with a heap of its own, and syncs each batch of a
topic with ``flush.messages=1``; the node syncs all appends that wait together, and a Raft log has
entries that Kafka's does not.  Records that are read were written in this run: Kafka serves them
from the page cache, the node the newest from its memory and the rest from the page cache.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from admin_cli.dev_cluster import DevCluster
from admin_cli.failures import CommandFailed
from benchmarks import kafka_broker, kafka_metadata, librdkafka, ours
from benchmarks.figures import (
    Figure,
    Series,
    Unmeasured,
    add_picture_option,
    bound,
    compare,
    say,
    show,
)
from benchmarks.processes import BenchmarkError
from multiraft.client import blocking

PARTS = ("appends", "reads", "latency", "metadata")
GROUPS = 64
ROUNDS, ROUNDS_QUICK = 7, 2
#: Records of 1 KiB: of one turn of appends, and of the topics that are read.
RECORDS, RECORDS_QUICK = 150_000, 20_000
RECORDS_READ, RECORDS_READ_QUICK = 400_000, 50_000
ALONE, ALONE_QUICK = 1500, 200
#: Single appends of each client before the clock starts.
WARM_UP_ALONE = 200
TOPICS_QUICK = 100
#: No round begins after this time; what was measured by then is judged.
ROUNDS_S = 600.0

TARGET_OF_NATIVE = 0.7
TARGET_OF_KAFKA = 3.0
TARGET_READS = 1.0
TARGET_LATENCY = 1.2
TARGET_METADATA_MS = 0.2

#: Names of series.
NATIVE, THROUGH, KAFKA, KAFKA_CACHED = (
    "native client", "librdkafka", "Kafka, fsync", "Kafka, page cache")
#: The topic whose records are read, in both clusters.
READ = "read"
FSYNC = {"flush.messages": "1"}


class Bench:
    """The clusters of one run, and the repetitions by name."""

    def __init__(self, arguments: argparse.Namespace, home: Path):
        self.arguments = arguments
        self.home = home
        self.parts = [part for part in PARTS if part in arguments.only]
        self.values: dict[str, list[float]] = defaultdict(list)
        self.remarks: list[str] = []
        self.kafka = ""  # address of the broker, empty without one
        self.without_kafka = "left out, as asked for" if arguments.without_kafka else ""
        self.without_metadata = ""  # the reason
        self._topics = 0

    # ---- a run ---------------------------------------------------------------------------------

    def run(self) -> None:
        """Measure everything that was asked for."""
        if set(self.parts) - {"metadata"}:
            with contextlib.ExitStack() as stack:
                dev = stack.enter_context(ours.cluster(self.home / "ours", GROUPS, nodes=1))
                self._start_kafka(stack)
                self._rounds(dev)
        if "metadata" in self.parts:
            try:
                with ours.cluster(self.home / "metadata", GROUPS, nodes=1) as dev:
                    self._metadata(dev)
            except (BenchmarkError, CommandFailed) as error:  # the other figures are there
                self.without_metadata = str(error)

    def _start_kafka(self, stack: contextlib.ExitStack) -> None:
        """Start the broker, or keep the reason why there is none."""
        if self.without_kafka or not set(self.parts) & {"appends", "reads"}:
            return
        try:
            say(f"Kafka {kafka_broker.VERSION}: downloading, if it is not there, and starting")
            jars = kafka_broker.install()
            self.kafka = stack.enter_context(kafka_broker.broker(self.home / "kafka", jars))
        except BenchmarkError as error:
            self.without_kafka = str(error)
            say(f"without Kafka: {error}")

    def _rounds(self, dev: DevCluster) -> None:
        through = dev.record.nodes[0].kafka_address
        if "reads" in self.parts:
            for address, settings in ((through, {}), (self.kafka, FSYNC)):
                if address:
                    say(f"writing {self.arguments.records_read:,} records to be read")
                    librdkafka.create_topic(address, READ, settings)
                    librdkafka.append_batched(address, READ, self.arguments.records_read)
        turns = self._turns(dev, through)
        began = time.monotonic()
        for number in range(self.arguments.rounds):
            if time.monotonic() - began > ROUNDS_S:
                self.remarks.append(f"Only {number} rounds: {ROUNDS_S:.0f} s had passed.")
                return
            say(f"round {number + 1} of {self.arguments.rounds}")
            shift = number % len(turns) if turns else 0
            for name, measure in turns[shift:] + turns[:shift]:
                os.sync()
                self._add(name, "MB/s", measure())
            if "latency" in self.parts:
                self._alone(dev, through)

    def _add(self, name: str, unit: str, value: float) -> None:
        """Keep a repetition and print it."""
        self.values[name].append(value)
        say(f"{name}: {value:,.4g} {unit}")

    def _alone(self, dev: DevCluster, through: str) -> None:
        """Measure single appends: the clients take turns from one append to the next, because the
        disk changes more from second to second than the clients differ."""
        topics = self._topic(), self._topic()
        for topic in topics:
            librdkafka.create_topic(through, topic)
        os.sync()
        with blocking.Client(list(dev.addresses)) as client, \
                client.producer(acks="commit", linger_ms=0) as producer:
            record = blocking.Record(topics[0], os.urandom(ours.RECORD_BYTES))
            both = {NATIVE: lambda: producer.send(record).wait(),
                    THROUGH: librdkafka.SingleAppends(through, topics[1]).append}
            found: dict[str, list[float]] = {name: [] for name in both}
            for number in range(WARM_UP_ALONE + self.arguments.synchronous):
                for name, append in both.items():
                    start = time.perf_counter()
                    append()
                    if number >= WARM_UP_ALONE:
                        found[name].append((time.perf_counter() - start) * 1e3)
        for name, latencies in found.items():
            self._add(f"one append, {name}", "ms", statistics.median(latencies))

    def _turns(self, dev: DevCluster, through: str) -> list[tuple[str, Callable[[], float]]]:
        """Return what takes turns in each round: name, measurement."""
        records = self.arguments.records
        found: list[tuple[str, Callable[[], float]]] = []

        def native() -> float:
            return ours.append_batched(dev.addresses, records, topic=self._topic())

        def produced(address: str, settings: dict[str, str]) -> Callable[[], float]:
            def measure() -> float:
                topic = self._topic()
                librdkafka.create_topic(address, topic, settings)
                return librdkafka.append_batched(address, topic, records)
            return measure

        if "appends" in self.parts:
            found += [(f"appends, {NATIVE}", native),
                      (f"appends, {THROUGH}", produced(through, {}))]
            if self.kafka:
                found += [(f"appends, {KAFKA}", produced(self.kafka, FSYNC)),
                          (f"appends, {KAFKA_CACHED}", produced(self.kafka, {}))]
        if "reads" in self.parts:
            found.append((f"reads, {THROUGH}", lambda: librdkafka.read(through, READ)))
            if self.kafka:
                found.append((f"reads, {KAFKA}", lambda: librdkafka.read(self.kafka, READ)))
        return found

    def _topic(self) -> str:
        self._topics += 1
        return f"t{self._topics}"

    def _metadata(self, dev: DevCluster) -> None:
        topics = self.arguments.topics
        say(f"creating {topics:,} topics of {kafka_metadata.PARTITIONS} partitions")
        kafka_metadata.create_topics(dev, topics)
        with contextlib.closing(kafka_metadata.Asking(dev)) as asking:
            for _ in range(self.arguments.rounds):
                found = kafka_metadata.costs(dev, asking, topics)
                self.values["metadata"].append(found.kept_ms)
                self.values["metadata, built"].append(found.built_ms)
                say(f"metadata: {found.kept_ms:.3f} ms on the loop, {found.answer_ms:.2f} ms until "
                    f"the client has {found.answer_bytes / 1e3:,.0f} kB; built anew "
                    f"{found.built_ms:.1f} ms")
        built = self._series("metadata, built", "ms")
        self.remarks.append(f"Metadata that are built anew after a change: {built.as_text()} on "
                            f"the loop, in turns.")

    # ---- results -------------------------------------------------------------------------------

    def _series(self, name: str, unit: str) -> Series:
        return Series(name, unit, tuple(self.values[name]))

    def figures(self) -> list[Figure | Unmeasured]:
        """Return the figures with their targets, and those that were not measured."""
        found: list[Figure | Unmeasured] = []
        if "appends" in self.parts:
            appends = self._series(f"appends, {THROUGH}", "MB/s")
            found.append(compare(
                "appends of 1 KiB by librdkafka against the native client", appends,
                self._series(f"appends, {NATIVE}", "MB/s"), TARGET_OF_NATIVE, at_least=True))
            found.append(self._beside_kafka("appends of 1 KiB by librdkafka against Kafka with "
                                            "fsync", appends, TARGET_OF_KAFKA))
        if "reads" in self.parts:
            found.append(self._beside_kafka(
                "reads by librdkafka against Kafka",
                self._series(f"reads, {THROUGH}", "MB/s"), TARGET_READS))
        if "latency" in self.parts:
            found.append(compare(
                "one synchronous append by librdkafka against the native client, p50",
                self._series(f"one append, {THROUGH}", "ms"),
                self._series(f"one append, {NATIVE}", "ms"), TARGET_LATENCY, at_least=False))
        if "metadata" in self.parts:
            name = (f"metadata of {self.arguments.topics:,} topics, {kafka_metadata.PARTITIONS} "
                    f"partitions each: time on the loop")
            found.append(Unmeasured(name, self.without_metadata) if self.without_metadata else
                         bound(name, self._series("metadata", "ms"), TARGET_METADATA_MS,
                               at_least=False))
        return found

    def _beside_kafka(self, name: str, measured: Series, target: float) -> Figure | Unmeasured:
        """Return the ratio to Kafka, or why there is none."""
        if not self.kafka:
            return Unmeasured(name, self.without_kafka)
        yardstick = self._series(f"{measured.name.split(',')[0]}, {KAFKA}", "MB/s")
        return compare(name, measured, yardstick, target, at_least=True)

    def conditions(self) -> list[str]:
        """Return what was set, as lines of text."""
        lines = [*self.remarks, f"One node, {GROUPS} groups, replication factor 1, fsync before "
                 f"each acknowledgement; librdkafka with its defaults but acks=all and "
                 f"enable.idempotence (linger.ms=0 for single appends); one partition."]
        cached = f"appends, {KAFKA_CACHED}"
        if self.kafka:
            lines.append(f"Kafka {kafka_broker.VERSION}: one broker and controller, heap "
                         f"{kafka_broker.HEAP}, flush.messages=1 of the topics; the broker runs "
                         f"beside the node during all turns.")
        if self.values[cached]:
            lines.append(f"Kafka without flush.messages acknowledges from the page cache: "
                         f"{self._series(cached, 'MB/s').as_text()}; no yardstick, its promise is "
                         f"another one.")
        return lines


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    add("--quick", action="store_true", help="few rounds of small sizes")
    add("--rounds", type=int, help=f"rounds (default {ROUNDS})")
    add("--records", type=int, help=f"records of 1 KiB in each turn of appends (default "
        f"{RECORDS:,})")
    add("--records-read", type=int, help=f"records of the topics that are read (default "
        f"{RECORDS_READ:,})")
    add("--synchronous", type=int, help=f"synchronous appends in each turn (default {ALONE:,})")
    add("--topics", type=int, help=f"topics of the metadata (default {kafka_metadata.TOPICS:,})")
    add("--without-kafka", action="store_true", help="leave the broker of Kafka out")
    add("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    asked = parser.parse_args(arguments)
    for name, usual, quick in (
            ("rounds", ROUNDS, ROUNDS_QUICK), ("records", RECORDS, RECORDS_QUICK),
            ("records_read", RECORDS_READ, RECORDS_READ_QUICK),
            ("synchronous", ALONE, ALONE_QUICK), ("topics", kafka_metadata.TOPICS, TOPICS_QUICK)):
        if getattr(asked, name) is None:
            setattr(asked, name, quick if asked.quick else usual)
    return asked


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    # Whatever ends this program ends the processes that it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory(prefix="bench-kafka-", dir=arguments.dir) as home:
        bench = Bench(arguments, Path(home))
        try:
            bench.run()
        except (BenchmarkError, CommandFailed) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    figures = bench.figures()
    show("The port of Kafka's clients", figures, bench.conditions(), arguments.picture)
    return int(not arguments.without_kafka
               and any(isinstance(each, Unmeasured) for each in figures))


if __name__ == "__main__":
    sys.exit(main())
