"""Tail state and applied state of one group's partitions: next offsets, producer windows, seals.

Contract.  The group adds entries in log order.  A follower calls ``check_entry(entry)`` and then
``append``; a leader calls ``validate_append`` (batches) or ``check_entry`` (control entries) and
then ``append``.  ``truncate`` follows a truncated suffix, ``apply`` follows min(commit, own durable
index).  A leader *decides* by the tail; only applied state is served and saved.  No I/O, no clock.

Invariants.  ``applied_index <= last_index``; one undo record for each entry between them, none for
any other.  The tail is a function of the log's entries alone: every replica with the same log has
the same state, whatever it appended and truncated before.  The producer windows of a partition are
ordered by the index of their last batch: the first is the least recently used.

Theory.  The state of a partition is an immutable ``PartitionState`` and a window is an immutable
byte string, so an undo record is a few references, and undo restores them.  The applied state of a
partition is the tail's own object while the two agree; only partitions with entries in between are
in ``_applied_overrides``.  So an idle partition costs one tuple and one packed window, which the
garbage collector does not visit.  Windows follow Kafka's ProducerStateManager: the last 5 batches
of each (partition, producer), judged in log order.  Unlike in Kafka, an unknown producer must begin
at sequence 0: with several batches in flight, the first may be refused (no leader yet) and the
second accepted, and a retry of a forgotten producer would be taken for a new batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from typing import NamedTuple

from multiraft.codec.layout import ENTRY_ALIGNMENT
from multiraft.errors import (
    CodecError,
    CorruptEntry,
    OutOfOrderSequence,
    PartitionSealed,
    ProducerFenced,
    UnknownPartition,
)
from multiraft.partitions import retention_effects, tail_snapshot
from multiraft.partitions.partition_state import (
    NO_DETAILS,
    GroupState,
    PartitionDetails,
    PartitionState,
    with_leader_epoch,
    with_opening,
)
from multiraft.partitions.producer_state import (
    BATCHES_PER_WINDOW,
    SEQUENCE_MASK,
    WindowBatch,
    checked_window,
    export_windows,
    extended,
    import_windows,
    in_order_of_use,
    last_index,
    last_sequence,
    repeated,
    restore_windows,
    unexpired,
    window_epoch,
)
from multiraft.partitions.records import (
    LEADER_EPOCH_MAX,
    NO_PREDECESSOR,
    PartitionSeal,
    open_payload,
    parse_open,
    parse_seal,
)
from multiraft.raft.log_state import ValidatedAppend
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

__all__ = ["PARTITIONS_PER_GROUP_MAX", "PRODUCERS_PER_PARTITION_MAX", "GroupState",
           "PartitionState", "PartitionStates", "open_payload"]

#: Producers kept per partition.  The least recently used one is forgotten, and is an unknown
#: producer from then on, which has to begin a new epoch.  At about 200 bytes each this keeps a
#: partition below 256 KiB.
PRODUCERS_PER_PARTITION_MAX = 1024

#: Partitions that one group may have.  Their state is kept after a seal, until a PARTITION_DELETE,
#: so that a late open of an old epoch is refused.  Keeps a group's checkpoint below 128 MiB.
PARTITIONS_PER_GROUP_MAX = 1 << 20

_PADDING = ENTRY_ALIGNMENT - 1
_DATA = int(EntryKind.DATA)
_OPEN = int(EntryKind.PARTITION_OPEN)
_SEAL = int(EntryKind.PARTITION_SEAL)
#: ``PartitionState`` without a call of Python: one is made for each batch.
_new_state = tuple.__new__


class _GroupChange(NamedTuple):
    """Change of the group's state and of several partitions by one entry, to undo it."""

    before: GroupState
    after: GroupState
    rows: tuple[tuple, ...]  # as the records of other entries


