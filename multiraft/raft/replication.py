"""Replication and commit: what a leader sends, what a follower accepts, what counts as committed.

Contract.  Handlers of ``Append`` and ``AppendReply``, the leader's timer, proposals, and
``send_appends``, which ``ready`` calls once per round and touched group.
Invariants.  At most one Append per member and round.  ``commit`` moves only over entries of the
leader's own term that a majority holds durably (paper 5.4.2; anomalies A25), this node's own log
counted by its durable index; a follower's never passes the prefix it verified (scenario S4).
Theory.  Paper 5.3.  Appends name ranges, because consensus needs terms and sizes and the driver has
the bytes.  A leader sends before its own disk has the entry (thesis 10.2.1).  A commit advance
rides on the next append or is announced after ``commit_notice_ms``; members that do not confirm are
asked again every ``retransmit_ms``, and when all that can be reached have confirmed the timer is
not armed again: the group sleeps.
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
from multiraft.raft.group import REMOVED, Group
from multiraft.raft.messages import Append, AppendReply, Status
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.ready import Envelope
from multiraft.raft.status import Role
from multiraft.types import Entry, EntryKind

#: A probe carries entries only up to this: where the logs meet is not known yet, so most of what is
#: sent may be sent in vain, but a new leader's first entry should not wait a round trip.
PROBE_BYTES_MAX = 64 << 10

#: A stream that a throttle paces may have so many catch-up windows on the way: the throttle bounds
#: its rate, and where an answer takes 0.2 s, because processors are busy, one window would, far
#: below it.
PACED_WINDOWS = 4

#: A member that does not know the group is asked again after this many ``retransmit_ms``; at first
#: sooner: being asked is what has it create its replica.
ABSENT_PATIENCE = 4
#: One that is quarantined is asked again after this many: it says so when it is repaired, and that
#: message may get lost.
QUARANTINED_RETRY = 16

_MEMBERSHIP = int(EntryKind.MEMBERSHIP)
_PROBE = ProgressState.PROBE
_REPLICATE = ProgressState.REPLICATE


# ---- leader: proposals -------------------------------------------------------------------------


def check_room(group: Group, size: int) -> None:
    """Refuse a proposal of ``size`` bytes that would exceed a limit.  Raises ``QueueFull``."""
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
    """Append a leader's own entry of ``size`` framed bytes."""
    group.append(entry)
    group.uncommitted_bytes += size
    if group.context.timers.deadline(group.id) is None:
        group.wake()


# ---- leader: sending ---------------------------------------------------------------------------


def send_appends(group: Group, fresh: tuple[Entry, ...], fresh_bytes: int) -> None:
    """One append for each member that lacks something and has room.  ``fresh`` are the entries
    staged in this very round, whose sizes the store does not know yet."""
    staged = group.log.staged_index
    commit = group.log.commit
    connections = group.context.support.connections
    if group.reads is not None:
        read_index.begin(group)
    for member in group.progress.values():
        connection = connections.get(member.node)
        if connection is None:
            continue  # its connection coming up re-examines the group
        if connection != member.connection:
            member.connection = connection
            if member.state is _PROBE or member.inflight:
                member.retreat()
        if member.state is _REPLICATE:
            if member.next_index <= staged:
                _stream(group, member, fresh, fresh_bytes)
            elif group.commit_broadcast_due and member.commit_sent < commit:
                _send_append(group, member, member.next_index - 1, member.next_index - 1)
        elif member.state is _PROBE and not member.probe_sent:
            _probe(group, member, fresh)
        if group.reads is not None and read_index.is_unanswered(group, member):
            _ask(group, member)
    group.commit_broadcast_due = False


