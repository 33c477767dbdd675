"""End of the plan that a nemesis left open, by the command that an operator would use.

Contract.  ``end_plan`` cancels the plan that is under way and the one that waits behind it, and
returns when none is left; it returns an anomaly when that takes longer than ``BOUND_S``.

Theory.  A plan that has paused itself (a slow machine is reason enough) sends nothing to the
replicas that it has begun to create until an operator resumes it.  Such replicas are behind for as
long as the pause lasts, as promised, so the final reads cannot require that they catch up.  That a
cancelled plan ends is a promise too.
"""

from __future__ import annotations

import trio

from chaos.checkers.verdict import Anomaly
from chaos.workloads.workload_context import WorkloadContext
from multiraft.errors import MultiRaftError
from multiraft.wire.plans import CANCEL, ControlPlan, PlanStatus, PlanStatusReply

BOUND_S = 60.0
RETRY_S = 0.2
#: States in which no plan is under way, and the one in which the cancellation is already accepted.
OVER, CANCELLING = ("none", "done", "cancelled"), "cancelling"


async def end_plan(context: WorkloadContext) -> list[Anomaly]:
    """Cancel every open plan and wait for its end; return an empty list then. Return one anomaly
    when that takes longer than ``BOUND_S``, or no node answers for so long."""
    said = "no node answers whether there is one"
    with trio.move_on_after(BOUND_S):
        async with context.client() as client:
            while True:
                try:
                    status: PlanStatusReply = await client.plan_request(PlanStatus())
                    if status.state in OVER and not status.next_plan_id:
                        return []
                    said = f"{status.plan_id} is {status.state}: {status.reason or 'no reason'}"
                    if status.state not in (*OVER, CANCELLING):
                        await client.plan_request(ControlPlan(CANCEL, status.plan_id))
                except MultiRaftError as error:
                    said = f"{type(error).__name__}: {error}"
                await trio.sleep(RETRY_S)
    return [Anomaly("A28", "plan-goes-on", f"no plan should be under way {BOUND_S:.0f} s after it "
                    f"was cancelled; {said}", "", (), context.recorder.now_us())]
