"""Bulk connections of one boot: requests of the product's parts to other nodes, and replies.

Contract.  As ``node.peers.bulk_channel.Bulk``: ``ask`` returns the reply of a peer, and the handler
of its ``op`` answers a request.  A frame may be lost, late or doubled.  A request without a reply
fails after ``ANSWER_US``; a reply that comes later is ignored.  Everything pending ends with the
boot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from chaos.simulator.node.machine.coroutines import Future, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.peers.connections import Connections
from multiraft.errors import MultiRaftError
from node.peers.errors import NoAnswer

#: Time until a request without a reply fails: longer than a clogged link delays, and shorter than
#: in the real node, because the simulator loses frames where a connection would break.
ANSWER_US = 500_000

#: (peer, header, payload) -> (header, payload buffers), as ``node.peers.bulk_channel.Handler``.
Handler = Callable[[int, dict, memoryview], Awaitable[tuple[dict, Sequence]]]


class BulkRequest(NamedTuple):
    """Request of one node to another."""

    number: int
    header: dict


class BulkReply(NamedTuple):
    """Reply to a request."""

    number: int
    header: dict
    payload: bytes


class BulkChannel:
    """Requests of one boot, and the handlers of other nodes' requests."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, fail_points: FailPoints,
                 connections: Connections):
        self.handlers: dict[str, Handler] = {}
        self._counters = env.counters
        self._process = process
        self._fail_points = fail_points
        self._connections = connections
        self._asked: dict[int, Future] = {}  # request -> its reply

    async def ask(self, peer: int, header: dict) -> BulkReply:
        """Send a request to ``peer`` and return its reply.  Raises ``NoAnswer`` without a
        connection, and after ``ANSWER_US``."""
        if peer not in self._connections:
            raise NoAnswer(f"node {peer} is not connected")
        self._counters.requests += 1
        number, reply = self._counters.requests, Future()
        self._asked[number] = reply
        self._fail_points.effect()
        self._connections.send_bulk(peer, BulkRequest(number, header))
        self._process.later(ANSWER_US, self._give_up, number)
        answer = await reply
        if answer is None:
            raise NoAnswer(f"node {peer}: too slow")
        return answer

    def _give_up(self, number: int) -> None:
        waiting = self._asked.pop(number, None)
        if waiting is not None:
            waiting.set_result(None)

    def take_reply(self, reply: BulkReply) -> None:
        """Resume the coroutine that waits for a reply, if there is one."""
        waiting = self._asked.pop(reply.number, None)
        if waiting is not None:
            waiting.set_result(reply)

    def serve(self, sender: int, request: BulkRequest) -> None:
        """Start to serve a request, and reply when that has ended.  An error of the product is a
        defect: no node sends an invalid request."""
        def over(value: Any, error: MultiRaftError | None) -> None:
            if error is not None:
                raise error
            header, buffers = value
            self._fail_points.effect()
            self._connections.send_bulk(
                sender, BulkReply(request.number, header, b"".join(map(bytes, buffers))))

        handler = self.handlers[request.header["op"]]
        start(handler(sender, request.header, memoryview(b"")), self._process.later, over)
