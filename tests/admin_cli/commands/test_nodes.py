"""`multiraft node`: what a cluster says of its nodes, beside the server's own commands."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.session import Session
from admin_cli.values import quantities
from tests.admin_cli.fakes import SCRUBBING


def test_the_list_says_who_is_there(run, cluster):
    cluster.up = {1, 3}
    result = run("node", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["node", "state", "replicas", "leads"]
    assert lines[2].split()[:4] == ["2", "down", "5", "0"]
    assert "2023-11-14T22:13:20+00:00" in lines[1] and " -  " in lines[2]


def test_the_json_of_the_list_is_stable(run, cluster):
    cluster.removed.append(3)
    answer = json.loads(run("node", "list", "--json").stdout)
    assert answer["removed"] == [3]
    assert answer["nodes"][0] == {
        "id": 1, "state": "up", "intent": "alive", "client_address": "127.0.0.1:9101",
        "peer_address": "127.0.0.1:9201", "kafka_address": None, "rack": "r1", "weight": 1.0,
        "incarnation": "0000000000000002", "boot_epoch": 2, "version": "0.1.0",
        "since": "2023-11-14T22:13:20+00:00", "replicas": 5, "leads": 2}


def test_addresses_for_kafka_s_clients_are_listed_where_a_node_has_one(run, cluster):
    assert "kafka" not in run("node", "list", "--wide").stdout
    assert "kafka" not in run("node", "describe", "2").stdout
    cluster.kafka[2] = "k.example.org:9092"
    lines = run("node", "list", "--wide").stdout.splitlines()
    assert lines[0].endswith("client address  kafka address")
    assert [line.split()[-1] for line in lines[1:]] == ["-", "k.example.org:9092", "-"]
    rows = json.loads(run("node", "list", "--json").stdout)["nodes"]
    assert [row["kafka_address"] for row in rows] == [None, "k.example.org:9092", None]
    described = run("node", "describe", "2").stdout.splitlines()
    assert "kafka address    k.example.org:9092".split() in [line.split() for line in described]
    assert "kafka" not in run("node", "describe", "1").stdout
    told = json.loads(run("node", "describe", "2", "--json").stdout)
    assert told["kafka_address"] == "k.example.org:9092"
    rows = json.loads(run("cluster", "status", "--json").stdout)["nodes"]
    assert [row["kafka_address"] for row in rows] == [None, "k.example.org:9092", None]


def test_one_node_is_described_with_its_groups(run):
    answer = json.loads(run("node", "describe", "2", "--json").stdout)
    assert (answer["id"], answer["voter_of"], answer["leader_of"]) == (2, [0, 1, 2, 3, 4], [1, 4])
    assert "leader of" in run("node", "describe", "2").stdout
    missing = run("node", "describe", "7")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "node list" in missing.stderr


def test_a_far_clock_is_described(run, cluster):
    assert "clock" not in run("node", "describe", "2").stdout
    assert json.loads(run("node", "describe", "2", "--json").stdout)["clock_is_far"] is None
    cluster.node_status[2] = {"clock_skew_ms": 75_000, "clock_is_far": 1}
    assert "1 min 15 s ahead of those" in run("node", "describe", "2").stdout
    told = json.loads(run("node", "describe", "2", "--json").stdout)
    assert (told["clock_skew_ms"], told["clock_is_far"]) == (75_000, True)


@pytest.mark.parametrize(("changed", "said"), [
    ({}, "removed 7 records, 900 bytes, of partitions led here since the start"),
    ({"retention_partitions_held": 2}, "2 partitions keep all records"),
    ({"retention_paused_clock": 1}, "nothing leaves by age, because the clock is far"),
    ({"retention_paused_releases": 1}, "paused: a node of the cluster has a release"),
])
def test_retention_is_described(run, cluster, changed, said):
    cluster.node_status[2] = {
        "retention_log_starts": 3, "retention_records_removed": 7, "retention_bytes_removed": 900,
        "retention_partitions_held": 0, "retention_paused_clock": 0,
        "retention_paused_releases": 0, **changed}
    assert said in " ".join(run("node", "describe", "2").stdout.split())


@pytest.mark.parametrize(("changed", "said"), [
    ({}, "3 segments, 128 MiB, given back since the start"),
    ({"segments_leaving": 1}, "; after the next checkpoints: 1 segment"),
    ({"segments_held": 2}, "; held, because the journal has too many gaps: 2 segments"),
])
def test_space_that_was_given_back_is_described(run, cluster, changed, said):
    cluster.node_status[2] = {"segments_removed": 3, "segments_removed_bytes": 128 << 20,
                              "segments_leaving": 0, "segments_held": 0, **changed}
    assert said in " ".join(run("node", "describe", "2").stdout.split())


CLEANER = {"cleaner_copied_bytes": 3 << 20, "cleaner_paused": 0, "cleaner_active": 0,
           "cleaner_copy_bytes": 0, "cleaner_bytes_per_second": 16 << 20, "cleaner_waiting": 0,
           "cold_segments": 2, "cold_segments_bytes": 5 << 20, "cleanable_bytes": 9 << 20,
           "cleanable_live_bytes": 6 << 20}


@pytest.mark.parametrize(("changed", "said"), [
    ({}, "idle; 3.0 MiB copied since the start; 2 cold segments, 5.0 MiB; records are 6.0 MiB of "
         "the 9.0 MiB that may be cleaned"),
    ({"cleaner_paused": 1}, "paused; 3.0 MiB copied"),
    ({"cleaner_active": 1, "cleaner_copy_bytes": 1 << 20}, "copies 1.0 MiB at 16.0 MiB/s; 3.0 MiB"),
    ({"cleaner_active": 1, "cleaner_copy_bytes": 1 << 20, "cleaner_copy_bytes_done": 1 << 19},
     "copies 512 KiB of 1.0 MiB at 16.0 MiB/s; 3.0 MiB"),
    ({"cleaner_waiting": 1}, "; after the next checkpoints the sources of 1 cold segment go"),
])
def test_the_cleaner_is_described(run, cluster, changed, said):
    cluster.node_status[2] = {**CLEANER, **changed}
    assert said in " ".join(run("node", "describe", "2").stdout.split())


def test_space_and_cleaner_are_in_the_json(run, cluster):
    cluster.node_status[2] = {**CLEANER, "cleaner_active": 1, "segments_removed": 3,
                              "retention_paused_clock": 1}
    told = json.loads(run("node", "describe", "2", "--json").stdout)
    assert told["cleaner"]["active"] is True and told["cleaner"]["paused"] is False
    assert told["cleaner"]["copied_bytes"] == 3 << 20 and told["cleaner"]["cold_segments"] == 2
    assert told["space"]["segments_removed"] == 3
    assert told["retention"]["paused_by_clock"] is True
    assert told["retention"]["records_removed"] is None, "a node of an earlier release"


def test_a_node_in_use_is_not_removed_and_the_way_out_is_said(run, cluster):
    refused = run("node", "remove", "1", "--yes")
    assert refused.exit_code == ExitCode.FAILED
    assert "member of 5 groups" in refused.stderr and "node replace 1" in refused.stderr
    assert json.loads(run("node", "remove", "3", "--yes", "--json").stdout) == {
        "removed": 3, "dry_run": False}
    assert cluster.removed == [3]


def test_without_yes_a_node_is_not_removed_and_what_would_happen_is_said(run, cluster):
    refused = run("node", "remove", "1")
    assert refused.exit_code == ExitCode.FAILED
    assert "cannot be removed: 5 groups (1, 2, 3, 4, 0) have replicas there" in refused.stderr
    assert "multiraft node drain 1" in refused.stderr
    assert run("node", "remove", "7").exit_code == ExitCode.NOT_FOUND
    cluster.empty = {3}
    dry = run("node", "remove", "3")
    assert dry.exit_code == 0
    assert "would be removed permanently: its id is never used again. It runs" in dry.stderr
    assert "Dry run: nothing was changed. Use --yes to apply." in dry.stderr
    assert json.loads(run("node", "remove", "3", "--json").stdout) == {
        "removed": None, "dry_run": True}
    assert cluster.removed == []


@pytest.mark.parametrize("flags", [(), ("--yes",)])
def test_a_node_that_is_being_drained_is_not_removed_and_the_plan_is_named(run, cluster, flags):
    cluster.plan_id, cluster.plan_scope = "abcdef" * 6, "drain"
    refused = run("node", "remove", "1", *flags)
    assert refused.exit_code == ExitCode.FAILED
    assert "Plan abcdefabcdef, scope drain, is running" in refused.stderr
    assert "rebalance status --watch" in refused.stderr


def test_without_yes_nothing_is_moved_from_one_node_to_another(run, cluster):
    cluster.configurations = {group: {"voters": (1, 2)} for group in (1, 2)}
    dry = run("node", "replace", "1", "3")
    assert dry.exit_code == 0, dry.output
    assert "2 groups would be moved from node 1 to node 3, one after the other: 1, 2" in dry.stderr
    assert "3 groups (3, 4, 0) would be skipped: node 3 is a voter of it already." in dry.stderr
    assert "Dry run: nothing was changed. Use --yes to apply." in dry.stderr
    answer = json.loads(run("node", "replace", "1", "3", "--json").stdout)
    assert (answer["would_move"], answer["moved"], answer["dry_run"]) == ([1, 2], [], True)
    assert [row["group"] for row in answer["skipped"]] == [3, 4, 0]
    assert cluster.members_asked == []


# ---- cleaner -------------------------------------------------------------------------------------


def test_the_cleaner_of_a_node_is_paused_and_resumed(run, cluster):
    assert "node cleaner 2 resume" in run("node", "cleaner", "2", "pause").stderr
    assert "16.0 MiB/s" in run("node", "cleaner", "2", "resume").stderr
    assert json.loads(run("node", "cleaner", "3", "resume", "--rate", "1MiB", "--json").stdout) == {
        "node": 3, "paused": False, "bytes_per_second": 1 << 20}
    assert cluster.cleaners == [
        (2, "127.0.0.1:9102", "pause", 0), (2, "127.0.0.1:9102", "resume", 0),
        (3, "127.0.0.1:9103", "resume", 1 << 20)]


@pytest.mark.parametrize("arguments", [
    ("2", "stop"), ("2", "pause", "--rate", "1MiB"), ("2", "resume", "--rate", "0"), ("2",)])
def test_an_action_that_is_none_is_refused(run, cluster, arguments):
    assert run("node", "cleaner", *arguments).exit_code == ExitCode.USAGE
    assert not cluster.cleaners


def test_the_cleaner_of_a_node_that_is_not_there_is_not_controlled(run, cluster):
    assert run("node", "cleaner", "7", "pause").exit_code == ExitCode.NOT_FOUND
    refused = run("node", "cleaner", "2", "resume", "--rate", "1KiB")
    assert refused.exit_code != ExitCode.OK and "65536" in refused.stderr
    assert not cluster.cleaners


# ---- scrub ---------------------------------------------------------------------------------------


def test_a_scrub_is_begun_at_the_node_itself(run, cluster):
    begun = run("node", "scrub", "2", "--rate", "1.5MiB")
    assert begun.exit_code == 0 and "node describe 2" in begun.stderr
    assert "4.0 MiB at 1.5 MiB/s" in begun.stderr
    assert json.loads(run("node", "scrub", "3", "--json").stdout) == {
        "node": 3, "total_bytes": 4 << 20, "bytes_per_second": 16 << 20, "damaged": None}
    assert cluster.scrubs == [(2, "127.0.0.1:9102", 3 << 19), (3, "127.0.0.1:9103", 0)]


def test_a_scrub_of_a_node_that_is_not_there_is_not_begun(run, cluster):
    cluster.up = {1, 3}
    assert run("node", "scrub", "7").exit_code == ExitCode.NOT_FOUND
    down = run("node", "scrub", "2")
    assert down.exit_code == ExitCode.UNREACHABLE and "log inspect" in down.stderr
    cluster.silent = {3}
    assert run("node", "scrub", "3").exit_code != ExitCode.OK
    assert not cluster.scrubs


@pytest.mark.parametrize("rate", ["0", "-1", "fast", "1e9", "", "5 parsecs", "1" * 16])
def test_a_rate_that_is_none_is_refused(run, cluster, rate):
    assert run("node", "scrub", "2", "--rate", rate).exit_code == ExitCode.USAGE
    assert not cluster.scrubs


def test_a_rate_that_is_too_low_is_refused_with_the_limit(run):
    refused = run("node", "scrub", "2", "--rate", "1KiB")
    assert refused.exit_code == ExitCode.FAILED and "65536" in refused.stderr


def scrub_and_wait(cluster, environ, pause):
    """Click's result of a scrub of node 2 that is waited for."""
    session = Session(environ, cluster.connect, "127.0.0.1:9101", pause=pause)
    return CliRunner().invoke(cli, ["node", "scrub", "2", "--wait"], obj=session)


