"""Framing of messages: encoding and decoding of lengths and headers.

    u32 frame length, big-endian (bytes after this field)
    u32 header length, big-endian
    header: one CBOR map
    payload: raw bytes to the end of the frame

Contract.  ``FrameReader`` provides memory for ``recv_into`` and returns whole frames, whose
payloads are writable views of that memory.  The reader never writes to the memory of a returned
frame again, so a payload may be stamped, stored and served without a copy while a reference to it
exists.  Each length is compared with its limit before memory of that size is allocated.  The frames
do not depend on how the byte stream is cut.  Bytes that violate the protocol raise
``RemoteProtocolError`` and no other exception, and the reader is finished after it; the first bytes
of another protocol raise its subclass ``ForeignProtocol``.

Theory.  Small frames share a chunk, which is replaced when it is full.  A large frame that does not
fit into the rest of the chunk gets a buffer of exactly its size.  Bytes of it that arrived before
its length was known have to be copied.  After such a frame the reader therefore receives at most
``PEEK_BYTES`` first, so that each of several large frames in a row costs one small copy and one
more system call, instead of a copy of half the data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, NoReturn, Sequence

from multiraft import core
from multiraft.errors import MalformedHeader
from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import BYTES_MIN, ForeignProtocol, recognise

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")
LENGTH_BYTES = _LENGTH.size
PREFIX_BYTES = _LENGTHS.size
#: A named tuple from its fields, without the Python function in front of it.
_new = tuple.__new__

#: Bytes of one receive while frames are small; also the memory of an idle connection.
CHUNK_BYTES_MIN = 16 << 10
#: Chunks double up to this size while receives fill them: one call empties a socket buffer.
CHUNK_BYTES_MAX = 256 << 10
#: Bytes of the frame after a large one that are received before its length is known.
PEEK_BYTES = 4 << 10
#: Limit of a frame before the handshake is complete: a Hello has about 100 bytes.
HANDSHAKE_BYTES_MAX = 4 << 10


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Limits of one connection."""

    #: Holds the largest batch (8 MiB) with its header and lets several smaller ones share a frame.
    frame_bytes_max: int = 16 << 20
    #: A header names partitions and codes, at about 20 bytes each: room for 50,000 of them.
    header_bytes_max: int = 1 << 20
    #: Requests without an answer on one connection.  Beyond it the reader pauses, which stops the
    #: sender through TCP.
    in_flight_max: int = 64


DEFAULT_LIMITS = WireLimits()
HANDSHAKE_LIMITS = WireLimits(HANDSHAKE_BYTES_MAX, HANDSHAKE_BYTES_MAX, 1)


class Frame(NamedTuple):
    """One message: its decoded header and a writable view of its payload."""

    header: dict[str, Any]
    payload: memoryview


# ---- headers ----------------------------------------------------------------------------------


def decode_header(data: Buffer) -> dict[str, Any]:
    """Return the decoded header ``data``, which was stored without a frame. The caller bounds
    ``len(data)``. Raises ``RemoteProtocolError`` for bytes that are no CBOR of a header.
    O(bytes)."""
    try:
        return core.decode_header(data, 0, len(data))
    except MalformedHeader as error:
        raise RemoteProtocolError(f"header is not acceptable CBOR: {error}") from None


# ---- sending ----------------------------------------------------------------------------------


