"""Messages of OffsetCommit (API key 8).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    """OffsetCommitRequest of Kafka 4.4.0, versions 2 to 10, flexible since 8."""

    @dataclass(slots=True, kw_only=True)
    class OffsetCommitRequestPartition:
        """Element of ``OffsetCommitRequestTopic.partitions``."""

        partition_index: int = 0
        committed_offset: int = 0
        committed_leader_epoch: int = -1  # versions 6 to 10
        committed_metadata: str | None = ""

    @dataclass(slots=True, kw_only=True)
    class OffsetCommitRequestTopic:
        """Element of ``OffsetCommitRequest.topics``."""

        name: str = ""  # versions 2 to 9
        topic_id: bytes = ZERO_UUID  # version 10
        partitions: list[OffsetCommitRequest.OffsetCommitRequestPartition] = field(
            default_factory=list)

    group_id: str = ""
    generation_id_or_member_epoch: int = -1
    member_id: str = ""
    group_instance_id: str | None = None  # versions 7 to 10
    retention_time_ms: int = -1  # versions 2 to 4
    topics: list[OffsetCommitRequest.OffsetCommitRequestTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    """OffsetCommitResponse of Kafka 4.4.0, versions 2 to 10, flexible since 8."""

    @dataclass(slots=True, kw_only=True)
    class OffsetCommitResponsePartition:
        """Element of ``OffsetCommitResponseTopic.partitions``."""

        partition_index: int = 0
        error_code: int = 0

    @dataclass(slots=True, kw_only=True)
    class OffsetCommitResponseTopic:
        """Element of ``OffsetCommitResponse.topics``."""

        name: str = ""  # versions 2 to 9
        topic_id: bytes = ZERO_UUID  # version 10
        partitions: list[OffsetCommitResponse.OffsetCommitResponsePartition] = field(
            default_factory=list)

    throttle_time_ms: int = 0  # versions 3 to 10
    topics: list[OffsetCommitResponse.OffsetCommitResponseTopic] = field(default_factory=list)


_OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST_PARTITION = Struct("OffsetCommitRequestPartition",
    OffsetCommitRequest.OffsetCommitRequestPartition, (
    Field("partition_index", Kind.INT32, (2, 10), 0),
    Field("committed_offset", Kind.INT64, (2, 10), 0),
    Field("committed_leader_epoch", Kind.INT32, (6, 10), -1, ignorable=True),
    Field("committed_metadata", Kind.STRING, (2, 10), "", nullable=(2, 10)),
))
_OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST_TOPIC = Struct("OffsetCommitRequestTopic",
    OffsetCommitRequest.OffsetCommitRequestTopic, (
    Field("name", Kind.STRING, (2, 9), "", ignorable=True),
    Field("topic_id", Kind.UUID, (10, 10), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.STRUCT, (2, 10), (), array=True,
        struct=_OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST_PARTITION),
))
_OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST = Struct("OffsetCommitRequest", OffsetCommitRequest, (
    Field("group_id", Kind.STRING, (2, 10), ""),
    Field("generation_id_or_member_epoch", Kind.INT32, (2, 10), -1, ignorable=True),
    Field("member_id", Kind.STRING, (2, 10), "", ignorable=True),
    Field("group_instance_id", Kind.STRING, (7, 10), None, nullable=(7, 10)),
    Field("retention_time_ms", Kind.INT64, (2, 4), -1, ignorable=True),
    Field("topics", Kind.STRUCT, (2, 10), (), array=True,
        struct=_OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST_TOPIC),
))
OFFSET_COMMIT_REQUEST = Message(8, (2, 10), (8, 10), _OFFSET_COMMIT_REQUEST__OFFSET_COMMIT_REQUEST)
_OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE_PARTITION = Struct("OffsetCommitResponsePartition",
    OffsetCommitResponse.OffsetCommitResponsePartition, (
    Field("partition_index", Kind.INT32, (2, 10), 0),
    Field("error_code", Kind.INT16, (2, 10), 0),
))
_OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE_TOPIC = Struct("OffsetCommitResponseTopic",
    OffsetCommitResponse.OffsetCommitResponseTopic, (
    Field("name", Kind.STRING, (2, 9), "", ignorable=True),
    Field("topic_id", Kind.UUID, (10, 10), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.STRUCT, (2, 10), (), array=True,
        struct=_OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE_PARTITION),
))
_OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE = Struct("OffsetCommitResponse",
    OffsetCommitResponse, (
    Field("throttle_time_ms", Kind.INT32, (3, 10), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (2, 10), (), array=True,
        struct=_OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE_TOPIC),
))
OFFSET_COMMIT_RESPONSE = Message(8, (2, 10), (8, 10),
    _OFFSET_COMMIT_RESPONSE__OFFSET_COMMIT_RESPONSE)
