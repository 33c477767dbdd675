"""State of one partition in a group, and what a group's state has beside its partitions.

Contract.  All values are immutable.  The functions return a changed value for the next entry; a
value that does not change is returned as it is.

Theory.  A group may have a million partitions, most of them idle.  What only some of them need, the
last COMPACT and the leader epochs, is in a ``PartitionDetails``.  All partitions without either
share ``NO_DETAILS``, and those that began in the same term share one as well.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from multiraft.partitions.retention_records import UNKNOWN_BYTES, Compaction, LogStart

#: Leader epochs kept per partition.  The oldest are forgotten: a client or follower that asks for
#: one of them receives an earlier end than necessary.  Bounds them to 768 bytes per partition.
LEADER_EPOCHS_MAX = 64

#: ``PartitionDetails.compaction`` of a partition that never was compacted.
NEVER_COMPACTED = Compaction(0, 0, 0)

_LEADER_EPOCH = struct.Struct("<iq")  # leader epoch, first offset
_EPOCHS_BYTES_MAX = LEADER_EPOCHS_MAX * _LEADER_EPOCH.size


class PartitionDetails(NamedTuple):
    """Values that only some partitions have, or that differ between them."""

    leader_epoch: int  # of the last batch here; -1 = none
    epochs: bytes  # packed (leader epoch, first offset), oldest first
    compaction: Compaction


NO_DETAILS = PartitionDetails(-1, b"", NEVER_COMPACTED)


class PartitionState(NamedTuple):
    """One partition in one group.

    Offsets from ``start_offset`` to ``next_offset`` belong to ``epoch``.  Lower ones are in earlier
    links of the partition's chain, of which this group's log may have some too.  Offsets below
    ``log_start`` are deleted in every group."""

    epoch: int
    leader_epoch_base: int
    next_offset: int
    log_start: int
    sealed: bool
    start_offset: int
    leader_epoch: int  # once sealed: no batch of the partition carries a higher one; else 0
    #: Payload bytes of this group's batches from ``log_start`` on, each padded as it is stored, as
    #: they were appended or as the last LOG_START says; ``UNKNOWN_BYTES`` after one that did not.
    live_bytes: int = 0
    details: PartitionDetails = NO_DETAILS

    @property
    def records(self) -> int:
        """Number of offsets from the log start to the end, in all groups.  Compaction may have left
        fewer records."""
        return self.next_offset - self.log_start

    @property
    def compaction(self) -> Compaction:
        """The last COMPACT; generation 0 = the partition never was compacted."""
        return self.details.compaction


class GroupState(NamedTuple):
    """State of a group beside that of its partitions."""

    clock_ms: int = 0  # of the last CLOCK; 0 = none
    clocks: bytes = b""  # the CLOCK entries that tell ages (clock_list.py)
    #: Highest metadata index of a PARTITION_DELETE.  A leader opens a partition only by metadata at
    #: this index or a later one: by earlier ones a deleted partition exists.
    opens_from: int = 0
    expired_below: int = 0  # producers whose last batch here has a lower index are unknown


# ---- leader epochs ------------------------------------------------------------------------------


def leader_epochs(details: PartitionDetails) -> list[tuple[int, int]]:
    """Return (leader epoch, first offset) of the partition's batches in this group, oldest first:
    at most ``LEADER_EPOCHS_MAX``, and of those below the log start the last one."""
    return list(_LEADER_EPOCH.iter_unpack(details.epochs))


def with_leader_epoch(details: PartitionDetails, leader_epoch: int,
                      first_offset: int) -> PartitionDetails:
    """Return the details with a later leader epoch, which begins at ``first_offset``; without the
    oldest one if there were ``LEADER_EPOCHS_MAX``."""
    epochs = details.epochs + _LEADER_EPOCH.pack(leader_epoch, first_offset)
    return details._replace(leader_epoch=leader_epoch, epochs=epochs[-_EPOCHS_BYTES_MAX:])


def details_of(epochs: list[tuple[int, int]], compaction: Compaction) -> PartitionDetails:
    """Return details with these leader epochs, oldest first.  Raises ``ValueError`` if they are too
    many or not in order."""
    if len(epochs) > LEADER_EPOCHS_MAX:
        raise ValueError(f"{len(epochs)} leader epochs exceed the limit of {LEADER_EPOCHS_MAX}")
    for (epoch, offset), (later, at) in zip(epochs, epochs[1:], strict=False):
        if epoch >= later or offset >= at:
            raise ValueError(f"leader epoch {later} from {at} on follows {epoch} from {offset} on")
    try:
        packed = b"".join([_LEADER_EPOCH.pack(*each) for each in epochs])
    except struct.error as error:
        raise ValueError(f"a leader epoch does not fit its bytes: {error}") from error
    return PartitionDetails(epochs[-1][0] if epochs else -1, packed, compaction)


def _without_deleted(details: PartitionDetails, log_start: int) -> PartitionDetails:
    """Return the details without the leader epochs that end at or below ``log_start``."""
    found = leader_epochs(details)
    gone = sum(first_offset <= log_start for _, first_offset in found[1:])
    if not gone:
        return details
    return details._replace(epochs=details.epochs[gone * _LEADER_EPOCH.size:])


# ---- openings -----------------------------------------------------------------------------------


def with_opening(before: PartitionState, epoch: int, leader_epoch_base: int, start_offset: int,
                 log_start: int) -> PartitionState:
    """Return the state after a partition that was in this group is opened here in a later epoch.
    O(leader epochs)."""
    live_bytes = before.live_bytes
    if log_start >= before.next_offset:
        live_bytes = 0
    elif log_start > before.log_start:
        live_bytes = UNKNOWN_BYTES
    return PartitionState(epoch, leader_epoch_base, start_offset, log_start, False, start_offset, 0,
                          live_bytes, _without_deleted(before.details, log_start))


# ---- log starts ---------------------------------------------------------------------------------


def with_log_start(state: PartitionState, row: LogStart) -> PartitionState:
    """Return the state after a LOG_START of its partition; one that would lower the log start
    changes nothing.  O(leader epochs)."""
    if row.log_start < state.log_start:
        return state
    live_bytes = row.live_bytes
    if row.log_start == state.next_offset:
        live_bytes = 0
    elif live_bytes == UNKNOWN_BYTES and row.log_start == state.log_start:
        live_bytes = state.live_bytes
    return state._replace(log_start=row.log_start, live_bytes=live_bytes,
                          details=_without_deleted(state.details, row.log_start))
