"""Messages of OffsetFetch (API key 9).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class OffsetFetchRequest:
    """OffsetFetchRequest of Kafka 4.4.0, versions 1 to 10, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchRequestTopic:
        """Element of ``OffsetFetchRequest.topics``."""

        name: str = ""  # versions 1 to 7
        partition_indexes: list[int] = field(default_factory=list)  # versions 1 to 7

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchRequestTopics:
        """Element of ``OffsetFetchRequestGroup.topics``."""

        name: str = ""  # versions 8 to 9
        topic_id: bytes = ZERO_UUID  # version 10
        partition_indexes: list[int] = field(default_factory=list)  # versions 8 to 10

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchRequestGroup:
        """Element of ``OffsetFetchRequest.groups``."""

        group_id: str = ""  # versions 8 to 10
        member_id: str | None = None  # versions 9 to 10
        member_epoch: int = -1  # versions 9 to 10
        # versions 8 to 10
        topics: list[OffsetFetchRequest.OffsetFetchRequestTopics] | None = field(
            default_factory=list)

    group_id: str = ""  # versions 1 to 7
    # versions 1 to 7, null in versions 2 to 7
    topics: list[OffsetFetchRequest.OffsetFetchRequestTopic] | None = field(default_factory=list)
    # versions 8 to 10
    groups: list[OffsetFetchRequest.OffsetFetchRequestGroup] = field(default_factory=list)
    require_stable: bool = False  # versions 7 to 10


