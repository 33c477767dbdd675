"""One run: a cluster, its clients and its nemesis, from a seed to a verdict.

Contract.  ``run(parameters)`` is a function of its parameters.  Phases: *safety* (faults on, every
invariant after every effect), *liveness* (a random quorum is healed, the rest stays ill, then
everybody is healed; where damage needs all of them first, everybody is healed and then a minority
falls ill: each time every group must lead, commit an append and be equal on all its replicas that
are well, within ``CONVERGE_MS``), *sleep* (with nothing to do no group has a timer and no peer
frame is sent).

Theory.  Safety without liveness is kept by a cluster that does nothing; so a run ends with
progress, as TigerBeetle's VOPR does.
"""

from __future__ import annotations

import gc
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.defects import DEFECTS
from chaos.simulator.clients.history import Recording
from chaos.simulator.clients.topics import Topics
from chaos.simulator.clients.workload import Cluster, Workload
from chaos.simulator.disk.corruption import FaultAtlas
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import Network
from chaos.simulator.env.parameters import TOPIC_KINDS, Parameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.env.violations import Violation
from chaos.simulator.faults.node_replacement import Wipes
from chaos.simulator.faults.partial_heal import SILENT, Remainder
from chaos.simulator.faults.repeated_acks import Relived
from chaos.simulator.faults.restored_copies import Copies
from chaos.simulator.node.metadata_group import StateTruth
from chaos.simulator.node.node import SimulatedNode
from chaos.simulator.node.preferred_leaders import Returns
from chaos.simulator.oracle.invariants import PromisedLoss
from chaos.simulator.oracle.metadata_oracle import Extent
from chaos.simulator.oracle.model import GroupModel
from chaos.simulator.oracle.observer import StateChecker
from multiraft.types import METADATA_GROUP

#: Before the first fault: long enough for first elections.
WARM_UP_MS = 1500
#: After healing, everything must be well again within this: a hundred leases.
CONVERGE_MS = 60_000
#: Learners and nodes that were away may lack some thousand entries, and get them one by one over a
#: network that takes its time.
CATCH_UP_MS = 600_000
#: How often the parts check themselves in full while faults are on.
CHECK_MS = 5_000
#: How often convergence is looked at.
STEP_MS = 200
#: Groups must have gone to sleep after this long without work, and stay asleep as long again.
SLEEP_MS = 5_000


@dataclass(slots=True)
class Result:
    """What came of a seed."""

    seed: int
    failure: str = ""
    digest: str = ""
    simulated_ms: int = 0
    cpu_seconds: float = 0.0  # of this process: on a core of its own, the time it took
    acked: int = 0
    reads: int = 0
    leader_changes: int = 0
    crashes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    trace_tail: list[str] = field(default_factory=list)


