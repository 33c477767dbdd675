"""Log replication and commit: appends of a leader, acceptance by followers, and the commit rule.

Contract.  Handlers of ``Append`` and ``AppendReply``, proposals, and ``send_appends``, which
``MultiRaft.ready`` calls once per touched group.

Invariants.  At most one ``Append`` per member and call of ``ready``.  A leader raises ``commit``
only to an index that is in its own term and durable on a majority (paper 5.4.2; anomalies A25); it
counts its own log by its durable index.  A follower's ``commit`` never passes the prefix that it
has verified (scenario S4).

Theory.  Paper 5.3.  Appends name ranges, because consensus needs terms and sizes and the driver has
the bytes.  A leader sends before its own disk has the entry (thesis 10.2.1).  A new commit index
rides on the next append, or is sent alone after ``commit_notice_ms``.  Members that do not
acknowledge are probed when the leader's timer expires (``quiescence.py``).
"""

from __future__ import annotations

from multiraft.errors import ImpossibleMessage, QueueFull
from multiraft.raft import (
    conf_change,
    head_recovery,
    joint_quorum,
    leader_transfer,
    read_index,
    snapshot,
)
from multiraft.raft.group import Group
from multiraft.raft.messages import Append, AppendReply, Status
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.ready import Envelope
from multiraft.raft.replica_health import HealthState
from multiraft.raft.status import Role
from multiraft.types import Entry, EntryKind

#: Limit of the entries in a probe.  The probe does not know where the logs meet, so its entries may
#: be useless; but a new leader's first entry should not wait for a round trip.
PROBE_BYTES_MAX = 64 << 10

#: Catch-up windows that a throttled stream may have in flight.  The throttle bounds its rate.
#: Where processors are busy and a reply takes 0.2 s, a single window would bound it far below that.
THROTTLED_WINDOWS = 4

_MEMBERSHIP = int(EntryKind.MEMBERSHIP)
_PROBE = ProgressState.PROBE
_REPLICATE = ProgressState.REPLICATE


# ---- leader: proposals -------------------------------------------------------------------------


def check_limits(group: Group, size: int) -> None:
    """Raise ``QueueFull`` if a proposal of ``size`` framed bytes would exceed a limit of
    uncommitted bytes or entries, or while a leadership transfer is under way."""
    config = group.context.config
    if group.transferee:
        raise QueueFull(f"proposals while group {group.id} is handed to node {group.transferee}",
                        0, 1)
    if group.uncommitted_bytes + size > config.uncommitted_bytes_max:
        raise QueueFull("uncommitted_bytes_max", config.uncommitted_bytes_max,
                        group.uncommitted_bytes + size)
    pending = group.log.last_index - group.log.commit + 1
    if pending > config.uncommitted_entries_max:
        raise QueueFull("uncommitted_entries_max", config.uncommitted_entries_max, pending)


def propose(group: Group, entry: Entry, size: int) -> None:
    """Append a leader's own entry of ``size`` framed bytes, count it as uncommitted, and reactivate
    the group if it is quiesced."""
    group.append(entry)
    group.uncommitted_bytes += size
    if group.context.timers.deadline(group.id) is None:
        group.unquiesce()


# ---- leader: sending ---------------------------------------------------------------------------


def send_appends(group: Group, fresh: tuple[Entry, ...], fresh_bytes: int) -> None:
    """Queue an append for each connected member that needs one: entries while its window has space,
    a probe, a due commit index, or the read round.

    ``fresh`` are the entries staged by this call of ``ready``, ``fresh_bytes`` in size: the store
    does not know their sizes yet.  O(members)."""
    staged = group.log.staged_index
    commit = group.log.commit
    connections = group.context.support.connections
    if group.reads is not None:
        read_index.begin(group)
    for member in group.progress.values():
        connection = connections.get(member.node)
        if connection is None:
            continue  # ``MultiRaft.connected`` re-examines the group
        if connection != member.connection:
            member.connection = connection
            # Another connection: appends in flight on the old one may be lost, and a probe as well;
            # so may the reply of a member that has copied its records.
            if member.state is _PROBE or member.inflight or member.records_left:
                member.retreat()
        if member.state is _REPLICATE:
            if member.next_index <= staged:
                _stream(group, member, fresh, fresh_bytes)
            elif group.commit_broadcast_due and member.commit_sent < commit:
                _send_append(group, member, member.next_index - 1, member.next_index - 1)
        elif member.state is _PROBE and not member.probe_sent:
            _probe(group, member, fresh)
        if group.reads is not None and read_index.is_unanswered(group, member):
            _send_round(group, member)
    group.commit_broadcast_due = False


