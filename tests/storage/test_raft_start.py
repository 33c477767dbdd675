"""A group's log with two starts: consensus sees it from the Raft start on, readers all records."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from multiraft.errors import Compacted
from multiraft.partitions.retention_records import delete_payload
from multiraft.partitions.state import PartitionStates, open_payload
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptRange, OffsetTooLow
from multiraft.storage.index import UNKNOWN_POSITION
from multiraft.storage.repair.coordinator import RepairCoordinator, RepairResponse, SendRequest
from multiraft.storage.repair.repair import ANY_COMMITTED
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, FIRST, Disk, flipped
from tests.storage.repair.test_acknowledged_damage import put, scrubbed
from tests.storage.repair.test_repair import Core
from tests.storage.world import (
    SMALL,
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    records,
    seal,
    write,
)

GROUP, OTHER, PARTITION, SECOND = 1, 2, 7, 8

#: Two partitions, whose batches alternate; index 5 changes nothing.
ENTRIES = [
    open_entry(GROUP, 1, 1, PARTITION),
    open_entry(GROUP, 2, 1, SECOND),
    data_entry(GROUP, 3, 1, PARTITION, 0, [b"a", b"b"]),
    data_entry(GROUP, 4, 1, SECOND, 0, [b"c"]),
    noop_entry(GROUP, 5, 2),
    data_entry(GROUP, 6, 2, PARTITION, 2, [b"d"], 2000),
    data_entry(GROUP, 7, 2, PARTITION, 3, [b"e", b"f"], 3000),
    data_entry(GROUP, 8, 2, SECOND, 1, [b"g"]),
    noop_entry(GROUP, 9, 2),
]


def log_start(index: int, partition: int, offset: int) -> Entry:
    return Entry(EntryKind.LOG_START, GROUP, 1, 2, index, partition, offset)


def filled(filesystem, entries=ENTRIES, config=SMALL):
    """A store with these entries of the group applied, each of a round of its own."""
    store = open_store(filesystem, DIRECTORY, config)
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    for entry in entries:
        append(store, entry)
    return store


def append(store, entry: Entry) -> None:
    states = store.partition_states[GROUP]
    assert not states.check_entry(entry)
    states.append(entry)
    Rounds(store).run(write(GROUP, entry, hard_state=HardState(entry.term, 1)))
    states.apply(entry.index)


def checkpoints(store, count: int = 2) -> None:
    """So many checkpoints, each at a position of its own."""
    for _ in range(count):
        Rounds(store).run(write(OTHER, hard_state=HardState(1, 1)))
        checkpoint(store, {GROUP: store.partition_states[GROUP].applied_index})


def compacted(filesystem, first_index: int = 9, entries=ENTRIES):
    """A store whose Raft start is in both kept checkpoints, without entries in memory."""
    store = filled(filesystem, entries)
    checkpoints(store)
    store.compact(GROUP, first_index)
    checkpoints(store)
    store.table.logs[GROUP].cached.clear()
    return store


def reopened(store, filesystem):
    store.close()
    return open_store(filesystem, DIRECTORY)


def read(store, partition: int, offset: int, below: int = 1 << 40, bytes_max: int = 1 << 20):
    """The batches of a fetch, and the offset behind them."""
    found = store.fetch(GROUP, partition, offset, bytes_max, below)
    batches = found.job.execute() if found.job is not None else found.buffers
    return [bytes(each) for each in batches], found.read_to


def payloads(*indexes: int) -> list[bytes]:
    return [bytes(ENTRIES[index - 1].payload) for index in indexes]


def check_reads(store) -> None:
    assert read(store, PARTITION, 0) == (payloads(3, 6, 7), 5)
    assert read(store, PARTITION, 3) == (payloads(7), 5)
    assert read(store, SECOND, 0) == (payloads(4, 8), 2)
    assert [index for _, _, index, _ in store.batches(GROUP, PARTITION, 0, 9)] == [3, 6, 7]


def position(store, index: int) -> int:
    known = records(store, GROUP).get(index)
    return (known or store.table.logs[GROUP].locate(index)).position


# ---- both starts ---------------------------------------------------------------------------------


def test_records_are_read_below_the_raft_start_and_consensus_sees_none(simulated):
    store = compacted(simulated)
    for _ in range(2):
        check_reads(store)
        log = store.table.logs[GROUP]
        assert log.bounds() == (9, 2, 9)
        for first in (1, 8):
            for consensus_reads in (store.entries, store.framed, store.read_job,
                                    store.bytes_between, store.last_within):
                with pytest.raises(Compacted):
                    consensus_reads(GROUP, first, first)
        assert store.read_job(GROUP, 9, 9).execute() == (ENTRIES[8],)
        assert store.verify_job(GROUP, PARTITION, 0).execute() is None
        store = reopened(store, simulated)
    assert store.groups[GROUP].bounds == (9, 2, 9)
    assert not store.damage


def test_batches_of_a_partition_that_is_opened_behind_the_checkpoint_are_read_after_a_start(
        simulated):
    """The applied state of the checkpoint does not know the partition, and the start raises the
    Raft start by that state."""
    store = compacted(simulated)
    append(store, open_entry(GROUP, 10, 2, 9))
    append(store, data_entry(GROUP, 11, 2, 9, 0, [b"h"]))
    store = reopened(store, simulated)
    assert [index for _, _, index, _ in store.batches(GROUP, 9, 0, 9)] == [11]
    check_reads(store)


def test_entries_in_memory_are_served_to_readers_alone(simulated):
    store = filled(simulated)
    checkpoints(store)
    store.compact(GROUP, 9)
    assert store.fetch(GROUP, PARTITION, 0, 1 << 20, 5).buffers, "from memory"
    with pytest.raises(Compacted):
        store.entries(GROUP, 8, 9)


def test_only_needed_batches_become_records(simulated):
    entries = [*ENTRIES, log_start(10, PARTITION, 3), noop_entry(GROUP, 11, 2)]
    store = compacted(simulated, 11, entries)
    for _ in range(2):
        assert [*records(store, GROUP)] == [4, 7, 8]
        with pytest.raises(OffsetTooLow):
            store.fetch(GROUP, PARTITION, 2, 1 << 20, 5)
        assert read(store, PARTITION, 3) == (payloads(7), 5)
        store = reopened(store, simulated)


def test_records_leave_when_the_log_start_passes_them_or_their_partition_is_gone(simulated):
    store = compacted(simulated)
    append(store, log_start(10, PARTITION, 2))
    store.trim(GROUP, [PARTITION])
    log = store.table.logs[GROUP]
    assert [*records(store, GROUP)] == [4, 6, 7, 8]
    without = PartitionStates(GROUP, 10)
    log.trim(without)
    assert not log.records and not log.partitions
    log._check()


def deletion(index: int, *partitions: int) -> Entry:
    return Entry(EntryKind.PARTITION_DELETE, GROUP, 1, 2, index, payload=delete_payload(
        1, partitions))


@pytest.mark.parametrize("batches_max", [1, 2, 3, 9])
def test_records_leave_in_bounded_steps_and_their_bytes_are_counted(simulated, batches_max):
    store = compacted(simulated, 10, [*ENTRIES])
    log = store.table.logs[GROUP]
    sizes = [log.size(index) for index in (3, 6, 4, 8)]
    append(store, log_start(10, PARTITION, 3))
    append(store, deletion(11, SECOND))
    shortened = store.partition_states[GROUP].take_shortened()
    assert [*shortened] == [PARTITION, SECOND]
    steps, before = 1, len(log.records)
    while store.trim(GROUP, shortened, batches_max):
        log._check()
        assert before - len(log.records) <= batches_max
        steps, before = steps + 1, len(log.records)
    assert steps == 4 // batches_max + 1
    assert store.trimmed_bytes == sum(sizes)
    assert [*records(store, GROUP)] == [7]
    assert [*log.partitions] == [PARTITION]
    assert not store.trim(OTHER + 1, [PARTITION], batches_max), "a group that is not here"


def test_the_index_of_a_deleted_partition_goes_with_its_records(simulated):
    """Also what it has above the Raft start, and at a start."""
    store = compacted(simulated, 7)
    append(store, deletion(10, SECOND))
    store.trim(GROUP, [SECOND])
    checkpoints(store)
    for _ in range(2):
        log = store.table.logs[GROUP]
        log._check()
        assert [*log.partitions] == [PARTITION]
        assert [*records(store, GROUP)] == [3, 6]
        assert store.fetch(GROUP, SECOND, 0, 1 << 20, 2).buffers == []
        store = reopened(store, simulated)
    checkpoints(store)
    store.compact(GROUP, 9)
    assert [index for index in range(1, 9) if index in store.table.logs[GROUP].records] == [3, 6, 7]


def test_a_partition_that_is_opened_again_loses_what_it_had_before(simulated):
    store = compacted(simulated)
    append(store, deletion(10, SECOND))
    append(store, Entry(EntryKind.PARTITION_OPEN, GROUP, 1, 2, 11, SECOND, -1,
                        open_payload(2, 5)))
    append(store, data_entry(GROUP, 12, 2, SECOND, 5, [b"h"]))
    store.trim(GROUP, store.partition_states[GROUP].take_shortened())
    log = store.table.logs[GROUP]
    log._check()
    assert [*records(store, GROUP)] == [3, 6, 7]
    assert read(store, SECOND, 5)[1] == 6


def test_a_log_start_inside_a_batch_keeps_it(simulated):
    store = compacted(simulated, 10, [*ENTRIES, log_start(10, PARTITION, 1)])
    assert read(store, PARTITION, 1) == (payloads(3, 6, 7), 5)


def test_a_raft_start_that_rises_in_steps_leaves_the_same_records():
    entries = [*ENTRIES, log_start(10, PARTITION, 2)]
    whole, steps = (filled(SimulatedFilesystem(), entries) for _ in range(2))
    for store in (whole, steps):
        checkpoints(store)
    whole.compact(GROUP, 11)
    assert steps.partitions_below(GROUP, 3) == []
    assert steps.partitions_below(GROUP, 4) == [PARTITION]
    partitions = steps.partitions_below(GROUP, 11)
    assert partitions == [PARTITION, SECOND]
    for first_index in range(2, 12):
        assert steps.compact(GROUP, first_index, partitions) == first_index
        steps.table.logs[GROUP]._check()
    assert steps.partitions_below(GROUP, 11) == []
    logs = [store.table.logs[GROUP] for store in (whole, steps)]
    assert logs[0].records.terms == logs[1].records.terms
    assert [[index for index in range(1, 11) if index in log.records] for log in logs] == [
        [4, 6, 7, 8]] * 2


def test_the_newest_entries_are_found_by_bytes_and_by_journal(simulated):
    store = filled(simulated)
    log = store.table.logs[GROUP]
    assert store.newest_from(GROUP, 1 << 30, 1 << 30) == 1
    assert store.newest_from(GROUP, log.size(9) + log.size(8), 1 << 30) == 8
    from_seventh = store.table.journal.position - log.index.position(7)
    assert store.newest_from(GROUP, 1 << 30, from_seventh) == 7
    assert store.newest_from(GROUP, 0, 1 << 30) == store.newest_from(GROUP, 1 << 30, 0) == 10


def test_the_log_continues_behind_a_raft_start_at_its_end(simulated):
    store = filled(simulated)
    checkpoints(store)
    assert store.raft_start_max(GROUP) == 10
    assert store.compact(GROUP, 10) == 10
    assert store.table.logs[GROUP].bounds() == (10, 2, 9)
    append(store, data_entry(GROUP, 10, 3, SECOND, 2, [b"h"]))
    checkpoints(store)
    store = reopened(store, simulated)
    assert store.groups[GROUP].bounds == (10, 2, 10)
    assert read(store, PARTITION, 0) == (payloads(3, 6, 7), 5)
    assert read(store, SECOND, 1)[1] == 3


def test_the_raft_start_waits_for_both_kept_checkpoints(simulated):
    store = filled(simulated)
    assert store.raft_start_max(GROUP) == 1
    checkpoints(store, 1)
    assert store.raft_start_max(GROUP) == 1
    checkpoint(store, {GROUP: 9})
    assert store.raft_start_max(GROUP) == 1, "it replaced the first one"
    checkpoints(store, 1)
    assert store.raft_start_max(GROUP) == 10
    with pytest.raises(AssertionError):
        store.compact(GROUP, 11)
    store = reopened(store, simulated)
    assert store.raft_start_max(GROUP) == 1, "the older one was not read"
    store.create_group(GROUP, 1, VOTERS)
    checkpoints(store, 1)
    assert store.raft_start_max(GROUP) == 10


@pytest.mark.parametrize("sealed", [False, True])
def test_a_start_from_the_older_checkpoint_has_its_lower_raft_start(simulated, sealed):
    store = filled(simulated)
    checkpoints(store)
    store.compact(GROUP, 6)
    checkpoints(store)
    store.compact(GROUP, 9)
    checkpoints(store, 1)
    store.table.journal.start_segment()
    append(store, noop_entry(GROUP, 10, 2))
    if sealed:
        seal(store)
    simulated.flip(f"{DIRECTORY}/{checkpoint_names(simulated, DIRECTORY)[-1]}", 40, 1)
    store = reopened(store, simulated)
    assert store.groups[GROUP].bounds == (6, 2, 10)
    assert not store.groups[GROUP].quarantined
    check_reads(store)
    simulated.flip(f"{DIRECTORY}/{checkpoint_names(simulated, DIRECTORY)[-1]}", 40, 1)
    store = reopened(store, simulated)
    assert store.groups[GROUP].bounds == (1, 0, 10), "without any checkpoint, the whole journal"


def test_power_loss_at_every_operation_leaves_one_raft_start_or_the_other():
    seen = set()
    for limit in range(200):
        filesystem = SimulatedFilesystem()
        store = filled(filesystem)
        checkpoints(store)
        store.compact(GROUP, 8)
        filesystem.operations_to_crash = limit
        try:
            checkpoints(store)
            over = True
        except PowerLoss:
            over = False
        filesystem.operations_to_crash = -1
        filesystem.power_loss(random.Random(limit))
        store = open_store(filesystem, DIRECTORY)
        assert not store.groups[GROUP].quarantined
        first = store.groups[GROUP].bounds.first_index
        seen.add(first)
        assert store.groups[GROUP].bounds.last_index == 9
        check_reads(store)
        if over:
            assert seen == {1, 8}
            return
    raise AssertionError("it never came to an end")


# ---- damage --------------------------------------------------------------------------------------


def rot(disk: Disk, at: int) -> None:
    disk.put(FIRST, flipped(disk.read(FIRST), at))


def answer(store, request):
    """A healthy peer's response to a repair request."""
    peer = RepairCoordinator(2, store, PeerCore({GROUP: VOTERS}), lambda staged: None)
    jobs, response = peer.copies_for(request)
    return response._replace(entries=tuple(entry for job in jobs for entry in job.execute()))


