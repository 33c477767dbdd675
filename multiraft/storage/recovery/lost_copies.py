"""Records whose only copies may have stood in damaged places of the journal.

Contract.  ``miss_lost_copies`` changes the logs that a start has rebuilt, once all records have
joined them.  It reads nothing and writes nothing.

Theory.  The indexes that were repaired once are known (``repaired_indexes``).  Those that are no
records here are holes, and members of the group tell which of them are records.  They are asked
once for each set of damaged ranges: the checkpoint that names the holes names the set as well.
That a replica has cleared the damage does not count: it may have cleared it before a checkpoint
named what was missing, and nothing else would tell of that after a crash.
"""

from __future__ import annotations

from multiraft.storage.checkpoint import Checkpoint, GroupRecord
from multiraft.storage.record_store import HOLES_MAX
from multiraft.storage.recovery.report import RecoveryReport
from multiraft.storage.stored_log import StoredLog
from multiraft.storage.uncopied_ranges import (
    UNCOPIED_RANGES_MAX,
    IndexRange,
    UncopiedRanges,
    damage_value,
)


def miss_lost_copies(checkpoint: Checkpoint, report: RecoveryReport) -> None:
    """Count repaired indexes that are no records here as missing, or as uncopied, in each log for
    which there is damage of unknown owner other than at the checkpoint's start.  O(groups * damage
    log damage + records in the ranges)."""
    if not report.unexplained:
        return
    for group, log in report.logs.items():
        begin = log.tombstone_position  # what stands before concerns an earlier replica
        found = damage_value(at for at in report.unexplained if at[1] > begin)
        log.records.repaired.known_damage = found
        record = checkpoint.records.get(group)
        if (record is not None and found not in (0, record.known_damage) and record.record_terms
                and (record.incarnation, record.tombstone_position) == (log.incarnation, begin)):
            _miss(log, record)


def _miss(log: StoredLog, record: GroupRecord) -> None:
    records = log.records
    lost = _lost_ranges(log, record)
    if sum(last - first + 1 for first, last in lost) <= HOLES_MAX:
        for first, last in lost:
            for index in range(first, last + 1):
                if index not in records.missing and index not in records.unneeded:
                    records.lose_hole(index)
    else:
        if len(lost) > UNCOPIED_RANGES_MAX:  # they would be joined one by one
            lost = [(lost[0][0], lost[-1][1])]
        for first, last in lost:
            records.uncopied.add(first, last)
    records.restore_terms(record.record_terms, log.raft_start)


def _lost_ranges(log: StoredLog, record: GroupRecord) -> list[IndexRange]:
    """Return the repaired indexes below the Raft start that may be needed and are no records here,
    as ranges, ascending.  Installed ranges are left out: ``GroupRebuild`` has counted what they may
    lack.  O(records in the ranges)."""
    repaired = UncopiedRanges(record.repaired)
    repaired.drop_below(record.record_terms[0][0])
    repaired.remove(record.first_index, 1 << 64)
    for each in log.installed:
        repaired.remove(each.first, each.last)
    lost: list[IndexRange] = []
    for first, last in repaired.ranges:
        for index in log.records.indexes_from(first, last):
            if first < index:
                lost.append((first, index - 1))
            first = index + 1
        if first <= last:
            lost.append((first, last))
    return lost
