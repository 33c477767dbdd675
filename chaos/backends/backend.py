"""Interface of a backend: a cluster of real nodes and the faults that can be injected into it.

Contract.  A backend owns one cluster: node ids from 1, their disks, their network.  Every method
blocks until its effect holds, may be called from any thread (calls that concern one node wait for
each other), and raises ``BackendError`` with one sentence when that is impossible at the moment.
Nothing of a backend outlives it: ``close`` takes away processes, containers, networks, mounts and
files outside ``directory``; when the harness is killed a watchdog does the same, and the next
harness clears what the watchdog left.

A fault is in force from the method that begins it to the one that ends it, across restarts of the
node.  Faults of different kinds compose; beginning one again replaces its parameters.  ``heal_all``
ends all of them, whatever state they are in, and has every member node run: it may be called twice,
and during any other call.

A fault that this machine cannot inject (no root, no engine, no such kernel) is not in ``kinds``,
and ``left_out`` gives the reason: a run names that fault in its report, and never counts it as
survived.

Theory.  Clients are outside the cluster and have a place in the network as a node has: ``CLIENTS``.
A link is one direction, and its faults act at its receiving end, in the node's network namespace
(for links to ``CLIENTS`` at the node that sends).  A *grudge* is a set of cut links.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

#: Kinds of fault, as they stand in a history and in reports.
KILL = "kill"  # SIGKILL
STOP = "stop"  # SIGTERM: leadership is handed over, then the process ends
PAUSE = "pause"  # no code of the node runs, it sends nothing, its connections stay open
PARTITION = "partition"  # packets of some links are dropped
LOSS = "loss"  # of single packets
DELAY = "delay"  # and reordering, of single packets
RESET = "reset"  # TCP connections end with RST
POWER_LOSS = "power-loss"  # killed, and what was not synced is gone
SLOW_DISK = "slow-disk"  # bytes and operations per second
HUNG_DISK = "hung-disk"  # writes and syncs do not return
FULL_DISK = "full-disk"
FAILED_DISK = "failed-disk"  # writes and syncs return EIO
BIT_ROT = "bit-rot"  # flipped bits in files of a node
MEMBERSHIP = "membership"  # nodes come and go, replicas move
LEADERSHIP = "leadership"  # transfers
PLACEMENT = "placement"  # partitions are moved to other groups
CLOCK = "clock"  # the node's clocks jump
KINDS = (KILL, STOP, PAUSE, PARTITION, LOSS, DELAY, RESET, POWER_LOSS, SLOW_DISK, HUNG_DISK,
         FULL_DISK, FAILED_DISK, BIT_ROT, MEMBERSHIP, LEADERSHIP, PLACEMENT, CLOCK)

#: The place of all clients in the network.
CLIENTS = 0

#: A cluster on a busy machine serves within this time.
UP_S = 120.0
#: SIGTERM to the end: leadership is handed over, a transfer timeout per group at worst.
STOP_S = 30.0


class BackendError(Exception):
    """It cannot be done; one sentence says what and why."""


class Link(NamedTuple):
    """Packets from ``source`` to ``target``: node ids, or ``CLIENTS``."""

    source: int
    target: int


class Delay(NamedTuple):
    """Delay of the packets of a link: ``ms`` plus or minus ``jitter_ms``, drawn per packet.  With
    ``reorder`` packets overtake each other; otherwise they stay in order."""

    ms: float
    jitter_ms: float = 0.0
    reorder: bool = False


class NodeExit(NamedTuple):
    """End of a node's process."""

    node: int
    status: int  # of the process; negative: the signal
    requested: bool  # the backend ended it; otherwise the node ended by itself
    #: Kinds of fault that had begun on this node's disk since its process started, or were on then.
    disk_faults: frozenset[str] = frozenset()


#: A table of node.toml: {"storage": {"durability": "relaxed"}}.
Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class ClusterSpec:
    """Description of the cluster to create."""

    nodes: int = 3
    groups: int = 16
    replication_factor: int = 3
    durability: str = "fsync"  # or "relaxed"
    #: Tables of node.toml for every node, and for single ones; the latter win.
    settings: Settings = field(default_factory=dict)
    node_settings: Mapping[int, Settings] = field(default_factory=dict)
    #: Size of each node's own disk, where nodes have one.
    disk_bytes: int = 1 << 30
    #: Planted bugs (``chaos.planted``) that the launcher applies to every node before it starts.
    planted: Sequence[str] = ()
    #: Sizes of files, fields of ``StorageConfig``, that the launcher sets in every node.
    file_sizes: Mapping[str, int] = field(default_factory=dict)


