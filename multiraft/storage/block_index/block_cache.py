"""Rows of blocks that were read lately, oldest use out first, bounded in bytes.

Contract.  Owned by one thread.  ``rows`` answers from memory or raises ``BlockNotCached``, which
names the block to read; ``add`` takes the rows that ``blocks.open_block`` verified.
"""

from __future__ import annotations

from multiraft.storage.errors import BlockNotCached

#: Objects around one block: the bytes' header, the key and the dictionary's slot.
BLOCK_OVERHEAD_BYTES = 200


class BlockCache:
    """Blocks of all index files in memory, with one bound for all of them together."""

    __slots__ = ("bytes", "bytes_max", "hits", "misses", "_rows")

    def __init__(self, bytes_max: int):
        self.bytes = 0
        self.bytes_max = bytes_max
        self.hits = 0
        self.misses = 0
        self._rows: dict[tuple[int, int], bytes] = {}  # in the order of their last use

    def __len__(self) -> int:
        return len(self._rows)

    def rows(self, file: int, block: int) -> bytes:
        """Return the rows of a block.  Raise ``BlockNotCached`` if they are not in memory.
        O(1)."""
        key = file, block
        found = self._rows.pop(key, None)
        if found is None:
            self.misses += 1
            raise BlockNotCached(file, block)
        self._rows[key] = found
        self.hits += 1
        return found

    def add(self, file: int, block: int, rows: bytes) -> None:
        """Add the rows of a block, and remove those whose last use is longest ago until the bound
        holds.  The rows that were added stay, however low the bound is.  Amortised O(1)."""
        key = file, block
        self._remove(key)
        self._rows[key] = rows
        self.bytes += len(rows) + BLOCK_OVERHEAD_BYTES
        while self.bytes > self.bytes_max and len(self._rows) > 1:
            self._remove(next(iter(self._rows)))

    def forget(self, file: int) -> None:
        """Remove the blocks of a file, which no longer exists.  O(blocks in memory)."""
        for key in [key for key in self._rows if key[0] == file]:
            self._remove(key)

    def _remove(self, key: tuple[int, int]) -> None:
        rows = self._rows.pop(key, None)
        if rows is not None:
            self.bytes -= len(rows) + BLOCK_OVERHEAD_BYTES
