"""Messages of DescribeConfigs (API key 32).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    """DescribeConfigsRequest of Kafka 4.4.0, versions 1 to 4, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsResource:
        """Element of ``DescribeConfigsRequest.resources``."""

        resource_type: int = 0
        resource_name: str = ""
        configuration_keys: list[str] | None = field(default_factory=list)

    resources: list[DescribeConfigsRequest.DescribeConfigsResource] = field(default_factory=list)
    include_synonyms: bool = False
    include_documentation: bool = False  # versions 3 to 4


@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    """DescribeConfigsResponse of Kafka 4.4.0, versions 1 to 4, flexible since 4."""

    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsSynonym:
        """Element of ``DescribeConfigsResourceResult.synonyms``."""

        name: str = ""
        value: str | None = ""
        source: int = 0

    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsResourceResult:
        """Element of ``DescribeConfigsResult.configs``."""

        name: str = ""
        value: str | None = ""
        read_only: bool = False
        config_source: int = -1
        is_sensitive: bool = False
        synonyms: list[DescribeConfigsResponse.DescribeConfigsSynonym] = field(default_factory=list)
        config_type: int = 0  # versions 3 to 4
        documentation: str | None = ""  # versions 3 to 4, null in versions 1 to 4

    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsResult:
        """Element of ``DescribeConfigsResponse.results``."""

        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""
        configs: list[DescribeConfigsResponse.DescribeConfigsResourceResult] = field(
            default_factory=list)

    throttle_time_ms: int = 0
    results: list[DescribeConfigsResponse.DescribeConfigsResult] = field(default_factory=list)


_DESCRIBE_CONFIGS_REQUEST__DESCRIBE_CONFIGS_RESOURCE = Struct("DescribeConfigsResource",
    DescribeConfigsRequest.DescribeConfigsResource, (
    Field("resource_type", Kind.INT8, (1, 4), 0),
    Field("resource_name", Kind.STRING, (1, 4), ""),
    Field("configuration_keys", Kind.STRING, (1, 4), (), array=True, nullable=(1, 4)),
))
_DESCRIBE_CONFIGS_REQUEST__DESCRIBE_CONFIGS_REQUEST = Struct("DescribeConfigsRequest",
    DescribeConfigsRequest, (
    Field("resources", Kind.STRUCT, (1, 4), (), array=True,
        struct=_DESCRIBE_CONFIGS_REQUEST__DESCRIBE_CONFIGS_RESOURCE),
    Field("include_synonyms", Kind.BOOL, (1, 4), False),
    Field("include_documentation", Kind.BOOL, (3, 4), False),
))
DESCRIBE_CONFIGS_REQUEST = Message(32, (1, 4), (4, 4),
    _DESCRIBE_CONFIGS_REQUEST__DESCRIBE_CONFIGS_REQUEST)
_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_SYNONYM = Struct("DescribeConfigsSynonym",
    DescribeConfigsResponse.DescribeConfigsSynonym, (
    Field("name", Kind.STRING, (1, 4), ""),
    Field("value", Kind.STRING, (1, 4), "", nullable=(1, 4)),
    Field("source", Kind.INT8, (1, 4), 0),
))
_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESOURCE_RESULT = Struct(
    "DescribeConfigsResourceResult", DescribeConfigsResponse.DescribeConfigsResourceResult, (
    Field("name", Kind.STRING, (1, 4), ""),
    Field("value", Kind.STRING, (1, 4), "", nullable=(1, 4)),
    Field("read_only", Kind.BOOL, (1, 4), False),
    Field("config_source", Kind.INT8, (1, 4), -1, ignorable=True),
    Field("is_sensitive", Kind.BOOL, (1, 4), False),
    Field("synonyms", Kind.STRUCT, (1, 4), (), array=True, ignorable=True,
        struct=_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_SYNONYM),
    Field("config_type", Kind.INT8, (3, 4), 0, ignorable=True),
    Field("documentation", Kind.STRING, (3, 4), "", nullable=(1, 4), ignorable=True),
))
_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESULT = Struct("DescribeConfigsResult",
    DescribeConfigsResponse.DescribeConfigsResult, (
    Field("error_code", Kind.INT16, (1, 4), 0),
    Field("error_message", Kind.STRING, (1, 4), "", nullable=(1, 4)),
    Field("resource_type", Kind.INT8, (1, 4), 0),
    Field("resource_name", Kind.STRING, (1, 4), ""),
    Field("configs", Kind.STRUCT, (1, 4), (), array=True,
        struct=_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESOURCE_RESULT),
))
_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESPONSE = Struct("DescribeConfigsResponse",
    DescribeConfigsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 4), 0),
    Field("results", Kind.STRUCT, (1, 4), (), array=True,
        struct=_DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESULT),
))
DESCRIBE_CONFIGS_RESPONSE = Message(32, (1, 4), (4, 4),
    _DESCRIBE_CONFIGS_RESPONSE__DESCRIBE_CONFIGS_RESPONSE)
