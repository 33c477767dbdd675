"""Linearizable reads of one node that are not answered yet.

Contract.  One ``PendingReads`` per boot.  Each read is answered, or its node stops leading the
group, and the client learns that from the loss of leadership.  At the end of a run, ``unanswered``
is empty.
"""

from __future__ import annotations


class PendingReads:
    """Numbers of waiting reads, by group."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}

    def asked(self, group: int) -> None:
        """Count a read of a group that this node leads."""
        self._waiting[group] = self._waiting.get(group, 0) + 1

    def answered(self, group: int) -> None:
        """Count an answer to a read of a group, also from a leader that steps down in the round of
        the answer."""
        left = self._waiting.pop(group, 0) - 1
        if left > 0:
            self._waiting[group] = left

    def ended(self, group: int) -> None:
        """Drop the reads of a group that this node no longer leads; their clients expect no answer.
        """
        self._waiting.pop(group, None)

    def unanswered(self) -> list[str]:
        """Return one line for each group with waiting reads."""
        return [f"g{group} {count} reads" for group, count in sorted(self._waiting.items())]
