"""What the groups of one node share: leases, timers, digests, and what the next Ready takes.

Contract.  A table that ``MultiRaft`` makes and its groups change; no decision is made here.
"""

from __future__ import annotations

from typing import Protocol

from multiraft.liveness.leader_table import LeadershipDelta, LeaderTable
from multiraft.liveness.leadership_digest import LeadershipDigest
from multiraft.liveness.support import Support
from multiraft.raft.config import RaftConfig
from multiraft.raft.log_reader import LogReader
from multiraft.raft.ready import Event, ReadReady
from multiraft.raft.recovery_throttle import RecoveryThrottle
from multiraft.raft.timers import Timers


class RandomSource(Protocol):
    """What the core needs of a ``random.Random``, which the driver seeds and passes in."""

    def randrange(self, stop: int, /) -> int:
        """A number in [0, stop)."""
        ...


class NodeContext:
    """What the groups of one node share."""

    __slots__ = (
        "node",
        "config",
        "store",
        "rng",
        "now_ms",
        "support",
        "timers",
        "led",
        "believed",
        "leading_changes",
        "hints",
        "shared",
        "digests_version",
        "dirty",
        "removing",
        "reads",
        "unfinished",
        "events",
        "written_sequence",
        "pace",
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
        #: peer -> sum over the groups led here that it is a member of
        self.led: dict[int, LeadershipDigest] = {}
        #: peer -> sum over the groups here that are believed to be led there
        self.believed: dict[int, LeadershipDigest] = {}
        self.leading_changes = LeadershipDelta(boot_epoch)
        self.hints = LeaderTable()
        #: node -> groups here that it is a member of
        self.shared: dict[int, dict[int, None]] = {}
        #: Grows whenever a sum in ``led`` or ``believed`` changes.
        self.digests_version = 0
        #: Ready queue: ids of groups that may have effects for the next Ready, in the order in
        #: which the groups were touched.  ``MultiRaft`` resolves the ids.
        self.dirty: dict[int, None] = {}
        #: Ids of groups that know of their removal; the next Ready removes them.
        self.removing: dict[int, None] = {}
        #: Reads that were confirmed, for the next Ready.
        self.reads: list[ReadReady] = []
        #: The last Ready left out some of what is committed: there is more for the next one.
        self.unfinished = False
        self.events: list[Event] = []
        self.written_sequence = 0
        #: Of replicas that are being moved.
        self.pace = RecoveryThrottle()
