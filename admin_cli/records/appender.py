"""Appends records to one topic, counts their outcomes, and reports what it waits for.

Contract.  The producer takes records at once while it holds little, so that a pipe is read at full
speed; above ``HELD_BYTES_MAX`` the appender waits, and tells on standard error what for when that
takes longer than ``TOLD_AFTER_S``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from admin_cli.console.output import note
from admin_cli.records import unavailable, waiting
from multiraft.client import blocking
from multiraft.client.texts import duration
from multiraft.errors import MultiRaftError
from multiraft.wire import errors as wire

#: Time after which a record is given up without --timeout.
DELIVERY_TIMEOUT_MS = 30_000
#: Bytes that wait for their outcome before more input is read.  Below the producer's own bound, so
#: that the waiting takes place here, where it is reported.
HELD_BYTES_MAX = 32 << 20
#: What a record of no bytes occupies in a batch.
RECORD_BYTES_MIN = 8
#: An election is over by then: a longer wait needs an explanation.
TOLD_AFTER_S = 3.0
#: Limit of the pauses between two reports.
TOLD_AGAIN_S_MAX = 60.0


class RecordRefused(Exception):
    """One record that was refused; those before it were accepted.  ``position``: its index among
    the records of the same call."""

    def __init__(self, position: int, error: Exception):
        super().__init__(str(error))
        self.position = position
        self.error = error


class Settings(NamedTuple):
    """Settings of the producer; ``timeout_ms`` bounds the delivery of a batch.  ``batch_bytes``
    None = the client's default."""

    acks: str = "commit"
    compression: str = "none"
    timeout_ms: int = DELIVERY_TIMEOUT_MS
    batch_bytes: int | None = None

    @property
    def waited(self) -> str:
        """Time after which a record is given up, as text."""
        return duration(self.timeout_ms)

    def of_producer(self) -> dict[str, Any]:
        """Return the keyword arguments of ``Client.producer``."""
        settings: dict[str, Any] = {"acks": self.acks, "compression": self.compression,
                                    "delivery_timeout_ms": self.timeout_ms}
        if self.batch_bytes is not None:
            settings["batch_bytes"] = self.batch_bytes
        return settings


