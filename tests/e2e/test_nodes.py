"""Nodes as the cluster knows them: registered, wiped, copied, unknown; real processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from admin_cli.development import dev_process, dev_state
from admin_cli.main import cli
from multiraft.client import blocking
from multiraft.wire.errors import InvalidRequest
from tests.e2e.world import ROOT, WAIT_S, run_node, steady, wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


def data(world, node: int) -> Path:
    """Return a node's data directory."""
    return dev_state.node_directory(world.dev.directory, node) / "data"


def node_rows(world) -> dict:
    """Return the rows of all nodes, as some node knows them."""
    with blocking.Client(world.addresses) as client:
        return {row.node.id: row for row in client.node_list().nodes}


def edited(world, node: int, name: str, **replaced: str) -> Path:
    """Return a copy of a node's configuration with text replaced, beside the original."""
    text = world.config(node).read_text()
    for old, new in replaced.values():
        assert old in text, old
        text = text.replace(old, new)
    path = world.config(node).with_name(name)
    path.write_text(text)
    return path


def init(config: Path, *options: str) -> subprocess.CompletedProcess:
    """Run ``multiraft node init``."""
    return subprocess.run(dev_process.node_command(config, "init", *options), capture_output=True,
                          text=True, timeout=WAIT_S, env={**os.environ, "PYTHONPATH": str(ROOT)})


def still_serves(world, topic: str) -> None:
    """Check that the cluster accepts topics and records."""
    with blocking.Client(world.addresses) as client:
        client.create_topic(topic, 1)
        with client.producer() as producer:
            producer.send_many(topic, [b"served"])
        assert [record.value for batch in client.consume(topic, until_end=True)
                for record in batch] == [b"served"]


def test_every_node_registers_with_its_incarnation_and_start(world):
    rows = wait_for(lambda: (found := node_rows(world)) and all(
        row.node.incarnation and row.state == "up" for row in found.values()) and found,
        "all nodes are registered and up")
    assert len({row.node.incarnation for row in rows.values()}) == 3
    for row in rows.values():
        assert (row.state, row.node.boot_epoch > 0, row.replicas) == ("up", True, 5)
        assert row.node.version and row.node.started_ms
        identity = json.loads((data(world, row.node.id) / "node.json").read_text())
        assert identity["incarnation"] == row.node.incarnation
    world.dev.kill(2)
    world.dev.start(2)
    wait_for(lambda: node_rows(world)[2].node.boot_epoch == rows[2].node.boot_epoch + 1,
             "the new start is registered")


def test_a_lost_mount_is_no_new_node(world):
    world.dev.stop(3)
    away = data(world, 3).rename(data(world, 3).with_name("away"))
    ended = run_node(world.config(3))
    assert ended.returncode == 3
    assert "not mounted" in ended.stderr and "--join" in ended.stderr
    away.rename(data(world, 3))
    world.dev.start(3)
    still_serves(world, "mounted-again")


def test_a_wiped_node_is_refused_by_all_and_says_the_way_out(world):
    wait_for(lambda: node_rows(world)[3].node.incarnation, "node 3 is registered")
    world.dev.stop(3)
    kept = data(world, 3).rename(data(world, 3).with_name("kept"))
    assert init(world.config(3)).returncode == 0
    ended = run_node(world.config(3))
    assert ended.returncode == 3, ended.stderr
    assert "another data directory" in ended.stderr
    assert "a wiped node can rejoin only as a new one" in ended.stderr
    still_serves(world, "without-the-wiped")
    shutil.rmtree(data(world, 3))
    kept.rename(data(world, 3))
    world.dev.start(3)


def test_a_copied_directory_does_not_live_beside_the_original(world):
    copy = data(world, 2).with_name("copy")
    shutil.copytree(data(world, 2), copy)
    base = world.dev.record.base_port
    twin = edited(world, 2, "twin.toml", data=('"data"', f'"{copy}"'),
                  client=(f"127.0.0.1:{base + 2}", f"127.0.0.1:{base + 52}"),
                  peer=(f"127.0.0.1:{base + 102}", f"127.0.0.1:{base + 152}"),
                  http=(f"127.0.0.1:{base + 202}", f"127.0.0.1:{base + 252}"),
                  kafka=(f"127.0.0.1:{base + 302}", f"127.0.0.1:{base + 352}"))
    for _ in range(3):
        ended = run_node(twin)
        assert ended.returncode == 3, ended.stderr
        assert "a copy of a data directory must never be started" in ended.stderr
    assert "at an earlier start" in ended.stderr
    assert world.dev.status()[1].state == "running", "the original lives on"
    still_serves(world, "beside-the-copy")


