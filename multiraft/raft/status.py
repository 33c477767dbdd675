"""State of a replica at one moment, for people, tests and metrics."""

from __future__ import annotations

import enum
from typing import NamedTuple

from multiraft.types import Configuration


class Role(enum.IntEnum):
    """Role of a replica in its term."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class MemberStatus(NamedTuple):
    """One member as its leader sees it.  ``state``: of its ``Progress``, in lower case; ``copying``
    in place of ``replicate`` while it lacks records."""

    node: int
    state: str
    match: int
    next_index: int
    commit_known: int
    inflight_bytes: int
    records_left: int = 0  # indexes whose records it may lack, by its last reply


class GroupStatus(NamedTuple):
    """Frozen state of a replica."""

    group: int
    incarnation: int
    role: Role
    term: int
    vote: int
    leader: int
    first_index: int
    last_index: int
    durable_index: int
    commit: int
    applied_index: int
    # A leader has committed in its term: its commit index is as high as any reader has seen.
    committed_in_term: bool
    configuration: Configuration
    quarantined: str
    quiesced: bool  # no timer is armed
    transferee: int
    uncommitted_bytes: int
    members: tuple[MemberStatus, ...]
    configuration_index: int = 0  # of the entry that put it in force; 0 = as created
    last_term: int = 0
    # Highest commit index received from a leader since the start; -1 = none.
    leader_commit_seen: int = -1
    vote_requester: int = 0  # last node that asked this quarantined replica for its vote; 0 = none
    records_left: int = 0  # indexes whose records this replica may lack
