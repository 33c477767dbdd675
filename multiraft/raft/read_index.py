"""Linearizable reads by ReadIndex (thesis 6.4): confirmation of leadership after the read arrived.

Contract.  ``read_index`` queues a token.  ``begin`` (once per round and touched group) starts one
read round for all tokens that wait.  The round ends when a majority has answered; a reply
(``on_round_answered``) or a change of voters (``on_voters_changed``) may complete it.

Invariants.  A token's index is the commit index of a leader that had committed in its own term,
taken after the read arrived.  The token is released only when a majority of voters has answered an
append that was sent after that.  A lease never replaces these answers: leases depend on clocks.

Theory.  Every append carries the number of the latest read round, and every reply returns it.  A
member that answers a round was in this leader's term when it received the append, so no later
leader had committed anything before the read arrived.  A replica that may have forgotten a term
(``head_recovery.py``) does not answer OK.  One round is under way at a time; reads that arrive
meanwhile are in the next.

A round is confirmed by the present voters, not by those at its start.  A leader leaves a joint
configuration when that is committed in its own term, so a majority of the old voters was in this
term then.  Any leader elected later has the joint configuration in its log, and needed a majority
of the new voters as well.
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.progress import Progress
from multiraft.raft.read_queue import ReadIndexQueue
from multiraft.raft.ready import ReadReady


def read_index(group: Group, token: object) -> None:
    """Queue a linearizable read at the leader and reactivate the group.  A ``ReadReady`` with
    ``token`` follows once leadership is confirmed.  Raises ``QueueFull``."""
    if group.reads is None:
        group.reads = ReadIndexQueue()
    group.reads.queue(token, group.context.config.pending_reads_max)
    group.unquiesce()


def begin(group: Group) -> None:
    """Start a read round if none is under way and a read waits.  Do nothing before the leader's
    first commit in its term."""
    reads = group.reads
    # Before its first commit in its term, a leader's commit index may be below that of earlier
    # acknowledgements (thesis 6.4, step 1).
    assert reads is not None
    if reads.in_round or not reads.waiting or group.log.commit < group.term_start:
        return
    group.read_round += 1
    # The index is taken before any member is asked: all that was acknowledged until now is below
    # it.
    reads.begin(group.read_round, group.log.commit)
    _confirm(group)


def is_unanswered(group: Group, member: Progress) -> bool:
    """True if the round under way has not been sent to this voter, so that it must be sent now."""
    reads = group.reads
    assert reads is not None
    return (bool(reads.in_round) and member.sent_round < reads.read_round
            and joint_quorum.is_voter(group.configuration, member.node))


def on_round_answered(group: Group) -> None:
    """Complete the round under way if a majority has answered it, after one more member did."""
    reads = group.reads
    assert reads is not None
    if reads.in_round:
        _confirm(group)


def on_voters_changed(group: Group) -> None:
    """Complete the round under way, if there is one and a majority of the present voters has
    answered it."""
    if group.reads is not None and group.reads.in_round:
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


def resend_round(group: Group) -> bool:
    """Let ``send_appends`` send the round under way again to members that have not answered it.
    True if a read waits or a round is under way."""
    reads = group.reads
    assert reads is not None
    if not reads.in_round:
        return bool(reads.waiting)
    for member in group.progress.values():
        if member.acked_round < reads.read_round:
            member.sent_round = 0
    return True


def check(group: Group) -> None:
    """Assert every invariant.  O(members)."""
    if group.reads is not None and group.reads.in_round:
        assert not _is_confirmed(group), f"group {group.id}: reads wait for nobody"
