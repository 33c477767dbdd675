"""Leader election: election timer, pre-vote, vote requests and votes.

Contract.  Handlers of ``VoteRequest``, ``VoteReply`` and ``TimeoutNow``, and the election timer.
Each handler checks the message's term itself, before anything else.

Theory.  Raft paper 5.2 and 5.4.1; pre-vote, thesis 9.6; leader stickiness, thesis 4.2.3.  A voter
that trusts its leader refuses and keeps its term, so that a node that was cut off cannot depose a
leader that serves every other node (scenario S28d).  A request from that leader itself is judged
like any other: a node that asks for votes has stopped leading.  A candidate counts its own vote,
like every vote, only once that vote is durable (scenario S21).

Elsewhere.  The conditions for a campaign: ``Group.rearm`` and ``Group.may_campaign``.  The leader's
part of a transfer: leader_transfer.py.
"""

from __future__ import annotations

from multiraft.raft import head_recovery, joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.messages import Status, TimeoutNow, VoteReply, VoteRequest
from multiraft.raft.quorum import Vote
from multiraft.raft.status import Role
from multiraft.types import Entry, EntryKind


def on_election_timer(group: Group) -> None:
    """Begin a pre-vote if this replica still lacks a leader and may campaign.  After a recent
    append of an untrusted leader, wait for the rest of ``lease_ms``.

    During head recovery repeat its request instead.  A candidate without quorum support becomes
    follower; a non-candidate asks what became of its group."""
    context = group.context
    if group.health.nonce:
        head_recovery.send_recovery_request(group)
        if head_recovery.knows_no_leader(group):
            # No leader to ask: as in ``_probe_group``.
            _request_votes(group, group.term + 1, pre=True, transfer=False)
        return
    if group.role is Role.FOLLOWER and group.leader:
        # Without support for the leader's node its appends alone keep the election off, for a lease
        # each.
        quiet_until_ms = group.heard_ms + context.config.lease_ms
        if group.trusts_leader():
            return
        if context.now_ms < quiet_until_ms:
            group.arm_election(quiet_until_ms - context.now_ms)
            return
    if group.may_campaign():
        start_pre_vote(group)
    elif group.role is not Role.FOLLOWER:
        group.become_follower(group.term, 0, "no quorum support")
    elif group.is_non_candidate():
        _probe_group(group)


def start_pre_vote(group: Group) -> None:
    """Poll the voters for a possible election, without a change of any term (thesis 9.6).  A
    replica that is a majority alone campaigns at once; another one polls again after
    ``election_retry_ms``."""
    context = group.context
    group.enter(Role.PRE_CANDIDATE, 0)
    group.votes = {context.node: True}
    context.timers.cancel(group.id)
    group.arm_election(context.config.election_retry_ms)
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    _count_votes(group)


def _probe_group(group: Group) -> None:
    """Ask the voters what became of the group, by a pre-vote request whose answers are ignored, and
    arm the timer to ask again after ``non_candidate_retry_ms``.

    The request changes no state of its receiver.  A leader that receives it learns that this
    replica exists, or answers that it is no longer a member."""
    config = group.context.config
    _request_votes(group, group.term + 1, pre=True, transfer=False)
    group.arm_election(config.non_candidate_retry_ms)


def campaign(group: Group, transfer: bool = False) -> None:
    """Become candidate in a new term and request votes; the requests wait until term and own vote
    are durable.  ``transfer``: the leader asked for it, so trust in that leader is no reason to
    refuse."""
    context = group.context
    # The own vote is not in ``votes`` yet: ``on_hard_state_durable`` adds it.  A crash before that
    # could let this node vote for another candidate of the same term.
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
        )  # it answers that this replica is not a member


def on_hard_state_durable(group: Group) -> None:
    """Count a candidate's vote for itself, now that term and vote are on disk; do nothing in other
    roles."""
    if group.role is Role.CANDIDATE:
        group.votes[group.context.node] = True
        _count_votes(group)


