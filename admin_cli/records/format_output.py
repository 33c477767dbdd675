"""Records as bytes, by a format: `consume --format`.

Contract.  Pure.  ``record_writer`` compiles a format once; the function that it returns writes the
records of a batch.  A key or value that is null is written as nothing, and has the length 0.
Lengths are those of the fields, not of their encoded forms, as in rpk.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

from admin_cli.records.format_numbers import number_writer, text_writer
from admin_cli.records.format_text import VERBS, FormatError, Literal, Part, Verb, parse

#: (record, batch, number of the record) -> bytes.
_Field = Callable[[Any, Any, int], bytes]

#: Verb -> its number, of a record and its batch.
_NUMBERS: dict[str, Callable[[Any, Any, int], int]] = {
    "T": lambda record, batch, number: len(batch.topic.encode()),
    "K": lambda record, batch, number: len(record.key or b""),
    "V": lambda record, batch, number: len(record.value or b""),
    "H": lambda record, batch, number: len(record.headers),
    "p": lambda record, batch, number: batch.partition,
    "o": lambda record, batch, number: record.offset,
    "d": lambda record, batch, number: record.timestamp_ms,
    "e": lambda record, batch, number: batch.header.leader_epoch,
    "x": lambda record, batch, number: batch.header.producer_id,
    "y": lambda record, batch, number: batch.header.producer_epoch,
    "]": lambda record, batch, number: batch.high_watermark,
    "i": lambda record, batch, number: number,
}
_TEXTS: dict[str, Callable[[Any, Any, int], bytes]] = {
    "t": lambda record, batch, number: batch.topic.encode(),
    "k": lambda record, batch, number: record.key or b"",
    "v": lambda record, batch, number: record.value or b"",
}
#: Characters that may surround the format of a time, several of the same in a row.
_WRAPPERS = {"[": "]", "{": "}", "(": ")", "#": "#"}
STRFTIME = "strftime"


def record_writer(text: str) -> Callable[[Any, Sequence[Any]], bytes]:
    """Return the function that writes the records of a batch.  Raises ``FormatError``."""
    fields = [_field(part) for part in parse(text, VERBS)]
    numbers = itertools.count(1)

    def write(batch: Any, records: Sequence[Any]) -> bytes:
        return b"".join([field(record, batch, number)
                         for record, number in zip(records, numbers, strict=False)
                         for field in fields])

    return write


def _field(part: Part) -> _Field:
    if isinstance(part, Literal):
        data = part.data
        return lambda record, batch, number: data
    if part.letter == "h":
        return _headers(part)
    if part.letter in _TEXTS:
        text, encode = _TEXTS[part.letter], text_writer(part)
        if encode is None:
            return text
        return lambda record, batch, number: encode(text(record, batch, number))
    if part.letter == "d" and (part.modifier or "").startswith(STRFTIME):
        return _time(part)
    count, form = _NUMBERS[part.letter], number_writer(part)
    return lambda record, batch, number: form(count(record, batch, number))


def _time(verb: Verb) -> _Field:
    """Return the field of a timestamp as strftime writes it, in UTC."""
    form = _unwrapped(verb, (verb.modifier or "").removeprefix(STRFTIME))

    def write(record: Any, batch: Any, number: int) -> bytes:
        try:
            moment = datetime.fromtimestamp(record.timestamp_ms / 1000, timezone.utc)
        except (ValueError, OverflowError, OSError):  # beyond the years that there are
            return b"%d" % record.timestamp_ms
        return moment.strftime(form).encode("utf-8")

    return write


def _unwrapped(verb: Verb, text: str) -> str:
    """Return the format within its brackets, which may be several: ``[%F]``, ``##%F##``."""
    column = verb.column + 3 + len(STRFTIME)
    opening = text[:1]
    closing = _WRAPPERS.get(opening, "")
    count = len(text) - len(text.lstrip(opening)) if closing else 0
    if opening == closing:  # one character for both ends
        count = min(count, len(text) // 2)
    if not count or len(text) < 2 * count or not text.endswith(closing * count):
        raise FormatError(column, "write the form of the time in brackets: strftime[%F %T].")
    form = text[count:len(text) - count]
    try:
        form.encode("utf-8")
    except UnicodeEncodeError:
        raise FormatError(column, "the form of the time is not UTF-8.") from None
    return form


def _headers(verb: Verb) -> _Field:
    """Return the field of all headers.  Without a format: ``name=value``, with commas between."""
    if verb.modifier is None:
        return lambda record, batch, number: b",".join(
            [name + b"=" + value for name, value in _encoded(record)])
    parts = [_header_part(part) for part in verb.parts]

    def write(record: Any, batch: Any, number: int) -> bytes:
        return b"".join([part(name, value) for name, value in _encoded(record)
                         for part in parts])

    return write


def _header_part(part: Part) -> Callable[[bytes, bytes], bytes]:
    if isinstance(part, Literal):
        data = part.data
        return lambda name, value: data
    if part.letter in "kv":
        encode = text_writer(part) or bytes
        if part.letter == "k":
            return lambda name, value: encode(name)
        return lambda name, value: encode(value)
    form = number_writer(part)
    if part.letter == "K":
        return lambda name, value: form(len(name))
    return lambda name, value: form(len(value))


def _encoded(record: Any) -> Iterator[tuple[bytes, bytes]]:
    for name, value in record.headers:
        yield name.encode("utf-8", "surrogateescape"), value or b""
