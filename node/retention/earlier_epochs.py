"""Records of a partition that are in groups of its earlier epochs: their bytes and ages.

Contract.  ``part_of`` answers for one earlier epoch from a replica of its group; None = this
replica does not have all of it.  ``start_in_history`` decides from the answers for all of them.
Both are pure.

Theory.  An earlier epoch is sealed, so a replica that has applied the seal has all of its batches,
and the clocks behind them in the same log.  Any such replica answers alike.  By age the log start
moves batch by batch.  By bytes and by records it moves by whole epochs: the leader of the last
group does not know where batches of another group end, and asking again would not be worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from multiraft.partitions.clock_list import index_before
from multiraft.partitions.retention_records import UNKNOWN_BYTES
from multiraft.partitions.state import PartitionStates
from node.retention.retention_policy import UNLIMITED, Facts, Limits, StoredBatch

#: Batches of one epoch that an answer reads at most, in one step of some milliseconds.  Of an epoch
#: with more the bytes stay unknown, until its first batches have left by age or by records.
BATCHES_PER_ANSWER = 4096


class Question(NamedTuple):
    """A question of the leader of a partition's last group about its earlier epochs."""

    log_start: int
    before_ms: int  # records appended by then exceed the age; -1 = age decides nothing


class EpochPart(NamedTuple):
    """The records of one earlier epoch from the log start on."""

    end_offset: int  # of the epoch
    bytes: int  # or ``UNKNOWN_BYTES``
    expired_to: int  # the records below exceed the age


def part_of(states: PartitionStates, batches: Sequence[StoredBatch], partition: int, epoch: int,
            end_offset: int, question: Question) -> EpochPart | None:
    """Return what a replica knows of an epoch that ends at ``end_offset``; ``batches``: its first
    ones from the log start on, at most ``BATCHES_PER_ANSWER``.  None = the replica has not applied
    the end of the epoch.  O(batches)."""
    state = states.applied(partition)
    if state is None or state.epoch < epoch or (state.epoch == epoch and not state.sealed):
        return None
    expired_index = 0
    if question.before_ms >= 0:
        expired_index = index_before(states.applied_group_state.clocks, question.before_ms)
    total, expired_to, all_expired = 0, question.log_start, True
    for batch in batches:
        if batch.end_offset > end_offset:
            break
        total += batch.size
        all_expired = all_expired and batch.index <= expired_index
        if all_expired:
            expired_to = batch.end_offset
    is_whole = len(batches) < BATCHES_PER_ANSWER
    return EpochPart(end_offset, total if is_whole else UNKNOWN_BYTES, expired_to)


def start_in_history(limits: Limits, facts: Facts, parts: Sequence[EpochPart]) -> int:
    """Return the new log start of a partition with records in earlier epochs, at most the end of
    the last of these; ``facts`` are those of its last group, ``parts`` the earlier epochs in
    order.  O(parts)."""
    start = facts.log_start
    all_bytes = [facts.live_bytes, *(part.bytes for part in parts)]
    left = UNKNOWN_BYTES if UNKNOWN_BYTES in all_bytes else sum(all_bytes)
    for part in parts:
        goes = limits.records != UNLIMITED and facts.end_offset - part.end_offset >= limits.records
        if limits.bytes != UNLIMITED and left != UNKNOWN_BYTES:
            goes = goes or left - part.bytes >= limits.bytes
        if limits.age_ms != UNLIMITED:
            goes = goes or part.expired_to >= part.end_offset
        if not goes:
            return max(start, part.expired_to) if limits.age_ms != UNLIMITED else start
        start = max(start, part.end_offset)
        left = left if left == UNKNOWN_BYTES else left - part.bytes
    return start