def _stream(group: Group, member: Progress, fresh: tuple[Entry, ...], fresh_bytes: int) -> None:
    config = group.context.config
    first = member.next_index
    if first > group.log.commit:
        window_bytes, append_bytes = config.peer_window_bytes, config.append_bytes_max
    else:  # what all others have: nobody waits for it
        window_bytes, append_bytes = config.catch_up_window_bytes, config.catch_up_append_bytes
    paced = first <= group.log.commit and group.context.pace.is_paced(group.id, member.node)
    if paced:
        window_bytes = min(PACED_WINDOWS * window_bytes, config.peer_window_bytes)
    window_room = window_bytes - member.inflight_bytes
    if window_room <= 0:
        return  # an acknowledgement makes room and looks here again
    room = min(append_bytes, window_room)
    if paced:
        room = window_room = min(room, _paced_room(group, member))
        if room <= 0:
            return  # the timer looks here again
    if first < group.log.first_index:
        snapshot.offer(group, member)
        return
    if fresh and first == fresh[0].index and fresh_bytes <= room:
        last, size = group.log.staged_index, fresh_bytes
    else:
        last, size = _range(group, first, room, fresh)
        if size > window_room and member.inflight:
            return  # a single entry may exceed the window only when it is alone in it
    _send_append(group, member, first - 1, last)
    member.sent(last, size, group.context.now_ms)
    if paced:
        group.context.pace.took(group.id, member.node, size)
    if last < group.log.staged_index and member.inflight_bytes < window_bytes:
        group.touch()


def _paced_room(group: Group, member: Progress) -> int:
    """Bytes that may go to a replica that is being moved; when none may, it is not silent because
    of that, and the timer is armed for when some may."""
    context = group.context
    room = context.pace.room(group.id, member.node, context.now_ms)
    if room < 1:
        if not member.inflight:
            member.progressed_ms = context.now_ms
        due_ms = context.pace.due_ms(group.id, member.node)
        if due_ms is not None:
            context.timers.arm(group.id, max(due_ms, context.now_ms + 1))
    return room


def _range(group: Group, first: int, room: int, fresh: tuple[Entry, ...]) -> tuple[int, int]:
    """(last index, bytes) of what fits into ``room`` from ``first`` on: from the store, or from the
    entries staged in this round, never across the two."""
    if not fresh or first < fresh[0].index:
        known = group.log.staged_index - len(fresh)
        last = min(group.context.store.last_within(group.id, first, room), known)
        return last, group.context.store.bytes_between(group.id, first, last)
    last, size = first - 1, 0
    for entry in fresh[first - fresh[0].index:]:
        more = framed_bytes(entry)
        if size and size + more > room:
            break
        last, size = entry.index, size + more
    return last, size


def _probe(group: Group, member: Progress, fresh: tuple[Entry, ...]) -> None:
    """Ask whether the log meets the member's at ``next_index - 1``."""
    first = member.next_index
    if first < group.log.first_index:
        snapshot.offer(group, member)
        return
    last = first - 1
    if first <= group.log.staged_index:
        room = min(PROBE_BYTES_MAX, group.context.config.append_bytes_max)
        upto, size = _range(group, first, room, fresh)
        if size <= room:
            last = upto
    _send_append(group, member, first - 1, last)
    member.probe_sent = True


def _ask(group: Group, member: Progress) -> None:
    """An append without entries: who answers it knows no later leader."""
    prev = member.next_index - 1
    if member.state in (_PROBE, _REPLICATE) and prev >= group.log.first_index - 1:
        _send_append(group, member, prev, prev)


def _send_append(group: Group, member: Progress, prev: int, last: int) -> None:
    """Members in step get the very same message, which a driver may notice."""
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


# ---- leader: answers ---------------------------------------------------------------------------


def on_append_reply(group: Group, sender: int, reply: AppendReply) -> None:
    """A member answered this leader."""
    member = group.progress.get(sender)
    if member is None:
        if reply.term <= group.term and reply.status != Status.UNKNOWN_GROUP:
            conf_change.tell_removed(group, sender)
        return  # not a member (any more): its terms and indexes are none of ours
    if reply.term > group.term:
        group.become_follower(reply.term, 0, "higher term")
        return
    if reply.term < group.term:
        return  # an answer to an earlier term of this node
    if reply.read_round < member.since:
        return  # said before it was added (again): by an earlier life of that replica
    if reply.read_round > member.acked_round and reply.status == Status.OK:
        member.acked_round = reply.read_round
        if group.reads is not None:
            read_index.on_heard(group)
    status = reply.status
    if status == Status.OK or status == Status.RECOVERING_HEAD:
        _on_acknowledged(group, member, reply)
    elif status == Status.MISMATCH:
        _on_mismatch(group, member, reply)
    elif status == Status.UNKNOWN_GROUP:
        member.unknown_replies += 1
        if member.match:
            member.vanished()
            group.forget_word_of(member)
            group.wake()
        _set_aside(group, member, ProgressState.ABSENT)
    else:
        _set_aside(group, member, ProgressState.OUT)


