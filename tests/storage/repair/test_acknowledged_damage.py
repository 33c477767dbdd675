"""Settled damage stays settled: no later start or scrub begins a head recovery for it."""

from __future__ import annotations

import random
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.partitions.state import PartitionStates
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.storage.damage.damage_map import DamageMap, EntryState
from multiraft.storage.damage.journal_damage import CLEARED_RANGES_MAX
from multiraft.storage.damage.place import Place
from multiraft.storage.damage.ranges import merged, uncovered
from multiraft.storage.errors import CorruptJournalRange
from multiraft.storage.repair.coordinator import RepairCoordinator, RepairResponse
from multiraft.storage.repair.scrub import Scrubber
from multiraft.types import HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk, flipped, segments
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    noop_entry,
    open_store,
    seal,
    write,
)

places = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8)).map(
    lambda pair: (pair[0], pair[0] + pair[1])), max_size=6)


@given(st.integers(0, 30), st.integers(1, 12), places)
def test_the_unknown_parts_of_a_place_are_the_bytes_that_nobody_knows(begin, length, known):
    everything = set(range(begin, begin + length))
    expected = everything - {at for first, last in known for at in range(first, last)}
    found = uncovered(begin, begin + length, known)
    assert [at for first, last in found for at in range(first, last)] == sorted(expected)
    assert uncovered(begin, begin + length, merged(known)) == found


def test_where_something_of_unknown_length_is_missing_is_known_to_a_place_that_reaches_it():
    assert uncovered(10, 10, [(0, 9), (11, 20)]) == [(10, 10)]
    assert uncovered(10, 10, [(0, 10)]) == []
    assert merged([(5, 5), (0, 3), (3, 4)]) == [(0, 4), (5, 5)]


def put(store, staged) -> None:
    staged.execute()
    store.finish(staged)


def explain(store, begins: range) -> None:
    """Explain damaged entries of 100 bytes at these thousands of the journal."""
    for at in begins:
        store.table.journal_damage.explain(
            *store.table.journal.range_at(1000 * at, 1000 * at + 100))


def scrubbed(store) -> list:
    """Return the findings of a scrub of the whole journal."""
    scrubber, found = Scrubber(store), []
    while (job := scrubber.next_job()) is not None:
        job.execute()
        found += scrubber.done(job)
    return found


def damaged_behind_an_index(disk: Disk, store, rounds: Rounds) -> CorruptJournalRange:
    """A term of group 1 is damaged that starts know from an index file; as the scrub finds it."""
    at = store.table.journal.position
    while len(store.table.journal.segments) < 3:
        rounds.run(write(1, hard_state=HardState(4, 1)))
    seal(store)
    checkpoint(store)
    disk.filesystem.overwrite(FIRST, at, bytes(64))
    found, = scrubbed(store)
    return found


def clear_all(store, error: CorruptJournalRange) -> None:
    """All groups doubt, and are cleared."""
    for group in store.repair.suspect_all(error.begin, error.end, error.why):
        put(store, store.repair.stage_clear(group, lambda: None))
    assert not [*store.repair.quarantined_groups()]


