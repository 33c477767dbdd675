"""Begin and end of head recovery by damage: neither records of past damage nor a lift that came too
early may end one or begin one."""

from __future__ import annotations

import random
from functools import partial

import pytest

from multiraft.raft import joint_quorum
from multiraft.raft.config import RaftConfig
from multiraft.raft.messages import Append, VoteRequest
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_health import Barrier
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.storage.damage.place import Place
from multiraft.storage.errors import CorruptJournalRange, CorruptRange
from multiraft.storage.journal.journal import Segment
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairRequest,
    RepairResponse,
    SendRequest,
)
from multiraft.storage.store import Store
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk, flipped
from tests.storage.repair.test_acknowledged_damage import put, scrubbed, two_groups
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_store,
    seal,
    write,
)


def test_damage_found_while_a_clear_record_is_written_needs_a_record_of_its_own():
    """The second lift went by what the leader had said before the damage was found."""
    _, store, _, entries = two_groups()
    for entry in entries:
        store.partition_states[1].append(entry)
    at = store.table.logs[1].index.position(1) + 64
    store.repair.suspect_all(at, at + 72, "found by the scrub")
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    for group in (1, 2):
        core.add_group(group, 1, store.create_group(group, 1, VOTERS),
                       store.partition_states[group])
    staged = []
    repairer = RepairCoordinator(1, store, core, staged.append)
    health = core._group(1).health
    health.quarantine("found by the scrub")
    assert health.begin_recovery(7) and health.grant(7, Barrier(3, 4))
    assert health.reach_barrier(3, 4)
    assert repairer.step(1) is None
    lift, = staged
    repairer.on_damage(CorruptJournalRange(at + 72, at + 144, "found by the scrub"))
    put(store, lift)
    assert store.repair.quarantined(1) is not None
    assert repairer.step(1) is None
    assert staged == [lift], "it was not cleared since"
    assert core.repair.is_following(1)


def test_a_void_clear_record_ends_no_permanent_quarantine_at_the_next_start():
    disk, store, _, _ = two_groups()
    store.repair.record_damage(1, 2, "found by a read")
    store.repair.forget_below(1, 3)
    staged = store.repair.stage_clear(1, lambda: None)
    store.table.logs[1].damage.quarantine_permanently("its history cannot be")
    checkpoint(store)
    put(store, staged)
    assert store.repair.quarantined(1).damage.is_permanent
    store.close()
    assert open_store(disk.filesystem, DIRECTORY).repair.quarantined(1).damage.is_permanent


def test_damage_of_what_is_compacted_before_consensus_tells_of_it_is_no_contradiction():
    """The store learns of a quarantine by consensus one turn later."""
    _, store, _, _ = two_groups()
    store.repair.record_damage(1, 2, "found by a read")
    store.repair.forget_below(1, 3)
    store.quarantine(1, "entry 2: found by a read")
    assert not store.repair.quarantined(1).damage.is_permanent


def test_what_was_missing_in_an_earlier_life_is_not_missed_in_a_later_one():
    disk, store, rounds, _ = two_groups()
    before = store.table.logs[1].index.position(2)
    store.repair.record_damage(1, 2, "found by a read")
    store.repair.require_head_recovery(1)
    checkpoint(store)
    rounds.run(GroupWrite(1, 1, 0, (), None, tombstone(1, 1, Tombstone(HardState(3, 2), 0, 1))))
    store.create_group(1, 1, VOTERS)
    for index in (1, 2, 3):
        rounds.run(write(1, noop_entry(1, index, 4), hard_state=HardState(4, 2)))
    rounds.run(write(2, hard_state=HardState(4, 2)))
    disk.filesystem.overwrite(FIRST, store.table.logs[1].index.position(2), bytes(64))
    store.close()
    log = open_store(disk.filesystem, DIRECTORY).table.logs[1]
    assert Place(0, before) not in [known.place for known in log.missing.values()]
    assert [*log.missing] == [2] and not log.damage.is_maybe_truncated(2)


def three_segments() -> tuple[Disk, Store, list[Segment]]:
    """Of the journal of two groups, the last one with an entry of its own."""
    disk, store, rounds, _ = two_groups()
    while len(store.table.journal.segments) < 3:
        rounds.run(write(2, hard_state=HardState(9, 2)))
    rounds.run(write(2, hard_state=HardState(9, 2)))
    return disk, store, store.table.journal.segments


