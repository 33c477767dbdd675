# Compaction by key: keys that were seen, marks of records, and batches without some records.
#
# Marks have two bits for each record, the first record of a byte in its lowest bits.
#
# Included by _core.pyx.

cdef enum:
    MARK_SUPERSEDED = 1
    MARK_EXPIRED = 2
    MARK_PINNED = 3
    KEY_SLOT_BYTES = 16
    KEY_LENGTH_BYTES = 4

cdef uint64_t KEY_HASH_STEP = 0x9E3779B97F4A7C15U


cdef inline int _mark_of(const uint8_t *marks, Py_ssize_t at) noexcept nogil:
    return marks[at >> 2] >> ((at & 3) << 1) & 3


cdef inline void _set_mark(uint8_t *marks, Py_ssize_t at, int mark) noexcept nogil:
    cdef int shift = <int>(at & 3) << 1
    marks[at >> 2] = <uint8_t>((marks[at >> 2] & ~(3 << shift)) | mark << shift)


cdef inline bint _survives(int mark) noexcept nogil:
    return mark == 0 or mark == MARK_PINNED


cdef uint64_t _key_hash(const uint8_t *at, Py_ssize_t length, uint64_t seed) noexcept nogil:
    cdef uint64_t word, h = _mix64(seed + KEY_HASH_STEP * (<uint64_t>length + 1))
    cdef Py_ssize_t left = length
    while left >= 8:
        h = _mix64(h ^ mr_load_le64(at)) + KEY_HASH_STEP
        at += 8
        left -= 8
    word = 0
    while left > 0:
        left -= 1
        word = word << 8 | at[left]
    return _mix64(h ^ word)


cdef int _pass_headers(Walk *walk, int32_t count) noexcept nogil:
    cdef int32_t header
    for header in range(count):
        _sized(walk, 0)
        if not walk.fault:
            _sized(walk, -1)
        if walk.fault:
            return walk.fault
    return 0


cdef int _record_starts(Walk *walk, int64_t base_timestamp_ms, int32_t count, int32_t most,
                        RecordStart *record, int32_t *last, uint32_t *starts) noexcept nogil:
    """Walk all records and check them as ``_decode`` does; return 0, the fault of the walk, or
    OFFSET_DELTA.  Set where each record begins, and behind the last one."""
    cdef int32_t turn
    last[0] = -1
    for turn in range(count):
        starts[turn] = <uint32_t>walk.at
        if (_record_start(walk, base_timestamp_ms, record)
                or _pass_headers(walk, record.headers_count) or _record_end(walk, record)):
            return walk.fault
        if not last[0] < record.offset_delta <= most:
            return OFFSET_DELTA
        last[0] = record.offset_delta
    starts[count] = <uint32_t>walk.at
    if walk.at != walk.end:
        _fault(walk, BYTES_LEFT, walk.at, walk.end - walk.at, 0)
    return walk.fault


