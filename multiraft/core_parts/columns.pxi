# Records to columns in the memory layout of Apache Arrow: ``ColumnBuilder``.
#
# Included by _core.pyx.

cdef class _Growing:
    """Growing bytes with one restore point (``kept``), given away uncopied."""

    def __cinit__(self):
        self.held = bytearray()

    cdef int grow(self, Py_ssize_t more) except -1:
        """Grow by at least ``more`` bytes; sizes double."""
        cdef Py_ssize_t room = max(self.used + more, 2 * self.room, 4096)
        PyByteArray_Resize(self.held, room)  # may move the bytes: take ``data`` anew
        self.data = <uint8_t *>PyByteArray_AS_STRING(self.held)
        self.room = room
        return 0

    cdef bytearray give(self):
        """Return the used bytes and start empty."""
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
    """Write bit ``row`` of a bitmap.  Rows ascend; after ``forget`` a row is written again."""
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
    """Column of byte strings and nulls, with one restore point."""

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
    """Clear the bits behind the last row, which forgotten rows may have set."""
    if count & 7:
        bits.data[count >> 3] &= <uint8_t>((1 << (count & 7)) - 1)
    return 0


cdef class ColumnBuilder:
    """ColumnBuilder(keys=True, values=True, headers=False)
--

    Collector of records as columns in the memory layout of Apache Arrow.

    ``keys``, ``values``, ``headers``: the columns to fill besides offset and timestamp.  Adding a
    record is O(bytes) amortised.
    """

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
    def count(self) -> int:
        """Number of rows."""
        return self._count

    @property
    def size(self) -> int:
        """Size of the rows in bytes: keys, values, headers, and 16 bytes per row."""
        cdef Py_ssize_t size = 16 * self._count
        if self._keys is not None:
            size += self._keys.content.used
        if self._values is not None:
            size += self._values.content.used
        if self._header_names is not None:
            size += self._header_names.content.used + self._header_values.content.used
        return size

    def extend(self, header: BatchHeader, block: Buffer, first_offset: int, end_offset: int) -> int:
        """Add the records of a batch with first_offset <= offset < end_offset; return their number.

        ``block``: the uncompressed records.  A timestamp before 1970 (-1 = none), or one whose
        microseconds exceed 64 bits, becomes null.  In header names U+FFFD replaces bytes that are
        not UTF-8.  O(bytes of the block).

        Raises, with nothing changed, ``CorruptBatch`` as ``decode_records``, ``ValueError`` if a
        column would exceed 2 GiB.
        """
        cdef Py_buffer view
        cdef int64_t first = first_offset, end = end_offset
        cdef Py_ssize_t before = self._count
        PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
        try:
            self._extend(header, <const uint8_t *>view.buf, view.len, first, end)
        except BaseException:
            self._forget()  # rows of a batch that turns out damaged do not count
            raise
        finally:
            PyBuffer_Release(&view)
        self._keep()
        return self._count - before

    def take(self) -> Columns:
        """Return all rows and start without rows.  The compiled twin does not copy its columns."""
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
        cdef int64_t max_timestamp_ms = header.max_timestamp_ms
        cdef bint appended = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        cdef int32_t count = header.count, most = header.last_offset_delta, last = -1, turn
        cdef Walk walk = Walk(data, 0, length, 0, 0, 0, 0)
        cdef RecordStart record
        cdef bint wanted
        _require_records(header)
        for turn in range(count):
            if _record_start(&walk, base_timestamp_ms, &record):
                raise _walk_error(&walk)
            # The delta is checked below; until then the sum is made of numbers that may wrap.
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
                if appended:
                    record.timestamp_ms = max_timestamp_ms
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
            # A column of text must be valid UTF-8; names of headers may be any bytes.
            text = PyUnicode_DecodeUTF8(<char *>name.data, name.length, "replace")
            # The UTF-8 belongs to ``text``, which lives until ``add`` below has copied it.
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
    """Raise ``CorruptBatch`` for a header whose record count or offsets are impossible."""
    cdef int64_t base_offset = header.base_offset
    cdef int32_t count = header.count, most = header.last_offset_delta
    if not 0 <= count <= BATCH_RECORDS_MAX:
        raise CorruptBatch(f"record count {count} is outside 0..{BATCH_RECORDS_MAX}")
    if base_offset > I64_MAX - max(0, most):
        raise CorruptBatch(f"base offset {base_offset} overflows 64 bits")
    return 0
