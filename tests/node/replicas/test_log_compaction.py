"""Raft logs are compacted up to what is needed, in bounded steps, and idle groups not at all."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.types import METADATA_GROUP, HardState
from node.replicas import log_compaction
from node.replicas.log_compaction import (
    NOTHING_HELD,
    CompactionLimits,
    LogCompaction,
    LogPlaces,
    first_index,
)
from tests.storage.test_raft_start import (
    GROUP,
    OTHER,
    append,
    check_reads,
    checkpoints,
    data_entry,
    filled,
    reopened,
)
from tests.storage.world import VOTERS, Rounds, noop_entry, write

SECOND_OFFSET = 2


@pytest.mark.parametrize(("places", "expected"), [
    # start_max, held_from, newest_from, kept_from
    (LogPlaces(100, NOTHING_HELD, 80, 5), 80),  # the newest entries stay
    (LogPlaces(100, 60, 80, 5), 60),  # a member that is up needs more
    (LogPlaces(100, 60, 80, 70), 70),  # but it does not hold more than so many bytes
    (LogPlaces(100, 95, 80, 5), 80),  # a member that has nearly all holds nothing more
    (LogPlaces(50, 60, 80, 70), 50),  # checkpoints have not applied more
    (LogPlaces(1, NOTHING_HELD, 101, 101), 1),
    (LogPlaces(101, NOTHING_HELD, 101, 5), 101),  # nothing is left
])
def test_the_rule(places, expected):
    assert first_index(places) == expected


class Node:
    """A store with two groups, consensus that follows it, and the compaction."""

    def __init__(self, newest: int = 0, node_newest: int = 1 << 30, kept: int = 1 << 40,
                 store=None):
        self.store = store or filled(SimulatedFilesystem())
        self.status = self
        self.compacted_to: dict[int, int] = {}
        self.quarantined: set[int] = set()
        self.installing: set[int] = set()
        self.here = {GROUP, OTHER, METADATA_GROUP}
        self.held: dict[int, int] = {}
        self.served: dict[int, int] = {}
        self.fault, self.full = "", False
        self.compaction = LogCompaction(
            self, self.store, CompactionLimits(kept, newest, node_newest), self,
            lambda group: self.served.get(group, NOTHING_HELD), self)

    def has_group(self, group):
        return group in self.here

    def is_installing(self, group):
        return group in self.installing

    def quarantine_reason(self, group):
        return "damaged" if group in self.quarantined else ""

    def applied_index(self, group):
        return self.store.partition_states[group].applied_index

    def held_from(self, group):
        return self.held.get(group, NOTHING_HELD)

    def compacted(self, group, first):
        assert first == self.store.raft_start(group), "in one step with storage"
        assert first > self.compacted_to.get(group, 1)
        self.compacted_to[group] = first

    def run(self) -> int:
        """A pass; return its steps."""
        return sum(1 for _ in self.compaction.steps())

    def start(self, group=GROUP) -> int:
        self.store.table.logs[group]._check()
        return self.store.raft_start(group)


def test_a_log_is_compacted_once_both_checkpoints_have_applied_it():
    node = Node()
    raised: list[tuple[int, list[int]]] = []
    node.compaction.raised.subscribe(lambda *told: raised.append(told))
    assert node.compaction.is_due
    node.run()
    assert node.start() == 1 and not node.compaction.is_due and not raised
    assert node.compaction.waits_for_checkpoint() and not node.compaction.has_raised
    checkpoints(node.store)
    node.compaction.checkpointed()
    assert node.compaction.is_due
    node.run()
    assert node.start() == 10 and node.compacted_to == {GROUP: 10}
    assert [group for group, _ in raised] == [GROUP]
    assert {*raised[0][1]} == {each for each in node.store.partition_states[GROUP].partitions()}
    assert node.compaction.entries_compacted == 9 and node.compaction.has_raised
    assert not node.compaction.waits_for_checkpoint()
    check_reads(node.store)
    node.compaction.checkpointed()
    assert not node.compaction.has_raised


def test_a_group_is_not_visited_again_before_it_applies_another_entry():
    node = Node()
    checkpoints(node.store)
    node.run()
    asked: list[int] = []
    node.held_from = lambda group: asked.append(group) or NOTHING_HELD
    node.compaction.checkpointed()
    node.run()
    assert not asked
    append(node.store, noop_entry(GROUP, 10, 2))
    node.compaction.note(GROUP)
    node.run()
    assert asked == [GROUP]


def test_steps_are_bounded_and_what_arrives_between_them_stays(monkeypatch):
    monkeypatch.setattr(log_compaction, "ENTRIES_PER_STEP", 2)
    node = Node()
    checkpoints(node.store)
    starts = []
    for _ in node.compaction.steps():
        starts.append(node.start())
        if len(starts) == 2:
            append(node.store, data_entry(GROUP, 10, 2, 8, SECOND_OFFSET, [b"h"]))
            node.compaction.note(GROUP)
    assert starts == [1, 3, 5, 7, 9] and node.start() == 10
    assert node.store.newest_from(GROUP, 1 << 30, 1 << 30) == 10
    check_reads_but_the_end(node)
    node.compaction.checkpointed()
    checkpoints(node.store)
    node.run()
    assert node.start() == 11
    check_reads_but_the_end(node)


def check_reads_but_the_end(node) -> None:
    found = node.store.batches(GROUP, 8, 0, 9)
    assert [index for _, _, index, _ in found] == [4, 8, 10]


@pytest.mark.parametrize("what", ["removed", "quarantined", "installing", "restarted", "release"])
def test_a_log_that_changes_between_steps_is_left_alone(monkeypatch, what):
    monkeypatch.setattr(log_compaction, "ENTRIES_PER_STEP", 2)
    node = Node()
    checkpoints(node.store)
    steps = node.compaction.steps()
    next(steps)
    next(steps)
    assert node.start() == 3
    if what == "removed":
        node.here.discard(GROUP)
    elif what == "quarantined":
        node.quarantined.add(GROUP)
    elif what == "installing":
        node.installing.add(GROUP)
    elif what == "restarted":
        node.store.compact(GROUP, 4)
    else:
        node.fault = "upgrade node 3"
    before = node.start()
    assert not [*steps] and node.start() == before


def test_members_that_are_up_and_served_snapshots_hold_entries():
    node = Node()
    checkpoints(node.store)
    node.held = {GROUP: 4}
    node.run()
    assert node.start() == 4
    node.held, node.served = {GROUP: 9}, {GROUP: 6}
    node.compaction.checkpointed()
    node.run()
    assert node.start() == 6, "the group was not given up"
    node.served = {}
    node.run()
    assert node.start() == 9


def test_nothing_holds_more_than_so_many_bytes():
    store = filled(SimulatedFilesystem())
    log = store.table.logs[GROUP]
    node = Node(kept=log.size(8) + log.size(9), store=store)
    checkpoints(store)
    node.held = {GROUP: 1}
    node.run()
    assert node.start() == 8


def test_the_newest_entries_stay_except_far_back_in_the_journal_or_on_a_full_disk():
    store = filled(SimulatedFilesystem())
    log = store.table.logs[GROUP]
    node = Node(newest=log.size(9) + log.size(8), node_newest=8192, store=store)
    checkpoints(store)
    node.run()
    assert node.start() == 8
    rounds = Rounds(store)
    for term in range(2, 200):
        rounds.run(write(OTHER, hard_state=HardState(term, 1)))
    node.compaction.checkpointed()
    node.run()
    assert node.start() == 10, "a group that is idle leaves its old segment"
    append(store, noop_entry(GROUP, 10, 2))
    node.compaction.note(GROUP)
    checkpoints(store)
    node.compaction.checkpointed()
    node.run()
    assert node.start() == 10
    node.full = True
    assert node.compaction.is_due
    node.run()
    assert node.start() == 11 and not node.compaction.is_due


def test_groups_with_partitions_wait_for_all_releases_and_metadata_do_not():
    node = Node()
    node.store.create_group(METADATA_GROUP, 1, VOTERS)
    node.compaction.note(METADATA_GROUP)
    for index in (1, 2):
        entry = noop_entry(METADATA_GROUP, index, 1)
        states = node.store.partition_states[METADATA_GROUP]
        states.append(entry)
        Rounds(node.store).run(write(METADATA_GROUP, entry, hard_state=HardState(1, 1)))
        states.apply(index)
    for _ in range(2):
        checkpoints(node.store, 1)
    node.fault = "upgrade node 3"
    node.run()
    assert node.start() == 1 and node.start(METADATA_GROUP) == 3
    node.fault = ""
    node.run()
    assert node.start() == 10


def test_after_a_start_groups_are_examined_once_they_are_here():
    filesystem = SimulatedFilesystem()
    store = reopened(filled(filesystem), filesystem)
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    states = store.partition_states[GROUP]
    states.apply(9)
    node = Node(store=store)
    node.here = set()
    node.run()
    checkpoints(store)
    node.here = {GROUP, OTHER}
    node.compaction.checkpointed()
    node.run()
    assert node.start() == 10
    del store.groups[GROUP]
    node.compaction.note(GROUP)
    node.here = set()
    node.run()
    assert GROUP not in node.compaction._open


def test_the_groups_of_a_pass_are_examined_in_steps(monkeypatch):
    monkeypatch.setattr(log_compaction, "GROUPS_PER_STEP", 10)
    node = Node()
    for group in range(100, 195):
        node.compaction.note(group)
    node.store = SimpleNamespace(groups=(), raft_start=lambda group: 1)
    node.here = set()
    assert node.run() == 9
