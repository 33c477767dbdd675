"""Everything that can go wrong between the node and its data directory, as types.

    StorageError (MultiRaftError)
    +- DirectoryInUse       another process holds the lock; its pid when known
    +- IdentityMissing      the directory was never given an identity, or is not mounted
    +- WrongIdentity        the directory belongs to another cluster or node
    +- UnknownFormat        a file of a version this program does not know
    |  +- UnknownEntry      an intact entry of a kind this program does not know
    +- CorruptFile          a file that cannot be read and cannot be rebuilt from others
    |  +- CorruptIndex      a block or the summary of an index file is damaged
    |  +- ForeignIndex      an index file of another cluster, node or segment
    |  +- MissingIndex      a sealed segment has no index file
    +- IndexTooLarge        over a limit of index files, with limit and value
    +- BlockNotCached       a look-up needs a block of an index file that is not in memory
    +- CorruptRange         entries on disk that are not what their CRC says: group and indexes
    |  +- CorruptJournalRange  ... of an unknown group and index
    +- EntryTooLarge        over a limit, with limit and value
    +- StaleIncarnation     a group is to be created in an incarnation older than the known one
    +- SegmentRemoved       entries that nothing needed when their segment was removed
    +- OffsetTooLow         a fetch below the first offset that this store holds of a partition
    +- RecordsNotCopied     a fetch of records that are still to be copied behind a snapshot
    +- InvalidCopies        a member's answer with copies that cannot be the group's records

A failing disk is none of these: it stays the ``OSError`` it is, and stops the node.
"""

from __future__ import annotations

from multiraft.errors import Compacted, MultiRaftError


class StorageError(MultiRaftError):
    """Root of the storage errors."""


class DirectoryInUse(StorageError):
    """Another process holds the data directory's lock; ``pid`` is 0 when it is unknown."""

    def __init__(self, path: str, pid: int = 0):
        super().__init__(f"{path} is held by " + (f"process {pid}" if pid else "another process"))
        self.path = path
        self.pid = pid


class IdentityMissing(StorageError):
    """The directory has no identity, and was not declared new."""

    def __init__(self, path: str):
        super().__init__(f"{path} is missing: the directory has no identity")
        self.path = path


class WrongIdentity(StorageError):
    """The directory was written by another node or for another cluster."""

    def __init__(self, path: str, field: str, found: object, expected: object):
        super().__init__(f"{path} belongs to {field} {found}, this is {field} {expected}")
        self.path = path
        self.field = field


class UnknownFormat(StorageError):
    """A file's format version is not one that this program reads."""

    def __init__(self, path: str, found: object, known: int):
        super().__init__(f"{path} has format version {found}, this program reads {known}")
        self.path = path


class UnknownEntry(UnknownFormat):
    """An intact entry of a kind that this program does not know: a later program wrote it."""

    def __init__(self, path: str, position: int, kind: int):
        StorageError.__init__(self, f"{path}, journal position {position}: an intact entry of kind "
                              f"{kind}, written by a later release than this program")
        self.path = path
        self.position = position
        self.kind = kind


class CorruptFile(StorageError):
    """A file that is damaged and has no second source on this node."""

    def __init__(self, path: str, why: str):
        super().__init__(f"{path} is corrupt: {why}")
        self.path = path
        self.why = why


class CorruptIndex(CorruptFile):
    """A damaged block, header or summary of an index file; the segment is scanned instead."""


class ForeignIndex(CorruptFile):
    """An index file that describes a segment of another cluster, node or start than it stands
    beside."""

    def __init__(self, path: str, field: str, found: object, expected: object):
        super().__init__(path, f"it is of {field} {found}, its segment of {field} {expected}")
        self.field = field


class MissingIndex(CorruptFile):
    """A sealed segment without an index file; the segment is scanned instead."""

    def __init__(self, path: str):
        super().__init__(path, "the file does not exist")


class IndexTooLarge(StorageError):
    """A number that the rows of an index file cannot hold."""

    def __init__(self, what: str, limit: int, value: int):
        super().__init__(f"{what} is {value}, the limit of an index file is {limit}")
        self.what = what
        self.limit = limit
        self.value = value


class BlockNotCached(StorageError):
    """A block of an index file that a look-up needs and that is not in memory: it has to be read
    first."""

    def __init__(self, file: int, block: int):
        super().__init__(f"block {block} of index file {file} is not in memory")
        self.file = file
        self.block = block


class CorruptRange(StorageError):
    """Entries that were durable and are not what their CRC says; repaired from peers, never
    served."""

    def __init__(self, group: int, index: int, why: str, position: int = 0, size: int = 0):
        """``position``, ``size``: where the entry stands in the journal; 0 = not told."""
        super().__init__(f"group {group}, index {index}: {why}")
        self.group = group
        self.index = index
        self.why = why
        self.position = position
        self.size = size


class CorruptJournalRange(CorruptRange):
    """A place of the journal that is damaged and that no present log points to: it may have held
    any group's hard state or truncation."""

    def __init__(self, begin: int, end: int, why: str):
        super().__init__(-1, 0, f"journal position {begin}: {why}")
        self.begin = begin
        self.end = end


class CorruptIndexedSegment(CorruptJournalRange):
    """A segment whose index file is damaged, and which is damaged itself: the index file can answer
    for no record, and cannot be made anew."""


class SegmentRemoved(StorageError, Compacted):
    """A read that found its segment removed: when the read began its entries were needed, and they
    are no longer.  Reading anew tells what there is now."""

    def __init__(self, group: int, index: int, path: str):
        super().__init__(f"group {group}, index {index}: {path} is removed")
        self.group = group
        self.index = index
        self.path = path


class EntryTooLarge(StorageError):
    """An entry that no segment can hold."""

    def __init__(self, limit: int, value: int):
        super().__init__(f"entry of {value} bytes exceeds the limit of {limit}")
        self.limit = limit
        self.value = value


class OffsetTooLow(StorageError):
    """The offset is below the first one that this store holds of the partition."""

    def __init__(self, partition: int, offset: int, first: int):
        super().__init__(f"partition {partition}: offset {offset} is below the first, {first}")
        self.first = first


class RecordsNotCopied(StorageError):
    """Records at an offset may be among those that a snapshot did not have and that are not copied
    yet; another member of the group has them."""

    def __init__(self, group: int, partition: int, offset: int, index: int):
        super().__init__(f"group {group}, partition {partition}: the records from offset {offset} "
                         f"on are still to be copied, from index {index} on")
        self.group = group
        self.partition = partition
        self.offset = offset
        self.index = index


class InvalidCopies(StorageError):
    """Copies of records, from another member, that contradict what this log knows; none was
    taken."""

    def __init__(self, group: int, why: str):
        super().__init__(f"copies for group {group}: {why}")
        self.group = group
        self.why = why


class StaleIncarnation(StorageError):
    """The store has a later incarnation of the group than the one it is asked to create."""

    def __init__(self, group: int, asked: int, known: int):
        super().__init__(f"group {group}: incarnation {asked} is older than the known {known}")
        self.group = group
