"""Nemesis of clocks: jumps and drift."""

from __future__ import annotations

from chaos import faults
from chaos.backends.backend import CLOCK
from chaos.nemeses.nemesis import LEADER, MINORITY, ONE, Nemesis, Strike

#: Ahead, in milliseconds: less than a lease, just more, and a suspended machine.
JUMPS_MS = (0, 300, 700, 5_000, 3_600_000)
WALL_MS = (0, -86_400_000, 3_600_000)
DRIFTS_PPM = (0, 50_000, -50_000)


class Clocks(Nemesis):
    """Jumps of both clocks, and drift."""

    name, kind = faults.CLOCKS.nemesis, CLOCK

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        jump_ms, wall_ms = self.rng.choice(JUMPS_MS), self.rng.choice(WALL_MS)
        drift_ppm = self.rng.choice(DRIFTS_PPM)
        self._shift = wall_ms, jump_ms, drift_ppm
        return Strike(self.nodes, f"clock jumps {jump_ms} ms ahead and drifts {drift_ppm} ppm, "
                      f"wall clock is off by {wall_ms} ms")

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.set_clock(node, *self._shift)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.set_clock(node)
