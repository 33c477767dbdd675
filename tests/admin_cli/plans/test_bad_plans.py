"""Plans and loads that must not be followed: refused before anything changes, with the cause and
the way out.

What the planner and ``verify`` refuse is tested beside them (``tests/placement``), what the cluster
refuses in ``tests/node/plans``; here is what an operator gets to read.
"""

from __future__ import annotations

import json

import pytest

from multiraft.wire import errors as wire_errors
from multiraft.wire import plans as wire
from placement import plan as plans
from placement import throttle
from tests.admin_cli.fakes import FakeClient
from tests.admin_cli.plans.test_rebalance import PlanClient, PlanCluster, applied

QUICK = ("--window", "0.2")


@pytest.fixture
def cluster():
    return PlanCluster()


@pytest.fixture
def policy(tmp_path):
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"bands": [{"resource": "leaders", "permille": 100, "floor": 0}]}))
    return path


@pytest.fixture
def path(run, tmp_path, policy):
    """A plan for this cluster."""
    made = tmp_path / "plan.json"
    done = run("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), *QUICK,
               "--output", str(made))
    assert done.exit_code == 0, done.output
    return made


def forge(path, **fields):
    """Write a plan as a person would who knows how a plan gets its id."""
    made = plans.load(path.read_bytes())
    path.write_bytes(plans.save(plans.identify(made._replace(**fields))))
    return made


def refused(run, cluster, path, code, *texts):
    """By ``verify`` and by ``apply``, and the cluster was not asked to do anything."""
    for words in (("verify", str(path)), ("apply", str(path), "--yes")):
        done = run("rebalance", *words)
        assert done.exit_code == code, done.output
        for text in (*texts, "Make a new one: multiraft rebalance plan"):
            assert text in done.output, (text, done.output)
    assert not applied(cluster)


# ---- plans --------------------------------------------------------------------------------------


def test_another_cluster_s_plan_is_refused(run, cluster, path):
    forge(path, cluster_id="ff" * 16)
    refused(run, cluster, path, 4, "FOREIGN: the plan is for", "ff" * 16)


def test_a_plan_that_is_too_old_is_refused(run, cluster, path):
    forge(path, expires_ms=1_700_000_000_000)
    refused(run, cluster, path, 4, "EXPIRED: the plan was valid until 2023-11-14T22:13:20Z, now is "
            "20", "too old")


def test_a_plan_with_a_node_that_is_not_there_is_refused(run, cluster, path):
    made = plans.load(path.read_bytes())
    forge(path, moves=(made.moves[0]._replace(to_node=9), *made.moves[1:]))
    refused(run, cluster, path, 4, "UNKNOWN, group 0: leader 1 -> 9: there is no node 9")


@pytest.mark.parametrize("spoil, code", [
    (lambda moves: (*moves, moves[0]._replace(seq=len(moves) + 1)), "SUBJECT_TWICE"),
    (lambda moves: (moves[0]._replace(depends_on=(2,)), *moves[1:]), "BAD_ORDER"),
    (lambda moves: (plans.ReplicaChange(
        1, 1, (), plans.Why(plans.OVERLOAD), moves[0].group, 1, 7, (1, 2, 3), (1, 2), 1, 1, 0),
        *moves[1:]), "OUT_OF_SCOPE")])
def test_a_plan_that_is_forged_and_impossible_is_refused(run, cluster, path, spoil, code):
    forge(path, moves=spoil(plans.load(path.read_bytes()).moves))
    refused(run, cluster, path, 1, code, "is invalid")


def test_a_plan_without_moves_is_nothing_to_do(run, cluster, path):
    forge(path, moves=())
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 2 and not applied(cluster)


def test_a_plan_that_is_larger_than_a_plan_may_be_is_refused(run, cluster, path, monkeypatch):
    monkeypatch.setattr(wire, "MOVES_MAX", 1)
    done = run("rebalance", "apply", str(path), "--yes")
    assert done.exit_code == 1 and "can be carried out at a time" in done.output
    assert "--budget" in done.output and not applied(cluster)


