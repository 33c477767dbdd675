"""A client whose cluster is a dict: what the commands see of the library, without sockets."""

from __future__ import annotations

import socket
from types import SimpleNamespace

from multiraft.client.blocking import (
    BatchReceipt,
    DeletedRecords,
    Gap,
    OffsetRange,
    Record,
    Timestamp,
    Wait,
)
from multiraft.errors import MultiRaftError, RecordTooLarge
from multiraft.settings import effective, registry
from multiraft.wire import errors as wire
from multiraft.wire import messages, nodes, plans, sizes
from multiraft.wire.description import MemberProgress
from multiraft.wire.placements import EpochRow, PlacementRow
from multiraft.wire.pool import PoolStatusReply
from multiraft.wire.settings import SettingRow, SettingValue

#: What a node that is well says of itself.
NODE_STATUS = {
    "version": "0.1.0", "phase": "serving", "ready": 1, "not_ready": "", "uptime_ms": 7_325_000,
    "groups_quarantined": 0, "groups_lagging": 0, "lag_entries": 0, "log_bytes": 2048,
    "disk_used_bytes": 5 << 20, "disk_free_bytes": 3 << 30, "disk_total_bytes": 4 << 30,
    "disk_full": 0, "quarantined": [], "under_replicated": [], "leaderless": []}

#: What it adds while an operator's scrub is half way.
SCRUBBING = {
    "scrub_active": 1, "scrub_requested": 1, "scrub_pass_bytes": 2 << 20,
    "scrub_total_bytes": 4 << 20, "scrub_bytes_per_second": 1 << 20, "scrub_passes": 2,
    "scrub_damaged": 1, "scrub_completed_ms": 1_700_000_000_000, "boot_epoch": 5}

#: The time of every record.
RECORD_MS = 1_700_000_000_000


