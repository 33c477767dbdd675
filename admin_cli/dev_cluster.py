"""A local cluster in the background: up, down, kill, stop, start, status.

Contract.  `DevCluster` is the one implementation behind `multiraft dev ...` and the demo.  Every
wait is for a condition, bounded, and ends in a sentence that names the node and quotes its log.
Invariants.  A node's state is derived, never stored: what was last wanted of it, whether that very
process lives, whether it answers.  The record is changed under the lock only, and the lock is not
held while waiting, so a node can be killed while another command waits for it.
"""

from __future__ import annotations

import errno
import json
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from admin_cli.connection import (
    leaderless_groups,
    node_answers,
    node_caught_up,
    node_ids,
    why_not_ready,
)
from admin_cli.development import dev_process, dev_state, process_table
from admin_cli.development.dev_process import Identity
from admin_cli.development.dev_state import ClusterRecord, NodeRecord
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.session import Connect, NodeCommand
from admin_cli.values.text import shell_word

#: Recovery of a large data directory reads every unsealed byte; then elections take a second.
UP_TIMEOUT_S = 60.0
#: A node hands leadership over before it ends: a transfer timeout per group at worst, in parallel.
STOP_TIMEOUT_S = 30.0
#: A killed process is gone at once unless the kernel is busy with its I/O.
KILL_TIMEOUT_S = 10.0
#: Base ports tried for a cluster that accepts any.
BASE_PORTS_TRIED = 20
#: Highest base port: all ports above it exist.
BASE_PORT_MAX = 65_535 - dev_state.PORTS
#: `python -m node` ends with this when its data directory is another node's, or in use.
EXIT_WRONG_DIRECTORY = 3

#: A wait for nodes that report themselves ready.
CAUGHT_UP = "nodes whose replicas have caught up"

Report = Callable[[str, int, int], None]  # (subject of the wait, number reached, number expected)


class PortTaken(CommandFailed):
    """A port that a node needs is another program's. The remedy names that program, if it is
    known."""

    def __init__(self, node_id: int, port: int, why: str):
        pid = process_table.user_of_port(port)
        has_it = ""
        remedy = "Its program is not known: it may be another user's, or in a container."
        if pid is not None:
            place = process_table.working_directory(pid)
            node = dev_state.node_at(place) if place else None
            has_it = f" by pid {pid} ({process_table.command_line(pid)})"
            remedy = "Stop that program."
            if node is not None:
                has_it = f" by node {node[1]} of the cluster in {node[0]} (pid {pid})"
                remedy = f"Stop that cluster: multiraft dev down --dir {shell_word(node[0])}"
        super().__init__(f"port {port}, which node {node_id} needs, cannot be used: {why}{has_it}.",
                         remedy)


def unreported(_what: str, _done: int, _total: int) -> None:
    """Ignore progress."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node as `dev status` shows it."""

    id: int
    pid: int | None
    state: str  # running, unresponsive, stopping, stopped, killed, dead, removed
    client_address: str
    peer_address: str
    http_address: str


