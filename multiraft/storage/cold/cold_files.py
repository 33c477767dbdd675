"""Cold segments of a node: those that checkpoints name, and files that remain of others.

Contract.  Owned by the loop, in memory only.  ``named`` is what a checkpoint that is captured now
says.  A segment that nothing needs any longer leaves with ``remove``; its file is a leftover until
no kept checkpoint names it (``cleaner.py``).

Invariant.  A number is given once, as far as checkpoints and files tell.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from multiraft.storage.cold.cold_segment import ColdName, ColdSegment, number_of
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.strays import Stray, cold_index_number, cold_number, is_unfinished


class ColdNames(NamedTuple):
    """Cold segments as a checkpoint names them."""

    next_number: int = 0  # of the next one
    names: tuple[ColdName, ...] = ()  # in ascending order

    def has(self, number: int) -> bool:
        """Return True if a cold segment is named.  O(log n)."""
        at = bisect_left(self.names, number, key=_number)
        return at < len(self.names) and self.names[at].number == number


def _number(name: ColdName) -> int:
    return name.number


NO_NAMES = ColdNames()


class ColdSegments:
    """All cold segments of a node, by number."""

    def __init__(self, directory: str, names: ColdNames = NO_NAMES):
        """``directory``: of their files; ``names``: of the checkpoint that a start begins with."""
        self.directory = directory
        self.leftovers: list[int] = []  # numbers of others, whose files may exist
        self._segments = {name.number: ColdSegment(directory, name) for name in names.names}
        self._numbers = sorted(self._segments)
        self._next_number = names.next_number

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[ColdSegment]:
        """Yield the segments in ascending order of their numbers."""
        return (self._segments[number] for number in self._numbers)

    @property
    def bytes(self) -> int:
        """Bytes of their files, without index files.  O(n)."""
        return sum(each.name.length for each in self)

    def find_files(self, filesystem: Filesystem) -> list[Stray]:
        """Note the files of other segments as leftovers.  Return those with other names.  Block."""
        strays, found = [], set()
        for name in filesystem.list(self.directory):
            number = cold_number(name)
            if number is None:
                number = cold_index_number(name)
            if number is not None:
                found.add(number)
            elif not is_unfinished(name):
                strays.append(Stray(f"{self.directory}/{name}", "no cold segment has that name"))
        self.leftovers = sorted(found - self._segments.keys())
        self._next_number = max([self._next_number, *(number + 1 for number in found)])
        strays += [Stray(f"{self.directory}/{name}", "it is no file")
                   for name in filesystem.non_files(self.directory)]
        return strays

    def named(self) -> ColdNames:
        """Return what a checkpoint that is captured now has to say.  O(n)."""
        return ColdNames(self._next_number, tuple([each.name for each in self]))

    def take_number(self) -> int:
        """Return the number of the next cold segment, once."""
        self._next_number += 1
        return self._next_number - 1

    def add(self, name: ColdName) -> ColdSegment:
        """Add a segment whose file is durable, and return it.  O(n)."""
        assert name.number < self._next_number and name.number not in self._segments
        segment = self._segments[name.number] = ColdSegment(self.directory, name)
        insort(self._numbers, name.number)
        return segment

    def remove(self, segment: ColdSegment) -> None:
        """Take a segment out that nothing needs.  Its file becomes a leftover.  O(n)."""
        number = segment.name.number
        del self._segments[number]
        self._numbers.remove(number)
        segment.is_removed = True
        self.leftovers.append(number)

    def behind(self, number: int) -> ColdSegment | None:
        """Return the segment with the lowest number from ``number`` on; None = there is none.
        O(log n)."""
        at = bisect_left(self._numbers, number)
        return self._segments[self._numbers[at]] if at < len(self._numbers) else None

    def segment_of(self, place: int) -> ColdSegment:
        """Return the segment that a place is in.  O(1)."""
        segment = self._segments.get(number_of(place))
        assert segment is not None, f"place {place} is in no cold segment"
        return segment
