"""Frames: any chunking, any bytes, every limit; and the one CBOR decoder."""

from __future__ import annotations

import struct

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.codec.layout import HEADER_CONTAINERS_MAX, HEADER_DEPTH_MAX
from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import ForeignProtocol
from multiraft.wire.frames import (
    FrameReader,
    WireLimits,
    decode_header,
    encode_frame,
)
from multiraft.wire.receive_buffer import CHUNK_BYTES_MAX, CHUNK_BYTES_MIN

SMALL = WireLimits(frame_bytes_max=1000, header_bytes_max=100)


def feed(reader: FrameReader, data: bytes, sizes=()) -> list:
    """Receive ``data`` in pieces of at most the given sizes (then all that is left at once)."""
    found, at, sizes = [], 0, list(sizes)
    while at < len(data):
        room = reader.buffer_for_receive()
        assert len(room), "there is always room to receive"
        count = min(len(room), len(data) - at, sizes.pop(0) if sizes else len(data))
        room[:count] = data[at:at + count]
        at += count
        reader.received(count)
        while (frame := reader.next_frame()) is not None:
            found.append(frame)
    return found


def plain(found) -> list:
    return [(frame.header, bytes(frame.payload)) for frame in found]


headers = st.dictionaries(st.text(max_size=5), st.integers(0, 2**64 - 1) | st.text(max_size=9)
                          | st.none() | st.booleans() | st.binary(max_size=9)
                          | st.lists(st.integers(-5, 5), max_size=3), max_size=4)
