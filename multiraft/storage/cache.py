"""Recent entries of all groups in memory, oldest out first.

Contract.  ``add`` in journal order; ``evict`` after the durable watermark moved.  An entry leaves
only when it is durable, so every entry is in memory or on disk at any time.

Theory.  A payload is a view into the buffer it was received in, and keeps all of it alive.  Charged
is the payload's length plus a fixed overhead, because the entries of one received frame are staged
in the same round, stand side by side here and leave together: the frame is counted once, as the sum
of its parts.  What is pinned without being counted is bounded by the frames of the oldest round
that is still here.
"""

from __future__ import annotations

from collections import deque

from multiraft.storage.filesystem import Buffer
from multiraft.storage.stored_log import CachedEntry, StoredLog
from multiraft.types import Entry

#: Objects around one entry: the entry, its header, the tuple, dictionary and queue slots.
ENTRY_OVERHEAD_BYTES = 512


class EntryCache:
    """Recent entries of all groups' logs in memory (``StoredLog.cached``), with one bound for all
    of them together."""

    __slots__ = ("bytes", "bytes_max", "_order")

    def __init__(self, bytes_max: int):
        self.bytes = 0
        self.bytes_max = bytes_max
        self._order: deque[tuple[StoredLog, CachedEntry]] = deque()

    def add(self, log: StoredLog, entry: Entry, buffers: list[Buffer], slot: int, end: int) -> None:
        cached = CachedEntry(entry, buffers, slot, end)
        log.cached[entry.index] = cached
        self._order.append((log, cached))
        self.bytes += len(entry.payload) + ENTRY_OVERHEAD_BYTES

    def evict(self, durable: int) -> None:
        """Remove the oldest entries until the bound holds, as far as they are durable.  Amortised
        O(1) per entry added."""
        order = self._order
        # An entry that is not durable can be read nowhere else, so it stays, however full the cache
        # is.
        while self.bytes > self.bytes_max and order and order[0][1].end <= durable:
            log, cached = order.popleft()
            entry = cached.entry
            self.bytes -= len(entry.payload) + ENTRY_OVERHEAD_BYTES
            if log.cached.get(entry.index) is cached:  # else it was truncated
                del log.cached[entry.index]
