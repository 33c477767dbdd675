"""Linearizable reads of one boot: started at the leader, and not answered yet.

Contract.  Each read is answered, or its node stops leading the group, and the client learns that
from the loss of leadership.  At the end of a run, ``unanswered`` is empty.
"""

from __future__ import annotations

import contextlib

from chaos.simulator.oracle.observer import StateChecker
from multiraft.errors import ProposalError
from multiraft.raft.multi_raft import MultiRaft


class LinearizableReads:
    """Numbers of waiting reads, by group."""

    def __init__(self, raft: MultiRaft, state_checker: StateChecker) -> None:
        self._raft = raft
        self._state_checker = state_checker
        self._waiting: dict[int, int] = {}

    def start(self, group: int) -> None:
        """Start a linearizable read of a group, which a fetch at a leader does as well; no-op
        unless this node leads the group."""
        if self._raft.status.is_leader(group):
            with contextlib.suppress(ProposalError):
                self._raft.read_index(group, self._state_checker.groups[group].commit)
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
