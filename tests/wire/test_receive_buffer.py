"""Memory for received bytes: whatever arrives together, and whatever is taken, in any sizes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.wire.receive_buffer import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    PEEK_BYTES,
    ReceiveBuffer,
)

LARGE = 1 << 20


def receive(buffer: ReceiveBuffer, data: bytes, size: int = 1 << 30) -> int:
    """Receive the beginning of ``data``, as much as one system call would; return its length."""
    room = buffer.buffer_for_receive()
    assert len(room), "there is always room to receive"
    count = min(len(room), len(data), size)
    room[:count] = data[:count]
    buffer.received(count)
    return count


def taken(buffer: ReceiveBuffer, stream: bytes, totals, sizes) -> list[memoryview]:
    """Receive ``stream`` in pieces, and take the given numbers of bytes."""
    totals, sizes, found, at = list(totals), list(sizes), [], 0
    while at < len(stream):
        at += receive(buffer, stream[at:], sizes.pop(0) if sizes else len(stream))
        while totals and (part := buffer.take(totals[0])) is not None:
            found.append(part)
            totals.pop(0)
    assert not totals
    return found


totals = st.lists(st.integers(1, 40) | st.integers(1, 3 * CHUNK_BYTES_MIN)
                  | st.just(CHUNK_BYTES_MIN // 4), min_size=1, max_size=12)
sizes = st.lists(st.integers(1, CHUNK_BYTES_MIN), max_size=40)


@given(totals, sizes)
def test_what_is_taken_does_not_depend_on_how_it_arrived_and_is_never_written_again(totals, sizes):
    stream = bytes(n * 7 % 251 for n in range(sum(totals)))
    buffer, at = ReceiveBuffer(), 0
    for total, part in zip(totals, taken(buffer, stream, totals, sizes), strict=True):
        assert part == stream[at:at + total] and not part.readonly
        at += total
    assert buffer.available == buffer.arrived == 0


@given(st.binary(max_size=20), st.integers(0, 25))
def test_the_first_bytes_are_seen_without_being_taken(data, count):
    buffer = ReceiveBuffer()
    if data:
        receive(buffer, data)
    assert buffer.first_bytes(count) == data[:count]
    assert buffer.first_u32() == (struct.unpack(">I", data[:4])[0] if len(data) >= 4 else -1)
    assert buffer.available == len(data)


def test_the_first_bytes_of_a_large_frame_are_seen_while_it_arrives():
    buffer = ReceiveBuffer()
    receive(buffer, b"\x01\x02")
    assert buffer.take(LARGE) is None
    assert (buffer.first_u32(), buffer.first_bytes(9), buffer.arrived) == (-1, b"\x01\x02", 2)
    receive(buffer, b"\x03\x04\x05")
    assert (buffer.first_u32(), buffer.first_bytes(2)) == (0x01020304, b"\x01\x02")
    assert buffer.available == buffer.arrived == 5


# ---- memory -----------------------------------------------------------------------------------


def test_a_large_frame_is_received_where_it_is_taken_from():
    buffer = ReceiveBuffer()
    receive(buffer, b"begin")
    assert buffer.take(LARGE) is None
    room = buffer.buffer_for_receive()
    assert len(room) == LARGE - 5, "exactly what is missing"
    assert receive(buffer, bytes(LARGE - 5)) == LARGE - 5
    whole = buffer.take(LARGE)
    assert whole.obj is room.obj and len(whole) == LARGE


def test_a_run_of_large_frames_copies_only_a_peek_of_each():
    buffer = ReceiveBuffer()
    [_] = taken(buffer, bytes(LARGE), [LARGE], [])
    assert len(buffer.buffer_for_receive()) == PEEK_BYTES
    assert receive(buffer, bytes(LARGE)) == PEEK_BYTES
    assert buffer.take(LARGE) is None
    assert receive(buffer, bytes(LARGE)) == LARGE - PEEK_BYTES
    assert buffer.take(LARGE) is not None
    receive(buffer, bytes(10))
    assert buffer.take(10) is not None
    assert len(buffer.buffer_for_receive()) > PEEK_BYTES, "the frames are small again"


def test_small_frames_are_taken_from_one_chunk():
    buffer = ReceiveBuffer()
    first, second = taken(buffer, bytes(200), [100, 100], [])
    assert first.obj is second.obj


def test_chunks_grow_while_receives_fill_them():
    buffer = ReceiveBuffer()
    assert len(buffer.buffer_for_receive()) == CHUNK_BYTES_MIN
    taken(buffer, bytes(2_000_000), [1_000] * 2_000, [])
    assert len(buffer.chunk) == CHUNK_BYTES_MAX


def test_a_large_frame_waits_for_its_memory_and_smaller_ones_need_no_permission():
    buffer, asked, free = ReceiveBuffer(), [], []
    buffer.admit = lambda size: asked.append(size) or bool(free)
    receive(buffer, bytes(100))
    assert buffer.take(60) is not None and not asked
    assert buffer.take(LARGE) is None and buffer.take(LARGE) is None
    assert asked == [LARGE, LARGE] and not buffer.arrived
    free.append(1)
    assert buffer.take(LARGE) is None
    assert buffer.arrived == 40 and len(buffer.buffer_for_receive()) == LARGE - 40


def test_memory_is_taken_for_the_bytes_that_it_was_provided_for():
    buffer = ReceiveBuffer()
    receive(buffer, bytes(5))
    assert buffer.take(LARGE) is None
    with pytest.raises(AssertionError, match="another number"):
        buffer.take(LARGE + 1)