def encode_frame(header: dict[str, Any], payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return the buffers of a frame for a gathered send: prefix and header in one, then those of
    ``payload``, not copied."""
    return [core.encode_header(header, payload_size(payload)), *payload]


def payload_size(payload: Sequence[Buffer]) -> int:
    """Return the number of bytes of all buffers.  O(buffers)."""
    total = 0
    for buffer in payload:
        total += buffer.nbytes if type(buffer) is memoryview else len(buffer)
    return total


# ---- receiving --------------------------------------------------------------------------------


class FrameReader:
    """Decoder of received bytes into frames, without copies of payloads.

        reader = FrameReader(limits)
        count = sock.recv_into(reader.buffer_for_receive())
        reader.received(count)
        while (frame := reader.next_frame()) is not None: ...

    Invariants.  Bytes [_start, _end) of ``_chunk`` are received and not consumed.  While ``_large``
    is set, it is the buffer of the frame that is being received, ``_filled`` of its bytes have
    arrived, and the chunk is empty.
    """

    __slots__ = ("limits", "admit", "header_bytes", "_chunk", "_view", "_start", "_end",
                 "_chunk_bytes", "_peek", "_large", "_filled", "_failed")

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS):
        self.limits = limits  # may be replaced between frames: the handshake has its own
        #: (bytes) -> True if a large frame may have that memory now.  It is called again until it
        #: returns True, and the driver must not receive meanwhile.  None = no limit.
        self.admit: Callable[[int], bool] | None = None
        self.header_bytes = 0  # of the last frame; 0 = none arrived yet
        self._chunk_bytes = CHUNK_BYTES_MIN
        self._chunk: bytearray = core.unset_memory(self._chunk_bytes)
        self._view = memoryview(self._chunk)
        self._start = 0
        self._end = 0
        self._peek = False
        self._large: memoryview | None = None
        self._filled = 0
        self._failed: RemoteProtocolError | None = None

    @property
    def mid_frame(self) -> bool:
        """True if part of a frame has arrived: an end of the stream now is a truncation."""
        return self._large is not None or self._end > self._start

    @property
    def arrived(self) -> int:
        """Bytes that have arrived of a large frame; 0 = no large frame is being received."""
        return 0 if self._large is None else self._filled

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into; never empty.  Call ``next_frame`` until None first."""
        if self._large is not None:
            assert self._filled < len(self._large), "a complete frame was not taken"
            return self._large[self._filled:]
        if self._end == len(self._chunk):
            self._renew_chunk()
        if self._peek and self._end == self._start:
            return self._view[self._end:self._end + PEEK_BYTES]
        return self._view[self._end:]

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received into the last ``buffer_for_receive()``.
        Nothing is parsed until ``next_frame``."""
        assert count > 0, "the end of the stream is not received bytes"
        if self._large is not None:
            self._filled += count
            assert self._filled <= len(self._large)
            return
        self._end += count
        room = len(self._chunk) - self._end
        assert room >= 0
        if not room:
            self._chunk_bytes = min(self._chunk_bytes * 2, CHUNK_BYTES_MAX)

    def next_frame(self) -> Frame | None:
        """Return the next complete frame; None = more bytes are needed, or memory that ``admit``
        refuses now.  Raises ``RemoteProtocolError``, and from then on the same error.  O(header
        bytes)."""
        if self._failed is not None:
            raise self._failed
        start = self._start
        try:
            if self._large is not None:
                return self._next_large()
            available = self._end - start
            if available < PREFIX_BYTES:
                if available >= LENGTH_BYTES:
                    self._check_beginning()
                return None
            length, header_bytes = _LENGTHS.unpack_from(self._chunk, start)
            limits = self.limits
            if length > limits.frame_bytes_max or header_bytes > limits.header_bytes_max or (
                    length < LENGTH_BYTES + header_bytes):
                self._refuse(length, header_bytes)
            payload_at = start + PREFIX_BYTES + header_bytes
            end = start + LENGTH_BYTES + length
            if end > self._end:
                self._wait_for(end)
                return None
            header = core.decode_header(self._chunk, start + PREFIX_BYTES, payload_at)
        except MalformedHeader as error:
            self._failed = RemoteProtocolError(f"header is not acceptable CBOR: {error}")
            raise self._failed from None
        except RemoteProtocolError as error:
            self._failed = self._explained(error)
            raise self._failed from None
        self._start = end
        self._peek = False
        self.header_bytes = header_bytes
        return _new(Frame, (header, self._view[payload_at:end]))

    def _explained(self, error: RemoteProtocolError) -> RemoteProtocolError:
        """Return the error to raise: ``ForeignProtocol`` if the first bytes of the stream belong to
        another protocol."""
        protocol = None
        if not self.header_bytes:
            protocol = recognise(bytes(self._view[self._start:min(self._end,
                                                                  self._start + BYTES_MIN)]))
        return error if protocol is None else ForeignProtocol(protocol)

    def _next_large(self) -> Frame | None:
        whole = self._large
        assert whole is not None
        if self._filled < len(whole):
            return None
        self._large = None
        self._peek = True
        self.header_bytes = _LENGTH.unpack_from(whole, LENGTH_BYTES)[0]
        payload_at = PREFIX_BYTES + self.header_bytes
        return Frame(core.decode_header(whole, PREFIX_BYTES, payload_at), whole[payload_at:])

    def _check_beginning(self) -> None:
        """Raise if the frame length is invalid, before the header length has arrived."""
        length = _LENGTH.unpack_from(self._chunk, self._start)[0]
        if not LENGTH_BYTES <= length <= self.limits.frame_bytes_max:
            self._refuse(length, 0)

    def _refuse(self, length: int, header_bytes: int) -> NoReturn:
        """Raise the error that names the invalid length of a frame."""
        if length > self.limits.frame_bytes_max:
            raise FrameTooLarge("frame", self.limits.frame_bytes_max, length)
        if length < LENGTH_BYTES:
            raise RemoteProtocolError(f"frame of {length} bytes has no header length")
        if header_bytes > self.limits.header_bytes_max:
            raise FrameTooLarge("header", self.limits.header_bytes_max, header_bytes)
        raise RemoteProtocolError(f"header of {header_bytes} bytes in a frame of {length}")

    def _wait_for(self, end: int) -> None:
        """Provide memory for the rest of a frame that ends at byte ``end`` of the chunk: the chunk
        if it reaches so far, a new chunk, or a buffer of its own."""
        if end > len(self._chunk):
            total = end - self._start
            if total <= self._chunk_bytes // 4:
                self._renew_chunk()
            else:
                self._begin_large(total)

    def _begin_large(self, total: int) -> None:
        """Allocate a buffer for a frame of ``total`` bytes that does not fit into the chunk, and
        move its received bytes there.  Do nothing while ``admit`` refuses."""
        if self.admit is not None and not self.admit(total):
            return
        here = self._end - self._start
        self._large = memoryview(core.unset_memory(total))
        self._large[:here] = self._view[self._start:self._end]
        self._filled = here
        self._start = self._end

    def _renew_chunk(self) -> None:
        """Replace the chunk; frames keep references to the old one.  The bytes to move are few: the
        start of a frame of more than a quarter of a chunk has become a large frame."""
        rest = self._view[self._start:self._end]
        assert len(rest) < self._chunk_bytes // 4
        self._chunk = core.unset_memory(self._chunk_bytes)
        self._view = memoryview(self._chunk)
        self._view[:len(rest)] = rest
        self._start, self._end = 0, len(rest)