def lose_first_entry(disk: Disk, segment: Segment) -> None:
    """It rots, and no index file tells of it."""
    disk.put(segment.path, flipped(disk.read(segment.path), 64 + 20))
    disk.filesystem.remove(segment.path.replace(".segment", ".index"))


def doubted_once_lifted(disk: Disk, store: Store) -> list[int]:
    """The groups that a start without index files doubts after both were lifted."""
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
    store.close()
    for path in disk.files():
        if path.endswith(".index"):
            disk.filesystem.remove(path)
    return [*open_store(disk.filesystem, DIRECTORY).repair.quarantined_groups()]


def test_loss_at_the_end_of_a_segment_is_found_by_every_start_until_it_is_cleared():
    """The start that found it wrote an index file that ended there.  When the first entry of the
    segment behind it rotted, too, the next start believed the file: the lift that followed settled
    the second place alone, and the first was doubted once more when the file was gone."""
    disk, store, (first, second, _) = three_segments()
    disk.filesystem.overwrite(first.path, first.end - 144, bytes(144))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == [1, 2]
    seal(store)
    store.close()
    lose_first_entry(disk, second)
    store = open_store(disk.filesystem, DIRECTORY)
    assert doubted_once_lifted(disk, store) == []


def test_a_full_segment_has_lost_nothing_when_the_first_entry_behind_it_is_lost():
    """Seed 790000030219: with the index file of the full segment a start knew where it ends, and a
    lift settled the lost entry.  Without that file the next start took the few bytes that were left
    there for a place of unknown damage, which no lift had named."""
    disk, store, (_, second, _) = three_segments()
    seal(store)
    store.close()
    lose_first_entry(disk, second)
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == [1, 2]
    assert doubted_once_lifted(disk, store) == []


def test_a_segment_that_has_to_be_scanned_has_lost_nothing_behind_the_end_of_its_index_file():
    """Seed 790000100545.  Group 2 was removed and added again, and a copy of the removed replica
    needs a scan.  That start took the space of one empty entry before the lost first entry of the
    next segment for a place of unknown damage, which no lift had named.  In a group of two voters
    no leader could be elected."""
    disk, store, rounds, _ = two_groups()
    entry = noop_entry(2, 1, 1)
    rounds.run(write(2, entry))
    store.repair.record_damage(2, 1, "found by a read")
    put(store, store.repair.stage_copies(2, [entry], lambda: None))
    put(store, store.repair.stage_clear(2, lambda: None))
    for _ in range(2):
        store.table.journal.start_segment()
        for _ in range(2):
            rounds.run(write(1, hard_state=HardState(9, 2)))
    assert seal(store) == 2
    first, second, _ = store.table.journal.segments
    assert second.start - first.end >= 64, "an empty entry might have stood there"
    disk.put(second.path, flipped(disk.read(second.path), 64 + 20))
    disk.filesystem.remove(second.path.replace(".segment", ".index"))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    store.partition_states[2].apply(1)
    checkpoint(store)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.recovered.indexed_segments == 1
    assert store.table.journal_damage.unattributed == ((Place(4096, 64), Place(4096, 136)),)
    assert [*store.repair.quarantined_groups()] == [1, 2]
    for group in (1, 2):
        put(store, store.repair.stage_clear(group, lambda: None))
    Rounds(store).run(GroupWrite(2, 1, 0, (), None,
                                 tombstone(2, 1, Tombstone(HardState(3, 2), 0, 1))))
    store.create_group(2, 1, VOTERS)
    checkpoint(store)
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == []


@pytest.mark.parametrize("then", ["dropped", "dropped in a later segment", "removed",
                                  "removed in a later segment", "reborn"])
