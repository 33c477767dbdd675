"""Interface between a group and the tail state that its entries describe.

Contract.  ``multiraft.partitions.state.PartitionStates`` implements it for groups that carry
partitions.  ``NullLogState`` serves groups whose entries only an external state machine understands
(the metadata group), and tests.  The group adds entries in log order and removes them in reverse;
see docs/architecture.md, "Tail state and applied state".
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from multiraft.errors import UnknownPartition
from multiraft.types import BatchInfo, Entry


class ValidatedAppend(NamedTuple):
    """A leader's decision about a batch: the offset it gets, or the position of its original."""

    base_offset: int
    leader_epoch_base: int  # added to the term and stamped into the batch
    duplicate: bool
    index: int  # type: ignore[assignment]  # of the original, when duplicate


class LogState(Protocol):
    """State that is a function of a group's log."""

    def check_entry(self, entry: Entry) -> str:
        """Return why ``entry`` contradicts the tail state; empty if it fits."""
        ...

    def append(self, entry: Entry) -> None:
        """Add the effects of ``entry``, which is now in the log."""
        ...

    def truncate(self, first_gone: int) -> None:
        """Undo the effects of entries from ``first_gone`` on, which were removed from the log."""
        ...

    def apply(self, index: int) -> None:
        """Record that entries up to ``index`` are committed and durable here."""
        ...

    def validate_append(self, partition: int, info: BatchInfo) -> ValidatedAppend:
        """Return a leader's decision about a batch: the base offset it gets, or the position of its
        original.  Raises ``ProposalError``; nothing changes in either case."""
        ...


class NullLogState:
    """Tail state of a group without partitions: accepts every entry, admits no batch."""

    __slots__ = ()

    def check_entry(self, entry: Entry) -> str:
        return ""

    def append(self, entry: Entry) -> None:
        return None

    def truncate(self, first_gone: int) -> None:
        return None

    def apply(self, index: int) -> None:
        return None

    def validate_append(self, partition: int, info: BatchInfo) -> ValidatedAppend:
        raise UnknownPartition(f"partition {partition} is not open in this group")
