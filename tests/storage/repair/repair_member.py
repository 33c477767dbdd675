"""One member of a world of damage and repair: its disk, its store, and the node's tasks for repair.

``Consensus`` is the model of its consensus; ``repair_world.py`` says what is simplified.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple, Protocol

from multiraft.codec import layout
from multiraft.storage.cold.cleaning_policy import Sources
from multiraft.storage.cold.cold_segment import number_of
from multiraft.storage.errors import (
    CorruptFile,
    CorruptIndexedSegment,
    CorruptRange,
    RecordsNotCopied,
)
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.repair.scrub import Scrubber
from multiraft.types import Entry, HardState
from node.replicas.record_copies import RecordCopies
from node.replicas.repair_steps import RepairSteps
from tests.node.steps import at_once, run
from tests.storage.cold.test_cleaner import surveyed, worked
from tests.storage.damage import DIRECTORY, LANE, Disk
from tests.storage.recovery.test_lost_truncations import Status
from tests.storage.world import VOTERS, Rounds, open_store, release, seal, write

GROUPS, NODES = (1, 2), (1, 2, 3)
COLD = f"{DIRECTORY}/cold-0"
END = 1 << 40


def partitions(group: int) -> range:
    return range(10 * group, 10 * group + 3)


class PassEnded(Exception):
    """End of one pass of a task of the node, at its pause."""


async def end_pass(_seconds: float) -> None:
    raise PassEnded


class Silence:
    """A log that keeps nothing, of a disk with space."""

    full = False

    def info(self, event: str, *, extra: dict) -> None:
        """Nothing is read here."""


@dataclass
class Replica:
    """Knowledge of a group that consensus of one member has."""

    first: int
    commit: int
    is_damaged: bool  # quarantined: frozen, unless it is following
    is_following: bool = False
    barrier: int = 0
    barrier_term: int = 0
    is_recovered: bool = False
    records_left: int = 0


class Place(NamedTuple):
    """An item of the journal, at a place in a file."""

    path: str
    at: int
    size: int
    kind: int
    group: int
    index: int


class World(Protocol):
    """The members, and what their consensus has decided."""

    now_ms: int
    random: random.Random  # of the present step
    members: dict[int, Member]
    leaders: dict[int, int]  # 0 = none
    terms: dict[int, int]
    begins: dict[int, int]  # index of the leader's first entry
    committed: dict[int, int]

    def true(self, group: int) -> list[Entry]: ...

    def step_down(self, member: Member, group: int) -> None: ...

    def elect_due(self) -> None: ...


class Consensus:
    """Consensus of one member, as a coordinator and record copies see it."""

    def __init__(self, member: Member):
        self.status = self.repair = self  # as the views of a core
        self.node = member.node
        self.replicas: dict[int, Replica] = {}
        self._member = member

    def groups(self) -> tuple[int, ...]:
        return GROUPS

    def has_group(self, group: int) -> bool:
        return True

    def is_installing(self, group: int) -> bool:
        return False

    def is_leader(self, group: int) -> bool:
        return self._member.world.leaders[group] == self.node

    def has_applied_in_term(self, group: int) -> bool:
        world, states = self._member.world, self._member.store.partition_states[group]
        return self.is_leader(group) and states.applied_index >= world.begins[group]

    def of(self, group: int) -> Status:
        store, replica = self._member.store, self.replicas[group]
        return Status(replica.first, store.table.logs[group].index.last_index,
                      store.partition_states[group].applied_index, replica.commit,
                      self._member.world.leaders[group], VOTERS)

    # ---- records -------------------------------------------------------------------------------

    def records_left(self, group: int) -> int:
        return self.replicas[group].records_left

    def set_records_left(self, group: int, left: int) -> None:
        self.replicas[group].records_left = left

    def hand_to_complete(self, group: int) -> bool:
        return False

    def copy_pause_ms(self, group: int, node: int) -> int:
        return 0

    def copies_sent(self, group: int, node: int, size: int) -> None:
        """Nothing limits them here."""

    # ---- repair commands -----------------------------------------------------------------------

    def is_frozen(self, group: int) -> bool:
        replica = self.replicas[group]
        return replica.is_damaged and not replica.is_following

    def quarantine(self, group: int, why: str) -> None:
        replica = self.replicas[group]
        replica.is_damaged, replica.is_following, replica.is_recovered = True, False, False
        self._member.world.step_down(self._member, group)

    def may_truncate(self, group: int, first_gone: int) -> bool:
        return self.is_frozen(group) and (
            self.replicas[group].commit < first_gone <= self.of(group).last_index)

    def truncate(self, group: int, first_gone: int) -> None:
        self._member.round(group, first_gone, [])

    def set_term_runs(self, group: int, term_runs) -> None:
        """Nothing is kept here."""

    def set_configurations(self, group: int, configurations) -> None:
        """Nor here."""

    def set_guessed_through(self, group: int, index: int) -> None:
        """Nor here: no terms are compared."""

    def compacted(self, group: int, first_index: int) -> None:
        applied = self.of(group).applied_index
        assert first_index - 1 <= applied, f"compaction to {first_index}, applied {applied}"
        self.replicas[group].first = max(self.replicas[group].first, first_index)

    def begin_head_recovery(self, group: int) -> None:
        replica = self.replicas[group]
        replica.is_following, replica.barrier, replica.is_recovered = True, 0, False
        self._member.met.add("head recovery")
        self._member.round(group, self.of(group).last_index + 1, [])

    def is_following(self, group: int) -> bool:
        return self.replicas[group].is_following

    def is_head_recovered(self, group: int) -> bool:
        return self.replicas[group].is_recovered

    def repaired(self, group: int) -> None:
        replica = self.replicas[group]
        replica.is_damaged = replica.is_following = replica.is_recovered = False


class Member:
    """One node: its disk, its store, and the tasks that repair it."""

    def __init__(self, world: World, node: int):
        self.world, self.node = world, node
        self.disk = Disk()
        self.mine: dict[int, list[Entry]] = {group: [] for group in GROUPS}  # entries of its logs
        self.places: list[Place] = []
        self.lost: set[tuple[int, int]] = set()  # (group, index), since all were healthy
        self.scars: set[str] = set()  # segments and index files with flipped bits
        self.met: set[str] = set()  # what happened here
        self.is_wild = False  # may have lost what no log names
        self.wild_paths: set[str] = set()  # segments in which that was
        self.files_found: set[str] = set()  # segments found damaged with their index files
        self.is_raft_hurt = False  # may have lost entries of a Raft log
        self.is_checkpoint_rotten = False
        self._seen = 0  # journal position up to which ``places`` has the items
        self._writes: list = []
        self.open()

    def open(self) -> None:
        """Start the node: recovery, then consensus, then the tasks."""
        self.store = store = open_store(self.disk.filesystem, DIRECTORY)
        self._writes = []
        self.core = core = Consensus(self)
        self.shortened: dict[int, set[int]] = {group: set() for group in GROUPS}
        following = []
        for group in GROUPS:
            restored = store.create_group(group, 1, VOTERS)
            core.replicas[group] = Replica(restored.bounds.first_index,
                                           max(restored.commit, restored.applied),
                                           bool(restored.quarantined))
            if restored.quarantined:
                del self.mine[group][self.log(group).index.last_index:]  # its end may be lost
            if restored.needs_head_recovery:
                following.append(group)
        for group in following:
            core.begin_head_recovery(group)
        self.repairer = RepairCoordinator(self.node, store, core, self._writes.append)
        self.repairs = RepairSteps(self.repairer, SimpleNamespace(ask=self._ask_repairs), at_once,
                                   end_pass, self.on_damage, lambda: None, Silence())
        self.copies = RecordCopies(core, store, SimpleNamespace(ask=self._ask_copies), self._write,
                                   at_once, end_pass, lambda: self.world.now_ms, Silence(),
                                   self.on_damage, self.repairer.on_records_copied,
                                   lambda: None, Silence())
        self.repairer.add_quarantined()
        self.copies.add_incomplete()
        self.note()

    # ---- ports of the tasks --------------------------------------------------------------------

    async def _ask_repairs(self, peer: int, request):
        return await self.world.members[peer].repairs.copies_for(request)

    async def _ask_copies(self, peer: int, request):
        return await self.world.members[peer].copies.copies_for(self.node, request)

    async def _write(self, stage) -> None:
        self.flush()
        staged = stage(lambda: None)
        if staged is not None:
            self._writes.append(staged)
        self.flush()

    def on_damage(self, error) -> None:
        assert "is in its place" not in str(error), f"nothing was written elsewhere: {error}"
        self.met.add(type(error).__name__)
        self.repairer.on_damage(error)
        if isinstance(error, CorruptIndexedSegment):
            self.files_found |= {each.path for each in [*self.store.table.journal.segments,
                                                        *self.store.table.journal.cold]
                                 if each.start == error.begin}
        if not isinstance(error, CorruptFile):
            self.world.elect_due()

    def flush(self) -> None:
        """End the writes of repair, in the order in which they were staged."""
        while self._writes:
            staged = self._writes.pop(0)
            staged.execute()
            self.store.finish(staged)
        self.note()

    # ---- the log -------------------------------------------------------------------------------

    def log(self, group: int):
        return self.store.table.logs[group]

    def is_healthy(self, group: int) -> bool:
        return not self.core.replicas[group].is_damaged

    def applied(self, group: int) -> int:
        return self.store.partition_states[group].applied_index

    def round(self, group: int, drop_from: int, entries: list[Entry]) -> None:
        """A round of one group, in the store, its tail and the model."""
        self.flush()
        states, mine = self.store.partition_states[group], self.mine[group]
        if drop_from and states.last_index >= drop_from:
            states.truncate(drop_from)
        if drop_from:
            del mine[drop_from - 1:]
        for entry in entries:
            fault = states.check_entry(entry)
            assert not fault, f"node {self.node}, group {group}: {fault}"
            states.append(entry)
            mine.append(entry)
        Rounds(self.store).run(write(group, *entries, drop_from=drop_from,
                                     hard_state=HardState(self.world.terms[group], 1)))
        self.note()

    def apply(self, group: int, index: int) -> None:
        replica, states = self.core.replicas[group], self.store.partition_states[group]
        if self.core.is_frozen(group):
            return
        index = min(index, common_length(self.world.true(group), self.mine[group]),
                    self.world.committed[group])
        replica.commit = max(replica.commit, index)
        if replica.commit > states.applied_index:
            states.apply(replica.commit)
        self.shortened[group].update(states.take_shortened())

    # ---- upkeep --------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        self.flush()
        job = self.store.checkpoint_job(
            {group: replica.commit for group, replica in self.core.replicas.items()}, None)
        job.execute()
        self.store.checkpointed(job)
        self.is_checkpoint_rotten = False

    def vote(self) -> None:
        """Rounds of both groups, so that the next checkpoint has a position of its own."""
        for group in GROUPS:
            self.round(group, 0, [])

    def compact(self, group: int, back: int) -> None:
        if not self.is_healthy(group):
            return
        first = self.store.raft_start_max(group) - back
        if first > self.log(group).raft_start:
            risen = self.store.compact(group, first)
            self.core.compacted(group, risen)

    def trim(self, batches_max: int) -> None:
        for group, shortened in self.shortened.items():
            if shortened and not self.store.trim(group, sorted(shortened), batches_max):
                shortened.clear()

    def release(self) -> None:
        self.flush()
        seal(self.store)
        self.checkpoint()
        release(self.store)

    def clean(self, first: int, step: int) -> None:
        """Copy the records of some segments to a cold one."""
        cleaner = self.store.cleaner
        worked(self.store)
        sources = Sources(tuple([
            each for each in cleaner._facts if each.records and not cleaner.is_source(each.start)
            and not (each.is_cold and number_of(each.start) in cleaner._waiting)][first::step]))
        if not sources.segments:
            return
        job = cleaner.copy_job(sources, surveyed(self.store, sources))
        if job is None:
            return
        try:
            while not job.is_done:
                job.step()
        except CorruptFile:
            cleaner.copy_failed(job)
            job.abandon()
            return
        for damage in cleaner.copied(job):
            self.on_damage(damage)
        self.met.add("cold segment")

    def remove(self) -> None:
        worked(self.store)
        while True:
            job = self.store.removal_job()
            if job is not None:
                job.execute()
                self.store.removed(job)
            elif not self.store.is_examining:
                return

    def upkeep(self) -> None:
        """Do the work that is due at a node all the time."""
        self.flush()
        seal(self.store)
        for error in self.store.repair.take_found():
            self.on_damage(error)
        if self.store.checkpoint_due:
            self.vote()
            self.checkpoint()
            release(self.store)
        self.trim(1 << 30)
        self.remove()

    def restart(self, without_indexes: bool) -> None:
        self.flush()
        self.store.close()
        if without_indexes:
            for name in self.disk.filesystem.list(LANE):
                if name.endswith(".index"):
                    self.disk.filesystem.remove(f"{LANE}/{name}")
        for group in GROUPS:
            self.world.step_down(self, group)
        self.open()

    # ---- repair --------------------------------------------------------------------------------

    def repair(self) -> None:
        """One pass of each task, or of one of them: nothing says that they take turns."""
        draw = self.world.random.random()
        tasks = (self.repairs.repair_all, self.copies.copy_all)
        for task in tasks if draw < 0.6 else tasks[:1] if draw < 0.8 else tasks[1:]:
            try:
                run(task())
            except PassEnded:
                pass
            self.flush()
            self.world.elect_due()

    def scrub(self) -> None:
        """Read everything from the disk once."""
        self.flush()
        scrubber = Scrubber(self.store)
        while (job := scrubber.next_job()) is not None:
            job.execute()
            for error in scrubber.done(job):
                self.on_damage(error)
            self.flush()

    def read_or_report(self) -> bool:
        """Read all that readers may read; return False if damage was found."""
        try:
            self.check()
        except CorruptRange as error:
            self.on_damage(error)
            self.flush()
            return False
        except RecordsNotCopied:
            return False
        return True

    def is_whole(self, group: int) -> bool:
        """Return True if nothing is left to repair."""
        log = self.log(group)
        return (group not in self.repairer.groups and group not in self.copies.groups
                and self.is_healthy(group) and not log.quarantined and not log.missing
                and log.records.is_complete and not self.store.checkpoint_due
                and self.mine[group] == self.world.true(group)
                and self.applied(group) == self.world.committed[group])

    def state(self, group: int) -> str:
        """Describe what is left to repair."""
        log, replica = self.log(group), self.core.replicas[group]
        return (f"n{self.node} g{group} leader {self.world.leaders[group]}: asks "
                f"{group in self.repairer.groups}, copies {group in self.copies.groups}, "
                f"quarantined {log.quarantined!r}, missing "
                f"{sorted(log.missing)}, records missing {sorted(log.records.missing)}, uncopied "
                f"{log.records.uncopied.ranges}, unneeded {log.records.unneeded.ranges}, log "
                f"{log.raft_start}..{log.index.last_index} of {len(self.world.true(group))}, "
                f"applied {self.applied(group)} of {self.world.committed[group]}, {replica}, "
                f"checkpoint due {self.store.checkpoint_due}")

    # ---- what holds ----------------------------------------------------------------------------

    def check(self) -> None:
        self.store.table.indexed._check()
        self.store.table.journal_damage._check()
        for group in GROUPS:
            log, mine = self.log(group), self.mine[group]
            log._check()
            assert log.index.last_index == len(mine)
            for partition in partitions(group):
                self.check_partition(group, partition)
            self.check_entries(group)

    def check_entries(self, group: int) -> None:
        """The Raft log is what was written, without forgotten entries."""
        log, mine = self.log(group), self.mine[group]
        for index in range(log.raft_start, len(mine) + 1):
            assert log.is_forgotten(index) or log.index.term(index) == mine[index - 1].term
        intact: list[int] = []
        for index in range(log.raft_start, len(mine) + 2):
            if index <= len(mine) and not log.is_forgotten(index):
                intact.append(index)
            elif intact:
                found = self.store.read_job(group, intact[0], intact[-1]).execute()
                assert [*found] == mine[intact[0] - 1:intact[-1]]
                intact = []

    def check_partition(self, group: int, partition: int) -> None:
        """Every batch that is not below a log start can be read.  A replica that is behind has no
        copies of records that its source has deleted already."""
        start = max(each.log_start(group, partition) for each in self.world.members.values())
        expected = [bytes(entry.payload) for entry in self.mine[group] if entry.batch
                    and entry.partition == partition
                    and entry.base_offset + entry.batch.count > start]
        found: list[bytes] = []
        offset = start
        while batches := self._fetch(group, partition, offset):
            found += [bytes(each) for each in batches[0]]
            assert batches[1] > offset
            offset = batches[1]
        if not self.log(group).records.is_complete:
            expected = expected[:len(found)]  # a read may end before what is missing
        assert found == expected, (
            f"node {self.node}, partition {partition} from {start} on: {len(found)} of "
            f"{len(expected)} batches, {[each == other for each, other in zip(found, expected)]}")

    def log_start(self, group: int, partition: int) -> int:
        state = self.store.partition_states[group].applied(partition)
        return state.log_start if state is not None else 0

    def _fetch(self, group: int, partition: int, offset: int):
        found = self.store.fetch(group, partition, offset, 1500, END)
        buffers = found.buffers if found.job is None else found.job.execute()
        return (buffers, found.read_to) if buffers else None

    # ---- damage --------------------------------------------------------------------------------

    def note(self) -> None:
        """Remember where items of the journal stand."""
        for segment in self.store.table.journal.segments:
            at = max(self._seen, segment.start + layout.SEGMENT_HEADER_BYTES) - segment.start
            if segment.start + at >= segment.end:
                continue  # it may have no file yet
            self.places += items_of(segment.path, self.disk.read(segment.path), at,
                                    segment.end - segment.start)
        self._seen = self.store.table.journal.position

    def standing(self) -> list[Place]:
        """The items in the files that exist."""
        exists = self.disk.filesystem.exists
        known = {path: exists(path) for path in {each.path for each in self.places}}
        self.places = [each for each in self.places if known[each.path]]
        return self.places

    def cold_items(self) -> list[Place]:
        found: list[Place] = []
        for each in self.store.table.journal.cold:
            if self.disk.filesystem.exists(each.path):
                data = self.disk.read(each.path)
                found += items_of(each.path, data, layout.SEGMENT_HEADER_BYTES, len(data))
        return found

    def has_intact(self, group: int, index: int) -> bool:
        """Return True if the member could give the entry of an index to others."""
        log = self.log(group)
        if (group, index) in self.lost or log.first_missing_of((index,)):
            return False
        if index >= log.raft_start:
            return (index <= log.index.last_index and not log.is_forgotten(index)
                    and not self.is_wild)  # else it may drop the log behind what it lost
        records = log.records
        return index in records or (
            records.in_file(index) is not None and index >= records.first_needed
            and index not in records.unneeded and not records.uncopied.first_in(index, index)
            and self.reads(group, index))

    def reads(self, group: int, index: int) -> bool:
        """Return True if the entry is a batch that readers of this member may read."""
        if index > len(self.mine[group]):
            return False
        entry = self.mine[group][index - 1]
        state = self.store.partition_states[group].applied(entry.partition)
        return entry.batch is not None and (
            state is None or entry.base_offset + entry.batch.count > state.log_start)

    @property
    def is_fragile(self) -> bool:
        """True if the member may need a leader to come back."""
        return self.is_wild or self.is_latent or self.has_wild_file or any(
            not self.is_healthy(group) for group in GROUPS)

    @property
    def has_wild_file(self) -> bool:
        """True if a segment still exists in which something was lost that no log names."""
        return any(map(self.disk.filesystem.exists, self.wild_paths))

    @property
    def is_latent(self) -> bool:
        """True if a segment and its index file are damaged, and no read has met that."""
        exists = self.disk.filesystem.exists
        return any("index" in path and segment_of(path) in self.scars
                   and exists(path) and segment_of(path) not in self.files_found
                   for path in self.scars)


def segment_of(path: str) -> str:
    """Return the path of the segment that an index file belongs to."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/{name.split('.')[0]}." + ("segment" if directory == LANE else "cold")


def common_length(log: list[Entry], other: list[Entry]) -> int:
    """Return how many entries two logs have in common."""
    count = min(len(log), len(other))
    while count and log[count - 1].term != other[count - 1].term:
        count -= 1
    return count


def items_of(path: str, data: bytes, at: int, end: int) -> Iterator[Place]:
    """Yield the framed entries of a file in [at, end); damage leaves their lengths."""
    while at < end:
        length = int.from_bytes(data[at:at + 4], "little")
        if not length:
            return
        size = -(-length // layout.ENTRY_ALIGNMENT) * layout.ENTRY_ALIGNMENT
        yield Place(path, at, size, data[at + layout.ENTRY_KIND_AT],
                    int.from_bytes(data[at + layout.ENTRY_GROUP_AT:][:4], "little"),
                    int.from_bytes(data[at + layout.ENTRY_INDEX_AT:][:8], "little"))
        at += size
