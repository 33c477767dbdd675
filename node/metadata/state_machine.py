"""The metadata state machine: nodes, topics, their settings, placement exceptions, producer ids,
sinks.

Contract.  ``apply(index, command)`` is called for every METADATA entry of group 0 in order, on
every replica, and is a function of the state and the command: no clock, no randomness, no I/O.  An
error of the client is a ``Result`` with a code, never an exception, so that all replicas agree on
it. ``version`` is the index of the last command applied; replies carry it, and a node whose version
is lower waits.

Invariants.  Incarnations come from one counter and are never used twice.  The partitions that a
topic is created with have consecutive incarnations, the first of which is the topic's own; so have
those that one command adds to it.  The counts per group are updated at each change; no command
walks all topics.  Group 0 holds no partitions.

Theory.  A partition without a stored history is in the group that ``placement.default_group``
computes for the pool size at its creation, at epoch 1 from offset 0.  Only exceptions are
stored (``placement_table.py``), so a topic costs one tuple, two map entries and no object per
partition.  Topics are tuples of plain values, which the garbage collector stops visiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sortedcontainers import SortedDict

from multiraft.codec import shapes
from multiraft.core import default_groups
from multiraft.errors import CodecError
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.errors import Code
from multiraft.wire.sinks import (
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    VoidTransactions,
)
from node.metadata import placement_table, reserved_tables
from node.metadata.added_partitions import AddedPartitions, restored
from node.metadata.commands import (
    PARTITIONS_PER_TOPIC_MAX,
    AddPartitions,
    AllocateProducerIds,
    AlterSettings,
    ApplyPlan,
    Bootstrap,
    BumpProducerEpoch,
    Command,
    ControlPlan,
    CreateTopic,
    DecideSwitch,
    DeleteTopic,
    GrowPool,
    InvalidCommand,
    NodeRecord,
    OpenPool,
    PublishSwitch,
    RecordMembers,
    RecoverGroup,
    RegisterNode,
    RemoveNode,
    SetNodeState,
    StepMove,
    TrimEpochHistory,
    decode_command,
    encode_command,
    plan_bootstrap,
)
from node.metadata.node_table import NodeTable, bootstrap_fault
from node.metadata.placement_table import (
    FIRST_EPOCH,
    EpochEntry,
    EpochHistory,
    PlacementTable,
    Switch,
)
from node.metadata.plan_table import PlanTable
from node.metadata.producer_table import ProducerTable
from node.metadata.result import Result, over, refused
from node.metadata.settings_table import CLUSTER, SettingsTable
from node.metadata.topics import Location, Run, Topic, topic_name_fault
from node.metadata.transaction_table import TransactionTable
from placement import assign

__all__ = [
    "AddPartitions",
    "AllocateProducerIds",
    "AlterSettings",
    "ApplyPlan",
    "Bootstrap",
    "BumpProducerEpoch",
    "EpochEntry",
    "Command",
    "ControlPlan",
    "CreateTopic",
    "DecideSwitch",
    "DeleteTopic",
    "GrowPool",
    "InvalidCommand",
    "Location",
    "MetadataState",
    "NodeRecord",
    "OpenPool",
    "PublishSwitch",
    "RecordMembers",
    "RecoverGroup",
    "RegisterNode",
    "RemoveNode",
    "Result",
    "SetNodeState",
    "StepMove",
    "Switch",
    "Topic",
    "TrimEpochHistory",
    "decode_command",
    "encode_command",
    "plan_bootstrap",
    "topic_name_fault",
]

#: Added after version 1: removed nodes and recorded members; after 2: switches; after 3: plans and
#: states of nodes; after 4: growth of the pool (every group was one of the pool); after 5: times of
#: moves; after 6: sinks; after 7: runs that are void without having been opened; after 8:
#: settings, reserved tables, and addresses for Kafka's clients, of nodes that have one.  All are
#: read.
SNAPSHOT_VERSION = 9
SNAPSHOT_VERSIONS_READ = (1, 2, 3, 4, 5, 6, 7, 8, 9)

#: Topics of a cluster.  The design target is a million; at about 600 bytes each this limit stays
#: near 1 GiB.
TOPICS_MAX = 1 << 21

#: Partitions of a cluster, for the same reason: each may take state in its group's replicas.
PARTITIONS_MAX = 1 << 22

#: Incarnation of the groups that the bootstrap creates.
FIRST_GROUP_INCARNATION = 1

_make_epoch_entry = EpochEntry._make
_PAIR = (shapes.UINT, shapes.UINT)
#: Shape of a snapshot, without the nodes and the members of groups.
_SHAPE = {"index": shapes.UINT, "cluster_id": shapes.BYTES, "pool_size": shapes.UINT,
          "replication_factor": shapes.UINT, "hash_seed": shapes.UINT,
          "group_counts": [shapes.UINT], "next_incarnation": shapes.UINT,
          "next_producer_id": shapes.UINT,
          "topics": [(shapes.TEXT, shapes.BYTES, shapes.UINT, shapes.UINT, shapes.UINT)],
          "producer_epochs": [_PAIR], "recovered": [(shapes.UINT, _PAIR)]}



class MetadataState:
    """One replica's copy of the cluster's metadata.

    ``cluster_id`` is empty until the bootstrap is applied; until then other commands are refused.
    """

    __slots__ = ("version", "cluster_id", "pool_size", "replication_factor", "hash_seed",
                 "partitions_count", "table", "placed", "plans", "sinks", "settings",
                 "_group_counts", "producers", "_next_incarnation", "_topics", "_by_incarnation",
                 "_by_id", "_recovered", "_added")

    def __init__(self) -> None:
        self.version = 0
        self.cluster_id = b""
        self.pool_size = 0
        self.replication_factor = 0
        self.hash_seed = 0
        self.partitions_count = 0
        self.table = NodeTable()  # nodes and members of groups; changed by commands only
        # partitions outside of the group of their hash, and switches; likewise
        self.placed = PlacementTable()
        self.plans = PlanTable()  # the plan under way; likewise
        self.sinks = TransactionTable()  # sinks and their transactions; likewise
        self.settings = SettingsTable()  # of topics, and defaults of the cluster; likewise
        self.producers = ProducerTable()  # producer ids and epochs; likewise
        self._group_counts: list[int] = []
        self._next_incarnation = 1
        self._topics: SortedDict[str, Topic] = SortedDict()
        #: The same topics by their own incarnation, which is that of their first partition.
        self._by_incarnation: SortedDict[int, Topic] = SortedDict()
        self._by_id: dict[bytes, Topic] = {}  # the same topics
        self._added = AddedPartitions()  # where partitions are that were added to topics
        #: Group -> (incarnation, node that it was recovered from), after forced recoveries.
        self._recovered: dict[int, tuple[int, int]] = {}

    # ---- commands -------------------------------------------------------------------------------

    def apply(self, index: int, command: Command) -> Result:
        """Apply the command at Raft index ``index``, and return its result, a refusal included.
        Before the bootstrap all other commands are refused. O(log topics + partitions of the
        topic)."""
        assert index > self.version, f"command {index} after {self.version}"
        self.version = index
        if not self.cluster_id and type(command) is not Bootstrap:
            return refused(Code.INVALID_REQUEST, "the cluster is not bootstrapped")
        return _APPLY[type(command)](self, command)

    def _bootstrap(self, command: Bootstrap) -> Result:
        if self.cluster_id:
            return refused(Code.INVALID_REQUEST, "the cluster is bootstrapped already")
        fault = bootstrap_fault(command)
        if fault:
            return refused(Code.INVALID_REQUEST, fault)
        settings = _sorted(command.settings)
        refusal = self.settings.fault(CLUSTER, settings)
        if refusal is not None:
            return refusal
        self.cluster_id = command.cluster_id
        self.pool_size = command.pool_size
        self.replication_factor = command.replication_factor
        self.hash_seed = command.hash_seed
        self.table.bootstrap(self.version, command.nodes, command.replicas)
        self._group_counts = [0] * (command.pool_size + 1)
        self.settings.put(self.version, CLUSTER, settings)
        return Result(Code.OK)

    def _grow_pool(self, command: GrowPool) -> Result:
        return self.table.grow(command, self.pool_size, self.replication_factor)

    def _open_pool(self, command: OpenPool) -> Result:
        size = command.pool_size
        if size > self.pool_size and size != self.last_group:
            return refused(Code.INVALID_REQUEST, f"the pool does not grow to {size} groups")
        self._group_counts += [0] * (size - self.pool_size)
        self.pool_size = max(size, self.pool_size)  # proposed twice: it stays
        return Result(Code.OK)

    def _register_node(self, command: RegisterNode) -> Result:
        return self.table.register(self.version, command)

    def _remove_node(self, command: RemoveNode) -> Result:
        result = self.table.remove(self.version, command)
        if result.code == Code.OK:
            self.plans.forget_node(command.node)
        return result

    def _set_node_state(self, command: SetNodeState) -> Result:
        return self.table.set_state(command)

    def _apply_plan(self, command: ApplyPlan) -> Result:
        return self.plans.apply(command, self.cluster_id.hex())

    def _control_plan(self, command: ControlPlan) -> Result:
        return self.plans.control(command)

    def _step_move(self, command: StepMove) -> Result:
        return self.plans.step(command)

    def _create_topic(self, command: CreateTopic) -> Result:
        known = self._topics.get(command.name)
        if known is not None and known.id == command.topic_id:
            return Result(Code.OK, known)  # proposed twice
        refusal = self._create_refusal(command, known)
        if refusal is not None:
            return refusal
        topic = Topic(command.name, command.topic_id, self._next_incarnation, command.partitions,
                      self.pool_size)
        self._next_incarnation += topic.partitions
        self._put_topic(topic)
        self._place(topic.runs()[0])
        self.settings.put(self.version, topic.incarnation, _sorted(command.settings))
        return Result(Code.OK, topic)

    def _create_refusal(self, command: CreateTopic, known: Topic | None) -> Result | None:
        fault = topic_name_fault(command.name)
        if fault:
            return refused(Code.INVALID_TOPIC_NAME, fault)
        if known is not None:
            return refused(Code.TOPIC_EXISTS, f"topic {command.name} exists")
        if command.partitions < 1:
            return refused(Code.INVALID_REQUEST, "a topic has at least one partition")
        if command.partitions > PARTITIONS_PER_TOPIC_MAX:
            return over("partitions of a topic", PARTITIONS_PER_TOPIC_MAX, command.partitions)
        if len(self._topics) >= TOPICS_MAX:
            return over("topics", TOPICS_MAX, len(self._topics) + 1)
        return (self._too_many(command.partitions)
                or self.settings.fault(self._next_incarnation, _sorted(command.settings)))

    def _too_many(self, added: int) -> Result | None:
        partitions = self.partitions_count + added
        if partitions > PARTITIONS_MAX:
            return over("partitions of the cluster", PARTITIONS_MAX, partitions)
        return None

    def _put_topic(self, topic: Topic) -> None:
        """Add a topic, or replace it by one with more partitions."""
        self._topics[topic.name] = topic
        self._by_incarnation[topic.incarnation] = topic
        self._by_id[topic.id] = topic

    def _place(self, run: Run) -> None:
        """Count new partitions in their groups: those of the hash, or others where the hash's are
        full. Record the exceptions.

        After a growth of the pool old groups are full, and many partitions differ. When half of the
        table, which is reserved for plans, would be needed, all partitions follow the hash."""
        incarnations = range(run.incarnation, run.incarnation + run.count)
        hashed = default_groups(run.incarnation, run.count, run.pool_size, self.hash_seed)
        groups, exceptions = assign(incarnations, self._group_counts, self.partitions_count,
                                    self.hash_seed, hashed)
        if len(exceptions) > self.placed.room - placement_table.EXCEPTIONS_MAX // 2:
            groups, exceptions = tuple(hashed), ()
        for incarnation, group in exceptions:
            self.placed.epoch_histories[incarnation] = (EpochEntry(FIRST_EPOCH, group, 0),)
        for group in groups:
            self._group_counts[group] += 1
        self.partitions_count += run.count

    def _add_partitions(self, command: AddPartitions) -> Result:
        topic = self._topics.get(command.name)
        if topic is None or topic.id != command.topic_id:
            return _no_topic(command.name, command.topic_id)
        if any(addition.request_id == command.request_id for addition in topic.added):
            return Result(Code.OK, topic)  # proposed twice
        count = command.partitions - topic.partitions
        if count < 1:
            return refused(Code.INVALID_PARTITIONS, f"topic {topic.name} has {topic.partitions} "
                           f"partitions: {command.partitions} would not be more, and none can be "
                           f"taken away", value=topic.partitions)
        if command.partitions > PARTITIONS_PER_TOPIC_MAX:
            return over("partitions of a topic", PARTITIONS_PER_TOPIC_MAX, command.partitions)
        refusal = self._too_many(count)
        if refusal is not None:
            return refusal
        topic = topic.with_added(count, self._next_incarnation, self.pool_size, command.request_id)
        self._next_incarnation += count
        self._put_topic(topic)
        self._added.put(topic)
        self._place(topic.runs()[-1])
        return Result(Code.OK, topic)

    def _delete_topic(self, command: DeleteTopic) -> Result:
        topic = self._topics.get(command.name)
        if topic is None or topic.id != command.topic_id:
            return _no_topic(command.name, command.topic_id)
        for run in topic.runs():
            entries = self.last_epoch_entries(topic, range(run.number, run.number + run.count))
            for incarnation, entry in enumerate(entries, run.incarnation):
                self._group_counts[entry.group] -= 1
                self.placed.forget(incarnation)
                self.plans.forget_partition(incarnation)
        self._added.forget(topic)
        del self._topics[topic.name]
        del self._by_incarnation[topic.incarnation]
        self._by_id.pop(topic.id, None)
        self.settings.forget(topic.incarnation)
        self.partitions_count -= topic.partitions
        return Result(Code.OK, topic)

    def _alter_settings(self, command: AlterSettings) -> Result:
        incarnation = CLUSTER
        if command.topic:
            topic = self._topics.get(command.topic)
            if topic is None or topic.id != command.topic_id:
                return _no_topic(command.topic, command.topic_id)
            incarnation = topic.incarnation
        return self.settings.alter(self.version, incarnation, command.changes, command.expected)

    def _decide_switch(self, command: DecideSwitch) -> Result:
        location = self.locate(command.partition)
        if location is None:
            return _no_partition(command.partition)
        there = (self._group_counts[command.to_group]
                 if command.to_group < len(self._group_counts) else 0)
        return self.placed.decide(command, location.epoch_history, self.pool_size, there)

    def _publish_switch(self, command: PublishSwitch) -> Result:
        location = self.locate(command.partition)
        if location is None:
            return _no_partition(command.partition)
        result = self.placed.publish(command, location.epoch_history)
        if result.value is not None:
            self._group_counts[result.value.group] -= 1
            self._group_counts[self.placed.epoch_histories[command.partition][-1].group] += 1
        return result

    def _trim_epoch_history(self, command: TrimEpochHistory) -> Result:
        location = self.locate(command.partition)
        if location is None:
            return _no_partition(command.partition)
        return self.placed.trim(command, location.epoch_history)

    def _recover_group(self, command: RecoverGroup) -> Result:
        group, survivor, incarnation = command
        if not 0 < group <= self.last_group:
            return refused(Code.INVALID_REQUEST, f"there is no group {group} to recover")
        if self.node(survivor) is None:
            return refused(Code.INVALID_REQUEST, f"there is no node {survivor}")
        if self._recovered.get(group) == (incarnation, survivor):
            return Result(Code.OK, incarnation)  # proposed twice
        present = self.recovered(group)[0]
        if incarnation != present + 1:
            return refused(Code.INVALID_REQUEST, f"group {group} is in incarnation {present}: the "
                           f"next one is {present + 1}, not {incarnation}")
        self._recovered[group] = (incarnation, survivor)
        return Result(Code.OK, incarnation)

    def recovered(self, group: int) -> tuple[int, int]:
        """Return (present incarnation of a group, node that it was recovered from, 0 = it was never
        recovered by force)."""
        return self._recovered.get(group, (FIRST_GROUP_INCARNATION, 0))

    @property
    def recoveries(self) -> int:
        """A number that grows with each forced recovery."""
        return sum(incarnation for incarnation, _ in self._recovered.values())

    def recovered_groups(self) -> tuple[tuple[int, tuple[int, int]], ...]:
        """Return (group, (incarnation, survivor)) of all groups that were ever recovered by force.
        """
        return tuple(self._recovered.items())

    # ---- questions ------------------------------------------------------------------------------

    @property
    def last_group(self) -> int:
        """The highest group number, -1 before the bootstrap.  Groups above ``pool_size`` are new:
        the pool is growing, and topics do not use them yet."""
        return len(self.table.replicas) - 1

    @property
    def next_incarnation(self) -> int:
        """Incarnation of the next partition that is created: no lower one is given again."""
        return self._next_incarnation

    @property
    def topics_count(self) -> int:
        return len(self._topics)

    @property
    def exceptions_count(self) -> int:
        """Number of partitions outside of the group of their hash; at most ``EXCEPTIONS_MAX``."""
        return len(self.placed.epoch_histories)

    def topic(self, name: str) -> Topic | None:
        """Return the existing topic of that name, or None.  O(1)."""
        return self._topics.get(name)

    def topic_of_id(self, topic_id: bytes) -> Topic | None:
        """Return the existing topic with that id, or None.  O(1)."""
        return self._by_id.get(topic_id)

    def topic_at(self, incarnation: int) -> Topic | None:
        """Return the existing topic with that incarnation, or None.  O(1)."""
        return self._by_incarnation.get(incarnation)

    def list_topics(self, after: str = "", count_max: int = 1000) -> tuple[list[Topic], bool]:
        """Return at most ``count_max`` topics with names after ``after`` in order, and True if
        there are more. O(log topics + count)."""
        names = self._topics.irange(after, inclusive=(False, True))
        found = [self._topics[name] for name, _ in zip(names, range(count_max + 1), strict=False)]
        return found[:count_max], len(found) > count_max

    def locate(self, incarnation: int) -> Location | None:
        """Return topic, group, epoch history and pending switch of a partition; None = no such
        partition, or it was deleted. O(1) for a topic's first partition, O(log topics) for the
        others."""
        topic, number = self._by_incarnation.get(incarnation), 0
        if topic is None:
            found = self._owner(incarnation)
            if found is None:
                return None
            topic, number = found
        epoch_history = self.epoch_history(topic, incarnation)
        entry = epoch_history[-1]
        return Location(topic, number, entry.group, entry.epoch,
                        entry.start_offset, epoch_history, self.placed.switches.get(incarnation),
                        self.settings.batch_bytes_max(topic.incarnation, topic.name),
                        self.settings.has_append_time(topic.incarnation),
                        self.settings.is_compacted(topic.incarnation, topic.name))

    def _owner(self, incarnation: int) -> tuple[Topic, int] | None:
        """Return the topic of a partition, and its number; None = there is none with that
        incarnation.  O(log topics + log additions)."""
        place = self._by_incarnation.bisect_right(incarnation) - 1
        topics = [self._by_incarnation.peekitem(place)[1]] if place >= 0 else []
        if self._added:
            topics.append(self._by_incarnation.get(self._added.owner(incarnation)))
        for topic in topics:
            number = topic.number_of(incarnation) if topic is not None else None
            if number is not None:
                return topic, number
        return None

    def last_epoch_entries(self, topic: Topic, partitions: range) -> list[EpochEntry]:
        """Return the last entry of the epoch history of each of these partitions, in order: the
        group that takes its appends. O(partitions log pool + additions of the topic)."""
        entries: list[EpochEntry] = []
        for run in topic.runs(partitions):
            entries += [_make_epoch_entry((FIRST_EPOCH, group, 0, 0)) for group in default_groups(
                run.incarnation, run.count, run.pool_size, self.hash_seed)]
            if self.placed.epoch_histories:
                incarnations = range(run.incarnation, run.incarnation + run.count)
                for at, incarnation in enumerate(incarnations, len(entries) - run.count):
                    epoch_history = self.placed.epoch_histories.get(incarnation)
                    if epoch_history is not None:
                        entries[at] = epoch_history[-1]
        return entries

    def epoch_history(self, topic: Topic, incarnation: int) -> EpochHistory:
        """Return the partition's epoch history, oldest entry first; never empty.  O(log pool)."""
        epoch_history = self.placed.epoch_histories.get(incarnation)
        if epoch_history is None:
            group, = default_groups(incarnation, 1, topic.pool_size_of(incarnation),
                                    self.hash_seed)
            return (EpochEntry(FIRST_EPOCH, group, 0),)
        return epoch_history

    def nodes(self) -> tuple[NodeRecord, ...]:
        """All nodes by id."""
        return tuple(node for _, node in sorted(self.table.nodes.items()))

    def node(self, node_id: int) -> NodeRecord | None:
        return self.table.nodes.get(node_id)

    def group_partitions(self, group: int) -> int:
        """Return the number of partitions whose appends go to ``group``; it must exist.  O(1)."""
        return self._group_counts[group]

    def initial_configuration(self, group: int) -> Configuration:
        """Return the members of a group at its creation.  Every node has a replica of the metadata
        group."""
        return self.table.initial(group)

    def configuration(self, group: int) -> Configuration:
        """Return the members of a group as its leader recorded them last."""
        return self.table.configuration(group)

    def metadata_members(self) -> Configuration:
        """Return the recorded members of the metadata group; none before the bootstrap."""
        return self.configuration(METADATA_GROUP) if self.pool_size else Configuration(())

    def groups_of(self, node_id: int) -> tuple[int, ...]:
        """Return the groups that the node is a member of, as recorded.  O(groups)."""
        return self.table.groups_of(node_id)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the state as values that CBOR can encode.  O(topics), but copies only references.
        """
        return {
            "version": SNAPSHOT_VERSION, "index": self.version, "cluster_id": self.cluster_id,
            "pool_size": self.pool_size, "replication_factor": self.replication_factor,
            "hash_seed": self.hash_seed, **self.table.snapshot(),
            "group_counts": list(self._group_counts),
            "next_incarnation": self._next_incarnation,
            "topics": list(dict.values(self._by_incarnation)),  # in order of creation
            **self.placed.snapshot(),
            **self.producers.snapshot(),
            "recovered": list(self._recovered.items()),
            "plans": self.plans.snapshot(),
            **self.sinks.snapshot(),
            **self.settings.snapshot(),
            **self._added.snapshot(self._by_incarnation),
            **reserved_tables.snapshot(),
        }

    @classmethod
    def restore(cls, snapshot: dict) -> MetadataState:
        """Return the state of a snapshot.  Raises ``CodecError`` when the snapshot is malformed."""
        try:
            if snapshot["version"] not in SNAPSHOT_VERSIONS_READ:
                raise CodecError(f"metadata of version {snapshot['version']}, known are "
                                 f"{SNAPSHOT_VERSIONS_READ}")
            state = cls()
            state._fill(snapshot)
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"malformed metadata: {error!r}") from error
        return state

    def _fill(self, snapshot: dict) -> None:
        shapes.check({"recovered": (), **snapshot}, _SHAPE, "metadata")
        self.version = snapshot["index"]
        self.cluster_id = snapshot["cluster_id"]
        self.pool_size = snapshot["pool_size"]
        self.replication_factor = snapshot["replication_factor"]
        self.hash_seed = snapshot["hash_seed"]
        self.table.fill(snapshot)
        self._group_counts = list(snapshot["group_counts"])
        self._next_incarnation = snapshot["next_incarnation"]
        topics = list(map(Topic._make, snapshot["topics"]))
        if snapshot["version"] > 8:
            topics = restored(snapshot, topics)
        self._topics = SortedDict((topic.name, topic) for topic in topics)
        self._by_incarnation = SortedDict((topic.incarnation, topic) for topic in topics)
        self._by_id = {topic.id: topic for topic in topics}
        self.partitions_count = sum(topic.partitions for topic in topics)
        for topic in topics:
            if topic.added:
                self._added.put(topic)
        self.placed.fill(snapshot)
        if snapshot["version"] > 3:
            self.plans.fill(snapshot["plans"])
        if snapshot["version"] > 6:
            self.sinks.fill(snapshot)
        if snapshot["version"] > 8:
            self.settings.fill(snapshot)
            reserved_tables.check(snapshot)
        if snapshot["version"] < 5 and self.last_group > self.pool_size:
            raise CodecError(f"metadata of version {snapshot['version']} with a pool of "
                             f"{self.pool_size} groups and replicas of {self.last_group}")
        self.producers.fill(snapshot["next_producer_id"], snapshot["producer_epochs"])
        self._recovered = {group: tuple(row) for group, row in snapshot.get("recovered", ())}

    def _check(self) -> None:
        """Assert every invariant of the state and its tables. O(partitions); for tests and the
        simulator."""
        counts = [0] * len(self._group_counts)
        chained, switched, end = 0, 0, 1
        runs = [(run, topic) for topic in self._by_incarnation.values() for run in topic.runs()]
        for run, topic in sorted(runs, key=lambda each: each[0].incarnation):
            assert run.incarnation >= end, f"{topic} overlaps the one before"
            end = run.incarnation + run.count
            for number, incarnation in enumerate(range(run.incarnation, end), run.number):
                assert topic.incarnation_of(number) == incarnation
                location = self.locate(incarnation)
                assert location is not None and location[:2] == (topic, number)
                counts[location.group] += 1
                chained += incarnation in self.placed.epoch_histories
                switched += incarnation in self.placed.switches
        for first, topic in self._by_incarnation.items():
            assert first == topic.incarnation and topic.pool_size <= self.pool_size
            assert self._topics[topic.name] is topic
            assert self._by_id[topic.id] is topic
            assert sum(run.count for run in topic.runs()) == topic.partitions
        assert len(self._added) == sum(len(topic.added) for topic in self._by_incarnation.values())
        assert end <= self._next_incarnation
        assert (len(self._topics) == len(self._by_incarnation) == len(self._by_id)
                <= TOPICS_MAX)
        assert counts == self._group_counts, f"{counts} != {self._group_counts}"
        assert self.partitions_count == sum(counts) <= PARTITIONS_MAX
        assert not counts or counts[METADATA_GROUP] == 0, "the metadata group holds no partitions"
        assert chained == len(self.placed.epoch_histories), "an epoch history without a partition"
        assert switched == len(self.placed.switches), "a switch without a partition"
        self.placed._check()
        self.plans._check()
        self.sinks._check()
        self.settings._check({*self._by_incarnation})
        self.producers._check()
        self.table._check()
        assert self.pool_size == max(0, len(counts) - 1) <= max(0, self.last_group)


def _sorted(settings: tuple[tuple[str, str], ...] | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(settings or ()))


def _no_topic(name: str, topic_id: bytes) -> Result:
    return refused(Code.UNKNOWN_TOPIC, f"no topic {name!r:.80} with id {topic_id.hex()}")


def _no_partition(incarnation: int) -> Result:
    return refused(Code.UNKNOWN_PARTITION, f"no partition has the incarnation {incarnation}")


_APPLY: dict[type, Callable[[MetadataState, Any], Result]] = {
    Bootstrap: MetadataState._bootstrap,
    RegisterNode: MetadataState._register_node,
    RemoveNode: MetadataState._remove_node,
    RecordMembers: lambda state, command: state.table.record(command),
    CreateTopic: MetadataState._create_topic,
    DeleteTopic: MetadataState._delete_topic,
    AddPartitions: MetadataState._add_partitions,
    AllocateProducerIds: lambda state, command: state.producers.allocate(command),
    BumpProducerEpoch: lambda state, command: state.producers.bump(command),
    RecoverGroup: MetadataState._recover_group,
    GrowPool: MetadataState._grow_pool,
    OpenPool: MetadataState._open_pool,
    DecideSwitch: MetadataState._decide_switch,
    PublishSwitch: MetadataState._publish_switch,
    TrimEpochHistory: MetadataState._trim_epoch_history,
    SetNodeState: MetadataState._set_node_state,
    ApplyPlan: MetadataState._apply_plan,
    ControlPlan: MetadataState._control_plan,
    StepMove: MetadataState._step_move,
    AlterSettings: MetadataState._alter_settings,
    **dict.fromkeys((BeginTransaction, CommitTransaction, AbortTransaction, VoidTransactions),
                    lambda state, command: state.sinks.apply(command)),
}
