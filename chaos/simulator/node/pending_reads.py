"""Linearizable reads that nobody has answered yet, at one node.

Contract.  One ``Asked`` per life.  A read that was asked for is answered, or its node stops leading
the group: then whoever asked sees that.  ``unanswered`` is empty once all is well.
"""

from __future__ import annotations


class Asked:
    """How many reads of which group wait."""

    def __init__(self) -> None:
        self._waiting: dict[int, int] = {}

    def asked(self, group: int) -> None:
        """One more of a group that is led here."""
        self._waiting[group] = self._waiting.get(group, 0) + 1

    def answered(self, group: int) -> None:
        """One less; also of a leader that has stepped down in the very round that answers."""
        left = self._waiting.pop(group, 0) - 1
        if left > 0:
            self._waiting[group] = left

    def ended(self, group: int) -> None:
        """It is not led here any more: nobody waits for an answer."""
        self._waiting.pop(group, None)

    def unanswered(self) -> list[str]:
        """One line for each group that owes an answer."""
        return [f"g{group} {count} reads" for group, count in sorted(self._waiting.items())]
