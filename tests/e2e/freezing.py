"""Freezing of one thread of a process while the others run, as by a page fault, a debugger or a
starved processor.

Contract.  ``frozen(pid, name)`` holds the thread with that name (``node/loop/threads.py``) for as
long as the context lasts, outside of the interpreter's lock.  It needs permission to trace the
process.

Theory.  A traced thread can be stopped alone, unlike by SIGSTOP.  Its system call shows whether it
had the interpreter's lock: a thread that waits for events does not hold it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from tests import needs
from tests.e2e.world import wait_for

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000
#: Numbers of the calls in which a selector waits, on the known processors.
_WAITING = {"x86_64": {232, 281}, "aarch64": {22}}.get(os.uname().machine, set())

_ptrace = ctypes.CDLL(None, use_errno=True).ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def why_not() -> str:
    """Return why threads cannot be frozen here; empty when they can."""
    if os.geteuid():
        return f"it takes root. {needs.AS_ROOT}"
    return "" if _WAITING else f"system calls of {os.uname().machine} are not known"


def thread(pid: int, name: str) -> int:
    """Return the id of a process's thread."""
    found = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()
             if (task / "comm").read_text().strip() == name]
    assert len(found) == 1, f"{len(found)} threads of {pid} are called {name}"
    return found[0]


@contextlib.contextmanager
def frozen(pid: int, name: str) -> Iterator[None]:
    """Freeze the thread of this name while the context lasts."""
    tid = thread(pid, name)
    wait_for(lambda: _stop(pid, tid), f"{name} waits for events")
    try:
        yield
    finally:
        _call(_DETACH, tid)


def _stop(pid: int, tid: int) -> bool:
    """Stop the thread; return True if it stopped outside of the interpreter's lock."""
    _call(_SEIZE, tid)
    _call(_INTERRUPT, tid)
    os.waitpid(tid, _WALL)
    words = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
    if words[0].lstrip("-").isdigit() and int(words[0]) in _WAITING:
        return True
    _call(_DETACH, tid)
    return False


def _call(request: int, tid: int) -> None:
    if _ptrace(request, tid, None, None) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace: {os.strerror(number)}")
