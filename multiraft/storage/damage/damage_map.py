"""Damage map of one replica: its missing entries, its quarantine, and the damage that is cleared.

Contract.  ``DamageMap`` is a state machine without effects: its methods are the transitions.
``StoredLog`` calls those of entries, together with the change of its index; recovery, local repair
and the store call those of the replica.  What of it is on disk: ``missing``, ``why``, the flags and
the cleared ranges in checkpoints, LIFT records in the journal.

Of an entry of the log:

    state            its bytes               its term   requested from peers
    INTACT           can be read             known      no
    UNREADABLE       cannot be read          known      with its term
    TERM_UNKNOWN     are lost                a guess    the committed entry of its index
    MAYBE_TRUNCATED  a truncation of it may  known      the committed entry of its index
                     be lost

    transition  from                      to               cause
    lose        INTACT                    UNREADABLE       recovery, the scrub or a read found it;
                                                           entries around it are of its term
    lose_term   INTACT, UNREADABLE,       TERM_UNKNOWN     recovery knows only that it existed;
                MAYBE_TRUNCATED                            another entry is committed in its place
    suspect     INTACT, UNREADABLE        MAYBE_TRUNCATED  a damaged range behind it may have held
                                                           the record of its truncation
    repair      UNREADABLE, TERM_UNKNOWN, INTACT           a copy of it is durable
                MAYBE_TRUNCATED
    compact     UNREADABLE, TERM_UNKNOWN, INTACT           it is below the log's first index: no
                MAYBE_TRUNCATED                            replica needs it
    truncate    UNREADABLE, TERM_UNKNOWN, INTACT           it was truncated, or a snapshot replaced
                MAYBE_TRUNCATED                            the log

Of the replica:

    state                   quarantined until
    HEALTHY                 not at all
    DAMAGED                 a LIFT record is durable and no entry is missing
    HEAD_UNKNOWN            the same, after its leader has cleared it: it may have lost more
                            entries than are missing, a term or a vote
    PERMANENT               it is removed: its log contradicts the group's
    PERMANENT_HEAD_UNKNOWN  it is removed; the group's next replica here starts HEAD_UNKNOWN

    transition              from                to                      cause
    quarantine              HEALTHY             DAMAGED                 entries are missing
    require_head_recovery   HEALTHY, DAMAGED    HEAD_UNKNOWN            damage of unknown owner; a
                                                                        copy or the leader
                                                                        contradicts the log
    require_head_recovery   PERMANENT           PERMANENT_HEAD_UNKNOWN  the same
    quarantine_permanently  HEALTHY, DAMAGED    PERMANENT               an entry does not fit those
                                                                        before it
    quarantine_permanently  HEAD_UNKNOWN        PERMANENT_HEAD_UNKNOWN  the same
    clear                   DAMAGED,            HEALTHY                 a LIFT record is durable
                            HEAD_UNKNOWN
    remove                  every state         HEALTHY                 a tombstone is in the log

All other calls leave the state as it is.  Ranges of the journal, and when they count as cleared for
a replica: ``journal_damage``.

Theory.  A missing entry is replaced by a copy with its index and term (Log Matching, paper 5.3), or
by the committed one of its index.  A peer's entry of the same index and term does not tell if it
was truncated, because that peer may not have heard of it (``recovery/lost_truncations.py``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, final

from multiraft.storage.damage.place import ORIGIN, Place, PlaceRange
from multiraft.storage.damage.ranges import uncovered


class EntryState(enum.IntEnum):
    """State of one entry of a log; see the table of the module."""

    INTACT = 0
    UNREADABLE = 1
    TERM_UNKNOWN = 2
    MAYBE_TRUNCATED = 3


class ReplicaState(enum.IntEnum):
    """State of a replica's storage; see the table of the module."""

    HEALTHY = 0
    DAMAGED = 1
    HEAD_UNKNOWN = 2
    PERMANENT = 3
    PERMANENT_HEAD_UNKNOWN = 4


class MissingEntry(NamedTuple):
    """Entry of a log that is not ``INTACT``."""

    state: EntryState
    place: Place | None  # where it stands or stood; None = unknown

    @property
    def position(self) -> int:
        """Journal offset of the place, as records on disk have it; 0 = unknown."""
        return self.place.journal_offset if self.place is not None else 0


