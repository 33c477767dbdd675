"""Fail points of a simulated node: crash after the n-th effect, or act during the next disk
operation.

Contract.  The parts of a boot call ``effect`` before each effect of a round, and the disk worker
``disk_began`` when a disk operation begins.  An armed crash ends with the boot that it was armed
in.  One that is armed while the node is down strikes the next recovery.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from chaos.simulator.disk.filesystem import PowerLoss
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.simulated_disk import SimulatedDisk


def _nothing() -> None:
    """Do nothing when the crash strikes."""


class FailPoints:
    """Armed fail points of one node."""

    def __init__(self, rng: random.Random, process: ProcessScheduler, disk: SimulatedDisk,
                 crash: Callable[[bool], None]):
        """``crash(power)`` ends the process."""
        self._rng = rng
        self._process = process
        self._disk = disk
        self._crash = crash
        self._effects_left = 0
        self._crash_power = True
        self._on_crash: Callable[[], None] = _nothing
        self._disk_action: Callable[[], None] | None = None

    def effect(self) -> None:
        """Count an effect, if a crash is armed; raise ``PowerLoss`` at the armed one."""
        if self._effects_left:
            self._effects_left -= 1
            if not self._effects_left:
                raise PowerLoss

    def arm_crash(self, effects: int, power: bool, on_crash: Callable[[], None] = _nothing) -> None:
        """Arm a crash after ``effects`` effects of this boot, or of the next recovery, with
        ``power`` by a power loss; ``on_crash`` is called after it. Replaces an armed one."""
        self._effects_left, self._crash_power, self._on_crash = effects, power, on_crash

    def crash_as_armed(self) -> None:
        """Crash as it was armed, then call the callback of the armed crash."""
        self._crash(self._crash_power)
        self._on_crash()

    def disarm_crash(self) -> None:
        """Disarm the crash; its boot ends."""
        self._effects_left = 0

    def strike_in_files(self) -> None:
        """Count file operations instead of effects from now on, until ``files_done``: an armed
        crash may strike between any two of them."""
        if self._effects_left:
            self._disk.filesystem.operations_to_crash = self._effects_left
            self._effects_left = 0

    def files_done(self) -> None:
        """Disarm the crash that counts file operations."""
        self._disk.filesystem.operations_to_crash = -1

    def arm_disk_action(self, act: Callable[[], None]) -> None:
        """Arm ``act``, to be called once while the next disk operation is under way."""
        self._disk_action = act

    def disk_began(self, latency_us: int) -> None:
        """Handle the begin of a disk operation that takes ``latency_us``: schedule the armed
        action, if any, within it."""
        act, self._disk_action = self._disk_action, None
        if act is not None:
            self._process.after_disk(int(self._rng.random() * latency_us), act)

    def disarm(self) -> None:
        """Disarm the crash, the action and all disk errors, and lift the limit of the disk's
        capacity."""
        self._disk_action = None
        self._effects_left = 0
        self.files_done()
        self._disk.free()