class FakeCluster:
    """Three nodes, four groups and the metadata group; topics live in ``topics``."""

    def __init__(self):
        self.topics: dict[str, list] = {}
        self.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
        self.up = {1, 2, 3}
        self.forgotten: set[int] = set()
        self.removed: list[int] = []
        self.kafka: dict[int, str] = {}  # node -> address that Kafka's clients receive
        self.failure: Exception | None = None
        self.asked: list[tuple[str, ...]] = []
        self.outcomes: dict[bytes, Exception] = {}  # value -> how its batch ends
        self.producer_options: dict = {}
        self.batch_records = 3
        self.record_bytes_max = 1 << 30  # a longer one is refused when it is handed over
        self.refused: dict[bytes, Exception] = {}  # value -> why `send` does not take it
        self.headers: dict[bytes, tuple] = {}  # value -> headers of its record
        self.consumed: dict = {}  # how the last consumer was made
        self.log_starts: dict[tuple[str, int], int] = {}
        self.consumers: list[tuple] = []  # how all of them were made
        self.open_consumers = self.open_max = 0  # that are not closed, and the most at once
        self.producers: list[FakeProducer] = []
        self.appended: list[Record] = []  # by producers, whole
        self.hidden: set[str] = set()  # topics that the node asked has not heard of yet
        self.caught_up: list[str] = []  # addresses from which the newest metadata was learnt
        self.silent: set[int] = set()  # nodes that are up and do not answer
        self.node_status: dict[int, dict] = {}  # what differs from ``NODE_STATUS``
        self.configurations: dict[int, dict] = {}  # group -> fields that differ
        self.scrubs: list[tuple] = []  # that were asked for
        self.cleaners: list[tuple] = []  # pauses and resumptions that were asked for
        self.links: dict[str, list[list[EpochRow]]] = {}  # topic -> chains
        self.switching: dict[tuple, tuple] = {}
        self.looked = 0  # times that placements were asked for
        self.published_after = 1  # looks that a switch takes
        self.replicas_of_partition: tuple = ()
        self.lag = 0  # entries that each follower lacks
        self.desired_states: dict[
            int, str
        ] = {}  # node -> what is wanted of it, if not simply alive
        self.preferred: dict[int, int] = {}  # group -> leader that a plan chose
        self.plan_id = ""  # of the plan in progress
        self.plan_scope = "all"
        self.empty: set[int] = set()  # nodes without replicas
        self.members_asked: list[tuple] = []  # changes of members that were asked for
        self.pool = PoolStatusReply(4, 4, 0, (), 64)
        self.waiting: list[Wait] = []  # that readers tell, one after the other
        self.unread: tuple[Wait, ...] = ()  # that readers leave
        self.now_ms = 0
        self.bytes: dict[tuple[str, int], int] = {}  # live bytes of partitions, -1 = unknown
        self.deleted: list[tuple] = []  # records that were to be deleted
        self.deletion_outcomes: dict[int, DeletedRecords] = {}  # partition -> what differs
        self.settings: dict[str, dict[str, str]] = {}  # topic, "" = the cluster -> its settings

    def connect(self, addresses):
        self.asked.append(tuple(addresses))
        if self.failure is not None:
            raise self.failure
        return FakeClient(self)

    def replica(self, group, node):
        """Return the answer of ``node`` to ``group_describe``."""
        leader = self.leaders[group]
        leads = node == leader
        values = dict(
            node=node, group=group, incarnation=1, role="leader" if leads else "follower", term=7,
            vote=leader, leader=leader, first_index=1, last_index=100 - self.lag * (not leads),
            durable_index=100 - self.lag * (not leads), commit=90, applied_index=90,
            leader_commit_seen=90, committed_in_term=leads, voters=(1, 2, 3), learners=(),
            outgoing=(), quarantined="", quiesced=False, transferee=0, uncommitted_bytes=50,
            log_bytes=4096, partitions=2, members=())
        values.update(self.configurations.get(group, {}))
        if leads:
            values["members"] = tuple(
                MemberProgress(member, "replicate", 100 - self.lag, 101, 90, 0,
                                        self.lag * 10)
                for member in (*values["voters"], *values["learners"]) if member != node)
        return messages.GroupDescribeReply(**values)

    def connect_over_tcp(self, addresses):
        """Check, as a real client would, that one of the addresses has a listener."""
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

    def create_topic(self, name, partitions=1, replication_factor=0, settings=()):
        if name in self._cluster.topics:
            raise wire.TopicExists(f"topic {name} exists")
        if "/" in name:
            raise wire.InvalidTopicName(f"topic name {name!r} is not acceptable")
        if replication_factor not in (0, 3):
            raise wire.InvalidRequest("the pool's replication factor is 3")
        self.alter_settings("", settings or {}, (), dry_run=True)
        self._cluster.topics[name] = [[] for _ in range(partitions)]
        self._cluster.settings[name] = dict(settings or {})

    def alter_settings(self, topic, settings, delete=(), dry_run=False):
        if topic:
            self._topic(topic)
        try:
            values = {name: registry.read_value(name, value, 3)
                      for name, value in settings.items()}
        except registry.InvalidSetting as error:
            raise wire.InvalidSetting(str(error)) from error
        if not dry_run:
            kept = self._cluster.settings.setdefault(topic, {})
            kept.update(values)
            for name in delete:
                kept.pop(name, None)

    def describe_settings(self, topic=""):
        if topic:
            self._topic(topic)
        own = self._cluster.settings.get(topic, {}) if topic else {}
        defaults = effective.Defaults(self._cluster.settings.get("", {}), 3)
        rows = []
        for setting in registry.SETTINGS.values():
            values = tuple(SettingValue(value, source.word) for value, source
                           in effective.resolve(setting, own, defaults, topic))
            rows.append(SettingRow(setting.name, *values[0], setting.effect.value,
                                   setting.type.kind.name.lower(), values))
        return rows

    def add_partitions(self, name, partitions, dry_run=False):
        has = self._topic(name)
        if partitions <= len(has):
            raise wire.InvalidPartitions(f"topic {name} has {len(has)} partitions")
        if not dry_run:
            has += [[] for _ in range(partitions - len(has))]
        return self.topic_metadata(name)

    def delete_topic(self, name):
        self._topic(name)
        del self._cluster.topics[name]

    def list_topics(self, count_max=None):
        return [messages.TopicSummary(name, bytes(16), 1, len(partitions))
                for name, partitions in self._cluster.topics.items()][:count_max]

    def describe_topic(self, name):
        rows = [SimpleNamespace(partition=number, group=1 + number % 4,
                                leader=self._cluster.leaders[1 + number % 4],
                                leader_epoch=7,
                                start_offset=self._cluster.log_starts.get((name, number), 0),
                                end_offset=len(records))
                for number, records in enumerate(self._topic(name))]
        return SimpleNamespace(name=name, partitions=rows)

    def topic_sizes(self, address, timeout_ms=0):
        sums: dict[str, list[int]] = {}
        for name in self._cluster.topics:
            for row in self.partition_sizes(name, address):
                total = sums.setdefault(name, [0, 0, 0, -1, 0])
                total[0] += max(0, row.end - row.log_start)
                if row.bytes < 0:
                    total[2] += 1
                    continue
                total[1] += row.bytes
                if row.bytes > total[4] or total[3] < 0:
                    total[3:] = row.partition, row.bytes
        return [sizes.TopicSize(name, 1, *total) for name, total in sums.items()]

    def partition_sizes(self, topic, address, timeout_ms=0):
        node = int(address[-1])
        self._fail_if_silent(node)
        return [sizes.PartitionSize(
            row.partition, row.start_offset, row.end_offset,
            self._cluster.bytes.get((topic, row.partition), 0))
            for row in self.describe_topic(topic).partitions
            if self._cluster.leaders[row.group] == node and row.end_offset]

    def cluster_status(self):
        nodes = tuple(messages.NodeSummary(
            number, f"127.0.0.1:{9100 + number}", f"127.0.0.1:{9200 + number}", f"r{number}",
            "up" if number in self._cluster.up else "down", 5, 0,
            self._cluster.kafka.get(number, ""))
            for number in (1, 2, 3) if number not in self._cluster.forgotten)
        return messages.ClusterStatusReply(bytes(range(16)), 1, nodes, 4, 3,
                                           self._cluster.leaders[0], len(self._cluster.topics),
                                           sum(map(len, self._cluster.topics.values())))

    def catch_up(self):
        self._cluster.hidden.clear()

    def list_offsets(self, name):
        return {number: OffsetRange(self._cluster.log_starts.get((name, number), 0), len(records))
                for number, records in enumerate(self._topic(name))}

    def delete_records(self, topic, before):
        ends = {number: len(records) for number, records in enumerate(self._topic(topic))}
        self._cluster.deleted.append((topic, before))
        return {number: self._cluster.deletion_outcomes.get(number) or DeletedRecords(
                    min(offset, ends[number]))
                for number, offset in before.items()}

    def offsets_at(self, name, timestamp_ms):
        return {number: self._first_at(records, timestamp_ms)
                for number, records in enumerate(self._topic(name))}

    def _first_at(self, records, timestamp_ms):
        return 0 if records and timestamp_ms <= RECORD_MS else None

    def node_status(self, address="", timeout_ms=0):
        self._cluster.caught_up.append(address)
        self._cluster.hidden.clear()
        node = int(address[-1]) if address else 1
        self._fail_if_silent(node)
        return messages.NodeStatusReply(node, {**NODE_STATUS,
                                               **self._cluster.node_status.get(node, {})})

    def group_describe(self, group, address, timeout_ms=0):
        node = int(address[-1])
        self._fail_if_silent(node)
        return self._cluster.replica(group, node)

    def plan_request(self, request):
        if isinstance(request, plans.PlanStatus):
            state = "running" if self._cluster.plan_id else "none"
            return plans.PlanStatusReply(
                self._cluster.plan_id, self._cluster.plan_scope, state, "", 0, 9,
                plans.PlanLimits(1), 0, 0, 0, 0, -1, (), (), (), "")
        assert isinstance(request, plans.PlacementFacts)
        return plans.PlacementFactsReply(
            bytes(range(16)).hex(),
            17,
            4,
            3,
            5,
            0,
            tuple(plans.DesiredState(*item) for item in self._cluster.desired_states.items()),
            (),
            tuple(self._cluster.preferred.items()),
            self._cluster.plan_id,
        )

    def _fail_if_silent(self, node):
        if node in self._cluster.silent:
            raise wire.TimedOut(f"node {node} gave no answer in time")

    def group_list(self):
        return tuple(messages.GroupSummary(group, 1, 7, leader, (1, 2, 3), ())
                     for group, leader in self._cluster.leaders.items())

    def group_members(self, group, voters=(), learners=(), index=None):
        if index is not None:
            self._cluster.members_asked.append((group, voters, learners))
        found = self._cluster.replica(group, self._cluster.leaders[group])
        return SimpleNamespace(group=group, voters=found.voters, learners=found.learners,
                               outgoing=found.outgoing, index=1, is_open=False)

    def group_transfer(self, group, to=0):
        self._cluster.leaders[group] = to or 1
        return messages.TransferLeadershipReply(to or 1, 8)

    def explain_placement(self, name):
        self._topic(name)
        self._cluster.looked += 1
        if self._cluster.looked > self._cluster.published_after:
            for row in self._cluster.switching.values():
                row[1].append(EpochRow(row[2], row[3], 100 * len(row[1])))
            self._cluster.switching = {}
        return [PlacementRow(number, 70 + number, 1 + number % 4, tuple(links), *(
            self._cluster.switching[name, number][2:] if (name, number) in self._cluster.switching
            else (0, 0))) for number, links in enumerate(self._links(name))]

    def _links(self, name):
        known = self._cluster.links.setdefault(name, [])
        for number in range(len(known), len(self._cluster.topics[name])):
            known.append([EpochRow(1, 1 + number % 4, 0)])
        return known

    def topic_pool_size(self, name):
        self._topic(name)
        return 4

    def pool_status(self):
        return self._cluster.pool

    def partition_replicas(self, incarnation, address):
        self._fail_if_silent(int(address[-1]))
        return self._cluster.replicas_of_partition

    def switch_partition(self, incarnation, epoch, to_group):
        name, number = next(iter(self._cluster.topics)), incarnation - 70
        links = self._links(name)[number]
        if epoch != links[-1].epoch + 1:
            raise wire.StaleEpoch(f"partition {incarnation} is at epoch {links[-1].epoch}")
        if to_group == links[-1].group:
            raise wire.InvalidRequest(f"partition {incarnation} is in group {to_group} already")
        self._cluster.switching[name, number] = (number, links, epoch, to_group)

    def node_list(self):
        rows = tuple(self._node(number) for number in (1, 2, 3)
                     if number not in self._cluster.removed)
        return nodes.ListNodesReply(rows, tuple(self._cluster.removed))

    def node_describe(self, number):
        if number not in (1, 2, 3):
            raise wire.UnknownNode(f"there is no node {number}")
        voter_of = () if number in self._cluster.empty else (0, 1, 2, 3, 4)
        return nodes.DescribeNodeReply(self._node(number), voter_of, (),
                                       tuple(group for group, leader
                                             in self._cluster.leaders.items() if leader == number))

    def remove_node(self, number):
        if number != 3:
            raise wire.InvalidRequest(
                f"node {number} is a member of 5 groups (0, 1, 2, 3, 4): move them first, with "
                f"`multiraft node replace {number} NEW`")
        self._cluster.removed.append(number)

    def scrub_node(self, node, address, bytes_per_second=0, timeout_ms=0):
        self._fail_if_silent(int(address[-1]))
        if 0 < bytes_per_second < 65_536:
            raise wire.LimitExceeded("a scrub reads at least 65536 bytes per second")
        self._cluster.scrubs.append((node, address, bytes_per_second))
        return nodes.ScrubNodeReply(4 << 20, bytes_per_second or 16 << 20, 2)

    def control_cleaner(self, node, address, action, bytes_per_second=0, timeout_ms=0):
        self._fail_if_silent(int(address[-1]))
        if 0 < bytes_per_second < 65_536:
            raise wire.LimitExceeded("the cleaner copies at least 65536 bytes per second")
        self._cluster.cleaners.append((node, address, action, bytes_per_second))
        return nodes.ControlCleanerReply(action == "pause", bytes_per_second or 16 << 20)

    def _node(self, number):
        row = nodes.NodeRow(number, 1 << number, 2, f"127.0.0.1:{9100 + number}",
                            f"127.0.0.1:{9200 + number}", f"r{number}", 100, "0.1.0",
                            1_700_000_000_000 if number == 1 else 0,
                            self._cluster.kafka.get(number, ""))
        led = sum(leader == number for leader in self._cluster.leaders.values())
        return nodes.NodeState(row, "up" if number in self._cluster.up else "down", 5, led)

    def producer(self, **options):
        self._cluster.producer_options = options
        self._cluster.producers.append(FakeProducer(self._cluster))
        return self._cluster.producers[-1]

    def poll(self, timeout_ms=0):
        pass

    def advance(self):
        """As if open batches had lingered: they are sent."""
        for producer in self._cluster.producers:
            producer.flush()

    def listen(self, wait_ms=None):
        """As if nothing came for so long."""
        self._cluster.now_ms += wait_ms if self._cluster.waiting and wait_ms else 0

    def topic_metadata(self, name):
        return SimpleNamespace(name=name, partitions=[
            SimpleNamespace(partition=number, group=1 + number % 4)
            for number, _records in enumerate(self._topic(name))])

    def consume(self, topic, partition=None, start="earliest", until_end=True, **settings):
        self._cluster.consumed = {"start": start, **settings}
        self._cluster.consumers.append((topic, partition, start, until_end))
        gaps: list[Gap] = []
        reset = settings.get("offset_reset", "none")
        return FakeConsumer(self._cluster, topic, partition, gaps,
                            self._all(topic, partition, start, until_end, reset, gaps))

    def _all(self, topic, partition, start, until_end, reset, gaps):
        for number, records in enumerate(self._topic(topic)):
            if partition in (None, number):
                begin = start.get(number, "earliest") if isinstance(start, dict) else start
                first = {"earliest": 0, "latest": len(records)}.get(begin, begin)
                if isinstance(begin, Timestamp):
                    found = self._first_at(records, begin.ms)
                    first = len(records) if found is None else found
                log_start = self._cluster.log_starts.get((topic, number), 0)
                if reset != "none" and isinstance(begin, int) and begin < log_start:
                    gaps.append(Gap(topic, number, begin, log_start))
                    first = {"earliest": log_start, "latest": len(records)}[reset]
                yield from self._batches(topic, number, records, first)
        if not until_end:
            raise KeyboardInterrupt  # nothing more will come: the person at the terminal leaves

    def _batches(self, topic, partition, records, first):
        for at in range(first, len(records), self._cluster.batch_records):
            part = records[at:at + self._cluster.batch_records]
            yield SimpleNamespace(
                topic=topic, partition=partition, base_offset=at, next_offset=at + len(part),
                high_watermark=len(records), records=lambda at=at, part=part: [
                SimpleNamespace(offset=at + place, timestamp_ms=RECORD_MS, key=key,
                                value=value, headers=self._cluster.headers.get(value, ()))
                for place, (key, value) in enumerate(part)])

    def _topic(self, name):
        if name not in self._cluster.topics:
            raise wire.UnknownTopic(f"there is no topic {name!r}").about(name)
        return self._cluster.topics[name]