@pytest.mark.parametrize("found", ["read", "scrub", "start"])
def test_a_damaged_record_is_missing_and_its_replica_healthy(found):
    disk, healthy = Disk(), compacted(SimulatedFilesystem())
    store = compacted(disk.filesystem)
    rot(disk, position(store, 6) + 64 + 64)
    core, submitted = Core({GROUP: VOTERS}), []
    if found == "start":
        store = reopened(store, disk.filesystem)
        assert [(each.group, each.index) for each in store.damage] == [(GROUP, 6)]
    repairer = RepairCoordinator(1, store, core, lambda staged: (submitted.append(staged),
                                                                 put(store, staged)))
    if found == "scrub":
        for error in scrubbed(store):
            repairer.on_damage(error)
    elif found == "read":
        with pytest.raises(CorruptRange) as error:
            read(store, PARTITION, 2)
        repairer.on_damage(error.value)
    log = store.table.logs[GROUP]
    assert [*log.records.missing] == [6] and not log.missing
    assert not log.quarantined and not core.quarantined
    assert repairer.groups == {GROUP}
    assert read(store, PARTITION, 0) == (payloads(3), 2), "up to the damage"
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 2)
    assert read(store, PARTITION, 3) == (payloads(7), 5)
    assert read(store, SECOND, 0) == (payloads(4, 8), 2)
    with pytest.raises(Compacted):
        store.read_job(GROUP, 6, 6)
    step = repairer.step(GROUP)
    assert isinstance(step, SendRequest) and step.request.wanted == ((6, 2),)
    repairer.on_response(answer(healthy, step.request))
    assert len(submitted) == 1
    for _ in range(3):
        assert not store.table.logs[GROUP].records.missing
        check_reads(store)
        assert repairer.step(GROUP) is None and not repairer.groups
        seal(store)
        store = reopened(store, disk.filesystem)
        repairer = RepairCoordinator(1, store, core, lambda staged: None)


