# cython: language_level=3, wraparound=False, cdivision=True, embedsignature=False
"""The compiled hot path: the same functions as ``_reference``, which says what they mean.

Contract.  ``_core.pyi`` is the surface.  Results, exception types and messages equal the
reference's; ``tests/core`` compares them on arbitrary bytes.

Invariants.  Buffers come from outside and may be anything, also other than they were a moment ago:
every length is read once, compared with what is left, and only then used.  No pointer outlives the
``Py_buffer`` it came from.  Functions called without the interpreter's lock touch no object.

Theory.  The interpreter's lock is released for system calls, and for computing over RELEASE_BYTES
and more.  Less is over (50 us) before a waiting thread has woken up, so it would help nobody; more
may cost the caller a switch interval (5 ms) to get the lock back from a thread that computes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport (
    PyByteArray_AS_STRING,
    PyByteArray_FromStringAndSize,
    PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.exc cimport PyErr_SetFromErrno
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.number cimport PyNumber_Index
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
cimport libc.errno as c_errno
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import multiraft._layout as _layout
from multiraft._values import (
    BatchHeader,
    BytesColumn,
    Checked,
    Columns,
    HeadersColumn,
    Indexed,
    Record,
    Scan,
    ScannedEntry,
)
from multiraft.errors import (
    BatchTooLarge,
    CorruptBatch,
    CorruptEntry,
    InvalidBatch,
    MalformedHeader,
    QueueFull,
    RecordTooLarge,
)
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

__all__ = [
    "SOURCE_DIGEST", "BatchBuilder", "BatchHeader", "BytesColumn", "Checked", "ColumnBuilder",
    "Columns", "DiskQueue", "HeadersColumn", "Indexed", "Record", "Scan", "ScannedEntry",
    "SegmentIndexer",
    "append_gathered", "batch_header", "batch_info", "check_batch", "check_entries", "crc32c",
    "decode_header", "decode_records", "default_groups", "encode_header", "find_entry",
    "frame_entries", "jump_hash",
    "murmur2", "parse_entries", "scan_entries", "split_batches", "stamp_batch", "stamp_producer",
    "unset_memory", "verify_batch",
]

cdef extern from *:
    const char *MULTIRAFT_SOURCE_DIGEST

SOURCE_DIGEST = MULTIRAFT_SOURCE_DIGEST.decode("ascii")

cdef enum:
    RELEASE_BYTES = 1048576
    DISK_QUEUE_JOBS_MAX = 1024
    DATA = 1
    LAST_INDEXED = 7
    HARD_STATE = 18
    VOTE_BYTES = 4
    #: What 32-bit ends of a column can count.
    COLUMN_BYTES_MAX = 2147483647

cdef int64_t I64_MAX = 0x7FFFFFFFFFFFFFFF
#: The last millisecond whose microseconds fit 64 bits.
cdef int64_t COLUMN_TIMESTAMP_MS_MAX = 0x7FFFFFFFFFFFFFFF // 1000
cdef int64_t TIMESTAMP_MS_MAX = 0x3FFFFFFFFFFFFFFF
#: Producer ids of batches that count only once a ledger says so.
cdef int64_t STAGED_PRODUCER_MIN = 0x2000000000000000
cdef int64_t STAGED_PRODUCER_MAX = 0x3FFFFFFFFFFFFFFF

mr_crc32c_choose()


def _assert_layout():
    """The enum of the .pxd says what ``_layout`` says."""
    for name, number in (
            ("BATCH_BASE_OFFSET_AT", BATCH_BASE_OFFSET_AT), ("BATCH_LENGTH_AT", BATCH_LENGTH_AT),
            ("BATCH_LEADER_EPOCH_AT", BATCH_LEADER_EPOCH_AT), ("BATCH_MAGIC_AT", BATCH_MAGIC_AT),
            ("BATCH_CRC_AT", BATCH_CRC_AT), ("BATCH_ATTRIBUTES_AT", BATCH_ATTRIBUTES_AT),
            ("BATCH_LAST_OFFSET_DELTA_AT", BATCH_LAST_OFFSET_DELTA_AT),
            ("BATCH_BASE_TIMESTAMP_AT", BATCH_BASE_TIMESTAMP_AT),
            ("BATCH_MAX_TIMESTAMP_AT", BATCH_MAX_TIMESTAMP_AT),
            ("BATCH_PRODUCER_ID_AT", BATCH_PRODUCER_ID_AT),
            ("BATCH_PRODUCER_EPOCH_AT", BATCH_PRODUCER_EPOCH_AT),
            ("BATCH_BASE_SEQUENCE_AT", BATCH_BASE_SEQUENCE_AT),
            ("BATCH_RECORDS_COUNT_AT", BATCH_RECORDS_COUNT_AT),
            ("BATCH_HEADER_BYTES", BATCH_HEADER_BYTES),
            ("BATCH_LENGTH_OVERHEAD", BATCH_LENGTH_OVERHEAD), ("BATCH_MAGIC", BATCH_MAGIC),
            ("BATCH_UNCHECKED_BYTES", BATCH_UNCHECKED_BYTES),
            ("BATCH_BYTES_MAX", BATCH_BYTES_MAX), ("BATCH_RECORDS_MAX", BATCH_RECORDS_MAX),
            ("RECORD_HEADERS_MAX", RECORD_HEADERS_MAX),
            ("ATTRIBUTE_CODEC_MASK", ATTRIBUTE_CODEC_MASK),
            ("ATTRIBUTE_TRANSACTIONAL", ATTRIBUTE_TRANSACTIONAL),
            ("STAGED_PRODUCER_MIN", STAGED_PRODUCER_MIN),
            ("STAGED_PRODUCER_MAX", STAGED_PRODUCER_MAX), ("CODEC_NONE", CODEC_NONE),
            ("CODEC_ZSTD", CODEC_ZSTD), ("ENTRY_LENGTH_AT", ENTRY_LENGTH_AT),
            ("ENTRY_CRC_AT", ENTRY_CRC_AT), ("ENTRY_PREV_CRC_AT", ENTRY_PREV_CRC_AT),
            ("ENTRY_KIND_AT", ENTRY_KIND_AT), ("ENTRY_FLAGS_AT", ENTRY_FLAGS_AT),
            ("ENTRY_RESERVED_AT", ENTRY_RESERVED_AT), ("ENTRY_GROUP_AT", ENTRY_GROUP_AT),
            ("ENTRY_INCARNATION_AT", ENTRY_INCARNATION_AT), ("ENTRY_TERM_AT", ENTRY_TERM_AT),
            ("ENTRY_INDEX_AT", ENTRY_INDEX_AT), ("ENTRY_PARTITION_AT", ENTRY_PARTITION_AT),
            ("ENTRY_BASE_OFFSET_AT", ENTRY_BASE_OFFSET_AT),
            ("ENTRY_DURABLE_AT", ENTRY_DURABLE_AT), ("ENTRY_HEADER_BYTES", ENTRY_HEADER_BYTES),
            ("ENTRY_ALIGNMENT", ENTRY_ALIGNMENT), ("ENTRY_BYTES_MAX", ENTRY_BYTES_MAX),
            ("HEADER_DEPTH_MAX", HEADER_DEPTH_MAX),
            ("HEADER_CONTAINERS_MAX", HEADER_CONTAINERS_MAX)):
        assert number == getattr(_layout, name), f"_core.pxd has {name}={number}"
    assert DATA == EntryKind.DATA and HARD_STATE == EntryKind.HARD_STATE
    assert LAST_INDEXED == LAST_INDEXED_KIND


_assert_layout()

#: EntryKind of each byte, or None; and the same for code that runs without the lock.
cdef list _KINDS = [None] * 256
cdef uint8_t _kind_known[256]
for _kind in EntryKind:
    _KINDS[int(_kind)] = _kind
    _kind_known[<uint8_t>int(_kind)] = 1

cdef tuple _PADDING = tuple(bytes(length) for length in range(ENTRY_ALIGNMENT))


# ---- Bytes and hashes --------------------------------------------------------------------------

cdef uint32_t _crc(uint32_t crc, const uint8_t *data, Py_ssize_t length) noexcept:
    if length < RELEASE_BYTES:
        return mr_crc32c(crc, data, <size_t>length)
    with nogil:
        crc = mr_crc32c(crc, data, <size_t>length)
    return crc


cdef uint32_t _crc_seed(object value) except? 0:
    if not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"CRC {value} is not an unsigned 32-bit number")
    return value


def crc32c(data, value=0):
    cdef uint32_t crc = _crc_seed(value)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = _crc(crc, <const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def _crc32c_portable(data, value=0):
    """What machines without a CRC instruction run; for the tests."""
    cdef uint32_t crc = _crc_seed(value)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = mr_crc32c_portable(crc, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def murmur2(data):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t h = _murmur2(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


cdef uint32_t _murmur2(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint32_t k, h = 0x9747B28CU ^ <uint32_t>length, multiplier = 0x5BD1E995U
    cdef const uint8_t *end = at + length
    while end - at >= 4:
        k = mr_load_le32(at) * multiplier
        h = (h * multiplier) ^ ((k ^ (k >> 24)) * multiplier)
        at += 4
    if end != at:
        if end - at == 3:
            h ^= <uint32_t>at[2] << 16
        if end - at >= 2:
            h ^= <uint32_t>at[1] << 8
        h = (h ^ at[0]) * multiplier
    h = (h ^ (h >> 13)) * multiplier
    return h ^ (h >> 15)


def jump_hash(key, buckets):
    if not 0 <= key < 1 << 64:
        raise OverflowError(f"key {key} is not an unsigned 64-bit number")
    if not 1 <= buckets < 1 << 31:
        raise ValueError(f"buckets={buckets} is outside 1..{(1 << 31) - 1}")
    return _jump_hash(key, buckets)


cdef int64_t _jump_hash(uint64_t state, int64_t end) noexcept nogil:
    cdef int64_t bucket = -1, jump = 0
    while jump < end:
        bucket = jump
        state = state * 2862933555777941757U + 1
        jump = <int64_t>(<double>(bucket + 1)
                         * (<double>(1LL << 31) / <double>((state >> 33) + 1)))
    return bucket


cdef uint64_t _mix64(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU
    return value ^ (value >> 31)


def default_groups(first, Py_ssize_t count, pool_size, seed):
    if not (0 <= first < 1 << 64 and 0 <= seed < 1 << 64):
        raise OverflowError(f"incarnation {first} or seed {seed} is not an unsigned 64-bit number")
    if not 1 <= pool_size < 1 << 31:
        raise ValueError(f"pool_size={pool_size} is outside 1..{(1 << 31) - 1}")
    cdef uint64_t incarnation = first, number = seed
    cdef uint64_t stir = _mix64(number + 0x9E3779B97F4A7C15U)
    cdef int64_t end = pool_size
    cdef Py_ssize_t at
    cdef list groups = []
    for at in range(count):
        groups.append(1 + _jump_hash(_mix64(_mix64(incarnation + <uint64_t>at + stir)), end))
    return groups


# ---- Records: a walk that believes nothing -----------------------------------------------------

cdef enum:
    PAST_END = 1
    VARINT_LONG = 2
    FIELD_LENGTH = 3
    RECORD_LENGTH = 4
    TIMESTAMP = 5
    HEADERS_COUNT = 6
    BYTES_UNUSED = 7
    OFFSET_DELTA = 8
    BYTES_LEFT = 9


cdef inline uint64_t _zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline void _fault(Walk *walk, int fault, Py_ssize_t at, int64_t number,
                        int64_t bound) noexcept nogil:
    if not walk.fault:
        walk.fault = fault
        walk.fault_at = at
        walk.fault_number = number
        walk.fault_bound = bound


cdef inline int64_t _varint(Walk *walk, int bits) noexcept nogil:
    """A zigzag varint of at most ``bits``; 0 and a fault when there is none."""
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while walk.at < walk.end:
        byte = walk.data[walk.at]
        if shift + 7 > bits and byte >> (bits - shift):
            _fault(walk, VARINT_LONG, walk.at, bits, 0)
            return 0
        walk.at += 1
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>((number >> 1) ^ (~(number & 1) + 1))
        shift += 7
    _fault(walk, PAST_END, walk.at, walk.end, 0)
    return 0


cdef inline Field _sized(Walk *walk, int least) noexcept nogil:
    """A length (at least ``least``; -1 = null) and as many bytes; null after a fault."""
    cdef Field field
    cdef Py_ssize_t started = walk.at
    cdef int64_t length = _varint(walk, 32)
    field.data = NULL
    field.length = -1
    if walk.fault:
        return field
    if length < least or length > walk.end - walk.at:
        _fault(walk, FIELD_LENGTH, started, length, walk.end - walk.at)
        return field
    if length >= 0:
        field.data = walk.data + walk.at
        field.length = length
        walk.at += length
    return field


cdef int _record_start(Walk *walk, int64_t base_timestamp_ms, RecordStart *record) noexcept nogil:
    """Read up to the headers; 0, or the fault."""
    cdef int64_t length, delta
    record.started = walk.at
    record.block_end = walk.end
    length = _varint(walk, 32)
    if walk.fault:
        return walk.fault
    if length < 0 or length > walk.end - walk.at:
        _fault(walk, RECORD_LENGTH, record.started, length, walk.end - walk.at)
        return walk.fault
    walk.end = walk.at + length
    if length == 0:
        _fault(walk, PAST_END, walk.at, walk.end, 0)
        return walk.fault
    walk.at += 1  # attributes: unused by the format
    delta = _varint(walk, 64)
    if walk.fault:
        return walk.fault
    if (delta > 0 and base_timestamp_ms > I64_MAX - delta
            or delta < 0 and base_timestamp_ms < -I64_MAX - 1 - delta):
        _fault(walk, TIMESTAMP, record.started, 0, 0)
        return walk.fault
    record.timestamp_ms = base_timestamp_ms + delta
    record.offset_delta = <int32_t>_varint(walk, 32)
    if not walk.fault:
        record.key = _sized(walk, -1)
    if not walk.fault:
        record.value = _sized(walk, -1)
    if not walk.fault:
        record.headers_count = <int32_t>_varint(walk, 32)
    if not walk.fault and not 0 <= record.headers_count <= RECORD_HEADERS_MAX:
        _fault(walk, HEADERS_COUNT, record.started, record.headers_count, 0)
    return walk.fault


cdef inline int _record_end(Walk *walk, RecordStart *record) noexcept nogil:
    """After the headers: nothing is left of the record."""
    if not walk.fault and walk.at != walk.end:
        _fault(walk, BYTES_UNUSED, record.started, walk.end - walk.at, 0)
    walk.end = record.block_end
    return walk.fault


cdef void _check_records(Walk *walk, int64_t base_timestamp_ms, int32_t count) noexcept nogil:
    """All of a block's records, offset deltas 0..count-1."""
    cdef RecordStart record
    cdef int32_t expected, header
    for expected in range(count):
        if _record_start(walk, base_timestamp_ms, &record):
            return
        for header in range(record.headers_count):
            _sized(walk, 0)
            if not walk.fault:
                _sized(walk, -1)
            if walk.fault:
                return
        if _record_end(walk, &record):
            return
        if record.offset_delta != expected:
            _fault(walk, OFFSET_DELTA, record.started, record.offset_delta, expected)
            return
    if walk.at != walk.end:
        _fault(walk, BYTES_LEFT, walk.at, walk.end - walk.at, 0)


