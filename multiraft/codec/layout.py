"""Byte layout of batches, entries and journal segments: field offsets and limits.

Contract.  Both twins of the hot path (``reference/__init__.py`` and ``_core.pyx``) assert against
this module at import, and ``docs/storage-format.md`` describes it.  A changed number here changes
bytes on disk or on the wire: it needs a new ``FORMAT_VERSION`` and a decision page.

Theory.  A batch is Kafka's RecordBatch v2, big-endian, byte for byte: the bytes that a producer
encoded are replicated, stored and fetched.  An entry header is ours and little-endian (the byte
order of the machines).  An entry's CRC covers its length, its header and, of a DATA payload, the
first 21 bytes: exactly the part of a batch that the batch's CRC32C leaves out.  Of any other
payload it covers everything, because no other CRC would.
"""

from __future__ import annotations

#: Version of the entry and segment layout.  A node refuses files of a version it does not know.
FORMAT_VERSION = 1

# ---- RecordBatch v2 (big-endian) ---------------------------------------------------------------

BATCH_BASE_OFFSET_AT = 0  # i64, stamped by the leader, outside the batch CRC
BATCH_LENGTH_AT = 8  # i32, bytes after this field
BATCH_LEADER_EPOCH_AT = 12  # i32, stamped by the leader, outside the batch CRC
BATCH_MAGIC_AT = 16  # i8, always 2
BATCH_CRC_AT = 17  # u32, CRC32C of everything from BATCH_ATTRIBUTES_AT to the end
BATCH_ATTRIBUTES_AT = 21  # i16
BATCH_LAST_OFFSET_DELTA_AT = 23  # i32
BATCH_BASE_TIMESTAMP_AT = 27  # i64, milliseconds since the epoch
BATCH_MAX_TIMESTAMP_AT = 35  # i64, milliseconds since the epoch
BATCH_PRODUCER_ID_AT = 43  # i64, -1 = not idempotent
BATCH_PRODUCER_EPOCH_AT = 51  # i16
BATCH_BASE_SEQUENCE_AT = 53  # i32
BATCH_RECORDS_COUNT_AT = 57  # i32
BATCH_HEADER_BYTES = 61
BATCH_LENGTH_OVERHEAD = 12  # total bytes = 12 + batch length field
BATCH_MAGIC = 2

#: Bytes that the batch CRC leaves out; the entry CRC covers them instead.
BATCH_UNCHECKED_BYTES = 21

ATTRIBUTE_CODEC_MASK = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20

#: A staged batch, which counts only once the sink ledger says so, has ATTRIBUTE_TRANSACTIONAL and a
#: producer id in this range.  From the highest bits, the id has the number of the sink, the high
#: part of the transaction's number, task, and attempt.  The low part is the producer epoch, so that
#: a newer transaction fences an older one, and an id is used again for the next.
STAGED_PRODUCER_MIN = 1 << 61
STAGED_PRODUCER_MAX = (1 << 62) - 1
STAGED_SINK_BITS, STAGED_TRANSACTION_HIGH_BITS = 20, 14
STAGED_TASK_BITS, STAGED_ATTEMPT_BITS = 20, 7
STAGED_TRANSACTION_LOW_BITS = 15
STAGED_SINKS_MAX = (1 << STAGED_SINK_BITS) - 1
STAGED_TRANSACTIONS_MAX = (1 << STAGED_TRANSACTION_HIGH_BITS + STAGED_TRANSACTION_LOW_BITS) - 1
STAGED_TASKS_MAX = (1 << STAGED_TASK_BITS) - 1
STAGED_ATTEMPTS_MAX = (1 << STAGED_ATTEMPT_BITS) - 1

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)

#: Sequences wrap from 2**31 - 1 to 0, as Kafka's do.
SEQUENCE_MODULUS = 1 << 31

# ---- Entry header (little-endian, 64 bytes) ----------------------------------------------------

