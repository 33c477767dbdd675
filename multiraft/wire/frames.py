"""Frames: where one message ends and the next begins, and the only place where CBOR is decoded.

    u32 frame length, big-endian (bytes after this field)
    u32 header length, big-endian
    header: one CBOR map
    payload: raw bytes to the end of the frame

Contract.  ``FrameReader`` hands out memory for ``recv_into`` and gives back whole frames whose
payloads are writable views of that memory.  Memory under a frame is never written again, so a
payload may be stamped, stored and served without a copy for as long as anybody refers to it.
Every length is compared with its limit before memory of that size is asked for.  Any way of cutting
the byte stream gives the same frames.  Bytes that are not the protocol are ``RemoteProtocolError``,
nothing else, and the reader is finished after it.

Theory.  Small frames share a chunk, which is replaced when it is used up; a large frame that does
not fit into what is left of it gets a buffer of its own, of exactly its size.  What had arrived of
it before its length was known has to be copied; after such a frame the reader therefore first asks
for ``PEEK_BYTES`` only, so that a run of large frames costs one small copy and one more system call
each, instead of a copy of half the data.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any, Callable, Mapping, NamedTuple, NoReturn, Sequence

import cbor2

from multiraft.wire.errors import FrameTooLarge, RemoteProtocolError

Buffer = bytes | bytearray | memoryview

_LENGTH = struct.Struct(">I")
_LENGTHS = struct.Struct(">II")
LENGTH_BYTES = _LENGTH.size
PREFIX_BYTES = _LENGTHS.size

#: Containers within containers.  The deepest header of ours has 5; a hostile one has 100,000.
DEPTH_MAX = 8
#: One receive of a small-frame connection; also the memory an idle connection holds.
CHUNK_BYTES_MIN = 16 << 10
#: Chunks double up to this while receives fill them: covers a socket buffer in one call.
CHUNK_BYTES_MAX = 256 << 10
#: How much of the frame after a large one is received before its length is known.
PEEK_BYTES = 4 << 10
#: Before the handshake nobody is entitled to more: a Hello has about 100 bytes.
HANDSHAKE_BYTES_MAX = 4 << 10


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What one connection accepts."""

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


# ---- CBOR -------------------------------------------------------------------------------------


def _refuse_tag(*_: object) -> NoReturn:
    raise ValueError("semantic tags are not part of the protocol")


#: Every tag that cbor2 gives a meaning of its own; all others reach ``tag_hook``.  A test asks for
#: each tag up to 65,535.
_KNOWN_TAGS = (0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000,
               55799)
_REFUSED_TAGS = {tag: _refuse_tag for tag in _KNOWN_TAGS}
_INT_MIN = -(1 << 63)


def decode_header(data: Buffer) -> dict[str, Any]:
    """The one CBOR decoder: a map with text keys, of integers of 64 bits, text, bytes, booleans,
    null, lists and such maps; definite lengths, no tags, no repeated keys, no floats, at most
    ``DEPTH_MAX`` containers deep, nothing after it.  O(bytes).

    The caller bounds ``len(data)``.  Raises ``RemoteProtocolError`` for everything else."""
    source = io.BytesIO(data)
    try:
        header = cbor2.CBORDecoder(
            source, tag_hook=_refuse_tag, semantic_decoders=_REFUSED_TAGS, max_depth=DEPTH_MAX,
            allow_indefinite=False, allow_duplicate_keys=False, strict_hashable_types=True,
        ).decode()
    except (cbor2.CBORDecodeError, ValueError, OverflowError) as error:
        cause = error.__cause__ or error
        raise RemoteProtocolError(f"header is not acceptable CBOR: {cause}") from error
    if source.tell() != len(data):
        raise RemoteProtocolError(f"{len(data) - source.tell()} bytes after the header's map")
    if type(header) is not dict:
        raise RemoteProtocolError(f"header is a {type(header).__name__}, not a map")
    _check_plain(header)
    return header


def _check_plain(header: dict) -> None:
    """What cbor2 cannot be told to refuse: floats, ``undefined``, simple values, byte-string keys,
    integers below -2**63."""
    values: list = [header]
    for value in values:  # grows while it is walked
        kind = type(value)
        if kind is int:
            if value < _INT_MIN:
                raise RemoteProtocolError(f"integer {value} has more than 64 bits")
        elif kind is str or kind is bytes or value is None or kind is bool:
            pass
        elif kind is list:
            values.extend(value)
        elif kind is dict:
            for key in value:
                if type(key) is not str:
                    raise RemoteProtocolError(f"map key of type {type(key).__name__}")
            values.extend(value.values())
        else:
            raise RemoteProtocolError(f"value of type {kind.__name__}")


# ---- sending ----------------------------------------------------------------------------------


def encode_frame(header: Mapping[str, Any], payload: Sequence[Buffer] = ()) -> list[Buffer]:
    """Buffers for a gathered send: prefix and header in one, then the caller's own, not copied."""
    encoded = cbor2.dumps(header)
    payload_bytes = sum(map(byte_count, payload))
    prefix = _LENGTHS.pack(4 + len(encoded) + payload_bytes, len(encoded))
    return [prefix + encoded, *payload]


def byte_count(data: Buffer) -> int:
    """Bytes of a buffer, whatever its item size."""
    return data.nbytes if type(data) is memoryview else len(data)


