"""Costs of retention: a start on a long log, a small disk, a deleted topic, idle topics, memory.

Contract.  Each function starts nodes of its own below ``directory``, and ends them.  Each takes a
bounded time, prints its progress, and raises ``BenchmarkError`` for what could not be measured.
Figures that are compared come from one run, in turn.  ``small_disk`` needs root, for a file system
of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from benchmarks.figures import say
from benchmarks.prober import call
from benchmarks.processes import BenchmarkError, cpu_seconds, free_base_port
from benchmarks.recovery import Watched
from multiraft.client import blocking
from multiraft.errors import MultiRaftError
from multiraft.wire import messages as wire

GROUPS = 16
UP_S = 300.0
RECORD_BYTES = 1024
HANDFUL = 1000
BATCH_BYTES = 256 << 10
POLL_S = 0.25
#: Small batches that wait for their acknowledgement.
IN_FLIGHT = 200
#: Time after which an effect of retention counts as missing.
WAIT_S = 180.0
#: Window in which the latency of appends is measured.
WINDOW_S = 60.0
#: A node that used less than this share of a processor for so long has done what was due.
IDLE_SHARE, IDLE_S = 0.05, 2.0
#: Interval of the passes of retention where their cost is measured, and of the Raft log that stays
#: where the memory of records is: short and small, because the others hide behind them.
PASSES = "\n[limits]\nretention_check_interval_ms = 1000\n"
SHORT_LOGS = ("\n[limits]\nraft_log_bytes_newest = 1048576\n"
              "node_raft_log_bytes_newest = 16777216\n")
#: A node of a benchmark publishes no loads, which would be records of their own.
QUIET = "\n[metrics]\npublish = false\n"


@contextlib.contextmanager
def one_node(directory: Path, extra: str = "",
             prepared: Callable[[Path], contextlib.AbstractContextManager] | None = None
             ) -> Iterator[DevCluster]:
    """Yield a node that serves, removed at the end.  ``extra``: of its configuration;
    ``prepared(data_directory)``: entered before it starts."""
    dev = DevCluster(directory / "cluster", open_client, os.environ)
    dev.create(nodes=1, groups=GROUPS, replication_factor=1, base_port=free_base_port(1))
    config = dev.directory / "node-1" / "node.toml"
    text = config.read_text(encoding="utf-8")
    config.write_text(text + ("" if "[metrics]" in text else QUIET) + extra, encoding="utf-8")
    with contextlib.ExitStack() as stack:
        if prepared is not None:
            stack.enter_context(prepared(data_of(dev)))
        stack.callback(dev.down)
        dev.up(UP_S)
        yield dev


def data_of(dev: DevCluster) -> Path:
    """Return the data directory of the node."""
    return dev.directory / "node-1" / "data"


def status_of(dev: DevCluster) -> dict:
    """Return the counters of the node."""
    return call(dev.record.nodes[0].client_address, wire.NodeStatus()).status


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, from ``/proc``."""
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def used_bytes(path: Path) -> int:
    """Return the bytes of blocks of the files below a directory."""
    used = 0
    for file in path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            used += file.stat().st_blocks * 512
    return used


def pid_of(dev: DevCluster) -> int:
    """Return the process of the node."""
    pid = dev.record.nodes[0].pid
    assert pid is not None
    return pid


# ---- appends -------------------------------------------------------------------------------------


def append(addresses: Sequence[str], topic: str, size: int) -> None:
    """Append ``size`` bytes to a topic of one partition, created if necessary."""
    payload = os.urandom(RECORD_BYTES)
    with blocking.Client(list(addresses)) as client:
        client.create_topic(topic, if_not_exists=True)
        with client.producer(acks="commit", batch_bytes=BATCH_BYTES) as producer:
            for done in range(0, size, RECORD_BYTES * HANDFUL):
                producer.send_many(topic, [payload] * HANDFUL)
                if done % (512 << 20) < RECORD_BYTES * HANDFUL:
                    say(f"{topic}: {done >> 20:,} of {size >> 20:,} MiB")
            producer.flush()


