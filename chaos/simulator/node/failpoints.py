"""What is prepared for a simulated node: a crash at one of its next effects, an ambush at its disk.

Contract.  Part of ``node.SimulatedNode``, whose driver calls ``_effect`` before each effect of a
round and ``disk_began`` when an operation of the disk begins.  What is prepared ends with the life
that it was prepared for, but for a node that is down: its next recovery meets it.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.disk.filesystem import PowerLoss
from chaos.simulator.ports import Machine


def _nothing() -> None:
    """Nobody wants to know."""


class Armed(Machine):
    """Part of ``SimulatedNode``."""

    def _nothing_prepared(self) -> None:
        self._effects_left = 0
        self._crash_power = True
        self._struck: Callable[[], None] = _nothing
        self._ambush: Callable[[], None] | None = None

    def _effect(self) -> None:
        """A crash may come here."""
        if self._effects_left:
            self._effects_left -= 1
            if not self._effects_left:
                raise PowerLoss

    def arm_crash(self, effects: int, power: bool, struck: Callable[[], None] = _nothing) -> None:
        """Crash after this many effects, of this life or of the next recovery; ``struck`` then."""
        self._effects_left, self._crash_power, self._struck = effects, power, struck

    def _strike(self) -> None:
        """It is time for the crash."""
        self.crash(self._crash_power)
        self._struck()

    def ambush(self, act: Callable[[], None]) -> None:
        """Do something while the next disk operation is under way."""
        self._ambush = act

    def disk_began(self, latency_us: int) -> None:
        """A disk operation that will take so long."""
        act, self._ambush = self._ambush, None
        if act is not None:
            self.after_disk(int(self._rng.random() * latency_us), act)

    def disarm(self) -> None:
        """No crash is prepared any more, and no error."""
        self._ambush = None
        self._effects_left = 0
        self._filesystem.fuse = -1
        self._filesystem.faults.heal()