def test_a_damaged_copy_of_a_truncated_entry_is_obsolete(then):
    """The scrub passes it over, no log points to it.  The next start doubted every replica, as if
    the copy were all that tells of an entry."""
    disk, store, rounds, _ = two_groups()
    batch = data_entry(1, 4, 3, 7, 0, [b"what is dropped"])
    rounds.run(write(1, batch))
    store.repair.record_damage(1, 4, "found by a read")
    put(store, store.repair.stage_copies(1, [batch], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    copy = store.table.logs[1].index.position(4)
    if then.endswith("later segment"):
        store.table.journal.start_segment()
    if then.startswith("dropped"):
        rounds.run(write(1, drop_from=4))
    elif then.startswith("removed"):
        rounds.run(GroupWrite(1, 1, 0, (), None, tombstone(1, 1, Tombstone(HardState(3, 2), 0, 1))))
    else:
        store.create_group(1, 2, VOTERS)
        rounds.run(write(1, noop_entry(1, 1, 4, 2), hard_state=HardState(4, 2), incarnation=2))
    for _ in range(2):
        rounds.run(write(2, hard_state=HardState(9, 2)))
    disk.put(FIRST, flipped(disk.read(FIRST), copy + 64 + 70))
    assert scrubbed(store) == []
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    assert [*store.repair.quarantined_groups()] == []


class Deposed:
    """A core that leads, as far as it knows."""

    def __init__(self):
        self.status = self  # as core.status

    def has_applied_in_term(self, group: int) -> bool:
        return True


@pytest.mark.parametrize("asker", [2, 3, 4])
def test_who_leads_an_earlier_term_does_not_know_what_was_never_committed(asker):
    """It has not heard yet that it was deposed, and of what is committed since.  An asker that was
    just started does not know it either, and gave that up with all that follows."""
    _, store, rounds, _ = two_groups()
    rounds.run(write(1, hard_state=HardState(3, 1)))
    leader = RepairCoordinator(1, store, Deposed(), lambda staged: None)
    jobs, answer = leader.copies_for(RepairRequest(1, 1, ((2, 1), (4, 2)), asker))
    assert len(jobs) == 1 and answer.absent == ((4, 2),)
    assert answer.leads == (asker <= 3)


def test_who_asks_for_lost_entries_says_in_which_term_it_is():
    _, store, rounds, _ = two_groups()
    rounds.run(write(1, hard_state=HardState(5, 1)))
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.create_group(1, 1, VOTERS), store.partition_states[1])
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    repairer.on_damage(CorruptRange(1, 2, "found by a read"))
    assert repairer.step(1).request == RepairRequest(1, 1, ((2, 1),), 5)


def before_a_hole(disk: Disk, *entries: Entry) -> Store:
    """A start of a store that has these entries of group 1 applied, and a hole behind them in which
    the rest of the log was."""
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for entry in entries:
        rounds.run(write(1, entry, hard_state=HardState(entry.term, 0)))
        store.partition_states[1].append(entry)
    store.partition_states[1].apply(len(entries))
    checkpoint(store, {1: len(entries)})
    lost = noop_entry(1, len(entries) + 1, 2)
    rounds.run(write(1, lost, hard_state=HardState(2, 0)))
    rounds.run(write(1, noop_entry(1, lost.index + 1, 2)))
    disk.filesystem.overwrite(FIRST, store.table.logs[1].index.position(lost.index), bytes(64))
    store.close()
    return open_store(disk.filesystem, DIRECTORY)


def test_the_leader_is_asked_though_the_log_that_is_left_does_not_name_it():
    """All members that it named had been replaced since, and were gone permanently: no other member
    was asked for the committed entries at the log's end.  Seed 790000003857."""
    joint = Configuration((1, 2, 3), (), (1, 2))
    change = Entry(EntryKind.MEMBERSHIP, 1, 1, 1, 2, payload=joint_quorum.encode(joint))
    store = before_a_hole(Disk(), noop_entry(1, 1, 1), change)
    assert store.repair.wanted(1, 8) == ((2, 0),)
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.groups[1], store.partition_states[1])
    staged = []
    repairer = RepairCoordinator(1, store, core, staged.append)
    assert {repairer.step(1).peer for _ in range(6)} == {2, 3}
    core.step(7, Append(1, 1, 5, 9, 4, 9, 9, (), 1))
    assert {repairer.step(1).peer for _ in range(6)} == {2, 3, 7}
    repairer.on_response(
        RepairResponse(1, 1, (change,), (), True, wanted=store.repair.wanted(1, 8))
    )
    put(store, staged.pop())
    assert repairer.step(1) is None
    assert core.repair.is_following(1), "the leader brings the rest"


