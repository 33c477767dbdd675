"""Messages of CreateTopics (API key 19).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class CreateTopicsRequest:
    """CreateTopicsRequest of Kafka 4.4.0, versions 2 to 7, flexible since 5."""

    @dataclass(slots=True, kw_only=True)
    class CreatableReplicaAssignment:
        """Element of ``CreatableTopic.assignments``."""

        partition_index: int = 0
        broker_ids: list[int] = field(default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class CreatableTopicConfig:
        """Element of ``CreatableTopic.configs``."""

        name: str = ""
        value: str | None = ""

    @dataclass(slots=True, kw_only=True)
    class CreatableTopic:
        """Element of ``CreateTopicsRequest.topics``."""

        name: str = ""
        num_partitions: int = 0
        replication_factor: int = 0
        assignments: list[CreateTopicsRequest.CreatableReplicaAssignment] = field(
            default_factory=list)
        configs: list[CreateTopicsRequest.CreatableTopicConfig] = field(default_factory=list)

    topics: list[CreateTopicsRequest.CreatableTopic] = field(default_factory=list)
    timeout_ms: int = 60000
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class CreateTopicsResponse:
    """CreateTopicsResponse of Kafka 4.4.0, versions 2 to 7, flexible since 5."""

    @dataclass(slots=True, kw_only=True)
    class CreatableTopicConfigs:
        """Element of ``CreatableTopicResult.configs``."""

        name: str = ""  # versions 5 to 7
        value: str | None = ""  # versions 5 to 7
        read_only: bool = False  # versions 5 to 7
        config_source: int = -1  # versions 5 to 7
        is_sensitive: bool = False  # versions 5 to 7

    @dataclass(slots=True, kw_only=True)
    class CreatableTopicResult:
        """Element of ``CreateTopicsResponse.topics``."""

        name: str = ""
        topic_id: bytes = ZERO_UUID  # version 7
        error_code: int = 0
        error_message: str | None = ""
        topic_config_error_code: int = 0  # versions 5 to 7, tag 0
        num_partitions: int = -1  # versions 5 to 7
        replication_factor: int = -1  # versions 5 to 7
        # versions 5 to 7
        configs: list[CreateTopicsResponse.CreatableTopicConfigs] | None = field(
            default_factory=list)

    throttle_time_ms: int = 0
    topics: list[CreateTopicsResponse.CreatableTopicResult] = field(default_factory=list)


_CREATE_TOPICS_REQUEST__CREATABLE_REPLICA_ASSIGNMENT = Struct("CreatableReplicaAssignment",
    CreateTopicsRequest.CreatableReplicaAssignment, (
    Field("partition_index", Kind.INT32, (2, 7), 0),
    Field("broker_ids", Kind.INT32, (2, 7), (), array=True),
))
_CREATE_TOPICS_REQUEST__CREATABLE_TOPIC_CONFIG = Struct("CreatableTopicConfig",
    CreateTopicsRequest.CreatableTopicConfig, (
    Field("name", Kind.STRING, (2, 7), ""),
    Field("value", Kind.STRING, (2, 7), "", nullable=(2, 7)),
))
_CREATE_TOPICS_REQUEST__CREATABLE_TOPIC = Struct("CreatableTopic",
    CreateTopicsRequest.CreatableTopic, (
    Field("name", Kind.STRING, (2, 7), ""),
    Field("num_partitions", Kind.INT32, (2, 7), 0),
    Field("replication_factor", Kind.INT16, (2, 7), 0),
    Field("assignments", Kind.STRUCT, (2, 7), (), array=True,
        struct=_CREATE_TOPICS_REQUEST__CREATABLE_REPLICA_ASSIGNMENT),
    Field("configs", Kind.STRUCT, (2, 7), (), array=True,
        struct=_CREATE_TOPICS_REQUEST__CREATABLE_TOPIC_CONFIG),
))
_CREATE_TOPICS_REQUEST__CREATE_TOPICS_REQUEST = Struct("CreateTopicsRequest", CreateTopicsRequest, (
    Field("topics", Kind.STRUCT, (2, 7), (), array=True,
        struct=_CREATE_TOPICS_REQUEST__CREATABLE_TOPIC),
    Field("timeout_ms", Kind.INT32, (2, 7), 60000),
    Field("validate_only", Kind.BOOL, (2, 7), False),
))
CREATE_TOPICS_REQUEST = Message(19, (2, 7), (5, 7), _CREATE_TOPICS_REQUEST__CREATE_TOPICS_REQUEST)
_CREATE_TOPICS_RESPONSE__CREATABLE_TOPIC_CONFIGS = Struct("CreatableTopicConfigs",
    CreateTopicsResponse.CreatableTopicConfigs, (
    Field("name", Kind.STRING, (5, 7), ""),
    Field("value", Kind.STRING, (5, 7), "", nullable=(5, 7)),
    Field("read_only", Kind.BOOL, (5, 7), False),
    Field("config_source", Kind.INT8, (5, 7), -1, ignorable=True),
    Field("is_sensitive", Kind.BOOL, (5, 7), False),
))
_CREATE_TOPICS_RESPONSE__CREATABLE_TOPIC_RESULT = Struct("CreatableTopicResult",
    CreateTopicsResponse.CreatableTopicResult, (
    Field("name", Kind.STRING, (2, 7), ""),
    Field("topic_id", Kind.UUID, (7, 7), ZERO_UUID, ignorable=True),
    Field("error_code", Kind.INT16, (2, 7), 0),
    Field("error_message", Kind.STRING, (2, 7), "", nullable=(2, 7), ignorable=True),
    Field("topic_config_error_code", Kind.INT16, (5, 7), 0, tag=0, tagged=(5, 7), ignorable=True),
    Field("num_partitions", Kind.INT32, (5, 7), -1, ignorable=True),
    Field("replication_factor", Kind.INT16, (5, 7), -1, ignorable=True),
    Field("configs", Kind.STRUCT, (5, 7), (), array=True, nullable=(5, 7), ignorable=True,
        struct=_CREATE_TOPICS_RESPONSE__CREATABLE_TOPIC_CONFIGS),
))
_CREATE_TOPICS_RESPONSE__CREATE_TOPICS_RESPONSE = Struct("CreateTopicsResponse",
    CreateTopicsResponse, (
    Field("throttle_time_ms", Kind.INT32, (2, 7), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (2, 7), (), array=True,
        struct=_CREATE_TOPICS_RESPONSE__CREATABLE_TOPIC_RESULT),
))
CREATE_TOPICS_RESPONSE = Message(19, (2, 7), (5, 7),
    _CREATE_TOPICS_RESPONSE__CREATE_TOPICS_RESPONSE)