cdef class _MarkedRecords:
    """Records of an uncompressed block, checked, and their marks; held until ``close``."""

    def __cinit__(self, header, block, marks, Py_ssize_t first, bint writable):
        cdef Walk walk
        cdef RecordStart record
        cdef int fault
        cdef int32_t last = -1, count = header.count, most = header.last_offset_delta
        cdef int64_t base_timestamp_ms = header.base_timestamp_ms
        _require_records(header)
        self.count, self.first = count, first
        self.base_offset, self.base_timestamp_ms = header.base_offset, base_timestamp_ms
        PyObject_GetBuffer(block, &self.block, PyBUF_SIMPLE)
        self.held = 1
        PyObject_GetBuffer(marks, &self.marked, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = 2
        if first < 0 or first + count > self.marked.len * 4:
            raise ValueError(f"marks {first} .. {first + count} are outside those of "
                             f"{self.marked.len} bytes")
        if self.block.len > 0xFFFFFFFF:
            raise CorruptBatch(f"{self.block.len} bytes of records exceed {0xFFFFFFFF}")
        self.starts = <uint32_t *>PyMem_Malloc((<size_t>count + 1) * sizeof(uint32_t))
        if self.starts == NULL:
            raise MemoryError
        self.data = <const uint8_t *>self.block.buf
        self.marks = <uint8_t *>self.marked.buf
        walk = Walk(self.data, 0, self.block.len, 0, 0, 0, 0)
        with nogil:
            fault = _record_starts(&walk, base_timestamp_ms, count, most, &record, &last,
                                   self.starts)
        if walk.fault:
            raise _walk_error(&walk)
        if fault:
            raise CorruptBatch(f"record at byte {record.started}: offset delta "
                               f"{record.offset_delta} is not above {last} and at most {most}")

    def __dealloc__(self):
        if self.held > 1:
            PyBuffer_Release(&self.marked)
        if self.held:
            PyBuffer_Release(&self.block)
        PyMem_Free(self.starts)

    cdef void record(self, int32_t turn, RecordStart *record) noexcept nogil:
        """Set a record, which is intact, up to its headers."""
        cdef Walk walk = Walk(self.data, self.starts[turn], self.starts[turn + 1], 0, 0, 0, 0)
        _record_start(&walk, self.base_timestamp_ms, record)


cdef class KeyTable:
    """KeyTable(bytes_max, low=0, high=18446744073709551616, seed=0)
--

    Whole keys of the records that were seen, as far as their hash is in [low, high).

    A partition is walked in passes, each for a range of hashes.  When ``bytes_max`` bytes are full,
    ``high`` falls to the middle of its range, and the keys that are outside leave: a later pass
    begins with the last ``high`` of this one.  So memory decides about the number of passes, and
    about nothing else.  One key is always taken, however long.

    ``seed``: of the hash, so that no producer knows which keys collide.  ``marks`` have two bits
    per record: 0 = no other record is known to replace it, 1 = superseded by a later record with
    its key, 2 = a tombstone that may go, 3 = a tombstone that has to stay.

    Raises ``ValueError`` for less than 4,096 bytes and for an empty range.
    """

    def __cinit__(self, bytes_max: int, low: int = 0, high: int = 1 << 64, seed: int = 0):
        cdef Py_ssize_t room = bytes_max
        cdef uint64_t slots = 64
        if room < 4096:
            raise ValueError(f"bytes_max={bytes_max} is below 4096")
        if not 0 <= low < high <= 1 << 64:
            raise ValueError(f"hashes {low} .. {high} are no range of 64 bits")
        if not 0 <= seed < 1 << 64:
            raise ValueError(f"seed={seed} is not an unsigned 64-bit number")
        while slots * 2 * KEY_SLOT_BYTES * 2 <= <uint64_t>room:
            slots *= 2
        self._slots_mask = slots - 1
        self._arena_room = room - <Py_ssize_t>(slots * KEY_SLOT_BYTES)
        self._low, self._last, self._seed = low, high - 1, seed
        # Memory that nothing was written to takes no place yet.
        self._hashes = <uint64_t *>calloc(slots, sizeof(uint64_t))
        self._places = <uint64_t *>calloc(slots, sizeof(uint64_t))
        self._arena = <uint8_t *>malloc(<size_t>self._arena_room)
        if self._hashes == NULL or self._places == NULL or self._arena == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self._hashes)
        free(self._places)
        free(self._arena)

    @property
    def low(self) -> int:
        """Lowest hash of the range."""
        return self._low

    @property
    def high(self) -> int:
        """End of the range of hashes, exclusive."""
        return int(self._last) + 1

    @property
    def keys(self) -> int:
        """Number of keys in the table."""
        return self._keys

    def mark(self, header: BatchHeader, block: Buffer, tombstones_below: int, marks: bytearray,
             first: int) -> None:
        """Mark the records of a batch, the newest first, by the keys of the table, and add theirs.

        To be called for the batches of a partition from the newest to the oldest.  A record whose
        key is in the table becomes superseded; one without a value whose key is not, and whose
        offset is below ``tombstones_below``, becomes a tombstone that may go.  Records without a
        key are left as they are.  ``block``: the uncompressed records; ``first``: number of the
        batch's first record in ``marks``.  O(bytes), without the interpreter's lock.

        Raises ``CorruptBatch`` before anything is changed, ``ValueError`` if ``marks`` is too
        short.
        """
        cdef _MarkedRecords records = _MarkedRecords(header, block, marks, first, True)
        cdef int64_t below = max(-I64_MAX, min(tombstones_below, I64_MAX))
        cdef bint fits
        with nogil:
            fits = self._mark(records, below)
        if not fits:
            raise MemoryError

    cdef bint _mark(self, _MarkedRecords records, int64_t below) noexcept nogil:
        cdef RecordStart record
        cdef uint64_t h
        cdef int found
        cdef int32_t turn = records.count
        while turn > 0:
            turn -= 1
            records.record(turn, &record)
            if record.key.length < 0:
                continue
            h = _key_hash(record.key.data, record.key.length, self._seed)
            if not self._low <= h <= self._last:
                continue
            found = self._put(h, record.key)
            if found < 0:
                return False
            if found:
                _set_mark(records.marks, records.first + turn, MARK_SUPERSEDED)
            elif record.value.length < 0 and records.base_offset + record.offset_delta < below:
                _set_mark(records.marks, records.first + turn, MARK_EXPIRED)
        return True

    def add(self, header: BatchHeader, block: Buffer, marks: bytearray, first: int,
            superseded: bool) -> None:
        """Add the keys of the records of a batch; with ``superseded``, of those alone that are
        superseded.  Otherwise as ``mark``."""
        cdef _MarkedRecords records = _MarkedRecords(header, block, marks, first, False)
        cdef bint some = superseded, fits
        with nogil:
            fits = self._add(records, some)
        if not fits:
            raise MemoryError

    cdef bint _add(self, _MarkedRecords records, bint some) noexcept nogil:
        cdef RecordStart record
        cdef uint64_t h
        cdef int32_t turn
        for turn in range(records.count):
            if some and _mark_of(records.marks, records.first + turn) != MARK_SUPERSEDED:
                continue
            records.record(turn, &record)
            if record.key.length < 0:
                continue
            h = _key_hash(record.key.data, record.key.length, self._seed)
            if self._low <= h <= self._last and self._put(h, record.key) < 0:
                return False
        return True

    def pin(self, header: BatchHeader, block: Buffer, marks: bytearray, first: int) -> int:
        """Mark the tombstones of a batch that may go, and whose key is in the table, as those that
        have to stay; return their number.  Otherwise as ``mark``."""
        cdef _MarkedRecords records = _MarkedRecords(header, block, marks, first, True)
        cdef int32_t pinned
        with nogil:
            pinned = self._pin(records)
        return pinned

    cdef int32_t _pin(self, _MarkedRecords records) noexcept nogil:
        cdef RecordStart record
        cdef uint64_t h
        cdef int32_t turn, pinned = 0
        for turn in range(records.count):
            if _mark_of(records.marks, records.first + turn) != MARK_EXPIRED:
                continue
            records.record(turn, &record)
            if record.key.length < 0:
                continue
            h = _key_hash(record.key.data, record.key.length, self._seed)
            if self._low <= h <= self._last and self._places[self._slot(h, record.key)]:
                _set_mark(records.marks, records.first + turn, MARK_PINNED)
                pinned += 1
        return pinned

    # ---- the table -----------------------------------------------------------------------------

    cdef uint64_t _slot(self, uint64_t h, Field key) noexcept nogil:
        """Return the slot of a key, or the empty one in which it belongs.  A place is one more than
        where the key's length stands in the arena; 0 = the slot is empty."""
        cdef uint64_t slot = h & self._slots_mask
        cdef const uint8_t *known
        while self._places[slot]:
            if self._hashes[slot] == h:
                known = self._arena + self._places[slot] - 1
                if mr_load_le32(known) == <uint64_t>key.length and not memcmp(
                        known + KEY_LENGTH_BYTES, key.data, <size_t>key.length):
                    return slot
            slot = (slot + 1) & self._slots_mask
        return slot

    cdef int _put(self, uint64_t h, Field key) noexcept nogil:
        """Add a key, unless its hash leaves the range for want of memory.  Return 1 if it was
        there, -1 without memory."""
        cdef uint64_t slot = self._slot(h, key)
        cdef Py_ssize_t size = KEY_LENGTH_BYTES + key.length
        cdef uint8_t *larger
        if self._places[slot]:
            return 1
        while (2 * (self._keys + 1) > self._slots_mask + 1
               or self._arena_used + size > self._arena_room):
            if not self._keys or self._low == self._last:
                larger = <uint8_t *>realloc(self._arena, <size_t>(self._arena_used + size))
                if larger == NULL:
                    return -1
                self._arena, self._arena_room = larger, self._arena_used + size
                break
            self._last = self._low + (self._last - self._low) // 2
            self._drop_outside()
            if h > self._last:
                return 0
        slot = self._slot(h, key)
        mr_store_le32(self._arena + self._arena_used, <uint32_t>key.length)
        memcpy(self._arena + self._arena_used + KEY_LENGTH_BYTES, key.data, <size_t>key.length)
        self._hashes[slot], self._places[slot] = h, <uint64_t>self._arena_used + 1
        self._arena_used += size
        self._keys += 1
        return 0

    cdef void _drop_outside(self) noexcept nogil:
        """Remove the keys whose hash is above the range."""
        cdef Py_ssize_t at = 0, to = 0, size
        cdef uint64_t h
        cdef Field key
        cdef uint64_t slot
        memset(self._places, 0, <size_t>((self._slots_mask + 1) * sizeof(uint64_t)))
        self._keys = 0
        while at < self._arena_used:
            key.length = <Py_ssize_t>mr_load_le32(self._arena + at)
            size = KEY_LENGTH_BYTES + key.length
            h = _key_hash(self._arena + at + KEY_LENGTH_BYTES, key.length, self._seed)
            if h <= self._last:
                memmove(self._arena + to, self._arena + at, <size_t>size)
                key.data = self._arena + to + KEY_LENGTH_BYTES
                slot = self._slot(h, key)
                self._hashes[slot], self._places[slot] = h, <uint64_t>to + 1
                to += size
                self._keys += 1
            at += size
        self._arena_used = to


