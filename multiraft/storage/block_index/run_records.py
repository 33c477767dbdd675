"""Records of a group in index files: its part of a segment apart from entries and batches.

Contract.  ``pack_records`` and ``unpack_run`` are exact inverses; ``RECORDS`` is the shape of the
fields, ``FIRST_RECORDS`` that of version 4.
"""

from __future__ import annotations

from multiraft.codec import shapes
from multiraft.raft import joint_quorum
from multiraft.raft.replica_records import ForcedRecovery, Tombstone
from multiraft.storage.index import Copy, GroupIndex, PartitionIndex
from multiraft.storage.journal.segment_index import SegmentRun
from multiraft.types import HardState

#: The first bytes of an index file of each version; the version (u32) follows.
INDEX_MAGIC = b"MRINDEX\x01"

PAIR = (shapes.UINT, shapes.UINT)
_COPY = (*[shapes.UINT] * 7, shapes.INT_OR_NONE, shapes.UINT, shapes.INT_OR_NONE)
FIRST_RECORDS = (shapes.Optional(PAIR), [_COPY], shapes.UINT, [PAIR],
        shapes.UINT, shapes.Optional((shapes.UINT,) * 4), shapes.UINT, shapes.FLAG,
        shapes.Optional((shapes.UINT, shapes.BYTES)), PAIR)
#: With the two terms of vote barriers.
RECORDS = (*FIRST_RECORDS, PAIR)


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
