"""Start after a crash: read the journal, cut its torn tail, rebuild everything.

Contract.  ``recover`` reads, judges, cuts the torn tail durably and returns; damage is a value in
the result, never an exception.  Exceptions are: another node's or a newer format's files, and a
disk that fails.  Nothing that was durable is cut.  Recovery that is interrupted and started again
comes to the same result.

Whether a place is a torn tail or damage is decided in torn_tail.py.

The cut is durable before anything is appended: later segments are removed newest first, then the
file is truncated.  Intact bytes above the highest durable position are written once more and
synced: after a failed sync the page cache may show bytes that are not on disk and call them clean
(Rebello et al., ATC 2020).

Files that cannot be the journal's are left alone and named (strays.py).  A segment at the journal's
end whose header is neither intact nor zeros was never left by a crash, which has a header whole or
not at all: it is set aside under another name, not removed.

Damage of unknown ownership concerns each group that has not cleared all of it, except for the parts
that a copy explains (docs/decisions/0009).

Elsewhere.  What the groups are by what was read: rebuild.py.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import cast

from multiraft.codec import layout
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.block_index.file_codec import FileHeader, RunSummary
from multiraft.storage.checkpoint import Checkpoint
from multiraft.storage.config import SEGMENT_BYTES_LIMIT
from multiraft.storage.disk_space import is_full
from multiraft.storage.errors import CorruptFile, UnknownEntry, UnknownFormat
from multiraft.storage.filesystem import File, Filesystem
from multiraft.storage.index_file import read_index_file
from multiraft.storage.indexed_segments import read_summary
from multiraft.storage.journal.journal import (
    Journal,
    Segment,
    SegmentHeader,
    index_path,
    segment_path,
)
from multiraft.storage.journal.segment_index import SegmentIndex, without_removed_replicas
from multiraft.storage.journal.segment_reader import read_unapplied, unapplied_ranges
from multiraft.storage.journal.segment_scan import LATER_FORMAT, SegmentScan, scan_segment
from multiraft.storage.recovery.cold_ranges import read_cold_summaries
from multiraft.storage.recovery.cold_records import join_cold_records
from multiraft.storage.recovery.covered_segments import Beginnings, Part
from multiraft.storage.recovery.lost_copies import miss_lost_copies
from multiraft.storage.recovery.rebuild import FoundDamage, rebuild
from multiraft.storage.recovery.report import RecoveryProgress, RecoveryReport
from multiraft.storage.recovery.torn_tail import ExaminedSegment, Verdict, classify
from multiraft.storage.removable_segments import SegmentContents
from multiraft.storage.segment_seal import SealJob
from multiraft.storage.strays import (
    SET_ASIDE,
    SeenSegment,
    Stray,
    index_start,
    segment_start,
    stray_segments,
    strays_in_journal,
)

_HEADER_BYTES = layout.SEGMENT_HEADER_BYTES


def recover(journal: Journal, header: SegmentHeader, checkpoint: Checkpoint,
            progress: RecoveryProgress | None = None) -> RecoveryReport:
    """Read the journal's directory, cut the torn tail that a crash left, make ``journal`` ready to
    append, and return the logs and the damage. Keep ``progress`` up to date meanwhile.

    Blocks for as long as it reads. Raises ``WrongIdentity`` for a segment of another cluster or
    node, ``UnknownFormat`` for a segment or an entry of another release, ``OSError`` if the disk
    fails."""
    return _Recovery(journal, header, checkpoint, progress or RecoveryProgress()).run()


class _AllEntriesNeeded(Exception):
    """The journal is damaged: every index file is to be read whole.  Never leaves this module."""


class _Recovery:
    def __init__(self, journal: Journal, header: SegmentHeader, checkpoint: Checkpoint,
                 progress: RecoveryProgress):
        self._journal = journal
        self._progress = progress
        self._filesystem: Filesystem = journal.filesystem
        self._header = header
        self._checkpoint = checkpoint
        self._removed = checkpoint.removed
        self._applied = checkpoint.applied()
        self._result = RecoveryReport()
        self._found_damage: list[FoundDamage] = []
        self._by_summaries = True  # entries are read where the summaries do not do
        self._file_headers: dict[int, FileHeader] = {}  # of index files, by start of the segment

    def run(self) -> RecoveryReport:
        try:
            return self._run()
        except _AllEntriesNeeded:
            cut = self._result
            self._result = RecoveryReport(cut_at=cut.cut_at, cut_bytes=cut.cut_bytes)
            self._journal.leftovers = []
            self._progress.segments_done = 0
            self._by_summaries = False
            self._file_headers = {}
            return self._run()

    def _run(self) -> RecoveryReport:
        """Recover, by the summaries of index files as far as these do.  Raise ``_AllEntriesNeeded``
        if they do not, because the journal is damaged, or an index file."""
        files = self._segment_files()
        self._progress.segments_total = len(files)
        found = self._without_strays([self._examine(*item) for item in files])
        # All that can be proved durable: watermarks of intact entries, and the checkpoint, which
        # was written only when the journal before its position was synced.
        durable = max([self._checkpoint.position]
                      + [each.scan.index.highest_durable for each in found])
        if self._by_summaries:
            kept = found[:self._kept(found, durable)]
            if classify(kept, self._removed, durable, self._journal.directory).damage:
                raise _AllEntriesNeeded
        found = self._set_aside(found, durable)
        verdict = classify(found, self._removed, durable, self._journal.directory)
        self._note(verdict)
        if verdict.torn_at >= 0:
            found = self._cut(found, verdict.torn_at)
        found = self._remove_empty_end(found, durable)
        if self._by_summaries:
            self._read_needed(found)
        self._rewrite_unsynced(found, durable)
        self._journal.removed = self._removed
        self._resume(found, durable)  # first: then the journal has the place of each offset
        identity = self._header.cluster, self._header.node
        cold = read_cold_summaries(self._journal, *identity) if self._by_summaries else {}
        rebuild([(each.segment, each.scan.index) for each in found], self._found_damage,
                self._checkpoint, self._applied, self._result, self._progress, self._journal,
                self._file_headers, cold)
        join_cold_records(self._journal, self._checkpoint, *identity, self._result, cold)
        miss_lost_copies(self._checkpoint, self._result)
        self._summarize(found, verdict)
        for each in found:
            _part_from_summaries(each.scan.index)
        return self._result

    # ---- finding --------------------------------------------------------------------------------

    def _segment_files(self) -> list[tuple[Segment, bool]]:
        """Return (segment, True if it is the last one) of each segment file, in journal order,
        without those of removed segments.  Add files with other names to the report's strays."""
        directory = self._journal.directory
        names = self._filesystem.list(directory)
        self._result.strays += strays_in_journal(directory, names)
        self._result.strays += [Stray(f"{directory}/{name}", "it is no file")
                                for name in self._filesystem.non_files(directory)]
        starts = sorted(start for name in names if (start := segment_start(name)) is not None
                        and not self._is_leftover(start))
        # The index file of a removed segment may be all that a crash left of it.
        self._journal.leftovers += [
            Segment(segment_path(directory, start), start, 0, 0) for name in names
            if (start := index_start(name)) is not None and self._removed.covers(start)
            and not self._filesystem.exists(segment_path(directory, start))]
        files = []
        for ordinal, start in enumerate(starts):
            last = ordinal == len(starts) - 1
            capacity = (self._journal.capacity_at(start) if last
                        else starts[ordinal + 1] - start)
            files.append((Segment(segment_path(directory, start), start, capacity, 0), last))
        return files

    def _is_leftover(self, start: int) -> bool:
        """Return True if a segment file is of a removed segment, and add it to the journal's
        leftovers.  It is not read, and remains as long as a kept checkpoint may not know that it is
        removed.  False as well for a file whose header is not intact: that is a stray."""
        if not self._removed.covers(start):
            return False
        segment = Segment(segment_path(self._journal.directory, start), start, 0, 0)
        file = self._filesystem.open(segment.path)
        try:
            seed = self._seed(segment, file.read(_HEADER_BYTES, 0))
        finally:
            file.close()
        if seed is None:
            return False
        segment.is_removed = True
        self._journal.leftovers.append(segment)
        return True

    def _summarize(self, found: list[ExaminedSegment], verdict: Verdict) -> None:
        """Add a summary of each sealed segment to the report.  One beside missing bytes or with
        damage is not intact."""
        beside = {each.start for each in verdict.beside_gaps}
        for each in found:
            segment = each.segment
            if segment.file is None:  # else it is appended to
                self._result.contents[segment.start] = SegmentContents.of(
                    each.scan.index, is_intact=each.seed is not None
                    and not each.scan.damaged_ranges and segment.start not in beside)

    def _without_strays(self, found: list[ExaminedSegment]) -> list[ExaminedSegment]:
        """Return the segments that can be the journal's, with capacities that reach up to the next
        one.  The other files are reported as strays and stay on disk."""
        seen = [SeenSegment(each.segment.start, each.size, each.seed is not None,
                     each.scan.index.first_durable, each.scan.index.end) for each in found]
        strays = stray_segments(seen, self._removed, self._checkpoint.position)
        if not strays:
            return found
        self._result.strays += [Stray(found[at].segment.path, f"{why}, and its header is not "
                                f"intact") for at, why in sorted(strays.items())]
        kept = [each for at, each in enumerate(found) if at not in strays]
        for each, then in zip(kept, kept[1:]):
            each.segment.capacity = then.segment.start - each.segment.start
        if kept:
            kept[-1].segment.capacity = self._journal.capacity_at(kept[-1].segment.start)
        gone = {found[at].segment.path for at in strays}
        self._result.unindexed = [each for each in self._result.unindexed if each.path not in gone]
        return kept

    @staticmethod
    def _kept(found: list[ExaminedSegment], durable: int) -> int:
        """Return how many of the files are segments, without those at the journal's end whose
        headers are not intact."""
        kept = len(found)
        while (kept and found[kept - 1].seed is None and found[kept - 1].segment.start >= durable):
            kept -= 1
        return kept

    def _set_aside(self, found: list[ExaminedSegment], durable: int) -> list[ExaminedSegment]:
        """Rename files at the journal's end that are no segments and were not left by a crash,
        because new segments will have their names.  Return the other segments."""
        kept = self._kept(found, durable)
        for each in found[kept:]:
            if each.is_unfinished:
                continue
            self._filesystem.rename(each.segment.path, each.segment.path + SET_ASIDE)
            self._filesystem.sync_directory(self._journal.directory)
            self._result.strays.append(Stray(each.segment.path + SET_ASIDE,
                                             "its header was not intact, and it was set aside"))
        return found[:kept] + [each for each in found[kept:] if each.is_unfinished]

    def _examine(self, segment: Segment, last: bool) -> ExaminedSegment:
        """Load a segment's entries from its index file or, if it is the last one or its index file
        does not do, by a scan."""
        size = self._filesystem.size(segment.path)
        file = self._filesystem.open(segment.path)
        try:
            head = file.read(_HEADER_BYTES, 0)
            seed = self._seed(segment, head)
            segment.seed = seed or 0
            index = None
            if not last and seed is not None:
                index = self._summary(segment, size)
                if index is not None:
                    self._result.indexed_segments += 1
                    return ExaminedSegment(segment, size, seed, SegmentScan(index, []),
                                           is_complete=True)
                index = self._index_file(segment, size)
            if index is not None and self._read_unapplied(index, file):
                segment.end = index.end
                self._result.indexed_segments += 1
                return ExaminedSegment(segment, size, seed, SegmentScan(index, []),
                                       is_complete=True)
            scan = self._scan(segment, seed, file, min(size, SEGMENT_BYTES_LIMIT))
        finally:
            file.close()
            self._progress.segments_done += 1
        if not last and not scan.damaged_ranges:
            self._result.unindexed.append(segment)
        return ExaminedSegment(segment, size, seed, scan,
                               is_complete=index is not None and index.end == scan.index.end,
                               is_unfinished=not any(head))

    def _seed(self, segment: Segment, data: bytes) -> int | None:
        """Return the seed of the segment's checksum chain from an intact header; None = the header
        is damaged.  Raise ``UnknownFormat`` or ``WrongIdentity`` for a file of another version,
        cluster or node."""
        header = SegmentHeader.parse(data)
        if header is None or header.start != segment.start:
            return None
        header.require(self._header, segment.path)
        return header.seed

    def _summary(self, segment: Segment, size: int) -> SegmentIndex | None:
        """Return the segment's index without entries and batches, from the summary of the file
        beside it; None if that file does not do, or the segment ends behind the checkpoint's
        position."""
        if not self._by_summaries:
            return None
        try:
            header, runs = read_summary(self._filesystem, segment, FileIdentity(
                self._header.cluster, self._header.node, segment.start, segment.seed))
        except (CorruptFile, UnknownFormat):
            return None
        if size < header.end - segment.start or header.end > self._checkpoint.position:
            return None
        segment.end = header.end
        self._file_headers[segment.start] = header
        for each in runs:
            each.run.in_file = each
        return SegmentIndex(segment.start, segment.seed, header.end, header.last_crc,
                            header.first_durable, header.highest_durable,
                            {each.run.group: each.run for each in runs})

    def _read_needed(self, found: list[ExaminedSegment]) -> None:
        """Read the entries that are needed of segments whose summaries were read.  Raises
        ``_AllEntriesNeeded`` if an index file is damaged."""
        beginnings = Beginnings(self._checkpoint, self._applied, self._removed)
        for each in found:
            segment, is_last = each.segment, each is found[-1]
            if segment.start not in self._file_headers and not is_last:
                self._write_index(each)
            runs = each.scan.index.runs
            if segment.start not in self._file_headers:
                beginnings.end({*runs})
            elif is_last:  # it may be appended to, without its index file
                beginnings.end({*runs})
                self._read_entries(each, {})
            else:
                summaries = {group: cast("RunSummary", run.in_file)
                             for group, run in runs.items()
                             if run.in_file is not None}
                parts = beginnings.take(segment, summaries)
                if Part.ENTRIES in parts.values():
                    self._read_entries(each, {
                        group: summary for group, summary in summaries.items()
                        if parts[group] is Part.RECORDS})

    def _read_entries(self, each: ExaminedSegment, in_file: Mapping[int, RunSummary]) -> None:
        """Read the whole index file of a segment, and the entries above the applied state; of the
        groups ``in_file`` only the summary is kept."""
        segment = each.segment
        index = self._index_file(segment, each.size)
        if index is None:
            raise _AllEntriesNeeded
        _part_from_summaries(each.scan.index, in_file)
        for group, summary in in_file.items():
            index.runs[group] = summary.run
        file = self._filesystem.open(segment.path)
        try:
            if not self._read_unapplied(index, file):
                raise _AllEntriesNeeded
        finally:
            file.close()
        each.scan = SegmentScan(index, [])

    def _write_index(self, each: ExaminedSegment) -> None:
        """Write the index file of a segment that lacks only that, and take its summary.  On a full
        disk leave it for later."""
        segment = each.segment
        if (segment not in self._result.unindexed or each.seed is None
                or each.scan.index.end > self._checkpoint.position):
            return
        job = SealJob(self._filesystem, segment)
        try:
            job.execute()
        except OSError as error:
            if not is_full(error):
                raise
            return
        index = self._summary(segment, each.size)
        if index is not None:
            each.scan = SegmentScan(index, [])
            self._result.unindexed.remove(segment)

    def _index_file(self, segment: Segment, size: int) -> SegmentIndex | None:
        """Return the segment's index from the file beside it, packed; None if that file is missing,
        damaged, or names more bytes than the segment has."""
        if not self._filesystem.exists(index_path(segment)):
            return None
        try:
            index = read_index_file(self._filesystem, segment, self._header.cluster,
                                    self._header.node)
        except (CorruptFile, UnknownFormat):
            return None  # a cache: scanned and written anew
        index.pack()
        return index if size >= index.end - index.start else None

    def _read_unapplied(self, index: SegmentIndex, file: File) -> bool:
        """Read the entries that partition states need from the segment's file into ``index``;
        return False if the segment has to be scanned instead."""
        above = unapplied_ranges(index, self._applied, self._checkpoint.position)
        return above is not None and read_unapplied(index, above, file)

    def _scan(self, segment: Segment, seed: int | None, file: File, length: int) -> SegmentScan:
        data = file.read(length, 0)
        scan = scan_segment(data, segment.start, seed, self._applied, self._checkpoint.position)
        scan.index.pack()
        for damaged in scan.damaged_ranges:
            if damaged.reason == LATER_FORMAT:
                raise UnknownEntry(segment.path, damaged.position, damaged.index)
        segment.end = scan.index.end
        self._result.scanned_bytes += len(data)
        self._result.scanned_segments += 1
        return scan

    def _note(self, verdict: Verdict) -> None:
        """Add the damage of a verdict to the report.  Report no segment as lacking only its index
        file if entries that were lost may have been in it."""
        self._found_damage += verdict.damage
        for reached, segment in verdict.gaps:
            self._result.unindexed = [other for other in self._result.unindexed
                                      if other.end < reached or other is segment]

    # ---- cutting --------------------------------------------------------------------------------

    def _cut(self, found: list[ExaminedSegment], position: int) -> list[ExaminedSegment]:
        """Remove everything of the journal from ``position`` on, durably: later files, then the end
        of the file that holds it.  Return the remaining segments, the last one scanned again."""
        at = max(slot for slot, each in enumerate(found) if each.segment.start <= position)
        torn = found[at]
        kept = position - torn.segment.start
        behind = found[at + 1:]
        self._result.cut_at = position
        self._result.cut_bytes = torn.size - kept + sum(each.size for each in behind)
        self._remove(behind)
        # A replica whose tombstone is cut off exists again.
        self._applied = without_removed_replicas(
            self._checkpoint.applied(), self._checkpoint.position,
            [each.scan.index for each in found[:at]])
        file = self._filesystem.open(torn.segment.path)
        try:
            # Durable before anything is appended: intact entries of the torn write must not be on
            # disk behind new ones after the next crash.
            file.truncate(kept)
            file.sync()
            torn.scan = self._scan(torn.segment, torn.seed, file, kept)
        finally:
            file.close()
        torn.size = kept
        return found[:at + 1]

    def _remove_empty_end(self, found: list[ExaminedSegment],
                          durable: int) -> list[ExaminedSegment]:
        """Remove the files at the journal's end that have no entries and begin at or above
        ``durable``, such as segments created ahead.  Return the other segments."""
        kept = len(found)
        while (kept and found[kept - 1].scan.index.first_durable < 0
               and found[kept - 1].segment.start >= durable):
            kept -= 1
        self._remove(found[kept:])
        return found[:kept]

    def _remove(self, found: list[ExaminedSegment]) -> None:
        """Remove these segments and their index files, newest first, each removal durable: a crash
        in between leaves the same decision."""
        for each in reversed(found):
            self._remove_index(each.segment)
            self._filesystem.remove(each.segment.path)
            self._filesystem.sync_directory(self._journal.directory)
        gone = {each.segment.start for each in found}
        self._result.unindexed = [each for each in self._result.unindexed
                                  if each.start not in gone]

    def _remove_index(self, segment: Segment) -> None:
        if self._filesystem.exists(index_path(segment)):
            self._filesystem.remove(index_path(segment))

    def _rewrite_unsynced(self, found: list[ExaminedSegment], durable: int) -> None:
        """Write all bytes of the segments above ``durable`` once more to their places, and sync
        them."""
        for each in found:
            end = each.scan.index.end - each.segment.start
            begin = max(0, durable - each.segment.start)
            # A failed sync may have left bytes in the page cache that are not on disk and that are
            # marked clean: a sync alone would not write them.
            if begin < end:
                file = self._filesystem.open(each.segment.path)
                try:
                    file.write([file.read(end - begin, begin)], begin, True)
                finally:
                    file.close()

    def _resume(self, found: list[ExaminedSegment], durable: int) -> None:
        """Make the journal continue behind the last entry: in its file, whose index file is removed
        then, or in a new segment.  A new one is due if that file is damaged or a snapshot replaces
        it."""
        journal = self._journal
        segments = [each.segment for each in found]
        snapshot_position = max(self._checkpoint.installed().values(), default=0)
        if not found:
            start = max(self._removed.journal_start, _aligned(durable), snapshot_position)
            journal.resume([], start, 0, start, None)
            return
        last = found[-1]
        index, segment = last.scan.index, last.segment
        segment.capacity = max(segment.capacity, _aligned(index.end - segment.start))
        next_start = max(segment.start + segment.capacity, _aligned(durable), snapshot_position)
        # A damaged file is not extended, nor one that a snapshot replaces for its group.
        if (last.seed is None or last.scan.damaged_ranges or index.end < durable
                or segment.start < snapshot_position):
            journal.resume(segments, max(index.end, durable), 0, next_start, None)
            return
        # The file grows again: an index file of its present content would hide later entries.
        self._remove_index(segment)
        self._filesystem.sync_directory(journal.directory)
        self._result.unindexed = [each for each in self._result.unindexed if each is not segment]
        journal.resume(segments, index.end, index.last_crc, next_start,
                    self._filesystem.open(segment.path))


def _part_from_summaries(index: SegmentIndex, kept: Container[int] = ()) -> None:
    """Part the runs of a segment from the summaries of its index file, except for those of the
    groups ``kept``: the two refer to each other, so they would stay until garbage is collected."""
    for group, run in index.runs.items():
        if group not in kept:
            run.in_file = None


def _aligned(position: int) -> int:
    return -(-position // layout.ENTRY_ALIGNMENT) * layout.ENTRY_ALIGNMENT
