"""A cluster as the controller sees it, without consensus: groups whose members change as asked.

Contract.  ``Cluster`` takes what ``decide`` wants done, refuses what names an old configuration, as
a leader does, and lets time pass: learners catch up, changes commit, leaders move.  Every change of
members is checked for what must never happen.  All chance comes from one ``random.Random``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from multiraft.wire.plans import ALIVE, REPLICA_CHANGE, ProbedGroup, ProbedMember
from node.metadata.plan_commands import StepMove
from node.metadata.plan_table import PlanTable
from node.rebalance.actions import Change, StepTo, Switch, Transfer
from node.rebalance.cluster_view import ClusterView, SeenNode, SeenPartition
from node.rebalance.scheduler import decide, subjects
from tests.node.rebalance.cases import CLUSTER

POLL_MS = 250


@dataclass
class Group:
    """One group; the log is a number."""

    id: int
    voters: tuple[int, ...]
    leader: int
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    conf_index: int = 0
    last_index: int = 2_000
    is_open: bool = False
    match: dict[int, int] = field(default_factory=dict)

    def change(self, action: Change) -> str:
        """As a leader: why not, or nothing."""
        if action.expected_index != self.conf_index or self.is_open:
            return "another configuration"
        joining = [node for node in action.voters if node not in self.voters]
        for node in joining:
            if node not in self.learners or self.match[node] < self.conf_index \
                    or self.last_index - self.match[node] > 1_024:
                return f"node {node} is no learner that has nearly everything"
        if ({*action.voters}, {*action.learners}) == ({*self.voters}, {*self.learners}):
            raise AssertionError("these are the members: nothing should be asked")
        assert action.voters, "a group needs voters"
        assert not {*action.voters} & {*action.learners}
        self.last_index += 1
        self.conf_index = self.last_index
        if {*action.voters} != {*self.voters}:
            self.outgoing = self.voters
        self.voters, self.learners = action.voters, action.learners
        self.is_open = True
        for node in (*self.voters, *self.learners):
            self.match.setdefault(node, 0)
        return ""

    def pass_time(self, rng: random.Random, up) -> None:
        """Entries are appended, copied and committed, if there is a majority."""
        if self.leader not in up:
            return
        self.last_index += rng.randrange(30)
        for node in (*self.voters, *self.learners, *self.outgoing):
            if node in up:
                left = self.last_index - self.match.get(node, 0)
                self.match[node] = self.match.get(node, 0) + min(left, rng.randrange(600))
        halves = [half for half in (self.voters, self.outgoing) if half]
        if self.is_open and all(2 * sum(node in up for node in half) > len(half)
                                for half in halves) and rng.random() < 0.7:
            self._commit(up)

    def _commit(self, up) -> None:
        if self.outgoing:
            self.outgoing = ()
            self.last_index += 1
            self.conf_index = self.last_index
            return
        self.is_open = False
        if self.leader not in self.voters:
            self.leader = next(node for node in self.voters if node in up)
        members = (*self.voters, *self.learners)
        self.match = {node: index for node, index in self.match.items() if node in members}

    def elect(self, rng: random.Random, up) -> None:
        """Elect one of the voters that are up."""
        able = [node for node in self.voters if node in up]
        if 2 * len(able) > len(self.voters):
            self.leader = rng.choice(able)

    def looked(self) -> ProbedGroup:
        """As its leader tells."""
        members = tuple(ProbedMember(node, "replicate", self.match.get(node, 0),
                                     (self.last_index - self.match.get(node, 0)) * 100)
                        for node in dict.fromkeys((*self.voters, *self.learners, *self.outgoing))
                        if node != self.leader)
        return ProbedGroup(self.id, 1, self.conf_index, self.is_open, self.voters, self.learners,
                           self.outgoing, self.last_index, self.last_index * 100, 0, members)


class Cluster:
    """Groups, nodes, the plan, and its controller."""

    def __init__(self, seed: int, groups: dict[int, Group], nodes: int):
        self.rng = random.Random(seed)
        self.groups = groups
        self.up = set(range(1, nodes + 1))
        self.nodes = range(1, nodes + 1)
        self.desired_states: dict[int, str] = {}  # what the operator wants of nodes
        self.disks: dict[int, tuple[int, int]] = {}  # node -> bytes used, of all that there are
        self.replication_factor = 3
        self.partitions: dict[int, SeenPartition] = {}
        self.table = PlanTable()
        self.now_ms = 0
        self.late: list = []  # actions that are still on their way
        self.asked = 0
        self._since: dict[int, tuple] = {}

    # ---- the controller -------------------------------------------------------------------------

    def look(self, faults: bool) -> None:
        """One look of the controller, and some time."""
        self.now_ms += POLL_MS
        plan = self.table.active
        if plan is not None:
            if faults and self.rng.random() < 0.1:
                self._since = {}  # another one takes over
            for action in decide(plan, self.view(*subjects(plan))).actions:
                if faults and self.rng.random() < 0.2:
                    continue  # lost, or the controller was killed before it
                self.do(plan, action)
                if faults and self.rng.random() < 0.2:
                    self.late.append((plan, action))  # it comes once more, some time
        self.table._check()
        while faults and self.late and self.rng.random() < 0.3:
            self.do(*self.late.pop(self.rng.randrange(len(self.late))))
        for group in self.groups.values():
            group.pass_time(self.rng, self.up)
            if faults and self.rng.random() < 0.05 or group.leader not in self.up:
                group.elect(self.rng, self.up)

    def do(self, plan, action) -> None:
        """Carry out an action as the controller does."""
        self.asked += 1
        if isinstance(action, StepTo):
            self.table.step(StepMove(plan.plan_id, action.seq, action.attempt, int(action.phase),
                                     action.source, action.reason, self.now_ms))
        elif isinstance(action, Change):
            group = self.groups[action.group]
            if group.leader == action.leader and group.leader in self.up:
                group.change(action)
        elif isinstance(action, Transfer):
            group = self.groups[action.group]
            if action.to in group.voters and action.to in self.up and group.leader in self.up \
                    and self.rng.random() < 0.8:
                group.leader = action.to
        else:
            assert isinstance(action, Switch)
            place = self.partitions[action.partition]
            if place.epoch + 1 == action.epoch:
                self.partitions[action.partition] = SeenPartition(action.to_group, action.epoch, 0,
                                                                  0)

    def view(self, groups, partitions) -> ClusterView:
        """Return the observations of these groups and partitions."""
        seen, leaders, unreachable = {}, {}, {}
        for group in groups:
            leader = self.groups[group].leader
            if leader in self.up:
                seen[group] = self.groups[group].looked()
                leaders[group] = leader
            else:
                unreachable[group] = f"group {group} has no leader"
        nodes = {node: SeenNode(node, "up" if node in self.up else "down",
                                self.desired_states.get(node, ALIVE), *self.disks.get(node, (0, 0)))
                 for node in self.nodes}
        plan = self.table.active
        phases = {seq: (plan.records[seq].attempt, plan.records[seq].phase)
                  for seq in (plan.under_way if plan is not None else ())}
        self._since = {seq: self._since[seq] if seq in self._since
                       and self._since[seq][0] == phase else (phase, self.now_ms)
                       for seq, phase in phases.items()}
        waited = {seq: self.now_ms - since for seq, (_, since) in self._since.items()}
        known = {partition: self.partitions.get(partition) for partition in partitions}
        return ClusterView(nodes, seen, leaders, unreachable, known, (), waited, {},
                     self.replication_factor)

    # ---- the end --------------------------------------------------------------------------------

    def finish(self, looks_max: int = 4_000) -> None:
        """Without faults from now on, until the plan is over."""
        self.up = set(self.nodes)
        self.late.clear()
        for _ in range(looks_max):
            if self.table.active is None and not any(group.is_open
                                                     for group in self.groups.values()):
                return
            self.look(faults=False)
        raise AssertionError(f"not over after {looks_max} looks: {self.table.snapshot()}")

    def apply(self, command):
        """Begin a plan."""
        return self.table.apply(command, CLUSTER)

    def check_ended(self) -> None:
        """Assert the state that a plan leaves at its end."""
        for seq, record in self.table.plan.records.items():
            move = self.table.plan.moves[seq]
            if move.kind != REPLICA_CHANGE:
                continue
            group = self.groups[move.subject]
            wanted = move.new if record.phase.name == "DONE" else move.old
            assert {*group.voters} == {*wanted}, f"{move.move_id} is {record}: {group}"
            assert not group.learners and not group.outgoing, f"{move.move_id}: {group}"
