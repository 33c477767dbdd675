"""The kernel's process table: identification of a process, and a signal for exactly one.

Contract.  Processes are identified by values that never return: pids are reused, (pid, start time)
on one boot is not.  Nothing is ever signalled by pid alone: ``signal_exactly`` pins the process
with a pidfd, lets the caller compare, then signals the pidfd, so a pid that was reused meanwhile
cannot be hit.  Linux only (/proc, pidfd).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

#: Log lines that an error message quotes.
LOG_LINES_SHOWN = 12
#: Bytes at a log's end that are searched for them.
LOG_TAIL_BYTES = 64 << 10


def start_time(pid: int) -> int | None:
    """Return the time at which a process started, in clock ticks from the boot. It is None when
    there is no such process or all of it has ended.

    A killed process shows as a zombie as soon as its first thread has ended. While another thread
    is still in the kernel, syncing a file say, its ports and files are in use: the process has not
    ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field, the command in parentheses, may itself hold spaces and parentheses.
    fields = stat[stat.rindex(")") + 2:].split()
    threads = int(fields[17])
    return None if fields[0] in "ZX" and threads <= 1 else int(fields[19])


def works_in(pid: int, directory: Path) -> bool:
    """Return True if the working directory of a process is ``directory``, under whatever name.

    Also where the kernel does not tell: for processes of other users, for those whose first thread
    has ended, and for a pid without a process."""
    try:
        return os.path.samestat(os.stat(f"/proc/{pid}/cwd"), os.stat(directory))
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return True


def signal_exactly(pid: int, is_it: Callable[[], bool], number: signal.Signals) -> bool:
    """Signal the process that has this pid now, if ``is_it`` returns True; return True if it was
    signalled.

    No other process can get the pid while ``is_it`` runs.
    """
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
    """Return the last lines of a log, none from before byte ``since``; "" when there is none."""
    try:
        with open(log, "rb") as file:
            file.seek(max(since, os.fstat(file.fileno()).st_size - LOG_TAIL_BYTES))
            text = file.read().decode("utf-8", errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-lines:])
