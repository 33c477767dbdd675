"""Snapshots: state in place of a log prefix, for members whose next entry is compacted.

Contract.  Consensus only arranges the transfer.  The leader sends a ``SnapshotOffer``.  The
follower's driver gets the event ``snapshot_offered``, fetches the group's state from the leader's
driver at any index from ``first_index - 1`` of the offer on, makes it durable, and calls
``MultiRaft.install_snapshot``.  An interrupted transfer is resumed at the next offer.

Becoming durable takes either one turn of the loop, or ``MultiRaft.begin_install`` comes first.
Until ``install_snapshot`` the replica is *installing* then: it takes no message and does not
campaign.  Its log stays as it is, so nothing that it would answer depends on what a crash undoes.

The driver compacts the log.  ``log_start`` limits the compaction, so that the entries which follow
a learner's snapshot, or its log, still exist when the learner needs them.

Invariants.  A snapshot is applied state: everything in it is committed.  It is installed only over
a log with a lower commit index, and never while a write of the log is in flight.

Theory.  Raft paper 7.  The follower pulls, because it knows which parts it has (chunked and
resumable), and because megabytes must not delay appends.  If the follower's log has an entry with
the snapshot's index and term, it contains the snapshot's prefix, which arrived during the transfer.
Later entries may have been acknowledged, so the log stays, and its commit index is raised.
Otherwise the whole log is removed: it conflicts with committed entries.
"""

from __future__ import annotations

from multiraft.errors import ImpossibleMessage
from multiraft.raft.group import Group
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.messages import SnapshotOffer, Status
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.replica_health import HealthState
from multiraft.raft.status import Role
from multiraft.types import Configuration

#: An offer is repeated after so many ``retransmit_ms``: a member that is fetching does not reply.
OFFER_RETRY = 4


def offer(group: Group, member: Progress) -> None:
    """Offer a snapshot to a member whose next entry is compacted.  Appends to it pause until it
    replies or is probed again."""
    first_index = group.log.terms_from + 1  # that can be sent: the term before it is known
    if member.state is not ProgressState.SNAPSHOT:
        group.emit("snapshot_needed", member.node, member.next_index, first_index)
    member.become_probe(member.next_index)
    member.state = ProgressState.SNAPSHOT
    member.progressed_ms = group.context.now_ms
    group.send(member.node, SnapshotOffer(group.id, group.incarnation, group.term, first_index,
                                          group.read_round))


def on_offer(group: Group, sender: int, message: SnapshotOffer) -> None:
    """Process the leader's offer of a snapshot: emit ``snapshot_offered``, so that the driver
    fetches it.

    An outdated offer is acknowledged like an append, one of an earlier term or to a frozen replica
    is refused."""
    if message.term < group.term:
        group.reply_append(sender, Status.MISMATCH)
        return
    if message.term > group.term or group.role is not Role.FOLLOWER or group.leader != sender:
        group.become_follower(message.term, sender)
    group.heard_ms = group.context.now_ms
    # Replies carry this round; the leader ignores lower ones (``Progress.added_at_round``).
    group.read_round = max(group.read_round, message.read_round)
    if group.health.is_frozen:
        if group.health.state is not HealthState.REMOVED:
            group.reply_append(sender, Status.QUARANTINED)
    elif group.log.commit >= message.first_index - 1:
        # An outdated offer: the snapshot is installed, or was never needed.
        group.ack_leader = sender
        group.touch()
    else:
        group.emit("snapshot_offered", sender, message.first_index)


def on_offer_as_leader(group: Group, sender: int, message: SnapshotOffer) -> None:
    """Process an offer of another leader, which must be of an earlier or a later term.  Raises
    ``ImpossibleMessage`` for two leaders of one term."""
    if message.term == group.term:
        raise ImpossibleMessage(
            f"group {group.id}: nodes {group.context.node} and {sender} both lead "
            f"term {message.term}"
        )
    on_offer(group, sender, message)


def may_install(group: Group, index: int, term: int) -> bool:
    """True if a snapshot of applied state up to (index, term) can replace this replica's log now.

    If the log contains that entry, no snapshot is needed and the commit index is raised instead."""
    log = group.log
    if (group.role is not Role.FOLLOWER or index <= log.commit or term > group.term
            or group.health.is_frozen):
        return False
    # The log has the snapshot's prefix: entries behind it may have been acknowledged and must stay.
    if log.matches(index, term):
        group.matched_index = max(group.matched_index, index)
        log.commit_to(index)
        group.ack_leader = group.leader
        group.touch()
        return False
    # A write in flight would complete for entries and bounds that no longer exist.
    return not group.has_write() and not log.is_writing and group.hard_state_is_durable()


def begin_install(group: Group, index: int, term: int) -> bool:
    """Let a replica begin to install a snapshot up to (index, term), if it can, and all that it has
    committed is applied.  Without another entry its log cannot change until the end."""
    if (group.is_installing or not may_install(group, index, term)
            or group.log.applied_index != group.log.commit):
        return False
    group.is_installing = True
    group.emit("snapshot_install_started", index, term)
    group.rearm()
    return True


def point(group: Group) -> tuple[LogBounds, int, Configuration]:
    """Return the start of a log behind the applied state: its bounds, and index and value of its
    configuration.  The term of the last applied entry must be known."""
    log = group.log
    applied = log.applied_index
    assert applied >= log.terms_from, f"applied {applied}, terms from {log.terms_from}"
    index, configuration = group.configurations[0]
    for above, later in group.configurations[1:]:
        if above <= applied:
            index, configuration = above, later
    # The configuration of a forced recovery counts before the entry that dates it is applied.
    return LogBounds(applied + 1, log.term_at(applied), applied), min(index, applied), configuration


def needed_from(group: Group) -> int:
    """Return the first index that a catching-up learner still needs from this leader; last + 1 if
    none.

    Learners that are away, or wait for a snapshot, are left out: the driver knows the index at
    which a snapshot continues.  O(learners)."""
    log, context = group.log, group.context
    needed = log.last_index + 1
    for node in group.configuration.learners:
        member = group.progress.get(node)
        if (member is not None and context.support.is_supported_by(node)
                and member.state in (ProgressState.PROBE, ProgressState.REPLICATE)
                and member.match >= log.terms_from):
            needed = min(needed, member.match + 1)
    return needed


def held_from(group: Group) -> int:
    """Return the first index that a member whose node is up still needs from this leader's log, be
    it a voter or a learner; last + 1 if none, and for a replica that does not lead.

    A member that said nothing in this term may need any entry.  Members that wait for a snapshot,
    or have no replica, are left out.  O(members)."""
    log, support = group.log, group.context.support
    held = log.last_index + 1
    for member in group.progress.values():
        if (support.is_supported_by(member.node)
                and member.state not in (ProgressState.SNAPSHOT, ProgressState.UNKNOWN_GROUP)):
            held = min(held, max(member.match + 1, log.terms_from + 1))
    return held


def log_start(applied: int, kept: int, held_max: int, needed: int) -> int:
    """Return the first index to keep when a checkpoint holds the effects of entries up to
    ``applied``.

    The newest ``kept`` entries stay, and up to ``held_max`` more from ``needed`` on.  A result
    below 2 means no compaction."""
    newest = applied - kept + 1
    return min(newest, max(needed, newest - held_max))
