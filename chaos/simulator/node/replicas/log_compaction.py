"""Compaction of Raft logs of one boot, by the product's rule and passes.

Contract.  The limits are of a few entries.  Groups with partitions are compacted only with the
parameter ``entries_kept``; then no member holds more than these, so that one that was away for
seconds, or lags, needs a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.simulator.node.machine.env import NodeEnv
from multiraft.codec import layout
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
    kept, segment_bytes = env.parameters.entries_kept, env.parameters.disk.segment_bytes_max
    newest_bytes = segment_bytes // 4
    if kept is not None:
        newest_bytes = kept * layout.ENTRY_HEADER_BYTES
    gate = _Gate("the run leaves groups with partitions as they are" if kept is None else "")
    limits = CompactionLimits(newest_bytes, newest_bytes, 2 * segment_bytes)
    return LogCompaction(raft, store, limits, gate, held_from, guard)
