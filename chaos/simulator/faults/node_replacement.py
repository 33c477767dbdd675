"""Nodes that lose their directory, and the operator who replaces each by a new node.

Contract.  ``wipe`` ends a node and its disk permanently, and starts another node under an unused
id.  In each group the operator adds the new node as a learner, promotes it, and removes the lost
one; at each check it takes the next possible step (as ``multiraft node replace``).  The lost node
is removed when no configuration of any log contains it.  A node that is started under the old id
with an empty directory must be refused (``node/peers/peers.py``).

Safety.  One copy of everything is lost for good, so one node is replaced at a time.  It is wiped
only if every group can do without it under every configuration that is in a log, in spite of other
nodes' damage (``corruption.FaultAtlas``).  Nothing else is damaged until the node is replaced.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.types import Configuration

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode
    from chaos.simulator.ports import SimulationPort

#: Interval of the operator's checks.
CHECK_US = 300_000
#: Range of the delay from the loss to the start of the new node, and of the old one.
START_US = (50_000, 1_500_000)
#: Range of the delay until a node learns that another one was registered or removed.
NOTICE_US = (1_000, 600_000)
#: Probability that the old node is started again with an empty directory.
RESTARTED_EMPTY = 0.6
#: Probability that a lost voter is removed before the new node becomes a voter.
REMOVED_FIRST = 0.3


class NodeReplacements:
    """Replacements of one run, one at a time."""

    def __init__(self, world: SimulationPort, rng: random.Random):
        self._world = world
        self._rng = rng
        self._lost = self._new = 0  # 0 = no node is being replaced
        self._removed_first = False
        self._groups_to_join: set[int] = set()  # groups in which the new node must become a voter

    @property
    def is_done(self) -> bool:
        """True if no node is being replaced: every lost node is replaced and removed."""
        return not self._lost

    def describe(self) -> str:
        """Describe the replacement under way, and the groups in which it is not finished."""
        left = [number for number, group in self._world.state_checker.groups.items()
                if self._lost in group.configuration().members()]
        return (f"n{self._lost} is not replaced by n{self._new}: it is in groups {left[:8]}, the "
                f"new one is no voter of {sorted(self._groups_to_join)[:8]}")

    def may_wipe(self, node: SimulatedNode) -> bool:
        """True if the cluster must survive the loss of this node's disk now; False while another
        node is being replaced."""
        return self.is_done and self._world.atlas.may_lose(node.node)

    def wipe(self, node: SimulatedNode, put_back: Callable[[], None] | None = None) -> None:
        """End a node and its disk, add a new one under an unused id, and schedule its start and the
        operator's checks. The old one may be started again with its empty disk, and must be
        refused.

        ``put_back`` replaces the disk by an older copy instead of emptying it. ``may_wipe`` must
        allow it.
        """
        world, lost = self._world, node.node
        self._lost, self._new = lost, max(world.everyone) + 1
        self._removed_first = self._rng.random() < REMOVED_FIRST
        self._groups_to_join = {number for number, group in world.state_checker.groups.items()
                      if lost in group.configuration().voters}
        how = "wiped" if put_back is None else "put back"
        world.trace.line(lost, -1, "fault", f"{how}, n{self._new} comes in its place")
        node.crash(power=True)
        if put_back is None:
            node.lose_directory(self._rng.getrandbits(62))
        else:
            put_back()
        del world.nodes[lost]
        world.atlas.lose(lost)
        world.state_checker.wiped(lost)
        new = world.add_node(self._new)
        new.peers.incarnation = self._rng.getrandbits(62) + 1
        world.workload.replace_node(lost, self._new)
        self._after(START_US, self._register, new)
        if put_back is None and self._rng.random() < RESTARTED_EMPTY:
            self._after(START_US, node.start)
        world.queue.after(CHECK_US, self._check)

    def _after(self, bounds_us: tuple[int, int], callback, *arguments) -> None:
        self._world.queue.after(self._rng.randrange(*bounds_us), callback, *arguments)

    def _register(self, new: SimulatedNode) -> None:
        """Register the new node and start it; the other nodes learn of it after delays of their
        own.
        """
        for number, other in sorted(self._world.everyone.items()):
            if other is not new and not other.peers.is_lost:
                new.add_peer(number, other.peers.incarnation)
                self._after(NOTICE_US, other.add_peer, new.node, new.peers.incarnation)
        new.start()

    # ---- the operator ----------------------------------------------------------------------

    def _check(self) -> None:
        """Propose the next step in each group, and check again later. Once the new node has become
        a voter in place of the lost one everywhere, and no configuration contains the lost node,
        end the replacement instead: the other nodes remove the lost one from their peers."""
        world, lost = self._world, self._lost
        for node in list(world.nodes.values()):
            if node.is_up and not node.paused:
                for group in node.view.led_groups():
                    present = node.view.configuration(group)
                    wanted = self._next_members(group, present)
                    if wanted != (present.voters, present.learners) and not present.outgoing:
                        node.boot.membership.set_members(group, *wanted)
        if not self._groups_to_join and self._is_removed(lost):
            self._remove(lost)
        else:
            world.queue.after(CHECK_US, self._check)

    def _next_members(self, group: int,
              present: Configuration) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (voters, learners) of the next step of the replacement in a group; the present
        ones when it is done. Consensus may refuse the step as too early."""
        lost, new = self._lost, self._new
        voters, learners = present.voters, present.learners
        if lost in learners:
            return voters, tuple(node for node in learners if node != lost)
        left = tuple(node for node in voters if node != lost)
        if new in self._world.state_checker.groups[group].configuration().voters:
            self._groups_to_join.discard(group)
        if group not in self._groups_to_join or (
            lost in voters and self._removed_first and len(left) > 1
        ):
            return left, learners
        if new not in learners:
            return voters, (*learners, new)
        return (*left, new), tuple(node for node in learners if node != new)

    def _is_removed(self, lost: int) -> bool:
        """True if no configuration of any group that is committed or in a log contains the node."""
        for group in self._world.state_checker.groups.values():
            if any(lost in {*each.members(), *each.outgoing} for each in group.configurations()):
                return False
        return True

    def _remove(self, lost: int) -> None:
        """End the replacement; the other nodes remove the lost one from their peers permanently,
        after delays of their own."""
        world = self._world
        world.trace.line(lost, -1, "replaced", f"by n{self._new}")
        world.event_counts["replaced"] += 1
        world.atlas.replaced(lost)
        self._lost = 0
        for _, node in sorted(world.everyone.items()):
            if not node.peers.is_lost:
                self._after(NOTICE_US, node.remove_peer, lost)
