"""A new index file of a cold segment, in place of one that was found damaged.

Contract.  Made on the loop and executed by any thread.  Has the attributes of ``SealJob``, which
does the same for a segment of the journal.

Theory.  The scan does not know where a batch ends whose payload is damaged.  A start would take the
end in the new file for true, and a read inside of the batch would find neither a record nor damage.
So nothing is written before other places count for all such records, of copies from other members,
or nothing needs them.  Until then each read of a block scans the cold segment.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from multiraft.storage.atomic_file import replace_file
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.cold import cold_index
from multiraft.storage.cold.cold_index import IndexRanges
from multiraft.storage.cold.cold_segment import ColdSegment
from multiraft.storage.cold.contents import UnreadableRecord
from multiraft.storage.errors import CorruptIndex, IndexTooLarge, SegmentRemoved
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.indexed_segments import scanned_cold
from multiraft.storage.removable_segments import SegmentContents


class ColdIndexJob:
    """Read a cold segment once more and put its index beside it.  ``damage`` or ``unreadable`` says
    why not."""

    __slots__ = ("segment", "damage", "too_large", "contents", "unreadable", "_filesystem",
                 "_identity", "_ranges", "_settled")

    def __init__(self, filesystem: Filesystem, segment: ColdSegment, identity: FileIdentity,
                 ranges: Mapping[int, IndexRanges], settled: Container[UnreadableRecord] = ()):
        """``ranges``: of indexes for which the file answers, by group; ``settled``: records that
        need not be readable in the segment."""
        self.segment = segment
        self._ranges = ranges
        self.damage = ""
        self.too_large: IndexTooLarge | None = None  # never: the file had an index before
        self.contents: SegmentContents | None = None  # the journal has no such segment
        self.unreadable: tuple[UnreadableRecord, ...] = ()
        self._settled = settled
        self._filesystem = filesystem
        self._identity = identity

    def execute(self, pause: Callable[[], None] | None = None) -> None:
        """Scan the cold segment and write its index file; set ``damage`` or ``unreadable`` and
        write nothing if records are lost there, or some are unreadable and not settled.  Block.
        Raises ``OSError``.  Do nothing if nothing needs it."""
        try:
            found = scanned_cold(self._filesystem, self.segment, self._identity)
        except CorruptIndex as error:
            self.damage = str(error)
            return
        except SegmentRemoved:
            return
        unreadable = found.unreadable_records()
        if any(each not in self._settled for each in unreadable):
            self.unreadable = unreadable
            return
        if pause is not None:
            pause()
        contents = found.contents
        contents.take_ranges(self._ranges)
        directory, _, name = self.segment.index_path.rpartition("/")
        replace_file(self._filesystem, directory, name, cold_index.encode(contents))
