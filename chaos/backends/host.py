"""This machine: its commands, capabilities and processes.

Contract.  ``run`` raises ``BackendError`` with the output of the command.  A process is identified
by ``ProcessId``: pids are reused, (pid, start time) on one boot is not.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from admin_cli.development import process_table
from chaos.backends.backend import BackendError

#: Commands of the system end at once; a file system on a slow disk may take its time.
COMMAND_S = 60.0
#: Lines of a command's output in an error.
LINES_SHOWN = 8
#: How often a condition is checked.
POLL_S = 0.02


#: Debian's packages of the commands that backends run.
PACKAGES = {
    "blockdev": "util-linux", "dockerd": "docker" ".io", "ip": "iproute2",
    "iptables-restore": "iptables", "losetup": "mount", "mkfs.ext4": "e2fsprogs", "mount": "mount",
    "nsenter": "util-linux", "setpriv": "util-linux", "systemd-analyze": "systemd",
    "umount": "mount", "unshare": "util-linux"}


class ProcessId(NamedTuple):
    """One process of this boot, identified permanently."""

    pid: int
    start_time: int  # clock ticks after boot


def run(*command: str, text: str = "", timeout_s: float = COMMAND_S,
        environment: dict[str, str] | None = None, statuses: Collection[int] = (0,)) -> str:
    """Run a command of the system, with ``text`` as its input, and return its standard output.

    Raises ``BackendError`` when it ends with a status that is not in ``statuses``, cannot be
    started, or takes longer than ``timeout_s``.
    """
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True,
                              timeout=timeout_s, env=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BackendError(f"`{' '.join(command)}`: {error}") from error
    if done.returncode not in statuses:
        said = _end_of(done.stderr or done.stdout) or f"exit status {done.returncode}"
        raise BackendError(f"`{' '.join(command)}`: {said}")
    return done.stdout


def _end_of(text: str) -> str:
    """Return the last lines of a command's output: the reason of a failure stands there."""
    return "\n".join(text.strip().splitlines()[-LINES_SHOWN:])


def within(namespace: Path, *command: str) -> list[str]:
    """Return a command that runs in a network namespace.  Only the network is entered: the mounts
    stay those of this process, so that no copy of them keeps a node's file system in use."""
    return ["nsenter", f"--net={namespace}", *command]


def module(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this project, by its full dotted name, in this
    interpreter."""
    # -P: a directory `node/` in the working directory of the process is not our package.
    return [sys.executable, "-P", "-m", name, *arguments]


def run_python(name: str, *arguments: str, timeout_s: float = COMMAND_S,
               statuses: Collection[int] = (0,)) -> str:
    """Run a module of this project, by its full dotted name, to its end and return its standard
    output. Raises ``BackendError`` as ``run``."""
    return run(*module(name, *arguments), timeout_s=timeout_s, environment=environment(),
               statuses=statuses)


def environment() -> dict[str, str]:
    """Return this process's environment, with the directory of our packages on the path, installed
    or not."""
    packages = str(Path(__file__).resolve().parents[2])
    inherited = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (packages, inherited)))}


def is_root() -> bool:
    """True if this process can create namespaces, mounts and packet rules."""
    return os.geteuid() == 0


def missing(*commands: str) -> list[str]:
    """Return those of these commands that the machine does not have."""
    return [command for command in commands if shutil.which(command) is None]


def lacking(*commands: str) -> str:
    """Return a sentence that names the missing commands and the line that installs them; empty when
    none is missing."""
    absent = missing(*commands)
    if not absent:
        return ""
    packages = sorted({PACKAGES[command] for command in absent})
    return f"{', '.join(absent)} missing. Run as root: apt-get install -y {' '.join(packages)}"


def identify(pid: int) -> ProcessId:
    """Return the identity of the process that has this pid now; its start time is 0 when there is
    none."""
    return ProcessId(pid, process_table.start_time(pid) or 0)


def alive(process: ProcessId) -> bool:
    """True if this very process lives; a process that only waits to be reaped does not."""
    return process.start_time != 0 and process_table.start_time(process.pid) == process.start_time


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to exactly this process; return False when it does not live."""
    return process_table.signal_exactly(process.pid, lambda: alive(process), number)


def is_mounted(directory: Path) -> bool:
    """True if a file system or directory is mounted exactly at ``directory``; unlike
    ``os.path.ismount`` also for a directory of the same file system."""
    place = str(directory.absolute())
    rows = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    return any(_unescaped(row.split(" ")[4]) == place for row in rows.splitlines())


def _unescaped(name: str) -> str:
    """Decode the octal escapes, of blanks and the like, in a path of ``mountinfo``."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)


def holds(condition: Callable[[], bool], timeout_s: float, poll_s: float = POLL_S) -> bool:
    """Block until ``condition`` holds, checking it every ``poll_s`` seconds, and return True; False
    when it does not hold within ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_s)
    return True


def state_directory() -> Path:
    """Return the directory of the ledgers of all runs, created if necessary. Later runs clear from
    it what earlier ones left."""
    directory = (Path("/run/multiraft-chaos") if is_root()
                 else Path(f"/tmp/multiraft-chaos-{os.getuid()}"))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory
