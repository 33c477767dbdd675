"""Batches that leaders accept and no reader can open."""

from __future__ import annotations

import struct
import zlib

import pytest

from multiraft import compression, core
from multiraft.codec import layout


def crafted(codec: int, block: bytes, count: int = 1, at_ms: int = 1_700_000_000_000) -> bytearray:
    """Return a batch with a valid CRC and this block of records."""
    builder = core.BatchBuilder(8 << 20)
    assert builder.append(at_ms, None, b"x")
    data = builder.build()[:layout.BATCH_HEADER_BYTES] + block
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, layout.BATCH_ATTRIBUTES_AT, codec)
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, layout.BATCH_CRC_AT, core.crc32c(
        memoryview(data)[layout.BATCH_ATTRIBUTES_AT:]))
    return data


def records_block(count: int) -> bytes:
    builder = core.BatchBuilder(8 << 20)
    for number in range(count):
        assert builder.append(1_700_000_000_000, None, b"%d" % number)
    return bytes(builder.build()[layout.BATCH_HEADER_BYTES:])


GARBAGE = b"x" * 100
CODECS = [layout.CODEC_GZIP, layout.CODEC_SNAPPY, layout.CODEC_LZ4, layout.CODEC_ZSTD]
UNREADABLE = [
    *[pytest.param(crafted(codec, GARBAGE), id=f"garbage-{codec}") for codec in CODECS],
    *[pytest.param(crafted(codec, compression.compress(codec, records_block(3))[:-5], 3),
                   id=f"cut-{codec}") for codec in CODECS],
    *[pytest.param(crafted(codec, compression.compress(codec, records_block(3)), 5),
                   id=f"too-few-{codec}") for codec in CODECS],
    *[pytest.param(crafted(codec, compression.compress(codec, records_block(3)), 2),
                   id=f"too-many-{codec}") for codec in CODECS],
    pytest.param(crafted(layout.CODEC_ZSTD, b""), id="nothing"),
    pytest.param(crafted(layout.CODEC_GZIP, zlib.compress(b"\0" * (64 << 20))), id="not-gzip"),
]
BOMB = crafted(layout.CODEC_GZIP, compression.compress(layout.CODEC_GZIP, bytes(32 << 20)))
