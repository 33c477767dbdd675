"""Trio driver of producers and deliveries.

Contract.  As ``_trio.py``, whose ``Client`` makes them.  Decisions: ``_producing.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

import trio

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._batches import BatchOutcome, Delivery
from multiraft.client._client import ClientCore
from multiraft.client._lifecycle import AsyncBlock
from multiraft.client._methods import async_method
from multiraft.client._producing import ProducerCore, wall_ms
from multiraft.client._records import Record, RecordReceipt
from multiraft.client._signal import Line, Signal
from multiraft.client._steps import Operation
from multiraft.errors import MultiRaftError

if TYPE_CHECKING:
    from types import TracebackType

_Result = TypeVar("_Result")


class ProducerOwner(Protocol):
    """The part of ``_trio.Client`` that its producers and deliveries use."""

    _core: ClientCore
    #: True while the core has input since it was advanced last.
    _stale: bool

    def _now_ms(self) -> int:
        """Return the time of trio's clock, in milliseconds."""
        ...

    def _require_open(self) -> None:
        """Raise ``Closed`` or ``Forked`` when the client has ended or was not entered."""
        ...

    def _work(self) -> None:
        """Advance the client core now, in the calling task, because it has new input (a record of
        the application, bytes of a node).  ``_wake`` leaves that to the pump task."""
        ...

    def _wake(self) -> None:
        """Have the pump task advance the client core soon, because it has new input."""
        ...

    async def _checkpoint(self) -> None:
        """Let other tasks run, and a cancellation take effect (trio's checkpoint).  Raises
        ``Forked`` in a child process."""
        ...

    async def _drive(self, operation: Operation[_Result]) -> _Result:
        """Run ``operation`` to its end in the calling task, and return its result."""
        ...


async def parked(event: BatchOutcome | Signal) -> None:
    """Suspend the task until ``event``, which is not done yet, calls its listeners."""
    task = trio.lowlevel.current_task()

    def wake() -> None:
        trio.lowlevel.reschedule(task)

    def abort(_: object) -> trio.lowlevel.Abort:
        event.forget(wake)
        return trio.lowlevel.Abort.SUCCEEDED

    event.when_done(wake)
    await trio.lowlevel.wait_task_rescheduled(abort)


class BatchDelivery(Delivery):
    """Pending outcome of a record, or of records that ``send_many`` put into one batch.  ``done``
    is True once the outcome is known; ``result`` returns it, ``when_done`` calls a function then,
    and ``offset`` and ``offsets`` tell where the records are.  Deliveries of one batch are
    equal, but for records that waited for the metadata of their topic."""

    __slots__ = ()

    async def wait(self) -> RecordReceipt:
        """Wait for the outcome and return the ``RecordReceipt``: ``offset`` of the record, and the
        batch that it is in.  Raises a ``RequestError`` (``TimedOut`` after ``delivery_timeout_ms``,
        or ``StorageFull`` if disks were full until then, among others) when the batch was certainly
        not appended, ``AmbiguousOutcome`` when that is unknown, ``Closed`` or ``Forked`` when the
        client ended before the batch was sent."""
        batch = self._batch
        client: ProducerOwner = batch.owner
        if batch.outcome is None:
            client._require_open()
            if client._stale:
                client._work()
        if batch.outcome is None:
            await parked(batch)
        else:
            await client._checkpoint()
        return self.result()


class Producer(AsyncBlock):
    """Producer that appends records in batches; ``Client.producer`` makes it, use it with
    ``async with``.  The end of the block flushes; after an exception, records that are not sent yet
    are dropped.  ``settings`` cannot be changed.  Several tasks may use one producer.

        async with client.producer() as producer:
            deliveries = await producer.send_many("flights", [b"UA 1545", b"DL 461"])
            await producer.flush()
    """

    def __init__(self, client: ProducerOwner, settings: ProducerSettings):
        self.settings = settings
        self._client = client
        self._core = ProducerCore[BatchDelivery](
            client._core, settings, BatchDelivery, client, client._now_ms, Line())
        self._intake = self._core.intake

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client!r}>"

    async def __aenter__(self) -> "Producer":
        self._core.require_open()
        self._client._wake()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._run(self._core.leave(error))

    close = async_method(ProducerCore[BatchDelivery].close)
    flush = async_method(ProducerCore[BatchDelivery].flush)
    send_many = async_method(ProducerCore[BatchDelivery].send_many)

    def send_nowait(self, record: Record) -> BatchDelivery:
        """Add one record to the open batch of its partition and return the delivery of the
        record.  The client's tasks send it.  Raises ``BufferFull`` (with ``limit`` and
        ``value`` in bytes) when ``buffer_bytes_max`` is reached, ``Closed`` or ``Forked`` after the
        end, and for a record that can never be appended ``RecordTooLarge``, ``InvalidTopicName``,
        ``UnknownPartition``, ``TypeError`` or ``ValueError``; the record was not taken then."""
        delivery = self._intake.send(record, self._client._now_ms(), wall_ms())
        self._client._wake()
        return delivery

    async def send(self, record: Record) -> BatchDelivery:
        """Add one record as ``send_nowait`` does, but wait for buffer space instead of raising
        ``BufferFull``.  Calls that wait are served in the order of their arrival.  It does not wait
        for the outcome of the batch."""
        now_ms = self._client._now_ms()
        try:
            delivery = self._core.try_take(record, now_ms)
        except (MultiRaftError, TypeError, ValueError):
            await self._client._checkpoint()
            raise
        if delivery is None:
            delivery = await self._run(self._core.send(record))
        self._client._work()
        await trio.lowlevel.checkpoint()
        return delivery

    async def _run(self, operation: Operation[_Result]) -> _Result:
        try:
            return await self._client._drive(operation)
        finally:
            self._client._wake()
