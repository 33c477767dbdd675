"""State of one partition that a consumer reads.

Contract.  Fields that ``_consumer.py`` changes, and properties derived from them.
Invariants.  position <= fetch_offset: records between the two are fetched and not taken yet.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.client._batch_reader import Search
from multiraft.client._consumer_settings import PartitionStart
from multiraft.client._replicas import Replicas
from multiraft.errors import MultiRaftError
from multiraft.wire.messages import Fetch, ListOffsets, ReportCorruption
from multiraft.wire.sinks import TransactionRef

#: Kinds of queries: start and end offsets; the offset of a time, part by part; records.
RESOLVE, SEARCH, FETCH = "resolve", "search", "fetch"


class Part(NamedTuple):
    """A part of a switched partition in an earlier group: that group's leader, and the part's
    end."""

    node: int
    epoch: int
    end_offset: int  # the first that is not in it, -1 = not known


class Undecided(NamedTuple):
    """A reader waits before a staged batch whose transaction is not decided."""

    transaction: TransactionRef
    questions: int  # ``Transactions.resolutions`` when the wait began
    since_ms: int


class Reader:
    """Reader of one partition: positions, the query in flight, failures and waits."""

    __slots__ = ("partition", "incarnation", "start", "position", "fetch_offset", "end_offset",
                 "resolved", "begun", "asking", "node", "buffered_bytes", "retry_at_ms", "failures",
                 "failing_since_ms", "corrupt", "problem", "replicas", "search", "high_watermark",
                 "part", "moves", "ends", "undecided", "leaderless_since_ms")

    def __init__(self, partition: int, incarnation: int, start: PartitionStart):
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
        self.search: Search | None = None  # until the record of a start time is found
        self.high_watermark = 0  # the highest that a replica has sent
        self.part: Part | None = None  # part with the next offsets, if not the last
        self.moves = 0  # consecutive MOVED answers
        self.ends: tuple[int, int] | None = None  # of the partition, during a search for a time
        self.undecided: Undecided | None = None
        self.leaderless_since_ms: int | None = None  # others are read meanwhile

    @property
    def asks(self) -> str:
        """Kind of the next query: ``FETCH`` once the start is resolved, before that ``SEARCH`` or
        ``RESOLVE``."""
        if self.resolved:
            return FETCH
        return SEARCH if self.ends is not None else RESOLVE

    @property
    def at_end(self) -> bool:
        """True if all records up to the end offset are fetched."""
        return (self.end_offset is not None and self.resolved
                and self.fetch_offset >= self.end_offset)

    @property
    def known_end(self) -> int:
        """Offset up to which records are known to exist, from any replica or the requested end."""
        return max(self.high_watermark, self.end_offset or 0)


class Query(NamedTuple):
    """A request of a consumer.  Give its outcome to ``ConsumerState.done``."""

    address: str
    request: Fetch | ListOffsets | ReportCorruption
    readers: tuple[Reader, ...]
    timeout_ms: int
