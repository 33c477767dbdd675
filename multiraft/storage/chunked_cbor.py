"""CBOR of large values, encoded and decoded in chunks, so that other threads get their turn.

Contract.  ``dumps`` gives the bytes that ``cbor2.dumps`` gives, ``loads`` the value that
``cbor2.loads`` gives, for what checkpoints and snapshots are made of: lists, maps with text keys,
numbers, text, bytes, booleans and null, of definite length.  Lists and maps of the first
``CHUNKED_LEVELS`` levels are worked on ``ITEMS_PER_CHUNK`` items at a time.  ``Encoded`` in the
place of a value is what it says.

Theory.  The codec is compiled and keeps the interpreter for as long as it works: with a million
topics that is seconds, in whatever thread it runs.  Between two chunks the interpreter is given to
a thread that waits for it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from itertools import islice

import cbor2

#: Items encoded or decoded at a time: about a millisecond.
ITEMS_PER_CHUNK = 256
#: Levels whose containers may be large: the file, what the node keeps in it, its tables.
CHUNKED_LEVELS = 3

_LIST, _MAP = 4, 5


class Encoded(bytes):
    """A value that is encoded already."""


def dumps(value: object) -> bytes:
    """Return the CBOR of a value, encoded in chunks so that other threads can run between them.
    O(value)."""
    return b"".join(_encoded(value, 0))


def _encoded(value: object, level: int) -> Iterator[bytes]:
    if isinstance(value, Encoded):
        yield value
    elif level < CHUNKED_LEVELS and isinstance(value, dict):
        yield _head(_MAP, len(value))
        for key, item in value.items():
            yield cbor2.dumps(key)
            yield from _encoded(item, level + 1)
    elif level < CHUNKED_LEVELS and isinstance(value, (list, tuple)):
        yield _head(_LIST, len(value))
        if len(value) <= ITEMS_PER_CHUNK:
            for item in value:
                yield from _encoded(item, level + 1)
            return
        items = iter(value)
        while chunk := list(islice(items, ITEMS_PER_CHUNK)):
            data = cbor2.dumps(chunk)
            yield data[len(_head(_LIST, len(chunk))):]
    else:
        yield cbor2.dumps(value)


def _head(kind: int, count: int) -> bytes:
    """Return the type and length of a container, in the fewest bytes."""
    if count < 24:
        return bytes([kind << 5 | count])
    for code, size in ((24, 1), (25, 2), (26, 4)):
        if count < 1 << 8 * size:
            return bytes([kind << 5 | code]) + count.to_bytes(size, "big")
    return bytes([kind << 5 | 27]) + count.to_bytes(8, "big")


def loads(data: bytes) -> object:
    """Return the value in ``data``, decoded in chunks so that other threads can run between them.

    Raise ``cbor2.CBORDecodeError`` when the bytes are malformed or end too early, and
    ``ValueError`` when others follow the value.  O(bytes)."""
    source = io.BytesIO(data)
    value = _decoded(source, cbor2.CBORDecoder(source), 0)
    if source.tell() != len(data):
        raise ValueError(f"{len(data) - source.tell()} bytes behind the value")
    return value


def _decoded(source: io.BytesIO, decoder: cbor2.CBORDecoder, level: int) -> object:
    at = source.tell()
    first = source.read(1)
    kind, info = (first[0] >> 5, first[0] & 31) if first else (-1, 31)
    if level == CHUNKED_LEVELS or kind not in (_LIST, _MAP) or info > 27:
        source.seek(at)
        return decoder.decode()
    count = info if info < 24 else int.from_bytes(source.read(1 << info - 24), "big")
    if kind == _LIST:
        return [_decoded(source, decoder, level + 1) for _ in range(count)]
    return {decoder.decode(): _decoded(source, decoder, level + 1) for _ in range(count)}
