"""One group's log as consensus sees it: indexes and terms, without bytes.

Contract.  Entries stay here until ``take`` gives them to the driver; from then on only their terms
are kept, as runs.  The caller obeys Raft: it never truncates at or below ``commit``.

Invariants.  prev <= applied <= emitted <= min(commit, durable); durable <= staged <= last; commit
<= last; run starts and run terms ascend; unstaged entries are staged + 1 .. last.

Theory.  A group changes its term when it changes its leader, so there are as many (first index,
term) runs as elections, and one bisection finds the term of any index.  ``_writing`` records the
last index of each write in flight.  ``truncate`` lowers these at once: an index that is written
again belongs to another entry, and the completion of the first write must not report the second as
durable (etcd-io/raft's aba_race; scenario S28e).

Elsewhere.  Bytes and sizes: storage, behind ``log_reader.LogReader``.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from multiraft.codec import layout
from multiraft.errors import Compacted
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.types import Entry

_ALIGN = layout.ENTRY_ALIGNMENT - 1


def framed_bytes(entry: Entry) -> int:
    """Return the bytes of an entry in a frame and in the journal: header, payload, padding."""
    return (layout.ENTRY_HEADER_BYTES + len(entry.payload) + _ALIGN) & ~_ALIGN


class RaftLog:
    """Indexes and terms of one group's entries.

    ``last_index``      last entry, staged or not
    ``staged_index``    last entry given to the driver for writing
    ``durable_index``   last entry known to be on this node's disk
    ``commit``          highest index known to be committed; may exceed ``durable_index``
    ``emitted_index``   highest index given to the driver for applying
    ``applied_index``   highest index that the driver has reported as applied
    ``terms_from``      lowest index whose term is known; those before may be lower than the true
                        ones, because these entries were lost and other members have compacted them
    """

    __slots__ = ("first_index", "prev_term", "terms_from", "last_index", "last_term",
                 "staged_index", "durable_index", "commit", "emitted_index", "applied_index",
                 "drop_from", "unstaged", "unstaged_bytes", "_run_starts", "_run_terms", "_writing")

    def __init__(self, bounds: LogBounds, term_runs: tuple[tuple[int, int], ...], commit: int,
                 applied: int, guessed_through: int = 0):
        """``guessed_through``: last index whose term is a guess; 0 = none."""
        self.first_index = bounds.first_index
        self.prev_term = bounds.prev_term
        self.terms_from = max(bounds.first_index - 1, guessed_through and guessed_through + 1)
        self.last_index = bounds.last_index
        self._run_starts = array("Q", [start for start, _ in term_runs])
        self._run_terms = array("Q", [term for _, term in term_runs])
        self.last_term = self._run_terms[-1] if term_runs else bounds.prev_term
        self.staged_index = self.durable_index = bounds.last_index
        self.commit = max(commit, bounds.first_index - 1)
        self.emitted_index = self.applied_index = max(applied, bounds.first_index - 1)
        #: First index removed by truncation since the last ``take``; 0 = none.
        self.drop_from = 0
        self.unstaged: list[Entry] = []
        self.unstaged_bytes = 0
        #: (sequence, last index) of writes in flight, oldest first.
        self._writing: deque[tuple[int, int]] = deque()
        self._check()

    @classmethod
    def restore(cls, restored: GroupRestored) -> RaftLog:
        """Return the log that recovery found."""
        return cls(restored.bounds, restored.term_runs, restored.commit, restored.applied,
                   restored.guessed_through)

    # ---- terms --------------------------------------------------------------------------------

    def term_at(self, index: int) -> int:
        """Return the term of the entry at ``index``, from ``first_index - 1`` to ``last_index``.
        Raises ``Compacted`` below.  O(log elections)."""
        assert index <= self.last_index, f"term of {index}, last is {self.last_index}"
        if index < self.first_index:
            if index == self.first_index - 1:
                return self.prev_term
            raise Compacted(f"index {index} is below the first index {self.first_index}")
        if index >= self._run_starts[-1]:
            return self.last_term
        return self._run_terms[bisect_right(self._run_starts, index) - 1]

    def matches(self, index: int, term: int) -> bool:
        """True if the log is known to contain (index, term); False also for a compacted index."""
        if index == self.last_index:
            return term == self.last_term
        return self.first_index - 1 <= index <= self.last_index and self.term_at(index) == term

    def up_to_date(self, last_index: int, last_term: int) -> bool:
        """True if a log that ends at (last_index, last_term) is at least as up to date as this one,
        so that its owner may win this voter's vote (paper 5.4.1)."""
        return (last_term, last_index) >= (self.last_term, self.last_index)

    def last_not_above(self, index: int, term: int) -> tuple[int, int]:
        """Return (index, term) of the last entry at or below ``index`` with a term of at most
        ``term``.

        That is the last entry that may match a log which contains (index, term) (etcd-io/raft,
        findConflictByTerm).  If there is none, return the entry before the first, or (0, 0)."""
        before = (self.first_index - 1, self.prev_term)
        index = min(index, self.last_index)
        if index < self.first_index:
            return before
        # Terms ascend along the log, so two bisections over the runs replace a walk over the
        # entries.
        run = bisect_right(self._run_starts, index) - 1
        if self._run_terms[run] <= term:
            return index, self._run_terms[run]
        run = bisect_right(self._run_terms, term, 0, run) - 1
        if run < 0:
            return before
        return self._run_starts[run + 1] - 1, self._run_terms[run]

    def common_index(self, runs: Sequence[tuple[int, int]], last: int) -> int:
        """Return the highest index up to which this log and another one, of committed entries up to
        ``last``, agree: at least ``commit``.  ``runs``: (first index, term) of that other log.

        Two logs with an entry of equal index and term agree up to it (paper 5.3).  Of two terms at
        an index the later one began behind the last common entry.  O(runs log runs)."""
        index = min(last, self.last_index)
        while index > self.commit:
            term = self.term_at(index)
            run = bisect_right(runs, (index, 1 << 64)) - 1
            start, other = runs[run] if run >= 0 else (0, 0)
            if term == other:
                return index
            if term > other:
                start = max(self.first_index,
                            self._run_starts[bisect_right(self._run_starts, index) - 1])
            index = start - 1
        return self.commit

    def term_runs(self) -> tuple[tuple[int, int], ...]:
        """Return (first index, term) of each run of entries of equal term, ascending."""
        return tuple(zip(self._run_starts, self._run_terms, strict=True))

    # ---- change -------------------------------------------------------------------------------

    def append(self, entry: Entry) -> None:
        """Add the next entry, which the next ``take`` stages."""
        assert entry.index == self.last_index + 1, f"{entry!r} after {self.last_index}"
        term = entry.term
        if term != self.last_term or not self._run_starts:
            assert term >= self.last_term, f"{entry!r} after term {self.last_term}"
            self._run_starts.append(entry.index)
            self._run_terms.append(term)
            self.last_term = term
        self.last_index = entry.index
        self.unstaged.append(entry)
        self.unstaged_bytes += framed_bytes(entry)

    def truncate(self, first_gone: int) -> None:
        """Remove the entries from ``first_gone`` on: unstaged, in a write, or durable.  The next
        ``take`` names the truncation, unless all of them were unstaged."""
        assert self.commit < first_gone <= self.last_index, (
            f"truncation at {first_gone}, commit {self.commit}, last {self.last_index}")
        if first_gone <= self.staged_index:
            # A write has contained them: the next write must record that they are removed.
            self.drop_from = min(self.drop_from or first_gone, first_gone)
            self.staged_index = first_gone - 1
            self.unstaged.clear()
        else:
            del self.unstaged[first_gone - self.staged_index - 1:]
        self.unstaged_bytes = sum(map(framed_bytes, self.unstaged))
        # The truncation race: a write in flight still contains the removed entries.  Its completion
        # must not make the entries durable that take their indexes, so its end is lowered now.
        self.durable_index = min(self.durable_index, first_gone - 1)
        self._writing = deque((sequence, min(last, first_gone - 1))
                              for sequence, last in self._writing)
        while self._run_starts and self._run_starts[-1] >= first_gone:
            self._run_starts.pop()
            self._run_terms.pop()
        self.last_index = first_gone - 1
        self.last_term = self._run_terms[-1] if self._run_terms else self.prev_term

    def take(self, sequence: int) -> tuple[int, tuple[Entry, ...]]:
        """Return (first removed index or 0, entries) for the write ``sequence``, and mark them as
        staged."""
        drop_from, entries = self.drop_from, tuple(self.unstaged)
        if entries:
            self.unstaged.clear()
            self.unstaged_bytes = 0
            self.staged_index = self.last_index
        self.drop_from = 0
        # Also without entries: the write of a truncation or a hard state is in flight as well.
        self._writing.append((sequence, self.staged_index))
        return drop_from, entries

    def written(self, sequence: int) -> bool:
        """Record that writes up to ``sequence`` are durable.  True if ``durable_index``
        increased."""
        before = self.durable_index
        while self._writing and self._writing[0][0] <= sequence:
            self.durable_index = max(self.durable_index, self._writing.popleft()[1])
        return self.durable_index > before

    @property
    def is_writing(self) -> bool:
        """True if a write of this group is in flight."""
        return bool(self._writing)

    def commit_to(self, index: int) -> bool:
        """Raise ``commit`` to ``index``; a lower index is ignored.  True if ``commit``
        increased."""
        assert index <= self.last_index, f"commit {index}, last {self.last_index}"
        if index <= self.commit:
            return False
        self.commit = index
        return True

    def reload_terms(self, term_runs: tuple[tuple[int, int], ...]) -> None:
        """Replace the term runs by those that storage has for the same entries; do nothing while
        entries are unstaged.

        Storage may still have entries that are compacted here, or that an unstaged truncation
        removes."""
        if not self.unstaged:
            kept = [run for run in term_runs if run[0] <= self.last_index]
            self._run_starts = array("Q", [start for start, _ in kept])
            self._run_terms = array("Q", [term for _, term in kept])
            self._cut_runs()
            self.last_term = self._run_terms[-1] if self._run_terms else self.prev_term

    def compact(self, first_index: int) -> None:
        """Forget the terms below ``first_index``, which must be applied.  Do nothing if the log
        begins there or later."""
        assert first_index - 1 <= self.applied_index, (
            f"compaction to {first_index}, applied {self.applied_index}")
        if first_index <= self.first_index:
            return
        self.prev_term = self.term_at(first_index - 1)
        self.first_index = first_index
        self.terms_from = max(self.terms_from, first_index - 1)
        self._cut_runs()

    def set_guessed_through(self, index: int) -> None:
        """Record that the terms up to ``index``, which is committed, are guesses; 0 = none."""
        assert index <= self.commit, f"guesses to {index}, commit {self.commit}"
        self.terms_from = max(self.terms_from, index and index + 1)

    def _cut_runs(self) -> None:
        """Drop the term runs below ``first_index``, and let the first one that remains begin
        there."""
        if self.first_index > self.last_index:
            kept = len(self._run_starts)
        else:
            kept = bisect_right(self._run_starts, self.first_index) - 1
            self._run_starts[kept] = self.first_index
        del self._run_starts[:kept]
        del self._run_terms[:kept]

    def _check(self) -> None:
        """Assert every invariant.  O(elections).  Tests and the simulator call it after each
        step."""
        prev = self.first_index - 1
        assert prev <= self.applied_index, f"applied {self.applied_index} below {prev}"
        assert prev <= self.terms_from, f"terms from {self.terms_from}, log after {prev}"
        assert self.applied_index <= self.emitted_index, f"applied {self.applied_index} unasked"
        assert self.emitted_index <= self.commit, f"handed {self.emitted_index} > {self.commit}"
        assert self.emitted_index <= self.durable_index, f"handed {self.emitted_index} not durable"
        assert self.durable_index <= self.staged_index, f"durable {self.durable_index} not staged"
        assert self.staged_index <= self.last_index, f"staged {self.staged_index} beyond the log"
        assert self.commit <= self.last_index, f"commit {self.commit} > last {self.last_index}"
        assert len(self.unstaged) == self.last_index - self.staged_index, "unstaged entries missing"
        starts, terms = list(self._run_starts), list(self._run_terms)
        assert starts == sorted({*starts}), f"run starts {starts}"
        assert terms == sorted({*terms}), f"run terms {terms}"
        assert bool(starts) == (self.last_index > prev), f"runs {starts} after {prev}"
        assert not starts or (starts[0], starts[-1] <= self.last_index) == (self.first_index, True)
        assert not terms or terms[0] >= self.prev_term, f"terms {terms} after {self.prev_term}"
        assert self.last_term == (terms[-1] if terms else self.prev_term), "last term"
        writing = [last for _, last in self._writing]
        assert max(writing, default=0) <= self.staged_index, f"writing {writing}"
