# The walk over the records of an uncompressed block.
#
# A ``Walk`` is a cursor that reads data[at:end] and nothing else.  It keeps the first fault with
# its numbers, which ends the walk; ``_walk_error`` makes the exception, with the lock held again.
#
# Included by _core.pyx.

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
    """Read a zigzag varint of at most ``bits``; after a fault return 0."""
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while walk.at < walk.end:
        byte = walk.data[walk.at]
        # The last byte may hold fewer than 7 bits of the number: others would be shifted out.
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
    """Read a length (at least ``least``; -1 = null) and as many bytes; null after a fault."""
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
    """Read a record up to its headers; return 0 or the fault."""
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
    # Compared before the sum is made: an overflow of signed numbers is undefined in C.
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
    """End a record behind its headers: bytes left over are a fault."""
    if not walk.fault and walk.at != walk.end:
        _fault(walk, BYTES_UNUSED, record.started, walk.end - walk.at, 0)
    walk.end = record.block_end
    return walk.fault


cdef void _check_records(Walk *walk, int64_t base_timestamp_ms, int32_t count) noexcept nogil:
    """Check all records of a block: fields, offset deltas 0 .. count - 1, no bytes left over."""
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
    """Return the exception for the fault of ``walk``."""
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