@pytest.fixture
def switching(run, cluster, tmp_path):
    """A plan that switches partitions of group 1, which takes all appends."""
    cluster.appended = {1: 1_000}
    policy = tmp_path / "switches.json"
    policy.write_text(json.dumps({"bands": [{"resource": "group_ingress", "permille": 50,
                                             "floor": 0}]}))
    made = tmp_path / "switches-plan.json"
    done = run("rebalance", "plan", "--policy", str(policy), *QUICK, "--output", str(made))
    assert done.exit_code == 0, done.output
    return made


def are_now(monkeypatch, rows):
    """Each partition is where ``rows`` say, as (group, epoch) by incarnation."""
    monkeypatch.setattr(PlanClient, "partition_loads", lambda self, groups, address, timeout_ms=0: [
        wire.PartitionLoad(partition, "t", partition, group, epoch, 2, 1)
        for partition, (group, epoch) in rows.items() if group in groups])


def test_a_plan_of_switches_that_was_carried_out_says_where_the_partitions_are(
        run, cluster, switching, monkeypatch):
    """They are in groups that nothing is appended to meanwhile, which were not asked."""
    cluster.appended = {}
    moves = plans.load(switching.read_bytes()).moves
    are_now(monkeypatch, {move.incarnation: (move.to_group, 2) for move in moves})
    move = moves[0]
    refused(run, cluster, switching, 4, f"EPOCH_CHANGED, t/{move.partition}: group "
            f"{move.from_group} -> {move.to_group}: t/{move.partition} is in group "
            f"{move.to_group} already, since epoch 2")
    are_now(monkeypatch, {})
    refused(run, cluster, switching, 4, f"UNKNOWN, t/{move.partition}", "was switched to another")


@pytest.mark.parametrize("state, text", [
    ("done", "was applied already: 2 of its 3 moves are done."),
    ("cancelled", "ended early (cancelled by the operator): 2 of its 3 moves")])
def test_the_plan_that_the_cluster_has_had_last_is_no_riddle(run, cluster, path, state, text):
    plan_id = plans.load(path.read_bytes()).plan_id
    cluster.status = cluster.status._replace(
        plan_id=plan_id, state=state, moves_total=3, reason="cancelled by the operator",
        phases=(wire.PhaseCount("done", 2), wire.PhaseCount("skipped", 1)))
    cluster.conf_index = 8
    refused(run, cluster, path, 4, text)


@pytest.mark.parametrize("rate, told", [("5MiB", True), ("50000000", False)])
def test_another_throttle_for_the_plan_under_way_is_not_ignored_in_silence(run, cluster, path,
                                                                           rate, told):
    cluster.status = cluster.status._replace(
        plan_id=plans.load(path.read_bytes()).plan_id, state="running")
    done = run("rebalance", "apply", str(path), "--yes", "--throttle", rate)
    assert done.exit_code == 0 and "is already running" in done.output
    assert (f"multiraft rebalance throttle {5 << 20}" in done.output) is told, done.output


# ---- unknown nodes ------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("--drain", "9"), ("--scope", "node", "9"),
                                   ("--scope", "drain", "--drain", "9")])
def test_a_plan_for_a_node_that_is_not_there_names_those_that_are(run, words):
    done = run("rebalance", "plan", *words, *QUICK)
    assert done.exit_code == 1 and "no node 9 in the snapshot; its nodes are 1, 2, 3" in done.output


@pytest.mark.parametrize("told, why", [
    ({"excluded_nodes": [9]}, "no node 9"), ({"excluded_groups": [99]}, "no group 99"),
    ({"bands": [{"resource": "luck", "permille": 50, "floor": 0}]},
     "no resource is called 'luck'"),
    ({"bands": [{"resource": "disk", "permille": -1, "floor": 0}]}, "permille is -1"),
    ({"bands": {"disk": 50}}, 'policy.bands is no list; expected [{"resource": text, "permille": '
                              'whole number, "floor": whole number}, ...]'),
    ({"bands": [50]}, 'policy.bands[0] is no map; expected {"resource": text'),
    ({"bandz": []}, "policy does not know bandz; its fields are bands, disk_cap_permille"),
    ({"bands": [{"resource": "disk", "permille": 50, "flor": 0}]},
     "policy.bands[0] lacks floor and does not know flor; its fields are resource"),
    ({"moves_max": 1 << 40}, "whole number from 1")])
