"""Compression of record blocks, in Kafka's formats, with bounded decompression.

Contract.  ``compress(codec, block)`` -> bytes; ``decompress(codec, block)`` -> bytes, or
``DecompressionTooLarge`` before more than the limit is in memory, or ``CorruptBatch`` when the
bytes are not of the codec's format.  Clients decompress what they read; a node decompresses only
to find a record by its time for Kafka's clients, and to look for records without a key in batches
for topics with compaction.  A decompression bomb of a hostile producer is stopped here.

Theory.  gzip is RFC 1952; lz4 is the frame format with independent blocks (Kafka's Java reader
takes no others); zstd is a plain frame; snappy is the stream of the xerial library (16 header
bytes, then length-prefixed raw blocks), and raw snappy is accepted too, as librdkafka does.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from multiraft.codec import layout
from multiraft.errors import CodecError, ConfigError, CorruptBatch

Buffer = bytes | bytearray | memoryview

#: Size up to which every block may decompress: our own producers never exceed it.
DECOMPRESSED_BYTES_FREE = layout.BATCH_BYTES_MAX
#: Above that, this multiple of its compressed size (zstd reaches 1000:1 on constant data) ...
RATIO_MAX = 100
#: ... and never more than this: another client's largest sensible batch.
DECOMPRESSED_BYTES_MAX = 64 << 20

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
#: xerial's own block size.
_XERIAL_BLOCK_BYTES = 32 << 10
_LENGTH = struct.Struct(">I")
#: Bytes that are decompressed at a time: most blocks are one piece.
_PIECE_BYTES = 1 << 20
#: Largest window of a zstd frame that is allocated: the format's recommended bound.
_ZSTD_WINDOW_BYTES_MAX = 8 << 20

CODECS = {"none": layout.CODEC_NONE, "gzip": layout.CODEC_GZIP, "snappy": layout.CODEC_SNAPPY,
          "lz4": layout.CODEC_LZ4, "zstd": layout.CODEC_ZSTD}


class DecompressionTooLarge(CodecError):
    """A compressed block that would exceed its limit when decompressed.  ``limit`` in bytes;
    ``value`` is the announced size, None = none was announced."""

    def __init__(self, limit: int, compressed: int, value: int | None = None):
        announced = "" if value is None else f"announces {value} bytes and "
        super().__init__(f"a block of {compressed} compressed bytes {announced}"
                         f"exceeds the limit of {limit} decompressed")
        self.limit = limit
        self.value = value


def codec_number(name: str) -> int:
    """Return the number of a codec.  Raises ``ConfigError`` for an unknown name."""
    number = CODECS.get(name)
    if number is None:
        raise ConfigError(f"compression={name!r}: expected one of {', '.join(CODECS)}")
    return number


def compress(codec: int, block: Buffer) -> bytes:
    """Return a records block compressed by ``codec``, which is not "none".  O(bytes)."""
    if codec == layout.CODEC_GZIP:
        machine = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
        return machine.compress(block) + machine.flush()
    if codec == layout.CODEC_SNAPPY:
        return _compress_xerial(block)
    if codec == layout.CODEC_LZ4:
        return lz4.frame.compress(block, block_linked=False, store_size=False)
    assert codec == layout.CODEC_ZSTD, f"codec {codec}"
    return zstandard.ZstdCompressor().compress(block)


def limit_for(compressed_bytes: int) -> int:
    """Return the limit, in bytes, up to which a block of that size may decompress."""
    return min(DECOMPRESSED_BYTES_MAX,
               max(DECOMPRESSED_BYTES_FREE, RATIO_MAX * compressed_bytes))


def decompress(codec: int, block: Buffer, limit: int | None = None) -> Buffer:
    """Return the records block of a batch, decompressed. O(bytes up to the limit).

    Raises ``DecompressionTooLarge`` above ``limit`` bytes (None = ``limit_for`` its size), and
    ``CorruptBatch`` if it cannot be decompressed."""
    if codec == layout.CODEC_NONE:
        return block
    method = _METHODS.get(codec)
    if method is None:
        raise CorruptBatch(f"compression codec {codec} does not exist")
    try:
        return method(memoryview(block), limit_for(len(block)) if limit is None else limit)
    except (zlib.error, zstandard.ZstdError, RuntimeError, EOFError, ValueError,
            cramjam.DecompressionError) as error:
        raise CorruptBatch(f"compressed block: {error}") from error


def _gunzip(block: memoryview, limit: int) -> Buffer:
    machine = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    rest: Buffer = block

    def read(size: int) -> bytes:
        nonlocal rest
        piece = b"" if machine.eof else machine.decompress(rest, size)
        rest = machine.unconsumed_tail
        return piece

    plain = _collected(read, limit, block)
    _whole(machine.eof and not machine.unused_data)
    return plain


def _unlz4(block: memoryview, limit: int) -> Buffer:
    machine = lz4.frame.LZ4FrameDecompressor()
    rest: Buffer = block

    def read(size: int) -> bytes:
        nonlocal rest
        piece = b"" if machine.eof else machine.decompress(rest, max_length=size)
        rest = b""  # the machine keeps what it has not used
        return piece

    plain = _collected(read, limit, block)
    _whole(machine.eof and not machine.unused_data)
    return plain


def _unzstd(block: memoryview, limit: int) -> Buffer:
    # A frame that is cut short ends quietly here; the records' own lengths and count then tell.
    machine = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES_MAX)
    with machine.stream_reader(block) as reader:
        return _collected(reader.read, limit, block)


def _collected(read: Callable[[int], bytes], limit: int, block: memoryview) -> Buffer:
    """Return what ``read(size)`` returns until it returns nothing, at most ``limit`` bytes.  A bomb
    has taken no more memory than that when it is refused."""
    plain: bytes | bytearray = read(min(_PIECE_BYTES, limit + 1))
    while len(plain) <= limit and (
            piece := read(min(_PIECE_BYTES, limit + 1 - len(plain)))):
        if isinstance(plain, bytes):
            plain = bytearray(plain)
        plain += piece
    _require(len(plain) <= limit, limit, block)
    return plain


def _unsnappy(block: memoryview, limit: int) -> bytes:
    if bytes(block[:len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _unsnappy_raw(block, limit)
    parts, total, at = [], 0, len(_XERIAL_HEADER)
    while at < len(block):
        _whole(at + _LENGTH.size <= len(block))
        length = _LENGTH.unpack_from(block, at)[0]
        at += _LENGTH.size
        _whole(at + length <= len(block))
        parts.append(_unsnappy_raw(block[at:at + length], limit, total))
        total += len(parts[-1])
        at += length
    return b"".join(parts)


def _unsnappy_raw(block: memoryview, limit: int, before: int = 0) -> bytes:
    """Decompress a block behind ``before`` bytes, which count for the limit as well."""
    announced = before + cramjam.snappy.decompress_raw_len(block)
    _require(announced <= limit, limit, block, announced)
    return bytes(cramjam.snappy.decompress_raw(block))


def _compress_xerial(block: Buffer) -> bytes:
    view = memoryview(block)
    parts = [_XERIAL_HEADER]
    for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
        packed = bytes(cramjam.snappy.compress_raw(view[at:at + _XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(packed)), packed)
    return b"".join(parts)


def _require(fits: bool, limit: int, block: Buffer, value: int | None = None) -> None:
    if not fits:
        raise DecompressionTooLarge(limit, len(block), value)


def _whole(condition: bool) -> None:
    if not condition:
        raise CorruptBatch("compressed block is cut short or followed by other bytes")


_METHODS = {layout.CODEC_GZIP: _gunzip, layout.CODEC_SNAPPY: _unsnappy,
            layout.CODEC_LZ4: _unlz4, layout.CODEC_ZSTD: _unzstd}
