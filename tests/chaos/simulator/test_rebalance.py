"""Switches and rebalance plans in the simulator: they happen under all faults, and their invariants
are checked.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from admin_cli.plans.plan_input import requested
from chaos.checkers import check
from chaos.planted.bug import Bug, Seeds, planted
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import FAULT_KINDS, Parameters
from chaos.simulator.faults.rebalance import FOREVER_MS, send_command
from chaos.simulator.node.machine.coroutines import Future, start, together
from chaos.simulator.node.metadata.membership import INCARNATION
from chaos.simulator.node.rebalance import preferred_leaders
from chaos.simulator.node.rebalance.plan_controller import NodePlans
from chaos.simulator.oracle import metadata_oracle
from chaos.simulator.simulation import Result, Simulation
from multiraft.errors import ProposalError
from multiraft.wire import plans as wire
from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from placement.cluster import SNAPSHOT_FORMAT, GroupRow, NodeRow, Snapshot, checked
from placement.hashing import HASH_VERSION
from placement.planner import make_plan
from placement.policy import DISK, LEADERS, Band, Policy

FAULTS = ("kill", "transfer", "isolate-leader", "crash-midway", "partition-one", "pause",
          "power-loss", "channel-cut")
TOPICS = ("topic-create", "topic-delete", "topic-recreate")


def moving(seed: int, *kinds: str, nodes: int | None = None) -> Parameters:
    drawn = Parameters.draw(seed, nodes, groups=6, safety_ms=30_000)
    return dataclasses.replace(drawn, faults=kinds, fault_interval_ms=400)


def run_all(seeds, *kinds: str, nodes: int | None = None) -> list[Result]:
    results = [simulation.run(moving(seed, *kinds, nodes=nodes)) for seed in seeds]
    assert [f"seed {result.seed}: {result.failure}" for result in results if result.failure] == []
    return results


def summed(results: list[Result]) -> Counter[str]:
    return sum((result.event_counts for result in results), Counter())


def test_partitions_go_on_in_other_groups_under_faults():
    results = run_all(range(1, 5), "switch", "switch", *TOPICS, *FAULTS)
    assert sum(result.faults["switch"] for result in results) > 20
    assert all(sum(result.faults[kind] for result in results) for kind in TOPICS)
    assert summed(results)["switched"] >= 8
    assert summed(results)["switch waits"] > 0, "nothing ever stood in the way of one"


def test_plans_are_carried_out_cancelled_and_superseded_under_faults():
    results = run_all(range(1, 10), "plan", "plan", *FAULTS, nodes=5)
    event_counts = summed(results)
    for phase in ("learning", "joint", "grace", "done", "undoing", "cancelled", "transferring",
                  "switching"):
        assert event_counts[f"moves {phase}"], f"no move was ever {phase}: {event_counts}"
    assert len({result.digest for result in results}) == len(results)


def test_whoever_moves_something_dies_at_every_step_and_others_go_on():
    phases = (Phase.TRANSFERRING, Phase.SWITCHING, Phase.LEARNING, Phase.JOINT, Phase.GRACE,
              Phase.DONE)
    missing = {"asking for consent", "handing over a seal", "opening", "publishing", "PlanChange",
               "PlanTransfer", "DecideSwitch", *(f"StepMove {int(phase)}" for phase in phases)}
    event_counts = Counter()
    for seed in range(1, 31):
        event_counts += summed(
            run_all([seed], "plan", "plan", "switch", *["mover-crash"] * 6, nodes=5)
        )
        missing -= {mark.removeprefix("dies at ") for mark in event_counts}
        if not missing:
            break
    assert not missing
    assert event_counts["moves done"] > 5 and event_counts["switched"] > 5


def test_a_change_that_comes_once_more_later_changes_nothing(monkeypatch):
    once = NodePlans._change

    async def twice(self, request):
        self._node.later(500_000, lambda: start(once(self, request), self._node.later))
        return await once(self, request)

    monkeypatch.setattr(NodePlans, "_change", twice)
    event_counts = summed(run_all(range(1, 6), "plan", "plan", nodes=5))
    assert event_counts["plan changes"] > 10


def test_moves_leave_one_trace_whatever_the_hash_seed():
    program = ("from chaos.simulator import simulation\n"
               "from tests.chaos.simulator.test_rebalance import TOPICS, moving\n"
               "kinds = ('plan', 'plan', 'switch', 'switch', 'mover-crash', *TOPICS)\n"
               "result = simulation.run(moving(5, *kinds, nodes=5))\n"
               "print(result.digest, result.failure, sorted(result.event_counts.items()))\n")
    said = [subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3],
                           env={**os.environ, "PYTHONHASHSEED": hash_seed}, capture_output=True,
                           text=True, check=True).stdout for hash_seed in ("0", "4711")]
    assert said[0] == said[1] and "moves done" in said[0] and "switched" in said[0]


def test_the_checkers_agree_about_a_partition_that_moved():
    recording = Recording()
    result = simulation.run(
        moving(2, "switch", "switch", "kill", "isolate-leader"), history=recording
    )
    assert result.failure == "" and result.event_counts["switched"] >= 3
    assert check(recording.finish()).anomalies == []


#: Three of the five nodes hold all replicas, so most groups have to move.
GROUPS, HOLDERS = 20, (1, 2, 3)
#: Times at which the operator requests a plan until one is applied, and a throttle that slows it.
APPLY_US, AGAIN_US, THROTTLE = 4_000_000, 200_000, 20_000
LEVEL = Policy(bands=(Band(DISK, 100), Band(LEADERS, 100)), cool_down_ms=0)
#: Replicas of the node that has most of them, divided by the mean of all nodes.
SKEW_MAX = 1.25


class Rebalanced(Simulation):
    """Run in which a plan of the planner is applied amid the faults and never cancelled, and in
    which all nodes are healed afterwards.
    """

    def __init__(self, parameters: Parameters, history: Recording):
        super().__init__(parameters, history=history)
        self.topics._plan_end = wire.RESUME
        self.minority._draw = list
        self.left_at_heal = -1
        self.queue.after(APPLY_US, self._ask)

    @property
    def plan(self) -> ActivePlan | None:
        return self.oracle.metadata.state.plans.plan

    def _ask(self) -> None:
        if self.plan is None:
            if (snapshot := self._snapshot()) is not None:
                asked = requested(make_plan(snapshot, LEVEL), THROTTLE)
                send_command(self.nemesis.injector, metadata_oracle.apply_plan(
                    asked.plan_id, asked.scope, FOREVER_MS, self.queue.now_ms,
                    wire.PlanLimits(THROTTLE, 2, 2, 4, 4, 500, 0), asked.moves))
            self.queue.after(AGAIN_US, self._ask)

    def _snapshot(self) -> Snapshot | None:
        """Return the groups as their leaders see them, all of one size.

        None while some groups have no leader, or there are no metadata.
        """
        led = {group: node.view.status(group) for _, node in sorted(self.nodes.items())
               if node.is_up and not node.paused for group in node.view.led_groups()}
        state = self.oracle.metadata.state
        if len(led) < len(self.state_checker.groups) or not state.cluster_id:
            return None
        groups = tuple(
            GroupRow(group, INCARNATION, status.configuration_index, status.configuration.voters,
                     status.leader, status.configuration.learners, bytes=1000)
            for group, status in sorted(led.items()))
        return checked(Snapshot(
            SNAPSHOT_FORMAT, metadata_oracle.CLUSTER_ID.hex(), state.version, self.queue.now_ms,
            HASH_VERSION, self.parameters.seed, GROUPS, self.parameters.replication_factor, 0,
            tuple(NodeRow(node) for node in self.nodes), groups, ()))

    def heal(self) -> list[int]:
        self.left_at_heal = self.plan.left
        return super().heal()

    @property
    def skew(self) -> float:
        """Return the ratio of the committed placement."""
        held = Counter(node for group in self.state_checker.groups.values()
                       for node in group.configuration().voters)
        return max(held.values()) * len(self.nodes) / held.total()


def test_a_plan_that_is_carried_out_under_faults_leaves_the_nodes_level(monkeypatch):
    """S39: kills, partitions and slow disks alternate while clients work."""
    monkeypatch.setattr(simulation, "place_groups",
                        lambda parameters: dict.fromkeys(range(GROUPS + 1), HOLDERS))
    under_faults = behind_them = 0
    for seed in (1, 3, 6):
        drawn = Parameters.draw(seed, nodes=5, groups=GROUPS, safety_ms=30_000)
        recording = Recording()
        running = Rebalanced(dataclasses.replace(
            drawn, replication_factor=len(HOLDERS), fault_interval_ms=400,
            faults=(*FAULTS, "disk-slow", "topic-create")), recording)
        assert running.skew > SKEW_MAX
        running.run()
        plan = running.plan
        assert {record.phase for record in plan.records.values()} == {Phase.DONE}, f"seed {seed}"
        moved = sum(move.kind == wire.REPLICA_CHANGE for move in plan.moves.values())
        assert moved >= 0.3 * GROUPS
        assert running.skew <= SKEW_MAX, f"seed {seed}"
        assert check(recording.finish()).anomalies == [], f"seed {seed}"
        under_faults += len(plan.moves) - running.left_at_heal
        behind_them += running.left_at_heal
    assert under_faults > 5 and behind_them > 5


def test_a_chain_is_read_over_all_its_groups_at_the_end():
    running = Simulation(moving(3, "switch", "kill"))
    running.run()
    extents = running.topics.extents()
    chains = Counter(extent.partition for extent in extents)
    assert max(chains.values()) > 2
    for before, after in zip(extents, extents[1:]):
        assert before.partition != after.partition or before.end == after.start
    read = [end for node in running.nodes.values() if node.is_up
            for _, end in node.view.read_everything(extents, {})]
    assert sum(read) > 0


def test_all_seeds_may_draw_them():
    drawn = [Parameters.draw(seed).faults for seed in range(200)]
    for kind in ("switch", "plan"):
        assert kind in FAULT_KINDS
        assert 20 < sum(kind in faults for faults in drawn) < 180
    assert not any("plan" in faults and {"wipe", "rot-identity"} & {*faults} for faults in drawn)


# ---- invariants are checked ---------------------------------------------------------------------


def broken(bug: Bug, *kinds: str) -> str:
    with planted(bug):
        return " ".join(simulation.run(moving(seed, *kinds)).failure for seed in range(1, 5))


@pytest.mark.parametrize("old, new, found", [
    # The next group begins one offset too late: a hole.
    ("open_payload(sealed.epoch + 1, sealed.end_offset,",
     "open_payload(sealed.epoch + 1, sealed.end_offset + 1,", "goes on at"),
    # Stamps of the next group begin anew.
    ("base = max(0, sealed.leader_epoch + 1 - term)", "base = 0", "stamps from")])
def test_what_the_next_group_begins_with_is_compared(old, new, found):
    bug = Bug(
        "begins-elsewhere",
        "multiraft.partitions.records",
        "continue_payload",
        old,
        new,
        "",
        Seeds(),
    )
    assert "ExtentsFollow: partition" in (said := broken(bug, "switch")) and found in said


def test_voters_that_change_in_one_step_are_noticed():
    bug = Bug(
        "one-step",
        "multiraft.raft.joint_quorum",
        "enter_joint",
        "learners, configuration.voters)",
        "learners)",
        "",
        Seeds(),
    )
    with planted(bug):
        failures = [simulation.run(moving(seed, "plan", "plan", nodes=5)).failure
                    for seed in range(4, 7)]
    assert any("VotersChangeJointly" in failure for failure in failures), failures


def test_preferred_leaders_get_their_groups_back():
    event_counts = summed(run_all(range(2, 5), "plan", "plan", *FAULTS, nodes=5))
    assert event_counts["handed back"] > 3 and event_counts["leads again"] == 3


#: Bugs of the return of groups to preferred leaders, and the outage of the preferred node.
FORGETFUL = {
    "a quick restart is no return": (0, Bug(
        "no-return", "node.rebalance.preferred_leaders", "PreferredLeaders.check",
        "known if known[0] == life else (life, now_ms)",
        "known if known[0] else (life, now_ms)", "", Seeds())),
    "who led before it went down is owed nothing": (0, Bug(
        "led-once", "node.rebalance.preferred_leaders", "PreferredLeaders.check",
        "if self._up[node] == before.get(node)", "if True", "", Seeds())),
    "nobody is ever near enough": (200, Bug(
        "nobody", "node.rebalance.preferred_leaders", "PreferredLeaders._restore",
        "status.last_index - member.match > LAG_ENTRIES_MAX", "True", "", Seeds())),
}


@pytest.mark.parametrize("what", FORGETFUL)
def test_preferred_leaders_that_do_not_get_their_groups_back_are_noticed(what, monkeypatch):
    down_ms, bug = FORGETFUL[what]
    monkeypatch.setattr(preferred_leaders, "DOWN_MS", (down_ms,))
    with planted(bug):
        failures = (simulation.run(moving(seed, "plan", "plan", *FAULTS, nodes=5)).failure
                    for seed in range(1, 6))
        assert any("does not lead what prefers it" in failure or "not handed back" in failure
                   for failure in failures)


# ---- coroutines ---------------------------------------------------------------------------------


def test_a_coroutine_resumes_when_its_future_has_a_result_and_never_inside_that_call():
    events, said = [], []

    def later(_delay_us, callback, *arguments):
        events.append(lambda: callback(*arguments))

    async def waits(pending: Future) -> str:
        said.append(await pending)
        return "over"

    first, second = Future(), Future()
    start(waits(first), later, lambda value, error: said.append((value, error)))
    first.set_result("settled")
    first.set_result("again")
    assert said == [] and len(events) == 1
    events.pop()()
    assert said == ["settled", ("over", None)]

    async def both() -> None:
        await together([lambda: waits(first), lambda: waits(second)], later)

    start(both(), later, lambda value, error: said.append(error))
    error = ProposalError("no")
    second.set_error(error)
    while events:
        events.pop(0)()
    assert said[2:] == ["settled", error]


def test_a_plan_that_is_cancelled_beside_ill_nodes_may_go_on_while_others_sleep():
    """A move in its grace period was taken for work without a reason."""
    met = 0
    for seed in range(1, 60):
        running = Simulation(dataclasses.replace(moving(5, "plan", "plan", *FAULTS, nodes=5),
                                            replication_factor=3, seed=seed))
        converge, asleep = running.converge, running.check_quiescence

        def converged(live, running=running, converge=converge):
            nonlocal met
            converge(live)
            met += len(live) < len(running.nodes) and bool(running.topics.plan(all_nodes=True))

        def sleep(live, running=running, asleep=asleep):
            assert not running.topics.plan(all_nodes=True)
            asleep(live)

        running.converge, running.check_quiescence = converged, sleep
        running.run()
        if met == 2:
            break
    assert met, "no plan was under way any more"
