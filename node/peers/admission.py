"""Whether this node may take part, and what it does when the others say that it may not.

Contract.  ``welcomed``, ``refused`` and ``away`` hear how each peer answers a hello.  ``refused``
raises ``NodeRefused`` when the answer will never be another one, after the data directory was
marked as refused.  ``linked`` waits until this node may introduce itself to a peer that asked which
life came before, and ``after`` is what its hello says then.  ``passed`` waits until this node may
take part: the peers that can be reached were asked, and enough of them know this data directory
(``PeerRegistry.admission_needs``), which is made durable; a node that was admitted in an earlier
life needs the first only.

Theory.  A peer that lets a life in remembers it and takes its word from then on.  So a node first
asks all peers what they remember, and introduces itself to the first one only when all that answer
within ``ASK_MS_MAX`` have named a life of its directory: a copy that one of them knows as such is
let in by none (docs/decisions/0052).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import trio

from multiraft.liveness.peer_identity import NO_LIFE, History, Life, Recall
from multiraft.wire.errors import Code
from node.clock import monotonic_ms
from node.errors import NodeRefused
from node.peers.registry import PeerRegistry

#: A node that was killed and started again is let in as soon as its old connections are gone, which
#: a lease bounds.  Who is turned away for longer than this, or three leases, has a twin that lives.
TWIN_PATIENCE_MS = 3_000
TWIN_PATIENCE_LEASES = 3
#: What one answer takes of that patience at most; a node asks again within less.
TWIN_STEP_MS_MAX = 500
#: A node that starts waits so long for peers that neither answer nor refuse connections: about an
#: election, so that a peer whose host is gone does not keep it out for longer than that.
ASK_MS_MAX = 1_000

WIPED = ("a wiped node comes back only as a new one: start it on an empty data directory without "
         "its old id, `multiraft node start --config FILE --join HOST:PORT`, then `multiraft node "
         "replace OLD NEW` and `multiraft node remove OLD`")
COPIED = ("a copy of a data directory must never be started: it has forgotten what the original "
          "acknowledged since; remove the copy and start the original, or join as a new node on an "
          "empty data directory, `multiraft node start --config FILE --join HOST:PORT`, then "
          "`multiraft node replace OLD NEW` and `multiraft node remove OLD`")

#: Refusals that end the node, and the way out.
_FINAL: dict[int, str] = {
    Code.WRONG_INCARNATION: WIPED,
    Code.NODE_REMOVED: "a node that was removed comes back only as a new one, on an empty data "
                       "directory and under another id",
    Code.STALE_LIFE: COPIED,
}


class Admission:
    """See the module's docstring.  ``lives``: those of this data directory, this one last;
    ``mark(reason, life)`` makes a refusal durable, with the life that a peer remembers."""

    def __init__(self, known: PeerRegistry, log: logging.Logger, lives: Iterable[Life] = (),
                 mark: Callable[[str, Life], None] = lambda reason, life: None,
                 lease_ms: int = 0):
        own = tuple(lives)
        self._known = known
        self._log = log
        self._life = own[-1] if own else NO_LIFE
        self._first = self._life  # what is said to peers that remember no lives
        self._remembering: set[int] = set()  # peers that asked for an earlier life, as those do
        self._history = History(own, known.facts.met.values())
        self._mark = mark
        self._twin_patience_ms = max(TWIN_PATIENCE_MS, TWIN_PATIENCE_LEASES * lease_ms)
        self._met: set[int] = set()
        self._heard: set[int] = set()  # peers that answered, or are not there
        self._remembered: dict[
            int, Life | None] = {}  # what peers asked for, all of it this directory's
        self._named: dict[int, Life] = {}  # and what they are told
        self._asked_ms: int | None = None  # when asking began
        self._asking = True
        self._news = trio.Event()
        self._twins: dict[int, tuple[int, int]] = {}  # peer -> time of the answer, patience used
        self._said: dict[int, str] = {}
        self.taking_part = trio.Event()  # this node votes and acknowledges

    # ---- what peers answer -----------------------------------------------------------------

    def welcomed(self, peer: int) -> None:
        """``peer`` let this node in: it has bound its incarnation, and remembers this life, unless
        it is of the release before."""
        self._met.add(peer)
        self._said.pop(peer, None)
        self._remembered.pop(peer, None)
        if self._life.is_durable and self.remembers(peer):
            self._known.met(peer, self._life)
            self._named[peer] = self._life  # what it remembers when there is a new number
        self._hear(peer)

    def away(self, peer: int) -> None:
        """``peer`` cannot be reached, or its connection ended before it had answered."""
        self._hear(peer)

    def refused(self, peer: int, code: int, text: str, remembered: Life | None = None) -> None:
        """``peer`` did not let this node in; ``remembered``: the life of it that it knows of.
        Raises ``NodeRefused``."""
        text = f"node {peer}: {text}"
        self.check_final(code, text, remembered)
        if code == Code.UNLINKED_LIFE:
            self._remembering.add(peer)
        recall = self._history.recall(remembered) if remembered is not None else Recall.OWN
        if recall is Recall.FOREIGN:
            self._end(f"{text}, and it has not: {COPIED}", remembered)
        if code == Code.NODE_RUNS:
            self._await_twin(peer, text, remembered)
        else:
            if code == Code.UNLINKED_LIFE and recall is Recall.OWN:
                self._remembered[peer] = remembered
            self._hear(peer)
        if recall is Recall.FORGOTTEN:
            text = (f"{text}, which is older than all that this one keeps; node {peer} was away "
                    f"for too many starts of this node: replace node {peer}")
        if code != Code.UNLINKED_LIFE or recall is Recall.FORGOTTEN:
            self._tell(peer, text)

    def check_final(self, code: int, text: str, remembered: Life | None = None) -> None:
        """Raises ``NodeRefused`` when ``code`` means that this node can never be let in."""
        if code in _FINAL:
            self._end(f"{text}: {_FINAL[code]}", remembered)

    def _end(self, text: str, remembered: Life | None) -> None:
        self._mark(text, remembered or NO_LIFE)
        raise NodeRefused(text)

    def _await_twin(self, peer: int, text: str, remembered: Life | None) -> None:
        """Lose patience by as much as passed since the last answer, but not more than a little: who
        was paused himself reads an answer from before the pause."""
        now_ms = monotonic_ms()
        before_ms, used_ms = self._twins.get(peer, (now_ms, 0))
        used_ms += min(now_ms - before_ms, TWIN_STEP_MS_MAX)
        self._twins[peer] = now_ms, used_ms
        if used_ms >= self._twin_patience_ms:
            self._end(f"{text}: {COPIED}", remembered)

    def _hear(self, peer: int) -> None:
        self._twins.pop(peer, None)
        self._heard.add(peer)
        news, self._news = self._news, trio.Event()
        news.set()

    def _tell(self, peer: int, text: str) -> None:
        if self._said.get(peer) != text:  # asked again several times a second
            self._said[peer] = text
            self._log.warning("peer not accepted", extra={"peer": peer, "reason": text})

    def renewed(self, lives: tuple[Life, ...]) -> None:
        """This life has a new number, the last one."""
        self._life = lives[-1]
        self._history = History(lives, self._known.facts.met.values())

    # ---- asking before introducing ---------------------------------------------------------

    def remembers(self, peer: int) -> bool:
        """Tell whether ``peer`` is known to remember lives.  One of the release before does not: it
        refuses a second number of one start, and a hello that names the life before."""
        return peer in self._remembering

    def number(self, peer: int) -> int:
        """The number of this life that ``peer`` is told: the last one, or that of the start."""
        return (self._life if self.remembers(peer) else self._first).process

    def after(self, peer: int) -> Life | None:
        """The life of this node that ``peer`` is told to have remembered; None = nothing yet."""
        return self._named.get(peer)

    async def linked(self, peer: int) -> bool:
        """Wait until this node may tell ``peer`` what it asked for; False = it asked nothing
        new."""
        remembered = self._remembered.get(peer)
        if remembered is None or self._named.get(peer) == remembered:
            return False
        await self._all_asked()
        self._named[peer] = remembered
        return True

    async def _all_asked(self) -> None:
        """Wait for the peers' answers, but for those that take too long.  One that still supports
        an earlier life has not answered."""
        if self._asked_ms is None:
            self._asked_ms = monotonic_ms()
        while self._asking:
            missing = {node.id for node in self._known.peers()} - self._heard
            left_ms = self._asked_ms + ASK_MS_MAX - monotonic_ms()
            if not missing or left_ms <= 0 and not self._twins:
                self._asking = False
                break
            with trio.move_on_after(max(left_ms, 1) / 1000 if not self._twins else 1):
                await self._news.wait()

    # ---- taking part -----------------------------------------------------------------------

    async def passed(self) -> None:
        """Wait until this node may take part."""
        await self._all_asked()
        while needs := self._known.admission_needs:
            if len(needs & self._met) >= len(needs) // 2 + 1:
                await self._known.admit()
                break
            await self._news.wait()
