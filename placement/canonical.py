"""Canonical JSON of snapshots, policies and plans, and its digest.

Contract.  ``to_json`` turns named tuples of whole numbers, text, truth values and tuples of these
into JSON of one form only: keys sorted, no spaces, ASCII, no floats.  Equal values have equal bytes
and hence equal digests, on every machine.  ``from_json`` is strict in the other direction: it
refuses unknown or missing keys, floats, numbers outside 0 .. 2**64 - 1, repeated keys and wrong
types, and names the place.  Nothing is converted silently.

Theory.  A digest can only guard a value with one representation.  RFC 8785 says the same of JSON
with floats, which are left out here because sums of floats depend on the order of addition.
"""

from __future__ import annotations

import functools
import hashlib
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from placement.errors import InvalidDocument

T = TypeVar("T")

#: Numbers are counts, bytes, rates and 64-bit ids; nothing here is negative.
WHOLE_MAX = (1 << 64) - 1

#: The longest text of a document: names of topics have 249 characters, explanations are sentences.
TEXT_MAX = 1000


class ClassConstant(Generic[T]):
    """Decorator of a named tuple's method: the class and its values have what it returns as an
    attribute, which is no field."""

    def __init__(self, read: Callable[[Any], T]):
        self._read = read

    def __get__(self, value: object, owner: type) -> T:
        return self._read(owner)


def to_plain(value: Any) -> Any:
    """Return named tuples as maps, tuples as lists, other values unchanged.  O(values).

    A named tuple whose class has a ``kind`` carries it, so that unions can be read back."""
    if hasattr(value, "_asdict"):
        plain = {name: to_plain(each) for name, each in zip(value._fields, value, strict=True)}
        kind = getattr(type(value), "kind", None)
        return {"kind": kind, **plain} if isinstance(kind, str) else plain
    if isinstance(value, tuple):
        return [to_plain(each) for each in value]
    return value


def to_json(value: Any) -> bytes:
    """Return the canonical JSON of ``value``.  O(bytes)."""
    return json.dumps(to_plain(value), sort_keys=True, separators=(",", ":"),
                      allow_nan=False).encode()


def digest(value: Any) -> str:
    """Return the SHA-256 of ``to_json(value)`` in hexadecimal.  O(bytes)."""
    return hashlib.sha256(to_json(value)).hexdigest()


def digest_of_rows(value: Any) -> str:
    """Return the SHA-256 of the JSON of ``value`` with rows as lists instead of maps. It is several
    times as fast as ``digest``, for values of a fixed format with many rows. O(bytes)."""
    return hashlib.sha256(json.dumps(value, separators=(",", ":"),
                                     allow_nan=False).encode()).hexdigest()


def parse(data: bytes, bytes_max: int) -> Any:
    """Return the value of JSON without floats and without repeated keys. Raises ``InvalidDocument``
    for other bytes, and for more than ``bytes_max``."""
    if len(data) > bytes_max:
        raise InvalidDocument(f"{len(data)} bytes, the limit is {bytes_max}")
    try:
        return json.loads(data, parse_float=_refuse_number, parse_constant=_refuse_number,
                          object_pairs_hook=_map_without_doubles)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(f"not JSON: {error}") from error


def _refuse_number(text: str) -> None:
    raise ValueError(f"{text:.40} is no whole number")


def _map_without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


@functools.cache
def _fields_of(shape: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(shape)


def from_plain(shape: Any, value: Any, where: str) -> Any:
    """Return ``value`` as an instance of ``shape``.

    A shape is a named tuple, ``tuple[T, ...]``, ``tuple[A, B]``, a union of named tuples with a
    ``kind``, ``int``, ``str`` or ``bool``.  Raises ``InvalidDocument`` with the place.
    O(values)."""
    origin = typing.get_origin(shape)
    if origin is tuple:
        return _read_tuple(typing.get_args(shape), value, where)
    if origin in (typing.Union, types.UnionType):
        return _read_union(typing.get_args(shape), value, where)
    if shape is int:
        if type(value) is not int or not 0 <= value <= WHOLE_MAX:
            raise InvalidDocument(f"{where} is {value!r:.60}, no whole number of 64 bits")
    elif shape is str:
        if type(value) is not str or len(value) > TEXT_MAX:
            raise InvalidDocument(f"{where} is {value!r:.60}, no text of at most {TEXT_MAX}")
    elif shape is bool:
        if type(value) is not bool:
            raise InvalidDocument(f"{where} is {value!r:.60}, no truth value")
    else:
        return _read_named(shape, value, where)
    return value


def _read_named(shape: Any, value: Any, where: str) -> Any:
    if type(value) is not dict:
        raise InvalidDocument(f"{where} is no map; expected {_described(shape)}")
    fields = _fields_of(shape)
    expected = [*shape._fields, *(["kind"] if isinstance(getattr(shape, "kind", None), str)
                                  else [])]
    if sorted(value) != sorted(expected):
        odd = [f"{what} {', '.join(sorted(names)):.200}" for what, names in (
            ("lacks", set(expected) - set(value)), ("does not know", set(value) - set(expected)))
            if names]
        raise InvalidDocument(f"{where} {' and '.join(odd)}; its fields are "
                              f"{', '.join(expected)}")
    return shape(*(from_plain(fields[name], value[name], f"{where}.{name}")
                   for name in shape._fields))


def _described(shape: Any) -> str:
    """Return the expected form of a value as text: ``[{"resource": text, "permille": number},
    ...]``."""
    if typing.get_origin(shape) is tuple:
        parts = ["..." if each is Ellipsis else _described(each)
                 for each in typing.get_args(shape)]
        return f"[{', '.join(parts)}]"
    if hasattr(shape, "_fields"):
        fields = _fields_of(shape)
        return "{" + ", ".join(f'"{name}": {_described(fields[name])}'
                               for name in shape._fields) + "}"
    return {int: "whole number", str: "text", bool: "true or false"}.get(shape, "map")


def _read_union(shapes: tuple, value: Any, where: str) -> Any:
    kind = value.get("kind") if type(value) is dict else None
    for shape in shapes:
        if kind == shape.kind:
            return _read_named(shape, value, where)
    raise InvalidDocument(f"{where} has the kind {kind!r:.60}, known are "
                          f"{[shape.kind for shape in shapes]}")


def _read_tuple(shapes: tuple, value: Any, where: str) -> tuple:
    if type(value) is not list:
        raise InvalidDocument(
            f"{where} is no list; expected {_described(tuple.__class_getitem__(shapes))}")
    if len(shapes) == 2 and shapes[1] is Ellipsis:
        return tuple(from_plain(shapes[0], each, f"{where}[{position}]")
                     for position, each in enumerate(value))
    if len(value) != len(shapes):
        raise InvalidDocument(f"{where} has {len(value)} elements instead of {len(shapes)}")
    return tuple(from_plain(shape, each, f"{where}[{position}]")
                 for position, (shape, each) in enumerate(zip(shapes, value, strict=True)))
