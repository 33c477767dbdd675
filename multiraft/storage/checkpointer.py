"""Checkpoints of one store: when the next one is due, and what it has to contain.

Contract.  ``due`` -> ``capture`` -> (a thread executes the job) -> ``done`` or ``failed``; one
checkpoint at a time.  Runs on the loop and touches memory only.  Bytes of a checkpoint:
``checkpoint.py``.

Invariant.  A checkpoint at journal position P contains nothing that a crash could take back: only
records before P, which are synced, and only entries that are committed and on this disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from multiraft.partitions.state import PartitionStates
from multiraft.storage.checkpoint import (
    INSTALLED_KEPT,
    Checkpoint,
    CheckpointJob,
    CompactedEntry,
    GroupRecord,
    RaftStart,
    ReplicaKey,
)
from multiraft.storage.cold.cold_files import ColdNames
from multiraft.storage.config import StorageConfig
from multiraft.storage.log_table import LogTable
from multiraft.storage.removable_segments import CheckpointedStart, KeptCheckpoint
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.repair.repair import LocalRepair
from multiraft.storage.stored_log import StoredLog

#: A journal position behind which every journal has grown enough for a checkpoint.
_LONG_AGO = -(1 << 64)

#: Of a replica that a checkpoint does not know.
_UNKNOWN = RaftStart(1, 0)


class Durable(NamedTuple):
    """Part of a durable checkpoint that later decisions depend on."""

    position: int
    starts: Mapping[ReplicaKey, RaftStart]
    removed: RemovedRanges
    cold: ColdNames


class Checkpointer:
    """Schedule and contents of a store's checkpoints."""

    def __init__(self, table: LogTable, repair: LocalRepair, directory: str,
                 config: StorageConfig, newest: Checkpoint):
        """``newest``: the newest checkpoint on disk."""
        self._table = table
        self._repair = repair
        self._directory = directory
        self._config = config
        self._position = newest.position
        self._size = 0  # bytes of the newest one
        self._in_flight = False
        self._write_copy = False  # the next one is written in two files
        #: The kept checkpoints that are known, oldest first.  A start reads the newest one alone,
        #: so those before it are unknown until that many were written.
        self._kept = [Durable(newest.position, newest.starts(), newest.removed, newest.cold)]
        self._kept_count = max(config.checkpoints_kept, INSTALLED_KEPT)

    @property
    def position(self) -> int:
        """Journal position of the newest checkpoint that is durable; below zero when that has to be
        replaced at once."""
        return self._position

    @property
    def newest(self) -> Durable:
        """The newest durable checkpoint, also if it has to be replaced."""
        return self._kept[-1]

    def applied_in_all(self, log: StoredLog) -> int:
        """Return the index up to which both kept checkpoints have applied a log, whichever of them
        the next start finds intact; 0 = one of them does not know the replica, or was not read."""
        if not self._all_known:
            return 0
        key = _key(log)
        return min(kept.starts.get(key, _UNKNOWN).applied for kept in self._kept)

    @property
    def _all_known(self) -> bool:
        return len(self._kept) == self._kept_count

    def all_remove(self, start: int) -> bool:
        """Return True if all kept checkpoints name the segment that begins at ``start`` as removed,
        so that no start reads it.  O(log ranges)."""
        return self._all_known and all(kept.removed.covers(start) for kept in self._kept)

    def all_name(self, number: int) -> bool:
        """Return True if all kept checkpoints name a cold segment, so that each start reads it.
        O(log segments)."""
        return self._all_known and all(kept.cold.has(number) for kept in self._kept)

    def none_names(self, number: int) -> bool:
        """Return True if no kept checkpoint names a cold segment, so that no start reads it.
        O(log segments)."""
        return self._all_known and not any(kept.cold.has(number) for kept in self._kept)

    def kept(self) -> list[KeptCheckpoint]:
        """Return what a start needs of the journal with each of the kept checkpoints; empty if one
        of them was not read.  O(groups)."""
        return [_needs_of(kept) for kept in self._kept] if self._all_known else []

    def newest_twice(self) -> list[KeptCheckpoint]:
        """Return what a start needs of the journal with the newest checkpoint, as if there were two
        of it.  O(groups)."""
        return [_needs_of(self.newest)] * 2

    @property
    def size(self) -> int:
        """Bytes of the newest checkpoint that was written since the start; 0 = none was."""
        return self._size

    @property
    def due(self) -> bool:
        """Return True if the journal grew enough since the newest checkpoint, or repair waits for
        one, and none is being written.  O(1), O(groups with forgotten entries) while there are any.
        """
        # Only synced bytes count: a checkpoint must not contain records whose sync still waits.
        grown = self._table.journal.fsynced - self._position
        enough = max(self._config.checkpoint_bytes,
                     self._config.checkpoint_growth_factor * self._size)
        is_due = grown >= enough or bool(self._repair.applied_past_forgotten())
        return is_due and not self._in_flight

    def require_copy(self) -> None:
        """Require that the next checkpoint is written in two files, because a snapshot was
        installed. No other file describes that group's state, so damage of one file must not lose
        it."""
        self._write_copy = True

    def replace_damaged(self) -> None:
        """Make a checkpoint due at once, in two files, because one on disk was found damaged: with
        the one before it damaged as well, the next start would know of no installed snapshot."""
        self._write_copy, self._position = True, _LONG_AGO

    def capture(self, commits: Mapping[int, int], extra: object) -> CheckpointJob:
        """Return a job that writes the applied state of every group as it is now. No other job may
        be captured until ``done`` or ``failed`` is called.

        ``commits``: commit index of each group that has one; ``extra``: CBOR-able state of the
        node, not to be changed afterwards. O(groups + partitions of changed groups)."""
        assert not self._in_flight, "one checkpoint at a time"
        self._in_flight = True
        journal = self._table.journal
        records: dict[int, GroupRecord | bytes] = {}
        starts: dict[ReplicaKey, RaftStart] = {}
        kept = self._config.checkpoints_kept
        for group in sorted(self._table.logs):
            log = self._table.logs[group]
            if self.is_tombstone_durable(log):
                log.record_before_tombstone = b""
                if log.snapshot_position:
                    kept = max(kept, INSTALLED_KEPT)
                records[group] = self._record(log, commits.get(group, 0))
                starts[_key(log)] = RaftStart(
                    log.raft_start, self._table.partition_states[group].applied_index,
                    max(log.tombstone_position, log.snapshot_position))
            elif log.record_before_tombstone:
                # The tombstone is not durable: after a crash the replica exists, as recorded before
                # it.
                records[group] = log.record_before_tombstone
        job = CheckpointJob(self._table.filesystem, self._directory, journal.fsynced,
                            journal.removed_ranges(), journal.cold.named(), records, extra, kept)
        job.starts = starts
        job.write_copy, job.past_forgotten = self._write_copy, self._repair.applied_past_forgotten()
        if journal.fsynced < journal.durable:
            # The segment of the last written bytes: the newest segment may have no file yet, and
            # those before that are synced before another begins.
            job.sync_first = journal.segment_of(journal.durable - 1).path
        return job

    def is_tombstone_durable(self, log: StoredLog) -> bool:
        """Return True unless the log's tombstone is still being written.  O(1)."""
        position = log.tombstone_position
        return not position or position < self._table.journal.fsynced

    def record_before_tombstone(self, log: StoredLog) -> GroupRecord | bytes:
        """Return the record of a replica as it is now, for checkpoints until the tombstone that is
        about to be staged is durable: after a crash before that the replica exists.  Empty if there
        is none.  That of an earlier replica whose tombstone is not durable either: the journal has
        all that came later.  O(partitions)."""
        if not self.is_tombstone_durable(log):
            return log.record_before_tombstone
        return self._record(log, 0) if not log.removed else b""

    def failed(self) -> None:
        """Allow the next job, because the last one found a full disk; the checkpoint before it
        stays."""
        self._in_flight = False

    def done(self, job: CheckpointJob) -> None:
        """Take a job that was executed: its checkpoint is durable, and the next one may be
        captured.  O(groups)."""
        self._in_flight = False
        # Still required when the job was written once: the snapshot came after its capture.
        self._write_copy &= not job.write_copy
        self._repair.checkpointed(job.past_forgotten)
        self._position, self._size = job.position, job.size
        newest = Durable(job.position, job.starts, job.removed, job.cold)
        if job.position == self._kept[-1].position:  # the file replaced the last one
            self._kept.pop()
        self._kept += [newest] * (1 + job.write_copy)
        del self._kept[:-self._kept_count]
        for group, encoded in job.encoded.items():
            log = self._table.logs.get(group)
            if log is not None:
                log.record = encoded
                key = _key(log)
                log.raft_start_recorded = min(
                    kept.starts.get(key, _UNKNOWN).first_index
                    for kept in self._kept) if self._all_known else 1

    def _record(self, log: StoredLog, commit: int) -> GroupRecord | bytes:
        """Return the group's record, encoded already when nothing changed since the last one."""
        states, damage = self._table.partition_states[log.group], log.damage
        # What is committed but not on this disk yet stays out: a crash may bring back what stood
        # there before, and the checkpoint would call it committed.
        commit = max(min(commit, states.applied_index), log.commit)
        log.records.drop_unneeded(log.raft_start)
        configuration_index, configuration = log.configuration_at(states.applied_index)
        key = (log.incarnation, configuration_index, configuration, log.hard_state,
               log.index.first_index, commit, damage.why, states.applied_index,
               tuple(damage.missing.items()), damage.state, damage.cleared_position,
               log.vote_barrier_index, log.removed, log.tombstone_position, log.group_incarnation,
               log.snapshot_position, log.vote_barrier_term, log.records.terms,
               tuple(log.records.missing.items()), log.records.uncopied.ranges,
               log.records.unneeded.ranges, log.records.repaired.ranges,
               log.records.repaired.known_damage, log.installed_needed(),
               compacted := _compacted(log, states))
        if key == log.record_key and log.record:
            return log.record
        log.record_key, log.record = key, b""
        states.forget_expired()
        return GroupRecord(
            log.group,
            log.incarnation,
            configuration,
            log.hard_state,
            log.index.first_index,
            log.index.prev_term,
            commit,
            damage.why,
            states.snapshot(),
            tuple([(index, entry.position) for index, entry in damage.missing.items()]
                  + [(index, record.position) for index, record in log.records.missing.items()]),
            damage.needs_head_recovery,
            damage.is_permanent,
            damage.cleared_position,
            tuple([(begin.journal_offset, end.journal_offset)
                   for begin, end in damage.cleared_ranges]),
            configuration_index,
            log.vote_barrier_index,
            log.removed,
            log.tombstone_position,
            log.group_incarnation,
            log.snapshot_position,
            log.vote_barrier_term,
            log.records.terms,
            log.installed_needed(),
            log.records.uncopied.ranges,
            log.records.unneeded.ranges,
            log.records.repaired.ranges,
            log.records.repaired.known_damage,
            compacted,
        )


def _compacted(log: StoredLog, states: PartitionStates) -> tuple[CompactedEntry, ...]:
    """Return what compactions have carried out in the partitions that still exist."""
    return tuple([(partition, *part) for partition, part in sorted(log.records.compacted.items())
                  if not states.is_deleted(partition)])


def _needs_of(kept: Durable) -> KeptCheckpoint:
    return KeptCheckpoint(kept.position, {
        key.group: CheckpointedStart(key.incarnation, start.first_index, start.position)
        for key, start in kept.starts.items()})


def _key(log: StoredLog) -> ReplicaKey:
    return ReplicaKey(log.group, log.incarnation, log.tombstone_position)
