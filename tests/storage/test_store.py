"""Rounds in, entries and batches out: the store without crashes."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.codec.layout import FORMAT_VERSION
from multiraft.errors import Compacted, UnknownGroup
from multiraft.raft.ready import Writes
from multiraft.storage.config import StorageConfig
from multiraft.storage.errors import (
    CorruptRange,
    DirectoryInUse,
    EntryTooLarge,
    OffsetTooLow,
    StaleIncarnation,
    WrongIdentity,
)
from multiraft.storage.identity import Identity
from multiraft.storage.journal.journal import Journal, SegmentHeader
from multiraft.storage.recovery.report import RecoveryProgress
from multiraft.storage.store import Store
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Configuration, Entry, EntryKind, HardState
from tests.storage.world import (
    IDENTITY,
    SMALL,
    VOTERS,
    Rounds,
    checkpoint,
    data_entry,
    noop_entry,
    open_entry,
    open_store,
    seal,
    write,
)

PARTITION = 900


@pytest.fixture
def rounds(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    yield Rounds(store)
    store.close()


def fill(rounds: Rounds, last: int, group: int = 1, partition: int = PARTITION) -> list[Entry]:
    """A no-op, an opening and one batch of two records per round up to index ``last``."""
    entries = [noop_entry(group, 1, 1), open_entry(group, 2, 1, partition)]
    rounds.run(write(group, *entries, hard_state=HardState(1, 1)))
    for index in range(3, last + 1):
        entry = data_entry(group, index, 1, partition, 2 * (index - 3),
                           [b"a%d" % index, b"b%d" % index], timestamp_ms=1000 * index)
        rounds.run(write(group, entry))
        entries.append(entry)
    return entries


def test_a_staged_entry_counts_before_it_is_written(rounds):
    entry = noop_entry(1, 1, 1)
    rounds.stage(write(1, entry))
    assert rounds.store.entries(1, 1, 1) == (entry,)
    assert rounds.store.durable_position == 0
    assert rounds.store.bytes_between(1, 1, 1) == 64


def test_recent_entries_are_served_from_memory_and_old_ones_by_a_plan(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory, _with(entry_cache_bytes_max=4000))
    store.create_group(1, 1, VOTERS)
    entries = fill(Rounds(store), 30)
    assert store.entries(1, 28, 30) == tuple(entries[27:])
    assert store.entries(1, 1, 30) is None
    found = store.read_job(1, 1, 30).execute()
    assert [bytes(entry.payload) for entry in found] == [bytes(each.payload) for each in entries]
    assert [entry.batch for entry in found] == [entry.batch for entry in entries]
    store.close()


def _with(**changes):
    return SMALL.__class__(**{name: changes.get(name, getattr(SMALL, name))
                              for name in SMALL.__dataclass_fields__})


def test_framed_entries_are_the_very_buffers_that_the_journal_got(rounds):
    fill(rounds, 5)
    entry = data_entry(1, 6, 1, PARTITION, 6, [b"mine"])
    staged = rounds.stage(write(1, entry))
    framed = rounds.store.framed(1, 6, 6)
    written = staged.parts[0].buffers if staged.native_ready else []
    assert framed[1] is entry.payload
    assert [id(buffer) for buffer in framed] == [id(buffer) for buffer in written[:3]]


def test_the_last_entries_can_never_be_cold_before_they_are_durable(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory, _with(entry_cache_bytes_max=0))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    entries = [noop_entry(1, index, 1) for index in range(1, 20)]
    staged = rounds.stage(write(1, *entries))
    assert store.entries(1, 1, 19) == tuple(entries)
    staged.execute()
    store.finish(staged)
    assert store.entries(1, 1, 19) is None
    store.close()


def test_finishing_one_round_leaves_the_next_ones_entries_in_memory(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory, _with(entry_cache_bytes_max=0))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    first = rounds.stage(write(1, noop_entry(1, 1, 1)))
    second = rounds.stage(write(1, noop_entry(1, 2, 1)))
    first.execute()
    store.finish(first)
    assert store.entries(1, 1, 2) is None
    assert store.entries(1, 2, 2) == (noop_entry(1, 2, 1),)
    second.execute()
    store.finish(second)
    assert store.read_job(1, 1, 2).execute() == (noop_entry(1, 1, 1), noop_entry(1, 2, 1))
    store.close()


def test_a_round_that_does_not_fit_rolls_over_and_keeps_its_order(rounds):
    entries = [noop_entry(1, index, 1) for index in range(1, 200)]
    staged = rounds.run(write(1, *entries))
    assert len(staged.parts) > 1
    assert rounds.store.read_job(1, 1, 199).execute() == tuple(entries)


def test_an_entry_over_the_limit_is_refused_and_changes_nothing(rounds):
    too_large = Entry(EntryKind.METADATA, 1, 1, 1, 1, payload=bytes(2048))
    with pytest.raises(EntryTooLarge, match="2112 bytes exceeds the limit of 2048"):
        rounds.stage(write(1, too_large))
    assert rounds.store.durable_position == 0
    rounds.sequence -= 1
    rounds.run(write(1, noop_entry(1, 1, 1)))


def test_a_round_for_an_unknown_group_is_refused(rounds):
    with pytest.raises(UnknownGroup):
        rounds.stage(write(5, noop_entry(5, 1, 1)))


def test_a_truncated_suffix_is_overwritten(rounds):
    fill(rounds, 10)
    new = [noop_entry(1, 6, 2), data_entry(1, 7, 2, PARTITION, 6, [b"new"])]
    rounds.run(write(1, *new, drop_from=6, hard_state=HardState(2, 2)))
    store = rounds.store
    assert store.entries(1, 6, 7) == tuple(new)
    assert store.last_within(1, 1, 1 << 30) == 7
    fetch = store.fetch(1, PARTITION, 6, 1 << 20, 1 << 30)
    assert (fetch.buffers, fetch.next_offset) == ([new[1].payload], 7)


def test_last_within_counts_headers_and_padding(rounds):
    rounds.run(write(1, *[noop_entry(1, index, 1) for index in range(1, 11)]))
    assert rounds.store.last_within(1, 3, 64 * 4) == 6
    assert rounds.store.last_within(1, 3, 1) == 3
    assert rounds.store.bytes_between(1, 3, 6) == 256


def test_an_index_below_the_first_is_compacted(rounds):
    fill(rounds, 3)
    for ask in (rounds.store.entries, rounds.store.framed):
        with pytest.raises(Compacted):
            ask(1, 0, 2)


# ---- fetch ---------------------------------------------------------------------------------------


def test_a_fetch_starts_with_the_batch_that_holds_the_offset(rounds):
    entries = fill(rounds, 10)
    for offset in (4, 5):
        fetch = rounds.store.fetch(1, PARTITION, offset, 1, 1 << 30)
        assert fetch.buffers == [entries[4].payload]
        assert fetch.next_offset == 6


def test_batches_are_told_with_index_and_size_from_the_one_that_holds_an_offset(rounds):
    entries = fill(rounds, 10)
    told = rounds.store.batches(1, PARTITION, 0, 100)
    assert told == [(entry.base_offset, entry.base_offset + entry.batch.count, entry.index,
                     len(entry.payload) + 7 & ~7) for entry in entries if entry.batch]
    for at, (base, end, _, _) in enumerate(told):
        for offset in range(base, end):
            assert rounds.store.batches(1, PARTITION, offset, 2) == told[at:at + 2]
    assert rounds.store.batches(1, PARTITION, told[-1][1], 1) == []
    assert rounds.store.batches(1, PARTITION + 1, 0, 1) == []


def test_a_fetch_ends_below_the_given_offset(rounds):
    fill(rounds, 10)
    store = rounds.store
    assert store.fetch(1, PARTITION, 0, 1 << 20, 7).next_offset == 6
    assert store.fetch(1, PARTITION, 6, 1 << 20, 7) == ([], None, 6, 0)
    assert store.fetch(1, PARTITION, 0, 1 << 20, 8).next_offset == 8


def test_a_fetch_takes_as_many_batches_as_fit(rounds):
    entries = fill(rounds, 10)
    size = len(entries[2].payload)
    fetch = rounds.store.fetch(1, PARTITION, 0, 3 * (size + 8), 1 << 30)
    assert len(fetch.buffers) == 3


def test_a_fetch_at_the_end_or_of_an_unknown_partition_is_empty(rounds):
    fill(rounds, 4)
    assert rounds.store.fetch(1, PARTITION, 4, 100, 1 << 30) == ([], None, 4, 0)
    assert rounds.store.fetch(1, PARTITION + 1, 0, 100, 1 << 30) == ([], None, 0, 0)


def test_a_fetch_below_the_first_offset_says_where_the_partition_begins(rounds):
    rounds.run(write(1, open_entry(1, 1, 1, PARTITION),
                     data_entry(1, 2, 1, PARTITION, 100, [b"x"])))
    with pytest.raises(OffsetTooLow, match="offset 99 is below the first, 100"):
        rounds.store.fetch(1, PARTITION, 99, 100, 1 << 30)


def test_a_cold_fetch_reads_and_verifies_and_ends_where_memory_begins(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory, _with(entry_cache_bytes_max=8000))
    store.create_group(1, 1, VOTERS)
    entries = fill(Rounds(store), 40)
    offset, batches = 0, []
    kinds = []
    while offset < 76:
        fetch = store.fetch(1, PARTITION, offset, 1 << 20, 1 << 30)
        kinds.append("cold" if fetch.job else "hot")
        batches += fetch.job.execute() if fetch.job else fetch.buffers
        offset = fetch.next_offset
    assert kinds == ["cold", "hot"]
    assert [bytes(each) for each in batches] == [bytes(entry.payload) for entry in entries[2:]]
    store.close()


def test_a_cold_read_opens_each_file_once_and_closes_it(disk, monkeypatch):
    """Two groups by turns, and no reading through gaps: each entry is a read of its own."""
    filesystem, directory = disk
    store = open_store(filesystem, directory, _with(entry_cache_bytes_max=0, read_gap_bytes_max=0))
    rounds = Rounds(store)
    for group in (1, 2):
        store.create_group(group, 1, VOTERS)
        rounds.run(write(group, noop_entry(group, 1, 1), open_entry(group, 2, 1, PARTITION)))
    for index in range(3, 20):
        for group in (1, 2):
            rounds.run(write(group, data_entry(group, index, 1, PARTITION, index - 3, [b"a"])))
    job = store.read_job(1, 1, 19)
    paths = [span.path for span in job.spans]
    assert len(paths) > 2 * len({*paths}), "several reads of each file"
    files, opening = [], type(filesystem).open

    def opened(self, path):
        files.append((path, opening(self, path)))
        return files[-1][1]

    monkeypatch.setattr(type(filesystem), "open", opened)
    assert [entry.index for entry in job.execute()] == list(range(1, 20))
    assert [path for path, _ in files] == list(dict.fromkeys(paths))
    for _, file in files:
        with pytest.raises(OSError):
            file.read(1, 0)
    store.close()


def test_a_cold_read_takes_what_is_not_written_yet_from_memory(disk):
    """A follower far behind asks for a range that begins on disk and ends in a round that is still
    being written."""
    filesystem, directory = disk
    store = open_store(filesystem, directory, replace(SMALL, entry_cache_bytes_max=0))
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    rounds.run(write(1, noop_entry(1, 1, 1)))
    rounds.stage(write(1, noop_entry(1, 2, 1)))
    assert store.entries(1, 1, 2) is None
    assert [entry.index for entry in store.read_job(1, 1, 2).execute()] == [1, 2]
    store.close()


def test_a_timestamp_leads_to_the_first_batch_that_reaches_it(rounds):
    fill(rounds, 10)
    first_at = rounds.store.first_at
    assert first_at(1, PARTITION, 0, 0, 100) == 0
    assert first_at(1, PARTITION, 4001, 0, 100) == 4
    assert first_at(1, PARTITION, 10001, 0, 100) is None


def test_a_timestamp_is_not_looked_for_below_the_log_start_or_above_what_is_committed(rounds):
    fill(rounds, 10)
    first_at = rounds.store.first_at
    assert first_at(1, PARTITION, 0, 7, 100) == 7, "inside a batch: its first records are gone"
    assert first_at(1, PARTITION, 4001, 4, 6) == 4
    assert first_at(1, PARTITION, 4001, 4, 5) is None, "its last record is not committed"


def test_where_timestamps_fall_again_the_answer_is_never_too_late(rounds):
    """The index has the highest timestamp so far: behind it may be batches that are older."""
    entries = [open_entry(1, 1, 1, PARTITION)]
    for number, stamp in enumerate((50, 90, 20, 70, 95)):
        entries.append(data_entry(1, number + 2, 1, PARTITION, number, [b"x"], stamp))
    rounds.run(write(1, *entries))
    first_at = rounds.store.first_at
    assert [first_at(1, PARTITION, stamp, 0, 5) for stamp in (50, 51, 90, 91, 95, 96)] == [
        0, 1, 1, 4, 4, None]
    assert first_at(1, PARTITION, 60, 2, 5) == 2, "offset 3 is the first; 2 cannot be ruled out"


def test_a_complaint_finds_damage_in_either_copy(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    fill(rounds, 4)
    assert store.verify_job(1, PARTITION, 99) is None
    assert store.verify_job(1, 77, 0) is None
    store.verify_job(1, PARTITION, 3).execute()
    payload = store.entries(1, 4, 4)[0].payload
    payload[-1] ^= 1  # of the cached copy only
    with pytest.raises(CorruptRange, match="memory"):
        store.verify_job(1, PARTITION, 3).execute()
    store.close()


def came_back(rounds) -> None:
    """Offsets 0 to 3 in group 1, 4 in group 2, 5 and 6 in group 1 again."""
    rounds.store.create_group(2, 1, VOTERS)
    first = [data_entry(1, at + 2, 1, PARTITION, at, [b"x"], at) for at in range(4)]
    rounds.run(write(1, open_entry(1, 1, 1, PARTITION), *first))
    rounds.run(write(2, open_entry(2, 1, 1, PARTITION),
                     data_entry(2, 2, 1, PARTITION, 4, [b"x"], 4)))
    rounds.run(write(1, *[data_entry(1, at + 1, 1, PARTITION, at, [b"x"], at) for at in (5, 6)]))


def test_a_partition_that_moved_away_and_back_is_read_link_by_link(rounds):
    came_back(rounds)
    fetch = rounds.store.fetch
    assert fetch(1, PARTITION, 0, 1 << 20, 4).next_offset == 4
    assert fetch(2, PARTITION, 4, 1 << 20, 5).next_offset == 5
    assert fetch(1, PARTITION, 5, 1 << 20, 7).next_offset == 7
    assert fetch(1, PARTITION, 4, 1 << 20, 7) == ([], None, 4, 0), "that is in group 2"
    assert rounds.store.verify_job(1, PARTITION, 4) is None
    assert rounds.store.verify_job(2, PARTITION, 4) is not None


def test_a_timestamp_is_found_in_the_link_that_is_asked_for(rounds):
    came_back(rounds)
    first_at = rounds.store.first_at
    assert first_at(1, PARTITION, 3, 0, 4) == 3
    assert first_at(1, PARTITION, 4, 0, 4) is None
    assert first_at(2, PARTITION, 4, 4, 5) == 4
    assert first_at(1, PARTITION, 4, 5, 7) == 5
    assert first_at(2, PARTITION + 1, 0, 0, 9) is None


# ---- segments ------------------------------------------------------------------------------------


def test_positions_lead_to_files_across_many_segments(rounds):
    entries = fill(rounds, 250)
    journal = rounds.store.table.journal
    assert len(journal.segments) > 3
    assert [segment.capacity for segment in journal.segments[:3]] == [4096, 8192, 8192]
    assert rounds.store.read_job(1, 1, 250).execute()[100].payload == entries[100].payload


def test_a_prepared_segment_is_used_when_its_turn_comes(rounds):
    jobs = 0
    for index in range(1, 200):
        job = rounds.store.create_segment_job()
        if job is not None:
            jobs += 1
            job.execute()
        staged = rounds.stage(write(1, noop_entry(1, index, 1)))
        assert staged.native_ready or index == 1
        staged.execute()
        rounds.store.finish(staged)
    journal = rounds.store.table.journal
    assert jobs == len(journal.segments) - (journal._next is None)


def test_small_rounds_write_zeros_ahead_and_large_ones_do_not(rounds):
    rounds.run(write(1, noop_entry(1, 1, 1)))
    assert rounds.stage(write(1, noop_entry(1, 2, 1))).bytes == 64
    rounds.run(write(1, *[noop_entry(1, index, 1) for index in range(3, 30)]))
    assert rounds.store.table.journal._active.zeroed == 64 + 29 * 64


def appends_with_zeros(node: int) -> list[int]:
    """Return the numbers of those of 3,000 equal appends that write zeros ahead on a node."""
    header = SegmentHeader(FORMAT_VERSION, 0, 0, bytes(16), node, 0)
    journal = Journal(SimulatedFilesystem(), "", header, (1, 2),
                      StorageConfig(zero_ahead_bytes=64 << 10))
    journal.resume([], 0, 0, 0, None)
    numbers = []
    for number in range(3000):
        placed = journal.place([noop_entry(1, number + 1, 1)])
        if any(len(data) > 64 for data in placed.parts[-1].buffers):
            numbers.append(number)
    return numbers


def test_nodes_whose_logs_grow_alike_write_zeros_at_different_appends():
    """A majority without zeros to write can answer for a node that writes them."""
    per_node = [appends_with_zeros(node) for node in range(1, 6)]
    assert all(len(numbers) in (3, 4) for numbers in per_node), per_node
    for numbers, others in itertools.combinations(per_node, 2):
        # from 1 on: a new file has no zeros on any node
        assert min(abs(one - other) for one in numbers[1:] for other in others[1:]) > 50


def metadata_entry(index: int) -> Entry:
    """A large one, for this configuration."""
    return Entry(EntryKind.METADATA, 1, 1, 1, index, payload=bytes(1700))


def test_small_rounds_between_large_ones_do_not_make_the_disk_write_twice(rounds):
    """A load of middling size is such a mixture: 1.8 times its bytes were written for it."""
    staged_bytes, journal = 0, rounds.store.table.journal
    for index in range(1, 200):
        entry = noop_entry(1, index, 1) if index % 4 == 0 else metadata_entry(index)
        staged_bytes += rounds.run(write(1, entry)).bytes
    written = sum(segment.end - segment.start - 64 for segment in journal.segments)
    assert staged_bytes < 1.05 * written


def test_small_rounds_write_zeros_ahead_again_once_large_ones_are_over(rounds):
    for index in range(1, 20):
        rounds.run(write(1, metadata_entry(index)))
    sizes = [rounds.run(write(1, noop_entry(1, index, 1))).bytes for index in range(20, 70)]
    assert sizes[0] == 64 and 64 < max(sizes) <= 64 + 512
    assert rounds.store.table.journal._active.zeroed % 512 == 0  # blocks are larger: no phase


def test_a_sealed_segment_gets_its_index_file(rounds):
    fill(rounds, 60)
    assert seal(rounds.store) == len(rounds.store.table.journal.segments) - 1
    assert rounds.store.damage == []


# ---- who may open a directory --------------------------------------------------------------------


def test_a_second_store_on_the_same_directory_is_refused(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    with pytest.raises(DirectoryInUse):
        open_store(filesystem, directory)
    store.close()
    open_store(filesystem, directory).close()


@pytest.mark.parametrize("identity", [Identity(bytes(16), 1, 5), Identity(IDENTITY.cluster, 2, 5)])
def test_the_directory_of_another_node_or_cluster_is_refused(disk, identity):
    filesystem, directory = disk
    open_store(filesystem, directory).close()
    with pytest.raises(WrongIdentity):
        open_store(filesystem, directory, identity=identity)
    open_store(filesystem, directory).close()


def test_every_open_starts_a_new_boot_epoch_in_the_same_incarnation(disk):
    filesystem, directory = disk
    for boot in range(1, 4):
        store = open_store(filesystem, directory, identity=Identity(IDENTITY.cluster, 1, 70 + boot))
        assert (store.boot_epoch, store.incarnation) == (boot, 71)
        store.close()


def test_a_group_is_not_created_in_an_older_incarnation(rounds):
    rounds.store.create_group(7, 3, VOTERS)
    with pytest.raises(StaleIncarnation):
        rounds.store.create_group(7, 2, VOTERS)


def test_a_later_incarnation_of_a_group_starts_empty(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    fill(rounds, 10)
    assert store.create_group(1, 2, VOTERS).bounds.last_index == 0
    assert store.fetch(1, PARTITION, 0, 100, 1 << 30).buffers == []
    rounds.run(write(1, noop_entry(1, 1, 1, incarnation=2), incarnation=2))
    store.close()
    store = open_store(filesystem, directory)
    assert store.groups[1].bounds.last_index == 1
    assert store.fetch(1, PARTITION, 0, 100, 1 << 30).buffers == []
    store.close()


# ---- restart -------------------------------------------------------------------------------------


def test_a_restart_finds_everything_and_goes_on(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    entries = fill(Rounds(store), 30)
    store.close()
    for last in range(30, 40):
        store = open_store(filesystem, directory)
        restored = store.groups[1]
        assert restored.bounds == (1, 0, last)
        assert restored.hard_state == HardState(1, 1)
        assert store.damage == []
        assert store.partition_states[1].next_offset(PARTITION) == 2 * (last - 2)
        entry = data_entry(1, last + 1, 1, PARTITION, 2 * (last - 2), [b"c", b"d"])
        Rounds(store).run(write(1, entry))
        entries.append(entry)
        store.close()
    store = open_store(filesystem, directory)
    found = store.read_job(1, 1, 40).execute()
    assert [bytes(each.payload) for each in found] == [bytes(each.payload) for each in entries]
    store.close()


def test_a_checkpoint_and_index_files_save_the_scan(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    entries = fill(Rounds(store), 200)
    tail = store.partition_states[1]
    for entry in entries:
        tail.append(entry)
    tail.apply(198)
    seal(store)
    checkpoint(store, {1: 199}, {"metadata": [1, 2, 3]})
    store.close()
    store = open_store(filesystem, directory)
    restored = store.groups[1]
    assert (restored.commit, restored.applied, restored.configuration) == (198, 198, VOTERS)
    assert store.extra == {"metadata": [1, 2, 3]}
    assert store.recovered.scanned_segments == 1
    assert store.recovered.indexed_segments >= 3
    assert store.partition_states[1].applied(PARTITION).next_offset == 2 * 196
    assert store.partition_states[1].next_offset(PARTITION) == 2 * 198
    assert store.fetch(1, PARTITION, 0, 1 << 20, 1 << 30).next_offset == 396
    store.close()


def test_recovery_tells_how_far_it_is(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    for group in (1, 2):
        store.create_group(group, 1, VOTERS)
    rounds = Rounds(store)
    fill(rounds, 200)
    rounds.run(write(2, noop_entry(2, 1, 1)))
    store.close()
    seen, progress = [], RecoveryProgress()

    class Watched(type(filesystem)):
        def open(self, path):
            if path.endswith(".segment"):
                seen.append((progress.segments_done, progress.segments_total))
            return super().open(path)

    filesystem.__class__ = Watched
    Store.open(directory, filesystem, IDENTITY, SMALL, progress).close()
    total = progress.segments_total
    assert total >= 3
    assert seen[:3] == [(0, total), (1, total), (2, total)], "it is told while it happens"
    assert progress == RecoveryProgress(total, total, 2, 2)


def test_a_checkpoint_does_not_call_committed_what_a_crash_may_replace(simulated):
    """Index 2 is replaced and committed in memory when the checkpoint is written; the replacement
    is lost in a crash, and the entry that was there before must not come back as committed."""
    store = open_store(simulated, "/node")
    store.create_group(1, 1, VOTERS)
    rounds = Rounds(store)
    old = [noop_entry(1, 1, 1), noop_entry(1, 2, 1)]
    rounds.run(write(1, *old, hard_state=HardState(1, 0)))
    for entry in old:
        store.partition_states[1].append(entry)
    store.partition_states[1].apply(1)
    store.partition_states[1].truncate(2)
    store.partition_states[1].append(noop_entry(1, 2, 2))
    checkpoint(store, commits={1: 2})
    simulated.power_loss(random.Random(1))
    restored = open_store(simulated, "/node").groups[1]
    assert (restored.term_runs, restored.commit) == (((1, 1),), 1)


def test_an_unchanged_group_is_not_encoded_again(rounds):
    fill(rounds, 5)
    rounds.store.create_group(2, 1, VOTERS)
    checkpoint(rounds.store)
    rounds.run(write(1, noop_entry(1, 6, 1), hard_state=HardState(2, 0)))
    job = rounds.store.checkpoint_job({}, None)
    assert isinstance(job._records[2], bytes)
    assert not isinstance(job._records[1], bytes)


def test_a_checkpoint_is_due_by_growth_of_the_journal(rounds):
    assert not rounds.store.checkpoint_due
    fill(rounds, 60)
    assert rounds.store.checkpoint_due
    checkpoint(rounds.store)
    assert not rounds.store.checkpoint_due


@pytest.mark.parametrize("known, found, merged", [
    ((5, 0), (5, 2), (5, 2)), ((5, 2), (5, 0), (5, 2)), ((5, 2), (4, 3), (5, 2)),
    ((5, 2), (6, 0), (6, 0))])
def test_a_hard_state_never_takes_back_a_term_or_a_vote(known, found, merged):
    log = StoredLog(1, 1)
    log.merge_hard_state(HardState(*known))
    log.merge_hard_state(HardState(*found))
    assert log.hard_state == HardState(*merged)


def test_a_configuration_that_the_disk_does_not_know_is_filled_in(disk):
    filesystem, directory = disk
    store = open_store(filesystem, directory)
    store.create_group(1, 1, VOTERS)
    Rounds(store).run(write(1, noop_entry(1, 1, 1)))
    store.close()
    store = open_store(filesystem, directory)
    assert store.groups[1].configuration == Configuration(())
    assert store.create_group(1, 1, VOTERS).configuration == VOTERS
    assert store.groups[1].bounds.last_index == 1
    store.close()


def test_writes_of_no_group_are_a_round_too(rounds):
    rounds.run()
    assert rounds.store.stage(Writes(2, ())).parts == []
