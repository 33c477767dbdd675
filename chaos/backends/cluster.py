"""Common part of the backends: a cluster of nodes and every fault but the signals to a process.

Contract.  A ``Backend`` whose nodes are started and signalled by a ``ProcessRunner``, with a disk
and a network namespace each where the machine allows it (see ``probes``).

Invariants.  A node's lock is held while its state changes and never during a wait for its health,
so a node that hangs at its start can be killed, thawed and healed meanwhile.  Thawing, resuming and
healing the network take no node's lock at all.
"""

from __future__ import annotations

import abc
import contextlib
import platform
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from admin_cli.development import process_table
from chaos.backends import host, layout, ledger, probes, throttle
from chaos.backends.artifacts import copy_artifacts
from chaos.backends.backend import (
    CLIENTS,
    CLOCK,
    FAILED_DISK,
    HUNG_DISK,
    KINDS,
    POWER_LOSS,
    SLOW_DISK,
    STOP_S,
    UP_S,
    Backend,
    BackendError,
    ClusterSpec,
    Delay,
    Link,
    NodeExit,
)
from chaos.backends.layout import Layout, NodeEndpoint
from chaos.backends.node_instance import NodeInstance, ProcessRunner
from chaos.backends.packets import LinkFaults, NodePackets
from chaos.backends.watchdog import CleanupWatchdog
from multiraft.client import blocking
from multiraft.errors import MultiRaftError

#: A killed process is gone, unless its disk keeps it in the kernel.
KILL_S = 30.0
#: A running node answers within a round trip and a scan of its groups.
ANSWER_MS = 2_000
#: How often nodes are asked for their status: each answer costs a scan of all groups.
ASK_S = 0.2
#: Part of the last message of a node that was removed, and ends: each source of that news has its
#: own words behind it (a peer, the metadata, the record of an earlier refusal).
REMOVED_SAID = "was removed from the cluster"
#: Exit status of a node that must not take part: it was removed, or its identity is damaged.
REFUSED = 3


