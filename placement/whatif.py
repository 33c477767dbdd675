"""Hypothetical clusters: nodes that join, leave or are lost, a larger pool.

Contract.  ``hypothetical`` is the cluster right after such a change, before anything has moved:
joining nodes hold nothing, lost nodes are dead, and the new groups are where the growth of the pool
would place them, empty.  ``drained`` are the options under which a plan empties the leaving nodes.
``planner`` and ``outcome`` do the rest, as for any cluster.  Raises ``InvalidChange`` for an
impossible change, ``NotEnoughNodes``, ``LimitExceeded`` and ``InvalidTopology``.

Theory.  A larger pool changes only the default of future topics: each of its G' groups takes a part
of 1/G' of their partitions.  Existing topics keep their groups, so only the plan affects them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placement import cluster, plan
from placement.bounded_hash import POOL_SIZE_MAX
from placement.cluster import GroupRow, NodeRow, Snapshot
from placement.errors import InvalidChange, LimitExceeded
from placement.policy import Options
from placement.rendezvous import replicas
from placement.topology import NodePlace, Topology


class Change(NamedTuple):
    """``joins``: nodes that are new and empty.  ``leaves``: nodes to be emptied.  ``lost``: nodes
    whose replicas are gone.  ``pool_size``: groups that the pool would have, 0 = as many as now."""

    joins: tuple[NodeRow, ...] = ()
    leaves: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    pool_size: int = 0


def hypothetical(snapshot: Snapshot, change: Change) -> Snapshot:
    """Return the cluster right after the change, before any move. O(rows + new groups * nodes).

    Raises ``InvalidChange`` for an impossible change of nodes or of the pool, ``NotEnoughNodes``,
    ``LimitExceeded`` and ``InvalidTopology``."""
    _check(snapshot, change)
    nodes = (*(row._replace(state=cluster.DEAD) if row.id in change.lost else row
               for row in snapshot.nodes), *change.joins)
    pool_size = change.pool_size or snapshot.pool_size
    groups = (*snapshot.groups, *_new_groups(snapshot, nodes, change.leaves, pool_size))
    return cluster.checked(snapshot._replace(nodes=nodes, groups=groups, pool_size=pool_size))


def drained(change: Change, options: Options) -> Options:
    """Return ``options`` extended so that the plan also empties the nodes that leave."""
    return options._replace(drain=tuple(sorted({*options.drain, *change.leaves})))


def _check(snapshot: Snapshot, change: Change) -> None:
    known = {row.id: None for row in snapshot.nodes}
    _once((row.id for row in change.joins), "joins")
    _once((*change.leaves, *change.lost), "leaves or is lost")
    for row in change.joins:
        if row.id in known:
            raise InvalidChange(f"node {row.id} is there already: another one may join")
    for node in (*change.leaves, *change.lost):
        if node not in known:
            raise InvalidChange(f"there is no node {node} that could leave; the nodes are "
                                f"{', '.join(map(str, list(known)[:16]))}")
    if change.pool_size > POOL_SIZE_MAX:
        raise LimitExceeded("pool_size", POOL_SIZE_MAX, change.pool_size)
    if change.pool_size and change.pool_size <= snapshot.pool_size:
        raise InvalidChange(f"the pool has {snapshot.pool_size} groups and only grows: "
                            f"{change.pool_size} is not more")


def _once(nodes: Iterable[int], what: str) -> None:
    seen: dict[int, None] = {}
    for node in nodes:
        if node in seen:
            raise InvalidChange(f"node {node} {what} twice")
        seen[node] = None


def _new_groups(snapshot: Snapshot, nodes: tuple[NodeRow, ...], leaves: tuple[int, ...],
                pool_size: int) -> Iterable[GroupRow]:
    """Yield the groups that a growth of the pool adds, on nodes that are up and not to be emptied.
    """
    topology = Topology.of(NodePlace(row.id, row.rack, row.weight) for row in nodes
                           if row.state not in (cluster.DEAD, cluster.DRAINING)
                           and row.id not in leaves)
    for group in range(snapshot.pool_size + 1, pool_size + 1):
        voters = replicas(group, snapshot.replication_factor, topology, snapshot.hash_seed)
        yield GroupRow(group, 1, 0, tuple(sorted(voters)), voters[0])


class Place(NamedTuple):
    """Place of a partition: its group, the group's leader, and the nodes with replicas."""

    group: int
    leader: int
    voters: tuple[int, ...]


def places(snapshot: Snapshot, made: plan.Plan, planned: Snapshot,
           groups: dict[int, int]) -> dict[int, tuple[Place, Place]]:
    """Return incarnation -> places before and after a plan. ``groups`` is incarnation -> the group
    that it is in; ``planned`` the cluster after ``made``. O(groups + moves + partitions asked for).
    """
    before, after = ({row.id: row for row in each.groups} for each in (snapshot, planned))
    moved = {move.incarnation: move.to_group for move in made.moves
             if isinstance(move, plan.TopicSwitch)}
    return {incarnation: (_place(before[group]), _place(after[moved.get(incarnation, group)]))
            for incarnation, group in groups.items()}


def _place(row: GroupRow) -> Place:
    return Place(row.id, row.leader, row.voters)
