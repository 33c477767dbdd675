"""A cluster of real nodes that can be hurt: what workloads and nemeses see of a backend.

Contract.  A backend owns one cluster: node ids from 1, their disks, their network.  Every method
blocks until what it says is so, may be called from any thread (calls that concern one node wait for
each other), and raises ``BackendError`` with one sentence when it cannot be done here and now.
Nothing of a backend outlives it: ``close`` takes away processes, containers, networks, mounts and
files outside ``directory``; when the harness is killed a watchdog does the same, and the next
harness clears what even the watchdog left.

A fault is in force from the method that begins it to the one that ends it, across restarts of the
node.  Faults of different kinds compose; beginning one anew replaces its parameters.  ``heal_all``
ends all of them, whatever state they are in, and has every member node run: it may be called twice,
and in the middle of anything.

What cannot be done on this machine (no root, no engine, no such kernel) is not in ``kinds``, and
``left_out`` says why: a run names it in its report, and never counts it as survived.

Theory.  Clients are outside the cluster and a place in the network like any node: ``CLIENTS``.  A
link is one direction, and what acts on it acts at its receiving end, in the node's network
namespace (for links to ``CLIENTS`` at the node that sends).  A *grudge* is a set of cut links.
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
PAUSE = "pause"  # nothing runs, nothing is said, connections stay
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
PLACEMENT = "placement"  # partitions go on in other groups
CLOCK = "clock"  # the node's clocks jump
KINDS = (KILL, STOP, PAUSE, PARTITION, LOSS, DELAY, RESET, POWER_LOSS, SLOW_DISK, HUNG_DISK,
         FULL_DISK, FAILED_DISK, BIT_ROT, MEMBERSHIP, LEADERSHIP, PLACEMENT, CLOCK)

#: The place of all clients in the network.
CLIENTS = 0

#: A cluster on a busy machine serves after this, or it never will.
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
    """What packets of a link wait: ``ms`` plus or minus ``jitter_ms``, each drawn by itself, so
    that they overtake each other when ``reorder``; otherwise they stay in order."""

    ms: float
    jitter_ms: float = 0.0
    reorder: bool = False


class Ending(NamedTuple):
    """A process of a node that ended."""

    node: int
    status: int  # of the process; negative: the signal
    wanted: bool  # the backend ended it; otherwise the node ended by itself
    #: Kinds of fault that had begun on this node's disk since its process started, or were on then.
    disk_faults: frozenset[str] = frozenset()


#: A table of node.toml: {"storage": {"durability": "relaxed"}}.
Settings = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True)
class ClusterSpec:
    """What cluster is wanted."""

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


class Backend(abc.ABC):
    """One cluster; used as a context manager: ``up`` is the caller's, ``close`` comes by itself."""

    #: "process" or "docker".
    name: str
    #: Where node-N/ directories, logs and the like are; given by the caller and left behind.
    directory: Path
    spec: ClusterSpec
    #: Kinds of fault that this backend can cause on this machine.
    kinds: frozenset[str]
    #: Kind -> one sentence why not; ``kinds`` and this have all of ``KINDS``.
    left_out: Mapping[str, str]
    #: Versions of what is underneath (engine, kernel, image), for the report.
    versions: Mapping[str, str]

    def __enter__(self) -> Backend:
        return self

    def __exit__(self, *_why: object) -> None:
        self.close()

    # -- the cluster ----------------------------------------------------------------------------

    @abc.abstractmethod
    def up(self, timeout_s: float = UP_S) -> None:
        """Makes everything, starts every node, returns when every group has a leader."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends every process and takes away all that is not below ``directory``.  Idempotent."""

    @abc.abstractmethod
    def heal_all(self) -> None:
        """Ends every fault, starts every member node that does not run.  Idempotent; does not wait
        until nodes have caught up (``await_whole``)."""

    @abc.abstractmethod
    def await_whole(self, timeout_s: float = UP_S) -> None:
        """Waits until every member says that it is ready: it runs and its replicas have caught up.
        Raises ``BackendError`` that says what is missing."""

    @abc.abstractmethod
    def damaged_replicas(self, node: int) -> int:
        """How many replicas of the node are damaged, or in doubt, and do not count, as it says
        itself; 0 when it says nothing."""

    @abc.abstractmethod
    def nodes(self) -> list[int]:
        """Ids of the member nodes, running or not."""

    @abc.abstractmethod
    def address(self, node: int) -> str:
        """Where clients reach a node, ``host:port``."""

    def servers(self, *nodes: int) -> list[str]:
        """Client addresses of these nodes, or of all members."""
        return [self.address(node) for node in nodes or self.nodes()]

    # -- processes ------------------------------------------------------------------------------

    @abc.abstractmethod
    def start(self, node: int, timeout_s: float = UP_S) -> None:
        """Starts a node that does not run and waits until it answers clients (from where the
        network allows it: with the node cut off, until it says in its log that it is ready).  A
        node that runs is left alone."""

    @abc.abstractmethod
    def kill(self, node: int) -> None:
        """SIGKILL, of a paused one as well; returns when the process is gone.  A hung disk holds
        it until the disk is thawed: then this returns at once, and ``start`` waits for its end."""

    @abc.abstractmethod
    def stop(self, node: int, timeout_s: float = STOP_S) -> None:
        """SIGTERM; killed when it has not ended after ``timeout_s``."""

    @abc.abstractmethod
    def pause(self, node: int) -> None:
        """Nothing of the node runs until ``resume``."""

    @abc.abstractmethod
    def resume(self, node: int) -> None:
        """Goes on; nothing when it is not paused or does not run."""

    @abc.abstractmethod
    def is_running(self, node: int) -> bool:
        """Whether its process lives, paused or not."""

    @abc.abstractmethod
    def endings(self) -> list[Ending]:
        """Every end of a node's process so far, in order of discovery.  A node that ended by itself
        did so for a reason that is in its log: EIO (status 4), or a bug."""

    # -- members --------------------------------------------------------------------------------

    @abc.abstractmethod
    def add_node(self, timeout_s: float = UP_S) -> int:
        """A new node joins the running cluster (``multiraft node init --join``), starts, answers;
        returns its id.  It holds no replica of the pool's groups until some are moved to it."""

    @abc.abstractmethod
    def remove_node(self, node: int, timeout_s: float = UP_S) -> None:
        """``multiraft node remove``, then its process is ended.  Raises ``BackendError`` when the
        cluster refuses because there are replicas left, or when no answer came: then the removal
        may have been decided, and the node is taken for removed once it ends saying so.  Its files
        stay."""

    @abc.abstractmethod
    def try_removed(self, timeout_s: float = UP_S) -> list[int]:
        """Starts every removed node again with the files it has, as whoever did not hear of its
        removal would; returns their ids.  Raises ``BackendError`` when one of them does not end by
        itself, refused; that one is killed."""

    @abc.abstractmethod
    def command(self, *arguments: str, timeout_s: float = UP_S) -> str:
        """Runs ``multiraft ARGUMENTS --servers ...`` as an operator would, from the place of the
        clients; its standard output.  Raises ``BackendError`` with its standard error."""

    # -- network --------------------------------------------------------------------------------

    @abc.abstractmethod
    def cut(self, links: Collection[Link]) -> None:
        """Drops every packet of these links; replaces what was cut before; () heals."""

    @abc.abstractmethod
    def lose(self, links: Collection[Link], probability: float) -> None:
        """Drops packets of these links at random; replaces the loss before; 0 or () heals."""

    @abc.abstractmethod
    def delay(self, links: Collection[Link], delay: Delay | None) -> None:
        """Holds back packets of these links; replaces the delay before; None or () heals."""

    @abc.abstractmethod
    def reset(self, links: Collection[Link]) -> None:
        """Answers every TCP packet of these links with RST, so that connections end at once and new
        ones are refused; replaces; () heals."""

    def heal_network(self) -> None:
        """No link is cut, lossy, slow or reset."""
        self.cut(())
        self.lose((), 0.0)
        self.delay((), None)
        self.reset(())

    # -- disks ----------------------------------------------------------------------------------

    @abc.abstractmethod
    def power_loss(self, nodes: Collection[int]) -> None:
        """At one moment these nodes are killed and everything that was not synced is gone.  They
        stay down, their disks are mounted again; ``start`` is the caller's."""

    @abc.abstractmethod
    def slow_disk(self, node: int, bytes_per_s: int, operations_per_s: int) -> None:
        """Bounds what the disk does per second, 0 = unbounded; (0, 0) heals."""

    @abc.abstractmethod
    def freeze_disk(self, node: int) -> None:
        """Writes and syncs do not return until ``thaw_disk``; not even SIGKILL ends who waits."""

    @abc.abstractmethod
    def thaw_disk(self, node: int) -> None:
        """Heals ``freeze_disk``; nothing when it is not frozen."""

    @abc.abstractmethod
    def fill_disk(self, node: int, leave_bytes: int = 0) -> None:
        """A foreign file takes what is free, all but ``leave_bytes``."""

    @abc.abstractmethod
    def free_disk(self, node: int) -> None:
        """Removes that file."""

    @abc.abstractmethod
    def fail_disk(self, node: int) -> None:
        """From now on writes and syncs fail with EIO, and what was not synced is gone.  The node is
        expected to end by itself."""

    @abc.abstractmethod
    def mend_disk(self, node: int) -> None:
        """Heals ``fail_disk``: kills what still runs, mounts the disk again; ``start`` is the
        caller's."""

    @abc.abstractmethod
    def data_directory(self, node: int) -> Path:
        """The node's data directory as this process sees it: to flip bits, to copy, to inspect."""

    # -- clocks ---------------------------------------------------------------------------------

    @abc.abstractmethod
    def set_clock(self, node: int, wall_ms: int = 0, jump_ms: int = 0,
                  drift_ppm: int = 0) -> None:
        """From now on, and over restarts, the node's wall clock is off by ``wall_ms`` and its
        monotonic clock gains ``drift_ppm`` microseconds a second; the monotonic clock jumps ahead
        by ``jump_ms`` (at least 0) now, and never goes back (``chaos.launcher``)."""

    # -- afterwards -----------------------------------------------------------------------------

    @abc.abstractmethod
    def log_path(self, node: int) -> Path:
        """What the node has written to standard output and error, of all its lives; grows while it
        runs."""

    @abc.abstractmethod
    def collect(self, target: Path) -> list[int]:
        """Copies into ``target``/N, of every node that there ever was: ``log``, ``node.toml``, and
        ``data`` (nodes should be stopped: then it is exact).  Returns the ids."""


def all_links(nodes: Collection[int], others: Collection[int]) -> frozenset[Link]:
    """Both directions between every one of ``nodes`` and every one of ``others``."""
    return frozenset(link for node in nodes for other in others if node != other
                     for link in (Link(node, other), Link(other, node)))
