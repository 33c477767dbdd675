"""Growth of the pool of groups: requested, new groups created, opened when they have leaders.

Contract.  ``handlers`` serve clients.  One command decides the growth and names the voters of the
new groups; every node creates its own replicas of them (``node/groups``).  The task runs on every
node; the metadata leader opens the pool once each new group has a leader, so that no topic waits
for an election.  The metadata are the only state of a growth, so the next leader continues it.

Refusals come before anything is recorded: a size that is not larger, one above
``limits.groups_max``, a second growth, and nodes that are up in too few racks to place replicas as
required.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from multiraft.errors import MultiRaftError
from multiraft.types import METADATA_GROUP
from multiraft.wire import pool as wire
from multiraft.wire.errors import Code, InvalidRequest, LimitExceeded, exception_for
from multiraft.wire.plans import DRAINING
from node.loop.steps import ROWS_PER_STEP, parts
from node.loop.turns import Turns
from node.metadata.state_machine import GrowPool, MetadataState, NodeRecord, OpenPool
from placement import PlacementError, Topology, replicas

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog

#: Interval of the check that the new groups have leaders, in seconds.
POLL_S = 0.1


class Pool:
    """Handlers and task of the pool's growth."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog, groups_max: int,
                 log: logging.Logger, turns: Turns):
        self._turns = turns
        self._core = core
        self._metadata_log = metadata_log
        self._groups_max = groups_max
        self._log = log

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler."""
        return {wire.GrowPool: self._grow, wire.PoolStatus: self._status}

    # ---- requests -------------------------------------------------------------------------------

    async def _grow(self, request: wire.GrowPool) -> wire.GrowPoolReply:
        self._metadata_log.check_leading()
        state = self._metadata_log.state
        if request.groups == state.last_group > state.pool_size:  # repeated request: same answer
            placed = state.table.replicas[state.pool_size + 1:]
            return await self._reply(state, state.pool_size, placed)
        self._check(request.groups, state)
        pool_size = state.pool_size
        placed = await self._place(request.groups, state)
        if not request.dry_run:
            await self._propose(GrowPool(request.groups, placed))
            self._log.info("pool_growth_started", extra={"from_groups": pool_size,
                                                         "to_groups": request.groups})
        return await self._reply(state, pool_size, placed)

    def _check(self, groups: int, state: MetadataState) -> None:
        """Return if the pool may grow to ``groups`` groups. Raises ``InvalidRequest`` for a size
        that is not larger or during a growth, ``LimitExceeded`` above ``groups_max``."""
        if state.last_group > state.pool_size:
            raise InvalidRequest(f"the pool is growing from {state.pool_size} to "
                                 f"{state.last_group} groups: wait for that",
                                 value=state.last_group)
        if groups <= state.pool_size:
            raise InvalidRequest(f"the pool has {state.pool_size} groups and only grows: {groups} "
                                 f"is not more", value=state.pool_size)
        if groups > self._groups_max:
            raise LimitExceeded(f"groups_max is {self._groups_max}; {groups} groups were asked for",
                                limit=self._groups_max, value=groups)

    async def _place(self, groups: int, state: MetadataState) -> tuple[tuple[int, ...], ...]:
        """Return the voters of the new groups, on nodes that are up and not draining. Raises
        ``InvalidRequest`` if too few racks or nodes are up."""
        factor = state.replication_factor
        every = [node for node in state.nodes() if state.table.states.get(node.id) != DRAINING]
        up = [node for node in every if self._core.status.is_up(node.id)]
        try:
            topology, whole = (Topology.of(node.place for node in nodes) for nodes in (up, every))
            missing = ({rack.name for rack in whole.racks} - {rack.name for rack in topology.racks}
                       if len(topology.racks) < min(factor, len(whole.racks)) else ())
            if missing:
                raise InvalidRequest(f"no node of rack {', '.join(map(repr, sorted(missing)))} is "
                                     f"up, so the new groups would have no replica there: start "
                                     f"{_down(node for node in every if node.rack in missing)}")
            placed: list[tuple[int, ...]] = []
            first = state.pool_size + 1
            at_a_time = max(1, ROWS_PER_STEP // max(1, len(every)))  # each group ranks all nodes
            for part in parts(groups + 1 - first, at_a_time):
                await self._turns.take(ROWS_PER_STEP)
                placed += [replicas(first + at, factor, topology, state.hash_seed) for at in part]
        except PlacementError as error:
            down = [node for node in every if node not in up]
            raise InvalidRequest(f"the new groups cannot be placed: {error}" + (
                f"; start {_down(down)}" if down else "")) from error
        return tuple(placed)

    async def _reply(self, state: MetadataState, pool_size: int,
                     placed: tuple[tuple[int, ...], ...]) -> wire.GrowPoolReply:
        """Return the reply, with the distribution of replicas.  O(groups), in turns."""
        has: Counter[int] = Counter()
        gets: Counter[int] = Counter()
        leads: Counter[int] = Counter()
        for part in parts(pool_size + 1):
            await self._turns.take(len(part))
            has.update(member for group in part for member in state.configuration(group).members())
        for part in parts(len(placed)):
            await self._turns.take(len(part))
            gets.update(node for nodes in placed[part.start:part.stop] for node in nodes)
            leads.update(nodes[0] for nodes in placed[part.start:part.stop])
        rows = tuple(wire.NewReplicas(
            node.id, node.rack, state.table.states.get(node.id) or
            ("up" if self._core.status.is_up(node.id) else "down"), has[node.id], gets[node.id],
            leads[node.id]) for node in state.nodes())
        return wire.GrowPoolReply(pool_size, pool_size + len(placed), state.replication_factor,
                                  rows)

    async def _status(self, _request: wire.PoolStatus) -> wire.PoolStatusReply:
        state = self._metadata_log.state
        waiting = await self._waiting(state)
        return wire.PoolStatusReply(state.pool_size, max(0, state.last_group), len(waiting),
                                    tuple(waiting[:wire.GROUPS_NAMED_MAX]), self._groups_max)

    async def _waiting(self, state: MetadataState) -> list[int]:
        """Return the new groups without a leader that can append, as far as this node knows."""
        found: list[int] = []
        first = state.pool_size + 1
        for part in parts(max(0, state.last_group + 1 - first)):
            await self._turns.take(len(part))
            found += [group for group in range(first + part.start, first + part.stop)
                      if not self._core.status.living_leader(group, state.configuration(group))]
        return found

    # ---- opening --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run ``check`` every ``POLL_S`` while the pool grows and this node leads the metadata
        group, until cancelled."""
        while True:
            state = self._metadata_log.state
            grows = state.last_group > state.pool_size > 0
            if grows and self._core.status.has_applied_in_term(METADATA_GROUP):
                await self.check()
            await self._metadata_log.applied(self._metadata_log.state.version + 1,
                                             POLL_S if grows else float("inf"))

    async def check(self) -> None:
        """Open the grown pool if each new group has a leader; a failed proposal is logged and left
        for the next check."""
        state = self._metadata_log.state
        size = state.last_group
        if await self._waiting(state):
            return
        try:
            await self._propose(OpenPool(size))
        except MultiRaftError as error:  # retried by the next leader or in the next iteration
            self._log.info("pool_growth_deferred", extra={"reason": str(error)})
            return
        self._log.info("pool_growth_completed", extra={"groups": size})

    async def _propose(self, command: Command) -> None:
        """Propose a command.  Raises the error of a refusal."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)


def _down(nodes: Iterable[NodeRecord]) -> str:
    return f"node {', '.join(str(node.id) for node in nodes)}"