def test_a_needed_record_is_not_given_up_though_its_leader_has_compacted_it():
    disk = Disk()
    store = compacted(disk.filesystem)
    rot(disk, position(store, 6) + 64 + 64)
    core = Core({GROUP: VOTERS})
    repairer = RepairCoordinator(1, store, core, lambda staged: None)
    repairer.on_damage(CorruptRange(GROUP, 6, "found by a read"))
    wanted = repairer.step(GROUP).request.wanted
    repairer.on_response(RepairResponse(GROUP, 1, (), (), True, wanted, wanted))
    repairer.on_response(RepairResponse(GROUP, 1, (), wanted, True, (), wanted))
    assert [*store.table.logs[GROUP].records.missing] == [6]
    assert not core.forgotten
    assert isinstance(repairer.step(GROUP), SendRequest), "it asks the next member"
    append(store, log_start(10, PARTITION, 3))
    store.trim(GROUP, [PARTITION])
    assert repairer.step(GROUP) is None and not repairer.groups, "nobody needs it now"


def test_a_peer_answers_for_records_that_it_has_and_those_that_it_does_not_need():
    store = compacted(SimulatedFilesystem(), 11,
                      [*ENTRIES, log_start(10, PARTITION, 2), noop_entry(GROUP, 11, 2)])
    repair = store.repair
    wanted = [(2, 1), (3, 1), (4, 1), (5, 2), (6, 2), (7, 0), (8, 1)]
    assert repair.compacted(GROUP, wanted) == [(2, 1), (3, 1), (5, 2), (8, 1)]
    given = [entry for job in repair.copy_jobs(GROUP, wanted, 1 << 20) for entry in job.execute()]
    assert given == [ENTRIES[index - 1] for index in (4, 6, 7)]
    assert repair.absent(GROUP, wanted) == []
    repair.record_damage(GROUP, 4, "found by a read")
    assert (4, 1) not in repair.compacted(GROUP, wanted), "it needs that one itself"
    assert len(repair.copy_jobs(GROUP, wanted, 1 << 20)) == 2


