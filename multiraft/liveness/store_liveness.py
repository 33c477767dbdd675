"""Leases between nodes: who supports whom, found out by one small question per pair and interval.

Contract.  ``StoreLiveness`` is the sans-I/O state of one node's exchange with all others; a thread
of its own drives it (``questions``, ``answer``, ``answered``, ``expire``), so that bulk data never
delays it, and passes ``events`` on to the core.  The core's side of it, ``publish``, hands over
digests and the health of loop and disk.  Not thread-safe: the driver holds one lock around each
call.
Invariants.  Within one life of the asker sequences only grow; an answer counts once, for a question
that is outstanding.  Support granted outlives the support the asker counts, because the answerer
counts from when the question arrived and the asker from when it left.
Theory.  A question of n1 to n2, answered, is n2's support for n1: n1 *holds* a lease of n2, n2 has
*granted* it.  The asker counts answers only, so a link that works one way supports nobody who asks
over it (scenario S19).  A node that is not healthy neither asks nor answers: its leases run out at
both ends (S1).  The boot epoch is the number of a node's life, durable and growing; a new one ends
all support of the earlier life, and whatever is left of that life on the wire is dropped by (node,
epoch, sequence) (S7).
    Each question carries a digest of what its sender leads among the receiver's groups.  One that
differs may have crossed a change of leadership; two in a row are reported.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Protocol

#: Questions to one peer that may wait for answers: a lease's worth and as much again.  An older one
#: could not extend a lease any more.
OUTSTANDING_MAX = 16


class Question(NamedTuple):
    """Do you support me?  Answering is granting."""

    boot_epoch: int  # of the asker
    sequence: int  # from 1 in each life, per peer
    leading_digest: int  # over the groups the asker leads that the receiver is a member of
    leading_version: int  # of the asker's list of led groups


class Answer(NamedTuple):
    """I do."""

    boot_epoch: int  # of the answerer
    asker_epoch: int  # copied from the question
    sequence: int  # copied from the question
    full: int  # 1 = the answerer's disk has no room for records, 0 = it has


class LeaseEventKind(enum.IntEnum):
    """What ``StoreLiveness`` found out; each is a call of ``MultiRaft``."""

    GRANTED = 0  # lease_granted(node, value = its boot epoch)
    WITHDRAWN = 1  # lease_withdrawn(node)
    HELD = 2  # lease_held(node, value = its boot epoch)
    LOST = 3  # lease_lost(node)
    DIGEST_MISMATCH = 4  # digest_mismatch(node)
    LED_VERSION = 5  # peer_led_version(node, value)
    FULL = 6  # peer_full(node, bool(value))


class LeaseEvent(NamedTuple):
    """One finding about one node."""

    kind: LeaseEventKind
    node: int
    value: int = 0


class Peer:
    """One other node, as this exchange sees it."""

    __slots__ = (
        "boot_epoch",
        "sequence_seen",
        "sequence_sent",
        "granted_until_ms",
        "held_until_ms",
        "outstanding",
        "mismatches",
        "leading_version",
        "asked_ms",
        "full",
    )

    def __init__(self) -> None:
        #: Highest boot epoch heard of; 0 = none.
        self.boot_epoch = 0
        #: Highest sequence of a question from that life.
        self.sequence_seen = 0
        self.sequence_sent = 0
        #: 0 = no lease.
        self.granted_until_ms = 0
        self.held_until_ms = 0
        #: sequence -> when it was sent, of questions not answered, oldest first
        self.outstanding: dict[int, int] = {}
        #: Questions in a row whose digest differed.
        self.mismatches = 0
        #: Last version announced; -1 = none in this life.
        self.leading_version = -1
        #: When it was asked last; None = never.
        self.asked_ms: int | None = None
        #: What it said last of its disk, while it holds this node up.
        self.full = False


class StoreLiveness:
    """This node's leases, given and held.  All peers, whether they share a group with it or not."""

    def __init__(self, node: int, boot_epoch: int, lease_ms: int, interval_ms: int):
        assert boot_epoch > 0, f"boot epoch {boot_epoch}"
        self.node = node
        self.boot_epoch = boot_epoch
        self.lease_ms = lease_ms
        self.interval_ms = interval_ms
        self._peers: dict[int, Peer] = {}
        self._events: list[LeaseEvent] = []
        self._led_digests: dict[int, int] = {}
        self._believed_digests: dict[int, int] = {}
        self._led_version = 0
        self._healthy = True
        self._full = False

    def add_peer(self, node: int) -> None:
        """Exchange questions with ``node`` from now on."""
        assert node != self.node, "a node supports itself without asking"
        self._peers.setdefault(node, Peer())

    def remove_peer(self, node: int) -> None:
        """``node`` left the cluster: its leases end now."""
        self._end(node, self._peers.pop(node))

    def peers(self) -> tuple[int, ...]:
        """The nodes asked, in the order they were added."""
        return tuple(self._peers)

    def publish(self, led_digests: dict[int, int], believed_digests: dict[int, int],
                leading_version: int, healthy: bool, full: bool = False) -> None:
        """What questions carry and are compared with from now on, by peer (absent = 0); the dicts
        are not changed by either side afterwards.  ``healthy``: loop and disk made progress;
        ``full``: the disk has no room for records, which answers say."""
        self._led_digests = led_digests
        self._believed_digests = believed_digests
        self._led_version = leading_version
        self._healthy = healthy
        self._full = full

    # ---- asking -------------------------------------------------------------------------------

    def questions(self, now_ms: int) -> list[tuple[int, Question]]:
        """The questions that are due, one per peer and interval; none while unhealthy."""
        due: list[tuple[int, Question]] = []
        if not self._healthy:
            return due
        for node, peer in self._peers.items():
            if peer.asked_ms is not None and now_ms - peer.asked_ms < self.interval_ms:
                continue
            peer.asked_ms = now_ms
            peer.sequence_sent += 1
            if len(peer.outstanding) >= OUTSTANDING_MAX:
                del peer.outstanding[next(iter(peer.outstanding))]
            peer.outstanding[peer.sequence_sent] = now_ms
            due.append((node, Question(self.boot_epoch, peer.sequence_sent,
                                       self._led_digests.get(node, 0), self._led_version)))
        return due

    def answered(self, now_ms: int, node: int, answer: Answer) -> None:
        """An answer arrived.  Support counts from when its question was sent."""
        peer = self._peers.get(node)
        if peer is None or answer.asker_epoch != self.boot_epoch:
            return  # meant for an earlier life of this node
        if not self._note_epoch(node, peer, answer.boot_epoch):
            return
        sent_ms = peer.outstanding.pop(answer.sequence, None)
        if sent_ms is None:
            return  # a duplicate, or too old to matter
        until_ms = sent_ms + self.lease_ms
        if until_ms <= now_ms or until_ms <= peer.held_until_ms:
            return
        if not peer.held_until_ms:
            self._emit(LeaseEventKind.HELD, node, peer.boot_epoch)
            peer.full = False
        peer.held_until_ms = until_ms
        if bool(answer.full) != peer.full:
            peer.full = bool(answer.full)
            self._emit(LeaseEventKind.FULL, node, int(peer.full))

    # ---- answering ----------------------------------------------------------------------------

    def answer(self, now_ms: int, node: int, question: Question) -> Answer | None:
        """The answer to a question, which grants a lease; None = say nothing."""
        peer = self._peers.get(node)
        if peer is None or not self._note_epoch(node, peer, question.boot_epoch):
            return None
        if question.sequence <= peer.sequence_seen:
            return None  # a duplicate, or overtaken: it must not extend anything
        peer.sequence_seen = question.sequence
        if not self._healthy:
            return None
        if not peer.granted_until_ms:
            self._emit(LeaseEventKind.GRANTED, node, peer.boot_epoch)
        peer.granted_until_ms = now_ms + self.lease_ms
        self._compare(node, peer, question)  # after the lease: a new life resets what was announced
        return Answer(self.boot_epoch, question.boot_epoch, question.sequence, int(self._full))

    def _compare(self, node: int, peer: Peer, question: Question) -> None:
        if question.leading_digest == self._believed_digests.get(node, 0):
            peer.mismatches = 0
        else:
            peer.mismatches += 1
            if peer.mismatches == 2:
                peer.mismatches = 0
                self._emit(LeaseEventKind.DIGEST_MISMATCH, node)
        if question.leading_version != peer.leading_version:
            peer.leading_version = question.leading_version
            self._emit(LeaseEventKind.LED_VERSION, node, question.leading_version)

    def _note_epoch(self, node: int, peer: Peer, boot_epoch: int) -> bool:
        """Compare with the life known so far; False = the message is from an earlier one."""
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
        """The process of ``node`` has ended: its connections broke and its host says that nobody
        listens there.  No need to wait for the lease: one more reason to think it gone, of a
        failure detector that may always be wrong.  The next question of that life, if there is
        one after all, begins a new lease."""
        peer = self._peers.get(node)
        if peer is not None:
            self._end(node, peer)

    def _end(self, node: int, peer: Peer) -> None:
        """End the leases given and held."""
        if peer.granted_until_ms:
            self._emit(LeaseEventKind.WITHDRAWN, node)
        if peer.held_until_ms:
            self._emit(LeaseEventKind.LOST, node)
        peer.granted_until_ms = peer.held_until_ms = 0
        peer.mismatches = 0

    def expire(self, now_ms: int) -> None:
        """End the leases whose time is over.  O(peers)."""
        for node, peer in self._peers.items():
            if peer.held_until_ms and peer.held_until_ms <= now_ms:
                peer.held_until_ms = 0
                self._emit(LeaseEventKind.LOST, node)
            if peer.granted_until_ms and peer.granted_until_ms <= now_ms:
                peer.granted_until_ms = 0
                peer.mismatches = 0
                self._emit(LeaseEventKind.WITHDRAWN, node)

    def next_deadline_ms(self, now_ms: int) -> int:
        """When something is due at the latest: a question, or the end of a lease."""
        due_ms = now_ms + self.interval_ms
        for peer in self._peers.values():
            if self._healthy:
                asked_ms = peer.asked_ms
                ask_ms = now_ms if asked_ms is None else asked_ms + self.interval_ms
                if ask_ms < due_ms:
                    due_ms = ask_ms
            if 0 < peer.held_until_ms < due_ms:
                due_ms = peer.held_until_ms
            if 0 < peer.granted_until_ms < due_ms:
                due_ms = peer.granted_until_ms
        return due_ms

    def events(self) -> list[LeaseEvent]:
        """What was found out since the last call, in order."""
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

    def peer_led_version(self, node: int, version: int, /) -> None: ...


def deliver(events: list[LeaseEvent], core: LeaseHolder) -> None:
    """Tell a ``MultiRaft`` what its node's ``StoreLiveness`` found out."""
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
            core.peer_led_version(node, value)
