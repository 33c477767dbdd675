"""Queue of linearizable reads at one leader, and the read round under way.

Contract.  A value without knowledge of groups, members or time: ``read_index`` decides when a round
begins and ends.  A leader's replica owns one queue from its first read until it stops leading.

Invariants.  One round at a time.  Every token leaves the queue once, in the order of arrival, with
the commit index at which its round began.
"""

from __future__ import annotations

from multiraft.errors import QueueFull


class ReadIndexQueue:
    """Tokens that wait for a round, and tokens of the round under way (thesis 6.4)."""

    __slots__ = ("waiting", "in_round", "read_round", "index")

    def __init__(self) -> None:
        #: Tokens for the next round.
        self.waiting: list[object] = []
        #: Tokens of the round under way; empty while there is none.
        self.in_round: list[object] = []
        #: Number of that round, carried by its appends.
        self.read_round = 0
        #: Commit index at the begin of that round.
        self.index = 0

    def queue(self, token: object, limit: int) -> None:
        """Add ``token`` to the next round.  Raises ``QueueFull`` if ``limit`` tokens wait."""
        count = len(self.waiting)
        if count >= limit:
            raise QueueFull("pending_reads_max", limit, count + 1)
        self.waiting.append(token)

    def begin(self, read_round: int, commit: int) -> None:
        """Start round ``read_round`` at commit index ``commit`` for all tokens that wait."""
        assert not self.in_round, f"round {self.read_round} is under way, {read_round} begins"
        self.read_round, self.index = read_round, commit
        self.in_round, self.waiting = self.waiting, []

    def finish(self) -> list[object]:
        """End the round under way and return its tokens."""
        tokens, self.in_round = self.in_round, []
        return tokens
