"""Tools that all faults of the simulator use: targets, crashes, and heals after a while.

Contract.  A fault is a function that gets the ``Injector`` of its run (``registry.fault``).
``heal_later`` schedules the end of a fault; ``stop`` heals all open faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.simulator.env.network import Link

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from chaos.simulator.ports import SimulationPort

#: Reports the heal of a fault when it is scheduled, and returns the function to call instead.
HealObserver = Callable[[Callable[[], None]], Callable[[], None]]


def _unobserved(heal: Callable[[], None]) -> Callable[[], None]:
    return heal


class Injector:
    """Random stream, open faults and armed crashes of one run."""

    def __init__(self, world: SimulationPort, rng: random.Random,
                 observe_heal: HealObserver = _unobserved):
        self.world = world
        self.rng = rng
        self.is_running = False  # between the start and the end of the faults
        #: Steps of moves until the node that takes the last of them crashes; 0 = none is armed.
        self.steps_to_crash = 0
        self._observe_heal = observe_heal
        self._heals: dict[int, Callable[[], None]] = {}
        self._heal_count = 0

    def stop(self) -> None:
        """Cause no more faults, and heal the open ones in the order in which they began."""
        self.is_running = False
        for number in sorted(self._heals):
            self._heals.pop(number)()

    def if_running(self, action: Callable[..., None], *arguments: object) -> None:
        """Call ``action`` unless the faults have ended."""
        if self.is_running:
            action(*arguments)

    def heal_later(self, heal: Callable[[], None]) -> None:
        """Call ``heal`` once, after a random time, or at ``stop`` if that is sooner."""
        heal = self._observe_heal(heal)
        self._heal_count += 1
        number = self._heal_count
        self._heals[number] = heal
        mean_us = self.world.parameters.fault_duration_ms * 1000
        self.world.queue.after(1 + int(self.rng.expovariate(1 / mean_us)), self._heal, number)

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    def draw_node(self) -> SimulatedNode:
        """Return a random node, running or not."""
        return self.world.nodes[self.rng.choice(sorted(self.world.nodes))]

    def trace(self, node: int, text: str) -> None:
        """Write a line about a fault of a node, or of several (0), to the trace."""
        self.world.trace.line(node, -1, "fault", text)

    def crash(self, node: SimulatedNode, power: bool) -> bool:
        """Crash a node, start it again after a random time, or at ``stop``, and return True; False
        if it was not alive."""
        if not node.alive:
            return False
        self.trace(node.node, "power loss" if power else "kill")
        node.crash(power)
        self.heal_later(node.start)
        return True

    def arm_crash(self, node: SimulatedNode, kind: str, effects: int, power: bool) -> None:
        """Arm a crash of a node after ``effects`` effects; the node is started again some time
        after it. The fault ``kind`` is counted when the crash happens."""
        node.fail_points.arm_crash(effects, power, lambda: self._count_crash(node, kind))

    def _count_crash(self, node: SimulatedNode, kind: str) -> None:
        self.world.faults[kind] += 1
        self.heal_later(node.start)

    def block(self, links: list[Link], text: str) -> None:
        """Cut links, for a random time or until ``stop`` if that is sooner; ``text`` goes to the
        trace."""
        self.trace(0, text)
        self.world.network.block(links)
        self.heal_later(lambda: self.world.network.unblock(links))

    def unclog_later(self, links: list[Link]) -> None:
        """Make clogged links fast again after a random time, or at ``stop`` if that is sooner."""
        self.heal_later(lambda: self.world.network.unclog(links))


def is_active(node: SimulatedNode) -> bool:
    """True if the node has recovered and is not paused."""
    return node.is_up and not node.paused
