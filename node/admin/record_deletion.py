"""Deletion of records on request: a new log start for each partition that a client names.

Contract.  ``delete`` answers a request whose client knows no newer metadata than this node.  The
leader of a partition's last group judges its row and proposes a LOG_START; other nodes redirect the
client.  A row is answered with OK when its log start is applied here, which is then committed.  A
log start only rises, so a repetition is answered in the same way.

Invariants.  A log start that is proposed is not above the high watermark: nothing is deleted that
no reader could have seen.  No other task runs between the judgement of a row and its proposal.  A
repetition of a deletion that is in the log already adds no entry to it.

Theory.  The log start of the last epoch is the authority (docs/decisions/0061), and a seal carries
it on.  A proposal that is sent into a switch either precedes the seal or is refused.  The entry
says how many bytes remain; the node subtracts those of the deleted batches, as far as it can count
them in ``BATCHES_COUNTED_MAX`` rows of the index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from multiraft.errors import PartitionSealed
from multiraft.partitions.retention_records import UNKNOWN_BYTES, LogStart, log_starts_payload
from multiraft.settings.effective import is_internal
from multiraft.types import EntryKind
from multiraft.wire import messages as wire
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    InvalidRequest,
    LeaderUnknown,
    OffsetNotAvailable,
    OffsetOutOfRange,
    Unsupported,
)
from node.clients.error_codes import Redirect, StaleMetadata
from node.clients.partition_open import partition_open_of, require_known_deletions
from node.clients.read_view import TERM_NOT_COMMITTED
from node.clock import monotonic_ms
from node.loop.block_reads import BlockReads
from node.loop.steps import ROWS_PER_STEP, parts
from node.metadata.node_releases import retention_entries_fault
from node.request_errors import REFUSED, request_error

if TYPE_CHECKING:
    from multiraft.partitions.partition_state import PartitionState
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.log_starts import LogStarts
    from node.clients.router import Router
    from node.metadata.commands import NodeRecord
    from node.metadata.state_machine import Location

#: Batches that one request counts.  A deletion of more leaves the size of its partition unknown,
#: instead of keeping the request waiting for more than some tenths of a second.
BATCHES_COUNTED_MAX = 1 << 16


#: Reason for which a new leader deletes nothing yet.
RECORDS_LEFT = "the leader is still copying records, and cannot count those to be deleted yet"


class Batches(Protocol):
    """The index of batches: ``multiraft.storage.store.Store``."""

    def batches(self, group: int, partition: int, offset: int,
                count: int) -> list[tuple[int, int, int, int]]: ...


class Nodes(Protocol):
    """The nodes of the cluster, by the metadata of this node."""

    def nodes(self) -> Iterable[NodeRecord]: ...


class Applied(Protocol):
    """Waits for entries: ``node.loop.applied_waiters.AppliedEntries``."""

    async def wait(self, group: int, index: int, timeout_s: float) -> bool: ...


class Turns(Protocol):
    """Turns of the loop: ``node.loop.turns.Turns``."""

    async def take(self, rows: int = 1) -> None: ...


class _Deletion(NamedTuple):
    """A row of a request that has something to delete."""

    place: Location
    partition: int
    before_offset: int
    log_start: int  # at the end of the group's log
    live_bytes: int  # there


class _Counted(NamedTuple):
    """Bytes of the batches that end in the offsets from ``log_start`` to another offset;
    ``UNKNOWN_BYTES`` if they were not counted."""

    log_start: int
    bytes: int


class RecordDeletion:
    """The handler of ``DeleteRecords`` requests."""

    def __init__(self, core: MultiRaft, store: Batches,
                 partition_states: Mapping[int, PartitionStates], directory: Router,
                 metadata: Callable[[], Nodes], log_starts: LogStarts, applied: Applied,
                 turns: Turns, blocks: BlockReads, timeout_ms_max: int,
                 request_round: Callable[[], None],
                 now_ms: Callable[[], int] = monotonic_ms):
        self._core = core
        self._store = store
        self._partition_states = partition_states
        self._directory = directory
        self._metadata = metadata  # returns the present state; a snapshot replaces it
        self._log_starts = log_starts
        self._applied = applied
        self._turns = turns
        self._blocks = blocks
        self._timeout_ms_max = timeout_ms_max
        self._request_round = request_round
        self._now_ms = now_ms
        self.proposed = 0  # log starts

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request -> its handler."""
        return {wire.DeleteRecords: self.delete}

    async def delete(self, request: wire.DeleteRecords) -> wire.DeleteRecordsReply:
        """Delete records of each partition, and answer when that is applied here, or after the
        time limit.

        Raises ``Unsupported`` while a node of the cluster does not know the entry, and
        ``InvalidRequest`` for a partition that is named twice.  O(partitions + batches counted), in
        turns."""
        fault = retention_entries_fault(self._metadata().nodes())
        if fault:
            raise Unsupported(fault)
        rows = request.partitions
        if len({row.incarnation for row in rows}) != len(rows):
            raise InvalidRequest("a partition is named twice")
        results: list[wire.DeletionResult | None] = [None] * len(rows)
        by_group = await self._judge(rows, results)
        waiting: dict[int, tuple[int, list[tuple[int, wire.RecordDeletion]]]] = {}
        budget = BATCHES_COUNTED_MAX
        for group, slots in by_group.items():
            for part in parts(len(slots)):
                some = slots[part.start:part.stop]
                counted, budget = await self._count(group, some, budget)
                await self._turns.take(len(some))
                left = self._propose(group, some, counted, results)
                if left:
                    index, others = waiting.get(group, (0, []))
                    last = self._partition_states[group].last_index
                    waiting[group] = max(index, last), others + left
        if waiting:
            self._request_round()
            timeout_ms = min(request.timeout_ms, self._timeout_ms_max)
            await self._wait(waiting, self._now_ms() + timeout_ms, results)
        return wire.DeleteRecordsReply(tuple(result for result in results if result is not None))

    # ---- judgement ------------------------------------------------------------------------------

    async def _judge(self, rows: Sequence[wire.RecordDeletion],
                     results: list[wire.DeletionResult | None],
                     ) -> dict[int, list[tuple[int, wire.RecordDeletion]]]:
        """Return the rows that have something to delete, by group, with their slots; set the
        results of the others."""
        by_group: dict[int, list[tuple[int, wire.RecordDeletion]]] = {}
        for part in parts(len(rows)):
            await self._turns.take(len(part))
            for slot in part:
                found = self._judged(slot, rows[slot], results)
                if found is not None:
                    row = rows[slot]._replace(before_offset=found.before_offset)
                    by_group.setdefault(found.place.group, []).append((slot, row))
        return by_group

    def _judged(self, slot: int, row: wire.RecordDeletion,
                results: list[wire.DeletionResult | None]) -> _Deletion | None:
        """Return what a row deletes; None = its result is set: there is nothing to delete, or it is
        refused."""
        try:
            found = self._deletion(row)
        except REFUSED as error:
            results[slot] = self._refused(row, error)
            return None
        if type(found) is int:
            results[slot] = wire.DeletionResult(row.incarnation, Code.OK, found)
            return None
        assert isinstance(found, _Deletion)
        return found

    def _deletion(self, row: wire.RecordDeletion) -> _Deletion | int:
        """Return what a row deletes, or the present log start if that is not below the row's
        offset.  O(entries of the epoch history).

        Raises ``OffsetOutOfRange`` for an offset above the high watermark, ``InvalidRequest`` for a
        partition of an internal topic, and ``Redirect`` if another node leads the last group.
        Raises retriable errors while the partition is between two groups, or the leader is new."""
        partition = row.incarnation
        place = self._directory.locate(partition)
        if place is None:
            raise self._directory.unknown(partition, 0)
        if is_internal(place.topic.name):
            raise InvalidRequest(f"{place.topic.name!r:.80} is an internal topic: its records are "
                                 "removed by its retention only")
        states = self._partition_states.get(place.group)
        if states is None or not self._core.status.is_leader(place.group):
            raise Redirect(*self._directory.redirect(place, place.epoch_history[-1]))
        if not self._core.status.has_applied_in_term(place.group):
            raise OffsetNotAvailable(TERM_NOT_COMMITTED.text)
        if self._core.status.records_left(place.group):
            raise OffsetNotAvailable(RECORDS_LEFT)
        known = self._log_starts.highest(place, partition)
        if 0 <= row.before_offset <= known:
            return known
        tail = self._open_state(states, place, partition)
        applied = states.applied(partition)
        end = max(known, applied.next_offset
                  if applied is not None and applied.epoch == place.epoch
                  else place.epoch_history[-1].start_offset)
        before = row.before_offset if row.before_offset >= 0 else end
        if before > end:
            raise OffsetOutOfRange(
                f"offset {before} is beyond the end of "
                f"{place.topic.name:.80}/{place.partition}, which begins at {known} and ends at "
                f"{end}: nothing was deleted",
                start_offset=known, end_offset=end)
        if before == known:
            return known
        if tail is None:
            return _Deletion(place, partition, before, known, UNKNOWN_BYTES)
        return _Deletion(place, partition, before, tail.log_start, tail.live_bytes)

    def _open_state(self, states: PartitionStates, place: Location,
                    partition: int) -> PartitionState | None:
        """Return the partition's state at the end of its group's log; None = it is not open there:
        it was never used, or a forced recovery has lost its opening.

        Raises retriable errors where the end may be in another group: for a sealed partition, and
        for one whose epoch here is later than the metadata of this node say."""
        epoch = states.epoch_of(partition)
        if epoch > place.epoch:
            raise StaleMetadata(f"partition {partition} is at epoch {epoch} in group "
                                f"{place.group}, this node knows of {place.epoch}")
        if epoch < place.epoch:
            return None
        tail = states.tail_state(partition)
        if tail.sealed:
            raise PartitionSealed(f"partition {partition} is being switched to another group")
        return tail

    def _refused(self, row: wire.RecordDeletion, error: Any) -> wire.DeletionResult:
        code, detail = request_error(error, self._directory.leader_detail)
        return wire.DeletionResult(row.incarnation, code, -1, detail)

    # ---- sizes ----------------------------------------------------------------------------------

    async def _count(self, group: int, rows: Sequence[tuple[int, wire.RecordDeletion]],
                     budget: int) -> tuple[dict[int, _Counted], int]:
        """Return, by slot, the bytes of the batches that each row deletes, as long as no more than
        ``budget`` batches are counted; and what is left of the budget."""
        counted = {}
        for slot, row in rows:
            states = self._partition_states.get(group)
            if states is None or not states.epoch_of(row.incarnation):
                continue  # the replica was removed, or lost the opening
            log_start = at = states.tail_state(row.incarnation).log_start
            total = 0
            while at < row.before_offset and budget > 0:
                await self._turns.take(ROWS_PER_STEP)
                if group not in self._partition_states:
                    break  # the replica was removed meanwhile
                batches = await self._blocks.look_up(partial(
                    self._batches, group, row.incarnation, at))
                if batches is None:
                    break  # unreadable now, or the replica was removed meanwhile
                # A batch that the new log start divides stays.
                deleted = [batch for batch in batches if batch[1] <= row.before_offset]
                total += sum(batch[3] for batch in deleted)
                budget -= len(batches)
                if len(deleted) < ROWS_PER_STEP:
                    at = row.before_offset
                else:
                    at = deleted[-1][1]
            counted[slot] = _Counted(log_start,
                                     total if at >= row.before_offset else UNKNOWN_BYTES)
        return counted, budget

    def _batches(self, group: int, partition: int,
                 offset: int) -> list[tuple[int, int, int, int]] | None:
        if group not in self._partition_states:
            return None
        return self._store.batches(group, partition, offset, ROWS_PER_STEP)

    # ---- proposal -------------------------------------------------------------------------------

    def _propose(self, group: int, rows: Sequence[tuple[int, wire.RecordDeletion]],
                 counted: Mapping[int, _Counted], results: list[wire.DeletionResult | None],
                 ) -> list[tuple[int, wire.RecordDeletion]]:
        """Judge the rows of a group again, and propose their log starts in one entry. Return those
        that wait for the end of the group's log; set the results of the others.  O(rows)."""
        waiting, starts = [], []
        for slot, row in rows:
            found = self._judged(slot, row, results)
            if found is None:
                continue
            if found.place.group != group:
                results[slot] = self._refused(row, StaleMetadata(
                    f"partition {row.incarnation} was switched to group {found.place.group}"))
                continue
            waiting.append((slot, row))
            if found.log_start < found.before_offset:
                starts.append((found, _remaining(found, counted.get(slot))))
        if not starts:
            return waiting
        try:
            for found, _ in starts:
                states = self._partition_states[group]
                if states.epoch_of(found.partition) < found.place.epoch:
                    require_known_deletions(states, self._directory.metadata_index)
                    self._core.propose(group, EntryKind.PARTITION_OPEN,
                                       partition_open_of(found.place), found.partition)
            self._core.propose(group, EntryKind.LOG_START, log_starts_payload([
                LogStart(found.partition, found.before_offset, live_bytes)
                for found, live_bytes in starts]))
        except REFUSED as error:
            for slot, row in waiting:
                results[slot] = self._refused(row, error)
            return []
        self.proposed += len(starts)
        return waiting

    async def _wait(self, waiting: Mapping[int, tuple[int, list[tuple[int, wire.RecordDeletion]]]],
                    deadline_ms: int, results: list[wire.DeletionResult | None]) -> None:
        """Set the results of proposed rows, each when the end of its group's log at the proposal is
        applied here, or at the deadline."""
        for group, (index, rows) in waiting.items():
            left_s = max(0, deadline_ms - self._now_ms()) / 1000
            is_applied = await self._applied.wait(group, index, left_s)
            for part in parts(len(rows)):
                await self._turns.take(len(part))
                for slot, row in rows[part.start:part.stop]:
                    try:
                        results[slot] = wire.DeletionResult(
                            row.incarnation, Code.OK, self._outcome(group, row, is_applied))
                    except REFUSED as error:
                        results[slot] = self._refused(row, error)

    def _outcome(self, group: int, row: wire.RecordDeletion, is_applied: bool) -> int:
        """Return the log start of a partition after its deletion was proposed.

        Raises ``UnknownPartition`` if it was deleted meanwhile, ``LeaderUnknown`` if another leader
        has dropped the proposal, and ``AmbiguousOutcome`` if it may still be applied."""
        place = self._directory.locate(row.incarnation)
        if place is None:
            raise self._directory.unknown(row.incarnation, 0)
        log_start = self._log_starts.highest(place, row.incarnation)
        if log_start >= row.before_offset:
            return log_start
        if is_applied:
            raise LeaderUnknown(f"another leader of group {group} took over before the deletion "
                                "was committed: nothing was deleted")
        raise AmbiguousOutcome(f"partition {row.incarnation}: the deletion is not committed in "
                               "time, and may still be")


def _remaining(found: _Deletion, counted: _Counted | None) -> int:
    """Return the bytes that a deletion leaves in its group; ``UNKNOWN_BYTES`` if the state of the
    partition does not tell, or the log start was raised since the batches were counted."""
    if (counted is None or counted.bytes == UNKNOWN_BYTES or found.live_bytes == UNKNOWN_BYTES
            or counted.log_start != found.log_start):
        return UNKNOWN_BYTES
    return max(0, found.live_bytes - counted.bytes)
