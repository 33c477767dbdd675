"""What the parts of the nemesis share: whom they strike, and what they ask of each other.

Contract.  ``nemesis.Nemesis`` is one chain of classes, each a part, and this is its root: what is
declared here is set or done by a part further up.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from chaos.simulator.simulation import World


class Striking:
    """Root of ``Nemesis``."""

    _world: World
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
