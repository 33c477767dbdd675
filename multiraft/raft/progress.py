"""What a leader knows of one member, and what it may send it.

Transitions.
    PROBE -> REPLICATE   the member named an index that matches
    REPLICATE -> PROBE   mismatch, silence, or another connection: in-flight items count as lost
    any -> SNAPSHOT      what it lacks is compacted away
    any -> ABSENT        it does not know the group (yet); asked again at leisure
    any -> OUT           it is quarantined; asked again at great leisure
    any -> PROBE         a new boot epoch of its node: what was known may be gone
Invariants.  match < next_index;  inflight_bytes is the sum over inflight;  inflight indexes ascend.
Theory.  ``match`` is durable and verified, the only number that commits anything.  Within a term it
goes back only when the member says, or its new life means, that what it acknowledged may be gone.
``next_index`` is a guess; a wrong guess costs a round trip (etcd-io/raft, tracker/progress.go).
The window counts bytes, because entries differ by a factor of 100,000.
"""

from __future__ import annotations

import enum
from collections import deque


class ProgressState(enum.IntEnum):
    """How a member is being fed."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2
    ABSENT = 3
    OUT = 4


class Progress:
    """One member as its leader sees it."""

    __slots__ = (
        "node",
        "state",
        "match",
        "next_index",
        "inflight",
        "inflight_bytes",
        "commit_sent",
        "commit_known",
        "progressed_ms",
        "probe_sent",
        "boot_epoch",
        "connection",
        "since",
        "sent_round",
        "acked_round",
        "doubt",
        "barrier",
        "unknown_replies",
        "vote_barrier_index",
    )

    def __init__(self, node: int, next_index: int, boot_epoch: int, connection: int, now_ms: int,
                 since: int = 0):
        self.node = node
        self.state = ProgressState.PROBE
        #: Highest index verified to match and durable there.
        self.match = 0
        #: First index of the next append.
        self.next_index = next_index
        #: (last index, bytes) of appends not yet acknowledged, oldest first.
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        #: Commit index carried by the last append to it.
        self.commit_sent = 0
        #: Commit index it reported last.
        self.commit_known = 0
        #: When it last acknowledged something new, or was first owed something.
        self.progressed_ms = now_ms
        #: A probe is on its way; the next one waits for the answer or for ``retransmit_ms``.
        self.probe_sent = False
        #: Life of its node to which all this applies; 0 = never held a lease from it.
        self.boot_epoch = boot_epoch
        #: Number of the connection that carries the in-flight items.
        self.connection = connection
        #: The leader's stamp when it was added or lived anew: what it says below that it said in an
        #: earlier life, which acknowledged what this one may not have.
        self.since = since
        #: Stamp of the last append to it, and the highest it answered.
        self.sent_round = 0
        self.acked_round = 0
        #: Episode in which it doubts its own log (``head_recovery.py``): it is fed and not counted;
        #: 0 = it does not.
        self.doubt = 0
        #: Its acknowledgements count again from this index on.
        self.barrier = 0
        #: How often in a row it said that it does not know the group.
        self.unknown_replies = 0
        #: It said last that it votes for nobody yet (``Group.is_below_vote_barrier``).
        self.vote_barrier_index = False

    def become_probe(self, next_index: int) -> None:
        """Ask where the logs meet; forget what is in flight."""
        self.state = ProgressState.PROBE
        self.next_index = max(next_index, self.match + 1)
        self.probe_sent = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def retreat(self) -> None:
        """Ask again: from what is known to match, or else where it was asked before."""
        self.become_probe(self.match + 1 if self.state is ProgressState.REPLICATE
                          else self.next_index)

    def become_replicate(self, next_index: int) -> None:
        """The logs meet below ``next_index``; send without waiting."""
        self.become_probe(next_index)
        self.unknown_replies = 0
        self.state = ProgressState.REPLICATE

    def restarted(self, boot_epoch: int, may_forget: bool) -> None:
        """Its node lives anew: commit index and what was in memory are unknown again.  Where
        members ``may_forget`` what they acknowledged it does not count before they say it anew."""
        self.boot_epoch = boot_epoch
        self.commit_known = 0
        self.commit_sent = 0
        self.retreat()  # asks where it was, whatever is counted
        if may_forget:
            self.match = 0

    def vanished(self) -> None:
        """It has no replica: whatever it acknowledged is gone.  The one that it gets is empty."""
        self.retreat()  # asks where it was: the next probe finds out
        self.match = self.commit_known = self.commit_sent = 0

    def sent(self, last_index: int, size: int, now_ms: int) -> None:
        """Entries up to ``last_index`` went out."""
        assert last_index >= self.next_index, f"sent {last_index}, next is {self.next_index}"
        if not self.inflight:
            self.progressed_ms = now_ms
        self.inflight.append((last_index, size))
        self.inflight_bytes += size
        self.next_index = last_index + 1

    def acknowledged(self, match: int, now_ms: int) -> bool:
        """``match`` is durable there; whether that is news.  Amortised O(1)."""
        inflight = self.inflight
        while inflight and inflight[0][0] <= match:
            self.inflight_bytes -= inflight.popleft()[1]
        if match <= self.match:
            return False
        self.match = match
        self.progressed_ms = now_ms
        if self.next_index <= match:
            self.next_index = match + 1
        return True

    def has_all(self, last_index: int, commit: int) -> bool:
        """Whether it acknowledged the whole log *and* knows the commit index."""
        return self.match == last_index and self.commit_known == commit and self.is_whole

    @property
    def is_whole(self) -> bool:
        """Whether it is not damaged, as far as it said."""
        return not self.doubt and self.state is not ProgressState.OUT

    def _check(self) -> None:
        assert self.match < self.next_index, f"match {self.match}, next {self.next_index}"
        assert self.inflight_bytes == sum(size for _, size in self.inflight)
        indexes = [index for index, _ in self.inflight]
        assert indexes == sorted(indexes), f"in flight {indexes}"
