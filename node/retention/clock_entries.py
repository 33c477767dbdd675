"""CLOCK entries: when the leader of a group proposes one.

Contract.  ``before_append`` is called for each batch, and proposes a CLOCK before the first one
after an interval without one in that group.  ``close`` proposes one behind the last batch
of a group that takes no more.  A group that takes no batch gets none.

Invariants.  A CLOCK exceeds the group's last one.  None is proposed while this node's wall clock is
far from those of the others, nor while a node of the cluster does not know the entry.

Theory.  The age of a record is the time of the first CLOCK behind it.  So a group that falls idle
needs one more: without it its last records would have no age until the next batch.  A leader whose
clock is behind proposes nothing.  Repeating the last value would say nothing new, because records
that were appended since are not as old as it claims (``multiraft/partitions/clock_list.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from multiraft.errors import ProposalError
from multiraft.partitions.clock_list import last_clock
from multiraft.partitions.retention_records import clock_payload
from multiraft.types import EntryKind, Payload

if TYPE_CHECKING:
    from multiraft.liveness.clock_skew import ClockSkew
    from multiraft.partitions.state import PartitionStates
    from node.metadata.node_releases import ReleaseGate

#: Longest interval in which one leader proposes two CLOCK entries in a group that takes batches.
#: It is the resolution of ages, and an entry of 72 bytes in 10 s is nothing beside the batches.
CLOCK_INTERVAL_MS = 10_000


class Consensus(Protocol):
    """The part of ``multiraft.raft.multi_raft.MultiRaft`` that is used here."""

    def propose(self, group: int, kind: EntryKind, payload: Payload) -> object: ...


class ClockEntries:
    """The proposer of CLOCK entries in the groups that one node leads."""

    def __init__(self, core: Consensus, partition_states: Mapping[int, PartitionStates],
                 skew: ClockSkew, gate: ReleaseGate, wall_ms: Callable[[], int],
                 interval_ms: int = CLOCK_INTERVAL_MS):
        """``gate``: whether all nodes know the entry; ``wall_ms``: this node's clock, in
        milliseconds since 1970; ``interval_ms``: shortest time between two CLOCKs of a group."""
        self._core = core
        self._partition_states = partition_states
        self._skew = skew
        self._gate = gate
        self._wall_ms = wall_ms
        self._interval_ms = interval_ms
        #: Group -> time from which the next CLOCK is due, by the caller's clock.
        self.due_ms: dict[int, int] = {}
        self.proposed = 0

    def before_append(self, group: int, now_ms: int) -> None:
        """Propose a CLOCK in a led group before a batch, if ``due_ms`` says so.  ``now_ms``: any
        clock that does not go back.  O(1)."""
        if now_ms >= self.due_ms.get(group, 0):
            # A refused one is due in an interval too: most reasons last longer.
            self.due_ms[group] = now_ms + self._interval_ms
            self._propose(group)

    def close(self, group: int) -> bool:
        """Propose a CLOCK in a led group that took batches and takes no more.  Return False if that
        has to be repeated later."""
        states = self._partition_states[group]
        if last_clock(states.group_state.clocks)[0] == states.last_index:
            return True
        return self._propose(group)

    def lead(self, group: int) -> None:
        """Begin without a CLOCK in a group whose leader this node became."""
        self.due_ms.pop(group, None)

    def date(self, group: int) -> bool:
        """Propose a CLOCK in a led group behind its last entry, whatever that is: it says when
        something was known.  Return False if that has to be repeated later."""
        return self._propose(group)

    def _propose(self, group: int) -> bool:
        """Propose a CLOCK; return False if it is not possible now."""
        clock_ms = self._wall_ms()
        if (self._skew.is_far or self._gate.fault
                or clock_ms <= self._partition_states[group].group_state.clock_ms):
            return False
        try:
            self._core.propose(group, EntryKind.CLOCK, clock_payload(0, clock_ms))
        except ProposalError:
            return False  # the batch that follows is refused for the same reason
        self.proposed += 1
        return True
