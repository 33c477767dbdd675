# The rows of an index file as columns (``IndexRowReader``), of many files (``join_index_rows``).
#
# Included by _core.pyx.

cdef class IndexRowReader:
    """IndexRowReader(blocks, first_block, kind, rows, identity_crc)
--

    Reader of the blocks of one kind of an index file, whose rows it returns as columns.

    ``blocks``: all blocks of the kind, one after the other, with ``rows`` rows; the first of them
    is block ``first_block`` of its file.  ``identity_crc``: as of ``SegmentIndexer.pack``.  Keys
    are read in the order of their rows.  O(bytes).

    Raises ``ValueError`` if a block is damaged, or not the one of its place.
    """

    def __cinit__(self, blocks, size_t first_block, int kind, size_t rows, identity_crc):
        cdef uint32_t crc = _crc_seed(identity_crc)
        cdef int64_t damaged
        PyObject_GetBuffer(blocks, &self._view, PyBUF_SIMPLE)  # released by __dealloc__
        if kind != MR_ENTRY_BLOCKS and kind != MR_BATCH_BLOCKS:
            raise ValueError(f"there are no blocks of kind {kind}")
        cdef size_t found = <size_t>self._view.len
        if (found % MR_BLOCK_BYTES or found // MR_BLOCK_BYTES != mr_blocks_of(kind, rows)):
            raise ValueError(f"{found} bytes of blocks for {rows} rows of kind {kind}")
        self._reader.place.kind = kind
        self._reader.place.first_block = first_block
        self._reader.place.blocks = <uint8_t *>self._view.buf
        self._reader.rows = rows
        with nogil:
            damaged = mr_damaged_block(<const uint8_t *>self._view.buf, first_block, kind, rows,
                                       crc)
        if damaged >= 0:
            raise ValueError(f"block {damaged} is damaged, or not the one of its place")

    def __dealloc__(self):
        PyBuffer_Release(&self._view)

    @property
    def count(self) -> int:
        """Number of rows that were read."""
        return self._reader.place.count

    def entries(self, parts: bytes, first_index: int, start: int) -> tuple[bytes, bytes]:
        """Return the positions and ends of the next group, as ``GroupIndex.unpack`` takes them.

        ``parts``: the group's rows of the summary; ``start``: position of the segment in the log on
        disk.  O(entries).

        Raises ``ValueError`` if the blocks do not hold exactly what ``parts`` says.
        """
        cdef size_t count = _parts(parts), rows
        cdef uint64_t first = first_index, position = start
        cdef int fault = MR_CONTRADICTS
        self._reader.part = <const uint8_t *>PyBytes_AS_STRING(parts)
        rows = mr_rows_of_parts(self._reader.part, count)
        if rows <= self._reader.rows - self._reader.place.count:
            positions, ends = _unset_bytes(rows, 8), _unset_bytes(rows, 8)
            fault = mr_unpack_entries(
                &self._reader, count, first, position,
                <uint8_t *>PyBytes_AS_STRING(positions), <uint8_t *>PyBytes_AS_STRING(ends))
        if fault != MR_PLAIN:
            raise ValueError("the rows of a group are not those of the summary")
        return positions, ends

    def batches(self, partitions: bytes, parts: bytes, first_index: int,
                last_index: int) -> list[list]:
        """Return the fields of ``PartitionIndex.unpack`` of each partition of the next group.

        ``partitions``, ``parts``: the group's partitions in the summary, and their rows;
        ``first_index``, ``last_index``: the group's entries.  O(batches).

        Raises ``ValueError`` if the blocks do not hold exactly what ``parts`` says.
        """
        cdef size_t left = _parts(parts), own
        cdef mr_unpacked found
        cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(partitions)
        cdef const uint8_t *end = at + PyBytes_GET_SIZE(partitions)
        cdef list columns = []
        if PyBytes_GET_SIZE(partitions) % MR_PARTITION_BYTES:
            raise ValueError(f"{len(partitions)} bytes of partitions")
        found.first_index, found.last_index = first_index, last_index
        self._reader.part = <const uint8_t *>PyBytes_AS_STRING(parts)
        while at < end:
            own = mr_load_le32(at + 16)
            if own > left:
                raise ValueError("partitions have more rows than the summary")
            columns.append(self._columns(at, own, &found))
            left -= own
            at += MR_PARTITION_BYTES
        if left:
            raise ValueError("partitions have fewer rows than the summary")
        return columns

    cdef list _columns(self, const uint8_t *partition, size_t parts, mr_unpacked *found):
        """Return the fields of the next partition."""
        cdef size_t rows = mr_rows_of_parts(self._reader.part, parts)
        cdef int fault = MR_CONTRADICTS
        found.end_offset = <int64_t>mr_load_le64(partition + 8)
        found.gap_bases.at = found.gap_ends.at = NULL
        found.gap_bases.count = found.gap_ends.count = 0
        found.gap_bases.room = found.gap_ends.room = 0
        try:
            if rows <= self._reader.rows - self._reader.place.count:
                bases, indexes = _unset_bytes(rows, 8), _unset_bytes(rows, 8)
                latest = _unset_bytes(rows, 8)
                found.bases = <uint8_t *>PyBytes_AS_STRING(bases)
                found.indexes = <uint8_t *>PyBytes_AS_STRING(indexes)
                found.latest = <uint8_t *>PyBytes_AS_STRING(latest)
                fault = mr_unpack_batches(&self._reader, parts, found)
            if fault == MR_NO_MEMORY:
                raise MemoryError
            if fault != MR_PLAIN:
                raise ValueError("the rows of a partition are not those of the summary")
            gaps = [[<int64_t>found.gap_bases.at[slot], <int64_t>found.gap_ends.at[slot]]
                    for slot in range(found.gap_bases.count)]
            return [mr_load_le64(partition), found.end_offset, bases, indexes, latest, gaps]
        finally:
            free(found.gap_bases.at)
            free(found.gap_ends.at)


cdef size_t _parts(bytes parts) except? 0:
    """Return the number of rows in a part of a summary."""
    if PyBytes_GET_SIZE(parts) % MR_PART_BYTES:
        raise ValueError(f"{len(parts)} bytes of rows of the summary")
    return <size_t>PyBytes_GET_SIZE(parts) // MR_PART_BYTES


def join_index_rows(
        files: Sequence[tuple[bytes, bytes, int]]) -> dict[int, tuple[bytes, int]]:
    """Return the rows of each partition in several index files, and the offset after its last
    record there.

    ``files``: for each, in journal order, the partitions of a group in its summary, their rows, of
    which the places are those of file 0, and the number of the file, below 2**20.  Partitions
    without rows are left out, and no running value is below one before.  O(rows).

    Raises ``ValueError`` if partitions and rows of a file contradict each other, or for another
    number; ``OverflowError`` if that is negative.
    """
    cdef list slots = [], ordered = [*files]
    cdef dict slot_of = {}
    cdef bytes partitions, rows
    cdef size_t file, total = 0
    cdef _Joined *joined
    for partitions, rows, file in ordered:
        total += _partitions_of(partitions, rows, file)
    # One for each partition of each file: no partition is in more of them.
    joined = <_Joined *>PyMem_Calloc(total + 1, sizeof(_Joined))
    cdef uint32_t *where = <uint32_t *>PyMem_Calloc(total + 1, sizeof(uint32_t))
    try:
        if joined == NULL or where == NULL:
            raise MemoryError
        _count_rows(ordered, slot_of, joined, where)
        found = {}
        for key, slot in slot_of.items():
            own = _unset_bytes(joined[<size_t>slot].rows, MR_PART_BYTES)
            joined[<size_t>slot].to = <uint8_t *>PyBytes_AS_STRING(own)
            found[key] = (own, joined[<size_t>slot].end_offset)
        _copy_rows(ordered, joined, where)
        return found
    finally:
        PyMem_Free(joined)
        PyMem_Free(where)


cdef int _count_rows(list files, dict slot_of, _Joined *joined, uint32_t *where) except -1:
    """Set slot, number of rows and end of each partition, and the slots in the order of files."""
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef bytes partitions
    cdef size_t known, turn = 0
    for partitions, _, _ in files:
        at = <const uint8_t *>PyBytes_AS_STRING(partitions)
        end = at + PyBytes_GET_SIZE(partitions)
        while at < end:
            if mr_load_le32(at + 16):
                known = slot_of.setdefault(mr_load_le64(at), len(slot_of))
                joined[known].rows += mr_load_le32(at + 16)
                joined[known].end_offset = <int64_t>mr_load_le64(at + 8)
                where[turn] = <uint32_t>known
            at += MR_PARTITION_BYTES
            turn += 1
    return 0


cdef int _copy_rows(list files, _Joined *joined, const uint32_t *where) except -1:
    """Copy the rows of all files to their partitions."""
    cdef const uint8_t *at
    cdef const uint8_t *end
    cdef const uint8_t *row
    cdef bytes partitions, rows
    cdef size_t file, turn = 0
    cdef uint32_t left
    for partitions, rows, file in files:
        at = <const uint8_t *>PyBytes_AS_STRING(partitions)
        end = at + PyBytes_GET_SIZE(partitions)
        row = <const uint8_t *>PyBytes_AS_STRING(rows)
        while at < end:
            left = mr_load_le32(at + 16)
            while left:
                _add_row(&joined[where[turn]], row, <uint64_t>file << MR_FILE_AT)
                row += MR_PART_BYTES
                left -= 1
            at += MR_PARTITION_BYTES
            turn += 1
    return 0


cdef void _add_row(_Joined *joined, const uint8_t *row, uint64_t file) noexcept nogil:
    cdef int64_t value = <int64_t>mr_load_le64(row + 16)
    if not joined.is_begun or value > joined.value:
        joined.value = value
        joined.is_begun = True
    memcpy(joined.to, row, 8)
    mr_store_le64(joined.to + 8, mr_load_le64(row + 8) | file)
    mr_store_le64(joined.to + 16, <uint64_t>joined.value)
    joined.to += MR_PART_BYTES


cdef size_t _partitions_of(bytes partitions, bytes rows, size_t file) except? 0:
    """Return the number of partitions of a file.  Raise as ``join_index_rows``."""
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(partitions)
    cdef size_t size = <size_t>PyBytes_GET_SIZE(partitions), found = 0, slot
    if file >= MR_FILES_MAX:
        raise ValueError(f"file {file} is not below {MR_FILES_MAX}")
    if size % MR_PARTITION_BYTES:
        raise ValueError(f"{size} bytes of partitions")
    for slot in range(size // MR_PARTITION_BYTES):
        found += mr_load_le32(at + slot * MR_PARTITION_BYTES + 16)
    if found * MR_PART_BYTES != <size_t>PyBytes_GET_SIZE(rows):
        raise ValueError(f"{len(rows)} bytes of rows, partitions have {found * MR_PART_BYTES}")
    return size // MR_PARTITION_BYTES
