"""Nemeses of operators: members, leaders and placements of partitions change all the time."""

from __future__ import annotations

import tempfile
from pathlib import Path

from chaos import faults
from chaos.backends.backend import LEADERSHIP, MEMBERSHIP, PLACEMENT, BackendError
from chaos.nemeses.nemesis import Loop, Strike
from multiraft.client import blocking

#: Nodes beyond the first ones: groups move there and back.
EXTRA_NODES = 2
#: Timeout of a command, which may end in the middle of a move; the next command continues the move.
MOVE_S = 15.0
JOIN_S = 30.0
#: Loads are measured for so long before a plan is made, and replicas copied at these rates.
WINDOW_S = "0.5"
RATES = ("4MiB", "64MiB")
#: A paused plan stays paused for at most this long.
PAUSED_S = 3.0


class LeaderChurn(Loop):
    """Leadership is transferred to a random voter, however far behind that voter is."""

    name, kind = faults.LEADERS.nemesis, LEADERSHIP

    def plan(self) -> Strike:
        return Strike([], "leadership is handed over again and again")

    def step(self) -> None:
        rows = [row for row in self.field.ask(lambda client: client.group_list()) or []
                if row.leader and len(row.voters) > 1]
        if not rows:
            raise BackendError("no node names a leader")
        row = self.rng.choice(rows)
        to = self.rng.choice([node for node in row.voters if node != row.leader])
        if self.field.ask(lambda client: client.group_transfer(row.group, to)) is None:
            raise BackendError(f"group {row.group} is not handed over now")


class SwitchChurn(Loop):
    """Partitions are switched to other groups; the nemesis does not wait for the end of a
    switch."""

    name, kind = faults.SWITCHES.nemesis, PLACEMENT
    pause_s = (0.05, 0.5)

    def plan(self) -> Strike:
        return Strike([], "partitions are switched to other groups")

    def step(self) -> None:
        if self.field.ask(self._switch) is None:
            raise BackendError("no partition is switched now")

    def _switch(self, client: blocking.Client) -> bool:
        topics = client.list_topics()
        if not topics:
            return False
        row = self.rng.choice(client.explain_placement(self.rng.choice(topics).name))
        last = row.epoch_history[-1]
        others = [group for group in range(1, self.backend.spec.groups + 1) if group != last.group]
        client.switch_partition(row.incarnation, last.epoch + 1, self.rng.choice(others))
        return True


class PlanChurn(Loop):
    """Plans are made and applied, and cancelled, paused or throttled half way, while leaders drift:
    a plan drains one node, balances all nodes, or repairs the replicas of a dead node.  The nemesis
    does not wait for the end of a plan."""

    name, kind = faults.PLANS.nemesis, PLACEMENT
    pause_s = (0.0, 1.5)

    def plan(self) -> Strike:
        return Strike([], "plans are applied and cancelled")

    def step(self) -> None:
        spec, nodes = self.backend.spec, self.backend.nodes()
        choice = self.rng.random()
        if len(nodes) <= spec.replication_factor and choice < 0.5:
            self.backend.add_node(JOIN_S)  # otherwise there is no node to move replicas to
        elif choice < 0.7:
            self._apply(nodes)
        elif choice < 0.85:
            self.backend.command("rebalance", "cancel", timeout_s=MOVE_S)
        elif choice < 0.93:
            self.backend.command("rebalance", "throttle", self.rng.choice(RATES),
                                 timeout_s=MOVE_S)
        else:
            self.backend.command("rebalance", "pause", timeout_s=MOVE_S)
            self.wait(self.rng.uniform(0, PAUSED_S))
            self.backend.command("rebalance", "resume", timeout_s=MOVE_S)

    def _apply(self, nodes: list[int]) -> None:
        """Make and apply one plan, drawn at random: it drains a node of ``nodes``, transfers
        leaders, balances everything, or repairs the replicas of a dead node. A repair runs before
        the plan that is under way."""
        what = self.rng.choice((("--drain", str(self.rng.choice(nodes))), ("--scope", "leaders"),
                                ("--scope", "repair"), ()))
        with tempfile.TemporaryDirectory(prefix="multiraft-plan-churn-") as directory:
            path = str(Path(directory) / "plan.json")
            self.backend.command("rebalance", "plan", *what, "--window", WINDOW_S, "--output", path,
                                 timeout_s=MOVE_S)
            self.backend.command("rebalance", "apply", path, "--yes", "--throttle",
                                 self.rng.choice(RATES), timeout_s=MOVE_S)


class MemberChurn(Loop):
    """Nodes join, replicas move to them and back, empty nodes are removed."""

    name, kind = faults.MEMBERS.nemesis, MEMBERSHIP
    pause_s = (0.0, 1.0)

    def plan(self) -> Strike:
        return Strike([], "nodes join and leave, replicas move")

    def step(self) -> None:
        extra = [node for node in self.backend.nodes() if node > self.backend.spec.nodes]
        choice = self.rng.random()
        if len(extra) < EXTRA_NODES and (not extra or choice < 0.1):
            self.backend.add_node(JOIN_S)
        elif choice < 0.7:
            self._move()
        else:
            self._remove(extra)

    def _move(self) -> None:
        rows = [row for row in self.field.ask(lambda client: client.group_list()) or []
                if row.group and row.voters]
        if not rows:
            raise BackendError("no node lists the groups")
        row = self.rng.choice(rows)
        targets = [node for node in self.backend.nodes() if node not in row.voters]
        if targets:
            self.backend.command("group", "move", str(row.group), "--from",
                                 str(self.rng.choice(row.voters)), "--to",
                                 str(self.rng.choice(targets)), timeout_s=MOVE_S)

    def _remove(self, extra: list[int]) -> None:
        """Move all replicas of the node of ``extra`` with the fewest to other nodes, then remove
        it; a node that has replicas would be refused. With more replicas no turn would be long
        enough.

        Returns with the node in place when a replica has no other place, or the nemesis is healed.
        Raises ``BackendError`` when a command fails.
        """
        rows = [row for row in self.field.ask(lambda client: client.group_list()) or []
                if row.group]
        if not rows:
            raise BackendError("no node lists the groups")
        node = min(extra, key=lambda node: sum(node in row.voters for row in rows))
        for row in rows:
            if node in row.voters:
                target = next((other for other in self.backend.nodes()
                               if other not in row.voters), None)
                if target is None:
                    return
                self.backend.command("group", "move", str(row.group), "--from", str(node), "--to",
                                     str(target), timeout_s=MOVE_S)
                if self.wait(0):
                    return
        self.backend.remove_node(node, JOIN_S)
