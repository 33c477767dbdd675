"""Messages of AlterConfigs (API key 33).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest:
    """AlterConfigsRequest of Kafka 4.4.0, versions 0 to 2, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class AlterableConfig:
        """Element of ``AlterConfigsResource.configs``."""

        name: str = ""
        value: str | None = ""

    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResource:
        """Element of ``AlterConfigsRequest.resources``."""

        resource_type: int = 0
        resource_name: str = ""
        configs: list[AlterConfigsRequest.AlterableConfig] = field(default_factory=list)

    resources: list[AlterConfigsRequest.AlterConfigsResource] = field(default_factory=list)
    validate_only: bool = False


@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse:
    """AlterConfigsResponse of Kafka 4.4.0, versions 0 to 2, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResourceResponse:
        """Element of ``AlterConfigsResponse.responses``."""

        error_code: int = 0
        error_message: str | None = ""
        resource_type: int = 0
        resource_name: str = ""

    throttle_time_ms: int = 0
    responses: list[AlterConfigsResponse.AlterConfigsResourceResponse] = field(default_factory=list)


_ALTER_CONFIGS_REQUEST__ALTERABLE_CONFIG = Struct("AlterableConfig",
    AlterConfigsRequest.AlterableConfig, (
    Field("name", Kind.STRING, (0, 2), ""),
    Field("value", Kind.STRING, (0, 2), "", nullable=(0, 2)),
))
_ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_RESOURCE = Struct("AlterConfigsResource",
    AlterConfigsRequest.AlterConfigsResource, (
    Field("resource_type", Kind.INT8, (0, 2), 0),
    Field("resource_name", Kind.STRING, (0, 2), ""),
    Field("configs", Kind.STRUCT, (0, 2), (), array=True,
        struct=_ALTER_CONFIGS_REQUEST__ALTERABLE_CONFIG),
))
_ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_REQUEST = Struct("AlterConfigsRequest", AlterConfigsRequest, (
    Field("resources", Kind.STRUCT, (0, 2), (), array=True,
        struct=_ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_RESOURCE),
    Field("validate_only", Kind.BOOL, (0, 2), False),
))
ALTER_CONFIGS_REQUEST = Message(33, (0, 2), (2, 2), _ALTER_CONFIGS_REQUEST__ALTER_CONFIGS_REQUEST)
_ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESOURCE_RESPONSE = Struct("AlterConfigsResourceResponse",
    AlterConfigsResponse.AlterConfigsResourceResponse, (
    Field("error_code", Kind.INT16, (0, 2), 0),
    Field("error_message", Kind.STRING, (0, 2), "", nullable=(0, 2)),
    Field("resource_type", Kind.INT8, (0, 2), 0),
    Field("resource_name", Kind.STRING, (0, 2), ""),
))
_ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESPONSE = Struct("AlterConfigsResponse",
    AlterConfigsResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 2), 0),
    Field("responses", Kind.STRUCT, (0, 2), (), array=True,
        struct=_ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESOURCE_RESPONSE),
))
ALTER_CONFIGS_RESPONSE = Message(33, (0, 2), (2, 2),
    _ALTER_CONFIGS_RESPONSE__ALTER_CONFIGS_RESPONSE)
