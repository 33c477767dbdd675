"""The scrub task: reads the whole journal again within ``scrub_interval_days``, when the disk is
free.

Contract.  One piece after the other, each read and checked by a thread; damage goes to ``Repairs``.
The pace follows from what there is to read and how long it may take; while a write of records is
under way the scrub waits, at most ``PATIENCE_S`` per piece: a disk that is never idle is scrubbed
too.  Where it was is kept in a file, so that a node that restarts every day is scrubbed too.
``begin`` is an operator who wants to know now: the pass begins anew at the journal's start and has
the pace that was asked for until its end.

Invariants.  One piece is read at a time, whoever asked for it.  ``passes`` grows when everything
between the journal's start and its end was read since the pass began, and only then: whoever notes
it before ``begin`` knows by it when the pass is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from multiraft.storage.repair.scrub import CheckpointsPlan, Scrubber, ScrubPlan
from multiraft.storage.settings import StorageSettings
from node.clock import wall_ms
from node.errors import DiskFailed

if TYPE_CHECKING:
    from multiraft.storage.errors import StorageError
    from multiraft.storage.store import Store
    from node.loop.disk_worker import DiskWorker

STATE_FILE = "scrub.json"
#: A journal that does not grow is looked at again after this, in seconds.
REST_S = 60.0
#: How long a piece waits for a busy disk, in seconds: 2.5 MiB/s are read of one that is never idle,
#: a terabyte in five days.  How often it looks.
PATIENCE_S = 0.1
LOOK_S = 0.01
#: Where it was is kept after this many bytes: a restart reads at most so much twice.
KEEP_BYTES = 64 << 20
DAY_S = 86_400
#: The state of a journal that was never scrubbed.
BEGIN = {"position": 0, "completed_ms": 0}
#: A journal position and a time are i64 wherever they are told.
VALUE_MAX = (1 << 63) - 1


def parse_state(data: bytes) -> dict[str, int]:
    """What ``STATE_FILE`` says; whatever is no such state means: begin anew."""
    try:
        kept = json.loads(data)
        state = {name: int(kept[name]) for name in BEGIN}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return dict(BEGIN)
    return state if all(0 <= value <= VALUE_MAX for value in state.values()) else dict(BEGIN)


class Scrub:
    """Task on the loop."""

    def __init__(self, store: Store, disk: DiskWorker, damaged: Callable[[StorageError], None],
                 directory: Path, settings: StorageSettings):
        self._disk = disk
        self._damaged = damaged
        self._path = directory / STATE_FILE
        self._settings = settings
        state = self._load()
        self._scrubber = Scrubber(store, state["position"])
        self.completed_ms = state["completed_ms"]  # when the last pass ended; 0 = none has
        self.found = 0  # entries and checkpoints found damaged since the start
        self.passes = 0  # that came to the end since the start
        self.active = False  # a pass is under way
        self.requested_pace = 0  # bytes per second that an operator asked for; 0 = nobody waits
        self._anew = False  # the pass begins again at the journal's start
        self._wake = trio.Event()
        self._kept_bytes = 0

    @property
    def bytes(self) -> int:
        """Read since the start."""
        return self._scrubber.bytes

    @property
    def position(self) -> int:
        """Journal position up to which this pass has come."""
        return self._scrubber.position

    @property
    def pass_bytes(self) -> int:
        """Journal bytes that the pass under way has behind it; 0 between passes."""
        return 0 if self._anew else self._scrubber.scrubbed

    @property
    def total_bytes(self) -> int:
        """Journal bytes that a pass reads."""
        return self._scrubber.total

    @property
    def pace(self) -> int:
        """Bytes per second of the pass under way, 0 between passes."""
        return int(self._pace) if self.active else 0

    def begin(self, bytes_per_second: int) -> int:
        """Read everything now, from the journal's start, at this pace (0 = the most that is
        configured); the pace.  A pass that is under way is begun anew.  0 = none is configured,
        and nothing was begun."""
        pace = bytes_per_second or self._settings.scrub_bytes_per_second
        if pace:
            self.requested_pace, self._anew = pace, True
            self._wake.set()
        return pace

    def _load(self) -> dict[str, int]:
        """A file that cannot be read means: begin anew."""
        try:
            return parse_state(self._path.read_bytes())
        except OSError:
            return dict(BEGIN)

    def _keep(self) -> None:
        """Not synced: what is lost is read again."""
        try:
            self._path.write_text(json.dumps({"position": self.position,
                                              "completed_ms": self.completed_ms}))
        except OSError:
            return  # a full disk; a failing one is found out by the next write of the journal

    async def run(self) -> None:
        """Until cancelled."""
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
        while (plan := self._next_plan()) is not None:
            due = min(due, trio.current_time())  # a pass that begins anew owes nothing
            await self._wait_for_disk()
            try:
                await trio.to_thread.run_sync(plan.execute)
            except OSError as error:
                raise DiskFailed(f"the lane cannot be read: {error}") from error
            for damage in self._scrubber.done(plan):
                self.found += 1
                self._damaged(damage)
            if self.bytes - self._kept_bytes >= KEEP_BYTES:
                self._kept_bytes = self.bytes
                self._keep()
            due = max(due + plan.bytes / self._pace, trio.current_time())
            await self._sleep_until(due)
        self.active, self.requested_pace = False, 0
        self.passes += 1
        self.completed_ms = wall_ms()
        self._keep()

    def _next_plan(self) -> ScrubPlan | CheckpointsPlan | None:
        self._wake = trio.Event()
        if self._anew:
            self._anew = False
            self._scrubber.restart()
        return self._scrubber.next_plan()

    async def _sleep_until(self, due: float) -> None:
        """Or until somebody begins a pass."""
        with trio.move_on_at(due):
            await self._wake.wait()

    async def _wait_for_disk(self) -> None:
        """Let the records go first."""
        with trio.move_on_after(PATIENCE_S):
            while not self._disk.idle:
                await trio.sleep(LOOK_S)

    @property
    def _pace(self) -> float:
        """Bytes per second: twice what the interval asks for, because passes are interrupted."""
        if self.requested_pace:
            return self.requested_pace
        needed = 2 * self._scrubber.total / (self._settings.scrub_interval_days * DAY_S)
        most = self._settings.scrub_bytes_per_second
        return min(most, max(needed, most / 16))
