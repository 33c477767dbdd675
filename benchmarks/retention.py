"""Costs of retention: starts on long logs, small disks, deleted topics, the cleaner, idle topics.

Contract.  Each function starts nodes of its own below ``directory``, and ends them.  Each takes a
bounded time, prints its progress, and raises ``BenchmarkError`` for what could not be measured.
Figures that are compared come from one run, in turn.  ``small_disk`` needs root, for a file system
of its own.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
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
from multiraft.wire.nodes import PAUSE, RESUME, ControlCleaner

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
#: How many numbers of batches the memory of a start is measured at, and batches between two lines
#: of progress.
MEMORY_SIZES, PROGRESS_BATCHES = 4, 50_000
#: Share of the bytes that the topic with the short retention gets, in tenths, and its retention.
SHORT_TENTHS, SHORT_RETENTION_MS = 9, 5_000
#: Space that did not fall for so long is taken for the final one: twice what a checkpoint that only
#: names segments waits for.
SETTLED_S = 45.0
#: Segments at the end of a journal that have their blocks before they are written.
UNSEALED = 2
#: Window in which appends beside the cleaner are timed: at its pace it copies 450 MiB meanwhile.
CLEANER_WINDOW_S = 60.0
CLEANER_POLL_S = 0.02
#: Bytes of segments against those of their live records with which the cleaner certainly begins:
#: slightly above its own factor.
CLEANABLE_FACTOR = 1.45
#: Segments that ``dd`` copies: half a gigabyte.
DD_SEGMENTS_MAX = 8
NO_LIMIT = 1 << 40
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


def ready_after_kill(directory: Path, sizes: Sequence[int], starts: int) -> list[list[float]]:
    """Return the seconds from the start of a killed node until it is ready, for each of ``sizes``,
    ascending, those of ``starts`` starts: with as many bytes of log, and nothing of them in the
    page cache. Appends come before the first start only, so the later ones may replay less."""
    found: list[list[float]] = []
    with one_node(directory) as dev:
        filled = 0
        for size in sizes:
            append(dev.addresses, "log", size - filled)
            filled = size
            found.append([])
            for _ in range(starts):
                dev.kill(1)
                drop_pages(data_of(dev))
                start = time.monotonic()
                dev.start(1, UP_S)
                found[-1].append(time.monotonic() - start)
                say(f"ready after {found[-1][-1]:.2f} s on {size >> 20:,} MiB")
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


# ---- short and long retention in the same groups ----------------------------------------------


class Mixed(NamedTuple):
    """Space of a node after retention and the cleaner did what was due."""

    live_bytes: int  # payload of the records that are left
    sealed_bytes: int  # sealed and cold segments, and their index files
    all_bytes: int  # the data directory


def _append_mixed(addresses: Sequence[str], size: int, tenths: int) -> int:
    """Append ``size`` bytes to two topics in turn, ``tenths`` tenths to "short", the others to
    "long".  Return the bytes of the latter."""
    payload, long_bytes = os.urandom(RECORD_BYTES), 0
    with blocking.Client(list(addresses)) as client:
        for topic in ("short", "long"):
            client.create_topic(topic, partitions=GROUPS, if_not_exists=True)
        with client.producer(acks="commit", batch_bytes=BATCH_BYTES) as producer:
            for done in range(0, size, RECORD_BYTES * HANDFUL):
                producer.send_many("short", [payload] * (HANDFUL * tenths // 10))
                producer.send_many("long", [payload] * (HANDFUL - HANDFUL * tenths // 10))
                long_bytes += (HANDFUL - HANDFUL * tenths // 10) * RECORD_BYTES
                if done % (256 << 20) < RECORD_BYTES * HANDFUL:
                    say(f"{done >> 20:,} of {size >> 20:,} MiB")
            producer.flush()
    return long_bytes


def _sealed_files(dev: DevCluster) -> list[Path]:
    """Return the sealed segments of the journal."""
    return sorted((data_of(dev) / "lane-0").glob("*.segment"))[:-UNSEALED]


def _sealed_bytes(dev: DevCluster) -> int:
    """Return the bytes of blocks of sealed and cold segments, with their index files."""
    unsealed = sorted((data_of(dev) / "lane-0").glob("*.segment"))[-UNSEALED:]
    used = used_bytes(data_of(dev) / "lane-0") + used_bytes(data_of(dev) / "cold-0")
    for path in unsealed:
        with contextlib.suppress(FileNotFoundError):
            used -= path.stat().st_blocks * 512
    return used


def mixed_topics(directory: Path, size: int) -> Mixed:
    """Append ``size`` bytes to a topic with a short retention and one without limit, in the same
    groups, and return the space that stays."""
    with one_node(directory, SHORT_LOGS) as dev:
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("short", partitions=GROUPS,
                                settings={"retention.ms": str(SHORT_RETENTION_MS)})
        live_bytes = _append_mixed(dev.addresses, size, SHORT_TENTHS)
        _control_cleaner(dev, RESUME, NO_LIMIT)
        least, since = _sealed_bytes(dev), time.monotonic()
        give_up = since + WAIT_S * 3
        while time.monotonic() < min(give_up, since + SETTLED_S):
            time.sleep(POLL_S)
            found = _sealed_bytes(dev)
            if found < least:
                least, since = found, time.monotonic()
        say(f"{live_bytes >> 20:,} MiB are left of {size >> 20:,}, in {least >> 20:,} MiB of sealed"
            f" segments, {used_bytes(data_of(dev)) >> 20:,} MiB of the directory")
        return Mixed(live_bytes, least, used_bytes(data_of(dev)))


def _control_cleaner(dev: DevCluster, action: str, bytes_per_second: int = 0) -> None:
    call(dev.record.nodes[0].client_address, ControlCleaner(1, action, bytes_per_second))


# ---- the cleaner ---------------------------------------------------------------------------------


class Cleaning(NamedTuple):
    """Rates of the cleaner beside ``dd``, and appends beside it."""

    copied_mb_per_s: float  # records, while a copy is active
    dd_mb_per_s: float
    p99_pairs_ms: tuple[tuple[float, float], ...]  # without and with the cleaner


def cleaner(directory: Path, size: int, pairs: int) -> Cleaning:
    """Delete half of ``size`` bytes that are in all segments, and measure the copies of the other
    half: appends beside them at the default pace, and their rate without limit."""
    found: list[tuple[float, float]] = []
    with one_node(directory, SHORT_LOGS) as dev:
        _control_cleaner(dev, PAUSE)
        pace = int(status_of(dev)["cleaner_bytes_per_second"])
        start = time.monotonic()
        append(dev.addresses, "log", 256 << 20)
        half = (256 << 20) / (time.monotonic() - start) / 2
        _append_mixed(dev.addresses, size, 5)
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("other", settings={"retention.bytes": str(64 << 20)})
            client.delete_topic("short")
        with Appender(dev.addresses, "other", half) as appender:
            _wait_cleanable(dev)
            for number in range(pairs):
                p99_ms = {}
                for action in (PAUSE, RESUME) if number % 2 else (RESUME, PAUSE):
                    _control_cleaner(dev, action, pace if action == RESUME else 0)
                    before = int(status_of(dev)["cleaner_copied_bytes"])
                    with Watched(dev.addresses) as watched:
                        watched.wait(CLEANER_WINDOW_S)
                        p99_ms[action] = watched.p99_ms()
                    status = status_of(dev)
                    if action == RESUME and not (status["cleaner_active"] or int(
                            status["cleaner_copied_bytes"]) > before):
                        raise BenchmarkError("the cleaner had nothing to copy: more --gib needed")
                    appender.check()
                found.append((p99_ms[PAUSE], p99_ms[RESUME]))
                say(f"pair {number + 1}: p99 {found[-1][0]:.2f} ms without the cleaner, "
                    f"{found[-1][1]:.2f} ms with it")
            _control_cleaner(dev, PAUSE)
        dd_mb_per_s = _dd(dev, directory / "copy")
        drop_pages(data_of(dev))
        copied = _copied_mb_per_s(dev)
    say(f"copies {copied:.0f} MB/s, dd {dd_mb_per_s:.0f} MB/s")
    return Cleaning(copied, dd_mb_per_s, tuple(found))


def _wait_cleanable(dev: DevCluster) -> None:
    """Wait until segments take so much more than their records that the cleaner would copy."""
    give_up = time.monotonic() + WAIT_S
    while True:
        status = status_of(dev)
        live = int(status["cleanable_live_bytes"])
        if int(status["cleanable_bytes"]) > CLEANABLE_FACTOR * live > 0:
            return
        if time.monotonic() > give_up:
            raise BenchmarkError(f"nothing is to be copied after {WAIT_S:.0f} s")
        time.sleep(POLL_S)


def _dd(dev: DevCluster, target: Path) -> float:
    """Return the megabytes per second at which ``dd`` copies sealed segments, each synced."""
    files = _sealed_files(dev)[:DD_SEGMENTS_MAX]
    if not files:
        raise BenchmarkError("no sealed segment is left for dd: more --gib needed")
    drop_pages(data_of(dev))
    size, start = sum(path.stat().st_size for path in files), time.monotonic()
    for path in files:
        subprocess.run(["dd", f"if={path}", f"of={target}", "bs=1M", "conv=fsync", "status=none"],
                       check=True)
    took = time.monotonic() - start
    target.unlink()
    return size / took / 1e6


def _copied_mb_per_s(dev: DevCluster) -> float:
    """Return the megabytes of records per second that the cleaner copies without a limit, while it
    copies: it also waits for checkpoints.

    Half of the records that are to be copied count: the last copies have few."""
    status = status_of(dev)
    before, active_s = int(status["cleaner_copied_bytes"]), 0.0
    wanted = int(status["cleanable_live_bytes"]) // 2
    _control_cleaner(dev, RESUME, NO_LIMIT)
    last = time.monotonic()
    give_up = last + WAIT_S
    while True:
        time.sleep(CLEANER_POLL_S)
        status, now = status_of(dev), time.monotonic()
        if status["cleaner_active"]:
            active_s += now - last
        last = now
        copied = int(status["cleaner_copied_bytes"]) - before
        if copied > wanted or copied and now > give_up:
            return copied / max(active_s, CLEANER_POLL_S) / 1e6
        if now > give_up:
            raise BenchmarkError(f"the cleaner copied nothing in {WAIT_S:.0f} s")


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
    """Return the resident bytes that a node has more for each million of batches of 1 KiB: the
    slope over starts with ``batches`` of them, and with two, three and four times as many.

    A start has no entries in memory, and what does not grow with the batches is in all of them.
    What a start frees lies between what it keeps, so single starts differ by some megabytes.  One
    producer appends all: each further one adds a window to each partition."""
    totals = [batches * times for times in range(1, MEMORY_SIZES + 1)]
    resident = []
    with one_node(directory, SHORT_LOGS) as dev:
        with blocking.Client(list(dev.addresses)) as client:
            client.create_topic("log", partitions=partitions)
            rng = random.Random(1)
            with _small_producer(client) as producer:
                _append_each(producer, range(partitions))  # opens the partitions
                for total in totals:
                    for done in range(0, batches, PROGRESS_BATCHES):
                        say(f"{total - batches + done:,} batches in {partitions:,} partitions")
                        count = min(PROGRESS_BATCHES, batches - done)
                        _append_each(producer, [rng.randrange(partitions) for _ in range(count)])
                    dev.restart([1], UP_S)
                    resident.append(resident_bytes(pid_of(dev)))
                    say(f"{resident[-1] / 1e6:.1f} MB with {total:,} batches")
    return statistics.linear_regression(totals, resident).slope * 1e6


def _small_producer(client: blocking.Client) -> blocking.Producer:
    """Return a producer whose batches have one record of 1 KiB each."""
    return client.producer(acks="commit", linger_ms=0, batch_bytes=RECORD_BYTES)


def _append_each(producer: blocking.Producer, partitions: Sequence[int]) -> None:
    """Append a batch of one record of 1 KiB to each partition that is named, as often as it is."""
    value = os.urandom(RECORD_BYTES)
    pending: list = []
    for partition in partitions:
        pending.append(producer.send(blocking.Record("log", value, partition=partition)))
        if len(pending) >= IN_FLIGHT:
            for delivery in pending:
                delivery.wait()
            pending.clear()
    producer.flush()
