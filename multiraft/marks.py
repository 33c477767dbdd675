"""Lane records about a replica's life: its end, and the new life of its group.

Contract.  Entries without an index in the group's log, written through ``GroupWrite.mark``.
Theory.  A replica that was removed may be added again.  Its log is gone by then, but not what it
said: it voted, and it acknowledged entries, and majorities were counted with that.  So the
tombstone keeps its hard state and which configuration removed it, and the replica that is created
in its place votes for nobody before its log has a later one with itself in it (docs/divergence.md).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft import membership
from multiraft.errors import CorruptEntry
from multiraft.types import Configuration, Entry, EntryKind, HardState

_TOMBSTONE = struct.Struct("<QII")  # term, vote, incarnation of the group; header: barred
_REINCARNATION = struct.Struct("<I")  # incarnation of the group


class Tombstone(NamedTuple):
    """What is left of a replica."""

    hard_state: HardState
    barred: int  # index of the configuration that removed it, or of its last entry
    incarnation: int  # of the group


class Reincarnation(NamedTuple):
    """The group's log goes on in a new incarnation of the group."""

    incarnation: int
    configuration: Configuration


def tombstone(group: int, log_incarnation: int, value: Tombstone) -> Entry:
    """As a lane record."""
    return Entry(EntryKind.TOMBSTONE, group, log_incarnation, 0, value.barred,
                 payload=_TOMBSTONE.pack(*value.hard_state, value.incarnation))


def reincarnation(group: int, log_incarnation: int, last_index: int,
                  value: Reincarnation) -> Entry:
    """As a lane record, behind the entry with that index."""
    return Entry(EntryKind.REINCARNATION, group, log_incarnation, 0, last_index,
                 payload=_REINCARNATION.pack(value.incarnation)
                 + membership.encode(value.configuration))


def parse_tombstone(index: int, payload) -> Tombstone:
    """Of a record's index and payload.  Raises ``CorruptEntry``."""
    if len(payload) != _TOMBSTONE.size:
        raise CorruptEntry(f"a tombstone of {len(payload)} bytes")
    voted_term, vote, incarnation = _TOMBSTONE.unpack(payload)
    return Tombstone(HardState(voted_term, vote), index, incarnation)


def parse_reincarnation(payload) -> Reincarnation:
    """Raises ``CorruptEntry``."""
    if len(payload) < _REINCARNATION.size:
        raise CorruptEntry(f"a reincarnation of {len(payload)} bytes")
    incarnation, = _REINCARNATION.unpack_from(payload)
    return Reincarnation(incarnation, membership.decode(payload[_REINCARNATION.size:]))
