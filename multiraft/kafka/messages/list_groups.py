"""Messages of ListGroups (API key 16).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class ListGroupsRequest:
    """ListGroupsRequest of Kafka 4.4.0, versions 0 to 5, flexible since 3."""

    states_filter: list[str] = field(default_factory=list)  # versions 4 to 5
    types_filter: list[str] = field(default_factory=list)  # version 5


@dataclass(slots=True, kw_only=True)
class ListGroupsResponse:
    """ListGroupsResponse of Kafka 4.4.0, versions 0 to 5, flexible since 3."""

    @dataclass(slots=True, kw_only=True)
    class ListedGroup:
        """Element of ``ListGroupsResponse.groups``."""

        group_id: str = ""
        protocol_type: str = ""
        group_state: str = ""  # versions 4 to 5
        group_type: str = ""  # version 5

    throttle_time_ms: int = 0  # versions 1 to 5
    error_code: int = 0
    groups: list[ListGroupsResponse.ListedGroup] = field(default_factory=list)


_LIST_GROUPS_REQUEST__LIST_GROUPS_REQUEST = Struct("ListGroupsRequest", ListGroupsRequest, (
    Field("states_filter", Kind.STRING, (4, 5), (), array=True),
    Field("types_filter", Kind.STRING, (5, 5), (), array=True),
))
LIST_GROUPS_REQUEST = Message(16, (0, 5), (3, 5), _LIST_GROUPS_REQUEST__LIST_GROUPS_REQUEST)
_LIST_GROUPS_RESPONSE__LISTED_GROUP = Struct("ListedGroup", ListGroupsResponse.ListedGroup, (
    Field("group_id", Kind.STRING, (0, 5), ""),
    Field("protocol_type", Kind.STRING, (0, 5), ""),
    Field("group_state", Kind.STRING, (4, 5), "", ignorable=True),
    Field("group_type", Kind.STRING, (5, 5), "", ignorable=True),
))
_LIST_GROUPS_RESPONSE__LIST_GROUPS_RESPONSE = Struct("ListGroupsResponse", ListGroupsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 5), 0, ignorable=True),
    Field("error_code", Kind.INT16, (0, 5), 0),
    Field("groups", Kind.STRUCT, (0, 5), (), array=True,
        struct=_LIST_GROUPS_RESPONSE__LISTED_GROUP),
))
LIST_GROUPS_RESPONSE = Message(16, (0, 5), (3, 5), _LIST_GROUPS_RESPONSE__LIST_GROUPS_RESPONSE)
