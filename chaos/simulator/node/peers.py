"""Whom a simulated node knows and lets in, and what it does when it is refused itself.

Contract.  Part of ``node.SimulatedNode``, and as the real node does it: each connection begins with
an introduction that the other side judges by ``multiraft.liveness.peer_identity``.  Who is refused
for good ends by itself, and its directory is marked; who is not known yet, or comes too early,
tries again.  A life asks all peers that are up what they remember before it takes part
(docs/decisions/0052).  A directory that nobody registered takes part only when a majority of the
others has let it in (docs/decisions/0008).

Simplified.  What is registered reaches each node after a while of its own and is never lost there;
the real node keeps it in ``known_nodes.json``, which has tests of its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.disk_and_clock import Ailing
from multiraft.liveness import peer_identity
from multiraft.storage import refusal

#: A connection that was refused for now is tried again after so long.
HELLO_RETRY_US = 200_000

#: Refusals that pass by themselves.
PASSING = frozenset({peer_identity.Refusal.UNKNOWN, peer_identity.Refusal.RUNS})
#: Where a node's store is on its disk.
DIRECTORY = "/data"


class Acquainted(Ailing):
    """Part of ``SimulatedNode``."""

    def _know_nobody(self, seed: int) -> None:
        self.incarnation = 0  # of its directory, once it was opened
        self.is_registered = True  # the others were told of its directory, by whoever made it
        self._known: dict[int, int] = {}  # node -> incarnation of its directory
        self._removed: set[int] = set()
        self._lives: dict[int, peer_identity.Life] = {}
        self._named: dict[int, peer_identity.Life] = {}  # peer -> what it was told to remember
        self._numbers = random.Random(f"{seed}/lives {self.node}")
        self.is_copy = False  # its directory was put back to an older one

    def lose_directory(self, incarnation: int) -> None:
        """The disk is empty.  Started again it would be initialised anew, under the old id."""
        self.is_lost, self.is_registered, self.incarnation = True, False, incarnation
        faults = self._filesystem.faults
        self._filesystem = SimulatedFilesystem()
        self._filesystem.faults.rng, self._filesystem.faults.struck = faults.rng, faults.struck

    def put_back(self, older: SimulatedFilesystem) -> None:
        """The disk is what it was some lives ago."""
        self.is_lost = self.is_copy = True
        faults = self._filesystem.faults
        self._filesystem = older
        self._filesystem.faults.rng, self._filesystem.faults.struck = faults.rng, faults.struck

    def copied_directory(self) -> SimulatedFilesystem:
        """What a copy of its disk holds now."""
        return self._filesystem.copied()

    def draw_life(self) -> int:
        """The number of a life."""
        return peer_identity.DURABLE | self._numbers.getrandbits(63)

    def remembers(self, peer: int) -> peer_identity.Life:
        """The life of a peer that was let in last."""
        return self._lives.get(peer, peer_identity.NO_LIFE)

    # ---- whom there is ---------------------------------------------------------------------

    def know(self, incarnations: dict[int, int]) -> None:
        """Take over what is registered of others."""
        self._known |= incarnations
        self._removed -= {*incarnations}

    def knows(self, nodes: Iterable[int]) -> bool:
        """Whether it has heard of all of these."""
        return {*nodes} <= {self.node, *self._peers}

    def meet(self, peer: int, incarnation: int) -> None:
        """A node was registered: it is a peer from now on."""
        self.know({peer: incarnation})
        if peer not in self._peers:
            self._peers += (peer,)
        if self._raft is not None:
            self._liveness.add(peer)
            self.peer_up(peer)
            self._world.everyone[peer].peer_up(self.node)

    def part(self, peer: int) -> None:
        """A node was removed: it is none any more, for ever."""
        self._removed.add(peer)
        self._lives.pop(peer, None)
        self._peers = tuple(each for each in self._peers if each != peer)
        if self._raft is not None:
            self._disconnect(peer)
            self._liveness.remove(peer)

    # ---- introductions ---------------------------------------------------------------------

    def introduction(self, peer: int) -> peer_identity.Introduction:
        """What this life says of itself to a peer."""
        return peer_identity.Introduction(self.node, self.incarnation, *self._store.lives[-1],
                                  self._named.get(peer))

    def _ask(self, peer: int) -> peer_identity.Verdict | None:
        """What a peer says to this life; who is asked for the life before names it."""
        other = self._world.everyone[peer]
        verdict = other.judge(self.introduction(peer))
        if (
            verdict is not None
            and verdict.refusal is peer_identity.Refusal.UNLINKED
            and self._recalls(verdict)
        ):
            self._named[peer] = verdict.remembered
            verdict = other.judge(self.introduction(peer))
        return verdict

    def _recalls(self, verdict: peer_identity.Verdict) -> bool:
        """Tell whether this directory has had the life that a peer remembers."""
        history = peer_identity.History(self._store.lives)
        return history.recall(verdict.remembered) is peer_identity.Recall.OWN

    def judge(self, said: peer_identity.Introduction) -> peer_identity.Verdict | None:
        """Why this node refuses who says so; else his life is the one that counts."""
        incarnation = self._known.get(said.node)
        life = self._lives.get(said.node, peer_identity.NO_LIFE)
        known = peer_identity.Known(incarnation, 0, life) if incarnation is not None else None
        verdict = peer_identity.judge(said, self.node, known, said.node in self._removed,
                              lambda life: self._is_alive(said.node, life))
        if verdict is None:
            if self._world.everyone[said.node].is_copy:
                raise Violation("NoOlderCopyIsLetIn", f"n{self.node} lets in n{said.node}, whose "
                                f"directory was put back, with boot epoch {said.boot_epoch}")
            self._lives[said.node] = said.life
        return verdict

    def _is_alive(self, peer: int, life: peer_identity.Life) -> bool:
        return (self._raft is not None and peer in self._connected
                and self._raft.status.supported_epoch(peer) == life.boot_epoch != 0)

    def _is_let_in(self, peer: int) -> bool:
        """Whether a peer lets this node in now; one that is refused for good ends."""
        verdict = self._ask(peer)
        if verdict is None:
            return True
        if verdict.refusal in PASSING:
            self.later(HELLO_RETRY_US, self._connect, peer)
        else:
            self._refused(verdict)
        return False

    def _refused(self, verdict: peer_identity.Verdict) -> None:
        self._trace.line(self.node, -1, "refused", verdict.text)
        if not self.is_lost:
            raise Violation("NoOriginalIsRefused", f"n{self.node}: {verdict.text}")
        self._world.faults["copy-refused" if self.is_copy else "wiped-refused"] += 1
        if self.is_copy:
            refusal.write(self._filesystem, DIRECTORY, refusal.Mark(verdict.text))
        self.crash(False)

    def _was_refused(self) -> bool:
        """Tell whether its directory is marked; the process ends then."""
        if refusal.read(self._filesystem, DIRECTORY) is None:
            return False
        self._trace.line(self.node, -1, "refused", "before")
        self._world.faults["copy-refused"] += 1
        self.crash(False)
        return True

    # ---- a directory that nobody knows -----------------------------------------------------

    def _may_take_part(self) -> bool:
        """Whether no peer that is up knows this directory as an older copy, and it is one that the
        others know, or a majority of them lets it in."""
        self._named.clear()
        others = [self._world.everyone[peer] for peer in self._peers]
        up = [other for other in others if other.is_up]
        if self.is_copy and not any(other.remembers(self.node).is_durable for other in up):
            self.crash(False)  # whoever could tell is away: tried again by whoever put it back
            return False
        for other in up:
            verdict = other.judge(self.introduction(other.node))
            if (verdict is not None and verdict.remembered is not None
                    and not self._recalls(verdict)):
                self._refused(verdict)
                return False
        return self.is_registered or self._is_new_to(others)

    def _is_new_to(self, others: list[Any]) -> bool:
        """Tell whether a majority of the others lets a directory in that nobody registered."""
        verdicts = [self._ask(other.node) for other in others if other.is_up]
        for verdict in verdicts:
            if verdict is not None and verdict.refusal not in PASSING:
                self._refused(verdict)
                return False
        if 2 * verdicts.count(None) > len(others):
            self.is_registered = True
            self._world.witness.forgotten(self.node)
            return True
        self.crash(False)
        self._restart_soon()
        return False
