"""The accept loop: bounded, and independent of single bad connections."""

import errno
import socket

import pytest
import trio

from multiraft.wire.errors import RemoteProtocolError
from node.address import Address
from node.clients import listener as listener_module
from node.clients.listener import ConnectionCounts, Listener, listen
from node.errors import BadConfig
from tests.node.harness import in_trio, until
from tests.ports import free_port


class ClusterView:
    """A listener whose connections live until ``ends`` or fail with ``error``."""

    def __init__(self, connections_max: int = 10, per_address_max: int | None = None,
                 counts: ConnectionCounts | None = None):
        self.address = Address("127.0.0.1", free_port())
        self.ends = trio.Event()
        self.error: Exception | None = None
        self.listener = Listener(listen(self.address), self.handle, connections_max,
                                 per_address_max, counts)

    async def handle(self, sock: socket.socket) -> None:
        if self.error is not None:
            raise self.error
        await self.ends.wait()

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream(self.address.host, self.address.port)


@in_trio
async def test_connections_beyond_the_limit_are_closed_at_once_and_counted():
    world = ClusterView(connections_max=2)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.listener.serve)
        streams = [await world.connect() for _ in range(2)]
        await until(lambda: world.listener.counts.connections == 2)
        async with await world.connect() as third:
            assert await third.receive_some() == b""
        assert (world.listener.counts.accepted, world.listener.counts.rejected) == (2, 1)
        world.ends.set()
        await until(lambda: world.listener.counts.connections == 0)
        for stream in streams:
            assert await stream.receive_some() == b""
            await stream.aclose()
        nursery.cancel_scope.cancel()


@in_trio
@pytest.mark.parametrize("limits", [{"connections_max": 2}, {"per_address_max": 2}])
async def test_ports_with_common_counts_have_their_limits_together(limits):
    counts = ConnectionCounts()
    one, other = (ClusterView(counts=counts, **limits) for _ in range(2))
    async with trio.open_nursery() as nursery:
        for world in (one, other):
            await nursery.start(world.listener.serve)
        async with await one.connect(), await other.connect():
            await until(lambda: counts.connections == 2)
            for world in (one, other):
                async with await world.connect() as third:
                    assert await third.receive_some() == b""
            assert (counts.accepted, counts.rejected) == (2, 2)
            one.ends.set()
            await until(lambda: counts.connections == 1)
            async with await other.connect():
                await until(lambda: counts.connections == 2)
            other.ends.set()
            await until(lambda: not counts.connections)
            assert not counts.by_address
        nursery.cancel_scope.cancel()


@in_trio
@pytest.mark.parametrize("error", [ConnectionResetError(), RemoteProtocolError("nonsense")])
async def test_what_a_connection_does_wrong_ends_it_alone(error):
    world = ClusterView()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.listener.serve)
        async with await world.connect() as good:
            await until(lambda: world.listener.counts.connections == 1)
            world.error = error
            async with await world.connect() as bad:
                assert await bad.receive_some() == b""
            assert world.listener.counts.connections == 1
            with trio.move_on_after(0.01):
                assert await good.receive_some() != b""
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_defect_in_a_handler_is_not_swallowed():
    world = ClusterView()
    world.error = AssertionError("a defect")
    with pytest.raises(ExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            await nursery.start(world.listener.serve)
            async with await world.connect():
                await trio.sleep_forever()
    assert raised.group_contains(AssertionError, match="a defect")


@in_trio
async def test_running_out_of_descriptors_is_a_pause_and_no_end(monkeypatch):
    monkeypatch.setattr(listener_module, "EXHAUSTED_PAUSE_S", 0.001)
    world = ClusterView()
    real, failures = world.listener._sock, [errno.EMFILE, errno.ENFILE, errno.ECONNABORTED]

    class Exhausted:
        def accept(self):
            if failures:
                raise OSError(failures.pop(), "exhausted")
            return real.accept()

        def fileno(self):
            return real.fileno()

        def __enter__(self):
            return self

        def __exit__(self, *_):
            real.close()

    world.listener._sock = Exhausted()
    async with trio.open_nursery() as nursery:
        await nursery.start(world.listener.serve)
        async with await world.connect():
            await until(lambda: world.listener.counts.connections == 1)
        nursery.cancel_scope.cancel()
    assert not failures


def test_an_address_in_use_is_a_fault_of_the_configuration():
    address = Address("127.0.0.1", free_port())
    with listen(address), pytest.raises(BadConfig, match=str(address.port)):
        listen(address)
