"""Lane records about a replica's life: its end, and the new life of its group.

Contract.  Entries without an index in the group's log, written through ``GroupWrite.mark``.
Theory.  A replica that was removed may be added again.  Its log is gone by then, but not what it
said: it voted, and it acknowledged entries, and majorities were counted with that.  So the
tombstone keeps its hard state and a *bar*, a place (term, index) of the group's log: the replica
that is created in its place votes for nobody before its log has come there (docs/divergence.md).
Places are compared as logs are in elections (paper 5.4.1): a shorter log of a later leader has come
farther, because that leader had all that was committed in the terms before.  A term of 0 is of a
record that an earlier version wrote, which knew the index only (docs/decisions/0055).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft.errors import CorruptEntry
from multiraft.raft import joint_quorum
from multiraft.types import Configuration, Entry, EntryKind, HardState, Payload

_TOMBSTONE = struct.Struct("<QII")  # term, vote, incarnation of the group; header: the bar
_REINCARNATION = struct.Struct("<I")  # incarnation of the group


class Tombstone(NamedTuple):
    """What is left of a replica."""

    hard_state: HardState
    vote_barrier_index: int  # index of the configuration that removed it, or of its last entry
    incarnation: int  # of the group
    vote_barrier_term: int = 0  # of the leader that told so, or of that entry; 0 = not known


class ForcedRecovery(NamedTuple):
    """The group's log goes on in a new incarnation of the group."""

    incarnation: int
    configuration: Configuration


def tombstone(group: int, log_incarnation: int, value: Tombstone) -> Entry:
    """As a lane record."""
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
    """As a lane record, behind the entry with that index; of a replica that is barred, the index
    and the term are its bar's."""
    return Entry(EntryKind.REINCARNATION, group, log_incarnation, vote_barrier_term, last_index,
                 payload=_REINCARNATION.pack(value.incarnation)
                 + joint_quorum.encode(value.configuration))


def parse_tombstone(term: int, index: int, payload: Payload) -> Tombstone:
    """Of a record's term, index and payload.  Raises ``CorruptEntry``."""
    if len(payload) != _TOMBSTONE.size:
        raise CorruptEntry(f"a tombstone of {len(payload)} bytes")
    voted_term, vote, incarnation = _TOMBSTONE.unpack(payload)
    return Tombstone(HardState(voted_term, vote), index, incarnation, term)


def parse_reincarnation(payload: Payload) -> ForcedRecovery:
    """Raises ``CorruptEntry``."""
    if len(payload) < _REINCARNATION.size:
        raise CorruptEntry(f"a reincarnation of {len(payload)} bytes")
    incarnation, = _REINCARNATION.unpack_from(payload)
    return ForcedRecovery(incarnation, joint_quorum.decode(payload[_REINCARNATION.size:]))