def _stream(group: Group, member: Progress, fresh: tuple[Entry, ...], fresh_bytes: int) -> None:
    config = group.context.config
    first = member.next_index
    if first > group.log.commit:
        window_bytes, append_bytes = config.peer_window_bytes, config.append_bytes_max
    else:  # catch-up: no client waits for these entries
        window_bytes, append_bytes = config.catch_up_window_bytes, config.catch_up_append_bytes
    throttle = group.context.throttle
    throttled = first <= group.log.commit and throttle.is_throttled(group.id, member.node)
    if throttled:
        window_bytes = min(THROTTLED_WINDOWS * window_bytes, config.peer_window_bytes)
    window_left = window_bytes - member.inflight_bytes
    if window_left <= 0:
        return  # an acknowledgement frees the window and touches the group
    bytes_max = min(append_bytes, window_left)
    if throttled:
        bytes_max = window_left = min(bytes_max, _throttled_bytes(group, member))
        if bytes_max <= 0:
            return  # the timer touches the group
    if first <= group.log.terms_from:
        snapshot.offer(group, member)
        return
    # The usual case: the member has everything but this round's entries.
    if fresh and first == fresh[0].index and fresh_bytes <= bytes_max:
        last, size = group.log.staged_index, fresh_bytes
    else:
        last, size = _range(group, first, bytes_max, fresh)
        if size > window_left and member.inflight:
            return  # an entry larger than the window is sent when nothing else is in flight
    _send_append(group, member, first - 1, last)
    member.sent(last, size, group.context.now_ms)
    if throttled:
        throttle.consume(group.id, member.node, size)
    if last < group.log.staged_index and member.inflight_bytes < window_bytes:
        group.touch()


def _throttled_bytes(group: Group, member: Progress) -> int:
    """Return the bytes that the throttle permits now to a replica that is being moved; below 1 =
    none.

    If none, arm the group's timer for the time when it permits some; a member with nothing in
    flight does not count as silent meanwhile."""
    context = group.context
    available = context.throttle.available(group.id, member.node, context.now_ms)
    if available < 1:
        if not member.inflight:
            member.progressed_ms = context.now_ms
        due_ms = context.throttle.due_ms(group.id, member.node)
        if due_ms is not None:
            context.timers.arm(group.id, max(due_ms, context.now_ms + 1))
    return available


def _range(group: Group, first: int, bytes_max: int, fresh: tuple[Entry, ...]) -> tuple[int, int]:
    """Return (last index, bytes) of the entries from ``first`` on that fit into ``bytes_max``, at
    least one entry.

    They come from the store, or from the entries staged in this call of ``ready``, never from
    both."""
    if not fresh or first < fresh[0].index:
        known = group.log.staged_index - len(fresh)
        last = min(group.context.store.last_within(group.id, first, bytes_max), known)
        return last, group.context.store.bytes_between(group.id, first, last)
    last, size = first - 1, 0
    for entry in fresh[first - fresh[0].index:]:
        more = framed_bytes(entry)
        if size and size + more > bytes_max:
            break
        last, size = entry.index, size + more
    return last, size


def _probe(group: Group, member: Progress, fresh: tuple[Entry, ...]) -> None:
    """Send an append that asks if the member's log matches at ``next_index - 1``.  It carries
    entries if they fit into ``PROBE_BYTES_MAX``.  If the next entry is compacted, or the term
    before it is a guess, offer a snapshot instead."""
    first = member.next_index
    if first <= group.log.terms_from:
        snapshot.offer(group, member)
        return
    last = first - 1
    if first <= group.log.staged_index:
        bytes_max = min(PROBE_BYTES_MAX, group.context.config.append_bytes_max)
        upto, size = _range(group, first, bytes_max, fresh)
        if size <= bytes_max:
            last = upto
    _send_append(group, member, first - 1, last)
    member.probe_sent = True


def _send_round(group: Group, member: Progress) -> None:
    """Send the read round by an append without entries; a member that answers it has not seen a
    later leader.  Do nothing outside of PROBE and REPLICATE, or if the member's place is
    compacted."""
    prev = member.next_index - 1
    if member.state in (_PROBE, _REPLICATE) and prev >= group.log.terms_from:
        _send_append(group, member, prev, prev)


