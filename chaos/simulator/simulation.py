"""One simulated run: a cluster, its clients and its nemesis, from a seed to a verdict.

Contract.  ``run(parameters)`` is a function of its parameters.  A run has three phases.

*Safety*: faults are on, and every invariant is checked after every effect.

*Liveness*: a partial heal.  A random quorum is healed while the rest stays faulty; then all nodes
are healed.  Where repair of damage needs all nodes first, the order is the other one: all nodes are
healed, and then a minority becomes faulty.  Each time, every group must lead, commit an append and
be equal on all its healthy replicas within ``CONVERGE_MS``.

*Quiescence*: without work no group has a timer, and no peer frame is sent.

Theory.  A cluster that does nothing is safe.  A run therefore ends with a proof of progress, as in
TigerBeetle's VOPR.
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
from chaos.simulator.clients.deletions import RecordDeletions
from chaos.simulator.clients.history import Recording
from chaos.simulator.clients.late_reader import LateReader
from chaos.simulator.clients.topics import Topics
from chaos.simulator.clients.workload import ClientView, Workload
from chaos.simulator.disk.corruption import FaultAtlas
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import SimulatedNetwork
from chaos.simulator.env.parameters import TOPIC_KINDS, Parameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.env.violations import Violation
from chaos.simulator.faults.disks_and_clocks import TRUSTED_SHIFT_MS
from chaos.simulator.faults.node_replacement import NodeReplacements
from chaos.simulator.faults.partial_heal import SILENT, UnhealedMinority
from chaos.simulator.faults.repeated_acks import RepeatedAcksCheck
from chaos.simulator.faults.restored_copies import RestoredCopies
from chaos.simulator.node.node import SimulatedNode
from chaos.simulator.node.rebalance.preferred_leaders import LeadershipReturnCheck
from chaos.simulator.oracle.command_oracle import CommandOracle
from chaos.simulator.oracle.invariants import PromisedLoss
from chaos.simulator.oracle.metadata_oracle import Extent
from chaos.simulator.oracle.model import GroupModel
from chaos.simulator.oracle.observer import StateChecker
from multiraft.types import METADATA_GROUP

#: Counter of runs that ended because relaxed durability lost what it may lose.
PROMISED_LOSS = "promised loss"
#: Before the first fault: long enough for first elections.
WARM_UP_MS = 1500
#: Limit for recovery after healing: a hundred leases.
CONVERGE_MS = 60_000
#: Learners and nodes that were down may lack some thousand entries.  With the smallest windows they
#: receive them one by one over a slow network.
CATCH_UP_MS = 600_000
#: Interval of the full checks of all parts while faults are on.
CHECK_MS = 5_000
#: Interval at which convergence is checked.
STEP_MS = 200
#: Groups must have quiesced after so long without work, and stay quiesced for as long again.
QUIESCENCE_MS = 5_000


@dataclass(slots=True)
class Result:
    """Outcome of one seed."""

    seed: int
    failure: str = ""
    digest: str = ""
    simulated_ms: int = 0
    cpu_seconds: float = 0.0  # CPU time of this process
    acked: int = 0
    reads: int = 0
    leader_changes: int = 0
    crashes: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    event_counts: Counter[str] = field(default_factory=Counter)
    trace_tail: list[str] = field(default_factory=list)


class Simulation:
    """All parts of one run, wired."""

    def __init__(self, parameters: Parameters, sink: Callable[[str], None] | None = None,
                 history: Recording | None = None, check_invariants: bool = True):
        self.parameters = parameters
        self.queue = EventQueue()
        self.trace = Trace(self.queue, sink)
        self.faults: Counter[str] = Counter() if history is None else history.faults
        self.event_counts: Counter[str] = Counter()  # events of consensus and recovery, by kind
        self.network = SimulatedNetwork(
            self.queue, self._rng("network"), parameters.network, self.faults
        )
        voters = place_groups(parameters)
        self.state_checker = StateChecker((GroupModel(group, members) for group, members
                                in voters.items()), check_invariants)
        self.oracle = CommandOracle(self.state_checker.groups[METADATA_GROUP])
        receivers: dict[int, Callable[[int, tuple], None]] = {}
        cluster = ClientView(self.queue, self.network, self.trace, self.state_checker, voters,
                          place_partitions(parameters), receivers)
        self.workload = Workload(cluster, parameters.workload, self._rng("workload"))
        if history is not None:
            self.workload.history, history.queue = history, self.queue
        self.nodes = {node: SimulatedNode(node, self, voters, self._rng(f"node {node}"))
                      for node in range(1, parameters.nodes + 1)}
        #: Nodes that lost their directory included: messages to them are dropped.
        self.everyone = dict(self.nodes)
        self._receivers = receivers
        self._register_all()
        self.atlas = FaultAtlas(self._rng("rot"), self.state_checker.groups, self.nodes.values())
        self.replacements = NodeReplacements(self, self._rng("wipes"))
        self.restored_copies = RestoredCopies(self, self._rng("copies"))
        watcher = Recording() if history is None else history
        self.nemesis = watcher.nemesis(self, self._rng("nemesis"))
        self.voters = voters
        self.topics = Topics(self, self._rng("topics"), self._rng("limits of retention"),
                             self._rng("growth of topics"))
        if TOPIC_KINDS & {*parameters.faults}:
            self.workload.topics = self.topics
            if parameters.has_retention:
                self.workload.late_reader = LateReader(self.queue, self.workload, self.topics,
                                                       self._rng("late reader"))
        self.deletions = RecordDeletions(self.workload, self._rng("deletions"))
        self.state_checker.on_log_start = self._raised
        self.minority = UnhealedMinority(self, self._rng("liveness"))
        self.leadership_returns = LeadershipReturnCheck(self, self._rng("returns"), self._until)
        self.repeated_acks = RepeatedAcksCheck(self, self._rng("relived"), self._until)
        self._commands = self._rng("commands")
        self._command_count = 0

    def _raised(self, partition: int, log_start: int, end: int) -> None:
        """Record that a log start is committed. Raises ``Violation`` unless a client has asked for
        it, or limits of retention allow it."""
        history = self.workload.history
        if history is not None:
            history.log_start(partition, log_start)
        limits = self.oracle.metadata.limits_of(partition)
        is_allowed = (log_start <= self.deletions.asked(partition) or limits.by_age
                      or limits.by_bytes
                      or limits.records is not None and end - log_start >= limits.records)
        if self.state_checker.is_judging and not is_allowed:
            raise Violation("OnlyLimitsDelete", f"the log start {log_start} of partition "
                            f"{partition}, which ends at {end}, is committed; limits {limits}")

    def _rng(self, part: str) -> random.Random:
        """Return the random stream of a part, a function of the seed and its name.  More draws by
        one part do not shift those of the others."""
        return random.Random(f"{self.parameters.seed}/{part}")

    def _register_all(self) -> None:
        """Draw a directory incarnation for each node, and register all of them at all nodes."""
        rng = self._rng("incarnations")
        for node in self.nodes.values():
            node.peers.incarnation = rng.getrandbits(62) + 1
        incarnations = {number: node.peers.incarnation for number, node in self.nodes.items()}
        for number, node in self.nodes.items():
            node.peers.register(incarnations)
            self._receivers[number] = node.receive_request

    def add_node(self, number: int) -> SimulatedNode:
        """Add a new node without replicas under this number to the cluster, and return it, not
        started."""
        node = SimulatedNode(number, self, {}, self._rng(f"node {number}"))
        self.nodes[number] = self.everyone[number] = node
        self._receivers[number] = node.receive_request
        return node

    def run_for(self, duration_ms: int) -> None:
        self.queue.run_until(self.queue.now_us + duration_ms * 1000)

    # ---- phases ----------------------------------------------------------------------------

    def run(self) -> None:
        """Run all phases.  Raises ``Violation`` or another ``AssertionError``."""
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
        self.converge(self.minority.healthy_nodes)
        if not self.minority.nodes:
            self._fail_minority()
        if self.minority.nodes:
            if self.minority.mode in SILENT and not self.topics.plan(all_nodes=True):
                self.leadership_returns.await_return(self.minority.healthy_nodes)
                self.check_quiescence(self.minority.healthy_nodes)
            self.minority.heal_rest()
        if self.workload.history is not None:
            self.workload.history.all_healed = True
        self.converge(self.minority.healthy_nodes)
        self.leadership_returns.prove()
        self.topics.stop()
        self.repeated_acks.prove(
            self.minority.healthy_nodes, self._lagging_replicas, self.queue.now_ms + CONVERGE_MS
        )
        self.leadership_returns.await_return(self.minority.healthy_nodes)
        self.check_quiescence(self.minority.healthy_nodes)

    def _fail_minority(self) -> None:
        """Make a minority faulty after full recovery, then converge without it.

        Called when the first heal had to include all nodes, because their copies or votes were
        needed.  A minority is dispensable as soon as all damage is repaired and each group has all
        its voters.
        """
        all_nodes, deadline_ms = self.minority.healthy_nodes, self.queue.now_ms + CONVERGE_MS
        self.minority.restart_damaged()
        self._until(deadline_ms, lambda: not self._unrepaired(all_nodes),
                    lambda: f"replicas that are not repaired: {self._unrepaired(all_nodes)[:8]}")
        deadline_ms = self.queue.now_ms + CATCH_UP_MS
        self._until(deadline_ms, lambda: not self.minority.fill_up(),
                    lambda: f"groups that get no more voters: {self.minority.fill_up()[:8]}")
        self._until(
            deadline_ms,
            lambda: not self._lagging_replicas(all_nodes),
            lambda: f"new voters that do not catch up: {self._lagging_replicas(all_nodes)[:8]}",
        )
        self.minority.choose()
        if self.minority.nodes:
            self.minority.apply()
            self.converge(self.minority.healthy_nodes)

    def _command_soon(self) -> None:
        """Schedule the next command for group 0; no-op once the faults are over."""
        if self.network.faulty:
            delay_us = 1 + int(self._commands.expovariate(self.parameters.commands_per_second)
                               * 1e6)
            self.queue.after(delay_us, self._command)

    def _command(self) -> None:
        if not self.network.faulty:
            return  # it was due after the end of the faults, when no more commands are proposed
        self._command_count += 1
        for node in self.nodes.values():
            if node.view.leads(METADATA_GROUP):
                node.boot.metadata.command(b"%d" % self._command_count)
        self._command_soon()

    def _safety(self) -> None:
        """Run the phase of faults; every ``CHECK_MS`` the nodes run their full checks."""
        left_ms = self.parameters.safety_ms
        while left_ms > 0:
            self.run_for(min(left_ms, CHECK_MS))
            left_ms -= CHECK_MS
            for node in self.nodes.values():
                node.view.check()

    def heal(self) -> list[int]:
        """End the load and all faults, except those of a minority if the atlas permits one. Run
        until nodes with a damaged identity file are replaced, and return the healthy nodes."""
        self.trace.line(0, -1, "phase", "heal")
        self.workload.stop()
        self.nemesis.stop()
        self.network.heal()
        self.minority.choose()
        for number, node in sorted(self.nodes.items()):
            node.fail_points.disarm()
            if number not in self.minority.nodes:
                node.resume()
                node.start()
        self.minority.apply()
        if self.parameters.has_retention:
            self._set_clocks()
        self._until(self.queue.now_ms + CONVERGE_MS, lambda: not self._unidentified(),
                    lambda: f"nodes that nobody replaces: {self._unidentified()}")
        return self.minority.healthy_nodes

    def _set_clocks(self) -> None:
        """Set all wall clocks to one time. It is later than the clocks in the logs, but for those
        of nodes that were wrong by an hour: a leader may otherwise have to wait before it can give
        the last batches an age."""
        clocks = [node.env.clock for node in self.nodes.values()]
        now_ms = max(clock.wall_ms for clock in clocks) + 2 * TRUSTED_SHIFT_MS
        for node in self.nodes.values():
            clock = node.env.clock
            clock.drift(1.0)
            clock.shift_ms += now_ms - clock.wall_ms
            node.clock_changed()

    def _unidentified(self) -> list[int]:
        """Return the nodes that are down with a damaged identity file, and which their next start
        replaces."""
        return [number for number, node in self.nodes.items()
                if node.damage.identity_is_rotten and not node.is_up]

    def converge(self, live: list[int]) -> None:
        """Run the cluster until every group commits and all replicas on the nodes ``live`` are
        equal, then check that they serve all committed records.

        Raises ``Violation`` when that takes longer than ``CONVERGE_MS`` per step, or
        ``CATCH_UP_MS`` for steps in which logs are copied.
        """
        deadline_ms = self.queue.now_ms + CONVERGE_MS
        self._until(deadline_ms, lambda: not self._unrepaired(live),
                    lambda: f"replicas that are not repaired: {self._unrepaired(live)[:8]}")
        self._until(
            deadline_ms + CATCH_UP_MS, lambda: self.replacements.is_done, self.replacements.describe
        )
        # A replacing node copies all logs; the time for that does not count for the next steps.
        deadline_ms = max(deadline_ms, self.queue.now_ms + CONVERGE_MS)
        if self.workload.topics is not None:
            self._end_plan(live, deadline_ms + CATCH_UP_MS)
            self._until(self.queue.now_ms + CONVERGE_MS, lambda: not self._unsettled(live),
                        lambda: f"topics: {self._unsettled(live)}")
            self.topics.check_metadata(live)
            # A throttled plan is slow; the time for it does not count for the next steps either.
            deadline_ms = max(deadline_ms, self.queue.now_ms + CONVERGE_MS)
        self._until(deadline_ms, lambda: self.workload.open_appends == 0,
                    lambda: f"{self.workload.open_appends} appends are never acknowledged: "
                            f"{self.workload.open_summary()}")
        self.workload.append_final()
        self._until(deadline_ms, lambda: self.workload.open_appends == 0,
                    lambda: f"groups that commit nothing after healing: "
                            f"{self.workload.open_summary()}")
        self._until(deadline_ms, lambda: not self._misplaced_replicas(live),
                    lambda: f"replicas that should not be: {self._misplaced_replicas(live)[:8]}")
        # Together: while the records of one replica are copied, another group may commit an entry.
        self._until(deadline_ms + CATCH_UP_MS, lambda: not self._behind(live),
                    lambda: f"replicas that do not catch up or lack records: "
                            f"{self._behind(live)[:8]}")
        self.state_checker.converged(live)
        self._find_unread_damage(live)
        self._compare(live)
        self.trace.line(0, -1, "phase", "converged")

    def _unsettled(self, live: list[int]) -> str:
        """Describe what is not complete of topics, or of log starts on the nodes of ``live``; "" =
        all is."""
        log_starts = self.state_checker.log_starts
        return self.topics.incomplete(live) or "; ".join(
            f"n{number} {text}" for number in live
            for text in self.nodes[number].view.unsettled(log_starts)[:4])

    def _end_plan(self, live: list[int], deadline_ms: int) -> None:
        """Run until no plan is active and every move that was started has ended. Raises
        ``Violation`` at the deadline.

        A plan that is being cancelled is not waited for while some nodes stay down, since it may
        need them.
        """
        all_nodes = len(live) == len(self.nodes)
        self._until(deadline_ms, lambda: not self.topics.plan(all_nodes),
                    lambda: f"a plan that does not end: {self.topics.plan(all_nodes)}")

    def _find_unread_damage(self, live: list[int]) -> None:
        """Read everything on each node of ``live`` once, and run until what these reads found
        damaged is repaired: no scrub reads the index files of segments."""
        log_starts = self.state_checker.log_starts
        for number in live:
            self.nodes[number].view.read_everything(self._extents(), log_starts)
        deadline_ms = self.queue.now_ms + CONVERGE_MS
        self._until(deadline_ms,
                    lambda: not self._unrepaired(live) and not self._incomplete(live),
                    lambda: f"damage that readers found: {self._unrepaired(live)[:8]} "
                            f"{self._incomplete(live)[:8]}")

    def _compare(self, live: list[int]) -> None:
        """Raise ``Violation`` unless each node of ``live`` serves all committed records."""
        committed = {partition.partition: partition.next_offset
                     for group in self.state_checker.groups.values()
                     for partition in group.partitions.values()}
        log_starts = self.state_checker.log_starts
        for number in live:
            node = self.nodes[number]
            node.view.check()
            for extent, end in node.view.read_everything(self._extents(), log_starts):
                expected = committed.get(extent.partition, 0) if extent.end is None else extent.end
                if end != expected:
                    raise Violation("ReplicasAgree", f"n{number} serves partition "
                                    f"{extent.partition} from {extent.start} in g{extent.group} up "
                                    f"to {end}, committed are {expected}")

    def _behind(self, live: list[int]) -> list[str]:
        """Describe the replicas on ``live`` that lack committed entries or records."""
        return self._lagging_replicas(live) or self._incomplete(live)

    def _incomplete(self, live: list[int]) -> list[str]:
        """Describe the replicas on ``live`` that lack records."""
        return [f"n{number} {text}" for number in live
                for text in self.nodes[number].view.incomplete()]

    def _extents(self) -> list[Extent]:
        """Return all extents that clients can read, those of topics last."""
        plain = [Extent(partition, group, 0, None) for group, partitions
                 in self.workload.partitions.items() for partition in partitions]
        return plain + self.topics.extents()

    def _unrepaired(self, live: list[int]) -> list[str]:
        """Describe the nodes of ``live`` with damage that is not found and repaired."""
        return [f"n{number} {self.nodes[number].view.under_repair()}" for number in live
                if not self.nodes[number].is_whole]

    def _believed_copying(self, live: list[int]) -> list[str]:
        """Describe the members on ``live`` that lack records as far as their leaders know."""
        return [f"n{number} takes n{member} of g{group} for incomplete" for number in live
                for group, member in self.nodes[number].view.incomplete_members()
                if member in live]

    def _unknown_leaders(self, live: list[int]) -> list[str]:
        """Describe the nodes of ``live`` that do not know the leader of a group."""
        leaders = {group: number for number in live
                   for group in self.nodes[number].view.led_groups()}
        return [f"n{number} takes n{hint} for the leader of g{group}, it is "
                f"n{leaders.get(group, 0)}"
                for number in live for group in self.voters
                if (hint := self.nodes[number].view.hint(group)) != leaders.get(group, -1)]

    def _lagging_replicas(self, live: list[int]) -> list[str]:
        """Describe the replicas on ``live`` that are not at the last committed entry of their
        group.
        """
        found = []
        for number, group in self.state_checker.groups.items():
            for node in group.configuration().members():
                replica = group.replica(node)
                if node in live and (replica.applied != group.commit
                                     or replica.durable.last_index != group.commit):
                    found.append(f"n{node} g{number} ends at {replica.durable.last_index}, applied "
                                 f"{replica.applied}, committed {group.commit}")
        return found

    def _misplaced_replicas(self, live: list[int]) -> list[str]:
        """Describe the nodes of ``live`` whose replicas do not match the members of a group. A
        member has no replica, or a node that is no member has one."""
        found = []
        for number, group in self.state_checker.groups.items():
            members = group.configuration().members()
            found += [f"n{node} g{number} members {members}" for node in live
                      if (number in self.nodes[node].view.groups) != (node in members)]
        return found

    def _until(self, deadline_ms: int, holds: Callable[[], bool],
               complaint: Callable[[], str]) -> None:
        while not holds():
            if self.queue.now_ms >= deadline_ms:
                raise Violation("Liveness", complaint())
            self.run_for(STEP_MS)

    def check_quiescence(self, live: list[int]) -> None:
        """Run for ``QUIESCENCE_MS``, then check for as long again that the nodes ``live`` have no
        timers and send no peer frames without work. Raises ``Violation`` when they do, a leader is
        unknown, or a read is unanswered.

        A leader that has lost the report of a member's last copies asks seldom, and first."""
        self._until(self.queue.now_ms + CONVERGE_MS, lambda: not self._believed_copying(live),
                    lambda: f"members that copy nothing any longer: "
                            f"{self._believed_copying(live)[:8]}")
        self.run_for(QUIESCENCE_MS)
        unknown = self._unknown_leaders(live)
        if unknown:
            raise Violation("LeadersAreKnown", "; ".join(unknown[:6]))
        unanswered = [text for node in live for text in self.nodes[node].view.unanswered()]
        if unanswered:
            raise Violation("ReadsAreAnswered", f"nobody confirms {unanswered[:8]}")
        before = sum(self.nodes[node].env.counters.peer_frames for node in live)
        self.run_for(QUIESCENCE_MS)
        sent = sum(self.nodes[node].env.counters.peer_frames for node in live) - before
        active = [text for node in live for text in self.nodes[node].view.describe_active()]
        if sent or active:
            raise Violation(
                "Sleep",
                f"{sent} peer frames in {QUIESCENCE_MS} ms without work; awake: {active[:8]}",
            )
        self.trace.line(0, -1, "phase", "quiesced")


