"""Elections: who asks, who grants, who wins.

Contract.  Handlers of ``VoteRequest``, ``VoteReply`` and ``TimeoutNow``, and the election timer.
Each handler looks at the message's term itself; nothing happens before it.
Theory.  Raft paper 5.2 and 5.4.1; pre-vote, thesis 9.6; leader stickiness, thesis 4.2.3; transfer,
thesis 3.10.  A voter that trusts a living leader refuses and keeps its term, so that a node that
was cut off cannot depose a leader who serves everybody else (scenario S28d).  The leader itself is
the exception: whoever asks for votes does not lead any more.  A candidate counts its own vote like
any other, when it is durable (scenario S21).
Elsewhere.  Why a follower campaigns at all: ``Group.rearm``.
"""

from __future__ import annotations

from multiraft import doubt, membership
from multiraft.group import Group
from multiraft.messages import Status, TimeoutNow, VoteReply, VoteRequest
from multiraft.quorum import Vote
from multiraft.status import Role
from multiraft.types import Entry, EntryKind


def on_election_timer(group: Group) -> None:
    """Campaign, unless there is no reason to any more."""
    host = group.host
    if group.episode:
        doubt.speak_up(group)
        if doubt.is_alone(group):
            _request_votes(group, group.term + 1, pre=True, transfer=False)  # as ``_ask_around``
        return
    if group.role is Role.FOLLOWER and group.leader:
        quiet_until_ms = group.heard_ms + host.config.lease_ms
        if group.trusts_leader():
            return
        if host.now_ms < quiet_until_ms:
            group.arm_election(quiet_until_ms - host.now_ms)
            return
    if group.may_campaign():
        ask_for_pre_votes(group)
    elif group.role is not Role.FOLLOWER:
        group.become_follower(group.term, 0, "not held up")
    elif group.is_bystander():
        _ask_around(group)


def ask_for_pre_votes(group: Group) -> None:
    """Find out whether an election could be won, without touching any term (thesis 9.6)."""
    host = group.host
    group.enter(Role.PRE_CANDIDATE, 0)
    group.votes = {host.node: True}
    host.timers.cancel(group.id)
    group.arm_election(host.config.election_retry_ms)
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    _judge(group)


def _ask_around(group: Group) -> None:
    """Ask what became of the group, as a pre-vote whose answers count for nothing: it changes
    nothing, a leader that hears it knows who is here, or says that nobody waits for this one."""
    config = group.host.config
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    group.arm_election(config.bystander_retry_ms)


def campaign(group: Group, transfer: bool = False) -> None:
    """Ask for real votes in a new term; the requests wait until term and own vote are durable."""
    host = group.host
    group.set_hard_state(group.term + 1, host.node)
    group.enter(Role.CANDIDATE, 0, "transfer" if transfer else "")
    host.timers.cancel(group.id)
    group.arm_election(host.config.election_retry_ms)
    _request_votes(group, group.term, pre=False, transfer=transfer)


def _request_votes(group: Group, term: int, pre: bool, transfer: bool) -> None:
    log = group.log
    request = VoteRequest(group.id, group.incarnation, term, log.last_index, log.last_term, pre,
                          transfer)
    for node in group.configuration.members():
        if node != group.host.node and membership.is_voter(group.configuration, node):
            group.send(node, request)
    stranger = group.stranger() if pre else 0
    if stranger:
        group.send(stranger, request)  # it leads, and will say that this is no member any more


def on_hard_state_durable(group: Group) -> None:
    """Term and vote are on disk: a candidate's vote for itself counts from now on."""
    if group.role is Role.CANDIDATE:
        group.votes[group.host.node] = True
        _judge(group)


def on_vote_request(group: Group, sender: int, request: VoteRequest) -> None:
    """Grant or refuse (paper 5.2, 5.4.1).  A refusal out of trust leaves the term alone."""
    trusting = (not request.transfer and group.leader != sender and group.trusts_leader())
    if group.quarantined:
        group.candidate = sender  # the repairer asks it, should the log name nobody who is left
    if group.quarantined or trusting or group.is_barred():
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
        group.host.timers.cancel(group.id)
        if group.may_campaign():
            group.arm_election(group.host.config.election_retry_ms)
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
    outcome = membership.tally(group.configuration, group.votes)
    if outcome is Vote.LOST:
        group.become_follower(group.term, 0, "lost the election")
        group.host.timers.cancel(group.id)
        if group.may_campaign():
            group.arm_election(group.host.config.election_retry_ms)
    elif outcome is Vote.WON and group.role is Role.PRE_CANDIDATE:
        campaign(group)
    elif outcome is Vote.WON:
        _become_leader(group)


