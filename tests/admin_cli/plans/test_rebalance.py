"""`multiraft rebalance` and the node commands that make plans, against a cluster that is a dict."""

from __future__ import annotations

import contextlib
import json
import re
import time
from pathlib import Path

import pytest

from admin_cli.console.output import plural
from admin_cli.failures import CommandFailed
from admin_cli.plans import plan_input, plan_view, plan_words, rebalance
from multiraft.wire import errors as wire_errors
from multiraft.wire import plans as wire
from placement import plan as plans
from placement.cluster import NodeRow
from placement.planner import make_plan
from tests.admin_cli.fakes import FakeClient, FakeCluster
from tests.placement.clusters import MIB, STRICT, grown, nodes
from tests.placement.clusters import cluster as loaded

LIMITS = wire.PlanLimits(50_000_000)
IDLE = wire.PlanStatusReply("", "", "none", "", 0, 9, LIMITS, 0, 0, 0, 0, -1, (), (), (), "")
BUSY = IDLE._replace(
    plan_id="ab" * 32, scope="all", state="running", moves_total=3, bytes_total=4 << 30,
    bytes_done=1 << 30, rate=10 << 20, eta_ms=307_000,
    phases=(wire.PhaseCount("done", 1), wire.PhaseCount("learning", 1),
            wire.PhaseCount("pending", 1)),
    moves=(wire.MoveStatus(2, "replicas:g7", wire.REPLICA_CHANGE, "learning", 0, 5, 2 << 30,
                           1 << 30, "OVERLOAD", "node 4 lacks 1,073,741,824 bytes", (1, 2, 3),
                           (2, 3, 4)),),
    nodes=(wire.NodeTraffic(4, 1, 0),))


class PlanCluster(FakeCluster):
    """Node 1 leads all groups; what plans ask is noted."""

    def __init__(self):
        super().__init__()
        self.leaders = dict.fromkeys(range(5), 1)
        self.status = IDLE
        self.desired_states: dict[int, str] = {}
        self.requests: list = []
        self.refusal: Exception | None = None
        self.plan_refusal: Exception | None = None  # of plans alone
        self.statuses: list = []  # that come before ``status``, one at a time
        self.conf_index = 7
        self.stays = ""  # state of a plan that no control changes
        self.moved_ms = 0  # when a plan moved groups and partitions last
        self.appended: dict[int, int] = {}  # to each group between two looks
        self.read_bytes: dict[int, int] = {}  # of each group, more by so much at every look
        self.looks = 0
        self.disk = (5 << 20, 1 << 40)  # bytes of each node's data directory, and of its disk

    def connect(self, addresses):
        super().connect(addresses)
        return PlanClient(self)


class PlanClient(FakeClient):
    """The part of the client that plans need."""

    def plan_request(self, request):
        cluster = self._cluster
        cluster.requests.append(request)
        if isinstance(request, wire.PlacementFacts):
            active = cluster.status.plan_id if cluster.status.state == "running" else ""
            return wire.PlacementFactsReply(
                bytes(range(16)).hex(),
                17,
                4,
                3,
                5,
                0,
                tuple(wire.DesiredState(*item) for item in cluster.desired_states.items()),
                (),
                (),
                active,
            )
        if isinstance(request, wire.PlanStatus):
            return cluster.statuses.pop(0) if cluster.statuses else cluster.status
        if cluster.refusal is not None:
            raise cluster.refusal
        if isinstance(request, wire.SetNodeState):
            cluster.desired_states[request.node] = request.state
            return wire.SetNodeStateReply()
        if isinstance(request, wire.ControlPlan):
            state = "running" if request.action == wire.RESUME else "paused"
            return wire.ControlPlanReply("ab" * 32, cluster.stays or state)
        assert isinstance(request, wire.ApplyPlan)
        if cluster.plan_refusal is not None:
            raise cluster.plan_refusal
        return wire.ApplyPlanReply(request.plan_id, "running")

    def group_loads(self, address, timeout_ms=0):
        node = int(address[-1])
        self._cluster.looks += 1
        groups = tuple(wire.GroupLoad(group, 1, self._cluster.conf_index, False, (1, 2, 3), (),
                                      (1 << 20) + self._cluster.looks *
                                      self._cluster.appended.get(group, 0), 100,
                                      self._cluster.looks *
                                      self._cluster.read_bytes.get(group, 0),
                                      self._cluster.moved_ms)
                       for group, leader in self._cluster.leaders.items() if leader == node)
        return [wire.GroupLoadsReply(node, 5, *self._cluster.disk, groups)]

    def partition_loads(self, groups, address, timeout_ms=0):
        self._cluster.looks += 1
        return [wire.PartitionLoad(10 * group + number, "t", 10 * group + number, group, 1, 0,
                                   self._cluster.looks, self._cluster.moved_ms)
                for group in groups if group in self._cluster.appended for number in range(8)]