def _send_append(group: Group, member: Progress, prev: int, last: int) -> None:
    """Queue an append of the entries behind ``prev`` up to ``last``.  Members with equal progress
    get the same object, which a driver may use to encode it once."""
    log, outbox, commit = group.log, group.outbox, group.log.commit
    append = outbox[-1].message if outbox else None
    if (type(append) is not Append or append.prev_index != prev or append.last_index != last
            or append.commit != commit or append.read_round != group.read_round
            or append.term != group.term):
        append = Append(group.id, group.incarnation, group.term, prev, log.term_at(prev), last,
                        commit, (), group.read_round)
    outbox.append(Envelope(member.node, append))
    member.commit_sent = commit
    member.sent_round = group.read_round


# ---- leader: replies ---------------------------------------------------------------------------


def on_append_reply(group: Group, sender: int, reply: AppendReply) -> None:
    """Process a reply to an append: advance the member's progress, or probe it again; step down if
    its term is later.

    A sender that is no member is notified of its removal.  Replies of earlier terms, or from before
    the member was added or restarted, are ignored."""
    member = group.progress.get(sender)
    if member is None:
        if reply.term <= group.term and reply.status != Status.UNKNOWN_GROUP:
            conf_change.notify_removed(group, sender)
        return  # its term and indexes are not evidence about this group
    if reply.term > group.term:
        group.become_follower(reply.term, 0, "higher term")
        return
    if reply.term < group.term:
        return  # a reply to this node in an earlier term
    if reply.read_round < member.added_at_round:
        return  # from before the member was added or restarted; see ``Progress.added_at_round``
    # The member was in this term when it answered: a majority of such answers confirms leadership.
    if reply.read_round > member.acked_round and reply.status == Status.OK:
        member.acked_round = reply.read_round
        if group.reads is not None:
            read_index.on_round_answered(group)
    status = reply.status
    if status == Status.OK or status == Status.RECOVERING_HEAD:
        _on_acknowledged(group, member, reply)
    elif status == Status.MISMATCH:
        _on_mismatch(group, member, reply)
    elif status == Status.UNKNOWN_GROUP:
        member.unknown_replies += 1
        # Its replica is gone, and what it acknowledged with it: count it no longer.
        if member.match:
            member.replica_lost()
            group.forget_replies_of(member)
            group.unquiesce()
        _probe_seldom(group, member, ProgressState.UNKNOWN_GROUP)
    else:
        _probe_seldom(group, member, ProgressState.QUARANTINED)


def _on_acknowledged(group: Group, member: Progress, reply: AppendReply) -> None:
    log = group.log
    if reply.match > log.last_index:
        group.emit("message_dropped", member.node,
                   f"acknowledges {reply.match} of {log.last_index}")
        return
    recovering = member.recovery_nonce
    if (recovering or reply.status) and not head_recovery.accept_reply(group, member, reply):
        return
    # The grant ends a head recovery: acknowledgements of before then count, and may commit.
    news = (member.acknowledged(reply.match, group.context.now_ms)
            or member.recovery_nonce != recovering)
    # Assigned, not maximised: after a restart the member knows a lower index, and needs this one
    # again.
    member.commit_known = reply.commit
    member.below_vote_barrier = bool(reply.hint_term & 1)
    left = reply.hint_term >> 1
    if member.records_left and not left and group.context.timers.deadline(group.id) is not None:
        # The timer waits for the next probe of a member that copies: it may quiesce the group now.
        group.context.timers.arm(group.id,
                                 group.context.now_ms + group.context.config.retransmit_ms)
    member.records_left = left
    if member.state is not _REPLICATE:
        matched_index = min(max(reply.hint_index, member.match), log.last_index)
        member.become_replicate(matched_index + 1)
    if news:
        if reply.match > log.commit:
            maybe_commit(group)
        if group.transferee == member.node:
            leader_transfer.continue_transfer(group)
    if member.next_index <= log.staged_index:
        group.touch()