@final
class DamageMap:
    """Damage of one replica; see the tables of the module."""

    __slots__ = ("_missing", "state", "why", "cleared_position", "cleared_ranges",
                 "created_position")

    def __init__(self) -> None:
        self._missing: dict[int, MissingEntry] = {}
        self.state = ReplicaState.HEALTHY
        self.why = ""  # why the replica is quarantined; empty in ``HEALTHY`` alone
        self.cleared_position = 0  # journal offset of the last LIFT
        #: Damage there is cleared for this replica; later damage elsewhere is not.
        self.cleared_ranges: tuple[PlaceRange, ...] = ()
        #: Journal offset at which the replica was created; 0 = by an earlier process.
        self.created_position = 0

    # ---- transitions of entries ----------------------------------------------------------------

    def lose(self, index: int, place: Place | None) -> bool:
        """Take an entry as missing that cannot be read.  Of one that is missing already only the
        place is new; return False then."""
        known = self._missing.get(index)
        state = EntryState.UNREADABLE if known is None else known.state
        self._missing[index] = MissingEntry(state, place)
        return known is None

    def lose_term(self, index: int) -> None:
        """Take an entry as lost whose term and place are unknown."""
        self._missing[index] = MissingEntry(EntryState.TERM_UNKNOWN, None)

    def suspect(self, index: int, place: Place | None) -> None:
        """Take an entry at a place as missing, because it may have been truncated.  One of unknown
        term is only missing."""
        state, place = self._missing.get(index, (EntryState.INTACT, place))
        if state is not EntryState.TERM_UNKNOWN:
            self._missing[index] = MissingEntry(EntryState.MAYBE_TRUNCATED, place)

    def repair(self, index: int) -> bool:
        """Count an entry as intact, because the log has a copy.  Return False if it was."""
        return self._missing.pop(index, None) is not None

    def compact(self, first_index: int) -> list[int]:
        """Stop counting the entries below the log's first index as missing, and return them.
        O(missing)."""
        return self._drop(index for index in self._missing if index < first_index)

    def truncate(self, first_removed: int) -> list[int]:
        """Stop counting the entries from ``first_removed`` on as missing, and return them.
        O(missing)."""
        return self._drop(index for index in self._missing if index >= first_removed)

    def _drop(self, indexes: Iterable[int]) -> list[int]:
        dropped = [*indexes]
        for index in dropped:
            del self._missing[index]
        return dropped

    # ---- transitions of the replica ------------------------------------------------------------

    def quarantine(self, why: str) -> None:
        """Quarantine the replica; a reason that it has already is kept."""
        self._enter(ReplicaState.DAMAGED, why)

    def require_head_recovery(self, why: str) -> None:
        """Quarantine the replica until its leader clears it: it may have lost entries, a term or a
        vote that it does not know of."""
        self._enter(ReplicaState.PERMANENT_HEAD_UNKNOWN if self.is_permanent
                    else ReplicaState.HEAD_UNKNOWN, why)

    def quarantine_permanently(self, why: str) -> None:
        """Quarantine the replica permanently: it has to be removed and added again."""
        self._enter(ReplicaState.PERMANENT_HEAD_UNKNOWN if self.needs_head_recovery
                    else ReplicaState.PERMANENT, why)

    def _enter(self, state: ReplicaState, why: str) -> None:
        """Enter a state of quarantine, if it is a more severe one."""
        assert why, "a quarantine without a reason"
        self.state, self.why = max(self.state, state), self.why or why

    def clear(self, position: int, ranges: tuple[PlaceRange, ...],
              is_complete: bool = True) -> None:
        """Take a durable LIFT record at a journal offset, which clears ``ranges`` of the journal;
        do nothing if a later record or a tombstone is known.

        ``is_complete``: nothing is missing, and no other damage was found since the record was
        staged.  Then it ends the quarantine."""
        if position <= self.cleared_position:
            return
        self.cleared_position, self.cleared_ranges = position, ranges
        # A replica in conflict with its leader has to be removed: the record was void.
        if is_complete and not self.is_permanent:
            self.state, self.why = ReplicaState.HEALTHY, ""

    def create(self, position: int, place: Place) -> None:
        """Note that the replica is created at a journal offset, which is at ``place``: nothing
        before it is its own."""
        self.created_position, self.cleared_ranges = position, ((ORIGIN, place),)

    def remove(self, position: int, place: Place) -> None:
        """Forget everything at the replica's tombstone: nothing before it is the next replica's."""
        self.__init__()
        self.cleared_position, self.cleared_ranges = position, ((ORIGIN, place),)

    def restore(self, why: str, needs_head_recovery: bool, is_permanent: bool,
                cleared_position: int, cleared_ranges: tuple[PlaceRange, ...]) -> None:
        """Take the state of the replica that a checkpoint has."""
        known = ReplicaState.DAMAGED if why else ReplicaState.HEALTHY
        if needs_head_recovery:
            known = ReplicaState.HEAD_UNKNOWN
        if is_permanent:
            known = (ReplicaState.PERMANENT_HEAD_UNKNOWN if needs_head_recovery
                     else ReplicaState.PERMANENT)
        self.state, self.why = known, why
        self.cleared_position, self.cleared_ranges = cleared_position, cleared_ranges

    # ---- queries -------------------------------------------------------------------------------

    @property
    def missing(self) -> Mapping[int, MissingEntry]:
        """Entries that are not intact, by index, in the order of discovery."""
        return self._missing

    @property
    def needs_head_recovery(self) -> bool:
        """True if more may be lost than is missing: the leader has to clear the replica."""
        return self.state in (ReplicaState.HEAD_UNKNOWN, ReplicaState.PERMANENT_HEAD_UNKNOWN)

    @property
    def is_permanent(self) -> bool:
        """True if no repair ends the quarantine."""
        return self.state >= ReplicaState.PERMANENT

    @property
    def is_waiting_for_leader(self) -> bool:
        """True if nothing but a head recovery can end the quarantine."""
        return self.state is ReplicaState.HEAD_UNKNOWN and not self._missing

    @property
    def is_exact(self) -> bool:
        """True if nothing more is lost than the missing entries, each with index and term, perhaps
        none.  O(missing)."""
        return self.state < ReplicaState.HEAD_UNKNOWN and all(
            state is EntryState.UNREADABLE for state, _ in self._missing.values())

    @property
    def needs_clear_record(self) -> bool:
        """True if this process created the replica, and no LIFT record says since that damage from
        before is not its own: the next start could not tell."""
        return (self.state is ReplicaState.HEALTHY and bool(self.cleared_ranges)
                and self.cleared_position <= self.created_position)

    def state_of(self, index: int) -> EntryState:
        """Return the state of an entry of the log."""
        known = self._missing.get(index)
        return EntryState.INTACT if known is None else known.state

    def is_term_unknown(self, index: int) -> bool:
        """Return True if the term that the log has for an entry is a guess."""
        return self.state_of(index) is EntryState.TERM_UNKNOWN

    def is_maybe_truncated(self, index: int) -> bool:
        """Return True if an entry may have been truncated.  Only the committed entry of its index
        tells."""
        return self.state_of(index) is EntryState.MAYBE_TRUNCATED

    def is_term_requested(self, index: int) -> bool:
        """Return True if a missing entry is requested with its term; False if the committed entry
        of its index is."""
        # A truncated entry may still be in the log of a member that has not heard of the
        # truncation, so only the committed entry at that index will do.
        return self.state_of(index) is EntryState.UNREADABLE

    def terms_unknown(self) -> Iterator[int]:
        """Yield the entries whose term is a guess, in the order of discovery.  O(missing)."""
        return (index for index, (state, _) in self._missing.items()
                if state is EntryState.TERM_UNKNOWN)

    def unreadable(self) -> list[int]:
        """Return the missing entries without those that may have been truncated, in the order of
        discovery.  O(missing)."""
        return [index for index, (state, _) in self._missing.items()
                if state is not EntryState.MAYBE_TRUNCATED]

    def has_cleared(self, ranges: Iterable[PlaceRange]) -> bool:
        """Return True if damage in these ranges is cleared for the replica, by one or several of
        ``cleared_ranges``."""
        return not any(uncovered(*each, self.cleared_ranges) for each in ranges)

    def clears_damage_before(self, end: Place) -> bool:
        """Return True if the last LIFT record names damage that ends at a place or before it."""
        # A range from the origin on says how old the replica is, and is no damage.
        return any(first != ORIGIN and last <= end for first, last in self.cleared_ranges)

    def _check(self) -> None:
        """Assert every invariant.  O(missing)."""
        healthy = self.state is ReplicaState.HEALTHY
        assert healthy == (not self.why), f"{self.state.name} because of {self.why!r}"
        assert all(index > 0 for index in self._missing), f"{self._missing}"
        assert all(state is not EntryState.INTACT for state, _ in self._missing.values())
        assert all(begin <= end for begin, end in self.cleared_ranges), f"{self.cleared_ranges}"
