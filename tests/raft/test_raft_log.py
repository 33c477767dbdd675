"""GroupLog against a plain list, with writes in flight and suffixes dropped under them."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import Compacted
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.raft_log import RaftLog, framed_bytes
from tests.raft.solo import entry

EMPTY = LogBounds(1, 0, 0)


def log_of(*terms: int) -> RaftLog:
    runs = tuple((index, term) for index, term in enumerate(terms, 1)
                 if index == 1 or terms[index - 2] != term)
    return RaftLog(LogBounds(1, 0, len(terms)), runs, 0, 0)


@dataclass
class Model:
    """Model of a log: entries, staged entries, and a disk that executes writes in order."""

    memory: list = field(default_factory=list)  # (term, id), id unique per entry
    staged: int = 0
    disk: list = field(default_factory=list)
    queue: list = field(default_factory=list)

    def durable(self) -> int:
        """Entries of memory whose very bytes are on the disk."""
        count = 0
        for mine, other in zip(self.memory[:self.staged], self.disk, strict=False):
            if mine != other:
                break
            count += 1
        return count


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["append", "term", "truncate", "take", "write"]),
                          st.integers(0, 6)), max_size=60))
def test_durable_is_exactly_what_the_disk_has(steps):
    log, model, term, serial, sequence = RaftLog(EMPTY, (), 0, 0), Model(), 1, 0, 0
    drop = None
    for step, number in steps:
        if step == "append":
            serial += 1
            log.append(entry(len(model.memory) + 1, term))
            model.memory.append((term, serial))
        elif step == "term":
            term += number
        elif step == "truncate" and number < len(model.memory):
            log.truncate(number + 1)
            del model.memory[number:]
            if number < model.staged:
                model.staged = number
                drop = number if drop is None else min(drop, number)
        elif step == "take":
            sequence += 1
            drop_from, entries = log.take(sequence)
            assert drop_from == (0 if drop is None else drop + 1)
            assert [item.index for item in entries] == list(
                range(model.staged + 1, len(model.memory) + 1))
            model.queue.append((sequence, drop, model.memory[model.staged:]))
            drop, model.staged = None, len(model.memory)
        elif step == "write" and model.queue:
            done, dropped, added = model.queue.pop(0)
            if dropped is not None:
                del model.disk[dropped:]
            model.disk += added
            log.written(done)
        log._check()
        assert log.last_index == len(model.memory)
        assert [log.term_at(index) for index in range(1, log.last_index + 1)] == [
            at for at, _ in model.memory]
        assert log.durable_index <= model.durable(), "vouches for bytes that are not there"
        if not model.queue:
            assert log.durable_index == model.durable()


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), max_size=12).map(sorted), st.integers(0, 14), st.integers(0, 6))
def test_last_not_above_is_the_last_entry_that_may_match(terms, index, term):
    expected = (0, 0)
    for at, of in enumerate(terms, 1):
        if at <= index and of <= term:
            expected = (at, of)
    assert log_of(*terms).last_not_above(index, term) == expected


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=12).map(sorted), st.data())
def test_compaction_forgets_a_prefix_and_nothing_else(terms, data):
    first = data.draw(st.integers(1, len(terms) + 1))
    log = log_of(*terms)
    log.commit_to(len(terms))
    log.emitted_index = log.applied_index = len(terms)
    log.compact(first)
    log._check()
    for index in range(max(1, first - 1), len(terms) + 1):
        assert log.term_at(index) == terms[index - 1]
    if first > 2:
        with pytest.raises(Compacted):
            log.term_at(first - 2)
    log.append(entry(len(terms) + 1, 9))
    log._check()
    assert log.term_at(len(terms) + 1) == 9


def test_a_committed_entry_is_never_dropped():
    log = log_of(1, 1, 2)
    log.commit_to(2)
    with pytest.raises(AssertionError, match="commit 2"):
        log.truncate(2)
    log.truncate(3)


def test_the_commit_index_never_goes_back():
    log = log_of(1, 1, 1)
    assert log.commit_to(2)
    assert not log.commit_to(1)
    assert log.commit == 2


def test_the_first_of_two_overlapping_writes_vouches_for_nothing_rewritten():
    """Scenario S28e with its numbers: 5..7 of term 2 in flight, rewritten as 5..6 of term 3."""
    log = log_of(1, 1, 1, 1)
    for index in (5, 6, 7):
        log.append(entry(index, 2))
    log.take(1)
    log.truncate(5)
    for index in (5, 6):
        log.append(entry(index, 3))
    assert log.take(2)[0] == 5
    log.written(1)
    assert log.durable_index == 4
    log.written(2)
    assert log.durable_index == 6


def test_sizes_are_header_payload_and_padding():
    assert [framed_bytes(entry(1, 1, b"x" * size)) for size in (0, 1, 8, 9)] == [64, 72, 72, 80]


def test_terms_from_storage_begin_where_the_log_does():
    """Storage keeps the bytes of compacted entries, and includes their terms."""
    log = log_of(1, 1, 2, 2, 5)
    log.commit = log.emitted_index = log.applied_index = 5
    log.compact(4)
    log.reload_terms(((1, 1), (3, 2), (5, 5)))
    log._check()
    assert [log.term_at(index) for index in (3, 4, 5)] == [2, 2, 5]
    log.compact(6)
    log.reload_terms(((1, 1), (3, 2), (5, 5)))
    log._check()
    assert log.last_term == 5


def test_terms_that_a_store_knows_better_end_where_the_log_does():
    """The store has a dropped suffix until the drop is staged."""
    log = RaftLog(LogBounds(1, 0, 6), ((1, 1), (5, 3)), 2, 2)
    log.truncate(5)
    log.reload_terms(((1, 1), (3, 2), (5, 3)))
    log._check()
    assert (log.last_index, log.last_term) == (4, 2)
    assert log.term_runs() == ((1, 1), (3, 2))


@pytest.mark.parametrize(("mine", "theirs", "last", "common"), [
    ((1, 1, 2, 2), (1, 1, 2, 2, 3), 5, 4),
    ((1, 1, 2, 2), (1, 1, 2, 2, 3), 3, 3),
    ((1, 1, 2, 2), (1, 1, 3, 3, 3), 5, 2),  # the later term began behind the last common entry
    ((1, 1, 1, 4), (1, 1, 2, 2, 5), 5, 2),
    ((1, 2, 3, 3), (1, 4, 4, 4, 4), 5, 1),
    ((2, 2), (1, 1, 3), 3, 0),
    ((1, 1, 2, 2), (0, 0, 2, 2, 3), 5, 4),
    ((1, 1, 1, 1), (0, 0, 2, 2, 3), 5, 0),  # terms that are not known agree with none
])
def test_the_last_common_entry_of_two_logs(mine, theirs, last, common):
    runs = log_of(*theirs).term_runs()
    assert log_of(*mine).common_index(runs, last) == common


def test_committed_entries_are_common_to_all_logs():
    log = log_of(1, 1, 2)
    log.commit_to(2)
    assert log.common_index([(3, 4)], 3) == 2


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.lists(st.integers(0, 2), max_size=8),
       st.lists(st.integers(0, 2), max_size=8), st.integers(1, 20))
def test_logs_of_different_leaders_agree_in_the_prefix_that_they_share(prefix, mine, theirs, last):
    def terms(steps: list[int], first: int) -> list[int]:
        return [first + 2 * sum(steps[:at + 1]) for at in range(len(steps))]

    shared = terms(prefix, 2)
    one, other = shared + terms(mine, shared[-1] + 1), shared + terms(theirs, shared[-1] + 2)
    assert log_of(*one).common_index(log_of(*other).term_runs(), last) == min(last, len(shared))
