"""Builders of storage tests' rounds: small batches, groups, stores on a filesystem."""

from __future__ import annotations

from functools import partial

from multiraft import core
from multiraft.partitions.state import open_payload
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.storage.config import StorageConfig
from multiraft.storage.errors import BlockNotCached
from multiraft.storage.identity import Identity
from multiraft.storage.record_store import EntryPlace
from multiraft.storage.store import Store
from multiraft.types import Configuration, Entry, EntryKind, HardState

IDENTITY = Identity(bytes(range(16)), 1, 77)
VOTERS = Configuration((1, 2, 3))

#: Small enough that rolling over, zero-filling and checkpoints happen within a few rounds.
SMALL = StorageConfig(entry_bytes_max=2048, first_segment_bytes=4096, segment_bytes_max=8192,
                      zero_ahead_bytes=512, zero_ahead_round_bytes_max=1024,
                      entry_cache_bytes_max=1 << 20, checkpoint_bytes=4096)


def batch(base_offset: int, values: list[bytes], timestamp_ms: int = 1000) -> bytearray:
    builder = core.BatchBuilder(1 << 20)
    for value in values:
        assert builder.append(timestamp_ms, None, value)
    data = builder.build()
    core.stamp_batch(data, base_offset, 1)
    return data


def data_entry(group: int, index: int, term: int, partition: int, base_offset: int,
               values: list[bytes], timestamp_ms: int = 1000, incarnation: int = 1) -> Entry:
    payload = batch(base_offset, values, timestamp_ms)
    return Entry(EntryKind.DATA, group, incarnation, term, index, partition, base_offset, payload,
                 core.batch_info(payload))


def open_entry(group: int, index: int, term: int, partition: int, incarnation: int = 1) -> Entry:
    return Entry(EntryKind.PARTITION_OPEN, group, incarnation, term, index, partition, -1,
                 open_payload(1))


def noop_entry(group: int, index: int, term: int, incarnation: int = 1) -> Entry:
    return Entry(EntryKind.NOOP, group, incarnation, term, index)


def write(group: int, *entries: Entry, drop_from: int = 0, hard_state: HardState | None = None,
          incarnation: int = 1) -> GroupWrite:
    return GroupWrite(group, incarnation, drop_from, tuple(entries), hard_state)


def open_store(filesystem, directory: str, config: StorageConfig = SMALL,
               identity: Identity = IDENTITY) -> Store:
    return Store.open(directory, filesystem, identity, config)


class Rounds:
    """Stages, executes and finishes rounds on a store, counting sequences."""

    def __init__(self, store: Store):
        self.store = store
        self.sequence = store.table.staged_sequence

    def stage(self, *writes: GroupWrite):
        self.sequence += 1
        return self.store.stage(Writes(self.sequence, tuple(writes)))

    def run(self, *writes: GroupWrite):
        staged = self.stage(*writes)
        staged.execute()
        self.store.finish(staged)
        return staged


def checkpoint(store: Store, commits: dict | None = None, extra=None) -> None:
    job = store.checkpoint_job(commits or {}, extra)
    job.execute()
    store.checkpointed(job)


def seal(store: Store) -> int:
    """Write all index files that are due; how many."""
    count = 0
    while (job := store.seal_job()) is not None:
        job.execute()
        store.sealed(job)
        count += 1
    return count


def release(store: Store) -> int:
    """Let index files answer for all records that they can; how many segments' files were read."""
    count = 0
    while (job := store.summary_job()) is not None:
        job.execute()
        for _ in store.release(job):
            pass
        count += 1
    return count


def looked_up(store: Store, look_up):
    """Return what ``look_up`` returns, once all blocks of index files that it needs were read."""
    while True:
        try:
            return look_up()
        except BlockNotCached as error:
            job = store.block_job(error)
            job.execute()
            store.block_read(job)


def records(store: Store, group: int) -> dict[int, EntryPlace]:
    """Index -> place of the records of a group, those that are in index files alone included."""
    log, indexed = store.table.logs[group], store.table.indexed
    found = {}
    for batches in log.partitions.values():
        look_up = partial(batches.batches_from, 0, indexed.blocks)
        for batch in looked_up(store, lambda found=look_up: [*found()]):
            if batch.index >= log.raft_start:
                continue
            place = batch.place
            found[batch.index] = log.locate(batch.index) if place is None else EntryPlace(
                log.records.term(batch.index),
                indexed.with_number(place.file).segment.start + place.position, place.size)
    return dict(sorted(found.items()))
