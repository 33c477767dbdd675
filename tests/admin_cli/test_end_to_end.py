"""The commands as a new user would type them, against real nodes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.session import Session
from tests.admin_cli.conftest import end
from tests.e2e.world import wait_for
from tests.ports import free_base_port

LINES = b"".join(b"line %d\n" % number for number in range(5_000))


@pytest.fixture
def type_in(environ, elsewhere):
    """``type_in("topic list")`` -> click's Result; the cluster ends with the test."""
    def type_in(line: str, input: bytes | None = None) -> Result:
        return CliRunner().invoke(cli, line.split(), input=input, obj=Session(environ),
                                  prog_name="multiraft")

    yield type_in
    end(DevCluster(elsewhere / "dev-cluster", open_client, environ))


def test_a_killed_leader_loses_nothing_that_was_acknowledged(type_in):
    up = type_in(f"dev up --groups 4 --base-port {free_base_port(3)}")
    assert up.exit_code == 0, up.output
    assert type_in("topic create flights").exit_code == 0
    first = type_in("produce flights --json", LINES)
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["acknowledged"] == 5_000

    described = type_in("topic describe flights --json")
    assert described.exit_code == 0, described.output
    (row,) = json.loads(described.stdout)["partitions"]
    assert (row["start_offset"], row["end_offset"]) == (0, 5_000)
    assert type_in(f"dev kill {row['leader']}").exit_code == 0
    second = type_in("produce flights --json --key-separator=:", b"key:value\n" * 100)
    assert second.exit_code == 0, second.output
    assert json.loads(second.stdout)["acknowledged"] == 100
    nodes = json.loads(type_in("dev status --json").stdout)["nodes"]
    assert [node["state"] for node in nodes].count("running") == 2

    assert type_in(f"dev start {row['leader']}").exit_code == 0
    read = type_in("consume flights")
    assert read.exit_code == 0, read.stderr
    assert read.stdout_bytes == LINES + b"value\n" * 100
    one = type_in("consume flights --from 4999 --count 1")
    assert (one.stdout, one.stderr) == ("line 4999\n", "")

    assert type_in("dev down").exit_code == 0
    gone = type_in("topic list")
    assert gone.exit_code == ExitCode.UNREACHABLE
    assert "multiraft dev up --dir" in gone.stderr
    up = type_in("dev up")
    assert up.exit_code == 0, up.output
    again = type_in("consume flights")
    assert again.exit_code == 0, again.stderr
    assert again.stdout_bytes == LINES + b"value\n" * 100


def test_a_cluster_of_which_a_node_was_removed_starts_again(type_in):
    up = type_in(f"dev up --groups 4 --base-port {free_base_port(4)}")
    assert up.exit_code == 0, up.output
    assert type_in("cluster status --check").exit_code == 0, "every node knew the leaders"
    added = type_in("dev add-node")
    assert added.exit_code == 0, added.output
    gone = type_in("node decommission 4 --yes")
    assert gone.exit_code == 0, gone.output
    wait_for(lambda: states(type_in)[4] == "removed", "node 4 has ended")

    assert type_in("dev down").exit_code == 0
    up = type_in("dev up")
    assert up.exit_code == 0, up.output
    assert "Started 3 nodes" in up.stderr
    assert "removed from the cluster: node 4." in up.stderr
    assert states(type_in) == {1: "running", 2: "running", 3: "running", 4: "removed"}
    assert type_in("cluster status --check").exit_code == 0
    assert "has --nodes 3, not 5" in type_in("dev up --nodes 5").stderr
    refused = type_in("dev start 4")
    assert refused.exit_code == ExitCode.FAILED
    assert "dev add-node" in refused.stderr
    restarted = type_in("dev restart --all")
    assert restarted.exit_code == 0, restarted.output
    assert "Restarted 3 nodes" in restarted.stderr
    added = type_in("dev add-node")
    assert "Added node 5" in added.stderr, added.output


def states(type_in) -> dict[int, str]:
    nodes = json.loads(type_in("dev status --json").stdout)["nodes"]
    return {node["id"]: node["state"] for node in nodes}
