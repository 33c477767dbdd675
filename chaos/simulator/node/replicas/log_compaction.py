"""Compaction of Raft logs of one boot, by the product's rule and passes.

Contract.  The limits are those that the seed draws, mostly of a few entries, so that a member that
was away for seconds, or lags, needs a snapshot.  Without them, only group 0 is compacted.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.node.machine.env import NodeEnv
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.store import Store
from node.replicas.log_compaction import CompactionLimits, LogCompaction


class _Gate:
    """The releases of a cluster in which groups with partitions are compacted, or not."""

    def __init__(self, fault: str):
        self.fault = fault


def compaction_of(env: NodeEnv, raft: MultiRaft, store: Store, guard: DiskSpaceGuard,
                  held_from: Callable[[int], int]) -> LogCompaction:
    """Return the compaction of a boot.  ``held_from``: see ``LogCompaction``."""
    drawn = env.parameters.compaction
    if drawn is None:
        segment_bytes = env.parameters.disk.segment_bytes_max
        limits = CompactionLimits(segment_bytes // 4, segment_bytes // 4, 2 * segment_bytes)
        gate = _Gate("the run leaves groups with partitions as they are")
    else:
        limits = CompactionLimits(drawn.kept_bytes, drawn.newest_bytes, drawn.node_newest_bytes)
        gate = _Gate("")
    return LogCompaction(raft, store, limits, gate, held_from, guard)
