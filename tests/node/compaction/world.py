"""One node that leads every group: what compaction by key sees and proposes.

Replicas carry out a COMPACT when a test says so.  Then only a part of the bytes below its ``up_to``
is left, as if other records had been superseded.  The last batch of a partition is never compacted,
so ``store`` appends a small one behind the batches that a test asks for.
"""

from __future__ import annotations

from multiraft.partitions.retention_records import Compaction, parse_compact
from multiraft.types import EntryKind
from node.compaction.compaction_pass import CarriedOut, CompactionPasses
from node.metadata.node_releases import ReleaseGate, key_compaction_fault
from tests.node.retention.world import BUCKET_MS, World

#: Bytes of the batch of one record that ``store`` appends behind the others.
LAST_BYTES = 8


class CompactionWorld(World):
    """A ``World`` with a Raft start for each group, and the passes of compaction by key."""

    def __init__(self, version="0.2.0", shares=None, is_on=True):
        super().__init__(version=version, shares=shares)
        self.raft_starts: dict[int, int] = {} if shares is None else shares.raft_starts
        self.carried: dict[int, int] = {} if shares is None else shares.carried
        #: Partition -> generation that other nodes reported: the voters that are up, all members.
        self.told: dict[int, int] = {}
        self.told_by_all: dict[int, int] = {} if shares is None else shares.told_by_all
        self.lookups = 0  # of what all members reported
        self.left: dict[tuple[int, int], int] = {} if shares is None else shares.left
        self.reports = []
        self.compaction = CompactionPasses(
            self, self, self, self.clocks, self.skew, ReleaseGate(self, key_compaction_fault),
            BUCKET_MS, CarriedOut(lambda _group, partition: self.carried.get(partition, 0),
                                  lambda _group, partition: self.told.get(partition, 1 << 32),
                                  self.everywhere)
            if is_on else None, self.reports.append)

    def everywhere(self, _group, partition):
        self.lookups += 1
        return self.told_by_all.get(partition, 1 << 32)

    def topic(self, name="t", partitions=1, **settings):
        return super().topic(name, partitions, **{"cleanup_policy": "compact", **settings})

    def alter(self, topic, **settings):
        super().alter(topic, **settings)
        self.compaction.settings_altered(topic)

    # ---- the log ------------------------------------------------------------------------------

    def raft_start(self, group):
        return self.raft_starts.get(group, 1)

    def raise_start(self, group, start=None):
        """Raise the Raft start of a group, behind all that is applied, as a checkpoint allows."""
        before, states = self.raft_start(group), self.partition_states[group]
        self.raft_starts[group] = max(before, states.applied_index + 1 if start is None else start)
        passed = {entry.partition for entry in self.log[group]
                  if entry.kind == EntryKind.DATA
                  and before <= entry.index < self.raft_starts[group]}
        self.compaction.raised(group, passed)

    def store(self, partition, *counts, size=80):
        """Append batches and a last one, and have the Raft start pass them."""
        for count in counts:
            self.append(partition, count, size)
        self.append(partition, 1, LAST_BYTES)
        self.raise_start(self.group_of(partition))

    def group_of(self, partition):
        return self.state.locate(partition).group

    def batches(self, group, partition, offset, count):
        return [(base, end, index, self.left.get((group, index), size))
                for base, end, index, size in super().batches(group, partition, offset, count)]

    def carry_out(self, partition, left=0.0):
        """Have all replicas carry out the last COMPACT; ``left``: share of the bytes that stay."""
        group, last = self.group_of(partition), self.last(partition)
        for _, end, index, size in self.batches(group, partition, 0, 1 << 30):
            if end <= last.up_to:
                self.left[group, index] = int(size * left)
        self.carried[partition] = last.generation

    # ---- what the tests ask -------------------------------------------------------------------

    def compact(self, after_ms=0, times=1):
        """Run passes, each ``after_ms`` later; return the number of their steps."""
        steps = 0
        for _ in range(times):
            self.now_ms += after_ms
            steps += sum(1 for _ in self.compaction.steps(self.now_ms))
        return steps

    def last(self, partition) -> Compaction:
        return self.of(partition).compaction

    def orders(self, partition) -> list[Compaction]:
        """Every COMPACT of a partition in its group's log, oldest first."""
        return [parse_compact(entry.payload) for entry in self.log[self.group_of(partition)]
                if entry.kind == EntryKind.COMPACT and entry.partition == partition]
