"""One node that leads every group, without disk and network: what retention sees and proposes."""

from __future__ import annotations

from multiraft.errors import ProposalError
from multiraft.liveness.clock_skew import ClockSkew
from multiraft.partitions.records import open_payload
from multiraft.partitions.state import PartitionStates
from multiraft.types import BatchInfo, Entry, EntryKind
from multiraft.wire.settings import SettingChange
from node.metadata.node_releases import ReleaseGate, retention_entries_fault
from node.metadata.state_machine import AlterSettings, CreateTopic, MetadataState
from node.retention.clock_entries import ClockEntries
from node.retention.retention_pass import RetentionPasses
from tests.node.metadata.test_state_machine import bootstrap, uuid

BUCKET_MS = 1_000


class World:
    """The groups of a node, its metadata, and its retention.  Entries are applied at once, unless
    ``applies`` is False."""

    def __init__(self, version="0.2.0", internal=(), shares=None):
        """``version``: release of the nodes, empty = they have not registered yet; ``shares``: a
        node whose metadata and groups are this node's as well; then this one leads
        no group yet."""
        if shares is None:
            plan = bootstrap()
            plan = plan._replace(nodes=tuple(
                node._replace(version=version, incarnation=node.incarnation if version else 0)
                for node in plan.nodes))
            self.state = MetadataState()
            self.commands = 0
            self.command(plan)
        else:
            self.state = shares.state
        self.partition_states = {} if shares is None else shares.partition_states
        self.log: dict[int, list[Entry]] = {} if shares is None else shares.log
        self.led, self.new_leaders = set(), set()
        self.lacking = {}  # group -> indexes whose records its leader still copies
        self.applies, self.refuses = True, False
        self.now_ms = 1_000_000_000
        self.skew = ClockSkew()
        self.paused = []
        gate = ReleaseGate(self, retention_entries_fault)
        self.clocks = ClockEntries(self, self.partition_states, self.skew,
                                   gate, lambda: self.now_ms)
        self.retention = RetentionPasses(
            self, self, self, self.clocks, self.skew, gate, BUCKET_MS, dict(internal),
            lambda *reported: self.paused.append(reported))
        for group in self.state.groups_of(1):
            if group and shares is None:
                self.partition_states[group] = PartitionStates(group)
                self.log[group] = []
                self.led.add(group)
        self.status = self

    # ---- metadata -------------------------------------------------------------------------------

    def command(self, command):
        self.commands += 1
        result = self.state.apply(self.commands, command)
        assert not result.code, result
        return result.value

    def topic(self, name="t", partitions=1, **settings):
        pairs = tuple((key.replace("_", "."), str(value)) for key, value in settings.items())
        return self.command(CreateTopic(name, uuid(self.commands), partitions,
                                        settings=pairs)).incarnation

    def alter(self, topic, **settings):
        found = self.state.topic_at(topic) if topic else None
        self.command(AlterSettings(
            found.name if found else "", found.id if found else b"", tuple(
                SettingChange(key.replace("_", "."), None if value is None else str(value))
                for key, value in settings.items()), None))
        self.retention.settings_altered(topic)

    # ---- consensus ------------------------------------------------------------------------------

    def is_leader(self, group):
        return group in self.led

    def has_applied_in_term(self, group):
        return group not in self.new_leaders

    def records_left(self, group):
        return self.lacking.get(group, 0)

    def led_groups(self):
        return sorted(self.led)

    def propose(self, group, kind, payload=b"", partition=0, base_offset=-1, batch=None):
        if self.refuses or group not in self.led:
            raise ProposalError("refused")
        states = self.partition_states[group]
        entry = Entry(kind, group, 1, 1, states.last_index + 1, partition, base_offset, payload,
                      batch)
        assert states.check_entry(entry) == "", states.check_entry(entry)
        states.append(entry)
        self.log[group].append(entry)
        if self.applies:
            states.apply(entry.index)
            states._check()
        return entry

    def apply(self):
        for states in self.partition_states.values():
            states.apply(states.last_index)

    def append(self, partition, count=1, size=80, producer=-1):
        """Append a batch as a client's request does; ``producer``: its id, which sends no other
        batch."""
        group = self.state.locate(partition).group
        states = self.partition_states[group]
        self.clocks.before_append(group, self.now_ms)
        if not states.epoch_of(partition):
            self.propose(group, EntryKind.PARTITION_OPEN, open_payload(1), partition)
        self.retention.appended.add(partition)
        return self.propose(group, EntryKind.DATA, bytes(size), partition,
                            states.next_offset(partition), BatchInfo(
                                count, producer, -1 if producer < 0 else 0,
                                -1 if producer < 0 else 0, 0, 0))

    def batches(self, group, partition, offset, count):
        found = [(entry.base_offset, entry.base_offset + entry.batch.count, entry.index,
                  len(entry.payload) + 7 & ~7)
                 for entry in self.log[group]
                 if entry.kind == EntryKind.DATA and entry.partition == partition]
        return [each for each in found if each[1] > offset][:count]

    def first_at(self, group, partition, timestamp_ms, from_offset, below_offset):
        """The first offset whose batch has a timestamp from that time on.  No pass may ask: the
        producers of these batches give them a timestamp of 1970."""
        for entry in self.log[group]:
            if (entry.kind == EntryKind.DATA and entry.partition == partition
                    and from_offset <= entry.base_offset < below_offset
                    and entry.batch.max_timestamp_ms >= timestamp_ms):
                return entry.base_offset
        return None

    # ---- what the tests ask ---------------------------------------------------------------------

    def run(self, after_ms=0):
        """Run a pass ``after_ms`` later; return the number of its steps."""
        self.now_ms += after_ms
        return sum(1 for _ in self.retention.steps(self.now_ms))

    def run_until(self, after_ms):
        """Run a pass every second, for ``after_ms``."""
        for _ in range(0, after_ms, BUCKET_MS):
            self.run(BUCKET_MS)

    def of(self, partition):
        return self.partition_states[self.state.locate(partition).group].applied(partition)

    def kinds(self, group):
        return [entry.kind for entry in self.log[group]]
