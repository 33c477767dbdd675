"""Disk worker of a simulated node: submitted writes become durable in order, in virtual time.

Contract.  As the real one: ``submit`` queues a staged write.  ``start_next`` writes everything that
has gathered unless the disk is busy; adjacent parts of a file become one gathered write with one
sync (group commit).  Between rounds the worker prepares segments, seals full ones and writes
checkpoints.  A blocking call returns at once and takes effect on the disk when its virtual time has
passed; filesystem.py describes the effects of a crash meanwhile.  While the disk hangs, that time
does not pass.  A failed write ends the node.  A write that finds no disk space waits, or proceeds
with the reserve, as ``multiraft.storage.disk_space`` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.raft.ready import Writes
from multiraft.storage.checkpoint import CheckpointJob
from multiraft.storage.disk_space import DiskSpaceGuard, is_full
from multiraft.storage.filesystem import Buffer, File
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from chaos.simulator.node.env import NodeEnv
    from chaos.simulator.node.fail_points import FailPoints
    from chaos.simulator.node.process import ProcessScheduler
    from chaos.simulator.node.simulated_disk import SimulatedDisk

#: While a write takes longer, the node sends no liveness support.
DISK_STALL_MS_MAX = 1000
#: After this time without a write a probe block is written, so that a hung disk is noticed.
PROBE_MS = 500
#: Pause after a checkpoint that failed for lack of disk space.
NO_SPACE_MS = 5000
#: Pause after any other checkpoint; the real node checks again after a second.
CHECKPOINT_PAUSE_MS = 100
PROBE_FILE = "/data/probe"
PROBE = b"\0" * 512
#: Retry interval of a due sync while the disk is busy.
FLUSH_PAUSE_US = 2_000


class Flight(NamedTuple):
    """One round's write."""

    writes: Writes | None  # None = a record that repair writes to the journal
    staged: StagedWrite


