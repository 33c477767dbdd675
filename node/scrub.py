"""The scrub task: reads the whole lane again within ``scrub_interval_days``, when the disk is free.

Contract.  One piece after the other, each read and checked by a thread; damage goes to ``Repairs``.
The pace follows from what there is to read and how long it may take; while a write of records is
under way the scrub waits, at most ``PATIENCE_S`` per piece.  Where it was is kept in a file, so
that a node that restarts every day is scrubbed too.
"""

from __future__ import annotations

import json
from pathlib import Path

import trio

from multiraft.storage.scrub import Scrubber
from multiraft.storage.settings import StorageSettings
from node.clock import wall_ms
from node.errors import DiskFailed

STATE_FILE = "scrub.json"
#: A lane that does not grow is looked at again after this, in seconds.
REST_S = 60.0
#: How long a piece waits for a busy disk, in seconds, and how often it looks.
PATIENCE_S = 1.0
LOOK_S = 0.01
#: Where it was is kept after this many bytes: a restart reads at most so much twice.
KEEP_BYTES = 64 << 20
DAY_S = 86_400


class Scrub:
    """Task on the loop."""

    def __init__(self, store, disk, damaged, directory: Path, settings: StorageSettings):
        self._disk = disk
        self._damaged = damaged
        self._path = directory / STATE_FILE
        self._settings = settings
        state = self._load()
        self._scrubber = Scrubber(store, state["position"])
        self.completed_ms = state["completed_ms"]  # when the last pass ended; 0 = none has
        self.found = 0  # entries found damaged since the start
        self._kept_bytes = 0

    @property
    def bytes(self) -> int:
        """Read since the start."""
        return self._scrubber.bytes

    @property
    def position(self) -> int:
        """Lane position up to which this pass has come."""
        return self._scrubber.position

    def _load(self) -> dict[str, int]:
        """A file that cannot be read means: begin anew."""
        try:
            state = json.loads(self._path.read_text())
            return {name: int(state[name]) for name in ("position", "completed_ms")}
        except (OSError, ValueError, KeyError, TypeError):
            return {"position": 0, "completed_ms": 0}

    def _keep(self) -> None:
        """Not synced: what is lost is read again."""
        try:
            self._path.write_text(json.dumps({"position": self.position,
                                              "completed_ms": self.completed_ms}))
        except OSError:
            return  # a full disk; a failing one is found out by the next write of the lane

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began = trio.current_time()
            await self._pass()
            interval_s = self._settings.scrub_interval_days * DAY_S
            await trio.sleep(max(REST_S, began + interval_s - trio.current_time()))

    async def _pass(self) -> None:
        while (plan := self._scrubber.next_plan()) is not None:
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
            await trio.sleep(plan.bytes / self._pace)
        self.completed_ms = wall_ms()
        self._keep()

    async def _wait_for_disk(self) -> None:
        """Let the records go first."""
        with trio.move_on_after(PATIENCE_S):
            while not self._disk.idle:
                await trio.sleep(LOOK_S)

    @property
    def _pace(self) -> float:
        """Bytes per second: twice what the interval asks for, because passes are interrupted."""
        needed = 2 * self._scrubber.total / (self._settings.scrub_interval_days * DAY_S)
        most = self._settings.scrub_bytes_per_second
        return min(most, max(needed, most / 16))