class World:
    """All parts of one run, wired."""

    def __init__(self, parameters: Parameters, sink: Callable[[str], None] | None = None,
                 history: Recording | None = None, judged: bool = True):
        self.parameters = parameters
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        self.faults: Counter[str] = Counter() if history is None else history.faults
        self.marks: Counter[str] = Counter()  # events of consensus and recovery, by kind
        self.network = Network(self.queue, self._rng("network"), parameters.network, self.faults)
        voters = place_groups(parameters)
        self.witness = StateChecker((GroupModel(group, members) for group, members
                                in voters.items()), judged)
        self.truth = StateTruth(self.witness.groups[METADATA_GROUP])
        receivers: dict[int, Callable[[int, tuple], None]] = {}
        cluster = Cluster(self.queue, self.network, self.trace, self.witness, voters,
                          place_partitions(parameters), receivers)
        self.workload = Workload(cluster, parameters.workload, self._rng("workload"))
        if history is not None:
            self.workload.history, history.queue = history, self.queue
        self.nodes = {node: SimulatedNode(node, self, voters, self._rng(f"node {node}"))
                      for node in range(1, parameters.nodes + 1)}
        #: Those that lost their directory, too: what is sent to them goes nowhere.
        self.everyone = dict(self.nodes)
        self._receivers = receivers
        self._introduce()
        self.atlas = FaultAtlas(self._rng("rot"), self.witness.groups, self.nodes.values())
        self.wipes = Wipes(self, self._rng("wipes"))
        self.copies = Copies(self, self._rng("copies"))
        watcher = Recording() if history is None else history
        self.nemesis = watcher.nemesis(self, self._rng("nemesis"))
        self.voters = voters
        self.topics = Topics(self, self._rng("topics"))
        if TOPIC_KINDS & {*parameters.faults}:
            self.workload.topics = self.topics
        self.remainder = Remainder(self, self._rng("liveness"))
        self.returns = Returns(self, self._rng("returns"), self._until)
        self.relived = Relived(self, self._rng("relived"), self._until)
        self._commands = self._rng("commands")
        self._command_count = 0

    def _rng(self, part: str) -> random.Random:
        """A stream of its own for each part: more draws in one do not shift the others."""
        return random.Random(f"{self.parameters.seed}/{part}")

    def _introduce(self) -> None:
        """The first hour is over: each node knows the directories of the others."""
        rng = self._rng("incarnations")
        for node in self.nodes.values():
            node.incarnation = rng.getrandbits(62) + 1
        for number, node in self.nodes.items():
            node.know({other: self.nodes[other].incarnation for other in self.nodes})
            self._receivers[number] = node.receive_request

    def add_node(self, number: int) -> SimulatedNode:
        """A node without replicas, not started."""
        node = SimulatedNode(number, self, {}, self._rng(f"node {number}"))
        self.nodes[number] = self.everyone[number] = node
        self._receivers[number] = node.receive_request
        return node

    def run_for(self, duration_ms: int) -> None:
        self.queue.run_until(self.queue.now_us + duration_ms * 1000)

    # ---- phases ----------------------------------------------------------------------------

    def run(self) -> None:
        """All phases.  Raises ``Violation`` or another ``AssertionError``."""
        for node in self.nodes.values():
            node.start()
        self.run_for(WARM_UP_MS)
        self.workload.start()
        self.nemesis.start()
        self._command_soon()
        if self.workload.topics is not None:
            self.topics.start()
        self._safety()
        self.heal()
        self.converge(self.remainder.others)
        if not self.remainder.nodes:
            self._fall_ill()
        if self.remainder.nodes:
            if self.remainder.way in SILENT and not self.topics.plan(everybody=True):
                self.returns.settle(self.remainder.others)
                self.sleep(self.remainder.others)
            self.remainder.lift()
        if self.workload.history is not None:
            self.workload.history.settled = True
        self.converge(self.remainder.others)
        self.returns.prove()
        self.topics.rest()
        self.relived.prove(self.remainder.others, self._unequal, self.queue.now_ms + CONVERGE_MS)
        self.returns.settle(self.remainder.others)
        self.sleep(self.remainder.others)

    def _fall_ill(self) -> None:
        """A minority that was needed a while ago, for its copies or for its votes, may be ill as
        soon as all damage is met and each group has all its voters."""
        everybody, deadline_ms = self.remainder.others, self.queue.now_ms + CONVERGE_MS
        self.remainder.restart_damaged()
        self._until(deadline_ms, lambda: not self._broken(everybody),
                    lambda: f"replicas that are not repaired: {self._broken(everybody)[:8]}")
        deadline_ms = self.queue.now_ms + CATCH_UP_MS
        self._until(deadline_ms, lambda: not self.remainder.fill_up(),
                    lambda: f"groups that get no more voters: {self.remainder.fill_up()[:8]}")
        self._until(deadline_ms, lambda: not self._unequal(everybody),
                    lambda: f"new voters that do not catch up: {self._unequal(everybody)[:8]}")
        self.remainder.choose()
        if self.remainder.nodes:
            self.remainder.apply()
            self.converge(self.remainder.others)

    def _command_soon(self) -> None:
        """Commands for group 0 as long as there are faults."""
        if self.network.faulty:
            delay_us = 1 + int(self._commands.expovariate(self.parameters.commands_per_second)
                               * 1e6)
            self.queue.after(delay_us, self._command)

    def _command(self) -> None:
        if not self.network.faulty:
            return  # it was due after the end of the faults: nothing more is asked for
        self._command_count += 1
        for node in self.nodes.values():
            if node.leads(METADATA_GROUP):
                node.command(b"%d" % self._command_count)
        self._command_soon()

    def _safety(self) -> None:
        """The phase of faults, with the parts' own full checks now and then."""
        left_ms = self.parameters.safety_ms
        while left_ms > 0:
            self.run_for(min(left_ms, CHECK_MS))
            left_ms -= CHECK_MS
            for node in self.nodes.values():
                node.check()

    def heal(self) -> list[int]:
        """End all faults but those of a minority, if there may be one; who is well from now on."""
        self.trace.line(0, -1, "phase", "heal")
        self.workload.stop()
        self.nemesis.stop()
        self.network.heal()
        self.remainder.choose()
        for number, node in sorted(self.nodes.items()):
            node.disarm()
            if number not in self.remainder.nodes:
                node.resume()
                node.start()
        self.remainder.apply()
        self._until(self.queue.now_ms + CONVERGE_MS, lambda: not self._unidentified(),
                    lambda: f"nodes that nobody replaces: {self._unidentified()}")
        return self.remainder.others

    def _unidentified(self) -> list[int]:
        """Nodes in whose place another one comes when they start."""
        return [number for number, node in self.nodes.items()
                if node.identity_is_rotten and not node.is_up]

    def converge(self, live: list[int]) -> None:
        """Within ``CONVERGE_MS`` every group commits and all live replicas are equal."""
        deadline_ms = self.queue.now_ms + CONVERGE_MS
        self._until(deadline_ms, lambda: not self._broken(live),
                    lambda: f"replicas that are not repaired: {self._broken(live)[:8]}")
        self._until(deadline_ms + CATCH_UP_MS, lambda: self.wipes.is_done, self.wipes.describe)
        # Whoever comes in a node's place needs all of its logs; what follows does not wait for it.
        deadline_ms = max(deadline_ms, self.queue.now_ms + CONVERGE_MS)
        if self.workload.topics is not None:
            self._end_plan(live, deadline_ms + CATCH_UP_MS)
            self._until(self.queue.now_ms + CONVERGE_MS, lambda: not self.topics.unsettled(live),
                        lambda: f"topics: {self.topics.unsettled(live)}")
            self.topics.settled(live)
            # A plan may take its time as well, as its throttle is.
            deadline_ms = max(deadline_ms, self.queue.now_ms + CONVERGE_MS)
        self._until(deadline_ms, lambda: self.workload.open_appends == 0,
                    lambda: f"{self.workload.open_appends} appends are never acknowledged: "
                            f"{self.workload.open_summary()}")
        self.workload.append_final()
        self._until(deadline_ms, lambda: self.workload.open_appends == 0,
                    lambda: f"groups that commit nothing after healing: "
                            f"{self.workload.open_summary()}")
        self._until(deadline_ms, lambda: not self._lingering(live),
                    lambda: f"replicas that should not be: {self._lingering(live)[:8]}")
        self._until(deadline_ms + CATCH_UP_MS, lambda: not self._unequal(live),
                    lambda: f"replicas that do not catch up: {self._unequal(live)[:8]}")
        self.witness.converged(live)
        self._compare(live)
        self.trace.line(0, -1, "phase", "converged")

    def _end_plan(self, live: list[int], deadline_ms: int) -> None:
        """Every move that was begun ends; what needs a node that stays down is cancelled at
        least."""
        everybody = len(live) == len(self.nodes)
        self._until(deadline_ms, lambda: not self.topics.plan(everybody),
                    lambda: f"a plan that does not end: {self.topics.plan(everybody)}")

    def _compare(self, live: list[int]) -> None:
        """Every live node serves everything that is committed."""
        committed = {partition.partition: partition.next_offset
                     for group in self.witness.groups.values()
                     for partition in group.partitions.values()}
        for number in live:
            node = self.nodes[number]
            node.check()
            for extent, end in node.read_everything(self._extents()):
                expected = committed.get(extent.partition, 0) if extent.end is None else extent.end
                if end != expected:
                    raise Violation("ReplicasAgree", f"n{number} serves partition "
                                    f"{extent.partition} from {extent.start} in g{extent.group} up "
                                    f"to {end}, committed are {expected}")

    def _extents(self) -> list[Extent]:
        """All that clients can read, those of topics last."""
        plain = [Extent(partition, group, 0, None) for group, partitions
                 in self.workload.partitions.items() for partition in partitions]
        return plain + self.topics.extents()

    def _broken(self, live: list[int]) -> list[str]:
        """Live nodes with damage that is not found and repaired."""
        return [f"n{number} {self.nodes[number].under_repair()}" for number in live
                if not self.nodes[number].is_whole]

    def _strangers(self, live: list[int]) -> list[str]:
        """Live nodes that do not know who leads a group."""
        leaders = {group: number for number in live
                   for group in self.nodes[number].led_groups()}
        return [f"n{number} takes n{self.nodes[number].hint(group)} for the leader of g{group}, "
                f"it is n{leaders.get(group, 0)}"
                for number in live for group in self.voters
                if self.nodes[number].hint(group) != leaders.get(group, -1)]

    def _unequal(self, live: list[int]) -> list[str]:
        """Live replicas that are not at their group's last committed entry."""
        found = []
        for number, group in self.witness.groups.items():
            for node in group.configuration().members():
                replica = group.replica(node)
                if node in live and (replica.applied != group.commit
                                     or replica.durable.last_index != group.commit):
                    found.append(f"n{node} g{number} ends at {replica.durable.last_index}, applied "
                                 f"{replica.applied}, committed {group.commit}")
        return found

    def _lingering(self, live: list[int]) -> list[str]:
        """Live nodes with replicas of groups of which they are no members, or without those of
        which they are."""
        found = []
        for number, group in self.witness.groups.items():
            members = group.configuration().members()
            found += [f"n{node} g{number} members {members}" for node in live
                      if (number in self.nodes[node].groups) != (node in members)]
        return found

    def _until(self, deadline_ms: int, holds: Callable[[], bool],
               complaint: Callable[[], str]) -> None:
        while not holds():
            if self.queue.now_ms >= deadline_ms:
                raise Violation("Liveness", complaint())
            self.run_for(STEP_MS)

    def sleep(self, live: list[int]) -> None:
        """With nothing to do, nothing is done."""
        self.run_for(SLEEP_MS)
        strangers = self._strangers(live)
        if strangers:
            raise Violation("LeadersAreKnown", "; ".join(strangers[:6]))
        unanswered = [text for node in live for text in self.nodes[node].unanswered()]
        if unanswered:
            raise Violation("ReadsAreAnswered", f"nobody confirms {unanswered[:8]}")
        before = sum(self.nodes[node].peer_frames for node in live)
        self.run_for(SLEEP_MS)
        sent = sum(self.nodes[node].peer_frames for node in live) - before
        awake = [text for node in live for text in self.nodes[node].awake()]
        if sent or awake:
            raise Violation("Sleep", f"{sent} peer frames in {SLEEP_MS} ms without work; awake: "
                            f"{awake[:8]}")
        self.trace.line(0, -1, "phase", "asleep")