@pytest.fixture
def cluster():
    return PlanCluster()


@pytest.fixture
def policy(tmp_path) -> Path:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"bands": [{"resource": "leaders", "permille": 100, "floor": 0}]}))
    return path


@pytest.fixture
def path(run, tmp_path, policy) -> Path:
    """A plan for this cluster."""
    made = tmp_path / "plan.json"
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", "--output", str(made))
    assert done.exit_code == 0, done.output
    return made


def test_a_plan_is_drawn_while_it_is_made(run, tmp_path, policy):
    picture = tmp_path / "plan.svg"
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--picture",
               str(picture))
    assert done.exit_code == 0 and f"Drawn: {picture}" in done.output
    assert b"<svg" in picture.read_bytes()


def applied(cluster) -> list:
    return [request for request in cluster.requests if isinstance(request, wire.ApplyPlan)]


def test_leaders_part_because_of_what_is_read_from_them(run, cluster, tmp_path):
    """Two groups with reads, led by one node, without appends: only egress is balanced."""
    cluster.read_bytes = {1: 5 << 20, 2: 5 << 20}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"bands": [{"resource": "egress", "permille": 100, "floor": 0}]}))
    made = tmp_path / "plan.json"
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", "--output", str(made))
    assert done.exit_code == 0, done.output
    moves = plans.load(made.read_bytes()).moves
    assert [(move.kind, move.group in (1, 2)) for move in moves] == [(plans.LEADER_TRANSFER, True)]


def test_a_plan_is_made_and_changes_nothing(run, cluster, path):
    made = plans.load(path.read_bytes())
    assert {move.kind for move in made.moves} == {plans.LEADER_TRANSFER}
    assert [move.expect_conf_index for move in made.moves] == [7] * len(made.moves)
    assert {type(request) for request in cluster.requests} == {wire.PlacementFacts}
    shown = run("rebalance", "show", str(path))
    assert f"Plan {made.plan_id[:12]}" in shown.output and "LEADER_SKEW" in shown.output
    told = json.loads(run("rebalance", "show", str(path), "--json").output)
    assert told["moves"] == len(made.moves) and told["plan_id"] == made.plan_id
    same = run("rebalance", "diff", str(path), str(path))
    assert "The plans have the same moves." in same.output


def test_a_plan_says_how_far_it_is_from_what_is_possible(run, path):
    shown = run("rebalance", "show", str(path)).output
    head = next(line for line in shown.splitlines() if line.startswith("load"))
    assert re.split("  +", head) == ["load", "before", "after", "at best", "moved", "at least"]
    rows = plans.load(path.read_bytes()).resources
    row = next(row for row in rows if row.resource == "leaders")
    line = next(line for line in shown.splitlines() if line.startswith("leaders"))
    assert re.split("  +", line) == [
        "leaders", *map(plan_words.above, (row.before_ppm, row.after_ppm, row.bound_ppm)),
        plural(row.moved, "leader"), plural(row.moved_bound, "leader")]
    assert "at least: so much has to be moved by any plan" in shown
    told = json.loads(run("rebalance", "show", str(path), "--json").output)["resources"]
    assert [each["gap_ppm"] for each in told] == [each.gap_ppm for each in rows]
    assert "Incomplete" not in shown


