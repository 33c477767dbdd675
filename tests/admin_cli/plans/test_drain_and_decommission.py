"""Wanted states of nodes: when they are stored, when not, and where they are shown.

Node 1 leads every group, and every node has a replica of each.
"""

from __future__ import annotations

import json

import pytest

from multiraft.wire import errors as wire_errors
from multiraft.wire import nodes
from multiraft.wire import plans as wire
from tests.admin_cli.fakes import FakeClient
from tests.admin_cli.plans.test_rebalance import BUSY, PlanClient, PlanCluster, applied

PLAN = "ab" * 6


@pytest.fixture
def cluster():
    return PlanCluster()


def marks(cluster) -> list:
    """Return the wanted states that were stored."""
    return [request for request in cluster.requests if isinstance(request, wire.SetNodeState)]


@pytest.fixture
def empty_4(monkeypatch):
    """A fourth node, which holds nothing but the metadata that every node learns."""
    listed, described = FakeClient.node_list, FakeClient.node_describe

    def row():
        about = nodes.NodeRow(4, 16, 2, "127.0.0.1:9104", "127.0.0.1:9204", "r4", 100, "0.1.0", 0)
        return nodes.NodeState(about, "up", 0, 0)

    def node_list(self):
        reply = listed(self)
        return reply._replace(nodes=(*reply.nodes, row()))

    def node_describe(self, number):
        return nodes.DescribeNodeReply(row(), (), (0,), ()) if number == 4 else described(
            self, number)

    monkeypatch.setattr(PlanClient, "node_list", node_list, raising=False)
    monkeypatch.setattr(PlanClient, "node_describe", node_describe, raising=False)


# ---- one plan at a time --------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "paused", "cancelling"])
@pytest.mark.parametrize("words", [("drain", "1"), ("maintenance", "1"), ("decommission", "1")])
def test_beside_another_plan_no_node_is_marked(run, cluster, empty_4, state, words):
    """A plan under way skips for good what it was to bring to a node that is marked."""
    cluster.status = BUSY._replace(state=state)
    done = run("node", *words, "--yes")
    assert done.exit_code == 1 and not marks(cluster) and not applied(cluster), done.output
    assert f"plan {PLAN} is {state}" in done.stderr and "Nothing was changed" in done.stderr
    assert "rebalance status --watch" in done.stderr and "rebalance cancel" in done.stderr


def test_a_plan_that_begins_in_this_moment_may_have_heeded_the_mark_and_it_is_said(run, cluster):
    cluster.plan_refusal = wire_errors.PlanActive("plan abab is running")
    done = run("node", "maintenance", "1", "--yes")
    assert done.exit_code == 1 and cluster.desired_states == {1: "alive"}
    assert "Nothing was changed" not in done.stderr and "may have skipped" in done.stderr


def test_what_needs_no_plan_is_marked_beside_another_one_which_is_said(run, cluster, empty_4):
    cluster.status = BUSY
    done = run("node", "drain", "4", "--yes")
    assert done.exit_code == 0 and cluster.desired_states == {4: "draining"}
    assert (f"Plan {PLAN} is still running; its remaining moves to node 4 are skipped."
            in done.stderr)


# ---- run again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command, state, scope, said", [
    ("drain", "draining", "drain", "Node 1 is being drained already"),
    ("maintenance", "maintenance", "leaders", "Node 1 is transferring its leaderships already")])
@pytest.mark.parametrize("wait", [False, True])
def test_run_again_during_its_own_plan_it_goes_on_where_it_was(run, cluster, command, state,
                                                               scope, said, wait):
    """Planned anew, what the plan has moved would be stale."""
    cluster.plan_refusal = wire_errors.StalePlan("replicas:g7 has been done")
    cluster.desired_states = {1: state}
    running = BUSY._replace(scope=scope)
    done_by_then = running._replace(state="done", phases=(wire.PhaseCount("done", 3),))
    cluster.statuses, cluster.status = [running, running], done_by_then
    done = run("node", command, "1", "--yes", *["--wait"] * wait)
    assert done.exit_code == 0 and said in done.stderr, done.output
    assert f"by plan {PLAN}, which is running" in done.stderr
    assert "rebalance status --watch" in done.stderr
    assert not marks(cluster) and not applied(cluster)
    assert len(cluster.statuses) == (0 if wait else 1)


