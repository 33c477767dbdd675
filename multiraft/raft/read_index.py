"""Linearizable reads without an entry: who still leads, asked after the read was (thesis 6.4).

Contract.  ``read_index`` queues a token; ``begin`` (once per round and touched group) starts one
round of questions for all that wait; it ends when a majority has answered, which an answer
(``on_heard``) or other voters (``on_voters_changed``) may bring about.
Invariants.  A token's index is the commit index of a leader that had committed in its own term,
taken after the read was asked for; it is handed out only when a majority of voters has answered an
append that was sent after that.  A lease never answers for them: leases are clocks.
Theory.  The question is the stamp that every append carries and every answer echoes; a member that
answers a stamp was in this leader's term when it got it, so no later leader had committed anything
before the read was asked.  One that may have forgotten a term (``head_recovery.py``) does not
answer OK. One round is under way at a time; what is asked meanwhile is in the next.
    A round goes by the voters of the moment, not by those of its beginning.  The leader leaves a
joint configuration when that is committed in its own term, so a majority of the old voters was in
this term then: whoever was elected later has the joint configuration in its log, and needed a
majority of the new voters, too.
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.progress import Progress
from multiraft.raft.read_queue import ReadIndexQueue
from multiraft.raft.ready import ReadReady


def read_index(group: Group, token: object) -> None:
    """Queue a read at the leader.  Raises ``QueueFull``."""
    if group.reads is None:
        group.reads = ReadIndexQueue()
    group.reads.queue(token, group.context.config.reads_waiting_max)
    group.wake()


def begin(group: Group) -> None:
    """Begin a round when none is under way and a read waits; not before this term's first commit,
    because until then the commit index may be behind what was acknowledged."""
    reads = group.reads
    assert reads is not None
    if reads.asked or not reads.waiting or group.log.commit < group.term_start:
        return
    group.read_round += 1
    reads.begin(group.read_round, group.log.commit)
    _confirm(group)


def is_unanswered(group: Group, member: Progress) -> bool:
    """Whether the round that is under way has not been sent to this voter."""
    reads = group.reads
    assert reads is not None
    return (bool(reads.asked) and member.sent_round < reads.read_round
            and joint_quorum.is_voter(group.configuration, member.node))


def on_heard(group: Group) -> None:
    """A member answered a higher stamp than before."""
    reads = group.reads
    assert reads is not None
    if reads.asked:
        _confirm(group)


def on_voters_changed(group: Group) -> None:
    """End the round when those who have answered are a majority of the voters of now."""
    if group.reads is not None and group.reads.asked:
        _confirm(group)


def _is_confirmed(group: Group) -> bool:
    reads = group.reads
    assert reads is not None

    def answered(node: int) -> bool:
        return (node == group.context.node
                or group.progress[node].acked_round >= reads.read_round)

    return joint_quorum.supported(group.configuration, answered)


def _confirm(group: Group) -> None:
    reads = group.reads
    assert reads is not None
    if _is_confirmed(group):
        group.context.reads += [ReadReady(group.id, token, reads.index) for token in reads.finish()]
        if reads.waiting:
            group.touch()


def ask_again(group: Group) -> bool:
    """Answers are overdue: ask those again who have not answered; whether there is anybody."""
    reads = group.reads
    assert reads is not None
    if not reads.asked:
        return bool(reads.waiting)
    for member in group.progress.values():
        if member.acked_round < reads.read_round:
            member.sent_round = 0
    return True


def check(group: Group) -> None:
    """Every invariant; O(members)."""
    if group.reads is not None and group.reads.asked:
        assert not _is_confirmed(group), f"group {group.id}: reads wait for nobody"