def test_records_that_no_peer_has_hold_up_no_others(monkeypatch):
    monkeypatch.setattr("multiraft.storage.repair.coordinator.ENTRIES_PER_REQUEST", 2)
    store = compacted(SimulatedFilesystem())
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), lambda staged: None)
    for index in (3, 6, 8):
        repairer.on_damage(CorruptRange(GROUP, index, "found by a read"))
    lowest, highest = ((3, 1), (6, 2)), ((8, 2),)
    asked = [repairer.step(GROUP) for _ in range(8)]
    assert {(step.peer, step.request.wanted) for step in asked} == {
        (peer, wanted) for peer in (2, 3) for wanted in (lowest, highest)}


def lose(disk: Disk, store, index: int) -> None:
    """An entry's header rots: a start does not know what stood there."""
    rot(disk, position(store, index) + 20)


def started(disk: Disk, store):
    """A start that scans every segment."""
    store.close()
    for path in disk.files():
        if path.endswith(".index"):
            disk.filesystem.remove(path)
    return open_store(disk.filesystem, DIRECTORY)


def test_a_late_answer_about_another_entry_of_an_index_says_nothing_of_the_one_that_is_wanted():
    """A member that has the committed entry calls the truncated one compacted."""
    wrong = data_entry(GROUP, 6, 1, PARTITION, 2, [b"d"], 2000)
    store = filled(SimulatedFilesystem(),
                   [*ENTRIES[:4], noop_entry(GROUP, 5, 1), wrong, *ENTRIES[6:]])
    checkpoints(store)
    leader, other = filled(SimulatedFilesystem()), compacted(SimulatedFilesystem())
    core = Core({GROUP: VOTERS})
    core.applied_index = core.last_index = 9
    store.repair.record_damage(GROUP, 6, "found by a read")
    repairer = RepairCoordinator(1, store, core, lambda staged: None)

    def respond(peer, leads: bool) -> RepairResponse:
        wanted = store.repair.wanted(GROUP, 9)
        return RepairResponse(GROUP, 1, (), tuple(peer.repair.absent(GROUP, wanted)), leads,
                              tuple(peer.repair.compacted(GROUP, wanted)), wanted)

    late = respond(other, False)
    assert late.compacted == ((6, 1),) and 6 in other.table.logs[GROUP].records
    repairer.on_response(respond(leader, True))
    assert (6, ANY_COMMITTED) in store.repair.wanted(GROUP, 9)
    repairer.on_response(late)
    log = store.table.logs[GROUP]
    assert 6 in log.missing and 6 not in log.records.unneeded


