"""`multiraft node`: what a cluster says of its nodes, beside the server's own commands."""

from __future__ import annotations

import json

from admin_cli.failures import ExitCode


def test_the_list_says_who_is_there(run, cluster):
    cluster.up = {1, 3}
    result = run("node", "list")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:4] == ["node", "state", "replicas", "leads"]
    assert lines[2].split()[:4] == ["2", "down", "5", "2"]
    assert "2023-11-14T22:13:20+00:00" in lines[1] and " -  " in lines[2]


def test_the_json_of_the_list_is_stable(run, cluster):
    cluster.removed.append(3)
    answer = json.loads(run("node", "list", "--json").stdout)
    assert answer["removed"] == [3]
    assert answer["nodes"][0] == {
        "id": 1, "state": "up", "client_address": "127.0.0.1:9101",
        "peer_address": "127.0.0.1:9201", "rack": "r1", "weight": 1.0,
        "incarnation": "0000000000000002", "boot_epoch": 2, "version": "0.1.0",
        "since": "2023-11-14T22:13:20+00:00", "replicas": 5, "leads": 2}


def test_one_node_is_described_with_its_groups(run):
    answer = json.loads(run("node", "describe", "2", "--json").stdout)
    assert (answer["id"], answer["voter_of"], answer["leader_of"]) == (2, [0, 1, 2, 3, 4], [1, 4])
    assert "leader of" in run("node", "describe", "2").stdout
    missing = run("node", "describe", "7")
    assert missing.exit_code == ExitCode.NOT_FOUND
    assert "node list" in missing.stderr


def test_a_node_in_use_is_not_removed_and_the_way_out_is_said(run, cluster):
    refused = run("node", "remove", "1")
    assert refused.exit_code == ExitCode.FAILED
    assert "member of 5 groups" in refused.stderr and "node replace 1" in refused.stderr
    assert json.loads(run("node", "remove", "3", "--json").stdout) == {"removed": 3}
    assert cluster.removed == [3]


def test_the_commands_of_the_server_stand_beside_ours(run):
    listed = run("node", "--help").stdout
    for name in ("list", "describe", "remove", "init", "start"):
        assert f"  {name} " in listed
    assert "Exit codes" in run("node", "start", "--help").stdout