cdef object _walk_error(Walk *walk):
    """The exception that says what the walk found."""
    cdef object at = walk.fault_at, number = walk.fault_number, bound = walk.fault_bound
    if walk.fault == PAST_END:
        return CorruptBatch(f"record field at byte {at} reaches past its end {number}")
    if walk.fault == VARINT_LONG:
        return CorruptBatch(f"varint at byte {at} is longer than {number} bits")
    if walk.fault == FIELD_LENGTH:
        return CorruptBatch(f"record field at byte {at}: length {number} does not fit the {bound} "
                            f"bytes left")
    if walk.fault == RECORD_LENGTH:
        return CorruptBatch(f"record at byte {at}: length {number} does not fit the {bound} bytes "
                            f"left")
    if walk.fault == TIMESTAMP:
        return CorruptBatch(f"record at byte {at}: timestamp overflows 64 bits")
    if walk.fault == HEADERS_COUNT:
        return CorruptBatch(f"record at byte {at}: {number} headers, limit {RECORD_HEADERS_MAX}")
    if walk.fault == BYTES_UNUSED:
        return CorruptBatch(f"record at byte {at}: {number} bytes unused")
    if walk.fault == OFFSET_DELTA:
        return InvalidBatch(f"record at byte {at}: offset delta {number}, expected {bound}")
    assert walk.fault == BYTES_LEFT
    return CorruptBatch(f"{number} bytes after the last record")


# ---- Batches: encode ---------------------------------------------------------------------------

cdef inline Py_ssize_t _sized_bytes(bytes field) noexcept:
    """Bytes that a field takes with its length."""
    if field is None:
        return 1
    cdef Py_ssize_t length = PyBytes_GET_SIZE(field)
    return mr_varint_bytes(_zigzag(length)) + length


cdef inline uint8_t *_store_sized(uint8_t *to, bytes field) noexcept:
    if field is None:
        to[0] = 1  # zigzag of -1
        return to + 1
    cdef Py_ssize_t length = PyBytes_GET_SIZE(field)
    to = mr_store_varint(to, _zigzag(length))
    memcpy(to, PyBytes_AS_STRING(field), <size_t>length)
    return to + length


cdef bytes _encode_headers(headers):
    """Count and headers, encoded; None when there are none."""
    cdef list names = []
    cdef Py_ssize_t total
    headers = headers if isinstance(headers, (tuple, list)) else tuple(headers)
    if len(headers) > RECORD_HEADERS_MAX:
        raise RecordTooLarge(f"record with {len(headers)} headers exceeds RECORD_HEADERS_MAX="
                             f"{RECORD_HEADERS_MAX}")
    total = mr_varint_bytes(_zigzag(len(headers)))
    for header in headers:
        if not isinstance(header, (tuple, list)) or len(header) != 2:
            raise TypeError("a header must be a pair of str and bytes or None")
        name, field = header
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {type(name).__name__}")
        if field is not None and not isinstance(field, bytes):
            raise TypeError(f"header value must be bytes or None, not {type(field).__name__}")
        encoded_name = name.encode("utf-8", "surrogateescape")
        names.append((encoded_name, field))
        total += _sized_bytes(<bytes>encoded_name) + _sized_bytes(<bytes>field)
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, total)
    cdef uint8_t *to = mr_store_varint(<uint8_t *>PyBytes_AS_STRING(encoded),
                                       _zigzag(len(names)))
    for encoded_name, field in names:
        to = _store_sized(to, <bytes>encoded_name)
        to = _store_sized(to, <bytes>field)
    return encoded


cdef int64_t _timestamp(object timestamp_ms) except? -1:
    cdef object number = PyNumber_Index(timestamp_ms)
    if not -1 <= number <= TIMESTAMP_MS_MAX:
        raise ValueError(f"timestamp_ms={number} is outside -1..{TIMESTAMP_MS_MAX}")
    return number


