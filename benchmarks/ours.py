"""Cluster under measurement: three nodes as processes, one producer in this process.

Contract.  ``cluster`` starts nodes through the functions behind ``multiraft dev`` in a directory of
its own and stops exactly those.  Counters come from each node's ``node_status``; processor time
comes from the kernel.  Every wait is bounded.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from benchmarks.processes import BenchmarkError, cpu_seconds, free_base_port
from multiraft.client import blocking
from multiraft.wire import NEED_DATA, Connection, Hello, RequestEvent, ResponseEvent, Role, Welcome
from multiraft.wire.messages import NodeStatus

UP_S = 90.0
ANSWER_S = 10.0
RECORD_BYTES = 1024
TOPIC = "bench"
#: Size of one request: the default of producers.
BATCH_BYTES = 256 << 10
#: Records before the clock starts, so that files exist and connections are warm.
WARM_UP = 5000
#: Records that are passed to the producer at once; enough that the calls do not dominate.
HANDFUL = 1000


class Idle(NamedTuple):
    """Costs of three nodes without traffic, all together."""

    liveness_per_s: float
    frames_per_s: float
    cpu_s_per_minute: float


@contextlib.contextmanager
def cluster(directory: Path, groups: int, nodes: int = 3) -> Iterator[DevCluster]:
    """Yield a cluster of so many nodes that serve, each with a replica of everything; it is stopped
    at the end in any case."""
    found = DevCluster(directory / "cluster", open_client, os.environ)
    found.create(nodes=nodes, groups=groups, replication_factor=nodes,
                 base_port=free_base_port(nodes))
    try:
        found.up(UP_S)
        yield found
    finally:
        found.down()


def append_batched(addresses: Sequence[str], count: int, partitions: int = 1,
                   topic: str = TOPIC) -> float:
    """Return MB per second of ``count`` records of 1 KiB, from the first to the last
    acknowledgement, in a topic that is created for it."""
    payload = os.urandom(RECORD_BYTES)
    handful = [payload] * HANDFUL
    with blocking.Client(list(addresses)) as client:
        client.create_topic(topic, partitions=partitions)
        with client.producer(acks="commit", batch_bytes=BATCH_BYTES) as producer:
            for _ in range(WARM_UP // HANDFUL):
                producer.send_many(topic, handful)
            producer.flush()
            start = time.perf_counter()
            for _ in range(count // HANDFUL):
                producer.send_many(topic, handful)
            producer.flush()
            took = time.perf_counter() - start
    return count // HANDFUL * HANDFUL * RECORD_BYTES / took / 1e6


def append_one_by_one(addresses: Sequence[str], count: int, topic: str = TOPIC) -> float:
    """Return the median milliseconds of one synchronous append of 1 KiB with one in flight."""
    payload = os.urandom(RECORD_BYTES)
    latencies = []
    with blocking.Client(list(addresses)) as client:
        with client.producer(acks="commit", linger_ms=0) as producer:
            for _ in range(count):
                start = time.perf_counter()
                producer.send(blocking.Record(topic, payload)).wait()
                latencies.append(time.perf_counter() - start)
    return statistics.median(latencies) * 1e3


def node_status(address: str) -> dict:
    """Return one node's own counters, requested over a connection of its own."""
    host, port = address.rsplit(":", 1)
    connection = Connection(Role.CLIENT)
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as raw:
        raw.sendall(b"".join(connection.send(Hello(client_id="benchmark"))))
        if not isinstance(_event(connection, raw), Welcome):
            raise BenchmarkError(f"{address} refuses the connection")
        raw.sendall(b"".join(connection.send(RequestEvent(1, NodeStatus()))))
        answer = _event(connection, raw)
    if not isinstance(answer, ResponseEvent) or answer.reply is None:
        raise BenchmarkError(f"{address} does not answer node_status: {answer}")
    return answer.reply.status


def _event(connection: Connection, raw):
    while (event := connection.next_event()) is NEED_DATA:
        connection.received(raw.recv_into(connection.buffer_for_receive()))
    return event


def idle(dev: DevCluster, settle_s: float, window_s: float) -> Idle:
    """Measure a cluster without traffic for ``window_s`` after ``settle_s`` of quiet."""
    time.sleep(settle_s)
    before, start = _counters(dev), time.monotonic()
    time.sleep(window_s)
    after, took = _counters(dev), time.monotonic() - start
    liveness, frames, cpu = (b - a for a, b in zip(before, after, strict=True))
    return Idle(liveness / took, frames / took, cpu / took * 60)


def _counters(dev: DevCluster) -> tuple[float, float, float]:
    nodes = dev.record.nodes
    statuses = [node_status(node.client_address) for node in nodes]
    return (sum(status["liveness_messages_sent"] for status in statuses),
            sum(status["peer_frames_sent"] for status in statuses),
            sum(cpu_seconds(node.pid) for node in nodes))
