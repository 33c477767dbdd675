"""Whether this node may take part, and what it does when the others say that it may not.

Contract.  ``welcomed`` and ``refused`` hear each peer's answer to a hello.  ``passed`` waits until
enough of the peers know this data directory (``KnownNodes.admission_needs``) and makes that
durable; a node that was admitted in an earlier life need not ask.  ``refused`` raises
``NodeRefused`` when the answer will never be another one.
"""

from __future__ import annotations

import trio

from multiraft.wire.errors import Code
from node.clock import monotonic_ms
from node.errors import NodeRefused
from node.known_nodes import KnownNodes

#: A node that was killed and started again is let in as soon as its old connections are gone, which
#: a lease bounds.  Who is turned away for longer than this has a twin that lives.
TWIN_PATIENCE_MS = 3_000

WIPED = ("a wiped node comes back only as a new one: start it on an empty data directory without "
         "its old id, `multiraft node start --config FILE --join HOST:PORT`, then `multiraft node "
         "replace OLD NEW` and `multiraft node remove OLD`")
COPIED = ("a copy of a data directory must never be started: it has forgotten what the original "
          "acknowledged since; remove the copy and start the original, or join as a new node")

#: Refusals that end the node, and the way out.
_FINAL: dict[int, str] = {
    Code.WRONG_INCARNATION: WIPED,
    Code.NODE_REMOVED: "a node that was removed comes back only as a new one, on an empty data "
                       "directory and under another id",
    Code.STALE_LIFE: COPIED,
}


def check_final(code: int, text: str) -> None:
    """Raises ``NodeRefused`` when ``code`` means that this node can never be let in."""
    if code in _FINAL:
        raise NodeRefused(f"{text}: {_FINAL[code]}")


class Admission:
    """See the module's docstring."""

    def __init__(self, known: KnownNodes, log):
        self._known = known
        self._log = log
        self._met: set[int] = set()
        self._enough = trio.Event()
        self._twin_since_ms: dict[int, int] = {}
        self._said: dict[int, str] = {}
        self.taking_part = trio.Event()  # this node votes and acknowledges

    def welcomed(self, peer: int) -> None:
        """``peer`` let this node in: it has bound its incarnation."""
        self._met.add(peer)
        self._twin_since_ms.pop(peer, None)
        self._said.pop(peer, None)
        self._count()

    def refused(self, peer: int, code: int, text: str) -> None:
        """``peer`` did not.  Raises ``NodeRefused``."""
        text = f"node {peer}: {text}"
        check_final(code, text)
        now_ms = monotonic_ms()
        if code == Code.NODE_RUNS:
            if now_ms - self._twin_since_ms.setdefault(peer, now_ms) >= TWIN_PATIENCE_MS:
                raise NodeRefused(f"{text}: {COPIED}")
        else:
            self._twin_since_ms.pop(peer, None)
        if self._said.get(peer) != text:  # asked again several times a second
            self._said[peer] = text
            self._log.warning("peer not accepted", extra={"peer": peer, "reason": text})

    def _count(self) -> None:
        needs = self._known.admission_needs
        if len(needs & self._met) >= len(needs) // 2 + 1:
            self._enough.set()

    async def passed(self) -> None:
        """Wait until this node may take part."""
        self._log.info("waiting for the other nodes of the new cluster", extra={
            "nodes": sorted(self._known.admission_needs)})
        await self._enough.wait()
        await self._known.admit()