class PartitionStates:
    """Tail and applied state of all partitions of one group.

    ``last_index`` is the index of the last entry appended, ``applied_index`` of the last applied.
    """

    __slots__ = ("group", "last_index", "applied_index", "group_state", "applied_group_state",
                 "_states", "_windows", "_pending", "_applied_overrides", "_first_details",
                 "_forgotten_below", "_shortened", "_ordered")

    def __init__(self, group: int, applied_index: int = 0):
        self.group = group
        self.last_index = applied_index
        self.applied_index = applied_index
        self.group_state = GroupState()  # at the tail
        self.applied_group_state = self.group_state
        #: partition -> PartitionState at the tail
        self._states: dict[int, PartitionState] = {}
        #: partition -> {producer id: packed window}, least recently used first, at the tail
        self._windows: dict[int, dict[int, bytes]] = {}
        #: One record per entry in (applied_index, last_index], None for an entry without effect:
        #: (partition, state before, state after, ((producer, window before or None), ...)), or a
        #: ``_GroupChange`` with any number of these.
        self._pending: deque[tuple | _GroupChange | None] = deque()
        #: partition -> applied state (None = not there), where it differs from the tail's
        self._applied_overrides: dict[int, PartitionState | None] = {}
        #: Details of the partition that last got its first batch; the next one often has the same.
        self._first_details = NO_DETAILS
        self._forgotten_below = 0  # ``expired_below`` at the last ``forget_expired``
        #: Deleted, or with a raised log start, by applied entries since ``take_shortened``.
        self._shortened: dict[int, None] = {}
        #: With a compact entry among those applied since ``take_ordered``.
        self._ordered: dict[int, None] = {}

    # ---- leader ---------------------------------------------------------------------------------

    def compacted(self) -> list[int]:
        """Return the partitions that have an applied compact entry.  O(partitions)."""
        return [partition for partition, state in self._states.items()
                if state.details is not NO_DETAILS and (
                    applied := self.applied(partition)) is not None
                and applied.compaction.generation]

    def validate_append(self, partition: int, info: BatchInfo) -> ValidatedAppend:
        """Return a leader's decision about a batch: its base offset, or the position of its
        original.

        The original of a duplicate may still be uncommitted; the caller waits for its index. A
        retry is answered even if the partition has been sealed since: the batch is in the log.

        Raises ``UnknownPartition`` if the partition was never opened here, and ``PartitionSealed``
        if it is sealed. Raises ``ProducerFenced`` for an epoch below the known one, and
        ``OutOfOrderSequence`` for a sequence that is neither the next one nor a retry. Nothing
        changes until ``append``."""
        state = self._states.get(partition)
        if state is None:
            raise UnknownPartition(f"partition {partition} is not open in group {self.group}")
        original = None
        if state.sealed:
            original = self._sealed_original(partition, info)
            if original is None:
                raise PartitionSealed(f"partition {partition} was sealed in group {self.group} at "
                                      f"offset {state.next_offset}, epoch {state.epoch}")
        elif info.producer_id >= 0:
            original = self._original(partition, info)
        if original is not None:
            return ValidatedAppend(original.base_offset, state.leader_epoch_base, True,
                                   original.index)
        return ValidatedAppend(state.next_offset, state.leader_epoch_base, False, 0)

    def begins_producer(self, partition: int, info: BatchInfo) -> bool:
        """True if the partition does not know the batch's producer, or only lower epochs of it.
        O(1)."""
        window = self._window(partition, info.producer_id)
        return window is None or info.producer_epoch > window_epoch(window)

    def _window(self, partition: int, producer: int) -> bytes | None:
        """Return the producer's window at the tail; None = the producer is unknown, or has
        expired."""
        windows = self._windows.get(partition)
        window = windows.get(producer) if windows is not None else None
        below_index = self.group_state.expired_below
        if below_index and window is not None and last_index(window) < below_index:
            return None
        return window

    def _sealed_original(self, partition: int, info: BatchInfo) -> WindowBatch | None:
        """Return the batch in this group that ``info`` repeats; None = this group knows of none.

        Other batches of the producer are not judged here: it continues in the partition's next
        group, and its batches would seem out of order in this one."""
        window = self._window(partition, info.producer_id)
        return repeated(window, info) if window is not None else None

    def _original(self, partition: int, info: BatchInfo) -> WindowBatch | None:
        """Return the batch that ``info`` repeats, or None if ``info`` is the next one.  Raises
        ``SequenceError`` if it is neither."""
        window = self._window(partition, info.producer_id)
        if window is None:
            if info.base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {info.producer_id} is unknown in partition {partition} (new, or "
                    f"forgotten) and sent sequence {info.base_sequence}, not 0")
            return None
        epoch = window_epoch(window)
        first = info.base_sequence
        if info.producer_epoch == epoch:
            if first == (last_sequence(window) + 1) & SEQUENCE_MASK:
                return None
            return self._retried(partition, info, window)
        if info.producer_epoch < epoch:
            raise ProducerFenced(f"producer {info.producer_id} epoch {info.producer_epoch} was "
                                 f"fenced by epoch {epoch} in partition {partition}")
        if first != 0:
            raise OutOfOrderSequence(f"producer {info.producer_id} starts epoch "
                                     f"{info.producer_epoch} in partition {partition} at sequence "
                                     f"{first}, not 0")
        return None

    def _retried(self, partition: int, info: BatchInfo, window: bytes) -> WindowBatch:
        """Return the batch in the window with exactly these sequences. Raises
        ``OutOfOrderSequence`` if the window has none."""
        original = repeated(window, info)
        if original is not None:
            return original
        raise OutOfOrderSequence(
            f"producer {info.producer_id} sent sequence {info.base_sequence} to partition "
            f"{partition}, expected {(last_sequence(window) + 1) & SEQUENCE_MASK} or a retry of "
            f"one of the last {BATCHES_PER_WINDOW} batches")

    # ---- leader and follower --------------------------------------------------------------------

    def check_entry(self, entry: Entry) -> str:
        """Return why ``entry`` cannot follow this tail; empty if it can.

        A follower that gets a reason has another history than its leader, and its replica stops.  A
        leader calls it before it appends a control entry, and refuses the proposal."""
        if entry.index != self.last_index + 1:
            return f"index {entry.index} does not follow {self.last_index}"
        kind = entry.kind
        if kind == _DATA:
            return self._check_data(entry)
        if kind == _OPEN:
            return self._check_open(entry)
        if kind == _SEAL:
            return self._check_seal(entry)
        if kind in retention_effects.KINDS:
            return retention_effects.fault(entry, self._states, self.group_state)
        if not 0 < kind <= LAST_INDEXED_KIND:
            return f"entries of kind {kind} have no place in a group's log"
        return ""

    def _check_data(self, entry: Entry) -> str:
        state = self._states.get(entry.partition)
        if state is None:
            return f"data for partition {entry.partition}, which is not open"
        if state.sealed:
            return f"data for partition {entry.partition}, which is sealed at {state.next_offset}"
        if entry.batch is None:
            return "a data entry without a batch"
        if state.leader_epoch_base + entry.term > LEADER_EPOCH_MAX:
            return (f"leader epoch {state.leader_epoch_base + entry.term} of partition "
                    f"{entry.partition} exceeds the limit of {LEADER_EPOCH_MAX}")
        if entry.base_offset != state.next_offset:
            return (f"base offset {entry.base_offset} of partition {entry.partition}, expected "
                    f"{state.next_offset}")
        return ""

    def _check_open(self, entry: Entry) -> str:
        try:
            opening = parse_open(entry.payload)
            producers = len(import_windows(opening.windows, entry.index))
        except CorruptEntry as error:
            return str(error)
        partition, state = entry.partition, self._states.get(entry.partition)
        if producers > PRODUCERS_PER_PARTITION_MAX:
            return (f"windows of {producers} producers exceed the partition's limit of "
                    f"{PRODUCERS_PER_PARTITION_MAX}")
        if partition <= 0:
            return f"{partition} is no partition incarnation"
        if state is None:
            full = len(self._states) >= PARTITIONS_PER_GROUP_MAX
            return (f"{len(self._states)} partitions reach the group's limit of "
                    f"{PARTITIONS_PER_GROUP_MAX}" if full else "")
        if opening.epoch < state.epoch:
            return f"partition {partition} is at epoch {state.epoch}, opened at {opening.epoch}"
        if opening.epoch > state.epoch and opening.start_offset < state.next_offset:
            return (f"partition {partition} ends at {state.next_offset}, opened at "
                    f"{opening.start_offset}")
        return ""

    def _check_seal(self, entry: Entry) -> str:
        state = self._states.get(entry.partition)
        if state is None:
            return f"PARTITION_SEAL of partition {entry.partition}, which is not open"
        return _seal_fault(entry, state)

    def append(self, entry: Entry) -> None:
        """Add the effect of ``entry``, which ``check_entry`` or ``validate_append`` accepted, to
        the tail.  O(1), or O(partitions that the entry names)."""
        assert entry.index == self.last_index + 1, f"{entry!r} after {self.last_index}"
        kind = entry.kind
        record: tuple | None = None
        if kind == _DATA:
            record = self._append_data(entry)
        elif kind == _OPEN:
            record = self._append_open(entry)
        elif kind == _SEAL:
            record = self._append_seal(entry)
        elif kind in retention_effects.KINDS:
            self._pending.append(self._append_retention(entry))
            self.last_index = entry.index
            return
        else:
            assert 0 < kind <= LAST_INDEXED_KIND, f"{entry!r} has no place in a group's log"
        if record is not None:
            partition, before, after, _ = record
            self._states[partition] = after
            if partition not in self._applied_overrides:
                self._applied_overrides[partition] = before
            if kind == _OPEN and before is not None and before.log_start < after.log_start:
                # ``apply`` examines log starts in these records alone.
                self._pending.append(_GroupChange(self.group_state, self.group_state, (record,)))
                self.last_index = entry.index
                return
        self._pending.append(record)
        self.last_index = entry.index

    def _append_data(self, entry: Entry) -> tuple:
        partition, batch = entry.partition, entry.batch
        assert batch is not None
        before = self._states[partition]
        (epoch, leader_epoch_base, next_offset, log_start, sealed, start_offset, _, live_bytes,
         details) = before
        assert not sealed, f"{entry!r} after the seal of partition {partition}"
        assert entry.base_offset == next_offset, f"{entry!r} at {entry.base_offset}"
        if leader_epoch_base + entry.term > details[0]:
            details = self._with_leader_epoch(details, leader_epoch_base + entry.term, next_offset)
        if live_bytes >= 0:
            live_bytes += (len(entry.payload) + _PADDING) & ~_PADDING
        after = _new_state(PartitionState, (
            epoch, leader_epoch_base, next_offset + batch.count, log_start, False, start_offset, 0,
            live_bytes, details))
        if batch.producer_id < 0:
            return partition, before, after, ()
        return partition, before, after, self._remember(partition, batch, entry)

    def _with_leader_epoch(self, details: PartitionDetails, leader_epoch: int,
                           first_offset: int) -> PartitionDetails:
        """Return the details with another leader epoch; the same object for partitions that begin
        one after the other at the same offset and leader epoch."""
        after = with_leader_epoch(details, leader_epoch, first_offset)
        if details is not NO_DETAILS:
            return after
        if after != self._first_details:
            self._first_details = after
        return self._first_details

    def _remember(self, partition: int, batch: BatchInfo, entry: Entry) -> tuple:
        """Extend the producer's window by ``batch`` and make it the most recently used; forget the
        least recently used producer if there are too many.

        Returns (producer, its window before or None) of each changed one, to undo it."""
        windows = self._windows.get(partition)
        if windows is None:
            windows = self._windows[partition] = {}
        producer = batch.producer_id
        window = windows.pop(producer, None)
        changed: tuple[tuple[int, bytes | None], ...] = ((producer, window),)
        below_index = self.group_state.expired_below
        if below_index and window is not None and last_index(window) < below_index:
            window = None
        if window is None and len(windows) >= PRODUCERS_PER_PARTITION_MAX:
            oldest = next(iter(windows))
            changed += ((oldest, windows.pop(oldest)),)
        windows[producer] = extended(window, batch, entry.base_offset, entry.index)
        return changed

    def _append_open(self, entry: Entry) -> tuple | None:
        opening = parse_open(entry.payload)
        partition, before = entry.partition, self._states.get(entry.partition)
        if before is not None:
            assert opening.epoch >= before.epoch, f"{entry!r} opens an old epoch"
            if opening.epoch == before.epoch:
                return None  # idempotent: this epoch is open already, or even sealed since
        log_start = opening.start_offset if before is None else before.log_start
        if opening.log_start != NO_PREDECESSOR:
            log_start = max(opening.log_start, 0 if before is None else log_start)
        place = opening.epoch, opening.leader_epoch_base, opening.start_offset, log_start
        after = (PartitionState(*place, False, opening.start_offset, 0) if before is None
                 else with_opening(before, *place))
        # Windows in this group are from before the partition moved away.  Its producers continued
        # elsewhere, and the opening carries their later state.
        old = self._windows.pop(partition, {})
        new = import_windows(opening.windows, entry.index)
        if new:
            self._windows[partition] = new
        return partition, before, after, tuple([(producer, old.get(producer))
                                                for producer in {**old, **new}])

    def _append_seal(self, entry: Entry) -> tuple | None:
        before = self._states[entry.partition]
        if before.sealed:
            return None
        after = before._replace(sealed=True, leader_epoch=before.leader_epoch_base + entry.term)
        return entry.partition, before, after, ()

    def _append_retention(self, entry: Entry) -> _GroupChange | None:
        """Carry out an entry that decides retention; return what it changed."""
        before = self.group_state
        found = retention_effects.changes(entry, self._states, before)
        if found.group_state == before and not found.partitions:
            return None
        self.group_state = found.group_state
        rows = []
        for partition, old, new in found.partitions:
            self._set_tail(partition, new)
            # The windows go with the partition.  Their dictionary no longer changes.
            windows = self._windows.pop(partition, {}) if new is None else {}
            rows.append((partition, old, new, windows.items()))
        return _GroupChange(before, found.group_state, tuple(rows))

    def _set_tail(self, partition: int, state: PartitionState | None) -> None:
        """Set the partition's state at the tail, None = it is not there; the applied one stays."""
        applied = self.applied(partition)
        if state is not None:
            self._states[partition] = state
        else:
            self._states.pop(partition, None)
        self._set_applied(partition, applied)

    def _set_applied(self, partition: int, state: PartitionState | None) -> None:
        if self._states.get(partition) is state:
            self._applied_overrides.pop(partition, None)
        else:
            self._applied_overrides[partition] = state

    def truncate(self, first_gone: int) -> None:
        """Undo every entry from index ``first_gone`` on, none of which may be applied.

        O(removed entries), plus sorting the producers of each affected partition."""
        assert first_gone > self.applied_index, f"{first_gone} is applied ({self.applied_index})"
        reordered: dict[int, None] = {}
        while self.last_index >= first_gone:
            record = self._pending.pop()
            self.last_index -= 1
            if record is not None:
                self._undo(record)
                for row in _rows(record):
                    if row[3]:
                        reordered[row[0]] = None
        for partition in reordered:
            self._windows[partition] = in_order_of_use(self._windows[partition])
            if not self._windows[partition]:
                del self._windows[partition]

    def _undo(self, record: tuple | _GroupChange) -> None:
        if type(record) is _GroupChange:
            self.group_state = record.before
        for partition, before, _, changed in reversed(_rows(record)):
            self._set_tail(partition, before)
            if changed:
                restore_windows(self._windows.setdefault(partition, {}), changed)

    def apply(self, index: int) -> None:
        """Raise the applied state to the entry at ``index``, which the tail already has.  O(entries
        applied and partitions that they name)."""
        assert index <= self.last_index, f"apply {index} of {self.last_index}"
        while self.applied_index < index:
            record = self._pending.popleft()
            self.applied_index += 1
            if record is None:
                continue
            if type(record) is _GroupChange:
                self.applied_group_state = record.after
                for partition, before, after, _ in record.rows:
                    self._set_applied(partition, after)
                    if after is None or before is not None and before.log_start < after.log_start:
                        self._shortened[partition] = None
                    if (after is not None and before is not None
                            and before.details is not after.details
                            and before.compaction is not after.compaction):
                        self._ordered[partition] = None
                continue
            partition, _, after, _ = record
            if self._states.get(partition) is after:
                del self._applied_overrides[partition]
            else:
                self._applied_overrides[partition] = after

    def has_producer_before(self, index: int, partitions_max: int) -> bool:
        """Return True if the last batch of some producer in a partition has an index below
        ``index``.  O(partitions): of more than ``partitions_max`` it is assumed."""
        if len(self._windows) > partitions_max:
            return True
        return any(last_index(next(iter(windows.values()))) < index
                   for windows in self._windows.values())

    @property
    def has_producers(self) -> bool:
        """True if some partition knows a producer."""
        return bool(self._windows)

    def take_shortened(self) -> Collection[int]:
        """Return the partitions that applied entries have deleted, or whose applied log start rose,
        since the last call.  O(1)."""
        if not self._shortened:
            return ()
        shortened, self._shortened = self._shortened, {}
        return shortened

    def take_ordered(self) -> Collection[int]:
        """Return the partitions of which a compact entry was applied since the last call.  O(1)."""
        if not self._ordered:
            return ()
        ordered, self._ordered = self._ordered, {}
        return ordered

    def is_deleted(self, partition: int) -> bool:
        """Return True if neither the applied state nor the tail knows the partition."""
        return partition not in self._states and self.applied(partition) is None

    def forget_expired(self) -> None:
        """Free the windows of producers that have expired by the applied entries; no look-up
        finds them.  O(partitions + expired) after a PRODUCERS_EXPIRE, else O(1)."""
        below_index = self.applied_group_state.expired_below
        if below_index == self._forgotten_below:
            return
        self._forgotten_below = below_index
        for partition, windows in list(self._windows.items()):
            kept = unexpired(windows, below_index)
            if kept:
                self._windows[partition] = kept
            else:
                del self._windows[partition]

    # ---- queries --------------------------------------------------------------------------------

    def tail_state(self, partition: int) -> PartitionState:
        """Return the partition's state after all entries of the log, by which a leader decides.
        Raises ``UnknownPartition`` if it was never opened in this group."""
        state = self._states.get(partition)
        if state is None:
            raise UnknownPartition(f"partition {partition} is not open in group {self.group}")
        return state

    def next_offset(self, partition: int) -> int:
        """Return the offset that the next batch will get, by all entries of the log. Raises
        ``UnknownPartition`` for a partition that was never opened in this group."""
        return self.tail_state(partition).next_offset

    def applied(self, partition: int) -> PartitionState | None:
        """Return the state by the applied entries; its ``next_offset`` is the high watermark. It is
        None while the opening entry is not applied here."""
        return self._applied_overrides.get(partition, self._states.get(partition))

    def is_open(self, partition: int) -> bool:
        """True if the tail accepts batches for this partition."""
        state = self._states.get(partition)
        return state is not None and not state.sealed

    def epoch_of(self, partition: int) -> int:
        """Return the partition's latest epoch in this group (tail); 0 = it was never opened
        here."""
        state = self._states.get(partition)
        return 0 if state is None else state.epoch

    def sealed(self, partition: int) -> PartitionSeal | None:
        """Return the contents of the partition's *applied* seal; None = it is not sealed.

        They are final but for producers that expire later: every replica that has applied the seal
        returns the same.  O(producers + pending entries)."""
        state = self.applied(partition)
        if state is None or not state.sealed:
            return None
        return PartitionSeal(state.epoch, state.next_offset, state.log_start, state.leader_epoch,
                      export_windows(self.windows(partition)))

    @property
    def partitions_count(self) -> int:
        """Number of partitions that the tail knows, sealed ones included."""
        return len(self._states)

    def partitions(self) -> Iterator[int]:
        """Return the incarnations of all partitions that the tail knows, in any order."""
        return iter(self._states)

    def windows(self, partition: int) -> dict[int, bytes]:
        """Return a copy of the *applied* producer windows, least recently used first: producer id
        -> packed window (see ``window_batches``).  O(producers + pending entries)."""
        windows = dict(self._windows.get(partition, {}))
        for record in reversed(self._pending):
            for row in _rows(record):
                if row[0] == partition:
                    restore_windows(windows, row[3])
        return unexpired(in_order_of_use(windows), self.applied_group_state.expired_below)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the applied state as CBOR-able values, partitions in order of their incarnations.
        O(partitions + producers + pending entries)."""
        undone: dict[int, dict[int, bytes]] = {}
        for record in reversed(self._pending):
            for partition, _, _, changed in _rows(record):
                if changed:
                    if partition not in undone:
                        undone[partition] = dict(self._windows.get(partition, {}))
                    restore_windows(undone[partition], changed)
        below_index = self.applied_group_state.expired_below
        deleted = [each for each in self._applied_overrides if each not in self._states]
        partitions = []
        for partition in sorted([*self._states, *deleted]):
            state = self.applied(partition)
            if state is not None:
                windows = undone.get(partition)
                windows = (self._windows.get(partition, {}) if windows is None
                           else in_order_of_use(windows))
                windows = unexpired(windows, below_index)
                partitions.append(tail_snapshot.row(partition, state, list(windows.items())))
        return {**tail_snapshot.head(self.group, self.applied_index, self.applied_group_state),
                "partitions": partitions}

    @classmethod
    def restore(cls, snapshot: dict) -> PartitionStates:
        """Return the state of a group whose tail and applied state are both those of ``snapshot``.
        Raises ``CodecError`` if the object is not a result of ``snapshot``."""
        try:
            group_state, partitions = tail_snapshot.read(snapshot)
            tail = cls(snapshot["group"], snapshot["applied"])
            tail.group_state = tail.applied_group_state = group_state
            for partition, state, windows in partitions:
                tail._states[partition] = state
                if windows:
                    tail._windows[partition] = in_order_of_use(
                        {producer: checked_window(window) for producer, window in windows})
        except (KeyError, TypeError, ValueError) as error:
            raise CodecError(f"malformed tail state: {error!r}") from error
        return tail

    def _check(self) -> None:
        """Assert every invariant, by undoing the pending records.  O(n); for tests and the
        simulator."""
        assert len(self._pending) == self.last_index - self.applied_index
        assert len(self._states) <= PARTITIONS_PER_GROUP_MAX
        applied: dict[int, PartitionState | None] = dict(self._states)
        group_state = self.group_state
        for record in reversed(self._pending):
            if type(record) is _GroupChange:
                assert group_state is record.after, "the group's state forks"
                group_state = record.before
            for partition, before, after, _ in _rows(record):
                assert applied.get(partition) is after, f"partition {partition} forks"
                applied[partition] = before
        assert group_state == self.applied_group_state
        for partition, state in applied.items():
            override = self._applied_overrides.get(partition)
            behind = partition in self._applied_overrides
            assert behind == (state is not self._states.get(partition)), f"partition {partition}"
            assert not behind or override is state, f"partition {partition}"
        assert set(self._applied_overrides) <= set(applied)
        for partition, state in self._states.items():
            assert 0 <= state.log_start <= state.next_offset, f"partition {partition}: {state}"
        for partition, windows in self._windows.items():
            assert 0 < len(windows) <= PRODUCERS_PER_PARTITION_MAX, f"partition {partition}"
            assert partition in self._states, f"windows of unknown partition {partition}"
            assert list(windows) == list(in_order_of_use(windows)), f"partition {partition}"


def _seal_fault(entry: Entry, state: PartitionState) -> str:
    """Return why the partition cannot be sealed by ``entry``; empty if it can.  A seal of a past
    epoch must not end another."""
    try:
        epoch = parse_seal(entry.payload)
    except CorruptEntry as error:
        return str(error)
    if epoch != state.epoch:
        return f"partition {entry.partition} is at epoch {state.epoch}, sealed at {epoch}"
    if entry.base_offset not in (-1, state.next_offset):
        return (f"partition {entry.partition} sealed at {entry.base_offset}, its end is "
                f"{state.next_offset}")
    return ""


def _rows(record: tuple | _GroupChange | None) -> tuple[tuple, ...]:
    """Return the partitions that an entry changed, each as (partition, state before, state after,
    windows before)."""
    if record is None:
        return ()
    return record.rows if type(record) is _GroupChange else (record,)
