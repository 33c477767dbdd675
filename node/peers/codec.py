"""The codec of peer frames: consensus messages as items, and back.

Contract. A frame's header is ``{"i": [[type, field, ...], ...]}``. Its payload is the entries of
all ``Append`` items one after the other; each item states the size of its own. ``decode`` returns
messages with parsed and CRC-checked entries, and raises ``RemoteProtocolError`` for any other
input. An item of an unknown type is an error of the connection, because its first frame has agreed
on a version.
"""

from __future__ import annotations

from collections.abc import Sequence

from multiraft.core import parse_entries
from multiraft.errors import CorruptEntry
from multiraft.liveness.leadership_digest import BUCKETS
from multiraft.raft import messages as m
from multiraft.raft.messages import Message
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import Buffer, Frame, encode_frame

#: Items per frame: decoded in one piece, in some milliseconds.
ITEMS_PER_FRAME_MAX = 1024
#: Items per frame of earlier releases; a frame with more is refused.
ITEMS_ACCEPTED_MAX = 4096
#: Bytes of a frame that are reserved for prefix and header.
HEADER_ROOM_BYTES = 1 << 20

_APPEND = 3
_TYPES: dict[type, int] = {
    m.VoteRequest: 1,
    m.VoteReply: 2,
    m.Append: _APPEND,
    m.AppendReply: 4,
    m.TimeoutNow: 5,
    m.DigestQuery: 6,
    m.DigestAnswer: 7,
    m.LeadershipDeltaRequest: 8,
    m.LeadershipDelta: 9,
    m.Removed: 10,
    m.HeadRecoveryRequest: 20,
    m.HeadRecoveryGrant: 21,
    m.SnapshotOffer: 22,
}
_KINDS = {code: kind for kind, code in _TYPES.items()}
_WITH_ROWS = frozenset({6, 7, 9})
#: Creates a named tuple from all its fields, without its constructor in Python.
_new = tuple.__new__
#: Position of an append's entries in the message; on the wire it holds their size in bytes.
_ENTRIES_AT = 8

#: Terms grow by one per election and never reach this. Leader epochs in batches have 31 bits, and a
#: peer's term must leave room for the terms of later elections.
TERM_MAX = 1 << 30
#: Group ids are below this, whatever the size of the pool.
GROUP_MAX = 1 << 16
_U32 = (1 << 32) - 1
_U64 = (1 << 64) - 1
_BOOL = -1
_ROWS = -2  # a list, see ``_check_rows``
#: Type of item -> maximum of the type and of each field.
_FIELDS: dict[int, tuple[int, ...]] = {
    1: (1, GROUP_MAX, _U32, TERM_MAX, _U64, TERM_MAX, _BOOL, _BOOL),
    2: (2, GROUP_MAX, _U32, TERM_MAX, _BOOL, _BOOL),
    _APPEND: (_APPEND, GROUP_MAX, _U32, TERM_MAX, _U64, TERM_MAX, _U64, _U64, _U32, _U64),
    4: (4, GROUP_MAX, _U32, TERM_MAX, _U32, _U64, _U64, _U64, TERM_MAX, _U64),
    5: (5, GROUP_MAX, _U32, TERM_MAX),
    6: (6, _ROWS),
    7: (7, _ROWS, _ROWS),
    8: (8, _U64),
    9: (9, _U64, _U64, _ROWS),
    10: (10, GROUP_MAX, _U32, TERM_MAX, _U64, _U64),
    20: (20, GROUP_MAX, _U32, TERM_MAX, _U64),
    21: (21, GROUP_MAX, _U32, TERM_MAX, _U64, _U64),
    22: (22, GROUP_MAX, _U32, TERM_MAX, _U64, _U64),
}
_LED = (GROUP_MAX, _U32, TERM_MAX)
_CHANGE = (GROUP_MAX, _U32, TERM_MAX, _BOOL)


def encode(message: Message, payload_bytes: int) -> list:
    """Return the item of a message. ``payload_bytes``: bytes of its entries in the payload (appends
    only)."""
    item = [_TYPES[type(message)], *message]
    if item[0] == _APPEND:
        item[_ENTRIES_AT] = payload_bytes  # replaces the entries
    return item


def frame(items: list, payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the buffers of one frame."""
    return encode_frame({"i": items}, payload)


def decode(received: Frame) -> list:
    """Return the messages of a frame, in order. Raises ``RemoteProtocolError`` for a malformed or
    unknown item, a damaged entry, and too many items."""
    header, payload = received
    items = header.get("i")
    if type(items) is not list:
        raise RemoteProtocolError("a peer frame without a list of items")
    if len(items) > ITEMS_ACCEPTED_MAX:
        raise RemoteProtocolError(f"a peer frame of {len(items)} items, the limit is "
                                  f"{ITEMS_ACCEPTED_MAX}")
    decoded: list[Message] = []
    at = 0
    for item in items:
        if type(item) is not list or not item or type(item[0]) is not int:
            raise RemoteProtocolError(f"not an item: {item!r:.80}")
        code = item[0]
        limits = _FIELDS.get(code)
        if limits is None:
            raise RemoteProtocolError(f"items of type {code} are not known")
        kind = _KINDS[code]
        _check(kind, item, limits)
        if code == _APPEND:
            size = item[_ENTRIES_AT]
            item[_ENTRIES_AT] = _entries(payload, at, size) if size else ()
            at += size
        elif code in _WITH_ROWS:
            _check_rows(kind, item)
        decoded.append(_new(kind, item[1:]))
    if at != len(payload):
        raise RemoteProtocolError(f"{len(payload) - at} bytes belong to no item")
    return decoded


def _entries(payload: memoryview, at: int, size: int) -> tuple:
    """Return the entries in ``size`` bytes of the payload."""
    if size > len(payload) - at:
        raise RemoteProtocolError(f"an append names {size} bytes, {len(payload) - at} are there")
    try:
        return tuple(parse_entries(payload[at:at + size]))
    except CorruptEntry as error:
        raise RemoteProtocolError(f"an entry from a peer: {error}") from error


def _check(kind: type, fields: object, limits: tuple[int, ...]) -> None:
    """Raise ``RemoteProtocolError`` unless the fields are integers within their limits, and
    booleans or lists where ``limits`` says so."""
    if type(fields) is not list or len(fields) != len(limits):
        raise RemoteProtocolError(f"{kind.__name__} with other than {len(limits)} fields")
    for value, most in zip(fields, limits, strict=True):
        if most >= 0:
            sound = type(value) is int and 0 <= value <= most
        else:
            sound = type(value) is (bool if most == _BOOL else list)
        if not sound:
            raise RemoteProtocolError(f"{kind.__name__} with a field {value!r:.80}")


def _check_rows(kind: type, item: list) -> None:
    """Check each row of an item's lists, and turn them into tuples."""
    if kind is m.DigestQuery:
        _check(kind, item[1], (_U64,) * BUCKETS)
        item[1] = tuple(item[1])
    elif kind is m.DigestAnswer:
        _check(kind, item[1], (BUCKETS - 1,) * min(len(item[1]), BUCKETS))
        item[1:] = tuple(item[1]), _rows(kind, item[2], _LED)
    else:
        assert kind is m.LeadershipDelta, kind
        item[3] = _rows(kind, item[3], _CHANGE)


def _rows(kind: type, rows: list, limits: tuple[int, ...]) -> tuple:
    for row in rows:
        _check(kind, row, limits)
    return tuple(map(tuple, rows))
