"""Messages of Produce (API key 0).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Buffer, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class ProduceRequest:
    """ProduceRequest of Kafka 4.4.0, versions 3 to 13, flexible since 9."""

    @dataclass(slots=True, kw_only=True)
    class PartitionProduceData:
        """Element of ``TopicProduceData.partition_data``."""

        index: int = 0
        records: Buffer | None = None

    @dataclass(slots=True, kw_only=True)
    class TopicProduceData:
        """Element of ``ProduceRequest.topic_data``."""

        name: str = ""  # versions 3 to 12
        topic_id: bytes = ZERO_UUID  # version 13
        partition_data: list[ProduceRequest.PartitionProduceData] = field(default_factory=list)

    transactional_id: str | None = None
    acks: int = 0
    timeout_ms: int = 0
    topic_data: list[ProduceRequest.TopicProduceData] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class ProduceResponse:
    """ProduceResponse of Kafka 4.4.0, versions 3 to 13, flexible since 9."""

    @dataclass(slots=True, kw_only=True)
    class BatchIndexAndErrorMessage:
        """Element of ``PartitionProduceResponse.record_errors``."""

        batch_index: int = 0  # versions 8 to 13
        batch_index_error_message: str | None = None  # versions 8 to 13

    @dataclass(slots=True, kw_only=True)
    class LeaderIdAndEpoch:
        """Element of ``PartitionProduceResponse.current_leader``."""

        leader_id: int = -1  # versions 10 to 13
        leader_epoch: int = -1  # versions 10 to 13

    @dataclass(slots=True, kw_only=True)
    class PartitionProduceResponse:
        """Element of ``TopicProduceResponse.partition_responses``."""

        index: int = 0
        error_code: int = 0
        base_offset: int = 0
        log_append_time_ms: int = -1
        log_start_offset: int = -1  # versions 5 to 13
        # versions 8 to 13
        record_errors: list[ProduceResponse.BatchIndexAndErrorMessage] = field(default_factory=list)
        error_message: str | None = None  # versions 8 to 13
        # versions 10 to 13, tag 0
        current_leader: ProduceResponse.LeaderIdAndEpoch = field(
            default_factory=lambda: ProduceResponse.LeaderIdAndEpoch())

    @dataclass(slots=True, kw_only=True)
    class TopicProduceResponse:
        """Element of ``ProduceResponse.responses``."""

        name: str = ""  # versions 3 to 12
        topic_id: bytes = ZERO_UUID  # version 13
        partition_responses: list[ProduceResponse.PartitionProduceResponse] = field(
            default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class NodeEndpoint:
        """Element of ``ProduceResponse.node_endpoints``."""

        node_id: int = 0  # versions 10 to 13
        host: str = ""  # versions 10 to 13
        port: int = 0  # versions 10 to 13
        rack: str | None = None  # versions 10 to 13

    responses: list[ProduceResponse.TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: int = 0
    # versions 10 to 13, tag 0
    node_endpoints: list[ProduceResponse.NodeEndpoint] = field(default_factory=list)


_PRODUCE_REQUEST__PARTITION_PRODUCE_DATA = Struct("PartitionProduceData",
    ProduceRequest.PartitionProduceData, (
    Field("index", Kind.INT32, (3, 13), 0),
    Field("records", Kind.RECORD_BUFFER, (3, 13), None, nullable=(3, 13)),
))
_PRODUCE_REQUEST__TOPIC_PRODUCE_DATA = Struct("TopicProduceData", ProduceRequest.TopicProduceData, (
    Field("name", Kind.STRING, (3, 12), "", ignorable=True),
    Field("topic_id", Kind.UUID, (13, 13), ZERO_UUID, ignorable=True),
    Field("partition_data", Kind.STRUCT, (3, 13), (), array=True,
        struct=_PRODUCE_REQUEST__PARTITION_PRODUCE_DATA),
))
_PRODUCE_REQUEST__PRODUCE_REQUEST = Struct("ProduceRequest", ProduceRequest, (
    Field("transactional_id", Kind.STRING, (3, 13), None, nullable=(3, 13)),
    Field("acks", Kind.INT16, (3, 13), 0),
    Field("timeout_ms", Kind.INT32, (3, 13), 0),
    Field("topic_data", Kind.STRUCT, (3, 13), (), array=True,
        struct=_PRODUCE_REQUEST__TOPIC_PRODUCE_DATA),
))
PRODUCE_REQUEST = Message(0, (3, 13), (9, 13), _PRODUCE_REQUEST__PRODUCE_REQUEST, hot=True)
_PRODUCE_RESPONSE__BATCH_INDEX_AND_ERROR_MESSAGE = Struct("BatchIndexAndErrorMessage",
    ProduceResponse.BatchIndexAndErrorMessage, (
    Field("batch_index", Kind.INT32, (8, 13), 0),
    Field("batch_index_error_message", Kind.STRING, (8, 13), None, nullable=(8, 13)),
))
_PRODUCE_RESPONSE__LEADER_ID_AND_EPOCH = Struct("LeaderIdAndEpoch",
    ProduceResponse.LeaderIdAndEpoch, (
    Field("leader_id", Kind.INT32, (10, 13), -1),
    Field("leader_epoch", Kind.INT32, (10, 13), -1),
))
_PRODUCE_RESPONSE__PARTITION_PRODUCE_RESPONSE = Struct("PartitionProduceResponse",
    ProduceResponse.PartitionProduceResponse, (
    Field("index", Kind.INT32, (3, 13), 0),
    Field("error_code", Kind.INT16, (3, 13), 0),
    Field("base_offset", Kind.INT64, (3, 13), 0),
    Field("log_append_time_ms", Kind.INT64, (3, 13), -1, ignorable=True),
    Field("log_start_offset", Kind.INT64, (5, 13), -1, ignorable=True),
    Field("record_errors", Kind.STRUCT, (8, 13), (), array=True, ignorable=True,
        struct=_PRODUCE_RESPONSE__BATCH_INDEX_AND_ERROR_MESSAGE),
    Field("error_message", Kind.STRING, (8, 13), None, nullable=(8, 13), ignorable=True),
    Field("current_leader", Kind.STRUCT, (10, 13), (), tag=0, tagged=(10, 13), ignorable=True,
        struct=_PRODUCE_RESPONSE__LEADER_ID_AND_EPOCH),
))
_PRODUCE_RESPONSE__TOPIC_PRODUCE_RESPONSE = Struct("TopicProduceResponse",
    ProduceResponse.TopicProduceResponse, (
    Field("name", Kind.STRING, (3, 12), "", ignorable=True),
    Field("topic_id", Kind.UUID, (13, 13), ZERO_UUID, ignorable=True),
    Field("partition_responses", Kind.STRUCT, (3, 13), (), array=True,
        struct=_PRODUCE_RESPONSE__PARTITION_PRODUCE_RESPONSE),
))
_PRODUCE_RESPONSE__NODE_ENDPOINT = Struct("NodeEndpoint", ProduceResponse.NodeEndpoint, (
    Field("node_id", Kind.INT32, (10, 13), 0),
    Field("host", Kind.STRING, (10, 13), ""),
    Field("port", Kind.INT32, (10, 13), 0),
    Field("rack", Kind.STRING, (10, 13), None, nullable=(10, 13)),
))
_PRODUCE_RESPONSE__PRODUCE_RESPONSE = Struct("ProduceResponse", ProduceResponse, (
    Field("responses", Kind.STRUCT, (3, 13), (), array=True,
        struct=_PRODUCE_RESPONSE__TOPIC_PRODUCE_RESPONSE),
    Field("throttle_time_ms", Kind.INT32, (3, 13), 0, ignorable=True),
    Field("node_endpoints", Kind.STRUCT, (10, 13), (), array=True, tag=0, tagged=(10, 13),
        ignorable=True, struct=_PRODUCE_RESPONSE__NODE_ENDPOINT),
))
PRODUCE_RESPONSE = Message(0, (3, 13), (9, 13), _PRODUCE_RESPONSE__PRODUCE_RESPONSE, hot=True)
