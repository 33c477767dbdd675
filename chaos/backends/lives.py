"""One node of a backend: its files, its disk, its process, and what is done to it just now.

Contract.  ``Life`` is state that the backend changes under ``lock``; how a process is started,
signalled and watched is the backend's ``Runner``.
"""

from __future__ import annotations

import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from chaos.backends.backend import FAILED_DISK, HUNG_DISK
from chaos.backends.disk import LoopDisk
from chaos.backends.layout import Place
from chaos.backends.packets import NodePackets


class Runner(Protocol):
    """How nodes are processes here: of this machine, or of containers."""

    def spawn(self, node: int) -> None:
        """Starts the node's process; returns when there is one."""

    def signal(self, node: int, number: signal.Signals) -> None:
        """Signals it; nothing when it does not live."""

    def pause(self, node: int) -> None:
        """Nothing of it runs."""

    def resume(self, node: int) -> None:
        """It goes on; nothing when it is not paused."""

    def alive(self, node: int) -> bool:
        """Whether it lives: paused, hung and dying ones do."""

    def exit_status(self, node: int) -> int:
        """Of the process that ended last, negative for a signal."""

    def pid(self, node: int) -> int:
        """As this machine numbers it."""


@dataclass
class Life:
    """What is known of one node."""

    place: Place
    log: Path
    #: None where nodes have no disks and networks of their own.
    disk: LoopDisk | None = None
    packets: NodePackets | None = None
    #: One thing at a time is done to a node.
    lock: threading.RLock = field(default_factory=threading.RLock)
    #: Started and not ended by us: an end now is one of the node's own.
    wanted: bool = False
    paused: bool = False
    #: Bytes and operations per second; (0, 0) = unbounded.
    throttle: tuple[int, int] = (0, 0)
    wall_ms: int = 0
    jumped_ms: int = 0
    drift_ppm: int = 0
    log_start: int = 0
    removed: bool = False
    #: Its removal was asked for: it may have been decided, whatever the answer was.
    leaving: bool = False
    #: Kinds of fault that have begun on its disk since its process started.
    disk_faults: set[str] = field(default_factory=set)

    def disk_faults_so_far(self) -> frozenset[str]:
        """Those that this process has met: they began in its life, or are on."""
        on = set()
        if self.disk is not None:
            on = {kind for kind, is_on in ((FAILED_DISK, self.disk.failed),
                                           (HUNG_DISK, self.disk.frozen)) if is_on}
        return frozenset(self.disk_faults | on)
