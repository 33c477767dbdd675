"""A follower that lives anew while all is quiet, and what it said before arrives once more.

Contract.  ``Relived.prove`` restarts one node when everything is committed and applied.  What is
sent to its new life is lost at first, and its last words of the old one come again meanwhile, as
the contract of the network allows.  It has to learn all the same what is committed, and the groups
fall asleep only then.

Theory.  While there is work a later entry tells it, whatever was believed of it: what is wrong
shows where nothing follows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.simulator.simulation import World

#: Nothing reaches the new life for so long: others have found out that it lives and have asked it.
LOST_MS = 600
#: Its last words arrive so often, at random while it hears nothing.
REPEATS = 4


class Relived:
    """See the module docstring."""

    def __init__(self, world: World, rng: random.Random, until: Callable[..., None]):
        self._world = world
        self._rng = rng
        self._until = until

    def prove(self, live: list[int], unequal: Callable[[list[int]], list[str]],
              deadline_ms: int) -> None:
        """Raises ``Violation`` when replicas differ still at the deadline."""
        world = self._world
        number = self._rng.choice(live)
        world.trace.line(number, -1, "phase", "lives anew, and is heard from before")
        links = [(peer, number, "append") for peer in live if peer != number]
        world.nodes[number].crash(power=False)
        world.nodes[number].start()
        world.network.block(links)
        for _ in range(REPEATS):
            world.network.repeat(number, self._rng, LOST_MS * 1000)
        world.run_for(LOST_MS)
        world.network.unblock(links)
        self._until(deadline_ms, lambda: not unequal(live),
                    lambda: f"n{number} lives anew and does not learn what is committed: "
                            f"{unequal(live)[:8]}")
        world.marks["lives anew in its sleep"] += 1
