"""CRC32C, murmur2 and jump consistent hash in plain Python: a part of the reference.

Contract.  As ``_reference``: same names, results and errors as the compiled twin.

Theory.  CRC32C is Castagnoli's polynomial in its reflected form (RFC 3720, appendix B.4), here one
byte at a time from a table (Sarwate 1988).
"""

from __future__ import annotations


def contiguous_bytes(data) -> memoryview:
    """``data`` as contiguous unsigned bytes.  Raises ``BufferError`` when it has gaps."""
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


def crc32c(data, value: int = 0) -> int:
    """CRC32C of ``data``, continuing from ``value``, the CRC of what came before."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"CRC {value} is not an unsigned 32-bit number")
    crc = value ^ 0xFFFFFFFF
    for byte in contiguous_bytes(data):
        crc = (crc >> 8) ^ _CRC_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def murmur2(data) -> int:
    """Kafka's murmur2 (Appleby's MurmurHash2 with seed 0x9747b28c) as an unsigned 32-bit number."""
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
    """Jump consistent hash of a 64-bit key (Lamping, Veach 2014); O(log buckets)."""
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
    """Where the hash puts partitions of consecutive incarnations.  O(count log pool_size)."""
    if not (0 <= first < 1 << 64 and 0 <= seed < 1 << 64):
        raise OverflowError(f"incarnation {first} or seed {seed} is not an unsigned 64-bit number")
    if not 1 <= pool_size < 1 << 31:
        raise ValueError(f"pool_size={pool_size} is outside 1..{(1 << 31) - 1}")
    stir = _mix64(seed + 0x9E3779B97F4A7C15)
    return [1 + jump_hash(_mix64(_mix64(incarnation + stir)), pool_size)
            for incarnation in range(first, first + count)]


def _mix64(value: int) -> int:
    """splitmix64's finaliser (Steele, Lea, Flood, OOPSLA 2014)."""
    value &= 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return value ^ (value >> 31)
