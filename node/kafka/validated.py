"""The limits of requests of the native protocol, for requests that are made here.

Contract. A request for the metadata leader has the fields of a native one, and obeys the same
limits: a client of Kafka can name nothing that a native client could not.
"""

from __future__ import annotations

from typing import Any

from multiraft.wire.errors import InvalidRequest
from multiraft.wire.messages import OPS, REQUESTS
from multiraft.wire.schema import Malformed


def validated(request: Any) -> Any:
    """Return the request as if it had been received.  Raises ``InvalidRequest`` that names a field
    outside of its limits.  O(fields)."""
    shape = REQUESTS[OPS[type(request)]]
    try:
        return shape.read({name: _received(value) for name, value in shape.header(request).items()})
    except Malformed as error:
        raise InvalidRequest(str(error)) from None


def _received(value: Any) -> Any:
    """Return a value as the decoder returns it: with lists in place of tuples."""
    return list(map(_received, value)) if isinstance(value, tuple) else value
