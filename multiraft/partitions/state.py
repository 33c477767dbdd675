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
from collections.abc import Iterator
from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.errors import (
    CodecError,
    CorruptEntry,
    OutOfOrderSequence,
    PartitionSealed,
    ProducerFenced,
    UnknownPartition,
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
    last_sequence,
    repeated,
    restore_windows,
    window_epoch,
)
from multiraft.partitions.records import (
    NO_PREDECESSOR,
    PartitionSeal,
    open_payload,
    parse_open,
    parse_seal,
)
from multiraft.raft.log_state import ValidatedAppend
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

__all__ = ["PARTITIONS_PER_GROUP_MAX", "PRODUCERS_PER_PARTITION_MAX", "PartitionState",
           "PartitionStates", "open_payload"]

#: Producers kept per partition.  The least recently used one is forgotten, and is an unknown
#: producer from then on, which has to begin a new epoch.  At about 200 bytes each this keeps a
#: partition below 256 KiB.
PRODUCERS_PER_PARTITION_MAX = 1024

#: Partitions that one group may ever have opened.  Their state is kept after a seal, so that a late
#: open of an old epoch is refused.  Keeps a group's checkpoint below 128 MiB.
PARTITIONS_PER_GROUP_MAX = 1 << 20

#: Version of the object that ``snapshot`` returns.  Version 1 has no seals; it is read.
SNAPSHOT_VERSION = 2
SNAPSHOT_VERSIONS_READ = (1, 2)

_DATA = int(EntryKind.DATA)
_OPEN = int(EntryKind.PARTITION_OPEN)
_SEAL = int(EntryKind.PARTITION_SEAL)
_LOG_START = int(EntryKind.LOG_START)

#: Shape of the object that ``snapshot`` returns: per partition its state, and (producer, window).
_SNAPSHOT = {"group": shapes.UINT, "applied": shapes.UINT, "partitions": [
    (*[shapes.UINT] * 5, shapes.FLAG, shapes.UINT, shapes.UINT, [(shapes.UINT, shapes.BYTES)])]}


class PartitionState(NamedTuple):
    """One partition in one group.

    Offsets from ``start_offset`` to ``next_offset`` belong to ``epoch``.  Lower ones are in earlier
    links of the partition's chain, of which this group's log may have some too.  Offsets below
    ``log_start`` are deleted in every group."""

    epoch: int
    leader_epoch_base: int
    next_offset: int
    log_start: int
    sealed: bool
    start_offset: int
    leader_epoch: int  # once sealed: no batch of the partition carries a higher one; else 0