def test_a_throttle_that_comes_too_late_is_not_passed_over(run, cluster):
    cluster.desired_states, cluster.status = {1: "draining"}, BUSY._replace(scope="drain")
    done = run("node", "drain", "1", "--yes", "--throttle", "5MiB")
    assert done.exit_code == 0 and "multiraft rebalance throttle RATE" in done.stderr


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_a_node_that_is_drained_and_empty_has_nothing_to_do(run, cluster, empty_4, words):
    cluster.desired_states = {1: "maintenance", 2: "maintenance", 3: "maintenance", 4: "draining"}
    done = run("node", "drain", "4", *words)
    assert done.exit_code == 2, done.output
    assert "node 4 is drained and empty" in done.stderr and "node undrain 4" in done.stderr
    assert not marks(cluster)


def test_an_empty_node_is_drained_while_the_others_are_in_maintenance(run, cluster, empty_4):
    cluster.desired_states = {1: "maintenance", 2: "maintenance", 3: "maintenance"}
    done = run("node", "drain", "4", "--yes")
    assert done.exit_code == 0 and cluster.desired_states[4] == "draining", done.output


def test_undrain_of_a_node_that_was_not_drained_is_nothing_to_do(run, cluster):
    done = run("node", "undrain", "3")
    assert done.exit_code == 2 and "was neither draining nor in maintenance" in done.stderr
    cluster.desired_states = {3: "draining"}
    assert run("node", "undrain", "3").exit_code == 0


# ---- maintenance of a node that has to lead ------------------------------------------------------


@pytest.mark.parametrize("words", [(), ("--yes",)])
def test_a_node_that_alone_can_lead_is_not_put_into_maintenance(run, cluster, words):
    cluster.desired_states = {2: "maintenance", 3: "draining"}
    done = run("node", "maintenance", "1", *words)
    assert done.exit_code == 3 and not marks(cluster) and not applied(cluster), done.output
    for text in ("node 1 leads 5 groups (0, 1, 2, 3, 4) that no other node can lead",
                 "node 2 is in maintenance", "node 3 is draining", "Nothing was changed",
                 "multiraft node undrain 2"):
        assert text in done.stderr


def test_a_node_with_the_only_replica_is_not_put_into_maintenance(run, cluster, monkeypatch):
    """Group 4 has one replica, the others have three."""
    loads, listed = PlanClient.group_loads, FakeClient.group_list

    def only(row):
        return row._replace(voters=(1,)) if row.group == 4 else row

    monkeypatch.setattr(PlanClient, "group_loads", lambda self, *arguments: [
        page._replace(groups=tuple(map(only, page.groups))) for page in loads(self, *arguments)])
    monkeypatch.setattr(PlanClient, "group_list", lambda self: tuple(map(only, listed(self))),
                        raising=False)
    done = run("node", "maintenance", "1", "--yes")
    assert done.exit_code == 3 and not marks(cluster) and not applied(cluster), done.output
    assert "1 group (4) that no other node can lead: their only replica" in done.stderr
    assert "multiraft node drain 1" in done.stderr


# ---- where it is shown ---------------------------------------------------------------------------