def two_groups() -> tuple[Disk, object, Rounds, list]:
    """A store with two groups, one of which has three entries, between them terms and votes."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    rounds, entries = Rounds(store), []
    for group in (1, 2):
        store.create_group(group, 1, VOTERS)
    for index in (1, 2, 3):
        entries.append(noop_entry(1, index, 1))
        rounds.run(write(1, entries[-1], hard_state=HardState(index, 1)),
                   write(2, hard_state=HardState(index, 2)))
    return disk, store, rounds, entries


def test_repaired_ranges_never_displace_unexplained_ones_in_a_clear_record():
    """Seed 790000000483: after 64 places the oldest hole was left out, and every start from then on
    doubted for it."""
    disk, store, _, _ = two_groups()
    disk.put(FIRST, flipped(disk.read(FIRST), 8))  # the segment's header
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    hole, = store.table.journal_damage.unattributed
    explain(store, range(1, CLEARED_RANGES_MAX))
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
        assert len(store.table.logs[group].damage.cleared_ranges) == CLEARED_RANGES_MAX
    explain(store, range(CLEARED_RANGES_MAX, CLEARED_RANGES_MAX + 9))
    found = store.table.journal.range_at(90_000, 90_064)
    store.repair.suspect_all(90_000, 90_064, "found by the scrub")
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
        cleared_ranges = store.table.logs[group].damage.cleared_ranges
        assert uncovered(*hole, cleared_ranges) == uncovered(*found, cleared_ranges) == []
        assert len(cleared_ranges) <= CLEARED_RANGES_MAX
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.damage and not [*store.repair.quarantined_groups()]


def test_a_cleared_range_stays_cleared_however_many_copies_it_holds():
    """Seed 790000007187: the age of a log is one such place, and a LIFT could not hold all of its
    parts between copies.  Each start found damage in it, and the replica needed head recovery
    again."""
    disk, store, _, _ = two_groups()
    age, found = (store.table.journal.range_at(*each) for each in [(0, 80_000), (90_200, 90_264)])
    store.table.logs[1].damage.cleared_ranges = (age,)
    explain(store, range(1, 80 + CLEARED_RANGES_MAX))
    store.repair.suspect_all(90_200, 90_264, "found by the scrub")
    put(store, store.repair.stage_clear(1, lambda: None))
    cleared_ranges = store.table.logs[1].damage.cleared_ranges
    assert uncovered(*age, cleared_ranges) == uncovered(*found, cleared_ranges) == []
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.table.logs[1].damage.cleared_ranges == cleared_ranges


def end_of_group(how: str, store, rounds: Rounds) -> None:
    """End group 1's log or replace it; the copies that it took are useless then."""
    if how == "tombstone":
        rounds.run(GroupWrite(1, 1, 0, (), None,
                              tombstone(1, 1, Tombstone(HardState(3, 1), 3, 1))))
    elif how == "snapshot":
        tail = PartitionStates(1)
        for index in range(1, 8):
            tail.append(noop_entry(1, index, 1))
        tail.apply(7)
        store.install(1, LogBounds(8, 1, 7), 0, VOTERS, tail)
        checkpoint(store)
    else:
        store.create_group(1, 2, VOTERS)
        rounds.run(write(1, noop_entry(1, 1, 4, incarnation=2), incarnation=2))


