"""OffsetForLeaderEpoch requests of Kafka's clients: a consumer's question if records were lost.

Contract. A consumer asks after a change of leader for the end of the leader epoch of its last
record, and compares that with its position. The leader of the partition answers, after a majority
has confirmed it. A request that names another leader epoch than the present one is refused
as in a fetch. All other errors are those of a fetch as well, which consumers repeat.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from multiraft.wire.errors import Code, ErrorDetail
from node.access import Operation
from node.clients.leader_epochs import EpochQuery, LeaderEpochs
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import topic_fault
from node.kafka.error_codes import Fault, absent, of_fetch
from node.kafka.fetch import epoch_fault
from node.kafka.topic_view import NO_PARTITION, TopicView, incarnation_of
from node.loop.steps import parts

if TYPE_CHECKING:
    from node.loop.turns import Turns

_EpochEndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


class EpochRequests:
    """The handler of requests for the ends of leader epochs."""

    def __init__(self, leader_epochs: LeaderEpochs, topics: TopicView, tasks: RequestTasks,
                 turns: Turns):
        self._leader_epochs = leader_epochs
        self._topics = topics
        self._tasks = tasks
        self._turns = turns

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that looks the ends up and answers."""
        session.rows_left -= 2 * sum(len(topic.partitions) for topic in request.message.topics)
        self._tasks.start(KafkaAnswer(session, number, partial(_refusal, request)),
                          self._respond, session, request.message)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refusal, request)).refuse(code, detail)

    async def _respond(self, session: Session, message: OffsetForLeaderEpochRequest
                       ) -> OffsetForLeaderEpochResponse:
        """Return the response.  O(partitions), in turns."""
        responses: list[Any] = []
        queries: list[EpochQuery] = []
        results: list[Any] = []  # of ``queries``
        for topic in message.topics:
            response = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(topic=topic.topic)
            responses.append(response)
            known = self._topics.topic(topic.topic, b"", False)
            denied = topic_fault(session, Operation.DESCRIBE, topic.topic)
            for part in parts(len(topic.partitions)):
                await self._turns.take(len(part))
                for asked in topic.partitions[part.start:part.stop]:
                    result = _EpochEndOffset(partition=asked.partition)
                    response.partitions.append(result)
                    incarnation = incarnation_of(known, asked.partition)
                    fault = denied or self._fault(incarnation, asked)
                    if fault is not None:
                        result.error_code = fault.error
                    else:
                        queries.append(EpochQuery(incarnation, asked.leader_epoch))
                        results.append(result)
        ends = await self._leader_epochs.ends(queries)
        for result, found in zip(results, ends, strict=True):
            result.error_code = of_fetch(found.code)
            result.leader_epoch, result.end_offset = found.leader_epoch, found.end_offset
        return OffsetForLeaderEpochResponse(topics=responses)

    def _fault(self, incarnation: int, asked: Any) -> Fault | None:
        """Return the error of a partition that is refused here, or None."""
        if incarnation == NO_PARTITION:
            return absent(False)
        return epoch_fault(self._topics, incarnation, asked.current_leader_epoch)


def _refusal(request: KafkaRequest, code: Code, _detail: ErrorDetail
             ) -> OffsetForLeaderEpochResponse:
    """Return the response that refuses every partition of a request.  O(partitions)."""
    error = of_fetch(code)
    return OffsetForLeaderEpochResponse(topics=[
        OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
            topic=topic.topic, partitions=[
                _EpochEndOffset(partition=part.partition, error_code=error)
                for part in topic.partitions]) for topic in request.message.topics])
