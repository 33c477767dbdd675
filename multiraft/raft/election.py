"""Leader election: election timer, pre-vote, vote requests and votes.

Contract.  Handlers of ``VoteRequest``, ``VoteReply`` and ``TimeoutNow``, and the election timer.
Each handler checks the message's term itself; nothing is done before it.
Theory.  Raft paper 5.2 and 5.4.1; pre-vote, thesis 9.6; leader stickiness, thesis 4.2.3.  A voter
that trusts a living leader refuses and keeps its term, so that a node that was cut off cannot
depose a leader that serves every other node (scenario S28d).  A request from that leader itself is
granted like any other: a node that asks for votes has stopped leading.  A candidate counts its own
vote, like every vote, from the moment it is durable (scenario S21).
Elsewhere.  Reasons for a follower to campaign: ``Group.rearm``.  The leader's half of a transfer:
leader_transfer.py.
"""

from __future__ import annotations

from multiraft.raft import head_recovery, joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.messages import Status, TimeoutNow, VoteReply, VoteRequest
from multiraft.raft.quorum import Vote
from multiraft.raft.status import Role
from multiraft.types import Entry, EntryKind


def on_election_timer(group: Group) -> None:
    """Campaign, unless there is no reason to any more."""
    context = group.context
    if group.nonce:
        head_recovery.speak_up(group)
        if head_recovery.is_alone(group):
            _request_votes(group, group.term + 1, pre=True, transfer=False)  # as ``_ask_around``
        return
    if group.role is Role.FOLLOWER and group.leader:
        quiet_until_ms = group.heard_ms + context.config.lease_ms
        if group.trusts_leader():
            return
        if context.now_ms < quiet_until_ms:
            group.arm_election(quiet_until_ms - context.now_ms)
            return
    if group.may_campaign():
        ask_for_pre_votes(group)
    elif group.role is not Role.FOLLOWER:
        group.become_follower(group.term, 0, "not held up")
    elif group.is_non_candidate():
        _ask_around(group)


def ask_for_pre_votes(group: Group) -> None:
    """Find out whether an election could be won, without touching any term (thesis 9.6)."""
    context = group.context
    group.enter(Role.PRE_CANDIDATE, 0)
    group.votes = {context.node: True}
    context.timers.cancel(group.id)
    group.arm_election(context.config.election_retry_ms)
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    _judge(group)


def _ask_around(group: Group) -> None:
    """Ask what became of the group, as a pre-vote whose answers count for nothing: it changes
    nothing, a leader that hears it knows who is here, or says that nobody waits for this one."""
    config = group.context.config
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    group.arm_election(config.bystander_retry_ms)


def campaign(group: Group, transfer: bool = False) -> None:
    """Ask for real votes in a new term; the requests wait until term and own vote are durable."""
    context = group.context
    group.set_hard_state(group.term + 1, context.node)
    group.enter(Role.CANDIDATE, 0, "transfer" if transfer else "")
    context.timers.cancel(group.id)
    group.arm_election(context.config.election_retry_ms)
    _request_votes(group, group.term, pre=False, transfer=transfer)


def _request_votes(group: Group, term: int, pre: bool, transfer: bool) -> None:
    log = group.log
    request = VoteRequest(group.id, group.incarnation, term, log.last_index, log.last_term, pre,
                          transfer)
    for node in group.configuration.members():
        if node != group.context.node and joint_quorum.is_voter(group.configuration, node):
            group.send(node, request)
    unknown_leader = group.unknown_leader() if pre else 0
    if unknown_leader:
        group.send(
            unknown_leader, request
        )  # it leads, and will say that this is no member any more


def on_hard_state_durable(group: Group) -> None:
    """Term and vote are on disk: a candidate's vote for itself counts from now on."""
    if group.role is Role.CANDIDATE:
        group.votes[group.context.node] = True
        _judge(group)