@pytest.mark.parametrize("damaged, code", [(1, ExitCode.OK), (3, ExitCode.FAILED)])
def test_whoever_waits_for_a_scrub_hears_what_it_found(cluster, environ, damaged, code):
    cluster.node_status[2] = dict(SCRUBBING)
    looks = []

    def pause(seconds):
        looks.append(seconds)
        if len(looks) == 2:
            cluster.node_status[2] |= {"scrub_passes": 3, "scrub_damaged": damaged}

    result = scrub_and_wait(cluster, environ, pause)
    assert (result.exit_code, len(looks)) == (code, 2), result.output
    said = "2 damaged entries or checkpoints on node 2" if code else "nothing is damaged"
    assert said in result.output


def test_a_restart_ends_the_wait(cluster, environ):
    cluster.node_status[2] = dict(SCRUBBING)
    result = scrub_and_wait(cluster, environ,
                            lambda _: cluster.node_status[2].update(boot_epoch=6))
    assert result.exit_code == ExitCode.FAILED and "restarted during the scrub" in result.output


def test_how_far_it_is_can_be_seen(run, cluster):
    cluster.node_status[2] = dict(SCRUBBING)
    scrub = json.loads(run("node", "describe", "2", "--json").stdout)["scrub"]
    assert scrub == {"active": True, "requested": True, "pass_bytes": 2 << 20,
                     "total_bytes": 4 << 20, "bytes_per_second": 1 << 20, "damaged": 1,
                     "completed": "2023-11-14T22:13:20+00:00"}
    described = run("node", "describe", "2").stdout
    assert ("2.0 MiB of 4.0 MiB at 1.0 MiB/s, requested by an operator; 1 damaged entry or "
            "checkpoint") in described
    status = run("cluster", "status").stdout
    assert status.splitlines()[-1] == "requested scrub: node 2 has read 2.0 MiB of 4.0 MiB"
    cluster.node_status[2].update(scrub_active=0, scrub_completed_ms=0)
    assert "last completed: never" in run("node", "describe", "2").stdout
    cluster.up = {1, 3}
    gone = json.loads(run("node", "describe", "2", "--json").stdout)
    assert gone["scrub"] is None and gone["problem"] == "it is down"


@pytest.mark.parametrize("text, size", [
    ("65536", 65_536), ("64k", 65_536), ("64KiB", 65_536), ("64 KB", 65_536), ("1.5MiB", 3 << 19),
    ("2g", 2 << 30), ("7B", 7)])
def test_sizes_are_read_as_people_write_them(text, size):
    assert quantities.parse_size(text) == size


def test_the_commands_of_the_server_stand_beside_ours(run):
    listed = run("node", "--help").stdout
    for name in ("list", "describe", "remove", "init", "start"):
        assert f"  {name} " in listed
    assert "Exit codes" in run("node", "start", "--help").stdout
