"""A client whose cluster is a dict: what the commands see of the library, without sockets."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from multiraft.client.blocking import BatchReceipt, Record
from multiraft.wire import errors as wire
from multiraft.wire import messages, nodes


class FakeCluster:
    """Three nodes, four groups and the metadata group; topics live in ``topics``."""

    def __init__(self):
        self.topics: dict[str, list] = {}
        self.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
        self.up = {1, 2, 3}
        self.removed: list[int] = []
        self.failure: Exception | None = None
        self.asked: list[tuple[str, ...]] = []
        self.outcomes: dict[bytes, Exception] = {}  # value -> how its batch ends
        self.producer_options: dict = {}
        self.batch_records = 3
        self.hidden: set[str] = set()  # topics that the node asked has not heard of yet
        self.caught_up: list[str] = []  # addresses from which the newest metadata was learnt

    def connect(self, addresses):
        self.asked.append(tuple(addresses))
        if self.failure is not None:
            raise self.failure
        return FakeClient(self)

    def connect_over_tcp(self, addresses):
        """As a real client: somebody must listen at one of the addresses."""
        for address in addresses:
            host, _, port = address.rpartition(":")
            try:
                socket.create_connection((host, int(port)), timeout=5).close()
            except ConnectionRefusedError:
                continue
            return FakeClient(self)
        raise ConnectionRefusedError("nobody listens")


class FakeClient:
    """The admin part of `multiraft.client.blocking.Client`."""

    def __init__(self, cluster: FakeCluster):
        self._cluster = cluster

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def create_topic(self, name, partitions=1, replication_factor=0):
        if name in self._cluster.topics:
            raise wire.TopicExists(f"topic {name} exists")
        if "/" in name:
            raise wire.InvalidTopicName(f"topic name {name!r} is not acceptable")
        if replication_factor not in (0, 3):
            raise wire.InvalidRequest("the pool's replication factor is 3")
        self._cluster.topics[name] = [[] for _ in range(partitions)]

    def delete_topic(self, name):
        self._topic(name)
        del self._cluster.topics[name]

    def list_topics(self):
        return [messages.TopicSummary(name, bytes(16), 1, len(partitions))
                for name, partitions in self._cluster.topics.items()
                if name not in self._cluster.hidden]

    def describe_topic(self, name):
        rows = [SimpleNamespace(partition=number, group=1 + number % 4,
                                leader=self._cluster.leaders[1 + number % 4], start_offset=0,
                                end_offset=len(records))
                for number, records in enumerate(self._topic(name))]
        return SimpleNamespace(name=name, partitions=rows)

    def cluster_status(self):
        nodes = tuple(messages.NodeSummary(
            number, f"127.0.0.1:{9100 + number}", f"127.0.0.1:{9200 + number}", f"r{number}",
            "up" if number in self._cluster.up else "down", 5, 0) for number in (1, 2, 3))
        return messages.ClusterStatusReply(bytes(range(16)), 1, nodes, 4, 3,
                                           self._cluster.leaders[0], len(self._cluster.topics),
                                           sum(map(len, self._cluster.topics.values())))

    def node_status(self, address=""):
        self._cluster.caught_up.append(address)
        self._cluster.hidden.clear()

    def group_list(self):
        return tuple(messages.GroupSummary(group, 1, 7, leader, (1, 2, 3), ())
                     for group, leader in self._cluster.leaders.items())

    def group_transfer(self, group, to=0):
        self._cluster.leaders[group] = to or 1
        return messages.GroupTransferReply(to or 1, 8)

    def node_list(self):
        rows = tuple(self._node(number) for number in (1, 2, 3)
                     if number not in self._cluster.removed)
        return nodes.NodeListReply(rows, tuple(self._cluster.removed))

    def node_describe(self, number):
        if number not in (1, 2, 3):
            raise wire.UnknownNode(f"there is no node {number}")
        return nodes.NodeDescribeReply(self._node(number), (0, 1, 2, 3, 4), (),
                                       tuple(group for group, leader
                                             in self._cluster.leaders.items() if leader == number))

    def remove_node(self, number):
        if number != 3:
            raise wire.InvalidRequest(
                f"node {number} is a member of 5 groups (0, 1, 2, 3, 4): move them first, with "
                f"`multiraft node replace {number} NEW`")
        self._cluster.removed.append(number)

    def _node(self, number):
        row = nodes.NodeRow(number, 1 << number, 2, f"127.0.0.1:{9100 + number}",
                            f"127.0.0.1:{9200 + number}", f"r{number}", 100, "0.1.0",
                            1_700_000_000_000 if number == 1 else 0)
        led = sum(leader == number for leader in self._cluster.leaders.values())
        return nodes.NodeState(row, "up" if number in self._cluster.up else "down", 5, led)

    def producer(self, **options):
        self._cluster.producer_options = options
        return FakeProducer(self._cluster)

    def turn_sometimes(self):
        pass

    def consume(self, topic, partition=None, start="earliest", until_end=True):
        for number, records in enumerate(self._topic(topic)):
            if partition in (None, number):
                first = {"earliest": 0, "latest": len(records)}.get(start, start)
                yield from self._batches(number, records, first)
        if not until_end:
            raise KeyboardInterrupt  # nothing more will come: the person at the terminal leaves

    def _batches(self, partition, records, first):
        for at in range(first, len(records), self._cluster.batch_records):
            part = records[at:at + self._cluster.batch_records]
            yield SimpleNamespace(partition=partition, records=lambda at=at, part=part: [
                SimpleNamespace(offset=at + place, timestamp_ms=1_700_000_000_000, key=key,
                                value=value, headers=())
                for place, (key, value) in enumerate(part)])

    def _topic(self, name):
        if name not in self._cluster.topics or name in self._cluster.hidden:
            raise wire.UnknownTopic(f"there is no topic {name!r}")
        return self._cluster.topics[name]


class FakeDelivery:
    """One batch's fate."""

    def __init__(self):
        self.outcome = None
        self._listeners = []

    @property
    def done(self):
        return self.outcome is not None

    def when_done(self, listener):
        if self.outcome is None:
            self._listeners.append(listener)
        else:
            listener()

    def resolve(self, outcome):
        self.outcome = outcome
        for listener in self._listeners:
            listener()


class FakeProducer:
    """Batches of a few records; a batch ends when it is full or flushed."""

    def __init__(self, cluster: FakeCluster):
        self._cluster = cluster
        self._delivery = FakeDelivery()
        self._records = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.flush()

    def send_many(self, topic, values):
        return list(dict.fromkeys(self.send(Record(topic, value)) for value in values))

    def send(self, record):
        delivery = self._delivery
        self._records.append(record)
        if len(self._records) == self._cluster.batch_records:
            self._end_batch()
        return delivery

    def flush(self):
        if self._records:
            self._end_batch()

    def _end_batch(self):
        records, self._records = self._records, []
        delivery, self._delivery = self._delivery, FakeDelivery()
        failures = [self._cluster.outcomes[record.value] for record in records
                    if record.value in self._cluster.outcomes]
        if not failures:
            for record in records:
                self._cluster.topics[record.topic][record.partition or 0].append(
                    (record.key, record.value))
        delivery.resolve(failures[0] if failures else
                         BatchReceipt(records[0].topic, 0, 0, len(records)))
