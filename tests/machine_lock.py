"""Lock of the machine: one module of tests at a time mounts file systems or runs an engine.

The lock is a file of all test runs on the machine. Its text names the holder, so that a run that
waits can say for whom.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

PATH = Path(tempfile.gettempdir()) / "multiraft-tests.lock"
#: Time after which a wait is reported: most are over by then.
REPORTED_AFTER_S = 10.0


@contextlib.contextmanager
def held(holder: str, report: Callable[[str], object], path: Path = PATH,
         reported_after_s: float = REPORTED_AFTER_S) -> Iterator[None]:
    """Hold the lock during the body, after waiting for it without limit; ``holder`` is named to
    those that wait. A wait that lasts longer than ``reported_after_s`` is passed to ``report``
    once, from a thread of its own."""
    with open(path, "a", encoding="utf-8") as lock:
        waiting = threading.Timer(reported_after_s, lambda: report(
            f"waiting for the lock of the machine, {path}, held by "
            f"{path.read_text(encoding='utf-8') or 'another test run'}"))
        waiting.daemon = True  # Ctrl-C ends the wait
        waiting.start()
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        finally:
            waiting.cancel()
        lock.truncate(0)
        lock.write(holder)
        lock.flush()
        try:
            yield
        finally:
            lock.truncate(0)
