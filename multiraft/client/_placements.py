"""Operations about where partitions are: explained, and switched to another group.

Contract.  As ``_operations.py``, which takes in ``PlacementOperations``; the other two classes are
what the clients offer of it.
"""

from __future__ import annotations

from typing import Generator

from multiraft.wire import placements
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

    def partition_replicas(self, incarnation: int, address: str) -> Generator:
        """-> tuple of ``ReplicaRow``: what the node at ``address`` has of a partition."""
        reply = yield from self._ask(placements.PartitionReplicas(incarnation), address=address)
        return reply.replicas

    def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> Generator:
        """-> ``SwitchPartitionReply``.  Deciding twice is deciding once."""
        return (yield from self._ask(placements.SwitchPartition(incarnation, epoch, to_group)))


class BlockingPlacements:
    """Part of the blocking client."""

    def explain_placement(self, topic: str) -> list[PlacementRow]:
        """Where each partition of a topic is, was, and is going, by partition."""
        return self._run(self._operations.explain_placement(topic))

    def partition_replicas(self, incarnation: int, address: str) -> tuple[ReplicaRow, ...]:
        """What the node at ``address`` has of a partition, group by group."""
        return self._run(self._operations.partition_replicas(incarnation, address))

    def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> None:
        """Decide that a partition goes on in another group, at the epoch after its present one; it
        happens within moments (``explain_placement``).  Raises ``StaleEpoch`` when it is at another
        epoch, ``LimitExceeded`` with limit and value."""
        self._run(self._operations.switch_partition(incarnation, epoch, to_group))


class AsyncPlacements:
    """Part of the trio client."""

    async def explain_placement(self, topic: str) -> list[PlacementRow]:
        """Where each partition of a topic is, was, and is going, by partition."""
        return await self._run(self._operations.explain_placement(topic))

    async def partition_replicas(self, incarnation: int, address: str) -> tuple[ReplicaRow, ...]:
        """What the node at ``address`` has of a partition, group by group."""
        return await self._run(self._operations.partition_replicas(incarnation, address))

    async def switch_partition(self, incarnation: int, epoch: int, to_group: int) -> None:
        """Decide that a partition goes on in another group, at the epoch after its present one; it
        happens within moments (``explain_placement``).  Raises ``StaleEpoch`` when it is at another
        epoch, ``LimitExceeded`` with limit and value."""
        await self._run(self._operations.switch_partition(incarnation, epoch, to_group))
