"""A new index file of a cold segment, in place of one that was found damaged.

Contract.  Made on the loop and executed by any thread.  Has the attributes of ``SealJob``, which
does the same for a segment of the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from multiraft.storage.atomic_file import replace_file
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import IndexRanges
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.errors import CorruptIndex, IndexTooLarge, SegmentRemoved
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.indexed_segments import scanned_cold
from multiraft.storage.removable_segments import SegmentContents


class ColdIndexJob:
    """Read a cold segment once more and put its index beside it.  ``damage`` says why not."""

    __slots__ = ("segment", "damage", "too_large", "contents", "_filesystem", "_identity",
                 "_ranges")

    def __init__(self, filesystem: Filesystem, segment: ColdSegment, identity: FileIdentity,
                 ranges: Mapping[int, IndexRanges]):
        """``ranges``: of indexes for which the file answers, by group."""
        self.segment = segment
        self._ranges = ranges
        self.damage = ""
        self.too_large: IndexTooLarge | None = None  # never: the file had an index before
        self.contents: SegmentContents | None = None  # the journal has no such segment
        self._filesystem = filesystem
        self._identity = identity

    def execute(self, pause: Callable[[], None] | None = None) -> None:
        """Scan the cold segment and write its index file; set ``damage`` and write nothing if
        records are lost there.  Block.  Raises ``OSError``.  Do nothing if nothing needs it."""
        try:
            found = scanned_cold(self._filesystem, self.segment, self._identity)
        except CorruptIndex as error:
            self.damage = str(error)
            return
        except SegmentRemoved:
            return
        if pause is not None:
            pause()
        found.take_ranges(self._ranges)
        directory, _, name = self.segment.index_path.rpartition("/")
        replace_file(self._filesystem, directory, name, cold_index.encode(found))