def test_a_plan_that_was_cut_short_says_to_plan_again(run, tmp_path, policy):
    told = json.loads(policy.read_text())
    policy.write_text(json.dumps({**told, "moves_max": 1}))
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2")
    assert done.exit_code == 0
    assert "Incomplete, a plan has at most 1 move: plan again" in done.output


@pytest.mark.parametrize("moved, bound, said", [(102, 100, "+2.00 %"), (0, 0, "-"), (5, 0, "-"),
                                                (75, 100, "-25.00 %")])
def test_what_is_moved_is_compared_with_what_has_to_be(moved, bound, said):
    row = plans.ResourceOutcome("disk", 50, 9, 2_000_000, 1_020_000, 1_000_000, "mean", 1_000_000,
                                moved, bound)
    assert (plan_view.excess_moved(row), plan_view.gap(row)) == (said, "+2.00 %")


def test_nothing_to_do_has_its_own_exit_code(run, cluster, policy):
    cluster.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2")
    assert done.exit_code == 2 and "Nothing to do" in done.output


def test_what_cannot_be_done_names_its_cause_and_the_way_out(run):
    done = run("rebalance", "plan", "--drain", "3", "--window", "0.2")
    assert done.exit_code == 3 and "TOO_FEW_NODES" in done.output and "add" in done.output


def test_a_plan_is_only_checked_without_yes_and_applied_with_it(run, cluster, path):
    checked = run("rebalance", "apply", str(path))
    assert checked.exit_code == 0 and "Use --yes" in checked.output and not applied(cluster)
    done = run("rebalance", "apply", str(path), "--throttle", "10MiB", "--yes")
    assert done.exit_code == 0, done.output
    (request,) = applied(cluster)
    made = plans.load(path.read_bytes())
    assert (request.plan_id, request.limits.throttle) == (made.plan_id, 10 << 20)
    assert [move.move_id for move in request.moves] == [move.move_id for move in made.moves]


def test_a_plan_is_made_and_applied_in_one_command_with_yes(run, cluster, policy, tmp_path):
    words = ("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window", "0.2")
    shown = run(*words)
    assert shown.exit_code == 0 and "Nothing was changed" in shown.output and not applied(cluster)
    waits = run(*words, "--wait")
    assert waits.exit_code == 64 and "--yes" in waits.output and not applied(cluster)
    made = tmp_path / "made.json"
    done = run(*words, "--yes", "--output", str(made))
    assert done.exit_code == 0, done.output
    (request,) = applied(cluster)
    assert request.plan_id == plans.load(made.read_bytes()).plan_id
    assert "is running. Watch it" in done.output and "Nothing was changed" not in done.output


