"""`multiraft dev` as it is typed: flags, JSON, exit codes, the cluster that is found by itself."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from admin_cli.dev_cluster import DevCluster
from admin_cli.development import dev_state
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.main import cli
from admin_cli.servers import find_servers
from admin_cli.session import Session
from tests.admin_cli.conftest import fake_node_command
from tests.ports import free_base_port


@pytest.fixture
def up(run_dev):
    """Starts the default cluster on free ports."""
    def up(*arguments: str):
        return run_dev("up", "--base-port", str(free_base_port(3)), *arguments)
    return up


def test_up_then_status_prints_the_documented_json(up, run_dev):
    started = up("--groups", "4")
    assert started.exit_code == 0
    result = run_dev("status", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert list(answer) == ["nodes"]
    assert [list(node) for node in answer["nodes"]] == [["id", "pid", "state", "client_address",
                                                         "http_address"]] * 3
    assert [node["id"] for node in answer["nodes"]] == [1, 2, 3]
    assert {node["state"] for node in answer["nodes"]} == {"running"}
    assert all(type(node["pid"]) is int for node in answer["nodes"])
    for node in answer["nodes"]:
        assert f"http://{node['http_address']}/" in started.stderr


def test_a_stopped_node_has_no_pid(up, run_dev):
    up("--groups", "4")
    assert run_dev("kill", "2").exit_code == 0
    node = json.loads(run_dev("status", "--json").stdout)["nodes"][1]
    assert (node["id"], node["pid"], node["state"]) == (2, None, "killed")
    assert run_dev("start", "2").exit_code == 0
    assert json.loads(run_dev("status", "--json").stdout)["nodes"][1]["state"] == "running"


def test_restart_takes_one_node_or_all(up, run_dev):
    up("--groups", "4")
    assert "Restarted 1 node; all are ready." in run_dev("restart", "2").stderr
    assert "Restarted 3 nodes" in run_dev("restart", "--all").stderr
    for wrong in ((), ("2", "--all")):
        refused = run_dev("restart", *wrong)
        assert refused.exit_code == ExitCode.USAGE
        assert "Name a node, or use --all." in refused.stderr


def test_commands_find_the_cluster_from_anywhere(up, environ, tmp_path, monkeypatch):
    up("--groups", "4")
    here = find_servers(None, environ)
    assert "current directory" in here.source
    monkeypatch.chdir(tmp_path)
    there = find_servers(None, environ)
    assert there.addresses == here.addresses
    assert "started last" in there.source


def test_a_new_cluster_mentions_the_one_that_was_started_last(up, run_dev, tmp_path):
    up("--groups", "4", "--dir", str(tmp_path / "here" / "first"))
    run_dev("down", "--dir", str(tmp_path / "here" / "first"))
    assert "there is another one in" in up("--groups", "4").stderr


def test_a_stopped_cluster_here_gives_way_to_the_one_that_runs(up, run_dev, environ, tmp_path):
    other = tmp_path / "here" / "other"
    up("--groups", "4")
    run_dev("down")
    started = up("--groups", "4", "--dir", str(other))
    assert "(commands find them by themselves)" in started.stderr
    found = find_servers(None, environ)
    assert found.dev_directory == other
    assert "started last, because none runs in" in found.source
    status = run_dev("status")
    assert str(other) in status.stdout
    assert f"is stopped; this is the one in {other}" in status.stderr


def test_when_none_runs_the_one_here_is_used_and_both_are_named(up, run_dev, environ, tmp_path):
    other = tmp_path / "here" / "other"
    up("--groups", "4")
    run_dev("down")
    up("--groups", "4", "--dir", str(other))
    run_dev("down", "--dir", str(other))
    found = find_servers(None, environ)
    assert found.dev_directory == tmp_path / "here" / "dev-cluster"
    assert f"the one started last, {other}, does not run either" in found.source


def test_a_second_cluster_beside_one_that_runs_here_has_to_be_named(up, run_dev, environ, tmp_path):
    other = tmp_path / "here" / "other"
    up("--groups", "4")
    started = up("--groups", "4", "--dir", str(other))
    said = find_servers(f"{_first(run_dev, other)}", environ)
    assert f"pass --servers {said.addresses[0]}" in started.stderr
    assert f"pass --dir {other}" in started.stderr
    assert f"topic create greetings --servers {said.addresses[0]}" in started.stderr
    assert find_servers(None, environ).dev_directory == tmp_path / "here" / "dev-cluster"


def test_commands_in_advice_can_be_copied_into_a_shell(up, run_dev, elsewhere):
    other = elsewhere / "my dev"
    missing = run_dev("status", "--dir", str(other))
    assert f"multiraft dev up --dir '{other}'" in missing.stderr
    up("--groups", "4", "--dir", str(other))
    changed = run_dev("up", "--nodes", "5", "--dir", str(other))
    assert f"multiraft dev down --wipe --dir '{other}'" in changed.stderr
    assert run_dev("kill", "2", "--dir", str(other)).exit_code == 0
    again = run_dev("kill", "2", "--dir", str(other))
    assert f"multiraft dev start 2 --dir '{other}'" in again.stderr
    unnamed = run_dev("down", "--wipe")
    assert f"multiraft dev down --wipe --dir '{other}'" in unnamed.stderr
    beside = up("--groups", "4")
    assert f"(multiraft dev up --dir '{other}')" in beside.stderr
    assert f"pass --dir '{other}'" in run_dev("up", "--dir", str(other)).stderr


def _first(run_dev, directory) -> str:
    """The client address of a cluster's first node."""
    status = json.loads(run_dev("status", "--json", "--dir", str(directory)).stdout)
    return status["nodes"][0]["client_address"]


