"""Removal of segments that nothing needs: when each step of it is due.

Contract.  ``next_job`` -> (a thread executes the job) -> ``done`` or ``failed``; one job at a time.
The rest runs on the loop, touches memory only and does bounded work per call.

    step                                              durable when
    ------------------------------------------------  ----------------------------------------------
    1 a segment leaves the journal, in memory         not at all: a start reads it
    2 a checkpoint names it as removed                the checkpoint is; a start from it does not
                                                      read the segment, one from an earlier does
    3 all kept checkpoints name it                    the oldest of them is: no start reads it
    4 its index file and the segment are unlinked     the directory is synced; until then each of
                                                      the two may come back
    5 their blocks are freed, in slices               at once: no name leads to them

Segments are examined after each checkpoint, and once more when records of half a segment's size
have left the record stores since.  A process that does not know all kept checkpoints examines them
by the newest alone, and removes none: ``unnamed_bytes`` then says what a checkpoint would be worth.

A crash between any two steps leaves a start that works.  A start that finds files of removed
segments does not read them, and removes them after step 3 of its own: it does not know what the
checkpoint before the newest names.

Theory.  Which segments may go: ``removable_segments``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multiraft.storage.checkpointer import Checkpointer, Durable
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.file_removal import FileRemoval
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.journal.journal import Segment, index_path
from multiraft.storage.log_table import LogTable
from multiraft.storage.removable_segments import RemovalPass, SegmentContents

#: Groups in the segments that one call examines: some milliseconds of the loop.  A segment with
#: more groups is examined whole.
GROUPS_EXAMINED_MAX = 4096
#: Segments that one call examines.
SEGMENTS_EXAMINED_MAX = 256
#: Segments whose files one job unlinks, and keeps open while it frees their blocks.
FILES_PER_JOB = 16


class RemovalJob:
    """Unlinking of the files of removed segments."""

    __slots__ = ("segments", "_files")

    def __init__(self, filesystem: Filesystem, directory: str, segments: Sequence[Segment]):
        self.segments = tuple(segments)
        self._files = FileRemoval(filesystem, directory, [
            path for segment in segments for path in (index_path(segment), segment.path)])

    @property
    def bytes(self) -> int:
        """Size of the files that were unlinked."""
        return self._files.bytes

    @property
    def has_blocks(self) -> bool:
        """True if unlinked files still have blocks."""
        return self._files.has_blocks

    def execute(self) -> None:
        """Unlink the files that exist, and sync the directory.  Block, on any thread.  Raises
        ``OSError``; the job may be executed again."""
        self._files.unlink()

    def free(self) -> None:
        """Free a bounded part of the blocks of the unlinked files.  Block, on any thread.  Raises
        ``OSError``."""
        self._files.free()


class SegmentRemoval:
    """Decisions about the segments of a store's journal, and the jobs that remove them."""

    def __init__(self, table: LogTable, checkpointer: Checkpointer,
                 contents: dict[int, SegmentContents], forget: Callable[[SegmentContents], None],
                 trimmed_bytes: int):
        """``contents``: by start, of the sealed segments that recovery found; ``forget`` is called
        for each segment that leaves the journal.  ``trimmed_bytes``: of records, after whose
        removal the segments are examined again."""
        self._table = table
        self._checkpointer = checkpointer
        self._contents = contents
        self._forget = forget
        self._trimmed_bytes_max = trimmed_bytes
        self._trimmed_bytes = 0  # since the last pass began
        self._is_outdated = True  # the last pass, because of what happened since
        self._pass: RemovalPass | None = None
        self._is_certain = False  # the pass knows all kept checkpoints
        self._next_start = 0  # of the segment to examine next
        self._newest = checkpointer.newest  # when the last pass began
        self._job: RemovalJob | None = None
        self.waiting = 0  # segments of the last pass that wait, because of ``REMOVED_RANGES_MAX``
        self._found_bytes = 0  # of segments that a pass would remove if it were certain
        self._unnamed: tuple[Durable, int, int] | None = None  # (newest, leftovers, their bytes)

    def add(self, contents: SegmentContents) -> None:
        """Take the contents of a segment that was sealed."""
        self._contents[contents.start] = contents

    def sealed_meanwhile(self, segment: Segment | ColdSegment) -> None:
        """Have the index file of a removed segment unlinked, which was written in the meantime,
        perhaps behind the job that unlinked the others."""
        if isinstance(segment, ColdSegment):
            return  # a start removes an index file without its cold segment
        leftover = Segment(segment.path, segment.start, 0, 0)
        leftover.is_removed = True
        self._table.journal.leftovers.append(leftover)

    def trimmed(self, size: int) -> None:
        """Take the bytes of records that left the record stores."""
        self._trimmed_bytes += size
        if self._trimmed_bytes >= self._trimmed_bytes_max:
            self._is_outdated = True

    def examine_again(self) -> None:
        """Begin another pass with the next job if any record left a record store since the last
        one began."""
        if self._trimmed_bytes:
            self._is_outdated = True

    @property
    def is_examining(self) -> bool:
        """True if the pass over the journal is not at its end."""
        return self._pass is not None

    @property
    def unnamed_bytes(self) -> int:
        """Bytes of segments that nothing needs, and whose files go after further checkpoints.
        O(1), O(removed segments) after a change."""
        newest, leftovers = self._checkpointer.newest, self._table.journal.leftovers
        known = self._unnamed
        if known is None or known[0] is not newest or known[1] != len(leftovers):
            known = self._unnamed = newest, len(leftovers), sum(
                each.end - each.start for each in leftovers
                if not self._checkpointer.all_remove(each.start))
        return known[2] + self._found_bytes

    def next_job(self) -> RemovalJob | None:
        """Examine the next segments, and return a job that unlinks files of removed ones; None =
        none may go now.

        O(groups in the segments examined, + removed ranges for each that goes)."""
        self._examine()
        if self._job is not None:
            return None
        leftovers = self._table.journal.leftovers
        ready = [each for each in leftovers[:FILES_PER_JOB]
                 if self._checkpointer.all_remove(each.start)]
        if not ready:
            return None
        self._job = RemovalJob(self._table.filesystem, self._table.journal.directory, ready)
        return self._job

    def done(self, job: RemovalJob) -> None:
        """Take an executed job: its files are gone."""
        assert job is self._job
        self._job = None
        journal = self._table.journal
        journal.leftovers = [each for each in journal.leftovers if each not in job.segments]

    def failed(self) -> None:
        """Allow another job, because the last one could not unlink its files."""
        self._job = None

    # ---- decisions -----------------------------------------------------------------------------

    def _examine(self) -> None:
        """Take segments that nothing needs out of the journal, as far as one call examines them."""
        if self._pass is None:
            newest = self._checkpointer.newest
            if newest is self._newest and not self._is_outdated:
                return
            kept = self._checkpointer.kept()
            self._is_certain, self._is_outdated = bool(kept), False
            self._newest, self._next_start, self.waiting = newest, 0, 0
            self._trimmed_bytes = self._found_bytes = 0
            self._pass = RemovalPass(kept or self._checkpointer.newest_twice(), self._has_record)
        groups = 0
        for segment in self._table.journal.sealed_from(self._next_start, SEGMENTS_EXAMINED_MAX):
            contents = self._contents.get(segment.start)
            if contents is None or contents.end > self._newest.position:
                break  # it is not sealed yet, or no checkpoint knows all of it
            groups += len(contents.groups)
            if groups > GROUPS_EXAMINED_MAX and groups > len(contents.groups):
                return
            self._next_start = segment.start + 1
            if not self._pass.may_go(contents):
                continue
            if self._is_certain:
                self._remove(segment, contents)
            else:
                self._found_bytes += contents.end - contents.start
        else:
            if self._table.journal.sealed_from(self._next_start, 1):
                return
        self._pass = None

    def _remove(self, segment: Segment, contents: SegmentContents) -> None:
        journal = self._table.journal
        begin = contents.begin if contents.begin >= 0 else journal.end_before(segment)
        if journal.remove(segment, begin):
            del self._contents[segment.start]
            self._forget(contents)
        else:
            self.waiting += 1
            assert self._pass is not None
            self._pass.keep(contents)

    def _has_record(self, segment: SegmentContents) -> bool:
        """Return True if a record stands in the segment, readable or missing.  O(records in memory
        of the groups between the first and the last index that they have in the segment)."""
        indexed = self._table.indexed.find(segment.start)
        if indexed is not None and indexed.rows:
            return True
        for group, contents in segment.groups.items():
            log = self._table.logs.get(group)
            if log is not None and log.incarnation == contents.incarnation and (
                    log.records.stand_within(segment.start, segment.end, contents.first_index,
                                             contents.last_index)):
                return True
        return False
