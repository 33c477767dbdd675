"""Bugs to plant in the cleaner and in cold segments: a copy replaces a record, and nothing else.

Each entry names the effect.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Tests

_CLEANER = "tests/storage/cold/test_cleaner.py::"
_ANSWERS = "tests/storage/cold/test_cold_answers.py::"

BUGS = (
    Bug(
        "cold-segment-without-its-name",
        "multiraft.storage.cold.copy_job",
        "CopyJob._sync",
        "self._filesystem.sync_directory(self._directory)",
        "pass",
        "the sources of a cold segment go while a crash may still take its name",
        Tests((f"{_CLEANER}test_power_loss_at_every_operation_leaves_a_start_that_works",)),
    ),
    Bug(
        "copies-count-before-checkpoints-name-them",
        "multiraft.storage.cold.cleaner",
        "Cleaner._pass",
        "if self._checkpointer.all_name(each)",
        "if True",
        "a source is free of records although a kept checkpoint does not name the copies",
        Tests((f"{_CLEANER}test_sources_go_and_their_records_are_read_from_the_copies",)),
    ),
    Bug(
        "any-entry-is-copied",
        "multiraft.storage.cold.copy_job",
        "CopyJob._take",
        "if entry is None or (",
        "if entry is None or False and (",
        "an entry that is not the committed one of its index becomes a record",
        Tests((f"{_CLEANER}test_a_copy_of_an_entry_of_another_term_is_no_record",)),
    ),
    Bug(
        "older-copy-counts",
        "multiraft.storage.cold.cleaner",
        "Cleaner._move",
        "and self._is_older(",
        "and bool(",
        "a record that was repaired while it was copied has its damaged place again",
        Tests((
            f"{_CLEANER}"
            "test_a_record_that_was_repaired_meanwhile_is_not_replaced_by_the_older_copy",
        )),
    ),
    Bug(
        "older-copy-counts-after-a-start",
        "multiraft.storage.recovery.cold_records",
        "_GroupRecords._take_place",
        "if in_journal >= copied_from:",
        "if False:",
        "a start reads the damaged copy in a cold segment, not the one that repair wrote",
        Tests((f"{_ANSWERS}test_a_damaged_record_is_repaired_and_its_copy_counts",)),
    ),
    Bug(
        "sources-answer-again-after-a-start",
        "multiraft.storage.recovery.cold_ranges",
        "choose",
        "for each in files if _range_of(each) not in taken]",
        "for each in files]",
        "two index files answer for a record, and its source stays for as long as it is needed",
        Tests((f"{_ANSWERS}test_sources_that_are_still_there_answer_nothing_after_a_start",)),
    ),
    Bug(
        "segment-is-free-because-it-was-copied",
        "multiraft.storage.cold.cleaner",
        "Cleaner._use",
        "for run in waiting.contents.runs.values():",
        "for each in waiting.sources:\n"
        "        for log in self._table.logs.values():\n"
        "            end = each + (1 << 12)\n"
        "            log.records.remove([at for at in log.records.indexes_within(each, end)\n"
        "                                if not any(at in run.indexes\n"
        "                                           for run in waiting.contents.runs.values())],\n"
        "                               log.raft_start)\n"
        "    for run in waiting.contents.runs.values():",
        "what was not copied, because it could not be read, goes with its source",
        Tests((f"{_CLEANER}test_a_record_that_cannot_be_read_keeps_its_source",)),
    ),
    Bug(
        "part-of-a-source-is-all-of-it",
        "multiraft.storage.cold.cleaner",
        "Cleaner._whole_sources",
        "if log is None or group in partial:",
        "if log is None:",
        "records for which a cold segment had no room are answered by nothing",
        Tests((
            "tests/storage/cold/test_cold_and_rows.py::"
            "test_a_cold_segment_without_room_leaves_rows_to_the_next",
        )),
    ),
    Bug(
        "damage-met-by-the-cleaner-is-passed-over",
        "multiraft.storage.cold.cleaner",
        "Cleaner.copied",
        "for each in job.damaged",
        "for each in job.damaged[:0]",
        "a record that the cleaner could not read is not repaired before a consumer needs it",
        Tests((f"{_CLEANER}test_a_record_that_cannot_be_read_keeps_its_source",)),
    ),
    Bug(
        "short-cold-segment-is-whole",
        "multiraft.storage.cold.contents",
        "scan",
        "if at >= length:",
        "if at >= len(view):",
        "records at the end of an unfinished or shortened file are not missed",
        Tests((
            "tests/storage/cold/test_cold_index.py::"
            "test_missing_bytes_at_the_end_are_damage_and_no_torn_tail",
        )),
    ),
    Bug(
        "cold-segment-goes-for-the-newest-checkpoint",
        "multiraft.storage.checkpointer",
        "Checkpointer.none_names",
        "any(kept.cold.has(number) for kept in self._kept)",
        "self._kept[-1].cold.has(number)",
        "a cold segment is deleted while a start from the older checkpoint needs it",
        Tests((f"{_CLEANER}test_a_cold_segment_goes_when_its_last_record_is_not_needed",)),
    ),
)
