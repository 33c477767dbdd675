"""Messages of SyncGroup (API key 14).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    """SyncGroupRequest of Kafka 4.4.0, versions 0 to 5, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class SyncGroupRequestAssignment:
        """Element of ``SyncGroupRequest.assignments``."""

        member_id: str = ""
        assignment: bytes = b''

    group_id: str = ""
    generation_id: int = 0
    member_id: str = ""
    group_instance_id: str | None = None  # versions 3 to 5
    protocol_type: str | None = None  # version 5
    protocol_name: str | None = None  # version 5
    assignments: list[SyncGroupRequest.SyncGroupRequestAssignment] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    """SyncGroupResponse of Kafka 4.4.0, versions 0 to 5, flexible since 4."""

    throttle_time_ms: int = 0  # versions 1 to 5
    error_code: int = 0
    protocol_type: str | None = None  # version 5
    protocol_name: str | None = None  # version 5
    assignment: bytes = b''


_SYNC_GROUP_REQUEST__SYNC_GROUP_REQUEST_ASSIGNMENT = Struct("SyncGroupRequestAssignment",
    SyncGroupRequest.SyncGroupRequestAssignment, (
    Field("member_id", Kind.STRING, (0, 5), ""),
    Field("assignment", Kind.BYTES, (0, 5), b''),
))
_SYNC_GROUP_REQUEST__SYNC_GROUP_REQUEST = Struct("SyncGroupRequest", SyncGroupRequest, (
    Field("group_id", Kind.STRING, (0, 5), ""),
    Field("generation_id", Kind.INT32, (0, 5), 0),
    Field("member_id", Kind.STRING, (0, 5), ""),
    Field("group_instance_id", Kind.STRING, (3, 5), None, nullable=(3, 5)),
    Field("protocol_type", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
    Field("protocol_name", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
    Field("assignments", Kind.STRUCT, (0, 5), (), array=True,
        struct=_SYNC_GROUP_REQUEST__SYNC_GROUP_REQUEST_ASSIGNMENT),
))
SYNC_GROUP_REQUEST = Message(14, (0, 5), (4, 5), _SYNC_GROUP_REQUEST__SYNC_GROUP_REQUEST)
_SYNC_GROUP_RESPONSE__SYNC_GROUP_RESPONSE = Struct("SyncGroupResponse", SyncGroupResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 5), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 5), 0),
    Field("protocol_type", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
    Field("protocol_name", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
    Field("assignment", Kind.BYTES, (0, 5), b''),
))
SYNC_GROUP_RESPONSE = Message(14, (0, 5), (4, 5), _SYNC_GROUP_RESPONSE__SYNC_GROUP_RESPONSE)
