"""A bound on what a process writes to one block device per second: cgroups, version 1 or 2.

Contract.  ``throttle`` acts at once, on a process that runs, for it and its children; zeros lift
it, and a process that has just ended needs none.  A bound stays with the group and applies to the
next process in it.  ``isolate`` gives a process a group of its own, ``remove`` removes that group
when it is empty.

Theory.  Version 1 bounds what a process itself submits: its syncs and direct writes, not what the
kernel writes back later on its behalf.  A log waits for exactly those writes.
"""

from __future__ import annotations

from chaos.backends import cgroups
from chaos.backends.backend import BackendError

CONTROLLER = cgroups.Controller("blkio", "io")


def unavailable() -> str:
    """Return why writes cannot be bounded here; empty when they can."""
    if CONTROLLER.is_v1 and not (CONTROLLER.home / "blkio.throttle.write_bps_device").exists():
        return "the cgroup controller blkio does not throttle"
    return CONTROLLER.unavailable()


def isolate(pid: int, name: str) -> None:
    """Move a process into the group ``name``, created if it is missing.  Raises
    ``BackendError``."""
    cgroups.move(pid, CONTROLLER.make(name))


def join(pid: int, member: int) -> None:
    """Move ``pid`` into the group of ``member``.  Raises ``BackendError``."""
    cgroups.move(pid, CONTROLLER.group_of(member))


def remove(name: str) -> None:
    """Remove the group ``name``; does nothing when it is missing.  Raises ``BackendError`` when
    that fails, as it does while the group has processes."""
    CONTROLLER.remove(name)


def throttle(pid: int, device: str, bytes_per_s: int, operations_per_s: int) -> None:
    """Bound what the group of ``pid`` writes to ``device`` (MAJOR:MINOR) per second; 0 = unbounded.
    Does nothing when the process has ended.  Raises ``BackendError``."""
    try:
        group = CONTROLLER.group_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    if CONTROLLER.is_v1:
        values = {"blkio.throttle.write_bps_device": f"{device} {bytes_per_s}",
                  "blkio.throttle.write_iops_device": f"{device} {operations_per_s}"}
    else:
        values = {"io.max": f"{device} wbps={bytes_per_s or 'max'} wiops="
                            f"{operations_per_s or 'max'}"}
    try:
        for name, value in values.items():
            cgroups.write(group / name, value)
    except BackendError:
        if group.is_dir():  # otherwise the group was removed with its process
            raise
