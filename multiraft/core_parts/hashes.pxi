# Hashes: CRC32C (Castagnoli), murmur2, jump consistent hash, splitmix64.
#
# Included by _core.pyx.

cdef uint32_t _crc(uint32_t crc, const uint8_t *data, Py_ssize_t length) noexcept:
    if length < RELEASE_BYTES:
        return mr_crc32c(crc, data, <size_t>length)
    # The caller's Py_buffer keeps ``data`` in place: an exported bytearray cannot be resized.
    with nogil:
        crc = mr_crc32c(crc, data, <size_t>length)
    return crc


cdef uint32_t _crc_seed(object value) except? 0:
    if not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"CRC {value} is not an unsigned 32-bit number")
    return value


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC32C (Castagnoli) of ``data``, continued from ``value``.

    ``value``: CRC of the bytes before ``data``; 0 starts a new CRC.  O(bytes).

    Raises ``OverflowError`` if ``value`` is not an unsigned 32-bit number, ``BufferError`` if
    ``data`` is not contiguous.
    """
    cdef uint32_t crc = _crc_seed(value)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    # No try and finally here and below where nothing in between can raise: they cost on each call.
    crc = _crc(crc, <const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


def _crc32c_portable(data, value=0):
    """Return ``crc32c`` as computed on machines without a CRC instruction; for the tests."""
    cdef uint32_t crc = _crc_seed(value)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    crc = mr_crc32c_portable(crc, <const uint8_t *>view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return crc


def murmur2(data: Buffer) -> int:
    """Return Kafka's murmur2 of ``data`` as an unsigned 32-bit number.

    MurmurHash2 (Appleby) with Kafka's seed.  O(bytes).  Kafka's partition of a key is

        (murmur2(key) & 0x7FFFFFFF) % partitions

    Raises ``BufferError`` if ``data`` is not contiguous.
    """
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    cdef uint32_t h = _murmur2(<const uint8_t *>view.buf, view.len)
    PyBuffer_Release(&view)
    return h


cdef uint32_t _murmur2(const uint8_t *at, Py_ssize_t length) noexcept nogil:
    cdef uint32_t k, h = 0x9747B28CU ^ <uint32_t>length, multiplier = 0x5BD1E995U
    cdef const uint8_t *end = at + length
    while end - at >= 4:
        k = mr_load_le32(at) * multiplier
        h = (h * multiplier) ^ ((k ^ (k >> 24)) * multiplier)
        at += 4
    if end != at:
        if end - at == 3:
            h ^= <uint32_t>at[2] << 16
        if end - at >= 2:
            h ^= <uint32_t>at[1] << 8
        h = (h ^ at[0]) * multiplier
    h = (h ^ (h >> 13)) * multiplier
    return h ^ (h >> 15)


def jump_hash(key: int, buckets: int) -> int:
    """Return the bucket of a 64-bit ``key``: 0 .. ``buckets`` - 1.

    Jump consistent hash (Lamping, Veach 2014).  O(log buckets).

    Raises ``OverflowError`` if ``key`` is not an unsigned 64-bit number, ``ValueError`` if
    ``buckets`` is outside 1 .. 2**31 - 1.
    """
    if not 0 <= key < 1 << 64:
        raise OverflowError(f"key {key} is not an unsigned 64-bit number")
    if not 1 <= buckets < 1 << 31:
        raise ValueError(f"buckets={buckets} is outside 1..{(1 << 31) - 1}")
    return _jump_hash(key, buckets)


cdef int64_t _jump_hash(uint64_t state, int64_t end) noexcept nogil:
    cdef int64_t bucket = -1, jump = 0
    while jump < end:
        bucket = jump
        state = state * 2862933555777941757U + 1
        jump = <int64_t>(<double>(bucket + 1)
                         * (<double>(1LL << 31) / <double>((state >> 33) + 1)))
    return bucket


cdef uint64_t _mix64(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBU
    return value ^ (value >> 31)


def default_groups(first: int, Py_ssize_t count: int, pool_size: int, seed: int) -> list[int]:
    """Return the hashed group, 1 .. ``pool_size``, of each of ``count`` partitions.

    The hash is ``placement.default_group``.  The partitions have the incarnations ``first`` ..
    ``first + count - 1``.  O(count log pool_size).

    Raises ``OverflowError`` if ``first`` or ``seed`` is not an unsigned 64-bit number,
    ``ValueError`` if ``pool_size`` is outside 1 .. 2**31 - 1.
    """
    if not (0 <= first < 1 << 64 and 0 <= seed < 1 << 64):
        raise OverflowError(f"incarnation {first} or seed {seed} is not an unsigned 64-bit number")
    if not 1 <= pool_size < 1 << 31:
        raise ValueError(f"pool_size={pool_size} is outside 1..{(1 << 31) - 1}")
    cdef uint64_t incarnation = first, number = seed
    cdef uint64_t stir = _mix64(number + 0x9E3779B97F4A7C15U)
    cdef int64_t end = pool_size
    cdef Py_ssize_t at
    cdef list groups = []
    for at in range(count):
        groups.append(1 + _jump_hash(_mix64(_mix64(incarnation + <uint64_t>at + stir)), end))
    return groups
