# Batches: parse, check, stamp, split and decode.
#
# Included by _core.pyx.

cdef enum:
    SHORT = 1
    ABSURD = 2
    OTHER_LENGTH = 3
    OTHER_MAGIC = 4
    OTHER_CRC = 5


cdef int _load_fields(const uint8_t *at, Py_ssize_t left, Fields *fields) noexcept nogil:
    """Parse the header at ``at``; return 0, SHORT or ABSURD."""
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
    """Return 0 if ``data`` is exactly one intact batch, else its first fault."""
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
    """Return ``_batch_fault``, computed without the interpreter's lock from RELEASE_BYTES on."""
    cdef int fault
    if length < RELEASE_BYTES:
        return _batch_fault(data, length, fields, crc)
    with nogil:
        fault = _batch_fault(data, length, fields, crc)
    return fault


cdef object _batch_error(int fault, Py_ssize_t length, Fields *fields, object actual,
                         object wrong_magic):
    """Return the exception for ``fault`` of a batch in a buffer of ``length`` bytes."""
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


cdef inline int32_t _offsets(Fields *fields) noexcept nogil:
    """Return how many offsets a batch spans: more than it has records behind a compaction."""
    return min(fields.last_offset_delta, 0x7FFFFFFE) + 1


cdef object _info(Fields *fields):
    return mr_named(BatchInfo, (
        _offsets(fields), fields.producer_id, fields.producer_epoch, fields.base_sequence,
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


def batch_header(data: Buffer, Py_ssize_t at: int = 0) -> BatchHeader:
    """Parse the 61 bytes of a batch header at byte ``at``; the CRC is not checked.

    Raises ``CorruptBatch`` if fewer bytes are left or the length field gives a size outside 61 ..
    BATCH_BYTES_MAX, ``ValueError`` for a negative ``at``.
    """
    cdef Fields fields
    _load_header(data, at, &fields)
    return _header(&fields)


def batch_info(data: Buffer) -> BatchInfo:
    """Parse the fields a node needs of a batch that was checked before; the CRC is not checked.

    Raises ``CorruptBatch`` as ``batch_header``.
    """
    cdef Fields fields
    _load_header(data, 0, &fields)
    return _info(&fields)


def verify_batch(data: Buffer) -> BatchHeader:
    """Check that ``data`` is exactly one intact batch and return its header.  O(bytes).

    Followers and consumers check length field, magic and CRC only; ``check_batch`` has the rules of
    a leader.

    Raises ``CorruptBatch``.
    """
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


def check_batch(data: Buffer) -> BatchInfo:
    """Check that a leader may append ``data``, which must be exactly one batch; return its fields.

    Checked are sizes, magic 2, CRC, base offset 0, a positive count, last offset delta equal to
    count - 1, CreateTime timestamps, no control batch, consistent producer fields, and that a batch
    is transactional exactly if STAGED_PRODUCER_MIN <= producer id <= STAGED_PRODUCER_MAX.  The
    records of an uncompressed batch are walked: offset deltas 0 .. count - 1, lengths, no bytes
    left over.  O(bytes).

    Raises ``CorruptBatch`` for a wrong CRC or length, ``BatchTooLarge`` above BATCH_BYTES_MAX or
    BATCH_RECORDS_MAX, ``InvalidBatch`` for any other fault.
    """
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
    """Raise ``InvalidBatch`` for an intact batch that a producer may not send."""
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
                           f"transaction of a sink")
    if staged and not fields.attributes & ATTRIBUTE_TRANSACTIONAL:
        raise InvalidBatch(f"producer {fields.producer_id} is a transaction of a sink, whose "
                           f"batches are transactional")
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


def stamp_batch(data: Buffer, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into a batch in place; the batch CRC covers neither.

    Raises ``BufferError`` for a read-only buffer, ``CorruptBatch`` for fewer than 61 bytes,
    ``ValueError`` for a number out of range.
    """
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


def stamp_producer(data: Buffer, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Write the producer fields into a batch in place and recompute its CRC.  O(bytes).

    A batch gets its sequence when it is sent, which may be long after ``BatchBuilder.build``.

    Raises as ``stamp_batch``.
    """
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


def stamp_append_time(data: Buffer, timestamp_ms: int) -> None:
    """Turn a batch into one with LogAppendTime, in place, and recompute its CRC.  O(bytes).

    Attribute bit 3 is set, and ``timestamp_ms`` becomes the largest timestamp, which is then the
    timestamp of each record.  Base timestamp and records stay, as in Kafka.  ``data`` must be
    exactly one batch.  Its old CRC is not checked: ``check_batch`` comes first.

    Raises ``BufferError`` for a read-only buffer, ``CorruptBatch`` for a wrong length or magic,
    ``ValueError`` for a negative time or one above 63 bits.
    """
    cdef Py_buffer view
    cdef Fields fields
    cdef uint8_t *to
    cdef int fault
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        to = <uint8_t *>view.buf
        fault = _load_fields(to, view.len, &fields)
        if not fault and fields.total_bytes != view.len:
            fault = OTHER_LENGTH
        if not fault and fields.magic != BATCH_MAGIC:
            fault = OTHER_MAGIC
        if fault:
            raise _batch_error(fault, view.len, &fields, None, CorruptBatch)
        _require_range("timestamp_ms", timestamp_ms, 0, I64_MAX)
        mr_store_be16(to + BATCH_ATTRIBUTES_AT,
                      <uint16_t>(fields.attributes | ATTRIBUTE_LOG_APPEND_TIME))
        mr_store_be64(to + BATCH_MAX_TIMESTAMP_AT, <uint64_t><int64_t>timestamp_ms)
        mr_store_be32(to + BATCH_CRC_AT,
                      _crc(0, to + BATCH_ATTRIBUTES_AT, view.len - BATCH_ATTRIBUTES_AT))
    finally:
        PyBuffer_Release(&view)


cdef object _byte_view(data):
    """Return ``data`` as a memoryview of bytes, to cut slices from."""
    view = memoryview(data)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def split_batches(data: Buffer) -> list[memoryview]:
    """Cut a fetch payload of whole batches into one view of ``data`` per batch, without copying.

    Each batch is checked as by ``verify_batch``.  O(bytes).

    Raises ``CorruptBatch``.
    """
    cdef Py_buffer view
    cdef Fields fields
    cdef Py_ssize_t at = 0
    cdef uint32_t crc = 0
    cdef int fault
    cdef const uint8_t *start
    cdef list batches = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        whole = _byte_view(data)  # its slices keep ``data`` alive after ``view`` is released
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


def staged_batches(buffers: Sequence[Buffer]) -> list[tuple[int, int]]:
    """Return where the batches of transactions are in buffers of whole batches: the number of the
    buffer, and the position in it.  O(batches).

    Headers alone are read, and nothing else of a batch is checked.  Raises ``CorruptBatch`` for a
    buffer that does not end with a batch.
    """
    cdef Py_buffer view
    cdef Fields fields
    cdef Py_ssize_t at, number = 0
    cdef int fault
    cdef list found = []
    for data in buffers:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            at = 0
            while at < view.len:
                fault = _load_fields(<const uint8_t *>view.buf + at, view.len - at, &fields)
                if not fault and fields.total_bytes > view.len - at:
                    fault = OTHER_LENGTH
                if fault:
                    raise _batch_error(fault, view.len - at, &fields, None, CorruptBatch)
                if STAGED_PRODUCER_MIN <= fields.producer_id <= STAGED_PRODUCER_MAX:
                    found.append((number, at))
                at += <Py_ssize_t>fields.total_bytes
        finally:
            PyBuffer_Release(&view)
        number += 1
    return found


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


def decode_records(header: BatchHeader, block: Buffer) -> list[Record]:
    """Decode the records of one batch from ``block``, which holds them uncompressed.  O(bytes).

    Offset deltas must ascend and may have the gaps of compaction.  Bytes of header names that are
    not UTF-8 become surrogate escapes, which ``BatchBuilder`` accepts.  Each record of a batch with
    LogAppendTime has the batch's largest timestamp.

    Raises ``CorruptBatch``.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        return _decode(header, <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list _decode(header, const uint8_t *data, Py_ssize_t length):
    cdef int64_t base_offset = header.base_offset, base_timestamp_ms = header.base_timestamp_ms
    cdef int64_t max_timestamp_ms = header.max_timestamp_ms
    cdef bint appended = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    cdef int32_t count = header.count, most = header.last_offset_delta, last = -1, turn
    cdef Walk walk = Walk(data, 0, length, 0, 0, 0, 0)
    cdef RecordStart record
    cdef list records = []
    _require_records(header)  # bounds ``count`` before the loop makes objects
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
            base_offset + record.offset_delta,
            max_timestamp_ms if appended else record.timestamp_ms, _copy(record.key),
            _copy(record.value), headers)))
        last = record.offset_delta
    if walk.at != walk.end:
        raise CorruptBatch(f"{walk.end - walk.at} bytes after the last record")
    return records


cdef int _find_record(Walk *walk, int64_t base_timestamp_ms, int32_t count, int32_t most,
                      int64_t from_delta, int64_t time_ms, bint appended, int64_t append_time_ms,
                      RecordStart *record, int32_t *last, int64_t *found_delta,
                      int64_t *found_ms) noexcept nogil:
    """Walk all records and check them as ``_decode`` does; return 0, the fault of the walk, or
    OFFSET_DELTA.  Set the first record from ``from_delta`` on that reaches ``time_ms``, else the
    first with the largest time."""
    cdef int32_t turn, header
    cdef int64_t timestamp_ms
    cdef bint reached = False
    last[0] = -1
    for turn in range(count):
        if _record_start(walk, base_timestamp_ms, record):
            return walk.fault
        for header in range(record.headers_count):
            _sized(walk, 0)
            if not walk.fault:
                _sized(walk, -1)
            if walk.fault:
                return walk.fault
        if _record_end(walk, record):
            return walk.fault
        if not last[0] < record.offset_delta <= most:
            return OFFSET_DELTA
        last[0] = record.offset_delta
        timestamp_ms = append_time_ms if appended else record.timestamp_ms
        if not reached and record.offset_delta >= from_delta and (
                found_delta[0] < 0 or timestamp_ms > found_ms[0]):
            found_delta[0], found_ms[0] = record.offset_delta, timestamp_ms
            reached = timestamp_ms >= time_ms
    if walk.at != walk.end:
        _fault(walk, BYTES_LEFT, walk.at, walk.end - walk.at, 0)
    return walk.fault


def find_record(header: BatchHeader, block: Buffer, offset: int, time_ms: int
                ) -> tuple[int, int]:
    """Return offset and time of the first record at or behind ``offset`` that has ``time_ms`` or a
    later time, else of the first one with the largest time; (-1, -1) if no record is there.

    ``block`` and its checks as in ``decode_records``.  O(bytes), without the interpreter's lock.
    Raises ``CorruptBatch``.
    """
    cdef Py_buffer view
    cdef Walk walk
    cdef RecordStart record
    cdef int fault
    cdef int32_t last = -1, count = header.count, most = header.last_offset_delta
    cdef int64_t base_offset = header.base_offset, base_ms = header.base_timestamp_ms
    cdef int64_t append_ms = header.max_timestamp_ms, time = time_ms, found = -1, found_ms = -1
    cdef bint appended = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    cdef int64_t from_delta = max(0, min(offset - base_offset, 1 << 32))
    _require_records(header)
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    walk = Walk(<const uint8_t *>view.buf, 0, view.len, 0, 0, 0, 0)
    try:
        with nogil:
            fault = _find_record(&walk, base_ms, count, most, from_delta, time, appended,
                                 append_ms, &record, &last, &found, &found_ms)
    finally:
        PyBuffer_Release(&view)
    if walk.fault:
        raise _walk_error(&walk)
    if fault:
        raise CorruptBatch(f"record at byte {record.started}: offset delta {record.offset_delta} "
                           f"is not above {last} and at most {most}")
    if found < 0:
        return -1, -1
    return base_offset + found, found_ms


cdef int64_t _keyless_records(Walk *walk, int64_t base_timestamp_ms, int32_t count,
                              int32_t *found, int32_t most) noexcept nogil:
    """Check all records of a block as ``_check_records`` does; return the number of those without a
    key, and put the first ``most`` of them into ``found``."""
    cdef RecordStart record
    cdef int32_t expected, header
    cdef int64_t keyless = 0
    for expected in range(count):
        if _record_start(walk, base_timestamp_ms, &record):
            return keyless
        if record.key.length < 0:
            if keyless < most:
                found[keyless] = expected
            keyless += 1
        for header in range(record.headers_count):
            _sized(walk, 0)
            if not walk.fault:
                _sized(walk, -1)
            if walk.fault:
                return keyless
        if _record_end(walk, &record):
            return keyless
        if record.offset_delta != expected:
            _fault(walk, OFFSET_DELTA, record.started, record.offset_delta, expected)
            return keyless
    if walk.at != walk.end:
        _fault(walk, BYTES_LEFT, walk.at, walk.end - walk.at, 0)
    return keyless


def keyless_records(header: BatchHeader, block: Buffer, most: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of records without a key, and the positions in the batch of the first
    ``most`` of them.  An empty key is a key.

    ``block`` holds the records uncompressed, as a producer sends them: checked as by
    ``check_batch``.  O(bytes), without the interpreter's lock.

    Raises ``CorruptBatch``, ``InvalidBatch`` for wrong offset deltas, ``ValueError`` if ``most`` is
    not within 0 .. BATCH_RECORDS_MAX.
    """
    cdef Py_buffer view
    cdef Walk walk
    cdef int64_t keyless = 0
    cdef int32_t count = header.count, bound
    cdef int64_t base_ms = header.base_timestamp_ms
    cdef int32_t *found
    _require_records(header)
    _require_range("most", most, 0, BATCH_RECORDS_MAX)
    bound = min(<int32_t>most, count)
    found = <int32_t *>PyMem_Malloc(max(bound, 1) * sizeof(int32_t))
    if found == NULL:
        raise MemoryError
    try:
        PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
        walk = Walk(<const uint8_t *>view.buf, 0, view.len, 0, 0, 0, 0)
        with nogil:
            keyless = _keyless_records(&walk, base_ms, count, found, bound)
        PyBuffer_Release(&view)
        if walk.fault:
            raise _walk_error(&walk)
        return keyless, tuple([found[at] for at in range(min(<int64_t>bound, keyless))])
    finally:
        PyMem_Free(found)