def test_a_policy_that_cannot_be_followed_says_why(run, tmp_path, told, why):
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(told))
    done = run("rebalance", "plan", "--policy", str(path), *QUICK)
    assert done.exit_code == 1 and why in done.output, done.output


@pytest.mark.parametrize("command", ["drain", "undrain", "maintenance", "decommission"])
def test_a_node_that_is_not_there_is_neither_drained_nor_written_down(run, cluster, command):
    done = run("node", command, "9", *(() if command == "undrain" else ("--yes",)))
    assert done.exit_code == 1 and "9" in done.output
    assert cluster.desired_states == {} and not applied(cluster)


# ---- loads --------------------------------------------------------------------------------------


@pytest.mark.parametrize("absurd, why", [
    (lambda row: row._replace(bytes=1 << 61), "measured in another unit?"),
    (lambda row: row._replace(voters=(1, 9)), "node 9, which the snapshot does not know"),
    (lambda row: row._replace(voters=()), "voters are one at least")])
def test_loads_that_cannot_be_end_the_command_with_the_cause(run, cluster, path, monkeypatch,
                                                             absurd, why):
    sound = PlanClient.group_loads

    def group_loads(self, address, timeout_ms=0):
        (page,) = sound(self, address)
        return [page._replace(groups=tuple(map(absurd, page.groups)))]

    monkeypatch.setattr(PlanClient, "group_loads", group_loads)
    for words in (("rebalance", "plan", *QUICK), ("rebalance", "verify", str(path)),
                  ("rebalance", "apply", str(path), "--yes"),
                  ("placement", "whatif", "--join", "4", *QUICK)):
        done = run(*words)
        assert done.exit_code == 1 and why in done.output, (words, done.output)
    assert not applied(cluster)


def test_a_log_that_shrank_between_two_looks_is_no_negative_load(run, cluster, path, monkeypatch):
    """A group that was recovered, or a leader whose log is shorter: nothing was appended."""
    looks = iter(range(10_000))
    sound = PlanClient.group_loads

    def group_loads(self, address, timeout_ms=0):
        (page,) = sound(self, address)
        return [page._replace(groups=tuple(row._replace(bytes=(1 << 20) - 1_000 * next(looks))
                                           for row in page.groups))]

    monkeypatch.setattr(PlanClient, "group_loads", group_loads)
    done = run("rebalance", "verify", str(path))
    assert done.exit_code == 0, done.output


# ---- throttles ----------------------------------------------------------------------------------


@pytest.mark.parametrize("words, way", [
    (("apply", "PLAN", "--yes", "--throttle", "8KiB"), "Allow that with --throttle 9000, or"),
    (("throttle", "8KiB"), "Allow that with multiraft rebalance throttle 9000.")])
def test_a_throttle_below_what_is_appended_names_the_least_that_would_do(run, cluster, path, words,
                                                                         way):
    cluster.refusal = wire_errors.LimitExceeded("a throttle of 8,192 bytes per second is too low: "
                                                "replicas would not catch up below 9,000",
                                                limit=9_000, value=8_192)
    done = run("rebalance", *(str(path) if word == "PLAN" else word for word in words))
    assert done.exit_code == 1 and "would not catch up below 9,000" in done.output
    assert way in done.output, done.output


def test_a_throttle_at_which_every_replica_would_be_given_up_is_refused(run, cluster, path):
    """A batch of the largest size has to reach each replica within a learner's patience: at 5 bytes
    per second a plan took 575 days, and undid every copy after a minute of them."""
    done = run("rebalance", "plan", "--throttle", "5", *QUICK)
    assert done.exit_code == 1, done.output
    assert "a throttle of 5 bytes per second is too low" in done.output
    assert f"--throttle {throttle.smallest(2, 2)}" in done.output
    assert "given up" in done.output
    enough = str(throttle.smallest(2, 2))
    assert run("rebalance", "plan", "--throttle", enough, *QUICK).exit_code in (0, 2)


