"""A damaged replica gets back what it lost, keeps it across restarts, and says so no earlier."""

from __future__ import annotations

import pytest

from multiraft.storage.errors import CorruptRange
from multiraft.types import Entry, HardState
from tests.storage.damage import DIRECTORY, FIRST, flips, long_lane, model_position, small_lane
from tests.storage.model import comparable, observed, readable
from tests.storage.world import VOTERS, Rounds, checkpoint, open_store, seal, write


def entries_of(store, group: int) -> list[Entry]:
    last = store.groups[group].bounds.last_index
    return list(store.read_plan(group, 1, last).execute())


def put(store, staged) -> None:
    staged.execute()
    store.finish(staged)


def copy_missing(store, peer_entries: dict) -> None:
    """Every missing entry from a peer that has all of them."""
    for group in sorted(store.repair.quarantined_groups()):
        log = store.repair.quarantined(group)
        given = [peer_entries[group][index - 1] for index in sorted(log.missing)]
        staged = store.repair.stage_copies(group, given, lambda: None)
        if staged is not None:
            put(store, staged)
        assert not log.missing


def follow_leader(store, peer_entries: dict, hard_states: dict) -> None:
    """What doubtful replicas do: drop what may stand behind the log's end, take the leader's."""
    rounds = Rounds(store)
    for group in sorted(store.repair.quarantined_groups()):
        log = store.repair.quarantined(group)
        if log.doubtful:
            last = log.index.last_index
            common = next((index for index, entry in enumerate(peer_entries[group][:last])
                           if log.index.term(index + 1) != entry.term),
                          min(last, len(peer_entries[group])))
            rounds.run(write(group, *peer_entries[group][common:], drop_from=common + 1,
                             hard_state=hard_states[group]))


def lift_all(store) -> None:
    for group in sorted(store.repair.quarantined_groups()):
        put(store, store.repair.stage_lift(group, lambda: None))


def repaired_files(disk, damaged: bytes, peer_entries: dict, hard_states: dict):
    """The disk after a repair of the damaged first segment; None when nothing had to be done."""
    patient = disk.restored({**disk.files(), FIRST: damaged})
    store = open_store(patient.filesystem, DIRECTORY)
    for group in peer_entries:
        store.create_group(group, 1, VOTERS)
    if not [*store.repair.quarantined_groups()]:
        store.close()
        return None
    copy_missing(store, peer_entries)
    follow_leader(store, peer_entries, hard_states)
    store.close()
    half = open_store(patient.filesystem, DIRECTORY)  # a crash before the lift
    assert [*half.repair.quarantined_groups()] or not half.damage
    copy_missing(half, peer_entries)
    lift_all(half)
    half.close()
    return patient


def test_any_damage_of_a_lane_can_be_repaired_for_good():
    disk, model, _ = small_lane()
    healthy = open_store(disk.restored(disk.files()).filesystem, DIRECTORY)
    peer_entries = {group: entries_of(healthy, group) for group in healthy.groups}
    hard_states = {group: restored.hard_state for group, restored in healthy.groups.items()}
    expected = {group: entries for group, (entries, _) in
                comparable(model.state(len(model.items))).items()}
    repaired = 0
    for _, damaged in flips(disk.files()[FIRST]):
        patient = repaired_files(disk, damaged, peer_entries, hard_states)
        if patient is None:
            continue
        repaired += 1
        store = open_store(patient.filesystem, DIRECTORY)
        assert [*store.repair.quarantined_groups()] == []
        found = {group: entries for group, (entries, _) in observed(store).items()}
        assert {group: found[group] for group in expected} == expected
        store.close()
    assert repaired > 700


def flipped(data: bytes, at: int) -> bytes:
    damaged = bytearray(data)
    damaged[at] ^= 4
    return bytes(damaged)


def test_a_repaired_batch_is_served_again_also_from_its_index_file():
    disk, _ = long_lane(with_checkpoint=True)
    healthy = open_store(disk.restored(disk.files()).filesystem, DIRECTORY)
    originals = entries_of(healthy, 1)
    position = healthy._logs[1].index.position(5)
    disk.put(FIRST, flipped(disk.read(FIRST), position + 64 + 80))
    store = open_store(disk.filesystem, DIRECTORY)
    with pytest.raises(CorruptRange):
        store.read_plan(1, 5, 5).execute()
    assert store.repair.damaged(1, 5, "found by a read")
    assert not store.repair.damaged(1, 5, "found once more")
    store.create_group(1, 1, VOTERS)
    copy_missing(store, {1: originals})
    lift_all(store)
    checkpoint(store, {1: 38}, 38)
    seal(store)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[1].quarantined
    assert entries_of(again, 1) == originals
    fetched = again.fetch(100, 3, 1 << 20, 10)
    assert fetched.plan is not None
    fetched.plan.execute()


def test_what_is_missing_is_remembered_by_the_checkpoint():
    disk, _ = long_lane(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.repair.damaged(1, 5, "found by a read")
    checkpoint(store, {1: 38}, 38)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.groups[1].quarantined
    assert [*again.repair.quarantined(1).missing] == [5]
    with pytest.raises(CorruptRange):
        again.read_plan(1, 3, 8).execute()


def test_copies_of_another_term_are_refused():
    disk, _, _ = small_lane()
    at = model_position(disk, 5) + 64 + 61
    disk.put(FIRST, flipped(disk.read(FIRST), at))
    store = open_store(disk.filesystem, DIRECTORY)
    missing, = store.repair.quarantined(1).missing
    true = readable(store, 1, missing)
    assert true is None
    other = Entry(2, 1, 1, 9, missing)
    assert store.repair.stage_copies(1, [other], lambda: None) is None
    assert [*store.repair.quarantined(1).missing] == [missing]


def test_a_lift_is_void_while_an_entry_is_missing():
    disk, _ = long_lane(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    store.repair.damaged(1, 5, "found by a read")
    staged = store.repair.stage_lift(1, lambda: None)
    store.repair.damaged(1, 6, "found meanwhile")
    put(store, staged)
    assert store.repair.quarantined(1) is not None


def test_a_replica_that_contradicts_its_leader_is_out_for_good():
    disk, _ = long_lane(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    store.quarantine(1, "entry 41 of node 2: unexpected offset")
    assert store.repair.quarantined(1).lasting
    checkpoint(store, {1: 38}, 38)
    store.close()
    assert open_store(disk.filesystem, DIRECTORY).repair.quarantined(1).lasting


def test_a_group_that_is_created_in_a_damaged_lane_has_to_be_cleared():
    disk, _, _ = small_lane()
    disk.put(FIRST, flipped(disk.read(FIRST), model_position(disk, 1) + 20))
    store = open_store(disk.filesystem, DIRECTORY)
    restored = store.create_group(7, 1, VOTERS)
    assert restored.quarantined and restored.doubtful
    assert restored.hard_state == HardState(0, 0)
