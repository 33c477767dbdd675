"""Verbs of the golden scripts about damage: a store on a disk that rots, read, scrubbed, repaired.

Contract.  The store is the product's; the disk is simulated.  A verb prints the damage of each
group and of the journal, as it is now, if it has changed.  Places are ``file:byte``, a file is
named by the number of its segment."""

from __future__ import annotations

from collections.abc import Iterable

from multiraft.raft.ready import GroupWrite
from multiraft.raft.replica_records import Tombstone, tombstone
from multiraft.storage.damage.place import Place, PlaceRange
from multiraft.storage.errors import CorruptJournalRange, CorruptRange
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry, EntryKind, HardState
from tests.datadriven import Command, ScriptError
from tests.storage.damage import DIRECTORY, LANE, Disk
from tests.storage.world import (
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

#: Size of an entry without payload, and of a record of term and vote.
ENTRY_BYTES, HARD_STATE_BYTES = 64, 72

#: Partition of all batches.
PARTITION = 7


class DamageInteraction:
    """One store with two groups, of which the scripts damage the first."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.entries: dict[int, dict[int, Entry]] = {1: {}, 2: {}}  # as the group committed them
        self._open()
        for group in self.entries:
            self.store.create_group(group, 1, VOTERS)
        self.shown = self._describe()
        self.staged = None
        self.offset = 0  # of the next batch

    def _open(self) -> None:
        self.store = open_store(self.disk.filesystem, DIRECTORY)
        self.rounds = Rounds(self.store)

    def execute(self, command: Command) -> list[str]:
        """Run one command; return what it says, and the damage that it changed."""
        verb = getattr(self, f"do_{command.verb.replace('-', '_')}", None)
        if verb is None:
            raise ScriptError(f"line {command.line}: no verb {command.verb!r}")
        said = verb(command) or []
        self.store.table.journal_damage._check()
        for log in self.store.table.logs.values():
            log._check()
        before, self.shown = self.shown, self._describe()
        for subject, lines in self.shown.items():
            if lines != before.get(subject):
                said += lines
        return said or ["(as before)"]

    # ---- the log ------------------------------------------------------------------------------

    def do_append(self, command: Command) -> None:
        """append g1 count=3 term=1: entries, each with term and vote in a round of its own."""
        group, term = command.group(0), command.number("term", 1)
        for _ in range(command.number("count", 1)):
            entry = noop_entry(group, self._log(group).index.last_index + 1, term)
            self.entries[group][entry.index] = entry
            self.rounds.run(write(group, entry, hard_state=HardState(term, 1)))

    def do_batches(self, command: Command) -> None:
        """batches g1 count=3 term=1: batches of one record each, in rounds of their own; the first
        entry of the group opens their partition."""
        group, term = command.group(0), command.number("term", 1)
        for _ in range(command.number("count", 1)):
            index = self._log(group).index.last_index + 1
            entry = (open_entry(group, index, term, PARTITION) if index == 1 else
                     data_entry(group, index, term, PARTITION, self.offset, [b"%d" % index]))
            self.offset += index > 1
            self.entries[group][index] = entry
            self.rounds.run(write(group, entry, hard_state=HardState(term, 1)))

    def do_raft_start(self, command: Command) -> None:
        """raft-start g1 first=4: only records remain below an applied index."""
        group = command.group(0)
        self._log(group).compact(command.number("first", 1), self.store.partition_states[group])

    def do_fetch(self, command: Command) -> list[str]:
        """fetch g1 offset=0: the batches that a reader gets."""
        group, offset = command.group(0), command.number("offset", 0)
        found = self.store.fetch(group, PARTITION, offset, 1 << 20, self.offset)
        try:
            read = found.job.execute() if found.job is not None else found.buffers
        except CorruptRange as error:
            return [f"refused: {error}"]
        return [f"{len(read)} batches, up to offset {found.read_to}"]

    def do_vote(self, command: Command) -> None:
        """vote g2 term=3: a record of term and vote."""
        self.rounds.run(write(command.group(0),
                              hard_state=HardState(command.number("term", 1), 1)))

    def do_truncate(self, command: Command) -> None:
        """truncate g1 first=3: a leader's entries replace those from an index on."""
        self.rounds.run(write(command.group(0), drop_from=command.number("first", 1)))

    def do_remove(self, command: Command) -> None:
        """remove g1: the replica is removed."""
        term = self._log(command.group(0)).hard_state
        self.rounds.run(GroupWrite(command.group(0), 1, 1, (), None, tombstone(
            command.group(0), 1, Tombstone(term, 0, 1))))

    def do_create(self, command: Command) -> None:
        """create g1: a replica, perhaps in place of a removed one."""
        self.store.create_group(command.group(0), 1, VOTERS)

    def do_checkpoint(self, command: Command) -> None:
        """checkpoint g1 applied=2: up to there, the entries are known to be committed."""
        group, applied = command.group(0), command.number("applied", 0)
        states = self.store.partition_states[group]
        for index in range(states.last_index + 1, applied + 1):
            states.append(self.entries[group][index])
        states.apply(applied)
        checkpoint(self.store, {group: applied})

    def do_roll(self, command: Command) -> None:
        """roll: a new segment; those before get their index files."""
        self.store.table.journal.start_segment()
        self.rounds.run(write(2))
        seal(self.store)

    def do_log_start(self, command: Command) -> None:
        """log-start g1 offset=2 term=1: the batches before an offset are deleted."""
        group, states = command.group(0), self.store.partition_states[command.group(0)]
        entry = Entry(EntryKind.LOG_START, group, 1, command.number("term", 1),
                      self._log(group).index.last_index + 1, PARTITION,
                      command.number("offset", 0))
        self.entries[group][entry.index] = entry
        self.rounds.run(write(group, entry))
        for index in range(states.last_index + 1, entry.index + 1):
            states.append(self.entries[group][index])
        states.apply(entry.index)
        self.store.trim(group, [PARTITION])

    def do_go(self, command: Command) -> list[str]:
        """go: segments that nothing needs go, as far as the checkpoints allow."""
        journal = self.store.table.journal
        while True:
            job = self.store.removal_job()
            if job is not None:
                job.execute()
                self.store.removed(job)
            elif not self.store.is_examining:
                break
        removed = journal.removed_ranges()
        return [f"the journal begins at {removed.journal_start}, removed: "
                + (" ".join(f"{begin}-{end}" for begin, end in removed.ranges) or "nothing behind"),
                "files: " + " ".join(str(int(name[:20]))
                                     for name in self.disk.filesystem.list(LANE)
                                     if name.endswith(".segment"))]

    def do_restart(self, command: Command) -> None:
        """restart: a start from the disk alone."""
        self.store.close()
        self._open()

    # ---- damage -------------------------------------------------------------------------------

    def do_rot_entry(self, command: Command) -> None:
        """rot-entry g1 index=2: zeros in place of an entry."""
        at = self._log(command.group(0)).locate(command.number("index", 1)).position
        self._zero(at, ENTRY_BYTES)

    def do_rot_payload(self, command: Command) -> None:
        """rot-payload g1 index=2: other bytes in place of a batch's end, under an intact header."""
        place = self._log(command.group(0)).locate(command.number("index", 1))
        self._zero(place.position + place.size - 16, 8)

    def do_rot_vote(self, command: Command) -> None:
        """rot-vote g1 index=2: zeros in place of the record of term and vote behind an entry."""
        at = self._log(command.group(0)).index.position(command.number("index", 1))
        self._zero(at + ENTRY_BYTES, HARD_STATE_BYTES)

    def do_rot_truncation(self, command: Command) -> None:
        """rot-truncation g1 index=3: zeros in place of an entry, its term and vote, and the record
        of a truncation before it."""
        at = self._log(command.group(0)).index.position(command.number("index", 1))
        self._zero(at - ENTRY_BYTES, 2 * ENTRY_BYTES + HARD_STATE_BYTES)

    def _zero(self, at: int, length: int) -> None:
        place = self.store.table.journal.place_at(at)
        self.disk.filesystem.overwrite(f"{LANE}/{place.file:020d}.segment", place.byte,
                                       bytes(length))

    def do_read(self, command: Command) -> None:
        """read g1 index=2: a read finds that an entry is not what was written."""
        self._find(CorruptRange(command.group(0), command.number("index", 1), "found by a read"))

    def do_scrub(self, command: Command) -> list[str]:
        """scrub: a pass over the journal; each finding is taken as the coordinator does."""
        scrubber, found = Scrubber(self.store), []
        while (job := scrubber.next_job()) is not None:
            job.execute()
            found += scrubber.done(job)
        for error in found:
            self._find(error)
        return [f"found: {error}" for error in found]

    def _find(self, error: CorruptRange) -> None:
        if isinstance(error, CorruptJournalRange):
            self.store.repair.suspect_all(error.begin, error.end, error.why)
        else:
            self.store.repair.record_damage(error.group, error.index, error.why)

    # ---- repair -------------------------------------------------------------------------------

    def do_wanted(self, command: Command) -> list[str]:
        """wanted g1: the entries that are requested from peers; term 0 = the committed one."""
        wanted = (self.store.repair.wanted_records(command.group(0), 64)
                  + self.store.repair.wanted(command.group(0), 64))
        return ["wanted: " + " ".join(f"{index}@{term}" for index, term in wanted)]

    def do_copy(self, command: Command) -> None:
        """copy g1 index=2 [term=1]: a peer's copy, durable."""
        group, index = command.group(0), command.number("index", 1)
        entry = self.entries[group].get(index)
        term = command.number("term", entry.term if entry is not None else 1)
        copy = entry if entry is not None and entry.batch and entry.term == term else noop_entry(
            group, index, term)
        staged = self.store.repair.stage_copies(group, [copy], lambda: None)
        if staged is not None:
            self._write(staged)

    def do_compact(self, command: Command) -> None:
        """compact g1 first=3: the group has compacted the entries before an index."""
        repair, group = self.store.repair, command.group(0)
        for index in repair.forget_below(group, command.number("first", 1)):
            if (staged := repair.stage_unneeded(group, index)) is not None:
                self._write(staged)

    def do_supersede(self, command: Command) -> None:
        """supersede g1 index=3: another entry is committed in place of a missing one."""
        self.store.repair.discard_superseded(command.group(0), command.number("index", 1))

    def do_contradict(self, command: Command) -> None:
        """contradict g1: an entry fits no state."""
        self._log(command.group(0)).damage.quarantine_permanently("an entry fits no state")

    def do_stage_lift(self, command: Command) -> None:
        """stage-lift g1: the leader has cleared the replica; the record is on its way."""
        self.staged = self.store.repair.stage_clear(command.group(0), lambda: None)

    def do_lift_durable(self, command: Command) -> None:
        """lift-durable: the record is on disk."""
        self._write(self.staged)

    def do_lift(self, command: Command) -> None:
        """lift g1: both."""
        self.do_stage_lift(command)
        self.do_lift_durable(command)

    def _write(self, staged) -> None:
        staged.execute()
        self.store.finish(staged)

    # ---- description --------------------------------------------------------------------------

    def _log(self, group: int) -> StoredLog:
        return self.store.table.logs[group]

    def _place(self, position: int) -> Place | None:
        return self.store.table.journal.place_at(position) if position else None

    def _describe(self) -> dict[str, list[str]]:
        """Return the lines about each group and about the journal."""
        about = {}
        for group, log in sorted(self.store.table.logs.items()):
            damage = log.damage
            why = f": {damage.why}" if damage.why else ""
            about[f"g{group}"] = lines = [f"g{group} {damage.state.name.lower()}{why}"]
            lines += [f"   entry {index} {state.name.lower()} at {_text(place)}"
                      for index, (state, place) in sorted(damage.missing.items())]
            lines += [f"   record {index} missing at {_text(self._place(record.position))}"
                      for index, record in sorted(log.records.missing.items())]
            cleared = [each for each in damage.cleared_ranges if each[0] != each[1]]
            lines += [f"   cleared {_ranges(cleared)}"] * bool(cleared)
        journal_damage = self.store.table.journal_damage
        about["journal"] = [
            f"journal {name} {_ranges(sorted(ranges))}" for name, ranges in (
                ("unattributed", journal_damage.unattributed),
                ("explained", journal_damage.explained)) if ranges]
        return about


def _text(place: Place | None) -> str:
    return f"{place.file}:{place.byte}" if place is not None else "?"


def _ranges(ranges: Iterable[PlaceRange]) -> str:
    return " ".join(f"{_text(begin)}-{_text(end)}" for begin, end in ranges)