def test_a_checkpoint_is_due_when_all_holes_are_answered():
    """It names them: the next start would ask for them again."""
    disk = Disk()
    store = compacted(disk.filesystem)
    lose(disk, store, 4)
    lose(disk, store, 6)
    store = started(disk, store)
    holes = sorted(store.table.logs[GROUP].records.missing)
    assert {4, 6} <= {*holes}
    store.require_checkpoints()
    checkpoint(store, {GROUP: 9})
    assert not store.checkpoint_due
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), lambda staged: None)
    terms = store.table.logs[GROUP].records
    wanted = tuple([(index, terms.term(index)) for index in holes])
    repairer.on_response(RepairResponse(GROUP, 1, (), (), False, wanted[:1], wanted))
    assert not store.checkpoint_due
    repairer.on_response(RepairResponse(GROUP, 1, (), (), False, wanted[1:], wanted))
    assert not terms.missing and not store.checkpoint_due, "other groups may have holes as well"
    put(store, store.repair.stage_clear(GROUP, lambda: None))
    assert repairer.step(GROUP) is None and repairer.groups == {OTHER}
    assert not store.checkpoint_due
    put(store, store.repair.stage_clear(OTHER, lambda: None))
    assert repairer.step(OTHER) is None and not repairer.groups
    assert store.checkpoint_due
    assert {*holes} == {index for index in range(1, 10) if index in terms.unneeded}


