"""A leader's view of one member: replication state, acknowledged index, window of bytes in flight.

Transitions.
    PROBE -> REPLICATE   the member named an index that matches
    REPLICATE -> PROBE   mismatch, no answer in time, or a new connection: bytes in flight are lost
    any -> SNAPSHOT      the entries that it lacks are compacted away
    any -> UNKNOWN_GROUP its node has no replica of the group yet; probed less often
    any -> QUARANTINED   its replica is quarantined; probed seldom
    any -> PROBE         a new boot epoch of its node: what was known may be lost

Invariants.  match < next_index; inflight_bytes is the sum over inflight; inflight indexes ascend.

Theory.  ``match`` is durable and verified: the only number that commits anything.  Within a term it
decreases only when the member reports, or its restart implies, that acknowledged entries may be
lost.  ``next_index`` is optimistic; a wrong value costs a round trip (etcd-io/raft,
tracker/progress.go).  The window counts bytes instead of entries, because entries differ in size by
a factor of 100,000.
"""

from __future__ import annotations

import enum
from collections import deque


class ProgressState(enum.IntEnum):
    """State of replication to a member."""

    PROBE = 0
    REPLICATE = 1
    SNAPSHOT = 2
    UNKNOWN_GROUP = 3
    QUARANTINED = 4


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
        "added_at_round",
        "sent_round",
        "acked_round",
        "recovery_nonce",
        "barrier",
        "unknown_replies",
        "below_vote_barrier",
        "records_left",
    )

    def __init__(self, node: int, next_index: int, boot_epoch: int, connection: int, now_ms: int,
                 added_at_round: int = 0):
        self.node = node
        self.state = ProgressState.PROBE
        #: Highest index verified to match and durable on the member.
        self.match = 0
        #: First index of the next append.
        self.next_index = next_index
        #: (last index, bytes) of unacknowledged appends, oldest first.
        self.inflight: deque[tuple[int, int]] = deque()
        self.inflight_bytes = 0
        #: Commit index in the last append to the member.
        self.commit_sent = 0
        #: Commit index in the member's last reply.
        self.commit_known = 0
        #: Time of the last reply that acknowledged something new, or of the first append after none
        #: was in flight.
        self.progressed_ms = now_ms
        #: A probe is in flight; the next one waits for the reply or for ``retransmit_ms``.
        self.probe_sent = False
        #: Boot epoch of the member's node to which this state applies; 0 = the node never gave
        #: support.
        self.boot_epoch = boot_epoch
        #: Number of the connection that carries the appends in flight.
        self.connection = connection
        #: Read round in which the member was added, or its node restarted.  Replies with a lower
        #: round come from before, and are ignored: their acknowledgements may not hold for the
        #: present replica.
        self.added_at_round = added_at_round
        #: Read round of the last append to the member, and the highest that it answered.
        self.sent_round = 0
        self.acked_round = 0
        #: Nonce of the member's head recovery (``head_recovery.py``): it receives entries and does
        #: not count; 0 = none under way.
        self.recovery_nonce = 0
        #: Index of the barrier entry: the member's acknowledgements count again from there on.
        self.barrier = 0
        #: UNKNOWN_GROUP replies in a row.
        self.unknown_replies = 0
        #: The member's last reply said that it is below its vote barrier.
        self.below_vote_barrier = False
        #: Indexes whose records the member may lack, by its last reply.
        self.records_left = 0

    def become_probe(self, next_index: int) -> None:
        """Probe for the point where the logs meet; discard what is in flight."""
        self.state = ProgressState.PROBE
        self.next_index = max(next_index, self.match + 1)
        self.probe_sent = False
        self.inflight.clear()
        self.inflight_bytes = 0

    def retreat(self) -> None:
        """Probe again: behind ``match`` after streaming, else at the index of the last probe."""
        # Everything streamed beyond ``match`` may be lost; a probe's index was a guess that still
        # stands.
        self.become_probe(self.match + 1 if self.state is ProgressState.REPLICATE
                          else self.next_index)

    def become_replicate(self, next_index: int) -> None:
        """Stream entries from ``next_index`` on, below which the logs match, without waiting for
        replies."""
        self.become_probe(next_index)
        self.unknown_replies = 0
        self.state = ProgressState.REPLICATE

    def restarted(self, boot_epoch: int, may_forget: bool) -> None:
        """Reset what a restart of the member's node may have lost: its commit index and what is in
        flight.

        Where members ``may_forget`` acknowledged entries (relaxed durability), ``match`` is reset
        too: the member does not count until it acknowledges again."""
        self.boot_epoch = boot_epoch
        self.commit_known = 0
        self.commit_sent = 0
        self.retreat()  # before the reset of ``match``: the probe starts where the log ended
        if may_forget:
            self.match = 0

    def replica_lost(self) -> None:
        """Reset a member whose replica is gone, with all that it acknowledged.  Its next replica is
        empty."""
        self.retreat()  # before the reset of ``match``: the next probe finds where the logs meet
        self.match = self.commit_known = self.commit_sent = 0

    def sent(self, last_index: int, size: int, now_ms: int) -> None:
        """Record an append of ``size`` bytes that ends at ``last_index``: it is in flight, and the
        next one begins behind it."""
        assert last_index >= self.next_index, f"sent {last_index}, next is {self.next_index}"
        if not self.inflight:
            self.progressed_ms = now_ms
        self.inflight.append((last_index, size))
        self.inflight_bytes += size
        self.next_index = last_index + 1

    def acknowledged(self, match: int, now_ms: int) -> bool:
        """Record that entries up to ``match`` are durable on the member.  True if ``match``
        increased.  Amortised O(1)."""
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
        """True if the member is undamaged (``is_intact``), has acknowledged the whole log *and*
        knows this commit index."""
        return self.match == last_index and self.commit_known == commit and self.is_intact

    @property
    def is_intact(self) -> bool:
        """True unless the member is quarantined or in head recovery, as far as its leader knows."""
        return not self.recovery_nonce and self.state is not ProgressState.QUARANTINED

    def is_caught_up(self, commit: int) -> bool:
        """True if the member is intact, has the records of its log, and has the entries up to
        ``commit`` or is receiving the last of them."""
        return (self.is_intact and not self.records_left and (
            self.match >= commit
            or self.state is ProgressState.REPLICATE and self.next_index > commit))

    def _check(self) -> None:
        assert self.match < self.next_index, f"match {self.match}, next {self.next_index}"
        assert self.inflight_bytes == sum(size for _, size in self.inflight)
        indexes = [index for index, _ in self.inflight]
        assert indexes == sorted(indexes), f"in flight {indexes}"
