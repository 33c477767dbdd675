"""Requests about the sizes of topics and partitions, answered for the groups that this node leads.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  A size is computed when it is
asked for, from the applied state of the partition.  An answer about topics ends after
``PARTITIONS_PER_REPLY_MAX`` partitions, or with the topic that exceeds it, and says that more
follow.

Theory.  The state of a partition has its log start, its end and the bytes of its live batches, so
no record is read, and nothing is kept for the next request.  A partition with an epoch history has
bytes in several groups; only the group that takes its appends knows its offsets.  A partition that
was never appended to has no state, and no row.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from multiraft.partitions.retention_records import UNKNOWN_BYTES
from multiraft.wire import sizes as wire
from multiraft.wire.errors import LeaderUnknown, UnknownTopic
from node.loop.steps import ROWS_PER_STEP, parts
from node.loop.turns import Turns
from node.metadata.state_machine import EpochEntry

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog
    from node.metadata.state_machine import MetadataState, Topic

#: Partitions after which an answer about topics ends: some 50 ms of work, in turns.
PARTITIONS_PER_REPLY_MAX = 16_384


class LedSize(NamedTuple):
    """Part of a partition in the groups that this node leads; fields as in ``wire``."""

    log_start: int
    end: int
    bytes: int


class SizeAdmin:
    """Handlers of requests about sizes."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 metadata_log: MetadataLog, turns: Turns):
        self._core = core
        self._partition_states = partition_states
        self._metadata_log = metadata_log
        self._turns = turns

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for clients."""
        return {wire.TopicSizes: self._topics, wire.PartitionSizes: self._partitions}

    async def _topics(self, request: wire.TopicSizes) -> wire.TopicSizesReply:
        rows: list[wire.TopicSize] = []
        last, more, topics, partitions = "", True, 0, 0
        while more and topics < request.count_max and partitions < PARTITIONS_PER_REPLY_MAX:
            count = min(ROWS_PER_STEP, request.count_max - topics)
            await self._turns.take(count)
            found, more = self._state().list_topics(last or request.after, count)
            for topic in found:
                size = await self.topic_size(topic)
                if size is not None:
                    rows.append(size)
                last, topics, partitions = topic.name, topics + 1, partitions + topic.partitions
                if partitions >= PARTITIONS_PER_REPLY_MAX and topic is not found[-1]:
                    more = True
                    break
        return wire.TopicSizesReply(tuple(rows), last, more)

    async def topic_size(self, topic: Topic) -> wire.TopicSize | None:
        """Return the size of a topic's part in the groups led here; None = nothing of it is there.
        O(partitions), in turns."""
        records = total = unknown = largest_bytes = 0
        largest, is_here = -1, False
        for part in parts(topic.partitions):
            await self._turns.take(len(part))
            for number, size in self._sizes(topic, part):
                is_here = True
                records += max(0, size.end - size.log_start)
                if size.bytes == UNKNOWN_BYTES:
                    unknown += 1
                    continue
                total += size.bytes
                if size.bytes > largest_bytes or largest == -1:
                    largest, largest_bytes = number, size.bytes
        if not is_here:
            return None
        return wire.TopicSize(topic.name, topic.incarnation, records, total, unknown, largest,
                              largest_bytes)

    async def _partitions(self, request: wire.PartitionSizes) -> wire.PartitionSizesReply:
        topic = self._state().topic(request.topic)
        if topic is None:
            raise UnknownTopic(f"no topic is named {request.topic!r:.80}")
        end = min(topic.partitions, request.first + request.count_max)
        rows: list[wire.PartitionSize] = []
        for part in parts(max(0, end - request.first)):
            await self._turns.take(len(part))
            rows += [wire.PartitionSize(number, *size) for number, size in self._sizes(
                topic, range(request.first + part.start, request.first + part.stop))]
        return wire.PartitionSizesReply(tuple(rows), end < topic.partitions)

    def _state(self) -> MetadataState:
        """Return the metadata.  Raises ``LeaderUnknown`` while this node has none of a cluster."""
        state = self._metadata_log.state
        if not state.cluster_id:
            raise LeaderUnknown("this node does not know the cluster's metadata yet; try again")
        return state

    def _sizes(self, topic: Topic, part: range) -> list[tuple[int, LedSize]]:
        """Return (partition, size) of those partitions of ``part`` that are in groups led here.
        O(partitions + entries of their epoch histories)."""
        state = self._metadata_log.state
        histories = state.placed.epoch_histories
        found = []
        for number, last in zip(part, state.last_epoch_entries(topic, part), strict=True):
            incarnation = topic.incarnation_of(number)
            size = self._size(incarnation, histories.get(incarnation) or (last,))
            if size is not None:
                found.append((number, size))
        return found

    def _size(self, incarnation: int, history: tuple[EpochEntry, ...]) -> LedSize | None:
        last, log_start, end = history[-1], -1, -1
        total: int | None = None
        for group in {entry.group for entry in history}:
            states = self._partition_states.get(group)
            if states is None or not self._core.status.is_leader(group):
                continue
            applied = states.applied(incarnation)
            if applied is None:
                continue
            if group == last.group:
                log_start, end = applied.log_start, applied.next_offset
            if applied.live_bytes == UNKNOWN_BYTES or total == UNKNOWN_BYTES:
                total = UNKNOWN_BYTES
            else:
                total = applied.live_bytes + (total or 0)
        return None if total is None else LedSize(log_start, end, total)
