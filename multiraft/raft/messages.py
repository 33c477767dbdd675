"""Messages between replicas and between nodes: a closed set of values.

Contract.  Values only.  Items of many groups travel in one frame per peer and round.  Each item
names its group and group incarnation, and is handled alone: a stale or unknown item never affects
the others (scenarios S5, S6, S36).

An outgoing ``Append`` names a range of the log.  The driver fills ``entries`` from storage when it
sends the message, because consensus needs terms and sizes, never bytes.  If a new term has
truncated the range, the driver does not send: the loss of a message is always safe.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Union

from multiraft.types import Entry


class Status(enum.IntEnum):
    """A replica's verdict on an append."""

    OK = 0
    MISMATCH = 1  # prev (index, term) is not in the replica's log; see the hint
    UNKNOWN_GROUP = 2  # no such group, or another incarnation of it
    QUARANTINED = 3  # damaged below the durable watermark: neither votes nor acknowledges
    INVALID_ENTRY = 4  # an entry contradicts the tail state (base offset): the replica is corrupt
    RECOVERING_HEAD = (
        5  # follows without being counted (see ``HeadRecoveryRequest``)
    )


class VoteRequest(NamedTuple):
    """RequestVote (paper 5.2, 5.4.1); with ``pre`` a pre-vote (thesis 9.6), which changes no
    state."""

    group: int
    incarnation: int
    term: int  # the term campaigned for; with ``pre`` the sender's term + 1
    last_index: int
    last_term: int
    pre: bool
    transfer: bool  # the leader asked for this campaign: trust in it is no reason to refuse


class VoteReply(NamedTuple):
    """Reply to ``VoteRequest``, sent only when the voter's hard state is durable.

    A granted pre-vote carries the term that was asked for, any other reply the voter's own term (0
    without a replica of the group)."""

    group: int
    incarnation: int
    term: int
    granted: bool
    pre: bool


class Append(NamedTuple):
    """AppendEntries (paper 5.3).

    ``entries`` of an outgoing message are empty until the driver adds them, as values or framed.
    ``last_index == prev_index`` is a probe or carries only the commit index.  ``read_round`` is the
    number of read rounds that the leader has started in its term, also for added members; replies
    return the highest received."""

    group: int
    incarnation: int
    term: int
    prev_index: int
    prev_term: int
    last_index: int
    commit: int  # never above what the receiver will have verified: it caps it itself
    entries: tuple[Entry, ...] = ()
    read_round: int = 0


class AppendReply(NamedTuple):
    """Reply to ``Append`` or ``SnapshotOffer``.

    ``match``: highest index that matches the leader's log *and* is durable here.  ``commit``:
    commit index known here; a leader quiesces a group only when it equals its own.

    With OK, ``hint_index`` is the last verified index, durable or not.  It is flow control, tells a
    probing leader which entries need not be sent again, and commits nothing.  ``hint_term`` is not
    0 if the replica must not become a voter: bit 0 says that it is below its vote barrier
    (``Group.is_below_vote_barrier``), the others count the indexes whose records it lacks
    (``Group.records_left``).

    With MISMATCH, ``hint_index`` and ``hint_term`` are the last entry here that may match (thesis
    3.5; etcd-io/raft, findConflictByTerm).

    ``read_round``: the highest received in this term before the reply was made."""

    group: int
    incarnation: int
    term: int
    status: int
    match: int
    commit: int
    hint_index: int = 0
    hint_term: int = 0
    read_round: int = 0


class TimeoutNow(NamedTuple):
    """Leader's request to campaign at once, for a leadership transfer (thesis 3.10)."""

    group: int
    incarnation: int
    term: int


class Removed(NamedTuple):
    """Notice from the leader of ``term`` to a node that is not a member by the committed
    configuration at ``index``.

    ``read_round`` is the leader's at that moment, so that a replica that was added again recognises
    an outdated notice."""

    group: int
    incarnation: int
    term: int
    read_round: int
    index: int  # type: ignore[assignment]


class HeadRecoveryRequest(NamedTuple):
    """Request to the leader from a replica that may have forgotten acknowledgements and votes.

    The leader stops counting the sender until an entry proposed from now on is committed without
    it, and answers with that entry's index.  ``nonce`` is drawn anew for each recovery."""

    group: int
    incarnation: int
    term: int
    nonce: int


class HeadRecoveryGrant(NamedTuple):
    """Leader's answer to ``HeadRecoveryRequest`` once the barrier entry at ``index`` is committed.

    The entry was proposed in this term, after the request with ``nonce``, and committed without the
    sender of that request.  The sender counts again when its log is complete up to ``index``
    (docs/decisions/0009)."""

    group: int
    incarnation: int
    term: int
    nonce: int
    index: int  # type: ignore[assignment]


class SnapshotOffer(NamedTuple):
    """Leader's notice that the entries below ``first_index`` are compacted and a snapshot must be
    fetched.  ``read_round`` is that of an ``Append``; replies return it."""

    group: int
    incarnation: int
    term: int
    first_index: int
    read_round: int = 0


class DigestQuery(NamedTuple):
    """Query from a follower's node to a leader's, after two digests in a row differed.

    ``buckets`` are the follower's ``leadership_digest.BUCKETS`` sums over the groups that it
    believes to be led by the receiver."""

    buckets: tuple[int, ...]


class DigestAnswer(NamedTuple):
    """Complete list of the groups that the sender leads in some buckets and the receiver is a
    member of."""

    buckets: tuple[int, ...]  # bucket numbers, ascending
    led: tuple[tuple[int, int, int], ...]  # (group, incarnation, term)


class LeadershipDeltaRequest(NamedTuple):
    """Request for changes after version ``since`` of the list of groups that the receiver leads.

    Versions of a later boot epoch are larger than all earlier ones
    (``liveness/leader_table.py``)."""

    since: int


class LeadershipDelta(NamedTuple):
    """Changes in (since, version] of the list of groups that the sender leads; later ones may
    exist."""

    since: int
    version: int
    changes: tuple[tuple[int, int, int, bool], ...]  # (group, incarnation, term, leads)


GroupMessage = Union[
    VoteRequest,
    VoteReply,
    Append,
    AppendReply,
    TimeoutNow,
    Removed,
    HeadRecoveryRequest,
    HeadRecoveryGrant,
    SnapshotOffer,
]
#: Messages between nodes that concern no single group.
NodeMessage = Union[DigestQuery, DigestAnswer, LeadershipDeltaRequest, LeadershipDelta]
Message = Union[GroupMessage, NodeMessage]