class Backend(abc.ABC):
    """One cluster.  Used as a context manager: the caller calls ``up``, leaving the block calls
    ``close``."""

    #: "process" or "docker".
    name: str
    #: Where node-N/ directories, logs and the like are; given by the caller and left behind.
    directory: Path
    spec: ClusterSpec
    #: Kinds of fault that this backend can cause on this machine.
    kinds: frozenset[str]
    #: Kind -> one sentence why not; ``kinds`` and this have all of ``KINDS``.
    left_out: Mapping[str, str]
    #: Versions of engine, kernel and image, for the report.
    versions: Mapping[str, str]

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    # -- the cluster ----------------------------------------------------------------------------

    @abc.abstractmethod
    def up(self, timeout_s: float = UP_S) -> None:
        """Create the cluster and start every node; return when every group has a leader. Raises
        ``BackendError`` when that takes longer than ``timeout_s``."""

    @abc.abstractmethod
    def close(self) -> None:
        """End every process and remove everything that is not below ``directory``.  Idempotent."""

    @abc.abstractmethod
    def heal_all(self) -> None:
        """End every fault, start every member node that does not run, and wait until it answers;
        not until nodes have caught up (``await_whole``). Idempotent.

        Raises ``BackendError`` with all problems, after everything else is healed.
        """

    @abc.abstractmethod
    def await_whole(self, timeout_s: float = UP_S) -> None:
        """Wait until every member reports that it is ready: it runs and its replicas have caught
        up.  Raises ``BackendError`` for the first one that is not after ``timeout_s``, or that has
        ended by itself."""

    @abc.abstractmethod
    def damaged_replicas(self, node: int) -> int:
        """Return the number of the node's replicas that are quarantined or recovering their head,
        by the node's own status; 0 when it does not answer."""

    @abc.abstractmethod
    def nodes(self) -> list[int]:
        """Return the ids of the member nodes, running or not."""

    @abc.abstractmethod
    def address(self, node: int) -> str:
        """Return the address of a node for clients, ``host:port``."""

    @abc.abstractmethod
    def kafka_address(self, node: int) -> str:
        """Return the address of a node for Kafka's clients, ``host:port``."""

    def servers(self, *nodes: int) -> list[str]:
        """Return the client addresses of these nodes, or of all members."""
        return [self.address(node) for node in nodes or self.nodes()]

    # -- processes ------------------------------------------------------------------------------

    @abc.abstractmethod
    def start(self, node: int, timeout_s: float = UP_S) -> None:
        """Start a node that does not run, and wait until it answers clients.  Where the network
        cuts the node off, wait until its log says that it is ready.  A running or removed node is
        left alone.

        Raises ``BackendError`` when the node ends by itself, or is not up after ``timeout_s``.
        """

    @abc.abstractmethod
    def kill(self, node: int) -> None:
        """Send SIGKILL, also to a paused node, and wait until the process is gone; does nothing
        when none lives.  A hung disk holds the process until the disk is thawed: then this returns
        at once, and ``start`` waits for its end."""

    @abc.abstractmethod
    def stop(self, node: int, timeout_s: float = STOP_S) -> None:
        """Resume a node, send it SIGTERM and wait for its end; kill it when it has not ended after
        ``timeout_s``."""

    @abc.abstractmethod
    def pause(self, node: int) -> None:
        """Pause a node: none of its code runs until ``resume``. Does nothing when the node is
        paused already or does not run."""

    @abc.abstractmethod
    def resume(self, node: int) -> None:
        """Resume a paused node; does nothing when the node is not paused or does not run."""

    @abc.abstractmethod
    def is_running(self, node: int) -> bool:
        """True if the node's process lives, paused or not; False also for an id that no node
        has."""

    @abc.abstractmethod
    def exits(self) -> list[NodeExit]:
        """Return every end of a node's process so far, by the backend or by itself, in order of
        discovery.  A node that ended by itself has the reason in its log: EIO (status 4), or a
        bug."""

    # -- members --------------------------------------------------------------------------------

    @abc.abstractmethod
    def add_node(self, timeout_s: float = UP_S) -> int:
        """Join a new node to the running cluster (``multiraft node init --join``), start it and
        wait until it answers; return its id.  It holds no replica of the pool's groups until some
        are moved to it."""

    @abc.abstractmethod
    def remove_node(self, node: int, timeout_s: float = UP_S) -> None:
        """Remove a node by ``multiraft node remove``, then end its process.  Raises
        ``BackendError`` when the cluster refuses because there are replicas left, or when no answer
        came: then the removal may have been decided, and the node counts as removed once it ends
        with the message that it was removed.  Its files stay."""

    @abc.abstractmethod
    def try_removed(self, timeout_s: float = UP_S) -> list[int]:
        """Start every removed node again with its files, as an operator would who did not learn of
        its removal; return their ids.  Raises ``BackendError`` when one of them is not refused and
        has not ended by itself ``timeout_s`` after it was ready; that one is killed."""

    @abc.abstractmethod
    def command(self, *arguments: str, timeout_s: float = UP_S) -> str:
        """Run ``multiraft ARGUMENTS --servers ...`` as an operator would, from the place of the
        clients; return its standard output.  Raises ``BackendError`` with its standard error when
        it fails, and when it has not ended after ``timeout_s``."""

    # -- network --------------------------------------------------------------------------------

    @abc.abstractmethod
    def cut(self, links: Collection[Link]) -> None:
        """Drop every packet of these links; replaces the previous cut; () heals."""

    @abc.abstractmethod
    def lose(self, links: Collection[Link], probability: float) -> None:
        """Drop each packet of these links with this probability; replaces the previous loss; 0 or
        () heals."""

    @abc.abstractmethod
    def delay(self, links: Collection[Link], delay: Delay | None) -> None:
        """Delay packets of these links; replaces the previous delay; None or () heals."""

    @abc.abstractmethod
    def reset(self, links: Collection[Link]) -> None:
        """Answer every TCP packet of these links with RST, so that connections end at once and new
        ones are refused; replaces the previous links; () heals."""

    def heal_network(self) -> None:
        """Heal all links: none is cut, lossy, delayed or reset."""
        self.cut(())
        self.lose((), 0.0)
        self.delay((), None)
        self.reset(())

    # -- disks ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def power_loss(self, nodes: Collection[int]) -> None:
        """Kill these nodes at one moment and discard everything that was not synced.  The nodes
        stay down and their disks are mounted again; the caller starts them."""

    @abc.abstractmethod
    def slow_disk(self, node: int, bytes_per_s: int, operations_per_s: int) -> None:
        """Bound the bytes and operations of the disk per second, also after restarts; 0 =
        unbounded, (0, 0) heals."""

    @abc.abstractmethod
    def freeze_disk(self, node: int) -> None:
        """Block writes and syncs until ``thaw_disk``; not even SIGKILL ends a process that waits
        for one."""

    @abc.abstractmethod
    def thaw_disk(self, node: int) -> None:
        """Heal ``freeze_disk``; does nothing when the disk is not frozen."""

    @abc.abstractmethod
    def fill_disk(self, node: int, leave_bytes: int = 0) -> None:
        """Fill the node's disk with a file that is not the node's, until ``leave_bytes`` are
        free."""

    @abc.abstractmethod
    def free_disk(self, node: int) -> None:
        """Remove the file that ``fill_disk`` created; does nothing when there is none."""

    @abc.abstractmethod
    def fail_disk(self, node: int) -> None:
        """Fail writes and syncs with EIO from now on; unsynced data is lost.  The node is expected
        to end by itself."""

    @abc.abstractmethod
    def mend_disk(self, node: int) -> None:
        """Heal ``fail_disk``: kill the node if it still runs and mount the disk again; the caller
        starts the node. Does nothing when the disk has not failed."""

    @abc.abstractmethod
    def data_directory(self, node: int) -> Path:
        """Return the node's data directory as this process sees it: to flip bits, to copy, to
        inspect."""

    # -- clocks ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def set_clock(self, node: int, wall_ms: int = 0, jump_ms: int = 0,
                  drift_ppm: int = 0) -> None:
        """Set the node's clocks from now on, over restarts: the wall clock is off by ``wall_ms``
        and the monotonic clock gains ``drift_ppm`` microseconds a second.  The monotonic clock
        jumps ahead by ``jump_ms`` (at least 0) now, and never goes back (``chaos.launcher``).

        The defaults end offset and drift; earlier jumps stay.
        """

    # -- afterwards -----------------------------------------------------------------------------

    @abc.abstractmethod
    def log_path(self, node: int) -> Path:
        """Return the file with standard output and error of all starts of the node; it grows while
        the node runs."""

    @abc.abstractmethod
    def collect(self, target: Path) -> list[int]:
        """Copy ``log``, ``node.toml`` and ``data`` of every node that ever existed into
        ``target``/N, and return the ids.  ``data`` is exact only for stopped nodes."""


def all_links(nodes: Collection[int], others: Collection[int]) -> frozenset[Link]:
    """Return both directions between every one of ``nodes`` and every one of ``others``, without
    links from a node to itself."""
    return frozenset(link for node in nodes for other in others if node != other
                     for link in (Link(node, other), Link(other, node)))
