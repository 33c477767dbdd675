"""`cluster status` and `group describe`: what a person sees at a glance, and a script."""

import json

import click
import pytest
from click.testing import CliRunner

from admin_cli import connection
from admin_cli.console.options import Seconds
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.session import Session
from admin_cli.status import cluster_facts, health
from admin_cli.values import quantities
from multiraft.wire import plans
from node.rebalance import preferred_leaders
from placement import policy

REPLICA_KEYS = ["node", "role", "state", "match", "lag_entries", "lag_bytes", "term",
                "first_index", "last_index", "durable_index", "commit", "applied_index",
                "log_bytes", "records", "record_bytes", "quarantined", "problem"]


def headline(run) -> str:
    return run("cluster", "status").stdout.splitlines()[0]


def row(run, node: int) -> list[str]:
    """A node's row of the table."""
    lines = run("cluster", "status").stdout.splitlines()
    return next(line.split() for line in lines if line.split()[:1] == [str(node)])


# ---- cluster status ------------------------------------------------------------------------------


def test_the_first_line_says_that_all_is_well(run):
    assert headline(run) == "Healthy: 3 nodes, every group has a leader and all its replicas."


def test_the_first_lines_say_what_needs_attention_the_worst_first(run, cluster):
    cluster.up = {1, 2}
    cluster.leaders[4] = 0
    cluster.node_status[2] = {"ready": 0, "not_ready": "catching up: 1 group (3) behind",
                              "groups_quarantined": 1, "quarantined": [3]}
    lines = run("cluster", "status").stdout.splitlines()
    assert lines[:6] == [
        "Needs attention:",
        "  groups without a leader (no appends): 2 (2, 4); next: multiraft group describe 2",
        "  quarantined replicas: 1 (3); next: multiraft group describe 3",
        "  node 2 is not ready: catching up: 1 group (3) behind; "
        "next: multiraft cluster status --wait-healthy",
        "  node 3 is down; next: multiraft node describe 3",
        "  under-replicated groups: 5 (0, 1, 2, 3, 4); next: multiraft group describe 0"]


@pytest.mark.parametrize("unknown", [True, False])
def test_a_node_that_alone_knows_no_leaders_does_not_contradict_the_table(run, cluster, unknown):
    reason = "no leader is known: 5 groups (0, 1, ...)"
    cluster.node_status[2] = {"ready": 0, "not_ready": reason}
    if unknown:
        cluster.leaders[4] = 0
    said = run("cluster", "status").stdout
    assert f"node 2 is not ready: {reason}" in said
    own_view = "as node 2 sees it; the node that was asked knows them all"
    assert (own_view in said) is not unknown


def test_a_full_disk_needs_attention(run, cluster):
    cluster.node_status[2] = {"disk_full": 1}
    assert run("cluster", "status").stdout.splitlines()[:2] == [
        "Needs attention:", "  node 2 has a full disk and refuses records: 3.0 GiB free"]


@pytest.fixture
def returned(cluster, monkeypatch):
    """A cluster in which node 3 was away, and leads nothing since it is back."""
    monkeypatch.setattr(health, "SHARE_FLOOR", 0)
    cluster.leaders = {0: 1, 1: 2, 2: 1, 3: 1, 4: 2}
    cluster.node_status[3] = {"uptime_ms": 1_000}
    return cluster


LEADS_NOTHING = ("Note: node 3 leads no group; its share is 1, and none returns by itself; next: "
                 "multiraft rebalance plan --scope leaders --yes")


def test_a_node_to_which_no_leadership_returns_is_noted_and_the_cluster_is_healthy(run, returned):
    assert run("cluster", "status").stdout.splitlines()[:3] == [
        "Healthy: 3 nodes, every group has a leader and all its replicas.", LEADS_NOTHING, ""]
    assert run("cluster", "status", "--check").exit_code == 0
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert answer["healthy"] and not answer["needs_attention"]
    assert answer["notes"] == [{
        "note": "leads_nothing",
        "text": "node 3 leads no group; its share is 1, and none returns by itself",
        "command": "multiraft rebalance plan --scope leaders --yes"}]
    assert [(node["leads"], node["leads_share"], node["preferred_by"])
            for node in answer["nodes"]] == [(3, 1, 0), (2, 1, 0), (0, 1, 0)]


