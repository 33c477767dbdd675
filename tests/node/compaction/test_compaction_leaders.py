"""Leaders that follow each other, with clocks that are set wrong, Raft starts of their own and
settings that change.

The passes and clocks are those of the node.  The model knows when each batch was really appended
and each COMPACT carried out by all members, and has to explain each COMPACT that is proposed.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from multiraft.liveness.clock_skew import CLOCK_SKEW_MAX_MS
from multiraft.partitions.retention_records import parse_compact
from multiraft.types import EntryKind
from node.compaction.compaction_policy import rules_of
from tests.node.compaction.world import CompactionWorld
from tests.node.retention.world import BUCKET_MS

NODES = 3
TOPICS = 3
STEPS = 700
SEEDS = 24
SECOND = 1_000
HOUR = 3_600 * SECOND
#: Error of an age: the clock that is in the log and the one that decides may each be so wrong
#: without being far.
TOLERANCE_MS = 2 * CLOCK_SKEW_MAX_MS


class Leader(CompactionWorld):
    """One node; the model explains what it proposes."""

    def __init__(self, model, shares=None):
        super().__init__(shares=shares)
        self.raft_starts = {}  # of this node
        self.model = model
        self.shift_ms = 0

    def propose(self, group, kind, payload=b"", partition=0, base_offset=-1, batch=None):
        if kind == EntryKind.COMPACT:
            self.model.explain(self, group, partition, parse_compact(payload))
        entry = super().propose(group, kind, payload, partition, base_offset, batch)
        if kind == EntryKind.DATA:
            self.model.appended_ms[group, entry.index] = self.model.now_ms
        return entry


class Model:
    """The cluster: its nodes, the real time, and what really happened when."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000_000
        self.appended_ms = {}
        self.carried_up_to = {}  # partition -> ``up_to`` of the last one that was carried out
        self.told_ms = {}  # (partition, up_to) -> when all members had told that, first
        self.counts = Counter()
        first = Leader(self)
        self.first = first
        self.nodes = [first, *(Leader(self, first) for _ in range(NODES - 1))]
        self.topics = [first.topic(f"t{each}", 2) for each in range(TOPICS)]
        self.partitions = [topic + each for topic in self.topics for each in range(2)]
        self.first.told_by_all.update(dict.fromkeys(self.partitions, 0))
        self.pass_time(SECOND)

    # ---- the world ------------------------------------------------------------------------------

    def pass_time(self, time_ms):
        self.now_ms += time_ms
        for node in self.nodes:
            node.now_ms = self.now_ms + node.shift_ms

    def set_clock(self, node, shift_ms):
        """Set a node's clock; at most one is far, because a majority of wrong clocks is right."""
        if any(abs(each.shift_ms) > CLOCK_SKEW_MAX_MS for each in self.nodes if each is not node):
            shift_ms %= CLOCK_SKEW_MAX_MS // 2
        node.shift_ms = shift_ms
        self.pass_time(0)
        for each in self.nodes:
            for other in self.nodes:
                if other is not each:
                    each.skew.hear(self.nodes.index(other), other.shift_ms - each.shift_ms)
            each.skew.compare()

    def set_applies(self, applies):
        """Have entries applied at once, or only at the next change."""
        for node in self.nodes:
            node.applies = applies
        if applies:
            self.first.apply()

    def move_leader(self, group, to):
        for node in self.nodes:
            node.led.discard(group)
        to.led.add(group)
        to.retention.lead(group)
        to.compaction.lead(group)

    def leader_of(self, partition):
        group = self.first.state.locate(partition).group
        return next(node for node in self.nodes if group in node.led)

    def alter(self, topic, **settings):
        self.first.alter(topic, **settings)
        for node in self.nodes[1:]:
            node.compaction.settings_altered(topic)

    def carry_out(self, partition):
        state = self.first.of(partition)
        if state is not None and state.compaction.generation > self.first.carried.get(partition, 0):
            self.first.carry_out(partition, self.rng.random())
            self.carried_up_to[partition] = state.compaction.up_to

    def tell(self, partition):
        """Have all members tell what they carried out, voters that were down among them."""
        self.first.told_by_all[partition] = self.first.carried.get(partition, 0)
        if partition in self.carried_up_to:
            self.told_ms.setdefault((partition, self.carried_up_to[partition]), self.now_ms)

    def last_batch(self, partition):
        """Return the first offset of the last batch."""
        group, state = self.first.group_of(partition), self.first.of(partition)
        return next(base for base, end, _, _ in self.first.batches(group, partition, 0, 1 << 30)
                    if end == state.next_offset)

    # ---- the oracle -----------------------------------------------------------------------------

    def explain(self, node, group, partition, found):
        """Fail unless the COMPACT follows the last one, and may name each batch and tombstone."""
        states = node.partition_states[group]
        state, place = states.applied(partition), node.state.locate(partition)
        last = states.tail_state(partition).compaction
        assert last == state.compaction, "one is on its way"
        assert node.carried.get(partition, 0) >= last.generation, "one is not carried out"
        assert found.generation == last.generation + 1
        assert last.up_to <= found.up_to <= self.last_batch(partition), f"{found} after {state}"
        assert last.tombstones_below <= found.tombstones_below <= last.up_to
        rules = rules_of(place.topic.name, node.state.settings.of(place.topic.incarnation).pairs,
                         ())
        assert rules is not None, f"{found} of a topic that is not compacted"
        ends = {last.up_to}
        for _, end, index, _ in node.batches(group, partition, last.up_to, 1 << 30):
            ends.add(end)
            if last.up_to < end <= found.up_to:
                assert index < node.raft_start(group), f"{found} names an entry of the Raft log"
                age_ms = self.now_ms - self.appended_ms[group, index]
                assert age_ms >= rules.min_lag_ms - TOLERANCE_MS, f"age {age_ms} by {rules}"
                assert not (rules.min_lag_ms and node.skew.is_far), "by a clock that is far"
        assert found.up_to in ends, "not the end of a batch"
        if found.tombstones_below > last.tombstones_below:
            age_ms = self.now_ms - self.told_ms.get(
                (partition, found.tombstones_below), self.now_ms + TOLERANCE_MS + 1)
            assert age_ms >= rules.tombstone_ms - TOLERANCE_MS, f"tombstones after {age_ms}"
            assert not (rules.tombstone_ms and node.skew.is_far), "by a clock that is far"
            self.counts["tombstones"] += 1
            self.counts["tombstones alone"] += found.up_to == last.up_to
        else:
            assert found.up_to > last.up_to, "it changes nothing"
        self.counts["proposed"] += 1
        self.counts["by a clock"] += rules.min_lag_ms > 0

    # ---- one step -------------------------------------------------------------------------------

    def step(self):
        rng = self.rng
        action = rng.choices(
            ("append", "pass", "time", "leader", "setting", "clock", "start", "carry", "tell",
             "apply"),
            (40, 25, 8, 3, 4, 3, 15, 30, 60, 4))[0]
        if action == "append":
            partition = rng.choice(self.partitions)
            self.leader_of(partition).append(partition, rng.randrange(1, 5),
                                             rng.randrange(1, 200))
        elif action == "pass":
            self.pass_time(rng.choice((0, BUCKET_MS, 10 * SECOND)))
            node = rng.choice(self.nodes)
            node.run()
            node.compact()
        elif action == "time":
            self.pass_time(rng.choice((SECOND, 60 * SECOND, HOUR)))
        elif action == "leader":
            self.move_leader(rng.choice([*self.first.log]), rng.choice(self.nodes))
        elif action == "setting":
            name, value = rng.choice((
                ("min_compaction_lag_ms", rng.choice((10 * 60 * SECOND, HOUR))),
                ("max_compaction_lag_ms", rng.choice((2 * HOUR, 5 * HOUR))),
                ("delete_retention_ms", rng.choice((0, 10 * 60 * SECOND, 3 * HOUR))),
                ("min_cleanable_dirty_ratio", rng.choice((0, 0.3, 0.9))),
                ("cleanup_policy", rng.choice(("compact", "delete")))))
            self.alter(rng.choice(self.topics),
                       **{name: value if name == "cleanup_policy" else rng.choice((value, None))})
        elif action == "start":
            group = self.first.state.locate(rng.choice(self.partitions)).group
            for node in self.nodes:
                if rng.random() < 0.6:
                    applied = node.partition_states[group].applied_index
                    node.raise_start(group, rng.randrange(max(1, applied - 9), applied + 2))
        elif action == "carry":
            self.carry_out(rng.choice(self.partitions))
        elif action == "tell":
            partition = rng.choice(self.partitions)
            if rng.random() < 0.9:
                self.tell(partition)
            else:
                self.first.told_by_all[partition] = 0  # a member was replaced, or one was added
        elif action == "apply":
            self.set_applies(rng.random() < 0.7)
        else:
            self.set_clock(rng.choice(self.nodes), rng.choice(
                (0, 0, 30 * SECOND, -30 * SECOND, 5 * HOUR, -5 * HOUR)))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_each_compaction_is_explained_and_everything_is_compacted_in_the_end(seed):
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
    model.set_applies(True)
    for node in model.nodes:
        model.set_clock(node, 0)
    for topic in model.topics:
        model.alter(topic, cleanup_policy="compact", min_compaction_lag_ms=60 * SECOND,
                    delete_retention_ms=HOUR, min_cleanable_dirty_ratio=0,
                    max_compaction_lag_ms=None)
    for group in model.first.log:
        for node in model.nodes:
            node.raise_start(group)
    for _ in range(4 * 60):  # hours, because a clock may have been ahead by 5 of them
        model.pass_time(2 * 60 * SECOND)
        for node in model.nodes:
            node.run()
            node.compact()
        for partition in model.partitions:
            model.carry_out(partition)
            model.tell(partition)
    for partition in model.partitions:
        state = model.first.of(partition)
        if state is not None:
            last = state.compaction
            assert last.up_to == last.tombstones_below == model.last_batch(partition)


def test_all_reasons_occur_in_these_runs():
    counts = Counter()
    for seed in range(SEEDS):
        model = Model(seed)
        for _ in range(STEPS):
            model.step()
        counts += model.counts
    assert counts["proposed"] > 100 and counts["by a clock"] > 20, counts
    assert counts["tombstones"] > 20 and counts["tombstones alone"] > 5, counts
