"""Headers of requests and responses.

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class RequestHeader:
    """RequestHeader of Kafka 4.4.0, versions 1 to 2, flexible since 2."""

    request_api_key: int = 0
    request_api_version: int = 0
    correlation_id: int = 0
    client_id: str | None = ""


@dataclass(slots=True, kw_only=True)
class ResponseHeader:
    """ResponseHeader of Kafka 4.4.0, versions 0 to 1, flexible since 1."""

    correlation_id: int = 0


_REQUEST_HEADER__REQUEST_HEADER = Struct("RequestHeader", RequestHeader, (
    Field("request_api_key", Kind.INT16, (1, 2), 0),
    Field("request_api_version", Kind.INT16, (1, 2), 0),
    Field("correlation_id", Kind.INT32, (1, 2), 0),
    Field("client_id", Kind.STRING, (1, 2), "", nullable=(1, 2), flexible=False),
))
REQUEST_HEADER = Message(-1, (1, 2), (2, 2), _REQUEST_HEADER__REQUEST_HEADER, hot=True)
_RESPONSE_HEADER__RESPONSE_HEADER = Struct("ResponseHeader", ResponseHeader, (
    Field("correlation_id", Kind.INT32, (0, 1), 0),
))
RESPONSE_HEADER = Message(-1, (0, 1), (1, 1), _RESPONSE_HEADER__RESPONSE_HEADER)
