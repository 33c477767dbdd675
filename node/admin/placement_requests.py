"""Requests about the placement of partitions: explained from this node's metadata, switched by
command.

Contract.  As ``node/admin/requests.py``, which calls these handlers.  An explanation has as many
rows as were requested, or fewer where partitions have long histories: it ends after
``ENTRIES_PER_REPLY_MAX`` entries and says that more follow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from multiraft.core import default_groups
from multiraft.wire import placements as wire
from multiraft.wire.errors import (
    Code,
    PartitionCompacted,
    UnknownPartition,
    UnknownTopic,
    exception_for,
)
from node.loop.steps import ROWS_PER_STEP, parts
from node.loop.turns import Turns
from node.metadata import state_machine

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog

#: Entries after which an explanation ends: with the rows of its partitions at about 25 bytes each,
#: they take less than half of a reply's header.
ENTRIES_PER_REPLY_MAX = 16_384
#: Partitions explained per step, each with up to ``EPOCH_ENTRIES_MAX`` entries.
PARTITIONS_PER_STEP = 32


class PlacementAdmin:
    """Handlers of requests about placement."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 metadata_log: MetadataLog, turns: Turns):
        self._turns = turns
        self._core = core
        self._partition_states = partition_states
        self._metadata_log = metadata_log

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for clients."""
        return {wire.ExplainPlacement: self._explain, wire.PartitionReplicas: self._replicas,
                wire.SwitchPartition: self._switch}

    @property
    def peer_handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler, for nodes."""
        return {wire.PublishSwitch: self._publish, wire.TrimEpochHistory: self._trim_epoch_history}

    async def _explain(self, request: wire.ExplainPlacement) -> wire.ExplainPlacementReply:
        state = self._metadata_log.state
        topic = state.topic(request.topic)
        if topic is None:
            raise UnknownTopic(f"no topic is named {request.topic!r:.80}")
        end = min(topic.partitions, request.first + request.count_max)
        rows: list[wire.PlacementRow] = []
        entries = 0
        for part in parts(max(0, end - request.first), PARTITIONS_PER_STEP):
            if entries > ENTRIES_PER_REPLY_MAX:
                break
            await self._turns.take(ROWS_PER_STEP)
            rows += [self._explained(state, topic, request.first + at) for at in part]
            entries += sum(len(row.epoch_history) for row in rows[part.start:])
        return wire.ExplainPlacementReply(topic.pool_size, tuple(rows),
                                          request.first + len(rows) < topic.partitions)

    @staticmethod
    def _explained(state: state_machine.MetadataState, topic: state_machine.Topic,
                   number: int) -> wire.PlacementRow:
        """Return the row of partition ``number``: group of its hash, epoch history and pending
        switch (zeros = none). O(entries)."""
        incarnation = topic.incarnation_of(number)
        switch = state.placed.switches.get(incarnation, state_machine.Switch(0, 0))
        entries = tuple(
            wire.EpochRow(*entry[:3]) for entry in state.epoch_history(topic, incarnation)
        )
        hashed_group, = default_groups(incarnation, 1, topic.pool_size_of(incarnation),
                                       state.hash_seed)
        return wire.PlacementRow(number, incarnation, hashed_group, entries, switch.epoch,
                                 switch.to_group)

    async def _replicas(self, request: wire.PartitionReplicas) -> wire.PartitionReplicasReply:
        place = self._metadata_log.state.locate(request.incarnation)
        if place is None:
            raise UnknownPartition(f"no partition has the incarnation {request.incarnation}")
        groups = dict.fromkeys(entry.group for entry in place.epoch_history)
        if place.switch is not None:
            groups[place.switch.to_group] = None
        rows = []
        for group in groups:
            tail = self._partition_states.get(group)
            if tail is None or not self._core.status.has_group(group):
                continue
            state = tail.applied(request.incarnation)
            found = (0, False, 0) if state is None else (state.epoch, state.sealed,
                                                         state.next_offset)
            rows.append(wire.ReplicaRow(group, self._core.status.is_leader(group), *found))
        return wire.PartitionReplicasReply(tuple(rows))

    async def _switch(self, request: wire.SwitchPartition) -> wire.SwitchPartitionReply:
        self._require_may_move(request)
        switch = await self._propose(state_machine.DecideSwitch(*request))
        return wire.SwitchPartitionReply(*switch)

    def _require_may_move(self, request: wire.SwitchPartition) -> None:
        """Return unless the partition belongs to a compacted topic: its keys would have records in
        two groups, and no tombstone could go.  A switch that is decided ends in any case.  Raises
        ``PartitionCompacted``.  O(1)."""
        state = self._metadata_log.state
        place = state.locate(request.incarnation)
        if (place is not None and place.switch is None and place.epoch < request.epoch
                and state.settings.is_compacted(place.topic.incarnation, place.topic.name)):
            raise PartitionCompacted(
                f"topic {place.topic.name} is compacted by key (cleanup.policy=compact): its "
                f"partitions are not switched between groups. With cleanup.policy=delete they are")

    async def _publish(self, request: wire.PublishSwitch) -> wire.PublishSwitchReply:
        await self._propose(state_machine.PublishSwitch(*request))
        return wire.PublishSwitchReply()

    async def _trim_epoch_history(
        self, request: wire.TrimEpochHistory
    ) -> wire.TrimEpochHistoryReply:
        await self._propose(state_machine.TrimEpochHistory(*request))
        return wire.TrimEpochHistoryReply()

    async def _propose(self, command: Command) -> Any:
        """Propose a command and return the value of its result, once it is applied here. Raises the
        error of a refusal, and what ``MetadataLog.propose`` raises."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value
