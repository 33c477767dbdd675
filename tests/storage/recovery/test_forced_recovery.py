"""Damage in a group that was recovered by force: what tells of its incarnation may be what is lost,
and replicas of the one before have other entries under the same (index, term)."""

from __future__ import annotations

import random

import pytest

from multiraft.raft import joint_quorum
from multiraft.raft.config import RaftConfig
from multiraft.raft.messages import Append
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import ForcedRecovery, Tombstone, reincarnation, tombstone
from multiraft.storage.errors import CorruptRange
from multiraft.storage.repair.coordinator import RepairCoordinator, RepairResponse
from multiraft.storage.store import Store
from multiraft.storage.stored_log import NO_CONFIGURATION
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk, flipped
from tests.storage.repair.test_acknowledged_damage import put, scrubbed
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    write,
)

ALONE = Configuration((1,))


def begun(disk: Disk) -> tuple[Store, Rounds, list[Entry]]:
    """A store with four entries of group 1, two of which are applied, as its checkpoint knows."""
    store = open_store(disk.filesystem, DIRECTORY)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    entries = [noop_entry(1, 1, 1), open_entry(1, 2, 1, 7),
               data_entry(1, 3, 1, 7, 0, [b"acknowledged"]), noop_entry(1, 4, 1)]
    for entry in entries:
        rounds.run(write(1, entry, hard_state=HardState(1, 2)))
        store.partition_states[1].append(entry)
    store.partition_states[1].apply(2)
    checkpoint(store, {1: 2})
    return store, rounds, entries


def recovered(rounds: Rounds, *named: int) -> int:
    """Continue group 1 from here in incarnation 2, alone, and then with the named nodes; return the
    position of the record of that."""
    mark = reincarnation(1, 1, 4, ForcedRecovery(2, ALONE))
    place = rounds.store.table.journal.position
    rounds.run(GroupWrite(1, 1, 0, (), HardState(2, 0), mark))
    later = [noop_entry(1, 5, 3)]
    if named:
        later.append(Entry(EntryKind.MEMBERSHIP, 1, 1, 3, 6,
                           payload=joint_quorum.encode(Configuration(named))))
    for entry in later:
        rounds.run(write(1, entry, hard_state=HardState(3, 1)))
    return place


def started(disk: Disk) -> tuple[Store, MultiRaft, RepairCoordinator, list]:
    """The node's next life; and what is staged there."""
    store, staged = open_store(disk.filesystem, DIRECTORY), []
    core = MultiRaft(1, RaftConfig(), store, random.Random(1), 0)
    core.add_group(1, 1, store.groups[1], store.partition_states[1])
    return store, core, RepairCoordinator(1, store, core, staged.append), staged


def round_of(store: Store, core: MultiRaft) -> None:
    """All that consensus wants written is."""
    rounds = Rounds(store)
    while ready := core.ready():
        if ready.writes is not None:
            rounds.run(*ready.writes.groups)
            core.written(ready.writes.sequence)


def test_a_survivor_gives_up_what_stands_before_where_it_was_recovered():
    """The index of its members is the end of the log that it continued from, which need not have
    been applied.  When all other members had compacted the damaged entries there, the group had no
    members, and its node ended at each of its starts."""
    disk = Disk()
    store, rounds, _ = begun(disk)
    recovered(rounds, 1, 2, 3)
    place = store.table.logs[1].index.position(3)
    store.close()
    disk.put(FIRST, flipped(disk.read(FIRST), place + 64 + 70))
    store, core, repairer, staged = started(disk)
    assert core.status.of(1).configuration == Configuration((1, 2, 3))
    core.step(2, Append(1, 2, 4, 9, 4, 9, 9, (), 1))
    wanted = repairer.step(1).request.wanted
    assert wanted == ((3, 1),)
    repairer.on_response(RepairResponse(1, 2, (), (), True, wanted, wanted))
    put(store, staged.pop())
    round_of(store, core)
    assert core.status.of(1).last_index == 2
    assert core.status.of(1).configuration == ALONE
    core._check()
    assert repairer.step(1) is None
    assert core.repair.is_following(1), "its leader's snapshot brings the rest"
    store.close()
    _, core, _, _ = started(disk)
    assert core.status.of(1).configuration == ALONE
    core._check()


