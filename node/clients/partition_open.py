"""The opening entry of a partition that the metadata place in a group which has not opened it yet.

Contract. ``partition_open_of(place)`` is the payload of that entry. The leader of ``place.group``
proposes it when its log has the partition at an epoch below ``place.epoch``.

Theory. There are two such cases. A partition that was never used is opened by its first batch. A
partition whose opening was lost with the majority of its group continues, after a forced recovery,
from what the metadata know of it. In any other case the opening is in the leader's log: a published
epoch is committed in its group, and a leader's log has all committed entries.
"""

from __future__ import annotations

from multiraft.partitions.records import open_payload
from node.metadata.placement_table import FIRST_EPOCH
from node.metadata.state_machine import Location


def partition_open_of(place: Location) -> bytes:
    """Return the payload of the entry that opens the partition at ``place``."""
    entry = place.epoch_history[-1]
    if entry.epoch == FIRST_EPOCH:
        return open_payload(entry.epoch)
    return open_payload(entry.epoch, entry.start_offset, entry.leader_epoch_base,
                        place.epoch_history[0].start_offset)
