# Reading of fields from a frame.
#
# Included by _codec.pyx.
#
# A problem is noted in the Reader, the first one only, and stepping to the end of the frame lets
# all later reads return at once.  The caller checks ``problem`` in loops and in the end, so that
# the generated functions need no test after each field.

cdef enum:
    #: Numbers of ``errors.Problem``.
    SHORT = 1
    IS_NULL = 2
    NEGATIVE = 3
    LONG_TEXT = 4
    COUNT = 5
    ELEMENTS = 6
    NOT_UTF8 = 7
    VARINT = 8
    TAG_SIZE = 9
    #: Limits of ``schema``; ``_assert_limits`` compares them.
    TEXT_LIMIT = 0x7FFF
    UUID_SIZE = 16

cdef struct Reader:
    const uint8_t *data
    int64_t at
    int64_t end
    int64_t elements_left
    PyObject *frame  # what records are views of
    PyObject *view  # of the frame; made for the first records
    int problem  # 0 = none
    const char *what
    int64_t problem_at
    int64_t a
    int64_t b

#: Reads one element of an array.
ctypedef object (*ReadElement)(Reader *, int, const char *)


cdef void fail(Reader *r, int problem, const char *what, int64_t at, int64_t a,
               int64_t b) noexcept:
    """Note a problem, if it is the first one, and end all reading."""
    if r.problem == 0:
        r.problem = problem
        r.what = what
        r.problem_at = at
        r.a = a
        r.b = b
    r.at = r.end


cdef inline bint need(Reader *r, int64_t count, const char *what) noexcept:
    """Return True if the bytes are there."""
    if count > r.end - r.at:
        fail(r, SHORT, what, r.at, count, r.end - r.at)
        return False
    return True


cdef bint get_bool(Reader *r, const char *what) noexcept:
    return get_int8(r, what) != 0


cdef int8_t get_int8(Reader *r, const char *what) noexcept:
    if not need(r, 1, what):
        return 0
    r.at += 1
    return <int8_t>r.data[r.at - 1]


cdef int16_t get_int16(Reader *r, const char *what) noexcept:
    if not need(r, 2, what):
        return 0
    r.at += 2
    return <int16_t>mr_load_be16(r.data + r.at - 2)


cdef int32_t get_int32(Reader *r, const char *what) noexcept:
    if not need(r, 4, what):
        return 0
    r.at += 4
    return <int32_t>mr_load_be32(r.data + r.at - 4)


cdef int64_t get_int64(Reader *r, const char *what) noexcept:
    if not need(r, 8, what):
        return 0
    r.at += 8
    return <int64_t>mr_load_be64(r.data + r.at - 8)


cdef int64_t get_varint(Reader *r, const char *what) noexcept:
    """Read an unsigned varint of at most 5 bytes."""
    cdef int64_t started = r.at
    cdef int64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 35:
        if not need(r, 1, what):
            return 0
        byte = r.data[r.at]
        r.at += 1
        number |= <int64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7
    fail(r, VARINT, what, started, 0, 0)
    return 0


cdef int64_t null_length(Reader *r, int64_t number, bint nullable, int64_t started,
                         const char *what) noexcept:
    """Return -1 for a negative length, and note it if it is none that may be here."""
    if r.problem == 0:
        if number < -1:
            fail(r, NEGATIVE, what, started, number, 0)
        elif not nullable:
            fail(r, IS_NULL, what, started, 0, 0)
    return -1


cdef int expect(Reader *r, int64_t number, int64_t started, const char *what) noexcept:
    """Count elements, or tagged fields, that follow.  Returns 0, or -1 for too many."""
    if number > r.end - r.at:
        fail(r, COUNT, what, started, number, r.end - r.at)
        return -1
    if number > r.elements_left:
        fail(r, ELEMENTS, what, started, number, r.elements_left)
        return -1
    r.elements_left -= number
    return 0


