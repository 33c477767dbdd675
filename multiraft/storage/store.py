"""Storage of one node: the logs of all groups in one journal, with indexes, cache, checkpoints.

Contract.  All methods run on the loop, touch memory only and do not block, except ``open`` and
``close``.  Blocking work leaves as I/O jobs (``io_jobs.py``).  A round is ``stage`` -> ``execute``
(disk thread) -> ``finish``; rounds are finished in the order in which they were staged.  Implements
``multiraft.raft.log_reader.LogReader``.

Invariants.  A staged entry is in the index and in memory before its bytes are on disk.  An entry
leaves memory only when it is durable, so each entry can be read at any time.  A group's entries in
memory are contiguous up to its last one.

Theory.  Group commit: one journal and one sync for all groups of a node, so a round costs what its
bytes cost, however many groups it has.  Followers and consumers at the end of the log are served
from the buffers that were written; older entries are read from disk and verified.

Elsewhere.  State that repair shares: log_table.py.  Contents of checkpoints: checkpointer.py.
Torn tail or corruption: recovery.py.  Logs from the segments' contents: recovery/rebuild.py.  Bytes
on disk: docs/storage-format.md.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from multiraft.codec import layout
from multiraft.compression import decompress
from multiraft.partitions.state import PartitionStates
from multiraft.raft import joint_quorum
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.raft.replica_records import parse_reincarnation, parse_tombstone
from multiraft.storage.atomic_file import remove_unfinished
from multiraft.storage.cache import EntryCache
from multiraft.storage.checkpoint import (
    INSTALLED_KEPT,
    Checkpoint,
    CheckpointJob,
    checkpoint_names,
    newest_checkpoint,
)
from multiraft.storage.checkpointer import Checkpointer
from multiraft.storage.cold.cleaner import Cleaner
from multiraft.storage.cold.cleaning_policy import CleaningLimits
from multiraft.storage.cold.cold_files import ColdSegments
from multiraft.storage.compaction.compacted_parts import drop_from_sources
from multiraft.storage.compaction.compactor import Compactor
from multiraft.storage.config import StorageConfig
from multiraft.storage.errors import (
    BlockNotCached,
    StaleIncarnation,
)
from multiraft.storage.filesystem import Buffer, Filesystem
from multiraft.storage.identity import Claimed, Identity, claim
from multiraft.storage.index import PartitionIndex
from multiraft.storage.io_jobs import (
    BlockJob,
    CreateSegmentJob,
    Fetch,
    ReadJob,
    RecordsJob,
    RowRecordsJob,
    StagedWrite,
    VerifyJob,
)
from multiraft.storage.journal.journal import Journal, Placed, SegmentHeader
from multiraft.storage.log_table import LogTable
from multiraft.storage.memory_release import MemoryRelease, SummaryJob
from multiraft.storage.partition_reads import PartitionReads
from multiraft.storage.record_store import TermRuns, runs_fault
from multiraft.storage.recovery.recovery import recover
from multiraft.storage.recovery.report import Damage, RecoveryProgress, RecoveryReport
from multiraft.storage.repair.repair import LocalRepair
from multiraft.storage.segment_removal import RemovalJob, SegmentRemoval
from multiraft.storage.segment_seal import IndexJob, index_job
from multiraft.storage.stored_log import StoredLog
from multiraft.storage.strays import strays_among_checkpoints
from multiraft.storage.uncopied_ranges import IndexRange
from multiraft.types import Configuration, Entry, EntryKind

LOCK_FILE = "LOCK"
JOURNAL_DIRECTORY = "lane-0"
COLD_DIRECTORY = "cold-0"

_ENTRY_HEADER_BYTES = layout.ENTRY_HEADER_BYTES


class CopyState(NamedTuple):
    """Records of a group's replica, and what it lacks of them."""

    records: int  # whose places are in memory, as those of copies are; missing ones included
    missing: int  # records, and entries that may have been records, that cannot be read
    indexes_left: int  # uncopied ones


