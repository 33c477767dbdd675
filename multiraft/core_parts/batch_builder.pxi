# Records to a RecordBatch v2 (KIP-98): ``BatchBuilder``.
#
# Included by _core.pyx.

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
