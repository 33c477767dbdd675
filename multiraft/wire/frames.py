"""Framing of messages: encoding and decoding of lengths and headers.

    u32 frame length, big-endian (bytes after this field)
    u32 header length, big-endian
    header: one CBOR map
    payload: raw bytes to the end of the frame

Contract.  ``FrameReader`` returns whole frames, whose payloads are writable views of the memory of
its ``ReceiveBuffer``.  The memory of a returned frame is never written again, so a payload may be
stamped, stored and served without a copy while a reference to it exists.  Each length is compared
with its limit before memory of that size is allocated.  The frames do not depend on how the byte
stream is cut.  Bytes that violate the protocol raise ``RemoteProtocolError`` and no other
exception, and the reader is finished after it; the first bytes of another protocol raise its
subclass ``ForeignProtocol``.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Sequence

from multiraft import core
from multiraft.errors import MalformedHeader
from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import BYTES_MIN, ForeignProtocol, recognise
from multiraft.wire.receive_buffer import ReceiveBuffer

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")
LENGTH_BYTES = _LENGTH.size
PREFIX_BYTES = _LENGTHS.size
#: A named tuple from its fields, without the Python function in front of it.
_new = tuple.__new__

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
    """

    __slots__ = ("limits", "header_bytes", "memory", "_failed")

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS):
        self.limits = limits  # may be replaced between frames: the handshake has its own
        self.header_bytes = 0  # of the last frame; 0 = none arrived yet
        #: Receives the bytes.  A driver that receives often calls it directly.
        self.memory = ReceiveBuffer()
        self._failed: RemoteProtocolError | None = None

    @property
    def mid_frame(self) -> bool:
        """True if part of a frame has arrived: an end of the stream now is a truncation."""
        return self.memory.available > 0

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into; never empty.  Call ``next_frame`` until None first."""
        return self.memory.buffer_for_receive()

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received into the last ``buffer_for_receive()``.
        Nothing is parsed until ``next_frame``."""
        self.memory.received(count)

    def next_frame(self) -> Frame | None:
        """Return the next complete frame; None = more bytes are needed, or memory that ``admit``
        refuses now.  Raises ``RemoteProtocolError``, and from then on the same error.  O(header
        bytes)."""
        if self._failed is not None:
            raise self._failed
        memory = self.memory
        try:
            if memory.large is not None:
                return self._next_large(memory.large)
            start = memory.start
            available = memory.end - start
            if available < PREFIX_BYTES:
                if available >= LENGTH_BYTES:
                    self._check_beginning()
                return None
            length, header_bytes = _LENGTHS.unpack_from(memory.chunk, start)
            limits = self.limits
            if length > limits.frame_bytes_max or header_bytes > limits.header_bytes_max or (
                    length < LENGTH_BYTES + header_bytes):
                self._refuse(length, header_bytes)
            payload_at = start + PREFIX_BYTES + header_bytes
            end = start + LENGTH_BYTES + length
            if end > memory.end:
                memory.provide(end - start)
                return None
            header = core.decode_header(memory.chunk, start + PREFIX_BYTES, payload_at)
        except MalformedHeader as error:
            self._failed = RemoteProtocolError(f"header is not acceptable CBOR: {error}")
            raise self._failed from None
        except RemoteProtocolError as error:
            self._failed = self._explained(error)
            raise self._failed from None
        memory.start = end
        self.header_bytes = header_bytes
        return _new(Frame, (header, memory.view[payload_at:end]))

    def _explained(self, error: RemoteProtocolError) -> RemoteProtocolError:
        """Return the error to raise: ``ForeignProtocol`` if the first bytes of the stream belong to
        another protocol."""
        protocol = None
        if not self.header_bytes:
            protocol = recognise(self.memory.first_bytes(BYTES_MIN))
        return error if protocol is None else ForeignProtocol(protocol)

    def _next_large(self, large: memoryview) -> Frame | None:
        whole = self.memory.take(len(large))
        if whole is None:
            return None
        self.header_bytes = _LENGTH.unpack_from(whole, LENGTH_BYTES)[0]
        payload_at = PREFIX_BYTES + self.header_bytes
        return Frame(core.decode_header(whole, PREFIX_BYTES, payload_at), whole[payload_at:])

    def _check_beginning(self) -> None:
        """Raise if the frame length is invalid, before the header length has arrived."""
        length = self.memory.first_u32()
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
