"""Messages of Fetch (API key 1).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Buffer, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    """FetchRequest of Kafka 4.4.0, versions 4 to 18, flexible since 12."""

    @dataclass(slots=True, kw_only=True)
    class ReplicaState:
        """Element of ``FetchRequest.replica_state``."""

        replica_id: int = -1  # versions 15 to 18
        replica_epoch: int = -1  # versions 15 to 18

    @dataclass(slots=True, kw_only=True)
    class FetchPartition:
        """Element of ``FetchTopic.partitions``."""

        partition: int = 0
        current_leader_epoch: int = -1  # versions 9 to 18
        fetch_offset: int = 0
        last_fetched_epoch: int = -1  # versions 12 to 18
        log_start_offset: int = -1  # versions 5 to 18
        partition_max_bytes: int = 0
        replica_directory_id: bytes = ZERO_UUID  # versions 17 to 18, tag 0
        high_watermark: int = 9223372036854775807  # version 18, tag 1

    @dataclass(slots=True, kw_only=True)
    class FetchTopic:
        """Element of ``FetchRequest.topics``."""

        topic: str = ""  # versions 4 to 12
        topic_id: bytes = ZERO_UUID  # versions 13 to 18
        partitions: list[FetchRequest.FetchPartition] = field(default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class ForgottenTopic:
        """Element of ``FetchRequest.forgotten_topics_data``."""

        topic: str = ""  # versions 7 to 12
        topic_id: bytes = ZERO_UUID  # versions 13 to 18
        partitions: list[int] = field(default_factory=list)  # versions 7 to 18

    cluster_id: str | None = None  # versions 12 to 18, tag 0
    replica_id: int = -1  # versions 4 to 14
    # versions 15 to 18, tag 1
    replica_state: FetchRequest.ReplicaState = field(
        default_factory=lambda: FetchRequest.ReplicaState())
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = 2147483647
    isolation_level: int = 0
    session_id: int = 0  # versions 7 to 18
    session_epoch: int = -1  # versions 7 to 18
    topics: list[FetchRequest.FetchTopic] = field(default_factory=list)
    # versions 7 to 18
    forgotten_topics_data: list[FetchRequest.ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""  # versions 11 to 18


@dataclass(slots=True, kw_only=True)
class FetchResponse:
    """FetchResponse of Kafka 4.4.0, versions 4 to 18, flexible since 12."""

    @dataclass(slots=True, kw_only=True)
    class EpochEndOffset:
        """Element of ``PartitionData.diverging_epoch``."""

        epoch: int = -1  # versions 12 to 18
        end_offset: int = -1  # versions 12 to 18

    @dataclass(slots=True, kw_only=True)
    class LeaderIdAndEpoch:
        """Element of ``PartitionData.current_leader``."""

        leader_id: int = -1  # versions 12 to 18
        leader_epoch: int = -1  # versions 12 to 18

    @dataclass(slots=True, kw_only=True)
    class SnapshotId:
        """Element of ``PartitionData.snapshot_id``."""

        end_offset: int = -1
        epoch: int = -1

    @dataclass(slots=True, kw_only=True)
    class AbortedTransaction:
        """Element of ``PartitionData.aborted_transactions``."""

        producer_id: int = 0
        first_offset: int = 0

    @dataclass(slots=True, kw_only=True)
    class PartitionData:
        """Element of ``FetchableTopicResponse.partitions``."""

        partition_index: int = 0
        error_code: int = 0
        high_watermark: int = 0
        last_stable_offset: int = -1
        log_start_offset: int = -1  # versions 5 to 18
        # versions 12 to 18, tag 0
        diverging_epoch: FetchResponse.EpochEndOffset = field(
            default_factory=lambda: FetchResponse.EpochEndOffset())
        # versions 12 to 18, tag 1
        current_leader: FetchResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: FetchResponse.LeaderIdAndEpoch())
        # versions 12 to 18, tag 2
        snapshot_id: FetchResponse.SnapshotId = field(
            default_factory=lambda: FetchResponse.SnapshotId())
        aborted_transactions: list[FetchResponse.AbortedTransaction] | None = field(
            default_factory=list)
        preferred_read_replica: int = -1  # versions 11 to 18
        records: Sequence[Buffer] | None = None

    @dataclass(slots=True, kw_only=True)
    class FetchableTopicResponse:
        """Element of ``FetchResponse.responses``."""

        topic: str = ""  # versions 4 to 12
        topic_id: bytes = ZERO_UUID  # versions 13 to 18
        partitions: list[FetchResponse.PartitionData] = field(default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class NodeEndpoint:
        """Element of ``FetchResponse.node_endpoints``."""

        node_id: int = 0  # versions 16 to 18
        host: str = ""  # versions 16 to 18
        port: int = 0  # versions 16 to 18
        rack: str | None = None  # versions 16 to 18

    throttle_time_ms: int = 0
    error_code: int = 0  # versions 7 to 18
    session_id: int = 0  # versions 7 to 18
    responses: list[FetchResponse.FetchableTopicResponse] = field(default_factory=list)
    # versions 16 to 18, tag 0
    node_endpoints: list[FetchResponse.NodeEndpoint] = field(default_factory=list)


_FETCH_REQUEST__REPLICA_STATE = Struct("ReplicaState", FetchRequest.ReplicaState, (
    Field("replica_id", Kind.INT32, (15, 18), -1),
    Field("replica_epoch", Kind.INT64, (15, 18), -1),
))
_FETCH_REQUEST__FETCH_PARTITION = Struct("FetchPartition", FetchRequest.FetchPartition, (
    Field("partition", Kind.INT32, (4, 18), 0),
    Field("current_leader_epoch", Kind.INT32, (9, 18), -1, ignorable=True),
    Field("fetch_offset", Kind.INT64, (4, 18), 0),
    Field("last_fetched_epoch", Kind.INT32, (12, 18), -1),
    Field("log_start_offset", Kind.INT64, (5, 18), -1, ignorable=True),
    Field("partition_max_bytes", Kind.INT32, (4, 18), 0),
    Field("replica_directory_id", Kind.UUID, (17, 18), ZERO_UUID, tag=0, tagged=(17, 18),
        ignorable=True),
    Field("high_watermark", Kind.INT64, (18, 18), 9223372036854775807, tag=1, tagged=(18, 18),
        ignorable=True),
))
_FETCH_REQUEST__FETCH_TOPIC = Struct("FetchTopic", FetchRequest.FetchTopic, (
    Field("topic", Kind.STRING, (4, 12), "", ignorable=True),
    Field("topic_id", Kind.UUID, (13, 18), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.STRUCT, (4, 18), (), array=True,
        struct=_FETCH_REQUEST__FETCH_PARTITION),
))
_FETCH_REQUEST__FORGOTTEN_TOPIC = Struct("ForgottenTopic", FetchRequest.ForgottenTopic, (
    Field("topic", Kind.STRING, (7, 12), "", ignorable=True),
    Field("topic_id", Kind.UUID, (13, 18), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.INT32, (7, 18), (), array=True),
))
_FETCH_REQUEST__FETCH_REQUEST = Struct("FetchRequest", FetchRequest, (
    Field("cluster_id", Kind.STRING, (12, 18), None, nullable=(12, 18), tag=0, tagged=(12, 18),
        ignorable=True),
    Field("replica_id", Kind.INT32, (4, 14), -1),
    Field("replica_state", Kind.STRUCT, (15, 18), (), tag=1, tagged=(15, 18), ignorable=True,
        struct=_FETCH_REQUEST__REPLICA_STATE),
    Field("max_wait_ms", Kind.INT32, (4, 18), 0),
    Field("min_bytes", Kind.INT32, (4, 18), 0),
    Field("max_bytes", Kind.INT32, (4, 18), 2147483647, ignorable=True),
    Field("isolation_level", Kind.INT8, (4, 18), 0, ignorable=True),
    Field("session_id", Kind.INT32, (7, 18), 0, ignorable=True),
    Field("session_epoch", Kind.INT32, (7, 18), -1, ignorable=True),
    Field("topics", Kind.STRUCT, (4, 18), (), array=True, struct=_FETCH_REQUEST__FETCH_TOPIC),
    Field("forgotten_topics_data", Kind.STRUCT, (7, 18), (), array=True,
        struct=_FETCH_REQUEST__FORGOTTEN_TOPIC),
    Field("rack_id", Kind.STRING, (11, 18), "", ignorable=True),
))
FETCH_REQUEST = Message(1, (4, 18), (12, 18), _FETCH_REQUEST__FETCH_REQUEST, hot=True)
_FETCH_RESPONSE__EPOCH_END_OFFSET = Struct("EpochEndOffset", FetchResponse.EpochEndOffset, (
    Field("epoch", Kind.INT32, (12, 18), -1),
    Field("end_offset", Kind.INT64, (12, 18), -1),
))
_FETCH_RESPONSE__LEADER_ID_AND_EPOCH = Struct("LeaderIdAndEpoch", FetchResponse.LeaderIdAndEpoch, (
    Field("leader_id", Kind.INT32, (12, 18), -1),
    Field("leader_epoch", Kind.INT32, (12, 18), -1),
))
_FETCH_RESPONSE__SNAPSHOT_ID = Struct("SnapshotId", FetchResponse.SnapshotId, (
    Field("end_offset", Kind.INT64, (4, 18), -1),
    Field("epoch", Kind.INT32, (4, 18), -1),
))
_FETCH_RESPONSE__ABORTED_TRANSACTION = Struct("AbortedTransaction",
    FetchResponse.AbortedTransaction, (
    Field("producer_id", Kind.INT64, (4, 18), 0),
    Field("first_offset", Kind.INT64, (4, 18), 0),
))
_FETCH_RESPONSE__PARTITION_DATA = Struct("PartitionData", FetchResponse.PartitionData, (
    Field("partition_index", Kind.INT32, (4, 18), 0),
    Field("error_code", Kind.INT16, (4, 18), 0),
    Field("high_watermark", Kind.INT64, (4, 18), 0),
    Field("last_stable_offset", Kind.INT64, (4, 18), -1, ignorable=True),
    Field("log_start_offset", Kind.INT64, (5, 18), -1, ignorable=True),
    Field("diverging_epoch", Kind.STRUCT, (12, 18), (), tag=0, tagged=(12, 18), ignorable=True,
        struct=_FETCH_RESPONSE__EPOCH_END_OFFSET),
    Field("current_leader", Kind.STRUCT, (12, 18), (), tag=1, tagged=(12, 18), ignorable=True,
        struct=_FETCH_RESPONSE__LEADER_ID_AND_EPOCH),
    Field("snapshot_id", Kind.STRUCT, (12, 18), (), tag=2, tagged=(12, 18), ignorable=True,
        struct=_FETCH_RESPONSE__SNAPSHOT_ID),
    Field("aborted_transactions", Kind.STRUCT, (4, 18), (), array=True, nullable=(4, 18),
        ignorable=True, struct=_FETCH_RESPONSE__ABORTED_TRANSACTION),
    Field("preferred_read_replica", Kind.INT32, (11, 18), -1),
    Field("records", Kind.RECORD_BUFFERS, (4, 18), None, nullable=(4, 18)),
))
_FETCH_RESPONSE__FETCHABLE_TOPIC_RESPONSE = Struct("FetchableTopicResponse",
    FetchResponse.FetchableTopicResponse, (
    Field("topic", Kind.STRING, (4, 12), "", ignorable=True),
    Field("topic_id", Kind.UUID, (13, 18), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.STRUCT, (4, 18), (), array=True,
        struct=_FETCH_RESPONSE__PARTITION_DATA),
))
_FETCH_RESPONSE__NODE_ENDPOINT = Struct("NodeEndpoint", FetchResponse.NodeEndpoint, (
    Field("node_id", Kind.INT32, (16, 18), 0),
    Field("host", Kind.STRING, (16, 18), ""),
    Field("port", Kind.INT32, (16, 18), 0),
    Field("rack", Kind.STRING, (16, 18), None, nullable=(16, 18)),
))
_FETCH_RESPONSE__FETCH_RESPONSE = Struct("FetchResponse", FetchResponse, (
    Field("throttle_time_ms", Kind.INT32, (4, 18), 0, ignorable=True),
    Field("error_code", Kind.INT16, (7, 18), 0, ignorable=True),
    Field("session_id", Kind.INT32, (7, 18), 0),
    Field("responses", Kind.STRUCT, (4, 18), (), array=True,
        struct=_FETCH_RESPONSE__FETCHABLE_TOPIC_RESPONSE),
    Field("node_endpoints", Kind.STRUCT, (16, 18), (), array=True, tag=0, tagged=(16, 18),
        ignorable=True, struct=_FETCH_RESPONSE__NODE_ENDPOINT),
))
FETCH_RESPONSE = Message(1, (4, 18), (12, 18), _FETCH_RESPONSE__FETCH_RESPONSE, hot=True)