def _on_acknowledged(group: Group, member: Progress, reply: AppendReply) -> None:
    log = group.log
    if reply.match > log.last_index:
        group.emit("drop", member.node, f"acknowledges {reply.match} of {log.last_index}")
        return
    doubted = member.doubt
    if (doubted or reply.status) and not head_recovery.may_feed(group, member, reply):
        return
    # What a doubter had acknowledged counts when it is cleared: that alone may commit.
    news = member.acknowledged(reply.match, group.context.now_ms) or member.doubt != doubted
    # Assigned, not maximised: after a restart the member knows less, and has to be told again.
    member.commit_known = reply.commit
    member.vote_barrier_index = reply.hint_term != 0
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
    """Go back to the last entry that may match: one round trip per term, not per entry.

    Never below ``match``, which the member has acknowledged as durable: such an answer is an old
    one, or its disk was wiped and its vote and acknowledgements with it (scenario S28f).  Then it
    gets nothing; the timer asks again, and the event says why the group does not sleep.  With
    relaxed durability a power loss may have taken it: what is known to match is forgotten as well,
    which is always safe, for it only counts for less."""
    if reply.hint_index < member.match and group.context.config.members_may_forget:
        member.match = member.commit_known = 0
        group.forget_word_of(member)
        group.emit("member", member.node, "forgot")
        group.wake()
    if reply.hint_index < member.match:
        group.emit("drop", member.node, f"has {reply.hint_index}, acknowledged {member.match}")
        return
    index, term = group.log.last_not_above(reply.hint_index, reply.hint_term)
    if index > reply.hint_index or term > reply.hint_term:
        # Where they may meet is compacted away here: what stands before the log start is above the
        # hint, or of a later term, so the member would say the same again, for ever.
        snapshot.offer(group, member)
        return
    member.become_probe(index + 1)
    group.touch()


def _set_aside(group: Group, member: Progress, state: ProgressState) -> None:
    if member.state is not state:
        group.emit("member", member.node, state.name.lower())
    member.retreat()
    member.state = state
    member.progressed_ms = group.context.now_ms
    if group.transferee == member.node:
        leader_transfer.give_up_transfer(group)  # it cannot take the group: proposals need not wait


def maybe_commit(group: Group) -> None:
    """Raise the commit index to what a majority holds durably, if this term's entries are in it."""
    log = group.log
    index = joint_quorum.committed(group.configuration, group.durable_of)
    if index <= log.commit or index < group.term_start:
        return
    first_own = max(log.commit, group.term_start) + 1  # the term's first entry is not proposed
    if index >= first_own:
        group.uncommitted_bytes -= group.context.store.bytes_between(group.id, first_own, index)
        assert group.uncommitted_bytes >= 0, f"uncommitted {group.uncommitted_bytes} B"
    log.commit_to(index)
    if group.recovering_count:
        head_recovery.clear_some(group)
    if group.progress:
        context = group.context
        context.timers.arm(group.id, context.now_ms + context.config.commit_notice_ms)
    group.touch()
    if group.conf_change_open:
        conf_change.on_commit(group)


# ---- leader: timer -----------------------------------------------------------------------------


def on_leader_timer(group: Group) -> None:
    """Give up a late transfer, announce the commit index, ask the silent again; or sleep."""
    context, log = group.context, group.log
    now_ms = context.now_ms
    if group.transferee and now_ms >= group.transfer_deadline_ms:
        leader_transfer.give_up_transfer(group)
    group.commit_broadcast_due = True
    again_ms = group.transfer_deadline_ms if group.transferee else 0
    if group.reads is not None and read_index.ask_again(group):
        due_ms = now_ms + context.config.retransmit_ms
        again_ms = min(again_ms, due_ms) if again_ms else due_ms
    for member in group.progress.values():
        if member.has_all(log.last_index, log.commit) or not _is_reachable(group, member):
            continue
        patience_ms = context.config.retransmit_ms
        if member.state is ProgressState.ABSENT:
            patience_ms *= min(ABSENT_PATIENCE, 1 << member.unknown_replies - 1)
        elif member.state is ProgressState.OUT:
            patience_ms *= QUARANTINED_RETRY
        elif member.state is ProgressState.SNAPSHOT:
            patience_ms *= snapshot.OFFER_PATIENCE
        if now_ms - member.progressed_ms >= patience_ms:
            member.retreat()
            member.progressed_ms = now_ms
        due_ms = member.progressed_ms + patience_ms
        again_ms = min(again_ms, due_ms) if again_ms else due_ms
    if again_ms:
        context.timers.arm(group.id, again_ms)
    else:
        group.emit("sleep")
    group.touch()


