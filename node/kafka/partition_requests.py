"""Addition of partitions to topics, for Kafka's clients.

Contract. The metadata leader decides, whichever node a client asks: another node passes the request
on to it. Topics of one request get their partitions one after the other, and each has its own
result. The answer leaves when this node has applied what it did, or after ``timeout_ms``: then the
result is REQUEST_TIMED_OUT, and the change may still happen. As in Kafka, records of a key go
to another partition then, without a question.
"""

from __future__ import annotations

import uuid
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from multiraft.settings.effective import is_internal
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import AddPartitions
from node.access import Operation
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import topic_fault
from node.kafka.error_codes import Fault, fault_of, of_controller
from node.kafka.topic_requests import ASSIGNED, TOO_LATE, TWICE, deadline_of, until_applied
from node.kafka.validated import validated
from node.request_errors import REFUSED

if TYPE_CHECKING:
    from node.cluster.passed_on import PassedOnRequests
    from node.loop.turns import Turns
    from node.metadata.log import MetadataLog

INTERNAL = Fault(ErrorCode.POLICY_VIOLATION, "an internal topic: the number of its partitions is "
                 "that of the nodes")


class PartitionAdditions:
    """The handler of CreatePartitions."""

    def __init__(self, metadata_log: MetadataLog, passed_on_requests: PassedOnRequests,
                 tasks: RequestTasks, turns: Turns):
        self._metadata_log = metadata_log
        self._passed_on_requests = passed_on_requests
        self._tasks = tasks
        self._turns = turns

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that adds the partitions and answers."""
        answer = KafkaAnswer(session, number, partial(_refusal, request))
        self._tasks.start(answer, self._added, session, request.message)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    async def _added(self, session: Session, message: CreatePartitionsRequest
                     ) -> CreatePartitionsResponse:
        """Return the response.  O(topics) changes of the metadata."""
        times = Counter(topic.name for topic in message.topics)
        results = [_result(name, TWICE) for name in sorted(times) if times[name] > 1]
        deadline = deadline_of(message.timeout_ms)
        for asked in message.topics:
            if times[asked.name] > 1:
                continue
            await self._turns.take()
            fault = topic_fault(session, Operation.ALTER, asked.name)
            if fault is None and is_internal(asked.name):
                fault = INTERNAL
            if fault is None:
                try:
                    fault = await self._add(asked, message.validate_only, deadline)
                except REFUSED as error:
                    fault = fault_of(error)
            results.append(_result(asked.name, fault))
        return CreatePartitionsResponse(results=results)

    async def _add(self, asked: Any, validate_only: bool, deadline: float) -> Fault | None:
        """Add partitions to a topic, or only judge that, and return the error. Raises one of
        ``REFUSED``."""
        request = AddPartitions(asked.name, max(0, asked.count), nonce=uuid.uuid4().bytes)
        is_assigned = asked.assignments is not None
        with trio.move_on_at(deadline):
            reply = await self._passed_on_requests.ask(validated(
                request._replace(dry_run=validate_only or is_assigned)))
            if is_assigned:
                return ASSIGNED
            if not validate_only:
                # This node may apply the command later than the metadata leader.
                last = reply.topic.partitions[-1].incarnation
                await until_applied(self._metadata_log,
                                    lambda: self._metadata_log.state.next_incarnation > last)
            return None
        return TOO_LATE


def _result(name: str, fault: Fault | None) -> Any:
    error, text = fault if fault is not None else (ErrorCode.NONE, None)
    return CreatePartitionsResponse.CreatePartitionsTopicResult(
        name=name, error_code=error, error_message=text)


def _refusal(request: KafkaRequest, code: Code, detail: ErrorDetail) -> CreatePartitionsResponse:
    fault = Fault(of_controller(code), detail.text)
    return CreatePartitionsResponse(results=[_result(topic.name, fault)
                                             for topic in request.message.topics])
