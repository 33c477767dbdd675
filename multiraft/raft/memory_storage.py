"""In-memory log storage with a simulated disk that loses unsynced writes; for tests and examples.

Contract.  Implements ``log_reader.LogReader`` and a driver's storage: ``stage`` (visible at once),
``execute`` (makes the oldest write durable), ``crash`` (loses all other writes), ``entries`` and
``restored``.  Effects happen in the same order as in ``multiraft.storage``, without its bytes.

Invariants.  ``restored`` returns executed writes only.  A truncation is durable together with the
entries that replace the removed ones, because both are in one write.
"""

from __future__ import annotations

from typing import final

from multiraft.errors import Compacted
from multiraft.raft import joint_quorum, replica_records
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.types import Configuration, Entry, EntryKind, HardState


@final
class GroupImage:
    """Entries and hard state of one group, once in memory and once on the simulated disk."""

    __slots__ = (
        "incarnation",
        "configuration",
        "configuration_index",
        "first_index",
        "prev_term",
        "entries",
        "hard_state",
        "applied",
        "quarantined",
        "vote_barrier_index",
        "vote_barrier_term",
        "removed",
        "group_incarnation",
    )

    def __init__(self, incarnation: int, configuration: Configuration):
        self.incarnation = incarnation
        self.configuration = configuration  # in force before the first of ``entries``
        self.configuration_index = 0
        self.first_index = 1
        self.prev_term = 0
        self.entries: list[Entry] = []
        self.hard_state = HardState(0, 0)
        self.applied = 0
        self.quarantined = ""
        self.vote_barrier_index = self.vote_barrier_term = 0
        self.removed = False
        self.group_incarnation = 0

    def write(self, write: GroupWrite) -> None:
        """Carry out one group's part of a write in this image: lifecycle record, truncation,
        entries, hard state."""
        if write.lifecycle_record is not None:
            self._take_lifecycle_record(write.lifecycle_record)
        elif write.entries or write.hard_state is not None:
            self.removed = False  # the replica was created again
        if write.drop_from:
            del self.entries[write.drop_from - self.first_index:]
        for entry in write.entries:
            assert entry.index == self.first_index + len(self.entries), f"{entry!r} leaves a gap"
            self.entries.append(entry)
        if write.hard_state is not None:
            self.hard_state = write.hard_state

    def _take_lifecycle_record(self, record: Entry) -> None:
        if record.kind == EntryKind.TOMBSTONE:
            left = replica_records.parse_tombstone(record.term, record.index, record.payload)
            self.__init__(self.incarnation, Configuration(()))
            self.hard_state, self.vote_barrier_index = left.hard_state, left.vote_barrier_index
            self.vote_barrier_term = left.vote_barrier_term
            self.group_incarnation = left.incarnation
            self.removed = True
        else:
            new = replica_records.parse_reincarnation(record.payload)
            self.group_incarnation = new.incarnation
            named = bool(new.configuration.voters)
            if named:
                self.configuration = new.configuration
                self.configuration_index = self.first_index + len(self.entries) - 1
            self.vote_barrier_index, self.vote_barrier_term = (
                (0, 0) if named else (record.index, record.term)
            )

    def changes(self) -> list[tuple[int, Configuration]]:
        """Return (index, configuration) of every configuration in the log, ascending, the one
        before the first entry included."""
        return [(self.configuration_index, self.configuration),
                *[(entry.index, joint_quorum.decode(entry.payload)) for entry in self.entries
                  if entry.kind == EntryKind.MEMBERSHIP
                  and entry.index > self.configuration_index]]

    def copy(self) -> "GroupImage":
        twin = GroupImage(self.incarnation, self.configuration)
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.entries = list(self.entries)
        return twin


