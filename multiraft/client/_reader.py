"""State of one partition that a consumer reads.

Contract.  Values that ``_consumer.py`` changes; the properties decide nothing else.
Invariants.  position <= fetch_offset: what lies between is fetched and not taken yet.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.client._batch_reader import Search
from multiraft.client._consumer_settings import Start
from multiraft.client._replicas import Replicas
from multiraft.errors import MultiRaftError
from multiraft.wire.messages import Complain, Fetch, ListOffsets
from multiraft.wire.sinks import RunRef

#: What a query asks: the start and the end; where a time is, part by part; records.
RESOLVE, SEARCH, FETCH = "resolve", "search", "fetch"


class Part(NamedTuple):
    """A part of a partition that is in another group than its end: who leads that."""

    node: int
    epoch: int
    end_offset: int  # the first that is not in it, -1 = not known


class Undecided(NamedTuple):
    """A reader stands before a staged batch whose run is not decided."""

    run: RunRef
    questions: int  # that had been asked of the metadata leader when it came there
    since_ms: int


class Reader:
    """One partition."""

    __slots__ = ("partition", "incarnation", "start", "position", "fetch_offset", "end_offset",
                 "resolved", "begun", "asking", "node", "buffered_bytes", "retry_at_ms", "failures",
                 "failing_since_ms", "corrupt", "problem", "replicas", "search", "high_watermark",
                 "part", "moves", "ends", "undecided", "leaderless_since_ms")

    def __init__(self, partition: int, incarnation: int, start: Start):
        self.partition = partition
        self.incarnation = incarnation
        self.start = start
        self.position: int | None = None  # next to be taken
        self.fetch_offset = -1  # next to be fetched
        self.end_offset: int | None = None  # where to stop, with until_end
        self.resolved = False
        self.begun = False  # something was read
        self.asking: Query | None = None  # the query that it is in
        self.node = 0  # whom it asks
        self.buffered_bytes = 0
        self.retry_at_ms = 0
        self.failures = 0
        self.failing_since_ms: int | None = None
        self.corrupt = 0
        self.problem: MultiRaftError | None = None
        self.replicas = Replicas()
        self.search: Search | None = None  # the start is a time: its record is still looked for
        self.high_watermark = 0  # the highest that any replica told
        self.part: Part | None = None  # where what is asked for next is, if not with the end
        self.moves = 0  # answers in a row that it is elsewhere
        self.ends: tuple[int, int] | None = None  # of the partition, while a time is looked for
        self.undecided: Undecided | None = None  # what it waits for
        self.leaderless_since_ms: int | None = None  # other replicas are read meanwhile

    @property
    def asks(self) -> str:
        """What is asked of this partition next."""
        if self.resolved:
            return FETCH
        return SEARCH if self.ends is not None else RESOLVE

    @property
    def at_end(self) -> bool:
        """Everything up to the end offset is fetched."""
        return (self.end_offset is not None and self.resolved
                and self.fetch_offset >= self.end_offset)

    @property
    def known_end(self) -> int:
        """The offset up to which there is something to read, as far as was told."""
        return max(self.high_watermark, self.end_offset or 0)


class Query(NamedTuple):
    """A request of a consumer.  Give its outcome to ``ConsumerState.done``."""

    address: str
    request: Fetch | ListOffsets | Complain
    readers: tuple[Reader, ...]
    timeout_ms: int