def test_up_says_that_the_environment_names_another_cluster(up, run_dev, environ, tmp_path):
    environ["MULTIRAFT_SERVERS"] = "10.0.0.1:9101"
    assert "commands use MULTIRAFT_SERVERS unless you pass --servers" in up("--groups",
                                                                            "4").stderr
    environ["MULTIRAFT_SERVERS"] = _first(run_dev, tmp_path / "here" / "dev-cluster")
    assert "commands find them by MULTIRAFT_SERVERS" in run_dev("up").stderr


def test_a_record_that_cannot_be_read_is_reported_by_the_command(elsewhere, environ, tmp_path):
    (elsewhere / "dev-cluster").mkdir()
    (elsewhere / "dev-cluster" / "cluster.json").write_text("{}")
    with pytest.raises(CommandFailed, match="is not a cluster record"):
        find_servers(None, environ)


def test_up_again_starts_what_was_stopped_without_asking_anything(up, run_dev):
    up("--groups", "4")
    assert run_dev("down").exit_code == 0
    again = run_dev("up")
    assert again.exit_code == 0, again.output
    assert "Started 3 nodes" in again.stderr
    assert "Already up" in run_dev("up").stderr


@pytest.mark.parametrize("flag", ["--nodes", "--groups", "--replication-factor", "--base-port"])
def test_a_cluster_that_exists_keeps_its_shape(up, run_dev, flag):
    up("--groups", "4")
    result = run_dev("up", flag, "1025" if flag == "--base-port" else "2")
    assert result.exit_code == ExitCode.USAGE
    assert f"has {flag}" in result.stderr
    assert "--wipe" in result.stderr


def test_more_groups_than_a_pool_may_have_are_refused(run_dev):
    """A bootstrap of them cannot be written down: no node of the cluster would come up."""
    result = run_dev("up", "--groups", "32769")
    assert result.exit_code == ExitCode.USAGE
    assert "32769 is not in the range 1<=x<=32768" in result.stderr


def test_more_replicas_than_nodes_are_refused(run_dev):
    result = run_dev("up", "--nodes", "2", "--replication-factor", "3")
    assert result.exit_code == ExitCode.USAGE
    assert "--replication-factor 3 needs as many nodes" in result.stderr


def test_a_taken_port_is_named_with_a_command_that_works(run_dev):
    base = free_base_port(3)
    with socket.create_server(("127.0.0.1", base + 2)):
        result = run_dev("up", "--base-port", str(base), "--groups", "4", "--nodes", "2")
        assert result.exit_code == ExitCode.FAILED
        assert f"port {base + 2}, which node 2 needs" in result.stderr
        assert f"pid {os.getpid()}" in result.stderr
        [again] = re.findall(r"multiraft dev (up .*)", result.stderr)
        assert "--groups 4 --nodes 2" in again
        assert not Path("dev-cluster").exists()
        done = run_dev(*again.split())
    assert done.exit_code == 0, done.output
    assert "Started 2 nodes: 4 groups" in done.stderr


def test_the_command_that_works_names_the_directory_that_was_named(run_dev):
    base = free_base_port(3)
    with socket.create_server(("127.0.0.1", base + 2)):
        result = run_dev("up", "--base-port", str(base), "--groups", "4", "--dir", "my cluster")
        [again] = re.findall(r"multiraft dev (up .*)", result.stderr)
        assert Path("my cluster").absolute() == Path(shlex.split(again)[-1]).absolute()
        done = run_dev(*shlex.split(again))
    assert done.exit_code == 0, done.output


def test_a_cluster_that_was_never_started_takes_other_ports(run_dev, dev_never_started):
    base = free_base_port(3)
    done = run_dev("up", "--base-port", str(base))
    assert done.exit_code == 0, done.output
    assert f"127.0.0.1:{base + 1}," in done.stderr
    assert "was never started: made again with --base-port" in done.stderr
    assert "Started 2 nodes: 4 groups, replication factor 2" in done.stderr, "the rest stays"


def test_loads_may_be_left_out_of_a_cluster_for_good(run_dev, dev_never_started):
    done = run_dev("up", "--no-publish-loads", "--base-port", str(free_base_port(3)))
    assert done.exit_code == 0, done.output
    assert "--no-publish-loads.\n" in done.stderr, "it was made again"
    assert run_dev("up", "--no-publish-loads").exit_code == 0
    refused = run_dev("up", "--publish-loads", "9")
    assert refused.exit_code == ExitCode.USAGE
    assert "has --no-publish-loads, not --publish-loads 9." in refused.stderr
    assert "Omit --publish-loads, name" in refused.stderr
    both = run_dev("up", "--no-publish-loads", "--publish-loads", "9")
    assert both.exit_code == ExitCode.USAGE and "exclude each other" in both.stderr


