"""Stream of flights into the cluster, with a record of every acknowledgement.

Contract.  `Stream.run` gives every record to the producer, paced, and returns when each has its
outcome.  The ledger follows the producer's receipts: a record counts as acknowledged when the
delivery of its batch says so, never before.

Theory.  All records of a batch share one delivery, so
a topic's records fall into spans, one per delivery.  A span grows while the producer hands out the
same delivery; the outcome closes it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from dataset import Flight
from ledger import Ledger, digest

from multiraft.client.blocking import BatchReceipt, Record

#: Records between two reads of the clock: a few milliseconds of work.
PACE_EVERY = 200
#: Interval at which acknowledgements are collected while the stream is ahead of time.
TURN_INTERVAL_S = 0.002


class Span:
    """Records that share a delivery: ``start`` up to, not including, ``stop`` of the ledger."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int, stop: int = 0):
        self.start, self.stop = start, stop


class TopicStream:
    """One topic: its ledger, and the times of its acknowledged batches."""

    def __init__(self, topic: str):
        self.topic = topic
        self.ledger = Ledger()
        self.acknowledged_at = array("d")  # monotonic seconds, one per batch
        self.failures: list[Exception] = []
        self._delivery: Any = None
        self._span = Span(0)

    def note(self, delivery: Any, record: int) -> None:
        """Note that a record of this digest is part of ``delivery``."""
        (place,) = self.ledger.sent((record,))
        if delivery is not self._delivery:
            self._delivery, self._span = delivery, Span(place)
        elif delivery.done:  # completed while its last record was handed over
            self._settle(delivery, Span(place, place + 1))
            return
        self._span.stop = place + 1
        if self._span.start == place:
            span = self._span
            delivery.when_done(lambda: self._settle(delivery, span))

    def _settle(self, delivery: Any, span: Span) -> None:
        if isinstance(delivery.outcome, BatchReceipt):
            self.ledger.acknowledged(range(span.start, span.stop))
            self.acknowledged_at.append(time.monotonic())
        else:
            self.failures.append(delivery.outcome)


class Stream:
    """Stream of all topics."""

    def __init__(self, topics: dict[str, str], rate: int):
        """Create the stream.  ``topics`` is carrier -> topic; ``rate`` is records per second, 0 =
        unpaced."""
        self.by_carrier = {carrier: TopicStream(topic) for carrier, topic in topics.items()}
        self.rate = rate  # another thread may change it
        self.hold_at: int | None = None  # as ``rate``: at most this many records are sent meanwhile
        self._paced = rate  # rate on which the due times so far are based
        self._due = 0.0  # when the next records are due, in monotonic seconds
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        """Return the number of records acknowledged so far."""
        return sum(topic.ledger.acknowledged_count for topic in self.by_carrier.values())

    def run(self, client: Any, producer: Any, flights: Iterable[Flight],
            watch: Callable[[Stream], None]) -> None:
        """Send everything and wait for every outcome.  ``watch`` is called every few
        milliseconds."""
        self._due = time.monotonic()
        for flight in flights:
            topic = self.by_carrier[flight.carrier]
            delivery = producer.send(Record(topic.topic, flight.value, flight.key))
            topic.note(delivery, digest(flight.key, flight.value))
            self.sent += 1
            if self.sent % PACE_EVERY == 0:
                self._pace(client)
                watch(self)
        producer.flush()
        watch(self)

    def _pace(self, client: Any) -> None:
        """Serve the client until the next records are due.  A delay is made up for, but not one
        from before a change of the rate."""
        rate, now = self.rate, time.monotonic()
        if rate != self._paced:
            self._paced, self._due = rate, now
        self._due += PACE_EVERY / rate if rate else now - self._due
        while (left_s := self._due - time.monotonic()) > 0 or self._held:
            client.poll()
            time.sleep(min(left_s, TURN_INTERVAL_S) if left_s > 0 else TURN_INTERVAL_S)

    @property
    def _held(self) -> bool:
        hold_at = self.hold_at
        return hold_at is not None and self.sent >= hold_at


def longest_pause_s(times: Iterable[float], since: float, until: float) -> float:
    """Return the longest time without an acknowledgement that touches ``since`` .. ``until``."""
    inside = sorted(times)
    gaps = [later - max(earlier, since) for earlier, later in zip(inside, inside[1:], strict=False)
            if later > since and earlier < until]
    return max(gaps, default=0.0)
