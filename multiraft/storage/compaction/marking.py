"""The decision of a compaction: which records of a partition survive.

Contract.  ``Marking`` is made on the loop.  ``step`` blocks, on any thread, for about a megabyte of
batches, until ``is_done``; ``result`` has the batches that lose records then.  Errors of the reader
pass through, and end the marking.

What survives, below the offset ``up_to`` of the compact entry:

- a record without a key;
- the last record of each key among the batches that supersede, unless it is a tombstone (a record
  without a value) below ``tombstones_below``;
- such a tombstone as well, while an older record of its key stays: in a batch that is kept whole,
  or in one that is never changed;
- every record of a batch that is never changed: one of a transaction, and one that cannot be
  decoded.  Such batches supersede nothing.

A compressed batch that would be larger without its records, because no compressor runs, is kept
whole.  Its superseded records stay then.

Invariants.  The result depends on the batches and the compact entry alone: not on memory, which
decides about the number of passes, and not on earlier compactions, which only removed what this one
would remove.  Whether compressed batches are kept whole, and which tombstones stay for that,
depends on one another; the rounds that find out are the same everywhere.

Theory.  As Kafka's log cleaner, which keeps a map of the newest offsets by hashes of keys; here the
batches are walked from the newest to the oldest, so a set of keys is enough, and the keys are
compared whole.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from multiraft import core
from multiraft.codec import layout
from multiraft.codec.values import BatchHeader, Buffer
from multiraft.errors import CorruptBatch
from multiraft.storage.compaction.partition_batches import PartitionBatches, PlacedBatch
from multiraft.storage.compaction.surviving_batches import Decompress, SurvivingBatches
from multiraft.types import Payload

#: Bytes of batches that one step examines.
STEP_BYTES = 1 << 20
#: Rounds in which batches that are kept whole and the tombstones that stay for them are found.
#: Each needs one batch more that the round before did not know of; behind the last one all
#: tombstones stay that could have gone.
ROUNDS_MAX = 16
#: Share of the memory that the marks of batches have.
MARKS_SHARE = 4
#: Bytes of a batch in the columns of the marking.
BATCH_BYTES = 37

_HASHES = 1 << 64
_PLAIN, _COMPRESSED, _UNTOUCHED, _UNREADABLE = range(4)
#: Bytes of marks, and what they become when all tombstones stay: 2 -> 3 in each pair of bits.
_ALL_STAY = bytes([sum((3 if byte >> at & 3 == 2 else byte >> at & 3) << at for at in (0, 2, 4, 6))
                   for byte in range(256)])
_WITHOUT_TOMBSTONES = bytes([byte for byte in range(256)
                             if all(byte >> at & 3 != 2 for at in (0, 2, 4, 6))])


class Order(NamedTuple):
    """A compact entry, as far as it decides what survives."""

    generation: int
    up_to: int
    tombstones_below: int


class _Examined(NamedTuple):
    """A batch as the marking sees it."""

    kind: int
    header: BatchHeader
    block: Buffer  # uncompressed records; empty of one that cannot be decoded


class Marking:
    """Marks of the batches of a partition from an offset on, as many as memory has room for."""

    def __init__(self, batches: PartitionBatches, order: Order, memory_bytes: int,
                 decompress: Decompress, seed: int = 0, begin: int = 0):
        """``memory_bytes``: of keys and marks; ``seed``: of the hashes of keys; ``begin``: the end
        of the marking before, if that was partial and is carried out."""
        files = batches.files
        room = memory_bytes // MARKS_SHARE
        end = batches.first_end(begin, room // (2 * BATCH_BYTES))
        self._begin = begin
        self.is_done = False
        self.result = SurvivingBatches(files.group, files.partition, order.generation, end,
                                       decompress)
        self.passes = 0  # over keys, so far
        self.sources: set[int] = set()  # starts of the segments with a batch that loses records
        self._batches = batches
        self._order = order
        self._decompress = decompress
        self._seed = seed
        self._keys_bytes = memory_bytes - room
        self._marks_max = room // 2
        self._marks = bytearray()
        # Columns of the batches that have marks, descending.
        self._bases = array("q")
        self._indexes = array("Q")
        self._firsts = array("Q")
        self._counts = array("I")
        self._places = array("Q")
        self._kinds = bytearray()
        self._steps = self._run()

    @property
    def bytes(self) -> int:
        """Bytes that were read so far."""
        return self._batches.bytes

    @property
    def is_partial(self) -> bool:
        """True if batches below the compact entry's offset were left to another marking."""
        return self.result.end_offset < self._order.up_to

    def step(self) -> None:
        """Examine about ``STEP_BYTES`` of batches.  Block."""
        if next(self._steps, self) is self:
            self.is_done = True

    def _run(self) -> Iterator[None]:
        yield from self._mark_superseded()
        yield from self._keep_tombstones()
        yield from self._finish()

    def _examined(self, payload: Payload) -> _Examined:
        header = core.batch_header(payload)
        if header.attributes & layout.ATTRIBUTE_TRANSACTIONAL:
            kind = _UNTOUCHED
        else:
            kind = _COMPRESSED if header.attributes & layout.ATTRIBUTE_CODEC_MASK else _PLAIN
        try:
            block = self._decompress(header.attributes & layout.ATTRIBUTE_CODEC_MASK,
                                     memoryview(payload)[layout.BATCH_HEADER_BYTES:])
        except CorruptBatch:
            return _Examined(_UNREADABLE, header, b"")
        return _Examined(kind, header, block)

    # ---- superseded records ----------------------------------------------------------------------

    def _mark_superseded(self) -> Iterator[None]:
        """Mark the superseded records, and the tombstones that may go."""
        low, width = 0, _HASHES
        while low < _HASHES:
            table = core.KeyTable(self._keys_bytes, low, min(_HASHES, low + width), self._seed)
            slot, due = 0, self._batches.bytes + STEP_BYTES
            for placed, payload in self._batches.newest_first():
                if placed.base_offset < self._begin:
                    break  # nothing older decides about what has marks
                slot = self._mark_batch(table, placed, payload, slot)
                if self._batches.bytes >= due:
                    due = self._batches.bytes + STEP_BYTES
                    yield
            self.passes += 1
            low, width = table.high, table.high - table.low

    def _mark_batch(self, table: core.KeyTable, placed: PlacedBatch, payload: Payload,
                    slot: int) -> int:
        """Mark the records of one batch; return the slot of the next one that has marks."""
        found = self._examined(payload)
        is_kept = placed.base_offset < self.result.end_offset
        if is_kept and not self.passes:
            self._add(placed, found)
            slot = len(self._indexes) - 1
        if found.kind in (_PLAIN, _COMPRESSED):
            marks, first = ((self._marks, self._firsts[slot]) if is_kept
                            else (bytearray(found.header.count // 4 + 1), 0))
            try:
                table.mark(found.header, found.block, self._order.tombstones_below, marks, first)
            except CorruptBatch:
                if is_kept:
                    self._kinds[slot] = _UNREADABLE
        if is_kept and not self.passes:
            self._drop_newest()
            return len(self._indexes)
        return slot + is_kept

    def _add(self, placed: PlacedBatch, found: _Examined) -> None:
        self._bases.append(placed.base_offset)
        self._indexes.append(placed.index)
        self._firsts.append(4 * len(self._marks))
        self._counts.append(max(0, found.header.count))
        self._places.append(placed.position)
        self._kinds.append(found.kind)
        if found.kind in (_PLAIN, _COMPRESSED):
            self._marks.extend(bytes(-(-max(0, found.header.count) // 4)))

    def _drop_newest(self) -> None:
        """Leave half of the batches that have marks, the newest, to another marking if the marks
        have no room."""
        if len(self._marks) <= self._marks_max or len(self._indexes) < 2:
            return
        gone = len(self._indexes) // 2
        self.result.end_offset = self._bases[gone - 1]
        removed = self._firsts[gone]
        for column in (self._bases, self._indexes, self._firsts, self._counts, self._places,
                       self._kinds):
            del column[:gone]
        del self._marks[:removed // 4]
        for at, first in enumerate(self._firsts):
            self._firsts[at] = first - removed

    # ---- tombstones ------------------------------------------------------------------------------

    def _has_tombstones(self) -> bool:
        return bool(self._marks.translate(None, _WITHOUT_TOMBSTONES))

    def _keep_tombstones(self) -> Iterator[None]:
        """Mark the tombstones that have to stay because an older record of their key does."""
        if not self._has_tombstones():
            return
        for _ in range(ROUNDS_MAX):
            pinned = 0
            low, width = 0, _HASHES
            while low < _HASHES:
                table = core.KeyTable(self._keys_bytes, low, min(_HASHES, low + width), self._seed)
                for count in self._round(table):
                    pinned += count
                    yield
                low, width = table.high, table.high - table.low
            if not pinned or not self._has_tombstones():
                return
        self._marks = self._marks.translate(_ALL_STAY)

    def _round(self, table: core.KeyTable) -> Iterator[int]:
        """Yield the numbers of tombstones that have to stay, by the keys of one range."""
        slot, pinned, all_stay = len(self._indexes), 0, False
        due = self._batches.bytes + STEP_BYTES
        for placed, payload in self._batches.oldest_first():
            if placed.base_offset >= self.result.end_offset:
                break
            found = self._examined(payload)
            if placed.base_offset < self._begin:  # these records have survived
                kind, first = max(found.kind, _UNTOUCHED), 0
            else:
                slot -= 1
                kind, first = self._kinds[slot], self._firsts[slot]
            if kind == _UNREADABLE:
                all_stay = True
            elif kind == _UNTOUCHED:
                marks = bytearray(found.header.count // 4 + 1)
                try:
                    table.add(found.header, found.block, marks, 0, False)
                except CorruptBatch:
                    all_stay = True
            else:
                pinned += (self._pin_all(slot) if all_stay else
                           table.pin(found.header, found.block, self._marks, first))
                if kind == _COMPRESSED and self._is_kept_whole(found, payload, first):
                    table.add(found.header, found.block, self._marks, first, True)
            if self._batches.bytes >= due:
                due = self._batches.bytes + STEP_BYTES
                yield pinned
                pinned = 0
        yield pinned

    def _pin_all(self, slot: int) -> int:
        begin = self._firsts[slot] // 4
        end = begin + -(-self._counts[slot] // 4)
        before = self._marks[begin:end]
        self._marks[begin:end] = before.translate(_ALL_STAY)
        return int(self._marks[begin:end] != before)

    def _is_kept_whole(self, found: _Examined, payload: Payload, first: int) -> bool:
        """Return True if a compressed batch is not smaller without the records that go."""
        count, size = core.surviving_records(found.header, found.block, self._marks, first)
        return count > 0 and layout.BATCH_HEADER_BYTES + size > len(payload)

    # ---- the result ------------------------------------------------------------------------------

    def _finish(self) -> Iterator[None]:
        """Set the result: the batches that lose records."""
        whole: set[int] = set()
        yield from self._find_whole(whole)
        indexes, firsts, dropped = array("Q"), array("Q"), bytearray()
        for slot in reversed(range(len(self._indexes))):
            if self._kinds[slot] in (_PLAIN, _COMPRESSED):
                left = core.surviving_marks(self._marks, self._firsts[slot], self._counts[slot])
                if left < self._counts[slot] and self._indexes[slot] not in whole:
                    indexes.append(self._indexes[slot])
                    firsts.append(self._firsts[slot])
                    dropped.append(not left)
                    self.sources.add(self._batches.start_of(self._places[slot]))
            if not slot & 0xFFF:
                yield
        self.result.fill(indexes, firsts, dropped, self._marks)

    def _find_whole(self, whole: set[int]) -> Iterator[None]:
        """Add the log indexes of the compressed batches that are kept whole."""
        if _COMPRESSED not in self._kinds:
            return
        slot, due = len(self._indexes), self._batches.bytes + STEP_BYTES
        for placed, payload in self._batches.oldest_first():
            if placed.base_offset >= self.result.end_offset:
                return
            if placed.base_offset < self._begin:
                continue
            slot -= 1
            if self._kinds[slot] == _COMPRESSED and self._is_kept_whole(
                    self._examined(payload), payload, self._firsts[slot]):
                whole.add(placed.index)
            if self._batches.bytes >= due:
                due = self._batches.bytes + STEP_BYTES
                yield
