"""Values of the core as text, for scripts, logs and the command line.

Contract.  Pure functions from values to one line each (``status`` may take several).  The core
itself formats nothing, and no decision depends on these texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from multiraft.raft.messages import (
    Append,
    AppendReply,
    DigestAnswer,
    DigestQuery,
    HeadRecoveryGrant,
    HeadRecoveryRequest,
    LeadershipDelta,
    LeadershipDeltaRequest,
    Removed,
    SnapshotOffer,
    Status,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from multiraft.raft.peers import NO_GROUP
from multiraft.raft.ready import Committed, Event, GroupWrite, ReadReady, Writes
from multiraft.raft.status import GroupStatus, Role
from multiraft.types import Configuration, Entry, EntryKind

#: Bytes of a payload that are shown.
PAYLOAD_SHOWN_MAX = 16


def node_name(node: int) -> str:
    """Return a node's name, ``n3``, or ``-`` for no node."""
    return f"n{node}" if node else "-"


def index_range(first: int, last: int) -> str:
    """Return a range of indexes as text, ``7`` or ``7..9``."""
    return str(first) if first == last else f"{first}..{last}"


def entry(value: Entry) -> str:
    """Return an entry as text, ``5@2 metadata "abc"``."""
    text = f"{value.index}@{value.term} {EntryKind(value.kind).name.lower()}"
    if value.partition:
        text += f" p{value.partition}"
    if value.base_offset >= 0:
        text += f" offset={value.base_offset}"
    payload = bytes(value.payload[:PAYLOAD_SHOWN_MAX])
    if payload and value.kind == EntryKind.METADATA:
        text += f' "{payload.decode("ascii", "backslashreplace")}"'
    return text


# ---- messages ----------------------------------------------------------------------------------


def _vote_request(message: VoteRequest) -> str:
    name = "PreVoteRequest" if message.pre else "VoteRequest"
    transfer = " transfer" if message.transfer else ""
    return f"{name} term={message.term} last={message.last_index}@{message.last_term}{transfer}"


def _vote_reply(message: VoteReply) -> str:
    name = "PreVoteReply" if message.pre else "VoteReply"
    return f"{name} term={message.term} {'granted' if message.granted else 'refused'}"


def _append(message: Append) -> str:
    entries = ""
    if message.last_index > message.prev_index:
        entries = f" entries={index_range(message.prev_index + 1, message.last_index)}"
    return (f"Append term={message.term} prev={message.prev_index}@{message.prev_term}{entries} "
            f"commit={message.commit}{_read_round(message)}")


def _append_reply(message: AppendReply) -> str:
    status = Status(message.status)
    text = f"AppendReply term={message.term} {status.name.lower()}"
    if status is Status.OK:
        text += f" match={message.match} commit={message.commit}"
        if message.hint_index != message.match:
            text += f" verified={message.hint_index}"
        if message.hint_term & 1:
            text += " below_vote_barrier"
        if message.hint_term > 1:
            text += f" records_left={message.hint_term >> 1}"
    elif status is Status.MISMATCH:
        text += f" hint={message.hint_index}@{message.hint_term}"
    return text + _read_round(message)


def _read_round(message: Append | AppendReply | Removed) -> str:
    return f" round={message.read_round}" if message.read_round else ""


def _removed(message: Removed) -> str:
    return f"Removed term={message.term} index={message.index}{_read_round(message)}"


def configuration(value: Configuration) -> str:
    """Return a configuration as text: ``n1 n2 n3``, ``n1 n2 and n1 n3`` while joint, ``+ n4`` for
    learners."""
    text = " ".join(map(node_name, value.voters))
    if value.outgoing:
        text += " and " + " ".join(map(node_name, value.outgoing))
    if value.learners:
        text += " + " + " ".join(map(node_name, value.learners))
    return text or "no members"


def _timeout_now(message: TimeoutNow) -> str:
    return f"TimeoutNow term={message.term}"


def _head_recovery_request(message: HeadRecoveryRequest) -> str:
    return f"HeadRecoveryRequest term={message.term} nonce={message.nonce}"


def _head_recovery_grant(message: HeadRecoveryGrant) -> str:
    return (f"HeadRecoveryGrant term={message.term} nonce={message.nonce} "
            f"index={message.index}")


def _snapshot_offer(message: SnapshotOffer) -> str:
    return f"SnapshotOffer term={message.term} first={message.first_index}"


def _digest_query(message: DigestQuery) -> str:
    filled = sum(1 for bucket in message.buckets if bucket)
    return f"DigestQuery {filled} buckets filled"


def _digest_answer(message: DigestAnswer) -> str:
    led = " ".join(f"g{group}@{term}" for group, _, term in message.led) or "nothing"
    return f"DigestAnswer buckets={','.join(map(str, message.buckets)) or '-'} leads {led}"


def _delta_request(message: LeadershipDeltaRequest) -> str:
    return f"LeadershipDeltaRequest since={message.since}"


def _delta(message: LeadershipDelta) -> str:
    changes = " ".join(f"{'+' if leads else '-'}g{group}@{term}"
                       for group, _, term, leads in message.changes)
    return f"LeadershipDelta {message.since}..{message.version} {changes}".rstrip()


