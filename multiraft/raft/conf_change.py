"""Change of members: what a leader writes, when it goes on by itself, who is told.

Contract.  ``change_members`` begins a change or refuses it; everything after that follows from
commits (``on_commit``), under whatever leader.  One change at a time.
Invariants.  A configuration counts from the moment it is in the log, committed or not, and goes
with a dropped suffix (``Group.adopt``, ``Group.truncate``); no entry follows an uncommitted
configuration with another one.  A leader counts itself only when it is a voter.
Theory.  Thesis 4.3: voters change through a joint configuration in which both majorities decide, so
any number of them may change at once, and a leader leaves the joint state as soon as it is
committed.  Learners count for nothing and change in one step.  A change begins only when an entry
of the leader's own term is committed (Ongaro 2015, the flaw of single-server changes; scenario
S29).  A leader that is not among the new voters manages the group until they have committed that,
without counting itself, then calls upon the best of them (thesis 4.2.2, scenario S30).
    Whoever is no member any more is told by the leader, when the configuration without it is
committed and whenever it asks: nobody else knows for sure (scenario S38).
"""

from __future__ import annotations

from multiraft.errors import (
    ChangeOpen,
    InvalidMembers,
    MemberBarred,
    MemberLags,
    MembershipError,
)
from multiraft.raft import election, head_recovery, joint_quorum, leader_transfer, read_index
from multiraft.raft.group import Group
from multiraft.raft.messages import HeadRecoveryRequest, Removed, VoteRequest
from multiraft.raft.progress import ProgressState
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.replica_records import ForcedRecovery, Tombstone, reincarnation, tombstone
from multiraft.raft.status import Role
from multiraft.types import Configuration, Entry, EntryKind, HardState

#: A survivor goes on in a term that leaves this part of ``term_jump_max`` to leaders that it has
#: not heard of, and that nobody shall take for newer: four thousand, an hour of elections.
UNHEARD_SHARE = 256


def change_members(group: Group, voters: tuple[int, ...], learners: tuple[int, ...]) -> Entry:
    """Begin to make these the members of a group that is led here; the entry that does.  Raises
    ``MembershipError``; nothing was appended then."""
    current = group.configuration
    if group.transferee:
        raise ChangeOpen(f"group {group.id} is being handed to node {group.transferee}")
    if is_open(group):
        raise ChangeOpen(f"group {group.id} is changing its members at index "
                         f"{group.configuration_index}")
    if group.log.commit < group.term_start:
        raise ChangeOpen(f"group {group.id} has committed nothing in term {group.term} yet")
    if not voters:
        raise InvalidMembers(f"group {group.id} needs a voter")
    try:
        changed = joint_quorum.validate(joint_quorum.entered(current, voters, learners))
    except ValueError as error:
        raise InvalidMembers(f"group {group.id}: {error}") from error
    if (set(voters), set(learners)) == (set(current.voters), set(current.learners)):
        raise InvalidMembers(f"these are the members of group {group.id}")
    for node in voters:
        if node not in current.voters:
            _check_new_voter(group, node)
    if not joint_quorum.supported(changed, lambda node: _is_counted(group, node)):
        raise MembershipError(f"too few of the voters {voters} of group {group.id} are reached and "
                              f"whole")
    return _append(group, changed)


def _is_counted(group: Group, node: int) -> bool:
    """Whether a voter can help to commit the change, as far as this leader knows.  One that doubts
    itself is cleared by what the others hold; by nothing any more if nobody leads without it."""
    member = group.progress.get(node)
    return group.context.support.is_supported_by(node) and (member is None or member.is_whole)


def is_open(group: Group) -> bool:
    """Whether a change is not through: joint, or not committed."""
    return bool(group.configuration.outgoing) or group.configuration_index > group.log.commit


def _check_new_voter(group: Group, node: int) -> None:
    """Only a learner that has nearly everything becomes a voter: a majority that waits for it would
    stop the group (thesis 4.2.1)."""
    limit = group.context.config.promotion_lag_entries_max
    member = group.progress.get(node)
    if node not in group.configuration.learners or member is None:
        raise InvalidMembers(f"node {node} must be a learner of group {group.id} before it can be "
                             f"a voter")
    lacks = group.log.last_index - member.match
    if member.state is not ProgressState.REPLICATE or lacks > limit:
        raise MemberLags(node, lacks, limit)
    if member.match < group.configuration_index:  # it does not know that it is a member
        raise MemberLags(node, lacks, lacks - 1)
    if member.vote_barrier_index:
        raise MemberBarred(node, group.id)


def _append(group: Group, configuration: Configuration) -> Entry:
    entry = Entry(EntryKind.MEMBERSHIP, group.id, group.log_incarnation, group.term,
                  group.log.last_index + 1, payload=joint_quorum.encode(configuration))
    group.append(entry)
    group.uncommitted_bytes += framed_bytes(entry)
    group.adopt(entry.index, configuration)
    read_index.on_voters_changed(group)
    group.wake()
    return entry


