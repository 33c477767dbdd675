"""Messages of IncrementalAlterConfigs (API key 44).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    """IncrementalAlterConfigsRequest of Kafka 4.4.0, versions 0 to 1, flexible since 1."""

    @dataclass(slots=True, kw_only=True)
    class AlterableConfig:
        """Element of ``AlterConfigsResource.configs``."""

        name: str = ""
        config_operation: int = 0
        value: str | None = ""

    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResource:
        """Element of ``IncrementalAlterConfigsRequest.resources``."""

        resource_type: int = 0
        resource_name: str = ""
        configs: list[IncrementalAlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    resources: list[IncrementalAlterConfigsRequest.AlterConfigsResource] = field(
        default_factory=list)
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigsResponse of Kafka 4.4.0, versions 0 to 1, flexible since 1."""

    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResourceResponse:
        """Element of ``IncrementalAlterConfigsResponse.responses``."""

        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

    throttle_time_ms: int = 0
    responses: list[IncrementalAlterConfigsResponse.AlterConfigsResourceResponse] = field(
        default_factory=list)


_INCREMENTAL_ALTER_CONFIGS_REQUEST__ALTERABLE_CONFIG = Struct("AlterableConfig",
    IncrementalAlterConfigsRequest.AlterableConfig, (
    Field("name", Kind.STRING, (0, 1), ""),
    Field("config_operation", Kind.INT8, (0, 1), 0),
    Field("value", Kind.STRING, (0, 1), "", nullable=(0, 1)),
))
_INCREMENTAL_ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_RESOURCE = Struct("AlterConfigsResource",
    IncrementalAlterConfigsRequest.AlterConfigsResource, (
    Field("resource_type", Kind.INT8, (0, 1), 0),
    Field("resource_name", Kind.STRING, (0, 1), ""),
    Field("configs", Kind.STRUCT, (0, 1), (), array=True,
        struct=_INCREMENTAL_ALTER_CONFIGS_REQUEST__ALTERABLE_CONFIG),
))
_INCREMENTAL_ALTER_CONFIGS_REQUEST__INCREMENTAL_ALTER_CONFIGS_REQUEST = Struct(
    "IncrementalAlterConfigsRequest", IncrementalAlterConfigsRequest, (
    Field("resources", Kind.STRUCT, (0, 1), (), array=True,
        struct=_INCREMENTAL_ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_RESOURCE),
    Field("validate_only", Kind.BOOL, (0, 1), False),
))
INCREMENTAL_ALTER_CONFIGS_REQUEST = Message(44, (0, 1), (1, 1),
    _INCREMENTAL_ALTER_CONFIGS_REQUEST__INCREMENTAL_ALTER_CONFIGS_REQUEST)
_INCREMENTAL_ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESOURCE_RESPONSE = Struct(
    "AlterConfigsResourceResponse", IncrementalAlterConfigsResponse.AlterConfigsResourceResponse, (
    Field("error_code", Kind.INT16, (0, 1), 0),
    Field("error_message", Kind.STRING, (0, 1), "", nullable=(0, 1)),
    Field("resource_type", Kind.INT8, (0, 1), 0),
    Field("resource_name", Kind.STRING, (0, 1), ""),
))
_INCREMENTAL_ALTER_CONFIGS_RESPONSE__INCREMENTAL_ALTER_CONFIGS_RESPONSE = Struct(
    "IncrementalAlterConfigsResponse", IncrementalAlterConfigsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 1), 0),
    Field("responses", Kind.STRUCT, (0, 1), (), array=True,
        struct=_INCREMENTAL_ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESOURCE_RESPONSE),
))
INCREMENTAL_ALTER_CONFIGS_RESPONSE = Message(44, (0, 1), (1, 1),
    _INCREMENTAL_ALTER_CONFIGS_RESPONSE__INCREMENTAL_ALTER_CONFIGS_RESPONSE)
