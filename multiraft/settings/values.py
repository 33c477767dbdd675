"""Types of values: text of a setting to its one canonical form.

Contract.  A type reads the text that a user or a tool sends, and returns the canonical text that is
stored and described: numbers without sign or leading zeros, booleans in lower case, lists without
blanks.  It raises ``InvalidValue`` with the expectation.  The types have the numbers of Kafka's
``ConfigType``, because Kafka's tools show them.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import NamedTuple

from multiraft.errors import MultiRaftError

INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", re.ASCII)


class InvalidValue(MultiRaftError):
    """Text that is no value of the setting; the message has the expectation."""


class Kind(enum.IntEnum):
    """Type of a setting's value, with the number of Kafka's ``ConfigType``."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Type(NamedTuple):
    """A type of values: its kind, its range in words, and the function that reads a text."""

    kind: Kind
    range_text: str
    read: Callable[[str], str]


def whole(low: int, high: int, kind: Kind = Kind.LONG, words: str = "") -> Type:
    """Return the type of whole numbers from ``low`` to ``high``; ``words`` replaces the range in
    descriptions."""
    shown = words or f"{low} .. {_shown_limit(high)}"

    def read(text: str) -> str:
        if _INTEGER.fullmatch(text) is None:
            raise InvalidValue(f"expected a whole number, {shown}")
        value = int(text)
        if not low <= value <= high:
            raise InvalidValue(f"expected {shown}")
        return str(value)

    return Type(kind, shown, read)


def _shown_limit(high: int) -> str:
    return {INT_MAX: "2^31 - 1", LONG_MAX: "2^63 - 1"}.get(high, str(high))


def _boolean(text: str) -> str:
    if text.lower() not in ("true", "false"):
        raise InvalidValue("expected true or false")
    return text.lower()


BOOLEAN = Type(Kind.BOOLEAN, "true, false", _boolean)


def ratio() -> Type:
    """Return the type of decimal numbers from 0 to 1."""

    def read(text: str) -> str:
        if _DECIMAL.fullmatch(text) is None or float(text) > 1:
            raise InvalidValue("expected a decimal number, 0 .. 1")
        return repr(float(text))

    return Type(Kind.DOUBLE, "0 .. 1", read)


def word(*choices: str) -> Type:
    """Return the type of one word of ``choices``."""
    shown = ", ".join(choices)

    def read(text: str) -> str:
        if text not in choices:
            raise InvalidValue(f"expected one of {shown}")
        return text

    return Type(Kind.STRING, shown, read)


def words(*choices: str) -> Type:
    """Return the type of lists of one or more of ``choices``, each once, separated by commas."""
    shown = f"{', '.join(choices)}, or several with commas"

    def read(text: str) -> str:
        found = [part.strip() for part in text.split(",")]
        if not set(found) <= set(choices) or len(set(found)) < len(found):
            raise InvalidValue(f"expected {shown}")
        return ",".join(sorted(found))

    return Type(Kind.LIST, shown, read)


def pattern(expression: str, shown: str, kind: Kind = Kind.STRING) -> Type:
    """Return the type of texts that match ``expression`` as a whole; ``shown``: the same in
    words."""
    matcher = re.compile(expression, re.ASCII)

    def read(text: str) -> str:
        found = text.strip()
        if matcher.fullmatch(found) is None:
            raise InvalidValue(f"expected {shown}")
        return found

    return Type(kind, shown, read)
