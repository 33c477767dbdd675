"""The trio driver of producers and deliveries.

Contract.  As ``_trio.py``, whose ``Client`` makes them.  Decisions: ``_producing.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import trio

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._methods import async_method
from multiraft.client._producing import ProducerCore, wall_ms
from multiraft.client._records import BatchReceipt, Record
from multiraft.client._signal import Line, Signal
from multiraft.client._steps import Operation
from multiraft.errors import MultiRaftError

if TYPE_CHECKING:
    from types import TracebackType

    from multiraft.client._trio import Client

_Result = TypeVar("_Result")


async def parked(event: Delivery | Signal) -> None:
    """Sleep until ``event``, which is not done yet, calls its listeners."""
    task = trio.lowlevel.current_task()

    def wake() -> None:
        trio.lowlevel.reschedule(task)

    def abort(_: object) -> trio.lowlevel.Abort:
        event.forget(wake)
        return trio.lowlevel.Abort.SUCCEEDED

    event.when_done(wake)
    await trio.lowlevel.wait_task_rescheduled(abort)


class BatchDelivery(Delivery):
    """The outcome of one batch."""

    __slots__ = ("client",)

    def __init__(self, client: Client):
        super().__init__()
        self.client = client

    async def wait(self) -> BatchReceipt:
        """Wait for the outcome and return the receipt of the batch.  Raises a ``RequestError`` when
        the batch was certainly not appended, ``AmbiguousOutcome`` when that is unknown."""
        if self.outcome is None:
            self.client.require_open()
            if self.client.stale:
                self.client.work()
        if self.outcome is None:
            await parked(self)
        else:
            await self.client.checkpoint()
        return self.result()


class Producer:
    """A producer that appends records in batches; use it with ``async with``.  ``settings`` are
    fixed."""

    def __init__(self, client: Client, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._core = ProducerCore[BatchDelivery](
            client._core, settings, partial(BatchDelivery, client), client.now_ms, Line())
        self._intake = self._core.intake

    async def __aenter__(self) -> "Producer":
        self._core.require_open()
        self._client.wake()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._run(self._core.leave(error))

    close = async_method(ProducerCore[BatchDelivery].close)
    flush = async_method(ProducerCore[BatchDelivery].flush)
    send_many = async_method(ProducerCore[BatchDelivery].send_many)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Take one record and return the delivery of its batch.  Raises ``BufferFull`` with limit
        and value, and for a record that can never be appended ``RecordTooLarge``,
        ``InvalidTopicName``, ``UnknownPartition``, ``TypeError`` or ``ValueError``."""
        delivery = self._intake.send(record, self._client.now_ms(), wall_ms())
        self._client.wake()
        return delivery

    async def send(self, record: Record) -> BatchDelivery:
        """Take one record as ``send_nowait`` does, but wait for room instead of raising
        ``BufferFull``; calls that wait are served in the order in which they came."""
        try:
            delivery = self._core.try_take(record, self._client.now_ms())
        except (MultiRaftError, TypeError, ValueError):
            await self._client.checkpoint()
            raise
        if delivery is None:
            delivery = await self._run(self._core.send(record))
        self._client.work()
        await trio.lowlevel.checkpoint()
        return delivery

    async def _run(self, operation: Operation[_Result]) -> _Result:
        try:
            return await self._client._drive(operation)
        finally:
            self._client.wake()