class DevCluster:
    """The cluster whose files are in ``directory``.

    ``connect`` opens a client to some addresses; ``command`` makes a node's command line from its
    configuration file; ``environ`` says where the pointer is.
    """

    def __init__(self, directory: Path, connect: Connect, environ: Mapping[str, str], *,
                 command: NodeCommand = dev_process.node_command,
                 report: Report = unreported):
        dev_process.require_linux()
        self.directory = directory.absolute()
        self._connect = connect
        self._environ = environ
        self._command = command
        self._report = report
        #: Error for which the record does not say that a node was ended, None = it does.
        self.unrecorded: OSError | None = None
        # node -> offset at which the log of its present run starts
        self._log_starts: dict[int, int] = {}

    @property
    def record(self) -> ClusterRecord:
        """The record as it is on disk now."""
        return dev_state.load(self.directory)

    @property
    def nodes(self) -> list[NodeRecord]:
        """The nodes without those that are known to be removed from the cluster."""
        return dev_state.remaining(self.directory, self.record)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Client addresses of all nodes that are not removed from the cluster."""
        return tuple(node.client_address for node in self.nodes)

    # -- up and down ----------------------------------------------------------------------------

    def create(self, nodes: int, groups: int, replication_factor: int, base_port: int,
               loads_ms: int = 0) -> None:
        """Write the files of a new cluster and initialise its data directories; starts no node.
        Raises ``PortTaken``, or ``CommandFailed`` if the directory is in use. After any failure the
        directory is as it was.

        ``loads_ms``: interval at which nodes append their loads to ``__metrics``, 0 = their
        default, ``dev_state.LOADS_OFF`` = they do not."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if any(path.name != "lock" for path in self.directory.iterdir()):
            raise CommandFailed(f"{self.directory} is not empty and holds no cluster.",
                                "Name another directory with --dir.")
        with dev_state.locked(self.directory):
            record = dev_state.plan(nodes, groups, replication_factor, base_port, loads_ms)
            self._write(record)

    def create_again(self, nodes: int, groups: int, replication_factor: int, base_port: int,
                     loads_ms: int = 0) -> None:
        """Replace a cluster of which no node was ever started by another one; starts no node.
        Raises ``PortTaken``, or ``CommandFailed`` if a node was started: the cluster is then as it
        was. Arguments as in ``create``."""
        with dev_state.locked(self.directory):
            old = self.record
            started = [node.id for node in old.nodes if node.pid is not None]
            if started:
                raise CommandFailed(f"nodes {started} were started: nothing was changed.")
            record = dev_state.plan(nodes, groups, replication_factor, base_port, loads_ms)
            for node in record.nodes:
                _require_free_ports(node)
            dev_state.remove_nodes(self.directory, old)
            self._write(record)

    def is_unused(self) -> bool:
        """Return True if no node of the cluster was ever started, so that it has no records."""
        return all(node.pid is None for node in self.record.nodes)

    def _write(self, record: ClusterRecord) -> None:
        """Write the files of a cluster, or none; the caller holds the lock."""
        try:
            for node in record.nodes:
                _require_free_ports(node)
            dev_state.write_configs(self.directory, record)
            self._initialise([
                self._command(dev_state.config_path(self.directory, node.id), "init")
                for node in record.nodes])
            dev_state.save(self.directory, record)
        except BaseException:  # Ctrl-C as well: half a cluster would refuse the next attempt
            dev_state.wipe(self.directory, record)
            raise

    def up(self, timeout_s: float = UP_TIMEOUT_S) -> list[int]:
        """Start every node that does not run, and wait until the cluster serves. Return the ids
        started. Nodes that were removed from the cluster are left out.

        Raises ``PortTaken``, or ``CommandFailed`` when a node dies, or after ``timeout_s`` if some
        group has no leader or some node is not ready."""
        with dev_state.locked(self.directory):
            record = self.record
            idle = [node for node in dev_state.remaining(self.directory, record)
                    if not self._alive(node)]
            for node in idle:
                _require_free_ports(node)
            for node in idle:
                self._spawn(record, node)
        deadline = time.monotonic() + timeout_s
        self._wait_serving(self.nodes, deadline)
        self._wait_leaders(record, deadline)
        self._wait_ready(self.nodes, deadline)
        return [node.id for node in idle if not self._was_removed(node)]

    def down(self) -> list[int]:
        """Stop every running node, all at once, and wait until they have ended. Return the ids
        stopped.

        A node that does not end in ``STOP_TIMEOUT_S`` is killed: its data is safe by design."""
        signalled = {node.id: self._signal(node.id, dev_state.STOP) for node in self.record.nodes}
        stopped = {node_id: process for node_id, process in signalled.items() if process}
        for position, (node_id, process) in enumerate(stopped.items()):
            self._report("nodes stopped", position, len(stopped))
            if not dev_process.wait_gone(process, STOP_TIMEOUT_S):
                self.kill(node_id)
        return list(stopped)

    def wipe(self) -> None:
        """Remove the files of a stopped cluster, and the pointer to it. Raises ``CommandFailed`` if
        a node runs."""
        with dev_state.locked(self.directory):
            record = self.record
            running = [node.id for node in record.nodes if self._alive(node)]
            if running:
                raise CommandFailed(f"nodes {running} still run; nothing was removed.",
                                    "Stop them first: multiraft dev down")
            dev_state.drop_pointer(self.directory, self._environ)
            dev_state.wipe(self.directory, record)

    # -- one node -------------------------------------------------------------------------------

    def add(self, timeout_s: float = UP_TIMEOUT_S) -> int:
        """Add a node that joins the running cluster, start it, and wait until it has caught up.
        Return its id. Raises ``CommandFailed``."""
        servers = ",".join(self.addresses)
        with dev_state.locked(self.directory):
            record = self.record
            node = dev_state.next_node(record)
            _require_free_ports(node)
            dev_state.write_joining_config(self.directory, record, node)
            self._initialise([self._command(dev_state.config_path(self.directory, node.id), "init",
                                            "--join", servers)])
            record.nodes.append(node)
            dev_state.save(self.directory, record)
        self.start(node.id, timeout_s)
        return node.id

    def _initialise(self, commands: list[Sequence[str]]) -> None:
        complaints = dev_process.run_all(commands, UP_TIMEOUT_S)
        if complaints:
            raise CommandFailed("a node could not be initialised.", complaints[0])

    def kill(self, node_id: int) -> None:
        """Kill a node with SIGKILL, and return when the process has ended. Raises ``CommandFailed``
        if the node does not run or does not end."""
        process = self._signal_running(node_id, dev_state.KILL)
        if not dev_process.wait_gone(process, KILL_TIMEOUT_S):
            raise CommandFailed(f"node {node_id} (pid {process.pid}) is still running after "
                                "SIGKILL.",
                                "The kernel blocks it, usually in disk I/O; check its disk.")

    def stop(self, node_id: int, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop a node with SIGTERM: it transfers leadership and ends. Return when it has ended.
        Raises ``CommandFailed`` if it does not run or does not end in time."""
        process = self._signal_running(node_id, dev_state.STOP)
        if not dev_process.wait_gone(process, timeout_s):
            raise CommandFailed(f"node {node_id} (pid {process.pid}) has not ended after "
                                f"{timeout_s:.0f} s.", self._quote_log(node_id)
                                + f"\nKill it: multiraft dev kill {node_id}")

    def start(self, node_id: int, timeout_s: float = UP_TIMEOUT_S) -> bool:
        """Start a node, and wait until it serves and has the cluster's metadata. Return False when
        it already ran. Raises ``CommandFailed``."""
        with dev_state.locked(self.directory):
            record = self.record
            node = record.node(node_id)
            self._require_remaining(node_id)
            idle = not self._alive(node)
            if idle:
                _require_free_ports(node)
                self._spawn(record, node)
        deadline = time.monotonic() + timeout_s
        self._wait_serving([node], deadline)
        others = [address for address in self.addresses if address != node.client_address]
        self._wait_for("nodes caught up", [node], deadline, lambda node: node_caught_up(
            self._connect, [*others, node.client_address], node.client_address))
        self._require_remaining(node_id)
        return idle

    def restart(self, node_ids: Sequence[int], timeout_s: float = UP_TIMEOUT_S) -> None:
        """Stop and start nodes one after the other, each only while all others are ready.

        Returns when all are ready again.  A node is stopped when every node of the cluster runs and
        reports that it is ready: then no group lacks a second member meanwhile.  Raises
        ``CommandFailed`` otherwise, with every node but at most one as it was.
        """
        for node_id in node_ids:
            self.record.node(node_id)  # an unknown one is refused before any is touched
            self._require_remaining(node_id)
        for node_id in node_ids:
            self._wait_whole(timeout_s)
            self.stop(node_id)
            self.start(node_id, timeout_s)
        self._wait_whole(timeout_s)

    def members(self) -> list[NodeRecord]:
        """Return nodes that run, or that the cluster has not removed."""
        known = node_ids(self._connect, self.addresses)
        return [node for node in self.nodes if self._alive(node) or node.id in known]

    def _wait_whole(self, timeout_s: float) -> None:
        """Wait until every node is ready. Raises ``CommandFailed`` at once if a node does not run,
        or when time is up."""
        nodes = self.members()
        missing = [node.id for node in nodes if not self._alive(node)]
        if missing:
            raise CommandFailed(
                f"nodes {missing} do not run: a group that has a member there may need all others.",
                f"Start them first: multiraft dev up --dir {shell_word(self.directory)}")
        self._wait_ready(nodes, time.monotonic() + timeout_s)

    def status(self) -> list[NodeState]:
        """Return every node's state; running nodes are asked concurrently."""
        nodes = self.record.nodes
        with ThreadPoolExecutor(max_workers=len(nodes)) as pool:
            return list(pool.map(self._node_state, nodes))

    def _node_state(self, node: NodeRecord) -> NodeState:
        living = self._alive(node)
        if not living and self._was_removed(node):
            state = "removed"
        elif not living:
            state = {dev_state.RUN: "dead", dev_state.STOP: "stopped",
                     dev_state.KILL: "killed"}[node.wanted]
        elif node.wanted != dev_state.RUN:
            state = "stopping"
        elif node_answers(self._connect, node.client_address):
            state = "running"
        else:  # a removed node records that before its process ends
            state = "removed" if self._was_removed(node) else "unresponsive"
        return NodeState(node.id, node.pid if living else None, state, node.client_address,
                         node.peer_address, node.http_address)

    # -- parts ----------------------------------------------------------------------------------

    def _alive(self, node: NodeRecord) -> bool:
        """Return True if the recorded process of the node runs on this directory."""
        return dev_process.node_alive(self.directory, node)

    def _was_removed(self, node: NodeRecord) -> bool:
        """Return True if the node recorded that it was removed from the cluster."""
        return dev_state.was_removed(self.directory, node.id)

    def _require_remaining(self, node_id: int) -> None:
        """Return unless the node was removed from the cluster. Raises ``CommandFailed`` then."""
        if dev_state.was_removed(self.directory, node_id):
            raise CommandFailed(
                f"node {node_id} was removed from the cluster permanently: it never runs again.",
                f"Add a new node: multiraft dev add-node --dir {shell_word(self.directory)}")

    def _spawn(self, record: ClusterRecord, node: NodeRecord) -> None:
        """Start one process and record it; the caller holds the lock."""
        log = dev_state.log_path(self.directory, node.id)
        self._log_starts[node.id] = dev_process.log_size(log)
        dev_state.use_own_data(self.directory, node.id)
        process = dev_process.start(self._command(dev_state.config_path(self.directory, node.id)),
                                    dev_state.node_directory(self.directory, node.id), log)
        node.wanted = dev_state.RUN
        node.pid, node.start_time, node.boot = process
        try:
            dev_state.save(self.directory, record)  # after each: a crash of ours loses no process
        except OSError:  # no command would find the process again
            dev_process.send_signal(process, signal.SIGKILL)
            dev_process.wait_gone(process, KILL_TIMEOUT_S)
            raise

    def _signal(self, node_id: int, wanted: str) -> Identity | None:
        """Record the wanted state and signal the process. Return the process, None when the node
        did not run."""
        with dev_state.locked(self.directory):
            record = self.record
            node = record.node(node_id)
            living = self._alive(node)
            if living or wanted == dev_state.STOP:  # stopping the dead says: this is as intended
                node.wanted = wanted
                self._record_end(record)
            number = signal.SIGKILL if wanted == dev_state.KILL else signal.SIGTERM
            if living and dev_process.send_signal(dev_process.identity(node), number):
                return dev_process.identity(node)
            return None

    def _record_end(self, record: ClusterRecord) -> None:
        """Save the record; an error is kept in ``unrecorded``, so that a full disk keeps no node
        running."""
        try:
            dev_state.save(self.directory, record)
        except OSError as error:
            self.unrecorded = error

    def _signal_running(self, node_id: int, wanted: str) -> Identity:
        process = self._signal(node_id, wanted)
        if process is None:
            self._require_remaining(node_id)
            raise CommandFailed(f"node {node_id} does not run.",
                                f"Start it: multiraft dev start {node_id} --dir "
                                f"{shell_word(self.directory)}")
        return process

    def _wait_serving(self, nodes: Sequence[NodeRecord], deadline: float) -> None:
        """Wait until each node has logged that it is ready, then until each answers. A node that
        ends because it was removed from the cluster is not waited for."""
        self._wait_for("nodes ready", nodes, deadline, self._is_ready)
        self._wait_for("nodes answering", nodes, deadline,
                       lambda node: node_answers(self._connect, node.client_address))

    def _wait_ready(self, nodes: Sequence[NodeRecord], deadline: float) -> None:
        """Wait until each node reports that it is ready. The failure quotes the reasons of nodes
        that are not."""
        why: dict[int, str] = {}

        def is_ready(node: NodeRecord) -> bool:
            why[node.id] = why_not_ready(self._connect, node.client_address)
            return not why[node.id]

        self._wait_for(CAUGHT_UP, nodes, deadline, is_ready, why)

    def _wait_for(self, what: str, nodes: Sequence[NodeRecord], deadline: float,
                  holds: Callable[[NodeRecord], bool],
                  why: Mapping[int, str] | None = None) -> None:
        """Wait until ``holds`` of each node. ``why``: reasons for which it does not, by node."""
        waiting = list(nodes)
        while waiting:
            self._report(what, len(nodes) - len(waiting), len(nodes))
            waiting = [node for node in waiting
                       if not (holds(node) or self._was_removed(node))]
            self._check_progress(waiting, what, deadline, why or {})
        self._report(what, len(nodes), len(nodes))

    def _is_ready(self, node: NodeRecord) -> bool:
        """Return True if the log of the present run has the ready line, or the node ran before this
        command."""
        if node.id not in self._log_starts:  # it ran before this command: answering decides
            return True
        log = dev_state.log_path(self.directory, node.id)
        with open(log, "rb") as file:
            file.seek(self._log_starts[node.id])
            return any(_is_ready_line(line) for line in file)

    def _wait_leaders(self, record: ClusterRecord, deadline: float) -> None:
        """Wait until every group, the metadata group included, has a leader."""
        total = record.groups + 1
        while True:
            missing, total = leaderless_groups(self._connect, self.addresses, total)
            self._report("groups with a leader", total - missing, total)
            if missing == 0:
                return
            self._check_progress(self.nodes, f"leaders of {missing} of {total} groups", deadline,
                                 {})

    def _check_progress(self, waiting: Sequence[NodeRecord], what: str, deadline: float,
                        why: Mapping[int, str]) -> None:
        """Sleep for one interval if nodes are awaited. Raises ``CommandFailed`` if one of them has
        died or time is up; it quotes ``why`` nodes are awaited."""
        for node in waiting:
            if not self._alive(node):
                raise CommandFailed(*self._explain_death(node))
        if not waiting:
            return
        if time.monotonic() > deadline:
            names = ", ".join(str(node.id) for node in waiting)
            reasons = "; ".join(f"node {node.id}: {why[node.id]}" for node in waiting
                                if why.get(node.id))
            told = f": {reasons}" if reasons else ""
            raise CommandFailed(f"timed out waiting for {what} (nodes {names}){told}.",
                                self._quote_log(waiting[0].id), ExitCode.UNREACHABLE)
        time.sleep(dev_process.POLL_INTERVAL_S)

    def _explain_death(self, node: NodeRecord) -> tuple[str, str]:
        status = dev_process.exit_status(dev_process.identity(node))
        how = {None: "", EXIT_WRONG_DIRECTORY: ": its data directory belongs to another node or "
               "cluster, or another process uses it"}.get(status, f" with exit status {status}")
        return f"node {node.id} ended before it was ready{how}.", self._quote_log(node.id)

    def _quote_log(self, node_id: int) -> str:
        log = dev_state.log_path(self.directory, node_id)
        tail = process_table.log_tail(log, self._log_starts.get(node_id, 0))
        quoted = "".join(f"\n| {line}" for line in tail.splitlines())
        said = f"Its log, {log}, ends:{quoted}" if quoted else f"Its log, {log}, is empty."
        directory = shell_word(self.directory)
        return (f"{said}\nShow its nodes: multiraft dev status --dir {directory}\n"
                f"Stop its nodes: multiraft dev down --dir {directory}")


def _is_ready_line(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and event.get("event") == "node_started"


def free_base_port(wished: int, nodes: int) -> int:
    """Return ``wished``, or the next base port whose ports are all free.  Raises ``CommandFailed``.
    """
    step = dev_state.PORTS
    last = min(wished + step * BASE_PORTS_TRIED, BASE_PORT_MAX + 1)
    for base in range(wished, last, step):
        try:
            for node in dev_state.plan(nodes, 1, 1, base).nodes:
                _require_free_ports(node)
        except CommandFailed:
            continue
        return base
    raise CommandFailed(f"no free ports from {wished} on.", "Stop the programs that use them, or "
                                                            "choose --base-port.")


def _require_free_ports(node: NodeRecord) -> None:
    """Raise ``PortTaken`` naming the port if another program listens where the node would."""
    for address in filter(None, (node.client_address, node.peer_address, node.http_address,
                                 node.kafka_address)):
        host, _, port = address.rpartition(":")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, int(port)))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    # the node's network is not this machine's: the node reports the error itself
                    continue
                raise PortTaken(node.id, int(port), str(error.strerror)) from error