def on_vote_request(group: Group, sender: int, request: VoteRequest) -> None:
    """Grant or refuse (paper 5.2, 5.4.1).  A refusal out of trust leaves the term alone."""
    trusting = (not request.transfer and group.leader != sender and group.trusts_leader())
    if group.quarantined:
        group.candidate = sender  # the repairer asks it, should the log name nobody who is left
    if group.quarantined or trusting or group.is_below_vote_barrier():
        _answer(group, sender, request, False)
    elif request.pre:
        _answer(group, sender, request, request.term > group.term
                and group.log.up_to_date(request.last_index, request.last_term))
    else:
        _vote(group, sender, request)


def _vote(group: Group, sender: int, request: VoteRequest) -> None:
    """A real vote, in a term of its own: once, for a log that is not behind."""
    new_term = request.term > group.term
    free = new_term or (request.term == group.term and group.vote in (0, sender)
                        and group.leader == 0)
    granted = free and group.log.up_to_date(request.last_index, request.last_term)
    if new_term:
        group.become_follower(request.term, 0, vote=sender if granted else 0)
    elif granted and group.vote == 0:
        group.set_hard_state(group.term, sender)
    if granted:
        group.context.timers.cancel(group.id)
        if group.may_campaign():
            group.arm_election(group.context.config.election_retry_ms)
    _answer(group, sender, request, granted)


def _answer(group: Group, sender: int, request: VoteRequest, granted: bool) -> None:
    term = request.term if granted else group.term
    group.send(sender, VoteReply(group.id, group.incarnation, term, granted, request.pre))


def on_vote_reply(group: Group, sender: int, reply: VoteReply) -> None:
    """Count a vote for the campaign that is running; everything else is stale."""
    if reply.term > group.term and not (reply.pre and reply.granted):
        group.become_follower(reply.term, 0, "higher term")
        return
    if reply.pre != (group.role is Role.PRE_CANDIDATE):
        return
    if group.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        return
    if reply.granted and reply.term != group.term + reply.pre:
        return
    group.votes[sender] = reply.granted or group.votes.get(sender, False)
    _judge(group)


def _judge(group: Group) -> None:
    """Act on the votes so far."""
    outcome = joint_quorum.tally(group.configuration, group.votes)
    if outcome is Vote.LOST:
        group.become_follower(group.term, 0, "lost the election")
        group.context.timers.cancel(group.id)
        if group.may_campaign():
            group.arm_election(group.context.config.election_retry_ms)
    elif outcome is Vote.WON and group.role is Role.PRE_CANDIDATE:
        campaign(group)
    elif outcome is Vote.WON:
        _become_leader(group)


def _become_leader(group: Group) -> None:
    """Take office and append the first entry of the term (paper 5.4.2, 8: only by committing it
    does a leader learn what is committed)."""
    assert group.role is Role.CANDIDATE, f"group {group.id}: {group.role.name} won"
    assert group.hard_state_is_durable(), f"group {group.id} won before its vote was durable"
    context = group.context
    if not group.has_quorum_support():
        group.become_follower(group.term, 0, "won, but not held up")
        return
    context.timers.cancel(group.id)
    next_index = group.log.last_index + 1
    for node in group.configuration.members():
        if node != context.node:
            group.add_progress(node, 0)
    group.term_start = next_index
    group.conf_change_open = (bool(group.configuration.outgoing)
                      or group.configuration_index > group.log.commit)
    group.enter(Role.LEADER, context.node)
    group.append(Entry(EntryKind.NOOP, group.id, group.log_incarnation, group.term, next_index))
    group.wake()


# ---- leadership transfer -----------------------------------------------------------------------


def on_timeout_now(group: Group, sender: int, message: TimeoutNow) -> None:
    """Campaign at once, because the leader transfers its leadership to this replica (thesis
    3.10)."""
    if message.term != group.term or group.leader != sender:
        return
    if group.may_campaign():
        campaign(group, transfer=True)
    elif group.is_frozen():  # a leader that has nothing to send has not heard of it
        group.reply_append(sender, Status.QUARANTINED)
