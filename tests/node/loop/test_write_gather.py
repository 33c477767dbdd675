"""The gathering of writes: order, group commit, relaxed durability and files, on a recorded
queue."""

import errno
from types import SimpleNamespace

import pytest

from node.errors import DiskFailed
from node.loop.write_gather import PROBE_BYTES, WriteGather


class Staged:
    """A staged write to the file ``number``."""

    def __init__(self, number: int, data: bytes, position: int, exists: bool = True,
                 records_only: bool = True):
        self.native_ready = exists
        self.records_only = records_only
        self.synced = True
        self._parts = [(number, data, position)]
        self.files: dict[int, SimpleNamespace] = {}

    def then(self, number: int, data: bytes, position: int):
        """Add a part, in the next segment for example."""
        self._parts.append((number, data, position))
        return self

    @property
    def parts(self):
        return [(self.files[number], [data], position)
                for number, data, position in self._parts]


class Disk:
    """A queue whose completions the test chooses, and the store's part."""

    def __init__(self, flush_interval_ms: int = 0):
        self.now_ms = 1_000
        self.queue: list[tuple] = []  # (file number, bytes, position, sync, token)
        self.done: list[list] = []
        self.round_is_due = False
        self.calls: list[str] = []
        self.prepare_due, self.seals_waiting, self.durable_position = False, 0, 0
        self.watermarks: list = []
        self.synced_to: list[int] = []
        self._files = {number: SimpleNamespace(fileno=lambda number=number: number)
                       for number in range(5)}
        self.gather = WriteGather(
            self, self, self._on_durable, lambda: self.now_ms,
            lambda: self.calls.append("prepare"), lambda: self.calls.append("seal"),
            flush_interval_ms)

    def _on_durable(self, staged):
        self.done.append(staged)
        return self.round_is_due

    def write(self, *staged):
        for one in staged:
            one.files = self._files
            self.gather.submit(one)
        self.gather.start_next()

    def submit(self, file_number, buffers, position, sync, token):
        self.queue.append((file_number, b"".join(buffers), position, sync, token))

    def submitted(self, staged):
        self.watermarks.append(staged)

    def fsynced(self, position):
        self.synced_to.append(position)

    def complete(self, count: int | None = None, error: int = 0) -> bool:
        """Complete jobs of the queue, all of them by default."""
        count = len(self.queue) if count is None else count
        jobs, self.queue = self.queue[:count], self.queue[count:]
        return self.gather.collect([(job[4], error, len(job[1]), 30) for job in jobs])

    @property
    def queued(self) -> list[tuple]:
        """The queued jobs, without their tokens."""
        return [job[:4] for job in self.queue]


def test_writes_that_are_submitted_during_a_write_are_the_next_one():
    disk = Disk()
    first, second, third = (Staged(1, bytes([65 + n]) * 4, 4 * n) for n in range(3))
    disk.write(first)
    disk.write(second)
    disk.write(third)
    assert disk.queued == [(1, b"AAAA", 0, True)] and not disk.gather.idle
    disk.complete()
    assert disk.done == [[first]]
    assert disk.queued == [(1, b"BBBBCCCC", 4, True)], "adjacent parts are one write, one sync"
    disk.complete()
    assert disk.done == [[first], [second, third]] and disk.gather.idle
    assert disk.watermarks == [first, third]
    assert (disk.gather.writes, disk.gather.bytes_written) == (2, 12)


def test_a_write_is_durable_when_all_of_its_parts_are():
    disk = Disk()
    write = Staged(1, b"end", 90).then(2, b"begin", 0)
    disk.write(write)
    assert disk.queued == [(1, b"end", 90, True), (2, b"begin", 0, True)]
    disk.complete(1)
    assert disk.done == []
    disk.complete(1)
    assert disk.done == [[write]]


@pytest.mark.parametrize("due", [True, False])
def test_a_completion_says_whether_a_round_is_due(due):
    disk = Disk()
    disk.round_is_due = due
    disk.write(Staged(1, b"x", 0))
    assert disk.complete() is due


def test_a_write_that_fails_is_neither_reported_nor_retried():
    disk = Disk()
    disk.write(Staged(1, b"x", 0))
    with pytest.raises(DiskFailed, match="not retried"):
        disk.complete(error=errno.EIO)
    assert disk.done == [] and disk.queue == []


def test_after_the_end_no_write_starts():
    disk = Disk()
    disk.write(first := Staged(1, b"x", 0))
    disk.write(Staged(1, b"y", 1))
    disk.gather.end()
    disk.complete()
    disk.gather.probe(4)
    assert disk.done == [[first]] and disk.queue == []


# ---- files -------------------------------------------------------------------------------------


