"""What a restarted node can read of its logs: every entry verified, and none twice for nothing.

Contract.  ``ReadBack.show`` tells the witness what a recovery left of each group's log.  The result
is that of reading every entry: an entry is taken from the earlier look only if the store's index
still puts it at the same place and size, nothing calls it damaged, and the bytes of that place are,
compared, the very bytes that were verified then.

Theory.  A node restarts hundreds of times in a run, and its log only grows.  Reading all of it each
time costs the square of the run's length and finds what the look before it found.  Comparing bytes
costs nothing beside parsing them, and trusts nobody: whatever changes a disk, a crash, a repair or
rot, is seen.
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

#: Behind every journal position.
_BEYOND = 1 << 62


class _Look(NamedTuple):
    """One group's log as it was read last."""

    incarnation: int
    positions: array
    ends: array
    log: LogModel  # as far as nothing was damaged


class ReadBack:
    """All looks at one node's disk."""

    def __init__(self) -> None:
        self._images: dict[str, bytes] = {}  # segment -> bytes up to its last entry
        self._looks: dict[int, _Look] = {}
        self._changed: list[tuple[int, int]] = []
        self.entries_read = 0

    def show(self, store: Store, image: Callable[[str], bytes], witness: StateChecker, node: int,
             rotten: bool) -> None:
        """Tell the witness all that can be read; ``image`` gives a file's bytes.  Raises
        ``CorruptRange`` when an entry is damaged on a disk that is not ``rotten``."""
        self._begin(store.table.journal, image)
        for group, restored in sorted(store.groups.items()):
            known, entries = self._read(store, group, rotten)
            damaged = bool(restored.quarantined)
            log = witness.recovered(node, group, restored, entries, damaged, known,
                                    _knows_its_damage(store.table.logs[group]))
            self._note(store, group, log, damaged)

    def _begin(self, journal: Journal, image: Callable[[str], bytes]) -> None:
        """Find out which parts of the journal are not as they were."""
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
        """The group's log: the part that is as it was, None when there is none, and the rest."""
        log = store.table.logs[group]
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
                term = 0 if first in log.unsure else log.index.term(first)
                found.append(DamagedEntry(first, term, first in log.questioned))
                first += 1
        self.entries_read += len(found)
        return known, found

    def _note(self, store: Store, group: int, log: LogModel, damaged: bool) -> None:
        """That is what was found; remembered for the next look unless some of it is ``damaged``."""
        held = store.table.logs[group]
        if damaged:
            self._looks.pop(group, None)
            return
        positions, ends = held.index._positions, held.index._ends
        self._looks[group] = _Look(held.incarnation, positions[:], ends[:], log.copy())

    def _known(self, store: Store, log: StoredLog) -> LogModel | None:
        """As much of the last look as still holds; None of a log that is compacted, which is
        short."""
        look = self._looks.get(log.group)
        if (look is None or look.incarnation != log.incarnation or log.missing
                or log.index.first_index != 1):
            return None
        index = log.index
        count = min(_common(look.positions, index._positions), _common(look.ends, index._ends))
        changed = sorted({at for begin, end in self._changed for at in index.within(begin, end)
                          if at <= count})
        known = look.log.copy()
        known.drop_from(self._first_other(store, log.group, known, changed, count + 1))
        return known

    def _first_other(self, store: Store, group: int, known: LogModel, indexes: list[int],
                     none: int) -> int:
        """The first of the indexes at which no entry is, or another one than is known; ``none``
        when there is none."""
        for first, last in _runs(indexes):
            # What is damaged ``_read`` comes upon, and knows whether it may be.
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
    """The entries from ``first`` on up to the first that is damaged, and what is said of that one;
    None = all up to ``last`` can be read.  At once: damage is rare, and one read costs about as
    much as ten entries."""
    try:
        return store.read_plan(group, first, last).execute(), None
    except CorruptRange as error:
        if first == last:
            return (), error
    entries: list[Entry] = []
    for index in range(first, last + 1):
        try:
            entries += store.read_plan(group, index, index).execute()
        except CorruptRange as error:
            return tuple(entries), error
    raise AssertionError(f"g{group} {first}..{last} is damaged, and none of it")


def _knows_its_damage(log: StoredLog) -> bool:
    """Whether all that is wrong is entries that cannot be read, and is known of each of them."""
    return not (log.doubtful or log.lasting or log.unsure or log.questioned)


def _runs(indexes: list[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive ones; they ascend."""
    begin = 0
    for at in range(1, len(indexes) + 1):
        if at == len(indexes) or indexes[at] != indexes[at - 1] + 1:
            yield indexes[begin], indexes[at - 1]
            begin = at


def _common(before: array, now: array) -> int:
    """Length of the common beginning.  O(n) at the speed of a comparison of bytes."""
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
