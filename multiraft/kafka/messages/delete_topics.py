"""Messages of DeleteTopics (API key 20).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DeleteTopicsRequest:
    """DeleteTopicsRequest of Kafka 4.4.0, versions 1 to 6, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class DeleteTopicState:
        """Element of ``DeleteTopicsRequest.topics``."""

        name: str | None = None  # version 6
        topic_id: bytes = ZERO_UUID  # version 6

    topics: list[DeleteTopicsRequest.DeleteTopicState] = field(default_factory=list)  # version 6
    topic_names: list[str] = field(default_factory=list)  # versions 1 to 5
    timeout_ms: int = 0


@dataclass(slots=True, kw_only=True)
class DeleteTopicsResponse:
    """DeleteTopicsResponse of Kafka 4.4.0, versions 1 to 6, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class DeletableTopicResult:
        """Element of ``DeleteTopicsResponse.responses``."""

        name: str | None = ""  # null in version 6
        topic_id: bytes = ZERO_UUID  # version 6
        error_code: int = 0
        error_message: str | None = None  # versions 5 to 6

    throttle_time_ms: int = 0
    responses: list[DeleteTopicsResponse.DeletableTopicResult] = field(default_factory=list)


_DELETE_TOPICS_REQUEST__DELETE_TOPIC_STATE = Struct("DeleteTopicState",
    DeleteTopicsRequest.DeleteTopicState, (
    Field("name", Kind.STRING, (6, 6), None, nullable=(6, 6)),
    Field("topic_id", Kind.UUID, (6, 6), ZERO_UUID),
))
_DELETE_TOPICS_REQUEST__DELETE_TOPICS_REQUEST = Struct("DeleteTopicsRequest", DeleteTopicsRequest, (
    Field("topics", Kind.STRUCT, (6, 6), (), array=True,
        struct=_DELETE_TOPICS_REQUEST__DELETE_TOPIC_STATE),
    Field("topic_names", Kind.STRING, (1, 5), (), array=True, ignorable=True),
    Field("timeout_ms", Kind.INT32, (1, 6), 0),
))
DELETE_TOPICS_REQUEST = Message(20, (1, 6), (4, 6), _DELETE_TOPICS_REQUEST__DELETE_TOPICS_REQUEST)
_DELETE_TOPICS_RESPONSE__DELETABLE_TOPIC_RESULT = Struct("DeletableTopicResult",
    DeleteTopicsResponse.DeletableTopicResult, (
    Field("name", Kind.STRING, (1, 6), "", nullable=(6, 6)),
    Field("topic_id", Kind.UUID, (6, 6), ZERO_UUID, ignorable=True),
    Field("error_code", Kind.INT16, (1, 6), 0),
    Field("error_message", Kind.STRING, (5, 6), None, nullable=(5, 6), ignorable=True),
))
_DELETE_TOPICS_RESPONSE__DELETE_TOPICS_RESPONSE = Struct("DeleteTopicsResponse",
    DeleteTopicsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 6), 0, ignorable=True),
    Field("responses", Kind.STRUCT, (1, 6), (), array=True,
        struct=_DELETE_TOPICS_RESPONSE__DELETABLE_TOPIC_RESULT),
))
DELETE_TOPICS_RESPONSE = Message(20, (1, 6), (4, 6),
    _DELETE_TOPICS_RESPONSE__DELETE_TOPICS_RESPONSE)
