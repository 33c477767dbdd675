"""A replica as it is at one moment, for people, tests and metrics."""

from __future__ import annotations

import enum
from typing import NamedTuple

from multiraft.types import Configuration


class Role(enum.IntEnum):
    """What a replica is in its term."""

    FOLLOWER = 0
    PRE_CANDIDATE = 1
    CANDIDATE = 2
    LEADER = 3


class MemberStatus(NamedTuple):
    """One member as its leader sees it."""

    node: int
    state: str
    match: int
    next_index: int
    commit_known: int
    inflight_bytes: int


class GroupStatus(NamedTuple):
    """A frozen picture of a replica, for people, tests and metrics."""

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
    committed_in_term: bool  # a leader that has: its commit index is as high as any reader saw
    configuration: Configuration
    quarantined: str
    asleep: bool  # no timer is armed
    transferee: int
    uncommitted_bytes: int
    members: tuple[MemberStatus, ...]
    configuration_index: int = 0  # of the entry that put it in force; 0 = as created
    last_term: int = 0
    commit_said: int = -1  # highest commit index a leader named since the start; -1 = none did
    candidate: int = 0  # who last asked this quarantined replica for its vote; 0 = nobody
