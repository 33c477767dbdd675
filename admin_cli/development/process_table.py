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

#: Tables of the kernel with the TCP sockets of this network namespace.
SOCKET_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
#: The kernel's number of the state in which a socket waits for connections.
LISTENS = "0A"
#: Characters of a command line that a message shows.
COMMAND_SHOWN = 60
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


def working_directory(pid: int) -> Path | None:
    """Return the working directory of a process; None where the kernel does not tell."""
    try:
        return Path(os.readlink(f"/proc/{pid}/cwd"))
    except OSError:
        return None


def command_line(pid: int) -> str:
    """Return the command line of a process, shortened, without the directory of the program; ""
    where the kernel does not tell."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return ""
    text = os.fsdecode(b" ".join([os.path.basename(words[0]), *words[1:]]).strip())
    return text if len(text) <= COMMAND_SHOWN else f"{text[:COMMAND_SHOWN - 4]} ..."


def user_of_port(port: int) -> int | None:
    """Return the pid of a process that has a TCP socket on a port of this machine, of several one
    that listens. None if it is not known: the kernel tells nothing about the sockets of other users
    and other containers. O(open files of all processes)."""
    sockets = {}
    for table in SOCKET_TABLES:
        sockets.update(_sockets(table, port))
    found: dict[str, int] = {}
    for directory in Path("/proc").glob("[0-9]*") if sockets else ():
        try:
            for file in (directory / "fd").iterdir():
                if (link := os.readlink(file)) in sockets:
                    found[sockets[link]] = int(directory.name)
        except OSError:  # the process is another user's, or it or its file is gone
            continue
    return found.get(LISTENS, next(iter(found.values()), None))


def _sockets(table: str, port: int) -> dict[str, str]:
    """Return the sockets on ``port`` in a table of the kernel: name of the open file -> state."""
    try:
        lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
    except FileNotFoundError:  # a kernel without IPv6
        return {}
    rows = [line.split() for line in lines]
    return {f"socket:[{row[9]}]": row[3] for row in rows
            if int(row[1].rpartition(":")[2], 16) == port}


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
