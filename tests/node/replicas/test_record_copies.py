"""Copies of records behind a snapshot: who is asked for what, between real stores."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage.errors import CorruptRange, RecordsNotCopied, SegmentRemoved
from multiraft.types import Configuration
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.peers.errors import NoAnswer
from node.replicas import record_copies, record_copies_messages
from node.replicas.record_copies import SILENT_MS, TURN_S, RecordCopies, lacked
from node.replicas.record_copies_messages import (
    INDEXES_MAX,
    PAUSE_MS_MAX,
    RecordsReply,
    RecordsRequest,
)
from tests.node.steps import Reply, Steps, at_once, run
from tests.storage.test_raft_start import (
    ENTRIES,
    GROUP,
    PARTITION,
    SECOND,
    check_reads,
    checkpoint,
    compacted,
    filled,
    read,
    reopened,
)
from tests.storage.world import VOTERS, data_entry, open_store

HERE, LEADER, OTHER = 1, 2, 3
DIRECTORY = "/node"


class Core:
    """A core whose group other nodes lead."""

    def __init__(self, node: int):
        self.node, self.status = node, self
        self.leader = LEADER
        self.present, self.installing, self.leads = True, False, False
        self.told: list[int] = []
        self.left = 0
        self.handed = 0
        self.pause_ms = 0
        self.sent: list[tuple[int, int]] = []

    def groups(self):
        return (GROUP,) if self.present else ()

    def has_group(self, group: int) -> bool:
        return group in self.groups()

    def is_installing(self, group: int) -> bool:
        return self.installing

    def is_leader(self, group: int) -> bool:
        return self.leads

    def records_left(self, group: int) -> int:
        return self.left

    def of(self, group: int):
        return SimpleNamespace(leader=self.leader, configuration=Configuration((1, 2, 3)))

    def set_records_left(self, group: int, left: int) -> None:
        if left != self.left:
            self.left = left
            self.told.append(left)

    def hand_to_complete(self, group: int) -> bool:
        self.handed += 1
        return True

    def copy_pause_ms(self, group: int, node: int) -> int:
        return self.pause_ms

    def copies_sent(self, group: int, node: int, size: int) -> None:
        self.sent.append((node, size))


class Member:
    """A node with a store of the group."""

    def __init__(self, node: int, store, members: dict, on_thread=at_once):
        self.core, self.store, self.members = Core(node), store, members
        members[node] = self
        self.now_ms = 0
        self.full = False
        self.asked: list[tuple[int, int, int]] = []
        self.events: list[tuple[str, dict]] = []
        self.pauses: list[float] = []
        self.damage: list = []
        self.lacks: set[int] = set()  # groups of which repair requests records
        self.silent: set[int] = set()
        self.written: list = []
        self.change = lambda reply: reply
        self.copies = RecordCopies(self.core, store, self, self.write, on_thread, self.pause,
                                   lambda: self.now_ms, self, self.damage.append,
                                   self.lacking, lambda: None, self)

    async def ask(self, peer: int, request: RecordsRequest) -> RecordsReply | None:
        self.asked.append((peer, request.first, request.last))
        if peer in self.silent:
            raise NoAnswer("gone")
        there = record_copies_messages.read_request(record_copies_messages.request_header(request))
        reply = await self.members[peer].copies.copies_for(self.core.node, there)
        header, buffers = record_copies_messages.reply_frame(reply)
        payload = memoryview(b"".join(map(bytes, buffers)))
        return self.change(record_copies_messages.read_reply(request, header, payload))

    async def write(self, stage) -> None:
        staged = stage(lambda: self.written.append("durable"))
        if staged is not None:
            staged.execute()
            self.store.finish(staged)

    def lacking(self, group: int) -> None:
        if self.store.table.logs[group].records.missing:
            self.lacks.add(group)

    async def pause(self, seconds: float) -> None:
        assert len(self.pauses) < 200, "it never ends"
        self.pauses.append(seconds)
        self.now_ms += round(1000 * seconds)

    def info(self, event: str, *, extra: dict) -> None:
        self.events.append((event, extra))

    def named(self, event: str) -> list[dict]:
        return [extra for name, extra in self.events if name == event]


def installed(leader, own: int = 0):
    """A store with so many own entries, applied, over which the leader's snapshot was installed."""
    store = (filled(SimulatedFilesystem(), ENTRIES[:own]) if own
             else open_store(SimulatedFilesystem(), DIRECTORY))
    if not own:
        store.create_group(GROUP, 1, VOTERS)
    install(store, leader, own)
    return store


