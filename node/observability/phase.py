"""The phase of a node's process, for probes: written by one thread and read by any.

Contract.  ``phase`` changes ``recovering`` -> ``starting`` -> ``serving`` -> ``stopping`` and never
back.  Reading needs no lock: each attribute is one reference that is replaced.
"""

from __future__ import annotations

from multiraft.storage.recovery.report import RecoveryProgress
from node.clock import monotonic_ms

RECOVERING, STARTING, SERVING, STOPPING = "recovering", "starting", "serving", "stopping"


class Life:
    """The phase of one process, its times, and its HTTP port."""

    def __init__(self) -> None:
        self.phase = RECOVERING
        self.recovery = RecoveryProgress()  # recovery writes into it, on the main thread
        self.recovery_ms = 0  # duration in milliseconds, 0 = not over
        self.started_ms = monotonic_ms()
        self.http_port = 0  # of metrics and health, 0 = off

    @property
    def uptime_ms(self) -> int:
        """Milliseconds since the process began."""
        return monotonic_ms() - self.started_ms

    def recovered(self) -> None:
        """Enter the phase ``starting``: recovery is complete."""
        self.recovery_ms = self.uptime_ms
        self.phase = STARTING

    def describe(self) -> str:
        """Return the phase as a sentence, with the progress of recovery."""
        if self.phase != RECOVERING:
            return self.phase
        progress = self.recovery
        if progress.groups_total:
            return f"recovering: {progress.groups_done} of {progress.groups_total} groups"
        return f"recovering: {progress.segments_done} of {progress.segments_total} segments"
