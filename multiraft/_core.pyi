"""Typed surface of both twins, ``_core`` (compiled) and ``_reference`` (the specification).

Same names, signatures, results, exception types and messages.  ``Buffer`` is anything with the
buffer protocol; functions that stamp need it writable.  All of them are free of global state.
Long work (CRC, copying, system calls) runs without the GIL in the compiled twin.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from multiraft.types import BatchInfo, Entry, EntryKind

Buffer = bytes | bytearray | memoryview
Header = tuple[str, bytes | None]

#: SHA-256 (hex) of _core.pyx and _core.pxd at build; a test compares it with the files.
SOURCE_DIGEST: str

class Record(NamedTuple):
    """One record as a consumer sees it."""
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

class BatchHeader(NamedTuple):
    """The 61 bytes, parsed; no check but the length of the buffer."""
    base_offset: int
    total_bytes: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

class BytesColumn(NamedTuple):
    """Byte strings, null or not, one behind the other."""
    nulls: int
    valid: bytearray | None    # a bit per row, lowest first, 1 = not null; None without nulls
    ends: bytearray            # i32 of this machine's byte order, 0 and the end of each row
    content: bytearray

class HeadersColumn(NamedTuple):
    """A list of (name, value) per row."""
    ends: bytearray            # i32, 0 and the end of each row's headers
    names: BytesColumn         # UTF-8
    values: BytesColumn

class Columns(NamedTuple):
    """Records as columns, in the memory layout of Apache Arrow."""
    count: int
    offsets: bytearray         # i64 per row
    timestamps_us: bytearray   # i64 per row, microseconds since 1970
    timestamps_valid: bytearray | None  # as in ``BytesColumn``
    keys: BytesColumn | None   # None: not asked for
    values: BytesColumn | None
    headers: HeadersColumn | None

class ScannedEntry(NamedTuple):
    """An intact entry found by ``scan_entries``."""
    at: int            # byte in the scanned buffer where its header starts
    length: int        # header + payload
    kind: EntryKind
    group: int
    incarnation: int
    term: int
    index: int
    partition: int
    base_offset: int
    durable: int
    payload_intact: bool   # False: header fine, but a DATA payload fails its batch CRC

class Scan(NamedTuple):
    """What a scan found: entries in order, where it stopped and why."""
    entries: list[ScannedEntry]
    stopped_at: int    # first byte not consumed (aligned)
    reason: str        # "end" (buffer ends at an entry's end, or only a partial header is left),
                       # "zeros", "torn" (length reaches past the buffer), "crc", "chain", "format"
    last_crc: int      # prev_crc for what would follow

class Checked(NamedTuple):
    """What ``check_entries`` found: as a ``Scan``, but without the entries."""
    count: int         # intact entries, those with damaged payloads included
    damaged: list[tuple[int, int]]  # (byte, length) of entries whose DATA payload is damaged
    stopped_at: int    # as of a scan
    reason: str        # as of a scan
    last_crc: int      # prev_crc for what would follow
    last_durable: int  # mark of the last entry; 0 = there was none

class Indexed(NamedTuple):
    """Where ``SegmentIndexer.take`` stopped and why."""
    stopped_at: int    # as of a scan
    reason: str        # as of a scan; "payload" = a damaged batch, "special" = an entry that is not
                       # plain
    last_crc: int      # prev_crc for what would follow

def encode_header(header: dict[str, Any], payload_bytes: int) -> bytes:
    """What a frame has before its payload of ``payload_bytes``: u32 length of the rest, u32 length
    of the header, the header as CBOR in its shortest form.  Raises ``TypeError`` for what has no
    place in a header, ``OverflowError`` for an integer or a frame that is too large, ``ValueError``
    for containers nested deeper than HEADER_DEPTH_MAX."""

def decode_header(data: Buffer, at: int, end: int) -> dict[str, Any]:
    """The header in data[at:end]: one map with text keys, of integers of 64 bits, text, bytes,
    booleans, null, lists and such maps; definite lengths, no tags, no repeated keys, no floats,
    at most HEADER_DEPTH_MAX containers deep, nothing after it.  Raises ``MalformedHeader``, or
    ``ValueError`` when data has no such bytes."""

def crc32c(data: Buffer, value: int = 0) -> int:
    """CRC32C of ``data``, continuing from ``value``, the CRC of what came before.  Raises
    ``OverflowError`` when ``value`` is not an unsigned 32-bit number."""

class BatchBuilder:
    """Encodes records into one RecordBatch v2 as they arrive; O(1) amortised per record."""
    def __init__(self, bytes_max: int) -> None:
        """``bytes_max``: 62 .. BATCH_BYTES_MAX, of the whole uncompressed batch; else
        ``ValueError``."""
    count: int         # records so far
    size: int          # bytes the batch would have uncompressed, header included
    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None,
               headers: Sequence[Header] = ()) -> bool:
        """Add a record; False (and nothing changed) when it would exceed ``bytes_max`` or
        BATCH_RECORDS_MAX.  Raises, with nothing changed, ``RecordTooLarge`` when it can never fit
        alone or has too many headers, ``TypeError`` for a wrong type, ``ValueError`` for a
        timestamp outside -1 (none) .. 2**62 - 1."""
    def extend(self, timestamp_ms: int, values: Sequence[bytes], start: int = 0) -> int:
        """Add values[start:] without keys until full; the index of the first not added.  A value
        that can never be added (``RecordTooLarge``, ``TypeError``) ends the call before it, and
        raises when it comes first: an exception always means that nothing was added."""
    def records_block(self) -> bytes:
        """The encoded records, for a compressor."""
    def build(self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
              codec: int = 0, block: Buffer | None = None) -> bytearray:
        """The finished batch, base offset 0, leader epoch -1; ``block`` = the compressed records
        (None: as they are) and goes together with a ``codec``.  The builder may be built again with
        other producer fields.  Raises ``ValueError`` for an empty batch or a field out of range,
        ``BatchTooLarge`` when a block grew over BATCH_BYTES_MAX."""
    def clear(self) -> None:
        """Start an empty batch; keeps the memory."""

def batch_header(data: Buffer, at: int = 0) -> BatchHeader:
    """The 61 bytes at ``at``.  Raises ``CorruptBatch`` when fewer are left or the length field
    gives a size outside 61 .. BATCH_BYTES_MAX, ``ValueError`` for a negative ``at``."""

def check_batch(data: Buffer) -> BatchInfo:
    """All a leader checks before it accepts ``data`` as exactly one batch: size limits, length
    field == len(data), magic 2, CRC, base offset 0, count > 0 and == last offset delta + 1, not a
    control or transactional batch, timestamp type CreateTime, producer fields consistent; walks
    the records when uncompressed (deltas 0..n-1, lengths, block used up).  Raises ``CorruptBatch``
    (CRC, lengths), ``InvalidBatch`` (the rest), ``BatchTooLarge``."""

def batch_info(data: Buffer) -> BatchInfo:
    """Fields of a batch that was checked before; no CRC.  Raises as ``batch_header``."""

def verify_batch(data: Buffer) -> BatchHeader:
    """What a follower or a consumer checks of exactly one batch: length field == len(data), magic,
    CRC.  Raises ``CorruptBatch``."""

def stamp_batch(data: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch in place (both outside the CRC).  Raises ``BufferError``
    for a read-only buffer, ``CorruptBatch`` for fewer than 61 bytes, ``ValueError`` for a number
    out of range."""

