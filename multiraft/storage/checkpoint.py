"""Checkpoints: the applied state of all groups in one file, so that recovery replays only the rest.

Contract.  Captured on the loop (``checkpointer.py``), encoded in chunks and written by a thread,
durable under its name when ``execute`` returns; the last two are kept.  A damaged one is skipped
for the one before it, and reported.  Records of groups that did not change since the last
checkpoint are not encoded again.

Invariant.  An installed snapshot (a record's ``snapshot_position``), which replaces a log, is in
two intact checkpoints before it is acknowledged, and again before a start is over: the journal does
not have it, and what was acknowledged must not depend on one file.  A checkpoint without an intact
predecessor has a copy (``COPY``), which counts as the predecessor.

Theory.  A checkpoint may be ahead of the journal's durable end in hard states only (a term or vote
that was staged): that is safe, because such a decision was made and no message about it was sent.
The position it names was durable when it was captured, so a journal that now ends below it has lost
durable bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import cbor2

from multiraft.codec import shapes
from multiraft.errors import CodecError
from multiraft.partitions.state import PartitionStates
from multiraft.storage import chunked_cbor
from multiraft.storage.atomic_file import read_envelope, replace_file, write_envelope
from multiraft.storage.cold.cold_files import ColdNames
from multiraft.storage.cold.cold_segment import COLD_NUMBER_MAX, ColdName
from multiraft.storage.disk_space import is_full
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem, ReadableFiles
from multiraft.storage.removed_ranges import RemovedRanges
from multiraft.storage.strays import (
    CHECKPOINT_PREFIX,
    COPY,
    JOURNAL_POSITION_MAX,
    SET_ASIDE,
    checkpoint_position,
)
from multiraft.storage.uncopied_ranges import IndexRange, InstalledRange
from multiraft.types import Configuration, HardState

CHECKPOINT_MAGIC = b"MRCKPT\x00\x01"
CHECKPOINT_VERSION = 4
#: Version 1 has no field behind the tail in its group records, version 2 all but the last; version
#: 3 has them all, and an earlier tail.
CHECKPOINT_VERSIONS_READ = (1, 2, 3, CHECKPOINT_VERSION)

#: Checkpoints that must contain an installed snapshot.
INSTALLED_KEPT = 2


#: Shapes of a group's record: the fields of version 1, those that came with 2, and all.
_FIRST_FIELDS = (shapes.UINT, shapes.UINT, ([shapes.UINT],) * 3, (shapes.UINT, shapes.UINT),
                 shapes.UINT, shapes.UINT, shapes.UINT, shapes.TEXT, shapes.ANYTHING)
_SECOND_FIELDS = (
    *_FIRST_FIELDS,
    [(shapes.UINT, shapes.INT_OR_NONE)],
    shapes.FLAG,
    shapes.FLAG,
    shapes.UINT,
    [(shapes.UINT, shapes.UINT)],
    shapes.UINT,
    shapes.UINT,
    shapes.FLAG,
    shapes.UINT,
    shapes.UINT,
    shapes.UINT,
)
_RECORD = (*_SECOND_FIELDS, shapes.UINT)
#: Of a log with records below its Raft start.
_RECORD_WITH_TERMS = (*_RECORD, [(shapes.UINT, shapes.UINT)])
#: Of a log behind an installed snapshot that needs records of indexes below it.
_RECORD_WITH_RANGES = (*_RECORD_WITH_TERMS, [(shapes.UINT,) * 4], [(shapes.UINT, shapes.UINT)])
#: Of a log with indexes that were missing once.
_RECORD_WITH_UNNEEDED = (*_RECORD_WITH_RANGES, [(shapes.UINT, shapes.UINT)])
#: Of a log with batches that were lost once, and copied.
_RECORD_WITH_REPAIRED = (*_RECORD_WITH_UNNEEDED, (shapes.UINT, [(shapes.UINT, shapes.UINT)]))
#: Of a log with partitions that compaction by key was carried out in.
_RECORD_WITH_COMPACTED = (*_RECORD_WITH_REPAIRED,
                          [(shapes.UINT, shapes.UINT, shapes.UINT, [shapes.UINT])])
_SHAPES = {len(shape): shape for shape in (_FIRST_FIELDS, _SECOND_FIELDS, _RECORD_WITH_TERMS,
                                           _RECORD_WITH_RANGES, _RECORD_WITH_UNNEEDED,
                                           _RECORD_WITH_REPAIRED, _RECORD_WITH_COMPACTED)}
#: What the fields behind the first ones are where there are none.
_LATER_FIELDS: tuple[Any, ...] = ((), False, False, 0, (), 0, 0, False, 0, 0, 0, 0, (), (), (), (),
                                 (0, ()), ())
_FILE = (shapes.UINT, shapes.UINT, [shapes.BYTES], shapes.ANYTHING)
#: Of a journal of which segments behind the first were removed.
_FILE_WITH_RANGES = (*_FILE, [(shapes.UINT, shapes.UINT)])
#: Of a node that has, or had, cold segments.
_FILE_WITH_COLD = (*_FILE_WITH_RANGES, (shapes.UINT, [(shapes.UINT,) * len(ColdName._fields)]))
_FILES = {len(shape): shape for shape in (_FILE_WITH_RANGES, _FILE_WITH_COLD)}


#: Partition, and the fields of a ``CompactedPart``.
CompactedEntry = tuple[int, int, int, tuple[int, ...]]


class GroupRecord(NamedTuple):
    """State of one group's log and partitions in a checkpoint."""

    group: int
    incarnation: int
    configuration: Configuration
    hard_state: HardState
    first_index: int
    prev_term: int
    commit: int
    quarantined: str
    states: Any  # ``PartitionStates.snapshot()``; None in a ``Checkpoint``, which has them restored
    missing: tuple[tuple[int, int], ...] = ()  # (index, journal position of its damage)
    needs_head_recovery: bool = False
    permanently_quarantined: bool = False
    cleared_position: int = 0  # journal position of the last LIFT
    cleared_ranges: tuple[tuple[int, int], ...] = ()  # damage that it cleared
    configuration_index: int = 0  # of the entry that says who the members are
    vote_barrier_index: int = 0  # see ``replica_records.Tombstone``
    removed: bool = False  # only a tombstone is left of the replica
    tombstone_position: int = 0  # journal position of the last tombstone
    group_incarnation: int = 0  # of the group if it differs from the log's
    snapshot_position: int = 0  # of an installed snapshot: earlier segments do not concern the log
    vote_barrier_term: int = 0  # see ``replica_records.Tombstone``
    #: (first index, term) from the first record up to ``first_index``, the Raft start: see
    #: ``record_store``.  On disk only if there are records.
    record_terms: tuple[tuple[int, int], ...] = ()
    #: Ranges of indexes that installed snapshots stand for.  On disk, with ``uncopied``, only if
    #: there are some of either at or above the first of ``record_terms``.
    installed: tuple[InstalledRange, ...] = ()
    uncopied: tuple[IndexRange, ...] = ()  # ranges of indexes whose records are not copied yet
    #: Ranges of indexes that were missing once and have no record.  On disk, with the three fields
    #: before, only if there are some.
    unneeded: tuple[IndexRange, ...] = ()
    #: ``RepairedIndexes``, and their ``known_damage``.  On disk, with the four fields before, only
    #: if there are some.
    repaired: tuple[IndexRange, ...] = ()
    known_damage: int = 0
    #: (partition, generation, ``up_to``, sources) of ``CompactedPart``.  On disk, with the five
    #: fields before, only if there are some.
    compacted: tuple[CompactedEntry, ...] = ()

    def encode(self) -> bytes:
        assert self.states is not None, "a record that was read has no states left to write"
        has_copies = bool(self.repaired or self.compacted)
        has_later = bool(self.unneeded or has_copies)
        # Tuples and lists are the same bytes, and tuples are encoded in half the time.
        return cbor2.dumps(
            (
                self.group,
                self.incarnation,
                tuple(self.configuration),
                tuple(self.hard_state),
                self.first_index,
                self.prev_term,
                self.commit,
                self.quarantined,
                self.states,
                self.missing,
                self.needs_head_recovery,
                self.permanently_quarantined,
                self.cleared_position,
                self.cleared_ranges,
                self.configuration_index,
                self.vote_barrier_index,
                self.removed,
                self.tombstone_position,
                self.group_incarnation,
                self.snapshot_position,
                self.vote_barrier_term,
                *((self.record_terms,) if self.record_terms or has_later else ()),
                *((self.installed, self.uncopied)
                  if self.installed or self.uncopied or has_later else ()),
                *((self.unneeded,) if has_later else ()),
                *(((self.known_damage, self.repaired),) if has_copies else ()),
                *((self.compacted,) if self.compacted else ()),
            )
        )

    @classmethod
    def decode(cls, data: bytes) -> GroupRecord:
        """Return the record that ``encode`` made these bytes of.  Raise ``ValueError`` or
        ``TypeError`` for other bytes."""
        fields = cbor2.loads(data)
        shapes.check(fields, _SHAPES.get(len(fields), _RECORD), "a group's record")
        (group, incarnation, configuration, hard_state, first_index, prev_term, commit,
         quarantined, states, *later) = fields
        completed: list[Any] = later + list(_LATER_FIELDS[len(later):])
        (
            missing,
            needs_head_recovery,
            permanently_quarantined,
            cleared_position,
            cleared_ranges,
            configuration_index,
            vote_barrier_index,
            removed,
            tombstone_position,
            group_incarnation,
            snapshot_position,
            vote_barrier_term,
            record_terms,
            installed,
            uncopied,
            unneeded,
            (known_damage, repaired),
            compacted,
        ) = completed
        if record_terms and not _ascend([0, *(first for first, _ in record_terms), first_index]):
            raise ValueError("the terms of records do not ascend up to the Raft start")
        ranges = [InstalledRange(*map(int, each)) for each in installed]
        _check_ranges(ranges, uncopied, record_terms, first_index)
        for each, what in ((unneeded, "without records"), (repaired, "with copies")):
            if not _ascend([0, *chain.from_iterable((first, last + 1) for first, last in each)]):
                raise ValueError(f"ranges of indexes {what} do not ascend")
        voters, learners, outgoing = (tuple(map(int, nodes)) for nodes in configuration)
        return cls(
            int(group), int(incarnation), Configuration(voters, learners, outgoing),
            HardState(*map(int, hard_state)), int(first_index), int(prev_term), int(commit),
            str(quarantined), states,
            tuple((int(index), int(position)) for index, position in missing),
            bool(needs_head_recovery), bool(permanently_quarantined), int(cleared_position),
            tuple((int(begin), int(end)) for begin, end in cleared_ranges),
            int(configuration_index), int(vote_barrier_index), bool(removed),
            int(tombstone_position), int(group_incarnation), int(snapshot_position),
            int(vote_barrier_term),
            tuple((int(first), int(term)) for first, term in record_terms), tuple(ranges),
            tuple((int(first), int(last)) for first, last in uncopied),
            tuple((int(first), int(last)) for first, last in unneeded),
            tuple((int(first), int(last)) for first, last in repaired), int(known_damage),
            tuple((int(partition), int(generation), int(up_to), tuple(map(int, sources)))
                  for partition, generation, up_to, sources in compacted))


