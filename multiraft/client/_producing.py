"""Producer without its driver: take records, wait for buffer space, flush, close.

Contract.  ``ProducerCore`` decides and does no I/O; a driver adds the ways to wait (see
``_steps.py``).  ``Accumulator`` builds batches, ``ProducerState`` sends them.

Theory.  A record that does not fit into the buffer waits.  Where several tasks may wait (``line``),
they are served first come, first served, so that small records cannot starve a large one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery, note_taken
from multiraft.client._client import ClientCore
from multiraft.client._lifecycle import note_failure
from multiraft.client._records import Record
from multiraft.client._signal import Line
from multiraft.client._steps import TURN, Operation, Until, WaitFor

#: Records that ``send_many`` takes between two turns of the driver: less than 1 ms of work.
RECORDS_PER_TURN = 256

#: The driver's class of that name; ``help`` of its ``send_many`` shows this variable.
BatchDelivery = TypeVar("BatchDelivery", bound=Delivery)
_Made = TypeVar("_Made", covariant=True)
_Taken = TypeVar("_Taken")
#: A delivery from its fields, without a Python function.
_new = tuple.__new__


def wall_ms() -> int:
    """Return the time of day in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Intake(Protocol[_Made]):
    """The methods of ``Accumulator`` that take records, with the type of the driver's
    deliveries."""

    def send(self, record: Record, now_ms: int, wall_ms: int) -> _Made:
        """Take one record and return its delivery, as ``Accumulator.send`` does."""
        ...

    def extend(self, topic_name: str, values: Sequence[bytes], start: int, now_ms: int,
               wall_ms: int) -> tuple[_Made, int]:
        """Take values into one batch; return their delivery and the index of the first value that
        was not taken, as ``Accumulator.extend`` does."""
        ...