def install(store, leader, committed: int) -> None:
    first_index, terms = leader.record_terms(GROUP)
    states = PartitionStates.restore(leader.partition_states[GROUP].snapshot())
    store.install(GROUP, LogBounds(10, 2, 9), 0, VOTERS, states, terms=terms,
                  first_index=first_index, committed=committed)
    checkpoint(store)


def cluster(own: int = 0, **options) -> tuple[Member, Member, Member]:
    """A node behind a snapshot, its leader, and another member, both with all records."""
    members: dict[int, Member] = {}
    leader = Member(LEADER, compacted(SimulatedFilesystem()), members)
    other = Member(OTHER, compacted(SimulatedFilesystem(), 6), members)
    return Member(HERE, installed(leader.store, own), members, **options), leader, other


def copy(member: Member) -> None:
    member.copies.add(GROUP)
    run(member.copies.copy_all())
    assert not member.copies.groups


@pytest.mark.parametrize("own", [0, 4, 7])
def test_an_empty_replica_and_one_that_was_away_copy_what_they_lack(own):
    here, leader, _ = cluster(own)
    left = 9 - max(own, 2)
    copy(here)
    check_reads(here.store)
    assert here.asked == [(LEADER, 10 - left, 9)]
    assert here.core.told == [left, 0] and here.store.is_complete(GROUP)
    assert here.named("record_copy_started") == [{"group": GROUP, "indexes": left}]
    [done] = here.named("records_copied")
    assert done["records"] == sum(index > max(own, 2) for index in (3, 4, 6, 7, 8))
    assert leader.core.sent == [(HERE, done["bytes"])] and here.copies.bytes == done["bytes"]


def test_a_complete_replica_copies_nothing():
    _, leader, _ = cluster()
    leader.copies.add(GROUP)
    leader.copies.add_incomplete()
    assert not leader.copies.groups and not leader.events


def test_chunks_are_requested_in_ascending_order_and_the_leader_learns_what_is_left(monkeypatch):
    monkeypatch.setattr(record_copies, "CHUNK_BYTES", 1)
    here, _, _ = cluster()
    copy(here)
    check_reads(here.store)
    assert [first for _, first, _ in here.asked] == [3, 4, 6, 7, 8, 9]
    assert here.core.told == [7, 6, 4, 3, 2, 1, 0]
    assert here.written == ["durable"] * 5
    assert not here.pauses, "a copy is followed by the next one"


def test_a_request_is_of_a_bounded_number_of_indexes(monkeypatch):
    monkeypatch.setattr(record_copies, "INDEXES_MAX", 3)
    here, _, _ = cluster()
    copy(here)
    assert here.asked == [(LEADER, 3, 5), (LEADER, 6, 8), (LEADER, 9, 9)]


def test_after_a_restart_what_is_left_is_copied():
    here, leader, other = cluster()
    monkey = record_copies.CHUNK_BYTES
    try:
        record_copies.CHUNK_BYTES = 1
        here.copies.add(GROUP)
        run(here.copies._step(GROUP))
        run(here.copies._step(GROUP))
    finally:
        record_copies.CHUNK_BYTES = monkey
    checkpoint(here.store)
    filesystem = here.store.table.filesystem
    again = Member(HERE, reopened(here.store, filesystem), here.members)
    again.copies.add_incomplete()
    run(again.copies.copy_all())
    assert again.asked == [(LEADER, 6, 9)]
    check_reads(again.store)


def test_after_a_restart_a_replica_with_missing_records_is_incomplete():
    """All indexes are copied, and a member that had lost a record said so."""
    here, leader, _ = cluster()
    leader.store.repair.record_damage(GROUP, 6, "rotten")
    here.copies.add(GROUP)
    assert run(here.copies._step(GROUP))
    assert not here.store.uncopied(GROUP) and here.core.left == 1
    checkpoint(here.store)
    again = Member(HERE, reopened(here.store, here.store.table.filesystem), here.members)
    again.copies.add_incomplete()
    assert again.core.left == 1 and GROUP in again.copies.groups


