"""One node of a backend: files, disk, process and the faults that are active on it.

Contract.  ``NodeInstance`` is state that the backend changes under ``lock``; the backend's
``ProcessRunner`` starts, signals and watches the process.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chaos.backends.backend import FAILED_DISK, HUNG_DISK
from chaos.backends.disk import LoopDisk
from chaos.backends.layout import NodeEndpoint
from chaos.backends.packets import NodePackets


class ProcessRunner(Protocol):
    """Interface to the processes of nodes: of this machine, or in containers."""

    def spawn(self, node: int) -> None:
        """Start the node's process; return when there is one."""

    def signal(self, node: int, number: signal.Signals) -> None:
        """Send a signal to the process; does nothing when it does not live."""

    def pause(self, node: int) -> None:
        """Pause the process."""

    def resume(self, node: int) -> None:
        """Resume the process; does nothing when it is not paused."""

    def alive(self, node: int) -> bool:
        """True if the process lives; paused, hung and dying ones do."""

    def exit_status(self, node: int) -> int:
        """Return the status of the process that ended last, negative for a signal."""

    def pid(self, node: int) -> int:
        """Return the pid of the process on this machine."""


@dataclass
class NodeInstance:
    """State of one node."""

    endpoint: NodeEndpoint
    log: Path
    #: None where nodes have no disks and networks of their own.
    disk: LoopDisk | None = None
    packets: NodePackets | None = None
    #: Held while the state of the node changes.
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: Started and not ended by the backend: if the process ends now, the node ended by itself.
    should_run: bool = False
    paused: bool = False
    #: Bytes and operations per second; (0, 0) = unbounded.
    throttle: tuple[int, int] = (0, 0)
    wall_ms: int = 0
    jumped_ms: int = 0
    drift_ppm: int = 0
    log_start: int = 0
    removed: bool = False
    #: Its removal was requested: it may have been decided, whatever the answer was.
    leaving: bool = False
    #: Kinds of fault that have begun on its disk since its process started.
    disk_faults: set[str] = field(default_factory=set)

    def disk_faults_so_far(self) -> frozenset[str]:
        """Return the disk faults that this process has met: they began since its start, or are
        active."""
        on = set()
        if self.disk is not None:
            on = {kind for kind, is_on in ((FAILED_DISK, self.disk.failed),
                                           (HUNG_DISK, self.disk.frozen)) if is_on}
        return frozenset(self.disk_faults | on)
