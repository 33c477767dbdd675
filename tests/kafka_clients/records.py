"""Records that the trials produce, and the comparison with those that were read."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

#: Bytes that each client can send: kcat ends a record at a line feed and a key at a tab.
BYTES = bytes(each for each in range(256) if each not in b"\t\n\r\0")
#: Bytes for clients that send lines of text.
TEXT = bytes(range(ord(" "), ord("~") + 1))
VALUE_BYTES_MAX = 400
#: Size of the first value of a trial: several batches of most clients.
LARGE_BYTES = 200_000


class Record(NamedTuple):
    """A record as it is produced; ``value`` None = a tombstone."""

    key: bytes
    value: bytes | None


class Row(NamedTuple):
    """A record as it is read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    header: bytes | None


class Mismatch(Exception):
    """Records were read that differ from those that were acknowledged."""


class Records:
    """An endless series of records of different keys; ``is_text``: values are
    printable; ``has_null``: one of them is null and one is empty."""

    def __init__(self, seed: int, is_text: bool, has_null: bool, header: bytes):
        self.header = header
        self._random = random.Random(seed)
        self._is_text = is_text
        self._has_null = has_null
        self._next = 0
        #: Records by key, in the order in which they were made.
        self.made: dict[bytes, Record] = {}

    def take(self, count: int) -> list[Record]:
        """Return ``count`` new records."""
        taken = [self._make() for _ in range(count)]
        self.made.update({record.key: record for record in taken})
        return taken

    def _make(self) -> Record:
        number = self._next
        self._next += 1
        key = f"key-{number:06}".encode()
        if number == 0:
            return Record(key, self._bytes(LARGE_BYTES))
        if self._has_null and number in (1, 2):
            return Record(key, None if number == 1 else b"")
        return Record(key, self._bytes(self._random.randint(1, VALUE_BYTES_MAX)))

    def _bytes(self, count: int) -> bytes:
        # No blank at an end: lines of text may lose it.
        inner = self._random.choices(TEXT if self._is_text else BYTES, k=count)
        return b"<" + bytes(inner) + b">"

    def check(self, rows: Sequence[Row], acknowledged: Sequence[Record],
              may_repeat: bool, offsets: dict[bytes, int]) -> None:
        """Return if the rows hold every acknowledged record as it was made, and only made ones.
        Raises ``Mismatch``.

        ``may_repeat``: a record may be there twice, and in another order than it was made.
        ``offsets``: those that the producer received, by key."""
        places: dict[bytes | None, list[int]] = {}
        for row in rows:
            made = self.made.get(row.key or b"")
            if made is None or row.value != made.value or row.header != self.header:
                raise Mismatch(f"offset {row.offset} has a record that nobody made: {cut(row)}")
            places.setdefault(row.key, []).append(row.offset)
        lost = [record.key for record in acknowledged if record.key not in places]
        if lost:
            raise Mismatch(f"{len(lost)} acknowledged records are lost, among them {lost[:3]}")
        wrong = [(key, offset, places[key]) for key, offset in offsets.items()
                 if offset not in places[key]]
        if wrong:
            raise Mismatch(f"records are not at the offset that the producer received: {wrong[:3]}")
        if may_repeat:
            return
        repeated = {key: found for key, found in places.items() if len(found) > 1}
        if repeated:
            raise Mismatch(f"{len(repeated)} records are there twice: {list(repeated)[:3]}")
        keys = [row.key for row in rows]
        if keys != sorted(keys, key=lambda key: key or b""):
            raise Mismatch("records are not in the order in which they were produced")


def cut(row: Row) -> str:
    """Return the text of a row with the first bytes of its value."""
    if row.value is None:
        return repr(row)
    return f"{row._replace(value=row.value[:40])!r} ({len(row.value)} bytes)"


def in_sequence(rows: Sequence[Row], first: int) -> None:
    """Return if the rows have each offset from ``first`` on. Raises ``Mismatch``."""
    found = [row.offset for row in rows]
    if found != list(range(first, first + len(rows))):
        raise Mismatch(f"offsets are not consecutive from {first} on: {found[:5]}...{found[-5:]}")
