"""Frames of Kafka: any chunking, every limit, and the first bytes of other protocols."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.frames import HEADER_BYTES_MIN, KafkaFrameReader
from multiraft.kafka.hot_messages import RequestHeader
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.requests import (
    api_versions_response,
    decode_request,
    encode_request,
    encode_response,
)
from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import Foreign, ForeignProtocol
from multiraft.wire.frames import WireLimits, encode_frame
from multiraft.wire.messages import Hello, hello_header
from multiraft.wire.receive_buffer import CHUNK_BYTES_MIN, PEEK_BYTES

LIMITS = WireLimits()
SMALL = WireLimits(frame_bytes_max=1000)
LARGE = 1 << 20
GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(50)


def frame(body: bytes) -> bytes:
    """Return a frame of Metadata, so that its first bytes are those of a request."""
    content = struct.pack(">hhi", ApiKey.METADATA, 12, 1) + body
    return struct.pack(">i", len(content)) + content


def feed(reader: KafkaFrameReader, data: bytes, sizes=()) -> list[memoryview]:
    """Receive ``data`` in pieces of at most the given sizes (then all that is left at once)."""
    found, at, sizes = [], 0, list(sizes)
    while at < len(data):
        room = reader.memory.buffer_for_receive()
        assert len(room), "there is always room to receive"
        count = min(len(room), len(data) - at, sizes.pop(0) if sizes else len(data))
        room[:count] = data[at:at + count]
        at += count
        reader.memory.received(count)
        while (found_now := reader.next_frame()) is not None:
            found.append(found_now)
    return found


bodies = st.binary(max_size=40) | st.sampled_from(
    [bytes(CHUNK_BYTES_MIN // 4), b"x" * CHUNK_BYTES_MIN, b"y" * (CHUNK_BYTES_MIN * 2 + 7)])


@given(st.lists(bodies, max_size=6), st.lists(st.integers(1, CHUNK_BYTES_MIN), max_size=40))
def test_any_chunking_of_the_stream_gives_the_same_frames(bodies, sizes):
    frames = [frame(body) for body in bodies]
    reader = KafkaFrameReader(LIMITS)
    found = feed(reader, b"".join(frames), sizes)
    assert found == [each[4:] for each in frames]
    assert not any(each.readonly for each in found) and not reader.mid_frame


@given(st.binary(max_size=300), st.lists(st.integers(1, 20), max_size=10))
def test_arbitrary_bytes_are_frames_or_a_protocol_error(data, sizes):
    reader = KafkaFrameReader(SMALL)
    try:
        found = feed(reader, data, sizes)
    except RemoteProtocolError as error:
        with pytest.raises(RemoteProtocolError) as again:
            reader.next_frame()
        assert again.value is error, "a reader that failed stays failed"
    else:
        assert sum(4 + len(each) for each in found) == len(data) - reader.memory.available


def test_requests_of_every_api_pass_however_they_are_cut():
    header = RequestHeader(request_api_key=ApiKey.API_VERSIONS, request_api_version=3,
                           correlation_id=-5, client_id="c")
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    data = b"".join(encode_request(header, request))
    for size in range(1, len(data) + 1):
        [found] = feed(KafkaFrameReader(LIMITS), data, [size] * len(data))
        assert decode_request(found, APIS).header.correlation_id == -5


def test_the_bytes_to_decode_are_those_of_the_last_frame():
    reader = KafkaFrameReader(LIMITS)
    assert reader.header_bytes == 0
    [found] = feed(reader, frame(b"12345"))
    assert reader.header_bytes == len(found) == HEADER_BYTES_MIN + 5


# ---- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1001, 2**24, 2**31 - 1])
def test_a_frame_over_the_limit_is_refused_from_its_length_alone(length):
    with pytest.raises(FrameTooLarge) as caught:
        feed(KafkaFrameReader(SMALL), struct.pack(">i", length))
    assert (caught.value.limit, caught.value.value) == (1000, length)


@pytest.mark.parametrize("length", [-2**31, -1, 0, 7])
def test_a_frame_without_room_for_a_header_is_refused_from_its_length_alone(length):
    with pytest.raises(RemoteProtocolError, match=f"frame of {length} bytes") as caught:
        feed(KafkaFrameReader(LIMITS), struct.pack(">i", length))
    assert type(caught.value) is RemoteProtocolError


def test_frames_of_exactly_the_limits_are_accepted():
    for size in (0, SMALL.frame_bytes_max - HEADER_BYTES_MIN):
        [found] = feed(KafkaFrameReader(SMALL), frame(bytes(size)))
        assert len(found) == HEADER_BYTES_MIN + size


def test_nothing_large_is_allocated_before_the_limit_is_checked():
    reader = KafkaFrameReader(SMALL)
    asked = []
    reader.memory.admit = lambda size: asked.append(size) or True
    with pytest.raises(FrameTooLarge):
        feed(reader, frame(bytes(1 << 20)))
    assert not asked and not reader.memory.arrived


# ---- memory -----------------------------------------------------------------------------------


def test_a_large_frame_is_received_into_its_own_memory_without_a_copy():
    reader, data = KafkaFrameReader(LIMITS), frame(bytes(LARGE))
    feed(reader, data[:100])
    room = reader.memory.buffer_for_receive()
    assert len(room) == len(data) - 100, "exactly what is missing"
    [found] = feed(reader, data[100:])
    assert found.obj is room.obj and found == data[4:]
    assert len(reader.memory.buffer_for_receive()) == PEEK_BYTES


def test_a_large_frame_waits_for_its_memory():
    reader, data, free = KafkaFrameReader(LIMITS), frame(bytes(LARGE)), []
    reader.memory.admit = lambda size: bool(free)
    feed(reader, data[:100])
    assert not reader.memory.arrived and reader.mid_frame
    free.append(1)
    assert reader.next_frame() is None and reader.memory.arrived == 100
    [found] = feed(reader, data[100:])
    assert len(found) == len(data) - 4


# ---- other protocols --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 4, 8, 1_000])
@pytest.mark.parametrize(("data", "protocol"), [
    (GET, Foreign.HTTP_REQUEST), (CLIENT_HELLO, Foreign.TLS),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", Foreign.HTTP_RESPONSE),
    (b"\x15\x03\x03\x00\x02\x02\x28" + bytes(9), Foreign.TLS_ALERT),
    (b"".join(encode_frame(hello_header(Hello()))), Foreign.NATIVE)])
def test_other_protocols_are_named_however_their_bytes_arrive(data, protocol, size):
    for limits in (LIMITS, WireLimits(frame_bytes_max=2**31 - 1)):
        reader = KafkaFrameReader(limits)
        with pytest.raises(ForeignProtocol) as caught:
            feed(reader, data, [size] * len(data))
        assert caught.value.protocol is protocol
        with pytest.raises(ForeignProtocol):
            reader.next_frame()


def test_only_the_first_frame_can_be_of_another_protocol():
    """A later frame that cannot be read is damage of Kafka's protocol, and a later one that looks
    like a handshake of multiraft is a frame."""
    hello = b"".join(encode_frame(hello_header(Hello())))
    reader = KafkaFrameReader(LIMITS)
    assert len(feed(reader, frame(b"") + hello)) == 2
    with pytest.raises(FrameTooLarge):
        feed(reader, GET)


def test_a_response_of_kafka_is_not_taken_for_another_protocol():
    header = RequestHeader(request_api_key=ApiKey.API_VERSIONS, request_api_version=0,
                           correlation_id=1)
    data = b"".join(map(bytes, encode_response(header, api_versions_response(APIS))))
    assert len(feed(KafkaFrameReader(LIMITS), data)) == 1
