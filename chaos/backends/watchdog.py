"""Clears away what a run has made when the run is gone, however it went.

    python -m chaos.backends.watchdog LEDGER < PIPE

Contract.  Holds the reading end of a pipe whose writing end only the run has.  When it ends without
a word (the run was killed), all of its ledger is released: frozen disks are thawed, nodes and their
containers end, networks and mounts go.  When it ends after a word, the run has cleared by itself.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from chaos.backends import host, ledger

_DONE = b"done\n"


class Watchdog:
    """The run's end of it."""

    def __init__(self, book: ledger.Ledger):
        # A session of its own: what ends the run by the keyboard must not end this.
        self._process = subprocess.Popen(
            host.module("chaos.backends.watchdog", str(book.path)), stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, start_new_session=True, env=host.environment())

    def dismiss(self) -> None:
        """The run has cleared everything itself.  Idempotent."""
        if self._process.poll() is None and not self._process.stdin.closed:
            self._process.communicate(_DONE)


def main() -> None:
    """The program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    path = Path(sys.argv[1])
    if sys.stdin.buffer.read() != _DONE:
        ledger.release(ledger.Ledger(path.stem, path))


if __name__ == "__main__":
    main()
