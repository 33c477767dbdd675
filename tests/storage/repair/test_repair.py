"""A damaged replica gets back what it lost, keeps it across restarts, and says so no earlier."""

from __future__ import annotations

import pytest

from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.raft_log import RaftLog
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.storage.errors import CorruptJournalRange, CorruptRange
from multiraft.storage.repair.coordinator import (
    RepairCoordinator,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.store import Store
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage.damage import (
    DIRECTORY,
    FIRST,
    Disk,
    flipped,
    flips,
    long_journal,
    model_position,
    small_journal,
)
from tests.storage.model import comparable, observed, readable
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    noop_entry,
    open_store,
    seal,
    write,
)


def entries_of(store, group: int) -> list[Entry]:
    last = store.groups[group].bounds.last_index
    return list(store.read_job(group, 1, last).execute())


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
    """Follow the leader like a replica in head recovery: truncate behind the log's end, accept
    appends."""
    rounds = Rounds(store)
    for group in sorted(store.repair.quarantined_groups()):
        log = store.repair.quarantined(group)
        if log.damage.needs_head_recovery:
            last = log.index.last_index
            common = next((index for index, entry in enumerate(peer_entries[group][:last])
                           if log.index.term(index + 1) != entry.term),
                          min(last, len(peer_entries[group])))
            rounds.run(write(group, *peer_entries[group][common:], drop_from=common + 1,
                             hard_state=hard_states[group]))


def lift_all(store) -> None:
    for group in sorted(store.repair.quarantined_groups()):
        put(store, store.repair.stage_clear(group, lambda: None))


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


def test_any_damage_of_a_journal_can_be_repaired_for_good():
    disk, model, _ = small_journal()
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


def test_a_repaired_batch_is_served_again_also_from_its_index_file():
    disk, _ = long_journal(with_checkpoint=True)
    healthy = open_store(disk.restored(disk.files()).filesystem, DIRECTORY)
    originals = entries_of(healthy, 1)
    position = healthy.table.logs[1].index.position(5)
    disk.put(FIRST, flipped(disk.read(FIRST), position + 64 + 80))
    store = open_store(disk.filesystem, DIRECTORY)
    with pytest.raises(CorruptRange):
        store.read_job(1, 5, 5).execute()
    assert store.repair.record_damage(1, 5, "found by a read")
    assert not store.repair.record_damage(1, 5, "found once more")
    store.create_group(1, 1, VOTERS)
    copy_missing(store, {1: originals})
    lift_all(store)
    checkpoint(store, {1: 38}, 38)
    seal(store)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[1].quarantined
    assert entries_of(again, 1) == originals
    fetched = again.fetch(1, 100, 3, 1 << 20, 10)
    assert fetched.job is not None
    fetched.job.execute()


def test_what_is_missing_is_remembered_by_the_checkpoint():
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.repair.record_damage(1, 5, "found by a read")
    checkpoint(store, {1: 38}, 38)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert again.groups[1].quarantined
    assert [*again.repair.quarantined(1).missing] == [5]
    with pytest.raises(CorruptRange):
        again.read_job(1, 3, 8).execute()


def test_copies_of_another_term_are_refused():
    disk, _, _ = small_journal()
    at = model_position(disk, 5) + 64 + 61
    disk.put(FIRST, flipped(disk.read(FIRST), at))
    store = open_store(disk.filesystem, DIRECTORY)
    missing, = store.repair.quarantined(1).missing
    true = readable(store, 1, missing)
    assert true is None
    other = Entry(2, 1, 1, 9, missing)
    assert store.repair.stage_copies(1, [other], lambda: None) is None
    assert [*store.repair.quarantined(1).missing] == [missing]


@pytest.mark.parametrize("pieces", [((2, 3), (4,), (5,), (6,)), ((2,), (3,), (4, 5), (6,)),
                                    ((2, 3, 4, 5, 6),)])