@pytest.mark.parametrize("flags", [(), ("--wait",), ("--json",)])
def test_with_yes_a_plan_without_moves_is_a_success_and_is_not_applied(run, cluster, policy, flags):
    cluster.leaders = {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", "--yes", *flags)
    assert done.exit_code == 0 and not applied(cluster)
    assert done.stderr == ("Nothing to do: no node leads, or sends, more than its band allows.\n")
    assert flags == ("--json",) or not done.stdout, "one sentence"


def test_a_plan_that_is_under_way_is_no_stale_one(run, cluster, path):
    """Its own moves have changed what it was made for."""
    cluster.conf_index = 8
    plan_id = plans.load(path.read_bytes()).plan_id
    for status in (BUSY._replace(plan_id=plan_id, state="paused", reason="NODE_DOWN: x"),
                   BUSY._replace(state="cancelling", next_plan_id=plan_id)):
        cluster.status = status
        done = run("rebalance", "apply", str(path), "--yes")
        assert done.exit_code == 0 and "is already running" in done.output, done.output
    assert not applied(cluster)
    cluster.status = BUSY._replace(plan_id=plan_id, state="done")
    assert run("rebalance", "apply", str(path), "--yes").exit_code == 4


def test_when_a_plan_is_ready_is_said_while_it_runs(run, cluster):
    for state, said in (("running", True), ("paused", False), ("done", False)):
        cluster.status = BUSY._replace(state=state, reason="")
        assert ("ends in" in run("rebalance", "status").output) is said, state


def test_a_stale_plan_is_refused_before_anything_is_asked(run, cluster, path):
    cluster.conf_index = 8
    for words in (("verify",), ("apply", "--yes")):
        done = run("rebalance", words[0], str(path), *words[1:])
        assert done.exit_code == 4 and "CONF_CHANGED" in done.output
    assert not applied(cluster)


def test_what_the_cluster_calls_stale_has_the_same_exit_code(run, cluster, path):
    cluster.refusal = wire_errors.StalePlan("leader:g1: its members were changed")
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 4 and "leader:g1" in done.output


def test_another_plan_under_way_is_a_refusal(run, cluster, path):
    cluster.refusal = wire_errors.PlanActive("plan abab is running")
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 1 and "plan abab is running" in done.output


@pytest.mark.parametrize("first", ["cancelling", "cancelled"])
def test_who_waits_for_a_plan_that_is_cancelled_is_told_and_it_is_no_success(run, cluster, path,
                                                                             first):
    plan_id = plans.load(path.read_bytes()).plan_id
    over = BUSY._replace(plan_id=plan_id, state="cancelled", reason="cancelled by the operator",
                         phases=(wire.PhaseCount("done", 1), wire.PhaseCount("cancelled", 2)))
    cluster.statuses = [IDLE, over._replace(state=first)]
    cluster.status = over
    done = run("rebalance", "apply", str(path), "--yes", "--wait")
    assert done.exit_code == 1 and "cancelled by the operator" in done.stderr, done.output
    assert "rebalance status" in done.stderr


def test_who_waits_is_told_once_that_somebody_has_paused_the_plan(run, cluster, path):
    plan_id = plans.load(path.read_bytes()).plan_id
    runs = BUSY._replace(plan_id=plan_id)
    paused = runs._replace(state="paused", reason="paused by the operator")
    cluster.statuses = [IDLE, runs, paused, paused, paused, runs]
    cluster.status = runs._replace(state="done", phases=(wire.PhaseCount("done", 3),))
    done = run("rebalance", "apply", str(path), "--yes", "--wait")
    assert done.exit_code == 0 and not cluster.statuses, done.output
    assert done.stderr.count("paused by the operator") == 1
    assert "multiraft rebalance resume" in done.stderr


def test_who_waits_is_told_once_that_a_move_waits_for_room(run, cluster, path):
    runs = BUSY._replace(plan_id=plans.load(path.read_bytes()).plan_id)
    (move,) = runs.moves
    wait = "NO_DISK_SPACE: node 4 has 9"
    short = runs._replace(moves=(move._replace(phase="pending", wait=wait),))
    cluster.statuses = [IDLE, runs, short, short, runs]
    cluster.status = runs._replace(state="done", phases=(wire.PhaseCount("done", 3),))
    done = run("rebalance", "apply", str(path), "--yes", "--wait")
    assert done.stderr.count("replicas:g7 waits") == done.stderr.count("NO_DISK_SPACE: node 4") == 1


def test_without_yes_the_throttle_asked_for_is_shown(run, cluster, path):
    done = run("rebalance", "apply", str(path), "--throttle", "3MiB")
    assert done.exit_code == 0 and "3.0 MiB/s" in done.stderr, done.output
    assert "throttle" not in run("rebalance", "apply", str(path)).stderr
    assert not applied(cluster)


def test_without_yes_a_throttle_is_refused_at_which_replicas_would_not_catch_up():
    before = grown(loaded(nodes(4, racks=2, disk_capacity=1 << 40), 8, [MIB] * 64),
                   NodeRow(5, "r1", disk_capacity=1 << 40))
    made = make_plan(before, STRICT)
    copied = max(row.ingress for row in before.groups if row.id in {
        move.group for move in made.moves if isinstance(move, plans.ReplicaChange)})
    assert copied
    with pytest.raises(CommandFailed, match="would not catch up below") as refused:
        plan_input.check_throttle(made, copied, before)
    least = int(refused.value.do.split("--throttle ")[1].split(",")[0])
    assert least > copied
    plan_input.check_throttle(made, least, before)
    with pytest.raises(CommandFailed):
        plan_input.check_throttle(made, least - 1, before)


@pytest.mark.parametrize("option, name", [("--output", "plan.json"), ("--picture", "plan.svg")])
def test_a_file_that_cannot_be_written_is_said_before_anything_is_measured(run, cluster, tmp_path,
                                                                           option, name):
    wanted = tmp_path / "nowhere" / name
    done = run("rebalance", "plan", "--scope", "leaders", option, str(wanted))
    assert done.exit_code == 1 and f"no directory {wanted.parent}" in done.stderr, done.output
    assert (cluster.requests, cluster.looks) == ([], 0)


def test_a_plan_that_cannot_be_kept_in_the_end_is_no_traceback(run, cluster, policy):
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", "--output", "/dev/full")
    assert done.exit_code == 1 and "/dev/full cannot be written: No space" in done.stderr


def test_what_cannot_be_compared_now_is_not_called_a_cluster_that_is_silent(run, cluster, path):
    cluster.refusal = wire_errors.LeaderUnknown(
        "1 of 2 moves cannot be compared with the cluster now: leader:g1: group 1 has no leader")
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 1 and done.stderr.startswith("Error: 1 of 2 moves cannot be compared")
    assert "no answer" not in done.stderr and "multiraft cluster status" in done.stderr


@pytest.mark.parametrize("spoil, why", [
    (lambda text: text.replace('"to_node": 2', '"to_node": 3', 1), "edited"),
    (lambda text: text.replace('"format": 1', '"format": 9'), "format"),
    (lambda text: "{", "not a plan"), (lambda text: "[]", "not a plan")])
def test_what_is_no_plan_is_refused(run, cluster, path, spoil, why):
    path.write_text(spoil(path.read_text()))
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 1 and why in done.output and not applied(cluster)


def test_a_file_that_is_not_there(run):
    done = run("rebalance", "show", "nowhere.json")
    assert done.exit_code == 1 and "cannot be read" in done.output


def test_a_policy_that_is_none_is_refused(run, tmp_path):
    bad = tmp_path / "bad.json"
    for text in ("[]", '{"moves_max": -1}', '{"unheard": 1}', "{"):
        bad.write_text(text)
        done = run("rebalance", "plan", "--policy", str(bad), "--window", "0.2")
        assert done.exit_code == 1, (text, done.output)


def test_a_node_that_is_down_stops_a_plan_unless_it_is_a_repair(run, cluster, monkeypatch):
    cluster.up = {1, 2}
    listed = FakeClient.node_list

    def node_list(self):
        reply = listed(self)
        return reply._replace(nodes=tuple(
            row._replace(state="up" if row.node.id in cluster.up else "down")
            for row in reply.nodes))

    monkeypatch.setattr(PlanClient, "node_list", node_list, raising=False)
    done = run("rebalance", "plan", "--window", "0.2")
    assert done.exit_code == 1 and "node 3 is down" in done.output
    assert "--scope repair" in done.output
    repair = run("rebalance", "plan", "--scope", "repair", "--window", "0.2")
    assert repair.exit_code == 3 and "NO_TARGET" in repair.output, repair.output


def test_a_node_that_is_late_does_not_stop_a_plan_and_is_not_repaired(run, monkeypatch):
    """Its lease has ended for a moment: seen where processors are busy."""
    listed, looks = FakeClient.node_list, []

    def node_list(self):
        looks.append(self)
        reply = listed(self)
        return reply._replace(nodes=tuple(
            row._replace(state="down" if len(looks) % 3 and row.node.id == 3 else "up")
            for row in reply.nodes))

    monkeypatch.setattr(PlanClient, "node_list", node_list, raising=False)
    for scope in ("all", "repair"):
        done = run("rebalance", "plan", "--scope", scope, "--window", "0.2")
        assert done.exit_code != 1 and "REPAIR_DEAD" not in done.output, done.output
        assert "NO_TARGET" not in done.output, done.output


@pytest.mark.parametrize("words", [
    ("--scope", "node"), ("--scope", "all", "4"), ("--scope", "nowhere"), ("--budget", "much")])
def test_wrong_command_lines_have_a_code_that_no_plan_has(run, words):
    assert run("rebalance", "plan", *words).exit_code == 64


def test_status_says_what_is_slow_and_why_it_waits(run, cluster):
    assert "no plan has been applied" in run("rebalance", "status").output
    cluster.status = BUSY
    shown = run("rebalance", "status")
    assert shown.exit_code == 0
    for text in ("1.0 GiB of 4.0 GiB", "10.0 MiB/s", "5 min 7 s", "replicas:g7", "1 of 3 ended",
                 "node 4 lacks 1,073,741,824 bytes", "node 4 receives 1"):
        assert text in shown.output, text
    told = json.loads(run("rebalance", "status", "--json").output)
    assert told["phases"] == {"done": 1, "learning": 1, "pending": 1}
    assert told["moves"][0]["new"] == [2, 3, 4]


def test_a_plan_that_paused_itself_has_its_own_exit_code(run, cluster):
    cluster.status = BUSY._replace(state="paused", reason="NODE_DOWN: node 3 is down")
    done = run("rebalance", "status")
    assert done.exit_code == 5 and "NODE_DOWN: node 3" in done.output
    cluster.status = BUSY._replace(state="paused", reason="paused by the operator")
    assert run("rebalance", "status").exit_code == 0


@pytest.mark.parametrize("words, request_", [
    (("pause",), wire.ControlPlan("pause")), (("resume",), wire.ControlPlan("resume")),
    (("cancel",), wire.ControlPlan("cancel")),
    (("throttle", "5MiB"), wire.ControlPlan("throttle", "", 5 << 20))])
def test_control_asks_for_what_is_said(run, cluster, words, request_):
    assert run("rebalance", *words).exit_code == 0
    asked = [wire.PlanStatus(), request_]
    assert cluster.requests == asked + [wire.PlacementFacts()] * (words == ("cancel",))
    cluster.refusal = wire_errors.StalePlan("no plan is being carried out")
    assert run("rebalance", *words).exit_code == 2


@pytest.mark.parametrize("reason, way_out", [
    ("NODE_DOWN: node 3 is down", "resumes automatically when the cause is gone."),
    ("SLOW_COMMITS: one append in a hundred", "To accept it: multiraft rebalance resume")])
def test_to_resume_what_would_pause_itself_again_says_why_it_does_not(run, cluster, reason,
                                                                      way_out):
    cluster.stays, cluster.status = "paused", BUSY._replace(state="paused", reason=reason)
    done = run("rebalance", "resume")
    assert done.exit_code == 5 and reason in done.output and way_out in done.output


def test_a_drain_that_cannot_be_done_is_not_written_down(run, cluster):
    done = run("node", "drain", "3", "--yes")
    assert done.exit_code == 3 and cluster.desired_states == {} and not applied(cluster)


def test_maintenance_is_shown_first_and_then_written_down(run, cluster):
    shown = run("node", "maintenance", "1")
    assert shown.exit_code == 0 and "MAINTENANCE" in shown.output and cluster.desired_states == {}
    done = run("node", "maintenance", "1", "--yes")
    assert done.exit_code == 0 and cluster.desired_states == {1: "maintenance"}
    assert all(move.reason == "MAINTENANCE" for move in applied(cluster)[0].moves)
    assert run("node", "undrain", "1").exit_code == 0 and cluster.desired_states == {1: "alive"}
    assert run("node", "drain", "9").exit_code == 1


@pytest.mark.parametrize("refusal, code", [
    (wire_errors.PlanActive("plan abab is running"), 1),
    (wire_errors.LimitExceeded("a throttle of 1 bytes per second is too low"), 1),
    (wire_errors.StalePlan("leader:g1: its members were changed"), 4)])
@pytest.mark.parametrize("before", ["alive", "draining"])
def test_a_node_whose_plan_is_refused_is_as_before(run, cluster, refusal, code, before):
    cluster.desired_states, cluster.plan_refusal = {1: before}, refusal
    done = run("node", "maintenance", "1", "--yes")
    assert done.exit_code == code and str(refusal) in done.stderr, done.output
    assert cluster.desired_states == {1: before} and f"node 1 is {before}, as before" in done.stderr
    assert [request.state for request in cluster.requests
            if isinstance(request, wire.SetNodeState)] == ["maintenance", before]


@pytest.mark.parametrize("error", [
    wire_errors.TimedOut("plan_apply: node 1: no answer"),
    wire_errors.LeaderUnknown("1 of 2 moves cannot be compared with the cluster now"),
    wire_errors.AmbiguousOutcome("the connection broke"), ConnectionResetError("reset")])
def test_a_node_whose_plan_may_have_begun_stays_marked_and_it_is_said(run, cluster, error):
    cluster.plan_refusal = error
    done = run("node", "maintenance", "1", "--yes")
    assert done.exit_code == 1 and cluster.desired_states == {1: "maintenance"}
    assert "node 1 is marked as maintenance" in done.stderr.lower()
    assert "multiraft node undrain 1" in done.stderr


def test_maintenance_of_which_no_plan_can_be_made_is_not_written_down(run, cluster, monkeypatch):
    listed = FakeClient.node_list
    monkeypatch.setattr(PlanClient, "node_list", lambda self: listed(self)._replace(nodes=tuple(
        row._replace(state="down") if row.node.id == 3 else row
        for row in listed(self).nodes)), raising=False)
    done = run("node", "maintenance", "1", "--yes")
    assert (
        done.exit_code == 1 and "node 3 is down" in done.output and cluster.desired_states == {}
    )


def test_maintenance_of_a_node_that_leads_nothing_marks_it_once(run, cluster):
    cluster.leaders = {0: 1, 1: 1, 2: 1, 3: 2, 4: 2}
    for code in (0, 2):
        done = run("node", "maintenance", "3", "--yes")
        assert done.exit_code == code and "leads no groups" in done.stderr, done.output
        assert cluster.desired_states == {3: "maintenance"} and not applied(cluster)


@pytest.mark.parametrize("state, told", [
    ("running", True), ("paused", True), ("cancelling", False), ("done", False), ("none", False)])
def test_to_undrain_says_of_a_plan_under_way_that_it_goes_on(run, cluster, state, told):
    cluster.status = BUSY._replace(scope="drain", state=state)
    cluster.desired_states = {3: "draining"}
    done = run("node", "undrain", "3")
    assert done.exit_code == 0 and cluster.desired_states == {3: "alive"}
    assert ("multiraft rebalance cancel" in done.stderr) is told, done.stderr


def test_loads_are_what_was_appended_in_the_window_and_partitions_share_by_records(cluster):
    """Two looks: group 1 grew by 3,000 bytes in a second, its partitions by one and two records."""
    looks = iter(range(100))

    class Growing(PlanClient):
        def group_loads(self, address, timeout_ms=0):
            (page,) = super().group_loads(address, timeout_ms)
            turn = next(looks) // 3
            grown = tuple(row._replace(bytes=row.bytes + 3_000 * turn) if row.group == 1 else row
                          for row in page.groups)
            return [page._replace(taken_ms=1_000 * turn, groups=grown)]

        def partition_loads(self, groups, address, timeout_ms=0):
            assert groups == (1,)
            turn = next(looks)
            return [wire.PartitionLoad(number, "t", number, 1, 1, 0, turn * number)
                    for number in (1, 2)]

    gathered = plan_input.collect(Growing(cluster), 5, False, 1.0, pause=lambda _s: None)
    assert gathered.snapshot.groups[1].ingress == 3_000
    assert [row.ingress for row in gathered.snapshot.partitions] == [1_000, 2_000]


def test_partitions_of_compacted_topics_are_marked_so_that_plans_leave_them(cluster):
    class Compacted(PlanClient):
        def partition_loads(self, groups, address, timeout_ms=0):
            return [row._replace(is_compacted=row.partition % 2 == 1)
                    for row in super().partition_loads(groups, address, timeout_ms)]

    cluster.appended = {1: 1_000}
    gathered = plan_input.collect(Compacted(cluster), 5, False, 1.0, pause=lambda _s: None)
    rows = gathered.snapshot.partitions
    assert {row.copied for row in rows} == {False, True}
    assert all(row.copied == (row.partition % 2 == 1) for row in rows)


def test_a_disk_has_no_room_for_what_nothing_frees(cluster):
    """Each node votes in five groups of 1 MiB; the rest is of replicas that left, or of deleted
    topics."""
    for disk, capacity in (((5 << 20, 100 << 20), 100 << 20), ((50 << 20, 100 << 20), 50 << 20),
                           ((0, 0), 0)):
        cluster.disk = disk
        for gathered in (plan_input.collect(PlanClient(cluster), 5, False, 1.0,
                                            pause=lambda _s: None),
                         plan_input.placements_only(PlanClient(cluster), 5, pause=lambda _s: None)):
            assert {row.disk_capacity for row in gathered.snapshot.nodes} == {capacity}
            assert gathered.disk_total == dict.fromkeys((1, 2, 3), disk[1])


def test_what_a_plan_has_just_moved_is_left_alone_and_the_plan_says_so(run, cluster, tmp_path):
    """One group takes all appends, and each of its partitions was switched a minute ago."""
    cluster.appended = {1: 1_000}
    cluster.moved_ms = time.time_ns() // 1_000_000 - 60_000
    gathered = plan_input.collect(PlanClient(cluster), 5, False, 1.0, pause=lambda _s: None)
    for rows in (gathered.snapshot.groups, gathered.snapshot.partitions):
        assert {row.moved_ms for row in rows} == {cluster.moved_ms}
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"bands": [{"resource": "group_ingress", "permille": 50,
                                             "floor": 0}]}))
    words = ("rebalance", "plan", "--policy", str(policy), "--window", "0.2")
    done = run(*words)
    assert done.exit_code == 2 and "Not moved, COOL_DOWN" in done.output, done.output
    assert "for the reasons above" in done.output and "within their bands" not in done.output
    cluster.moved_ms = 0
    assert run(*words).exit_code == 0