class Appender:
    """Appends records to one topic and counts their outcomes.

    Invariant.  Once every outcome is known (`flush`, or the end of `appender`), ``sent`` =
    acknowledged + ambiguous + refused + unanswered.  When some batches were refused and others are
    ambiguous, all of them are counted as ambiguous, which is the careful side.  Once a failure is
    known (``problem``), nothing more is taken: it would stand behind a gap.
    """

    def __init__(self, client: Any, producer: Any, topic: str):
        self._client = client
        self._producer = producer
        self._topic = topic
        self._counts: dict[Any, int] = {}  # unsettled delivery -> records; 0 = its receipt tells
        self._last_deliveries: list[Any] = []  # deliveries of the last `send_many`, settled or not
        self._held: dict[Any, int] = {}  # unsettled delivery -> bytes that were taken up to it
        self._held_bytes = 0
        self._saw_ambiguous = False
        self.sent = 0
        self.acknowledged = 0
        self.unanswered = 0  # acks="none": sent, with no known outcome
        self.problem: Exception | None = None  # of the first batch that was not acknowledged
        self.reasons: list[str] = []  # sentences about groups without a leader, of that time

    @property
    def ambiguous(self) -> int:
        """Records that may or may not have been appended: all failed ones, once a failure was
        ambiguous."""
        return self._failed if self._saw_ambiguous else 0

    @property
    def refused(self) -> int:
        """Records that certainly were not appended; 0 once a failure was ambiguous, because all
        failed records then count in ``ambiguous``."""
        return 0 if self._saw_ambiguous else self._failed

    @property
    def _failed(self) -> int:
        return self.sent - self.acknowledged - self.unanswered if self.problem else 0

    def append(self, values: Sequence[bytes]) -> None:
        """Hand values without keys over to the producer, without waiting for their outcomes; wait
        while too much is held.  Raises ``RecordRefused``, after which the values before it count as
        sent."""
        size = RECORD_BYTES_MIN * len(values) + sum(map(len, values))
        self._make_room(size)
        if not values or self.problem is not None:
            return
        try:
            self._count(len(values), self._producer.send_many(self._topic, values))
        except MultiRaftError as error:
            taken: Any = error
            self._count(taken.index, taken.deliveries)
            raise RecordRefused(taken.index, error) from error
        if self._last_deliveries:
            self._hold(self._last_deliveries[-1], size)

    def append_records(self, records: Sequence[blocking.Record]) -> None:
        """Hand records over as ``append`` does."""
        size = sum(map(_size, records))
        self._make_room(size)
        delivery = None
        for position, record in enumerate(records):
            if self.problem is not None:
                break
            try:
                delivery = self._producer.send(record)
            except (MultiRaftError, TypeError, ValueError) as error:
                raise RecordRefused(position, error) from error
            self.sent += 1
            self._track(delivery, 1)
        if delivery is not None:
            self._hold(delivery, size)

    def flush(self) -> None:
        """Send open batches, and wait until every record has its outcome, which is counted."""
        self._await(lambda: not self._counts)
        try:
            self._producer.flush()
        except MultiRaftError as error:  # of records without a delivery
            self._fail(error, isinstance(error, wire.AmbiguousOutcome))

    def flush_within(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` seconds until every record with a delivery has its outcome."""
        waiting.until(self._client, lambda: not self._counts,
                      waiting.now_ms() + int(1_000 * timeout_s))

    # ---- waiting ----

    def _make_room(self, size: int) -> None:
        """Wait until ``size`` more bytes may be held, or until some record has failed."""
        if self._held_bytes and self._held_bytes + size > HELD_BYTES_MAX:
            self._await(lambda: (self.problem is not None or not self._held_bytes
                                 or self._held_bytes + size <= HELD_BYTES_MAX))

    def _await(self, is_over: Callable[[], bool]) -> None:
        """Send and receive until ``is_over``.  When nothing was acknowledged for ``TOLD_AFTER_S``,
        tell why, and again after longer and longer pauses."""
        pause_s, acknowledged = TOLD_AFTER_S, self.acknowledged
        while not waiting.until(self._client, is_over, waiting.now_ms() + int(1_000 * pause_s)):
            if self.acknowledged != acknowledged:
                pause_s, acknowledged = TOLD_AFTER_S, self.acknowledged
                continue
            reasons = self._explain()
            note("; ".join([f"waiting for the leaders of {self._topic} to answer", *reasons]))
            pause_s = min(2 * pause_s, TOLD_AGAIN_S_MAX)

    def _explain(self) -> list[str]:
        try:
            return unavailable.explain(self._client,
                                       unavailable.partitions(self._client, self._topic))
        except MultiRaftError as error:
            return [unavailable.no_answer(error)]

    # ---- counting ----

    def _count(self, count: int, touched: list[Any]) -> None:
        """Count values that were accepted together, by the deliveries of their batches."""
        self.sent += count
        for delivery in touched:
            # The batch that was open before may have been filled and settled meanwhile.
            if delivery not in self._last_deliveries:
                self._track(delivery, 0)
        self._last_deliveries = touched

    def _track(self, delivery: Any, count: int) -> None:
        """Count records under their batch's delivery, and subscribe to its outcome at the first of
        them."""
        if delivery in self._counts:
            self._counts[delivery] += count
        else:
            self._counts[delivery] = count
            delivery.when_done(lambda: self._count_outcome(delivery))

    def _hold(self, delivery: Any, size: int) -> None:
        """Count bytes as held until the last batch that has some of them is settled."""
        if delivery in self._counts:
            self._held[delivery] = self._held.get(delivery, 0) + size
            self._held_bytes += size

    def _count_outcome(self, delivery: Any) -> None:
        count = self._counts.pop(delivery)
        self._held_bytes -= self._held.pop(delivery, 0)
        outcome = delivery.outcome
        if isinstance(outcome, Exception):
            self._fail(outcome, isinstance(outcome, wire.AmbiguousOutcome))
        elif outcome.base_offset < 0:
            self.unanswered += count or outcome.count
        else:
            self.acknowledged += count or outcome.count

    def _fail(self, error: Exception, is_ambiguous: bool) -> None:
        self.problem = self.problem or error
        self._saw_ambiguous |= is_ambiguous

    def ask_reasons(self) -> None:
        """Ask the cluster for the groups without a leader, if records have failed because none
        answered in time."""
        if isinstance(self.problem, (wire.AmbiguousOutcome, wire.TimedOut, wire.LeaderUnknown)):
            self.reasons = self._explain()


def _size(record: blocking.Record) -> int:
    """Return about so many bytes as a record occupies in a batch."""
    size = RECORD_BYTES_MIN + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


@contextlib.contextmanager
def appender(client: Any, topic: str, settings: Settings) -> Iterator[Appender]:
    """Yield an `Appender`.  A normal end waits for every outcome; an exception gives up unknown
    ones."""
    with client.producer(**settings.of_producer()) as producer:
        yield Appender(client, producer, topic)