def stamp_producer(data: Buffer, producer_id: int, producer_epoch: int,
                   base_sequence: int) -> None:
    """Write a producer's fields in place, and the CRC that covers them: a batch gets its sequence
    when it is sent, which may be long after it was built.  Raises as ``stamp_batch``.  O(bytes)."""

def split_batches(data: Buffer) -> list[memoryview]:
    """Cut a fetch payload of whole batches into views, without copying; each is ``verify_batch``ed.
    Raises ``CorruptBatch``."""

def decode_records(header: BatchHeader, block: Buffer) -> list[Record]:
    """Records of one batch; ``block`` is the *uncompressed* records part.  Offset deltas have to
    rise and may have the holes of compaction.  Header names that are no UTF-8 come as surrogate
    escapes, as ``BatchBuilder`` takes them.  Raises ``CorruptBatch``."""

class ColumnBuilder:
    """Collects the records of batches as columns; O(1) amortised per record."""
    def __init__(self, keys: bool = True, values: bool = True, headers: bool = False) -> None:
        """Which of the columns that cost something are wanted."""
    count: int         # rows so far
    size: int          # bytes they have, without lengths
    def extend(self, header: BatchHeader, block: Buffer, first_offset: int,
               end_offset: int) -> int:
        """Add those records of a batch with first_offset <= offset < end_offset; how many.
        ``block`` and what is raised as for ``decode_records``; ``ValueError`` when a column would
        exceed 2 GiB.  After an exception nothing has changed.  A timestamp below 1970 (-1 = none)
        or beyond what microseconds of 64 bits can say becomes null; in names of headers U+FFFD
        replaces what is no UTF-8."""
    def take(self) -> Columns:
        """All rows; then it is empty."""

def frame_entries(entries: Iterable[Entry], prev_crc: int, durable: int,
                  ) -> tuple[list[Buffer], list[int], int, int]:
    """Headers for a gathered append: (buffers, starts, total bytes, last crc).  ``buffers`` has
    exactly three members per entry, header, payload, padding (the last two may be empty), ready for
    a gathered write: those of entry i are ``buffers[3 * i:3 * i + 3]``, so a part of what the lane
    gets can be sent to a peer as it is.  ``starts[i]`` is where entry i starts, relative to the
    first.  Raises ``ValueError`` for an entry over ENTRY_BYTES_MAX, ``OverflowError`` for a field
    that does not fit its bytes."""

