"""The cluster and its access rules for Kafka's tools.

Contract. The cluster is described by what this node knows. There are no access rules: a request for
them is answered with SECURITY_DISABLED, which tools show as a text.
"""

from __future__ import annotations

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.describe_acls import DescribeAclsResponse
from multiraft.kafka.messages.describe_cluster import DescribeClusterResponse
from multiraft.wire.errors import Code, ErrorDetail
from node.access import Operation
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import cluster_fault, cluster_operations
from node.kafka.error_codes import Fault, of_controller
from node.kafka.topic_view import TopicView

#: Kinds of endpoints that a client may ask for. Only those of brokers are known here.
BROKERS, CONTROLLERS = 1, 2
DISABLED = Fault(ErrorCode.SECURITY_DISABLED, "this cluster has no access rules")


class ClusterRequests:
    """The handlers of requests for the cluster and for access rules."""

    def __init__(self, topics: TopicView, cluster_id: str):
        self._topics = topics
        self._cluster_id = cluster_id

    def describe(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Answer with the nodes of the cluster.  O(nodes)."""
        message = request.message
        answer = KafkaAnswer(session, number, _refused_cluster)
        denied = cluster_fault(session, Operation.DESCRIBE)
        if denied is not None:
            answer(DescribeClusterResponse(error_code=denied.error, error_message=denied.text))
            return
        if message.endpoint_type != BROKERS:
            error = (ErrorCode.MISMATCHED_ENDPOINT_TYPE if message.endpoint_type == CONTROLLERS
                     else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
            answer(DescribeClusterResponse(
                error_code=error,
                error_message="the nodes are brokers and controllers alike: ask for brokers"))
            return
        response = DescribeClusterResponse(
            cluster_id=self._cluster_id, controller_id=self._topics.controller(),
            brokers=[DescribeClusterResponse.DescribeClusterBroker(
                broker_id=found.node, host=found.host, port=found.port, rack=found.rack)
                for found in self._topics.endpoints()])
        if message.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations()
        answer(response)

    def refuse_description(self, session: Session, number: int, request: KafkaRequest, code: Code,
                           detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, _refused_cluster).refuse(code, detail)

    def access_rules(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Answer that there are none."""
        fault = cluster_fault(session, Operation.DESCRIBE) or DISABLED
        KafkaAnswer(session, number, _refused_rules)(DescribeAclsResponse(
            error_code=fault.error, error_message=fault.text))

    def refuse_rules(self, session: Session, number: int, request: KafkaRequest, code: Code,
                     detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, _refused_rules).refuse(code, detail)


def _refused_cluster(code: Code, detail: ErrorDetail) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=of_controller(code), error_message=detail.text)


def _refused_rules(code: Code, detail: ErrorDetail) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=of_controller(code), error_message=detail.text)
