"""Identities of producers, and coordinators, for Kafka's clients.

Contract. The metadata leader grants identities; another node passes the request on to it.
Transactions are refused with the one error that every client reports at once, with a text
(TRANSACTIONAL_ID_AUTHORIZATION_FAILED); a client that is refused otherwise waits until its own time
limit. There are no coordinators of consumer groups either, and a client that asks for one receives
a final error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from multiraft.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import InitProducer
from node.access import Operation, ResourceKind
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import cluster_fault, fault
from node.kafka.error_codes import Fault, of_append, of_identity
from node.kafka.produce import NO_TRANSACTIONS
from node.kafka.topic_view import UNKNOWN
from node.kafka.validated import validated

if TYPE_CHECKING:
    from node.cluster.passed_on import PassedOnRequests

#: First version of FindCoordinator with several keys in a request.
MANY_KEYS_SINCE = 4
#: Kinds of coordinators.
GROUP, TRANSACTION = 0, 1

NO_GROUPS = Fault(ErrorCode.GROUP_AUTHORIZATION_FAILED,
                  "this cluster has no consumer groups yet: assign partitions to the consumer and "
                  "keep the offsets in the application")
OTHER_KIND = Fault(ErrorCode.INVALID_REQUEST, "a kind of coordinator that is not known")


class Identities:
    """The handler of requests for the identity of a producer."""

    def __init__(self, passed_on_requests: PassedOnRequests, tasks: RequestTasks):
        self._passed_on_requests = passed_on_requests
        self._tasks = tasks

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that has an identity granted and answers, or refuse a transactional
        one."""
        answer = KafkaAnswer(session, number, _identity_refusal)
        named = request.message.transactional_id
        refused = (cluster_fault(session, Operation.IDEMPOTENT_WRITE) if named is None
                   else fault(session, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, named))
        error = refused.error if refused is not None else _identity_error(request.message)
        if error is not None:
            answer(InitProducerIdResponse(error_code=error, producer_id=UNKNOWN,
                                          producer_epoch=UNKNOWN))
            return
        self._tasks.start(answer, self._granted, request.message)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, _identity_refusal).refuse(code, detail)

    async def _granted(self, message: InitProducerIdRequest) -> InitProducerIdResponse:
        reply = await self._passed_on_requests.ask(validated(
            InitProducer(message.producer_id, message.producer_epoch)))
        return InitProducerIdResponse(producer_id=reply.producer_id,
                                      producer_epoch=reply.producer_epoch)


def _identity_error(message: InitProducerIdRequest) -> ErrorCode | None:
    """Return the error of a request that no node would grant, or None."""
    if message.transactional_id == "":
        return ErrorCode.INVALID_REQUEST
    if message.transactional_id is not None:
        return NO_TRANSACTIONS.error
    if (message.producer_id == UNKNOWN) != (message.producer_epoch == UNKNOWN):
        return ErrorCode.INVALID_REQUEST
    return None


def _identity_refusal(code: Code, _detail: ErrorDetail) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=of_identity(code), producer_id=UNKNOWN,
                                  producer_epoch=UNKNOWN)


class Coordinators:
    """The handler of requests for coordinators."""

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Answer that there is none, with the reason."""
        kind = request.message.key_type
        none = {GROUP: NO_GROUPS, TRANSACTION: NO_TRANSACTIONS}.get(kind, OTHER_KIND)
        resources = {GROUP: ResourceKind.GROUP, TRANSACTION: ResourceKind.TRANSACTIONAL_ID}
        for key in _keys(request) if kind in resources else ():
            none = fault(session, Operation.DESCRIBE, resources[kind], key) or none
        KafkaAnswer(session, number, partial(_refusal, request))(_refused(request, none))

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)


def _keys(request: KafkaRequest) -> list[str]:
    """Return the groups or transactional ids that a request names."""
    message: FindCoordinatorRequest = request.message
    return (message.coordinator_keys if request.header.request_api_version >= MANY_KEYS_SINCE
            else [message.key])


def _refusal(request: KafkaRequest, code: Code, detail: ErrorDetail) -> FindCoordinatorResponse:
    return _refused(request, Fault(of_append(code), detail.text))


def _refused(request: KafkaRequest, fault: Fault) -> FindCoordinatorResponse:
    """Return the response that refuses every key of a request.  O(keys)."""
    message: FindCoordinatorRequest = request.message
    if request.header.request_api_version < MANY_KEYS_SINCE:
        return FindCoordinatorResponse(error_code=fault.error, error_message=fault.text,
                                       node_id=UNKNOWN, port=UNKNOWN)
    return FindCoordinatorResponse(coordinators=[FindCoordinatorResponse.Coordinator(
        key=key, node_id=UNKNOWN, port=UNKNOWN, error_code=fault.error, error_message=fault.text)
        for key in message.coordinator_keys])
