"""What a witness of every effect knows: each replica's log as staged and as durable, and the truth.

Contract.  The driver reports effects at the moment they take place (``witness.Witness``); this
module keeps what follows from them, in O(1) per entry.  Nothing here asks the code under test what
it believes.

Theory.  A log is represented by one 64-bit *chain* per index: the hash of the entry and of the
chain before it.  Two logs that have equal chains at an index are equal up to it, so log matching,
leader completeness and "committed never changes" are comparisons of two integers.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from multiraft.ready import GroupWrite
from multiraft.types import Entry, EntryKind, HardState

_IDENTITY = struct.Struct("<QQQBQq")  # chain before, term, index, kind, partition, base offset
NO_HARD_STATE = HardState(0, 0)


def chain_of(previous: int, entry: Entry) -> int:
    """The chain at ``entry`` when ``previous`` is the chain before it."""
    hasher = hashlib.blake2b(
        _IDENTITY.pack(previous, entry.term, entry.index, entry.kind, entry.partition,
                       entry.base_offset), digest_size=8)
    hasher.update(entry.payload)
    return int.from_bytes(hasher.digest(), "little")


class LogModel:
    """A log as chains and terms; place i holds index i + 1."""

    __slots__ = ("chains", "terms")

    def __init__(self, chains: Sequence[int] = (), terms: Sequence[int] = ()):
        self.chains = list(chains)
        self.terms = list(terms)

    @property
    def last_index(self) -> int:
        return len(self.chains)

    def chain(self, index: int) -> int:
        return self.chains[index - 1] if index else 0

    def holds(self, index: int, chain: int) -> bool:
        return index <= len(self.chains) and self.chain(index) == chain

    def append(self, entry: Entry) -> int:
        chain = chain_of(self.chain(self.last_index), entry)
        self.chains.append(chain)
        self.terms.append(entry.term)
        return chain

    def drop_from(self, first_gone: int) -> None:
        del self.chains[first_gone - 1:]
        del self.terms[first_gone - 1:]

    def put(self, write: PendingWrite, count: int | None = None) -> None:
        """What ``write`` does to this log with its first ``count`` entries (None = all)."""
        if write.drop_from:
            self.drop_from(write.drop_from)
        self.chains.extend(write.chains[:count])
        self.terms.extend(write.terms[:count])

    def copy(self) -> LogModel:
        return LogModel(self.chains, self.terms)


class PendingWrite(NamedTuple):
    """One group's part of a write that is not known to be durable yet."""

    sequence: int
    drop_from: int
    chains: tuple[int, ...]
    terms: tuple[int, ...]
    hard_state: HardState | None


class ReplicaModel:
    """One group on one node, over all its lives."""

    __slots__ = ("node", "group", "staged", "durable", "hard_state", "durable_hard_state",
                 "pending", "applied", "damaged")

    def __init__(self, node: int, group: GroupModel):
        self.node = node
        self.group = group
        self.staged = LogModel()
        self.durable = LogModel()
        self.hard_state = NO_HARD_STATE
        self.durable_hard_state = NO_HARD_STATE
        self.pending: deque[PendingWrite] = deque()
        self.applied = 0
        self.damaged = False  # quarantined: whatever it led, it leads no more

    def __repr__(self) -> str:
        return f"n{self.node} g{self.group.group}"

    def stage(self, sequence: int, write: GroupWrite) -> PendingWrite:
        """The log in memory moves; the chains of the new entries are computed from their bytes."""
        log = self.staged
        if write.drop_from:
            log.drop_from(write.drop_from)
        first = log.last_index
        for entry in write.entries:
            self.group.entries[log.append(entry)] = entry
        if write.hard_state is not None:
            self.hard_state = write.hard_state
        pending = PendingWrite(sequence, write.drop_from, tuple(log.chains[first:]),
                               tuple(log.terms[first:]), write.hard_state)
        self.pending.append(pending)
        return pending

    def settle(self, sequence: int) -> None:
        """The writes up to ``sequence`` are on the disk."""
        while self.pending and self.pending[0].sequence <= sequence:
            write = self.pending.popleft()
            self.durable.put(write)
            if write.hard_state is not None:
                self.durable_hard_state = write.hard_state

    def restart(self, log: LogModel, hard_state: HardState, applied: int) -> None:
        """A new life begins with what recovery found."""
        self.staged, self.durable = log, log.copy()
        self.hard_state = self.durable_hard_state = hard_state
        self.pending.clear()
        self.applied = applied


class BatchModel(NamedTuple):
    """A committed batch."""

    index: int
    base_offset: int
    count: int
    producer: tuple[int, int]  # id, epoch
    base_sequence: int
    payload: bytes


class PartitionModel:
    """The committed contents of a partition."""

    __slots__ = ("partition", "next_offset", "batches")

    def __init__(self, partition: int):
        self.partition = partition
        self.next_offset = 0
        self.batches: dict[int, BatchModel] = {}  # by base offset


class GroupModel:
    """The truth about one group: who led, who voted, what is committed."""

    __slots__ = ("group", "voters", "replicas", "leaders", "votes", "chain_at", "entries",
                 "committed", "commit_marks", "partitions")

    def __init__(self, group: int, voters: tuple[int, ...]):
        self.group = group
        self.voters = voters
        self.replicas = {node: ReplicaModel(node, self) for node in voters}
        self.leaders: dict[int, int] = {}  # term -> node
        self.votes: dict[tuple[int, int], int] = {}  # (term, voter) -> candidate
        self.chain_at: dict[tuple[int, int], int] = {}  # (index, term) -> chain
        self.entries: dict[int, Entry] = {}  # chain -> entry
        self.committed: list[int] = []  # chains; place i holds index i + 1
        self.commit_marks: list[tuple[int, int]] = []  # (leader's term, index), both ascending
        self.partitions: dict[int, PartitionModel] = {}

    @property
    def commit(self) -> int:
        return len(self.committed)

    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def durable_holders(self, index: int, chain: int) -> list[int]:
        """Voters whose disk holds the log that ends with ``chain`` at ``index``."""
        return [node for node in self.voters
                if self.replicas[node].durable.holds(index, chain)]

    def committed_before_term(self, term: int) -> int:
        """Highest index known to be committed by a leader of a term below ``term``."""
        for mark_term, index in reversed(self.commit_marks):
            if mark_term < term:
                return index
        return 0

    def batch_of(self, entry: Entry) -> BatchModel:
        """A committed DATA entry as a batch."""
        assert entry.kind == EntryKind.DATA and entry.batch is not None, entry
        info = entry.batch
        return BatchModel(entry.index, entry.base_offset, info.count,
                          (info.producer_id, info.producer_epoch), info.base_sequence,
                          bytes(entry.payload))
