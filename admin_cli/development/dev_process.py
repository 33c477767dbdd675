"""Processes of a local cluster: start, recognise, signal, wait.

Contract.  A process is named by `Identity`: pid, start time and boot; `send_signal` reaches exactly
that one (`process_table`).  Linux only (/proc, pidfd).
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

from admin_cli.development import dev_state, process_table
from admin_cli.development.dev_state import NodeRecord
from admin_cli.failures import CommandFailed
from admin_cli.packages import distribution_root

#: Interval at which a condition of another process is checked.
POLL_INTERVAL_S = 0.05

# Children of this process that must be reaped.  They belong to the process, not to an object in it,
# hence module level.
_children: dict[int, subprocess.Popen] = {}


class Identity(NamedTuple):
    """One process, uniquely: no other process ever has these three values."""

    pid: int
    start_time: int
    boot: str


def node_command(config: Path, action: str = "start", *options: str) -> list[str]:
    """Return the command line that starts a node from its configuration file, or initialises it
    (``action="init"``)."""
    # -P: a directory `node/` in the user's working directory must not shadow the package.
    return [sys.executable, "-P", "-m", "node", action, "--config", str(config), *options]


def run_all(commands: Sequence[Sequence[str]], timeout_s: float) -> list[str]:
    """Run commands that end by themselves concurrently, and wait for all. Return the output of each
    that failed. A command that does not end in time is killed, and counts as failed."""
    children: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            children.append(subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, env=_environment()))
        return [complaint for child in children if (complaint := _complaint(child, timeout_s))]
    finally:
        for child in children:  # an interrupted command leaves none behind
            if child.poll() is None:
                child.kill()
                child.communicate()


def _complaint(child: subprocess.Popen[bytes], timeout_s: float) -> str:
    """Wait for a command. Return its output if it failed, else an empty text."""
    try:
        _, said = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return f"it had not ended after {timeout_s:.0f} s; is the machine overloaded?"
    if not child.returncode:
        return ""
    return said.decode("utf-8", errors="replace").strip() or f"exit status {child.returncode}"


def start(command: Sequence[str], directory: Path, log: Path) -> Identity:
    """Start ``command`` in the background, in ``directory``, and return its identity at once. Its
    output is appended to ``log``."""
    with open(log, "ab") as output:
        child = subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output,
                                 stderr=output, start_new_session=True, env=_environment())
    _children[child.pid] = child
    return Identity(child.pid, process_table.start_time(child.pid) or 0, boot_id())


def _environment() -> dict[str, str]:
    """Return this process's environment, with the packages on the path when they run from a source
    tree."""
    environment = dict(os.environ)
    root = str(distribution_root())
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"),
                 site.getusersitepackages()}
    if root not in {os.path.realpath(path) for path in installed}:
        parts = [root, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(part for part in parts if part)
    return environment


def boot_id() -> str:
    """Return the boot id of this machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def alive(process: Identity) -> bool:
    """Return True if this very process still runs; reap it when it was a child and has ended."""
    exit_status(process)
    return process.boot == boot_id() and process_table.start_time(process.pid) == process.start_time


def identity(node: NodeRecord) -> Identity:
    """Return the last process of a node that was started."""
    assert node.pid is not None
    return Identity(node.pid, node.start_time, node.boot)


def node_alive(directory: Path, node: NodeRecord) -> bool:
    """Return True if the recorded process of a node runs on ``directory``.

    A copy of the directory records processes that run on the original: those do not count.
    """
    return (node.pid is not None and alive(identity(node))
            and process_table.works_in(node.pid, dev_state.node_directory(directory, node.id)))


def exit_status(process: Identity) -> int | None:
    """Return the exit code of a child, negative for a signal, and reap the child. None while it
    runs, or if the process is not a child."""
    child = _children.get(process.pid)
    return None if child is None else child.poll()


def send_signal(process: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process; return False when it no longer runs."""
    return process_table.signal_exactly(process.pid, lambda: alive(process), number)


def wait_gone(process: Identity, timeout_s: float) -> bool:
    """Wait until the process has ended; return False when it still runs after ``timeout_s``."""
    deadline = time.monotonic() + timeout_s
    while alive(process):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_INTERVAL_S)
    return True


def log_size(log: Path) -> int:
    """Return the present size of a log: later bytes belong to the next run."""
    return log.stat().st_size if log.exists() else 0


def require_linux() -> None:
    """Return where processes can be identified reliably. Raises ``CommandFailed`` elsewhere."""
    if not (hasattr(os, "pidfd_open") and Path("/proc/self/stat").exists()):
        raise CommandFailed("`multiraft dev` needs Linux 5.3 or later (/proc and pidfd).",
                            "Run it in a Linux machine or container; clients work anywhere.")
