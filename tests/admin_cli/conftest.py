"""Fixtures of the command's tests: a runner, a fake client, a directory of their own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from admin_cli.dev_cluster import DevCluster
from admin_cli.development import dev_state
from admin_cli.main import cli
from admin_cli.session import Session
from tests.admin_cli.fakes import FakeCluster
from tests.ports import free_base_port

FAKE_NODE = Path(__file__).with_name("fake_node.py")


@pytest.fixture
def environ(tmp_path) -> dict[str, str]:
    """Return an environment in which no real cluster is found."""
    return {"XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch) -> Path:
    """Each test stands in an empty directory."""
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def cluster() -> FakeCluster:
    """The cluster behind the fake client."""
    return FakeCluster()


@pytest.fixture
def run(cluster, environ):
    """``run("topic", "list")`` against the fake cluster -> click's Result."""
    def run(*arguments: str, input: bytes | str | None = None,
            servers: str | None = "127.0.0.1:9101") -> Result:
        session = Session(environ, cluster.connect, servers, pause=lambda _seconds: None)
        return CliRunner().invoke(cli, arguments, input=input, obj=session,
                                  prog_name="multiraft")
    return run


def fake_node_command(config: Path, action: str = "start", *options: str) -> list[str]:
    """A process that behaves like a node."""
    return [sys.executable, str(FAKE_NODE), action, "--config", str(config), *options]


@pytest.fixture
def run_dev(cluster, environ):
    """``run_dev("up", ...)``: `multiraft dev` with fake nodes; what it started ends with the
    test."""
    used = set()

    def run(*arguments: str) -> Result:
        session = Session(environ, cluster.connect_over_tcp, node_command=fake_node_command)
        result = CliRunner().invoke(cli, ["dev", *arguments], obj=session,
                                    prog_name="multiraft")
        used.update(Path.cwd().glob("*/cluster.json"))
        return result

    yield run
    for record in sorted(used):
        end(DevCluster(record.parent, cluster.connect, environ))


def end(made: DevCluster) -> None:
    """Ends what still runs of a cluster."""
    if dev_state.exists(made.directory):
        for node in made.status():
            if node.pid is not None:
                made.kill(node.id)


@pytest.fixture
def dev(tmp_path, environ, cluster) -> Iterator[DevCluster]:
    """A development cluster of fake nodes, created but not started; ended with the test."""
    made = DevCluster(tmp_path / "cluster", cluster.connect_over_tcp, environ,
                      command=fake_node_command)
    made.create(3, 4, 3, free_base_port(3))
    yield made
    end(made)
