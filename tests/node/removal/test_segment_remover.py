"""Segments that nothing needs are unlinked, and checkpoints name them where that is worth it."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.loop.checkpoint_writer import CheckpointWriter
from node.removal.segment_remover import (
    DISK_FULL_RETRY_MS,
    NAMED_PER_CHECKPOINT_BYTE,
    NAMING_DELAY_MS,
    SLICE_PAUSE_S,
    SPARE_BYTES,
    SegmentRemover,
)
from tests.storage.test_raft_start import GROUP, OTHER, PARTITION, append, log_start
from tests.storage.test_segment_removal import compacted, names, reopened, starts
from tests.storage.world import VOTERS


class Job:
    def __init__(self, segments: int, size: int, *errors: int, slices: int = 0):
        self.segments, self.bytes, self.errors = range(segments), size, list(errors)
        self.slices = slices

    @property
    def has_blocks(self) -> bool:
        return self.slices > 0

    def execute(self) -> None:
        if self.errors and self.errors[0]:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))

    def free(self) -> None:
        self.slices -= 1
        if self.errors:
            raise OSError(self.errors[1], os.strerror(self.errors[1]))


class Parts:
    """Store, space guard and turns of a remover; it has ``jobs``, and examines ``parts``."""

    def __init__(self, *jobs: Job, parts: int = 0, guarded: bool = True):
        self.jobs, self.parts = list(jobs), parts
        self.now_ms, self.unnamed_bytes, self.checkpoint_bytes = 5_000, 0, 1_000
        self.full, self.free = False, SPARE_BYTES
        self.calls: list = []
        self.remover = SegmentRemover(self, self._run, self._turn, lambda: self.now_ms,
                                      self._pause, self if guarded else None,
                                      lambda *figures: self.calls.append(figures))

    async def _run(self, work) -> None:
        work()

    async def _turn(self, _rows: int) -> None:
        self.calls.append("turn")

    async def _pause(self, seconds: float) -> None:
        self.calls.append(seconds)

    @property
    def is_examining(self) -> bool:
        return self.parts > 0

    def removal_job(self):
        if self.parts:
            self.parts -= 1
        return self.jobs[0] if self.jobs and not self.parts else None

    def removed(self, job) -> None:
        self.jobs.remove(job)

    def removal_failed(self) -> None:
        self.calls.append("failed")

    def examine_again(self) -> None:
        self.calls.append("again")

    def require_checkpoints(self) -> None:
        self.calls.append("checkpoint")

    def step(self, after_ms: int = 0) -> list:
        self.now_ms += after_ms
        run(self.remover.remove_due())
        calls, self.calls = self.calls, []
        return calls


def run(coroutine) -> None:
    """Run a coroutine whose work ends at once."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def test_all_files_go_that_may_and_are_reported_together():
    parts = Parts(Job(16, 700), Job(3, 100), parts=3)
    assert parts.step() == ["turn", "turn", (19, 800)]
    assert (parts.remover.segments_removed, parts.remover.bytes_removed) == (19, 800)
    assert parts.step() == []


def test_blocks_are_freed_with_pauses_and_of_one_job_per_call():
    parts = Parts(Job(16, 700, slices=3), Job(16, 900, slices=1))
    assert parts.step() == [SLICE_PAUSE_S] * 3 + [(16, 700)]
    assert parts.step() == [SLICE_PAUSE_S, (16, 900)]
    assert parts.step() == []


@pytest.mark.parametrize("full, free", [(True, SPARE_BYTES), (False, SPARE_BYTES - 1)])
def test_a_disk_with_little_space_gets_its_blocks_at_once(full, free):
    parts = Parts(Job(16, 700, slices=3), Job(16, 900, slices=1))
    parts.full, parts.free = full, free
    assert parts.step() == ["again"] * full + [(32, 1_600)]


def test_an_error_while_blocks_are_freed_ends_the_node():
    parts = Parts(Job(1, 10, 0, errno.EIO, slices=2), guarded=True)
    with pytest.raises(DiskFailed, match="a removed segment could not be unlinked: .*Errno 5"):
        parts.remover.remove_due().send(None)
    assert parts.calls == [SLICE_PAUSE_S, "failed"] and not parts.remover.segments_removed


