"""Members of the simulated groups: what the nemesis makes of them, and what a node does about it.

Contract.  What is asked for is a pure function of the random stream and the present configuration,
never nobody.  Groups wander over all nodes, about as many voters as they began with, so that nodes
leave a group and come back to it.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence

from chaos.simulator.env.trace import Trace
from chaos.simulator.node.transport import Sending
from chaos.simulator.oracle.observer import StateChecker
from multiraft.errors import ProposalError
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Event
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.store import Store
from multiraft.types import Configuration

#: Of every group: none is created twice here.
INCARNATION = 1
#: Groups whose members change at a time.
CHANGES_AT_ONCE = 3
#: Groups to which one node returns at a time; pace and number of the steps that are tried.
RETURNS_AT_ONCE = 2
RETURN_US = 15_000
RETURN_STEPS = 60
#: While a change is open so many linearizable reads are asked for, one round after the other.
ASKED_MAX = 12

Members = tuple[tuple[int, ...], tuple[int, ...]]  # voters, learners
#: Asks the core for (group, voters, learners).  Raises ``ProposalError``.
Change = Callable[[int, tuple[int, ...], tuple[int, ...]], None]


def draw_members(rng: random.Random, present: Configuration, nodes: Sequence[int],
                 factor: int) -> Members:
    """What to change to."""
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
    """Change the members of some of the groups led here, if nobody's damage is in the way."""
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
    """(group, voters) of some groups led here that can do without ``peer`` for a while."""
    led = [group for group in raft.status.groups() if raft.status.is_leader(group)]
    for group in rng.sample(led, min(len(led), RETURNS_AT_ONCE)):
        voters = raft.status.of(group).configuration.voters
        if peer in voters and len(voters) > 2:
            yield group, voters


def return_step(raft: MultiRaft, group: int, peer: int, voters: tuple[int, ...],
                permits: Callable[[tuple[int, ...]], bool], change: Change) -> bool:
    """What is next for a voter that is removed and added again, if it is accepted now; whether
    there is more to do."""
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


def create_wanted(store: Store, raft: MultiRaft, witness: StateChecker, repairer: RepairCoordinator,
                  event: Event) -> None:
    """A leader has this node as a member, and there is no replica here: make an empty one, as the
    real node does (``node/replicas/lifecycle.py``)."""
    group, (incarnation, _, term, _) = event.group, event.fields
    if incarnation != INCARNATION or group in raft.status.groups():
        return
    if store.is_removed(group):
        if term < store.tombstone(group)[0]:
            return  # from before it was removed
    elif group in store.groups:
        return  # its tombstone is on its way
    restored = store.create_group(group, INCARNATION, Configuration(()))
    witness.created(raft.node, group, restored)
    raft.add_group(group, INCARNATION, restored, store.tails[group])
    repairer.created(group)


class Regrouping(Sending):
    """Part of ``SimulatedNode``."""

    def change_some(self, rng: random.Random) -> None:
        """Change the members of some of the groups led here."""
        if self._raft is not None and not self.paused:
            self.later(0, self._change, rng)

    def _change(self, rng: random.Random) -> None:
        present = [node for node in (self.node, *self._peers) if node in self._world.nodes]
        change_members(self._raft, rng, present,
                       self._world.parameters.replication_factor, self._world.atlas.permits,
                       self._ask_for, self._trace)
        self.request_round()

    def configuration(self, group: int) -> Configuration:
        """Of a group here, by its log."""
        return self._raft.status.of(group).configuration

    def set_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        """An operator asks for these members; it may be too early."""
        self.later(0, self._set_members, group, voters, learners)

    def _set_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        with contextlib.suppress(ProposalError):
            self._ask_for(group, voters, learners)
        self.request_round()

    def _ask_for(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...]) -> None:
        self._raft.change_members(group, voters, learners)
        self.members_changed(group)
        self._ask_soon(group, ASKED_MAX)

    def _ask_soon(self, group: int, left: int) -> None:
        """Ask when what the change sends first is on its way."""
        self.later(self._round_us + 1, self._ask_meanwhile, group, left)

    def _ask_meanwhile(self, group: int, left: int) -> None:
        """A linearizable read while the members of a group that is led here change, and again in
        the next round."""
        if not left or not self._raft.status.is_leader(group):
            return
        status = self._raft.status.of(group)
        if status.configuration.outgoing or status.configuration_index > status.commit:
            self._ask_index(group)
            self._marks["reads during a change of members"] += 1
            self._ask_soon(group, left - 1)
            self.request_round()

    def members_changed(self, group: int) -> None:
        """A leader here goes by others from now on; the round that tells of it is to come, and a
        fault that comes before it has to leave those alone whom the group needs now."""
        status = self._raft.status.of(group)
        self._witness.replica(self.node, group).adopt(status.configuration,
                                                      status.configuration_index)

    def return_some(self, peer: int, rng: random.Random) -> None:
        """Remove a voter of groups led here, and make it a voter again."""
        if self._raft is not None and not self.paused:
            for group, voters in groups_with(self._raft, peer, rng):
                self.later(0, self._return, group, peer, voters, RETURN_STEPS)

    def _return(self, group: int, peer: int, voters: tuple[int, ...], left: int) -> None:
        permits = self._world.atlas.permits
        if left and return_step(self._raft, group, peer, voters, permits, self._ask_for):
            self.later(RETURN_US, self._return, group, peer, voters, left - 1)
        self.request_round()

    def _ask_all(self) -> None:
        """Linearizable reads that waited for a process that was stopped, and that it sees before it
        hears how long that was: a lease would answer them wrongly."""
        if self._raft is not None:
            for group in self.led_groups():
                self._ask_index(group)
            self._round()

    def _ask_index(self, group: int) -> None:
        """A linearizable read, beside each fetch that reaches a leader."""
        if self._raft.status.is_leader(group):
            with contextlib.suppress(ProposalError):
                self._raft.read_index(group, self._witness.groups[group].commit)
                self._open_reads.asked(group)
