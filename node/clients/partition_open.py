"""The opening entry of a partition that the metadata place in a group which has not opened it yet.

Contract. ``partition_open_of(place)`` is the payload of that entry. The leader of ``place.group``
proposes it when its log has the partition at an epoch below ``place.epoch``.
``require_known_deletions`` is called right before each opening, whatever its payload.

Theory. There are two such cases. A partition that was never used is opened by its first batch. A
partition whose opening was lost with the majority of its group continues, after a forced recovery,
from what the metadata know of it. In any other case the opening is in the leader's log: a published
epoch is committed in its group, and a leader's log has all committed entries.

A group forgets a partition that a PARTITION_DELETE names, and could not tell its next opening from
the first one. So the entry has the index of the metadata that decided, and older metadata open
nothing in the group (docs/decisions/0060).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.partitions.records import open_payload
from node.clients.error_codes import StaleMetadata
from node.metadata.placement_table import FIRST_EPOCH
from node.metadata.state_machine import Location

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates


def require_known_deletions(states: PartitionStates, metadata_index: int) -> None:
    """Return if the metadata at ``metadata_index`` know all deletions of partitions in this group's
    log. Raises ``StaleMetadata`` otherwise: by these metadata a deleted partition may exist, and
    the group has forgotten it."""
    opens_from = states.group_state.opens_from
    if metadata_index < opens_from:
        raise StaleMetadata(f"this node has applied metadata {metadata_index}; group "
                            f"{states.group} opens partitions from {opens_from} on")


def partition_open_of(place: Location) -> bytes:
    """Return the payload of the entry that opens the partition at ``place``."""
    entry = place.epoch_history[-1]
    if entry.epoch == FIRST_EPOCH:
        return open_payload(entry.epoch)
    return open_payload(entry.epoch, entry.start_offset, entry.leader_epoch_base,
                        place.epoch_history[0].start_offset)