# ---- receiving --------------------------------------------------------------------------------


class FrameReader:
    """Turns received bytes into frames, without copying payloads.

        reader = FrameReader(limits)
        count = sock.recv_into(reader.buffer_for_receive())
        reader.received(count)
        while (frame := reader.next_frame()) is not None: ...

    Invariants.  Bytes [_start, _end) of ``_chunk`` are received and not consumed.  While ``_large``
    is set it is the frame under way, ``_filled`` of its bytes are there, and the chunk is empty.
    """

    __slots__ = ("limits", "admit", "_chunk", "_view", "_start", "_end", "_chunk_bytes", "_peek",
                 "_large", "_filled", "_failed")

    def __init__(self, limits: WireLimits = DEFAULT_LIMITS):
        self.limits = limits  # may be replaced between frames: the handshake has its own
        #: (bytes) -> whether a large frame may have that memory now; asked until it may, and
        #: nothing must be received meanwhile.  None = always.
        self.admit: Callable[[int], bool] | None = None
        self._chunk_bytes = CHUNK_BYTES_MIN
        self._chunk: bytearray = bytearray(self._chunk_bytes)
        self._view = memoryview(self._chunk)
        self._start = 0
        self._end = 0
        self._peek = False
        self._large: memoryview | None = None
        self._filled = 0
        self._failed: RemoteProtocolError | None = None

    @property
    def mid_frame(self) -> bool:
        """Whether part of a frame has arrived: an end of the stream now is a truncation."""
        return self._large is not None or self._end > self._start

    @property
    def arrived(self) -> int:
        """Bytes of the large frame under way that are there; 0 when none is."""
        return 0 if self._large is None else self._filled

    def buffer_for_receive(self) -> memoryview:
        """Memory to receive into; never empty.  Call ``next_frame`` until None first."""
        if self._large is not None:
            assert self._filled < len(self._large), "a complete frame was not taken"
            return self._large[self._filled:]
        if self._end == len(self._chunk):
            self._renew_chunk()
        if self._peek and self._end == self._start:
            return self._view[self._end:self._end + PEEK_BYTES]
        return self._view[self._end:]

    def received(self, count: int) -> None:
        """``count`` bytes were written to the start of the last ``buffer_for_receive()``."""
        assert count > 0, "the end of the stream is not received bytes"
        if self._large is not None:
            self._filled += count
            assert self._filled <= len(self._large)
            return
        self._end += count
        assert self._end <= len(self._chunk)
        if self._end == len(self._chunk):
            self._chunk_bytes = min(self._chunk_bytes * 2, CHUNK_BYTES_MAX)

    def next_frame(self) -> Frame | None:
        """The next complete frame; None = more bytes are needed.  Raises ``RemoteProtocolError``,
        from then on always the same one."""
        if self._failed is not None:
            raise self._failed
        try:
            return self._next_frame()
        except RemoteProtocolError as error:
            self._failed = error
            raise

    def _next_frame(self) -> Frame | None:
        if self._large is not None:
            if self._filled < len(self._large):
                return None
            whole, self._large = self._large, None
            self._peek = True
            return self._parse(whole)
        available = self._end - self._start
        if available < LENGTH_BYTES:
            return None
        total = LENGTH_BYTES + self._frame_length()
        if total <= available:
            whole = self._view[self._start:self._start + total]
            self._start += total
            self._peek = False
            return self._parse(whole)
        if self._start + total > len(self._chunk):
            if total <= self._chunk_bytes // 4:
                self._renew_chunk()
            else:
                self._begin_large(total)
        return None

    def _frame_length(self) -> int:
        length = _LENGTH.unpack_from(self._chunk, self._start)[0]
        if length > self.limits.frame_bytes_max:
            raise FrameTooLarge("frame", self.limits.frame_bytes_max, length)
        if length < LENGTH_BYTES:
            raise RemoteProtocolError(f"frame of {length} bytes has no header length")
        return length

    def _begin_large(self, total: int) -> None:
        """The rest of this frame does not fit into the chunk: give it memory of its own."""
        if self.admit is not None and not self.admit(total):
            return
        here = self._end - self._start
        self._large = memoryview(bytearray(total))
        self._large[:here] = self._view[self._start:self._end]
        self._filled = here
        self._start = self._end

    def _renew_chunk(self) -> None:
        """A fresh chunk; the old one stays with whoever refers to it.  Little is moved: a rest that
        belongs to more than a quarter of a chunk has become a large frame."""
        rest = self._view[self._start:self._end]
        assert len(rest) < self._chunk_bytes // 4
        self._chunk = bytearray(self._chunk_bytes)
        self._view = memoryview(self._chunk)
        self._view[:len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _parse(self, whole: memoryview) -> Frame:
        header_bytes = _LENGTH.unpack_from(whole, LENGTH_BYTES)[0]
        if header_bytes > self.limits.header_bytes_max:
            raise FrameTooLarge("header", self.limits.header_bytes_max, header_bytes)
        payload_at = PREFIX_BYTES + header_bytes
        if payload_at > len(whole):
            raise RemoteProtocolError(
                f"header of {header_bytes} bytes in a frame of {len(whole) - LENGTH_BYTES}")
        return Frame(decode_header(whole[PREFIX_BYTES:payload_at]), whole[payload_at:])
