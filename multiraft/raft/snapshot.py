"""Snapshots: how a member goes on whose next entry its leader does not have any more.

Contract.  Consensus only arranges it.  The leader sends a ``SnapshotOffer``; the follower's driver
learns of it by the event ``snapshot_offered``, fetches the state of the group from the leader's
driver, at any index from ``first_index - 1`` of the offer on, makes it durable, and then calls
``MultiRaft.install_snapshot``.  Whoever is interrupted simply waits for the next offer.
    The log start is the driver's to move; ``log_start`` says how far, so that what a learner has
fetched, or has come to, is still followed by the log when it gets there.
Invariants.  A snapshot is applied state: everything in it is committed.  It is installed only over
a log that is known committed up to less, and never while a write of the group is in flight.
Theory.  Raft paper 7.  The follower pulls instead of being pushed to, because it knows best what it
has of a snapshot already (chunked and resumable), and because megabytes must not stand before
somebody's appends.  Either an entry of the log at the snapshot's index has the snapshot's term:
then the log holds the snapshot's prefix, which came while the snapshot was fetched; what follows
may have been acknowledged, so the log stays, and learns what of it is committed.  Or the whole log
goes: what it holds at that index contradicts what is committed.
"""

from __future__ import annotations

from multiraft.errors import ImpossibleMessage
from multiraft.raft.group import REMOVED, Group
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.messages import SnapshotOffer, Status
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.status import Role
from multiraft.types import Configuration

#: An offer is repeated after so many ``retransmit_ms``: a member that is fetching says nothing.
OFFER_PATIENCE = 4


def offer(group: Group, member: Progress) -> None:
    """What the member lacks is compacted away."""
    if member.state is not ProgressState.SNAPSHOT:
        group.emit("needs_snapshot", member.node, member.next_index, group.log.first_index)
    member.become_probe(member.next_index)
    member.state = ProgressState.SNAPSHOT
    member.progressed_ms = group.context.now_ms
    group.send(member.node, SnapshotOffer(group.id, group.incarnation, group.term,
                                          group.log.first_index, group.read_round))


def on_offer(group: Group, sender: int, message: SnapshotOffer) -> None:
    """The leader has nothing below ``first_index`` any more."""
    if message.term < group.term:
        group.reply_append(sender, Status.MISMATCH)
        return
    if message.term > group.term or group.role is not Role.FOLLOWER or group.leader != sender:
        group.become_follower(message.term, sender)
    group.heard_ms = group.context.now_ms
    group.read_round = max(
        group.read_round, message.read_round
    )  # or its leader would take no answer
    if group.is_frozen():
        if group.quarantined is not REMOVED:
            group.reply_append(sender, Status.QUARANTINED)
    elif group.log.commit >= message.first_index - 1:
        group.ack_leader = sender  # an old offer: it has been installed, or was never needed
        group.touch()
    else:
        group.emit("snapshot_offered", sender, message.first_index)


def on_offer_as_leader(group: Group, sender: int, message: SnapshotOffer) -> None:
    """Another leader: of an earlier term, or of a later one; never of this one."""
    if message.term == group.term:
        raise ImpossibleMessage(
            f"group {group.id}: nodes {group.context.node} and {sender} both lead "
            f"term {message.term}"
        )
    on_offer(group, sender, message)


def may_install(group: Group, index: int, term: int) -> bool:
    """Whether a snapshot of applied state up to (index, term) can replace this replica's log now:
    it is news, and nothing of the group is on its way to the disk.  When the log holds all of it
    already, that much is known to be committed now."""
    log = group.log
    if (group.role is not Role.FOLLOWER or index <= log.commit or term > group.term
            or group.is_frozen()):
        return False
    if log.matches(index, term):
        group.matched_index = max(group.matched_index, index)
        log.commit_to(index)
        group.ack_leader = group.leader
        group.touch()
        return False
    return not group.has_write() and not log.is_writing and group.hard_state_is_durable()


def point(group: Group) -> tuple[LogBounds, int, Configuration]:
    """(bounds of a log that begins behind the applied state, index and value of the configuration
    there)."""
    log = group.log
    applied = log.applied_index
    index, configuration = group.configurations[0]
    for above, later in group.configurations[1:]:
        if above <= applied:
            index, configuration = above, later
    # That of a group recovered by force counts before the entry that it is dated by is applied.
    return LogBounds(applied + 1, log.term_at(applied), applied), min(index, applied), configuration


def needed_from(group: Group) -> int:
    """First index that a learner which is being brought up still needs from this leader; behind the
    last when there is none.  Whoever is away is not waited for, nor who waits for a snapshot: the
    driver knows from where that goes on.  O(learners)."""
    log, context = group.log, group.context
    needed = log.last_index + 1
    for node in group.configuration.learners:
        member = group.progress.get(node)
        if (member is not None and context.support.is_supported_by(node)
                and member.state in (ProgressState.PROBE, ProgressState.REPLICATE)
                and member.match >= log.first_index - 1):
            needed = min(needed, member.match + 1)
    return needed


def log_start(applied: int, kept: int, held_max: int, needed: int) -> int:
    """Where the log may begin when a checkpoint holds what entries up to ``applied`` did: the
    newest ``kept`` of them stay, and up to ``held_max`` more from ``needed`` on.  Below 2 = as it
    is."""
    newest = applied - kept + 1
    return min(newest, max(needed, newest - held_max))
