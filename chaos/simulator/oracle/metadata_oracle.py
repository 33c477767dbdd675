"""Metadata state machine of the product in the simulator's group 0: commands and invariants.

Contract.  Each node applies the metadata commands of group 0 to a ``MetadataState`` of its own,
which is part of checkpoints and snapshots.  ``MetadataOracle`` applies the committed commands once,
and other parts compare with it.  The rest of the simulator numbers a partition of a topic ``FIRST +
incarnation``, so that it differs from the partitions that exist for the whole run.

Theory.  The code of ``node`` that is used here is a function of state and command
(docs/decisions/0026); the drivers of switches and plans are in
``node/replicas/partition_switch.py`` and ``node/rebalance/plan_controller.py``.  The incarnations
of a topic and the groups of its partitions are the product's own, as are the replies to clients
(``node/clients/client_port.py``).
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

from chaos.simulator.env.parameters import Parameters
from chaos.simulator.env.violations import Violation
from multiraft import core
from multiraft.codec import layout
from multiraft.wire.errors import Code
from multiraft.wire.plans import PlanLimits, PlannedMove
from multiraft.wire.settings import SettingChange
from node.metadata.commands import (
    AddPartitions,
    AlterSettings,
    ApplyPlan,
    Bootstrap,
    ControlPlan,
    CreateTopic,
    DecideSwitch,
    DeleteTopic,
    NodeRecord,
    decode_command,
    encode_command,
)
from node.metadata.result import Result
from node.metadata.state_machine import Location, MetadataState, Switch, Topic

#: Number of a topic's partition, minus its incarnation.
FIRST = 1 << 20
CLUSTER_ID = b"simulated-------"
#: Id in a command that changes settings of the cluster; the settings that hold in it.
NO_TOPIC_ID = bytes(16)
CLUSTER = 0
#: Limit of a topic's batches; clock of their timestamps.
BATCH_BYTES = "max.message.bytes"
TIMESTAMP_TYPE = "message.timestamp.type"
#: Limits of retention, and an age in milliseconds that no run reaches.
RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
RETENTION_RECORDS = "retention.records"
UNLIMITED_MS = 10 ** 12
#: Lowest first byte of a metadata command: CBOR maps begin here; plain commands are digits.
_COMMAND = 0xA0


def is_command(payload: bytes) -> bool:
    """True if an entry of group 0 is a command of the metadata state machine."""
    return payload[0] >= _COMMAND


def apply(state: MetadataState, index: int, payload: bytes) -> Result:
    """Decode the command at ``index``, apply it to the state, and return its result."""
    return state.apply(index, decode_command(payload))


def encoded(state: MetadataState) -> list | None:
    """Return a state as plain values, for ``decoded``; None = the initial state."""
    if not state.version:
        return None
    return _plain([(key, value) for key, value in state.snapshot().items()])


def decoded(data: list | None) -> MetadataState:
    """Return a new state of values that ``encoded`` returned."""
    if data is None:
        return MetadataState()
    return MetadataState.restore({key: value for key, value in data})


def _plain(value: Any) -> Any:
    """Return the value with a list for each list and tuple in it, which every codec returns
    unchanged."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value


def fingerprint(state: MetadataState) -> bytes:
    """Return a hash of a state that is equal for equal states only.  O(the state)."""
    return hashlib.blake2b(repr(encoded(state)).encode(), digest_size=16).digest()


# ---- commands ------------------------------------------------------------------------------------


def bootstrap(parameters: Parameters, voters: dict[int, tuple[int, ...]]) -> bytes:
    """Return the first command: the nodes and groups of the run."""
    nodes = tuple(NodeRecord(node, node, 0, f"n{node}:1", f"n{node}:2")
                  for node in range(1, parameters.nodes + 1))
    return encode_command(Bootstrap(
        CLUSTER_ID, nodes, parameters.groups, parameters.replication_factor, parameters.seed,
        tuple(members for _, members in sorted(voters.items()))))


def create_topic(name: str, topic_id: bytes, partitions: int) -> bytes:
    """Return the command that creates a topic, unless a topic has this id already."""
    return encode_command(CreateTopic(name, topic_id, partitions))


def add_partitions(name: str, topic_id: bytes, partitions: int, request_id: bytes) -> bytes:
    """Return the command that adds partitions to the topic of this name, if it has this id, so that
    it has so many."""
    return encode_command(AddPartitions(name, topic_id, partitions, request_id))


def delete_topic(name: str, topic_id: bytes) -> bytes:
    """Return the command that deletes the topic of this name, if it has this id."""
    return encode_command(DeleteTopic(name, topic_id))


