"""Batches of a producer before their outcome, their deliveries, and the queue of each partition.

Contract.  A ``BatchOutcome`` gets exactly one outcome: a ``BatchReceipt``, a ``RequestError`` or
``Closed`` when the batch was certainly not appended, or ``AmbiguousOutcome`` when that is unknown.
A ``Delivery`` names some consecutive records of a batch, and computes their offsets from it.
"""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import Any, Callable, Sequence

from multiraft import core
from multiraft.client._records import BatchReceipt, RecordReceipt
from multiraft.codec import layout
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import StorageFull


class BatchOutcome:
    """Pending outcome of one batch, or of a record that waits for the metadata of its topic.
    ``owner``: the driver's client."""

    __slots__ = ("outcome", "claimed", "first", "owner", "_listeners")

    def __init__(self, owner: Any = None) -> None:
        self.outcome: BatchReceipt | MultiRaftError | None = None
        self.claimed = False  # a caller has received the outcome, so ``flush`` need not report it
        self.first = 0  # position in the batch of a record that waited for metadata
        self.owner = owner
        self._listeners: list[Callable[[], None]] = []

    @property
    def done(self) -> bool:
        """True if the outcome is known."""
        return self.outcome is not None

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once the outcome is known, at once if it is.  A failure then counts as
        received."""
        if self.outcome is not None:
            self.claimed = True
            listener()
        else:
            self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Remove ``listener``, which was not called yet."""
        self._listeners.remove(listener)

    def resolve(self, outcome: BatchReceipt | MultiRaftError) -> None:
        """Set the outcome, once, and call the listeners."""
        assert self.outcome is None, "a delivery has one outcome"
        self.outcome = outcome
        if self._listeners:
            self.claimed = True
            listeners, self._listeners = self._listeners, []
            for listener in listeners:
                listener()


