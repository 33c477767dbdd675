"""Operations about where partitions are: explained, and switched to another group.

Contract.  As ``_operations.py``, which takes in ``PlacementOperations``; the other two classes are
what the clients offer of it.
"""

from __future__ import annotations

from typing import Generator

from multiraft.wire import placements, pool
from multiraft.wire.errors import AmbiguousOutcome, Code
from multiraft.wire.messages import ClusterStatus
from multiraft.wire.placements import PlacementRow, ReplicaRow


class PlacementOperations:
    """Part of ``Operations``, which has ``_ask``."""

    def explain_placement(self, topic: str) -> Generator:
        """-> list of ``PlacementRow``, by partition."""
        rows: list[PlacementRow] = []
        while True:
            reply = yield from self._ask(placements.PlacementExplain(topic, len(rows)))
            rows += reply.partitions
            if not reply.more or not reply.partitions:
                return rows

    def topic_pool_size(self, topic: str) -> Generator:
        """-> groups of the pool when the topic was created: its partitions are hashed over them."""
        return (yield from self._ask(placements.PlacementExplain(topic, 0, 1))).pool_size

    def partition_replicas(self, incarnation: int, address: str) -> Generator:
        """-> tuple of ``ReplicaRow``: what the node at ``address`` has of a partition."""
        reply = yield from self._ask(placements.PartitionReplicas(incarnation), address=address)
        return reply.replicas

    def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> Generator:
        """-> ``SwitchPartitionReply``.  Deciding twice is deciding once."""
        return (yield from self._ask(placements.SwitchPartition(incarnation, epoch, to_group)))

    def pool_grow(self, groups: int, dry_run: bool) -> Generator:
        """-> ``PoolGrowReply``.  Growing to the same size twice is growing once, also when it is
        through before it is asked for again: who is on which node is left out then."""
        before = yield from self.pool_status()
        reply = yield from self._ask(pool.PoolGrow(groups, dry_run), happened={
            Code.INVALID_REQUEST: None} if before.groups < groups else {})
        if reply is not None:
            return reply
        after = yield from self.pool_status()
        if after.pool_size != groups:
            raise AmbiguousOutcome(f"pool_grow: an answer was lost; the pool has {after.pool_size} "
                                   f"groups now, {after.groups} when it has grown")
        factor = (yield from self._ask(ClusterStatus())).replication_factor
        return pool.PoolGrowReply(before.pool_size, groups, factor, ())

    def pool_status(self) -> Generator:
        """-> ``PoolStatusReply``."""
        return (yield from self._ask(pool.PoolStatus()))


class BlockingPlacements:
    """Part of the blocking client."""

    def explain_placement(self, topic: str) -> list[PlacementRow]:
        """Where each partition of a topic is, was, and is going, by partition."""
        return self._run(self._operations.explain_placement(topic))

    def topic_pool_size(self, topic: str) -> int:
        """Groups of the pool when the topic was created: its partitions are hashed over them."""
        return self._run(self._operations.topic_pool_size(topic))

    def partition_replicas(self, incarnation: int, address: str) -> tuple[ReplicaRow, ...]:
        """What the node at ``address`` has of a partition, group by group."""
        return self._run(self._operations.partition_replicas(incarnation, address))

    def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> None:
        """Decide that a partition goes on in another group, at the epoch after its present one; it
        happens within moments (``explain_placement``).  Raises ``StaleEpoch`` when it is at another
        epoch, ``LimitExceeded`` with limit and value."""
        self._run(self._operations.switch_partition(incarnation, epoch, to_group))

    def pool_grow(self, groups: int, dry_run: bool = False) -> pool.PoolGrowReply:
        """Have the pool grow to ``groups`` groups, or only say what would become of it; it happens
        within moments (``pool_status``).  Raises ``InvalidRequest`` when it cannot,
        ``LimitExceeded`` with limit and value."""
        return self._run(self._operations.pool_grow(groups, dry_run))

    def pool_status(self) -> pool.PoolStatusReply:
        """How large the pool is, and how far its growth."""
        return self._run(self._operations.pool_status())


class AsyncPlacements:
    """Part of the trio client."""

    async def explain_placement(self, topic: str) -> list[PlacementRow]:
        """Where each partition of a topic is, was, and is going, by partition."""
        return await self._run(self._operations.explain_placement(topic))

    async def topic_pool_size(self, topic: str) -> int:
        """Groups of the pool when the topic was created: its partitions are hashed over them."""
        return await self._run(self._operations.topic_pool_size(topic))

    async def partition_replicas(self, incarnation: int, address: str) -> tuple[ReplicaRow, ...]:
        """What the node at ``address`` has of a partition, group by group."""
        return await self._run(self._operations.partition_replicas(incarnation, address))

    async def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> None:
        """Decide that a partition goes on in another group, at the epoch after its present one; it
        happens within moments (``explain_placement``).  Raises ``StaleEpoch`` when it is at another
        epoch, ``LimitExceeded`` with limit and value."""
        await self._run(self._operations.switch_partition(incarnation, epoch, to_group))

    async def pool_grow(self, groups: int, dry_run: bool = False) -> pool.PoolGrowReply:
        """Have the pool grow to ``groups`` groups, or only say what would become of it; it happens
        within moments (``pool_status``).  Raises ``InvalidRequest`` when it cannot,
        ``LimitExceeded`` with limit and value."""
        return await self._run(self._operations.pool_grow(groups, dry_run))

    async def pool_status(self) -> pool.PoolStatusReply:
        """How large the pool is, and how far its growth."""
        return await self._run(self._operations.pool_status())
