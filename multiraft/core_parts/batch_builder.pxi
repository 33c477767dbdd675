# Records to a RecordBatch v2 (KIP-98): ``BatchBuilder``.
#
# Included by _core.pyx.

cdef inline Py_ssize_t _sized_bytes(bytes field) noexcept:
    """Return the bytes of a field with its length in front."""
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
    """Encode the number of headers and the headers."""
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
    """BatchBuilder(bytes_max)
--

    Encoder of records into one RecordBatch v2, record by record.

    ``bytes_max`` limits the whole uncompressed batch, header included: 62 .. BATCH_BYTES_MAX bytes.
    The constructor raises ``ValueError`` for another limit.  Adding a record is O(bytes) amortised.
    """

    def __cinit__(self, bytes_max):
        bytes_max = PyNumber_Index(bytes_max)
        if not BATCH_HEADER_BYTES < bytes_max <= BATCH_BYTES_MAX:
            raise ValueError(f"bytes_max={bytes_max} is outside {BATCH_HEADER_BYTES + 1}.."
                             f"{BATCH_BYTES_MAX}")
        self._bytes_max = bytes_max

    def __dealloc__(self):
        PyMem_Free(self._block)

    @property
    def count(self) -> int:
        """Number of records in the batch."""
        return self._count

    @property
    def size(self) -> int:
        """Size of the uncompressed batch in bytes, header included."""
        return BATCH_HEADER_BYTES + self._used

    def clear(self) -> None:
        """Remove all records.  The compiled twin keeps its memory for the next batch."""
        self._used = 0
        self._count = 0
        self._base_timestamp_ms = self._max_timestamp_ms = 0

    cdef int _reserve(self, Py_ssize_t more) except -1:
        """Grow the block by at least ``more`` bytes, doubling it up to ``bytes_max``."""
        cdef Py_ssize_t room = max(self._used + more, min(2 * self._room, self._bytes_max), 1024)
        cdef uint8_t *block = <uint8_t *>PyMem_Realloc(self._block, <size_t>room)
        if block == NULL:
            raise MemoryError
        self._block = block
        self._room = room
        return 0

    cdef int _add(self, int64_t timestamp_ms, bytes key, bytes value, bytes headers) except -1:
        """Add a record and return 1; return 0 if full.  ``headers``: encoded headers or None."""
        cdef Py_ssize_t fields = _sized_bytes(key) + _sized_bytes(value)
        fields += 1 if headers is None else PyBytes_GET_SIZE(headers)
        cdef int64_t delta = timestamp_ms - self._base_timestamp_ms if self._count else 0
        cdef Py_ssize_t body = (1 + mr_varint_bytes(_zigzag(delta))
                                + mr_varint_bytes(_zigzag(self._count)) + fields)
        cdef Py_ssize_t record = mr_varint_bytes(_zigzag(body)) + body
        if BATCH_HEADER_BYTES + self._used + record > self._bytes_max:
            # Full, or too large for any batch?  The first record of a batch has deltas of 0.
            body = 3 + fields
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

    def append(self, timestamp_ms: int, key: bytes | None, value: bytes | None,
               headers: Sequence[Header] = ()) -> bool:
        """Add a record and return True; return False, with nothing changed, if the batch is full.

        The batch is full if the record would exceed ``bytes_max`` or BATCH_RECORDS_MAX.
        ``timestamp_ms``: milliseconds since 1970, -1 for none.  Header names are encoded as UTF-8;
        surrogate escapes become the bytes that they stand for.

        Raises, with nothing changed, ``RecordTooLarge`` for a record that exceeds ``bytes_max``
        alone or has more than RECORD_HEADERS_MAX headers, ``TypeError`` for a field of another
        type, ``ValueError`` for a timestamp outside -1 .. 2**62 - 1.
        """
        cdef int64_t timestamp = _timestamp(timestamp_ms)
        cdef bytes encoded = None
        if key is not None and not isinstance(key, bytes):
            raise TypeError(f"key must be bytes or None, not {type(key).__name__}")
        if value is not None and not isinstance(value, bytes):
            raise TypeError(f"value must be bytes or None, not {type(value).__name__}")
        if headers is not ():
            encoded = _encode_headers(headers)
        return self._add(timestamp, <bytes>key, <bytes>value, encoded) == 1

    def extend(self, timestamp_ms: int, values: Sequence[bytes], start: int = 0) -> int:
        """Add records with ``values[start:]`` until the batch is full; return the next index.

        The records have neither key nor headers.  The returned index is that of the first value not
        added.  A value that can never be added ends the call before that value and raises only as
        the first value of a call, so an exception means that no record was added.

        Raises ``RecordTooLarge``, ``TypeError`` and ``ValueError`` as ``append``, and
        ``ValueError`` for a negative ``start``.
        """
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
            # Too large for any batch: spare the exception of ``_add``, which is caught below.
            if at > first and PyBytes_GET_SIZE(value) > self._bytes_max:
                break
            try:
                if not self._add(timestamp, None, <bytes>value, None):
                    break
            except RecordTooLarge:
                if at > first:
                    break  # the next call starts with this value and raises
                raise
            at += 1
        return at

    def records_block(self) -> bytes:
        """Return the encoded records without the batch header, for a compressor.  O(bytes)."""
        return PyBytes_FromStringAndSize(<const char *>self._block, self._used)

    def build(self, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1,
              codec: int = 0, block: Buffer | None = None) -> bytearray:
        """Return the finished batch with base offset 0 and leader epoch -1.  O(bytes).

        ``block``: the records compressed with ``codec`` (1 gzip, 2 snappy, 3 lz4, 4 zstd); without
        both, the records are stored uncompressed.  Producer fields are -1 for a batch that is not
        idempotent.  The builder keeps its records, so the same batch can be built again with other
        producer fields.

        Raises ``ValueError`` for an empty batch, a field out of range, or a codec without a block,
        ``BatchTooLarge`` if the batch would exceed BATCH_BYTES_MAX.
        """
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
    return PyByteArray_FromStringAndSize(NULL, total)  # not zeroed: the caller writes each byte


cdef bytearray _batch_around(block):
    """Return a batch with ``block`` behind a header that is not written yet."""
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