def _become_leader(group: Group) -> None:
    """Take office and append the first entry of the term (paper 5.4.2, 8: only by committing it
    does a leader learn what is committed)."""
    assert group.role is Role.CANDIDATE, f"group {group.id}: {group.role.name} won"
    assert group.hard_state_is_durable(), f"group {group.id} won before its vote was durable"
    host = group.host
    if not group.is_held_up():
        group.become_follower(group.term, 0, "won, but not held up")
        return
    host.timers.cancel(group.id)
    next_index = group.log.last_index + 1
    for node in group.configuration.members():
        if node != host.node:
            group.seat(node, 0)
    group.term_start = next_index
    group.changing = (bool(group.configuration.outgoing)
                      or group.configuration_index > group.log.commit)
    group.enter(Role.LEADER, host.node)
    group.append(Entry(EntryKind.NOOP, group.id, group.log_incarnation, group.term, next_index))
    group.wake()


# ---- leadership transfer -----------------------------------------------------------------------


def furthest(group: Group) -> int:
    """The voter that can take over soonest: reached and whole, with room for records if any has,
    and with the most entries; of equals the one that is preferred, so that a node's groups go to
    many nodes.  0 = nobody is reached.  O(members)."""
    order = group.configuration.voters
    able = [member for member in group.progress.values()
            if member.node in order and _could_lead(group, member.node)]
    if not able:
        return 0
    full = group.host.support.full
    return max(able, key=lambda member: (member.node not in full, member.match,
                                         -order.index(member.node))).node


def may_make_way(group: Group) -> bool:
    """Whether records could be committed without the disk of this leader: a majority is reached,
    whole and has room.  Two majorities meet, so ``furthest`` is one that has room and all that is
    committed.  Without such a majority any leader could only let records wait, and it is better to
    refuse them here, clearly; it also ends the wandering of a group among disks that fill up."""
    host = group.host
    return membership.supported(
        group.configuration, lambda node: (node != host.node and node not in host.support.full
                                           and _could_lead(group, node)))


def _could_lead(group: Group, node: int) -> bool:
    support = group.host.support
    return (node in support.held and node in support.connections
            and group.progress[node].is_whole)


def transfer(group: Group, to: int) -> None:
    """Begin to hand leadership to ``to`` (thesis 3.10): no proposals until it happened or timed
    out.  The caller has checked that ``to`` can take it."""
    host = group.host
    group.transferee = to
    group.transfer_deadline_ms = host.now_ms + host.config.transfer_timeout_ms
    group.emit("transfer", to, "begin")
    host.timers.arm(group.id, group.transfer_deadline_ms)
    continue_transfer(group)
    group.touch()


def continue_transfer(group: Group) -> None:
    """Tell the transferee to campaign as soon as its log is complete."""
    member = group.progress[group.transferee]
    if member.match == group.log.last_index:
        group.send(member.node, TimeoutNow(group.id, group.incarnation, group.term))


def give_up_transfer(group: Group) -> None:
    """The transferee did not win in time: take proposals again."""
    group.emit("transfer", group.transferee, "given up")
    group.transferee = 0


def on_timeout_now(group: Group, sender: int, message: TimeoutNow) -> None:
    """The leader asks this replica to replace it at once."""
    if message.term != group.term or group.leader != sender:
        return
    if group.may_campaign():
        campaign(group, transfer=True)
    elif group.is_held():  # a leader that has nothing to send has not heard of it
        group.reply_append(sender, Status.QUARANTINED)


def resign(group: Group, why: str) -> None:
    """Give up leadership, and keep out of the next election; a good successor is called upon."""
    host = group.host
    group.abstain_until_ms = host.now_ms + host.config.lease_ms
    if group.role is not Role.LEADER:
        return
    successors = [member for member in group.progress.values()
                  if membership.is_voter(group.configuration, member.node)
                  and _could_lead(group, member.node)]
    if successors:
        best = max(successors, key=lambda member: (member.match, -member.node))
        group.send(best.node, TimeoutNow(group.id, group.incarnation, group.term))
    group.become_follower(group.term, 0, why)
