"""Requests between nodes: one connection, one question, one answer, on the peer port.

Contract.  ``ask(address, peer, request)`` returns the reply or raises what ``_ask`` of a client
would: ``RequestError`` for a definite refusal, ``AmbiguousOutcome`` when the answer did not come.
``serve`` is the other side, for a connection of class ``command`` whose hello was accepted.  A
node registers and reports members this way: it proves who it is like for every connection of the
peer port, and no client can do it in its place.

Theory.  These are rare (a start, a change of membership), so a connection each is simplest and
nothing has to be matched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from multiraft.wire import nodes as wire
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, LeaderUnknown, exception_for
from multiraft.wire.frames import WireLimits, encode_frame
from multiraft.wire.messages import Hello
from multiraft.wire.schema import Malformed
from node.admin import REFUSED
from node.config import Address
from node.dial import dial
from node.handshake import introduce, next_header

#: All of it happens within this, in seconds: a command of the metadata group takes a round trip.
ASK_TIMEOUT_S = 10.0
#: A list of all nodes fits; nothing here has a payload.
LIMITS = WireLimits(frame_bytes_max=2 << 20)

#: What is asked, with its handler: request -> reply.  Raises ``MultiRaftError``.
Handlers = dict[type, Callable[[object], Awaitable]]


class PeerRequests:
    """The asking side.  ``introduction(peer)`` is what such a connection begins with."""

    def __init__(self, introduction: Callable[[int], object]):
        self._introduction = introduction

    async def ask(self, address: Address, peer: int, request):
        """One question to one node.  Raises ``RequestError``, ``AmbiguousOutcome``, and
        ``handshake.NotAccepted`` when the node does not let this one in."""
        with trio.move_on_after(ASK_TIMEOUT_S):
            sock = await dial(address.host, address.port)
            if sock is None:
                raise LeaderUnknown(f"node {peer} cannot be reached at {address}")
            try:
                return await self._exchange(sock, peer, request)
            except (OSError, Malformed) as error:
                raise AmbiguousOutcome(f"node {peer}: {error}") from error
            finally:
                sock.close()
        raise AmbiguousOutcome(f"node {peer} gave no answer within {ASK_TIMEOUT_S:.0f} s")

    async def _exchange(self, sock, peer: int, request):
        sock, reader = await introduce(sock, self._introduction(peer))
        reader.limits = LIMITS
        op = wire.PEER_OPS[type(request)]
        sock.send(b"".join(encode_frame({"op": op, **request._asdict()})))
        header = await next_header(sock, reader)
        if header is None:
            raise AmbiguousOutcome(f"node {peer} ended the connection instead of answering")
        fields = dict(header)
        code = fields.pop("code", None)
        if type(code) is not int:
            raise Malformed("an answer without a code")
        if code != Code.OK:
            raise exception_for(code, _detail(fields))
        return wire.PEER_RESPONSES[op].read(fields)


def _detail(fields: dict) -> ErrorDetail:
    text, leader = fields.get("text"), fields.get("leader")
    if type(text) is not str or type(leader) is not int:
        raise Malformed("a refusal without its text")
    return ErrorDetail(text, leader=leader)


async def serve(hello: Hello, sock, reader, handlers: Handlers, refusal: Callable) -> None:
    """Answer the one question that the connection brings.  ``refusal(error) -> (code, detail)``."""
    reader.limits = LIMITS
    with trio.move_on_after(ASK_TIMEOUT_S):
        header = await next_header(sock, reader)
        if header is not None:
            answer = await _answer(hello, header, handlers, refusal)
            data = memoryview(b"".join(encode_frame(answer)))
            while data:
                await trio.lowlevel.wait_writable(sock)
                try:
                    data = data[sock.send(data):]
                except BlockingIOError:
                    continue  # a spurious wake-up


async def _answer(hello: Hello, header: dict, handlers: Handlers, refusal: Callable) -> dict:
    fields = dict(header)
    shape = wire.PEER_REQUESTS.get(fields.pop("op", None))
    try:
        if shape is None:
            raise Malformed("this is not asked between nodes")
        request = shape.read(fields)
        if type(request) is wire.RegisterNode and request.node[:2] != (hello.node,
                                                                       hello.incarnation):
            raise Malformed("a node registers nobody but itself")
        reply = await handlers[shape.kind](request)
    except Malformed as error:
        return {"code": int(Code.INVALID_REQUEST), "text": str(error), "leader": 0}
    except REFUSED as error:
        code, detail = refusal(error)
        return {"code": int(code), "text": detail.text, "leader": detail.leader}
    return {"code": int(Code.OK), **reply._asdict()}

