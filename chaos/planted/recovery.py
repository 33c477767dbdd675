"""Bugs to plant where a forced recovery, a removal or a repair meets damage.

All of them were mistakes of this project, found by seeds or by reading the code.  Each entry names
the effect.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

FORCED = "tests/storage/recovery/test_forced_recovery.py"

BUGS = (
    Bug(
        "any-incarnation-has-copies",
        "multiraft.storage.repair.coordinator",
        "RepairCoordinator.copies_for",
        "known != request.incarnation",
        "False",
        "a damaged replica of a recovered group takes what others had in the incarnation before",
        Tests((f"{FORCED}::test_nobody_repairs_from_a_replica_of_another_incarnation",)),
    ),
    Bug(
        "lift-forgets-the-incarnation",
        "multiraft.storage.repair.repair",
        "LocalRepair.stage_clear",
        "*_incarnation(log),",
        "",
        "a survivor whose damage is settled is recovered by force once more, beside its members",
        Tests((f"{FORCED}::test_a_clear_record_repeats_the_incarnation_of_the_group",)),
    ),
    Bug(
        "doubt-ends-with-the-replica",
        "multiraft.storage.store",
        "Store._take_lifecycle_record",
        "if needs_head_recovery and write.drop_from:",
        "if False:",
        "who may have lost a vote, and is let go, votes again in that term",
        Tests(
            (
                "tests/node/replicas/test_forced_recovery.py"
                "::test_who_is_let_go_in_doubt_comes_back_in_doubt",
            )
        ),
    ),
    Bug(
        "lost-leaders-are-newer",
        "multiraft.raft.conf_change",
        "reincarnate",
        "group.term + 1 + unheard",
        "group.term + 1",
        "after a forced recovery clients and nodes ask a leader who is gone",
        Tests(
            (
                "tests/raft/test_forced_recovery.py"
                "::test_the_survivor_leads_in_a_later_term_than_those_who_are_lost_did",
            )
        ),
    ),
    Bug(
        "lost-ids-are-given-again",
        "node.recover",
        "recover",
        "_use_up(core, store)",
        "pass",
        "new topics begin with lost ones' records, and new producers with others' batches",
        Tests(
            (
                "tests/node/metadata/test_forced_recovery.py"
                "::test_what_lost_commands_gave_away_is_given_to_nobody_else",
            )
        ),
    ),
    Bug(
        "added-again-is-barred",
        "multiraft.raft.group",
        "Group._is_below_barrier_index",
        "reversed(self.configurations)",
        "[(self.configuration_index, self.configuration)]",
        "a leader that was added again and removes itself can be elected no more, and is needed",
        Tests(
            (
                "tests/raft/test_vote_barrier.py"
                "::test_who_was_added_again_counts_until_its_next_removal_is_applied",
            )
        ),
    ),
    Bug(
        "only-leaders-have-compacted",
        "multiraft.storage.repair.coordinator",
        "RepairCoordinator.on_response",
        "not self._compact_applied(group, compacted) and response.leads",
        "response.leads",
        "a voter asks a leader for what all others have compacted, and is needed to elect one",
        Tests(
            (
                "tests/storage/repair/test_suspect_damage.py::test_what_is_applied_and_compacted"
                "_by_any_member_is_forgotten_without_a_leader",
            )
        ),
    ),
    Bug(
        "damage-of-who-goes-is-nobodys",
        "multiraft.storage.stored_log",
        "StoredLog.records_after_tombstone",
        "if record.kind != EntryKind.TOMBSTONE:",
        "if True:",
        "all replicas of a node need head recovery for an entry of one that was removed",
        Tests(
            (
                "tests/storage/repair/test_acknowledged_damage.py"
                "::test_a_damaged_entry_of_a_replica_that_goes_concerns_nobody_else",
            )
        ),
    ),
    Bug(
        "scrub-goes-on-from-the-start",
        "multiraft.storage.repair.scrub",
        "Scrubber.restart",
        "self.position = self._durable = 0",
        "self.position = 0",
        "a pass that an operator begins anew calls everything behind damage damaged",
        Tests(
            (
                "tests/storage/repair/test_scrub.py"
                "::test_a_pass_that_begins_anew_goes_on_behind_damage_as_any_other",
            )
        ),
    ),
    Bug(
        "headers-are-not-scrubbed",
        "multiraft.storage.repair.scrub",
        "ScrubJob._check_header",
        "header is None or",
        "False and",
        "headers of segments rot on all nodes before a start reads one",
        Tests(
            (
                "tests/storage/repair/test_scrub.py"
                "::test_a_header_that_rots_is_found_before_a_start_needs_it",
            )
        ),
    ),
)