def test_a_write_without_its_file_waits_for_the_creation():
    disk = Disk()
    disk.write(first := Staged(1, b"x", 0), late := Staged(2, b"y", 0, exists=False))
    assert disk.calls == ["prepare"] and disk.queue == [] and disk.gather.idle
    disk.now_ms += 5
    assert disk.gather.begin_creation() is late
    assert disk.gather.busy_since_ms == 1_005
    disk.write(more := Staged(2, b"z", 1))
    assert disk.queue == [], "nothing starts while a file is created"
    late.native_ready = True
    disk.gather.end_creation()
    assert disk.queued == [(1, b"x", 0, True), (2, b"yz", 0, True)]
    disk.complete()
    assert disk.done == [[first, late, more]] and disk.gather.busy_since_ms is None


def test_files_are_prepared_and_indexed_after_a_write_when_the_store_wants_it():
    disk = Disk()
    disk.prepare_due, disk.seals_waiting = True, 1
    disk.write(Staged(1, b"x", 0))
    assert disk.calls == []
    disk.complete()
    assert disk.calls == ["prepare", "seal"]
    assert disk.gather.begin_creation() is None, "no write waits: the file is ahead of its use"


def test_the_older_of_write_and_creation_is_what_the_disk_owes():
    disk = Disk()
    disk.write(Staged(1, b"x", 0))
    disk.now_ms += 10
    disk.gather.begin_creation()
    assert disk.gather.busy_since_ms == 1_000
    disk.complete()
    assert disk.gather.busy_since_ms == 1_010


# ---- relaxed durability ------------------------------------------------------------------------


def test_records_wait_for_their_sync_and_other_entries_do_not():
    disk = Disk(flush_interval_ms=100)
    disk.write(records := Staged(1, b"r", 0))
    assert disk.queued == [(1, b"r", 0, False)] and not records.synced
    disk.complete()
    assert disk.done == [[records]] and not disk.gather.is_synced
    disk.write(vote := Staged(1, b"v", 1, records_only=False))
    assert disk.queued == [(1, b"v", 1, True)] and vote.synced and disk.gather.is_synced


def test_records_that_have_waited_are_synced_by_the_next_write():
    disk = Disk(flush_interval_ms=100)
    disk.write(Staged(1, b"a", 0))
    disk.complete()
    disk.now_ms += 99
    disk.write(Staged(1, b"b", 1))
    assert disk.queued == [(1, b"b", 1, False)]
    disk.complete()
    disk.now_ms += 1
    disk.write(Staged(1, b"c", 2))
    assert disk.queued == [(1, b"c", 2, True)]


def test_records_that_have_waited_are_synced_by_a_flush():
    disk = Disk(flush_interval_ms=100)
    disk.write(Staged(1, b"a", 0))
    disk.complete()
    disk.gather.flush()
    assert disk.queue == [], "not before the interval"
    disk.now_ms += 100
    disk.durable_position = 700
    disk.gather.flush()
    disk.gather.flush()
    assert disk.queued == [(1, b"", 0, True)]
    assert disk.synced_to == []
    disk.complete()
    assert disk.synced_to == [700] and disk.done[1:] == [] and disk.gather.is_synced


def test_no_flush_starts_during_a_write():
    disk = Disk(flush_interval_ms=100)
    disk.write(Staged(1, b"a", 0))
    disk.now_ms += 100
    disk.gather.flush()
    assert len(disk.queue) == 1


def test_a_segment_is_synced_before_bytes_of_the_next_one_are_written():
    disk = Disk(flush_interval_ms=100)
    disk.write(Staged(1, b"a", 0))
    disk.complete()
    disk.write(Staged(2, b"b", 0))
    assert disk.queued == [(1, b"", 0, True), (2, b"b", 0, False)]
    disk.complete()
    disk.write(Staged(2, b"c", 1).then(3, b"d", 0))
    assert disk.queued == [(2, b"c", 1, True), (3, b"d", 0, False)]


# ---- probes ------------------------------------------------------------------------------------


def test_an_idle_disk_is_probed_and_no_write_is_reported():
    disk = Disk()
    disk.gather.probe(4, idle_ms=500)
    assert disk.queue == [], "a write has just completed, as far as the gathering knows"
    disk.now_ms += 500
    disk.gather.probe(4, idle_ms=500)
    assert disk.queued == [(4, bytes(PROBE_BYTES), 0, True)]
    assert disk.gather.busy_since_ms == 1_500
    disk.write(waiting := Staged(1, b"x", 0))
    assert len(disk.queue) == 1
    disk.complete()
    assert disk.done == [] and disk.queued == [(1, b"x", 0, True)]
    disk.complete()
    assert disk.done == [[waiting]]


def test_a_disk_that_is_written_is_not_probed():
    disk = Disk()
    disk.now_ms += 500
    disk.write(Staged(1, b"x", 0))
    disk.gather.probe(4)
    disk.complete()
    disk.gather.probe(4, idle_ms=500)
    assert disk.queue == []
