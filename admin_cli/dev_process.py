"""Processes of a local cluster: start, recognise, signal, wait.

Contract.  A process is named by `Identity`: pid, start time and boot.  Nothing is ever signalled
by pid alone: `send_signal` pins the process with a pidfd, compares the identity, then signals the
pidfd, so a pid that was reused meanwhile cannot be hit.  Linux only (/proc, pidfd).
Theory.  Nodes outlive the command that starts them: own session, no inherited descriptors, output
to a file.  When the starter lives on (the demo, tests), its dead children stay zombies until they
are waited for; a zombie counts as gone, and `alive` reaps it.
"""

from __future__ import annotations

import os
import signal
import site
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from admin_cli.failures import CommandFailed
from admin_cli.packages import distribution_root

#: How often a condition of another process is looked at while waiting for it.
POLL_INTERVAL_S = 0.05
#: Log lines that an error message quotes.
LOG_LINES_SHOWN = 12
#: How much of a log's end is searched for them.
LOG_TAIL_BYTES = 64 << 10

# The kernel's table of our children, seen from here: who must be reaped.  Children belong to the
# process, not to an object in it, hence module level.
_children: dict[int, subprocess.Popen] = {}


class Identity(NamedTuple):
    """One process, for ever: no other process has these three."""

    pid: int
    start_time: int
    boot: str


def node_command(config: Path, action: str = "start", *options: str) -> list[str]:
    """How a node is started from its configuration file, or initialised (``action="init"``)."""
    # -P: a directory `node/` in the place where the user happens to stand is not our package.
    return [sys.executable, "-P", "-m", "node", action, "--config", str(config), *options]


def run_all(commands: Sequence[Sequence[str]], timeout_s: float) -> list[str]:
    """Runs commands that end by themselves, all at once; what each of those that failed said.
    One that does not end in time is killed."""
    children = [subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE, env=_environment())
                for command in commands]
    complaints = []
    for child in children:
        try:
            _, said = child.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            child.kill()
            _, said = child.communicate()
        if child.returncode:
            complaints.append(said.decode("utf-8", errors="replace").strip()
                              or f"exit status {child.returncode}")
    return complaints


def start(command: Sequence[str], directory: Path, log: Path) -> Identity:
    """Starts ``command`` in the background; its output is appended to ``log``."""
    with open(log, "ab") as output:
        child = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=output, start_new_session=True, env=_environment())
    _children[child.pid] = child
    return Identity(child.pid, _start_time(child.pid) or 0, boot_id())


def _environment() -> dict[str, str]:
    """Ours; with our packages on the path when they run from a source tree, not installed."""
    environment = dict(os.environ)
    root = str(distribution_root())
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                 site.getusersitepackages()}
    if root not in {os.path.realpath(path) for path in installed}:
        parts = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    return environment


def boot_id() -> str:
    """This boot of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> int | None:
    """Field 22 of /proc/PID/stat; None when there is no such process or all of it has ended.

    A killed process shows as a zombie as soon as its first thread has ended.  While another one
    still is in the kernel, syncing a file say, its ports and files are taken: that is not gone.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the command in parentheses, may itself hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2:].split()
    threads = int(fields[17])
    return None if fields[0] in "ZX" and threads <= 1 else int(fields[19])


def alive(process: Identity) -> bool:
    """Whether this very process still runs; reaps it when it was our child and has ended."""
    exit_status(process)
    return process.boot == boot_id() and _start_time(process.pid) == process.start_time


def exit_status(process: Identity) -> int | None:
    """Its exit code, negative for a signal; None while it runs or if it is not our child."""
    child = _children.get(process.pid)
    return None if child is None else child.poll()


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Signals exactly this process; False when it no longer runs."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not alive(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait_gone(process: Identity, timeout_s: float) -> bool:
    """Waits until the process has ended; False when it still runs after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def log_tail(log: Path, since: int = 0, lines: int = LOG_LINES_SHOWN) -> str:
    """The last lines of a log, none from before byte ``since``."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def log_size(log: Path) -> int:
    """Where a log ends now: what comes later is of the next run."""
    return log.stat().st_size if log.exists() else 0


def require_linux() -> None:
    """Raises ``CommandFailed`` where processes cannot be recognised for certain."""
    if not (hasattr(os, "pidfd_open") and Path("/proc/self/stat").exists()):
        raise CommandFailed("`multiraft dev` needs Linux 5.3 or later (/proc and pidfd).",
                            "Run it in a Linux machine or container; clients work anywhere.")
