"""What a node does for whoever carries a plan out: tells of the groups it leads, changes them.

Contract.  Handlers of requests between nodes, and of the loads that plans are made from, which are
gathered in turns (``take``).  They ask nobody else.  A change of members or a transfer is begun,
not waited for: who asked looks again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.errors import InvalidMembers, MembershipError, NotLeader, ProposalError, UnknownGroup
from multiraft.raft.status import GroupStatus
from multiraft.wire import plans as wire
from multiraft.wire.errors import InvalidRequest, LeaderUnknown, TimedOut
from node.clock import monotonic_ms
from node.rebalance.latency import RecentLatency
from node.replicas.group_description import log_bytes

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.loop.disk_space import Space
    from node.metadata.log import MetadataLog

#: Groups looked at without letting others run.
SLICE = 64


async def next_turn(_rows: int) -> None:
    """Wait until other tasks had their turn."""
    await trio.lowlevel.checkpoint()


class Surveying(Protocol):
    """Source of surveys of this node's groups."""

    async def fresh(self) -> Any: ...


class PlanParticipant:
    """See the module's docstring.  ``latency``: of this node's committed appends; ``read_bytes``:
    what was read of each group here while it was led here."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 surveying: Surveying, space: Space, latency: RecentLatency,
                 read_bytes: Mapping[int, int], request_round: Callable[[], None],
                 take: Callable[[int], Awaitable[None]] = next_turn):
        """``take(rows)`` waits until the loop has room for the work of so many rows."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._surveying = surveying
        self._space = space
        self._latency = latency
        self._read_bytes = read_bytes
        self._request_round = request_round
        self._take = take

    @property
    def peer_handlers(self) -> dict:
        """What nodes ask."""
        return {wire.PlanProbe: self.look, wire.PlanChange: self.change,
                wire.PlanTransfer: self.transfer}

    @property
    def handlers(self) -> dict:
        """What clients ask."""
        return {wire.GroupLoads: self.group_loads, wire.PartitionLoads: self.partition_loads}

    # ---- for who carries a plan out -------------------------------------------------------------

    async def look(self, request: wire.PlanProbe) -> wire.PlanLookReply:
        """The groups asked for that are led here, and this node itself."""
        groups = []
        for at, group in enumerate(request.groups):
            if at % SLICE == SLICE - 1:
                await trio.lowlevel.checkpoint()
            if self._core.status.is_leader(group):
                groups.append(self._looked(self._core.status.of(group)))
        survey = await self._surveying.fresh()
        return wire.PlanLookReply(
            tuple(groups), survey.disk_used_bytes,
            survey.disk_used_bytes + survey.disk_free_bytes, self._space.full,
            survey.damaged_voters, self._latency.recent_ms(monotonic_ms()))

    def _looked(self, status: GroupStatus) -> wire.LookedGroup:
        configuration = status.configuration
        is_open = (bool(configuration.outgoing) or status.configuration_index > status.commit
                   or not status.committed_in_term)
        members = tuple(wire.LookedMember(
            member.node, member.state, member.match,
            log_bytes(self._store, status, member.match + 1)) for member in status.members)
        return wire.LookedGroup(
            status.group, status.incarnation, status.configuration_index, is_open,
            configuration.voters, configuration.learners, configuration.outgoing,
            status.last_index, log_bytes(self._store, status, status.first_index),
            status.transferee, members)

    async def change(self, request: wire.PlanChange) -> wire.PlanChangeReply:
        """Begin to make these the members.  Raises ``NotLeader``, ``InvalidRequest``,
        ``TimedOut``."""
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
        return wire.PlanChangeReply()

    async def transfer(self, request: wire.PlanTransfer) -> wire.PlanTransferReply:
        """Begin to hand a group over.  Raises ``NotLeader``, ``TimedOut``."""
        self._led(request.group)
        try:
            self._core.transfer(request.group, request.to)
        except ProposalError as error:
            raise TimedOut(str(error)) from error
        self._request_round()
        return wire.PlanTransferReply()

    def _led(self, group: int) -> GroupStatus:
        if not self._core.status.is_leader(group):
            raise NotLeader(group)
        return self._core.status.of(group)

    # ---- loads ----------------------------------------------------------------------------------

    async def group_loads(self, request: wire.GroupLoads) -> wire.GroupLoadsReply:
        """Groups led here, by id."""
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
                log_bytes(self._store, status, status.first_index), status.last_index,
                self._read_bytes.get(group, 0), moved.get(group, 0)))
        survey = await self._surveying.fresh()
        return wire.GroupLoadsReply(
            self._core.node, monotonic_ms(), survey.disk_used_bytes,
            survey.disk_used_bytes + survey.disk_free_bytes, tuple(rows),
            len(led) > request.count_max)

    async def partition_loads(self, request: wire.PartitionLoads) -> wire.PartitionLoadsReply:
        """Partitions whose appends go to these groups, as far as they are led here, by
        incarnation."""
        state = self._metadata_log.state
        if not state.cluster_id:
            raise LeaderUnknown("this node does not know the cluster's metadata yet; try again")
        rows: list[wire.PartitionLoad] = []
        for at, group in enumerate(dict.fromkeys(request.groups)):
            if not at % SLICE:
                await self._take(SLICE)
            if not self._core.status.is_leader(group):
                continue
            partitions = list(self._store.tails[group].partitions())
            for first in range(0, len(partitions), SLICE):
                await self._take(SLICE)
                rows += filter(None, (self._partition_load(partition, group)
                                      for partition in partitions[first:first + SLICE]
                                      if partition > request.after))
                if len(rows) > 2 * wire.ROWS_MAX:  # what comes behind is for another answer
                    rows.sort()
                    del rows[wire.ROWS_MAX + 1:]
        rows.sort()
        return wire.PartitionLoadsReply(tuple(rows[:wire.ROWS_MAX]), len(rows) > wire.ROWS_MAX)

    def _partition_load(self, partition: int, group: int) -> wire.PartitionLoad | None:
        """None = it went on elsewhere, perhaps not here, or nothing of it is applied."""
        state = self._metadata_log.state
        place = state.locate(partition)
        tail = self._store.tails.get(group)
        if place is None or place.group != group or tail is None:
            return None
        applied = tail.applied(partition)
        return applied and wire.PartitionLoad(
            partition, place.topic.name, place.partition, place.group, place.epoch,
            len(place.chain) if partition in state.placed.chains else 0, applied.next_offset,
            state.plans.switched.get(partition, 0))
