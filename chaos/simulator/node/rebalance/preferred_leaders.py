"""Preferred leaders: nodes hand groups back with the product's code after a restart.

Contract.  ``LeadershipReturn`` is the part of one node in one boot
(``node.rebalance.preferred_leaders``), in virtual time.  ``LeadershipReturnCheck`` checks it at the
end of a run.  ``await_return`` waits until no node is about to hand a group back, so that an idle
cluster can quiesce.  ``prove`` restarts the node that plans prefer most; that node has to lead its
groups again within ``BACK_MS`` of its start (docs/operations.md).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.raft.multi_raft import MultiRaft
from node.rebalance.preferred_leaders import POLL_S, WINDOW_MS, PreferredLeaders

if TYPE_CHECKING:
    from chaos.simulator.node.rebalance.move_services import MoveServices
    from chaos.simulator.ports import SimulationPort

POLL_MS = int(POLL_S * 1000)
#: A restart within one check interval, one that loses the liveness support, and an outage.
DOWN_MS = (0, 200, 5_000)
#: The node catches up for five seconds, and then gets back a few groups per second.
BACK_MS = 30_000


class LeadershipReturn(PreferredLeaders):
    """Preferred leaders in one boot of a node."""

    def __init__(self, node: MoveServices, raft: MultiRaft, metadata, log):
        super().__init__(raft, metadata, node.request_round, log)
        self._node = node
        self._schedule_check()

    def _schedule_check(self) -> None:
        self._node.later(POLL_MS * 1000, self._check)

    def _check(self) -> None:
        before = self.restored
        self.check(self._node.now_ms)
        if self.restored > before:
            self._node.count("handed back")
        self._schedule_check()

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node would hand the group, if it led it, to ``node``. That one came up
        within ``WINDOW_MS`` and has not led the group since."""
        _, since_ms = self._up.get(node, (0, -WINDOW_MS))
        return (self._node.now_ms - since_ms < WINDOW_MS
                and group not in self._led.get(node, ()))


class LeadershipReturnCheck:
    """Check that groups return to their preferred leaders."""

    def __init__(self, world: SimulationPort, rng: random.Random, until: Callable[..., None]):
        self._world = world
        self._rng = rng
        self._until = until

    def _preferred(self) -> dict[int, int]:
        """Return group -> preferred leader, of leaders that are nodes of the cluster and voters of
        their group."""
        world = self._world
        preferred = world.oracle.metadata.state.plans.preferred
        return {group: node for group, node in preferred.items() if node in world.nodes
                and node in world.state_checker.groups[group].configuration().voters}

    def _led_elsewhere(self, node: int) -> list[str]:
        """Return the groups that prefer the node and are not led by it, as texts."""
        return [f"g{group}" for group, preferred in self._preferred().items()
                if preferred == node and not self._world.nodes[node].view.leads(group)]

    def _not_handed_back(self, live: list[int]) -> list[str]:
        return [f"g{group} to n{node} by n{other}" for group, node in self._preferred().items()
                for other in live if node in live and other != node
                and self._world.nodes[other].view.leads(group)
                and self._world.nodes[other].view.will_hand_back(group, node)]

    def await_return(self, live: list[int]) -> None:
        """Run the cluster until no node of ``live`` is about to hand a group back to one that
        restarted lately. No-op without preferred leaders or while a plan is active. Raises
        ``Violation`` after ``BACK_MS``."""
        world = self._world
        if self._preferred() and not world.oracle.metadata.state.plans.active:
            world.run_for(2 * POLL_MS)  # until every node has checked which peers are up
            self._until(
                world.queue.now_ms + BACK_MS,
                lambda: not self._not_handed_back(live),
                lambda: f"groups that are not handed back: {self._not_handed_back(live)[:8]}",
            )

    def prove(self) -> None:
        """Restart the node that most groups prefer, and run the cluster until it leads them; no-op
        when no recovered node is preferred. Raises ``Violation`` after ``BACK_MS``."""
        world = self._world
        wanted = Counter(node for node in self._preferred().values()
                         if world.nodes[node].has_recovered)
        if not wanted:
            return
        number = max(wanted, key=lambda each: (wanted[each], -each))
        node = world.nodes[number]
        world.trace.line(number, -1, "phase", "goes down and returns to its groups")
        node.crash(power=False)
        world.run_for(self._rng.choice(DOWN_MS))
        node.start()
        world.run_for(2 * POLL_MS)
        self._until(world.queue.now_ms + BACK_MS, lambda: not self._led_elsewhere(number),
                    lambda: f"n{number} is back and does not lead what prefers it: "
                            f"{self._led_elsewhere(number)[:8]}")
        world.event_counts["leads again"] += 1
