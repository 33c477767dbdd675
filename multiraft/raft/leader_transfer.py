"""Leadership transfer: choice of a transferee, the request to it, and resignation.

Contract.  Functions of a leader's group, called by ``MultiRaft``, ``replication`` and
``conf_change``.  The transferee's half is ``election.on_timeout_now``.

Invariants.  At most one transfer per group.  While one is under way the leader refuses proposals.
It ends when the transferee wins, cannot lead the group, or ``transfer_timeout_ms`` have passed.

Theory.  Thesis 3.10.  ``TimeoutNow`` leaves when the transferee's log is complete, so that the
transferee wins the election that it begins at once; voters grant although they trust the old leader
(``VoteRequest.transfer``).
"""

from __future__ import annotations

from multiraft.raft import joint_quorum
from multiraft.raft.group import Group
from multiraft.raft.messages import TimeoutNow
from multiraft.raft.status import Role


def best_transferee(group: Group) -> int:
    """Return the voter that can take over soonest; 0 = no voter is reached.  O(members).

    Only voters that are reached and whole are considered.  Those with disk space for records
    precede full ones, and those with all records the others.  Then the longest known log decides,
    then the order of preference, so that the groups of one node spread over many nodes."""
    order = group.configuration.voters
    able = [member for member in group.progress.values()
            if member.node in order and _could_lead(group, member.node)]
    if not able:
        return 0
    full = group.context.support.full
    return max(able, key=lambda member: (member.node not in full, not member.records_left,
                                         member.match, -order.index(member.node))).node


def can_shed_leadership(group: Group) -> bool:
    """True if a majority is reached, whole and has disk space, so that records can be committed
    without this leader's disk.  O(voters).

    Two majorities meet, so ``best_transferee`` then has disk space and every committed entry.
    Without such a majority any leader could only keep records waiting; refusing them here is
    clearer, and keeps a group from moving between disks that fill up."""
    context = group.context
    return joint_quorum.supported(
        group.configuration, lambda node: (node != context.node and node not in context.support.full
                                           and _could_lead(group, node)))


def complete_transferee(group: Group) -> int:
    """Return the ``best_transferee`` if it has all records and space for others; 0 = there is
    none.  O(members)."""
    best = best_transferee(group)
    if not best or group.progress[best].records_left or best in group.context.support.full:
        return 0
    return best


def _could_lead(group: Group, node: int) -> bool:
    support = group.context.support
    return (node in support.support_from and node in support.connections
            and group.progress[node].is_intact)


def transfer(group: Group, to: int) -> None:
    """Begin to transfer leadership to ``to``; proposals are refused until the transfer ends.  The
    caller has checked that ``to`` can lead."""
    context = group.context
    group.transferee = to
    group.transfer_deadline_ms = context.now_ms + context.config.transfer_timeout_ms
    group.emit("leadership_transfer", to, "started")
    context.timers.arm(group.id, group.transfer_deadline_ms)
    continue_transfer(group)
    group.touch()


def continue_transfer(group: Group) -> None:
    """Send ``TimeoutNow`` if the transferee has acknowledged the whole log; otherwise its next
    acknowledgement calls this again."""
    member = group.progress[group.transferee]
    if member.match == group.log.last_index:
        group.send(member.node, TimeoutNow(group.id, group.incarnation, group.term))


def abort_transfer(group: Group) -> None:
    """End a transfer that failed, and take proposals again."""
    group.emit("leadership_transfer", group.transferee, "aborted")
    group.transferee = 0


def resign(group: Group, why: str) -> None:
    """Stay out of elections for ``lease_ms`` and, as leader, step down.  Before that, ask the voter
    with the longest known log, of those reached, to campaign at once.  O(members)."""
    context = group.context
    group.abstain_until_ms = context.now_ms + context.config.lease_ms
    if group.role is not Role.LEADER:
        return
    successors = [member for member in group.progress.values()
                  if joint_quorum.is_voter(group.configuration, member.node)
                  and _could_lead(group, member.node)]
    if successors:
        best = max(successors, key=lambda member: (member.match, not member.records_left,
                                                   -member.node))
        group.send(best.node, TimeoutNow(group.id, group.incarnation, group.term))
    group.become_follower(group.term, 0, why)
