"""Names of threads in the system's own tools.

Contract. ``name_this_thread`` gives the calling thread a name of at most 15 bytes in ``/proc``,
``top -H`` and debuggers: the first question about a slow node is which of its threads is busy or
stuck. Python's own thread names are visible to Python only. A system that refuses the name is
tolerated.
"""

from __future__ import annotations

import threading


def name_this_thread(name: str) -> None:
    """Set the name of the calling thread, as the system shows it; do nothing without ``/proc``."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
            comm.write(name)
    except OSError:
        return  # no /proc, or one that is read-only
