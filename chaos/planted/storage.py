"""Bugs to plant in storage: contents of the disk, and the recovery of a restart.

They come from the catalogues of reported Raft and storage bugs; each entry names the effect and
where it was seen.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

#: Bit rot shows the mistakes of a damaged replica only while other replicas are away.
ROT = ("bit-rot", "bit-rot", "bit-rot", "isolate-leader", "partition-one", "kill")
#: The same with power losses, after which the lost entry may have been the last copy of a majority.
ROT_AND_POWER = ("bit-rot", "bit-rot", "bit-rot", "isolate-leader", "isolate-leader",
                 "partition-one", "power-loss", "double-crash", "cluster-power")

BUGS = (
    Bug(
        "vote-not-persisted",
        "multiraft.storage.stored_log",
        "StoredLog.append_journal_entries",
        "term, vote = write.hard_state",
        "term, vote = write.hard_state[0], 0",
        "the vote is forgotten by a restart (hashicorp #661, PySyncObj #84)",
        Tests(("tests/storage/test_store.py::test_a_restart_finds_everything_and_goes_on",)),
        Seeds((1,)),
    ),
    Bug(
        "window-lost-on-restart",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild.replay",
        "if states.last_index != log.index.last_index",
        "states._windows.clear()\n    if states.last_index != log.index.last_index",
        "producers are forgotten by a restart: retries are doubled or refused for ever",
        Seeds((2,)),
    ),
    Bug(
        "drop-not-written",
        "multiraft.storage.stored_log",
        "StoredLog.append_journal_entries",
        "write.drop_from, payload",
        "1 << 40, payload",
        "a dropped suffix comes back after a restart",
        Tests(
            (
                "tests/storage/recovery/test_replica_records.py::"
                "test_configurations_are_those_of_the_log",
            )
        ),
        Seeds((7,)),
    ),
    Bug(
        "given-up-is-forgotten",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild.take_run",
        "if run.head_recovery_truncate_position > damage.cleared_position:",
        "if False:",
        "who gave up entries counts again after a restart, without having been cleared",
        Tests(
            (
                "tests/storage/repair/test_acknowledged_damage.py"
                "::test_a_replica_that_gave_up_entries_needs_head_recovery_until_it_is_cleared",
            )
        ),
    ),
    Bug(
        "repaired-members-do-not-count",
        "multiraft.storage.repair.repair",
        "LocalRepair.replay",
        "log.set_configuration(entry.index, configuration)",
        "pass",
        "a change of members that a peer gave back is an entry and nothing else",
        Tests(
            (
                "tests/storage/repair/test_repair.py"
                "::test_who_the_members_are_is_known_again_when_that_was_lost",
            )
        ),
    ),
    Bug(
        "recovery-trusts-page-cache",
        "multiraft.storage.recovery.recovery",
        "_Recovery._rewrite_unsynced",
        "if begin < end:",
        "if False:",
        "what recovery read was never synced (Rebello et al., ATC 2020)",
        Seeds((2,)),
    ),
    Bug(
        "replaced-without-sync",
        "multiraft.storage.atomic_file",
        "replace_file",
        "True)",
        "False)",
        "a file's name is durable before its contents",
        Tests(
            (
                "tests/storage/test_store.py::"
                "test_a_checkpoint_does_not_call_committed_what_a_crash_may_replace",
            )
        ),
        Seeds((2,)),
    ),
    Bug(
        "tombstone-forgets-the-vote",
        "multiraft.storage.stored_log",
        "StoredLog.apply_tombstone",
        "self.hard_state, self.vote_barrier_index = left.hard_state, left.vote_barrier_index",
        "self.vote_barrier_index = left.vote_barrier_index",
        "a replica that is added again votes a second time in a term (S28f)",
        Seeds((2,), members=True),
    ),
    Bug(
        "lifted-early",
        "multiraft.storage.repair.coordinator",
        "RepairCoordinator.step",
        "if log.damage.needs_head_recovery and not core.repair.is_head_recovered(group):",
        "if False:",
        "a replica comes back before its leader has cleared it",
        Seeds((31, 39), faults=ROT_AND_POWER),
    ),
    Bug(
        "lift-settles-the-future",
        "multiraft.storage.damage.damage_map",
        "DamageMap.has_cleared",
        "not any(uncovered(*each, self.cleared_ranges) for each in ranges)",
        "bool(self.cleared_ranges)",
        "damage that comes after a repair is taken for what was repaired",
        Tests(
            (
                "tests/storage/repair/test_repair.py::"
                "test_a_second_repair_keeps_the_ranges_that_the_first_has_cleared",
            )
        ),
        Seeds((28,), faults=ROT),
    ),
    Bug(
        "damage-forgotten-by-restart",
        "multiraft.storage.recovery.rebuild",
        "_Rebuilding.report_damage",
        "log.damage.require_head_recovery(why)",
        "pass",
        "a hole in the journal is taken for the end of nobody's log",
        Tests(
            (
                "tests/storage/recovery/test_corruption.py::"
                "test_a_journal_that_ends_early_after_a_checkpoint_has_lost_durable_bytes",
            )
        ),
        Seeds((6,), faults=ROT),
    ),
    Bug(
        "believes-what-stands-before-a-hole",
        "multiraft.storage.recovery.lost_truncations",
        "_mark_before",
        "if not at or _is_followed(log, at):",
        "if True:",
        "what was dropped is served when the record of the drop is damaged",
        Tests(("tests/storage/recovery/test_lost_truncations.py",)),
    ),
    Bug(
        "any-member-confirms",
        "multiraft.storage.damage.damage_map",
        "DamageMap.is_term_requested",
        "is EntryState.UNREADABLE",
        "is not EntryState.TERM_UNKNOWN",
        "what was dropped comes back from a member that has not heard of the drop either",
        Tests(("tests/storage/repair/test_repair_histories.py",)),
    ),
    Bug(
        "cut-at-first-damage",
        "multiraft.storage.recovery.torn_tail",
        "classify",
        "if damaged.position >= durable:",
        "if True:",
        "the first bad checksum is taken for the log's end, and what follows is cut (S25)",
        Tests(
            (
                "tests/storage/repair/test_repair.py::test_copies_of_another_term_are_refused",
                "tests/storage/recovery/test_corruption.py::"
                "test_zeros_anywhere_in_a_journal_are_never_silent",
            )
        ),
    ),
    Bug(
        "old-damage-is-news",
        "multiraft.storage.damage.damage_map",
        "DamageMap.create",
        "self.created_position, self.cleared_ranges = position, ((ORIGIN, place),)",
        "self.created_position = position",
        "a replica in a journal with cleared damage needs head recovery after the next scrub",
        Tests(
            (
                "tests/storage/repair/test_acknowledged_damage.py::"
                "test_a_new_replica_clears_damage_that_only_others_know_of",
            )
        ),
    ),
    Bug(
        "record-is-given-up",
        "multiraft.storage.repair.repair",
        "LocalRepair.forget_holes",
        "and (index not in log.records or not log.is_batch_needed(index, states))]",
        "]",
        "a damaged record below the Raft start is not repaired once a peer has compacted its entry",
        Tests(
            (
                "tests/storage/test_raft_start.py::"
                "test_a_needed_record_is_not_given_up_though_its_leader_has_compacted_it",
            )
        ),
    ),
    Bug(
        "truncated-entry-is-a-record",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild._raise_raft_start",
        "if true != UNKNOWN_TERM:",
        "if False:",
        "a truncated entry is read as a record when the record of its truncation is damaged",
        Tests(
            (
                "tests/storage/test_raft_start.py::"
                "test_a_truncated_entry_never_becomes_a_record",
            )
        ),
    ),
    Bug(
        "uncopied-is-called-compacted",
        "multiraft.storage.repair.repair",
        "LocalRepair.compacted",
        "and not records.uncopied.first_in(at, at)",
        "",
        "a member that has not copied a record yet ends the search of one that has lost it",
        Tests(("tests/storage/test_installed_records.py::"
               "test_a_member_does_not_call_an_uncopied_index_compacted",)),
    ),
    Bug(
        "copied-before-durable",
        "multiraft.storage.repair.repair",
        "LocalRepair.stage_records",
        "return self._table.stage_records(placed.parts, take)",
        "take()\n    return self._table.stage_records(placed.parts, lambda: None)",
        "copies that are in no file yet are read, and not copied again after a crash",
        Tests(("tests/storage/test_installed_records.py::"
               "test_a_range_shrinks_when_its_copies_are_durable",)),
    ),
    Bug(
        "uncommitted-entry-is-a-record",
        "multiraft.storage.stored_log",
        "StoredLog.install",
        "min(committed, self.index.last_index)",
        "self.index.last_index",
        "entries that were never committed are read below a snapshot",
        Tests(("tests/storage/test_installed_records.py::"
               "test_entries_that_are_not_committed_are_no_records",)),
    ),
    Bug(
        "uncopied-index-is-lost",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild._pass_installed",
        "self._append_of_record(self._record, first, at.last + 1)",
        "pass",
        "after a start each index that a snapshot stands for is requested from all members",
        Tests(("tests/storage/test_installed_records.py::"
               "test_committed_entries_stay_and_the_rest_is_copied",)),
    ),
    Bug(
        "lost-copies-are-not-missed",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild._take_copied",
        "records.uncopied.add(max(each.first, needed), each.last)",
        "pass",
        "records are passed over whose copies were in a damaged part of the journal",
        Tests(("tests/storage/test_installed_records.py::"
               "test_damage_that_may_have_held_copies_makes_them_uncopied_once",)),
    ),
    Bug(
        "copies-are-lost-without-a-trace",
        "multiraft.storage.checkpointer",
        "Checkpointer._record",
        "log.records.repaired.ranges,\n        log.records",
        "(),\n        log.records",
        "records are passed over whose only copy was in a damaged part of the journal",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_a_record_is_missing_after_a_start_if_nothing_is_left_of_its_only_copy",)),
    ),
    Bug(
        "copies-are-lost-in-damage-that-was-cleared",
        "multiraft.storage.recovery.lost_copies",
        "miss_lost_copies",
        "found not in (0, record.known_damage)",
        "found not in (0, record.known_damage) and not log.damage.cleared_position",
        "what was cleared before a checkpoint named the lost records is forgotten by a crash",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_a_record_is_missing_after_a_start_if_nothing_is_left_of_its_only_copy",)),
    ),
    Bug(
        "snapshot-in-one-checkpoint",
        "multiraft.storage.store",
        "Store.install",
        "self._checkpointer.require_copy()",
        "pass",
        "one damaged file takes a snapshot, and what was acknowledged behind it",
        Tests(("tests/storage/test_installed_records.py::"
               "test_a_damaged_checkpoint_takes_no_snapshot_with_it",)),
    ),
    Bug(
        "reads-pass-uncopied-records",
        "multiraft.storage.partition_reads",
        "PartitionReads.fetch",
        "if not log.records.is_complete and offset < below_offset:",
        "if log.records.missing and offset < below_offset:",
        "a consumer passes over records that are still to be copied",
        Tests(("tests/storage/test_installed_records.py::"
               "test_committed_entries_stay_and_the_rest_is_copied",)),
    ),
    Bug(
        "reads-pass-lost-records",
        "multiraft.storage.partition_reads",
        "PartitionReads.fetch",
        "if not log.records.is_complete and offset < below_offset:",
        "if False:",
        "a consumer passes over records whose entry is lost",
        Tests(("tests/storage/test_raft_start.py::test_no_read_passes_a_lost_record",)),
    ),
    Bug(
        "cleared-before-checkpointed",
        "multiraft.storage.repair.coordinator",
        "RepairCoordinator.step",
        "if not repair.is_raft_start_recorded(group):",
        "if False:",
        "damage is cleared for a start whose checkpoint has a lower Raft start",
        Tests(
            (
                "tests/storage/test_raft_start.py::"
                "test_damage_is_not_cleared_before_every_kept_checkpoint_has_the_raft_start",
            )
        ),
    ),
    Bug(
        "rows-outlive-their-segment",
        "multiraft.storage.segment_removal",
        "SegmentRemoval._has_record",
        "if indexed is not None and indexed.rows:",
        "if False:",
        "a segment goes while rows of its index file are answered, later from another file",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_the_rows_of_a_removed_segment_go_with_it",
               "tests/storage/test_indexed_records.py::"
               "test_records_in_index_files_keep_their_segment")),
    ),
    Bug(
        "another-segments-block",
        "multiraft.storage.block_index.blocks",
        "FileIdentity.crc",
        "self.seed, self.start",
        "self.start, self.seed",
        "a block of another segment's index file is accepted in its place",
        Tests(("tests/storage/test_block_index.py::"
               "test_blocks_of_the_segments_of_one_boot_have_checksums_of_their_own",)),
    ),
    Bug(
        "rows-above-the-raft-start",
        "multiraft.storage.record_store",
        "terms_agree",
        "if not begin <= last < raft_start:",
        "if False:",
        "an index file answers for entries that may still be truncated",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_entries_at_the_raft_start_are_not_left_to_index_files",)),
    ),
    Bug(
        "truncated-rows-are-answered",
        "multiraft.storage.record_store",
        "terms_agree",
        "return all(term_in(terms, start) == term_in(true, start) != UNKNOWN_TERM",
        "return all(True",
        "a reader gets a batch that was truncated, from the index file of its segment",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_a_batch_that_was_truncated_is_not_answered",)),
    ),
    Bug(
        "copies-of-rows-are-lost",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild._take_copy",
        "if self._files and",
        "if False and",
        "a start reads the damaged record instead of its copy",
        Tests(("tests/storage/test_indexed_records.py::"
               "test_the_copy_of_a_record_in_an_index_file_counts_after_a_start",)),
    ),
    Bug(
        "removed-for-the-newest-checkpoint",
        "multiraft.storage.checkpointer",
        "Checkpointer.all_remove",
        "all(kept.removed.covers(start) for kept in self._kept)",
        "self._kept[-1].removed.covers(start)",
        "a segment is deleted while a start from the older checkpoint needs it",
        Tests(
            (
                "tests/storage/test_segment_removal.py::"
                "test_power_loss_at_every_operation_leaves_a_start_that_works",
            )
        ),
    ),
    Bug(
        "removed-segment-is-damage",
        "multiraft.storage.recovery.torn_tail",
        "_End.of",
        "if gone is None:",
        "if True:",
        "a start takes a removed segment for lost bytes, and all groups need their leaders",
        Tests(
            (
                "tests/storage/test_segment_removal.py::"
                "test_a_segment_goes_when_both_kept_checkpoints_name_it",
            )
        ),
    ),
    Bug(
        "cleared-damage-is-asked-about-again",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild.raise_raft_start",
        "UnneededIndexes(record.unneeded)",
        "UnneededIndexes()",
        "each start asks again for indexes without records beside damage, and when all members have"
        " such damage, the repair does not end",
        Tests(
            (
                "tests/storage/test_segment_removal.py::"
                "test_indexes_without_records_stay_known_beside_cleared_damage",
            )
        ),
    ),
    Bug(
        "removed-entries-are-lost",
        "multiraft.storage.recovery.group_rebuild",
        "GroupRebuild._pass_removed",
        "if any(lost < position",
        "if True or any(lost < position",
        "entries of removed segments are requested from peers, and reads stop before them",
        Tests(
            (
                "tests/storage/test_segment_removal.py::"
                "test_a_segment_goes_when_both_kept_checkpoints_name_it",
            )
        ),
    ),
    Bug(
        "removed-file-is-damage",
        "multiraft.storage.io_jobs",
        "ReadJob._open",
        "raise SegmentRemoved(",
        "raise CorruptRange(",
        "a read that was late takes a removed segment for damage, and its replica is quarantined",
        Tests(
            (
                "tests/storage/test_segment_removal.py::"
                "test_a_read_whose_segment_went_is_told_so_and_finds_no_damage",
            )
        ),
    ),
    Bug(
        "truncation-goes-with-its-segment",
        "multiraft.storage.removable_segments",
        "RemovalPass._is_needed_by",
        "if contents.last_index >= start.first_index or contents.truncated_from and (",
        "if contents.last_index >= start.first_index or False and (",
        "truncated entries are in the log again after the segment with their truncation went",
        Tests(
            (
                "tests/storage/test_removable_segments.py::"
                "test_a_truncation_stays_while_entries_before_it_look_like_the_raft_log",
            )
        ),
    ),
    Bug(
        "snapshot-is-known-once",
        "multiraft.storage.checkpoint",
        "CheckpointJob.execute",
        "if self.write_copy",
        "if False",
        "an installed snapshot is lost with one checkpoint that rots, and its node counts on",
        Tests(
            (
                "tests/storage/test_snapshot.py::"
                "test_a_rotten_checkpoint_takes_no_installed_state_with_it",
            )
        ),
    ),
)
