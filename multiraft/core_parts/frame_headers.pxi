# Headers of frames in CBOR (RFC 8949).
#
# Included by _core.pyx.

cdef enum:
    UNSIGNED = 0
    NEGATIVE = 1
    BYTES = 2
    TEXT = 3
    LIST = 4
    MAP = 5
    TAG = 6
    SIMPLE = 7
    HEADER_ROOM_BYTES = 256
    PREFIX_BYTES = 8


def encode_header(header: dict[str, Any], payload_bytes: int) -> bytes:
    """Encode ``header`` as the bytes of a frame before its payload.

    Returns three fields: u32 (big-endian) bytes of the frame after this field, u32 bytes of the
    header, the header as CBOR (RFC 8949) in its shortest form.  Keys are text; values are integers
    of 64 bits, text, bytes, booleans, None, lists, tuples and such maps.  O(bytes).

    Raises ``TypeError`` for a value of another type, ``OverflowError`` for an integer or a frame
    that is too large, ``ValueError`` for more than HEADER_DEPTH_MAX nested containers or text that
    UTF-8 cannot encode.
    """
    cdef Out out = Out(NULL, PREFIX_BYTES, HEADER_ROOM_BYTES)
    cdef Py_ssize_t payload
    if not isinstance(header, dict):
        raise TypeError(f"a header is a dict, not {type(header).__name__}")
    out.data = <uint8_t *>PyMem_Malloc(HEADER_ROOM_BYTES)
    if out.data == NULL:
        raise MemoryError
    try:
        _put(&out, header, 0)
        if not 0 <= payload_bytes <= 0xFFFFFFFF - 4 - (out.used - PREFIX_BYTES):
            raise OverflowError(f"a frame with {payload_bytes} payload bytes")
        payload = payload_bytes
        mr_store_be32(out.data, <uint32_t>(4 + out.used - PREFIX_BYTES + payload))
        mr_store_be32(out.data + 4, <uint32_t>(out.used - PREFIX_BYTES))
        return PyBytes_FromStringAndSize(<const char *>out.data, out.used)
    finally:
        PyMem_Free(out.data)


cdef int _put_room(Out *out, Py_ssize_t more) except -1:
    """Grow the output to hold ``more`` bytes and the head before them (at most 9 bytes)."""
    cdef Py_ssize_t room
    cdef void *grown
    if out.room - out.used < more + 9:
        room = 2 * out.room + more
        grown = PyMem_Realloc(out.data, <size_t>room)
        if grown == NULL:
            raise MemoryError
        out.data = <uint8_t *>grown
        out.room = room
    return 0


cdef int _put_head(Out *out, uint8_t kind, uint64_t number) except -1:
    """Append a type and its number in the fewest bytes."""
    cdef uint8_t *to
    _put_room(out, 0)
    to = out.data + out.used
    kind <<= 5
    if number < 24:
        to[0] = kind | <uint8_t>number
        out.used += 1
    elif number <= 0xFF:
        to[0] = kind | 24
        to[1] = <uint8_t>number
        out.used += 2
    elif number <= 0xFFFF:
        to[0] = kind | 25
        mr_store_be16(to + 1, <uint16_t>number)
        out.used += 3
    elif number <= 0xFFFFFFFF:
        to[0] = kind | 26
        mr_store_be32(to + 1, <uint32_t>number)
        out.used += 5
    else:
        to[0] = kind | 27
        mr_store_be64(to + 1, number)
        out.used += 9
    return 0


cdef int _put_sized(Out *out, uint8_t kind, const char *data, Py_ssize_t length) except -1:
    _put_room(out, length)
    _put_head(out, kind, <uint64_t>length)
    memcpy(out.data + out.used, data, <size_t>length)
    out.used += length
    return 0


cdef int _put_integer(Out *out, object value) except -1:
    cdef int overflow = 0
    cdef long long small = PyLong_AsLongLongAndOverflow(value, &overflow)
    if not overflow:
        if small >= 0:
            return _put_head(out, UNSIGNED, <uint64_t>small)
        return _put_head(out, NEGATIVE, ~<uint64_t>small)
    if overflow < 0 or value >> 64:
        raise OverflowError(f"integer {int(value)} has more than 64 bits")
    return _put_head(out, UNSIGNED, <uint64_t>value)


cdef int _put_text(Out *out, object value) except -1:
    cdef Py_ssize_t length
    cdef const char *data = PyUnicode_AsUTF8AndSize(value, &length)
    return _put_sized(out, TEXT, data, length)


