"""Leaders confirmed by a majority: what must be certain before it is said (ReadIndex).

Contract.  ``ask`` calls ``then(True)`` once a majority has confirmed, after this call, that this
node leads the group, and everything committed before it is applied here; ``then(False)`` when the
group is not led here any more or time ran out.  Exactly once, from a round, which may be one that
runs before ``ask`` returns.

Theory.  Thesis 6.4.  A deposed leader that was paused may believe in its office for as long as
nobody tells it otherwise; its own lease is a failure detector and no argument.  All who ask in one
round share one confirmation (the core batches them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sortedcontainers import SortedKeyList

from multiraft.errors import ProposalError
from node.clock import monotonic_ms

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft

#: A majority that does not confirm in this time has probably elected somebody else: several round
#: trips, and below what clients wait for one node's answer.
CONFIRM_MS_MAX = 2_000
#: Questions that wait at a time: each is two small objects.
CONFIRMATIONS_MAX = 65_536

#: Later than any time.
NEVER_MS = 1 << 60

Then = Callable[[bool], None]


class _Question:
    """Somebody waits for a group."""

    __slots__ = ("token", "group", "then", "deadline_ms", "index")

    def __init__(self, token: int, group: int, then: Then, deadline_ms: int):
        self.token = token
        self.group = group
        self.then = then
        self.deadline_ms = deadline_ms
        self.index = 0  # to be applied before it is answered; 0 = not confirmed yet


class ReadIndexRequests:
    """Questions to the core, by token."""

    def __init__(self, core: MultiRaft, tails: dict[int, PartitionStates],
                 request_round: Callable[[], None]):
        self._core = core
        self._tails = tails
        self._request_round = request_round
        self.waiting: dict[int, _Question] = {}  # by token; empty = ``committed`` has nothing to do
        self.earliest_ms = NEVER_MS  # no question's deadline is before it
        self._by_group: dict[int, dict[int, _Question]] = {}
        self._deadlines: SortedKeyList = SortedKeyList(key=_deadline)
        self._token = 0
        self.confirmed = 0

    def ask(self, group: int, then: Then) -> bool:
        """See the module docstring; False = it cannot even be asked, and ``then`` is not called."""
        if len(self.waiting) >= CONFIRMATIONS_MAX:
            return False
        self._token += 1
        try:
            self._core.read_index(group, self._token)
        except ProposalError:
            return False
        question = _Question(self._token, group, then, monotonic_ms() + CONFIRM_MS_MAX)
        self.waiting[question.token] = question
        self._by_group.setdefault(group, {})[question.token] = question
        self._deadlines.add(question)
        self.earliest_ms = min(self.earliest_ms, question.deadline_ms)
        self._request_round()
        return True

    def ready(self, reads: list) -> None:
        """What the core confirmed (``Ready.reads``), after this round's commits were applied."""
        for read in reads:
            question = self.waiting.get(read.token)
            if question is not None:
                question.index = max(1, read.index)
                self._settle(question)

    def committed(self, group: int) -> None:
        """Something of ``group`` was applied.  O(its questions)."""
        for question in list(self._by_group.get(group, {}).values()):
            if question.index:
                self._settle(question)

    def lost(self, group: int) -> None:
        """The group is not led here any more."""
        for question in list(self._by_group.get(group, {}).values()):
            self._end(question, False)

    def expire(self, now_ms: int) -> None:
        """Give up on what took too long; due at ``earliest_ms``."""
        while self._deadlines and self._deadlines[0].deadline_ms <= now_ms:
            self._end(self._deadlines[0], False)
        self.earliest_ms = self._deadlines[0].deadline_ms if self._deadlines else NEVER_MS

    def stop(self) -> None:
        """The node ends."""
        for question in list(self.waiting.values()):
            self._end(question, False)

    def _settle(self, question: _Question) -> None:
        tail = self._tails.get(question.group)
        if tail is not None and tail.applied_index >= question.index:
            self.confirmed += 1
            self._end(question, True)

    def _end(self, question: _Question, confirmed: bool) -> None:
        del self.waiting[question.token]
        self._deadlines.remove(question)
        of_group = self._by_group[question.group]
        del of_group[question.token]
        if not of_group:
            del self._by_group[question.group]
        question.then(confirmed)


def _deadline(question: _Question) -> tuple[int, int]:
    return question.deadline_ms, question.token
