"""Disk of a simulated node, over all its boots: contents, speed, errors and free space.

Contract.  What a start finds is in ``filesystem``.  A disk that hangs completes no operation and no
recovery until ``release``.  The reserve is a file that holds disk space and no data.
"""

from __future__ import annotations

import random
from typing import Protocol

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.oracle.readback import ReadBack
from multiraft.storage.disk_space import is_full

RESERVE_FILE = "/data/reserve"
#: Directory of the store on a node's disk.
DIRECTORY = "/data"


class SimulatedReserve:
    """File that reserves disk space and holds no data."""

    def __init__(self, filesystem: SimulatedFilesystem, bytes_wanted: int):
        self._filesystem = filesystem
        self._bytes_wanted = bytes_wanted

    @property
    def held_bytes(self) -> int:
        """Bytes that the file holds now.

        0 without the file, or when a power loss has undone its removal, which had freed the bytes.
        """
        if not self._filesystem.exists(RESERVE_FILE):
            return 0
        return self._filesystem.open(RESERVE_FILE).allocated()

    def allocate(self) -> bool:
        """Take all bytes of the reserve and return True; return False, with none taken, when they
        are not free."""
        exists = self._filesystem.exists(RESERVE_FILE)
        file = (self._filesystem.open if exists else self._filesystem.create)(RESERVE_FILE)
        try:
            file.preallocate(self._bytes_wanted)
        except OSError as error:
            if not is_full(error):
                raise
            self._filesystem.remove(RESERVE_FILE)
            return False
        return True

    def release(self) -> None:
        """Remove the file, which must exist; that frees its disk space."""
        self._filesystem.remove(RESERVE_FILE)


class DiskUser(Protocol):
    """The process that uses a disk, if there is one."""

    def disk_released(self) -> None:
        """Continue what waited for a hung disk."""

    def disk_filled(self) -> None:
        """Check the free disk space at once."""


class SimulatedDisk:
    """Disk of one node."""

    def __init__(self, env: NodeEnv, user: DiskUser):
        self.filesystem = SimulatedFilesystem()
        self.filesystem.faults.rng = random.Random(f"{env.parameters.seed}/disk {env.node}")
        self.filesystem.faults.counts = env.faults
        self.read_back = ReadBack()
        self.factor = 1  # slowdown
        self.hangs = False
        self._reserved_bytes = env.parameters.disk.reserved_bytes
        self._user = user

    def reserve(self) -> SimulatedReserve:
        """Return the reserve of disk space."""
        return SimulatedReserve(self.filesystem, self._reserved_bytes)

    # ---- slow and hung ---------------------------------------------------------------------

    def slow_down(self, factor: int) -> None:
        """Slow the disk down by ``factor`` from now on; 1 = no longer."""
        self.factor = factor

    def hang(self) -> None:
        """Complete no write and no recovery from now on, until ``release``."""
        self.hangs = True

    def release(self) -> None:
        """End the hang: operations and recovery that waited proceed."""
        self.hangs = False
        self._user.disk_released()

    # ---- errors and space ------------------------------------------------------------------

    def arm_write_error(self, writes: int) -> None:
        """Fail the ``writes``-th next write, of this boot or of the next recovery."""
        self.filesystem.faults.writes_left = writes

    def arm_sync_error(self, syncs: int) -> None:
        """Fail the ``syncs``-th next sync of a file, of this boot or of the next recovery."""
        self.filesystem.faults.syncs_left = syncs

    def arm_directory_error(self, syncs: int) -> None:
        """Fail the ``syncs``-th next sync of a directory, of this boot or of the next recovery."""
        self.filesystem.faults.directory_syncs_left = syncs

    def fill(self, left_bytes: int) -> None:
        """Take all disk space except ``left_bytes``, like another program, until ``free``; the node
        checks its disk space at once."""
        faults = self.filesystem.faults
        faults.capacity_bytes = faults.used_bytes + left_bytes
        self._user.disk_filled()

    def free(self) -> None:
        """Free the disk space again, and disarm all disk errors; the node notices it at its next
        check."""
        self.filesystem.faults.heal()

    # ---- the end of a process, and the loss of the directory -------------------------------

    def crash(self, power: bool, rng: random.Random) -> None:
        """Take the effect of the end of the process, or with ``power`` of a power loss."""
        if power:
            self.filesystem.power_loss(rng)
        else:
            self.filesystem.process_death(rng)

    def copied(self) -> SimulatedFilesystem:
        """Return a copy of the files as a process reads them now."""
        return self.filesystem.copied()

    def replace(self, filesystem: SimulatedFilesystem) -> None:
        """Replace all files by those of ``filesystem``; faults keep their random stream."""
        faults = self.filesystem.faults
        self.filesystem = filesystem
        filesystem.faults.rng, filesystem.faults.counts = faults.rng, faults.counts
