"""Operations about plans: apply, status, control; states of nodes; the facts plans are made from.

Contract.  As ``_operations.py``, which takes in ``PlanOperations``; the other two classes are what
the clients offer of it.  All of these may be repeated: a plan that is applied twice is applied
once, and the same goes for what controls it.
"""

from __future__ import annotations

from typing import Generator

from multiraft.client._placements import (
    AsyncPlacements,
    BlockingPlacements,
    PlacementOperations,
)
from multiraft.client._sinks import AsyncSinks, BlockingSinks, SinkOperations
from multiraft.wire import plans

#: States of a plan that has not ended.
_UNDER_WAY = ("running", "paused", "cancelling")


class PlanOperations(PlacementOperations, SinkOperations):
    """Part of ``Operations``, which has ``_ask`` and ``_ask_node``."""

    def plan_request(self, request: plans.Request) -> Generator:
        """-> the reply to ``request``, from whoever answers it.  A control of "the plan under way"
        is for the one that is under way now: asked again it must not reach the next one."""
        if type(request) is plans.PlanControl and not request.plan_id:
            status = yield from self._ask(plans.PlanStatus())
            if status.state in _UNDER_WAY:
                request = request._replace(plan_id=status.plan_id)
        return (yield from self._ask(request))

    def group_loads(self, address: str, timeout_ms: int) -> Generator:
        """-> list of ``GroupLoadsReply`` of the node at ``address``, page by page."""
        pages: list[plans.GroupLoadsReply] = []
        first = 0
        while True:
            reply = yield from self._ask_node(plans.GroupLoads(first), address, timeout_ms)
            pages.append(reply)
            if not reply.more or not reply.groups:
                return pages
            first = reply.groups[-1].group + 1

    def partition_loads(self, groups: tuple[int, ...], address: str,
                        timeout_ms: int) -> Generator:
        """-> list of ``PartitionLoad`` of the node at ``address``."""
        rows: list[plans.PartitionLoad] = []
        while True:
            after = rows[-1].incarnation if rows else 0
            reply = yield from self._ask_node(plans.PartitionLoads(groups, after), address,
                                              timeout_ms)
            rows += reply.partitions
            if not reply.more or not reply.partitions:
                return rows


class BlockingPlans(BlockingPlacements, BlockingSinks):
    """Part of the blocking client, with what it has of placement and of sinks."""

    def plan_request(self, request: plans.Request) -> plans.Reply:
        """Ask one of ``multiraft.wire.plans``."""
        return self._run(self._operations.plan_request(request))

    def group_loads(self, address: str, timeout_ms: int = 0) -> list[plans.GroupLoadsReply]:
        """What the node at ``address`` leads, and how much is in it."""
        return self._run(self._operations.group_loads(address, timeout_ms))

    def partition_loads(self, groups: tuple[int, ...], address: str,
                        timeout_ms: int = 0) -> list[plans.PartitionLoad]:
        """The partitions of these groups, as far as the node at ``address`` leads them."""
        return self._run(self._operations.partition_loads(groups, address, timeout_ms))


class AsyncPlans(AsyncPlacements, AsyncSinks):
    """Part of the trio client, with what it has of placement and of sinks."""

    async def plan_request(self, request: plans.Request) -> plans.Reply:
        """Ask one of ``multiraft.wire.plans``."""
        return await self._run(self._operations.plan_request(request))

    async def group_loads(self, address: str,
                          timeout_ms: int = 0) -> list[plans.GroupLoadsReply]:
        """What the node at ``address`` leads, and how much is in it."""
        return await self._run(self._operations.group_loads(address, timeout_ms))

    async def partition_loads(self, groups: tuple[int, ...], address: str,
                              timeout_ms: int = 0) -> list[plans.PartitionLoad]:
        """The partitions of these groups, as far as the node at ``address`` leads them."""
        return await self._run(self._operations.partition_loads(groups, address, timeout_ms))
