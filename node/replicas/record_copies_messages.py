"""Requests for the records of a range of indexes and their replies, as bulk connections carry them.

Contract. Encoding and decoding only; what is invalid is ``Malformed``. What the copies are compared
with is in the store (``LocalRepair.stage_records``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from multiraft.core import frame_entries, parse_entries
from multiraft.errors import CorruptEntry
from multiraft.types import Entry
from multiraft.wire.schema import Malformed

OPERATION = "records"
#: Framed bytes of the records in a reply, unless a single one is larger: small enough to be sent
#: again, and large enough to make the round trip negligible.
CHUNK_BYTES = 1 << 20
#: Indexes of a request: so many records are placed in the journal in one turn of the loop.
INDEXES_MAX = 2_048
#: Longest pause that a reply may ask for, in milliseconds.
PAUSE_MS_MAX = 10_000
_U64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class RecordsRequest:
    """Request for all records with indexes in [first, last] of one incarnation of a group."""

    group: int
    incarnation: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class RecordsReply:
    """Records of one member, ascending: all of the indexes from the requested first one to
    ``through``, but for those in ``lacking``."""

    entries: tuple[Entry, ...]
    #: Last index of which the reply tells; below the requested first one if of none.
    through: int
    #: Ranges, (first, last), of indexes whose records the member lacks itself.
    lacking: tuple[tuple[int, int], ...] = ()
    #: The request is to be repeated after so many milliseconds: the member's rate is used up.
    pause_ms: int = 0


def request_header(request: RecordsRequest) -> dict:
    """Return the header of a request."""
    return {"op": OPERATION, "group": request.group, "incarnation": request.incarnation,
            "first": request.first, "last": request.last}


def read_request(header: dict) -> RecordsRequest:
    """Decode a request. Raises ``Malformed``."""
    request = RecordsRequest(_number(header, "group", 1), _number(header, "incarnation", 1),
                             _number(header, "first", 1), _number(header, "last", 1))
    if not request.first <= request.last < request.first + INDEXES_MAX:
        raise Malformed(f"records of indexes {request.first} to {request.last}, at most "
                        f"{INDEXES_MAX} are answered")
    return request


def reply_frame(reply: RecordsReply | None) -> tuple[dict, Sequence]:
    """Return header and payload of a reply; None = the node does not have the group."""
    if reply is None:
        return {"op": OPERATION, "known": False}, []
    buffers = frame_entries(reply.entries, 0, 0)[0] if reply.entries else []
    return {"op": OPERATION, "known": True, "through": reply.through,
            "lacking": list(map(list, reply.lacking)), "pause_ms": reply.pause_ms}, buffers


def read_reply(request: RecordsRequest, header: dict, payload: memoryview) -> RecordsReply | None:
    """Decode the reply of a peer; None = the peer does not have the group. Raises ``Malformed`` for
    invalid fields or a damaged copy."""
    if header.get("op") != OPERATION or header.get("known") is not True:
        return None
    try:
        entries = tuple(parse_entries(payload)) if len(payload) else ()
    except CorruptEntry as error:
        raise Malformed(f"a copy from a peer: {error}") from error
    through = _number(header, "through")
    if not request.first - 1 <= through <= request.last:
        raise Malformed(f"records up to index {through}, {request.first} to {request.last} were "
                        f"requested")
    return RecordsReply(entries, through, _ranges(header.get("lacking")),
                        _number(header, "pause_ms", 0, PAUSE_MS_MAX))


def _ranges(rows: object) -> tuple[tuple[int, int], ...]:
    if type(rows) is not list or len(rows) > INDEXES_MAX:
        raise Malformed(f"more than {INDEXES_MAX} ranges of indexes")
    for row in rows:
        if (type(row) is not list or len(row) != 2
                or not all(type(value) is int and 0 < value <= _U64 for value in row)):
            raise Malformed(f"no range of indexes: {row!r:.60}")
    return tuple((first, last) for first, last in rows)


def _number(header: dict, name: str, least: int = 0, most: int = _U64) -> int:
    value: Any = header.get(name)
    if type(value) is not int or not least <= value <= most:
        raise Malformed(f"{name} must be a whole number from {least} to {most}, not {value!r:.40}")
    return value
