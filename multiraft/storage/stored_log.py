"""One group's log in the store: packed index, entries in memory, configurations, damage.

Contract.  Owned by the loop.  ``cached`` holds the newest entries of the group, contiguous up to
the last one; older entries are read from disk.  Nothing here writes: the store and repair write the
records, recovery reads them.  ``damage`` knows which entries are missing; the methods here that
change both it and the index keep the two in agreement.

Invariant.  Missing entries have indexes of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple, final

from multiraft.codec import layout
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.damage.damage_map import DamageMap, MissingEntry
from multiraft.storage.damage.place import Place
from multiraft.storage.damage.ranges import merged
from multiraft.storage.filesystem import Buffer
from multiraft.storage.index import UNKNOWN_POSITION, Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Journal
from multiraft.storage.journal.segment_index import REPAIR_STRUCT
from multiraft.types import Configuration, Entry, EntryKind, HardState

NO_HARD_STATE = HardState(0, 0)
NO_CONFIGURATION = Configuration(())
_NONE_TAKEN: dict[int, int] = {}


class CachedEntry(NamedTuple):
    """Entry in memory; ``buffers[slot:slot + 3]`` are its header, payload and padding."""

    entry: Entry
    buffers: list[Buffer]
    slot: int
    end: int  # journal position after it: cached at least until that is durable


@final
class StoredLog:
    """Log of one group's replica, as this node has it on disk."""

    __slots__ = (
        "group",
        "incarnation",
        "configurations",
        "vote_barrier_index",
        "vote_barrier_term",
        "removed",
        "tombstone_position",
        "group_incarnation",
        "record_before_tombstone",
        "hard_state",
        "index",
        "partitions",
        "cached",
        "commit",
        "damage",
        "snapshot_position",
        "record_key",
        "record",
    )

    def __init__(self, group: int, incarnation: int,
                 configuration: Configuration = NO_CONFIGURATION):
        self.group = group
        self.incarnation = incarnation
        #: (index, configuration): the one in force where applied state is, and those above.
        self.configurations = [(0, configuration)]
        self.vote_barrier_index = self.vote_barrier_term = 0  # see ``replica_records.Tombstone``
        self.removed = False  # a tombstone is all there is
        #: Journal position of the last tombstone: the log begins after it.
        self.tombstone_position = 0
        self.group_incarnation = 0  # of the group, where it differs from the log's
        self.record_before_tombstone = b""  # for checkpoints while the tombstone is not durable
        self.hard_state = NO_HARD_STATE
        self.index = GroupIndex()
        self.partitions: dict[int, PartitionIndex] = {}
        self.cached: dict[int, CachedEntry] = {}
        self.commit = 0  # as the last checkpoint knew it
        self.damage = DamageMap()
        #: Journal position at which a snapshot was installed: segments that begin before it have no
        #: entries of this log.
        self.snapshot_position = 0
        self.record_key: tuple | None = None  # of the record below
        self.record = b""  # encoded for the last checkpoint

    @property
    def quarantined(self) -> str:
        """Reason why the replica is quarantined; empty = it is not."""
        return self.damage.why

    @property
    def missing(self) -> Mapping[int, MissingEntry]:
        """Entries of the log that are not intact, by index."""
        return self.damage.missing

    @property
    def configuration(self) -> Configuration:
        """Configuration of the last membership entry of the log: it is in force at once."""
        return self.configurations[-1][1]

    def set_initial_configuration(self, configuration: Configuration) -> None:
        """Set the configuration before the first entry; do nothing if the log knows it, or follows
        a removed replica of the group (vote barrier)."""
        if self.configurations[0] == (0, NO_CONFIGURATION) and not self.vote_barrier_index:
            self.configurations[0] = (0, configuration)

    def configuration_at(self, applied: int) -> tuple[int, Configuration]:
        """Return (index, configuration) in force at the ``applied`` index; drop earlier ones from
        the log."""
        kept = self.configurations
        while len(kept) > 1 and kept[1][0] <= applied:
            del kept[0]
        return kept[0]

    def set_configuration(self, index: int, configuration: Configuration | None) -> None:
        """Set or remove the configuration of an entry above the applied state, which was missing
        and is known now; ``configuration``: None when the entry has none."""
        kept = [each for each in self.configurations if each[0] != index]
        if configuration is not None:
            kept.append((index, configuration))
        self.configurations = sorted(kept, key=itemgetter(0))

    def apply_tombstone(self, left: Tombstone, position: int, place: Place) -> None:
        """Empty the log at a tombstone: entries before its journal position, which is at ``place``,
        belong to a removed replica.  Keep the term, vote and vote barrier of the tombstone."""
        before = self.record_before_tombstone or self.record
        self.__init__(self.group, self.incarnation)
        self.record_before_tombstone = before
        self.hard_state, self.vote_barrier_index = left.hard_state, left.vote_barrier_index
        self.vote_barrier_term = left.vote_barrier_term
        self.group_incarnation = left.incarnation
        self.removed = True
        self.tombstone_position = position
        self.damage.remove(position, place)

    def apply_forced_recovery(self, new: ForcedRecovery, index: int,
                              vote_barrier_term: int) -> None:
        """Apply a forced recovery to the log, whose last index it names as ``index``: the group
        continues in a new incarnation with the named members.

        Without members the replica joins a recovered group: it may not vote before it has ``index``
        of the term ``vote_barrier_term``."""
        self.group_incarnation = new.incarnation
        alone = bool(new.configuration.voters)
        if alone:
            self.configurations = [(index, new.configuration)]
        self.vote_barrier_index, self.vote_barrier_term = (
            (0, 0) if alone else (index, vote_barrier_term)
        )

    def bounds(self) -> LogBounds:
        return LogBounds(self.index.first_index, self.index.prev_term, self.index.last_index)

    def restored(self, applied: int) -> GroupRestored:
        last = self.index.last_index
        index, configuration = self.configurations[0]
        return GroupRestored(
            self.bounds(),
            self.index.term_runs(),
            self.hard_state,
            min(self.commit, last),
            min(applied, last),
            configuration,
            self.damage.why,
            self.damage.is_waiting_for_leader,
            min(index, last),
            tuple(self.configurations[1:]),
            self.vote_barrier_index,
            self.group_incarnation,
            self.vote_barrier_term,
        )

    def restart(self, bounds: LogBounds, index: int, configuration: Configuration,
                snapshot_position: int) -> None:
        """Replace the log by a snapshot up to ``bounds``, with the configuration of the entry at
        ``index``; the log's later entries are in segments from position ``snapshot_position``
        on."""
        self.configurations = [(index, configuration)]
        self.index = GroupIndex(bounds.first_index, bounds.prev_term)
        self.partitions = {}
        self.cached.clear()
        self.commit = bounds.last_index
        self.damage.truncate(0)
        self.snapshot_position = snapshot_position

    def may_have_term(self, index: int, term: int, taken: dict[int, int] = _NONE_TAKEN) -> bool:
        """Return True if a missing entry may be of that term.  Entries of unknown term are repaired
        in ascending order, so that terms never fall along the log; ``taken``: index -> term of
        those that are repaired in the same step.  O(lost)."""
        if not self.damage.is_term_unknown(index):
            return self.index.holds(index, term)
        behind = self.next_of_known_term(index)
        before = taken.get(index - 1) or self.index.term(index - 1)
        lowest = min({*self.damage.terms_unknown()} - taken.keys(), default=0)
        return (index == lowest and before <= term
                and (behind > self.index.last_index or term <= self.index.term(behind)))

    def next_of_known_term(self, index: int) -> int:
        """Return the first index behind ``index`` whose term is known, or the log's end + 1.
        O(lost)."""
        index += 1
        while self.damage.is_term_unknown(index):
            index += 1
        return index

    def append_lost(self, first: int) -> None:
        """Add entries up to ``first`` (exclusive) that existed and are lost, as missing entries of
        unknown term."""
        for index in range(self.index.last_index + 1, first):
            self.damage.lose_term(index)
        self.index.append_placeholders(first)

    def append_lost_of_last_term(self, first: int) -> None:
        """Add entries up to ``first`` (exclusive) that existed and are lost, as missing entries of
        the last entry's term."""
        for index in range(self.index.last_index + 1, first):
            self.damage.lose(index, None)
        self.index.append_placeholders(first)

    def place_of(self, index: int, journal: Journal) -> Place | None:
        """Return where an entry of the log stands; None = unknown.  O(log n)."""
        position = self.index.position(index)
        return journal.place_at(position) if position != UNKNOWN_POSITION else None

    def unreadable_ranges(self) -> list[tuple[int, int]]:
        """Return the journal ranges of missing entries, ascending, without those that are missing
        only because they may have been truncated; entries that touch share a range.  O(missing)."""
        at = self.index
        return merged((at.position(index), at.position(index) + at.size(index))
                      for index in self.damage.unreadable()
                      if at.position(index) != UNKNOWN_POSITION)

    def records_after_tombstone(self, record: Entry) -> list[Entry]:
        """Return the REPAIR records to write right behind the tombstone of this replica, none
        behind another lifecycle record: without them its damaged entries could have been any other
        group's.  O(missing)."""
        if record.kind != EntryKind.TOMBSTONE:
            return []
        # Behind the tombstone: with records in front of it, a torn write could leave a log that
        # lost its end and does not know.  Without an index: what the group's next replica has of it
        # first is no copy.
        return [Entry(EntryKind.REPAIR, self.group, self.incarnation, 0, 0,
                      payload=REPAIR_STRUCT.pack(begin, end - begin))
                for begin, end in self.unreadable_ranges()]

    def discard_superseded(self, index: int) -> None:
        """Discard an entry that was truncated: the entry that replaced it is lost, of unknown term.
        O(partitions)."""
        self.index.replace(index, UNKNOWN_POSITION, layout.ENTRY_HEADER_BYTES)
        self.damage.lose_term(index)
        for partition in self.partitions.values():
            partition.remove_batch(index)

    def is_obsolete(self, index: int, position: int) -> bool:
        """Return True if an entry at a journal position is not needed: its index is compacted, or
        an entry of that index was written behind it."""
        kept = self.index
        return index < kept.first_index or (index <= kept.last_index and index not in self.missing
                                            and kept.position(index) > position)

    def repair(self, copy: Copy) -> bool:
        """Set an entry's position to that of its copy, so that it is read from there and is no
        longer missing; a batch is in its partition's index then.  An unknown term becomes the
        copy's if it may be.  O(batches of the partition).

        Return False, and change nothing, if the log does not have the entry."""
        if (self.damage.is_term_unknown(copy.index)
                and self.may_have_term(copy.index, copy.term)):
            self.index.set_term(copy.index, copy.term, self.next_of_known_term(copy.index))
        if not self.index.holds(copy.index, copy.term):
            return False
        self.index.replace(copy.index, copy.position, copy.size)
        self.damage.repair(copy.index)
        if copy.count:
            self.partition_index(copy.partition).repair(copy.base_offset, copy.count, copy.index,
                                                        copy.max_timestamp_ms)
        return True

    def partition_index(self, partition: int) -> PartitionIndex:
        """Return the index of a partition's batches, created if necessary."""
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionIndex(partition, self.group)
        return known

    def merge_hard_state(self, found: HardState) -> None:
        """Take a hard state from a segment if its term is later than the known one's.  In the same
        term, take it if the known one has no vote."""
        # Within a term a vote is final, so any vote replaces none.
        known = self.hard_state
        if found.term > known.term or (found.term == known.term and known.vote == 0):
            self.hard_state = found

    def raise_term(self) -> None:
        """Raise the term to that of the last entry, without a vote, if it is lower.

        A round's entries stand before its hard state, so a torn write can leave entries without the
        term; its vote had not been sent."""
        if self.index.last_term > self.hard_state.term:
            self.hard_state = HardState(self.index.last_term, 0)

    def truncate(self, first_removed: int) -> None:
        """Truncate the log from ``first_removed`` on.  O(removed entries + the group's
        partitions)."""
        for index in range(first_removed, self.index.last_index + 1):
            self.cached.pop(index, None)
        self.index.truncate(first_removed)
        # A configuration counts as long as its entry is in the log, committed or not (thesis 4.1).
        while len(self.configurations) > 1 and self.configurations[-1][0] >= first_removed:
            self.configurations.pop()
        self.damage.truncate(first_removed)
        for partition in self.partitions.values():
            partition.truncate(first_removed)

    def _check(self) -> None:
        """Assert every invariant, of the index and of the damage as well.  O(n)."""
        self.index._check()
        self.damage._check()
        first, last = self.index.first_index, self.index.last_index
        assert all(first <= index <= last for index in self.missing), f"{self.missing}"