payloads = st.integers(0, 40).map(lambda n: bytes(range(n))) | st.sampled_from(
    [bytes(CHUNK_BYTES_MIN // 4), b"x" * CHUNK_BYTES_MIN, b"y" * (CHUNK_BYTES_MIN * 2 + 7)])


@given(st.lists(st.tuples(headers, payloads), max_size=6),
       st.lists(st.integers(1, CHUNK_BYTES_MIN), max_size=40))
def test_any_chunking_of_the_stream_gives_the_same_frames(messages, sizes):
    stream = b"".join(b"".join(encode_frame(header, [payload])) for header, payload in messages)
    reader = FrameReader()
    assert plain(feed(reader, stream, sizes)) == messages
    assert not reader.mid_frame


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_frames_or_a_protocol_error(data):
    reader = FrameReader(SMALL)
    try:
        feed(reader, data)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError) as again:
            reader.next_frame()
        assert again.value is error, "a reader that failed stays failed"


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_an_arbitrary_header_is_a_map_or_a_protocol_error(header, payload):
    data = struct.pack(">II", 4 + len(header) + len(payload), len(header)) + header + payload
    try:
        (frame,) = feed(FrameReader(), data)
    except RemoteProtocolError:
        return
    assert type(frame.header) is dict
    assert frame.payload == payload


@given(st.data())
def test_one_flipped_bit_never_breaks_anything_but_the_connection(data):
    stream = bytearray(b"".join(encode_frame({"id": 7, "op": "x", "list": [1, "a", b"b"]}, [b"p"])))
    at = data.draw(st.integers(0, len(stream) * 8 - 1))
    stream[at // 8] ^= 1 << at % 8
    try:
        feed(FrameReader(SMALL), bytes(stream))
    except RemoteProtocolError:
        pass


# ---- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1001, 2**31, 2**32 - 1])
def test_a_frame_over_the_limit_is_refused_from_its_length_alone(length):
    reader = FrameReader(SMALL)
    with pytest.raises(FrameTooLarge) as caught:
        feed(reader, struct.pack(">I", length))
    assert (caught.value.limit, caught.value.value) == (1000, length)


def test_http_on_our_port_is_refused_cleanly():
    with pytest.raises(ForeignProtocol, match="HTTP request"):
        feed(FrameReader(), b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_a_frame_of_exactly_the_limit_is_accepted():
    header = encode_frame({"a": 1})[0]
    payload = bytes(1000 - (len(header) - 4))
    (frame,) = feed(FrameReader(SMALL), header[:4].replace(header[:4], struct.pack(">I", 1000))
                    + header[4:] + payload)
    assert len(frame.payload) == len(payload)


def test_a_header_over_its_limit_is_refused_before_it_is_decoded():
    with pytest.raises(FrameTooLarge, match="header"):
        feed(FrameReader(SMALL), struct.pack(">II", 204, 200) + bytes(200))


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_frame_without_room_for_a_header_length_is_refused(length):
    with pytest.raises(RemoteProtocolError, match="header length"):
        feed(FrameReader(), struct.pack(">I", length) + bytes(length))


def test_a_header_longer_than_its_frame_is_refused():
    with pytest.raises(RemoteProtocolError, match="in a frame of"):
        feed(FrameReader(), struct.pack(">II", 10, 7) + bytes(6))


def test_nothing_large_is_allocated_for_an_announced_frame_before_its_limit_is_checked():
    reader = FrameReader(WireLimits(frame_bytes_max=2**31))
    before = reader.buffer_for_receive()
    with pytest.raises(FrameTooLarge):
        feed(reader, struct.pack(">I", 2**32 - 1))
    assert len(before) <= CHUNK_BYTES_MAX


# ---- memory -----------------------------------------------------------------------------------


def test_payloads_are_writable_views_that_later_frames_do_not_touch():
    reader, kept = FrameReader(), []
    for number in range(200):
        size = (number * 997) % (CHUNK_BYTES_MIN * 3)
        (frame,) = feed(reader, b"".join(encode_frame({"n": number}, [bytes([number]) * size])))
        kept.append((number, size, frame.payload))
    for number, size, payload in kept:
        assert not payload.readonly
        assert payload == bytes([number]) * size


def test_a_large_payload_is_received_into_its_own_memory_without_a_copy():
    reader = FrameReader()
    data = b"".join(encode_frame({}, [bytes(1 << 20)]))
    room = reader.buffer_for_receive()
    room[:100] = data[:100]
    reader.received(100)
    assert reader.next_frame() is None
    assert len(reader.buffer_for_receive()) == len(data) - 100, "exactly what is missing"


def test_encoding_hands_back_the_caller_s_own_buffers():
    payload = [bytearray(b"abc"), memoryview(b"defg")]
    buffers = encode_frame({"id": 1}, payload)
    assert buffers[1] is payload[0] and buffers[2] is payload[1]
    (frame,) = feed(FrameReader(), b"".join(buffers))
    assert frame == ({"id": 1}, b"abcdefg")


# ---- CBOR -------------------------------------------------------------------------------------

REFUSED = {
    "indefinite array": "a161619fff",
    "indefinite map": "bf616100ff",
    "indefinite text": "a161617f6161ff",
    "duplicate key": "a2616100616101",
    "integer key": "a10000",
    "byte-string key": "a1416100",
    "float": "a16161f93c00",
    "double nan": "a16161fb7ff8000000000000",
    "undefined": "a16161f7",
    "simple value": "a16161f0",
    "bignum tag": "a16161c249010000000000000000",
    "date tag": "a16161c074323031332d30332d32315432303a30343a30305a",
    "shared reference": "a16161d81c80",
    "not a map": "80",
    "an integer": "00",
    "empty": "",
    "truncated": "a16161",
    "trailing byte": "a000",
    "second map": "a0a0",
    "break alone": "ff",
    "below 64 bits": "a161613bffffffffffffffff",
    "bad utf-8": "a16161" + "61ff",
    "huge array announced": "a161619affffffff",
    "huge text announced": "a161617b7fffffffffffffff",
    "huge map announced": "bb7fffffffffffffff",
}


@pytest.mark.parametrize("name", REFUSED)
def test_cbor_that_is_not_plain_is_refused(name):
    with pytest.raises(RemoteProtocolError):
        decode_header(bytes.fromhex(REFUSED[name]))


def test_no_tag_at_all_is_accepted():
    for tag in range(65_536):
        encoded = b"\xa1\x61a" + b"\xd9" + struct.pack(">H", tag) + b"\x80"
        with pytest.raises(RemoteProtocolError):
            decode_header(encoded)


@pytest.mark.parametrize("inner", ["00", "6161", "4161", "a0", "8100"])
def test_known_tags_are_refused_whatever_they_wrap(inner):
    for tag in (*range(40), 100, 256, 258, 260, 261, 1004, 43000, 55799):
        encoded = b"\xa1\x61a" + b"\xd9" + struct.pack(">H", tag) + bytes.fromhex(inner)
        with pytest.raises(RemoteProtocolError):
            decode_header(encoded)


def test_the_deepest_allowed_header_is_accepted_and_one_more_level_is_not():
    lists = HEADER_DEPTH_MAX - 1  # the map is one level
    assert decode_header(b"\xa1\x61a" + b"\x81" * lists + b"\x00")
    with pytest.raises(RemoteProtocolError, match="depth"):
        decode_header(b"\xa1\x61a" + b"\x81" * (lists + 1) + b"\x00")


@pytest.mark.parametrize("extra, accepted", [(0, True), (1, False)])
def test_a_header_of_too_many_containers_is_refused(extra, accepted):
    # The map and its list are two of them.
    header = cbor2.dumps({"x": [[]] * (HEADER_CONTAINERS_MAX - 2 + extra)})
    if accepted:
        assert len(decode_header(header)["x"]) == HEADER_CONTAINERS_MAX - 2
    else:
        with pytest.raises(RemoteProtocolError, match=f"more than {HEADER_CONTAINERS_MAX}"):
            decode_header(header)


def test_a_depth_bomb_is_refused_at_once():
    with pytest.raises(RemoteProtocolError):
        decode_header(b"\xa1\x61a" + b"\x81" * 1_000_000)


def test_64_bit_extremes_survive():
    values = {"high": 2**64 - 1, "low": -(2**63), "zero": 0}
    assert decode_header(cbor2.dumps(values)) == values


@settings(max_examples=100)
@given(headers)
def test_what_we_encode_we_decode(header):
    assert decode_header(cbor2.dumps(header)) == header
