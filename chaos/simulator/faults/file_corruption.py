"""Faults of files beside the entries: checkpoints, the identity file, segment headers, directories.

Contract.  Part of ``nemesis.Nemesis``.  Bit rot in these files may cost its node everything that it
knows.  The cluster must therefore be able to do without that node, as after damage of an entry's
header (``corruption.FaultAtlas``).  A strike that finds no such node is not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults.striking import Striking
from multiraft.codec import layout

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: One of the next syncs of a directory fails, at most so many.
DIRECTORY_SYNCS_MAX = 4


class Decay(Striking):
    """Part of ``Nemesis``: damage of files beside the entries."""

    def _dispensable(self) -> SimulatedNode | None:
        """Return a node that is up and may lose everything that it knows; None = no node may."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if node.is_up and not node.paused and self._world.atlas.may_lose(node.node)]
        return self._rng.choice(nodes) if nodes else None

    def _flip_and_crash(self, node: SimulatedNode, path: str, at: int) -> None:
        """Flip a bit and crash the node, because only a start reads these files."""
        self._world.atlas.note_lost(node.node)
        self._say(node.node, f"rot of {path} at {at}")
        node.rot(path, at, self._rng.randrange(8))
        self._crash(node, self._rng.random() < 0.5)

    def cause_rot_checkpoint(self) -> None:
        """Damage a checkpoint: recovery uses the one before it, or the journal alone."""
        node = self._dispensable()
        files = node.checkpoint_files() if node is not None else {}
        if not files:
            self._world.faults["rot-checkpoint"] -= 1
            return
        path = self._rng.choice(sorted(files))
        self._flip_and_crash(node, path, self._rng.randrange(files[path]))

    def cause_rot_header(self) -> None:
        """Damage the header of a segment, so that the entries behind it belong to unknown groups.
        """
        node = self._dispensable()
        paths = sorted({place.path for place in node.durable_places()}) if node is not None else ()
        if not paths:
            self._world.faults["rot-header"] -= 1
            return
        self._flip_and_crash(node, self._rng.choice(paths),
                             self._rng.randrange(layout.SEGMENT_HEADER_BYTES))

    def cause_rot_identity(self) -> None:
        """Damage ``node.json``: the node can no longer start, and another one replaces it."""
        nodes = [node for _, node in sorted(self._world.nodes.items())
                 if node.is_up and self._world.wipes.may_wipe(node)]
        if not nodes:
            self._world.faults["rot-identity"] -= 1
            return
        node = self._rng.choice(nodes)
        path, size = node.identity_file()
        at = self._rng.randrange(size)
        self._world.atlas.note_lost(node.node)
        self._say(node.node, f"rot of {path} at {at}")
        node.rot_identity(at, self._rng.randrange(8))
        self._crash(node, self._rng.random() < 0.5)

    def cause_eio_directory(self) -> None:
        """Fail the sync of a directory: some changed names are on the disk, and the others are
        never written.

        Counted when the sync fails.
        """
        self._world.faults["eio-directory"] -= 1
        node, syncs = self._node(), self._rng.randrange(1, DIRECTORY_SYNCS_MAX)
        self._say(node.node, f"sync {syncs} of a directory fails")
        node.arm_directory_error(syncs)
