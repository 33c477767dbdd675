"""Read-back of a restarted node's logs: every entry verified, and no entry verified twice.

Contract.  ``ReadBack.check`` reports the recovered log of each group to the state checker.  The
result is the same as after reading every entry.  An entry is taken from the previous read-back only
under three conditions: the store's index has the same position and size for it; it is not known to
be damaged; the bytes at that position equal the verified ones.

Theory.  A node restarts hundreds of times in a run, and its log only grows.  Reading all of it each
time costs the square of the run's length.  A comparison of bytes costs almost nothing beside
parsing them, and it sees every change of the disk: by a crash, a repair or bit rot.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import NamedTuple

from chaos.simulator.oracle.model import LogModel, chain_of
from chaos.simulator.oracle.observer import DamagedEntry, StateChecker
from multiraft.storage.errors import CorruptRange
from multiraft.storage.journal.journal import Journal
from multiraft.storage.store import Store
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry

Found = Entry | DamagedEntry

#: Above every journal offset.
_BEYOND = 1 << 62


class _KnownLog(NamedTuple):
    """Log of one group at the last read-back."""

    incarnation: int
    positions: array
    ends: array
    log: LogModel  # only of logs without damage


class ReadBack:
    """Read-backs of one node's disk."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}  # segment -> bytes up to its last entry
        self._known_logs: dict[int, _KnownLog] = {}
        self._changed: list[tuple[int, int]] = []
        self.entries_read = 0

    def check(
        self,
        store: Store,
        image: Callable[[str], bytes],
        state_checker: StateChecker,
        node: int,
        rotten: bool,
    ) -> None:
        """Report the recovered log of each group to the state checker; ``image`` returns the bytes
        of a file. Raises ``Violation``, and ``CorruptRange`` when an entry is damaged on a disk
        that is not ``rotten``."""
        self._begin(store.table.journal, image)
        for group, restored in sorted(store.groups.items()):
            known, entries = self._read(store, group, rotten)
            damaged = bool(restored.quarantined)
            log = state_checker.recovered(node, group, restored, entries, damaged, known,
                                          store.table.logs[group].damage.is_exact)
            self._note(store, group, log, damaged)

    def _begin(self, journal: Journal, image: Callable[[str], bytes]) -> None:
        """Take the bytes of all segments, and note the ranges of the journal that differ from the
        last read-back."""
        before, self._images = self._images, {}
        self._changed = []
        for segment in journal.segments:
            data = image(segment.path)
            known = before.get(segment.path, b"")
            self._images[segment.path] = data[:segment.end - segment.start]
            if not data.startswith(known):
                known = b""
            begin, end = segment.start + len(known), segment.start + segment.capacity
            if begin < segment.end:
                self._changed.append((begin, end))
        last = journal.segments[-1] if journal.segments else None
        self._changed.append((last.start + last.capacity if last else 0, _BEYOND))

    def _read(self, store: Store, group: int, rotten: bool) -> tuple[LogModel | None, list[Found]]:
        """Return the unchanged part of a group's log (None = no part), and the entries behind it,
        damaged ones as ``DamagedEntry``. Raises ``CorruptRange`` for damage unless ``rotten``."""
        log = store.table.logs[group]
        log.damage._check()
        known = self._known(store, log)
        found: list[Found] = []
        first = known.last_index + 1 if known is not None else log.index.first_index
        last = log.index.last_index
        while first <= last:
            entries, damaged = _readable(store, group, first, last)
            found += entries
            first += len(entries)
            if damaged is not None:
                if not rotten:
                    raise damaged
                term = 0 if log.damage.is_term_unknown(first) else log.index.term(first)
                found.append(DamagedEntry(first, term, log.damage.is_maybe_truncated(first)))
                first += 1
        self.entries_read += len(found)
        return known, found

    def _note(self, store: Store, group: int, log: LogModel, damaged: bool) -> None:
        """Keep the recovered log for the next read-back; forget the kept one if some of it is
        ``damaged``."""
        held = store.table.logs[group]
        if damaged:
            self._known_logs.pop(group, None)
            return
        positions, ends = held.index._positions, held.index._ends
        self._known_logs[group] = _KnownLog(held.incarnation, positions[:], ends[:], log.copy())

    def _known(self, store: Store, log: StoredLog) -> LogModel | None:
        """Return the part of the last read-back's log that is still valid; it may be empty.

        None for a log that was not read back, has missing entries, or is compacted and therefore
        short.
        """
        look = self._known_logs.get(log.group)
        if (look is None or look.incarnation != log.incarnation or log.missing
                or log.index.first_index != 1):
            return None
        index = log.index
        count = min(_common(look.positions, index._positions), _common(look.ends, index._ends))
        changed = sorted({at for begin, end in self._changed
                          for at in index.indexes_within(begin, end) if at <= count})
        known = look.log.copy()
        known.drop_from(self._first_other(store, log.group, known, changed, count + 1))
        return known

    def _first_other(self, store: Store, group: int, known: LogModel, indexes: list[int],
                     none: int) -> int:
        """Return the first of the indexes at which no entry can be read, or another one than in
        ``known``; else ``none``."""
        for first, last in _runs(indexes):
            # ``_read`` reads a damaged entry again, and decides whether damage is allowed.
            entries, damaged = _readable(store, group, first, last)
            for at, entry in enumerate(entries, first):
                self.entries_read += 1
                if chain_of(known.chain(at - 1), entry) != known.chain(at):
                    return at
            if damaged is not None:
                return first + len(entries)
        return none


def _readable(store: Store, group: int, first: int,
              last: int) -> tuple[tuple[Entry, ...], CorruptRange | None]:
    """Return the entries from ``first`` up to the first damaged one, and the error of that one.

    The error is None when all entries up to ``last`` can be read.  All are read at once first:
    damage is rare, and one read costs about as much as ten entries.
    """
    try:
        return store.read_job(group, first, last).execute(), None
    except CorruptRange as error:
        if first == last:
            return (), error
    entries: list[Entry] = []
    for index in range(first, last + 1):
        try:
            entries += store.read_job(group, index, index).execute()
        except CorruptRange as error:
            return tuple(entries), error
    raise AssertionError(f"g{group} {first}..{last} is damaged, and none of it")


def _runs(indexes: list[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of consecutive numbers, which ascend."""
    begin = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[at - 1] + 1:
            yield indexes[begin], indexes[at - 1]
            begin = at


def _common(before: array, now: array) -> int:
    """Return the length of the common prefix of two columns.  O(n) at the speed of a comparison of
    bytes."""
    low, high = 0, min(len(before), len(now))
    if before[:high] == now[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if before[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle
    return low + (before[low:high] == now[low:high]) * (high - low)
