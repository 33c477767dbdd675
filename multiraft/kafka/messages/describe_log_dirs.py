"""Messages of DescribeLogDirs (API key 35).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsRequest:
    """DescribeLogDirsRequest of Kafka 4.4.0, versions 1 to 5, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class DescribableLogDirTopic:
        """Element of ``DescribeLogDirsRequest.topics``."""

        topic: str = ""
        partitions: list[int] = field(default_factory=list)

    topics: list[DescribeLogDirsRequest.DescribableLogDirTopic] | None = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class DescribeLogDirsResponse:
    """DescribeLogDirsResponse of Kafka 4.4.0, versions 1 to 5, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class DescribeLogDirsPartition:
        """Element of ``DescribeLogDirsTopic.partitions``."""

        partition_index: int = 0
        partition_size: int = 0
        offset_lag: int = 0
        is_future_key: bool = False

    @dataclass(slots=True, kw_only=True)
    class DescribeLogDirsTopic:
        """Element of ``DescribeLogDirsResult.topics``."""

        name: str = ""
        partitions: list[DescribeLogDirsResponse.DescribeLogDirsPartition] = field(
            default_factory=list)

    @dataclass(slots=True, kw_only=True)
    class DescribeLogDirsResult:
        """Element of ``DescribeLogDirsResponse.results``."""

        error_code: int = 0
        log_dir: str = ""
        topics: list[DescribeLogDirsResponse.DescribeLogDirsTopic] = field(default_factory=list)
        total_bytes: int = -1  # versions 4 to 5
        usable_bytes: int = -1  # versions 4 to 5
        is_cordoned: bool = False  # version 5

    throttle_time_ms: int = 0
    error_code: int = 0  # versions 3 to 5
    results: list[DescribeLogDirsResponse.DescribeLogDirsResult] = field(default_factory=list)


_DESCRIBE_LOG_DIRS_REQUEST__DESCRIBABLE_LOG_DIR_TOPIC = Struct("DescribableLogDirTopic",
    DescribeLogDirsRequest.DescribableLogDirTopic, (
    Field("topic", Kind.STRING, (1, 5), ""),
    Field("partitions", Kind.INT32, (1, 5), (), array=True),
))
_DESCRIBE_LOG_DIRS_REQUEST__DESCRIBE_LOG_DIRS_REQUEST = Struct("DescribeLogDirsRequest",
    DescribeLogDirsRequest, (
    Field("topics", Kind.STRUCT, (1, 5), (), array=True, nullable=(1, 5),
        struct=_DESCRIBE_LOG_DIRS_REQUEST__DESCRIBABLE_LOG_DIR_TOPIC),
))
DESCRIBE_LOG_DIRS_REQUEST = Message(35, (1, 5), (2, 5),
    _DESCRIBE_LOG_DIRS_REQUEST__DESCRIBE_LOG_DIRS_REQUEST)
_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_PARTITION = Struct("DescribeLogDirsPartition",
    DescribeLogDirsResponse.DescribeLogDirsPartition, (
    Field("partition_index", Kind.INT32, (1, 5), 0),
    Field("partition_size", Kind.INT64, (1, 5), 0),
    Field("offset_lag", Kind.INT64, (1, 5), 0),
    Field("is_future_key", Kind.BOOL, (1, 5), False),
))
_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_TOPIC = Struct("DescribeLogDirsTopic",
    DescribeLogDirsResponse.DescribeLogDirsTopic, (
    Field("name", Kind.STRING, (1, 5), ""),
    Field("partitions", Kind.STRUCT, (1, 5), (), array=True,
        struct=_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_PARTITION),
))
_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_RESULT = Struct("DescribeLogDirsResult",
    DescribeLogDirsResponse.DescribeLogDirsResult, (
    Field("error_code", Kind.INT16, (1, 5), 0),
    Field("log_dir", Kind.STRING, (1, 5), ""),
    Field("topics", Kind.STRUCT, (1, 5), (), array=True,
        struct=_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_TOPIC),
    Field("total_bytes", Kind.INT64, (4, 5), -1, ignorable=True),
    Field("usable_bytes", Kind.INT64, (4, 5), -1, ignorable=True),
    Field("is_cordoned", Kind.BOOL, (5, 5), False, ignorable=True),
))
_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_RESPONSE = Struct("DescribeLogDirsResponse",
    DescribeLogDirsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 5), 0),
    Field("error_code", Kind.INT16, (3, 5), 0, ignorable=True),
    Field("results", Kind.STRUCT, (1, 5), (), array=True,
        struct=_DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_RESULT),
))
DESCRIBE_LOG_DIRS_RESPONSE = Message(35, (1, 5), (2, 5),
    _DESCRIBE_LOG_DIRS_RESPONSE__DESCRIBE_LOG_DIRS_RESPONSE)
