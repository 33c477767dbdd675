"""The send queue keeps the order of bytes, sends what the kernel takes, and never exceeds its
limit."""

import pytest
import trio

from node.loop.outbox import Outbox, OutboxFull
from node.loop.system_limits import IOV_BUFFERS_MAX
from tests.node.harness import connected_pair, in_trio


async def received(sock, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        await trio.lowlevel.wait_readable(sock)
        data += sock.recv(1 << 16)
    return bytes(data)


@in_trio
async def test_what_the_kernel_does_not_take_at_once_follows_in_order():
    near, far = connected_pair(buffer_bytes=4096)
    with near, far:
        outbox = Outbox(near, 8 << 20)
        buffers = [bytes([number % 251]) * (number * 37 % 5000) for number in range(900)]
        outbox.push(buffers)
        outbox.flush()
        whole = b"".join(buffers)
        assert 0 < outbox.size < len(whole), "the test needs a socket that is full"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.drain)
            assert await received(far, len(whole)) == whole
            nursery.cancel_scope.cancel()
        assert outbox.size == 0
        assert outbox.sent_bytes == len(whole)


@in_trio
async def test_more_buffers_than_one_system_call_takes():
    near, far = connected_pair()
    with near, far:
        outbox = Outbox(near, 1 << 20)
        buffers = [b"ab", b""] * IOV_BUFFERS_MAX
        outbox.push(buffers)
        outbox.flush()
        assert outbox.size == 0
        assert await received(far, 2 * IOV_BUFFERS_MAX) == b"ab" * IOV_BUFFERS_MAX


@in_trio
async def test_new_bytes_do_not_overtake_those_that_wait():
    near, far = connected_pair(buffer_bytes=4096)
    with near, far:
        outbox = Outbox(near, 8 << 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.drain)
            for number in range(60):
                outbox.push([bytes([number]) * 50_000])
                outbox.flush()
            data = await received(far, 60 * 50_000)
            nursery.cancel_scope.cancel()
        assert data == b"".join(bytes([number]) * 50_000 for number in range(60))


def test_the_limit_is_stated_and_what_waits_stays_as_it_was():
    near, far = connected_pair()
    with near, far:
        outbox = Outbox(near, 100)
        outbox.push([b"x" * 60])
        with pytest.raises(OutboxFull, match="110.*limit is 100"):
            outbox.push([b"y" * 50])
        assert outbox.size == 60
        outbox.flush()
        assert outbox.size == 0
        outbox.push([b"y" * 100])


@in_trio
async def test_a_connection_that_is_gone_is_an_error_of_flush_and_of_drain():
    near, far = connected_pair(buffer_bytes=4096)
    with near:
        outbox = Outbox(near, 8 << 20)
        outbox.push([bytes(1 << 20)])
        outbox.flush()
        far.close()  # with unread bytes: a reset
        with pytest.raises(OSError):
            await outbox.drain()
        outbox.push([b"more"])
        with pytest.raises(OSError):
            outbox.flush()