def _check_ranges(installed: Sequence[InstalledRange], uncopied: Sequence[IndexRange],
                  record_terms: Sequence[tuple[int, int]], first_index: int) -> None:
    """Raise ``ValueError`` if installed or uncopied ranges contradict each other, the terms of the
    records or the Raft start."""
    if not installed and not uncopied:
        return
    for ranges in ([(first, last) for _, first, last, _ in installed], uncopied):
        ends = [0, *chain.from_iterable((first, last + 1) for first, last in ranges), first_index]
        if ends != sorted(ends) or any(last < first for first, last in ranges):
            raise ValueError("ranges of indexes do not ascend up to the Raft start")
    positions = [each.position for each in installed]
    if positions != sorted(positions):
        raise ValueError("the positions of installed ranges do not ascend")
    if not record_terms or (uncopied and uncopied[0][0] < record_terms[0][0]):
        raise ValueError("uncopied indexes are below the terms of the records")


def _ascend(indexes: list[int]) -> bool:
    return all(a < b for a, b in zip(indexes, indexes[1:]))


class ReplicaKey(NamedTuple):
    """Name of one replica of a group on this node, of several one after the other."""

    group: int
    incarnation: int
    tombstone_position: int  # of the replica before it


class RaftStart(NamedTuple):
    """Raft start of a replica in a checkpoint, and its applied index."""

    first_index: int
    applied: int
    position: int = 0  # of its tombstone or snapshot: nothing of the log stands before


