"""Messages of FindCoordinator (API key 10).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class FindCoordinatorRequest:
    """FindCoordinatorRequest of Kafka 4.4.0, versions 0 to 6, flexible since 3."""

    key: str = ""  # versions 0 to 3
    key_type: int = 0  # versions 1 to 6
    coordinator_keys: list[str] = field(default_factory=list)  # versions 4 to 6


@dataclass(slots=True, kw_only=True)
class FindCoordinatorResponse:
    """FindCoordinatorResponse of Kafka 4.4.0, versions 0 to 6, flexible since 3."""

    @dataclass(slots=True, kw_only=True)
    class Coordinator:
        """Element of ``FindCoordinatorResponse.coordinators``."""

        key: str = ""  # versions 4 to 6
        node_id: int = 0  # versions 4 to 6
        host: str = ""  # versions 4 to 6
        port: int = 0  # versions 4 to 6
        error_code: int = 0  # versions 4 to 6
        error_message: str | None = ""  # versions 4 to 6

    throttle_time_ms: int = 0  # versions 1 to 6
    error_code: int = 0  # versions 0 to 3
    error_message: str | None = ""  # versions 1 to 3
    node_id: int = 0  # versions 0 to 3
    host: str = ""  # versions 0 to 3
    port: int = 0  # versions 0 to 3
    # versions 4 to 6
    coordinators: list[FindCoordinatorResponse.Coordinator] = field(default_factory=list)


_FIND_COORDINATOR_REQUEST__FIND_COORDINATOR_REQUEST = Struct("FindCoordinatorRequest",
    FindCoordinatorRequest, (
    Field("key", Kind.STRING, (0, 3), ""),
    Field("key_type", Kind.INT8, (1, 6), 0),
    Field("coordinator_keys", Kind.STRING, (4, 6), (), array=True),
))
FIND_COORDINATOR_REQUEST = Message(10, (0, 6), (3, 6),
    _FIND_COORDINATOR_REQUEST__FIND_COORDINATOR_REQUEST)
_FIND_COORDINATOR_RESPONSE__COORDINATOR = Struct("Coordinator", FindCoordinatorResponse.Coordinator,
    (
    Field("key", Kind.STRING, (4, 6), ""),
    Field("node_id", Kind.INT32, (4, 6), 0),
    Field("host", Kind.STRING, (4, 6), ""),
    Field("port", Kind.INT32, (4, 6), 0),
    Field("error_code", Kind.INT16, (4, 6), 0),
    Field("error_message", Kind.STRING, (4, 6), "", nullable=(4, 6), ignorable=True),
))
_FIND_COORDINATOR_RESPONSE__FIND_COORDINATOR_RESPONSE = Struct("FindCoordinatorResponse",
    FindCoordinatorResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 6), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 3), 0),
    Field("error_message", Kind.STRING, (1, 3), "", nullable=(1, 3), ignorable=True),
    Field("node_id", Kind.INT32, (0, 3), 0),
    Field("host", Kind.STRING, (0, 3), ""),
    Field("port", Kind.INT32, (0, 3), 0),
    Field("coordinators", Kind.STRUCT, (4, 6), (), array=True,
        struct=_FIND_COORDINATOR_RESPONSE__COORDINATOR),
))
FIND_COORDINATOR_RESPONSE = Message(10, (0, 6), (3, 6),
    _FIND_COORDINATOR_RESPONSE__FIND_COORDINATOR_RESPONSE)
