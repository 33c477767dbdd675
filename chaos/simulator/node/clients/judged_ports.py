"""Ports of the product's request handlers that report to the oracles what passes through them.

Contract.  ``JudgedCore`` is the core as the handlers use it; ``JudgedReadView`` remembers the range
from which a fetch is served.  A call reaches the product unchanged.
"""

from __future__ import annotations

from typing import Any

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.metadata.metadata_replica import MetadataReplica
from chaos.simulator.oracle.metadata_oracle import FIRST
from multiraft.raft.multi_raft import MultiRaft, Proposed
from multiraft.raft.ready import ReadReady
from multiraft.types import BatchInfo
from node.clients.read_view import END, PartitionAccess, ReadableRange, ReadView
from node.metadata.state_machine import Location


class JudgedCore:
    """The core of one boot."""

    def __init__(self, env: NodeEnv, raft: MultiRaft, metadata: MetadataReplica):
        self.node = env.node
        self.status = raft.status
        self.records_fit = raft.records_fit
        self.propose = raft.propose
        self._state_checker = env.state_checker
        self._clock = env.clock
        self._raft = raft
        self._metadata = metadata
        self._floors: dict[int, int] = {}  # token -> commit index when it was asked
        self._open: dict[int, dict[int, None]] = {}  # group -> tokens

    def propose_batch(self, group: int, partition: int, batch: Any, info: BatchInfo,
                      append_time_ms: int | None = None) -> Proposed:
        """Propose a batch. Raises ``Violation`` if the metadata do not place the partition in the
        group, or a batch that is new differs from the settings of its topic."""
        if partition >= FIRST:
            self._metadata.accepts(partition, group)
        proposed = self._raft.propose_batch(group, partition, batch, info, append_time_ms)
        if partition >= FIRST and not proposed.duplicate:
            self._metadata.appended(partition, batch, info.max_timestamp_ms, self._clock.wall_ms)
        return proposed

    # ---- linearizable reads ----------------------------------------------------------------

    def read_index(self, group: int, token: int) -> None:
        """Start a linearizable read, which must be confirmed at what is committed now or later."""
        self._raft.read_index(group, token)
        self._floors[token] = self._state_checker.groups[group].commit
        self._open.setdefault(group, {})[token] = None

    def confirmed(self, read: ReadReady) -> None:
        """Check a confirmed read, also one of a leader that steps down in the same round. Raises
        ``Violation``."""
        self._open.get(read.group, {}).pop(read.token, None)
        self._state_checker.confirmed(self.node, read.group, read.index,
                                      self._floors.pop(read.token))

    def ended(self, group: int) -> None:
        """Drop the reads of a group that this node no longer leads: no confirmation follows."""
        self._open.pop(group, None)

    def stop(self) -> None:
        """Drop all reads: the node is stopping."""
        self._open.clear()

    def unanswered(self) -> list[str]:
        """Return one line for each group with reads that are neither confirmed nor dropped."""
        return [f"g{group} {len(tokens)} reads" for group, tokens in sorted(self._open.items())
                if tokens]


class JudgedReadView:
    """The read view of one boot."""

    def __init__(self, view: ReadView):
        self.location = view.location
        self.readable_part = view.readable_part
        self.log_start = view.log_start
        self._view = view
        self._ranges: dict[tuple[int, int], ReadableRange] = {}

    def readable_range(self, partition: int, seen_index: int, replica: str,
                       offset: int = END,
                       access: PartitionAccess | None = None) -> ReadableRange:
        """Return the range that serves ``offset``, and remember it. Raises ``Refused``."""
        span = self._view.readable_range(partition, seen_index, replica, offset, access)
        self._ranges[partition, offset] = span
        return span

    def served(self, partition: int, offset: int) -> ReadableRange:
        """Return the newest range from which ``offset`` was served."""
        return self._ranges[partition, offset]

    def place(self, partition: int) -> Location:
        """Return the location of a partition. Raises ``Refused`` if it is unknown."""
        return self._view.location(partition, 0)