def test_no_read_passes_a_lost_record():
    disk, healthy = Disk(), compacted(SimulatedFilesystem())
    store = compacted(disk.filesystem)
    lose(disk, store, 6)
    store = started(disk, store)
    log = store.table.logs[GROUP]
    assert [*log.records.missing] == [6] and 6 not in log.records
    assert read(store, PARTITION, 0) == (payloads(3), 2)
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 2)
    assert read(store, PARTITION, 3) == (payloads(7), 5)
    assert store.first_at(GROUP, PARTITION, 3000, 0, 5) == 2, "the search begins at the lost one"
    assert read(store, SECOND, 0) == (payloads(4, 8), 2), "its offsets continue there"
    staged = store.repair.stage_copies(GROUP, [ENTRIES[5]], lambda: None)
    put(store, staged)
    assert store.first_at(GROUP, PARTITION, 3000, 0, 5) == 3
    check_reads(store)
    check_reads(healthy)


def test_a_partition_whose_first_or_last_batch_is_lost_says_so():
    for lost, offset in ((3, 0), (7, 3)):
        disk = Disk()
        store = compacted(disk.filesystem)
        lose(disk, store, lost)
        store = started(disk, store)
        with pytest.raises(CorruptRange):
            read(store, PARTITION, offset, 5)


def test_a_lost_entry_without_records_is_forgotten_when_a_peer_says_so():
    disk, healthy = Disk(), compacted(SimulatedFilesystem())
    store = filled(disk.filesystem)
    fifth = position(store, 5)
    checkpoints(store)
    store.compact(GROUP, 9)
    checkpoints(store)
    rot(disk, fifth + 20)
    store = started(disk, store)
    assert [*store.table.logs[GROUP].records.missing] == [5]
    repairer = RepairCoordinator(1, store, Core({GROUP: VOTERS}), lambda staged: None)
    request = repairer._request_copies(GROUP, store.table.logs[GROUP], True).request
    assert request.wanted == ((5, 2),)
    repairer.on_response(answer(healthy, request))
    assert not store.table.logs[GROUP].records.missing


def test_nothing_is_read_in_the_place_of_a_forgotten_entry():
    """It stays in the Raft log: the term before the next entry is a guess."""
    disk = Disk()
    store = filled(disk.filesystem)
    checkpoints(store)
    lose(disk, store, 5)
    store = started(disk, store)
    log = store.table.logs[GROUP]
    assert sorted(log.missing) == [4, 5]
    put(store, store.repair.stage_copies(GROUP, [ENTRIES[3]], lambda: None))
    for each in store.repair.compact(GROUP, 6, [5]):
        put(store, each)
    assert log.raft_start == 5 and not log.missing and log.is_forgotten(5)
    job = store.records_job(GROUP, 1, 9, 1 << 20)
    assert [entry.index for entry in job.execute()] == [3, 4, 6, 7, 8]
    assert (job.through, job.lacking) == (9, ())
    with pytest.raises(Compacted):
        store.read_job(GROUP, 5, 7)
    assert [entry.index for entry in store.read_job(GROUP, 6, 7).execute()] == [6, 7]
    assert log.restored(9).guessed_through == store.repair.guessed_through(GROUP) == 5
    store.repair.record_damage(GROUP, 7, "found by a read")
    assert store.repair.guessed_through(GROUP) == 5