def test_a_node_that_a_plan_gave_groups_gets_them_back_within_two_minutes(run, returned):
    returned.preferred = {2: 3, 4: 3}
    assert run("cluster", "status").stdout.splitlines()[1] == (
        "Note: node 3 leads no group yet; those that a plan gave it return by themselves within "
        "two minutes of its start")
    returned.node_status[3] = {"uptime_ms": health.RETURN_MS}
    assert run("cluster", "status").stdout.splitlines()[1] == LEADS_NOTHING
    assert health.RETURN_MS == preferred_leaders.WINDOW_MS == 120_000


@pytest.mark.parametrize("plan", ["", "0891c1236ce7"])
def test_a_far_clock_is_noted_with_its_node_and_distance(run, cluster, plan):
    cluster.plan_id = plan
    cluster.node_status[2] = {"clock_skew_ms": -75_000, "clock_is_far": 1}
    cluster.node_status[3] = {"clock_skew_ms": 59_000, "clock_is_far": 0}
    notes = [line for line in run("cluster", "status").stdout.splitlines() if "Note:" in line]
    assert notes == ["Note: the clock of node 2 is 1 min 15 s behind those of the other nodes: it "
                     "deletes nothing by age until its clock is set (NTP)"]
    assert run("cluster", "status", "--check").exit_code == 0
    row = json.loads(run("cluster", "status", "--json").stdout)["nodes"][1]
    assert (row["clock_skew_ms"], row["clock_is_far"]) == (-75_000, True)


@pytest.mark.parametrize("change", [
    {"leaders": {0: 1, 1: 2, 2: 3, 3: 1, 4: 2}},  # it leads one
    {"up": {1, 2}},
    {"desired_states": {3: plans.MAINTENANCE}},
    {"plan_id": "0891c1236ce7"},  # which decides about leaders
    {"node_status": {3: {"disk_full": 1}}},
    {"node_status": {3: {"ready": 0, "not_ready": "catching up"}}}])
def test_no_note_is_made_of_a_node_that_is_not_to_lead_or_may_lead_soon(run, returned, change):
    for name, value in change.items():
        setattr(returned, name, value)
    assert "Note:" not in run("cluster", "status").stdout


def test_no_note_is_made_where_a_plan_would_move_nothing(run, returned, monkeypatch):
    monkeypatch.undo()
    assert "Note:" not in run("cluster", "status").stdout
    [floor] = [band.floor for band in policy.Policy().bands if band.resource == policy.LEADERS]
    assert health.SHARE_FLOOR == floor


def test_a_node_is_a_row_with_what_it_tells_of_itself(run):
    words = row(run, 1)
    assert words[:3] == ["1", "ready", "0.1.0"]
    assert " ".join(words).endswith("2.0 KiB 5.0 MiB 3.0 GiB (75 %) r1 127.0.0.1:9101")
    assert "2 h 2 min" in " ".join(words)


def test_leaders_per_node_are_bars(run, cluster):
    cluster.leaders = {0: 1, 1: 1, 2: 1, 3: 1, 4: 2}
    cell = "█" if "█" in " ".join(row(run, 1)) else "#"
    assert cell * quantities.BAR_CELLS in row(run, 1)
    assert cell * 3 in row(run, 2)
    assert not any(cell in word for word in row(run, 3))


def test_a_node_that_hangs_is_a_row_and_not_the_end(run, cluster):
    cluster.silent = {2}
    result = run("cluster", "status")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [
        "Needs attention:", "  node 2 does not answer: node 2 gave no answer in time."]
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert [node["problem"] is None for node in answer["nodes"]] == [True, False, True]


def test_nodes_that_hang_are_waited_for_within_one_budget(run, cluster, monkeypatch):
    monkeypatch.setattr(cluster_facts, "BUDGET_S", 0)
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert {node["problem"] for node in answer["nodes"]} == {
        "not asked: other nodes took too long to answer"}
    assert not cluster.caught_up


def test_what_leaders_see_and_what_is_down_are_under_replicated(run, cluster):
    cluster.node_status[1] = {"under_replicated": [3]}
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert answer["under_replicated_groups"] == [3]


def test_a_node_of_another_release_that_tells_less_is_shown(run, cluster):
    for key in ("ready", "version", "disk_total_bytes", "disk_free_bytes"):
        cluster.node_status[1] = {**cluster.node_status.get(1, {}), key: None}
    assert row(run, 1)[:3] == ["1", "up", "-"]


