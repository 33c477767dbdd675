"""Faults that end nodes and topics permanently, and replace them.

Contract.  Part of ``nemesis.Nemesis``.  A strike that finds no target is not counted.
"""

from __future__ import annotations

from chaos.simulator.faults.file_corruption import Decay


class Lifetimes(Decay):
    """Part of ``Nemesis``: wiped nodes, older copies, topics."""

    def cause_wipe(self) -> None:
        """Wipe the directory of a node permanently; a new node replaces it."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if self._world.wipes.may_wipe(node)]
        if nodes:
            self._world.wipes.wipe(self._rng.choice(nodes))
        else:
            self._world.faults["wipe"] -= 1

    def cause_older_copy(self) -> None:
        """Replace a directory by an older copy of itself and start it repeatedly, or start such a
        copy beside the original.
        """
        if not self._world.copies.strike():
            self._world.faults["older-copy"] -= 1

    def cause_topic_create(self) -> None:
        """Create a topic, if there are fewer than the maximum."""
        if not self._world.topics.create():
            self._world.faults["topic-create"] -= 1

    def cause_topic_delete(self) -> None:
        """Delete a topic while clients append to it."""
        if not self._world.topics.delete():
            self._world.faults["topic-delete"] -= 1

    def cause_topic_recreate(self) -> None:
        """Delete a topic, and create another one of its name at once."""
        if not self._world.topics.recreate():
            self._world.faults["topic-recreate"] -= 1
