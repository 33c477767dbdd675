"""Configuration changes: start, completion, notification of removed members, forced recovery.

Contract.  ``change_members`` starts a change or refuses it.  Everything after that follows from
commits (``on_commit``), under the same leader or a later one.  One change is open at a time.

Invariants.  A configuration counts from the moment it is in the log, committed or not, and is
reverted with a truncated suffix (``Group.adopt``, ``Group.truncate``).  No second configuration
follows one that is uncommitted.  A leader counts itself only while it is a voter.

Theory.  Thesis 4.3: voters change through a joint configuration in which both majorities decide, so
that any number of voters may change at once; a leader leaves it as soon as it is committed.
Learners count for nothing and change in one step.  A change starts only when an entry of the
leader's own term is committed (Ongaro 2015, the flaw of single-server changes; scenario S29).  A
leader that is not among the new voters leads without counting itself until they have committed the
new configuration; then it asks the most advanced of them to campaign (thesis 4.2.2, scenario S30).
A removed member is notified by the leader, when the configuration without it is committed and
whenever it asks: no other node knows for sure (scenario S38).
"""

from __future__ import annotations

from multiraft.errors import (
    BelowVoteBarrier,
    ChangeOpen,
    InvalidMembers,
    MemberLags,
    MembershipError,
    RecordsLeft,
)
from multiraft.raft import (
    election,
    head_recovery,
    joint_quorum,
    leader_transfer,
    quorum,
    read_index,
)
from multiraft.raft.group import Group
from multiraft.raft.messages import HeadRecoveryRequest, Removed, VoteRequest
from multiraft.raft.progress import ProgressState
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.replica_records import ForcedRecovery, Tombstone, reincarnation, tombstone
from multiraft.raft.status import Role
from multiraft.types import Configuration, Entry, EntryKind, HardState

#: A forced recovery raises the term by ``term_jump_max`` divided by this.  Leaders that the
#: survivor never heard of may have used four thousand terms, an hour of elections, and still none
#: of them is taken for newer than the survivor.
UNHEARD_SHARE = 256


def change_members(group: Group, voters: tuple[int, ...], learners: tuple[int, ...]) -> Entry:
    """Start a change of a led group's members and return its entry.  Raises ``MembershipError``;
    then nothing was appended."""
    current = group.configuration
    if group.transferee:
        raise ChangeOpen(f"group {group.id} is being handed to node {group.transferee}")
    if is_open(group):
        raise ChangeOpen(f"group {group.id} is changing its members at index "
                         f"{group.configuration_index}")
    # Before its first commit a leader may not know of an uncommitted change of its predecessor, and
    # majorities of two such changes need not meet (Ongaro 2015).
    if group.log.commit < group.term_start:
        raise ChangeOpen(f"group {group.id} has committed nothing in term {group.term} yet")
    if not voters:
        raise InvalidMembers(f"group {group.id} needs a voter")
    try:
        changed = joint_quorum.validate(joint_quorum.enter_joint(current, voters, learners))
    except ValueError as error:
        raise InvalidMembers(f"group {group.id}: {error}") from error
    if (set(voters), set(learners)) == (set(current.voters), set(current.learners)):
        raise InvalidMembers(f"these are the members of group {group.id}")
    for node in voters:
        if node not in current.voters:
            _check_new_voter(group, node)
    _check_remaining_records(group, voters)
    # A change that cannot commit would stay open and block every other one.
    if not joint_quorum.supported(changed, lambda node: _is_counted(group, node)):
        raise MembershipError(f"too few of the voters {voters} of group {group.id} are reached and "
                              f"whole")
    return _append(group, changed)


def _is_counted(group: Group, node: int) -> bool:
    """True if a voter can help to commit the change, as far as this leader knows.

    A voter in head recovery cannot: only entries that other voters hold end its recovery, and
    nothing does if the group has no leader without it."""
    member = group.progress.get(node)
    return group.context.support.is_supported_by(node) and (member is None or member.is_intact)


def is_open(group: Group) -> bool:
    """True if a change is not complete: the configuration is joint, or not committed."""
    return bool(group.configuration.outgoing) or group.configuration_index > group.log.commit


