"""Classification of requests that change the cluster, and of outcomes after which a change may have
happened.

Contract.  Each operation may be repeated after an answer that was lost or AMBIGUOUS, and the client
repeats it until it is answered or its time limit is reached (``_retries.py``); ``docs/protocol.md``
has the table.  A request for which ``changes`` is true ends as ``AmbiguousOutcome`` at that limit.
"""

from __future__ import annotations

from multiraft.client._network import Lost
from multiraft.wire import messages, nodes, placements, plans, settings, sinks
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import exception_for
from multiraft.wire.members import GroupMembers, RecoverGroup
from multiraft.wire.pool import GrowPool

_CHANGES = frozenset((
    messages.CreateTopic, messages.DeleteTopic, messages.AddPartitions, messages.DeleteRecords,
    messages.TransferLeadership, RecoverGroup,
    nodes.JoinCluster, nodes.RemoveNode, nodes.ScrubNode, nodes.ControlCleaner,
    placements.SwitchPartition,
    plans.ApplyPlan, plans.ControlPlan, plans.SetNodeState,
    sinks.BeginTransaction, sinks.CommitTransaction, sinks.AbortTransaction))


def changes(request: messages.Request) -> bool:
    """Return True if the request changes the cluster.  O(1)."""
    if type(request) is GroupMembers:
        return bool(request.voters)
    if type(request) is GrowPool:
        return not request.dry_run
    if type(request) is settings.AlterSettings:
        return not request.dry_run
    return type(request) in _CHANGES


def may_have_happened(outcome: ResponseEvent | Lost) -> bool:
    """Return True if a request that was not acknowledged may have been carried out."""
    if isinstance(outcome, Lost):
        return outcome.sent
    return not exception_for(outcome.code, outcome.error).definite
