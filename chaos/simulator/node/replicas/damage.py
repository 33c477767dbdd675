"""Damage of a simulated disk: bits that faults have changed, over all boots of the node.

Contract.  A node whose disk was never damaged must find no damage.  ``changes`` counts the faults
after which a scrub has to read the journal again.
"""

from __future__ import annotations

from os.path import basename

from chaos.simulator.disk.corruption import Misdirected, Place, durable_places
from chaos.simulator.node.machine.simulated_disk import DIRECTORY, SimulatedDisk
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.identity import NODE_FILE
from multiraft.storage.strays import SEGMENT_SUFFIX


class DiskDamage:
    """Damage of one disk."""

    def __init__(self, disk: SimulatedDisk):
        self.rotten = False  # bits of the disk have changed
        self.unread = False  # and no start has read them
        self.identity_is_rotten = False
        self.changes = 0
        self._disk = disk
        self._rotted: list[tuple[int, int]] = []  # [begin, end) in the journal

    # ---- what can be damaged ---------------------------------------------------------------

    def durable_places(self) -> list[Place]:
        """Return the entries of the journal whose damage must be found: those that later ones prove
        durable."""
        return durable_places(self._disk.filesystem.images(f"{DIRECTORY}/lane-0", ".segment"))

    def index_files(self) -> dict[str, bytes]:
        """Return path -> durable contents of the index files that are not empty."""
        images = self._disk.filesystem.images(f"{DIRECTORY}/lane-0", ".index")
        return {path: image for path, image in images.items() if image}

    def checkpoint_files(self) -> dict[str, int]:
        """Return path -> durable size of the checkpoints that are not empty."""
        names = checkpoint_names(self._disk.filesystem, DIRECTORY)
        paths = [f"{DIRECTORY}/{name}" for name in names]
        durable = self._disk.filesystem.images(DIRECTORY, "")
        return {path: len(durable[path]) for path in paths if durable.get(path)}

    def identity_file(self) -> tuple[str, int]:
        """Return path and size of the identity file."""
        path = f"{DIRECTORY}/{NODE_FILE}"
        return path, len(self._disk.filesystem.image(path))

    # ---- faults ----------------------------------------------------------------------------

    def rot(self, path: str, at: int, bit: int) -> None:
        """Flip a bit of a file, and note it as damage that is still to be found."""
        self._note(path, at, 1)
        self._disk.filesystem.flip(path, at, bit)

    def rot_beside(self, path: str, at: int, bit: int) -> None:
        """Flip a bit of a file that can be rebuilt.

        No damage may be found for it, but the next recovery may know less of older damage.
        """
        self.unread |= self.rotten
        self._disk.filesystem.flip(path, at, bit)

    def rot_identity(self, at: int, bit: int) -> None:
        """Flip a bit of the identity file; the next start finds it."""
        self.identity_is_rotten = True
        self.rot(self.identity_file()[0], at, bit)

    def misdirect(self, write: Misdirected) -> None:
        """Turn a durable write into one that went to another position: zeros are in its own place.
        Note both as damage that is still to be found."""
        place, filesystem = write.place, self._disk.filesystem
        self._note(place.path, place.at, place.length)
        self._note(write.to_path, write.to, place.length)
        data = filesystem.overwrite(place.path, place.at, bytes(place.length))
        filesystem.overwrite(write.to_path, write.to, data)

    def _note(self, path: str, at: int, length: int) -> None:
        self.rotten = self.unread = True
        self.changes += 1
        if path.endswith(SEGMENT_SUFFIX):
            begin = int(basename(path).removesuffix(SEGMENT_SUFFIX)) + at
            self._rotted.append((begin, begin + length))

    def touches(self, position: int, size: int) -> bool:
        """True if bits of these bytes of the journal have changed."""
        return any(begin < position + size and position < end for begin, end in self._rotted)
