"""Effects of one round of the core, as data in the order in which the driver carries them out.

Contract.  The driver takes one ``Ready`` per round and obeys the field order.  One ``Writes`` is in
flight at a time.  Meanwhile the driver keeps ticking and stepping and calls
``ready(with_writes=False)``: changes that need a write collect for the next full ``Ready``, which
is group commit.  When the write of ``sequence`` is durable the driver calls
``MultiRaft.written(sequence)``; what waited for it (votes, acknowledgements) is in the next
``Ready``.  A failed write or sync is never retried: the node stops, because the kernel may have
dropped the pages, and a second sync would succeed without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from multiraft.raft.messages import Message
from multiraft.types import Entry, HardState


class Envelope(NamedTuple):
    """A message and the node that receives it."""

    to: int
    message: Message


class GroupWrite(NamedTuple):
    """One group's part of a write, in this order: lifecycle record, truncation, entries, hard
    state.

    The truncation is durable before anything overwrites the removed entries, because both are in
    one append-only journal.  ``lifecycle_record`` is a TOMBSTONE, which ends the replica, or a
    REINCARNATION, which gives its log to a new incarnation of the group."""

    group: int
    incarnation: int  # of the log
    drop_from: int  # first index that is removed; 0 = no truncation
    entries: tuple[Entry, ...]
    hard_state: HardState | None
    lifecycle_record: Entry | None = None


class Writes(NamedTuple):
    """One gathered write and one fsync for all groups.  ``sequence`` increases by one."""

    sequence: int
    groups: tuple[GroupWrite, ...]


class Committed(NamedTuple):
    """Entries first..last of a group, committed *and* durable here.  The driver applies them in
    order and calls ``MultiRaft.applied(group, last)``."""

    group: int
    first: int
    last: int


class ReadReady(NamedTuple):
    """A confirmed linearizable read.  It may be answered from applied state at ``index`` or later,
    which includes everything acknowledged before the read arrived."""

    group: int
    token: Any
    index: int  # type: ignore[assignment]


class Event(NamedTuple):
    """Trace event for people and tests; ``multiraft.raft.describe`` turns it into text."""

    kind: str  # "role_changed", "log_truncated", "quiesced", "message_dropped", ...
    group: int
    fields: tuple


@dataclass(slots=True)
class Ready:
    """All effects that are due.  FIELD ORDER IS THE ORDER OF EFFECTS.

    messages   may go at once (a leader replicates while its disk writes, thesis 10.2.1)
    writes     one write and one fsync for all groups; None = nothing to write
    committed  apply, then answer the waiting clients
    reads      linearizable reads that may be answered (ReadIndex, thesis 6.4)
    events     frozen trace values
    """

    messages: list[Envelope] = field(default_factory=list)
    writes: Writes | None = None
    committed: list[Committed] = field(default_factory=list)
    reads: list[ReadReady] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.messages or self.writes or self.committed or self.reads or self.events)
