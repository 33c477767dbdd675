"""A bound on what a process writes to one block device per second: cgroups, version 1 or 2.

Contract.  ``throttle`` acts at once, on a process that runs, for it and its children; zeros lift
it, and a process that has just ended needs none.  What a group was bounded to, the next process in
it is bounded to as well.  ``isolate`` gives a process a group of its own, ``remove`` takes that
away when it is empty.

Theory.  Version 1 bounds what a process itself submits: its syncs and direct writes, not what the
kernel writes back later on its behalf.  That is what a log waits for.
"""

from __future__ import annotations

from pathlib import Path

from chaos.backends.backend import BackendError

ROOT = Path("/sys/fs/cgroup")
V1 = ROOT / "blkio"


def unavailable() -> str:
    """Why there is no bounding here; empty when there is."""
    if (V1 / "blkio.throttle.write_bps_device").exists():
        return ""
    controllers = ROOT / "cgroup.controllers"
    if not controllers.exists():
        return "there is no cgroup with the controller blkio or io"
    if "io" not in controllers.read_text(encoding="ascii").split():
        return "the cgroup controller io is not enabled"
    return ""


def isolate(pid: int, name: str) -> None:
    """Moves a process into the group ``name``, made if need be."""
    group = _group(name)
    try:
        group.mkdir(exist_ok=True)
        if not V1.is_dir():
            (ROOT / "cgroup.subtree_control").write_text("+io", encoding="ascii")
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
    except OSError as error:
        raise BackendError(f"cgroup {group}: {error.strerror}") from error


def join(pid: int, member: int) -> None:
    """Moves ``pid`` into the group that ``member`` is in."""
    group = _group_of(member)
    try:
        (group / "cgroup.procs").write_text(str(pid), encoding="ascii")
    except OSError as error:
        raise BackendError(f"cgroup {group}: {error.strerror}") from error


def remove(name: str) -> None:
    """Removes the group ``name``; one that is not empty stays, and so does one that is not there.
    """
    group = _group(name)
    if group.is_dir():
        try:
            group.rmdir()
        except OSError as error:
            raise BackendError(f"cgroup {group}: {error.strerror}") from error


def throttle(pid: int, device: str, bytes_per_s: int, operations_per_s: int) -> None:
    """Bounds writes of the group of ``pid`` to ``device`` (MAJOR:MINOR); 0 = unbounded."""
    try:
        group = _group_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return
    if V1.is_dir():
        values = {"blkio.throttle.write_bps_device": f"{device} {bytes_per_s}",
                  "blkio.throttle.write_iops_device": f"{device} {operations_per_s}"}
    else:
        values = {"io.max": f"{device} wbps={bytes_per_s or 'max'} wiops="
                            f"{operations_per_s or 'max'}"}
    try:
        for name, value in values.items():
            (group / name).write_text(value, encoding="ascii")
    except OSError as error:
        if not group.is_dir():
            return  # it has gone with its process
        raise BackendError(f"cgroup {group}: {error.strerror}") from error


def _group(name: str) -> Path:
    return (V1 if V1.is_dir() else ROOT) / name


def _group_of(pid: int) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if V1.is_dir() and "blkio" in controllers.split(","):
            return V1 / path.lstrip("/")
        if not V1.is_dir() and not controllers:
            return ROOT / path.lstrip("/")
    raise BackendError(f"process {pid} is in no cgroup that bounds writing")
