"""Messages of OffsetDelete (API key 47).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest:
    """OffsetDeleteRequest of Kafka 4.4.0, version 0."""

    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteRequestPartition:
        """Element of ``OffsetDeleteRequestTopic.partitions``."""

        partition_index: int = 0

    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteRequestTopic:
        """Element of ``OffsetDeleteRequest.topics``."""

        name: str = ""
        partitions: list[OffsetDeleteRequest.OffsetDeleteRequestPartition] = field(
            default_factory=list)

    group_id: str = ""
    topics: list[OffsetDeleteRequest.OffsetDeleteRequestTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse:
    """OffsetDeleteResponse of Kafka 4.4.0, version 0."""

    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteResponsePartition:
        """Element of ``OffsetDeleteResponseTopic.partitions``."""

        partition_index: int = 0
        error_code: int = 0

    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteResponseTopic:
        """Element of ``OffsetDeleteResponse.topics``."""

        name: str = ""
        partitions: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = field(
            default_factory=list)

    error_code: int = 0
    throttle_time_ms: int = 0
    topics: list[OffsetDeleteResponse.OffsetDeleteResponseTopic] = field(default_factory=list)


_OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST_PARTITION = Struct("OffsetDeleteRequestPartition",
    OffsetDeleteRequest.OffsetDeleteRequestPartition, (
    Field("partition_index", Kind.INT32, (0, 0), 0),
))
_OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST_TOPIC = Struct("OffsetDeleteRequestTopic",
    OffsetDeleteRequest.OffsetDeleteRequestTopic, (
    Field("name", Kind.STRING, (0, 0), ""),
    Field("partitions", Kind.STRUCT, (0, 0), (), array=True,
        struct=_OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST_PARTITION),
))
_OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST = Struct("OffsetDeleteRequest", OffsetDeleteRequest, (
    Field("group_id", Kind.STRING, (0, 0), ""),
    Field("topics", Kind.STRUCT, (0, 0), (), array=True,
        struct=_OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST_TOPIC),
))
OFFSET_DELETE_REQUEST = Message(47, (0, 0), (0, -1), _OFFSET_DELETE_REQUEST__OFFSET_DELETE_REQUEST)
_OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE_PARTITION = Struct("OffsetDeleteResponsePartition",
    OffsetDeleteResponse.OffsetDeleteResponsePartition, (
    Field("partition_index", Kind.INT32, (0, 0), 0),
    Field("error_code", Kind.INT16, (0, 0), 0),
))
_OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE_TOPIC = Struct("OffsetDeleteResponseTopic",
    OffsetDeleteResponse.OffsetDeleteResponseTopic, (
    Field("name", Kind.STRING, (0, 0), ""),
    Field("partitions", Kind.STRUCT, (0, 0), (), array=True,
        struct=_OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE_PARTITION),
))
_OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE = Struct("OffsetDeleteResponse",
    OffsetDeleteResponse, (
    Field("error_code", Kind.INT16, (0, 0), 0),
    Field("throttle_time_ms", Kind.INT32, (0, 0), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (0, 0), (), array=True,
        struct=_OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE_TOPIC),
))
OFFSET_DELETE_RESPONSE = Message(47, (0, 0), (0, -1),
    _OFFSET_DELETE_RESPONSE__OFFSET_DELETE_RESPONSE)