@pytest.mark.parametrize("then", ["", "checkpoint"])
@pytest.mark.parametrize("damaged", [True, False])
def test_a_clear_record_repeats_the_incarnation_of_the_group(damaged, then):
    """The record of it was damaged in front of the last checkpoint, and settled like other damage.
    The next start was permanently in the incarnation before, and continued from its log alone once
    more."""
    disk = Disk()
    store, rounds, _ = begun(disk)
    place = recovered(rounds, 1, 2, 3)
    if damaged:
        disk.filesystem.overwrite(FIRST, place, bytes(64))
        found, = scrubbed(store)
        assert store.repair.suspect_all(found.begin, found.end, found.why) == [1]
    put(store, store.repair.stage_clear(1, lambda: None))
    rounds.run(write(1, noop_entry(1, 7, 3)))
    if then:
        store.partition_states[1].append(noop_entry(1, 5, 3))
        store.partition_states[1].append(store.entries(1, 6, 6)[0])
        store.partition_states[1].apply(6)
        checkpoint(store, {1: 6})
    store.close()
    restored = open_store(disk.filesystem, DIRECTORY).groups[1]
    assert (restored.incarnation, restored.quarantined, restored.vote_barrier_index) == (2, "", 0)
    members = [(restored.configuration_index, restored.configuration), *restored.changes]
    assert members[-1] == (6, Configuration((1, 2, 3)))


def test_a_clear_record_repeats_the_vote_barrier_of_a_later_incarnation():
    disk = Disk()
    store, rounds, _ = begun(disk)
    rounds.run(GroupWrite(1, 1, 0, (), None, tombstone(1, 1, Tombstone(HardState(1, 2), 4, 1))))
    store.create_group(1, 1, NO_CONFIGURATION)
    place = store.table.journal.position
    mark = reincarnation(1, 1, 9, ForcedRecovery(2, NO_CONFIGURATION))
    rounds.run(GroupWrite(1, 1, 0, (), HardState(2, 0), mark))
    change = Entry(EntryKind.MEMBERSHIP, 1, 1, 1, 1, payload=joint_quorum.encode(VOTERS))
    rounds.run(write(1, change))
    rounds.run(write(1, noop_entry(1, 2, 1)))
    disk.filesystem.overwrite(FIRST, place, bytes(64))
    found, = scrubbed(store)
    assert store.repair.suspect_all(found.begin, found.end, found.why) == [1]
    put(store, store.repair.stage_clear(1, lambda: None))
    rounds.run(write(1, noop_entry(1, 3, 1)))
    store.close()
    restored = open_store(disk.filesystem, DIRECTORY).groups[1]
    assert (restored.incarnation, restored.quarantined, restored.vote_barrier_index) == (2, "", 9)
    assert restored.changes == ((1, VOTERS),)


@pytest.mark.parametrize("here, there", [(True, True), (True, False), (False, True),
                                         (False, False)])
def test_nobody_repairs_from_a_replica_of_another_incarnation(here, there):
    """Each of them has had leaders of its own since, in the same terms: what one of them committed
    under an (index, term) is not what another has there, and what it lacks may be committed."""
    disks = Disk(), Disk()
    for disk, is_later in zip(disks, (here, there), strict=True):
        store, rounds, _ = begun(disk)
        if is_later:
            recovered(rounds, 1, 2, 3)
        else:
            rounds.run(write(1, noop_entry(1, 5, 3), hard_state=HardState(3, 1)))
        store.close()
    _, _, asker, _ = started(disks[0])
    asker.on_damage(CorruptRange(1, 5, "found by a read"))
    request = asker.step(1).request
    assert request.wanted == ((5, 3),)
    _, _, other, _ = started(disks[1])
    answered = other.copies_for(request)
    assert (answered is not None) == (here == there)
    if here == there:
        jobs, answer = answered
        entries = [entry for job in jobs for entry in job.execute()]
        asker.on_response(answer._replace(entries=tuple(entries)))
        assert asker.step(1) is None, "the copy is being written"
