"""Power loss at every operation of the disk, in recovery too: nothing durable is lost, ever."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.types import HardState
from tests.storage.model import JournalModel
from tests.storage.world import (
    VOTERS,
    Rounds,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

DIRECTORY = "/node"
GROUPS = (1, 2, 3)


class Node:
    """A store that runs random rounds, and the model beside it."""

    def __init__(self, filesystem: SimulatedFilesystem, model: JournalModel, rng: random.Random):
        self.filesystem = filesystem
        self.model = model
        self.rng = rng
        self.store = open_store(filesystem, DIRECTORY)
        self.rounds = Rounds(self.store)
        for group in GROUPS:
            self.store.create_group(group, 1, VOTERS)

    def step(self) -> None:
        """Up to three rounds, staged before the first of them is written; sometimes upkeep."""
        staged = [self._stage() for _ in range(self.rng.choice((1, 1, 2, 3)))]
        for one, count in staged:
            if self.rng.random() < 0.5:
                self.store.submitted(one)
            one.execute()
            self.store.finish(one)
            self.model.finish(count)
        self._upkeep()

    def _stage(self):
        model, rng = self.model, self.rng
        state = model.state(len(model.items))
        writes = [self._write(group, state.get(group))
                  for group in GROUPS if rng.random() < 0.6]
        count = model.stage(*writes)
        return self.rounds.stage(*writes), count

    def _write(self, group: int, state):
        rng = self.rng
        entries = state.entries if state else []
        term = state.hard_state.term if state else 0
        hard_state, drop_from = None, 0
        if term == 0 or rng.random() < 0.2:
            term += 1
            hard_state = HardState(term, rng.randrange(4))
        tail = self.store.partition_states[group]
        applied = tail.applied_index
        last = len(entries)
        if last > applied and rng.random() < 0.2:
            drop_from = rng.randrange(applied + 1, last + 1)
            tail.truncate(drop_from)
            last = drop_from - 1
        added = []
        for index in range(last + 1, last + 1 + rng.randrange(4)):
            entry = self._entry(group, index, term)
            tail.append(entry)
            added.append(entry)
        return write(group, *added, drop_from=drop_from, hard_state=hard_state)

    def _entry(self, group: int, index: int, term: int):
        tail, rng = self.store.partition_states[group], self.rng
        partition = 100 * group + rng.randrange(2)
        if rng.random() < 0.1:
            return noop_entry(group, index, term)
        if not tail.is_open(partition):
            return open_entry(group, index, term, partition)
        values = [rng.randbytes(rng.randrange(120)) for _ in range(rng.randrange(1, 4))]
        return data_entry(group, index, term, partition, tail.next_offset(partition), values)

    def _upkeep(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            job = self.store.create_segment_job()
            if job is not None:
                job.execute()
        if rng.random() < 0.3:
            seal(self.store)
        for group in GROUPS:
            tail = self.store.partition_states[group]
            tail.apply(rng.randrange(tail.applied_index, tail.last_index + 1))
        if rng.random() < 0.15:
            job = self.store.checkpoint_job({}, {"rounds": self.rounds.sequence})
            job.execute()
            self.store.checkpointed(job)


def recover_and_compare(filesystem: SimulatedFilesystem, model: JournalModel) -> None:
    """The store after a crash: a prefix of the journal, the tails of exactly that log, no
    damage."""
    store = open_store(filesystem, DIRECTORY)
    assert store.damage == []
    count = model.recovered_to(store)
    state = model.state(count)
    for group, log in store.table.logs.items():
        log.index._check()
        for partition in log.partitions.values():
            partition._check()
        tail = store.partition_states[group]
        tail._check()
        assert tail.last_index == len(state[group].entries if group in state else [])
    _compare_offsets(store, state)
    del model.items[count:]
    model.durable = count
    store.close()


def _compare_offsets(store, state) -> None:
    for group, found in state.items():
        ends: dict[int, int] = {}
        for entry in found.entries:
            if entry.batch is not None:
                fetch = store.fetch(entry.group, entry.partition, entry.base_offset, 1, 1 << 40)
                assert fetch.job.execute() == [entry.payload]
                ends[entry.partition] = entry.base_offset + entry.batch.count
        for partition, end in ends.items():
            assert store.partition_states[group].next_offset(partition) == end


def run_until_crash(filesystem, model, rng, fuse: int, steps: int) -> bool:
    """Run the steps; True if the fail point was reached."""
    try:
        node = Node(filesystem, model, rng)
        filesystem.operations_to_crash = fuse
        for _ in range(steps):
            node.step()
    except PowerLoss:
        return True
    finally:
        filesystem.operations_to_crash = -1
    return False


@pytest.mark.parametrize("crash", ["power_loss", "process_death"])
def test_a_crash_at_every_operation_leaves_a_prefix_and_all_that_was_durable(crash):
    fuse, blew = 0, True
    while blew:
        filesystem, model = SimulatedFilesystem(), JournalModel()
        blew = run_until_crash(filesystem, model, random.Random(7), fuse, steps=40)
        getattr(filesystem, crash)(random.Random(fuse))
        recover_and_compare(filesystem, model)
        filesystem.power_loss(random.Random(fuse))
        recover_and_compare(filesystem, model)  # what recovery showed once is durable
        fuse += 1
    assert fuse > 100


@pytest.mark.parametrize("seed", range(12))
def test_crash_after_crash_on_the_same_disk(seed):
    rng = random.Random(seed)
    filesystem, model = SimulatedFilesystem(), JournalModel()
    for _ in range(12):
        run_until_crash(filesystem, model, rng, fuse=rng.randrange(120), steps=60)
        for _ in range(rng.randrange(3)):
            _crash(filesystem, rng)
            _recovery_that_crashes(filesystem, rng)
        _crash(filesystem, rng)
        recover_and_compare(filesystem, model)


def _crash(filesystem: SimulatedFilesystem, rng: random.Random) -> None:
    if rng.random() < 0.5:
        filesystem.power_loss(rng)
    else:
        filesystem.process_death(rng)


def _recovery_that_crashes(filesystem: SimulatedFilesystem, rng: random.Random) -> None:
    filesystem.operations_to_crash = rng.randrange(16)
    try:
        open_store(filesystem, DIRECTORY).close()
    except PowerLoss:
        pass
    filesystem.operations_to_crash = -1


def test_recovering_twice_changes_nothing():
    filesystem, model = SimulatedFilesystem(), JournalModel()
    run_until_crash(filesystem, model, random.Random(3), fuse=90, steps=60)
    filesystem.power_loss(random.Random(3))
    recover_and_compare(filesystem, model)
    items = list(model.items)
    recover_and_compare(filesystem, model)
    assert model.items == items
