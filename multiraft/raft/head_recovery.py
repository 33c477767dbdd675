"""Head recovery: readmission of a replica that may have lost log entries, a term or a vote.

Contract.  A *recovering* replica is quarantined: it neither votes nor leads, and its
acknowledgements do not count.  But it follows: it accepts a leader's entries, and answers
``RECOVERING_HEAD`` with the index up to which it has them, so that the leader can replicate to it.
With each answer, and at intervals if no append arrives, it sends a ``HeadRecoveryRequest``, until
the leader sends a ``HeadRecoveryGrant``.

Theory.  The replica may have forgotten entries that it acknowledged, a term that it was in, and a
vote that it gave.  When leader L of term T receives the request, it stops counting the replica and
proposes a barrier entry.  When that entry is committed, a majority M without the replica was in
term T *after* everything that was forgotten had happened.  (M need only have one member of every
majority; see ``_is_barrier_held``.)  A candidate elected in a later term with the forgotten vote
needs a majority.  A member of both majorities refuses that candidate, because at the time of the
forgotten vote its log could not have the barrier entry.  So the forgotten vote elects no leader,
and every entry committed by a forgotten acknowledgement is in the log of L below the barrier.  A
replica that holds L's log up to the barrier, and does not vote again in T, is equivalent to one
that forgot nothing.  The full argument and the rejected alternatives: docs/decisions/0009.

Invariants.  A leader ends a recovery only by an entry that it proposed after the request with that
nonce: entries of before may be committed by what the replica forgot.  Of a recovering replica's
acknowledgements only those at or above the barrier count; lower ones may be from before.
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.messages import AppendReply, HeadRecoveryGrant, HeadRecoveryRequest, Status
from multiraft.raft.progress import Progress
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.replica_health import Barrier
from multiraft.types import Entry, EntryKind

#: Nonces are drawn below this, so that none is drawn twice.
NONCES = 1 << 62


# ---- recovering replica ------------------------------------------------------------------------


def begin(group: Group) -> None:
    """Begin head recovery with a new nonce: follow without being counted, and send the first
    request to the leader.

    Entries on disk behind the known end of the log are removed first, because they may become
    readable again."""
    assert group.health.why, f"group {group.id} is not quarantined"
    if not group.health.begin_recovery(1 + group.context.rng.randrange(NONCES)):
        return  # no longer a member, since the decision to begin
    # A truncation at the end of the log is written although the log is not known to have more
    # entries.
    group.log.drop_from = group.log.drop_from or group.log.staged_index + 1
    group.emit("head_recovery_started", group.log.last_index)
    group.touch()
    send_recovery_request(group)


def send_recovery_request(group: Group) -> None:
    """Send the recovery request to the leader, if it is known and connected, and arm the timer that
    repeats it.  Do nothing once the granted barrier is reached.

    A quiesced group sends no append that could be answered with it.  A replica without a trusted
    leader asks what became of the group in the same rhythm (``election.on_election_timer``),
    because the group may exist without it."""
    if group.health.is_recovered:
        return
    context = group.context
    if group.leader and group.leader in context.support.connections:
        group.send(group.leader, _request(group))
    pause_ms = (
        context.config.non_candidate_retry_ms
        if knows_no_leader(group)
        else context.config.retransmit_ms
    )
    context.timers.arm(group.id, context.now_ms + pause_ms)


def knows_no_leader(group: Group) -> bool:
    """True if there is no trusted leader to send the request to: the known one may be gone, and its
    successor may have removed this replica."""
    return not group.trusts_leader() and not group.health.is_recovered


def may_accept(group: Group, sender: int) -> bool:
    """True if entries of ``sender`` are accepted despite the quarantine, because head recovery is
    under way.  Send the request again if the granted barrier is not reached."""
    if group.health.is_frozen:
        return False
    if not group.health.is_recovered:
        group.send(sender, _request(group))
    return True


def _request(group: Group) -> HeadRecoveryRequest:
    return HeadRecoveryRequest(group.id, group.incarnation, group.term, group.health.nonce)


def on_grant(group: Group, sender: int, recovery_grant: HeadRecoveryGrant) -> None:
    """Store the leader's grant, which names the barrier entry, and check the barrier at once.
    Ignore a grant for another term, leader or nonce."""
    # A grant for another term, leader or nonce was decided without knowledge of this loss.
    if (recovery_grant.term == group.term and sender == group.leader
            and group.health.grant(recovery_grant.nonce,
                                   Barrier(recovery_grant.term, recovery_grant.index))):
        check_barrier(group)


def check_barrier(group: Group) -> None:
    """Complete the recovery if the durable log has reached the granted barrier; otherwise do
    nothing.

    A replica without a vote in this term votes for its leader.  The driver then records the end of
    the quarantine durably."""
    # Verified and durable: the replica counts again only with entries that a second crash cannot
    # take.
    if group.health.reach_barrier(group.term, min(group.matched_index, group.log.durable_index)):
        if group.vote == 0:
            # The replica may have voted in this term for another candidate, and must not vote
            # again.  A vote for the elected leader changes no outcome.
            group.set_hard_state(group.term, group.leader)
        group.emit("head_recovered", group.health.barrier.index)
        group.touch()


# ---- leader ------------------------------------------------------------------------------------


def on_request(group: Group, sender: int, request: HeadRecoveryRequest) -> None:
    """Stop counting a member that asks for head recovery, and propose its barrier entry.

    If the member repeats a request with a known nonce, only send the grant again once the barrier
    is held.  A later term makes this leader step down; an earlier one is ignored."""
    member = group.progress[sender]
    if request.term > group.term:
        group.become_follower(request.term, 0, "higher term")
        return
    if request.term < group.term:
        return
    # The same recovery asks again: its grant may be lost.  A new nonce is a new recovery, with a
    # barrier proposed after it.
    if request.nonce == member.recovery_nonce:
        if _is_barrier_held(group, member):
            _send_grant(group, member)
        return
    group.recovering_count += member.recovery_nonce == 0
    member.recovery_nonce = request.nonce
    # Late replies may acknowledge entries that the member has lost since.
    group.forget_replies_of(member)
    # Proposed after the request: when it is committed, its majority was in this term after the
    # loss.
    member.barrier = group.log.last_index + 1
    member.match = 0  # it may have forgotten what it acknowledged
    member.commit_known = 0
    member.retreat()
    group.emit("member_changed", member.node, "recovering_head")
    entry = Entry(EntryKind.NOOP, group.id, group.log_incarnation, group.term, member.barrier)
    group.append(entry)
    group.uncommitted_bytes += framed_bytes(entry)
    group.unquiesce()


def accept_reply(group: Group, member: Progress, reply: AppendReply) -> bool:
    """True if a reply may move the member's progress; a reply other than ``RECOVERING_HEAD`` that
    reaches the barrier ends the recovery.

    A reply with OK below the barrier answers an append from after the request
    (``Progress.added_at_round``).  So the request was an outdated one that arrived late, and the
    member still has to receive entries up to the barrier."""
    if reply.status == Status.RECOVERING_HEAD or reply.match < member.barrier:
        return member.recovery_nonce != 0
    member.recovery_nonce = 0
    group.recovering_count -= 1
    group.emit("member_changed", member.node, "head_recovered")
    return True


def _is_barrier_held(group: Group, member: Progress) -> bool:
    """True if every majority has a member that holds the barrier entry and is not recovering
    itself.

    A committed entry satisfies that.  Of an even number of voters half are enough; of two, the
    leader alone."""
    return (group.log.commit >= member.barrier or joint_quorum.in_every_majority(
        group.configuration, lambda node: group.durable_of(node) >= member.barrier))


def send_due_grants(group: Group) -> None:
    """Send grants to the members whose barrier the commit index has passed."""
    for member in group.progress.values():
        if member.recovery_nonce and group.log.commit >= member.barrier:
            _send_grant(group, member)


def _send_grant(group: Group, member: Progress) -> None:
    group.send(
        member.node,
        HeadRecoveryGrant(
            group.id, group.incarnation, group.term, member.recovery_nonce, member.barrier
        ),
    )
