"""The steps of connectors fail for each kind of damage that a connector could do.

A cluster and a connector in memory take the place of nodes and Spark; the steps and what they
compare are those of ``make kafka-clients``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.kafka_clients.catalog import CLIENTS
from tests.kafka_clients.connector import ConnectorDriver
from tests.kafka_clients.connector_steps import (
    SPLITS,
    contents,
    copy_of,
    killed_stream,
    pattern,
    stream,
)
from tests.kafka_clients.driver import ClientFailed
from tests.kafka_clients.records import Mismatch, Record, Row
from tests.kafka_clients.steps import CALM, KILLED, PARTITIONS, Trial

SPARK = next(client for client in CLIENTS if client.is_connector)
LEADER = 2


class NativeRecord(NamedTuple):
    """A record as the native client returns it."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[bytes, bytes | None], ...]


class Cluster:
    """Topics in memory; the world of a trial, and its native client."""

    def __init__(self):
        self.topics: dict[str, list[list[Row]]] = {}
        self.kills: list[int] = []  # every node that was killed
        self.killed: list[int] = []  # those that do not run
        self.dev = SimpleNamespace(start=lambda node, limit_s: self.killed.remove(node),
                                   up=lambda: None)
        self._clock = 1_000

    def client(self) -> Cluster:
        return self

    def kill(self, node: int) -> None:
        self.kills.append(node)
        self.killed.append(node)

    def create_topic(self, name: str, partitions: int) -> None:
        self.topics[name] = [[] for _ in range(partitions)]

    def append(self, topic: str, partition: int, key: bytes | None, value: bytes | None,
               header: bytes | None) -> int:
        """Append a record and return its offset. Two records have each time."""
        rows = self.topics[topic][partition]
        self._clock += 1
        rows.append(Row(len(rows), self._clock // 2, key, value, header))
        return rows[-1].offset

    def list_offsets(self, topic: str) -> list[Any]:
        return [SimpleNamespace(end_offset=len(rows)) for rows in self.topics[topic]]

    def describe_topic(self, topic: str) -> Any:
        return SimpleNamespace(partitions=[SimpleNamespace(leader=LEADER)] * PARTITIONS)

    def consume(self, topic: str, partition: int, until_end: bool) -> Iterator[Any]:
        yield SimpleNamespace(records=lambda: [
            NativeRecord(*row[:4], ((b"from", row.header),))
            for row in self.topics[topic][partition]])


class Connector(ConnectorDriver):
    """A connector that does what it should, with what a test puts in its way: ``copied`` changes
    the rows of one partition that a copy writes, ``counted`` the number that it reports, ``parts``
    and ``matched`` what a pattern finds, ``fetched`` what is read from a time."""

    def __init__(self, cluster: Cluster):
        self.cluster = cluster
        self.positions: dict[int, int] = {}
        self.copied: Callable[[list[Row]], Sequence[Row]] = list
        self.counted: Callable[[int], int] = int
        self.parts: Callable[[int], int] = int
        self.matched: Callable[[dict], dict] = dict
        self.fetched: Callable[[list[Row]], list[Row]] = list

    def produce(self, topic: str, partition: int, acks: str, compression: str, idempotent: bool,
                header: bytes, records: Sequence[Record]) -> list[int | None]:
        return [self.cluster.append(topic, partition, *record, header) for record in records]

    def copy(self, topic: str, target: str) -> int:
        count = 0
        for partition, rows in enumerate(self.cluster.topics[topic]):
            new = rows[self.positions.get(partition, 0):]
            self.positions[partition] = len(rows)
            count += len(new)
            for row in self.copied(new) if new else ():
                self.cluster.append(target, partition, *row[2:])
        return self.counted(count)

    def match(self, pattern: str, splits: int) -> tuple[int, dict[tuple[str, int], list[Row]]]:
        found = {(topic, partition): list(rows)
                 for topic, partitions in self.cluster.topics.items()
                 for partition, rows in enumerate(partitions) if rows}
        return self.parts(splits), self.matched(found)

    def fetch(self, topic: str, partition: int, start: Any, count: int) -> list[Row]:
        return self.fetched([row for row in self.cluster.topics[topic][partition]
                             if row.timestamp_ms >= start["time"]][:count])


@pytest.fixture
def connector() -> Connector:
    return Connector(Cluster())


@pytest.fixture
def trial(connector) -> Trial:
    """Return a trial whose topic has records in two partitions."""
    trial = Trial(SPARK, connector, connector.cluster, "t", seed=7)
    connector.cluster.create_topic("t", PARTITIONS)
    trial.produce_all(CALM)
    trial.produce_all(KILLED)
    return trial


@pytest.fixture
def streamed(trial) -> Trial:
    """Return a trial after its stream."""
    stream(trial)
    return trial


def test_a_connector_that_does_what_it_should_passes(trial, connector):
    stream(trial)
    pattern(trial)
    killed_stream(trial)
    assert connector.cluster.kills == [LEADER] and not connector.cluster.killed
    for partition in range(PARTITIONS):
        assert contents(trial.read_natively(partition, copy_of(trial))) == contents(
            trial.read_natively(partition))


# ---- a stream without a failure ----------------------------------------------------------------


@pytest.mark.parametrize("damage", [
    lambda rows: rows[:-1],
    lambda rows: rows[1:],
    lambda rows: [*rows, rows[-1]],
    lambda rows: [rows[1], rows[0], *rows[2:]],
    lambda rows: [*rows[:-1], rows[-1]._replace(value=b"other")],
    lambda rows: [*rows[:-1], rows[-1]._replace(value=None)],
    lambda rows: [*rows[:-1], rows[-1]._replace(key=b"other")],
    lambda rows: [*rows[:-1], rows[-1]._replace(header=None)],
], ids=["last lost", "first lost", "repeated", "order", "value", "null", "key", "header"])
def test_a_copy_that_differs_is_found(trial, connector, damage):
    connector.copied = damage
    with pytest.raises(Mismatch, match="is not a copy"):
        stream(trial)


@pytest.mark.parametrize("partition", [CALM, KILLED])
def test_each_partition_is_compared(trial, connector, partition):
    keys = {row.key for row in connector.cluster.topics["t"][partition]}
    connector.copied = lambda rows: [row for row in rows if row.key not in keys]
    with pytest.raises(Mismatch, match=f"partition {partition} of t-copy is not a copy"):
        stream(trial)


@pytest.mark.parametrize("wrong", [-1, 1], ids=["too few", "read twice"])
def test_a_stream_that_reads_another_number_of_records_is_found(trial, connector, wrong):
    connector.counted = lambda count: count + wrong
    with pytest.raises(Mismatch, match="records were copied"):
        stream(trial)


def test_a_stream_that_copies_only_once_is_found(trial, connector):
    copies = iter((int, lambda count: 0))
    connector.counted = lambda count: next(copies)(count)
    with pytest.raises(Mismatch, match="records were copied"):
        stream(trial)


# ---- a source of all topics that match a pattern -----------------------------------------------


def test_a_source_that_does_not_split_partitions_is_found(streamed, connector):
    connector.parts = lambda splits: 2 * PARTITIONS
    connector.matched = lambda found: {**found, ("t", KILLED + 1): [], ("t-copy", KILLED + 1): []}
    with pytest.raises(Mismatch, match="6 parts for 6 partitions"):
        pattern(streamed)
    connector.parts = lambda splits: SPLITS
    pattern(streamed)


@pytest.mark.parametrize("topic", ["t", "t-copy"])
@pytest.mark.parametrize("damage", [
    lambda rows: [],
    lambda rows: rows[:-1],
    lambda rows: [*rows, rows[-1]],
    lambda rows: [rows[1], rows[0], *rows[2:]],
    lambda rows: [*rows[:-1], rows[-1]._replace(timestamp_ms=1)],
    lambda rows: [*rows[:-1], rows[-1]._replace(value=b"other")],
], ids=["none", "lost", "repeated", "order", "time", "value"])
def test_what_a_pattern_reads_otherwise_is_found(streamed, connector, topic, damage):
    connector.matched = lambda found: {**found, (topic, KILLED): damage(found[topic, KILLED])}
    with pytest.raises(Mismatch, match=f"partition {KILLED} of {topic} was not read as it is"):
        pattern(streamed)


def test_records_of_a_partition_that_has_none_are_found(streamed, connector):
    connector.matched = lambda found: {**found, ("t", KILLED + 1): found["t", CALM][:1]}
    with pytest.raises(Mismatch, match=f"partition {KILLED + 1} of t was not read as it is"):
        pattern(streamed)


# ---- a stream while the leader is killed -------------------------------------------------------


def test_a_killed_stream_may_repeat_records(streamed, connector):
    connector.copied = lambda rows: [*rows, rows[0], rows[-1]]
    killed_stream(streamed)


@pytest.mark.parametrize(("damage", "complaint"), [
    (lambda rows: rows[:-1], "acknowledged records are lost"),
    (lambda rows: [], "acknowledged records are lost"),
    (lambda rows: [*rows[:-1], rows[-1]._replace(value=b"other")], "nobody made"),
    (lambda rows: [*rows[:-1], rows[-1]._replace(header=None)], "nobody made"),
    (lambda rows: [*rows, rows[-1]._replace(key=b"other")], "nobody made"),
], ids=["lost", "nothing", "value", "header", "key"])
def test_damage_by_a_killed_stream_is_found(streamed, connector, damage, complaint):
    connector.copied = damage
    with pytest.raises(Mismatch, match=complaint):
        killed_stream(streamed)


def test_damage_after_the_leader_has_returned_is_found(streamed, connector):
    was_killed: list[int] = []

    def copied(rows: list[Row]) -> list[Row]:
        was_killed.extend(connector.cluster.killed)
        return rows[1:] if was_killed and not connector.cluster.killed else rows

    connector.copied = copied
    with pytest.raises(Mismatch, match="acknowledged records are lost"):
        killed_stream(streamed)


def test_a_query_that_fails_fails_the_step(streamed, connector):
    def failed(count: int) -> int:
        if connector.cluster.killed:
            raise ClientFailed("copy: the query ended")
        return count

    connector.counted = failed
    with pytest.raises(ClientFailed, match="the query ended"):
        killed_stream(streamed)


@pytest.mark.parametrize("damage", [
    lambda rows: rows[1:], lambda rows: rows[:-1], lambda rows: [],
    lambda rows: [*rows[:-1], rows[-1]._replace(value=b"other")],
], ids=["later", "fewer", "none", "value"])
def test_a_wrong_read_from_a_time_is_found(streamed, connector, damage):
    connector.fetched = damage
    with pytest.raises(Mismatch, match="were read from a time"):
        killed_stream(streamed)


def test_a_pattern_is_read_while_the_leader_is_dead(streamed, connector):
    connector.matched = lambda found: {} if connector.cluster.killed else found
    with pytest.raises(Mismatch, match="was not read as it is"):
        killed_stream(streamed)