_MESSAGES: dict[type, Callable[[Any], str]] = {
    VoteRequest: _vote_request,
    VoteReply: _vote_reply,
    Append: _append,
    AppendReply: _append_reply,
    TimeoutNow: _timeout_now,
    Removed: _removed,
    HeadRecoveryRequest: _head_recovery_request,
    HeadRecoveryGrant: _head_recovery_grant,
    SnapshotOffer: _snapshot_offer,
    DigestQuery: _digest_query,
    DigestAnswer: _digest_answer,
    LeadershipDeltaRequest: _delta_request,
    LeadershipDelta: _delta,
}


def message(sender: int, to: int, value: Any) -> str:
    """Return a message with its sender and receiver as text, ``n1 -> n2 g4 Append term=2 prev=3@1
    entries=4 commit=3``."""
    group = ""
    if hasattr(value, "group"):
        group = f" g{value.group}" + (f".{value.incarnation}" if value.incarnation != 1 else "")
    return f"{node_name(sender)} -> {node_name(to)}{group} {_MESSAGES[type(value)](value)}"


# ---- effects -----------------------------------------------------------------------------------


def group_write(node: int, value: GroupWrite) -> str:
    """Return one group's part of a write as text, ``n1 disk <- g4 truncate=3.. entries=3..4 term=2
    vote=n1``."""
    text = f"{node_name(node)} disk <- g{value.group}"
    if value.lifecycle_record is not None:
        text += f" {EntryKind(value.lifecycle_record.kind).name.lower()}"
    if value.drop_from:
        text += f" truncate={value.drop_from}.."
    if value.entries:
        text += " " + ", ".join(entry(item) for item in value.entries)
    if value.hard_state is not None:
        text += f" term={value.hard_state.term} vote={node_name(value.hard_state.vote)}"
    return text


def writes(node: int, value: Writes) -> Iterable[str]:
    """Return one line for each group of a write."""
    return [group_write(node, item) for item in value.groups]


def committed(node: int, value: Committed) -> str:
    """Return committed entries as text, ``n1 g4 applies 3..4``."""
    return f"{node_name(node)} g{value.group} applies {index_range(value.first, value.last)}"


def read_ready(node: int, value: ReadReady) -> str:
    """Return a confirmed read as text, ``n1 g4 reads a at 7``."""
    return f"{node_name(node)} g{value.group} reads {value.token} at {value.index}"


def event(node: int, value: Event) -> str:
    """Return a trace event as text, ``n1 g4 leader term=2``."""
    where = node_name(node) if value.group == NO_GROUP else f"{node_name(node)} g{value.group}"
    fields = value.fields
    if value.kind == "role_changed":
        role, term, leader, why = fields
        text = f"{Role(role).name.lower()} term={term}"
        if role is Role.FOLLOWER:
            text += f" leader={node_name(leader)}"
        return f"{where} {text}" + (f" ({why})" if why else "")
    if value.kind == "hard_state_changed":
        return f"{where} term={fields[0]} vote={node_name(fields[1])}"
    if value.kind == "log_truncated":
        return f"{where} truncates {index_range(*fields)}"
    if value.kind == "lease_changed":
        epoch = f" (boot epoch {fields[2]})" if len(fields) > 2 else ""
        side = "to" if fields[1] in ("granted", "withdrawn") else "from"
        return f"{where} lease {side} {node_name(fields[0])} {fields[1]}{epoch}"
    if value.kind == "peer_disk_space":
        return f"{where} {node_name(fields[0])} has {'a full disk' if fields[1] else 'disk space'}"
    if value.kind == "snapshot_installed":
        return f"{where} installs a snapshot at {fields[0]}@{fields[1]}"
    if value.kind == "configuration_changed":
        return f"{where} members {configuration(fields[0])} (at {fields[1]})"
    if value.kind == "replica_requested":
        incarnation, sender, term, _ = fields
        return (f"{where} replica_requested {node_name(sender)} incarnation={incarnation} "
                f"term={term}")
    if value.kind == "leadership_transfer":
        return f"{where} transfer to {node_name(fields[0])} {fields[1]}"
    if value.kind in ("peer_restarted", "trust_revoked"):
        return f"{where} {value.kind} {node_name(fields[0])}"
    if value.kind in ("member_changed", "message_dropped", "snapshot_needed", "snapshot_offered"):
        rest = " ".join(map(str, fields[1:]))
        return f"{where} {value.kind} {node_name(fields[0])} {rest}"
    return " ".join([where, value.kind, *map(str, fields)])


# ---- pictures ----------------------------------------------------------------------------------


def status(node: int, value: GroupStatus) -> str:
    """Return a replica's status as text, ``n1 g4 leader term=2 vote=n1 leader=n1 log=1..4 durable=4
    commit=4 applied=4 quiesced``."""
    marks = " quiesced" if value.quiesced else ""
    if value.transferee:
        marks += f" transfer={node_name(value.transferee)}"
    if value.quarantined:
        marks += f" quarantined: {value.quarantined}"
    return (f"{node_name(node)} g{value.group} {value.role.name.lower()} term={value.term} "
            f"vote={node_name(value.vote)} leader={node_name(value.leader)} "
            f"log={value.first_index}..{value.last_index} durable={value.durable_index} "
            f"commit={value.commit} applied={value.applied_index}{marks}")


def members(value: GroupStatus) -> list[str]:
    """Return one line for each member of a leader: ``n2 replicate match=4 next=5 commit=4 in flight
    0 B``."""
    return [f"{node_name(member.node)} {member.state} match={member.match} "
            f"next={member.next_index} commit={member.commit_known} "
            f"in flight {member.inflight_bytes} B" for member in value.members]
