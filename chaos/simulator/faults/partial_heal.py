"""Partial heal at the end of the faults: first a random quorum, later all nodes.

Contract.  ``choose`` draws the nodes that stay faulty, and their fault: off, on a disk that hangs,
or up and cut off in one direction or in both.  Every group can do without these nodes under each
configuration that is in a log.  ``apply`` makes them faulty; ``heal_rest`` heals them.

Theory.  A cluster in which all faults are healed makes progress even where a quorum alone would
wait for the other nodes.  Hence the quorum must converge beside nodes that disturb it
(TigerBeetle's VOPR, "liveness mode": a core is healed, faults of the others are permanent).  The
worst of them is a node that hears no other node and is heard: it asks for votes without end
(scenario S1).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import combinations
from typing import TYPE_CHECKING

from chaos.simulator.oracle.model import is_majority

if TYPE_CHECKING:
    from chaos.simulator.env.network import Link
    from chaos.simulator.ports import SimulationPort
    from multiraft.types import Configuration

OFF, HUNG, CUT, DEAF, MUTE = "off", "hung", "cut", "deaf", "mute"
#: Faults of the nodes that are not healed yet.
MODES = (OFF, HUNG, CUT, DEAF, MUTE)
#: Faults beside which an idle quorum quiesces.  A node that is up and cut off is asked twice a
#: second for the groups that it leads, by each node that lacks them: per pair, not per group.
SILENT = frozenset((OFF, HUNG))


class UnhealedMinority:
    """Nodes of one run that are healed last."""

    def __init__(self, world: SimulationPort, rng: random.Random):
        self._world = world
        self._rng = rng
        self.nodes: list[int] = []
        self.mode = ""

    def choose(self) -> None:
        """Draw the nodes that stay faulty and their fault; ``apply`` makes them faulty.

        None does while a node is damaged, because that node may need all others for copies, or to
        end its quarantines.
        """
        world, rng = self._world, self._rng
        world.atlas.refresh()
        mode = rng.choice(MODES)
        nodes = [] if world.atlas.damaged_nodes else self._draw()
        self.nodes, self.mode = nodes, mode if nodes else ""
        world.atlas.stay_down(nodes)
        world.event_counts[
            f"a quorum is well, the rest {mode}" if nodes else "everybody is well"
        ] += 1
        world.trace.line(0, -1, "phase", f"all are well but {nodes} {self.mode}".rstrip())

    def _draw(self) -> list[int]:
        """Return nodes that every group can do without together, as many as possible, at random;
        empty = none."""
        world = self._world
        minority = (world.parameters.replication_factor - 1) // 2
        for size in range(minority, 0, -1):
            choices = [[*nodes] for nodes in combinations(sorted(world.nodes), size)
                       if self._can_do_without(nodes)]
            if choices:
                return self._rng.choice(choices)
        return []

    def restart_damaged(self) -> None:
        """Kill and start the nodes with damage that no recovery has read."""
        self._world.atlas.refresh()
        for number in sorted(self._world.atlas.damaged_nodes & {*self._world.nodes}):
            self._world.nodes[number].crash(power=False)
            self._world.nodes[number].start()

    def fill_up(self) -> list[int]:
        """Propose one more step in each group that lacks voters and has no change open. Return the
        groups that still lack some, or whose change is open.

        Groups lose voters when the nemesis changes their members."""
        world = self._world
        wanted = world.parameters.replication_factor
        for node in world.nodes.values():
            for group in node.view.led_groups():
                present = node.view.configuration(group)
                if len(present.voters) < wanted and not present.outgoing:
                    node.boot.membership.set_members(group, *self._one_more(group, present))
        return [group for group, model in world.state_checker.groups.items()
                if len(model.configuration().voters) < wanted or model.configuration().outgoing]

    def _one_more(self, group: int,
                  present: Configuration) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return (voters, learners) of the next step: promote a learner, or add one."""
        voters, learners = present.voters, present.learners
        if learners:
            chosen = learners[group % len(learners)]
            return (tuple(sorted((*voters, chosen))),
                    tuple(node for node in learners if node != chosen))
        outside = [node for node in sorted(self._world.nodes) if node not in voters]
        return voters, (outside[group % len(outside)],)

    @property
    def healthy_nodes(self) -> list[int]:
        """Nodes of the cluster that do not stay faulty."""
        return [node for node in sorted(self._world.nodes) if node not in self.nodes]

    def keeps_off(self, node: int) -> bool:
        """True if the node stays off for now and must not be started; ``heal_rest`` starts it."""
        return self.mode == OFF and node in self.nodes

    def apply(self) -> None:
        """Make the drawn nodes faulty: crash them, hang their disks, or cut their links."""
        for number in self.nodes:
            node = self._world.nodes[number]
            node.resume()
            if self.mode == OFF:
                node.crash(power=True)
                continue
            node.start()
            if self.mode == HUNG:  # its network stays up: it must not disturb the quorum (S1)
                node.disk.hang()
        self._world.network.block(self._links())

    def heal_rest(self) -> None:
        """Heal and start the nodes that stayed faulty."""
        world = self._world
        world.trace.line(0, -1, "phase", f"{self.nodes} are well, too")
        world.network.unblock(self._links())
        world.atlas.stay_down(())
        for number in self.nodes:
            node = world.nodes[number]
            if self.mode == HUNG:
                node.disk.release()
            node.start()
        self.nodes, self.mode = [], ""

    def _links(self) -> list[Link]:
        """Return the links to and from healthy nodes that are cut."""
        links: list[Link] = []
        for faulty in self.nodes:
            if self.mode in (CUT, DEAF):
                links += [(healthy, faulty) for healthy in self.healthy_nodes]
            if self.mode in (CUT, MUTE):
                links += [(faulty, healthy) for healthy in self.healthy_nodes]
        return links

    def _can_do_without(self, nodes: Iterable[int]) -> bool:
        """True if each group has a majority without these nodes, under each configuration in a log.
        """
        left = [node for node in self._world.nodes if node not in nodes]
        return all(is_majority(configuration, left)
                   for group in self._world.state_checker.groups.values()
                   for configuration in group.configurations())
