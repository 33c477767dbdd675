"""What must now happen, in which order: the order of effects as data.

Contract.  The driver takes one ``Ready`` per round and obeys the field order.  One ``Writes`` is in
flight at a time; while it is, the driver keeps ticking and stepping and asks for
``ready(with_writes=False)``: what needs writing piles up and is in the next full ``Ready`` (group
commit falls out).  When the write of ``sequence`` is durable the driver calls
``MultiRaft.written(sequence)``.  Nothing in ``messages_after_write`` leaves before that.  A failed
write is never retried: the node stops.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from multiraft.raft.messages import Message
from multiraft.types import Entry, HardState


class Envelope(NamedTuple):
    """A message and the node it goes to."""

    to: int
    message: Message


class GroupWrite(NamedTuple):
    """What one group adds to the lane in this round, in this order: the suffix drop (durable before
    anything overwrites it, which holds because both are in one append-only stream), the entries,
    the hard state.  ``mark`` comes before all: a TOMBSTONE ends the replica's life, a REINCARNATION
    gives its log to a new incarnation of the group."""

    group: int
    incarnation: int  # of the log
    drop_from: int  # first index that is gone; 0 = nothing dropped
    entries: tuple[Entry, ...]
    hard_state: HardState | None
    mark: Entry | None = None


class Writes(NamedTuple):
    """One gathered append and one fsync for all groups.  ``sequence`` counts up by one."""

    sequence: int
    groups: tuple[GroupWrite, ...]


class Committed(NamedTuple):
    """Entries first..last of a group are committed *and* durable here: apply them in order, then
    call ``MultiRaft.applied(group, last)``."""

    group: int
    first: int
    last: int


class ReadReady(NamedTuple):
    """A read that was asked for with ``token`` may be answered from applied state at ``index`` or
    later: whatever was acknowledged before it was asked is in there."""

    group: int
    token: Any
    index: int  # type: ignore[assignment]


class Event(NamedTuple):
    """Something a person or a test wants to see; ``multiraft.raft.describe`` turns it into text."""

    kind: str  # "role", "term", "commit", "truncate", "sleep", "wake", "lease", "drop", ...
    group: int
    fields: tuple


@dataclass(slots=True)
class Ready:
    """Everything that must now happen.  FIELD ORDER IS THE ORDER OF EFFECTS.

    messages              may go at once (a leader replicates while its disk writes, thesis 10.2.1)
    writes                one append and one fsync for all groups; None = nothing to write
    messages_after_write  grants and vote requests of this round: only once ``writes`` is durable
    committed             apply, then answer the waiting clients
    reads                 linearizable reads that may be answered (ReadIndex, thesis 6.4)
    events                frozen trace values
    """

    messages: list[Envelope] = field(default_factory=list)
    writes: Writes | None = None
    messages_after_write: list[Envelope] = field(default_factory=list)
    committed: list[Committed] = field(default_factory=list)
    reads: list[ReadReady] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.messages or self.writes or self.messages_after_write or self.committed
                    or self.reads or self.events)
