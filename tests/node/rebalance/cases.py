"""Plans and commands for the tests of their execution."""

from __future__ import annotations

from multiraft.wire.plans import (
    LEADER_TRANSFER,
    REPLICA_CHANGE,
    TOPIC_SWITCH,
    PlanLimits,
    PlannedMove,
)
from node.metadata.move_phases import Phase
from node.metadata.plan_commands import ApplyPlan, ControlPlan, StepMove

CLUSTER = "ab" * 16
LIMITS = PlanLimits(10_000_000, in_per_node_max=2, out_per_node_max=2, at_once_max=4,
                    transfers_at_once_max=2, grace_ms=1_000)


def transfer(seq, group=None, old=1, new=2, **fields):
    return PlannedMove(
        **{
            **dict(
                seq=seq,
                kind=LEADER_TRANSFER,
                subject=group or seq,
                incarnation=1,
                expected=0,
                old=(old,),
                new=(new,),
                leader=0,
                bytes=0,
                reason="LEADER_SKEW",
                depends_on=(),
            ),
            **fields,
        }
    )


def change(seq, group=None, old=(1, 2, 3), new=(2, 3, 4), **fields):
    return PlannedMove(**{**dict(seq=seq, kind=REPLICA_CHANGE, subject=group or seq,
                                 incarnation=1, expected=0, old=old, new=new, leader=0, bytes=1_000,
                                 reason="OVERLOAD", depends_on=()), **fields})


def switch(seq, partition=None, old=1, new=2, **fields):
    return PlannedMove(
        **{
            **dict(
                seq=seq,
                kind=TOPIC_SWITCH,
                subject=partition or 100 + seq,
                incarnation=0,
                expected=1,
                old=(old,),
                new=(new,),
                leader=0,
                bytes=0,
                reason="OVERLOAD",
                depends_on=(),
            ),
            **fields,
        }
    )


def plan(*moves, plan_id="p1", scope="all", limits=LIMITS, **fields):
    return ApplyPlan(**{**dict(plan_id=plan_id, cluster_id=CLUSTER, scope=scope,
                               expires_ms=10_000, now_ms=1_000, limits=limits, moves=moves),
                        **fields})


def step(seq, phase, attempt=0, plan_id="p1", source=1, reason=""):
    return StepMove(plan_id, seq, attempt, int(Phase[phase]), source, reason, 2_000)


def control(action, value=0, plan_id="p1", reason="", by_safety=False):
    return ControlPlan(plan_id, action, value, reason, by_safety, 3_000)