ENTRY_LENGTH_AT = 0  # u32, header + payload, without the padding
ENTRY_CRC_AT = 4  # u32, CRC32C of header bytes [0, 4) and [8, 64), then of the payload: its first
#                   21 bytes when the entry is DATA, all of it otherwise
ENTRY_PREV_CRC_AT = 8  # u32, CRC of the entry before it in this segment (first: the header's seed)
ENTRY_KIND_AT = 12  # u8, see types.EntryKind
ENTRY_FLAGS_AT = 13  # u8, zero
ENTRY_RESERVED_AT = 14  # u16, zero
ENTRY_GROUP_AT = 16  # u32
ENTRY_INCARNATION_AT = 20  # u32, of the group
ENTRY_TERM_AT = 24  # u64
ENTRY_INDEX_AT = 32  # u64
ENTRY_PARTITION_AT = 40  # u64, partition incarnation, 0 = none
ENTRY_BASE_OFFSET_AT = 48  # i64, -1 = none
ENTRY_DURABLE_AT = 56  # u64, journal position known durable when this entry was written
ENTRY_HEADER_BYTES = 64

#: Entries start at multiples of this in the journal; the gap is zeros.  So a scan can find the next
#: intact entry after a damaged one without trying every byte.
ENTRY_ALIGNMENT = 8

# ---- Journal segment header (little-endian, 64 bytes) ------------------------------------------

SEGMENT_MAGIC = b"MRLANE\x00\x01"
SEGMENT_MAGIC_AT = 0  # 8 bytes
SEGMENT_VERSION_AT = 8  # u32, FORMAT_VERSION
SEGMENT_LANE_AT = 12  # u32
SEGMENT_START_AT = 16  # u64, journal position of this segment's first byte (the header's)
SEGMENT_CLUSTER_AT = 24  # 16 bytes, cluster id
SEGMENT_NODE_AT = 40  # u32, node id
SEGMENT_SEED_AT = 44  # u32, prev_crc of the first entry: random per segment, so that a recycled
#                       file's old entries never join the chain
SEGMENT_RESERVED_AT = 48  # 12 bytes, zero
SEGMENT_CRC_AT = 60  # u32, CRC32C of bytes [0, 60)
SEGMENT_HEADER_BYTES = 64

# ---- Blocks of index files (little-endian, storage/block_index) ---------------------------------

INDEX_BLOCK_BYTES = 4096
INDEX_BLOCK_HEAD_BYTES = 8  # u32 CRC, u16 kind, u16 rows
INDEX_ENTRIES, INDEX_BATCHES, INDEX_RECORDS = 1, 2, 3  # kinds of blocks
INDEX_ENTRY_ROW_BYTES = 8
INDEX_BATCH_ROW_BYTES = 36
INDEX_RECORD_ROW_BYTES = 16
INDEX_PART_BYTES = 24  # a row of the summary: a key's part of one block
INDEX_PARTITION_BYTES = 20  # a partition of the summary

# ---- Limits (batch <= entry <= frame <= segment is checked at start) ---------------------------

#: A batch larger than this is refused: it has to be buffered whole by every replica.
BATCH_BYTES_MAX = 8 << 20
#: Records in one batch: keeps a lying count from allocating.
BATCH_RECORDS_MAX = 1 << 20
#: Records' header count, as a bound for the walker.
RECORD_HEADERS_MAX = 1 << 10
ENTRY_BYTES_MAX = ENTRY_HEADER_BYTES + BATCH_BYTES_MAX
#: Containers within containers in a frame's header.  Our deepest has 5; a hostile one has 100,000.
HEADER_DEPTH_MAX = 8
#: Lists and maps in one header: each is an object, and a megabyte of empty ones takes 0.4 s.  The
#: largest answer has 50,000 rows of partitions and as many of what belongs to them.
HEADER_CONTAINERS_MAX = 1 << 17
