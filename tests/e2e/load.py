"""A producer under way while nodes come and go, and the account of its outcomes.

Contract.  Each value is unique and grows, so that doubling, loss and disorder can be distinguished.
``Account`` keeps the producer's outcome of each batch; ``verify`` compares the account with the
records that a consumer reads: everything acknowledged once, at the offset that was acknowledged,
and in order; everything ambiguous at most once; nothing that was certainly refused.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field

import trio

from multiraft.client import (
    AmbiguousOutcome,
    BatchDelivery,
    BatchReceipt,
    Client,
    Producer,
    Record,
)

WAIT_S = 180.0
#: Records passed to the producer between two checks for ``stop``.
HANDFUL = 50
#: Pause between handfuls: a load that three nodes on a busy machine carry easily.
PAUSE_S = 0.005


@dataclass
class Account:
    """Outcome of each value, by the producer's receipts."""

    topic: str
    sent: int = 0
    # (partition, offset) -> value
    acknowledged: dict[tuple[int, int], bytes] = field(default_factory=dict)
    #: Records acknowledged, by partition.
    counts: Counter[int] = field(default_factory=Counter)
    ambiguous: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    #: Partition -> time of the last acknowledgement, and the longest time between two of them.
    latest_s: dict[int, float] = field(default_factory=dict)
    silent_s: dict[int, float] = field(default_factory=dict)

    def settle(self, values: list[bytes], outcome: object) -> None:
        """Note the outcome of a batch."""
        if isinstance(outcome, BatchReceipt):
            assert outcome.count == len(values), "a batch is appended whole"
            for place, value in enumerate(values, outcome.base_offset):
                assert (outcome.partition, place) not in self.acknowledged, "an offset given twice"
                self.acknowledged[outcome.partition, place] = value
            self.counts[outcome.partition] += len(values)
            self._heard(outcome.partition, time.monotonic())
        elif isinstance(outcome, AmbiguousOutcome):
            self.ambiguous.update(values)
        else:
            self.refused.update(values)

    def _heard(self, partition: int, now_s: float) -> None:
        """Note that the partition acknowledged appends."""
        silent_s = now_s - self.latest_s.get(partition, now_s)
        self.silent_s[partition] = max(silent_s, self.silent_s.get(partition, 0.0))
        self.latest_s[partition] = now_s


class Load:
    """Load that is sent until ``stop``."""

    def __init__(self, client: Client, topic: str, partitions: int):
        self.account = Account(topic)
        self._client = client
        self._partitions = partitions
        self._stop = False
        self._batches: dict[object, list[bytes]] = {}  # delivery -> its values, in order

    def stop(self) -> None:
        """Flush the sent records and end."""
        self._stop = True

    async def run(self) -> None:
        """Produce until ``stop``; return when every batch has its outcome."""
        async with self._client.producer(acks="commit", linger_ms=2) as producer:
            # Until the topic's partitions are known, records of one batch have several deliveries.
            await self._send_one(producer).wait()
            while not self._stop:
                for _ in range(HANDFUL):
                    self._send_one(producer)
                await trio.sleep(PAUSE_S)
        assert not self._batches, "every batch has an outcome"

    def _send_one(self, producer: Producer) -> BatchDelivery:
        """Send one record and note it before it can be acknowledged: nothing is awaited in
        between."""
        number = self.account.sent
        value = b"%010d" % number
        delivery = producer.send_nowait(
            Record(self.account.topic, value, partition=number % self._partitions))
        self._note(delivery, value)
        self.account.sent += 1
        return delivery

    def _note(self, delivery, value: bytes) -> None:
        if delivery in self._batches:
            self._batches[delivery].append(value)
            return
        self._batches[delivery] = [value]
        delivery.when_done(lambda: self.account.settle(self._batches.pop(delivery),
                                                       delivery.outcome))

    async def acknowledged_more(self, count: int, partition: int | None = None) -> None:
        """Wait until ``count`` more records (of one partition) were acknowledged."""
        def number() -> int:
            counts = self.account.counts
            return counts.total() if partition is None else counts[partition]
        goal = number() + count
        with trio.fail_after(WAIT_S):
            while number() < goal:
                await trio.sleep(PAUSE_S)


async def verify(client: Client, account: Account) -> None:
    """Read the topic to its end and compare."""
    read: dict[tuple[int, int], bytes] = {}
    with trio.fail_after(WAIT_S):
        async for batch in client.consume(account.topic, until_end=True):
            for record in batch:
                where = batch.partition, record.offset
                assert where not in read, f"{where} was delivered twice"
                read[where] = record.value
    missing = {where: value for where, value in account.acknowledged.items()
               if read.get(where) != value}
    assert not missing, f"{len(missing)} acknowledged records lost or moved: {first(missing)}"
    values = list(read.values())
    assert len(values) == len(set(values)), "a record was appended twice"
    unknown = set(values) - set(account.acknowledged.values()) - account.ambiguous
    assert not unknown, f"{len(unknown)} records that nobody acknowledged: {first(unknown)}"
    for partition in {partition for partition, _offset in read}:
        rows = sorted((offset, value) for (where, offset), value in read.items()
                      if where == partition)
        assert [offset for offset, _value in rows] == list(range(len(rows))), "offsets have holes"
        assert [value for _offset, value in rows] == sorted(value for _offset, value in rows), \
            "records were reordered"


def first(things, count: int = 5) -> list:
    """Return a few of many, for a message."""
    return sorted(things.items() if isinstance(things, dict) else things)[:count]
