"""Headers of frames in CBOR (RFC 8949), in plain Python: a part of the reference.

Contract.  As ``_reference``: same names, results and errors as the compiled twin.  Bytes to decode
are hostile: each announced length is compared with the bytes that are left before it is used.

Theory.  A header uses the values of JSON without fractions, and byte strings.  Tags, floats and
indefinite lengths make decoders large and slow, and are left out.
"""

from __future__ import annotations

import struct
from typing import Any

from multiraft.codec import layout
from multiraft.codec.reference.hashes import contiguous_bytes
from multiraft.codec.values import Buffer
from multiraft.errors import MalformedHeader

_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP, _TAG, _SIMPLE = range(8)
_CONSTANTS = {20: False, 21: True, 22: None}
_PREFIX = struct.Struct(">II")


def encode_header(header: dict[str, Any], payload_bytes: int) -> bytes:
    """Encode ``header`` as the bytes of a frame before its payload.

    Returns three fields: u32 (big-endian) bytes of the frame after this field, u32 bytes of the
    header, the header as CBOR (RFC 8949) in its shortest form.  Keys are text; values are integers
    of 64 bits, text, bytes, booleans, None, lists, tuples and such maps.  O(bytes).

    Raises ``TypeError`` for a value of another type, ``OverflowError`` for an integer or a frame
    that is too large, ``ValueError`` for more than HEADER_DEPTH_MAX nested containers or text that
    UTF-8 cannot encode.
    """
    if not isinstance(header, dict):
        raise TypeError(f"a header is a dict, not {type(header).__name__}")
    out = bytearray()
    _put(out, header, 0)
    length = 4 + len(out) + payload_bytes
    if payload_bytes < 0 or length >= 1 << 32:
        raise OverflowError(f"a frame with {payload_bytes} payload bytes")
    return _PREFIX.pack(length, len(out)) + bytes(out)


def _put(out: bytearray, value: Any, depth: int) -> None:
    if value is None:
        out.append(0xF6)
    elif value is True:
        out.append(0xF5)
    elif value is False:
        out.append(0xF4)
    elif isinstance(value, int):
        _put_integer(out, value)
    elif isinstance(value, str):
        _put_sized(out, _TEXT, value.encode())
    elif isinstance(value, bytes):
        _put_sized(out, _BYTES, value)
    elif isinstance(value, (list, tuple, dict)):
        if depth == layout.HEADER_DEPTH_MAX:
            raise ValueError(f"a depth of more than {layout.HEADER_DEPTH_MAX} containers")
        _put_container(out, value, depth + 1)
    else:
        raise TypeError(f"a header has no place for {type(value).__name__}")


def _put_container(out: bytearray, value: Any, depth: int) -> None:
    if isinstance(value, dict):
        _put_head(out, _MAP, len(value))
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"a key of a header is text, not {type(key).__name__}")
            _put_sized(out, _TEXT, key.encode())
            _put(out, item, depth)
        return
    _put_head(out, _LIST, len(value))
    for item in value:
        _put(out, item, depth)


def _put_integer(out: bytearray, value: int) -> None:
    if not -(1 << 63) <= value < 1 << 64:
        raise OverflowError(f"integer {int(value)} has more than 64 bits")
    if value >= 0:
        _put_head(out, _UNSIGNED, value)
    else:
        _put_head(out, _NEGATIVE, -1 - value)


def _put_sized(out: bytearray, kind: int, data: bytes) -> None:
    _put_head(out, kind, len(data))
    out += data


def _put_head(out: bytearray, kind: int, number: int) -> None:
    """Append a type and its number in the fewest bytes."""
    if number < 24:
        out.append(kind << 5 | number)
        return
    for more, (most, size) in enumerate(((0xFF, 1), (0xFFFF, 2), (0xFFFFFFFF, 4), (1 << 64, 8))):
        if number <= most:
            out.append(kind << 5 | 24 + more)
            out += number.to_bytes(size, "big")
            return


