"""Watchdog: releases the ledger of a run when the run's process is gone.

    python -m chaos.backends.watchdog LEDGER < PIPE

Contract.  Holds the reading end of a pipe whose writing end only the run has.  When the pipe ends
without a message (the run was killed), the whole ledger is released: frozen disks are thawed, nodes
and their containers end, networks and mounts go.  When it ends after a message, the run has
released everything itself.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from chaos.backends import host, ledger

_DONE = b"done\n"


class CleanupWatchdog:
    """The run's end of the watchdog: its process and the pipe to it."""

    def __init__(self, book: ledger.ResourceLedger):
        # A session of its own: a keyboard interrupt of the run must not end the watchdog.
        self._process = subprocess.Popen(
            host.module("chaos.backends.watchdog", str(book.path)), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, start_new_session=True, env=host.environment())

    def dismiss(self) -> None:
        """Tell the watchdog that the run has released everything itself, so that it releases
        nothing, and wait for its end. Idempotent."""
        if self._process.poll() is None and not self._process.stdin.closed:
            self._process.communicate(_DONE)


def main() -> None:
    """Wait until the pipe on standard input ends; release the ledger of the command line unless the
    run has said that it did so."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = Path(sys.argv[1])
    if sys.stdin.buffer.read() != _DONE:
        ledger.release(ledger.ResourceLedger(path.stem, path))


if __name__ == "__main__":
    main()
