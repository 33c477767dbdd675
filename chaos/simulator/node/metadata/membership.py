"""Membership changes of the simulated groups: random changes of the nemesis, and their execution.

Contract.  The next members are a pure function of the random stream and the present configuration;
there is always a voter.  Groups wander over all nodes with about as many voters as they began with,
so that nodes leave a group and return to it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from chaos.simulator.env.trace import Trace
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.peers.peers import PeerTable
from multiraft.errors import ProposalError
from multiraft.raft.multi_raft import MultiRaft
from multiraft.types import Configuration
from node.clients.read_index import ReadIndexRequests

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: Incarnation of every group; the simulator creates no group twice.
INCARNATION = 1
#: Groups whose members one fault changes.
CHANGES_AT_ONCE = 3
#: Groups that one fault removes a node from and adds it to again; interval and number of the tries.
RETURNS_AT_ONCE = 2
RETURN_US = 15_000
RETURN_STEPS = 60
#: Linearizable reads during an open change, one round after the other.
READS_MAX = 12

Members = tuple[tuple[int, ...], tuple[int, ...]]  # voters, learners
#: Proposes (group, voters, learners) to the core.  Raises ``ProposalError``.
Change = Callable[[int, tuple[int, ...], tuple[int, ...]], None]


def draw_members(rng: random.Random, present: Configuration, nodes: Sequence[int],
                 factor: int) -> Members:
    """Draw (voters, learners) of the next configuration of a group; ``factor``: the number of
    voters to keep about."""
    voters, learners = list(present.voters), list(present.learners)
    outsiders = [node for node in sorted(nodes) if node not in present.members()]
    kinds = ["add"] * 3 * bool(outsiders) + ["promote", "swap", "swap", "drop"] * bool(learners)
    if len(voters) >= factor or (len(voters) > 1 and rng.random() < 0.2):
        kinds += ["remove", "demote"]
    kind = rng.choice(kinds or ["demote"])
    if kind == "add":
        learners.append(rng.choice(outsiders))
    elif kind == "promote":
        voters += learners
        learners = []
    elif kind == "swap":
        voters[rng.randrange(len(voters))] = learners.pop(rng.randrange(len(learners)))
    elif kind == "drop":
        learners.pop(rng.randrange(len(learners)))
    elif kind == "remove":
        del voters[rng.randrange(len(voters))]
    else:
        learners.append(voters.pop(rng.randrange(len(voters))))
    return tuple(voters), tuple(learners)


def change_members(raft: MultiRaft, rng: random.Random, nodes: Sequence[int], factor: int,
                   permits: Callable[[tuple[int, ...]], bool], change: Change,
                   trace: Trace) -> None:
    """Propose by ``change`` a random change of members in some groups led here, where
    ``permits(voters)`` allows it in spite of damage. A refusal of the core is traced and
    ignored."""
    led = [group for group in raft.status.groups() if raft.status.is_leader(group)]
    for group in rng.sample(led, min(len(led), CHANGES_AT_ONCE)):
        wanted = draw_members(rng, raft.status.of(group).configuration, nodes, factor)
        if not permits(wanted[0]):
            continue
        trace.line(raft.node, group, "fault", f"members {wanted}")
        try:
            change(group, *wanted)
        except ProposalError as error:
            trace.line(raft.node, group, "refused", str(error))


def groups_with(raft: MultiRaft, peer: int,
                rng: random.Random) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield (group, voters) of some groups led here that have the voter ``peer`` and can do without
    it for a while."""
    led = [group for group in raft.status.groups() if raft.status.is_leader(group)]
    for group in rng.sample(led, min(len(led), RETURNS_AT_ONCE)):
        voters = raft.status.of(group).configuration.voters
        if peer in voters and len(voters) > 2:
            yield group, voters


def return_step(raft: MultiRaft, group: int, peer: int, voters: tuple[int, ...],
                permits: Callable[[tuple[int, ...]], bool], change: Change) -> bool:
    """Try the next step for the voter ``peer``, which is removed and added again; return True if
    steps are left. False also when this node leads the group no longer; a step that is not
    permitted or is refused is left for the next call."""
    if not raft.status.is_leader(group):
        return False
    present = raft.status.of(group).configuration
    others = tuple(node for node in voters if node != peer)
    if not permits(voters if peer in present.learners else others):
        return True
    with contextlib.suppress(ProposalError):
        if peer in present.learners:
            change(group, voters, ())
            return False
        change(group, others, () if peer in present.voters else (peer,))
    return True


class MembershipChanges:
    """Membership changes of one boot."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, process: ProcessScheduler,
                 rounds: RoundQueue, raft: MultiRaft, peers: PeerTable,
                 confirmations: ReadIndexRequests):
        self._env = env
        self._cluster = cluster
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._peers = peers
        self._confirmations = confirmations

    def change_some(self, rng: random.Random) -> None:
        """Schedule random changes of the members of some of the groups led here."""
        self._process.later(0, self._change, rng)

    def _change(self, rng: random.Random) -> None:
        present = [node for node in (self._env.node, *self._peers.peers)
                   if node in self._cluster.nodes]
        change_members(self._raft, rng, present,
                       self._env.parameters.replication_factor, self._cluster.atlas.permits,
                       self._propose_members, self._env.trace)
        self._rounds.request()

    def configuration(self, group: int) -> Configuration:
        """Return the configuration in force of a group by this node's log, which must have a
        replica."""
        return self._raft.status.of(group).configuration

    def set_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        """Schedule a proposal of these members like an operator's; the core may refuse, when it is
        too early."""
        self._process.later(0, self._set_members, group, voters, learners)

    def _set_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        with contextlib.suppress(ProposalError):
            self._propose_members(group, voters, learners)
        self._rounds.request()

    def _propose_members(
        self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]
    ) -> None:
        self._raft.change_members(group, voters, learners)
        self.members_changed(group)
        self._read_soon(group, READS_MAX)

    def _read_soon(self, group: int, left: int) -> None:
        """Schedule up to ``left`` linearizable reads, the first after the first messages of the
        change."""
        self._process.later(self._rounds.round_us + 1, self._read_during_change, group, left)

    def _read_during_change(self, group: int, left: int) -> None:
        """Start a linearizable read while a change of a group led here is open, and again in the
        next rounds, ``left`` times at most."""
        if not left or not self._raft.status.is_leader(group):
            return
        status = self._raft.status.of(group)
        if status.configuration.outgoing or status.configuration_index > status.commit:
            self._confirmations.ask(group, lambda _confirmed: None)
            self._env.event_counts["reads during a change of members"] += 1
            self._read_soon(group, left - 1)
            self._rounds.request()

    def members_changed(self, group: int) -> None:
        """Report the configuration that a leader on this node uses from now on to the state
        checker, which the fault atlas reads.

        Its messages leave in the next round. A fault before that round has to spare the nodes that
        the group needs under this configuration."""
        status = self._raft.status.of(group)
        self._env.state_checker.replica(self._env.node, group).adopt(status.configuration,
                                                                  status.configuration_index)

    def return_some(self, peer: int, rng: random.Random) -> None:
        """Remove the voter ``peer`` from some groups led here, and make it a voter again, step by
        step."""
        for group, voters in groups_with(self._raft, peer, rng):
            self._process.later(0, self._return, group, peer, voters, RETURN_STEPS)

    def _return(self, group: int, peer: int, voters: tuple[int, ...], left: int) -> None:
        permits = self._cluster.atlas.permits
        if left and return_step(self._raft, group, peer, voters, permits, self._propose_members):
            self._process.later(RETURN_US, self._return, group, peer, voters, left - 1)
        self._rounds.request()
