"""Streams the flights into the cluster and keeps the books of what was acknowledged.

Contract.  `Stream.run` gives every record to the producer, paced, and returns when each has its
outcome.  The books are kept by the producer's own receipts: a record counts as acknowledged when
the delivery of its batch says so, never before.
Theory.  All records of a batch share one delivery, so a topic's records fall into spans, one per
delivery.  A span grows while the producer hands out the same delivery; the outcome closes it.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any

from dataset import Flight
from ledger import Ledger, digest

from multiraft.client import BatchReceipt, Record

#: Records between two looks at the clock: a few milliseconds of work.
PACE_EVERY = 200


class Span:
    """Records that share a delivery: ``start`` up to, not including, ``stop`` of the ledger."""

    __slots__ = ("start", "stop")

    def __init__(self, start: int):
        self.start = self.stop = start


class TopicStream:
    """One topic: its ledger, and when its batches were acknowledged."""

    def __init__(self, topic: str):
        self.topic = topic
        self.ledger = Ledger()
        self.acknowledged_at = array("d")  # monotonic seconds, one per batch
        self.failures: list[Exception] = []
        self._delivery: Any = None
        self._span = Span(0)

    def note(self, delivery: Any, record: int) -> int:
        """A record of this digest travels with ``delivery``; 1 if that is a new one."""
        (place,) = self.ledger.sent((record,))
        is_new = delivery is not self._delivery
        if is_new:
            self._delivery, self._span = delivery, Span(place)
        self._span.stop = place + 1
        if is_new:
            span = self._span
            delivery.when_done(lambda: self._settle(delivery, span))
        return is_new

    def _settle(self, delivery: Any, span: Span) -> None:
        if isinstance(delivery.outcome, BatchReceipt):
            self.ledger.acknowledged(range(span.start, span.stop))
            self.acknowledged_at.append(time.monotonic())
        else:
            self.failures.append(delivery.outcome)


class Stream:
    """All topics."""

    def __init__(self, topics: dict[str, str], rate: int):
        """``topics`` is carrier -> topic; ``rate`` is records per second, 0 = as fast as it
        goes."""
        self.by_carrier = {carrier: TopicStream(topic) for carrier, topic in topics.items()}
        self._rate = rate
        self.sent = 0

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return sum(topic.ledger.acknowledged_count for topic in self.by_carrier.values())

    def run(self, producer: Any, flights: Iterable[Flight],
            watch: Callable[[Stream], None]) -> None:
        """Sends everything and waits for every outcome.  ``watch`` is called every few
        milliseconds."""
        started = time.monotonic()
        for flight in flights:
            topic = self.by_carrier[flight.carrier]
            delivery = producer.send(Record(topic.topic, flight.value, flight.key))
            topic.note(delivery, digest(flight.key, flight.value))
            self.sent += 1
            if self.sent % PACE_EVERY == 0:
                ahead_s = self.sent / self._rate - (time.monotonic() - started) if self._rate else 0
                producer.poll(max(0.0, ahead_s))
                watch(self)
        producer.flush()
        watch(self)


def longest_pause_s(times: Iterable[float], since: float, until: float) -> float:
    """The longest time without an acknowledgement that touches ``since`` .. ``until``."""
    inside = sorted(times)
    gaps = [later - max(earlier, since) for earlier, later in zip(inside, inside[1:], strict=False)
            if later > since and earlier < until]
    return max(gaps, default=0.0)
