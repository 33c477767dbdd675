"""Client of the distributed log for trio: topics, producers, consumers and administration.

    async with Client(["127.0.0.1:9101"]) as client:
        await client.create_topic("flights", partitions=4)
        async with client.producer() as producer:
            delivery = producer.send_nowait(Record("flights", b"UA 1545", key=b"UA"))
            receipt = await delivery.wait()  # with the record's own offset
        async for batch in client.consume("flights", until_end=True):
            for record in batch:
                ...

The manual is ``docs/client.md``; ``examples/`` has programs to start from.

Contract.  All errors are subclasses of ``MultiRaftError``, but for ``TypeError`` and ``ValueError``
of wrong arguments; this module exports each that an application may want to catch.  A
``RequestError`` is definite: the request had no effect.  An ``AmbiguousOutcome`` means that the
client cannot know whether it had one; it is never a ``RequestError``.  ``NoNodeAnswered`` names
each known address with its last error.  An error is raised by the call that caused it; a batch that
failed raises from ``wait`` of its delivery, or else from ``flush``, ``close`` or the end of the
block.  Records that are never sent are an error of ``close``, or else a ``RecordsNotSent`` warning.
Using a client, producer or consumer after its end raises ``Closed``, and so do calls that wait at
that moment.

Retries.  Operations (``create_topic`` ... ``sink_request``) are repeated until a node answers or
10 s have passed, on other nodes unless the caller names an address, with pauses of 25 ms to 1 s.  A
repetition has no second effect.  When no address answers at all, they raise ``NoNodeAnswered``
after 3 s.  A producer repeats a batch until ``delivery_timeout_ms`` (30 s) has passed; the leader
recognises repetitions by producer id, epoch and sequence (Kafka's idempotent producer).  A consumer
repeats a fetch until ``unavailable_ms`` (30 s) has passed without a success, on other replicas as
well.

Processes.  A client belongs to one trio run, and its tasks end with its block; outside of trio it
raises ``NeedsTrio``.  It belongs to one process as well: in a child made by a fork it raises
``Forked``, and the child makes a client of its own.  A child that is forked inside of ``trio.run``
has to end with ``os._exit``, or run another program, because it shares the epoll of its parent's
run.

Elsewhere.  State machines (``_client.py`` and its parts) and operations (``_steps.py``,
``_operations.py``) decide and do no I/O; ``_trio.py`` drives them.  ``multiraft.client.blocking``
is the second driver.  It works without trio; therefore the names that need trio are imported when
they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from multiraft.client._accumulator import BufferFull
from multiraft.client._consumer_settings import Start
from multiraft.client._gaps import Gap
from multiraft.client._lifecycle import Closed, Forked, NeedsTrio, RecordsNotSent
from multiraft.client._network import NetworkLimits, NoNodeAnswered
from multiraft.client._operations import OffsetRange, PartitionDescription, TopicDescription
from multiraft.client._record_deletion import DeletedRecords
from multiraft.client._records import (
    VALUE_BYTES_MAX,
    BatchReceipt,
    FetchedBatch,
    Record,
    RecordReceipt,
    Timestamp,
)
from multiraft.client._settings import ConsumerOptions, ProducerOptions
from multiraft.client._thread_guard import ConcurrentUse
from multiraft.client._unreadable import OversizedBatch, UnreadableBatch
from multiraft.client._waits import Wait
from multiraft.client.tls import TlsSettings
from multiraft.compression import DecompressionTooLarge
from multiraft.errors import ConfigError, MultiRaftError, RecordTooLarge
from multiraft.wire.errors import (
    AmbiguousOutcome,
    BatchTooLarge,
    CorruptBatch,
    InvalidBatch,
    InvalidPartitions,
    InvalidRequest,
    InvalidSetting,
    InvalidTopicName,
    LeaderUnknown,
    LimitExceeded,
    NotAuthorized,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ProducerFenced,
    Quarantined,
    QueueFull,
    RecordsWithoutKey,
    RequestError,
    ShuttingDown,
    StaleTransaction,
    StorageFull,
    TimedOut,
    TopicExists,
    UnknownPartition,
    UnknownProducer,
    UnknownTopic,
    Unsupported,
)

if TYPE_CHECKING:
    from multiraft.client._trio import Client, Consumer
    from multiraft.client._trio_producer import BatchDelivery, Producer

__all__ = [
    "AmbiguousOutcome", "BatchDelivery", "BatchReceipt", "BatchTooLarge", "BufferFull", "Client",
    "Closed", "ConcurrentUse", "ConfigError", "Consumer", "ConsumerOptions", "CorruptBatch",
    "DecompressionTooLarge", "DeletedRecords", "FetchedBatch", "Forked", "Gap", "InvalidBatch",
    "InvalidPartitions", "InvalidRequest", "InvalidSetting", "InvalidTopicName", "LeaderUnknown",
    "LimitExceeded", "MultiRaftError", "NeedsTrio", "NetworkLimits", "NoNodeAnswered",
    "NotAuthorized", "NotLeader", "OffsetNotAvailable", "OffsetOutOfRange", "OffsetRange",
    "OutOfOrderSequence", "OversizedBatch", "PartitionDescription", "Producer", "ProducerFenced",
    "ProducerOptions", "Quarantined", "QueueFull", "Record", "RecordReceipt", "RecordTooLarge",
    "RecordsNotSent", "RecordsWithoutKey", "RequestError", "ShuttingDown", "StaleTransaction",
    "Start", "StorageFull", "TimedOut", "Timestamp", "TlsSettings", "TopicDescription",
    "TopicExists", "UnknownPartition",
    "UnknownProducer", "UnknownTopic", "UnreadableBatch", "Unsupported", "VALUE_BYTES_MAX", "Wait",
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
