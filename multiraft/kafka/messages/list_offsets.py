"""Messages of ListOffsets (API key 2).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class ListOffsetsRequest:
    """ListOffsetsRequest of Kafka 4.4.0, versions 1 to 11, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class ListOffsetsPartition:
        """Element of ``ListOffsetsTopic.partitions``."""

        partition_index: int = 0
        current_leader_epoch: int = -1  # versions 4 to 11
        timestamp: int = 0

    @dataclass(slots=True, kw_only=True)
    class ListOffsetsTopic:
        """Element of ``ListOffsetsRequest.topics``."""

        name: str = ""
        partitions: list[ListOffsetsRequest.ListOffsetsPartition] = field(default_factory=list)

    replica_id: int = 0
    isolation_level: int = 0  # versions 2 to 11
    topics: list[ListOffsetsRequest.ListOffsetsTopic] = field(default_factory=list)
    timeout_ms: int = 0  # versions 10 to 11


@dataclass(slots=True, kw_only=True)
class ListOffsetsResponse:
    """ListOffsetsResponse of Kafka 4.4.0, versions 1 to 11, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class ListOffsetsPartitionResponse:
        """Element of ``ListOffsetsTopicResponse.partitions``."""

        partition_index: int = 0
        error_code: int = 0
        timestamp: int = -1
        offset: int = -1
        leader_epoch: int = -1  # versions 4 to 11

    @dataclass(slots=True, kw_only=True)
    class ListOffsetsTopicResponse:
        """Element of ``ListOffsetsResponse.topics``."""

        name: str = ""
        partitions: list[ListOffsetsResponse.ListOffsetsPartitionResponse] = field(
            default_factory=list)

    throttle_time_ms: int = 0  # versions 2 to 11
    topics: list[ListOffsetsResponse.ListOffsetsTopicResponse] = field(default_factory=list)


_LIST_OFFSETS_REQUEST__LIST_OFFSETS_PARTITION = Struct("ListOffsetsPartition",
    ListOffsetsRequest.ListOffsetsPartition, (
    Field("partition_index", Kind.INT32, (1, 11), 0),
    Field("current_leader_epoch", Kind.INT32, (4, 11), -1, ignorable=True),
    Field("timestamp", Kind.INT64, (1, 11), 0),
))
_LIST_OFFSETS_REQUEST__LIST_OFFSETS_TOPIC = Struct("ListOffsetsTopic",
    ListOffsetsRequest.ListOffsetsTopic, (
    Field("name", Kind.STRING, (1, 11), ""),
    Field("partitions", Kind.STRUCT, (1, 11), (), array=True,
        struct=_LIST_OFFSETS_REQUEST__LIST_OFFSETS_PARTITION),
))
_LIST_OFFSETS_REQUEST__LIST_OFFSETS_REQUEST = Struct("ListOffsetsRequest", ListOffsetsRequest, (
    Field("replica_id", Kind.INT32, (1, 11), 0),
    Field("isolation_level", Kind.INT8, (2, 11), 0),
    Field("topics", Kind.STRUCT, (1, 11), (), array=True,
        struct=_LIST_OFFSETS_REQUEST__LIST_OFFSETS_TOPIC),
    Field("timeout_ms", Kind.INT32, (10, 11), 0, ignorable=True),
))
LIST_OFFSETS_REQUEST = Message(2, (1, 11), (6, 11), _LIST_OFFSETS_REQUEST__LIST_OFFSETS_REQUEST,
    hot=True)
_LIST_OFFSETS_RESPONSE__LIST_OFFSETS_PARTITION_RESPONSE = Struct("ListOffsetsPartitionResponse",
    ListOffsetsResponse.ListOffsetsPartitionResponse, (
    Field("partition_index", Kind.INT32, (1, 11), 0),
    Field("error_code", Kind.INT16, (1, 11), 0),
    Field("timestamp", Kind.INT64, (1, 11), -1),
    Field("offset", Kind.INT64, (1, 11), -1),
    Field("leader_epoch", Kind.INT32, (4, 11), -1),
))
_LIST_OFFSETS_RESPONSE__LIST_OFFSETS_TOPIC_RESPONSE = Struct("ListOffsetsTopicResponse",
    ListOffsetsResponse.ListOffsetsTopicResponse, (
    Field("name", Kind.STRING, (1, 11), ""),
    Field("partitions", Kind.STRUCT, (1, 11), (), array=True,
        struct=_LIST_OFFSETS_RESPONSE__LIST_OFFSETS_PARTITION_RESPONSE),
))
_LIST_OFFSETS_RESPONSE__LIST_OFFSETS_RESPONSE = Struct("ListOffsetsResponse", ListOffsetsResponse, (
    Field("throttle_time_ms", Kind.INT32, (2, 11), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (1, 11), (), array=True,
        struct=_LIST_OFFSETS_RESPONSE__LIST_OFFSETS_TOPIC_RESPONSE),
))
LIST_OFFSETS_RESPONSE = Message(2, (1, 11), (6, 11), _LIST_OFFSETS_RESPONSE__LIST_OFFSETS_RESPONSE,
    hot=True)