@dataclass(slots=True)
class Checkpoint:
    """Contents of one checkpoint: the record of each group, and the state of the node."""

    position: int = 0  # everything of the journal before it was durable
    removed: RemovedRanges = RemovedRanges()  # segments that a start does not read
    cold: ColdNames = ColdNames()  # cold segments that it reads
    records: dict[int, GroupRecord] = field(default_factory=dict)
    partition_states: dict[int, PartitionStates] = field(default_factory=dict)
    extra: Any = None

    def installed(self) -> dict[int, int]:
        """Return group -> ``snapshot_position`` of the groups whose log begins with an installed
        snapshot.  O(groups)."""
        return {group: record.snapshot_position for group, record in self.records.items()
                if record.snapshot_position}

    def starts(self) -> dict[ReplicaKey, RaftStart]:
        """Return Raft start and applied index of each replica.  O(groups)."""
        return {ReplicaKey(record.group, record.incarnation, record.tombstone_position):
                RaftStart(record.first_index, self.partition_states[record.group].applied_index,
                          max(record.tombstone_position, record.snapshot_position))
                for record in self.records.values()}

    def applied(self) -> dict[tuple[int, int], int]:
        """Return (group, incarnation) -> applied index of all groups."""
        return {
            (record.group, record.incarnation): self.partition_states[record.group].applied_index
            for record in self.records.values()
        }


