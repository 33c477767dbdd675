"""Three members of two groups on simulated disks: what happens to them, and how they heal.

``RepairWorld`` runs a script of random steps.  Each step draws from a seed of its own, so that a
script is still the same without some of its steps.  ``heal`` drives the repair as a node does, with
the node's own ``RepairSteps`` and ``RecordCopies``, and fails if it does not end.

Consensus is a model (``Consensus``).  Its simplifications:

- Messages arrive at once, writes end at once (those of repair after the pass), no node crashes
  in the middle of one.  A commit index is only known together with its effects.
- The healthy member with the longest log is elected while there are two healthy ones; its empty
  entry is committed at once if one of them hears of it.  Members do not change.
- A leader clears a replica in head recovery when the replica has its log up to a barrier entry that
  the others have committed.

Damage leaves each entry intact on another member, or is such that the two others are healthy and
elect a leader, which replaces what it has compacted by a snapshot.  Only one member at a time loses
what no log names (places of votes and terms), because two of them would wait for each other.  Such
damage counts as long as its file exists: a log that has forgotten a damaged record names it no
longer.
"""

from __future__ import annotations

import random

from multiraft.codec import layout
from multiraft.errors import MultiRaftError
from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptRange
from multiraft.types import Entry, EntryKind
from tests.storage.cold.test_cleaner import worked
from tests.storage.damage import DIRECTORY, LANE
from tests.storage.repair.repair_member import (
    COLD,
    END,
    GROUPS,
    NODES,
    Member,
    Place,
    common_length,
    partitions,
    segment_of,
)
from tests.storage.world import VOTERS, data_entry, noop_entry, open_entry, release, seal

#: Passes in which everything heals.  One pass is one request for each group; the next one asks
#: another member.
PASSES = 80
#: Behind the bytes of an entry without which it is not known whose it is.
PAYLOAD_AT = layout.ENTRY_HEADER_BYTES + layout.BATCH_UNCHECKED_BYTES

Step = tuple[str, int]


class NeverEnds(AssertionError):
    """Repair that made no end within ``PASSES`` passes."""