cdef class BatchBuilder:
    """Encodes records into one RecordBatch v2 as they arrive; O(1) amortised per record."""

    def __cinit__(self, bytes_max):
        bytes_max = PyNumber_Index(bytes_max)
        if not BATCH_HEADER_BYTES < bytes_max <= BATCH_BYTES_MAX:
            raise ValueError(f"bytes_max={bytes_max} is outside {BATCH_HEADER_BYTES + 1}.."
                             f"{BATCH_BYTES_MAX}")
        self._bytes_max = bytes_max

    def __dealloc__(self):
        PyMem_Free(self._block)

    @property
    def count(self):
        return self._count

    @property
    def size(self):
        return BATCH_HEADER_BYTES + self._used

    def clear(self):
        self._used = 0
        self._count = 0
        self._base_timestamp_ms = self._max_timestamp_ms = 0

    cdef int _reserve(self, Py_ssize_t more) except -1:
        """Room for ``more`` bytes."""
        cdef Py_ssize_t room = max(self._used + more, min(2 * self._room, self._bytes_max), 1024)
        cdef uint8_t *block = <uint8_t *>PyMem_Realloc(self._block, <size_t>room)
        if block == NULL:
            raise MemoryError
        self._block = block
        self._room = room
        return 0

    cdef int _add(self, int64_t timestamp_ms, bytes key, bytes value, bytes headers) except -1:
        """1 = added, 0 = full; ``headers`` encoded, None = none."""
        cdef Py_ssize_t fields = _sized_bytes(key) + _sized_bytes(value)
        fields += 1 if headers is None else PyBytes_GET_SIZE(headers)
        cdef int64_t delta = timestamp_ms - self._base_timestamp_ms if self._count else 0
        cdef Py_ssize_t body = (1 + mr_varint_bytes(_zigzag(delta))
                                + mr_varint_bytes(_zigzag(self._count)) + fields)
        cdef Py_ssize_t record = mr_varint_bytes(_zigzag(body)) + body
        if BATCH_HEADER_BYTES + self._used + record > self._bytes_max:
            body = 3 + fields  # with both deltas 0
            body += mr_varint_bytes(_zigzag(body))
            if BATCH_HEADER_BYTES + body > self._bytes_max:
                raise RecordTooLarge(f"record of {body} bytes exceeds bytes_max={self._bytes_max} "
                                     f"with the batch header of {BATCH_HEADER_BYTES}")
            return 0
        if self._count == BATCH_RECORDS_MAX:
            return 0
        if self._room - self._used < record:
            self._reserve(record)
        cdef uint8_t *to = mr_store_varint(self._block + self._used, _zigzag(body))
        to[0] = 0
        to = mr_store_varint(to + 1, _zigzag(delta))
        to = mr_store_varint(to, _zigzag(self._count))
        to = _store_sized(_store_sized(to, key), value)
        if headers is None:
            to[0] = 0
        else:
            memcpy(to, PyBytes_AS_STRING(headers), <size_t>PyBytes_GET_SIZE(headers))
        if not self._count:
            self._base_timestamp_ms = self._max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = timestamp_ms
        self._used += record
        self._count += 1
        return 1

    def append(self, timestamp_ms, key, value, headers=()):
        cdef int64_t timestamp = _timestamp(timestamp_ms)
        cdef bytes encoded = None
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"key must be bytes or None, not {type(key).__name__}")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"value must be bytes or None, not {type(value).__name__}")
        if headers is not ():
            encoded = _encode_headers(headers)
        return self._add(timestamp, <bytes>key, <bytes>value, encoded) == 1

    def extend(self, timestamp_ms, values, start=0):
        cdef int64_t timestamp
        cdef Py_ssize_t at, first
        values = values if isinstance(values, (tuple, list)) else tuple(values)
        if start < 0:
            raise ValueError(f"start={start} is negative")
        if start >= len(values):
            return start
        timestamp = _timestamp(timestamp_ms)
        first = at = start
        while at < len(values):
            value = values[at]
            if not isinstance(value, bytes):
                if at > first:
                    break
                raise TypeError(f"value must be bytes, not {type(value).__name__}")
            if at > first and PyBytes_GET_SIZE(value) > self._bytes_max:
                break
            try:
                if not self._add(timestamp, None, <bytes>value, None):
                    break
            except RecordTooLarge:
                if at > first:
                    break  # the next call starts with it, and raises with nothing else to lose
                raise
            at += 1
        return at

    def records_block(self):
        return PyBytes_FromStringAndSize(<const char *>self._block, self._used)

    def build(self, producer_id=-1, producer_epoch=-1, base_sequence=-1, codec=0, block=None):
        if self._count == 0:
            raise ValueError("an empty batch cannot be built")
        _require_range("producer_id", producer_id, -1, I64_MAX)
        _require_range("producer_epoch", producer_epoch, -1, (1 << 15) - 1)
        _require_range("base_sequence", base_sequence, -1, (1 << 31) - 1)
        _require_range("codec", codec, CODEC_NONE, CODEC_ZSTD)
        if (codec == CODEC_NONE) != (block is None):
            raise ValueError("a codec and a compressed block go together")
        if block is None:
            batch = _allocate_batch(self._used)
            memcpy(PyByteArray_AS_STRING(batch) + BATCH_HEADER_BYTES, self._block,
                   <size_t>self._used)
        else:
            batch = _batch_around(block)
        cdef uint8_t *to = <uint8_t *>PyByteArray_AS_STRING(batch)
        cdef Py_ssize_t total = len(batch)
        mr_store_be64(to + BATCH_BASE_OFFSET_AT, 0)
        mr_store_be32(to + BATCH_LENGTH_AT, <uint32_t>(total - BATCH_LENGTH_OVERHEAD))
        mr_store_be32(to + BATCH_LEADER_EPOCH_AT, 0xFFFFFFFFU)
        to[BATCH_MAGIC_AT] = BATCH_MAGIC
        mr_store_be16(to + BATCH_ATTRIBUTES_AT, codec)
        mr_store_be32(to + BATCH_LAST_OFFSET_DELTA_AT, <uint32_t>(self._count - 1))
        mr_store_be64(to + BATCH_BASE_TIMESTAMP_AT, <uint64_t>self._base_timestamp_ms)
        mr_store_be64(to + BATCH_MAX_TIMESTAMP_AT, <uint64_t>self._max_timestamp_ms)
        mr_store_be64(to + BATCH_PRODUCER_ID_AT, <uint64_t><int64_t>producer_id)
        mr_store_be16(to + BATCH_PRODUCER_EPOCH_AT, <uint16_t><int16_t>producer_epoch)
        mr_store_be32(to + BATCH_BASE_SEQUENCE_AT, <uint32_t><int32_t>base_sequence)
        mr_store_be32(to + BATCH_RECORDS_COUNT_AT, <uint32_t>self._count)
        mr_store_be32(to + BATCH_CRC_AT,
                      _crc(0, to + BATCH_ATTRIBUTES_AT, total - BATCH_ATTRIBUTES_AT))
        return batch


cdef bytearray _allocate_batch(Py_ssize_t block_bytes):
    cdef Py_ssize_t total = BATCH_HEADER_BYTES + block_bytes
    if total > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"batch of {total} bytes exceeds BATCH_BYTES_MAX={BATCH_BYTES_MAX}")
    return PyByteArray_FromStringAndSize(NULL, total)


