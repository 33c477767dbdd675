"""Messages of DescribeTopicPartitions (API key 75).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsRequest:
    """DescribeTopicPartitionsRequest of Kafka 4.4.0, version 0, flexible since 0."""

    @dataclass(slots=True, kw_only=True)
    class TopicRequest:
        """Element of ``DescribeTopicPartitionsRequest.topics``."""

        name: str = ""

    @dataclass(slots=True, kw_only=True)
    class Cursor:
        """Element of ``DescribeTopicPartitionsRequest.cursor``."""

        topic_name: str = ""
        partition_index: int = 0

    topics: list[DescribeTopicPartitionsRequest.TopicRequest] = field(default_factory=list)
    response_partition_limit: int = 2000
    cursor: DescribeTopicPartitionsRequest.Cursor | None = None


@dataclass(slots=True, kw_only=True)
class DescribeTopicPartitionsResponse:
    """DescribeTopicPartitionsResponse of Kafka 4.4.0, version 0, flexible since 0."""

    @dataclass(slots=True, kw_only=True)
    class DescribeTopicPartitionsResponsePartition:
        """Element of ``DescribeTopicPartitionsResponseTopic.partitions``."""

        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1
        replica_nodes: list[int] = field(default_factory=list)
        isr_nodes: list[int] = field(default_factory=list)
        eligible_leader_replicas: list[int] | None = None
        last_known_elr: list[int] | None = None
        offline_replicas: list[int] = field(default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class DescribeTopicPartitionsResponseTopic:
        """Element of ``DescribeTopicPartitionsResponse.topics``."""

        error_code: int = 0
        name: str | None = ""
        topic_id: bytes = ZERO_UUID
        is_internal: bool = False
        partitions: list[
            DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition] = field(
            default_factory=list)
        topic_authorized_operations: int = -2147483648

    @dataclass(slots=True, kw_only=True)
    class Cursor:
        """Element of ``DescribeTopicPartitionsResponse.next_cursor``."""

        topic_name: str = ""
        partition_index: int = 0

    throttle_time_ms: int = 0
    topics: list[DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic] = field(
        default_factory=list)
    next_cursor: DescribeTopicPartitionsResponse.Cursor | None = None


_DESCRIBE_TOPIC_PARTITIONS_REQUEST__TOPIC_REQUEST = Struct("TopicRequest",
    DescribeTopicPartitionsRequest.TopicRequest, (
    Field("name", Kind.STRING, (0, 0), ""),
))
_DESCRIBE_TOPIC_PARTITIONS_REQUEST__CURSOR = Struct("Cursor", DescribeTopicPartitionsRequest.Cursor,
    (
    Field("topic_name", Kind.STRING, (0, 0), ""),
    Field("partition_index", Kind.INT32, (0, 0), 0),
))
_DESCRIBE_TOPIC_PARTITIONS_REQUEST__DESCRIBE_TOPIC_PARTITIONS_REQUEST = Struct(
    "DescribeTopicPartitionsRequest", DescribeTopicPartitionsRequest, (
    Field("topics", Kind.STRUCT, (0, 0), (), array=True,
        struct=_DESCRIBE_TOPIC_PARTITIONS_REQUEST__TOPIC_REQUEST),
    Field("response_partition_limit", Kind.INT32, (0, 0), 2000),
    Field("cursor", Kind.STRUCT, (0, 0), None, nullable=(0, 0),
        struct=_DESCRIBE_TOPIC_PARTITIONS_REQUEST__CURSOR),
))
DESCRIBE_TOPIC_PARTITIONS_REQUEST = Message(75, (0, 0), (0, 0),
    _DESCRIBE_TOPIC_PARTITIONS_REQUEST__DESCRIBE_TOPIC_PARTITIONS_REQUEST)
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE_PARTITION = Struct(
    "DescribeTopicPartitionsResponsePartition",
    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition, (
    Field("error_code", Kind.INT16, (0, 0), 0),
    Field("partition_index", Kind.INT32, (0, 0), 0),
    Field("leader_id", Kind.INT32, (0, 0), 0),
    Field("leader_epoch", Kind.INT32, (0, 0), -1, ignorable=True),
    Field("replica_nodes", Kind.INT32, (0, 0), (), array=True),
    Field("isr_nodes", Kind.INT32, (0, 0), (), array=True),
    Field("eligible_leader_replicas", Kind.INT32, (0, 0), None, array=True, nullable=(0, 0)),
    Field("last_known_elr", Kind.INT32, (0, 0), None, array=True, nullable=(0, 0)),
    Field("offline_replicas", Kind.INT32, (0, 0), (), array=True, ignorable=True),
))
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE_TOPIC = Struct(
    "DescribeTopicPartitionsResponseTopic",
    DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic, (
    Field("error_code", Kind.INT16, (0, 0), 0),
    Field("name", Kind.STRING, (0, 0), "", nullable=(0, 0)),
    Field("topic_id", Kind.UUID, (0, 0), ZERO_UUID, ignorable=True),
    Field("is_internal", Kind.BOOL, (0, 0), False, ignorable=True),
    Field("partitions", Kind.STRUCT, (0, 0), (), array=True,
        struct=_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE_PARTITION),
    Field("topic_authorized_operations", Kind.INT32, (0, 0), -2147483648),
))
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__CURSOR = Struct("Cursor",
    DescribeTopicPartitionsResponse.Cursor, (
    Field("topic_name", Kind.STRING, (0, 0), ""),
    Field("partition_index", Kind.INT32, (0, 0), 0),
))
_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE = Struct(
    "DescribeTopicPartitionsResponse", DescribeTopicPartitionsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 0), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (0, 0), (), array=True,
        struct=_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE_TOPIC),
    Field("next_cursor", Kind.STRUCT, (0, 0), None, nullable=(0, 0),
        struct=_DESCRIBE_TOPIC_PARTITIONS_RESPONSE__CURSOR),
))
DESCRIBE_TOPIC_PARTITIONS_RESPONSE = Message(75, (0, 0), (0, 0),
    _DESCRIBE_TOPIC_PARTITIONS_RESPONSE__DESCRIBE_TOPIC_PARTITIONS_RESPONSE)