class Appender:
    """Appends at a pace, or as fast as the node takes them, from a thread of its own."""

    def __init__(self, addresses: Sequence[str], topic: str, bytes_per_s: float = 0):
        """``bytes_per_s``: 0 = no limit.  The topic exists."""
        self.bytes = 0
        self._addresses, self._topic, self._pace = list(addresses), topic, bytes_per_s
        self._over = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Appender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise ``BenchmarkError`` if an append failed."""
        if self._failure is not None:
            raise BenchmarkError(f"an append failed: {self._failure}") from self._failure

    def _run(self) -> None:
        payload = os.urandom(RECORD_BYTES)
        try:
            with blocking.Client(self._addresses) as client, client.producer(
                    acks="commit", batch_bytes=BATCH_BYTES) as producer:
                began = time.monotonic()
                while not self._over.is_set():
                    producer.send_many(self._topic, [payload] * HANDFUL)
                    self.bytes += RECORD_BYTES * HANDFUL
                    if self._pace:
                        self._over.wait(max(0.0, began + self.bytes / self._pace
                                            - time.monotonic()))
                producer.flush()
        except (MultiRaftError, OSError) as error:
            self._failure = error


# ---- a: ready again ------------------------------------------------------------------------------


def drop_pages(directory: Path) -> None:
    """Have the kernel drop the pages of all files below a directory."""
    os.sync()
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def ready_after_kill(directory: Path, sizes: Sequence[int]) -> list[float]:
    """Return the seconds from the start of a killed node until it is ready, with as many bytes of
    log as each of ``sizes``, ascending, and nothing of them in the page cache."""
    found = []
    with one_node(directory) as dev:
        filled = 0
        for size in sizes:
            append(dev.addresses, "log", size - filled)
            filled = size
            dev.kill(1)
            drop_pages(data_of(dev))
            start = time.monotonic()
            dev.start(1, UP_S)
            found.append(time.monotonic() - start)
            say(f"ready after {found[-1]:.2f} s on {size >> 20:,} MiB")
    return found


# ---- b: a small disk -----------------------------------------------------------------------------


class SmallDisk(NamedTuple):
    """Appends at full speed to a node whose disk is small."""

    was_full: bool
    mb_per_s: tuple[float, ...]  # in each minute
    resident: tuple[int, ...]  # at the end of each
    used_max: int  # bytes of its disk


@contextlib.contextmanager
def _mounted(image: Path, size: int, directory: Path) -> Iterator[None]:
    """Mount a new file system of ``size`` bytes over a directory, with the directory's files."""
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    with open(image, "wb") as file:
        file.truncate(size)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(directory)], check=True)
    try:
        (directory / "lost+found").rmdir()
        for name, data in files.items():
            (directory / name).write_bytes(data)
        yield
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)
        image.unlink()


