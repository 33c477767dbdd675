"""Bulk connections: opened when they are needed, proven like all others, answered in order."""

import functools

import pytest
import trio

from node.bulk import Bulk, NoAnswer
from node.dial import dial
from node.handshake import Introduction
from node.security import Security, SecurityConfig
from tests.certificates import Authority
from tests.node.harness import in_trio
from tests.node.test_handshake import CLUSTER, SECRET, certificates, secret_file
from tests.node.test_peers import FRAME_BYTES_MAX, Receiver, hello_of

RATE = 1 << 40


def asking(port: int, config: SecurityConfig) -> Bulk:
    """Node 1's end."""
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
        assert receiver.listener.accepted == 1, "one connection for all"
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