def watched(cluster, environ, looks: int, *arguments: str, change=None):
    """Run with --watch; Ctrl-C comes in the pause after so many looks."""
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if change is not None:
            change(len(pauses))
        if len(pauses) == looks:
            raise KeyboardInterrupt

    session = Session(environ, cluster.connect, "127.0.0.1:9101", pause=pause)
    result = CliRunner().invoke(cli, ("cluster", "status", "--watch", *arguments), obj=session,
                                prog_name="multiraft")
    return result, pauses


def test_watching_looks_again_until_ctrl_c(cluster, environ):
    result, pauses = watched(cluster, environ, 3, "--interval", "0.5",
                             change=lambda look: cluster.leaders.update({4: 0}))
    assert result.exit_code == ExitCode.INTERRUPTED
    assert pauses == [0.5] * 3
    assert result.stdout.count("Healthy") == 1
    assert result.stdout.count("Needs attention") == 2


def test_watching_as_json_is_a_line_per_look(cluster, environ):
    result, _pauses = watched(cluster, environ, 3, "--json")
    lines = result.stdout.splitlines()
    assert [json.loads(line)["metadata_leader"] for line in lines] == [1, 1, 1]


def test_watching_survives_a_cluster_that_does_not_answer_now(cluster, environ):
    def change(look: int) -> None:
        cluster.failure = ConnectionRefusedError("refused") if look == 1 else None

    result, _pauses = watched(cluster, environ, 3, change=change)
    assert result.stdout.count("Healthy") == 2
    assert "refused" in result.stderr


# ---- group describe ------------------------------------------------------------------------------


def described(run, *arguments: str) -> dict:
    return json.loads(run("group", "describe", *arguments, "--json").stdout)


def test_a_group_is_described_by_all_its_members(run, cluster):
    cluster.lag = 5
    answer = described(run, "1")
    assert {key: answer[key] for key in ("group", "leader", "term", "voters", "outgoing",
                                         "partitions", "log_bytes", "committed_in_term")} == {
        "group": 1, "leader": 2, "term": 7, "voters": [1, 2, 3], "outgoing": [], "partitions": 2,
        "log_bytes": 4096, "committed_in_term": True}
    assert [list(each) for each in answer["replicas"]] == [REPLICA_KEYS] * 3
    assert [(each["node"], each["role"], each["state"], each["lag_entries"], each["lag_bytes"])
            for each in answer["replicas"]] == [
        (1, "follower", "replicate", 5, 50), (2, "leader", "leader", 0, 0),
        (3, "follower", "replicate", 5, 50)]


def test_a_person_sees_leader_members_and_lag(run, cluster):
    cluster.lag = 5
    text = run("group", "describe", "1").stdout
    assert text.startswith("Group 1 led by node 2 in term 7\nvoters 1, 2, 3; learners none\n")
    assert "2 partitions with data, 4.0 KiB of log\n" in text
    cluster.configurations[1] = {"first_index": 60, "records": 7, "record_bytes": 1024}
    text = run("group", "describe", "1").stdout
    assert "2 partitions with data, 4.0 KiB of log, of them 1.0 KiB below the Raft start" in text
    assert "50 B" in text


def test_a_joint_configuration_and_learners_are_said(run, cluster):
    cluster.configurations[1] = {"voters": (1, 2), "outgoing": (1, 2, 3), "learners": (3,)}
    text = run("group", "describe", "1").stdout
    assert "outgoing voters 1, 2, 3; both majorities are required" in text
    assert "learners 3" in text
    assert described(run, "1")["outgoing"] == [1, 2, 3]


def test_members_that_the_list_does_not_name_yet_are_asked_too(run, cluster, monkeypatch):
    cluster.configurations[1] = {"voters": (1, 2, 3), "learners": (9,)}
    rows = {each["node"]: each for each in described(run, "1")["replicas"]}
    assert rows[9]["problem"] == "the node is not known"


def test_why_a_replica_is_quarantined_is_said(run, cluster):
    cluster.configurations[1] = {"quarantined": "lane position 7 is unreadable"}
    assert "quarantined: lane position 7 is unreadable" in run("group", "describe", "1").stdout


