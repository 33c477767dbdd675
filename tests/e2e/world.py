"""Real nodes for a test module: started, stopped, and their logs quoted when a test fails.

Contract.  ``start`` creates a cluster in a directory of its own, on free ports, through the
functions behind ``multiraft dev``.  Every wait is for a condition and bounded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.development import dev_process, dev_state
from admin_cli.servers import TlsOptions
from chaos import launcher
from chaos.planted import plugin
from multiraft.client import blocking
from multiraft.wire.errors import Code, UnknownTopic
from multiraft.wire.messages import GroupSummary, ListGroups
from tests.e2e.raw import Session
from tests.ports import free_base_port

ROOT = Path(__file__).resolve().parents[2]
# Only a failure waits this long: a busy machine needs many times its usual time.
UP_S = 180.0
WAIT_S = 180.0
POLL_S = 0.05
LOG_LINES = 150
#: For tests that need one leader throughout: a machine that stalls for a moment causes no election,
#: and requested changes have time to complete.
STEADY = """
[raft]
lease_ms = 3000
transfer_timeout_ms = 5000
[limits]
loop_stall_ms_max = 2500
disk_stall_ms_max = 5000
group_stall_ms_max = 10000
"""

T = TypeVar("T")


class World:
    """One cluster under test."""

    def __init__(self, directory: Path, tls: TlsOptions | None = None):
        self.tls = tls
        self.dev = DevCluster(directory, functools.partial(open_client, tls=tls), os.environ,
                              command=node_command)
        self.directory = directory

    @classmethod
    def created(cls, directory: Path, nodes: int, groups: int, factor: int,
                tls: TlsOptions | None = None) -> World:
        """Return a cluster whose directory and configuration are new, on free ports; no node of it
        runs."""
        world = cls(directory, tls)
        world.dev.create(nodes, groups, factor, free_base_port(nodes))
        return world

    def launch(self, node: int) -> None:
        """Start a node's process, without waiting until it serves."""
        with dev_state.locked(self.dev.directory):
            record = self.dev.record
            self.dev._spawn(record, record.node(node))

    def configure(self, node: int, text: str) -> None:
        """Append tables to a node's configuration; it takes them at its next start."""
        with open(self.config(node), "a") as file:
            file.write(text)

    def client(self, *nodes: int) -> blocking.Client:
        """Return a client that knows these nodes."""
        return open_client([self.address(node) for node in nodes or self.ids()], self.tls)

    def pid(self, node: int) -> int:
        """Return the pid of the node's process."""
        return self.dev.record.node(node).pid

    def log_lines(self, node: int) -> list[str]:
        """Return the node's log lines until now.  Only whole lines: the node may be writing another
        one."""
        text = dev_state.log_path(self.dev.directory, node).read_text(errors="replace")
        return text[:text.rfind("\n") + 1].splitlines()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return client addresses of all nodes, running or not."""
        return self.dev.addresses

    def ids(self) -> list[int]:
        """Return ids of all nodes."""
        return [node.id for node in self.dev.record.nodes]

    def address(self, node: int) -> str:
        """Return a node's client address."""
        return self.dev.record.node(node).client_address

    def peer_address(self, node: int) -> str:
        """Return a node's peer address."""
        return self.dev.record.node(node).peer_address

    def config(self, node: int) -> Path:
        """Return a node's configuration file."""
        return dev_state.config_path(self.dev.directory, node)

    def session(self, node: int = 1) -> Session:
        """Return a raw connection to a node."""
        return Session(self.address(node))

    def groups(self, node: int) -> list[GroupSummary]:
        """Return all groups, as one node knows them; ``LookupError`` while it knows of none."""
        with self.session(node) as session:
            answer = session.ask(ListGroups())
        if answer.code == Code.LEADER_UNKNOWN:
            raise LookupError(f"node {node} does not know the metadata yet")
        assert answer.code == Code.OK, answer
        return list(answer.reply.groups)

    def create(self, topic: str, partitions: int = 1, through: int = 1) -> None:
        """Create a topic, knowing one node only."""
        with blocking.Client([self.address(through)]) as client:
            client.create_topic(topic, partitions)

    def leader_of(self, topic: str, asked: int = 1) -> int:
        """Return the node that leads a topic's first partition, once ``asked`` knows it."""
        def known() -> int:
            with self.session(asked) as session:
                return session.partition(topic).leader
        return wait_for(known, f"node {asked} knows the leader of {topic}")

    def leader_session(self, topic: str) -> Session:
        """Return a raw connection to the leader of a topic's first partition, which knows the
        topic."""
        session = self.session(self.leader_of(topic))
        wait_for(lambda: session.partition(topic), f"{session.address} has heard of {topic}")
        return session

    def signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to a node's process."""
        found = self.dev.record.node(node)
        process = dev_process.Identity(found.pid, found.start_time, found.boot)
        assert dev_process.send_signal(process, number), f"node {node} is not running"

    def kill(self, node: int) -> None:
        """Send SIGKILL, and wait until the kernel has removed the process: its ports are free."""
        self.signal(node, signal.SIGKILL)
        found = self.dev.record.node(node)
        process = dev_process.Identity(found.pid, found.start_time, found.boot)
        assert dev_process.wait_gone(process, WAIT_S), f"node {node} does not end"

    def segments(self, node: int) -> list[Path]:
        """Return the files of a node's journal."""
        return sorted((self.dev.directory / f"node-{node}" / "data" / "lane-0").glob("*.segment"))

    def logs(self) -> str:
        """Return the last lines of every node's log, for the report of a failure."""
        parts = []
        for node in self.ids():
            path = dev_state.log_path(self.dev.directory, node)
            lines = path.read_text(errors="replace").splitlines() if path.exists() else []
            parts.append(f"---- node {node} ----\n" + "\n".join(lines[-LOG_LINES:]))
        return "\n".join(parts)


