"""Simulated clients: idempotent producers that retry, plain producers that do not, and readers.

Contract.  Clients know nodes by number and the groups of partitions by arithmetic.  They talk over
the simulated network and believe only replies.  A producer keeps a batch until it is acknowledged:
a timeout, a lost reply and an ambiguous reply all lead to a retry of the very same bytes, at any
replica.  Sometimes a producer gives up: it takes a higher epoch and abandons its open batches.

Appends come in bursts.  A burst has as many appends as are missing for ``appends_per_second`` over
the run so far.  Later bursts thus make up for appends that were refused or lost.

Invariants.  From the oldest open batch of a producer and partition to its newest are at most
``in_flight_max`` (<= 5, the server's window) batches.  Each value is unique and names its append.

Theory.  Like a real producer, one sends all batches for a node in one frame, doubles the backoff
between retries, and sends all waiting retries together.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from chaos.history import FAIL, INFO, OK
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import SimulatedNetwork
from chaos.simulator.env.parameters import WorkloadParameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle.observer import StateChecker
from chaos.simulator.oracle.operations import (
    ACKS_COMMIT,
    ACKS_LEADER,
    ACKS_NONE,
    AppendOperation,
    ReadOperation,
)
from multiraft import core

if TYPE_CHECKING:
    from chaos.simulator.ports import HistoryPort, LateReaderPort, TopicsPort

#: Error of a reply with an ambiguous outcome: the batch may be committed or not.
AMBIGUOUS = "ambiguous"
#: Definite error: the batch exceeds the limit of its topic.
TOO_LARGE = "BATCH_TOO_LARGE"
#: Definite error: the partition does not exist, or was deleted.
GONE = "NoSuchPartition"
#: Lowest network address of clients; nodes are below.
CLIENT_BASE = 1000
READER_BASE = CLIENT_BASE + 500
#: Refusals of the oldest open batch after which its producer counts as stuck.  Refusals are at
#: least one backoff apart, and a new leader may cause a few.
OUT_OF_ORDER_REFUSALS_MAX = 200
#: Backoff before the first retry of a batch; each further retry doubles it, at most so many times.
BACKOFF_US = (20_000, 80_000)
BACKOFF_DOUBLINGS_MAX = 4
#: Maximum number of batches of a burst; the next burst makes up for the rest.
BURST_APPENDS_MAX = 100
#: Probability that a producer restarts before it appends to a partition.
GIVE_UP = 0.003
READ_BYTES_MAX = 2000


class AppendRequest(NamedTuple):
    """Append request of a client to a node."""

    client: int
    attempt: int
    group: int
    partition: int
    payload: bytes
    acks: int
    seen_index: int  # the newest metadata that the client knows


class FetchRequest(NamedTuple):
    """Fetch request of a client to a node."""

    client: int
    attempt: int
    group: int
    partition: int
    offset: int
    bytes_max: int
    seen_index: int


class ClientReply(NamedTuple):
    """Reply of a node.  ``error``: "" = success, "ambiguous", or the name of a definite error."""

    attempt: int
    error: str
    base_offset: int = -1
    leader: int = 0
    end_offset: int = -1
    moved_to: int = 0  # group in which the partition takes appends; 0 = not moved


class ClientView(NamedTuple):
    """Network and placement, as every client knows them from its bootstrap."""

    queue: EventQueue
    network: SimulatedNetwork
    trace: Trace
    state_checker: StateChecker
    voters: dict[int, tuple[int, ...]]  # group -> nodes
    partitions: dict[int, tuple[int, ...]]  # group -> partitions
    receivers: dict[int, Callable[[int, tuple], None]]  # node -> (sender, frame)


class _Once:
    """Receiver that drops all copies of a frame after the first."""

    __slots__ = ("_receive",)

    def __init__(self, receive: Callable[[int, tuple], None]):
        self._receive: Callable[[int, tuple], None] | None = receive

    def __call__(self, sender: int, frame: tuple) -> None:
        receive, self._receive = self._receive, None
        if receive is not None:
            receive(sender, frame)


class ProducerStream:
    """One producer's batches to one partition."""

    __slots__ = ("next_sequence", "next_number", "open")

    def __init__(self) -> None:
        self.next_sequence = 0
        self.next_number = 0
        self.open: list[AppendOperation] = []

    @property
    def span(self) -> int:
        """Number of batches from the oldest open one on, acknowledged ones included; 0 = none is
        open.

        The server remembers only so many batches of a producer.
        """
        return self.next_number - self.open[0].number if self.open else 0


