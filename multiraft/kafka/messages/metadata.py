"""Messages of Metadata (API key 3).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class MetadataRequest:
    """MetadataRequest of Kafka 4.4.0, versions 0 to 13, flexible since 9."""

    @dataclass(slots=True, kw_only=True)
    class MetadataRequestTopic:
        """Element of ``MetadataRequest.topics``."""

        topic_id: bytes = ZERO_UUID  # versions 10 to 13
        name: str | None = ""  # null in versions 10 to 13

    # null in versions 1 to 13
    topics: list[MetadataRequest.MetadataRequestTopic] | None = field(default_factory=list)
    allow_auto_topic_creation: bool = True  # versions 4 to 13
    include_cluster_authorized_operations: bool = False  # versions 8 to 10
    include_topic_authorized_operations: bool = False  # versions 8 to 13


@dataclass(slots=True, kw_only=True)
class MetadataResponse:
    """MetadataResponse of Kafka 4.4.0, versions 0 to 13, flexible since 9."""

    @dataclass(slots=True, kw_only=True)
    class MetadataResponseBroker:
        """Element of ``MetadataResponse.brokers``."""

        node_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None  # versions 1 to 13

    @dataclass(slots=True, kw_only=True)
    class MetadataResponsePartition:
        """Element of ``MetadataResponseTopic.partitions``."""

        error_code: int = 0
        partition_index: int = 0
        leader_id: int = 0
        leader_epoch: int = -1  # versions 7 to 13
        replica_nodes: list[int] = field(default_factory=list)
        isr_nodes: list[int] = field(default_factory=list)
        offline_replicas: list[int] = field(default_factory=list)  # versions 5 to 13

    @dataclass(slots=True, kw_only=True)
    class MetadataResponseTopic:
        """Element of ``MetadataResponse.topics``."""

        error_code: int = 0
        name: str | None = ""  # null in versions 12 to 13
        topic_id: bytes = ZERO_UUID  # versions 10 to 13
        is_internal: bool = False  # versions 1 to 13
        partitions: list[MetadataResponse.MetadataResponsePartition] = field(default_factory=list)
        topic_authorized_operations: int = -2147483648  # versions 8 to 13

    throttle_time_ms: int = 0  # versions 3 to 13
    brokers: list[MetadataResponse.MetadataResponseBroker] = field(default_factory=list)
    cluster_id: str | None = None  # versions 2 to 13
    controller_id: int = -1  # versions 1 to 13
    topics: list[MetadataResponse.MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648  # versions 8 to 10
    error_code: int = 0  # version 13


_METADATA_REQUEST__METADATA_REQUEST_TOPIC = Struct("MetadataRequestTopic",
    MetadataRequest.MetadataRequestTopic, (
    Field("topic_id", Kind.UUID, (10, 13), ZERO_UUID, ignorable=True),
    Field("name", Kind.STRING, (0, 13), "", nullable=(10, 13)),
))
_METADATA_REQUEST__METADATA_REQUEST = Struct("MetadataRequest", MetadataRequest, (
    Field("topics", Kind.STRUCT, (0, 13), (), array=True, nullable=(1, 13),
        struct=_METADATA_REQUEST__METADATA_REQUEST_TOPIC),
    Field("allow_auto_topic_creation", Kind.BOOL, (4, 13), True),
    Field("include_cluster_authorized_operations", Kind.BOOL, (8, 10), False),
    Field("include_topic_authorized_operations", Kind.BOOL, (8, 13), False),
))
METADATA_REQUEST = Message(3, (0, 13), (9, 13), _METADATA_REQUEST__METADATA_REQUEST, hot=True)
_METADATA_RESPONSE__METADATA_RESPONSE_BROKER = Struct("MetadataResponseBroker",
    MetadataResponse.MetadataResponseBroker, (
    Field("node_id", Kind.INT32, (0, 13), 0),
    Field("host", Kind.STRING, (0, 13), ""),
    Field("port", Kind.INT32, (0, 13), 0),
    Field("rack", Kind.STRING, (1, 13), None, nullable=(1, 13), ignorable=True),
))
_METADATA_RESPONSE__METADATA_RESPONSE_PARTITION = Struct("MetadataResponsePartition",
    MetadataResponse.MetadataResponsePartition, (
    Field("error_code", Kind.INT16, (0, 13), 0),
    Field("partition_index", Kind.INT32, (0, 13), 0),
    Field("leader_id", Kind.INT32, (0, 13), 0),
    Field("leader_epoch", Kind.INT32, (7, 13), -1, ignorable=True),
    Field("replica_nodes", Kind.INT32, (0, 13), (), array=True),
    Field("isr_nodes", Kind.INT32, (0, 13), (), array=True),
    Field("offline_replicas", Kind.INT32, (5, 13), (), array=True, ignorable=True),
))
_METADATA_RESPONSE__METADATA_RESPONSE_TOPIC = Struct("MetadataResponseTopic",
    MetadataResponse.MetadataResponseTopic, (
    Field("error_code", Kind.INT16, (0, 13), 0),
    Field("name", Kind.STRING, (0, 13), "", nullable=(12, 13)),
    Field("topic_id", Kind.UUID, (10, 13), ZERO_UUID, ignorable=True),
    Field("is_internal", Kind.BOOL, (1, 13), False, ignorable=True),
    Field("partitions", Kind.STRUCT, (0, 13), (), array=True,
        struct=_METADATA_RESPONSE__METADATA_RESPONSE_PARTITION),
    Field("topic_authorized_operations", Kind.INT32, (8, 13), -2147483648),
))
_METADATA_RESPONSE__METADATA_RESPONSE = Struct("MetadataResponse", MetadataResponse, (
    Field("throttle_time_ms", Kind.INT32, (3, 13), 0, ignorable=True),
    Field("brokers", Kind.STRUCT, (0, 13), (), array=True,
        struct=_METADATA_RESPONSE__METADATA_RESPONSE_BROKER),
    Field("cluster_id", Kind.STRING, (2, 13), None, nullable=(2, 13), ignorable=True),
    Field("controller_id", Kind.INT32, (1, 13), -1, ignorable=True),
    Field("topics", Kind.STRUCT, (0, 13), (), array=True,
        struct=_METADATA_RESPONSE__METADATA_RESPONSE_TOPIC),
    Field("cluster_authorized_operations", Kind.INT32, (8, 10), -2147483648),
    Field("error_code", Kind.INT16, (13, 13), 0, ignorable=True),
))
METADATA_RESPONSE = Message(3, (0, 13), (9, 13), _METADATA_RESPONSE__METADATA_RESPONSE, hot=True)
