"""A client of Kafka (librdkafka) under measurement: the same functions for any cluster that speaks
Kafka's protocol.

Contract.  All settings that are not named here are librdkafka's defaults, and are the same for
every cluster.  Each function has limits of its own and raises ``BenchmarkError``; the clients that
it makes end with it.

Theory.  librdkafka packs, sends and receives on threads of its own; this process only passes lists
of records to it and takes lists back.  ``check.crcs`` is off by default, so a consumer decodes
without checking.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import confluent_kafka as kafka
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.processes import BenchmarkError

RECORD_BYTES = 1024
#: Records that are passed to the producer at once; enough that the calls do not dominate.
HANDFUL = 1000
#: Records before the clock starts, so that files exist and connections are warm.
WARM_UP = 5000
ADMIN_S = 60.0
#: The longest that one call here may take for all its records, and for one answer.
RUN_S, ANSWER_S = 120.0, 20.0
#: Records that are taken from the consumer at once.
TAKEN = 10_000
#: Records in a producer's queue, librdkafka's default (queue.buffering.max.messages), and pause
#: while it is full.
QUEUED_MAX = 100_000
POLL_S = 0.005
#: Assigned partitions need no coordinator; a cluster without consumer groups says so.
NO_GROUPS = 30

DURABLE = {"acks": "all", "enable.idempotence": True}
#: Room for what is read ahead: with the defaults the client stops for a second when its queue has
#: 100,000 records.
READ_AHEAD = {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 256 << 10,
              "fetch.message.max.bytes": 4 << 20}


def _settings(address: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": address, "client.id": "benchmark", "log_level": 0,
            "error_cb": _ignored, **more}


def _ignored(_error: object) -> None:
    """Take an error of a connection: the client tries again, and each call has its own outcome."""


def create_topic(address: str, name: str, settings: Mapping[str, str] | None = None) -> None:
    """Create a topic of one partition and one replica."""
    admin = AdminClient(_settings(address))
    wanted = NewTopic(name, 1, 1, config=dict(settings or {}))
    try:
        admin.create_topics([wanted], request_timeout=ADMIN_S)[name].result(ADMIN_S)
    except kafka.KafkaException as error:
        raise BenchmarkError(f"topic {name} is not created: {error}") from error


class _Producer:
    """A producer that counts failed deliveries."""

    def __init__(self, address: str, topic: str, **settings: Any):
        self._topic = topic
        self._failures: list[Any] = []
        self._producer = kafka.Producer(_settings(
            address, **DURABLE, **{"delivery.report.only.error": True}, **settings))

    def send(self, handful: list[dict[str, bytes]]) -> None:
        """Pass on records, once the queue has room for all of them.  Raises ``BenchmarkError``."""
        give_up = time.monotonic() + RUN_S
        while len(self._producer) + len(handful) > QUEUED_MAX:
            self._producer.poll(POLL_S)
            if time.monotonic() > give_up:
                raise BenchmarkError(f"{self._topic}: the queue has no room for {RUN_S:.0f} s")
        taken = self._producer.produce_batch(self._topic, handful, partition=0,
                                             on_delivery=self._report)
        self._producer.poll(0)
        if taken < len(handful):
            raise BenchmarkError(f"{self._topic}: {taken} of {len(handful)} records were queued")

    def flush(self) -> None:
        """Wait for the acknowledgement of all records.  Raises ``BenchmarkError``."""
        left = self._producer.flush(RUN_S)
        if left or self._failures:
            raise BenchmarkError(f"{self._topic}: {left} records without an answer, failures: "
                                 f"{self._failures[:2]}")

    def _report(self, error: Any, _message: Any) -> None:
        self._failures.append(error)


def append_batched(address: str, topic: str, count: int) -> float:
    """Return MB per second of ``count`` records of 1 KiB, from the first to the last
    acknowledgement."""
    payload = os.urandom(RECORD_BYTES)
    producer = _Producer(address, topic)
    for _ in range(WARM_UP // HANDFUL):
        producer.send(_handful(payload))
    producer.flush()
    handfuls = [_handful(payload) for _ in range(count // HANDFUL)]
    start = time.perf_counter()
    for handful in handfuls:
        producer.send(handful)
    producer.flush()
    took = time.perf_counter() - start
    return len(handfuls) * HANDFUL * RECORD_BYTES / took / 1e6


def _handful(payload: bytes) -> list[dict[str, bytes]]:
    return [{"value": payload} for _ in range(HANDFUL)]


class SingleAppends:
    """Synchronous appends of 1 KiB, one in flight."""

    def __init__(self, address: str, topic: str):
        self._topic = topic
        self._payload = os.urandom(RECORD_BYTES)
        self._producer = kafka.Producer(_settings(address, **DURABLE, **{"linger.ms": 0}))
        self._done: list[Any] = []

    def append(self) -> None:
        """Append a record, and wait until it is acknowledged.  Raises ``BenchmarkError``."""
        self._producer.produce(self._topic, self._payload, partition=0, on_delivery=self._report)
        give_up = time.monotonic() + ANSWER_S
        while not self._done:
            self._producer.poll(1.0)
            if time.monotonic() > give_up:
                raise BenchmarkError(f"{self._topic}: an append has no answer after "
                                     f"{ANSWER_S:.0f} s")
        error = self._done.pop()
        if error is not None:
            raise BenchmarkError(f"{self._topic}: {error}")

    def _report(self, error: Any, _message: Any) -> None:
        self._done.append(error)


def read(address: str, topic: str) -> float:
    """Return MB per second of values, from the first request for the beginning of a partition to
    its last record."""
    consumer = kafka.Consumer(_settings(address, **READ_AHEAD, **{
        "group.id": "benchmark", "enable.auto.commit": False}))
    try:
        _, end = consumer.get_watermark_offsets(kafka.TopicPartition(topic, 0), timeout=ANSWER_S)
        # Connected, and the leader is known, before the clock starts.
        consumer.assign([kafka.TopicPartition(topic, 0, end - 1)])
        _take(consumer, topic, 1)
        start = time.perf_counter()
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])
        size = _take(consumer, topic, end)
        took = time.perf_counter() - start
    finally:
        consumer.close()
    return size / took / 1e6


def _take(consumer: Any, topic: str, count: int) -> int:
    """Take ``count`` records; return the bytes of their values."""
    taken = size = 0
    give_up = time.monotonic() + RUN_S
    while taken < count:
        found = consumer.consume(min(TAKEN, count - taken), timeout=ANSWER_S)
        records = [each for each in found if each.error() is None]
        faults = [each.error() for each in found if each.error() is not None
                  and each.error().code() != NO_GROUPS]
        if faults or not found or time.monotonic() > give_up:
            raise BenchmarkError(f"{topic}: {taken} of {count} records were read: {faults[:2]}")
        taken += len(records)
        size += sum(map(len, records))
    return size
