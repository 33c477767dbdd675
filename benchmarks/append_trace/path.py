"""The critical path of an append: followed backward from its acknowledgement.

Contract.  ``paths`` is a pure function of the records.  The parts of a path are consecutive, so
they add up to the latency of the append.  An append whose path has a gap (the leader changed, a
record ended) is left out and counted.

Method.  The reply leaves the leader in a round.  The arrival that began that round is either the
acknowledgement of a follower or the completion of the leader's own write, whichever came last.  The
follower's acknowledgement follows the completion of its write, and that write an arrival from the
leader.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from benchmarks.append_trace import points

#: Parts of a path, in order: name, and where the time is spent.
PARTS = (
    ("client: encode and send", "Python"),
    ("to the leader: socket, wake-up", "kernel"),
    ("leader: receive, check, propose, stage", "Python"),
    ("to the follower: socket, wake-up", "kernel"),
    ("follower: receive, append, stage", "Python"),
    ("disk thread: hand over and back", "hand-over"),
    ("disk: write and sync", "disk"),
    ("follower: collect, acknowledge", "Python"),
    ("back to the leader: socket, wake-up", "kernel"),
    ("leader: commit, apply, reply", "Python"),
    ("to the client: socket, wake-up", "kernel"),
    ("client: receive, decode", "Python"),
)
#: A write of at least this many bytes has zeros behind the record of a single append.
ZEROS_BYTES = 64 << 10
#: The largest time of a record, in nanoseconds.
LATEST_NS = (1 << 63) - 1
#: Index of the parts that end when a process returns from waiting.
WAKE_UPS = tuple(number for number, (_, kind) in enumerate(PARTS) if kind == "kernel")

Event = tuple[int, int, int]  # nanoseconds, point, value


class Path(NamedTuple):
    """One append: latency and parts in nanoseconds."""

    began: int
    parts: tuple[int, ...]
    runnable: tuple[int, ...]  # of each part, how long its thread waited for a processor
    through: int  # the follower whose acknowledgement committed it; 0 = the leader's own disk
    collected: int  # nanoseconds of garbage collection at the nodes of the path
    has_zeros: bool  # a node wrote zeros ahead while the append's own write was under way

    @property
    def latency(self) -> int:
        """Return the sum of the parts, in nanoseconds."""
        return sum(self.parts)


class NoPath(Exception):
    """Raised for an append whose path has a gap."""


class Process:
    """The events of one process, by point."""

    def __init__(self, events: Iterable[Event]):
        self._times: dict[int, list[int]] = {}
        self._values: dict[int, list[int]] = {}
        for at, point, value in events:
            self._times.setdefault(point, []).append(at)
            self._values.setdefault(point, []).append(value)

    def times(self, point: int) -> list[int]:
        """Return all times of a point, in order."""
        return self._times.get(point, [])

    def last(self, point: int, at: int) -> int:
        """Return the last time of ``point`` at or before ``at``.  Raises ``NoPath``."""
        times = self.times(point)
        found = bisect_right(times, at)
        if not found:
            raise NoPath(f"nothing at point {point} before {at}")
        return times[found - 1]

    def first(self, point: int, at: int) -> int:
        """Return the first time of ``point`` at or after ``at``.  Raises ``NoPath``."""
        times = self.times(point)
        found = bisect_left(times, at)
        if found == len(times):
            raise NoPath(f"nothing at point {point} after {at}")
        return times[found]

    def value(self, point: int, at: int) -> int:
        """Return the value of ``point`` at the time ``at``, one of its times."""
        return self._values[point][bisect_left(self._times[point], at)]

    def within(self, point: int, begin: int, end: int) -> list[int]:
        """Return the times of ``point`` from ``begin`` to ``end``."""
        times = self.times(point)
        return times[bisect_left(times, begin):bisect_right(times, end)]

    def wrote_zeros(self, begin: int, end: int) -> bool:
        """Return True if a write with zeros ahead was under way at a time from ``begin`` to
        ``end``."""
        starts = self.times(points.WRITE_SUBMITTED)
        sizes = self._values.get(points.WRITE_SUBMITTED, [])
        for at in range(bisect_right(starts, end) - 1, -1, -1):
            if sizes[at] >= ZEROS_BYTES and self._written(starts[at]) >= begin:
                return True
            if starts[at] < begin:
                return False  # the latest write before ``begin``: earlier ones had ended
        return False

    def _written(self, submitted: int) -> int:
        """Return when the write that was submitted at ``submitted`` was collected; the largest
        time if the record ends before."""
        ends = self.times(points.WRITE_COLLECTED)
        found = bisect_left(ends, submitted)
        return ends[found] if found < len(ends) else LATEST_NS

    def runnable(self, begin: int, end: int) -> int:
        """Return how long the thread waited for a processor from ``begin`` to ``end``, the time of
        a ``WAIT_END``."""
        known = self.last(points.WAIT_BEGIN, end)
        return min(end - begin, max(0, self.value(points.WAIT_END, end)
                                    - self.value(points.WAIT_BEGIN, known)))

    def collected(self, begin: int, end: int) -> int:
        """Return the time of garbage collections that began from ``begin`` to ``end``."""
        return sum(self.first(points.GC_END, at) - at
                   for at in self.within(points.GC_BEGIN, begin, end))


def paths(client: Process, nodes: dict[int, Process], leader: int) -> tuple[list[Path], int]:
    """Return the paths of all appends, and the number of those that have none.  O(events log
    events)."""
    found, without = [], 0
    for began, ended in zip(client.times(points.APPEND_BEGIN), client.times(points.APPEND_END),
                            strict=False):
        try:
            found.append(_path(client, nodes, leader, began, ended))
        except NoPath:
            without += 1
    return found, without


def _path(client: Process, nodes: dict[int, Process], leader: int, began: int,
          ended: int) -> Path:
    at_leader = nodes[leader]
    woken = client.last(points.WAIT_END, ended)
    replied = at_leader.last(points.CLIENTS_FLUSHED, woken)
    arrived = at_leader.last(points.WAIT_END, replied)
    received = at_leader.last(points.WAIT_END, at_leader.first(points.CLIENT_RECEIVED, began))
    # The system call that sends may return after the leader has woken up.
    sent = min(client.first(points.WAIT_BEGIN, began), received)
    before, after = (began, sent, received), (replied, woken, ended)
    arrival = next((each for each in _arrivals(nodes, leader, arrived, replied)
                    if _in_order((*before, *each.times, *after))), None)
    if arrival is None:
        raise NoPath("no arrival before the reply has a path of its own")
    boundaries, middle = (*before, *arrival.times, *after), arrival.times
    process = nodes[arrival.through or leader]
    lengths = [end - begin for begin, end in pairwise(boundaries)]
    disk = min(arrival.disk, lengths[5])
    lengths[5:6] = [lengths[5] - disk, disk]
    runnable = [0] * len(PARTS)
    waits = ((1, at_leader, sent, received), (3, process, middle[0], middle[1]),
             (8, at_leader, middle[4], arrived), (10, client, replied, woken))
    for part, waiting, begin, end in waits:
        if end > begin:
            runnable[part] = waiting.runnable(begin, end)
    collected = sum(nodes[node].collected(began, ended)
                    for node in {leader, arrival.through} - {0})
    has_zeros = any(each.wrote_zeros(middle[2], middle[3]) for each in nodes.values())
    return Path(began, tuple(lengths), tuple(runnable), arrival.through, collected, has_zeros)


class Arrival(NamedTuple):
    """An arrival at the leader that may have completed an append."""

    through: int  # the follower that acknowledged; 0 = the leader's own disk
    #: Sent to the follower, received there, write submitted, write collected, acknowledged,
    #: arrived: nanoseconds.
    times: tuple[int, int, int, int, int, int]
    disk: int  # nanoseconds of the write itself


def _in_order(times: Sequence[int]) -> bool:
    return all(earlier <= later for earlier, later in pairwise(times))


def _arrivals(nodes: dict[int, Process], leader: int, arrived: int,
              replied: int) -> Iterator[Arrival]:
    """Yield the arrivals between ``arrived`` and ``replied``, acknowledgements first."""
    at_leader = nodes[leader]
    for at in at_leader.within(points.PEER_RECEIVED, arrived, replied):
        follower = at_leader.value(points.PEER_RECEIVED, at)
        with contextlib.suppress(NoPath):
            yield _through(follower, nodes[follower], at_leader, arrived)
    for at in at_leader.within(points.WRITE_COLLECTED, arrived, replied):
        with contextlib.suppress(NoPath):
            submitted = at_leader.last(points.WRITE_SUBMITTED, at)
            yield Arrival(0, (submitted, submitted, submitted, arrived, arrived, arrived),
                          at_leader.value(points.WRITE_COLLECTED, at) * 1000)


def _through(number: int, follower: Process, leader: Process, arrived: int) -> Arrival:
    """Return the arrival of a follower's acknowledgement.  Raises ``NoPath``."""
    acknowledged = follower.last(points.PEERS_FLUSHED, arrived)
    collected = follower.last(points.WRITE_COLLECTED, acknowledged)
    woken = follower.last(points.WAIT_END, collected)
    submitted = follower.last(points.WRITE_SUBMITTED, collected)
    received = follower.last(points.WAIT_END, submitted)
    sent = leader.last(points.PEERS_FLUSHED, received)
    return Arrival(number, (sent, received, submitted, woken, acknowledged, arrived),
                   follower.value(points.WRITE_COLLECTED, collected) * 1000)