def test_records_that_are_not_copied_are_not_served():
    here, _, _ = cluster(own=4)
    with pytest.raises(RecordsNotCopied):
        read(here.store, PARTITION, 2)
    assert read(here.store, PARTITION, 0)[1] == 2
    copy(here)
    assert read(here.store, SECOND, 1)[1] == 2


# ---- members that lack something -----------------------------------------------------------------


def test_what_the_leader_lacks_is_requested_from_the_other_members():
    members: dict[int, Member] = {}
    other = Member(OTHER, compacted(SimulatedFilesystem()), members)
    leader = Member(LEADER, installed(other.store, own=4), members)
    here = Member(HERE, installed(other.store), members)
    copy(here)
    check_reads(here.store)
    assert here.asked == [(LEADER, 3, 9), (OTHER, 5, 9)]
    assert lacked(leader.store, GROUP) == 5


def test_a_member_that_does_not_answer_is_left_out_for_a_time():
    here, _, _ = cluster()
    here.silent.add(LEADER)
    copy(here)
    assert [peer for peer, *_ in here.asked] == [LEADER, OTHER]
    assert here.named("record_copy_failed") == [
        {"group": GROUP, "peer": LEADER, "reason": "gone"}]


def test_as_long_as_no_member_answers_it_is_asked_again_at_intervals():
    here, _, _ = cluster()
    here.silent |= {LEADER, OTHER}

    async def pause(seconds: float) -> None:
        here.now_ms += round(1000 * seconds)
        if here.now_ms >= 3 * SILENT_MS:
            here.silent.clear()

    here.copies._pause = pause
    copy(here)
    assert 6 <= len(here.asked) <= 9


@pytest.mark.parametrize("wrong", [
    lambda reply: RecordsReply(reply.entries[::-1], reply.through),
    lambda reply: RecordsReply(reply.entries[:1], reply.through, ((9, 9), (4, 4))),
    lambda reply: RecordsReply((data_entry(GROUP, 3, 7, PARTITION, 0, [b"a", b"b"]),), 9),
])
def test_an_answer_that_contradicts_itself_or_the_terms_changes_nothing(wrong):
    here, _, _ = cluster()
    here.change = lambda reply: wrong(reply) if here.asked[-1][0] == LEADER else reply
    copy(here)
    assert [peer for peer, *_ in here.asked] == [LEADER, OTHER] and here.written == ["durable"]
    check_reads(here.store)


def test_a_record_that_the_leader_has_lost_is_missing_and_the_replica_incomplete_until_repaired():
    here, leader, _ = cluster()
    leader.store.repair.record_damage(GROUP, 6, "rotten")
    here.copies.add(GROUP)
    assert run(here.copies._step(GROUP))
    assert not here.store.uncopied(GROUP) and not here.store.is_complete(GROUP)
    assert here.core.left == 1 and here.lacks == {GROUP}, "nobody asks for the record else"
    assert not run(here.copies._step(GROUP)) and GROUP in here.copies.groups
    here.store.table.logs[GROUP].records.forget_missing(6)
    run(here.copies.copy_all())
    assert here.core.left == 0


def test_damage_that_the_read_finds_is_reported_and_another_member_asked():
    here, leader, _ = cluster()
    error = CorruptRange(GROUP, 3, "rotten")

    def execute():
        raise error

    leader.store.records_job = lambda *_: SimpleNamespace(execute=execute)
    copy(here)
    assert leader.damage == [error] and [peer for peer, *_ in here.asked] == [LEADER, OTHER]


@pytest.mark.parametrize(("error", "raised"), [
    (OSError(errno.EIO, "broken"), DiskFailed), (OSError(errno.EMFILE, "files"), OSError)])
def test_a_disk_that_fails_ends_the_node_and_a_lack_of_files_the_connection(error, raised):
    _, leader, _ = cluster()

    def execute():
        raise error

    leader.store.records_job = lambda *_: SimpleNamespace(execute=execute)
    with pytest.raises(raised):
        run(leader.copies.copies_for(HERE, RecordsRequest(GROUP, 1, 3, 9)))


def test_a_record_that_was_removed_during_the_read_is_asked_for_again():
    _, leader, _ = cluster()

    def execute():
        raise SegmentRemoved(GROUP, 3, "gone")

    leader.store.records_job = lambda *_: SimpleNamespace(execute=execute)
    reply = run(leader.copies.copies_for(HERE, RecordsRequest(GROUP, 1, 3, 9)))
    assert reply == RecordsReply((), 2)


