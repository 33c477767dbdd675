"""Ledger of what a run creates outside its directory, written before creation, and its release.

Contract.  ``ResourceLedger.note`` comes before the creation.  ``release`` removes everything that a
ledger names and that exists, in an order in which removal succeeds; it may be called twice, and by
any of three callers: the run itself at its end, its watchdog when the run is gone, and the next
run. ``ReleaseFailed`` names what could not be removed, after everything else was removed.

Invariants.  A ledger belongs to one process: while that process lives, no other process releases
it.  Containers and networks of an engine have labels of the run and of its owner as well, so that
they are found even when the ledger is lost.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

from chaos import engine
from chaos.backends import disk, host, throttle
from chaos.backends.backend import BackendError
from chaos.backends.host import ProcessId

_LOG = logging.getLogger("multiraft.chaos.backends")

#: Kinds of rows, in the order of their release: a process that waits for a frozen disk ends only
#: after the thaw, and a disk in use is not unmounted.
DISK, PROCESS, CONTAINERS, CGROUP, LINK, NAMESPACE, SHARED, ENGINE = (
    "disk", "process", "containers", "cgroup", "link", "namespace", "shared", "engine")
#: A killed process is gone unless its disk is slow.
GONE_S = 30.0
_SUFFIX = ".ledger"
#: The label of everything that runs create in an engine; its value is the run.
LABEL = "multiraft.chaos"
#: Label of the owner, a process of this boot, so that orphans are found without a ledger.
OWNER_LABEL = "multiraft.chaos.owner"


class ReleaseFailed(BackendError):
    """Raised when something could not be removed."""


class ResourceLedger:
    """The file of one run; lines are only added."""

    def __init__(self, run: str, path: Path):
        self.run = run
        self.path = path

    @classmethod
    def open(cls) -> ResourceLedger:
        """Create the ledger of a new run, owned by this process."""
        run = secrets.token_hex(4)
        path = host.state_directory() / (run + _SUFFIX)
        # Not visible before it has an owner: other runs release ledgers without one.
        fresh = cls(run, path.with_suffix(".new"))
        fresh.note("owner", *map(str, host.identify(os.getpid())))
        fresh.path.rename(path)
        return cls(run, path)

    def note(self, kind: str, *what: str) -> None:
        """Add a line for an object of ``kind`` that is going to be created; ``what``: its names."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([kind, *what]) + "\n")

    def rows(self) -> list[list[str]]:
        """Return all recorded rows, kind first; a line that was incomplete when its writer died is
        left out. Empty when the ledger is gone."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text(encoding="utf-8").splitlines(True)
                if line.endswith("\n")]

    def of_kind(self, kind: str) -> list[list[str]]:
        """Return the rows of one kind, each once and without the kind: the names of the object."""
        found = [row[1:] for row in self.rows() if row[0] == kind]
        return [row for number, row in enumerate(found) if row not in found[:number]]

    def is_orphan(self) -> bool:
        """True if the process that owns the ledger is gone."""
        owners = self.of_kind("owner")
        return not owners or not host.alive(ProcessId(int(owners[0][0]), int(owners[0][1])))


def orphans() -> Iterator[ResourceLedger]:
    """Yield the ledgers of runs whose process is gone, in order of their names."""
    for path in sorted(host.state_directory().glob("*" + _SUFFIX)):
        ledger = ResourceLedger(path.name.removesuffix(_SUFFIX), path)
        if ledger.is_orphan():
            yield ledger


def release_orphans() -> list[str]:
    """Release the ledgers of runs whose process is gone; return the ids of the runs that leave
    nothing behind.

    What cannot be removed is logged and stays in its ledger. Names carry the run, so the objects of
    an earlier run do not stand in the way of a new one.
    """
    released = []
    for ledger in list(orphans()):
        try:
            release(ledger)
        except ReleaseFailed as error:
            _LOG.warning("%s; see %s", error, ledger.path)
        else:
            released.append(ledger.run)
    return released


def release(ledger: ResourceLedger) -> None:
    """Remove everything that the ledger names, then the ledger. What cannot be removed does not
    stop the rest; the ledger stays then and ``ReleaseFailed`` is raised."""
    left: list[str] = []
    for _image, mount in ledger.of_kind(DISK):
        with _complaints(left):
            disk.thaw(Path(mount))
    _kill([ProcessId(int(pid), int(start)) for pid, start in ledger.of_kind(PROCESS)], left)
    # Without an engine there is nothing to ask: its containers ended with it, and a later run with
    # an engine finds what is left by the labels (``containers.remove_leftovers``).
    if ledger.of_kind(CONTAINERS) and engine.running() is not None:
        with _complaints(left):
            remove_containers(ledger.run)
    for name, in ledger.of_kind(CGROUP):
        with _complaints(left):
            throttle.remove(name)
    for name, in ledger.of_kind(LINK):
        with _complaints(left):
            if Path("/sys/class/net", name).exists():
                host.run("ip", "link", "del", name)
    for name, in ledger.of_kind(NAMESPACE):
        with _complaints(left):
            if Path("/run/netns", name).exists():
                host.run("ip", "netns", "del", name)
    for image, mount in ledger.of_kind(DISK):
        with _complaints(left):
            disk.LoopDisk(Path(image), Path(mount)).detach()
            Path(image).unlink(missing_ok=True)
    for directory, in ledger.of_kind(SHARED):
        with _complaints(left):
            while host.is_mounted(Path(directory)):
                host.run("umount", directory)
    for pid, start in ledger.of_kind(ENGINE):
        _terminate(ProcessId(int(pid), int(start)), left)
    if left:
        raise ReleaseFailed(f"run {ledger.run} leaves: {'; '.join(left)}")
    ledger.path.unlink(missing_ok=True)


@contextlib.contextmanager
def _complaints(left: list[str]) -> Iterator[None]:
    """Add an error of the body to ``left`` instead of raising it, so that one object that cannot be
    removed does not stop the others."""
    try:
        yield
    except (BackendError, OSError) as error:
        left.append(str(error))


def _kill(processes: list[ProcessId], left: list[str]) -> None:
    for process in processes:
        host.send(process, signal.SIGKILL)
    for process in processes:
        if not host.holds(lambda process=process: not host.alive(process), GONE_S):
            left.append(f"process {process.pid}")


def _terminate(daemon: ProcessId, left: list[str]) -> None:
    """Send SIGTERM to a Docker daemon and wait: it cleans up its own objects then. One that still
    lives after ``GONE_S`` is added to ``left``."""
    host.send(daemon, signal.SIGTERM)
    if not host.holds(lambda: not host.alive(daemon), GONE_S):
        left.append(f"dockerd, process {daemon.pid}")


def remove_containers(run: str) -> None:
    """Remove the containers of a run, then its networks: a network in use stays.  The engine's own
    command is used, so that the watchdog and later runs need no library. Raises
    ``BackendError``."""
    wanted = f"label={LABEL}={run}"
    paused = host.run("docker", "ps", "-q", "--filter", wanted, "--filter", "status=paused")
    for container in paused.split():
        host.run("docker", "unpause", container)
    containers = host.run("docker", "ps", "-aq", "--filter", wanted).split()
    if containers:
        host.run("docker", "rm", "-f", "-v", *containers)
    networks = host.run("docker", "network", "ls", "-q", "--filter", wanted).split()
    if networks:
        host.run("docker", "network", "rm", *networks)
