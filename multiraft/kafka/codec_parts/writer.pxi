# Appending of fields to a message.
#
# Included by _codec.pyx.
#
# All bytes but records are in one buffer, which grows.  ``records`` has for each buffer of records
# the position before which it belongs, and the buffer itself.  Numbers are appended without a test
# for memory: ``out_of_memory`` is checked in the end.

cdef enum:
    #: Bytes that most responses fit in.
    ROOM_BYTES = 512
    #: A number of 64 bits, or a varint.
    FIELD_BYTES = 16

cdef struct Writer:
    uint8_t *data
    Py_ssize_t used
    Py_ssize_t room
    bint out_of_memory
    PyObject *records  # list of position, buffer, position, buffer ...

#: Appends one element of an array.
ctypedef int (*WriteElement)(Writer *, object, int, str) except -1


cdef bint reserve(Writer *w, Py_ssize_t more) noexcept:
    """Have room for ``more`` bytes.  Returns False without memory."""
    cdef Py_ssize_t room
    cdef void *grown
    if w.room - w.used >= more:
        return True
    room = 2 * w.room + more
    grown = PyMem_Realloc(w.data, <size_t>room)
    if grown == NULL:
        w.out_of_memory = True
        return False
    w.data = <uint8_t *>grown
    w.room = room
    return True


cdef void put_bool(Writer *w, bint value) noexcept:
    put_int8(w, 1 if value else 0)


cdef void put_int8(Writer *w, int8_t value) noexcept:
    if reserve(w, FIELD_BYTES):
        w.data[w.used] = <uint8_t>value
        w.used += 1


cdef void put_int16(Writer *w, int16_t value) noexcept:
    if reserve(w, FIELD_BYTES):
        mr_store_be16(w.data + w.used, <uint16_t>value)
        w.used += 2


cdef void put_int32(Writer *w, int32_t value) noexcept:
    if reserve(w, FIELD_BYTES):
        mr_store_be32(w.data + w.used, <uint32_t>value)
        w.used += 4


cdef void put_int64(Writer *w, int64_t value) noexcept:
    if reserve(w, FIELD_BYTES):
        mr_store_be64(w.data + w.used, <uint64_t>value)
        w.used += 8


cdef void put_varint(Writer *w, uint64_t number) noexcept:
    if reserve(w, FIELD_BYTES):
        w.used = mr_store_varint(w.data + w.used, number) - w.data


cdef void put_raw(Writer *w, const char *data, Py_ssize_t length) noexcept:
    if reserve(w, length):
        memcpy(w.data + w.used, data, <size_t>length)
        w.used += length


cdef int put_size(Writer *w, Py_ssize_t number, bint text, bint compact) except -1:
    """Append a length or a number of elements, -1 for null."""
    if number > 0x7FFFFFFF:
        raise OverflowError(f"{number} bytes or elements in one field")
    if compact:
        put_varint(w, <uint64_t>(number + 1))
    elif text:
        put_int16(w, <int16_t>number)
    else:
        put_int32(w, <int32_t>number)
    return 0


cdef int put_null(Writer *w, bint text, bint nullable, bint compact, str what) except -1:
    if not nullable:
        raise null_field(what)
    return put_size(w, -1, text, compact)


cdef int put_string(Writer *w, str value, bint nullable, bint compact, str what) except -1:
    cdef Py_ssize_t length
    cdef const char *data
    if value is None:
        return put_null(w, True, nullable, compact, what)
    data = PyUnicode_AsUTF8AndSize(value, &length)
    if length > TEXT_LIMIT:
        raise long_text(what, length, TEXT_LIMIT)
    put_size(w, length, True, compact)
    put_raw(w, data, length)
    return 0


cdef int put_uuid(Writer *w, bytes value, str what) except -1:
    if value is None:
        raise null_field(what)
    if PyBytes_GET_SIZE(value) != UUID_SIZE:
        raise wrong_length(what, PyBytes_GET_SIZE(value), UUID_SIZE)
    put_raw(w, PyBytes_AS_STRING(value), UUID_SIZE)
    return 0


cdef int put_record_buffer(Writer *w, object value, bint nullable, bint compact,
                           str what) except -1:
    if value is None:
        return put_null(w, False, nullable, compact, what)
    return put_record_buffers(w, (value,), nullable, compact, what)


cdef int put_record_buffers(Writer *w, object value, bint nullable, bint compact,
                            str what) except -1:
    """Append the length of all buffers together, and the buffers by reference."""
    cdef Py_ssize_t total = 0
    if value is None:
        return put_null(w, False, nullable, compact, what)
    for part in value:
        total += len(part)
    put_size(w, total, False, compact)
    for part in value:
        if len(part):
            (<list>w.records).append(w.used)
            (<list>w.records).append(part)
    return 0


cdef int put_array(Writer *w, list value, WriteElement write, int version, bint nullable,
                   bint compact, str what) except -1:
    if value is None:
        return put_null(w, False, nullable, compact, what)
    put_size(w, PyList_GET_SIZE(value), False, compact)
    for each in value:
        write(w, each, version, what)
    return 0


cdef int put_element_int32(Writer *w, object value, int version, str what) except -1:
    put_int32(w, value)
    return 0


cdef Py_ssize_t begin_tag(Writer *w, int tag) noexcept:
    """Append a tag and one byte for the size of its content.  Returns where the content begins."""
    put_varint(w, <uint64_t>tag)
    put_int8(w, 0)
    return w.used


cdef void close_tag(Writer *w, Py_ssize_t begin) noexcept:
    """Write the size of the content before it; a longer size moves the content."""
    cdef Py_ssize_t size = w.used - begin
    cdef int more
    if w.out_of_memory:
        return
    more = mr_varint_bytes(<uint64_t>size) - 1
    if more:
        if not reserve(w, more):
            return
        memmove(w.data + begin + more, w.data + begin, <size_t>size)
        w.used += more
    mr_store_varint(w.data + begin - 1, <uint64_t>size)


cdef list buffers_of(Writer *w):
    """Return all bytes in order: views of what was appended, and the records between."""
    cdef bytearray data = PyByteArray_FromStringAndSize(<const char *>w.data, w.used)
    cdef list records = <list>w.records
    cdef list found = []
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t position
    cdef Py_ssize_t place
    cdef object view = PyMemoryView_FromObject(data)
    if not records:
        return [view]
    for place in range(0, PyList_GET_SIZE(records), 2):
        position = records[place]
        if position > at:
            found.append(view[at:position])
        found.append(records[place + 1])
        at = position
    if at < w.used:
        found.append(view[at:])
    return found
