"""Errors of Kafka's protocol, as types.

    MultiRaftError
    +- KafkaProtocolError
       +- KafkaFrameError      bytes that are no message; the connection is finished
       +- UnsupportedVersion   an API or a version that is not supported, with the header
       +- UnencodableMessage   a value that the version of the message cannot carry

A problem of a frame is a ``Problem`` with two numbers.  Both decoders report it so, and
``frame_error`` makes the text, so that their errors are equal.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from multiraft.errors import MultiRaftError

if TYPE_CHECKING:
    from multiraft.kafka.messages.headers import RequestHeader


class KafkaProtocolError(MultiRaftError):
    """Root of the errors of Kafka's protocol."""


class KafkaFrameError(KafkaProtocolError):
    """Bytes that are no message.  ``field`` names the field, ``at`` its byte in the frame."""

    def __init__(self, field: str, at: int, text: str):
        super().__init__(f"{field}, byte {at}: {text}")
        self.field = field
        self.at = at
        self.text = text


class UnsupportedVersion(KafkaProtocolError):
    """A request of an API or a version that is not supported.  ``header`` is the header of the
    request, as far as it could be read."""

    def __init__(self, header: RequestHeader):
        super().__init__(f"API {header.request_api_key} version {header.request_api_version} is "
                         f"not supported")
        self.header = header


class UnencodableMessage(KafkaProtocolError):
    """A value that a message cannot carry in that version.  ``field`` names the field."""

    def __init__(self, field: str, text: str):
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


class Problem(enum.IntEnum):
    """A problem of a frame; ``codec_parts/reader.pxi`` has the same numbers."""

    SHORT = 1
    NULL = 2
    NEGATIVE = 3
    LONG_TEXT = 4
    COUNT = 5
    ELEMENTS = 6
    NOT_UTF8 = 7
    VARINT = 8
    TAG_SIZE = 9


#: Text of each problem; ``a`` and ``b`` are its numbers.
_TEXTS = {
    Problem.SHORT: "{a} bytes are needed, {b} are left",
    Problem.NULL: "null where a value is needed",
    Problem.NEGATIVE: "a length of {a}",
    Problem.LONG_TEXT: "text of {a} bytes, the limit is {b}",
    Problem.COUNT: "{a} elements in {b} bytes",
    Problem.ELEMENTS: "{a} elements, the limit of the frame has {b} left",
    Problem.NOT_UTF8: "text that is not UTF-8",
    Problem.VARINT: "a varint of more than 5 bytes",
    Problem.TAG_SIZE: "a tagged field of {a} bytes has content of {b} bytes",
}


def frame_error(problem: int, field: str, at: int, a: int = 0, b: int = 0) -> KafkaFrameError:
    """Return the error of a problem with the numbers ``a`` and ``b``."""
    return KafkaFrameError(field, at, _TEXTS[Problem(problem)].format(a=a, b=b))


def missing_field(field: str, version: int) -> UnencodableMessage:
    """Return the error of a value in a field that the version lacks."""
    return UnencodableMessage(field, f"version {version} has no such field, and the value is not "
                                     f"the default")


def null_field(field: str) -> UnencodableMessage:
    """Return the error of None in a field that is never null in that version."""
    return UnencodableMessage(field, "None where a value is needed")


def long_text(field: str, length: int, limit: int) -> UnencodableMessage:
    """Return the error of text above the limit."""
    return UnencodableMessage(field, f"text of {length} bytes, the limit is {limit}")


def wrong_length(field: str, length: int, wanted: int) -> UnencodableMessage:
    """Return the error of a value of another length than its type has."""
    return UnencodableMessage(field, f"{length} bytes where {wanted} are needed")