def _is_reachable(group: Group, member: Progress) -> bool:
    """Whether asking again makes sense; if not, the member's return re-examines the group."""
    support = group.context.support
    return member.node in support.support_from and member.node in support.connections


# ---- follower ----------------------------------------------------------------------------------


def on_append(group: Group, sender: int, append: Append) -> None:
    """AppendEntries at a replica that does not lead (paper 5.3)."""
    if append.term < group.term:
        group.reply_append(sender, Status.MISMATCH)
        return
    if append.term > group.term or group.role is not Role.FOLLOWER or group.leader != sender:
        group.become_follower(append.term, sender)
    group.heard_ms = group.context.now_ms
    if append.read_round > group.read_round:
        group.read_round = append.read_round
    if append.commit > group.commit_said:
        group.commit_said = append.commit
    if group.quarantined and not head_recovery.may_accept(group, sender):
        if group.quarantined is not REMOVED:
            group.reply_append(sender, Status.QUARANTINED)
        return
    fault = _fault(append, group.log_incarnation)
    if fault:
        group.emit("drop", sender, fault)
        return
    log = group.log
    prev = append.prev_index
    if prev > log.commit:
        if not log.matches(prev, append.prev_term):
            group.reply_append(sender, Status.MISMATCH, log.last_not_above(prev, append.prev_term))
            return
    elif prev >= log.first_index - 1 and log.term_at(prev) != append.prev_term:
        raise ImpossibleMessage(f"group {group.id}: node {sender} has term {append.prev_term} at "
                                f"{prev}, committed here is term {log.term_at(prev)}")
    appended = bool(append.entries) and _accept(group, sender, append.entries)
    if group.is_frozen():
        return
    if append.last_index > group.matched_index:
        group.matched_index = append.last_index
    if log.commit_to(min(append.commit, group.matched_index)) or not appended:
        group.touch()
    if not appended:
        group.ack_leader = sender  # nothing new to wait for; new entries are answered when durable


def on_append_as_leader(group: Group, sender: int, append: Append) -> None:
    """Another leader: of an earlier term, or of a later one; never of this one."""
    if append.term == group.term:
        raise ImpossibleMessage(
            f"group {group.id}: nodes {group.context.node} and {sender} both lead "
            f"term {append.term}"
        )
    on_append(group, sender, append)


def _fault(append: Append, incarnation: int) -> str:
    """Why the range and the entries (of a log of that incarnation) do not belong together; empty
    when they do."""
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
    """Append what the log lacks, dropping what contradicts it; whether anything was appended."""
    log, tail = group.log, group.tail
    skip = 0
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
        why = tail.verify(entry)
        if entry.kind == _MEMBERSHIP and not why:
            why = joint_quorum.fault(entry.payload)
        if why:
            group.quarantine(f"entry {entry.index}@{entry.term} of node {sender}: {why}")
            group.reply_append(sender, Status.GONE_WRONG)
            return False
        log.append(entry)
        tail.append(entry)
        if entry.kind == _MEMBERSHIP:
            group.adopt(entry.index, joint_quorum.decode(entry.payload))
    group.touch()
    return True


def _known(group: Group, entries: tuple[Entry, ...]) -> int:
    """How many of the first entries the log has already."""
    log = group.log
    for count, entry in enumerate(entries):
        if entry.index > log.last_index:
            return count
        if entry.index >= log.first_index and log.term_at(entry.index) != entry.term:
            if entry.index <= log.commit:
                raise ImpossibleMessage(f"group {group.id}: {entry!r} contradicts a committed "
                                        f"entry of term {log.term_at(entry.index)}")
            return count
    return len(entries)


def on_written(group: Group, durable_before: int) -> None:
    """This replica's durable index moved: count it, or report it if the leader knows what stands
    there."""
    if group.role is Role.LEADER:
        if group.log.durable_index > group.log.commit:
            maybe_commit(group)
    elif group.leader and not group.is_frozen() and durable_before < group.matched_index:
        group.ack_leader = group.leader
        group.touch()
        if group.nonce:
            head_recovery.reconsider(group)
    if group.log.commit > group.log.emitted_index:
        group.touch()  # what was committed without this disk may be applied now
