"""Interfaces between the parts of a simulated run, for parts that must not import each other.

Contract.  ``NodePort`` is a node as its peers use it, ``NodeLife`` as the parts of its boots use
it; ``ClusterPort`` is the run as nodes use it, ``SimulationPort`` as faults and topics use it.
``node.node.SimulatedNode`` and ``simulation.Simulation`` have these attributes without inheriting
from a protocol.  This module imports no module that uses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from chaos.simulator.disk.corruption import FaultAtlas
    from chaos.simulator.env.event_queue import EventQueue
    from chaos.simulator.env.network import SimulatedNetwork
    from chaos.simulator.env.parameters import Parameters
    from chaos.simulator.env.trace import Trace
    from chaos.simulator.node.machine.simulated_disk import SimulatedDisk
    from chaos.simulator.oracle.command_oracle import CommandOracle
    from chaos.simulator.oracle.observer import StateChecker
    from chaos.simulator.oracle.operations import AppendOperation, ReadOperation
    from multiraft.liveness import peer_identity


class PeerIdentity(Protocol):
    """Identity of one node's directory, and of the boots of its peers that it has admitted."""

    is_copy: bool  # its directory was replaced by an older copy

    def remembers(self, peer: int) -> peer_identity.BootId:
        """Return the boot id with which a peer was admitted here last; ``NO_BOOT_ID`` = it never
        was."""

    def check_hello(self, said: peer_identity.PeerHello) -> peer_identity.Rejection | None:
        """Return why this node refuses a hello; None = admitted, and its boot id is remembered.
        Raises ``Violation`` when it would admit an older copy."""


class NodePort(Protocol):
    """One node, as its peers use it."""

    node: int
    is_up: bool  # it has recovered and accepts connections
    is_whole: bool  # no damage is left
    peers: PeerIdentity
    disk: SimulatedDisk

    def peer_up(self, peer: int) -> None:
        """Schedule a connection to a peer that has started; none is made if the peer is down by
        then or refuses this node."""

    def peer_down(self, peer: int) -> None:
        """Schedule the end of the connection to a peer whose process has ended."""

    def receive_peer(self, sender: int, frame: tuple) -> None:
        """Queue a frame with messages of consensus for the next round; dropped while the process is
        down, taken after ``resume`` while it is paused."""

    def receive_bulk(self, sender: int, frame: tuple) -> None:
        """Queue a frame with requests and replies of the bulk connection for the next round, as
        ``receive_peer``."""

    def receive_liveness(self, sender: int, frame: tuple) -> None:
        """Receive a frame of the liveness thread, which answers at once, without the round loop. A
        paused node answers after ``resume``, one that is down never."""


