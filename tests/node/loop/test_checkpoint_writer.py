"""Checkpoints are written when they are due, and a full disk postpones them, without trio."""

import errno
import os
from types import SimpleNamespace

import pytest

from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.loop.checkpoint_writer import DISK_FULL_RETRY_MS, CheckpointWriter


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class Node:
    """Store, core, metadata log and space guard of a writer."""

    def __init__(self, *errors: OSError, guarded: bool = True, reserve: bool = True):
        self.errors = list(errors)
        self.summaries: list = []
        self.reserve = reserve
        self.checkpoint_due = True
        self.checkpoint_frees_space = False
        self.now_ms = 1_000
        self.calls: list = []
        self.partition_states = {METADATA_GROUP: SimpleNamespace(applied_index=30)}
        self.status = self.state = self
        self.writer = CheckpointWriter(self, self, self, self._run, lambda: self.now_ms,
                                       self if guarded else None)
        self.writer.completed.subscribe(lambda: self.calls.append("completed"))

    async def _run(self, work) -> None:
        self.calls.append("blocking")
        work()

    def groups(self):
        return (0, 7)

    def commit_index(self, group):
        return 100 + group

    def snapshot(self):
        return "state"

    def checkpoint_job(self, commits, extra):
        self.calls.append((commits, extra))
        self.partition_states[METADATA_GROUP].applied_index += 5  # applied during the write
        return self

    def execute(self):
        if self.errors:
            raise self.errors.pop(0)

    def checkpointed(self, job):
        self.calls.append("written")

    def checkpoint_failed(self):
        self.calls.append("failed")

    def summary_job(self):
        """Return this store as a job, once if an index file can answer."""
        return self.summaries.pop() if self.summaries else None

    def release(self, job):
        self.calls.append("release")
        yield
        self.calls.append("released")

    def refuse_records(self):
        self.calls.append("refuse")

    def release_reserve(self):
        self.calls.append("reserve")
        return self.reserve

    def write(self) -> list:
        """Let a due checkpoint be written, and return the calls."""
        with pytest.raises(StopIteration):
            self.writer.write_if_due().send(None)
        calls, self.calls = self.calls, []
        return calls


CAPTURED = ({0: 100, 7: 107}, "state")


def test_a_due_checkpoint_is_written_and_its_subscribers_hear_of_it():
    node = Node()
    assert node.write() == [CAPTURED, "blocking", "written", "completed"]
    assert node.writer.written == 1
    assert node.writer.metadata_applied == 35
    node.checkpoint_due = False
    assert node.write() == []


def test_a_full_disk_postpones_it_and_refuses_records():
    node = Node(error(errno.ENOSPC))
    assert node.write() == [CAPTURED, "blocking", "failed", "refuse"]
    assert (node.writer.written, node.writer.metadata_applied) == (0, 30)
    node.now_ms += DISK_FULL_RETRY_MS - 1
    assert node.write() == [] and not node.writer.is_due
    node.now_ms += 1
    assert "written" in node.write()


def test_one_that_names_removed_segments_takes_the_reserve_of_a_full_disk():
    node = Node(error(errno.ENOSPC))
    node.checkpoint_frees_space = True
    assert node.write() == [CAPTURED, "blocking", "reserve", "blocking", "written", "completed"]
    node = Node(*[error(errno.ENOSPC)] * 2)
    node.checkpoint_frees_space = True
    assert node.write() == [CAPTURED, "blocking", "reserve", "blocking", "failed", "refuse"]
    node = Node(error(errno.ENOSPC), reserve=False)
    node.checkpoint_frees_space = True
    assert node.write() == [CAPTURED, "blocking", "reserve", "failed", "refuse"]
    assert not node.writer.is_due


@pytest.mark.parametrize(("number", "guarded"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_another_error_of_the_disk_ends_the_node(number, guarded):
    node = Node(*[error(number)] * 3, guarded=guarded)
    with pytest.raises(DiskFailed, match="a checkpoint could not be written"):
        node.writer.write_if_due().send(None)
    with pytest.raises(DiskFailed, match="a checkpoint could not be written"):
        node.writer.write_now()
    with pytest.raises(DiskFailed, match="the last checkpoint could not be written"):
        node.writer.write_last()
    assert node.writer.written == 0


def test_one_that_its_caller_needs_takes_the_reserve_and_the_callers_state():
    node = Node(error(errno.ENOSPC))
    node.writer.write_now("encoded")
    assert node.calls == [({0: 100, 7: 107}, "encoded"), "reserve", "written"]


def test_one_that_its_caller_needs_fails_without_a_reserve():
    node = Node(error(errno.ENOSPC), reserve=False)
    with pytest.raises(DiskFailed):
        node.writer.write_now("encoded")


def test_the_last_one_is_left_out_on_a_full_disk():
    node = Node(error(errno.ENOSPC))
    node.writer.write_last()
    assert node.calls == [CAPTURED, "failed", "refuse"]


class Pauses:
    """Pauses that a full disk costs."""

    def __init__(self):
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def write_installed(node: Node) -> tuple[list, list[float]]:
    pauses = Pauses()
    with pytest.raises(StopIteration):
        node.writer.write_installed(pauses).send(None)
    return node.calls, pauses.seconds


def test_a_checkpoint_with_installed_snapshots_is_written_at_once_by_a_thread():
    node = Node()
    node.checkpoint_due = False
    assert write_installed(node) == ([CAPTURED, "blocking", "written", "completed"], [])
    assert node.writer.metadata_applied == 35


def test_on_a_full_disk_it_uses_the_reserve_and_then_waits_for_space():
    node = Node(error(errno.ENOSPC), error(errno.ENOSPC))
    released = iter((True, False))
    node.release_reserve = lambda: next(released)
    calls, pauses = write_installed(node)
    attempt = [CAPTURED, "blocking", "failed", "refuse"]
    assert calls == [*attempt, *attempt, CAPTURED, "blocking", "written", "completed"]
    assert pauses == [DISK_FULL_RETRY_MS / 1000]


def test_another_error_of_the_disk_ends_an_installation():
    node = Node(error(errno.EIO))
    with pytest.raises(DiskFailed):
        node.writer.write_installed(Pauses()).send(None)


def test_memory_is_released_behind_a_checkpoint_in_turns_of_the_loop():
    node = Node()
    node.summaries = [SimpleNamespace(execute=lambda: node.calls.append("read"))]
    calls = node.write()
    assert calls[calls.index("completed") + 1:] == [
        "blocking", "read", "release", "blocking", "released"]


def test_an_index_file_that_the_disk_does_not_give_stops_the_node():
    def fail():
        raise error(errno.EIO)

    node = Node()
    node.summaries = [SimpleNamespace(execute=fail)]
    with pytest.raises(DiskFailed):
        node.writer.write_if_due().send(None)