def test_who_asks_for_its_vote_is_asked_though_the_log_that_is_left_does_not_name_it():
    """The damaged entry names the remaining members, and they need its vote: the group has no
    leader."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    changes = [Entry(EntryKind.MEMBERSHIP, 1, 1, 1, number, payload=joint_quorum.encode(each))
               for number, each in enumerate([VOTERS, Configuration((1, 7))], 1)]
    for entry in (*changes, noop_entry(1, 3, 1)):
        rounds.run(write(1, entry, hard_state=HardState(1, 0)))
    place = store.table.logs[1].index.position(2)
    disk.put(FIRST, flipped(disk.read(FIRST), place + 64 + 2))
    store.close()
    store = open_store(disk.filesystem, DIRECTORY)
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.groups[1], store.partition_states[1])
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    assert {repairer.step(1).peer for _ in range(6)} == {2, 3}
    core.step(7, VoteRequest(1, 1, 2, 3, 1, True, False))
    assert {repairer.step(1).peer for _ in range(6)} == {2, 3, 7}


def test_what_its_leader_had_when_it_was_damaged_and_has_compacted_since_is_given_up():
    """It did not know that the entry is committed.  Entries that its leader has were never given
    up, even if no member had them; so it stayed out as long as that leader led."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in (1, 2, 3):
        rounds.run(write(1, noop_entry(1, index, 1), hard_state=HardState(1, 2)))
        store.partition_states[1].append(noop_entry(1, index, 1))
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.create_group(1, 1, VOTERS), store.partition_states[1])
    core.step(2, Append(1, 1, 1, 3, 1, 3, 1, (), 1))
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    repairer.on_damage(CorruptRange(1, 2, "found by a read"))
    wanted = repairer.step(1).request.wanted
    repairer.on_response(RepairResponse(1, 1, (), (), True, wanted, wanted))
    assert core.status.of(1).last_index == 1
    core._check()


@pytest.mark.parametrize("applied", [2, 3, 4])
def test_what_is_applied_and_compacted_by_any_member_is_forgotten_without_a_leader(applied):
    """Seed 790000005216: a voter had damaged entries that it had applied and all others compacted.
    Only a leader's statement was accepted for that, and without its vote the group had no
    leader."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 6):
        rounds.run(write(1, noop_entry(1, index, index), hard_state=HardState(index, 2)))
        store.partition_states[1].append(noop_entry(1, index, index))
    store.partition_states[1].apply(applied)
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    restored = store.create_group(1, 1, VOTERS)._replace(commit=5, applied=applied)
    core.add_group(1, 1, restored, store.partition_states[1])
    repairer = RepairCoordinator(1, store, core, partial(put, store))
    for index in (2, 3):
        repairer.on_damage(CorruptRange(1, index, "found by a read"))
    wanted = repairer.step(1).request.wanted
    repairer.on_response(RepairResponse(1, 1, (), (), False, wanted, wanted))
    core._check()
    if applied < 4:
        assert core.status.of(1).first_index == 1, "the term before the log's beginning is not sure"
        assert isinstance(repairer.step(1), SendRequest)
        return
    assert (core.status.of(1).first_index, core.status.of(1).last_index) == (5, 5)
    repairer.step(1)
    assert store.repair.quarantined(1) is None, "its end is known, so it is in no doubt"
    assert not core.status.of(1).quarantined
    assert 1 not in repairer.groups


def test_what_was_forgotten_is_in_the_way_of_no_start_once_what_is_behind_it_is_applied():
    """Seed 790000011418: a start has what was compacted in its log again, and missed it, while
    the last checkpoint had applied nothing behind it.  It took a leader's word each time."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    for index in range(1, 4):
        rounds.run(write(1, noop_entry(1, index, index), hard_state=HardState(index, 2)))
        store.partition_states[1].append(noop_entry(1, index, index))
    store.partition_states[1].apply(2)
    assert not store.checkpoint_due, "what was written is too little for one"
    store.repair.record_damage(1, 2, "found by a read")
    assert store.repair.forget_below(1, 3) == [2]
    assert not store.checkpoint_due, "it would have applied nothing behind it"
    store.partition_states[1].apply(3)
    assert store.checkpoint_due
    store.checkpoint_job({}, None)
    assert not store.checkpoint_due, "one at a time"
    store.checkpoint_failed()
    assert store.checkpoint_due, "the one that found no room is none"
    job = store.checkpoint_job({}, None)
    job.execute()
    store.checkpointed(job)
    assert not store.checkpoint_due