class RepairWorld:
    """Three members, and the steps of a script."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.terms = dict.fromkeys(GROUPS, 1)
        self.leaders = dict.fromkeys(GROUPS, 1)
        self.begins = dict.fromkeys(GROUPS, 1)  # index of the leader's first entry
        self.committed = dict.fromkeys(GROUPS, 0)
        self.times = 0
        self.victims: set[tuple[int, int]] = set()  # (group, index) of entries that were damaged
        self.random = random.Random(0)  # of the present step
        self.members = {node: Member(self, node) for node in NODES}
        for group in GROUPS:
            for partition in partitions(group):
                self._append(group, partial_open(partition))
            for member in self.members.values():
                self.replicate(member, group)
            self.commit(group)

    # ---- consensus -----------------------------------------------------------------------------

    def true(self, group: int) -> list[Entry]:
        """The log of the last leader."""
        leader = self.members.get(self.leaders[group])
        if leader is not None:
            return leader.mine[group]
        return max((member.mine[group] for member in self.members.values()), key=_end)

    def healthy(self, group: int) -> list[Member]:
        return [each for each in self.members.values() if each.is_healthy(group)]

    def step_down(self, member: Member, group: int) -> None:
        if self.leaders[group] == member.node:
            self.leaders[group] = 0

    def elect_due(self) -> None:
        for group in GROUPS:
            if not self.leaders[group]:
                self.elect(group)

    def elect(self, group: int) -> None:
        """The longest log of the healthy members leads, if they are a majority."""
        voters = self.healthy(group)
        if len(voters) < 2:
            self.leaders[group] = 0
            return
        longest = max(_end(each.mine[group]) for each in voters)
        leader = self.random.choice([each for each in voters
                                     if _end(each.mine[group]) == longest])
        assert len(leader.mine[group]) >= self.committed[group], "a committed entry is gone"
        self.leaders[group] = leader.node
        self.terms[group] += 1
        self._append(group, lambda index, term, states: noop_entry(group, index, term))
        self.begins[group] = len(leader.mine[group])

    def _append(self, group: int, build) -> None:
        leader = self.members[self.leaders[group]]
        states = leader.store.partition_states[group]
        leader.round(group, 0, [build(len(leader.mine[group]) + 1, self.terms[group], states)])

    def replicate(self, member: Member, group: int) -> None:
        """The leader's entries, or its snapshot, reach a member."""
        leader = self.members.get(self.leaders[group])
        if leader is None or member is leader or member.core.is_frozen(group):
            return
        replica = member.core.replicas[group]
        if replica.is_following and (not replica.barrier
                                     or replica.barrier_term != self.terms[group]):
            self._append(group, lambda index, term, states: noop_entry(group, index, term))
            replica.barrier, replica.barrier_term = len(leader.mine[group]), self.terms[group]
        true, index = leader.mine[group], member.log(group).index
        common = min(index.last_index, len(true))
        sure = max(index.first_index, member.log(group).guessed_through + 1)
        while common >= sure and index.term(common) != true[common - 1].term:
            common -= 1
        assert common >= replica.commit, (
            f"node {member.node}: what follows {common} of {replica.commit} would be dropped")
        if common + 1 < leader.core.replicas[group].first:
            self._install(leader, member, group, common)
        elif common < len(true):
            entries = self._read(leader, group, common + 1, len(true))
            if entries is None:
                return
            assert entries == true[common:]
            member.round(group, common + 1 if common < index.last_index else 0, entries)
        self.commit(group)
        if (replica.is_following and self.committed[group] >= replica.barrier
                and len(member.mine[group]) >= replica.barrier):
            replica.is_recovered = True

    def _read(self, leader: Member, group: int, first: int, last: int) -> list[Entry] | None:
        leader.flush()
        found = leader.store.entries(group, first, last)
        if found is None:
            try:
                found = leader.store.read_job(group, first, last).execute()
            except CorruptRange as error:
                leader.on_damage(error)
                return None
        return [*found]

    def _install(self, leader: Member, member: Member, group: int, common: int) -> None:
        """Install a snapshot of what the leader has applied."""
        leader.apply(group, END)
        states = PartitionStates.restore(leader.store.partition_states[group].snapshot())
        first_index, terms = leader.store.record_terms(group)
        replica, applied = member.core.replicas[group], states.applied_index
        if applied <= replica.commit:
            return
        member.flush()
        true = leader.mine[group]
        member.store.install(group, LogBounds(applied + 1, true[applied - 1].term, applied), 0,
                             VOTERS, states, terms=terms, first_index=first_index,
                             committed=min(common, applied))
        member.mine[group] = true[:applied]
        member.checkpoint()
        replica.first, replica.commit = applied + 1, applied
        member.copies.add(group)
        member.met.add("snapshot")

    def commit(self, group: int) -> None:
        """Commit what the leader and another healthy member have."""
        leader = self.members.get(self.leaders[group])
        if leader is None:
            return
        true = leader.mine[group]
        for member in self.healthy(group):
            if member is not leader:
                common = common_length(true, member.mine[group])
                if common >= self.begins[group]:
                    self.committed[group] = max(self.committed[group], common)

    # ---- steps ---------------------------------------------------------------------------------

    def run(self, script: list[Step]) -> None:
        """Take the steps of a script, heal, and start each member once more."""
        for name, seed in script:
            self.random = random.Random(seed)
            getattr(self, name)()
        self.heal()
        for member in self.members.values():
            member.restart(self.random.random() < 0.5)
            self.heal()

    def _member(self) -> Member:
        return self.members[self.random.choice(NODES)]

    def _group(self) -> int:
        return self.random.choice(GROUPS)

    def append(self) -> None:
        group = self._group()
        if not self.leaders[group]:
            self.elect(group)
            return
        for _ in range(self.random.randint(1, 8)):
            self._append(group, self._drawn)
        for member in self.members.values():
            if self.random.random() < 0.8:
                self.replicate(member, group)

    def _drawn(self, index: int, term: int, states: PartitionStates) -> Entry:
        group, draw = states.group, self.random.random()
        partition = self.random.choice(partitions(group))
        if draw < 0.15:
            return noop_entry(group, index, term)
        end = states.next_offset(partition)
        if draw < 0.22:
            return Entry(EntryKind.LOG_START, group, 1, term, index, partition,
                         max(0, end - self.random.choice((0, 1, 3, 9))))
        self.times += 1
        values = [b"%d" % self.times * self.random.randint(1, 60)] * self.random.randint(1, 2)
        return data_entry(group, index, term, partition, end, values)

    def raise_all(self) -> None:
        """Nearly all of a group is deleted."""
        group = self._group()
        if not self.leaders[group]:
            return
        for partition in partitions(group):
            back = self.random.choice((0, 0, 1, 3))
            self._append(group, lambda index, term, states, partition=partition, back=back: Entry(
                EntryKind.LOG_START, group, 1, term, index, partition,
                max(0, states.next_offset(partition) - back)))
        for member in self.members.values():
            self.replicate(member, group)
        for member in self.members.values():
            if self.random.random() < 0.7:
                member.apply(group, END)
                member.trim(END)

    def run_ahead(self) -> None:
        """Append while one member hears of nothing, and compact behind that."""
        group, behind = self._group(), self._member()
        if not self.leaders[group] or self.leaders[group] == behind.node:
            return
        for _ in range(self.random.randint(3, 12)):
            self._append(group, self._drawn)
        for member in self.members.values():
            if member is not behind:
                self.replicate(member, group)
        self.compact_all()

    def compact_all(self) -> None:
        group = self._group()
        for member in self.members.values():
            if self.random.random() < 0.6:
                self._compact(member, group, self.random.choice((0, 0, 1, 3)))

    def replicate_one(self) -> None:
        self.replicate(self._member(), self._group())

    def elect_another(self) -> None:
        group = self._group()
        self.elect(group)
        for member in self.members.values():
            if self.random.random() < 0.8:
                self.replicate(member, group)

    def apply(self) -> None:
        for member in self.members.values():
            for group in GROUPS:
                if self.random.random() < 0.7:
                    member.apply(group, self.committed[group] - self.random.choice((0, 0, 1, 4)))

    def checkpoint(self) -> None:
        member = self._member()
        for _ in range(self.random.randint(1, 2)):
            member.vote()
            member.checkpoint()

    def compact(self) -> None:
        self._compact(self._member(), self._group(), self.random.choice((0, 0, 1, 3)))

    def _compact(self, member: Member, group: int, back: int) -> None:
        if sum(each.is_raft_hurt for each in self.members.values()) > 1:
            return  # one of them may need what this one has
        member.apply(group, END)
        for _ in range(2):
            member.vote()
            member.checkpoint()
        member.compact(group, back)

    def trim(self) -> None:
        self._member().trim(self.random.choice((1, 5, 1 << 30)))

    def release(self) -> None:
        self._release(self._member())

    def release_all(self) -> None:
        for member in self.members.values():
            self._release(member)

    def _release(self, member: Member) -> None:
        for group in GROUPS:
            self._compact(member, group, 0)
        member.release()

    def clean(self) -> None:
        self._clean(self._member())

    def _clean(self, member: Member) -> None:
        for group in GROUPS:
            self._compact(member, group, 0)
        member.flush()
        seal(member.store)
        member.clean(self.random.randint(0, 1), self.random.randint(1, 2))
        for _ in range(self.random.randint(0, 2)):
            member.vote()
            member.checkpoint()
            worked(member.store)
        if self.random.random() < 0.5:
            release(member.store)

    def remove(self) -> None:
        member = self._member()
        for _ in range(self.random.randint(1, 3)):
            member.remove()
            member.vote()
            member.checkpoint()

    def evict(self) -> None:
        """Nothing stays in memory that the disk has."""
        self.evict_at(self._member())

    def evict_at(self, member: Member) -> None:
        member.flush()
        for log in member.store.table.logs.values():
            log.cached.clear()
        member.store.table.indexed.cache._rows.clear()
        member.store.table.indexed.cache.bytes = 0

    def restart(self) -> None:
        member = self._member()
        if self._may_be_wild(member):
            member.is_wild |= bool(member.scars)
            member.restart(self.random.random() < 0.4)
            self.elect_due()

    def read(self) -> None:
        self._member().read_or_report()

    def repair(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self._member().repair()

    def heal_now(self) -> None:
        self.heal()

    # ---- damage --------------------------------------------------------------------------------

    def _place(self, found: list[Place]) -> Place:
        """Draw one of the places, perhaps of an entry that another member has lost before."""
        again = [each for each in found if (each.group, each.index) in self.victims]
        return self.random.choice(again if again and self.random.random() < 0.5 else found)

    def flip_payload(self) -> None:
        member = self._member()
        found = [each for each in member.standing() if each.kind == EntryKind.DATA]
        if found:
            place = self._place(found)
            at = place.at + self.random.randrange(PAYLOAD_AT, place.size - 8)
            self._damage(member, [place], at)

    def flip_header(self) -> None:
        member = self._member()
        found = member.standing()
        if found:
            place = self._place(found)
            at = place.at + self.random.randrange(4, layout.ENTRY_HEADER_BYTES)
            self._damage(member, [place], at, is_wild=True)

    def overwrite(self) -> None:
        member = self._member()
        found = member.standing()
        if found:
            begin = found.index(self._place(found))
            hit = [each for each in found[begin:begin + self.random.randint(1, 5)]
                   if each.path == found[begin].path]
            self._damage(member, hit, -1, is_wild=True)

    def flip_cold(self) -> None:
        member = self._member()
        found = member.cold_items()
        if found:
            place = self._place(found)
            at = place.at + self.random.randrange(4, place.size - 8)
            self._damage(member, [place], at)

    def flip_index(self) -> None:
        """A bit of the index file of a segment, or of a cold one."""
        member, files = self._member(), []
        for directory in (LANE, COLD):
            files += [f"{directory}/{name}" for name in member.disk.filesystem.list(directory)
                      if "index" in name]
        if not files:
            return
        self._flip_index(member, self.random.choice(files))

    def _flip_index(self, member: Member, path: str) -> None:
        segment = segment_of(path)
        is_wild = segment in member.scars
        hit = self._items_in(member, segment) if is_wild else []
        if self._may_lose(member, hit, is_wild):
            self._lose(member, hit)
            member.scars.add(path)
            member.disk.filesystem.flip(
                path, self.random.randrange(member.disk.filesystem.size(path)),
                self.random.randrange(8))

    def flip_both(self) -> None:
        """A segment and its index file: records that only these two have are lost."""
        member = self._member()
        found = [*member.standing(), *member.cold_items()]
        if found:
            self._flip_both(member, self._place(found))
            if self.random.random() < 0.7:
                member.read_or_report()

    def flip_everywhere(self) -> None:
        """The same entry, or its index file, at one member after the other."""
        group = self._group()
        index = self.random.randint(1, len(self.true(group)))
        for node in self.random.sample(NODES, 3):
            member = self.members[node]
            found = [each for each in [*member.standing(), *member.cold_items()]
                     if (each.group, each.index) == (group, index)]
            if found:
                self._flip_both(member, self.random.choice(found))
            if self.random.random() < 0.9:
                self.heal()
            if self.random.random() < 0.5:
                self._clean(member)

    def _flip_both(self, member: Member, place: Place) -> None:
        path = place.path
        index = path[:-7] + "index" if path.startswith(LANE) else f"{path}-index"
        if not member.disk.filesystem.exists(index):
            return
        same = [each for each in self._items_in(member, path)
                if each.kind == EntryKind.DATA]
        if not same or not self._may_lose(member, self._items_in(member, path), is_wild=True):
            return
        place = self.random.choice(same)
        at = self.random.randrange(4, layout.ENTRY_HEADER_BYTES)
        if path.startswith(LANE) and self.random.random() < 0.5:
            at = self.random.randrange(PAYLOAD_AT, place.size - 8)
        self._damage(member, [place], place.at + at, is_wild=True)
        self._flip_index(member, index)
        self.evict_at(member)

    def flip_checkpoint(self) -> None:
        """A bit of the newest checkpoint, unless that happened before."""
        member = self._member()
        names = checkpoint_names(member.disk.filesystem, DIRECTORY)
        if len(names) > 1 and not member.is_checkpoint_rotten:
            member.is_checkpoint_rotten = True
            path = f"{DIRECTORY}/{names[-1]}"
            member.disk.filesystem.flip(
                path, self.random.randrange(member.disk.filesystem.size(path)),
                self.random.randrange(8))

    def _items_in(self, member: Member, path: str) -> list[Place]:
        return [each for each in [*member.standing(), *member.cold_items()] if each.path == path]

    def _damage(self, member: Member, hit: list[Place], at: int, is_wild: bool = False) -> None:
        """Flip a bit at ``at``, below zero: overwrite what is hit, if the group may lose that."""
        path = hit[0].path
        index = [each for each in member.scars if segment_of(each) == path and each != path]
        lost = self._items_in(member, path) if index else hit
        is_wild |= bool(index)
        if not self._may_lose(member, lost, is_wild):
            return
        for _ in range(2):
            member.vote()  # what was written before is known to be durable
        self._lose(member, lost)
        member.is_wild |= is_wild
        if is_wild and path.startswith(LANE):
            member.wild_paths.add(path)
        member.scars.add(path)
        if at >= 0:
            member.disk.filesystem.flip(path, at, self.random.randrange(8))
        else:
            member.disk.filesystem.overwrite(path, hit[0].at,
                                             bytes(hit[-1].at + hit[-1].size - hit[0].at))

    def _may_be_wild(self, member: Member) -> bool:
        return not member.scars or not any(
            each.is_fragile or each.is_raft_hurt for each in self.members.values()
            if each is not member)

    def _may_lose(self, member: Member, hit: list[Place], is_wild: bool) -> bool:
        others = [each for each in self.members.values() if each is not member]
        if is_wild and any(each.is_fragile or each.is_raft_hurt for each in others):
            return False
        for place in hit:
            group, index = place.group, place.index
            if group not in GROUPS or not 0 < index <= len(member.mine[group]):
                continue
            is_known = any(each.has_intact(group, index) for each in others)
            if not is_known and (self._is_needed(group, index) or any(
                    each.lost or each.is_fragile for each in others)):
                return False
            if self._is_of_raft(member, group, index) and any(
                    each.is_fragile or not is_known for each in others if each.lost
                    or each.is_fragile):
                return False
            if any((group, index) in each.lost for each in others) and any(
                    not self._is_of_raft(each, group, index) for each in others):
                return False  # two would need a snapshot of the third one
        return True

    def _is_needed(self, group: int, index: int) -> bool:
        """Return True if the entry is a batch that readers may read."""
        return any(member.reads(group, index) for member in self.members.values())

    def _is_of_raft(self, member: Member, group: int, index: int) -> bool:
        log = member.log(group)
        return index >= min(log.raft_start, log.raft_start_recorded)

    def _lose(self, member: Member, hit: list[Place]) -> None:
        for place in hit:
            if place.group in GROUPS and place.index:
                member.lost.add((place.group, place.index))
                self.victims.add((place.group, place.index))
                member.is_raft_hurt |= self._is_of_raft(member, place.group, place.index)

    # ---- healing -------------------------------------------------------------------------------

    def heal(self) -> None:
        """Let the members repair all damage; it is found by a scrub, or by readers."""
        for member in self.members.values():
            member.scrub()
        for _ in range(PASSES):
            self._pass()
            if self._is_whole():
                break
        else:
            raise NeverEnds("\n".join(member.state(group) for member in self.members.values()
                                      for group in GROUPS if not member.is_whole(group)))
        for member in self.members.values():
            member.lost.clear()
            member.is_wild = member.is_raft_hurt = False

    def _pass(self) -> None:
        self.now_ms += 10_000
        self.elect_due()
        if self.random.random() < 0.1:
            self.elect_another()
        for member in self.members.values():
            member.upkeep()
            member.repair()
        for group in GROUPS:
            for member in self.members.values():
                self.replicate(member, group)
            for member in self.members.values():
                self.replicate(member, group)
                member.apply(group, END)

    def _is_whole(self) -> bool:
        return (all(member.is_whole(group) for member in self.members.values()
                    for group in GROUPS)
                and all([member.read_or_report() for member in self.members.values()])
                and all(member.is_whole(group) for member in self.members.values()
                        for group in GROUPS))


def partial_open(partition: int):
    return lambda index, term, states: open_entry(states.group, index, term, partition)


def _end(log: list[Entry]) -> tuple[int, int]:
    return (log[-1].term if log else 0), len(log)


#: Steps with their weights.
STEPS = {
    "append": 10, "run_ahead": 3, "compact_all": 3, "replicate_one": 2, "elect_another": 1,
    "apply": 3, "checkpoint": 2, "compact": 2, "trim": 2, "release": 4, "clean": 3, "remove": 2,
    "evict": 3, "restart": 2, "read": 1, "repair": 2, "heal_now": 1, "flip_payload": 4,
    "flip_header": 1, "overwrite": 1, "flip_cold": 2, "flip_index": 2, "flip_checkpoint": 1,
    "flip_both": 3, "flip_everywhere": 2, "raise_all": 3, "release_all": 2,
}


def script_of(seed: int) -> list[Step]:
    """Return the script of a world."""
    drawn = random.Random(seed)
    names = drawn.choices([*STEPS], [*STEPS.values()], k=drawn.randint(12, 45))
    return [("append", drawn.randrange(1 << 30)) for _ in range(4)] + [
        (name, drawn.randrange(1 << 30)) for name in names]


def failure_of(script: list[Step]) -> str:
    """Return how a script fails; empty if it does not."""
    try:
        RepairWorld().run(script)
    except (AssertionError, MultiRaftError, LookupError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def shrunk(script: list[Step]) -> list[Step]:
    """Return a script without the steps that its failure does not need."""
    kind = failure_of(script).split(":")[0]
    length = len(script) // 2
    while length:
        at = 0
        while at < len(script):
            smaller = script[:at] + script[at + length:]
            if failure_of(smaller).split(":")[0] == kind:
                script = smaller
            else:
                at += length
        length //= 2
    return script