def surviving_records(header: BatchHeader, block: Buffer, marks: bytearray, first: int,
                      ) -> tuple[int, int]:
    """Return how many records of a batch survive, and their bytes.  Arguments as those of
    ``KeyTable.mark``.  O(bytes), without the interpreter's lock.

    Raises ``CorruptBatch``, ``ValueError``.
    """
    cdef _MarkedRecords records = _MarkedRecords(header, block, marks, first, False)
    cdef int32_t turn, count = 0
    cdef int64_t size = 0
    with nogil:
        for turn in range(records.count):
            if _survives(_mark_of(records.marks, records.first + turn)):
                count += 1
                size += records.starts[turn + 1] - records.starts[turn]
    return count, size


def surviving_marks(marks: bytearray, first: int, count: int) -> int:
    """Return how many of ``count`` records, from number ``first`` on, survive by their marks.
    O(count), without the interpreter's lock.

    Raises ``ValueError`` if ``marks`` is too short.
    """
    cdef Py_buffer view
    cdef Py_ssize_t at, begin = first, end = first + count
    cdef int64_t found = 0
    PyObject_GetBuffer(marks, &view, PyBUF_SIMPLE)
    if not 0 <= begin <= end <= view.len * 4:
        PyBuffer_Release(&view)
        raise ValueError(f"marks {first} .. {first + count} are outside those of {len(marks)} "
                         f"bytes")
    with nogil:
        for at in range(begin, end):
            found += _survives(_mark_of(<const uint8_t *>view.buf, at))
    PyBuffer_Release(&view)
    return found


