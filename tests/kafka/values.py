"""Values of messages by their schemas: random samples, and conversions between classes and dicts.

Contract.  A *plain* message is a dict of its fields, with dicts for structs, lists for arrays and
bytes for records.  It has only the fields that its version has, so plain messages of both twins
compare equal.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from multiraft.kafka import _codec
from multiraft.kafka.messages.headers import REQUEST_HEADER, RESPONSE_HEADER
from multiraft.kafka.messages.table import REQUESTS, RESPONSES
from multiraft.kafka.schema import Field, Kind, Message, Struct, buffers_of, within

#: All messages, and those that the compiled codec has.
MESSAGES = (*REQUESTS.values(), *RESPONSES.values(), REQUEST_HEADER, RESPONSE_HEADER)
HOT = tuple(message for message in MESSAGES if message.hot)
BY_VERSION = [(message, version) for message in MESSAGES
              for version in range(message.versions[0], message.versions[1] + 1)]
#: Enough for every frame of these tests.
ELEMENTS_MAX = 100_000


def name_of(value: Any) -> str | None:
    """Return the name of a parameter of a test."""
    return value.name if isinstance(value, Message) else None


#: Name of a field -> values that it has instead of all values of its type.
Special = Mapping[str, Sequence]
_BITS = {Kind.INT8: 8, Kind.INT16: 16, Kind.INT32: 32, Kind.INT64: 64}
_TEXTS = ("", "a", "topic-1", "größe", "x" * 126, "x" * 127, "x" * 300)


class Samples:
    """Random plain messages; the same seed makes the same ones."""

    def __init__(self, seed: int, special: Special | None = None):
        self.random = random.Random(seed)
        self.special = special or {}

    def of(self, message: Message, version: int) -> dict:
        """Return a message."""
        return self.struct(message.struct, version)

    def struct(self, struct: Struct, version: int) -> dict:
        """Return a struct."""
        return {field.name: self.field(field, version) for field in struct.fields
                if within(version, field.versions)}

    def field(self, field: Field, version: int) -> Any:
        """Return the value of a field: often its default, null or at an edge of its range."""
        if within(version, field.nullable) and self.random.random() < 0.2:
            return None
        if field.array:
            return [self.one(field, version) for _ in range(self.random.choice((0, 1, 2)))]
        if field.struct is None and field.default is not None and self.random.random() < 0.2:
            return field.default
        return self.one(field, version)

    def one(self, field: Field, version: int) -> Any:
        """Return a value of the type of a field, or an element of the array."""
        choose = self.random.choice
        if field.struct is not None:
            return self.struct(field.struct, version)
        if field.name in self.special:
            return choose(self.special[field.name])
        if field.kind in _BITS:
            edge = 1 << (_BITS[field.kind] - 1)
            return choose((0, 1, -1, 300 % edge, edge - 1, -edge, self.random.randrange(edge)))
        if field.kind is Kind.BOOL:
            return choose((True, False))
        if field.kind is Kind.UINT16:
            return choose((0, 1, 0xFFFF, 9092))
        if field.kind is Kind.STRING:
            return choose(_TEXTS)
        return self.random.randbytes(16 if field.kind is Kind.UUID else choose((0, 1, 9, 200)))


def plain(struct: Struct, value: Any, version: int) -> Any:
    """Return a struct as a dict of the fields of one version."""
    if value is None:
        return None
    return {field.name: _plain_field(field, getattr(value, field.name), version)
            for field in struct.fields if within(version, field.versions)}


def _plain_field(field: Field, value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.kind in (Kind.RECORD_BUFFER, Kind.RECORD_BUFFERS):
        return b"".join(buffers_of(value))
    if field.struct is None:
        return value
    if field.array:
        return [plain(field.struct, each, version) for each in value]
    return plain(field.struct, value, version)


def root_of(message: Message, compiled: bool) -> type:
    """Return the class of a message, which has those of its structs as attributes."""
    return getattr(_codec, message.name) if compiled else message.struct.make


def built(message: Message, values: dict, compiled: bool = False) -> Any:
    """Return a message of the class of one twin."""
    root = root_of(message, compiled)

    def make(struct: Struct, fields: dict | None) -> Any:
        if fields is None:
            return None
        by_name = {field.name: field for field in struct.fields}
        made = root if struct is message.struct else getattr(root, struct.name)
        return made(**{name: value(by_name[name], each) for name, each in fields.items()})

    def value(field: Field, given: Any) -> Any:
        if given is None:
            return None
        if field.kind is Kind.RECORD_BUFFERS:
            return [given[:7], given[7:]]
        if field.struct is None:
            return given
        return [make(field.struct, each) for each in given] if field.array else \
            make(field.struct, given)

    return make(message.struct, values)


def defaults(message: Message, value: Any, version: int) -> list[str]:
    """Return the fields that the version lacks and that have another value than a new message."""
    fresh = type(value)()
    return [field.name for field in message.struct.fields
            if not within(version, field.versions)
            and getattr(value, field.name) != getattr(fresh, field.name)]
