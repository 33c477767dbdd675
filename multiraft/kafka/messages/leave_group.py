"""Messages of LeaveGroup (API key 13).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class LeaveGroupRequest:
    """LeaveGroupRequest of Kafka 4.4.0, versions 0 to 5, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class MemberIdentity:
        """Element of ``LeaveGroupRequest.members``."""

        member_id: str = ""  # versions 3 to 5
        group_instance_id: str | None = None  # versions 3 to 5
        reason: str | None = None  # version 5

    group_id: str = ""
    member_id: str = ""  # versions 0 to 2
    members: list[LeaveGroupRequest.MemberIdentity] = field(default_factory=list)  # versions 3 to 5


@dataclass(slots=True, kw_only=True)
class LeaveGroupResponse:
    """LeaveGroupResponse of Kafka 4.4.0, versions 0 to 5, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class MemberResponse:
        """Element of ``LeaveGroupResponse.members``."""

        member_id: str = ""  # versions 3 to 5
        group_instance_id: str | None = ""  # versions 3 to 5
        error_code: int = 0  # versions 3 to 5

    throttle_time_ms: int = 0  # versions 1 to 5
    error_code: int = 0
    # versions 3 to 5
    members: list[LeaveGroupResponse.MemberResponse] = field(default_factory=list)


_LEAVE_GROUP_REQUEST__MEMBER_IDENTITY = Struct("MemberIdentity", LeaveGroupRequest.MemberIdentity, (
    Field("member_id", Kind.STRING, (3, 5), ""),
    Field("group_instance_id", Kind.STRING, (3, 5), None, nullable=(3, 5)),
    Field("reason", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
))
_LEAVE_GROUP_REQUEST__LEAVE_GROUP_REQUEST = Struct("LeaveGroupRequest", LeaveGroupRequest, (
    Field("group_id", Kind.STRING, (0, 5), ""),
    Field("member_id", Kind.STRING, (0, 2), ""),
    Field("members", Kind.STRUCT, (3, 5), (), array=True,
        struct=_LEAVE_GROUP_REQUEST__MEMBER_IDENTITY),
))
LEAVE_GROUP_REQUEST = Message(13, (0, 5), (4, 5), _LEAVE_GROUP_REQUEST__LEAVE_GROUP_REQUEST)
_LEAVE_GROUP_RESPONSE__MEMBER_RESPONSE = Struct("MemberResponse", LeaveGroupResponse.MemberResponse,
    (
    Field("member_id", Kind.STRING, (3, 5), ""),
    Field("group_instance_id", Kind.STRING, (3, 5), "", nullable=(3, 5)),
    Field("error_code", Kind.INT16, (3, 5), 0),
))
_LEAVE_GROUP_RESPONSE__LEAVE_GROUP_RESPONSE = Struct("LeaveGroupResponse", LeaveGroupResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 5), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 5), 0),
    Field("members", Kind.STRUCT, (3, 5), (), array=True,
        struct=_LEAVE_GROUP_RESPONSE__MEMBER_RESPONSE),
))
LEAVE_GROUP_RESPONSE = Message(13, (0, 5), (4, 5), _LEAVE_GROUP_RESPONSE__LEAVE_GROUP_RESPONSE)
