"""Decoding of any message by its schema, in plain Python: the specification of the compiled codec.

Contract.  ``decode`` reads one message of one version from a frame and returns it with the byte
behind it.  Each length is compared with the bytes that are left, and each number of elements with
these bytes and with the elements that the frame may still have, before anything of that size is
made.  Bytes that are no message raise ``KafkaFrameError``.

Compiled twin.  ``codec_parts/reader.pxi`` reads the same fields in the same order, and reports the
same problem of the same byte first.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from multiraft.kafka.errors import Problem, frame_error
from multiraft.kafka.schema import (
    TEXT_BYTES_MAX,
    UUID_BYTES,
    Buffer,
    Field,
    Kind,
    Message,
    Struct,
    within,
)

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VARINT_BYTES_MAX = 5


class Source:
    """A frame that is being decoded: the next byte, and the elements that it may still have."""

    __slots__ = ("data", "at", "end", "elements_left")

    def __init__(self, data: Buffer, at: int, elements_max: int):
        self.data = memoryview(data)
        self.at = at
        self.end = len(self.data)
        self.elements_left = elements_max

    def fail(self, problem: Problem, what: str, at: int, a: int = 0, b: int = 0) -> NoReturn:
        """Raise the error of a problem at byte ``at``."""
        raise frame_error(problem, what, at, a, b)

    def take(self, what: str, count: int) -> int:
        """Return the position of the next ``count`` bytes, and step behind them."""
        at = self.at
        if count > self.end - at:
            self.fail(Problem.SHORT, what, at, count, self.end - at)
        self.at = at + count
        return at

    def varint(self, what: str) -> int:
        """Return an unsigned varint."""
        started, number = self.at, 0
        for place in range(_VARINT_BYTES_MAX):
            byte = self.data[self.take(what, 1)]
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return number
        self.fail(Problem.VARINT, what, started)

    def count(self, what: str, nullable: bool, compact: bool) -> int:
        """Return the number of elements of an array that follows, -1 for null."""
        started = self.at
        number = self.varint(what) - 1 if compact else _integer(_INT32)(self, what)
        if number < 0:
            return self.null(what, started, number, nullable)
        self.expect(what, started, number)
        return number

    def null(self, what: str, started: int, number: int, nullable: bool) -> int:
        """Return -1 if the negative length is that of a null that may be here."""
        if number < -1:
            self.fail(Problem.NEGATIVE, what, started, number)
        if not nullable:
            self.fail(Problem.NULL, what, started)
        return -1

    def expect(self, what: str, started: int, number: int) -> None:
        """Count elements, or tagged fields, that follow."""
        if number > self.end - self.at:
            self.fail(Problem.COUNT, what, started, number, self.end - self.at)
        if number > self.elements_left:
            self.fail(Problem.ELEMENTS, what, started, number, self.elements_left)
        self.elements_left -= number

    def length(self, what: str, layout: struct.Struct, nullable: bool, compact: bool) -> int:
        """Return the length of a string or of bytes that follow and are there, -1 for null."""
        started = self.at
        number = self.varint(what) - 1 if compact else _integer(layout)(self, what)
        if number < 0:
            return self.null(what, started, number, nullable)
        if layout is _INT16 and number > TEXT_BYTES_MAX:
            self.fail(Problem.LONG_TEXT, what, started, number, TEXT_BYTES_MAX)
        if number > self.end - self.at:
            self.fail(Problem.SHORT, what, self.at, number, self.end - self.at)
        return number


#: Reads a field: the frame, its name for errors.
Read = Callable[[Source, str], Any]


@functools.cache
def _integer(layout: struct.Struct) -> Read:
    def read(source: Source, what: str) -> int:
        return layout.unpack_from(source.data, source.take(what, layout.size))[0]
    return read


def _boolean(source: Source, what: str) -> bool:
    return source.data[source.take(what, 1)] != 0


def _uuid(source: Source, what: str) -> bytes:
    at = source.take(what, UUID_BYTES)
    return bytes(source.data[at:at + UUID_BYTES])


def _text(nullable: bool, compact: bool) -> Read:
    def read(source: Source, what: str) -> str | None:
        started = source.at
        length = source.length(what, _INT16, nullable, compact)
        if length < 0:
            return None
        at = source.take(what, length)
        try:
            return str(source.data[at:at + length], "utf-8")
        except UnicodeDecodeError:
            source.fail(Problem.NOT_UTF8, what, started)
    return read


def _bytes(nullable: bool, compact: bool) -> Read:
    def read(source: Source, what: str) -> bytes | None:
        length = source.length(what, _INT32, nullable, compact)
        if length < 0:
            return None
        at = source.take(what, length)
        return bytes(source.data[at:at + length])
    return read


def _record_buffer(nullable: bool, compact: bool) -> Read:
    def read(source: Source, what: str) -> memoryview | None:
        length = source.length(what, _INT32, nullable, compact)
        if length < 0:
            return None
        at = source.take(what, length)
        return source.data[at:at + length]
    return read


def _record_buffers(nullable: bool, compact: bool) -> Read:
    one = _record_buffer(nullable, compact)

    def read(source: Source, what: str) -> list[memoryview] | None:
        buffer = one(source, what)
        return None if buffer is None else [buffer] if len(buffer) else []
    return read


_FIXED: dict[Kind, Read] = {
    Kind.BOOL: _boolean, Kind.INT8: _integer(_INT8), Kind.INT16: _integer(_INT16),
    Kind.UINT16: _integer(_UINT16), Kind.INT32: _integer(_INT32), Kind.INT64: _integer(_INT64),
    Kind.UUID: _uuid}
_SIZED = {Kind.STRING: _text, Kind.BYTES: _bytes, Kind.RECORD_BUFFER: _record_buffer,
          Kind.RECORD_BUFFERS: _record_buffers}


def _array(read: Read, nullable: bool, compact: bool) -> Read:
    def read_all(source: Source, what: str) -> list | None:
        count = source.count(what, nullable, compact)
        return None if count < 0 else [read(source, what) for _ in range(count)]
    return read_all


def _nullable_struct(read: Read) -> Read:
    def read_or_null(source: Source, what: str) -> Any:
        return None if source.data[source.take(what, 1)] >= 0x80 else read(source, what)
    return read_or_null


def _reader(field: Field, version: int, flexible: bool) -> Read:
    """Return the function that reads a field in one version."""
    compact = flexible and field.flexible
    nullable = within(version, field.nullable)
    of_elements = nullable and not field.array
    if field.struct is not None:
        read: Read = plan(field.struct, version, flexible).read
        if of_elements:
            read = _nullable_struct(read)
    elif field.kind in _FIXED:
        read = _FIXED[field.kind]
    else:
        read = _SIZED[field.kind](of_elements, compact)
    return _array(read, nullable, compact) if field.array else read


def default_of(field: Field) -> Callable[[], Any]:
    """Return a function that makes the default of a field."""
    value = field.default
    if value != () or value is None:
        return lambda: value
    if field.array:
        return list
    assert field.struct is not None
    return field.struct.make


class Plan(NamedTuple):
    """Steps that read a struct in one version."""

    name: str
    make: type
    fields: tuple[tuple[str, str, Read], ...]  # attribute, name for errors
    absent: tuple[tuple[str, Callable[[], Any]], ...]  # not in this version, or tagged
    tagged: dict[int, tuple[str, str, Read]]
    flexible: bool

    def read(self, source: Source, what: str) -> Any:
        """Read the struct.  ``what`` is not needed: its fields have names of their own."""
        value: Any = object.__new__(self.make)
        for name, default in self.absent:
            setattr(value, name, default())
        for name, full, read in self.fields:
            setattr(value, name, read(source, full))
        if self.flexible:
            self._read_tags(source, value)
        return value

    def _read_tags(self, source: Source, value: Any) -> None:
        """Read the tagged fields; one that the schema does not have is skipped."""
        what, started = f"{self.name}.tags", source.at
        count = source.varint(what)
        source.expect(what, started, count)
        for _ in range(count):
            tag, size = source.varint(what), source.varint(what)
            begin = source.at
            if size > source.end - begin:
                source.fail(Problem.SHORT, what, begin, size, source.end - begin)
            if tag in self.tagged:
                name, full, read = self.tagged[tag]
                setattr(value, name, read(source, full))
                if source.at != begin + size:
                    source.fail(Problem.TAG_SIZE, full, begin, size, source.at - begin)
            else:
                source.at = begin + size


@functools.cache
def plan(of: Struct, version: int, flexible: bool) -> Plan:
    """Return the steps that read a struct in one version."""
    ordinary, absent, tagged = [], [], {}
    for field in of.fields:
        is_tagged = flexible and within(version, field.tagged)
        if not within(version, field.versions) or is_tagged:
            absent.append((field.name, default_of(field)))
        if within(version, field.versions):
            row = (field.name, f"{of.name}.{field.name}", _reader(field, version, flexible))
            if is_tagged:
                tagged[field.tag] = row
            else:
                ordinary.append(row)
    return Plan(of.name, of.make, tuple(ordinary), tuple(absent), tagged, flexible)


def decode(message: Message, data: Buffer, at: int, version: int,
           elements_max: int) -> tuple[Any, int]:
    """Read the message that begins at byte ``at`` of a frame.  Returns it and the byte behind it.

    O(bytes).  Raises ``KafkaFrameError``.
    """
    assert within(version, message.versions), f"{message.name} version {version}"
    source = Source(data, at, elements_max)
    read = plan(message.struct, version, within(version, message.flexible)).read
    return read(source, message.name), source.at