class PartitionStates:
    """Tail and applied state of all partitions of one group.

    ``last_index`` is the index of the last entry appended, ``applied_index`` of the last applied.
    """

    __slots__ = ("group", "last_index", "applied_index", "_states", "_windows", "_pending",
                 "_applied_overrides")

    def __init__(self, group: int, applied_index: int = 0):
        self.group = group
        self.last_index = applied_index
        self.applied_index = applied_index
        #: partition -> PartitionState at the tail
        self._states: dict[int, PartitionState] = {}
        #: partition -> {producer id: packed window}, least recently used first, at the tail
        self._windows: dict[int, dict[int, bytes]] = {}
        #: One record per entry in (applied_index, last_index], None for an entry without effect:
        #: (partition, state before, state after, ((producer, window before or None), ...)).
        self._pending: deque[tuple | None] = deque()
        #: partition -> applied state (None = not yet there), where it differs from the tail's
        self._applied_overrides: dict[int, PartitionState | None] = {}

    # ---- leader ---------------------------------------------------------------------------------

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
        windows = self._windows.get(partition)
        window = windows.get(info.producer_id) if windows is not None else None
        return window is None or info.producer_epoch > window_epoch(window)

    def _sealed_original(self, partition: int, info: BatchInfo) -> WindowBatch | None:
        """Return the batch in this group that ``info`` repeats; None = this group knows of none.

        Other batches of the producer are not judged here: it continues in the partition's next
        group, and its batches would seem out of order in this one."""
        window = self._windows.get(partition, {}).get(info.producer_id)
        return repeated(window, info) if window is not None else None

    def _original(self, partition: int, info: BatchInfo) -> WindowBatch | None:
        """Return the batch that ``info`` repeats, or None if ``info`` is the next one.  Raises
        ``SequenceError`` if it is neither."""
        windows = self._windows.get(partition)
        window = windows.get(info.producer_id) if windows is not None else None
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
        if kind == _SEAL or kind == _LOG_START:
            return self._check_control(entry)
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

    def _check_control(self, entry: Entry) -> str:
        """Return why a seal or log start does not fit: an unknown partition, or an offset outside
        its range.  Empty if it does."""
        state = self._states.get(entry.partition)
        if state is None:
            return f"{EntryKind(entry.kind).name} of partition {entry.partition}, which is not open"
        if entry.kind == _SEAL:
            return _seal_fault(entry, state)
        if entry.kind == _LOG_START and not 0 <= entry.base_offset <= state.next_offset:
            return (f"log start {entry.base_offset} of partition {entry.partition}, its end is "
                    f"{state.next_offset}")
        return ""

    def append(self, entry: Entry) -> None:
        """Add the effect of ``entry``, which ``check_entry`` or ``validate_append`` accepted, to
        the tail.  O(1)."""
        assert entry.index == self.last_index + 1, f"{entry!r} after {self.last_index}"
        kind = entry.kind
        record: tuple | None = None
        if kind == _DATA:
            record = self._append_data(entry)
        elif kind == _OPEN:
            record = self._append_open(entry)
        elif kind == _SEAL or kind == _LOG_START:
            record = self._append_control(entry)
        else:
            assert 0 < kind <= LAST_INDEXED_KIND, f"{entry!r} has no place in a group's log"
            record = None
        if record is not None:
            partition, before, after, _ = record
            self._states[partition] = after
            if partition not in self._applied_overrides:
                self._applied_overrides[partition] = before
        self._pending.append(record)
        self.last_index = entry.index

    def _append_data(self, entry: Entry) -> tuple:
        partition, batch = entry.partition, entry.batch
        assert batch is not None
        before = self._states[partition]
        assert not before.sealed, f"{entry!r} after the seal of partition {partition}"
        assert entry.base_offset == before.next_offset, f"{entry!r} at {entry.base_offset}"
        after = PartitionState(before.epoch, before.leader_epoch_base,
                               before.next_offset + batch.count, before.log_start, False,
                               before.start_offset, 0)
        if batch.producer_id < 0:
            return partition, before, after, ()
        return partition, before, after, self._remember(partition, batch, entry)

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
        after = PartitionState(opening.epoch, opening.leader_epoch_base, opening.start_offset,
                               log_start, False, opening.start_offset, 0)
        # Windows in this group are from before the partition moved away.  Its producers continued
        # elsewhere, and the opening carries their later state.
        old = self._windows.pop(partition, {})
        new = import_windows(opening.windows, entry.index)
        if new:
            self._windows[partition] = new
        return partition, before, after, tuple([(producer, old.get(producer))
                                                for producer in {**old, **new}])

    def _append_control(self, entry: Entry) -> tuple | None:
        before = self._states[entry.partition]
        if entry.kind != _SEAL:
            after = before._replace(log_start=max(before.log_start, entry.base_offset))
        elif before.sealed:
            after = before
        else:
            after = before._replace(sealed=True,
                                    leader_epoch=before.leader_epoch_base + entry.term)
        return None if after == before else (entry.partition, before, after, ())

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
                if record[3]:
                    reordered[record[0]] = None
        for partition in reordered:
            self._windows[partition] = in_order_of_use(self._windows[partition])
            if not self._windows[partition]:
                del self._windows[partition]

    def _undo(self, record: tuple) -> None:
        partition, before, _, changed = record
        if before is None:
            del self._states[partition]
        else:
            self._states[partition] = before
        if self._applied_overrides[partition] is before:
            del self._applied_overrides[partition]
        if changed:
            restore_windows(self._windows.setdefault(partition, {}), changed)

    def apply(self, index: int) -> None:
        """Raise the applied state to the entry at ``index``, which the tail already has.  O(entries
        applied)."""
        assert index <= self.last_index, f"apply {index} of {self.last_index}"
        while self.applied_index < index:
            record = self._pending.popleft()
            self.applied_index += 1
            if record is not None:
                partition, _, after, _ = record
                if self._states[partition] is after:
                    del self._applied_overrides[partition]
                else:
                    self._applied_overrides[partition] = after

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

        They are final: every replica that has applied the seal returns the same.  O(producers +
        pending entries)."""
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
        """Return the incarnations of all partitions that the tail knows, in order of their first
        opening."""
        return iter(self._states)

    def windows(self, partition: int) -> dict[int, bytes]:
        """Return a copy of the *applied* producer windows, least recently used first: producer id
        -> packed window (see ``window_batches``).  O(producers + pending entries)."""
        windows = dict(self._windows.get(partition, {}))
        for record in reversed(self._pending):
            if record is not None and record[0] == partition:
                restore_windows(windows, record[3])
        return in_order_of_use(windows)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the applied state as CBOR-able values.  O(partitions + producers + pending
        entries)."""
        undone: dict[int, dict[int, bytes]] = {}
        for record in reversed(self._pending):
            if record is not None and record[3]:
                if record[0] not in undone:
                    undone[record[0]] = dict(self._windows.get(record[0], {}))
                restore_windows(undone[record[0]], record[3])
        partitions = []
        for partition, tail_state in self._states.items():
            state = self._applied_overrides.get(partition, tail_state)
            if state is not None:
                windows = undone.get(partition)
                windows = (self._windows.get(partition, {}) if windows is None
                           else in_order_of_use(windows))
                partitions.append([partition, *state, list(windows.items())])
        return {"version": SNAPSHOT_VERSION, "group": self.group, "applied": self.applied_index,
                "partitions": partitions}

    @classmethod
    def restore(cls, snapshot: dict) -> PartitionStates:
        """Return the state of a group whose tail and applied state are both those of ``snapshot``.
        Raises ``CodecError`` if the object is not a result of ``snapshot``."""
        try:
            if snapshot["version"] not in SNAPSHOT_VERSIONS_READ:
                raise CodecError(f"tail state of version {snapshot['version']}, known are "
                                 f"{SNAPSHOT_VERSIONS_READ}")
            snapshot = _upgraded(snapshot)
            shapes.check(snapshot, _SNAPSHOT, "tail state")
            tail = cls(snapshot["group"], snapshot["applied"])
            for partition, *fields, windows in snapshot["partitions"]:
                state = tail._states[partition] = PartitionState(*fields)
                if state.log_start > state.next_offset:
                    raise ValueError(f"partition {partition} begins behind its end: {state}")
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
        for record in reversed(self._pending):
            if record is not None:
                partition, before, after, _ = record
                assert applied[partition] is after, f"partition {partition} forks"
                applied[partition] = before
        for partition, state in applied.items():
            override = self._applied_overrides.get(partition)
            behind = partition in self._applied_overrides
            assert behind == (state is not self._states[partition]), f"partition {partition}"
            assert not behind or override is state, f"partition {partition}"
        assert set(self._applied_overrides) <= set(self._states)
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


def _upgraded(snapshot: dict) -> dict:
    """Return a snapshot of version 1 in the present shape, one of another version unchanged. No
    partition was sealed under version 1."""
    if snapshot["version"] != 1:
        return snapshot
    rows = [[*row[:-1], 0, 0, row[-1]] for row in snapshot["partitions"]]
    return {**snapshot, "partitions": rows}
