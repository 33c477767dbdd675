"""What a group asks of the state that its entries describe.

Contract.  ``multiraft.partitions.state.PartitionStates`` implements it for groups that carry
partitions, ``NullLogState`` for groups whose entries only a state machine outside understands (the
metadata group) and for tests.  The group feeds entries in log order and undoes them in reverse; see
docs/architecture.md, "Tail state and applied state".
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from multiraft.errors import UnknownPartition
from multiraft.types import BatchInfo, Entry


class Admitted(NamedTuple):
    """A leader's decision about a batch: where it goes, or where its original is."""

    base_offset: int
    leader_epoch_base: int  # added to the term and stamped into the batch
    duplicate: bool
    index: int  # type: ignore[assignment]  # of the original, when duplicate


class LogState(Protocol):
    """State as a function of a group's log."""

    def verify(self, entry: Entry) -> str:
        """Why ``entry`` contradicts the tail; empty when it fits."""
        ...

    def append(self, entry: Entry) -> None:
        """``entry`` is in the log now."""
        ...

    def truncate(self, first_gone: int) -> None:
        """Entries from index ``first_gone`` on are not in the log any more."""
        ...

    def apply(self, index: int) -> None:
        """Entries up to ``index`` are committed and durable here."""
        ...

    def admit(self, partition: int, info: BatchInfo) -> Admitted:
        """Decide about a batch; raises ``ProposalError`` and changes nothing."""
        ...


class NullLogState:
    """The tail of a group without partitions: agrees with everything, admits no batch."""

    __slots__ = ()

    def verify(self, entry: Entry) -> str:
        return ""

    def append(self, entry: Entry) -> None:
        return None

    def truncate(self, first_gone: int) -> None:
        return None

    def apply(self, index: int) -> None:
        return None

    def admit(self, partition: int, info: BatchInfo) -> Admitted:
        raise UnknownPartition(f"partition {partition} is not open in this group")
