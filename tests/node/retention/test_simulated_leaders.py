"""Leaders that follow each other, with clocks that are set wrong and limits that change.

The passes and clocks are those of the node.  The model knows when each batch was really appended,
and has to explain each record that leaves: by the limits of its topic, and by no clock that is
wrong.
"""

from __future__ import annotations

import random

import pytest

from multiraft.liveness.clock_skew import CLOCK_SKEW_MAX_MS
from multiraft.partitions.retention_records import UNKNOWN_BYTES, parse_log_starts
from multiraft.types import EntryKind
from node.retention.retention_policy import limits_of
from tests.node.retention.world import BUCKET_MS, World

NODES = 3
TOPICS = 4
STEPS = 400
SECOND = 1_000
HOUR = 3_600 * SECOND
#: Error of an age: the clock that is in the log and the one that decides may each be so wrong
#: without being far.
TOLERANCE_MS = 2 * CLOCK_SKEW_MAX_MS


class Leader(World):
    """One node; the model explains what it proposes."""

    def __init__(self, model, shares=None):
        super().__init__(shares=shares)
        self.model = model
        self.shift_ms = 0

    def propose(self, group, kind, payload=b"", partition=0, base_offset=-1, batch=None):
        if kind == EntryKind.LOG_START:
            for row in parse_log_starts(payload):
                self.model.explain(self, group, row)
        if kind == EntryKind.CLOCK:
            assert not self.skew.is_far, "a CLOCK of a clock that is far"
        entry = super().propose(group, kind, payload, partition, base_offset, batch)
        if kind == EntryKind.DATA:
            self.model.appended_ms[group, entry.index] = self.model.now_ms
        return entry


class Model:
    """The cluster: its nodes, the real time, and when each batch was really appended."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.now_ms = 1_000_000_000
        self.appended_ms = {}
        self.by_age = self.by_size = 0
        first = Leader(self)
        self.nodes = [first, *(Leader(self, first) for _ in range(NODES - 1))]
        self.first = first
        self.topics = [first.topic(f"t{each}", 2) for each in range(TOPICS)]
        self.partitions = [topic + each for topic in self.topics for each in range(2)]
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

    def move_leader(self, group, to):
        for node in self.nodes:
            node.led.discard(group)
        to.led.add(group)
        to.retention.lead(group)

    def leader_of(self, partition):
        group = self.first.state.locate(partition).group
        return next(node for node in self.nodes if group in node.led)

    def alter(self, topic, **settings):
        self.first.alter(topic, **settings)
        for node in self.nodes[1:]:
            node.retention.settings_altered(topic)

    # ---- the oracle -----------------------------------------------------------------------------

    def explain(self, node, group, row):
        """Fail unless each batch that leaves may leave, and the row says what stays."""
        states = node.partition_states[group]
        state = states.applied(row.partition)
        assert state.log_start <= row.log_start <= state.next_offset, f"{row} after {state}"
        place = node.state.locate(row.partition)
        limits = limits_of(place.topic.name, node.state.settings.of(place.topic.incarnation).pairs,
                           ())
        batches = node.batches(group, row.partition, state.log_start, 1 << 30)
        left = sum(size for _, _, _, size in batches)
        for _, end, index, size in batches:
            if end > row.log_start:
                break
            left -= size
            by_size = ((limits.records >= 0 and state.next_offset - end >= limits.records)
                       or (limits.bytes >= 0 and left >= limits.bytes))
            age_ms = self.now_ms - self.appended_ms[group, index]
            by_age = (limits.age_ms >= 0 and not node.skew.is_far
                      and age_ms >= limits.age_ms - TOLERANCE_MS)
            assert by_size or by_age, f"{row} removes a batch of age {age_ms} ms by {limits}"
            self.by_size += by_size
            self.by_age += by_age
        assert row.live_bytes in (left, UNKNOWN_BYTES) and row.live_bytes == left

    # ---- one step -------------------------------------------------------------------------------

    def step(self):
        rng = self.rng
        action = rng.choices(("append", "pass", "time", "leader", "limit", "clock"),
                             (60, 20, 8, 5, 4, 3))[0]
        if action == "append":
            partition = rng.choice(self.partitions)
            self.leader_of(partition).append(partition, rng.randrange(1, 5),
                                             rng.randrange(1, 200))
        elif action == "pass":
            self.pass_time(rng.choice((0, BUCKET_MS, 10 * SECOND)))
            rng.choice(self.nodes).run()
        elif action == "time":
            self.pass_time(rng.choice((SECOND, 60 * SECOND, HOUR)))
        elif action == "leader":
            self.move_leader(rng.choice([*self.first.log]), rng.choice(self.nodes))
        elif action == "limit":
            name, value = rng.choice((
                ("retention_ms", rng.choice((10 * 60 * SECOND, 3 * HOUR))),
                ("retention_bytes", rng.choice((0, 500, 3_000))),
                ("retention_records", rng.choice((0, 3, 40)))))
            self.alter(rng.choice(self.topics), **{name: rng.choice((value, value, None))})
        else:
            self.set_clock(rng.choice(self.nodes), rng.choice(
                (0, 0, 30 * SECOND, -30 * SECOND, 5 * HOUR, -5 * HOUR)))


@pytest.mark.parametrize("seed", range(12))
def test_each_record_that_leaves_is_explained_by_the_limits_and_no_wrong_clock(seed):
    model = Model(seed)
    for _ in range(STEPS):
        model.step()
    for node in model.nodes:
        model.set_clock(node, 0)
    for topic in model.topics:
        model.alter(topic, retention_ms=HOUR, retention_bytes=None, retention_records=None)
    for _ in range(6 * 60):  # hours, because a clock may have been ahead by 5 of them
        model.pass_time(2 * 60 * SECOND)
        for node in model.nodes:
            node.run()
    states = [model.first.of(partition) for partition in model.partitions]
    assert all(state is None or not state.records for state in states), "it leaves in the end"


def test_records_leave_by_age_and_by_size_in_these_runs():
    counts = [0, 0]
    for seed in range(4):
        model = Model(seed)
        for _ in range(STEPS):
            model.step()
        counts[0] += model.by_age
        counts[1] += model.by_size
    assert min(counts) > 20, counts
