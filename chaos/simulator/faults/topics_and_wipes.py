"""The nemesis and the lives of things: what ends for ever, and what takes its name or place.

Contract.  Part of ``nemesis.Nemesis``.  A strike that finds nothing that may end is not counted.
"""

from __future__ import annotations

from chaos.simulator.faults.file_corruption import Decay


class Lifetimes(Decay):
    """Part of ``Nemesis``."""

    def cause_wipe(self) -> None:
        """A node loses its directory for ever, and a new one comes in its place."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if self._world.wipes.may_wipe(node)]
        if nodes:
            self._world.wipes.wipe(self._rng.choice(nodes))
        else:
            self._world.faults["wipe"] -= 1

    def cause_older_copy(self) -> None:
        """A directory is put back to what it was some lives ago, and started again and again; or
        such a copy is started beside the original."""
        if not self._world.copies.strike():
            self._world.faults["older-copy"] -= 1

    def cause_topic_create(self) -> None:
        """One more topic, if there is room."""
        if not self._world.topics.create():
            self._world.faults["topic-create"] -= 1

    def cause_topic_delete(self) -> None:
        """A topic ends while clients append to it."""
        if not self._world.topics.delete():
            self._world.faults["topic-delete"] -= 1

    def cause_topic_recreate(self) -> None:
        """A topic ends, and another one takes its name at once."""
        if not self._world.topics.recreate():
            self._world.faults["topic-recreate"] -= 1
