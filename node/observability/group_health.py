"""The group health scan: all groups of this node checked in slices for lag, leaders and members.

Contract.  A scan runs only on request (a scrape, ``/readyz``, ``node_status``).  A survey is
O(groups and members), taken ``SLICE`` groups per turn of the scheduler, so that a pool of any size
cannot stall the loop.  Requests within ``FRESH_MS`` get the last survey, unless the disk has become
full or was emptied since, and all requests during a scan share its result.

A replica is *behind* in these cases: it is quarantined or empty; it does not know its leader or
does not support the leader's node; it has not heard from a leader since this node started; its
leader named a commit index more than ``lag_entries_max`` above the index that is committed and
durable here; it is a leader that has not committed in its own term.  A follower that was down
learns its lag from the first append after its restart, so a replica that is not behind has the
committed entries.

A replica that is *catching up* for a plan, and does not vote yet, is not behind: it counts in no
quorum, and its copy is limited by the plan's throttle, or paused with the plan.  The plan records
JOINT before it requests the vote.  So no replica counts as catching up while this node lacks
metadata that are known to be committed.

A group is *under-replicated*, as its leader here reports it, when a voter's node is not up, or gets
no entries, or lacks more than ``lag_entries_max`` entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import trio

from multiraft.errors import UnknownGroup
from multiraft.raft.joint_quorum import is_voter
from multiraft.raft.status import GroupStatus, Role
from multiraft.types import METADATA_GROUP
from node.clock import monotonic_ms
from node.rebalance.throttle import catching_up_on
from node.replicas.group_description import kept_bytes, log_bytes

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.metadata.log import MetadataLog

#: Groups per turn: they take well below a millisecond.
SLICE = 64
#: Age up to which a survey answers requests, in milliseconds.
FRESH_MS = 1_000
#: Groups of a kind that are named; their number is always exact.
NAMED_MAX = 100
#: Age up to which the size of the data directory is used, in milliseconds: it takes a call for each
#: file.  The free space of the disk takes one system call, and each survey has its own.
USED_FRESH_MS = 5_000
#: Time to wait for a measurement of disk space, in seconds.
SPACE_WAIT_S = 1.0
#: States of members that receive no entries, or lack records.
_UNFED = ("copying", "snapshot", "unknown_group", "quarantined")


@dataclass(slots=True)
class GroupSample:
    """A number of groups, and the first of them by name."""

    count: int = 0
    groups: list[int] = field(default_factory=list)

    def add(self, group: int) -> None:
        """Add one group."""
        self.count += 1
        if len(self.groups) < NAMED_MAX:
            self.groups.append(group)


@dataclass(slots=True)
class Survey:
    """The result of one scan.  Immutable once it is handed out."""

    groups: int = 0
    led: int = 0
    behind: GroupSample = field(default_factory=GroupSample)
    catching_up: GroupSample = field(default_factory=GroupSample)
    leaderless: GroupSample = field(default_factory=GroupSample)
    quarantined: GroupSample = field(default_factory=GroupSample)
    #: Quarantined replicas that vote.
    damaged_voters: int = 0
    under_replicated: GroupSample = field(default_factory=GroupSample)
    #: Entries that the replica here with the largest lag lacks.
    lag_entries: int = 0
    #: Node -> (most entries, sum of bytes) that it lacks of groups led here.
    peer_lag: dict[int, tuple[int, int]] = field(default_factory=dict)
    log_bytes: int = 0
    records_below_raft_start: int = 0
    disk_used_bytes: int = 0
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    disk_capacity_bytes: int = 0
    disk_full: bool = False
    taken_ms: int = 0


class DiskSpace(NamedTuple):
    """Bytes of the data directory and its filesystem.  ``capacity`` is the sum of used and free
    bytes at the time at which both were measured: their present sum shrinks while a disk fills,
    because ``used`` is older than ``free``."""

    used: int = 0
    free: int = 0
    total: int = 0
    capacity: int = 0


class GroupHealthScan:
    """Task that takes surveys.  ``space(used)`` blocks and returns (used, free, total) bytes of the
    data directory; ``used`` None = measure that as well.  ``is_full`` returns True while the node
    refuses records for lack of space."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 lag_entries_max: int, space: Callable[[int | None], tuple[int, int, int]],
                 is_full: Callable[[], bool]):
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._lag_entries_max = lag_entries_max
        self._space = space
        self._is_full = is_full
        self._used_ms: int | None = None
        self._space_seen = DiskSpace()
        self._space_limiter = trio.CapacityLimiter(1)
        self._asked = trio.Event()
        self._waiting: list[Callable[[Survey], None]] = []
        self._last: Survey | None = None

    def request(self, answer: Callable[[Survey], None]) -> None:
        """Pass a survey to ``answer`` on the loop: the last one, before this call returns, if it is
        fresh; otherwise that of a scan which starts now."""
        if (self._last is not None and monotonic_ms() - self._last.taken_ms < FRESH_MS
                and self._last.disk_full == self._is_full()):
            answer(self._last)
            return
        self._waiting.append(answer)
        self._asked.set()

    async def fresh(self) -> Survey:
        """Return a survey that is at most ``FRESH_MS`` old, after a scan if there is none; for
        tasks of the loop."""
        taken: list[Survey] = []
        done = trio.Event()

        def answer(survey: Survey) -> None:
            taken.append(survey)
            done.set()

        self.request(answer)
        await done.wait()
        return taken[0]

    async def run(self) -> None:
        """Take a survey for each group of requests that wait, and answer them, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            survey = await self.take()
            waiting, self._waiting = self._waiting, []
            for answer in waiting:
                answer(survey)

    async def take(self) -> Survey:
        """Scan all groups, in slices, measure the disk space, and return the survey. O(groups and
        members)."""
        survey = Survey()
        groups = self._core.status.groups()
        catching_up = self._catching_up()
        for at in range(0, len(groups), SLICE):
            for group in groups[at:at + SLICE]:
                try:
                    self._look(survey, self._core.status.of(group), group in catching_up)
                except UnknownGroup:
                    continue  # removed meanwhile
            await trio.lowlevel.checkpoint()
        survey.disk_full = self._is_full()
        space = await self.space_now()
        survey.disk_used_bytes, survey.disk_free_bytes = space.used, space.free
        survey.disk_total_bytes, survey.disk_capacity_bytes = space.total, space.capacity
        survey.taken_ms = monotonic_ms()
        self._last = survey
        return survey

    def _catching_up(self) -> frozenset[int]:
        """Return groups that catch up here for a plan; none while the metadata here may be
        stale."""
        catching_up = catching_up_on(self._metadata_log.state.plans.active, self._core.node)
        if not catching_up:
            return catching_up
        try:
            status = self._core.status.of(METADATA_GROUP)
        except UnknownGroup:
            return frozenset()
        lag = self._lag(status)
        return frozenset() if lag or self.is_behind(status, lag) else catching_up

    def _records_of(self, group: int) -> int:
        try:
            return self._store.records_kept(group)[0]
        except UnknownGroup:
            return 0  # storage has removed it already

    def _look(self, survey: Survey, status: GroupStatus, catching_up: bool) -> None:
        survey.groups += 1
        survey.log_bytes += kept_bytes(self._store, status)
        survey.records_below_raft_start += self._records_of(status.group)
        if status.quarantined:
            survey.quarantined.add(status.group)
            survey.damaged_voters += is_voter(status.configuration, self._core.node)
        elif not status.leader or not self._core.status.is_up(status.leader):
            survey.leaderless.add(status.group)
        lag = self._lag(status)
        survey.lag_entries = max(survey.lag_entries, lag)
        if catching_up and not is_voter(status.configuration, self._core.node):
            survey.catching_up.add(status.group)
        elif self.is_behind(status, lag):
            survey.behind.add(status.group)
        if status.role is Role.LEADER:
            survey.led += 1
            if self._look_at_members(survey, status):
                survey.under_replicated.add(status.group)

    def is_behind(self, status: GroupStatus, lag: int) -> bool:
        """Return True if the replica is behind, as the module docstring defines it."""
        if status.quarantined or not status.configuration.voters:
            return True
        if status.role is Role.LEADER:
            return not status.committed_in_term
        return (not status.leader or not self._core.status.is_up(status.leader)
                or status.leader_commit_seen < 0 or lag > self._lag_entries_max)

    def _lag(self, status: GroupStatus) -> int:
        """Return the number of entries known to be committed that this replica does not have
        committed and durable."""
        return max(0, max(status.leader_commit_seen, status.commit)
                   - min(status.commit, status.durable_index))

    def _look_at_members(self, survey: Survey, status: GroupStatus) -> bool:
        """Add the lag of each member of a group led here to the survey. Return True if a voter is
        down, receives no entries or lacks too many."""
        lacking = False
        for member in status.members:
            entries = status.last_index - member.match
            most, size = survey.peer_lag.get(member.node, (0, 0))
            survey.peer_lag[member.node] = (
                max(most, entries), size + log_bytes(self._store, status, member.match + 1))
            if (is_voter(status.configuration, member.node)
                    and (entries > self._lag_entries_max or member.state in _UNFED
                         or not self._core.status.is_up(member.node))):
                lacking = True
        return lacking

    async def space_now(self) -> DiskSpace:
        """Return the space of the data directory, without a scan of groups. Measure it on a thread,
        ``used`` and with it ``capacity`` unless they are fresh; repeat the last values while the
        disk does not answer."""
        now_ms = monotonic_ms()
        fresh = self._used_ms is not None and now_ms - self._used_ms < USED_FRESH_MS
        used = self._space_seen.used if fresh else None
        # A disk that hangs blocks one thread only; surveys repeat the last measurement.
        if not self._space_limiter.borrowed_tokens:
            try:
                with trio.move_on_after(SPACE_WAIT_S):
                    measured, free, total = await trio.to_thread.run_sync(
                        self._space, used, abandon_on_cancel=True, limiter=self._space_limiter)
                    if not fresh:
                        self._used_ms = now_ms
                    capacity = self._space_seen.capacity if fresh else measured + free
                    self._space_seen = DiskSpace(measured, free, total, capacity)
            except OSError:
                pass  # a failing disk shows in its writes, which end the node
        return self._space_seen


def measure_space(directory: str, used: int | None = None) -> tuple[int, int, int]:
    """Return (used, free, total) bytes: of the files below ``directory``, and of its filesystem.
    ``used`` is returned as it is, unless it is None.

    Blocks; without ``used`` O(files).  A file that vanishes meanwhile counts as 0.
    """
    if used is None:
        used = _measure_used(directory)
    filesystem = os.statvfs(directory)
    return (used, filesystem.f_bavail * filesystem.f_frsize,
            filesystem.f_blocks * filesystem.f_frsize)


def _measure_used(directory: str) -> int:
    used, pending = 0, [directory]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        used += _size(entry)
        except FileNotFoundError:
            continue
    return used


def _size(entry: os.DirEntry) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
