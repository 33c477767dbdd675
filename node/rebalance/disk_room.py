"""Is there room for a replica on the disk of the node that shall get it?  Asked when a move begins.

Contract.  Functions of the plan and what is observed.  A node gets a copy when what its data
directory has, what copies that are under way have still to bring, and the copy itself are no more
than ``DISK_CAP_PERMILLE`` of its disk.

Theory.  A plan is made for the disks as they are when it is through; on the way to there a replica
that leaves is still on its disk: until it is replaced, for the time of grace, and for as long as
nothing gives its bytes back.  So nothing is reckoned with that has not happened: a removal has made
room when the node's own figure says so.
"""

from __future__ import annotations

from multiraft.wire.plans import NO_ROOM, LookedGroup, PlannedMove
from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from node.rebalance.cluster_view import World, member_of

#: A node that receives replicas is not filled above this, in thousandths of its disk.
DISK_CAP_PERMILLE = 900


def coming(plan: ActivePlan, world: World) -> dict[int, int]:
    """Node -> bytes that copies under way have still to bring there.  O(moves under way)."""
    found: dict[int, int] = {}
    for seq in plan.under_way:
        if plan.records[seq].phase is Phase.LEARNING:
            take(plan.moves[seq], world, found)
    return found


def take(move: PlannedMove, world: World, found: dict[int, int]) -> None:
    """Add what the move brings to what is coming."""
    for node in move.joining:
        found[node] = found.get(node, 0) + _lacking(move, world.groups.get(move.subject), node)


def _lacking(move: PlannedMove, seen: LookedGroup | None, node: int) -> int:
    """Bytes that a joining node has still to get; what was planned when nobody can say."""
    if seen is None:
        return move.bytes // len(move.joining)
    member = member_of(seen, node)
    return seen.bytes if member is None else member.bytes_left


def shortage(move: PlannedMove, world: World, found: dict[int, int]) -> str:
    """Which node has no room for the move's replica now, and what helps; empty when all have.
    ``found``: what is ``coming``."""
    for node in move.joining:
        disk = world.nodes[node]
        size, before = _lacking(move, world.groups.get(move.subject), node), found.get(node, 0)
        if (not disk.disk_total or (disk.disk_used + before + size) * 1000
                <= disk.disk_total * DISK_CAP_PERMILLE):
            continue
        return (f"{NO_ROOM}: node {node} has {disk.disk_used:,} of {disk.disk_total:,} bytes in "
                f"use, {before:,} more are on their way, this replica is {size:,}, and a disk is "
                f"filled to {DISK_CAP_PERMILLE / 10:g} %. Begins when there is room: what left the "
                f"node counts until it is off its disk. Make some there, or end the plan: "
                f"`multiraft rebalance cancel`")
    return ""
