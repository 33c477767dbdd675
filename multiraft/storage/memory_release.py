"""Release of memory: records of sealed segments are answered from index files instead.

Contract.  ``begin`` after each checkpoint, then ``next_job`` -> (a thread executes the job) ->
``take``, until ``next_job`` returns None; one job at a time.  Runs on the loop and touches memory
only; ``take`` yields where the loop may do something else.

A group's part of a segment leaves memory once its last entry is below the Raft start: a truncation
meets no entry there.  What was truncated before has other terms than the records
(``RecordStore.can_take``); such a part, and what stands in a damaged segment, stays in memory, as
does the source of a cold segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, final

from multiraft.partitions.state import PartitionStates
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.block_index.file_codec import FileHeader, RunSummary
from multiraft.storage.errors import CorruptFile, UnknownFormat
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.indexed_segments import IndexedSegments, read_summary
from multiraft.storage.journal.journal import Journal, Segment
from multiraft.storage.removable_segments import SegmentContents
from multiraft.storage.stored_log import StoredLog

#: Partitions whose batches leave memory in one turn of the loop: one takes some microseconds, and a
#: segment may have 10,000.
PARTITIONS_PER_TURN = 200
#: Segments that one call of ``next_job`` examines.
SEGMENTS_EXAMINED_MAX = 256


class SummaryJob:
    """Read of the summary of a segment's index file."""

    __slots__ = ("segment", "header", "runs", "_identity", "_filesystem")

    def __init__(self, filesystem: Filesystem, segment: Segment, identity: FileIdentity):
        self.segment = segment
        self.header: FileHeader | None = None  # None = the file has to be written anew
        self.runs: list[RunSummary] = []
        self._identity = identity
        self._filesystem = filesystem

    def execute(self) -> None:
        """Read the summary and set ``header`` and ``runs``.  Block, on any thread.  Raises
        ``OSError``."""
        try:
            self.header, self.runs = read_summary(self._filesystem, self.segment, self._identity)
        except (CorruptFile, UnknownFormat):
            self.header, self.runs = None, []


class _Part(NamedTuple):
    """A group's part of a segment, while it leaves memory."""

    group: int
    log: StoredLog
    run: RunSummary


@final
class MemoryRelease:
    """Decisions which index files answer, and the steps to that."""

    def __init__(self, journal: Journal, logs: Mapping[int, StoredLog],
                 states: Mapping[int, PartitionStates], indexed: IndexedSegments,
                 is_source: Callable[[int], bool]):
        """``is_source``: if the records of the segment with that start are being copied to a cold
        one, and so stay in memory."""
        self._is_source = is_source
        self._journal = journal
        self._logs = logs
        self._states = states
        self._indexed = indexed
        #: By start of the segment, its groups whose records may be in memory.
        self._pending: dict[int, dict[int, tuple[int, int]]] = {}
        self._queue: deque[int] = deque()  # starts, to be examined since the last checkpoint
        self._job: SummaryJob | None = None

    def add(self, contents: SegmentContents) -> None:
        """Take the contents of a segment that has an index file.  O(groups in it)."""
        if not contents.is_intact:
            return
        indexed = self._indexed.find(contents.start)
        groups = {group: (each.incarnation, each.last_index)
                  for group, each in contents.groups.items() if each.last_index and (
                      indexed is None or group not in self._logs
                      or not self._logs[group].records.is_in_file(
                          indexed, each.first_index, each.last_index))}
        if groups:
            self._pending[contents.start] = groups

    def forget(self, contents: SegmentContents) -> None:
        """Forget a segment that is removed, in which no record is left.  O(groups in it)."""
        self._pending.pop(contents.start, None)
        indexed = self._indexed.find(contents.start)
        if indexed is None:
            return
        for group in contents.groups:
            log = self._logs.get(group)
            if log is not None:
                log.records.forget_file(indexed, log.raft_start)
        self._indexed.remove(contents.start)

    def begin(self) -> None:
        """Examine all segments once more, because Raft starts may have risen.  O(segments with
        records in memory)."""
        self._queue = deque(self._pending)

    def next_job(self) -> SummaryJob | None:
        """Return a job that reads the summary of the next index file that can answer for a group;
        None = there is none, or one is being read.  O(groups in the segments examined)."""
        if self._job is not None:
            return None
        for _ in range(min(len(self._queue), SEGMENTS_EXAMINED_MAX)):
            start = self._queue.popleft()
            groups = self._pending.get(start)
            if groups is None or self._is_source(start) or not any(self._is_below(group, *each)
                                         for group, each in groups.items()):
                continue
            segment = self._journal.segment_of(start)
            header = self._journal.header_of(segment)
            self._job = SummaryJob(self._journal.filesystem, segment, FileIdentity(
                header.cluster, header.node, segment.start, segment.seed))
            return self._job
        return None

    def take(self, job: SummaryJob) -> Iterator[None]:
        """Let the index file of an executed job answer for the groups that are below their Raft
        start.  Yield after each ``PARTITIONS_PER_TURN`` partitions."""
        assert job is self._job
        segment, groups = job.segment, self._pending.get(job.segment.start, {})
        if job.header is None:
            self._indexed.damaged.append(segment)
        elif not segment.is_removed and not self._is_source(segment.start):
            indexed = self._indexed.add(segment, job.header)
            indexed.rows += 1  # it stays while parts of it are taken
            indexed.is_changing = True
            partitions = 0
            for part in self._parts(job.runs, groups):
                del groups[part.group]
                if part.log.can_take(indexed, part.run):
                    for _ in part.log.take_file(indexed, part.run, self._states, self._indexed):
                        partitions += 1
                        if not partitions % PARTITIONS_PER_TURN:
                            records = part.log.records
                            yield
                            if part.log.records is not records:
                                break  # the log was replaced
            indexed.rows -= 1
            indexed.is_changing = False
            if not groups:
                self._pending.pop(segment.start, None)
        self._job = None

    def _parts(self, runs: list[RunSummary],
               groups: Mapping[int, tuple[int, int]]) -> Iterator[_Part]:
        for run in runs:
            group = run.run.group
            if group in groups and self._is_below(group, *groups[group]):
                log = self._logs.get(group)
                if log is not None:
                    yield _Part(group, log, run)

    def _is_below(self, group: int, incarnation: int, last_index: int) -> bool:
        """Return True if a group's part of a segment is below the Raft start, or of no log any
        longer."""
        log = self._logs.get(group)
        return log is None or log.incarnation != incarnation or last_index < log.raft_start
