"""State that all groups of one node share: support, timers, digests, and contents of the next
Ready.

Contract.  ``MultiRaft`` creates the table and its groups change it.  Nothing is decided here.
"""

from __future__ import annotations

from typing import Protocol

from multiraft.liveness.leader_table import LeadershipChanges, LeaderTable
from multiraft.liveness.leadership_digest import LeadershipDigest
from multiraft.liveness.support import Support
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_reader import LogReader
from multiraft.raft.ready import Event, ReadReady
from multiraft.raft.recovery_throttle import RecoveryThrottle
from multiraft.raft.timers import Timers


class RandomSource(Protocol):
    """The part of ``random.Random`` that the core uses; the driver seeds it and passes it in."""

    def randrange(self, stop: int, /) -> int:
        """Return a number in [0, stop)."""
        ...


class NodeContext:
    """State that the groups of one node share."""

    __slots__ = (
        "node",
        "config",
        "store",
        "rng",
        "now_ms",
        "support",
        "timers",
        "leading_digests",
        "followed_digests",
        "leading_changes",
        "leader_table",
        "groups_by_peer",
        "digests_version",
        "view_version",
        "dirty",
        "removing",
        "reads",
        "unfinished",
        "events",
        "written_sequence",
        "throttle",
    )

    def __init__(self, node: int, config: RaftConfig, store: LogReader, rng: RandomSource,
                 now_ms: int, boot_epoch: int):
        self.node = node
        self.config = config
        self.store = store
        self.rng = rng
        self.now_ms = now_ms
        self.support = Support(node)
        self.timers = Timers()
        #: peer -> digest of the groups led here that have the peer as a member
        self.leading_digests: dict[int, LeadershipDigest] = {}
        #: peer -> digest of the groups here that follow that peer as their leader
        self.followed_digests: dict[int, LeadershipDigest] = {}
        self.leading_changes = LeadershipChanges(boot_epoch)
        self.leader_table = LeaderTable()
        #: node -> groups here that have the node as a member
        self.groups_by_peer: dict[int, dict[int, None]] = {}
        #: Grows with every change of a digest in ``leading_digests`` or ``followed_digests``.
        self.digests_version = 0
        #: Grows with every change of a leader, a term or the members of a group here, of a leader
        #: that another node reported, and of support: of all that ``StatusView`` says about who
        #: leads and which nodes are up.
        self.view_version = 0
        #: Ready queue: ids of groups that may have effects for the next Ready, in the order in
        #: which the groups were touched.  ``MultiRaft`` resolves the ids.
        self.dirty: dict[int, None] = {}
        #: Ids of groups that know of their removal; the next Ready removes them.
        self.removing: dict[int, None] = {}
        #: Confirmed reads for the next Ready.
        self.reads: list[ReadReady] = []
        #: The last Ready left out committed entries; the next one contains them.
        self.unfinished = False
        self.events: list[Event] = []
        self.written_sequence = 0
        #: Rates of streams to replicas that are being moved.
        self.throttle = RecoveryThrottle()