def _check_new_voter(group: Group, node: int) -> None:
    """Raise ``MembershipError`` unless a new voter is a learner that lacks few entries and no
    record.

    A majority that has to wait for such a voter would stop the group (thesis 4.2.1).  One that
    lacks records may replace the voter that has them."""
    limit = group.context.config.promotion_lag_entries_max
    member = group.progress.get(node)
    if node not in group.configuration.learners or member is None:
        raise InvalidMembers(f"node {node} must be a learner of group {group.id} before it can be "
                             f"a voter")
    lag = group.log.last_index - member.match
    if member.state is not ProgressState.REPLICATE or lag > limit:
        raise MemberLags(node, lag, limit)
    # The learner does not know yet that it is a member.
    if member.match < group.configuration_index:
        raise MemberLags(node, lag, lag - 1)
    if member.below_vote_barrier:
        raise BelowVoteBarrier(node, group.id)
    if member.records_left:
        raise RecordsLeft(node, group.id, member.records_left)


def _check_remaining_records(group: Group, voters: tuple[int, ...]) -> None:
    """Raise ``MembershipError`` if the change removes a voter that may have all records, and it is
    not known that a majority of ``voters`` has them.

    A voter that was away for long has a snapshot first, and its records later.  As the only one
    that is left, it would never find them."""
    if all(node in voters or _records_left(group, node) for node in group.configuration.voters):
        return
    if not quorum.supported(voters, lambda node: _records_left(group, node) == 0):
        node = next(node for node in voters if _records_left(group, node) != 0)
        left = _records_left(group, node)
        if left:
            raise RecordsLeft(node, group.id, left)
        raise MembershipError(f"voter {node} of group {group.id} has not acknowledged an entry to "
                              f"this leader yet, so it may lack records")


def _records_left(group: Group, node: int) -> int | None:
    """Return at how many indexes a member lacks records, by its last acknowledgement; None = it has
    sent none to this leader."""
    if node == group.context.node:
        return group.records_left
    member = group.progress.get(node)
    return member.records_left if member is not None and member.match else None


def _append(group: Group, configuration: Configuration) -> Entry:
    entry = Entry(EntryKind.MEMBERSHIP, group.id, group.log_incarnation, group.term,
                  group.log.last_index + 1, payload=joint_quorum.encode(configuration))
    group.append(entry)
    group.uncommitted_bytes += framed_bytes(entry)
    # In force before it is committed (thesis 4.1): the next commit is decided by the new
    # configuration.
    group.adopt(entry.index, configuration)
    read_index.on_voters_changed(group)
    group.unquiesce()
    return entry


def on_commit(group: Group) -> None:
    """Continue an open change if the new commit index covers its last configuration; otherwise do
    nothing.

    Leave a joint configuration.  After any other, notify the removed members, and resign if this
    node is no longer a voter; if it is no member, its replica is removed."""
    commit = group.log.commit
    if commit < group.configuration_index or commit < group.term_start:
        return
    # The joint configuration is committed: both majorities have it, so no later leader can decide
    # by the old voters alone.  Leaving it needs another entry, which later leaders inherit.
    if group.configuration.outgoing:
        _append(group, joint_quorum.leave_joint(group.configuration))
        return
    # The new configuration is committed: from here on the old voters are not needed.
    group.conf_change_open = False
    removed_members, group.removed_members = group.removed_members, {}
    for node in removed_members:
        notify_removed(group, node)
    if group.context.node not in group.configuration.members():
        leader_transfer.resign(group, "removed")
        group.mark_removed("removed", group.configuration_index)
    elif not joint_quorum.is_voter(group.configuration, group.context.node):
        leader_transfer.resign(group, "no longer a voter")


# ---- removed members ---------------------------------------------------------------------------


def notify_removed(group: Group, node: int) -> None:
    """Send a node the notice that it is not a member, unless a change is open."""
    if not is_open(group):
        group.send(node, Removed(group.id, group.incarnation, group.term, group.read_round,
                                 group.configuration_index))


def on_vote_request_as_leader(group: Group, sender: int, request: VoteRequest) -> None:
    """Answer a vote request as leader, usually by a refusal.  Non-candidates ask by the same
    message what became of their group.

    A sender that is no member is notified of its removal; from a later term, it makes this leader
    step down without a vote.  A member in ``UNKNOWN_GROUP`` is probed again: it has a replica."""
    member = group.progress.get(sender)
    if member is None:
        _on_nonmember(group, sender, request.term - request.pre)
        if group.role is not Role.LEADER:
            return
    elif member.state is ProgressState.UNKNOWN_GROUP:
        member.retreat()  # the request shows that it has a replica now
        group.touch()
    election.on_vote_request(group, sender, request)


def on_head_recovery_request_as_leader(group: Group, sender: int,
                                       message: HeadRecoveryRequest) -> None:
    """Process a head recovery request of a member; answer any other sender as a removed replica."""
    if sender in group.progress:
        head_recovery.on_request(group, sender, message)
    else:
        _on_nonmember(group, sender, message.term)


