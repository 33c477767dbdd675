"""CRC32C, murmur2 and jump hash against published vectors."""

import random

import pytest

from multiraft import _core
from multiraft.codec import reference

CRC_VECTORS = [  # the check value, then RFC 3720 appendix B.4
    (b"", 0x00000000),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]

MURMUR_VECTORS = [  # Kafka's UtilsTest.testMurmur2, signed there
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]

JUMP_VECTORS = [  # Guava's HashingTest, then dgryski/go-jump
    (10863919174838991, 11, 6), (2016238256797177309, 11, 3), (1673758223894951030, 11, 5),
    (2, 100001, 80343), (2201, 100001, 22152), (2202, 100001, 15018),
    (1, 1, 0), (42, 57, 43), (0xDEAD10CC, 1, 0), (0xDEAD10CC, 666, 361), (256, 1024, 520),
]


@pytest.mark.parametrize("data, expected", CRC_VECTORS)
def test_crc32c_of_published_vectors(twin, data, expected):
    assert twin.crc32c(data) == expected


@pytest.mark.parametrize("compute", [reference.crc32c, _core.crc32c, _core._crc32c_portable],
                         ids=["reference", "compiled", "portable"])
def test_crc32c_continues_from_the_crc_before(compute):
    data = bytes(range(256)) * 3
    for cut in (0, 1, 7, 8, 63, 400, 768):
        assert compute(data[cut:], compute(data[:cut])) == compute(data)


def test_crc32c_of_every_length_and_alignment_is_the_same_with_and_without_the_instruction():
    data = memoryview(random.Random(11).randbytes(200_000))
    turn = 3 * 8192 + 8  # where the three streams of the fast path are joined
    lengths = [*range(0, 800), *range(turn - 9, turn + 400, 7), 2 * turn - 1, 131_072, 199_990]
    for number, length in enumerate(lengths):
        part = data[number % 9:number % 9 + length]
        assert _core.crc32c(part, number) == _core._crc32c_portable(part, number), length


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_crc32c_refuses_a_start_that_is_no_crc(twin, value):
    with pytest.raises(OverflowError):
        twin.crc32c(b"", value)


@pytest.mark.parametrize("data", [bytearray(b"123456789"), memoryview(b"x123456789")[1:]])
def test_crc32c_takes_any_buffer(twin, data):
    assert twin.crc32c(data) == 0xE3069283


@pytest.mark.parametrize("data, error", [("text", TypeError), (7, TypeError),
                                         (memoryview(b"123456")[::2], BufferError)])
def test_crc32c_refuses_what_is_not_one_run_of_bytes(twin, data, error):
    with pytest.raises(error):
        twin.crc32c(data)


@pytest.mark.parametrize("key, expected", MURMUR_VECTORS)
def test_murmur2_of_kafkas_vectors(twin, key, expected):
    assert twin.murmur2(key) == expected & 0xFFFFFFFF


@pytest.mark.parametrize("key, buckets, expected", JUMP_VECTORS)
def test_jump_hash_of_published_vectors(twin, key, buckets, expected):
    assert twin.jump_hash(key, buckets) == expected


def test_jump_hash_moves_keys_only_into_the_new_bucket(twin):
    for key in range(0, 1 << 64, (1 << 64) // 97):
        for buckets in (1, 2, 7, 64, 1000):
            before, after = twin.jump_hash(key, buckets), twin.jump_hash(key, buckets + 1)
            assert after in (before, buckets)


@pytest.mark.parametrize("key, buckets, error", [
    (-1, 8, OverflowError), (1 << 64, 8, OverflowError), (1, 0, ValueError), (1, -3, ValueError),
    (1, 1 << 31, ValueError)])
def test_jump_hash_refuses_numbers_out_of_range(twin, key, buckets, error):
    with pytest.raises(error):
        twin.jump_hash(key, buckets)
