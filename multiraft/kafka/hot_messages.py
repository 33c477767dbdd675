"""Choice of the codec by ``MULTIRAFT_CORE``, as in ``multiraft.core``: ``compiled`` (default) or
``reference``.

Contract.  ``decode`` and ``encode`` serve every message.  With the compiled codec the messages of
Produce, Fetch, ListOffsets and Metadata and the header of requests have classes of their own, which
are named here; their fields and constructors are those of ``multiraft.kafka.messages``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from multiraft.kafka import generic_decoder, generic_encoder
from multiraft.kafka.schema import Buffer, Message, within

_CHOICE = os.environ.get("MULTIRAFT_CORE", "compiled")

if TYPE_CHECKING or _CHOICE == "reference":
    from multiraft.kafka.messages.fetch import FetchRequest, FetchResponse
    from multiraft.kafka.messages.headers import RequestHeader
    from multiraft.kafka.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
    from multiraft.kafka.messages.metadata import MetadataRequest, MetadataResponse
    from multiraft.kafka.messages.produce import ProduceRequest, ProduceResponse
elif _CHOICE == "compiled":
    try:
        from multiraft.kafka._codec import (
            FetchRequest,
            FetchResponse,
            ListOffsetsRequest,
            ListOffsetsResponse,
            MetadataRequest,
            MetadataResponse,
            ProduceRequest,
            ProduceResponse,
            RequestHeader,
        )
    except ImportError as error:
        raise ImportError("the compiled codec multiraft.kafka._codec is missing or stale: run "
                          "`make build` (or set MULTIRAFT_CORE=reference for the slow twin)"
                          ) from error
else:
    raise ImportError(f"MULTIRAFT_CORE={_CHOICE!r}: expected 'compiled' or 'reference'")

__all__ = [
    "FetchRequest", "FetchResponse", "ListOffsetsRequest", "ListOffsetsResponse",
    "MetadataRequest", "MetadataResponse", "ProduceRequest", "ProduceResponse", "RequestHeader",
    "decode", "encode",
]

if _CHOICE == "compiled":
    from multiraft.kafka import _codec

    def decode(message: Message, data: Buffer, at: int, version: int,
               elements_max: int) -> tuple[Any, int]:
        """Read the message that begins at byte ``at`` of a frame.  Returns it and the byte behind
        it.  Raises ``KafkaFrameError``."""
        if not message.hot:
            return generic_decoder.decode(message, data, at, version, elements_max)
        assert within(version, message.versions), f"{message.name} version {version}"
        return _codec.decode(message.name, data, at, version, elements_max)

    def encode(message: Message, value: Any, version: int, before: bytes) -> list[Buffer]:
        """Return the bytes of ``before`` and of the message as buffers, in order.  Raises
        ``UnencodableMessage``."""
        if not message.hot:
            return generic_encoder.encode(message, value, version, before)
        assert within(version, message.versions), f"{message.name} version {version}"
        return _codec.encode(message.name, value, version, before)
else:
    from multiraft.kafka.generic_decoder import decode
    from multiraft.kafka.generic_encoder import encode
