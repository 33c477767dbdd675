"""Requests from node to node: to register, to record members, to take over a partition.

Contract. ``ask(peer, request)`` returns the reply, or raises the error that a client would receive:
``RequestError`` for a definite refusal, ``AmbiguousOutcome`` without a reply. Requests travel on
bulk connections, whose handshake proves the identity of the sender; no client can send them in its
place.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from multiraft.wire import messages, placements, plans, sinks
from multiraft.wire import nodes as wire
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    ErrorDetail,
    QueueFull,
    exception_for,
)
from multiraft.wire.schema import Malformed, Shape
from node.peers.bulk_channel import Bulk, Handler
from node.peers.errors import NoAnswer, NotSent
from node.request_errors import REFUSED

REQUESTS = {**wire.PEER_REQUESTS, **messages.PEER_REQUESTS, **placements.PEER_REQUESTS,
            **plans.PEER_REQUESTS, **sinks.PEER_REQUESTS}
RESPONSES = {**wire.PEER_RESPONSES, **messages.PEER_RESPONSES, **placements.PEER_RESPONSES,
             **plans.PEER_RESPONSES, **sinks.PEER_RESPONSES}
OPS = {shape.kind: op for op, shape in REQUESTS.items()}

#: Request -> its handler, which raises one of ``REFUSED``.
Handlers = dict[type, Callable[[Any], Awaitable[Any]]]


class PeerAsker:
    """The asking end of requests between nodes, over some bulk connections."""

    def __init__(self, bulk: Bulk):
        self._bulk = bulk

    async def ask(self, peer: int, request: Any) -> Any:
        """Send a request to one node and return its reply. Raises ``RequestError`` for a refusal,
        ``QueueFull`` if it was not sent, ``AmbiguousOutcome`` if no valid answer comes."""
        op = OPS[type(request)]
        try:
            answer = await self._bulk.ask(peer, {"op": op, **REQUESTS[op].header(request)})
            fields = dict(answer.header)
            code = fields.pop("code", None)
            if code == Code.OK:
                return RESPONSES[op].read(fields)
            refused = _refused(code, fields)
        except NotSent as error:
            raise QueueFull(str(error)) from error
        except (NoAnswer, Malformed) as error:
            raise AmbiguousOutcome(f"{op}: {error}") from error
        raise refused


class PeerRequests(PeerAsker):
    """Both ends of requests between nodes.

    ``handlers`` may grow until the first request arrives. ``refusal(error)`` returns code and
    detail. ``served``: table for the handlers of incoming requests, by default that of ``bulk``.
    """

    def __init__(self, bulk: Bulk, handlers: Handlers, refusal: Callable,
                 served: dict | None = None):
        super().__init__(bulk)
        self._handlers = handlers
        self._refusal = refusal
        for op, shape in REQUESTS.items():
            (bulk.handlers if served is None else served)[op] = self._handler(op, shape)

    def _handler(self, op: str, shape: Shape) -> Handler:
        async def handle(peer: int, header: dict, _payload: memoryview) -> tuple[dict, tuple]:
            fields = dict(header)
            del fields["op"]
            request = shape.read(fields)
            if type(request) is wire.RegisterNode and request.node.id != peer:
                raise Malformed("a node may register only itself")
            try:
                reply = await self._handlers[shape.kind](request)
            except REFUSED as error:
                code, detail = self._refusal(error)
                return {"code": int(code), "text": detail.text, "leader": detail.leader}, ()
            return {"code": int(Code.OK), **RESPONSES[op].header(reply)}, ()

        return handle


def _refused(code: object, fields: dict) -> Exception:
    """Return the error that a refusal stands for. Raises ``Malformed`` if the fields are no
    refusal."""
    text, leader = fields.get("text"), fields.get("leader")
    if type(code) is not int or type(text) is not str or type(leader) is not int:
        raise Malformed("neither an answer nor a refusal")
    return exception_for(code, ErrorDetail(text, leader=leader))
