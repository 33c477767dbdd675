"""Restart of a follower in an idle cluster, while replies from before the restart arrive again.

Contract.  ``RepeatedAcksCheck.prove`` restarts one node when everything is committed and applied.
At first, appends to the restarted node are lost.  Meanwhile its last messages from before the
restart arrive again, as the contract of the network allows.  The node must still learn the commit
indexes, and its groups may quiesce only afterwards.

Theory.  Under load a later entry corrects any wrong belief of the leader about the follower.  A
wrong belief only shows when no entry follows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.simulator.ports import SimulationPort

#: Time in which no append reaches the restarted node: long enough for its peers to notice the start
#: and to probe it.
LOST_MS = 600
#: Repetitions of its last messages, at random within that time.
REPEATS = 4


class RepeatedAcksCheck:
    """Proof that a restarted follower learns what is committed."""

    def __init__(self, world: SimulationPort, rng: random.Random, until: Callable[..., None]):
        self._world = world
        self._rng = rng
        self._until = until

    def prove(self, live: list[int], lagging: Callable[[list[int]], list[str]],
              deadline_ms: int) -> None:
        """Restart a random node of ``live`` while its append connections are cut and old frames of
        it are repeated. Then run until ``lagging(live)``, the replicas that differ, is empty;
        raises ``Violation`` if it is not at the deadline."""
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
        self._until(deadline_ms, lambda: not lagging(live),
                    lambda: f"n{number} lives anew and does not learn what is committed: "
                            f"{lagging(live)[:8]}")
        world.event_counts["lives anew in its sleep"] += 1
