"""Operations on the placement of partitions: explain it, switch a partition to another group,
grow the pool.

Contract.  As ``_operations.py``.
"""

from __future__ import annotations

from multiraft.client._client import ClientCore
from multiraft.client._retries import ask
from multiraft.client._steps import Operation
from multiraft.wire import placements, pool
from multiraft.wire.errors import AmbiguousOutcome, Code, UnknownTopic
from multiraft.wire.messages import ClusterStatus
from multiraft.wire.placements import PlacementRow, ReplicaRow


def explain_placement(core: ClientCore, topic: str) -> Operation[list[PlacementRow]]:
    """Ask a node for the placement of a topic: one row per partition, in order, with its epoch
    history, the group of its hash, and a switch under way.  Raises ``UnknownTopic``."""
    rows: list[PlacementRow] = []
    while True:
        reply = yield from _explain(core, placements.ExplainPlacement(topic, len(rows)))
        rows += reply.partitions
        if not reply.more or not reply.partitions:
            return rows


def topic_pool_size(core: ClientCore, topic: str) -> Operation[int]:
    """Return the pool's size, in groups, when the topic was created: its partitions are hashed over
    these groups. Raises ``UnknownTopic`` if it does not exist."""
    return (yield from _explain(core, placements.ExplainPlacement(topic, 0, 1))).pool_size


def _explain(core: ClientCore, request: placements.ExplainPlacement,
             ) -> Operation[placements.ExplainPlacementReply]:
    """Return a node's answer.  Raises ``UnknownTopic`` that names the topic."""
    try:
        return (yield from ask(core, request))
    except UnknownTopic as error:
        error.about(request.topic)
        raise


def partition_replicas(core: ClientCore, incarnation: int,
                       address: str) -> Operation[tuple[ReplicaRow, ...]]:
    """Return what the node at ``address`` has applied of a partition, for each of its groups."""
    reply = yield from ask(core, placements.PartitionReplicas(incarnation), address=address)
    return reply.replicas


def switch_partition(core: ClientCore, incarnation: int, epoch: int,
                     to_group: int) -> Operation[None]:
    """Decide to switch a partition to ``to_group``; ``epoch`` is its present epoch plus 1.  The
    switch itself follows (``explain_placement`` shows it).  Idempotent.  Raises ``StaleEpoch`` when
    the partition is at another epoch or another switch of it is pending, ``InvalidRequest`` when it
    is in ``to_group`` already or the pool has no such group, ``UnknownPartition``, and
    ``LimitExceeded`` with limit and value."""
    yield from ask(core, placements.SwitchPartition(incarnation, epoch, to_group))


def pool_grow(core: ClientCore, groups: int,
              dry_run: bool = False) -> Operation[pool.GrowPoolReply]:
    """Decide to grow the pool to ``groups`` groups; with ``dry_run`` only return what the growth
    would do.  The growth itself follows (``pool_status`` shows it).  Idempotent.  Raises
    ``InvalidRequest`` when the pool cannot grow to that size, ``LimitExceeded`` with limit and
    value."""
    # A repetition of a growth that is complete is refused as invalid.  The reply then has no
    # placements of the new groups.
    before = yield from pool_status(core)
    reply = yield from ask(core, pool.GrowPool(groups, dry_run), happened={
        Code.INVALID_REQUEST: None} if before.groups < groups else {})
    if reply is not None:
        return reply
    after = yield from pool_status(core)
    if after.pool_size != groups:
        raise AmbiguousOutcome(f"pool_grow: an answer was lost; the pool has {after.pool_size} "
                               f"groups now, {after.groups} when it has grown")
    factor = (yield from ask(core, ClusterStatus())).replication_factor
    return pool.GrowPoolReply(before.pool_size, groups, factor, ())


def pool_status(core: ClientCore) -> Operation[pool.PoolStatusReply]:
    """Return the size of the pool, and the progress of its growth."""
    return (yield from ask(core, pool.PoolStatus()))
