"""Store liveness: failure detection between nodes by one heartbeat per pair and interval.

Contract.  ``StoreLiveness`` is the sans-I/O state of one node's exchange with all others.  A thread
of its own drives it (``heartbeats``, ``on_heartbeat``, ``on_response``, ``expire``), so that bulk
data never delays heartbeats, and passes ``events`` to the core.  ``publish`` takes digests and the
health of loop and disk from the core's side.  Not thread-safe: the driver holds one lock around
each call.

Invariants.  Within one boot epoch of the sender, sequences only grow.  A response counts once, for
a heartbeat that is outstanding.  Support given lasts longer than support received, because the
responder counts from the arrival of the heartbeat and its sender from the sending.

Theory.  A heartbeat of n1 to which n2 responds is n2's support for n1: n1 has support *from* n2, n2
gives support *for* n1.  The sender counts responses only, so a one-way link gives no support
(scenario S19).  An unhealthy node neither sends heartbeats nor responds: its support expires at
both ends (S1).  Boot epochs are durable and grow; a new one ends all support of earlier ones, and
messages of earlier ones that are still in flight are dropped by (node, epoch, sequence) (S7).

Each heartbeat carries a digest of the groups that its sender leads and the receiver is a member of.
A digest that differs may have crossed a change of leadership; two in a row are reported.

Each response carries the responder's wall clock.  Its receiver compares the clock with its own
halfway between heartbeat and response (Cristian 1989), which is wrong by at most half of that time.
A response that extends support is younger than a lease, so the error is below half a lease, also
after this node was paused.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

from multiraft.liveness.clock_skew import ClockSkew

#: Heartbeats without a response that are kept per peer: those of two leases.  A response to an
#: older one could not extend support.
OUTSTANDING_MAX = 16
#: Wall clock of a response whose sender does not tell it, as those of earlier releases.
NO_CLOCK = 0


class Heartbeat(NamedTuple):
    """Request for support, which the response gives."""

    boot_epoch: int  # of the sender
    sequence: int  # from 1 in each boot epoch, per peer
    leading_digest: int  # over the groups the sender leads that the receiver is a member of
    leading_version: int  # of the sender's list of led groups


class HeartbeatResponse(NamedTuple):
    """Response to a heartbeat, which gives support."""

    boot_epoch: int  # of the responder
    requester_epoch: int  # boot epoch of the heartbeat
    sequence: int  # of the heartbeat
    full: int  # 1 = the responder's disk is full, 0 = it has space for records
    clock_ms: int = NO_CLOCK  # wall clock of the responder, milliseconds since 1970


class LeaseEventKind(enum.IntEnum):
    """Kinds of findings of ``StoreLiveness``; each is a call of ``MultiRaft``."""

    GRANTED = 0  # lease_granted(node, value = its boot epoch)
    WITHDRAWN = 1  # lease_withdrawn(node)
    HELD = 2  # lease_held(node, value = its boot epoch)
    LOST = 3  # lease_lost(node)
    DIGEST_MISMATCH = 4  # digest_mismatch(node)
    LEADING_VERSION = 5  # peer_leading_version(node, value)
    FULL = 6  # peer_full(node, bool(value))


class LeaseEvent(NamedTuple):
    """One finding about one node."""

    kind: LeaseEventKind
    node: int
    value: int = 0


class Peer:
    """One other node, as this exchange knows it."""

    __slots__ = (
        "boot_epoch",
        "sequence_seen",
        "sequence_sent",
        "support_for_until_ms",
        "support_from_until_ms",
        "outstanding",
        "mismatches",
        "leading_version",
        "heartbeat_sent_ms",
        "full",
    )

    def __init__(self) -> None:
        #: Highest boot epoch received; 0 = none.
        self.boot_epoch = 0
        #: Highest sequence of a heartbeat in that boot epoch.
        self.sequence_seen = 0
        self.sequence_sent = 0
        #: End of the support for the peer, and of the support from it; 0 = none.
        self.support_for_until_ms = 0
        self.support_from_until_ms = 0
        #: sequence -> time of sending, of heartbeats without a response, oldest first
        self.outstanding: dict[int, int] = {}
        #: Heartbeats in a row with a differing digest.
        self.mismatches = 0
        #: Last version announced; -1 = none in this boot epoch.
        self.leading_version = -1
        #: Time of the last heartbeat; None = never.
        self.heartbeat_sent_ms: int | None = None
        #: Last report about its disk, while it supports this node.
        self.full = False


class StoreLiveness:
    """Support for and from all peers of this node, also those that share no group with it."""

    def __init__(self, node: int, boot_epoch: int, lease_ms: int, interval_ms: int):
        assert boot_epoch > 0, f"boot epoch {boot_epoch}"
        self.node = node
        self.boot_epoch = boot_epoch
        self.lease_ms = lease_ms
        self.interval_ms = interval_ms
        self._peers: dict[int, Peer] = {}
        self._events: list[LeaseEvent] = []
        self._leading_digests: dict[int, int] = {}
        self._followed_digests: dict[int, int] = {}
        self._leading_version = 0
        self._healthy = True
        self._full = False
        #: Own wall clock minus ``now_ms``; None = ``set_clock`` was not called.
        self._clock_base_ms: int | None = None
        #: Skew of the own wall clock against those of the nodes that support this one.
        self.clock_skew = ClockSkew()

    def add_peer(self, node: int) -> None:
        """Exchange heartbeats with ``node`` from now on; a known peer keeps its state."""
        assert node != self.node, "a node supports itself without heartbeats"
        self._peers.setdefault(node, Peer())

    def remove_peer(self, node: int) -> None:
        """End the exchange and all support with ``node``, which left the cluster."""
        self._end(node, self._peers.pop(node))
        if not self._peers:
            self.clock_skew.reset()

    def peers(self) -> tuple[int, ...]:
        """Return the peers in the order in which they were added."""
        return tuple(self._peers)

    def publish(self, leading_digests: dict[int, int], followed_digests: dict[int, int],
                leading_version: int, healthy: bool, full: bool = False) -> None:
        """Replace the digests and the version that heartbeats carry and are compared with, by peer
        (absent = 0).

        Neither side changes the dictionaries afterwards.  ``healthy``: loop and disk made progress;
        otherwise this node neither sends nor answers heartbeats.  ``full``: the disk has no space
        for records, which responses report."""
        self._leading_digests = leading_digests
        self._followed_digests = followed_digests
        self._leading_version = leading_version
        self._healthy = healthy
        self._full = full

    def set_clock(self, now_ms: int, clock_ms: int) -> None:
        """Record the wall clock of this node at ``now_ms``.  Without a clock, responses carry none
        and nothing is compared."""
        self._clock_base_ms = clock_ms - now_ms

    # ---- sending ------------------------------------------------------------------------------

    def heartbeats(self, now_ms: int) -> list[tuple[int, Heartbeat]]:
        """Return (peer, heartbeat) of those that are due, and count them as sent: one per peer and
        interval, none while unhealthy."""
        due: list[tuple[int, Heartbeat]] = []
        if not self._healthy:
            return due
        for node, peer in self._peers.items():
            sent_ms = peer.heartbeat_sent_ms
            if sent_ms is not None and now_ms - sent_ms < self.interval_ms:
                continue
            peer.heartbeat_sent_ms = now_ms
            peer.sequence_sent += 1
            if len(peer.outstanding) >= OUTSTANDING_MAX:
                del peer.outstanding[next(iter(peer.outstanding))]
            peer.outstanding[peer.sequence_sent] = now_ms
            due.append((node, Heartbeat(self.boot_epoch, peer.sequence_sent,
                                        self._leading_digests.get(node, 0), self._leading_version)))
        return due

    def on_response(self, now_ms: int, node: int, response: HeartbeatResponse) -> None:
        """Process a response: begin or extend the support from ``node``, counted from the sending
        of the heartbeat.  Ignore one of an earlier boot epoch, a duplicate, or one that is too
        old."""
        peer = self._peers.get(node)
        if peer is None or response.requester_epoch != self.boot_epoch:
            return  # meant for an earlier boot epoch of this node
        if not self._note_epoch(node, peer, response.boot_epoch):
            return
        sent_ms = peer.outstanding.pop(response.sequence, None)
        if sent_ms is None:
            return  # a duplicate, or too old to matter
        # From the sending, not from now: the responder may have given it long before the response
        # arrived.
        until_ms = sent_ms + self.lease_ms
        if until_ms <= now_ms or until_ms <= peer.support_from_until_ms:
            return
        if not peer.support_from_until_ms:
            self._emit(LeaseEventKind.HELD, node, peer.boot_epoch)
            peer.full = False
        peer.support_from_until_ms = until_ms
        if response.clock_ms == NO_CLOCK:
            self.clock_skew.drop(node)
        elif self._clock_base_ms is not None:
            halfway_ms = (sent_ms + now_ms) // 2
            self.clock_skew.hear(node, response.clock_ms - halfway_ms - self._clock_base_ms)
        if bool(response.full) != peer.full:
            peer.full = bool(response.full)
            self._emit(LeaseEventKind.FULL, node, int(peer.full))

    # ---- responding ---------------------------------------------------------------------------

    def on_heartbeat(self, now_ms: int, node: int,
                     heartbeat: Heartbeat) -> HeartbeatResponse | None:
        """Begin or extend the support for ``node`` and return the response that says so; None =
        send nothing.

        That is the case while this node is unhealthy, and for a duplicate, a message of an earlier
        boot epoch or an unknown peer."""
        peer = self._peers.get(node)
        if peer is None or not self._note_epoch(node, peer, heartbeat.boot_epoch):
            return None
        if heartbeat.sequence <= peer.sequence_seen:
            return None  # a duplicate, or overtaken: it must not extend support
        peer.sequence_seen = heartbeat.sequence
        if not self._healthy:
            return None
        if not peer.support_for_until_ms:
            self._emit(LeaseEventKind.GRANTED, node, peer.boot_epoch)
        peer.support_for_until_ms = now_ms + self.lease_ms
        # After the event: a new boot epoch resets what was announced.
        self._compare(node, peer, heartbeat)
        base_ms = self._clock_base_ms
        return HeartbeatResponse(self.boot_epoch, heartbeat.boot_epoch, heartbeat.sequence,
                                 int(self._full),
                                 NO_CLOCK if base_ms is None else now_ms + base_ms)

    def _compare(self, node: int, peer: Peer, heartbeat: Heartbeat) -> None:
        if heartbeat.leading_digest == self._followed_digests.get(node, 0):
            peer.mismatches = 0
        else:
            peer.mismatches += 1
            if peer.mismatches == 2:
                peer.mismatches = 0
                self._emit(LeaseEventKind.DIGEST_MISMATCH, node)
        if heartbeat.leading_version != peer.leading_version:
            peer.leading_version = heartbeat.leading_version
            self._emit(LeaseEventKind.LEADING_VERSION, node, heartbeat.leading_version)

    def _note_epoch(self, node: int, peer: Peer, boot_epoch: int) -> bool:
        """Record a peer's boot epoch; a later one ends all support with the peer.  False if the
        message is from an earlier one."""
        if boot_epoch == peer.boot_epoch:
            return True
        if boot_epoch < peer.boot_epoch:
            return False
        self._end(node, peer)
        peer.boot_epoch = boot_epoch
        peer.sequence_seen = 0
        peer.leading_version = -1
        return True

    # ---- time ---------------------------------------------------------------------------------

    def ended(self, node: int) -> None:
        """End support with ``node`` at once, because its process has ended: its connections broke
        and its host refuses new ones.

        Like an expired lease, that is the finding of a failure detector, which may be wrong.  The
        next heartbeat of that boot epoch, if there is one, begins new support."""
        peer = self._peers.get(node)
        if peer is not None:
            self._end(node, peer)

    def _end(self, node: int, peer: Peer) -> None:
        """End the support for and from the peer, with an event for each that existed."""
        if peer.support_for_until_ms:
            self._emit(LeaseEventKind.WITHDRAWN, node)
        if peer.support_from_until_ms:
            self._emit(LeaseEventKind.LOST, node)
        peer.support_for_until_ms = peer.support_from_until_ms = 0
        peer.mismatches = 0
        self.clock_skew.drop(node)

    def expire(self, now_ms: int) -> None:
        """End the support that has expired by ``now_ms``, in both directions, with an event each,
        and compare the clocks of the nodes that still support this one.  O(peers log peers)."""
        for node, peer in self._peers.items():
            if peer.support_from_until_ms and peer.support_from_until_ms <= now_ms:
                peer.support_from_until_ms = 0
                self.clock_skew.drop(node)
                self._emit(LeaseEventKind.LOST, node)
            if peer.support_for_until_ms and peer.support_for_until_ms <= now_ms:
                peer.support_for_until_ms = 0
                peer.mismatches = 0
                self._emit(LeaseEventKind.WITHDRAWN, node)
        self.clock_skew.compare()

    def next_deadline_ms(self, now_ms: int) -> int:
        """Return the time of the next heartbeat or expiry, at most one interval from now.
        O(peers)."""
        due_ms = now_ms + self.interval_ms
        for peer in self._peers.values():
            if self._healthy:
                sent_ms = peer.heartbeat_sent_ms
                send_ms = now_ms if sent_ms is None else sent_ms + self.interval_ms
                if send_ms < due_ms:
                    due_ms = send_ms
            if 0 < peer.support_from_until_ms < due_ms:
                due_ms = peer.support_from_until_ms
            if 0 < peer.support_for_until_ms < due_ms:
                due_ms = peer.support_for_until_ms
        return due_ms

    def events(self) -> list[LeaseEvent]:
        """Return the findings since the last call, in order."""
        events, self._events = self._events, []
        return events

    def _emit(self, kind: LeaseEventKind, node: int, value: int = 0) -> None:
        self._events.append(LeaseEvent(kind, node, value))


class LeaseHolder(Protocol):
    """The part of ``multiraft.raft.multi_raft.MultiRaft`` that leases concern."""

    def lease_granted(self, node: int, boot_epoch: int, /) -> None: ...

    def lease_withdrawn(self, node: int, /) -> None: ...

    def lease_held(self, node: int, boot_epoch: int, /) -> None: ...

    def lease_lost(self, node: int, /) -> None: ...

    def digest_mismatch(self, node: int, /) -> None: ...

    def peer_full(self, node: int, full: bool, /) -> None: ...

    def peer_leading_version(self, node: int, version: int, /) -> None: ...


def deliver(events: list[LeaseEvent], core: LeaseHolder) -> None:
    """Call the method of ``core`` for each finding of a node's ``StoreLiveness``, in order."""
    for kind, node, value in events:
        if kind is LeaseEventKind.GRANTED:
            core.lease_granted(node, value)
        elif kind is LeaseEventKind.WITHDRAWN:
            core.lease_withdrawn(node)
        elif kind is LeaseEventKind.HELD:
            core.lease_held(node, value)
        elif kind is LeaseEventKind.LOST:
            core.lease_lost(node)
        elif kind is LeaseEventKind.DIGEST_MISMATCH:
            core.digest_mismatch(node)
        elif kind is LeaseEventKind.FULL:
            core.peer_full(node, bool(value))
        else:
            core.peer_leading_version(node, value)
