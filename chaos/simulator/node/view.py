"""State of a simulated node, as the simulation and its faults see it from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from chaos.simulator.node.boot import Boot
from chaos.simulator.oracle.command_oracle import CommandState
from chaos.simulator.oracle.metadata_oracle import Extent, MetadataState
from multiraft.raft.status import GroupStatus
from multiraft.types import Configuration


class NodeView:
    """Queries of one node; those that need it to be up say so."""

    def __init__(self, node: int, boot: Callable[[], Boot | None]):
        """``boot`` returns the parts of the present boot; None = the node is not up."""
        self._node = node
        self._boot = boot

    # ---- metadata --------------------------------------------------------------------------

    @property
    def metadata(self) -> MetadataState:
        """Metadata that are applied here; empty while the node is down."""
        boot = self._boot()
        return boot.metadata.state if boot is not None else MetadataState()

    @property
    def commands(self) -> CommandState:
        """State of the commands that are applied here; empty while the node is down."""
        boot = self._boot()
        return boot.metadata.commands if boot is not None else CommandState()

    # ---- groups ----------------------------------------------------------------------------

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups with a replica on this node; empty while the node is down."""
        boot = self._boot()
        return boot.raft.status.groups() if boot is not None else ()

    def leads(self, group: int) -> bool:
        """True if this node is up and believes that it leads the group."""
        boot = self._boot()
        if boot is None:
            return False
        status = boot.raft.status
        return group in status.groups() and status.leader_hint(group)[0] == self._node

    def led_groups(self) -> list[int]:
        """Return the groups that this node, which must be up, leads."""
        return self._boot().leadership.led_groups()

    def hint(self, group: int) -> int:
        """Return the leader of any group of the pool, as this node, which must be up, knows it; 0 =
        unknown."""
        return self._boot().raft.status.leader_hint(group)[0]

    def status(self, group: int) -> GroupStatus:
        """Return the status of a replica of this node, which must be up and have one."""
        return self._boot().raft.status.of(group)

    def configuration(self, group: int) -> Configuration:
        """Return the configuration in force of a group by this node's log; the node must be up and
        have a replica."""
        return self.status(group).configuration

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node would hand ``group``, if it led the group, back to its preferred leader
        ``node``, which restarted lately."""
        boot = self._boot()
        return boot is not None and boot.moves.will_hand_back(group, node)

    # ---- work that is left -----------------------------------------------------------------

    def under_repair(self) -> list[str]:
        """Describe the quarantined replicas of this node, or that it is down; empty = none is."""
        boot = self._boot()
        return boot.repair.under_repair() if boot is not None else ["is down"]

    def incomplete(self) -> list[str]:
        """Describe the replicas of this node that lack records."""
        boot = self._boot()
        return boot.group_snapshots.incomplete if boot is not None else []

    def incomplete_members(self) -> list[tuple[int, int]]:
        """Return (group, node) of the members that lack records, as far as this node knows as
        their leader."""
        if self._boot() is None:
            return []
        return [(group, member.node) for group in self.led_groups()
                for member in self.status(group).members if member.records_left]

    def unanswered(self) -> list[str]:
        """Describe the linearizable reads that wait on this node, one line per group."""
        boot = self._boot()
        return [f"n{self._node} {text}" for text in boot.core.unanswered()] if boot else []

    def describe_active(self) -> list[str]:
        """Describe the timer of this node and its groups that have not quiesced; empty = the node
        is up and idle."""
        boot = self._boot()
        if boot is None:
            return [f"n{self._node} is not up"]
        deadline_ms = boot.raft.next_deadline_ms()
        timers = [] if deadline_ms is None else [f"n{self._node} has a timer at {deadline_ms} ms"]
        statuses = [self.status(group) for group in self.groups]
        return timers + [f"n{self._node} {status}" for status in statuses if not status.quiesced]

    # ---- checks ----------------------------------------------------------------------------

    def check(self) -> None:
        """Check all invariants of the core and of the logs by assertions; no-op while the node is
        down.  O(everything stored in memory)."""
        boot = self._boot()
        if boot is not None:
            boot.raft._check()
            for tail in boot.store.partition_states.values():
                tail._check()

    def unsettled(self, log_starts: Mapping[int, int]) -> list[str]:
        """Describe the log starts that this node has to raise in groups of earlier epochs, and the
        deletions of partitions and the clocks that it has to propose; ``log_starts``: the committed
        ones."""
        boot = self._boot()
        return boot.retention.unsettled(log_starts) if boot is not None else []

    def read_everything(self, extents: Sequence[Extent],
                        log_starts: Mapping[int, int]) -> list[tuple[Extent, int]]:
        """Fetch each extent whose group has a replica here, from its start or the log start of its
        partition, as far as it is applied; each fetch is checked like a client's. The node must be
        up.

        Return (extent, offset after its last record) pairs.
        """
        ends, clients = [], self._boot().clients
        for extent in extents:
            if extent.group in self.groups:
                end = max(extent.start, log_starts.get(extent.partition, 0))
                if extent.end is not None:
                    end = min(end, extent.end)
                # A partition may have returned to the group: its next extent there is another one.
                while end != extent.end and (
                        reached := clients.read(0, extent.group, extent.partition, end)) > end:
                    end = reached
                ends.append((extent, end))
        return ends
