"""Encoding of any message by its schema, in plain Python: the specification of the compiled codec.

Contract.  ``encode`` returns the bytes of a message as a list of buffers, behind the bytes of
``before``.  Records are in the list as they were given, between views of all other bytes.  A value
that the version cannot carry raises ``UnencodableMessage``; a value of another type raises
``TypeError``, ``AttributeError`` or ``OverflowError``, because it is a bug of the caller.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from multiraft.kafka.errors import long_text, missing_field, null_field, wrong_length
from multiraft.kafka.generic_decoder import default_of
from multiraft.kafka.schema import (
    TEXT_BYTES_MAX,
    UUID_BYTES,
    Buffer,
    Field,
    Kind,
    Message,
    Struct,
    buffers_of,
    within,
)

_FORMATS = {Kind.BOOL: ">?", Kind.INT8: ">b", Kind.INT16: ">h", Kind.UINT16: ">H",
            Kind.INT32: ">i", Kind.INT64: ">q"}
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class Sink:
    """Bytes of a message so far, and the records between them."""

    __slots__ = ("data", "records")

    def __init__(self, before: bytes):
        self.data = bytearray(before)
        self.records: list[tuple[int, Buffer]] = []  # position in ``data``, buffer

    def varint(self, number: int) -> None:
        """Append an unsigned varint."""
        while number > 0x7F:
            self.data.append(number & 0x7F | 0x80)
            number >>= 7
        self.data.append(number)

    def size(self, layout: struct.Struct, number: int, compact: bool) -> None:
        """Append a length or a number of elements, -1 for null."""
        if compact:
            self.varint(number + 1)
        else:
            self.data += layout.pack(number)

    def buffers(self) -> list[Buffer]:
        """Return all bytes in order, records as they were given."""
        view, at = memoryview(self.data), 0
        found: list[Buffer] = []
        for position, buffer in self.records:
            if position > at:
                found.append(view[at:position])
            found.append(buffer)
            at = position
        if at < len(view):
            found.append(view[at:])
        return found


#: Appends a value: where to, its name for errors.
Write = Callable[[Sink, Any, str], None]


def _fixed(kind: Kind) -> Write:
    pack = struct.Struct(_FORMATS[kind]).pack

    def write(sink: Sink, value: Any, what: str) -> None:
        try:
            sink.data += pack(value)
        except struct.error as error:
            raise OverflowError(f"{what}: {value!r}") from error
    return write


def _uuid(sink: Sink, value: bytes, what: str) -> None:
    if len(value) != UUID_BYTES:
        raise wrong_length(what, len(value), UUID_BYTES)
    sink.data += value


def _text(nullable: bool, compact: bool) -> Write:
    def write(sink: Sink, value: str | None, what: str) -> None:
        if value is None:
            return _null(sink, _INT16, nullable, compact, what)
        encoded = value.encode()
        if len(encoded) > TEXT_BYTES_MAX:
            raise long_text(what, len(encoded), TEXT_BYTES_MAX)
        sink.size(_INT16, len(encoded), compact)
        sink.data += encoded
    return write


def _null(sink: Sink, layout: struct.Struct, nullable: bool, compact: bool, what: str) -> None:
    if not nullable:
        raise null_field(what)
    sink.size(layout, -1, compact)


def _bytes(nullable: bool, compact: bool) -> Write:
    def write(sink: Sink, value: Buffer | None, what: str) -> None:
        if value is None:
            return _null(sink, _INT32, nullable, compact, what)
        sink.size(_INT32, len(value), compact)
        sink.data += value
    return write


def _records(nullable: bool, compact: bool) -> Write:
    def write(sink: Sink, value: Buffer | Sequence[Buffer] | None, what: str) -> None:
        if value is None:
            return _null(sink, _INT32, nullable, compact, what)
        parts = [part for part in buffers_of(value) if len(part)]
        sink.size(_INT32, sum(map(len, parts)), compact)
        sink.records += [(len(sink.data), part) for part in parts]
    return write


_SIZED = {Kind.STRING: _text, Kind.BYTES: _bytes, Kind.RECORD_BUFFER: _records,
          Kind.RECORD_BUFFERS: _records}


def _array(write: Write, nullable: bool, compact: bool) -> Write:
    def write_all(sink: Sink, value: list | None, what: str) -> None:
        if value is None:
            return _null(sink, _INT32, nullable, compact, what)
        sink.size(_INT32, len(value), compact)
        for each in value:
            write(sink, each, what)
    return write_all


def _struct_or_null(write: Write, nullable: bool) -> Write:
    """A struct that may be null has a byte before it."""
    def write_or_null(sink: Sink, value: Any, what: str) -> None:
        if value is None and not nullable:
            raise null_field(what)
        if nullable:
            sink.data.append(0xFF if value is None else 1)
        if value is not None:
            write(sink, value, what)
    return write_or_null


def _writer(field: Field, version: int, flexible: bool) -> Write:
    """Return the function that appends a field in one version."""
    compact = flexible and field.flexible
    nullable = within(version, field.nullable)
    of_elements = nullable and not field.array
    if field.struct is not None:
        write = _struct_or_null(plan(field.struct, version, flexible).write, of_elements)
    elif field.kind is Kind.UUID:
        write = _uuid
    elif field.kind in _FORMATS:
        write = _fixed(field.kind)
    else:
        write = _SIZED[field.kind](of_elements, compact)
    return _array(write, nullable, compact) if field.array else write


class Plan(NamedTuple):
    """Steps that write a struct in one version."""

    version: int
    fields: tuple[tuple[str, str, Write], ...]  # attribute, name for errors
    #: Not in this version, and an error if they have another value: attribute, name, default.
    absent: tuple[tuple[str, str, Callable[[], Any]], ...]
    #: In the order of tags: tag, attribute, name, default, function.
    tagged: tuple[tuple[int, str, str, Callable[[], Any], Write], ...]
    flexible: bool

    def write(self, sink: Sink, value: Any, what: str) -> None:
        """Append the struct.  ``what`` is not needed: its fields have names of their own."""
        for name, full, default in self.absent:
            if getattr(value, name) != default():
                raise missing_field(full, self.version)
        for name, full, write in self.fields:
            write(sink, getattr(value, name), full)
        if self.flexible:
            self._write_tags(sink, value)

    def _write_tags(self, sink: Sink, value: Any) -> None:
        """Append the tagged fields that have another value than the default."""
        given = [(tag, getattr(value, name), full, write)
                 for tag, name, full, default, write in self.tagged
                 if getattr(value, name) != default()]
        sink.varint(len(given))
        for tag, each, full, write in given:
            inner = Sink(b"")
            write(inner, each, full)
            sink.varint(tag)
            sink.varint(len(inner.data))
            sink.data += inner.data


@functools.cache
def plan(of: Struct, version: int, flexible: bool) -> Plan:
    """Return the steps that write a struct in one version."""
    ordinary, absent, tagged = [], [], []
    for field in of.fields:
        full = f"{of.name}.{field.name}"
        if not within(version, field.versions):
            if not field.ignorable:
                absent.append((field.name, full, default_of(field)))
            continue
        write = _writer(field, version, flexible)
        if flexible and within(version, field.tagged):
            tagged.append((field.tag, field.name, full, default_of(field), write))
        else:
            ordinary.append((field.name, full, write))
    return Plan(version, tuple(ordinary), tuple(absent), tuple(sorted(tagged)), flexible)


def encode(message: Message, value: Any, version: int, before: bytes) -> list[Buffer]:
    """Return the bytes of ``before`` and of the message as buffers, in order.

    O(bytes that are no records).  Raises ``UnencodableMessage``.
    """
    assert within(version, message.versions), f"{message.name} version {version}"
    sink = Sink(before)
    write = plan(message.struct, version, within(version, message.flexible)).write
    write(sink, value, message.name)
    return sink.buffers()
