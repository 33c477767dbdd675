"""Copies of records behind installed snapshots: which member is asked for which indexes.

Contract. ``add`` names a group whose replica here lacks records. ``copy_all`` takes passes over
these groups until none is left: in each, one request per group. ``copies_for`` reads what another
node requests. Peers, the disk and pauses are the driver's.

Invariants. Indexes count as copied when the copies are durable. Until its replica is complete, a
group stays in ``groups``, and its leader is notified of what is left. At most ``CHUNK_BYTES`` of
copies, or one record, are under way at a time.

Theory. A snapshot has no records (docs/decisions/0067). They are committed, so any member's are the
right ones. The leader is asked first, because it has them as a rule; then the other members, one
after the other, for what those before lacked. Ascending requests make a restart cheap: the store
knows what is left. An index that only one member has is found, because every member is asked.

A leader that lacks records itself cannot serve its readers. It hands leadership to a voter that has
all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from multiraft.errors import Compacted, UnknownGroup
from multiraft.storage.errors import CorruptRange, EntryTooLarge, InvalidCopies
from multiraft.types import Entry
from multiraft.wire.schema import Malformed
from node.errors import is_exhausted, journal_unreadable
from node.event_log import EventLog
from node.peers.errors import NoAnswer
from node.replicas.record_copies_messages import (
    CHUNK_BYTES,
    INDEXES_MAX,
    PAUSE_MS_MAX,
    RecordsReply,
    RecordsRequest,
)

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.io_jobs import StagedWrite
    from multiraft.storage.store import Store

#: Pause after a pass without a copy, in seconds: about the time that an absent peer or a repair
#: takes.
TURN_S = 0.1
#: A peer that did not answer is left out for so long, in milliseconds: with one of two peers
#: hanging, a node with a thousand groups waits for it once and not a thousand times.
SILENT_MS = 5_000

Stage = Callable[[Callable[[], None]], "StagedWrite | None"]


class RecordPeers(Protocol):
    """Requests to other nodes."""

    async def ask(self, peer: int, request: RecordsRequest) -> RecordsReply | None:
        """Return the reply of ``peer``; None = it does not have the group. Raises ``NoAnswer``
        without a reply, ``Malformed`` for an invalid one or a damaged copy."""


class FullDisk(Protocol):
    """State of the disk."""

    @property
    def full(self) -> bool:
        """True while records are refused."""


@dataclass(slots=True)
class Copying:
    """One group whose replica here lacks records."""

    since_ms: int
    #: Number of the peer that is asked, in the order of ``_peers_of``.
    turn: int = 0
    #: Index up to which that peer was asked.
    behind: int = 0
    #: No request before this time.
    not_before_ms: int = 0
    records: int = 0
    bytes: int = 0


class RecordCopies:
    """Records that one node copies."""

    def __init__(self, core: MultiRaft, store: Store, peers: RecordPeers,
                 write: Callable[[Stage], Awaitable[None]],
                 on_thread: Callable[..., Awaitable[Any]], pause: Callable[[float], Awaitable[Any]],
                 now_ms: Callable[[], int], space: FullDisk,
                 damaged: Callable[[CorruptRange], None], copied: Callable[[int], None],
                 request_round: Callable[[], None], log: EventLog):
        """``write(stage)`` calls ``stage(on_durable)``, writes what that returns, and returns after
        ``on_durable`` was called, at once without a write. ``on_thread(call)`` returns the result
        of a call that reads the disk. ``damaged`` has a damaged record repaired.
        ``copied(group)`` has the records requested from any member that an answer lacked."""
        self.groups: dict[int, Copying] = {}
        self.bytes = 0  # of copies taken since the start
        self._core = core
        self._store = store
        self._peers = peers
        self._write = write
        self._on_thread = on_thread
        self._pause = pause
        self._now_ms = now_ms
        self._space = space
        self._damaged = damaged
        self._copied = copied
        self._request_round = request_round
        self._log = log
        self._silent_until_ms: dict[int, int] = {}

    @property
    def indexes_left(self) -> int:
        """Indexes that are still to be copied. O(groups)."""
        return sum(map(self._core.status.records_left, self.groups))

    # ---- copying -------------------------------------------------------------------------------

    def add_incomplete(self) -> None:
        """Add the recovered groups whose replica lacks records, after all replicas were added to
        the core. O(groups)."""
        for group in self._core.status.groups():
            if lacked(self._store, group):
                self.add(group)

    def add(self, group: int) -> None:
        """Begin to copy the records that the replica of ``group`` lacks."""
        left = self._report(group)
        if not left:
            return
        self.groups[group] = Copying(self._now_ms())
        self._log.info("record_copy_started", extra={"group": group, "indexes": left})

    async def copy_all(self) -> None:
        """Request what is lacking, group after group, until each replica is complete or gone.
        Raises ``DiskFailed`` if the disk cannot be written."""
        while self.groups:
            has_copied = False
            for group in [*self.groups]:
                has_copied |= await self._step(group)
            self._request_round()
            if self.groups and not has_copied:
                await self._pause(TURN_S)

    async def _step(self, group: int) -> bool:
        """Request one chunk for a group. Return False if there is nothing to do for it now."""
        copying, status = self.groups[group], self._core.status
        if not status.has_group(group):
            del self.groups[group]
            return False
        if status.is_installing(group):
            return False
        if not self._report(group):
            self._end(group, copying)
            return False
        if status.is_leader(group):
            self._core.hand_to_complete(group)
        if self._space.full or self._now_ms() < copying.not_before_ms:
            return False
        peers = self._peers_of(group)
        request = self._next_request(group, copying)
        if request is None or not peers:
            return False
        peer = peers[copying.turn % len(peers)]
        if self._now_ms() < self._silent_until_ms.get(peer, 0):
            self._ask_next(copying)
            return False
        return await self._ask(peer, request, copying)

    def _next_request(self, group: int, copying: Copying) -> RecordsRequest | None:
        """Return the request for the next indexes behind those that the peer was asked for; None =
        it was asked for all, or none is left."""
        for first, last in self._store.uncopied(group):
            if last > copying.behind:
                first = max(first, copying.behind + 1)
                return RecordsRequest(group, self._store.repair.incarnation(group), first,
                                      min(last, first + INDEXES_MAX - 1))
        self._ask_next(copying)
        return None

    @staticmethod
    def _ask_next(copying: Copying) -> None:
        copying.turn, copying.behind = copying.turn + 1, 0

    def _peers_of(self, group: int) -> list[int]:
        """Return the other members, the leader first."""
        status = self._core.status.of(group)
        others = dict.fromkeys((status.leader, *status.configuration.members()))
        return [peer for peer in others if peer not in (0, self._core.node)]

    async def _ask(self, peer: int, request: RecordsRequest, copying: Copying) -> bool:
        """Request and write one chunk. Return True if that took copies or shortened what is left.
        """
        try:
            reply = await self._peers.ask(peer, request)
            if reply is None:
                self._ask_next(copying)
                return False
            if reply.pause_ms:
                copying.not_before_ms = self._now_ms() + reply.pause_ms
                return False
            if reply.through < request.first:  # nothing now: it found damage, or lags
                self._ask_next(copying)
                return False
            return await self._take(request, reply, copying)
        except (NoAnswer, Malformed, InvalidCopies, EntryTooLarge) as error:
            self._silent_until_ms[peer] = self._now_ms() + SILENT_MS
            self._ask_next(copying)
            self._log.info("record_copy_failed", extra={
                "group": request.group, "peer": peer, "reason": str(error)})
            return False

    async def _take(self, request: RecordsRequest, reply: RecordsReply, copying: Copying) -> bool:
        group, repair = request.group, self._store.repair
        if (not self._core.status.has_group(group) or self._core.status.is_installing(group)
                or repair.incarnation(group) != request.incarnation):
            return False  # removed, or another snapshot came, while the peer answered
        before = self._store.uncopied(group)
        if not _includes(before, request):
            return False  # another snapshot was installed, which needs other indexes
        await self._write(lambda on_durable: repair.stage_records(
            group, reply.entries, request.first, reply.through, reply.lacking, on_durable))
        size = sum(len(entry.payload) for entry in reply.entries)
        self.bytes += size
        copying.bytes += size
        copying.records += len(reply.entries)
        copying.behind = reply.through
        self._copied(group)
        if self._core.status.has_group(group):
            self._report(group)
            return self._store.uncopied(group) != before
        return False

    def _report(self, group: int) -> int:
        """Tell consensus at how many indexes the replica lacks records, and return that."""
        left = lacked(self._store, group)
        self._core.set_records_left(group, left)
        return left

    def _end(self, group: int, copying: Copying) -> None:
        del self.groups[group]
        self._log.info("records_copied", extra={
            "group": group, "records": copying.records, "bytes": copying.bytes,
            "took_ms": self._now_ms() - copying.since_ms})

    # ---- for others ----------------------------------------------------------------------------

    async def copies_for(self, peer: int, request: RecordsRequest) -> RecordsReply | None:
        """Return the records that ``peer`` requests, as far as this node has them; None = it does
        not have the group in that incarnation. A stream that a plan limits is answered with a
        pause when its rate is used up. Damage that this read finds starts a repair here. Raises
        ``DiskFailed`` if the disk cannot be read, ``OSError`` if no file can be opened now."""
        group = request.group
        if (self._store.repair.incarnation(group) != request.incarnation
                or not self._core.status.has_group(group)
                or self._core.status.is_installing(group)):
            return None
        pause_ms = self._core.copy_pause_ms(group, peer)
        if pause_ms:
            return RecordsReply((), request.first - 1, (), min(pause_ms, PAUSE_MS_MAX))
        nothing = RecordsReply((), request.first - 1)
        try:
            job = self._store.records_job(group, request.first, request.last, CHUNK_BYTES)
            if job is None:
                return nothing
            entries: tuple[Entry, ...] = await self._on_thread(job.execute)
        except CorruptRange as error:
            self._damaged(error)
            return nothing
        except (Compacted, UnknownGroup):
            return nothing  # a moment ago it was needed: the next request finds what is left
        except OSError as error:
            if is_exhausted(error):
                raise  # ends the connection only: the peer asks another node, or again
            raise journal_unreadable(error) from error
        self._core.copies_sent(group, peer, sum(len(entry.payload) for entry in entries))
        return RecordsReply(entries, job.through, job.lacking)


def lacked(store: Store, group: int) -> int:
    """Return at how many indexes a replica lacks records: those to be copied, and those that cannot
    be read. O(ranges)."""
    state = store.copied(group)
    return state.indexes_left + state.missing


def _includes(ranges: tuple[tuple[int, int], ...], request: RecordsRequest) -> bool:
    return any(first <= request.first and request.last <= last for first, last in ranges)