def test_what_is_wanted_of_nodes_is_seen_where_one_looks(run, cluster):
    cluster.desired_states = {1: "maintenance", 3: "draining"}
    listed = run("node", "list").stdout.splitlines()
    assert "up, in maintenance" in listed[1] and "up, draining" in listed[3]
    assert "," not in listed[2]
    described = run("node", "describe", "3").stdout
    assert "draining, until `multiraft node undrain 3`" in described
    status = run("cluster", "status").stdout.splitlines()
    assert status[0].startswith("Healthy: ")
    assert status[1] == ("Out of service: node 1 is in maintenance, node 3 is draining. "
                         "To return one to service: multiraft node undrain NODE")
    assert any("ready, draining" in line for line in status)
    for words in (("node", "list"), ("cluster", "status")):
        told = json.loads(run(*words, "--json").stdout)["nodes"]
        assert [row["intent"] for row in told] == ["maintenance", "alive", "draining"]
    assert json.loads(run("node", "describe", "3", "--json").stdout)["intent"] == "draining"


@pytest.mark.parametrize("error", [wire_errors.Unsupported("placement_facts is not known"),
                                   wire_errors.TimedOut("no answer")])
def test_when_nobody_says_what_is_wanted_the_rest_is_shown(run, cluster, monkeypatch, error):
    def refuse(self, request):
        raise error

    monkeypatch.setattr(PlanClient, "plan_request", refuse)
    for words in (("node", "list"), ("cluster", "status"), ("node", "describe", "2")):
        assert run(*words).exit_code == 0
    told = json.loads(run("cluster", "status", "--json").stdout)
    assert [row["intent"] for row in told["nodes"]] == [None] * 3


@pytest.mark.parametrize("scope, desired_state, told", [
    ("drain", "draining", "multiraft node drain 3 --yes"),
    ("leaders", "maintenance", "multiraft node maintenance 3 --yes"), ("all", "draining", "")])
def test_a_cancelled_plan_leaves_the_mark_of_its_node_and_says_so(
    run, cluster, scope, desired_state, told
):
    cluster.status, cluster.desired_states = BUSY._replace(scope=scope), {3: desired_state}
    done = run("rebalance", "cancel")
    assert done.exit_code == 0 and told in done.stderr
    assert ("multiraft node undrain 3" in done.stderr) is bool(told)


# ---- control that changes nothing ----------------------------------------------------------------


@pytest.mark.parametrize("action, state, reason, said", [
    ("pause", "paused", "paused by the operator", "paused already"),
    ("resume", "running", "", "running already"),
    ("pause", "cancelling", "cancelled by the operator", "being cancelled"),
    ("resume", "cancelling", "cancelled by the operator", "being cancelled")])
def test_to_pause_or_resume_twice_is_nothing_to_do(run, cluster, action, state, reason, said):
    cluster.status = BUSY._replace(state=state, reason=reason)
    done = run("rebalance", action)
    assert done.exit_code == 2 and f"plan {PLAN} is {said}" in done.stderr
    assert cluster.requests == [wire.PlanStatus()]


def test_a_plan_that_paused_itself_is_paused_by_the_operator_as_well(run, cluster):
    cluster.status = BUSY._replace(state="paused", reason="NODE_DOWN: node 3 is down")
    assert run("rebalance", "pause").exit_code == 0
    assert wire.ControlPlan("pause") in cluster.requests


def test_a_throttle_is_answered_with_the_rate(run, cluster):
    cluster.stays = "running"
    done = run("rebalance", "throttle", "5MiB")
    assert "is running, and copies at most 5.0 MiB/s and node from now on" in done.stderr


# ---- a cause is said once ------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("node", "drain", "3", "--yes"),
                                   ("rebalance", "plan", "--drain", "3", "--window", "0.2")])
def test_what_cannot_be_done_is_explained_once(run, cluster, words):
    done = run(*words)
    assert done.exit_code == 3 and done.stderr.count("TOO_FEW_NODES") == 1, done.output
    assert done.stderr.splitlines()[-1] == "Error: nothing was changed, for the reason above."


def test_where_the_plan_is_json_the_cause_is_in_the_error(run):
    done = run("rebalance", "plan", "--drain", "3", "--window", "0.2", "--json")
    assert done.exit_code == 3 and "TOO_FEW_NODES" in done.stderr