@pytest.mark.parametrize("how", ["down", "silent"])
def test_without_its_leaders_node_a_group_is_described_by_the_others(run, cluster, how):
    if how == "down":
        cluster.up = {1, 3}
    else:
        cluster.silent = {2}
    answer = described(run, "1")
    rows = {each["node"]: each for each in answer["replicas"]}
    assert (rows[2]["role"], rows[1]["role"]) == (None, "follower")
    assert rows[2]["problem"] and rows[1]["problem"] is None
    assert rows[1]["lag_entries"] is None, "only a leader knows"
    assert answer["leader"] == (None if how == "down" else 2)


def test_a_group_without_a_leader_says_so(run, cluster):
    cluster.leaders[1] = 0
    assert run("group", "describe", "1").stdout.startswith("Group 1 has no leader (term 7)")


def test_a_group_that_does_not_exist_is_not_found(run):
    result = run("group", "describe", "99")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "0 to 4" in result.stderr


# ---- quantities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "text"), [
    (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (100 << 20, "100 MiB"),
    (5 << 60, "5120 PiB"), (None, None)])
def test_sizes(count, text):
    assert quantities.size(count) == text


@pytest.mark.parametrize(("milliseconds", "text"), [
    (0, "0 s"), (59_999, "59 s"), (60_000, "1 min"), (61_000, "1 min 1 s"),
    (3_600_000, "1 h"), (3_601_000, "1 h"), (90_061_000, "1 d 1 h"), (None, None)])
def test_spans(milliseconds, text):
    assert quantities.span(milliseconds) == text


@pytest.mark.parametrize(("value", "most", "cells"), [(0, 10, 0), (10, 10, 12), (1, 1000, 1),
                                                      (5, 10, 6), (0, 0, 0)])
def test_bars(value, most, cells):
    assert len(quantities.bar(value, most, "#")) == cells


# ---- leaders that cannot append ------------------------------------------------------------------


def test_without_a_majority_no_group_has_a_leader(run, cluster):
    """The node that is asked still names leaders, of which some are dead."""
    cluster.up = {1}
    cluster.topics["t"] = [[], []]
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert answer["leaderless_groups"] == [0, 1, 2, 3, 4]
    assert answer["metadata_leader"] is None
    assert [node["leads"] for node in answer["nodes"]] == [0, 0, 0]
    for listing, rows in (("group list", "groups"), ("topic describe t", "partitions")):
        told = json.loads(run(*listing.split(), "--json").stdout)[rows]
        assert {row["leader"] for row in told} == {None}
    assert {row["leads"] for row in json.loads(run("node", "list", "--json").stdout)["nodes"][1:]
            } == {0}
    assert run("group", "describe", "2").stdout.startswith("Group 2 has no leader")


def test_with_a_majority_only_the_groups_of_the_dead_node_have_no_leader(run, cluster):
    cluster.up = {1, 2}
    cluster.topics["t"] = [[], [], []]
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert answer["leaderless_groups"] == [2]
    assert [node["leads"] for node in answer["nodes"]] == [2, 2, 0]
    told = json.loads(run("topic", "describe", "t", "--json").stdout)["partitions"]
    assert [row["leader"] for row in told] == [2, None, 1]


@pytest.mark.parametrize(("leader", "up", "living"), [
    (1, {1, 2}, 1), (1, {1}, None), (3, {1, 2}, None), (0, {1, 2, 3}, None)])
def test_a_leader_lives_on_a_node_that_is_up_with_a_majority(leader, up, living):
    assert connection.living_leader(leader, (1, 2, 3), frozenset(up)) == living


# ---- for scripts ---------------------------------------------------------------------------------


def test_check_sets_the_exit_code(run, cluster):
    assert run("cluster", "status", "--check").exit_code == ExitCode.OK
    cluster.up = {1, 2}
    assert run("cluster", "status").exit_code == ExitCode.OK
    result = run("cluster", "status", "--check")
    assert result.exit_code == ExitCode.UNHEALTHY == 10
    assert result.stdout.startswith("Needs attention:")
    cluster.failure = ConnectionRefusedError("refused")
    assert run("cluster", "status", "--check").exit_code == ExitCode.UNREACHABLE