class CheckpointJob:
    """Write one checkpoint.  ``encoded`` is, afterwards, each group's record for the next job."""

    __slots__ = ("position", "encoded", "size", "sync_first", "write_copy", "past_forgotten",
                 "starts", "removed", "cold", "_filesystem", "_directory", "_records", "_extra",
                 "_kept")

    def __init__(self, filesystem: Filesystem, directory: str, position: int,
                 removed: RemovedRanges, cold: ColdNames,
                 records: dict[int, GroupRecord | bytes], extra: object, kept: int):
        self.position = position
        self.encoded: dict[int, bytes] = {}
        self.size = 0
        self.sync_first = ""  # a file with entries of this checkpoint that are not synced yet
        self.write_copy = False  # the previous checkpoint lacks an installed snapshot
        # Entries that repair waits for (``LocalRepair.applied_past_forgotten``).
        self.past_forgotten: dict[int, int] = {}
        self.starts: dict[ReplicaKey, RaftStart] = {}  # of each replica that has a record
        self._filesystem = filesystem
        self._directory = directory
        self.removed = removed
        self.cold = cold
        self._records = records
        self._extra = extra
        self._kept = kept

    def execute(self) -> None:
        """Write the checkpoint durably, with its copy if required, and remove the oldest ones
        beyond those kept.  Block, on any thread; set ``encoded`` and ``size``.

        Raises ``OSError``; then the file has its old contents, or the new ones without a copy
        yet."""
        # With relaxed durability the last write may be unsynced; a checkpoint must not be durable
        # before the entries that its applied state contains.
        if self.sync_first:
            file = self._filesystem.open(self.sync_first)
            try:
                file.sync()
            finally:
                file.close()
        for group in sorted(self._records):
            record = self._records[group]
            self.encoded[group] = record if isinstance(record, bytes) else record.encode()
        start, ranges = self.removed
        later: list[list] = [[list(each) for each in ranges]]
        if self.cold.next_number:
            later.append([self.cold.next_number, [list(each) for each in self.cold.names]])
        body = chunked_cbor.dumps([self.position, start, list(self.encoded.values()), self._extra,
                                   *(later if ranges or len(later) > 1 else [])])
        name = checkpoint_name(self.position)
        for ending in ("", COPY) if self.write_copy else ("",):
            self.size = write_envelope(self._filesystem, self._directory, name + ending,
                                       CHECKPOINT_MAGIC, CHECKPOINT_VERSION, body)
        for name in checkpoint_names(self._filesystem, self._directory)[:-self._kept]:
            self._filesystem.remove(f"{self._directory}/{name}")


def checkpoint_name(position: int) -> str:
    """Return the file name of a checkpoint; names sort like positions."""
    return f"{CHECKPOINT_PREFIX}{position:020d}"


def checkpoint_names(filesystem: Filesystem, directory: str) -> list[str]:
    """Return the names of finished checkpoints, oldest first, a copy before the one that it was
    made of."""
    names = [name for name in filesystem.list(directory) if checkpoint_position(name) is not None]
    return sorted(names, key=lambda name: (name.removesuffix(COPY), not name.endswith(COPY)))