def parse_entries(data: Buffer) -> list[Entry]:
    """Entries of a peer frame (as framed by another node's ``frame_entries``; prev_crc and durable
    are that node's and ignored); entry CRC and batch CRC verified; payloads are views into
    ``data``; ``batch`` set for DATA.  The padding of the last entry has to be there.  Raises
    ``CorruptEntry``."""

def scan_entries(data: Buffer, at: int, prev_crc: int, verify_payload: bool = True,
                 upto: int = -1) -> Scan:
    """Recovery: entries from byte ``at`` on while the chain of CRCs holds.  ``verify_payload``:
    also check the CRC of DATA payloads, for ``payload_intact``; a bad one does not end the scan.
    ``upto``: no entry is taken that begins at or behind this byte; -1 = all are."""

def check_entries(data: Buffer, at: int, prev_crc: int) -> Checked:
    """As ``scan_entries`` with ``verify_payload``, for who wants to know only whether all is well:
    no object is made for an intact entry, and the compiled twin holds the GIL for none."""

class SegmentIndexer:
    """What the entries of one segment add to the index, without an object per entry; the compiled
    twin holds the GIL for none.  It knows the plain case, which nearly every segment is: each entry
    is the next of its group's log, whose incarnation does not change, or its group's hard state."""

    @property
    def first_durable(self) -> int:
        """Durable mark of the first entry; -1 = no entries."""
    @property
    def highest_durable(self) -> int:
        """The highest of the durable marks; 0 = no entries."""
    def take(self, data: Buffer, at: int, prev_crc: int, position: int) -> Indexed:
        """Entries from byte ``at`` on, as ``check_entries`` finds them; ``position``: lane position
        of byte 0.  It stops at an entry that is not plain ("special") and at a damaged payload
        ("payload"); what was taken is of no use then.  O(entries)."""
    def runs(self) -> list[tuple]:
        """Per group: (group, incarnation, fields of ``GroupIndex.unpack`` or None, list of fields
        of ``PartitionIndex.unpack``, (term, vote) of the last hard state or None)."""

def find_entry(data: Buffer, at: int) -> int:
    """First aligned byte >= ``at`` where an entry with an intact entry CRC starts; -1 = none.  The
    rest of a DATA payload may be damaged or missing."""

class DiskQueue:
    """The queue of one writer thread that never needs the interpreter: jobs go in, the thread
    writes and syncs them one after the other, completions come out, an eventfd tells the loop.

    After a failed job every later one completes with ``ECANCELED`` and does not touch the disk: a
    failed fsync is never retried, and nothing may be written behind a hole.
    """
    def __init__(self, wake_fd: int) -> None:
        """``wake_fd``: an eventfd; 1 is added to it after each completion.  Not closed here."""
    def submit(self, fd: int, buffers: Sequence[Buffer], position: int, sync: bool, token: int,
               ) -> None:
        """Enqueue one gathered append (as ``append_gathered``); never blocks on the disk.  The
        buffers are held until their completion is collected and must not be changed before.
        ``token`` (64-bit signed) comes back in the completion.  Raises ``ValueError`` after
        ``close``, ``QueueFull`` when 1024 jobs were submitted and not collected."""
    def run(self) -> None:
        """Body of the worker thread: returns after ``close``, when all that was submitted is done.
        Raises ``RuntimeError`` when another thread runs it or has."""
    def completions(self) -> list[tuple[int, int, int, int]]:
        """(token, error number or 0, bytes written, microseconds taken) of each job completed since
        the last call, in order of submission; lets go of their buffers.  Does not read the
        eventfd."""
    def close(self) -> None:
        """No more jobs; ``run`` returns when those submitted are done.  May be repeated."""

def unset_memory(size: int) -> bytearray:
    """``size`` bytes to read or receive into: what they are before that is not defined, and costs
    nothing (a ``bytearray(size)`` is written once for nothing).  Who hands them on has to know how
    many were filled.  Raises ``ValueError`` for a negative size."""

def append_gathered(fd: int, buffers: Sequence[Buffer], position: int, sync: bool) -> int:
    """pwritev all of ``buffers`` at file offset ``position`` (retrying short writes), when ``sync``
    with an fdatasync after each 512 KiB and at the end (docs/decisions/0034); bytes written.
    Raises ``OSError``, ``ValueError`` for a negative position; never retries a failed sync."""

def jump_hash(key: int, buckets: int) -> int:
    """Jump consistent hash (Lamping, Veach 2014) of a 64-bit key; 0 <= result < buckets."""

def default_groups(first: int, count: int, pool_size: int, seed: int) -> list[int]:
    """Where the hash puts the partitions with the incarnations ``first`` .. ``first + count - 1``:
    as ``placement.default_group``, which says why.  O(count log pool_size)."""

def murmur2(data: Buffer) -> int:
    """Kafka's murmur2 of a key, as an unsigned 32-bit number (partition = (it & 0x7fffffff) %
    n)."""
