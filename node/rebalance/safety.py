"""Rules for pausing and resuming a plan.

Contract.  ``pause_reason`` names the first reason to pause, empty when there is none; a function of
the plan and the observations.  A plan that was paused for such a reason resumes by itself when
there has been none for ``CALM_MS``; a plan that an operator paused does not.  ``Monitor`` decides
which of the two is due.

Reasons to pause: a group without a majority; a node that is down, so that its groups lack a
replica; a damaged replica that votes (a learner may be the one that a move brings, and would wait
for its entries until the end of the pause); a disk above the cap on a node that receives; slow
appends.  A repair exists because a node is down and replicas are missing, so these two reasons do
not pause it.  Dead nodes that a plan empties pause no plan.

Theory.  Slow appends are the one reason that the plan may cure: moves relieve an overloaded
cluster.  A paused plan copies nothing.  When appends are still slow after ``SLOW_PATIENCE_MS`` of
pause, the plan is not their cause; it resumes, and ignores the reason until appends have been fast
once.
"""

from __future__ import annotations

from collections.abc import Container

from multiraft.wire.plans import PAUSE, RESUME
from node.metadata.move_phases import Phase
from node.metadata.plan_table import PAUSED, REPAIR, RUNNING, SLOW_COMMITS, ActivePlan
from node.rebalance.cluster_view import UP, ClusterView
from node.rebalance.disk_room import DISK_CAP_PERMILLE

#: Time without a reason to pause after which a plan resumes, in milliseconds.
CALM_MS = 3_000
#: A node that is silent for less than this is late, not down, in milliseconds: leases expire after
#: 600, and a busy machine answers late at times.
LATE_MS = 2_000
#: Limit of a pause for slow appends while they stay slow, in milliseconds: some windows of the
#: latency measurement.
SLOW_PATIENCE_MS = 20_000
#: Reason of moves whose leaving node is dead.
REPAIR_DEAD = "REPAIR_DEAD"


class Monitor:
    """Observation times of one controller: since when nodes are silent and reasons persist.  A new
    controller starts without any."""

    def __init__(self) -> None:
        self._plan_id = ""
        self._begin(None)

    def _begin(self, plan: ActivePlan | None) -> None:
        self._plan_id = plan.plan_id if plan is not None else ""
        self._calm_since_ms: int | None = None
        self._slow_since_ms: int | None = None  # start of the pause for slow appends
        self._is_other_cause = False  # appends are slow without the plan too
        self._silent_since_ms: dict[int, int] = {}  # node -> since when it is not up

    @property
    def is_cause(self) -> bool:
        """True if the plan may be the cause of slow appends: they did not stay slow while it was
        paused."""
        return not self._is_other_cause

    def judge(self, plan: ActivePlan, view: ClusterView, now_ms: int) -> tuple[str, str] | None:
        """Return (``PAUSE``, reason) or (``RESUME``, "") when that is due; None = no change.
        O(nodes + moves)."""
        if plan.plan_id != self._plan_id:
            self._begin(plan)
        self._update_cause(plan, view, now_ms)
        self._silent_since_ms = {node.id: self._silent_since_ms.get(node.id, now_ms)
                                 for node in view.nodes.values() if node.state != UP}
        late = {node for node, since_ms in self._silent_since_ms.items()
                if now_ms - since_ms < LATE_MS}
        why = pause_reason(plan, view, late, slow_too=not self._is_other_cause)
        if why:
            self._calm_since_ms = None
            known = plan.state == PAUSED and plan.reason.split(":")[0] == why.split(":")[0]
            is_due = plan.state == RUNNING or (plan.state == PAUSED and plan.by_safety
                                               and not known)
            return (PAUSE, why) if is_due else None
        if self._calm_since_ms is None:
            self._calm_since_ms = now_ms
        if (plan.state == PAUSED and plan.by_safety
                and now_ms - self._calm_since_ms >= CALM_MS):
            return RESUME, ""
        return None

    def _update_cause(self, plan: ActivePlan, view: ClusterView, now_ms: int) -> None:
        """Record that the plan is not the cause once appends stayed slow for ``SLOW_PATIENCE_MS``
        of a pause for them; forget that when appends are fast."""
        if not _slow_appends(plan, view):
            self._slow_since_ms, self._is_other_cause = None, False
        elif plan.state != PAUSED or not plan.reason.startswith(SLOW_COMMITS):
            self._slow_since_ms = None
        elif self._slow_since_ms is None:
            self._slow_since_ms = now_ms
        elif now_ms - self._slow_since_ms >= SLOW_PATIENCE_MS:
            self._is_other_cause = True


def pause_reason(plan: ActivePlan, view: ClusterView, late: Container[int] = (),
           slow_too: bool = True) -> str:
    """Return the reason why the plan should pause; empty when it need not.

    ``late``: nodes that are silent too briefly to count as down; ``slow_too``: also check appends.
    O(nodes + moves).
    """
    dead = abandoned_nodes(plan)
    if view.without_quorum:
        groups = ", ".join(map(str, view.without_quorum[:8]))
        return f"NO_QUORUM: group {groups} has no majority of its voters"
    if plan.scope != REPAIR:
        for node in view.nodes.values():
            if node.state != UP and node.id not in dead and node.id not in late:
                return f"NODE_DOWN: node {node.id} is {node.state}"
            if node.damaged:
                return f"UNDER_REPLICATED: node {node.id} repairs {node.damaged} replicas"
    return _full_disk(plan, view) or (_slow_appends(plan, view) if slow_too else "")


def abandoned_nodes(plan: ActivePlan) -> set[int]:
    """Return the nodes that moves with the reason ``REPAIR_DEAD`` take replicas from: they are
    dead, and pause no plan."""
    return {node for move in plan.moves.values() if move.reason == REPAIR_DEAD
            for node in move.leaving}


def _full_disk(plan: ActivePlan, view: ClusterView) -> str:
    receiving = {node for seq, record in plan.records.items() if not record.has_ended
                 and record.phase in (Phase.PENDING, Phase.LEARNING)
                 for node in plan.moves[seq].joining}
    for node in view.nodes.values():
        if node.disk_full:
            return f"DISK_FULL: node {node.id} has no room left"
        if node.id in receiving and node.disk_permille > DISK_CAP_PERMILLE:
            return (f"DISK_FULL: the disk of node {node.id} is filled to "
                    f"{node.disk_permille / 10:g} %, it may be {DISK_CAP_PERMILLE / 10:g} %")
    return ""


def _slow_appends(plan: ActivePlan, view: ClusterView) -> str:
    bound = plan.limits.commit_ms_max
    for node in view.nodes.values():
        if bound and node.commit_ms > bound:
            return (f"{SLOW_COMMITS}: one append in a hundred of node {node.id} takes more than "
                    f"{bound} ms")
    return ""
