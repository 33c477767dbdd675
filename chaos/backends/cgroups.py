"""Control groups (cgroups, version 1 or 2) that bound the resources of processes.

Contract.  ``Controller`` bounds one resource and knows its name in each version.  Version 1 is used
where that controller is mounted as such, also on a system that has both versions.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from chaos.backends.backend import BackendError

ROOT = Path("/sys/fs/cgroup")


class Controller(NamedTuple):
    """One controller: its name in version 1 and in version 2."""

    v1: str
    v2: str

    @property
    def home(self) -> Path:
        """Return the directory of this controller's groups in version 1."""
        return ROOT / self.v1

    @property
    def is_v1(self) -> bool:
        """True if the groups are those of version 1."""
        return self.home.is_dir()

    def unavailable(self) -> str:
        """Return why groups are not available here; empty when they are."""
        if self.is_v1:
            return ""
        controllers = ROOT / "cgroup.controllers"
        if not controllers.exists():
            return f"there is no cgroup with the controller {self.v1} or {self.v2}"
        if self.v2 not in controllers.read_text(encoding="ascii").split():
            return f"the cgroup controller {self.v2} is not enabled"
        return ""

    def group(self, name: str) -> Path:
        """Return the directory of a group, existing or not."""
        return (self.home if self.is_v1 else ROOT) / name

    def make(self, name: str) -> Path:
        """Create the group ``name`` if it is missing, with this controller enabled, and return its
        directory.  Raises ``BackendError``."""
        group = self.group(name)
        try:
            group.mkdir(exist_ok=True)
        except OSError as error:
            raise BackendError(f"cgroup {group}: {error.strerror}") from error
        if not self.is_v1:
            write(ROOT / "cgroup.subtree_control", f"+{self.v2}")
        return group

    def group_of(self, pid: int) -> Path:
        """Return the directory of the group that a process is in.  Raises ``BackendError``;
        ``FileNotFoundError`` or ``ProcessLookupError`` when there is no such process."""
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if self.is_v1 and self.v1 in controllers.split(","):
                return self.home / path.lstrip("/")
            if not self.is_v1 and not controllers:
                return ROOT / path.lstrip("/")
        raise BackendError(f"process {pid} is in no cgroup of the controller {self.v1} or "
                           f"{self.v2}")

    def remove(self, name: str) -> None:
        """Remove the group ``name``; does nothing when it is missing.  Raises ``BackendError``,
        also for a group that has processes."""
        group = self.group(name)
        if group.is_dir():
            try:
                group.rmdir()
            except OSError as error:
                raise BackendError(f"cgroup {group}: {error.strerror}") from error


def move(pid: int, group: Path) -> None:
    """Move a process into a group.  Raises ``BackendError``."""
    write(group / "cgroup.procs", str(pid))


def write(setting: Path, value: str) -> None:
    """Write a setting of a group.  Raises ``BackendError``."""
    try:
        setting.write_text(value, encoding="ascii")
    except OSError as error:
        raise BackendError(f"cgroup {setting}: {error.strerror}") from error