def test_a_truncated_entry_never_becomes_a_record():
    """The record of its truncation and what replaced it are lost, and it looks like any other."""
    disk = Disk()
    store = filled(disk.filesystem, ENTRIES[:4])
    states = store.partition_states[GROUP]
    wrong = [data_entry(GROUP, 5, 1, PARTITION, 2, [b"never committed"]),
             data_entry(GROUP, 6, 1, PARTITION, 3, [b"nor this"])]
    for entry in wrong:
        states.append(entry)
        Rounds(store).run(write(GROUP, entry))
    begin = store.table.journal.position
    states.truncate(5)
    for at, entry in enumerate(ENTRIES[4:]):
        states.append(entry)
        Rounds(store).run(write(GROUP, entry, drop_from=0 if at else 5,
                                hard_state=HardState(2, 1)))
        if at == 1:
            end = store.table.journal.position
    states.apply(9)
    checkpoints(store)
    store.compact(GROUP, 9)
    checkpoints(store)
    store.close()
    disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
    store = open_store(disk.filesystem, DIRECTORY)
    log = store.table.logs[GROUP]
    assert sorted(log.records.missing) == [5, 6]
    assert store.repair.wanted_records(GROUP, 8) == ((5, 2), (6, 2))
    with pytest.raises(CorruptRange):
        read(store, PARTITION, 2)
    put(store, store.repair.stage_copies(GROUP, ENTRIES[4:6], lambda: None))
    check_reads(store)
    check_reads(started(disk, store))


def test_a_segment_may_have_lost_all_that_is_needed_of_it():
    """Its last entry is lost, and the one behind it was truncated."""
    disk = Disk()
    store = filled(disk.filesystem, [*ENTRIES, log_start(10, PARTITION, 5),
                                     log_start(11, SECOND, 2), noop_entry(GROUP, 12, 2)])
    Rounds(store).run(write(GROUP, noop_entry(GROUP, 13, 2)))
    Rounds(store).run(write(GROUP, drop_from=13))
    begin, end = position(store, 11), position(store, 12) + 64
    checkpoints(store)
    store.compact(GROUP, 12)
    assert not store.table.logs[GROUP].records
    checkpoints(store)
    store.close()
    disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
    store = open_store(disk.filesystem, DIRECTORY)
    log = store.table.logs[GROUP]
    assert log.bounds() == (12, 2, 12) and [*log.missing] == [12]


class PeerCore(Core):
    """A healthy member's."""

    def has_applied_in_term(self, group: int) -> bool:
        return False


class ReadmittingCore(Core):
    def repaired(self, group: int) -> None:
        """It votes again."""


def test_damage_is_not_cleared_before_every_kept_checkpoint_has_the_raft_start():
    """A start with the lower one reads dropped entries again, and only damage that is not cleared
    makes it ask if they were truncated."""
    disk = Disk()
    store = filled(disk.filesystem)
    checkpoints(store)
    store.compact(GROUP, 9)
    core, submitted = ReadmittingCore({GROUP: VOTERS}), []
    repairer = RepairCoordinator(1, store, core, submitted.append)
    repairer.on_damage(CorruptRange(GROUP, 9, "found by a read"))
    put(store, store.repair.stage_copies(GROUP, [ENTRIES[8]], lambda: None))
    assert not store.checkpoint_due
    assert repairer.step(GROUP) is None and not submitted
    assert store.checkpoint_due
    checkpoint(store, {GROUP: 9})
    repairer.step(GROUP)
    assert len(submitted) == 1
    put(store, submitted.pop())
    assert not store.repair.quarantined(GROUP)
    for name in checkpoint_names(disk.filesystem, DIRECTORY)[1:]:
        disk.filesystem.flip(f"{DIRECTORY}/{name}", 40, 1)
    store = reopened(store, disk.filesystem)
    assert store.groups[GROUP].bounds.first_index == 9


def test_the_raft_start_stays_where_the_term_before_it_is_sure(simulated):
    store = filled(simulated)
    checkpoints(store)
    log = store.table.logs[GROUP]
    log.damage.lose_term(8)
    assert store.compact(GROUP, 9) == 8
    log.damage.repair(8)
    assert store.compact(GROUP, 9) == 9


