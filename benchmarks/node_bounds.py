"""Bounds of each node of a benchmark on a shared machine: disk writes and memory.

Contract.  ``NodeBounds`` is a context: ``add`` puts a node's process into a group of its own, whose
writes per second to the disk under ``directory`` and whose memory, page cache included, are
bounded.  The groups are removed at the end; their processes must have ended before. 0 bounds
nothing.  Where there are no groups, or no right to make one, ``why`` gives the reason and ``add``
does nothing.  A process that is killed within the context leaves empty groups behind.

Theory.  Nodes have machines of their own, whose disk or network is the bottleneck before the
processors are, and another node adds its own.  Nodes of a benchmark share two processors: together
they use both, at half of the load nearly as much as at full load (rounds are smaller), and another
node adds none.  Memory behaves alike: a log without retention fills the page cache of the whole
machine, and on a virtual machine the first use of a page that was idle for long costs many times
what it costs later; within a bound, pages are soon used again.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from chaos.backends import cgroups, throttle
from chaos.backends.backend import BackendError

MEMORY = cgroups.Controller("memory", "memory")
BLOCK_DEVICES = Path("/sys/dev/block")


class NodeBounds:
    """Context with a cgroup per node.  ``name``: prefix of the groups' names."""

    def __init__(self, directory: Path, write_bytes_per_s: int, memory_bytes: int, name: str):
        self._device = ""
        self._write_bytes_per_s = write_bytes_per_s
        self._memory_bytes = memory_bytes
        self._name = name
        self._made: list[str] = []
        self.why = ""
        try:
            if write_bytes_per_s:
                self.why = throttle.unavailable()
                self._device = device_of(directory)
            if memory_bytes:
                self.why = self.why or MEMORY.unavailable()
        except BackendError as error:
            self.why = str(error)

    def __enter__(self) -> NodeBounds:
        return self

    def __exit__(self, _kind: type[BaseException] | None, _error: BaseException | None,
                 _traceback: TracebackType | None) -> None:
        for name in self._made:
            throttle.remove(name)
            MEMORY.remove(name)

    def add(self, pid: int) -> None:
        """Bound one more node."""
        if self.why:
            return
        name = f"{self._name}-{len(self._made)}"
        self._made.append(name)
        try:
            if self._write_bytes_per_s:
                throttle.isolate(pid, name)
                throttle.throttle(pid, self._device, self._write_bytes_per_s, 0)
            if self._memory_bytes:
                group = MEMORY.make(name)
                limit = "memory.limit_in_bytes" if MEMORY.is_v1 else "memory.max"
                cgroups.write(group / limit, str(self._memory_bytes))
                cgroups.move(pid, group)
        except BackendError as error:
            self.why = str(error)


def device_of(directory: Path) -> str:
    """Return the disk of a directory, MAJOR:MINOR.  Raises ``BackendError`` for a file system
    without one, in memory or in layers."""
    number = directory.stat().st_dev
    place = BLOCK_DEVICES / f"{os.major(number)}:{os.minor(number)}"
    if not place.is_dir():
        raise BackendError(f"{directory} is on no block device whose writes could be bounded")
    whole = place.resolve()
    if (whole / "partition").exists():
        whole = whole.parent
    return (whole / "dev").read_text(encoding="ascii").strip()