cdef int _put(Out *out, object value, int depth) except -1:
    if value is None or value is True or value is False:
        _put_room(out, 0)
        out.data[out.used] = 0xF6 if value is None else 0xF5 if value is True else 0xF4
        out.used += 1
    elif isinstance(value, int):
        _put_integer(out, value)
    elif isinstance(value, str):
        _put_text(out, value)
    elif isinstance(value, bytes):
        _put_sized(out, BYTES, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
    elif isinstance(value, (list, tuple, dict)):
        if depth == HEADER_DEPTH_MAX:
            raise ValueError(f"a depth of more than {HEADER_DEPTH_MAX} containers")
        if isinstance(value, dict):
            _put_map(out, <dict>value, depth + 1)
        elif isinstance(value, tuple):
            _put_head(out, LIST, <uint64_t>len(<tuple>value))
            for item in <tuple>value:
                _put(out, item, depth + 1)
        else:
            _put_head(out, LIST, <uint64_t>len(<list>value))
            for item in <list>value:
                _put(out, item, depth + 1)
    else:
        raise TypeError(f"a header has no place for {type(value).__name__}")
    return 0


cdef int _put_map(Out *out, dict value, int depth) except -1:
    _put_head(out, MAP, <uint64_t>len(value))
    for key, item in value.items():
        if not isinstance(key, str):
            raise TypeError(f"a key of a header is text, not {type(key).__name__}")
        _put_text(out, key)
        _put(out, item, depth)
    return 0


def decode_header(data: Buffer, Py_ssize_t at: int, Py_ssize_t end: int) -> dict[str, Any]:
    """Decode the header in ``data[at:end]``, which must be exactly one CBOR map.

    Accepted are the values that ``encode_header`` writes, also in longer forms: definite lengths,
    no tags, no floats, no repeated keys, at most HEADER_DEPTH_MAX nested and HEADER_CONTAINERS_MAX
    containers in all.  O(bytes).

    Raises ``MalformedHeader`` for other bytes, ``ValueError`` if ``data`` has no bytes ``at`` to
    ``end``.
    """
    cdef Py_buffer view
    cdef Source source
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= at <= end <= view.len:
            raise ValueError(f"bytes {at} to {end} of {view.len}")
        source = Source(<const uint8_t *>view.buf + at, 0, end - at, 0)
        header = _value(&source, 0)
        if type(header) is not dict:
            raise MalformedHeader("not a map")
        if source.at != source.end:
            raise MalformedHeader(f"{source.end - source.at} bytes after the map")
        return header
    finally:
        PyBuffer_Release(&view)


cdef int _head(Source *source, uint8_t *kind, uint64_t *number) except -1:
    """Read type and number of the next value; constants have the numbers 20, 21 and 22."""
    cdef Py_ssize_t started = source.at
    cdef uint8_t info
    cdef const uint8_t *data
    _need(source, 1)
    kind[0] = source.data[started] >> 5
    info = source.data[started] & 31
    source.at += 1
    if kind[0] == TAG:
        raise MalformedHeader(f"byte {started}: a tag")
    if kind[0] == SIMPLE:
        if not 20 <= info <= 22:
            raise MalformedHeader(f"byte {started}: a float or another simple value")
        number[0] = info
        return 0
    if info < 24:
        number[0] = info
        return 0
    if info > 27:
        raise MalformedHeader(f"byte {started}: an indefinite or reserved length")
    _need(source, <uint64_t>1 << (info - 24))
    data = source.data + source.at
    if info == 24:
        number[0] = data[0]
    elif info == 25:
        number[0] = mr_load_be16(data)
    elif info == 26:
        number[0] = mr_load_be32(data)
    else:
        number[0] = mr_load_be64(data)
    source.at += <Py_ssize_t>1 << (info - 24)
    return 0


cdef inline int _need(Source *source, uint64_t count) except -1:
    """Raise ``MalformedHeader`` if fewer than ``count`` bytes are left."""
    if count > <uint64_t>(source.end - source.at):
        raise MalformedHeader(f"cut off at byte {source.end}")
    return 0


cdef object _text(Source *source, uint64_t count, Py_ssize_t started):
    cdef const char *start
    _need(source, count)
    start = <const char *>source.data + source.at
    source.at += <Py_ssize_t>count
    try:
        return PyUnicode_DecodeUTF8(<char *>start, <Py_ssize_t>count, NULL)
    except UnicodeDecodeError:
        raise MalformedHeader(f"byte {started}: text that is not UTF-8") from None


cdef object _value(Source *source, int depth):
    """Read the next value, which ``depth`` containers surround."""
    cdef Py_ssize_t started = source.at
    cdef uint8_t kind = 0
    cdef uint64_t number = 0
    _head(source, &kind, &number)
    if kind == UNSIGNED:
        return number
    if kind == NEGATIVE:
        if number >> 63:
            raise MalformedHeader(f"byte {started}: an integer below -2**63")
        return -1 - <int64_t>number
    if kind == BYTES:
        _need(source, number)
        source.at += <Py_ssize_t>number
        return PyBytes_FromStringAndSize(<const char *>source.data + source.at - number,
                                         <Py_ssize_t>number)
    if kind == TEXT:
        return _text(source, number, started)
    if kind == SIMPLE:
        return False if number == 20 else True if number == 21 else None
    if depth == HEADER_DEPTH_MAX:
        raise MalformedHeader(f"byte {started}: a depth of more than {HEADER_DEPTH_MAX} "
                              "containers")
    source.containers += 1
    if source.containers > HEADER_CONTAINERS_MAX:
        raise MalformedHeader(f"byte {started}: more than {HEADER_CONTAINERS_MAX} containers")
    _need(source, number)  # each item takes at least a byte: the input bounds the loops
    return _list(source, number, depth + 1) if kind == LIST else _map(source, number, depth + 1)


cdef list _list(Source *source, uint64_t count, int depth):
    cdef list found = []
    cdef uint64_t turn
    for turn in range(count):
        found.append(_value(source, depth))
    return found


cdef dict _map(Source *source, uint64_t count, int depth):
    cdef dict found = {}
    cdef uint64_t turn, number = 0
    cdef uint8_t kind = 0
    cdef Py_ssize_t started
    for turn in range(count):
        started = source.at
        _head(source, &kind, &number)
        if kind != TEXT:
            raise MalformedHeader(f"byte {started}: a key that is not text")
        key = _text(source, number, started)
        if key in found:
            raise MalformedHeader(f"byte {started}: a repeated key")
        found[key] = _value(source, depth)
    return found
