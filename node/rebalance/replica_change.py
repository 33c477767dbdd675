"""Next actions of a replica change: learner, catch-up, joint configuration, grace, removal.

Contract.  Part of the scheduler: a function of the move's phase and the group's configuration.
Before JOINT is recorded the change can be undone by removing the learners that it added, since it
has changed nothing else.  From then on it can only be completed, also when the plan is cancelled.
One exception: a joining node may be lost before its group received the request; then a cancelled
move has failed.

Theory.  Consensus guarantees the safety: one entry enters the joint configuration, and the group's
leader leaves it, also after a change of leader (``multiraft.raft.conf_change``).  A voter is never
removed before its successor counts, because one entry does both.  A replaced voter stays as a
learner for the time of grace, in step with the group, so that the change can be reverted quickly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from multiraft.types import METADATA_GROUP
from multiraft.wire.plans import PlannedMove, ProbedGroup
from node.metadata.move_phases import ATTEMPTS_MAX, Phase
from node.metadata.plan_table import CANCELLING, RUNNING, ActivePlan, Record
from node.rebalance.actions import Change, Next, StepTo, Transfer
from node.rebalance.cluster_view import ClusterView, member_of
from placement.throttle import STILL_MS_MAX

#: A learner that lacks at most this many entries may become a voter; the leader decides in the end
#: (``promotion_lag_entries_max``).
LAG_ENTRIES_MAX = 1_000
#: It may lack at most this many bytes, because the joint majority waits for them.
LAG_BYTES_MAX = 8 << 20
#: Before a change that removes the leader, the leader is asked to transfer leadership for so long,
#: in milliseconds.
TRANSFER_MS = 3_000
#: Pause before the second attempt, doubled for each further one, in milliseconds.
RETRY_MS = 5_000


def next_step(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
          result: Next) -> None:
    """Add the next action of a move under way to ``result``, or the reason for which the move
    waits. A request to a group's leader adds both."""
    seen = view.groups.get(move.subject)
    if seen is None:
        result.waits[move.seq] = view.unreachable.get(move.subject, "its leader has not answered")
        return
    found = _PHASES[record.phase](plan, move, record, view, seen)
    if isinstance(found, str):
        result.waits[move.seq] = found
        return
    result.actions.append(found)
    if isinstance(found, Change):
        result.waits[move.seq] = "a change of its members is asked for"
    elif isinstance(found, Transfer):
        result.waits[move.seq] = f"node {found.to} is asked to lead"


def _to(move: PlannedMove, record: Record, phase: Phase, reason: str = "") -> StepTo:
    return StepTo(move.seq, record.attempt, phase, reason or record.reason)


def _change(move: PlannedMove, view: ClusterView, seen: ProbedGroup, voters: tuple[int, ...],
            learners: Iterable[int]) -> Change:
    return Change(move.seq, move.subject, view.leaders[move.subject], tuple(voters),
                  tuple(sorted({*learners})), seen.conf_index)


def _is_through(move: PlannedMove, seen: ProbedGroup) -> bool:
    return {*seen.voters} == {*move.new} and not seen.outgoing and not seen.is_open


# ---- LEARNING -----------------------------------------------------------------------------------

def _learning(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
              seen: ProbedGroup) -> StepTo | Change | str:
    if _is_through(move, seen):
        return _to(move, record, Phase.GRACE)
    if seen.outgoing and {*seen.voters} == {*move.new}:
        return _to(move, record, Phase.JOINT)
    if seen.incarnation != move.incarnation:
        return _to(move, record, Phase.FAILED, f"the group was recovered by force, it is in "
                   f"incarnation {seen.incarnation}")
    if seen.is_open:
        return f"the change of members at index {seen.conf_index} is not committed yet"
    if {*seen.voters} != {*move.old}:
        return _to(move, record, Phase.UNDOING, "somebody else changed the voters")
    if plan.state == CANCELLING:
        return _to(move, record, Phase.UNDOING, plan.reason)
    missing = [node for node in move.joining if node not in seen.learners]
    lost = [node for node in move.joining if not view.is_up(node)]
    stalled_ms = view.stalled_ms.get(move.subject, 0)
    if stalled_ms > STILL_MS_MAX and plan.state == RUNNING:
        whom = lost or move.joining
        return _to(move, record, Phase.UNDOING, f"{_named(whom)} got nothing for "
                   f"{stalled_ms // 1000} s")
    if plan.state != RUNNING:
        return f"the plan is {plan.state}: {plan.reason}"
    if any(view.is_draining(node) for node in move.joining):  # else it would have to leave again
        return _to(move, record, Phase.UNDOING, view.exclusion(move.joining))
    if lost:
        return f"{_named_with_verb(lost)} not up"
    if missing:
        return _change(move, view, seen, seen.voters, (*seen.learners, *missing))
    lacking = _lacking(move, seen)
    return lacking or _to(move, record, Phase.JOINT)


