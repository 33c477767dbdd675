"""Requests for chunks of a snapshot and their replies, as bulk connections carry them.

Contract. Encoding and decoding only. What is out of the range of its field is ``Malformed``;
whether a chunk fits the download is decided by ``snapshot_receiver``.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.wire.schema import Malformed

OPERATION = "snapshot"
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class ChunkRequest:
    """Request for the bytes from ``offset`` of the snapshot of ``index``; 0, 0 = of any."""

    group: int
    index: int
    offset: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Part of a snapshot, which index, term and CRC identify."""

    index: int
    term: int
    total: int  # bytes of the whole
    crc: int  # of the whole
    offset: int
    data: bytes | memoryview


def request_header(request: ChunkRequest) -> dict:
    """Return the header of a request."""
    return {"op": OPERATION, "group": request.group, "index": request.index,
            "offset": request.offset}


def read_request(header: dict) -> ChunkRequest:
    """Decode a request. Raises ``Malformed``."""
    return ChunkRequest(*(_number(header, name) for name in ("group", "index", "offset")))


def chunk_header(chunk: Chunk | None) -> dict:
    """Return the header of a reply; None = the node has no snapshot of the group."""
    if chunk is None:
        return {"op": OPERATION, "known": False}
    return {"op": OPERATION, "known": True, "index": chunk.index, "term": chunk.term,
            "total": chunk.total, "crc": chunk.crc, "offset": chunk.offset}


def read_chunk(header: dict, payload: memoryview) -> Chunk | None:
    """Decode a reply; None = the node has no snapshot of the group. Raises ``Malformed``."""
    if header.get("known") is not True:
        return None
    index, term, total, offset = (
        _number(header, name) for name in ("index", "term", "total", "offset"))
    crc = _number(header, "crc", _U32)  # the file of a download stores 32 bits
    return Chunk(index, term, total, crc, offset, payload)


def _number(header: dict, name: str, most: int = _U64) -> int:
    value = header.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise Malformed(f"{name} must be a whole number up to {most}, not {value!r:.40}")
    return value
