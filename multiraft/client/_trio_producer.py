"""The producer of the trio client: records in, and waiting for what became of them.

Contract.  As ``_trio.py``, whose ``Client`` makes them.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Sequence

import trio

from multiraft.client._accumulator import BufferFull, ProducerSettings
from multiraft.client._batches import Delivery, note_taken
from multiraft.client._lifecycle import note_failure
from multiraft.client._records import BatchReceipt, Record
from multiraft.errors import MultiRaftError

if TYPE_CHECKING:
    from multiraft.client._trio import Client

#: Records that ``send_many`` takes in one turn of the loop: under a millisecond's.
RECORDS_PER_TURN = 256


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class BatchDelivery(Delivery):
    """The fate of one batch."""

    __slots__ = ("client",)

    async def wait(self) -> BatchReceipt:
        """Where the batch was appended.  Raises a ``RequestError`` when it certainly was not,
        ``AmbiguousOutcome`` when nobody knows."""
        if self.outcome is None:
            self.client.require_open()
            if self.client.stale:
                self.client.work()
        if self.outcome is None:
            await self._park()
        else:
            await self.client.checkpoint()
        return self.result()

    async def _park(self) -> None:
        task = trio.lowlevel.current_task()

        def wake() -> None:
            trio.lowlevel.reschedule(task)

        def abort(_: object) -> trio.lowlevel.Abort:
            self.forget(wake)
            return trio.lowlevel.Abort.SUCCEEDED

        self.when_done(wake)
        await trio.lowlevel.wait_task_rescheduled(abort)


class Producer:
    """Appends records in batches; use it with ``async with``.  ``settings`` are fixed."""

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._state = client._core.producer(settings, self._delivery)
        self._records = self._state.records
        self._turn = trio.Lock()  # of those who wait for room

    async def __aenter__(self) -> "Producer":
        self._state.require_open()
        self._client.wake()
        return self

    async def __aexit__(self, kind, error, trace) -> None:
        if error is None:
            await self.close()
        elif self._state.closed is None:
            self._end()
            note_failure(error, self._records.take_last_failure())

    async def close(self) -> None:
        """Flush, and take no more records; closing again does nothing.  Raises as ``flush``."""
        if self._state.closed is None:
            try:
                await self.flush()
            finally:
                self._end()

    def _end(self) -> None:
        self._state.close("the producer was closed")
        self._client._core.remove(self._state)
        self._client.notify()

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Take one record; the delivery is that of the batch it travels in.  Raises ``BufferFull``
        with limit and value, and at once for what can never be appended: ``RecordTooLarge``,
        ``InvalidTopicName``, ``UnknownPartition``, ``TypeError``, ``ValueError``."""
        delivery = self._records.send(record, self._client.now_ms(), _wall_ms())
        self._client.wake()
        return delivery

    async def send(self, record: Record) -> BatchDelivery:
        """As ``send_nowait``, but waits for room instead of raising ``BufferFull``; whoever came
        first is served first."""
        try:
            delivery = await self._when_room(lambda: self._records.send(
                record, self._client.now_ms(), _wall_ms()))
        except (MultiRaftError, TypeError, ValueError):
            await self._client.checkpoint()
            raise
        self._client.work()
        await trio.lowlevel.checkpoint()
        return delivery

    async def send_many(self, topic: str, records: Sequence[bytes] | Sequence[Record],
                        ) -> list[BatchDelivery]:
        """Take values (bytes without keys: the fast way) or records, waiting for room; one
        delivery per batch touched.  Raises as ``send`` at the first record that is refused; then
        the error's ``index`` is its place in the list and ``deliveries`` are those of the records
        before it, which were taken; those behind it were not."""
        deliveries: list[BatchDelivery] = []
        at = 0
        try:
            if records and isinstance(records[0], Record):
                for at, record in enumerate(records):
                    _note(deliveries, await self._when_room(
                        partial(self.send_nowait, record)))
                    if at % RECORDS_PER_TURN == RECORDS_PER_TURN - 1:
                        await trio.lowlevel.checkpoint()
            else:
                while at < len(records):
                    delivery, at = await self._extend(topic, records, at)
                    _note(deliveries, delivery)
                    self._client.wake()
                    await trio.lowlevel.checkpoint()
        except Exception as error:
            note_taken(error, at, deliveries)
            await self._client.checkpoint()
            raise
        return deliveries

    async def _extend(self, topic: str, values: Sequence[bytes], at: int) -> tuple[Delivery, int]:
        """As of ``Accumulator``, once the topic is known and there is room."""
        since_ms = self._client.now_ms()

        def ready() -> bool:
            return self._records.topic_ready(topic, self._client.now_ms(), since_ms)

        while True:
            await self._client.until(ready)
            extended = await self._when_room(lambda: ready() and self._records.extend(
                topic, values, at, self._client.now_ms(), _wall_ms()))
            if extended:
                return extended

    async def _when_room(self, take: Callable[[], Any]) -> Any:
        """What ``take`` gives, once it does not raise ``BufferFull``.  First come, first served:
        small records do not take the room that a large one waits for."""
        if not self._turn.locked():
            try:
                return take()
            except BufferFull:
                pass
        async with self._turn:
            while True:
                try:
                    return take()
                except BufferFull as full:
                    needed = full.needed
                await self._client.until(partial(self._records.room_for, needed))

    async def flush(self) -> None:
        """Send everything now and wait until each batch has its outcome.  Raises the first failure
        that nobody was told of by ``wait`` or ``when_done``, an ambiguous one before others, with
        notes of the rest; what became of those meanwhile who wait is told to them."""
        self._state.require_open()
        self._client.require_open()
        number = self._records.seal_all()
        with self._records.flushing():
            await self._client.until(lambda: self._records.settled(number))
            await trio.lowlevel.checkpoint()
            note_failure(None, self._records.take_failure())

    def _delivery(self) -> BatchDelivery:
        delivery = BatchDelivery()
        delivery.client = self._client
        return delivery


def _note(deliveries: list, delivery: Delivery) -> None:
    """Consecutive records of one batch share its delivery."""
    if not deliveries or deliveries[-1] is not delivery:
        deliveries.append(delivery)
