"""Bulk connections: opened on demand, with the same handshake as others, answered in order."""

import functools
import socket

import pytest
import trio
import trio.testing

from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import FrameReader, WireLimits, encode_frame
from node.peers.bulk_channel import ANSWER_TIMEOUT_S, Bulk, NoAnswer
from node.peers.dial import dial
from node.peers.handshake import Introduction
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.certificates import Authority
from tests.node.harness import connected_pair, in_trio
from tests.node.peers.test_append_links import FRAME_BYTES_MAX, Receiver, hello_of
from tests.node.peers.test_handshake import CLUSTER, SECRET, certificates, secret_file

RATE = 1 << 40


def asking(port: int, config: SecurityConfig) -> Bulk:
    """Return node 1's end."""
    introduction = functools.partial(Introduction, Security(config, CLUSTER),
                                     hello_of(1, connection="bulk"))

    async def reach(_peer: int):
        return await dial("127.0.0.1", port)

    return Bulk(reach, introduction, FRAME_BYTES_MAX, RATE)


async def echo(peer: int, header: dict, payload: memoryview):
    return {"peer": peer, "n": header["n"]}, [bytes(payload)]


def configurations(tmp_path):
    authority = Authority(tmp_path)
    secret = secret_file(tmp_path, SECRET)
    return {"open": (SecurityConfig(), SecurityConfig()), "secret": (secret, secret),
            "certificates": (certificates(authority, 2), certificates(authority, 1))}


@in_trio
@pytest.mark.parametrize("case", ["open", "secret", "certificates"])
async def test_requests_are_answered_whatever_protects_the_port(tmp_path, case):
    answering, asks = configurations(tmp_path)[case]
    receiver = Receiver(answering)
    receiver.port._bulk = Bulk(None, None, FRAME_BYTES_MAX, RATE)
    receiver.port._bulk.handlers["echo"] = echo
    bulk = asking(receiver.address.port, asks)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(bulk.close_idle)
        for number, size in enumerate((0, 10, 3 << 20)):
            payload = bytes([number]) * size
            answer = await bulk.ask(2, {"op": "echo", "n": number}, [payload])
            assert (answer.header, bytes(answer.payload)) == ({"peer": 1, "n": number}, payload)
        assert receiver.listener.counts.accepted == 1, "one connection for all"
        nursery.cancel_scope.cancel()


@in_trio
async def test_who_cannot_prove_itself_gets_no_answer(tmp_path):
    receiver = Receiver(secret_file(tmp_path, SECRET))
    receiver.port._bulk = Bulk(None, None, FRAME_BYTES_MAX, RATE)
    bulk = asking(receiver.address.port, SecurityConfig())
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        with pytest.raises(NoAnswer, match="peer_secret"):
            await bulk.ask(2, {"op": "echo", "n": 1})
        assert receiver.port.refused == 1
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("op", ["none", None, 1, ["repair"], {"op": "repair"}])
@in_trio
async def test_a_request_that_is_none_ends_its_connection_and_nothing_else(op):
    near, far = connected_pair()
    with near, far:
        far.send(b"".join(encode_frame({"op": op})))
        with pytest.raises(RemoteProtocolError, match="no bulk request"):
            await Bulk(None, None, FRAME_BYTES_MAX, RATE).serve(near, FrameReader(), 2)


def connected() -> tuple[Bulk, socket.socket]:
    """Yield node 1's end of a connection that node 2 has accepted, and the other end."""
    near, far = connected_pair()
    bulk = Bulk(None, None, FRAME_BYTES_MAX, RATE)
    bulk._connections[2] = near, FrameReader(WireLimits(frame_bytes_max=FRAME_BYTES_MAX))
    return bulk, far


@pytest.mark.parametrize("pause_s, comes", [(ANSWER_TIMEOUT_S - 1, True),
                                            (ANSWER_TIMEOUT_S + 1, False)])
def test_an_answer_may_take_as_long_as_it_takes_if_it_comes(pause_s, comes):
    """With a low rate limit, the replies of a repair took longer than the timeout. Each was given
    up and requested again, and no replica was ever repaired."""

    async def send(far) -> None:
        data = b"".join(encode_frame({"n": 1}, [bytes(3000)]))
        for at in range(0, len(data), 1000):
            await trio.sleep(pause_s)
            far.send(data[at:at + 1000])

    async def ask() -> None:
        bulk, far = connected()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send, far)
            if comes:
                assert len((await bulk.ask(2, {"op": "echo"})).payload) == 3000
            else:
                with pytest.raises(NoAnswer, match="too slow"):
                    await bulk.ask(2, {"op": "echo"})
            nursery.cancel_scope.cancel()
        bulk._drop(2)
        far.close()

    trio.run(ask, clock=trio.testing.MockClock(autojump_threshold=0))


def test_what_is_sent_at_a_time_never_takes_long():
    async def first_piece() -> int:
        near, far = connected_pair()
        slow = Bulk(None, None, FRAME_BYTES_MAX, 1000)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(slow._send, near, [bytes(100_000)])
            await trio.lowlevel.wait_readable(far)
            sent = len(far.recv(100_000))
            nursery.cancel_scope.cancel()
        near.close()
        far.close()
        return sent

    assert trio.run(first_piece, clock=trio.testing.MockClock(autojump_threshold=0)) == 1000
