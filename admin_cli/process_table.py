"""The kernel's table of processes: which of them is which, and a signal for exactly one.

Contract.  Who starts processes names them by what never comes back: pids are used again, (pid,
start time) on one boot is not.  Nothing is ever signalled by pid alone: ``signal_exactly`` pins the
process with a pidfd, lets the caller compare, then signals the pidfd, so a pid that was reused
meanwhile cannot be hit.  Linux only (/proc, pidfd).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

#: Log lines that an error message quotes.
LOG_LINES_SHOWN = 12
#: How much of a log's end is searched for them.
LOG_TAIL_BYTES = 64 << 10


def start_time(pid: int) -> int | None:
    """Clock ticks from the boot, field 22 of /proc/PID/stat; None when there is no such process or
    all of it has ended.

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


def works_in(pid: int, directory: Path) -> bool:
    """Tell whether the working directory of a process is ``directory``, under whatever name.

    True as well where the kernel does not tell: for processes of other users, and for those whose
    first thread has ended.
    """
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), os.stat(directory))
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return True


def signal_exactly(pid: int, is_it: Callable[[], bool], number: signal.Signals) -> bool:
    """Signals the process that has this pid now, if it is the one that is meant; whether it was
    there.  ``is_it`` compares while nobody else can get the pid."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_it():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def log_tail(log: Path, since: int = 0, lines: int = LOG_LINES_SHOWN) -> str:
    """The last lines of a log, none from before byte ``since``; "" when there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
