"""Compactions by key that this node has carried out, as checkpoints keep them.

Contract.  Plain values, owned by the record store of a group.  ``drop_from_sources`` removes, at a
start, the batches of a partition that are found once more in segments from which compactions have
copied what survives.

Theory.  The index file of a cold segment answers for its sources at a start, so that a batch that
was dropped is in neither.  Without that file, and for batches whose places were in memory, a start
reads the sources once more, as long as others need them.  An older record of a key would return,
whose tombstone a later compaction has dropped.  So checkpoints name the sources.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multiraft.storage.log_table import LogTable
from multiraft.storage.record_store import CompactedPart
from multiraft.storage.stored_log import StoredLog

#: Segments that one partition names.  A compaction with more is not counted as carried out.
SOURCES_MAX = 1 << 12


class _Source(NamedTuple):
    start: int
    end: int


def drop_from_sources(table: LogTable) -> None:
    """Drop the batches of partitions in the sources of their compactions.  O(partitions with a
    compaction + rows, and batches with places in memory, of those that name sources)."""
    for log in table.logs.values():
        for partition, part in log.records.compacted.items():
            if part.sources:
                _drop(table, log, partition, part)


def _drop(table: LogTable, log: StoredLog, partition: int, part: CompactedPart) -> None:
    batches = log.partitions.get(partition)
    if batches is None:
        return
    sources = existing(table, part.sources)
    files = [table.indexed.find(each.start) for each in sources]
    batches.drop_rows_of({each.number for each in files if each is not None})
    _, indexes, _, _ = batches.columns()
    gone = {index for index in indexes
            if index in log.records and _is_within(sources, log.records.locate(index).position)}
    batches.remove_batches(gone)
    log.records.remove(gone, log.raft_start)


def existing(table: LogTable, starts: Iterable[int]) -> list[_Source]:
    """Return the segments that begin at some places, those that are gone left out."""
    journal = table.journal
    known = {each.start: each.end for each in [*journal.segments, *journal.cold]}
    return [_Source(start, known[start]) for start in starts if start in known]


def _is_within(sources: Iterable[_Source], position: int) -> bool:
    return any(each.start <= position < each.end for each in sources)
