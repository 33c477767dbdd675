"""What the machine itself did meanwhile: how long its disk and its processors stood still.

Contract.  ``Machine.watch`` syncs a block beside the nodes' disks again and again and looks how
late it wakes itself; ``notes`` says when either took longer than a lease.  It is a note and never
an excuse: whoever looks at an anomaly has to know of it, and runs the seed again.

Theory.  All nodes of a run share one disk and the processors with whatever else this machine does.
A file system that writes back what somebody copied half a minute ago holds every sync of every node
for seconds, and that looks like a fault that nobody caused.  No nemesis of ours touches this file.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import BinaryIO

import trio

#: Between two looks, in seconds.
PAUSE_S = 0.25
#: What took longer than a lease (``multiraft.raft.config``) may have cost nodes their leadership.
LONG_S = 0.6
#: Stalls that are told one by one, the longest first.
TOLD_MAX = 5
BLOCK = b"." * 4096


class Machine:
    """See the module docstring."""

    def __init__(self, now_us):
        self._now_us = now_us
        self.stalls: list[tuple[float, float, str]] = []  # seconds it took, when it began, what

    async def watch(self) -> None:
        """Until cancelled."""
        with tempfile.TemporaryFile() as file:
            while True:
                began_s = self._now_us() / 1e6
                self.note(began_s, await trio.to_thread.run_sync(sync, file), "a sync of the disk")
                began_s = self._now_us() / 1e6
                await trio.sleep(PAUSE_S)
                self.note(began_s, self._now_us() / 1e6 - began_s - PAUSE_S, "waking up")

    def note(self, began_s: float, took_s: float, what: str) -> None:
        """Keep it if it is worth telling."""
        if took_s > LONG_S:
            self.stalls.append((took_s, began_s, what))

    def notes(self) -> list[str]:
        """For people."""
        told = sorted(self.stalls, reverse=True)[:TOLD_MAX]
        if not told:
            return []
        found = [f"{what} took {took_s:.1f} s at {began_s:.0f} s" for took_s, began_s, what in told]
        return [f"the machine itself stood still {len(self.stalls)} times for longer than a lease, "
                f"which no fault of this run does: {'; '.join(found)}"]


def sync(file: BinaryIO) -> float:
    """How long the disk takes for one block."""
    began_s = time.monotonic()
    os.pwrite(file.fileno(), BLOCK, 0)
    os.fdatasync(file.fileno())
    return time.monotonic() - began_s