def alter_settings(name: str, topic_id: bytes, values: dict[str, str | None]) -> bytes:
    """Return the command that sets and deletes settings of a topic; name "" and ``NO_TOPIC_ID`` =
    of the cluster."""
    return encode_command(AlterSettings(
        name, topic_id, tuple(SettingChange(*pair) for pair in values.items())))


def decide_switch(partition: int, epoch: int, to_group: int) -> bytes:
    """Return the command that switches a partition to another group, if ``epoch`` is its next one.
    """
    return encode_command(DecideSwitch(partition - FIRST, epoch, to_group))


def apply_plan(plan_id: str, scope: str, expires_ms: int, now_ms: int, limits: PlanLimits,
               moves: tuple[PlannedMove, ...]) -> bytes:
    """Return the command that applies a plan."""
    return encode_command(ApplyPlan(plan_id, CLUSTER_ID.hex(), scope, expires_ms, now_ms, limits,
                                    moves))


def control_plan(plan_id: str, action: str, value: int, now_ms: int) -> bytes:
    """Return the command of an operator that pauses, resumes, throttles (at ``value`` bytes per
    second) or cancels a plan; ``action``: one of ``wire.ACTIONS``."""
    return encode_command(ControlPlan(plan_id, action, value, "", False, now_ms))


# ---- queries -------------------------------------------------------------------------------------


def place_of(state: MetadataState, partition: int) -> Location | None:
    """Return the location where a partition of a topic takes appends by this state; None = unknown.
    """
    return state.locate(partition - FIRST)


class Extent(NamedTuple):
    """Part of a partition: its offsets from ``start`` up to ``end`` are in ``group``."""

    partition: int
    group: int
    start: int
    end: int | None  # None = the extent that takes appends


def extents_of(place: Location, partition: int) -> list[Extent]:
    """Return the extents of a partition, in order of offsets; the last one takes appends.
    O(extents)."""
    ends = [*(entry.start_offset for entry in place.epoch_history[1:]), None]
    return [Extent(partition, entry.group, entry.start_offset, end)
            for entry, end in zip(place.epoch_history, ends, strict=True)]


class LivingTopic(NamedTuple):
    """One incarnation of a topic, with the groups of its partitions."""

    topic: Topic
    partitions: tuple[tuple[int, int], ...]  # (partition, group)


def topics_of(state: MetadataState) -> list[LivingTopic]:
    """Return all topics that exist, by name.  O(partitions)."""
    found = []
    for topic in state.list_topics()[0]:
        places = tuple((FIRST + incarnation, state.locate(incarnation).group)
                       for incarnation in map(topic.incarnation_of, range(topic.partitions)))
        found.append(LivingTopic(topic, places))
    return found


def extents_in(state: MetadataState, living: list[LivingTopic]) -> dict[int, list[Extent]]:
    """Return partition -> its extents, of all partitions of these topics.  O(partitions +
    extents)."""
    return {partition: extents_of(state.locate(partition - FIRST), partition)
            for topic in living for partition, _ in topic.partitions}


def has_append_time(batch: bytes) -> bool:
    """Return True if a leader has stamped its clock into the batch."""
    at = layout.BATCH_ATTRIBUTES_AT
    return bool(int.from_bytes(batch[at:at + 2], "big") & layout.ATTRIBUTE_LOG_APPEND_TIME)


def _setting(state: MetadataState, partition: int, name: str) -> str | None:
    """Return the value of a setting that holds for a topic's partition by these metadata, the
    cluster's if the topic has none; None = neither has one."""
    topic = state.locate(partition - FIRST).topic
    for incarnation in (topic.incarnation, CLUSTER):
        value = dict(state.settings.of(incarnation).pairs).get(name)
        if value is not None:
            return value
    return None


# ---- invariants ----------------------------------------------------------------------------------


class Limited(NamedTuple):
    """Limits of retention that have ever been set, together."""

    by_age: bool = False
    by_bytes: bool = False
    records: int | None = None  # the lowest number that stays; None = no limit of records

    @property
    def is_any(self) -> bool:
        """True if there is a limit."""
        return self.by_age or self.by_bytes or self.records is not None

    def after(self, settings: dict[str, str]) -> Limited:
        """Return these limits and those of some settings."""
        records = settings.get(RETENTION_RECORDS)
        return self.with_other(Limited(
            int(settings.get(RETENTION_MS, UNLIMITED_MS)) < UNLIMITED_MS,
            RETENTION_BYTES in settings, None if records is None else int(records)))

    def with_other(self, other: Limited) -> Limited:
        """Return both limits."""
        records = [each for each in (self.records, other.records) if each is not None]
        return Limited(self.by_age or other.by_age, self.by_bytes or other.by_bytes,
                       min(records, default=None))