def small_disk(directory: Path, disk_bytes: int, minutes: int) -> SmallDisk:
    """Append at full speed for some minutes to a topic whose ``retention.bytes`` is a fifth of the
    node's disk."""
    if os.geteuid() != 0:
        raise BenchmarkError("a file system of its own needs root")

    def mounted(data: Path) -> contextlib.AbstractContextManager:
        return _mounted(directory / "disk.image", disk_bytes, data)

    rates, resident, was_full, used_max = [], [], False, 0
    with one_node(directory, prepared=mounted) as dev:
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("log", settings={"retention.bytes": str(disk_bytes // 5)})
        with Appender(dev.addresses, "log") as appender:
            for minute in range(1, minutes + 1):
                before, end = appender.bytes, time.monotonic() + 60.0
                while time.monotonic() < end:
                    time.sleep(POLL_S)
                    appender.check()
                    status = status_of(dev)
                    was_full |= bool(status["disk_full"])
                    disk = os.statvfs(data_of(dev))
                    used_max = max(used_max, (disk.f_blocks - disk.f_bfree) * disk.f_frsize)
                rates.append((appender.bytes - before) / 60.0 / 1e6)
                resident.append(resident_bytes(pid_of(dev)))
                say(f"minute {minute}: {rates[-1]:.1f} MB/s, {used_max >> 20:,} MiB of disk at "
                    f"most, {resident[-1] >> 20:,} MiB resident"
                    + (", it was full" if was_full else ""))
    return SmallDisk(was_full, tuple(rates), tuple(resident), used_max)


# ---- c: a deleted topic --------------------------------------------------------------------------


class Deletion(NamedTuple):
    """One deletion of a large topic, beside appends at half of the node's throughput."""

    back_s: float  # until nine tenths of its bytes are free
    p99_before_ms: float
    p99_during_ms: float


def deleted_topic(directory: Path, size: int, pairs: int) -> list[Deletion]:
    """Delete a topic of ``size`` bytes, and measure the space that returns and the latency of other
    appends, as often as ``pairs`` says; before each, the same appends without a deletion."""
    found = []
    with one_node(directory) as dev:
        start = time.monotonic()
        append(dev.addresses, "log", 256 << 20)
        half = (256 << 20) / (time.monotonic() - start) / 2
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("other", settings={"retention.bytes": str(256 << 20)})
            for number in range(pairs):
                topic = f"gone-{number}"
                append(dev.addresses, topic, size)
                with Appender(dev.addresses, "other", half) as appender:
                    with Watched(dev.addresses) as watched:
                        watched.wait(WINDOW_S)
                        before_ms = watched.p99_ms()
                    used = used_bytes(data_of(dev))
                    with Watched(dev.addresses) as watched:
                        start = time.monotonic()
                        client.delete_topic(topic)
                        back_s = _wait_smaller(dev, used - size * 9 // 10, start)
                        watched.wait(max(0.0, start + WINDOW_S - time.monotonic()))
                        during_ms = watched.p99_ms()
                    appender.check()
                found.append(Deletion(back_s, before_ms, during_ms))
                say(f"pair {number + 1}: back after {back_s:.1f} s; p99 {before_ms:.2f} ms before, "
                    f"{during_ms:.2f} ms during")
    return found


def _wait_smaller(dev: DevCluster, size: int, start: float) -> float:
    """Return the seconds from ``start`` until the data directory has at most ``size`` bytes."""
    while (used := used_bytes(data_of(dev))) > size:
        if time.monotonic() - start > WAIT_S:
            raise BenchmarkError(f"{used >> 20:,} MiB are used after {WAIT_S:.0f} s, more than "
                                 f"{size >> 20:,}")
        time.sleep(POLL_S)
    return time.monotonic() - start


# ---- d: idle topics ------------------------------------------------------------------------------


def idle_topics(directory: Path, topics: int, seconds: float, pairs: int
                ) -> list[tuple[float, float]]:
    """Return the shares of a processor that an idle node with so many topics uses, each pair
    without limits of retention and with some for all topics."""
    found = []
    with one_node(directory, PASSES) as dev, blocking.Client(list(dev.addresses)) as client:
        for number in range(topics):
            client.create_topic(f"topic-{number}")
            if not number % 10_000:
                say(f"{number:,} of {topics:,} topics")
        for number in range(pairs):
            shares = {}
            for limit in (None, "3600000") if number % 2 else ("3600000", None):
                client.alter_settings("", {} if limit is None else {"retention.ms": limit},
                                      delete=["retention.ms"] if limit is None else ())
                _wait_idle(dev)  # until the pass that the change makes due is over
                before = cpu_seconds(pid_of(dev))
                time.sleep(seconds)  # the window of the measurement
                shares[limit] = (cpu_seconds(pid_of(dev)) - before) / seconds
            found.append((shares[None], shares["3600000"]))
            say(f"pair {number + 1}: {shares[None]:.2%} of a processor without limits, "
                f"{shares['3600000']:.2%} with one for all topics")
    return found


def _wait_idle(dev: DevCluster) -> None:
    """Wait until the node has used less than ``IDLE_SHARE`` of a processor for ``IDLE_S``."""
    give_up = time.monotonic() + WAIT_S
    while True:
        before = cpu_seconds(pid_of(dev))
        time.sleep(IDLE_S)
        share = (cpu_seconds(pid_of(dev)) - before) / IDLE_S
        if share < IDLE_SHARE:
            return
        if time.monotonic() > give_up:
            raise BenchmarkError(f"the node uses {share:.0%} of a processor after {WAIT_S:.0f} s")


# ---- e: memory -----------------------------------------------------------------------------------


def memory_per_million(directory: Path, batches: int, partitions: int) -> float:
    """Return the resident bytes that a node has more for each million of batches of 1 KiB: after a
    start with twice as many as ``batches``, against a start with ``batches``.

    A start has no entries in memory, and what does not grow with the batches is in both."""
    resident = []
    with one_node(directory, SHORT_LOGS) as dev:
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("log", partitions=partitions)
            rng = random.Random(1)
            for total in (batches, 2 * batches):
                if not resident:
                    _append_each(client, range(partitions))  # opens the partitions
                for done in range(0, batches, 50_000):
                    say(f"{total - batches + done:,} batches in {partitions:,} partitions")
                    _append_each(client, [rng.randrange(partitions)
                                          for _ in range(min(50_000, batches - done))])
                dev.restart([1], UP_S)
                resident.append(resident_bytes(pid_of(dev)))
    return (resident[1] - resident[0]) / batches * 1e6


def _append_each(client: blocking.Client, partitions: Sequence[int]) -> None:
    """Append a batch of one record of 1 KiB to each partition that is named, as often as it is."""
    value = os.urandom(RECORD_BYTES)
    with client.producer(acks="commit", linger_ms=0, batch_bytes=RECORD_BYTES) as producer:
        pending: list = []
        for partition in partitions:
            pending.append(producer.send(blocking.Record("log", value, partition=partition)))
            if len(pending) >= IN_FLIGHT:
                for delivery in pending:
                    delivery.wait()
                pending.clear()
        producer.flush()
