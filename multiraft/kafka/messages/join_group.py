"""Messages of JoinGroup (API key 11).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    """JoinGroupRequest of Kafka 4.4.0, versions 0 to 9, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class JoinGroupRequestProtocol:
        """Element of ``JoinGroupRequest.protocols``."""

        name: str = ""
        metadata: bytes = b''

    group_id: str = ""
    session_timeout_ms: int = 0
    rebalance_timeout_ms: int = -1  # versions 1 to 9
    member_id: str = ""
    group_instance_id: str | None = None  # versions 5 to 9
    protocol_type: str = ""
    protocols: list[JoinGroupRequest.JoinGroupRequestProtocol] = field(default_factory=list)
    reason: str | None = None  # versions 8 to 9


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    """JoinGroupResponse of Kafka 4.4.0, versions 0 to 9, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class JoinGroupResponseMember:
        """Element of ``JoinGroupResponse.members``."""

        member_id: str = ""
        group_instance_id: str | None = None  # versions 5 to 9
        metadata: bytes = b''

    throttle_time_ms: int = 0  # versions 2 to 9
    error_code: int = 0
    generation_id: int = -1
    protocol_type: str | None = None  # versions 7 to 9
    protocol_name: str | None = ""  # null in versions 7 to 9
    leader: str = ""
    skip_assignment: bool = False  # version 9
    member_id: str = ""
    members: list[JoinGroupResponse.JoinGroupResponseMember] = field(default_factory=list)


_JOIN_GROUP_REQUEST__JOIN_GROUP_REQUEST_PROTOCOL = Struct("JoinGroupRequestProtocol",
    JoinGroupRequest.JoinGroupRequestProtocol, (
    Field("name", Kind.STRING, (0, 9), ""),
    Field("metadata", Kind.BYTES, (0, 9), b''),
))
_JOIN_GROUP_REQUEST__JOIN_GROUP_REQUEST = Struct("JoinGroupRequest", JoinGroupRequest, (
    Field("group_id", Kind.STRING, (0, 9), ""),
    Field("session_timeout_ms", Kind.INT32, (0, 9), 0),
    Field("rebalance_timeout_ms", Kind.INT32, (1, 9), -1, ignorable=True),
    Field("member_id", Kind.STRING, (0, 9), ""),
    Field("group_instance_id", Kind.STRING, (5, 9), None, nullable=(5, 9)),
    Field("protocol_type", Kind.STRING, (0, 9), ""),
    Field("protocols", Kind.STRUCT, (0, 9), (), array=True,
        struct=_JOIN_GROUP_REQUEST__JOIN_GROUP_REQUEST_PROTOCOL),
    Field("reason", Kind.STRING, (8, 9), None, nullable=(8, 9), ignorable=True),
))
JOIN_GROUP_REQUEST = Message(11, (0, 9), (6, 9), _JOIN_GROUP_REQUEST__JOIN_GROUP_REQUEST)
_JOIN_GROUP_RESPONSE__JOIN_GROUP_RESPONSE_MEMBER = Struct("JoinGroupResponseMember",
    JoinGroupResponse.JoinGroupResponseMember, (
    Field("member_id", Kind.STRING, (0, 9), ""),
    Field("group_instance_id", Kind.STRING, (5, 9), None, nullable=(5, 9), ignorable=True),
    Field("metadata", Kind.BYTES, (0, 9), b''),
))
_JOIN_GROUP_RESPONSE__JOIN_GROUP_RESPONSE = Struct("JoinGroupResponse", JoinGroupResponse, (
    Field("throttle_time_ms", Kind.INT32, (2, 9), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 9), 0),
    Field("generation_id", Kind.INT32, (0, 9), -1),
    Field("protocol_type", Kind.STRING, (7, 9), None, nullable=(7, 9), ignorable=True),
    Field("protocol_name", Kind.STRING, (0, 9), "", nullable=(7, 9)),
    Field("leader", Kind.STRING, (0, 9), ""),
    Field("skip_assignment", Kind.BOOL, (9, 9), False),
    Field("member_id", Kind.STRING, (0, 9), ""),
    Field("members", Kind.STRUCT, (0, 9), (), array=True,
        struct=_JOIN_GROUP_RESPONSE__JOIN_GROUP_RESPONSE_MEMBER),
))
JOIN_GROUP_RESPONSE = Message(11, (0, 9), (6, 9), _JOIN_GROUP_RESPONSE__JOIN_GROUP_RESPONSE)