def read_checkpoint(filesystem: ReadableFiles, path: str) -> Checkpoint:
    """Read and check a checkpoint. Raise ``CorruptFile`` for a damaged one, ``UnknownFormat`` for
    one of a later release."""
    body = read_envelope(filesystem, path, CHECKPOINT_MAGIC, *CHECKPOINT_VERSIONS_READ)
    try:
        fields = cbor2.loads(body)
        shapes.check(fields, _FILES.get(len(fields), _FILE), "the checkpoint")
        position, journal_start, encoded, extra, *later = fields
        ranges = [tuple(each) for each in later[0]] if later else []
        cold = _cold_names(*later[1]) if len(later) > 1 else ColdNames()
        if ranges and not _ascend(
                [journal_start, *chain.from_iterable(ranges), JOURNAL_POSITION_MAX]):
            raise ValueError("the removed ranges do not ascend from the journal's start")
        records: dict[int, GroupRecord] = {}
        partition_states: dict[int, PartitionStates] = {}
        for data in encoded:
            # Of one group at a time: what is kept of its states lies close together in memory, and
            # the next group gets the memory of the rest.
            record = GroupRecord.decode(data)
            partition_states[record.group] = PartitionStates.restore(record.states)
            records[record.group] = record._replace(states=None)
        return Checkpoint(position, RemovedRanges(journal_start, tuple(ranges)), cold, records,
                          partition_states, extra)
    except (cbor2.CBORDecodeError, CodecError, ValueError, TypeError) as error:
        raise CorruptFile(path, f"malformed ({error})") from error


def _cold_names(next_number: int, rows: list[list[int]]) -> ColdNames:
    names = tuple(ColdName(*row) for row in rows)
    if not _ascend([-1, *(name.number for name in names), next_number]) or (
            next_number > COLD_NUMBER_MAX):
        raise ValueError("the numbers of cold segments do not ascend")
    return ColdNames(next_number, names)


def newest_checkpoint(filesystem: Filesystem,
                      directory: str) -> tuple[Checkpoint, list[CorruptFile]]:
    """Return the newest intact checkpoint, or an empty one, and the errors of damaged ones, which
    are set aside under another name.

    If no other checkpoint has its installed snapshots, write a copy of it first, unless the disk is
    full. Raises ``UnknownFormat`` for a checkpoint of a later release, ``OSError`` if the disk
    cannot be read."""
    damaged: list[CorruptFile] = []
    for name in reversed(checkpoint_names(filesystem, directory)):
        found = _intact(filesystem, directory, name, damaged)
        if found is not None:
            damaged += _keep_copy(filesystem, directory, name, found)
            return found, damaged
    return Checkpoint(), damaged


def _intact(filesystem: Filesystem, directory: str, name: str,
            damaged: list[CorruptFile]) -> Checkpoint | None:
    """Return a checkpoint if it is intact and has the name of its position.  Otherwise set it
    aside, add the error to ``damaged`` and return None."""
    path = f"{directory}/{name}"
    try:
        found = read_checkpoint(filesystem, path)
        if found.position != checkpoint_position(name):
            raise CorruptFile(path, f"it is the checkpoint of position {found.position}")
        return found
    except CorruptFile as error:
        damaged.append(error)
        filesystem.rename(path, path + SET_ASIDE)
        return None


def _keep_copy(filesystem: Filesystem, directory: str, name: str,
              newest: Checkpoint) -> list[CorruptFile]:
    """Write a copy of the newest checkpoint if it has installed snapshots that no other intact
    checkpoint has.  Return the errors of damaged ones.

    On a full disk there is no copy: a node that is full has to start."""
    damaged: list[CorruptFile] = []
    installed = newest.installed()
    if not installed:
        return damaged
    for other in checkpoint_names(filesystem, directory):
        if other != name:
            found = _intact(filesystem, directory, other, damaged)
            if found is not None and found.installed() == installed:
                return damaged
    file = filesystem.open(f"{directory}/{name}")
    try:
        data = file.read(filesystem.size(f"{directory}/{name}"), 0)
    finally:
        file.close()
    second = name.removesuffix(COPY) if name.endswith(COPY) else name + COPY
    try:
        replace_file(filesystem, directory, second, [data])
    except OSError as error:
        if not is_full(error):
            raise
    return damaged