class Workload:
    """All clients of one run, and the acknowledged offsets."""

    def __init__(self, cluster: ClientView, parameters: WorkloadParameters, rng: random.Random):
        self._cluster = cluster
        self._parameters = parameters
        self._rng = rng
        self._running = False
        self._started_us = 0
        self._attempts: dict[int, AppendOperation] = {}
        self._attempt_count = 0
        self._waiting: dict[int, list[AppendOperation]] = {}  # producer -> batches to send again
        self._value_count = 0
        self._epochs = dict.fromkeys(range(1, parameters.producers + 1), 0)
        self._streams: dict[tuple[int, int], ProducerStream] = {}
        self.partitions = cluster.partitions
        self._group_of = {partition: group for group, partitions in cluster.partitions.items()
                          for partition in partitions}
        self._groups = sorted(cluster.partitions)
        self._hints: dict[int, int] = {}
        self._acked_offsets: dict[int, int] = {}  # highest acknowledged with commit
        self._positions: dict[tuple[int, int], int] = {}  # (reading client, partition) -> next
        #: Receives every operation, if a history is recorded (``history.Recording``).
        self.history: HistoryPort | None = None
        #: Topics that are created and deleted, if the seed has them.
        self.topics: TopicsPort | None = None
        #: Reader of deleted topics, if the seed has topics and retention.
        self.late_reader: LateReaderPort | None = None
        self.open_appends = 0  # idempotent batches not yet acknowledged
        self.acked = 0
        self.ambiguous = 0
        self.refused = 0
        self.too_large = 0  # of the refused
        self.reads = 0
        self.records_read = 0

    def replace_node(self, old: int, new: int) -> None:
        """Replace node ``old`` by ``new`` in the clients' knowledge of the voters of every
        group."""
        voters = self._cluster.voters
        for group, nodes in voters.items():
            voters[group] = tuple(new if node == old else node for node in nodes)

    # ---- pace ------------------------------------------------------------------------------

    def start(self) -> None:
        self._running = True
        self._started_us = self._cluster.queue.now_us
        self._pace(self._append_some, 1000 / self._parameters.burst_interval_ms)
        self._pace(self._read_some, self._parameters.reads_per_second)
        if self.late_reader is not None:
            self.late_reader.start()

    def stop(self) -> None:
        """Start no more operations; open ones are retried until they are acknowledged."""
        self._running = False
        if self.late_reader is not None:
            self.late_reader.stop()

    def _pace(self, action: Callable[[], None], per_second: float) -> None:
        delay_us = 1 + int(self._rng.expovariate(per_second) * 1e6)
        self._cluster.queue.after(delay_us, self._paced, action, per_second)

    def _paced(self, action: Callable[[], None], per_second: float) -> None:
        if self._running:
            action()
            self._pace(action, per_second)

    def open_summary(self) -> str:
        """Describe the first few open batches; "" = there are none."""
        opened = [append for stream in self._streams.values() for append in stream.open]
        return "; ".join(f"{append!r}, group {self._group_of[append.partition]}, "
                         f"{append.attempts} attempts, last {append.last_error}"
                         for append in opened[:6])

    # ---- producers -------------------------------------------------------------------------

    def _append_some(self) -> None:
        """Send the batches that lack for the wanted rate, if any: runs of one producer to one
        partition, and single ones without a producer. May restart a producer before its run."""
        rng, parameters = self._rng, self._parameters
        left = self._missing_appends()
        appends: list[AppendOperation] = []
        while left > 0:
            partition = self._some_partition()
            left -= 1
            if rng.random() < parameters.acks_leader:
                appends.append(self._build_plain(partition))
                continue
            producer = rng.randrange(1, parameters.producers + 1)
            if rng.random() < GIVE_UP:
                self._give_up(producer)
            for _ in range(rng.randrange(1, parameters.in_flight_max + 1)):
                append = self._next_batch(producer, partition)
                if append is None:
                    break
                appends.append(append)
                left -= 1
        self._send([append for append in appends if not append.done])

    def _missing_appends(self) -> int:
        """Return how many appends lack for the wanted rate, at most ``BURST_APPENDS_MAX``; not
        positive = none lacks. Open ones do not lack."""
        elapsed_us = self._cluster.queue.now_us - self._started_us
        wanted = int(self._parameters.appends_per_second * elapsed_us / 1e6)
        return min(wanted - self.acked - self.open_appends, BURST_APPENDS_MAX)

    def _some_partition(self) -> int:
        """Draw a partition, of a topic or of the workload's own; of those a power of a uniform
        number makes a few groups hot."""
        if self.topics is not None and (partition := self.topics.some_partition()):
            return partition
        groups = self._groups
        group = groups[int(self._rng.random() ** self._parameters.skew * len(groups))]
        return self._rng.choice(self._cluster.partitions[group])

    def locate(self, places: Iterable[tuple[int, int]]) -> None:
        """Update the clients' placement with (partition, group) pairs."""
        self._group_of.update(places)

    @property
    def seen_index(self) -> int:
        """Newest metadata that clients know."""
        return self.topics.seen_index if self.topics is not None else 0

    def known_partitions(self, group: int) -> list[int]:
        """Return the partitions that take appends in a group, as far as clients know, those of
        deleted topics included."""
        return sorted(partition for partition, place in self._group_of.items() if place == group)

    def leader_of(self, group: int) -> int:
        """Return the node that clients take for the leader of a group; 0 = unknown."""
        return self._hints.get(group, 0)

    def voters_of(self, group: int) -> tuple[int, ...]:
        """Return the voters of a group, as far as clients know."""
        return self._cluster.voters[group]

    def acknowledged_end(self, partition: int) -> int:
        """Return the offset behind the last record of a partition that was acknowledged with
        ``commit``."""
        return self._acked_offsets.get(partition, -1) + 1

    def _next_batch(self, producer: int, partition: int) -> AppendOperation | None:
        """Return a new open batch of an idempotent producer, not sent yet; None when its window is
        full."""
        stream = self._streams.get((producer, partition))
        if stream is None:
            stream = self._streams[producer, partition] = ProducerStream()
        if stream.span >= self._parameters.in_flight_max:
            return None
        append = self._build(producer, self._epochs[producer], stream.next_sequence, partition,
                             ACKS_COMMIT)
        append.number = stream.next_number
        stream.next_number += 1
        stream.next_sequence += append.count
        stream.open.append(append)
        self.open_appends += 1
        return append

    def append_final(self) -> None:
        """Send one more batch to each group and known partition of a topic, which must still
        commit.

        Each batch is from a producer whose window is not full. Raises ``Violation`` if a partition
        has none.
        """
        appends: list[AppendOperation] = []
        topics = self.topics.places() if self.topics is not None else ()
        for partition in (*(partitions[0] for _, partitions in sorted(self.partitions.items())),
                          *(partition for partition, _ in topics)):
            appends.append(self._batch_of_any(partition))
        self._send(appends)

    def _batch_of_any(self, partition: int) -> AppendOperation:
        for producer in self._epochs:
            batch = self._next_batch(producer, partition)
            if batch is not None:
                return batch
        raise Violation("Liveness", f"no producer has room for a batch to partition {partition}")

    def _build_plain(self, partition: int) -> AppendOperation:
        """Return a batch without a producer id, not sent yet.

        It is not retried: it may be lost, but must not be duplicated.
        """
        return self._build(-1, -1, -1, partition, self._rng.choice((ACKS_LEADER, ACKS_NONE)))

    def _build(self, producer: int, epoch: int, sequence: int, partition: int,
               acks: int) -> AppendOperation:
        rng, parameters = self._rng, self._parameters
        builder = core.BatchBuilder(1 << 20)
        count = rng.randrange(1, parameters.records_per_batch_max + 1)
        for _ in range(count):
            self._value_count += 1
            value = b"%d/%d/%d/%d " % (partition, producer, epoch, self._value_count)
            builder.append(self._cluster.queue.now_ms, None,
                           value + bytes(rng.randrange(parameters.value_bytes_max + 1)))
        payload = bytes(builder.build(producer, epoch, sequence))
        append = AppendOperation(producer, epoch, sequence, count, partition, acks, payload,
                                 self._cluster.queue.now_us,
                                 self._acked_offsets.get(partition, -1))
        if self.history is not None:
            self.history.invoke(append)
        return append

    def _give_up(self, producer: int) -> None:
        """Restart a producer: a higher epoch, sequences from 0. Its open batches end as ambiguous
        and are not retried."""
        self._epochs[producer] += 1
        self._cluster.trace.line(0, -1, "producer", f"p{producer} epoch {self._epochs[producer]}")
        for (owner, _), stream in self._streams.items():
            if owner == producer:
                for append in stream.open:
                    append.ambiguous = append.done = True
                    self._ended(append, INFO)
                    self.ambiguous += 1
                self.open_appends -= len(stream.open)
                stream.open.clear()
                stream.next_sequence = 0

    # ---- attempts --------------------------------------------------------------------------

    def _send(self, appends: list[AppendOperation]) -> None:
        """Send one frame per client and node, and retry after the timeout what was not answered;
        plain appends are sent alone."""
        frames: dict[tuple[int, int], list[AppendRequest]] = {}
        attempts = []
        for append in appends:
            self._attempt_count += 1
            attempt = self._attempt_count
            self._attempts[attempt] = append
            attempts.append(attempt)
            group = self._group_of[append.partition]
            node = self._node_for(append, group)
            client = CLIENT_BASE + max(append.producer, 0)
            request = AppendRequest(client, attempt, group, append.partition, append.payload,
                                    append.acks, self.seen_index)
            if append.producer < 0:
                self.deliver(client, node, (request,), once=True)
            else:
                frames.setdefault((client, node), []).append(request)
        for (client, node), requests in frames.items():
            self.deliver(client, node, tuple(requests))
        if attempts:
            self._cluster.queue.after(self._parameters.timeout_ms * 1000, self._timed_out, attempts)

    def _node_for(self, append: AppendOperation, group: int) -> int:
        """Count the attempt, and return the node to ask: the known leader. Without one, and at
        every third attempt, any voter except the last one asked."""
        node = self._hints.get(group, 0)
        if not node or append.attempts % 3 == 2:
            voters = self._cluster.voters[group]
            node = self._rng.choice([each for each in voters if each != append.asked] or voters)
        append.attempts += 1
        append.asked = node
        return node

    def deliver(self, client: int, node: int, frame: tuple, once: bool = False) -> None:
        """Send a frame; with ``once`` the receiver drops duplicates.

        A real connection duplicates nothing.  A duplicated frame stands for a retry, and plain
        appends are not retried.
        """
        receive = self._cluster.receivers[node]
        if once:
            receive = _Once(receive)
        self._cluster.network.send(client, node, "client", frame, receive)

    def _timed_out(self, attempts: list[int]) -> None:
        """Retry the attempts without a reply, and forget the known leaders of their groups.
        Attempts that were answered are ignored."""
        for attempt in attempts:
            append = self._attempts.pop(attempt, None)
            if append is not None:
                self._hints.pop(self._group_of[append.partition], None)
                self._retry(append)

    def _retry(self, append: AppendOperation) -> None:
        """Send a batch again with the next frame of its producer; without one that waits already,
        the next frame leaves after a backoff.

        A plain batch is ended instead, as ambiguous unless its last error was definite. No-op for a
        batch that has ended."""
        if append.done:
            return
        if append.producer < 0:
            append.done = append.ambiguous = True
            self._ended(append, FAIL if append.last_error not in ("", AMBIGUOUS) else INFO)
            return
        waiting = self._waiting.get(append.producer)
        if waiting is not None:
            waiting.append(append)
            return
        self._waiting[append.producer] = [append]
        delay_us = self._rng.randrange(*BACKOFF_US) << min(append.attempts - 1,
                                                           BACKOFF_DOUBLINGS_MAX)
        self._cluster.queue.after(delay_us, self._send_again, append.producer)

    def _send_again(self, producer: int) -> None:
        self._send([append for append in self._waiting.pop(producer) if not append.done])

    def receive(self, sender: int, frame: tuple) -> None:
        """Receive the replies of a node."""
        for reply in frame:
            append = self._attempts.pop(reply.attempt, None)
            if append is not None:  # otherwise the attempt has timed out, and was sent again
                self._answered(append, reply, sender)

    def _answered(self, append: AppendOperation, reply: ClientReply, sender: int) -> None:
        group = self._group_of[append.partition]
        if append.done:
            return
        if not reply.error:
            self._hints[group] = sender
            self._acknowledged(append, group, reply)
            return
        self.refused += 1
        self.too_large += reply.error == TOO_LARGE
        append.last_error = reply.error
        if reply.error == GONE:
            self._gone(append, sender)
            return
        if reply.moved_to:
            group = self._group_of[append.partition] = reply.moved_to
        if reply.leader:
            self._hints[group] = reply.leader
        else:
            self._hints.pop(group, None)
        if reply.error == "OutOfOrderSequence":
            self._out_of_order(append)
        self._retry(append)

    def _gone(self, append: AppendOperation, node: int) -> None:
        """End all open batches of a deleted partition, as ``node`` replied about ``append``; none
        of them can get another answer. The refused one has certainly failed if this was its only
        attempt, the others are ambiguous."""
        self.topics.record_gone(node, append.partition)
        opened = [append]
        for (_, partition), stream in self._streams.items():
            if partition == append.partition:
                opened += [each for each in stream.open if each is not append]
                self.open_appends -= len(stream.open)
                stream.open.clear()
        for each in opened:
            refused = each is append and each.attempts == 1
            each.done, each.ambiguous = True, not refused
            self._ended(each, FAIL if refused else INFO)

    def _acknowledged(self, append: AppendOperation, group: int, reply: ClientReply) -> None:
        append.done = True
        append.base_offset = reply.base_offset
        self._ended(append, OK)
        if append.acks != ACKS_COMMIT:
            return
        self.acked += 1
        self._cluster.trace.mix(append.partition, append.base_offset, append.attempts)
        self._cluster.state_checker.acked(group, append)
        last = append.base_offset + append.count - 1
        self._acked_offsets[append.partition] = max(
            last, self._acked_offsets.get(append.partition, -1))
        self._streams[append.producer, append.partition].open.remove(append)
        self.open_appends -= 1

    def _ended(self, append: AppendOperation, kind: str) -> None:
        if self.history is not None:
            self.history.complete(append, kind, append.last_error)

    def _out_of_order(self, append: AppendOperation) -> None:
        """Accept an ``OutOfOrderSequence`` for a batch while an earlier one is open; count it for
        the oldest open one. Raises ``AssertionError`` when its producer is stuck: refused more than
        ``OUT_OF_ORDER_REFUSALS_MAX`` times."""
        stream = self._streams[append.producer, append.partition]
        if stream.open and stream.open[0] is append:
            append.refusals += 1
            assert append.refusals <= OUT_OF_ORDER_REFUSALS_MAX, (
                f"{append!r} is next in line and was refused {append.refusals} times")

    # ---- readers ---------------------------------------------------------------------------

    def _read_some(self) -> None:
        rng = self._rng
        reader = rng.randrange(self._parameters.readers)
        client = READER_BASE + reader
        partition = self._some_partition()
        offset = self._positions.get((client, partition), 0)
        if offset and rng.random() < 0.05:
            offset = rng.randrange(offset)
        group = self._group_at(partition, offset)
        node = rng.choice(self._cluster.voters[group])
        self.deliver(client, node, (FetchRequest(client, reader, group, partition, offset,
                                                  READ_BYTES_MAX, self.seen_index),))

    def _group_at(self, partition: int, offset: int) -> int:
        """Return the group from which a reader fetches an offset, as far as clients know."""
        group = self.topics.group_at(partition, offset) if self.topics is not None else 0
        return group or self._group_of[partition]

    def position_of(self, reader: int, partition: int) -> int:
        """Return the next offset of a reader in a partition."""
        return self._positions.get((reader, partition), 0)

    def was_read(self, group: int, read: ReadOperation) -> None:
        """Record a fetch that a node serves, have the state checker check it, and advance the
        reader's position. Raises ``Violation``."""
        self.reads += 1
        if self.history is not None:
            self.history.read(read)
        self._cluster.state_checker.read(group, read)
        if read.batches:
            header = core.batch_header(read.batches[-1])
            end = header.base_offset + header.count
            key = (read.reader, read.partition)
            self.records_read += end - read.offset
            self._positions[key] = max(self._positions.get(key, 0), end)
            self._cluster.trace.mix(read.partition, read.offset, end)

    def was_refused(self, node: int, reader: int, partition: int, offset: int,
                    log_start: int) -> None:
        """Record that ``node`` refuses a fetch because the offset does not exist, have the state
        checker check it, and continue the reader at the log start. Raises ``Violation``."""
        if self.history is not None:
            self.history.refused(reader, partition, offset)
        self._cluster.state_checker.range_refused(node, partition, offset, log_start)
        key = (reader, partition)
        self._positions[key] = max(self._positions.get(key, 0), log_start)
