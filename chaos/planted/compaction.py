"""Bugs to plant in compaction: Raft starts, records below them, and segments that go."""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

_RULE = "tests/node/replicas/test_log_compaction.py::"
_SEGMENTS = "tests/storage/test_removable_segments.py::"

BUGS = (
    Bug("compacts-what-one-checkpoint-has", "multiraft.storage.checkpointer",
        "Checkpointer.applied_in_all",
        "min(",
        "max(",
        "a start with the older checkpoint lacks entries of the Raft log",
        Tests(("tests/storage/test_raft_start.py::"
               "test_the_raft_start_waits_for_both_kept_checkpoints",))),
    Bug("served-snapshot-holds-nothing", "node.replicas.log_compaction", "LogCompaction._target",
        "min(self._core.held_from(group), self._held_from(group))",
        "self._core.held_from(group)",
        "the entries behind a snapshot are compacted while a member fetches it, again and again",
        Tests((_RULE + "test_members_that_are_up_and_served_snapshots_hold_entries",))),
    Bug("compacts-before-all-releases", "node.replicas.log_compaction",
        "LogCompaction._may_compact",
        "(group == METADATA_GROUP or not self._gate.fault)",
        "True",
        "a node of an earlier release lacks entries that no snapshot brings there",
        Tests((_RULE + "test_groups_with_partitions_wait_for_all_releases_and_metadata_do_not",))),
    Bug("compacts-another-log", "node.replicas.log_compaction", "LogCompaction._compact",
        "or self._store.raft_start(group) != start",
        "",
        "the log of a replica that was installed between two steps is compacted by the old target",
        Tests((_RULE + "test_a_log_that_changes_between_steps_is_left_alone",))),
    Bug("segment-goes-for-the-newest-checkpoint", "multiraft.storage.removable_segments",
        "RemovalPass.may_go",
        "for each in self._checkpoints)",
        "for each in self._checkpoints[-1:])",
        "a segment goes before the checkpoint that lets it go has a successor",
        Tests((_SEGMENTS + "test_what_the_older_checkpoint_needs_stays",))),
    Bug("segment-of-records-goes", "multiraft.storage.removable_segments", "RemovalPass.may_go",
        "and not self._has_record(segment))",
        ")",
        "records below the Raft start go with their segment (A3)",
        Tests((_SEGMENTS + "test_a_segment_with_a_record_stays_in_the_front_and_behind",))),
    Bug("log-start-leaves-with-its-entry", "multiraft.partitions.tail_snapshot", "row",
        "return [partition, *fields,",
        "return [partition, *fields[:3], 0, *fields[4:],",
        "a start behind a compacted LOG_START shows deleted records again, and misses them",
        Tests(("tests/partitions/test_state.py::test_any_detour_ends_in_the_state_of_a_rebuild",))),
    Bug("uncopied-records-are-none", "multiraft.storage.io_jobs", "select_batches",
        "return chosen or lost",
        "return chosen",
        "a member that still copies records answers a fetch as if the partition ended there (A32)",
        Tests(("tests/storage/test_installed_rows.py",))),
    Bug("forgotten-records-are-damage", "multiraft.storage.io_jobs", "RowRecordsJob.execute",
        "if index < needed:",
        "if False:",
        "a batch below all log starts, which an index file still names, is reported as damaged",
        Tests(("tests/storage/test_installed_rows.py::"
               "test_answers_of_an_index_file_leave_out_records_below_all_log_starts",))),
    Bug("forgotten-partition-has-an-end", "node.clients.read_view", "ReadView._last",
        "if state is None and self._directory",
        "if False and self._directory",
        "a leader with old metadata says that offsets of a switched partition do not exist",
        Tests(("tests/node/clients/test_log_start.py::"
               "test_a_leader_that_has_forgotten_the_partition_does_not_say_where_it_ends",))),
    Bug("removed-replica-answers-for-its-group", "node.replicas.log_start_propagation",
        "LogStartPropagation._ask",
        "not self._core.status.has_group(place.group)",
        "place.group not in self._partition_states",
        "the log start of an earlier epoch never rises on a node that has left the last group",
        Tests(("tests/node/replicas/test_log_start_propagation.py::"
               "test_a_node_from_which_the_last_group_was_removed_asks_its_leader",))),
)
