"""Fail points of a simulated node: crash after the n-th effect, or act during the next disk
operation.

Contract.  Part of ``node.SimulatedNode``, whose driver calls ``_effect`` before each effect of a
round and ``disk_began`` when a disk operation begins.  An armed fail point ends with the boot that
it was armed in.  A fail point that is armed while the node is down strikes the next recovery.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.disk.filesystem import PowerLoss


def _nothing() -> None:
    """Do nothing when the crash strikes."""


class FailPoints:
    """Part of ``SimulatedNode``: armed fail points."""

    def _reset_fail_points(self) -> None:
        self._effects_left = 0
        self._crash_power = True
        self._on_crash: Callable[[], None] = _nothing
        self._disk_action: Callable[[], None] | None = None

    def _effect(self) -> None:
        """Count an effect, if a crash is armed; raise ``PowerLoss`` at the armed one."""
        if self._effects_left:
            self._effects_left -= 1
            if not self._effects_left:
                raise PowerLoss

    def arm_crash(self, effects: int, power: bool, on_crash: Callable[[], None] = _nothing) -> None:
        """Arm a crash after ``effects`` effects of this boot, or of the next recovery, with
        ``power`` by a power loss; ``on_crash`` is called after it. Replaces an armed one."""
        self._effects_left, self._crash_power, self._on_crash = effects, power, on_crash

    def _crash_at_fail_point(self) -> None:
        """Crash as it was armed, then call the callback of the armed crash."""
        self.crash(self._crash_power)
        self._on_crash()

    def arm_disk_action(self, act: Callable[[], None]) -> None:
        """Arm ``act``, to be called once while the next disk operation of this boot is under
        way."""
        self._disk_action = act

    def disk_began(self, latency_us: int) -> None:
        """Handle the begin of a disk operation that takes ``latency_us``: schedule the armed
        action, if any, within it."""
        act, self._disk_action = self._disk_action, None
        if act is not None:
            self.after_disk(int(self._rng.random() * latency_us), act)

    def disarm(self) -> None:
        """Disarm the crash, the action and all disk errors, and lift the limit of the disk's
        capacity."""
        self._disk_action = None
        self._effects_left = 0
        self._filesystem.operations_to_crash = -1
        self._filesystem.faults.heal()
