"""Reading benchmark: one consumer reads from the node's memory, the page cache and the disk.

Contract.  One partition on three nodes, one blocking consumer that takes every batch and verifies
it, as an application does before it opens one.  ``memory``: the newest part, which the leader has
in its tail cache.  ``resident``: all of it after every node was restarted, when the page cache
still has it.  ``cold``: the same after the journals were dropped from the page cache; the operating
system may refuse that, so the bytes that the leader really read from its disk are printed beside
it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from admin_cli.dev_cluster import DevCluster
from benchmarks.failover import cluster
from benchmarks.processes import BenchmarkError
from multiraft.client import blocking

TOPIC = "read"
RECORD_BYTES = 1024
BATCH_BYTES = 256 << 10
HANDFUL = 1000
GROUPS = 8
#: Well inside the default tail cache, so that no part of it was evicted.
MEMORY_BYTES = 192 << 20


class Reading(NamedTuple):
    """MB per second, and the part of the cold read that the disk served."""

    memory: float
    resident: float
    cold: float
    cold_from_disk: float


def read_speeds(directory: Path, log_bytes: int) -> Reading:
    """Write ``log_bytes`` to one partition, then read them in three ways."""
    with cluster(directory, GROUPS, namespaces=False) as dev:
        end = _fill(dev, log_bytes)
        memory = _consume(dev, end - MEMORY_BYTES // RECORD_BYTES, end)
        _restart(dev)
        resident = _consume(dev, 0, end)
        _restart(dev)
        _forget_pages(dev)
        before = _disk_bytes(dev)
        cold = _consume(dev, 0, end)
        return Reading(memory, resident, cold, (_disk_bytes(dev) - before) / log_bytes)


def _fill(dev: DevCluster, log_bytes: int) -> int:
    """Write the log and return its end offset."""
    payload = os.urandom(RECORD_BYTES)
    with blocking.Client(list(dev.addresses)) as client:
        client.create_topic(TOPIC)
        with client.producer(acks="commit", batch_bytes=BATCH_BYTES) as producer:
            for _ in range(log_bytes // (RECORD_BYTES * HANDFUL)):
                producer.send_many(TOPIC, [payload] * HANDFUL)
            producer.flush()
        return client.list_offsets(TOPIC)[0].end_offset


def _consume(dev: DevCluster, start: int, end: int) -> float:
    """Return MB per second from the first request to the last batch."""
    with blocking.Client(list(dev.addresses)) as client:
        client.list_offsets(TOPIC)  # connects, and finds the leader
        began = time.perf_counter()
        taken = size = 0
        for batch in client.consume(TOPIC, 0, max(0, start), until_end=True):
            taken += batch.count
            size += len(batch.data)
        took = time.perf_counter() - began
    if taken != end - max(0, start):
        raise BenchmarkError(f"{taken} records were read of {end - max(0, start)}")
    return size / took / 1e6


def _restart(dev: DevCluster) -> None:
    """Restart the nodes: new processes have empty caches."""
    dev.down()
    dev.up()


def _forget_pages(dev: DevCluster) -> None:
    for path in dev.directory.glob("node-*/data/lane-0/*.segment"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _disk_bytes(dev: DevCluster) -> int:
    """Return the bytes that the disk has read for all nodes, as the kernel counts."""
    total = 0
    for node in dev.record.nodes:
        lines = Path(f"/proc/{node.pid}/io").read_text(encoding="ascii").splitlines()
        total += int(dict(line.split(": ") for line in lines)["read_bytes"])
    return total
