"""Index file beside a sealed segment: encoding, writing and reading of its ``SegmentIndex``.

Contract.  ``encode`` and ``decode`` are exact inverses.  An index file is a cache: recovery checks
its CRC and that it is of this very segment (start, seed), and scans the segment otherwise.
"""

from __future__ import annotations

import cbor2

from multiraft.codec import shapes
from multiraft.errors import CorruptEntry
from multiraft.raft import joint_quorum
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.atomic_file import read_envelope, write_envelope
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.index import Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.journal import Segment, index_path
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.types import HardState

INDEX_MAGIC = b"MRINDEX\x01"
INDEX_VERSION = 5
#: The runs of version 4 end before the terms of vote barriers.
INDEX_VERSIONS_READ = (4, INDEX_VERSION)


def write_index_file(filesystem: Filesystem, segment: Segment, index: SegmentIndex) -> None:
    """Write ``index`` as the index file of its sealed segment, atomically and durably.  Blocks.
    Raises ``OSError``."""
    directory, _, name = index_path(segment).rpartition("/")
    write_envelope(filesystem, directory, name, INDEX_MAGIC, INDEX_VERSION, encode(index))


def read_index_file(filesystem: Filesystem, segment: Segment) -> SegmentIndex:
    """Read a segment's index file.  Raise ``CorruptFile`` or ``UnknownFormat``; the caller scans
    the segment instead."""
    path = index_path(segment)
    index = decode(path, read_envelope(filesystem, path, INDEX_MAGIC, *INDEX_VERSIONS_READ))
    if (index.start, index.seed) != (segment.start, segment.seed):
        raise CorruptFile(path, "it is the index of another segment")
    return index


_PAIR = (shapes.UINT, shapes.UINT)
_COPY = (*[shapes.UINT] * 7, shapes.INT_OR_NONE, shapes.UINT, shapes.INT_OR_NONE)
#: Shapes of the records in a group's run; of a run, with the two terms of vote barriers and
#: without; and of the whole file.
_FIRST_RECORDS = (shapes.Optional(_PAIR), [_COPY], shapes.UINT, [_PAIR],
        shapes.UINT, shapes.Optional((shapes.UINT,) * 4), shapes.UINT, shapes.FLAG,
        shapes.Optional((shapes.UINT, shapes.BYTES)), _PAIR)
RECORDS = (*_FIRST_RECORDS, _PAIR)
_FIRST_FIELDS = (shapes.UINT, shapes.UINT, shapes.UINT,
        shapes.Optional((shapes.UINT, shapes.BYTES, shapes.BYTES, [shapes.UINT], [shapes.UINT])),
        [(shapes.UINT, shapes.UINT, shapes.BYTES, shapes.BYTES, shapes.BYTES, [_PAIR])],
        *_FIRST_RECORDS)
_RUN = (*_FIRST_FIELDS, _PAIR)
_HEAD = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.UINT, shapes.INT_OR_NONE, shapes.UINT)


def encode(index: SegmentIndex) -> bytes:
    """Return the body of an index file, with groups and partitions in ascending order."""
    runs = [_pack_run(index.runs[group]) for group in sorted(index.runs)]
    return cbor2.dumps([index.start, index.seed, index.end, index.last_crc, index.first_durable,
                        index.highest_durable, runs])


def decode(path: str, body: bytes) -> SegmentIndex:
    """Return the index in the body of an index file.  Raise ``CorruptFile``, which names
    ``path``."""
    try:
        fields = cbor2.loads(body)
        shapes.check(fields, (*_HEAD, [shapes.ANYTHING]), "the index")
        first = [run for run in fields[-1] if len(run) == len(_FIRST_FIELDS)]
        shapes.check(fields[-1], [_FIRST_FIELDS if first else _RUN], "the index")
        start, seed, end, last_crc, first_durable, highest_durable, runs = fields
        unpacked = {run.group: run for run in map(_unpack_run, runs)}
    except (cbor2.CBORDecodeError, CorruptEntry, ValueError, TypeError) as error:
        raise CorruptFile(path, f"malformed ({error})") from error
    return SegmentIndex(start, seed, end, last_crc, first_durable, highest_durable, unpacked)


def _pack_run(run: SegmentRun) -> list:
    partitions = [run.partitions[partition].pack() for partition in sorted(run.partitions)]
    return [run.group, run.incarnation, run.truncated_from,
            run.index.pack() if run.index is not None else None, partitions, *pack_records(run)]


def pack_records(run: SegmentRun) -> list:
    """Return the fields of a run apart from its numbers, entries and batches."""
    return [list(run.hard_state) if run.hard_state is not None else None,
            list(map(list, run.copies)), run.cleared_position,
            list(map(list, run.cleared_ranges)), run.head_recovery_truncate_position,
            *_pack_lifecycle_records(run)]


def _pack_lifecycle_records(run: SegmentRun) -> list:
    left, forced = run.tombstone, run.forced_recovery
    return [[*left.hard_state, left.vote_barrier_index, left.incarnation] if left else None,
            run.tombstone_position, run.removed,
            [forced.incarnation, joint_quorum.encode(forced.configuration)] if forced else None,
            list(run.forced_recovery_at),
            [left.vote_barrier_term if left else 0, run.forced_recovery_term]]


def _unpack_run(fields: list) -> SegmentRun:
    group, incarnation, truncated_from, index, partitions, *records = fields
    unpacked = [PartitionIndex.unpack(partition, group) for partition in partitions]
    return unpack_run(group, incarnation, truncated_from,
                      GroupIndex.unpack(index) if index is not None else None,
                      {partition.partition: partition for partition in unpacked}, records)


def unpack_run(group: int, incarnation: int, truncated_from: int, index: GroupIndex | None,
               partitions: dict[int, PartitionIndex], records: list) -> SegmentRun:
    """Return a run with the fields that ``pack_records`` returned.  Raise ``ValueError``,
    ``TypeError`` or ``CorruptEntry`` for other fields."""
    hard_state, copies, cleared_position, cleared_ranges, head_position, *later = records
    left, tombstone_position, removed, forced, forced_recovery_at, *terms = later
    barrier_term, forced_recovery_term = terms[0] if terms else (0, 0)
    return SegmentRun(
        group, incarnation, truncated_from, index, partitions,
        HardState(*hard_state) if hard_state is not None else None,
        copies=[Copy(*copy) for copy in copies], cleared_position=cleared_position,
        cleared_ranges=tuple((begin, end) for begin, end in cleared_ranges),
        head_recovery_truncate_position=head_position,
        tombstone=(Tombstone(HardState(left[0], left[1]), left[2], left[3], barrier_term)
                   if left else None),
        tombstone_position=tombstone_position, removed=removed,
        forced_recovery=(ForcedRecovery(forced[0], joint_quorum.decode(forced[1]))
                         if forced else None),
        forced_recovery_at=tuple(forced_recovery_at), forced_recovery_term=forced_recovery_term)
