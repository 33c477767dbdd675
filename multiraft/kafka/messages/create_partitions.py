"""Messages of CreatePartitions (API key 37).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class CreatePartitionsRequest:
    """CreatePartitionsRequest of Kafka 4.4.0, versions 0 to 3, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class CreatePartitionsAssignment:
        """Element of ``CreatePartitionsTopic.assignments``."""

        broker_ids: list[int] = field(default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class CreatePartitionsTopic:
        """Element of ``CreatePartitionsRequest.topics``."""

        name: str = ""
        count: int = 0
        assignments: list[CreatePartitionsRequest.CreatePartitionsAssignment] | None = field(
            default_factory=list)

    topics: list[CreatePartitionsRequest.CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: int = 0
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class CreatePartitionsResponse:
    """CreatePartitionsResponse of Kafka 4.4.0, versions 0 to 3, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class CreatePartitionsTopicResult:
        """Element of ``CreatePartitionsResponse.results``."""

        name: str = ""
        error_code: int = 0
        error_message: str | None = None

    throttle_time_ms: int = 0
    results: list[CreatePartitionsResponse.CreatePartitionsTopicResult] = field(
        default_factory=list)


_CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_ASSIGNMENT = Struct("CreatePartitionsAssignment",
    CreatePartitionsRequest.CreatePartitionsAssignment, (
    Field("broker_ids", Kind.INT32, (0, 3), (), array=True),
))
_CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_TOPIC = Struct("CreatePartitionsTopic",
    CreatePartitionsRequest.CreatePartitionsTopic, (
    Field("name", Kind.STRING, (0, 3), ""),
    Field("count", Kind.INT32, (0, 3), 0),
    Field("assignments", Kind.STRUCT, (0, 3), (), array=True, nullable=(0, 3),
        struct=_CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_ASSIGNMENT),
))
_CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_REQUEST = Struct("CreatePartitionsRequest",
    CreatePartitionsRequest, (
    Field("topics", Kind.STRUCT, (0, 3), (), array=True,
        struct=_CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_TOPIC),
    Field("timeout_ms", Kind.INT32, (0, 3), 0),
    Field("validate_only", Kind.BOOL, (0, 3), False),
))
CREATE_PARTITIONS_REQUEST = Message(37, (0, 3), (2, 3),
    _CREATE_PARTITIONS_REQUEST__CREATE_PARTITIONS_REQUEST)
_CREATE_PARTITIONS_RESPONSE__CREATE_PARTITIONS_TOPIC_RESULT = Struct("CreatePartitionsTopicResult",
    CreatePartitionsResponse.CreatePartitionsTopicResult, (
    Field("name", Kind.STRING, (0, 3), ""),
    Field("error_code", Kind.INT16, (0, 3), 0),
    Field("error_message", Kind.STRING, (0, 3), None, nullable=(0, 3)),
))
_CREATE_PARTITIONS_RESPONSE__CREATE_PARTITIONS_RESPONSE = Struct("CreatePartitionsResponse",
    CreatePartitionsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 3), 0),
    Field("results", Kind.STRUCT, (0, 3), (), array=True,
        struct=_CREATE_PARTITIONS_RESPONSE__CREATE_PARTITIONS_TOPIC_RESULT),
))
CREATE_PARTITIONS_RESPONSE = Message(37, (0, 3), (2, 3),
    _CREATE_PARTITIONS_RESPONSE__CREATE_PARTITIONS_RESPONSE)