def test_terms_never_fall_while_entries_of_unknown_term_are_repaired_in_parts(pieces):
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    originals = [noop_entry(1, index, term)
                 for index, term in enumerate((1, 1, 2, 2, 3, 3, 4, 4), 1)]
    for entry in originals:
        store.partition_states[1].append(entry)
        rounds.run(write(1, entry))
    store.partition_states[1].apply(len(originals))
    checkpoint(store, {1: len(originals)}, len(originals))
    lost = range(store.table.logs[1].index.position(3), store.table.logs[1].index.position(7))
    store.close()
    disk.filesystem.overwrite(FIRST, lost.start, bytes(len(lost)))
    for piece in pieces:
        store = open_store(disk.filesystem, DIRECTORY)
        restored = store.create_group(1, 1, VOTERS)
        RaftLog(restored.bounds, restored.term_runs, restored.commit, restored.applied)
        log = store.repair.quarantined(1)
        copies = [originals[index - 1] for index in piece]
        put(store, store.repair.stage_copies(1, copies, lambda: None))
        log.index._check()
        assert [log.index.term(index) for index in piece] == [copy.term for copy in copies]
        store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert entries_of(again, 1) == originals


def membership_entry(index: int, term: int, configuration: Configuration) -> Entry:
    return Entry(
        EntryKind.MEMBERSHIP, 1, 1, term, index, payload=joint_quorum.encode(configuration)
    )


def repaired_members(disk: Disk, *given: Entry) -> Configuration:
    """Those that a replica of three entries knows when a peer gave these."""
    store = open_store(disk.filesystem, DIRECTORY)
    core = Core({1: store.create_group(1, 1, VOTERS).configuration})
    core.last_index, core.status.applied_index = 3, 2
    repairer = RepairCoordinator(1, store, core, lambda staged: put(store, staged))
    for _ in range(2):
        wanted = store.repair.wanted(1, 9)
        repairer.on_response(RepairResponse(1, 1, given, (), True, wanted=wanted))
    repairer.on_replay_read(1, repairer.step(1).job.execute())
    assert core.status.of(1).configuration == store.table.logs[1].configuration
    store.close()
    return core.status.of(1).configuration