def place_groups(parameters: Parameters) -> dict[int, tuple[int, ...]]:
    """Return group -> voters, placed round robin.  Group 0 of the state machine comes in addition
    to the groups with partitions.
    """
    nodes = parameters.nodes
    return {group: tuple(sorted((group + place) % nodes + 1
                                for place in range(parameters.replication_factor)))
            for group in range(METADATA_GROUP, parameters.groups + 1)}


def place_partitions(parameters: Parameters) -> dict[int, tuple[int, ...]]:
    """Return group -> incarnations of its partitions."""
    return {group: tuple(group * 100 + place
                         for place in range(1, parameters.partitions_per_group + 1))
            for group in range(1, parameters.groups + 1)}


def run(parameters: Parameters, sink: Callable[[str], None] | None = None,
        history: Recording | None = None, check_invariants: bool = True) -> Result:
    """Run one seed and return its result. ``Result.failure`` describes a broken invariant, or
    another of ``DEFECTS`` in any part; other exceptions are raised. "" = neither, also of a run
    that ended early because relaxed durability lost what it may (``PROMISED_LOSS`` in
    ``event_counts``).

    ``sink`` gets every line of the trace; ``history`` records requests and replies of clients.
    ``check_invariants`` False switches off the simulator's own judgement, for a run whose history
    other checkers judge.
    """
    started = time.process_time()
    world = Simulation(parameters, sink, history, check_invariants)
    result = Result(parameters.seed)
    collecting = gc.isenabled()
    gc.disable()  # a run makes few cycles, and a collection would traverse all of its memory
    try:
        world.run()
    except PromisedLoss as loss:
        world.trace.line(0, -1, "lost", str(loss))
        world.event_counts[PROMISED_LOSS] += 1
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
    result.leader_changes = world.state_checker.leader_changes - world.state_checker.first_leaders
    result.crashes = sum(node.env.counters.crashes for node in world.nodes.values())
    result.faults = world.faults
    result.event_counts = world.event_counts
    result.trace_tail = list(world.trace.tail)
    return result
