"""Deletion of records below an offset, for Kafka's clients.

Contract. The leader of each partition proposes the log start; the answer leaves when it is applied,
or after ``timeout_ms``. An offset of -1 stands for the end of the partition. A repetition is
answered with the log start that holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import TIMEOUT_MS_MAX, DeleteRecords, RecordDeletion
from node.access import Operation
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import topic_fault
from node.kafka.error_codes import absent, of_append
from node.kafka.topic_view import NO_PARTITION, UNKNOWN, TopicView, incarnation_of
from node.loop.steps import parts
from node.loop.turns import Turns


class RecordDeletions:
    """The handler of requests to delete records."""

    def __init__(self, delete: Callable[[Any], Awaitable[Any]], topics: TopicView,
                 tasks: RequestTasks, turns: Turns):
        """``delete``: the handler of ``DeleteRecords``."""
        self._delete = delete
        self._topics = topics
        self._tasks = tasks
        self._turns = turns

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that deletes and answers."""
        self._tasks.start(KafkaAnswer(session, number, partial(_refusal, request)),
                          self._deleted, session, request.message)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    async def _deleted(self, session: Session, message: DeleteRecordsRequest
                       ) -> DeleteRecordsResponse:
        """Return the response.  O(partitions), in turns."""
        topics, deletions, results = [], [], []
        named: set[int] = set()  # each partition may be named once
        for topic in message.topics:
            response = DeleteRecordsResponse.DeleteRecordsTopicResult(name=topic.name)
            topics.append(response)
            known = self._topics.topic(topic.name, b"", False)
            denied = topic_fault(session, Operation.DELETE, topic.name)
            for part in parts(len(topic.partitions)):
                await self._turns.take(len(part))
                for asked in topic.partitions[part.start:part.stop]:
                    result = DeleteRecordsResponse.DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=UNKNOWN)
                    response.partitions.append(result)
                    incarnation = incarnation_of(known, asked.partition_index)
                    if denied is not None:
                        result.error_code = denied.error
                    elif incarnation == NO_PARTITION:
                        result.error_code = absent(False).error
                    elif incarnation in named:
                        result.error_code = ErrorCode.INVALID_REQUEST
                    elif asked.offset < UNKNOWN:
                        result.error_code = of_append(Code.OFFSET_OUT_OF_RANGE)
                    else:
                        named.add(incarnation)
                        deletions.append(RecordDeletion(incarnation, asked.offset))
                        results.append(result)
        if deletions:
            reply = await self._delete(DeleteRecords(
                tuple(deletions), min(max(1, message.timeout_ms), TIMEOUT_MS_MAX)))
            for result, found in zip(results, reply.results, strict=True):
                result.error_code = of_append(found.code)
                result.low_watermark = found.log_start
        return DeleteRecordsResponse(topics=topics)


def _refusal(request: KafkaRequest, code: Code, _detail: ErrorDetail) -> DeleteRecordsResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    error = of_append(code)
    return DeleteRecordsResponse(topics=[DeleteRecordsResponse.DeleteRecordsTopicResult(
        name=topic.name, partitions=[DeleteRecordsResponse.DeleteRecordsPartitionResult(
            partition_index=part.partition_index, low_watermark=UNKNOWN, error_code=error)
            for part in topic.partitions]) for topic in request.message.topics])