class NodeLife(Protocol):
    """The life of a node, as the parts of its boots use it."""

    def crash(self, power: bool) -> None:
        """End this boot and tell the peers; no-op when the process is down. With ``power`` the page
        cache is lost, if the node may lose it."""

    def restart_soon(self) -> None:
        """Start the process after a while, as its supervisor would."""

    def stopped(self) -> None:
        """End the process, which has stopped in order, and schedule its start."""

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start. Raises errors that no fault
        injects, and ``Violation`` when space was lacking although the reserve was not released."""

    def identity_lost(self) -> None:
        """End this node, which a new one replaces."""

    def keep_copy(self) -> None:
        """Let the nemesis copy the disk before the store is opened."""


class HistoryPort(Protocol):
    """Recorder of client operations."""

    def invoke(self, append: AppendOperation) -> None:
        """Record an append that is sent for the first time."""

    def complete(self, append: AppendOperation, kind: str, error: str = "") -> None:
        """Record the outcome ``kind`` (``OK``, ``FAIL`` or ``INFO``) of an append that was invoked;
        ``error``: its name unless ``OK``."""

    def read(self, read: ReadOperation) -> None:
        """Record a read that a node serves: invocation and completion at one time."""

    def refused(self, reader: int, partition: int, offset: int) -> None:
        """Record a read that a node refuses, because the offset does not exist."""

    def log_start(self, partition: int, log_start: int) -> None:
        """Record a log start that is committed."""

    def topic_asked(self, name: str, ends: bool) -> int:
        """Record the request for a topic, or with ``ends`` for its deletion; return the number of
        the operation, for ``topic_done``."""

    def topic_done(self, operation: int, name: str, incarnation: int, ends: bool,
                   partitions: Sequence[int]) -> None:
        """Record that the request ``operation`` is committed; ``partitions`` of the topic begin, or
        with ``ends`` end, with it."""


class TopicsPort(Protocol):
    """Topics as clients know them, and their operator as faults use it."""

    seen_index: int  # the newest metadata that clients know

    def some_partition(self) -> int:
        """Return a random partition of a topic that clients know. 0 = the caller takes one of its
        own partitions this time; always when no topic is known."""

    def group_at(self, partition: int, offset: int) -> int:
        """Return the group that holds an offset of a topic's partition, as far as clients know; 0 =
        unknown."""

    def record_gone(self, node: int, partition: int) -> None:
        """Record that a node replied definitely that a partition does not exist: clients use it no
        longer. Raises ``Violation`` unless its deletion is committed."""

    def create(self) -> bool:
        """Request one more topic and return True; False when there is the maximum of them."""

    def delete(self) -> str:
        """Request the deletion of a random topic and return its name; "" = there is no topic."""

    def recreate(self) -> bool:
        """Request the deletion of a random topic and the creation of another one of its name at
        once. Return False if there is no topic, else True."""

    def alter_retention(self) -> bool:
        """Request other limits of retention of a random topic, or of the cluster, and return
        True."""


class LateReaderPort(Protocol):
    """Client that reads deleted topics."""

    def start(self) -> None:
        """Begin to read."""

    def stop(self) -> None:
        """Read no more."""


class DeletionsPort(Protocol):
    """Client that deletes records."""

    def strike(self) -> None:
        """Send some requests, each about some partitions of one group."""


class WorkloadPort(Protocol):
    """Clients of a run."""

    history: HistoryPort | None
    topics: TopicsPort | None

    def receive(self, sender: int, frame: tuple) -> None:
        """Receive the replies in a frame of a node; those to attempts that have timed out are
        ignored."""

    def was_refused(self, node: int, reader: int, partition: int, offset: int,
                    log_start: int) -> None:
        """Record that ``node`` refuses a fetch because the offset does not exist, have the state
        checker check it, and continue the reader at the log start. Raises ``Violation``."""

    def was_read(self, group: int, read: ReadOperation) -> None:
        """Record a fetch that a node serves, have the state checker check it, and advance the
        reader's position. Raises ``Violation``."""

    def replace_node(self, old: int, new: int) -> None:
        """Replace node ``old`` by ``new`` in the clients' knowledge of the voters of every
        group."""

    def locate(self, places: Iterable[tuple[int, int]]) -> None:
        """Update the clients' placement with (partition, group) pairs."""


class ReplacementsPort(Protocol):
    """Nodes that lose their directory, and their replacements."""

    is_done: bool  # every lost node is replaced and removed

    def may_wipe(self, node: NodePort) -> bool:
        """True if the cluster must survive the loss of this node's disk now; False while another
        node is being replaced."""

    def wipe(self, node: NodePort, put_back: Callable[[], None] | None = None) -> None:
        """End a node and its disk, add a new one under an unused id, and schedule its start.
        ``put_back`` replaces the disk by an older copy instead of emptying it. ``may_wipe`` must
        allow it."""


class CopiesPort(Protocol):
    """Older copies of data directories."""

    def keep(self, node: NodePort) -> None:
        """Copy the disk of a node that is about to start, and keep the last few copies. No-op when
        its identity file is damaged, or it has never started."""

    def strike(self) -> bool:
        """Put the directory of a random node back for good, or start an older copy beside it.
        Return False if there is no copy to use, else True."""


class PartialHealPort(Protocol):
    """Nodes that are healed last."""

    nodes: list[int]

    def keeps_off(self, node: int) -> bool:
        """True if the node stays off for now and must not be started."""


class NemesisPort(Protocol):
    """Faults of a run, as nodes see them."""

    def count_step(self, node: NodePort, what: str) -> None:
        """Count a step ``what`` of a move that ``node`` is about to take; an armed crash may strike
        the node soon after it."""


class ClusterPort(Protocol):
    """One simulated run, as its nodes use it."""

    queue: EventQueue
    trace: Trace
    parameters: Parameters
    network: SimulatedNetwork
    state_checker: StateChecker
    faults: Counter[str]
    event_counts: Counter[str]  # events of consensus and recovery, by kind
    nodes: dict[int, Any]  # ``SimulatedNode``: faults also use what ``NodePort`` leaves out
    everyone: dict[int, Any]  # the same, with nodes that lost their directory
    oracle: CommandOracle
    atlas: FaultAtlas
    workload: WorkloadPort
    nemesis: NemesisPort
    replacements: ReplacementsPort
    restored_copies: CopiesPort
    minority: PartialHealPort


class SimulationPort(ClusterPort, Protocol):
    """One simulated run, as faults and topics use it."""

    topics: TopicsPort
    deletions: DeletionsPort
    voters: dict[int, tuple[int, ...]]  # group -> nodes that it began with

    def add_node(self, number: int) -> Any:
        """Add a node without replicas under this number, and return it, not started."""

    def run_for(self, duration_ms: int) -> None:
        """Run all events of the next ``duration_ms`` of virtual time. Raises ``Violation`` and
        whatever else a failing event raises."""
