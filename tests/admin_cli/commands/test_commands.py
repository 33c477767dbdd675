"""Topics, groups, cluster: JSON shapes, exit codes, what is said."""

from __future__ import annotations

import json

import pytest

from admin_cli import connection
from admin_cli.failures import ExitCode
from multiraft.client.blocking import NoNodeAnswered
from multiraft.wire import errors as wire
from tests.admin_cli.fakes import FakeClient


def test_topic_describe_prints_the_documented_json(run, cluster):
    cluster.topics["flights"] = [[b"a", b"b"], []]
    result = run("topic", "describe", "flights", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"name": "flights", "partitions": [
        {"partition": 0, "group": 1, "leader": 2, "start_offset": 0, "end_offset": 2,
         "leader_epoch": 7, "replicas": [1, 2, 3], "bytes": 0, "bytes_complete": True,
         "state": "ok"},
        {"partition": 1, "group": 2, "leader": 3, "start_offset": 0, "end_offset": 0,
         "leader_epoch": 7, "replicas": [1, 2, 3], "bytes": 0, "bytes_complete": True,
         "state": "ok"}]}


@pytest.mark.parametrize("up, leader, state, shown", [
    ({1, 2, 3}, 2, "ok", 2), ({1, 2}, 2, "under-replicated", 2), ({1, 2, 3}, 0, "no leader", None),
    ({1, 3}, 2, "no leader", None), ({2}, 2, "no majority", None)])
def test_a_partition_has_the_state_of_its_group(run, cluster, up, leader, state, shown):
    cluster.topics["t"] = [[]]
    cluster.up, cluster.leaders[1] = up, leader
    row = json.loads(run("topic", "describe", "t", "--json").stdout)["partitions"][0]
    assert (row["state"], row["leader"]) == (state, shown)
    assert state in run("topic", "describe", "t").stdout


def test_several_topics_are_described_one_after_the_other(run, cluster):
    cluster.topics |= {"a": [[b"x"]], "b": [[]]}
    lines = run("topic", "describe", "b", "a").stdout.splitlines()
    assert [line for line in lines if line in ("a", "b")] == ["b", "a"]
    assert [json.loads(line)["name"] for line in
            run("topic", "describe", "b", "a", "--json").stdout.splitlines()] == ["b", "a"]
    assert run("topic", "describe", "a", "none").exit_code == ExitCode.NOT_FOUND


def test_internal_topics_are_listed_when_asked_for_and_always_in_json(run, cluster):
    cluster.topics |= {"orders": [[]], "__metrics": [[]]}
    assert "__metrics" not in run("topic", "list").stdout
    for flag in ("--all", "-a", "-i", "--internal"):
        assert "__metrics" in run("topic", "list", flag).stdout
    rows = json.loads(run("topic", "list", "--json").stdout)["topics"]
    assert {row["name"]: row["internal"] for row in rows} == {"orders": False, "__metrics": True}


def test_several_topics_are_created_and_deleted_at_once(run, cluster):
    made = run("topic", "create", "a", "b", "-p", "3", "-r", "3")
    assert made.exit_code == 0, made.output
    assert {name: len(parts) for name, parts in cluster.topics.items()} == {"a": 3, "b": 3}
    refused = run("topic", "delete", "a", "none", "b", "nowhere")
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert "there is no topic none, nowhere; nothing was deleted." in refused.stderr
    assert sorted(cluster.topics) == ["a", "b"]
    assert run("topic", "delete", "a", "b", "a").exit_code == 0
    assert cluster.topics == {}


def test_group_describe_of_a_topic_says_what_a_group_is(run):
    result = run("group", "describe", "orders")
    assert result.exit_code == ExitCode.USAGE
    assert "a group is a number" in result.stderr
    assert "`multiraft topic describe orders`" in result.stderr


def test_an_unknown_leader_is_null(run, cluster):
    cluster.topics["flights"] = [[]]
    cluster.leaders[1] = 0
    answer = json.loads(run("topic", "describe", "flights", "--json").stdout)
    assert answer["partitions"][0]["leader"] is None


def test_json_is_one_line_when_piped(run, cluster):
    cluster.topics["flights"] = [[]]
    assert run("topic", "describe", "flights", "--json").stdout.count("\n") == 1


def test_topics_are_created_listed_and_deleted(run):
    assert run("topic", "create", "b", "--partitions", "3").exit_code == 0
    assert run("topic", "create", "a").exit_code == 0
    assert json.loads(run("topic", "list", "--json").stdout) == {"topics": [
        {"name": "a", "partitions": 1, "replication_factor": 3, "internal": False},
        {"name": "b", "partitions": 3, "replication_factor": 3, "internal": False}]}
    assert run("topic", "delete", "a").exit_code == 0
    assert [row.split() for row in run("topic", "list").stdout.splitlines()] == [
        ["topic", "partitions", "replicas"], ["b", "3", "3"]]


