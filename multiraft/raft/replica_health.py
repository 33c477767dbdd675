"""Health of a replica: whether it may vote, lead and acknowledge, and what ends its quarantine.

Contract.  ``ReplicaHealth`` is a state machine without effects: its methods are the transitions,
and each returns whether the transition took place.  ``Group`` and ``head_recovery`` act on it.

    state       votes, leads   accepts entries   its acknowledgements count
    HEALTHY     yes            yes               yes
    FROZEN      no             no                no
    RECOVERING  no             yes               no
    GRANTED     no             yes               no
    RECOVERED   no             yes               no
    REMOVED     no             no                no

    transition           from                             to          when
    quarantine           HEALTHY, RECOVERING, GRANTED,    FROZEN      damage was found: entries that
                         RECOVERED                                    it acknowledged are missing
    begin_recovery       FROZEN, RECOVERING, GRANTED,     RECOVERING  no known entry is missing, the
                         RECOVERED                                    log may have ended later
    grant                RECOVERING, GRANTED              GRANTED     the leader names a barrier
    reach_barrier        GRANTED                          RECOVERED   the log holds it, durably
    repair               FROZEN, RECOVERING, GRANTED,     HEALTHY     the store has recorded durably
                         RECOVERED                                    that nothing is missing
    remove               every state                      REMOVED     it is no longer a member

All other calls change nothing.  The caller of ``repair`` decides that nothing is missing: of a
frozen replica the store found all entries again, of one in head recovery it waits for RECOVERED.

Theory.  A replica that has lost entries, a term or a vote must not take part in decisions as if it
had not (TigerBeetle's status ``recovering_head``; Viewstamped Replication Revisited, section 4.3:
the nonce ties a grant to the recovery that asked for it).  ``head_recovery`` has the argument.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class HealthState(enum.IntEnum):
    """State of a replica's health.  From ``RECOVERING`` to ``RECOVERED`` a head recovery is under
    way."""

    HEALTHY = 0
    FROZEN = 1
    RECOVERING = 2
    GRANTED = 3
    RECOVERED = 4
    REMOVED = 5


class Barrier(NamedTuple):
    """Entry that a leader has granted: with it in the log, durably, a head recovery is complete."""

    term: int  # of the leader that granted it; only in this term does the grant hold
    index: int  # type: ignore[assignment]


#: Reason of a replica that is no longer a member: it sends nothing.
REMOVED = "removed"
NO_BARRIER = Barrier(0, 0)


class ReplicaHealth:
    """Health of one replica; see the table of the module."""

    __slots__ = ("state", "why", "nonce", "barrier", "vote_requester")

    def __init__(self, quarantined: str = ""):
        """Create the health of a restored replica; ``quarantined``: the reason, or empty."""
        #: Reason of the quarantine; empty in ``HEALTHY`` alone.
        self.why = quarantined
        self.state = HealthState.FROZEN if quarantined else HealthState.HEALTHY
        #: Nonce of the head recovery under way; 0 = none.
        self.nonce = 0
        self.barrier = NO_BARRIER
        #: Last member that asked this quarantined replica for its vote; 0 = none.
        self.vote_requester = 0

    @property
    def is_frozen(self) -> bool:
        """True if the replica accepts no entries."""
        return self.state is HealthState.FROZEN or self.state is HealthState.REMOVED

    @property
    def is_recovered(self) -> bool:
        """True if head recovery has reached its barrier, so that the replica may be repaired."""
        return self.state is HealthState.RECOVERED

    def quarantine(self, why: str) -> bool:
        """Freeze the replica.  A head recovery under way is void, with the grant for it."""
        if self.is_frozen:
            return False
        self._become(HealthState.FROZEN, why)
        return True

    def begin_recovery(self, nonce: int) -> bool:
        """Begin a head recovery, or another one in place of that under way."""
        if self.state is HealthState.HEALTHY or self.state is HealthState.REMOVED:
            return False
        self._become(HealthState.RECOVERING, self.why, nonce)
        return True

    def grant(self, nonce: int, barrier: Barrier) -> bool:
        """Store the barrier that a leader grants to the recovery with ``nonce``; a later leader's
        replaces it."""
        if self.state not in (HealthState.RECOVERING, HealthState.GRANTED) or nonce != self.nonce:
            return False
        self.state, self.barrier = HealthState.GRANTED, barrier
        return True

    def reach_barrier(self, term: int, index: int) -> bool:
        """Complete the recovery if its log of ``term`` holds the barrier: it is verified and
        durable up to ``index``."""
        if (self.state is not HealthState.GRANTED or self.barrier.term != term
                or index < self.barrier.index):
            return False
        self.state = HealthState.RECOVERED
        return True

    def repair(self) -> bool:
        """End the quarantine."""
        if self.state is HealthState.HEALTHY or self.state is HealthState.REMOVED:
            return False
        self._become(HealthState.HEALTHY, "")
        self.vote_requester = 0
        return True

    def remove(self) -> None:
        """End the membership, for good."""
        self._become(HealthState.REMOVED, REMOVED)

    def _become(self, state: HealthState, why: str, nonce: int = 0) -> None:
        """Enter a state in which no grant is known."""
        self.state, self.why, self.nonce, self.barrier = state, why, nonce, NO_BARRIER
