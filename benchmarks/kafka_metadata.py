"""Metadata of all topics at the port of Kafka's clients: what a request costs the event loop.

Contract.  One node with many topics, one connection that asks for all of them again and again.  The
time on the loop is the processor time of the node's main thread, which runs nothing else, as the
kernel counts it: decoding, the answer, and its copy into the socket.  Whatever the idle node does
meanwhile is part of it.  ``built_ms`` is the same for one request after a change, when the answer
that was kept is built anew.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import NamedTuple

from admin_cli.dev_cluster import DevCluster
from benchmarks.processes import BenchmarkError, connect
from multiraft.client import blocking
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import MetadataRequest, RequestHeader
from multiraft.kafka.requests import decode_response, encode_request

TOPICS, PARTITIONS = 1000, 12
#: The version that librdkafka and the Java client ask in.
VERSION = 13
ANSWER_S = 30.0
#: Requests of one repetition: seconds of processor time in all, so that its unit does not matter.
REQUESTS = 1000
LENGTH_BYTES = 4


class Costs(NamedTuple):
    """Milliseconds of one request, and the bytes of its answer."""

    kept_ms: float
    built_ms: float
    answer_ms: float  # until the client has all of it
    answer_bytes: int


def create_topics(dev: DevCluster, count: int = TOPICS) -> None:
    """Create the topics."""
    with blocking.Client(list(dev.addresses)) as client:
        for number in range(count):
            client.create_topic(f"topic-{number:04d}", partitions=PARTITIONS)


class Asking:
    """One connection that asks for the metadata of all topics."""

    def __init__(self, dev: DevCluster):
        node = dev.record.nodes[0]
        self._stat = Path(f"/proc/{node.pid}/task/{node.pid}/schedstat")
        self._socket = connect(int(node.kafka_address.rsplit(":", 1)[1]), ANSWER_S)
        self._header = RequestHeader(request_api_key=ApiKey.METADATA, request_api_version=VERSION,
                                     correlation_id=1, client_id="benchmark")
        self._request = b"".join(map(bytes, encode_request(
            self._header, MetadataRequest(topics=None, allow_auto_topic_creation=False))))
        self._received = bytearray(16 << 20)

    def close(self) -> None:
        self._socket.close()

    def ask(self) -> memoryview:
        """Send one request and return its answer, without its length."""
        self._socket.sendall(self._request)
        size = int.from_bytes(self._take(LENGTH_BYTES), "big")
        return self._take(size)

    def _take(self, count: int) -> memoryview:
        place = memoryview(self._received)[:count]
        at = 0
        while at < count:
            size = self._socket.recv_into(place[at:], 0, socket.MSG_WAITALL)
            if not size:
                raise BenchmarkError("the node closed the connection")
            at += size
        return place

    def loop_ms(self) -> float:
        """Return the processor time of the node's main thread so far."""
        return int(self._stat.read_text(encoding="ascii").split()[0]) / 1e6

    def check(self, topics: int) -> None:
        """Raise ``BenchmarkError`` if an answer lacks topics, partitions or leaders."""
        answer = decode_response(self.ask(), self._header)
        found = [topic for topic in answer.topics if not topic.is_internal]
        led = sum(part.leader_id > 0 for topic in found for part in topic.partitions)
        if (len(found), led) != (topics, topics * PARTITIONS):
            raise BenchmarkError(f"the answer has {len(found)} topics and {led} partitions with a "
                                 f"leader")


def costs(dev: DevCluster, asking: Asking, topics: int, requests: int = REQUESTS) -> Costs:
    """Measure requests that are answered with the same bytes, then one after a topic was created
    and deleted."""
    asking.check(topics)
    before, start = asking.loop_ms(), time.perf_counter()
    for _ in range(requests):
        size = len(asking.ask())
    kept = (asking.loop_ms() - before) / requests
    took = (time.perf_counter() - start) / requests * 1e3
    with blocking.Client(list(dev.addresses)) as client:
        client.create_topic("another")
        client.delete_topic("another")
    before = asking.loop_ms()
    asking.ask()
    return Costs(kept, asking.loop_ms() - before, took, size)