class MetadataOracle:
    """State after the committed commands, and the invariants of topics and partitions."""

    def __init__(self) -> None:
        self.state = MetadataState()
        self.created: dict[bytes, int] = {}  # topic id -> incarnation
        self.deleted_at: dict[int, int] = {}  # partition -> index of its deletion
        #: partition -> its groups: the first one, and the targets of decided switches
        self.groups: dict[int, tuple[int, ...]] = {}
        self.altered: set[bytes] = set()  # committed commands that change settings
        #: Incarnation of a topic, or ``CLUSTER`` -> its settings, by the commands.
        self.settings: dict[int, dict[str, str]] = {}
        self._fingerprints = {0: fingerprint(self.state)}
        #: Incarnation of a topic -> incarnations of its partitions, also after its deletion.
        self._partitions: dict[int, tuple[int, ...]] = {}
        self.names: dict[int, str] = {}  # incarnation of a topic -> its name
        #: Decided commands that add partitions -> incarnation of the topic, 0 = refused.
        self.additions: dict[bytes, int] = {}
        self._topic_of: dict[int, int] = {}  # partition -> incarnation of its topic
        self._limited: dict[int, Limited] = {}  # incarnation of a topic, or ``CLUSTER``
        self._incarnations = 0  # highest incarnation that was assigned

    def apply(self, index: int, payload: bytes) -> None:
        """Apply the next committed command.  Raises ``Violation`` if it gives an incarnation or a
        topic id twice."""
        before = self.state.topics_count
        code, value, _ = apply(self.state, index, payload)
        self._fingerprints[index] = fingerprint(self.state)
        command = decode_command(payload)
        if isinstance(command, AlterSettings):
            self._were_altered(payload, command, code == Code.OK)
        if code == Code.OK and isinstance(value, Switch):
            partition = FIRST + command.partition
            self.groups[partition] = (*self.groups[partition], value.to_group)
        if isinstance(command, AddPartitions):
            self._were_added(payload, command, value if code == Code.OK else None)
            return
        if code != Code.OK or not isinstance(value, Topic):
            return
        incarnations = tuple(map(value.incarnation_of, range(value.partitions)))
        if self.state.topics_count > before:
            self._was_created(value, incarnations)
        elif self.state.topics_count < before:
            self.deleted_at |= {FIRST + incarnation: index for incarnation in incarnations}
            self.settings.pop(value.incarnation, None)

    def _were_added(self, payload: bytes, command: AddPartitions, grown: Topic | None) -> None:
        """Record a committed addition of partitions to a topic, None = refused. Raises
        ``Violation`` unless it is the addition that was commanded, made once, of partitions that
        never existed."""
        topic = self.state.topic(command.name)
        exists = topic is not None and topic.id == command.topic_id
        known = self._partitions[topic.incarnation] if exists else ()
        repeated = exists and self.additions.get(payload) == topic.incarnation
        expected = len(known) if repeated else command.partitions
        accepted = exists and (repeated or command.partitions > len(known))
        found = () if grown is None else tuple(map(grown.incarnation_of, range(grown.partitions)))
        if accepted != (grown is not None) or accepted and (
                len(found) != expected or found[:len(known)] != known):
            raise Violation("AdditionsAreWhatWasCommanded", f"{command} gives the partitions "
                            f"{found} where {known} were")
        if not accepted:
            self.additions.setdefault(payload, 0)
            return
        for incarnation in found[len(known):]:
            if incarnation <= self._incarnations:
                raise Violation("IncarnationsAreNew", f"a partition that was added to {topic.name} "
                                f"gets incarnation {incarnation}, {self._incarnations} were given "
                                f"before")
            self._incarnations = incarnation
            self._topic_of[FIRST + incarnation] = topic.incarnation
            self.groups[FIRST + incarnation] = (self.state.locate(incarnation).group,)
        self._partitions[topic.incarnation] = found
        self.additions[payload] = topic.incarnation

    def _was_created(self, topic: Topic, incarnations: tuple[int, ...]) -> None:
        if topic.incarnation <= self._incarnations:
            raise Violation("IncarnationsAreNew", f"topic {topic.name} gets incarnation "
                            f"{topic.incarnation}, {self._incarnations} were given before")
        if topic.id in self.created:
            raise Violation("TopicsLiveOnce", f"topic {topic.name} got incarnation "
                            f"{self.created[topic.id]} and gets {topic.incarnation}")
        self._incarnations = incarnations[-1]
        self.created[topic.id] = topic.incarnation
        self._partitions[topic.incarnation] = incarnations
        self.names[topic.incarnation] = topic.name
        for incarnation in incarnations:
            self._topic_of[FIRST + incarnation] = topic.incarnation
            self.groups[FIRST + incarnation] = (self.state.locate(incarnation).group,)

    def _were_altered(self, payload: bytes, command: AlterSettings, accepted: bool) -> None:
        """Record a committed change of settings. Raises ``Violation`` if it is refused for a topic
        that exists, or the state has other settings than all commands so far give."""
        self.altered.add(payload)
        topic = self.state.topic(command.topic)
        exists = not command.topic or topic is not None and topic.id == command.topic_id
        if accepted != exists:
            raise Violation("SettingsAreWhatWasCommanded", f"{command} was "
                            f"{'accepted' if accepted else 'refused'}")
        if not accepted:
            return
        incarnation = topic.incarnation if command.topic else CLUSTER
        values = self.settings.setdefault(incarnation, {})
        for name, value in command.changes:
            values.pop(name, None)
            if value is not None:
                values[name] = value
        self._limited[incarnation] = self._limited.get(incarnation, Limited()).after(values)
        found = dict(self.state.settings.of(incarnation).pairs)
        if found != values:
            raise Violation("SettingsAreWhatWasCommanded", f"topic {incarnation} has {found}, the "
                            f"commands give {values}")

    def limited(self, by_retention: bool) -> list[tuple[str, bytes]]:
        """Return (name, id) of each topic that limits its batches, the cluster as ("",
        ``NO_TOPIC_ID``); with ``by_retention`` also of those that limit what they keep."""
        def has_limit(incarnation: int) -> bool:
            settings = self.settings.get(incarnation, {})
            return BATCH_BYTES in settings or by_retention and Limited().after(settings).is_any

        found = [("", NO_TOPIC_ID)] if has_limit(CLUSTER) else []
        return found + [(topic.name, topic.id) for topic in self.state.list_topics()[0]
                        if has_limit(topic.incarnation)]

    def limits_of(self, partition: int) -> Limited:
        """Return the limits of retention that have ever held for a partition, by the committed
        commands: those of its topic and of the cluster."""
        topic = self._topic_of.get(partition, CLUSTER)
        return self._limited.get(topic, Limited()).with_other(self._limited.get(CLUSTER, Limited()))

    def partitions_of(self, incarnation: int) -> tuple[int, ...]:
        """Return the partitions of a topic's incarnation, which must have been created, also after
        its deletion."""
        return tuple(FIRST + partition for partition in self._partitions[incarnation])

    def check(self, node: int, state: MetadataState) -> None:
        """Compare a node's state, restored, installed or final, with that of the committed commands
        up to its version.  Raises ``Violation``."""
        if self._fingerprints.get(state.version) != fingerprint(state):
            raise Violation("MetadataAreWhatWasCommanded", f"n{node} has metadata of index "
                            f"{state.version} that the commands up to there do not give")

    def accepted(self, node: int, state: MetadataState, partition: int, group: int) -> None:
        """Check that a node with these metadata may append to a partition in a group: by them it is
        not deleted, and it was placed there.  Raises ``Violation``."""
        deleted = self.deleted_at.get(partition)
        if deleted is not None and state.version >= deleted:
            raise Violation("DeletedStaysDeleted", f"n{node} appends to partition {partition}, "
                            f"which was deleted at index {deleted}; it has {state.version}")
        if group not in self.groups.get(partition, ()):
            raise Violation("LandsWhereSent", f"n{node} appends to partition {partition} in group "
                            f"{group}, it is in {self.groups.get(partition)}")

    def within_limit(self, node: int, state: MetadataState, partition: int, size: int) -> None:
        """Check a batch of ``size`` bytes that a node with these metadata appends to a partition.
        Raises ``Violation`` if it exceeds the limit of the topic, else the cluster's."""
        limit = _setting(state, partition, BATCH_BYTES)
        if limit is not None and size > int(limit):
            raise Violation("BatchesKeepTheLimit", f"n{node} appends {size} bytes to partition "
                            f"{partition}, the limit is {limit}")

    def has_timestamps(self, node: int, state: MetadataState, partition: int, batch: bytes,
                       sent_ms: int, clock_ms: int) -> None:
        """Check the timestamps of a batch as a node with these metadata stores it: with
        LogAppendTime those of its wall clock ``clock_ms``, else ``sent_ms`` as sent.  Raises
        ``Violation``."""
        appended = _setting(state, partition, TIMESTAMP_TYPE) == "LogAppendTime"
        expected = (appended, clock_ms if appended else sent_ms)
        found = (has_append_time(batch), core.batch_header(batch).max_timestamp_ms)
        if found != expected:
            raise Violation("TimestampsAreOfTheirClock", f"n{node} appends a batch to partition "
                            f"{partition} with (LogAppendTime, timestamp) {found}, expected are "
                            f"{expected}")

    def refused(self, node: int, partition: int) -> None:
        """Check a node's definite reply that a partition does not exist.  Raises ``Violation``
        unless its deletion is committed."""
        if partition not in self.deleted_at:
            raise Violation("CreatedIsFound", f"n{node} says that there is no partition "
                            f"{partition}, which was created and not deleted")
