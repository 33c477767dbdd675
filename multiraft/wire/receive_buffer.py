"""Memory for the received bytes of one connection, from which frames are taken without a copy.

Contract.  ``buffer_for_receive`` provides memory for ``recv_into``, and ``received`` records what
arrived there.  A reader of frames learns the length of a frame from ``first_u32``, compares it with
its limit, and takes the frame: ``take`` returns a writable view once all its bytes have arrived,
and provides memory for them until then.  The memory of what was taken is never written again, so it
may be stamped, stored and served without a copy while a reference to it exists.  No memory is
allocated for a length that was not asked for with ``take`` or ``provide``.

Theory.  Small frames share a chunk, which is replaced when it is full.  A large frame that does not
fit into the rest of the chunk gets a buffer of exactly its size.  Bytes of it that arrived before
its length was known have to be copied.  After such a frame at most ``PEEK_BYTES`` are therefore
received first, so that each of several large frames in a row costs one small copy and one more
system call, instead of a copy of half the data.
"""

from __future__ import annotations

import struct
from typing import Callable

from multiraft import core

_U32 = struct.Struct(">I")
U32_BYTES = _U32.size

#: Bytes of one receive while frames are small; also the memory of an idle connection.
CHUNK_BYTES_MIN = 16 << 10
#: Chunks double up to this size while receives fill them: one call empties a socket buffer.
CHUNK_BYTES_MAX = 256 << 10
#: Bytes of the frame after a large one that are received before its length is known.
PEEK_BYTES = 4 << 10


class ReceiveBuffer:
    """Received bytes that are not taken yet, and memory for those that follow.

        buffer = ReceiveBuffer()
        count = sock.recv_into(buffer.buffer_for_receive())
        buffer.received(count)
        while (length := buffer.first_u32()) >= 0 and (frame := buffer.take(4 + length)): ...

    Invariants.  Bytes [start, end) of ``chunk`` are received and not taken; ``view`` is a view of
    the whole chunk.  While ``large`` is set, it is the buffer of the frame that is being received,
    ``_filled`` of its bytes have arrived, and the chunk is empty.  On its hot path a reader may
    read these and advance ``start``, instead of calls of ``first_u32`` and ``take``.
    """

    __slots__ = ("admit", "chunk", "view", "start", "end", "large", "_filled", "_chunk_bytes",
                 "_is_peek_due")

    def __init__(self) -> None:
        #: (bytes) -> True if a large frame may have that memory now.  It is called again until it
        #: returns True, and the driver must not receive meanwhile.  None = no limit.
        self.admit: Callable[[int], bool] | None = None
        self._chunk_bytes = CHUNK_BYTES_MIN
        self.chunk: bytearray = core.unset_memory(self._chunk_bytes)
        self.view = memoryview(self.chunk)
        self.start = 0
        self.end = 0
        self.large: memoryview | None = None
        self._filled = 0
        self._is_peek_due = False  # the next receive is the first one after a large frame

    @property
    def available(self) -> int:
        """Bytes that have arrived and are not taken."""
        return self.end - self.start if self.large is None else self._filled

    @property
    def arrived(self) -> int:
        """Bytes that have arrived of a large frame; 0 = no large frame is being received."""
        return 0 if self.large is None else self._filled

    # ---- receiving -----------------------------------------------------------------------------

    def buffer_for_receive(self) -> memoryview:
        """Return memory to receive into; never empty.  Take all complete frames first."""
        if self.large is not None:
            assert self._filled < len(self.large), "a complete frame was not taken"
            return self.large[self._filled:]
        if self.end == len(self.chunk):
            self._renew_chunk()
        if self._is_peek_due and self.end == self.start:
            return self.view[self.end:self.end + PEEK_BYTES]
        return self.view[self.end:]

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were received into the last ``buffer_for_receive()``."""
        assert count > 0, "the end of the stream is not received bytes"
        if self.large is not None:
            self._filled += count
            assert self._filled <= len(self.large)
            return
        self._is_peek_due = False
        self.end += count
        room = len(self.chunk) - self.end
        assert room >= 0
        if not room:
            self._chunk_bytes = min(self._chunk_bytes * 2, CHUNK_BYTES_MAX)

    # ---- taking --------------------------------------------------------------------------------

    def first_u32(self) -> int:
        """Return the first 4 bytes that are not taken as a number, big-endian; -1 = fewer have
        arrived."""
        if self.large is not None:
            return _U32.unpack_from(self.large)[0] if self._filled >= U32_BYTES else -1
        if self.end - self.start < U32_BYTES:
            return -1
        return _U32.unpack_from(self.chunk, self.start)[0]

    def first_bytes(self, count: int) -> bytes:
        """Return a copy of the first ``count`` bytes that are not taken, or of those that have
        arrived.  O(count)."""
        count = min(count, self.available)
        return bytes(self.view[self.start:self.start + count] if self.large is None
                     else self.large[:count])

    def take(self, total: int) -> memoryview | None:
        """Return a writable view of the next ``total`` bytes.  Before all of them have arrived,
        provide memory for them and return None; the next call is for the same number then."""
        large = self.large
        if large is not None:
            assert len(large) == total, "memory was provided for another number of bytes"
            if self._filled < total:
                return None
            self.large = None
            self._is_peek_due = True
            return large
        start = self.start
        end = start + total
        if end > self.end:
            self.provide(total)
            return None
        self.start = end
        return self.view[start:end]

    def provide(self, total: int) -> None:
        """Provide memory for the next ``total`` bytes, which have not all arrived: the chunk if it
        reaches so far, a new chunk, or a buffer of their own, unless ``admit`` refuses it now."""
        assert self.large is None, "a large frame is being received"
        if self.start + total > len(self.chunk):
            if total <= self._chunk_bytes // 4:
                self._renew_chunk()
            elif self.admit is None or self.admit(total):
                self._begin_large(total)

    def _begin_large(self, total: int) -> None:
        """Allocate a buffer for a frame of ``total`` bytes that does not fit into the chunk, and
        move its received bytes there."""
        here = self.end - self.start
        self.large = memoryview(core.unset_memory(total))
        self.large[:here] = self.view[self.start:self.end]
        self._filled = here
        self.start = self.end

    def _renew_chunk(self) -> None:
        """Replace the chunk; frames keep references to the old one.  The bytes to move are few: the
        start of a frame of more than a quarter of a chunk has become a large frame."""
        rest = self.view[self.start:self.end]
        assert len(rest) < self._chunk_bytes // 4
        self.chunk = core.unset_memory(self._chunk_bytes)
        self.view = memoryview(self.chunk)
        self.view[:len(rest)] = rest
        self.start, self.end = 0, len(rest)
