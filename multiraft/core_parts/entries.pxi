# Entries: frame them for the disk, parse them from a peer's frame.
#
# Included by _core.pyx.

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
    """Return the number of payload bytes in the entry CRC: those outside the batch CRC."""
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


cdef int _entry_fault(const uint8_t *header, Py_ssize_t left, Py_ssize_t *entry_length,
                      uint32_t *crc) noexcept nogil:
    """Return the fault of the entry at ``header``, 0 if header and entry CRC are intact.

    ``left``: bytes from ``header`` to the end of the buffer, at least 64.  ``entry_length``: set to
    the length that was checked; callers must use it and not read the field again.
    """
    cdef Py_ssize_t length = mr_load_le32(header + ENTRY_LENGTH_AT)
    cdef uint8_t kind = header[ENTRY_KIND_AT]
    cdef Py_ssize_t covered
    entry_length[0] = length
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


def frame_entries(entries: Iterable[Entry], prev_crc: int, durable: int,
                  ) -> tuple[list[Buffer], list[int], int, int]:
    """Frame entries for a gathered append; return (buffers, starts, total bytes, last CRC).

    ``buffers`` has three members per entry: header, payload, padding to 8 bytes; payload and
    padding may be empty.  Those of entry i are ``buffers[3 * i:3 * i + 3]``, so a peer can be sent
    a part of the bytes that the disk gets.  ``starts[i]`` is the first byte of entry i, relative to
    the first entry.

    ``prev_crc``: CRC of the entry before in the segment.  ``durable``: position in the log on disk
    that is known durable, for each header.  Payloads are not copied.  O(entries), and O(bytes) for
    payloads other than DATA, of which the CRC covers every byte.

    Raises ``ValueError`` for an entry above ENTRY_BYTES_MAX, ``OverflowError`` for a field that
    does not fit its bytes.
    """
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
    view = memoryview(headers)  # while it exists, ``headers`` can neither be resized nor move
    cdef uint8_t *header = <uint8_t *>PyByteArray_AS_STRING(headers)
    for at in range(len(framed)):
        entry = framed[at]
        payload = entry.payload  # read once: the buffer written must be the one that was summed
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
    """Write one header, return the entry's length; ``crc``: of the entry before, then its own."""
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


def parse_entries(data: Buffer) -> list[Entry]:
    """Parse the entries of a peer's frame; their payloads are views of ``data``.  O(bytes).

    Checked are the CRC of each entry and the CRC of each DATA payload, whose fields become
    ``Entry.batch``.  The chain of CRCs and ``durable`` belong to the sender's disk and are ignored.
    The padding of the last entry must be present.

    Raises ``CorruptEntry``.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        # Payloads are slices of the view, which keep ``data`` alive after this buffer is released.
        return _parse(_byte_view(data), <const uint8_t *>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef list _parse(whole, const uint8_t *data, Py_ssize_t size):
    cdef Py_ssize_t at = 0, length = 0
    cdef const uint8_t *header
    cdef uint32_t crc = 0
    cdef int fault
    cdef list entries = []
    while at < size:
        header = data + at
        if size - at < ENTRY_HEADER_BYTES:
            raise CorruptEntry(f"entry at byte {at} has {size - at} bytes, less than a header of "
                               f"{ENTRY_HEADER_BYTES}")
        fault = _entry_fault(header, size - at, &length, &crc)
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
