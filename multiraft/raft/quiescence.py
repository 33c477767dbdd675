"""The leader's timer: probes of silent members, and quiescence of groups without work.

Contract.  ``MultiRaft`` calls ``on_leader_timer`` when the timer of a led group expires.

Theory.  Members that do not acknowledge are probed every ``retransmit_ms``.  When every reachable
member has acknowledged all entries and the commit index, and lacks no records, the timer is not
armed again: the group is quiesced, and costs neither messages nor time, because store liveness
replaces its heartbeats (CockroachDB quiesces ranges and TiKV hibernates regions for the same
reason).  ``Group.unquiesce`` arms the timer again.
"""

from __future__ import annotations

from multiraft.raft import leader_transfer, read_index, snapshot
from multiraft.raft.group import Group
from multiraft.raft.progress import Progress, ProgressState

#: A member without a replica of the group is probed at intervals of up to this many
#: ``retransmit_ms``.  The first intervals are shorter, because a probe makes its node create one.
UNKNOWN_GROUP_RETRY_MAX = 4
#: A quarantined member is probed at intervals of this many ``retransmit_ms``.  It reports its
#: repair itself; the probes cover the loss of that message.
QUARANTINED_RETRY = 16
#: The same of a member that copies records: it reports their number itself.
COPYING_RETRY = 16


def on_leader_timer(group: Group) -> None:
    """End an overdue transfer, send the commit index, probe members that have been silent for long,
    and arm the timer for the next of these.  If no reachable member lacks anything, quiesce the
    group."""
    context, log = group.context, group.log
    now_ms = context.now_ms
    if group.transferee and now_ms >= group.transfer_deadline_ms:
        leader_transfer.abort_transfer(group)
    group.commit_broadcast_due = True
    again_ms = group.transfer_deadline_ms if group.transferee else 0
    if group.reads is not None and read_index.resend_round(group):
        due_ms = now_ms + context.config.retransmit_ms
        again_ms = min(again_ms, due_ms) if again_ms else due_ms
    for member in group.progress.values():
        # Members that are unreachable do not keep the group active: it is re-examined when they
        # return.
        has_all = member.has_all(log.last_index, log.commit)
        if has_all and not member.records_left or not _is_reachable(group, member):
            continue
        retry_ms = context.config.retransmit_ms
        if has_all:
            retry_ms *= COPYING_RETRY
        if member.state is ProgressState.UNKNOWN_GROUP:
            retry_ms *= min(UNKNOWN_GROUP_RETRY_MAX, 1 << member.unknown_replies - 1)
        elif member.state is ProgressState.QUARANTINED:
            retry_ms *= QUARANTINED_RETRY
        elif member.state is ProgressState.SNAPSHOT:
            retry_ms *= snapshot.OFFER_RETRY
        if now_ms - member.progressed_ms >= retry_ms:
            member.retreat()
            member.progressed_ms = now_ms
        due_ms = member.progressed_ms + retry_ms
        again_ms = min(again_ms, due_ms) if again_ms else due_ms
    if again_ms:
        context.timers.arm(group.id, again_ms)
    else:
        # Every reachable member has all entries, the commit index and its records.  The disarmed
        # timer is the whole of quiescing: any proposal, message or change of support arms it.
        group.emit("quiesced")
    group.touch()


def _is_reachable(group: Group, member: Progress) -> bool:
    """True if the member's node can answer a probe.  If not, its return re-examines the group."""
    support = group.context.support
    return member.node in support.support_from and member.node in support.connections
