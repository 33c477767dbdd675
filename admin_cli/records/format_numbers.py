"""Encodings of numbers and texts in formats: the modifiers that reading and writing share.

Contract.  Pure.  A number is written as ASCII digits, or in a fixed width that a modifier names; it
is truncated to that width, as in rpk.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import NamedTuple

from admin_cli.records.format_text import FormatError, Verb

#: Fixed width of a number in bytes, by the bits in the modifier's name.
_BYTES = {"64": 8, "32": 4, "16": 2, "8": 1}
_HEX_DIGITS = {"hex64": 16, "hex32": 8, "hex16": 4, "hex8": 2, "hex4": 1}
NUMBER_MODIFIERS = ("ascii", *_HEX_DIGITS, *(f"{order}{bits}" for order in ("big", "little")
                                             for bits in _BYTES), "byte", "bool")
TEXT_MODIFIERS = ("hex", "base64", "base64raw")
#: Digits of a number in the input: those of a 64-bit number.
DIGITS_MAX = 19
_DIGITS = re.compile(rb"[0-9]+")
_HEX = re.compile(rb"[0-9a-fA-F]+")
#: Bytes of the input that an error quotes.
QUOTED_BYTES = 20


class Width(NamedTuple):
    """A number of fixed width: ``size`` bytes, binary or as hexadecimal digits."""

    size: int
    order: str  # "big", "little", or "hex"


def _width(modifier: str) -> Width | None:
    """Return the width that a modifier names; None for those that have none."""
    if modifier in _HEX_DIGITS:
        return Width(_HEX_DIGITS[modifier], "hex")
    if modifier == "byte":
        return Width(1, "big")
    for order in ("big", "little"):
        if modifier.startswith(order):
            return Width(_BYTES[modifier[len(order):]], order)
    return None


def require_modifier(verb: Verb, known: tuple[str, ...], more: str = "") -> str:
    """Return the modifier of a verb, "" without one.  Raises ``FormatError`` for one that is not
    known; ``more`` is added to the list of those that are."""
    modifier = verb.modifier or ""
    if modifier and modifier not in known:
        raise FormatError(verb.column + 3, f"%{verb.letter} has no modifier {modifier!r:.40}; "
                                           f"there are {', '.join(known)}{more}.")
    return modifier


def number_writer(verb: Verb) -> Callable[[int], bytes]:
    """Return the function that writes numbers as the verb's modifier says."""
    modifier = require_modifier(verb, NUMBER_MODIFIERS,
                                ", and strftime[%F %T]" if verb.letter == "d" else "")
    width = _width(modifier)
    if modifier == "bool":
        return lambda number: b"true" if number else b"false"
    if width is None:
        return lambda number: b"%d" % number
    size, order = width
    if order == "hex":
        mask = (1 << 4 * size) - 1
        return lambda number: b"%0*x" % (size, number & mask)
    mask = (1 << 8 * size) - 1
    if order == "big":
        return lambda number: (number & mask).to_bytes(size, "big")
    return lambda number: (number & mask).to_bytes(size, "little")


def text_writer(verb: Verb) -> Callable[[bytes], bytes] | None:
    """Return the function that encodes texts as the verb's modifier says; None = bytes as they are.
    """
    modifier = require_modifier(verb, TEXT_MODIFIERS)
    if modifier == "hex":
        return binascii.hexlify
    if modifier == "base64":
        return base64.b64encode
    if modifier == "base64raw":
        return lambda data: base64.b64encode(data).rstrip(b"=")
    return None


def text_reader(verb: Verb) -> Callable[[bytes], bytes] | None:
    """Return the function that decodes texts as the verb's modifier says; None = bytes as they are.
    It raises ``ValueError`` for texts that are not encoded so."""
    modifier = require_modifier(verb, TEXT_MODIFIERS)
    if modifier == "hex":
        return binascii.unhexlify
    if modifier:
        return _decode_base64
    return None


def _decode_base64(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)


def quoted(data: bytes) -> str:
    """Return the first ``QUOTED_BYTES`` bytes of the input, in quotes."""
    return repr(data[:QUOTED_BYTES])[1:]


class EndOfData(Exception):
    """The data end before the field does."""


def number_reader(verb: Verb) -> Callable[[bytes, int], tuple[int, int]]:
    """Return the function that reads a number at a place of some data, and returns it with the
    place after it.  It raises ``EndOfData`` and ``ValueError``.  ``%K{3}`` reads nothing: the
    number is 3."""
    modifier = verb.modifier or ""
    if modifier.isascii() and modifier.isdecimal():
        if len(modifier) > DIGITS_MAX:
            raise FormatError(verb.column + 3, f"the number has more than {DIGITS_MAX} digits.")
        constant = int(modifier)
        return lambda _data, at: (constant, at)
    require_modifier(verb, NUMBER_MODIFIERS, ", and a number")
    if modifier == "bool":
        return _read_bool
    width = _width(modifier)
    if width is None:
        return _read_digits
    size, order = width

    def read(data: bytes, at: int) -> tuple[int, int]:
        field = data[at:at + size]
        if len(field) < size:
            raise EndOfData
        if order == "hex":
            if _HEX.fullmatch(field) is None:
                raise ValueError(f"{quoted(field)} is not {modifier}")
            return int(field, 16), at + size
        return int.from_bytes(field, "big" if order == "big" else "little"), at + size

    return read


def _read_digits(data: bytes, at: int) -> tuple[int, int]:
    found = _DIGITS.match(data, at)
    if found is None:
        if at >= len(data):
            raise EndOfData
        raise ValueError(f"a number is missing before {quoted(data[at:at + QUOTED_BYTES])}")
    if found.end() - at > DIGITS_MAX:
        raise ValueError(f"a number has more than {DIGITS_MAX} digits")
    if found.end() == len(data):
        raise EndOfData  # more digits may follow
    return int(found[0]), found.end()


def _read_bool(data: bytes, at: int) -> tuple[int, int]:
    for word, number in ((b"true", 1), (b"false", 0)):
        if data.startswith(word, at):
            return number, at + len(word)
    if len(data) - at < len(b"false"):
        raise EndOfData
    raise ValueError(f"true or false is missing before {quoted(data[at:at + QUOTED_BYTES])}")
