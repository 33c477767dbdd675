"""Nemesis of the simulator: random faults, each of which is healed after a while.

Contract.  ``start`` begins, ``stop`` ends and heals all faults.  The registry has one function for
each kind (``registry.fault``).  Faults overlap freely: safety holds under any of them, and
liveness, which needs a quorum, is checked only after ``stop``.  ``Simulation.faults`` counts the
faults by kind.  A strike that finds no target is not counted, and an armed fault is counted when it
happens.

Elsewhere.  Kinds, rates and durations of a seed: parameters.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults import (
    crashes,
    disks_and_clocks,
    file_corruption,
    membership,
    network,
    rebalance,
    topics_and_wipes,
)
from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.registry import FAULTS

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: Modules that register their faults when they are imported.
MODULES = (crashes, disks_and_clocks, file_corruption, membership, network, rebalance,
           topics_and_wipes)


class Nemesis:
    """Draw a fault, cause it, and draw the time of the next one."""

    def __init__(self, injector: Injector):
        self.injector = injector

    def start(self) -> None:
        """Schedule faults of the kinds in the run's parameters, each at a random time, until
        ``stop``."""
        self.injector.is_running = True
        if self.injector.world.parameters.faults:
            self._schedule()

    def stop(self) -> None:
        """Cause no more faults, and heal the open ones now."""
        self.injector.stop()

    def _schedule(self) -> None:
        world = self.injector.world
        mean_us = world.parameters.fault_interval_ms * 1000
        world.queue.after(1 + int(self.injector.rng.expovariate(1 / mean_us)), self._strike)

    def _strike(self) -> None:
        if not self.injector.is_running:
            return
        kind = self.injector.rng.choice(self.injector.world.parameters.faults)
        self.cause(kind)
        self._schedule()

    def cause(self, kind: str) -> None:
        """Cause a fault of ``kind`` at a target that it draws, and count it if it has happened."""
        happened = FAULTS[kind](self.injector)
        self.injector.world.faults[kind] += happened

    def count_step(self, node: SimulatedNode, what: str) -> None:
        """Count a step ``what`` of a move that ``node`` is about to take; an armed crash may strike
        the node soon after it."""
        rebalance.count_step(self.injector, node, what)
