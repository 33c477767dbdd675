"""Messages of ApiVersions (API key 18).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class ApiVersionsRequest:
    """ApiVersionsRequest of Kafka 4.4.0, versions 0 to 5, flexible since 3."""

    client_software_name: str = ""  # versions 3 to 5
    client_software_version: str = ""  # versions 3 to 5
    cluster_id: str | None = None  # version 5
    node_id: int = -1  # version 5


@dataclass(slots=True, kw_only=True)
class ApiVersionsResponse:
    """ApiVersionsResponse of Kafka 4.4.0, versions 0 to 5, flexible since 3."""

    @dataclass(slots=True, kw_only=True)
    class ApiVersion:
        """Element of ``ApiVersionsResponse.api_keys``."""

        api_key: int = 0
        min_version: int = 0
        max_version: int = 0

    @dataclass(slots=True, kw_only=True)
    class SupportedFeatureKey:
        """Element of ``ApiVersionsResponse.supported_features``."""

        name: str = ""  # versions 3 to 5
        min_version: int = 0  # versions 3 to 5
        max_version: int = 0  # versions 3 to 5

    @dataclass(slots=True, kw_only=True)
    class FinalizedFeatureKey:
        """Element of ``ApiVersionsResponse.finalized_features``."""

        name: str = ""  # versions 3 to 5
        max_version_level: int = 0  # versions 3 to 5
        min_version_level: int = 0  # versions 3 to 5

    error_code: int = 0
    api_keys: list[ApiVersionsResponse.ApiVersion] = field(default_factory=list)
    throttle_time_ms: int = 0  # versions 1 to 5
    # versions 3 to 5, tag 0
    supported_features: list[ApiVersionsResponse.SupportedFeatureKey] = field(default_factory=list)
    finalized_features_epoch: int = -1  # versions 3 to 5, tag 1
    # versions 3 to 5, tag 2
    finalized_features: list[ApiVersionsResponse.FinalizedFeatureKey] = field(default_factory=list)
    zk_migration_ready: bool = False  # versions 3 to 5, tag 3


_API_VERSIONS_REQUEST__API_VERSIONS_REQUEST = Struct("ApiVersionsRequest", ApiVersionsRequest, (
    Field("client_software_name", Kind.STRING, (3, 5), "", ignorable=True),
    Field("client_software_version", Kind.STRING, (3, 5), "", ignorable=True),
    Field("cluster_id", Kind.STRING, (5, 5), None, nullable=(5, 5), ignorable=True),
    Field("node_id", Kind.INT32, (5, 5), -1, ignorable=True),
))
API_VERSIONS_REQUEST = Message(18, (0, 5), (3, 5), _API_VERSIONS_REQUEST__API_VERSIONS_REQUEST)
_API_VERSIONS_RESPONSE__API_VERSION = Struct("ApiVersion", ApiVersionsResponse.ApiVersion, (
    Field("api_key", Kind.INT16, (0, 5), 0),
    Field("min_version", Kind.INT16, (0, 5), 0),
    Field("max_version", Kind.INT16, (0, 5), 0),
))
_API_VERSIONS_RESPONSE__SUPPORTED_FEATURE_KEY = Struct("SupportedFeatureKey",
    ApiVersionsResponse.SupportedFeatureKey, (
    Field("name", Kind.STRING, (3, 5), ""),
    Field("min_version", Kind.INT16, (3, 5), 0),
    Field("max_version", Kind.INT16, (3, 5), 0),
))
_API_VERSIONS_RESPONSE__FINALIZED_FEATURE_KEY = Struct("FinalizedFeatureKey",
    ApiVersionsResponse.FinalizedFeatureKey, (
    Field("name", Kind.STRING, (3, 5), ""),
    Field("max_version_level", Kind.INT16, (3, 5), 0),
    Field("min_version_level", Kind.INT16, (3, 5), 0),
))
_API_VERSIONS_RESPONSE__API_VERSIONS_RESPONSE = Struct("ApiVersionsResponse", ApiVersionsResponse, (
    Field("error_code", Kind.INT16, (0, 5), 0),
    Field("api_keys", Kind.STRUCT, (0, 5), (), array=True,
        struct=_API_VERSIONS_RESPONSE__API_VERSION),
    Field("throttle_time_ms", Kind.INT32, (1, 5), 0, ignorable=True),
    Field("supported_features", Kind.STRUCT, (3, 5), (), array=True, tag=0, tagged=(3, 5),
        ignorable=True, struct=_API_VERSIONS_RESPONSE__SUPPORTED_FEATURE_KEY),
    Field("finalized_features_epoch", Kind.INT64, (3, 5), -1, tag=1, tagged=(3, 5), ignorable=True),
    Field("finalized_features", Kind.STRUCT, (3, 5), (), array=True, tag=2, tagged=(3, 5),
        ignorable=True, struct=_API_VERSIONS_RESPONSE__FINALIZED_FEATURE_KEY),
    Field("zk_migration_ready", Kind.BOOL, (3, 5), False, tag=3, tagged=(3, 5), ignorable=True),
))
API_VERSIONS_RESPONSE = Message(18, (0, 5), (3, 5), _API_VERSIONS_RESPONSE__API_VERSIONS_RESPONSE)
