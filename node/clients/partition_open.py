"""The opening entry of a partition that its group does not know yet, though the metadata put it
there.

Contract.  ``opening_of(place)`` is the payload; for the leader of ``place.group`` when the tail
there is below ``place.epoch``.

Theory.  That is so for a partition that was never used, and opened by its first batch; and for one
whose opening was lost with the majority of its group, which was recovered by force: what the
metadata know of it is what it goes on from.  No other group can be below: what is published is
committed there, and a leader's log has everything that is committed.
"""

from __future__ import annotations

from multiraft.partitions.records import open_payload
from node.metadata.placement_table import FIRST_EPOCH
from node.metadata.state_machine import Location


def opening_of(place: Location) -> bytes:
    """See the module's docstring."""
    link = place.chain[-1]
    if link.epoch == FIRST_EPOCH:
        return open_payload(link.epoch)
    return open_payload(link.epoch, link.start_offset, link.leader_epoch_base,
                        place.chain[0].start_offset)
