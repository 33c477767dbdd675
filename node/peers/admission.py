"""Admission of this node by its peers: the time from which it votes and acknowledges, and the
refusals that stop it.

Contract. ``welcomed``, ``refused`` and ``on_unreachable`` receive each peer's answer to a hello.
``refused`` raises ``NodeRefused`` for an answer that will never change, after it has marked the
data directory as refused. ``linked`` waits until this node may introduce itself to a peer that
asked for its previous boot id; the next hello then carries ``after``. ``wait_admitted`` waits until
this node may take part: the reachable peers were asked, and enough of them know this data directory
(``PeerRegistry.admission_needs``), which is made durable. A node that was admitted before a restart
needs only the first.

Theory. A peer that admits a boot id remembers it and trusts it from then on. Therefore a node first
asks all peers which boot id they remember. It introduces itself to the first one only when all
peers that answer within ``ASK_MS_MAX`` have named a boot id of its directory. A copy of the
directory that one peer recognizes is then admitted by none (docs/decisions/0052).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from multiraft.liveness.peer_identity import NO_BOOT_ID, BootHistory, BootId, BootIdOrigin
from multiraft.wire.errors import Code
from node.clock import monotonic_ms
from node.errors import NodeRefused
from node.peers.registry import PeerRegistry

#: A node that was killed and restarted is admitted as soon as its old connections have ended, which
#: takes a lease at most. A node that is refused for longer than this, or for three leases, is a
#: copy of a running node.
DUPLICATE_WAIT_MS = 3_000
DUPLICATE_WAIT_LEASES = 3
#: Largest part of that time that a single answer uses up, in milliseconds; a node asks again within
#: less.
DUPLICATE_STEP_MS_MAX = 500
#: Time that a starting node waits for peers that neither answer nor refuse connections, in
#: milliseconds. It is about the time of an election, so an unreachable host delays the start no
#: longer than that.
ASK_MS_MAX = 1_000

WIPED = ("a wiped node can rejoin only as a new one: start it on an empty data directory without "
         "its old id, `multiraft node start --config FILE --join HOST:PORT`, then `multiraft node "
         "replace OLD NEW --yes` and `multiraft node remove OLD --yes`")
COPIED = ("a copy of a data directory must never be started: it has forgotten what the original "
          "acknowledged since; remove the copy and start the original, or join as a new node on an "
          "empty data directory, `multiraft node start --config FILE --join HOST:PORT`, then "
          "`multiraft node replace OLD NEW --yes` and `multiraft node remove OLD --yes`")

#: Refusals that stop the node, with the operator's way out.
_FINAL: dict[int, str] = {
    Code.WRONG_INCARNATION: WIPED,
    Code.NODE_REMOVED: "a node that was removed can rejoin only as a new one, on an empty data "
                       "directory and under another id",
    Code.STALE_BOOT_ID: COPIED,
}


class Admission:
    """The admission of one node. ``boot_ids``: the boot ids of this data directory, the present one
    last. ``record_refusal(reason, boot_id)`` makes a refusal durable, with the boot id that the
    peer remembers."""

    def __init__(self, known: PeerRegistry, log: logging.Logger, boot_ids: Iterable[BootId] = (),
                 record_refusal: Callable[[str, BootId], None] = lambda reason, boot_id: None,
                 lease_ms: int = 0):
        own = tuple(boot_ids)
        self._known = known
        self._log = log
        self._boot_id = own[-1] if own else NO_BOOT_ID
        self._first = self._boot_id  # sent to peers that remember no boot ids
        self._remembering: set[int] = set()  # peers that asked for an earlier boot id
        self._history = BootHistory(own, known.facts.met.values())
        self._record_refusal = record_refusal
        self._duplicate_wait_ms = max(DUPLICATE_WAIT_MS, DUPLICATE_WAIT_LEASES * lease_ms)
        self._met: set[int] = set()
        self._heard: set[int] = set()  # peers that answered, or are not there
        self._remembered: dict[
            int, BootId | None] = {}  # what peers asked for, all of it this directory's
        self._named: dict[int, BootId] = {}  # and what this node answers them
        self._asked_ms: int | None = None  # when asking began
        self._asking = True
        self._answered = trio.Event()
        self._duplicates: dict[
            int, tuple[int, int]
        ] = {}  # peer -> time of the answer, patience used
        self._reported: dict[int, str] = {}
        self.admitted = trio.Event()  # this node votes and acknowledges

    # ---- what peers answer -----------------------------------------------------------------

    def welcomed(self, peer: int) -> None:
        """Record that ``peer`` admitted this node, has bound its incarnation, and remembers the
        present boot id, if it remembers any."""
        self._met.add(peer)
        self._reported.pop(peer, None)
        self._remembered.pop(peer, None)
        if self._boot_id.is_durable and self.remembers(peer):
            self._known.met(peer, self._boot_id)
            self._named[peer] = self._boot_id  # remembered by the peer when the id is renewed
        self._on_answer(peer)

    def on_unreachable(self, peer: int) -> None:
        """Record that ``peer`` cannot be reached, or that its connection ended before an answer."""
        self._on_answer(peer)

    def refused(self, peer: int, code: int, text: str, remembered: BootId | None = None) -> None:
        """Record that ``peer`` did not admit this node, and log a new reason. ``remembered``: the
        boot id of this node that the peer remembers. Raises ``NodeRefused`` if the refusal is
        final, or a duplicate was reported for too long."""
        text = f"node {peer}: {text}"
        self.check_final(code, text, remembered)
        if code == Code.UNLINKED_BOOT_ID:
            self._remembering.add(peer)
        origin = (self._history.origin_of(remembered) if remembered is not None
                  else BootIdOrigin.OWN)
        if origin is BootIdOrigin.FOREIGN:
            self._end(f"{text}, and it has not: {COPIED}", remembered)
        if code == Code.DUPLICATE_NODE:
            self._await_duplicate(peer, text, remembered)
        else:
            if code == Code.UNLINKED_BOOT_ID and origin is BootIdOrigin.OWN:
                self._remembered[peer] = remembered
            self._on_answer(peer)
        if origin is BootIdOrigin.FORGOTTEN:
            text = (f"{text}, which is older than all that this one keeps; node {peer} was away "
                    f"for too many starts of this node: replace node {peer}")
        if code != Code.UNLINKED_BOOT_ID or origin is BootIdOrigin.FORGOTTEN:
            self._report(peer, text)

    def check_final(self, code: int, text: str, remembered: BootId | None = None) -> None:
        """Raise ``NodeRefused`` if ``code`` means that this node can never be admitted, after
        marking the data directory as refused; return otherwise."""
        if code in _FINAL:
            self._end(f"{text}: {_FINAL[code]}", remembered)

    def _end(self, text: str, remembered: BootId | None) -> None:
        self._record_refusal(text, remembered or NO_BOOT_ID)
        raise NodeRefused(text)

    def _await_duplicate(self, peer: int, text: str, remembered: BootId | None) -> None:
        """Add the time since this peer's last such answer, at most ``DUPLICATE_STEP_MS_MAX``, to
        the patience used. The maximum is for a paused node, which reads old answers. Raises
        ``NodeRefused`` when the patience is used up."""
        now_ms = monotonic_ms()
        before_ms, used_ms = self._duplicates.get(peer, (now_ms, 0))
        used_ms += min(now_ms - before_ms, DUPLICATE_STEP_MS_MAX)
        self._duplicates[peer] = now_ms, used_ms
        if used_ms >= self._duplicate_wait_ms:
            self._end(f"{text}: {COPIED}", remembered)

    def _on_answer(self, peer: int) -> None:
        self._duplicates.pop(peer, None)
        self._heard.add(peer)
        news, self._answered = self._answered, trio.Event()
        news.set()

    def _report(self, peer: int, text: str) -> None:
        if self._reported.get(peer) != text:  # a peer is asked several times a second
            self._reported[peer] = text
            self._log.warning("peer_admission_refused", extra={"peer": peer, "reason": text})

    def renewed(self, boot_ids: tuple[BootId, ...]) -> None:
        """Use the last of ``boot_ids`` as this node's boot id from now on, and judge what peers
        remember by all of them: the boot ids that this data directory keeps, oldest first. Peers
        that remember no boot ids are still told that of the start."""
        self._boot_id = boot_ids[-1]
        self._history = BootHistory(boot_ids, self._known.facts.met.values())

    # ---- asking before introducing ---------------------------------------------------------

    def remembers(self, peer: int) -> bool:
        """Return True if ``peer`` is known to remember boot ids. A peer of the previous release
        does not: it refuses a second id of one start, and a hello that names an earlier one."""
        return peer in self._remembering

    def number(self, peer: int) -> int:
        """Return the number of the boot id that is sent to ``peer``: the present one if the peer
        ``remembers`` boot ids, else that of the start."""
        return (self._boot_id if self.remembers(peer) else self._first).process

    def after(self, peer: int) -> BootId | None:
        """Return the boot id that the hello to ``peer`` names as remembered by it; None = none
        yet."""
        return self._named.get(peer)

    async def linked(self, peer: int) -> bool:
        """Wait until all peers were asked; from then on the hello to ``peer`` names the boot id
        that it asked for, and True is returned. Return False at once if the peer asked for nothing
        new."""
        remembered = self._remembered.get(peer)
        if remembered is None or self._named.get(peer) == remembered:
            return False
        await self._all_asked()
        self._named[peer] = remembered
        return True

    async def _all_asked(self) -> None:
        """Wait until every peer has answered or ``ASK_MS_MAX`` has passed since the first call. As
        long as a peer reports a duplicate of this node, the wait has no limit."""
        if self._asked_ms is None:
            self._asked_ms = monotonic_ms()
        while self._asking:
            missing = {node.id for node in self._known.peers()} - self._heard
            left_ms = self._asked_ms + ASK_MS_MAX - monotonic_ms()
            if not missing or left_ms <= 0 and not self._duplicates:
                self._asking = False
                break
            with trio.move_on_after(max(left_ms, 1) / 1000 if not self._duplicates else 1):
                await self._answered.wait()

    # ---- taking part -----------------------------------------------------------------------

    async def wait_admitted(self) -> None:
        """Wait until all peers were asked, and a majority of the initial nodes that must know this
        directory has admitted it. Makes the admission durable. Raises ``DiskFailed`` if that cannot
        be written."""
        await self._all_asked()
        while needs := self._known.admission_needs:
            if len(needs & self._met) >= len(needs) // 2 + 1:
                await self._known.admit()
                break
            await self._answered.wait()
