"""The closed set of things one group's replica says to another.

Contract.  Values only.  Items of many groups travel in one frame per peer and round; each names its
own group and group incarnation, and each is judged on its own: a stale or unknown one never touches
its neighbours (scenarios S5, S6, S36).

An outgoing ``Append`` names a range of the log; the driver fills ``entries`` from storage at the
moment it is sent (``store.py``), because consensus needs terms and sizes, never bytes.  A driver
that finds the range gone (a new term dropped it) does not send: losing a message is always safe.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Union

from multiraft.types import Entry


class Status(enum.IntEnum):
    """How a replica answers an append."""

    OK = 0
    MISMATCH = 1  # prev (index, term) is not in my log; see hint
    UNKNOWN_GROUP = 2  # no such group, or another incarnation of it
    QUARANTINED = 3  # damaged below the durable mark: neither votes nor acknowledges
    GONE_WRONG = 4  # entries contradict my tail state (base offset): corruption, group stops
    RECOVERING_HEAD = (
        5  # I follow, and do not count: my log's end was lost (see ``HeadRecoveryRequest``)
    )


class VoteRequest(NamedTuple):
    """RequestVote (paper 5.2, 5.4.1).  ``pre`` = pre-vote (thesis 9.6): nothing is changed by
    it."""

    group: int
    incarnation: int
    term: int  # the term campaigned for; with ``pre`` the sender's term + 1
    last_index: int
    last_term: int
    pre: bool
    transfer: bool  # campaign asked for by the leader itself: leases do not refuse it


class VoteReply(NamedTuple):
    """Answer to ``VoteRequest``; leaves only when the voter's hard state is durable.
    A granted pre-vote carries the term asked for, everything else the voter's own term (0 when it
    has no such group)."""

    group: int
    incarnation: int
    term: int
    granted: bool
    pre: bool


class Append(NamedTuple):
    """AppendEntries (paper 5.3).  ``entries`` is empty on an outgoing one until the driver fills
    it, with them as they are or framed.  ``last_index == prev_index`` = probe or commit notice.
    ``read_round``: how many questions this leader has asked in its term so far (who was added, who
    leads); answers echo the highest."""

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
    """``match``: highest index verified to match the leader *and durable* here.  ``commit``: the
    commit index known here; a leader lets a group sleep only when it equals its own.
    On OK ``hint_index`` is the last index verified here, durable or not: flow control, it tells a
    prober what need not be sent again and commits nothing.  ``hint_term`` is not 0 while this
    replica is barred (``Group.is_below_vote_barrier``): nobody may be made a voter who votes for
    nobody. On MISMATCH ``hint_index``/``hint_term`` are the last entry here that may match (thesis
    3.5, etcd-io/raft's findConflictByTerm).
    ``read_round``: the highest of this term's appends that was heard before this was said."""

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
    """Leadership transfer (thesis 3.10): campaign at once."""

    group: int
    incarnation: int
    term: int


class Removed(NamedTuple):
    """From the leader of ``term`` to a node that is no member: by the committed configuration at
    ``index`` the group lives without it.  ``read_round``: the leader's at that moment, so that a
    replica that was added again knows this for old."""

    group: int
    incarnation: int
    term: int
    read_round: int
    index: int  # type: ignore[assignment]


class HeadRecoveryRequest(NamedTuple):
    """To the leader: I may have forgotten what I acknowledged and whom I voted for.  Count nothing
    of mine until an entry that you propose from now on is committed without me, and tell me its
    index.  ``nonce`` is drawn anew each time that a replica begins to doubt."""

    group: int
    incarnation: int
    term: int
    nonce: int


class HeadRecoveryGrant(NamedTuple):
    """The leader's answer to ``HeadRecoveryRequest``: whoever holds everything up to ``index``,
    which was proposed in this term after the doubt of ``nonce`` was heard and is committed without
    the doubter, may be counted again (docs/decisions/0009)."""

    group: int
    incarnation: int
    term: int
    nonce: int
    index: int  # type: ignore[assignment]


class SnapshotOffer(NamedTuple):
    """What you lack is compacted away here: my log begins at ``first_index``.  Fetch the state.
    ``read_round`` as in an ``Append``: answers carry it back."""

    group: int
    incarnation: int
    term: int
    first_index: int
    read_round: int = 0


class DigestQuery(NamedTuple):
    """From a follower's node to a leader's: what I believe you lead among my groups, by bucket
    (``digest.BUCKETS`` sums).  Sent when two digests in a row differed."""

    buckets: tuple[int, ...]


class DigestAnswer(NamedTuple):
    """In these buckets, and for groups that you are a member of, I lead exactly these."""

    buckets: tuple[int, ...]  # bucket numbers, ascending
    led: tuple[tuple[int, int, int], ...]  # (group, incarnation, term)


class LeadershipDeltaRequest(NamedTuple):
    """Send me what changed in the list of groups you lead after version ``since``.  A later life's
    versions are larger than those of the lives before (``liveness/leader_table.py``)."""

    since: int


class LeadershipDelta(NamedTuple):
    """Changes of the sender's list in (since, version]; later ones may exist."""

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
#: Between nodes, about no group in particular.
NodeMessage = Union[DigestQuery, DigestAnswer, LeadershipDeltaRequest, LeadershipDelta]
Message = Union[GroupMessage, NodeMessage]