def _on_mismatch(group: Group, member: Progress, reply: AppendReply) -> None:
    """Move the probe to the last entry that may match: one round trip per term instead of per
    entry.

    The hint is never followed below ``match``, which the member has acknowledged as durable.  A
    lower hint is an old reply, or the member's disk was wiped, with its vote and acknowledgements
    (scenario S28f).  That member gets nothing; the timer probes again, and an event names the
    reason.

    With relaxed durability a power loss may have lost acknowledged entries.  Then ``match`` is
    reset, which is always safe: a lower ``match`` only counts for less."""
    if reply.hint_index < member.match and group.context.config.accept_lost_entries:
        member.match = member.commit_known = 0
        group.forget_replies_of(member)
        group.emit("member_changed", member.node, "lost_entries")
        group.unquiesce()
    if reply.hint_index < member.match:
        group.emit("message_dropped", member.node,
                   f"has {reply.hint_index}, acknowledged {member.match}")
        return
    index, term = group.log.last_not_above(reply.hint_index, reply.hint_term)
    if index > reply.hint_index or term > reply.hint_term:
        # The logs may meet only in the compacted part: the entry before this log's start is above
        # the hint or of a later term.  Further probes would get the same hint without end.
        snapshot.offer(group, member)
        return
    member.become_probe(index + 1)
    group.touch()


def _probe_seldom(group: Group, member: Progress, state: ProgressState) -> None:
    if member.state is not state:
        group.emit("member_changed", member.node, state.name.lower())
    member.retreat()
    member.state = state
    member.progressed_ms = group.context.now_ms
    if group.transferee == member.node:
        # Proposals need not wait for a member that cannot become leader.
        leader_transfer.abort_transfer(group)


def maybe_commit(group: Group) -> None:
    """Raise the commit index to the highest index that is durable on a majority and of this term;
    do nothing if it is not higher.

    A higher one sends due head recovery grants, is announced to members within
    ``commit_notice_ms``, and continues an open configuration change.

    Raft paper 5.4.2 and figure 8: an entry of an earlier term on a majority can still be
    overwritten, so it commits only together with one of this term."""
    log = group.log
    index = joint_quorum.committed(group.configuration, group.durable_of)
    # Terms ascend along the log, so an index from ``term_start`` on is in the leader's own term.
    if index <= log.commit or index < group.term_start:
        return
    first_own = max(log.commit, group.term_start) + 1  # the term's first entry is not a proposal
    if index >= first_own:
        group.uncommitted_bytes -= group.context.store.bytes_between(group.id, first_own, index)
        assert group.uncommitted_bytes >= 0, f"uncommitted {group.uncommitted_bytes} B"
    log.commit_to(index)
    if group.recovering_count:
        head_recovery.send_due_grants(group)
    # Members learn the index by an empty append, if no entries are sent before.
    if group.progress:
        context = group.context
        context.timers.arm(group.id, context.now_ms + context.config.commit_notice_ms)
    group.touch()
    if group.conf_change_open:
        conf_change.on_commit(group)


# ---- follower ----------------------------------------------------------------------------------


def on_append(group: Group, sender: int, append: Append) -> None:
    """Process AppendEntries at a replica that does not lead (paper 5.3): take new entries and the
    commit index, and acknowledge once the entries are durable.

    An append of an earlier term, or behind an entry that the log does not have, is answered with
    ``MISMATCH``.  Raises ``ImpossibleMessage`` if the append contradicts a committed entry."""
    if append.term < group.term:
        group.reply_append(sender, Status.MISMATCH)
        return
    if append.term > group.term or group.role is not Role.FOLLOWER or group.leader != sender:
        group.become_follower(append.term, sender)
    group.heard_ms = group.context.now_ms
    if append.read_round > group.read_round:
        group.read_round = append.read_round
    if append.commit > group.leader_commit_seen:
        group.leader_commit_seen = append.commit
    if group.health.why and not head_recovery.may_accept(group, sender):
        if group.health.state is not HealthState.REMOVED:
            group.reply_append(sender, Status.QUARANTINED)
        return
    fault = _fault(append, group.log_incarnation)
    if fault:
        group.emit("message_dropped", sender, fault)
        return
    log = group.log
    prev = append.prev_index
    # Up to ``commit`` the logs agree (leader completeness), so a compacted prefix needs no check.
    if prev > log.commit:
        if not log.matches(prev, append.prev_term):
            group.reply_append(sender, Status.MISMATCH, log.last_not_above(prev, append.prev_term))
            return
    elif prev >= log.terms_from and log.term_at(prev) != append.prev_term:
        raise ImpossibleMessage(f"group {group.id}: node {sender} has term {append.prev_term} at "
                                f"{prev}, committed here is term {log.term_at(prev)}")
    appended = bool(append.entries) and _accept(group, sender, append.entries)
    if group.health.is_frozen:
        return
    # Only up to the append's own end: entries behind it may be of another leader and not match.
    if append.last_index > group.matched_index:
        group.matched_index = append.last_index
    if log.commit_to(min(append.commit, group.matched_index)) or not appended:
        group.touch()
    if not appended:
        # Otherwise ``on_written`` acknowledges, once the entries are durable.
        group.ack_leader = sender


