"""Compaction by key in a store: what is read afterwards is what the definition leaves."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft import core
from multiraft.partitions.retention_records import Compaction, compact_payload
from multiraft.storage import store
from multiraft.storage.cold import cleaner
from multiraft.storage.compaction import marking
from multiraft.storage.compaction.marking import Order
from multiraft.types import Entry, EntryKind
from tests.storage.cold.test_cleaner import executed
from tests.storage.cold.test_cold_and_rows import Cleaned, cleans, work
from tests.storage.compaction.test_marking import PLAIN, batch_of, survivors
from tests.storage.test_indexed_records import GROUPS, compacted, group, others, partitions, runs
from tests.storage.test_installed_rows import page_cache
from tests.storage.world import seal

MEMORY = 1 << 20


class Compacting(Cleaned):
    """A history of a store whose partitions are compacted by key as well."""

    def __init__(self, *arguments) -> None:
        self.carried_out: dict[tuple[int, int], Order] = {}
        self.puts = 0
        self.keys = 5
        super().__init__(*arguments)

    def put(self, group: int, at: int, size: int) -> None:
        """A batch of one to three records; each fifth of them is a tombstone."""
        partition = partitions(group)[at]
        base = self.store.partition_states[group].next_offset(partition)
        records = []
        for _ in range(1 + size % 3):
            self.puts += 1
            value = None if self.puts % 5 == 4 else b"%d" % self.puts * (1 + size % 40)
            records.append((b"k%d" % (self.puts * 7 % self.keys), value))
        payload = batch_of(PLAIN, records, base)
        self.append(group, Entry(EntryKind.DATA, group, 1, self.terms[group],
                                 self.next_index(group), partition, base, payload,
                                 core.batch_info(payload)))

    def order(self, group: int, at: int, kept: int) -> None:
        """A compact entry up to all but the last ``kept`` + 1 applied batches."""
        partition = partitions(group)[at]
        self.apply(group, 0)
        last = self.store.partition_states[group].applied(partition).compaction
        ends = [entry.base_offset for entry in self.batches(group, partition)][:-1 - kept]
        up_to = max(last.up_to, ends[-1] if ends else 0)
        payload = compact_payload(Compaction(last.generation + 1, up_to, last.up_to))
        self.append(group, Entry(EntryKind.COMPACT, group, 1, self.terms[group],
                                 self.next_index(group), partition, payload=payload))
        self.apply(group, 0)
        self.store.compactor.ordered(group, partition)

    def carry_out(self, memory_bytes: int = MEMORY) -> int:
        """Each compaction that can be carried out now; return their number."""
        compactor, count = self.store.compactor, 0
        work(self)
        while (found := compactor.next_marking(memory_bytes)) is not None:
            while not found.is_done:
                found.step()
            key, order, _ = compactor._current
            compactor.marked()
            while compactor.sources.segments:
                self.copy_some()
            while not compactor.is_carried_out:
                work(self)
            assert compactor.finish() != found.is_partial
            count += 1
            if not found.is_partial:
                self.carried_out[key] = order
                assert compactor.carried_out(*key) < order.generation, "checkpoints lack it"
                work(self)
                assert compactor.carried_out(*key) == order.generation
        return count

    def copy_some(self) -> None:
        compactor, cleaner = self.store.compactor, self.store.cleaner
        sources, compaction = compactor.sources, compactor.compaction
        surveys = [executed(self.store, job) for job in cleaner.surveys(sources, compaction)]
        job = cleaner.copy_job(sources, surveys, compaction)
        done = frozenset(cleaner.compacted_sources)
        while job is not None and not job.is_done:
            job.step()
        assert job is None or not cleaner.copied(job)
        assert compactor.copied(done, job.header.number if job is not None else None)

    def order_and_carry_out(self, group: int, at: int, kept: int) -> None:
        self.order(group, at, kept)
        self.carry_out()

    def batches(self, group: int, partition: int) -> list[Entry]:
        order = self.carried_out.get((group, partition))
        known = super().batches(group, partition)
        if order is None:
            return known
        every = {entry.base_offset: entry for entry in self.logs[group]
                 if entry.batch is not None and entry.partition == partition}
        left = {core.batch_header(payload).base_offset: payload for payload in survivors(
            [bytes(every[base].payload) for base in sorted(every)], order)}
        return [Entry(entry.kind, entry.group, 1, entry.term, entry.index, partition,
                      entry.base_offset, left[entry.base_offset],
                      core.batch_info(left[entry.base_offset]))
                for entry in known if entry.base_offset in left]


orders = st.one_of(
    st.tuples(st.just("order"), group, st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("order_and_carry_out"), group, st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("order_and_carry_out"), group, st.integers(0, 2), st.integers(0, 4)),
    st.tuples(st.just("carry_out")))
kept = others.filter(lambda each: each[0] != "elect")
scripts = st.lists(st.one_of(runs, st.one_of(kept, cleans, orders).map(lambda each: [each])),
                   max_size=30).map(lambda parts: [each for part in parts for each in part])
FILLED = [("put", 1 + at % 2, at % 3, 1 + at % 50) for at in range(90)]
BELOW = [("apply", 1, 0), ("apply", 2, 0), ("compact", 1, 0), ("compact", 2, 0)]


@pytest.mark.parametrize("resident", [True, False])
@given(script=scripts)
@example([*FILLED, *BELOW, ("release",), ("order_and_carry_out", 1, 0, 1)])
@example([*FILLED, *BELOW, ("release",), ("order", 1, 0, 1), ("order", 1, 1, 0), ("order", 2, 2, 3),
          *BELOW, ("carry_out",), ("remove",), ("restart",), ("carry_out",), ("remove",)])
@settings(deadline=None, max_examples=25)
def test_what_is_read_is_what_survives(resident, script):
    with page_cache(resident):
        history = Compacting()
        for what, *how in script:
            getattr(history, what)(*how)
        history.check()
        compacted(history)
        history.release()
        history.carry_out()
        history.check()
        history.restart()
        history.check()


def filled() -> Compacting:
    """A history of some segments, everything below the Raft start and in index files."""
    history = Compacting()
    for at in range(150):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    for each in GROUPS:
        history.order(each, 0, 2)
    for at in range(40):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    compacted(history)
    history.release()
    return history


def test_compaction_leaves_the_newest_record_of_each_key():
    history = filled()
    before = history.batches(1, 10)
    assert history.carry_out() == 2 and history.store.compactor.waiting == 0
    assert len(history.batches(1, 10)) <= len(before) / 2
    history.check()
    history.remove()
    history.restart()
    history.check()
    assert history.store.compactor.waiting == 0 and history.carry_out() == 0
    work(history)
    assert history.store.compactor.carried_out(1, 10) == 1


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_was_dropped_does_not_return_with_a_start(in_memory, monkeypatch):
    """Without the index file of a cold segment, its sources are read once more.  An older record of
    a key would return, without the tombstone that a later compaction drops."""
    monkeypatch.setattr(cleaner, "_ranges_by_group", lambda _sources: {})
    history = Compacting()
    for at in range(150):
        history.put(GROUPS[at % 2], at % 3, at % 60)
    history.order(1, 0, 2)
    compacted(history)
    seal(history.store)
    if not in_memory:
        history.release()
    log = history.store.table.logs[1]
    assert bool(log.records._ranges) != in_memory
    assert history.carry_out() == 1
    assert log.records.compacted[10].sources
    history.check()
    history.restart()
    history.check()
    history.release()
    history.clean()
    history.work()
    history.remove()
    history.check()
    history.restart()
    history.check()


def test_what_was_dropped_would_return_if_no_checkpoint_named_its_sources(monkeypatch):
    monkeypatch.setattr(store, "drop_from_sources", lambda _table: None)
    with pytest.raises(AssertionError):
        test_what_was_dropped_does_not_return_with_a_start(False, monkeypatch)


def test_sources_that_are_gone_are_not_named_any_longer():
    history = filled()
    history.carry_out()
    assert history.store.table.logs[1].records.compacted[10].sources
    for _ in range(4):
        history.clean()
        history.work()
        history.remove()
    part = history.store.table.logs[1].records.compacted[10]
    known = [each.start for each in history.store.table.journal.segments]
    assert part.generation == 1 and not {*part.sources} - {*known}


def test_little_memory_needs_several_compactions(monkeypatch):
    monkeypatch.setattr(marking, "BATCH_BYTES", 300)
    history = filled()
    assert history.carry_out(7 << 10) > 5
    history.check()


def test_nothing_is_compacted_above_the_raft_start():
    history = Compacting()
    for at in range(60):
        history.put(1, 0, at)
    history.apply(1, 0)
    history.order(1, 0, 2)
    assert history.carry_out() == 0 and history.store.compactor.waiting == 1
    history.check()
