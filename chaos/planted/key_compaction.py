"""Bugs to plant in compaction by key: when the leader of a partition orders it, and up to where.

Simulated leaders with wrong clocks, Raft starts of their own and changing settings catch most of
them (``tests/node/compaction/test_compaction_leaders.py``).
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

_LEADERS = Tests(("tests/node/compaction/test_compaction_leaders.py",))
_POLICY = Tests(("tests/node/compaction/test_compaction_policy.py",))
_PASS = Tests(("tests/node/compaction/test_compaction_pass.py",))
_REPORTS = Tests(("tests/node/compaction/test_generation_reports.py",))

BUGS = (
    Bug("uncommitted-records-are-compacted", "node.compaction.compaction_policy", "DirtyPart.take",
        "if batch.end_offset >= bounds.end_offset:",
        "if batch.end_offset == bounds.end_offset:",
        "the up_to of a COMPACT is above the high watermark",
        _POLICY),
    Bug("last-batch-is-compacted", "node.compaction.compaction_policy", "DirtyPart.take",
        "if batch.end_offset >= bounds.end_offset:",
        "if batch.end_offset > bounds.end_offset:",
        "a reader finds no record before the end of the partition, and does not reach it",
        _LEADERS),
    Bug("raft-log-is-compacted-by-key", "node.compaction.compaction_policy", "DirtyPart.take",
        "if (batch.index >= bounds.raft_start\n",
        "if (False\n",
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
    Bug("tombstones-wait-for-no-member", "node.compaction.compaction_pass",
        "CompactionPasses._mark",
        "elif told.everywhere(known.group, partition) >= last.generation:",
        "else:",
        "tombstones go before all members carried the compaction out: one that has an older record "
        "of the key never learns that it is deleted",
        _LEADERS),
    Bug("one-round-is-believed", "node.compaction.generation_reports",
        "GenerationReports.everywhere",
        "self._lowest(self._before, group, partition, members)",
        "self._lowest(self._last, group, partition, members)",
        "a member counts that was replaced by a copy of one that had not carried it out yet",
        _REPORTS),
    Bug("learners-are-not-waited-for", "node.compaction.generation_reports",
        "GenerationReports.everywhere",
        "members = found.members()",
        "members = found.voters",
        "a learner that becomes a voter has a record whose tombstone is gone",
        _REPORTS),
    Bug("reports-of-one-round-alone", "node.compaction.generation_reports",
        "GenerationReports._want",
        "[partition] = ROUNDS",
        "[partition] = 1",
        "no report is left when a partition is examined again, so nothing goes on",
        _REPORTS),
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
