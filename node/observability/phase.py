"""Where a node is in its life, for whoever asks from outside: plain values, written by the thread
that knows them, read by any.

Contract.  ``phase`` goes ``recovering`` -> ``starting`` -> ``serving`` -> ``stopping`` and never
back.  Reading needs no lock: each attribute is one reference that is swapped.
"""

from __future__ import annotations

from multiraft.storage.recovery.report import Progress
from node.clock import monotonic_ms

RECOVERING, STARTING, SERVING, STOPPING = "recovering", "starting", "serving", "stopping"


class Life:
    """One process's."""

    def __init__(self) -> None:
        self.phase = RECOVERING
        self.recovery = Progress()  # recovery writes into it, on the main thread
        self.recovery_ms = 0  # how long it took, 0 = it is not over
        self.started_ms = monotonic_ms()

    @property
    def uptime_ms(self) -> int:
        """Since the process began."""
        return monotonic_ms() - self.started_ms

    def recovered(self) -> None:
        """Recovery is complete: the parts are being built."""
        self.recovery_ms = self.uptime_ms
        self.phase = STARTING

    def describe(self) -> str:
        """The phase as a sentence for people: how far recovery is."""
        if self.phase != RECOVERING:
            return self.phase
        progress = self.recovery
        if progress.groups_total:
            return f"recovering: {progress.groups_done} of {progress.groups_total} groups"
        return f"recovering: {progress.segments_done} of {progress.segments_total} segments"
