"""Whom a simulated node knows and lets in, and what it does when it is refused itself.

Contract.  Part of ``node.SimulatedNode``, and as the real node does it: each connection begins with
an introduction that the other side judges by ``multiraft.lives``.  Who is refused for good ends by
itself; who is not known yet, or comes too early, tries again.  A directory that nobody registered
takes part only when a majority of the others has let it in (docs/decisions/0008).

Simplified.  What is registered reaches each node after a while of its own and is never lost there;
the real node keeps it in ``known_nodes.json``, which has tests of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos.simulator.ailing import Ailing
from chaos.simulator.filesystem import SimulatedFilesystem
from multiraft import lives

#: A connection that was refused for now is tried again after so long.
HELLO_RETRY_US = 200_000

#: Refusals that pass by themselves.
PASSING = frozenset({lives.Refusal.UNKNOWN, lives.Refusal.RUNS})


class Acquainted(Ailing):
    """Part of ``SimulatedNode``."""

    def _know_nobody(self) -> None:
        self.incarnation = 0  # of its directory, once it was opened
        self.is_registered = True  # the others were told of its directory, by whoever made it
        self._known: dict[int, int] = {}  # node -> incarnation of its directory
        self._removed: set[int] = set()
        self._lives: dict[int, lives.Life] = {}

    def lose_directory(self, incarnation: int) -> None:
        """The disk is empty.  Started again it would be initialised anew, under the old id."""
        self.is_lost, self.is_registered, self.incarnation = True, False, incarnation
        faults = self._filesystem.faults
        self._filesystem = SimulatedFilesystem()
        self._filesystem.faults.rng, self._filesystem.faults.struck = faults.rng, faults.struck

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

    def introduction(self) -> lives.Introduction:
        """What this life says of itself."""
        return lives.Introduction(self.node, self.incarnation, self._store.boot_epoch, self._life)

    def judge(self, said: lives.Introduction) -> lives.Verdict | None:
        """Why this node refuses who says so; else his life is the one that counts."""
        incarnation = self._known.get(said.node)
        life = self._lives.get(said.node, lives.NO_LIFE)
        known = lives.Known(incarnation, 0, life) if incarnation is not None else None
        verdict = lives.judge(said, self.node, known, said.node in self._removed,
                              lambda life: self._is_alive(said.node, life))
        if verdict is None:
            self._lives[said.node] = lives.Life(said.boot_epoch, said.process)
        return verdict

    def _is_alive(self, peer: int, life: lives.Life) -> bool:
        return (self._raft is not None and peer in self._connected
                and self._raft.supported_epoch(peer) == life.boot_epoch != 0)

    def _is_let_in(self, peer: int) -> bool:
        """Whether a peer lets this node in now; one that is refused for good ends."""
        verdict = self._world.everyone[peer].judge(self.introduction())
        if verdict is None:
            return True
        if verdict.refusal in PASSING:
            self.later(HELLO_RETRY_US, self._connect, peer)
        else:
            self._refused(verdict)
        return False

    def _refused(self, verdict: lives.Verdict) -> None:
        self._trace.line(self.node, -1, "refused", verdict.text)
        self._world.faults["wiped-refused"] += 1
        self.crash(False)

    # ---- a directory that nobody knows -----------------------------------------------------

    def _may_take_part(self) -> bool:
        """Whether this directory is one that the others know, or a majority of them lets it in."""
        if self.is_registered:
            return True
        others = [self._world.everyone[peer] for peer in self._peers]
        verdicts = [other.judge(self.introduction()) for other in others if other.is_up]
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
