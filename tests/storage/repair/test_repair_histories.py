"""Histories of a replica that is damaged and repaired, in any order: at every moment its log is its
leader's, and repaired entries stay repaired.

Two groups share the follower's journal.  Their leaders append, and are replaced by others that make
the follower truncate uncommitted entries, with or without its knowledge.  The follower commits,
writes checkpoints, begins new segments and index files, and restarts.  Any entries of its journal
are lost, those of earlier repairs too: found by a scrub with every log in memory, or by the next
start.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from multiraft.codec import layout
from multiraft.storage.repair.coordinator import RepairCoordinator, ReplayEntries, SendRequest
from multiraft.storage.repair.scrub import Scrubber
from multiraft.types import Entry, EntryKind, HardState
from tests.storage.damage import DIRECTORY, Disk
from tests.storage.recovery.test_lost_truncations import PARTITION, Status, follow_on
from tests.storage.world import VOTERS, Rounds, checkpoint, open_store, seal, write

GROUPS = (1, 2)


class Member:
    """One group: what its leader's log is, what the follower's should be."""

    def __init__(self, group: int):
        self.group = group
        self.term = 1
        self.true: list[Entry] = []
        self.mine: list[Entry] = []
        self.committed = 0  # of the leader's
        self.known = 0  # of that the follower knows


def put_round(store, group: int, drop_from: int, entries: list[Entry], term: int) -> None:
    """A round of one group, in a store and in its tail."""
    tail = store.partition_states[group]
    if drop_from and tail.last_index >= drop_from:
        tail.truncate(drop_from)
    for entry in entries:
        tail.append(entry)
    Rounds(store).run(write(group, *entries, drop_from=drop_from, hard_state=HardState(term, 2)))


class BootId:
    def __init__(self) -> None:
        self.disk = Disk()
        self.members = {group: Member(group) for group in GROUPS}
        self.written: list[tuple[str, int, int, int]] = []  # file, place in it, size, kind
        self.seen = self.flips = 0
        self.hurt = False
        self.stale = self._peer()
        self.peer = self._peer()
        self.store = None
        self.open()

    def _peer(self):
        peer = open_store(Disk().filesystem, DIRECTORY)
        for group in GROUPS:
            peer.create_group(group, 1, VOTERS)
        return peer

    # ---- what happens ----------------------------------------------------------------------------

    def open(self) -> None:
        self.store = open_store(self.disk.filesystem, DIRECTORY)
        self.seen = self.store.table.journal.position
        for group in GROUPS:
            restored = self.store.create_group(group, 1, VOTERS)
            member = self.members[group]
            assert restored.applied <= member.known
            assert restored.commit <= member.committed
            member.known = restored.commit
        quarantined = [*self.store.repair.quarantined_groups()]
        assert self.hurt or not quarantined, (
            f"needlessly: {self.store.repair.quarantined(quarantined[0]).quarantined}")
        self.repair(set())

    def repair(self, recovering: set[int]) -> None:
        quarantined = [*self.store.repair.quarantined_groups()]
        for group in quarantined:
            self.commit_all(group)
        self.hurt = False
        repairer = RepairCoordinator(1, self.store, self.core(), self.submit)
        leader = RepairCoordinator(2, self.peer, PeerCore(self.peer, True), self.submit)
        stale = RepairCoordinator(3, self.stale, PeerCore(self.stale, False), self.submit)
        for _ in range(100):
            for group in sorted(repairer.groups):
                action = repairer.step(group)
                if isinstance(action, SendRequest):
                    asked, peer = (leader, self.peer) if action.peer == 2 else (stale, self.stale)
                    jobs, answer = asked.copies_for(action.request)
                    given = tuple(entry for job in jobs for entry in job.execute())
                    repairer.on_response(asked.with_entries(answer, given))
                elif isinstance(action, ReplayEntries):
                    repairer.on_replay_read(group, action.job.execute())
            if self.is_repaired(repairer):
                break
        else:
            raise AssertionError(f"never repaired: {quarantined}")
        for group in quarantined:
            self.sync(group)
        self.check()
        self.note()

    def is_repaired(self, repairer: RepairCoordinator) -> bool:
        return not repairer.groups

    def first_of(self, group: int) -> int:
        """First index that consensus compares with the leader's log."""
        return 1

    def core(self) -> Core:
        """The follower's consensus, as it is after the last round."""
        return Core(self)

    def submit(self, staged) -> None:
        staged.execute()
        self.store.finish(staged)

    def sync(self, group: int) -> None:
        """The leader's appends bring the follower's log to its own."""
        member, index = self.members[group], self.store.table.logs[group].index
        common = min(index.last_index, len(member.true))
        while common >= self.first_of(group) and (
                index.term(common) != member.true[common - 1].term):
            common -= 1
        assert common >= member.known, f"what follows {common} of {member.known} would be dropped"
        if common < max(index.last_index, len(member.true)):
            self.write(group, common + 1 if common < index.last_index else 0, member.true[common:])
        member.mine = [*member.true]

    def write(self, group: int, drop_from: int, entries: list[Entry]) -> None:
        put_round(self.store, group, drop_from, entries, self.members[group].term)
        self.note()

    def note(self) -> None:
        """Remember where journal entries stand."""
        for segment in self.store.table.journal.segments:
            at = max(self.seen, segment.start + layout.SEGMENT_HEADER_BYTES) - segment.start
            if segment.start + at >= segment.end:
                continue  # it may have no file yet
            data = self.disk.read(segment.path)
            while segment.start + at < segment.end:
                length = int.from_bytes(data[at:at + 4], "little")
                size = -(-length // layout.ENTRY_ALIGNMENT) * layout.ENTRY_ALIGNMENT
                self.written.append((segment.path, at, size, data[at + layout.ENTRY_KIND_AT]))
                at += size
        self.seen = self.store.table.journal.position

    def lead(self, group: int, dropped: int, appended: int, heard: bool) -> None:
        """A new leader that lacks so many entries of the old one's, and appends some."""
        member = self.members[group]
        member.term += 1
        kept = max(member.committed, len(member.true) - dropped)
        dropped_from = kept + 1 if kept < len(member.true) else 0
        del member.true[kept:]
        self.append(group, appended, heard, dropped_from)

    def append(self, group: int, count: int, heard: bool, dropped_from: int = 0) -> None:
        member = self.members[group]
        added = follow_on(member.true, member.term, count, group)
        member.true += added
        put_round(self.peer, group, dropped_from, added, member.term)
        if heard:
            self.sync(group)

    def stale_follows(self, group: int) -> None:
        """Another member takes the leader's log as it is now, and hears no more of it."""
        member = self.members[group]
        Rounds(self.stale).run(write(group, *member.true, drop_from=1,
                                     hard_state=HardState(member.term, 2)))

    def commit_all(self, group: int) -> None:
        member = self.members[group]
        member.committed = len(member.true)
        self.peer.partition_states[group].apply(member.committed)

    def commit(self, group: int) -> None:
        """The follower applies what is committed."""
        self.sync(group)
        self.commit_all(group)
        member = self.members[group]
        member.known = member.committed
        self.store.partition_states[group].apply(member.known)

    def checkpoint(self) -> None:
        checkpoint(self.store, {group: self.members[group].known for group in GROUPS})

    def roll(self, sealed: bool) -> None:
        self.store.table.journal.start_segment()
        self.write(1, 0, [])
        if sealed:
            seal(self.store)

    def restart(self) -> None:
        self.store.close()
        self.open()

    def damage(self, places: list[tuple[int, int]], scrubbed: bool) -> None:
        self.note()
        count = len(self.written)
        if not count:
            return
        Rounds(self.store).run(*[write(group, hard_state=HardState(self.members[group].term, 2))
                                 for group in GROUPS])
        for back, length in places:
            begin = count - 1 - back % count
            for path, at, size, _ in self.written[begin:min(count, begin + 1 + length)]:
                self.disk.filesystem.overwrite(path, at, bytes(size))
        self.note()
        self.hurt = True
        self.find(scrubbed)

    def find(self, scrubbed: bool) -> None:
        """The scrub finds what is damaged, or a start that has no index file to believe."""
        if scrubbed:
            self.scrub()
            return
        for path in self.disk.files():
            if path.endswith(".index"):
                self.disk.filesystem.remove(path)
        self.restart()

    def flip(self, back: int, scrubbed: bool) -> None:
        """One more bit of a batch: none flips back."""
        self.note()
        batches = [item for item in self.written if item[3] == EntryKind.DATA]
        if not batches:
            return
        Rounds(self.store).run(*[write(group, hard_state=HardState(self.members[group].term, 2))
                                 for group in GROUPS])
        path, at, size, _ = batches[-1 - back % len(batches)]
        data = self.disk.filesystem.open(path).read(size, at)
        place = size - 16 - self.flips % 12
        self.flips += 1
        self.disk.filesystem.overwrite(path, at + place, bytes([data[place] ^ 4]))
        self.note()
        self.hurt = True
        self.find(scrubbed)

    def scrub(self) -> None:
        for log in self.store.table.logs.values():
            log.cached.clear()
        repairer = RepairCoordinator(1, self.store, self.core(), self.submit)
        scrubber = Scrubber(self.store)
        while (job := scrubber.next_job()) is not None:
            job.execute()
            for error in scrubber.done(job):
                repairer.on_damage(error)
        self.repair(set())

    def check(self) -> None:
        for group, member in self.members.items():
            log = self.store.table.logs[group]
            assert not log.quarantined
            assert log.index.last_index == len(member.mine)
            if member.mine:
                assert [*self.store.read_job(group, 1, len(member.mine)).execute()] == member.mine
            assert self.store.partition_states[group].last_index == len(member.mine)
            batches = [(entry.base_offset, entry.base_offset + entry.batch.count, entry.index)
                       for entry in member.mine if entry.batch]
            index = log.partitions.get(PARTITION)
            if index is None:
                assert not batches
                continue
            index._check()
            assert [index.batch(slot) for slot in range(len(index))] == batches
            assert not batches or index.end_offset == batches[-1][1]


class Core:
    """The follower's consensus."""

    def __init__(self, life: BootId):
        self.status = self.repair = self  # as the views of a core
        self._life = life
        self._following: set[int] = set()

    def groups(self) -> tuple[int, ...]:
        return GROUPS

    def of(self, group: int) -> Status:
        store, known = self._life.store, self._life.members[group].known
        return Status(1, store.table.logs[group].index.last_index,
                      store.partition_states[group].applied_index, known, 2, VOTERS)

    def has_applied_in_term(self, group: int) -> bool:
        return False

    def may_truncate(self, group: int, first_gone: int) -> bool:
        return self._life.members[group].known < first_gone and group not in self._following

    def truncate(self, group: int, first_gone: int) -> None:
        self._life.write(group, first_gone, [])

    def set_term_runs(self, group: int, term_runs) -> None:
        """Nothing is kept here."""

    def set_configurations(self, group: int, configurations) -> None:
        """Nor here."""

    def set_guessed_through(self, group: int, index: int) -> None:
        """Nor here."""

    def is_following(self, group: int) -> bool:
        return group in self._following

    def begin_head_recovery(self, group: int) -> None:
        self._following.add(group)
        self._life.write(group, self._life.store.table.logs[group].index.last_index + 1, [])
        self._life.sync(group)

    def is_head_recovered(self, group: int) -> bool:
        return group in self._following

    def repaired(self, group: int) -> None:
        """It votes again."""

    def quarantine(self, group: int, why: str) -> None:
        """It votes no more."""


class PeerCore:
    """A healthy member's."""

    def __init__(self, store, leads: bool):
        self.status = self  # as core.status
        self._store, self._leads = store, leads

    def has_applied_in_term(self, group: int) -> bool:
        return self._leads


small = st.integers(0, 3)
group = st.sampled_from(GROUPS)
place = st.tuples(st.integers(0, 30), st.integers(0, 5))
steps = st.lists(st.one_of(
    st.tuples(st.just("append"), group, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("lead"), group, small, st.integers(1, 3), st.booleans()),
    st.tuples(st.just("commit"), group),
    st.tuples(st.just("checkpoint")),
    st.tuples(st.just("roll"), st.booleans()),
    st.tuples(st.just("restart")),
    st.tuples(st.just("stale_follows"), group),
    st.tuples(st.just("damage"), st.lists(place, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("flip"), st.integers(0, 20), st.booleans()),
    st.tuples(st.just("damage"), st.lists(place, min_size=1, max_size=2), st.booleans()),
    st.tuples(st.just("lead"), st.just(1), st.integers(1, 3), st.integers(1, 2), st.just(True)),
    st.tuples(st.just("append"), st.just(1), st.integers(1, 2), st.just(True)),
), min_size=2, max_size=16)

#: Two leaders, the second of which drops the first one's last entry; then it appends another.
DROPPED = [("append", 1, 3, True), ("lead", 1, 1, 1, True), ("append", 1, 1, True)]
#: Four entries, the fourth write of which is lost and repaired; then another leader drops one.
REPAIRED = [("append", 1, 2, True), ("append", 1, 2, True), ("damage", [(2, 0)], False),
            ("append", 1, 2, True), ("lead", 1, 2, 1, True), ("append", 1, 1, True)]
#: Two entries, each of its own write.
TWO = [("append", 1, 1, False), ("append", 1, 1, False), ("commit", 1)]


@given(steps)
# The copies of what was dropped and replaced in a settled hole are lost: a copy, or all of them.
@example([*DROPPED, ("damage", [(4, 2)], True), ("append", 1, 1, True),
          ("damage", [(8, 0)], False)])
@example([*DROPPED, ("damage", [(4, 2)], True), ("append", 1, 1, True), ("damage", [(9, 6)], True)])
# Another member still has what was dropped: that is no proof.
@example([("append", 1, 3, True), ("stale_follows", 1), *DROPPED[1:], ("damage", [(4, 2)], False)])
# The only entry of a segment's part is truncated, its replacement is lost, and the log continues.
@example([*REPAIRED, ("damage", [(3, 0)], False)])
@example([*REPAIRED, ("damage", [(3, 0)], True)])
# A copy is damaged itself, in a segment without other entries of its group, or behind the log.
@example([("append", 1, 1, False), ("commit", 1), ("roll", False), *TWO[1:],
          ("damage", [(1, 0)], True), ("flip", 0, False)])
@example([*TWO, ("damage", [(1, 0)], True), ("flip", 0, False)])
# What may have been a copy is replaced, and damaged then: the scrub has passed it over.
@example([("lead", 1, 1, 2, True), ("damage", [(2, 0)], False), ("flip", 1, True)])
# The record before a copy is lost: what stands there is no later entry.
@example([("append", 1, 1, False), ("append", 1, 2, True), ("flip", 0, False),
          ("damage", [(3, 0)], True)])
@example([*TWO, ("flip", 0, False), ("flip", 0, True), ("damage", [(3, 0)], True)])
@example([("append", 1, 1, False), ("commit", 1), ("append", 1, 1, False),
          ("damage", [(1, 0)], True), ("damage", [(5, 0)], True)])
@example([("lead", 1, 1, 2, True), ("append", 2, 1, False), ("append", 1, 2, True),
          ("damage", [(10, 0)], False), ("damage", [(7, 0)], False), ("append", 2, 1, True),
          ("flip", 1, True)])  # and then it is damaged itself
# What was dropped is lost, and so is the drop: what stood behind it tells its term until it goes.
@example([("append", 1, 2, True), ("append", 1, 1, True), ("append", 1, 1, False),
          ("lead", 1, 3, 1, True), ("damage", [(2, 0), (6, 0)], True)])
# A scrub's place at the beginning of a segment is a start's, too.
@example([("append", 1, 1, True), ("roll", False), ("damage", [(0, 0)], True)])
# A group that was created behind the damage, and of which nothing said so on disk.
@example([("roll", False), ("restart",), ("damage", [(0, 0)], True)])
# What was damaged is given up: its leader does not have it.
@example([("append", 1, 1, True), ("lead", 1, 1, 1, False), ("damage", [(1, 0)], True)])
# A segment lost all its entries; later the end of the one before it is lost.
@example([("append", 1, 2, True), ("lead", 1, 2, 2, True), ("roll", False), ("append", 1, 2, True),
          ("roll", False), ("append", 1, 2, True), ("damage", [(22, 3)], False),
          ("damage", [(25, 3)], False)])
@example([("lead", 2, 0, 1, True), ("roll", False), ("lead", 1, 3, 2, True), ("roll", True),
          ("damage", [(18, 4)], False), ("append", 1, 3, True), ("damage", [(23, 2)], False)])
# It lost its end, and then the first entry of the next one is lost, too.
@example([("append", 1, 1, False), ("append", 1, 1, False), ("append", 1, 1, False),
          ("append", 1, 1, False), ("append", 1, 3, False), ("lead", 1, 0, 1, True),
          ("damage", [(0, 0), (3, 2)], True), ("damage", [(0, 0), (8, 2)], True),
          ("lead", 1, 0, 3, True), ("damage", [(0, 0), (2, 0)], False),
          ("damage", [(13, 0)], True)])
def test_what_was_repaired_is_its_leaders_log_for_good(steps):
    life = BootId()
    for what, *how in [*steps, ("restart",)]:
        getattr(life, what)(*how)
    for group in GROUPS:
        life.sync(group)
    life.check()