def test_who_the_members_are_is_known_again_when_that_was_lost():
    """A start cannot read it, and a replica that came back with the configuration before that would
    count majorities of others."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds, others = Rounds(store), Configuration((1, 4, 5))
    change = membership_entry(2, 1, others)
    rounds.run(write(1, noop_entry(1, 1, 1), change, noop_entry(1, 3, 1)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    at = store.table.logs[1].index.position(2)
    store.close()
    disk.put(FIRST, flipped(disk.read(FIRST), at + 20))
    assert repaired_members(disk, change) == others


def test_a_truncated_change_of_members_is_forgotten_when_the_truncation_is_learned():
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, noop_entry(1, 1, 1), membership_entry(2, 1, Configuration((1, 4, 5)))))
    begin = store.table.journal.position
    rounds.run(write(1, noop_entry(1, 2, 2), drop_from=2))
    end = store.table.journal.position
    rounds.run(write(1, noop_entry(1, 3, 2)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    store.close()
    disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
    assert repaired_members(disk, noop_entry(1, 1, 1), noop_entry(1, 2, 2)) == VOTERS


def test_a_clear_record_is_void_while_an_entry_is_missing():
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    store.repair.record_damage(1, 5, "found by a read")
    staged = store.repair.stage_clear(1, lambda: None)
    store.repair.record_damage(1, 6, "found meanwhile")
    put(store, staged)
    assert store.repair.quarantined(1) is not None


def test_a_second_repair_keeps_the_ranges_that_the_first_has_cleared():
    """Else the next scrub doubts all groups once more, perhaps while another node is damaged."""
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    intact = entries_of(store, 1)
    store.repair.suspect_all(500, 600, "found by the scrub")
    lift_all(store)
    checkpoint(store, {1: 38}, 38)
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)  # the checkpoint is behind the hole
    assert again.repair.is_damage_cleared(500, 600)
    assert again.repair.record_damage(1, 5, "found by a read")
    copy_missing(again, {1: intact})
    lift_all(again)
    assert again.repair.is_damage_cleared(500, 600)
    again.close()
    once_more = open_store(disk.filesystem, DIRECTORY)
    assert once_more.repair.is_damage_cleared(500, 600)
    assert not once_more.repair.is_damage_cleared(550, 650), "damage elsewhere is news"


def test_a_replica_that_contradicts_its_leader_is_out_for_good():
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    store.quarantine(1, "entry 41 of node 2: unexpected offset")
    assert store.repair.quarantined(1).damage.is_permanent
    checkpoint(store, {1: 38}, 38)
    store.close()
    assert open_store(disk.filesystem, DIRECTORY).repair.quarantined(1).damage.is_permanent


def test_a_group_that_is_created_in_a_damaged_journal_has_to_be_cleared():
    disk, _, _ = small_journal()
    disk.put(FIRST, flipped(disk.read(FIRST), model_position(disk, 1) + 20))
    store = open_store(disk.filesystem, DIRECTORY)
    restored = store.create_group(7, 1, VOTERS)
    assert restored.quarantined and restored.needs_head_recovery
    assert restored.hard_state == HardState(0, 0)


@pytest.mark.parametrize("then_dropped", [False, True])
def test_a_copy_of_a_logs_last_entry_is_found_by_the_next_start(then_dropped):
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    first = noop_entry(1, 1, 1)
    rounds.run(write(1, first, hard_state=HardState(1, 1)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    place = store.table.logs[1].index.position(1)
    disk.put(FIRST, flipped(disk.read(FIRST), place + 14))
    assert store.repair.record_damage(1, 1, "found by the scrub")
    put(store, store.repair.stage_copies(1, [first], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    if then_dropped:
        rounds.run(write(1, drop_from=1))
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[1].quarantined
    assert again.groups[1].bounds.last_index == (0 if then_dropped else 1)
    if not then_dropped:
        assert again.read_job(1, 1, 1).execute() == (first,)


def test_copies_of_an_earlier_incarnation_are_none_of_the_logs():
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    entries = [noop_entry(1, index, 1) for index in (1, 2, 3)]
    rounds.run(write(1, *entries, hard_state=HardState(1, 1)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    place = store.table.logs[1].index.position(3)
    disk.put(FIRST, flipped(disk.read(FIRST), place + 14))
    assert store.repair.record_damage(1, 3, "found by the scrub")
    put(store, store.repair.stage_copies(1, [entries[2]], lambda: None))
    put(store, store.repair.stage_clear(1, lambda: None))
    while len(store.table.journal.segments) < 2:
        rounds.run(write(1, hard_state=HardState(2, 1)))
    store.create_group(1, 2, VOTERS)
    rounds.run(write(1, incarnation=2, hard_state=HardState(1, 1)))  # it has no entry yet
    rounds.run(write(1, incarnation=2, hard_state=HardState(2, 1)))
    store.close()
    again = open_store(disk.filesystem, DIRECTORY)
    assert not again.groups[1].quarantined
    assert again.groups[1].bounds.last_index == 0


class Core:
    """Part of consensus that the repair coordinator calls."""

    def __init__(self, groups: dict[int, Configuration], leader: int = 0):
        self.status = self.repair = self  # as the views of a core
        self._groups = groups
        self._leader = leader
        self.quarantined: list[int] = []
        self.forgotten: list[tuple[int, int]] = []
        self.first_index = 1
        self.last_index = 1 << 40
        self.applied_index = 0

    def groups(self):
        return tuple(self._groups)

    def compacted(self, group: int, first_index: int) -> None:
        self.first_index = first_index

    def of(self, group: int):
        class Status:
            configuration = self._groups[group]
            leader, vote_requester = self._leader, 0
            first_index = self.first_index
            last_index = self.last_index
            applied_index = commit = self.applied_index
        return Status

    def quarantine(self, group: int, why: str) -> None:
        assert group in self._groups, f"group {group} is not here"
        self.quarantined.append(group)

    def may_truncate(self, group: int, first_gone: int) -> bool:
        return first_gone > self.applied_index

    def truncate(self, group: int, first_gone: int) -> None:
        self.forgotten.append((group, first_gone))

    def is_head_recovered(self, group: int) -> bool:
        return False

    def is_following(self, group: int) -> bool:
        return True

    def set_term_runs(self, group: int, runs) -> None:
        assert group in self._groups, f"group {group} is not here"

    def set_configurations(self, group: int, configurations) -> None:
        self._groups[group] = configurations[-1][1]

    def set_guessed_through(self, group: int, index: int) -> None:
        assert group in self._groups, f"group {group} is not here"
        self.guessed_through = index


def repaired_but_for_the_tail() -> tuple[Store, Core, RepairCoordinator]:
    """Of five entries the second was damaged; its copy is there, and the tail ends before it."""
    disk = Disk()
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    entries = [noop_entry(1, index, 1) for index in range(1, 6)]
    rounds.run(write(1, *entries, hard_state=HardState(1, 1)))
    rounds.run(write(1, hard_state=HardState(2, 1)))
    place = store.table.logs[1].index.position(2)
    store.close()
    disk.put(FIRST, flipped(disk.read(FIRST), place + 14))
    store = open_store(disk.filesystem, DIRECTORY)
    assert store.repair.wanted(1, 9) == ((2, 1),)
    put(store, store.repair.stage_copies(1, [entries[1]], lambda: None))
    core = Core({1: VOTERS})
    core.last_index = 5
    return store, core, RepairCoordinator(1, store, core, lambda staged: None)


def test_entries_that_consensus_has_truncated_are_not_replayed():
    """It stands in the store until the next round is staged.  Seed 549488459653: the tail took it
    behind what had replaced it, and the replica was lost for good."""
    store, core, repairer = repaired_but_for_the_tail()
    core.last_index = 3
    action = repairer.step(1)
    assert isinstance(action, ReplayEntries)
    repairer.on_replay_read(1, action.job.execute())
    assert store.partition_states[1].last_index == 3
    assert not isinstance(repairer.step(1), ReplayEntries), "it waits for the round"


def test_entries_truncated_while_they_are_read_are_not_replayed():
    store, core, repairer = repaired_but_for_the_tail()
    read = repairer.step(1).job.execute()
    assert [entry.index for entry in read] == [2, 3, 4, 5]
    core.last_index = 4
    repairer.on_replay_read(1, read)
    assert store.partition_states[1].last_index == 4
    store, core, repairer = repaired_but_for_the_tail()
    read = repairer.step(1).job.execute()
    Rounds(store).run(write(1, noop_entry(1, 4, 2), drop_from=4))
    core.last_index = 4
    repairer.on_replay_read(1, read)
    assert store.partition_states[1].last_index == 3
    assert not store.table.logs[1].damage.is_permanent


def remove_replica(rounds: Rounds, group: int) -> None:
    """The replica's life ends."""
    mark = tombstone(group, 1, Tombstone(HardState(3, 2), 5, 1))
    rounds.run(GroupWrite(group, 1, 0, (), None, mark))


