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
from collections.abc import Callable, Coroutine, Sequence
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
        """Start the process, which recovers a little later. No-op when it runs already."""

    def crash(self, power: bool) -> None:
        """End this boot; no-op when the process is down. With ``power`` the page cache is lost, if
        the node may lose it."""

    def later(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` in this boot; a paused node runs it after it resumes."""

    def request_round(self) -> None:
        """Schedule a round."""

    # ---- disk worker -----------------------------------------------------------------------

    def after_disk(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` in this boot, also while the process is paused."""

    def disk_began(self, latency_us: int) -> None:
        """Handle the begin of a disk operation."""

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error."""

    def report_durable(self, flights: Sequence[Any]) -> None:
        """Report writes that are durable now."""

    def wrote(self, flights: Sequence[Any]) -> None:
        """Handle the completion of writes in the process."""

    def commits(self) -> dict[int, int]:
        """Return the commit index of each group on this node."""

    def extra(self) -> list:
        """Return the state as a checkpoint holds it."""

    def compact(self, applied: int) -> None:
        """Compact the commands up to ``applied``, which a checkpoint holds."""

    # ---- liveness thread -------------------------------------------------------------------

    def probe_disk(self) -> None:
        """Write the probe block if it is due."""

    def send_liveness(self, peer: int, item: tuple) -> None:
        """Send one frame of the liveness thread."""

    def deliver_leases(self, events: list[LeaseEvent]) -> None:
        """Queue the findings of the liveness thread for the next round."""

    # ---- peers -----------------------------------------------------------------------------

    def peer_up(self, peer: int) -> None:
        """Handle the start of a peer."""

    def peer_down(self, peer: int) -> None:
        """Handle the end of a peer's process."""

    def receive_peer(self, sender: int, frame: tuple) -> None:
        """Receive messages of consensus."""

    def receive_bulk(self, sender: int, frame: tuple) -> None:
        """Receive requests and replies of the bulk connection."""

    def receive_liveness(self, sender: int, frame: tuple) -> None:
        """Receive a frame of the liveness thread."""

    def check_hello(self, said: peer_identity.Introduction) -> peer_identity.Verdict | None:
        """Return why this node refuses a hello; None = admitted."""

    def remembers(self, peer: int) -> peer_identity.Life:
        """Return the boot id with which a peer was admitted last."""

    # ---- moves -----------------------------------------------------------------------------

    def trace_line(self, kind: str, text: str) -> None:
        """Write a line to the trace."""

    def count(self, kind: str) -> None:
        """Count an event for the coverage of the run."""

    def report_step(self, what: str) -> None:
        """Report the next step of a move, a place for a crash."""

    def ask(self, peer: int, request: Any) -> Coroutine[Any, None, Any]:
        """Return the reply of a node."""

    def ask_leader(self, request: Any) -> Coroutine[Any, None, Any]:
        """Return the reply of the metadata group's leader."""

    def propose(self, payload: bytes) -> Coroutine[Any, None, Any]:
        """Return the result of a metadata command."""

    def metadata_applied(self, index: int, timeout_s: float) -> Coroutine[Any, None, bool]:
        """True if the metadata up to ``index`` are applied in time."""

    def wait_applied(self, group: int, index: int,
                     timeout_s: float) -> Coroutine[Any, None, bool]:
        """True if the entry ``index`` of the group is applied in time."""

    def permits(self, voters: tuple[int, ...]) -> bool:
        """True if these voters could do without the damaged ones."""

    def members_changed(self, group: int) -> None:
        """Report the configuration that a leader on this node uses from now on to the state
        checker, which the fault atlas reads."""

    def configurations_at(self, group: int, index: int) -> list[Configuration]:
        """Return all configurations that any log of the group has had at ``index``."""

    def leads(self, group: int) -> bool:
        """True if this node believes that it leads the group."""

    def led_groups(self) -> list[int]:
        """Return the groups that this node leads."""

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node is about to hand a group back to ``node``."""


class HistoryPort(Protocol):
    """Recorder of client operations."""

    def invoke(self, append: AppendOperation) -> None:
        """Record an append that is sent for the first time."""

    def complete(self, append: AppendOperation, kind: str, error: str = "") -> None:
        """Record the outcome of an append."""

    def read(self, read: ReadOperation) -> None:
        """Record a read that a node serves."""

    def topic_asked(self, name: str, ends: bool) -> int:
        """Record the request for a topic or its deletion; return the operation."""

    def topic_done(self, operation: int, name: str, incarnation: int, ends: bool,
                   partitions: Sequence[int]) -> None:
        """Record that such a request is committed."""


class TopicsPort(Protocol):
    """Topics as clients know them, and their operator as faults use it."""

    seen_index: int  # the newest metadata that clients know

    def some_partition(self) -> int:
        """Return a random partition of a created topic; 0 = the caller takes one of its own
        partitions this time."""

    def group_at(self, partition: int, offset: int) -> int:
        """Return the group that holds an offset; 0 = unknown."""

    def record_gone(self, node: int, partition: int) -> None:
        """Record the reply of a node that a partition does not exist."""

    def create(self) -> bool:
        """Request one more topic."""

    def delete(self) -> str:
        """Request the deletion of a topic; return its name."""

    def recreate(self) -> bool:
        """Delete a topic and create another one of its name."""


class WorkloadPort(Protocol):
    """Clients of a run."""

    history: HistoryPort | None
    topics: TopicsPort | None

    def receive(self, sender: int, frame: tuple) -> None:
        """Receive replies of a node."""

    def was_read(self, attempt: int, read: ReadOperation) -> None:
        """Record a read that a node serves."""

    def replace_node(self, old: int, new: int) -> None:
        """Replace a node in the clients' placement."""

    def locate(self, places: Sequence[tuple[int, int]]) -> None:
        """Update the clients' placement with (partition, group) pairs."""


class ReplacementsPort(Protocol):
    """Nodes that lose their directory, and their replacements."""

    is_done: bool  # every lost node is replaced and removed

    def may_wipe(self, node: NodePort) -> bool:
        """True if the cluster must survive the loss of this node's disk now."""

    def wipe(self, node: NodePort, put_back: Callable[[], None] | None = None) -> None:
        """End a node and its disk, and schedule the start of a new one."""


class CopiesPort(Protocol):
    """Older copies of data directories."""

    def keep(self, node: NodePort) -> None:
        """Copy the disk of a node that is about to start."""

    def strike(self) -> bool:
        """Use a copy; False if there is none."""


class PartialHealPort(Protocol):
    """Nodes that are healed last."""

    nodes: list[int]

    def keeps_off(self, node: int) -> bool:
        """True if the node must not be started yet."""


class NemesisPort(Protocol):
    """Faults of a run, as nodes see them."""

    def count_step(self, node: NodePort, what: str) -> None:
        """Count a step of a move, a place for an armed crash."""


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
        """Return a node without replicas, not started."""

    def run_for(self, duration_ms: int) -> None:
        """Advance the virtual time."""