def test_an_entry_that_another_member_has_compacted_is_called_so_and_not_read(simulated):
    """It stays in the Raft log, because the term before a higher Raft start would be a guess."""
    store = filled(simulated)
    checkpoints(store)
    log = store.table.logs[GROUP]
    log.cached.clear()
    log.index.replace(9, UNKNOWN_POSITION, 64)
    log.damage.lose_term(9)
    assert not store.repair.compacted(GROUP, [(9, 2)])
    store.repair.compact(GROUP, 10, [9])
    assert log.raft_start == 9 and not log.missing
    assert not store.repair.copy_jobs(GROUP, [(9, 2), (9, 0)], 1 << 20)
    assert store.repair.compacted(GROUP, [(9, 2), (8, 2)]) == [(9, 2)]


def test_a_removed_replica_leaves_its_damaged_records_to_nobody():
    disk = Disk()
    store = compacted(disk.filesystem)
    store.repair.record_damage(GROUP, 6, "found by a read")
    at = position(store, 6)
    assert store.table.logs[GROUP].unreadable_ranges() == [
        (at, at + store.table.logs[GROUP].size(6))]


def test_a_raft_start_behind_truncated_entries_of_an_earlier_segment_is_no_damage(simulated):
    """Entry 6 of term 1 cannot follow entry 5 of term 2, and was truncated before that came."""
    store = filled(simulated, [noop_entry(GROUP, index, 1) for index in range(1, 5)])
    states = store.partition_states[GROUP]
    wrong = [noop_entry(GROUP, index, 1) for index in (5, 6)]
    for entry in wrong:
        states.append(entry)
    Rounds(store).run(write(GROUP, *wrong))
    store.table.journal.start_segment()
    Rounds(store).run(write(GROUP, drop_from=5))
    states.truncate(5)
    for index in (5, 6, 7):
        append(store, noop_entry(GROUP, index, 2))
    checkpoints(store)
    store.compact(GROUP, 6)
    assert not store.table.logs[GROUP].records
    checkpoints(store)
    store = reopened(store, simulated)
    log = store.table.logs[GROUP]
    assert not store.damage and not log.quarantined and not log.missing
    assert (log.raft_start, log.index.prev_term, log.index.last_index) == (6, 2, 7)


def test_a_partition_whose_batches_in_a_segment_were_all_truncated(simulated):
    """The index file names it, without a row."""
    store = filled(simulated, ENTRIES[:4])
    Rounds(store).run(write(GROUP, noop_entry(GROUP, 4, 2), drop_from=4,
                            hard_state=HardState(2, 1)))
    states = PartitionStates(GROUP)
    for entry in (*ENTRIES[:3], noop_entry(GROUP, 4, 2)):
        states.append(entry)
    states.apply(4)
    store.partition_states[GROUP] = states
    store.table.journal.start_segment()
    checkpoints(store)
    store.compact(GROUP, 5)
    assert seal(store)
    checkpoints(store)
    store = reopened(store, simulated)
    store.table.logs[GROUP]._check()
    assert read(store, PARTITION, 0) == (payloads(3), 2)
    assert read(store, SECOND, 0) == ([], 0)


def test_a_lost_record_leaves_when_the_log_start_is_at_the_end_of_its_partition(simulated):
    """No batch behind it tells where it ends, and no member has it any longer."""
    store = compacted(simulated)
    assert store.repair.record_damage(GROUP, 8, "found by a read")
    append(store, log_start(10, SECOND, 2))
    store.trim(GROUP, [SECOND])
    log = store.table.logs[GROUP]
    log._check()
    assert not log.records.missing and [*records(store, GROUP)] == [3, 6, 7]


def test_the_terms_go_with_the_last_hole(simulated):
    """A member refuses the snapshot of a leader that names terms of more than it has."""
    store = compacted(simulated, 4, [noop_entry(GROUP, index, 1) for index in (1, 2, 3, 4)])
    log = store.table.logs[GROUP]
    log.records.lose_hole(2)
    log.records.restore_terms([(1, 1)], 4)
    log._check()
    assert store.record_terms(GROUP) == (2, ((2, 1),))
    put(store, store.repair.stage_copies(GROUP, [noop_entry(GROUP, 2, 1)], lambda: None))
    log._check()
    assert not log.records.missing and store.record_terms(GROUP) == (4, ((4, 1),))