def on_append_as_leader(group: Group, sender: int, append: Append) -> None:
    """Process an append of another leader, which must be of an earlier or a later term.  Raises
    ``ImpossibleMessage`` for two leaders of one term."""
    if append.term == group.term:
        raise ImpossibleMessage(
            f"group {group.id}: nodes {group.context.node} and {sender} both lead "
            f"term {append.term}"
        )
    on_append(group, sender, append)


def _fault(append: Append, incarnation: int) -> str:
    """Return why the entries do not fit the append's range, or a log of ``incarnation``; empty if
    they do."""
    index, term = append.prev_index, append.prev_term
    for entry in append.entries:
        index += 1
        if (entry.index != index or entry.term < term or entry.group != append.group
                or entry.incarnation != incarnation):
            return f"{entry!r} at {index}@{term}"
        term = entry.term
    if index != append.last_index or term > append.term:
        return f"entries to {index}@{term} for an append to {append.last_index}@{append.term}"
    return ""


def _accept(group: Group, sender: int, entries: tuple[Entry, ...]) -> bool:
    """Append the entries that the log lacks, after removal of a conflicting suffix; return False if
    it lacks none.

    An entry that contradicts the tail state is not appended: the replica is quarantined and answers
    ``INVALID_ENTRY``, and the result is False.  Raises ``ImpossibleMessage``."""
    log, tail = group.log, group.tail
    skip = 0
    # An append that arrives late may end before this log does.  Only a conflict truncates: a
    # shorter append alone must not remove entries that were acknowledged (paper 5.3).
    if entries[0].index <= log.last_index:
        skip = _known(group, entries)
        if skip == len(entries):
            return False
        first = entries[skip].index
        if first <= group.matched_index:
            raise ImpossibleMessage(f"group {group.id}: node {sender} sends another entry {first} "
                                    f"in the same term")
        if first <= log.last_index:
            group.truncate(first)
    for entry in entries[skip:] if skip else entries:
        # Verified before it is in the log: an entry that cannot be applied would stop every
        # replica.
        why = tail.check_entry(entry)
        if entry.kind == _MEMBERSHIP and not why:
            why = joint_quorum.fault(entry.payload)
        if why:
            group.quarantine(f"entry {entry.index}@{entry.term} of node {sender}: {why}")
            group.reply_append(sender, Status.INVALID_ENTRY)
            return False
        log.append(entry)
        tail.append(entry)
        # It counts from now on, committed or not (thesis 4.1); ``truncate`` reverts it with the
        # entry.
        if entry.kind == _MEMBERSHIP:
            group.adopt(entry.index, joint_quorum.decode(entry.payload))
    group.touch()
    return True


def _known(group: Group, entries: tuple[Entry, ...]) -> int:
    """Return how many of the first entries are in the log already, or compacted.  Raises
    ``ImpossibleMessage`` if one contradicts a committed entry."""
    log = group.log
    for count, entry in enumerate(entries):
        if entry.index > log.last_index:
            return count
        if entry.index >= log.terms_from and log.term_at(entry.index) != entry.term:
            if entry.index <= log.commit:
                raise ImpossibleMessage(f"group {group.id}: {entry!r} contradicts a committed "
                                        f"entry of term {log.term_at(entry.index)}")
            return count
    return len(entries)


def on_written(group: Group, durable_before: int) -> None:
    """React to a higher durable index: count it as a leader, or acknowledge it as a follower.

    A follower acknowledges only if a verified entry became durable."""
    if group.role is Role.LEADER:
        if group.log.durable_index > group.log.commit:
            maybe_commit(group)
    elif group.leader and not group.health.is_frozen and durable_before < group.matched_index:
        group.ack_leader = group.leader
        group.touch()
        if group.health.nonce:
            head_recovery.check_barrier(group)
    if group.log.commit > group.log.emitted_index:
        group.touch()  # may have been committed by other disks before this one had it