def on_vote_request(group: Group, sender: int, request: VoteRequest) -> None:
    """Grant or refuse a vote or a pre-vote (paper 5.2, 5.4.1).

    A replica that is quarantined, is below its vote barrier or trusts another leader refuses, and
    keeps its term."""
    # A transfer is the leader's own wish, so stickiness must not refuse it (thesis 3.10).
    trusting = (not request.transfer and group.leader != sender and group.trusts_leader())
    if group.health.why:
        group.health.vote_requester = sender
    if group.health.why or trusting or group.is_below_vote_barrier():
        # A quarantined replica, or one below its vote barrier, may have forgotten entries that a
        # majority was counted with: its vote could elect a leader without them.
        _answer(group, sender, request, False)
    elif request.pre:
        _answer(group, sender, request, request.term > group.term
                and group.log.up_to_date(request.last_index, request.last_term))
    else:
        _vote(group, sender, request)


def _vote(group: Group, sender: int, request: VoteRequest) -> None:
    """Answer a vote request: vote at most once per term, and only for a log that is at least as up
    to date as this one.  A later term is adopted in either case."""
    new_term = request.term > group.term
    # Also not after following a leader of this term: its election is decided.
    free = new_term or (request.term == group.term and group.vote in (0, sender)
                        and group.leader == 0)
    granted = free and group.log.up_to_date(request.last_index, request.last_term)
    if new_term:
        # Term and vote change together, in one record; the answer waits until that is durable.
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
    """Count a reply to the campaign under way; become follower if the voter is in a later term.
    Ignore replies to earlier campaigns."""
    # A granted pre-vote carries the term that would be campaigned for, which is not a higher term
    # seen.
    if reply.term > group.term and not (reply.pre and reply.granted):
        group.become_follower(reply.term, 0, "higher term")
        return
    if reply.pre != (group.role is Role.PRE_CANDIDATE):
        return
    if group.role not in (Role.PRE_CANDIDATE, Role.CANDIDATE):
        return
    if reply.granted and reply.term != group.term + reply.pre:
        return
    # A grant is final: a refusal that arrives after it is an older message.
    group.votes[sender] = reply.granted or group.votes.get(sender, False)
    _count_votes(group)


def _count_votes(group: Group) -> None:
    """Campaign after a won pre-vote, lead after a won election, become follower after a lost one.
    Do nothing while votes are missing."""
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
    """Become leader and append the first entry of the term; without quorum support become follower.

    Only by committing an entry of its own term does a leader learn the commit index (paper 5.4.2,
    8)."""
    assert group.role is Role.CANDIDATE, f"group {group.id}: {group.role.name} won"
    assert group.hard_state_is_durable(), f"group {group.id} won before its vote was durable"
    context = group.context
    # Without quorum support it would step down at once, after having disturbed the group.
    if not group.has_quorum_support():
        group.become_follower(group.term, 0, "won without quorum support")
        return
    context.timers.cancel(group.id)
    next_index = group.log.last_index + 1
    for node in group.configuration.members():
        if node != context.node:
            group.add_progress(node, 0)
    group.term_start = next_index
    # A predecessor may have left a change unfinished; this leader completes it.
    group.conf_change_open = (bool(group.configuration.outgoing)
                      or group.configuration_index > group.log.commit)
    group.enter(Role.LEADER, context.node)
    group.append(Entry(EntryKind.NOOP, group.id, group.log_incarnation, group.term, next_index))
    group.unquiesce()


# ---- leadership transfer -----------------------------------------------------------------------


def on_timeout_now(group: Group, sender: int, message: TimeoutNow) -> None:
    """Campaign at once, because the leader transfers its leadership to this replica (thesis 3.10).

    Ignore it from another sender or term, or if this replica may not campaign.  A frozen replica
    reports its quarantine."""
    if message.term != group.term or group.leader != sender:
        return
    if group.may_campaign():
        campaign(group, transfer=True)
    elif group.health.is_frozen:
        # A leader without entries to send has got no answer yet that reports the quarantine.
        group.reply_append(sender, Status.QUARANTINED)
