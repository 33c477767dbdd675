"""Operations on rebalance plans: apply, status, control, states of nodes, and the loads from which
plans are computed.

Contract.  As ``_operations.py``.  All are idempotent: a plan that is applied twice is carried out
once, and its controls have no second effect.
"""

from __future__ import annotations

from multiraft.client._client import ClientCore
from multiraft.client._retries import ask, ask_node
from multiraft.client._steps import Operation
from multiraft.wire import plans

#: States of a plan that has not ended.
_UNDER_WAY = ("running", "paused", "cancelling")


def plan_request(core: ClientCore, request: plans.Request) -> Operation[plans.Reply]:
    """Send one of the requests of ``multiraft.wire.plans`` and return its reply.

    Raises ``StalePlan`` when the plan does not fit the cluster or is not the present one, and
    ``PlanActive`` while another plan is carried out. Raises ``AmbiguousOutcome`` when a change was
    not answered in 10 s."""
    # A control without an id means the plan that is under way now.  Its id is filled in here, so
    # that a repetition cannot reach the next plan.
    if type(request) is plans.ControlPlan and not request.plan_id:
        status = yield from ask(core, plans.PlanStatus())
        if status.state in _UNDER_WAY:
            request = request._replace(plan_id=status.plan_id)
    return (yield from ask(core, request))


def group_loads(core: ClientCore, address: str,
                timeout_ms: int = 0) -> Operation[list[plans.GroupLoadsReply]]:
    """Return the replies of the node at ``address``, one for each page of the groups that it leads
    with their loads; ``timeout_ms`` as in ``node_status``."""
    pages: list[plans.GroupLoadsReply] = []
    first = 0
    while True:
        reply = yield from ask_node(core, plans.GroupLoads(first), address, timeout_ms)
        pages.append(reply)
        if not reply.more or not reply.groups:
            return pages
        first = reply.groups[-1].group + 1


def partition_loads(core: ClientCore, groups: tuple[int, ...], address: str,
                    timeout_ms: int = 0) -> Operation[list[plans.PartitionLoad]]:
    """Return the loads of the partitions of those ``groups`` that the node at ``address`` leads;
    ``timeout_ms`` as in ``node_status``."""
    rows: list[plans.PartitionLoad] = []
    while True:
        after = rows[-1].incarnation if rows else 0
        reply = yield from ask_node(core, plans.PartitionLoads(groups, after), address, timeout_ms)
        rows += reply.partitions
        if not reply.more or not reply.partitions:
            return rows
