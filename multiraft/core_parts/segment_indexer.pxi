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
            entry.count = fields.count
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


cdef bytes _column(const mr_column *column):
    return PyBytes_FromStringAndSize(<const char *>column.at, <Py_ssize_t>(column.count * 8))


cdef list _numbers(const mr_column *column):
    return [column.at[slot] for slot in range(column.count)]


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

    def runs(self) -> list[tuple]:
        """Return (group, incarnation, log index, partition indexes, hard state) of each group.

        Log index: the fields of ``GroupIndex.unpack``, None without entries.  Partition indexes:
        the fields of ``PartitionIndex.unpack`` of each partition.  Hard state: the last (term,
        vote), None without one.  O(entries).
        """
        cdef size_t slot
        cdef mr_partition *known
        cdef list partitions = [[] for _ in range(self._indexer.group_count)]
        for slot in range(self._indexer.partition_count):
            known = &self._indexer.partitions[slot]
            partitions[known.group].append([
                known.partition, known.end_offset, _column(&known.bases), _column(&known.indexes),
                _column(&known.latest), _holes(known)])
        return [self._group(&self._indexer.groups[slot], partitions[slot])
                for slot in range(self._indexer.group_count)]

    cdef object _group(self, const mr_group *group, list partitions):
        cdef object index = None, hard_state = None
        if group.positions.count:
            index = [group.first_index, _column(&group.positions), _column(&group.ends),
                     _numbers(&group.run_starts), _numbers(&group.run_terms)]
        if group.has_hard_state:
            hard_state = (group.term, group.vote)
        return group.group, group.incarnation, index, partitions, hard_state


cdef list _holes(const mr_partition *partition):
    return [[<int64_t>partition.hole_bases.at[slot], <int64_t>partition.hole_ends.at[slot]]
            for slot in range(partition.hole_bases.count)]
