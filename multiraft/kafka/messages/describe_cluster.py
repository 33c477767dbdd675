"""Messages of DescribeCluster (API key 60).

Generated from the schema files of Kafka 4.4.0 by tools/kafka_messages; `make kafka-messages`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from multiraft.kafka.schema import Field, Kind, Message, Struct


@dataclass(slots=True, kw_only=True)
class DescribeClusterRequest:
    """DescribeClusterRequest of Kafka 4.4.0, versions 0 to 2, flexible since 0."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # versions 1 to 2
    include_fenced_brokers: bool = False  # version 2


@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse:
    """DescribeClusterResponse of Kafka 4.4.0, versions 0 to 2, flexible since 0."""

    @dataclass(slots=True, kw_only=True)
    class DescribeClusterBroker:
        """Element of ``DescribeClusterResponse.brokers``."""

        broker_id: int = 0
        host: str = ""
        port: int = 0
        rack: str | None = None
        is_fenced: bool = False  # version 2

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # versions 1 to 2
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterResponse.DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = -2147483648


_DESCRIBE_CLUSTER_REQUEST__DESCRIBE_CLUSTER_REQUEST = Struct("DescribeClusterRequest",
    DescribeClusterRequest, (
    Field("include_cluster_authorized_operations", Kind.BOOL, (0, 2), False),
    Field("endpoint_type", Kind.INT8, (1, 2), 1),
    Field("include_fenced_brokers", Kind.BOOL, (2, 2), False),
))
DESCRIBE_CLUSTER_REQUEST = Message(60, (0, 2), (0, 2),
    _DESCRIBE_CLUSTER_REQUEST__DESCRIBE_CLUSTER_REQUEST)
_DESCRIBE_CLUSTER_RESPONSE__DESCRIBE_CLUSTER_BROKER = Struct("DescribeClusterBroker",
    DescribeClusterResponse.DescribeClusterBroker, (
    Field("broker_id", Kind.INT32, (0, 2), 0),
    Field("host", Kind.STRING, (0, 2), ""),
    Field("port", Kind.INT32, (0, 2), 0),
    Field("rack", Kind.STRING, (0, 2), None, nullable=(0, 2)),
    Field("is_fenced", Kind.BOOL, (2, 2), False),
))
_DESCRIBE_CLUSTER_RESPONSE__DESCRIBE_CLUSTER_RESPONSE = Struct("DescribeClusterResponse",
    DescribeClusterResponse, (
    Field("throttle_time_ms", Kind.INT32, (0, 2), 0),
    Field("error_code", Kind.INT16, (0, 2), 0),
    Field("error_message", Kind.STRING, (0, 2), None, nullable=(0, 2)),
    Field("endpoint_type", Kind.INT8, (1, 2), 1),
    Field("cluster_id", Kind.STRING, (0, 2), ""),
    Field("controller_id", Kind.INT32, (0, 2), -1),
    Field("brokers", Kind.STRUCT, (0, 2), (), array=True,
        struct=_DESCRIBE_CLUSTER_RESPONSE__DESCRIBE_CLUSTER_BROKER),
    Field("cluster_authorized_operations", Kind.INT32, (0, 2), -2147483648),
))
DESCRIBE_CLUSTER_RESPONSE = Message(60, (0, 2), (0, 2),
    _DESCRIBE_CLUSTER_RESPONSE__DESCRIBE_CLUSTER_RESPONSE)
