"""Segment files are created and indexed, also on a full disk, without trio."""

import errno
import os
from types import SimpleNamespace

import pytest

from multiraft.storage.errors import CorruptRange, IndexTooLarge
from node.errors import DiskFailed
from node.loop.segment_files import SEALS_WAITING_MAX, SegmentFiles


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class Job:
    """Work that raises ``errors`` first."""

    def __init__(self, *errors: OSError):
        self.errors = list(errors)
        self.segment = SimpleNamespace(path="7.segment")
        self.too_large: IndexTooLarge | None = None
        self.attempts: list[tuple] = []

    def execute(self, *arguments) -> None:
        self.attempts.append(arguments)
        if self.errors:
            raise self.errors.pop(0)

    create_files = execute


class Parts:
    """Store, gathering and space guard of ``SegmentFiles``."""

    def __init__(self, missing: Job | None = None, ahead: Job | None = None, *seals: Job):
        self.missing, self.ahead, self.seals = missing, ahead, list(seals)
        self.calls: list[str] = []
        self.found: list[CorruptRange] = []
        self.files = SegmentFiles(self, self, self._run, lambda: self.calls.append("pause"), self,
                                  lambda path, error: self.calls.append(f"{path}: {error}"),
                                  lambda error: self.calls.append(f"damage: {error}"))

    async def _run(self, work) -> None:
        work()

    def begin_creation(self):
        self.calls.append("begin")
        return self.missing

    def end_creation(self):
        self.calls.append("end")

    def create_segment_job(self):
        return self.ahead

    def seal_job(self):
        return self.seals.pop(0) if self.seals else None

    @property
    def seals_waiting(self):
        return len(self.seals)

    def sealed(self, _job):
        self.calls.append("sealed")

    @property
    def repair(self):
        return self

    def take_found(self):
        found, self.found = self.found, []
        return found

    def seal_failed(self, job):
        self.seals.insert(0, job)
        self.calls.append("kept")

    def release_reserve(self):
        self.calls.append("reserve")

    def refuse_records(self):
        self.calls.append("refuse")


def run(coroutine) -> None:
    """Run a coroutine whose work ends at once."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_the_file_of_a_waiting_write_comes_before_one_ahead_of_its_use():
    parts = Parts(missing := Job(), ahead := Job())
    run(parts.files.prepare())
    assert parts.calls == ["begin", "end"]
    assert (missing.attempts, ahead.attempts) == ([()], [])


def test_a_file_that_a_write_needs_takes_the_reserve_of_a_full_disk():
    parts = Parts(missing := Job(full()))
    run(parts.files.prepare())
    assert parts.calls == ["begin", "reserve", "end"]
    assert missing.attempts == [(), (False,)], "the second without its blocks"


def test_a_file_ahead_of_its_use_waits_for_space_and_records_are_refused():
    parts = Parts(None, Job(full()))
    run(parts.files.prepare())
    assert parts.calls == ["begin", "refuse", "end"]


@pytest.mark.parametrize("missing", [True, False])
def test_an_error_of_the_disk_ends_the_node_and_starts_no_write(missing):
    job = Job(OSError(errno.EIO, "Input/output error"))
    parts = Parts(job if missing else None, job)
    with pytest.raises(DiskFailed, match="could not be prepared: .*Input/output"):
        parts.files.prepare().send(None)
    assert parts.calls == ["begin"]


def test_all_full_segments_are_indexed_and_those_of_a_full_disk_by_the_next_call():
    parts = Parts(None, None, Job(), Job(full()), Job())
    run(parts.files.seal())
    assert parts.calls == ["sealed", "refuse", "kept"]
    run(parts.files.seal())
    assert parts.calls[3:] == ["sealed", "sealed"]


def test_an_index_that_cannot_be_written_ends_the_node():
    parts = Parts(None, None, Job(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(DiskFailed, match="indexed: .*Input/output"):
        parts.files.seal().send(None)


def test_indexing_pauses_until_too_many_segments_wait():
    class Pausing(Job):
        def execute(self, pause) -> None:
            super().execute()
            pause()

    parts = Parts(None, None, *(Pausing() for _ in range(SEALS_WAITING_MAX + 2)))
    run(parts.files.seal())
    assert parts.calls.count("pause") == SEALS_WAITING_MAX + 1, "all but the first"


def test_without_a_guard_a_full_disk_is_an_error_like_others():
    parts = Parts(None, Job(full()))
    parts.files = SegmentFiles(parts, parts, parts._run, SimpleNamespace(), None)
    with pytest.raises(DiskFailed):
        parts.files.prepare().send(None)


def test_a_segment_whose_index_would_be_too_large_is_reported_and_the_next_one_indexed():
    parts = Parts(None, None, large := Job(), Job())
    large.too_large = IndexTooLarge("the size", 10, 11)
    run(parts.files.seal())
    assert parts.calls == [
        "sealed", "7.segment: the size is 11, the limit of an index file is 10", "sealed"]


def test_records_that_could_not_be_read_are_reported_once():
    parts = Parts(None, None, Job(), Job())
    parts.found.append(CorruptRange(1, 7, "unreadable"))
    run(parts.files.seal())
    assert parts.calls == ["sealed", "damage: group 1, index 7: unreadable", "sealed"]


def test_a_segment_that_waits_for_space_is_not_reported():
    parts = Parts(None, None, large := Job(full()))
    large.too_large = IndexTooLarge("the size", 10, 11)
    run(parts.files.seal())
    assert parts.calls == ["refuse", "kept"]
