"""Numbered appends from a process of their own, at a rate that can be changed, and their outcomes.

Contract.  ``Appending`` is a process that appends records to one topic.  Each value begins with a
number, from 0 upwards, none left out; so reading everything back tells lost, doubled and disordered
records (``read_back``).  The duration of each acknowledged batch is reported with the time of its
first record, in the clock that all processes of a machine share.  ``bytes_per_s`` 0 = as fast as
the cluster takes them.  The process is ended with its context.

Theory.  A producer in the process that also measures, plans or watches would share its interpreter,
and the measurement would include that work.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.connection import Connection as Pipe
from typing import NamedTuple

from benchmarks.processes import BenchmarkError
from multiraft.client import blocking
from multiraft.errors import MultiRaftError

RECORD_BYTES = 256
NUMBER_BYTES = 8
#: Records that are passed to the producer at once when it is not paced.
HANDFUL = 500
#: Interval in which a paced process passes the records that are due, in seconds, and their limit
#: per interval: after a stall several intervals catch up.  So at most 256 MB/s can be requested.
TURN_S = 0.005
DUE_MAX = 5000
ANSWER_S = 60.0
#: Value of ``batch_bytes`` for a record at a time.
SINGLE = 0


class Taken(NamedTuple):
    """A batch that was acknowledged: the time of its first record, and its duration."""

    given_s: float
    took_s: float


class Account(NamedTuple):
    """Appends of a process: numbers 0 .. ``given`` - 1, failures and acknowledged batches."""

    given: int
    failures: tuple[str, ...]
    taken: tuple[Taken, ...]


class Damage(NamedTuple):
    """Damage that reading everything back found, in records."""

    missing: int
    doubled: int
    disordered: int


class Appending:
    """One appending process; use it with ``with``.  Batches are of up to ``batch_bytes``;
    ``SINGLE``: each record is a batch, given when the one before is acknowledged, to the next
    partition."""

    def __init__(self, addresses: tuple[str, ...], topic: str, partitions: int, batch_bytes: int,
                 bytes_per_s: int = 0):
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(
            target=_run, args=(other, addresses, topic, partitions, batch_bytes, bytes_per_s),
            daemon=True)

    def __enter__(self) -> Appending:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()

    def set_rate(self, bytes_per_s: int) -> None:
        """Set the rate from now on."""
        self._pipe.send(bytes_per_s)

    def acknowledged(self) -> int:
        """Return the records acknowledged so far.  Raises ``BenchmarkError``."""
        return self._ask("acknowledged")

    def stop(self) -> Account:
        """Flush, end the process and return its account.  Raises ``BenchmarkError``."""
        account = self._ask("stop")
        self._process.join()
        return account

    def _ask(self, what: str):
        try:
            self._pipe.send(what)
            if self._pipe.poll(ANSWER_S):
                return self._pipe.recv()
        except (EOFError, OSError) as error:
            raise BenchmarkError(f"the appending process ended with "
                                 f"{self._process.exitcode}") from error
        raise BenchmarkError(f"the appending process does not answer in {ANSWER_S:.0f} s")


class _Appender:
    """Appender inside the process."""

    def __init__(self, client: blocking.Client, producer: blocking.Producer, topic: str,
                 partitions: int, single: bool):
        self._client = client
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._single = single
        self._padding = os.urandom(RECORD_BYTES - NUMBER_BYTES)
        self._open: dict[object, float] = {}  # delivery -> when its first record was given
        self.given = 0
        self.acknowledged = 0
        self.failures: list[str] = []
        self.taken: list[Taken] = []

    def give(self, count: int) -> None:
        """Append ``count`` more records."""
        if self._single:
            for _ in range(count):
                self._give_one()
            return
        values = [number.to_bytes(NUMBER_BYTES, "big") + self._padding
                  for number in range(self.given, self.given + count)]
        self.given += count
        given_s = time.monotonic()
        for delivery in self._producer.send_many(self._topic, values):
            if delivery not in self._open:
                self._open[delivery] = given_s
                delivery.when_done(lambda delivery=delivery: self._done(delivery))

    def _give_one(self) -> None:
        number = self.given
        self.given += 1
        given_s = time.monotonic()
        try:
            self._producer.send(blocking.Record(
                self._topic, number.to_bytes(NUMBER_BYTES, "big") + self._padding,
                partition=number % self._partitions)).wait()
        except MultiRaftError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        self.acknowledged += 1
        self.taken.append(Taken(given_s, time.monotonic() - given_s))

    def _done(self, delivery) -> None:
        given_s = self._open.pop(delivery)
        try:
            self.acknowledged += delivery.result().count
        except MultiRaftError as error:
            self.failures.append(f"{type(error).__name__}: {error}")
            return
        self.taken.append(Taken(given_s, time.monotonic() - given_s))

    def idle(self, seconds: float) -> None:
        """Serve the connections for a while."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._client.advance()
            self._client.listen(max(1, int(1000 * left_s)))

    def account(self) -> Account:
        """Return the account, after a flush."""
        return Account(self.given, tuple(self.failures), tuple(self.taken))


def _run(pipe: Pipe, addresses: tuple[str, ...], topic: str, partitions: int, batch_bytes: int,
         bytes_per_s: int) -> None:
    """Run the process: append the records that are due and answer requests, until it is stopped."""
    single = batch_bytes == SINGLE
    settings = {"linger_ms": 0} if single else {"linger_ms": 5, "batch_bytes": batch_bytes}
    with blocking.Client(list(addresses)) as client, \
            client.producer(acks="commit", **settings) as producer:
        appender = _Appender(client, producer, topic, partitions, single)
        due_s = time.monotonic()
        while True:
            while pipe.poll():
                asked = pipe.recv()
                if asked == "stop":
                    producer.flush()
                    pipe.send(appender.account())
                    return
                if asked == "acknowledged":
                    pipe.send(appender.acknowledged)
                else:
                    bytes_per_s, due_s = asked, time.monotonic()
            if not bytes_per_s:
                appender.give(HANDFUL)
                continue
            now_s = time.monotonic()
            count = int((now_s - due_s) * bytes_per_s / RECORD_BYTES)
            if count:
                count = min(count, 1 if single else DUE_MAX)
                due_s += count * RECORD_BYTES / bytes_per_s
                appender.give(count)
            appender.idle(max(0.001, TURN_S - (time.monotonic() - now_s)))


def read_back(client: blocking.Client, topic: str, given: int) -> Damage:
    """Read a topic from its beginning to its end and compare it with the appended records."""
    seen = bytearray(given)
    doubled = disordered = 0
    last: dict[int, int] = {}
    for batch in client.consume(topic, start="earliest", until_end=True):
        before = last.get(batch.partition, -1)
        for record in batch.records():
            number = int.from_bytes(record.value[:NUMBER_BYTES], "big")
            doubled += seen[number]
            seen[number] = 1
            disordered += number <= before
            before = number
        last[batch.partition] = before
    return Damage(seen.count(0), doubled, disordered)


def percentile_ms(taken: tuple[Taken, ...], part: float, since_s: float,
                  until_s: float) -> float:
    """Return a percentile of the batches that began within a span.  Raises ``BenchmarkError`` when
    there are too few."""
    counted = sorted(each.took_s for each in taken if since_s <= each.given_s < until_s)
    if len(counted) < 100:
        raise BenchmarkError(f"only {len(counted)} appends were timed in "
                             f"{until_s - since_s:.1f} s")
    return 1e3 * counted[min(len(counted) - 1, int(len(counted) * part))]
