"""A replica that lost the end of its log: how it comes to be counted again.

Contract.  A *doubtful* replica is quarantined: it neither votes nor leads, and what it says counts
for nothing.  But it follows: it takes a leader's entries, and answers ``RECOVERING_HEAD`` with the
index up to which it has them, so that the leader can feed it.  With each answer, and on its own
when nothing comes, it states its ``HeadRecoveryRequest`` until the leader answers
``HeadRecoveryGrant``.

Theory.  It may have forgotten entries that it acknowledged, a term that it was in and a vote that
it gave.  Leader L of term T, when it hears the doubt, stops counting the replica and proposes an
entry.  When that entry is committed, a majority M without the doubter held term T *after* all that
was forgotten had happened; it need be no more than one of every majority (``_is_settled``).
Whoever was elected in a later term with the forgotten vote needed a majority; a member of both
refused him, because his log, at the time of that vote, could not have that entry.  So nothing that
rests on the forgotten vote will happen, and all that was ever committed by a forgotten
acknowledgement is in the log of L below that entry.  A replica that holds L's log up to it, and
votes no more in T, is as good as one that never forgot.  The whole argument, and what was rejected:
docs/decisions/0009.

Invariants.  A leader clears a doubt only by an entry proposed after it heard of this very episode:
what others held before may rest on what the doubter forgot.  From a doubter only acknowledgements
at or above that entry count; older ones are from before.
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.messages import AppendReply, HeadRecoveryGrant, HeadRecoveryRequest, Status
from multiraft.raft.progress import Progress
from multiraft.raft.raft_log import framed_bytes
from multiraft.types import Entry, EntryKind

#: Numbers of episodes are drawn below this: none comes twice.
NONCES = 1 << 62


# ---- the doubter -------------------------------------------------------------------------------


def begin(group: Group) -> None:
    """Follow from now on.  What stands behind the known end of the log is dropped on the disk
    first: it may come to light again."""
    assert group.quarantined, f"group {group.id} has nothing to doubt"
    group.nonce = 1 + group.context.rng.randrange(NONCES)
    group.cleared = (0, 0, False)
    group.log.drop_from = group.log.drop_from or group.log.staged_index + 1
    group.emit("doubt", group.log.last_index)
    group.touch()
    speak_up(group)


def speak_up(group: Group) -> None:
    """State the doubt to the leader, and again until it is cleared: a group that sleeps sends
    nothing that could be answered with it.  Who knows no leader asks around meanwhile: the group
    may live without it (``election``)."""
    if group.cleared[2]:
        return
    context = group.context
    if group.leader and group.leader in context.support.connections:
        group.send(
            group.leader, HeadRecoveryRequest(group.id, group.incarnation, group.term, group.nonce)
        )
    pause_ms = (
        context.config.bystander_retry_ms if is_alone(group) else context.config.retransmit_ms
    )
    context.timers.arm(group.id, context.now_ms + pause_ms)


def is_alone(group: Group) -> bool:
    """Whether it knows nobody to whom it could state its doubt: a leader whose node is not believed
    may be gone for good, and another one have removed this replica."""
    return not group.trusts_leader() and not group.cleared[2]


def may_accept(group: Group, sender: int) -> bool:
    """Whether entries of ``sender`` are taken though the replica is quarantined."""
    if not group.nonce:
        return False
    if not group.cleared[2]:
        group.send(
            sender, HeadRecoveryRequest(group.id, group.incarnation, group.term, group.nonce)
        )
    return True


def on_grant(group: Group, sender: int, cleared: HeadRecoveryGrant) -> None:
    """An entry of the leader is where it has to be without this replica."""
    if (cleared.term == group.term and sender == group.leader and group.nonce
            and cleared.nonce == group.nonce and not group.cleared[2]):
        group.cleared = (cleared.term, cleared.index, False)
        reconsider(group)


def reconsider(group: Group) -> None:
    """Whether the log has reached what the leader named; then the driver makes that durable."""
    term, index, reached = group.cleared
    if reached or term != group.term or not index:
        return
    if min(group.matched_index, group.log.durable_index) >= index:
        group.cleared = (term, index, True)
        if group.vote == 0:
            # It may have voted in this term, and must not vote again.
            group.set_hard_state(group.term, group.leader)
        group.emit("cleared", index)
        group.touch()


# ---- its leader --------------------------------------------------------------------------------


def on_doubt(group: Group, sender: int, doubt: HeadRecoveryRequest) -> None:
    """A member asks not to be counted."""
    member = group.progress[sender]
    if doubt.term > group.term:
        group.become_follower(doubt.term, 0, "higher term")
        return
    if doubt.term < group.term:
        return
    if doubt.nonce == member.doubt:
        if _is_settled(group, member):
            _clear(group, member)
        return
    group.recovering_count += member.doubt == 0
    member.doubt = doubt.nonce
    group.forget_word_of(member)
    member.barrier = group.log.last_index + 1
    member.match = 0  # whatever it acknowledged, it may have forgotten
    member.commit_known = 0
    member.retreat()
    group.emit("member", member.node, "doubtful")
    entry = Entry(EntryKind.NOOP, group.id, group.log_incarnation, group.term, member.barrier)
    group.append(entry)
    group.uncommitted_bytes += framed_bytes(entry)
    group.wake()


def may_feed(group: Group, member: Progress, reply: AppendReply) -> bool:
    """Whether an acknowledgement moves the member's progress.  One that is no ``RECOVERING_HEAD``
    and reaches the barrier ends the doubt.  One that does not reach it answers an append from after
    the doubt was heard (``since``): the doubt was an old one that came late, and the member has to
    be fed up to the barrier all the same."""
    if reply.status == Status.RECOVERING_HEAD or reply.match < member.barrier:
        return member.doubt != 0
    member.doubt = 0
    group.recovering_count -= 1
    group.emit("member", member.node, "cleared")
    return True


def _is_settled(group: Group, member: Progress) -> bool:
    """Whether one of every majority holds the entry, no doubter among them.  A majority that holds
    it commits it; of an even number of voters half are enough, and of two there is nobody else."""
    return (group.log.commit >= member.barrier or joint_quorum.everywhere(
        group.configuration, lambda node: group.durable_of(node) >= member.barrier))


def clear_some(group: Group) -> None:
    """The commit index moved: tell the doubters whose entry it passed."""
    for member in group.progress.values():
        if member.doubt and group.log.commit >= member.barrier:
            _clear(group, member)


def _clear(group: Group, member: Progress) -> None:
    group.send(member.node, HeadRecoveryGrant(group.id, group.incarnation, group.term, member.doubt,
                                    member.barrier))
