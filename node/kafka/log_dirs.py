"""DescribeLogDirs requests of Kafka's tools: the data directory of a node and the partitions in it.

Contract. A node has one log directory, its data directory, under the name that its setting
``log.dirs`` has. The answer has the partitions of the groups that have a replica on this node, and
no others, as in Kafka. A size is the bytes of the partition's live batches, by the applied state of
the replica: nothing is read or counted for the request. It is 0 for a part whose bytes the state
does not know. The lag is 0, and no replica is a future one: neither has a meaning here.

Invariants. A request for all topics is refused if the cluster has more than ``metadata_rows_max``
partitions, as in Metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from multiraft.partitions.retention_records import UNKNOWN_BYTES
from multiraft.wire.errors import Code, ErrorDetail, LimitExceeded
from node.access import Operation
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import cluster_fault
from node.kafka.error_codes import of_append
from node.loop.steps import ROWS_PER_STEP, parts

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from node.clients.router import MetadataCopy
    from node.loop.turns import Turns
    from node.metadata.placement_table import EpochHistory
    from node.metadata.topics import Topic

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
_Partition = DescribeLogDirsResponse.DescribeLogDirsPartition


class LogDirRequests:
    """The handler of requests for log directories."""

    def __init__(self, metadata_log: MetadataCopy, partition_states: dict[int, PartitionStates],
                 log_dir: str, space: Callable[[], tuple[int, int]], rows_max: int,
                 tasks: RequestTasks, turns: Turns):
        """``log_dir``: the name of the directory. ``space``: returns the bytes of its disk, and
        those that may still be written."""
        self._metadata_log = metadata_log
        self._partition_states = partition_states
        self._log_dir = log_dir
        self._space = space
        self._rows_max = rows_max
        self._tasks = tasks
        self._turns = turns

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that collects the sizes and answers."""
        answer = KafkaAnswer(session, number, self._refusal)
        denied = cluster_fault(session, Operation.DESCRIBE)
        if denied is not None:
            answer(self._failed(denied.error))
            return
        self._tasks.start(answer, self._respond, request.message)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, self._refusal).refuse(code, detail)

    async def _respond(self, message: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        """Return the response.  O(partitions), in turns.  Raises ``LimitExceeded``."""
        found = (await self._all() if message.topics is None
                 else await self._named(message.topics))
        total, usable = self._space()
        return DescribeLogDirsResponse(results=[_Result(
            log_dir=self._log_dir, topics=[topic for topic in found if topic.partitions],
            total_bytes=total, usable_bytes=usable)])

    async def _all(self) -> list[Any]:
        """Return the partitions of all topics that are on this node.  Raises ``LimitExceeded``."""
        count = self._metadata_log.state.partitions_count
        if count > self._rows_max:
            raise LimitExceeded(f"metadata_rows_max is {self._rows_max}; there are {count} "
                                f"partitions: name the topics", limit=self._rows_max, value=count)
        found, after, more = [], "", True
        while more:
            await self._turns.take(ROWS_PER_STEP)
            topics, more = self._metadata_log.state.list_topics(after, ROWS_PER_STEP)
            for topic in topics:
                described = _Topic(name=topic.name)
                for part in parts(topic.partitions):
                    await self._turns.take(len(part))
                    described.partitions += self._sizes(topic, part)
                found.append(described)
                after = topic.name
        return found

    async def _named(self, topics: list[Any]) -> list[Any]:
        """Return those partitions of a request that exist and are on this node."""
        found = []
        for asked in topics:
            described = _Topic(name=asked.topic)
            found.append(described)
            numbers = sorted(set(asked.partitions))
            for part in parts(len(numbers)):
                await self._turns.take(len(part))
                topic = self._metadata_log.state.topic(asked.topic)
                if topic is None:
                    break
                for number in numbers[part.start:part.stop]:
                    if 0 <= number < topic.partitions:
                        described.partitions += self._sizes(topic, range(number, number + 1))
        return found

    def _sizes(self, topic: Topic, part: range) -> list[Any]:
        """Return the partitions of ``part`` that are on this node.  O(partitions + entries of their
        epoch histories)."""
        state = self._metadata_log.state
        histories = state.placed.epoch_histories
        found = []
        for number, last in zip(part, state.last_epoch_entries(topic, part), strict=True):
            incarnation = topic.incarnation_of(number)
            size = self._size(incarnation, histories.get(incarnation) or (last,))
            if size is not None:
                found.append(_Partition(partition_index=number, partition_size=size))
        return found

    def _size(self, incarnation: int, history: EpochHistory) -> int | None:
        """Return the bytes of a partition on this node; None = no replica of its groups is
        here."""
        total: int | None = None
        for group in {entry.group for entry in history}:
            states = self._partition_states.get(group)
            if states is None:
                continue
            total = total or 0
            applied = states.applied(incarnation)
            if applied is not None and applied.live_bytes != UNKNOWN_BYTES:
                total += applied.live_bytes
        return total

    def _refusal(self, code: Code, _detail: ErrorDetail) -> DescribeLogDirsResponse:
        return self._failed(of_append(code))

    def _failed(self, error: ErrorCode) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(error_code=error, results=[
            _Result(log_dir=self._log_dir, error_code=error)])
