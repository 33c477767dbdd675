"""Messages of Heartbeat (API key 12).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class HeartbeatRequest:
    """HeartbeatRequest of Kafka 4.4.0, versions 0 to 4, flexible since 4."""

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # versions 3 to 4


@dataclass(slots=True, kw_only=True)
class HeartbeatResponse:
    """HeartbeatResponse of Kafka 4.4.0, versions 0 to 4, flexible since 4."""

    throttle_time_ms: int = 0  # versions 1 to 4
    error_code: int = 0


_HEARTBEAT_REQUEST__HEARTBEAT_REQUEST = Struct("HeartbeatRequest", HeartbeatRequest, (
    Field("group_id", Kind.STRING, (0, 4), ""),
    Field("generation_id", Kind.INT32, (0, 4), 0),
    Field("member_id", Kind.STRING, (0, 4), ""),
    Field("group_instance_id", Kind.STRING, (3, 4), None, nullable=(3, 4)),
))
HEARTBEAT_REQUEST = Message(12, (0, 4), (4, 4), _HEARTBEAT_REQUEST__HEARTBEAT_REQUEST)
_HEARTBEAT_RESPONSE__HEARTBEAT_RESPONSE = Struct("HeartbeatResponse", HeartbeatResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 4), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 4), 0),
))
HEARTBEAT_RESPONSE = Message(12, (0, 4), (4, 4), _HEARTBEAT_RESPONSE__HEARTBEAT_RESPONSE)