def test_damage_of_unknown_ownership_is_nothing_to_a_replica_that_was_removed():
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    remove_replica(Rounds(store), 2)
    core = Core({1: VOTERS})
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    at = model_position(disk, 2)  # a hard state
    repairer.on_damage(CorruptJournalRange(at, at + 72, "found by the scrub"))
    assert core.quarantined == [1]
    assert repairer.groups == {1}


def test_a_replica_that_begins_in_head_recovery_is_under_repair():
    disk, _, _ = small_journal()
    disk.put(FIRST, flipped(disk.read(FIRST), model_position(disk, 1) + 20))
    store = open_store(disk.filesystem, DIRECTORY)
    repairer = RepairCoordinator(1, store, Core({}), lambda staged: None)
    repairer.groups.clear()  # as when all that were there have been cleared
    store.create_group(7, 1, Configuration(()))
    repairer.on_replica_created(7)
    assert repairer.groups == {7}


def test_who_knows_no_members_asks_the_leader():
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    store.repair.record_damage(1, 3, "found by a read")
    nobody = Configuration(())
    assert RepairCoordinator(1, store, Core({1: nobody}), lambda staged: None).step(1) is None
    asked = RepairCoordinator(1, store, Core({1: nobody}, leader=3), lambda staged: None).step(1)
    assert isinstance(asked, SendRequest) and asked.peer == 3


def test_what_the_leader_has_compacted_is_given_up_for_its_snapshot():
    """No member has the entry: a snapshot replaces it.  Seed 346722026736, where it was damaged
    together with the checkpoint that made it needless here."""
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    store.repair.record_damage(2, 3, "found by the scrub")
    core = Core({1: VOTERS, 2: VOTERS})
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    wanted = store.repair.wanted(2, 8)
    repairer.on_response(RepairResponse(2, 1, (), (), False, wanted, wanted))
    assert not core.forgotten, "whoever does not lead may be behind"
    repairer.on_response(RepairResponse(2, 1, (), (), True, wanted, wanted))
    assert core.forgotten == [(2, 3)]
    assert store.table.logs[2].damage.needs_head_recovery, (
        "it may not be counted before the leader clears it"
    )