def test_an_empty_list_says_how_to_begin(run):
    result = run("topic", "list")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "multiraft topic create" in result.stderr


def test_creating_a_topic_twice_fails_unless_that_is_fine(run):
    run("topic", "create", "a")
    again = run("topic", "create", "a")
    assert again.exit_code == ExitCode.FAILED
    assert "exists" in again.stderr
    assert run("topic", "create", "a", "--if-not-exists").exit_code == 0


def test_another_replication_factor_is_refused_with_the_pools(run):
    assert run("topic", "create", "a", "--replication-factor", "3").exit_code == 0
    result = run("topic", "create", "b", "--replication-factor", "2")
    assert result.exit_code == ExitCode.FAILED
    assert "3" in result.stderr


def test_a_bad_name_is_answered_with_the_rule(run):
    result = run("topic", "create", "a/b")
    assert result.exit_code == ExitCode.FAILED
    assert "A-Z a-z 0-9 . _ -" in result.stderr


@pytest.mark.parametrize("command", [["topic", "describe", "x"], ["topic", "delete", "x"]])
def test_a_missing_topic_is_not_found(run, command):
    result = run(*command)
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "'x'" in result.stderr
    assert "multiraft topic list" in result.stderr


def test_offsets_of_a_topic_and_where_a_time_is(run, cluster):
    cluster.topics["t"] = [[(None, b"a"), (None, b"b")], []]
    assert json.loads(run("topic", "offsets", "t", "--json").stdout) == {
        "name": "t", "partitions": [{"partition": 0, "start_offset": 0, "end_offset": 2},
                                    {"partition": 1, "start_offset": 0, "end_offset": 0}]}
    found = run("topic", "offsets", "t", "--at", "@1700000000000", "--json")
    assert json.loads(found.stdout) == {
        "name": "t", "timestamp": 1_700_000_000_000,
        "partitions": [{"partition": 0, "offset": 0}, {"partition": 1, "offset": None}]}
    assert run("topic", "offsets", "t").stdout.split()[:3] == [
        "partition", "start_offset", "end_offset"]
    assert run("topic", "offsets", "nowhere").exit_code == ExitCode.NOT_FOUND
    assert run("topic", "offsets", "t", "--at", "noon").exit_code == ExitCode.USAGE


def test_cluster_status_json(run, cluster):
    cluster.up = {1, 3}
    cluster.leaders[2] = 0
    answer = json.loads(run("cluster", "status", "--json").stdout)
    assert list(answer) == ["cluster", "metadata_leader", "groups", "growing_to",
                            "replication_factor", "topics", "partitions", "nodes",
                            "leaderless_groups", "under_replicated_groups",
                            "quarantined_groups", "plan", "healthy", "needs_attention",
                            "notes"]
    untold = ("version", "phase", "ready", "not_ready", "uptime_ms", "quarantined", "behind",
              "lag_entries", "log_bytes", "disk_used_bytes", "disk_free_bytes", "disk_total_bytes",
              "disk_full", "clock_skew_ms", "clock_is_far", "scrub", "problem")
    place = {"id": 2, "state": "down", "intent": "alive", "rack": "r2",
             "client_address": "127.0.0.1:9102", "peer_address": "127.0.0.1:9202",
             "kafka_address": None,
             "leads": 0, "leads_share": 1, "preferred_by": 0, "groups": 5}
    assert answer["nodes"][1] == {**place, **dict.fromkeys(untold)}
    told = answer["nodes"][2]
    assert set(told) == {*place, *untold}
    assert (told["ready"], told["uptime_ms"], told["problem"]) == (True, 7_325_000, None)
    assert answer["leaderless_groups"] == [1, 2, 4], "node 2 led two more"
    assert answer["healthy"] is False
    assert answer["needs_attention"][0] == {
        "problem": "groups_leaderless", "text": "groups without a leader (no appends): 3 (1, 2, 4)",
        "command": "multiraft group describe 1"}
    assert answer["under_replicated_groups"] == [0, 1, 2, 3, 4]


def test_cluster_status_for_a_person_counts_groups_in_need(run, cluster):
    cluster.leaders[2] = 0
    text = run("cluster", "status").stdout
    assert "groups without a leader (no appends): 1 (2)" in text
    assert "under-replicated groups: none" in text