class MemoryStore:
    """Logs of all groups of one node."""

    def __init__(self) -> None:
        self._memory: dict[int, GroupImage] = {}
        self._disk: dict[int, GroupImage] = {}
        self._staged: list[Writes] = []

    def create_group(self, group: int, incarnation: int, configuration: Configuration) -> None:
        """Create an empty group, durable at once; what its tombstone kept remains."""
        known = self._memory.get(group)
        if known is None:
            self._memory[group] = GroupImage(incarnation, configuration)
            self._disk[group] = GroupImage(incarnation, configuration)
            return
        assert known.removed, f"group {group} exists"
        known.removed = False
        known.configuration = configuration

    def groups(self) -> tuple[int, ...]:
        return tuple(group for group, image in self._memory.items() if not image.removed)

    def incarnation(self, group: int) -> int:
        return self._memory[group].incarnation

    # ---- writing ------------------------------------------------------------------------------

    def stage(self, writes: Writes) -> None:
        """Accept a write: readers see it now, ``execute`` makes it durable."""
        for write in writes.groups:
            if write.group in self._memory:
                self._memory[write.group].write(write)
        self._staged.append(writes)

    def execute(self) -> int:
        """Make the oldest staged write durable and return its sequence."""
        writes = self._staged.pop(0)
        for write in writes.groups:
            if write.group in self._disk:
                self._disk[write.group].write(write)
        return writes.sequence

    def pending(self) -> tuple[Writes, ...]:
        """Return the writes that are staged and not executed, oldest first."""
        return tuple(self._staged)

    def crash(self) -> int:
        """Lose all writes that were not executed and return their number."""
        lost = len(self._staged)
        self._staged = []
        self._memory = {group: image.copy() for group, image in self._disk.items()}
        return lost

    def save_applied(self, group: int, index: int) -> None:
        """Record a checkpoint of the applied state, durable at once."""
        self._memory[group].applied = self._disk[group].applied = index

    def compact(self, group: int, first_index: int) -> None:
        """Remove the prefix below ``first_index``, in memory and on the disk."""
        for image in (self._memory[group], self._disk[group]):
            gone = first_index - image.first_index
            if gone > 0:
                image.prev_term = image.entries[gone - 1].term
                image.configuration_index, image.configuration = [
                    change for change in image.changes() if change[0] < first_index][-1]
                del image.entries[:gone]
                image.first_index = first_index

    def install(self, group: int, bounds: LogBounds, configuration_index: int,
                configuration: Configuration) -> None:
        """Replace the log by an empty one behind ``bounds``, with everything before applied;
        durable at once."""
        for image in (self._memory[group], self._disk[group]):
            image.first_index, image.prev_term = bounds.first_index, bounds.prev_term
            image.entries = []
            image.applied = bounds.last_index
            image.configuration_index, image.configuration = configuration_index, configuration

    # ---- reading ------------------------------------------------------------------------------

    def restored(self, group: int) -> GroupRestored:
        """Return the state that recovery would find, as input of ``MultiRaft.add_group``."""
        return self._restored(self._disk[group])

    def created(self, group: int) -> GroupRestored:
        """Return the state in memory of a group that was just created, as input of
        ``MultiRaft.add_group``.  Its tombstone may not be executed yet."""
        return self._restored(self._memory[group])

    def _restored(self, image: GroupImage) -> GroupRestored:
        runs: list[tuple[int, int]] = []
        for entry in image.entries:
            if not runs or runs[-1][1] != entry.term:
                runs.append((entry.index, entry.term))
        bounds = LogBounds(image.first_index, image.prev_term,
                           image.first_index + len(image.entries) - 1)
        changes = image.changes()
        while len(changes) > 1 and changes[1][0] <= image.applied:
            del changes[0]
        index, configuration = changes[0]
        return GroupRestored(
            bounds,
            tuple(runs),
            image.hard_state,
            image.applied,
            image.applied,
            configuration,
            image.quarantined,
            configuration_index=index,
            changes=tuple(changes[1:]),
            vote_barrier_index=image.vote_barrier_index,
            incarnation=image.group_incarnation,
            vote_barrier_term=image.vote_barrier_term,
        )

    def entries(self, group: int, first: int, last: int) -> tuple[Entry, ...] | None:
        """Return entries first..last; None if some of them are gone.  O(last - first)."""
        image = self._memory[group]
        found = tuple(image.entries[max(0, first - image.first_index):
                                    last + 1 - image.first_index])
        return found if len(found) == last - first + 1 else None

    def last_within(self, group: int, first_index: int, bytes_max: int) -> int:
        """Return the highest index such that the entries from ``first_index`` to it fit; see
        ``log_reader.LogReader``.  O(result)."""
        image = self._memory[group]
        if first_index < image.first_index:
            raise Compacted(f"index {first_index} of group {group} is below {image.first_index}")
        index = first_index
        size = framed_bytes(image.entries[first_index - image.first_index])
        while index - image.first_index + 1 < len(image.entries):
            size += framed_bytes(image.entries[index - image.first_index + 1])
            if size > bytes_max:
                break
            index += 1
        return index

    def bytes_between(self, group: int, first_index: int, last_index: int) -> int:
        """Return the bytes of entries first..last; see ``log_reader.LogReader``.  O(last -
        first)."""
        image = self._memory[group]
        return sum(map(framed_bytes, image.entries[first_index - image.first_index:
                                                   last_index + 1 - image.first_index]))