def on_commit(group: Group) -> None:
    """The commit index moved while a change is open: go on when it is the change that is
    committed."""
    commit = group.log.commit
    if commit < group.configuration_index or commit < group.term_start:
        return
    if group.configuration.outgoing:
        _append(group, joint_quorum.left(group.configuration))
        return
    group.conf_change_open = False
    removed_members, group.removed_members = group.removed_members, {}
    for node in removed_members:
        tell_removed(group, node)
    if group.context.node not in group.configuration.members():
        leader_transfer.resign(group, "removed")
        group.mark_removed("removed", group.configuration_index)
    elif not joint_quorum.is_voter(group.configuration, group.context.node):
        leader_transfer.resign(group, "no voter any more")


# ---- who is no member any more -----------------------------------------------------------------


def tell_removed(group: Group, node: int) -> None:
    """This leader tells a node that the group lives without it, if that is committed."""
    if not is_open(group):
        group.send(node, Removed(group.id, group.incarnation, group.term, group.read_round,
                                 group.configuration_index))


def on_vote_request_as_leader(group: Group, sender: int, request: VoteRequest) -> None:
    """Somebody asks for votes, or what became of its group."""
    member = group.progress.get(sender)
    if member is None:
        _on_stranger(group, sender, request.term - request.pre)
        if group.role is not Role.LEADER:
            return
    elif member.state is ProgressState.ABSENT:
        member.retreat()  # it has the group now
        group.touch()
    election.on_vote_request(group, sender, request)


def on_doubt_as_leader(group: Group, sender: int, message: HeadRecoveryRequest) -> None:
    """Somebody asks not to be counted, who may not be a member any more."""
    if sender in group.progress:
        head_recovery.on_doubt(group, sender, message)
    else:
        _on_stranger(group, sender, message.term)


def _on_stranger(group: Group, sender: int, term: int) -> None:
    """A replica that is no member asks.  When it is in a later term (it campaigned while it was one
    and nobody heard) it would not believe this leader: a new election brings the terms together,
    once, because what is no member wins no pre-vote."""
    if is_open(group):
        return  # it asks again
    if term > group.term:
        group.become_follower(term, 0, "a removed replica is in a later term")
    else:
        tell_removed(group, sender)


def _was_added_since(group: Group, message: Removed) -> bool:
    """Whether a configuration that is not older than what the leader speaks of has this node in it.
    One that is neither committed nor of the leader's term is not in the leader's log: it is as good
    as dropped."""
    index = group.configuration_index
    if index < message.index or group.context.node not in group.configuration.members():
        return False
    return index <= group.log.commit or group.log.term_at(index) >= message.term


def on_removed(group: Group, sender: int, message: Removed) -> None:
    """The leader says that this replica is no member.  It is old news when this replica has heard
    more from that leader since."""
    if ((message.term, message.read_round) < (group.term, group.read_round)
            or _was_added_since(group, message)):
        return
    if message.term > group.term:  # what it forgets must not follow a leader from before that
        group.become_follower(message.term, 0, "higher term")
    group.mark_removed(f"removed by n{sender}", message.index)


# ---- the end of a life, and a new one ----------------------------------------------------------


def tombstone_of(group: Group) -> Entry:
    """What has to be remembered of a replica when it is gone: its hard state, and to which place of
    the log its next life has to come before it votes.  Who was told (``mark_removed``) goes by the
    configuration that removed it: nothing that it acknowledged was counted behind that.  Who was
    not goes by the end of its log, which has all that it acknowledged."""
    if group.id not in group.context.removing:
        _bar_at_the_end(group)
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


def _bar_at_the_end(group: Group) -> None:
    """Bar the next life up to the end of this log.  Of a damaged one the last term may be a guess:
    no entry is of a later one than the replica is in.  A bar by an index alone, from an earlier
    version, that still holds goes on as one."""
    log = group.log
    if group.vote_barrier_index and not group.vote_barrier_term and group.is_below_vote_barrier():
        group.vote_barrier_index = max(group.vote_barrier_index, log.last_index)
    else:
        group.bar(group.term if group.quarantined else log.last_term, log.last_index)


def reincarnate(group: Group, incarnation: int, configuration: Configuration,
                vote_barrier_index: int = 0, vote_barrier_term: int = 0) -> None:
    """The group goes on from this replica's log in a new incarnation, with members that are named
    and not elected.  Nothing that was said in the old one counts; the term goes on.  A replica that
    is empty names nobody: it votes when its log has come to the place (``vote_barrier_term``,
    ``vote_barrier_index``) of the leader that wants it, who began there in the new incarnation,
    because configurations of the old one come before that; a later leader may have a shorter log,
    and is in a later term.  So does one in doubt
    that may have gone on already and lost the record of it: its log says who the members are, as
    far as it is cleared."""
    assert incarnation > group.incarnation, f"{incarnation} after {group.incarnation}"
    unheard = group.context.config.term_jump_max // UNHEARD_SHARE if configuration.voters else 0
    group.become_follower(group.term + 1 + unheard, 0, "recovered by force")
    group.incarnation = incarnation
    group.vote_barrier_index, group.vote_barrier_term = ((0, 0) if configuration.voters
                                       else (max(1, vote_barrier_index), vote_barrier_term))
    group.mark = reincarnation(group.id, group.log_incarnation,
                               group.vote_barrier_index or group.log.last_index,
                               ForcedRecovery(incarnation, configuration), group.vote_barrier_term)
    if configuration.voters:
        group.replace_configurations([(group.configuration_index, configuration)])
