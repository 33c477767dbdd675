"""Costs of a node's return: starting on a long log, and catching up while appends continue.

Contract.  ``start_with_log``: seconds from the start of a process, whose predecessor ended by
SIGKILL, until it reports that it is ready.  ``create_groups``: seconds from the start of three
processes until every group of a new cluster has a leader.  ``catch_up``: MB per second at which a
returned follower catches up, and the latency of other appends meanwhile, against the same appends
before, while the follower was away.  ``scrub_cost``: appends beside a scrub, and without.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from pathlib import Path
from typing import NamedTuple

from admin_cli.dev_cluster import DevCluster
from benchmarks.failover import cluster
from benchmarks.prober import call
from benchmarks.processes import BenchmarkError
from multiraft.client import blocking
from multiraft.errors import MultiRaftError
from multiraft.wire import messages as wire
from multiraft.wire.nodes import ScrubNode

BATCH_BYTES = 256 << 10
RECORD_BYTES = 1024
HANDFUL = 1000
UP_S = 120.0
POLL_S = 0.02
CATCH_UP_S_MAX = 120.0
#: Appends whose latency is watched: paced, because a node has other work as well.
WATCHED_PER_S = 100
WATCHED_S = 10.0
GROUPS = 64
#: Requested scrub rate of each node, per second: the most that is configured by default.
SCRUB_PACE = 16 << 20
#: The lowest scrub rate, where no scrub is wanted: one piece in four seconds.
SCRUB_LEAST = 64 << 10
#: Bytes appended beside a scrub and as much without one, repeated; and before each, for the
#: connections and the scrub that restarts.
APPENDED_BYTES = 128 << 20
PAIRS = 6
SETTLE_S = 1.2
SETTLE_BYTES = 8 << 20


class CatchUp(NamedTuple):
    """One return of a follower."""

    mb_per_s: float
    p99_before_ms: float
    p99_during_ms: float


class Beside(NamedTuple):
    """The same appends twice, one after the other."""

    without_mb_per_s: float
    beside_mb_per_s: float
    scrubbed_mib_per_s: float  # on each node meanwhile


def create_groups(directory: Path, groups: int) -> float:
    """Return the seconds until a new cluster of three nodes has all its groups, each with a
    leader, and every node reports that it is ready."""
    start = time.monotonic()
    with cluster(directory, groups, namespaces=False):
        return time.monotonic() - start


def start_with_log(directory: Path, log_bytes: int) -> float:
    """Return the seconds until a node that was killed is ready again on ``log_bytes`` of log."""
    with cluster(directory, GROUPS, namespaces=False) as dev:
        _fill(dev, "log", log_bytes)
        dev.kill(1)
        start = time.monotonic()
        dev.start(1, UP_S)
        return time.monotonic() - start


def catch_up(directory: Path, missed_bytes: int) -> CatchUp:
    """Measure a follower that misses ``missed_bytes`` of one partition and returns."""
    with cluster(directory, GROUPS, namespaces=False) as dev:
        leader = _fill(dev, "log", 4 << 20)
        away = next(node.id for node in dev.record.nodes if node.id != leader)
        dev.kill(away)
        _fill(dev, "log", missed_bytes)
        with Watched(dev.addresses) as watched:  # two disks have to answer, as after the return
            watched.wait(WATCHED_S)
            before = watched.p99_ms()
        with Watched(dev.addresses) as watched:
            start = time.monotonic()
            dev.start(away, UP_S)
            rate = _rate(dev.record.node(away).client_address, missed_bytes, start)
            during = watched.p99_ms()
    return CatchUp(rate, before, during)


def scrub_cost(directory: Path, log_bytes: int) -> list[Beside]:
    """Measure appends beside a scrub on all nodes and without one, on top of ``log_bytes`` of log.

    The two are measured in turn, a second or two each, now this one first and now that one: what a
    disk does in a second changes by a factor of three within minutes, and of two long runs the
    second is the slower one when neither has a scrub (docs/decisions/0046).  Raises
    ``BenchmarkError`` when a requested scrub did not run.
    """
    found = []
    with cluster(directory, GROUPS, namespaces=False) as dev:
        _fill(dev, "log", log_bytes)
        for number in range(PAIRS):
            paces = (SCRUB_LEAST, SCRUB_PACE)
            seen = {pace: _appends(dev, pace) for pace in paces[::-1 if number % 2 else 1]}
            (without, _), (beside, scrubbed) = seen[SCRUB_LEAST], seen[SCRUB_PACE]
            if not scrubbed:
                raise BenchmarkError("the scrub did not run")
            found.append(Beside(without, beside, scrubbed))
    return found


def _appends(dev: DevCluster, pace: int) -> tuple[float, float]:
    """Return MB per second of appends, and MiB per second that each node's scrub read meanwhile."""
    for node in dev.record.nodes:
        call(node.client_address, ScrubNode(node.id, pace))
    settled = time.monotonic() + SETTLE_S
    while time.monotonic() < settled:
        _fill(dev, "log", SETTLE_BYTES)
    before, start = _scrubbed(dev), time.monotonic()
    _fill(dev, "log", APPENDED_BYTES)
    took = time.monotonic() - start
    read = (_scrubbed(dev) - before) / len(dev.record.nodes)
    return APPENDED_BYTES / took / 1e6, read / took / (1 << 20)


