r"""Format strings of records, taken apart: literal bytes, and verbs with their modifiers.

Contract.  Pure.  The syntax is that of rpk: ``%k`` names a field, ``%v{hex}`` has a modifier in
braces, ``%h{ %k=%v }`` has a format for each header, ``%%``, ``%{`` and ``%}`` stand for the
character itself, and ``\t \n \r \\ \xNN`` for bytes.  Each part knows its column in the text
that was typed, from 1, and ``FormatError`` names it.  ``format_output.py`` and ``format_input.py``
decide which verbs and modifiers they take.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from admin_cli.values.text import in_one_line

#: Verb -> the field that it names.
VERBS = {
    "t": "topic", "T": "length of the topic", "k": "key", "K": "length of the key",
    "v": "value", "V": "length of the value", "h": "headers", "H": "number of headers",
    "p": "partition", "o": "offset", "d": "timestamp", "e": "leader epoch",
    "x": "producer id", "y": "producer epoch", "]": "high watermark",
    "i": "number of the record, from 1",
}
#: Verbs of kcat and of rpk that mean something else here, or nothing -> what to write instead.
_OTHER_VERBS = {
    "s": "the value is %v", "S": "the length of the value is %V", "a": "attributes of batches are "
    "not shown", "[": "`multiraft topic offsets` shows the first offset of a partition",
    "|": "`multiraft sink blocked` shows where readers stop",
}
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
_HEX_BYTE = re.compile("[0-9a-fA-F]{2}")
#: Characters of one format: far above what is typed, and no work for a parser.
FORMAT_CHARACTERS_MAX = 4_096


class FormatError(ValueError):
    """A format that cannot be used, with the column of the mistake."""

    def __init__(self, column: int, text: str):
        super().__init__(f"column {column}: {text}")
        self.column = column


class Literal(NamedTuple):
    """Bytes that stand for themselves."""

    column: int
    data: bytes


class Verb(NamedTuple):
    """A field; ``modifier`` is the text in its braces, None without braces.  ``parts``: of ``%h``,
    the format of a header."""

    column: int
    letter: str
    modifier: str | None = None
    parts: tuple[Literal | Verb, ...] = ()


Part = Literal | Verb


def parse(text: str, verbs: Mapping[str, str] = VERBS, column: int = 1) -> tuple[Part, ...]:
    """Return the parts of a format; ``verbs`` are those that are allowed, ``column`` is that of the
    first character.  Raises ``FormatError``."""
    if len(text) > FORMAT_CHARACTERS_MAX:
        raise FormatError(column, f"the format is longer than {FORMAT_CHARACTERS_MAX} characters.")
    parts: list[Part] = []
    literal, begun, at = bytearray(), column, 0

    def end_literal() -> None:
        if literal:
            parts.append(Literal(begun, bytes(literal)))
            literal.clear()

    while at < len(text):
        if not literal:
            begun = column + at
        if text[at] == "\\":
            data, size = _escape(text[at:], column + at)
            literal += data
            at += size
        elif text[at] != "%":
            literal += os.fsencode(text[at])
            at += 1
        elif text[at + 1:at + 2] in ("%", "{", "}") and at + 1 < len(text):
            literal += text[at + 1].encode()
            at += 2
        else:
            end_literal()
            verb, size = _verb(text[at:], verbs, column + at)
            parts.append(verb)
            at += size
    end_literal()
    return tuple(parts)


def literal(text: str) -> bytes:
    r"""Return the bytes of a text without verbs, with the escapes of a format.  Raises
    ``FormatError``."""
    data, at = bytearray(), 0
    while at < len(text):
        found, size = _escape(text[at:], at + 1) if text[at] == "\\" else (os.fsencode(text[at]), 1)
        data += found
        at += size
    return bytes(data)


def _escape(text: str, column: int) -> tuple[bytes, int]:
    r"""Return the bytes of the escape at the start of ``text``, and its characters."""
    if text[1:2] in _ESCAPES and len(text) > 1:
        return _ESCAPES[text[1]], 2
    if text[1:2] == "x":
        found = _HEX_BYTE.match(text, 2)
        if found is None:
            raise FormatError(column, r"\x needs two hexadecimal digits, as in \x00.")
        return bytes.fromhex(found[0]), 4
    shown = in_one_line(text[:2])
    raise FormatError(column, rf"{shown} is no escape; there are \t \n \r \\ and \xNN.")


def _verb(text: str, verbs: Mapping[str, str], column: int) -> tuple[Verb, int]:
    """Return the verb at the start of ``text``, and its characters."""
    letter = text[1:2]
    if not letter:
        raise FormatError(column, "a verb is missing after %; write %% for the character.")
    if letter not in verbs:
        raise FormatError(column, _unknown(letter, verbs))
    if text[2:3] != "{":
        return Verb(column, letter), 2
    size = _braces(text, column)
    inner = text[3:size - 1]
    if letter == "h":
        # The names and values of headers have the verbs of keys and values.
        allowed = {each: verbs[each] for each in "kKvV" if each in verbs}
        return Verb(column, letter, inner, parse(inner, allowed, column + 3)), size
    return Verb(column, letter, inner), size


def _braces(text: str, column: int) -> int:
    """Return the characters up to and with the brace that closes the one at 2."""
    depth, at = 0, 2
    while at < len(text):
        if text[at] in "%\\":
            at += 1  # the next character is no brace
        elif text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    raise FormatError(column + 2, "the brace is never closed; write %{ for the character.")


def _unknown(letter: str, verbs: Mapping[str, str]) -> str:
    shown = in_one_line(f"%{letter}")
    if letter in _OTHER_VERBS:
        return f"{shown} cannot be used here; {_OTHER_VERBS[letter]}."
    if letter in VERBS:
        return f"{shown}, the {VERBS[letter]}, cannot be used here."
    return f"{shown} is no verb; there are {' '.join(f'%{each}' for each in verbs)}."