def place_groups(parameters: Parameters) -> dict[int, tuple[int, ...]]:
    """Group -> voters, round robin; group 0, of the state machine, beside those with partitions."""
    nodes = parameters.nodes
    return {group: tuple(sorted((group + place) % nodes + 1
                                for place in range(parameters.replication_factor)))
            for group in range(METADATA_GROUP, parameters.groups + 1)}


def place_partitions(parameters: Parameters) -> dict[int, tuple[int, ...]]:
    """Group -> incarnations of its partitions."""
    return {group: tuple(group * 100 + place
                         for place in range(1, parameters.partitions_per_group + 1))
            for group in range(1, parameters.groups + 1)}


def run(parameters: Parameters, sink: Callable[[str], None] | None = None,
        history: Recording | None = None, judged: bool = True) -> Result:
    """Run one seed to its verdict: a broken invariant, an unexpected error of any part, or none.
    ``history`` is told what clients ask and are told; ``judged``: not so when only that is to be
    judged, by others."""
    started = time.process_time()
    world = World(parameters, sink, history, judged)
    result = Result(parameters.seed)
    collecting = gc.isenabled()
    gc.disable()  # a run makes few cycles, and looks for them in all that it remembers
    try:
        world.run()
    except PromisedLoss as loss:
        world.trace.line(0, -1, "lost", str(loss))
        world.marks["promised loss"] += 1
    except DEFECTS as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        result.failure = (f"{type(error).__name__}: {error}\n    at {where.name}, "
                          f"{where.filename}:{where.lineno}")
    finally:
        result.cpu_seconds = time.process_time() - started
        if collecting:
            gc.enable()
    result.digest = world.trace.digest()
    result.simulated_ms = world.queue.now_ms
    result.acked = world.workload.acked
    result.reads = world.workload.reads
    result.leader_changes = world.witness.leader_changes - world.witness.first_leaders
    result.crashes = sum(node.crashes for node in world.nodes.values())
    result.faults = world.faults
    result.marks = world.marks
    result.trace_tail = list(world.trace.tail)
    return result
