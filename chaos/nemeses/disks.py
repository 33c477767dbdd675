"""Nemeses of disks: power loss, slow, hung, full and failed disks."""

from __future__ import annotations

from chaos import faults
from chaos.backends.backend import FAILED_DISK, FULL_DISK, HUNG_DISK, POWER_LOSS, SLOW_DISK
from chaos.nemeses.nemesis import ALL, LEADER, MINORITY, ONE, Nemesis, Strike


class PowerLoss(Nemesis):
    """Nodes are killed and unsynced data is lost; the power may return at once."""

    name, kind, order = faults.POWER_LOSS.nemesis, POWER_LOSS, 0

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY, ALL)
        self._back = self.rng.random() < 0.5
        return Strike(self.nodes, "lost power" + " for a moment" * self._back)

    def begin(self) -> None:
        self.backend.power_loss(self.nodes)
        if self._back:
            for node in self.nodes:
                self.backend.start(node)


class _OfNodes(Nemesis):
    """Base: a fault of some disks that ``heal`` ends."""

    text: str

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        return Strike(self.nodes, self.text)


class SlowDisk(_OfNodes):
    """Few bytes and operations per second."""

    name, kind = faults.SLOW_DISK.nemesis, SLOW_DISK

    def plan(self) -> Strike:
        bytes_per_s, operations_per_s = self._limits = self.rng.choice(
            ((64 << 10, 0), (1 << 20, 20), (0, 5), (4 << 20, 100)))
        self.text = (f"disk takes {bytes_per_s or 'any number of'} bytes and "
                     f"{operations_per_s or 'any number of'} writes per second")
        return super().plan()

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.slow_disk(node, *self._limits)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.slow_disk(node, 0, 0)


class HungDisk(_OfNodes):
    """Writes and syncs do not return.  Begins last: a process that waits for the disk cannot be
    killed."""

    name, kind, order = faults.HUNG_DISK.nemesis, HUNG_DISK, 2
    text = "disk hangs"

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.freeze_disk(node)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.thaw_disk(node)


class FullDisk(_OfNodes):
    """A foreign file takes all free space."""

    name, kind = faults.FULL_DISK.nemesis, FULL_DISK
    text = "disk is full"

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.fill_disk(node)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.free_disk(node)


class FailedDisk(_OfNodes):
    """Writes and syncs fail with EIO; the node ends by itself, as it must."""

    name, kind = faults.FAILED_WRITE.nemesis, FAILED_DISK
    text = "disk fails with EIO"

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.fail_disk(node)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.mend_disk(node)
