"""Bugs to plant in compaction by key: when the leader of a partition orders it, and up to where.

Simulated leaders with wrong clocks, Raft starts of their own and changing settings catch most of
them (``tests/node/compaction/test_compaction_leaders.py``).
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

_LEADERS = Tests(("tests/node/compaction/test_compaction_leaders.py",))
_POLICY = Tests(("tests/node/compaction/test_compaction_policy.py",))
_PASS = Tests(("tests/node/compaction/test_compaction_pass.py",))

BUGS = (
    Bug("uncommitted-records-are-compacted", "node.compaction.compaction_policy", "DirtyPart.take",
        "batch.end_offset > bounds.end_offset or batch.index >= bounds.raft_start",
        "batch.index >= bounds.raft_start",
        "the up_to of a COMPACT is above the high watermark",
        _POLICY),
    Bug("raft-log-is-compacted-by-key", "node.compaction.compaction_policy", "DirtyPart.take",
        "batch.end_offset > bounds.end_offset or batch.index >= bounds.raft_start",
        "batch.end_offset > bounds.end_offset",
        "a COMPACT names entries that consensus still replicates and matches",
        _LEADERS),
    Bug("young-records-are-compacted", "node.compaction.compaction_pass",
        "CompactionPasses._old_index",
        "return index_before(clocks, now_ms - age_ms)",
        "return index_before(clocks, now_ms)",
        "a record is compacted before min.compaction.lag.ms",
        _LEADERS),
    Bug("tombstones-do-not-wait", "node.compaction.compaction_pass", "CompactionPasses._mark",
        "rules.tombstone_ms,\n",
        "0,\n",
        "tombstones go with the next COMPACT, before delete.retention.ms",
        _LEADERS),
    Bug("tombstones-wait-from-the-proposal-on", "node.compaction.compaction_pass",
        "CompactionPasses._is_carried_out",
        "return not last.generation or last.generation <= min(\n",
        "return True or min(\n",
        "the next COMPACT, and the time of tombstones, does not wait for what replicas carry out",
        _LEADERS),
    Bug("wrong-clock-compacts", "node.compaction.compaction_pass", "CompactionPasses._old_index",
        "if self._is_far or now_ms <= age_ms:",
        "if now_ms <= age_ms:",
        "a leader whose clock is far from the others takes records and tombstones for old",
        _LEADERS),
    Bug("tombstones-go-in-a-history", "node.compaction.compaction_pass",
        "CompactionPasses._standing",
        "known.marks.old_up_to if not has_history else 0",
        "known.marks.old_up_to",
        "a tombstone goes whose earlier value is in the group of an earlier epoch",
        _PASS),
)
