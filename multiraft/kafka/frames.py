"""Framing of Kafka's requests: their length, and the bytes behind it.

    i32 frame length, big-endian (bytes after this field)
    frame: the header of a request and its message

Contract.  ``KafkaFrameReader`` returns whole frames, as writable views of the memory of its
``ReceiveBuffer``, which is never written again: records may be stamped, stored and served without a
copy.  Each length is compared with its limits before memory of that size is allocated.  The frames
do not depend on how the byte stream is cut.  A length outside of the limits raises
``RemoteProtocolError``, and the reader is finished after it; the first bytes of another protocol
raise its subclass ``ForeignProtocol``.  Nothing behind the length is parsed: what a frame contains
is the business of ``multiraft.kafka.requests``.
"""

from __future__ import annotations

import struct
from typing import NoReturn

from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError
from multiraft.wire.foreign_protocols import (
    NATIVE_BYTES_MIN,
    ForeignProtocol,
    recognise_in_place_of_kafka,
)
from multiraft.wire.frames import WireLimits
from multiraft.wire.receive_buffer import ReceiveBuffer

_I32 = struct.Struct(">i")
LENGTH_BYTES = _I32.size
#: Bytes of the shortest header, version 0: API key, API version, correlation id.
HEADER_BYTES_MIN = 8

assert NATIVE_BYTES_MIN <= LENGTH_BYTES + HEADER_BYTES_MIN, "the first frame decides"


class KafkaFrameReader:
    """Decoder of received bytes into frames of Kafka, without copies.

        reader = KafkaFrameReader(limits)
        count = sock.recv_into(reader.memory.buffer_for_receive())
        reader.memory.received(count)
        while (frame := reader.next_frame()) is not None: ...
    """

    __slots__ = ("limits", "memory", "header_bytes", "_failed")

    def __init__(self, limits: WireLimits):
        self.limits = limits  # ``frame_bytes_max`` applies
        self.memory = ReceiveBuffer()  # receives the bytes
        #: Bytes of the last frame that have to be decoded, 0 = none arrived yet.  All of them at
        #: first; the decoder of the frame subtracts its records.
        self.header_bytes = 0
        self._failed: RemoteProtocolError | None = None

    @property
    def mid_frame(self) -> bool:
        """True if part of a frame has arrived: an end of the stream now is a truncation."""
        return self.memory.available > 0

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame without its length; None = more bytes are needed, or
        memory that ``admit`` refuses now.  Raises ``RemoteProtocolError``, and from then on the
        same error.  O(1)."""
        if self._failed is not None:
            raise self._failed
        memory = self.memory
        length = memory.first_u32()
        if length < 0:
            return None
        if not HEADER_BYTES_MIN <= length <= self.limits.frame_bytes_max:
            self._refuse(length)
        if not self.header_bytes and not self._has_begun():
            return None
        frame = memory.take(LENGTH_BYTES + length)
        if frame is None:
            return None
        self.header_bytes = length
        return frame[LENGTH_BYTES:]

    def _has_begun(self) -> bool:
        """Return True if enough of the first frame has arrived to recognise other protocols. Raises
        ``ForeignProtocol`` for one of them."""
        beginning = self.memory.first_bytes(NATIVE_BYTES_MIN)
        protocol = recognise_in_place_of_kafka(beginning)
        if protocol is not None:
            self._failed = ForeignProtocol(protocol)
            raise self._failed
        return len(beginning) == NATIVE_BYTES_MIN

    def _refuse(self, length: int) -> NoReturn:
        """Raise the error that names an invalid length, or the protocol of the first bytes."""
        if not self.header_bytes:
            self._has_begun()
        (signed,) = _I32.unpack(length.to_bytes(LENGTH_BYTES))
        if signed > self.limits.frame_bytes_max:
            self._failed = FrameTooLarge("frame", self.limits.frame_bytes_max, signed)
        else:
            self._failed = RemoteProtocolError(f"frame of {signed} bytes has no request header")
        raise self._failed