def compact_batch(data: Buffer, block: Buffer, marks: bytearray, first: int) -> bytearray:
    """Return the batch that has the records of another one that survive, uncompressed.

    ``data``: the other batch, or its first 61 bytes; ``block``: its uncompressed records.  Offsets,
    base timestamp, producer fields and leader epoch stay, so that the bytes of each record do; the
    largest timestamp is that of the records that survive, or stays in a batch with LogAppendTime.
    The result depends on these records and that header alone.  O(bytes), without the interpreter's
    lock.

    Raises ``CorruptBatch``, ``BatchTooLarge`` above BATCH_BYTES_MAX, ``ValueError`` if no record
    survives or ``marks`` is too short.
    """
    header = batch_header(data)
    cdef _MarkedRecords records = _MarkedRecords(header, block, marks, first, False)
    cdef RecordStart record
    cdef int32_t turn, count = 0
    cdef int64_t latest = -I64_MAX - 1, size = BATCH_HEADER_BYTES
    cdef uint8_t *to
    cdef uint8_t *start
    cdef uint32_t length
    cdef bint appended = header.attributes & ATTRIBUTE_LOG_APPEND_TIME
    for turn in range(records.count):
        if _survives(_mark_of(records.marks, records.first + turn)):
            count += 1
            size += records.starts[turn + 1] - records.starts[turn]
    if not count:
        raise ValueError("no record of the batch survives")
    if size > BATCH_BYTES_MAX:
        raise BatchTooLarge(f"batch of {size} bytes exceeds BATCH_BYTES_MAX={BATCH_BYTES_MAX}")
    cdef bytearray made = PyByteArray_FromStringAndSize(NULL, size)
    start = to = <uint8_t *>PyByteArray_AS_STRING(made)
    to += BATCH_HEADER_BYTES
    with nogil:
        for turn in range(records.count):
            if not _survives(_mark_of(records.marks, records.first + turn)):
                continue
            records.record(turn, &record)
            latest = max(latest, record.timestamp_ms)
            length = records.starts[turn + 1] - records.starts[turn]
            memcpy(to, records.data + records.starts[turn], length)
            to += length
    made[:BATCH_HEADER_BYTES] = memoryview(data).cast("B")[:BATCH_HEADER_BYTES]
    mr_store_be32(start + BATCH_LENGTH_AT, <uint32_t>(size - BATCH_LENGTH_OVERHEAD))
    mr_store_be16(start + BATCH_ATTRIBUTES_AT,
                  <uint16_t>(<int16_t>header.attributes & ~ATTRIBUTE_CODEC_MASK))
    if not appended:
        mr_store_be64(start + BATCH_MAX_TIMESTAMP_AT, <uint64_t>latest)
    mr_store_be32(start + BATCH_RECORDS_COUNT_AT, <uint32_t>count)
    mr_store_be32(start + BATCH_CRC_AT, _crc(0, start + BATCH_ATTRIBUTES_AT,
                                             <Py_ssize_t>size - BATCH_ATTRIBUTES_AT))
    return made