def test_a_node_without_the_group_or_with_another_incarnation_or_installing_has_none():
    _, leader, _ = cluster()
    assert run(leader.copies.copies_for(HERE, RecordsRequest(GROUP, 2, 3, 9))) is None
    assert run(leader.copies.copies_for(HERE, RecordsRequest(77, 1, 3, 9))) is None
    leader.core.installing = True
    assert run(leader.copies.copies_for(HERE, RecordsRequest(GROUP, 1, 3, 9))) is None


# ---- what goes before ----------------------------------------------------------------------------


def test_the_rate_of_a_plan_is_kept():
    here, leader, _ = cluster()
    leader.core.pause_ms = 500
    here.copies.add(GROUP)
    for _ in range(5):
        assert not run(here.copies._step(GROUP))
    assert len(here.asked) == 1 and leader.core.sent == []
    here.now_ms, leader.core.pause_ms = 500, 0
    copy(here)
    assert here.asked[1][0] == LEADER


def test_records_of_clients_have_precedence_on_a_full_disk():
    here, _, _ = cluster()
    here.full = True
    here.copies.add(GROUP)
    assert not run(here.copies._step(GROUP)) and not here.asked
    here.full = False
    copy(here)


def test_a_leader_that_lacks_records_hands_leadership_over_and_copies_from_the_others():
    here, _, _ = cluster()
    here.core.leads, here.core.leader = True, HERE
    copy(here)
    assert here.core.handed and here.asked[0][0] == LEADER
    check_reads(here.store)


def test_a_replica_that_is_removed_meanwhile_is_forgotten():
    here, _, _ = cluster()
    here.copies.add(GROUP)
    here.core.present = False
    run(here.copies.copy_all())
    assert not here.copies.groups and not here.asked


def test_a_reply_for_a_replica_that_installs_another_snapshot_is_dropped():
    async def ask(peer, request):
        return await Reply()

    here, leader, _ = cluster()
    here.copies.add(GROUP)
    here.ask = ask
    steps = Steps(here.copies._step(GROUP))
    here.core.installing = True
    reply = run(leader.copies.copies_for(HERE, RecordsRequest(GROUP, 1, 3, 9)))
    steps.resume(reply)
    assert steps.value is False and here.store.uncopied(GROUP) == ((3, 9),)


# ---- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", [
    {"group": 0}, {"group": "1"}, {"incarnation": 0}, {"first": 0}, {"last": 2}, {"last": None},
    {"last": 3 + INDEXES_MAX}, {"first": 1 << 64}])
def test_a_malformed_request_is_refused(changed):
    header = record_copies_messages.request_header(RecordsRequest(GROUP, 1, 3, 9))
    assert record_copies_messages.read_request(header) == RecordsRequest(GROUP, 1, 3, 9)
    with pytest.raises(Malformed):
        record_copies_messages.read_request({**header, **changed})


@pytest.mark.parametrize("changed", [
    {"through": 1}, {"through": 10}, {"through": None}, {"lacking": 1}, {"lacking": [[1]]},
    {"lacking": [[0, 1]]}, {"lacking": [[1, 1]] * (INDEXES_MAX + 1)}, {"pause_ms": -1},
    {"pause_ms": PAUSE_MS_MAX + 1}])
def test_a_malformed_reply_is_refused(changed):
    request = RecordsRequest(GROUP, 1, 3, 9)
    header, _ = record_copies_messages.reply_frame(RecordsReply((), 9, ((4, 5),), 7))
    nothing = memoryview(b"")
    assert record_copies_messages.read_reply(request, header, nothing) == RecordsReply(
        (), 9, ((4, 5),), 7)
    with pytest.raises(Malformed):
        record_copies_messages.read_reply(request, {**header, **changed}, nothing)
    with pytest.raises(Malformed, match="a copy from a peer"):
        record_copies_messages.read_reply(request, header, memoryview(b"\0" * 48))


def test_passes_without_a_copy_are_paused():
    here, _, _ = cluster()
    here.full = True

    async def pause(seconds: float) -> None:
        assert seconds == TURN_S
        here.full = False

    here.copies._pause = pause
    copy(here)