def test_group_list_and_transfer(run, cluster):
    rows = json.loads(run("group", "list", "--json").stdout)["groups"]
    assert rows[1] == {"group": 1, "leader": 2, "term": 7, "voters": [1, 2, 3], "learners": []}
    result = run("group", "transfer", "1", "3", "--json")
    assert json.loads(result.stdout) == {"group": 1, "leader": 3, "term": 8}
    assert cluster.leaders[1] == 3
    assert run("group", "transfer", "1", "--to", "2").exit_code == 0
    assert cluster.leaders[1] == 2


def test_a_missing_group_is_not_found(run):
    result = run("group", "transfer", "99")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "0 to 4" in result.stderr


def test_a_node_that_is_no_voter_is_refused_with_those_that_are(run):
    result = run("group", "transfer", "1", "7")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "Its voters are 1, 2, 3." in result.stderr


@pytest.mark.parametrize("error, code", [
    (wire.AmbiguousOutcome("the connection broke"), ExitCode.AMBIGUOUS),
    (wire.LeaderUnknown("group 3 has no leader"), ExitCode.UNREACHABLE),
    (wire.OffsetNotAvailable("t/0: its leader did not answer in 10 s"), ExitCode.UNREACHABLE),
    (wire.StorageFull("the disk is full"), ExitCode.FAILED),
    (wire.UnknownTopic("there is no topic"), ExitCode.NOT_FOUND),
    (wire.RemoteProtocolError("not our protocol"), ExitCode.UNREACHABLE),
    (wire.TimedOut("no answer in time"), ExitCode.UNREACHABLE),
    (ConnectionRefusedError("refused"), ExitCode.UNREACHABLE),
    (TimeoutError("too late"), ExitCode.UNREACHABLE),
])
def test_every_kind_of_failure_has_its_exit_code_and_no_traceback(run, cluster, error, code):
    cluster.failure = error
    result = run("topic", "list")
    assert result.exit_code == code
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.output


def test_each_fact_about_addresses_that_do_not_answer_is_told_once(run, cluster):
    refused = "cannot connect: Connection refused"
    cluster.failure = NoNodeAnswered({"10.0.0.1:1": refused, "10.0.0.2:2": refused})
    result = run("topic", "list", servers="10.0.0.1:1,10.0.0.2:2")
    assert result.exit_code == ExitCode.UNREACHABLE
    assert result.stderr.splitlines()[0] == (
        f"Error: no answer from 10.0.0.1:1, 10.0.0.2:2 (from --servers): {refused}.")
    cluster.failure = NoNodeAnswered({"10.0.0.1:1": refused, "10.0.0.2:2": "silent for 3 s",
                                      "10.0.0.3:3": refused})
    result = run("topic", "list", servers="10.0.0.1:1,10.0.0.2:2")
    assert result.stderr.splitlines()[0] == (
        f"Error: no answer from any address (from --servers): 10.0.0.1:1, 10.0.0.3:3: {refused}; "
        "10.0.0.2:2: silent for 3 s.")


@pytest.mark.parametrize("arguments", [
    ("produce", "greetigns"), ("consume", "greetigns"), ("consume", "greetigns", "-o", "-1"),
    ("topic", "describe", "greetigns"), ("topic", "offsets", "greetigns"),
    ("topic", "delete", "greetigns", "--yes"), ("topic", "delete", "greetigns", "t", "--yes"),
    ("placement", "explain", "greetigns"), ("sink", "blocked", "greetigns"),
    ("placement", "switch", "greetigns", "0", "--to-group", "2")], ids=" ".join)
def test_a_topic_that_does_not_exist_is_answered_with_the_one_that_was_meant(run, cluster,
                                                                            arguments):
    cluster.topics = {"t": [[]], "greetings": [[]]}
    result = run(*arguments, input=b"")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "  Did you mean greetings?\n  `multiraft topic list` shows" in result.stderr


def test_only_so_many_topics_are_compared_and_none_is_named_that_is_unlike(run, cluster,
                                                                          monkeypatch):
    cluster.topics = {"a": [[]], "greetings": [[]]}
    result = run("topic", "describe", "zzz")
    assert result.exit_code == ExitCode.NOT_FOUND and "Did you mean" not in result.stderr
    monkeypatch.setattr(connection, "TOPICS_COMPARED_MAX", 1)
    for words in (("describe", "greetigns"), ("delete", "--yes", "greetigns", "a")):
        assert "Did you mean" not in run("topic", *words).stderr