def test_a_plan_of_copies_is_not_applied_at_such_a_throttle(run, cluster, path):
    forge(path, options=plans.Options("all"), moves=(plans.ReplicaChange(
        1, 1, (), plans.Why(plans.OVERLOAD), 1, 1, 7, (1, 2, 3), (1, 2, 4), 1, 1, 1 << 20),))
    for words in ((), ("--yes",)):
        done = run("rebalance", "apply", str(path), "--throttle", "5", *words)
        assert done.exit_code == 1 and f"--throttle {throttle.smallest(2, 2)}" in done.output
    assert not applied(cluster)


@pytest.mark.parametrize("words, code", [
    (("rebalance", "apply", "PLAN", "--yes", "--throttle", "999999TiB"), 64),
    (("rebalance", "plan", "--throttle", "99999999TiB"), 64),
    (("rebalance", "throttle", "2TiB"), 64), (("node", "scrub", "1", "--rate", "2TiB"), 2)])
def test_a_rate_that_no_node_can_have_is_a_wrong_command_line(run, cluster, path, words, code):
    done = run(*(str(path) if word == "PLAN" else word for word in words))
    assert done.exit_code == code, done.output
    assert "above the limit of 1 TiB per second" in done.output
    assert not applied(cluster)


def test_a_budget_is_so_many_bytes(run):
    for budget, text in (("-5", "'-5' is not so many bytes; write"), ("99999999TiB", "1 EiB")):
        done = run("rebalance", "plan", f"--budget={budget}", *QUICK)
        assert done.exit_code == 64 and text in done.output, done.output


@pytest.mark.parametrize("rate", ["0", "-5", "fast", "1e9"])
def test_a_throttle_that_is_none_is_a_wrong_command_line(run, cluster, path, rate):
    for words in (("throttle", "--", rate), ("apply", str(path), f"--throttle={rate}")):
        assert run("rebalance", *words).exit_code == 64
    assert not applied(cluster)


# ---- the last rack ------------------------------------------------------------------------------


def test_the_last_rack_but_one_is_not_drained(run, cluster, monkeypatch):
    """Racks r1 and r2, two replicas of each group, one in each: node 3 is all of r2."""
    racks = {1: "r1", 2: "r1", 3: "r2"}
    listed, sound = FakeClient.node_list, PlanClient.plan_request

    def node_list(self):
        reply = listed(self)
        return reply._replace(nodes=tuple(row._replace(node=row.node._replace(
            rack=racks[row.node.id])) for row in reply.nodes))

    def plan_request(self, request):
        reply = sound(self, request)
        if isinstance(request, wire.PlacementFacts):
            return reply._replace(replication_factor=2)
        return reply

    def group_loads(self, address, timeout_ms=0):
        node = int(address[-1])
        groups = tuple(wire.GroupLoad(group, 1, 7, False, (1 + group % 2, 3), (), 1 << 20, 100)
                       for group in range(5) if node == 3)
        return [wire.GroupLoadsReply(node, 5, 5 << 20, 1 << 40, groups)]

    monkeypatch.setattr(PlanClient, "node_list", node_list, raising=False)
    monkeypatch.setattr(PlanClient, "plan_request", plan_request)
    monkeypatch.setattr(PlanClient, "group_loads", group_loads)
    for words in (("node", "drain", "3", "--yes"), ("node", "decommission", "3", "--yes"),
                  ("rebalance", "plan", "--drain", "3", *QUICK),
                  ("placement", "whatif", "--leave", "3", *QUICK)):
        done = run(*words)
        assert done.exit_code == 3 and "LAST_RACK" in done.output, (words, done.output)
    assert cluster.desired_states == {} and not applied(cluster)


@pytest.mark.parametrize("words", [("apply", "--yes"), ("show",), ("verify",)])
def test_the_summary_of_a_plan_is_not_a_plan_and_what_writes_one_is_said(run, path, tmp_path,
                                                                         words):
    summary = tmp_path / "my summary.json"
    summary.write_text(run("rebalance", "show", str(path), "--json").stdout)
    refused = run("rebalance", words[0], str(summary), *words[1:])
    assert refused.exit_code == 1
    assert "is not a plan: it is the summary that --json prints" in refused.stderr
    assert f"multiraft rebalance plan --output '{summary}'" in refused.stderr
