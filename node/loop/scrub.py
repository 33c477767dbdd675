"""The scrub task: reads and verifies the whole journal within ``scrub_interval_days``, while the
disk is idle.

Contract. One piece is read and verified at a time, by a thread; damage is reported to the repair of
replicas. The pace follows from the size of the journal and the interval. While a write of records
is in flight the scrub waits, at most ``PATIENCE_S`` per piece, so that a disk that is never idle is
scrubbed too. The position is kept in a file, so that a node that restarts every day is scrubbed
too. ``begin`` serves an operator: the pass starts anew at the begin of the journal and keeps the
requested pace until its end.

Invariants. Scheduled and requested scrubs share one pass. ``passes`` grows exactly when everything
between begin and end of the journal was read since the pass began: a caller that reads ``passes``
before ``begin`` recognizes by it the end of its pass.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from multiraft.storage.repair.scrub import Scrubber, ScrubCheckpointsJob, ScrubJob
from multiraft.storage.settings import StorageSettings
from node.clock import wall_ms
from node.errors import EXHAUSTED_PAUSE_S, is_exhausted, journal_unreadable

if TYPE_CHECKING:
    from multiraft.storage.errors import StorageError
    from multiraft.storage.store import Store
    from node.loop.write_gather import WriteGather

STATE_FILE = "scrub.json"
#: Least pause between two passes, in seconds, for a journal that hardly grows.
REST_S = 60.0
#: How long a piece waits for a busy disk, and how often it checks, in seconds. A disk that is never
#: idle is read at 2.5 MiB/s, a terabyte in five days.
PATIENCE_S = 0.1
POLL_S = 0.01
#: The position is written after this many bytes: a restart reads at most so much twice.
KEEP_BYTES = 64 << 20
DAY_S = 86_400
#: State of a journal that was never scrubbed.
BEGIN = {"position": 0, "completed_ms": 0}
#: Journal offsets and times are i64 in all formats.
VALUE_MAX = (1 << 63) - 1


def parse_state(data: bytes) -> dict[str, int]:
    """Decode the content of ``STATE_FILE``. Invalid content gives the state of a journal that was
    never scrubbed, so the pass starts anew."""
    try:
        kept = json.loads(data)
        state = {name: int(kept[name]) for name in BEGIN}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return dict(BEGIN)
    return state if all(0 <= value <= VALUE_MAX for value in state.values()) else dict(BEGIN)


class Scrub:
    """Task that verifies the whole journal of one node within an interval, while the disk is
    idle."""

    def __init__(self, store: Store, disk: WriteGather, damaged: Callable[[StorageError], None],
                 directory: Path, settings: StorageSettings):
        self._disk = disk
        self._damaged = damaged
        self._path = directory / STATE_FILE
        self._settings = settings
        state = self._load()
        self._scrubber = Scrubber(store, state["position"])
        self.completed_ms = state["completed_ms"]  # when the last pass ended; 0 = none has
        self.found = 0  # entries and checkpoints found damaged since the start
        self.passes = 0  # passes completed since the start
        self.active = False  # a pass is under way
        self.requested_pace = 0  # bytes per second that an operator requested; 0 = none
        self._anew = False  # the pass restarts at the begin of the journal
        self._wake = trio.Event()
        self._kept_bytes = 0

    @property
    def bytes(self) -> int:
        """Bytes read since the start of the node."""
        return self._scrubber.bytes

    @property
    def position(self) -> int:
        """Journal offset up to which this pass has read."""
        return self._scrubber.position

    @property
    def pass_bytes(self) -> int:
        """Distance of the current pass from the journal's present start, in bytes; 0 when the pass
        restarts. It includes what an earlier process read in this pass."""
        return 0 if self._anew else self._scrubber.scrubbed

    @property
    def total_bytes(self) -> int:
        """Journal bytes that a whole pass reads."""
        return self._scrubber.total

    @property
    def pace(self) -> int:
        """Bytes per second of the current pass; 0 between passes."""
        return int(self._pace) if self.active else 0

    def begin(self, bytes_per_second: int) -> int:
        """Start a pass at the begin of the journal now, or restart the current one, at
        ``bytes_per_second``; 0 = at the configured maximum, which does not limit another request.
        Return the pace; 0 = none was requested, no maximum is configured and no pass was
        started."""
        pace = bytes_per_second or self._settings.scrub_bytes_per_second
        if pace:
            self.requested_pace, self._anew = pace, True
            self._wake.set()
        return pace

    def _load(self) -> dict[str, int]:
        """Return the kept state. A file that cannot be read counts as a journal that was never
        scrubbed."""
        try:
            return parse_state(self._path.read_bytes())
        except OSError:
            return dict(BEGIN)

    def _keep(self) -> None:
        """Write the state without a sync: after a crash the lost part of the pass is read again. Do
        nothing if it cannot be written."""
        try:
            self._path.write_text(json.dumps({"position": self.position,
                                              "completed_ms": self.completed_ms}))
        except OSError:
            return  # the disk is full; a failing disk is detected by the next journal write

    async def run(self) -> None:
        """Run passes until cancelled, one per ``scrub_interval_days``; 0 = only those that
        ``begin`` requests. Raises ``DiskFailed`` if the disk cannot be read."""
        while True:
            if not self._settings.scrub_interval_days:
                await self._wake.wait()
            began = trio.current_time()
            await self._pass()
            interval_s = self._settings.scrub_interval_days * DAY_S
            await self._sleep_until(max(trio.current_time() + REST_S, began + interval_s))

    async def _pass(self) -> None:
        self.active = True
        due = trio.current_time()
        while (job := self._next_job()) is not None:
            due = min(due, trio.current_time())  # a restarted pass ignores the old schedule
            await self._wait_for_disk()
            await self._execute(job)
            for damage in self._scrubber.done(job):
                self.found += 1
                self._damaged(damage)
            if self.bytes - self._kept_bytes >= KEEP_BYTES:
                self._kept_bytes = self.bytes
                self._keep()
            due = max(due + job.bytes / self._pace, trio.current_time())
            await self._sleep_until(due)
        self.active, self.requested_pace = False, 0
        self.passes += 1
        self.completed_ms = wall_ms()
        self._keep()

    async def _execute(self, job: ScrubJob | ScrubCheckpointsJob) -> None:
        """Read and verify a piece on a thread, again after a pause while no file can be opened."""
        while True:
            try:
                await trio.to_thread.run_sync(job.execute)
                return
            except OSError as error:
                if not is_exhausted(error):
                    raise journal_unreadable(error) from error
            await trio.sleep(EXHAUSTED_PAUSE_S)

    def _next_job(self) -> ScrubJob | ScrubCheckpointsJob | None:
        self._wake = trio.Event()
        if self._anew:
            self._anew = False
            self._scrubber.restart()
        return self._scrubber.next_job()

    async def _sleep_until(self, due: float) -> None:
        """Sleep until ``due``, in seconds of trio's clock, or until ``begin`` requests a pass; not
        at all if it did since the last ``_next_job``."""
        with trio.move_on_at(due):
            await self._wake.wait()

    async def _wait_for_disk(self) -> None:
        """Wait until no write is in flight, at most ``PATIENCE_S``."""
        with trio.move_on_after(PATIENCE_S):
            while not self._disk.idle:
                await trio.sleep(POLL_S)

    @property
    def _pace(self) -> float:
        """Bytes per second: twice the pace that the interval needs, because passes are
        interrupted."""
        if self.requested_pace:
            return self.requested_pace
        needed = 2 * self._scrubber.total / (self._settings.scrub_interval_days * DAY_S)
        most = self._settings.scrub_bytes_per_second
        return min(most, max(needed, most / 16))
