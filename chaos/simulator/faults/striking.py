"""Base class of the nemesis: the attributes and methods that its parts share.

Contract.  ``nemesis.Nemesis`` is one chain of classes; each class is a part, and ``Striking`` is
the root of the chain.  A part that is further up sets the attributes and implements the methods
that are declared here.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from chaos.simulator.simulation import Simulation


class Striking:
    """Root of the classes of ``Nemesis``: declarations only."""

    _world: Simulation
    _rng: random.Random
    _running: bool

    def _node(self) -> SimulatedNode:
        raise NotImplementedError

    def _say(self, node: int, text: str) -> None:
        raise NotImplementedError

    def _crash(self, node: SimulatedNode, power: bool) -> bool:
        raise NotImplementedError

    def _arm_crash(self, node: SimulatedNode, kind: str, effects: int, power: bool) -> None:
        raise NotImplementedError

    def _lasting(self, heal: Callable[[], None]) -> None:
        raise NotImplementedError