def test_the_topic_is_missing_also_when_no_topic_can_be_named(run, cluster, monkeypatch):
    def fail(_self, count_max=None):
        raise wire.TimedOut("no answer")

    monkeypatch.setattr(FakeClient, "list_topics", fail)
    result = run("topic", "describe", "greetigns")
    assert result.exit_code == ExitCode.NOT_FOUND and "greetigns" in result.stderr


def test_when_nothing_answers_it_says_whom_it_asked_and_why_those(run, cluster):
    cluster.failure = ConnectionRefusedError("connection refused")
    result = run("topic", "list", servers="10.0.0.1:1,10.0.0.2:2")
    assert "10.0.0.1:1, 10.0.0.2:2 (from --servers)" in result.stderr


def test_ctrl_c_ends_with_130_and_no_traceback(run, cluster):
    cluster.failure = KeyboardInterrupt()
    result = run("topic", "list")
    assert result.exit_code == ExitCode.INTERRUPTED
    assert "Traceback" not in result.output


def test_a_topic_that_exists_is_answered_with_the_flag_and_with_the_difference(run):
    assert run("topic", "create", "a", "-p", "3").exit_code == 0
    assert "--if-not-exists" in run("topic", "create", "a").stderr
    same = run("topic", "create", "a", "-p", "3", "--if-not-exists")
    assert same.stderr == "Topic a exists already; nothing was changed.\n"
    assert run("topic", "create", "a", "--if-not-exists").stderr == same.stderr
    other = run("topic", "create", "a", "-p", "4", "--if-not-exists")
    assert other.exit_code == 0
    assert ("exists already with 3 partitions, not 4: `multiraft topic add-partitions` adds some"
            in other.stderr)


LEADERLESS = "group 0 has no leader that this node knows of: an election is in progress, or the " \
             "group has lost its majority"


@pytest.mark.parametrize("words", [("topic", "create", "lost"), ("topic", "delete", "t", "--yes"),
                                   ("node", "remove", "3", "--yes")])
@pytest.mark.parametrize("error", [wire.LeaderUnknown(LEADERLESS), wire.TimedOut("no answer"),
                                   wire.LeaderUnknown("the metadata group has no leader that this "
                                                      "node knows of")])
def test_a_lost_majority_is_named_with_the_members_that_are_down(run, cluster, monkeypatch, words,
                                                                 error):
    def refuse(*_):
        raise error

    cluster.topics["t"] = [[]]
    cluster.up = {1}
    for name in ("create_topic", "delete_topic", "remove_node"):
        monkeypatch.setattr(FakeClient, name, refuse)
    failed = run(*words)
    assert failed.exit_code == ExitCode.UNREACHABLE
    assert failed.stderr.splitlines() == [
        "Error: the metadata group, group 0, has no leader: 1 of its 3 members is up (node 1 at "
        "127.0.0.1:9101), down: node 2 at 127.0.0.1:9102, node 3 at 127.0.0.1:9103.",
        "  Start the nodes that are down; `multiraft cluster status` shows all of them."]


def test_an_outcome_that_is_not_known_names_the_members_that_are_down_too(run, cluster,
                                                                          monkeypatch):
    def lose(*_):
        raise wire.AmbiguousOutcome("create_topic: it may have happened")

    cluster.up = {1}
    monkeypatch.setattr(FakeClient, "create_topic", lose)
    failed = run("topic", "create", "lost")
    assert failed.exit_code == ExitCode.AMBIGUOUS
    assert "may have happened" in failed.stderr and "down: node 2 at" in failed.stderr


def test_a_group_with_a_leader_is_not_the_reason(run, cluster, monkeypatch):
    def refuse(*_):
        raise wire.TimedOut("create_topic: no answer in time")

    monkeypatch.setattr(FakeClient, "create_topic", refuse)
    assert "no answer in time" in run("topic", "create", "slow").stderr


@pytest.mark.parametrize("why, advice", [
    ("cannot connect: [SSL: SSLV3_ALERT_HANDSHAKE_FAILURE] sslv3 alert handshake failure",
     "does not speak TLS at this address"),
    ("cannot connect: [SSL: WRONG_VERSION_NUMBER] wrong version number", "leave out --tls"),
    ("cannot connect: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "--tls-ca"),
    ("cannot connect: [SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] required", "--tls-cert"),
    ("cannot connect: connection refused", "Is the cluster up?")])
def test_a_failure_of_tls_is_answered_with_what_to_try(run, cluster, why, advice):
    cluster.failure = NoNodeAnswered({"127.0.0.1:9101": why})
    failed = run("topic", "list")
    assert failed.exit_code == ExitCode.UNREACHABLE
    assert advice in failed.stderr
    assert ("dev up" in failed.stderr) is False