cdef int64_t get_count(Reader *r, bint nullable, bint compact, const char *what) noexcept:
    """Read the number of elements of an array; -1 for null and after a problem."""
    cdef int64_t started = r.at
    cdef int64_t number = get_varint(r, what) - 1 if compact else get_int32(r, what)
    if r.problem or number < 0:
        return null_length(r, number, nullable, started, what)
    return number if expect(r, number, started, what) == 0 else -1


cdef int64_t get_length(Reader *r, bint text, bint nullable, bint compact,
                        const char *what) noexcept:
    """Read the length of bytes that are there; -1 for null and after a problem."""
    cdef int64_t started = r.at
    cdef int64_t number
    if compact:
        number = get_varint(r, what) - 1
    else:
        number = get_int16(r, what) if text else get_int32(r, what)
    if r.problem or number < 0:
        return null_length(r, number, nullable, started, what)
    if text and number > TEXT_LIMIT:
        fail(r, LONG_TEXT, what, started, number, TEXT_LIMIT)
        return -1
    return number if need(r, number, what) else -1


cdef str get_string(Reader *r, bint nullable, bint compact, const char *what):
    cdef int64_t started = r.at
    cdef int64_t length = get_length(r, True, nullable, compact, what)
    if length < 0:
        return None
    r.at += length
    try:
        return PyUnicode_DecodeUTF8(<const char *>r.data + r.at - length, length, NULL)
    except UnicodeDecodeError:
        fail(r, NOT_UTF8, what, started, 0, 0)
        return None


cdef bytes get_uuid(Reader *r, const char *what):
    if not need(r, UUID_SIZE, what):
        return _ZERO_UUID
    r.at += UUID_SIZE
    return PyBytes_FromStringAndSize(<const char *>r.data + r.at - UUID_SIZE, UUID_SIZE)


cdef object get_record_buffer(Reader *r, bint nullable, bint compact, const char *what):
    """Read records as a view of the frame."""
    cdef int64_t length = get_length(r, False, nullable, compact, what)
    cdef object view
    if length < 0:
        return None
    if r.view == NULL:
        view = PyMemoryView_FromObject(<object>r.frame)
        Py_INCREF(view)
        r.view = <PyObject *>view
    r.at += length
    return (<object>r.view)[r.at - length:r.at]


cdef object get_record_buffers(Reader *r, bint nullable, bint compact, const char *what):
    """Read records as a list of one view of the frame, or of none."""
    cdef int64_t started = r.at
    cdef object buffer = get_record_buffer(r, nullable, compact, what)
    if buffer is None:
        return None
    return [buffer] if len(buffer) else []


cdef list get_array(Reader *r, ReadElement read, int version, bint nullable, bint compact,
                    const char *what):
    """Read an array.  The number of its elements was compared with the bytes that are left."""
    cdef int64_t count = get_count(r, nullable, compact, what)
    cdef list found
    if count < 0:
        return None
    found = []
    while count > 0 and r.problem == 0:
        found.append(read(r, version, what))
        count -= 1
    return found


cdef object element_int32(Reader *r, int version, const char *what):
    return get_int32(r, what)


cdef int64_t get_tag_count(Reader *r, const char *what) noexcept:
    """Read the number of tagged fields; 0 after a problem."""
    cdef int64_t started = r.at
    cdef int64_t number = get_varint(r, what)
    return number if r.problem == 0 and expect(r, number, started, what) == 0 else 0


cdef int64_t get_tag(Reader *r, int64_t *end, const char *what) noexcept:
    """Read a tag and the end of its content, which is there; -1 after a problem."""
    cdef int64_t tag = get_varint(r, what)
    cdef int64_t size = get_varint(r, what)
    if r.problem or not need(r, size, what):
        return -1
    end[0] = r.at + size
    return tag


cdef void end_tag(Reader *r, int64_t begin, int64_t end, const char *what) noexcept:
    """Check that the content of a tagged field was as long as stated."""
    if r.problem == 0 and r.at != end:
        fail(r, TAG_SIZE, what, begin, end - begin, r.at - begin)
