"""Hand-written logs, as dumped from nodes' disks."""

from __future__ import annotations

from chaos.replicas import (
    DAMAGED,
    GAP,
    UNREADABLE,
    Dump,
    LogBatch,
    PartitionExtent,
    Record,
    ReplicaLog,
)
from chaos.values import crc_of_key
from tests.chaos.checkers.timeline import KEY

GROUP = 5
PARTITIONS = {KEY: 70}


class Log:
    """One replica's log, entry by entry."""

    def __init__(self, first_index: int = 1):
        self.log = ReplicaLog(first_index)
        self._next_offset: dict[str, int] = {}

    @property
    def _next(self) -> int:
        return self.log.last_index + 1 if self.log.terms else self.log.first_index

    def noop(self, term: int) -> Log:
        self.log.put(self._next, term, "noop", 1)
        return self

    def data(self, term: int, *values: int, key: str = KEY, offset: int | None = None,
             partition: int = -1, named: int | None = None) -> Log:
        index = self._next
        base = self._next_offset.get(key, 0) if offset is None else offset
        self._next_offset[key] = base + len(values)
        self.log.put(index, term, "data", hash((term, base, values)) & 0xFFFF | 1 << 20)
        where = partition if partition >= 0 else PARTITIONS.setdefault(key, 70 + len(PARTITIONS))
        self.log.put_batch(LogBatch(index, where, base,
                                 crc_of_key(key) if named is None else named, values))
        return self

    def members(self, term: int, *voters: int) -> Log:
        index = self._next
        self.log.put(index, term, "membership", sum(voters))
        self.log.members[index] = [list(voters), [], []]
        return self

    def log_start(self, term: int, start: int, key: str = KEY) -> Log:
        index = self._next
        partition = PARTITIONS.setdefault(key, 70 + len(PARTITIONS))
        self.log.put(index, term, "log_start", start)
        self.log.log_starts[index] = [(partition, start)]
        return self

    def gap(self, term: int) -> Log:
        self.log.put(self._next, term, GAP, 77)
        return self

    def damaged(self, term: int) -> Log:
        self.log.put(self._next, term, "data", DAMAGED)
        return self

    def unreadable(self) -> Log:
        self.log.put(self._next, UNREADABLE, "", DAMAGED)
        return self

    def commit(self, index: int, *voters: int) -> Log:
        self.log.commit = index
        self.log.configuration = [list(voters or (1, 2, 3)), [], []]
        return self

    def checkpoint(self, index: int, *voters: int) -> Log:
        """Take a checkpoint that has applied the entries up to ``index``."""
        log, ends, starts = self.commit(index, *voters).log, {}, {}
        for at in range(log.first_index, index + 1):
            batch = log.batch(at)
            if batch is not None:
                ends[batch.partition] = batch.base_offset + len(batch.values)
            for partition, log_start in log.log_starts.get(at, ()):
                starts[partition] = max(log_start, starts.get(partition, 0))
        log.applied = index
        log.partitions = {partition: PartitionExtent(0, starts.get(partition, 0), end)
                          for partition, end in ends.items()}
        return self

    def compact(self, first_index: int) -> Log:
        """Begin the log at ``first_index``; the batches below become records."""
        log = self.log
        log.prev_term = log.term(first_index - 1)
        for index in range(log.first_index, first_index):
            batch = log.batch(index)
            if batch is not None:
                log.put_record(index, Record(log.term(index),
                                             log.contents[index - log.first_index], batch))
        log.drop_head(first_index)
        return self

    def vote(self, term: int, candidate: int) -> Log:
        self.log.votes.append((term, candidate))
        return self


def cluster(*logs: Log | None) -> list[Dump]:
    """Return dumps of nodes 1, 2, ...; None = there is no dump of that node."""
    return [Dump(node, -1, {GROUP: log.log}) for node, log in enumerate(logs, 1) if log]
