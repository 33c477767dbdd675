"""Disks that lose power, are slow, hang, are full, or fail."""

from __future__ import annotations

from chaos.backends.backend import FAILED_DISK, FULL_DISK, HUNG_DISK, POWER_LOSS, SLOW_DISK
from chaos.nemeses.nemesis import ALL, LEADER, MINORITY, ONE, Nemesis, Strike


class PowerLoss(Nemesis):
    """Killed, and what was not synced is gone; the power may come back at once."""

    name, kind, order = "power-loss", POWER_LOSS, 0

    def begin(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER, MINORITY, ALL)
        self.backend.power_loss(nodes)
        back = self.rng.random() < 0.5
        if back:
            for node in nodes:
                self.backend.start(node)
        return Strike(nodes, "lost power" + " for a moment" * back)


class _OfNodes(Nemesis):
    """What is done to some disks and undone."""

    def __init__(self, field):
        super().__init__(field)
        self._nodes: list[int] = []

    def _choose(self) -> list[int]:
        self._nodes = self.field.aim(ONE, LEADER, MINORITY)
        return self._nodes


class SlowDisk(_OfNodes):
    """Few bytes and operations per second."""

    name, kind = "slow-disk", SLOW_DISK

    def begin(self) -> Strike:
        bytes_per_s, operations_per_s = self.rng.choice(
            ((64 << 10, 0), (1 << 20, 20), (0, 5), (4 << 20, 100)))
        for node in self._choose():
            self.backend.slow_disk(node, bytes_per_s, operations_per_s)
        return Strike(self._nodes, f"disk takes {bytes_per_s or 'any number of'} bytes and "
                      f"{operations_per_s or 'any number of'} writes per second")

    def heal(self) -> None:
        for node in self._nodes:
            self.backend.slow_disk(node, 0, 0)


class HungDisk(_OfNodes):
    """Writes and syncs do not return.  Begins last: who is killed now cannot die."""

    name, kind, order = "hung-disk", HUNG_DISK, 2

    def begin(self) -> Strike:
        for node in self._choose():
            self.backend.freeze_disk(node)
        return Strike(self._nodes, "disk hangs")

    def heal(self) -> None:
        for node in self._nodes:
            self.backend.thaw_disk(node)


class FullDisk(_OfNodes):
    """Somebody else's file takes all room."""

    name, kind = "full-disk", FULL_DISK

    def begin(self) -> Strike:
        for node in self._choose():
            self.backend.fill_disk(node)
        return Strike(self._nodes, "disk is full")

    def heal(self) -> None:
        for node in self._nodes:
            self.backend.free_disk(node)


class FailedDisk(_OfNodes):
    """Writes and syncs fail with EIO; the node ends by itself, as it must."""

    name, kind = "failed-disk", FAILED_DISK

    def begin(self) -> Strike:
        for node in self._choose():
            self.backend.fail_disk(node)
        return Strike(self._nodes, "disk fails with EIO")

    def heal(self) -> None:
        for node in self._nodes:
            self.backend.mend_disk(node)