@dataclass(slots=True, kw_only=True)
class OffsetFetchResponse:
    """OffsetFetchResponse of Kafka 4.4.0, versions 1 to 10, flexible since 6."""

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponsePartition:
        """Element of ``OffsetFetchResponseTopic.partitions``."""

        partition_index: int = 0  # versions 1 to 7
        committed_offset: int = 0  # versions 1 to 7
        committed_leader_epoch: int = -1  # versions 5 to 7
        metadata: str | None = ""  # versions 1 to 7
        error_code: int = 0  # versions 1 to 7

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponseTopic:
        """Element of ``OffsetFetchResponse.topics``."""

        name: str = ""  # versions 1 to 7
        # versions 1 to 7
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartition] = field(
            default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponsePartitions:
        """Element of ``OffsetFetchResponseTopics.partitions``."""

        partition_index: int = 0  # versions 8 to 10
        committed_offset: int = 0  # versions 8 to 10
        committed_leader_epoch: int = -1  # versions 8 to 10
        metadata: str | None = ""  # versions 8 to 10
        error_code: int = 0  # versions 8 to 10

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponseTopics:
        """Element of ``OffsetFetchResponseGroup.topics``."""

        name: str = ""  # versions 8 to 9
        topic_id: bytes = ZERO_UUID  # version 10
        # versions 8 to 10
        partitions: list[OffsetFetchResponse.OffsetFetchResponsePartitions] = field(
            default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class OffsetFetchResponseGroup:
        """Element of ``OffsetFetchResponse.groups``."""

        group_id: str = ""  # versions 8 to 10
        # versions 8 to 10
        topics: list[OffsetFetchResponse.OffsetFetchResponseTopics] = field(default_factory=list)
        error_code: int = 0  # versions 8 to 10

    throttle_time_ms: int = 0  # versions 3 to 10
    # versions 1 to 7
    topics: list[OffsetFetchResponse.OffsetFetchResponseTopic] = field(default_factory=list)
    error_code: int = 0  # versions 2 to 7
    # versions 8 to 10
    groups: list[OffsetFetchResponse.OffsetFetchResponseGroup] = field(default_factory=list)


_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_TOPIC = Struct("OffsetFetchRequestTopic",
    OffsetFetchRequest.OffsetFetchRequestTopic, (
    Field("name", Kind.STRING, (1, 7), ""),
    Field("partition_indexes", Kind.INT32, (1, 7), (), array=True),
))
_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_TOPICS = Struct("OffsetFetchRequestTopics",
    OffsetFetchRequest.OffsetFetchRequestTopics, (
    Field("name", Kind.STRING, (8, 9), "", ignorable=True),
    Field("topic_id", Kind.UUID, (10, 10), ZERO_UUID, ignorable=True),
    Field("partition_indexes", Kind.INT32, (8, 10), (), array=True),
))
_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_GROUP = Struct("OffsetFetchRequestGroup",
    OffsetFetchRequest.OffsetFetchRequestGroup, (
    Field("group_id", Kind.STRING, (8, 10), ""),
    Field("member_id", Kind.STRING, (9, 10), None, nullable=(9, 10), ignorable=True),
    Field("member_epoch", Kind.INT32, (9, 10), -1, ignorable=True),
    Field("topics", Kind.STRUCT, (8, 10), (), array=True, nullable=(8, 10),
        struct=_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_TOPICS),
))
_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST = Struct("OffsetFetchRequest", OffsetFetchRequest, (
    Field("group_id", Kind.STRING, (1, 7), ""),
    Field("topics", Kind.STRUCT, (1, 7), (), array=True, nullable=(2, 7),
        struct=_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_TOPIC),
    Field("groups", Kind.STRUCT, (8, 10), (), array=True,
        struct=_OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST_GROUP),
    Field("require_stable", Kind.BOOL, (7, 10), False),
))
OFFSET_FETCH_REQUEST = Message(9, (1, 10), (6, 10), _OFFSET_FETCH_REQUEST__OFFSET_FETCH_REQUEST)
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_PARTITION = Struct("OffsetFetchResponsePartition",
    OffsetFetchResponse.OffsetFetchResponsePartition, (
    Field("partition_index", Kind.INT32, (1, 7), 0),
    Field("committed_offset", Kind.INT64, (1, 7), 0),
    Field("committed_leader_epoch", Kind.INT32, (5, 7), -1, ignorable=True),
    Field("metadata", Kind.STRING, (1, 7), "", nullable=(1, 7)),
    Field("error_code", Kind.INT16, (1, 7), 0),
))
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_TOPIC = Struct("OffsetFetchResponseTopic",
    OffsetFetchResponse.OffsetFetchResponseTopic, (
    Field("name", Kind.STRING, (1, 7), ""),
    Field("partitions", Kind.STRUCT, (1, 7), (), array=True,
        struct=_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_PARTITION),
))
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_PARTITIONS = Struct("OffsetFetchResponsePartitions",
    OffsetFetchResponse.OffsetFetchResponsePartitions, (
    Field("partition_index", Kind.INT32, (8, 10), 0),
    Field("committed_offset", Kind.INT64, (8, 10), 0),
    Field("committed_leader_epoch", Kind.INT32, (8, 10), -1, ignorable=True),
    Field("metadata", Kind.STRING, (8, 10), "", nullable=(8, 10)),
    Field("error_code", Kind.INT16, (8, 10), 0),
))
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_TOPICS = Struct("OffsetFetchResponseTopics",
    OffsetFetchResponse.OffsetFetchResponseTopics, (
    Field("name", Kind.STRING, (8, 9), "", ignorable=True),
    Field("topic_id", Kind.UUID, (10, 10), ZERO_UUID, ignorable=True),
    Field("partitions", Kind.STRUCT, (8, 10), (), array=True,
        struct=_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_PARTITIONS),
))
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_GROUP = Struct("OffsetFetchResponseGroup",
    OffsetFetchResponse.OffsetFetchResponseGroup, (
    Field("group_id", Kind.STRING, (8, 10), ""),
    Field("topics", Kind.STRUCT, (8, 10), (), array=True,
        struct=_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_TOPICS),
    Field("error_code", Kind.INT16, (8, 10), 0),
))
_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE = Struct("OffsetFetchResponse", OffsetFetchResponse, (
    Field("throttle_time_ms", Kind.INT32, (3, 10), 0, ignorable=True),
    Field("topics", Kind.STRUCT, (1, 7), (), array=True,
        struct=_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_TOPIC),
    Field("error_code", Kind.INT16, (2, 7), 0, ignorable=True),
    Field("groups", Kind.STRUCT, (8, 10), (), array=True,
        struct=_OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE_GROUP),
))
OFFSET_FETCH_RESPONSE = Message(9, (1, 10), (6, 10), _OFFSET_FETCH_RESPONSE__OFFSET_FETCH_RESPONSE)
