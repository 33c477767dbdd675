"""CRC32C, murmur2 and jump consistent hash in plain Python: a part of the reference.

Contract.  As ``_reference``: same names, results and errors as the compiled twin.

Theory.  CRC32C is Castagnoli's polynomial in its reflected form (RFC 3720, appendix B.4), here one
byte at a time from a table (Sarwate 1988).
"""

from __future__ import annotations

from multiraft.codec.values import Buffer


def contiguous_bytes(data: Buffer) -> memoryview:
    """Return ``data`` as a view of bytes.  Raises ``BufferError`` if ``data`` is not contiguous."""
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("memoryview: underlying buffer is not C-contiguous")
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_CRC_TABLE = _crc_table()


def crc32c(data: Buffer, value: int = 0) -> int:
    """Return the CRC32C (Castagnoli) of ``data``, continued from ``value``.

    ``value``: CRC of the bytes before ``data``; 0 starts a new CRC.  O(bytes).

    Raises ``OverflowError`` if ``value`` is not an unsigned 32-bit number, ``BufferError`` if
    ``data`` is not contiguous.
    """
    if not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"CRC {value} is not an unsigned 32-bit number")
    crc = value ^ 0xFFFFFFFF
    for byte in contiguous_bytes(data):
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """Return Kafka's murmur2 of ``data`` as an unsigned 32-bit number.

    MurmurHash2 (Appleby) with Kafka's seed.  O(bytes).  Kafka's partition of a key is

        (murmur2(key) & 0x7FFFFFFF) % partitions

    Raises ``BufferError`` if ``data`` is not contiguous.
    """
    view, mask, multiplier = contiguous_bytes(data), 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(view)
    whole = len(view) & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(view[at:at + 4], "little") * multiplier & mask
        k = (k ^ k >> 24) * multiplier & mask
        h = (h * multiplier & mask) ^ k
    if len(view) > whole:
        h = (h ^ int.from_bytes(view[whole:], "little")) * multiplier & mask
    h = (h ^ h >> 13) * multiplier & mask
    return h ^ h >> 15


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
    bucket, jump = -1, 0
    while jump < buckets:
        bucket = jump
        key = (key * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        jump = int((bucket + 1) * (float(1 << 31) / float((key >> 33) + 1)))
    return bucket


def default_groups(first: int, count: int, pool_size: int, seed: int) -> list[int]:
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
    stir = mix64(seed + 0x9E3779B97F4A7C15)
    return [1 + jump_hash(mix64(mix64(incarnation + stir)), pool_size)
            for incarnation in range(first, first + count)]


def mix64(value: int) -> int:
    """Return splitmix64's finaliser of ``value`` (Steele, Lea, Flood, OOPSLA 2014)."""
    value &= 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