class ProducerCore(Generic[BatchDelivery]):
    """Producer without a driver.  ``kind`` is the driver's class of deliveries, which wait with
    its client ``owner``; ``now_ms`` is the driver's clock; ``line`` None = one caller at a time."""

    def __init__(self, client: ClientCore, settings: ProducerSettings,
                 kind: type[BatchDelivery], owner: Any, now_ms: Callable[[], int],
                 line: Line | None):
        self._client = client
        self._state = client.producer(settings, kind, owner)
        self._records = self._state.records
        #: The accumulator itself, so that a driver that takes one record calls it directly.
        self.intake = cast(Intake[BatchDelivery], self._records)
        self._now_ms = now_ms
        self._line = line

    def require_open(self) -> None:
        """Raise ``Closed`` or ``Forked`` when the producer has ended."""
        self._state.require_open()

    # ---- records ----

    def try_take(self, record: Record, now_ms: int) -> BatchDelivery | None:
        """Take ``record`` and return its delivery; None when it has to wait for buffer space, or
        behind other calls (``send``).  Raises as ``Accumulator.send``."""
        if self._line is not None and not self._line.is_empty:
            return None
        try:
            return self.intake.send(record, now_ms, wall_ms())
        except BufferFull:
            return None

    def send(self, record: Record) -> Operation[BatchDelivery]:
        """Take ``record`` as soon as it fits into the buffer, and return its delivery without
        waiting for the outcome.  Raises as ``Accumulator.send``, except ``BufferFull``."""
        return (yield from self._when_room(
            lambda: self.intake.send(record, self._now_ms(), wall_ms())))

    def send_many(self, topic: str, records: Sequence[bytes] | Sequence[Record],
                  ) -> Operation[list[BatchDelivery]]:
        """Add many values or records, and wait for buffer space as needed.

        ``records`` are ``bytes`` (values without keys, appended to ``topic``: the fast way) or
        ``Record`` values, which name their topics.  Returns one delivery for each run of records
        that share a batch; the ``offsets`` of all deliveries, one after the other, are those of the
        records.  Raises as ``send`` at the first record that is refused.  The error then has
        ``index``, the position of that record in the list, and ``deliveries``, those of the records
        before it, which were taken; the records behind it were not."""
        deliveries: list[BatchDelivery] = []
        if records and isinstance(records[0], Record):
            taking = self._take_records(cast(Sequence[Record], records), deliveries)
        else:
            taking = self._take_values(topic, cast(Sequence[bytes], records), deliveries)
        yield from taking
        return deliveries

    def _take_records(self, records: Sequence[Record],
                      deliveries: list[BatchDelivery]) -> Operation[None]:
        at, clock, try_take = 0, self._now_ms, self.try_take
        turned_ms = clock()
        run, end = None, 0  # delivery of the first record of a run, and position behind the run
        try:
            for at, record in enumerate(records):
                now_ms = clock()
                if now_ms != turned_ms or at % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                    turned_ms = now_ms
                    yield TURN
                delivery = try_take(record, now_ms)
                if delivery is None:
                    delivery = yield from self.send(record)
                batch, first, _ = delivery
                if run is not None and run[0] is batch and first == end:
                    end += 1
                    continue
                _note_run(deliveries, run, end)
                run, end = delivery, first + 1
            _note_run(deliveries, run, end)
        except Exception as error:
            _note_run(deliveries, run, end)
            note_taken(error, at, deliveries)
            raise

    def _take_values(self, topic: str, values: Sequence[bytes],
                     deliveries: list[BatchDelivery]) -> Operation[None]:
        at = 0
        try:
            while at < len(values):
                extended = self._try_extend(topic, values, at)
                if extended is None:
                    extended = yield from self._extend(topic, values, at)
                delivery, at = extended
                _note(deliveries, delivery)
                yield TURN
        except Exception as error:
            note_taken(error, at, deliveries)
            raise

    def _try_extend(self, topic: str, values: Sequence[bytes],
                    start: int) -> tuple[BatchDelivery, int] | None:
        """Take values[start:] into one batch.  Returns its delivery and the index of the first
        value that was not taken; None when the call has to wait (``_extend``)."""
        now_ms = self._now_ms()
        if self._line is not None and not self._line.is_empty:
            return None
        if not self._records.topic_ready(topic, now_ms, now_ms):
            return None
        try:
            return self.intake.extend(topic, values, start, now_ms, wall_ms())
        except BufferFull:
            return None

    def _extend(self, topic: str, values: Sequence[bytes],
                start: int) -> Operation[tuple[BatchDelivery, int]]:
        """Take values[start:] into one batch as ``_try_extend`` does, but wait until the topic is
        known and the buffer has space."""
        since_ms = self._now_ms()

        def is_known() -> bool:
            return self._records.topic_ready(topic, self._now_ms(), since_ms)

        def take() -> tuple[BatchDelivery, int] | None:
            if not is_known():
                return None  # the topic was deleted while the call waited
            return self.intake.extend(topic, values, start, self._now_ms(), wall_ms())

        while True:
            if not is_known():
                yield Until(is_known)
            extended = yield from self._when_room(take)
            if extended is not None:
                return extended

    def _when_room(self, take: Callable[[], _Taken]) -> Operation[_Taken]:
        """Call ``take`` until it does not raise ``BufferFull``, and return its result.  Calls that
        wait take turns in ``line``, if there is one."""
        line = self._line
        if line is None:
            return (yield from self._retry_when_room(take))
        place = line.join()
        try:
            if not place.is_set:
                yield WaitFor(place)
            return (yield from self._retry_when_room(take))
        finally:
            line.leave(place)

    def _retry_when_room(self, take: Callable[[], _Taken]) -> Operation[_Taken]:
        while True:
            try:
                return take()
            except BufferFull as full:
                needed = full.needed
            yield Until(partial(self._records.room_for, needed))

    # ---- the end ----

    def flush(self) -> Operation[None]:
        """Send all records now, without linger time, and wait until each batch has its outcome.
        Raises the first failure that no caller has received by ``wait`` or ``when_done``, an
        ambiguous one before others, with notes of the rest.  Waits at most
        ``delivery_timeout_ms``."""
        self._state.require_open()
        self._client.require_open()
        number = self._records.seal_all()
        with self._records.flushing():
            yield TURN
            yield Until(lambda: self._records.settled(number))
            note_failure(None, self._records.take_failure())

    def close(self) -> Operation[None]:
        """Flush, and end the producer, also when the flush fails.  Closing again does nothing.
        Raises as ``flush``."""
        if self._state.closed is None:
            try:
                yield from self.flush()
            finally:
                self._end()

    def leave(self, error: BaseException | None) -> Operation[None]:
        """Close the producer at the end of a block.  After an ``error`` records that are not sent
        yet are dropped, and a failure that no caller has received becomes a note of the error."""
        if error is None:
            yield from self.close()
        elif self._state.closed is None:
            unsent = self._records.unsent()
            self._end()
            note_failure(error, self._records.take_last_failure(), unsent)

    def _end(self) -> None:
        self._state.close("the producer was closed")
        self._client.remove(self._state)


def _note_run(deliveries: list[BatchDelivery], run: BatchDelivery | None, end: int) -> None:
    """Append a delivery of the records from that of ``run`` to position ``end`` of its batch;
    None = there are none."""
    if run is not None:
        batch, first, _ = run
        deliveries.append(_new(type(run), (batch, first, end - first)))


def _note(deliveries: list[BatchDelivery], delivery: BatchDelivery) -> None:
    """Append ``delivery`` to ``deliveries``, or extend the last one there, if its records precede
    those of ``delivery`` in the same batch.  Leave out one of no records."""
    batch, first, length = delivery
    if deliveries:
        last_batch, last_first, last_length = deliveries[-1]
        if last_batch is batch and last_first + last_length == first:
            deliveries[-1] = _new(type(delivery), (batch, last_first, last_length + length))
            return
    if length:
        deliveries.append(delivery)