@pytest.mark.parametrize("how", ["tombstone", "snapshot", "incarnation"])
@pytest.mark.parametrize("then_sealed", [False, True])
def test_a_damaged_place_with_a_copy_concerns_nobody_whatever_becomes_of_its_log(how, then_sealed):
    disk, store, rounds, entries = two_groups()
    disk.put(FIRST, flipped(disk.read(FIRST), store.table.logs[1].index.position(2) + 20))
    store.repair.record_damage(1, 2, "found by the scrub")
    put(store, store.repair.stage_copies(1, [entries[1]], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    end_of_group(how, store, rounds)
    if then_sealed:
        while len(store.table.journal.segments) < 3:
            rounds.run(write(2, hard_state=HardState(9, 2)))
        seal(store)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert [*again.repair.quarantined_groups()] == []
    assert scrubbed(again) == []


@pytest.mark.parametrize("then_sealed", [False, True])
def test_a_damaged_entry_of_a_replica_that_goes_concerns_nobody_else(then_sealed):
    """Seed 790000003662: the replica was removed before any member had given it a copy.  The next
    scrub did not know the owner of the place, and began head recovery of the others, one of which
    had been counted meanwhile."""
    disk, store, rounds, _ = two_groups()
    disk.put(FIRST, flipped(disk.read(FIRST), store.table.logs[1].index.position(1) + 20))
    named, = scrubbed(store)
    store.repair.record_damage(named.group, named.index, named.why)
    end_of_group("tombstone", store, rounds)
    assert scrubbed(store) == []
    if then_sealed:
        while len(store.table.journal.segments) < 3:
            rounds.run(write(2, hard_state=HardState(9, 2)))
        seal(store)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert scrubbed(store) == []
    assert not [*store.repair.quarantined_groups()] and store.is_removed(1)
    store.create_group(1, 1, VOTERS)
    RepairCoordinator(1, store, None, partial(put, store)).on_replica_created(1)
    again = noop_entry(1, 1, 1)  # the same one as was damaged
    Rounds(store).run(write(1, again, hard_state=HardState(4, 1)))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert not [*store.repair.quarantined_groups()] and scrubbed(store) == []
    assert store.read_job(1, 1, 1).execute() == (again,)


def test_only_what_is_unreadable_is_told_of_a_replica_that_goes():
    """Nothing is known of a place that was lost before, and nothing is wrong with an entry that is
    only in question."""
    disk, store, rounds, _ = two_groups()
    log = store.table.logs[1]
    places = [(log.index.position(index), log.index.size(index)) for index in (1, 2, 3)]
    log.discard_superseded(1)
    store.repair.record_damage(1, 2, "found by the scrub")
    log.damage.suspect(3, Place(0, places[2][0]))
    assert log.unreadable_ranges() == [(places[1][0], sum(places[1]))]
    end_of_group("tombstone", store, rounds)
    for _ in range(2):
        assert store.table.journal_damage.explained == [
            (Place(0, places[1][0]), Place(0, sum(places[1])))]
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)


def test_damage_beside_entries_requires_head_recovery_when_it_is_found():
    """Not at the start after that, when a peer may be damaged."""
    disk, store, _, entries = two_groups()
    index = store.table.logs[1].index
    begin, end = index.position(2), index.position(3)  # the entry, a term and a vote of each group
    disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
    named, place = scrubbed(store)
    assert (named.group, named.index) == (1, 2)
    assert isinstance(place, CorruptJournalRange) and (place.begin, place.end) == (begin, end)
    store.repair.record_damage(named.group, named.index, named.why)
    assert store.repair.suspect_all(place.begin, place.end, place.why) == [2]
    assert store.repair.is_damage_cleared(begin, end), "those that are under repair will settle it"
    put(store, store.repair.stage_copies(1, [entries[1]], lambda: None))
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
    assert scrubbed(store) == []
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert [*again.repair.quarantined_groups()] == []
    assert again.groups[1].hard_state == HardState(3, 1)


def test_damage_beside_a_cleared_range_requires_head_recovery_for_itself():
    disk, store, _, entries = two_groups()
    index = store.table.logs[1].index
    first, second, third = (index.position(at) for at in (1, 2, 3))
    disk.filesystem.overwrite(FIRST, first + 64, bytes(second - first - 64))  # terms and votes
    found, = scrubbed(store)
    clear_all(store, found)
    disk.filesystem.overwrite(FIRST, second, bytes(64))  # the entry behind them: one larger hole
    named, = scrubbed(store)
    assert (named.group, named.index) == (1, 2)
    store.repair.record_damage(1, 2, named.why)
    put(store, store.repair.stage_copies(1, [entries[1]], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert [*again.repair.quarantined_groups()] == []
    again.close()
    disk.filesystem.overwrite(FIRST, second + 64, bytes(third - second - 64))
    assert [*open_store(disk.filesystem, DIRECTORY).repair.quarantined_groups()] == [1, 2]


def test_a_segments_lost_end_is_the_same_place_for_a_scrub_and_a_start():
    disk, store, rounds, _ = two_groups()
    while len(store.table.journal.segments) < 2:
        rounds.run(write(2, hard_state=HardState(9, 2)))
    rounds.run(write(2, hard_state=HardState(9, 2)))
    segment = store.table.journal.segments[0]
    disk.filesystem.overwrite(segments(disk)[0], segment.end - 144, bytes(144))
    found, = scrubbed(store)
    clear_all(store, found)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.table.journal_damage.unattributed == (
        again.table.journal.range_at(found.begin, found.end),)
    assert [*again.repair.quarantined_groups()] == []
    assert scrubbed(again) == []


def test_the_damaged_first_entry_of_a_segment_is_that_entry_alone():
    """The start after its repair doubted every replica for what might be missing between the two
    segments.  The index file of the one before says that nothing is."""
    disk, store, rounds, entries = two_groups()
    while len(store.table.journal.segments) < 3:
        entries.append(noop_entry(1, len(entries) + 1, 1))
        rounds.run(write(1, entries[-1]))
    rounds.run(write(2, hard_state=HardState(9, 2)))
    assert seal(store) == 2
    middle = store.table.journal.segments[1]
    disk.put(middle.path, flipped(disk.read(middle.path), 64 + 20))
    named, = scrubbed(store)
    store.repair.record_damage(named.group, named.index, named.why)
    put(store, store.repair.stage_copies(1, [entries[named.index - 1]], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    disk.filesystem.remove(middle.path.replace(".segment", ".index"))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.recovered.scanned_segments == 2
    assert [*store.repair.quarantined_groups()] == []
    assert scrubbed(store) == []
    assert store.read_job(1, 1, len(entries)).execute() == tuple(entries)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_replica_that_is_created_later_has_nothing_to_do_with_old_damage(restarts):
    disk, store, rounds, _ = two_groups()
    first, second = (store.table.logs[1].index.position(at) for at in (1, 2))
    disk.filesystem.overwrite(FIRST, first + 64, bytes(second - first - 64))
    found, = scrubbed(store)
    clear_all(store, found)
    assert not store.create_group(3, 1, VOTERS).quarantined
    repairer = RepairCoordinator(1, store, None, lambda staged: put(store, staged))
    repairer.on_replica_created(3)
    rounds.run(write(3, noop_entry(3, 1, 1), hard_state=HardState(1, 1)))
    for _ in range(restarts):
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == []
    assert scrubbed(store) == []


@pytest.mark.parametrize("group", [2, 3])
@pytest.mark.parametrize("doubted", [False, True])
def test_a_new_replica_clears_damage_that_only_others_know_of(group, doubted):
    """Seed 790000000640: damage behind an index file is known only to the scrub, and to the lifts
    of replicas that existed when the scrub found it.  A removed replica (2) was added again, and
    needed head recovery at the next scrub, as the only voter without end.  The same holds for a new
    replica (3) that no checkpoint contains."""
    disk, store, rounds, _ = two_groups()
    rounds.run(GroupWrite(2, 1, 0, (), None, tombstone(2, 1, Tombstone(HardState(3, 2), 0, 1))))
    found = damaged_behind_an_index(disk, store, rounds)
    clear_all(store, found)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert not store.table.journal_damage.unattributed
    store.create_group(group, 1, VOTERS)
    if doubted:
        store.table.logs[group].damage.require_head_recovery("damage that an earlier start has met")
        put(store, store.repair.stage_clear(group, lambda: None))
    else:
        RepairCoordinator(1, store, None, partial(put, store)).on_replica_created(group)
    Rounds(store).run(write(group, hard_state=HardState(9, 1)))
    for _ in range(2):
        assert [*store.repair.quarantined_groups()] == []
        assert scrubbed(store) == []
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)


@pytest.mark.parametrize("found_by", ["the scrub", "a start"])
def test_a_new_replica_is_not_cleared_of_damage_where_a_crash_took_the_journals_end(found_by):
    """It was created behind records that were not on disk yet, a checkpoint said so, and its own
    term stands in their place now."""
    disk, store, rounds, _ = two_groups()
    rounds.stage(write(1, *[noop_entry(1, index, 1) for index in range(4, 14)]))
    store.create_group(3, 1, VOTERS)
    checkpoint(store)
    store.close()  # what was staged was never written
    store = open_store(disk.filesystem, DIRECTORY)
    at, rounds = store.table.journal.position, Rounds(store)
    rounds.run(write(3, hard_state=HardState(7, 2)))
    for _ in range(2):
        rounds.run(write(1, hard_state=HardState(9, 1)))
    disk.filesystem.overwrite(FIRST, at, bytes(64))
    if found_by == "a start":
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)
    else:
        found, = scrubbed(store)
        store.repair.suspect_all(found.begin, found.end, found.why)
    assert sorted(store.repair.quarantined_groups()) == [1, 2, 3]


def test_a_new_replica_is_cleared_again_by_a_checkpoint_that_contains_what_it_stands_behind():
    disk, store, rounds, _ = two_groups()
    staged = rounds.stage(write(1, *[noop_entry(1, index, 1) for index in range(4, 14)]))
    store.create_group(3, 1, VOTERS)
    checkpoint(store)
    age, = store.table.logs[3].damage.cleared_ranges
    put(store, staged)
    checkpoint(store)
    store.close()
    assert open_store(disk.filesystem, DIRECTORY).table.logs[3].damage.cleared_ranges == (age,)


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_replica_that_came_back_had_nothing_in_damage_from_while_it_was_away(restarts):
    """The same as for a new one: as the only voter of its group it would need head recovery without
    end."""
    disk, store, rounds, _ = two_groups()
    rounds.run(GroupWrite(2, 1, 0, (), None, tombstone(2, 1, Tombstone(HardState(3, 2), 0, 1))))
    at = store.table.journal.position
    for term in (4, 5):
        rounds.run(write(1, hard_state=HardState(term, 1)))
    disk.filesystem.overwrite(FIRST, at, bytes(64))
    store.create_group(2, 1, VOTERS)
    rounds.run(write(2, noop_entry(2, 1, 4), hard_state=HardState(4, 2)))
    repairer = RepairCoordinator(1, store, Compacted(1), partial(put, store))
    for found in scrubbed(store):
        repairer.on_damage(found)
    assert repairer.groups == {1}
    put(store, store.repair.stage_clear(1, lambda: None))
    for _ in range(restarts):
        store.close()
        store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == []
    assert scrubbed(store) == []


def test_an_earlier_replica_clears_nothing_that_only_others_were_cleared_of():
    """The damaged records may have truncated entries of it, which a later start without the index
    file would bring back."""
    disk, store, rounds, entries = two_groups()
    found = damaged_behind_an_index(disk, store, rounds)
    assert store.repair.suspect_all(found.begin, found.end, found.why) == [1, 2]
    put(store, store.repair.stage_clear(2, lambda: None))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert not [*store.repair.quarantined_groups()]
    store.repair.record_damage(1, 2, "found by the scrub")
    put(store, store.repair.stage_copies(1, [entries[1]], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    assert not [*store.repair.quarantined_groups()]
    assert [(each.begin, each.end) for each in scrubbed(store)] == [(found.begin, found.end)]


def test_damage_requires_head_recovery_only_of_the_replica_that_has_not_cleared_it():
    disk, store, rounds, _ = two_groups()
    first, second = (store.table.logs[1].index.position(at) for at in (1, 2))
    disk.filesystem.overwrite(FIRST, first + 64, bytes(second - first - 64))
    found, = scrubbed(store)
    assert store.repair.suspect_all(found.begin, found.end, found.why) == [1, 2]
    put(store, store.repair.stage_clear(1, lambda: None))
    store.table.logs[2].damage = DamageMap()  # as if it had not known of the place
    assert store.repair.suspect_all(found.begin, found.end, found.why) == [2]


@pytest.mark.parametrize("whose", ["an entry", "a term"])
def test_damage_of_a_replica_that_is_not_taken_up_yet_is_told_to_who_takes_it_up(whose):
    """A node takes its replicas up when the others know it, or when the metadata say who the
    members are; meanwhile its journal is scrubbed."""
    disk, store, _, _ = two_groups()
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    for group in (1, 2):
        store.create_group(group, 1, VOTERS)
    place = store.table.logs[1].index.position(2) + (64 if whose == "a term" else 0)
    disk.filesystem.overwrite(FIRST, place, bytes(64))
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    repairer = RepairCoordinator(1, store, core, partial(put, store))
    for found in scrubbed(store):
        repairer.on_damage(found)
    for group, restored in store.groups.items():
        core.add_group(group, 1, restored, store.partition_states[group])
    assert repairer.groups == {1, 2} if whose == "a term" else {1}
    for group in repairer.groups:
        assert core.status.of(group).quarantined
        assert core.repair.is_following(group) == (whose == "a term")
        repairer.step(group)


def test_an_answer_that_comes_between_a_replicas_removal_and_its_tombstone_is_for_nobody():
    """Its group was recovered by force meanwhile, or an operator took it away."""
    disk, store, _, _ = two_groups()
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.groups[1], store.partition_states[1])
    store.repair.record_damage(1, 2, "found by the scrub")
    repairer = RepairCoordinator(1, store, core, partial(put, store))
    wanted = store.repair.wanted(1, 8)
    core.remove_group(1)
    repairer.on_response(RepairResponse(1, 1, (), (), True, wanted, wanted))
    repairer.on_response(RepairResponse(1, 1, (), wanted, True, (), wanted))
    assert store.repair.wanted(1, 8) == wanted


def test_a_clear_record_is_void_when_more_damage_was_found_meanwhile():
    disk, store, _, _ = two_groups()
    store.repair.suspect_all(64, 72, "found by the scrub")
    assert [*store.repair.quarantined_groups()] == []  # an entry's own place
    at = store.table.logs[1].index.position(1) + 64
    store.repair.suspect_all(at, at + 72, "found by the scrub")
    staged = store.repair.stage_clear(1, lambda: None)
    store.repair.suspect_all(at + 72, at + 144, "found by the scrub")
    put(store, staged)
    assert store.repair.quarantined(1) is not None
    put(store, store.repair.stage_clear(1, lambda: None))
    assert store.repair.quarantined(1) is None


def test_truncated_entries_never_come_back_as_if_nothing_were_lost():
    """The record of the drop is lost; what was dropped and what replaced it stand there."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, *[noop_entry(1, index, 1) for index in (1, 2)]))
    rounds.run(write(1, *[noop_entry(1, index, 2) for index in (3, 4, 5)]))
    at = store.table.journal.position
    rounds.run(write(1, noop_entry(1, 3, 3), drop_from=3, hard_state=HardState(3, 2)))
    rounds.run(write(1, hard_state=HardState(4, 2)))
    disk.filesystem.overwrite(FIRST, at, bytes(64))
    found, = scrubbed(store)
    assert store.repair.suspect_all(found.begin, found.end, found.why) == [1]
    rounds.run(write(1, drop_from=4))  # as in head recovery, behind its last entry
    put(store, store.repair.stage_clear(1, lambda: None))
    rounds.run(write(1, noop_entry(1, 4, 4)))
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.groups[1].term_runs == ((1, 1), (3, 3), (4, 4))
    assert not again.groups[1].quarantined, "all was known when it was lifted"


def test_damage_of_compacted_entries_is_nothing_to_any_later_start():
    disk, store, rounds, _ = two_groups()
    position = store.table.logs[1].index.position(2)
    disk.put(FIRST, flipped(disk.read(FIRST), position + 20))
    named, = scrubbed(store)
    written = []

    def submit(staged) -> None:
        written.append(staged)
        put(store, staged)

    repairer = RepairCoordinator(1, store, Compacted(3), submit)
    repairer.on_damage(named)
    repairer.on_damage(named)
    assert len(written) == 1, "it is told once"
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[2].quarantined


def test_what_was_compacted_before_it_was_confirmed_is_in_question_at_every_start():
    """It may have been dropped, its leader has compacted it, and a lift says that all is well."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, *[noop_entry(1, index, 1) for index in (1, 2, 3)]))
    at = store.table.journal.position
    rounds.run(write(1, noop_entry(1, 3, 2), drop_from=3, hard_state=HardState(2, 2)))
    rounds.run(write(1, noop_entry(1, 4, 2)))
    end = store.table.journal.position - 64
    rounds.run(write(1, hard_state=HardState(2, 2)))
    store.close()
    disk.filesystem.overwrite(FIRST, at, bytes(end - at))
    for _ in range(2):
        store = open_store(disk.filesystem, DIRECTORY)
        state, = [known.state for known in store.table.logs[1].missing.values()]
        assert store.table.logs[1].damage.state_of(3) is state is EntryState.MAYBE_TRUNCATED
        repairer = RepairCoordinator(1, store, Compacted(4), partial(put, store))
        repairer.step(1)
        assert not store.table.logs[1].missing
        if repairer.groups:  # the first time it needs head recovery
            put(store, store.repair.stage_clear(1, lambda: None))
        assert not [*store.repair.quarantined_groups()]
        store.close()


class Compacted:
    """A core whose groups have forgotten what is below an index."""

    def __init__(self, first_index: int):
        self.status = self.repair = self  # as the views of a core
        self.first_index = first_index
        self.last_index = self.applied_index = 0  # no tail is read

    def groups(self) -> tuple[int, ...]:
        return (1,)

    def is_following(self, group: int) -> bool:
        return True

    def repaired(self, group: int) -> None:
        """It votes again."""

    def is_head_recovered(self, group: int) -> bool:
        return False

    def of(self, group: int) -> Compacted:
        return self

    def quarantine(self, group: int, why: str) -> None:
        """It votes no more."""

    def set_guessed_through(self, group: int, index: int) -> None:
        """Nothing is appended here."""

    def may_truncate(self, group: int, first_gone: int) -> bool:
        return True

    def truncate(self, group: int, first_gone: int) -> None:
        self.write(first_gone)


@pytest.mark.parametrize("then", ["at once", "sealed", "checkpoint", "lifted"])
def test_a_replica_that_gave_up_entries_needs_head_recovery_until_it_is_cleared(then):
    """Its leader has compacted what was damaged.  The entries behind that may be committed by its
    own acknowledgement, and after a restart nothing else tells that it ever had them."""
    disk, store, rounds, _ = two_groups()
    rounds.run(write(1, hard_state=HardState(4, 1)), write(2, hard_state=HardState(4, 1)))
    disk.put(FIRST, flipped(disk.read(FIRST), store.table.logs[1].index.position(2) + 20))
    named, = scrubbed(store)
    core = Compacted(1)
    core.write = lambda first_gone: rounds.run(write(1, drop_from=first_gone))
    repairer = RepairCoordinator(1, store, core, partial(put, store))
    repairer.on_damage(named)
    repairer.on_response(RepairResponse(1, 1, (), (), True, store.repair.wanted(1, 8),
                             store.repair.wanted(1, 8)))
    assert store.table.logs[1].index.last_index == 1
    if then == "checkpoint":
        checkpoint(store)
    elif then != "at once":
        while len(store.table.journal.segments) < 3:
            rounds.run(write(2, hard_state=HardState(9, 2)))
        seal(store)
    if then == "lifted":
        put(store, store.repair.stage_clear(1, lambda: None))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == [1] * (then != "lifted")
    assert store.groups[1].needs_head_recovery == (then != "lifted")