def steady(world: World) -> None:
    """Configure the nodes with ``STEADY``; for ``start``."""
    for node in world.ids():
        world.configure(node, STEADY)


def node_command(config: Path, action: str = "start", *options: str) -> list[str]:
    """Return the command that ``multiraft dev`` would start a node with; with the bugs that are
    planted in this run of the tests, if there are any (``chaos.planted.plugin``)."""
    if not plugin.active():
        # The report of a failure then shows role changes and their reasons.
        verbose = ("--log-level", "debug") if action == "start" else ()
        return dev_process.node_command(config, action, *verbose, *options)
    return launcher.command_line(["node", action, "--config", str(config), *options],
                                 plugin.active())


@contextlib.contextmanager
def start(directory: Path, nodes: int = 3, groups: int = 8, factor: int = 3,
          tls: TlsOptions | None = None, configure: Callable[[World], None] = lambda _world: None,
          ) -> Iterator[World]:
    """Yield a cluster that serves; stopped at the end.  ``configure`` may change it before it
    starts."""
    world = World.created(directory, nodes, groups, factor, tls)
    configure(world)
    with running(world):
        yield world


@contextlib.contextmanager
def running(world: World) -> Iterator[None]:
    """Start the nodes of a directory that exists, and stop them at the end."""
    try:
        world.dev.up(UP_S)
        yield
    finally:
        world.dev.down()


def wait_for(condition: Callable[[], T], what: str, limit_s: float = WAIT_S) -> T:
    """Wait for ``condition`` and return its first true value; unreachable nodes and unknown topics
    count as false."""
    give_up = time.monotonic() + limit_s
    while True:
        try:
            value = condition()
        except (ConnectionError, LookupError, UnknownTopic):
            value = None
        if value:
            return value
        assert time.monotonic() < give_up, f"not within {limit_s} s: {what}"
        time.sleep(POLL_S)


def run_node(config: Path, limit_s: float = WAIT_S) -> subprocess.CompletedProcess:
    """Run a node that is expected to end by itself; it is killed when it does not."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(node_command(config), capture_output=True, text=True,
                          timeout=limit_s, env=environment)


def await_line(world: World, node: int, text: str) -> None:
    """Wait until a line of the node's log has ``text``: a client may see the end of its connection
    before the line is written."""
    wait_for(lambda: any(text in line for line in world.log_lines(node)),
             f"node {node} logs {text!r}")
