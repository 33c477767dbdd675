"""Bytes as records, by a format: `produce --format`.

Contract.  Pure.  An ``InputFormat`` reads one record after the other from data that the caller has
collected, and asks for more by returning None.  A text ends where the literal behind it begins, or
has its length before it (``%K{big32}%k``); a text at the end of the format is the rest of the
input.  Lengths are those of the encoded texts, as in rpk.  Only the last record may lack the
literal at the end of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from admin_cli.records.format_numbers import (
    QUOTED_BYTES,
    EndOfData,
    number_reader,
    quoted,
    text_reader,
)
from admin_cli.records.format_text import VERBS, FormatError, Literal, Part, Verb, parse

#: Verbs that an input can have: the cluster decides the others.
INPUT_VERBS = {letter: VERBS[letter] for letter in "kKvVhHpd"}
#: Headers of one record; the client refuses a batch of them long before.
HEADERS_MAX = 65_536
_SIZES = {"k": "K", "v": "V"}

Header = tuple[str, bytes | None]


class Row(NamedTuple):
    """A record of the input; a partition or time that is None is chosen by the producer."""

    key: bytes | None
    value: bytes | None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class _Fields:
    """The fields of the record that is being read."""

    __slots__ = ("texts", "numbers", "headers", "ended")

    def __init__(self, ended: bool):
        self.texts: dict[str, bytes] = {}
        self.numbers: dict[str, int] = {}
        self.headers: list[Header] = []
        self.ended = ended


#: (data, place, fields) -> the place after what was read.  Raises ``EndOfData``, ``ValueError``.
_Step = Callable[[bytes, int, _Fields], int]


class InputFormat:
    """A format for input.  Raises ``FormatError``."""

    def __init__(self, text: str):
        parts = parse(text, INPUT_VERBS)
        letters = [part.letter for part in parts if isinstance(part, Verb)]
        if "v" not in letters and "k" not in letters:
            raise FormatError(1, "the format has neither %v nor %k, so it reads nothing; a file is "
                                 "named with --file.")
        self.has_key = "k" in letters
        self._steps = _steps(parts)
        self._last = _optional_end(parts)

    def read(self, data: bytes, at: int, ended: bool) -> tuple[Row, int] | None:
        """Return the record at ``at``, and the place after it; None = more data are needed.
        ``ended``: there are no more.  Raises ``ValueError`` for data that do not match."""
        try:
            return self._record(data, at, ended)
        except EndOfData:
            if not ended:
                return None
        try:
            row, after = self._record(data + self._last, at, ended)
        except EndOfData:
            raise ValueError("the input ends within it") from None
        return row, min(after, len(data))

    def _record(self, data: bytes, at: int, ended: bool) -> tuple[Row, int]:
        fields, begin = _Fields(ended), at
        for step in self._steps:
            at = step(data, at, fields)
        if at == begin:
            raise ValueError("the format takes no bytes of the input")
        texts, numbers = fields.texts, fields.numbers
        return Row(texts.get("k"), texts.get("v", b""), numbers.get("p"), numbers.get("d"),
                   tuple(fields.headers)), at


def _optional_end(parts: Sequence[Part]) -> bytes:
    """Return the bytes that the last record may lack."""
    last = parts[-1]
    if isinstance(last, Literal):
        return last.data
    return b"\n" if last.letter in "pd" and last.modifier in (None, "", "ascii") else b""


def _steps(parts: Sequence[Part], in_header: bool = False) -> list[_Step]:
    """Return the steps that read the parts, in order.  Raises ``FormatError``."""
    steps: list[_Step] = []
    seen: set[str] = set()
    for position, part in enumerate(parts):
        if isinstance(part, Literal):
            steps.append(_literal(part.data))
            continue
        if part.letter in seen and part.letter != "h":
            raise FormatError(part.column, f"the format has %{part.letter} twice.")
        if part.letter == "h":
            steps.append(_headers(part, "H" in seen))
        elif part.letter in _SIZES:
            behind = parts[position + 1] if position + 1 < len(parts) else None
            steps.append(_text(part, _SIZES[part.letter] in seen, behind, in_header))
        else:
            steps.append(_number(part))
        seen.add(part.letter)
    for part in parts:
        if isinstance(part, Verb) and part.letter in "KVH":
            _require_use(part, parts)
    return steps


def _require_use(size: Verb, parts: Sequence[Part]) -> None:
    """Raise ``FormatError`` if no field behind a length uses it."""
    letter = size.letter.lower()
    if not any(isinstance(part, Verb) and part.letter == letter and part.column > size.column
               for part in parts):
        raise FormatError(size.column, f"%{size.letter} must stand before the %{letter} that it "
                                       "measures.")


def _literal(literal: bytes) -> _Step:
    def step(data: bytes, at: int, _fields: _Fields) -> int:
        if data.startswith(literal, at):
            return at + len(literal)
        if literal.startswith(data[at:]):
            raise EndOfData
        raise ValueError(f"{quoted(literal)} is missing before "
                         f"{quoted(data[at:at + QUOTED_BYTES])}")

    return step


def _number(verb: Verb) -> _Step:
    read, letter = number_reader(verb), verb.letter

    def step(data: bytes, at: int, fields: _Fields) -> int:
        fields.numbers[letter], at = read(data, at)
        return at

    return step


def _text(verb: Verb, sized: bool, behind: Part | None, in_header: bool) -> _Step:
    """Return the step that reads a key or a value, of a record or of a header."""
    decode, letter = text_reader(verb), verb.letter
    find = _sized(_SIZES[letter]) if sized else _until(verb, behind, in_header)

    def step(data: bytes, at: int, fields: _Fields) -> int:
        end = find(data, at, fields)
        text = data[at:end]
        if decode is not None:
            try:
                text = decode(text)
            except ValueError:
                raise ValueError(f"{quoted(text)} is not "
                                 f"{verb.modifier}") from None
        fields.texts[letter] = text
        return end

    return step


def _sized(size: str) -> _Step:
    def find(data: bytes, at: int, fields: _Fields) -> int:
        end = at + fields.numbers[size]
        if end > len(data):
            raise EndOfData
        return end

    return find


def _until(verb: Verb, behind: Part | None, in_header: bool) -> _Step:
    if behind is None and not in_header:
        def rest(data: bytes, _at: int, fields: _Fields) -> int:
            if not fields.ended:
                raise EndOfData
            return len(data)

        return rest
    if not isinstance(behind, Literal):
        size = _SIZES[verb.letter]
        raise FormatError(verb.column, f"nothing tells where %{verb.letter} ends; write a text "
                                       f"behind it, or its length before it, as in "
                                       f"%{size}{{4}}%{verb.letter}.")
    delimiter = behind.data

    def find(data: bytes, at: int, _fields: _Fields) -> int:
        end = data.find(delimiter, at)
        if end < 0:
            raise EndOfData
        return end

    return find


def _headers(verb: Verb, counted: bool) -> _Step:
    """Return the step that reads as many headers as ``%H`` says, or else one."""
    if verb.modifier is None:
        raise FormatError(verb.column, "%h needs the form of a header in braces, as in "
                                       "%H{1}%h{%k=%v }.")
    letters = {part.letter for part in verb.parts if isinstance(part, Verb)}
    if "k" not in letters:
        raise FormatError(verb.column, "%h has no %k, the name of a header.")
    steps = _steps(verb.parts, in_header=True)

    def step(data: bytes, at: int, fields: _Fields) -> int:
        count = fields.numbers["H"] if counted else 1
        if count > HEADERS_MAX:
            raise ValueError(f"it has {count} headers, the limit is {HEADERS_MAX}")
        for _ in range(count):
            inner = _Fields(fields.ended)
            for each in steps:
                at = each(data, at, inner)
            fields.headers.append((header_name(inner.texts["k"]), inner.texts.get("v")))
        return at

    return step


def header_name(name: bytes) -> str:
    """Return the name of a header as text.  Raises ``ValueError`` for bytes that are not UTF-8,
    which other clients could not read."""
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"the header name {quoted(name)} is not UTF-8") from None