def test_a_checkpoint_is_required_at_once_for_many_bytes_and_later_for_few():
    parts = Parts()
    assert parts.step(10 * NAMING_DELAY_MS) == []
    parts.unnamed_bytes = 2 * NAMED_PER_CHECKPOINT_BYTE * parts.checkpoint_bytes
    assert parts.step() == ["checkpoint"]
    parts.unnamed_bytes = 0
    assert parts.step(NAMING_DELAY_MS) == []
    parts.unnamed_bytes = 2 * NAMED_PER_CHECKPOINT_BYTE * parts.checkpoint_bytes - 1
    assert parts.step() == parts.step(NAMING_DELAY_MS - 1) == []
    assert parts.step(1) == ["checkpoint"]
    assert parts.step(1) == [], "it is not written yet"
    assert parts.step(NAMING_DELAY_MS) == ["checkpoint"]
    parts.unnamed_bytes = 0
    assert parts.step(NAMING_DELAY_MS) == []
    parts.unnamed_bytes = 1
    assert parts.step() == [], "these segments did not wait yet"


def test_on_a_full_disk_anything_is_worth_a_checkpoint():
    parts = Parts()
    parts.full = True
    assert parts.step() == ["again"]
    parts.unnamed_bytes = 1
    assert parts.step() == ["again", "checkpoint"]


def test_an_error_of_the_disk_ends_the_node_and_a_lack_of_space_does_not():
    for number, guarded in ((errno.EIO, True), (errno.ENOSPC, False)):
        parts = Parts(Job(1, 10, number), guarded=guarded)
        with pytest.raises(DiskFailed, match="a removed segment could not be unlinked: .*Errno"):
            parts.remover.remove_due().send(None)
        assert parts.calls == ["failed"]
    parts = Parts(Job(1, 10, errno.ENOSPC))
    assert parts.step() == ["failed"]
    assert parts.step(DISK_FULL_RETRY_MS - 1) == []
    assert parts.step(1) == [(1, 10)]


class IdleNode:
    """A store without further appends, with the writer of checkpoints and the remover."""

    def __init__(self, store):
        self.store = store
        self.now_ms = 0
        self.full, self.free = False, SPARE_BYTES
        self.refusals = 0
        status = SimpleNamespace(
            groups=lambda: [GROUP, OTHER],
            commit_index=lambda group: store.partition_states[group].applied_index)
        state = SimpleNamespace(snapshot=lambda: None)
        self.writer = CheckpointWriter(store, SimpleNamespace(status=status),
                                       SimpleNamespace(state=state), self._run,
                                       lambda: self.now_ms, self)
        self.remover = SegmentRemover(store, self._run, self._turn, lambda: self.now_ms,
                                      self._pause, self)

    async def _run(self, work) -> None:
        work()

    async def _turn(self, _rows: int) -> None:
        pass

    async def _pause(self, _seconds: float) -> None:
        raise AssertionError("small files have no slices")

    def refuse_records(self) -> None:
        self.full = True
        self.refusals += 1

    def release_reserve(self) -> bool:
        return False

    def pass_time(self, seconds: int) -> int:
        """So many seconds, in each of which both are asked; return the checkpoints written."""
        before = self.writer.written
        for _ in range(seconds):
            self.now_ms += 1_000
            run(self.writer.write_if_due())
            run(self.remover.remove_due())
        return self.writer.written - before


@pytest.mark.parametrize("restarted", [False, True])
def test_an_idle_node_gets_its_space_back_and_then_writes_no_checkpoint(restarted):
    filesystem = SimulatedFilesystem()
    store = compacted(filesystem)
    if restarted:
        store = reopened(store, filesystem)
    assert METADATA_GROUP not in store.groups
    before = len(names(filesystem))
    node = IdleNode(store)
    assert node.pass_time(60) == 1 + restarted
    assert len(names(filesystem)) == before - 2
    assert node.pass_time(600) == 0
    append(store, log_start(11, PARTITION, 2))
    store.trim(GROUP, [PARTITION])
    assert node.pass_time(600) == 0 and len(names(filesystem)) == before - 2, "it is too little"
    node.full = True
    assert node.pass_time(3) == 1, "on a full disk it is not"
    assert len(names(filesystem)) == before - 3 and names(filesystem) == starts(store)
    assert node.pass_time(600) == 0
    store = reopened(store, filesystem)
    assert not store.damage
    for group in (GROUP, OTHER):
        store.create_group(group, 1, VOTERS)
    assert IdleNode(store).pass_time(600) == 0
