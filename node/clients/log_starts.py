"""Log starts of partitions, as far as this node knows them.

Contract.  ``highest`` returns a log start that is committed, in any group of the partition.  It
falls only when a replica leaves the node.  ``tell`` records what the leader of a partition's last
group has answered; ``keep`` forgets partitions that are in one group only.

Theory.  The applied log start of a partition's *last* epoch is the authority, and it only rises.
A replica of an earlier epoch learns of it late: by an entry in its own log, or by an answer to its
node.  Each value that any group has applied is a lower bound of the authority, so the highest one
is right, and no reader is refused an offset that still exists (docs/decisions/0061).
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from node.metadata.state_machine import Location


class LogStarts:
    """The log starts that this node has applied, or has received from other nodes.  Only those of
    partitions with an epoch history are received; ``EXCEPTIONS_MAX`` limits their number."""

    def __init__(self, partition_states: dict[int, PartitionStates]):
        self._partition_states = partition_states
        self._told: dict[int, int] = {}

    def highest(self, place: Location, partition: int) -> int:
        """Return the highest known log start of a partition.  O(entries of its history)."""
        highest = max(place.epoch_history[0].start_offset, self._told.get(partition, 0))
        for entry in place.epoch_history:
            states = self._partition_states.get(entry.group)
            state = states.applied(partition) if states is not None else None
            if state is not None and state.log_start > highest:
                highest = state.log_start
        return highest

    def tell(self, partition: int, log_start: int) -> None:
        """Record a log start that the leader of the partition's last group has applied."""
        if log_start > self._told.get(partition, 0):
            self._told[partition] = log_start

    def keep(self, partitions: Container[int]) -> None:
        """Forget what ``tell`` recorded of all partitions but these.  O(partitions recorded)."""
        self._told = {partition: log_start for partition, log_start in self._told.items()
                      if partition in partitions}