class Cluster(Backend):
    """A backend but for the processes, addresses and networks of nodes, which subclasses add."""

    def __init__(self, directory: Path, spec: ClusterSpec):
        self.directory = directory.absolute()
        self.spec = spec
        self.layout = Layout(self.directory, spec)
        self.faults = LinkFaults()
        self.addresses: dict[int, str] = {}
        self._instances: dict[int, NodeInstance] = {}
        self._exits: list[NodeExit] = []
        self._network_lock = threading.Lock()
        self._exits_lock = threading.Lock()
        self._members_lock = threading.Lock()
        self._runner: ProcessRunner
        self.directory.mkdir(parents=True, exist_ok=True)
        self._require_room_for_nodes()
        ledger.release_orphans()
        self.book = ledger.ResourceLedger.open()
        self._watchdog = CleanupWatchdog(self.book)
        try:
            self.left_out = self._probe()
        except BaseException:
            self.close()
            raise
        self.kinds = frozenset(KINDS) - self.left_out.keys()
        self.versions = {"kernel": platform.release(), "python": platform.python_version()}

    def _require_room_for_nodes(self) -> None:
        if any(self.directory.glob("node-*")):
            raise BackendError(f"{self.directory} has the nodes of another run; name another "
                               f"directory")

    def _probe(self) -> dict[str, str]:
        """Return each kind of fault that this machine cannot inject -> the reason."""
        return probes.left_out(self.book)

    @abc.abstractmethod
    def _open(self) -> None:
        """Create the parts that all nodes share: mounts and the network."""

    @abc.abstractmethod
    def _reserve_endpoint(self, node: int) -> NodeEndpoint:
        """Reserve an address for a node, record it in ``addresses``, and return the node's
        endpoint."""

    @abc.abstractmethod
    def _make_network(self, endpoint: NodeEndpoint) -> NodePackets | None:
        """Create the node's end of the network; None = packets of the node cannot be filtered."""

    def _own_disk(self, node: int) -> None:
        """Give a node's files to the user that it runs as; does nothing where that is this user."""

    @property
    def has_disks(self) -> bool:
        """True if every node has a file system of its own."""
        return POWER_LOSS in self.kinds

    # -- the cluster ----------------------------------------------------------------------------

    def up(self, timeout_s: float = UP_S) -> None:
        deadline = time.monotonic() + timeout_s
        self._open()
        endpoints = [self._reserve_endpoint(node) for node in range(1, self.spec.nodes + 1)]
        self._each(endpoints, lambda endpoint: self._make(endpoint, endpoints))
        self._each(endpoints, lambda endpoint: self._init(endpoint.id))
        self._each(endpoints, lambda endpoint: self.start(endpoint.id, deadline - time.monotonic()))
        if not host.holds(lambda: not self._leaderless(), deadline - time.monotonic(), ASK_S):
            raise BackendError(f"groups {self._leaderless()} have no leader after {timeout_s:.0f} "
                               f"s; logs are in {self.directory}")

    def _each(self, items: Collection, work: Callable) -> None:
        """Run ``work`` on all items at once, each in a thread. Waits for all of them, then raises
        the first error."""
        with ThreadPoolExecutor(max_workers=max(1, len(items))) as pool:
            for done in list(pool.map(lambda item: _outcome(work, item), items)):
                if done is not None:
                    raise done

    def _make(self, endpoint: NodeEndpoint, members: Collection[NodeEndpoint]) -> None:
        """Write the configuration of a node, create its disk and its end of the network, and
        register it. The node is not started.

        ``members``: as for ``Layout.write``. Link faults that are active apply to it from now on.
        """
        self.layout.write(endpoint, list(members))
        disk = None
        if self.has_disks:
            disk = layout.disk_of(self.layout, endpoint.id)
            self.book.note(ledger.DISK, str(disk.image), str(disk.mount))
            disk.create(self.spec.disk_bytes)
        else:
            self.layout.disk(endpoint.id).mkdir()
        instance = NodeInstance(
            endpoint, self.layout.log(endpoint.id), disk, self._make_network(endpoint)
        )
        with self._members_lock:
            self._instances[endpoint.id] = instance
        if instance.packets is not None:
            instance.packets.apply(self.addresses, self.faults)

    def _init(self, node: int, *options: str) -> None:
        host.run_python("admin_cli", "node", "init", "--config", str(self.layout.config(node)),
                        *options)
        self._own_disk(node)

    def _leaderless(self) -> list[int]:
        expected = range(self.spec.groups + 1)
        try:
            with blocking.Client(self.servers()) as client:
                led = {row.group for row in client.group_list() if row.leader}
        except (MultiRaftError, OSError):
            return list(expected)
        return [group for group in expected if group not in led]

    def close(self) -> None:
        for instance in self._instances.values():
            if instance.packets is not None:
                instance.packets.release()
        try:
            ledger.release(self.book)
        finally:
            self._watchdog.dismiss()

    def nodes(self) -> list[int]:
        with self._members_lock:
            return [
                node for node, instance in sorted(self._instances.items()) if not instance.removed
            ]

    def inside(self, node: int, *command: str) -> list[str]:
        """Return a command that runs ``command`` in the node's network; ``command`` itself where
        the node has none of its own."""
        packets = self._instance(node).packets
        return list(command) if packets is None else host.within(packets.namespace, *command)

    def pid(self, node: int) -> int:
        """Return the pid of the node's process on this machine."""
        return self._runner.pid(node)

    def disk_directory(self, node: int) -> Path:
        """Return the mount point of the node's disk, which has the data directory and free space
        beside it."""
        return self.layout.disk(node)

    def address(self, node: int) -> str:
        return self._instance(node).endpoint.client_address

    def kafka_address(self, node: int) -> str:
        return self._instance(node).endpoint.kafka_address

    def _instance(self, node: int) -> NodeInstance:
        if node not in self._instances:
            raise BackendError(f"there is no node {node}")
        return self._instances[node]

    def heal_all(self) -> None:
        problems: list[str] = []
        for node, instance in list(self._instances.items()):
            with _problems(problems):
                self.thaw_disk(node)
            with _problems(problems):
                self.resume(node)
            if instance.throttle != (0, 0):
                with _problems(problems):
                    self.slow_disk(node, 0, 0)
        with _problems(problems):
            self.heal_network()
        self._each(self.nodes(), lambda node: self._heal_node(node, problems))
        if problems:
            raise BackendError("; ".join(problems))

    def _heal_node(self, node: int, problems: list[str]) -> None:
        """Mend a failed or full disk of a node, end its clock fault, start it, and wait until it is
        up; add what fails to ``problems``. The caller has thawed and resumed the node."""
        self._heal_disk(node, problems)
        with _problems(problems):
            if CLOCK in self.kinds:
                self.set_clock(node)
        with _problems(problems):
            self.start(node)

    def _heal_disk(self, node: int, problems: list[str]) -> None:
        instance = self._instance(node)
        with _problems(problems):
            if instance.disk is not None and instance.disk.failed:
                self.mend_disk(node)
        with _problems(problems):
            self.free_disk(node)

    def await_whole(self, timeout_s: float = UP_S) -> None:
        deadline = time.monotonic() + timeout_s
        for node in self.nodes():
            if not host.holds(lambda node=node: self._says_ready(node) or self._has_ended(node),
                              deadline - time.monotonic(), ASK_S) or self._has_ended(node):
                self._discover(node)
                if self._instance(node).removed:
                    continue
                raise BackendError(f"node {node} is not whole: {self._complaint(node)}")

    def damaged_replicas(self, node: int) -> int:
        return int(self._status(node).get("groups_quarantined", 0))

    def _says_ready(self, node: int) -> bool:
        return bool(self._status(node).get("ready"))

    def _answers(self, node: int) -> bool:
        return bool(self._status(node))

    def _status(self, node: int) -> Mapping[str, object]:
        """Return the node's own status; empty when it does not answer."""
        try:
            with blocking.Client([self.address(node)]) as client:
                return client.node_status(self.address(node), ANSWER_MS).status
        except (MultiRaftError, OSError):
            return {}

    # -- processes ------------------------------------------------------------------------------

    def start(self, node: int, timeout_s: float = UP_S) -> None:
        deadline = time.monotonic() + timeout_s
        instance = self._instance(node)
        with instance.lock:
            if instance.removed or (instance.should_run and self._runner.alive(node)):
                return
            self._discover(node)
            if instance.removed:
                return
            if not host.holds(lambda: not self._runner.alive(node), timeout_s):
                raise BackendError(f"node {node} was killed and still is in the kernel")
            if instance.disk is not None and not instance.disk.device():
                raise BackendError(f"the disk of node {node} is not mounted")
            instance.log_start = instance.log.stat().st_size
            instance.disk_faults.clear()
            self._runner.spawn(node)
            instance.should_run, instance.paused = True, False
            if instance.disk is not None and SLOW_DISK in self.kinds:
                # Zeros as well: the node may be in the same cgroup as before its restart.
                self._throttle(instance)
        while not self._is_up(node):
            if not instance.should_run:
                return  # another thread has ended it meanwhile
            if self._has_ended(node):
                self._discover(node)
                if instance.removed:
                    return
                raise BackendError(f"node {node} ended at its start: {self._complaint(node)}")
            if time.monotonic() > deadline:
                raise BackendError(f"node {node} is not up after {timeout_s:.0f} s: "
                                   f"{self._complaint(node)}")
            time.sleep(ASK_S)

    def _is_up(self, node: int) -> bool:
        """True if the node's log says that it is ready, and it answers a client. No answer is
        required while a link fault lies between it and the clients."""
        if not self._has_said_ready(node):
            return False
        faults = self.faults
        hindered = faults.cut | faults.reset | faults.lossy
        return bool(hindered & {Link(CLIENTS, node), Link(node, CLIENTS)}) or self._answers(node)

    def _has_said_ready(self, node: int) -> bool:
        instance = self._instance(node)
        with instance.log.open("rb") as file:
            file.seek(instance.log_start)
            return any(b'"event":"node_started"' in line.replace(b" ", b"") for line in file)

    def _has_ended(self, node: int) -> bool:
        """True if the node's process ended without the backend, and ``_discover`` has not noted
        that yet."""
        return self._instance(node).should_run and not self._runner.alive(node)

    def _complaint(self, node: int) -> str:
        instance = self._instance(node)
        said = process_table.log_tail(instance.log, instance.log_start)
        return (
            f"its log, {instance.log}, ends:\n{said}"
            if said
            else f"its log, {instance.log}, is empty"
        )

    def kill(self, node: int) -> None:
        instance = self._instance(node)
        with instance.lock:
            self._discover(node)
            self._end(node, signal.SIGKILL)
            frozen = instance.disk is not None and instance.disk.frozen
            if not frozen and not host.holds(lambda: not self._runner.alive(node), KILL_S):
                raise BackendError(f"node {node} was killed and still is in the kernel")

    def stop(self, node: int, timeout_s: float = STOP_S) -> None:
        instance = self._instance(node)
        with instance.lock:
            self._discover(node)
            self.resume(node)
            self._end(node, signal.SIGTERM)
        if not host.holds(lambda: not self._runner.alive(node), timeout_s):
            self.kill(node)

    def _end(self, node: int, number: signal.Signals) -> None:
        instance = self._instance(node)
        if instance.should_run:
            instance.should_run = False
            with self._exits_lock:
                self._exits.append(NodeExit(node, -number, True))
        self._runner.signal(node, number)
        if number == signal.SIGKILL:
            self._runner.resume(node)  # a stopped process does not handle SIGTERM
            instance.paused = False

    def pause(self, node: int) -> None:
        instance = self._instance(node)
        with instance.lock:
            if instance.should_run and not instance.paused and self._runner.alive(node):
                instance.paused = True  # before: an exception in between must not leave it paused
                self._runner.pause(node)

    def resume(self, node: int) -> None:
        instance = self._instance(node)
        if instance.paused:
            self._runner.resume(node)
            instance.paused = False

    def is_running(self, node: int) -> bool:
        return node in self._instances and self._runner.alive(node)

    def exits(self) -> list[NodeExit]:
        for node in self.nodes():
            self._discover(node)
        with self._exits_lock:
            return list(self._exits)

    def _discover(self, node: int) -> None:
        """Note once that a node has ended by itself, so that ``exits`` lists it; no-op for a node
        that has not. A node that ended because of its own removal is noted as removed instead."""
        instance = self._instance(node)
        with self._exits_lock:
            if not self._has_ended(node):
                return
            instance.should_run = False
            if instance.leaving and REMOVED_SAID in self._complaint(node):
                instance.removed = True  # though the caller of the removal got no answer
                return
            self._exits.append(NodeExit(node, self._runner.exit_status(node), False,
                                        instance.disk_faults_so_far()))

    # -- members --------------------------------------------------------------------------------

    def add_node(self, timeout_s: float = UP_S) -> int:
        with self._members_lock:
            # Addresses are reserved before anything is created: no other thread takes this number.
            node = max(self.addresses) + 1
            endpoint = self._reserve_endpoint(node)
        try:
            self._make(endpoint, ())
            self._init(node, "--join", ",".join(self.servers(*self._others(node))))
        except BaseException:
            if node in self._instances:
                self._instances[node].removed = True  # it was never a member
            raise
        self.start(node, timeout_s)
        return node

    def _others(self, node: int) -> list[int]:
        return [other for other in self.nodes() if other != node]

    def remove_node(self, node: int, timeout_s: float = UP_S) -> None:
        instance = self._instance(node)
        instance.leaving = True  # the node may end before the answer arrives, or without one
        self.command("node", "remove", str(node), "--yes", timeout_s=timeout_s,
                     servers=self.servers(*self._others(node)))
        instance.removed, instance.should_run = True, False
        if not host.holds(lambda: not self._runner.alive(node), STOP_S):
            self.kill(node)

    def try_removed(self, timeout_s: float = UP_S) -> list[int]:
        with self._members_lock:
            gone = [node for node, instance in sorted(self._instances.items())
                    if instance.removed and instance.leaving]
        self._each(gone, lambda node: self._try_removed(node, timeout_s))
        return gone

    def _try_removed(self, node: int, timeout_s: float) -> None:
        instance, problems = self._instance(node), []
        self._heal_disk(node, problems)
        if problems:
            raise BackendError("; ".join(problems))
        with instance.lock:
            self.kill(node)
            instance.log_start = instance.log.stat().st_size
            self._runner.spawn(node)
            # A start takes as long as the machine is busy; only a node that serves runs again.
            host.holds(lambda: not self._runner.alive(node) or self._has_said_ready(node), UP_S)
            if not host.holds(lambda: not self._runner.alive(node), timeout_s):
                said = self._complaint(node)
                self.kill(node)
                raise BackendError(f"node {node} was removed and runs again; {said}")
            status = self._runner.exit_status(node)
            if status != REFUSED:
                raise BackendError(f"node {node} was removed, and is not refused but ends with "
                                   f"status {status}; {self._complaint(node)}")

    def command(self, *arguments: str, timeout_s: float = UP_S,
                servers: Collection[str] = ()) -> str:
        return host.run_python("admin_cli", *arguments, "--servers",
                               ",".join(servers or self.servers()), timeout_s=timeout_s)

    # -- network --------------------------------------------------------------------------------

    def cut(self, links: Collection[Link]) -> None:
        self._change_links(cut=frozenset(links))

    def lose(self, links: Collection[Link], probability: float) -> None:
        self._change_links(lossy=frozenset(links) if probability else frozenset(),
                           loss=probability)

    def delay(self, links: Collection[Link], delay: Delay | None) -> None:
        self._change_links(delayed=frozenset(links) if delay else frozenset(), delay=delay)

    def reset(self, links: Collection[Link]) -> None:
        self._change_links(reset=frozenset(links))

    def _change_links(self, **changes: object) -> None:
        with self._network_lock:
            for name, value in changes.items():
                setattr(self.faults, name, value)
            problems: list[str] = []
            for instance in list(self._instances.values()):
                if instance.packets is not None:
                    with _problems(problems):
                        instance.packets.apply(self.addresses, self.faults)
                elif any(changes.values()):
                    problems.append(self.left_out.get("partition", "there is no network"))
            if problems:
                raise BackendError("; ".join(problems))

    # -- disks ----------------------------------------------------------------------------------

    def _disk(self, node: int):
        disk = self._instance(node).disk
        if disk is None:
            raise BackendError(f"node {node} has no disk of its own: "
                               f"{self.left_out.get(POWER_LOSS, 'it is gone')}")
        return disk

    def _begin(self, node: int, kind: str):
        """Note a disk fault of ``kind`` on a node, and return its disk. The fault is noted before
        it begins, since the node may end of it at once. Raises ``BackendError`` if the node has no
        disk of its own."""
        disk = self._disk(node)
        self._instance(node).disk_faults.add(kind)
        return disk

    def power_loss(self, nodes: Collection[int]) -> None:
        with contextlib.ExitStack() as stack:
            for node in sorted(nodes):
                stack.enter_context(self._instance(node).lock)
                self._discover(node)
            # All are stopped before the first disk ends: no node sees another one's power fail.
            for node in nodes:
                self._runner.signal(node, signal.SIGSTOP)
            problems: list[str] = []
            for node in nodes:
                with _problems(problems):
                    self._begin(node, POWER_LOSS).shut_down()
            for node in nodes:
                self._end(node, signal.SIGKILL)
                self.thaw_disk(node)  # after the shutdown: writes that hung do not reach the disk
            self._each(nodes, self._remount)
        if problems:
            raise BackendError("; ".join(problems))

    def slow_disk(self, node: int, bytes_per_s: int, operations_per_s: int) -> None:
        instance = self._instance(node)
        self._disk(node)
        instance.throttle = bytes_per_s, operations_per_s
        if self._runner.alive(node):
            self._throttle(instance)

    def _throttle(self, instance: NodeInstance) -> None:
        throttle.throttle(
            self._runner.pid(instance.endpoint.id), instance.disk.device(), *instance.throttle
        )

    def freeze_disk(self, node: int) -> None:
        self._begin(node, HUNG_DISK).freeze()

    def thaw_disk(self, node: int) -> None:
        disk = self._instance(node).disk
        if disk is not None:
            disk.thaw()

    def fill_disk(self, node: int, leave_bytes: int = 0) -> None:
        self._disk(node).fill(leave_bytes)

    def free_disk(self, node: int) -> None:
        disk = self._instance(node).disk
        if disk is not None:
            disk.free()

    def fail_disk(self, node: int) -> None:
        self._begin(node, FAILED_DISK).shut_down()

    def mend_disk(self, node: int) -> None:
        if self._disk(node).failed:
            with self._instance(node).lock:
                self._discover(node)
                self._end(node, signal.SIGKILL)
                self.thaw_disk(node)
                self._remount(node)

    def _remount(self, node: int) -> None:
        if not host.holds(lambda: not self._runner.alive(node), KILL_S):
            raise BackendError(f"node {node} was killed and still is in the kernel")
        self._disk(node).remount()

    def data_directory(self, node: int) -> Path:
        return self.layout.data(node)

    # -- clocks ---------------------------------------------------------------------------------

    def set_clock(self, node: int, wall_ms: int = 0, jump_ms: int = 0,
                  drift_ppm: int = 0) -> None:
        instance = self._instance(node)
        if CLOCK not in self.kinds:
            raise BackendError(self.left_out[CLOCK])
        instance.jumped_ms += jump_ms
        instance.wall_ms, instance.drift_ppm = wall_ms, drift_ppm
        layout.set_clock(self.layout.clock(node), wall_ms, instance.jumped_ms, drift_ppm)

    # -- afterwards -----------------------------------------------------------------------------

    def log_path(self, node: int) -> Path:
        return self.layout.log(node)

    def collect(self, target: Path) -> list[int]:
        for node in sorted(self._instances):
            copy_artifacts(self.layout, node, target / str(node))
        return sorted(self._instances)


def _outcome(work: Callable, item: object) -> BackendError | None:
    try:
        work(item)
    except BackendError as error:
        return error
    return None


@contextlib.contextmanager
def _problems(problems: list[str]) -> Iterator[None]:
    """Add an error of the body to ``problems`` instead of raising it, so that healing continues
    with the next step."""
    try:
        yield
    except (BackendError, OSError) as error:
        problems.append(str(error))
