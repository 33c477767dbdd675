"""Bugs to plant in retention: which records leave their partitions.

Simulated leaders with wrong clocks and changing limits catch most of them
(``tests/node/retention/test_simulated_leaders.py``).
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

_LEADERS = Tests(("tests/node/retention/test_simulated_leaders.py",))

_DELETIONS = ("topic-delete", "topic-delete", "topic-recreate", "retention", "channel-cut",
              "partition-one-way", "pause", "transfer", "disk-slow", "kill", "switch")
_SWITCHES = ("retention", "retention", "delete-records", "switch", "switch", "topic-create",
             "transfer", "kill", "partition-one", "pause")

BUGS = (
    Bug("wrong-clock-deletes", "node.retention.retention_pass", "RetentionPasses._examine",
        "not self._is_far and now_ms > limits.age_ms",
        "now_ms > limits.age_ms",
        "a leader whose clock is far from the others removes records by their age",
        _LEADERS),
    Bug("wrong-clock-is-written", "node.retention.clock_entries", "ClockEntries._propose",
        "(self._skew.is_far or ",
        "(",
        "a leader whose clock is far from the others writes it into the log",
        _LEADERS),
    Bug("repeated-clock-makes-records-old", "multiraft.partitions.clock_list", "with_clock",
        "    if clock_ms <= last_ms:\n        return clocks\n",
        "    if clock_ms <= last_ms:\n        clocks = clocks[:-_CLOCK.size]\n",
        "a CLOCK that repeats the last value makes records of the time since as old as it",
        Tests(("tests/partitions/test_clock_list.py",))),
    Bug("age-by-the-clock-before", "multiraft.partitions.clock_list", "index_before",
        "numbers[2 * later - 2] - 1 if later else 0",
        "(numbers[2 * later] - 1 if 2 * later < len(numbers) else 1 << 62) if later else 0",
        "a record is as old as the clock before it, and leaves too early",
        _LEADERS),
    Bug("age-by-the-producers-time", "node.retention.retention_pass", "RetentionPasses._examine",
        "expired_index = index_before(clocks, now_ms - limits.age_ms)",
        "expired_index = index_before(clocks, now_ms - limits.age_ms) if self._store.first_at("
        "place.group, partition, now_ms - limits.age_ms, state.log_start, state.next_offset"
        ") is not None else 1 << 62",
        "records leave because their producer's clock, or an import, gave them old timestamps",
        _LEADERS),
    Bug("keeps-less-than-retention-bytes", "node.retention.retention_policy", "Removal._goes",
        "facts.live_bytes - self.bytes - batch.size >= bytes_max",
        "facts.live_bytes - self.bytes >= bytes_max",
        "the last batch that leaves by size takes the partition below retention.bytes",
        _LEADERS),
    Bug("uncommitted-records-count", "node.retention.retention_policy", "Removal._goes",
        "if batch.end_offset > facts.end_offset:",
        "if False:",
        "a log start is above the high watermark",
        Tests(("tests/node/retention/test_retention_policy.py",))),
    Bug("log-start-goes-back", "multiraft.partitions.partition_state", "with_log_start",
        "if row.log_start < state.log_start:",
        "if False:",
        "a log start that lost a race lowers the one that was applied before",
        Tests(("tests/partitions/test_retention.py",))),
    Bug("fetch-while-a-partition-is-deleted", "node.clients.read_view", "ReadView._last",
        "if state is not None and not tail.epoch_of(partition):",
        "if False:",
        "a fetch ends a node that has the deletion of a partition in a log, and does not know yet "
        "that its topic is deleted; found by a run against real nodes",
        Tests(("tests/node/clients/test_read_view.py",)), Seeds((2, 3), faults=_DELETIONS)),
    Bug("earlier-epoch-goes-first", "node.replicas.log_start_propagation", "EarlierEpoch.raised",
        "min(authority, self.end)",
        "self.end",
        "the group of an earlier epoch removes records that the last one still has",
        Tests(("tests/node/replicas/test_log_start_propagation.py",)),
        Seeds((1, 2), faults=_SWITCHES)),
    Bug("log-start-is-told-too-high", "node.clients.log_starts", "LogStarts.highest",
        "highest = state.log_start\n",
        "highest = state.log_start + 1\n",
        "a reader is refused the first record that is left",
        Seeds((1, 2), faults=_SWITCHES)),
)
