"""The participant in a plan: reports on the groups that this node leads, and changes them.

Contract.  Handlers of requests between nodes, and of the requests for loads from which plans are
made; loads are gathered in turns (``take``).  They send no requests themselves.  A change of
members or a transfer is started, not awaited: the controller observes its effect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.errors import InvalidMembers, MembershipError, NotLeader, ProposalError, UnknownGroup
from multiraft.raft.status import GroupStatus, MemberStatus
from multiraft.wire import plans as wire
from multiraft.wire.errors import InvalidRequest, LeaderUnknown, TimedOut
from node.clock import monotonic_ms
from node.rebalance.latency import RecentLatency
from node.replicas.group_description import kept_bytes, log_bytes

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.loop.disk_space import Space
    from node.metadata.log import MetadataLog

#: Groups handled before other tasks run.
SLICE = 64


async def yield_once(_rows: int) -> None:
    """Yield to other tasks once."""
    await trio.lowlevel.checkpoint()


class GroupHealthSource(Protocol):
    """Source of surveys of this node's groups."""

    async def fresh(self) -> Any: ...


class PlanParticipant:
    """Handlers of one node.  ``latency``: of this node's committed appends; ``read_bytes``: group
    -> bytes read here while this node led it."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 group_health: GroupHealthSource, space: Space, latency: RecentLatency,
                 read_bytes: Mapping[int, int], request_round: Callable[[], None],
                 take: Callable[[int], Awaitable[None]] = yield_once):
        """Create the handlers.  ``take(rows)`` waits until the loop has capacity for so many rows.
        """
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._group_health = group_health
        self._space = space
        self._latency = latency
        self._read_bytes = read_bytes
        self._request_round = request_round
        self._take = take

    @property
    def peer_handlers(self) -> dict:
        """Handlers of requests from other nodes."""
        return {
            wire.ProbeGroups: self.probe_groups,
            wire.StartReplicaChange: self.start_replica_change,
            wire.StartLeaderTransfer: self.start_leader_transfer,
        }

    @property
    def handlers(self) -> dict:
        """Handlers of requests from clients."""
        return {wire.GroupLoads: self.group_loads, wire.PartitionLoads: self.partition_loads}

    # ---- for who carries a plan out -------------------------------------------------------------

    async def probe_groups(self, request: wire.ProbeGroups) -> wire.ProbeGroupsReply:
        """Return the state of the requested groups that this node leads, and disk, damage and
        append latency of this node. Other groups are left out."""
        groups = []
        for at, group in enumerate(request.groups):
            if at % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            if self._core.status.is_leader(group):
                groups.append(self._probed(self._core.status.of(group)))
        survey = await self._group_health.fresh()
        return wire.ProbeGroupsReply(
            tuple(groups), survey.disk_used_bytes,
            survey.disk_capacity_bytes, self._space.full,
            survey.damaged_voters, self._latency.recent_ms(monotonic_ms()))

    def _probed(self, status: GroupStatus) -> wire.ProbedGroup:
        configuration = status.configuration
        is_open = (bool(configuration.outgoing) or status.configuration_index > status.commit
                   or not status.committed_in_term)
        members = tuple(wire.ProbedMember(
            member.node, _progress_of(member), member.match,
            log_bytes(self._store, status, member.match + 1)) for member in status.members)
        return wire.ProbedGroup(
            status.group, status.incarnation, status.configuration_index, is_open,
            configuration.voters, configuration.learners, configuration.outgoing,
            status.last_index, kept_bytes(self._store, status),
            status.transferee, members)

    async def start_replica_change(
        self, request: wire.StartReplicaChange
    ) -> wire.StartReplicaChangeReply:
        """Start a change of a group led here to these members, without waiting for it.

        Raises ``NotLeader``, ``InvalidRequest`` for members that a group cannot have, and
        ``TimedOut`` if the configuration is not the expected one or cannot be changed now."""
        group = request.group
        index = self._led(group).configuration_index
        if index != request.expected_index:
            raise TimedOut(f"the members of group {group} were changed at index {index}, "
                           f"{request.expected_index} was expected")
        try:
            self._core.change_members(group, request.voters, request.learners)
        except InvalidMembers as error:
            raise InvalidRequest(str(error)) from error
        except MembershipError as error:
            raise TimedOut(str(error)) from error
        self._request_round()
        return wire.StartReplicaChangeReply()

    async def start_leader_transfer(
        self, request: wire.StartLeaderTransfer
    ) -> wire.StartLeaderTransferReply:
        """Start a leadership transfer, without waiting for it. Raises ``NotLeader``, and
        ``TimedOut`` if it cannot start now."""
        self._led(request.group)
        try:
            self._core.transfer(request.group, request.to)
        except ProposalError as error:
            raise TimedOut(str(error)) from error
        self._request_round()
        return wire.StartLeaderTransferReply()

    def _led(self, group: int) -> GroupStatus:
        if not self._core.status.is_leader(group):
            raise NotLeader(group)
        return self._core.status.of(group)

    # ---- loads ----------------------------------------------------------------------------------

    async def group_loads(self, request: wire.GroupLoads) -> wire.GroupLoadsReply:
        """Return this node's disk usage and the loads of the groups led here, from group ``first``
        on, ascending, at most ``count_max``, with a flag if there are more."""
        led = sorted(group for group in self._core.status.led_groups() if group >= request.first)
        moved = self._metadata_log.state.plans.moved
        rows = []
        for at, group in enumerate(led[:request.count_max]):
            if not at % SLICE:
                await self._take(SLICE)
            try:
                status = self._core.status.of(group)
            except UnknownGroup:
                continue  # removed meanwhile
            configuration = status.configuration
            rows.append(wire.GroupLoad(
                group, status.incarnation, status.configuration_index,
                bool(configuration.outgoing) or status.configuration_index > status.commit,
                tuple(configuration.voters), tuple(configuration.learners),
                kept_bytes(self._store, status), status.last_index,
                self._read_bytes.get(group, 0), moved.get(group, 0)))
        survey = await self._group_health.fresh()
        return wire.GroupLoadsReply(
            self._core.node, monotonic_ms(), survey.disk_used_bytes,
            survey.disk_capacity_bytes, tuple(rows),
            len(led) > request.count_max)

    async def partition_loads(self, request: wire.PartitionLoads) -> wire.PartitionLoadsReply:
        """Return one page of ``ROWS_MAX`` loads of partitions, by incarnation, with a flag if there
        are more. Only partitions with incarnations above ``after`` are included, of those requested
        groups that this node leads.

        Raises ``LeaderUnknown`` while this node has no metadata of a cluster."""
        state = self._metadata_log.state
        if not state.cluster_id:
            raise LeaderUnknown("this node does not know the cluster's metadata yet; try again")
        rows: list[wire.PartitionLoad] = []
        for at, group in enumerate(dict.fromkeys(request.groups)):
            if not at % SLICE:
                await self._take(SLICE)
            if not self._core.status.is_leader(group):
                continue
            partitions = list(self._store.partition_states[group].partitions())
            for first in range(0, len(partitions), SLICE):
                await self._take(SLICE)
                rows += filter(None, (self._partition_load(partition, group)
                                      for partition in partitions[first:first + SLICE]
                                      if partition > request.after))
                if len(rows) > 2 * wire.ROWS_MAX:  # the remaining rows belong to the next page
                    rows.sort()
                    del rows[wire.ROWS_MAX + 1:]
        rows.sort()
        return wire.PartitionLoadsReply(tuple(rows[:wire.ROWS_MAX]), len(rows) > wire.ROWS_MAX)

    def _partition_load(self, partition: int, group: int) -> wire.PartitionLoad | None:
        """Return the load of a partition; None = it was switched away, or none of it is applied
        here."""
        state = self._metadata_log.state
        place = state.locate(partition)
        tail = self._store.partition_states.get(group)
        if place is None or place.group != group or tail is None:
            return None
        applied = tail.applied(partition)
        return applied and wire.PartitionLoad(
            partition,
            place.topic.name,
            place.partition,
            place.group,
            place.epoch,
            len(place.epoch_history) if partition in state.placed.epoch_histories else 0,
            applied.next_offset,
            state.plans.switched.get(partition, 0),
            state.settings.is_compacted(place.topic.incarnation, place.topic.name),
        )


def _progress_of(member: MemberStatus) -> str:
    """Return the state of a member as text, with what it has to copy."""
    if not member.records_left:
        return member.state
    return f"{member.state}, {member.records_left:,} indexes to copy records from"