def _lacking(move: PlannedMove, seen: ProbedGroup) -> str:
    """Return a text that says how many bytes and entries a joining replica still lacks; empty when
    all joining replicas lack few enough to vote."""
    for node in move.joining:
        member = member_of(seen, node)
        if member is None:
            return f"node {node} receives no entries yet"
        entries = seen.last_index - member.match
        # A learner needs at least the entry that added it: before that its node does not know that
        # it is a member, and grants no vote.
        if (entries > LAG_ENTRIES_MAX or member.bytes_left > LAG_BYTES_MAX
                or member.match < seen.conf_index or member.state != "replicate"):
            return (f"node {node} lacks {member.bytes_left:,} bytes in {entries:,} entries "
                    f"({member.state})")
    return ""


# ---- JOINT --------------------------------------------------------------------------------------

def _joint(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
           seen: ProbedGroup) -> StepTo | Change | Transfer | str:
    if _is_through(move, seen):
        return _to(move, record, Phase.GRACE)
    if seen.outgoing:
        return "both majorities have to commit"
    if seen.is_open:
        return f"the change of members at index {seen.conf_index} is not committed yet"
    if {*seen.voters} != {*move.old}:
        return _to(move, record, Phase.FAILED, "somebody else changed the voters")
    lost = [node for node in move.joining if not view.is_up(node)]
    if lost and plan.state == CANCELLING:
        return _given_up(plan, move, record, view, seen, lost)
    missing = [node for node in move.joining if node not in seen.learners]
    if missing:  # removed by another request: they must return, JOINT cannot be undone
        return _change(move, view, seen, seen.voters, (*seen.learners, *missing))
    lacking = _lacking(move, seen) or _quorum_shortage(move, view)
    if lacking:
        return lacking
    successor = _successor(move, view, seen)
    if successor and view.waited_ms.get(move.seq, 0) < TRANSFER_MS:
        if seen.transferee:
            return f"it is being handed to node {seen.transferee}"
        return Transfer(move.seq, move.subject, view.leaders[move.subject], successor)
    kept = [node for node in move.leaving if view.is_up(node)] if plan.limits.grace_ms else []
    others = [node for node in seen.learners if node not in move.joining]
    return _change(move, view, seen, preference_order(move, seen.voters), (*others, *kept))


def _given_up(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
              seen: ProbedGroup, lost: list[int]) -> StepTo | Change:
    """Return the change that removes the learners of a cancelled move whose joining nodes are lost,
    or the step to FAILED when none is left.

    No joining node votes yet, and a lost one may never return. Without its learners the group
    refuses an earlier request that arrives late."""
    added = [node for node in seen.learners if node in move.joining]
    if added and move.subject != METADATA_GROUP:
        return _change(move, view, seen, seen.voters,
                       (node for node in seen.learners if node not in added))
    return _to(move, record, Phase.FAILED, f"{_named_with_verb(lost)} not up: {plan.reason}")


def _quorum_shortage(move: PlannedMove, view: ClusterView) -> str:
    """Return the reason why the group would have no majority with its new voters; empty when it
    would.  The old voters have a majority, since the group has a leader."""
    lost = [node for node in move.new if not view.is_up(node)]
    if 2 * len(lost) < len(move.new):
        return ""
    return f"{_named_with_verb(lost)} not up: the new voters would have no majority"