class Clock:
    """Time that only pauses take."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


def waited(cluster, environ, *arguments: str, change=None, clock=None):
    """Run with the arguments; ``change(number)`` is called in each pause. ``clock`` counts them."""
    pauses: list[float] = []
    clock = clock or Clock()

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.now_s += seconds
        assert len(pauses) < 1_000
        if change is not None:
            change(len(pauses))

    session = Session(environ, cluster.connect, "127.0.0.1:9101", pause=pause)
    return CliRunner().invoke(cli, ("cluster", "status", *arguments), obj=session,
                              prog_name="multiraft"), pauses


@pytest.mark.parametrize("spelling", ["--wait-healthy", "--exit-when-healthy", "-e"])
def test_waiting_ends_when_the_cluster_is_healthy(cluster, environ, spelling):
    cluster.up = {1, 2}

    def change(pause: int) -> None:
        cluster.failure = ConnectionRefusedError("refused") if pause == 2 else None
        cluster.up = {1, 2, 3} if pause == 4 else {1, 2}
        cluster.leaders[4] = 0 if pause == 3 else 2

    result, pauses = waited(cluster, environ, spelling, change=change)
    assert (result.exit_code, len(pauses)) == (0, 4)
    assert result.stdout.startswith("Healthy:")
    told = result.stderr.splitlines()
    assert told[0] == "Waiting at most 300 s until the cluster is healthy."
    assert [line.split("s  ", 1)[1][:24] for line in told[1:]] == [
        "groups without a leader ", "no answer from 127.0.0.1", "groups without a leader "]
    assert "2 (2, 4)" in told[3] and "and 2 other problems" in told[3]


def test_a_healthy_cluster_is_not_waited_for(cluster, environ):
    result, pauses = waited(cluster, environ, "--wait-healthy", "--json")
    assert (result.exit_code, pauses, result.stderr) == (0, [], "")
    assert json.loads(result.stdout)["healthy"] is True


def test_waiting_ends_at_its_limit_with_the_reason(cluster, environ, monkeypatch):
    cluster.up, clock = {1, 2}, Clock()
    monkeypatch.setattr("admin_cli.commands.cluster.time", clock)
    result, pauses = waited(cluster, environ, "--wait-healthy", "--timeout", "5s", clock=clock)
    assert sum(pauses) == 5.0
    assert result.exit_code == ExitCode.UNHEALTHY
    assert result.stdout.startswith("Needs attention:")
    assert "not healthy in time: groups without a leader (no appends): 1 (2)" in result.stderr
    cluster.failure = ConnectionRefusedError("refused")
    result, _pauses = waited(cluster, environ, "--wait-healthy", "--timeout", "0")
    assert result.exit_code == ExitCode.UNREACHABLE


def test_watching_until_it_is_healthy_ends_then(cluster, environ):
    cluster.up = {1, 2}
    result, pauses = waited(cluster, environ, "-w", "-e",
                            change=lambda pause: cluster.up.add(3))
    assert (result.exit_code, pauses) == (0, [2.0])
    assert result.stdout.count("Needs attention") == result.stdout.count("Healthy") == 1


@pytest.mark.parametrize("arguments", [("--timeout", "5"), ("--check", "--watch")])
def test_options_that_do_not_fit_together_are_a_usage_error(run, arguments):
    assert run("cluster", "status", *arguments).exit_code == ExitCode.USAGE


def test_the_word_of_another_system_leads_to_the_status(run):
    result = run("cluster", "health")
    assert result.exit_code == ExitCode.USAGE
    assert "`multiraft cluster status`" in result.stderr


# ---- the next command ----------------------------------------------------------------------------


def test_a_development_cluster_is_started_by_its_own_command(cluster):
    cluster.up = {1, 2}
    facts = cluster_facts.cluster_status(cluster.connect(["x"]), is_dev=True)
    down = next(need for need in facts["needs_attention"] if need["problem"] == "node_down")
    assert down == {"problem": "node_down", "text": "node 3 is down",
                    "command": "multiraft dev start 3"}


@pytest.mark.parametrize(("told", "problem"), [
    ({"phase": "stopping", "ready": 0}, "node_stopping"),
    ({"phase": "a phase of tomorrow", "ready": 0}, "node_not_ready")])
def test_a_node_that_does_not_serve_is_reported(run, cluster, told, problem):
    cluster.node_status[2] = told
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert [need["problem"] for need in answer["needs_attention"]] == [problem]


@pytest.mark.parametrize("text", ["5s", "5", "5.0", "5000ms"])
def test_a_time_to_wait_is_seconds_or_a_duration(text):
    assert Seconds(0, 60).convert(text, None, None) == 5.0
    with pytest.raises(click.UsageError):
        Seconds(0, 4).convert(text, None, None)