class Delivery(tuple):
    """Pending outcome of records that one call put into a batch, one after the other.  Drivers
    subclass it and add a method that waits.  Deliveries of the same batch are equal, because they
    end together, but for records that waited for the metadata of their topic; ``offset`` and
    ``offsets`` tell their records apart.

    A tuple of the ``BatchOutcome``, the position of the first record in the batch, and the number
    of records: one is made for each record, and offsets are computed on demand."""

    __slots__ = ()

    _batch: BatchOutcome = property(itemgetter(0))  # type: ignore[assignment]
    _position: int = property(itemgetter(1))  # type: ignore[assignment]
    _length: int = property(itemgetter(2))  # type: ignore[assignment]

    @property
    def outcome(self) -> BatchReceipt | MultiRaftError | None:
        """Outcome of the batch; None = not known yet."""
        return self._batch.outcome

    @property
    def done(self) -> bool:
        """True if the outcome is known."""
        return self._batch.outcome is not None

    @property
    def offset(self) -> int:
        """Offset of the record, or of the first of several; -1 with ``acks="none"``.  Only after a
        success: raises as ``result``."""
        return self.result().offset

    @property
    def offsets(self) -> range:
        """Offsets of the records that this delivery stands for, in the order in which they were
        given.  Empty with ``acks="none"``.  Only after a success: raises as ``result``."""
        first = self.result().offset
        return range(first, first + self._length) if first >= 0 else range(0)

    def result(self) -> RecordReceipt:
        """Return the receipt, or raise the error of the batch.  Raises ``RuntimeError`` while the
        outcome is not known: ``wait`` for it first."""
        batch = self._batch
        outcome = batch.outcome
        if outcome is None:
            raise RuntimeError("the outcome of this delivery is not known yet: call wait() first")
        batch.claimed = True
        if isinstance(outcome, BatchReceipt):
            return RecordReceipt.at(outcome, batch.first + self._position)
        raise outcome

    def when_done(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` once the outcome is known, at once if it is.

        A failure then counts as received, so ``flush`` does not raise it: the listener has to read
        ``outcome``."""
        self._batch.when_done(listener)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Delivery) and other[0] is self[0]

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self[0])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.outcome if self.done else 'pending'}>"


def note_taken(error: Any, index: int, deliveries: Sequence[Delivery]) -> None:
    """Add to ``error`` the index of its record in a list and the deliveries of earlier records."""
    error.index, error.deliveries = index, deliveries
    error.add_note(f"It is about record {index} of the list, counted from 0. Those before it were "
                   "taken: their deliveries are in the attribute deliveries of this error.")


class Batch:
    """Records that are appended together.  Open: ``builder`` is set.  Sealed: ``data`` is set.
    Sent at least once: ``base_sequence`` is set if the producer is idempotent."""

    __slots__ = ("number", "builder", "data", "count", "accounted_bytes", "opened_ms",
                 "deadline_ms", "outcomes", "identity", "base_sequence", "place", "attempt",
                 "sent_ms", "maybe_appended", "problem", "alone")

    def __init__(self, number: int, builder: core.BatchBuilder, now_ms: int, deadline_ms: int,
                 outcome: BatchOutcome):
        self.number = number
        self.builder: core.BatchBuilder = builder
        self.data: bytearray = None  # type: ignore[assignment]  # set when it is sealed
        self.count = 0
        self.accounted_bytes = 0
        self.opened_ms = now_ms
        self.deadline_ms = deadline_ms
        self.outcomes = [outcome]  # one, and those of records that waited for metadata
        self.identity: tuple[int, int] | None = None
        self.base_sequence = -1
        self.place = 0  # ordinal among the batches that the partition has sent
        self.attempt = 0  # number of the attempt in flight, 0 = none
        self.sent_ms = 0
        self.maybe_appended = False  # an attempt ended without a definite answer
        self.problem = ""  # error of the last attempt
        self.alone = False  # sent in a request of its own, after one with others was refused

    @property
    def done(self) -> bool:
        """True if the outcome of the batch is known."""
        return self.outcomes[0].outcome is not None

    def stamp(self, identity: tuple[int, int], base_sequence: int) -> None:
        """Write producer id, epoch and sequence into ``data``, and the CRC that covers them."""
        self.identity, self.base_sequence = identity, base_sequence
        core.stamp_producer(self.data, *identity, base_sequence)


class PartitionQueue:
    """Batches of a producer for one incarnation of a partition, in the order of their records.

    Invariants.  ``sent`` is ordered by sequence and never longer than ``in_flight_max``; its
    batches precede those in ``queue``, which precede ``open``.  A batch is
    sent only when all before it in ``sent`` are in flight on the same connection.
    """

    __slots__ = ("topic", "partition", "incarnation", "open", "queue", "sent", "identity",
                 "next_sequence", "issued", "needs_reset", "retry_at_ms", "failures", "address",
                 "timer_ms", "full")

    def __init__(self, topic: str, partition: int, incarnation: int):
        self.topic = topic
        self.partition = partition
        self.incarnation = incarnation
        self.open: Batch | None = None
        self.queue: deque[Batch] = deque()  # sealed, never sent under the current identity
        self.sent: list[Batch] = []  # sent at least once, outcome unknown
        self.identity: tuple[int, int] | None = None  # (producer id, epoch) of the sequences
        self.next_sequence = 0
        self.issued = 0  # batches that were sent for the first time
        self.needs_reset = False  # a sequence is missing: new epoch once sent is empty
        self.retry_at_ms = 0
        self.failures = 0  # consecutive
        self.address = ""  # of the node that has the batches in flight
        self.timer_ms: int | None = None  # next time at which ``poll`` checks the queue
        #: The last outcome of an attempt, if it was the refusal of a full disk.
        self.full: StorageFull | None = None

    @property
    def in_flight(self) -> bool:
        """True if a batch waits for an answer."""
        for batch in self.sent:
            if batch.attempt:
                return True
        return False

    @property
    def span(self) -> int:
        """Number of batches sent since the oldest unresolved one, itself included."""
        # A leader remembers the last five batches of a producer.  If the answer to the oldest was
        # lost while later ones were acknowledged, its repetition must still be among them.
        return self.issued - self.sent[0].place + 1 if self.sent else 0

    def oldest(self) -> Batch | None:
        """Return the unresolved batch with the earliest deadline; None = there is none."""
        if self.sent:
            return self.sent[0]
        return self.queue[0] if self.queue else self.open

    def issue(self, batch: Batch) -> None:
        """Add a batch to ``sent``, because it is sent for the first time."""
        self.issued += 1
        batch.place = self.issued
        self.sent.append(batch)

    @property
    def idle(self) -> bool:
        """True if no batch is open, queued, or sent without an outcome."""
        return self.open is None and not self.queue and not self.sent

    def batches(self) -> list[Batch]:
        """Return all unresolved batches, in order.  O(batches)."""
        last = [self.open] if self.open is not None else []
        return [*self.sent, *self.queue, *last]

    def put_back(self, batch: Batch) -> None:
        """Insert a batch that was sent without a sequence into the queue again, in the order of its
        records.  O(queue)."""
        self.queue = deque(sorted([batch, *self.queue], key=lambda queued: queued.number))

    def _check(self) -> None:
        """Assert the invariants.  O(batches)."""
        for batch in self.sent:
            assert batch.data is not None and not batch.done, "sent batches are sealed, unresolved"
        for batch in self.queue:
            assert batch.data is not None and not batch.attempt, "queued batches are not in flight"
        sequenced = [batch for batch in self.sent if batch.base_sequence >= 0]
        numbers = [batch.number for batch in [*sequenced, *self.queue]]
        assert numbers == sorted(numbers), "batches are in the order of their records"
        sequences = [batch.base_sequence for batch in self.sent if batch.base_sequence >= 0]
        if max(sequences, default=0) - min(sequences, default=0) < layout.SEQUENCE_MODULUS // 2:
            assert sequences == sorted(sequences), "sequences follow that order"
