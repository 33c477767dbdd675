"""Histories of a replica whose Raft start rises while its journal is damaged, in any order.

The follower and its leader compact their logs, each on its own, and log starts rise.  Above the
Raft start the follower's log is its leader's.  Below it every batch that is not below the log start
can be read, after each repair and each start, also one from the older checkpoint; until it is
repaired, a read fails or returns what was written.
"""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft.errors import Compacted
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptRange
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY
from tests.storage.recovery.test_lost_truncations import PARTITION, Status
from tests.storage.repair.test_repair_histories import GROUPS, BootId, Core, put_round
from tests.storage.world import VOTERS, Rounds, checkpoint, looked_up, release, seal, write


class Life(BootId):
    """A follower with two starts, and its leader."""

    removed = 0  # segments
    rotted = False  # the newest checkpoint, since the last one was written
    given_up: dict[int, int] = {}  # group -> first index that repair left to consensus

    def open(self) -> None:
        self.given_up = {}
        super().open()

    def core(self) -> Core:
        return CompactedCore(self)

    def first_of(self, group: int) -> int:
        return max(self.log(group).raft_start, self.given_up.get(group, 1))

    # ---- what happens ----------------------------------------------------------------------------

    def rise(self, group: int, back: int) -> None:
        """The leader raises the partition's log start, up to so many records before its end."""
        member = self.members[group]
        last = next((entry for entry in reversed(member.true) if entry.batch), None)
        if last is None:
            return
        start = max(0, last.base_offset + last.batch.count - back)
        entry = Entry(EntryKind.LOG_START, group, 1, member.term, len(member.true) + 1, PARTITION,
                      start)
        member.true.append(entry)
        put_round(self.peer, group, 0, [entry], member.term)
        self.sync(group)

    def compact(self, group: int, kept: int) -> None:
        """The follower raises its Raft start as far as it may, but for so many entries."""
        first = self.store.raft_start_max(group) - kept
        if first > self.log(group).raft_start:
            self.store.compact(group, first)
        self.check()

    def commit_and_compact(self, group: int, kept: int) -> None:
        """Everything is applied, in both kept checkpoints, and the Raft start rises behind it."""
        self.commit(group)
        for _ in range(2):
            self.vote(group)  # so that the checkpoints are two files
            self.checkpoint()
        self.compact(group, kept)

    def vote(self, group: int) -> None:
        Rounds(self.store).run(write(group, hard_state=HardState(self.members[group].term, 2)))

    def trim(self, group: int) -> None:
        self.store.trim(group, [PARTITION])
        self.check()

    def release(self) -> None:
        """Records of sealed segments leave memory."""
        seal(self.store)
        self.checkpoint()
        release(self.store)
        self.check()

    def peer_releases(self) -> None:
        seal(self.peer)
        checkpoint(self.peer)
        release(self.peer)

    def peer_compacts(self, group: int, kept: int) -> None:
        states = self.peer.partition_states[group]
        first = states.applied_index + 1 - kept
        if first > 1:
            self.peer.table.logs[group].compact(first, states)

    def remove(self, steps: int) -> None:
        """Segments that nothing needs go: so many checkpoints, and what is due after each."""
        for _ in range(steps):
            while True:
                job = self.store.removal_job()
                if job is not None:
                    job.execute()
                    self.store.removed(job)
                    self.removed += len(job.segments)
                elif not self.store.is_examining:
                    break
            self.vote(1)
            self.checkpoint()
        self.note()
        exists = self.disk.filesystem.exists
        self.written = [item for item in self.written if exists(item[0])]
        self.check()

    def rot_checkpoint(self) -> None:
        """The newest checkpoint is damaged, unless the one before it is."""
        names = checkpoint_names(self.disk.filesystem, DIRECTORY)
        if names and not self.rotted:
            self.rotted = True
            self.disk.filesystem.flip(f"{DIRECTORY}/{names[-1]}", 40, 1)
        self.restart()

    def checkpoint(self) -> None:
        super().checkpoint()
        self.rotted = False

    def is_repaired(self, repairer: RepairCoordinator) -> bool:
        """Nothing is asked for but records that the group has deleted since this state."""
        if self.store.checkpoint_due:
            self.vote(1)
            self.checkpoint()
        return all(not self.log(group).quarantined and self.deleted(group)
                   for group in repairer.groups)

    def deleted(self, group: int) -> bool:
        """True if the missing records are all below the leader's log start."""
        kept = self.peer.table.logs[group]
        return not any(kept.has(index) or kept.records.in_file(index) is not None
                       for index in self.log(group).records.missing)

    def repair(self, recovering: set[int]) -> None:
        """Damage of entries that were dropped is not repaired, and a start from a checkpoint before
        that meets it."""
        hurt = self.hurt
        super().repair(recovering)
        self.hurt = hurt and any(self.first_of(group) > 1 for group in GROUPS)

    # ---- what holds ------------------------------------------------------------------------------

    def log(self, group: int):
        return self.store.table.logs[group]

    def find(self, scrubbed: bool) -> None:
        self.check_reads()
        super().find(scrubbed)

    def check_reads(self) -> None:
        """Nothing false is read, and no record passed over, although bytes are damaged."""
        for group, member in self.members.items():
            for entry in member.mine:
                if entry.batch and entry.index <= member.known and (
                        entry.base_offset + entry.batch.count > self.log_start(group)):
                    self.read(group, entry, may_fail=True)

    def read(self, group: int, entry: Entry, may_fail: bool = False) -> None:
        end = entry.base_offset + entry.batch.count
        try:
            found = self.store.fetch(group, PARTITION, end - 1, 1, end)
            payloads = found.buffers or (found.job.execute() if found.job is not None else [])
            next_offset = found.next_offset if found.job is None else found.job.next_offset
        except CorruptRange:
            assert may_fail
            return
        assert [bytes(payload) for payload in payloads] == [bytes(entry.payload)]
        assert next_offset == end

    def check(self) -> None:
        """A read may find damage of entries that were given up before the last start: an index file
        still names them."""
        for _ in range(20):
            try:
                return self.check_all()
            except CorruptRange as error:
                repairer = RepairCoordinator(1, self.store, self.core(), self.submit)
                repairer.on_damage(error)
                self.repair(set())
        raise AssertionError("damage is found again and again")

    def check_all(self) -> None:
        for group, member in self.members.items():
            log, mine = self.log(group), member.mine
            log._check()
            first = self.first_of(group)
            assert not log.quarantined and self.deleted(group)
            assert log.index.last_index == len(mine)
            if first <= len(mine):
                assert [*self.store.read_job(group, first, len(mine)).execute()] == mine[first - 1:]
            if first > 1 and first == log.raft_start:
                assert log.index.prev_term == mine[first - 2].term
                self.refuse(group, first - 1)
            assert self.store.partition_states[group].last_index == len(mine)
            self.check_records(group)

    def refuse(self, group: int, index: int) -> None:
        """Consensus gets nothing from below the Raft start, records neither."""
        for read in (self.store.entries, self.store.framed, self.store.read_job):
            try:
                read(group, index, index)
            except Compacted:
                continue
            raise AssertionError(f"{read} gave entry {index}")

    def log_start(self, group: int) -> int:
        state = self.store.partition_states[group].applied(PARTITION)
        return state.log_start if state is not None else 0

    def check_records(self, group: int) -> None:
        log, mine = self.log(group), self.members[group].mine
        log_start = self.log_start(group)
        needed = [entry for entry in mine if entry.batch and entry.index not in log.records.missing
                  and (entry.base_offset + entry.batch.count > log_start
                       or entry.index >= log.raft_start)]
        index = log.partitions.get(PARTITION)
        if index is None:
            assert not needed
            return
        index._check()
        batches = [each[:3] for each in looked_up(self.store, lambda: [
            *index.batches_from(0, self.store.table.indexed.blocks)])]
        expected = [(entry.base_offset, entry.base_offset + entry.batch.count, entry.index)
                    for entry in needed]
        assert batches[len(batches) - len(expected):] == expected
        for entry in needed:
            self.read(group, entry)
            if entry.index < log.raft_start:
                assert log.records.holds(entry.index, entry.term) or (
                    log.records.in_file(entry.index) is not None
                    and log.records.term(entry.index) == entry.term)
        readable = [entry for entry in needed
                    if entry.base_offset + entry.batch.count > log_start]
        found = self.store.fetch(group, PARTITION, log_start, 1 << 20, 1 << 40)
        assert not readable or found.buffers or found.job is not None


