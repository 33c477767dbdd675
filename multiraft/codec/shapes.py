"""Validation of plain values from files and peers against an expected shape.

Contract.  ``check(value, shape)`` returns if the value has the shape, and otherwise raises
``ValueError``, which names the place.  Code that reads a checked value meets no wrong type; the
meaning of the values is the caller's to check.  O(values).

A shape is one of::

    UINT, INT_OR_NONE, FLAG, TEXT, BYTES, ANYTHING
                                               an unsigned integer of 64 bits; one from -1 on,
                                               which is none; a truth value; text; bytes; any value
    (shape, shape)                             a list of exactly these
    [shape]                                    a list of any number of these
    {"name": shape}                            a map with at least these names
    Optional(shape)                            null, or this

Theory.  CRCs detect accidents and not malice, and a CBOR decoder returns any type at any place.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import NamedTuple

UINT, INT_OR_NONE = "unsigned integer", "integer from -1 on"
FLAG, TEXT, BYTES, ANYTHING = "flag", "text", "bytes", "anything"

_UINT_MAX = (1 << 64) - 1
_BOUNDS = {UINT: (0, _UINT_MAX), INT_OR_NONE: (-1, (1 << 63) - 1)}
_TYPES = {FLAG: bool, TEXT: str, BYTES: bytes}


class Optional(NamedTuple):
    """Null, or a value of this shape."""

    shape: Shape


Shape = str | tuple | list | dict | Optional


def check(value: object, shape: Shape, where: str = "value") -> None:
    """Raise ``ValueError`` unless ``value`` has ``shape``."""
    if type(shape) is str:
        _check_one(value, shape, where)
    elif type(shape) is Optional:
        if value is not None:
            check(value, shape.shape, where)
    elif type(shape) is dict:
        if type(value) is not dict:
            raise ValueError(f"{where} is no map")
        for name, inner in shape.items():
            if name not in value:
                raise ValueError(f"{where} has no {name}")
            check(value[name], inner, name)
    elif not isinstance(value, (list, tuple)):
        raise ValueError(f"{where} is no list")
    elif type(shape) is list:
        _check_each(value, repeat(shape[0]), where)
    elif len(value) != len(shape):
        raise ValueError(f"{where} has {len(value)} fields instead of {len(shape)}")
    else:
        _check_each(value, shape, where)


def _check_each(values: Iterable[object], shapes: Iterable[Shape], where: str) -> None:
    """Raise ``ValueError`` unless each value has its shape.  The usual values are checked inline,
    because files have millions of them."""
    for value, shape in zip(values, shapes):
        if shape is UINT:
            if type(value) is int and 0 <= value <= _UINT_MAX:
                continue
        elif shape is BYTES:
            if type(value) is bytes:
                continue
        elif shape is FLAG:
            if type(value) is bool:
                continue
        elif type(value) is list:
            if type(shape) is Optional:
                shape = shape.shape
            if type(shape) is tuple and len(value) == len(shape):
                _check_each(value, shape, where)
                continue
            if type(shape) is list:
                if value:
                    _check_each(value, repeat(shape[0]), where)
                continue
        elif value is None and type(shape) is Optional:
            continue
        check(value, shape, where)


def _check_one(value: object, shape: str, where: str) -> None:
    if shape in _BOUNDS:
        least, most = _BOUNDS[shape]
        fits = type(value) is int and least <= value <= most
    else:
        fits = shape == ANYTHING or type(value) is _TYPES[shape]
    if not fits:
        raise ValueError(f"{where} is {value!r:.60}, no {shape}")
