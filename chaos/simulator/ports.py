"""Interfaces between the parts of a simulated run, for parts that must not import each other.

Contract.  ``NodePort`` is the node as its own parts and its peers use it; ``ClusterPort`` is the
run as nodes, faults and topics use it.  ``node.node.SimulatedNode`` and ``simulation.Simulation``
have these attributes without inheriting from a protocol.  This module imports no module that uses
it.

The classes that ``SimulatedNode`` inherits from are parts of one object: each of them also uses
attributes and methods that another part sets or defines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from chaos.simulator.disk.corruption import FaultAtlas
    from chaos.simulator.env.clock import SkewedClock
    from chaos.simulator.env.event_queue import EventQueue
    from chaos.simulator.env.network import SimulatedNetwork
    from chaos.simulator.env.parameters import Parameters
    from chaos.simulator.env.trace import Trace
    from chaos.simulator.oracle.command_oracle import CommandOracle
    from chaos.simulator.oracle.metadata_oracle import MetadataState
    from chaos.simulator.oracle.observer import StateChecker
    from chaos.simulator.oracle.operations import AppendOperation, ReadOperation
    from multiraft.liveness import peer_identity
    from multiraft.liveness.store_liveness import LeaseEvent
    from multiraft.storage.disk_space import DiskSpaceGuard
    from multiraft.types import Configuration


class NodePort(Protocol):
    """One node over all its boots."""

    node: int
    alive: bool
    paused: bool
    clock: SkewedClock
    disk_hangs: bool
    is_copy: bool  # its directory was replaced by an older copy
    incarnation: int  # of its directory, after the first open
    metadata: MetadataState
    now_ms: int
    is_up: bool  # it has recovered and accepts connections
    is_whole: bool  # no damage is left
    has_recovered: bool  # whole, and started since its latest damage
    faulty: bool  # during the phase of faults
    space_guard: DiskSpaceGuard
    damaged_voters: int
    disk_is_stalled: bool
    disk_is_full: bool

    # ---- process ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, which recovers a little later and is up then, unless its disk, its
        identity or its peers refuse it. No-op when it runs already."""

    def crash(self, power: bool) -> None:
        """End this boot and tell the peers; no-op when the process is down. With ``power`` the page
        cache is lost, if the node may lose it."""

    def later(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us`` of virtual time, in this boot only; a paused node
        runs it after it resumes."""

    def request_round(self) -> None:
        """Schedule a round of the loop a little later, unless one is scheduled."""

    # ---- disk worker -----------------------------------------------------------------------

    def after_disk(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us``, in this boot only, also while the process is
        paused."""

    def disk_began(self, latency_us: int) -> None:
        """Handle the begin of a disk operation that takes ``latency_us``: an armed action of the
        nemesis is scheduled within it."""

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start. Raises errors that no fault
        injects, and ``Violation`` when space was lacking although the reserve was not released."""

    def report_durable(self, flights: Sequence[Any]) -> None:
        """Report to the state checker that the writes of ``flights`` (``disk_worker.Flight``) are
        durable now."""

    def wrote(self, flights: Sequence[Any]) -> None:
        """Handle the completion of writes, in the process: advance durable indexes, then send the
        messages and answers that waited."""

    def commits(self) -> dict[int, int]:
        """Return group -> commit index, of each group with a replica on this node."""

    def extra(self) -> list:
        """Return the state of the metadata group as a checkpoint holds it."""

    def compact(self, applied: int) -> None:
        """Compact the commands of the metadata group up to ``applied``, which a checkpoint holds,
        but for the newest ones. No-op when this replica has not applied so many, or is gone."""

    # ---- liveness thread -------------------------------------------------------------------

    def probe_disk(self) -> None:
        """Begin to write the probe block if it is due, which shows a hung disk; no-op while the
        node is down."""

    def send_liveness(self, peer: int, item: tuple) -> None:
        """Send one item, a heartbeat or its response, to a peer as a frame of the liveness
        thread."""

    def deliver_leases(self, events: list[LeaseEvent]) -> None:
        """Queue the findings of the liveness thread for the next round, and request that round."""

    # ---- peers -----------------------------------------------------------------------------

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

    def check_hello(self, said: peer_identity.PeerHello) -> peer_identity.Rejection | None:
        """Return why this node refuses a hello; None = admitted, and its boot id is remembered.
        Raises ``Violation`` when it would admit an older copy."""

    def remembers(self, peer: int) -> peer_identity.BootId:
        """Return the boot id with which a peer was admitted here last; ``NO_BOOT_ID`` = it never
        was."""

    # ---- moves -----------------------------------------------------------------------------

    def trace_line(self, kind: str, text: str) -> None:
        """Write a line about this node to the trace."""

    def count(self, kind: str) -> None:
        """Count an event of this kind for the coverage of the run."""

    def report_step(self, what: str) -> None:
        """Report to the nemesis that this node is about to send a request or a command of a move:
        an armed crash may strike there."""

    def ask(self, peer: int, request: Any) -> Coroutine[Any, None, Any]:
        """Send a request to a node, this one included, and return its reply. Raises the error of
        the reply, ``LeaderUnknown`` without a connection, and ``TimedOut``."""

    def ask_leader(self, request: Any) -> Coroutine[Any, None, Any]:
        """Return the reply of the metadata group's leader. Raises ``LeaderUnknown`` when this node
        knows none, and the errors of ``ask``."""

    def propose(self, payload: bytes) -> Coroutine[Any, None, Any]:
        """Propose a command to the metadata group, and return its result when it is applied on this
        node. Raises ``NotLeader``, ``ProposalError`` and, when it may be committed or not,
        ``AmbiguousOutcome``."""

    def metadata_applied(self, index: int, timeout_s: float) -> Coroutine[Any, None, bool]:
        """Wait until the metadata up to ``index`` are applied on this node, at most ``timeout_s``;
        return True if they are."""

    def wait_applied(self, group: int, index: int,
                     timeout_s: float) -> Coroutine[Any, None, bool]:
        """Wait until the entry ``index`` of the group is applied on this node, at most
        ``timeout_s``; return True if it is."""

    def permits(self, voters: tuple[int, ...]) -> bool:
        """True if a group may get these voters: it could do without the damaged ones and those that
        stay down."""

    def members_changed(self, group: int) -> None:
        """Report the configuration that a leader on this node uses from now on to the state
        checker, which the fault atlas reads."""

    def configurations_at(self, group: int, index: int) -> list[Configuration]:
        """Return all configurations that any log of the group has had at ``index``; 0 = the initial
        one."""

    def leads(self, group: int) -> bool:
        """True if this node is up and believes that it leads the group."""

    def led_groups(self) -> list[int]:
        """Return the groups that this node, which must be up, leads."""

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node would hand ``group``, if it led the group, back to its preferred leader
        ``node``, which restarted lately."""


class HistoryPort(Protocol):
    """Recorder of client operations."""

    def invoke(self, append: AppendOperation) -> None:
        """Record an append that is sent for the first time."""

    def complete(self, append: AppendOperation, kind: str, error: str = "") -> None:
        """Record the outcome ``kind`` (``OK``, ``FAIL`` or ``INFO``) of an append that was invoked;
        ``error``: its name unless ``OK``."""

    def read(self, read: ReadOperation) -> None:
        """Record a read that a node serves: invocation and completion at one time."""

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


class WorkloadPort(Protocol):
    """Clients of a run."""

    history: HistoryPort | None
    topics: TopicsPort | None

    def receive(self, sender: int, frame: tuple) -> None:
        """Receive the replies in a frame of a node; those to attempts that have timed out are
        ignored."""

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
    """One simulated run."""

    queue: EventQueue
    trace: Trace
    parameters: Parameters
    network: SimulatedNetwork
    state_checker: StateChecker
    oracle: CommandOracle
    atlas: FaultAtlas
    workload: WorkloadPort
    topics: TopicsPort
    nemesis: NemesisPort
    replacements: ReplacementsPort
    restored_copies: CopiesPort
    minority: PartialHealPort
    faults: Counter[str]
    event_counts: Counter[str]  # events of consensus and recovery, by kind
    voters: dict[int, tuple[int, ...]]  # group -> nodes that it began with
    nodes: dict[int, Any]  # ``SimulatedNode``: faults also use what ``NodePort`` leaves out
    everyone: dict[int, Any]  # the same, with nodes that lost their directory

    def add_node(self, number: int) -> Any:
        """Add a node without replicas under this number, and return it, not started."""

    def run_for(self, duration_ms: int) -> None:
        """Run all events of the next ``duration_ms`` of virtual time. Raises ``Violation`` and
        whatever else a failing event raises."""
