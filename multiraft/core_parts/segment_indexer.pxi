# The index of one segment, built without an object per entry: ``SegmentIndexer``.
#
# Included by _core.pyx.

cdef void _index_entries(const uint8_t *data, Py_ssize_t size, mr_indexer *indexer,
                         Indexing *done) noexcept nogil:
    """Index entries up to the end of the window, to a fault, or to an entry that is not plain."""
    cdef Py_ssize_t length = 0
    cdef const uint8_t *header
    cdef Fields fields
    cdef uint32_t crc = 0, batch_crc = 0
    cdef mr_indexed entry
    while size - done.at >= ENTRY_HEADER_BYTES:
        header = data + done.at
        done.fault = _chained_fault(header, size - done.at, done.prev_crc, &length, &crc)
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
            entry.count = _offsets(&fields)
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


cdef list _numbers(const mr_column *column):
    return [column.at[slot] for slot in range(column.count)]


cdef bytes _unset_bytes(size_t count, size_t item_bytes):
    return PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(count * item_bytes))


cdef class SegmentIndexer:
    """SegmentIndexer()
--

    Builder of the index of one segment, without an object per entry.

    Only the plain case is indexed, which nearly every segment is: each entry is the next of its
    group's log in an unchanged incarnation, or the hard state of its group.  The compiled twin does
    not hold the interpreter's lock.
    """

    def __cinit__(self):
        self._indexer = mr_indexer_new()
        if self._indexer == NULL:
            raise MemoryError

    def __dealloc__(self):
        mr_indexer_free(self._indexer)

    @property
    def first_durable(self) -> int:
        """Durable position in the header of the first entry; -1 without entries."""
        return self._indexer.first_durable if self._indexer.has_entries else -1

    @property
    def highest_durable(self) -> int:
        """Highest durable position in the headers of the entries; 0 without entries."""
        return self._indexer.highest_durable

    def take(self, data: Buffer, at: int, prev_crc: int, position: int) -> Indexed:
        """Index the entries from byte ``at`` on, checked as by ``check_entries``; return the stop.

        ``position``: position in the log on disk of byte 0 of ``data``.  Indexing stops at an entry
        that is not plain ("special") and at a damaged payload ("payload"); the segment must then be
        indexed from the result of ``scan_entries``.  O(bytes).

        Raises as ``scan_entries``.
        """
        cdef Py_buffer view
        cdef Indexing done
        if at < 0:
            raise ValueError(f"at={at} is negative")
        done = Indexing(at, position, _crc_seed(prev_crc), 0, MR_PLAIN, False)
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        # Without the lock nothing guards the indexer: its caller must not share it with a thread.
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

    def pack(self, identity_crc: int, start: int) -> PackedIndex:
        """Return the blocks of the segment's index file, and the fields of its summary.

        ``identity_crc``: CRC of what all checksums of the file begin with; ``start``: position of
        the segment in the log on disk.  Bytes: docs/storage-format.md.  O(entries + partitions log
        partitions).

        Raises ``OverflowError`` if a number does not fit into its row.
        """
        cdef mr_row_order order
        cdef uint32_t crc = _crc_seed(identity_crc)
        cdef uint64_t position = start
        cdef int fault
        cdef uint8_t *at
        cdef uint8_t *entry_at
        cdef uint8_t *partition_at
        cdef uint8_t *batch_at
        with nogil:
            fault = mr_rows_sort(self._indexer, &order)
        try:
            _raise_packing(fault)
            blocks = _unset_bytes(mr_blocks_of(MR_ENTRY_BLOCKS, order.entries)
                                  + mr_blocks_of(MR_BATCH_BLOCKS, order.batches), MR_BLOCK_BYTES)
            entry_parts = _unset_bytes(order.entry_parts, MR_PART_BYTES)
            partitions = _unset_bytes(self._indexer.partition_count, MR_PARTITION_BYTES)
            batch_parts = _unset_bytes(order.batch_parts, MR_PART_BYTES)
            at = <uint8_t *>PyBytes_AS_STRING(blocks)
            entry_at = <uint8_t *>PyBytes_AS_STRING(entry_parts)
            partition_at = <uint8_t *>PyBytes_AS_STRING(partitions)
            batch_at = <uint8_t *>PyBytes_AS_STRING(batch_parts)
            # No other thread can have a reference to these bytes.
            with nogil:
                fault = mr_rows_pack(self._indexer, &order, crc, position, at, entry_at,
                                     partition_at, batch_at)
            _raise_packing(fault)
            return PackedIndex(order.entries, order.batches, blocks, _packed_runs(
                self._indexer, &order, entry_parts, partitions, batch_parts))
        finally:
            mr_rows_free(&order)


cdef int _raise_packing(int fault) except -1:
    if fault == MR_NO_MEMORY:
        raise MemoryError
    if fault == MR_TOO_LARGE:
        raise OverflowError("a number of the index does not fit into its row")
    return 0


cdef list _packed_runs(const mr_indexer *indexer, const mr_row_order *order, bytes entry_parts,
                       bytes partitions, bytes batch_parts):
    """Return the fields of each group's run, in ascending order."""
    cdef size_t at, slot, end, parts
    #: Of the groups before.
    cdef size_t entry_row = 0, entry_part = 0, partition = 0, batch_part = 0
    cdef const mr_group *group
    cdef object entries, hard_state
    cdef list runs = []
    for at in range(indexer.group_count):
        slot = order.groups[at]
        group = &indexer.groups[slot]
        entries = hard_state = None
        if group.positions.count:
            parts = mr_parts_of(MR_ENTRY_BLOCKS, entry_row, group.positions.count)
            entries = [group.first_index, group.ends.at[group.ends.count - 1],
                       entry_parts[entry_part * MR_PART_BYTES:(entry_part + parts) * MR_PART_BYTES],
                       _numbers(&group.run_starts), _numbers(&group.run_terms)]
            entry_row += group.positions.count
            entry_part += parts
        end, parts = partition, 0
        while (end < indexer.partition_count
               and indexer.partitions[order.partitions[end]].group == slot):
            parts += mr_load_le32(<const uint8_t *>PyBytes_AS_STRING(partitions)
                                  + end * MR_PARTITION_BYTES + 16)
            end += 1
        if group.has_hard_state:
            hard_state = (group.term, group.vote)
        runs.append((group.group, group.incarnation, entries,
                     partitions[partition * MR_PARTITION_BYTES:end * MR_PARTITION_BYTES],
                     batch_parts[batch_part * MR_PART_BYTES:(batch_part + parts) * MR_PART_BYTES],
                     hard_state))
        partition = end
        batch_part += parts
    return runs
