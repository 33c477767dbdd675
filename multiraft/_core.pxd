"""C side of the compiled twin: layouts, constants, headers.

Contract.  The constants are asserted against ``_layout`` at import.  Only ``_core.pyx`` and its
parts use these declarations; Cython reads them without a cimport.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from posix.types cimport off_t


cdef extern from "_bytes.h" nogil:
    uint16_t mr_load_be16(const uint8_t *at)
    uint32_t mr_load_be32(const uint8_t *at)
    uint64_t mr_load_be64(const uint8_t *at)
    uint16_t mr_load_le16(const uint8_t *at)
    uint32_t mr_load_le32(const uint8_t *at)
    uint64_t mr_load_le64(const uint8_t *at)
    void mr_store_be16(uint8_t *to, uint16_t number)
    void mr_store_be32(uint8_t *to, uint32_t number)
    void mr_store_be64(uint8_t *to, uint64_t number)
    void mr_store_le32(uint8_t *to, uint32_t number)
    void mr_store_le64(uint8_t *to, uint64_t number)
    int mr_varint_bytes(uint64_t number)
    uint8_t *mr_store_varint(uint8_t *to, uint64_t number)


cdef extern from "_bytes.h":
    object mr_named(object cls, tuple fields)


cdef extern from "_crc32c.h" nogil:
    uint32_t mr_crc32c(uint32_t crc, const uint8_t *at, size_t length)
    uint32_t mr_crc32c_portable(uint32_t crc, const uint8_t *at, size_t length)
    void mr_crc32c_choose()


cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void *iov_base
        size_t iov_len


cdef extern from "_disk.h" nogil:
    ctypedef struct mr_job:
        mr_job *next
        iovec *iov
        size_t iov_count
        void *owner
        off_t position
        int64_t token
        int fd
        int sync
        int error
        size_t written
        int64_t micros

    ctypedef struct mr_disk_queue:
        pass

    void mr_trim_memory()
    int mr_append(int fd, iovec *iov, size_t count, off_t position, int sync, size_t *written)
    mr_disk_queue *mr_disk_queue_new(int wake_fd)
    void mr_disk_queue_free(mr_disk_queue *queue)
    int mr_disk_queue_submit(mr_disk_queue *queue, mr_job *job)
    void mr_disk_queue_close(mr_disk_queue *queue)
    int mr_disk_queue_claim(mr_disk_queue *queue)
    mr_job *mr_disk_queue_take_submitted(mr_disk_queue *queue)
    mr_job *mr_disk_queue_take_completed(mr_disk_queue *queue)
    int mr_disk_queue_run(mr_disk_queue *queue)


cdef extern from "_index.h" nogil:
    enum:
        MR_PLAIN
        MR_SPECIAL
        MR_NO_MEMORY

    ctypedef struct mr_column:
        uint64_t *at
        size_t count
        size_t room

    ctypedef struct mr_group:
        uint32_t group
        uint32_t incarnation
        uint64_t first_index
        mr_column positions
        mr_column ends
        mr_column run_starts
        mr_column run_terms
        int has_hard_state
        uint64_t term
        uint32_t vote

    ctypedef struct mr_partition:
        size_t group

    ctypedef struct mr_indexer:
        mr_group *groups
        mr_partition *partitions
        size_t group_count
        size_t partition_count
        int has_entries
        uint64_t first_durable
        uint64_t highest_durable

    ctypedef struct mr_indexed:
        int is_indexed
        int is_batch
        uint32_t group
        uint32_t incarnation
        uint64_t term
        uint64_t index
        uint64_t partition
        uint64_t durable
        uint64_t position
        uint64_t size
        int64_t base_offset
        int64_t max_timestamp_ms
        int32_t count
        uint32_t vote

    mr_indexer *mr_indexer_new()
    void mr_indexer_free(mr_indexer *indexer)
    int mr_indexer_add(mr_indexer *indexer, const mr_indexed *entry)


cdef extern from "_index_rows.h" nogil:
    enum:
        MR_TOO_LARGE
        MR_CONTRADICTS
        MR_BLOCK_BYTES
        MR_ENTRY_BLOCKS
        MR_BATCH_BLOCKS
        MR_ENTRY_ROW_BYTES
        MR_BATCH_ROW_BYTES
        MR_PART_BYTES
        MR_PARTITION_BYTES
        MR_FILE_AT
        MR_FILES_MAX

    ctypedef struct mr_row_order:
        size_t *groups
        size_t *partitions
        size_t entries
        size_t batches
        size_t entry_parts
        size_t batch_parts

    ctypedef struct mr_row_writer:
        int kind
        size_t first_block
        uint8_t *blocks
        size_t count

    ctypedef struct mr_row_reader:
        mr_row_writer place
        size_t rows
        const uint8_t *part

    ctypedef struct mr_unpacked:
        uint64_t first_index
        uint64_t last_index
        int64_t end_offset
        uint8_t *bases
        uint8_t *indexes
        uint8_t *latest
        mr_column gap_bases
        mr_column gap_ends

    size_t mr_blocks_of(int kind, size_t rows)
    size_t mr_rows_per_block(int kind)
    size_t mr_parts_of(int kind, size_t at, size_t rows)
    int mr_rows_sort(const mr_indexer *indexer, mr_row_order *order)
    void mr_rows_free(mr_row_order *order)
    int mr_rows_pack(const mr_indexer *indexer, const mr_row_order *order, uint32_t identity_crc,
                     uint64_t start, uint8_t *blocks, uint8_t *entry_parts, uint8_t *partitions,
                     uint8_t *batch_parts)
    int64_t mr_damaged_block(const uint8_t *blocks, size_t first_block, int kind, size_t rows,
                             uint32_t identity_crc)
    size_t mr_rows_of_parts(const uint8_t *parts, size_t count)
    int mr_unpack_entries(mr_row_reader *reader, size_t parts, uint64_t first_index,
                          uint64_t start, uint8_t *positions, uint8_t *ends)
    int mr_unpack_batches(mr_row_reader *reader, size_t parts, mr_unpacked *found)


cdef enum:
    # RecordBatch v2
    BATCH_BASE_OFFSET_AT = 0
    BATCH_LENGTH_AT = 8
    BATCH_LEADER_EPOCH_AT = 12
    BATCH_MAGIC_AT = 16
    BATCH_CRC_AT = 17
    BATCH_ATTRIBUTES_AT = 21
    BATCH_LAST_OFFSET_DELTA_AT = 23
    BATCH_BASE_TIMESTAMP_AT = 27
    BATCH_MAX_TIMESTAMP_AT = 35
    BATCH_PRODUCER_ID_AT = 43
    BATCH_PRODUCER_EPOCH_AT = 51
    BATCH_BASE_SEQUENCE_AT = 53
    BATCH_RECORDS_COUNT_AT = 57
    BATCH_HEADER_BYTES = 61
    BATCH_LENGTH_OVERHEAD = 12
    BATCH_MAGIC = 2
    BATCH_UNCHECKED_BYTES = 21
    BATCH_BYTES_MAX = 8388608
    BATCH_RECORDS_MAX = 1048576
    RECORD_HEADERS_MAX = 1024
    ATTRIBUTE_CODEC_MASK = 7
    ATTRIBUTE_LOG_APPEND_TIME = 8
    ATTRIBUTE_TRANSACTIONAL = 16
    CODEC_NONE = 0
    CODEC_ZSTD = 4
    # Entry
    ENTRY_LENGTH_AT = 0
    ENTRY_CRC_AT = 4
    ENTRY_PREV_CRC_AT = 8
    ENTRY_KIND_AT = 12
    ENTRY_FLAGS_AT = 13
    ENTRY_RESERVED_AT = 14
    ENTRY_GROUP_AT = 16
    ENTRY_INCARNATION_AT = 20
    ENTRY_TERM_AT = 24
    ENTRY_INDEX_AT = 32
    ENTRY_PARTITION_AT = 40
    ENTRY_BASE_OFFSET_AT = 48
    ENTRY_DURABLE_AT = 56
    ENTRY_HEADER_BYTES = 64
    ENTRY_ALIGNMENT = 8
    ENTRY_BYTES_MAX = 8388672
    HEADER_DEPTH_MAX = 8
    HEADER_CONTAINERS_MAX = 131072


cdef struct Fields:
    # The 61 bytes of a batch.
    int64_t base_offset
    int64_t total_bytes
    int32_t leader_epoch
    int8_t magic
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t count


cdef struct Walk:
    # A cursor over records: reads data[at:end], nothing else.  ``fault`` and its numbers say what
    # was wrong; after a fault nothing more is read.
    const uint8_t *data
    Py_ssize_t at
    Py_ssize_t end
    int fault
    Py_ssize_t fault_at
    int64_t fault_number
    int64_t fault_bound


cdef struct Field:
    # Bytes of a key, a value or a header; ``length`` -1 = null.
    const uint8_t *data
    Py_ssize_t length


cdef struct RecordStart:
    # A record up to its headers.
    Py_ssize_t started
    Py_ssize_t block_end
    int64_t timestamp_ms
    int32_t offset_delta
    int32_t headers_count
    Field key
    Field value


cdef struct Out:
    # A header under construction.
    uint8_t *data
    Py_ssize_t used
    Py_ssize_t room


cdef struct Source:
    # A header that is read.
    const uint8_t *data
    Py_ssize_t at
    Py_ssize_t end
    uint64_t containers  # lists and maps so far


cdef class BatchBuilder:
    cdef uint8_t *_block
    cdef Py_ssize_t _used
    cdef Py_ssize_t _room
    cdef Py_ssize_t _bytes_max
    cdef int32_t _count
    cdef int64_t _base_timestamp_ms
    cdef int64_t _max_timestamp_ms

    cdef int _reserve(self, Py_ssize_t more) except -1
    cdef int _add(self, int64_t timestamp_ms, bytes key, bytes value, bytes headers) except -1


cdef class _Growing:
    cdef bytearray held
    cdef uint8_t *data
    cdef Py_ssize_t used
    cdef Py_ssize_t kept
    cdef Py_ssize_t room

    cdef int grow(self, Py_ssize_t more) except -1
    cdef bytearray give(self)


cdef class _BytesColumn:
    cdef _Growing valid
    cdef _Growing ends
    cdef _Growing content
    cdef Py_ssize_t count
    cdef Py_ssize_t kept_count
    cdef Py_ssize_t nulls
    cdef Py_ssize_t kept_nulls

    cdef int add(self, Field field) except -1
    cdef int keep(self) except -1
    cdef int forget(self) except -1
    cdef object give(self)


cdef class ColumnBuilder:
    cdef _Growing _offsets
    cdef _Growing _timestamps
    cdef _Growing _timestamps_valid
    cdef _BytesColumn _keys
    cdef _BytesColumn _values
    cdef _Growing _header_ends
    cdef _BytesColumn _header_names
    cdef _BytesColumn _header_values
    cdef Py_ssize_t _count
    cdef Py_ssize_t _kept_count
    cdef Py_ssize_t _untimed
    cdef Py_ssize_t _kept_untimed

    cdef int _clear(self) except -1
    cdef int _keep(self) except -1
    cdef int _forget(self) except -1
    cdef int _extend(self, header, const uint8_t *data, Py_ssize_t length, int64_t first,
                     int64_t end) except -1
    cdef int _add(self, RecordStart *record, int64_t offset) except -1
    cdef int _add_headers(self, Walk *walk, int32_t count) except -1


cdef class DiskQueue:
    cdef mr_disk_queue *_queue
    cdef Py_ssize_t _outstanding


cdef struct _Joined:  # a partition, while the rows of its files are joined
    size_t rows
    int64_t end_offset
    int64_t value  # running
    bint is_begun
    uint8_t *to

cdef struct Indexing:
    # A window of a segment that is being taken.
    Py_ssize_t at  # first byte that was not consumed
    uint64_t position  # lane position of the window's first byte
    uint32_t prev_crc
    int fault
    int stopped  # MR_PLAIN, or why an intact entry was not taken
    bint damaged  # a payload


cdef class SegmentIndexer:
    cdef mr_indexer *_indexer


cdef class IndexRowReader:
    cdef Py_buffer _view  # of the blocks
    cdef mr_row_reader _reader

    cdef list _columns(self, const uint8_t *partition, size_t parts, mr_unpacked *found)


cdef class _MarkedRecords:
    cdef Py_buffer block
    cdef Py_buffer marked
    cdef uint32_t *starts
    cdef uint8_t *marks
    cdef const uint8_t *data
    cdef int64_t base_offset
    cdef int64_t base_timestamp_ms
    cdef Py_ssize_t first
    cdef int32_t count
    cdef int held

    cdef void record(self, int32_t turn, RecordStart *record) noexcept nogil


cdef class KeyTable:
    cdef uint64_t *_hashes
    cdef uint64_t *_places
    cdef uint8_t *_arena
    cdef uint64_t _slots_mask
    cdef Py_ssize_t _arena_room
    cdef Py_ssize_t _arena_used
    cdef uint64_t _keys
    cdef uint64_t _low
    cdef uint64_t _last
    cdef uint64_t _seed

    cdef bint _mark(self, _MarkedRecords records, int64_t below) noexcept nogil
    cdef bint _add(self, _MarkedRecords records, bint some) noexcept nogil
    cdef int32_t _pin(self, _MarkedRecords records) noexcept nogil
    cdef uint64_t _slot(self, uint64_t h, Field key) noexcept nogil
    cdef int _put(self, uint64_t h, Field key) noexcept nogil
    cdef void _drop_outside(self) noexcept nogil
