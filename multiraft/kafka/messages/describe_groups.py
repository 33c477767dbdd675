"""Messages of DescribeGroups (API key 15).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeGroupsRequest:
    """DescribeGroupsRequest of Kafka 4.4.0, versions 0 to 6, flexible since 5."""

    groups: list[str] = field(default_factory=list)
    include_authorized_operations: bool = False  # versions 3 to 6


@dataclass(slots=True, kw_only=True)
class DescribeGroupsResponse:
    """DescribeGroupsResponse of Kafka 4.4.0, versions 0 to 6, flexible since 5."""

    @dataclass(slots=True, kw_only=True)
    class DescribedGroupMember:
        """Element of ``DescribedGroup.members``."""

        member_id: str = ""
        group_instance_id: str | None = None  # versions 4 to 6
        client_id: str = ""
        client_host: str = ""
        member_metadata: bytes = b''
        member_assignment: bytes = b''

    @dataclass(slots=True, kw_only=True)
    class DescribedGroup:
        """Element of ``DescribeGroupsResponse.groups``."""

        error_code: int = 0
        error_message: str | None = None  # version 6
        group_id: str = ""
        group_state: str = ""
        protocol_type: str = ""
        protocol_data: str = ""
        members: list[DescribeGroupsResponse.DescribedGroupMember] = field(default_factory=list)
        authorized_operations: int = -2147483648  # versions 3 to 6

    throttle_time_ms: int = 0  # versions 1 to 6
    groups: list[DescribeGroupsResponse.DescribedGroup] = field(default_factory=list)


_DESCRIBE_GROUPS_REQUEST__DESCRIBE_GROUPS_REQUEST = Struct("DescribeGroupsRequest",
    DescribeGroupsRequest, (
    Field("groups", Kind.STRING, (0, 6), (), array=True),
    Field("include_authorized_operations", Kind.BOOL, (3, 6), False),
))
DESCRIBE_GROUPS_REQUEST = Message(15, (0, 6), (5, 6),
    _DESCRIBE_GROUPS_REQUEST__DESCRIBE_GROUPS_REQUEST)
_DESCRIBE_GROUPS_RESPONSE__DESCRIBED_GROUP_MEMBER = Struct("DescribedGroupMember",
    DescribeGroupsResponse.DescribedGroupMember, (
    Field("member_id", Kind.STRING, (0, 6), ""),
    Field("group_instance_id", Kind.STRING, (4, 6), None, nullable=(4, 6), ignorable=True),
    Field("client_id", Kind.STRING, (0, 6), ""),
    Field("client_host", Kind.STRING, (0, 6), ""),
    Field("member_metadata", Kind.BYTES, (0, 6), b''),
    Field("member_assignment", Kind.BYTES, (0, 6), b''),
))
_DESCRIBE_GROUPS_RESPONSE__DESCRIBED_GROUP = Struct("DescribedGroup",
    DescribeGroupsResponse.DescribedGroup, (
    Field("error_code", Kind.INT16, (0, 6), 0),
    Field("error_message", Kind.STRING, (6, 6), None, nullable=(6, 6)),
    Field("group_id", Kind.STRING, (0, 6), ""),
    Field("group_state", Kind.STRING, (0, 6), ""),
    Field("protocol_type", Kind.STRING, (0, 6), ""),
    Field("protocol_data", Kind.STRING, (0, 6), ""),
    Field("members", Kind.STRUCT, (0, 6), (), array=True,
        struct=_DESCRIBE_GROUPS_RESPONSE__DESCRIBED_GROUP_MEMBER),
    Field("authorized_operations", Kind.INT32, (3, 6), -2147483648),
))
_DESCRIBE_GROUPS_RESPONSE__DESCRIBE_GROUPS_RESPONSE = Struct("DescribeGroupsResponse",
    DescribeGroupsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 6), 0, ignorable=True),
    Field("groups", Kind.STRUCT, (0, 6), (), array=True,
        struct=_DESCRIBE_GROUPS_RESPONSE__DESCRIBED_GROUP),
))
DESCRIBE_GROUPS_RESPONSE = Message(15, (0, 6), (5, 6),
    _DESCRIBE_GROUPS_RESPONSE__DESCRIBE_GROUPS_RESPONSE)
