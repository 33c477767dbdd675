"""All groups of this node looked at once, in slices: who lags, who lacks a leader or a member.

Contract.  Nothing here runs unless somebody asks (a scrape, ``/readyz``, ``node_status``).  A
survey is O(groups and members), taken ``SLICE`` groups per turn of the scheduler, so that a pool of
any size cannot stall the loop; whoever asks within ``FRESH_MS`` gets the last one, and all who ask
while one is taken share it.

Which replica is *behind*: one that is quarantined or empty; one whose leader it does not know or
whose leader's node it does not support; one that has not heard from a leader since this node
started; one whose leader named a commit index more than ``lag_entries_max`` above what is committed
and durable here; a leader that has not committed in its own term.  A follower that was down learns
how far it is behind from the first append its leader sends to its new life, so what is not behind
really has what was committed.

A replica that a plan is *filling*, and that does not vote yet, is not behind: nobody counts on it,
and its copy is as slow as the plan's throttle, or stands still while the plan is paused.  The plan
says so before it asks for the vote; so nothing is believed to be filling while metadata are lacking
here that are known to be committed.

Which group is *under-replicated*, as its leader here sees it: a voter's node is not up, or cannot
be fed, or lacks more than ``lag_entries_max`` entries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import trio

from multiraft.errors import UnknownGroup
from multiraft.raft.joint_quorum import is_voter
from multiraft.raft.status import GroupStatus, Role
from multiraft.types import METADATA_GROUP
from node.clock import monotonic_ms
from node.rebalance.throttle import filled_by
from node.replicas.group_description import log_bytes

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.metadata.log import MetadataLog

#: Groups per turn: well below a millisecond.
SLICE = 64
#: A survey serves all who ask for so long.
FRESH_MS = 1_000
#: Groups of a kind that are named; their number is always exact.
NAMED_MAX = 100
#: Space on the disk is measured again after this.
SPACE_FRESH_MS = 5_000
#: A disk that does not say how full it is is not waited for longer, in seconds.
SPACE_WAIT_S = 1.0
#: Members in these states get no entries.
_UNFED = ("snapshot", "absent", "out")


@dataclass(slots=True)
class GroupSample:
    """A number of groups, and the first of them by name."""

    count: int = 0
    groups: list[int] = field(default_factory=list)

    def add(self, group: int) -> None:
        """One more."""
        self.count += 1
        if len(self.groups) < NAMED_MAX:
            self.groups.append(group)


@dataclass(slots=True)
class Survey:
    """What was found.  Not changed once it is handed out."""

    groups: int = 0
    led: int = 0
    behind: GroupSample = field(default_factory=GroupSample)
    filling: GroupSample = field(default_factory=GroupSample)
    leaderless: GroupSample = field(default_factory=GroupSample)
    quarantined: GroupSample = field(default_factory=GroupSample)
    #: Of the quarantined ones those that vote.
    damaged_voters: int = 0
    under_replicated: GroupSample = field(default_factory=GroupSample)
    #: Entries that the replica here which is furthest behind its leader lacks.
    lag_entries: int = 0
    #: Node -> (most entries, sum of bytes) that it lacks of groups led here.
    peer_lag: dict[int, tuple[int, int]] = field(default_factory=dict)
    log_bytes: int = 0
    disk_used_bytes: int = 0
    disk_free_bytes: int = 0
    disk_total_bytes: int = 0
    taken_ms: int = 0


class GroupHealthScan:
    """Task on the loop.  ``space()`` blocks and returns (used, free, total) bytes of the data
    directory; None = nothing can be said."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 lag_entries_max: int, space: Callable[[], tuple[int, int, int]]):
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._lag_entries_max = lag_entries_max
        self._space = space
        self._space_ms: int | None = None
        self._space_seen = (0, 0, 0)
        self._space_limiter = trio.CapacityLimiter(1)
        self._asked = trio.Event()
        self._waiting: list[Callable[[Survey], None]] = []
        self._last: Survey | None = None

    def request(self, answer: Callable[[Survey], None]) -> None:
        """``answer(survey)`` is called on the loop, maybe before this returns."""
        if self._last is not None and monotonic_ms() - self._last.taken_ms < FRESH_MS:
            answer(self._last)
            return
        self._waiting.append(answer)
        self._asked.set()

    async def fresh(self) -> Survey:
        """The same for a task of the loop."""
        taken: list[Survey] = []
        done = trio.Event()

        def answer(survey: Survey) -> None:
            taken.append(survey)
            done.set()

        self.request(answer)
        await done.wait()
        return taken[0]

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = trio.Event()
            survey = await self.take()
            waiting, self._waiting = self._waiting, []
            for answer in waiting:
                answer(survey)

    async def take(self) -> Survey:
        """A survey of its own."""
        survey = Survey()
        groups = self._core.status.groups()
        filled = self._filled()
        for at in range(0, len(groups), SLICE):
            for group in groups[at:at + SLICE]:
                try:
                    self._look(survey, self._core.status.of(group), group in filled)
                except UnknownGroup:
                    continue  # removed meanwhile
            await trio.lowlevel.checkpoint()
        survey.disk_used_bytes, survey.disk_free_bytes, survey.disk_total_bytes = (
            await self.space_now())
        survey.taken_ms = monotonic_ms()
        self._last = survey
        return survey

    def _filled(self) -> frozenset[int]:
        """Groups that a plan is filling here; none while the metadata here may be of yesterday."""
        filled = filled_by(self._metadata_log.state.plans.active, self._core.node)
        if not filled:
            return filled
        try:
            status = self._core.status.of(METADATA_GROUP)
        except UnknownGroup:
            return frozenset()
        lag = self._lag(status)
        return frozenset() if lag or self.is_behind(status, lag) else filled

    def _look(self, survey: Survey, status: GroupStatus, filled: bool) -> None:
        survey.groups += 1
        survey.log_bytes += log_bytes(self._store, status, status.first_index)
        if status.quarantined:
            survey.quarantined.add(status.group)
            survey.damaged_voters += is_voter(status.configuration, self._core.node)
        elif not status.leader or self._core.status.node_state(status.leader) != "up":
            survey.leaderless.add(status.group)
        lag = self._lag(status)
        survey.lag_entries = max(survey.lag_entries, lag)
        if filled and not is_voter(status.configuration, self._core.node):
            survey.filling.add(status.group)
        elif self.is_behind(status, lag):
            survey.behind.add(status.group)
        if status.role is Role.LEADER:
            survey.led += 1
            if self._look_at_members(survey, status):
                survey.under_replicated.add(status.group)

    def is_behind(self, status: GroupStatus, lag: int) -> bool:
        """See the module's docstring."""
        if status.quarantined or not status.configuration.voters:
            return True
        if status.role is Role.LEADER:
            return not status.committed_in_term
        return (not status.leader or self._core.status.node_state(status.leader) != "up"
                or status.commit_said < 0 or lag > self._lag_entries_max)

    def _lag(self, status: GroupStatus) -> int:
        """Entries known committed that this replica does not have committed and durable."""
        return max(0, max(status.commit_said, status.commit)
                   - min(status.commit, status.durable_index))

    def _look_at_members(self, survey: Survey, status: GroupStatus) -> bool:
        """Note what each member lacks; whether a voter lacks too much."""
        lacking = False
        for member in status.members:
            entries = status.last_index - member.match
            most, size = survey.peer_lag.get(member.node, (0, 0))
            survey.peer_lag[member.node] = (
                max(most, entries), size + log_bytes(self._store, status, member.match + 1))
            if (is_voter(status.configuration, member.node)
                    and (entries > self._lag_entries_max or member.state in _UNFED
                         or self._core.status.node_state(member.node) != "up")):
                lacking = True
        return lacking

    async def space_now(self) -> tuple[int, int, int]:
        """(used, free, total) bytes, at most ``SPACE_FRESH_MS`` old.  No group is looked at."""
        now_ms = monotonic_ms()
        if self._space_ms is not None and now_ms - self._space_ms < SPACE_FRESH_MS:
            return self._space_seen
        # A disk that hangs keeps one thread, and the survey says what was known before.
        if not self._space_limiter.borrowed_tokens:
            try:
                with trio.move_on_after(SPACE_WAIT_S):
                    self._space_seen = await trio.to_thread.run_sync(
                        self._space, abandon_on_cancel=True, limiter=self._space_limiter)
                    self._space_ms = now_ms
            except OSError:
                pass  # what ails the disk is said by its writes, which end the node
        return self._space_seen


def measure_space(directory: str) -> tuple[int, int, int]:
    """(used, free, total) bytes: of the files below ``directory``, and of its filesystem.  Blocks;
    O(files).  A file that vanishes meanwhile counts nothing."""
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
    filesystem = os.statvfs(directory)
    return (used, filesystem.f_bavail * filesystem.f_frsize,
            filesystem.f_blocks * filesystem.f_frsize)


def _size(entry: os.DirEntry) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0