class WorkerOwner(Protocol):
    """The boot, as its disk worker uses it."""

    def report_durable(self, flights: Sequence[Flight]) -> None:
        """Report to the state checker that the writes of ``flights`` are durable now."""

    def wrote(self, flights: Sequence[Flight]) -> None:
        """Handle the completion of writes, in the process."""

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start."""

    def commits(self) -> dict[int, int]:
        """Return group -> commit index, of each group with a replica on this node."""

    def extra(self) -> list:
        """Return the state of the metadata group as a checkpoint holds it."""

    def compact(self, applied: int) -> None:
        """Compact the commands of the metadata group up to ``applied``, which a checkpoint holds,
        but for the newest ones."""


class DiskWorker:
    """Worker of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, disk: SimulatedDisk, store: Store,
                 space_guard: DiskSpaceGuard, fail_points: FailPoints, owner: WorkerOwner):
        self.last_write_ms = env.now_ms
        self._env = env
        self._process = process
        self._disk = disk
        self._filesystem = disk.filesystem
        self._store = store
        self._parameters = env.parameters.disk
        self._rng = env.rng
        self._space_guard = space_guard
        self._fail_points = fail_points
        self._owner = owner
        self._gathering: list[Flight] = []
        self._busy_since_ms = -1
        self._over = False
        self._failed = False  # the last operation failed
        self._unsynced: File | None = None  # file with bytes that wait for a sync
        self._unsynced_since_ms = 0
        self._no_checkpoint_before_ms = 0
        self._hung_completion: tuple | None = (
            None  # completion that waits until the disk is released
        )

    @property
    def takes_writes(self) -> bool:
        """True if the core may hand out writes now; otherwise they gather in the core. False while
        one waits or a call is under way, unless the worker gathers."""
        return self._parameters.gathers or (self._busy_since_ms < 0 and not self._gathering)

    @property
    def is_idle(self) -> bool:
        """True if no blocking call is under way."""
        return self._busy_since_ms < 0

    @property
    def is_synced(self) -> bool:
        """True if the operation that completes leaves no bytes unsynced (relaxed durability)."""
        return self._unsynced is None and not self._failed

    def is_stalled(self, now_ms: int) -> bool:
        """True if a blocking call has taken at least ``DISK_STALL_MS_MAX``."""
        return 0 <= self._busy_since_ms <= now_ms - DISK_STALL_MS_MAX

    def submit(self, flight: Flight) -> None:
        self._gathering.append(flight)

    def start_next(self) -> None:
        """Begin to write everything that has gathered; without writes, begin the next piece of
        maintenance that is due. No-op while a blocking call is under way."""
        if self._busy_since_ms >= 0:
            return
        if self._gathering:
            flights, self._gathering = self._gathering, []
            self._begin(lambda: self._write([flight.staged for flight in flights]), flights,
                        lambda: self._owner.wrote(flights))
        else:
            self._maintain()

    def probe(self) -> None:
        """Begin to write and sync a block when nothing was written for ``PROBE_MS``; no-op while a
        write waits or a call is under way."""
        if (self._busy_since_ms < 0 and not self._gathering
                and self._env.now_ms - self.last_write_ms >= PROBE_MS):
            file = self._filesystem.open(PROBE_FILE)
            self._begin(lambda: file.write([PROBE], 0, True), (), _nothing)

    def _maintain(self) -> None:
        """Begin a checkpoint, or else prepare the next segment, or else seal a full one; no-op when
        none is due."""
        store = self._store
        if store.checkpoint_due and self._env.now_ms >= self._no_checkpoint_before_ms:
            tail = store.partition_states.get(METADATA_GROUP)
            applied = tail.applied_index if tail is not None else 0
            job = store.checkpoint_job(self._owner.commits(), self._owner.extra())
            self._begin(job.execute, (), lambda: self._checkpointed(job, applied),
                        self._checkpoint_failed)
        elif (prepare := store.create_segment_job()) is not None:
            self._begin(prepare.execute, (), _nothing, self._space_guard.refuse_records)
        elif (seal := store.seal_job()) is not None:
            self._begin(
                seal.execute, (), lambda: store.sealed(seal), self._space_guard.refuse_records
            )

    def _checkpointed(self, job: CheckpointJob, applied: int) -> None:
        self._store.checkpointed(job)
        self._no_checkpoint_before_ms = self._env.now_ms + CHECKPOINT_PAUSE_MS
        self._owner.compact(applied)

    def _checkpoint_failed(self) -> None:
        """Handle a checkpoint that failed for lack of disk space: the previous one stays valid.
        Records are refused from now on, and the next attempt waits ``NO_SPACE_MS``."""
        self._store.checkpoint_failed()
        self._space_guard.refuse_records()
        self._no_checkpoint_before_ms = self._env.now_ms + NO_SPACE_MS

    def _begin(self, work: Callable[[], object], flights: Sequence[Flight],
               done: Callable[[], None], no_space: Callable[[], None] | None = None) -> None:
        """Run ``work`` now, as a blocking call that takes effect on the disk and ends later in
        virtual time.

        ``done`` runs at its end in the process, and the writes of ``flights`` are durable then.
        ``no_space`` runs instead when disk space was lacking and the call can wait; after any other
        ``OSError`` the node ends.
        """
        self._busy_since_ms = self._env.now_ms
        self._filesystem.begin(unseen=bool(flights) and self._rng.random() < 0.5)
        self._failed = failed = False
        try:
            work()
        except OSError as error:
            self._failed = failed = True
            done = self._ending(error, no_space)
        latency_us = self._latency_us()
        self._fail_points.disk_began(latency_us)
        self._process.after_disk(latency_us, self._complete, () if failed else flights, done)

    def _ending(self, error: OSError, no_space: Callable[[], None] | None) -> Callable[[], None]:
        """Return the completion of a failed call.

        Only a call that can wait for disk space is retried.  After any other error the state of the
        page cache is unknown, so the node ends.
        """
        if no_space is not None and is_full(error):
            return no_space
        return lambda: self.end(error)

    def end(self, error: OSError) -> None:
        """End this worker and its node, because of a disk error."""
        self._over = True
        self._owner.disk_failed(error)

    def _latency_us(self) -> int:
        parameters = self._parameters
        latency = parameters.write_min_us + int(self._rng.random() * parameters.write_spread_us)
        if self._env.faulty and self._rng.random() < parameters.stall:
            latency += parameters.stall_us
        return latency * self._disk.factor

    def _complete(self, flights: Sequence[Flight], done: Callable[[], None]) -> None:
        """Make the effects of the call durable, also while the process is paused, and schedule
        ``done`` in the process. While the disk hangs, keep the completion for ``release``."""
        if self._disk.hangs:
            self._hung_completion = (flights, done)
            return
        self._filesystem.complete()
        self._owner.report_durable(flights)
        self._process.later(0, self._done, done)

    def release(self) -> None:
        """Let a completion that waited for a hung disk, if any, take effect now."""
        completion, self._hung_completion = self._hung_completion, None
        if completion is not None:
            self._complete(*completion)

    def _done(self, done: Callable[[], None]) -> None:
        """Run the completion in the process, then start the next call unless the worker has
        ended."""
        self._busy_since_ms = -1
        self.last_write_ms = self._env.now_ms
        done()
        if not self._over:
            self.start_next()

    def _write(self, staged: Sequence[StagedWrite]) -> None:
        """Create the files of all rounds and write the rounds in order, each gathered write with a
        sync unless durability is relaxed.  A single one is written as the store itself would write
        it."""
        for one in staged:
            self._create(one)
        if self._store.relaxed:
            self._write_relaxed(staged)
            return
        if len(staged) == 1:
            staged[0].execute()
            return
        file: File | None = None
        joined: list[Buffer] = []
        begin, end = 0, -1
        for part in [part for one in staged for part in one.parts]:
            if part.file is not file or part.position != end:
                if joined:
                    file.write(joined, begin, True)
                file, joined, begin, end = part.file, [], part.position, part.position
            joined.extend(part.buffers)
            end += sum(map(len, part.buffers))
        if joined:
            file.write(joined, begin, True)

    # ---- relaxed durability, as in ``node/loop/disk_worker.py`` ----------------------------

    def _write_relaxed(self, staged: Sequence[StagedWrite]) -> None:
        """Write the rounds; sync only when other entries than records are among them, or a sync is
        due.
        """
        now_ms = self._env.now_ms
        sync = not all(one.records_only for one in staged) or self._sync_is_due()
        parts = [part for one in staged for part in one.parts]
        for one in staged:
            one.synced = sync
        if self._unsynced is not None and self._unsynced is not parts[0].file:
            self._unsynced.sync()  # the previous segment: watermarks behind it count it as durable
            self._unsynced = None
        last = parts[-1].file
        for part in parts:
            part.file.write(part.buffers, part.position, sync or part.file is not last)
        if sync:
            self._unsynced = None
        elif self._unsynced is not last:
            self._unsynced, self._unsynced_since_ms = last, now_ms
            self._process.later(self._parameters.flush_interval_ms * 1000, self._flush, last)

    def _sync_is_due(self) -> bool:
        waited_ms = self._env.now_ms - self._unsynced_since_ms
        return self._unsynced is not None and waited_ms >= self._parameters.flush_interval_ms

    def _flush(self, file: File) -> None:
        """Sync a file at the end of the flush interval; no-op when a later write has synced it.
        While a call is under way or no sync is due, try again a little later."""
        if self._unsynced is not file or self._over:
            return
        if self._busy_since_ms >= 0 or not self._sync_is_due():
            self._process.later(FLUSH_PAUSE_US, self._flush, file)
            return
        position, self._unsynced = self._store.durable_position, None
        self._begin(file.sync, (), lambda: self._store.fsynced(position))

    def _create(self, staged: StagedWrite) -> None:
        """Create the files of a round.

        Without disk space for preallocation, release the reserve and create them unallocated.
        """
        if staged.native_ready:
            return
        try:
            staged.create_files()
        except OSError as error:
            if not is_full(error):
                raise
            self._space_guard.release_reserve()
            staged.create_files(False)


def _nothing() -> None:
    """Do nothing: no caller waits for the completion."""