def test_the_older_life_of_a_copied_directory_is_refused(world):
    world.dev.stop(2)
    copy = data(world, 2).with_name("old-copy")
    shutil.copytree(data(world, 2), copy)
    for _ in range(2):
        world.dev.start(2)
        world.dev.stop(2)
    config = edited(world, 2, "old.toml", data=('"data"', f'"{copy}"'))
    ended = run_node(config)
    assert ended.returncode == 3, ended.stderr
    assert "has started since" in ended.stderr
    files = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for _ in range(4):
        ended = run_node(config)
        assert ended.returncode == 3 and "at an earlier start" in ended.stderr, ended.stderr
    assert files == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    # restored again: the mark is gone, and the boot epoch exceeds that of the original
    for _ in range(6):
        (copy / "refused.json").unlink()
        ended = run_node(config)
        assert ended.returncode == 3, ended.stderr
        assert "a copy of a data directory must never be started" in ended.stderr
    world.dev.start(2)
    still_serves(world, "after-the-older-life")


def test_an_older_copy_and_a_node_that_lagged_elect_nobody(world):
    """The lagging node met the boot after the copy, and none of the records that it
    acknowledged."""
    copy = data(world, 2).with_name("copy-and-laggard")
    world.dev.stop(2)
    shutil.copytree(data(world, 2), copy)
    world.dev.start(2)
    still_serves(world, "before-the-old-copy")
    with blocking.Client(world.addresses) as client:
        client.create_topic("kept", 1)
    world.signal(3, signal.SIGSTOP)
    values = [b"%d" % number for number in range(20)]
    with blocking.Client(world.addresses[:2]) as client, client.producer() as producer:
        for value in values:
            producer.send(blocking.Record("kept", value)).wait()
    for node in (1, 2):
        world.kill(node)
    latest = data(world, 2).rename(data(world, 2).with_name("latest"))
    copy.rename(data(world, 2))
    world.signal(3, signal.SIGCONT)
    for _ in range(4):
        ended = run_node(world.config(2))
        assert ended.returncode == 3, ended.stderr
        assert "a copy of a data directory must never be started" in ended.stderr
    world.dev.start(1)
    with blocking.Client(world.addresses) as client:
        found = [record.value for batch in client.consume("kept", until_end=True)
                 for record in batch]
    assert found == values
    shutil.rmtree(data(world, 2))
    latest.rename(data(world, 2))
    world.dev.start(2)
    still_serves(world, "after-the-old-copy")


def test_a_refusal_that_was_wrong_is_cleared(world):
    """Only an older copy of node 2 is left, and the operator knows the possible loss."""
    world.dev.stop(2)
    copy = data(world, 2).with_name("only-copy")
    shutil.copytree(data(world, 2), copy)
    world.dev.start(2)
    still_serves(world, "with-the-lost-life")
    world.dev.stop(2)
    shutil.rmtree(data(world, 2))
    copy.rename(data(world, 2))
    assert run_node(world.config(2)).returncode == 3
    command = ["node", "clear-refusal", "--config", str(world.config(2))]
    assert CliRunner().invoke(cli, command).exit_code == 1
    assert run_node(world.config(2)).returncode == 3
    cleared = CliRunner().invoke(cli, [*command, "--accept-data-loss"])
    assert cleared.exit_code == 0, cleared.output
    for node in (1, 3):  # leaders that know more of it would wait for the entries that it has lost
        world.dev.stop(node)
    world.dev.up()
    still_serves(world, "after-the-refusal-was-cleared")
    world.dev.stop(2)
    world.dev.start(2)
    still_serves(world, "and-at-the-next-start")


def test_a_node_of_another_cluster_is_not_let_in(world):
    path = world.config(3).with_name("stranger.toml")
    text = world.config(3).read_text().replace(world.dev.record.cluster_id, "f" * 32)
    path.write_text(text)
    ended = run_node(path)
    assert ended.returncode == 3
    assert "belongs to cluster" in ended.stderr
    with pytest.raises(blocking.NoNodeAnswered, match="another cluster"):
        with blocking.Client([world.address(1)]) as client:
            client._core.network.cluster = b"\xff" * 16
            client.cluster_status()


def test_an_edited_cluster_table_is_told_and_does_not_count(world):
    original = world.config(1).read_text()
    world.dev.stop(1)
    world.config(1).write_text(original.replace("groups = 4", "groups = 9"))
    world.dev.start(1)
    log = dev_state.log_path(world.dev.directory, 1).read_text()
    [warned] = [json.loads(line) for line in log.splitlines() if "cluster_table_ignored" in line]
    assert "9 in the file, 4 in the cluster" in warned["difference"]
    assert len(world.groups(1)) == 5
    world.config(1).write_text(original)
    still_serves(world, "not-nine")


def test_a_node_in_use_is_not_removed(world):
    with blocking.Client(world.addresses) as client:
        with pytest.raises(InvalidRequest, match="member of 5 groups.*node replace 3"):
            client.remove_node(3)
