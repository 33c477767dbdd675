"""Consensus messages as items of a peer frame, and back.

Contract.  A frame's header is ``{"i": [[type, field, ...], ...]}``; the payload is the entries of all
``Append`` items one after the other, each item saying how many bytes are its own.  ``decode`` returns
messages with parsed and CRC-checked entries and raises ``RemoteProtocolError`` for whatever is not
that; an item of a type this version does not know is an error of the whole connection, because
versions are agreed on in its first frame.
"""

from __future__ import annotations

from multiraft import messages as m
from multiraft.core import parse_entries
from multiraft.digest import BUCKETS
from multiraft.errors import CorruptEntry
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import Frame, encode_frame

#: Items of one frame: with their header at about 30 bytes each it stays far below the header limit.
ITEMS_PER_FRAME_MAX = 4096
#: Reserved in a frame for prefix and header.
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
    m.LedRequest: 8,
    m.LedChanges: 9,
}
_KINDS = {code: kind for kind, code in _TYPES.items()}
#: Types whose fields are all numbers: everything about one group.
_FLAT = frozenset(code for kind, code in _TYPES.items() if "group" in kind._fields)
_APPEND_FIELDS = 7  # without the entries


def encode(message, payload_bytes: int) -> list:
    """One item; ``payload_bytes`` = bytes of its entries in the payload (appends only)."""
    code = _TYPES[type(message)]
    if code == _APPEND:
        return [code, *message[:_APPEND_FIELDS], payload_bytes]
    return [code, *message]


def frame(items: list, payload: list = ()) -> list:
    """Buffers of one frame."""
    return encode_frame({"i": items}, payload)


def decode(received: Frame) -> list:
    """Messages of a frame, in order.  Raises ``RemoteProtocolError``."""
    items = received.header.get("i")
    if type(items) is not list:
        raise RemoteProtocolError("a peer frame without a list of items")
    decoded = []
    at = 0
    for item in items:
        message, at = _decode_item(item, received.payload, at)
        decoded.append(message)
    if at != len(received.payload):
        raise RemoteProtocolError(f"{len(received.payload) - at} bytes belong to no item")
    return decoded


def _decode_item(item: object, payload: memoryview, at: int):
    if type(item) is not list or not item or type(item[0]) is not int:
        raise RemoteProtocolError(f"not an item: {item!r}")
    kind = _KINDS.get(item[0])
    if kind is None:
        raise RemoteProtocolError(f"items of type {item[0]} are not known")
    if item[0] == _APPEND:
        return _decode_append(item, payload, at)
    if len(item) != 1 + len(kind._fields):
        raise RemoteProtocolError(f"{kind.__name__} with {len(item) - 1} fields")
    if item[0] in _FLAT:
        _check_numbers(item)
        return kind._make(item[1:]), at
    message = kind(*(_plain(value) for value in item[1:]))
    _check_shape(message)
    return message, at


def _decode_append(item: list, payload: memoryview, at: int) -> tuple[m.Append, int]:
    if len(item) != 2 + _APPEND_FIELDS:
        raise RemoteProtocolError(f"Append with {len(item) - 1} fields")
    _check_numbers(item)
    size = item[-1]
    if size > len(payload) - at:
        raise RemoteProtocolError(f"an append names {size} bytes, {len(payload) - at} are there")
    entries = ()
    if size:
        try:
            entries = tuple(parse_entries(payload[at:at + size]))
        except CorruptEntry as error:
            raise RemoteProtocolError(f"an entry from a peer: {error}") from error
    return m.Append(*item[1:1 + _APPEND_FIELDS], entries), at + size


def _check_numbers(item: list) -> None:
    """Every field is a whole number that is not negative, or a truth value."""
    for value in item:
        kind = value.__class__
        if kind is not bool and (kind is not int or value < 0):
            raise RemoteProtocolError(f"field {value!r} of an item")


def _plain(value: object):
    """A whole number that is not negative, a truth value, or rows of such (digests)."""
    if type(value) is list:
        return tuple(_plain(one) for one in value)
    if type(value) is bool or (type(value) is int and value >= 0):
        return value
    raise RemoteProtocolError(f"field {value!r} of an item")


def _check_shape(message) -> None:
    """What the core assumes of messages that carry rows; the others have whole numbers only."""
    kind = type(message)
    if kind is m.DigestQuery:
        sound = _numbers(message.buckets, BUCKETS)
    elif kind is m.DigestAnswer:
        sound = (_numbers(message.buckets, None) and all(b < BUCKETS for b in message.buckets)
                 and type(message.led) is tuple and all(_numbers(row, 3) for row in message.led))
    elif kind is m.LedChanges:
        sound = (type(message.since) is int and type(message.version) is int
                 and type(message.changes) is tuple
                 and all(_numbers(row, 4) for row in message.changes))
    else:
        sound = type(message.since) is int
    if not sound:
        raise RemoteProtocolError(f"{kind.__name__} with fields that are not its own")


def _numbers(row: object, count: int | None) -> bool:
    return (type(row) is tuple and (count is None or len(row) == count)
            and not any(type(value) is tuple for value in row))