def _on_nonmember(group: Group, sender: int, term: int) -> None:
    """Notify a replica that it is not a member, or step down if it is in a later ``term``.  Do
    nothing while a change is open.

    It may be in a later term, because it campaigned without success while it was a member, and
    would ignore this leader.  A new election then raises the group's term.  That happens once,
    because a replica that is not a member wins no pre-vote."""
    if is_open(group):
        return  # it asks again, and the change may be the one that adds or removes it
    if term > group.term:
        group.become_follower(term, 0, "a removed replica is in a later term")
    else:
        notify_removed(group, sender)


def _was_added_since(group: Group, message: Removed) -> bool:
    """True if this node is in a configuration that is not older than the one the leader refers to.

    A configuration that is neither committed nor of the leader's term is not in the leader's log,
    and will be truncated."""
    index = group.configuration_index
    if index < message.index or group.context.node not in group.configuration.members():
        return False
    return index <= group.log.commit or group.log.term_at(index) >= message.term


def on_removed(group: Group, sender: int, message: Removed) -> None:
    """Leave the group, because its leader says that this replica is not a member.

    A message from before this replica heard more from that leader is outdated, and ignored."""
    if ((message.term, message.read_round) < (group.term, group.read_round)
            or _was_added_since(group, message)):
        return
    # After its removal this replica must not follow a leader of an earlier term.
    if message.term > group.term:
        group.become_follower(message.term, 0, "higher term")
    group.mark_removed(f"removed by n{sender}", message.index)


# ---- end of a replica, and forced recovery -----------------------------------------------------


def tombstone_of(group: Group) -> Entry:
    """Return the record that survives a removed replica: its hard state, and the vote barrier for
    the next replica of the group on this node.

    A replica that was notified (``Group.mark_removed``) has a barrier at the configuration that
    removed it: no majority counted its acknowledgements behind that.  For any other replica the
    barrier is the end of its log, which has all that it acknowledged."""
    if group.id not in group.context.removing:
        _raise_vote_barrier_to_end(group)
    return tombstone(
        group.id,
        group.log_incarnation,
        Tombstone(
            HardState(group.term, group.vote),
            group.vote_barrier_index,
            group.incarnation,
            group.vote_barrier_term,
        ),
    )


def _raise_vote_barrier_to_end(group: Group) -> None:
    """Raise the vote barrier to the end of this log.

    The last term of a damaged log may be a guess, so the replica's own term is used: no entry has a
    later one.  A barrier by index alone, from an earlier version, remains one while it holds."""
    log = group.log
    if group.vote_barrier_index and not group.vote_barrier_term and group.is_below_vote_barrier():
        group.vote_barrier_index = max(group.vote_barrier_index, log.last_index)
    else:
        group.raise_vote_barrier(group.term if group.health.why else log.last_term, log.last_index)


def reincarnate(group: Group, incarnation: int, configuration: Configuration,
                vote_barrier_index: int = 0, vote_barrier_term: int = 0) -> None:
    """Continue the group from this replica's log in a new incarnation (forced recovery).

    The operator names the members in ``configuration``; no election does.  No message of the old
    incarnation counts, but the term continues.

    With an empty ``configuration`` an empty replica joins the new incarnation.  It votes when its
    log has reached (``vote_barrier_term``, ``vote_barrier_index``), the place where the leader that
    wants it began in the new incarnation: configurations of the old one come before that.  A later
    leader may have a shorter log, but is in a later term.  The same holds for a replica in head
    recovery that may have lost the record of an earlier forced recovery: its log names the members,
    up to where it is verified."""
    assert incarnation > group.incarnation, f"{incarnation} after {group.incarnation}"
    # The term passes those of leaders that the survivor never heard of; see ``UNHEARD_SHARE``.
    unheard = group.context.config.term_jump_max // UNHEARD_SHARE if configuration.voters else 0
    group.become_follower(group.term + 1 + unheard, 0, "forced recovery")
    group.incarnation = incarnation
    group.vote_barrier_index, group.vote_barrier_term = ((0, 0) if configuration.voters
                                       else (max(1, vote_barrier_index), vote_barrier_term))
    group.lifecycle_record = reincarnation(group.id, group.log_incarnation,
                               group.vote_barrier_index or group.log.last_index,
                               ForcedRecovery(incarnation, configuration), group.vote_barrier_term)
    if configuration.voters:
        group.replace_configurations([(group.configuration_index, configuration)])
