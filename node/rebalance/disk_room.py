"""The check for disk space on the nodes that receive replicas, made when a move starts.

Contract.  Functions of the plan and the observations.  A node gets a copy when the bytes in its
data directory, the bytes still to arrive by copies under way, and the copy itself are at most
``DISK_CAP_PERMILLE`` of its disk.

Theory.  A plan is made for the disks as they are after its end.  On the way a replica that leaves
is still on its disk: until it is replaced, during the time of grace, and until its space is freed.
So only past events count: a removal has freed space when the node's own report says so.
"""

from __future__ import annotations

from multiraft.wire.plans import NO_DISK_SPACE, PlannedMove, ProbedGroup
from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from node.rebalance.cluster_view import ClusterView, member_of

#: A node that receives replicas is filled up to this, in thousandths of its disk.
DISK_CAP_PERMILLE = 900


def incoming_bytes(plan: ActivePlan, view: ClusterView) -> dict[int, int]:
    """Return node -> bytes that copies under way have still to bring.  O(moves under way)."""
    found: dict[int, int] = {}
    for seq in plan.under_way:
        if plan.records[seq].phase is Phase.LEARNING:
            reserve(plan.moves[seq], view, found)
    return found


def reserve(move: PlannedMove, view: ClusterView, found: dict[int, int]) -> None:
    """Add the bytes that the move still brings to each joining node to ``found``, node -> bytes to
    come."""
    for node in move.joining:
        found[node] = found.get(node, 0) + _lacking(move, view.groups.get(move.subject), node)


def _lacking(move: PlannedMove, seen: ProbedGroup | None, node: int) -> int:
    """Return the bytes that a joining node still lacks; without an observation the planned bytes.
    """
    if seen is None:
        return move.bytes // len(move.joining)
    member = member_of(seen, node)
    return seen.bytes if member is None else member.bytes_left


def shortage(move: PlannedMove, view: ClusterView, found: dict[int, int]) -> str:
    """Return a text that names a node without space for the move's replica and the remedy; empty
    when all have space or report no size. ``found``: node -> bytes to come (``incoming_bytes``)."""
    for node in move.joining:
        disk = view.nodes[node]
        size, before = _lacking(move, view.groups.get(move.subject), node), found.get(node, 0)
        if (not disk.disk_total or (disk.disk_used + before + size) * 1000
                <= disk.disk_total * DISK_CAP_PERMILLE):
            continue
        return (
            f"{NO_DISK_SPACE}: node {node} has {disk.disk_used:,} of {disk.disk_total:,} bytes in "
            f"use, {before:,} more are on their way, this replica is {size:,}, and a disk is "
            f"filled to {DISK_CAP_PERMILLE / 10:g} %. The move starts when there is space; a "
            f"moved replica counts until its files are deleted. Free disk space on the node, "
            f"or cancel the plan: `multiraft rebalance cancel`"
        )
    return ""
