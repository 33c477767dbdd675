"""Messages of DeleteGroups (API key 42).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DeleteGroupsRequest:
    """DeleteGroupsRequest of Kafka 4.4.0, versions 0 to 3, flexible since 2."""

    groups_names: list[str] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DeleteGroupsResponse:
    """DeleteGroupsResponse of Kafka 4.4.0, versions 0 to 3, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class DeletableGroupResult:
        """Element of ``DeleteGroupsResponse.results``."""

        group_id: str = ""
        error_code: int = 0
        error_message: str | None = None  # version 3

    throttle_time_ms: int = 0
    results: list[DeleteGroupsResponse.DeletableGroupResult] = field(default_factory=list)


_DELETE_GROUPS_REQUEST__DELETE_GROUPS_REQUEST = Struct("DeleteGroupsRequest", DeleteGroupsRequest, (
    Field("groups_names", Kind.STRING, (0, 3), (), array=True),
))
DELETE_GROUPS_REQUEST = Message(42, (0, 3), (2, 3), _DELETE_GROUPS_REQUEST__DELETE_GROUPS_REQUEST)
_DELETE_GROUPS_RESPONSE__DELETABLE_GROUP_RESULT = Struct("DeletableGroupResult",
    DeleteGroupsResponse.DeletableGroupResult, (
    Field("group_id", Kind.STRING, (0, 3), ""),
    Field("error_code", Kind.INT16, (0, 3), 0),
    Field("error_message", Kind.STRING, (3, 3), None, nullable=(3, 3), ignorable=True),
))
_DELETE_GROUPS_RESPONSE__DELETE_GROUPS_RESPONSE = Struct("DeleteGroupsResponse",
    DeleteGroupsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 3), 0),
    Field("results", Kind.STRUCT, (0, 3), (), array=True,
        struct=_DELETE_GROUPS_RESPONSE__DELETABLE_GROUP_RESULT),
))
DELETE_GROUPS_RESPONSE = Message(42, (0, 3), (2, 3),
    _DELETE_GROUPS_RESPONSE__DELETE_GROUPS_RESPONSE)
