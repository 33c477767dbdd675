"""Sans-I/O client protocol: frames, messages, and one connection as a state machine.

Contract.  ``Connection`` is all that a driver needs; ``FrameReader`` and ``encode_frame`` serve a
port that builds its own headers (peers).  The package reads no clock, socket or environment.

Elsewhere.  Specification of the bytes: ``docs/protocol.md``.  Drivers: ``multiraft.client`` (trio),
``multiraft.client.blocking``, and the node's sessions.
"""

from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    BadRequest,
    Connection,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    Role,
    State,
    answer_to,
)
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    ConnectionRefused,
    ErrorDetail,
    FrameTooLarge,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RequestError,
    exception_for,
)
from multiraft.wire.frames import (
    DEFAULT_LIMITS,
    Frame,
    FrameReader,
    WireLimits,
    decode_header,
    encode_frame,
)
from multiraft.wire.messages import PROTOCOL_VERSION, Hello, Refused, Welcome

__all__ = [
    "AmbiguousOutcome", "BadRequest", "Code", "Connection", "ConnectionClosed",
    "ConnectionRefused", "DEFAULT_LIMITS", "ErrorDetail", "Frame", "FrameReader", "FrameTooLarge",
    "Hello", "LocalProtocolError", "NEED_DATA", "PAUSED", "PROTOCOL_VERSION", "ProtocolError",
    "Refused", "RemoteProtocolError", "RequestError", "RequestEvent", "ResponseEvent", "Role",
    "State", "Welcome", "WireLimits", "answer_to", "decode_header", "encode_frame",
    "exception_for",
]
