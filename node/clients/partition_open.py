"""The opening entry of a partition that the metadata place in a group which has not opened it yet.

Contract. ``opening_of(place)`` is the payload of that entry. The leader of ``place.group`` proposes
it when its log has the partition at an epoch below ``place.epoch``.

Theory. There are two such cases. A partition that was never used is opened by its first batch. A
partition whose opening was lost with the majority of its group continues, after a forced recovery,
from what the metadata know of it. In any other case the opening is in the leader's log: a published
epoch is committed in its group, and a leader's log has all committed entries.
"""

from __future__ import annotations

from multiraft.partitions.records import open_payload
from node.metadata.placement_table import FIRST_EPOCH
from node.metadata.state_machine import Location


def opening_of(place: Location) -> bytes:
    """Return the payload of the entry that opens the partition at ``place``."""
    link = place.chain[-1]
    if link.epoch == FIRST_EPOCH:
        return open_payload(link.epoch)
    return open_payload(link.epoch, link.start_offset, link.leader_epoch_base,
                        place.chain[0].start_offset)
