"""The client for trio: producers, consumers and the questions an operator asks.

    async with Client(["127.0.0.1:9101"]) as client:
        await client.create_topic("flights", partitions=4)
        async with client.producer() as producer:
            delivery = producer.send_nowait(Record("flights", b"UA 1545", key=b"UA"))
            receipt = await delivery.wait()
        async for batch in client.consume("flights", until_end=True):
            for record in batch:
                ...

Contract.  Every error is typed and goes to whoever caused it.  A ``RequestError`` is definite: it
did not happen.  An ``AmbiguousOutcome`` says that nobody knows; it is never a ``RequestError``.
Leaving the block of a producer flushes it, and raises a failure that nobody was told of.  What is
used after its end raises ``Closed``, and whoever waits meanwhile is told the same.

One client belongs to one trio run, and its tasks end with its block.  It belongs to one process as
well: in a child made by a fork it raises ``Forked``, and the child makes a client of its own.  A
child that is forked inside of ``trio.run`` has to end with ``os._exit``, or run another program:
it shares the epoll of its parent's run.

Elsewhere.  State machines (``_client.py`` and its parts) and operations (``_steps.py``,
``_operations.py``) decide and do no I/O; ``_trio.py`` drives them.  ``multiraft.client.blocking``
is the second driver, without trio; for its sake the names that need trio are imported only when
they are asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from multiraft.client._accumulator import BufferFull
from multiraft.client._compression import DecompressionTooLarge
from multiraft.client._lifecycle import Closed, Forked
from multiraft.client._network import NoNodeAnswered
from multiraft.client._operations import OffsetRange, PartitionDescription, TopicDescription
from multiraft.client._records import (
    VALUE_BYTES_MAX,
    BatchReceipt,
    FetchedBatch,
    Record,
    Timestamp,
)
from multiraft.client._unreadable import OversizedBatch, UnreadableBatch
from multiraft.client._waits import Wait
from multiraft.client.tls import TlsSettings
from multiraft.errors import RecordTooLarge
from multiraft.wire.errors import AmbiguousOutcome, RequestError

if TYPE_CHECKING:
    from multiraft.client._trio import Client, Consumer
    from multiraft.client._trio_producer import BatchDelivery, Producer

__all__ = [
    "AmbiguousOutcome", "BatchDelivery", "BatchReceipt", "BufferFull", "Client", "Closed",
    "Consumer", "DecompressionTooLarge", "FetchedBatch", "Forked", "NoNodeAnswered", "OffsetRange",
    "OversizedBatch", "PartitionDescription", "Producer", "Record", "RecordTooLarge",
    "RequestError", "Timestamp", "TlsSettings", "TopicDescription", "UnreadableBatch",
    "VALUE_BYTES_MAX", "Wait",
]

_NEED_TRIO = {"BatchDelivery": "_trio_producer", "Client": "_trio", "Consumer": "_trio",
              "Producer": "_trio_producer"}


def __getattr__(name: str) -> type:
    """Import the trio driver when one of its names is asked for first (PEP 562)."""
    if name not in _NEED_TRIO:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"multiraft.client.{_NEED_TRIO[name]}"), name)
    globals()[name] = value
    return value
