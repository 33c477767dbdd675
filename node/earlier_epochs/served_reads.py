"""Reads that this node serves to other nodes, over bulk connections.

Contract. A request is a ``Fetch`` or ``ListOffsets`` of the client port for one partition, with the
metadata index that the asking node has applied. It is answered at once from the replica on this
node, whether that leads or not, and never waits for records. A fetch returns at most
``READ_BYTES_MAX`` bytes, unless one batch is larger. A bulk connection carries one request at a
time, so a node has at most one read in progress for each peer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Frame
from multiraft.wire.messages import (
    ANY,
    OPS,
    REQUESTS,
    RESPONSES,
    Fetch,
    FetchReply,
    FetchResult,
    ListOffsets,
    ListOffsetsReply,
    OffsetResult,
)
from multiraft.wire.schema import Malformed
from node.clients.awaited import ReadCalls, ReadHandler
from node.peers.bulk_channel import Bulk, Handler
from node.request_errors import REFUSED, request_error

#: Bytes of the records that one read returns: small enough that what waits for the same connection
#: is delayed by milliseconds, and large enough to make the round trip negligible.
READ_BYTES_MAX = 1 << 20

_INDEX = "metadata_index"
_U64 = (1 << 64) - 1
FETCH, LIST_OFFSETS = OPS[Fetch], OPS[ListOffsets]


class Peer(NamedTuple):
    """A node that asks; the owner of the steps that its reads take."""

    node: int


def request_header(request: Fetch | ListOffsets, metadata_index: int) -> dict:
    """Return the header of a request."""
    op = OPS[type(request)]
    return {"op": op, _INDEX: metadata_index, **REQUESTS[op].header(request)}


def read_reply(request: Fetch | ListOffsets, frame: Frame) -> Any:
    """Return the reply to ``request`` that a frame holds. Raises ``Malformed``."""
    fields = dict(frame.header)
    op = OPS[type(request)]
    if fields.pop("op", None) != op:
        raise Malformed(f"no answer to {op}")
    reply: Any = RESPONSES[op].read(fields, frame.payload)
    if [row.incarnation for row in reply.results] != [
            row.incarnation for row in request.partitions]:
        raise Malformed(f"an answer to another {op}")
    return reply


class ServedReads:
    """The handlers of reads of other nodes."""

    def __init__(self, bulk: Bulk, calls: ReadCalls, fetch_handler: ReadHandler,
                 offsets: ReadHandler, leader_detail: Callable[[int], tuple[Code, ErrorDetail]]):
        self._calls = calls
        self._leader_detail = leader_detail
        bulk.handlers[FETCH] = self._handler(FETCH, fetch_handler, _check_fetch, _refused_fetch)
        bulk.handlers[LIST_OFFSETS] = self._handler(LIST_OFFSETS, offsets, _check_query,
                                                    _refused_query)

    def _handler(self, op: str, handler: ReadHandler, check: Callable[[Any], None],
                 refused: Callable[[int, Code, ErrorDetail], Any]) -> Handler:
        async def handle(peer: int, header: dict, _payload: memoryview) -> tuple[dict, Sequence]:
            fields = dict(header)
            del fields["op"]
            index = fields.pop(_INDEX, None)
            if type(index) is not int or not 0 <= index <= _U64:
                raise Malformed(f"{_INDEX} must be a whole number")
            request: Any = REQUESTS[op].read(fields)
            if len(request.partitions) != 1:
                raise Malformed(f"a {op} between nodes names one partition")
            check(request)
            payload: Sequence = ()
            try:
                reply, payload = await self._calls.ask(handler, Peer(peer), request, index)
            except REFUSED as error:
                reply = refused(request.partitions[0].incarnation,
                                *request_error(error, self._leader_detail))
            return {"op": op, **RESPONSES[op].header(reply)}, payload

        return handle


def _check_fetch(request: Fetch) -> None:
    if request.replica != ANY or request.wait_max_ms or max(
            request.bytes_max, request.partitions[0].bytes_max) > READ_BYTES_MAX:
        raise Malformed(f"a fetch between nodes is from any replica, without waiting, and of "
                        f"{READ_BYTES_MAX} bytes at most")


def _check_query(request: ListOffsets) -> None:
    if request.linearizable:
        raise Malformed("a query between nodes is not linearizable")


def _refused_fetch(incarnation: int, code: Code, detail: ErrorDetail) -> FetchReply:
    return FetchReply((FetchResult(incarnation, code, -1, -1, 0, detail),))


def _refused_query(incarnation: int, code: Code, detail: ErrorDetail) -> ListOffsetsReply:
    return ListOffsetsReply((OffsetResult(incarnation, code, -1, detail),))