def decode_header(data: Buffer, at: int, end: int) -> dict[str, Any]:
    """Decode the header in ``data[at:end]``, which must be exactly one CBOR map.

    Accepted are the values that ``encode_header`` writes, also in longer forms: definite lengths,
    no tags, no floats, no repeated keys, at most HEADER_DEPTH_MAX nested and HEADER_CONTAINERS_MAX
    containers in all.  O(bytes).

    Raises ``MalformedHeader`` for other bytes, ``ValueError`` if ``data`` has no bytes ``at`` to
    ``end``.
    """
    view = contiguous_bytes(data)
    if not 0 <= at <= end <= len(view):
        raise ValueError(f"bytes {at} to {end} of {len(view)}")
    source = _Source(bytes(view[at:end]))
    header = source.value(0)
    if type(header) is not dict:
        raise MalformedHeader("not a map")
    if source.left:
        raise MalformedHeader(f"{source.left} bytes after the map")
    return header


class _Source:
    """Reader of one CBOR value after the other."""

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0
        self._containers = 0  # lists and maps

    @property
    def left(self) -> int:
        """Number of bytes not read yet."""
        return len(self._data) - self._at

    def value(self, depth: int) -> Any:
        """Read the next value, which ``depth`` containers surround."""
        started = self._at
        kind, number = self._head()
        if kind == _UNSIGNED:
            return number
        if kind == _NEGATIVE:
            if number >> 63:
                raise MalformedHeader(f"byte {started}: an integer below -2**63")
            return -1 - number
        if kind == _BYTES:
            return self._take(number)
        if kind == _TEXT:
            return self._text(number, started)
        if kind == _SIMPLE:
            return _CONSTANTS[number]
        if depth == layout.HEADER_DEPTH_MAX:
            raise MalformedHeader(f"byte {started}: a depth of more than "
                                  f"{layout.HEADER_DEPTH_MAX} containers")
        self._containers += 1
        if self._containers > layout.HEADER_CONTAINERS_MAX:
            raise MalformedHeader(f"byte {started}: more than {layout.HEADER_CONTAINERS_MAX} "
                                  "containers")
        return self._list(number, depth + 1) if kind == _LIST else self._map(number, depth + 1)

    def _head(self) -> tuple[int, int]:
        """Read type and number of the next value; constants have numbers of ``_CONSTANTS``."""
        started = self._at
        first = self._take(1)[0]
        kind, info = first >> 5, first & 31
        if kind == _TAG:
            raise MalformedHeader(f"byte {started}: a tag")
        if kind == _SIMPLE:
            if info not in _CONSTANTS:
                raise MalformedHeader(f"byte {started}: a float or another simple value")
            return kind, info
        if info < 24:
            return kind, info
        if info > 27:
            raise MalformedHeader(f"byte {started}: an indefinite or reserved length")
        return kind, int.from_bytes(self._take(1 << info - 24), "big")

    def _take(self, count: int) -> bytes:
        if count > self.left:
            raise MalformedHeader(f"cut off at byte {len(self._data)}")
        taken = self._data[self._at:self._at + count]
        self._at += count
        return taken

    def _text(self, count: int, started: int) -> str:
        try:
            return self._take(count).decode()
        except UnicodeDecodeError:
            raise MalformedHeader(f"byte {started}: text that is not UTF-8") from None

    def _list(self, count: int, depth: int) -> list:
        if count > self.left:
            raise MalformedHeader(f"cut off at byte {len(self._data)}")
        return [self.value(depth) for _ in range(count)]

    def _map(self, count: int, depth: int) -> dict:
        if count > self.left:
            raise MalformedHeader(f"cut off at byte {len(self._data)}")
        found: dict = {}
        for _ in range(count):
            started = self._at
            kind, number = self._head()
            if kind != _TEXT:
                raise MalformedHeader(f"byte {started}: a key that is not text")
            key = self._text(number, started)
            if key in found:
                raise MalformedHeader(f"byte {started}: a repeated key")
            found[key] = self.value(depth)
        return found