def test_what_is_applied_and_compacted_by_the_leader_is_forgotten():
    """The state stands for it here, too."""
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    store.partition_states[2].apply(2)
    store.repair.record_damage(2, 2, "found by the scrub")  # it opens a partition
    core = Core({1: VOTERS, 2: VOTERS})
    core.status.applied_index = 2
    written = []
    repairer = RepairCoordinator(1, store, core, written.append)
    wanted = store.repair.wanted(2, 8)
    repairer.on_response(RepairResponse(2, 1, (), (), True, wanted, wanted))
    assert not core.forgotten and core.first_index == 3
    assert repairer.step(2) is None and not store.repair.quarantined(2).missing
    assert len(written) == 1, "nobody needs what stood there"
    assert store.table.logs[2].damage.needs_head_recovery, (
        "the term of its last entry is perhaps another one"
    )


def test_a_peer_tells_what_it_has_compacted():
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    last = store.groups[2].bounds.last_index
    tail = PartitionStates(2)
    for index in range(1, last + 1):
        tail.append(noop_entry(2, index, 1))
    tail.apply(last)
    store.install(2, LogBounds(last + 1, 1, last), 0, VOTERS, tail)
    wanted = [(1, 1), (last, 1), (last + 1, 1)]
    assert store.repair.compacted(2, wanted) == wanted[:2]
    assert store.repair.absent(2, wanted) == wanted[2:]


def test_a_replica_may_be_removed_while_its_copies_are_written():
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    intact = entries_of(store, 2)
    store.repair.record_damage(2, 3, "found by a read")
    core, submitted = Core({1: VOTERS, 2: VOTERS}), []
    repairer = RepairCoordinator(1, store, core, submitted.append)
    repairer.groups.add(2)
    repairer.on_response(
        RepairResponse(2, 1, (intact[2],), (), True, wanted=((3, intact[2].term),))
    )
    del core._groups[2]
    put(store, submitted.pop())
    assert not repairer._writing


def test_damage_under_a_misdirected_write_is_found():
    """An intact entry stands where others were: it was not written there."""
    disk, _ = long_journal(with_checkpoint=True)
    store = open_store(disk.filesystem, DIRECTORY)
    index = store.table.logs[1].index
    journal = store.table.journal
    source, victim = 3, 12
    segment = journal.segment_of(index.position(victim))
    assert index.position(source) < index.position(victim)
    early = journal.segment_of(index.position(source))
    at = index.position(source) - early.start
    data = disk.read(early.path)[at:at + index.size(source)]
    image = bytearray(disk.read(segment.path))
    to = index.position(victim) - segment.start - 8  # from within the entry before, over its head
    image[to:to + len(data)] = data
    image[index.position(victim - 1) - segment.start + 20] ^= 1  # a scan resumes behind that one
    disk.put(segment.path, bytes(image))
    scrubber, found = Scrubber(store), set()
    while (job := scrubber.next_job()) is not None:
        job.execute()
        found |= {error.index for error in scrubber.done(job)}
    unreadable = set()
    for each in range(1, index.last_index + 1):
        try:
            store.read_job(1, each, each).execute()
        except CorruptRange:
            unreadable.add(each)
    assert victim in unreadable
    assert found >= unreadable


def test_damage_of_compacted_entries_is_not_missed():
    """Every peer may have compacted them: requests for copies would be repeated without end."""
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    store.partition_states[1].apply(2)
    core, submitted = Core({1: VOTERS, 2: VOTERS}), []
    repairer = RepairCoordinator(1, store, core, submitted.append)
    repairer.on_damage(CorruptRange(1, 2, "found by the scrub"))
    assert isinstance(repairer.step(1), SendRequest)
    core.first_index = 3
    assert repairer.step(1) is None
    assert len(submitted) == 1, "what stood there is written"
    assert store.checkpoint_due
    checkpoint(store, {1: 2})
    assert repairer.step(1) is None
    assert len(submitted) == 2, "and it is lifted, as every checkpoint has the Raft start"
    repairer.on_damage(CorruptRange(2, 2, "found by the scrub"))
    assert 2 not in repairer.groups
