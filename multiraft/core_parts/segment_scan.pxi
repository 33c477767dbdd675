# Entries of a segment: scan, check, search for the next intact one.
#
# Included by _core.pyx.

def scan_entries(data: Buffer, at: int, prev_crc: int, verify_payload: bool = True, upto: int = -1,
                 ) -> Scan:
    """Scan the entries of a segment from byte ``at`` while their chain of CRCs holds.  O(bytes).

    ``prev_crc``: CRC of the entry before byte ``at``.  ``verify_payload``: also check the CRC of
    each DATA payload; a damaged payload clears ``payload_intact`` and does not end the scan.
    ``upto``: an entry that begins at or after this byte ends the scan ("limit"); -1 = no limit.

    Raises ``ValueError`` for a negative ``at``, ``OverflowError`` if ``prev_crc`` is not an
    unsigned 32-bit number.
    """
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
                               Py_ssize_t *length, uint32_t *crc) noexcept nogil:
    """Return the fault of an entry that must be whole and continue the chain from ``prev_crc``."""
    cdef int fault = _entry_fault(header, left, length, crc)
    if not fault and length[0] > left:
        fault = TORN
    if not fault and mr_load_le32(header + ENTRY_PREV_CRC_AT) != prev_crc:
        fault = CHAIN
    return fault


cdef object _scan(const uint8_t *data, Py_ssize_t size, Py_ssize_t at, uint32_t prev_crc,
                  bint verify_payload, Py_ssize_t upto):
    cdef Py_ssize_t length = 0
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
        fault = _chained_fault(header, size - at, prev_crc, &length, &crc)
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
    Py_ssize_t damaged_at  # last entry consumed, if its payload is damaged, else -1
    uint64_t durable
    uint32_t prev_crc
    int fault


def check_entries(data: Buffer, at: int, prev_crc: int) -> Checked:
    """Check the entries of a segment as ``scan_entries``, without an object per entry.

    The compiled twin takes the interpreter's lock only to report a damaged payload.  O(bytes).

    Raises as ``scan_entries``.
    """
    cdef Py_buffer view
    cdef Check check
    cdef list damaged = []
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    try:
        if at < 0:
            raise ValueError(f"at={at} is negative")
        check = Check(at, 0, -1, 0, _crc_seed(prev_crc), 0)
        # One round per damaged payload: only its report needs the interpreter's lock.
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
    """Check entries up to the end, to a fault, or behind an entry with a damaged payload."""
    cdef Py_ssize_t length = 0
    cdef const uint8_t *header
    cdef Fields fields
    cdef uint32_t crc = 0, batch_crc = 0
    check.damaged_at = -1
    while size - check.at >= ENTRY_HEADER_BYTES and check.damaged_at < 0:
        header = data + check.at
        check.fault = _chained_fault(header, size - check.at, check.prev_crc, &length, &crc)
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


def find_entry(data: Buffer, at: int) -> int:
    """Return the first aligned byte >= ``at`` where an intact entry starts, -1 if there is none.

    Intact are header and entry CRC; the part of a DATA payload that only the batch CRC covers may
    be damaged or missing.  O(bytes) where few places look like a header.

    Raises ``ValueError`` for a negative ``at``.
    """
    cdef Py_buffer view
    cdef Py_ssize_t found
    if at < 0:
        raise ValueError(f"at={at} is negative")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef const uint8_t *start = <const uint8_t *>view.buf
    cdef Py_ssize_t first = min(at, view.len)
    with nogil:  # after damage, a search may go through a whole segment
        found = _find(start, view.len, _aligned(first))
    PyBuffer_Release(&view)
    return found


cdef Py_ssize_t _find(const uint8_t *data, Py_ssize_t size, Py_ssize_t at) noexcept nogil:
    cdef uint32_t crc = 0, candidate
    cdef Py_ssize_t length = 0
    while size - at >= ENTRY_HEADER_BYTES:
        candidate = mr_load_le32(data + at + ENTRY_LENGTH_AT)
        # The cheap half of _entry_fault first: few places look like a header at all.
        if (ENTRY_HEADER_BYTES <= candidate <= ENTRY_BYTES_MAX
                and _kind_known[data[at + ENTRY_KIND_AT]]
                and not _entry_fault(data + at, size - at, &length, &crc)):
            return at
        at += ENTRY_ALIGNMENT
    return -1