class Store:
    """Logs, indexes, recent entries and checkpoints of one node, opened with ``Store.open``."""

    def __init__(self, table: LogTable, directory: str, config: StorageConfig, claimed: Claimed,
                 checkpoint: Checkpoint, recovered: RecoveryReport, lock: Any):
        """``table``: as recovery left it; ``checkpoint``: the one that recovery began with;
        ``lock``: of the directory, owned from now on."""
        self.table = table
        self.directory = directory
        self.config = config
        self.boot_epoch = claimed.boot_epoch  # of this start; durable, never used twice
        self.incarnation = claimed.incarnation  # of the data directory
        self.boot_ids = claimed.boot_ids  # of the data directory, oldest first
        self.groups = table.restored  # as recovered or created
        self.partition_states = table.partition_states
        self.damage = recovered.damage
        self.strays = recovered.strays  # files that are not this node's: left alone
        self.extra = checkpoint.extra  # what it carries for the node
        self.recovered = recovered  # figures of the last recovery
        self.repair = LocalRepair(table)
        self.reads = PartitionReads(table)
        self.trimmed_bytes = 0  # of records that ``trim`` removed since the start
        self.relaxed = False  # rounds of nothing but records may be synced later
        self._lock = lock
        self._logs = table.logs
        self._journal = table.journal
        self._filesystem = table.filesystem
        self._cache = EntryCache(config.entry_cache_bytes_max)
        self._checkpointer = Checkpointer(table, self.repair, directory, config, checkpoint)
        self._release = MemoryRelease(table.journal, table.logs, table.partition_states,
                                      table.indexed, lambda start: self.cleaner.is_source(start))
        self._removal = SegmentRemoval(table, self._checkpointer, recovered.contents,
                                       self._release.forget, config.segment_bytes_max // 2)
        self.cleaner = Cleaner(table, self._checkpointer, recovered.contents,
                               recovered.cold_contents, CleaningLimits(
                                   config.segment_bytes_max,
                                   freed_bytes_min=config.first_segment_bytes), self._moved)
        self.compactor = Compactor(table, self.cleaner, decompress,
                                   (claimed.incarnation ^ claimed.boot_epoch) % (1 << 64),
                                   max(config.checkpoints_kept, INSTALLED_KEPT))
        self._sealed: list = [*recovered.unindexed]  # segments that wait for their index file
        unindexed = {segment.start for segment in self._sealed}
        for contents in recovered.contents.values():
            if contents.start not in unindexed:
                self._release.add(contents)
        self._release.begin()
        self._finished_sequence = 0
        self._is_checkpoint_awaited = False  # before space can be freed

    # ---- opening and closing ---------------------------------------------------------------------

    @classmethod
    def open(cls, directory: str, filesystem: Filesystem, identity: Identity,
             config: StorageConfig = StorageConfig(),
             progress: RecoveryProgress | None = None) -> Store:
        """Lock the directory, created if necessary, check its identity, start a boot epoch and
        recover the logs. Block; keep ``progress`` up to date meanwhile.

        Raise ``DirectoryInUse`` if another process has the lock, ``ConfigError`` if settings of
        ``config`` contradict each other, the errors of ``identity.claim`` and of ``recover``, and
        ``OSError``. Damage in the journal or a checkpoint is not an exception: see ``damage`` and
        each group's ``quarantined``."""
        config.validate()
        journal_directory = f"{directory}/{JOURNAL_DIRECTORY}"
        filesystem.make_directory(directory)
        lock = filesystem.lock(f"{directory}/{LOCK_FILE}")
        try:
            filesystem.make_directory(journal_directory)
            filesystem.make_directory(f"{directory}/{COLD_DIRECTORY}")
            return cls._recover(directory, filesystem, identity, config, progress, lock)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _recover(cls, directory: str, filesystem: Filesystem, identity: Identity,
                 config: StorageConfig, progress: RecoveryProgress | None, lock: Any) -> Store:
        """Return a store with the contents of a locked directory, or with the identity of a new
        one. Raises as ``claim`` and ``recover``."""
        journal_directory = f"{directory}/{JOURNAL_DIRECTORY}"
        cold_directory = f"{directory}/{COLD_DIRECTORY}"
        has_data = bool(
            filesystem.list(journal_directory) or checkpoint_names(filesystem, directory)
        )
        claimed = claim(filesystem, directory, identity, has_data)
        for each in (directory, journal_directory, cold_directory):
            remove_unfinished(filesystem, each)
        checkpoint, damaged = newest_checkpoint(filesystem, directory)
        header = SegmentHeader(layout.FORMAT_VERSION, 0, 0, identity.cluster, identity.node, 0)
        # Both numbers go into the seeds of new segments: bytes of an earlier start that are left
        # behind a torn tail must not join this start's chain of checksums.
        seeds = (claimed.incarnation, claimed.boot_epoch)
        journal = Journal(filesystem, journal_directory, header, seeds, config)
        journal.cold = ColdSegments(cold_directory, checkpoint.cold)
        cold_strays = journal.cold.find_files(filesystem)
        found = recover(journal, header, checkpoint, progress)
        found.damage[:0] = [Damage("checkpoint", error.path, 0, -1, 0, error.why)
                            for error in damaged]
        names = [*filesystem.list(directory), *filesystem.non_files(directory)]
        found.strays[:0] = [*strays_among_checkpoints(directory, names), *cold_strays]
        table = LogTable(journal, found.logs, found.partition_states, found.journal_damage,
                         config.read_gap_bytes_max, found.indexed)
        drop_from_sources(table)
        return cls(table, directory, config, claimed, checkpoint, found, lock)

    def close(self) -> None:
        """Close the files and unlock the directory.  Write nothing: a driver that stops cleanly
        makes a checkpoint first."""
        self._journal.close()
        self._lock.close()

    # ---- groups ----------------------------------------------------------------------------------

    def create_group(self, group: int, incarnation: int, configuration: Configuration,
                     is_new: bool = False) -> GroupRestored:
        """Add a group's replica, in memory only, and return its state for ``MultiRaft.add_group``.
        A group without entries has nothing on disk. In place of a removed replica an empty one is
        added that keeps its tombstone's term and vote.

        A group that recovery found keeps its log; its configuration is filled in when the journal
        does not have it. A later incarnation replaces the known one and its log; raise
        ``StaleIncarnation`` for an earlier one. In a journal with damage, a group that recovery did
        not find starts quarantined, because the damaged entries may be its own, unless it
        ``is_new`` on this node for sure."""
        log = self._logs.get(group)
        if log is not None and incarnation < log.incarnation:
            raise StaleIncarnation(group, incarnation, log.incarnation)
        if log is None or incarnation > log.incarnation:
            if log is not None:
                log.cached.clear()
                log.drop_rows()
            log = self._logs[group] = StoredLog(group, incarnation, configuration)
            log.damage.create(self._journal.position, self._journal.end_place)
            if self.recovered.quarantine_all_reason and not is_new:
                log.damage.require_head_recovery(self.recovered.quarantine_all_reason)
            self.partition_states[group] = PartitionStates(group)
        else:
            if log.removed:
                log.removed = False
                log.damage.create(self._journal.position, self._journal.end_place)
            log.set_initial_configuration(configuration)
        return self.table.restore(group)

    def install(self, group: int, bounds: LogBounds, configuration_index: int,
                configuration: Configuration, states: PartitionStates, *, terms: TermRuns = (),
                first_index: int = 0, committed: int = 0) -> None:
        """Install a snapshot: ``states`` and the node's own state replace all entries up to
        ``bounds``, and the log begins empty behind it.  In memory only: the next checkpoint makes
        the snapshot durable as a whole, and no acknowledgement may leave before.  No write of the
        group may be in flight, also none of a removed replica (``is_tombstone_durable``).

        ``first_index``: of a group with partitions, the first index that its source had or missed
        as a record, or its Raft start; 0 = a group without.  Then the log's own records and entries
        up to the ``committed`` index stay as records, as far as ``states`` need them; the other
        indexes from ``first_index`` on are uncopied (``uncopied``).  ``terms``: runs of (first
        index, term) of the indexes from ``first_index`` on, without fault (``runs_fault``).
        O(records + entries of the log)."""
        log = self.table.log(group)
        assert states.applied_index == states.last_index == bounds.last_index, (
            f"state at {states.applied_index}..{states.last_index}, log from {bounds.first_index}")
        # A new segment: recovery skips the group's entries in segments that begin before it, which
        # the snapshot replaces, without a record of its own in the journal.
        position = self._journal.start_segment()
        if first_index:
            assert not (why := runs_fault(terms, first_index, bounds.first_index)), why
            log.install(bounds, configuration_index, configuration, states, position, terms,
                        first_index, committed)
        else:
            log.restart(bounds, configuration_index, configuration, position)
        self.partition_states[group] = states
        self.table.restore(group)
        self.compactor.replaced(group)
        self._checkpointer.require_copy()

    # ---- records of snapshots --------------------------------------------------------------------

    def record_terms(self, group: int) -> tuple[int, TermRuns]:
        """Return, for a snapshot of a group's applied state, the first index that is or may be
        needed as a record, and the terms of the indexes from there up to the applied one, as runs
        of (first index, term).  O(runs + missing).  Raise ``UnknownGroup`` for a group without a
        log here."""
        return self.table.log(group).record_terms(self.partition_states[group].applied_index)

    def uncopied(self, group: int) -> tuple[IndexRange, ...]:
        """Return the ranges of indexes, (first, last), whose records are still to be copied from
        other members; ascending.  O(ranges).  Raise ``UnknownGroup`` for a group without a log
        here."""
        return self.table.log(group).records.uncopied.ranges

    def is_complete(self, group: int) -> bool:
        """Return True if the group's replica has all records that it needs: none is uncopied, and
        none is known to be missing.  O(1).  Raise ``UnknownGroup`` for a group without a log
        here."""
        log = self.table.log(group)
        return log.records.is_complete and not log.missing

    def copied(self, group: int) -> CopyState:
        """Return how far the records of a group's replica are copied.  O(ranges).  Raise
        ``UnknownGroup`` for a group without a log here."""
        records = self.table.log(group).records
        return CopyState(len(records), len(records.missing), records.uncopied.count)

    def records_job(self, group: int, first: int, last: int,
                    bytes_max: int) -> RecordsJob | RowRecordsJob | None:
        """Return a job that reads, for another member, the records with indexes in [first, last],
        the applied batches of the Raft log among them: as many as have at most ``bytes_max`` framed
        bytes, at least one, or those of one segment whose index file answers, if there are any.
        None if nothing is applied from ``first`` on.

        Records that the log start has passed may be among them.  O(records in the answer + applied
        entries in it).  Raise ``UnknownGroup`` for a group without a log here."""
        log = self.table.log(group)
        applied = self.partition_states[group].applied_index
        return self.table.records_job(log, first, min(last, applied), bytes_max)

    def raft_start(self, group: int) -> int:
        """Return the first index of a group's Raft log.  Raise ``UnknownGroup`` for a group without
        a log here."""
        return self.table.log(group).raft_start

    def raft_start_max(self, group: int) -> int:
        """Return the highest Raft start that ``compact`` takes now: the applied state of the index
        before it is in both kept checkpoints.  O(1).  Raise ``UnknownGroup`` for a group without a
        log here."""
        log = self.table.log(group)
        return max(log.raft_start, self._checkpointer.applied_in_all(log) + 1)

    def newest_from(self, group: int, bytes_max: int, journal_bytes_max: int) -> int:
        """Return the first index of the newest entries of a Raft log that take at most
        ``bytes_max`` and stand in the newest ``journal_bytes_max`` of the journal; the last index
        + 1 if there are none.  O(log n).  Raise ``UnknownGroup`` for a group without a log here."""
        return self.table.log(group).index.first_within(
            bytes_max, max(0, self._journal.position - journal_bytes_max))

    def partitions_below(self, group: int, first_index: int) -> list[int]:
        """Return the partitions with batches of a Raft log below an index.  O(partitions).  Raise
        ``UnknownGroup`` for a group without a log here."""
        return self.table.log(group).partitions_below(first_index)

    def compact(self, group: int, first_index: int,
                partitions: Collection[int] | None = None) -> int:
        """Raise a group's Raft start to ``first_index``, at most ``raft_start_max``: below it only
        records remain, readable through ``fetch`` and for repair.  In memory only; the next
        checkpoint makes it durable, and a start with an earlier one has the earlier Raft start.

        Return the Raft start, lower than ``first_index`` where the term before that is not sure.
        The caller compacts the log of consensus up to it in the same turn.  ``partitions``: the
        ``partitions_below`` of ``first_index`` or of an index behind it, None = to be found.
        O(entries between the two starts, + partitions, + moved bytes of the entries behind).  Raise
        ``UnknownGroup`` for a group without a log here."""
        assert first_index <= self.raft_start_max(group), (
            f"Raft start {first_index} of group {group}, at most {self.raft_start_max(group)}")
        log = self.table.log(group)
        log.compact(first_index, self.partition_states[group], partitions=partitions)
        return log.raft_start

    def trim(self, group: int, partitions: Collection[int],
             batches_max: int = sys.maxsize) -> bool:
        """Remove the records of ``partitions`` below their applied log start, and those of deleted
        partitions with their indexes, at most ``batches_max`` of them.  Return True if some may be
        left.  No-op for a group without a log here.  O(removed log n + moved bytes)."""
        log = self._logs.get(group)
        if log is None:
            return False
        trimmed = log.trim(self.partition_states[group], partitions, batches_max=batches_max)
        self.trimmed_bytes += trimmed.bytes
        self._removal.trimmed(trimmed.bytes)
        self.cleaner.trimmed(trimmed.bytes)
        return not trimmed.is_complete

    def is_removed(self, group: int) -> bool:
        """Return True if only a tombstone is left of the group's replica here; False also without
        one.  Then only the group's leader can ask for a new one."""
        log = self._logs.get(group)
        return log is not None and log.removed

    def tombstone(self, group: int) -> tuple[int, int]:
        """Return (term of the removed replica, incarnation of its group, 0 = that of its log).
        Raise ``UnknownGroup`` for a group without a log here."""
        log = self.table.log(group)
        return log.hard_state.term, log.group_incarnation

    def is_tombstone_durable(self, group: int) -> bool:
        """Return True unless a tombstone of the group is still being written: until then, writes of
        the removed replica may be in flight too.  Raise ``UnknownGroup`` for a group without a log
        here."""
        return self._checkpointer.is_tombstone_durable(self.table.log(group))

    def _take_lifecycle_record(self, log: StoredLog, write: GroupWrite, position: int) -> int:
        """Apply a tombstone or the record of a forced recovery, whose journal position is
        ``position``, to the log.  Return how many journal entries it takes, REPAIR records behind a
        tombstone included."""
        record = write.lifecycle_record
        assert record is not None
        if record.kind == EntryKind.REINCARNATION:
            log.apply_forced_recovery(parse_reincarnation(record.payload), record.index,
                                      record.term)
            return 1
        ranges, needs_head_recovery = log.unreadable_ranges(), log.damage.needs_head_recovery
        for begin, end in ranges:
            self.table.journal_damage.explain(*self._journal.range_at(begin, end))
        before = self._checkpointer.record_before_tombstone(log)
        log.apply_tombstone(parse_tombstone(record.term, record.index, record.payload), position,
                            self._journal.place_at(position))
        log.record_before_tombstone = before
        if needs_head_recovery and write.drop_from:
            # A vote or entries that it may have lost are not in the tombstone either, so the
            # group's next replica on this node must not vote before a leader cleared it.
            log.damage.require_head_recovery("it was removed during head recovery")
        self.partition_states[log.group] = PartitionStates(log.group)
        self.compactor.replaced(log.group)
        self.groups.pop(log.group, None)
        return 1 + len(ranges)

    def quarantine(self, group: int, why: str) -> None:
        """Keep a replica quarantined that consensus excluded, across restarts from the next
        checkpoint on.

        Without known damage its log contradicts the leader's, which no repair mends, so the
        quarantine is permanent.  Do nothing if it is quarantined here already, or removed."""
        log = self.table.log(group)
        if not log.quarantined and not log.removed:  # damage is known first; it may be removed
            log.damage.quarantine_permanently(why)

    # ---- a round ---------------------------------------------------------------------------------

    def stage(self, writes: Writes) -> StagedWrite:
        """Place a round's records in the journal, index its entries, and return the write, for the
        disk thread to execute and for ``finish`` after that. O(entries).

        Raise ``EntryTooLarge`` for an entry over ``entry_bytes_max``, ``UnknownGroup`` for a group
        without a log here; change nothing then."""
        table = self.table
        assert writes.sequence > table.staged_sequence, (
            f"round {writes.sequence} after {table.staged_sequence}")
        journal_entries: list[Entry] = []
        for write in writes.groups:
            log = self._logs.get(write.group) or table.log(write.group)
            assert log.incarnation == write.incarnation, f"{write} in {log.incarnation}"
            if (write.drop_from or write.hard_state is not None
                    or write.lifecycle_record is not None):
                log.append_journal_entries(write, journal_entries)
            else:
                journal_entries += write.entries
        # Group commit: the records of all groups are one append and share its sync.
        placed = self._journal.place(journal_entries)
        at = 0
        for write in writes.groups:
            at = self._index(self._logs[write.group], write, placed, at)
        table.staged_sequence = writes.sequence
        return StagedWrite(writes.sequence, self._filesystem, self._journal, placed.parts,
                           records_only=self.relaxed and all(entry.kind == EntryKind.DATA
                                                             for entry in journal_entries))

    def _index(self, log: StoredLog, write: GroupWrite, placed: Placed, at: int) -> int:
        """Add one group's part of a round to its log, indexes and cache.  ``at``: number of its
        first journal entry in the round; return the number behind its last."""
        if write.lifecycle_record is not None:
            at += self._take_lifecycle_record(log, write, placed.positions[at])
        if write.drop_from:
            # Truncation comes first, as in the journal: the round's entries may have the indexes of
            # those that are truncated.
            log.truncate(write.drop_from)
            at += 1
        append, add, framed = log.index.append, self._cache.add, placed.framed
        for entry in write.entries:
            position, size = placed.positions[at], placed.sizes[at]
            append(entry.index, entry.term, position, size)
            if entry.kind == EntryKind.DATA:
                self._index_batch(log, entry)
            elif entry.kind == EntryKind.MEMBERSHIP:
                log.configurations.append((entry.index, joint_quorum.decode(entry.payload)))
            buffers, slot = framed[at]
            add(log, entry, buffers, slot, position + size)
            at += 1
        if write.hard_state is not None:
            log.hard_state = write.hard_state
            at += 1
        return at

    def _index_batch(self, log: StoredLog, entry: Entry) -> None:
        partition = log.partitions.get(entry.partition)
        if partition is None:
            partition = log.partitions[entry.partition] = PartitionIndex(entry.partition, log.group)
        batch = entry.batch
        assert batch is not None
        partition.append(entry.base_offset, batch.count, entry.index, batch.max_timestamp_ms)

    def submitted(self, staged: StagedWrite) -> None:
        """Record that the disk thread has all rounds up to ``staged``, and gets no later one before
        they are durable.

        Optional, and useful for a driver that stages while it writes: entries staged from now on
        carry the end of this write as their durable watermark, which is true when they reach the
        disk.  Without this call their watermark lags by one more write, and recovery can prove
        less."""
        journal = self._journal
        # A write whose sync may wait proves nothing to recovery: its bytes can be lost although
        # later ones are on disk.
        if staged.synced and staged.end > journal.submitted:
            journal.submitted = staged.end

    def fsynced(self, position: int) -> None:
        """Record that the writes before ``position`` whose sync was deferred are synced, so that
        entries placed from now on may say so."""
        self._journal.fsynced = max(self._journal.fsynced, position)

    def finish(self, staged: StagedWrite) -> None:
        """Record that a round is durable, in order of staging: evict cached entries, close full
        segments, and call ``on_durable``.  A round whose write or sync failed is never finished."""
        assert staged.sequence > self._finished_sequence or staged.on_durable is not None, (
            f"round {staged.sequence} finished twice")
        # A failed fsync is not retried: the kernel may have marked the pages clean, and a second
        # fsync would succeed without having written them.  The node stops instead.
        self._finished_sequence = staged.sequence
        self._sealed += self._journal.advance_durable(staged.end, staged.synced)
        if self._cache.bytes > self._cache.bytes_max:
            self._cache.evict(self._journal.durable)
        if staged.on_durable is not None:
            staged.on_durable()

    @property
    def durable_position(self) -> int:
        """Journal position up to which all rounds are durable."""
        return self._journal.durable

    # ---- upkeep ----------------------------------------------------------------------------------

    @property
    def prepare_due(self) -> bool:
        """Return True if the next segment's file should be created now.  O(1)."""
        return self._journal.next_is_due

    @property
    def seals_waiting(self) -> int:
        """Count the full segments that still need their index file, or a new one; any thread.
        O(1)."""
        return len(self._sealed) + len(self.table.indexed.damaged)

    def create_segment_job(self) -> CreateSegmentJob | None:
        """Return a job that creates the next segment, once the active one is half full; None
        before. Execute the job on the thread that executes staged writes.  O(1)."""
        segment = self._journal.prepare_next()
        if segment is None:
            return None
        return CreateSegmentJob(self._filesystem, segment, self._journal.header_of(segment))

    def unallocated_bytes(self) -> int:
        """Return the bytes that the active segment still has to be allocated, because it was
        created on a full disk. Raise ``OSError`` if the file's state cannot be read. O(1)."""
        return self._journal.unallocated_bytes()

    def preallocate(self) -> None:
        """Allocate the active segment's missing bytes, with one system call that writes no data;
        safe while a write runs.  Raise ``OSError``, also when the disk has too little space."""
        self._journal.preallocate()

    def seal_job(self) -> IndexJob | None:
        """Return a job that writes the index file of a full and durable segment, once for each, or
        of one whose index file was found damaged; None = no segment waits.  Any thread may execute
        the job, ``sealed`` takes its result."""
        while self._sealed and self._sealed[0].is_removed:  # since a start found it without one
            del self._sealed[0]
        if self._sealed:
            return index_job(self._filesystem, self._sealed.pop(0), self.table)
        damaged = self.table.indexed.damaged
        while damaged:
            segment = damaged.popleft()
            if segment.is_removed or segment in damaged:
                continue
            return index_job(self._filesystem, segment, self.table)
        return None

    def sealed(self, job: IndexJob) -> None:
        """Take an executed job of ``seal_job``, and add the damage that it found when it read the
        segment once more to ``damage``; records of a cold segment are missing instead, and
        ``repair.take_found`` has them."""
        if job.segment.is_removed:
            self._removal.sealed_meanwhile(job.segment)
        elif job.contents is not None:
            self._removal.add(job.contents)
            if job.too_large is None:
                self._release.add(job.contents)
        if job.damage:
            self.damage.append(Damage("entry", job.segment.path, job.segment.start, -1, 0,
                                      job.damage))
        known = self.table.indexed.find(job.segment.start) if job.unreadable else None
        if known is not None:
            known.unreadable = job.unreadable
            self.repair.lose_unreadable(job.unreadable)

    def seal_failed(self, job: IndexJob) -> None:
        """Have the segment sealed later, because the job found a full disk."""
        self._sealed.insert(0, job.segment)

    def summary_job(self) -> SummaryJob | None:
        """Return a job that reads the summary of an index file which can answer for records in
        memory; None = there is none.  Any thread may execute the job, ``release`` takes its result.

        To be called after each checkpoint, until it returns None.  O(groups in
        ``memory_release.SEGMENTS_EXAMINED_MAX`` segments)."""
        return self._release.next_job()

    def release(self, job: SummaryJob) -> Iterator[None]:
        """Take an executed ``SummaryJob``: let go of the records in memory for which the index file
        answers.  Yield after a part that one turn of the loop may do; the caller exhausts it."""
        return self._release.take(job)

    def removal_job(self) -> RemovalJob | None:
        """Return a job that unlinks the files of segments that nothing needs, and examine the next
        segments; None = none may go now.  Any thread may execute the job, ``removed`` takes its
        result.

        To be called after each checkpoint and after records were trimmed, until it returns None and
        ``is_examining`` is False: a segment goes after all kept checkpoints name it.  Bounded, see
        ``segment_removal``."""
        return self._removal.next_job()

    def removed(self, job: RemovalJob) -> None:
        """Record that the files of an executed job are gone."""
        self._removal.done(job)

    def removal_failed(self) -> None:
        """Allow another job, because the last one found an error of the disk."""
        self._removal.failed()

    @property
    def is_examining(self) -> bool:
        """True if ``removal_job`` has more segments to examine since the last checkpoint."""
        return self._removal.is_examining

    def examine_again(self) -> None:
        """Have ``removal_job`` examine all segments once more if records were trimmed since it did,
        however few."""
        self._removal.examine_again()

    @property
    def unnamed_bytes(self) -> int:
        """Bytes of segments that nothing needs, and whose files go after further checkpoints
        (``require_checkpoints``).  O(1), O(removed segments) after a change."""
        return self._removal.unnamed_bytes + self.cleaner.unnamed_bytes

    def _moved(self, size: int) -> None:
        """Have the journal's segments examined again, because the cleaner's copies of records
        count from now on."""
        self._removal.trimmed(size)
        self._removal.examine_again()

    @property
    def segments_leaving(self) -> int:
        """Count the segments that nothing needs, and whose files exist still."""
        return len(self._journal.leftovers)

    @property
    def removals_waiting(self) -> int:
        """Count the segments that nothing needs and that stay, because the journal has
        ``REMOVED_RANGES_MAX`` removed ranges."""
        return self._removal.waiting

    # ---- reading ---------------------------------------------------------------------------------

    def entries(self, group: int, first: int, last: int) -> tuple[Entry, ...] | None:
        """Return the entries first..last when all are in memory, else None. Raise ``Compacted`` if
        ``first`` is below the log's first index."""
        cached = self._cached(group, first)
        if cached is None:
            return None
        return tuple([cached[index].entry for index in range(first, last + 1)])

    def framed(self, group: int, first: int, last: int) -> list[Buffer] | None:
        """Return the buffers that were written to the journal (header, payload, padding of each
        entry), for a peer frame; None when not all are in memory. Raise ``Compacted`` if ``first``
        is below the log's first index."""
        cached = self._cached(group, first)
        if cached is None:
            return None
        framed: list[Buffer] = []
        for index in range(first, last + 1):
            _, buffers, slot, _ = cached[index]
            framed += buffers[slot:slot + 3]
        return framed

    def _cached(self, group: int, first: int) -> dict | None:
        """Return the group's entries in memory if ``first`` is one of them; then all later entries
        are too.  None otherwise."""
        log = self._logs.get(group) or self.table.log(group)
        if first not in log.cached or first < log.raft_start:
            log.index.position(first)  # raises Compacted
            return None
        return log.cached

    def read_job(self, group: int, first: int, last: int) -> ReadJob:
        """Return a job for a blocking, verified read of the entries first..last; see
        ``LogTable.read_job``."""
        return self.table.read_job(group, first, last)

    def last_within(self, group: int, first_index: int, bytes_max: int) -> int:
        """Return the highest index such that the entries from ``first_index`` to it take at most
        ``bytes_max`` bytes, but at least ``first_index``; see ``LogReader``."""
        return self.table.log(group).index.last_within(first_index, bytes_max)

    def bytes_between(self, group: int, first_index: int, last_index: int) -> int:
        """Return the framed bytes of the entries first..last; see ``LogReader``."""
        log = self._logs.get(group) or self.table.log(group)
        return log.index.bytes_between(first_index, last_index)

    def carried_out(self, group: int, partition: int) -> int:
        """Return the generation of the last compaction by key of a partition that is carried out
        here for good; 0 = none.  O(1)."""
        return self.compactor.carried_out(group, partition)

    def records_kept(self, group: int) -> tuple[int, int]:
        """Return number and framed bytes of the records of a group below its Raft start; of those
        whose places are in index files, about.  O(1).  Raise ``UnknownGroup`` for a group without a
        log here."""
        records = self.table.log(group).records
        return len(records) + records.in_files.count, records.bytes + records.in_files.bytes

    def fetch(self, group: int, partition: int, offset: int, bytes_max: int,
              below_offset: int) -> Fetch:
        """Return whole batches of a partition, from the one that holds ``offset`` on.  See
        ``PartitionReads.fetch``."""
        return self.reads.fetch(group, partition, offset, bytes_max, below_offset)

    def batches(self, group: int, partition: int, offset: int,
                count: int) -> list[tuple[int, int, int, int]]:
        """Return at most ``count`` batches of a partition.  See ``PartitionReads.batches``."""
        return self.reads.batches(group, partition, offset, count)

    def first_at(self, group: int, partition: int, timestamp_ms: int, from_offset: int,
                 below_offset: int) -> int | None:
        """Return the offset at which to begin a search by time.  See ``PartitionReads.first_at``.
        """
        return self.reads.first_at(group, partition, timestamp_ms, from_offset, below_offset)

    def latest_below(self, group: int, partition: int, offset: int) -> int | None:
        """Return the highest timestamp of the batches before ``offset``.  See
        ``PartitionReads.latest_below``."""
        return self.reads.latest_below(group, partition, offset)

    def verify_job(self, group: int, partition: int, offset: int) -> VerifyJob | None:
        """Return a job that checks the batch that holds ``offset``.  See
        ``PartitionReads.verify_job``."""
        return self.reads.verify_job(group, partition, offset)

    def block_job(self, error: BlockNotCached) -> BlockJob:
        """Return a job that reads the block which a look-up lacked.  Any thread may execute it,
        ``block_read`` takes its result; then the look-up is made again."""
        return BlockJob(self.table.indexed.reader(-1, {error.file}), error.file, error.block)

    def block_read(self, job: BlockJob) -> None:
        """Take an executed ``BlockJob``.  Records that it could not read are missing from now on
        (``repair.take_found``): the block may end their batches too early."""
        self.repair.lose_unreadable(job.reader.unreadable)
        self.table.indexed.take(job.reader, job.number, job.block, job.rows)

    # ---- checkpoints -----------------------------------------------------------------------------

    @property
    def checkpoint_due(self) -> bool:
        """True if the driver should make a checkpoint now; see ``Checkpointer.due``."""
        return self._checkpointer.due

    @property
    def checkpoint_bytes(self) -> int:
        """Size of the newest checkpoint that was written since the start; 0 = none was."""
        return self._checkpointer.size

    @property
    def checkpoint_position(self) -> int:
        """Journal position of the newest durable checkpoint; below zero if it has to be replaced at
        once."""
        return self._checkpointer.position

    def checkpoint_job(self, commits: Mapping[int, int], extra: object) -> CheckpointJob:
        """Return a job that writes a checkpoint of the present applied state, for any thread.
        ``commits``: commit index of groups; ``extra``: state of the node.  See
        ``Checkpointer.capture``."""
        return self._checkpointer.capture(commits, extra)

    def checkpointed(self, job: CheckpointJob) -> None:
        """Record that the checkpoint of an executed job is durable; the next job may be made
        then."""
        self._checkpointer.done(job)
        self.compactor.checkpointed()
        self._release.begin()
        self._is_checkpoint_awaited = False

    def checkpoint_failed(self) -> None:
        """Allow another checkpoint job, because the last one found a full disk."""
        self._checkpointer.failed()

    @property
    def checkpoint_frees_space(self) -> bool:
        """True if segments, or the compaction of logs, wait for the next checkpoint."""
        return self._is_checkpoint_awaited or self._removal.unnamed_bytes > 0

    def require_checkpoints(self, frees_space: bool = False) -> None:
        """Make a checkpoint due at once, in two files, so that all kept ones have the present Raft
        starts, and name the segments that are removed now.  ``frees_space``: the compaction of
        logs waits for it."""
        self._is_checkpoint_awaited |= frees_space
        self._checkpointer.replace_damaged()

    def checkpoint_damaged(self) -> None:
        """Make a checkpoint due at once, because one on disk was found damaged."""
        self._checkpointer.replace_damaged()