cdef bytearray _batch_around(block):
    """A batch with ``block`` behind the header, which is still to be written."""
    cdef Py_buffer view
    cdef bytearray batch
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        batch = _allocate_batch(view.len)
        memcpy(PyByteArray_AS_STRING(batch) + BATCH_HEADER_BYTES, view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return batch


cdef int _require_range(str name, number, least, most) except -1:
    if not least <= PyNumber_Index(number) <= most:
        raise ValueError(f"{name}={number} is outside {least}..{most}")
    return 0


# ---- Batches: check and decode -----------------------------------------------------------------

cdef enum:
    SHORT = 1
    ABSURD = 2
    OTHER_LENGTH = 3
    OTHER_MAGIC = 4
    OTHER_CRC = 5


cdef int _load_fields(const uint8_t *at, Py_ssize_t left, Fields *fields) noexcept nogil:
    """0, SHORT or ABSURD."""
    if left < BATCH_HEADER_BYTES:
        return SHORT
    fields.base_offset = <int64_t>mr_load_be64(at + BATCH_BASE_OFFSET_AT)
    fields.total_bytes = (<int64_t><int32_t>mr_load_be32(at + BATCH_LENGTH_AT)
                          + BATCH_LENGTH_OVERHEAD)
    fields.leader_epoch = <int32_t>mr_load_be32(at + BATCH_LEADER_EPOCH_AT)
    fields.magic = <int8_t>at[BATCH_MAGIC_AT]
    fields.crc = mr_load_be32(at + BATCH_CRC_AT)
    fields.attributes = <int16_t>mr_load_be16(at + BATCH_ATTRIBUTES_AT)
    fields.last_offset_delta = <int32_t>mr_load_be32(at + BATCH_LAST_OFFSET_DELTA_AT)
    fields.base_timestamp_ms = <int64_t>mr_load_be64(at + BATCH_BASE_TIMESTAMP_AT)
    fields.max_timestamp_ms = <int64_t>mr_load_be64(at + BATCH_MAX_TIMESTAMP_AT)
    fields.producer_id = <int64_t>mr_load_be64(at + BATCH_PRODUCER_ID_AT)
    fields.producer_epoch = <int16_t>mr_load_be16(at + BATCH_PRODUCER_EPOCH_AT)
    fields.base_sequence = <int32_t>mr_load_be32(at + BATCH_BASE_SEQUENCE_AT)
    fields.count = <int32_t>mr_load_be32(at + BATCH_RECORDS_COUNT_AT)
    if not BATCH_HEADER_BYTES <= fields.total_bytes <= BATCH_BYTES_MAX:
        return ABSURD
    return 0


cdef int _batch_fault(const uint8_t *data, Py_ssize_t length, Fields *fields,
                      uint32_t *crc) noexcept nogil:
    """0 when ``data`` is exactly one intact batch, else the first of SHORT .. OTHER_CRC."""
    cdef int fault = _load_fields(data, length, fields)
    if fault:
        return fault
    if fields.total_bytes != length:
        return OTHER_LENGTH
    if fields.magic != BATCH_MAGIC:
        return OTHER_MAGIC
    crc[0] = mr_crc32c(0, data + BATCH_ATTRIBUTES_AT, <size_t>(length - BATCH_ATTRIBUTES_AT))
    return OTHER_CRC if crc[0] != fields.crc else 0


cdef int _examine(const uint8_t *data, Py_ssize_t length, Fields *fields,
                  uint32_t *crc) noexcept:
    """``_batch_fault`` without the lock when that pays."""
    cdef int fault
    if length < RELEASE_BYTES:
        return _batch_fault(data, length, fields, crc)
    with nogil:
        fault = _batch_fault(data, length, fields, crc)
    return fault


cdef object _batch_error(int fault, Py_ssize_t length, Fields *fields, object actual,
                         object wrong_magic):
    """The exception that says what is wrong with a batch in a buffer of ``length`` bytes."""
    if fault == SHORT:
        return CorruptBatch(f"{length} bytes are less than a batch header of {BATCH_HEADER_BYTES}")
    if fault == ABSURD:
        return CorruptBatch(f"batch length field {fields.total_bytes - BATCH_LENGTH_OVERHEAD} "
                            f"gives {fields.total_bytes} bytes, outside {BATCH_HEADER_BYTES}.."
                            f"{BATCH_BYTES_MAX}")
    if fault == OTHER_LENGTH:
        return CorruptBatch(f"batch length field gives {fields.total_bytes} bytes, buffer has "
                            f"{length}")
    if fault == OTHER_MAGIC:
        return wrong_magic(f"batch magic {fields.magic} is not {BATCH_MAGIC}")
    assert fault == OTHER_CRC
    expected = int(fields.crc)
    return CorruptBatch(f"batch CRC is {actual:#010x}, its header says {expected:#010x}")


cdef object _header(Fields *fields):
    return mr_named(BatchHeader, (
        fields.base_offset, fields.total_bytes, fields.leader_epoch, fields.magic, fields.crc,
        fields.attributes, fields.last_offset_delta, fields.base_timestamp_ms,
        fields.max_timestamp_ms, fields.producer_id, fields.producer_epoch, fields.base_sequence,
        fields.count))


cdef object _info(Fields *fields):
    return mr_named(BatchInfo, (
        fields.count, fields.producer_id, fields.producer_epoch, fields.base_sequence,
        fields.max_timestamp_ms, fields.attributes & ATTRIBUTE_CODEC_MASK))


cdef int _load_header(data, Py_ssize_t at, Fields *fields) except -1:
    cdef Py_buffer view
    cdef Py_ssize_t left
    cdef int fault
    if at < 0:
        raise ValueError(f"at={at} is negative")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    left = max(0, view.len - at)
    fault = _load_fields(<const uint8_t *>view.buf + (view.len - left), left, fields)
    PyBuffer_Release(&view)
    if fault:
        raise _batch_error(fault, left, fields, None, CorruptBatch)
    return 0


def batch_header(data, Py_ssize_t at=0):
    cdef Fields fields
    _load_header(data, at, &fields)
    return _header(&fields)


def batch_info(data):
    cdef Fields fields
    _load_header(data, 0, &fields)
    return _info(&fields)


def verify_batch(data):
    cdef Py_buffer view
    cdef Fields fields
    cdef uint32_t crc = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef int fault = _examine(<const uint8_t *>view.buf, view.len, &fields, &crc)
    cdef Py_ssize_t length = view.len
    PyBuffer_Release(&view)
    if fault:
        raise _batch_error(fault, length, &fields, crc, CorruptBatch)
    return _header(&fields)


def check_batch(data):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return _check(<const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef object _check(const uint8_t *data, Py_ssize_t length):
    cdef Fields fields
    cdef Walk walk
    cdef uint32_t crc = 0
    cdef int fault
    if length > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"batch of {length} bytes exceeds BATCH_BYTES_MAX={BATCH_BYTES_MAX}")
    fault = _examine(data, length, &fields, &crc)
    if fault:
        raise _batch_error(fault, length, &fields, crc, InvalidBatch)
    _check_fields(&fields)
    if fields.attributes & ATTRIBUTE_CODEC_MASK == CODEC_NONE:
        walk = Walk(data, BATCH_HEADER_BYTES, length, 0, 0, 0, 0)
        if length < RELEASE_BYTES:
            _check_records(&walk, fields.base_timestamp_ms, fields.count)
        else:
            with nogil:
                _check_records(&walk, fields.base_timestamp_ms, fields.count)
        if walk.fault:
            raise _walk_error(&walk)
    return _info(&fields)


cdef int _check_fields(Fields *fields) except -1:
    """What a producer may not send although it is intact."""
    if fields.base_offset != 0:
        raise InvalidBatch(f"base offset {fields.base_offset} is not 0")
    if fields.attributes & ~(ATTRIBUTE_CODEC_MASK | ATTRIBUTE_TRANSACTIONAL):
        attributes = int(<uint16_t>fields.attributes)
        raise InvalidBatch(f"attributes {attributes:#06x}: control, LogAppendTime "
                           f"and unknown bits are not accepted")
    if fields.attributes & ATTRIBUTE_CODEC_MASK > CODEC_ZSTD:
        raise InvalidBatch(f"codec {fields.attributes & ATTRIBUTE_CODEC_MASK} is unknown")
    cdef bint staged = STAGED_PRODUCER_MIN <= fields.producer_id <= STAGED_PRODUCER_MAX
    if fields.attributes & ATTRIBUTE_TRANSACTIONAL and not staged:
        raise InvalidBatch(f"a transactional batch of producer {fields.producer_id}, which is no "
                           f"run of a sink")
    if staged and not fields.attributes & ATTRIBUTE_TRANSACTIONAL:
        raise InvalidBatch(f"producer {fields.producer_id} is a run of a sink, whose batches are "
                           f"transactional")
    if fields.count <= 0:
        raise InvalidBatch(f"record count {fields.count} is not positive")
    if fields.count > BATCH_RECORDS_MAX:
        raise BatchTooLarge(f"batch of {fields.count} records exceeds BATCH_RECORDS_MAX="
                            f"{BATCH_RECORDS_MAX}")
    if fields.last_offset_delta != fields.count - 1:
        raise InvalidBatch(f"last offset delta {fields.last_offset_delta} does not fit "
                           f"{fields.count} records")
    if fields.producer_id < -1:
        raise InvalidBatch(f"producer id {fields.producer_id} is below -1")
    if fields.producer_id >= 0 and (fields.producer_epoch < 0 or fields.base_sequence < 0):
        raise InvalidBatch(f"producer {fields.producer_id} with epoch {fields.producer_epoch} and "
                           f"sequence {fields.base_sequence}")
    return 0


def stamp_batch(data, base_offset, leader_epoch):
    cdef Py_buffer view
    cdef uint8_t *to
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_BYTES:
            raise CorruptBatch(f"{view.len} bytes are less than a batch header of "
                               f"{BATCH_HEADER_BYTES}")
        _require_range("base_offset", base_offset, 0, I64_MAX)
        _require_range("leader_epoch", leader_epoch, -1, (1 << 31) - 1)
        to = <uint8_t *>view.buf
        mr_store_be64(to + BATCH_BASE_OFFSET_AT, <uint64_t><int64_t>base_offset)
        mr_store_be32(to + BATCH_LEADER_EPOCH_AT, <uint32_t><int32_t>leader_epoch)
    finally:
        PyBuffer_Release(&view)


def stamp_producer(data, producer_id, producer_epoch, base_sequence):
    cdef Py_buffer view
    cdef uint8_t *to
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if view.len < BATCH_HEADER_BYTES:
            raise CorruptBatch(f"{view.len} bytes are less than a batch header of "
                               f"{BATCH_HEADER_BYTES}")
        _require_range("producer_id", producer_id, -1, I64_MAX)
        _require_range("producer_epoch", producer_epoch, -1, (1 << 15) - 1)
        _require_range("base_sequence", base_sequence, -1, (1 << 31) - 1)
        to = <uint8_t *>view.buf
        mr_store_be64(to + BATCH_PRODUCER_ID_AT, <uint64_t><int64_t>producer_id)
        mr_store_be16(to + BATCH_PRODUCER_EPOCH_AT, <uint16_t><int16_t>producer_epoch)
        mr_store_be32(to + BATCH_BASE_SEQUENCE_AT, <uint32_t><int32_t>base_sequence)
        mr_store_be32(to + BATCH_CRC_AT,
                      _crc(0, to + BATCH_ATTRIBUTES_AT, view.len - BATCH_ATTRIBUTES_AT))
    finally:
        PyBuffer_Release(&view)


cdef object _byte_view(data):
    """``data`` as a memoryview of bytes, to cut slices from."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def split_batches(data):
    cdef Py_buffer view
    cdef Fields fields
    cdef Py_ssize_t at = 0
    cdef uint32_t crc = 0
    cdef int fault
    cdef const uint8_t *start
    cdef list batches = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        whole = _byte_view(data)
        start = <const uint8_t *>view.buf
        while at < view.len:
            fault = _load_fields(start + at, view.len - at, &fields)
            if not fault and fields.total_bytes > view.len - at:
                fault = OTHER_LENGTH
            if fault:
                raise _batch_error(fault, view.len - at, &fields, None, CorruptBatch)
            end = at + <Py_ssize_t>fields.total_bytes
            fault = _examine(start + at, <Py_ssize_t>fields.total_bytes, &fields, &crc)
            if fault:
                raise _batch_error(fault, end - at, &fields, crc, CorruptBatch)
            batches.append(whole[at:end])
            at = end
    finally:
        PyBuffer_Release(&view)
    return batches


cdef inline object _copy(Field field):
    if field.length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>field.data, field.length)


cdef tuple _decode_headers(Walk *walk, int32_t count):
    cdef Field name, field
    cdef list headers = []
    cdef int32_t at
    for at in range(count):
        name = _sized(walk, 0)
        if not walk.fault:
            field = _sized(walk, -1)
        if walk.fault:
            raise _walk_error(walk)
        headers.append((PyUnicode_DecodeUTF8(<char *>name.data, name.length, "surrogateescape"),
                        _copy(field)))
    return tuple(headers)


def decode_records(header, block):
    cdef Py_buffer view
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        return _decode(header, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list _decode(header, const uint8_t *data, Py_ssize_t length):
    cdef int64_t base_offset = header.base_offset, base_timestamp_ms = header.base_timestamp_ms
    cdef int32_t count = header.count, most = header.last_offset_delta, last = -1, turn
    cdef Walk walk = Walk(data, 0, length, 0, 0, 0, 0)
    cdef RecordStart record
    cdef list records = []
    _require_records(header)
    for turn in range(count):
        if _record_start(&walk, base_timestamp_ms, &record):
            raise _walk_error(&walk)
        headers = _decode_headers(&walk, record.headers_count) if record.headers_count else ()
        if _record_end(&walk, &record):
            raise _walk_error(&walk)
        if not last < record.offset_delta <= most:
            raise CorruptBatch(f"record at byte {record.started}: offset delta "
                               f"{record.offset_delta} is not above {last} and at most {most}")
        records.append(mr_named(Record, (
            base_offset + record.offset_delta, record.timestamp_ms, _copy(record.key),
            _copy(record.value), headers)))
        last = record.offset_delta
    if walk.at != walk.end:
        raise CorruptBatch(f"{walk.end - walk.at} bytes after the last record")
    return records


# ---- Records as columns ------------------------------------------------------------------------

cdef class _Growing:
    """Bytes that grow at their end, are cut back to what was kept, and given away uncopied."""

    def __cinit__(self):
        self.held = bytearray()

    cdef int grow(self, Py_ssize_t more) except -1:
        """Room for ``more`` bytes."""
        cdef Py_ssize_t room = max(self.used + more, 2 * self.room, 4096)
        PyByteArray_Resize(self.held, room)
        self.data = <uint8_t *>PyByteArray_AS_STRING(self.held)
        self.room = room
        return 0

    cdef bytearray give(self):
        """All of it; then empty."""
        cdef bytearray given = self.held
        PyByteArray_Resize(given, self.used)
        self.held = bytearray()
        self.data = NULL
        self.used = self.kept = self.room = 0
        return given


cdef inline int _put_bytes(_Growing to, const uint8_t *data, Py_ssize_t length) except -1:
    if to.room - to.used < length:
        to.grow(length)
    if length:
        memcpy(to.data + to.used, data, <size_t>length)
        to.used += length
    return 0


cdef inline int _put_i64(_Growing to, int64_t number) except -1:
    if to.room - to.used < 8:
        to.grow(8)
    memcpy(to.data + to.used, &number, 8)
    to.used += 8
    return 0


cdef inline int _put_i32(_Growing to, int32_t number) except -1:
    if to.room - to.used < 4:
        to.grow(4)
    memcpy(to.data + to.used, &number, 4)
    to.used += 4
    return 0


cdef inline int _put_bit(_Growing to, Py_ssize_t row, bint bit) except -1:
    """Bit ``row`` of a bitmap whose rows come in order; also again, after a row was forgotten."""
    cdef Py_ssize_t at = row >> 3
    if at >= to.room:
        to.grow(at + 1 - to.used)
    if row & 7 == 0:
        to.data[at] = 0
    if bit:
        to.data[at] |= <uint8_t>(1 << (row & 7))
    else:
        to.data[at] &= <uint8_t>~(1 << (row & 7))
    to.used = at + 1
    return 0


cdef class _BytesColumn:
    """A column of byte strings."""

    def __cinit__(self):
        self.valid = _Growing()
        self.ends = _Growing()
        self.content = _Growing()
        _put_i32(self.ends, 0)
        self.keep()

    cdef int add(self, Field field) except -1:
        if field.length < 0:
            self.nulls += 1
        elif field.length > COLUMN_BYTES_MAX - self.content.used:
            raise ValueError(f"a column would exceed {COLUMN_BYTES_MAX} bytes; take it before")
        else:
            _put_bytes(self.content, field.data, field.length)
        _put_bit(self.valid, self.count, field.length >= 0)
        _put_i32(self.ends, <int32_t>self.content.used)
        self.count += 1
        return 0

    cdef int keep(self) except -1:
        self.valid.kept = self.valid.used
        self.ends.kept = self.ends.used
        self.content.kept = self.content.used
        self.kept_count = self.count
        self.kept_nulls = self.nulls
        return 0

    cdef int forget(self) except -1:
        self.valid.used = self.valid.kept
        self.ends.used = self.ends.kept
        self.content.used = self.content.kept
        self.count = self.kept_count
        self.nulls = self.kept_nulls
        return 0

    cdef object give(self):
        cdef object valid = None
        if self.nulls:
            _clear_bits_from(self.valid, self.count)
            valid = self.valid.give()
        else:
            self.valid.used = 0
        given = BytesColumn(self.nulls, valid, self.ends.give(), self.content.give())
        self.count = self.nulls = 0
        _put_i32(self.ends, 0)
        self.keep()
        return given


cdef inline int _clear_bits_from(_Growing bits, Py_ssize_t count) except -1:
    """Behind the last row there is nothing, also where rows were forgotten."""
    if count & 7:
        bits.data[count >> 3] &= <uint8_t>((1 << (count & 7)) - 1)
    return 0


cdef class ColumnBuilder:
    """Collects the records of batches as columns; O(1) amortised per record."""

    def __cinit__(self, keys=True, values=True, headers=False):
        self._keys = _BytesColumn() if keys else None
        self._values = _BytesColumn() if values else None
        self._header_names = _BytesColumn() if headers else None
        self._header_values = _BytesColumn() if headers else None
        self._offsets = _Growing()
        self._timestamps = _Growing()
        self._timestamps_valid = _Growing()
        self._header_ends = _Growing()
        self._clear()

    @property
    def count(self):
        return self._count

    @property
    def size(self):
        cdef Py_ssize_t size = 16 * self._count
        if self._keys is not None:
            size += self._keys.content.used
        if self._values is not None:
            size += self._values.content.used
        if self._header_names is not None:
            size += self._header_names.content.used + self._header_values.content.used
        return size

    def extend(self, header, block, first_offset, end_offset):
        cdef Py_buffer view
        cdef int64_t first = first_offset, end = end_offset
        cdef Py_ssize_t before = self._count
        PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
        try:
            self._extend(header, <const uint8_t *>view.buf, view.len, first, end)
        except BaseException:
            self._forget()
            raise
        finally:
            PyBuffer_Release(&view)
        self._keep()
        return self._count - before

    def take(self):
        valid = None
        if self._untimed:
            _clear_bits_from(self._timestamps_valid, self._count)
            valid = self._timestamps_valid.give()
        headers = None
        if self._header_names is not None:
            headers = HeadersColumn(self._header_ends.give(), self._header_names.give(),
                                    self._header_values.give())
        taken = Columns(
            self._count, self._offsets.give(), self._timestamps.give(), valid,
            self._keys.give() if self._keys is not None else None,
            self._values.give() if self._values is not None else None, headers)
        self._clear()
        return taken

    cdef int _clear(self) except -1:
        self._count = self._untimed = 0
        self._timestamps_valid.used = self._header_ends.used = 0
        _put_i32(self._header_ends, 0)
        self._keep()
        return 0

    cdef int _keep(self) except -1:
        self._kept_count = self._count
        self._kept_untimed = self._untimed
        for part in (self._offsets, self._timestamps, self._timestamps_valid, self._header_ends):
            (<_Growing>part).kept = (<_Growing>part).used
        for column in (self._keys, self._values, self._header_names, self._header_values):
            if column is not None:
                (<_BytesColumn>column).keep()
        return 0

    cdef int _forget(self) except -1:
        self._count = self._kept_count
        self._untimed = self._kept_untimed
        for part in (self._offsets, self._timestamps, self._timestamps_valid, self._header_ends):
            (<_Growing>part).used = (<_Growing>part).kept
        for column in (self._keys, self._values, self._header_names, self._header_values):
            if column is not None:
                (<_BytesColumn>column).forget()
        return 0

    cdef int _extend(self, header, const uint8_t *data, Py_ssize_t length, int64_t first,
                     int64_t end) except -1:
        cdef int64_t base_offset = header.base_offset, offset
        cdef int64_t base_timestamp_ms = header.base_timestamp_ms
        cdef int32_t count = header.count, most = header.last_offset_delta, last = -1, turn
        cdef Walk walk = Walk(data, 0, length, 0, 0, 0, 0)
        cdef RecordStart record
        cdef bint wanted
        _require_records(header)
        for turn in range(count):
            if _record_start(&walk, base_timestamp_ms, &record):
                raise _walk_error(&walk)
            # Not checked yet: in numbers that may wrap.
            offset = <int64_t>(<uint64_t>base_offset + <uint64_t><int64_t>record.offset_delta)
            wanted = first <= offset < end
            if wanted and self._header_names is not None:
                self._add_headers(&walk, record.headers_count)
            else:
                _skip_headers(&walk, record.headers_count)
            if _record_end(&walk, &record):
                raise _walk_error(&walk)
            if not last < record.offset_delta <= most:
                raise CorruptBatch(f"record at byte {record.started}: offset delta "
                                   f"{record.offset_delta} is not above {last} and at most {most}")
            if wanted:
                self._add(&record, offset)
            last = record.offset_delta
        if walk.at != walk.end:
            raise CorruptBatch(f"{walk.end - walk.at} bytes after the last record")
        return 0

    cdef int _add(self, RecordStart *record, int64_t offset) except -1:
        cdef bint timed = 0 <= record.timestamp_ms <= COLUMN_TIMESTAMP_MS_MAX
        _put_i64(self._offsets, offset)
        _put_i64(self._timestamps, 1000 * record.timestamp_ms if timed else 0)
        _put_bit(self._timestamps_valid, self._count, timed)
        if not timed:
            self._untimed += 1
        if self._keys is not None:
            self._keys.add(record.key)
        if self._values is not None:
            self._values.add(record.value)
        self._count += 1
        return 0

    cdef int _add_headers(self, Walk *walk, int32_t count) except -1:
        cdef Field name, field, readable
        cdef int32_t at
        for at in range(count):
            name = _sized(walk, 0)
            if not walk.fault:
                field = _sized(walk, -1)
            if walk.fault:
                raise _walk_error(walk)
            # What is no UTF-8 must not get into a column of text.
            text = PyUnicode_DecodeUTF8(<char *>name.data, name.length, "replace")
            readable.data = <const uint8_t *>PyUnicode_AsUTF8AndSize(text, &readable.length)
            self._header_names.add(readable)
            self._header_values.add(field)
        _put_i32(self._header_ends, <int32_t>self._header_names.count)
        return 0


cdef int _skip_headers(Walk *walk, int32_t count) except -1:
    cdef int32_t at
    for at in range(count):
        _sized(walk, 0)
        if not walk.fault:
            _sized(walk, -1)
        if walk.fault:
            raise _walk_error(walk)
    return 0


cdef int _require_records(header) except -1:
    """What a header has to promise of its records."""
    cdef int64_t base_offset = header.base_offset
    cdef int32_t count = header.count, most = header.last_offset_delta
    if not 0 <= count <= BATCH_RECORDS_MAX:
        raise CorruptBatch(f"record count {count} is outside 0..{BATCH_RECORDS_MAX}")
    if base_offset > I64_MAX - max(0, most):
        raise CorruptBatch(f"base offset {base_offset} overflows 64 bits")
    return 0


# ---- Entries -----------------------------------------------------------------------------------

cdef enum:
    ZEROS = 1
    LENGTH = 2
    TORN = 3
    ENTRY_CRC = 4
    FORMAT = 5
    CHAIN = 6

cdef tuple _REASONS = ("", "zeros", "format", "torn", "crc", "format", "chain")


cdef inline Py_ssize_t _aligned(Py_ssize_t at) noexcept nogil:
    return (at + ENTRY_ALIGNMENT - 1) & ~<Py_ssize_t>(ENTRY_ALIGNMENT - 1)


cdef inline Py_ssize_t _covered_bytes(uint8_t kind, Py_ssize_t payload_bytes) noexcept nogil:
    """How much of the payload the entry CRC covers: what no batch CRC does."""
    return min(payload_bytes, BATCH_UNCHECKED_BYTES) if kind == DATA else payload_bytes


cdef inline uint32_t _entry_crc(const uint8_t *header, const uint8_t *payload,
                                Py_ssize_t covered) noexcept nogil:
    cdef uint32_t crc = mr_crc32c(0, header, ENTRY_CRC_AT)
    crc = mr_crc32c(crc, header + ENTRY_PREV_CRC_AT, ENTRY_HEADER_BYTES - ENTRY_PREV_CRC_AT)
    return mr_crc32c(crc, payload, <size_t>covered)


cdef inline bint _all_zeros(const uint8_t *header) noexcept nogil:
    cdef uint64_t seen = 0
    cdef int at
    for at in range(0, ENTRY_HEADER_BYTES, 8):
        seen |= mr_load_le64(header + at)
    return seen == 0


cdef int _entry_fault(const uint8_t *header, Py_ssize_t left, uint32_t *crc) noexcept nogil:
    """What is wrong with the entry that starts at ``header``, of which ``left`` (at least 64) bytes
    are there; 0 = its header and the payload bytes its CRC covers are intact."""
    cdef Py_ssize_t length = mr_load_le32(header + ENTRY_LENGTH_AT)
    cdef uint8_t kind = header[ENTRY_KIND_AT]
    cdef Py_ssize_t covered
    if length == 0 and _all_zeros(header):
        return ZEROS
    if not ENTRY_HEADER_BYTES <= length <= ENTRY_BYTES_MAX:
        return LENGTH
    covered = _covered_bytes(kind, length - ENTRY_HEADER_BYTES)
    if covered > left - ENTRY_HEADER_BYTES:
        return TORN
    crc[0] = _entry_crc(header, header + ENTRY_HEADER_BYTES, covered)
    if crc[0] != mr_load_le32(header + ENTRY_CRC_AT):
        return ENTRY_CRC
    if (not _kind_known[kind] or header[ENTRY_FLAGS_AT]
            or mr_load_le16(header + ENTRY_RESERVED_AT)):
        return FORMAT
    return 0


cdef object _entry_error(int fault, const uint8_t *header, Py_ssize_t at, Py_ssize_t left,
                         object actual):
    cdef object length = mr_load_le32(header + ENTRY_LENGTH_AT)
    cdef object expected = mr_load_le32(header + ENTRY_CRC_AT)
    if fault == ZEROS:
        return CorruptEntry(f"entry at byte {at} is all zeros")
    if fault == LENGTH:
        return CorruptEntry(f"entry at byte {at} has length {length}, outside {ENTRY_HEADER_BYTES}"
                            f"..{ENTRY_BYTES_MAX}")
    if fault == TORN:
        return CorruptEntry(f"entry at byte {at} of {length} bytes reaches past the buffer's "
                            f"{left}")
    if fault == ENTRY_CRC:
        return CorruptEntry(f"entry at byte {at} has CRC {actual:#010x}, its header says "
                            f"{expected:#010x}")
    assert fault == FORMAT
    return CorruptEntry(f"entry at byte {at} has kind {header[ENTRY_KIND_AT]}, flags "
                        f"{header[ENTRY_FLAGS_AT]}, reserved "
                        f"{mr_load_le16(header + ENTRY_RESERVED_AT)}: unknown")


def frame_entries(entries, prev_crc, durable):
    cdef tuple framed = tuple(entries)
    cdef Py_ssize_t at, length, total = 0
    cdef uint32_t crc
    cdef uint64_t durable_mark
    cdef list buffers = [], starts = []
    if not (0 <= prev_crc < 1 << 32 and 0 <= durable < 1 << 64):
        raise OverflowError("prev_crc or durable does not fit its field")
    crc = prev_crc
    durable_mark = durable
    headers = PyByteArray_FromStringAndSize(NULL, ENTRY_HEADER_BYTES * len(framed))
    view = memoryview(headers)
    cdef uint8_t *header = <uint8_t *>PyByteArray_AS_STRING(headers)
    for at in range(len(framed)):
        entry = framed[at]
        payload = entry.payload
        length = _frame(entry, payload, header, &crc, durable_mark)
        starts.append(total)
        total += _aligned(length)
        buffers.append(view[ENTRY_HEADER_BYTES * at:ENTRY_HEADER_BYTES * (at + 1)])
        buffers.append(payload)
        buffers.append(_PADDING[_aligned(length) - length])
        header += ENTRY_HEADER_BYTES
    return buffers, starts, total, crc


cdef Py_ssize_t _frame(entry, payload, uint8_t *header, uint32_t *crc,
                       uint64_t durable) except -1:
    """Write one header; ``crc`` is the one before and becomes its own.  The entry's length."""
    cdef Py_buffer view
    cdef Py_ssize_t length
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        length = ENTRY_HEADER_BYTES + view.len
        if length > ENTRY_BYTES_MAX:
            raise ValueError(f"entry of {length} bytes exceeds ENTRY_BYTES_MAX={ENTRY_BYTES_MAX}")
        mr_store_le32(header + ENTRY_LENGTH_AT, <uint32_t>length)
        mr_store_le32(header + ENTRY_PREV_CRC_AT, crc[0])
        _store_entry_fields(entry, header)
        mr_store_le64(header + ENTRY_DURABLE_AT, durable)
        crc[0] = _entry_crc(header, <const uint8_t *>view.buf,
                            _covered_bytes(header[ENTRY_KIND_AT], view.len))
        mr_store_le32(header + ENTRY_CRC_AT, crc[0])
    finally:
        PyBuffer_Release(&view)
    return length


cdef int _store_entry_fields(entry, uint8_t *header) except -1:
    cdef uint8_t kind
    cdef uint32_t group, incarnation
    cdef uint64_t term, index, partition
    cdef int64_t base_offset
    try:
        kind = entry.kind
        group = entry.group
        incarnation = entry.incarnation
        term = entry.term
        index = entry.index
        partition = entry.partition
        base_offset = entry.base_offset
    except OverflowError as error:
        raise OverflowError(f"a field of {entry!r} does not fit its bytes") from error
    mr_store_le32(header + ENTRY_KIND_AT, kind)  # flags and reserved: zero
    mr_store_le32(header + ENTRY_GROUP_AT, group)
    mr_store_le32(header + ENTRY_INCARNATION_AT, incarnation)
    mr_store_le64(header + ENTRY_TERM_AT, term)
    mr_store_le64(header + ENTRY_INDEX_AT, index)
    mr_store_le64(header + ENTRY_PARTITION_AT, partition)
    mr_store_le64(header + ENTRY_BASE_OFFSET_AT, <uint64_t>base_offset)
    return 0


def parse_entries(data):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return _parse(_byte_view(data), <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list _parse(whole, const uint8_t *data, Py_ssize_t size):
    cdef Py_ssize_t at = 0, length
    cdef const uint8_t *header
    cdef uint32_t crc = 0
    cdef int fault
    cdef list entries = []
    while at < size:
        header = data + at
        if size - at < ENTRY_HEADER_BYTES:
            raise CorruptEntry(f"entry at byte {at} has {size - at} bytes, less than a header of "
                               f"{ENTRY_HEADER_BYTES}")
        length = mr_load_le32(header + ENTRY_LENGTH_AT)
        fault = _entry_fault(header, size - at, &crc)
        if not fault and _aligned(length) > size - at:
            fault = TORN
        if fault:
            raise _entry_error(fault, header, at, size - at, crc)
        batch = None
        if header[ENTRY_KIND_AT] == DATA:
            batch = _parse_batch(header + ENTRY_HEADER_BYTES, length - ENTRY_HEADER_BYTES, at)
        entries.append(Entry(
            _KINDS[header[ENTRY_KIND_AT]], mr_load_le32(header + ENTRY_GROUP_AT),
            mr_load_le32(header + ENTRY_INCARNATION_AT), mr_load_le64(header + ENTRY_TERM_AT),
            mr_load_le64(header + ENTRY_INDEX_AT), mr_load_le64(header + ENTRY_PARTITION_AT),
            <int64_t>mr_load_le64(header + ENTRY_BASE_OFFSET_AT),
            whole[at + ENTRY_HEADER_BYTES:at + length], batch))
        at += _aligned(length)
    return entries


cdef object _parse_batch(const uint8_t *payload, Py_ssize_t length, Py_ssize_t at):
    cdef Fields fields
    cdef uint32_t crc = 0
    cdef int fault = _examine(payload, length, &fields, &crc)
    if fault:
        error = _batch_error(fault, length, &fields, crc, CorruptBatch)
        raise CorruptEntry(f"entry at byte {at}: {error}") from error
    return _info(&fields)


def scan_entries(data, at, prev_crc, verify_payload=True, upto=-1):
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if at < 0:
            raise ValueError(f"at={at} is negative")
        return _scan(<const uint8_t *>view.buf, view.len, at, _crc_seed(prev_crc),
                     bool(verify_payload), view.len if upto < 0 else upto)
    finally:
        PyBuffer_Release(&view)


cdef inline int _chained_fault(const uint8_t *header, Py_ssize_t left, uint32_t prev_crc,
                               uint32_t *crc) noexcept nogil:
    """As ``_entry_fault``, of an entry that has to be there whole and to follow another."""
    cdef int fault = _entry_fault(header, left, crc)
    if not fault and <Py_ssize_t>mr_load_le32(header + ENTRY_LENGTH_AT) > left:
        fault = TORN
    if not fault and mr_load_le32(header + ENTRY_PREV_CRC_AT) != prev_crc:
        fault = CHAIN
    return fault


cdef object _scan(const uint8_t *data, Py_ssize_t size, Py_ssize_t at, uint32_t prev_crc,
                  bint verify_payload, Py_ssize_t upto):
    cdef Py_ssize_t length
    cdef const uint8_t *header
    cdef Fields fields
    cdef uint32_t crc = 0, batch_crc = 0
    cdef int fault
    cdef bint intact
    cdef list entries = []
    while size - at >= ENTRY_HEADER_BYTES:
        if at >= upto:
            return Scan(entries, at, "limit", prev_crc)
        header = data + at
        length = mr_load_le32(header + ENTRY_LENGTH_AT)
        fault = _chained_fault(header, size - at, prev_crc, &crc)
        if fault:
            return Scan(entries, at, _REASONS[fault], prev_crc)
        intact = True
        if verify_payload and header[ENTRY_KIND_AT] == DATA:
            intact = not _examine(header + ENTRY_HEADER_BYTES, length - ENTRY_HEADER_BYTES,
                                  &fields, &batch_crc)
        entries.append(mr_named(ScannedEntry, (
            at, length, _KINDS[header[ENTRY_KIND_AT]], mr_load_le32(header + ENTRY_GROUP_AT),
            mr_load_le32(header + ENTRY_INCARNATION_AT), mr_load_le64(header + ENTRY_TERM_AT),
            mr_load_le64(header + ENTRY_INDEX_AT), mr_load_le64(header + ENTRY_PARTITION_AT),
            <int64_t>mr_load_le64(header + ENTRY_BASE_OFFSET_AT),
            mr_load_le64(header + ENTRY_DURABLE_AT), intact)))
        prev_crc = crc
        at += _aligned(length)
    return Scan(entries, at, "end", prev_crc)


cdef struct Check:
    Py_ssize_t at  # first byte that was not consumed
    Py_ssize_t count
    Py_ssize_t damaged_at  # the last entry consumed, whose payload is damaged; -1 = there is none
    uint64_t durable
    uint32_t prev_crc
    int fault


def check_entries(data, at, prev_crc):
    cdef Py_buffer view
    cdef Check check
    cdef list damaged = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    try:
        if at < 0:
            raise ValueError(f"at={at} is negative")
        check = Check(at, 0, -1, 0, _crc_seed(prev_crc), 0)
        while True:
            with nogil:
                _check_entries(start, view.len, &check)
            if check.damaged_at < 0:
                break
            damaged.append((check.damaged_at,
                            mr_load_le32(start + check.damaged_at + ENTRY_LENGTH_AT)))
        return Checked(check.count, damaged, check.at,
                       _REASONS[check.fault] if check.fault else "end", check.prev_crc,
                       check.durable)
    finally:
        PyBuffer_Release(&view)


cdef void _check_entries(const uint8_t *data, Py_ssize_t size, Check *check) noexcept nogil:
    """Go on to the end, to a fault, or behind an entry whose payload is damaged."""
    cdef Py_ssize_t length
    cdef const uint8_t *header
    cdef Fields fields
    cdef uint32_t crc = 0, batch_crc = 0
    check.damaged_at = -1
    while size - check.at >= ENTRY_HEADER_BYTES and check.damaged_at < 0:
        header = data + check.at
        length = mr_load_le32(header + ENTRY_LENGTH_AT)
        check.fault = _chained_fault(header, size - check.at, check.prev_crc, &crc)
        if check.fault:
            return
        if (header[ENTRY_KIND_AT] == DATA
                and _batch_fault(header + ENTRY_HEADER_BYTES, length - ENTRY_HEADER_BYTES, &fields,
                                 &batch_crc)):
            check.damaged_at = check.at
        check.count += 1
        check.durable = mr_load_le64(header + ENTRY_DURABLE_AT)
        check.prev_crc = crc
        check.at += _aligned(length)


cdef void _index_entries(const uint8_t *data, Py_ssize_t size, mr_indexer *indexer,
                         Indexing *done) noexcept nogil:
    """Go on to the end of the window, to a fault, or to an entry that is not plain."""
    cdef Py_ssize_t length
    cdef const uint8_t *header
    cdef Fields fields
    cdef uint32_t crc = 0, batch_crc = 0
    cdef mr_indexed entry
    while size - done.at >= ENTRY_HEADER_BYTES:
        header = data + done.at
        length = mr_load_le32(header + ENTRY_LENGTH_AT)
        done.fault = _chained_fault(header, size - done.at, done.prev_crc, &crc)
        if done.fault:
            return
        entry.is_batch = header[ENTRY_KIND_AT] == DATA
        entry.count = 0
        entry.max_timestamp_ms = 0
        if entry.is_batch:
            done.damaged = _batch_fault(header + ENTRY_HEADER_BYTES, length - ENTRY_HEADER_BYTES,
                                        &fields, &batch_crc) != 0
            if done.damaged:
                return
            entry.count = fields.count
            entry.max_timestamp_ms = fields.max_timestamp_ms
        entry.is_indexed = header[ENTRY_KIND_AT] <= LAST_INDEXED
        if not entry.is_indexed and header[ENTRY_KIND_AT] != HARD_STATE:
            done.stopped = MR_SPECIAL
            return
        entry.group = mr_load_le32(header + ENTRY_GROUP_AT)
        entry.incarnation = mr_load_le32(header + ENTRY_INCARNATION_AT)
        entry.term = mr_load_le64(header + ENTRY_TERM_AT)
        entry.index = mr_load_le64(header + ENTRY_INDEX_AT)
        entry.partition = mr_load_le64(header + ENTRY_PARTITION_AT)
        entry.base_offset = <int64_t>mr_load_le64(header + ENTRY_BASE_OFFSET_AT)
        entry.durable = mr_load_le64(header + ENTRY_DURABLE_AT)
        entry.position = done.position + <uint64_t>done.at
        entry.size = <uint64_t>_aligned(length)
        entry.vote = 0
        if length == ENTRY_HEADER_BYTES + VOTE_BYTES:
            entry.vote = mr_load_le32(header + ENTRY_HEADER_BYTES)
        done.stopped = mr_indexer_add(indexer, &entry)
        if done.stopped != MR_PLAIN:
            return
        done.prev_crc = crc
        done.at += _aligned(length)


cdef bytes _column(const mr_column *column):
    return PyBytes_FromStringAndSize(<const char *>column.at, <Py_ssize_t>(column.count * 8))


cdef list _numbers(const mr_column *column):
    return [column.at[slot] for slot in range(column.count)]


cdef class SegmentIndexer:
    def __cinit__(self):
        self._indexer = mr_indexer_new()
        if self._indexer == NULL:
            raise MemoryError

    def __dealloc__(self):
        mr_indexer_free(self._indexer)

    @property
    def first_durable(self):
        return self._indexer.first_durable if self._indexer.has_entries else -1

    @property
    def highest_durable(self):
        return self._indexer.highest_durable

    def take(self, data, at, prev_crc, position):
        cdef Py_buffer view
        cdef Indexing done
        if at < 0:
            raise ValueError(f"at={at} is negative")
        done = Indexing(at, position, _crc_seed(prev_crc), 0, MR_PLAIN, False)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        with nogil:
            _index_entries(<const uint8_t *>view.buf, view.len, self._indexer, &done)
        PyBuffer_Release(&view)
        if done.stopped == MR_NO_MEMORY:
            raise MemoryError
        if done.damaged:
            return Indexed(done.at, "payload", done.prev_crc)
        if done.stopped == MR_SPECIAL:
            return Indexed(done.at, "special", done.prev_crc)
        return Indexed(done.at, _REASONS[done.fault] if done.fault else "end", done.prev_crc)

    def runs(self):
        cdef size_t slot
        cdef mr_partition *known
        cdef list partitions = [[] for _ in range(self._indexer.group_count)]
        for slot in range(self._indexer.partition_count):
            known = &self._indexer.partitions[slot]
            partitions[known.group].append([
                known.partition, known.end_offset, _column(&known.bases), _column(&known.indexes),
                _column(&known.latest), _holes(known)])
        return [self._group(&self._indexer.groups[slot], partitions[slot])
                for slot in range(self._indexer.group_count)]

    cdef object _group(self, const mr_group *group, list partitions):
        cdef object index = None, hard_state = None
        if group.positions.count:
            index = [group.first_index, _column(&group.positions), _column(&group.ends),
                     _numbers(&group.run_starts), _numbers(&group.run_terms)]
        if group.has_hard_state:
            hard_state = (group.term, group.vote)
        return group.group, group.incarnation, index, partitions, hard_state


cdef list _holes(const mr_partition *partition):
    return [[<int64_t>partition.hole_bases.at[slot], <int64_t>partition.hole_ends.at[slot]]
            for slot in range(partition.hole_bases.count)]


def find_entry(data, at):
    cdef Py_buffer view
    cdef Py_ssize_t found
    if at < 0:
        raise ValueError(f"at={at} is negative")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    cdef Py_ssize_t first = min(at, view.len)
    with nogil:
        found = _find(start, view.len, _aligned(first))
    PyBuffer_Release(&view)
    return found


cdef Py_ssize_t _find(const uint8_t *data, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    cdef uint32_t crc = 0, length
    while size - at >= ENTRY_HEADER_BYTES:
        length = mr_load_le32(data + at + ENTRY_LENGTH_AT)
        # The cheap half of _entry_fault first: few places look like a header at all.
        if (ENTRY_HEADER_BYTES <= length <= ENTRY_BYTES_MAX
                and _kind_known[data[at + ENTRY_KIND_AT]]
                and not _entry_fault(data + at, size - at, &crc)):
            return at
        at += ENTRY_ALIGNMENT
    return -1


# ---- Headers of frames (CBOR) ------------------------------------------------------------------

cdef enum:
    UNSIGNED = 0
    NEGATIVE = 1
    BYTES = 2
    TEXT = 3
    LIST = 4
    MAP = 5
    TAG = 6
    SIMPLE = 7
    HEADER_ROOM_BYTES = 256
    PREFIX_BYTES = 8


def encode_header(header, payload_bytes):
    cdef Out out = Out(NULL, PREFIX_BYTES, HEADER_ROOM_BYTES)
    cdef Py_ssize_t payload
    if not isinstance(header, dict):
        raise TypeError(f"a header is a dict, not {type(header).__name__}")
    out.data = <uint8_t *>PyMem_Malloc(HEADER_ROOM_BYTES)
    if out.data == NULL:
        raise MemoryError
    try:
        _put(&out, header, 0)
        if not 0 <= payload_bytes <= 0xFFFFFFFF - 4 - (out.used - PREFIX_BYTES):
            raise OverflowError(f"a frame with {payload_bytes} payload bytes")
        payload = payload_bytes
        mr_store_be32(out.data, <uint32_t>(4 + out.used - PREFIX_BYTES + payload))
        mr_store_be32(out.data + 4, <uint32_t>(out.used - PREFIX_BYTES))
        return PyBytes_FromStringAndSize(<const char *>out.data, out.used)
    finally:
        PyMem_Free(out.data)


cdef int _put_room(Out *out, Py_ssize_t more) except -1:
    """Room for ``more`` bytes and the head before them."""
    cdef Py_ssize_t room
    cdef void *grown
    if out.room - out.used < more + 9:
        room = 2 * out.room + more
        grown = PyMem_Realloc(out.data, <size_t>room)
        if grown == NULL:
            raise MemoryError
        out.data = <uint8_t *>grown
        out.room = room
    return 0


cdef int _put_head(Out *out, uint8_t kind, uint64_t number) except -1:
    """A type and its number, in the fewest bytes."""
    cdef uint8_t *to
    _put_room(out, 0)
    to = out.data + out.used
    kind <<= 5
    if number < 24:
        to[0] = kind | <uint8_t>number
        out.used += 1
    elif number <= 0xFF:
        to[0] = kind | 24
        to[1] = <uint8_t>number
        out.used += 2
    elif number <= 0xFFFF:
        to[0] = kind | 25
        mr_store_be16(to + 1, <uint16_t>number)
        out.used += 3
    elif number <= 0xFFFFFFFF:
        to[0] = kind | 26
        mr_store_be32(to + 1, <uint32_t>number)
        out.used += 5
    else:
        to[0] = kind | 27
        mr_store_be64(to + 1, number)
        out.used += 9
    return 0


cdef int _put_sized(Out *out, uint8_t kind, const char *data, Py_ssize_t length) except -1:
    _put_room(out, length)
    _put_head(out, kind, <uint64_t>length)
    memcpy(out.data + out.used, data, <size_t>length)
    out.used += length
    return 0


cdef int _put_integer(Out *out, object value) except -1:
    cdef int overflow = 0
    cdef long long small = PyLong_AsLongLongAndOverflow(value, &overflow)
    if not overflow:
        if small >= 0:
            return _put_head(out, UNSIGNED, <uint64_t>small)
        return _put_head(out, NEGATIVE, ~<uint64_t>small)
    if overflow < 0 or value >> 64:
        raise OverflowError(f"integer {int(value)} has more than 64 bits")
    return _put_head(out, UNSIGNED, <uint64_t>value)


cdef int _put_text(Out *out, object value) except -1:
    cdef Py_ssize_t length
    cdef const char *data = PyUnicode_AsUTF8AndSize(value, &length)
    return _put_sized(out, TEXT, data, length)


cdef int _put(Out *out, object value, int depth) except -1:
    if value is None or value is True or value is False:
        _put_room(out, 0)
        out.data[out.used] = 0xF6 if value is None else 0xF5 if value is True else 0xF4
        out.used += 1
    elif isinstance(value, int):
        _put_integer(out, value)
    elif isinstance(value, str):
        _put_text(out, value)
    elif isinstance(value, bytes):
        _put_sized(out, BYTES, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    elif isinstance(value, (list, tuple, dict)):
        if depth == HEADER_DEPTH_MAX:
            raise ValueError(f"a depth of more than {HEADER_DEPTH_MAX} containers")
        if isinstance(value, dict):
            _put_map(out, <dict>value, depth + 1)
        elif isinstance(value, tuple):
            _put_head(out, LIST, <uint64_t>len(<tuple>value))
            for item in <tuple>value:
                _put(out, item, depth + 1)
        else:
            _put_head(out, LIST, <uint64_t>len(<list>value))
            for item in <list>value:
                _put(out, item, depth + 1)
    else:
        raise TypeError(f"a header has no place for {type(value).__name__}")
    return 0


cdef int _put_map(Out *out, dict value, int depth) except -1:
    _put_head(out, MAP, <uint64_t>len(value))
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"a key of a header is text, not {type(key).__name__}")
        _put_text(out, key)
        _put(out, item, depth)
    return 0


def decode_header(data, Py_ssize_t at, Py_ssize_t end):
    cdef Py_buffer view
    cdef Source source
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            raise ValueError(f"bytes {at} to {end} of {view.len}")
        source = Source(<const uint8_t *>view.buf + at, 0, end - at, 0)
        header = _value(&source, 0)
        if type(header) is not dict:
            raise MalformedHeader("not a map")
        if source.at != source.end:
            raise MalformedHeader(f"{source.end - source.at} bytes after the map")
        return header
    finally:
        PyBuffer_Release(&view)


cdef int _head(Source *source, uint8_t *kind, uint64_t *number) except -1:
    """Type and number of the next value; the number of a constant is 20, 21 or 22."""
    cdef Py_ssize_t started = source.at
    cdef uint8_t info
    cdef const uint8_t *data
    _need(source, 1)
    kind[0] = source.data[started] >> 5
    info = source.data[started] & 31
    source.at += 1
    if kind[0] == TAG:
        raise MalformedHeader(f"byte {started}: a tag")
    if kind[0] == SIMPLE:
        if not 20 <= info <= 22:
            raise MalformedHeader(f"byte {started}: a float or another simple value")
        number[0] = info
        return 0
    if info < 24:
        number[0] = info
        return 0
    if info > 27:
        raise MalformedHeader(f"byte {started}: an indefinite or reserved length")
    _need(source, <uint64_t>1 << (info - 24))
    data = source.data + source.at
    if info == 24:
        number[0] = data[0]
    elif info == 25:
        number[0] = mr_load_be16(data)
    elif info == 26:
        number[0] = mr_load_be32(data)
    else:
        number[0] = mr_load_be64(data)
    source.at += <Py_ssize_t>1 << (info - 24)
    return 0


cdef inline int _need(Source *source, uint64_t count) except -1:
    """Checks that so many bytes are left."""
    if count > <uint64_t>(source.end - source.at):
        raise MalformedHeader(f"cut off at byte {source.end}")
    return 0


cdef object _text(Source *source, uint64_t count, Py_ssize_t started):
    cdef const char *start
    _need(source, count)
    start = <const char *>source.data + source.at
    source.at += <Py_ssize_t>count
    try:
        return PyUnicode_DecodeUTF8(<char *>start, <Py_ssize_t>count, NULL)
    except UnicodeDecodeError:
        raise MalformedHeader(f"byte {started}: text that is not UTF-8") from None


cdef object _value(Source *source, int depth):
    """The next value; ``depth``: the containers around it."""
    cdef Py_ssize_t started = source.at
    cdef uint8_t kind = 0
    cdef uint64_t number = 0
    _head(source, &kind, &number)
    if kind == UNSIGNED:
        return number
    if kind == NEGATIVE:
        if number >> 63:
            raise MalformedHeader(f"byte {started}: an integer below -2**63")
        return -1 - <int64_t>number
    if kind == BYTES:
        _need(source, number)
        source.at += <Py_ssize_t>number
        return PyBytes_FromStringAndSize(<const char *>source.data + source.at - number,
                                         <Py_ssize_t>number)
    if kind == TEXT:
        return _text(source, number, started)
    if kind == SIMPLE:
        return False if number == 20 else True if number == 21 else None
    if depth == HEADER_DEPTH_MAX:
        raise MalformedHeader(f"byte {started}: a depth of more than {HEADER_DEPTH_MAX} "
                              "containers")
    source.containers += 1
    if source.containers > HEADER_CONTAINERS_MAX:
        raise MalformedHeader(f"byte {started}: more than {HEADER_CONTAINERS_MAX} containers")
    _need(source, number)  # each item takes a byte at least
    return _list(source, number, depth + 1) if kind == LIST else _map(source, number, depth + 1)


cdef list _list(Source *source, uint64_t count, int depth):
    cdef list found = []
    cdef uint64_t turn
    for turn in range(count):
        found.append(_value(source, depth))
    return found


cdef dict _map(Source *source, uint64_t count, int depth):
    cdef dict found = {}
    cdef uint64_t turn, number = 0
    cdef uint8_t kind = 0
    cdef Py_ssize_t started
    for turn in range(count):
        started = source.at
        _head(source, &kind, &number)
        if kind != TEXT:
            raise MalformedHeader(f"byte {started}: a key that is not text")
        key = _text(source, number, started)
        if key in found:
            raise MalformedHeader(f"byte {started}: a repeated key")
        found[key] = _value(source, depth)
    return found


# ---- Disk --------------------------------------------------------------------------------------

cdef class _Gathered:
    """Buffers held for a gathered write, and their addresses without the empty ones."""

    cdef Py_buffer *views
    cdef iovec *iov
    cdef Py_ssize_t held
    cdef size_t count

    def __cinit__(self, buffers):
        cdef tuple members = tuple(buffers)
        cdef Py_ssize_t at, room = max(1, len(members))
        self.views = <Py_buffer *>PyMem_Calloc(<size_t>room, sizeof(Py_buffer))
        self.iov = <iovec *>PyMem_Calloc(<size_t>room, sizeof(iovec))
        if self.views == NULL or self.iov == NULL:
            raise MemoryError
        for at in range(len(members)):
            PyObject_GetBuffer(members[at], &self.views[at], PyBUF_SIMPLE)
            self.held = at + 1
            if self.views[at].len:
                self.iov[self.count].iov_base = self.views[at].buf
                self.iov[self.count].iov_len = <size_t>self.views[at].len
                self.count += 1

    def __dealloc__(self):
        cdef Py_ssize_t at
        for at in range(self.held):
            PyBuffer_Release(&self.views[at])
        PyMem_Free(self.views)
        PyMem_Free(self.iov)


cdef int _raise_oserror(int error) except -1:
    c_errno.errno = error
    PyErr_SetFromErrno(OSError)
    return -1


cdef int _require_position(off_t position) except -1:
    if position < 0:  # the kernel takes -1 for "where the file stands"
        raise ValueError(f"position={position} is negative")
    return 0


def unset_memory(Py_ssize_t size):
    if size < 0:
        raise ValueError(f"size={size} is negative")
    return PyByteArray_FromStringAndSize(NULL, size)


def append_gathered(int fd, buffers, off_t position, bint sync):
    _require_position(position)
    cdef _Gathered gathered = _Gathered(buffers)
    cdef size_t written = 0
    cdef int error
    with nogil:
        error = mr_append(fd, gathered.iov, gathered.count, position, sync, &written)
    if error:
        _raise_oserror(error)
    return written


cdef class DiskQueue:
    """The queue of one writer thread that never needs the interpreter; see ``_core.pyi``."""

    def __cinit__(self, int wake_fd):
        self._queue = mr_disk_queue_new(wake_fd)
        if self._queue == NULL:
            raise MemoryError

    def __dealloc__(self):
        # No worker can be inside: it would hold a reference to this object.
        if self._queue != NULL:
            _release(mr_disk_queue_take_submitted(self._queue), None)
            _release(mr_disk_queue_take_completed(self._queue), None)
            mr_disk_queue_free(self._queue)

    def submit(self, int fd, buffers, off_t position, bint sync, int64_t token):
        _require_position(position)
        cdef _Gathered gathered = _Gathered(buffers)
        if self._outstanding >= DISK_QUEUE_JOBS_MAX:
            raise QueueFull("disk_queue_jobs", DISK_QUEUE_JOBS_MAX, self._outstanding + 1)
        cdef mr_job *job = <mr_job *>calloc(1, sizeof(mr_job))
        if job == NULL:
            raise MemoryError
        job.fd, job.position, job.sync, job.token = fd, position, sync, token
        job.iov, job.iov_count = gathered.iov, gathered.count
        job.owner = <void *>gathered
        Py_INCREF(gathered)
        if not mr_disk_queue_submit(self._queue, job):
            Py_DECREF(gathered)
            free(job)
            raise ValueError("the disk queue is closed")
        self._outstanding += 1

    def run(self):
        cdef int error
        if not mr_disk_queue_claim(self._queue):
            raise RuntimeError("the disk queue has its worker already")
        with nogil:
            error = mr_disk_queue_run(self._queue)
        if error:
            _raise_oserror(error)

    def completions(self):
        cdef list completed = []
        _release(mr_disk_queue_take_completed(self._queue), completed)
        self._outstanding -= len(completed)
        return completed

    def close(self):
        mr_disk_queue_close(self._queue)


cdef int _release(mr_job *job, list completed) except -1:
    """Free a list of jobs and what they hold; their outcomes go to ``completed``."""
    cdef mr_job *following
    while job != NULL:
        following = job.next
        if completed is not None:
            completed.append((job.token, job.error, job.written, job.micros))
        Py_DECREF(<object>job.owner)
        free(job)
        job = following
    return 0
