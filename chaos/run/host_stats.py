"""Stalls of the machine itself during a run: of its disk and of its processors.

Contract.  ``HostStats.watch`` syncs a block beside the nodes' disks again and again and measures
how late it wakes; ``notes`` lists stalls longer than a lease.  A stall is a note and never an
excuse: it helps to judge an anomaly, and to decide whether to run the seed again.

Theory.  All nodes of a run share one disk and the processors with every other program of this
machine.  A file system that writes back a copy that another program made half a minute ago delays
every sync of every node for seconds, and that looks like a fault that no nemesis caused.  No
nemesis touches the file of this probe.
"""

from __future__ import annotations

import os
import tempfile
import time
from typing import BinaryIO

import trio

#: Pause between two probes, in seconds.
PAUSE_S = 0.25
#: A stall longer than a lease (``multiraft.raft.config``) may have cost nodes their leadership.
LONG_S = 0.6
#: Stalls that are listed one by one, the longest first.
LISTED_MAX = 5
BLOCK = b"." * 4096


class HostStats:
    """Probe of the machine, with the stalls that it measured."""

    def __init__(self, now_us):
        self._now_us = now_us
        self.stalls: list[tuple[float, float, str]] = []  # seconds it took, when it began, what

    async def watch(self) -> None:
        """Measure a sync of the disk (in a thread) and a wake-up again and again until cancelled;
        keep the stalls."""
        with tempfile.TemporaryFile() as file:
            while True:
                began_s = self._now_us() / 1e6
                self.note(began_s, await trio.to_thread.run_sync(sync, file), "a sync of the disk")
                began_s = self._now_us() / 1e6
                await trio.sleep(PAUSE_S)
                self.note(began_s, self._now_us() / 1e6 - began_s - PAUSE_S, "waking up")

    def note(self, began_s: float, took_s: float, what: str) -> None:
        """Keep a stall of ``took_s`` that began at ``began_s`` of the run, if it is longer than
        ``LONG_S``; ``what`` names the stalled work."""
        if took_s > LONG_S:
            self.stalls.append((took_s, began_s, what))

    def notes(self) -> list[str]:
        """Return one sentence with the number of stalls and the longest of them; empty without
        any."""
        listed = sorted(self.stalls, reverse=True)[:LISTED_MAX]
        if not listed:
            return []
        found = [
            f"{what} took {took_s:.1f} s at {began_s:.0f} s" for took_s, began_s, what in listed
        ]
        return [f"the machine itself stalled {len(self.stalls)} times for longer than a lease, "
                f"which no fault of this run does: {'; '.join(found)}"]


def sync(file: BinaryIO) -> float:
    """Write and sync one block; return the seconds that this took. Blocks."""
    began_s = time.monotonic()
    os.pwrite(file.fileno(), BLOCK, 0)
    os.fdatasync(file.fileno())
    return time.monotonic() - began_s
