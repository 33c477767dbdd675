"""Messages of OffsetForLeaderEpoch (API key 23).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochRequest:
    """OffsetForLeaderEpochRequest of Kafka 4.4.0, versions 2 to 4, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class OffsetForLeaderPartition:
        """Element of ``OffsetForLeaderTopic.partitions``."""

        partition: int = 0
        current_leader_epoch: int = -1
        leader_epoch: int = 0

    @dataclass(slots=True, kw_only=True)
    class OffsetForLeaderTopic:
        """Element of ``OffsetForLeaderEpochRequest.topics``."""

        topic: str = ""
        partitions: list[OffsetForLeaderEpochRequest.OffsetForLeaderPartition] = field(
            default_factory=list)

    replica_id: int = -2  # versions 3 to 4
    topics: list[OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class OffsetForLeaderEpochResponse:
    """OffsetForLeaderEpochResponse of Kafka 4.4.0, versions 2 to 4, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class EpochEndOffset:
        """Element of ``OffsetForLeaderTopicResult.partitions``."""

        error_code: int = 0
        partition: int = 0
        leader_epoch: int = -1
        end_offset: int = -1

    @dataclass(slots=True, kw_only=True)
    class OffsetForLeaderTopicResult:
        """Element of ``OffsetForLeaderEpochResponse.topics``."""

        topic: str = ""
        partitions: list[OffsetForLeaderEpochResponse.EpochEndOffset] = field(default_factory=list)

    throttle_time_ms: int = 0
    topics: list[OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult] = field(
        default_factory=list)


_OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_PARTITION = Struct("OffsetForLeaderPartition",
    OffsetForLeaderEpochRequest.OffsetForLeaderPartition, (
    Field("partition", Kind.INT32, (2, 4), 0),
    Field("current_leader_epoch", Kind.INT32, (2, 4), -1, ignorable=True),
    Field("leader_epoch", Kind.INT32, (2, 4), 0),
))
_OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_TOPIC = Struct("OffsetForLeaderTopic",
    OffsetForLeaderEpochRequest.OffsetForLeaderTopic, (
    Field("topic", Kind.STRING, (2, 4), ""),
    Field("partitions", Kind.STRUCT, (2, 4), (), array=True,
        struct=_OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_PARTITION),
))
_OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_EPOCH_REQUEST = Struct(
    "OffsetForLeaderEpochRequest", OffsetForLeaderEpochRequest, (
    Field("replica_id", Kind.INT32, (3, 4), -2, ignorable=True),
    Field("topics", Kind.STRUCT, (2, 4), (), array=True,
        struct=_OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_TOPIC),
))
OFFSET_FOR_LEADER_EPOCH_REQUEST = Message(23, (2, 4), (4, 4),
    _OFFSET_FOR_LEADER_EPOCH_REQUEST__OFFSET_FOR_LEADER_EPOCH_REQUEST)
_OFFSET_FOR_LEADER_EPOCH_RESPONSE__EPOCH_END_OFFSET = Struct("EpochEndOffset",
    OffsetForLeaderEpochResponse.EpochEndOffset, (
    Field("error_code", Kind.INT16, (2, 4), 0),
    Field("partition", Kind.INT32, (2, 4), 0),
    Field("leader_epoch", Kind.INT32, (2, 4), -1, ignorable=True),
    Field("end_offset", Kind.INT64, (2, 4), -1),
))
_OFFSET_FOR_LEADER_EPOCH_RESPONSE__OFFSET_FOR_LEADER_TOPIC_RESULT = Struct(
    "OffsetForLeaderTopicResult", OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult, (
    Field("topic", Kind.STRING, (2, 4), ""),
    Field("partitions", Kind.STRUCT, (2, 4), (), array=True,
        struct=_OFFSET_FOR_LEADER_EPOCH_RESPONSE__EPOCH_END_OFFSET),
))
_OFFSET_FOR_LEADER_EPOCH_RESPONSE__OFFSET_FOR_LEADER_EPOCH_RESPONSE = Struct(
    "OffsetForLeaderEpochResponse", OffsetForLeaderEpochResponse, (
    Field("throttle_time_ms", Kind.INT32, (2, 4), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (2, 4), (), array=True,
        struct=_OFFSET_FOR_LEADER_EPOCH_RESPONSE__OFFSET_FOR_LEADER_TOPIC_RESULT),
))
OFFSET_FOR_LEADER_EPOCH_RESPONSE = Message(23, (2, 4), (4, 4),
    _OFFSET_FOR_LEADER_EPOCH_RESPONSE__OFFSET_FOR_LEADER_EPOCH_RESPONSE)
