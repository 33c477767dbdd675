"""Codecs: Kafka's formats in both directions, and decompression bombs that are refused."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from multiraft.codec import layout
from multiraft.compression import (
    DECOMPRESSED_BYTES_FREE,
    DECOMPRESSED_BYTES_MAX,
    RATIO_MAX,
    DecompressionTooLarge,
    codec_number,
    compress,
    decompress,
    limit_for,
)
from multiraft.errors import ConfigError, CorruptBatch

CODECS = [layout.CODEC_GZIP, layout.CODEC_SNAPPY, layout.CODEC_LZ4, layout.CODEC_ZSTD]


@given(st.sampled_from(CODECS), st.binary(max_size=200), st.integers(0, 2000))
def test_what_goes_in_comes_out(codec, data, times):
    assert bytes(decompress(codec, compress(codec, data * times))) == data * times


@given(st.sampled_from([*CODECS, 5, 6, 7]), st.binary(max_size=200))
def test_arbitrary_bytes_decompress_or_are_refused(codec, data):
    try:
        decompress(codec, data)
    except (CorruptBatch, DecompressionTooLarge):
        pass


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_with_the_limit(codec):
    bomb = compress(codec, bytes(20 << 20))
    with pytest.raises(DecompressionTooLarge) as caught:
        decompress(codec, bomb, limit=1 << 20)
    assert caught.value.limit == 1 << 20
    assert caught.value.value in (None, (1 << 20) + (32 << 10))  # snappy's blocks announce theirs


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_has_not_taken_more_than_the_limit(codec):
    limit, bomb = 8 << 20, compress(codec, bytes(64 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, bomb, limit=limit)
        assert tracemalloc.get_traced_memory()[1] < limit + (4 << 20)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_a_block_of_several_pieces_is_whole_up_to_the_limit(codec, size):
    data = random.Random(size).randbytes(size // 2) + bytes(size - size // 2)
    block = compress(codec, data)
    assert decompress(codec, block, limit=size) == data
    with pytest.raises(DecompressionTooLarge):
        decompress(codec, block, limit=size - 1)


def test_a_lying_snappy_length_is_refused_before_it_is_allocated():
    with pytest.raises(DecompressionTooLarge):
        decompress(layout.CODEC_SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(10))


def test_the_limit_grows_with_the_block_and_is_bounded():
    assert limit_for(10) == DECOMPRESSED_BYTES_FREE
    assert limit_for(DECOMPRESSED_BYTES_FREE // RATIO_MAX * 2) > DECOMPRESSED_BYTES_FREE
    assert limit_for(1 << 30) == DECOMPRESSED_BYTES_MAX


@pytest.mark.parametrize("codec", [layout.CODEC_GZIP, layout.CODEC_SNAPPY, layout.CODEC_LZ4])
@pytest.mark.parametrize("damage", [lambda block: block[:-1], lambda block: block + b"x"])
def test_a_block_cut_short_or_followed_by_bytes_is_corrupt(codec, damage):
    with pytest.raises(CorruptBatch):
        decompress(codec, damage(compress(codec, b"hello" * 100)))


def test_other_libraries_read_ours_and_we_read_theirs():
    data = b"some bytes" * 100
    assert gzip.decompress(compress(layout.CODEC_GZIP, data)) == data
    assert lz4.frame.decompress(compress(layout.CODEC_LZ4, data)) == data
    assert zstandard.decompress(compress(layout.CODEC_ZSTD, data)) == data
    assert decompress(layout.CODEC_GZIP, gzip.compress(data)) == data
    assert decompress(layout.CODEC_LZ4, lz4.frame.compress(data)) == data
    assert decompress(layout.CODEC_SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_is_the_xerial_stream_and_lz4_has_independent_blocks():
    stream = compress(layout.CODEC_SNAPPY, bytes(70_000))
    assert stream[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    info = lz4.frame.get_frame_info(compress(layout.CODEC_LZ4, bytes(200_000)))
    assert info["block_linked"] is False


def test_an_unknown_codec_is_named():
    with pytest.raises(ConfigError, match="rar"):
        codec_number("rar")
    with pytest.raises(CorruptBatch, match="codec 7"):
        decompress(7, b"")
