"""Messages of DescribeAcls (API key 29).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeAclsRequest:
    """DescribeAclsRequest of Kafka 4.4.0, versions 1 to 3, flexible since 2."""

    resource_type_filter: int = 0
    resource_name_filter: str | None = ""
    pattern_type_filter: int = 3
    principal_filter: str | None = ""
    host_filter: str | None = ""
    operation: int = 0
    permission_type: int = 0


@dataclass(slots=True, kw_only=True)
class DescribeAclsResponse:
    """DescribeAclsResponse of Kafka 4.4.0, versions 1 to 3, flexible since 2."""

    @dataclass(slots=True, kw_only=True)
    class AclDescription:
        """Element of ``DescribeAclsResource.acls``."""

        principal: str = ""
        host: str = ""
        operation: int = 0
        permission_type: int = 0

    @dataclass(slots=True, kw_only=True)
    class DescribeAclsResource:
        """Element of ``DescribeAclsResponse.resources``."""

        resource_type: int = 0
        resource_name: str = ""
        pattern_type: int = 3
        acls: list[DescribeAclsResponse.AclDescription] = field(default_factory=list)

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = ""
    resources: list[DescribeAclsResponse.DescribeAclsResource] = field(default_factory=list)


_DESCRIBE_ACLS_REQUEST__DESCRIBE_ACLS_REQUEST = Struct("DescribeAclsRequest", DescribeAclsRequest, (
    Field("resource_type_filter", Kind.INT8, (1, 3), 0),
    Field("resource_name_filter", Kind.STRING, (1, 3), "", nullable=(1, 3)),
    Field("pattern_type_filter", Kind.INT8, (1, 3), 3),
    Field("principal_filter", Kind.STRING, (1, 3), "", nullable=(1, 3)),
    Field("host_filter", Kind.STRING, (1, 3), "", nullable=(1, 3)),
    Field("operation", Kind.INT8, (1, 3), 0),
    Field("permission_type", Kind.INT8, (1, 3), 0),
))
DESCRIBE_ACLS_REQUEST = Message(29, (1, 3), (2, 3), _DESCRIBE_ACLS_REQUEST__DESCRIBE_ACLS_REQUEST)
_DESCRIBE_ACLS_RESPONSE__ACL_DESCRIPTION = Struct("AclDescription",
    DescribeAclsResponse.AclDescription, (
    Field("principal", Kind.STRING, (1, 3), ""),
    Field("host", Kind.STRING, (1, 3), ""),
    Field("operation", Kind.INT8, (1, 3), 0),
    Field("permission_type", Kind.INT8, (1, 3), 0),
))
_DESCRIBE_ACLS_RESPONSE__DESCRIBE_ACLS_RESOURCE = Struct("DescribeAclsResource",
    DescribeAclsResponse.DescribeAclsResource, (
    Field("resource_type", Kind.INT8, (1, 3), 0),
    Field("resource_name", Kind.STRING, (1, 3), ""),
    Field("pattern_type", Kind.INT8, (1, 3), 3),
    Field("acls", Kind.STRUCT, (1, 3), (), array=True,
        struct=_DESCRIBE_ACLS_RESPONSE__ACL_DESCRIPTION),
))
_DESCRIBE_ACLS_RESPONSE__DESCRIBE_ACLS_RESPONSE = Struct("DescribeAclsResponse",
    DescribeAclsResponse, (
    Field("throttle_time_ms", Kind.INT32, (1, 3), 0),
    Field("error_code", Kind.INT16, (1, 3), 0),
    Field("error_message", Kind.STRING, (1, 3), "", nullable=(1, 3)),
    Field("resources", Kind.STRUCT, (1, 3), (), array=True,
        struct=_DESCRIBE_ACLS_RESPONSE__DESCRIBE_ACLS_RESOURCE),
))
DESCRIBE_ACLS_RESPONSE = Message(29, (1, 3), (2, 3),
    _DESCRIBE_ACLS_RESPONSE__DESCRIBE_ACLS_RESPONSE)
