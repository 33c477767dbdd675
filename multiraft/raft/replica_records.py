"""Lifecycle records of a replica in the journal: its tombstone, and the forced recovery of its
group.

Contract.  Entries without an index in the group's log, written through
``GroupWrite.lifecycle_record``.

Theory.  A replica that was removed may be added again.  Its log is lost by then, but its votes and
acknowledgements were counted for majorities.  So the tombstone keeps its hard state and a *vote
barrier*, a place (term, index) of the group's log: the next replica of the group on this node votes
for no candidate before its log has reached that place (docs/divergence.md).  Places are compared
like logs in elections (paper 5.4.1): a shorter log of a later leader is more advanced, because that
leader had everything that was committed in earlier terms.  A term of 0 is in records of an earlier
version, which knew the index only (docs/decisions/0055).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft.errors import CorruptEntry
from multiraft.raft import joint_quorum
from multiraft.types import Configuration, Entry, EntryKind, HardState, Payload

# Term, vote, incarnation of the group; the entry's header has the vote barrier.
_TOMBSTONE = struct.Struct("<QII")
_REINCARNATION = struct.Struct("<I")  # incarnation of the group


class Tombstone(NamedTuple):
    """State that is kept of a removed replica."""

    hard_state: HardState
    vote_barrier_index: int  # of the configuration that removed it, or of its last entry
    incarnation: int  # of the group
    vote_barrier_term: int = 0  # of the leader that notified it, or of that entry; 0 = not known


class ForcedRecovery(NamedTuple):
    """A new incarnation of a group, with its members, which continues the group's log."""

    incarnation: int
    configuration: Configuration


def tombstone(group: int, log_incarnation: int, value: Tombstone) -> Entry:
    """Return a tombstone as a journal record."""
    return Entry(
        EntryKind.TOMBSTONE,
        group,
        log_incarnation,
        value.vote_barrier_term,
        value.vote_barrier_index,
        payload=_TOMBSTONE.pack(*value.hard_state, value.incarnation),
    )


def reincarnation(group: int, log_incarnation: int, last_index: int,
                  value: ForcedRecovery, vote_barrier_term: int = 0) -> Entry:
    """Return a forced recovery as a journal record that follows the entry at ``last_index``.

    For a replica below a vote barrier, ``last_index`` and ``vote_barrier_term`` are the barrier."""
    return Entry(EntryKind.REINCARNATION, group, log_incarnation, vote_barrier_term, last_index,
                 payload=_REINCARNATION.pack(value.incarnation)
                 + joint_quorum.encode(value.configuration))


def parse_tombstone(term: int, index: int, payload: Payload) -> Tombstone:
    """Return the tombstone in a record's term, index and payload.  Raises ``CorruptEntry``."""
    if len(payload) != _TOMBSTONE.size:
        raise CorruptEntry(f"a tombstone of {len(payload)} bytes")
    voted_term, vote, incarnation = _TOMBSTONE.unpack(payload)
    return Tombstone(HardState(voted_term, vote), index, incarnation, term)


def parse_reincarnation(payload: Payload) -> ForcedRecovery:
    """Return the forced recovery in a record's payload.  Raises ``CorruptEntry``."""
    if len(payload) < _REINCARNATION.size:
        raise CorruptEntry(f"a reincarnation of {len(payload)} bytes")
    incarnation, = _REINCARNATION.unpack_from(payload)
    return ForcedRecovery(incarnation, joint_quorum.decode(payload[_REINCARNATION.size:]))