def _scrubbed(dev: DevCluster) -> int:
    return sum(call(node.client_address, wire.NodeStatus()).status["scrub_bytes"]
               for node in dev.record.nodes)


def _rate(address: str, missed_bytes: int, start: float) -> float:
    """Return MB per second until the node's disk has the missed bytes, its start included."""
    while True:
        written = call(address, wire.NodeStatus()).status["disk_bytes"]
        took = time.monotonic() - start
        if written >= missed_bytes:
            return missed_bytes / took / 1e6
        if took > CATCH_UP_S_MAX:
            raise BenchmarkError(f"{written} of {missed_bytes} bytes after {took:.0f} s")
        time.sleep(POLL_S)


def _fill(dev: DevCluster, topic: str, size: int) -> int:
    """Append ``size`` bytes to one partition; return its leader."""
    payload = os.urandom(RECORD_BYTES)
    with blocking.Client(list(dev.addresses)) as client:
        if topic not in {row.name for row in client.list_topics()}:
            client.create_topic(topic)
        with client.producer(acks="commit", batch_bytes=BATCH_BYTES) as producer:
            for _ in range(size // (RECORD_BYTES * HANDFUL) + 1):
                producer.send_many(topic, [payload] * HANDFUL)
            producer.flush()
        return client.describe_topic(topic).partitions[0].leader


class Watched:
    """Appends at a steady pace from a thread of its own, each timed."""

    def __init__(self, addresses):
        self._addresses = list(addresses)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._latencies: list[float] = []
        self._failure: Exception | None = None

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait while appends continue."""
        self._over.wait(seconds)

    def p99_ms(self) -> float:
        """Return the 99th percentile of the appends so far, without the first ones on cold
        connections."""
        if self._failure is not None:
            raise BenchmarkError("a watched append failed") from self._failure
        counted = self._latencies[10:]
        if len(counted) < 50:
            raise BenchmarkError(f"only {len(counted)} appends were timed")
        return statistics.quantiles(counted, n=100)[98] * 1e3

    def _run(self) -> None:
        payload = os.urandom(RECORD_BYTES)
        try:
            with blocking.Client(self._addresses) as client, \
                    client.producer(acks="commit", linger_ms=0) as producer:
                while not self._over.wait(1 / WATCHED_PER_S):
                    start = time.perf_counter()
                    producer.send(blocking.Record("log", payload)).wait()
                    self._latencies.append(time.perf_counter() - start)
        except (MultiRaftError, OSError) as error:
            self._failure = error