def _successor(move: PlannedMove, view: ClusterView, seen: ProbedGroup) -> int:
    """Return the node that takes over from a leader that leaves the group. 0 = the leader stays, or
    no voter does."""
    if view.leaders[move.subject] not in move.leaving:
        return 0
    staying = [node for node in seen.voters if node in move.new and view.is_up(node)]
    staying = [node for node in staying if not view.exclusion((node,))] or staying
    return move.leader if move.leader in staying else next(iter(staying), 0)


def preference_order(move: PlannedMove, voters: tuple[int, ...]) -> tuple[int, ...]:
    """Return the new voters in the order of preference: the chosen leader first, then the old
    order, with joining nodes in the places of leaving ones."""
    joining = list(move.joining)
    order = [node if node in move.new else joining.pop(0) if joining else 0 for node in voters]
    order = [node for node in (*order, *joining) if node]
    if move.leader:
        order = [move.leader, *(node for node in order if node != move.leader)]
    return tuple(order)


# ---- GRACE --------------------------------------------------------------------------------------

def _grace(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
           seen: ProbedGroup) -> StepTo | Change | Transfer | str:
    if seen.is_open or seen.outgoing:
        return f"the change of members at index {seen.conf_index} is not committed yet"
    if {*seen.voters} != {*move.new}:
        return _to(move, record, Phase.DONE, "the voters were changed again since")
    elapsed_ms = view.waited_ms.get(move.seq, 0)
    leader = view.leaders[move.subject]
    if (move.leader not in (0, leader) and view.is_up(move.leader) and not seen.transferee
            and not view.exclusion((move.leader,)) and elapsed_ms < TRANSFER_MS):
        return Transfer(move.seq, move.subject, leader, move.leader)
    kept = [node for node in seen.learners if node in move.leaving]
    # every node is at least a learner of the metadata group
    if not kept or move.subject == METADATA_GROUP:
        return _to(move, record, Phase.DONE)
    if elapsed_ms < plan.limits.grace_ms and plan.state != CANCELLING:
        return (f"{_named_with_verb(kept)} kept in step for another "
                f"{(plan.limits.grace_ms - elapsed_ms) / 1000:.1f} s")
    return _change(move, view, seen, seen.voters,
                   (node for node in seen.learners if node not in kept))


# ---- UNDOING ------------------------------------------------------------------------------------

def _undoing(plan: ActivePlan, move: PlannedMove, record: Record, view: ClusterView,
             seen: ProbedGroup) -> StepTo | Change | str:
    if _is_through(move, seen):
        return _to(move, record, Phase.DONE, "somebody else finished it")
    if seen.is_open or seen.outgoing:
        return f"the change of members at index {seen.conf_index} is not committed yet"
    added = [node for node in seen.learners if node in move.joining]
    if added and move.subject != METADATA_GROUP:
        return _change(move, view, seen, seen.voters,
                       (node for node in seen.learners if node not in added))
    if plan.state == CANCELLING:
        return _to(move, record, Phase.CANCELLED)
    again = record.attempt + 1
    if again == ATTEMPTS_MAX:
        return _to(move, record, Phase.FAILED)
    pause_ms = RETRY_MS << record.attempt
    if view.waited_ms.get(move.seq, 0) < pause_ms:
        return f"tried again after {pause_ms / 1000:g} s: {record.reason}"
    return StepTo(move.seq, again, Phase.PENDING, record.reason)


def _named(nodes: Collection[int]) -> str:
    listed = ", ".join(map(str, nodes))
    return f"node {listed}" if len(nodes) == 1 else f"nodes {listed}"


def _named_with_verb(nodes: Collection[int]) -> str:
    return f"{_named(nodes)} {'is' if len(nodes) == 1 else 'are'}"


_PHASES = {Phase.LEARNING: _learning, Phase.JOINT: _joint, Phase.GRACE: _grace,
           Phase.UNDOING: _undoing}