class CompactedCore(Core):
    """The follower's consensus, with storage's Raft start."""

    def of(self, group: int) -> Status:
        return super().of(group)._replace(first_index=self._life.first_of(group),
                                          configuration=VOTERS)

    def compacted(self, group: int, first_index: int) -> None:
        self._life.given_up[group] = first_index


small = st.integers(0, 3)
group = st.sampled_from(GROUPS)
place = st.tuples(st.integers(0, 30), st.integers(0, 5))
appends = st.tuples(st.just("append"), group, st.integers(1, 4), st.booleans())
commits = st.tuples(st.just("commit"), group)
checkpoints = st.tuples(st.just("checkpoint"))
compacts = st.tuples(st.just("commit_and_compact"), group, st.integers(0, 4))
steps = st.lists(st.one_of(
    appends, appends, commits, checkpoints, compacts, compacts,
    st.tuples(st.just("compact"), group, small),
    st.tuples(st.just("lead"), group, small, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("rise"), group, st.integers(0, 9)),
    st.tuples(st.just("trim"), group),
    st.tuples(st.just("peer_compacts"), group, small),
    st.tuples(st.just("remove"), st.integers(1, 3)),
    st.tuples(st.just("remove"), st.integers(1, 3)),
    st.tuples(st.just("roll"), st.booleans()),
    st.tuples(st.just("release")), st.tuples(st.just("release")),
    st.tuples(st.just("peer_releases")),
    st.tuples(st.just("restart")),
    st.tuples(st.just("rot_checkpoint")),
    st.tuples(st.just("stale_follows"), group),
    st.tuples(st.just("damage"), st.lists(place, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("flip"), st.integers(0, 20), st.booleans()),
), min_size=4, max_size=24)

#: Entries of two terms, all of them applied, and the Raft start behind most of them.
RAISED = [("append", 1, 4, True), ("lead", 1, 0, 4, True), ("commit", 1), ("checkpoint",),
          ("append", 2, 3, True), ("checkpoint",), ("compact", 1, 1), ("checkpoint",)]


#: The same in four segments, the second and third of which have nothing that is needed but the
#: batches of the first group, until the log start passes them.
SEGMENTED = [("append", 1, 2, True), ("append", 2, 2, True), ("roll", True),
             ("append", 1, 3, True), ("roll", True), ("lead", 1, 1, 3, True), ("roll", True),
             ("append", 2, 2, True), ("commit_and_compact", 1, 0), ("commit_and_compact", 2, 0)]
#: Segments are gone between others, or in the front, or are only named in the newest checkpoint.
REMOVED = [*SEGMENTED, ("rise", 1, 0), ("commit_and_compact", 1, 0), ("trim", 1), ("remove", 3)]
IN_FRONT = [*REMOVED, ("rise", 2, 0), ("commit_and_compact", 2, 0), ("trim", 2), ("remove", 3)]
NAMED = [*REMOVED[:-1], ("remove", 1)]


#: The same, and all records but those of the last segment are in index files alone.
RELEASED = [*SEGMENTED, ("release",)]


@settings(max_examples=150)
@given(steps)
@example([*REMOVED, ("restart",), ("append", 1, 2, True), ("remove", 2)])
@example([*REMOVED, ("rot_checkpoint",), ("append", 1, 2, True), ("remove", 3)])
@example([*REMOVED, ("damage", [(30, 5)], False), ("restart",)])
@example([*REMOVED, ("damage", [(0, 2), (20, 5)], True), ("restart",)])
@example([*NAMED, ("rot_checkpoint",), ("remove", 3)])
@example([*NAMED, ("damage", [(10, 3)], False), ("remove", 3), ("restart",)])
@example([*NAMED, ("damage", [(10, 3)], True), ("remove", 3), ("restart",)])
@example([*IN_FRONT, ("rot_checkpoint",), ("append", 2, 2, True), ("remove", 3)])
# Copies stand behind a removed segment that had the record of a truncation.
@example([("append", 1, 2, True), ("append", 2, 2, True), ("roll", True), ("lead", 1, 1, 3, True),
          ("roll", True), ("commit_and_compact", 1, 0), ("flip", 16, True), ("flip", 0, True),
          ("append", 1, 3, False), ("append", 1, 1, True), ("damage", [(21, 4), (4, 2)], True),
          ("remove", 3)])
# Records that are in index files alone are damaged.
@example([*RELEASED, ("flip", 8, True), ("restart",)])
@example([*RELEASED, ("flip", 8, False), ("release",)])
@example([*RELEASED, ("flip", 14, True), ("rise", 1, 2), ("commit_and_compact", 1, 0),
          ("trim", 1), ("remove", 3)])
@example([*RELEASED, ("damage", [(0, 2), (20, 5)], True), ("release",), ("restart",)])
@example([*RELEASED, ("damage", [(10, 3)], False), ("release",), ("restart",)])
@example([*RELEASED, ("peer_releases",), ("damage", [(0, 30)], False), ("release",)])
@example([*RAISED, ("flip", 8, True)])
@example([*RAISED, ("flip", 8, False)])
@example([*RAISED, ("peer_compacts", 1, 0), ("flip", 8, False), ("restart",)])
@example([*RAISED, ("damage", [(20, 3)], True), ("restart",)])
@example([*RAISED, ("damage", [(20, 3)], False), ("restart",)])
@example([*RAISED, ("peer_compacts", 1, 0), ("damage", [(20, 8)], False), ("restart",)])
@example([*RAISED, ("rot_checkpoint",), ("append", 1, 2, True)])
@example([*RAISED, ("rise", 1, 2), ("commit", 1), ("trim", 1), ("checkpoint",), ("restart",)])
# The first entries that are needed of a segment are lost, and those before them are not needed.
@example([("append", 1, 2, True), ("append", 2, 2, True), ("lead", 1, 0, 2, True),
          ("rise", 1, 0), ("lead", 2, 3, 3, True), ("rise", 2, 8),
          ("damage", [(14, 5), (20, 5)], True), ("commit_and_compact", 1, 2),
          ("commit_and_compact", 1, 2)])
@example([*RAISED, ("roll", True), ("append", 1, 3, True), ("roll", True), ("restart",)])
def test_records_are_readable_and_the_log_is_its_leaders(steps):
    lived(steps)


def test_segments_go_in_these_histories():
    for steps in (REMOVED, IN_FRONT):
        assert lived(steps).removed
    named = lived(NAMED)
    assert not named.removed and named.store.table.journal.leftovers


def test_records_are_in_index_files_in_these_histories():
    life = lived(RELEASED)
    life.release()
    assert all(life.log(group).partitions[PARTITION].rows for group in GROUPS)


def lived(steps) -> Life:
    life = Life()
    for what, *how in [*steps, ("restart",)]:
        getattr(life, what)(*how)
    for group in GROUPS:
        life.sync(group)
    life.check()
    return life
