"""Schemas of messages as values: fields, structs, messages, and the limits of their parts.

Contract.  The modules of ``multiraft.kafka.messages`` state a ``Message`` for each message.  One
class serves all versions of a message; a field that a version lacks has its default.  Ranges of
versions include both ends; NEVER is the empty one.

Strings are ``str``, bytes ``bytes``, UUIDs 16 ``bytes``, arrays lists.  Records of a request are
one buffer and records of a response a list of buffers, as the log stores them; they are decoded to
views of the frame and encoded by reference, so their bytes are never copied.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

#: One contiguous run of bytes.
Buffer = bytes | bytearray | memoryview
#: First and last version.
Versions = tuple[int, int]
NEVER: Versions = (0, -1)

ZERO_UUID = bytes(16)
UUID_BYTES = 16
#: Most bytes of a string: its length is a signed number of 16 bits in versions that are not
#: flexible, and Kafka applies the same limit to the others.
TEXT_BYTES_MAX = 0x7FFF
#: Most elements of arrays and tagged fields in a frame, all together.  Work is counted before it
#: is done: the compiled codec takes 10 to 100 ms for this many.  A fetch of 100,000 partitions
#: fits.  As many containers may be in a header of the native protocol
#: (``layout.HEADER_CONTAINERS_MAX``).
ELEMENTS_MAX = 131_072
#: The same for requests that the generic codec decodes: it takes 1 to 8 us for an element.  A
#: commit of offsets of 10,000 partitions fits.
GENERIC_ELEMENTS_MAX = 16_384


class Kind(enum.IntEnum):
    """Type of a field, or of the elements of an array."""

    BOOL = 0
    INT8 = 1
    INT16 = 2
    UINT16 = 3
    INT32 = 4
    INT64 = 5
    UUID = 6
    STRING = 7
    BYTES = 8
    RECORD_BUFFER = 9  # records of a request: one buffer
    RECORD_BUFFERS = 10  # records of a response: a list of buffers
    STRUCT = 11


class Field(NamedTuple):
    """One field of a struct."""

    name: str
    kind: Kind
    versions: Versions
    #: None = null; () = an empty array, or a struct of defaults.
    default: Any
    array: bool = False
    nullable: Versions = NEVER
    tag: int = -1
    tagged: Versions = NEVER
    #: A version without the field may be sent, whatever the value.
    ignorable: bool = False
    #: False: in the form of versions that are not flexible.
    flexible: bool = True
    struct: Struct | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """A struct; ``make`` is its class, ``fields`` are in the order of the bytes.

    Compared and hashed by identity, because plans are found by it at each message.
    """

    name: str
    make: type
    fields: tuple[Field, ...]


class Message(NamedTuple):
    """A message with its versions; ``key`` is that of its API, -1 for a header."""

    key: int
    versions: Versions
    flexible: Versions
    struct: Struct
    #: Decoded and encoded by the compiled codec, if it is chosen.
    hot: bool = False

    @property
    def name(self) -> str:
        """Name of the message, as Kafka's schemas have it."""
        return self.struct.name


def within(version: int, versions: Versions) -> bool:
    """Return True if the range has the version."""
    return versions[0] <= version <= versions[1]


def buffers_of(value: Buffer | Sequence[Buffer]) -> Sequence[Buffer]:
    """Return records as a sequence of buffers."""
    return (value,) if isinstance(value, (bytes, bytearray, memoryview)) else value
