"""Messages of DeleteRecords (API key 21).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DeleteRecordsRequest:
    """DeleteRecordsRequest of Kafka 4.4.0, versions 0 to 2, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsPartition:
        """Element of ``DeleteRecordsTopic.partitions``."""

        partition_index: int = 0
        offset: int = 0

    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsTopic:
        """Element of ``DeleteRecordsRequest.topics``."""

        name: str = ""
        partitions: list[DeleteRecordsRequest.DeleteRecordsPartition] = field(default_factory=list)

    topics: list[DeleteRecordsRequest.DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: int = 0


@dataclass(slots=True, kw_only=True)
class DeleteRecordsResponse:
    """DeleteRecordsResponse of Kafka 4.4.0, versions 0 to 2, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsPartitionResult:
        """Element of ``DeleteRecordsTopicResult.partitions``."""

        partition_index: int = 0
        low_watermark: int = 0
        error_code: int = 0

    @dataclass(slots=True, kw_only=True)
    class DeleteRecordsTopicResult:
        """Element of ``DeleteRecordsResponse.topics``."""

        name: str = ""
        partitions: list[DeleteRecordsResponse.DeleteRecordsPartitionResult] = field(
            default_factory=list)

    throttle_time_ms: int = 0
    topics: list[DeleteRecordsResponse.DeleteRecordsTopicResult] = field(default_factory=list)


_DELETE_RECORDS_REQUEST__DELETE_RECORDS_PARTITION = Struct("DeleteRecordsPartition",
    DeleteRecordsRequest.DeleteRecordsPartition, (
    Field("partition_index", Kind.INT32, (0, 2), 0),
    Field("offset", Kind.INT64, (0, 2), 0),
))
_DELETE_RECORDS_REQUEST__DELETE_RECORDS_TOPIC = Struct("DeleteRecordsTopic",
    DeleteRecordsRequest.DeleteRecordsTopic, (
    Field("name", Kind.STRING, (0, 2), ""),
    Field("partitions", Kind.STRUCT, (0, 2), (), array=True,
        struct=_DELETE_RECORDS_REQUEST__DELETE_RECORDS_PARTITION),
))
_DELETE_RECORDS_REQUEST__DELETE_RECORDS_REQUEST = Struct("DeleteRecordsRequest",
    DeleteRecordsRequest, (
    Field("topics", Kind.STRUCT, (0, 2), (), array=True,
        struct=_DELETE_RECORDS_REQUEST__DELETE_RECORDS_TOPIC),
    Field("timeout_ms", Kind.INT32, (0, 2), 0),
))
DELETE_RECORDS_REQUEST = Message(21, (0, 2), (2, 2),
    _DELETE_RECORDS_REQUEST__DELETE_RECORDS_REQUEST)
_DELETE_RECORDS_RESPONSE__DELETE_RECORDS_PARTITION_RESULT = Struct("DeleteRecordsPartitionResult",
    DeleteRecordsResponse.DeleteRecordsPartitionResult, (
    Field("partition_index", Kind.INT32, (0, 2), 0),
    Field("low_watermark", Kind.INT64, (0, 2), 0),
    Field("error_code", Kind.INT16, (0, 2), 0),
))
_DELETE_RECORDS_RESPONSE__DELETE_RECORDS_TOPIC_RESULT = Struct("DeleteRecordsTopicResult",
    DeleteRecordsResponse.DeleteRecordsTopicResult, (
    Field("name", Kind.STRING, (0, 2), ""),
    Field("partitions", Kind.STRUCT, (0, 2), (), array=True,
        struct=_DELETE_RECORDS_RESPONSE__DELETE_RECORDS_PARTITION_RESULT),
))
_DELETE_RECORDS_RESPONSE__DELETE_RECORDS_RESPONSE = Struct("DeleteRecordsResponse",
    DeleteRecordsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 2), 0),
    Field("topics", Kind.STRUCT, (0, 2), (), array=True,
        struct=_DELETE_RECORDS_RESPONSE__DELETE_RECORDS_TOPIC_RESULT),
))
DELETE_RECORDS_RESPONSE = Message(21, (0, 2), (2, 2),
    _DELETE_RECORDS_RESPONSE__DELETE_RECORDS_RESPONSE)