class FakeConsumer:
    """Batches that are there at once; ``waiting`` and ``unread`` are the cluster's."""

    def __init__(self, cluster: FakeCluster, topic, partition, gaps, batches):
        self._cluster = cluster
        self._gaps = gaps
        self._batches = batches
        cluster.open_consumers += 1
        cluster.open_max = max(cluster.open_max, cluster.open_consumers)
        partitions = cluster.topics.get(topic, ())  # of an unknown topic, reading raises
        self._positions = dict.fromkeys([number for number in range(len(partitions))
                                         if partition in (None, number)], 0)
        self.unread = cluster.unread

    def __iter__(self):
        return self

    def __next__(self):
        batch = next(self._batches)
        self._positions[batch.partition] = getattr(batch, "next_offset", 0)
        return batch

    @property
    def gaps(self):
        return tuple(self._gaps)

    def position(self, partition):
        return self._positions.get(partition)

    def close(self):
        self._cluster.open_consumers -= 1

    def wait(self, timeout_ms):
        """As if so much time went by, for as long as the cluster has something to wait for."""
        self._cluster.now_ms += timeout_ms if self._cluster.waiting else 0
        return not self._cluster.waiting

    def waits(self):
        """Return the partitions that it waits for, once each."""
        return (self._cluster.waiting.pop(0),)


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
        deliveries = {}
        for index, value in enumerate(values):
            try:
                deliveries[self.send(Record(topic, value))] = None
            except MultiRaftError as error:
                error.index, error.deliveries = index, list(deliveries)
                raise
        return list(deliveries)

    def send(self, record):
        if record.value in self._cluster.refused:
            raise self._cluster.refused[record.value]
        if len(record.value or b"") > self._cluster.record_bytes_max:
            raise RecordTooLarge(f"record of {len(record.value)} bytes exceeds "
                                 f"{self._cluster.record_bytes_max}")
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
            self._cluster.appended += records
            for record in records:
                self._cluster.topics[record.topic][record.partition or 0].append(
                    (record.key, record.value))
        delivery.resolve(failures[0] if failures else
                         BatchReceipt(records[0].topic, 0, 0, len(records)))