def test_what_is_appended_to_a_group_is_shared_out_to_the_last_byte():
    """A byte that no partition has would be a load of its own beside a partition that fills its
    group alone, and worth a switch of that (seen in the demo)."""
    rows = {number: (wire.PartitionLoad(number, "t", number, group, 1, 0, 9), records)
            for number, group, records in ((1, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 0), (5, 2, 7))}
    shared = plan_input.apportioned(rows, {1: 1_000, 2: 5, 3: 9})
    assert shared == {1: 333, 2: 333, 3: 334, 4: 0, 5: 5}
    assert plan_input.apportioned({}, {1: 5}) == {}
    idle = {1: (rows[4][0], 0)}
    assert plan_input.apportioned(idle, {1: 50}) == {1: 0}, "nobody says whose it was"


@pytest.mark.parametrize("command", ["drain", "undrain", "maintenance", "decommission"])
def test_wrong_command_lines_of_the_node_commands_have_that_code_too(run, command):
    for words in ((), ("four",), ("3", "--unheard")):
        assert run("node", command, *words).exit_code == 64


@pytest.mark.parametrize("words", [
    ("rebalance",), ("rebalance", "--foo"), ("rebalance", "aply"), ("rebalance", "apply"),
    ("group", "pool"), ("group", "pool", "--foo"), ("group", "pool", "gro"),
    ("group", "pool", "grow"), ("node", "drian", "3"), ("placement", "whatif")])
def test_2_never_means_a_wrong_command_line_where_it_means_that_nothing_is_to_do(run, words):
    done = run(*words)
    assert done.exit_code == 64, done.output


def test_a_misspelt_command_of_the_others_has_their_code(run):
    assert run("node", "lst").exit_code == 2
    assert run("rebalance", "--help").exit_code == 0


@pytest.mark.parametrize("flags", [(), ("--yes",)])
def test_a_plan_is_applied_although_its_reader_goes_away(run, cluster, policy, monkeypatch, flags):
    """As `| head` does; what was printed so far is written before the plan is applied."""
    outlived, shown = [], []

    @contextlib.contextmanager
    def outlived_reader():
        outlived.append(True)
        yield
        outlived.pop()

    monkeypatch.setattr(rebalance, "outlived_reader", outlived_reader)
    monkeypatch.setattr(rebalance.plan_view, "show_plan", lambda *_: shown.append(bool(outlived)))
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window",
               "0.2", *flags)
    assert done.exit_code == 0, done.output
    assert shown == [bool(flags)]