def test_fewer_nodes_for_it_lower_the_replication_factor(run_dev, dev_never_started):
    done = run_dev("up", "--nodes", "1")
    assert done.exit_code == 0, done.output
    assert "Started 1 node: 4 groups, replication factor 1" in done.stderr


def test_a_taken_port_of_a_cluster_with_records_is_answered_with_another_directory(up, run_dev):
    up("--groups", "4")
    run_dev("down")
    client = json.loads(run_dev("status", "--json").stdout)["nodes"][0]["client_address"]
    with socket.create_server(("127.0.0.1", int(client.rpartition(":")[2]))):
        for command in (["up"], ["start", "1"]):
            refused = run_dev(*command)
            assert refused.exit_code == ExitCode.FAILED
            assert f"pid {os.getpid()}" in refused.stderr
            assert "multiraft dev up --dir OTHER --base-port" in refused.stderr


@pytest.fixture
def dev_never_started(elsewhere, environ, cluster):
    """A cluster in ./dev-cluster of which no node was ever started."""
    made = DevCluster(elsewhere / "dev-cluster", cluster.connect_over_tcp, environ,
                      command=fake_node_command)
    made.create(2, 4, 2, free_base_port(3))
    return made


@pytest.mark.parametrize("command", [["down"], ["stop", "1"], ["kill", "1"]])
def test_nodes_are_ended_on_a_full_disk_and_what_was_not_written_is_named(
        up, run_dev, monkeypatch, command):
    up("--groups", "4")

    def write_text(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", write_text)
        done = run_dev(*command)
    assert done.exit_code == 0, done.output
    assert json.loads(run_dev("status", "--json").stdout)["nodes"][0]["pid"] is None
    [line] = [line for line in done.stderr.splitlines() if line.startswith("Note: ")]
    assert "dev-cluster/cluster.json: no space left on device" in line


def test_wiping_a_cluster_that_was_not_named_is_refused(up, run_dev, tmp_path, monkeypatch):
    up("--groups", "4")
    where = (tmp_path / "here" / "dev-cluster").absolute()
    monkeypatch.chdir(tmp_path)
    refused = run_dev("down", "--wipe")
    assert refused.exit_code == ExitCode.USAGE
    assert dev_state.exists(where)
    assert run_dev("down", "--wipe", "--dir", str(where)).exit_code == 0
    assert not where.exists()


@pytest.mark.parametrize("command", [["status"], ["down"], ["kill", "1"], ["start", "1"]])
def test_without_a_cluster_every_command_says_how_to_get_one(run_dev, command):
    result = run_dev(*command)
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "multiraft dev up" in result.stderr


@pytest.mark.parametrize("command", [["status"], ["down"], ["kill", "1"], ["stop", "1"],
                                     ["start", "1"], ["restart", "--all"], ["add-node"],
                                     ["logs"]])
def test_a_directory_that_does_not_exist_is_named_with_how_to_make_it(run_dev, command):
    result = run_dev(*command, "--dir", "nowhere")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "there is no development cluster in" in result.stderr
    assert "multiraft dev up --dir" in result.stderr


def test_an_unknown_node_is_not_found(up, run_dev):
    up("--groups", "4")
    result = run_dev("kill", "9")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert "Its nodes are 1, 2, 3." in result.stderr


def test_status_for_a_person_names_the_log(up, run_dev):
    up("--groups", "4")
    assert "node-3/log" in run_dev("status").stdout


def test_a_stopped_cluster_is_answered_with_how_to_start_it(up, run_dev, cluster, environ):
    up("--groups", "4")
    run_dev("down")
    result = CliRunner().invoke(cli, ["topic", "list"], prog_name="multiraft",
                                obj=Session(environ, cluster.connect_over_tcp))
    assert result.exit_code == ExitCode.UNREACHABLE
    assert "found in the current directory" in result.stderr
    assert "multiraft dev up --dir" in result.stderr


def test_a_removed_node_is_left_out_and_does_not_count(up, run_dev, environ, elsewhere):
    up("--groups", "4")
    run_dev("kill", "3")
    data = elsewhere / "dev-cluster" / "node-3" / "data"
    data.mkdir()
    (data / "refused.json").write_text('{"reason": "node 3 was removed from the cluster"}')
    nodes = json.loads(run_dev("status", "--json").stdout)["nodes"]
    assert [node["state"] for node in nodes] == ["running", "running", "removed"]
    again = run_dev("up")
    assert again.exit_code == 0
    assert "Left out, because removed from the cluster: node 3." in again.stderr
    assert nodes[2]["client_address"] not in again.stderr
    assert "has --nodes 2, not 5" in run_dev("up", "--nodes", "5").stderr
    assert len(find_servers(None, environ).addresses) == 2
    refused = run_dev("start", "3")
    assert refused.exit_code == ExitCode.FAILED
    assert "node 3 was removed" in refused.stderr and "dev add-node" in refused.stderr
