"""Tails that are behind get their entries by index files; the result is that of a scan."""

from __future__ import annotations

import random

import pytest

from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

GROUPS = (1, 2, 3)


def fill_groups(store, rng: random.Random, rounds: int) -> dict[int, list]:
    """Rounds of all groups, some of which drop what came before; each group's entries."""
    logs: dict[int, list] = {group: [] for group in GROUPS}
    feed = Rounds(store)
    for number in range(rounds):
        writes = []
        for group in GROUPS:
            log, drop, term = logs[group], 0, 1 + number // 20
            if len(log) > 4 and rng.random() < 0.1:
                drop = len(log) - rng.randrange(3)
                del log[drop - 1:]
            index = len(log) + 1
            if index == 1:
                entry = open_entry(group, index, term, group)
            elif rng.random() < 0.3:
                entry = noop_entry(group, index, term)
            else:
                offset = sum(each.batch is not None for each in log)
                entry = data_entry(group, index, term, group, offset, [b"v%d" % number])
            log.append(entry)
            writes.append(write(group, entry, drop_from=drop))
        feed.run(*writes)
    return logs


def prepared(filesystem, directory, seed: int, applied: dict[int, int]) -> dict[int, list]:
    """A journal of several sealed segments, with a checkpoint in which each group is applied so far
    from its end."""
    store = open_store(filesystem, directory)
    for group in GROUPS:
        store.create_group(group, 1, VOTERS)
    logs = fill_groups(store, random.Random(seed), 120)
    for group, log in logs.items():
        for entry in log:
            store.partition_states[group].append(entry)
        store.partition_states[group].apply(max(0, len(log) - applied[group]))
    seal(store)
    checkpoint(store, {group: len(log) for group, log in logs.items()})
    store.close()
    return logs


def state(store) -> dict:
    """All that a start has to find out."""
    found = {}
    for group in GROUPS:
        tail, log = store.partition_states[group], store.table.logs[group]
        reached = tail.applied_index, tail.last_index, tail.next_offset(group)
        tail.apply(tail.last_index)
        found[group] = (*reached, tail.snapshot(), log.bounds(), log.index.term_runs(),
                        log.index._positions, log.quarantined)
    return found


def remove_index_files(filesystem, directory) -> int:
    journal = f"{directory}/lane-0"
    names = [name for name in filesystem.list(journal) if name.endswith(".index")]
    for name in names:
        filesystem.remove(f"{journal}/{name}")
    return len(names)


@pytest.mark.parametrize("behind", [{1: 0, 2: 10, 3: 1000}, {1: 60, 2: 0, 3: 0},
                                    {1: 1000, 2: 1000, 3: 1000}])
@pytest.mark.parametrize("seed", range(6))
def test_entries_by_index_are_those_of_a_scan(disk, seed, behind):
    filesystem, directory = disk
    logs = prepared(filesystem, directory, seed, behind)
    store = open_store(filesystem, directory)
    assert store.recovered.scanned_segments == 1, "the last one, which has no index file"
    assert store.recovered.indexed_segments >= 3
    assert store.partition_states[2].last_index == len(logs[2])
    by_index = state(store)
    store.close()
    assert remove_index_files(filesystem, directory) >= 3
    store = open_store(filesystem, directory)
    assert store.recovered.indexed_segments == 0
    assert state(store) == by_index
    store.close()


def test_a_wanted_entry_that_is_damaged_is_found_as_a_scan_finds_it(simulated):
    prepared(simulated, "/data", 1, {1: 0, 2: 1000, 3: 0})
    store = open_store(simulated, "/data")
    log = store.table.logs[2]
    index = next(at for at in range(2, 30) if log.index.size(at) > 100)  # a batch
    position, size = log.index.position(index), log.index.size(index)
    segment = store.table.journal.segment_of(position)
    store.close()
    simulated.flip(segment.path, position - segment.start + size - 9, 3)
    store = open_store(simulated, "/data")
    assert store.recovered.scanned_segments == 2, "that segment, and the last one"
    assert [(each.kind, each.group, each.index) for each in store.damage] == [
        ("payload", 2, index)]
    assert store.groups[2].quarantined and not store.groups[1].quarantined
    store.close()


def test_a_checkpoint_after_a_start_knows_what_the_one_before_it_knew(disk):
    """No group has a leader yet, so no commit index is known."""
    filesystem, directory = disk
    logs = prepared(filesystem, directory, 3, {1: 0, 2: 7, 3: 40})
    store = open_store(filesystem, directory)
    before = {group: (store.partition_states[group].applied_index, store.groups[group].commit)
              for group in GROUPS}
    assert before[2][0] == len(logs[2]) - 7
    checkpoint(store, {})
    store.close()
    store = open_store(filesystem, directory)
    assert {group: (store.partition_states[group].applied_index, store.groups[group].commit)
            for group in GROUPS} == before
    store.close()
